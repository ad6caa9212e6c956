"""Measured transfer matrices: archives and Touchstone files, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.io.measurements import read_measurement

MESH = om.HexMesh(1, 1, ports=[0, 4, 8])
SWITCH = om.Crossbar(2)


def draw(fabric: om.Fabric, seed: int) -> dict[str, NDArray[Any]]:
    """Draw states and amplitudes."""
    rng = np.random.default_rng(seed)
    shape = (2, fabric.n_ports, fabric.n_ports)
    return {
        "cell_states": rng.integers(0, 2, (2, fabric.n_cells), dtype=np.int8),
        "amplitude": (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / 10,
    }


def write_touchstone(path: Path, matrices: NDArray[np.complex128]) -> None:
    """Write ``matrices[frequency, out, in]`` by hand: real and imaginary parts, row by row."""
    lines = ["! by hand", "# GHz S RI R 50"]
    for k, matrix in enumerate(matrices):
        order = matrix.T if len(matrix) == 2 else matrix  # two ports: S11 S21 S12 S22
        numbers = [f"{x:.17g}" for z in order.ravel() for x in (z.real, z.imag)]
        lines.append(f"{193000 + k} " + " ".join(numbers))
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("fabric", [MESH, SWITCH], ids=lambda fabric: fabric.type)
def test_an_archive_is_read(fabric: om.Fabric, tmp_path: Path) -> None:
    """Amplitudes are squared; what is NaN was not measured."""
    arrays: dict[str, Any] = draw(fabric, 0)
    arrays["amplitude"][1, 0, 1] = np.nan
    np.savez(tmp_path / "a.npz", **arrays)
    found = read_measurement(fabric, [tmp_path / "a.npz"])
    power = np.abs(arrays["amplitude"]) ** 2
    np.testing.assert_array_equal(found.power, power)
    assert np.isnan(found.power).sum() == 1
    np.savez(tmp_path / "p.npz", cell_states=arrays["cell_states"], power=power)
    np.testing.assert_array_equal(read_measurement(fabric, [tmp_path / "p.npz"]).power, power)


@pytest.mark.parametrize("fabric", [MESH, SWITCH], ids=lambda fabric: fabric.type)
def test_touchstone_files_are_read(fabric: om.Fabric, tmp_path: Path) -> None:
    """Of three frequencies the middle one; sources before destinations where they differ."""
    arrays = draw(fabric, 1)
    ports = fabric.n_ports
    size = ports if fabric.bidirectional else 2 * ports
    paths = []
    for k, amplitude in enumerate(arrays["amplitude"]):
        matrices = np.full((3, size, size), 0.5 + 0j)
        first = 0 if fabric.bidirectional else ports
        matrices[1, first:, :ports] = amplitude.T  # S[out, in]
        paths.append(tmp_path / f"{k}.s{size}p")
        write_touchstone(paths[-1], matrices)
    np.savez(tmp_path / "states.npz", cell_states=arrays["cell_states"])
    found = read_measurement(fabric, [tmp_path / "states.npz", *paths])
    np.testing.assert_allclose(found.power, np.abs(arrays["amplitude"]) ** 2, rtol=1e-12)
    assert np.array_equal(found.cell_states, arrays["cell_states"])


@pytest.mark.parametrize(
    "change, match",
    [
        ({"cell_states": None}, "amplitude: cell_states, and power or amplitude is needed"),
        ({"amplitude": None}, "cell_states: cell_states, and power or amplitude"),
        ({"power": np.zeros((2, 3, 3))}, "cell_states, and power or amplitude is needed"),
        ({"extra": np.zeros(1)}, "'extra': unknown"),
        ({"amplitude": np.zeros((2, 3, 3))}, "amplitude of type float64: complex numbers"),
        ({"cell_states": np.zeros((2, 6))}, "cell_states of type float64: whole numbers"),
        ({"cell_states": np.zeros(6, int)}, "cell_states has 1 dimensions, not 2"),
        ({"cell_states": np.full((2, 6), 3)}, r"cell_states\[0, 0\] = 3: from 0 to 2"),
        ({"amplitude": np.zeros((2, 4, 3), complex)}, r"the fabric needs .k, 3, 3"),
        ({"amplitude": np.zeros((3, 3, 3), complex)}, "not .states, cells. and"),
        ({"amplitude": np.full((2, 3, 3), 1e300 + 0j)}, r"power\[0, 0, 0\] = inf"),
        ({"amplitude": np.full((2, 3, 3), 1.5j)}, r"power\[0, 0, 0\] = 2.25: from 0 to 1"),
    ],
)
def test_a_broken_archive_is_refused(change: dict[str, Any], match: str, tmp_path: Path) -> None:
    """By file, place, rule and value."""
    arrays = {key: value for key, value in (draw(MESH, 0) | change).items() if value is not None}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises((om.FormatError, om.InputError), match=match) as caught:
        read_measurement(MESH, [tmp_path / "a.npz"])
    assert "a.npz" in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    states, text, objects = (tmp_path / f"{name}.npz" for name in ("states", "text", "objects"))
    np.savez(states, cell_states=np.zeros((1, 6), dtype=np.int8))
    text.write_text("no archive")
    np.savez(objects, cell_states=np.array([None]), power=np.zeros((1, 3, 3)))
    good, short, damaged = (tmp_path / name for name in ("good.s3p", "short.s2p", "bad.s3p"))
    write_touchstone(good, np.zeros((1, 3, 3), dtype=complex))
    write_touchstone(short, np.zeros((1, 2, 2), dtype=complex))
    damaged.write_text("# GHz S RI R 50\n193 0.1 x")
    for paths, match in (
        ([tmp_path / "absent.npz"], "absent.npz: cannot be read"),
        ([text], "text.npz: is no file of arrays"),
        ([objects], "array of shape"),
        ([states], "cell_states, and power or amplitude is needed"),
        ([good], "good.s3p: is no file of arrays"),
        ([states, good, good], r"cell_states \(1, 6\): 2 files of states"),
        ([states, short], "short.s2p: 2 ports, not 3"),
        ([states, damaged], "bad.s3p: is no Touchstone file"),
        ([states, tmp_path / "absent.s3p"], "absent.s3p: cannot be read"),
    ):
        with pytest.raises((om.FormatError, om.InputError), match=match):
            read_measurement(MESH, paths)


def test_powers_up_to_the_calibration_are_taken(tmp_path: Path) -> None:
    """Rounding and 0.2 dB above 1 are no errors; the message names the file that has more."""
    states = np.zeros((1, SWITCH.n_cells), dtype=np.int8)
    np.savez(tmp_path / "a.npz", cell_states=states, power=np.full((1, 2, 2), 1.0 + 4e-16))
    assert read_measurement(SWITCH, [tmp_path / "a.npz"]).power.max() > 1
    np.savez(tmp_path / "a.npz", cell_states=states, power=np.full((1, 2, 2), 10**0.019))
    assert read_measurement(SWITCH, [tmp_path / "a.npz"]).power.max() > 1
    with pytest.raises(om.InputError, match=r"from 0 to 1\.01"):
        read_measurement(SWITCH, [tmp_path / "a.npz"], calibration_db=0.05)

    np.savez(tmp_path / "states.npz", cell_states=states)
    loud = np.full((1, 4, 4), 1.2, dtype=np.complex128)
    write_touchstone(tmp_path / "loud.s4p", loud)
    with pytest.raises(om.InputError, match=r"loud\.s4p: power"):
        read_measurement(SWITCH, [tmp_path / "states.npz", tmp_path / "loud.s4p"])


def name_ports(path: Path, names: list[str], numbered: bool) -> None:
    """Put names of ports into the comments of a Touchstone file."""
    lines = [f"! ports: {', '.join(names)}"]
    if numbered:
        lines = [f"! Port[{number}] = {name}" for number, name in enumerate(names, 1)]
    path.write_text("\n".join(lines) + "\n" + path.read_text())


@pytest.mark.parametrize("numbered", [False, True])
def test_names_of_ports_say_which_is_which(numbered: bool, tmp_path: Path) -> None:
    """Sorted names, as many tools write them, are put in the order of the fabric."""
    fabric = om.Benes(4)
    names = [*(f"in{port}" for port in range(4)), *(f"out{port}" for port in range(4))]
    rng = np.random.default_rng(2)
    matrix = np.zeros((8, 8), dtype=np.complex128)
    matrix.real = rng.normal(size=(8, 8)) / 10
    matrix.imag = rng.normal(size=(8, 8)) / 10
    order = rng.permutation(8)
    np.savez(tmp_path / "states.npz", cell_states=np.zeros((1, fabric.n_cells), dtype=np.int8))
    path = tmp_path / "a.s8p"
    write_touchstone(path, matrix[None][:, order][:, :, order])
    name_ports(path, [names[place] for place in order], numbered)
    found = read_measurement(fabric, [tmp_path / "states.npz", path])
    np.testing.assert_allclose(found.power[0], np.abs(matrix[4:, :4].T) ** 2, rtol=1e-12)

    write_touchstone(path, matrix[None])
    name_ports(path, [*names[:7], "out9"], numbered)
    with pytest.raises(om.FormatError, match="'out 3' is missing"):
        read_measurement(fabric, [tmp_path / "states.npz", path])


def test_tables_of_decibels_are_read(tmp_path: Path) -> None:
    """Pairs with wavelengths, or a matrix; levels or losses; sources and destinations by name."""
    fabric = om.Crossbar(2)
    states = tmp_path / "states.npz"
    np.savez(states, cell_states=np.zeros((1, fabric.n_cells), dtype=np.int8))
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(
        "wavelength_nm,source,destination,dB\n"
        "1550,in0,out0,-3\n1550,in1,out0,-40\n1540,in0,out0,-3.5\n1560,in0,out0,-2.5\n"
    )
    found = read_measurement(fabric, [states, pairs])
    assert found.frequencies_hz is not None and found.band_power is not None
    assert np.diff(found.frequencies_hz).min() > 1e12
    assert 10 * np.log10(found.band_power[0, :, 0, 0]) == pytest.approx([-2.5, -3.0, -3.5])
    assert 10 * np.log10(found.power[0, :, 0]) == pytest.approx([-3, -40])
    assert np.isnan(found.power[0, :, 1]).all()

    table = tmp_path / "table.csv"
    table.write_text(",out1,out0\nin0,20,3\nin1,2.5,\n")
    found = read_measurement(fabric, [states, table])
    level_db = 10 * np.log10(found.power[0])
    assert level_db[0] == pytest.approx([-3, -20]) and level_db[1, 1] == pytest.approx(-2.5)
    for text, match in (
        (",out1,out7\nin0,20,3\n", "port 'out7': unknown"),
        (",out1\nin0,x\n", "line 2: dB = 'x': a number"),
        ("source,destination,db,colour\nin0,out0,1,red\n", "'colour': unknown"),
    ):
        table.write_text(text)
        with pytest.raises(om.FormatError, match=match):
            read_measurement(fabric, [states, table])


def test_lumerical_files_are_read(tmp_path: Path) -> None:
    """Blocks by names of ports: the port left by comes first."""
    fabric = om.Crossbar(2)
    states = tmp_path / "states.npz"
    np.savez(states, cell_states=np.zeros((1, fabric.n_cells), dtype=np.int8))
    path = tmp_path / "chip.sparam"
    ports = ["out0", "out1", "in0", "in1"]
    text = "".join(f'["{name}","LEFT"]\n' for name in ports)
    for exit_name, entry_name, size in (("out0", "in1", 0.5), ("out1", "in0", 0.2)):
        text += f'("{exit_name}","mode 1",1,"{entry_name}",1,"transmission")\n(2,3)\n'
        text += f"1.94e14 {size} 0.1\n1.93e14 {size / 2} 3\n"
    path.write_text(text)
    found = read_measurement(fabric, [states, path])
    assert found.band_power is not None
    assert found.band_power[0, :, 1, 0] == pytest.approx([0.0625, 0.25])
    assert found.band_power[0, :, 0, 1] == pytest.approx([0.01, 0.04])
    assert np.isnan(found.power[0, 0, 0])
    path.write_text(text.replace("(2,3)", "(3,3)"))
    with pytest.raises(om.FormatError, match=r"chip\.sparam: line 6: "):
        read_measurement(fabric, [states, path])

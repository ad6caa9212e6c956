"""Couplers that depend on the wavelength, against couplers and arms multiplied out densely."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.fabrics import Netlist, netlist_from_tree
from optmatch.model import BAR, CellDevice
from optmatch.model.device import frequency_of_nm
from optmatch.optics.measurement import cell_matrices
from tests.fabrics.netlists.chips import port_amplitudes
from tests.helpers.command import call, put, refused
from tests.helpers.oracles import solve_densely
from tests.verify.rules.routing import interferometer

SLOPE_PER_NM = 0.003
TABLE_NM = (1500.0, 1540.0, 1560.0, 1600.0)
TABLE = {"coupler_wavelengths_nm": TABLE_NM, "coupler_shares": (0.35, 0.44, 0.52, 0.6)}
MZI: dict[str, Any] = {
    "instances": {
        "c1": {"component": "mmi2x2", "settings": {"coupling": 0.47}},
        "c2": {"component": "mmi2x2", "settings": {"coupling": 0.52}},
        "h": "straight_heater_metal",
        "w": "straight",
    },
    "connections": {"c1,o3": "h,o1", "h,o2": "c2,o2", "c1,o4": "w,o1", "w,o2": "c2,o1"},
    "ports": {"in0": "c1,o2", "in1": "c1,o1", "out0": "c2,o3", "out1": "c2,o4"},
}


def crossing_share(wavelength_nm: float, device: om.Device) -> float:
    """Return the share of the power that crosses in a coupler with half of it at 1550 nm."""
    if device.coupler_slope_per_nm:
        return 0.5 + device.coupler_slope_per_nm * (wavelength_nm - 1550.0)
    at_nm, at_center_nm = np.interp([wavelength_nm, 1550.0], TABLE_NM, TABLE["coupler_shares"])
    return float(0.5 + at_nm - at_center_nm)


def dense_powers(
    fabric: om.Fabric, states: NDArray[np.int8], device: om.Device, wavelength_nm: float
) -> NDArray[np.float64]:
    """Return ``power[source, destination]`` of one state at one wavelength, facets counted."""
    assert fabric.graph is not None
    share = crossing_share(wavelength_nm, device)
    coupler = np.array([[np.sqrt(1 - share), 1j * np.sqrt(share)]] * 2)
    coupler[1] = coupler[1, ::-1]
    cells = []
    for state in states:
        loss_db, extinction_db = (0.5, 30.0) if state == BAR else (0.4, 36.0)
        tilt = np.arctan(10 ** (-extinction_db / 20))
        theta = np.pi / 2 - tilt if state == BAR else tilt
        arms = np.diag(np.exp([1j * theta, -1j * theta]))
        gain = 10 ** (-loss_db / 20) * np.sqrt(1 + 10 ** (-extinction_db / 10))
        cells.append(gain * (coupler @ arms @ coupler))
    guides = np.ones(fabric.graph.links.count, dtype=complex)
    waves = solve_densely(fabric.graph, np.array(cells), guides, fabric.source_terminals)
    power: NDArray[np.float64] = np.abs(waves.leaving[fabric.destination_terminals].T) ** 2
    return power * 10**-0.3


def chip_device(**couplers: Any) -> om.Device:
    return om.Device(
        bar_loss_db=0.5,
        cross_loss_db=0.4,
        bar_extinction_db=30.0,
        cross_extinction_db=36.0,
        coupling_loss_db=1.5,
        **couplers,
    )


@pytest.mark.parametrize("couplers", [{"coupler_slope_per_nm": SLOPE_PER_NM}, TABLE])
@pytest.mark.parametrize("fabric", [om.Benes(4), om.HexMesh(1, 2, ports=8)])
def test_figures_over_wavelengths_are_those_of_the_oracle(
    fabric: om.Fabric, couplers: dict[str, Any]
) -> None:
    device = chip_device(**couplers)
    solution = om.solve(om.Routing(fabric, [1, 0, 3, 2, 5, 4, 7, 6][: fabric.n_ports]), seed=0)
    schedule = solution.schedule
    wavelengths_nm = (1510.0, 1550.0, 1585.0)
    offsets_hz = [frequency_of_nm(nm) - frequency_of_nm(1550.0) for nm in wavelengths_nm]
    optics = om.measure_optics(solution.problem, schedule, device, frequencies_hz=offsets_hz)
    same = om.measure_optics(solution, device, wavelengths_nm=wavelengths_nm)
    assert same.band_rows() == optics.band_rows()
    matching = schedule.matchings[0]
    sources = np.arange(fabric.n_ports)
    rows = optics.band_rows()
    for place, wavelength_nm in enumerate(wavelengths_nm):
        power = dense_powers(fabric, optics.cell_states[0], device, wavelength_nm)
        found = optics.power[0, place][:, optics.exits] * 10**-0.3
        assert found == pytest.approx(power, rel=1e-9, abs=1e-15)
        signal = power[sources, matching]
        crosstalk = power[:, matching].sum(axis=0) - signal
        assert rows[place]["wavelength_nm"] == pytest.approx(wavelength_nm)
        loss_db = rows[place]["worst_insertion_loss_db"]
        assert loss_db == pytest.approx(-10 * np.log10(signal.min()))
        ratio_db = rows[place]["worst_signal_to_crosstalk_db"]
        assert ratio_db == pytest.approx(10 * np.log10((signal / crosstalk).min()))
    assert optics.figures["energy_error"] < 1e-12
    assert optics.figures["worst_insertion_loss_db"] == pytest.approx(
        max(row["worst_insertion_loss_db"] for row in rows)
    )


@pytest.mark.parametrize("state", [0, 1])
def test_couplers_of_a_netlist_change_from_what_they_are(state: int) -> None:
    """Each from its own share, and phases are those that were right at the centre."""
    fabric = netlist_from_tree(MZI)
    schedule = om.Schedule(
        matchings=[[0, 1] if state == 0 else [1, 0]], durations_s=[1.0], cell_states=[[state]]
    )
    problem = om.Routing(fabric, schedule.matchings[0])
    offset_hz = frequency_of_nm(1580.0) - frequency_of_nm(1550.0)
    device = om.Device(coupler_slope_per_nm=SLOPE_PER_NM)
    optics = om.measure_optics(problem, schedule, device, frequencies_hz=[offset_hz])
    circuit = fabric.circuits[0]
    assert circuit is not None
    phase_rad = circuit.difference_rad[state]
    changed = json.loads(json.dumps(MZI))
    for coupler in ("c1", "c2"):
        changed["instances"][coupler]["settings"]["coupling"] += 30 * SLOPE_PER_NM
    names, amplitudes = port_amplitudes(changed, {"h": phase_rad})
    assert names == ["in0", "in1", "out0", "out1"]
    wanted = np.abs(amplitudes[2:, :2].T) ** 2  # [source, destination]
    assert optics.power[0, 0][:, optics.exits] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("coupling_change", [0.0, 0.02])
def test_light_that_leaks_towards_no_terminal_is_lost(coupling_change: float) -> None:
    """One that sends to a single waveguide, whatever its arms do, behind one of unknown parts."""
    whole = interferometer(np.pi, 0.0).circuits[0]
    assert whole is not None
    fabric = Netlist(
        instances=["n", "m"],
        connections={"n,b1": "m,a1"},
        circuits=[None, replace(whole, terminals=(*whole.terminals[:3], ""))],
        ports=[("w1", "n,a1"), ("e1", "m,b1")],
        tx=["w1"],
        rx=["e1"],
        open_pins=["n,a2", "n,b2", "m,a2", "m,b2"],
    )
    device = CellDevice.of("smartlight", 2)
    for state in (0, 1):
        states = np.array([0, state], dtype=np.int8)
        to_b1, to_b2 = cell_matrices(fabric, device, states, None, coupling_change)[1]
        assert (to_b1 != 0).any()
        assert (to_b2 == 0).all()
    slot = om.Schedule(matchings=[[0]], durations_s=[1.0], cell_states=[[0, 1]])
    optics = om.measure_optics(om.Routing(fabric, [0]), slot, device.device)
    assert optics.figures["energy_error"] < 1e-12


def test_what_is_no_coupler() -> None:
    for fields, match in (
        (
            {"coupler_shares": (0.5,)},
            "coupler_shares has 1 entries, there are 0 coupler_wavelengths_nm",
        ),
        ({**TABLE, "coupler_slope_per_nm": 0.001}, "either a slope or a table"),
        ({**TABLE, "coupler_wavelengths_nm": TABLE_NM[::-1]}, "must rise"),
        ({**TABLE, "coupler_shares": (0.3, 0.4, 0.5, 1.1)}, "1.1: from 0 to 1"),
        ({**TABLE, "wavelength_nm": 1310.0}, "wavelength 1310 nm: the table .* from 1500 to 1600"),
        ({"coupler_slope_per_nm": 0.6}, "0.6: from -0.5 to 0.5"),
    ):
        with pytest.raises(om.InputError, match=match):
            om.Device(**fields)
    device = om.Device(coupler_slope_per_nm=0.01)
    offset_hz = frequency_of_nm(1650.0) - frequency_of_nm(1550.0)
    with pytest.raises(om.InputError, match=r"couplers send 1.5 of the power across"):
        device.coupling_changes([0.0, offset_hz])


def test_a_device_file_with_couplers_goes_through_the_commands(tmp_path: Path) -> None:
    fabric = om.Benes(4)
    device = chip_device(**TABLE)
    chip_file = put(tmp_path, "chip.json", om.io.write_device(device))
    assert om.io.read_device(chip_file) == device
    plan = tmp_path / "plan.schedule.json"
    om.save(om.solve(om.Routing(fabric, [1, 0, 3, 2]), seed=0), plan)
    arguments = ("verify", str(plan), "--optics", "--device", str(chip_file))
    done = call(*arguments, "--wavelengths", "1530,1550", "--json")
    rows = json.loads(done.stdout)["optics"]["band"]
    assert [round(row["wavelength_nm"], 6) for row in rows] == [1530.0, 1550.0]
    at_1530, at_1550 = (row["worst_signal_to_crosstalk_db"] for row in rows)
    assert at_1530 < at_1550 - 3
    done = call(*arguments, "--wavelengths", "1530,1550")
    assert "1530.00 nm: loss" in done.stdout
    for wrong, message in (
        (("--wavelengths", "1490"), "wavelength 1490 nm: the table of couplers is from 1500"),
        (("--wavelengths", "0"), "must be > 0"),
        (("--wavelengths", "1550", "--frequencies", "0"), "either --frequencies or --wavelengths"),
    ):
        refused(message, *arguments, *wrong)


def test_wavelengths_that_cannot_be_are_refused() -> None:
    solution = om.solve(om.Routing(om.Benes(4), [1, 0, 3, 2]), seed=0)
    for run in (om.measure_optics, om.settle_free_cells):
        light = partial(run, solution.problem, solution, "smartlight")
        with pytest.raises(om.InputError, match="either frequencies_hz or wavelengths_nm"):
            light(wavelengths_nm=[1550.0], frequencies_hz=[1e9])
        with pytest.raises(om.InputError, match="a wavelength of 0 nm"):
            light(wavelengths_nm=[0.0])
        with pytest.raises(om.InputError, match="none is left"):
            light(frequencies_hz=[-1e15])
        for wrong in ([], [float("nan")]):
            with pytest.raises(om.InputError):
                light(wavelengths_nm=wrong)


def test_cells_are_settled_at_wavelengths_as_at_their_frequencies() -> None:
    problem = om.Routing(om.HexMesh(3, 3, ports=6), [1, 0, 3, 2, 5, 4])
    settle = partial(
        om.settle_free_cells, problem, om.solve(problem, seed=0), "smartlight", seed=0
    )
    wavelengths_nm = (1540.0, 1552.0)
    offsets_hz = [frequency_of_nm(nm) - frequency_of_nm(1550.0) for nm in wavelengths_nm]
    settled = settle(wavelengths_nm=wavelengths_nm)
    assert np.array_equal(settled, settle(frequencies_hz=offsets_hz))
    assert not np.array_equal(settled, settle())

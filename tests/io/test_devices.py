"""Devices: losses and phases of cells and waveguides, presets, and files."""

import json
import pickle
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import optmatch as om
from optmatch.fabrics.waveguides import measure_area, measure_waveguides
from optmatch.io import files as files_module, read_device, write_device
from optmatch.model import BAR, CROSS, DEVICES
from tests.helpers.command import put, refused

DATA = Path(__file__).resolve().parents[1] / "data"
ROUTED = DATA / "good" / "routed.schedule.json"
SCHEMA = json.loads(
    (Path(files_module.__file__).parent / "schema" / "device.schema.json").read_text()
)
decibels = st.floats(0, 60)


@given(decibels, st.none() | st.floats(3, 90), st.sampled_from([BAR, CROSS]))
def test_a_cell_loses_and_leaks_what_it_says(
    loss_db: float, extinction_db: float | None, state: int
) -> None:
    """The wanted output has the loss, the other lies below it by the extinction."""
    device = om.Device(
        bar_loss_db=loss_db,
        cross_loss_db=loss_db,
        bar_extinction_db=extinction_db,
        cross_extinction_db=extinction_db,
    )
    power = np.abs(device.cell(state)) ** 2
    wanted, other = power[0, state], power[0, 1 - state]
    leak = 0.0 if extinction_db is None else 10 ** (-extinction_db / 10)
    assert np.isclose(wanted, min(10 ** (-loss_db / 10), 1 / (1 + leak)), rtol=1e-12)
    assert np.isclose(other, wanted * leak, rtol=1e-9, atol=0)
    assert power.sum(axis=0).max() <= 1 + 1e-12


def test_phase_errors_are_those_of_one_chip() -> None:
    device = om.Device(phase_error_rad=0.2)
    errors = device.draw_errors(1000, seed=3)
    assert errors is not None
    again = device.draw_errors(1000, seed=3)
    assert again is not None
    assert np.array_equal(errors, again)
    assert abs(errors.std() - 0.2) < 0.02
    cells = device.cell(np.zeros(1000, dtype=np.int8), errors)
    assert np.allclose((np.abs(cells) ** 2).sum(axis=1), 1)
    half = (errors[:, 0] - errors[:, 1]) / 2
    assert np.allclose(np.abs(cells[:, 1, 0]), np.abs(np.sin(half)))
    assert om.Device().draw_errors(5, seed=0) is None


@pytest.mark.parametrize("name", list(DEVICES))
def test_presets_are_files_with_sources(name: str, tmp_path: Path) -> None:
    device = DEVICES[name]
    assert device.source
    text = write_device(device)
    Draft202012Validator(SCHEMA).validate(json.loads(text))
    (tmp_path / "chip.json").write_text(text)
    assert read_device(tmp_path / "chip.json") == device
    assert pickle.loads(pickle.dumps(device)) == device


def test_the_schema_has_the_fields_of_devices() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert set(SCHEMA["properties"]) == {"format"} | {field.name for field in fields(om.Device)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "optmatch/device/2"}', "/format: format = 'optmatch/device/2': unknown"),
        ('{"format": "optmatch/device/1", "bar_loss": 1}', "/bar_loss: unknown key 'bar_loss'"),
        (
            '{"format": "optmatch/device/1", "bar_loss_db": -1}',
            "/bar_loss_db: bar_loss_db = -1: must be >= 0",
        ),
        ('{"format": "optmatch/device/1", "name": 3}', "/name: name = 3: a text is expected"),
        ("[]", "an object is expected"),
        ("{", "not JSON"),
    ],
)
def test_broken_devices_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = put(tmp_path, "chip.json", text)
    with pytest.raises(om.InputError, match=r"chip\.json") as caught:
        read_device(path)
    assert message in str(caught.value)
    refused(message, "verify", ROUTED, "--optics", "--device", path)


def test_waveguides_cross_where_they_must() -> None:
    """A shuffle of n wires crosses n(n/2-1)/4 times, planar fabrics nowhere, meshes have none."""
    for n in (4, 8, 16):
        shuffles = sum(2 * (n // size) * size * (size // 2 - 1) // 4 for size in _sizes(n))
        assert measure_waveguides(om.Benes(n).graph).crossings.sum() == 2 * shuffles
        trees = om.SwitchAndSelect(n).graph
        assert measure_waveguides(trees).crossings.sum() == 2 * (n * (n - 1) // 2) ** 2
    for fabric in (om.SpankeBenes(8), om.Crossbar(8), om.Reck(8), om.Clements(8)):
        assert not measure_waveguides(fabric.graph).crossings.any()
    for mesh in (om.HexMesh(3, 3), om.SquareMesh(3, 3), om.TriangularMesh(3, 3)):
        assert not any(array.any() for array in measure_waveguides(mesh.graph))


def test_columns_are_narrower_than_they_are_drawn() -> None:
    """Heights and channels count for a fifth, lengths of cells in full; meshes are as drawn."""
    triangle = om.Reck(3)  # cells at x = 0, 1.5, 3; the outer wires pass the middle column
    assert measure_area(triangle.graph) == pytest.approx((3 + 2 * 0.1) * 0.3)
    lengths = measure_waveguides(triangle.graph).length
    assert sorted(lengths[lengths > 0].round(9)) == [0.1, 0.1, 1.2]
    mesh = om.SquareMesh(2, 3)
    assert measure_area(mesh.graph) == pytest.approx(3.5 * 2.5)


def _sizes(n: int) -> list[int]:
    """Sizes of the half networks that have shuffles: n, n/2, ..., 4."""
    return [] if n < 4 else [n, *_sizes(n // 2)]

"""Tables of cells: what they mean, round trips, everything that is refused, and commands."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.fabrics.faults import Fault, close_weak_cells
from optmatch.io.cells import CELLS_FORMAT, read_cells, write_cells
from optmatch.model import CELL_FIELDS, CellDevice
from tests.helpers.chips import draw_chip
from tests.helpers.command import call, put, refused


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1), st.floats(0, 20), st.floats(3, 90), st.integers(0, 9))
def test_cells_of_one_device_are_that_device(
    state: int, loss_db: float, extinction_db: float, seed: int
) -> None:
    """The same matrices, and the loss and the leak that routes are measured by."""
    device = om.Device(
        bar_loss_db=loss_db,
        cross_loss_db=loss_db,
        bar_extinction_db=extinction_db,
        phase_error_rad=0.1,
    )
    cells, errors = CellDevice.of(device, 3), device.draw_errors(3, seed)
    states = np.full(3, state)
    assert np.array_equal(cells.cell(states, errors), device.cell(states, errors))
    power = np.abs(cells.cell(states)[0]) ** 2
    assert -10 * np.log10(power[0, state]) == pytest.approx(cells.loss_db[0, state], abs=1e-9)
    assert power[0, 1 - state] / power[0, state] == pytest.approx(cells.leak[0, state], abs=1e-12)


@pytest.mark.parametrize(("offset", "expected"), [(0.0, [20.0, 0.0]), (np.pi, [0.0, 20.0])])
def test_power_is_what_is_left_to_the_wanted_phase(offset: float, expected: list[float]) -> None:
    """Cross needs none without an offset; with one of pi bar does not."""
    values = {"phase_offset_rad": offset, "heater_mw_per_pi": 20.0}
    cells = CellDevice.of("ideal", 2, {0: values})
    assert cells.power_mw[0].tolist() == pytest.approx(expected, abs=1e-12)
    assert cells.power_mw[1].tolist() == [0.0, 0.0]


def test_draws_do_not_depend_on_each_other() -> None:
    """A column is the same whatever else is drawn, and never negative."""
    cells = CellDevice.of("smartlight", 50)
    alone = cells.draw({"cross_loss_db": 0.4}, seed=1)
    both = cells.draw({"bar_loss_db": 0.4, "cross_loss_db": 0.4}, seed=1)
    assert np.array_equal(alone.cross_loss_db, both.cross_loss_db)
    assert np.array_equal(alone.bar_loss_db, cells.bar_loss_db)
    assert both.bar_loss_db.min() >= 0 < both.bar_loss_db.std()
    with pytest.raises(om.InputError, match="'loss': unknown"):
        cells.draw({"loss": 0.4}, seed=1)


def test_a_device_of_no_cell_is_refused() -> None:
    """So a switch without cells never has one."""
    nothing = dict.fromkeys(CELL_FIELDS, np.zeros(0))
    with pytest.raises(om.InputError, match="n_cells = 0: must be >= 1"):
        CellDevice(**nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize("as_json", [False, True])
def test_tables_come_back(as_json: bool, tmp_path: Path) -> None:
    """All values, exactly."""
    cells, path = draw_chip(7, 3), tmp_path / "chip"
    path.write_text(write_cells(cells, as_json=as_json))
    found = read_cells(path, 7, "ideal")
    for name in CELL_FIELDS:
        assert np.array_equal(getattr(found, name), getattr(cells, name))


def test_what_was_not_measured_is_the_device(tmp_path: Path) -> None:
    """Empty entries, absent columns, absent cells."""
    path = put(tmp_path, "chip.csv", "cell,bar_loss_db,settling_s\n2,0.7,\n0,,1e-5\n")
    cells = read_cells(path, 3, om.Device(bar_loss_db=0.5, bar_extinction_db=20.0))
    assert cells.bar_loss_db.tolist() == [0.5, 0.5, 0.7]
    assert cells.settling_s.tolist() == [1e-5, 0.0, 0.0]
    assert cells.leak[:, 0].tolist() == pytest.approx([0.01] * 3)
    assert cells.leak[:, 1].tolist() == [0.0] * 3


HUGE = '{"format": "optmatch/cell-device/1", "cells": [{"cell": ' + "9" * 400 + "}]}"
BROKEN = {
    "cell\n\r0\n": "line 2: not CSV: new-line",
    HUGE: "/cells/0, cell = a number of more than 30 digits",
    "cell,bar_loss\n0,1\n": "line 1: column 'bar_loss': known are cell, bar_loss_db",
    "cell,cell\n0,0\n": "line 1: column 'cell' is there twice",
    "cell,bar_loss_db\n0,x\n": "line 2: bar_loss_db = 'x': a number",
    "cell,bar_loss_db\n0,nan\n": "line 2.*nan",
    "cell,bar_loss_db\n0,1_0\n": "line 2: bar_loss_db = '1_0': a number",
    "cell,bar_loss_db\n0,1e999\n": "line 2.*inf",
    "cell,bar_loss_db\n0,0.1\n2,-3\n": r"line 3: bar_loss_db\[2\] = -3: from 0 to 1000",
    "cell,bar_loss_db\n0,1,2\n": "line 2: 3 entries, 2 names",
    "cell,bar_loss_db\n,1\n": "line 2: cell is missing",
    "cell,bar_loss_db\n3,1\n": "line 2: cell = 3: cells are 0 .. 2",
    "cell,bar_loss_db\n0.5,1\n": "line 2: cell = 0.5: cells are 0 .. 2",
    "cell,bar_loss_db\n1,1\n1,2\n": "line 3: cell 1: is there already, line 2",
    "{}": "key 'format' is missing",
    '{"format": "optmatch/device/1"}': "/format: format = 'optmatch/device/1': unknown",
    f'{{"format": "{CELLS_FORMAT}"}}': "/cells: a list of objects",
    f'{{"format": "{CELLS_FORMAT}", "cell": []}}': "/cell: unknown key 'cell'",
    f'{{"format": "{CELLS_FORMAT}", "cells": [1]}}': "/cells/0: 1: an object",
    f'{{"format": "{CELLS_FORMAT}", "cells": [{{"cell": 0, "loss": 1}}]}}': "/cells/0: key 'loss'",
    f'{{"format": "{CELLS_FORMAT}", "cells": [{{"cell": true}}]}}': "/cells/0: cell = True",
    f'{{"format": "{CELLS_FORMAT}", "cells": [{{"cell": 0}}, {{"cell": 0}}]}}': "there already",
    "\xff": "a file is UTF-8 text",
}


@pytest.mark.parametrize("content", BROKEN)
def test_broken_tables_are_refused(content: str, tmp_path: Path) -> None:
    """Each names file, place, rule and value."""
    path = put(tmp_path, "broken", content.encode("latin-1"))
    with pytest.raises(om.InputError, match=BROKEN[content]) as caught:
        read_cells(path, 3)
    assert str(caught.value).startswith(str(path))


def test_weak_cells_are_stuck_or_dead() -> None:
    """In the state that is left, and cells that are broken already stay so."""
    good, bad = 40.0, 10.0
    both = ("bar_extinction_db", "cross_extinction_db")
    rows = [(good, good), (bad, good), (good, bad), (bad, bad), (bad, bad), (bad, good)]
    table = {cell: dict(zip(both, row, strict=True)) for cell, row in enumerate(rows)}
    cells = CellDevice.of("smartlight", 6, table)
    mesh = om.Faulty(om.HexMesh(1, 1), stuck_bar=[4], dead_ports=[2])
    closed = close_weak_cells(mesh, cells, 20.0)
    assert isinstance(closed, om.Faulty)
    assert (closed.stuck_bar, closed.stuck_cross, closed.dead_cells) == ((2, 4), (1, 5), (3,))
    assert Fault("dead-port", 2) in closed.faults
    assert close_weak_cells(om.HexMesh(1, 1), cells, 5.0) == om.HexMesh(1, 1)


def test_a_chip_goes_from_command_to_command(tmp_path: Path) -> None:
    """Drawn, asked for, solved, verified, measured; a table of other cells is refused."""
    chip, problem, answer = (str(tmp_path / name) for name in ("c.csv", "p.json", "s.json"))
    shape = ["--rows", "2", "--cols", "3", "--ports", "4"]
    call("generate", "device", *shape, "--sigma", "bar_loss_db=0.1", "-o", chip)
    asked = ["generate", "routing", *shape, "--random-matching", "--objective", "worst-snr-db"]
    limits = ["--device-cells", chip, "--min-extinction-db", "30"]
    call(*asked, *limits, "-o", problem)
    tree = json.loads(Path(problem).read_text())
    assert len(tree["cells"]["bar_loss_db"]) == 27
    call("solve", problem, "-o", answer)
    told = call("verify", answer, "--optics", "--device-cells", chip)
    assert re.search(r"worst snr +\d[\d.]+ dB\n", told.output)
    Path(chip).write_text("cell\n27\n")
    refused(
        "line 2: cell = 27: cells are 0 .. 26",
        "verify",
        answer,
        "--optics",
        "--device-cells",
        chip,
    )
    refused("only with --device-cells", *asked, "--min-extinction-db", "30")
    pairs = call("generate", "all-to-all", *shape, "--objective", "worst-loss-db")
    assert '"objective": "worst-loss-db"' in pairs.output

"""Cell states for other tools: netlists that come back, SmartLight lists, phases."""

import csv
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.fabrics import netlist_from_tree
from optmatch.io.cells import CONVENTION
from optmatch.io.exports import export, exported
from optmatch.model import BAR, CROSS, FREE
from optmatch.model.device import transfer
from optmatch.model.files import replace_file
from tests.helpers.command import call, refused
from tests.helpers.readers import states_of


@cache
def solved() -> om.Solution:
    """Solve a small problem, once for all tests."""
    return om.solve(om.AllToAll(om.HexMesh(2, 2, ports=4)), seed=0)


def cell_states() -> NDArray[np.int8]:
    """Return the cell states of its slots."""
    schedule = solved().schedule
    assert schedule is not None and schedule.cell_states is not None
    return schedule.cell_states


def text(to: str, solution: om.Solution | None = None) -> str:
    """Export a solution as one text."""
    written = exported(solution or solved(), to)
    assert isinstance(written, str)
    return written


def test_netlists_come_back_with_their_states(tmp_path: Path) -> None:
    names = export(solved(), "netlist", tmp_path / "x")
    assert [Path(name).name for name in names] == [f"x.{k}.yml" for k in range(len(cell_states()))]
    for name, states in zip(names, cell_states(), strict=True):
        fabric = om.read_netlist(name)
        assert np.array_equal(fabric.graph.mate, om.HexMesh(2, 2).graph.mate)
        assert np.array_equal(states_of(json.loads(Path(name).read_text())), states)
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    assert yaml.safe_load(Path(names[0]).read_text()) == json.loads(Path(names[0]).read_text())


def test_layouts_hold_the_same_fabric(tmp_path: Path) -> None:
    """Joins are routes, names those of gdsfactory, states no settings, places of their own."""
    (name, *_) = export(solved(), "gdsfactory", tmp_path / "x")
    tree = json.loads(Path(name).read_text())
    assert "connections" not in tree
    assert all(entry == {"component": "mzi2x2_2x2"} for entry in tree["instances"].values())
    places = [tuple(place.values()) for place in tree["placements"].values()]
    assert len({x for x, _ in places}) == len({y for _, y in places}) == len(tree["instances"])
    fabric = om.read_netlist(name)
    assert np.array_equal(fabric.graph.mate, om.HexMesh(2, 2).graph.mate)
    named = {cell: {"bar": BAR, "cross": CROSS}[s] for cell, s in tree["info"]["states"].items()}
    states = [named.get(cell, FREE) for cell in tree["instances"]]
    assert states == cell_states()[0].tolist()


@pytest.mark.parametrize("to", ["gdsfactory", "netlist"])
def test_cells_and_pins_have_the_names_that_are_given(to: str, tmp_path: Path) -> None:
    """On the command line too; they are read back by these names."""
    answer, target = str(tmp_path / "a.json"), tmp_path / "x"
    om.save(solved(), answer)
    given = ["--to", to, "--component", "our_cell", "--pins", "w1,w2,e1,e2"]
    call("export", answer, *given, "-o", target)
    pins = {"w1": "a1", "w2": "a2", "e1": "b1", "e2": "b2"}
    path = f"{target}.0.yml"
    fabric = om.read_netlist(path, pins=pins, components={"our_cell": "switch"})
    assert np.array_equal(fabric.graph.mate, om.HexMesh(2, 2).graph.mate)
    call("export", answer, "--to", to, "--pins", "a,b,c", code=2)
    told = "component: not for this format, only for netlist"
    refused(told, "export", answer, "--to", "smartlight", "--component", "x")


def test_what_is_taken_for_a_switch_by_its_name_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Not what is listed, and not what can be nothing else."""
    ports = {"in0": "m,o1", "in1": "m,o2", "out0": "m,o4", "out1": "m,o3"}
    for component, declared, told in (
        ("mzi", {}, 1),
        ("mzi", {"mzi": "switch"}, 0),
        ("osu", {}, 0),
    ):
        caplog.clear()
        tree = {"instances": {"m": component}, "ports": ports}
        assert netlist_from_tree(tree, components=declared).n_cells == 1
        assert sum("taken for a switch" in record.message for record in caplog.records) == told
    with pytest.raises(om.InputError, match="mzi_lattice of m is not known"):
        netlist_from_tree({"instances": {"m": "mzi_lattice"}, "ports": ports})


def test_files_that_do_not_all_fit_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.0.yml").write_text("old")

    def write(target: Path, content: bytes) -> None:
        if target.name == "x.2.yml":
            raise OSError(28, "No space left on device", str(target))
        replace_file(target, content)

    monkeypatch.setattr("optmatch.io.exports.replace_file", write)
    with pytest.raises(OSError, match=r"x\.2\.yml"):
        export(solved(), "netlist", tmp_path / "x", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["x.0.yml"]


def test_smartlight_lists_are_the_set_cells() -> None:
    lines = text("smartlight").splitlines()
    for line, states in zip(lines, cell_states().tolist(), strict=True):
        told = dict(json.loads(line))
        assert told == {
            cell: {BAR: "=", CROSS: "x"}[state]
            for cell, state in enumerate(states)
            if state != FREE
        }


def test_phases_give_the_states() -> None:
    tree = json.loads(text("json"))
    assert tree["convention"] == CONVENTION
    comment, *lines = text("csv").splitlines()
    assert comment == f"# {CONVENTION}"
    rows = list(csv.DictReader(lines))
    assert len(rows) == int((cell_states() != FREE).sum())
    flat = [(slot, entry) for slot, entries in enumerate(tree["slots"]) for entry in entries]
    for row, (slot, entry) in zip(rows, flat, strict=True):
        assert (int(row["slot"]), int(row["cell"])) == (slot, entry["cell"])
        assert float(row["theta_rad"]) == entry["theta_rad"]
        power = np.abs(transfer(entry["theta_rad"], entry["phi_rad"])) ** 2
        state = cell_states()[slot, entry["cell"]]
        expected = np.eye(2) if state == BAR else 1 - np.eye(2)
        assert np.allclose(power, expected)
        assert entry["state"] == row["state"] == {BAR: "bar", CROSS: "cross"}[state]


@pytest.mark.parametrize("to", ["netlist", "smartlight", "json"])
def test_what_has_no_cell_states_is_refused(to: str) -> None:
    with pytest.raises(om.InputError, match="no cell states"):
        exported(om.solve(om.AllToAll(om.IdealSwitch(3)), seed=0), to)
    infeasible = om.solve(om.AllToAll(om.HexMesh(1, 1)), seed=0)
    with pytest.raises(om.InputError, match="all-to-all, infeasible: there is no schedule"):
        exported(infeasible, to)


def test_csv_of_a_switch_without_cells_is_its_timeline() -> None:
    solution = om.solve(om.AllToAll(om.IdealSwitch(3)), seed=0)
    assert text("csv", solution) == text("timeline", solution)


def test_the_netlist_of_one_slot_is_one_text() -> None:
    problem = om.Routing(om.Faulty(om.Benes(4), dead_cells=[0]), np.array([2, 3, -1, -1]))
    solution = om.solve(problem, "ilp", seed=0)
    if solution.schedule is None:
        problem = om.Routing(problem.fabric, np.array([-1, -1, 2, 3]))
        solution = om.solve(problem, "ilp", seed=0)
    tree = json.loads(text("netlist", solution))
    assert np.array_equal(netlist_from_tree(tree).graph.mate, om.Benes(4).graph.mate)
    assert states_of(tree)[0] == FREE

"""Comparisons: fabrics on the same matchings, methods on the same problems, table and picture."""

import csv
import io
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.commands.studies import build
from optmatch.fabrics import SmartLightMesh
from optmatch.model.comparison import FabricRow
from optmatch.plotting import fabrics_data, plot_fabrics
from tests.helpers.command import call, refused

GOOD = Path(__file__).resolve().parents[1] / "data" / "good"
DEMAND = GOOD / "demand.problem.json"
MATCHINGS = [[1, 2, 3, 0], [3, 2, 1, 0], [2, 3, 0, 1]]


@pytest.fixture(scope="module")
def rows() -> list[FabricRow]:
    """Compare three fabrics of four ports."""
    fabrics = {
        "benes": om.Benes(4),
        "trees": om.SwitchAndSelect(4),
        "mesh": om.HexMesh(4, 4, tx=4, rx=4),
    }
    return om.compare_fabrics(fabrics, MATCHINGS, "smartlight")


def test_rows_are_what_verifier_and_optics_say(rows: list[FabricRow]) -> None:
    row = rows[0]
    problems = [om.Routing(om.Benes(4), np.array(matching)) for matching in MATCHINGS]
    solutions = [om.solve(problem, seed=0) for problem in problems]
    reports = [om.verify(s.problem, s).figures for s in solutions]
    worst = [
        om.measure_optics(
            s.problem, s, "smartlight", idle=om.settle_free_cells(s.problem, s, "smartlight")
        ).figures
        for s in solutions
    ]
    assert (row.name, row.ports, row.cells, row.stages, row.crossings) == ("benes", 4, 6, 3, 2)
    assert (row.matchings, row.routed) == (3, 3)
    assert row.worst_route_cells == max(figures["worst_route_cells"] for figures in reports)
    assert row.worst_insertion_loss_db == pytest.approx(
        max(figures["worst_insertion_loss_db"] for figures in worst)
    )
    assert row.worst_signal_to_crosstalk_db == pytest.approx(
        min(figures["worst_signal_to_crosstalk_db"] for figures in worst)
    )
    assert len(row.route_cells) == 12
    states = [s.schedule.cell_states[0] for s in solutions if s.schedule is not None]  # type: ignore[index]
    assert row.toggles == sum(int((former != later).sum()) for former, later in pairwise(states))


def test_trees_of_switches_leak_least_and_meshes_have_no_columns(rows: list[FabricRow]) -> None:
    benes, trees, mesh = rows
    assert trees.worst_signal_to_crosstalk_db > benes.worst_signal_to_crosstalk_db + 20  # type: ignore[operator]
    assert trees.crossings == 36
    assert mesh.stages is None
    assert mesh.crossings == 0
    assert trees.area_cells > benes.area_cells


def test_a_matching_that_cannot_be_routed_is_left_out() -> None:
    fabric = om.SquareMesh(1, 1, tx=[0, 1], rx=[4, 5])
    reached = fabric.route_cells() < 1000
    assert not reached.all()
    assert reached.any()
    source, destination = map(int, np.argwhere(reached)[0])
    alone = [-1, -1]
    alone[source] = destination
    other = [-1, -1]
    dead_source, dead_destination = map(int, np.argwhere(~reached)[0])
    other[dead_source] = dead_destination
    (some,) = om.compare_fabrics({"square": fabric}, [alone, other], "ideal")
    assert (some.matchings, some.routed, len(some.route_cells)) == (2, 1, 1)
    (none,) = om.compare_fabrics({"square": fabric}, [other], "ideal")
    assert none.worst_route_cells is None
    assert none.worst_insertion_loss_db is None
    assert none.worst_signal_to_crosstalk_db is None
    data = fabrics_data([none, some])
    assert data.names == ("square", "square")
    assert data.routed == ("; routed 1 of 2", "; routed 0 of 1")
    assert len(data.loss_db[1]) == 0
    assert plot_fabrics([none, some]).get_axes()


@pytest.mark.parametrize(
    ("fabrics", "matchings", "message"),
    [
        ({"ideal": om.IdealSwitch(4)}, MATCHINGS, "ideal: a fabric without cells"),
        ({"benes": om.Benes(5)}, MATCHINGS, "benes: 5 ports, but the matchings have 4"),
        ({"benes": om.Benes(4)}, MATCHINGS[0], "one row or more"),
        ({"benes": om.Benes(4)}, np.empty((0, 4)), "one row or more"),
        ({"benes": om.Benes(4)}, [[0, 0, 1, 2]], "share destination 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(fabrics: Any, matchings: Any, message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        om.compare_fabrics(fabrics, matchings, "ideal")


def test_the_picture_has_a_row_for_each_fabric(rows: list[FabricRow]) -> None:
    data = fabrics_data(rows)
    worst = [loss.max() for loss in data.loss_db]
    assert worst == sorted(worst)
    axes = plot_fabrics(rows).get_axes()
    assert [label.get_text() for label in axes[0].get_yticklabels()] == list(data.names)
    marks = [line for line in axes[0].get_lines() if line.get_marker() == "D"]
    assert [float(np.asarray(line.get_xdata())[0]) for line in marks] == worst
    assert len(axes) == 4
    with pytest.raises(om.InputError, match="no fabrics to draw"):
        fabrics_data([])


def test_methods_side_by_side() -> None:
    problem = om.Demand.from_matrix([[0, 3, 1], [2, 0, 2], [0, 1, 0]], delay_s=1.0)
    methods = ["greedy-cover", "eclipse", "negotiated"]
    found = om.compare_methods({"small": problem}, methods)
    assert [row.method for row in found] == methods
    for row in found[:2]:
        solution = om.solve(problem, row.method, seed=0)
        assert (row.objective, row.status) == (solution.objective, solution.status.value)
        assert row.lower_bound == solution.lower_bound
    assert found[2].status == "refused"
    assert "does not accept demand problems" in found[2].reason
    with pytest.raises(om.InputError, match="method = 'magic': no method has this name"):
        om.compare_methods({"small": problem}, ["magic"])


def test_the_command_on_files(tmp_path: Path) -> None:
    table = call("compare", DEMAND, "--methods", "greedy-cover,eclipse,negotiated", "-q")
    assert len(table.stdout.splitlines()) == 4  # titles, two rows, and why there is no third one
    assert "negotiated: method = 'negotiated': does not accept" in table.stdout
    found = json.loads(
        call("compare", DEMAND, "--methods", "greedy-cover,eclipse", "--json", "-q").stdout
    )
    assert found["format"] == "optmatch/comparison/1"
    assert [row["method"] for row in found["rows"]] == ["greedy-cover", "eclipse"]
    target = tmp_path / "x.csv"
    call("compare", DEMAND, "--methods", "eclipse", "-o", target)
    (row,) = csv.DictReader(io.StringIO(target.read_text()))
    assert float(row["objective"]) == found["rows"][1]["objective"]


def test_the_command_on_fabrics(tmp_path: Path) -> None:
    names = "benes,crossbar,hex-mesh:4x4"
    picture, target = tmp_path / "x.svg", tmp_path / "x.csv"
    common = ("--size", 4, "--count", 2, "-q")
    done = call("compare", "--fabrics", names, *common, "-o", picture, "--json")
    rows = json.loads(done.stdout.splitlines()[0])["rows"]
    assert [row["name"] for row in rows] == names.split(",")
    assert [row["routed"] for row in rows] == [2, 2, 2]
    assert picture.read_text().count("hex-mesh:4x4")
    call("compare", "--fabrics", "benes", *common, "-o", target)
    (row,) = csv.DictReader(io.StringIO(target.read_text()))
    assert int(row["cells"]) == 6
    refused("is there already", "compare", "--fabrics", "benes", *common, "-o", target)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "either FILE"),
        ([DEMAND, "--methods", "a", "--fabrics", "b"], "either FILE"),
        ([DEMAND, "--methods", "a,a"], "different names"),
        ([DEMAND, "--methods", "magic"], "method = 'magic': no method has this name"),
        ([DEMAND, "--methods", "eclipse", "-o", "x.gif"], "has to end in .csv"),
        ([GOOD / "ideal.schedule.json", "--methods", "eclipse"], "a schedule file"),
        (["--fabrics", "benes"], "--size: needed"),
        (["--fabrics", "netlist", "--size", "8"], "'netlist': known are hex-mesh"),
        (["--fabrics", "octagon", "--size", "4"], "'octagon': known are hex-mesh"),
        (["--fabrics", "hex-mesh", "--size", "4"], "as in hex-mesh:9x9"),
        (["--fabrics", "hex-mesh:9", "--size", "4"], "as in hex-mesh:9x9"),
        (["--fabrics", "benes:2x2", "--size", "4"], "of meshes alone"),
        (["--fabrics", "faulty", "--size", "4"], "'faulty': known are"),
        (["--fabrics", "ideal-switch", "--size", "4"], "a fabric without cells"),
        (["--fabrics", "benes", "--size", "4", "--device", "x"], "device = 'x': unknown"),
    ],
)
def test_wrong_use_is_refused(args: list[Any], message: str) -> None:
    refused(message, "compare", *args)


def test_meshes_send_and_receive_at_different_terminals() -> None:
    assert build("hex-mesh:3x3", 4) == om.HexMesh(3, 3, tx=4, rx=4)
    assert build("smartlight", 4) == SmartLightMesh(tx=4, rx=4)


def test_pairs_are_exchanged_on_bidirectional_ports() -> None:
    assert build("hex-mesh:3x3", 4, True) == om.HexMesh(3, 3, ports=4)
    names = "benes,hex-mesh:4x4"
    done = call(
        "compare", "--fabrics", names, "--size", 6, "--count", 2, "--pairs", "--json", "-q"
    )
    assert [row["routed"] for row in json.loads(done.stdout)["rows"]] == [2, 2]


def test_an_interrupt_keeps_the_rows_of_methods_that_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In Python and at the command line: one row, marked as not all, and code 130."""
    module = sys.modules["optmatch.sweeps.sweep"]
    run = module.run_task

    def interrupted(task: om.Task, on_event: Any) -> Any:
        if task.method == "eclipse":
            raise KeyboardInterrupt
        return run(task, on_event)

    monkeypatch.setattr(module, "run_task", interrupted)
    problem: Any = om.load(DEMAND)
    study = om.compare_methods([problem], ["solstice", "eclipse", "tms"])
    assert repr(study) == "MethodComparison(1 rows)"
    titles, row = str(study).splitlines()
    assert titles.split()[:3] == ["name", "kind", "method"] and "solstice" in row
    assert ([row.method for row in study], study.complete) == (["solstice"], False)
    done = call("compare", DEMAND, "--methods", "solstice,eclipse,tms", "-q", code=130)
    assert [line.split()[2] for line in done.stdout.splitlines()] == ["method", "solstice"]


def test_an_interrupt_keeps_the_rows_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second fabric is interrupted: one row in Python too, and code 130."""
    module = sys.modules["optmatch.studies.comparisons"]
    route = module.solve

    def interrupted(problem: om.Routing, **options: Any) -> Any:
        if isinstance(problem.fabric, om.Crossbar):
            raise KeyboardInterrupt
        return route(problem, **options)

    monkeypatch.setattr(module, "solve", interrupted)
    fabrics = {"benes": om.Benes(4), "crossbar": om.Crossbar(4)}
    study = om.compare_fabrics(fabrics, [[1, 0, 3, 2]])
    assert ([row.name for row in study], study.complete) == (["benes"], False)
    done = call(
        "compare", "--fabrics", "benes,crossbar", "--size", 4, "--count", 1, "-q", code=130
    )
    assert done.stdout.splitlines()[1].startswith("benes")
    assert "interrupted" in done.stderr


def test_problems_without_names_are_compared_by_all_methods_that_fit() -> None:
    problem = om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=0.0)
    rows = om.compare_methods([problem, problem], seed=0, time_limit_s=0.5)
    assert {row.name for row in rows} == {"demand 0", "demand 1"}
    assert {row.status for row in rows} <= {"optimal", "feasible"}
    methods = [row.method for row in rows if row.name == "demand 0"]
    assert methods[0] == "best"
    assert {"solstice", "ilp", "eclipse"} <= set(methods)


def test_default_stands_for_the_default_method() -> None:
    problem = om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=0.0)
    (row,) = om.compare_methods([problem], ["default"])
    assert row.method == om.solve(problem, seed=0).method
    (varied,) = om.vary(problem, {"delay_s": [0.0]}, ["default"])
    assert varied.method == row.method


def test_names_of_problems_become_texts() -> None:
    problem = om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=0.0)
    numbered: Any = {1: problem}
    assert [row.name for row in om.compare_methods(numbered, ["eclipse"])] == ["1"]
    with pytest.raises(om.InputError, match="the same name"):
        om.compare_methods({**numbered, "1": problem}, ["eclipse"])


@pytest.mark.parametrize("wrong", [om.Benes(4), 7, ["a.json"], {"a": 3}])
def test_what_is_no_problem_is_refused(wrong: Any) -> None:
    with pytest.raises(om.InputError, match=r"problem.* expected"):
        om.compare_methods(wrong, ["ilp"])
    problem = om.Routing(om.IdealSwitch(2), [1, 0])
    with pytest.raises(om.InputError, match="a list of problems"):
        om.compare_methods(problem, ["ilp"])  # type: ignore[arg-type]

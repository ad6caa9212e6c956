"""Fabrics with faults: the way of light, for every method and the verifier."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import optmatch as om
from optmatch.fabrics import UNREACHED, Faulty
from optmatch.fabrics.faults import break_cells
from optmatch.fabrics.light import trace
from optmatch.io.files import problem_from_tree, problem_to_tree
from optmatch.model import BAR, CROSS, FREE, IDLE
from tests.helpers.command import call, python
from tests.helpers.faults import broken

SMALL = om.SquareMesh(2, 1, ports=[0, 2, 5, 7, 10])
"""Seven cells: every state can be tried."""


def held_matchings(mesh: Faulty) -> set[tuple[int, ...]]:
    """List what the ports see in every state, by the graph without faults and fixed cells."""
    intact: Any = mesh.fabric.graph
    choices: list[tuple[int, ...]] = [(BAR, CROSS)] * intact.n_cells
    for cell in (*mesh.stuck_bar, *mesh.stuck_cross):
        choices[cell] = (BAR,) if cell in mesh.stuck_bar else (CROSS,)
    for cell in mesh.dead_cells:
        choices[cell] = (FREE,)  # light that comes to a free cell is lost
    states = np.array(list(itertools.product(*choices)), dtype=np.int8)
    starts = np.tile(mesh.source_terminals, (len(states), 1))
    arrived = trace(intact, states, starts).arrived
    port_at = dict(zip(mesh.destination_terminals.tolist(), range(mesh.n_ports), strict=True))
    return {tuple(port_at.get(t, IDLE) for t in row) for row in arrived.tolist()}


def holds(found: set[tuple[int, ...]], matching: NDArray[np.int32]) -> bool:
    """Tell whether some state holds all circuits of a matching."""
    return any(
        all(partner in (IDLE, row[i]) for i, partner in enumerate(matching)) for row in found
    )


def matchings(n_ports: int) -> st.SearchStrategy[NDArray[np.int32]]:
    """Draw two circuits of bidirectional ports."""

    def pair_up(order: list[int]) -> NDArray[np.int32]:
        matching = np.full(n_ports, IDLE, dtype=np.int32)
        for i, j in (order[:2], order[2:4]):
            matching[i], matching[j] = j, i
        return matching

    return st.permutations(range(n_ports)).map(pair_up)


COLUMNS = [om.Benes(4), om.Crossbar(3), om.SpankeBenes(4), om.SwitchAndSelect(2)]
ANY_FABRIC = st.one_of(broken(SMALL, most=5), st.sampled_from(COLUMNS).flatmap(broken))


@given(st.data())
@settings(deadline=None, max_examples=120)
def test_faults_are_honoured_and_named(data: st.DataObject) -> None:
    """Trying all states says which pairs are dead, what can be routed, and what is the cause."""
    mesh = data.draw(ANY_FABRIC)
    rows = held_matchings(mesh)
    n = mesh.n_ports
    reached = {(i, row[i]) for row in rows for i in range(n)}
    ways = itertools.combinations if mesh.bidirectional else itertools.permutations
    pairs: list[Any] = list(ways(range(n), 2))
    assert mesh.dead_pairs() == [pair for pair in pairs if pair not in reached]
    drawn = matchings(n) if mesh.bidirectional else st.permutations(range(n))
    matching = np.array(data.draw(drawn), dtype=np.int32)
    possible = holds(rows, matching)
    methods = ["negotiated", "ilp", *["constructive"] * (not mesh.bidirectional)]
    for method in methods:
        solution = om.solve(om.Routing(mesh, matching), method, seed=0)
        assert (solution.schedule is not None) == possible
        if not possible:
            assert_caused(mesh, matching, solution)
            continue
        assert "causes" not in solution.stats
        assert solution.status is om.Status.OPTIMAL or method != "ilp"
        schedule: Any = solution.schedule
        stated = schedule.cell_states[0]
        assert set(stated[list(mesh.stuck_bar)]) <= {BAR, FREE}
        assert set(stated[list(mesh.stuck_cross)]) <= {CROSS, FREE}
        assert set(stated[list(mesh.dead_cells)]) <= {FREE}


@pytest.mark.parametrize("method", ["negotiated", "ilp"])
@pytest.mark.parametrize(
    "fabric",
    [om.HexMesh(3, 3, ports=5), om.HexMesh(3, 3, tx=4, rx=4), om.Benes(4), om.IdealSwitch(4)],
    ids=lambda fabric: str(fabric.type),
)
def test_all_to_all_of_live_ports(method: str, fabric: om.Fabric) -> None:
    """Every pair of live ports meets, and a dead port stays idle."""
    mesh = Faulty(fabric, dead_ports=[1])
    solution = om.solve(om.AllToAll(mesh), method, seed=0, limits=om.Limits(iterations=200))
    table = solution.schedule.matchings
    assert (table[:, 1] == IDLE).all() and not (table == 1).any()
    live = mesh.live_ports.tolist()
    met = {(i, int(row[i])) for row in table for i in live if row[i] != IDLE}
    assert met == {(i, j) for i in live for j in live if i != j}


@pytest.mark.parametrize("dead", [[0, 1, 2], [0, 1, 2, 3]])
@pytest.mark.parametrize("method", ["negotiated", "ilp"])
def test_all_to_all_of_one_or_no_live_port(method: str, dead: list[int]) -> None:
    for fabric in (om.HexMesh(2, 2, ports=4), om.IdealSwitch(4)):
        problem = om.AllToAll(Faulty(fabric, dead_ports=dead))
        solution = om.solve(problem, method, seed=0)
        assert solution.status is om.Status.OPTIMAL
        assert solution.schedule is not None and solution.schedule.n_slots == 0


def test_dead_ports_are_refused_by_name() -> None:
    """A matching or a demand that uses one is bad input."""
    mesh = Faulty(om.HexMesh(2, 2, ports=4), dead_ports=[1])
    rule = r"port 1 \(t\d+, cell \d+ [ab][12]\) is dead and takes part in no circuit"
    with pytest.raises(om.InputError, match=r"matching\[1\]: " + rule):
        om.Routing(mesh, np.array([1, 0, -1, -1], dtype=np.int32))
    demand = np.zeros((4, 4))
    demand[0, 1] = 3
    with pytest.raises(om.InputError, match=r"demand_bytes\[1\]: " + rule):
        om.Demand(mesh, demand)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"stuck_bar": [6]}, r"stuck_bar\[0\] = 6: cells are 0 \.\. 5"),
        ({"stuck_bar": [2], "dead_cells": [1, 2]}, r"dead_cells\[1\] = 2: is stuck_bar\[0\]"),
        ({"dead_ports": [2]}, r"dead_ports\[0\] = 2: ports are 0 \.\. 1"),
        ({"dead_ports": [0, 0]}, r"dead_ports\[1\] = 0: is dead_ports\[0\] already"),
        ({"stuck_cross": [-1]}, r"stuck_cross\[0\] = -1: must be >= 0"),
        ({"stuck_cross": "1"}, r"stuck_cross = '1': a list is expected"),
        ({"stuck_cross": np.array(1)}, r"stuck_cross = array\(1\): a list is expected"),
        ({"stuck_cross": [1.5]}, r"stuck_cross\[0\] = 1\.5: not a whole number"),
    ],
)
def test_bad_faults_are_refused(faults: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        Faulty(om.HexMesh(1, 1, ports=[0, 5]), **faults)


def test_a_fabric_without_cells_has_dead_ports_only() -> None:
    with pytest.raises(om.InputError, match="cells are none"):
        Faulty(om.IdealSwitch(3), dead_cells=[0])
    with pytest.raises(om.InputError, match="list all"):
        Faulty(Faulty(om.IdealSwitch(3)), dead_ports=[0])


def test_faults_survive_files() -> None:
    """The fabric is nested in its description, and equal when read back."""
    mesh = Faulty(om.HexMesh(2, 2, ports=4), stuck_bar=(3,), dead_cells=[9, 1], dead_ports=(2,))
    problem = om.AllToAll(mesh)
    tree = problem_to_tree(problem)
    assert tree["fabric"]["type"] == "faulty" and tree["fabric"]["fabric"]["type"] == "hex-mesh"
    assert problem_from_tree(tree) == problem
    assert Faulty.of(mesh.fabric, mesh.faults) == mesh


def test_a_dead_pair_is_told_in_words() -> None:
    source, destination = om.HexMesh(2, 2).dead_pairs()[0]
    mesh = om.HexMesh(2, 2, ports=[source, destination])
    reason = om.solve(om.AllToAll(mesh), seed=0).stats["reason"]
    assert reason.startswith("no state of the cells connects port 0 (t")


def test_causes_have_the_names_of_a_netlist() -> None:
    """Cells are numbered in the order of a file that its author never counts."""
    chip = om.Netlist(
        ["left", "right"],
        {"left,b1": "right,a1"},
        [("w", "left,a1"), ("e", "right,b1")],
        open_pins=["left,a2", "left,b2", "right,a2", "right,b2"],
    )
    solution = om.solve(om.Routing(om.Faulty(chip, stuck_cross=["right"]), [1, 0]), seed=0)
    assert solution.stats["causes"] == ["cell right stuck in cross"]
    assert solution.stats["reason"].endswith("caused by: cell right stuck in cross")


def assert_caused(mesh: Faulty, matching: NDArray[np.int32], solution: om.Solution) -> None:
    """Let enumeration judge the faults that an answer names."""
    assert solution.status is om.Status.INFEASIBLE
    assert solution.stats["causes_minimal"]
    causes = [fault for fault in mesh.faults if str(fault) in solution.stats["causes"]]
    assert len(causes) == len(solution.stats["causes"])
    assert not holds(held_matchings(Faulty.of(mesh.fabric, causes)), matching)
    for repaired in causes:
        others = [fault for fault in causes if fault != repaired]
        assert holds(held_matchings(Faulty.of(mesh.fabric, others)), matching)
    said = ", ".join(solution.stats["causes"])
    ending = f"caused by: {said}" if said else "without faults it cannot be done either"
    assert solution.stats["reason"].endswith(ending)


def test_what_negotiation_cannot_find_is_found_exactly() -> None:
    """On this mesh light of one circuit would turn back through a link, at whatever price."""
    mesh = Faulty(om.HexMesh(2, 3, tx=3, rx=3), dead_cells=[8])
    problem = om.Routing(mesh, np.array([IDLE, 0, IDLE], dtype=np.int32))
    solution = om.solve(problem, "negotiated", seed=0)
    assert solution.schedule is not None and solution.method == "negotiated"


def test_with_an_iteration_limit_negotiation_is_all() -> None:
    mesh = om.HexMesh(4, 4, ports=8)
    unproved = None
    for seed in range(20):
        rng = np.random.default_rng(seed)
        order, matching = rng.permutation(8), np.empty(8, dtype=np.int32)
        matching[order[::2]], matching[order[1::2]] = order[1::2], order[::2]
        cells = rng.choice(mesh.n_cells, 6, replace=False).tolist()
        problem = om.Routing(Faulty(mesh, stuck_cross=cells), matching)
        if om.solve(problem, "negotiated", seed=0).certificate is not None:
            unproved = problem
    assert unproved is not None
    limited = om.solve(unproved, "negotiated", seed=0, limits=om.Limits(iterations=50))
    assert limited.status is om.Status.UNKNOWN and limited.limit is om.Limit.ITERATIONS
    proved = om.solve(unproved, "negotiated", seed=0, time_limit_s=60)
    assert proved.status is om.Status.INFEASIBLE and proved.stats["causes"]


def test_routes_need_no_exact_method() -> None:
    """Whoever only routes does not wait for OR-tools to be imported."""
    code = """
import sys, optmatch as om
om.solve(om.Routing(om.HexMesh(2, 2, ports=4), [1, 0, -1, -1]), "negotiated", seed=0)
sys.exit("ortools" in sys.modules)
"""
    python("-c", code)


def test_bounds_on_many_stuck_cells() -> None:
    """Light walks on through stuck cells once, however many there are."""
    fabric = om.Crossbar(12)
    cells = range(fabric.n_cells)
    stuck = Faulty(fabric, stuck_bar=cells)
    table = stuck.route_cells()
    assert (np.count_nonzero(table != UNREACHED, axis=1) == 1).all()
    matching = np.argmax(table != UNREACHED, axis=1)
    solution = om.solve(om.Routing(stuck, matching), "ilp", seed=0)
    assert solution.status is om.Status.OPTIMAL


def test_the_command_line_names_the_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At exit code 3, in the message and in the object."""
    options = "generate all-to-all --rows 2 --cols 2 --ports 4 --dead-cells 0,6 -o x.json"
    monkeypatch.chdir(tmp_path)
    call(*options.split())
    problem = om.load(tmp_path / "x.json")
    assert isinstance(problem, om.AllToAll)
    assert problem.fabric == Faulty(om.HexMesh(2, 2, ports=4), dead_cells=[0, 6])
    done = call("solve", "x.json", "--json", code=3)
    assert "caused by: dead cell 6" in done.stdout + done.stderr


def test_the_command_line_says_who_costs_slots(tmp_path: Path) -> None:
    mesh = Faulty(om.HexMesh(4, 4, ports=8), dead_cells=[1])
    om.save(om.AllToAll(mesh), tmp_path / "x.json")
    done = call("solve", tmp_path / "x.json", "--seed", "0")
    (row,) = [line for line in done.stdout.splitlines() if "fewest slots" in line]
    assert row.endswith("refuted by link prices; caused by: dead cell 1")


@pytest.mark.parametrize("method", ["best", "greedy-cover", "solstice"])
def test_demands_on_what_is_left(method: str) -> None:
    mesh = Faulty(om.HexMesh(4, 4, ports=6), stuck_bar=[5], dead_cells=[20], dead_ports=[2])
    demand = np.random.default_rng(0).random((6, 6)).round(2)
    np.fill_diagonal(demand, 0)
    demand[2] = demand[:, 2] = 0
    problem = om.Demand(mesh, demand, delay_s=0.1)
    solution = om.solve(problem, method, seed=0, limits=om.Limits(iterations=2))
    assert (solution.schedule.matchings[:, 2] == IDLE).all()


def test_cells_stay_where_they_are_placed() -> None:
    graph = replace(om.Benes(8).graph, placed=True)
    assert break_cells(graph, np.full(graph.n_cells, FREE, dtype=np.int8)).placed

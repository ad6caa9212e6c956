"""Figures and bounds of schedules, against naive counts; and what a report says."""

import math
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.verify.routing.bounds import bound_objective, count_slots, route_lengths
from tests.helpers import oracles
from tests.helpers.modes import SOAK, examples
from tests.verify.rules import forge

IDEAL = om.AllToAll(om.IdealSwitch(3))
RING = om.HexMesh(1, 1)
FABRICS = [
    om.HexMesh(2, 2),
    om.HexMesh(1, 3, ports=[7, 0, 3, 11]),
    om.SquareMesh(2, 3),
    om.TriangularMesh(2, 2),
    om.HexMesh.smartlight(),
    om.HexMesh(2, 2, tx=[0, 6, 4, 1], rx=[10, 15, 12, 8]),
]


def plan(matchings: Any, **fields: Any) -> om.Schedule:
    """Make a schedule of slots of one second."""
    durations: Any = [1.0] * len(matchings)
    return om.Schedule(matchings=matchings, durations_s=durations, **fields)


def routing(fabric: om.Fabric, matching: Any, **fields: Any) -> om.Routing:
    """Make a routing problem from plain lists."""
    return om.Routing(fabric, matching, **fields)


def realised(fabric: om.Fabric, seed: int) -> om.Schedule:
    """Set all cells at random, take the matching that comes out, and free the dark cells."""
    graph: Any = fabric.graph
    states = oracles.random_states(np.random.default_rng(seed), 1, graph)[0].tolist()
    port_at = {int(end): port for port, end in enumerate(fabric.destination_terminals)}
    matching, lit = [], set()
    for start in fabric.source_terminals.tolist():
        steps, end = oracles.follow(graph, states, start)
        matching.append(port_at.get(end, -1))  # type: ignore[arg-type]
        if matching[-1] >= 0:
            lit |= {entered // 4 for entered, _ in steps}
    states = [state if cell in lit else -1 for cell, state in enumerate(states)]
    return plan([matching], cell_states=[states])


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
@settings(max_examples=examples(50, plain=50))
@given(seed=st.integers(0, 2**32))
def test_what_light_does_is_accepted_with_the_right_figures(fabric: om.Fabric, seed: int) -> None:
    """A matching that random states make is verified, and counted as a naive replay counts it."""
    schedule = realised(fabric, seed)
    assert schedule.cell_states is not None
    problem = om.Routing(
        fabric, schedule.matchings[0], objective="loss-db", bar_loss_db=0.3, cross_loss_db=0.5
    )
    report = om.verify(problem, schedule)
    assert report.ok, report
    states = schedule.cell_states[0].tolist()
    lengths, loss = [], 0.0
    for i, _ in oracles.circuits(fabric, schedule.matchings[0].tolist()):
        steps, _ = oracles.follow(fabric.graph, states, int(fabric.source_terminals[i]))  # type: ignore[arg-type]
        lengths.append(len(steps))
        loss += sum(0.5 if states[entered // 4] else 0.3 for entered, _ in steps)
    figures = report.figures
    assert figures["circuits"] == len(lengths)
    assert figures["total_cells"] == sum(lengths)
    assert figures["worst_route_cells"] == max(lengths, default=0)
    assert figures["mean_route_cells"] == pytest.approx(np.mean(lengths) if lengths else 0.0)
    assert figures["total_loss_db"] == figures["objective"] == pytest.approx(loss)
    assert figures["cells_used_max"] == sum(state >= 0 for state in states)
    assert figures["lower_bound_recomputed"] <= loss + 1e-9


@pytest.mark.parametrize(
    ("objective", "figure"), [("total-cells", "total_cells"), ("worst-cells", "worst_route_cells")]
)
def test_the_objective_is_the_asked_one(objective: Any, figure: str) -> None:
    schedule = realised(FABRICS[0], 5)
    problem = om.Routing(FABRICS[0], schedule.matchings[0], objective=objective)
    figures = om.verify(problem, schedule).figures
    assert figures["objective"] == figures[figure]
    assert figures["total_cells"] > figures["worst_route_cells"]
    bound = problem.lower_bound()
    assert figures["lower_bound_recomputed"] == bound
    assert "total_loss_db" not in figures


def test_toggles_are_counted_against_the_last_driven_state() -> None:
    problem = om.AllToAll(om.HexMesh(3, 3, ports=4))
    schedule: Any = om.solve(problem, seed=0).schedule
    toggles = 0
    for column in schedule.cell_states.T.tolist():
        driven = [state for state in column if state >= 0]
        toggles += sum(a != b for a, b in pairwise(driven))
    assert om.verify(problem, schedule).figures["toggles"] == toggles > 0


def bars() -> tuple[om.Routing, om.Schedule]:
    """Return the ring with all cells in bar, where each outer side carries a circuit."""
    ends = [oracles.follow(RING.graph, [0] * 6, t)[1] for t in RING.source_terminals.tolist()]
    row = [RING.source_terminals.tolist().index(end) for end in ends]
    return routing(RING, row), plan([row], cell_states=[[0] * 6])


def test_light_that_goes_wrong_is_named() -> None:
    problem, schedule = bars()
    states = schedule.cell_states.copy()  # type: ignore[union-attr]
    states[0, [3, 5]] = 1  # with one cross only, light goes round inside and arrives
    graph = RING.graph
    report = om.verify(problem, forge(schedule, cell_states=states))
    wrong = {4 * cell + k for cell in (3, 5) for k in range(4)}
    lost = [p for p, t in enumerate(RING.source_terminals.tolist()) if t in wrong]
    assert len(lost) == 4
    for rule in ("light reaches its partner", "light comes back from the partner"):
        found = [v for v in report.violations if v.rule == rule]
        assert {v.where for v in found} == {
            f"slot 0, circuit from port {p} to port {problem.matching[p]}" for p in lost
        }
        for violation in found:
            assert violation.got != violation.expected
            assert violation.got in {graph.terminal_name(t) for t in range(24)}


def test_dark_cells_may_be_in_any_state() -> None:
    problem = om.AllToAll(om.HexMesh(3, 3, ports=4))
    schedule: Any = om.solve(problem, seed=0).schedule
    free = om.verify(problem, schedule)
    states: Any = schedule.cell_states
    for told in (0, 1, np.arange(len(states))[:, None] % 2):
        full = np.where(states < 0, told, states)
        report = om.verify(problem, replace(schedule, cell_states=full))
        assert report.ok, report
        toggles = np.count_nonzero(np.diff(full, axis=0))
        assert report.figures["toggles"] == toggles
        for name in ("objective", "worst_route_cells", "cells_used_max"):
            assert report.figures[name] == free.figures[name]
    assert toggles > free.figures["toggles"]


def test_slots_are_bounded_by_counting() -> None:
    for n in range(1, 9):
        for fabric in (om.HexMesh(4, 4, ports=n), om.HexMesh(4, 4, tx=n, rx=n), om.IdealSwitch(n)):
            assert count_slots(fabric) == om.AllToAll(fabric).min_slots
    assert [count_slots(om.HexMesh(4, 4, ports=n)) for n in (1, 2, 3, 4)] == [0, 1, 3, 3]


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_route_lengths_in_any_wiring(seed: int) -> None:
    fabric = oracles.random_fabric(np.random.default_rng(seed), 4)
    expected = oracles.route_lengths(fabric.graph, fabric.graph.perimeter.tolist())
    assert np.array_equal(route_lengths(fabric), expected)


def test_bounds_of_routings() -> None:
    mesh = om.HexMesh(2, 2)
    i, j = mesh.dead_pairs()[0]
    dead = np.full(20, -1)
    dead[[i, j]] = j, i
    for objective in ("total-cells", "worst-cells", "loss-db"):
        losses = {"bar_loss_db": 0.0, "cross_loss_db": 0.2}
        problem = routing(mesh, dead, objective=objective, **losses)
        assert bound_objective(problem) == math.inf
        row = realised(mesh, 1).matchings[0]
        for cheap in (0.0, 0.1):
            losses["bar_loss_db"] = cheap
            problem = routing(mesh, row, objective=objective, **losses)
            assert bound_objective(problem) == pytest.approx(problem.lower_bound())
    assert bound_objective(om.AllToAll(mesh)) == math.inf


@pytest.mark.parametrize("kind", [om.Benes, om.Clements, om.Reck, om.SpankeBenes])
def test_full_permutations_light_every_cell_twice(kind: Any) -> None:
    """Light goes forward from all ports, so both ends of each cell are lit."""
    fabric = kind(5)
    for matching in (np.arange(5), np.roll(np.arange(5), 1)):
        assert bound_objective(routing(fabric, matching)) == 2 * fabric.n_cells


def test_unknown_problems_and_subjects_are_refused() -> None:
    with pytest.raises(om.InputError, match=r"problem of type str"):
        om.verify("all-to-all", plan([[0]]))  # type: ignore[call-overload]
    with pytest.raises(om.InputError, match=r"subject of type int"):
        om.verify(IDEAL, 3)  # type: ignore[call-overload]


def test_a_solution_is_verified_alone() -> None:
    """It has its problem, and is refused where it claims too much."""
    solution = om.solve(IDEAL, seed=0)
    assert om.verify(solution) == om.verify(IDEAL, solution)
    wrong = replace(solution, objective=5, lower_bound=5)
    assert not om.verify(wrong).valid
    with pytest.raises(om.InputError, match="a solution is checked alone"):
        om.verify(solution, solution.schedule)  # type: ignore[call-overload]


def test_light_is_not_followed_where_slots_have_too_few_entries() -> None:
    mesh = om.AllToAll(om.HexMesh(2, 2))
    assert "not checked: times, pairs and light" in str(om.verify(mesh, plan([[-1]])))


@pytest.mark.slow
def test_the_largest_schedule_takes_two_seconds() -> None:
    """127 slots of 128 ports on 4,031 cells; wrong pairs, but as much light as there can be.

    A quarter of them takes a quarter of the time.
    """
    slots = 127 if SOAK else 32
    fabric = om.HexMesh(36, 36, ports=128)
    states = oracles.random_states(np.random.default_rng(0), slots, fabric.graph)
    rows = np.tile(np.arange(128).reshape(-1, 2)[:, ::-1].ravel(), (slots, 1))
    schedule = plan(rows, cell_states=states)
    started = time.process_time()  # of this process alone, whatever else the machine does
    report = om.verify(om.AllToAll(fabric), schedule)
    assert time.process_time() - started < 10.0 * slots / 127  # 1 s for all on an idle machine
    assert len(report.violations) > 128 * slots / 2

"""Which faults cost an all-to-all a pair, or slots: against all states tried."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.fabrics import Faulty
from optmatch.solvers.all_to_all.planner import Decision
from optmatch.solvers.all_to_all.slot_shortage import ShortageTest, decide_small
from optmatch.testing import brute_force
from tests.helpers.faults import broken


@pytest.mark.parametrize("method", ["negotiated", "ilp"])
def test_all_to_all_names_who_kills_a_pair(method: str) -> None:
    mesh = om.HexMesh(3, 3, ports=6)
    cell = int(mesh.source_terminals[4]) // 4
    others = [k for k in range(mesh.n_cells) if k not in mesh.source_terminals // 4][:2]
    problem = om.AllToAll(Faulty(mesh, dead_cells=[cell], stuck_bar=others, dead_ports=[0]))
    solution = om.solve(problem, method, seed=0)
    assert solution.status is om.Status.INFEASIBLE
    assert solution.stats["causes"] == [f"dead cell {cell}"]
    assert [1, 4] in solution.stats["dead_pairs"]
    assert solution.stats["reason"].endswith(f"caused by: dead cell {cell}")


def in_fewest_slots(mesh: Faulty) -> bool:
    """Try all states for an all-to-all in the fewest slots."""
    return brute_force(om.AllToAll(mesh)) is not None


TINY = [om.HexMesh(1, 2, ports=4), om.Benes(4), om.Crossbar(3), om.SpankeBenes(4)]


@pytest.mark.parametrize("method", ["negotiated", "constructive", "ilp"])
@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_all_to_all_names_who_costs_slots(method: str, data: st.DataObject) -> None:
    fabric = data.draw(st.sampled_from(TINY[1:] if method == "constructive" else TINY))
    mesh = data.draw(broken(fabric, most=3))
    problem = om.AllToAll(mesh)
    solution = om.solve(problem, method, seed=0)
    assert (solution.schedule is None) == bool(mesh.dead_pairs())
    short = solution.schedule is not None and solution.schedule.n_slots > problem.min_slots
    refuted = str(solution.stats.get("fewest_slots", "")).startswith("refuted")
    if solution.schedule is not None:
        assert refuted == short == (not in_fewest_slots(mesh))
    if not refuted:
        assert solution.schedule is None or "causes" not in solution.stats
        return
    assert short and not in_fewest_slots(mesh)
    causes = [fault for fault in mesh.faults if str(fault) in solution.stats["causes"]]
    assert causes and not in_fewest_slots(Faulty.of(fabric, causes))
    assert solution.stats["fewest_slots"].startswith("refuted by ")
    assert ", ".join(map(str, causes)) in solution.stats["fewest_slots"]
    assert solution.stats["causes_minimal"]
    for repaired in causes:
        others = [fault for fault in causes if fault != repaired]
        assert in_fewest_slots(Faulty.of(fabric, others))


def test_dead_ports_stay_dead_where_slots_are_missing() -> None:
    """Causes are sought on the same live ports: a port out of use needs no cell."""
    mesh = om.HexMesh(4, 4, ports=8)
    for dead_ports, causes in (([], ["dead cell 1"]), ([5], ["cell 57 stuck in bar"])):
        broken_mesh = Faulty(mesh, stuck_bar=[57], dead_cells=[1], dead_ports=dead_ports)
        solution = om.solve(om.AllToAll(broken_mesh), seed=0)
        assert solution.schedule is not None
        assert solution.stats["causes"] == causes
        assert solution.stats["causes_minimal"]
    alone = Faulty(mesh, dead_cells=[1], dead_ports=[5])
    assert "causes" not in om.solve(om.AllToAll(alone), seed=0).stats


@pytest.mark.parametrize("method", ["negotiated", "ilp"])
@pytest.mark.parametrize("faults", [{"dead_cells": [8]}, {"stuck_cross": [16]}])
def test_pairs_whose_cheapest_ways_turn_back(method: str, faults: dict[str, Any]) -> None:
    mesh = Faulty(om.HexMesh(2, 3, tx=3, rx=3), **faults)
    assert not mesh.dead_pairs()
    problem = om.AllToAll(mesh)
    solution, best = (om.solve(problem, name, seed=0) for name in (method, "ilp"))
    short = best.schedule.n_slots > problem.min_slots
    assert (solution.schedule.n_slots > problem.min_slots) == short


def test_a_shortage_is_seen_by_known_prices_routes_new_prices_and_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "optmatch.solvers.all_to_all"
    short, enough = om.HexMesh(2, 2, ports=4), om.HexMesh(2, 2, ports=5)
    solution = replace(om.solve(om.AllToAll(short), seed=0), certificate=None)
    clock, rng = om.Limits().start(), np.random.default_rng(0)

    def fail(*_: object) -> Any:
        raise AssertionError

    remains = ShortageTest(solution, clock, rng, fail)
    assert remains(enough) is False
    assert remains(short) is True
    with monkeypatch.context() as patched:
        patched.setattr(f"{module}.slot_shortage._route_fewest", fail)
        assert remains(short) is True
    monkeypatch.setattr("optmatch.solvers.routing.columns.bound_jointly", lambda *_: (0.0, None))
    answers = ((Decision(None, True), True), (Decision(None, False), None))
    for answer, expected in (*answers, (Decision([], False), False)):
        assert ShortageTest(solution, clock, rng, lambda *_: answer)(short) is expected  # noqa: B023
    assert ShortageTest(solution, clock, rng, decide_small)(short) is True
    large = om.AllToAll(om.HexMesh(4, 4, ports=8))
    assert decide_small(large, clock, rng) == Decision(None, refuted=False)

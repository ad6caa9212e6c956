"""Plans of slots: their figures are true, and no move makes them worse."""

from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.model import Bound, Event, Limit, Limits, NewBest, ignore
from optmatch.solvers.all_to_all import factorise, planner as planner_module
from optmatch.solvers.all_to_all.conclusion import place_leftovers
from optmatch.solvers.all_to_all.factors import relabel, tournament
from optmatch.solvers.all_to_all.planner import (
    FAILED,
    SlotPlanner,
    exchange_pairs,
    three_slots,
)
from optmatch.solvers.all_to_all.slot_order import Sequence, lower_toggles
from optmatch.solvers.routing.negotiation import ProvedBound
from optmatch.solvers.routing.pathfinder import EFFORTS, UNIT
from optmatch.solvers.routing.router import CellRouter
from tests.helpers.modes import compiled_only

FABRICS = [om.HexMesh(3, 3, ports=7), om.HexMesh(3, 3, ports=10), om.HexMesh(4, 4, tx=6, rx=6)]


def planned(fabric: om.Fabric, events: list[Event], **limits: int) -> SlotPlanner:
    """Route a relabelled tournament."""
    problem, clock = om.AllToAll(fabric), Limits(**limits).start()
    planner = SlotPlanner(
        problem, CellRouter(fabric), clock, np.random.default_rng(0), events.append
    )
    factors = tournament(fabric.n_ports, fabric.bidirectional)
    assert planner.route_all(relabel(factors, planner.draw_names(factors.shape[1]))) is None
    return planner


def check(planner: SlotPlanner) -> None:
    """Every pair has one slot; routes and excess of each slot are those of its cell states."""
    met = []
    for slot in planner.plan:
        matching = planner.matching(slot.partner)
        order = planner.sources(slot.partner)
        met += [(i, j) for i, j in enumerate(matching.tolist()) if j >= 0]
        if slot.excess >= FAILED:
            continue
        routes, lengths = planner.router.follow(matching, planner.states(slot))
        assert np.array_equal(lengths, slot.lengths)
        for port in order.tolist():
            assert (routes[port, : lengths[port]] == slot.routes[port, : lengths[port]]).all()
        least = planner.problem.fabric.route_cells()[order, matching[order]]
        assert (np.diff(least) <= 0).all(), "the farthest pairs come first"
        assert slot.excess == UNIT * (lengths.sum() - least.sum())
    assert sorted(met) == list(permutations(range(planner.n_ports), 2))


@pytest.mark.parametrize("fabric", FABRICS, ids=["odd", "even", "tx-rx"])
def test_exchanges_keep_a_plan_true_and_never_add_cells(fabric: om.Fabric) -> None:
    events: list[Event] = []
    planner = planned(fabric, events, iterations=200)
    check(planner)
    assert len(events) == len(planner.plan)
    before = planner.excess
    limit = exchange_pairs(planner)
    check(planner)
    assert (limit is None) == (planner.excess == 0)
    assert planner.excess < before
    for slot in planner.plan:
        assert np.array_equal(planner.factor(planner.matching(slot.partner)), slot.partner)


def test_where_most_slots_fail_negotiations_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round is not enough for most; those that have all routes stay as they are."""
    hasty = EFFORTS[0]._replace(rounds=1)
    monkeypatch.setattr(planner_module, "EFFORTS", (hasty, *EFFORTS[1:]))
    events: list[Event] = []
    planner = planned(om.HexMesh(5, 5, ports=20), events)
    check(planner)
    first = [
        planner.route_slot(slot.partner, *planner.router.empty_routes(), hasty).excess
        for slot in planner.plan
    ]
    failed = [excess >= FAILED for excess in first]
    assert len(failed) / 2 < sum(failed) == len(events) - len(failed)
    for before, slot in zip(first, planner.plan, strict=True):
        assert slot.excess == before or slot.excess < before >= FAILED
    assert sum(slot.excess >= FAILED for slot in planner.plan) < sum(failed) / 2


@compiled_only
@pytest.mark.slow
def test_a_search_goes_on_until_the_gap_is_closed() -> None:
    seed = 1  # `test_joint_bound.py` has seed 0
    problem, events = om.AllToAll(om.HexMesh(9, 9, ports=32)), list[Event]()
    solution = om.solve(problem, seed=seed, on_event=events.append)
    assert solution.status is om.Status.OPTIMAL and om.verify(problem, solution).ok
    assert solution.lower_bound > problem.lower_bound() and solution.certificate is not None
    told = [event.objective for event in events if isinstance(event, NewBest)]
    assert told == sorted(set(told), reverse=True) and told[-1] == solution.objective
    assert Bound(solution.lower_bound) in events
    short = om.solve(problem, seed=seed, limits=om.Limits(iterations=1 + seed))
    assert short.limit is Limit.ITERATIONS and short.lower_bound == solution.lower_bound
    assert short.objective is not None and solution.objective is not None
    assert short.objective > solution.objective


@pytest.mark.parametrize("fabric", [FABRICS[1], om.HexMesh(17, 17, ports=64)], ids=["few", "many"])
def test_without_a_limit_a_plan_near_its_bound_is_not_begun_anew(
    monkeypatch: pytest.MonkeyPatch, fabric: om.Fabric
) -> None:
    """Near is 0.05 % for up to 32 slots; with 63 slots it is 63 / 32 times as much."""
    problem, begun = om.AllToAll(fabric), list[SlotPlanner]()
    cells = problem.lower_bound() + 10 * problem.min_slots

    def route_nothing(planner: SlotPlanner, factors: NDArray[np.int64]) -> None:
        begun.append(planner)
        planner.plan = [planner.empty_slot()._replace(excess=10 * UNIT) for _ in factors]

    def count_starts(share: float, starts: int | None = 4, **limits: int) -> int:
        begun.clear()
        proved = ProvedBound(cells * (1 - share), None)
        monkeypatch.setattr(factorise, "prove_bound", lambda *given: proved)
        factorise.schedule_all(
            problem, Limits(**limits), np.random.default_rng(0), ignore, name="", starts=starts
        )
        return len(begun)

    monkeypatch.setattr(SlotPlanner, "route_all", route_nothing)
    monkeypatch.setattr(factorise, "yield_exchanges", lambda *given: iter(()))
    monkeypatch.setattr(factorise, "conclude", lambda *given, **named: None)
    near = 0.0005 * max(1.0, problem.min_slots / 32)
    assert count_starts(0.99 * near) == 1
    assert count_starts(1.01 * near) == 4
    assert count_starts(0.99 * near, None, iterations=20) > 4, "until the limit is reached"


@compiled_only
def test_slots_that_failed_are_repaired_by_exchanges() -> None:
    planner = planned(om.HexMesh(6, 6, ports=28), [])
    assert any(slot.excess >= FAILED for slot in planner.plan)
    assert exchange_pairs(planner, tolerated=FAILED - 1) is None
    check(planner)


def test_pairs_without_routes_fill_further_slots() -> None:
    """Six ports on 19 cells: every pair is routed in the end, in as few slots as fit."""
    planner = planned(om.HexMesh(2, 2, ports=6), [])
    assert planner.excess >= FAILED
    place_leftovers(planner)
    check(planner)
    assert planner.excess < FAILED
    assert 5 < len(planner.plan) < 12
    for slot in planner.plan:
        matching = planner.matching(slot.partner)
        assert (slot.lengths > 0).sum() == (matching > np.arange(6)).sum() > 0


@pytest.mark.parametrize("fabric", FABRICS[1:], ids=["even", "tx-rx"])
def test_toggles_fall_and_routes_stay_as_short(fabric: om.Fabric) -> None:
    planner = planned(fabric, [])
    before = [slot.lengths.sum() for slot in planner.plan]
    sequence = Sequence(np.stack([planner.states(slot) for slot in planner.plan]))
    unordered = sequence.count()
    ordered = lower_toggles(planner, sequence)
    assert sequence.count() < ordered < unordered
    assert [slot.lengths.sum() for slot in planner.plan] == before
    check(planner)
    states = np.stack([planner.states(slot) for slot in planner.plan])
    assert np.array_equal(sequence.states, states)


def test_all_other_slots_are_drawn_beside_one_with_excess() -> None:
    planner = planned(FABRICS[0], [])
    drawn = [three_slots(planner, [2, 5]) for _ in range(100)]
    assert {slot for three in drawn for slot in three} == set(range(7))
    for three in drawn:
        assert len(set(three)) == 3 and {2, 5} & set(three)
    assert {three.index(2) for three in drawn if 5 not in three} == {0, 1, 2}
    assert {len({2, 5} & set(three)) for three in drawn} == {1, 2}

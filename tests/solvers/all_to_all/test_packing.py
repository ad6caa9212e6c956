"""Crowded all-to-alls: slots that are packed, and a bound on slots by link prices."""

import re

import numpy as np
import pytest

import optmatch as om
from optmatch.model import Event, Limits, Tick, ignore
from optmatch.solvers.all_to_all.packing import bound_slots, fill_up, keep_routable, pack_slots
from optmatch.solvers.all_to_all.planner import FAILED, SlotPlanner
from optmatch.solvers.routing.pathfinder import EFFORTS
from optmatch.solvers.routing.router import CellRouter

CROWDED = om.HexMesh(3, 3, ports=list(range(16)))
FABRICS = [CROWDED, om.HexMesh(3, 3, tx=6, rx=6), om.SquareMesh(4, 4, tx=4, rx=4)]


def planner_of(fabric: om.Fabric, limits: Limits | None = None) -> SlotPlanner:
    clock = (limits or Limits()).start()
    rng = np.random.default_rng(0)
    return SlotPlanner(om.AllToAll(fabric), CellRouter(fabric), clock, rng, ignore)


def schedule_of(planner: SlotPlanner) -> om.Schedule:
    """Turn the slots of a planner into a schedule."""
    return om.Schedule(
        matchings=np.stack([planner.matching(slot.partner) for slot in planner.plan]),
        durations_s=np.ones(len(planner.plan)),
        cell_states=np.stack([planner.states(slot) for slot in planner.plan]),
    )


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("fabric", FABRICS, ids=["hex", "tx-rx", "square"])
def test_every_pair_has_light_in_one_slot(fabric: om.Fabric, patient: bool) -> None:
    planner = planner_of(fabric)
    plan = pack_slots(planner, planner.problem.pairs.astype(np.int64), patient=patient)
    assert plan is not None
    planner.plan = plan
    assert om.verify(planner.problem, schedule_of(planner)).ok
    for slot in plan:
        assert 0 <= slot.excess < FAILED


@pytest.mark.parametrize("fabric", FABRICS, ids=["hex", "tx-rx", "square"])
def test_circuits_of_a_failed_slot_are_kept_or_left_out(fabric: om.Fabric) -> None:
    planner = planner_of(fabric)
    matching = np.roll(np.arange(fabric.n_ports, dtype=np.int32), 1)
    if fabric.bidirectional:
        matching = np.arange(fabric.n_ports, dtype=np.int32)[::-1].copy()
    partner = planner.factor(matching)
    failed = planner.route_slot(partner, *planner.router.empty_routes(), EFFORTS[0])
    kept, left_out = keep_routable(planner, failed)
    pairs = {(i, int(matching[i])) for i in planner.sources(partner)}
    kept_pairs = {
        (i, int(planner.matching(kept.partner)[i])) for i in np.flatnonzero(kept.lengths)
    }
    assert kept_pairs | {tuple(pair) for pair in left_out.tolist()} == pairs
    assert len(kept_pairs) + len(left_out) == len(pairs)

    # What was left out for want of a way still has none, and everything fits into empty slots.
    assert not fill_up(planner, kept, left_out)[1].any()
    filled, is_placed = fill_up(planner, planner.empty_slot(), np.array(sorted(pairs)))
    assert (filled.lengths > 0).sum() == is_placed.sum()


def test_no_plan_after_the_time_is_up() -> None:
    planner = planner_of(CROWDED, Limits(time_s=0.0))
    assert pack_slots(planner, planner.problem.pairs.astype(np.int64), patient=False) is None


def test_one_link_between_two_halves_is_the_bound() -> None:
    """All pairs of ports of different sides pass the only cell between them."""
    problem = om.AllToAll(om.HexMesh(1, 2, ports=[0, 1, 3, 10]))
    planner = planner_of(problem.fabric)
    found = bound_slots(problem, planner.router, planner.clock)
    assert found is not None
    assert found.slots == 6


def test_slots_are_packed_where_links_are_found_to_be_few_after_the_search() -> None:
    """First fit takes 12 slots in this corner; what a search for nine left behind took 13."""
    mesh = om.HexMesh(5, 5, ports=[11, 12, 13, 14, 15, 16, 17, 18, 19, 20])
    solution = om.solve(om.AllToAll(mesh), seed=0)
    assert solution.schedule.n_slots == 12


def test_a_crowded_corner_is_packed_at_once_though_a_few_slots_can_be_routed() -> None:
    """Of 23 slots, which counting asks for, some have routes: prices are asked all the same."""
    n_places = len(om.HexMesh(12, 12).graph.perimeter)
    mesh = om.HexMesh(12, 12, ports=[(33 + place) % n_places for place in range(24)])
    solution = om.solve(om.AllToAll(mesh), seed=0, limits=om.Limits(iterations=4))
    assert solution.stats["slots_lower_bound"] == 32
    assert solution.schedule.n_slots <= 34


def test_progress_tells_how_many_slots_there_are() -> None:
    """Slots come before cells: while pairs are packed again, it says how many, and the bound."""
    phases = []

    def listen(event: Event) -> None:
        if isinstance(event, Tick):
            phases.append(event.phase)

    problem = om.AllToAll(CROWDED)
    solution = om.solve(problem, seed=0, on_event=listen)
    told = [re.match(r"(\d+) slots, at least (\d+), pack", phase) for phase in phases]
    numbers = [(int(match[1]), int(match[2])) for match in told if match]
    assert numbers and min(numbers)[0] >= solution.stats["slots"] > problem.min_slots
    assert all(bound <= solution.stats["slots"] for _, bound in numbers)

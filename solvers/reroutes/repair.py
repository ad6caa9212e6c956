"""Quick repair of a failure: which spare takes over, and which circuits make room.

First all other circuits stay where they are: each choice of spares for the lost units is routed
through what is free, the nearest first, until no further one can be better. Only if no set works,
circuits are moved that the failure did not hit, as few as possible and those of hit jobs first.

A *unit* is what a spare replaces, a chip or a port, and a *handover* has the spare of each lost
unit. A circuit is *hit* if it lost its light or an end; a *path* is its list of nodes on the graph
of where light can go. Plans are compared by their *levels* (`Recovery`), what they disturb first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice, permutations
from math import perm
from typing import NamedTuple, TypeVar

import numpy as np

from optmatch.fabrics import UNREACHED
from optmatch.fabrics.units import Reach
from optmatch.model import Clock, Limits, TimeUp, check_time, running_clock
from optmatch.problems import BlockProof
from optmatch.solvers.reroutes.impossible import find_block
from optmatch.solvers.reroutes.routing_state import (
    ROUNDS,
    HitCircuits,
    Path,
    RoutingState,
)

EFFORT = 400
"""How many sets of circuits that make room are tried."""
_MOST_HANDOVERS = 60
"""Ways to hand lost units over that are routed for the same moving circuits, at most."""
_MOST_COMPARED = 720
"""Ways to hand over that are compared by distance before that."""
_WITH_OWN = 14
"""Circuits of others that are tried together with all of hit jobs."""
_ROUNDS_TOGETHER = 10
"""Rounds of a negotiation in which other circuits move, too."""
_FEW_COMPARED = 2
"""Where routing takes long, the best of so many plans is good enough."""
_NEAREST = 4
"""Handovers that are tried before a proof is sought, and for each set of moving circuits."""
_MOST_WORK = 40_000
"""Resources of the graph times circuits from which on routing takes long: some milliseconds."""
_MOST_WORK_OF_A_MOVE = 2_000_000
"""The same for circuits that are let move at once, at most."""
_MOST_WORK_OF_MOVES = 3_000_000
"""The same for all sets of moving circuits together."""
Proof = TypeVar("Proof")
Handover = tuple[int, ...]
"""The spare of each lost unit, in their order."""


class Recovery(NamedTuple):
    """The planned changes."""

    levels: tuple[int, int, int, int, int]
    """Plans are compared by these, in their order: circuits disturbed of jobs that were not hit,
    circuits changed, cells set, the worst loss in hundredths of a dB, and the length of all new
    routes in cells and fibres."""
    handover: Handover
    """The spare of each lost unit."""
    changed: tuple[int, ...]
    """The circuits that get new routes: hit ones, and those that move."""
    paths: list[Path]
    """Their new paths on the flow graph, in the same order."""


def repair(
    routing: RoutingState,
    case: HitCircuits,
    reach: Reach,
    *,
    clock: Clock | None = None,
    prove: Callable[[], Proof | None] | None = None,
) -> Recovery | BlockProof | Proof | None:
    """Answer a failure: with all other circuits in place, or else with few that move.

    `reach` are the distances between units if nothing is in the way. `prove` may return a proof
    that nothing helps. It takes long, so it is called once at most: on large fabrics after a few
    handovers in vain, on others before circuits that were not hit are moved. The `clock` ends only
    the search that moves these. The result is a plan, a proof, or None if no plan was found, which
    proves nothing. `routing` is as before on return.
    """
    prove = cache(prove or (lambda: None))
    with routing.without(case.hit):
        plan = _best_handover(routing, case, reach, moving=(), most=EFFORT, prove=prove)
    if plan is None:
        proof = find_block(routing, case) or prove()
        if proof is not None:
            return proof
        with routing.without(case.hit):
            plan = _move_other_circuits(routing, case, reach, clock or Limits().start())
    return plan


class RankedHandover(NamedTuple):
    """A way to hand lost units over, and the units of circuits from then on."""

    bound: tuple[int, int, int]
    """No cells to be set, the worst loss and the length if nothing is in the way: what the last
    three levels of a `Recovery` are at least."""
    handover: Handover
    """The spare of each lost unit."""
    ends: list[tuple[int, int]]
    """The units (source, destination) of each circuit to be routed."""


def list_choices(
    routing: RoutingState, case: HitCircuits, reach: Reach, circuits: Sequence[int], most: int
) -> list[RankedHandover]:
    """List the `most` best ways to hand lost units over, by the worst loss, then the length.

    Both are those of the `circuits`, numbers of those to be routed, if nothing were in their way.
    One lost unit may go to any spare. Several may go to the spares nearest to one of them: as many
    spares as make at most 720 ways. The best way comes first; a worst loss of `UNREACHED` or more
    says that some circuit has no path.
    """
    pairs = routing.ends[list(circuits)]  # (circuits, 2): the units of source and destination
    n_lost = len(case.lost)
    spares = np.array(case.spares, dtype=np.int64)

    # If there are too many handovers to compare, only the nearest spares take part. A spare in
    # place of a lost unit has circuits with the partners of that unit: its distance is the sum of
    # their losses, there and back, for the lost unit for which this is least.
    if n_lost > 1 and perm(len(spares), n_lost) > _MOST_COMPARED:
        distance = np.full(len(spares), UNREACHED, dtype=np.int64)
        for unit in case.lost:
            partners = np.unique(pairs[(pairs == unit).any(axis=1)])
            partners = partners[~np.isin(partners, case.lost)]
            loss_sums = (
                reach.loss[np.ix_(partners, spares)] + reach.loss[np.ix_(spares, partners)].T
            )
            np.minimum(distance, loss_sums.sum(axis=0, dtype=np.int64), out=distance)
        n_nearest = n_lost
        while perm(n_nearest + 1, n_lost) <= _MOST_COMPARED:
            n_nearest += 1
        spares = np.sort(spares[np.argsort(distance, kind="stable")[:n_nearest]])

    # ``handovers[handover, k]`` takes over for the k-th lost unit: of two spares 5 and 6, for two
    # lost units, the rows are (5, 6) and (6, 5). With one lost unit all spares are compared.
    n_ways = max(len(spares), _MOST_COMPARED)
    ways = list(islice(permutations(spares.tolist(), n_lost), n_ways))
    handovers = np.array(ways, dtype=np.int64).reshape(len(ways), n_lost)

    # ``ends[handover, circuit, 0 or 1]``: source and destination unit from then on. The best come
    # first, by the worst loss, then by the length in all.
    ends = np.broadcast_to(pairs, (len(handovers), *pairs.shape)).copy()
    for k, unit in enumerate(case.lost):
        ends = np.where(pairs == unit, handovers[:, k, None, None], ends)
    from_to = ends[..., 0], ends[..., 1]
    worst_loss = reach.loss[from_to].max(axis=1, initial=0)
    length = reach.length[from_to].sum(axis=1, dtype=np.int64)
    return [
        RankedHandover(
            bound=(0, int(worst_loss[handover]), int(length[handover])),
            handover=tuple(handovers[handover].tolist()),
            ends=[(source, destination) for source, destination in ends[handover].tolist()],
        )
        for handover in np.lexsort((length, worst_loss))[:most].tolist()
    ]


def _best_handover(
    routing: RoutingState,
    case: HitCircuits,
    reach: Reach,
    moving: tuple[int, ...],
    most: int = _MOST_HANDOVERS,
    prove: Callable[[], Proof | None] = lambda: None,
) -> Recovery | Proof | None:
    """Try the ways to hand over, nearest first, until no other can be better.

    For each handover, at most `most` of them, the hit circuits and those in `moving` are routed
    through what is free; they have been taken off `routing`. `reach` has the loss and the length
    of a route between any two units if nothing is in its way.

    The result is the best plan. Without a plan it is the proof that there is none if `prove` has
    found one: that is called once, on large fabrics, after `_NEAREST` handovers in vain. It is
    None if there is neither.
    """
    clock = running_clock()
    circuits = (*case.hit, *moving)

    # On large fabrics each handover takes milliseconds to route.
    is_large = len(routing.graph.resource) * len(circuits) > _MOST_WORK
    rounds = ROUNDS
    if moving:
        rounds = _ROUNDS_TOGETHER
    best: Recovery | None = None
    n_failed = 0
    n_compared = 0
    for ranked in list_choices(routing, case, reach, circuits, most):
        # Handovers come by their bounds: the first that cannot be better, or has no path for some
        # circuit, ends the search. Bounds are compared with the last three levels of a plan: cells
        # set, worst loss and length.
        cannot_be_better = best is not None and best.levels[2:] <= ranked.bound
        _, least_worst_loss, _ = ranked.bound
        if least_worst_loss >= UNREACHED or cannot_be_better:
            break

        # When the time is up, `check_time` raises `TimeUp`, unless there is a plan to return.
        if best is None:
            check_time()
        elif clock is not None and clock.remaining_s <= 0.0:
            break
        paths = routing.route(ranked.ends, rounds)

        # A plan: on large fabrics the best of the first few is good enough.
        if paths is not None:
            plan = plan_recovery(routing, case, ranked.handover, circuits, paths)

            # An ideal switch has no cells whose losses add up: it states those of its circuits.
            if reach.is_stated:
                disturbed, changed, cells_set, _, length = plan.levels
                worst_loss = max((int(reach.loss[pair]) for pair in ranked.ends), default=0)
                plan = plan._replace(levels=(disturbed, changed, cells_set, worst_loss, length))
            if best is None or plan.levels < best.levels:
                best = plan
            n_compared += 1
            if n_compared == _FEW_COMPARED and is_large:
                break

        # No routes: after the nearest handovers in vain it is asked whether there are any at all.
        elif best is None:
            n_failed += 1
            if is_large and n_failed == _NEAREST:
                proof = prove()
                if proof is not None:
                    return proof
    return best


def plan_recovery(
    routing: RoutingState,
    case: HitCircuits,
    handover: Handover,
    circuits: Sequence[int],
    new_paths: list[Path],
) -> Recovery:
    """Make a plan of new routes, ``new_paths[k]`` of ``circuits[k]``, and count its levels.

    `circuits` are the hit ones, and then those that might move; of these, circuits that got their
    old route again are left out of the plan. `handover` has the spare of each lost unit.
    """
    # A circuit that might move and got its old route again is not disturbed.
    kept = [
        (circuit, path)
        for circuit, path in zip(circuits, new_paths, strict=True)
        if circuit in case.hit or not np.array_equal(path, routing.paths[circuit])
    ]
    changed = tuple(circuit for circuit, _ in kept)
    paths = [path for _, path in kept]
    foreign = sum(circuit not in case.hit and case.foreign(circuit) for circuit in changed)
    return Recovery(
        levels=(foreign, len(changed), *routing.sum_up(paths)),
        handover=handover,
        changed=changed,
        paths=paths,
    )


def _move_other_circuits(
    routing: RoutingState, case: HitCircuits, reach: Reach, clock: Clock
) -> Recovery | None:
    """Find new routes for hit circuits where other circuits have to move for them.

    Sets of circuits that may move are tried in this order; the result is the best plan of the
    first stage that has one, None if none has. A *hit job* is one that owns a hit circuit.

    1. One circuit of a hit job, each in turn.
    2. All circuits of hit jobs.
    3. For each priority, the lowest first: one circuit of another job of this or a lower priority,
       each in turn, alone or with all circuits of hit jobs.
    4. For the same priority: all these circuits of other jobs, and all of hit jobs.

    The hit circuits have been taken off `routing`.
    """
    of_hit_jobs, of_other_jobs = split_rest(routing, case)

    # Circuits of hit jobs first: moving them disturbs no other job.
    plan = None
    if of_hit_jobs:
        one_by_one = [(circuit,) for circuit in of_hit_jobs]
        plan = _move_best_set(routing, case, reach, clock, one_by_one, set())
        plan = plan or _let_move(routing, case, reach, of_hit_jobs)
    if plan is not None or not of_other_jobs:
        return plan

    # Then circuits of the lowest priority, those of the next one as well, and so on to the last.
    # With those of hit jobs only the first `_WITH_OWN` are tried, which bounds the work.
    ranks = np.zeros(len(case.owners)) if case.priorities is None else case.priorities
    for rank in np.unique(ranks[of_other_jobs]):
        movable = [circuit for circuit in of_other_jobs if ranks[circuit] <= rank]
        sets: list[tuple[int, ...]] = [(circuit,) for circuit in movable]
        if of_hit_jobs:
            sets += [(circuit, *of_hit_jobs) for circuit in movable[:_WITH_OWN]]
        plan = _move_best_set(routing, case, reach, clock, sets, set(movable))
        plan = plan or _let_move(routing, case, reach, [*of_hit_jobs, *movable])
        if plan is not None:
            break
    return plan


def _let_move(
    routing: RoutingState,
    case: HitCircuits,
    reach: Reach,
    moving: Sequence[int],
    most: int = _MOST_HANDOVERS,
) -> Recovery | None:
    """Route hit circuits together with those in `moving`, which may keep their routes.

    At most `most` handovers are tried, the nearest first. None if there is no plan, or if so many
    moving circuits would be too much work.
    """
    if len(moving) * len(routing.graph.resource) > _MOST_WORK_OF_A_MOVE:
        return None
    with routing.without(moving):
        return _best_handover(routing, case, reach, tuple(moving), most)


def _move_best_set(
    routing: RoutingState,
    case: HitCircuits,
    reach: Reach,
    clock: Clock,
    sets: Sequence[tuple[int, ...]],
    foreign: set[int],
) -> Recovery | None:
    """Let the circuits of each set move in turn; return the best plan, None without any.

    Circuits in `foreign` are disturbed if they move. The sets that disturb fewest come first: the
    search ends at the first set that cannot have a better plan than the best so far. It also ends
    after a number of sets that bounds the work, and at a limit of `clock`.
    """
    # Each try of a set takes about so much work.
    n_hit = len(case.hit)
    work_of_try = len(routing.graph.resource) * (n_hit + 1) * _NEAREST
    n_tries = min(EFFORT, _MOST_WORK_OF_MOVES // max(work_of_try, 1))
    best = None
    for tried, moving in enumerate(sets[:n_tries]):
        # The first two levels, disturbed and changed circuits, if all of the set move.
        least = len(foreign.intersection(moving)), n_hit + len(moving)
        cannot_be_better = best is not None and least > best.levels[:2]
        if cannot_be_better or clock.exceeded(tried):
            break

        # Time may run out meanwhile: then the best plan so far is the answer.
        try:
            plan = _let_move(routing, case, reach, moving, _NEAREST)
        except TimeUp:
            break
        if plan is not None and (best is None or plan.levels < best.levels):
            best = plan
    return best


def split_rest(routing: RoutingState, case: HitCircuits) -> tuple[list[int], list[int]]:
    """List the circuits that were not hit: those of hit jobs, and those of others."""
    unhit = sorted(set(range(len(routing.paths))) - set(case.hit))
    of_hit_jobs = set(np.flatnonzero(np.isin(case.owners, case.owners[list(case.hit)])).tolist())
    return [k for k in unhit if k in of_hit_jobs], [k for k in unhit if k not in of_hit_jobs]

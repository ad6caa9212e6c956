"""Getting over a failure quickly: which spare takes over, and who has to make room.

First everybody else stays where they are: each way to hand the lost units to spares is routed
through what is free, the nearest first, until no further one can be better. Only if none works
are circuits moved that the failure did not hit, as few as possible and those of hit jobs first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice, permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, Limits
from optmatch.problems.reroute_bound import FAR, distances
from optmatch.solvers.reroutes.board import Board, Found, Path

EFFORT = 400
"""How many sets of circuits that make room are tried."""
_MOST_HANDOVERS = 60
_IN_PAIRS, _IN_TRIPLES = 8, 6
_ROUNDS_ALONE = 24
_ROUNDS_TOGETHER = 10
Handover = tuple[int, ...]
"""The spare of each lost unit, in their order."""


class Case(NamedTuple):
    """What is to be done."""

    hit: tuple[int, ...]
    """Circuits without light, or with an end that is lost."""
    lost: tuple[int, ...]
    spares: tuple[int, ...]
    owners: NDArray[np.int32]

    def foreign(self, circuit: int) -> bool:
        """Tell whether a circuit is of a job of which nothing was hit."""
        return not bool((self.owners[list(self.hit)] == self.owners[circuit]).any())


class Plan(NamedTuple):
    """What will be done."""

    levels: tuple[int, int, int, int, int]
    """Circuits of others disturbed, circuits changed, cells set, worst loss, length."""
    handover: Handover
    changed: tuple[int, ...]
    paths: list[Path]


class Reach:
    """How far it is from unit to unit, in hundredths of a dB: no route is shorter."""

    def __init__(self, board: Board, loss_units: tuple[int, int]) -> None:
        hops: Any = distances(board.fabric).astype(np.int64)
        near = hops != FAR
        cells, fibres = np.where(near, hops, 0), np.zeros_like(hops)
        if board.fabric.n_ports != board.ways.units or board.fabric.graph is None:
            cells, fibres = (cells + 1) * (board.fabric.n_cells > 0), cells
        loss = cells * loss_units[0] + fibres * loss_units[1]
        self.loss: list[list[int]] = np.where(near, loss, FAR).tolist()

    def bound(self, ends: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Return the worst loss and the sum of losses if nothing is in the way."""
        each = [self.loss[a][b] for a, b in ends]
        return max(each, default=0), sum(each)


def repair(
    board: Board, case: Case, reach: Reach, *, effort: int = EFFORT, clock: Clock | None = None
) -> Plan | None:
    """Find a way over a failure.

    Parameters
    ----------
    board
        The state, with all that has failed taken out; it is as before on return.
    case
        Whom the failure hits.
    reach
        Distances, to look at near spares first.
    effort
        How many sets of circuits that might move are tried at most; 0 to move none.
    clock
        Ends the search too.

    Returns
    -------
    Plan or None
        None if none was found; that proves nothing.
    """
    if len(case.lost) > len(case.spares):
        return None
    hit = [board.paths[circuit] for circuit in case.hit]
    board.lift(hit)
    try:
        plan = _best_handover(board, case, reach, ())
        if plan is None and effort:
            plan = _make_room(board, case, reach, effort, clock or Limits().start())
    finally:
        board.put(hit)
    return plan


def new_ends(
    board: Board, case: Case, circuits: Sequence[int]
) -> Iterator[tuple[Handover, list[tuple[int, int]]]]:
    """Yield the ways to hand lost units over, each with the units of circuits from then on."""
    pairs = board.ends[list(circuits)].tolist()
    for handover in islice(permutations(case.spares, len(case.lost)), _MOST_HANDOVERS):
        after = dict(zip(case.lost, handover, strict=True))
        yield handover, [(after.get(a, a), after.get(b, b)) for a, b in pairs]


def _best_handover(board: Board, case: Case, reach: Reach, moving: tuple[int, ...]) -> Plan | None:
    """Try the ways to hand over, nearest first, until no other can be better."""
    circuits = (*case.hit, *moving)
    choices = sorted(
        (reach.bound(ends), handover, ends) for handover, ends in new_ends(board, case, circuits)
    )
    best: Plan | None = None
    for (worst, _), handover, ends in choices:
        if worst >= FAR or (best is not None and best.levels[2:4] <= (0, worst)):
            break
        found = board.route(ends, _ROUNDS_TOGETHER if moving else _ROUNDS_ALONE)
        if found is not None:
            plan = settle(board, case, handover, circuits, found)
            if best is None or plan.levels < best.levels:
                best = plan
    return best


def settle(
    board: Board, case: Case, handover: Handover, circuits: Sequence[int], found: Found
) -> Plan:
    """Make a plan of new routes: leave out what moved in vain, and count.

    Parameters
    ----------
    board, case, handover
        The state, whom the failure hits, and who takes over.
    circuits
        Those that are hit, then those that may have moved.
    found
        Their routes.
    """
    if len(circuits) == len(case.hit):
        return Plan((0, len(circuits), *found.levels), handover, tuple(circuits), found.paths)
    kept = [
        (circuit, path)
        for circuit, path in zip(circuits, found.paths, strict=True)
        if circuit in case.hit or not np.array_equal(path, board.paths[circuit])
    ]
    changed, paths = tuple(circuit for circuit, _ in kept), [path for _, path in kept]
    foreign = sum(circuit not in case.hit and case.foreign(circuit) for circuit in changed)
    return Plan((foreign, len(changed), *board.sum_up(paths)), handover, changed, paths)


def _make_room(board: Board, case: Case, reach: Reach, effort: int, clock: Clock) -> Plan | None:
    """Let other circuits move too: few, and those of hit jobs before those of others."""
    own, others = split_rest(board, case)
    rest = [board.paths[circuit] for circuit in (*own, *others)]
    board.lift(rest)
    wanted = _wanted(board, case)
    board.put(rest)
    if wanted is None:
        return None
    in_the_way = [
        -len(wanted.intersection(board.ways.resource[path].tolist())) for path in board.paths
    ]
    own.sort(key=in_the_way.__getitem__)
    others.sort(key=in_the_way.__getitem__)
    for tried, moving in enumerate(islice(_movable(own, others), effort)):
        if clock.exceeded(tried):
            return None
        lifted = [board.paths[circuit] for circuit in moving]
        board.lift(lifted)
        plan = _best_handover(board, case, reach, moving)
        board.put(lifted)
        if plan is not None:
            return plan
    return None


def _wanted(board: Board, case: Case) -> set[int] | None:
    """Find what hit circuits would use if all others were off; None if one is cut off then too."""
    for _, ends in new_ends(board, case, case.hit):
        ways = [board.route([pair]) for pair in ends]
        paths = [path for found in ways if found is not None for path in found.paths]
        if len(paths) == len(ends):
            return set(board.ways.resource[np.concatenate(paths)].tolist())
    return None


def split_rest(board: Board, case: Case) -> tuple[list[int], list[int]]:
    """List the circuits that were not hit: those of hit jobs, and those of others."""
    rest = sorted(set(range(len(board.paths))) - set(case.hit))
    own = set(np.flatnonzero(np.isin(case.owners, case.owners[list(case.hit)])).tolist())
    return [k for k in rest if k in own], [k for k in rest if k not in own]


def _movable(own: Sequence[int], others: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield sets of circuits that may move, in the order of the objective.

    Each alone; then pairs and triples of those that are most in the way, which stand first; then
    all.
    """
    yield from _of(own)
    if len(own) > 1:
        yield tuple(own)
    yield from combinations(others, 1)
    if own:
        yield from ((k, *own) for k in others[: _IN_PAIRS + _IN_TRIPLES])
    yield from islice(_of(others), len(others), None)
    yield (*own, *others)


def _of(circuits: Sequence[int]) -> Iterator[tuple[int, ...]]:
    yield from combinations(circuits, 1)
    yield from combinations(circuits[:_IN_PAIRS], 2)
    yield from combinations(circuits[:_IN_TRIPLES], 3)

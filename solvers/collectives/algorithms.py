"""The known algorithms of collectives: the chunks that each rank sends in each round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Limits, ignore, uncounted
from optmatch.problems import AllToAll, Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.problems.collectives.steps import (
    list_partners,
    list_rounds as list_steps,
    list_sends,
)
from optmatch.solvers.collectives.rounds import (
    MOST_SENDS,
    Rounds,
    as_rounds,
    of_gathers,
    one_after_another,
    without_nothing,
)

MOST_PIECES = 1024
"""Into so many pieces a buffer is cut at most, to be sent along a line of ranks."""


def list_rounds(problem: Collective, algorithm: str) -> Rounds:
    """List the sends of an algorithm, which must fit the problem."""
    make = ALGORITHMS[algorithm]
    n, operation = problem.n_ranks, problem.operation
    if n == 1:
        return Rounds(np.empty((0, 5), dtype=np.int64), 1)
    if algorithm == "whole-buffers" or (n == 2 and operation == "all-reduce"):
        return _whole_buffers(problem, operation, 1)
    if n == 2 and operation == "broadcast":
        return _bruck(problem, operation, 1)
    asked = "all-gather" if operation in ("all-reduce", "reduce-scatter") else operation
    rounds = of_gathers(operation, lambda sign: make(problem, asked, sign))
    return without_nothing(problem, rounds) if operation == "all-to-all" else rounds


def fits(problem: Collective, algorithm: str) -> bool:
    """Tell whether an algorithm solves a problem with the ports of its ranks."""
    n, operation = problem.n_ranks, problem.operation
    power = n & (n - 1) == 0
    if problem.steps is not None:
        return False
    if algorithm == "ring":
        if operation == "all-to-all" and n * n * (n - 1) // 2 > MOST_SENDS:
            return False
        return not problem.two_way or n <= 2 or problem.lanes >= 2 + n % 2
    if algorithm == "halving-doubling":
        return power
    if algorithm == "bruck":
        return not problem.two_way or n <= 2 or operation == "broadcast"
    if algorithm == "near-sums":  # as fast as bruck, but over circuits that stay
        return not problem.two_way and operation in ("all-reduce", "reduce-scatter", "all-gather")
    if algorithm == "whole-buffers":
        return power and operation == "all-reduce"
    if algorithm == "swing":
        return power and operation in ("all-reduce", "reduce-scatter", "all-gather")
    return operation == "all-to-all" if algorithm == "pairwise" else operation != "broadcast"


def _grow(n: int, partners: Iterable[NDArray[np.int64]]) -> Rounds:
    """Gather: in each round a rank sends all that the receiver does not have yet."""
    has = np.eye(n, dtype=np.bool_)
    parts = []
    for partner in partners:
        source, chunk = np.nonzero(has & ~has[partner])
        parts.append((source, partner[source], chunk))
        has[partner[source], chunk] = True
    return as_rounds(parts, COPY, n)


def _hand_on(n: int, ways: Iterable[tuple[NDArray[np.int64], NDArray[np.bool_]]]) -> Rounds:
    """Move the blocks of an all-to-all: in each round the chosen blocks go to the partners.

    `ways` has for each round ``partner[rank]``, and ``chosen[source, destination]``.
    """
    at = np.repeat(np.arange(n), n).reshape(n, n)
    parts = []
    for partner, chosen in ways:
        source, destination = np.nonzero(chosen)
        here = at[source, destination]
        at[source, destination] = partner[here]
        parts.append((here, partner[here], source * n + destination))
    return as_rounds(parts, COPY, n * n)


def _ring(problem: Collective, operation: str, sign: int) -> Rounds:
    n = problem.n_ranks
    ranks = np.arange(n)
    following = list_partners("ring", n, sign)
    if operation == "all-to-all":
        distance = (ranks - ranks[:, None]) % n
        return _hand_on(n, ((following, distance > turn) for turn in range(n - 1)))
    if operation == "broadcast":
        pieces = _choose_pieces(problem)
        turns = range(n - 2 + pieces)
        first = [(np.arange(max(0, t - pieces + 1), min(t, n - 2) + 1), t) for t in turns]
        return as_rounds(
            [
                ((place + problem.root) % n, (place + 1 + problem.root) % n, turn - place)
                for place, turn in first
            ],
            COPY,
            pieces,
        )
    parts = [(ranks, following, (ranks - sign * turn) % n) for turn in range(n - 1)]
    return as_rounds(parts, COPY, n)


def _choose_pieces(problem: Collective) -> int:
    """Cut a buffer for a line of ranks: more pieces cost more rounds, and each is shorter."""
    each_s = problem.alpha_s + (problem.hop_s or 0.0)
    whole_s = problem.size_bytes / (problem.rate_bytes_per_s * problem.lanes)
    most = math.sqrt((problem.n_ranks - 2) * whole_s / each_s) if each_s else math.inf
    return max(1, round(min(most, MOST_PIECES)))


def _bruck(problem: Collective, operation: str, sign: int) -> Rounds:
    n = problem.n_ranks
    ranks = np.arange(n)
    powers = [1 << k for k in range((n - 1).bit_length())]
    if operation == "all-to-all":
        distance = (ranks - ranks[:, None]) % n
        return _hand_on(n, ((list_partners("ring", n, p), distance & p > 0) for p in powers))
    if operation == "broadcast":
        return _tree(problem)
    return _grow(n, (list_partners("ring", n, sign * power) for power in powers))


def _near_sums(problem: Collective, operation: str, sign: int) -> Rounds:
    """Gather from afar first, while there is little to send; so sums start with the near ones."""
    n = problem.n_ranks
    powers = [1 << k for k in range((n - 1).bit_length())]
    return _grow(n, (list_partners("ring", n, sign * power) for power in powers[::-1]))


def _tree(problem: Collective) -> Rounds:
    """Broadcast whole buffers along a tree."""
    n, root = problem.n_ranks, problem.root
    parts = []
    for each in list_steps("tree", "broadcast", n):
        source, target = (list_sends("tree", n, each).T + root) % n
        parts.append((source, target, 0 * source))
    return as_rounds(parts, COPY, 1)


def _halving_doubling(problem: Collective, operation: str, sign: int) -> Rounds:
    n = problem.n_ranks
    ranks = np.arange(n)
    powers = [each.distance for each in list_steps("halving", "all-gather", n)]
    partners = [list_partners("halving", n, power) for power in powers]
    if operation == "all-to-all":
        differ = ranks ^ ranks[:, None]
        return _hand_on(n, ((q, differ & p > 0) for q, p in zip(partners, powers, strict=True)))
    gather = _grow(n, partners)
    if operation != "broadcast":
        return gather
    parts = []  # scatter first: a rank with a part sends half of it to its partner
    for power in powers[::-1]:
        holds = ranks[(ranks ^ problem.root) % (2 * power) == 0]
        offset = np.arange(power)
        source = np.repeat(holds, power)
        chunk = ((source ^ power) & ~(power - 1)) + np.tile(offset, len(holds))
        parts.append((source, source ^ power, chunk))
    return one_after_another(as_rounds(parts, COPY, n), gather)


def _whole_buffers(problem: Collective, operation: str, sign: int) -> Rounds:
    """Exchange and add up whole buffers with ranks 1, 2, 4, ... away: few rounds, many bytes."""
    ranks = np.arange(problem.n_ranks)
    powers = [1 << k for k in range((problem.n_ranks - 1).bit_length())]
    return as_rounds([(ranks, ranks ^ power, 0 * ranks) for power in powers], REDUCE, 1)


def _swing(problem: Collective, operation: str, sign: int) -> Rounds:
    """Meet partners at distances 1, -1, 3, -5, 11, ...; of sums the near ones first."""
    n = problem.n_ranks
    ranks = np.arange(n)
    distances = [(1 - (-2) ** (k + 1)) // 3 for k in range((n - 1).bit_length())]
    towards = np.where(ranks % 2 == 0, 1, -1)
    return _grow(n, ((ranks + towards * distance) % n for distance in distances[::-1]))


def _pairwise(problem: Collective, operation: str, sign: int) -> Rounds:
    n = problem.n_ranks
    ranks = np.arange(n)
    parts = []
    for partner in list_matchings(problem):
        source = ranks[(partner >= 0) & (partner != ranks)]
        parts.append((source, partner[source], source * n + partner[source]))
    return as_rounds(parts, COPY, n * n)


def list_matchings(problem: Collective) -> list[NDArray[np.int64]]:
    """List matchings in which each rank meets each other one once: shifts, or pairs."""
    n = problem.n_ranks
    ranks = np.arange(n)
    if not problem.two_way:
        return [list_partners("ring", n, shift) for shift in range(1, n)]
    routed = _routed_matchings(problem)
    if routed is not None:
        return routed
    if n & (n - 1) == 0:
        return [ranks ^ other for other in range(1, n)]
    turning = n - 1 + n % 2  # a tournament: one rank stays, or rests, and the others turn
    found = []
    for turn in range(turning):
        partner = (2 * turn - ranks) % turning
        partner[turn] = -1
        if n % 2 == 0:
            partner[n - 1], partner[turn] = turn, n - 1
        found.append(partner)
    return found


def _routed_matchings(problem: Collective) -> list[NDArray[np.int64]] | None:
    """Return matchings of all pairs that a mesh of cells can hold, if there is one."""
    fabric = problem.fabric
    if fabric.graph is None or not fabric.bidirectional or fabric.n_ports != problem.n_ranks:
        return None
    with uncounted():
        from optmatch.solvers.all_to_all.factorise import solve

    everyone, rng = AllToAll(fabric), np.random.default_rng(0)
    schedule = solve(everyone, Limits(iterations=0), rng, ignore).schedule
    return None if schedule is None else list(schedule.matchings.astype(np.int64))


def _direct(problem: Collective, operation: str, sign: int) -> Rounds:
    """Send everything straight to its place, over as many matchings at a time as lanes."""
    n, lanes = problem.n_ranks, problem.lanes
    matchings = list_matchings(problem)
    if sign < 0:
        matchings = matchings[::-1]
    parts, circuits = [], []
    for low in range(0, len(matchings), lanes):
        some = matchings[low : low + lanes]
        circuits.append([some[lane % len(some)] for lane in range(lanes)])
        source = np.concatenate([np.flatnonzero(partner >= 0) for partner in some])
        target = np.concatenate([partner[partner >= 0] for partner in some])
        parts.append(
            (source, target, source * n + target if operation == "all-to-all" else source)
        )
    rounds = as_rounds(parts, COPY, n * n if operation == "all-to-all" else n)
    return rounds._replace(matchings=np.array(circuits))


ALGORITHMS: dict[str, Callable[[Collective, str, int], Rounds]] = {
    "ring": _ring,
    "halving-doubling": _halving_doubling,
    "bruck": _bruck,
    "pairwise": _pairwise,
    "swing": _swing,
    "direct": _direct,
    "near-sums": _near_sums,
    "whole-buffers": _whole_buffers,
}
"""The makers of the rounds, by name; `sign` is the direction in which chunks go round."""

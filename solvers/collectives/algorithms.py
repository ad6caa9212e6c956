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
    """List the sends of a known algorithm, round by round.

    An algorithm is described by its all-gather alone: the same sends in the opposite order, from
    receiver to sender, with additions in place of copies, are its reduce-scatter; and both, one
    after the other, are its all-reduce. An all-to-all and a broadcast have sends of their own.

    Parameters
    ----------
    problem
        The collective, which the algorithm must fit, see `fits`.
    algorithm
        A name of `ALGORITHMS`.

    Returns
    -------
    Rounds
        Rows of round, source, destination, chunk and kind, ascending by round. Chunks without
        bytes of an uneven all-to-all are left out. A single rank has no sends.
    """
    make = ALGORITHMS[algorithm]
    operation = problem.operation
    if problem.n_ranks == 1:
        return Rounds(np.empty((0, 5), dtype=np.int64), 1)

    # Two ranks add up whole buffers in one exchange, where halves would take two; and a line of
    # two ranks would only cut the buffer of a broadcast into pieces that follow one another.
    is_pair = problem.n_ranks == 2
    if algorithm == "whole-buffers" or (is_pair and operation == "all-reduce"):
        return _exchange_whole_buffers(problem, operation, 1)
    if is_pair and operation == "broadcast":
        return _make_tree(problem)

    gathered_operation: str = operation
    if operation in ("all-reduce", "reduce-scatter"):
        gathered_operation = "all-gather"
    rounds = of_gathers(operation, lambda sign: make(problem, gathered_operation, sign))
    if operation == "all-to-all":
        return without_nothing(problem, rounds)
    return rounds


def fits(problem: Collective, algorithm: str) -> bool:
    """Tell whether an algorithm solves a problem with the ports of its ranks.

    Parameters
    ----------
    problem
        The collective, with the number of ranks and of ports, and whether circuits are two-way.
    algorithm
        One of the names of `ALGORITHMS`.
    """
    n, operation = problem.n_ranks, problem.operation
    is_power_of_two = n & (n - 1) == 0
    gathers = ("all-reduce", "reduce-scatter", "all-gather")
    if problem.steps is not None:
        return False
    if algorithm == "ring":
        if operation == "all-to-all" and n * n * (n - 1) // 2 > MOST_SENDS:
            return False
        # A two-way ring takes two lanes in turn, and a third one if it is odd.
        return not problem.two_way or n <= 2 or problem.lanes >= 2 + n % 2
    if algorithm == "halving-doubling":
        return is_power_of_two
    if algorithm == "bruck":
        return not problem.two_way or n <= 2 or operation == "broadcast"
    if algorithm == "near-sums":  # as fast as bruck, but over circuits that stay
        return not problem.two_way and operation in gathers
    if algorithm == "whole-buffers":
        return is_power_of_two and operation == "all-reduce"
    if algorithm == "swing":
        return is_power_of_two and operation in gathers
    return operation == "all-to-all" if algorithm == "pairwise" else operation != "broadcast"


def _gather_over(n: int, partners: Iterable[NDArray[np.int64]]) -> Rounds:
    """Gather: in each round a rank sends all that the receiver does not have yet.

    `partners` has for each round ``partner[rank]``, to whom a rank sends.
    """
    has = np.eye(n, dtype=np.bool_)  # has[rank, chunk]
    parts = []
    for partner in partners:
        source, chunk = np.nonzero(has & ~has[partner])
        parts.append((source, partner[source], chunk))
        has[partner[source], chunk] = True
    return as_rounds(parts, COPY, n)


def _move_blocks(n: int, moves: Iterable[tuple[NDArray[np.int64], NDArray[np.bool_]]]) -> Rounds:
    """Move the blocks of an all-to-all: in each round the chosen blocks go to the partners.

    `moves` has for each round ``partner[rank]``, and ``chosen[source, destination]``.
    """
    rank_of_block = np.repeat(np.arange(n), n).reshape(n, n)
    parts = []
    for partner, chosen in moves:
        source, destination = np.nonzero(chosen)
        rank = rank_of_block[source, destination]
        rank_of_block[source, destination] = partner[rank]
        parts.append((rank, partner[rank], source * n + destination))
    return as_rounds(parts, COPY, n * n)


def _make_ring(problem: Collective, operation: str, sign: int) -> Rounds:
    """Send chunks around a ring; of a broadcast pieces along a line from the root."""
    n = problem.n_ranks
    ranks = np.arange(n)
    successor = list_partners("ring", n, sign)
    if operation == "all-to-all":
        distance = (ranks - ranks[:, None]) % n
        return _move_blocks(n, ((successor, distance > turn) for turn in range(n - 1)))
    if operation == "broadcast":
        pieces = _choose_pieces(problem)
        parts = []
        for turn in range(n - 2 + pieces):
            # The rank at a place of the line sends the piece that left the root so long ago.
            place = np.arange(max(0, turn - pieces + 1), min(turn, n - 2) + 1)
            source = (place + problem.root) % n
            parts.append((source, (source + 1) % n, turn - place))
        return as_rounds(parts, COPY, pieces)
    parts = [(ranks, successor, (ranks - sign * turn) % n) for turn in range(n - 1)]
    return as_rounds(parts, COPY, n)


def _choose_pieces(problem: Collective) -> int:
    """Cut a buffer for a line of ranks: more pieces cost more rounds, and each is shorter.

    n - 2 + p rounds of p pieces last least for p = sqrt((n - 2) whole_s / round_s).
    """
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    whole_s = problem.size_bytes / (problem.rate_bytes_per_s * problem.lanes)
    best = math.sqrt((problem.n_ranks - 2) * whole_s / round_s) if round_s else math.inf
    return max(1, round(min(best, MOST_PIECES)))


def _make_bruck(problem: Collective, operation: str, sign: int) -> Rounds:
    """Send 1, 2, 4, ... places onward; broadcast along a tree."""
    n = problem.n_ranks
    ranks = np.arange(n)
    powers = [1 << k for k in range((n - 1).bit_length())]
    if operation == "all-to-all":
        distance = (ranks - ranks[:, None]) % n
        moves = ((list_partners("ring", n, power), distance & power > 0) for power in powers)
        return _move_blocks(n, moves)
    if operation == "broadcast":
        return _make_tree(problem)
    return _gather_over(n, (list_partners("ring", n, sign * power) for power in powers))


def _make_near_sums(problem: Collective, operation: str, sign: int) -> Rounds:
    """Gather from afar first, while there is little to send; so sums start with the near ones."""
    n = problem.n_ranks
    powers = [1 << k for k in range((n - 1).bit_length())]
    return _gather_over(n, (list_partners("ring", n, sign * power) for power in powers[::-1]))


def _make_tree(problem: Collective) -> Rounds:
    """Broadcast whole buffers along a binomial tree."""
    n, root = problem.n_ranks, problem.root
    parts = []
    for step in list_steps("tree", "broadcast", n):
        source, target = (list_sends("tree", n, step).T + root) % n
        parts.append((source, target, np.zeros_like(source)))
    return as_rounds(parts, COPY, 1)


def _make_halving_doubling(problem: Collective, operation: str, sign: int) -> Rounds:
    """Exchange with partners 1, 2, 4, ... away; a broadcast scatters first, and then gathers."""
    n = problem.n_ranks
    ranks = np.arange(n)
    powers = [step.distance for step in list_steps("halving", "all-gather", n)]
    partners = [list_partners("halving", n, power) for power in powers]
    if operation == "all-to-all":
        difference = ranks ^ ranks[:, None]
        moves = (
            (partner, difference & power > 0)
            for partner, power in zip(partners, powers, strict=True)
        )
        return _move_blocks(n, moves)
    gather = _gather_over(n, partners)
    if operation != "broadcast":
        return gather

    # Scatter: a rank that has a part sends half of it to its partner, farthest partners first.
    parts = []
    for power in powers[::-1]:
        holders = ranks[(ranks ^ problem.root) % (2 * power) == 0]
        source = np.repeat(holders, power)
        partner = source ^ power
        chunk = (partner & ~(power - 1)) + np.tile(np.arange(power), len(holders))
        parts.append((source, partner, chunk))
    return one_after_another(as_rounds(parts, COPY, n), gather)


def _exchange_whole_buffers(problem: Collective, operation: str, sign: int) -> Rounds:
    """Exchange and add up whole buffers with ranks 1, 2, 4, ... away: few rounds, many bytes."""
    ranks = np.arange(problem.n_ranks)
    powers = [1 << k for k in range((problem.n_ranks - 1).bit_length())]
    parts = [(ranks, ranks ^ power, np.zeros_like(ranks)) for power in powers]
    return as_rounds(parts, REDUCE, 1)


def _make_swing(problem: Collective, operation: str, sign: int) -> Rounds:
    """Meet partners at distances 1, -1, 3, -5, 11, ...; of sums the near ones first."""
    n = problem.n_ranks
    ranks = np.arange(n)
    distances = [(1 - (-2) ** (k + 1)) // 3 for k in range((n - 1).bit_length())]
    direction = np.where(ranks % 2 == 0, 1, -1)
    partners = ((ranks + direction * distance) % n for distance in distances[::-1])
    return _gather_over(n, partners)


def _make_pairwise(problem: Collective, operation: str, sign: int) -> Rounds:
    """Send each block straight to its place, one matching after another."""
    n = problem.n_ranks
    ranks = np.arange(n)
    parts = []
    for partner in list_matchings(problem):
        source = ranks[(partner >= 0) & (partner != ranks)]
        parts.append((source, partner[source], source * n + partner[source]))
    return as_rounds(parts, COPY, n * n)


def list_matchings(problem: Collective) -> list[NDArray[np.int64]]:
    """List matchings in which each rank meets each other one once.

    Returns
    -------
    list of int arrays, shape (ranks,)
        ``partner[rank]``, -1 for a rank that rests. One-way circuits: the n - 1 shifts around the
        ring of all ranks. Two-way circuits: pairs.
    """
    n = problem.n_ranks
    ranks = np.arange(n)
    if not problem.two_way:
        return [list_partners("ring", n, shift) for shift in range(1, n)]
    routed = _routed_matchings(problem)
    if routed is not None:
        return routed
    if n & (n - 1) == 0:
        return [ranks ^ other for other in range(1, n)]

    # A round-robin tournament by the circle method: one rank stays, or rests, the others turn.
    n_turning = n - 1 + n % 2
    matchings = []
    for turn in range(n_turning):
        partner = (2 * turn - ranks) % n_turning
        partner[turn] = -1
        if n % 2 == 0:
            partner[n - 1] = turn
            partner[turn] = n - 1
        matchings.append(partner)
    return matchings


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


def _make_direct(problem: Collective, operation: str, sign: int) -> Rounds:
    """Send everything straight to its place, over as many matchings at a time as lanes."""
    n, lanes = problem.n_ranks, problem.lanes
    matchings = list_matchings(problem)
    if sign < 0:
        matchings = matchings[::-1]
    parts = []
    circuits = []
    for first in range(0, len(matchings), lanes):
        together = matchings[first : first + lanes]
        circuits.append([together[lane % len(together)] for lane in range(lanes)])
        source = np.concatenate([np.flatnonzero(partner >= 0) for partner in together])
        target = np.concatenate([partner[partner >= 0] for partner in together])
        chunk = source * n + target if operation == "all-to-all" else source
        parts.append((source, target, chunk))
    rounds = as_rounds(parts, COPY, n * n if operation == "all-to-all" else n)
    return rounds._replace(matchings=np.array(circuits))


ALGORITHMS: dict[str, Callable[[Collective, str, int], Rounds]] = {
    "ring": _make_ring,
    "halving-doubling": _make_halving_doubling,
    "bruck": _make_bruck,
    "pairwise": _make_pairwise,
    "swing": _make_swing,
    "direct": _make_direct,
    "near-sums": _make_near_sums,
    "whole-buffers": _exchange_whole_buffers,
}
"""The makers of rounds, by name.

Each takes the problem; the operation whose sends it makes, an all-gather in place of sums; and the
direction in which chunks go round, 1 onward and -1 backward. The gather that becomes a
reduce-scatter is made with -1: it runs backwards, so its sums go onward as the copies after it do.
Algorithms of pairs are the
same in both directions, and `direct` takes its matchings in the opposite order."""

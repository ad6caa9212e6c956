"""Which rounds of an algorithm get new circuits: the exact dynamic programme over a pool.

The pool has the circuits that are up already, those that each round asks for, and rings that go 1,
2, 4, ... places onward; of very many, only the first few of the rounds. The cost of a round over
each set of circuits is counted once; then the best last change before each round is the best end
of the round before, plus a delay (PCCL; Harvest, restricted to this pool). The choice is exact for
the pool because a delay does not depend on what changes into what.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Collective
from optmatch.problems.collectives.plan import REDUCE
from optmatch.solvers.collectives.plans import Laid, assemble
from optmatch.solvers.collectives.rounds import Rounds, ready_s

_MOST_WORK = 30_000_000  # sends times circuits whose cost is counted: some 6 s


class CircuitChoice(NamedTuple):
    """Which circuits each round has."""

    time_s: float
    pool: NDArray[np.int64]
    """``pool[number, rank]``: circuits to choose from."""
    number: NDArray[np.int64]
    """``number[round]`` of those that it has."""


def choose(problem: Collective, rounds: Rounds) -> CircuitChoice:
    """Choose the circuits of each round from the pool, so that the last one ends first.

    Each rank sends to one other in a round.
    """
    partner, bytes_ = rounds.partners(problem.n_ranks), rounds.bytes_sent(problem)
    adds = np.zeros(len(partner), dtype=np.bool_)
    adds[rounds.sends[rounds.sends[:, 4] == REDUCE, 0]] = True
    pool, there = _make_pool(problem, partner)
    cost = np.array([_costs(problem, circuits, partner, bytes_, adds) for circuits in pool])
    cost = cost.reshape(len(pool), -1)
    begin_s = ready_s(problem, rounds.sends, len(partner))
    free = isinstance(problem.start, str) and problem.start == "free"
    ends = np.where(free | there, 0.0, problem.delay_s)
    came = np.zeros((len(partner), len(pool)), dtype=np.int64)
    for k in range(len(partner)):
        last = int(ends.argmin())
        change = (ends[last] + problem.delay_s < ends) & (k > 0)
        came[k] = np.where(change, last, np.arange(len(pool)))
        ends = np.maximum(np.where(change, ends[last] + problem.delay_s, ends), begin_s[k])
        ends = ends + cost[:, k]
    number = np.zeros(len(partner), dtype=np.int64)
    at = int(ends.argmin())
    for k in range(len(number) - 1, -1, -1):
        number[k] = at
        at = int(came[k, at])
    return CircuitChoice(float(ends.min()), pool, number)


def rewire(problem: Collective, rounds: Rounds, choice: CircuitChoice | None = None) -> Laid:
    """Lay rounds over the circuits that are chosen for them."""
    choice = choice or choose(problem, rounds)
    starts = np.append(True, np.diff(choice.number) != 0)[: len(choice.number)]
    epoch = np.cumsum(starts) - 1
    circuits = np.repeat(choice.pool[choice.number[starts]][:, None], problem.lanes, axis=1)
    follow = choice.pool[choice.number]
    turn, at, target = rounds.sends.T[:3]
    send, hops = np.arange(len(at)), []
    while len(send):  # all sends go one hop further; sends that have arrived are done
        onward = follow[turn, at]
        hops.append(np.column_stack([send, at, onward]))
        left = onward != target
        send, turn, at, target = send[left], turn[left], onward[left], target[left]
    if problem.hop_s is not None:
        far = np.zeros(len(rounds.sends), dtype=np.bool_)
        for rows in hops[1:2]:
            far[rows[:, 0]] = True
        links = np.concatenate([np.empty((0, 3), dtype=np.int64), *hops])
        links = links[far[links[:, 0]]]
        links = links[np.argsort(links[:, 0], kind="stable")]
        return assemble(problem, rounds.sends, rounds.chunk_count, circuits, epoch, links)
    # Without forwarding inside a round, each hop is a round of its own.
    depth = np.zeros(len(epoch), dtype=np.int64)
    for k, rows in enumerate(hops, 1):
        depth[rounds.sends[rows[:, 0], 0]] = k
    first = np.cumsum(depth) - depth
    parts = [np.empty((0, 5), dtype=np.int64)]
    for k, rows in enumerate(hops):
        original = rounds.sends[rows[:, 0]]
        parts.append(np.column_stack([first[original[:, 0]] + k, rows[:, 1:], original[:, 3:]]))
    sends = np.concatenate(parts)
    sends = sends[np.argsort(sends[:, 0], kind="stable")]
    return assemble(problem, sends, rounds.chunk_count, circuits, np.repeat(epoch, depth))


def _make_pool(
    problem: Collective, partner: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """List circuits to choose from, and tell which of them are there at the beginning."""
    n = problem.n_ranks
    candidates = partner.copy()
    if problem.two_way:
        turn, rank = np.nonzero(partner >= 0)
        candidates[turn, partner[turn, rank]] = rank
    elif n > 1:
        shifts = 1 << np.arange((n - 1).bit_length())
        rings = (np.arange(n) + shifts[:, None]) % n
        few = max(1, _MOST_WORK // max(1, int((partner >= 0).sum())))
        candidates = np.vstack([rings, np.unique(candidates, axis=0)[:few]])
    there = np.full(n, -2)
    if not isinstance(problem.start, str) and (problem.start == problem.start[0]).all():
        there = problem.start[0].astype(np.int64)
        candidates = np.vstack([candidates, there])
    pool = np.unique(candidates, axis=0) if len(candidates) else candidates
    return pool, (pool == there).all(axis=1)


def _costs(
    problem: Collective,
    circuits: NDArray[np.int64],
    partner: NDArray[np.int64],
    bytes_: NDArray[np.float64],
    adds: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Return the seconds of each round over the same circuits; infinite where there is no way.

    By round there are the partner of each rank, the bytes for it, and whether any are added up.
    """
    n = problem.n_ranks
    place, first, length = _unroll(circuits)
    turn, rank = np.nonzero(partner >= 0)
    target = partner[turn, rank]
    ahead = place[target] - place[rank]
    closed = length[rank] > 0
    hops = np.where(ahead > 0, ahead, ahead + length[rank])
    lost = (first[rank] != first[target]) | ((ahead < 0) & ~closed)
    count, weight = len(partner), bytes_[turn, rank]
    seconds = np.zeros(count)
    longest = np.zeros(count, dtype=np.int64)
    np.maximum.at(longest, turn, np.where(lost, 0, hops))
    rate = problem.rate_bytes_per_s * problem.lanes
    if problem.hop_s is None:
        # All sends go on by one hop at a time, so that no circuit ever has two of them. A hop
        # takes as long as the largest of those that go so far: the first ones, by falling hops.
        order = np.lexsort((-hops, turn))
        at, far = turn[order], np.where(lost, 0, hops)[order]
        last = np.append(at[1:] != at[:-1], True)[: len(at)]
        fewer = far - np.where(last, 0, np.append(far[1:], 0)[: len(at)])
        ranks = np.unique(weight, return_inverse=True)  # by number, to take maxima round by round
        largest = np.maximum.accumulate(ranks[1][order] + at * len(ranks[0])) - at * len(ranks[0])
        np.add.at(seconds, at, fewer * ranks[0][largest] / rate)
        seconds += problem.alpha_s * longest
        seconds[adds & (longest > 1)] = np.inf
    else:
        loads = np.zeros((count, n + 1))
        at, to = place[rank], place[target]
        np.add.at(loads, (turn, at), weight)
        np.add.at(loads, (turn, to), -weight)
        around = ahead < 0
        end = first[rank] + length[rank]
        np.add.at(loads, (turn[around], end[around]), -weight[around])
        np.add.at(loads, (turn[around], first[rank][around]), weight[around])
        busiest = np.cumsum(loads, axis=1).max(axis=1)
        seconds = problem.alpha_s + problem.hop_s * longest + busiest / rate
    seconds[turn[lost]] = np.inf
    return seconds


def _unroll(
    circuits: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Lay rings and lines of circuits one after another.

    Returns by rank: its place, the first place of its ring or line, and how long the ring is, 0
    for lines.
    """
    n = len(circuits)
    place, first, length = np.full(n, -1), np.zeros(n, np.int64), np.zeros(n, np.int64)
    following = circuits.tolist()
    entered = {rank for rank in following if rank >= 0}
    free = 0
    for start in sorted(range(n), key=lambda rank: rank in entered):  # lines from their ends
        if place[start] >= 0:
            continue
        begin, at = free, start
        members = []
        while at >= 0 and place[at] < 0:
            place[at] = free
            free += 1
            members.append(at)
            at = following[at]
        first[members] = begin
        length[members] = free - begin if at == start else 0
    return place, first, length

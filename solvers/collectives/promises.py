"""What methods promise: the seconds that their plans take at least, and the work of making them.

A promise is never more than the plan takes, so that a plan whose promise is no better than what is
known need not be made. For known algorithms rounds, changes of circuits and bytes are counted;
where they are not known, as with searches, the bound of the problem is the promise.

A *gather* is an all-gather or a collective made of it; a *block* is an n-th of the buffer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from optmatch.problems import Collective
from optmatch.solvers.collectives import passing
from optmatch.solvers.collectives.algorithms import (
    GATHERS,
    MOST_ROUTED_RANKS,
    choose_line_pieces,
    group_of_halves,
)
from optmatch.solvers.collectives.gathers import choose_radix_rounds
from optmatch.solvers.collectives.rounds import SENDS_PER_S, ranks_to_store, seconds_of

LIGHT_TORUS = 16
"""An all-reduce over a torus is tried if there is time for a plan with one chunk for so many
ranks. Between 1,024 ranks it takes 2 % longer for 1 GB than with a chunk for each rank, and has a
sixteenth of the sends; with 8 it would be 0.5 % and an eighth."""
BROADCAST_PIECES = 64
"""Into how many pieces broadcasts are cut at most, but for very large ones."""


class Promise(NamedTuple):
    """The time and work of a plan, as far as they are known before it is made."""

    seconds: float
    """The plan takes no less, in seconds of the collective."""
    effort_s: float
    """About how many seconds of CPU it takes to make the plan and to check it."""
    is_formula: bool = True
    """Whether the plan takes just so long if nothing is late; otherwise only a bound is known."""


class RoundCount(NamedTuple):
    """The rounds of a known algorithm; all ranks do the same.

    Example: an all-reduce of 8 ranks by halving and doubling has 3 rounds that scatter sums and 3
    that gather them, 4 changes of circuits, as the two rounds in the middle have the same, 14
    eighths of the buffer from each rank, and 112 sends.
    """

    n_rounds: int
    n_changes: int
    """Changes of circuits between rounds."""
    sent_bytes: float
    """What a rank sends over all its lanes in all rounds, on average of ranks at least."""
    n_sends: float
    """The sends of a plan; to lay them out takes most of the time of making it."""


def promise(problem: Collective, name: str, bound_s: float) -> Promise:
    """Return, before a plan is made, a time that it will not beat, and the work of making it.

    `name` is the method, and `bound_s` the lower bound of the problem, which no plan beats.
    """
    # Fewer than three ranks, steps that are given, and islands have plans of their own.
    n = problem.n_ranks
    if n < 3 or problem.steps is not None or problem.island > 1:
        return Promise(bound_s, 0.0, is_formula=False)

    # No torus is faster than the one that is chosen without a limit. If there is no time for its
    # sends, the method takes one of fewer chunks; the effort is that of few.
    if name == "one-pass":
        seconds = passing.choose(problem).seconds
        lightest = passing.choose(problem, most_chunks=max(1, n // LIGHT_TORUS))
        effort_s = lightest.count_sends(n) / SENDS_PER_S
        return Promise(max(bound_s, seconds * (1 - 1e-9)), effort_s)

    # Searches that begin with large circulants make them at once, as they store the blocks of one
    # rank; over one port no formula is faster than these.
    counted = _count_rounds(problem, name)
    if counted is None:
        begins_at_once = _stores_blocks(problem, name)
        return Promise(bound_s, _search_s(problem, name), is_formula=begins_at_once)

    # Rounds of an uneven all-to-all may have no bytes at all, so that bytes alone count there.
    # Seconds are lowered by a billionth, since plans add them up in another order.
    is_even = problem.demand_bytes is None
    seconds = problem.sending_s(counted.sent_bytes)
    if is_even:
        circuit_bytes = counted.sent_bytes / problem.lanes
        seconds = seconds_of(problem, counted.n_rounds, circuit_bytes, n_changes=counted.n_changes)
    effort_s = counted.n_sends / SENDS_PER_S
    return Promise(max(bound_s, seconds * (1 - 1e-9)), effort_s, is_formula=is_even)


def _count_rounds(problem: Collective, name: str) -> RoundCount | None:
    """Count the rounds of the algorithm `name`; None if they are not known beforehand.

    Gathers move n - 1 blocks from each rank in all, by whichever algorithm. In an all-to-all a
    block is sent once for each hop on its way.
    """
    n = problem.n_ranks
    size_bytes = problem.size_bytes
    n_bits = (n - 1).bit_length()
    if problem.operation == "broadcast" and name == "ring":
        # Two-way lanes are shared by both neighbours of a rank on the line. If their number is
        # odd, some neighbours have one circuit more; half of the lanes is the average.
        pieces = choose_line_pieces(problem)
        n_rounds = n - 2 + pieces
        sent_bytes = n_rounds * size_bytes / pieces
        if problem.two_way:
            sent_bytes *= 2
        return RoundCount(n_rounds, 0, sent_bytes, n * pieces)
    if name == "whole-buffers" or (problem.operation == "broadcast" and name == "bruck"):
        # If n is no power of two some ranks send to others before a sum, and get it after that.
        # Three groups of a power of two send halves in one round.
        n_rounds = n_bits
        if group_of_halves(problem):
            sent_bytes = (n_rounds - 0.5) * size_bytes
            return RoundCount(n_rounds, n_rounds - 1, sent_bytes, 2 * n_rounds * n)
        if name == "whole-buffers" and n != 1 << n_bits:
            n_rounds += 1
        return RoundCount(n_rounds, n_rounds - 1, n_rounds * size_bytes, n_rounds * n)

    # What is left are gathers and all-to-alls: for how many rounds each of their configurations is
    # held. With 8 ranks of one port `ring` has (7,), `pairwise` and `direct` have seven times 1,
    # and `bruck` has (1, 1, 1).
    held_of: dict[str, tuple[int, ...]] = {"ring": (n - 1,), "pairwise": (1,) * (n - 1)}
    held_of["direct"] = (1,) * -(-(n - 1) // problem.lanes)
    held_of |= dict.fromkeys(("halving-doubling", "swing", "bruck", "near-sums"), (1,) * n_bits)
    if name == "mixed-radix":
        held_of[name] = choose_radix_rounds(problem)
    if problem.operation == "broadcast" or name not in held_of:
        return None
    n_rounds = sum(held_of[name])
    n_changes = len(held_of[name]) - 1
    n_direct_blocks = n_rounds * problem.lanes  # of `direct`, which sends one over each lane

    # An all-reduce is two gathers. Few blocks are listed where those of one rank stand for all.
    if problem.operation in GATHERS:
        phases = problem.n_gathers
        n_sends = phases * n * (n - 1)
        if name == "mixed-radix" and ranks_to_store(n * n):
            n_sends = phases * n
        n_blocks = n - 1
        if name == "direct":
            n_blocks = n_direct_blocks
        sent_bytes = phases * n_blocks * size_bytes / n
        return RoundCount(phases * n_rounds, phases * n_changes, sent_bytes, n_sends)

    # All circuits together carry the bytes of each block as often as it has hops. Example: around
    # a ring of 8 ranks a block for the rank 5 places onward takes 5 hops; by Bruck's algorithm,
    # which sends it 1 place and then 4, it takes 2.
    is_even = problem.demand_bytes is None
    ranks = np.arange(n)
    source = ranks[:1] if is_even else ranks
    distance = (ranks - source[:, None]) % n
    hops = {
        "ring": distance,
        "bruck": np.bitwise_count(distance),
        "halving-doubling": np.bitwise_count(ranks ^ source[:, None]),
    }.get(name, distance > 0)
    n_hops = int(hops.sum(dtype=np.int64)) * n // len(source)
    sent_bytes = n_hops * size_bytes / n / n
    if not is_even:
        sent_bytes = float((problem.demand * hops).sum()) / n
    elif name == "direct":
        sent_bytes = n_direct_blocks * size_bytes / n
    return RoundCount(n_rounds, n_changes, sent_bytes, n_hops)


def _stores_blocks(problem: Collective, name: str) -> bool:
    """Tell whether a search begins with a circulant that stores the blocks of one rank alone."""
    n = problem.n_ranks
    if name == "circulant":  # an all-to-all on shifts 1, 2, 4, ...
        return bool(ranks_to_store(n * n * (n - 1).bit_length() // 2))
    return name == "topologies" and problem.demand_bytes is None and bool(ranks_to_store(n * n))


def _search_s(problem: Collective, name: str) -> float:
    """Estimate how many seconds of CPU a search takes until it has its first plan."""
    n = problem.n_ranks
    blocks = n * n * problem.n_gathers
    if problem.operation == "broadcast":
        # Halving and doubling cuts the buffer into a chunk for each rank, which reaches all.
        blocks = n * (n if name == "halving-doubling" else BROADCAST_PIECES)
    if _stores_blocks(problem, name):
        blocks = n
    hops = math.log2(n) if problem.operation == "all-to-all" else 1.0
    # These make plans of several algorithms or operations, of which they take the best.
    several_tries = {"composed": 6.0, "rewire": 12.0, "overlap": 12.0}.get(name, 1.0)
    if name == "knodel" and n <= MOST_ROUTED_RANKS:
        several_tries = 40.0
    return blocks * hops * several_tries / SENDS_PER_S

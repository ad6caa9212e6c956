"""What known algorithms promise: seconds by a formula, and how many sends laying them out takes.

A promise is never more than the plan takes, so that a plan whose promise is no better than what is
known need not be made. Where there is no formula, the bound of the problem is the promise.

Words that are used here:

- a *promise* is the pair of a lower bound of the time of a plan and the CPU time to make it;
- a *block* is an n-th of the buffer: what each of n ranks contributes to an all-gather, gets from
  a reduce-scatter, or sends to one other rank in an even all-to-all;
- a *gather* is an all-gather or a collective made of it. A reduce-scatter is an all-gather that
  runs backwards, and an all-reduce is a reduce-scatter and then an all-gather;
- a *send* is one chunk that goes from one rank to another in one round.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from optmatch.problems import Collective
from optmatch.solvers.collectives import passing
from optmatch.solvers.collectives.algorithms import choose_line_pieces
from optmatch.solvers.collectives.circulant import split_rounds
from optmatch.solvers.collectives.rounds import SENDS_PER_S, ranks_to_store

LIGHT_TORUS = 16
"""An all-reduce over a torus is tried if there is time for a plan with one chunk for so many
ranks. Between 1,024 ranks it takes 2 % longer for 1 GB than with a chunk for each rank, and has a
sixteenth of the sends; with 8 it would be 0.5 % and an eighth."""
BROADCAST_PIECES = 64
"""Into how many pieces broadcasts are cut at most, but for very large ones."""
GATHERS = ("all-reduce", "reduce-scatter", "all-gather")
"""The collectives that are made of all-gathers, forwards or backwards."""


class Promise(NamedTuple):
    """The time and work of a plan, as far as they are known before it is made."""

    seconds: float
    """The plan takes no less, in seconds of the collective."""
    effort_s: float
    """About how many seconds of CPU it takes to make the plan and to check it."""
    is_formula: bool = True
    """Whether the plan takes just so long if nothing is late; otherwise only a bound is known."""


class _Round(NamedTuple):
    """Equal rounds of an algorithm, one after another.

    Example: a ring all-gather of 8 ranks is ``_Round(7, 1, new_circuits=False)``: seven rounds, in
    each of which a rank sends one block over circuits that stay.
    """

    times: int
    """How many equal rounds there are."""
    blocks: float
    """How many blocks each rank sends in each of these rounds, over all lanes together; a block is
    an n-th of the buffer. A fraction where the lanes of a round are an average."""
    new_circuits: bool = True
    """Whether each of these rounds needs other circuits than the round before it. False for rounds
    of a ring, all of which use the same circuits."""


def promise(problem: Collective, name: str, bound_s: float) -> Promise:
    """Return, before a plan is made, a time that it will not beat, and the work of making it.

    Methods whose plan cannot be better than one that is known need not be called then. There are
    two cases:

    - the rounds of the method are known beforehand: a formula gives the time;
    - they are not, as with a search: the time is the lower bound of the problem, and the work is a
      guess.
    """
    n = problem.n_ranks

    # Fewer than three ranks, steps that are given, and islands have plans of their own, to which
    # no formula applies.
    if n < 3 or problem.steps is not None or problem.island > 1:
        return Promise(bound_s, 0.0, is_formula=False)

    # An all-reduce over a torus of ranks (a grid that is closed to rings). No torus is faster than
    # the one that is chosen without a limit. If there is no time for its sends, the method takes
    # one of fewer chunks; the effort is that of few.
    if name == "one-pass":
        seconds = passing.choose(problem).seconds
        lightest = passing.choose(problem, most_chunks=max(1, n // LIGHT_TORUS))
        effort_s = _sends_s(lightest.count_sends(n))
        return Promise(max(bound_s, seconds * (1 - 1e-9)), effort_s)
    # Gathers in the fewest rounds; each of n ranks sends about n blocks in a gather.
    if name == "mixed-radix":
        n_listed = n if ranks_to_store(n * n) else n * n
        return Promise(_mixed_radix_s(problem), _sends_s(_phases(problem) * n_listed))
    # Over one port no other formula is faster than the shifts with which this search begins; large
    # ones are made at once, as they store the blocks of one rank.
    if name == "circulant" and problem.lanes == 1 and _stores_exchanges(n):
        return Promise(bound_s, _search_s(problem, name))
    if problem.operation == "broadcast" and name in ("ring", "bruck"):
        return _promise_broadcast(problem, name, bound_s)

    # For all other methods the rounds are listed: how many equal ones (`times`), and how many
    # blocks, n-ths of the buffer, each rank sends in one of them. In `direct` a rank sends one
    # block over each of its ports (`lanes`) in a round, until it has served n - 1 others. An
    # all-reduce does that twice (`_phases`), other collectives once. None: rounds are not known.
    if name == "direct" and problem.operation != "broadcast":
        n_rounds = -(-(n - 1) // problem.lanes)
        rounds: list[_Round] | None = [_Round(_phases(problem) * n_rounds, problem.lanes)]
    else:
        rounds = _list_rounds(problem, name)
    if rounds is None:
        return Promise(bound_s, _search_s(problem, name), is_formula=False)

    # Each block is a send of its own, but for plans that send whole buffers.
    n_sends = sum(each.times * each.blocks for each in rounds) * n
    if name == "whole-buffers":
        n_sends = sum(each.times for each in rounds) * n

    # The formula counts equal blocks, so it does not hold for given amounts between pairs of ranks
    # (`demand_bytes`). Seconds are lowered by a billionth, since plans add them up in another
    # order.
    is_even = problem.demand_bytes is None
    seconds = _time(problem, rounds) if is_even else _least_forwarding_s(problem, name)
    return Promise(max(bound_s, seconds * (1 - 1e-9)), _sends_s(n_sends), is_formula=is_even)


def _least_forwarding_s(problem: Collective, name: str) -> float:
    """Return a lower bound of an uneven all-to-all whose blocks go over several ranks.

    Each hop of a byte takes the time of a circuit. All circuits together have to carry the sum
    over all blocks of bytes times hops, and they carry at most ranks times ports times the rate.

    Example: around a ring of 8 ranks, a block for the rank 5 places onward takes 5 hops. By
    Bruck's algorithm, which sends it 1 place and then 4, it takes 2.
    """
    n = problem.n_ranks
    ranks = np.arange(n)
    distance = (ranks - ranks[:, None]) % n  # [source, destination], in places onward
    if name == "ring":
        hops = distance
    elif name == "bruck":
        hops = np.bitwise_count(distance)
    elif name == "halving-doubling":
        hops = np.bitwise_count(ranks ^ ranks[:, None])
    else:
        hops = (distance > 0).astype(np.int64)
    moved_bytes = float((problem.demand * hops).sum())
    return moved_bytes / (n * problem.lanes * problem.rate_bytes_per_s)


def _promise_broadcast(problem: Collective, name: str, bound_s: float) -> Promise:
    """Return the promise of a broadcast in pieces along a line (ring) or along a tree (bruck).

    Along a line of n ranks p pieces take n - 2 + p rounds, in a pipeline. Along a binomial tree
    the whole buffer goes in each of ceil(log2 n) rounds, with other circuits in each of them.
    """
    n = problem.n_ranks
    round_s = problem.round_s
    whole_s = problem.size_bytes / problem.rate_bytes_per_s
    if name == "bruck":
        n_rounds = (n - 1).bit_length()
        seconds = n_rounds * (round_s + whole_s / problem.lanes)
        seconds += (n_rounds - 1) * problem.delay_s
        n_sends = n
    else:
        # Two-way lanes are shared by both neighbours of a rank. If their number is odd, some
        # neighbours have one circuit more than others; with the average it is still a lower bound.
        pieces = choose_line_pieces(problem)
        n_circuits = problem.lanes / 2 if problem.two_way else problem.lanes
        seconds = (n - 2 + pieces) * (round_s + whole_s / pieces / n_circuits)
        n_sends = n * pieces
    seconds = max(bound_s, seconds * (1 - 1e-9))
    return Promise(seconds, _sends_s(n_sends))


def _sends_s(sends: float) -> float:
    """Return about how many seconds of CPU it takes to lay out and to check so many sends."""
    return sends / SENDS_PER_S


def _stores_exchanges(n: int) -> bool:
    """Tell whether an all-to-all on shifts 1, 2, 4, ... stores the blocks of one rank alone."""
    return bool(ranks_to_store(n * n * (n - 1).bit_length() // 2))


def _search_s(problem: Collective, name: str) -> float:
    """Estimate how many seconds of CPU a search takes until it has its first plan."""
    n = problem.n_ranks
    blocks = n * n * _phases(problem)
    if problem.operation == "broadcast":
        # Halving and doubling cuts the buffer into a chunk for each rank, which reaches all.
        blocks = n * (n if name == "halving-doubling" else BROADCAST_PIECES)
    if name == "circulant" and _stores_exchanges(n):
        blocks = n
    hops = math.log2(n) if problem.operation == "all-to-all" else 1.0
    several_tries = {"composed": 6.0, "rewire": 12.0, "overlap": 12.0}.get(name, 1.0)
    return _sends_s(blocks * hops * several_tries)


def _phases(problem: Collective) -> int:
    """Return of how many gathers an operation is made: an all-reduce of two, others of one."""
    return 2 if problem.operation == "all-reduce" else 1


def _mixed_radix_s(problem: Collective) -> float:
    """Return the time of gathers in the fewest rounds that any number of configurations allows."""
    n = problem.n_ranks
    phases = _phases(problem)
    round_s = problem.round_s
    rounds_s = min(
        phases * (len(held) - 1) * problem.delay_s + phases * round_s * sum(held)
        for held in (split_rounds(n, k) for k in range(1, (n - 1).bit_length() + 1))
    )
    block_bytes = problem.size_bytes / n
    moved = phases * (n - 1) * block_bytes / (problem.rate_bytes_per_s * problem.lanes)
    return (rounds_s + moved) * (1 - 1e-9)


def _time(problem: Collective, rounds: list[_Round]) -> float:
    """Return the seconds of all rounds; the circuits of the first one are there.

    Example: an all-reduce of 8 ranks by halving and doubling has 3 rounds that scatter sums, with
    partners at a distance of 4, 2 and 1, and 3 that gather them, at 1, 2 and 4. The circuits of
    the first round are there, and the two rounds in the middle have the same partners: 4 rounds
    begin with a change.
    """
    round_s = problem.round_s
    block_s = problem.size_bytes / problem.n_ranks / problem.rate_bytes_per_s / problem.lanes

    # The first round changes nothing. Nor does the first round of the all-gather after its mirror
    # image: it has the circuits of the round before. An all-reduce that sends whole buffers (n
    # blocks) is no gather, and has no mirror image.
    changes = sum(each.times for each in rounds if each.new_circuits)
    has_mirror_image = problem.operation == "all-reduce" and rounds[0].blocks < problem.n_ranks
    changes = max(0, changes - (2 if has_mirror_image else 1))
    seconds = sum(each.times * (round_s + each.blocks * block_s) for each in rounds)
    return seconds + changes * problem.delay_s


def _list_rounds(problem: Collective, name: str) -> list[_Round] | None:
    """List the rounds of an algorithm, equal ones together.

    Example: an all-to-all of 4 ranks by Bruck's algorithm has two rounds, of 2 blocks each: in
    round b each rank sends on the blocks whose distance has bit b.

    The result is None if the rounds are not known beforehand, as those of searches and of
    broadcasts.
    """
    n = problem.n_ranks
    operation = problem.operation
    if name == "whole-buffers":
        # If n is no power of two some ranks send to others before, and get the sum after that.
        n_more = 0 if n & (n - 1) == 0 else 2
        return [_Round(n.bit_length() - 1 + n_more, n)]
    if operation in GATHERS:
        return _phases(problem) * _list_gather_rounds(n, name) or None
    if operation == "broadcast":
        return None
    bits = range((n - 1).bit_length())
    if name == "ring":
        return [_Round(1, n - 1 - turn, new_circuits=False) for turn in range(n - 1)]
    if name == "halving-doubling":
        return [_Round(len(bits), n / 2)]
    if name == "bruck":
        # Round b carries the blocks whose distance has bit b.
        counts = [sum(offset >> bit & 1 for offset in range(n)) for bit in bits]
        return [_Round(1, count) for count in counts]
    if name == "pairwise":
        return [_Round(n - 1, 1)]
    return None


def _list_gather_rounds(n: int, name: str) -> list[_Round]:
    """List the rounds of an all-gather of n ranks by a known algorithm, equal ones together."""
    bits = range((n - 1).bit_length())
    if name == "ring":
        return [_Round(n - 1, 1, new_circuits=False)]
    if name in ("halving-doubling", "swing"):
        return [_Round(1, 1 << bit) for bit in bits]
    if name in ("bruck", "near-sums"):
        return [_Round(1, min(1 << bit, n - (1 << bit))) for bit in bits]
    return []

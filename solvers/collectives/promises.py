"""What known algorithms promise: seconds by a formula, and how many sends laying them out takes.

A promise is never more than the plan takes, so that a plan whose promise is no better than what is
known need not be made. Where there is no formula, the bound of the problem is the promise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from optmatch.problems import Collective
from optmatch.solvers.collectives import passing
from optmatch.solvers.collectives.algorithms import choose_line_pieces
from optmatch.solvers.collectives.circulant import split_rounds

SENDS_PER_S = 1_500_000
"""Sends that are made and laid out in a second. Measured: two million, of all-reduces of 1,024
ranks on one core; with half of this number methods are left out that would be done in time."""
GATHERS = ("all-reduce", "reduce-scatter", "all-gather")


class Promise(NamedTuple):
    """What is known of the plan of a method before it is made."""

    seconds: float
    """The plan takes no less."""
    effort_s: float
    """About how long it takes to make it, of CPU."""
    is_formula: bool = True
    """Whether the plan takes just so long if nothing is late; otherwise only a bound is known."""


class _Round(NamedTuple):
    """Equal rounds of an algorithm, one after another."""

    times: int
    """How many rounds."""
    blocks: float
    """Blocks that each rank sends in each of them; a block is a part of n of a buffer."""
    new_circuits: bool = True
    """Whether each of them needs circuits of its own."""


def promise(problem: Collective, name: str) -> Promise:
    """Return the promise of a method for a problem that it takes.

    Parameters
    ----------
    problem
        The collective.
    name
        The name of a method.

    Returns
    -------
    Promise
        By a formula where the rounds of the method are known beforehand; else the lower bound of
        the problem, and a guess of how long the search takes.
    """
    n = problem.n_ranks
    bound_s = problem.lower_bound()

    # Pairs, given steps and islands have plans of their own, to which no formula applies.
    if n < 3 or problem.steps is not None or problem.island > 1:
        return Promise(bound_s, 0.0, is_formula=False)
    if name == "one-pass":
        sides = passing.choose(problem)
        chunks = math.prod(sides.scattered) * sides.windowed[1]
        sends = n * (2 * chunks + sides.windowed[0] + sum(sides.passed))
        return Promise(max(bound_s, sides.seconds * (1 - 1e-9)), _sends_s(sends))
    if name == "mixed-radix":
        return Promise(_mixed_radix_s(problem), _sends_s(_phases(problem) * n * n))
    if problem.operation == "broadcast" and name in ("ring", "bruck"):
        return _promise_broadcast(problem, name)
    if name == "direct" and problem.operation != "broadcast":
        n_rounds = -(-(n - 1) // problem.lanes)
        rounds: list[_Round] | None = [_Round(_phases(problem) * n_rounds, problem.lanes)]
    else:
        rounds = _list_rounds(problem, name)
    if rounds is None:
        return Promise(bound_s, _search_s(problem, name), is_formula=False)
    n_sends = sum(each.times * each.blocks for each in rounds) * n
    even = problem.demand_bytes is None
    seconds = _time(problem, rounds) if even else bound_s
    return Promise(max(bound_s, seconds * (1 - 1e-9)), _sends_s(n_sends))


def _promise_broadcast(problem: Collective, name: str) -> Promise:
    """Return the promise of a broadcast in pieces along a line (ring) or along a tree (bruck)."""
    n = problem.n_ranks
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    whole_s = problem.size_bytes / problem.rate_bytes_per_s
    if name == "bruck":
        n_rounds = (n - 1).bit_length()
        seconds = n_rounds * (round_s + whole_s / problem.lanes)
        seconds += (n_rounds - 1) * problem.delay_s
        n_sends = n
    else:
        # Of an odd number of two-way lanes some neighbours have one circuit more than others.
        pieces = choose_line_pieces(problem)
        n_circuits = problem.lanes / 2 if problem.two_way else problem.lanes
        seconds = (n - 2 + pieces) * (round_s + whole_s / pieces / n_circuits)
        n_sends = n * pieces
    seconds = max(problem.lower_bound(), seconds * (1 - 1e-9))
    return Promise(seconds, _sends_s(n_sends))


def _sends_s(sends: float) -> float:
    """Return about how many seconds of CPU it takes to lay out so many sends."""
    return sends / SENDS_PER_S


def _search_s(problem: Collective, name: str) -> float:
    """Return about how long a search takes until it has its first plan."""
    n = problem.n_ranks
    blocks = n * n * (1 if problem.operation == "broadcast" else _phases(problem))
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
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    rounds_s = min(
        phases * (len(held) - 1) * problem.delay_s + phases * round_s * sum(held)
        for held in (split_rounds(n, k) for k in range(1, (n - 1).bit_length() + 1))
    )
    block_bytes = problem.size_bytes / n
    moved = phases * (n - 1) * block_bytes / (problem.rate_bytes_per_s * problem.lanes)
    return (rounds_s + moved) * (1 - 1e-9)


def _time(problem: Collective, rounds: list[_Round]) -> float:
    """Return the seconds of rounds whose first circuits are there.

    Each configuration is the same in all lanes of a rank, which share its bytes evenly.

    Parameters
    ----------
    problem
        The collective, with the costs of rounds, bytes and changes.
    rounds
        The rounds. Those of a gather and of its mirror image, which are an all-reduce together,
        are the same twice; they have the same circuits in the middle, where nothing changes.
    """
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    block_s = problem.size_bytes / problem.n_ranks / problem.rate_bytes_per_s / problem.lanes
    changes = sum(each.times for each in rounds if each.new_circuits)
    has_mirror_image = problem.operation == "all-reduce" and rounds[0].blocks < problem.n_ranks
    changes = max(0, changes - (2 if has_mirror_image else 1))
    seconds = sum(each.times * (round_s + each.blocks * block_s) for each in rounds)
    return seconds + changes * problem.delay_s


def _list_rounds(problem: Collective, name: str) -> list[_Round] | None:
    """List the rounds of an algorithm, equal ones together.

    Returns
    -------
    list of _Round, or None
        None if the rounds are not known beforehand, as of searches and of broadcasts.
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
    """List the rounds of an all-gather of n ranks by a known algorithm, equal ones together.

    Parameters
    ----------
    n
        The number of ranks, each with one block.
    name
        The algorithm. Around a ring each rank sends one block in each of n - 1 rounds; others
        send 1, 2, 4, ... blocks, over other circuits in each round.

    Returns
    -------
    list of _Round
        How many rounds, the blocks that a rank sends in each of them, and whether circuits change;
        empty if the algorithm is not known.
    """
    bits = range((n - 1).bit_length())
    if name == "ring":
        return [_Round(n - 1, 1, new_circuits=False)]
    if name in ("halving-doubling", "swing"):
        return [_Round(1, 1 << bit) for bit in bits]
    if name in ("bruck", "near-sums"):
        return [_Round(1, min(1 << bit, n - (1 << bit))) for bit in bits]
    return []

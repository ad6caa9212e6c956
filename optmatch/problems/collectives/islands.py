"""Lower bounds of collectives between islands: what crosses a cut, rounds, and what is left.

An island of g ranks has g ports on rails. What comes over them in the last rounds has to reach the
other members of the island after that, over its own links: the *rest*. With x_t bytes a port in
the round t of R, and g copies of each byte wanted in an island, the bytes that come in round k or
later cannot be more than the links carry after k. So a plan of few rounds has a long rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, repeat
from math import inf
from typing import Any, NamedTuple

from optmatch.problems.collectives.bounds import BoundTerms, distances
from optmatch.problems.collectives.sums import MOST_PROGRAMMED, bound_sums_s

MOST_ROUNDS = 64
"""Rounds over rails up to which the rest is counted."""


class _Reach(NamedTuple):
    """How far the data of one rank can have come at most."""

    whole: int
    """Islands all of whose ranks know."""
    begun: int
    """Islands of which one rank knows."""
    unsent: int
    """Ranks that have not sent over their present circuits."""


def extra_rounds(islands: int, members: int, static: bool) -> Iterator[int]:
    """Yield, for 1, 2, ... rounds over rails, how many others are needed to reach all; or -1.

    In a round over rails members of islands are told, too. With static circuits a rank sends once.
    """
    known = {0: {_Reach(0, 1, 1)}}

    def told(at: _Reach, onward: int) -> _Reach:
        unsent = at.unsent + (members - 1) * at.begun
        return _Reach(min(at.whole + at.begun, islands), onward, unsent)

    while True:
        following: dict[int, set[_Reach]] = {}
        for extra, states in known.items():
            for at in states:
                for waits, now in ((0, at), (1, told(at, 0))):
                    sent = now.unsent if static else members * now.whole + now.begun
                    came = told(now, min(sent, members * islands))
                    following.setdefault(extra + waits, set()).add(came)
        known = following
        done = [
            extra + (at.whole < islands)
            for extra, states in known.items()
            for at in states
            if at.whole + at.begun >= islands
        ]
        yield min(done, default=-1)
        if 0 in done:
            yield from repeat(0)


def bound_islands(problem: Any) -> BoundTerms:
    """Return the best lower bound of a `Collective` between islands."""
    members = problem.island
    islands, operation = problem.n_ranks // members, problem.operation
    block, link_rate = problem.size_bytes / problem.n_ranks, problem.island_rate_bytes_per_s
    moved = (1 + (operation == "all-reduce")) * (problem.n_ranks - 1) * block
    if islands == 1:
        return BoundTerms(problem.island_alpha_s + moved / link_rate, "cut")
    together = BoundTerms(moved / (link_rate + problem.rate_bytes_per_s), "cut", 1)
    dark = isinstance(problem.start, str) and problem.start == "dark"
    terms: list[BoundTerms] = []
    for k, hops in enumerate(islice(distances(islands, members), islands), 1):
        fixed_s = (k - 1 + dark) * problem.delay_s
        if terms and fixed_s >= min(terms).seconds:
            break
        work = float(hops.sum()) if operation == "all-to-all" and len(hops) == islands - 1 else 0.0
        terms.append(BoundTerms(fixed_s + _bound_rounds(problem, k, work), "cut", k))
        if k > 1 and work <= islands - 1:  # more configurations are of no use
            break
    return max(min(terms), together)


def _bound_rounds(problem: Any, k: int, hops: float) -> float:
    """Bound the time with k configurations, without delays; `hops` to all islands together."""
    members = problem.island
    islands, gathers = problem.n_ranks // members, problem.operation in _GATHERS
    alpha_s, rate, link_rate = (
        problem.alpha_s, problem.rate_bytes_per_s, problem.island_rate_bytes_per_s,
    )  # fmt: skip
    sums = problem.operation == "all-reduce"
    block, best_s, times_s = problem.size_bytes / problem.n_ranks, inf, dict[int, float]()
    for rounds, extra in enumerate(extra_rounds(islands, members, k == 1), 1):
        if extra < 0 or rounds < k:
            continue
        others_s = max(extra, int(gathers)) * problem.island_alpha_s
        if problem.operation == "all-to-all":
            moved_s = _exchange_s(problem, k, hops, rounds)
            rest_s = 0.0
        elif gathers:
            moved = (islands - 1) * block
            moved_s = moved / rate
            if rounds == 1:  # all of an island goes over the circuits of some pair, or its one
                moved_s = members * block / (members // (islands - 1)) / rate
            # Members have told each other before the first round over rails, or each has its own.
            rest_s = _rest_s(problem, moved, rounds, members, members * block)
            if extra < 2:
                alone_s = _rest_s(problem, moved, rounds, members, block)
                rest_s = min(rest_s + problem.island_alpha_s, alone_s)
        elif rounds == 1:  # all islands send all that they have to all others
            moved_s, rest_s = (islands - 1) * islands * block / rate, 0.0
        else:
            moved = 2 * (islands - 1) * block
            copies = members * islands / (2 * (islands - 1))
            moved_s, rest_s = moved / rate, _rest_s(problem, moved, rounds, copies, moved)
            if rounds == 2:  # what is whole before the second has come from all in the first
                spread = members / (islands - 1) + 1
                wanted = 2 * members * islands * block
                left_s = (wanted - spread * moved) / link_rate
                both_s = min(moved_s + left_s, wanted / spread / rate)
                moved_s, rest_s = max(moved_s + rest_s, both_s), 0.0
        times_s[rounds] = rounds * alpha_s + others_s + moved_s + rest_s
        best_s = min(best_s, times_s[rounds])
        if rest_s == 0.0 and extra == 0 and rounds > (MOST_PROGRAMMED if sums else 2):
            break
        if rounds >= MOST_ROUNDS or rounds * alpha_s > best_s:  # more rounds than these
            least_s = (rounds + 1) * alpha_s + gathers * problem.island_alpha_s + moved_s
            best_s = min(best_s, least_s)
            times_s[MOST_ROUNDS + 1] = least_s
            break
    if not sums:
        return best_s
    costs = alpha_s, rate, problem.island_alpha_s, link_rate
    best_s = min((each for turns, each in times_s.items() if turns > MOST_PROGRAMMED), default=inf)
    for rounds in sorted(times_s, key=lambda turns: times_s[turns]):
        if 1 < rounds <= MOST_PROGRAMMED and times_s[rounds] < best_s:
            more_s = bound_sums_s(islands, members, problem.size_bytes, costs, rounds)
            times_s[rounds] = max(times_s[rounds], more_s)
        best_s = min(best_s, times_s[rounds])
    return best_s


_GATHERS = ("all-gather", "reduce-scatter")


def _rest_s(problem: Any, moved: float, rounds: int, copies: float, first: float) -> float:
    """Bound the time of island links without rails beside, if `first` bytes come in one round."""
    if copies <= 1:
        return 0.0
    rate, link_rate = problem.rate_bytes_per_s, problem.island_rate_bytes_per_s
    beside = link_rate * max(problem.alpha_s - problem.island_alpha_s, 0.0)
    least_s = fixed = slope = 0.0
    for left in range(rounds):
        fixed = (beside * left + link_rate / rate * fixed) / (copies - 1)
        slope = (link_rate + rate + link_rate / rate * slope) / (copies - 1)
        if fixed >= moved:
            break
        if left >= rounds - 2:
            wanted = moved - (first if left == rounds - 2 else 0.0)
            least_s = max(least_s, (wanted - fixed) / slope)
    return least_s


def _exchange_s(problem: Any, k: int, hops: float, rounds: int) -> float:
    """Bound the time of the bytes of an all-to-all over k configurations."""
    members, block = problem.island, problem.size_bytes / problem.n_ranks
    others = problem.n_ranks // members - 1
    load = members * (hops or others)
    single = 2 * others - members  # pairs of islands that one circuit joins, of those of an island
    if k == 1 and members >= others and single > 0:  # others can only help by two hops
        load = max(load, members**2 * (others + single) / (members + single))
    moved_s = load * block / problem.rate_bytes_per_s
    if rounds == 1:  # who has another place is reached before or after
        moved_s += others * (members - 1) * block / problem.island_rate_bytes_per_s
    return float(moved_s)

"""Lower bounds of collectives between islands: what crosses a cut, rounds, and what is left.

An island of g ranks has g ports on rails. Bytes that come over them in the last rounds have to
reach the other members of the island after that, over its own links: the *rest*. With x_t bytes a
port in the round t of R, and g copies of each byte wanted in an island, the bytes that come in
round k or later cannot be more than the links carry after k: a plan of few rounds has a long rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice, repeat
from typing import Any, NamedTuple

from optmatch.problems.collectives.bounds import BoundTerms, distances
from optmatch.problems.collectives.sums import MOST_PROGRAMMED, bound_sums_s

MOST_ROUNDS = 64
"""Rounds over rails up to which the rest is counted."""
_GATHERS = ("all-gather", "reduce-scatter")


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

    The data of one rank spread over rails (a circuit of each rank to another island) and inside
    islands. In a round over rails members of islands are told, too; the other rounds are those
    inside islands alone. All states that can be reached are followed, breadth first.

    Parameters
    ----------
    islands
        The number of islands.
    members
        The number of ranks of an island.
    static
        Whether circuits stay, so that a rank sends to one other island at most.

    Yields
    ------
    int
        The least number of rounds without rails; -1 if so many rounds over rails are too few.
    """

    def tell_members(reach: _Reach, n_begun: int) -> _Reach:
        """Return the reach after islands have told their members, and rails `n_begun` others."""
        return _Reach(
            whole=min(reach.whole + reach.begun, islands),
            begun=n_begun,
            unsent=reach.unsent + (members - 1) * reach.begun,
        )

    def send_over_rails(reach: _Reach) -> _Reach:
        """Return the reach after a round over rails, in which members are told beside."""
        n_senders = members * reach.whole + reach.begun
        if static:
            n_senders = reach.unsent
        return tell_members(reach, min(n_senders, members * islands))

    # ``reaches[extra]``: what can be reached with so many rounds without rails.
    reaches = {0: {_Reach(0, 1, 1)}}
    while True:
        next_reaches: dict[int, set[_Reach]] = {}
        for n_extra, states in reaches.items():
            for reach in states:
                # Before the next round over rails there may be one in which members are told.
                told = tell_members(reach, 0)
                next_reaches.setdefault(n_extra, set()).add(send_over_rails(reach))
                next_reaches.setdefault(n_extra + 1, set()).add(send_over_rails(told))
        reaches = next_reaches

        # An island of which one rank knows needs a last round for its members.
        n_needed = [
            n_extra + (reach.whole < islands)
            for n_extra, states in reaches.items()
            for reach in states
            if reach.whole + reach.begun >= islands
        ]
        yield min(n_needed, default=-1)
        if 0 in n_needed:
            yield from repeat(0)


def bound_islands(problem: Any) -> BoundTerms:
    """Return the best lower bound of a `Collective` between islands.

    Each number of configurations of circuits in a row has a bound: the delays between them, and
    the time of rounds and bytes. The least one holds for all plans, as does what rails and links
    can carry together.

    Parameters
    ----------
    problem
        The `Collective`; typed as Any, as its module imports this one.

    Returns
    -------
    BoundTerms
        Seconds, the kind of bound, and the number of configurations that it belongs to.
    """
    members = problem.island
    islands = problem.n_ranks // members
    n_times = 2 if problem.operation == "all-reduce" else 1
    moved_bytes = n_times * (problem.n_ranks - 1) * _block_bytes(problem)
    if islands == 1:
        link_s = moved_bytes / problem.island_rate_bytes_per_s
        return BoundTerms(problem.island_alpha_s + link_s, "cut")

    # Rails and links together carry what each rank has to send or to receive.
    total_rate_bytes_per_s = problem.island_rate_bytes_per_s + problem.rate_bytes_per_s
    together = BoundTerms(moved_bytes / total_rate_bytes_per_s, "cut", 1)

    is_dark = isinstance(problem.start, str) and problem.start == "dark"
    terms: list[BoundTerms] = []
    hops_of_configurations = islice(distances(islands, members), islands)
    for configurations, hops in enumerate(hops_of_configurations, start=1):
        delays_s = (configurations - 1 + is_dark) * problem.delay_s
        if terms and delays_s >= min(terms).seconds:
            break
        n_hops = 0.0
        if problem.operation == "all-to-all" and len(hops) == islands - 1:
            n_hops = float(hops.sum())
        seconds = delays_s + _bound_rounds(problem, configurations, n_hops)
        terms.append(BoundTerms(seconds, "cut", configurations))
        # More configurations are of no use once each block goes over one hop.
        if configurations > 1 and n_hops <= islands - 1:
            break
    return max(min(terms), together)


def _block_bytes(problem: Any) -> float:
    """Return the bytes of the block of a rank."""
    return float(problem.size_bytes / problem.n_ranks)


class _RoundsBound(NamedTuple):
    """The time of bytes with so many rounds over rails, without start-ups and delays."""

    rails_s: float
    """The seconds in which rails (circuits between islands) carry bytes."""
    rest_s: float
    """The seconds in which links inside islands carry what came last, without rails beside."""


def _bound_rounds(problem: Any, configurations: int, n_hops: float) -> float:
    """Bound the time with so many configurations in a row, without reconfiguration delays.

    The number of rounds in which rails are used is not known, so each number has a bound of its
    own: the start-ups of these rounds, and of the rounds without rails that are needed beside them
    (`extra_rounds`), the time in which rails carry the bytes, and the rest, in which links inside
    islands hand on what came last. The least of these bounds holds for all plans. Those of an
    all-reduce are raised by linear programmes (module `sums`) up to `MOST_PROGRAMMED` rounds.

    Parameters
    ----------
    problem
        The `Collective`; typed as Any, as its module imports this one.
    configurations
        How many configurations of circuits there are in a row.
    n_hops
        In an all-to-all the hops from an island to all others together; 0 if they are unknown.

    Returns
    -------
    float
        The least bound over all numbers of rounds over rails, in seconds.
    """
    members = problem.island
    islands = problem.n_ranks // members
    is_sum = problem.operation == "all-reduce"
    is_gather = problem.operation in _GATHERS

    # The bounds of one and of two rounds count bytes by formulas of their own; beyond them bounds
    # that have no rest only grow. All numbers of rounds that a programme may raise are listed.
    counted_rounds = MOST_PROGRAMMED if is_sum else 2

    least_s = math.inf
    seconds_of_rounds = dict[int, float]()
    all_rounds = enumerate(extra_rounds(islands, members, configurations == 1), start=1)
    for rounds, n_extra in all_rounds:
        # Not all ranks can be reached in this number of rounds, or a configuration has no round.
        if n_extra < 0 or rounds < configurations:
            continue
        bound = _bound_bytes(problem, configurations, n_hops, rounds, n_extra)
        # A gather needs one round without rails: each island has more ranks than circuits begin.
        links_s = max(n_extra, int(is_gather)) * problem.island_alpha_s
        rounds_s = rounds * problem.alpha_s
        seconds_of_rounds[rounds] = rounds_s + links_s + bound.rails_s + bound.rest_s
        least_s = min(least_s, seconds_of_rounds[rounds])

        # Another round would only add its start-up: nothing is left for it to shorten.
        if bound.rest_s == 0.0 and n_extra == 0 and rounds > counted_rounds:
            break
        if rounds >= MOST_ROUNDS or rounds_s > least_s:
            # All numbers of rounds beyond these have one bound together, without a rest.
            more_s = (rounds + 1) * problem.alpha_s + is_gather * problem.island_alpha_s
            more_s += bound.rails_s
            least_s = min(least_s, more_s)
            seconds_of_rounds[MOST_ROUNDS + 1] = more_s
            break
    if not is_sum:
        return least_s

    # The counts of an all-reduce leave out how its sums and copies depend on each other.
    return _bound_programmed(problem, seconds_of_rounds)


def _bound_programmed(problem: Any, seconds_of_rounds: dict[int, float]) -> float:
    """Bound an all-reduce by linear programmes where these can say more than the counts.

    Parameters
    ----------
    problem
        The collective.
    seconds_of_rounds
        The bound that counting gives, in seconds, by rounds over rails (circuits between islands);
        changed where a programme bounds more.

    Returns
    -------
    float
        The least of all these bounds, in seconds.
    """
    members = problem.island
    islands = problem.n_ranks // members
    costs = (
        problem.alpha_s,
        problem.rate_bytes_per_s,
        problem.island_alpha_s,
        problem.island_rate_bytes_per_s,
    )
    unprogrammed_s = [
        seconds for rounds, seconds in seconds_of_rounds.items() if rounds > MOST_PROGRAMMED
    ]
    least_s = min(unprogrammed_s, default=math.inf)
    # The least counts come first: the others may need no programme.
    for rounds in sorted(seconds_of_rounds, key=seconds_of_rounds.__getitem__):
        if 1 < rounds <= MOST_PROGRAMMED and seconds_of_rounds[rounds] < least_s:
            programme_s = bound_sums_s(islands, members, problem.size_bytes, costs, rounds)
            seconds_of_rounds[rounds] = max(seconds_of_rounds[rounds], programme_s)
        least_s = min(least_s, seconds_of_rounds[rounds])
    return least_s


def _bound_bytes(
    problem: Any, configurations: int, n_hops: float, rounds: int, n_extra: int
) -> _RoundsBound:
    """Bound the time of the bytes with so many rounds over rails.

    A *rail* is the circuit of a rank to another island; other bytes go over links inside islands.

    Parameters
    ----------
    problem
        The `Collective`; typed as Any, as its module imports this one.
    configurations
        How many configurations of circuits there are in a row.
    n_hops
        In an all-to-all the hops from an island to all others together; 0 if they are unknown.
    rounds
        How many rounds use rails.
    n_extra
        How many rounds without rails are needed beside them.

    Returns
    -------
    _RoundsBound
        Seconds while rails carry bytes, and seconds of links inside islands alone.
    """
    islands = problem.n_ranks // problem.island
    if problem.operation == "all-to-all":
        return _RoundsBound(_exchange_s(problem, configurations, n_hops, rounds), 0.0)
    if problem.operation in _GATHERS:
        return _bound_gather(problem, rounds, n_extra)
    if rounds == 1:
        # All islands send all that they have to all others.
        sent_bytes = (islands - 1) * islands * _block_bytes(problem)
        return _RoundsBound(sent_bytes / problem.rate_bytes_per_s, 0.0)
    return _bound_sum(problem, rounds)


def _bound_gather(problem: Any, rounds: int, n_extra: int) -> _RoundsBound:
    """Bound the time of the bytes of an all-gather or a reduce-scatter.

    Parameters
    ----------
    problem
        The collective.
    rounds
        The number of rounds over rails.
    n_extra
        The number of rounds without rails that are needed beside them.

    Returns
    -------
    _RoundsBound
        Seconds while rails (circuits between islands) carry the bytes, and seconds in which links
        inside islands hand on what came last.
    """
    members = problem.island
    islands = problem.n_ranks // members
    block_bytes = _block_bytes(problem)
    moved_bytes = (islands - 1) * block_bytes
    rails_s = moved_bytes / problem.rate_bytes_per_s
    if rounds == 1:
        # All of an island goes over the circuits of some pair, or over its only one.
        n_circuits_of_pair = members // (islands - 1)
        rails_s = members * block_bytes / n_circuits_of_pair / problem.rate_bytes_per_s

    # Members have told each other before the first round over rails, or each has its own block.
    rest_s = _rest_s(problem, moved_bytes, rounds, members, members * block_bytes)
    if n_extra < 2:
        alone_s = _rest_s(problem, moved_bytes, rounds, members, block_bytes)
        rest_s = min(rest_s + problem.island_alpha_s, alone_s)
    return _RoundsBound(rails_s, rest_s)


def _bound_sum(problem: Any, rounds: int) -> _RoundsBound:
    """Bound the time of the bytes of an all-reduce with two rounds over rails or more.

    Each byte of each of I islands has to be added up and brought back: 2 (I - 1) messages over
    rails, which all ports share.

    Parameters
    ----------
    problem
        The collective.
    rounds
        The number of rounds over rails.
    """
    members = problem.island
    islands = problem.n_ranks // members
    block_bytes = _block_bytes(problem)
    moved_bytes = 2 * (islands - 1) * block_bytes
    rails_s = moved_bytes / problem.rate_bytes_per_s
    copies = members * islands / (2 * (islands - 1))
    rest_s = _rest_s(problem, moved_bytes, rounds, copies, moved_bytes)
    if rounds > 2:
        return _RoundsBound(rails_s, rest_s)

    # A sum that is whole before the second round has come from all islands in the first.
    spread = members / (islands - 1) + 1
    wanted_bytes = 2 * members * islands * block_bytes
    left_s = (wanted_bytes - spread * moved_bytes) / problem.island_rate_bytes_per_s
    both_s = min(rails_s + left_s, wanted_bytes / spread / problem.rate_bytes_per_s)
    return _RoundsBound(max(rails_s + rest_s, both_s), 0.0)


def _rest_s(
    problem: Any, moved_bytes: float, rounds: int, copies: float, first_bytes: float
) -> float:
    """Bound the time of island links without rails beside.

    Parameters
    ----------
    problem
        The collective.
    moved_bytes
        The bytes that come to each port over rails in all rounds together.
    rounds
        How many rounds over rails there are.
    copies
        How often an island wants each byte that comes.
    first_bytes
        The most bytes of each port that come in the first round.

    Returns
    -------
    float
        0 if an island wants each byte once.
    """
    if copies <= 1:
        return 0.0
    rate = problem.rate_bytes_per_s
    link_rate = problem.island_rate_bytes_per_s
    bytes_beside_start_up = link_rate * max(problem.alpha_s - problem.island_alpha_s, 0.0)

    # The last rounds may bring, for a rest of x seconds, ``fixed + slope x`` bytes.
    rest_s = 0.0
    fixed_bytes = 0.0
    slope = 0.0
    for n_later_rounds in range(rounds):
        carried_bytes = bytes_beside_start_up * n_later_rounds + link_rate / rate * fixed_bytes
        fixed_bytes = carried_bytes / (copies - 1)
        slope = (link_rate + rate + link_rate / rate * slope) / (copies - 1)
        if fixed_bytes >= moved_bytes:
            break
        if n_later_rounds == rounds - 2:
            rest_s = max(rest_s, (moved_bytes - first_bytes - fixed_bytes) / slope)
        elif n_later_rounds == rounds - 1:
            rest_s = max(rest_s, (moved_bytes - fixed_bytes) / slope)
    return rest_s


def _exchange_s(problem: Any, configurations: int, n_hops: float, rounds: int) -> float:
    """Bound the time of the bytes of an all-to-all, in seconds.

    A *block* is what one rank sends to one other; between islands it goes over *rails*, the
    circuits of ranks to other islands, one hop each.

    Parameters
    ----------
    problem
        The collective.
    configurations
        How many configurations of circuits there are in a row.
    n_hops
        The hops from an island to all others together; 0 if they are unknown, which counts as one
        hop to each.
    rounds
        The number of rounds over rails.
    """
    members = problem.island
    block_bytes = _block_bytes(problem)
    n_others = problem.n_ranks // members - 1
    n_blocks = members * (n_hops or n_others)

    # One circuit alone joins so many of the pairs that an island is in; other ranks can only help
    # by two hops.
    n_single = 2 * n_others - members
    if configurations == 1 and members >= n_others and n_single > 0:
        n_blocks_with_help = members**2 * (n_others + n_single) / (members + n_single)
        n_blocks = max(n_blocks, n_blocks_with_help)
    seconds = n_blocks * block_bytes / problem.rate_bytes_per_s
    if rounds == 1:
        # Ranks at another place are reached over links, before or after.
        link_bytes = n_others * (members - 1) * block_bytes
        seconds += link_bytes / problem.island_rate_bytes_per_s
    return float(seconds)

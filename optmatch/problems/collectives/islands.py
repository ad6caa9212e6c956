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

    An *island* is a group of ranks, its *members*, with links among them; each member also has a
    *rail*, a circuit to another island. The data of one rank spread over rails and inside islands.
    In a round over rails a rank that knows them tells one other island, and may also tell all
    members of its own; the other rounds are those inside islands alone. All states that can be
    reached are followed, breadth first: how many islands know with all ranks, and how many with
    one rank.

    Example: 2 islands of 2 ranks. One round over rails is enough together with one more: the other
    island hears over one rail, and then tells its second rank. With two rounds over rails none
    other is needed.

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

    An *island* is a group of ranks with links among them; each rank also has a *rail*, a circuit
    to another island. A *configuration* is a set of these circuits that is held for some rounds.
    Each number of configurations in a row has a bound: the delays between them, and the time of
    rounds and bytes. The least one holds for all plans, as does what rails and links can carry
    together.

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
    # Each of n blocks comes to, or leaves, n - 1 ranks; in an all-reduce it does both. With one
    # island all of that goes over links.
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
    """Return the bytes of a block, an n-th of the buffer: what one rank sends to, or has for, one.

    The problem is a `Collective` of n ranks.
    """
    return float(problem.size_bytes / problem.n_ranks)


class _RoundsBound(NamedTuple):
    """The time of bytes with so many rounds over rails, without start-ups and delays."""

    rails_s: float
    """The seconds in which rails (circuits between islands) carry bytes."""
    rest_s: float
    """The seconds in which links inside islands carry what came last, without rails beside."""


def _bound_rounds(problem: Any, configurations: int, n_hops: float) -> float:
    """Bound the time with so many configurations in a row, without reconfiguration delays.

    An *island* is a group of ranks with links among them, and a *rail* the circuit of a rank to
    another island; a *configuration* is a set of these circuits that is held for some rounds.
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

    # The bound of each number of rounds over rails: start-ups of these rounds, start-ups of the
    # other rounds inside islands, bytes over rails, and the rest.
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

    Ranks are in islands, groups with links among them, and have *rails*, circuits between islands.
    How many rounds over rails the best plan has is not known, so the least bound of all numbers of
    rounds holds. Counting bounds each of them; a programme may raise that for 2 rounds up to
    `MOST_PROGRAMMED`.

    Parameters
    ----------
    problem
        The all-reduce: its start-ups in seconds and rates in bytes per second, of rails and of
        links inside islands.
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
    # The least counts come first: once a bound is at most the count of all others, they need no
    # programme, as it would only raise them.
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

    An *island* is a group of ranks with links among them. A *rail* is the circuit of a rank to
    another island; other bytes go over links inside islands.

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

    An *island* is a group of ranks with links among them, and a *rail* the circuit of a rank to
    another island. In an all-gather the *block* of each rank has to come to all others: over a
    rail to each other island, and over links inside it. Bytes that come in the last rounds are
    handed on inside islands after that, which is the *rest*. A reduce-scatter is an all-gather
    backwards.

    Parameters
    ----------
    problem
        The `Collective`; its blocks have the same size.
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
        n_circuits_of_pair = members // (islands - 1)  # of the pair that has the fewest of them
        rails_s = members * block_bytes / n_circuits_of_pair / problem.rate_bytes_per_s

    # Either members told each other their blocks before the first round over rails, which takes a
    # round of its own, or each port has the block of its rank alone to send in the first round.
    rest_s = _rest_s(problem, moved_bytes, rounds, members, members * block_bytes)
    if n_extra < 2:
        alone_s = _rest_s(problem, moved_bytes, rounds, members, block_bytes)
        rest_s = min(rest_s + problem.island_alpha_s, alone_s)
    return _RoundsBound(rails_s, rest_s)


def _bound_sum(problem: Any, rounds: int) -> _RoundsBound:
    """Bound the time of the bytes of an all-reduce with two rounds over rails or more.

    An island is a group of ranks with links among them, and a *rail* the circuit of a rank to
    another island. Each byte of each of I islands has to be added up and brought back: 2 (I - 1)
    messages over rails, which all ports share. Bytes that come in the last rounds are handed on
    inside islands afterwards: this time is the *rest*.

    Parameters
    ----------
    problem
        The `Collective`, an all-reduce among islands.
    rounds
        The number of rounds over rails, at least 2.

    Returns
    -------
    _RoundsBound
        Seconds while rails carry bytes, and seconds of the rest; neither counts start-ups. For two
        rounds both are added up in the first field.
    """
    members = problem.island
    islands = problem.n_ranks // members
    block_bytes = _block_bytes(problem)
    moved_bytes = 2 * (islands - 1) * block_bytes
    rails_s = moved_bytes / problem.rate_bytes_per_s
    # All ranks want each sum, and 2 (I - 1) messages carry it: so many ranks for each message.
    copies = members * islands / (2 * (islands - 1))
    rest_s = _rest_s(problem, moved_bytes, rounds, copies, moved_bytes)
    if rounds > 2:
        return _RoundsBound(rails_s, rest_s)

    # A sum that is whole before the second round has come from all islands in the first. Hence a
    # byte over rails counts for `spread` bytes of those that are wanted, at most; links inside
    # islands, or more bytes over rails, have to make up for what is left of them.
    spread = members / (islands - 1) + 1
    wanted_bytes = 2 * members * islands * block_bytes
    left_s = (wanted_bytes - spread * moved_bytes) / problem.island_rate_bytes_per_s
    both_s = min(rails_s + left_s, wanted_bytes / spread / problem.rate_bytes_per_s)
    return _RoundsBound(max(rails_s + rest_s, both_s), 0.0)


def _rest_s(
    problem: Any, moved_bytes: float, rounds: int, copies: float, first_bytes: float
) -> float:
    """Bound the *rest*: seconds beyond those in which rails carry each byte once.

    An island is a group of ranks with fast links among them; each rank also has a *rail*, a
    circuit to another island. A byte comes to an island over one rail, and the links inside the
    island then bring it to its other ranks. Links work while later rounds go over rails, but what
    comes in the last rounds has little time left: the whole plan has to take some seconds more.

    Bytes that come in a certain round or later are handed on only after that round. Let x be the
    rest, and y_k the bytes of a port that come in the last k + 1 rounds. Each of them is needed at
    ``copies - 1`` more places, which gives, with y_(-1) = 0,

        ``(copies - 1) y_k <= k s + (L / R) y_(k - 1) + (L + R) x``,

    where L and R are the rates of links and of a rail. On the right side are the bytes that links
    carry during the start-ups of k later rounds (s each), those that they carry while rails carry
    y_(k - 1), and all that links and rails can carry in the rest. By recursion y_k is at most
    ``fixed_bytes + slope x``, and as all rounds together bring ``moved_bytes``, that bounds x from
    below.

    Parameters
    ----------
    problem
        The `Collective`: rates of a rail and of the links of a rank, in bytes per second, and the
        start-ups of rounds over rails and inside islands, in seconds.
    moved_bytes
        The bytes that come to each port over rails in all rounds together, each byte once.
    rounds
        How many rounds over rails there are.
    copies
        At how many ranks of an island each byte that comes is wanted, on average.
    first_bytes
        The most bytes of each port that can come in the first round.

    Returns
    -------
    float
        The least rest, in seconds; 0 if an island wants each byte once, or if the last rounds can
        bring all bytes without it.
    """
    if copies <= 1:
        return 0.0
    rate = problem.rate_bytes_per_s
    link_rate = problem.island_rate_bytes_per_s
    bytes_beside_start_up = link_rate * max(problem.alpha_s - problem.island_alpha_s, 0.0)

    # With a rest of x seconds, the last k + 1 rounds bring ``fixed_bytes + slope x`` bytes or
    # fewer, where k is `n_later_rounds`. All rounds but the first one have to bring what the first
    # one cannot, and all rounds together everything: both bound x.
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
    """Bound the time of the bytes of an all-to-all between islands.

    An island is a group of ranks with links among them. A *block* is what one rank sends to one
    other; between islands it goes over *rails*, the circuits of ranks to other islands, one hop
    each.

    Parameters
    ----------
    problem
        The `Collective`, an all-to-all among islands with blocks of equal size.
    configurations
        How many configurations (sets of circuits) follow each other.
    n_hops
        The hops from an island to all others together; 0 if they are unknown, which counts as one
        hop to each.
    rounds
        The number of rounds over rails.

    Returns
    -------
    float
        Seconds, without start-ups and delays. With a single round over rails they include what
        links inside islands have to carry before and after it.
    """
    members = problem.island
    block_bytes = _block_bytes(problem)
    n_others = problem.n_ranks // members - 1
    n_blocks = members * (n_hops or n_others)

    # With one configuration an island can have so few circuits that at least `n_single` of the
    # others are reached over one circuit alone: with 7 circuits to 5 other islands 2 * 5 - 7 = 3.
    # Other ranks can help there only by two hops over a third island.
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

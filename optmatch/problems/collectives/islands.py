"""Lower bounds of collectives between islands: what crosses a cut, rounds, and what is left.

An island of g ranks has g ports on rails. Bytes that come over them in the last rounds have to
reach the other members of the island after that, over its own links: the *rest*. With x_t bytes a
port in the round t of R, and g copies of each byte wanted in an island, the bytes that come in
round k or later cannot be more than the links carry after k: a plan of few rounds has a long rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

from optmatch.problems.collectives.bounds import (
    BoundTerms,
    add_up_hops,
    bound_terms,
    ranks_at_hops,
)
from optmatch.problems.collectives.fields import CollectiveFields, plain_fields
from optmatch.problems.collectives.sums import MOST_PROGRAMMED, Costs, bound_sums_s

MOST_ROUNDS = 64
"""Rounds over rails up to which the rest is counted."""


class _Reach(NamedTuple):
    """How far the data of one rank can have come at most."""

    whole: int
    """Islands all of whose ranks know."""
    begun: int
    """Ranks that heard over rails in the last round, each in an island of its own if it can be."""
    unsent: int
    """Ranks that have not sent over their present circuits."""


def extra_rounds(islands: int, members: int, static: bool) -> Iterator[int]:
    """Yield, for 1, 2, ... rounds over rails, how many other rounds are needed to reach all ranks.

    Ranks are in *islands*, equal groups with links among their members. Each rank also has a
    *rail*, a circuit to another island. The data of one rank have to reach everybody. There are
    two kinds of rounds:

    - in a round over rails, each rank that has the data tells one rank of another island, and may
      tell the members of its own island beside;
    - in any other round, ranks tell the members of their own island alone.

    Example: 2 islands of 2 ranks. With one round over rails one other round is needed: the second
    island hears over a rail, and its rank then tells the other one. With two rounds over rails no
    other round is needed. The results are 1, 0, 0, ...

    There are `islands` groups of `members` ranks; if they are `static`, rails never change, and
    each rank sends the data over its rail once. Each result is the least number of rounds inside
    islands alone; -1 if so few rounds over rails cannot reach all.
    """

    def tell_members(reach: _Reach, n_begun: int) -> _Reach:
        """Return the reach after islands have told their members, and rails `n_begun` others."""
        return _Reach(
            whole=min(reach.whole + reach.begun, islands),
            begun=n_begun,
            unsent=reach.unsent + (members - 1) * reach.begun,
        )

    def send_over_rails(reach: _Reach) -> _Reach:
        """Return the reach after a round over rails, during which islands tell their members."""
        n_senders = members * reach.whole + reach.begun
        if static:
            n_senders = reach.unsent
        return tell_members(reach, min(n_senders, members * islands))

    # Breadth-first search over how far the data have come. ``reaches[extra]`` has all states that
    # are possible after the present number of rounds over rails and `extra` other rounds. At first
    # no island is whole, one is begun, and one rank has not sent yet.
    reaches = {0: {_Reach(0, 1, 1)}}
    while True:
        next_reaches: dict[int, set[_Reach]] = {}
        for n_extra, states in reaches.items():
            for reach in states:
                # Before the next round over rails there may be one in which members are told.
                reach_when_told = tell_members(reach, 0)
                next_reaches.setdefault(n_extra, set()).add(send_over_rails(reach))
                next_reaches.setdefault(n_extra + 1, set()).add(send_over_rails(reach_when_told))
        reaches = next_reaches

        # All islands have the data in these states. Ranks that neither were in an island that is
        # whole nor have heard over a rail now need a last round in which members tell them.
        n_needed = [
            n_extra + (members * reach.whole + reach.begun < members * islands)
            for n_extra, states in reaches.items()
            for reach in states
            if reach.whole + reach.begun >= islands
        ]
        yield min(n_needed, default=-1)
        # More rounds over rails need no other rounds either.
        if 0 in n_needed:
            yield from repeat(0)


def bound_collective(problem: CollectiveFields) -> BoundTerms:
    """Return the best lower bound of the time of a collective, counted from declared fields."""
    plain = plain_fields(problem)
    return bound_islands(plain) if plain.island > 1 else bound_terms(plain)


def bound_islands(problem: CollectiveFields) -> BoundTerms:
    """Return the best lower bound of the time of a collective between islands.

    The rails may be set up once, twice, three times and so on, with a delay between. For plans
    that set them up K times a bound is the delays and the time of rounds and bytes; the least of
    these, over all K, holds for all plans. Another bound is how much rails and links can carry
    together, and the larger one of the two is the result.
    """
    # Each of n blocks comes to, or leaves, n - 1 ranks; in an all-reduce it does both. With one
    # island all of that goes over links.
    islands = problem.n_islands
    moved_bytes = problem.n_gathers * (problem.n_ranks - 1) * problem.block_bytes
    if islands == 1:
        link_s = moved_bytes / problem.island_rate_bytes_per_s
        return BoundTerms(problem.island_start_up_s + link_s, "cut")

    # Rails and links together carry what each rank has to send or to receive.
    total_rate_bytes_per_s = problem.island_rate_bytes_per_s + problem.rate_bytes_per_s
    together = BoundTerms(moved_bytes / total_rate_bytes_per_s, "cut", 1)

    # Bounds compare by their first field, seconds.
    terms: list[BoundTerms] = []
    for configurations in range(1, islands + 1):
        delays_s = (configurations - 1) * problem.delay_s + problem.first_delay_s
        if terms and delays_s >= min(terms).seconds:
            break
        # For an all-to-all, the hops from an island to all others together, if all can be reached:
        # then the counts by hops add up to all islands. For other operations 0.
        n_hops = 0.0
        n_at_hop = ranks_at_hops(islands, configurations, problem.island)
        if problem.flow.has_pairs and n_at_hop.sum() == islands:
            n_hops = add_up_hops(n_at_hop)
        seconds = delays_s + _bound_rounds(problem, configurations, n_hops)
        terms.append(BoundTerms(seconds, "cut", configurations))
        # More configurations are of no use once each of the islands - 1 blocks goes over one hop.
        if configurations > 1 and n_hops <= islands - 1:
            break
    return max(min(terms), together)


def _bound_rounds(problem: CollectiveFields, configurations: int, n_hops: float) -> float:
    """Bound from below how long a collective takes with a given number of circuit sets.

    The plan has `configurations` sets of circuits, one after another; the time to change them is
    not counted here. `n_hops` is, in an all-to-all, a lower bound of the hops from an island to
    all others together; 0 if none is known, and in other operations.

    A plan may use its rails in 1, 2, 3, ... rounds. Each of these numbers has a bound of its own,
    the sum of four terms in seconds:

    - the start-ups of the rounds over rails;
    - the start-ups of the rounds inside islands alone that are needed as well;
    - the time in which rails carry the bytes;
    - the *rest*: the time in which islands hand on among their ranks what came last.

    Nobody knows how many rounds the best plan has, so the least of these bounds is the result. The
    bounds of an all-reduce are raised by linear programmes, up to `MOST_PROGRAMMED` rounds.
    """
    is_sum = problem.flow.sums_for_all

    # Up to this number of rounds all bounds are listed. One and two rounds have formulas of their
    # own; of an all-reduce, all numbers of rounds that a programme may raise are wanted.
    counted_rounds = MOST_PROGRAMMED if is_sum else 2

    # The bound of each number of rounds over rails, by this number. `n_extra` are the rounds
    # inside islands alone that are needed beside them; -1 if not all ranks can be reached.
    least_s = math.inf
    seconds_of_rounds = dict[int, float]()
    all_rounds = enumerate(
        extra_rounds(problem.n_islands, problem.island, static=configurations == 1), start=1
    )
    for rounds, n_extra in all_rounds:
        # No plan has so few rounds: some rank is not reached (-1), or there are fewer rounds than
        # sets of circuits, each of which is used in a round of its own.
        if n_extra < 0 or rounds < configurations:
            continue
        rails_s, rest_s = _bound_bytes(problem, configurations, n_hops, rounds, n_extra)
        links_s = n_extra * problem.island_start_up_s
        rounds_s = rounds * problem.start_up_s
        seconds_of_rounds[rounds] = rounds_s + links_s + rails_s + rest_s
        least_s = min(least_s, seconds_of_rounds[rounds])

        # Another round would only add its start-up: nothing is left for it to shorten.
        if rest_s == 0.0 and n_extra == 0 and rounds > counted_rounds:
            break
        if rounds >= MOST_ROUNDS or rounds_s > least_s:
            # All larger numbers of rounds share one bound: one more start-up, the bytes, and no
            # rest, since more rounds might leave none.
            more_s = (rounds + 1) * problem.start_up_s + rails_s
            least_s = min(least_s, more_s)
            seconds_of_rounds[MOST_ROUNDS + 1] = more_s
            break
    if not is_sum:
        return least_s

    # The counts of an all-reduce leave out how its sums and copies depend on each other: linear
    # programmes can raise them for 2 rounds up to `MOST_PROGRAMMED`. How many rounds over rails
    # the best plan has is not known, so the least bound of all numbers of rounds holds. The least
    # one is raised, first by one programme and then by those of all cases, until it is the least
    # even so: programmes would only raise the others.
    costs = Costs(
        round_=problem.start_up_s,
        island_round=problem.island_start_up_s,
        send=problem.block_bytes / problem.rate_bytes_per_s,
        inside_send=problem.block_bytes / problem.island_rate_bytes_per_s,
    )
    n_raised = dict.fromkeys(seconds_of_rounds, 0)
    while True:
        rounds = min(seconds_of_rounds, key=seconds_of_rounds.__getitem__)
        if not 1 < rounds <= MOST_PROGRAMMED or n_raised[rounds] == 2:
            return seconds_of_rounds[rounds]
        by_case = n_raised[rounds] == 1
        programme_s = bound_sums_s(problem.n_islands, problem.island, costs, rounds, by_case)
        seconds_of_rounds[rounds] = max(seconds_of_rounds[rounds], programme_s)
        n_raised[rounds] += 1


def _bound_bytes(
    problem: CollectiveFields, configurations: int, n_hops: float, rounds: int, n_extra: int
) -> tuple[float, float]:
    """Bound the time of the bytes with so many rounds over rails, without start-ups and delays.

    Rails change their circuits ``configurations - 1`` times. There are `rounds` over rails, and
    `n_extra` inside islands alone. In an all-to-all, `n_hops` are those from an island to all
    others together, 0 if not known. Returns the seconds in which rails carry bytes, and then those
    in which links alone carry what came last. A reduce-scatter is an all-gather backwards.
    """
    members = problem.island
    n_others = problem.n_islands - 1
    block_bytes = problem.block_bytes
    if problem.flow.has_pairs:
        return _exchange_s(problem, configurations, n_hops, rounds), 0.0
    if problem.flow.sums_for_all and rounds == 1:
        # All islands send all that they have to all others.
        sent_bytes = n_others * problem.n_islands * block_bytes
        return sent_bytes / problem.rate_bytes_per_s, 0.0
    if problem.flow.sums_for_all:
        return _bound_sum(problem, rounds)

    # A gather. In one round all blocks of an island go to each other island over the circuits that
    # join the two. Some other island has no more of them than the mean, rounded down: with 8
    # members, which have a circuit each, and 3 other islands 2.
    moved_bytes = n_others * block_bytes
    rails_s = moved_bytes / problem.rate_bytes_per_s
    if rounds == 1:
        n_circuits_of_pair = members // n_others
        rails_s = members * block_bytes / n_circuits_of_pair / problem.rate_bytes_per_s

    # Either members told each other their blocks before the first round over rails, which takes a
    # round of its own (it may be one that is needed anyway), or each port has the block of its
    # rank alone to send in the first round.
    rest_s = _rest_s(
        problem, moved_bytes, rounds, copies=members, first_bytes=members * block_bytes
    )
    if n_extra == 0:
        alone_s = _rest_s(problem, moved_bytes, rounds, copies=members, first_bytes=block_bytes)
        rest_s = min(rest_s + problem.island_start_up_s, alone_s)
    return rails_s, rest_s


def _bound_sum(problem: CollectiveFields, rounds: int) -> tuple[float, float]:
    """Bound the time of the bytes of an all-reduce with R >= 2 rounds between islands.

    There are I islands. Each byte has to be added up over all islands and brought back: 2 (I - 1)
    messages over rails, which all rails share. Returns the same as `_bound_bytes`.
    """
    members = problem.island
    islands = problem.n_islands
    block_bytes = problem.block_bytes
    moved_bytes = 2 * (islands - 1) * block_bytes
    rails_s = moved_bytes / problem.rate_bytes_per_s
    # All ranks want each sum, and 2 (I - 1) messages carry it: so many ranks for each message.
    copies = members * islands / (2 * (islands - 1))
    rest_s = _rest_s(problem, moved_bytes, rounds, copies, first_bytes=moved_bytes)
    if rounds > 2:
        return rails_s, rest_s

    # Two rounds: a sum that is whole before the second round has come from all islands in the
    # first one. Hence a byte over rails makes up for at most `spread` of the bytes that are
    # wanted. For the others, links inside islands have to carry bytes, or rails carry more.
    spread = members / (islands - 1) + 1
    wanted_bytes = 2 * members * islands * block_bytes
    left_s = (wanted_bytes - spread * moved_bytes) / problem.island_rate_bytes_per_s
    both_s = min(rails_s + left_s, wanted_bytes / spread / problem.rate_bytes_per_s)
    return max(rails_s + rest_s, both_s), 0.0


def _rest_s(
    problem: CollectiveFields, moved_bytes: float, rounds: int, copies: float, first_bytes: float
) -> float:
    """Bound the seconds that islands need, at the end, to hand on what came last.

    A byte comes to an island over one rail, and links bring it to the other ranks that want it:
    `copies` ranks want a byte, the first one included. Links work while later rounds go over
    rails. For each rail, `rounds` rounds together bring `moved_bytes`, of which the first one
    brings `first_bytes` at most.

    Returns the least rest, in seconds; 0 if an island wants each byte once, or if the last rounds
    can bring all bytes without it.
    """
    if copies <= 1:
        return 0.0
    rate = problem.rate_bytes_per_s
    link_rate = problem.island_rate_bytes_per_s
    bytes_beside_start_up = link_rate * max(problem.start_up_s - problem.island_start_up_s, 0.0)

    # With a rest of x seconds, the last k + 1 rounds bring B_k = ``fixed_bytes + slope x`` bytes
    # or fewer, k being `n_later_rounds`. Each of them has to be copied ``copies - 1`` times after
    # its round. With the rates L of links and r of rails, links carry L x in the rest, and
    # L B_(k-1) / r while the k later rounds send, and more beside their start-ups; rails could
    # carry r x bytes in place of copies if they sent for the rest instead:
    #
    #     (copies - 1) B_k = (L + r) x + L B_(k-1) / r + k bytes_beside_start_up
    #
    # All rounds but the first one have to bring what the first one cannot, and all rounds together
    # everything: both bound x.
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


def _exchange_s(
    problem: CollectiveFields, configurations: int, n_hops: float, rounds: int
) -> float:
    """Bound from below how long the bytes of an all-to-all between islands take.

    An *island* is a group of ranks with fast links among them. Each rank also has a *rail*, a
    circuit to a rank of another island. A *block* is what one rank sends to one other rank. If it
    is for another island, it goes over one rail, a *hop*, or over several by way of other islands.
    It takes time on each of them: `n_hops` are the hops from an island to all others together, 0
    if this number is not known. `configurations` and `rounds` are those of the rails.
    """
    members = problem.island
    block_bytes = problem.block_bytes
    n_others = problem.n_islands - 1
    n_blocks = members * (n_hops or n_others)

    # With one configuration an island can have so few circuits that at least `n_single` of the
    # others are reached over one circuit alone: with 7 circuits to 5 other islands 2 * 5 - 7 = 3.
    # Other ranks can help there only by two hops over a third island. If no circuit carries more
    # than y blocks, at least members^2 - y of the blocks for each of these take two hops, and all
    # hops together are n_others members^2 + n_single (members^2 - y) <= members y. The least y:
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

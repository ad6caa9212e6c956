"""Lower bounds of demands, counted anew, and the check of the proofs that come with solutions.

A *line* is what one port has to send, or what it has to receive: a row or a column of the demand.

1. A line (`_bound_circuits`): a port serves one partner at a time on each plane, and waits for a
   delay before each of them. With packets, circuits go to the k largest entries for the best k
   (`_bound_line_with_packets`).
2. All ports (`_bound_circuits`): where all circuits stop for a change, the busiest line and the
   delays of the line with most partners add up; n bidirectional ports have n / 2 circuits at once.
3. Prices of ticks (`_bound_by_prices`): weak duality of linear programmes. If no possible slot
   earns more than it takes, all slots take at least what the whole demand earns.
4. Two lines (`_bound_by_counting`): matchings are edges between the entries of two lines, whose
   connected parts have equal sums.
5. Weighted groups (`bound_weighted`): on one machine sum p C >= ((sum p)^2 + sum p^2) / 2
   (Queyranne 1993); the last groups are tried in all orders (Held and Karp 1962).
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.fabrics.cellgraph import state_between
from optmatch.model import FREE, IDLE
from optmatch.problems import ConfigurationProof, CountProof, Demand
from optmatch.verify.light import find_over_budget
from optmatch.verify.report import Findings, ProofError

MOST_IDEAL_PORTS = 8
"""The most ports of an ideal switch whose sets of pairs are all tried: 764 for 8 ports."""
MOST_PORTS = 6
"""The most ports of a switch with cells whose sets of pairs are all tried."""
MOST_CELLS = 28
"""The most cells through which all ways of light are tried, which takes a second."""

Pairs = tuple[tuple[int, int], ...]
"""Pairs of ports that are connected."""


class PairWorth(NamedTuple):
    """What pairs of bidirectional ports are worth, of which some are sought that earn enough."""

    of_pair: list[list[int]]
    """``of_pair[port][partner]``: the worth of both directions if port < partner, else 0."""
    later: list[int]
    """``later[port]``: the best pairs of this port and all later ones are worth no more."""
    limit: int
    """The pairs that are sought are worth more than this together."""


class HeldCircuits:
    """Tells which circuits of bidirectional ports are held side by side, and remembers it.

    Without a graph of cells the switch is ideal, and holds all circuits at once. Cell c has the
    terminals 4 c to 4 c + 3; light that enters at one leaves at one of ``_exits[terminal]``, and
    goes on at ``_mate[terminal]``, -1 where it leaves the switch. ``_terminals[port]`` is where
    light of a port enters, and ``_known[pairs]`` has the answers so far.
    """

    def __init__(self, fabric: Fabric, graph: CellGraph | None) -> None:
        self._holds_all = graph is None
        self._known: dict[Pairs, bool] = {}
        if graph is None:
            return
        self._n_cells = graph.n_cells
        self._mate: list[int] = graph.mate.tolist()
        self._exits: list[set[int]] = [set(row) for row in graph.exits.tolist()]
        self._terminals: list[int] = fabric.source_terminals.tolist()

    def earn_more(self, worth: NDArray[np.int64], limit: int) -> bool:
        """Tell whether the switch can hold pairs at once that are worth more than a limit.

        A pair of ports is worth what its two directions are, ``worth[source, destination]``, 0 or
        more each.
        """
        worth_of_pair = np.triu(worth + worth.T, 1)
        # By port, the sum over it and all later ones of the best pair that each begins.
        later = [int(worth_of_pair[port:].max(axis=1).sum()) for port in range(len(worth))]
        return self._earn_more_from(0, (), 0, PairWorth(worth_of_pair.tolist(), later, limit))

    def _earn_more_from(self, port: int, chosen: Pairs, earned: int, worth: PairWorth) -> bool:
        """Tell whether pairs of a port and later ones can be added to earn more than the limit.

        Branch and bound, port after port: the port gets no partner, or each free one in turn. The
        pairs `chosen`, of earlier ports, are worth `earned` together. True as soon as the switch
        holds pairs that are worth more than the limit; False if no pairs of this branch do both.
        """
        # Enough is earned: further pairs would only be harder to hold.
        if earned > worth.limit:
            return self._hold(chosen)
        # Bound: even the best partners of all ports to come are too little. After the last port
        # nothing is to come, hence the search ends there at the latest.
        if earned + worth.later[port] <= worth.limit:
            return False

        # Branch: the port stays without a partner, or is paired with a later port.
        if self._earn_more_from(port + 1, chosen, earned, worth):
            return True
        busy = {end for pair in chosen for end in pair}
        if port in busy:
            return False
        return any(
            self._earn_more_from(port + 1, (*chosen, (port, partner)), earned + gain, worth)
            for partner, gain in enumerate(worth.of_pair[port])
            if gain and partner not in busy
        )

    def _hold(self, pairs: Pairs) -> bool:
        """Tell whether some states of the cells connect all these pairs; answers are kept."""
        if self._holds_all:
            return True
        if pairs not in self._known:
            circuits = [
                (self._terminals[port], self._terminals[partner]) for port, partner in pairs
            ]
            states = [FREE] * self._n_cells
            self._known[pairs] = self._lead_light(circuits, circuits[0][0], states)
        return self._known[pairs]

    def _lead_light(
        self, circuits: list[tuple[int, int]], entered: int, states: list[int]
    ) -> bool:
        """Find states of cells that lead the light of circuits, one after another, to their ends.

        Depth-first search: a free cell is tried in both states, a set one stays as it is. `states`
        is changed in place, and put back where there is no way.

        Parameters
        ----------
        circuits
            The first and the last terminal of each circuit that is not led to its end yet.
        entered
            The terminal where light of the first circuit enters its next cell.
        """
        cell = entered >> 2
        end = circuits[0][1]
        remaining = circuits[1:]

        # A circuit that cannot come to its end by itself ends the search here.
        for first, last in [(entered, end), *remaining]:
            if not self._can_reach(first, last, states):
                return False

        # `state_between` tells the state that leads light from the entry to this exit. Light comes
        # to its end, and the next circuit begins, or it goes on to the next cell.
        former_state = states[cell]
        for left in self._exits[entered]:
            state = state_between(entered, left)
            if former_state not in (FREE, state):
                continue
            states[cell] = state
            next_terminal = self._mate[left]

            # The circuit ends here, or goes on; in the end all others have to fit, too.
            if left == end:
                if not remaining or self._lead_light(remaining, remaining[0][0], states):
                    return True
            elif next_terminal >= 0 and self._lead_light(circuits, next_terminal, states):
                return True
        states[cell] = former_state
        return False

    def _can_reach(self, first: int, last: int, states: list[int]) -> bool:
        """Tell whether light could come from one terminal to another past the cells that are set.

        ``states[cell]`` is `FREE` where a cell is not set yet, and `state_between` tells the state
        that leads from an entry to an exit. Breadth-first search in which even one walk may pass a
        free cell in both states: True is no promise.
        """
        reached = {first}
        queue = [first]
        for entered in queue:  # it grows while it is walked
            for left in self._exits[entered]:
                if states[entered >> 2] not in (FREE, state_between(entered, left)):
                    continue
                if left == last:
                    return True
                next_terminal = self._mate[left]
                if next_terminal >= 0 and next_terminal not in reached:
                    reached.add(next_terminal)
                    queue.append(next_terminal)
        return False


# Bounds that are counted, and proofs

LARGEST = 2**60
"""Sums of prices times ticks stay below this in int64."""

MOST_NUMBERS = 20
"""All sets of so many numbers are looked at."""

MOST_SUMS = 4000
"""The most sets with sum zero that are put together."""


# The completion time, and the number of matchings


def bound_demand(problem: Demand) -> float:
    """Compute a lower bound of the objective of a demand: the busiest line, or all ports together.

    It has the unit of the objective. Where groups of entries have weights it is what the groups
    cost at least. Infinite where a demand needs a circuit over its link budget.
    """
    # The demand in ticks. Between bidirectional ports it is the larger one of both directions, as
    # a circuit carries both at once; packets need each direction by itself.
    ticks = problem.ticks if problem.packet_share == 0 else problem.directed_ticks
    n_ports = problem.fabric.n_ports
    places = problem.entry_places
    if places is None:
        # The entries of the demand as ``source * n_ports + destination``. (On booleans this is
        # four times as fast as on integers.)
        places = np.flatnonzero(ticks != 0)
    sources, destinations = np.divmod(places, n_ports)
    over_budget = find_over_budget(problem.fabric)[sources, destinations]
    if problem.packet_share == 0 and over_budget.any():
        return math.inf
    if problem.objective == "weighted-completion-s":
        return bound_weighted(problem)

    if problem.packet_share == 0:
        return _bound_circuits(problem, sources, destinations)

    # The entries of each row, then of each column: ports with few partners make short lists.
    lines = np.concatenate([sources, n_ports + destinations])
    by_line = np.argsort(lines, kind="stable")
    entries = np.tile(ticks[sources, destinations], 2)[by_line]
    first_entries = np.searchsorted(lines[by_line], np.arange(1, 2 * n_ports))
    entries_of_line = np.split(entries, first_entries)
    return max(_bound_line_with_packets(problem, entries) for entries in entries_of_line)


def _bound_line_with_packets(problem: Demand, entries: NDArray[np.int64]) -> float:
    """Bound the completion time of one line from below, in s, if packets carry what is left.

    Circuits go to the k largest entries; the bound is the least over all k. Circuits and packets
    together carry everything, and packets alone carry the entries without a circuit: the longer of
    both times counts. `entries` are those of the line, in ticks, above 0, in any order. Packets go
    at ``problem.packet_share`` of the rate of a circuit.
    """
    planes = problem.planes
    delay_ticks = problem.delay_ticks
    share = problem.packet_share
    total_ticks = int(entries.sum())
    n_partners = np.arange(len(entries) + 1)

    # ``together_ticks[k]``, with k circuits: circuits and packets together carry everything, on
    # `used` planes at the rate used + share, after k delays, or one on each of these planes if
    # that is more.
    together_ticks = np.full(len(n_partners), math.inf)
    for used in range(planes + 1):  # planes on which this port has circuits at all
        with_delays = total_ticks + np.maximum(n_partners, used) * delay_ticks
        together_ticks = np.minimum(together_ticks, with_delays / (used + share))

    # ``rest_ticks[k]``: packets alone carry the entries of all partners without a circuit, which
    # are all but the k largest.
    largest_first = np.sort(entries)[::-1]
    rest_ticks = total_ticks - np.concatenate([[0], np.cumsum(largest_first)])
    return float(np.maximum(together_ticks, rest_ticks / share).min()) * problem.tick_s


def _bound_circuits(
    problem: Demand, sources: NDArray[np.int64], destinations: NDArray[np.int64]
) -> float:
    """Bound the objective from below by what each port and all ports together have to do.

    Entry k of the demand is from ``sources[k]`` to ``destinations[k]``; there are no packets. A
    port serves one partner at a time on each plane, and waits for a delay before each. All-stop:
    nothing is carried in a delay, hence the ticks of the busiest line and the delays of the line
    with most partners add up. If ports are bidirectional, n ports have n / 2 circuits at once. The
    result is in the unit of the objective: seconds, or a number of matchings.
    """
    if not len(sources):
        return 0.0
    # A line is a number from 0 to 2 n - 1: the n ports that send, then the n that receive. No slot
    # is shorter than min_slot_ticks, so a smaller entry takes as long.
    slot_ticks = np.maximum(problem.ticks[sources, destinations], problem.min_slot_ticks)
    n_ports = problem.fabric.n_ports
    lines = np.concatenate([sources, n_ports + destinations])
    sums_of_lines = np.zeros(2 * n_ports, dtype=np.int64)
    np.add.at(sums_of_lines, lines, np.tile(slot_ticks, 2))
    ticks_of_line: list[int] = sums_of_lines.tolist()
    partners_of_line: list[int] = np.bincount(lines, minlength=2 * n_ports).tolist()
    # Lower bounds without delays: of the ticks in which something is carried, and of the slots.
    busy_ticks: int = max(ticks_of_line)
    n_slots: int = max(partners_of_line)

    # Ticks and delays of each line, on all planes together; every plane is changed at least once.
    delay_ticks = problem.delay_ticks
    needed_ticks = max(
        ticks + delay_ticks * max(problem.planes, n_partners)
        for ticks, n_partners in zip(ticks_of_line, partners_of_line, strict=True)
    )
    if problem.fabric.bidirectional:
        # Ports i and j have two entries, from i to j and back, each of which counts at a sender
        # and at a receiver: sums over all lines count each pair four times. A port with partners
        # is two lines, one that sends and one that receives, and a circuit joins two ports: a
        # quarter of these lines (rounded down) is the number of circuits at once. -(-a // b) is
        # a / b rounded up.
        side_by_side = int(np.count_nonzero(partners_of_line)) // 4
        n_pairs = sum(partners_of_line) // 4
        pair_ticks = sum(ticks_of_line) // 4
        busy_ticks = max(busy_ticks, -(-pair_ticks // side_by_side))
        n_slots = max(n_slots, -(-n_pairs // side_by_side))
        paired_ticks = -(-(pair_ticks + n_pairs * delay_ticks) // side_by_side)
        needed_ticks = max(needed_ticks, paired_ticks)

    if problem.objective == "matchings":
        return float(n_slots)
    if problem.switching == "all-stop":
        needed_ticks = max(needed_ticks, busy_ticks + n_slots * delay_ticks)
    return float(-(-needed_ticks // problem.planes)) * problem.tick_s


# Proofs


def check_proof(problem: Demand, proof: Any) -> float:
    """Return the lower bound that a proof shows, in the unit of the objective.

    A proof that does not hold, or is of another kind, is a `ProofError`.
    """
    if problem.objective == "weighted-completion-s":
        raise ProofError("no proof is about groups")
    if isinstance(proof, ConfigurationProof):
        return _bound_by_prices(problem, proof)
    if isinstance(proof, CountProof):
        return _bound_by_counting(problem, proof)
    raise ProofError(f"a {type(proof).__name__}, which is no proof about a demand")


def _line(problem: Demand, axis: str, port: int) -> NDArray[np.int64]:
    """Return ``ticks[partner]`` of one line: what a port sends (axis "source") or receives.

    A port that does not exist is a `ProofError`.
    """
    n_ports = problem.fabric.n_ports
    if port >= n_ports:
        raise ProofError(f"names port {port} of {n_ports}")
    ticks = problem.ticks  # counts are for demands without packets
    line: NDArray[np.int64] = ticks[port] if axis == "source" else ticks[:, port]
    return line


def _bound_by_prices(problem: Demand, proof: ConfigurationProof) -> float:
    """Return the lower bound of the completion time, in s, that prices of ticks prove.

    Weak duality of linear programmes: if no possible slot earns more than its duration and one
    delay, all slots take at least what the whole demand earns. A tick of an entry earns the price
    ``duals[source, destination] / units``. If each entry of one row has price 1 and all others 0,
    the bound is the sum of that row. Prices with which a slot earns more, or for another kind of
    demand, are a `ProofError`.
    """
    if problem.objective != "completion-s" or problem.switching != "all-stop":
        raise ProofError("prices bound the completion time of slots that begin together")
    if problem.planes > 1 or problem.packet_share > 0:
        raise ProofError("prices bound what one plane carries alone")
    n_ports = problem.fabric.n_ports
    duals = proof.duals
    units = proof.units
    if duals.shape != (n_ports, n_ports):
        raise ProofError(f"prices of shape {duals.shape} for {n_ports} ports")

    # Sums of prices times ticks have to be exact.
    ticks = problem.ticks
    delay_ticks = problem.delay_ticks
    shortest_ticks = problem.min_slot_ticks
    largest_ticks = int(ticks.max()) + delay_ticks + shortest_ticks
    if max(int(duals.max()) * n_ports**2, units) * largest_ticks >= LARGEST:
        raise ProofError("prices times ticks overflow")

    # No possible slot earns more than it takes. Between two successive durations of this list no
    # further entry is complete, so that the worth of a matching, and what it may be worth, grow
    # linearly: it is enough to test these.
    held_circuits = _list_held(problem.fabric)
    for duration in np.unique(np.maximum(ticks, shortest_ticks)).tolist():
        # ``worth[source, destination]``: the prices that a circuit earns in such a slot, which has
        # no more ticks for it than are wanted. Prices are whole numbers, `units` of which pay for
        # one tick of a slot or a delay.
        worth = duals * np.minimum(ticks, duration)
        allowed = units * (duration + delay_ticks)
        # Most often no matching at all earns too much; else only those count that cells can hold.
        if weigh_heaviest(worth) <= allowed:
            continue
        if held_circuits is None or held_circuits.earn_more(worth, allowed):
            raise ProofError(f"a slot of {duration} ticks earns more than it takes")
    return float(-(-int((duals * ticks).sum()) // units)) * problem.tick_s


def _list_held(fabric: Fabric) -> HeldCircuits | None:
    """Prepare to tell which circuits cells can hold together.

    None where ports are not bidirectional or there are too many ports or cells: then all matchings
    count as held.
    """
    most_ports = MOST_IDEAL_PORTS if fabric.graph is None else MOST_PORTS
    is_small = fabric.n_ports <= most_ports and fabric.n_cells <= MOST_CELLS
    if not fabric.bidirectional or not is_small:
        return None
    return HeldCircuits(fabric, fabric.graph)


def _bound_by_counting(problem: Demand, proof: CountProof) -> float:
    """Bound the number of matchings from below by the entries of two lines.

    A matching is an edge between the two entries, one of each line, that it carries. A connected
    part of v entries has v - 1 edges or more, and equal sums on both lines. Hence there are at
    least as many matchings as entries less the most groups with equal sums: {3, 4} and {7} need 2.
    """
    if problem.objective != "matchings":
        raise ProofError("a count bounds the number of matchings, not the completion time")
    line = _line(problem, proof.axis, proof.port)
    entries = Counter(line[line > 0].tolist())
    other_line = _line(problem, proof.against_axis, proof.against_port)
    other_entries = Counter(other_line[other_line > 0].tolist())

    # Equal entries are groups of two: by exchanging entries they are part of a best choice.
    equal = entries & other_entries
    # Of all others, a group has the sum 0 if those of the second line count as negative.
    numbers = [*(entries - equal).elements(), *(-k for k in (other_entries - equal).elements())]
    n_groups = equal.total() + count_groups(numbers)
    return float(entries.total() + other_entries.total() - n_groups)


def count_groups(numbers: list[int]) -> int:
    """Count into how many groups with sum zero some numbers can be divided.

    The most groups count, found by dynamic programming over subsets: 3, 4, -7, 5, 1, -6 give two.
    Where there are too many numbers or subsets, the result is an upper bound of that. No number
    may be 0 or the negative of another one.
    """
    # A group has a positive and a negative number and, as no two cancel out, three at least.
    positive = sum(number > 0 for number in numbers)
    bound = min(positive, len(numbers) - positive, len(numbers) // 3)
    if len(numbers) > MOST_NUMBERS:
        return bound

    # ``sums[subset]``: a subset is an integer whose bit k says whether it has number k, so that
    # 0b101 has the numbers 0 and 2. Subsets whose last number is k are those from 2**k on: each is
    # one of the subsets before with this number added.
    sums = np.zeros(1 << len(numbers), dtype=np.int64)
    for k, number in enumerate(numbers):
        sums[1 << k : 2 << k] = sums[: 1 << k] + number

    # The subsets with sum zero are all possible groups; the first one is empty and is left out.
    # ``lowest[group]`` has the bit of its first number alone: 0b100 for the group 0b1100.
    zeros = np.flatnonzero(sums == 0)[1:]
    if len(zeros) > MOST_SUMS:
        return bound
    lowest = zeros & -zeros

    @cache
    def split(subset: int) -> int:
        """Return into how many groups a subset with sum zero can be divided at most.

        The lowest number of the subset is in some group: each group of `zeros` that begins with
        it, and is inside the subset, is tried. The rest is divided in the same way.
        """
        fitting = zeros[(lowest == subset & -subset) & (zeros & ~subset == 0)]
        return max((1 + split(subset ^ group) for group in fitting.tolist()), default=0)

    return split(len(sums) - 1)


def weigh_heaviest(weights: NDArray[np.int64]) -> int:
    """Return the weight of the heaviest assignment of a square matrix of whole numbers >= 0.

    Hungarian method after Jonker and Volgenant, in O(n^3); exact for sums below 2^61.
    """
    # Rows are added one by one, and those so far always have their cheapest assignment; the cost
    # is the negative weight. Column n does not exist: each search begins there, with the new row.
    # A column without a row has row -1, and a search ends at the first such column.
    n = len(weights)
    cost = -weights.astype(np.int64)
    row_price = np.zeros(n, dtype=np.int64)
    column_price = np.zeros(n + 1, dtype=np.int64)
    row_of_column = np.full(n + 1, -1)  # column n is where each search begins
    infinite = np.iinfo(np.int64).max // 2
    for new_row in range(n):
        # Dijkstra from the new row: `distance` is that of the cheapest path to each column, and
        # `before` the column from which it comes.
        row_of_column[n] = new_row
        column = n
        distance = np.full(n, infinite)
        before = np.full(n, n)
        is_done = np.zeros(n + 1, dtype=bool)
        while row_of_column[column] >= 0:
            is_done[column] = True
            row = row_of_column[column]
            reduced = cost[row] - row_price[row] - column_price[:n]
            is_shorter = reduced < distance
            distance[is_shorter] = reduced[is_shorter]
            before[is_shorter] = column

            # Prices move so far that the nearest column costs nothing more: of the columns that
            # the search has been at, and of their rows. Distances are counted from there on.
            nearest = int(np.where(is_done[:n], infinite, distance).argmin())
            step = distance[nearest]
            row_price[row_of_column[is_done]] += step
            column_price[is_done] -= step
            distance -= step
            column = nearest

        # Back along the path, each column takes the row of the column before it; the first column
        # of the path takes the new row.
        while column != n:
            former_column = int(before[column])
            row_of_column[column] = row_of_column[former_column]
            column = former_column
    return int(weights[row_of_column[:n], np.arange(n)].sum())


# Groups with weights and deadlines

EXACT = 12
"""The most groups of which all orders are compared, set by set."""


def add_group_figures(
    problem: Demand, matchings: NDArray[np.int32], ticks: NDArray[np.int64], findings: Findings
) -> None:
    """Add what groups cost as the objective, and how many are complete after their deadlines.

    ``ticks[slot]`` is how long the circuits ``matchings[slot, source]`` carry.
    """
    ends = end_groups(problem, matchings, ticks)
    findings.figures["objective"] = weigh_ends(problem, ends)
    if any(problem.deadlines_s):  # 0 for all is none
        findings.figures["groups_late"] = int(np.greater(ends, problem.due_ticks).sum())


def end_groups(
    problem: Demand, matchings: NDArray[np.int32], ticks: NDArray[np.int64]
) -> list[float]:
    """Compute when each group is complete, in ticks; infinite if something of it is left.

    ``matchings[slot, source]`` is a destination, -1 if idle, and ``ticks[slot]`` how long the slot
    carries. The result is ``ends[group]``. An entry of 5 ticks that gets 3 ticks in one slot is
    over 2 ticks after the next slot that has it begins to carry.
    """
    assert problem.groups is not None
    last_ticks = np.zeros(int(problem.groups.max()) + 1, dtype=np.int64)
    missing = problem.directed_ticks.copy()  # 0 or less once an entry is complete
    clock = 0
    for matching, length in zip(matchings, ticks.tolist(), strict=True):
        # Circuits are up after the delay; an entry may be served before its slot ends. One that
        # needs more than this slot ends later than is noted here, which the maximum replaces, or
        # never.
        clock += problem.delay_ticks
        source = np.flatnonzero(matching != IDLE)
        destination = matching[source]
        needed = missing[source, destination]
        is_missing = needed > 0
        group = problem.groups[source, destination]
        np.maximum.at(last_ticks, group[is_missing], clock + needed[is_missing])
        missing[source, destination] = needed - length
        clock += length
    unfinished = set(problem.groups[missing > 0].tolist())
    return [
        math.inf if group in unfinished else end for group, end in enumerate(last_ticks.tolist())
    ]


def weigh_ends(problem: Demand, ends: list[float]) -> float:
    """Compute the sum of weights times seconds of lateness from the ends of groups in ticks.

    ``ends[group]`` is when a group is complete; late is what it ends after its due time, 0 s where
    there are no deadlines.

    A group without weight costs nothing, even if it never ends.
    """
    weights = problem.weights or (1.0,) * len(ends)
    due_ticks = problem.due_ticks or (0,) * len(ends)
    cost_ticks = math.fsum(
        weight * max(0, end - due)
        for weight, end, due in zip(weights, ends, due_ticks, strict=True)
        if weight > 0
    )
    return cost_ticks * problem.tick_s


def bound_weighted(problem: Demand) -> float:
    """Bound the sum of weights times seconds of lateness from below.

    Primal-dual method for concurrent open shop. Each group has a budget, at first its weight. In
    each round one machine is chosen, made of two busy lines, and all groups pay the same price for
    a tick on it. The price is as high as the budget of one of them allows, and that group leaves.
    All payments add to the bound. The last `EXACT` groups are bounded by trying all orders. For
    example, groups of weight 1 need 2 and 6 ticks. At price 1/6 the second one uses up its budget,
    and both together pay 1/6 * (8**2 + 2**2 + 6**2) / 2 = 8 2/3; the first one has 2/3 left for
    its 2 ticks. The bound is 8 2/3 + 2/3 * 2 = 10.
    """
    # ``loads[:, group, line]``: the ticks that a group has on each line (n ports that send, then n
    # that receive), and a delay for each of these entries, in ticks too. Each entry counts at both
    # of its lines. ``due[group]`` is the deadline in ticks.
    assert problem.groups is not None
    n_groups = int(problem.groups.max()) + 1
    n_lines = 2 * problem.fabric.n_ports
    loads = np.zeros((2, n_groups, n_lines), dtype=np.int64)
    source, destination = np.nonzero(problem.directed_ticks)
    group_of_entry = problem.groups[source, destination]
    for line in (source, problem.fabric.n_ports + destination):
        np.add.at(loads[0], (group_of_entry, line), problem.directed_ticks[source, destination])
        np.add.at(loads[1], (group_of_entry, line), problem.delay_ticks)
    due = problem.due_ticks or (0,) * n_groups
    # Whole ticks of deadlines as Python integers, whose sums are exact, and what is left of each.
    whole_due = np.array([math.floor(ticks) for ticks in due], dtype=np.object_)
    parts_due = np.array(due, dtype=np.float64) % 1

    # The rest of the budget of each group, and the bound so far.
    budgets = np.array(problem.weights or (1.0,) * n_groups)
    remaining = np.arange(n_groups)
    together = loads.sum(axis=1)  # [:, line], of the groups that remain
    earned = 0.0
    while len(remaining) > EXACT:
        # The machine is made of two lines: the one that carries most (`sender`) and the one with
        # most delays (`waiter`), perhaps the same. While a delay passes no line carries: the ticks
        # of the first line and the delays of the second one cannot overlap. `ticks[k]` is how long
        # the group ``remaining[k]`` occupies the machine, both together.
        sender, waiter = together.argmax(axis=1)
        ticks = loads[0, remaining, sender] + loads[1, remaining, waiter]

        # The highest price of a tick that no group's budget falls short of; 0 if no group has any.
        prices = np.full(len(remaining), math.inf)
        np.divide(budgets[remaining], ticks, out=prices, where=ticks > 0)
        place = int(prices.argmin())
        leaver = remaining[place]
        price = float(prices[place]) if ticks.any() else 0.0

        # Lateness is the end less the deadline: the sum of ticks times each deadline is taken off.
        lateness = _sum_of_ends(ticks, whole_due[remaining]) - float(ticks @ parts_due[remaining])
        paid = price * lateness

        # The leaver may cost more than what all pay, if it is taken alone with all that is left of
        # its budget: it ends no sooner than its ticks on one line and its delays on another one
        # last. Either bound holds, and no part of a weight counts twice: in the first case all
        # have paid, and keep the rest of their budgets; in the second one the leaver has paid
        # alone, and the others keep theirs whole.
        alone_end = int(loads[:, leaver].max(axis=1).sum())
        alone_cost = float(budgets[leaver]) * max(0.0, alone_end - due[leaver])
        if paid >= alone_cost:
            budgets[remaining] = np.maximum(0.0, budgets[remaining] - price * ticks)
        earned += max(paid, alone_cost)
        remaining = np.delete(remaining, place)
        together -= loads[:, leaver]

    # The groups that remain pay what is left of their budgets.
    due_of_remaining = [due[group] for group in remaining.tolist()]
    earned += _cost_of_best_order(loads[:, remaining], budgets[remaining], due_of_remaining)
    return float(earned * problem.tick_s)


def _sum_of_ends(ticks: NDArray[np.int64], due: NDArray[np.object_]) -> float:
    """Bound from below the sum of p (C - d), where groups take p ticks and end at times C.

    One machine serves the groups, in any order: then the sum of p C is at least
    ((sum p)**2 + sum p**2) / 2 (Queyranne 1993). By group, `ticks` are p and `due` are d, the
    whole ticks of its deadline. Both sums may have forty digits and differ in the last few, so
    they are sums of Python integers.
    """
    exact = ticks.astype(np.object_)
    squares = exact.sum() ** 2 + (exact**2).sum()
    return float((squares - 2 * (exact * due).sum()) / 2)


def _cost_of_best_order(
    loads: NDArray[np.int64], weights: NDArray[np.float64], due: list[float]
) -> float:
    """Bound from below the sum of weights times ticks of lateness of groups, over all orders.

    The last group of a set ends when all of the set is complete, no sooner than its ticks on one
    line and its delays on another one last. ``loads[0, group, line]`` are ticks on a line, and
    ``loads[1, group, line]`` delays there; ``due[group]`` is a deadline in ticks. Dynamic
    programming over subsets (Held and Karp 1962), whose time doubles with each group.
    """
    # Bit k of a subset says whether it has group k: 0b101 has the groups 0 and 2. By subset: the
    # cost of its best order, and the loads of its groups together, shape (2, lines), which are
    # those of the subset without the group of its highest bit (`top`) and what this one adds. In
    # turn each group of the subset is the one that ends last.
    least_cost = [0.0]
    loads_of_subset = [np.zeros((2, loads.shape[2]), dtype=np.int64)]
    for subset in range(1, 1 << len(due)):
        top = subset.bit_length() - 1
        without_top = subset - (1 << top)
        loads_of_subset.append(loads_of_subset[without_top] + loads[:, top])
        end = int(loads_of_subset[subset].max(axis=1).sum())
        least_cost.append(
            min(
                least_cost[subset - (1 << group)] + weights[group] * max(0.0, end - due[group])
                for group in range(len(due))
                if subset >> group & 1
            )
        )
    return float(least_cost[-1])

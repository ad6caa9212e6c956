"""Lower bounds of demands: of each line, of all ports together, and of groups of entries.

A line, which is a source or a destination, serves one entry at a time, each in another slot. A
set of groups is therefore complete no earlier than its busiest line has had its time, nor than
the line with most slots, which may be another one, has had a delay before each. Every two lines
are so a machine that serves groups one after another: a concurrent open shop.

Terms: an *entry* is the demand of one source for one destination, a *partner* of a port one with
which it has an entry. A *group* is a set of entries that count as one job (a coflow): it has a
weight and a deadline, and is complete with its last entry. A *plane* is one of several switches
side by side. *All-stop* and *per-circuit* say which circuits stop while some change.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import InputError


class _DemandInTicks(Protocol):
    """The part of a `Demand` that its bounds need; the module of that class imports this one."""

    @property
    def fabric(self) -> Fabric:
        """The switch."""

    @property
    def objective(self) -> Any:
        """What is minimised."""

    @property
    def switching(self) -> Any:
        """Whether all circuits stop while some change."""

    @property
    def planes(self) -> int:
        """Switches side by side."""

    @property
    def ticks(self) -> NDArray[np.int64]:
        """``ticks[source, destination]``: how long a circuit is needed."""

    @property
    def directed_ticks(self) -> NDArray[np.int64]:
        """``directed_ticks[source, destination]``: the demand, in ticks of a circuit."""

    @property
    def entry_places(self) -> NDArray[np.int64] | None:
        """Where `ticks` has entries, if they are few."""

    @property
    def tick_s(self) -> float:
        """The length of a tick in seconds."""

    @property
    def delay_ticks(self) -> int:
        """The reconfiguration delay."""

    @property
    def min_slot_ticks(self) -> int:
        """The shortest slot."""

    @property
    def packet_share(self) -> float:
        """The rate of the packet network over that of a circuit."""


class _GroupedDemand(_DemandInTicks, Protocol):
    """The part of a `Demand` whose entries belong to groups with weights and deadlines."""

    @property
    def demand_bytes(self) -> NDArray[np.float64]:
        """``demand_bytes[source, destination]``."""

    @property
    def packet_bytes_per_s(self) -> float:
        """The rate of the packet network."""

    @property
    def groups(self) -> Any:
        """``groups[source, destination]``: the group of an entry, -1 without; or None."""

    @property
    def weights(self) -> Any:
        """The weight of each group; empty if all are 1."""

    @property
    def deadlines_s(self) -> Any:
        """The deadline of each group; empty if all are 0."""


def bound_lines(problem: _DemandInTicks) -> NDArray[np.float64]:
    r"""Bound the objective from below by what each port alone has to send or to receive.

    A *line* is all that one port sends, or all that it receives; its sum is :math:`S` ticks of
    circuits, with :math:`k` partners. A *plane* is one of :math:`s` switches side by side, and
    :math:`\delta` is the delay before a circuit is there.

    Without a packet network the port spends :math:`\max(k, s)` delays on all planes together, and
    takes at least :math:`(S + \max(k, s)\,\delta) / s`, in whole ticks. For example, 10 ticks for
    2 partners on one plane with a delay of 3 take 16.

    A packet network of :math:`r` times the rate of a circuit may carry a part. Then only some
    :math:`k` entries, the largest ones, have circuits. Two things bound the time: both kinds of
    network together carry all, :math:`(S + k \delta) / (s + r)`, and packets carry the rest. The
    :math:`k` with the least time counts.

    Parameters
    ----------
    problem
        The demand. With objective ``"matchings"`` the bound is a number of slots, else it is in
        seconds.

    Returns
    -------
    array of float, shape (2 * ports,)
        In the unit of the objective, for the rows by source, then the columns by destination.
    """
    if problem.packet_share > 0:
        # Each source, then each destination, with its positive entries alone.
        bounds = []
        for matrix in (problem.directed_ticks, problem.directed_ticks.T):
            for line in matrix:
                bounds.append(_bound_line_with_packets(line[line > 0], problem))
        return np.asarray(np.array(bounds) * problem.tick_s, dtype=np.float64)

    busy_ticks, n_partners = _line_sums(problem)
    if problem.objective == "matchings":
        return n_partners.astype(np.float64)

    # A port with fewer partners than planes counts a delay for each plane: on fewer planes it
    # would be busy for longer.
    n_delays = np.where(n_partners > 0, np.maximum(n_partners, problem.planes), 0)
    all_ticks = busy_ticks + n_delays * problem.delay_ticks
    bound_ticks = -(-all_ticks // problem.planes)  # rounded up
    return np.asarray(bound_ticks * problem.tick_s, dtype=np.float64)


def _line_sums(problem: _DemandInTicks) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each line how many ticks it is busy, and with how many partners.

    Each entry lasts one shortest slot at least. Both arrays have shape (2 * ports,): the rows,
    then the columns. Where entries are few, the time is theirs and not that of the matrix.
    """
    ticks = problem.ticks
    n_ports = len(ticks)
    places = problem.entry_places
    if places is not None:
        sources, destinations = np.divmod(places, n_ports)
        lines = np.concatenate([sources, n_ports + destinations])
        lengths = np.maximum(ticks.reshape(-1)[places], problem.min_slot_ticks)
        busy_ticks = np.zeros(2 * n_ports, dtype=np.int64)
        np.add.at(busy_ticks, lines, np.tile(lengths, 2))
        return busy_ticks, np.bincount(lines, minlength=2 * n_ports)

    # A full matrix: rows and columns are added up as they are.
    lengths = ticks
    if problem.min_slot_ticks > 1:
        lengths = np.where(ticks > 0, np.maximum(ticks, problem.min_slot_ticks), 0)
    busy_ticks = np.concatenate([lengths.sum(axis=1), lengths.sum(axis=0)])
    n_partners = np.concatenate([np.count_nonzero(ticks, axis=1), np.count_nonzero(ticks, axis=0)])
    return busy_ticks, n_partners


def bound_together(problem: _DemandInTicks) -> float:
    r"""Bound the objective from below by the length and the number of all slots together.

    A *line* is all that one port sends, or all that it receives. A slot connects ports in pairs
    for some time, with a delay :math:`\delta` before it. All slots together last :math:`D` ticks
    or more, the sum of the busiest line, and there are :math:`K` slots or more, the most partners
    that a port has. Example: one port has to send for 10 ticks, another one to 5 partners. If all
    circuits stop in delays of 2 ticks, the demand takes :math:`10 + 5 \cdot 2 = 20` ticks.

    With :math:`s` switches side by side (planes) the objective is at least

    - :math:`K`, if the number of slots is minimised (``"matchings"``);
    - :math:`\lceil (D + K \delta) / s \rceil` ticks, if all circuits stop at each change
      (``"all-stop"``);
    - :math:`\lceil C / s \rceil` ticks, if circuits that stay go on (``"per-circuit"``), where
      :math:`C` is as below, and 0 unless ports are bidirectional.

    If ports are bidirectional, at most :math:`k = \lfloor n / 2 \rfloor` pairs of the :math:`n`
    ports with demand have circuits at once. There are :math:`m` pairs with :math:`T` ticks in all.
    Hence :math:`D \ge \lceil T / k \rceil` and :math:`K \ge \lceil m / k \rceil`. With per-circuit
    switching each pair takes its ports for a delay, too: :math:`C = \lceil (T + m \delta) / k
    \rceil`.

    Parameters
    ----------
    problem
        The demand. Each of its entries counts the shortest slot at least.

    Returns
    -------
    float
        A number of slots with objective ``"matchings"``, else seconds. 0 if there is no demand, or
        if a packet network may carry a part of it.
    """
    ticks = problem.ticks
    delay_ticks = problem.delay_ticks
    if problem.packet_share > 0:
        return 0.0

    # The durations and the number of all slots, by the busiest lines.
    line_ticks, n_partners = _line_sums(problem)
    busy_ticks = int(line_ticks.max(initial=0))
    n_slots = int(n_partners.max(initial=0))
    if not n_slots:
        return 0.0
    per_circuit_ticks = 0
    if problem.fabric.bidirectional:
        # Each pair once, for one shortest slot at least.
        lengths = np.where(ticks > 0, np.maximum(ticks, problem.min_slot_ticks), 0)
        pair_ticks = lengths[np.triu(lengths) > 0]
        total_ticks = int(pair_ticks.sum())
        n_pairs = len(pair_ticks)
        n_busy_ports = int(np.count_nonzero(ticks.any(axis=0)))
        most_circuits = n_busy_ports // 2
        busy_ticks = max(busy_ticks, _divide_up(total_ticks, most_circuits))
        n_slots = max(n_slots, _divide_up(n_pairs, most_circuits))
        per_circuit_ticks = _divide_up(total_ticks + n_pairs * delay_ticks, most_circuits)

    if problem.objective == "matchings":
        return float(n_slots)
    bound_ticks = per_circuit_ticks
    if problem.switching == "all-stop":
        bound_ticks = busy_ticks + n_slots * delay_ticks
    return float(_divide_up(bound_ticks, problem.planes) * problem.tick_s)


def _divide_up(dividend: int, divisor: int) -> int:
    """Divide and round up."""
    return -(-dividend // divisor)


def _bound_line_with_packets(entries: NDArray[np.int64], problem: _DemandInTicks) -> float:
    """Bound one line beside a packet network, over all numbers of partners that get circuits.

    A line is a source or a destination with all its entries, in ticks; its sum is S. If the k
    largest entries get circuits on s of the planes, each plane spends a delay for each of its
    partners, and circuits and packets together carry S: (S + max(k, s) delays) / (s + r) ticks,
    where packets carry r ticks of a circuit in a tick. The other entries are left to packets
    alone, and take their sum / r. The later end of both counts, and the best k.
    """
    packet_share = problem.packet_share
    planes = problem.planes
    total = int(entries.sum())

    # With circuits for the k largest entries, packets carry the others: by_packets[k].
    largest_first = np.sort(entries)[::-1]
    by_packets = total - np.concatenate([[0], np.cumsum(largest_first)])
    best = inf
    for n_partners, packet_ticks in enumerate(by_packets.tolist()):
        # As many planes are used as there are partners, or all of them.
        numbers_of_planes = {min(n_partners, planes), planes if n_partners else 0}
        circuit_bound = inf
        for n_planes in numbers_of_planes:
            n_delays = max(n_partners, n_planes)
            all_ticks = total + n_delays * problem.delay_ticks
            circuit_bound = min(circuit_bound, all_ticks / (n_planes + packet_share))
        best = min(best, max(circuit_bound, packet_ticks / packet_share))
    return best


EXACT = 12
"""The most groups whose best order in the relaxation is found; more groups are not all ordered."""


def check_groups(problem: _GroupedDemand) -> None:
    """Check the groups of a demand, their weights and their deadlines.

    A *group* (coflow) is a set of entries of the demand that belong to one task: it is complete
    when all of them are sent. Only the objective ``"weighted-completion-s"`` knows groups.

    Parameters
    ----------
    problem
        A demand with any objective. The fields that are read here:

        - ``demand_bytes[source, destination]``: the bytes of each entry;
        - ``groups[source, destination]``: the group of the entry, from 0, or -1 for none. The
          whole field is None if there are no groups;
        - ``weights``, ``deadlines_s``: a number for each group, or empty;
        - ``objective``, ``planes``, ``switching``, ``packet_bytes_per_s``, ``fabric``: groups are
          defined only for one switch all of whose circuits stop at each change.

    Raises
    ------
    InputError
        If groups, weights or deadlines are given for another objective, if groups are missing or
        do not fit the demand, or if the switch is not one that groups are defined for.
    """
    groups = problem.groups

    # Groups are of one objective alone.
    if problem.objective != "weighted-completion-s":
        if groups is not None or problem.weights or problem.deadlines_s:
            raise InputError(
                "groups, weights and deadlines_s are for objective weighted-completion-s",
                where="objective",
            )
        return

    # Each entry of the demand belongs to one group.
    if groups is None or groups.shape != problem.demand_bytes.shape:
        raise InputError("groups: a group for each entry of demand_bytes", where="groups")
    if (
        problem.planes > 1
        or problem.packet_bytes_per_s > 0
        or problem.switching != "all-stop"
        or problem.fabric.bidirectional
    ):
        raise InputError(
            "objective weighted-completion-s is for all-stop circuits from inputs to outputs, on"
            " one plane, without packet network",
            where="objective",
        )
    # Each entry with bytes has a group, and groups are numbered from 0.
    without_group = np.argwhere((problem.demand_bytes > 0) & (groups < 0))
    if len(without_group):
        source, destination = without_group[0]
        raise InputError(
            f"groups[{source}, {destination}] = -1: the entry of demand_bytes has no group",
            where=f"groups[{source}, {destination}]",
        )
    n_groups = int(groups.max(initial=-1)) + 1
    if n_groups > groups.size:
        raise InputError(f"groups: number {n_groups - 1} of {groups.size} entries", where="groups")

    # Weights and deadlines are given for all groups, or for none.
    for name in ("weights", "deadlines_s"):
        n_values = len(getattr(problem, name))
        if n_values not in (0, n_groups):
            raise InputError(
                f"{name} has {n_values} entries, there are {n_groups} groups", where=name
            )


def weigh_groups(problem: _GroupedDemand) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weight and deadline in seconds of each group, 1 and 0 where none are given."""
    n_groups = int(problem.groups.max(initial=-1)) + 1
    weights = np.array(problem.weights or (1.0,) * n_groups)
    deadlines_s = np.array(problem.deadlines_s or (0.0,) * n_groups)
    return weights, deadlines_s


def load_lines(problem: _GroupedDemand) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sum the ticks of circuits and the ticks of delays of each group on each line.

    There is one delay for each entry; both arrays have shape (groups, 2 * ports), for sources,
    then destinations.
    """
    n_ports = problem.fabric.n_ports
    weights, _ = weigh_groups(problem)
    shape = (len(weights), 2 * n_ports)
    served = np.zeros(shape, dtype=np.int64)
    delayed = np.zeros(shape, dtype=np.int64)
    sources, destinations = np.nonzero(problem.ticks)
    group = problem.groups[sources, destinations]

    # Each entry loads its source, and its destination, whose number comes after all sources.
    for line in (sources, n_ports + destinations):
        np.add.at(served, (group, line), problem.ticks[sources, destinations])
        np.add.at(delayed, (group, line), problem.delay_ticks)
    return served, delayed


def bound_groups(problem: _GroupedDemand) -> float:
    """Bound from below the weighted lateness of the groups of a demand in any schedule.

    The bound is that of a relaxation in which each port serves its own groups, whatever other
    ports do (`order_groups`).
    """
    weights, deadlines_s = weigh_groups(problem)
    served, delayed = load_lines(problem)
    _, bound_ticks = order_groups(served, delayed, weights, deadlines_s / problem.tick_s)
    return bound_ticks * float(problem.tick_s)


def order_groups(
    served: NDArray[np.int64],
    delayed: NDArray[np.int64],
    weights: NDArray[np.float64],
    due: NDArray[np.float64],
) -> tuple[list[int], float]:
    """Order groups of transfers to be late as little as possible, and bound what any order costs.

    A *group* (coflow) is complete when all of its transfers are. Its cost is its weight times the
    time from its deadline to its completion. A *line* is a port that sends or one that receives.
    A line serves one group at a time; time is counted in ticks.

    This is the concurrent open shop problem: each group needs some time of every machine, and is
    complete when the last machine has served it. Here a machine is a pair of lines: the ticks of
    circuits on the first line and the delays on the second one, which may be the same line.

    While there are more than `EXACT` groups, the primal-dual rule of [1]_ finds the last one:

    1. Take the machine that all remaining groups need for the longest time.
    2. The last group is the one with the smallest quotient of its weight and its time there. This
       quotient is the price of a tick.
    3. Each group pays a part of its weight, the price times its time on the machine; the last
       group pays all that it has. Groups whose weights are such payments cost the same in every
       order, ``price * (T**2 + sum(t**2)) / 2`` for times t of sum T, less the price times the
       deadlines. This is added to the bound.
    4. If the last group costs more than that even when it is served alone, its own cost is added
       instead, and no group pays.

    The groups that are left are put in the best order for the rest of their weights, by dynamic
    programming over sets, and its cost is added to the bound.

    As an example of one step, two groups of weight 1 need 2 and 6 ticks of one machine and have no
    deadlines. The second one has the smaller weight for each tick, 1/6, and comes last. Both pay
    1/6 for each tick, together 1/6 * (64 + 40) / 2 = 8 2/3. The first one has 2/3 of its weight
    left and costs 2/3 * 2 more. The bound is 10, which is the cost of this order: 2 + 8.

    Parameters
    ----------
    served : array of int, shape (groups, lines)
        Ticks of circuits that each group needs on each line: sources, then destinations.
    delayed : array of int, shape (groups, lines)
        Ticks of delays that it needs there: one delay for each of its entries.
    weights : array, shape (groups,)
        The cost of a tick of lateness.
    due : array, shape (groups,)
        The deadlines in ticks.

    Returns
    -------
    order : list of int
        The groups, the first one first.
    bound : float
        The weighted lateness of no order is less: weights times ticks.

    References
    ----------
    .. [1] Mastrolilli, Queyranne, Schulz, Svensson and Uhan (2010), Minimizing the sum of weighted
       completion times in a concurrent open shop, doi 10.1016/j.orl.2010.04.011.
    """
    unpaid_weights = weights.astype(np.float64)
    bound = 0.0
    unordered = np.arange(len(weights))
    last_first: list[int] = []
    while len(unordered) > EXACT:
        # The busiest machine: a line for circuits, and one for delays, perhaps another.
        busiest_served = served[unordered].sum(axis=0).argmax()
        busiest_delayed = delayed[unordered].sum(axis=0).argmax()
        times = served[unordered, busiest_served] + delayed[unordered, busiest_delayed]

        # The group of the smallest weight for each tick comes last. Groups that do not use the
        # machine cannot pay for it.
        prices = np.full(len(unordered), np.inf)
        np.divide(unpaid_weights[unordered], times, out=prices, where=times > 0)
        place = int(prices.argmin())
        group = unordered[place]
        price = prices[place] if times.any() else 0.0

        # All groups pay the price for their time on the machine, the last one with all its weight.
        # One machine has the same cost in every order if weights are proportional to times.
        cost_of_any_order = (times.sum() ** 2 + (times**2).sum()) / 2
        payment = price * (cost_of_any_order - times @ due[unordered])
        own_time = served[group].max() + delayed[group].max()
        own_cost = unpaid_weights[group] * max(0.0, own_time - due[group])
        if payment >= own_cost:
            paid = price * times
            unpaid_weights[unordered] = np.maximum(unpaid_weights[unordered] - paid, 0.0)
        bound += float(max(payment, own_cost))
        last_first.append(int(group))
        unordered = np.delete(unordered, place)

    order, cost = _order_exactly(
        served[unordered], delayed[unordered], unpaid_weights[unordered], due[unordered]
    )
    first_groups = unordered[order].tolist()
    return [*first_groups, *reversed(last_first)], bound + cost


class _BestOrders(NamedTuple):
    """The best order of each set of groups; group k is in a set if bit k of its number is 1."""

    cost: NDArray[np.float64]  # (sets,): the least weighted lateness of the groups of the set
    last_group: NDArray[np.int64]  # (sets,): the group that is last in this order


def _order_exactly(
    served: NDArray[np.int64],
    delayed: NDArray[np.int64],
    weights: NDArray[np.float64],
    due: NDArray[np.float64],
) -> tuple[list[int], float]:
    """Find the best order of few groups, and its cost, by dynamic programming over sets.

    ``weights[group]`` times the ticks after ``due[group]`` is the cost of a group; the order lists
    groups, the first one first. This is the method of Held and Karp. The last group of an order
    ends when every line has served all groups of the order, whichever order it is. The cost of a
    set of groups is therefore the least, over the choice of the last one, of the cost of the
    others in their best order plus the cost of the last one. Sets are numbers: group k is in set s
    if bit k of s is 1; for example, set 5 has the groups 0 and 2.
    """
    n_groups = len(weights)
    n_sets = 1 << n_groups

    # ``end[set]``: when the last group of a set ends, whichever it is.
    end = _busiest_line_of_sets(served) + _busiest_line_of_sets(delayed)
    lateness = np.maximum(end - due[:, None], 0.0)
    cost_if_last = weights[:, None] * lateness  # [group, set]

    best = _BestOrders(np.full(n_sets, np.inf), np.zeros(n_sets, dtype=np.int64))
    best.cost[0] = 0.0
    sets = np.arange(n_sets)

    # After round k, sets of k groups have their final costs.
    for _ in range(n_groups):
        for group in range(n_groups):
            (sets_with_group,) = np.nonzero(sets >> group & 1)

            # A set with the group, less the group, was settled in an earlier round.
            sets_without = sets_with_group ^ (1 << group)
            cost = best.cost[sets_without] + cost_if_last[group, sets_with_group]
            is_better = cost < best.cost[sets_with_group]
            improved_sets = sets_with_group[is_better]
            best.cost[improved_sets] = cost[is_better]
            best.last_group[improved_sets] = group

    # From the set of all groups back to the empty one.
    last_first: list[int] = []
    remaining = n_sets - 1
    while remaining:
        group = int(best.last_group[remaining])
        last_first.append(group)
        remaining ^= 1 << group
    return last_first[::-1], float(best.cost[-1])


def _busiest_line_of_sets(load: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return for each set of groups the load of its busiest line, from ``load[group, line]``.

    Bit k of a set is 1 if group k is in it. The sums of all sets of the first groups double with
    each further group: first those without it, then those with it.
    """
    busiest = np.zeros(1 << len(load))
    for load_of_groups in load.T:
        sums = np.zeros(1)
        for load_of_group in load_of_groups:
            sums = np.concatenate([sums, sums + load_of_group])
        np.maximum(busiest, sums, out=busiest)
    return busiest

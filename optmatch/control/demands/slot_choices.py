"""Which slot of a rolling schedule comes next: for short waits, or by a plan of the queue.

A *committed* slot is one that is fixed already; what it serves is *reserved* and waits for no
other slot. What committed slots leave of the queue is *uncommitted*. The *hold* of a slot is its
least length in ticks, unless less waits: it grows with the queue, so that delays take a smaller
share of the time when much waits. The *worth* of a circuit is a number by which circuits are
compared: the fifth root of the flows that wait for it, times a factor that is greater for short
flows. This factor matters less the more flows wait.
"""

from __future__ import annotations

from math import ceil, gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.control.demands.flows import FlowQueue, Place
from optmatch.control.demands.rolling_state import TICKS_PER_S
from optmatch.entrances import solve
from optmatch.fabrics import Fabric
from optmatch.model import IDLE
from optmatch.model.limits import counted_time
from optmatch.model.schedule import Switching
from optmatch.problems import Demand

_COUNT_POWER = 0.2
_USED_POWER = 0.5
"""The worth of a circuit is the number of flows that wait for it to the first power, times the
used part of a hold to the second one; both are tuned as `_HOLD` is. With a count to the power of
0.4, flows of half a delay wait 3 to 8 % longer at loads of 0.9 and 0.95; with 0.1, flows of 20
delays do 4 %. With the used part itself, flows of half a delay between two partners wait 15 %
longer at 0.95; with its power 0.25, those between many partners wait 3 % longer at 0.9."""

_CHANGE_COST = 3.0
_CHANGE_HORIZON = 4
"""A matching gives way to one whose additional worth, during a slot and the second number of
delays, is more than all of its worth during the first number. With a cost of 1.5, flows of half a
delay between two partners wait 16 % longer at a load of 0.95; with 6, those between all partners
wait 31 % longer at 0.9. With a horizon of 2 or 8, waits differ by 3 % at most. Tuned as
`_HOLD` is.
"""

_STAYING_FACTOR = 1.2
"""Where only circuits that change wait for the delay, a circuit that stays is worth so often as
much."""

_MOST_DELAYS = 10
"""A slot is not made longer than so many delays to complete a flow: new demand does not wait long.
With 5 or 20 mean waits differ by less than 1 %. Tuned as `_HOLD` is."""

_BASE_HOLD = 1.0
_HOLD = 0.13
_HOLD_OF_SHORT_FLOWS = 1.45
_HOLD_GROWTH = 0.8
"""A slot lasts ``base + (hold + hold_of_short_flows / (1 + f)) * q**growth`` delays at least,
where a flow takes f delays in the mean and q delays wait for a circuit. Tuned on the 24 cells of
`benchmarks/rolling_stability.py` below overload, against the heaviest matching in slots of 5 and
20 delays. With 0.2 for all flows, those of 20 delays at a load
of 0.95 wait 5 to 10 % longer; with 0.1, slots are a fifth shorter for no gain. With 1.0 for short
flows, those of half a delay at 0.9 wait 1.4 times as long, and with a growth of 0.75 10 % longer.
With a base of 2, flows of 15 of these cells wait 3 % longer in the mean, and 22 % in one of them.
"""

_URGENT_FACTOR = 10.0
"""A circuit is worth so often as much while a deadline of it is near and can still be met."""


class Uncommitted(NamedTuple):
    """The part of a queue that committed slots leave."""

    queue: FlowQueue
    left: NDArray[np.float64]
    """``left[source, destination]``: ticks that wait beyond committed slots."""
    rate: NDArray[np.float64]
    """``rate[source, destination]``: the most flows that a circuit completes per tick, if it is
    held for the best number of flows; a flow of weight 2 counts as two."""
    reserved: dict[Place, int]
    """Ticks that committed slots serve, by circuit."""
    urgent: set[Place]
    """The circuits of flows whose deadlines are near and can still be met."""

    @classmethod
    def of(cls, queue: FlowQueue, reserved: dict[Place, int], now_tick: int) -> Uncommitted:
        """Sum up what waits beyond the slots that are committed already.

        The figures of the queue stay as they are, but flows whose deadlines are near at `now_tick`
        go before others on their circuits from now on.
        """
        # Only circuits of committed slots differ from the figures that the queue keeps.
        urgent = set(queue.urgent_places(now_tick))
        left = queue.left.copy()
        rate = queue.rate.copy()
        for place, ticks in reserved.items():
            entry = queue.look(place, ticks)
            left[place] = entry.ticks
            rate[place] = entry.rate
        return cls(queue, left, rate, reserved, urgent)


class SlotChoice(NamedTuple):
    """The circuits of the next slot, and how long they carry."""

    matching: NDArray[np.int32]
    """``matching[source] = destination``, -1 where idle."""
    ticks: int
    """How long it is held after the delay."""


class PlannedSlots(NamedTuple):
    """Slots that are planned for a queue, in any order."""

    matchings: NDArray[np.int32]
    """``matchings[slot, source] = destination``, -1 where idle."""
    ticks: list[int]
    """How long each is held, > 0."""


class SlotChooser:
    r"""Chooses the next slot: for short waits, and for finite queues at high loads.

    The matching of the next slot has the greatest worth: the sum over its circuits of
    :math:`(r w)^{1/5} r^{1/(1+m)} \sqrt{\min(w/h, 1)}`, where w is the time that a circuit has to
    carry what waits for it, r the rate at which it can complete flows, m the number of flows that
    wait for a port in the mean, and h the hold; the weight of flows is a factor. A matching gives
    way only to one whose worth exceeds its own by more than the delay costs. A slot lasts until a
    flow is complete, and at least for the hold :math:`h = \delta (1 + c (q / \delta)^{0.8})`,
    where :math:`\delta` is the reconfiguration delay, q what waits for a circuit of the heaviest
    matching in the mean, and c from 0.13 to 1.58, the more the shorter flows are.

    When much waits, m is great, r is the inverse of the mean size of the flows, and the worth of a
    circuit is close to a constant times the power 1/5 of what waits for it. The matching of the
    greatest sum of any power > 0 of what waits (MaxWeight) keeps queues finite for every load that
    can be carried at all, if changes cost nothing; small powers gave shorter queues in the studies
    cited there [3]_.
    With delays, the first power of what waits does so if holds grow with the queue, but slower
    than it, or if a matching gives way only to one that is worth enough more [1]_, [2]_: the share
    of time that delays take vanishes, while the matching stays nearly the one of the greatest
    worth. Here both are so when much waits, with another power. This very rule has no proof: for
    queues shorter than a hold, and for flows that are due or urgent, it departs from those of the
    theorems. When little waits, m is small, and circuits that complete flows at the greatest rate
    come first (Smith's rule [4]_).

    References
    ----------
    .. [1] Wang and Javidi (2015). Adaptive policies for scheduling with reconfiguration delay: an
       end-to-end solution for all-optical data centers. https://arxiv.org/abs/1511.03417
    .. [2] Celik, Borst, Whiting and Modiano (2016). Dynamic scheduling with reconfiguration
       delays. *Queueing Systems* 83, 87-129. https://doi.org/10.1007/s11134-016-9471-4
    .. [3] Shah and Wischik (2012). Switched networks with maximum weight policies: fluid
       approximation and multiplicative state space collapse. *Annals of Applied Probability* 22,
       70-127. https://doi.org/10.1214/11-AAP759
    .. [4] Smith (1956). Various optimizers for single-stage production. *Naval Research Logistics
       Quarterly* 3, 59-66. https://doi.org/10.1002/nav.3800030106
    """

    def __init__(self, delay: int, switching: Switching) -> None:
        """Make a chooser for a switch of a delay in ticks; it keeps no state between slots."""
        self._delay = delay
        self._switching = switching

    def choose(
        self,
        uncommitted: Uncommitted,
        present_matching: NDArray[np.int32],
        required: Place | None,
        offers: NDArray[np.int32] | None,
    ) -> SlotChoice:
        """Choose the matching of the next slot, and for how many ticks it is held.

        It has the circuit `required`, unless that is None. `present_matching` are the circuits
        that are up. `offers` are the matchings there are, shape (matchings, n), None for all. A
        matching is the destination of each source, -1 where idle.
        """
        # Urgent circuits are worth more, so that they come while their deadlines can be met.
        hold = self._hold(uncommitted, required)
        worth = _worth_of_circuits(uncommitted, hold)
        for place in uncommitted.urgent:
            worth[place] *= _URGENT_FACTOR
        matching = self._choose_matching(
            uncommitted, present_matching, required, offers, worth, hold
        )
        return SlotChoice(matching, self._choose_length(uncommitted, matching, hold))

    def _choose_matching(
        self,
        uncommitted: Uncommitted,
        present_matching: NDArray[np.int32],
        required: Place | None,
        offers: NDArray[np.int32] | None,
        worth: NDArray[np.float64],
        hold: int,
    ) -> NDArray[np.int32]:
        """Choose the circuits that are worth most, or stay with those that are up.

        ``present_matching[source]`` is a destination, -1 for none; with `offers`, rows like it,
        the candidate is one of these. ``worth[source, destination]`` is that of each circuit,
        `required` is a circuit that the matching has to have, and `hold` is in ticks. The
        candidate is the matching of greatest worth. If all circuits wait for a change (all-stop),
        it is taken only if the gain is above the cost:

        - gain: (its worth - present worth) * horizon;
        - cost: its worth * `_CHANGE_COST` delays;
        - horizon: the hold or, if longer, the mean flow (`_MOST_DELAYS` delays at most), and
          `_CHANGE_HORIZON` delays more.

        If only circuits that change wait (per-circuit), the worth of each circuit that is up is
        multiplied by `_STAYING_FACTOR` instead, in `worth` itself, and the candidate is always
        taken.
        """
        ports = np.arange(len(present_matching))
        still_serves = (present_matching != IDLE) & (uncommitted.left[ports, present_matching] > 0)
        staying = np.where(still_serves, present_matching, IDLE)

        # Where only circuits that change wait, each that stays saves its own delay, and is
        # favoured one by one.
        if self._switching == "per-circuit":
            worth[ports[still_serves], staying[still_serves]] *= _STAYING_FACTOR
        if offers is not None:
            allowed = offers if required is None else offers[offers[:, required[0]] == required[1]]
            best = np.asarray(max(allowed, key=lambda row: _worth_of(row, worth)))
        else:
            best = _heaviest_matching(worth, required)

        # In three cases the candidate is taken without a comparison: only changed circuits wait
        # for the delay, or the present matching lacks the circuit that must be there, or it has
        # nothing to carry.
        lacks_required = required is not None and staying[required[0]] != required[1]
        if self._switching == "per-circuit" or lacks_required or not still_serves.any():
            return best

        # A change has to be worth the delay of all circuits, within the time for which the new
        # matching is likely to be held.
        best_worth = _worth_of(best, worth)
        usual_flow = min(_mean_flow(uncommitted), _MOST_DELAYS * self._delay)
        horizon = max(hold, usual_flow) + _CHANGE_HORIZON * self._delay
        gain = (best_worth - _worth_of(staying, worth)) * horizon
        cost = _CHANGE_COST * self._delay * best_worth
        return best if gain > cost else staying

    def _choose_length(
        self, uncommitted: Uncommitted, matching: NDArray[np.int32], hold: int
    ) -> int:
        """Choose how long a matching is held: until a flow is complete, and at least the hold.

        With the delay d, the time f until the first flow is complete and the time b that the
        busiest circuit needs, the length is ``min(max(hold, min(max(f, d), 10 * d)), b)``: one
        long flow may not let new demand wait, and no slot is longer than any circuit has something
        to carry. Without a delay changes cost nothing, and the slot ends with the first flow.
        """
        # Over all circuits: the most ticks that wait, and the fewest until a flow is complete.
        # Ticks that committed slots serve are skipped.
        longest = 0
        first_complete: int | None = None
        for source, destination in enumerate(matching.tolist()):
            if destination == IDLE:
                continue
            # One entry at a time: a list of them sets off the garbage collector, which looks
            # through the whole queue.
            place = (source, destination)
            entry = uncommitted.queue.look(place, uncommitted.reserved.get(place, 0))
            longest = max(longest, entry.ticks)
            if entry.ticks and (first_complete is None or entry.first < first_complete):
                first_complete = entry.first
        assert first_complete is not None, "a matching that is chosen serves a flow"

        # Neither shorter than a delay, nor so long that new demand would wait for many delays.
        ticks = max(first_complete, self._delay)
        if not self._delay:
            return min(ticks, longest)
        return min(longest, max(hold, min(ticks, _MOST_DELAYS * self._delay)))

    def _hold(self, uncommitted: Uncommitted, required: Place | None) -> int:
        """Return how many ticks a slot lasts at least, if as much is left to serve.

        The hold grows slower than what waits for a circuit, and is longer where flows are short.
        If the slot has to have the circuit `required`, only matchings with it are looked at.
        """
        if not self._delay:
            return 1

        # How much waits is measured at the circuits of the matching for which the most waits: what
        # has to go over one port after the other counts only once.
        matching = _heaviest_matching(uncommitted.left, required)
        n_circuits = max(1, int(np.count_nonzero(matching != IDLE)))
        waiting_delays = _worth_of(matching, uncommitted.left) / n_circuits / self._delay

        # The mean length of a flow, in delays; then the hold in delays by a rule that was tuned:
        # a constant, and a power below 1 of what waits, with a factor that falls from short flows
        # to long ones.
        flow_delays = _mean_flow(uncommitted) / self._delay
        factor = _HOLD + _HOLD_OF_SHORT_FLOWS / (1.0 + flow_delays)
        hold_delays = _BASE_HOLD + factor * waiting_delays**_HOLD_GROWTH

        # Eighths of a delay, so that times are round numbers where the delay is one.
        return int(8 * hold_delays) * self._delay // 8 or 1


def _mean_flow(uncommitted: Uncommitted) -> float:
    """Return the mean length in ticks of the flows that wait beyond committed slots.

    Flows that committed slots serve are counted, but not what these slots carry of them.
    """
    n_flows = max(1.0, float(uncommitted.queue.n_flows.sum()))
    return float(uncommitted.left.sum()) / n_flows


def _worth_of_circuits(uncommitted: Uncommitted, hold: int) -> NDArray[np.float64]:
    """Return ``worth[source, destination]`` >= 0, more for circuits of many and of short flows.

    The *rate* of a circuit is the flows that it completes per tick, without their weights: the
    most that it can, or, if its flows are shorter than the `hold` ticks of a slot, their mean. The
    worth is 0 where nothing waits, and else a product of

    - the fifth root of a number of flows: the rate times the ticks that wait. The root lets
      circuits with few flows have their turn;
    - the rate to the power of 1 / (1 + m), where m flows wait for a port in the mean: while little
      waits, circuits with short flows come first; while much waits, those with many flows do;
    - the square root of the part of `hold` ticks for which the circuit has something to carry;
    - the mean weight of its flows, 1 where nobody gives weights.
    """
    # Where flows are shorter than a slot, it completes many: their mean counts, not the shortest.
    # Each flow counts as its weight; rates are divided by the mean weight again below.
    mean_weight = uncommitted.queue.mean_weight()

    # With mean weight w and the hold h, flows of a circuit are short if its best rate,
    # `uncommitted.rate`, is above w / h, which is one flow in a slot. Then the mean rate counts,
    # all weight over all ticks that wait, but no less than w / h, and never more than the best
    # rate. Example with h = 10: flows of 1, 1, 1 and 7 ticks have the best rate 1, and the mean
    # rate 4 / 10.
    total_weight = uncommitted.queue.n_flows * mean_weight
    mean_rate = np.divide(
        total_weight,
        uncommitted.left,
        out=np.zeros_like(uncommitted.left),
        where=uncommitted.left > 0,
    )
    one_per_slot = mean_weight / hold
    rate = np.where(
        uncommitted.rate * hold > mean_weight,
        np.maximum(mean_rate, one_per_slot),
        uncommitted.rate,
    )
    rate = np.minimum(rate, uncommitted.rate) / mean_weight
    n_flows = rate * uncommitted.left

    # Short flows count the less the more flows wait, or long ones would pile up at high loads. In
    # flows for each hold, not for each tick, rates are near 1, and sums of worth stay exact.
    flows_per_port = float(uncommitted.queue.n_flows.sum()) / len(uncommitted.left)
    preference = (rate * hold) ** (1.0 / (1.0 + flows_per_port))

    # Weights are not subject to the root: a flow of twice the weight is worth twice as much.
    used_part = np.minimum(uncommitted.left / hold, 1.0)
    worth = n_flows**_COUNT_POWER * preference * used_part**_USED_POWER
    return np.asarray(mean_weight * worth)


def _worth_of(matching: NDArray[np.int32], worth: NDArray[np.float64]) -> float:
    """Add up the worth of the circuits of a matching."""
    used = np.flatnonzero(matching != IDLE)
    return float(worth[used, matching[used]].sum())


def _heaviest_matching(worth: NDArray[np.float64], required: Place | None) -> NDArray[np.int32]:
    """Return the matching of the greatest worth that has `required` (linear assignment problem).

    It is -1 for ports whose circuit would be worth nothing.
    """
    from scipy.optimize import linear_sum_assignment

    value = worth
    if required is not None:
        value = worth.copy()

        # More than all other circuits together can be worth, so the circuit is always chosen. Not
        # more than needed: what is small beside it would be lost to rounding.
        most_worth = float(worth.max(axis=1).sum())
        value[required] = 2.0 * most_worth if most_worth > 0 else 1.0
    rows, columns = linear_sum_assignment(value, maximize=True)
    return np.where(value[rows, columns] > 0, columns, IDLE).astype(np.int32)


class QueuePlan:
    """A plan of the whole queue: its matchings, and how many ticks each is held.

    Parameters
    ----------
    fabric
        The switch.
    delay
        The reconfiguration delay in ticks.
    limit_s
        How long a plan may take, in seconds; None for a number of steps.
    any_matching
        Whether the fabric holds every matching, so that quick rules may plan.
    """

    def __init__(
        self, fabric: Fabric, delay: int, limit_s: float | None, any_matching: bool
    ) -> None:
        """Begin without a plan of the queue."""
        self._fabric = fabric
        self._delay = delay
        self._limit_s = limit_s
        self._any_matching = any_matching
        self._last_matchings = np.empty((0, fabric.n_ports), dtype=np.int32)
        self.n_late = 0
        """How often no plan was found in time, and `_plan_at_once` took its place."""
        self.forget()

    def forget(self) -> None:
        """Plan anew the next time."""
        self.slots: PlannedSlots | None = None
        """What is still planned."""
        self.outdated = True
        """Whether demand has come or gone since."""

    def take_slot(
        self, uncommitted: Uncommitted, present_matching: NDArray[np.int32]
    ) -> SlotChoice:
        """Take the next slot out of a plan, the one for which the switch has to change least.

        ``present_matching[source]`` is the destination of the circuit that is up, -1 for none. A
        slot that needs no change at all comes first, then those that keep the most circuits. Only
        `_MOST_DELAYS` delays of it are taken at most; ``self.slots`` is what is left of the plan.
        """
        # By slot and source port: whether its circuit has something to carry (`serves`), and
        # whether it is up already (`keeps`).
        plan = self.make(uncommitted)
        ports = np.arange(len(uncommitted.left))
        serves = (plan.matchings != IDLE) & (uncommitted.left[ports, plan.matchings] > 0)
        keeps = serves & (plan.matchings == present_matching)

        # Slots that need no change come first, then those that keep the most circuits.
        goes_on = (keeps | ~serves).all(axis=1)

        # lexsort sorts by its last key, and among equals by the first one: slots that go on, then
        # the most circuits kept.
        next_slot = int(np.lexsort((-keeps.sum(axis=1), ~goes_on))[0])

        # A long slot is committed in parts: what comes in between can be planned for. Without a
        # delay, changes cost nothing, and the whole slot is taken.
        longest = _MOST_DELAYS * self._delay or plan.ticks[next_slot]
        ticks = min(plan.ticks[next_slot], longest)
        ticks_left = list(plan.ticks)
        ticks_left[next_slot] -= ticks

        # The rest of this slot, and all others, stay planned.
        remaining = [slot for slot, left in enumerate(ticks_left) if left > 0]
        if remaining:
            remaining_ticks = [ticks_left[slot] for slot in remaining]
            self.slots = PlannedSlots(plan.matchings[remaining], remaining_ticks)
        else:
            self.slots = None
        return SlotChoice(plan.matchings[next_slot], ticks)

    def make(self, uncommitted: Uncommitted) -> PlannedSlots:
        """Return the plan of the queue: the one that there is if it still holds, else a new one.

        Quick rules plan afresh and repair the remaining slots, and the plan that takes less time,
        delays included, is returned. A fabric that cannot hold every matching is planned anew by
        the default method of `Demand`. ``self.slots`` stays as it is.
        """
        if not self._any_matching:
            return self._solve(uncommitted)
        if self.slots is not None and not self.outdated:
            return self.slots
        from optmatch.solvers.demands.plans import Plan
        from optmatch.solvers.demands.portfolio import plan_matrix

        # The whole ticks of each circuit (source, destination) for which something waits; `left`
        # has them as floats, which may be rounded.
        self.outdated = False
        places = list(zip(*np.nonzero(uncommitted.left), strict=True))
        exact_ticks = [
            uncommitted.queue.total(place) - uncommitted.reserved.get(place, 0) for place in places
        ]

        # The plan is made in larger units: the greatest number of ticks that divides all times,
        # or, if more, so many ticks that the busiest port has at most 2^60 units. Times that are
        # no whole number of units are rounded up.
        busiest = max(
            uncommitted.left.sum(axis=0).max(),
            uncommitted.left.sum(axis=1).max(),
            float(self._delay),
        )
        unit = max(gcd(self._delay, *exact_ticks), ceil(busiest / 2**60))
        units = np.zeros(uncommitted.left.shape, dtype=np.int64)
        for place, ticks in zip(places, exact_ticks, strict=True):
            units[place] = -(-ticks // unit)
        delay = -(-self._delay // unit)

        # A plan made afresh competes with one that patches the former plan.
        former_plans: list[Plan | None] = [None]
        if self.slots is not None:
            former_units = [-(-ticks // unit) for ticks in self.slots.ticks]
            former_plans.append(Plan(self.slots.matchings, np.array(former_units, dtype=np.int64)))
        limit_s = np.inf if self._limit_s is None else self._limit_s
        plans = [
            plan_matrix(units, delay, counted_time() + limit_s, former) for former in former_plans
        ]
        best = min(plans, key=lambda plan: plan.cost(delay))
        return PlannedSlots(best.matchings, [unit * ticks for ticks in best.ticks.tolist()])

    def _solve(self, uncommitted: Uncommitted) -> PlannedSlots:
        """Plan for a fabric that cannot hold every matching, by the default method of `Demand`."""
        demand = Demand(
            self._fabric, uncommitted.left / TICKS_PER_S, delay_s=self._delay / TICKS_PER_S
        )
        solution = solve(demand, seed=0, time_limit_s=self._limit_s)
        if solution.schedule is None:
            self.n_late += 1
            return self._plan_at_once(uncommitted.left)

        # A little longer, so that rounding to seconds and back leaves nothing.
        ticks = np.ceil(solution.schedule.durations_s * TICKS_PER_S * (1 + 1e-12)).tolist()
        self._last_matchings = solution.schedule.matchings
        return PlannedSlots(self._last_matchings, [int(length) for length in ticks])

    def _plan_at_once(self, left: NDArray[np.float64]) -> PlannedSlots:
        """Plan without a search, where none has found a plan in time.

        Matchings of the last plan serve what they can, and each circuit that is missing has a slot
        of its own: the fabric holds both. ``left[source, destination]`` are the ticks that wait.
        """
        places = np.argwhere(left > 0)
        alone = np.full((len(places), len(left)), IDLE, dtype=np.int32)
        for matching, (source, destination) in zip(alone, places.tolist(), strict=True):
            matching[source] = destination
            if self._fabric.bidirectional:
                matching[destination] = source

        # What former slots of the plan serve waits no longer.
        unserved = left.copy()
        matchings = []
        slot_ticks = []
        for matching in [*self._last_matchings, *alone]:
            sources = np.flatnonzero(matching != IDLE)
            ticks = unserved[sources, matching[sources]].max(initial=0.0)
            if ticks:
                unserved[sources, matching[sources]] = 0.0
                matchings.append(matching)
                slot_ticks.append(ceil(ticks))
        return PlannedSlots(np.stack(matchings), slot_ticks)

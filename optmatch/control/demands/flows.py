"""The queue of a switch: flows that wait, in whole ticks, and which of them should go next.

A *demand* has a number and one *flow* or several, each for another *place*, which is the circuit
from a source to a destination. A flow is *due* when it goes before all others, and *overdue* when
the queue has noticed that; it is *urgent* while its deadline is near. A *committed* slot is fixed
already: its service is *reserved*, and is taken off the queue only while the slot runs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Place = tuple[int, int]
"""A source and a destination port."""

_URGENT_DELAYS = 12
"""A flow with a deadline is urgent from so many delays before its latest start on: the slot that
runs may last ten delays, and then its circuit has to be set up."""

_LEAST_WEIGHT = 1e-12

_MOST_FLOWS_SEEN = 8
"""Flows of a circuit that are looked at: the cost of a slot does not grow with the queue."""


@dataclass(eq=False, slots=True)
class Flow:
    """The part of one demand that goes over one circuit."""

    place: Place
    demand: int
    """The number of the demand."""
    ticks: int
    """How long its circuit has to carry it yet."""
    due: int
    """The tick from which on it goes before all others."""
    weight: float = 1.0
    """How much its wait counts."""
    deadline: int | None = None
    """The tick by which it should be complete; None if there is none."""
    number: int = -1
    """How many flows came before it; set by the queue."""
    is_overdue: bool = False
    """Whether the queue has found it due."""
    is_urgent: bool = False
    """Whether the queue has found its deadline near."""


_by_due = attrgetter("due", "number")
_by_number = attrgetter("number")


class Entry(NamedTuple):
    """The flows that wait for one circuit, beyond those that committed slots serve."""

    ticks: int
    """How long all of them need the circuit."""
    first: int
    """Ticks until a flow is complete."""
    rate: float
    """The most flows that are complete per tick, if the circuit is held as long as that takes."""


class _OverdueFlow(NamedTuple):
    """A flow that the next slot has to serve."""

    place: Place
    """Its circuit."""
    ticks: int
    """How long the circuit takes until the flow is complete, beyond committed slots; > 0."""


class Passed(NamedTuple):
    """The first flows of a circuit, which ticks of service that are taken for granted complete."""

    n_flows: int = 0
    ticks: int = 0
    """How long the circuit has to carry all of them."""


class Urgency(NamedTuple):
    """How much a demand counts, and by when it should be complete."""

    weight: float = 1.0
    """How much its wait counts, > 0."""
    deadline: int | None = None
    """A tick; None if there is none."""


@dataclass(eq=False, slots=True)
class Waiting:
    """A demand of which flows wait."""

    added: int
    """The tick at which it came."""
    done: int
    """The tick at which the last flow so far was complete."""
    urgency: Urgency
    flows: int = 0
    """How many of its flows wait."""
    has_lost: bool = False
    """Whether a port that failed has lost a flow of it, so that it can never be complete."""


PLAIN = Urgency()
"""The urgency of a demand of which nothing is said."""


@dataclass(eq=False, slots=True)
class Counts:
    """Sums over the demands that are complete, by deadline also over those that are lost."""

    weight: float = 0.0
    """Of all their weights."""
    weighted_wait: float = 0.0
    """Of their weights times their waits in ticks."""
    with_deadline: int = 0
    """How many had a deadline."""
    late: int = 0
    """How many of these were complete after it, or never."""


class FlowQueue:
    """Flows of all entries of a switch.

    Those of one entry are served in the order they came. Where some have weights or deadlines,
    those that are due come first, then those whose deadlines are near, then the heaviest ones.
    """

    def __init__(self, ports: int, delay: int) -> None:
        """Make an empty queue of a switch, with the reconfiguration delay in ticks.

        Every flow stands in two places: in the queue of its circuit, first come first, and in one
        of two sorted lists of the whole switch, by the tick at which it becomes due or, once it is
        overdue, by its number. The figures of circuits are ``[source, destination]``, in ticks,
        and are kept up to date as flows come and go.
        """
        self._delay = delay

        # The flows that wait for each circuit (source, destination), first come first, and the one
        # tuple that all flows of a circuit share.
        self._flows: dict[Place, deque[Flow]] = {}
        self._circuits: dict[Place, Place] = {}

        # Where `look` stopped to pass flows over when it was asked last: where thousands of flows
        # are committed, it need not pass all of them once more for the next slot.
        self._passed: dict[Place, Passed] = {}

        # The same flows once more, for the whole switch, in one of two sorted lists: those that
        # are not due yet by the tick at which they will be, the others by their order of arrival.
        # Lists, as in heaps complete flows would stay until they are on top, and go all at once.
        self._not_due = list[Flow]()  # sorted by `_by_due`
        self._overdue = list[Flow]()  # sorted by `_by_number`
        self._n_flows_ever = 0  # flows that have come so far; numbers them
        self._work = 0  # ticks of all flows that wait, and a delay for each

        # Figures of each circuit, by source and destination. `left`: the ticks its flows need.
        # `rate`: flows that it completes per tick, if it is held for the best number of flows.
        # Flows of 1, 1 and 8 ticks have the rate 1, as the first two take 2 ticks. `n_flows`: how
        # many flows wait.
        self.left = np.zeros((ports, ports))
        self.rate = np.zeros((ports, ports))
        self.n_flows = np.zeros((ports, ports))

        # Priorities, which most queues do not have. `extra_weight`: by circuit, the sum of (weight
        # - 1) of its flows.
        self.extra_weight = np.zeros((ports, ports))
        self.n_weighted = 0  # waiting flows of another weight than 1
        self._with_deadline: dict[int, Flow] = {}  # those that wait, by their numbers

        # The ticks of `left` once more, as whole numbers, for circuits with flows.
        self._total: dict[Place, int] = {}

        # Demands of which flows wait, by the numbers that callers give them.
        self.waiting: dict[int, Waiting] = {}

        # Demands of which nothing waits, but a part was lost; and in ticks of a circuit all that
        # was carried so far, and all that was lost.
        self.n_lost = 0
        self.carried = 0
        self.lost = 0

        # Statistics of the demands that are complete, in ticks.
        self.completed = 0  # how many
        self.wait = 0  # the sum of their waits
        self.longest_wait = 0  # the longest wait
        self.last_done = 0  # the tick at which the last one was complete
        self.counts = Counts()
        self.completions: list[tuple[int, int]] | None = None
        """Receives the number of each demand that becomes complete, and its last tick; or None."""

    def add(
        self,
        number: int,
        parts: Sequence[tuple[Place, int]],
        now_tick: int,
        urgency: Urgency = PLAIN,
    ) -> None:
        """Put the flows of a demand, (place, ticks) each, behind the flows that wait.

        They are due when all flows that wait then, these included, could have been served one
        after the other with a delay each.
        """
        self.waiting[number] = Waiting(added=now_tick, done=now_tick, urgency=urgency)

        # `_work` has the ticks of all flows that wait, and a delay for each.
        due = now_tick + self._work + sum(ticks + self._delay for _, ticks in parts)
        for place, ticks in parts:
            self.append(Flow(place, number, ticks, due, urgency.weight, urgency.deadline))
        self._close(number)

    def append(self, flow: Flow) -> None:
        """Put one flow into the queue, behind the others of its circuit or by its priority.

        Its number is set, its demand is in `waiting` already, and all figures of its circuit
        follow.
        """
        # All flows of a circuit share one tuple: the fewer objects wait, the rarer are the pauses
        # of the garbage collector.
        place = flow.place = self._circuits.setdefault(flow.place, flow.place)
        flows = self._flows.get(place)
        if flows is None:
            flows = self._flows[place] = deque()

        # Numbers tell which flow came first. Deadlines and weights are noted apart, because most
        # queues have none, and then need not put flows in order.
        flow.number = self._n_flows_ever
        self._n_flows_ever += 1
        if flow.deadline is not None:
            self._with_deadline[flow.number] = flow
        if flow.weight != 1.0:
            self.extra_weight[place] += flow.weight - 1.0
            self.n_weighted += 1
        if self.has_priorities:
            _insert_by_priority(flows, flow)
            self._passed.pop(place, None)
        else:
            flows.append(flow)

        # The ticks that wait for the circuit; those for the whole switch count a delay a flow.
        total = self._total.get(place, 0) + flow.ticks
        self._total[place] = total
        self._work += flow.ticks + self._delay
        self.waiting[flow.demand].flows += 1
        # Most flows are due later than all others.
        if not self._not_due or self._not_due[-1].due <= flow.due:
            self._not_due.append(flow)
        else:
            insort(self._not_due, flow, key=_by_due)

        # The rate is that of the first `_MOST_FLOWS_SEEN` flows: a flow behind these does not
        # change it. With priorities a flow may come before them.
        self.left[place] = total
        self.n_flows[place] = len(flows)
        if len(flows) <= _MOST_FLOWS_SEEN or self.has_priorities:
            self.rate[place] = self.look(place).rate

    def flows(self) -> list[Flow]:
        """Return all flows that wait, in the order in which they came."""
        return sorted(self._not_due + self._overdue, key=_by_number)

    def total(self, place: Place) -> int:
        """Return the ticks that wait for a circuit."""
        return self._total.get(place, 0)

    def look(self, place: Place, skip: int = 0) -> Entry:
        """Sum up the flows that wait for a circuit beyond `skip` ticks of service.

        Example: flows of 3, 2 and 10 ticks wait, and `skip` is 4. The first flow is then complete,
        and the second one has 1 tick to go. Hence 11 ticks wait, the first flow is complete after
        1, and at best there is 1 flow per tick (2 flows take 11). The rate looks at
        `_MOST_FLOWS_SEEN` flows, and each counts as its weight.
        """
        waiting_ticks = max(0, self._total.get(place, 0) - skip)
        flows = self._flows.get(place)
        if not flows:
            return Entry(waiting_ticks, 0, 0.0)

        # Flows that the skipped ticks complete are passed over; the next one may have a part left.
        # A deque finds the flow of a number quickly.
        n_passed, ticks_passed = self._pass_over(place, flows, skip)
        first_complete = 0
        most_per_tick = 0.0
        weight_complete = 0.0
        service = ticks_passed - skip  # ticks beyond `skip` until the flow in turn is complete
        for position in range(n_passed, min(n_passed + _MOST_FLOWS_SEEN, len(flows))):
            flow = flows[position]
            service += flow.ticks
            weight_complete += flow.weight
            first_complete = first_complete or service
            most_per_tick = max(most_per_tick, weight_complete / service)
        return Entry(waiting_ticks, first_complete, most_per_tick)

    def _pass_over(self, place: Place, flows: deque[Flow], ticks: int) -> Passed:
        """Count the first flows that some ticks of service complete, and their ticks.

        Flows of 2, 3 and 4 ticks, of which 6 ticks complete the first two, give 2 flows and 5
        ticks. The result is kept, and the next search of the circuit goes on from it.
        """
        if not ticks:
            return Passed()

        # Go on from where the last search ended, if that is not too far.
        n_passed, ticks_passed = self._passed.get(place, Passed())
        if ticks_passed > ticks:
            n_passed, ticks_passed = Passed()
        n_flows = len(flows)
        while n_passed < n_flows:
            with_next = ticks_passed + flows[n_passed].ticks
            if with_next > ticks:
                break
            n_passed += 1
            ticks_passed = with_next
        passed = self._passed[place] = Passed(n_passed, ticks_passed)
        return passed

    @property
    def has_priorities(self) -> bool:
        """Whether a flow waits that has a weight or a deadline."""
        return self.n_weighted > 0 or bool(self._with_deadline)

    def mean_weight(self) -> NDArray[np.float64]:
        """Return the mean weight of the flows that wait for each circuit; 1 where none waits."""
        # Weights are kept as what they are above 1, so that flows of weight 1 add nothing.
        mean = 1.0 + self.extra_weight / np.maximum(self.n_flows, 1.0)
        return np.maximum(mean, _LEAST_WEIGHT)  # sums of very different weights are rounded

    def most_overdue(self, now_tick: int, reserved: dict[Place, int]) -> _OverdueFlow | None:
        """Find the due flow that came first, of those that committed slots do not complete.

        `reserved` has the ticks that these slots serve, by circuit; None if no such flow is due.
        """
        self._mark_due(now_tick)
        if not self._overdue:
            return None

        # The numbers of all flows that committed slots complete.
        committed: set[int] = set()
        for place, reserved_ticks in reserved.items():
            flows = self._flows.get(place)
            if flows:
                n_committed = self._pass_over(place, flows, reserved_ticks).n_flows
                committed.update([flow.number for flow in islice(flows, n_committed)])
        for flow in self._overdue:
            if flow.number not in committed:
                # Its own ticks, and those of all flows that are served before it on its circuit.
                ticks = -reserved.get(flow.place, 0)
                for other in self._flows[flow.place]:
                    ticks += other.ticks
                    if other is flow:
                        return _OverdueFlow(flow.place, ticks)
        return None

    def _mark_due(self, now_tick: int) -> None:
        """Let the flows that have become due by `now_tick` go before others.

        They move from the list that is sorted by due ticks to that of overdue flows, which is
        sorted by arrival; where there are priorities they move to the front on their circuits.
        """
        # Those that have become due since the last call join the others, which stay sorted.
        n_due = bisect_right(self._not_due, now_tick, key=lambda flow: flow.due)
        if n_due:
            for flow in self._not_due[:n_due]:
                flow.is_overdue = True
                if self.has_priorities:
                    self._put_in_order(flow)
            self._overdue += self._not_due[:n_due]
            self._overdue.sort(key=_by_number)
            del self._not_due[:n_due]

    def urgent_places(self, now_tick: int) -> list[Place]:
        """Give flows with near deadlines priority, and list the circuits of those still in time.

        The latest start of a flow is its deadline less its ticks and a delay. From
        `_URGENT_DELAYS` delays before it on, the flow goes before others on its circuit but due
        ones; it keeps this place when the deadline is missed.
        """
        if not self._with_deadline:
            return []
        self._mark_due(now_tick)
        places = []
        for flow in self._with_deadline.values():
            assert flow.deadline is not None
            latest_start = flow.deadline - flow.ticks - self._delay
            if not latest_start - _URGENT_DELAYS * self._delay <= now_tick:
                continue  # there is much time yet
            if now_tick <= latest_start:
                places.append(flow.place)

            # From now on it goes before others on its circuit, in time or not.
            if not flow.is_urgent:
                flow.is_urgent = True
                self._put_in_order(flow)
        return places

    def _put_in_order(self, flow: Flow) -> None:
        """Bring a flow to its place on its circuit after it has become due or urgent."""
        flows = self._flows[flow.place]
        flows.remove(flow)
        _insert_by_priority(flows, flow)
        self._passed.pop(flow.place, None)
        self._note(flow.place)

    def serve(self, place: Place, ticks: int, begin: int) -> None:
        """Let a circuit carry the first flows that wait for it, for some ticks from `begin` on.

        Example: flows of 3 and 5 ticks wait, and the circuit carries for 4 ticks from tick 100 on.
        The first flow is complete at tick 103, and the other one has 4 ticks to go.
        """
        flows = self._flows.get(place)
        ticks_left = ticks
        n_complete = 0
        while flows and ticks_left:
            flow = flows[0]
            taken = min(ticks_left, flow.ticks)
            ticks_left -= taken

            # All but `ticks_left` have been carried by now, which is when the flow has its last
            # tick.
            self._take(flow, taken, begin + ticks - ticks_left)
            if not flow.ticks:
                flows.popleft()
                n_complete += 1
        carried = ticks - ticks_left
        self.carried += carried
        self._total[place] = self._total.get(place, 0) - carried

        # Flows that were passed over in `look` are fewer now, and have less to carry.
        passed = self._passed.pop(place, Passed())
        if passed.ticks > carried:
            n_passed = passed.n_flows - n_complete
            self._passed[place] = Passed(n_passed, passed.ticks - carried)
        self._note(place)

    def take_back(self, place: Place, ticks: int, now_tick: int) -> int:
        """Take ticks of the last flows of a circuit out of the queue; return how many there were.

        Flows that have nothing left count as complete at `now_tick`.
        """
        # From the last flow on; `ticks_left` are still to be taken back.
        flows = self._flows.get(place)
        ticks_left = ticks
        while flows and ticks_left:
            flow = flows[-1]
            taken = min(ticks_left, flow.ticks)
            ticks_left -= taken
            self._take(flow, taken, now_tick)
            if not flow.ticks:
                flows.pop()

        # The figures of the place follow.
        self._passed.pop(place, None)
        self._total[place] = self._total.get(place, 0) - (ticks - ticks_left)
        self._note(place)
        return ticks - ticks_left

    def lose(self, place: Place, now_tick: int) -> None:
        """Take all flows of a circuit out of the queue: their demands can never be complete."""
        for flow in self._flows[place]:
            self.waiting[flow.demand].has_lost = True
        self.lost += self.take_back(place, self.total(place), now_tick)

    def _take(self, flow: Flow, ticks: int, now_tick: int) -> None:
        """Shorten a flow, which is complete at `now_tick` if nothing is left.

        All figures follow but those of its circuit: the caller takes a complete flow out of the
        list of its circuit, and calls `_note`.
        """
        flow.ticks -= ticks
        self._work -= ticks

        # A complete flow leaves all lists and sums; its demand is complete with its last flow.
        if not flow.ticks:
            self._work -= self._delay

            # It is found by its number, or by when it is due.
            if flow.is_overdue:
                del self._overdue[bisect_left(self._overdue, flow.number, key=_by_number)]
            else:
                del self._not_due[bisect_left(self._not_due, _by_due(flow), key=_by_due)]
            demand = self.waiting[flow.demand]
            demand.flows -= 1
            if flow.weight != 1.0:
                self.extra_weight[flow.place] -= flow.weight - 1.0
                self.n_weighted -= 1
            if flow.deadline is not None:
                del self._with_deadline[flow.number]
            demand.done = max(demand.done, now_tick)
            self._close(flow.demand)

    def _close(self, number: int) -> None:
        """Take a demand out of `waiting` if none of its flows waits any more.

        It is complete then, and added to the statistics in ticks, or a part of it was lost, which
        no deadline is met by.
        """
        demand = self.waiting[number]
        if demand.flows:
            return
        del self.waiting[number]
        weight, deadline = demand.urgency
        if deadline is not None:
            self.counts.with_deadline += 1
            self.counts.late += demand.has_lost or demand.done > deadline
        if demand.has_lost:
            self.n_lost += 1
            return

        # The sums of all complete demands, and the list of whoever records completions.
        wait = demand.done - demand.added
        self.completed += 1
        self.wait += wait
        self.longest_wait = max(self.longest_wait, wait)
        self.last_done = max(self.last_done, demand.done)

        # Figures by weight are counted beside.
        self.counts.weight += weight
        self.counts.weighted_wait += weight * wait
        if self.completions is not None:
            self.completions.append((number, demand.done))

    def _note(self, place: Place) -> None:
        """Bring the figures of a circuit up to date; a circuit without flows is forgotten."""
        entry = self.look(place)
        self.left[place] = entry.ticks
        self.rate[place] = entry.rate
        self.n_flows[place] = len(self._flows.get(place, ()))
        if not entry.ticks:
            self._flows.pop(place, None)
            self._total.pop(place, None)
            self.extra_weight[place] = 0.0  # without what rounding has left


def _priority(flow: Flow) -> tuple[int, float, int]:
    """Return the key by which flows of one circuit are served: due, urgent, heaviest, oldest."""
    if flow.is_overdue:
        return (0, 0.0, flow.number)
    if flow.is_urgent:
        return (1, 0.0, flow.number)
    return (2, -flow.weight, flow.number)


def _insert_by_priority(flows: deque[Flow], flow: Flow) -> None:
    """Insert a flow into the flows of its circuit, which are sorted by `_priority`."""
    # It goes behind the last flow that is served before it, which is found from the end on.
    priority = _priority(flow)
    position = len(flows)
    while position > 0 and _priority(flows[position - 1]) > priority:
        position -= 1
    flows.insert(position, flow)

"""The queue of a switch: flows that wait, in whole ticks, and which of them should go next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

Place = tuple[int, int]
"""A source and a destination port."""

_LOOK = 8  # flows of an entry that are looked at: the cost of a slot does not grow with the queue


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
    number: int = -1
    """How many flows came before it; set by the queue."""
    is_overdue: bool = False
    """Whether the queue has found it due."""


_by_due = attrgetter("due", "number")
_by_number = attrgetter("number")


class Entry(NamedTuple):
    """The flows that wait for one circuit, beyond those that committed slots serve."""

    ticks: int
    first: int
    """Ticks until a flow is complete."""
    rate: float
    """The most flows that are complete per tick, if the circuit is held as long as that takes."""


class OverdueFlow(NamedTuple):
    """A flow that the next slot has to serve."""

    place: Place
    """Its circuit."""
    ticks: int
    """How long the circuit takes until the flow is complete, beyond committed slots; > 0."""


@dataclass(eq=False, slots=True)
class Waiting:
    """A demand of which flows wait."""

    added: int
    """The tick at which it came."""
    done: int
    """The tick at which the last flow so far was complete."""
    flows: int = 0
    """How many of its flows wait."""


class FlowQueue:
    """Flows of all entries of a switch; those of one entry are served in the order they came."""

    def __init__(self, ports: int, delay: int) -> None:
        """Begin without flows.

        Parameters
        ----------
        ports
            The number of ports of the switch.
        delay
            The reconfiguration delay in ticks; each flow counts one when due times are set.
        """
        self._delay = delay
        self._flows: dict[Place, deque[Flow]] = {}
        # Every flow that waits is in one of two sorted lists, and leaves it when it is complete.
        # In heaps complete flows would stay until they are on top, and then go all at once.
        self._not_due = list[Flow]()  # sorted by `_by_due`
        self._overdue = list[Flow]()  # sorted by `_by_number`
        self._n_flows_ever = 0
        self._work = 0  # ticks of all flows, and a delay for each
        # By source and destination: ticks that wait, the rate of `Entry`, and waiting flows.
        self.left = np.zeros((ports, ports))
        self.rate = np.zeros((ports, ports))
        self.n_flows = np.zeros((ports, ports))
        self._total: dict[Place, int] = {}  # `left` without rounding
        self.waiting: dict[int, Waiting] = {}
        # Complete demands: their number, the ticks they waited together and at most, the last end.
        self.completed = 0
        self.wait = 0
        self.longest_wait = 0
        self.last_done = 0

    def add(self, number: int, parts: Sequence[tuple[Place, int]], now: int) -> None:
        """Put the flows of a demand behind the flows that wait.

        A flow is due when all flows that wait then, itself included, could have been served one
        after the other with a delay each.
        """
        self.waiting[number] = Waiting(now, now)
        due = now + self._work + sum(ticks + self._delay for _, ticks in parts)
        for place, ticks in parts:
            self.append(Flow(place, number, ticks, due))
        self._close(number)

    def add_flow(self, number: int, place: Place, ticks: int, now: int) -> None:
        """Put a demand of one flow behind the flows that wait; see `add`."""
        self.waiting[number] = Waiting(now, now)
        self.append(Flow(place, number, ticks, now + self._work + ticks + self._delay))

    def append(self, flow: Flow) -> None:
        """Put one flow behind all that wait, and note it in all figures of its circuit.

        Parameters
        ----------
        flow
            Its demand is in `waiting`; its number is set here.
        """
        place = flow.place
        flows = self._flows.get(place)
        if flows is None:
            flows = self._flows[place] = deque()
        flows.append(flow)
        total = self._total.get(place, 0) + flow.ticks
        self._total[place] = total
        self._work += flow.ticks + self._delay
        self.waiting[flow.demand].flows += 1
        flow.number = self._n_flows_ever
        self._n_flows_ever += 1
        # Most flows are due later than all others.
        if not self._not_due or self._not_due[-1].due <= flow.due:
            self._not_due.append(flow)
        else:
            insort(self._not_due, flow, key=_by_due)

        self.left[place] = total
        self.n_flows[place] = len(flows)
        if len(flows) <= _LOOK:
            self.rate[place] = self.look(place).rate  # of the first flows alone

    def flows(self) -> list[Flow]:
        """Return all flows that wait, in the order in which they came."""
        return sorted(self._not_due + self._overdue, key=_by_number)

    def total(self, place: Place) -> int:
        """Return the ticks that wait for a circuit."""
        return self._total.get(place, 0)

    def look(self, place: Place, skip: int = 0) -> Entry:
        """Return what waits for a circuit behind its first ticks.

        Parameters
        ----------
        place
            Source and destination of the circuit.
        skip
            Ticks of service that come before; flows that these complete do not count.

        Returns
        -------
        Entry
            Its rate is the most, over the first `_LOOK` flows, of flows per tick to complete them.
        """
        waiting_ticks = max(0, self._total.get(place, 0) - skip)
        first_complete = 0
        most_per_tick = 0.0
        n_complete = 0
        service = -skip  # ticks beyond `skip` until the flow in turn is complete
        for flow in self._flows.get(place, ()):
            service += flow.ticks
            if service <= 0:
                continue
            n_complete += 1
            if n_complete == 1:
                first_complete = service
            most_per_tick = max(most_per_tick, n_complete / service)
            if n_complete == _LOOK:
                break
        return Entry(waiting_ticks, first_complete, most_per_tick)

    def most_overdue(self, now: int, reserved: dict[Place, int]) -> OverdueFlow | None:
        """Find the due flow that came first, of those that committed slots do not complete.

        Parameters
        ----------
        now
            The present tick; flows that are due by then count.
        reserved
            Ticks that committed slots serve, by circuit.
        """
        # Those that have become due since the last call join the others, which stay sorted.
        n_due = bisect_right(self._not_due, now, key=lambda flow: flow.due)
        if n_due:
            for flow in self._not_due[:n_due]:
                flow.is_overdue = True
            self._overdue += self._not_due[:n_due]
            self._overdue.sort(key=_by_number)
            del self._not_due[:n_due]

        for flow in self._overdue:
            ticks = self._ticks_until_complete(flow) - reserved.get(flow.place, 0)
            if ticks > 0:
                return OverdueFlow(flow.place, ticks)
        return None

    def _ticks_until_complete(self, flow: Flow) -> int:
        """Return the ticks of a flow and of those before it on its circuit."""
        ticks = 0
        for other in self._flows[flow.place]:
            ticks += other.ticks
            if other is flow:
                break
        return ticks

    def serve(self, place: Place, ticks: int, begin: int) -> None:
        """Let a circuit carry the oldest flows for so many ticks, from the tick `begin` on."""
        flows = self._flows.get(place)
        room = ticks
        while flows and room:
            flow = flows[0]
            taken = min(room, flow.ticks)
            room -= taken
            self._take(flow, taken, begin + ticks - room)
            if not flow.ticks:
                flows.popleft()
        self._total[place] = self._total.get(place, 0) - (ticks - room)
        self._note(place)

    def take_back(self, place: Place, ticks: int, now: int) -> int:
        """Take ticks of the newest flows of a circuit out of the queue, at the tick `now`.

        Returns
        -------
        int
            How many ticks there were, at most `ticks`.
        """
        flows = self._flows.get(place)
        room = ticks
        while flows and room:
            flow = flows[-1]
            taken = min(room, flow.ticks)
            room -= taken
            self._take(flow, taken, now)
            if not flow.ticks:
                flows.pop()
        self._total[place] = self._total.get(place, 0) - (ticks - room)
        self._note(place)
        return ticks - room

    def _take(self, flow: Flow, ticks: int, now: int) -> None:
        """Shorten a flow; if nothing is left it is complete at the tick `now`."""
        flow.ticks -= ticks
        self._work -= ticks
        if not flow.ticks:
            self._work -= self._delay
            self._forget_due_time(flow)
            demand = self.waiting[flow.demand]
            demand.flows -= 1
            demand.done = max(demand.done, now)
            self._close(flow.demand)

    def _forget_due_time(self, flow: Flow) -> None:
        """Take a flow that is complete out of the list it is in."""
        if flow.is_overdue:
            del self._overdue[bisect_left(self._overdue, flow.number, key=_by_number)]
        else:
            del self._not_due[bisect_left(self._not_due, _by_due(flow), key=_by_due)]

    def _close(self, number: int) -> None:
        """Note that a demand is complete, if it is."""
        demand = self.waiting[number]
        if demand.flows:
            return
        del self.waiting[number]
        wait = demand.done - demand.added
        self.completed += 1
        self.wait += wait
        self.longest_wait = max(self.longest_wait, wait)
        self.last_done = max(self.last_done, demand.done)

    def _note(self, place: Place) -> None:
        """Bring the figures of a circuit up to date after its flows have changed."""
        entry = self.look(place)
        self.left[place] = entry.ticks
        self.rate[place] = entry.rate
        self.n_flows[place] = len(self._flows.get(place, ()))
        if not entry.ticks:
            self._flows.pop(place, None)
            self._total.pop(place, None)

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
    due: int
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


@dataclass(eq=False, slots=True)
class Waiting:
    """A demand of which flows wait."""

    added: int
    done: int
    flows: int = 0


class FlowQueue:
    """Flows of all entries of a switch; those of one entry are served in the order they came."""

    def __init__(self, ports: int, delay: int) -> None:
        self._delay = delay
        self._flows: dict[Place, deque[Flow]] = {}
        # Every flow that waits is in one of two sorted lists, and leaves it when it is complete.
        # In heaps complete flows would stay until they are on top, and then go all at once.
        self._not_due = list[Flow]()  # sorted by `_by_due`
        self._overdue = list[Flow]()  # sorted by `_by_number`
        self._n_flows_ever = 0
        self._work = 0  # ticks of all flows, and a delay for each
        self.left = np.zeros((ports, ports))  # ticks
        self.rate = np.zeros((ports, ports))  # as of `Entry`
        self.n_flows = np.zeros((ports, ports))  # flows that wait for each circuit
        self._total: dict[Place, int] = {}
        self.waiting: dict[int, Waiting] = {}
        self.completed, self.wait, self.longest_wait, self.last_done = 0, 0, 0, 0

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
        """Put one flow of a known demand behind the others."""
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
        """Return the ticks that wait for a circuit beyond its first `skip`."""
        left = max(0, self._total.get(place, 0) - skip)
        first, so_far, best = 0, -skip, 0.0
        count = 0
        for flow in self._flows.get(place, ()):
            so_far += flow.ticks
            if so_far <= 0:
                continue
            count += 1
            first = first or so_far
            best = max(best, count / so_far)
            if count == _LOOK:
                break
        return Entry(left, first, best)

    def most_overdue(self, now: int, reserved: dict[Place, int]) -> tuple[Place, int] | None:
        """Return the due flow that came first, and the ticks until it is complete.

        `reserved` has the ticks that committed slots serve of an entry.
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
                return flow.place, ticks
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
        """Let a circuit carry so many ticks, from `begin` on."""
        flows, room = self._flows.get(place), ticks
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
        """Take so many ticks out of the queue, of the newest flows; return how many there were."""
        flows, room = self._flows.get(place), ticks
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
        entry = self.look(place)
        self.left[place] = entry.ticks
        self.rate[place] = entry.rate
        self.n_flows[place] = len(self._flows.get(place, ()))
        if not entry.ticks:
            self._flows.pop(place, None)
            self._total.pop(place, None)

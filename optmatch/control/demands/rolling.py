"""A schedule that runs while demand arrives: slots are committed one by one."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from itertools import permutations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.control.demands.flows import FlowQueue, Place
from optmatch.control.demands.rolling_state import (
    TICKS_PER_S,
    Committed,
    RollingState,
    read_state,
    write_state,
)
from optmatch.control.demands.slot_choices import QueuePlan, Rest, SlotChooser
from optmatch.control.figures import Call, Tally
from optmatch.control.routing.router import Router
from optmatch.fabrics import Fabric
from optmatch.model import FREE, IDLE, InputError, OptMatchError, integer, number
from optmatch.model.declarations import LONGEST_S
from optmatch.model.schedule import Switching
from optmatch.problems import Demand
from optmatch.problems.demands.matrices import AnyMatrix, plain_matrix

Aim = Literal["wait", "completion"]

_TRIAL_DELAYS = ((0, 18, 4, 2), (8, 0, 12, 6), (10, 2, 0, 14), (4, 16, 6, 0))
"""``_TRIAL_DELAYS[source][destination]``: a demand, in delays, whose plan calls every kernel."""


class Slot(NamedTuple):
    """A slot that is committed."""

    matching: NDArray[np.int32]
    """``matching[source] = destination``, -1 where idle."""
    cell_states: NDArray[np.int8] | None
    """States that hold it, by few toggles from those before; None without cells."""
    start_s: float
    """When the switch may begin to change."""
    light_s: float
    """The time from which all circuits carry."""
    end_s: float
    plane: int = 0
    duration_s: float = 0.0
    """From `light_s` to `end_s`, also where the clock is too late for floats to tell."""


class RollingSchedule:
    """Plans the slots of a switch while demand arrives and slots run.

    `add` puts demand into the queue, `next_slot` commits the slot that comes next, `advance` moves
    the clock and serves the queue, of each circuit the oldest first. All times are whole ticks of
    1 fs inside, so a clock that shows years serves as one that shows seconds. A schedule is not
    safe for several threads at once.

    Kernels are loaded by the constructor, so the first slot takes no longer than others. When
    Python collects garbage it looks through all objects of a process, some 50 ms where OR-tools
    and numba are loaded: a service that cannot wait calls ``gc.freeze()`` after its start.

    With the aim ``"wait"`` the next matching is the one that serves the shortest flows at the
    busiest ports, and the present one goes on unless another is worth much more. Slots last the
    longer the more waits, and when very much waits the heaviest matching is held: queues stay
    finite for every load that circuits can carry (see `SlotChooser` for the theorem).

    No flow waits for ever. Let :math:`W` be the time that all flows take which are in the queue
    when a flow comes, itself included, one after the other with a delay each. After :math:`W` the
    flow is *due*. Of the flows that are due the next slot serves the one that came first, and ends
    with it. So a flow waits :math:`2 W` at most, and for the slots that are committed when it
    becomes due, also for those that were committed before it came.

    With the aim ``"completion"`` a plan of the whole queue goes on, or a new one after demand has
    come if that is shorter: what is left is never complete later than by a plan from now on,
    unless a flow is due. A planned slot of more than ten delays is committed in parts.

    Parameters
    ----------
    fabric
        A switch. One that cannot hold every matching is planned by the default method of `Demand`.
    delay_s
        How long nothing is carried where the matching changes.
    rate_bytes_per_s
        What one circuit carries; at 1 demand is in seconds.
    time_limit_s
        How long a plan may take; None for a number of steps.
    aim
        What counts: how long demands wait in the mean, or when all that is known is complete.
    planes
        Switches of this kind side by side; each slot is one of the plane that is free first.
    switching
        Whether every circuit of a plane waits for a change, or only circuits that change.
    packet_bytes_per_s
        A packet network beside the circuits: the bytes that each port sends and receives there per
        second. The scheduler serves the smallest entries first.
    on_event
        Is told of each call when it has returned or raised, in its thread.

    See Also
    --------
    schedule : One demand, all at once.

    Examples
    --------
    >>> import optmatch as om
    >>> rolling = om.RollingSchedule(om.IdealSwitch(2), delay_s=0.5)
    >>> rolling.add([[0, 3], [2, 0]])
    >>> slot = rolling.next_slot()
    >>> slot.matching.tolist(), slot.light_s, slot.end_s
    ([1, 0], 0.5, 2.5)
    >>> rolling.advance(2.5)
    >>> rolling.queued_bytes.tolist(), rolling.figures()["completed"]
    ([[0.0, 1.0], [0.0, 0.0]], 0)
    """

    def __init__(
        self,
        fabric: Fabric,
        delay_s: float,
        *,
        rate_bytes_per_s: float = 1.0,
        time_limit_s: float | None = 0.005,
        aim: Aim = "wait",
        planes: int = 1,
        switching: Switching = "all-stop",
        packet_bytes_per_s: float = 0.0,
        on_event: Callable[[Call], None] | None = None,
    ) -> None:
        state = RollingState(
            fabric, delay_s, rate_bytes_per_s, time_limit_s, aim, planes, switching,
            packet_bytes_per_s,
        )  # fmt: skip
        self._begin(state, on_event)
        self._load_kernels()

    def _load_kernels(self) -> None:
        """Choose slots of schedules like this one, and forget them.

        Kernels and SciPy are loaded at their first use, which takes half a second: it belongs to
        the constructor, not to the first slot of a switch that runs.
        """
        state = self._state
        # Flows that are due are served by the rule of the aim "wait", whatever the aim.
        for aim in ("wait", state.aim):
            trial = RollingSchedule.__new__(RollingSchedule)
            trial._begin(
                RollingState(
                    state.fabric,
                    self.delay_s,
                    self.rate_bytes_per_s,
                    time_limit_s=state.time_limit_s,
                    aim=aim,
                    switching=state.switching,
                )
            )
            # Two rounds: with the second one there is a plan that may go on. Where the fabric
            # cannot connect these ports, kernels are loaded by the first slot after all.
            n_trial_ports = min(len(_TRIAL_DELAYS), self.fabric.n_ports)
            with suppress(OptMatchError):
                for _ in range(2):
                    for source, destination in permutations(range(n_trial_ports), 2):
                        time_s = _TRIAL_DELAYS[source][destination] * max(self.delay_s, 1e-6)
                        trial.add(source, destination, time_s * self.rate_bytes_per_s)
                    trial.next_slot()

    def _begin(self, state: RollingState, on_event: Callable[[Call], None] | None = None) -> None:
        """Go on from a state."""
        from optmatch.solvers.feedforward import holds_every_matching

        self._router = Router(state.fabric)
        self._state, self._tally = state, Tally(on_event)
        self.fabric: Fabric = state.fabric
        self.delay_s: float = state.delay_s
        self.rate_bytes_per_s: float = state.rate_bytes_per_s
        self._rate = Fraction(repr(self.rate_bytes_per_s))
        self._delay = round(Fraction(repr(self.delay_s)) * TICKS_PER_S)
        self._any = holds_every_matching(state.fabric)
        self._now, self._next, self._n_slots = state.now, state.next_demand, state.n_slots
        ports, cells = state.fabric.n_ports, state.fabric.n_cells
        self._held = np.full((state.planes, ports), IDLE, dtype=np.int32)
        self._cells = np.full((state.planes, cells), FREE, dtype=np.int8)
        self._free = list(state.free) or [0] * state.planes
        if state.held is not None:
            self._held[:] = state.held
        if state.cell_states is not None:
            self._cells[:] = state.cell_states
        self._queue = FlowQueue(ports, self._delay)
        state.fill(self._queue)
        self._slots = list(state.slots)
        self._known_places: set[Place] = set()
        self._largest_bytes = LONGEST_S * self.rate_bytes_per_s
        self._chooser = SlotChooser(self._delay, state.switching)
        self._plan = QueuePlan(
            state.fabric, self.delay_s, self._delay, state.time_limit_s, self._any
        )
        if state.plan_matchings is not None:
            self._plan.slots = (state.plan_matchings, list(state.plan_ticks))
        self._plan.outdated = state.plan_outdated

    def __repr__(self) -> str:
        waiting_bytes = float(self.queued_bytes.sum())
        return (
            f"<RollingSchedule {self.fabric.title}, {self.fabric.n_ports} ports,"
            f" now_s={self.now_s:g}, slots={self._n_slots}, queued_bytes={waiting_bytes:g}>"
        )

    @property
    def now_s(self) -> float:
        """The clock."""
        return self._now / TICKS_PER_S

    @property
    def queued_bytes(self) -> NDArray[np.float64]:
        """``queued_bytes[source, destination]``: demand that has come and is not served yet."""
        return np.asarray(self._queue.left / TICKS_PER_S * self.rate_bytes_per_s)

    def add(
        self,
        demand_bytes: AnyMatrix,
        destination: int | None = None,
        size_bytes: float | None = None,
    ) -> None:
        """Put demand into the queue, now: a matrix of flows, or one flow.

        Parameters
        ----------
        demand_bytes
            ``demand_bytes[source, destination]`` >= 0, full or a sparse matrix of SciPy; it is
            complete when all its flows are. Or the source port of one flow: then `destination` is
            its other port and `size_bytes` > 0 what it has to send. One flow takes microseconds.

        Raises
        ------
        InputError
            As of `Demand`.
        """
        with self._tally.call("add"):
            if destination is None and size_bytes is None:
                self._queue.add(self._next, self._in_ticks(demand_bytes), self._now)
            else:
                place, ticks = self._flow_in_ticks(demand_bytes, destination, size_bytes)
                self._queue.add_flow(self._next, place, ticks, self._now)
            self._next += 1
            self._plan.outdated = True

    def take_back(self, demand_bytes: AnyMatrix) -> NDArray[np.float64]:
        """Take demand out of the queue, now, of each entry the newest first.

        Slots that are committed stay. A demand is complete when nothing of it is left.

        Returns
        -------
        ndarray
            ``taken_bytes[source, destination]``: the demand, or what there was of it.

        Raises
        ------
        InputError
            As of `Demand`.
        """
        taken = np.zeros(self._queue.left.shape)
        with self._tally.call("take_back"):
            for place, ticks in self._in_ticks(demand_bytes):
                taken[place] = self._queue.take_back(place, ticks, self._now)
            self._plan.outdated = True
        return np.asarray(taken / TICKS_PER_S * self.rate_bytes_per_s)

    def next_slot(self) -> Slot | None:
        """Commit the slot after those that are committed; None if these serve all there is.

        Raises
        ------
        LimitReached
            If no plan was found in time, on a fabric that cannot hold every matching.
        """
        with self._tally.call("next_slot"):
            return self._commit()

    def _commit(self) -> Slot | None:
        plane = int(np.argmin(self._free))
        held = self._held[plane]
        rest = self._uncommitted()
        if not rest.left.any():
            self._plan.forget()
            return None
        must = self._queue.most_overdue(self._now, rest.reserved)
        if self._state.aim == "completion" and must is None:
            chosen, ticks = self._plan.take_slot(rest, held if self._n_slots else None)
        else:
            offers = None if self._any else self._plan.make(rest)[0]
            chosen, ticks = self._chooser.choose(rest, held, must and must[0], offers)
            if must is not None:
                ticks = must[1]
        ports = np.arange(len(chosen))
        asked = np.where((chosen != IDLE) & (rest.left[ports, chosen] > 0), chosen, IDLE)
        goes_on = self._n_slots > 0 and bool(((asked == held) | (asked == IDLE)).all())
        whole = asked if self._any else chosen  # a mesh holds pairs of bidirectional ports
        matching = held.copy() if goes_on else whole.astype(np.int32)
        if not goes_on and self._any:  # idle ports keep circuits that still serve
            is_free = np.ones(len(ports), dtype=np.bool_)
            is_free[matching[matching != IDLE]] = False
            stay = (matching == IDLE) & (held != IDLE) & is_free[held]
            stay &= rest.left[ports, held] > 0
            matching[stay] = held[stay]
        start = max(self._now, self._free[plane])
        light = start if goes_on else start + self._delay
        kept = goes_on or self._state.switching == "per-circuit"
        stays = np.where((matching == held) & kept, matching, IDLE)
        if self.fabric.n_cells:
            self._cells[plane] = self._router.reroute(self._cells[plane], matching).states
        slot = Committed(plane, matching, stays, start, light, light + ticks)
        self._slots.append(slot)
        self._held[plane], self._free[plane] = matching, slot.end
        self._n_slots += 1
        states = self._cells[plane].copy() if self.fabric.n_cells else None
        return Slot(matching.copy(), states, *slot.times_s, plane, ticks / TICKS_PER_S)

    def advance(self, now_s: float) -> None:
        """Let time pass: committed slots serve the queue.

        A time that `next_slot` has returned is that very time, whatever floats make of it.

        Raises
        ------
        InputError
            If `now_s` is before the present.
        """
        with self._tally.call("advance"):
            self._serve(number("now_s", now_s))

    def _serve(self, now_s: float) -> None:
        now = self._tick_of(now_s)
        if now < self._now:
            raise InputError(f"now_s = {now_s:g}: before {self.now_s:g}", where="now_s")
        for slot in self._slots:
            for place, begin in slot.circuits():
                begin, end = max(self._now, begin), min(now, slot.end)
                if end > begin:
                    self._queue.serve(place, end - begin, begin)
        if self._state.packet_bytes_per_s:
            self._send_packets(now)
        self._slots = [slot for slot in self._slots if slot.end > now]
        self._now = now

    def figures(self) -> dict[str, Any]:
        """Return how things go, by name; `to_prometheus` makes text of it.

        Returns
        -------
        dict
            ``queued_bytes``; ``waiting``, demands that are not complete; ``completed``, and how
            long these took on average and at most, ``mean_wait_s`` and ``max_wait_s``; when the
            last one was complete, ``completion_s``; ``slots`` committed so far;
            ``calls[call, outcome]``, and ``call_s[call]``, how long they took.
        """
        queue = self._queue
        return {
            "queued_bytes": float(self.queued_bytes.sum()),
            "waiting": len(queue.waiting),
            "completed": queue.completed,
            "mean_wait_s": queue.wait / max(1, queue.completed) / TICKS_PER_S,
            "max_wait_s": queue.longest_wait / TICKS_PER_S,
            "completion_s": queue.last_done / TICKS_PER_S,
            "slots": self._n_slots,
            **self._tally.figures(),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to a JSON file, replacing an earlier one.

        Raises
        ------
        InputError
            If the fabric has no file format.
        """
        write_state(path, self._snapshot())

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, on_event: Callable[[Call], None] | None = None
    ) -> RollingSchedule:
        """Load a schedule that `save` has written, and go on; counts of calls begin at 0.

        Raises
        ------
        FormatError, InputError
            If the file cannot be read, or its content contradicts itself.
        """
        return _resume(read_state(path), on_event)

    def __reduce__(self) -> tuple[Any, ...]:
        return _resume, (self._snapshot(),)

    def _snapshot(self) -> RollingState:
        return self._state.now_with(
            self._queue,
            now=self._now,
            next_demand=self._next,
            n_slots=self._n_slots,
            held=self._held.copy(),
            cell_states=self._cells.copy() if self.fabric.n_cells else None,
            free=tuple(self._free),
            slots=tuple(self._slots),
            plan_matchings=None if self._plan.slots is None else self._plan.slots[0],
            plan_ticks=() if self._plan.slots is None else tuple(self._plan.slots[1]),
            plan_outdated=self._plan.outdated,
        )

    def _in_ticks(self, demand_bytes: AnyMatrix) -> list[tuple[Place, int]]:
        """Check a demand; return its entries in ticks, at least one each."""
        demand = plain_matrix(demand_bytes).entries
        Demand(self.fabric, demand, delay_s=self.delay_s)  # checks it
        times_s = demand / self.rate_bytes_per_s
        if times_s.max(initial=0.0) > LONGEST_S:
            raise InputError(f"demand_bytes: more than {LONGEST_S:g} s of a circuit")
        ticks = np.maximum(1.0, np.rint(times_s * TICKS_PER_S))
        places = np.nonzero(demand)
        counts = [int(count) for count in ticks[places].tolist()]
        return list(zip(zip(*map(np.ndarray.tolist, places), strict=True), counts, strict=True))

    def _flow_in_ticks(self, source: Any, destination: Any, size_bytes: Any) -> tuple[Place, int]:
        """Check one flow; return its ports, and its ticks, at least one."""
        if type(source) is int and type(destination) is int and type(size_bytes) is float:
            # Ports that are known and a size in range need no further check.
            place = (source, destination)
            if place in self._known_places and 0.0 < size_bytes < self._largest_bytes:
                return place, round(size_bytes / self.rate_bytes_per_s * TICKS_PER_S) or 1
        n_ports = self.fabric.n_ports
        for name, port in (("source", source), ("destination", destination)):
            if integer(name, port, at_least=0) >= n_ports:
                raise InputError(f"{name} = {port}: ports are 0 .. {n_ports - 1}", where=name)
        place = (int(source), int(destination))
        size = number("size_bytes", size_bytes)
        if size == 0 or size > self._largest_bytes:
            raise InputError(
                f"size_bytes = {size:g}: > 0, and at most {LONGEST_S:g} s of a circuit",
                where="size_bytes",
            )
        if place not in self._known_places:
            # Ports that cannot be connected are found once, as in a matrix of this flow alone.
            matrix = np.zeros((n_ports, n_ports))
            matrix[place] = size
            Demand(self.fabric, matrix, delay_s=self.delay_s)
            self._known_places.add(place)
        return place, max(1, round(size / self.rate_bytes_per_s * TICKS_PER_S))

    def _tick_of(self, now_s: float) -> int:
        """Return the tick of a time, which may be one of a committed slot."""
        known = {self.now_s: self._now}
        for slot in self._slots:
            ticks = slot.start, slot.light, slot.end
            for time_s, tick in zip(slot.times_s, ticks, strict=True):
                known[time_s] = max(tick, known.get(time_s, tick))
        return known.get(now_s, round(Fraction(repr(now_s)) * TICKS_PER_S))

    def _uncommitted(self) -> Rest:
        """Return the part of the queue that committed slots leave."""
        reserved = dict[Place, int]()
        for slot in self._slots:
            for place, begin in slot.circuits():
                more = max(0, slot.end - max(self._now, begin))
                reserved[place] = reserved.get(place, 0) + more
        return Rest.of(self._queue, reserved)

    def _send_packets(self, now: int) -> None:
        """Let the packet network carry the rest of the demand, the smallest entries first."""
        share = Fraction(repr(self._state.packet_bytes_per_s)) / self._rate
        room = int(share * (now - self._now))
        rows, columns = [room] * self.fabric.n_ports, [room] * self.fabric.n_ports
        places = np.argwhere(self._queue.left > 0)
        order = np.argsort(self._queue.left[tuple(places.T)], kind="stable")
        for source, destination in places[order].tolist():
            waits = self._queue.look((source, destination)).ticks
            ticks = min(rows[source], columns[destination], waits)
            if ticks:
                self._queue.serve((source, destination), ticks, now - ticks)
                rows[source] -= ticks
                columns[destination] -= ticks


def _resume(
    state: RollingState, on_event: Callable[[Call], None] | None = None
) -> RollingSchedule:
    rolling = RollingSchedule.__new__(RollingSchedule)
    rolling._begin(state, on_event)
    rolling._load_kernels()
    return rolling

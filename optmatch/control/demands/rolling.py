"""A schedule that runs while demand arrives: slots are committed one by one."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.control.demands.flows import PLAIN, FlowQueue, Place, Urgency
from optmatch.control.demands.rolling_state import (
    TICKS_PER_S,
    Committed,
    RollingState,
    read_state,
    write_state,
)
from optmatch.control.demands.slot_choices import (
    PlannedSlots,
    QueuePlan,
    SlotChoice,
    SlotChooser,
    Uncommitted,
)
from optmatch.control.figures import Call, Tally
from optmatch.control.routing.router import Router
from optmatch.fabrics import Fabric, Fault, Faulty
from optmatch.fabrics.cellgraph import check_parts
from optmatch.fabrics.fabric import find_staying
from optmatch.model import FREE, IDLE, InputError, OptMatchError, brief_tuple, integer, number
from optmatch.model.declarations import LONGEST_S, Positive, form_of
from optmatch.model.schedule import Switching
from optmatch.problems import Demand
from optmatch.problems.demands.matrices import AnyMatrix, order_by_names, plain_matrix
from optmatch.problems.demands.problem import fail_ports, with_moved_names

Aim = Literal["wait", "completion"]

_TRIAL_DELAYS = ((0, 18, 4, 2), (8, 0, 12, 6), (10, 2, 0, 14), (4, 16, 6, 0))
"""``_TRIAL_DELAYS[source][destination]``: a demand, in delays, whose plan calls every kernel."""


_MOST_DELAYS = 2**53 - 1
"""A flow takes so many delays at most, which a float64 tells exactly, as in `Demand`."""


@brief_tuple
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
    """When all circuits cease to carry."""
    plane: int = 0
    """The number of the plane that holds it."""
    duration_s: float = 0.0
    """From `light_s` to `end_s`, also where the clock is too late for floats to tell."""


class RollingSchedule:
    """Plans the slots of a switch while demand arrives and slots run.

    `add` puts demand into the queue, `next_slot` commits the slot that comes next, `advance` moves
    the clock and serves the queue, of each circuit the oldest first. All times are whole ticks of
    1 fs inside, so a clock that shows years serves as one that shows seconds. A schedule is not
    safe for several threads at once.

    Kernels are loaded by the constructor, so the first slot takes no longer than others; in a new
    process this takes half a second, and some seconds for a mesh. When
    Python collects garbage it looks through all objects of a process, some 50 ms where OR-tools
    and numba are loaded, and within the first calls it does: a service that cannot wait calls
    `warm_up` with ``controllers=True``, which collects garbage, and ``gc.freeze()`` after it.

    With the aim ``"wait"`` the next matching serves circuits with short flows first while little
    waits, and those with the most flows while much does; the present one goes on unless the gain
    is worth the delay.
    Slots last the longer the more waits: policies of this kind keep queues finite for every load
    that circuits can carry (see `SlotChooser` for the theorems and what they do not cover).

    No flow waits for ever. Let :math:`W` be the time that all flows take which are in the queue
    when a flow comes, itself included, one after the other with a delay each. After :math:`W` the
    flow is *due*. The next slot serves the due flow that came first, and ends with it. A flow
    hence waits :math:`2 W` at most, and for the slots that are committed when it
    becomes due, also for those that were committed before it came.

    With the aim ``"completion"`` a plan of the whole queue goes on, or a new one after demand has
    come if that is shorter: what is left is never complete later than by a plan from now on,
    unless a flow is due. A planned slot of more than ten delays is committed in parts.

    Parameters
    ----------
    fabric
        A switch. One that cannot hold every matching is planned by the default method of `Demand`;
        without a plan in time, a slot is one of the last plan, or a single circuit.
    delay_s
        How long nothing is carried where the matching changes.
    rate_bytes_per_s
        The rate of one circuit; at 1 demand is in seconds.
    time_limit_s
        How long a plan may take; None for a number of steps.
    aim
        The objective: how long demands wait in the mean, or when all that is known is complete.
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
        """Make a scheduler of a switch: its clock shows 0, and nothing waits or is committed.

        Kernels are loaded here, so that the first slot is quick.

        Parameters
        ----------
        fabric
            A switch, or any fabric with ports.
        delay_s
            The reconfiguration delay in seconds: how long nothing is carried where the matching
            changes.
        rate_bytes_per_s
            The rate of one circuit; at 1 demand is in seconds.
        time_limit_s
            How long a plan may take, in seconds; None for a number of steps.
        aim
            ``"wait"`` for short waits of demands in the mean, ``"completion"`` for the earliest
            end of all that is known.
        planes
            How many switches of this kind are side by side.
        switching
            ``"all-stop"`` if every circuit of a plane waits for a change, ``"per-circuit"`` if
            only circuits that change do.
        packet_bytes_per_s
            The bytes per second that each port sends and receives in a packet network beside the
            circuits; 0 if there is none.
        on_event
            Called with a `Call` after each call of a method, in its thread; None for nobody.
        """
        state = RollingState(
            fabric, delay_s, rate_bytes_per_s, time_limit_s, aim, planes, switching,
            packet_bytes_per_s,
        )  # fmt: skip
        self._begin(state, Tally(on_event))
        self._load_kernels()

    def _load_kernels(self) -> None:
        """Choose slots of schedules like this one, and forget them, to load all kernels.

        Kernels and SciPy are loaded at their first use, which takes its time: it belongs to the
        constructor, not to the first slot of a switch that runs. This schedule is not changed.
        """
        state = self._state
        if state.aim == "completion":
            # Most places of a matrix have a demand here, which the trials below seldom come to.
            from optmatch.solvers.demands.portfolio import plan_matrix

            plan_matrix(np.ones((2, 2), dtype=np.int64), 1, 0.0)

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
                ),
                Tally(),
            )
            # Two rounds: with the second one there is a plan that may go on. Where the fabric
            # cannot connect these ports, kernels are loaded by the first slot after all.
            trial_ports = self.fabric.live_ports.tolist()[: len(_TRIAL_DELAYS)]
            with suppress(OptMatchError):
                for _ in range(2):
                    for source, destination in permutations(range(len(trial_ports)), 2):
                        time_s = _TRIAL_DELAYS[source][destination] * max(self.delay_s, 1e-6)
                        size_bytes = time_s * self.rate_bytes_per_s
                        trial.add(trial_ports[source], trial_ports[destination], size_bytes)
                    trial.next_slot()

    def _begin(self, state: RollingState, tally: Tally) -> None:
        """Set all attributes of the schedule, so that it goes on from a state.

        A schedule that begins has a state without flows.
        """
        from optmatch.solvers.feedforward import holds_every_matching

        # The parameters of the caller, which are all in the state.
        self._state = state
        self._tally = tally
        self._router = Router(state.fabric)
        self.fabric: Fabric = state.fabric
        self.delay_s: float = state.delay_s
        self.rate_bytes_per_s: float = state.rate_bytes_per_s
        self.planes: int = state.planes
        self._holds_every_matching = holds_every_matching(state.fabric)

        # The delay in ticks of 1 fs, as are the clock (`_now`) and all times inside.
        # `_next_demand` is the number of the next demand; `_n_slots` counts the slots that were
        # committed.
        self._delay = round(Fraction(repr(self.delay_s)) * TICKS_PER_S)
        self._now = state.now
        self._next_demand = state.next_demand
        self._n_slots = state.n_slots

        # Each plane as the last committed slot leaves it; a plane that never had one is dark.
        n_ports = state.fabric.n_ports
        n_cells = state.fabric.n_cells
        self._matching_of_plane = np.full((state.planes, n_ports), IDLE, dtype=np.int32)
        self._cell_states_of_plane = np.full((state.planes, n_cells), FREE, dtype=np.int8)
        self._free_tick_of_plane = list(state.free) or [0] * state.planes
        if state.held is not None:
            self._matching_of_plane[:] = state.held
        if state.cell_states is not None:
            self._cell_states_of_plane[:] = state.cell_states

        # The queue, and the slots that are committed and not over.
        self._queue = FlowQueue(n_ports, self._delay)
        state.fill(self._queue)
        self._slots = list(state.slots)

        # Limits of a flow that `add` checks: pairs of ports that are known to be connectable (they
        # are checked once), and the longest flow, in seconds and in bytes.
        self._known_places: set[Place] = set()
        self._longest_flow_s = LONGEST_S
        if self.delay_s > 0:
            self._longest_flow_s = min(LONGEST_S, _MOST_DELAYS * self.delay_s)
        self._largest_bytes = self._longest_flow_s * self.rate_bytes_per_s

        # The two ways to choose the next slot: by the worth of circuits, or by a plan.
        self._chooser = SlotChooser(self._delay, state.switching)
        self._plan = QueuePlan(
            state.fabric,
            self._delay,
            state.time_limit_s,
            any_matching=self._holds_every_matching,
        )
        if state.plan_matchings is not None:
            self._plan.slots = PlannedSlots(state.plan_matchings, list(state.plan_ticks))
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
    def next_free_s(self) -> float:
        """When the first plane is free: the time of the next decision; 0 before the first slot."""
        return min(self._free_tick_of_plane) / TICKS_PER_S

    @property
    def queued_bytes(self) -> NDArray[np.float64]:
        """``queued_bytes[source, destination]``: demand that has come and is not served yet."""
        return np.asarray(self._queue.left / TICKS_PER_S * self.rate_bytes_per_s)

    def add(
        self,
        demand_bytes: AnyMatrix,
        destination: int | str | None = None,
        size_bytes: float | None = None,
        *,
        weight: float = 1.0,
        deadline_s: float | None = None,
    ) -> None:
        """Put demand into the queue, now: a matrix of flows, or one flow.

        Parameters
        ----------
        demand_bytes
            ``demand_bytes[source, destination]`` >= 0, full, a sparse matrix of SciPy, or a
            DataFrame whose labels are names of ports; it is complete when all its flows are. Or
            the source port of one flow, by number or name: then `destination` is its other port
            and `size_bytes` > 0 what it has to send. One flow takes microseconds.
        destination
            The port that receives one flow, by number or name; None with a matrix.
        size_bytes
            The size of one flow in bytes, > 0; None with a matrix.
        weight
            How much the wait of this demand counts, > 0; with the aim ``"wait"`` circuits of
            heavier flows come earlier.
        deadline_s
            When it should be complete, as the clock shows. While that is near and can still be
            met, its circuits are worth ten times as much; `figures` counts what is late.

        Raises
        ------
        InputError
            If an amount is negative or not finite, the fabric cannot connect two ports, or a flow
            takes 2**53 delays or more.
        """
        with self._tally.call("add"):
            urgency = PLAIN
            if weight != 1.0 or deadline_s is not None:
                checked_weight = form_of(Positive).check("weight", weight)
                deadline = None
                if deadline_s is not None:
                    deadline = round(
                        Fraction(repr(number("deadline_s", deadline_s))) * TICKS_PER_S
                    )
                urgency = Urgency(checked_weight, deadline)
            if destination is None and size_bytes is None:
                parts = self._in_ticks(demand_bytes)
            else:
                parts = [self._flow_in_ticks(demand_bytes, destination, size_bytes)]
            self._queue.add(self._next_demand, parts, self._now, urgency)
            self._next_demand += 1
            self._plan.outdated = True

    def take_back(self, demand_bytes: AnyMatrix) -> NDArray[np.float64]:
        """Take demand out of the queue, now, of each entry the newest first.

        Slots that are committed stay. A demand is complete when nothing of it is left.

        Parameters
        ----------
        demand_bytes
            ``demand_bytes[source, destination]`` >= 0: what need not be served any more, full or
            sparse.

        Returns
        -------
        ndarray
            ``taken_bytes[source, destination]``: the demand, or what there was of it.

        Raises
        ------
        InputError
            If an amount is negative or not finite, or the fabric cannot connect two ports.
        """
        taken = np.zeros(self._queue.left.shape)
        with self._tally.call("take_back"):
            for place, ticks in self._in_ticks(demand_bytes):
                taken[place] = self._queue.take_back(place, ticks, self._now)
            self._plan.outdated = True
        return np.asarray(taken / TICKS_PER_S * self.rate_bytes_per_s)

    def fail(self, port: int | str, spare: int | str | None = None) -> NDArray[np.float64]:
        """Take a port that has failed out of use, now; a spare port may take its place.

        The circuits of the port are down, also in slots that are committed. The spare takes over
        what waits for the port, with weights, deadlines and waits so far, and on an ideal switch
        its name too, as its fibre is moved. Without a spare this demand is taken out of the queue,
        and each demand that has lost flows so is never complete: `figures` counts it as lost, and
        late if it had a deadline, once none of its other flows waits. What was served stays so.
        The call takes as long as `save`, some 0.1 s where thousands of flows wait.

        Parameters
        ----------
        port
            The port that has failed, by number or name.
        spare
            A port that works and for which nothing waits, by number or name; None for no spare.

        Returns
        -------
        ndarray
            ``lost_bytes[source, destination]``: the demand that was taken out of the queue.

        Raises
        ------
        InputError
            If a port does not exist or has failed before, something waits for the spare, or the
            fabric cannot connect it to the partners of the port that has failed.

        Examples
        --------
        >>> import optmatch as om
        >>> switch = om.IdealSwitch(3, names=("a", "b", "c"))
        >>> rolling = om.RollingSchedule(switch, delay_s=0.5)
        >>> rolling.add("a", "b", 4.0, weight=2.0)
        >>> rolling.fail("b", spare="c")[0].tolist()
        [0.0, 0.0, 0.0]
        >>> rolling.queued_bytes[0].tolist(), rolling.fabric.port_names
        ([0.0, 0.0, 4.0], ('a', 'c', 'b'))
        >>> rolling.fail("a")[0].tolist()
        [0.0, 0.0, 4.0]
        """
        with self._tally.call("fail", port):
            dead = self._find_port("port", port, has_failed=False)
            new_port = np.arange(self.fabric.n_ports)
            if spare is not None:
                free = self._find_port("spare", spare, has_failed=False)
                if free == dead:
                    raise InputError("spare is the port that has failed", where="spare")
                new_port[[dead, free]] = free, dead
            return self._move_ports(dead, new_port)

    def _find_port(self, name: str, port: int | str, *, has_failed: bool) -> int:
        """Return the number of a port, given by number or name, that has failed, or has not."""
        number_of_port = self.fabric.find_port(port)
        check_parts(name, [number_of_port], self.fabric.n_ports, "ports")
        if (number_of_port in self.fabric.dead_ports) != has_failed:
            said = "has not failed" if has_failed else "has failed before"
            raise InputError(f"{self.fabric.describe_port(number_of_port)} {said}", where=name)
        return number_of_port

    def _move_ports(self, dead: int, new_port: NDArray[np.int64]) -> NDArray[np.float64]:
        """Go on without the port `dead`; ``new_port[port]`` has the demand of `port` from now on.

        The dead port and its spare change places; without a spare all stay where they are, and the
        bytes of the dead port are returned as lost. Circuits of committed slots do not move.
        """
        fabric = with_moved_names(fail_ports(self.fabric, [dead]), new_port)
        waits = self._queue.left > 0
        spare = int(new_port[dead])
        is_lost = np.zeros_like(waits)
        if spare == dead:
            is_lost[dead] = waits[dead]
            is_lost[:, dead] = waits[:, dead]
        elif waits[spare].any() or waits[:, spare].any():
            raise InputError(
                f"{self.fabric.describe_port(spare)} is no spare: demand waits for it",
                where="spare",
            )

        # All that can fail comes before the first change: the new fabric has to connect all that
        # waits, however many bytes; those of one delay stand for each entry.
        queued_bytes = self.queued_bytes
        small_bytes = max(self.delay_s, 1e-6) * self.rate_bytes_per_s
        connected_bytes = np.where((queued_bytes > 0) & ~is_lost, small_bytes, 0.0)
        self._check_demand(connected_bytes[np.ix_(new_port, new_port)], fabric)
        lost_bytes = np.where(is_lost, queued_bytes, 0.0)
        for source, destination in np.argwhere(is_lost).tolist():
            self._queue.lose((source, destination), self._now)

        # The schedule begins anew from its own state, on the new fabric.
        state = self._snapshot()
        moved_flows = tuple(
            (int(new_port[source]), int(new_port[destination]), demand, ticks, due)
            for source, destination, demand, ticks, due in state.flows
        )
        slots = tuple(
            replace(slot, matching=_without(slot.matching, dead), kept=_without(slot.kept, dead))
            for slot in state.slots
        )
        held = _without(self._matching_of_plane, dead)
        self._go_on(replace(state, fabric=fabric, flows=moved_flows, held=held, slots=slots))
        return lost_bytes

    def repair(self, port: int | str) -> None:
        """Take a port that was repaired into use again, now, as after `fail`.

        Nothing waits for it at first: demand that a spare has taken over stays with the spare, and
        so does the name, so that on an ideal switch the repaired port has the name that the spare
        had. It may be the spare of the next failure.

        Parameters
        ----------
        port
            The port that works again, by number or by its present name.

        Raises
        ------
        InputError
            If the port does not exist or has not failed.

        Examples
        --------
        >>> import optmatch as om
        >>> rolling = om.RollingSchedule(om.IdealSwitch(2, names=("a", "b")), delay_s=0.5)
        >>> rolling.fail("b").tolist(), rolling.fabric.dead_ports
        ([[0.0, 0.0], [0.0, 0.0]], (1,))
        >>> rolling.repair("b")
        >>> rolling.add("a", "b", 4.0)
        >>> rolling.fabric.dead_ports, rolling.next_slot().matching.tolist()
        ((), [1, -1])
        """
        with self._tally.call("repair", port):
            failure = Fault("dead-port", self._find_port("port", port, has_failed=True))
            faults = set(self.fabric.faults) - {failure}
            repaired = Faulty.of(self.fabric.intact, sorted(faults))
            self._go_on(replace(self._snapshot(), fabric=repaired))

    def _go_on(self, state: RollingState) -> None:
        """Begin anew from a state of this schedule, without a plan.

        What no state has, the list of completions and the number of late plans, is handed over.
        """
        completions = self._queue.completions
        n_late = self._plan.n_late
        without_plan = replace(state, plan_matchings=None, plan_ticks=(), plan_outdated=True)
        self._begin(without_plan, self._tally)
        self._queue.completions = completions
        self._plan.n_late = n_late

    def next_slot(self) -> Slot | None:
        """Commit the slot after those that are committed; None if these serve all there is.

        A slot is a matching that a plane holds for a while; a plane is one of equal switches side
        by side. To *commit* a slot is to choose it for good: the caller sets the switch so.

        Returns
        -------
        Slot or None
            Its matching, cell states, and times in seconds: the start, the light (when the
            circuits that change are up) and the end.
        """
        with self._tally.call("next_slot"):
            # The plane that is free first. Nothing is chosen if nothing waits beyond committed
            # slots: ``uncommitted.left`` is what waits, in ticks by source and destination, less
            # their service.
            plane = int(np.argmin(self._free_tick_of_plane))
            present_matching = self._matching_of_plane[plane]
            uncommitted = self._uncommitted()
            if not uncommitted.left.any():
                self._plan.forget()
                return None

            # `choice` has a matching (the destination of each source, IDLE for none) and its
            # ticks. Circuits that nothing waits for are not set up: the ports stay idle instead.
            choice = self._choose_circuits(uncommitted, present_matching)
            ports = np.arange(self.fabric.n_ports)
            serves = (choice.matching != IDLE) & (uncommitted.left[ports, choice.matching] > 0)
            useful_matching = np.where(serves, choice.matching, IDLE)

            # Without a change there is no delay: all circuits of use are up already. Otherwise
            # further circuits that are up may stay, where ports are idle and that serves
            # something.
            is_up = (useful_matching == present_matching) | (useful_matching == IDLE)
            goes_on = self._n_slots > 0 and bool(is_up.all())
            if goes_on:
                matching = present_matching.copy()
            elif self._holds_every_matching:
                matching = useful_matching.astype(np.int32)
                is_free_destination = np.ones(len(matching), dtype=np.bool_)
                is_free_destination[matching[matching != IDLE]] = False
                can_stay = (matching == IDLE) & (present_matching != IDLE)
                can_stay &= is_free_destination[present_matching]
                can_stay &= uncommitted.left[ports, present_matching] > 0
                matching[can_stay] = present_matching[can_stay]
            else:
                # A mesh has routes for the whole matching; without some circuits it may have none.
                matching = choice.matching.astype(np.int32)

            # The slot starts when the plane is free, and has light after the delay, if there is
            # one. `kept_circuits` carry from the start on, also while others are set up.
            start = max(self._now, self._free_tick_of_plane[plane])
            light = start if goes_on else start + self._delay
            if goes_on or self._state.switching == "per-circuit":
                kept_circuits = np.where(matching == present_matching, matching, IDLE)
            else:
                kept_circuits = np.full_like(matching, IDLE)

            # On a mesh, cells are set with few changes from their present states. Where a cell of
            # its route changes, a circuit does not stay.
            cell_states = None
            if self.fabric.n_cells:
                before = self._cell_states_of_plane[plane].copy()
                cell_states = self._router.reroute(before, matching).states
                self._cell_states_of_plane[plane] = cell_states
                both_matchings = np.stack([present_matching, matching])
                _, stays = find_staying(
                    self.fabric, both_matchings, np.stack([before, cell_states])
                )
                kept_circuits[~stays] = IDLE
            committed = Committed(
                plane, matching, kept_circuits, start, light, end=light + choice.ticks
            )

            # The plane holds the new matching until the end of the slot.
            self._slots.append(committed)
            self._matching_of_plane[plane] = matching
            self._free_tick_of_plane[plane] = committed.end
            self._n_slots += 1
            start_s, light_s, end_s = committed.times_s
            duration_s = choice.ticks / TICKS_PER_S
            return Slot(matching.copy(), cell_states, start_s, light_s, end_s, plane, duration_s)

    def _choose_circuits(
        self, uncommitted: Uncommitted, present_matching: NDArray[np.int32]
    ) -> SlotChoice:
        """Choose the circuits of the next slot, and how many ticks it lasts.

        ``present_matching[source]`` is the destination of the circuit that is up, -1 for none. If
        a flow is due, its circuit comes, and the slot ends with the flow. Otherwise the slot is
        one of a plan for all that waits (aim "completion"), or has the circuits that are worth
        most.
        """
        overdue = self._queue.most_overdue(self._now, uncommitted.reserved)
        if self._state.aim == "completion" and overdue is None:
            return self._plan.take_slot(uncommitted, present_matching)

        # Where not every matching can be held, the choice is among those of a plan; None offers
        # all matchings.
        offers = None if self._holds_every_matching else self._plan.make(uncommitted).matchings
        if overdue is None:
            return self._chooser.choose(
                uncommitted, present_matching, required=None, offers=offers
            )

        # A slot for a flow that is due ends with the flow.
        choice = self._chooser.choose(
            uncommitted, present_matching, required=overdue.place, offers=offers
        )
        return choice._replace(ticks=overdue.ticks)

    def advance(self, now_s: float) -> None:
        """Let time pass: the slots that were chosen serve the queue until the new time.

        A time that `next_slot` has returned is that very time, whatever floats make of it.

        Parameters
        ----------
        now_s
            The new time of the clock in seconds, no earlier than the present one.

        Raises
        ------
        InputError
            If `now_s` is before the present.
        """
        with self._tally.call("advance"):
            now_s = number("now_s", now_s)
            now_tick = self._tick_of(now_s)
            if now_tick < self._now:
                raise InputError(f"now_s = {now_s:g}: before {self.now_s:g}", where="now_s")

            # A circuit carries from its first tick in the slot to the end, or to the new time.
            for slot in self._slots:
                for place, circuit_begin in slot.circuits():
                    begin = max(self._now, circuit_begin)
                    end = min(now_tick, slot.end)
                    if end > begin:
                        self._queue.serve(place, end - begin, begin)

            # Packets carry the rest; circuits have gone first.
            if self._state.packet_bytes_per_s:
                self._send_packets(now_tick)
            self._slots = [slot for slot in self._slots if slot.end > now_tick]
            self._now = now_tick

    def figures(self) -> dict[str, Any]:
        """Return how things go, by name.

        Returns
        -------
        dict
            ``queued_bytes``; ``served_bytes``, what circuits and packets have carried so far, of
            demands that are not complete, too; ``lost_bytes``, what `fail` has taken out.
            ``waiting``, demands of which flows wait; ``completed``, and how long these took on
            average and at most, ``mean_wait_s`` and ``max_wait_s``; when the last one was
            complete, ``completion_s``; the weighted mean of their waits, ``weighted_wait_s``;
            ``lost``, demands of which `fail` has taken out a part and nothing else waits. How many
            complete or lost demands had a deadline, ``with_deadline``, and how many of these were
            lost or complete after it, ``late``. ``slots`` committed so far, and on a fabric that
            cannot hold every matching how many plans were not found in time, ``late_plans``;
            ``calls[call, outcome]``, and ``call_s[call]``, how long they took.
        """
        queue = self._queue
        counts = queue.counts
        return {
            "queued_bytes": float(self.queued_bytes.sum()),
            "served_bytes": queue.carried / TICKS_PER_S * self.rate_bytes_per_s,
            "lost_bytes": queue.lost / TICKS_PER_S * self.rate_bytes_per_s,
            "waiting": len(queue.waiting),
            "completed": queue.completed,
            "mean_wait_s": queue.wait / max(1, queue.completed) / TICKS_PER_S,
            "max_wait_s": queue.longest_wait / TICKS_PER_S,
            "completion_s": queue.last_done / TICKS_PER_S,
            "weighted_wait_s": counts.weighted_wait / (counts.weight or 1.0) / TICKS_PER_S,
            "with_deadline": counts.with_deadline,
            "late": counts.late,
            "lost": queue.n_lost,
            "slots": self._n_slots,
            "late_plans": self._plan.n_late,
            **self._tally.figures(),
        }

    def record_completions(self) -> list[tuple[int, int]]:
        """Return a list that receives each demand from now on when it is complete.

        Returns
        -------
        list of (demand, tick)
            The number of the demand, counted from 0 in the order of `add`, and its last tick, of
            1 fs.
        """
        if self._queue.completions is None:
            self._queue.completions = []
        return self._queue.completions

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to a JSON file, replacing an earlier one.

        Parameters
        ----------
        path
            The file, for `load`.

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

        Parameters
        ----------
        path
            The file.
        on_event
            Called with a `Call` after each call of a method, in its thread; None for nobody.

        Returns
        -------
        RollingSchedule
            The schedule as it was when it was saved.

        Raises
        ------
        FormatError, InputError
            If the file cannot be read, or its content contradicts itself.
        """
        return _resume(read_state(path), on_event)

    def __reduce__(self) -> tuple[Any, ...]:
        return _resume, (self._snapshot(),)

    def _snapshot(self) -> RollingState:
        """Return all that `_begin` needs to go on, as a value that later calls do not change."""
        planned = self._plan.slots
        return self._state.now_with(
            self._queue,
            now=self._now,
            next_demand=self._next_demand,
            n_slots=self._n_slots,
            held=self._matching_of_plane.copy(),
            cell_states=self._cell_states_of_plane.copy() if self.fabric.n_cells else None,
            free=tuple(self._free_tick_of_plane),
            slots=tuple(self._slots),
            plan_matchings=None if planned is None else planned.matchings,
            plan_ticks=() if planned is None else tuple(planned.ticks),
            plan_outdated=self._plan.outdated,
        )

    def _in_ticks(self, demand_bytes: AnyMatrix) -> list[tuple[Place, int]]:
        """Check a demand, and list its entries > 0 row by row, with at least one tick of service.

        An InputError says that an amount is negative or not finite, two ports cannot be connected,
        or an entry takes longer than a clock may show.
        """
        demand, labels = plain_matrix(demand_bytes)
        if labels is not None:
            demand = order_by_names(demand, labels, self.fabric.port_names)
        self._check_demand(demand, self.fabric)
        times_s = demand / self.rate_bytes_per_s
        if times_s.max(initial=0.0) > LONGEST_S:
            raise InputError(f"demand_bytes: more than {LONGEST_S:g} s of a circuit")

        # An entry that rounds to zero ticks would never be complete.
        ticks = np.maximum(1.0, np.rint(times_s * TICKS_PER_S))
        sources, destinations = np.nonzero(demand)
        places = zip(sources.tolist(), destinations.tolist(), strict=True)
        counts = [int(count) for count in ticks[sources, destinations].tolist()]
        return list(zip(places, counts, strict=True))

    def _check_demand(self, demand_bytes: NDArray[np.float64], fabric: Fabric) -> None:
        """Refuse what no `Demand` of a switch may have: its constructor checks all entries."""
        Demand(
            fabric,
            demand_bytes,
            rate_bytes_per_s=self.rate_bytes_per_s,
            delay_s=self.delay_s,
        )

    def _flow_in_ticks(self, source: Any, destination: Any, size_bytes: Any) -> tuple[Place, int]:
        """Check the ports and the size of one flow; return its circuit, and its ticks, at least 1.

        Pairs of ports that were checked before are known, so that further flows of them are quick.
        """
        if type(source) is int and type(destination) is int and type(size_bytes) is float:
            # Ports that are known and a size in range need no further check.
            place = (source, destination)
            if place in self._known_places and 0.0 < size_bytes < self._largest_bytes:
                return place, round(size_bytes / self.rate_bytes_per_s * TICKS_PER_S) or 1

        n_ports = self.fabric.n_ports
        ports = []
        for name, given_port in (("source", source), ("destination", destination)):
            port = given_port
            if isinstance(given_port, str):
                port = self.fabric.find_port(given_port, receives=name == "destination")
            if integer(name, port, at_least=0) >= n_ports:
                raise InputError(f"{name} = {port}: ports are 0 .. {n_ports - 1}", where=name)
            ports.append(int(port))
        place = (ports[0], ports[1])
        size = number("size_bytes", size_bytes)
        if size == 0 or size > self._largest_bytes:
            raise InputError(
                f"size_bytes = {size:g}: > 0, and at most {self._longest_flow_s:g} s of a circuit",
                where="size_bytes",
            )

        # Ports that cannot be connected are found once, as in a matrix of this flow alone.
        if place not in self._known_places:
            matrix = np.zeros((n_ports, n_ports))
            matrix[place] = size
            self._check_demand(matrix, self.fabric)
            self._known_places.add(place)
        return place, max(1, round(size / self.rate_bytes_per_s * TICKS_PER_S))

    def _tick_of(self, now_s: float) -> int:
        """Return the tick of a time in seconds, which may be one that a slot has stated.

        A float of many seconds is coarser than a tick. A time that equals one that a slot has
        stated gets the tick of that; if several ticks have the same seconds, it gets the last of
        them.
        """
        tick_of_time = {self.now_s: self._now}
        for slot in self._slots:
            ticks = (slot.start, slot.light, slot.end)
            for time_s, tick in zip(slot.times_s, ticks, strict=True):
                tick_of_time[time_s] = max(tick, tick_of_time.get(time_s, tick))
        return tick_of_time.get(now_s, round(Fraction(repr(now_s)) * TICKS_PER_S))

    def _uncommitted(self) -> Uncommitted:
        """Return what waits beyond committed slots.

        Each circuit of such a slot will serve its pair of ports from the present tick, or from
        when it is up, to the end of the slot; these ticks are reserved.
        """
        reserved_ticks = dict[Place, int]()
        for slot in self._slots:
            for place, circuit_begin in slot.circuits():
                service = max(0, slot.end - max(self._now, circuit_begin))

                # Several committed slots may hold the same circuit; their services add up.
                reserved_ticks[place] = reserved_ticks.get(place, 0) + service
        return Uncommitted.of(self._queue, reserved_ticks, self._now)

    def _send_packets(self, now_tick: int) -> None:
        """Let the packet network carry what waits until `now_tick`, the smallest entries first.

        Each port can send, and receive, a part of what a circuit carries in this time.
        """
        # Each port may send and receive so much, in ticks of a circuit; rates are exactly what
        # their decimal digits say.
        share = Fraction(repr(self._state.packet_bytes_per_s)) / Fraction(
            repr(self.rate_bytes_per_s)
        )
        packet_ticks = int(share * (now_tick - self._now))
        ticks_of_source = [packet_ticks] * self.fabric.n_ports
        ticks_of_destination = [packet_ticks] * self.fabric.n_ports

        # Each pair of ports sends as much as it has, and as both ports still can.
        places = np.argwhere(self._queue.left > 0)
        by_size = np.argsort(self._queue.left[places[:, 0], places[:, 1]], kind="stable")
        for source, destination in places[by_size].tolist():
            waiting_ticks = self._queue.look((source, destination)).ticks
            ticks = min(ticks_of_source[source], ticks_of_destination[destination], waiting_ticks)
            if ticks:
                self._queue.serve((source, destination), ticks, now_tick - ticks)
                ticks_of_source[source] -= ticks
                ticks_of_destination[destination] -= ticks


def _without(matchings: NDArray[np.int32], port: int) -> NDArray[np.int32]:
    """Return matchings, one or several, in which a port sends and receives nothing."""
    remaining = np.where(matchings == port, IDLE, matchings)
    remaining[..., port] = IDLE
    return remaining


def _resume(
    state: RollingState, on_event: Callable[[Call], None] | None = None
) -> RollingSchedule:
    """Return a schedule that goes on from a state; its kernels are loaded."""
    rolling = RollingSchedule.__new__(RollingSchedule)
    rolling._begin(state, Tally(on_event))
    rolling._load_kernels()
    return rolling

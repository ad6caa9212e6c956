"""The data of a picture of a slot: circuits and their routes, states of cells, and toggles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.fabrics.light import trace_circuits
from optmatch.model import FREE, IDLE, InputError, Problem, Schedule, Solution, integer
from optmatch.plotting import palette
from optmatch.plotting.geometry import Points, light_curve, mesh_data

Asked = TypeVar("Asked", bound=Problem)
Found = TypeVar("Found")


class CircuitData(NamedTuple):
    """One circuit of a slot."""

    source: int
    """A port, as is the destination."""
    destination: int
    cells: NDArray[np.int64]
    """The cells passed, in order."""
    curve: Points
    """A chain of Bezier pieces from port to port, shape (3 * pieces + 1, 2)."""
    arrives: bool
    """Whether the light comes out where it should; if not, the curve ends where the light does."""


Drawable = Solution | tuple[Fabric, Schedule] | tuple[Fabric, Schedule, NDArray[np.int64]]
"""Objects that can be drawn: a solution, or a fabric and a schedule, perhaps with the circuit of
each port, whose colour it keeps through several states (`keep_colours`)."""


class SlotData(NamedTuple):
    """One slot of a schedule."""

    slot: int
    n_slots: int
    circuits: tuple[CircuitData, ...]
    states: NDArray[np.int8]
    """The state of every cell; -1 where free."""
    toggled: NDArray[np.int64]
    """The cells that changed state for this slot, ascending."""
    circuit_of_port: NDArray[np.int64] | None = None
    """``circuit_of_port[port]``: the circuit whose colour it keeps, -1 for none."""

    def colour(self, k: int) -> str:
        """Return the colour of circuit `k`: that of its number, if ports keep colours."""
        number = k
        if self.circuit_of_port is not None:
            number = int(self.circuit_of_port[self.circuits[k].source])
        return palette.circuit_colour(number)

    @property
    def cells_used(self) -> int:
        """The number of cells that must be in a given state."""
        return int((self.states != FREE).sum())


class TogglesData(NamedTuple):
    """Which cells change state from slot to slot, if a free cell keeps its last state."""

    held: NDArray[np.int8]
    """``held[slot, cell]``: the state a cell is in, -1 until first set; shape (slots, cells)."""
    toggled: NDArray[np.bool_]
    """``toggled[slot, cell]``: whether that changed for this slot; a first setting is none."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """``counts[slot]``: the number of cells that change before this slot."""
        counts: NDArray[np.int64] = self.toggled.sum(axis=1)
        return counts


class ScheduleData(NamedTuple):
    """Figures of all slots, for charts over time; each array has one entry for each slot."""

    start_s: NDArray[np.float64]
    """When the slot begins to carry traffic, in seconds."""
    durations_s: NDArray[np.float64]
    circuits: NDArray[np.int64]
    """How many circuits there are."""
    cells_used: NDArray[np.int64]
    """How many cells their light passes."""
    toggles: NDArray[np.int64]
    """How many cells change their state for this slot."""
    meets: NDArray[np.int32]
    """``meets[source, destination]``: the first slot that connects the two, -1 if none does."""


def parts(shown: Drawable) -> tuple[Fabric, Schedule]:
    """Split a drawable object into fabric and schedule, which has a slot at least.

    It is an `InputError` if there is no schedule or no slot, or if numbers of ports or of cells
    differ.
    """
    if isinstance(shown, Solution):
        if shown.schedule is None:
            raise _nothing_to_draw(shown, "a schedule")
        fabric = shown.problem.fabric
        schedule = shown.schedule
    else:
        match shown:
            case (Fabric() as fabric, Schedule() as schedule, *_) if isinstance(shown, tuple):
                pass
            case _:
                name = type(shown).__name__
                raise InputError(f"{name}: a solution, or a fabric and a schedule, can be drawn")

    # Both have to fit each other.
    if schedule.n_ports != fabric.n_ports:
        raise InputError(
            f"the schedule has {schedule.n_ports} ports, the fabric {fabric.n_ports}",
            where="matchings",
        )
    if fabric.graph is not None:
        n_cells = None if schedule.cell_states is None else schedule.cell_states.shape[1]
        if n_cells != fabric.n_cells:
            raise InputError(
                f"cell_states has {n_cells or 'no'} cells, the fabric {fabric.n_cells}",
                where="cell_states",
            )
    if not schedule.n_slots:
        raise InputError("nothing to draw: the schedule has no slots", where="matchings")
    return fabric, schedule


def answered(solution: Solution, asked: type[Asked], found: type[Found]) -> tuple[Asked, Found]:
    """Split a solution into problem and answer of these classes; others are an InputError.

    A schedule is the answer where there is no other.
    """
    problem = solution.problem
    answer = solution.schedule if solution.answer is None else solution.answer
    if not isinstance(problem, asked):
        raise InputError(f"a solution of kind {problem.kind}: this picture is of {asked.kind}")
    if not isinstance(answer, found) or answer is None:
        raise _nothing_to_draw(solution, "an answer")
    return problem, answer


def _nothing_to_draw(solution: Solution, missing: str) -> InputError:
    """Return the error for a solution that lacks what a picture needs."""
    status = solution.status.value
    return InputError(f"nothing to draw: the status is {status}, without {missing}")


def slot_data(shown: Drawable, slot: int = 0) -> SlotData:
    """Collect the data of a picture of one slot.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule.
    slot
        Which slot, from 0.

    Returns
    -------
    SlotData
        Circuits by source port; of bidirectional ports each circuit once.

    Raises
    ------
    InputError
        If there is no such slot, or nothing to draw.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> switch = IdealSwitch(2), Schedule(matchings=[[1, 0]], durations_s=[1.0])
    >>> [(c.source, c.destination) for c in slot_data(switch).circuits]
    [(0, 1), (1, 0)]
    """
    fabric, schedule = parts(shown)
    if not 0 <= integer("slot", slot, at_least=None) < schedule.n_slots:
        raise InputError(f"slot = {slot}: slots are 0 .. {schedule.n_slots - 1}", where="slot")
    return _collect_slots(fabric, schedule, [slot], kept_colours(shown))[0]


def all_slots_data(shown: Drawable) -> tuple[SlotData, ...]:
    """Collect the data of a picture of each slot; see `slot_data`."""
    fabric, schedule = parts(shown)
    return _collect_slots(fabric, schedule, range(schedule.n_slots), kept_colours(shown))


def kept_colours(shown: Drawable) -> NDArray[np.int64] | None:
    """Return the circuit whose colour each port keeps; None where colours follow the slot."""
    if isinstance(shown, Solution) or len(shown) == 2:
        return None
    return shown[2]


def keep_colours(problem: Any, *answers: Any) -> NDArray[np.int64]:
    """Give each circuit of a reroute a colour, the same before it and after its answers.

    Returns the number of the circuit of each port, -1 for none.
    """
    circuit_of_port = np.full(problem.fabric.n_ports, -1, dtype=np.int64)
    states = [problem, *(problem.after(answer) for answer in answers)]
    for state in states:
        # A port may be the source of one circuit and the destination of another: sources count.
        numbers = np.arange(len(state.circuits))
        circuit_of_port[state.circuits[:, 1]] = numbers
        circuit_of_port[state.circuits[:, 0]] = numbers
    return circuit_of_port


def toggles_data(schedule: Schedule) -> TogglesData:
    """Find the cells that change state between slots.

    A free cell keeps its last state, so a cell may toggle many slots after it was last lit.

    Parameters
    ----------
    schedule
        The schedule; without cell states the arrays have no cells.

    Examples
    --------
    >>> states = [[0, -1], [-1, 1], [1, 1]]
    >>> schedule = Schedule(matchings=[[-1]] * 3, durations_s=[1.0] * 3, cell_states=states)
    >>> toggles_data(schedule).counts.tolist()
    [0, 0, 1]
    """
    states = _states_of(schedule)
    # The slot in which each cell was last set, up to each slot; then its state there.
    slot_if_set = np.where(states != FREE, np.arange(len(states))[:, None], 0)
    last_set = np.maximum.accumulate(slot_if_set, axis=0)
    kept_states = np.take_along_axis(states, last_set, axis=0)
    toggled = np.zeros(states.shape, dtype=bool)
    before = kept_states[:-1]
    toggled[1:] = (kept_states[1:] != before) & (before != FREE)
    return TogglesData(kept_states, toggled)


def schedule_data(shown: Drawable) -> ScheduleData:
    """Collect the figures of all slots of a schedule.

    Parameters
    ----------
    shown
        A solution, or a fabric and a schedule.

    Returns
    -------
    ScheduleData
        Arrays of shape (slots,): start and duration in seconds, numbers of circuits, of cells that
        have a state, and of toggles; and ``meets[source, destination]``, the first slot with a
        circuit from one port to the other, -1 if there is none.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> schedule = Schedule(matchings=[[1, 0], [0, 1]], durations_s=[2.0, 1.0], delay_s=0.5)
    >>> data = schedule_data((IdealSwitch(2), schedule))
    >>> data.start_s.tolist(), data.meets.tolist()
    ([0.5, 3.0], [[1, 0], [0, 1]])
    """
    fabric, schedule = parts(shown)
    first_slot = np.full((fabric.n_ports, fabric.n_ports), -1, dtype=np.int32)
    for slot in reversed(range(schedule.n_slots)):  # earlier slots overwrite later ones
        sources = np.flatnonzero(schedule.matchings[slot] != IDLE)
        first_slot[sources, schedule.matchings[slot, sources]] = slot
    n_sources = (schedule.matchings != IDLE).sum(axis=1)  # by slot
    return ScheduleData(
        start_s=schedule.ends_s - schedule.durations_s,
        durations_s=schedule.durations_s,
        circuits=n_sources // 2 if fabric.bidirectional else n_sources,
        cells_used=(_states_of(schedule) != FREE).sum(axis=1),
        toggles=toggles_data(schedule).counts,
        meets=first_slot,
    )


def _states_of(schedule: Schedule) -> NDArray[np.int8]:
    """Return ``states[slot, cell]``, without cells where the schedule states none."""
    if schedule.cell_states is None:
        return np.empty((schedule.n_slots, 0), dtype=np.int8)
    return schedule.cell_states


def _collect_slots(
    fabric: Fabric,
    schedule: Schedule,
    slots: Sequence[int],
    circuit_of_port: NDArray[np.int64] | None,
) -> tuple[SlotData, ...]:
    """Collect the data of pictures of some slots; tracing them together is faster.

    ``circuit_of_port[port]`` is a number by which a circuit keeps its colour over all slots; None
    colours the circuits of each slot by their order.
    """
    mesh = mesh_data(fabric)
    states = _states_of(schedule)
    toggles = toggles_data(schedule)

    # The wanted slots become a schedule of their own, without delays, which do not change light.
    chosen = replace(
        schedule,
        matchings=schedule.matchings[slots],
        durations_s=schedule.durations_s[slots],
        cell_states=None if schedule.cell_states is None else states[slots],
        delays_s=None,
    )
    data = []
    for slot, routes in zip(slots, trace_circuits(fabric, chosen), strict=True):
        circuits = []
        for route in routes:
            # The curve goes from port to port, as far as the light comes; without cells all does.
            source = mesh.port(route.source, "in")
            destination = mesh.port(route.destination, "out")
            arrives = fabric.graph is None or route.terminals[-1:] == (destination.terminal,)
            terminals = np.array(route.terminals, dtype=np.int64)
            curve = light_curve(mesh, source, destination, terminals)
            if not arrives:
                curve = curve[:-3]  # without the last piece, which leads to the port
            cells = np.array(route.cells, dtype=np.int64)
            circuits.append(CircuitData(route.source, route.destination, cells, curve, arrives))
        data.append(
            SlotData(
                slot=slot,
                n_slots=schedule.n_slots,
                circuits=tuple(circuits),
                states=states[slot],
                toggled=np.flatnonzero(toggles.toggled[slot]),
                circuit_of_port=circuit_of_port,
            )
        )
    return tuple(data)

"""The data of pictures: the layout of a fabric, and the circuits, states and toggles of slots.

All curves are chains of cubic Bezier pieces: an array of shape (3 * pieces + 1, 2) in which every
third point lies on the curve. The curves leave and enter terminals along the axis of the cell, so
they are smooth.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.fabrics.light import trace_circuits
from optmatch.model import (
    FREE,
    IDLE,
    InputError,
    Problem,
    Schedule,
    Solution,
    brief_tuple,
    integer,
)
from optmatch.plotting import palette

INSET = 0.18
"""From the end of a cell to its terminals, along the cell; see `CellGraph.terminal_positions`."""
OFFSET = 0.12
"""From the axis of a cell to its terminals, in lengths of a cell."""
_PORT_DISTANCE = 0.72
"""From the corner of a mesh to the ports that belong to it, in lengths of a cell."""
_PORT_SPREAD = 0.25
"""From the middle to each of two ports at one corner."""
_ROUNDS_OF_PUSHES = 50
"""Ports that are too near push each other away so often at most."""
HANDLE = 0.38
"""Bezier handles as a share of the chord; 0.36 to 0.44 draws arcs of 60 to 120 degrees."""
_SWITCH_WIDTH = 0.62
"""Width of a switch without cells, as a share of its height."""

Points = NDArray[np.float64]


class PortMark(NamedTuple):
    """Where a port is drawn, outside the boundary."""

    port: int
    role: Literal["both", "in", "out"]
    """Whether light enters here, leaves here, or both."""
    terminal: int
    """-1 on a fabric without cells."""
    name: str
    position: tuple[float, float]
    outward: tuple[float, float]
    """The unit normal of the boundary: the name stands further out in this direction."""


@brief_tuple
class MeshData(NamedTuple):
    """The drawing of a fabric without any light; lengths in cells."""

    terminals: Points
    """Positions of the terminals, shape (4 * cells, 2)."""
    headings: Points
    """Unit vectors out of the cell at each terminal, along its axis."""
    links: Points
    """The joins between cells as Bezier pieces, shape (joins, 4, 2)."""
    ports: tuple[PortMark, ...]
    port_radius: float
    """The radius of round port marks, such that no two touch."""
    bounds: tuple[float, float, float, float]
    """Left, lower, right, upper end of all that is drawn."""

    def port(self, port: int, role: Literal["in", "out"]) -> PortMark:
        """Return the mark where light of a port enters ("in") or leaves ("out")."""
        return next(
            mark for mark in self.ports if mark.port == port and mark.role in ("both", role)
        )


def mesh_data(fabric: Fabric) -> MeshData:
    """Lay out a fabric: a mesh with its ports, or two columns of ports for a switch without cells.

    Parameters
    ----------
    fabric
        The switch.

    Returns
    -------
    MeshData
        Arrays are empty on a fabric without cells.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> data = mesh_data(HexMesh(2, 2, ports=4))
    >>> data.terminals.shape, len(data.ports)
    ((76, 2), 4)
    """
    graph = fabric.graph
    if graph is None:
        terminals = np.empty((0, 2))
        headings = terminals
        links = np.empty((0, 4, 2))

        # Inputs on the left, outputs on the right, port 0 on top, further apart for more ports.
        width = max(3.0, _SWITCH_WIDTH * fabric.n_ports)
        inputs = []
        outputs = []
        for port, name in enumerate(fabric.port_names):
            y = -float(port)
            inputs.append(PortMark(port, "in", -1, name, (0.0, y), (-1.0, 0.0)))
            outputs.append(PortMark(port, "out", -1, name, (width, y), (1.0, 0.0)))
        ports = (*inputs, *outputs)
    else:
        # Light leaves the terminals a1 and a2 of a cell against its axis, b1 and b2 along it.
        terminals = graph.terminal_positions(INSET, OFFSET)
        axis = graph.ends[:, 1] - graph.ends[:, 0]
        axis = axis / np.linalg.norm(axis, axis=1, keepdims=True)
        headings = np.repeat(np.stack([-axis, axis], axis=1), 2, axis=1).reshape(-1, 2)

        # Each join once, from its terminal of the lower number.
        lower = np.flatnonzero(graph.mate > np.arange(len(graph.mate)))
        upper = graph.mate[lower]
        links = _bezier(terminals[lower], headings[lower], terminals[upper], headings[upper])
        ports = _ports_around_mesh(fabric, graph)

    # All that is drawn, with the names of ports.
    positions = np.array([mark.position for mark in ports])
    outwards = np.array([mark.outward for mark in ports])
    names = positions + _PORT_DISTANCE * outwards
    drawn = np.concatenate([terminals, positions - 0.5, positions + 0.5, names])
    left, lower_end = drawn.min(axis=0).tolist()
    right, upper_end = drawn.max(axis=0).tolist()

    # Marks are large enough to be seen on a big mesh, and do not touch each other.
    largest = min(0.6, max(0.3, (right - left) / 100))
    distances = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    is_pair = ~np.eye(len(positions), dtype=bool)
    nearest = float(distances[is_pair].min(initial=1.0))
    radius = min(largest, 0.46 * nearest)
    bounds = (left, lower_end, right, upper_end)
    return MeshData(terminals, headings, links, ports, radius, bounds)


def _bezier(start: Points, leaving: Points, end: Points, arriving: Points) -> Points:
    """Join points by Bezier pieces that start towards `leaving` and come in from `arriving`."""
    handle = HANDLE * np.linalg.norm(end - start, axis=1, keepdims=True)
    return np.stack([start, start + handle * leaving, end + handle * arriving, end], axis=1)


def light_curve(
    data: MeshData, source: PortMark, destination: PortMark, passed: NDArray[np.int64]
) -> Points:
    """Draw the route of light from the mark of one port to that of another, as Bezier pieces.

    `passed` are the terminals on the way, in the order of the light: entered, left, entered, left,
    ... The result has shape (3 * pieces + 1, 2).
    """
    first = np.array([source.position])
    last = np.array([destination.position])
    positions = data.terminals[passed]
    starts = np.concatenate([first, positions])
    ends = np.concatenate([positions, last])

    # Headings point out of a cell. A piece before a terminal that is entered lies outside of the
    # cell, the next one inside; a handle points from its end into the piece.
    is_entered = np.arange(len(passed))[:, None] % 2 == 0
    outwards = data.headings[passed]
    into_piece_before = np.where(is_entered, outwards, -outwards)
    into_mesh = -np.array([source.outward, destination.outward])
    handles_of_starts = np.concatenate([into_mesh[:1], -into_piece_before])
    handles_of_ends = np.concatenate([into_piece_before, into_mesh[1:]])
    pieces = _bezier(starts, handles_of_starts, ends, handles_of_ends)

    # A piece begins where the one before it ends, so its first point is left out.
    return np.concatenate([pieces[:1, 0], pieces[:, 1:].reshape(-1, 2)])


def _ports_around_mesh(fabric: Fabric, graph: CellGraph) -> tuple[PortMark, ...]:
    """Put each port before the corner of the mesh at which its terminal is free; by port.

    A port that sends and receives at two terminals has two marks, a bidirectional one has one. Its
    name may be that of both, as ``"A>B"``. A corner is a place with the gap between cells in which
    the port lies: its direction `outward`, and `side`, 1 or -1, where two ports share the gap.
    """
    # Each mark so far: port, role, terminal and name.
    marks: list[tuple[int, Literal["both", "in", "out"], int, str]] = []
    for port, name in enumerate(fabric.port_names):
        source = int(fabric.source_terminals[port])
        destination = int(fabric.destination_terminals[port])
        if fabric.bidirectional:
            marks.append((port, "both", source, name))
        else:
            sender, _, receiver = name.partition(">")
            marks.append((port, "in", source, sender))
            marks.append((port, "out", destination, receiver))

    # ``directions[corner]``: those of the cells that meet there, in radians.
    directions = defaultdict(list)
    for (ax, ay), (bx, by) in graph.ends.tolist():
        directions[_key(ax, ay)].append(math.atan2(by - ay, bx - ax))
        directions[_key(bx, by)].append(math.atan2(ay - by, ax - bx))

    corners = [_find_corner(graph, directions, terminal) for _, _, terminal, _ in marks]

    # Two ports may lie in the same gap of a corner, which then stand beside each other.
    n_ports_in_gap = Counter(_key(*position, *outward) for position, outward, _ in corners)
    places = np.empty((len(marks), 2))
    for number, ((x, y), (out_x, out_y), side) in enumerate(corners):
        is_shared = n_ports_in_gap[_key(x, y, out_x, out_y)] > 1
        spread = side * _PORT_SPREAD if is_shared else 0.0
        places[number] = (
            x + _PORT_DISTANCE * out_x - spread * out_y,
            y + _PORT_DISTANCE * out_y + spread * out_x,
        )

    # Corners of a netlist without placements may be nearly one: their ports push each other away
    # until they are as far apart as those that share a gap.
    for _ in range(_ROUNDS_OF_PUSHES):
        apart = places[:, None] - places
        distance = np.linalg.norm(apart, axis=2) + 1e9 * np.eye(len(places))
        lack = np.maximum(0.0, 2 * _PORT_SPREAD - distance)
        if lack.max(initial=0.0) < 1e-6:
            break
        places += (apart * (lack / np.maximum(distance, 1e-9))[..., None]).sum(axis=1) / 2
    return tuple(
        PortMark(*mark, (x, y), outward)
        for mark, (x, y), (_, outward, _) in zip(marks, places.tolist(), corners, strict=True)
    )


def _find_corner(
    graph: CellGraph, directions: dict[tuple[float, ...], list[float]], terminal: int
) -> tuple[tuple[float, float], tuple[float, float], int]:
    """Find where light enters or leaves the boundary at a terminal: corner, direction, and side.

    The direction is the unit vector from the corner into the middle of the gap between cells, and
    the side says where the terminal lies: 1 left of the middle, -1 right of it.
    A cell is drawn as a line between two corners of the mesh, with two terminals at each end::

        0                    2
          first --- second
        1                    3

    The port stands before the corner, in the gap between this cell and the next one around the
    corner; at terminal 0 that is the next cell counterclockwise, at terminal 1 clockwise. Terminal
    14 is terminal 2 of cell 3. ``directions[corner]``, by its rounded place, has the angles in
    radians at which cells leave it.
    """
    # The end at which the terminal lies, and the angle at which the cell leaves it.
    cell, number = divmod(terminal, 4)
    near_end = number // 2
    x, y = graph.ends[cell, near_end].tolist()
    far_x, far_y = graph.ends[cell, 1 - near_end].tolist()
    direction = math.atan2(far_y - y, far_x - x)

    # Seen from the corner, terminals 0 and 3 face the gap to the left of the cell, which ends at
    # the next cell counterclockwise; 1 and 2 face that to the right.
    turn = 1 if number in (0, 3) else -1

    # The gap is the least angle to another cell, turned left or right; a full turn without one.
    full = 2 * math.pi
    gap = full
    for other_direction in directions[_key(x, y)]:
        angle = (turn * (other_direction - direction)) % full
        if 1e-6 < angle < full - 1e-6:
            gap = min(gap, angle)
    middle = direction + turn * gap / 2

    # At a cell without neighbours, ports go straight left, right, up or down.
    if gap == full:
        middle = round(middle * 2 / math.pi) * math.pi / 2

    # The terminal lies beside its cell. If the middle of the gap is left of the cell, then the
    # terminal is right of the middle: hence the sign.
    return (x, y), (math.cos(middle), math.sin(middle)), -turn


def _key(*numbers: float) -> tuple[float, ...]:
    """Return rounded numbers, which are equal for equal points; 0.0 replaces -0.0."""
    return tuple(round(number, 4) + 0.0 for number in numbers)


Asked = TypeVar("Asked", bound=Problem)
Found = TypeVar("Found")


@brief_tuple
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


@brief_tuple
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


@brief_tuple
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


@brief_tuple
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

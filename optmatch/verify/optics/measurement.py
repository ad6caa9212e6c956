"""Measure the light of a schedule on a given device: powers at every free terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.fabrics.cellgraph import DEAD
from optmatch.fabrics.light import trace
from optmatch.fabrics.waveguides import heat_turns, measure_waveguides, waveguide_loss_db
from optmatch.model import (
    BAR,
    CROSS,
    FREE,
    IDLE,
    InputError,
    Problem,
    Schedule,
    Solution,
    frozen,
    integer,
)
from optmatch.model.cells import CellDevice, cells_of
from optmatch.model.device import Device
from optmatch.verify.loops import find_loops
from optmatch.verify.optics.circuits import cell_matrices
from optmatch.verify.optics.figures import Loop, Optics

Idle = Literal["cross", "bar", "keep"]

DIGITS_LOST = 1e-9
"""A balance of energy that is worse than this is worth a note."""


def measure_optics(
    problem: Problem,
    subject: Schedule | Solution,
    device: Device | CellDevice | str,
    *,
    idle: Idle | ArrayLike = "cross",
    frequencies_hz: Sequence[float] = (0.0,),
    seed: int = 0,
) -> Optics:
    """Find the power at every free terminal from every port, with all leaks and all loops.

    Parameters
    ----------
    problem
        The problem, of which only the fabric matters. Whether the schedule is right, `verify`
        tells; here it is taken as it is.
    subject
        A schedule with cell states, or a solution that has one.
    device
        What cells and waveguides do to light: one device for all cells, the name of a preset, or
        a device for each cell.
    idle
        Into which state free cells are put: ``"cross"`` (the passive state of an interferometer),
        ``"bar"``, ``"keep"`` (as they were last driven; before that, cross), or the states of all
        cells in all slots, shape (slots, cells), which must agree where a cell is not free.
    frequencies_hz
        Optical frequencies, as distances from one at which the phase of every way through a cell
        or a waveguide is a multiple of a whole turn. A delay tau adds ``2 pi f tau``.
    seed
        Draws the phase errors of the chip, if the device has any.

    Returns
    -------
    Optics
        Powers, and all figures.

    Raises
    ------
    InputError
        If the fabric has no cells, there is no schedule, or states, frequencies or device are not
        as above.

    See Also
    --------
    optmatch.settle_free_cells : Chooses states for free cells that keep crosstalk low.
    Budget : Limits on the figures.

    Notes
    -----
    Each slot and frequency is one sparse system, solved by `scattering`. Where a closed loop
    neither loses nor leaks, it would be singular; as no light gets in, the figures of all ports
    hold.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> from optmatch.problems import Routing
    >>> mesh = HexMesh(1, 1, ports=[0, 1])
    >>> schedule = Schedule(matchings=[[1, 0]], durations_s=[1.0], cell_states=[[0] * 6])
    >>> optics = measure_optics(Routing(mesh, [1, 0]), schedule, "smartlight")
    >>> f"{optics.figures['worst_insertion_loss_db']:.2f} dB"
    '7.16 dB'
    """
    if not isinstance(problem, Problem):
        raise InputError(f"problem of type {type(problem).__name__}", where="problem")
    fabric = problem.fabric
    graph: CellGraph = fabric.graph
    schedule = _schedule_of(fabric, subject)
    chosen = cells_of(device, graph.n_cells)
    stated = np.asarray(schedule.cell_states)
    frequencies = frozen("frequencies_hz", np.asarray(frequencies_hz), 1, np.float64)
    if not len(frequencies):
        raise InputError("frequencies_hz: at least one", where="frequencies_hz")
    states = _settle(graph, stated, idle)
    changes = np.ones(states.shape, dtype=bool)
    changes[1:] = states[1:] != states[:-1]
    changes &= graph.stuck == FREE
    chip = _build_chip(fabric, graph, chosen, integer("seed", seed, at_least=0))
    place = np.full(len(graph.mate), -1)
    place[graph.perimeter] = np.arange(len(graph.perimeter))
    cells, links = _ways(fabric, graph, schedule.matchings, states)
    lit = schedule.matchings != IDLE
    slots = [_solve_slot(chip, row, frequencies, fabric.source_terminals) for row in states]
    return Optics(
        device=chosen.device,
        matchings=schedule.matchings,
        cell_states=states,
        frequencies_hz=frequencies,
        power=np.array([slot.power for slot in slots]),
        lost=np.array([slot.lost for slot in slots]),
        exits=place[fabric.destination_terminals].astype(np.int32),
        cells=cells,
        length_m=(cells + links) * chosen.device.cell_length_m,
        delay_s=lit
        * ((cells + links) * chosen.device.cell_delay_s + chosen.device.access_delay_s),
        loops=tuple(slot.loops for slot in slots),
        loop_power=np.array([slot.loop_power for slot in slots]),
        heater_mw=chosen.power_mw[np.arange(graph.n_cells), states].sum(axis=1),
        heat_rad=heat_turns(graph, chosen, states),
        settling_s=np.where(changes, chosen.settling_s, 0.0).max(initial=0.0, axis=1),
        notes=_notes(slots),
    )


class _Chip(NamedTuple):
    """The device applied to the cells of a fabric."""

    fabric: Fabric
    graph: CellGraph
    cells: CellDevice
    errors_rad: NDArray[np.float64] | None
    links: NDArray[np.float64]
    """``links[link]``: the amplitude that is left at the end of a waveguide."""


class _Slot(NamedTuple):
    """The optics of one slot; the fields of `Optics`."""

    power: NDArray[np.float64]
    lost: NDArray[np.float64]
    loops: tuple[Loop, ...]
    loop_power: float


def _schedule_of(fabric: Fabric, subject: Schedule | Solution) -> Schedule:
    """Return the schedule, if it is one of the fabric's ports and cells."""
    if fabric.graph is None:
        raise InputError(f"a fabric of type {fabric.type} has no cells, and no optics")
    schedule = subject.schedule if isinstance(subject, Solution) else subject
    if not isinstance(schedule, Schedule):
        raise InputError("optics need a schedule; of several planes, one at a time")
    if schedule.n_ports != fabric.n_ports or schedule.cell_states is None:
        raise InputError("optics need a schedule of the fabric's ports, with cell states")
    if schedule.cell_states.shape[1] != fabric.n_cells:
        raise InputError(
            f"cell_states of {schedule.cell_states.shape[1]} cells, a fabric of {fabric.n_cells}"
        )
    return schedule


def _notes(slots: Sequence[_Slot]) -> tuple[str, ...]:
    """Return notes for a reader of the figures."""
    notes = []
    for k, slot in enumerate(slots):
        error = np.abs(slot.power.sum(axis=2) + slot.lost - 1).max(initial=0.0)
        if error > DIGITS_LOST:
            notes.append(
                f"slot {k}: energy is off by {error:.1e}: light goes round almost without loss,"
                " and figures have few digits"
            )
    return tuple(notes)


def _settle(graph: CellGraph, given: NDArray[np.int8], idle: Idle | ArrayLike) -> NDArray[np.int8]:
    """Put every free cell into a state, and every stuck one into its own."""
    states = given.copy()
    if isinstance(idle, str):
        if idle not in get_args(Idle):
            raise InputError(
                f"idle = {idle!r}: {', '.join(get_args(Idle))} or states of all cells"
            )
        for slot, own in enumerate(states):
            rest = BAR if idle == "bar" else CROSS
            former = states[slot - 1] if slot and idle == "keep" else rest
            states[slot] = np.where(own == FREE, former, own)
    else:
        states = frozen("idle", idle, 2, np.int8).copy()
        if states.shape != given.shape or not np.isin(states, (BAR, CROSS)).all():
            raise InputError(f"idle has a state 0 or 1 for each cell in each slot: {given.shape}")
        for slot, cell in np.argwhere((given != FREE) & (given != states)):
            raise InputError(
                f"idle[{slot}, {cell}] = {states[slot, cell]}: that cell is in {given[slot, cell]}"
            )
    return np.where(np.isin(graph.stuck, (BAR, CROSS)), graph.stuck, states).astype(np.int8)


def _build_chip(fabric: Fabric, graph: CellGraph, cells: CellDevice, seed: int) -> _Chip:
    """Draw the phase errors of a chip, and find what is left of light behind its waveguides."""
    errors_rad = cells.device.draw_errors(graph.n_cells, seed)
    left_behind = 10 ** (-waveguide_loss_db(graph, cells.device) / 20)
    return _Chip(fabric, graph, cells, errors_rad, left_behind)


def _solve_slot(
    chip: _Chip,
    states: NDArray[np.int8],
    frequencies_hz: NDArray[np.float64],
    inputs: NDArray[np.int32],
) -> _Slot:
    """Solve one slot at every frequency."""
    from optmatch.verify.optics.scattering import scatter  # here only, since it needs SciPy

    graph, tau_s = chip.graph, chip.cells.device.cell_delay_s
    errors_rad = np.zeros((graph.n_cells, 2)) if chip.errors_rad is None else chip.errors_rad
    heat = heat_turns(graph, chip.cells, states)[:, None] / 2
    cells = cell_matrices(chip.fabric, chip.cells, states, errors_rad + heat * (1, -1))
    cells[graph.stuck == DEAD] = 0.0
    power_through = np.abs(cells) ** 2  # from a to b; light from b to a sums over the other axis
    left_over = [power_through.sum(axis=1), power_through.sum(axis=2)]
    absorbed = 1 - np.concatenate(left_over, axis=1).ravel()
    faded = np.where(graph.mate < 0, 0.0, 1 - chip.links[graph.links.of_terminal] ** 2)
    length = measure_waveguides(graph).length
    (loops,) = find_loops(graph, states[None])
    round_there = [terminal for loop in loops for terminal in (*loop.entered, *loop.left)]

    power, lost, loop_power = [], [], 0.0
    for frequency in frequencies_hz:
        turn = 2j * np.pi * frequency * tau_s
        waves = scatter(graph, cells * np.exp(turn), chip.links * np.exp(turn * length), inputs)
        entering, leaving = np.abs(waves.entering) ** 2, np.abs(waves.leaving) ** 2
        power.append(leaving[graph.perimeter].T)
        lost.append(absorbed @ entering + faded @ leaving)
        loop_power = max(loop_power, float(entering[round_there].max(initial=0.0)))
    named = tuple(loop.cells for loop in loops)
    return _Slot(np.array(power), np.array(lost), named, loop_power)


def _ways(
    fabric: Fabric, graph: CellGraph, matchings: NDArray[np.int32], states: NDArray[np.int8]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Measure the way of each circuit: its cells, and the length of its waveguides in cells."""
    light = trace(graph, states, np.where(matchings == IDLE, -1, fabric.source_terminals))
    cells, links = np.zeros(matchings.shape, dtype=np.int32), np.zeros(matchings.shape)
    np.add.at(cells, (light.slot, light.beam), 1)
    length = measure_waveguides(graph).length[graph.links.of_terminal[light.left]]
    np.add.at(links, (light.slot, light.beam), length)
    return cells, links

"""Measure the light of a schedule on a given device: powers at every free terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics import DEAD, CellGraph, Fabric
from optmatch.fabrics.light import trace
from optmatch.fabrics.netlists.circuits import cell_circuits, with_cell_phases
from optmatch.fabrics.waveguides import heat_turns, measure_waveguides, waveguide_loss_db
from optmatch.model import (
    BAR,
    CROSS,
    FREE,
    IDLE,
    CellDevice,
    Device,
    InputError,
    Problem,
    Schedule,
    Solution,
    cells_of,
    frozen,
    integer,
    schedule_of,
)
from optmatch.model.device import DEFAULT_DEVICE, distances_hz
from optmatch.model.numbers import refuse_entries
from optmatch.optics.figures import Loop, Optics
from optmatch.verify.light import circuit_matrices, ideal_matrix

Idle = Literal["cross", "bar", "keep"]

DIGITS_LOST = 1e-9
"""A balance of energy that is worse than this is worth a note."""


@overload
def measure_optics(
    problem: Solution,
    subject: Device | CellDevice | str = ...,
    device: None = ...,
    *,
    idle: Idle | ArrayLike = ...,
    frequencies_hz: Sequence[float] = ...,
    wavelengths_nm: Sequence[float] | None = ...,
    seed: int = ...,
) -> Optics: ...
@overload
def measure_optics(
    problem: Solution,
    subject: None = ...,
    *,
    device: Device | CellDevice | str,
    idle: Idle | ArrayLike = ...,
    frequencies_hz: Sequence[float] = ...,
    wavelengths_nm: Sequence[float] | None = ...,
    seed: int = ...,
) -> Optics: ...
@overload
def measure_optics(
    problem: Problem,
    subject: Schedule | Solution,
    device: Device | CellDevice | str = ...,
    *,
    idle: Idle | ArrayLike = ...,
    frequencies_hz: Sequence[float] = ...,
    wavelengths_nm: Sequence[float] | None = ...,
    seed: int = ...,
) -> Optics: ...
def measure_optics(
    problem: Problem | Solution,
    subject: Schedule | Solution | Device | CellDevice | str | None = None,
    device: Device | CellDevice | str | None = None,
    *,
    idle: Idle | ArrayLike = "cross",
    frequencies_hz: Sequence[float] = (0.0,),
    wavelengths_nm: Sequence[float] | None = None,
    seed: int = 0,
) -> Optics:
    """Compute what light does on a chip that follows a schedule: losses, crosstalk, power.

    A chip consists of cells (2 x 2 switches) that waveguides join. In each time slot the schedule
    sets the cells. Real cells leak, and the leaks are followed, too, over all ways and loops: the
    result has the power that gets from every port to every terminal on the boundary.

    Parameters
    ----------
    problem
        The problem, of which the fabric and its device matter. Whether the schedule is right,
        `verify` tells; here it is taken as it is. A solution stands for its problem and its
        schedule: then the device comes next.
    subject
        A schedule with cell states, or a solution that has one.
    device
        What cells and waveguides do to light: one device for all cells, the name of a preset, or
        a device for each cell. None: those that the problem states, or ``"smartlight"``.
    idle
        Into which state free cells are put: ``"cross"`` (the passive state of an interferometer),
        ``"bar"``, ``"keep"`` (as they were last driven; before that, cross), or the states of all
        cells in all slots, shape (slots, cells), which must agree where a cell is not free.
    frequencies_hz
        Optical frequencies, as distances from one at which the phase of every way through a cell
        or a waveguide is a multiple of a whole turn. A delay tau adds ``2 pi f tau``, and couplers
        split as the device says for that wavelength (`Device.coupler_slope_per_nm`).
    wavelengths_nm
        Instead of `frequencies_hz`: wavelengths in nm.
    seed
        Draws the phase errors of the chip, if the device has any.

    Returns
    -------
    Optics
        By slot, its arrays have

        - the power at each free terminal, and the part that is lost, for each frequency and source
          port;
        - the cells, the length and the delay of each circuit;
        - closed loops of cells, the power of heaters, and the time in which they settle.

        Its `figures` sum them up, such as the worst insertion loss.

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
    # If the first argument is a solution, it brings its problem and its schedule, and the device
    # is the second argument or `device`.
    answer: Any = subject
    chosen_device: Any = device
    if isinstance(problem, Solution):
        if subject is not None and device is not None:
            raise InputError("a solution and two devices", where="device")
        chosen_device = device if subject is None else subject
        answer = problem
        problem = problem.problem
    if not isinstance(problem, Problem):
        raise InputError(f"problem of type {type(problem).__name__}", where="problem")
    if chosen_device is None:
        chosen_device = getattr(problem, "cells", None) or DEFAULT_DEVICE

    # The chip, and the states of all its cells in each slot.
    fabric = problem.fabric
    graph: CellGraph = fabric.graph
    schedule = _schedule_of(fabric, answer)
    cells = with_cell_phases(fabric, cells_of(chosen_device, graph.n_cells))
    frequencies = distances_hz(cells.device.wavelength_nm, frequencies_hz, wavelengths_nm)
    states = _settle_free_cells(graph, np.asarray(schedule.cell_states), idle)

    # The phase errors of this chip, and the amplitude that is left behind each waveguide.
    errors_rad = cells.device.draw_errors(graph.n_cells, integer("seed", seed, at_least=0))
    if errors_rad is None:
        errors_rad = np.zeros((graph.n_cells, 2))
    waveguide_amplitude = 10 ** (-waveguide_loss_db(graph, cells.device) / 20)

    # A netlist has names where light comes in and goes out.
    names: tuple[tuple[str, str], ...] = ()
    if graph.names is not None:
        names = tuple(zip(fabric.sender_names, fabric.receiver_names, strict=True))

    # The light of each slot. Its energy is conserved but for rounding.
    slots = [
        _solve_slot(fabric, cells, errors_rad, waveguide_amplitude, row, frequencies)
        for row in states
    ]
    notes = []
    for number, slot in enumerate(slots):
        error = np.abs(slot.power.sum(axis=2) + slot.lost - 1).max(initial=0.0)
        if error > DIGITS_LOST:
            notes.append(
                f"slot {number}: energy is off by {error:.1e}: light goes round almost without"
                " loss, and figures have few digits"
            )

    # Which cells change before each slot: before the first one all, but for those that are stuck.
    changes = np.ones(states.shape, dtype=bool)
    changes[1:] = states[1:] != states[:-1]
    changes &= graph.stuck == FREE

    # ``place_in_perimeter[terminal]``: where a free terminal stands in ``graph.perimeter``, the
    # order in which powers are listed; -1 for all others.
    place_in_perimeter = np.full(len(graph.mate), -1)
    place_in_perimeter[graph.perimeter] = np.arange(len(graph.perimeter))

    # By slot and source, the cells on each circuit, and its length in lengths of a cell: one for
    # each cell, and the waveguide behind it. `light` has an entry for each cell on each way.
    is_idle = schedule.matchings == IDLE
    light = trace(graph, states, np.where(is_idle, -1, fabric.source_terminals))
    n_cells_passed = np.zeros(is_idle.shape, dtype=np.int32)
    np.add.at(n_cells_passed, (light.slot, light.beam), 1)
    route_lengths = n_cells_passed.astype(np.float64)
    behind_cell = measure_waveguides(graph).length[graph.links.of_terminal[light.left]]
    np.add.at(route_lengths, (light.slot, light.beam), behind_cell)
    route_delay_s = route_lengths * cells.device.cell_delay_s + cells.device.access_delay_s
    return Optics(
        device=cells.device,
        matchings=schedule.matchings,
        cell_states=states,
        frequencies_hz=frequencies,
        power=np.array([slot.power for slot in slots]),
        lost=np.array([slot.lost for slot in slots]),
        exits=place_in_perimeter[fabric.destination_terminals].astype(np.int32),
        cells=n_cells_passed,
        length_m=route_lengths * cells.device.cell_length_m,
        delay_s=np.where(is_idle, 0.0, route_delay_s),
        loops=tuple(slot.loops for slot in slots),
        loop_power=np.array([slot.loop_power for slot in slots]),
        heater_mw=cells.power_mw[np.arange(graph.n_cells), states].sum(axis=1),
        heat_rad=heat_turns(graph, cells, states),
        settling_s=np.where(changes, cells.settling_s, 0.0).max(initial=0.0, axis=1),
        notes=tuple(notes),
        port_names=names,
    )


class _Slot(NamedTuple):
    """The optics of one slot, as in `Optics`."""

    power: NDArray[np.float64]
    """(frequencies, sources, perimeter terminals): the power that leaves there."""
    lost: NDArray[np.float64]
    """(frequencies, sources): the power that cells and waveguides absorb."""
    loops: tuple[Loop, ...]
    """The cells of each closed loop, in order."""
    loop_power: float
    """The largest power that enters a cell of a loop, over all frequencies and sources."""


def _schedule_of(fabric: Fabric, subject: Schedule | Solution) -> Schedule:
    """Return the schedule whose light is to be measured, if it fits the fabric."""
    if fabric.graph is None:
        raise InputError(f"a fabric of type {fabric.type} has no cells, and no optics")
    schedule = schedule_of(subject)
    if not isinstance(schedule, Schedule):
        raise InputError("optics need a schedule; of several planes, one at a time")
    if schedule.n_ports != fabric.n_ports or schedule.cell_states is None:
        raise InputError("optics need a schedule of the fabric's ports, with cell states")
    if schedule.cell_states.shape[1] != fabric.n_cells:
        raise InputError(
            f"cell_states of {schedule.cell_states.shape[1]} cells, a fabric of {fabric.n_cells}"
        )
    return schedule


def _settle_free_cells(
    graph: CellGraph, stated: NDArray[np.int8], idle: Idle | ArrayLike
) -> NDArray[np.int8]:
    """Put every free cell into a state, and every stuck one into that in which it is stuck.

    `idle` is the state of free cells; ``"keep"`` is the state in the slot before, and cross if the
    schedule has not driven the cell yet. An array states all cells, and must agree with `stated`
    where that is not free.
    """
    states = stated.copy()
    if isinstance(idle, str):
        if idle not in get_args(Idle):
            raise InputError(
                f"idle = {idle!r}: {', '.join(get_args(Idle))} or states of all cells"
            )
        # With "keep", too, cells are in cross before the schedule drives them: the passive state.
        resting_state = BAR if idle == "bar" else CROSS
        former_states = np.full(graph.n_cells, resting_state, dtype=np.int8)
        for slot, stated_in_slot in enumerate(stated):
            states[slot] = np.where(stated_in_slot == FREE, former_states, stated_in_slot)
            if idle == "keep":
                former_states = states[slot]
    else:
        # Stated states may fill in free cells, but not contradict the circuits of the schedule.
        states = frozen("idle", idle, 2, np.int8).copy()
        if states.shape != stated.shape or not np.isin(states, (BAR, CROSS)).all():
            raise InputError(f"idle has a state 0 or 1 for each cell in each slot: {stated.shape}")
        refuse_entries(
            "idle",
            (stated != FREE) & (stated != states),
            lambda *place: f" = {states[place]}: that cell is in {stated[place]}",
        )

    # A dead cell is none of these: it keeps a state, but light does not pass it.
    is_stuck = np.isin(graph.stuck, (BAR, CROSS))
    return np.where(is_stuck, graph.stuck, states).astype(np.int8)


def _solve_slot(
    fabric: Fabric,
    cells: CellDevice,
    errors_rad: NDArray[np.float64],
    waveguide_amplitude: NDArray[np.float64],
    states: NDArray[np.int8],
    frequencies_hz: NDArray[np.float64],
) -> _Slot:
    """Compute where light goes on a chip in one slot, at every frequency.

    Frequencies are distances from the central one. ``errors_rad[cell, arm]`` are errors of phases,
    ``waveguide_amplitude[link]`` is what is left of an amplitude at the end of a waveguide, and
    ``states[cell]`` is `BAR` or `CROSS`. Light of each source is followed alone over all leaks and
    loops, as the solution of one linear system for each frequency. Powers are parts of what a
    source sends, without losses at facets.
    """
    from optmatch.optics.scattering import scatter  # here only, since it needs SciPy

    # Heat of other cells turns the difference of the phases of both arms: half of it is added to
    # the phase of one arm, and half taken from that of the other.
    graph: Any = fabric.graph
    heat_rad = heat_turns(graph, cells, states)[:, None] / 2 * np.array([1, -1])

    # The part of the power that a waveguide absorbs, by the terminal at which light leaves a cell;
    # 0 at a free terminal.
    left_of_power = waveguide_amplitude[graph.links.of_terminal] ** 2
    faded = np.where(graph.mate < 0, 0.0, 1 - left_of_power)

    # Closed loops of cells that no port leads into: leaks may fill them with light.
    loops = find_loops(graph, states)
    terminals_of_loops = [terminal for loop in loops for terminal in (*loop.entered, *loop.left)]
    waveguide_lengths = measure_waveguides(graph).length
    power = []
    lost = []
    loop_power = 0.0
    coupling_changes = cells.device.coupling_changes(frequencies_hz)
    for frequency_hz, coupling_change in zip(frequencies_hz, coupling_changes, strict=True):
        # Couplers split otherwise at another wavelength. No light passes a dead cell.
        matrices = cell_matrices(
            fabric, cells, states, errors_rad + heat_rad, float(coupling_change)
        )
        matrices[graph.stuck == DEAD] = 0.0

        # The power that a cell absorbs, by the terminal entered, is what it does not pass on.
        # Light that enters at a side a leaves at both sides b, the sum over axis 1; from b to a,
        # the matrix is transposed, and the sum is over axis 2. The columns are a1, a2, b1 and b2.
        power_through = np.abs(matrices) ** 2
        passed_on = np.concatenate([power_through.sum(axis=1), power_through.sum(axis=2)], axis=1)
        absorbed = 1 - passed_on.ravel()

        # A delay turns the phase by 2 pi f tau, in cells and, by their length, in waveguides.
        turn = 2j * np.pi * frequency_hz * cells.device.cell_delay_s
        turned_cells = matrices * np.exp(turn)
        turned_waveguides = waveguide_amplitude * np.exp(turn * waveguide_lengths)
        waves = scatter(graph, turned_cells, turned_waveguides, fabric.source_terminals)
        entering_power = np.abs(waves.entering) ** 2
        leaving_power = np.abs(waves.leaving) ** 2
        power.append(leaving_power[graph.perimeter].T)
        lost.append(absorbed @ entering_power + faded @ leaving_power)
        in_loops = entering_power[terminals_of_loops]
        loop_power = max(loop_power, float(in_loops.max(initial=0.0)))
    return _Slot(
        power=np.array(power),
        lost=np.array(lost),
        loops=tuple(loop.cells for loop in loops),
        loop_power=loop_power,
    )


def cell_matrices(
    fabric: Fabric,
    cells: CellDevice,
    states: NDArray[np.int8],
    errors_rad: NDArray[np.float64] | None = None,
    coupling_change: float = 0.0,
) -> NDArray[np.complex128]:
    """Return the transfer matrices ``T[..., cell, b side, a side]`` of all cells in given states.

    Light of amplitude 1 that enters a cell at a side a leaves at a side b with the complex
    amplitude T. Terminals 0 and 1 of a cell are at its end a, 2 and 3 at its end b. ``states[...,
    cell]`` is 0 for bar and 1 for cross, never free. A device states losses, leaks and phase
    errors of an ideal cell. Where the parts of a cell are known (its `CellCircuit`), T is the
    matrix of the device, times the inverse of that of an ideal cell, times that of the parts.
    ``errors_rad[cell, arm]`` are errors of phases. At the central wavelength half of the power
    crosses in each coupler; with a `coupling_change` of 0.01 it is 51 %.
    """
    device_matrices = cells.cell(states, errors_rad)
    detuned = detune_couplers(device_matrices, coupling_change)
    known = circuit_matrices(fabric, coupling_change)  # [cell, state, b side, a side]
    if known is None:
        return detuned
    # The effect of the device on an ideal cell is its matrix times the inverse of the ideal one.
    # An ideal matrix is unitary and symmetric, so its inverse is its conjugate. Known matrices are
    # those with the couplers of this wavelength already.
    ideal_by_state = np.stack([ideal_matrix(BAR), ideal_matrix(CROSS)])
    factor = device_matrices @ ideal_by_state[states].conj()
    matrices: NDArray[np.complex128] = factor @ known[np.arange(len(known)), states]

    # Light that leaks towards a terminal that a cell does not have, one without a pin of its
    # circuit, is lost in its coupler.
    for cell, circuit in enumerate(cell_circuits(fabric)):
        if circuit is None:
            matrices[..., cell, :, :] = detuned[..., cell, :, :]
            continue
        for b_side, b_pin in enumerate(circuit.terminals[2:]):
            if not b_pin:
                matrices[..., cell, b_side, :] = 0.0
    return matrices


def detune_couplers(
    matrices: NDArray[np.complex128], coupling_change: float
) -> NDArray[np.complex128]:
    r"""Return the matrices of interferometers whose couplers split unevenly.

    With 50:50 couplers a cell has the matrix :math:`g j e^{j\Delta} ((s, c), (c, -s))` with
    :math:`s = \sin\vartheta` and :math:`c = \cos\vartheta`. If both couplers send the share
    :math:`1/2 + \delta` of the power across, multiplying couplers and arms out gives :math:`g j
    e^{j\Delta} ((s + 2j\delta c, c w), (c w, -s + 2j\delta c))` with :math:`w^2 = 1 - 4\delta^2`.
    In cross the power :math:`4\delta^2` thus stays on its side, and bar does not change.
    ``matrices[..., b side, a side]`` has the first form, and `coupling_change` is :math:`\delta`.
    """
    if coupling_change == 0.0:
        return matrices
    crossing = matrices[..., 0, 1]
    detuned = matrices.copy()
    detuned[..., 0, 0] += 2j * coupling_change * crossing
    detuned[..., 1, 1] += 2j * coupling_change * crossing
    detuned[..., [0, 1], [1, 0]] *= math.sqrt(1 - 4 * coupling_change**2)
    return detuned


class LightLoop(NamedTuple):
    """A closed way of light through set cells that no light from outside takes, in one direction.

    A loop breaks no rule. Stray light that leaks into one goes round, as in a ring resonator.
    """

    entered: tuple[int, ...]
    """The terminals at which cells are entered, in order."""
    left: tuple[int, ...]
    """The terminals by which they are left."""

    @property
    def cells(self) -> tuple[int, ...]:
        """The cells, in order; one that is passed twice is there twice."""
        return tuple(terminal // 4 for terminal in self.entered)


def find_loops(graph: CellGraph, states: NDArray[np.int8]) -> list[LightLoop]:
    """Find the closed loops of light, each once, in the order of their lowest terminals.

    Light is sent in at free terminals and out of cells that are not set (``states[cell]`` is
    free); terminals of set cells that stay dark form the loops. A stuck cell is as it is, whatever
    `states` says. Time is proportional to the number of cells.
    """
    # By terminal: whether its cell guides light, as one that is set does (no link leads to a dead
    # one); where light that enters leaves the cell (`exit_at`), and where it then enters the next
    # one (`next_at`, -1 outside).
    guides = (states != FREE) | (graph.stuck != FREE)
    guides_at = np.repeat(guides, 4)
    crossed_at = np.repeat(states == CROSS, 4).astype(np.int64)
    exits = graph.exits[np.arange(len(graph.mate)), crossed_at]
    exit_at = exits.tolist()
    next_at = graph.mate[exits].tolist()

    # Light from outside, or out of a cell that is not set, makes all terminals on its way lit.
    dark = set(np.flatnonzero(guides_at).tolist())
    fed_by_set_cell = (graph.mate >= 0) & guides_at[graph.mate]
    for terminal in np.flatnonzero(~fed_by_set_cell).tolist():
        while terminal in dark:
            dark.remove(terminal)
            terminal = next_at[terminal]

    # From the lowest terminal that is still dark, light goes round until it comes back.
    loops = []
    for first in sorted(dark):
        entered = []
        terminal = first
        while terminal in dark:
            # The exits are taken off too: they belong to the same loop, turned round.
            dark -= {terminal, exit_at[terminal]}
            entered.append(terminal)
            terminal = next_at[terminal]
        if entered:
            loops.append(LightLoop(tuple(entered), tuple(exit_at[entry] for entry in entered)))
    return loops

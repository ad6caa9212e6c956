r"""The light of a chip's model in measured states, and what a changed cell does to it.

A cell in one state passes light by the matrix :math:`j ((s, x), (x, -s)) F` of two real
amplitudes: `s` straight on (the wanted way in bar) and `x` across (the wanted way in cross). Loss,
extinction, a turned phase, a stuck and a dead cell are all a pair (s, x) for each state. The
factor F is the common error of the phases of both arms and, in a chip read from a netlist, the
matrix of the cell's own circuit over that of an ideal cell (`state_factors`).

If one cell changes its matrix by D, the light that leaves the chip changes by
:math:`c^T D (I - R D)^{-1} e`: e is the light that enters the cell, R what comes back to the cell
of the light that leaves it, and c what destinations get of that light. All three belong to the
unchanged chip; they are computed once, and any change of any cell then follows exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.fabrics.cellgraph import DEAD
from optmatch.fabrics.waveguides import heat_turns, waveguide_loss_db
from optmatch.model import BAR, CROSS, Device, InputError, Measurement
from optmatch.model.cells import HALF_TURNED, CellDevice
from optmatch.model.declarations import form_of
from optmatch.verify.optics.circuits import circuit_factors
from optmatch.verify.optics.noise import FLOOR

KEPT = 1 - 1e-5
"""The share of an amplitude that a cell passes on beside its loss (0.00009 dB): without it, a
closed loop that loses nothing would have no solution."""

STRAIGHT, ACROSS = 0, 1
"""Indices of the two amplitudes of a cell."""

_SOLVED_AT_ONCE = 256  # inputs of one sparse solution: bounds memory, changes no result


class MeasuredState(NamedTuple):
    """One measured state of all cells, and the light of the model in it."""

    cell_states: NDArray[np.int8]
    """(cells,): 0 bar, 1 cross; stuck cells as they are stuck."""
    factor: NDArray[np.complex128]
    """(cells, 2, 2): what the matrix of two amplitudes is multiplied with, see `state_factors`."""
    heat_turn_rad: NDArray[np.float64]
    """(cells,): by how much heat of other cells turns half the difference of the arms' phases."""
    compared: NDArray[np.bool_]
    """(sources, destinations): pairs that were measured, and say something."""
    measured_db: NDArray[np.float64]
    """(pairs,): measured powers of the compared pairs, by `level_db`."""
    arriving: NDArray[np.complex128]
    """(sources, destinations): amplitudes from fibre to fibre in the model."""
    entering: NDArray[np.complex128]
    """(cells, 4, sources): amplitudes that enter a cell at its terminals a1, a2, b1, b2."""
    collected: NDArray[np.complex128]
    """(cells, 4, destinations): what a destination gets of light that leaves a terminal."""
    returning: NDArray[np.complex128]
    """(cells, 4 entered, 4 left): what comes back to the cell of light that leaves a terminal."""


def level_db(power: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return powers in dB above a floor of -60 dB, which none falls below."""
    level: NDArray[np.float64] = 10 * np.log10(power + FLOOR)
    return level


def graph_of(fabric: Fabric) -> CellGraph:
    """Return the cells of a fabric; raise `InputError` if it is no fabric, or has no cells."""
    form_of(Fabric).check("fabric", fabric)
    if fabric.graph is None:
        raise InputError(f"a fabric of type {fabric.type} has no cells to measure")
    return fabric.graph


def check_measurement(fabric: Fabric, measured: Measurement) -> None:
    """Refuse a measurement that is not one of a fabric's cells and ports.

    Parameters
    ----------
    fabric
        The switch that was measured.
    measured
        ``cell_states[state, cell]`` and ``power[state, source, destination]``; powers are NaN
        where nothing was measured.

    Raises
    ------
    InputError
        If shapes do not fit, or no pair was measured.
    """
    form_of(Fabric).check("fabric", fabric)
    form_of(Measurement).check("measured", measured)
    states_shape = measured.cell_states.shape
    power_shape = measured.power.shape
    expected_shape = (len(measured.power), fabric.n_ports, fabric.n_ports)
    if states_shape[1] != fabric.n_cells or power_shape != expected_shape:
        raise InputError(
            f"cell_states {states_shape}, power {power_shape}: a fabric of"
            f" {fabric.n_cells} cells and {fabric.n_ports} ports"
        )
    if np.isnan(measured.power).all():
        raise InputError("power: no pair was measured", where="power")


def set_stuck_cells(graph: CellGraph, cell_states: NDArray[np.int8]) -> NDArray[np.int8]:
    """Put stuck cells into the state in which they are stuck; ``cell_states[..., cell]``."""
    is_stuck = (graph.stuck == BAR) | (graph.stuck == CROSS)
    return np.where(is_stuck, graph.stuck, cell_states).astype(np.int8)


def without_half_turned(measured: Measurement) -> Measurement:
    """Keep the measured states in which every cell is in bar or in cross.

    Parameters
    ----------
    measured
        Powers by state of the cells: 0 bar, 1 cross, 2 half turned, which is midway.

    Returns
    -------
    Measurement
        The same one if all states are kept.

    Raises
    ------
    InputError
        If no state is left.
    """
    is_kept = ~(measured.cell_states == HALF_TURNED).any(axis=1)
    if is_kept.all():
        return measured
    if not is_kept.any():
        raise InputError(
            "cell_states: in every state some cell is half turned; cells are compared in states of"
            " bar and cross alone, and a whole chip is fitted with others",
            where="cell_states",
        )
    band_power = None if measured.band_power is None else measured.band_power[is_kept]
    return replace(
        measured,
        cell_states=measured.cell_states[is_kept],
        power=measured.power[is_kept],
        band_power=band_power,
    )


def state_factors(fabric: Fabric, cells: CellDevice) -> NDArray[np.complex128]:
    """Return the factor that makes the matrix of a cell of a matrix of two real amplitudes.

    It is the error that both arms of the cell share, and the effect of its own circuit.

    Parameters
    ----------
    fabric
        The switch.
    cells
        The errors of the arms of each cell, in rad.

    Returns
    -------
    complex128 array
        ``F[cell, state, 2, 2]``, for bar, cross and half turned.
    """
    common_error_rad = cells.arm_errors_rad.mean(axis=1)
    factors: NDArray[np.complex128] = np.exp(1j * common_error_rad)[
        :, None, None, None
    ] * circuit_factors(fabric)
    return factors


def nominal_amplitudes(graph: CellGraph, cells: CellDevice) -> NDArray[np.float64]:
    """Return the amplitudes of light through each cell of a chip as modelled.

    Parameters
    ----------
    graph
        The cells; dead ones let no light through.
    cells
        Losses, extinctions and phase errors of each cell.

    Returns
    -------
    float64 array
        ``amplitudes[cell, bar or cross, straight or across]``, shape (cells, 2, 2).
    """
    both_states = np.broadcast_to(np.array([[BAR], [CROSS]]), (2, graph.n_cells))
    matrices = cells.cell(both_states)  # [state, cell, side left by, side entered]
    # The common error of both arms is part of the factor instead.
    real = matrices[..., 0] * np.exp(-1j * cells.arm_errors_rad.mean(axis=1))[:, None]
    amplitudes: NDArray[np.float64] = np.moveaxis(real.imag, 0, 1).copy()
    amplitudes[graph.stuck == DEAD] = 0.0
    return amplitudes


def turn_amplitudes(
    amplitudes: NDArray[np.float64], turn_rad: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Turn the amplitudes of cells by an angle each: a change of the phases of their two arms.

    Parameters
    ----------
    amplitudes
        ``amplitudes[..., straight or across]``: real amplitudes of light that stays on its side,
        and of light that changes it.
    turn_rad
        Half the change of the phase difference of both arms, in rad; shape ``[...]``. An ideal
        cell with half the difference x has the amplitudes (sin x, cos x).

    Returns
    -------
    float64 array
        The turned amplitudes, of the shape of `amplitudes`.
    """
    straight = amplitudes[..., STRAIGHT]
    across = amplitudes[..., ACROSS]
    sine = np.sin(turn_rad)
    cosine = np.cos(turn_rad)
    return np.stack(
        [straight * cosine + across * sine, across * cosine - straight * sine], axis=-1
    )


def cell_matrices(amplitudes: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Return the matrices of cells, given the amplitudes of their two ways.

    Parameters
    ----------
    amplitudes
        ``amplitudes[..., straight or across]``: of light that stays on its side, and of light
        that changes it; real.

    Returns
    -------
    complex128 array
        ``T[..., side left by, side entered]``: j times ((straight, across), (across, -straight)).
    """
    straight = amplitudes[..., STRAIGHT]
    across = amplitudes[..., ACROSS]
    entries = np.stack([straight, across, across, -straight], axis=-1)
    matrices = np.zeros((*straight.shape, 2, 2), dtype=np.complex128)
    matrices.imag = entries.reshape(matrices.shape)
    return matrices


def both_directions(matrices: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return the matrices of cells for all four terminals, given those for light from end a to b.

    Parameters
    ----------
    matrices
        ``matrices[..., side left by, side entered]``, complex128.

    Returns
    -------
    complex128 array
        ``full[..., terminal left by, terminal entered]``, with the terminals a1, a2, b1, b2. Light
        from b to a has the transpose; no light comes back at its own end.
    """
    full = np.zeros((*matrices.shape[:-2], 4, 4), dtype=np.complex128)
    full[..., 2:, :2] = matrices
    full[..., :2, 2:] = np.swapaxes(matrices, -1, -2)
    return full


def model_states(
    fabric: Fabric,
    measured: Measurement,
    cells: CellDevice,
    amplitudes: NDArray[np.float64],
    *,
    with_returns: bool = True,
) -> list[MeasuredState]:
    """Compute the light of a chip by its model, for each setting of the cells that was measured.

    A cell is an interferometer with two waveguides. Light that enters by one of them leaves by the
    same one (straight) or by the other one (across). The model says with which amplitude.

    Parameters
    ----------
    fabric
        The chip.
    measured
        The measurement, of which two arrays are read:

        - ``cell_states[k, cell]``: the state of each cell in setting k: 0 bar, 1 cross;
        - ``power[k, source, destination]``: the measured part of the power that gets from port to
          port; NaN where nothing was measured.
    cells
        The device: losses of waveguides and facets, phase errors of the cells, and how much the
        heat of a cell turns the phase of other cells.
    amplitudes
        float64, (cells, 2 states, 2): the real amplitude of light that passes a cell in bar or
        cross straight ([..., 0]) and across ([..., 1]), while no other cell is heated.
    with_returns
        Whether the field `returning` of the results is wanted: the light that comes back to a cell
        by loops. It takes most of the time, one solution for each terminal of each cell. If
        False it is 0, and the results tell the effect of a changed cell to first order only.

    Returns
    -------
    list of MeasuredState
        One for each setting, in their order: the states of the cells, the light of the model
        (amplitudes at the destinations, and in each cell), and the measured powers in dB to
        compare it with.
    """
    graph = graph_of(fabric)
    every_cell = np.arange(graph.n_cells)

    # What the matrix of a cell is multiplied with in each state: the phase error that both of its
    # arms share, and the effect of its own circuit. Shape (cells, states, 2, 2).
    factors = state_factors(fabric, cells)
    solved = []
    for row, power in zip(measured.cell_states, measured.power, strict=True):
        # A stuck cell is in the state in which it is stuck. Compared are the pairs of ports that
        # were measured.
        states = set_stuck_cells(graph, row)
        compared = compared_pairs(fabric, power)

        # The matrix of each cell in its state. The heat of all other cells turns its amplitudes,
        # and differs from setting to setting. `KEPT`, a little below 1, is a loss that keeps
        # closed loops solvable.
        factor = factors[every_cell, states]
        turn_rad = heat_turns(graph, cells, states) / 2
        heated = turn_amplitudes(amplitudes[every_cell, states], turn_rad)
        matrices = KEPT * cell_matrices(heated) @ factor
        light = _solve_light(fabric, graph, cells.device, matrices, with_returns)
        measured_db = level_db(power[compared])
        solved.append(MeasuredState(states, factor, turn_rad, compared, measured_db, *light))
    return solved


def compared_pairs(fabric: Fabric, power: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell which pairs of ports were measured and say something about the cells.

    Parameters
    ----------
    fabric
        The switch.
    power
        ``power[source, destination]``; NaN where nothing was measured.

    Returns
    -------
    bool array
        The same shape; False between a bidirectional port and itself.
    """
    compared: NDArray[np.bool_] = ~np.isnan(power)
    if fabric.bidirectional:
        # Light that comes back to the port it was sent from is not told from a reflection.
        np.fill_diagonal(compared, False)
    return compared


def _solve_light(
    fabric: Fabric,
    graph: CellGraph,
    device: Device,
    matrices: NDArray[np.complex128],
    with_returns: bool,
) -> tuple[NDArray[np.complex128], ...]:
    """Solve for the light of a chip in one setting: what arrives, and what passes each cell.

    A cell has four terminals: a1 and a2 at its end a, b1 and b2 at its end b. Waveguides join
    terminals of different cells; fibres are joined to the free ones at facets. Light is described
    by its amplitude, a complex number whose squared size is the power. The chip is linear: if
    twice the light is sent, twice the light arrives.

    Parameters
    ----------
    fabric, graph
        The chip and its cells. ``graph.mate[terminal]`` is the terminal that a waveguide joins it
        to, negative if it is free.
    device
        The loss of waveguides and facets.
    matrices
        complex128, (cells, side of end b, side of end a): what a cell makes of light from end a to
        end b, heat and faults included. Light from b to a has the transpose.
    with_returns
        Whether `returning` is wanted, which takes one solution for each joined terminal.

    Returns
    -------
    arriving
        (sources, destinations): amplitudes from fibre to fibre.
    entering
        (cells, 4 terminals a1 a2 b1 b2, sources): the amplitude that enters a cell at a terminal
        for light of amplitude 1 in the fibre of a source, both facets counted.
    collected
        (cells, 4 terminals, destinations): the amplitude at a destination for light of amplitude
        1 that leaves a cell at a terminal; facets are not counted here.
    returning
        (cells, 4 terminals entered, 4 terminals left): the amplitude that comes back to a cell at
        one of its terminals for light of amplitude 1 that has left it at another, by all ways
        through the chip. 0 for light that leaves at a free terminal, and everywhere if it is not
        wanted.
    """
    from optmatch.verify.optics.scattering import scatter  # here only, since it needs SciPy

    n_cells = graph.n_cells
    waveguides = (10 ** (-waveguide_loss_db(graph, device) / 20)).astype(np.complex128)
    both_facets = 10 ** (-device.coupling_loss_db / 10)  # two facets, as an amplitude
    sent = scatter(graph, matrices, waveguides, fabric.source_terminals)
    # The chip is reciprocal: what a destination gets of light that leaves a cell at a terminal is
    # what would enter there if the destination sent light instead.
    heard = scatter(graph, matrices, waveguides, fabric.destination_terminals)

    returning = np.zeros((n_cells, 4, 4), dtype=np.complex128)
    joined = np.flatnonzero(graph.mate >= 0)
    if not with_returns:
        joined = joined[:0]
    for first in range(0, len(joined), _SOLVED_AT_ONCE):
        # Light that leaves by a terminal enters the next cell at the mate, behind a waveguide. As
        # light is linear, solve for amplitude 1 at the mate, and scale it by the waveguide after.
        left = joined[first : first + _SOLVED_AT_ONCE]
        entered = scatter(graph, matrices, waveguides, graph.mate[left]).entering
        # What comes back counts only at the four terminals of the cell that the light has left.
        own_terminals = 4 * (left // 4)[:, None] + np.arange(4)
        came_back = entered[own_terminals, np.arange(len(left))[:, None]]
        waveguide = waveguides[graph.links.of_terminal[left], None]
        returning[left // 4, :, left % 4] = came_back * waveguide

    # `scatter` has terminals first and inputs last, hence the transpose of what arrives.
    return (
        both_facets * sent.leaving[fabric.destination_terminals].T,
        both_facets * sent.entering.reshape(n_cells, 4, -1),
        heard.entering.reshape(n_cells, 4, -1),
        returning,
    )


def change_of_light(
    state: MeasuredState, cells: NDArray[np.intp], change: NDArray[np.complex128]
) -> NDArray[np.complex128]:
    """Return by how much arriving amplitudes change if one cell gets another matrix, exactly.

    Let e be the light that enters the cell in the unchanged chip, D the change of its matrix, and
    R what comes back to the cell of light that leaves it. The changed cell sends out D e' more,
    and R D e' of that enters it again, hence ``e' = e + R D e'``, or ``e' = (I - R D)**-1 e``.
    Destinations get the part c of what leaves the cell: arriving amplitudes grow by ``c.T D e'``.
    This is a low-rank update (Woodbury) of the whole chip with systems of four unknowns.

    Parameters
    ----------
    state
        The light of the model: `entering` is e, `returning` is R and `collected` is c. If
        `returning` was not solved for, it is 0, and the result is that of first order.
    cells
        (tried,): numbers of the cells, each of which is changed alone.
    change
        (tried, 2 sides left by, 2 sides entered): what is added to their matrices, for light from
        end a to end b.

    Returns
    -------
    NDArray
        complex128, (tried, sources, destinations): what is added to `state.arriving`.
    """
    # D for all four terminals, as the changed matrix has its transpose for light from b to a.
    change_of_cell = both_directions(change)
    # One system of four unknowns for each tried cell, with a right side for each source.
    around = np.eye(4) - state.returning[cells] @ change_of_cell
    entering = np.linalg.solve(around, state.entering[cells])
    added: NDArray[np.complex128] = (
        np.swapaxes(change_of_cell @ entering, 1, 2) @ state.collected[cells]
    )
    return added

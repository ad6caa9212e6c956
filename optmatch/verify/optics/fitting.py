r"""A whole chip fitted from measured powers: losses and phases of all cells at once.

A cell whose phase is a share h of the way from cross (0) to bar (1) passes light by

:math:`\displaystyle T = j\,g\,e^{j\Delta} \begin{pmatrix} \sin\vartheta & \cos\vartheta \\
              \cos\vartheta & -\sin\vartheta \end{pmatrix}, \qquad
\vartheta = \tau_c + h\,(\pi/2 - \tau_b - \tau_c) + \varepsilon`

with the errors :math:`\varepsilon` and :math:`\Delta` of the difference and of the mean of the
phases of both arms, the tilts :math:`\tau` of the extinctions in bar and cross, and a gain g whose
loss in dB goes linearly from that of cross to that of bar, but for a little more where a cell is
half turned.

All values of all cells are fitted together, by Levenberg and Marquardt, to the powers in dB of all
measured pairs. Values are taken to be spread normally around those of the model (`FitSpread`),
which makes the most likely chip a least-squares problem that has a solution even where light does
not tell a value. The inverse of its normal matrix is the covariance of the values.

**States.** In bar and in cross a phase error shows as a leak, whose power does not tell its sign,
and leaks of wrong signs are local minima. In a cell that is half turned, the power at an output
goes with the error itself. If most of the cells are half turned, in each state others, all powers
go nearly linearly with all errors, and the fit ends where it should from the model itself.

**Floors.** First only strong light counts, then fainter light as well, so that deep interference,
the least linear part, comes last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.fabrics.cellgraph import DEAD
from optmatch.fabrics.netlists.circuits import with_cell_phases
from optmatch.fabrics.waveguides import heat_turns, waveguide_loss_db
from optmatch.model import FREE, Axes, Device, FrozenMap, InputError, Measurement, Value
from optmatch.model.cells import HALF_TURNED, CellDevice, CellStates, cells_of
from optmatch.model.declarations import form_of
from optmatch.model.device import NO_LEAK_DB
from optmatch.model.numbers import integer
from optmatch.verify.optics.circuits import circuit_factors
from optmatch.verify.optics.noise import FLOOR, LIT_SHARE, Noise, estimate_noise, relative_spread
from optmatch.verify.optics.responses import (
    KEPT,
    check_measurement,
    compared_pairs,
    graph_of,
    set_stuck_cells,
)

SHARE_HALF_TURNED = 0.7
"""The part of the cells that is half turned in each chosen state. On a 4x4 mesh of hexagons with 8
ports and 40 states, most starts end in the best minimum with 0.65 to 0.8 and one in four with 0.5.
With 0.3 the powers in unseen states are off by up to 0.07 dB; with 0.1 no start ends well."""

BAR_LOSS, CROSS_LOSS, TURN, COMMON, BAR_TILT, CROSS_TILT, HALF_LOSS = range(7)
"""Columns of the fitted values of a cell: losses in dB in bar and in cross, the errors of the
difference (:math:`\\varepsilon`) and of the mean (:math:`\\Delta`) of the phases of both arms, the
tilts in bar and in cross in rad, and the loss in dB that is added half turned."""

N_VALUES = 7

CERTAIN_DEVIATIONS = 1.96
"""Half the width of a 95 % interval, in standard deviations."""

_FLOORS = (0.3, 0.03, 0.003, 3e-4, 0.0)
"""Floors of the stages of a fit, in parts of the strongest measured power; the last stage has the
floor of all powers. With steps of a hundred in place of ten, one start in four ends in the best
minimum instead of two in three."""

_SCREENED_STAGES = 3
"""After so many stages the starts that will end in the best minimum stand out."""

_FIRST_NOISE = Noise(lit_db=0.02, dark_ratio=1.0)
_NOISE_ROUNDS = 2
_MOST_STEPS = 40
_MOST_TRIES = 8  # of a step, each with more damping
_CONVERGED = 1e-4  # the part of the objective by which a step must improve it
_DRAWN_STARTS = 6
_HOPS = 10
"""Fits from around the best minimum. On two hexagons with 8 ports and 30 states, a quarter of the
drawn chips have their best minimum where no drawn start ends, and one hop in three finds it."""
_HOP_STEPS = 4  # after which a hop to a bad minimum stands out
_HOPELESS = 3.0  # times the best objective: such a hop is given up
_HOP_LOSS_DB = 0.05
_SAME_MINIMUM = 0.01  # the part by which objectives of one minimum differ at most
_START_COMMON_RAD = 0.05  # the spread of starts, see `_draw_start`


class FitSpread(NamedTuple):
    """How far cells are taken to be from the model: standard deviations.

    On a 4x4 mesh of hexagons with errors of 0.1 dB and 0.05 rad, half and twice of these change
    the powers in unseen states by less than the noise of 0.02 dB.
    """

    loss_db: float = 0.3
    """Of the losses in bar and in cross, each for itself."""
    phase_rad: float = 0.1
    """Of the errors of difference and mean of the phases of both arms."""
    tilt_rad: float = 0.01
    """Of the tilts, which extinctions state: 0.01 rad is a leak of -40 dB."""
    half_loss_db: float = 0.05
    """Of the loss that is added where a cell is half turned."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChipFit(Value):
    """A chip as measured powers tell it.

    Parameters
    ----------
    cells
        The most likely device of each cell.
    within
        ``within[column][cell]``: half the width of the 95 % interval of each fitted column of
        `cells`, by the curvature around the fitted minimum; in drawn chips it holds 94 % of the
        losses, as some chips have a mirrored minimum that fits as well. Powers do not tell whether
        all errors that both arms share have the other sign.
    noise_db
        The noise of powers where there is light, as the fit leaves it; at least 0.01 dB. Much more
        than the instrument's own noise says that the chip is another one, or that the fit has
        ended in a wrong minimum.
    off_db
        The root mean square of what is left in all measured pairs.
    n_pairs
        The number of measured pairs.
    is_unique
        Whether two fits ended in the best minimum, and every cell was half turned in some state.
        If not, the intervals are too narrow: measure more states, as `half_turn_cells` makes them.
    never_half_turned
        Cells that were half turned in no measured state. The signs of their phase errors are
        guesses, since powers in bar and in cross hardly tell them.
    values
        ``values[cell, value]``: the fitted values, see `BAR_LOSS` and so on.
    covariance
        ``covariance[k, l]`` of all values, where ``k = 7 * cell + value``.
    """

    cells: CellDevice
    within: Mapping[str, tuple[float, ...]]
    noise_db: float
    off_db: float
    n_pairs: int
    is_unique: bool
    never_half_turned: tuple[int, ...]
    values: Annotated[NDArray[np.float64], Axes(2, N_VALUES)]
    covariance: Annotated[NDArray[np.float64], Axes(2)]


class PowerForecast(NamedTuple):
    """Powers that a fitted chip is expected to have."""

    power: NDArray[np.float64]
    """(states, sources, destinations): of what goes in."""
    within_db: NDArray[np.float64]
    """The same shape: half the width of the 95 % interval of each, without the noise of a
    measurement. It holds 91 % of lit pairs in drawn chips, see `ChipFit.within`. Only meant for
    powers above the floor of -60 dB."""


def half_turn_cells(cell_states: NDArray[np.int8], *, seed: int = 0) -> NDArray[np.int8]:
    """Half turn 70 % of the cells in each state, drawn for each state anew.

    Parameters
    ----------
    cell_states
        ``cell_states[k, cell]``: 0 bar, 1 cross, as `deviation.choose_states` has them.
    seed
        Draws the cells.

    Returns
    -------
    NDArray
        int8, the same shape: 0 bar, 1 cross, 2 half turned.

    Examples
    --------
    >>> states = half_turn_cells(np.zeros((40, 30), dtype=np.int8))
    >>> bool(0.6 < (states == HALF_TURNED).mean() < 0.8)
    True
    """
    rng = np.random.default_rng(integer("seed", seed, at_least=0))
    cell_states = form_of(CellStates).check("cell_states", cell_states)
    is_half_turned = rng.random(cell_states.shape) < SHARE_HALF_TURNED
    return np.where(is_half_turned, HALF_TURNED, cell_states).astype(np.int8)


def fit_chip(
    fabric: Fabric,
    measured: Measurement,
    device: Device | CellDevice | str,
    *,
    spread: FitSpread | None = None,
    seed: int = 0,
) -> ChipFit:
    """Fit the losses and phases of all cells of a chip to measured powers.

    Powers between ports were measured while the cells were in several states. Each cell has a loss
    and a leak in bar and in cross, and phase errors in both of its arms. The fit looks for those
    values of all cells with which a model of the light gives the measured powers (least squares,
    in dB), and which are near the stated device where the powers do not tell.

    Parameters
    ----------
    fabric
        The chip, with its stuck and dead cells.
    measured
        Powers between its ports in several states, most of them with half-turned cells, see
        `half_turn_cells`. As a rule as many states as make the number of measured pairs five times
        the number of cells.
    device
        The model, from which cells differ by little: one device for all cells, a preset's name, or
        a device for each cell.
    spread
        How far cells are taken to be from the model.
    seed
        Draws where the fits start.

    Returns
    -------
    ChipFit
        The most likely device of each cell with 95 % intervals, the noise that is left, and
        whether two fits have ended in the best minimum.

    Raises
    ------
    InputError
        If the fabric has no cells, what was measured is not of its cells and ports, or a spread is
        not above 0.

    See Also
    --------
    forecast_powers : Powers of the fitted chip in other states, with their uncertainty.

    Notes
    -----
    Time is about that of one light computation for each state, step and start, and the cube of
    seven times the number of cells. Memory is the square of that number.

    Examples
    --------
    >>> from optmatch.fabrics import Crossbar
    >>> from optmatch.verify.optics.deviation import choose_states
    >>> states = half_turn_cells(choose_states(Crossbar(2), 12))
    >>> chip = CellDevice.of("smartlight", 4, {2: {"bar_loss_db": 0.9}})
    >>> power = model_powers(Crossbar(2), chip, states)
    >>> fit = fit_chip(Crossbar(2), Measurement(cell_states=states, power=power), "smartlight")
    >>> f"{fit.cells.bar_loss_db[2]:.2f}"
    '0.90'
    """
    check_measurement(fabric, measured)
    cells = with_cell_phases(fabric, cells_of(device, fabric.n_cells))
    chip = _build_chip(fabric, cells)
    fit = _LeastSquares(chip, measured, _check_spread(spread or FitSpread()))
    rng = np.random.default_rng(integer("seed", seed, at_least=0))
    # The fit is unique if two starts end in the best minimum, and all cells were half turned once:
    # without that the sign of a phase does not show.
    best, is_unique = _fit_from_starts(fit, rng)
    never_half_turned = _cells_never_half_turned(chip.graph, measured)
    values = _fold_tilts(best.values)
    deviation_db = fit.deviations_db(best.values)
    return ChipFit(
        cells=_cells_of_values(chip, values),
        within=_widths_of_columns(values, best.covariance),
        noise_db=best.noise.lit_db,
        off_db=float(np.sqrt((deviation_db**2).mean())),
        n_pairs=len(deviation_db),
        is_unique=is_unique and not never_half_turned,
        never_half_turned=never_half_turned,
        values=values,
        covariance=best.covariance,
    )


def forecast_powers(fabric: Fabric, fit: ChipFit, cell_states: NDArray[np.int8]) -> PowerForecast:
    """Forecast the powers of a fitted chip in other states.

    Parameters
    ----------
    fabric
        The chip.
    fit
        What `fit_chip` has returned for it.
    cell_states
        ``cell_states[k, cell]``: 0 bar, 1 cross, 2 half turned.

    Returns
    -------
    PowerForecast
        Powers, and the uncertainty that the covariance of the fit leaves, to first order.
    """
    form_of(ChipFit).check("fit", fit)
    chip = _build_chip(fabric, fit.cells)
    cell_states = _check_states(fabric, cell_states)
    powers = []
    widths = []
    for states_of_cells in cell_states:
        light = _solve_state(chip, states_of_cells, fit.values, with_slopes=True)
        power = np.abs(light.arriving) ** 2

        # The variance of a level is g^T C g: g are its slopes by all values, C their covariance.
        # Subscripts: k and l value of a cell, s source, d destination.
        slopes = _slopes_of_level(light, FLOOR).reshape(-1, *power.shape)
        variance = np.einsum("ksd,kl,lsd->sd", slopes, fit.covariance, slopes, optimize=True)
        powers.append(power)
        widths.append(CERTAIN_DEVIATIONS * np.sqrt(np.maximum(variance, 0.0)))
    return PowerForecast(np.array(powers), np.array(widths))


def model_powers(
    fabric: Fabric, cells: CellDevice, cell_states: NDArray[np.int8]
) -> NDArray[np.float64]:
    """Compute the powers that a measurement of a chip would find without noise, fibre to fibre.

    Parameters
    ----------
    fabric
        The switch, with its cells.
    cells
        The device of each cell: losses, extinctions and phase errors.
    cell_states
        ``cell_states[k, cell]``: 0 bar, 1 cross, 2 half turned.

    Returns
    -------
    float64 array
        ``power[k, source, destination]``: over the power of the source.
    """
    form_of(CellDevice).check("cells", cells)
    chip = _build_chip(fabric, cells)
    cell_states = _check_states(fabric, cell_states)
    values = _values_of_cells(cells)
    lights = [
        _solve_state(chip, states_of_cells, values, with_slopes=False)
        for states_of_cells in cell_states
    ]
    return np.array([np.abs(light.arriving) ** 2 for light in lights])


class _FittedChip(NamedTuple):
    """The parts of a chip that are not fitted."""

    fabric: Fabric
    graph: CellGraph
    cells: CellDevice
    """The model that fits start from."""
    factors: NDArray[np.complex128]
    """(cells, 3 states, 2, 2): what the circuit of a cell makes of an interferometer's matrix."""
    waveguides: NDArray[np.complex128]
    """(links,): the amplitude that is left at the end of each waveguide."""
    both_facets: float
    """The amplitude that two facets leave."""
    source_terminals: NDArray[np.int32]
    """(ports,): where light from each port enters."""
    destination_terminals: NDArray[np.int32]
    """(ports,): where light to each port leaves."""


class _StateLight(NamedTuple):
    """The light of a chip in one state."""

    arriving: NDArray[np.complex128]
    """(sources, destinations): amplitudes from fibre to fibre."""
    slopes: NDArray[np.complex128] | None
    """(cells, values, sources, destinations): derivatives of these amplitudes by the values."""


class _Minimum(NamedTuple):
    """The end of a fit."""

    values: NDArray[np.float64]
    """(cells, values)."""
    noise: Noise
    covariance: NDArray[np.float64]
    """(cells * values, cells * values)."""


def _cells_never_half_turned(graph: CellGraph, measured: Measurement) -> tuple[int, ...]:
    """List the cells that could be half turned, and were not in any measured state."""
    was_half_turned = (measured.cell_states == HALF_TURNED).any(axis=0)
    cells = np.flatnonzero(~was_half_turned & (graph.stuck == FREE))
    return tuple(cells.tolist())


def _check_states(fabric: Fabric, cell_states: ArrayLike) -> NDArray[np.int8]:
    """Return states of cells as an array, if they are those of the cells of a fabric.

    Parameters
    ----------
    fabric
        The switch.
    cell_states
        ``cell_states[k, cell]``: 0 bar, 1 cross, 2 half turned; another number of cells is an
        `InputError`.
    """
    states: NDArray[np.int8] = form_of(CellStates).check("cell_states", cell_states)
    if states.shape[1] != fabric.n_cells:
        raise InputError(
            f"cell_states {states.shape}: a fabric of {fabric.n_cells} cells", where="cell_states"
        )
    return states


def _build_chip(fabric: Fabric, cells: CellDevice) -> _FittedChip:
    """Collect all that the light of a chip depends on beside the fitted values.

    Parameters
    ----------
    fabric
        The switch, with its cells.
    cells
        The device of each cell, of which losses of waveguides and facets count here.

    Returns
    -------
    _FittedChip
        The graph, the factor of each cell's circuit, and amplitudes behind waveguides and facets.
    """
    graph = graph_of(fabric)
    if cells.n_cells != fabric.n_cells:
        raise InputError(f"cells: {cells.n_cells}, the fabric has {fabric.n_cells}", where="cells")
    waveguides = (10 ** (-waveguide_loss_db(graph, cells.device) / 20)).astype(np.complex128)
    both_facets = 10 ** (-cells.device.coupling_loss_db / 10)
    return _FittedChip(
        fabric=fabric,
        graph=graph,
        cells=cells,
        factors=circuit_factors(fabric),
        waveguides=waveguides,
        both_facets=both_facets,
        source_terminals=fabric.source_terminals,
        destination_terminals=fabric.destination_terminals,
    )


def _check_spread(spread: FitSpread) -> NDArray[np.float64]:
    """Return the standard deviation of each value of a cell around its model.

    Parameters
    ----------
    spread
        How far the losses (dB), phases (rad) and tilts (rad) of cells are expected to be off.

    Returns
    -------
    float64 array
        In dB or rad, shape (7,): by the columns of values of a cell, BAR_LOSS to HALF_LOSS.

    Raises
    ------
    InputError
        If one is not above 0.
    """
    for name, deviation in spread._asdict().items():
        if not deviation > 0:
            raise InputError(f"{name} = {deviation:g}: must be > 0", where=f"spread.{name}")
    deviations = np.empty(N_VALUES)
    deviations[[BAR_LOSS, CROSS_LOSS]] = spread.loss_db
    deviations[[TURN, COMMON]] = spread.phase_rad
    deviations[[BAR_TILT, CROSS_TILT]] = spread.tilt_rad
    deviations[HALF_LOSS] = spread.half_loss_db
    return deviations


def _values_of_cells(cells: CellDevice) -> NDArray[np.float64]:
    """Return the fitted values that a given device of each cell has.

    Parameters
    ----------
    cells
        Losses and extinctions in dB and errors of the phases of both arms in rad, of each cell.

    Returns
    -------
    NDArray
        float64, (cells, 7 values). `BAR_LOSS` and `CROSS_LOSS` are losses in dB. `TURN` and
        `COMMON` are half the difference and half the sum of the errors of arm 1 and arm 2, in rad.
        `BAR_TILT` and `CROSS_TILT` are the angles in rad by which a cell misses bar and cross:
        an extinction of E dB is a leak of power ``tan(tilt)**2 = 10**(-E / 10)``. `HALF_LOSS`, the
        loss in dB that is added half turned, is 0, since a device does not state it.
    """
    arm_1, arm_2 = cells.arm_errors_rad.T
    values = np.zeros((cells.n_cells, N_VALUES))
    values[:, BAR_LOSS] = cells.bar_loss_db
    values[:, CROSS_LOSS] = cells.cross_loss_db
    values[:, TURN] = (arm_1 - arm_2) / 2
    values[:, COMMON] = (arm_1 + arm_2) / 2
    for column, extinction_db in (
        (BAR_TILT, cells.bar_extinction_db),
        (CROSS_TILT, cells.cross_extinction_db),
    ):
        # From `NO_LEAK_DB` on an extinction means a cell without leak.
        tilt_rad = np.arctan(10 ** (-extinction_db / 20))
        values[:, column] = np.where(extinction_db >= NO_LEAK_DB, 0.0, tilt_rad)
    return values


def _cells_of_values(chip: _FittedChip, values: NDArray[np.float64]) -> CellDevice:
    """Turn fitted values of cells into a device of each cell; the inverse of `_values_of_cells`.

    The loss of half-turned cells is left out, since a device has no column for it. All that was
    not fitted is that of the model.

    Parameters
    ----------
    chip
        The chip, with the device of each cell before the fit.
    values
        ``values[cell, value]``, shape (cells, 7), in dB and rad. The errors of the two arms are
        the value COMMON plus and minus the value TURN.

    Returns
    -------
    CellDevice
        With losses and extinctions in dB, and errors of arms in rad.
    """
    return replace(
        chip.cells,
        bar_loss_db=values[:, BAR_LOSS],
        cross_loss_db=values[:, CROSS_LOSS],
        bar_extinction_db=_extinction_db(values[:, BAR_TILT]),
        cross_extinction_db=_extinction_db(values[:, CROSS_TILT]),
        arm_1_error_rad=values[:, COMMON] + values[:, TURN],
        arm_2_error_rad=values[:, COMMON] - values[:, TURN],
    )


def _extinction_db(tilt_rad: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn tilts, the angles by which cells miss bar or cross, into extinctions.

    Parameters
    ----------
    tilt_rad
        At least 0, in rad; shape (cells,). A tilt of 0 is no leak.

    Returns
    -------
    float64 array
        -10 log10 tan(tilt)**2, in dB; at most `NO_LEAK_DB`, the largest that a device knows.
    """
    ratio = np.tan(tilt_rad) ** 2
    extinction_db: NDArray[np.float64] = -10 * np.log10(np.maximum(ratio, 1e-100))
    return np.minimum(extinction_db, NO_LEAK_DB)


def _fold_tilts(values: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Make tilts positive by an error of the phase that does the same.

    Angles in all three states are the same if :math:`\tau_b + x`, :math:`\tau_c - x` and
    :math:`\varepsilon + x` take the places of the three values: the tilts of bar and cross, and
    half the difference of the errors of both arms. Only a cell that leaks less than nothing in
    both states together, which noise can fake, is changed: both tilts become 0.

    Parameters
    ----------
    values
        ``values[cell, value]``, shape (cells, 7), in dB and rad.

    Returns
    -------
    float64 array
        The same shape.
    """
    folded = values.copy()
    shift = np.maximum(-values[:, BAR_TILT], 0.0) + np.minimum(values[:, CROSS_TILT], 0.0)
    folded[:, BAR_TILT] = np.maximum(values[:, BAR_TILT] + shift, 0.0)
    folded[:, CROSS_TILT] = np.maximum(values[:, CROSS_TILT] - shift, 0.0)
    folded[:, TURN] = values[:, TURN] + shift
    return folded


def _widths_of_columns(
    values: NDArray[np.float64], covariance: NDArray[np.float64]
) -> Mapping[str, tuple[float, ...]]:
    """Return how exactly each figure of each cell is known: half of its 95 % interval.

    The fit has a covariance of all fitted values. Figures such as extinctions are functions of
    these values; their variance follows to first order from the slope of the function (the delta
    method).

    Parameters
    ----------
    values
        (cells, values): as fitted.
    covariance
        (cells * values, cells * values): of all values.

    Returns
    -------
    Mapping
        ``widths[column][cell]``, in the unit of the column.
    """
    # The blocks of the diagonal: each cell's values with one another.
    n_cells = len(values)
    every_cell = np.arange(n_cells)
    by_cell = covariance.reshape(n_cells, N_VALUES, n_cells, N_VALUES)
    within_cell = by_cell[every_cell, :, every_cell]  # [cell, value, value]
    variance = np.diagonal(within_cell, axis1=1, axis2=2)  # [cell, value]

    # The error of an arm is the common error plus or minus that of the difference.
    both_arms = variance[:, TURN] + variance[:, COMMON]
    covariance_of_both = within_cell[:, TURN, COMMON]
    widths = {
        "bar_loss_db": np.sqrt(variance[:, BAR_LOSS]),
        "cross_loss_db": np.sqrt(variance[:, CROSS_LOSS]),
        "arm_1_error_rad": np.sqrt(np.maximum(both_arms + 2 * covariance_of_both, 0.0)),
        "arm_2_error_rad": np.sqrt(np.maximum(both_arms - 2 * covariance_of_both, 0.0)),
    }
    for name, column in (("bar_extinction_db", BAR_TILT), ("cross_extinction_db", CROSS_TILT)):
        # E = -20 log10 tan(tilt) has the slope -20 / ln(10) / (sin(tilt) cos(tilt)).
        slope = 20 / np.log(10) / np.maximum(np.sin(2 * values[:, column]) / 2, 1e-6)
        widths[name] = slope * np.sqrt(variance[:, column])
    return FrozenMap(
        {name: tuple((CERTAIN_DEVIATIONS * width).tolist()) for name, width in widths.items()}
    )


def _draw_start(chip: _FittedChip, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw the values that a fit starts from: those of the model, but for the common phases.

    Powers stay the same if the errors that both arms share change their sign in all cells. Where
    they are 0, no power depends on them to first order, hence a fit must start elsewhere.

    Parameters
    ----------
    chip
        The chip, with the device of each cell.
    rng
        Draws the phases.

    Returns
    -------
    float64 array
        ``values[cell, value]``, shape (cells, 7), in dB and rad.
    """
    values = _values_of_cells(chip.cells)
    values[:, COMMON] += rng.normal(0.0, _START_COMMON_RAD, len(values))
    return values


def _cell_matrices(
    values: NDArray[np.float64],
    states: NDArray[np.int8],
    heat_turn_rad: NDArray[np.float64],
    factor: NDArray[np.complex128],
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Compute what each cell of a chip does to light, and how that depends on its fitted values.

    A cell is an interferometer with two arms. Light enters at one of two sides and leaves at one
    of two sides. Its matrix is a gain times a phase times ``[[sin t, cos t], [cos t, -sin t]]``.
    The angle t is pi/2 in an ideal bar state (light stays on its side) and 0 in an ideal cross
    state.

    Parameters
    ----------
    values
        float64, (cells, 7): the fitted values of each cell. The columns are

        - ``BAR_LOSS``, ``CROSS_LOSS``: the loss in bar and in cross, in dB;
        - ``HALF_LOSS``: the loss that is added when the cell is half turned, in dB;
        - ``BAR_TILT``, ``CROSS_TILT``: how far t is from pi/2 in bar, and from 0 in cross, in rad;
        - ``TURN``: half the difference of the phase errors of both arms, in rad;
        - ``COMMON``: the mean of the phase errors of both arms, in rad.
    states
        (cells,): 0 bar, 1 cross, 2 half turned.
    heat_turn_rad
        (cells,): what heat of other cells adds to t, in rad.
    factor
        complex128, (cells, 2, 2): the effect of the cell's own circuit. The matrix is multiplied
        with it from the right.

    Returns
    -------
    matrices
        complex128, ``T[cell, side left by, side entered]``: amplitudes from end a to end b.
    slopes
        complex128, ``dT[cell, column, side left by, side entered]``: the derivatives of T by each
        of the seven values, per dB or per rad.
    """
    # The angle, the leaked power and the loss of each cell in its state. A half-turned cell is
    # midway between cross and bar, and has HALF_LOSS as well.
    share = np.array([1.0, 0.0, 0.5])[states]  # of the way from cross to bar
    half = 4 * share * (1 - share)  # 1 for a cell that is half turned
    bar_tilt = values[:, BAR_TILT]
    cross_tilt = values[:, CROSS_TILT]
    angle = cross_tilt + share * (np.pi / 2 - bar_tilt - cross_tilt)
    angle = angle + values[:, TURN] + heat_turn_rad
    leak = share * np.tan(bar_tilt) ** 2 + (1 - share) * np.tan(cross_tilt) ** 2
    loss_db = share * values[:, BAR_LOSS] + (1 - share) * values[:, CROSS_LOSS]
    loss_db = loss_db + half * values[:, HALF_LOSS]

    # The gain is an amplitude: 20 dB of loss leave a tenth of it. It stays below `KEPT`, which is
    # just below 1: a cell without loss would make loops without loss, whose light has no solution.
    # Where this limit holds, the gain does not depend on the loss.
    stated_gain = 10 ** (-loss_db / 20) * np.sqrt(1 + leak)
    gain = np.minimum(KEPT, stated_gain)
    gain_per_db = np.where(stated_gain < KEPT, -np.log(10) / 20 * gain, 0.0)

    # The matrix is a gain, a phase that both ways have in common, and a rotation by the angle.
    sine = np.sin(angle)
    cosine = np.cos(angle)
    turn = 1j * np.exp(1j * values[:, COMMON])[:, None, None]
    ways = np.stack([sine, cosine, cosine, -sine], axis=-1).reshape(-1, 2, 2)
    ways_by_angle = np.stack([cosine, -sine, -sine, -cosine], axis=-1).reshape(-1, 2, 2)
    unit = turn * ways @ factor
    by_angle = gain[:, None, None] * (turn * ways_by_angle @ factor)
    matrices = gain[:, None, None] * unit
    by_loss = gain_per_db[:, None, None] * unit

    # By the chain rule: the angle goes with both tilts and the error, the gain with all losses.
    # The gain has only the squares of the tilts in it, which is too little to count.
    slopes = np.empty((len(values), N_VALUES, 2, 2), dtype=np.complex128)
    slopes[:, BAR_LOSS] = share[:, None, None] * by_loss
    slopes[:, CROSS_LOSS] = (1 - share)[:, None, None] * by_loss
    slopes[:, HALF_LOSS] = half[:, None, None] * by_loss
    slopes[:, TURN] = by_angle
    slopes[:, COMMON] = 1j * matrices
    slopes[:, BAR_TILT] = -share[:, None, None] * by_angle
    slopes[:, CROSS_TILT] = (1 - share)[:, None, None] * by_angle
    return matrices, slopes


def _solve_state(
    chip: _FittedChip,
    cell_states: NDArray[np.int8],
    values: NDArray[np.float64],
    *,
    with_slopes: bool,
) -> _StateLight:
    """Compute where light of every port arrives on a chip, and how that depends on its cells.

    All cells are set to certain states. Each cell has fitted values, such as losses and phase
    errors, from which follows what it does to light. The light of the whole chip is then the
    solution of a linear system.

    Parameters
    ----------
    chip
        The chip. The fields that are read here:

        - ``graph``: cells and joins; ``stuck[cell]`` says whether a cell is stuck or dead;
        - ``cells``: the model of each cell, for the heat that it gives to others;
        - ``factors[cell, state]``: the effect of the cell's own circuit;
        - ``waveguides``: the amplitude that is left behind each waveguide;
        - ``source_terminals``, ``destination_terminals``: where light comes in and goes out;
        - ``both_facets``: the amplitude that is left behind the facets at both ends.
    cell_states
        (cells,): 0 bar, 1 cross, 2 half turned. Stuck cells may have any state here.
    values
        (cells, values): the fitted values in dB and rad, see `BAR_LOSS` and so on.
    with_slopes
        Whether derivatives by the values are wanted, which takes a second solution.

    Returns
    -------
    _StateLight
        The amplitudes from fibre to fibre, and their derivatives by all values, which are None if
        they are not wanted.
    """
    from optmatch.verify.optics.scattering import scatter  # here only, since it needs SciPy

    # The matrix of each cell as it is heated in this state. No light passes a dead cell.
    graph = chip.graph
    states = set_stuck_cells(graph, cell_states)
    factor = chip.factors[np.arange(graph.n_cells), states]
    heat_turn_rad = heat_turns(graph, chip.cells, states) / 2
    matrices, matrix_slopes = _cell_matrices(values, states, heat_turn_rad, factor)
    is_dead = graph.stuck == DEAD
    matrices[is_dead] = 0.0
    matrix_slopes[is_dead] = 0.0

    sent = scatter(graph, matrices, chip.waveguides, chip.source_terminals)
    arriving = chip.both_facets * sent.leaving[chip.destination_terminals].T
    if not with_slopes:
        return _StateLight(arriving, None)

    # The chip is reciprocal: the part of the light leaving a cell at a terminal that gets to a
    # destination equals the light that would enter there if the destination sent.
    heard = scatter(graph, matrices, chip.waveguides, chip.destination_terminals)
    entering = chip.both_facets * sent.entering.reshape(graph.n_cells, 4, -1)
    collected = heard.entering.reshape(graph.n_cells, 4, -1)
    return _StateLight(arriving, _slopes_of_arriving(matrix_slopes, entering, collected))


def _slopes_of_arriving(
    matrix_slopes: NDArray[np.complex128],
    entering: NDArray[np.complex128],
    collected: NDArray[np.complex128],
) -> NDArray[np.complex128]:
    """Return the derivatives of arriving amplitudes by the values of cells.

    If the matrix of one cell changes by dT, an amplitude changes by :math:`c^T dT e` to first
    order: e is the light that enters the cell, and c the part of the light leaving it that gets to
    the destination. Light passes a cell from end a to end b with its matrix, and from b to a with
    the transpose; both directions add up.

    Parameters
    ----------
    matrix_slopes
        (cells, values, 2 sides of end b, 2 sides of end a): derivatives of the cells' matrices.
    entering
        (cells, 4 terminals a1 a2 b1 b2, sources): the light e, facets counted.
    collected
        (cells, 4 terminals a1 a2 b1 b2, destinations): the parts c.

    Returns
    -------
    NDArray
        complex128, (cells, values, sources, destinations).
    """
    entering_a = entering[:, :2]
    entering_b = entering[:, 2:]
    collected_a = collected[:, :2]
    collected_b = collected[:, 2:]

    # Subscripts: c cell, v value, a and b the side at either end, s source, d destination.
    from_a_to_b = _multiply("cbd,cvba,cas->cvsd", collected_b, matrix_slopes, entering_a)
    from_b_to_a = _multiply("cad,cvba,cbs->cvsd", collected_a, matrix_slopes, entering_b)
    slopes: NDArray[np.complex128] = from_a_to_b + from_b_to_a
    return slopes


def _multiply(subscripts: str, *factors: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return the product of three arrays, summed over subscripts as `numpy.einsum` does.

    Parameters
    ----------
    subscripts
        The names of the axes of all arrays and of the result.
    *factors
        The arrays.
    """
    order = _order_of_product(subscripts, tuple(factor.shape for factor in factors))
    product: NDArray[np.complex128] = np.einsum(subscripts, *factors, optimize=order)
    return product


@lru_cache(maxsize=16)
def _order_of_product(subscripts: str, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """Find which arrays of a product are best multiplied first, once for each set of shapes.

    A fit multiplies arrays of the same shapes tens of thousands of times, and for small chips
    `numpy.einsum` takes as long to find this order as to multiply.
    """
    order, _ = np.einsum_path(subscripts, *(np.empty(shape) for shape in shapes), optimize=True)
    return order


def _slopes_of_level(light: _StateLight, floor: float) -> NDArray[np.float64]:
    """Return the derivatives of the levels 10 log10(power + floor) by all values of all cells.

    Parameters
    ----------
    light
        Amplitudes that arrive and their derivatives, which have to be there.
    floor
        The power that is added to all powers before they are compared, as a part of what goes in.

    Returns
    -------
    float64 array
        In dB per dB or rad of a value; shape (cells, values, sources, destinations).
    """
    assert light.slopes is not None
    power = np.abs(light.arriving) ** 2
    power_slopes = 2 * (np.conj(light.arriving) * light.slopes).real
    slopes: NDArray[np.float64] = 10 / np.log(10) * power_slopes / (power + floor)
    return slopes


class _MeasuredPairs(NamedTuple):
    """What was measured in one state."""

    cell_states: NDArray[np.int8]
    """(cells,): 0 bar, 1 cross, 2 half turned."""
    compared: NDArray[np.bool_]
    """(sources, destinations): the pairs that were measured."""
    power: NDArray[np.float64]
    """(pairs,): the power of these pairs, as a part of what goes in."""


class _LeastSquares:
    """The objective of a fit: weighted squares of deviations and of distances from the model.

    Parameters
    ----------
    chip
        The parts of the chip that are not fitted.
    measured
        The powers that are fitted.
    spread
        (values,): standard deviations of the values around the model, see `FitSpread`.
    """

    def __init__(
        self, chip: _FittedChip, measured: Measurement, spread: NDArray[np.float64]
    ) -> None:
        """Collect the pairs of each state that count, and the model that values are spread around.

        Parameters
        ----------
        chip
            The chip and the devices of its cells, which are the centre of the fit.
        measured
            ``power[state, source, destination]``, NaN where nothing was measured, and the states
            of all cells.
        spread
            Standard deviation of each value of a cell, dB or rad; shape (values,), alike for all
            cells, or (cells, values).
        """
        self.chip = chip
        self.states: list[_MeasuredPairs] = []
        for cell_states, power in zip(measured.cell_states, measured.power, strict=True):
            compared = compared_pairs(chip.fabric, power)
            self.states.append(_MeasuredPairs(cell_states, compared, power[compared]))
        self.model_values = _values_of_cells(chip.cells)
        self.spread = np.broadcast_to(spread, self.model_values.shape)
        self.strongest = max(float(state.power.max(initial=0.0)) for state in self.states)

    def distance(self, values: NDArray[np.float64]) -> float:
        """Return the squared distance from the model of ``values[cell, value]``.

        Each value counts in its standard deviations.
        """
        return float((((values - self.model_values) / self.spread) ** 2).sum())

    def objective(self, values: NDArray[np.float64], floor: float, noise: Noise) -> float:
        """Return how badly a chip with given values fits the measured powers; less is better.

        It is twice the negative logarithm of the likelihood, but for a constant.

        Parameters
        ----------
        values
            (cells, values): in dB and rad.
        floor
            The power that is added to all powers before they are compared in dB.
        noise
            The noise of measured powers, by which deviations are weighted.

        Returns
        -------
        float
            The squared distances from the model plus the squared deviations of all measured
            pairs, each in its standard deviations.
        """
        total = self.distance(values)
        for state in self.states:
            light = _solve_state(self.chip, state.cell_states, values, with_slopes=False)
            weight = _weights(state.power, floor, noise)
            deviation_db = _deviation_db(light, state, floor)
            total += float(((weight * deviation_db) ** 2).sum())
        return total

    def normal_equations(
        self, values: NDArray[np.float64], floor: float, noise: Noise
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the normal equations of the least-squares problem, linearised at some values.

        The objective is the sum of ``((values - model) / spread)**2`` over all values and of
        ``(weight * deviation_db)**2`` over all measured pairs. With J, the derivatives of the
        deviations by the values, W, the diagonal matrix of the weights, and S, that of the
        spreads, the Gauss-Newton matrix is ``S**-2 + J.T W**2 J``. Measured states are added up
        one after the other, so that memory does not grow with their number.

        Parameters
        ----------
        values
            (cells, 7 values): where to linearise, in dB and rad, see `BAR_LOSS` and so on.
        floor
            The power that is added to all powers before they are compared in dB, as a part of what
            goes in.
        noise
            The noise of measured powers; its inverse is the weight of a deviation.

        Returns
        -------
        gradient
            (cells * values,): half the gradient of the objective, per dB or rad of a value.
        normal
            (cells * values, cells * values): half the matrix of second derivatives of the
            objective. As in every Gauss-Newton method, second derivatives of the modelled powers
            are left out. Subtracting the solution of ``normal @ step = gradient`` from the values
            minimises the linearised objective.
        """
        # The distances from the model alone: they make the matrix regular where no light tells.
        inverse_variance = self.spread.ravel() ** -2.0
        gradient = (values - self.model_values).ravel() * inverse_variance
        normal = np.diag(inverse_variance)
        for state in self.states:
            light = _solve_state(self.chip, state.cell_states, values, with_slopes=True)
            weight = _weights(state.power, floor, noise)
            deviation_db = _deviation_db(light, state, floor)
            # Only measured pairs count: (cells, values, pairs), then one row for each value.
            slopes = _slopes_of_level(light, floor)[:, :, state.compared]
            weighted_slopes = slopes.reshape(values.size, -1) * weight
            gradient += weighted_slopes @ (weight * deviation_db)
            normal += weighted_slopes @ weighted_slopes.T
        return gradient, normal

    def deviations_db(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return modelled less measured levels of all pairs of all states, with the usual floor.

        Parameters
        ----------
        values
            ``values[cell, value]``, shape (cells, 7), in dB and rad.

        Returns
        -------
        float64 array
            In dB, shape (pairs of all states,).
        """
        parts = []
        for state in self.states:
            light = _solve_state(self.chip, state.cell_states, values, with_slopes=False)
            parts.append(_deviation_db(light, state, FLOOR))
        return np.concatenate(parts)

    def estimate_noise(
        self, values: NDArray[np.float64], noise: Noise, n_determined: float
    ) -> Noise:
        """Estimate the noise of measured powers from what a fit leaves unexplained.

        A pair of ports is *lit* if most of its level is light, not the constant floor that is
        added to all powers. Lit pairs show the noise of light, all others that of the instrument.

        Parameters
        ----------
        values
            (cells, values): as fitted.
        noise
            The noise that the fit has assumed.
        n_determined
            How many of the values measured powers determine; the spread determines the others.

        Returns
        -------
        Noise
            The standard deviation of lit pairs in dB, and the ratio of that of dark ones to it.
        """
        deviation_db = self.deviations_db(values)
        measured_power = np.concatenate([state.power for state in self.states])
        light_share = measured_power / (measured_power + FLOOR)

        # Lit pairs show the noise only if there are more of them than values to determine.
        is_lit = light_share >= LIT_SHARE
        if is_lit.sum() <= n_determined:
            is_lit = np.ones(len(measured_power), dtype=bool)

        # Lit pairs determine their part of the values.
        return estimate_noise(
            deviation_db,
            light_share,
            is_lit,
            dark_ratio=noise.dark_ratio,
            parameters=n_determined * is_lit.mean(),
        )


def _deviation_db(light: _StateLight, state: _MeasuredPairs, floor: float) -> NDArray[np.float64]:
    """Return modelled less measured levels 10 log10(power + floor) of one state.

    Parameters
    ----------
    light
        The light of the model.
    state
        The measured powers, and which pairs of ports they belong to.
    floor
        The power that is added to both, as a part of what goes in.

    Returns
    -------
    float64 array
        In dB, shape (pairs,).
    """
    modelled_power = np.abs(light.arriving[state.compared]) ** 2
    ratio = (modelled_power + floor) / (state.power + floor)
    deviation_db: NDArray[np.float64] = 10 * np.log10(ratio)
    return deviation_db


def _weights(
    measured_power: NDArray[np.float64], floor: float, noise: Noise
) -> NDArray[np.float64]:
    """Return the weight of the deviation of each pair: the inverse of its standard deviation.

    A level is ``10 log10(power + floor)`` in dB. Far above the floor its standard deviation is
    ``noise.lit_db``, since the noise of light is a constant part of it. Near the floor the
    instrument's own noise, a constant power, prevails: without any light the standard deviation is
    ``noise.lit_db * noise.dark_ratio``. In between both variances add up (`relative_spread`).

    Parameters
    ----------
    measured_power
        (pairs,): as a part of what goes in, from fibre to fibre.
    floor
        The power that is added before powers are compared, in the same unit.
    noise
        The noise of light in dB, and the ratio of the noise without light to it.

    Returns
    -------
    NDArray
        (pairs,): in 1/dB.
    """
    # The part of each level that is light, not floor: 1 far above the floor.
    light_share = measured_power / (measured_power + floor)
    noise_db = noise.lit_db * relative_spread(light_share, noise.dark_ratio)
    weights: NDArray[np.float64] = 1 / noise_db
    return weights


class _FitEnd(NamedTuple):
    """Where the fit from one start has come to."""

    objective: float
    """With the floor of the last stage."""
    values: NDArray[np.float64]
    """(cells, values)."""


def _fit_from_starts(fit: _LeastSquares, rng: np.random.Generator) -> tuple[_Minimum, bool]:
    """Fit a chip from several random starts, until two of them end in the same minimum.

    All starts are first fitted to strong light alone. Those that fit it best go on with fainter
    light, one after the other: a start that fits strong light badly hardly ever ends in the best
    minimum. In the end better minima are looked for around the best one.

    Parameters
    ----------
    fit
        The objective.
    rng
        Draws the starts.

    Returns
    -------
    tuple
        The best minimum, and whether two starts have ended in it.
    """
    floors = [max(FLOOR, share * fit.strongest) for share in _FLOORS]
    strong = floors[:_SCREENED_STAGES]
    screened = [_descend(fit, _draw_start(fit.chip, rng), strong) for _ in range(_DRAWN_STARTS)]
    screened.sort(key=lambda end: end.objective)

    # Two ends with the same objective are one minimum, and no third start is needed.
    ends: list[_FitEnd] = []
    for start in screened:
        ends.append(_descend(fit, start.values, floors[_SCREENED_STAGES:]))
        ends.sort(key=lambda end: end.objective)
        if len(ends) > 1 and _is_same_minimum(ends[1], ends[0]):
            break
    best, is_unique = _hop_between_minima(fit, ends, rng)
    return _finish_fit(fit, best.values), is_unique


def _hop_between_minima(
    fit: _LeastSquares, ends: Sequence[_FitEnd], rng: np.random.Generator
) -> tuple[_FitEnd, bool]:
    """Look for a better fit of a chip around the best one (basin hopping).

    The cells of the chip are fitted to measured powers. The sum of squares that is minimised has
    many minima: the signs of some phase errors show only by weak light that goes around a ring of
    cells. A *hop* draws these phases anew in half of the cells, and minimises from there.

    Parameters
    ----------
    fit
        The objective.
    ends
        Where fits have ended, the best first.
    rng
        Draws the hops.

    Returns
    -------
    tuple
        The best end, and whether at least two fits have ended in this minimum.
    """
    floor = max(FLOOR, _FLOORS[-1] * fit.strongest)
    best = ends[0]
    n_ended_there = sum(_is_same_minimum(end, best) for end in ends)
    for _ in range(_HOPS):
        start = _draw_hop(best.values, rng)
        values = _minimise(fit, start, floor, _FIRST_NOISE, _HOP_STEPS)
        if fit.objective(values, floor, _FIRST_NOISE) > _HOPELESS * best.objective:
            continue
        end = _descend(fit, values, [floor])
        if _is_same_minimum(end, best):
            n_ended_there += 1
        elif end.objective < best.objective:
            n_ended_there = 1
        if end.objective < best.objective:
            best = end
    return best, n_ended_there > 1


def _is_same_minimum(first: _FitEnd, second: _FitEnd) -> bool:
    """Tell whether two ends have the same objective, but for 1 %."""
    larger = max(first.objective, second.objective)
    smaller = min(first.objective, second.objective)
    return larger < (1 + _SAME_MINIMUM) * smaller


def _draw_hop(values: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw a start of a fit around fitted values, to hop from one local minimum to another.

    Half of the cells, drawn at random, get a new common phase, and all cells other losses.

    Parameters
    ----------
    values
        ``values[cell, value]``, shape (cells, 7), in dB and rad.
    rng
        Draws the numbers.

    Returns
    -------
    float64 array
        The start, of the same shape; losses are at least 0.
    """
    n_cells = len(values)
    start = values.copy()
    is_drawn = rng.random(n_cells) < 0.5
    drawn_rad = rng.normal(0.0, _START_COMMON_RAD, n_cells)
    start[:, COMMON] = np.where(is_drawn, drawn_rad, start[:, COMMON])
    for loss in (BAR_LOSS, CROSS_LOSS):
        start[:, loss] = np.maximum(start[:, loss] + rng.normal(0.0, _HOP_LOSS_DB, n_cells), 0.0)
    return start


def _descend(fit: _LeastSquares, start: NDArray[np.float64], floors: Sequence[float]) -> _FitEnd:
    """Fit a chip to strong light first, and then to fainter and fainter light.

    A *floor* is a constant power that is added to all powers before they are compared in dB. Light
    below it makes no difference. The fit goes on from one floor to the next lower one.

    Parameters
    ----------
    fit
        The least-squares problem.
    start
        ``start[cell, value]``, shape (cells, 7), in dB and rad.
    floors
        Powers that are added to all powers before they are compared, the highest first.

    Returns
    -------
    _FitEnd
        The objective with the last floor, and the fitted values.
    """
    values = start
    for floor in floors:
        values = _minimise(fit, values, floor, _FIRST_NOISE)
    return _FitEnd(fit.objective(values, floors[-1], _FIRST_NOISE), values)


def _finish_fit(fit: _LeastSquares, start: NDArray[np.float64]) -> _Minimum:
    """End a fit near its minimum: find the noise, and how exactly each value is known.

    Deviations are weighted by the noise of measured powers, which is known only after a fit. The
    fit and the noise are therefore repeated a few times. The covariance of the fitted values is
    the inverse of the last normal matrix.

    Parameters
    ----------
    fit
        The least-squares problem.
    start
        ``start[cell, value]``, shape (cells, 7), in dB and rad: near the minimum.

    Returns
    -------
    _Minimum
        The fitted values, the noise of the measurement, and the covariance of all values, shape
        (cells * 7, cells * 7).
    """
    noise = _FIRST_NOISE
    values = start
    for _ in range(_NOISE_ROUNDS):
        covariance = np.linalg.inv(fit.normal_equations(values, FLOOR, noise)[1])
        # What is left of the spread of the model counts the values that data do not determine.
        n_undetermined = float((np.diag(covariance) / fit.spread.ravel() ** 2).sum())
        noise = fit.estimate_noise(values, noise, values.size - n_undetermined)
        values = _minimise(fit, values, FLOOR, noise)
    normal = fit.normal_equations(values, FLOOR, noise)[1]
    return _Minimum(values, noise, np.asarray(np.linalg.inv(normal), dtype=np.float64))


def _minimise(
    fit: _LeastSquares,
    start: NDArray[np.float64],
    floor: float,
    noise: Noise,
    most_steps: int = _MOST_STEPS,
) -> NDArray[np.float64]:
    """Find values of all cells for which modelled powers are nearest to measured ones.

    The values are the losses (dB) and phases (rad) of each cell. The sum of weighted squares is
    minimised by the method of Levenberg and Marquardt. That is Gauss-Newton with a damping: a
    large damping makes steps short. It grows when a step makes things worse.

    Parameters
    ----------
    fit
        The least-squares problem: its sum of squares, gradient and normal matrix at given values.
    start
        float64, (cells, values): where the iteration starts.
    floor
        The power that is added to all powers before they are compared, as a part of what goes in.
    noise
        The noise of measured powers, by which deviations are weighted.
    most_steps
        The iteration ends after so many steps.

    Returns
    -------
    NDArray
        (cells, values): no step makes these better, or hardly, unless steps ran out.
    """
    values = start
    objective = fit.objective(values, floor, noise)
    damping = 1e-3
    for _ in range(most_steps):
        gradient, normal = fit.normal_equations(values, floor, noise)
        # A step that does not help is taken back, and the next one is shorter.
        for _ in range(_MOST_TRIES):
            # Marquardt's damping scales with the diagonal, as values are in dB and in rad.
            damped = normal + damping * np.diag(np.diag(normal))
            step = np.linalg.solve(damped, gradient).reshape(values.shape)
            next_values = values - step
            # No cell amplifies: a loss below 0 dB becomes 0.
            losses_db = next_values[:, [BAR_LOSS, CROSS_LOSS]]
            next_values[:, [BAR_LOSS, CROSS_LOSS]] = np.maximum(losses_db, 0.0)
            next_objective = fit.objective(next_values, floor, noise)
            if next_objective < objective:
                break
            damping *= 4
        else:
            return values

        gained = objective - next_objective
        values = next_values
        objective = next_objective
        damping = max(damping / 5, 1e-9)
        if gained < _CONVERGED * objective:
            break
    return values

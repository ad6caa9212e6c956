"""Measured powers of a chip against its model: states worth measuring, and the cell that differs.

A cell that differs is fitted by least squares as two amplitudes for each of its states
(`responses`). One fit covers loss, extinction, a turned phase, a stuck and a dead cell. It is a
suspect if the squares fall by more than noise explains: an F test, whose level is divided by the
number of cells tried (Bonferroni). The same test, with the best suspect as part of the model,
tells whether a second cell differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.fabrics.light import trace
from optmatch.fabrics.netlists.circuits import with_cell_phases
from optmatch.model import BAR, CROSS, Axes, Device, FrozenMap, Measurement, Value
from optmatch.model.cells import CellDevice, cells_of
from optmatch.model.numbers import integer
from optmatch.verify.optics.noise import (
    DARK_RATIOS,
    FLOOR,
    LIT_SHARE,
    Noise,
    estimate_noise,
    relative_spread,
)
from optmatch.verify.optics.responses import (
    MeasuredState,
    cell_matrices,
    change_of_light,
    check_measurement,
    graph_of,
    level_db,
    model_states,
    nominal_amplitudes,
    set_stuck_cells,
    turn_amplitudes,
    without_half_turned,
)

FALSE_ALARMS = 0.04
"""How often a chip as modelled has a suspect; the noise is estimated, hence not the full 0.05."""

FALSE_SECONDS = 0.02
"""How often a second cell is called, if one differs."""

AS_GOOD = 9.0
"""A suspect leaves at most so many variances of noise more than the best one: three deviations."""

TOLD_BY = 30.0
"""A change that adds fewer variances of noise hardly stands out among many cells."""

TOLD_AMPLITUDE = 0.1
"""The change of an amplitude that measurements should tell: a loss of 1 dB, a leak of -20 dB."""

_PARAMETERS = 4  # of a cell: two amplitudes in each of two states
_NOISE_ROUNDS = 3  # fits with the noise that the fit before has left
_DRAWN_STATES = 128  # among which each next state is chosen
_FIRST_STEPS = 3  # of the fit of every cell from every start
_REFINED_CELLS = 24  # whose fit goes on
_REFINED_STEPS = 26
_SMALL_TURN_RAD = 0.15
_CELLS_AT_ONCE = 42  # bounds memory (each is computed three times together), changes no result


def choose_states(fabric: Fabric, count: int, *, seed: int = 0) -> NDArray[np.int8]:
    """Choose the settings of all cells in which to measure a chip, to tell its cells apart.

    A *setting* puts each cell into bar or cross. A *beam* is the light of one source on its way to
    a destination. Two cells that the same beams pass in all settings cannot be told apart by
    measured powers. The method is greedy: settings are chosen one after the other, each the best
    of 128 random ones.

    1. Pairs (cell, bar or cross) that the same beams have passed in the settings chosen before are
       one class. At first all pairs are in one class.
    2. The best setting is the one after which the sum of the squared sizes of all classes is
       least: four classes of one pair cost 4, one class of four pairs costs 16.
    3. Among equal settings, the best one leaves the fewest pairs with little light: the sum of
       1 / (1 + number of beams) over all pairs is least.

    Parameters
    ----------
    fabric
        The chip, a switch with cells.
    count
        The number of settings to choose, at least 1.
    seed
        The seed of the random settings, at least 0.

    Returns
    -------
    NDArray
        int8, shape (count, cells): the state of each cell in each setting, 0 bar, 1 cross. Stuck
        cells are in the state in which they are stuck.

    Raises
    ------
    InputError
        If the fabric has no cells, or `count` or `seed` is out of range.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> choose_states(HexMesh(3, 3, ports=8), 4).shape
    (4, 38)
    """
    graph = graph_of(fabric)
    rng = np.random.default_rng(integer("seed", seed, at_least=0))
    # A hash of a set of beams is the sum of the beams' random 63-bit names, which wraps round. Two
    # sets have the same sum by an accident that never happens.
    name_of_beam = rng.integers(1, 2**63, fabric.n_ports, dtype=np.uint64)
    entered = np.broadcast_to(fabric.source_terminals, (_DRAWN_STATES, fabric.n_ports))
    every_cell = np.arange(graph.n_cells)
    chosen: list[NDArray[np.int8]] = []
    class_of = np.zeros((graph.n_cells, 2), dtype=np.uint64)  # [cell, bar or cross]
    n_beams = np.zeros((graph.n_cells, 2))  # [cell, bar or cross]: in all chosen states together
    for _ in range(integer("count", count, at_least=1)):
        drawn = rng.integers(0, 2, (_DRAWN_STATES, graph.n_cells), dtype=np.int8)
        drawn = set_stuck_cells(graph, drawn)

        # The light of all drawn states: an entry for each beam that enters a cell. Only beams that
        # end at a destination can be measured.
        light = trace(graph, drawn, entered)
        is_measured = np.isin(light.arrived, fabric.destination_terminals)[light.slot, light.beam]
        drawn_state = light.slot[is_measured]
        cell = light.entered[is_measured] // 4  # a cell has four terminals
        beam = light.beam[is_measured]

        # The hash of the beams that pass each cell, and how many they are: [drawn state, cell].
        hash_of_beams = np.zeros(drawn.shape, dtype=np.uint64)
        np.add.at(hash_of_beams, (drawn_state, cell), name_of_beam[beam])
        beams_of_cell = np.zeros(drawn.shape)
        np.add.at(beams_of_cell, (drawn_state, cell), 1.0)

        # The classes and the light after each drawn state: [drawn state, cell, bar or cross].
        classes = np.repeat(class_of[None], _DRAWN_STATES, axis=0)
        beams = np.repeat(n_beams[None], _DRAWN_STATES, axis=0)
        costs = []
        for index, states in enumerate(drawn):
            classes[index, every_cell, states] += hash_of_beams[index]
            beams[index, every_cell, states] += beams_of_cell[index]
            class_sizes = np.unique(classes[index], return_counts=True)[1]
            costs.append(((class_sizes**2).sum(), (1 / (1 + beams[index])).sum()))
        best = costs.index(min(costs))

        # Small numbers name the classes from here on; sums of the next state begin with them.
        numbers = np.unique(classes[best], return_inverse=True)[1]
        class_of = numbers.reshape(-1, 2).astype(np.uint64)
        n_beams = beams[best]
        chosen.append(drawn[best])
    return np.stack(chosen)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Suspect(Value):
    """A cell that would explain what was measured, if it alone differed so from the model.

    Parameters
    ----------
    cell
        Its number.
    loss_db, extinction_db
        Of the fitted cell in bar and in cross; None where no light tells. An extinction below 0 is
        a cell that is stuck in the other state.
    off_db
        What the fit leaves: the root mean square of all measured pairs.
    """

    cell: int
    loss_db: tuple[float | None, ...]
    extinction_db: tuple[float | None, ...]
    off_db: float

    def __str__(self) -> str:
        return self.describe(f"cell {self.cell}")

    def describe(self, name: str) -> str:
        """Describe the fit of a cell in one line: loss and extinction by state, and the rest.

        A state that no light tells is "not seen". A negative extinction means that most light
        takes the way of the other state: the cell is stuck there. The rest is the root mean square
        in dB that the fit leaves in all measured pairs.

        Parameters
        ----------
        name
            The name of the cell, which the line begins with.

        Returns
        -------
        str
            As ``c7: bar: loss 0.20 dB, extinction 25.0 dB; cross: not seen; leaves 0.1 dB``.
        """
        described = []
        for state in (BAR, CROSS):
            state_name = "bar" if state == BAR else "cross"
            loss = self.loss_db[state]
            extinction = self.extinction_db[state]
            if extinction is not None and extinction < 0:
                other = "cross" if state == BAR else "bar"
                described.append(f"{state_name}: stuck in {other}")
                continue
            figures = []
            if loss is not None:
                figures.append(f"loss {loss:.2f} dB")
            if extinction is not None:
                figures.append(f"extinction {extinction:.1f} dB")
            described.append(f"{state_name}: {', '.join(figures) or 'not seen'}")
        return f"{name}: {'; '.join(described)}; leaves {self.off_db:.3g} dB"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChipComparison(Value):
    """What a measured chip and its model disagree about.

    Parameters
    ----------
    difference_db
        ``difference_db[state, source, destination]``: measured less modelled; 0 where not
        measured.
    off_db
        The root mean square of these differences.
    noise_db
        The noise of powers where there is light, as the best fit leaves it; at least 0.01 dB.
    suspects
        The cells that explain the difference equally well, the best first. There is none if noise
        explains the difference: then chip and model agree.
    several
        Whether one cell does not explain the difference.
    second_suspects
        If so, the cells that explain the rest once the first suspect is as fitted, the best first.
    unseen
        ``unseen["loss in bar"]`` and so on: cells whose loss or leak in that state could change by
        an amplitude of 0.1 (a loss of 1 dB, a leak of -20 dB) and hardly stand out.
    """

    difference_db: Annotated[NDArray[np.float64], Axes(3)]
    off_db: float
    noise_db: float
    suspects: tuple[Suspect, ...]
    several: bool
    second_suspects: tuple[Suspect, ...]
    unseen: Mapping[str, tuple[int, ...]]

    def worst_pairs(self, count: int) -> list[tuple[int, int, int, float]]:
        """List the measured pairs of ports that differ most from the model, the worst first.

        Parameters
        ----------
        count
            How many pairs at most.

        Returns
        -------
        list of tuple
            State, source, destination, and the difference in dB.
        """
        order = np.argsort(-np.abs(self.difference_db), axis=None, kind="stable")
        pairs = []
        for place in order[:count]:
            state, source, destination = np.unravel_index(place, self.difference_db.shape)
            difference = float(self.difference_db[state, source, destination])
            pairs.append((int(state), int(source), int(destination), difference))
        return pairs


def compare_chip(
    fabric: Fabric, measured: Measurement, device: Device | CellDevice | str
) -> ChipComparison:
    """Compare a measured chip with its model, and find the cell that most likely differs.

    Each cell is fitted alone, as if all others were as modelled. The cell whose fit leaves least
    is a suspect, unless noise alone could explain as much. Powers in dB are compared, not phases.
    Noise is estimated: as a constant part of the power where there is light, and as a constant
    power where there is none.

    Errors are rare: 4 % of chips that are as modelled get a suspect; of chips with one changed
    cell, 2 % are said to have several.

    Parameters
    ----------
    fabric
        The chip, with its stuck and dead cells.
    measured
        Powers between its ports in several states of its cells, see `choose_states`. States with
        half-turned cells are left out; `fitting.fit_chip` needs those.
    device
        The model: one device for all cells, a preset's name, or a device for each cell.

    Returns
    -------
    ChipComparison
        With the fields

        - ``difference_db[state, source, destination]``: measured less modelled power in dB, 0
          where nothing was measured;
        - ``off_db``: the root mean square of these differences;
        - ``noise_db``: the noise that the best fit leaves where there is light, in dB;
        - ``suspects``: the cells that would explain the differences, the best first; empty if
          noise explains them;
        - ``several``: whether one changed cell is not enough to explain them;
        - ``second_suspects``: then the cells that would explain the rest, the best first;
        - ``unseen``: by kind of change, such as ``"loss in bar"``, the cells in which it would
          hardly have been noticed.

    Raises
    ------
    InputError
        If the fabric has no cells, or what was measured is not of its cells and ports.

    Examples
    --------
    >>> from optmatch.fabrics import Crossbar
    >>> power = np.full((1, 2, 2), np.nan)
    >>> power[0, 0, 0] = 10 ** -0.764
    >>> measured = Measurement(cell_states=[[0, 1, 1, 0]], power=power)
    >>> compare_chip(Crossbar(2), measured, "smartlight").suspects
    ()
    """
    graph = graph_of(fabric)
    check_measurement(fabric, measured)
    measured = without_half_turned(measured)
    cells = with_cell_phases(fabric, cells_of(device, graph.n_cells))
    nominal = nominal_amplitudes(graph, cells)
    model = _ChipModel(fabric, measured, cells, nominal)
    # The cell that explains most is a suspect if noise hardly explains as much; then a second one
    # is looked for beside it.
    search = _search_changed_cell(model)
    difference_db = _differences(model, measured)
    n_pairs = sum(len(state.measured_db) for state in model.states)
    differs = search.chance < FALSE_ALARMS

    second = _search_second_cell(fabric, measured, cells, search) if differs else None
    several = second is not None and second.chance < FALSE_SECONDS
    return ChipComparison(
        difference_db=difference_db,
        off_db=float(np.sqrt((difference_db**2).sum() / n_pairs)),
        noise_db=search.noise_db,
        suspects=search.suspects() if differs else (),
        several=several,
        second_suspects=second.suspects() if second is not None and several else (),
        unseen=_unseen_cells(search.is_seen),
    )


class _Fit(NamedTuple):
    """Cells that are each fitted alone, all others as in the model."""

    amplitudes: NDArray[np.float64]
    """(cells, bar or cross, straight or across): the fitted amplitudes."""
    squares: NDArray[np.float64]
    """(cells, states): weighted squares of dB that the pairs measured in a state keep."""
    sensitivity: NDArray[np.float64]
    """(cells, states, loss or leak): the same squares that a change of an amplitude by 1 adds."""


def _better_fit(first: _Fit, second: _Fit) -> _Fit:
    """Take the better of two fits of the same cells, for each cell and each state by itself.

    Parameters
    ----------
    first, second
        Amplitudes and weighted squares of the deviations, by cell and state. The sensitivity is
        that of the first fit, which starts at the model.
    """
    better = second.squares < first.squares
    return _Fit(
        np.where(better[..., None], second.amplitudes, first.amplitudes),
        np.minimum(first.squares, second.squares),
        first.sensitivity,
    )


class _ChipModel:
    """The model of a chip, and its distance from what was measured if one cell differs.

    Parameters
    ----------
    fabric, measured
        The chip, and its powers in states without half-turned cells.
    cells
        The device of each cell.
    amplitudes
        (cells, bar or cross, straight or across): of the model, as `nominal_amplitudes` has them.
        Those of a cell that is known to differ may be others.

    Attributes
    ----------
    states
        The light of the model, and what was measured, in each measured state.
    weights
        ``weights[k][pair]``: the inverse of the noise in state k, over that of lit pairs.
    dark_ratio
        The noise of a pair without light over that of a lit pair, which `weights` assume.
    least_power
        The power up to which light does not stand out from the instrument's noise. Levels of
        model and measurement are compared from there on: fainter ones count as equal.
    """

    def __init__(
        self,
        fabric: Fabric,
        measured: Measurement,
        cells: CellDevice,
        amplitudes: NDArray[np.float64],
    ) -> None:
        """Solve the model of a chip in every measured state, and give all pairs first weights.

        Weights need the noise of dark pairs over that of lit ones, which only a fit tells. Until
        then they assume the least ratio that is tried.

        Parameters
        ----------
        fabric
            The switch, with its cells.
        measured
            The measured powers of all pairs of ports, by state of the cells.
        cells
            The device of each cell that the model assumes.
        amplitudes
            ``amplitudes[cell, bar or cross, straight or across]``: of light through each cell,
            real and at most 1.
        """
        self.graph: CellGraph = graph_of(fabric)
        self.amplitudes = amplitudes
        self.states = model_states(fabric, measured, cells, amplitudes)
        self.weights: list[NDArray[np.float64]] = []
        self.dark_ratio = DARK_RATIOS[0]
        self.least_power = 0.0
        self.weigh_pairs(Noise(lit_db=0.0, dark_ratio=DARK_RATIOS[0]))

    @property
    def n_lit_pairs(self) -> int:
        """The number of compared pairs with light in model or measurement, or of all if few."""
        return int(sum(is_lit.sum() for is_lit in self._lit_pairs()))

    def weigh_pairs(self, noise: Noise) -> None:
        """Set the weight of each pair: the noise of pairs far above the floor over its own.

        Parameters
        ----------
        noise
            The noise of lit and of dark pairs. A pair between both has a noise between both, see
            `relative_spread`. Levels that do not stand out from the noise of dark pairs are not
            compared.
        """
        self.dark_ratio = noise.dark_ratio
        self.least_power = noise.least_power
        self.weights = [
            1 / relative_spread(_light_share(state), noise.dark_ratio) for state in self.states
        ]

    def is_weighed_for(self, noise: Noise) -> bool:
        """Tell whether the weights are those of some noise, but for less than a tenth."""
        change_of_ratio = abs(noise.dark_ratio / self.dark_ratio - 1)
        change_of_least = abs(noise.least_power - self.least_power)
        return change_of_ratio < 0.11 and change_of_least < 0.1 * max(self.least_power, FLOOR)

    def deviations(
        self, state: MeasuredState, cells: NDArray[np.intp], amplitudes: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return modelled less measured levels of a state, if one cell had other amplitudes.

        A level is a power in dB. Powers below ``self.least_power``, where noise hides the light,
        are taken to be as large as that.

        Parameters
        ----------
        state
            One of the measured states.
        cells
            (tried,): cells, each of which differs alone.
        amplitudes
            (tried, bar or cross, straight or across): those of each of these cells.

        Returns
        -------
        NDArray
            (tried, pairs measured in the state): in dB.
        """
        power = self._modelled_power(state, cells, amplitudes)
        modelled_db = level_db(np.maximum(power, self.least_power))
        return modelled_db - np.maximum(state.measured_db, level_db(self.least_power))

    def _modelled_power(
        self, state: MeasuredState, cells: NDArray[np.intp], amplitudes: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the powers of one state, if one cell had other amplitudes; for many such trials.

        Parameters
        ----------
        state
            A measured state, with the light of the model at all terminals.
        cells
            The cell that each trial changes, shape (trials,).
        amplitudes
            ``amplitudes[trial, bar or cross, straight or across]`` of this cell.

        Returns
        -------
        float64 array
            Shape (trials, compared pairs), over the power of a source.
        """
        # Only the amplitudes of the state that a cell is in count, turned by heat.
        state_of_cell = state.cell_states[cells]
        rows = np.arange(len(cells))
        difference = amplitudes[rows, state_of_cell] - self.amplitudes[cells, state_of_cell]
        heated = turn_amplitudes(difference, state.heat_turn_rad[cells])

        # The light of the whole chip follows from that of the model without a new solution.
        added = change_of_light(state, cells, cell_matrices(heated) @ state.factor[cells])
        power: NDArray[np.float64] = np.abs((state.arriving + added)[:, state.compared]) ** 2
        return power

    def fit(self, cells: NDArray[np.intp], amplitudes: NDArray[np.float64], steps: int) -> _Fit:
        """Fit the amplitudes of each cell alone, by Levenberg and Marquardt.

        Parameters
        ----------
        cells
            (tried,): the cells. No more than memory allows are fitted together.
        amplitudes
            (tried, bar or cross, straight or across): where the fit starts.
        steps
            The number of steps of the iteration.

        Returns
        -------
        _Fit
            The best amplitudes on the way. Its sensitivity is that at the start.
        """
        if len(cells) <= _CELLS_AT_ONCE:
            return self._fit_together(cells, amplitudes, steps)
        parts = []
        for first in range(0, len(cells), _CELLS_AT_ONCE):
            chunk = slice(first, first + _CELLS_AT_ONCE)
            parts.append(self._fit_together(cells[chunk], amplitudes[chunk], steps))
        return _Fit(
            np.concatenate([part.amplitudes for part in parts]),
            np.concatenate([part.squares for part in parts]),
            np.concatenate([part.sensitivity for part in parts]),
        )

    def fit_from_starts(
        self, cells: NDArray[np.intp], starts: Sequence[NDArray[np.float64]], steps: int
    ) -> _Fit:
        """Fit the amplitudes of each cell alone from several starts, and keep its best fit.

        The fits from all starts are made in one call of `fit`, since most of the time of a step
        does not depend on the number of fits.

        Parameters
        ----------
        cells
            (tried,): the cells.
        starts
            Where the fits start, each (tried, bar or cross, straight or across).
        steps
            The number of steps of the iteration.

        Returns
        -------
        _Fit
            For each cell, and for bar and cross by themselves, the best fit from any start. Its
            sensitivity is that at the first start.
        """
        together = self.fit(np.tile(cells, len(starts)), np.concatenate(starts), steps)
        columns = [np.split(column, len(starts)) for column in together]
        best, *other_fits = (_Fit(*fields) for fields in zip(*columns, strict=True))
        for other in other_fits:
            best = _better_fit(best, other)
        return best

    def _fit_together(
        self, cells: NDArray[np.intp], amplitudes: NDArray[np.float64], steps: int
    ) -> _Fit:
        """Fit the light through each of several cells to measured powers, one changed cell a time.

        For each cell it is assumed that all others are as modelled. Fitted are its amplitudes: how
        much light passes it straight and across, in bar and in cross. Bar and cross have no value
        in common; each is a problem of two amplitudes. All problems are solved side by side by the
        method of Levenberg and Marquardt: Gauss-Newton steps, shortened by a damping that falls
        after a step that helps and rises after one that does not.

        Parameters
        ----------
        cells
            (tried,): the numbers of the cells.
        amplitudes
            float64, (tried, 2, 2), by cell, bar or cross, and straight or across: the start.
        steps
            The number of steps; each computes the light of the changed chip three times.

        Returns
        -------
        _Fit
            With the fields

            - ``amplitudes``: the best ones on the way, of the same shape;
            - ``squares``: what they leave, as weighted sums of squares, (tried, bar or cross);
            - ``sensitivity``, (tried, bar or cross, 2): by how much the squares grow with a change
              of an amplitude by 1, at the start; first for the wanted way (loss), then for the
              other one (leak).
        """
        best = amplitudes
        best_squares = np.full((len(cells), 2), np.inf)
        damping = np.full((len(cells), 2), 1e-3)
        sensitivity = np.zeros(amplitudes.shape)
        best_normal = np.zeros((len(cells), 2, 2, 2))
        best_gradient = np.zeros(amplitudes.shape)
        for step in range(steps):
            squares, gradient, normal = self._normal_equations(cells, amplitudes)
            # A change of an amplitude by 1 adds the diagonal of the normal matrix to the squares.
            if step == 0:
                sensitivity = np.einsum("csii->csi", normal).copy()
                # The wanted way comes first: in cross it is the second amplitude.
                sensitivity[:, CROSS] = sensitivity[:, CROSS, ::-1]

            # A step that does not help is taken back, and the next one is shorter.
            better = squares < best_squares
            best_squares = np.minimum(squares, best_squares)
            best = np.where(better[..., None], amplitudes, best)
            best_normal = np.where(better[..., None, None], normal, best_normal)
            best_gradient = np.where(better[..., None], gradient, best_gradient)
            damping *= np.where(better, 0.2, 5.0)
            # The step of Levenberg and Marquardt: large damping gives short steps downhill.
            damped = best_normal * (1 + damping[..., None, None] * np.eye(2)) + 1e-9 * np.eye(2)
            amplitudes = best - np.linalg.solve(damped, best_gradient[..., None])[..., 0]

            # No cell amplifies.
            size = np.linalg.norm(amplitudes, axis=-1, keepdims=True)
            amplitudes = amplitudes / np.maximum(1.0, size)
        return _Fit(best, best_squares, sensitivity)

    def _normal_equations(
        self, cells: NDArray[np.intp], amplitudes: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Linearise the deviations around some amplitudes, as a step of Gauss and Newton needs it.

        A measured state adds to the sums of bar for cells that are in bar in it, and to those of
        cross for the others. The derivatives are finite differences.

        Parameters
        ----------
        cells
            (tried,): cells, each of which differs alone.
        amplitudes
            (tried, bar or cross, straight or across): those of each of these cells.

        Returns
        -------
        squares
            (tried, bar or cross): weighted squares of the deviations, in dB squared.
        gradient
            (tried, bar or cross, 2): half their derivatives by both amplitudes.
        normal
            (tried, bar or cross, 2, 2): products of the derivatives of the deviations, summed over
            pairs; about half the second derivatives of the squares.
        """
        rows = np.arange(len(cells))
        squares = np.zeros((len(cells), 2))
        gradient = np.zeros((len(cells), 2, 2))
        normal = np.zeros((len(cells), 2, 2, 2))
        step = 1e-6  # of an amplitude, whose size is at most 1

        # The amplitudes, and each of the two moved by a step: the light of all three sets
        # is computed in one call, as most of its time does not depend on the number of cells.
        moves = np.concatenate([np.zeros((1, 2)), step * np.eye(2)])
        moved_amplitudes = np.concatenate([amplitudes + move for move in moves])
        moved_cells = np.tile(cells, len(moves))
        for state, weight in zip(self.states, self.weights, strict=True):
            moved_deviations = self.deviations(state, moved_cells, moved_amplitudes) * weight
            deviation, first_moved, second_moved = np.split(moved_deviations, len(moves))
            slopes = [(moved - deviation) / step for moved in (first_moved, second_moved)]
            jacobian = np.stack(slopes, axis=1)  # [tried, amplitude, pair]

            # Each cell adds to the sums of the state that it is in.
            state_of_cell = state.cell_states[cells]
            squares[rows, state_of_cell] += (deviation**2).sum(axis=1)
            gradient[rows, state_of_cell] += (jacobian @ deviation[..., None])[..., 0]
            normal[rows, state_of_cell] += jacobian @ np.swapaxes(jacobian, 1, 2)
        return squares, gradient, normal

    def estimate_noise(self, cell: int, amplitudes: NDArray[np.float64], parameters: int) -> Noise:
        """Estimate the noise from what the fit of one cell leaves.

        Parameters
        ----------
        cell
            The fitted cell.
        amplitudes
            (bar or cross, straight or across): as fitted.
        parameters
            The number of fitted values.

        Returns
        -------
        Noise
            The standard deviation of lit pairs in dB, and the ratio of that of dark ones to it.
        """
        return estimate_noise(
            self.all_deviations(cell, amplitudes),
            np.concatenate([_light_share(state) for state in self.states]),
            np.concatenate(self._lit_pairs()),
            dark_ratio=self.dark_ratio,
            parameters=parameters,
        )

    def all_deviations(self, cell: int, amplitudes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return modelled less measured levels of all states, in dB, if one cell differs.

        Parameters
        ----------
        cell
            The number of the cell.
        amplitudes
            ``amplitudes[bar or cross, straight or across]`` of this cell, shape (2, 2).

        Returns
        -------
        float64 array
            Shape (measured pairs of all states,). Faint levels count too, unlike in `deviations`.
        """
        cells = np.array([cell])
        parts = []
        for state in self.states:
            power = self._modelled_power(state, cells, amplitudes[None])[0]
            parts.append(level_db(power) - state.measured_db)
        return np.concatenate(parts)

    def weighted_squares(self, cell: int, amplitudes: NDArray[np.float64]) -> float:
        """Return the sum of the squares of all weighted deviations, if one cell differs.

        Parameters
        ----------
        cell
            The number of the cell.
        amplitudes
            ``amplitudes[bar or cross, straight or across]`` of this cell, shape (2, 2).

        Returns
        -------
        float
            In dB squared.
        """
        cells = np.array([cell])
        squares = 0.0
        for state, weight in zip(self.states, self.weights, strict=True):
            deviation = self.deviations(state, cells, amplitudes[None])[0]
            squares += float(((deviation * weight) ** 2).sum())
        return squares

    def _lit_pairs(self) -> list[NDArray[np.bool_]]:
        """Tell which measured pairs are lit: their level is light, not the instrument's floor.

        Returns
        -------
        list of bool array
            ``lit[state][pair]``. If too few are lit to tell their noise, all count as lit.
        """
        lit = [_light_share(state) >= LIT_SHARE for state in self.states]
        if sum(int(pairs.sum()) for pairs in lit) <= 2 * _PARAMETERS:
            return [np.ones(len(pairs), dtype=bool) for pairs in lit]
        return lit


def _light_share(state: MeasuredState) -> NDArray[np.float64]:
    """Return the part of the level of each measured pair that is light, not floor.

    The floor is a power that is added to all powers before they are compared in dB. Where model
    and measurement differ, the stronger light counts.

    Parameters
    ----------
    state
        A measured state, with the light of the model.

    Returns
    -------
    float64 array
        From 0 to 1, shape (pairs,).
    """
    modelled = np.abs(state.arriving[state.compared]) ** 2 + FLOOR
    measured = 10 ** (state.measured_db / 10)
    share: NDArray[np.float64] = 1 - FLOOR / np.maximum(modelled, measured)
    return share


class _CellSearch(NamedTuple):
    """The cells that explain most, each if it alone differs from a model."""

    cells: NDArray[np.intp]
    """(kept,): the best first."""
    fit: _Fit
    """Of these cells, in this order."""
    off_db: NDArray[np.float64]
    """(kept,): root mean square of all pairs that is left."""
    noise_db: float
    """The noise of lit pairs that the best one leaves."""
    chance: float
    """How often noise alone lets some cell explain as much; above 1 if always."""
    is_seen: NDArray[np.bool_]
    """(all cells, states, loss or leak): whether a change would stand out."""

    @property
    def best_cell(self) -> int:
        """The number of the cell that explains most."""
        return int(self.cells[0])

    @property
    def best_amplitudes(self) -> NDArray[np.float64]:
        """``[state, straight or across]`` of that cell."""
        best: NDArray[np.float64] = self.fit.amplitudes[0]
        return best

    def suspects(self) -> tuple[Suspect, ...]:
        """Return the cells that explain the measurement about as well as the best one.

        A cell counts if the weighted squares that its fit leaves exceed those of the best one by
        at most `AS_GOOD` times the variance of the noise.

        Returns
        -------
        tuple of Suspect
            With the losses and extinctions that the fits give them, the best first.
        """
        squares = self.fit.squares.sum(axis=1)
        close = squares <= squares[0] + AS_GOOD * self.noise_db**2
        return tuple(
            _describe_suspect(
                int(self.cells[rank]),
                self.fit.amplitudes[rank],
                self.is_seen[self.cells[rank]],
                float(self.off_db[rank]),
            )
            for rank in np.flatnonzero(close)
        )


def _search_changed_cell(model: _ChipModel) -> _CellSearch:
    """Find the one cell of a chip that best explains why measured powers are not as modelled.

    Each cell is fitted alone, as if all others were as modelled. A cell explains more the less its
    fit leaves unexplained, as a sum of squares. An F test tells whether noise alone could make
    some cell explain as much as the best one does.

    In the sum each measured pair of ports has a weight that depends on the noise. The noise is
    known only after a fit; hence fit and weights are repeated until the noise stays the same.

    Parameters
    ----------
    model
        The chip and what was measured. Its weights are set anew.

    Returns
    -------
    _CellSearch
        With the fields

        - ``cells``: the cells that explain most, the best first, and ``fit``, their fits;
        - ``off_db``: how far measured powers still are from each fit, a root mean square in dB;
        - ``noise_db``: the noise of lit pairs that the best cell leaves, in dB;
        - ``chance``: a bound of the probability that noise alone lets some cell explain as much:
          that of one cell times the number of cells, perhaps above 1;
        - ``is_seen``, (all cells, bar or cross, loss or leak): whether a change of the cell would
          have been noticed.
    """
    nominal = model.amplitudes
    for _ in range(_NOISE_ROUNDS):
        cells, fit, sensitivity = _fit_best_cells(model)
        noise = model.estimate_noise(int(cells[0]), fit.amplitudes[0], _PARAMETERS)
        if model.is_weighed_for(noise):
            break
        model.weigh_pairs(noise)

    # F test of four parameters; many cells are tried, so its level is shared between them.
    squares_before = model.weighted_squares(int(cells[0]), nominal[cells[0]])
    explained = max(0.0, float(squares_before - fit.squares[0].sum()))
    ratio = explained / _PARAMETERS / noise.lit_db**2
    n_told = int((sensitivity.sum(axis=(1, 2)) > 0).sum())
    # Where no cell can be told, since all levels drown in noise, noise explains what was measured.
    chance = max(1, n_told) * _f_test_chance(ratio, max(1, model.n_lit_pairs - _PARAMETERS))

    # What each kept cell leaves, and for all cells whether a change would have been noticed.
    off_db = [
        float(np.sqrt((model.all_deviations(int(cell), amplitudes) ** 2).mean()))
        for cell, amplitudes in zip(cells, fit.amplitudes, strict=True)
    ]
    told_from = TOLD_BY * noise.lit_db**2 / TOLD_AMPLITUDE**2
    return _CellSearch(
        cells=cells,
        fit=fit,
        off_db=np.array(off_db),
        noise_db=noise.lit_db,
        chance=chance,
        is_seen=sensitivity > told_from,
    )


def _search_second_cell(
    fabric: Fabric, measured: Measurement, cells: CellDevice, first: _CellSearch
) -> _CellSearch:
    """Look for a second cell that differs from the model, beside the one that was found first.

    The first cell is taken to be as it was fitted, and every cell is fitted alone once more. It
    may be the first cell that fits better again, since the weights of measured pairs follow the
    model. Then it is set anew, and the search is repeated.

    Parameters
    ----------
    fabric, measured, cells
        The switch, its measured powers, and the device that each cell should be.
    first
        The search for one changed cell.

    Returns
    -------
    _CellSearch
        The fits of all cells beside the first one. Its best cell is the first one again if no
        other one was found.
    """
    amplitudes = nominal_amplitudes(graph_of(fabric), cells)
    search = first
    for _ in range(_NOISE_ROUNDS):
        amplitudes[search.best_cell] = search.best_amplitudes
        search = _search_changed_cell(_ChipModel(fabric, measured, cells, amplitudes))
        if search.best_cell != first.best_cell:
            break
    return search


def _fit_best_cells(model: _ChipModel) -> tuple[NDArray[np.intp], _Fit, NDArray[np.float64]]:
    """Fit every cell of a chip to measured powers, and return those that explain most.

    Each cell is fitted alone, as if all others were as modelled. A fit leaves a sum of
    squares unexplained. This sum has several minima, hence several starts are tried:

    1. for all cells: the cell as modelled, stuck in its other state, dead, and with half the
       difference of the phases of its arms turned by 0.5 rad, either way;
    2. for the 24 cells that leave least: their best fit with the other sign of its leaks, and the
       model turned by 0.15 rad, either way.

    Parameters
    ----------
    model
        The chip, what was measured, and the weights of measured pairs.

    Returns
    -------
    cells
        (kept,): the cells that explain most, the best first.
    fit
        The fits of these cells, in this order: amplitudes, and the squares that they leave.
    sensitivity
        (all cells, bar or cross, loss or leak): by how much the sum of squares grows if an
        amplitude of the modelled cell changes by 1.
    """
    nominal = model.amplitudes
    every_cell = np.arange(model.graph.n_cells)

    # The powers of a broken cell are far from those of a good one, and need other starts.
    stuck = nominal[:, ::-1]
    dead = np.zeros_like(nominal)
    turned = [turn_amplitudes(nominal, np.full(nominal.shape[:2], turn)) for turn in (0.5, -0.5)]
    best = model.fit_from_starts(every_cell, (nominal, stuck, dead, *turned), _FIRST_STEPS)
    promising = np.argsort(best.squares.sum(axis=1), kind="stable")[:_REFINED_CELLS]
    refined = model.fit(promising, best.amplitudes[promising], _REFINED_STEPS)

    # Powers hardly tell the sign of a leak, so each sign has a minimum of its own. Where a small
    # leak meets other light, its growth leads through a null, which a fit from the model does not
    # pass.
    other_sign = refined.amplitudes * np.array([[1, -1], [-1, 1]])  # [state, amplitude]
    modelled = nominal[promising]
    slightly_turned = [
        turn_amplitudes(modelled, np.full(modelled.shape[:2], turn))
        for turn in (_SMALL_TURN_RAD, -_SMALL_TURN_RAD)
    ]
    from_starts = model.fit_from_starts(promising, (other_sign, *slightly_turned), _REFINED_STEPS)
    refined = _better_fit(refined, from_starts)
    order = np.argsort(refined.squares.sum(axis=1), kind="stable")
    ordered = _Fit(refined.amplitudes[order], refined.squares[order], refined.sensitivity[order])
    return promising[order], ordered, best.sensitivity


def _f_test_chance(ratio: float, freedom: int) -> float:
    """Return the probability that noise alone gives an F statistic above a ratio.

    F has (4, `freedom`) degrees of freedom. The incomplete beta function of an even number of
    degrees of freedom is a finite sum: for four, y**a (1 + a (1 - y)) with a = freedom / 2 and
    y = freedom / (freedom + 4 ratio).

    Parameters
    ----------
    ratio
        The mean square that the four parameters explain over that of the noise.
    freedom
        The number of measured pairs less that of the parameters.
    """
    half = freedom / 2
    share = freedom / (freedom + _PARAMETERS * ratio)
    return float(share**half * (1 + half * (1 - share)))


def _differences(model: _ChipModel, measured: Measurement) -> NDArray[np.float64]:
    """Return measured less modelled levels of all pairs.

    Parameters
    ----------
    model
        The model, with its light in each measured state.
    measured
        The measured powers.

    Returns
    -------
    float64 array
        ``difference_db[state, source, destination]``, in dB; 0 for pairs that are not compared.
    """
    difference_db = np.zeros(measured.power.shape)
    for place, state in zip(difference_db, model.states, strict=True):
        modelled_db = level_db(np.abs(state.arriving[state.compared]) ** 2)
        place[state.compared] = state.measured_db - modelled_db
    return difference_db


def _unseen_cells(is_seen: NDArray[np.bool_]) -> Mapping[str, tuple[int, ...]]:
    """List the cells whose loss or leak would not stand out if it changed.

    Parameters
    ----------
    is_seen
        ``is_seen[cell, bar or cross, loss or leak]``: whether a change would stand out.

    Returns
    -------
    mapping
        Numbers of cells by figure and state, as ``"leak in bar"``.
    """
    unseen = {}
    for state, state_name in ((BAR, "bar"), (CROSS, "cross")):
        for figure, figure_name in enumerate(("loss", "leak")):
            cells = np.flatnonzero(~is_seen[:, state, figure])
            unseen[f"{figure_name} in {state_name}"] = tuple(cells.tolist())
    return FrozenMap(unseen)


def _describe_suspect(
    cell: int, amplitudes: NDArray[np.float64], is_seen: NDArray[np.bool_], off_db: float
) -> Suspect:
    """Turn the fitted amplitudes of a cell into losses and extinctions in dB.

    Light that enters a cell leaves it straight or across. In bar it should go straight, in cross
    it should go across. The light that is missing on the wanted way is the loss, and the light on
    the other way is the leak.

    Parameters
    ----------
    cell
        Its number.
    amplitudes
        ``amplitudes[bar or cross, straight or across]``: as fitted, shape (2, 2).
    is_seen
        ``is_seen[bar or cross, loss or leak]``: whether a change would stand out; else the figure
        is None.
    off_db
        The root mean square in dB of all measured pairs that the fit leaves.

    Returns
    -------
    Suspect
        Loss and extinction in bar and in cross. The extinction is the power of the wanted way over
        that of the other one.
    """
    # In bar light should go straight on, in cross it should change sides.
    loss_db: list[float | None] = []
    extinction_db: list[float | None] = []
    for state in (BAR, CROSS):
        straight_db, across_db = -10 * np.log10(np.maximum(amplitudes[state] ** 2, 1e-12))
        wanted_db = straight_db if state == BAR else across_db
        other_db = across_db if state == BAR else straight_db
        loss_seen, leak_seen = is_seen[state]
        loss_db.append(float(wanted_db) if loss_seen else None)
        extinction_db.append(float(other_db - wanted_db) if leak_seen else None)
    return Suspect(
        cell=cell,
        loss_db=tuple(loss_db),
        extinction_db=tuple(extinction_db),
        off_db=off_db,
    )

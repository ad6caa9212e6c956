"""States for free cells: where stray light goes, chosen so that least of it meets other circuits.

Iterated local search: steepest descents over single flips from all cells in cross, all in bar and
random states, then from the best setting with a few cells kicked at random. `StrayLight` knows how
light interferes, and what each flip would change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph
from optmatch.fabrics.netlists.circuits import with_cell_phases
from optmatch.model import (
    BAR,
    CROSS,
    FREE,
    CellDevice,
    Device,
    InputError,
    Problem,
    Schedule,
    Solution,
    cells_of,
)
from optmatch.solvers.routing.stray_light import ChipOptics, CircuitEnds, StrayLight

ORDER = 512
"""The order of the norm of all ratios of crosstalk to signal that the search lowers.

It is high enough that the worst circuit decides. Of 42 meshes 120 random states were better by
more than 0.001 dB on 5 at order 32, on 2 at order 128 and on 1, by 0.003 dB, at order 512.
"""

MEAN_WEIGHT = 1e-4
"""The weight of the mean ratio, which decides between settings with an equal worst circuit."""

LEAST_GAIN = 1e-5
"""A flip must promise to lower the objective by this share."""

MOST_COOLING_GROWTH = 2.5e-4
"""By how much crosstalk may grow for less power: 0.001 dB."""

EVALUATIONS_OF_WAVES = 4_000_000
"""Settings that are solved in a schedule, times the terminals and ports of the fabric, at most."""

MOST_EVALUATIONS = 120
LEAST_EVALUATIONS = 12
"""Settings that are solved for a slot. Half of the most lost nothing on 14 small meshes."""

N_RANDOM_STARTS = 8
MOST_KICKED = 8
"""So many free cells are flipped at random before a descent is repeated, at most."""


def settle(
    problem: Problem,
    subject: Schedule | Solution,
    device: Device | CellDevice | str,
    frequencies_hz: Sequence[float] = (0.0,),
    seed: int | None = None,
) -> NDArray[np.int8]:
    """Choose a state for every free cell, such that circuits disturb each other least.

    A free cell is one that no circuit of a slot needs; stray light passes it nevertheless. Of the
    settings that the search tries, the one of the least worst ratio of crosstalk to signal counts.
    Then cells whose other state needs less heater power are flipped, as far as that disturbs no
    circuit more. `frequencies_hz` are differences from the frequency of the device; `seed` draws
    phase errors, None for a chip whose phases are not known.
    """
    fabric = problem.fabric
    graph: CellGraph | None = fabric.graph
    schedule = subject.schedule if isinstance(subject, Solution) else subject
    if graph is None:
        raise InputError(f"a fabric of type {fabric.type} has no cells, and no optics")
    if schedule is None or schedule.cell_states is None:
        raise InputError("optics need one schedule, with cell states")
    cells = with_cell_phases(fabric, cells_of(device, graph.n_cells))
    chip = ChipOptics.of(fabric, cells, tuple(frequencies_hz), seed)
    n_waves = max(1, len(graph.mate) * schedule.matchings.size)
    n_evaluations = min(max(EVALUATIONS_OF_WAVES // n_waves, LEAST_EVALUATIONS), MOST_EVALUATIONS)

    # Slot by slot. Stuck cells have their state whatever is stated. Dead ones get some state, as
    # every cell does. Without a second circuit nothing is disturbed; only power may be saved.
    settled = schedule.cell_states.copy()
    for states, matching in zip(settled, schedule.matchings, strict=True):
        source = np.flatnonzero(matching >= 0)
        circuits = CircuitEnds(
            fabric.source_terminals[source], fabric.destination_terminals[matching[source]]
        )
        states[graph.stuck == BAR] = BAR
        states[graph.stuck >= CROSS] = CROSS
        free = np.flatnonzero(states == FREE)

        # The search begins with all free cells in cross.
        if len(source) and len(free):
            light = StrayLight(chip, circuits, states, free)
            states[free] = CROSS
            if len(source) > 1:
                search_setting(light, states, n_evaluations)
            _cool(light, states, cells.power_mw)
        states[states == FREE] = CROSS
    return settled


def measure_objective(ratios: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the objective of ``ratios[..., circuit]``, less is better.

    It is the norm of order 512 of all ratios of crosstalk to signal, hence hardly more than the
    worst one, and a ten-thousandth of their mean.
    """
    worst = np.maximum(ratios.max(axis=-1), 1e-300)
    shares = ratios / worst[..., None]
    norm = worst * (shares**ORDER).sum(axis=-1) ** (1 / ORDER)
    objective: NDArray[np.float64] = norm + MEAN_WEIGHT * ratios.mean(axis=-1)
    return objective


class Descent(NamedTuple):
    """The end of a descent."""

    states: NDArray[np.int8]  # (cells,): 0 bar, 1 cross
    objective: float  # of `measure_objective`, without unit, less is better
    n_evaluations: int  # settings that were solved for


def search_setting(light: StrayLight, states: NDArray[np.int8], n_evaluations: int) -> None:
    """Settle the free cells of one slot in ``states[cell]``, in place, by iterated local search.

    Free cells are in cross at first. A descent that has begun is finished, even if more than
    `n_evaluations` settings are solved by that.
    """
    rng = np.random.default_rng(0)
    free = light.free
    best = descend(light, states)
    n_left = n_evaluations - best.n_evaluations
    n_descents = 1
    while n_left > 0 and best.objective > 0:
        start = states.copy()
        if n_descents == 1:
            start[free] = BAR
        elif n_descents <= 1 + N_RANDOM_STARTS:
            start[free] = rng.integers(0, 2, len(free))
        else:
            start = best.states.copy()
            n_kicked = int(rng.integers(1, MOST_KICKED + 1))
            kicked = rng.permutation(free)[:n_kicked]
            start[kicked] = 1 - start[kicked]

        # A descent from there; the best setting of all stays.
        descent = descend(light, start)
        n_left -= descent.n_evaluations
        n_descents += 1
        # Of equal settings the last one goes on, so that the search can cross a plateau.
        if descent.objective <= best.objective:
            best = descent
    states[:] = best.states


def descend(light: StrayLight, start: NDArray[np.int8]) -> Descent:
    """Flip free cells as long as the objective falls; `start` is not changed.

    Each round flips all cells that promise to lower the objective, or the most promising half,
    quarter and so on of them, until the objective computed exactly is indeed lower.
    """
    states = start
    waves = light.solve(states)
    objective = float(measure_objective(light.ratios(waves)))
    n_evaluations = 1
    while True:
        promised = measure_objective(light.ratios_after_flips(waves, states))
        order = np.argsort(promised, kind="stable")
        n_promising = int((promised < (1 - LEAST_GAIN) * objective).sum())

        # What a flip promises holds for it alone. Many flips at once may disturb each other: then
        # fewer are tried, and those that promise most are kept longest.
        is_lower = False
        while n_promising and not is_lower:
            flipped = light.free[order[:n_promising]]
            trial = states.copy()
            trial[flipped] = 1 - trial[flipped]
            trial_waves = light.solve(trial)
            trial_objective = float(measure_objective(light.ratios(trial_waves)))
            n_evaluations += 1

            # Promises are for single flips; together they may not hold, and then half of them are
            # tried.
            is_lower = trial_objective < objective
            n_promising //= 2
        if not is_lower:
            return Descent(states, objective, n_evaluations)
        states = trial
        waves = trial_waves
        objective = trial_objective


def _cool(light: StrayLight, states: NDArray[np.int8], power_mw: NDArray[np.float64]) -> None:
    """Put free cells, in place, where they need less power, if crosstalk grows by next to nothing.

    Changes ``states[cell]``; ``power_mw[cell, state]`` is what a heater takes. Those that promise
    the least crosstalk are flipped together; if that is too much, the better half of them, and
    then as many of those that are left.
    """
    free = light.free
    saved_mw = power_mw[free, states[free]] - power_mw[free, 1 - states[free]]
    is_warm = saved_mw > 0
    if not is_warm.any():
        return

    # How much crosstalk may grow, and what each flip alone would do.
    waves = light.solve(states)
    ratios = light.ratios(waves)
    most_objective = (1 + MOST_COOLING_GROWTH) * float(measure_objective(ratios))
    most_ratio = (1 + MOST_COOLING_GROWTH) * float(ratios.max())
    promised = measure_objective(light.ratios_after_flips(waves, states))[is_warm]
    warm = free[is_warm][np.argsort(promised, kind="stable")]
    n_cooled = len(warm)

    # Flip the first half, quarter and so on that keeps within this; then those behind them.
    while n_cooled and len(warm):
        trial = states.copy()
        trial[warm[:n_cooled]] = 1 - trial[warm[:n_cooled]]
        ratios = light.ratios(light.solve(trial))
        if measure_objective(ratios) <= most_objective and ratios.max() <= most_ratio:
            states[:] = trial
            warm = warm[n_cooled:]
        else:
            n_cooled //= 2

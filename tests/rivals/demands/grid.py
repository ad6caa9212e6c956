"""Cells of demands, drawn from the whole product of what a problem may say, and races."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import optmatch as om
from optmatch.model.schedule import Switching
from tests.rivals.demands import covers
from tests.rivals.demands.models import DRAWS
from tests.rivals.demands.plans import IntMatrix, Slot, cost_of
from tests.rivals.demands.planted import planted_weights
from tests.rivals.demands.pools import lengths_by_linear_program
from tests.rivals.races import TOLERANCE, Race, describe

SWITCHING_MODES: tuple[Switching, ...] = ("all-stop", "per-circuit")

RIVALS: dict[str, Callable[[IntMatrix, int], list[Slot]]] = {
    "critical lines": covers.critical_lines,
    "maximum weight, largest": covers.maximum_weight_largest,
    "maximum weight, median": covers.maximum_weight_median,
    "maximum weight, least": covers.maximum_weight_least,
    "trimmed decomposition": covers.trimmed_decomposition,
    "Solstice": covers.solstice,
    "Eclipse": covers.eclipse,
    "Reco": covers.reco,
    "Reco, best of five units": covers.reco_of_five_units,
    "planted weights": planted_weights,
    "lengths by linear program": lengths_by_linear_program,
}
"""Every rival by its name."""

PORTS = (2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 33, 48, 64, 65, 96, 128, 150, 192, 256)
MANY_PORTS = (257, 384, 512, 768, 1024, 2048)
DELAYS_S = (1e-6, 2e-5, 1e-4, 1e-3, 1e-2)
LIMITS_S = (0.005, 0.05, 0.3, 2.0)
SMALLEST_TIME_S = 0.05
"""A rival counts if it took no more than our limit, or this."""
GIVE_UP_S = 3.0
"""Rivals that would take longer than this for so many ports are left out."""


class Cell(NamedTuple):
    """A problem, and how it is asked for."""

    model: str
    demand_s: NDArray[np.float64]
    delay_s: float
    limit_s: float
    entrance: str
    """``"schedule"`` or ``"solve"``."""
    planes: int = 1
    switching: Switching = "all-stop"
    min_slot_s: float = 0.0


def draw_cells(rng: np.random.Generator, count: int, most_ports: int = 2048) -> Iterator[Cell]:
    """Draw so many cells of `most_ports` at most."""
    for _ in range(count):
        model = str(rng.choice(list(DRAWS)))
        small = [n for n in PORTS if n <= most_ports]
        large = [n for n in MANY_PORTS if n <= most_ports]
        n = int(rng.choice(large if large and rng.random() < 0.12 else small))
        demand_s = DRAWS[model](n, rng)
        if not demand_s.any():
            continue
        delay_s = float(rng.choice(DELAYS_S))
        entrance = str(rng.choice(["schedule", "solve"]))
        cell = Cell(model, demand_s, delay_s, float(rng.choice(LIMITS_S)), entrance)
        if entrance == "solve" and rng.random() < 0.3:
            cell = cell._replace(
                planes=int(rng.choice([1, 1, 2, 4])),
                switching=SWITCHING_MODES[int(rng.choice(2))],
                min_slot_s=float(rng.choice([0.0, delay_s])),
            )
        yield cell


class RivalPlan(NamedTuple):
    """The best plan of all rivals that took no longer than they may."""

    name: str
    completion_s: float
    took_s: float


def race(cell: Cell) -> Race:
    """Plan a cell, and let all rivals try it.

    A loss within the limit of the cell is raced again in as much time as rivals may have: twice
    what the best one took, and `SMALLEST_TIME_S` at least. On a machine with other work a few
    milliseconds of the processor do less at some times than at others, hence three times.
    """
    problem = om.Demand.from_matrix(
        cell.demand_s,
        delay_s=cell.delay_s,
        planes=cell.planes,
        switching=cell.switching,
        min_slot_s=cell.min_slot_s,
    )
    rival = _best_rival(cell, problem)
    _ask(cell, problem, min(cell.limit_s, SMALLEST_TIME_S))  # compiles what it needs
    ours_s, cpu_s = _time_ours(cell, problem, cell.limit_s)
    for _ in range(3):
        if ours_s <= rival.completion_s * (1 + TOLERANCE):
            break
        limit_s = max(cell.limit_s, SMALLEST_TIME_S, 2 * rival.took_s)
        ours_s, cpu_s = _time_ours(cell, problem, limit_s)
    return Race(describe(cell), ours_s, rival.completion_s, rival.name, cpu_s)


def _best_rival(cell: Cell, problem: om.Demand) -> RivalPlan:
    """Return the best plan of those rivals that are quick enough; infinite if there is none."""
    best = RivalPlan("none", np.inf, 0.0)
    for name, rival in RIVALS.items():
        if _guess_s(name, problem.ticks) > GIVE_UP_S:
            continue
        began_s = time.process_time()
        slots = rival(problem.ticks, problem.delay_ticks)
        took_s = time.process_time() - began_s
        slots = [slot._replace(ticks=max(slot.ticks, problem.min_slot_ticks)) for slot in slots]
        plan_s = cost_of(slots, problem.delay_ticks, cell.planes) * problem.tick_s
        if plan_s < best.completion_s and took_s <= max(cell.limit_s, SMALLEST_TIME_S):
            best = RivalPlan(name, plan_s, took_s)
    return best


def _time_ours(cell: Cell, problem: om.Demand, limit_s: float) -> tuple[float, float]:
    """Return the seconds of our plan, and of the processor that it took."""
    began_s = time.process_time()
    ours_s = _ask(cell, problem, limit_s)
    return ours_s, time.process_time() - began_s


def _ask(cell: Cell, problem: om.Demand, limit_s: float) -> float:
    """Return the seconds of our plan."""
    if cell.entrance == "schedule":
        slots = om.schedule(cell.demand_s, cell.delay_s, time_limit_s=limit_s)
        return float(slots.completion_s)
    solution = om.solve(problem, seed=0, time_limit_s=limit_s)
    objective: Any = solution.objective
    return np.inf if objective is None else float(objective)


def _guess_s(name: str, ticks: IntMatrix) -> float:
    """Guess what a rival takes: assignments cost n**2.5, and there are so many of them.

    A linear program takes about the square of its entries: 45 ms for 240 of them.
    """
    n = len(ticks)
    entries = int(np.count_nonzero(ticks))
    if name == "lengths by linear program":
        return 0.01 + 6e-7 * entries**2
    degree = max(np.count_nonzero(ticks, axis=0).max(), np.count_nonzero(ticks, axis=1).max())
    assignment_s = 4e-9 * n**2.5 + 2e-5
    slots = {
        "critical lines": degree,
        "maximum weight, largest": 1.5 * degree,
        "maximum weight, median": 4 * degree,
        "maximum weight, least": entries / 2,
        "Eclipse": 48 * degree,
        "Reco, best of five units": 8 * degree,
        "planted weights": 8 * degree,
    }
    n_assignments = slots.get(name, entries / 8 if name == "Solstice" else degree)
    return float(n_assignments * assignment_s)

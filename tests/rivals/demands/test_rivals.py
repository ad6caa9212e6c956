"""Rivals reproduce their known figures, and sixty small cells of the grid are raced."""

import numpy as np
import pytest

import optmatch as om
from optmatch.problems.demands.traffic import MODELS
from tests.helpers.modes import nightly_only
from tests.rivals.demands import covers, models
from tests.rivals.demands.grid import RIVALS, draw_cells, race
from tests.rivals.demands.plans import cost_of, is_served
from tests.rivals.demands.planted import planted_weights
from tests.rivals.races import TOLERANCE


def ratio_of(rival: object, demand_s: object, delay_s: float) -> float:
    """Return the cost of a rival's plan, as a multiple of the bound."""
    problem = om.Demand.from_matrix(demand_s, delay_s=delay_s)  # type: ignore[arg-type]
    slots = rival(problem.ticks, problem.delay_ticks)  # type: ignore[operator]
    assert is_served(slots, problem.ticks)
    return cost_of(slots, problem.delay_ticks) * problem.tick_s / problem.lower_bound()


@pytest.mark.parametrize(
    ("name", "model", "n", "delay_s", "known"),
    [
        ("critical lines", "experts", 64, 1e-3, 1.000),
        ("maximum weight, largest", "experts", 64, 1e-3, 1.015),
        ("critical lines", "ring stencil", 512, 1e-3, 1.000),
        ("Solstice", "solstice", 64, 2e-5, 1.00),
        ("planted weights", "16 permutations", 64, 1e-3, 1.000),
        ("trimmed decomposition", "pareto", 128, 1e-9, 1.0065),
    ],
)
def test_a_rival_reproduces_its_known_figure(
    name: str, model: str, n: int, delay_s: float, known: float
) -> None:
    demand_s = models.DRAWS[model](n, np.random.default_rng(0))
    assert ratio_of(RIVALS[name], demand_s, delay_s) == pytest.approx(known, rel=0.02)


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_serves_everything(name: str) -> None:
    rng = np.random.default_rng(5)
    for n in (1, 2, 5, 9):
        demand = rng.integers(0, 30, (n, n)) * (rng.random((n, n)) < 0.6)
        if demand.any():
            assert ratio_of(RIVALS[name], demand, 7.0) >= 1 - 1e-9


def test_stuffed_matrices_have_equal_lines() -> None:
    demand = np.array([[3, 0, 1], [0, 0, 5], [2, 2, 0]])
    stuffed = covers.quick_stuff(demand)
    assert (stuffed >= demand).all()
    assert len({*stuffed.sum(axis=0).tolist(), *stuffed.sum(axis=1).tolist()}) == 1


def test_planted_weights_are_decoded() -> None:
    """Where permutations meet, the entry is a sum of their weights."""
    rng = np.random.default_rng(1)
    demand = np.zeros((32, 32), dtype=np.int64)
    for weight in (901, 707, 512, 333, 118):
        demand[np.arange(32), rng.permutation(32)] += weight
    slots = planted_weights(demand, 10)
    assert sorted(slot.ticks for slot in slots) == [118, 333, 512, 707, 901]


@nightly_only
@pytest.mark.slow
@pytest.mark.usefixtures("limits_in_cpu_time")
def test_no_rival_is_much_better_on_small_cells() -> None:
    """No rival is over 5 % better, few are over 1 %."""
    cells = draw_cells(np.random.default_rng(7), 60, most_ports=33)
    races = [race(cell) for cell in cells]
    losses = sorted(race.loss for race in races)
    assert losses[-1] <= 0.05, races
    assert sum(loss > TOLERANCE for loss in losses) <= 3


def test_models_are_demands() -> None:
    for name, draw in models.DRAWS.items():
        demand_s = draw(6, np.random.default_rng(0))
        assert demand_s.shape == (6, 6), name
        assert (demand_s >= 0).all(), name
    assert "solstice" in MODELS

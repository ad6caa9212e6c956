"""The bound of groups, counted by two programs, and against the rule of Smith."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.verify.demands import bounds
from optmatch.verify.demands.bounds import EXACT, bound_weighted, count_groups


def draw(rng: np.random.Generator, n_ports: int, n_groups: int) -> om.Demand:
    """Draw a demand whose entries belong to groups, with weights, deadlines and a delay."""
    shape = n_ports, n_ports
    groups = rng.integers(0, n_groups, shape)
    groups.flat[: min(n_groups, groups.size)] = np.arange(min(n_groups, groups.size))
    matrix = rng.integers(0, 9, shape) * (rng.random(shape) < 0.8)
    options: dict[str, Any] = {}
    if rng.random() < 0.7:
        options["weights"] = tuple(rng.integers(0, 5, n_groups).astype(float).tolist())
    if rng.random() < 0.7:
        options["deadlines_s"] = tuple(rng.integers(0, 30, n_groups).astype(float).tolist())
    return om.Demand(
        om.IdealSwitch(n_ports),
        matrix / 4,
        delay_s=float(rng.integers(0, 3)),
        objective="weighted-completion-s",
        groups=groups.astype(np.int32),
        **options,
    )


@pytest.mark.parametrize("seed", range(24))
def test_two_programs_count_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = draw(rng, 4, EXACT + 3) if seed % 4 == 0 else draw(rng, 3, int(rng.integers(1, 7)))
    assert bound_weighted(problem) == pytest.approx(problem.lower_bound())


def test_one_sender_is_bounded_by_the_best_order() -> None:
    rng = np.random.default_rng(1)
    n = EXACT + 2
    seconds, weights = rng.integers(1, 20, n), rng.integers(1, 20, n).astype(float)
    groups, matrix = np.full((n, n), -1, dtype=np.int32), np.zeros((n, n))
    groups[0], matrix[0] = np.arange(n), seconds
    problem = om.Demand(
        om.IdealSwitch(n),
        matrix,
        objective="weighted-completion-s",
        groups=groups,
        weights=tuple(weights.tolist()),
    )
    order = np.argsort(-weights / seconds)
    best = float((weights[order] * np.cumsum(seconds[order])).sum())
    assert bound_weighted(problem) == pytest.approx(best)
    assert bound_weighted(replace(problem, weights=(0.0,) * n)) == 0.0


@pytest.mark.parametrize(("n", "cost"), [(EXACT, 13.5), (EXACT + 1, 1.0)])
def test_of_so_many_groups_all_orders_are_compared(n: int, cost: float) -> None:
    """Of more, two bounds are 1: what all prices pay for, and what the first group costs alone."""
    groups, matrix = np.full((n, n), -1, dtype=np.int32), np.zeros((n, n))
    groups[0], matrix[0] = np.arange(n), 1.0
    problem = om.Demand(
        om.IdealSwitch(n),
        matrix,
        objective="weighted-completion-s",
        groups=groups,
        deadlines_s=(0.0, *[7.5] * (n - 1)),
    )
    assert bound_weighted(problem) == pytest.approx(problem.lower_bound()) == pytest.approx(cost)


@pytest.mark.parametrize(("most", "groups"), [(5, 2), (6, 1)])
def test_of_so_many_numbers_all_groups_are_tried(
    most: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more, each group is taken to have three; no three of these add up to nothing."""
    monkeypatch.setattr(bounds, "MOST_NUMBERS", most)
    assert count_groups([1, 1, 7, -3, -3, -3]) == groups

"""Rivals of placements reach what is known, and small cells of the grid are raced."""

from __future__ import annotations

import numpy as np
import pytest

import optmatch as om
from tests.rivals.placements.grid import draw_cells, race
from tests.rivals.placements.swaps import exchange_worst, place_greedily
from tests.rivals.races import TOLERANCE


def test_a_spare_is_found_greedily() -> None:
    """One host is left, so the greedy choice is the best one."""
    loss_db = np.random.default_rng(3).normal(1.5, 0.5, (12, 12)).clip(0.1)
    problem = om.HostPlacement(om.IdealSwitch(12, loss_db=loss_db), 5, held=(-1, 1, 2, 3, 4))
    port_of = place_greedily(problem, np.random.default_rng(0))
    assert problem.objective_of(port_of) == om.solve(problem, seed=0).objective


def test_exchanges_never_raise_the_objective_and_leave_held_hosts() -> None:
    for cell in draw_cells(np.random.default_rng(8), 20, most_ports=12):
        before = place_greedily(cell.problem, np.random.default_rng(cell.seed))
        after = exchange_worst(cell.problem, before)
        assert cell.problem.objective_of(after) <= cell.problem.objective_of(before)
        assert len(set(after.tolist())) == len(after)
        for host, port in enumerate(cell.problem.held):
            assert port in (-1, after[host])


@pytest.mark.slow
def test_no_rival_is_better_on_small_switches() -> None:
    for cell in draw_cells(np.random.default_rng(30), 20, most_ports=12):
        result = race(cell)
        assert result.loss <= TOLERANCE, result

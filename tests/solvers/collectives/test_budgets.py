"""Collectives on a switch whose circuits lose: ranks are renumbered, or it cannot be done."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems.collectives.fields import Operation
from tests.helpers.modes import some

OPERATIONS: tuple[Operation, ...] = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "broadcast",
)
FIELDS: list[dict[str, Any]] = [{}, {"two_way": True}, {"ports": 2}, {"planes": 2}]


def lossy(n_ports: int, share: float, seed: int) -> om.IdealSwitch:
    """Return a switch of which a share of the circuits is over its budget."""
    loss_db = np.random.default_rng(seed).normal(1.5, 0.5, (n_ports, n_ports)).clip(0.05)
    return om.IdealSwitch(
        n_ports, loss_db=loss_db, budget_db=float(np.quantile(loss_db, 1 - share))
    )


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fields", FIELDS)
def test_no_circuit_is_over_its_budget(operation: Operation, fields: dict[str, Any]) -> None:
    first = (OPERATIONS.index(operation) + FIELDS.index(fields)) % 3
    for seed, share in some(enumerate((0.05, 0.2, 0.6)), 3, first):
        switch = lossy(6 * fields.get("ports", 1), share, seed)
        problem = om.Collective(operation, 6, 6e6, delay_s=1e-5, fabric=switch, **fields)
        for method in ("best", "ring"):
            if method == "ring" and operation == "all-to-all":
                continue
            try:
                solution = om.solve(problem, method, seed=0, time_limit_s=0.2)
            except om.InputError:
                continue
            assert om.verify(solution).valid


def test_a_ring_is_ordered_so_that_its_worst_circuit_loses_least() -> None:
    for seed in range(4):
        switch = lossy(6, 0.2, seed)
        problem = om.Collective("all-gather", 6, 6e6, fabric=switch)
        solution = om.solve(problem, "ring", seed=0)
        loss_db: Any = switch.loss_db
        orders = [(0, *order) for order in permutations(range(1, 6))]
        best_db = min(
            max(loss_db[order[k], order[(k + 1) % 6]] for k in range(6)) for order in orders
        )
        if solution.answer is None:
            assert best_db > switch.budget_db
            continue
        assert om.verify(solution).figures["worst_circuit_loss_db"] == best_db
        assert solution.stats["circuit_loss_bound_db"] == best_db


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_rank_that_is_cut_off_makes_it_infeasible(operation: Operation) -> None:
    loss_db = np.ones((4, 4))
    loss_db[:, 3] = 9.0
    problem = om.Collective(
        operation, 4, 4e6, fabric=om.IdealSwitch(4, loss_db=loss_db, budget_db=2.0)
    )
    solution = om.solve(problem, seed=0)
    assert solution.status is om.Status.INFEASIBLE
    assert om.verify(solution).ok
    assert "to rank 3" in solution.stats["reason"]


def test_late_ranks_and_roots_stay_who_they_are() -> None:
    switch = lossy(5, 0.1, 3)
    late = om.Collective("all-reduce", 5, 5e6, fabric=switch, late_s={"2": 1e-3})
    root = om.Collective("broadcast", 5, 5e6, fabric=switch, root=3)
    for problem in (late, root):
        solution = om.solve(problem, seed=0, time_limit_s=0.2)
        assert solution.answer is not None

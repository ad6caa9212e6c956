"""Placements against all ways to put hosts on ports, and on switches of usual sizes."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import Event, NewBest
from optmatch.problems import HostPlacement
from optmatch.solvers.placements.circuits import Circuits
from optmatch.solvers.placements.conflicts import ConflictState, reduce_conflicts

NORMAL_DB = 1.5, 0.5


def draw_placement(seed: int) -> HostPlacement:
    """Draw a small placement: any pattern, budgets, dead ports, and hosts that have a port."""
    rng = np.random.default_rng(seed)
    n_ports = int(rng.integers(2, 7))
    n_hosts = int(rng.integers(1, min(n_ports, 5) + 1))
    loss_db = rng.normal(*NORMAL_DB, (n_ports, n_ports)).clip(0.05).round(2)
    switch: Any = om.IdealSwitch(n_ports, loss_db=loss_db, budget_db=rng.choice([9, 2.0, 1.6]))
    if rng.random() < 0.3 and n_ports > n_hosts:
        switch = om.Faulty(switch, dead_ports=[int(rng.integers(n_ports))])
    pattern: Any = rng.choice(["all-to-all", "ring", "demand"])
    demand = (rng.random((n_hosts, n_hosts)) < 0.5) * 1.0
    np.fill_diagonal(demand, 0.0)
    held: list[int] = []
    if rng.random() < 0.4:
        ports = rng.permutation(switch.live_ports)[:n_hosts].tolist()
        held = [port if rng.random() < 0.6 else -1 for port in ports]
    return HostPlacement(
        switch,
        n_hosts,
        pattern=pattern,
        demand_bytes=demand if pattern == "demand" else None,
        held=tuple(held),
        objective=rng.choice(["worst-loss-db", "total-loss-db"]),
    )


def best_of_all(problem: HostPlacement) -> float:
    """Return the objective of the best of all placements; infinite if none is allowed."""
    best_db = np.inf
    held = problem.held or (-1,) * problem.n_hosts
    for ports in permutations(problem.fabric.live_ports.tolist(), problem.n_hosts):
        if all(port in (-1, other) for port, other in zip(held, ports, strict=True)):
            best_db = min(best_db, problem.objective_of(np.array(ports)))
    return best_db


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(0, 120, 20))
def test_small_placements_are_optimal(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        problem = draw_placement(seed)
        solution = om.solve(problem, seed=seed)
        assert om.verify(solution).valid
        best_db = best_of_all(problem)
        assert solution.lower_bound <= best_db * (1 + 1e-9)
        if best_db == np.inf:
            assert solution.status is om.Status.INFEASIBLE
        else:
            assert solution.status is om.Status.OPTIMAL
            assert solution.objective == pytest.approx(best_db)


def test_ilp_agrees_with_all_placements() -> None:
    for seed in range(12):
        problem = draw_placement(seed)
        solution = om.solve(problem, "ilp", seed=0)
        assert om.verify(solution).valid
        objective = np.inf if solution.objective is None else solution.objective
        assert objective == pytest.approx(best_of_all(problem))


@pytest.mark.parametrize("method", ["best", "ilp"])
@pytest.mark.parametrize("objective", ["worst-loss-db", "total-loss-db"])
def test_each_better_placement_is_told_once(method: str, objective: Any) -> None:
    loss_db = np.random.default_rng(5).normal(*NORMAL_DB, (7, 7)).clip(0.1).round(2)
    switch = om.Faulty(om.IdealSwitch(7, loss_db=loss_db, budget_db=2.3), dead_ports=[0])
    problem = HostPlacement(switch, 3, objective=objective)
    events: list[Event] = []
    solution = om.solve(problem, method, seed=0, on_event=events.append)
    bests = [event.objective for event in events if isinstance(event, NewBest)]
    assert bests == sorted(set(bests), reverse=True)
    assert bests[-1] == solution.objective


def large(n_ports: int, budget_share: float | None, **fields: Any) -> HostPlacement:
    """Return 64 hosts on ports with drawn losses, of which a share may be over budget."""
    loss_db = np.random.default_rng(1).normal(*NORMAL_DB, (n_ports, n_ports)).clip(0.1)
    budget_db = None if budget_share is None else float(np.quantile(loss_db, 1 - budget_share))
    return HostPlacement(
        om.IdealSwitch(n_ports, loss_db=loss_db, budget_db=budget_db), 64, **fields
    )


@pytest.mark.slow
def test_64_hosts_of_an_all_to_all_are_within_a_fifth_of_a_db() -> None:
    solution = om.solve(large(128, None), seed=0)
    assert om.verify(solution).ok
    assert solution.objective - solution.lower_bound <= 0.2


@pytest.mark.slow
def test_what_cannot_be_placed_is_proved_by_an_eigenvalue() -> None:
    solution = om.solve(large(128, 0.03), seed=0)
    assert solution.status is om.Status.INFEASIBLE
    assert om.verify(solution).ok
    assert solution.proof == "certificate"


@pytest.mark.slow
def test_64_hosts_on_a_ring_are_placed_optimally() -> None:
    solution = om.solve(large(320, 0.03, pattern="ring"), seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert om.verify(solution).valid


def test_a_spare_is_the_port_that_loses_least() -> None:
    """All hosts but one have a port; counting proves the choice."""
    loss_db = np.random.default_rng(3).normal(*NORMAL_DB, (40, 40)).clip(0.1)
    held = (-1, *range(1, 16))
    problem = HostPlacement(om.IdealSwitch(40, loss_db=loss_db), 16, held=held)
    solution = om.solve(problem, seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert om.verify(solution).ok
    others = np.arange(1, 16)
    spares = np.array([0, *range(16, 40)])
    out_db = loss_db[np.ix_(spares, others)].max(axis=1)
    in_db = loss_db[np.ix_(others, spares)].max(axis=0)
    fixed_db = loss_db[np.ix_(others, others)][~np.eye(15, dtype=bool)].max()
    best_db = max(fixed_db, float(np.maximum(out_db, in_db).min()))
    assert solution.objective == best_db


def test_a_longer_search_starts_from_a_former_answer() -> None:
    problem = large(128, None, pattern="demand", demand_bytes=np.eye(64, k=1) + np.eye(64, k=-2))
    short = om.solve(problem, seed=0, params={"moves": 100, "trials": 0})
    again = om.solve(problem, seed=1, start=short, params={"moves": 100, "trials": 0})
    assert again.objective <= short.objective


def test_a_sparse_demand_has_a_bound_that_is_shown_by_trials() -> None:
    """Partners need each other's good ports, which a count of partners does not see."""
    rng = np.random.default_rng(2)
    demand = np.zeros((24, 24))
    for host in range(24):
        others = np.delete(np.arange(24), host)
        demand[host, rng.choice(others, 4, replace=False)] = 1.0
    loss_db = rng.normal(*NORMAL_DB, (40, 40)).clip(0.1)
    problem = HostPlacement(
        om.IdealSwitch(40, loss_db=loss_db), 24, pattern="demand", demand_bytes=demand
    )
    solution = om.solve(problem, seed=0, params={"moves": 20_000, "trials": 1000})
    assert om.verify(solution).ok
    assert solution.proof == "certificate"
    assert solution.lower_bound > problem.lower_bound() + 0.1
    assert solution.gap <= 0.4


def test_steps_are_the_same_in_any_portions() -> None:
    """A clock that is looked at more often changes no answer."""
    rng = np.random.default_rng(4)
    loss_db = rng.random((12, 12))
    pairs = np.argwhere(rng.random((8, 8)) < 0.3)
    circuits = Circuits.of(pairs[pairs[:, 0] != pairs[:, 1]].astype(np.int32), 8)
    is_above = (loss_db > 0.3).astype(np.int64)
    np.fill_diagonal(is_above, 0)
    ends = []
    for portions in ([(0, 60)], [(0, 1), (1, 7), (7, 60)]):
        state = ConflictState.start(
            circuits, is_above, np.arange(8), np.arange(12), np.random.default_rng(0)
        )
        fewest = np.array([1 << 60])
        n_left = [reduce_conflicts(circuits, is_above, state, fewest, part) for part in portions]
        ends.append((n_left[-1], state.port_of.tolist(), state.n_conflicts.tolist()))
    assert ends[0] == ends[1]
    # The table of conflicts is as if counted anew.
    again = ConflictState.start(
        circuits, is_above, np.array(ends[0][1]), np.arange(12), np.random.default_rng(0)
    )
    assert again.n_conflicts.tolist() == ends[0][2]

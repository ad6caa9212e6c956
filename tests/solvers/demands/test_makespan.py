"""The earliest completion of a demand: what is proved, and how a search ends early."""

import numpy as np
import pytest

import optmatch as om
from optmatch.problems.demands import traffic
from optmatch.solvers.demands.configuration import bound_by_prices, bound_of
from optmatch.solvers.demands.plane_model import finish_small

MODULE = "optmatch.solvers.demands.makespan"


def test_a_conflict_limit_leaves_a_bound() -> None:
    demand = traffic.permutations(5, np.random.default_rng(1), count=10, bytes=200)
    problem = om.Demand(om.IdealSwitch(5), demand, delay_s=20.0)
    solution = om.solve(problem, "ilp", seed=0, limits=om.Limits(iterations=1))
    assert solution.status is om.Status.FEASIBLE
    assert solution.limit is om.Limit.ITERATIONS
    assert problem.lower_bound() <= solution.lower_bound < solution.objective


@pytest.mark.parametrize("seed", range(4))
def test_even_and_uneven_demands_are_proved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    even = traffic.permutations(3, rng, count=2, bytes=4)
    demand = even if seed % 2 else rng.integers(0, 4, size=(3, 3)).astype(float)
    problem = om.Demand(om.IdealSwitch(3), demand, delay_s=2.0)
    ours = om.solve(problem, "ilp", seed=0)
    start = om.solve(problem, "best", seed=0, limits=om.Limits(iterations=1))
    clock, rng = om.Limits().start(), np.random.default_rng(0)
    theirs = finish_small(problem, start, clock, rng, lambda event: None)
    assert ours.status is theirs.status is om.Status.OPTIMAL
    assert ours.objective == theirs.objective
    assert ours.stats.get("bound_by") in {None, "cp-sat"}


def test_an_interrupt_keeps_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during the search: the plan so far, with the bound so far."""

    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("optmatch.solvers.exact_models.minimise", interrupt)
    demand = np.random.default_rng(1).integers(50, 100, size=(6, 6)).astype(float)
    problem = om.Demand(om.IdealSwitch(6), demand, delay_s=20.0)
    solution = om.solve(problem, "ilp", seed=0, time_limit_s=20.0)
    assert solution.limit is om.Limit.INTERRUPTED
    assert solution.objective is not None


def test_too_large_a_model_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}._LARGEST", 100)
    demand = np.random.default_rng(2).integers(50, 100, size=(6, 6)).astype(float)
    problem = om.Demand(om.IdealSwitch(6), demand, delay_s=20.0)
    solution = om.solve(problem, "ilp", seed=0, limits=om.Limits(iterations=2))
    assert solution.limit is om.Limit.MEMORY
    assert solution.objective is not None


@pytest.mark.parametrize("seed", [729496, 927154])
def test_prices_of_lines_of_a_trillion_ticks(seed: int) -> None:
    """Floats are counted in 2**40 ticks a line: the linear programme once ended without prices."""
    rng = np.random.default_rng(seed)
    demand_s = np.zeros((6, 6))
    for _ in range(8):
        demand_s[np.arange(6), rng.permutation(6)] += rng.exponential(1e-3, size=6)
    problem = om.Demand.from_matrix(demand_s, delay_s=0.01)
    proof = bound_by_prices(problem, om.Limits(time_s=20).start())
    assert proof is not None
    assert bound_of(proof, problem) >= 0.9 * problem.lower_bound()


def test_three_ports_are_proved_without_a_limit_where_others_can_check_it() -> None:
    """Prices prove 21 ticks, of which the busiest lines alone tell 20."""
    demand = np.array([[6, 3, 0], [2, 3, 6], [3, 0, 2]], dtype=float)
    problem = om.Demand(om.IdealSwitch(3), demand, delay_s=3.0)
    solution = om.solve(problem, seed=0)
    assert (solution.status, solution.objective) == (om.Status.OPTIMAL, 21.0)
    assert solution.method == "best"
    assert om.verify(problem, solution).ok

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


@pytest.mark.parametrize("method", ["portfolio", "ilp", None])
def test_of_5e15_ticks_one_more_than_the_bound_is_not_optimal(method: str | None) -> None:
    """A part of 2**-50 of so many ticks is four of them; verify counts each."""
    matrix = [[2e9, 2e9, 1e9], [1e9, 0, 1e9], [0, 2e9, 3e9]]
    problem = om.Demand(om.IdealSwitch(3), matrix, delay_s=1e-6)
    solution = om.solve(problem, method, seed=1, time_limit_s=1)
    assert solution.objective < 5e9 + 1
    assert (solution.status is om.Status.OPTIMAL) == (solution.objective == solution.lower_bound)


@pytest.mark.parametrize("method", ["portfolio", "ilp", None])
def test_slow_packets_leave_a_plan_within_1e_9_of_its_bound(method: str | None) -> None:
    """Packets carry 1e-9 of a circuit: without them 6e-10 s, which is no proof of the bound."""
    problem = om.Demand(
        om.IdealSwitch(2),
        [[0.4, 0.2], [0, 0.4]],
        rate_bytes_per_s=1e9,
        packet_bytes_per_s=1.0,
        switching="per-circuit",
    )
    solution = om.solve(problem, method, seed=1, time_limit_s=1)
    assert solution.objective == pytest.approx(6e-10, rel=2e-9)


@pytest.mark.parametrize("method", ["ilp", None])
def test_a_bound_that_is_two_ticks_of_5e9_higher_is_from_a_search(method: str | None) -> None:
    """Planes of 2 n + b and 2 n - b ticks with delays need 5e9 + 4.5 s, rounded up."""
    problem = om.Demand(
        om.IdealSwitch(2), [[3e9, 2e9], [0, 3e9]], delay_s=3.0, planes=2, rate_bytes_per_s=0.5
    )
    solution = om.solve(problem, method, seed=1, time_limit_s=1)
    assert solution.objective == 5e9 + 5
    if solution.status is om.Status.OPTIMAL:
        assert solution.proof == "search"


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

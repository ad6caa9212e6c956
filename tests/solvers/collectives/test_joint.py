"""The joint model of a few ranks: its own plans, and its claims about them."""

import numpy as np
import pytest

import optmatch as om
from optmatch.model import Limits, ignore
from optmatch.solvers.collectives.joint import fewest_hops, find
from tests.helpers.collectives import compute
from tests.solvers.collectives.test_best import CASES, A, X, ask


@pytest.mark.parametrize(("operation", "n"), [case for case in CASES if 2 < case[1] < 5])
def test_it_finds_the_known_cases_without_the_other_methods(operation: str, n: int) -> None:
    for delay_s in (0.3 * A, 1.5 * X, 300 * X):
        times = [r * A + b * X + k * delay_s for r, b, k in CASES[operation, n]]
        problem = ask(operation, n, delay_s)
        found = find(problem, Limits().start(), ignore)
        assert found.laid is not None
        assert found.laid.plan.time_s == pytest.approx(min(times), rel=1e-9)
        assert found.stats["family_bound_s"] == found.laid.plan.time_s
        assert om.verify(problem, found.laid.plan).ok


def test_an_all_reduce_of_four_ranks_trades_bytes_for_rounds() -> None:
    """17 us in place of 18 us; found by itself, and so by what passes on one side of a square."""
    problem = ask("all-reduce", 4, A)
    found = find(problem, Limits().start(), ignore).laid
    assert found is not None and found.plan.time_s == pytest.approx(17e-6)
    assert compute(problem, found.plan)
    assert om.solve(problem, "mixed-radix", seed=0).objective == pytest.approx(18e-6)
    assert om.solve(problem, seed=0).objective == pytest.approx(17e-6)


@pytest.mark.parametrize(
    ("operation", "two_way"),
    [("reduce-scatter", False), ("reduce-scatter", True), ("broadcast", True)],
)
def test_other_operations_give_right_plans(operation: str, two_way: bool) -> None:
    problem = ask(operation, 3, A, two_way=two_way, start="dark")
    found = find(problem, Limits().start(), ignore)
    assert found.laid is not None and om.verify(problem, found.laid.plan).ok
    assert compute(problem, found.laid.plan)
    known = om.solve(problem, seed=0).objective
    assert known is not None and found.laid.plan.time_s <= known * (1 + 1e-9)


def test_a_small_block_goes_around_beside_a_large_one() -> None:
    demand = np.array([[0, 6, 0], [0, 0, 2], [1, 1, 0]])
    problem = om.Collective(
        "all-to-all", 3, 0, demand_bytes=demand, rate_bytes_per_s=1.0, delay_s=0.5
    )
    solution = om.solve(problem, "ilp", seed=0)
    assert solution.objective == pytest.approx(7.0)
    assert solution.status is om.Status.OPTIMAL


def test_rounds_that_cost_nothing_and_send_nothing_are_left_out() -> None:
    demand = np.array([[0, 0, 0], [0, 0, 7], [0, 1, 0]])
    solution = om.solve(om.Collective("all-to-all", 3, 0, demand_bytes=demand), "ilp", seed=0)
    assert solution.schedule is not None
    assert solution.answer.n_rounds == solution.schedule.n_slots == 1
    assert solution.objective == pytest.approx(7 / 50e9)


def test_a_slot_that_begins_very_late_lasts_a_time() -> None:
    """1.5e-11 s after a delay of 1e12 s, of which a float knows no more than 1e-4 s."""
    problem = om.Collective("all-gather", 4, 1.0, delay_s=1e12)
    schedule = om.solve(problem, "direct").schedule
    assert schedule is not None and (schedule.durations_s > 0).all()


@pytest.mark.parametrize("names", [[0, 1, 2, 3], [0, 2, 1, 3]])
def test_names_of_ranks_make_no_difference(names: list[int]) -> None:
    """A ring of four large blocks is one configuration, however its ranks are numbered."""
    demand = np.zeros((4, 4))
    demand[names, np.roll(names, -1)] = 6.0
    problem = om.Collective(
        "all-to-all", 4, 0, demand_bytes=demand, rate_bytes_per_s=1.0, delay_s=0.5
    )
    found = find(problem, Limits().start(), ignore)
    assert found.laid is not None and found.laid.plan.time_s == pytest.approx(6.0)


def test_a_limit_leaves_the_plan_that_is_known() -> None:
    problem = ask("all-reduce", 3, A)
    known = find(problem, Limits().start(), ignore).laid
    late = find(problem, Limits(time_s=0.0).start(), ignore, known)
    assert known is not None and late.laid is known
    assert late.limit is om.Limit.TIME


def test_fewest_hops_that_were_enumerated() -> None:
    assert [-(-fewest_hops(n, (n - 1, n - 1)) // n) for n in (4, 5, 6)] == [4, 6, 9]


@pytest.mark.parametrize(
    ("rows", "delay_s"),
    [
        (((0, 1, 0, 1), (0, 0, 1, 0), (1, 0, 0, 1), (0, 1, 1, 0)), 0.0),
        (((0, 0, 0, 1), (0, 0, 0, 0), (1, 1, 0, 0), (1, 1, 0, 0)), 1e-7),
        (((0, 0, 0, 1), (0, 0, 1, 1), (1, 1, 0, 0), (0, 0, 1, 0)), 1e-7),
    ],
)
def test_circuits_need_not_join_pairs_without_a_block(
    rows: tuple[tuple[int, ...], ...], delay_s: float
) -> None:
    """Equal blocks between some pairs only: hops between the other pairs do not count."""
    problem = om.Collective(
        "all-to-all", 4, 0, demand_bytes=1000.0 * np.array(rows), alpha_s=1e-6,
        rate_bytes_per_s=1e9, delay_s=delay_s,
    )  # fmt: skip
    exact = om.solve(problem, "ilp", seed=0)
    quick = om.solve(problem, seed=0)
    assert exact.objective is not None and quick.objective is not None
    assert exact.objective <= quick.objective * (1 + 1e-9)
    assert exact.lower_bound <= quick.objective * (1 + 1e-9)

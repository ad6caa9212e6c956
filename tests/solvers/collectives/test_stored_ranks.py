"""Plans in which all ranks do the same store the chunks of the first ones alone."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.plotting.collectives import rounds_data
from optmatch.solvers.collectives import rounds
from optmatch.solvers.collectives.methods import promise
from tests.helpers.modes import compiled_only

CASES: list[tuple[str, str, int, dict[str, Any]]] = [
    ("all-gather", "mixed-radix", 12, {}),
    ("all-gather", "mixed-radix", 7, {"ports": 2, "delay_s": 0.0}),
    ("reduce-scatter", "mixed-radix", 9, {"late_s": {1: 1e-5}}),
    ("all-reduce", "mixed-radix", 12, {"align_bytes": 64}),
    ("all-gather", "topologies", 9, {"ports": 2, "two_way": True}),
    ("reduce-scatter", "topologies", 5, {"ports": 4}),
    ("all-gather", "topologies", 8, {"planes": 2, "two_way": True}),
    ("all-gather", "forwarding", 9, {"hop_s": 1e-7}),
    ("all-reduce", "forwarding", 8, {"hop_s": 0.0}),
    ("all-to-all", "forwarding", 12, {"hop_s": 1e-7}),
    ("all-to-all", "forwarding", 8, {"hop_s": 1e-7, "planes": 2, "two_way": True}),
    ("all-gather", "mixed-radix", 10, {"two_way": True}),
    ("reduce-scatter", "mixed-radix", 12, {"two_way": True, "late_s": {5: 1e-5}}),
    ("all-reduce", "mixed-radix", 8, {"two_way": True, "ports": 2, "rate_bytes_per_s": 1e9}),
    ("all-to-all", "topologies", 10, {"two_way": True, "late_s": {3: 1e-5}}),
    ("all-to-all", "topologies", 16, {"two_way": True, "delay_s": 1e-4}),
    ("all-to-all", "circulant", 12, {}),
    ("all-to-all", "circulant", 7, {"planes": 2, "late_s": {3: 1e-5}}),
    ("all-gather", "islands", 12, {"island": 4}),
    ("all-reduce", "islands", 12, {"island": 2, "delay_s": 1e-4}),
    ("reduce-scatter", "islands", 8, {"island": 4}),
    ("all-to-all", "islands", 12, {"island": 4}),
]


@pytest.mark.parametrize(("operation", "method", "n", "fields"), CASES)
def test_a_plan_stored_once_is_the_plan_of_all_ranks(
    operation: Any, method: str, n: int, fields: dict[str, Any], monkeypatch: Any
) -> None:
    """It takes as long, is valid as it is and spelled out, and has the same figures."""
    costs: dict[str, Any] = {"alpha_s": 2e-6, "delay_s": 1e-6} | fields
    problem = om.Collective(operation, n, 1e5, **costs)
    listed = om.solve(problem, method)
    assert not listed.answer.stored_ranks
    monkeypatch.setattr(rounds, "MOST_LISTED_SENDS", 0)
    stored = om.solve(problem, method)
    # Two-way ports on different planes exchange their shifts at every second rank; and pairs that
    # are r and r + s at even ranks are r and r - s at odd ones.
    has_pairs = problem.lanes == 1 or method == "mixed-radix"
    n_first = 2 if problem.two_way and (problem.planes > 1 or has_pairs) else problem.island
    assert stored.answer.stored_ranks == n_first
    assert stored.objective == pytest.approx(listed.objective, rel=1e-12)

    spelled_out = replace(stored, answer=stored.answer.spelled_out(operation))
    reports = [om.verify(problem, solution) for solution in (listed, stored, spelled_out)]
    assert all(report.valid for report in reports)
    for name in ("objective", "sends"):
        assert len({report.figures[name] for report in reports}) == 1
    assert len({round(report.figures["sent_bytes"]) for report in reports}) == 1

    # Pictures show what all ranks do.
    assert np.array_equal(rounds_data(stored.answer).does, rounds_data(listed.answer).does)


@pytest.mark.parametrize("operation", ["all-to-all", "all-gather", "reduce-scatter"])
def test_thousands_of_ranks_keep_to_a_short_limit(operation: Any, tmp_path: Any) -> None:
    """4,096 ranks are planned, verified, written and read as lists of thousands of sends."""
    problem = om.Collective(operation, 4096, 1e6, alpha_s=2.7e-6, delay_s=1e-5)
    begin_s = time.process_time()
    solution = om.solve(problem, time_limit_s=0.5)
    assert time.process_time() - begin_s < 5.0
    assert solution.objective < 3.0 * solution.lower_bound
    assert 0 < len(solution.answer.sends) < 1 << 20
    assert om.verify(problem, solution).figures["sends"] >= 4096 * 4095

    path = tmp_path / "plan.schedule.json"
    om.save(solution, path)
    loaded: Any = om.load(path)
    assert loaded.answer == solution.answer


@pytest.mark.parametrize("operation", ["all-to-all", "all-gather", "reduce-scatter"])
def test_pairs_of_thousands_of_ranks_keep_to_a_short_limit(operation: Any) -> None:
    """Before, limits of 1 s took 4 to 43 s over one two-way port, 100 times the bound's time."""
    problem = om.Collective(
        operation, 2048, 1e6, alpha_s=2.7e-6, rate_bytes_per_s=5e10, delay_s=1e-5, two_way=True
    )
    begin_s = time.process_time()
    solution = om.solve(problem, limits=om.Limits(time_s=1.0))
    assert time.process_time() - begin_s < 2.0
    assert solution.answer.stored_ranks == 2
    assert solution.objective <= 1.1 * problem.lower_bound()
    assert om.verify(problem, solution).ok


@pytest.mark.parametrize("two_way", [False, True])
def test_all_to_alls_over_several_ports_keep_to_a_short_limit(two_way: bool) -> None:
    """Before, 512 ranks sent straight to their places, which took 30 times the bound."""
    problem = om.Collective(
        "all-to-all", 512, 1e9, alpha_s=2.7e-6, delay_s=1e-2, ports=4, two_way=two_way
    )
    solution = om.solve(problem, limits=om.Limits(time_s=0.1))
    assert solution.answer.stored_ranks == 1
    assert solution.objective is not None
    assert solution.objective <= 4 * problem.lower_bound()


def test_data_are_forwarded_between_many_ranks() -> None:
    """Before, 256 ranks took 64.6 us: 8 million links were too many for a limit of 8 s."""
    problem = om.Collective(
        "all-to-all",
        256,
        1e4,
        alpha_s=1.7e-6,
        hop_s=1e-7,
        delay_s=1e-2,
    )
    solution = om.solve(problem, limits=om.Limits(time_s=1.0))
    assert solution.objective == pytest.approx(problem.lower_bound())
    assert om.verify(problem, solution).ok


def test_two_way_ports_on_two_planes_are_planned_between_many_ranks() -> None:
    """Before, the answer was refused: circuits differ between even and odd ranks."""
    problem = om.Collective(
        "all-gather", 512, 1e4, alpha_s=1.7e-6, delay_s=1e-2, planes=2, two_way=True
    )
    solution = om.solve(problem, "topologies", limits=om.Limits(time_s=1.0))
    assert solution.answer.stored_ranks == 2
    assert om.verify(problem, solution).ok


def test_stored_ranks_that_cannot_be_turned_are_refused() -> None:
    """A plan of 3 ranks cannot store the chunks of 2."""
    plan = om.CollectivePlan(
        sends=np.array([[0, 0, 1, 0, 0]]),
        chunk_bytes=np.array([1.0, 1.0]),
        circuits=np.array([[[1, 2, 0]]]),
        epoch_of_round=np.array([0]),
        stored_ranks=2,
    )
    with pytest.raises(om.InputError, match="stored_ranks = 2 of 3"):
        plan.spelled_out("all-gather")


def test_an_odd_number_of_pairs_without_time_says_so() -> None:
    """Before, 2,047 ranks sent straight to their places, 6 s after a limit of 1 s."""
    problem = om.Collective("all-to-all", 2047, 1e6, alpha_s=2.7e-6, two_way=True)
    begin_s = time.process_time()
    solution = om.solve(problem, limits=om.Limits(time_s=1.0))
    assert time.process_time() - begin_s < 1.2
    assert solution.answer is None
    assert solution.limit is om.Limit.TIME


def test_pairs_of_two_ports_keep_to_a_short_limit() -> None:
    """Before, 4,096 ranks of two ports took 4 s with a limit of 2 s, 117 times the bound."""
    problem = om.Collective(
        "all-to-all", 4096, 1e6, alpha_s=2e-6, rate_bytes_per_s=5e10, ports=2, two_way=True
    )
    begin_s = time.process_time()
    solution = om.solve(problem, limits=om.Limits(time_s=2.0))
    assert time.process_time() - begin_s < 3.0
    assert solution.objective <= 2 * problem.lower_bound()


@compiled_only
def test_straight_ways_are_left_out_if_they_take_longer_than_the_limit() -> None:
    """Before, the ports of 1,023 matchings were not counted, which took 0.3 s more than 1 s."""
    problem = om.Collective(
        "all-to-all", 1024, 1e9, alpha_s=2e-6, rate_bytes_per_s=5e10, two_way=True
    )
    assert promise(problem, "pairwise", 0.0).effort_s > 1.2
    om.solve(replace(problem, n_ranks=512))  # loads kernels
    begin_s = time.process_time()
    solution = om.solve(problem, limits=om.Limits(time_s=1.0))
    assert time.process_time() - begin_s < 1.2
    assert solution.limit is om.Limit.TIME
    assert solution.objective <= 1.5 * problem.lower_bound()

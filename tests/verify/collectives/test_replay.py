"""The replay of collectives agrees with real numbers, and sees whatever is changed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems.collectives.problem import OPERATIONS
from tests.helpers.collectives import compute

COSTS: dict[str, Any] = {"alpha_s": 1e-6, "rate_bytes_per_s": 1e9, "delay_s": 1e-5}


def solved(operation: Any, n: int, method: str, **fields: Any) -> tuple[Any, Any, Any]:
    """Return a problem, its solution and the plan."""
    problem = om.Collective(operation, n, 6400.0, **(COSTS | fields))
    solution = om.solve(problem, method, seed=0)
    return problem, solution, solution.answer


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_replay_agrees_with_real_numbers(operation: str, n: int) -> None:
    """Whatever sends are left out or come later, both say the same of the rest."""
    rng = np.random.default_rng(n)
    for method in ("ring", "bruck"):
        problem, _, plan = solved(operation, n, method)
        assert compute(problem, plan)
        assert om.verify(problem, plan).ok
        for row in rng.integers(0, len(plan.sends), 5 if len(plan.sends) else 0):
            fewer = replace(plan, sends=np.delete(plan.sends, row, axis=0))
            rules = {violation.rule for violation in om.verify(problem, fewer).violations}
            broken = any("has it" in rule or "in the end" in rule for rule in rules)
            assert broken == (not compute(problem, fewer))


def test_an_exchange_of_partial_sums_is_no_double() -> None:
    """Both add what the other had at the start of the round."""
    problem = om.Collective("all-reduce", 2, 4.0, rate_bytes_per_s=1.0)
    swap: Any = [[0, 0, 1, 0, 1], [0, 1, 0, 0, 1]]
    plan = om.CollectivePlan(
        sends=swap, chunk_bytes=np.array([4.0]), circuits=np.array([[[1, 0]]]),
        epoch_of_round=np.array([0]), time_s=4.0,
    )  # fmt: skip
    assert om.verify(problem, plan).ok
    again = replace(
        plan, sends=np.array([*swap, [1, 0, 1, 0, 1], [1, 1, 0, 0, 1]]),
        epoch_of_round=np.array([0, 0]), time_s=8.0,
    )  # fmt: skip
    assert "nothing is added twice" in str(om.verify(problem, again))


def changed(plan: om.CollectivePlan, name: str, place: Any, value: Any) -> om.CollectivePlan:
    """Return a plan with one entry changed."""
    if place is None:
        return replace(plan, **{name: value})
    array = getattr(plan, name).copy()
    array[place] = value
    return replace(plan, **{name: array})


@pytest.mark.parametrize(
    ("name", "place", "value", "rule"),
    [
        ("sends", (0, 1), 7, "entries of sends exist"),
        ("sends", (0, 1), 2, "a send goes over a circuit"),
        ("sends", (0, 2), 4, "a send goes to another rank"),
        ("sends", (0, 2), 3, "a send goes over a circuit"),
        ("sends", (0, 3), 5, "entries of sends exist"),
        ("sends", (0, 3), 2, "nothing is added twice"),
        ("sends", (0, 4), 0, "in the end every rank has the sum that it wants"),
        ("sends", (0, 4), 2, "entries of sends exist"),
        ("sends", (-1, 0), 8, "entries of sends exist"),
        ("sends", (slice(-5, None), 4), 1, "nothing is added twice"),
        ("chunk_bytes", 0, 1000.0, "the chunks of a block hold its bytes"),
        ("chunk_bytes", 0, 1500.0, "the time is that of the replay"),
        ("chunk_bytes", slice(None), -1.0, "the chunks of a block hold its bytes"),
        ("circuits", (0, 0, 0), 2, "each lane holds a matching"),
        ("circuits", (0, 0, 0), -1, "a send goes over a circuit"),
        ("circuits", None, [[[1, 2, 3, 4, 0]]] * 2, "rounds go through all epochs in order"),
        ("epoch_of_round", -1, 1, "rounds go through all epochs in order"),
        ("epoch_of_round", None, [0] * 9, "the time is that of the replay"),
        ("links", None, [[0, 0, 1]], "nothing is forwarded inside a round without hop_s"),
        ("time_s", None, 2.0e-5, "the time is that of the replay"),
        ("n_rounds_late", None, 1, "rounds after the last late rank is ready are counted"),
    ],
)
def test_every_change_is_seen(name: str, place: Any, value: Any, rule: str) -> None:
    """Of every field of a plan for an all-reduce around a ring."""
    problem, solution, plan = solved("all-reduce", 5, "ring")
    wrong = changed(plan, name, place, value)
    assert rule in {violation.rule for violation in om.verify(problem, wrong).violations}
    assert not om.verify(problem, replace(solution, answer=wrong)).ok


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sends", [[0, 1]], "sends has 2 columns, not 5"),
        ("sends", [[1, 0, 1, 0, 0], [0, 1, 2, 0, 0]], "sends: other rows given, rows that ascend"),
        ("links", [[-1, 0, 1]], r"links\[0, 0\] = -1: must be >= 0"),
        ("shares_bytes", [[1.0]], r"start_s: \(0, 0\) given, shape \(1, 1\) expected"),
        ("time_s", -1.0, "time_s = -1: must be >= 0"),
        ("n_rounds_late", 0.5, "n_rounds_late = 0.5: not a whole number"),
    ],
)
def test_what_is_no_plan_is_refused(name: str, value: Any, message: str) -> None:
    """When it is built."""
    with pytest.raises(om.InputError, match=message):
        om.CollectivePlan(**{name: value})


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"objective": 3e-5}, "the objective is as recomputed"),
        ({"lower_bound": 1.6e-5}, "the lower bound is supported"),
        ({"schedule": None}, "a plan comes with the schedule of its switch"),
        ({"certificate": "x"}, "this bound needs no proof"),
        ({"stats": {"rounds": 3}}, "statistics are as recomputed"),
    ],
)
def test_claims_of_solutions_are_checked(change: dict[str, Any], rule: str) -> None:
    """Beside the plan."""
    problem, solution, _ = solved("all-reduce", 5, "ring")
    wrong = replace(solution, **change)
    assert rule in {violation.rule for violation in om.verify(problem, wrong).violations}


def test_the_schedule_is_that_of_the_plan() -> None:
    """Its matchings, durations and delay."""
    problem, solution, _ = solved("all-to-all", 4, "pairwise")
    schedule: Any = solution.schedule
    assert schedule.n_slots == 3
    for name, value in (
        ("matchings", schedule.matchings[::-1]),
        ("durations_s", schedule.durations_s * 2),
        ("delay_s", 2e-5),
    ):
        wrong = replace(solution, schedule=replace(schedule, **{name: value}))
        assert not om.verify(problem, wrong).ok


def test_padding_late_ranks_and_first_circuits_count() -> None:
    """Each of them in the time."""
    problem, solution, plan = solved("all-gather", 4, "ring", align_bytes=1024)
    assert plan.chunk_bytes.tolist() == [2048.0] * 4
    _, late, waits = solved("all-gather", 4, "ring", late_s={2: 1.0})
    assert late.objective == pytest.approx(1.0 + 3 * (1e-6 + 1600e-9))
    assert waits.n_rounds_late == 3
    _, dark, _ = solved("all-gather", 4, "ring", start="dark")
    assert dark.objective == pytest.approx(1e-5 + 3 * (1e-6 + 1600e-9))
    ring: Any = [[1, 2, 3, 0]]
    _, there, _ = solved("all-gather", 4, "ring", start=ring)
    assert there.objective == pytest.approx(3 * (1e-6 + 1600e-9))
    unpadded = replace(plan, chunk_bytes=np.full(4, 1600.0))
    assert "a chunk is a multiple of align_bytes" in str(om.verify(problem, unpadded))
    assert solution.status is om.Status.FEASIBLE


def test_a_send_is_forwarded_along_its_links() -> None:
    """With a cost for each hop; broken routes are seen."""
    problem = om.Collective(
        "broadcast", 3, 5.0, alpha_s=1.0, hop_s=2.0, rate_bytes_per_s=1.0, delay_s=9.0
    )
    plan = om.CollectivePlan(
        sends=np.array([[0, 0, 1, 0, 0], [0, 0, 2, 0, 0]]), chunk_bytes=np.array([5.0]),
        circuits=np.array([[[1, 2, 0]]]), epoch_of_round=np.array([0]),
        links=np.array([[1, 0, 1], [1, 1, 2]]), time_s=1.0 + 2 * 2.0 + 10.0,
    )  # fmt: skip
    assert om.verify(problem, plan).ok
    path, exist = (
        "links lead from the source of a send to its destination",
        "sends and ranks exist",
    )
    for links, rule in (
        ([[1, 0, 1]], path), ([[1, 1, 2]], path), ([[1, 0, 1], [1, 0, 2]], path),
        ([[2, 0, 1]], exist), ([[1, 0, 7]], exist), ([[1, 0, 3]], exist),
    ):  # fmt: skip
        report = om.verify(problem, replace(plan, links=np.array(links)))
        assert [violation.rule for violation in report.violations] == [rule]


def test_a_large_collective_is_replayed_at_once() -> None:
    """An all-reduce of 256 ranks: 130,560 sends, each onto a set of 256 ranks."""
    problem = om.Collective("all-reduce", 256, 1e9, alpha_s=1e-6)
    plan = om.solve(problem, "ring", seed=0).answer
    started = time.process_time()
    assert om.verify(problem, plan).ok
    assert time.process_time() - started < 3.0

"""Files of rail plans with many operations: those of ranks that do the same are stored once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems.rails.execution.plan import MANY_OPERATIONS
from tests.helpers.rails import small_job


def large_solution() -> om.Solution:
    """Return a plan of 256 GPUs, of which 64 do the same each."""
    job = small_job(dp=64, tp=2, pp=2, batch=64 * 24, micro_batch=1)
    return om.solve(job, "on-demand", seed=0)


def test_a_plan_larger_than_a_file_may_be_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spelled out, the plan takes 20 bytes an operation; a file has fewer than it is allowed."""
    solution = large_solution()
    plan = solution.answer
    assert isinstance(plan, om.RailPlan)
    assert len(plan.start_s) >= MANY_OPERATIONS
    monkeypatch.setenv("OPTMATCH_MAX_BYTES", str(10 * len(plan.start_s)))
    om.save(solution, tmp_path / "a.json")
    loaded = om.load(tmp_path / "a.json")
    assert isinstance(loaded, om.Solution)
    for name in ("start_s", "end_s", "ports", "relays"):
        assert np.array_equal(getattr(loaded.answer, name), getattr(plan, name))
    assert not len(loaded.answer.like)
    assert om.verify(loaded.problem, loaded).ok


def test_stored_ranks_are_those_that_differ() -> None:
    solution = large_solution()
    assert isinstance(solution.problem, om.RailJob)
    assert isinstance(solution.answer, om.RailPlan)
    step = solution.problem.step()
    stored = solution.answer.stored_once(step)
    assert len(set(stored.like.tolist())) < step.n_ranks / 16
    assert len(stored.start_s) < len(solution.answer.start_s) / 16

    # One operation of the last rank that ends later makes this rank one of its own.
    end_s = solution.answer.end_s.copy()
    end_s[-1] += 1.0
    changed = replace(solution.answer, end_s=end_s)
    again = changed.stored_once(step)
    assert again.like[-1] == step.n_ranks - 1
    assert np.array_equal(again.spelled_out(step).end_s, end_s)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"like": [0]}, "like has 1 entries"),
        ({"like": [0, 1, 0, 3]}, r"like\[2\] = 0: a stored rank with as many operations"),
        ({"like": [0, 1, 3, 3], "start_s": [0.0], "end_s": [0.0], "ports": [0]}, "start_s has 1"),
        ({"like": [1, 0, 2, 3]}, r"like\[0\] = 1: a stored rank"),
        ({"like": [0, 1, 2, 4]}, "like"),
    ],
)
def test_wrong_ranks_are_refused(changes: dict[str, Any], message: str) -> None:
    """Stages of a pipeline have other operations; a rank that is not stored is like no other."""
    job = small_job(dp=2, tp=1, pp=2, batch=8, schedule="gpipe")
    solution = om.solve(job, "on-demand", seed=0)
    assert isinstance(solution.answer, om.RailPlan)
    with pytest.raises(om.InputError, match=message):
        replace(solution.answer, **changes).spelled_out(job.step())


def test_a_plan_with_stored_ranks_is_no_answer() -> None:
    solution = large_solution()
    assert isinstance(solution.problem, om.RailJob)
    assert isinstance(solution.answer, om.RailPlan)
    stored = solution.answer.stored_once(solution.problem.step())
    report = om.verify(solution.problem, stored)
    assert not report.valid
    assert "start_s" in report.violations[0].where

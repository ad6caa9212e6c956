"""What is found and what is proved of it, as a solution."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    RTOL,
    Limit,
    Limits,
    OnEvent,
    Score,
    Solution,
    Status,
    Tick,
    TimeUp,
    check_time,
)
from optmatch.problems import Assignment, PortSharing
from optmatch.solvers.method import Run


def conclude(
    problem: PortSharing,
    method: str,
    job_of: NDArray[np.int32] | None,
    bound: Score | None = None,
    limit: Limit | None = None,
    **known: Any,
) -> Solution:
    """Make a solution of an assignment, which may miss demands that must be met.

    ``job_of[resource]`` is None if there is no assignment. No answer is better than `bound`: None
    for what the problem counts itself, infinite if none exists. `limit` is None if the search had
    nothing left to do.
    """
    bound = problem.lower_bound() if bound is None else bound
    objective = None if job_of is None else measure(problem, job_of)
    if job_of is None or objective is None:
        status = Status.INFEASIBLE if bound == np.inf else Status.UNKNOWN
        if status is Status.INFEASIBLE:
            known["stats"] = {"reason": "not all demands can be met", **known.get("stats", {})}
    else:
        known["answer"] = Assignment(job_of)
        exact = isinstance(objective, tuple)
        meets = objective == bound if exact else objective <= bound * (1 + RTOL)
        status = Status.OPTIMAL if meets else Status.FEASIBLE
    open_ = status in (Status.UNKNOWN, Status.FEASIBLE)
    return Solution(
        problem=problem,
        status=status,
        limit=(limit or Limit.EXHAUSTED) if open_ else None,
        objective=objective,
        lower_bound=bound if objective is None else min(bound, objective),
        method=method,
        **known,
    )


def interruptible(name: str, run: Run) -> Run:
    """Let a method end without an answer where it is stopped before it has one."""

    def inner(
        problem: PortSharing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
    ) -> Solution:
        try:
            with limits.start().running():
                check_time()
                on_event(Tick(name, 0))
                return run(problem, limits, rng, on_event)
        except (TimeUp, KeyboardInterrupt) as exc:
            return conclude(problem, name, None, None, limit_of(exc))

    return inner


def limit_of(stop: BaseException) -> Limit:
    """Return the limit that an exception stands for."""
    return Limit.TIME if isinstance(stop, TimeUp) else Limit.INTERRUPTED


def measure(problem: PortSharing, job_of: NDArray[np.int32]) -> Score | None:
    """Return the objective of an assignment; None if it misses a demand that must be met."""
    jobs, used = problem.jobs, np.flatnonzero(job_of >= 0)
    served = np.bincount(job_of[used], minlength=jobs.n_jobs)
    left = jobs.demand - served
    if problem.objective == "max-flow":
        return float(left.sum())
    if problem.objective == "lexicographic":
        return tuple(left[problem.ranking].tolist())
    if problem.objective == "max-min":
        return problem.worst_lack(served)
    if left.any():
        return None
    done_s = jobs.arrivals_s.copy()
    np.maximum.at(done_s, job_of[used], problem.resources.arrivals_s[used])
    return float(np.mean(done_s - jobs.arrivals_s)) if len(done_s) else 0.0

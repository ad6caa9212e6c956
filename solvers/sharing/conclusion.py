"""Solutions of the best assignment and the bound that is proved."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Limit, Limits, OnEvent, Score, Solution, Tick, TimeUp, check_time
from optmatch.problems import Assignment, PortSharing
from optmatch.solvers import frame
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
    for a bound that the problem counts itself, infinite if no answer exists. `limit` is None if
    the search had nothing left to do.
    """
    bound = problem.lower_bound() if bound is None else bound
    objective = None if job_of is None else measure(problem, job_of)
    if job_of is not None and objective is not None:
        known["answer"] = Assignment(job_of)
    elif bound == np.inf:
        known["stats"] = {"reason": "not all demands can be met", **known.get("stats", {})}
    return frame.conclude(problem, method, objective, bound, limit, **known)


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

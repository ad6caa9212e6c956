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
    **parts: Any,
) -> Solution:
    """Make a solution of an assignment, which is no answer if it misses demands that must be met.

    ``job_of[resource]`` is -1 for no job. A bound of None is the one that the problem counts
    itself; an infinite one: no answer exists. `parts` are further fields of the solution, its
    certificate and statistics.
    """
    # The objective is None if the assignment misses demands which must be met: then there is no
    # answer either.
    if bound is None:
        bound = problem.lower_bound()
    objective = None if job_of is None else measure(problem, job_of)
    if job_of is not None and objective is not None:
        parts["answer"] = Assignment(job_of)
    elif bound == np.inf:
        parts["stats"] = {"reason": "not all demands can be met", **parts.get("stats", {})}
    return frame.conclude(problem, method, objective, bound, limit, **parts)


def run_until_stopped(
    name: str,
    run: Run,
    problem: PortSharing,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> Solution:
    """Run a method, and return a solution without an answer if a limit or Ctrl-C stops it.

    `run` does not stop by itself; `name` is that of the method, for solutions and ticks.
    """
    try:
        with limits.start().running():
            check_time()
            on_event(Tick(name, 0))
            return run(problem, limits, rng, on_event)
    except (TimeUp, KeyboardInterrupt) as stop:
        return conclude(problem, name, None, None, frame.limit_of(stop))


def measure(problem: PortSharing, job_of: NDArray[np.int32]) -> Score | None:
    """Return the objective of an assignment ``job_of[resource]``, -1 for no job.

    ``"max-flow"``: the resources that all jobs lack; ``"lexicographic"``: what each job lacks, by
    rank; ``"max-min"``: the largest part of its fair share that a job lacks; ``"min-jct"``: the
    mean seconds from asking to the last resource, None if a demand is not met.
    """
    jobs = problem.jobs
    used = np.flatnonzero(job_of >= 0)
    served = np.bincount(job_of[used], minlength=jobs.n_jobs)
    missing = jobs.demand - served
    if problem.objective == "max-flow":
        return float(missing.sum())
    if problem.objective == "lexicographic":
        return tuple(missing[problem.ranking].tolist())
    if problem.objective == "max-min":
        return problem.worst_lack(served)

    # The mean time from asking to the last resource, of jobs that all have what they want.
    if missing.any():
        return None
    if not jobs.n_jobs:
        return 0.0
    done_s = jobs.arrivals_s.copy()
    np.maximum.at(done_s, job_of[used], problem.resources.arrivals_s[used])
    return float(np.mean(done_s - jobs.arrivals_s))

"""The replay of an assignment: each rule is checked at the resources themselves.

In this order: each resource has a job that exists, or none; it has the attributes and the time for
that job (`_check_eligible`); no job gets more than it wants, or part of what it needs whole; caps
of planes are kept (all in `_replay`); the objective is added up anew (`_measure_objective`).
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Schedule, Score, Solution
from optmatch.problems import Assignment, PortSharing
from optmatch.verify.bounds import check_solution
from optmatch.verify.report import Findings
from optmatch.verify.sharing.bounds import (
    Supply,
    check_bound,
    count_bound,
    measure_lack,
    rank_jobs,
)

MOST_TOLD = 20
"""The most resources or jobs that are named for each rule."""


def verify_sharing(
    problem: PortSharing, subject: Schedule | Assignment | Solution, findings: Findings
) -> None:
    """Check an assignment of resources to jobs and, of a solution, its objective and bound.

    What is wrong is added to `findings`: a `Schedule`, too, which is no answer of this kind. Sets
    ``findings.step``, and the figure ``lower_bound_recomputed``: the lower bound of the objective,
    in its unit, that counting each job alone shows.
    """
    # Seconds alone are compared up to rounding. All other objectives follow from whole numbers by
    # at most one division, and are compared exactly: of a due of 1e10 the lacks 1 and 1 - 1e-10
    # differ by one resource.
    if problem.objective != "min-jct":
        findings.step = 1.0
    supply = Supply(problem)
    counted_bound = count_bound(problem, supply)
    findings.figures["lower_bound_recomputed"] = counted_bound

    # The answer is replayed here, before `check_solution` would do so, since the check of a
    # certificate needs to know how many resources each job has: ``served[job]``, None without an
    # answer, or if they could not be counted.
    answer = subject.answer if isinstance(subject, Solution) else subject
    served = None
    if answer is not None:
        served = _replay(problem, answer, findings)
    check_solution(
        subject,
        findings,
        replay=lambda _: served is not None,
        prove=partial(check_bound, problem, supply, served, counted_bound),
    )


def _replay(problem: PortSharing, answer: object, findings: Findings) -> NDArray[np.int64] | None:
    """Check an assignment, compute its objective, and count the resources of each job.

    Returns ``served[job]``; None if the answer is none, or resources have jobs that do not exist:
    then nothing else is checked. Sets the figures ``used`` (resources that have a job),
    ``jobs_served`` (jobs with all that they ask for) and ``objective``.
    """
    if not isinstance(answer, Assignment):
        findings.refuse(
            "the answer is an assignment", "answer", type(answer).__name__, "Assignment"
        )
        return None
    job_of = answer.job_of  # by resource, -1 where it is unused
    n_resources = problem.resources.n_resources
    n_jobs = problem.jobs.n_jobs
    if not findings.expect("each resource has an entry", "job_of", len(job_of), n_resources):
        return None
    findings.expect_none(
        "the job exists", job_of >= n_jobs, "job_of[{}]", job_of, f"< {n_jobs}", most=MOST_TOLD
    )
    if findings.violations:
        return None

    # The resources that have a job, and how many each job has.
    used = np.flatnonzero(job_of >= 0)
    served = np.bincount(job_of[used], minlength=n_jobs).astype(np.int64)
    _check_eligible(problem, used, job_of[used], findings)

    # No job gets more than it wants; some take all that they want or nothing (``jobs.whole``).
    demand = problem.jobs.demand
    findings.expect_none(
        "no job gets more than it wants", served > demand, "job {}", served, demand, most=MOST_TOLD
    )
    partly = problem.jobs.whole & (served > 0) & (served < demand)
    for job in np.flatnonzero(partly)[:MOST_TOLD].tolist():
        findings.refuse(
            "the job gets all or nothing", f"job {job}", int(served[job]), f"0 or {demand[job]}"
        )

    # No job has more resources of a plane than its cap there.
    caps = problem.jobs.plane_caps
    if caps is not None:
        taken = np.zeros_like(caps)  # (jobs, planes)
        np.add.at(taken, (job_of[used], problem.resources.planes[used]), 1)
        findings.expect_none(
            "no job exceeds its cap", taken > caps, "job {}, plane {}", taken, caps, most=MOST_TOLD
        )
    findings.figures |= {
        "used": len(used),
        "jobs_served": int((served >= problem.jobs.demand).sum()),
        "objective": _measure_objective(problem, job_of, served, findings),
    }
    return served


def _check_eligible(
    problem: PortSharing, used: NDArray[np.intp], job: NDArray[np.int32], findings: Findings
) -> None:
    """Check that each used resource may serve its job: by its attributes, and by its time.

    Job ``job[entry]`` has the resource ``used[entry]``. No attribute of a resource may be below
    the bound of the job, and it must not leave before the job has asked, nor just then.
    """
    resources = problem.resources
    jobs = problem.jobs
    # By attribute: its value of each resource, and its least value for each job.
    bounds_of_attributes = zip(resources.attributes, jobs.bounds, strict=True)
    for attribute, (value, bound) in enumerate(bounds_of_attributes):
        too_low = value[used] < bound[job]
        for entry in np.flatnonzero(too_low)[:MOST_TOLD].tolist():
            where = f"resource {used[entry]}, attribute {attribute}, job {job[entry]}"
            expected = f">= {float(bound[job[entry]]):g}"
            findings.refuse(
                "no attribute is below the bound", where, float(value[used[entry]]), expected
            )

    leaves_s = resources.departures_s[used]
    asked_s = jobs.arrivals_s[job]
    for entry in np.flatnonzero(leaves_s <= asked_s)[:MOST_TOLD].tolist():
        where = f"resource {used[entry]}, job {job[entry]}"
        expected = f"> {asked_s[entry]:g}"
        findings.refuse(
            "a resource leaves after its job has asked", where, float(leaves_s[entry]), expected
        )


def _measure_objective(
    problem: PortSharing,
    job_of: NDArray[np.int32],
    served: NDArray[np.int64],
    findings: Findings,
) -> Score:
    """Compute the objective of an assignment; less is better.

    ``job_of[resource]`` is a job, -1 for none; ``served[job]`` is how many resources it has. By
    objective, the result is

    - "max-flow": how many resources all jobs lack together;
    - "lexicographic": how many each job lacks, in the order in which jobs are served;
    - "max-min": the largest part of its due that a job lacks, from 0 to 1;
    - "min-jct": the mean seconds from the request of a job to its last resource; a demand that is
      not met is a violation.
    """
    jobs = problem.jobs
    lack = jobs.demand - served
    lacking = lack.tolist()
    if problem.objective == "max-flow":
        return float(sum(lacking))
    if problem.objective == "lexicographic":
        return tuple(lacking[job] for job in rank_jobs(problem))
    if problem.objective == "max-min":
        return measure_lack(problem, served.tolist())

    findings.expect_none("every demand is met", lack != 0, "job {}", served, lack, most=MOST_TOLD)
    used = np.flatnonzero(job_of >= 0)
    last_s = jobs.arrivals_s.copy()  # by job: when its last resource is there
    np.maximum.at(last_s, job_of[used], problem.resources.arrivals_s[used])
    waits_s = (last_s - jobs.arrivals_s).tolist()
    return math.fsum(waits_s) / max(len(waits_s), 1)

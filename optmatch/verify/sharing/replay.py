"""The replay of an assignment: each rule is checked at the resources themselves."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Schedule, Score, Solution
from optmatch.problems import Assignment, PortSharing
from optmatch.verify.bounds import check_solution
from optmatch.verify.report import Findings
from optmatch.verify.sharing.supply import (
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
    """Check an assignment and, of a solution, its claims."""
    findings.step = 1.0 if problem.objective == "max-flow" else None
    supply, served = Supply(problem), None
    counted = findings.figures["lower_bound_recomputed"] = count_bound(problem, supply)

    def replay(answer: object) -> bool:
        nonlocal served
        served = _replay(problem, answer, findings)
        return served is not None

    def prove(proof: object) -> Score:
        return check_bound(problem, supply, served, proof, counted)

    if isinstance(subject, Solution):
        check_solution(problem, subject, findings, replay=replay, prove=prove)
    else:
        replay(subject)


def _replay(problem: PortSharing, answer: object, findings: Findings) -> NDArray[np.int64] | None:
    """Check an assignment; return what each job gets if that could be counted."""
    jobs, resources = problem.jobs, problem.resources
    if not isinstance(answer, Assignment):
        told = type(answer).__name__
        findings.refuse("the answer is an assignment", "answer", told, "Assignment")
        return None
    job_of = answer.job_of
    if not findings.expect(
        "each resource has an entry", "job_of", len(job_of), resources.n_resources
    ):
        return None
    for resource in np.flatnonzero(job_of >= jobs.n_jobs)[:MOST_TOLD].tolist():
        got, there = int(job_of[resource]), f"< {jobs.n_jobs}"
        findings.refuse("the job exists", f"job_of[{resource}]", got, there)
    if findings.violations:
        return None
    used = np.flatnonzero(job_of >= 0)
    _check_eligible(problem, used, job_of[used], findings)
    served = np.zeros(jobs.n_jobs, dtype=np.int64)
    np.add.at(served, job_of[used], 1)
    for job in np.flatnonzero(served > jobs.demand)[:MOST_TOLD].tolist():
        got, most = int(served[job]), int(jobs.demand[job])
        findings.refuse("no job gets more than it wants", f"job {job}", got, most)
    torn = (served > 0) & (served < jobs.demand)
    for job in np.flatnonzero(jobs.whole & torn)[:MOST_TOLD].tolist():
        got, both = int(served[job]), f"0 or {jobs.demand[job]}"
        findings.refuse("the job gets all or nothing", f"job {job}", got, both)
    if jobs.plane_caps is not None:
        taken = np.zeros_like(jobs.plane_caps)
        np.add.at(taken, (job_of[used], resources.planes[used]), 1)
        for job, k in np.argwhere(taken > jobs.plane_caps)[:MOST_TOLD].tolist():
            got, most = int(taken[job, k]), int(jobs.plane_caps[job, k])
            findings.refuse("no job exceeds its cap", f"job {job}, plane {k}", got, most)
    findings.figures["used"] = len(used)
    findings.figures["jobs_served"] = int((served >= jobs.demand).sum())
    _measure(problem, job_of, used, served, findings)
    return served


def _check_eligible(
    problem: PortSharing, used: NDArray[np.intp], job: NDArray[np.int32], findings: Findings
) -> None:
    """Compare each used resource with the bounds of its job, attribute by attribute."""
    resources, jobs = problem.resources, problem.jobs
    for k, (has, least) in enumerate(zip(resources.attributes, jobs.bounds, strict=True)):
        for place in np.flatnonzero(has[used] < least[job])[:MOST_TOLD].tolist():
            where = f"resource {used[place]}, attribute {k}, job {job[place]}"
            got, want = float(has[used[place]]), float(least[job[place]])
            findings.refuse("no attribute is below the bound", where, got, f">= {want:g}")
    leaves_s, asked_s = resources.departures_s[used], jobs.arrivals_s[job]
    for place in np.flatnonzero(leaves_s <= asked_s)[:MOST_TOLD].tolist():
        where = f"resource {used[place]}, job {job[place]}"
        rule = "a resource leaves after its job has asked"
        findings.refuse(rule, where, float(leaves_s[place]), f"> {asked_s[place]:g}")


def _measure(
    problem: PortSharing,
    job_of: NDArray[np.int32],
    used: NDArray[np.intp],
    served: NDArray[np.int64],
    findings: Findings,
) -> None:
    """Count the objective."""
    jobs = problem.jobs
    left = (jobs.demand - served).tolist()
    objective: Score
    if problem.objective == "max-flow":
        objective = float(sum(left))
    elif problem.objective == "lexicographic":
        objective = tuple(left[job] for job in rank_jobs(problem))
    elif problem.objective == "max-min":
        objective = measure_lack(problem, served.tolist())
    else:
        last_s = jobs.arrivals_s.copy()
        np.maximum.at(last_s, job_of[used], problem.resources.arrivals_s[used])
        for job in [k for k, missing in enumerate(left) if missing][:MOST_TOLD]:
            findings.refuse("every demand is met", f"job {job}", int(served[job]), left[job])
        waits = (last_s - jobs.arrivals_s).tolist()
        objective = math.fsum(waits) / len(waits) if waits else 0.0
    findings.figures["objective"] = objective

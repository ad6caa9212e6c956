"""Random problems of shared resources, and plain oracles that know nothing of classes."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from optmatch import problems
from optmatch.problems import PortSharing

Assignment: Any = problems.Assignment  # lists are arrays too, which annotations do not say
Jobs: Any = problems.Jobs
Resources: Any = problems.Resources
Sharing: Any = PortSharing
SupplyProof: Any = problems.SupplyProof


def draw_sharing(
    rng: np.random.Generator,
    objective: Any = "max-flow",
    *,
    resources: int = 30,
    jobs: int = 7,
    caps: bool = False,
    whole: bool = False,
) -> PortSharing:
    """Draw a problem; jobs that nobody can serve want nothing."""
    n, j = int(rng.integers(0, resources + 1)), int(rng.integers(1, jobs + 1))
    come_s = rng.integers(0, 9, n)
    there = Resources(
        rng.integers(0, 5, (2, n)),
        arrival_s=come_s if rng.random() < 0.7 else None,
        departure_s=come_s + rng.integers(1, 9, n) if rng.random() < 0.5 else None,
        plane=rng.integers(0, 3, n) if caps else None,
    )
    given: dict[str, Any] = {
        "arrival_s": rng.integers(0, 9, j) if rng.random() < 0.7 else None,
        "plane_caps": rng.integers(0, 6, (j, 3)) if caps else None,
        "all_or_nothing": rng.integers(0, 2, j) if whole else None,
        "fair_share": rng.integers(1, 9, j) if rng.random() < 0.3 else None,
    }
    least = rng.integers(0, 4, (2, j))
    demand = rng.integers(0, 9 if resources > 9 else 4, j)
    wanted = Jobs(demand, least, **given)
    alone = [any(serves(there, wanted, i, k) for i in range(n)) for k in range(j)]
    jobs_ = Jobs(np.where(alone, demand, 0), least, **given)
    return PortSharing(there, jobs_, objective)


def serves(resources: Any, jobs: Any, resource: int, job: int) -> bool:
    """Tell whether a resource may serve a job."""
    has = [row[resource] for row in resources.attributes]
    wants = [row[job] for row in jobs.bounds]
    leaves_s, asks_s = resources.departures_s[resource], jobs.arrivals_s[job]
    return all(a >= b for a, b in zip(has, wants, strict=True)) and bool(leaves_s > asks_s)


def first_fit_by_hand(problem: PortSharing, priority: list[float] | None) -> list[int]:
    """Let resources and jobs come one by one; without priorities as `plan_by_hand` says."""
    resources, jobs = problem.resources, problem.jobs
    n, left = resources.n_resources, jobs.demand.tolist()
    caps = None if jobs.plane_caps is None else jobs.plane_caps.tolist()
    come_s, asked_s = resources.arrivals_s.tolist(), jobs.arrivals_s.tolist()
    job_of = [-1] * n

    def serve(resource: int, now_s: float) -> None:
        plane = int(resources.planes[resource])
        able = [
            job
            for job in range(jobs.n_jobs)
            if asked_s[job] <= now_s < resources.departures_s[resource]
            and left[job]
            and serves(resources, jobs, resource, job)
            and (caps is None or caps[job][plane])
        ]
        rank = {job: (-priority[job], job) for job in able} if priority else {}
        if priority is None:
            asking = [w if asked_s[job] <= now_s else 0 for job, w in enumerate(left_at)]
            for group, owned in plan_by_hand(problem, asking):
                rank |= {j: (left_at[j], j) for j in group if j in able and resource in owned}
        if rank:
            job_of[resource] = job = min(rank, key=lambda j: rank[j])
            left[job] -= 1
            if caps is not None:
                caps[job][plane] -= 1
            if not left[job]:
                left_at[:] = left

    left_at = list(left)  # what each wanted when the plan was made
    for now_s in sorted({*come_s, *asked_s}):
        if now_s in asked_s:
            left_at[:] = left
            for resource in sorted(range(n), key=lambda i: come_s[i]):
                if come_s[resource] < now_s and job_of[resource] < 0:
                    serve(resource, now_s)
        for resource in range(n):
            if come_s[resource] == now_s:
                serve(resource, now_s)
    return job_of


def plan_by_hand(
    problem: PortSharing, residual: list[int]
) -> Iterator[tuple[list[int], set[int]]]:
    """Yield the groups of jobs and the resources that each owns, with explicit sets (Venn)."""
    n = range(problem.resources.n_resources)
    reach = {
        job: frozenset(i for i in n if serves(problem.resources, problem.jobs, i, job))
        for job, wants in enumerate(residual)
        if wants > 0
    }
    sets = list(dict.fromkeys(found for found in reach.values() if found))
    groups = {
        found: sorted((j for j in reach if reach[j] == found), key=lambda j: (residual[j], j))
        for found in sets
    }
    rising = sorted(sets, key=lambda found: (len(found), sets.index(found)))
    owned: dict[frozenset[int], set[int]] = {}
    for found in rising:
        owned[found] = set(found).difference(*owned.values())
    queue = {found: [residual[j] / len(found) for j in groups[found]] for found in sets}
    lost: set[frozenset[int]] = set()
    falling = rising[::-1]
    for place, large in enumerate(falling):
        for small in falling[place + 1 :] if large not in lost else []:
            moved = owned[small] & large
            if not moved:
                continue
            whole = 0.0
            for wait in queue[small]:
                whole += wait
            affected, waited = 0, 0.0
            for wait in queue[large]:
                affected, waited = affected + 1, waited + wait
                if waited > whole:
                    break
            if affected * len(owned[small]) <= len(queue[small]) * len(owned[large]):
                break
            owned[large] |= moved
            owned[small] -= moved
            queue[large] += queue[small]
            if not owned[small]:
                lost.add(small)
    for found in sets:
        yield groups[found], owned[found]


def best_by_hand(problem: PortSharing) -> Any:
    """Try every assignment; None if none is allowed."""
    resources, jobs = problem.resources, problem.jobs
    n, j = resources.n_resources, jobs.n_jobs
    able = [[-1, *(k for k in range(j) if serves(resources, jobs, i, k))] for i in range(n)]
    scores = (score_by_hand(problem, choice) for choice in product(*able))
    return min((score for score in scores if score is not None), default=None)


def score_by_hand(problem: PortSharing, job_of: tuple[int, ...]) -> Any:
    """Return the objective of an assignment; None if jobs get what they may not have."""
    jobs, resources = problem.jobs, problem.resources
    demand, whole = jobs.demand.tolist(), jobs.whole.tolist()
    served = [job_of.count(job) for job in range(jobs.n_jobs)]
    for job, (got, wants) in enumerate(zip(served, demand, strict=True)):
        if got > wants or (whole[job] and 0 < got < wants):
            return None
        for plane, cap in enumerate([] if jobs.plane_caps is None else jobs.plane_caps[job]):
            here = sum(k == job and resources.planes[i] == plane for i, k in enumerate(job_of))
            if here > cap:
                return None
    left = [wants - got for wants, got in zip(demand, served, strict=True)]
    asked_s = jobs.arrivals_s.tolist()
    if problem.objective == "max-flow":
        return float(sum(left))
    if problem.objective == "lexicographic":
        return tuple(left[job] for job in sorted(range(len(left)), key=lambda k: asked_s[k]))
    if problem.objective == "max-min":
        due = [min(pair) for pair in zip(jobs.shares.tolist(), demand, strict=True)]
        return max([0.0, *(1 - got / d for got, d in zip(served, due, strict=True) if d)])
    if any(left):
        return None
    done_s = [
        max([asked, *(resources.arrivals_s[i] for i, k in enumerate(job_of) if k == job)]) - asked
        for job, asked in enumerate(asked_s)
    ]
    return float(np.mean(done_s))

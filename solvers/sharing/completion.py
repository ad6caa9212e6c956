"""Method `min-jct`: the assignment with the least mean time to the last resource, by CP-SAT."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from optmatch.model import Limits, OnEvent, Solution, SolverError
from optmatch.problems import PortSharing
from optmatch.solvers.cpsat import minimise
from optmatch.solvers.sharing.conclusion import conclude
from optmatch.solvers.sharing.network import Network

MOST = 50_000
"""Kinds of resources times jobs that a model may have."""
_TOTAL = 2.0**45


def takes(problem: PortSharing) -> bool:
    """Tell whether the model is small enough."""
    if problem.objective != "min-jct":
        return False
    if problem.resources.n_resources * problem.jobs.n_jobs <= MOST:
        return True
    return len(_kinds(problem)[1]) * problem.jobs.n_jobs <= MOST


def solve(
    problem: PortSharing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Meet all demands, and let the jobs wait as little as possible.

    Resources of one class that come at one time are of one kind: a variable for each kind and job
    counts them. For each job and time a literal says whether the job has its last resource then or
    later; the objective is the sum of the times between them. The time is counted in whole steps,
    rounded down, so that the bound is a bound.
    """
    jobs, network = problem.jobs, Network(problem)
    flow = network.serve(jobs.demand)
    if (flow.served < jobs.demand).any():
        return conclude(problem, "min-jct", None, np.inf, certificate=flow.cut)
    kind_of, kinds, come_s = _kinds(problem)
    sizes = np.bincount(kind_of, minlength=len(kinds))
    serves, plane = problem.classes.jobs_of[kinds], problem.classes.plane[kinds]
    asked_s, order = jobs.arrivals_s, np.argsort(come_s, kind="stable")
    span_s = max(float(come_s.max(initial=0.0)), 1e-9) * max(jobs.n_jobs, 1)
    whole = bool((come_s % 1 == 0).all() and (asked_s % 1 == 0).all())
    scale = 1.0 if whole else 2.0 ** np.floor(np.log2(_TOTAL / span_s))
    model, cost, amounts = cp_model.CpModel(), [], {}
    given: list[list[Any]] = [[] for _ in kinds]
    for job, demand in enumerate(jobs.demand.tolist()):
        mine = [k for k in order.tolist() if serves[k, job]]
        for k in mine:
            amounts[k, job] = model.new_int_var(0, min(demand, int(sizes[k])), "")
            given[k].append(amounts[k, job])
        model.add(sum(amounts[k, job] for k in mine) == demand)
        before_s, later = float(asked_s[job]), None
        for time_s in np.unique(come_s[mine]).tolist():
            if time_s <= before_s or not demand:
                continue
            waits = model.new_bool_var("")  # until this time, or longer
            model.add(sum(amounts[k, job] for k in mine if come_s[k] >= time_s) <= demand * waits)
            if later is not None:
                model.add_implication(waits, later)
            cost.append(int((time_s - before_s) * scale) * waits)
            before_s, later = time_s, waits
        for k, cap in enumerate(() if network.caps is None else network.caps[job].tolist()):
            model.add(sum(amounts[kind, job] for kind in mine if plane[kind] == k) <= cap)
    for size, parts in zip(sizes.tolist(), given, strict=True):
        model.add(sum(parts) <= size)
    model.minimize(sum(cost))
    outcome = minimise(model, limits.start(), on_event, seed=int(rng.integers(2**31)))
    bound = max(outcome.lower_bound / scale / max(jobs.n_jobs, 1), problem.lower_bound())
    if not outcome.found:
        if outcome.infeasible:
            raise SolverError("CP-SAT finds no answer where a flow serves all")
        return conclude(problem, "min-jct", None, bound, outcome.limit)
    members = np.argsort(kind_of, kind="stable")
    starts = (np.cumsum(sizes) - sizes).tolist()
    job_of = np.full(len(kind_of), -1, dtype=np.int32)
    for (k, job), amount in amounts.items():
        count = outcome.value(amount)
        job_of[members[starts[k] : starts[k] + count]] = job
        starts[k] += count
    stats = {"bound_by": "cp-sat"} if bound > problem.lower_bound() else {}
    return conclude(problem, "min-jct", job_of, bound, outcome.limit, stats=stats)


def _kinds(
    problem: PortSharing,
) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.float64]]:
    """Return the kind of each resource, and of each kind its class and when it comes."""
    times, at = np.unique(problem.resources.arrivals_s, return_inverse=True)
    code = problem.classes.class_of.astype(np.int64) * max(len(times), 1) + at
    found, kind_of = np.unique(code, return_inverse=True)
    of, at = np.divmod(found, max(len(times), 1))
    return kind_of, of, times[at]

"""How many resources jobs have, counted over the cells of a grid, and the check of cuts."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import Score
from optmatch.problems import PortSharing, SupplyProof
from optmatch.verify.report import ProofError

_TABLE = 2**24


class Supply:
    """Resources by the cells of the grid that all bounds make.

    Attributes
    ----------
    counts
        ``counts[cell]``: resources in it.
    plane
        ``plane[cell]``.
    serves
        ``serves[cell, job]``.
    """

    def __init__(self, problem: PortSharing) -> None:
        resources, jobs = problem.resources, problem.jobs
        pairs = [
            (has, least, np.unique(least))
            for has, least in zip(resources.attributes, jobs.bounds, strict=True)
        ]
        places = [_place(has, levels) for has, _, levels in pairs]
        needs = [np.digitize(least, levels) for _, least, levels in pairs]
        if resources.departure_s is not None:
            levels = np.unique(jobs.arrivals_s)
            places.append(np.digitize(resources.departure_s, levels, right=True))
            needs.append(np.digitize(jobs.arrivals_s, levels))
        planes = resources.planes.astype(np.int64)
        places.append(planes if jobs.plane_caps is not None else np.zeros_like(planes))
        shape = [int(place.max(initial=0)) + 1 for place in places]
        if math.prod(shape) <= 2**62:
            code = np.zeros(resources.n_resources, dtype=np.int64)
            for place, width in zip(places, shape, strict=True):
                code = code * width + place
            if math.prod(shape) <= _TABLE:
                table = np.bincount(code)
                cells = np.flatnonzero(table)
                self.counts = table[cells]
            else:
                cells, self.counts = np.unique(code, return_counts=True)
            places = list(np.unravel_index(cells, shape))
        else:
            self.counts = np.ones(resources.n_resources, dtype=np.int64)
        self.plane = places[-1]
        self.serves = np.ones((len(self.counts), jobs.n_jobs), dtype=np.bool_)
        for place, need in zip(places[:-1], needs, strict=True):
            self.serves &= place[:, None] >= need
        self.caps = jobs.plane_caps

    def most(self, problem: PortSharing) -> list[int]:
        """Return the resources that each job could get if it were alone."""
        jobs, whole = problem.jobs, problem.jobs.whole
        found = []
        for job, wanted in enumerate(jobs.demand.tolist()):
            mine = self.serves[:, job]
            there = np.bincount(self.plane[mine], weights=self.counts[mine])
            if self.caps is not None:
                there = np.minimum(there, self.caps[job, : len(there)])
            got = min(wanted, int(there.sum()))
            found.append(0 if whole[job] and got < wanted else got)
        return found

    def cut(self, proof: Any, demand: ArrayLike) -> int:
        """Return the most that jobs with such demands get together, by a cut."""
        wanted = np.asarray(demand, dtype=np.int64)
        shape = (len(wanted), 1 if self.caps is None else self.caps.shape[1])
        if not isinstance(proof, SupplyProof) or proof.tight.shape != shape:
            raise ProofError(f"a cut says something of {shape[0]} jobs and {shape[1]} planes")
        tight = proof.tight == 1
        if self.caps is None:
            at_jobs = wanted[tight[:, 0]].sum()
        else:
            at_jobs = np.minimum(wanted, (self.caps * tight).sum(axis=1)).sum()
        open_ = ~tight[:, self.plane].T & (wanted > 0)
        return int(at_jobs) + int(self.counts[(self.serves & open_).any(axis=1)].sum())


def _place(has: NDArray[np.float64], levels: NDArray[np.float64]) -> NDArray[Any]:
    """Return how many of the ascending levels each value has."""
    if len(levels) > 8:
        return np.digitize(has, levels)
    place = np.zeros(len(has), dtype=np.int8)
    for level in levels:
        place += has >= level
    return place


def count_bound(problem: PortSharing, supply: Supply) -> Score:
    """Return the bound that counting shows."""
    most, demand = supply.most(problem), problem.jobs.demand.tolist()
    left = [wanted - got for wanted, got in zip(demand, most, strict=True)]
    if problem.objective == "max-flow":
        useful = int(supply.counts[supply.serves.any(axis=1)].sum())
        return float(max(sum(left), sum(demand) - useful))
    if problem.objective == "lexicographic":
        return tuple(left[job] for job in rank_jobs(problem))
    if problem.objective == "max-min":
        return measure_lack(problem, most)
    if any(left):
        return math.inf
    return _mean_wait(problem)


def check_bound(
    problem: PortSharing,
    supply: Supply,
    served: NDArray[np.int64] | None,
    certificate: Any,
    counted: Score,
) -> Score:
    """Return the bound that a certificate shows: a cut; of an order of jobs one of each, or None.

    ``served[job]`` is of the answer, None if there is none; `counted` is what needs no
    certificate. A part that is no cut of this problem is a `ProofError`.
    """
    demand, total = problem.jobs.demand, int(problem.jobs.demand.sum())
    if problem.objective == "max-flow":
        return max(counted, float(total - supply.cut(certificate, demand)))
    if problem.objective == "min-jct":
        return math.inf if supply.cut(certificate, demand) < total else counted
    if served is None:
        raise ProofError("it bounds an answer, and there is none")
    if problem.objective == "lexicographic":
        return _check_levels(problem, supply, served, certificate, counted)
    wants = _better(problem, served)
    proved = supply.cut(certificate, wants) < sum(wants)
    return max(counted, measure_lack(problem, served.tolist())) if proved else counted


def _check_levels(
    problem: PortSharing,
    supply: Supply,
    served: NDArray[np.int64],
    certificate: Any,
    counted: Score,
) -> Score:
    """Return the levels of the first jobs: those whose cuts show that they get no more.

    A cut says that the jobs before a job leave it nothing more.
    """
    order = rank_jobs(problem)
    if not isinstance(certificate, tuple) or len(certificate) != len(order):
        raise ProofError(f"a cut or None for each of {len(order)} jobs is expected")
    demand, whole = problem.jobs.demand, problem.jobs.whole
    wanted = np.zeros_like(demand)
    levels: list[int] = []
    for place, (job, proof) in enumerate(zip(order, certificate, strict=True)):
        wanted[job] = demand[job]
        least = int(demand[job]) if whole[job] else 1  # further resources that it could get
        if served[job] < demand[job]:
            most = int(wanted.sum()) if proof is None else supply.cut(proof, wanted)
            if most >= int(served[order[:place]].sum() + served[job]) + least:
                return (*levels, *counted[place:])
        levels.append(int(demand[job] - served[job]))
        wanted[job] = served[job]
    return tuple(levels)


def _better(problem: PortSharing, served: NDArray[np.int64]) -> list[int]:
    """Return what each job needs at least in an answer that is better than this one."""
    worst, whole, wants = measure_lack(problem, served.tolist()), problem.jobs.whole, []
    for job, (due, wanted) in enumerate(
        zip(count_dues(problem), problem.jobs.demand.tolist(), strict=True)
    ):
        need = _least_better(due, worst) if due else 0
        wants.append(wanted if whole[job] else need)
    return wants


def _least_better(due: float, worst: float) -> int:
    """Return the fewest resources with which a job lacks less than that; else one too many."""
    return bisect_left(range(int(due) + 1), True, key=lambda got: 1 - got / due < worst)


def measure_lack(problem: PortSharing, served: list[int]) -> float:
    """Return the largest part of its due that a job lacks."""
    pairs = zip(served, count_dues(problem), strict=True)
    return max([0.0, *(1 - got / due for got, due in pairs if due)])


def _mean_wait(problem: PortSharing) -> float:
    """Return the mean time to a last resource if each job were alone."""
    resources, jobs = problem.resources, problem.jobs
    if resources.arrival_s is None or not jobs.n_jobs:
        return 0.0
    waits, leaves_s = [], resources.departures_s
    for job, (wanted, asked_s) in enumerate(
        zip(jobs.demand.tolist(), jobs.arrivals_s.tolist(), strict=True)
    ):
        serves = np.ones(resources.n_resources, dtype=np.bool_)
        for has, least in zip(resources.attributes, jobs.bounds, strict=True):
            serves &= has >= least[job]
        serves &= leaves_s > asked_s
        come = np.sort(resources.arrival_s[serves])
        waits.append(max(float(come[wanted - 1]) - asked_s, 0.0) if wanted else 0.0)
    return math.fsum(waits) / len(waits)


def rank_jobs(problem: PortSharing) -> list[int]:
    """Return the jobs, first served first."""
    order = np.argsort(problem.jobs.arrivals_s, kind="stable")
    found: list[int] = (order if problem.order is None else problem.order).tolist()
    return found


def count_dues(problem: PortSharing) -> list[float]:
    """Return the due of each job: its fair share, or its demand if that is less."""
    due: list[float] = np.minimum(problem.jobs.demand, problem.jobs.shares).tolist()
    return due

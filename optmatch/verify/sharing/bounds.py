"""How many resources jobs have, counted over the cells of a grid, and the check of cuts.

1. Alone (`count_bound`): a job gets no more than it could if there were no others.
2. A cut (`Supply.cut`): jobs together get no more than the capacities of any cut between resources
   and jobs (max-flow, min-cut).
3. Better answers (`check_bound`): a cut shows that what a better answer has to give, by level or
   to the job that is worst off, is more than there is.

Of `Jobs`, ``bounds``, ``arrivals_s``, ``whole`` and ``shares`` are the fields `public`,
`arrival_s`, `all_or_nothing` and `fair_share`, with what counts for those that are left out.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import Score
from optmatch.problems import PortSharing, SupplyProof
from optmatch.verify.report import ProofError

_MAX_TABLE = 2**24
"""Up to so many cells of the grid are counted in a table, which is faster than sorting."""


class Supply:
    """Resources by the cells of the grid that all bounds of jobs make.

    Two resources in one cell serve the same jobs: no bound lies between their attributes.

    Attributes
    ----------
    counts
        ``counts[cell]``: resources in it; cells without resources are left out.
    plane
        ``plane[cell]``: the plane of its resources; 0 where no job has caps.
    serves
        ``serves[cell, job]``: whether the job may use its resources.
    caps
        ``caps[job, plane]``: how many resources of the plane the job may have; None without caps.
    """

    def __init__(self, problem: PortSharing) -> None:
        """Count the resources of a pool by classes that all jobs treat alike.

        The place of a resource along an axis is how many thresholds of jobs it reaches: with
        bounds 4 and 8, the value 5 has place 1. Equal places are one class. Planes are an axis
        where jobs have caps.
        """
        resources = problem.resources
        jobs = problem.jobs

        # The place of each resource along each axis, and the least place that each job needs.
        places: list[NDArray[Any]] = []
        needs: list[NDArray[Any]] = []
        for values, bounds in zip(resources.attributes, jobs.bounds, strict=True):
            levels = np.unique(bounds)
            places.append(np.digitize(values, levels))
            needs.append(np.digitize(bounds, levels))
        # A resource that leaves at 5 s serves jobs that ask before 5 s, hence `right`.
        if resources.departure_s is not None:
            levels = np.unique(jobs.arrivals_s)
            places.append(np.digitize(resources.departure_s, levels, right=True))
            needs.append(np.digitize(jobs.arrivals_s, levels))
        planes = resources.planes.astype(np.int64)
        places.append(np.zeros_like(planes) if jobs.plane_caps is None else planes)

        # A cell serves a job if it is no lower than the job needs along any axis but that of
        # planes, which is the last one.
        cells, self.counts = _count_cells(places)
        self.plane = cells[-1]
        self.serves = np.ones((len(self.counts), jobs.n_jobs), dtype=np.bool_)
        for place, need in zip(cells[:-1], needs, strict=True):
            self.serves &= place[:, None] >= need
        # No job gets more than there is, so sums of caps are small whole numbers.
        self.caps = None
        if jobs.plane_caps is not None:
            self.caps = np.minimum(jobs.plane_caps, resources.n_resources)

    def count_alone(self, problem: PortSharing) -> list[int]:
        """Count the resources that each job could get if it were alone, within demand and caps.

        A job that takes all or nothing (`whole`) gets 0 if its demand is too high.
        """
        counts = []
        for job, demand in enumerate(problem.jobs.demand.tolist()):
            serves = self.serves[:, job]
            per_plane = np.bincount(self.plane[serves], weights=self.counts[serves])
            if self.caps is not None:
                per_plane = np.minimum(per_plane, self.caps[job, : len(per_plane)])
            count = min(demand, int(per_plane.sum()))
            gets_nothing = problem.jobs.whole[job] and count < demand
            counts.append(0 if gets_nothing else count)
        return counts

    def cut(self, proof: object, demand: ArrayLike) -> int:
        """Bound from above how many resources jobs get together, by a cut of the flow to them.

        No flow exceeds the capacity of a cut (max-flow, min-cut). Where ``proof.tight[job,
        plane]`` is 1, what the job gets of the plane is counted at the job; where it is 0, at the
        resources. With two jobs that want 3 and 9, of which only the first is tight, and 4
        resources that may serve the second, they get 3 + 4 = 7 at most. ``demand[job]`` is how
        many the job takes at most. A cut of another shape is a `ProofError`.
        """
        demands = np.asarray(demand, dtype=np.int64)
        shape = (len(demands), 1 if self.caps is None else self.caps.shape[1])
        if not isinstance(proof, SupplyProof) or proof.tight.shape != shape:
            raise ProofError(f"a cut says something of {shape[0]} jobs and {shape[1]} planes")
        # At jobs: on its tight planes together a job gets no more than the sum of its caps there,
        # nor than its demand.
        tight = proof.tight == 1
        if self.caps is None:
            at_jobs = demands[tight[:, 0]].sum()
        else:
            capped = (self.caps * tight).sum(axis=1)
            at_jobs = np.minimum(demands, capped).sum()

        # At resources: all of a cell count, once, if any job may get some that is not tight there.
        serves_others = self.serves & ~tight[:, self.plane].T & (demands > 0)  # [cell, job]
        at_resources = self.counts[serves_others.any(axis=1)].sum()
        return int(at_jobs) + int(at_resources)


def _count_cells(
    places: list[NDArray[Any]],
) -> tuple[list[NDArray[Any]], NDArray[np.int64]]:
    """Return the places of all cells that have resources, by axis, and how many each has.

    ``places[axis][resource]`` is a whole number from 0 on, as is each place of a cell. Where
    numbers of cells would overflow, each resource has a cell of its own.
    """
    n_resources = len(places[0])
    shape = [int(place.max(initial=0)) + 1 for place in places]
    n_cells = math.prod(shape)
    if n_cells > 2**62:
        return places, np.ones(n_resources, dtype=np.int64)

    # The number of a cell, with the last axis fastest: of 2 x 3 x 4 cells, that at the places 1, 0
    # and 2 has number (1 * 3 + 0) * 4 + 2 = 14. As long as a table is small, counting in it is
    # faster than sorting.
    cell_of = np.zeros(n_resources, dtype=np.int64)
    for place, width in zip(places, shape, strict=True):
        cell_of = cell_of * width + place
    if n_cells <= _MAX_TABLE:
        table = np.bincount(cell_of)
        cells = np.flatnonzero(table)
        counts = table[cells]
    else:
        cells, counts = np.unique(cell_of, return_counts=True)
    return list(np.unravel_index(cells, shape)), counts


def count_bound(problem: PortSharing, supply: Supply) -> Score:
    """Bound the objective from below by counting: each job as if it were alone.

    Less is better: "max-flow", "lexicographic" and "max-min" count what jobs lack, and "min-jct"
    the seconds for which they wait. It is infinite if a demand cannot be met.
    """
    # What each job lacks at least, in resources: 0 or more, as it gets its demand at most.
    demand = problem.jobs.demand.tolist()
    alone = supply.count_alone(problem)
    lacking = [n_wanted - count for n_wanted, count in zip(demand, alone, strict=True)]
    if problem.objective == "max-flow":
        # What all jobs lack together. They also get no more than all resources that serve any job.
        n_useful = int(supply.counts[supply.serves.any(axis=1)].sum())
        return float(max(sum(lacking), sum(demand) - n_useful))
    # What each job lacks, in the order in which jobs are served.
    if problem.objective == "lexicographic":
        return tuple(lacking[job] for job in rank_jobs(problem))
    # The largest part of its due that a job lacks, from 0 to 1.
    if problem.objective == "max-min":
        return measure_lack(problem, alone)
    # For "min-jct" the mean wait in seconds, if all demands can be met at all.
    if any(lacking):
        return math.inf
    return _measure_mean_wait(problem)


def check_bound(
    problem: PortSharing,
    supply: Supply,
    served: NDArray[np.int64] | None,
    counted: Score,
    certificate: object,
) -> Score:
    """Return the higher one of the counted bound and the one that a certificate shows.

    A certificate is a cut of the flow from resources to jobs; for "lexicographic", a tuple with a
    cut or None for each job in the order in which jobs are served. For "min-jct" the bound is
    infinite if the cut is below the demand. A part that is no cut, or a bound of a missing answer,
    is a `ProofError`. ``served[job]`` counts the resources of each job in the answer; None if
    there is none.
    """
    demand = problem.jobs.demand
    total = int(demand.sum())
    if problem.objective == "max-flow":
        return max(counted, float(total - supply.cut(certificate, demand)))
    if problem.objective == "min-jct":
        return math.inf if supply.cut(certificate, demand) < total else counted
    if served is None:
        raise ProofError("it bounds an answer, and there is none")
    if problem.objective == "lexicographic":
        return _check_levels(problem, supply, served, certificate, counted)

    # Max-min: the cut shows that not all jobs can get what a better answer would give them. In one
    # each job lacks a smaller part of its due than `worst`, which is the objective of this answer.
    worst = measure_lack(problem, served.tolist())
    needs = []
    for job, due in enumerate(_count_dues(problem)):
        # The fewest resources with which the job lacks a smaller part of its due than `worst`. If
        # 4.5 are due and it may not lack half of them, it needs 3: with 2 it would lack 56 %, with
        # 3 it lacks 33 %. If even `due`, rounded down, is too little, it is one more.
        fewest = 0
        if problem.jobs.whole[job]:
            fewest = int(demand[job])
        elif due:
            counts = range(int(due) + 1)
            fewest = bisect_left(counts, True, key=lambda count: 1 - count / due < worst)
        needs.append(fewest)
    if supply.cut(certificate, needs) < sum(needs):
        return max(counted, worst)
    return counted


def _check_levels(
    problem: PortSharing,
    supply: Supply,
    served: NDArray[np.int64],
    certificate: object,
    counted: Any,
) -> Score:
    """Bound from below what each job lacks, in the order in which jobs are served.

    A job is shown to lack what it lacks in the answer if no answer gives it more and each job
    before it as much. A cut shows this by the max-flow min-cut theorem: if the first job has 5
    resources, and the second one 3 of 6, a cut of 8 around both proves that the second one gets no
    more than 3 beside the 5. From the first job without such a cut on, `counted` is the result.
    `served` is by job; by rank are `certificate`, a tuple of cuts or None, and `counted`, a tuple
    of what each job lacks by counting alone.
    """
    order = rank_jobs(problem)
    if not isinstance(certificate, tuple) or len(certificate) != len(order):
        raise ProofError(f"a cut or None for each of {len(order)} jobs is expected")
    demand = problem.jobs.demand
    # ``asked[job]``: the most that a better answer may give to each job. The jobs before the one
    # at hand get what they have in the answer, that one its whole demand, and later ones nothing.
    asked = np.zeros_like(demand)
    levels: list[int] = []
    for rank, (job, proof) in enumerate(zip(order, certificate, strict=True)):
        asked[job] = demand[job]
        if served[job] < demand[job]:
            # The job lacks something. A better answer gives the jobs up to this one what they
            # have, and this one something more: one resource at least, or its whole demand if it
            # takes all or nothing (`whole`). By the cut these jobs get `most` together. If that is
            # enough for a better answer, this level is not proved, nor are later ones, and what
            # jobs lack by counting alone takes their place.
            least_gain = int(demand[job]) if problem.jobs.whole[job] else 1
            most = int(asked.sum()) if proof is None else supply.cut(proof, asked)
            if most >= int(served[order[: rank + 1]].sum()) + least_gain:
                return (*levels, *counted[rank:])
        levels.append(int(demand[job] - served[job]))
        asked[job] = served[job]
    return tuple(levels)


def measure_lack(problem: PortSharing, served: list[int]) -> float:
    """Return the largest part of its due that a job lacks, from 0 to 1."""
    worst = 0.0
    for count, due in zip(served, _count_dues(problem), strict=True):
        if due:
            worst = max(worst, 1 - count / due)
    return worst


def _measure_mean_wait(problem: PortSharing) -> float:
    """Compute the mean seconds from a request to the last resource, as if each job were alone.

    0 if resources have no arrivals.
    """
    resources = problem.resources
    jobs = problem.jobs
    if resources.arrival_s is None or not jobs.n_jobs:
        return 0.0
    waits_s = []
    asked_of_jobs = zip(jobs.demand.tolist(), jobs.arrivals_s.tolist(), strict=True)
    for job, (demand, asked_s) in enumerate(asked_of_jobs):
        serves = resources.departures_s > asked_s
        for values, bounds in zip(resources.attributes, jobs.bounds, strict=True):
            serves &= values >= bounds[job]
        # Alone, a job of demand d takes the d resources that come first.
        arrivals_s = np.sort(resources.arrival_s[serves])
        last_s = float(arrivals_s[demand - 1]) if demand else asked_s
        waits_s.append(max(last_s - asked_s, 0.0))
    return math.fsum(waits_s) / len(waits_s)


def rank_jobs(problem: PortSharing) -> list[int]:
    """Return the jobs in their order, first served first: as given, or by arrival."""
    if problem.order is not None:
        given_order: list[int] = problem.order.tolist()
        return given_order
    by_arrival: list[int] = np.argsort(problem.jobs.arrivals_s, kind="stable").tolist()
    return by_arrival


def _count_dues(problem: PortSharing) -> list[float]:
    """Return the due of each job: its fair share, or its demand if that is less."""
    dues: list[float] = np.minimum(problem.jobs.demand, problem.jobs.shares).tolist()
    return dues

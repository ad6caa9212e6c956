"""The problem of sharing resources among jobs, its answer, and the proof of its bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    Axes,
    Displayed,
    Given,
    InputError,
    Range,
    Score,
    Value,
    check_fields,
    given,
)
from optmatch.model.numbers import check_below, check_length
from optmatch.problems.sharing.classes import Classes, classify
from optmatch.problems.sharing.resources import Jobs, Places, Resources

Objective = Literal["max-flow", "lexicographic", "max-min", "min-jct"]
"""The objective of the shares."""


@dataclass(frozen=True, slots=True, eq=False)
class Assignment(Value):
    """Which job each resource serves: the answer to a `PortSharing`.

    Parameters
    ----------
    job_of
        ``job_of[resource]``, -1 for one that is not used; int32.

    See Also
    --------
    PortSharing : The problem that it answers.

    Examples
    --------
    >>> Assignment([1, -1, 1, 0]).served(3).tolist()
    [1, 2, 0]
    """

    job_of: Annotated[Given[np.int32], Range(-1)] = given()

    def served(self, n_jobs: int) -> NDArray[np.int64]:
        """Return ``served[job]``: how many resources each job gets."""
        return np.bincount(self.job_of[self.job_of >= 0], minlength=n_jobs).astype(np.int64)

    def summary(self) -> str:
        """Return how much is used."""
        return f"used: {int((self.job_of >= 0).sum())} of {len(self.job_of)} resources"

    def check_fits(self, problem: Any) -> None:
        """Refuse an assignment without a job, by its number, for each resource."""
        check_length("job_of", self.job_of, problem.resources.n_resources, "resources")
        check_below("job_of", self.job_of, problem.jobs.n_jobs, "job")


@dataclass(frozen=True, eq=False)
class PortSharing(Displayed):
    """Give resources to jobs for one round: each to one job at most, none more than it wants.

    A resource may serve a job if no attribute is below the bound of the job, and if it leaves
    after the job has asked. A job that takes all or nothing gets its demand or no resource.

    Parameters
    ----------
    resources
        What is there.
    jobs
        Who wants it.
    objective
        What is wanted of the jobs that share. ``"max-flow"``: what is left of all demands,
        together. ``"lexicographic"``: what is left of the first job in `order`, then of the
        second, and so on. ``"max-min"``: the largest part of its fair share, or of its demand if
        that is less, that a job lacks. ``"min-jct"``: every demand is met; the mean time from when
        a job asks until its last resource has come.
    order
        The jobs, first served first. None: as they ask.

    Raises
    ------
    InputError
        If the attributes of both are not the same; naming the job that nobody can serve, or the
        plane without a cap.

    See Also
    --------
    Assignment : The answer.
    SupplyProof : Shows that no more can be served.

    References
    ----------
    .. [1] Ding (2025). Propius. arXiv:2510.19617
    .. [2] Liu, Lai, Ding, Zhang, Chowdhury (2025). Venn. arXiv:2312.08298

    Examples
    --------
    >>> ports = Resources([[100.0, 400, 400, 800]], names=("rate",))
    >>> problem = PortSharing(ports, Jobs([2, 3], [[400.0, 400]]))
    >>> problem.n_classes, problem.lower_bound()
    (2, 2.0)
    """

    resources: Resources
    jobs: Jobs
    objective: Objective = "max-flow"
    order: Places = given(default=None, kw_only=True)
    kind: ClassVar[str] = "port-sharing"
    answer_class: ClassVar[type[Assignment] | None] = Assignment
    objectives: ClassVar[dict[str, str]] = {
        "max-flow": "wanted and not served",
        "lexicographic": "",
        "max-min": "of a share lacking",
        "min-jct": "s",
    }

    def __post_init__(self) -> None:
        """Check all fields: the order lists each job once, and each job can be served."""
        check_fields(self)
        jobs = self.jobs
        n_jobs = jobs.n_jobs
        if self.order is not None and sorted(self.order.tolist()) != list(range(n_jobs)):
            raise InputError(f"order: each of {n_jobs} jobs once is expected", where="order")
        for job in np.flatnonzero((self.classes.supply == 0) & (jobs.demand > 0))[:1]:
            names = self.resources.names
            if not names:
                names = tuple(f"attribute {number}" for number in range(len(jobs.bounds)))
            needs = ", ".join(
                f"{name} >= {bounds[job]:g}"
                for name, bounds in zip(names, jobs.bounds, strict=True)
            )
            message = f"job {job} ({needs}, since {jobs.arrivals_s[job]:g} s)"
            raise InputError(f"{message}: no resource can serve it", where="jobs")

    @property
    def extent(self) -> str:
        """How many resources and jobs there are, in words."""
        return f"{self.resources.n_resources} resources, {self.jobs.n_jobs} jobs"

    @property
    def fabric(self) -> None:
        """None: a switch is another question, that of the circuits of each job."""
        return None

    @cached_property
    def classes(self) -> Classes:
        """Resources and jobs that are alike."""
        return classify(self.resources, self.jobs)

    @property
    def n_classes(self) -> int:
        """The number of kinds of resources."""
        return len(self.classes.sizes)

    @property
    def ranking(self) -> NDArray[np.intp]:
        """The jobs, first served first."""
        if self.order is not None:
            return self.order.astype(np.intp)
        return np.argsort(self.jobs.arrivals_s, kind="stable")

    @property
    def targets(self) -> NDArray[np.float64]:
        """The fair share of each job, or its demand if that is less."""
        return np.minimum(self.jobs.shares, self.jobs.demand)

    @property
    def most(self) -> NDArray[np.int64]:
        """How many resources each job could get if it were alone, shape (jobs,).

        That is its demand, or what may serve it, within its cap on each plane; 0 for a job that
        takes all or nothing and cannot have all.
        """
        jobs = self.jobs
        classes = self.classes
        supply = classes.supply
        if jobs.plane_caps is not None:
            supply_of_plane = np.zeros_like(jobs.plane_caps)  # (jobs, planes)
            for plane in range(jobs.plane_caps.shape[1]):
                sizes_there = classes.sizes * (classes.plane == plane)
                supply_of_plane[:, plane] = sizes_there @ classes.jobs_of
            supply = np.minimum(supply_of_plane, jobs.plane_caps).sum(axis=1)
        most = np.minimum(jobs.demand, supply)
        gets_nothing = jobs.whole & (most < jobs.demand)
        return np.where(gets_nothing, 0, most)

    def lower_bound(self) -> Score:
        """Bound the objective by what each job gets at most, and by what resources there are.

        Returns
        -------
        float or tuple of int
            For ``"max-flow"`` how many resources are lacking in all; for ``"lexicographic"`` how
            many each job lacks if it is alone, in the order of ranks; for ``"max-min"`` the
            largest part of its target that a job lacks; for ``"min-jct"`` the mean wait in
            seconds, infinite if some job lacks a resource.
        """
        demand = self.jobs.demand
        most = self.most
        lacking = demand - most

        # Each objective has a bound by what jobs can get at most, each as if it were alone.
        if self.objective == "max-flow":
            is_useful = self.classes.eligible.any(axis=1)
            n_useful = int(self.classes.sizes[is_useful].sum())
            return float(max(lacking.sum(), demand.sum() - n_useful))
        if self.objective == "lexicographic":
            return tuple(lacking[self.ranking].tolist())
        if self.objective == "max-min":
            return self.worst_lack(most)
        if lacking.any():
            return math.inf
        return float(self._waits_alone_s().mean()) if len(lacking) else 0.0

    def figures_of(self, answer: Assignment) -> dict[str, str]:
        """Return how many resources serve a job, of how many that are wanted and are there.

        Parameters
        ----------
        answer
            Which job each resource serves.

        Returns
        -------
        dict
            Sentences by the name of the figure.
        """
        n_served = int((answer.job_of >= 0).sum())
        n_wanted = int(self.jobs.demand.sum())
        return {
            "served": f"{n_served} of {n_wanted} wanted",
            "in use": f"{n_served} of {len(answer.job_of)} resources",
        }

    def worst_lack(self, served: NDArray[np.int64]) -> float:
        """Return the largest part of its target that a job lacks if it is served so much."""
        has_target = self.targets > 0
        lacks = 1 - served[has_target] / self.targets[has_target]
        return float(np.max(lacks, initial=0.0))

    def _waits_alone_s(self) -> NDArray[np.float64]:
        """Return how long each job would wait for its last resource if it were alone.

        Returns
        -------
        ndarray, shape (jobs,)
            Seconds from when the job asks until as many resources as it wants have come that may
            serve it; 0 without a demand.
        """
        jobs = self.jobs
        classes = self.classes
        waits_s = np.zeros(jobs.n_jobs)

        # Jobs of a group may be served by the same resources, whose arrivals are sorted once.
        for group in range(classes.eligible.shape[1]):
            is_eligible = classes.eligible[classes.class_of, group]
            arrivals_s = np.sort(self.resources.arrivals_s[is_eligible])
            for job in np.flatnonzero((classes.group_of == group) & (jobs.demand > 0)):
                last_s = arrivals_s[jobs.demand[job] - 1]
                waits_s[job] = max(last_s - jobs.arrivals_s[job], 0.0)
        return waits_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SupplyProof(Value):
    r"""A cut: whether what a job gets is counted at the job or at the resources.

    Let job j want at most :math:`r_j` resources, and at most :math:`c_{jk}` of plane k. Where
    ``tight[j, k]`` is 1, what job j gets of plane k is counted at the job: all of that is at most
    :math:`\min(r_j, \sum_k c_{jk})`. All else is counted at the resources: it is at most the
    number of those on plane k that may serve a job j with ``tight[j, k]`` 0. The sum of both
    bounds what all jobs get together.

    Parameters
    ----------
    tight
        ``tight[job, plane]``, 0 or 1; without plane caps there is one column for all planes.
    """

    tight: Annotated[NDArray[np.int8], Axes(2), Range(0, 1)]

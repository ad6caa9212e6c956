"""First fit by a policy: the dispatcher of the next resource, and the methods that call it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import Limits, OnEvent, Solution
from optmatch.problems import Jobs, PortSharing
from optmatch.solvers.sharing import policies
from optmatch.solvers.sharing.conclusion import conclude


class Dispatcher:
    """Jobs that ask, by classes of resources and in order of priority; one decision at a time.

    Parameters
    ----------
    jobs
        All jobs that may ask.

    See Also
    --------
    optmatch.solvers.sharing.policies : Where priorities come from.

    Examples
    --------
    >>> dispatcher = Dispatcher(Jobs([1, 2], [[4.0, 0.0], [0.0, 0.0]]))
    >>> dispatcher.ask(1, 2, priority=-7.0)
    >>> dispatcher.ask(0, 1, priority=-3.0)
    >>> [dispatcher.offer(dispatcher.find((cpu, 1.0))) for cpu in (2.0, 8.0, 8.0, 8.0)]
    [1, 0, 1, -1]
    """

    def __init__(self, jobs: Jobs) -> None:
        self._bounds = jobs.bounds
        self._levels = [np.unique(least).tolist() for least in self._bounds]
        self._caps = None if jobs.plane_caps is None else jobs.plane_caps.tolist()
        self._left = [0] * jobs.n_jobs
        self._entry: list[tuple[float, int] | None] = [None] * jobs.n_jobs
        self._rows: list[NDArray[np.bool_]] = []
        self._planes: list[int] = []
        self._queues: list[list[tuple[float, int]]] = []  # the best is the last
        self._known: dict[tuple[int, ...], int] = {}

    def find(self, values: Iterable[float], plane: int = 0) -> int:
        """Return the number of the class of a resource with these attributes.

        The first resource of its kind costs a look at all jobs.
        """
        digits = [bisect_right(levels, v) for levels, v in zip(self._levels, values, strict=True)]
        key = (plane, *digits)
        number = self._known.get(key)
        if number is None:
            eligible = np.ones(len(self._left), dtype=np.bool_)
            for levels, digit, least in zip(self._levels, digits, self._bounds, strict=True):
                eligible &= least <= levels[digit - 1] if digit else np.False_
            number = self._known[key] = self.add(eligible, plane)
        return number

    def add(self, eligible: ArrayLike, plane: int = 0) -> int:
        """Add a class by the jobs that it may serve, ``eligible[job]``; return its number."""
        row = np.array(eligible, dtype=np.bool_)
        entries = [self._entry[job] for job in np.flatnonzero(row).tolist()]
        self._rows.append(row)
        self._planes.append(plane)
        self._queues.append(sorted(entry for entry in entries if entry is not None))
        return len(self._rows) - 1

    def ask(self, job: int, count: int, priority: float) -> None:
        """Let a job ask for so many resources, instead of what it asked for before."""
        before, entry = self._entry[job], (priority, -job)
        self._left[job], self._entry[job] = count, entry
        for row, queue in zip(self._rows, self._queues, strict=True):
            if row[job]:
                if before is not None:
                    place = bisect_left(queue, before)
                    if queue[place : place + 1] == [before]:
                        del queue[place]
                insort(queue, entry)

    def rank(self, priority: NDArray[np.float64]) -> None:
        """Order all jobs that still ask anew, by ``priority[class, job]`` of known classes."""
        asking = np.array(self._left) > 0
        for number, row in enumerate(self._rows):
            jobs = np.flatnonzero(row & asking & (priority[number] > -np.inf))
            best = priority[number, jobs].tolist()
            self._queues[number] = sorted(zip(best, (-jobs).tolist(), strict=True))

    def left(self, job: int) -> int:
        """Return how many resources a job still asks for."""
        return self._left[job]

    def offer(self, number: int) -> int:
        """Give a resource of a class to the first job that asks for it; -1 if none does."""
        queue, left = self._queues[number], self._left
        while queue:
            job = -queue[-1][1]
            if left[job]:
                if self._caps is None:
                    left[job] -= 1
                    return job
                caps, plane = self._caps[job], self._planes[number]
                if caps[plane]:
                    caps[plane] -= 1
                    left[job] -= 1
                    return job
            queue.pop()
        return -1


def first_fit(problem: PortSharing, priority: NDArray[np.float64] | None) -> NDArray[np.int32]:
    """Give each resource, as it comes, to the first job that asks and that it may serve.

    A resource that no job wants waits until it leaves; of waiting resources the first comes first.
    At one time jobs ask before resources come. `priority` is by job; None stands for that of
    `irs`, which is made anew whenever a job asks or has its demand. Returns ``job_of[resource]``;
    the objective is not looked at, and no job takes all or nothing.
    """
    jobs, classes, resources = problem.jobs, problem.classes, problem.resources
    dispatcher = Dispatcher(jobs)
    for row, plane in zip(classes.jobs_of, classes.plane.tolist(), strict=True):
        dispatcher.add(row, plane)
    come = np.argsort(resources.arrivals_s, kind="stable")
    come_s, leaves_s = resources.arrivals_s[come], resources.departures_s
    job_of = np.full(len(come), -1, dtype=np.int32)

    def plan() -> None:
        if priority is None:
            left = [dispatcher.left(job) for job in range(jobs.n_jobs)]
            dispatcher.rank(policies.irs(classes.jobs_of, classes.sizes, left))

    def offer(number: int) -> int:
        job = dispatcher.offer(number)
        if priority is None and job >= 0 and not dispatcher.left(job):
            plan()
        return job

    def serve(part: NDArray[np.intp]) -> NDArray[np.intp]:
        """Offer resources in their order; return those that no job wants."""
        take = dispatcher.offer if priority is not None else offer
        job_of[part] = [take(number) for number in classes.class_of[part].tolist()]
        return part[job_of[part] < 0]

    waiting, first = come[:0], 0
    for now_s in np.unique(jobs.arrivals_s).tolist():
        last = int(np.searchsorted(come_s, now_s))
        waiting, first = np.concatenate((waiting, serve(come[first:last]))), last
        for job in np.flatnonzero(jobs.arrivals_s == now_s).tolist():
            dispatcher.ask(job, int(jobs.demand[job]), 0.0 if priority is None else priority[job])
        plan()
        waiting = serve(waiting[leaves_s[waiting] > now_s])
    serve(come[first:])
    return job_of


def takes(problem: PortSharing, name: str) -> bool:
    """Tell whether a policy can decide a problem: a policy cannot take back what it has given."""
    return not problem.jobs.whole.any() and (name != "irs" or problem.jobs.plane_caps is None)


def solve(
    name: str,
    problem: PortSharing,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> Solution:
    """Decide by a policy; the bound is the counted one."""
    jobs = problem.jobs
    priority = {
        "fifo": lambda: policies.fifo(jobs.arrivals_s),
        "srsf": lambda: policies.srsf(jobs.demand),
        "random": lambda: policies.random(rng.random(jobs.n_jobs)),
        "irs": lambda: None,
    }[name]()
    return conclude(problem, name, first_fit(problem, priority))

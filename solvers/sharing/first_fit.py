"""First fit by a policy: the dispatcher of the next resource, and the methods that call it.

A policy gives jobs priorities; a *class* is all resources that may serve the same jobs.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import Limits, OnEvent, Solution
from optmatch.problems import Classes, Jobs, PortSharing
from optmatch.solvers.sharing import policies
from optmatch.solvers.sharing.conclusion import conclude


class Dispatcher:
    """A dispatcher: a queue of asking jobs for each class of resources, by priority.

    It gives one resource at a time to the job of the highest priority that asks for it.

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
        """Make a dispatcher to which no job asks yet; classes are found as resources come."""
        # A resource may serve a job whose bounds it reaches in all attributes. Only which of the
        # bounds it reaches decides that: its class is a digit for each attribute, and the plane.
        self._bounds = jobs.bounds
        self._levels = [np.unique(bounds).tolist() for bounds in self._bounds]
        self._number_of_class: dict[tuple[int, ...], int] = {}
        self._caps = None if jobs.plane_caps is None else jobs.plane_caps.tolist()

        # By job: how many resources it still asks for, and its entry in queues, (priority, -job);
        # None before it has asked.
        self._wanted = [0] * jobs.n_jobs
        self._entries: list[tuple[float, int] | None] = [None] * jobs.n_jobs

        # By class: whom it may serve, its plane, and its queue, in which the best job is the last.
        self._eligible: list[NDArray[np.bool_]] = []
        self._planes: list[int] = []
        self._queues: list[list[tuple[float, int]]] = []

    def find(self, values: Iterable[float], plane: int = 0) -> int:
        """Return the number of the class of a resource with ``values[attribute]`` on a plane.

        Classes are numbered as they come; the first resource of a class costs a look at all jobs.
        """
        # By attribute how many of the distinct bounds the resource reaches: its class.
        digits = [
            bisect_right(levels, value) for levels, value in zip(self._levels, values, strict=True)
        ]
        key = (plane, *digits)
        number = self._number_of_class.get(key)
        if number is not None:
            return number

        # It may serve a job whose bound is at most the largest one that it reaches, everywhere.
        eligible = np.ones(len(self._wanted), dtype=np.bool_)
        for levels, digit, bounds in zip(self._levels, digits, self._bounds, strict=True):
            if digit == 0:
                eligible[:] = False
            else:
                eligible &= bounds <= levels[digit - 1]
        self._number_of_class[key] = self.add(eligible, plane)
        return self._number_of_class[key]

    def add(self, eligible: ArrayLike, plane: int = 0) -> int:
        """Add a class by the jobs that it may serve, ``eligible[job]``; return its number."""
        may_serve = np.array(eligible, dtype=np.bool_)
        entries = [self._entries[job] for job in np.flatnonzero(may_serve).tolist()]
        self._eligible.append(may_serve)
        self._planes.append(plane)
        self._queues.append(sorted(entry for entry in entries if entry is not None))
        return len(self._queues) - 1

    def ask(self, job: int, count: int, priority: float) -> None:
        """Let a job ask for `count` resources, instead of those that it asked for before.

        Jobs of higher priorities are served first; of equal ones the job of the smaller number.
        """
        has_asked = self._entries[job] is not None
        entry = (priority, -job)  # of equal priorities the first job is the best
        self._wanted[job] = count
        self._entries[job] = entry

        # In the queue of each class that may serve the job, its new entry replaces the old one,
        # whose priority may be one that `rank` gave it in this class alone.
        for may_serve, queue in zip(self._eligible, self._queues, strict=True):
            if may_serve[job]:
                if has_asked:
                    queue[:] = [former for former in queue if former[1] != -job]
                insort(queue, entry)

    def rank(self, priority: NDArray[np.float64]) -> None:
        """Order all jobs that still ask anew, by ``priority[class, job]`` of known classes.

        Where the priority is minus infinity, the class does not serve the job.
        """
        is_asking = np.array(self._wanted) > 0
        for number, may_serve in enumerate(self._eligible):
            is_served = priority[number] > -np.inf
            jobs = np.flatnonzero(may_serve & is_asking & is_served)
            priorities = priority[number, jobs].tolist()
            self._queues[number] = sorted(zip(priorities, (-jobs).tolist(), strict=True))

    def left(self, job: int) -> int:
        """Return how many resources a job still asks for."""
        return self._wanted[job]

    def offer(self, number: int) -> int:
        """Give a resource of a class to the first job that asks for it; -1 if none does.

        Jobs at the head of the queue that want nothing more, or no more of this plane, leave it.
        """
        queue = self._queues[number]
        n_asked = self._wanted
        while queue:
            job = -queue[-1][1]
            if n_asked[job]:
                if self._caps is None:
                    n_asked[job] -= 1
                    return job

                # With caps it also has to want more of this plane.
                caps_of_job = self._caps[job]
                plane = self._planes[number]
                if caps_of_job[plane]:
                    caps_of_job[plane] -= 1
                    n_asked[job] -= 1
                    return job
            queue.pop()
        return -1


def first_fit(problem: PortSharing, priority: NDArray[np.float64] | None) -> NDArray[np.int32]:
    """Give each resource, as it comes, to the first job that wants it; ``job_of[resource]`` or -1.

    A resource that no job wants waits until it leaves; when a job asks, resources that wait are
    offered to it, the first that came first. At equal times the job is there before the resource.
    The job of the greatest ``priority[job]`` is first; without priorities, jobs are ranked by
    `irs` whenever a job asks or has all that it wants.
    """
    jobs = problem.jobs
    resources = problem.resources
    classes = problem.classes
    dispatcher = Dispatcher(jobs)
    for may_serve, plane in zip(classes.jobs_of, classes.plane.tolist(), strict=True):
        dispatcher.add(may_serve, plane)
    job_of = np.full(resources.n_resources, -1, dtype=np.int32)
    by_irs = priority is None

    # Between two times at which jobs ask, resources are offered in the order in which they come.
    # When jobs ask, the resources that wait, and have not left, are offered to them.
    in_time = np.argsort(resources.arrivals_s, kind="stable")
    arrival_s = resources.arrivals_s[in_time]
    waiting = in_time[:0]
    n_come = 0
    for now_s in np.unique(jobs.arrivals_s).tolist():
        n_come_before = n_come
        n_come = int(np.searchsorted(arrival_s, now_s))
        unwanted = _offer_all(dispatcher, in_time[n_come_before:n_come], classes, by_irs, job_of)
        waiting = np.concatenate((waiting, unwanted))

        # Jobs ask for all that they want.
        for job in np.flatnonzero(jobs.arrivals_s == now_s).tolist():
            priority_of_job = 0.0 if priority is None else float(priority[job])
            dispatcher.ask(job, int(jobs.demand[job]), priority_of_job)
        if by_irs:
            _rank_by_irs(dispatcher, classes)
        is_there = resources.departures_s[waiting] > now_s
        waiting = _offer_all(dispatcher, waiting[is_there], classes, by_irs, job_of)
    _offer_all(dispatcher, in_time[n_come:], classes, by_irs, job_of)
    return job_of


def _rank_by_irs(dispatcher: Dispatcher, classes: Classes) -> None:
    """Order all jobs of a dispatcher anew by `irs`, for classes that it has by their numbers."""
    n_asked = [dispatcher.left(job) for job in range(classes.jobs_of.shape[1])]
    dispatcher.rank(policies.irs(classes.jobs_of, classes.sizes, n_asked))


def _offer_all(
    dispatcher: Dispatcher,
    offered: NDArray[np.intp],
    classes: Classes,
    by_irs: bool,
    job_of: NDArray[np.int32],
) -> NDArray[np.intp]:
    """Offer resources in their order, write ``job_of[resource]``, and return those nobody wants.

    With `by_irs`, a job that has its whole demand changes the order of the others.
    """
    for resource, number in zip(offered.tolist(), classes.class_of[offered].tolist(), strict=True):
        job = dispatcher.offer(number)
        job_of[resource] = job
        if by_irs and job >= 0 and not dispatcher.left(job):
            _rank_by_irs(dispatcher, classes)
    return offered[job_of[offered] < 0]


def takes(problem: PortSharing, name: str) -> bool:
    """Tell whether a policy can decide a problem: a policy cannot take back what it has given."""
    return not problem.jobs.whole.any() and (name != "irs" or problem.jobs.plane_caps is None)


def serve_by_policy(
    name: str,
    problem: PortSharing,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> Solution:
    """Serve jobs by ``"fifo"``, ``"srsf"``, ``"irs"`` or ``"random"``, first fit, at once."""
    jobs = problem.jobs
    priority: NDArray[np.float64] | None = None  # of irs, which depends on the class
    if name == "fifo":
        priority = policies.fifo(jobs.arrivals_s)
    elif name == "srsf":
        priority = policies.srsf(jobs.demand)
    elif name == "random":
        priority = policies.random(rng.random(jobs.n_jobs))
    return conclude(problem, name, first_fit(problem, priority))

"""Methods that decide one resource after the other, as they come: first fit by a policy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Limits, OnEvent, Solution
from optmatch.problems import PortSharing
from optmatch.solvers.sharing import policies
from optmatch.solvers.sharing.conclusion import conclude
from optmatch.solvers.sharing.dispatcher import Dispatcher


def first_fit(problem: PortSharing, priority: NDArray[np.float64] | None) -> NDArray[np.int32]:
    """Give each resource, as it comes, to the first job that asks and that it may serve.

    A resource that nobody wants waits until it leaves; of those that wait the first comes first.
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
        """Offer resources in their order; return those that nobody wants."""
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
    """Tell whether a policy can decide a problem: what it has given it cannot take back."""
    return not problem.jobs.whole.any() and (name != "irs" or problem.jobs.plane_caps is None)


def solve(
    name: str,
    problem: PortSharing,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> Solution:
    """Decide by a policy; its bound is the one that anybody can count."""
    jobs = problem.jobs
    priority = {
        "fifo": lambda: policies.fifo(jobs.arrivals_s),
        "srsf": lambda: policies.srsf(jobs.demand),
        "random": lambda: policies.random(rng.random(jobs.n_jobs)),
        "irs": lambda: None,
    }[name]()
    return conclude(problem, name, first_fit(problem, priority))

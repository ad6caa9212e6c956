"""Optima by flows: the most, the first first, and the fairest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Limit, Limits, OnEvent, Solution, Tick, TimeUp, check_time
from optmatch.problems import PortSharing, SupplyProof
from optmatch.solvers.sharing.conclusion import conclude, limit_of
from optmatch.solvers.sharing.network import Network, Numbers


def serve_most(
    problem: PortSharing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Leave as little of all demands as possible: a largest flow, with its cut.

    Where it serves a part of a job that takes all or nothing, CP-SAT chooses such jobs.
    """
    network, jobs = Network(problem), problem.jobs
    flow = network.serve(jobs.demand)
    bound, cut = float(jobs.demand.sum() - flow.served.sum()), flow.cut
    limit, stats = None, {}
    if (jobs.whole & (flow.served > 0) & (flow.served < jobs.demand)).any():
        from optmatch.solvers.sharing.choice import choose_whole

        found, searched, limit = choose_whole(network, cut, limits, rng, on_event)
        if found is None:
            found = fill(network, problem.ranking, on_event)[0]
        flow = network.serve(found)
        if searched > bound:
            bound, stats = searched, {"bound_by": "cp-sat"}
    job_of = network.assign(flow)
    return conclude(problem, "max-flow", job_of, bound, limit, certificate=cut, stats=stats)


def serve_in_order(
    problem: PortSharing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Serve the first job as much as possible, then the second without loss to it, and so on.

    An answer to every objective, and the best one to its own.
    """
    network = Network(problem)
    served, cuts, limit = fill(network, problem.ranking, on_event)
    job_of = network.assign(network.serve(served))
    if limit or problem.objective != "lexicographic":
        return conclude(problem, "lexicographic", job_of, None, limit)
    left = tuple((problem.jobs.demand - served)[problem.ranking].tolist())
    return conclude(problem, "lexicographic", job_of, left, certificate=cuts)


def fill(
    network: Network, order: NDArray[np.intp], on_event: OnEvent
) -> tuple[Numbers, tuple[SupplyProof | None, ...], Limit | None]:
    """Serve jobs one after the other, each as much as the others before it allow.

    Jobs are tried many at a time: all of a half are served, or none, or each half of it is tried.
    By the exchange of augmenting paths nobody served before gets less. Returns ``served[job]``;
    for each place of the order the cut that holds its job back, or None; and a limit if the time
    was up.
    """
    demand, whole = network.problem.jobs.demand, network.problem.jobs.whole
    served = np.zeros_like(demand)
    cuts: list[SupplyProof | None] = [None] * len(order)
    parts = [(0, len(order))] if len(order) else []
    try:
        while parts:
            check_time()
            first, last = parts.pop()
            on_event(Tick("jobs", first, len(order)))
            some = order[first:last]
            wanted = served.copy()
            wanted[some] = demand[some]
            flow = network.serve(wanted)
            gained = int(flow.served.sum() - served.sum())
            if gained == demand[some].sum():
                served = wanted
            elif gained == 0 or last - first == 1:
                cuts[first:last] = [flow.cut if demand[job] else None for job in some]
                if not whole[some[0]]:
                    served[some[0]] = gained
            else:
                middle = (first + last) // 2
                parts += [(middle, last), (first, middle)]
    except (TimeUp, KeyboardInterrupt) as stop:
        return served, tuple(cuts), limit_of(stop)
    return served, tuple(cuts), None


def serve_fairly(
    problem: PortSharing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Let the job that lacks most of its fair share lack as little as possible, then use the rest.

    What each job needs grows as the largest lack shrinks: the least lack is found by halving, and
    a cut shows that no job can have less.
    """
    network, jobs = Network(problem), problem.jobs
    needed, low = np.zeros_like(jobs.demand), 0.0
    lack, cut, limit = problem.worst_lack(needed), None, None
    try:
        while lack > 0 and cut is None:
            check_time()
            on_event(Tick("flows", 0))
            near = lack - low <= 1e-12
            bar = lack if near else (low + lack) / 2
            wanted = _needs(problem, bar)
            flow = network.serve(wanted)
            if (flow.served == wanted).all():
                needed, lack = wanted, problem.worst_lack(wanted)
            elif near:
                cut = flow.cut
            else:
                low = bar
    except (TimeUp, KeyboardInterrupt) as stop:
        limit = limit_of(stop)
    if jobs.whole[needed < jobs.demand].any():  # somebody gets nothing
        flow = network.serve(fill(network, problem.ranking, on_event)[0])
    else:
        flow = network.extend(needed)
    bound = None if limit else lack
    return conclude(problem, "max-min", network.assign(flow), bound, limit, certificate=cut)


def _needs(problem: PortSharing, bar: float) -> Numbers:
    """Return what each job needs at least to lack a smaller part than `bar`."""
    due, demand = problem.targets, problem.jobs.demand
    needs = np.maximum(np.floor((1 - bar) * due).astype(np.int64) - 1, 0)
    share = np.maximum(due, 1e-300)
    while (short := (due > 0) & (1 - needs / share >= bar)).any():
        needs[short] += 1
    return np.where(problem.jobs.whole & (needs > 0), demand, needs)

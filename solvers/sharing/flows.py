"""Optima by flows: the most, the first first, and the fairest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from optmatch.model import Limit, Limits, OnEvent, Solution, Tick, TimeUp, check_time, ignore
from optmatch.problems import PortSharing, SupplyProof
from optmatch.solvers.cpsat import minimise
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


def choose_whole(
    network: Network,
    cut: SupplyProof,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> tuple[Numbers | None, float, Limit | None]:
    """Choose the share of each job, so that as little as possible is left.

    As long as no flow serves what was chosen, its cut is one more rule for the next choice. `cut`
    is the first rule. Returns ``served[job]``, None if the time was up; and what is left at least.
    """
    clock, jobs = limits.start(), network.problem.jobs
    seed = int(rng.integers(2**31))
    model = cp_model.CpModel()
    amounts = [
        demand * model.new_bool_var("") if whole else model.new_int_var(0, demand, "")
        for demand, whole in zip(jobs.demand.tolist(), jobs.whole.tolist(), strict=True)
    ]
    total = int(jobs.demand.sum())
    model.minimize(total - sum(amounts))
    wanted, left, rounds = jobs.demand, 0.0, 0
    while True:
        at_jobs, at_resources = _sides(network, cut, wanted)
        model.add(sum(amounts[j] - held for j, held in at_jobs.items()) <= at_resources)
        on_event(Tick("choices", rounds))
        rounds += 1
        outcome = minimise(model, clock, ignore, seed=seed)
        left = max(left, outcome.lower_bound)
        if not outcome.optimal:
            return None, left, outcome.limit
        wanted = np.array([outcome.value(amount) for amount in amounts], dtype=np.int64)
        flow = network.serve(wanted)
        if (flow.served == wanted).all():
            return wanted, left, None
        cut = flow.cut


def _sides(network: Network, cut: SupplyProof, wanted: Numbers) -> tuple[dict[int, int], int]:
    """Return by job how much the tight planes of a cut give it, and count the resources beside.

    Jobs that their tight planes can satisfy are left out.
    """
    classes, tight = network.problem.classes, cut.tight == 1
    if network.caps is None:
        held = np.zeros(len(tight), dtype=np.int64)
        part = ~tight[:, 0]
    else:
        held = (network.caps * tight).sum(axis=1)
        part = held < wanted
    reached = (classes.jobs_of & (part[:, None] & ~tight)[:, classes.plane].T).any(axis=1)
    jobs = np.flatnonzero(part & (wanted > 0)).tolist()
    return {job: int(held[job]) for job in jobs}, int(classes.sizes[reached].sum())

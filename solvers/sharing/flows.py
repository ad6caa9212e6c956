"""Optima by maximum flows: most served, lexicographic in the order of jobs, and max-min fair.

Resources flow to jobs, at most as many as a job demands. A minimum cut proves that no flow is
larger: some jobs get all that they demand, and what may serve the others is used up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Limit, Limits, OnEvent, Solution, Tick, TimeUp, check_time, ignore
from optmatch.problems import PortSharing, SupplyProof
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.exact_models import ExactModel
from optmatch.solvers.frame import limit_of
from optmatch.solvers.sharing.conclusion import conclude
from optmatch.solvers.sharing.network import LargestFlow, Network, Numbers


def serve_most(
    problem: PortSharing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Give jobs as many resources as possible, by a maximum flow; its minimum cut is the proof.

    If the flow serves a part of jobs that take all or nothing, these get nothing and the others
    what is left; where that is less than the bound, CP-SAT chooses which jobs are served. The
    objective and the bound are the resources that all jobs together still lack.
    """
    # The flow without regard to jobs that take all or nothing, and the bound that its cut proves.
    jobs = problem.jobs
    network = Network(problem)
    largest = network.serve(jobs.demand)
    bound = float(jobs.demand.sum() - largest.served.sum())
    limit: Limit | None = None
    stats: dict[str, object] = {}

    # No choice is better than an answer that serves as much as the largest flow.
    flow = _leave_out_parts(network, largest, jobs.demand)
    if flow.served.sum() < largest.served.sum():
        choice = choose_whole(network, largest.cut, flow, limits, rng, on_event)
        flow = choice.flow
        limit = choice.limit
        if choice.least_left > bound:
            bound = choice.least_left
            stats = {"bound_by": "cp-sat"}
    job_of = network.assign(flow)
    return conclude(
        problem, "max-flow", job_of, bound, limit, certificate=largest.cut, stats=stats
    )


def _leave_out_parts(network: Network, flow: LargestFlow, target: Numbers) -> LargestFlow:
    """Return a flow that serves no part of a job that takes all or nothing, from one that may.

    `flow` is the largest one for the resources ``target[job]``. Jobs of which it serves a part get
    nothing, and the others are served anew, until no part is served. If two jobs want 4 each, all
    or nothing, and there are 6 resources, one of them is left out and the other gets 4.
    """
    is_whole = network.problem.jobs.whole
    while (is_part := is_whole & (flow.served > 0) & (flow.served < target)).any():
        target = np.where(is_part, 0, target)
        flow = network.serve(target)
    return flow


def serve_in_order(
    problem: PortSharing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Serve the first job as much as possible, then the second without loss to it, and so on.

    The answer suits every objective, and is optimal for ``"lexicographic"``: each job has a cut
    that shows that it cannot get more without loss to jobs before it. Every method is called with
    `limits` and `rng`; this one draws nothing and has no use for either.
    """
    network = Network(problem)
    filled = fill(network, problem.ranking, on_event)
    job_of = network.assign(network.serve(filled.served))

    # Only a run to the end, for this objective, proves a bound: the missing resources of each job.
    if filled.limit or problem.objective != "lexicographic":
        return conclude(problem, "lexicographic", job_of, None, filled.limit)
    missing = problem.jobs.demand - filled.served
    bound = tuple(missing[problem.ranking].tolist())
    return conclude(problem, "lexicographic", job_of, bound, certificate=filled.cuts)


class Filled(NamedTuple):
    """The result of serving jobs one after the other."""

    served: Numbers
    """(jobs,): how many resources each job gets."""
    cuts: tuple[SupplyProof | None, ...]
    """For each place of the order the cut that holds its job back, or None."""
    limit: Limit | None
    """Why it ended before the last job; None if it did not."""


def fill(network: Network, order: NDArray[np.intp], on_event: OnEvent) -> Filled:
    """Serve jobs in `order`, each as much as the jobs before it allow.

    ``order[place]`` is a job. Many jobs are tried at once by one maximum flow: if all of them get
    their demands, or none gets anything, all are done; otherwise each half of them is tried. If
    the first 3 of 8 jobs can be served and no other, these are tried: 0 to 7, 0 to 3, 0 and 1, 2
    and 3, 2, 3, and 4 to 7. No job that was served gets less.
    """
    demand = network.problem.jobs.demand
    is_whole = network.problem.jobs.whole
    served = np.zeros_like(demand)
    cuts: list[SupplyProof | None] = [None] * len(order)
    limit: Limit | None = None

    # A stack of parts of the order, as (first, end); the next one to try is the last.
    parts = [(0, len(order))] if len(order) else []
    try:
        while parts:
            check_time()
            first, end = parts.pop()
            on_event(Tick("jobs", first, len(order)))
            jobs = order[first:end]

            # Do all jobs of the part get their demands, beside what others have already?
            # Augmenting paths lead to more jobs, and take from none that is served.
            target = served.copy()
            target[jobs] = demand[jobs]
            flow = network.serve(target)
            gained = int(flow.served.sum() - served.sum())
            if gained == demand[jobs].sum():
                served = target
            elif gained == 0 or end - first == 1:
                # The cut holds all of them back, or the only one. A job that takes all or nothing
                # gets nothing.
                cuts[first:end] = [flow.cut if demand[job] else None for job in jobs]
                if not is_whole[jobs[0]]:
                    served[jobs[0]] = gained
            else:
                # Some get something: the first half is tried next, then the second.
                middle = (first + end) // 2
                parts += [(middle, end), (first, middle)]
    except (TimeUp, KeyboardInterrupt) as stop:
        limit = limit_of(stop)
    return Filled(served, tuple(cuts), limit)


def serve_fairly(
    problem: PortSharing, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Minimise the largest part of its fair share that a job lacks (max-min fairness).

    A job with 6 of a fair share of 8 lacks 0.25. Bisection finds the least largest part: it says
    how many resources each job needs, and a maximum flow whether there are as many. Resources that
    remain go to jobs that ask for more. A minimum cut proves the bound; at a limit there is none.
    """
    jobs = problem.jobs
    network = Network(problem)

    # Invariant of the bisection: a flow serves `needed`, with which the worst job lacks `lack`;
    # in no flow it lacks less than `refuted_lack`. Both are parts of fair shares, from 0 to 1.
    needed = np.zeros_like(jobs.demand)
    lack = problem.worst_lack(needed)
    refuted_lack = 0.0
    cut: SupplyProof | None = None
    limit: Limit | None = None
    try:
        while lack > 0 and cut is None:
            check_time()
            on_event(Tick("flows", 0))

            # The last flow asks for any improvement at all; its cut is the proof.
            is_last = lack - refuted_lack <= _LACKS_ARE_EQUAL
            tried_lack = lack if is_last else (refuted_lack + lack) / 2
            target = _needs_to_lack_less(problem, tried_lack)
            flow = network.serve(target)
            if (flow.served == target).all():
                needed = target
                lack = problem.worst_lack(target)
            elif is_last:
                cut = flow.cut
            else:
                refuted_lack = tried_lack
    except (TimeUp, KeyboardInterrupt) as stop:
        limit = limit_of(stop)

    # The resources that nobody needs go to jobs whose demands are not met yet.
    if jobs.whole[needed < jobs.demand].any():
        # A job that takes all or nothing gets nothing: a larger flow could serve a part of it.
        flow = network.serve(fill(network, problem.ranking, on_event).served)
    else:
        flow = network.extend(needed)
    bound = None if limit else lack
    return conclude(problem, "max-min", network.assign(flow), bound, limit, certificate=cut)


_LACKS_ARE_EQUAL = 1e-12
"""Parts of fair shares that differ by less are equal: shares are quotients of whole numbers."""


def _needs_to_lack_less(problem: PortSharing, lack: float) -> Numbers:
    """Return the fewest resources with which each job lacks less than a part of its fair share.

    `lack` is above 0 and at most 1. A job that takes all or nothing needs its whole demand.
    """
    # The estimate from below is one or two too small; it rises by the very comparison that
    # measures an answer, so that rounding cannot make a difference.
    fair = problem.targets
    demand = problem.jobs.demand
    needs = np.maximum(np.floor((1 - lack) * fair).astype(np.int64) - 1, 0)
    divisor = np.maximum(fair, 1e-300)
    while True:
        lacks_too_much = (fair > 0) & (1 - needs / divisor >= lack)
        if not lacks_too_much.any():
            break
        needs[lacks_too_much] += 1
    return np.where(problem.jobs.whole & (needs > 0), demand, needs)


class WholeChoice(NamedTuple):
    """A choice of which jobs are served, where some take all or nothing."""

    flow: LargestFlow
    """The largest flow found that serves no part of such a job."""
    least_left: float
    """The proved lower bound on the resources that all jobs together lack."""
    limit: Limit | None
    """Why the search ended early; None if it did not."""


class AmountModel(ExactModel[Numbers]):
    """How many resources each job gets, such that all together lack as few as possible.

    The model knows nothing of resources but the cuts that are added to it.

    Attributes
    ----------
    amounts
        ``amounts[job]``: an expression of variables, how many resources the job gets.
    """

    def __init__(self, problem: PortSharing) -> None:
        super().__init__()
        jobs = problem.jobs
        self.amounts: list[Any] = []
        for demand, is_whole in zip(jobs.demand.tolist(), jobs.whole.tolist(), strict=True):
            if is_whole:
                self.amounts.append(demand * self.model.new_bool_var(""))
            else:
                self.amounts.append(self.model.new_int_var(0, demand, ""))
        self.model.minimize(int(jobs.demand.sum()) - sum(self.amounts))

    def add_cut(self, from_tight_planes: dict[int, int], n_beside: int) -> None:
        """Let jobs get at most `n_beside` resources beyond what their tight planes give.

        ``from_tight_planes[job]`` is how many these give; other jobs are not limited by this cut.
        """
        excess = sum(self.amounts[job] - amount for job, amount in from_tight_planes.items())
        self.model.add(excess <= n_beside)

    def read(self, outcome: Outcome) -> Numbers:
        """Return how many resources each job gets, shape (jobs,)."""
        return np.array([outcome.value(amount) for amount in self.amounts], dtype=np.int64)


def choose_whole(
    network: Network,
    cut: SupplyProof,
    best: LargestFlow,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> WholeChoice:
    """Choose how much each job gets, such that they lack as little as possible (Benders cuts).

    CP-SAT chooses amounts under the cuts known so far, at first `cut`, which shows that not all
    demands can be met. A maximum flow tells whether the resources can serve them: then they are
    optimal, else its cut is one more. `best` is an answer that is known.
    """
    clock = limits.start()
    jobs = network.problem.jobs
    seed = int(rng.integers(2**31))
    model = AmountModel(network.problem)
    target = jobs.demand
    least_left = 0.0
    n_rounds = 0
    while True:
        # The constraint of a cut. A plane is a part of the resources; it is tight for a job that
        # can get no more from it. All that jobs get beyond their tight planes comes from others.
        from_tight_planes, n_beside = _sides_of(network, cut, target)
        model.add_cut(from_tight_planes, n_beside)

        # The best amounts under all cuts are a bound, and an answer if a flow serves them.
        on_event(Tick("choices", n_rounds))
        n_rounds += 1
        outcome = model.solve(clock, ignore, seed=seed)
        least_left = max(least_left, outcome.lower_bound)
        if not outcome.optimal:
            return WholeChoice(best, least_left, outcome.limit)
        target = model.read(outcome)
        flow = network.serve(target)
        if (flow.served == target).all():
            return WholeChoice(flow, least_left, None)
        cut = flow.cut
        best = max(best, _leave_out_parts(network, flow, target), key=lambda f: f.served.sum())


def _sides_of(network: Network, cut: SupplyProof, target: Numbers) -> tuple[dict[int, int], int]:
    """Return the two sides of a cut: what tight planes give each job, and what other planes hold.

    ``cut.tight[job, plane]`` is 1 where a plane can give the job no more. The first result is, for
    each job that its tight planes cannot satisfy, how many resources they give at most; the second
    one is how many resources there are on the other planes that may serve one of these jobs.
    Together they bound what these jobs get. `target` are the amounts that the flow of this cut
    could not serve.
    """
    classes = network.problem.classes
    is_tight = cut.tight == 1
    if network.caps is None:
        from_tight_planes = np.zeros(len(is_tight), dtype=np.int64)
        is_held_back = ~is_tight[:, 0]
    else:
        from_tight_planes = (network.caps * is_tight).sum(axis=1)
        is_held_back = from_tight_planes < target

    # The resources on the other planes that may serve a job which its tight planes do not satisfy.
    is_open = is_held_back[:, None] & ~is_tight  # [job, plane]
    is_reached = (classes.jobs_of & is_open[:, classes.plane].T).any(axis=1)
    jobs = np.flatnonzero(is_held_back & (target > 0)).tolist()
    from_planes = {job: int(from_tight_planes[job]) for job in jobs}
    return from_planes, int(classes.sizes[is_reached].sum())

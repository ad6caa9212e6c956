"""Which jobs that take all or nothing are served: CP-SAT chooses, cuts of flows are its rules."""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from optmatch.model import Limit, Limits, OnEvent, Tick, ignore
from optmatch.problems import SupplyProof
from optmatch.solvers.cpsat import minimise
from optmatch.solvers.sharing.network import Network, Numbers


def choose_whole(
    network: Network,
    cut: SupplyProof,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> tuple[Numbers | None, float, Limit | None]:
    """Choose what each job gets, so that as little as possible is left.

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
    """Split a cut: what jobs get of planes that are counted at them; and the resources.

    Jobs of which that says no less than what they want take no part.
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

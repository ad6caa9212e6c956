"""Method `tms`: the traffic matrix scheduling of Mordia.

Farrington et al. (2012), Hunting mice with microsecond circuit switches,
doi 10.1145/2390231.2390244; Porter et al. (2013), doi 10.1145/2486001.2486007. The demand is
scaled to equal line sums (Sinkhorn), decomposed, and held for as long as its greatest line needs;
only the heaviest terms are kept. The rest, which the scaling leaves short, is covered heaviest
first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Limits, OnEvent, Solution
from optmatch.problems import Demand
from optmatch.solvers.demands.birkhoff import decompose
from optmatch.solvers.demands.greedy import cover_heaviest_first
from optmatch.solvers.demands.plans import Plan, join, serve, trim
from optmatch.solvers.demands.scheduling import Work, solve_demand
from optmatch.solvers.demands.stuffing import stuff

_ROUNDS = 100
_UNITS = 1 << 20  # the line sum of the scaled matrix


def solve(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve a demand by TMS.

    Parameters
    ----------
    problem, limits, rng, on_event
        As for every method. An iteration is a number of terms that are kept.
    """
    return solve_demand(problem, limits, rng, on_event, "tms", build)


def build(work: Work) -> Iterator[Plan]:
    """Yield plans for doubling numbers of terms, each completed by a cover of the rest."""
    demand = work.demand
    greatest = int(max(demand.sum(axis=0).max(), demand.sum(axis=1).max()))
    terms = decompose(stuff(_scale(demand), "least"), "weight")
    order = np.argsort(-terms.weights, kind="stable")
    shares = terms.weights[order] / terms.weights.sum()
    count = 1
    while True:
        kept = order[:count]
        held = np.maximum(np.ceil(shares[:count] * greatest).astype(np.int64), work.shortest)
        plan = Plan(terms.permutations[kept], held)
        left = np.maximum(demand - serve(plan), 0)
        if left.any():
            plan = join(plan, cover_heaviest_first(left, work.shortest))
        yield trim(plan, demand, work.shortest)
        if count >= len(order):
            return
        count *= 2


def _scale(demand: NDArray[np.int64]) -> NDArray[np.int64]:
    """Scale rows and columns in turn towards equal sums; stuffing repairs the rounding."""
    scaled = demand.astype(np.float64)
    for _ in range(_ROUNDS):
        for axis in (0, 1):
            sums = scaled.sum(axis=axis, keepdims=True)
            scaled /= np.where(sums > 0, sums, 1.0)
    return np.floor(scaled * _UNITS).astype(np.int64)

"""Method `double`: twice as many slots as ports, for at most twice the time.

Towles and Dally (2003), Guaranteed scheduling for switches with configuration overhead,
doi 10.1109/TNET.2003.818191: with the greatest line sum T, whole multiples of T / N become a
regular multigraph that N matchings decompose, and each remainder, shorter than T / N, meets one of
N fixed matchings that hold all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optmatch.model import Limits, OnEvent, Solution
from optmatch.problems import Demand
from optmatch.solvers.demands.colouring import colour
from optmatch.solvers.demands.plans import Plan, trim
from optmatch.solvers.demands.scheduling import Work, solve_demand
from optmatch.solvers.demands.stuffing import stuff


def solve(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve a demand by DOUBLE.

    Parameters
    ----------
    problem, limits, rng, on_event
        As for every method. There is one plan, so more iterations change nothing.
    """
    return solve_demand(problem, limits, rng, on_event, "double", build)


def build(work: Work) -> Iterator[Plan]:
    """Yield the plan, shortened where its slots are longer than needed."""
    demand = work.demand
    n = len(demand)
    greatest = int(max(demand.sum(axis=0).max(), demand.sum(axis=1).max()))
    unit = -(-greatest // n)
    whole = demand // unit
    matchings, ticks = [], []
    if whole.any():
        coarse = colour(stuff(whole, "least"))
        matchings.append(coarse.permutations)
        ticks.append(coarse.weights * unit)
    shifts = (np.arange(n)[:, None] + np.arange(n)[None]) % n
    matchings.append(shifts.astype(np.int32))
    ticks.append(np.full(n, unit, dtype=np.int64))
    held = np.maximum(np.concatenate(ticks), work.shortest)
    yield trim(Plan(np.concatenate(matchings), held), demand, work.shortest)

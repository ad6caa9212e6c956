"""Method `spectra`: few weighted matchings, spread over parallel switches by load, then equalised.

Liang, Qiao, Keslassy and Lin (2026), arXiv:2603.07373: Decompose, Schedule, Equalize. The last two
are `planes`, which every method uses; this one decomposes into as many matchings as the busiest
port has partners.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optmatch.model import Limits, OnEvent, Solution
from optmatch.problems import Demand
from optmatch.solvers.demands.exchange import exchange
from optmatch.solvers.demands.greedy import cover_by_busiest
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.scheduling import Work, solve_demand


def solve(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve a demand on parallel planes.

    Parameters
    ----------
    problem, limits, rng, on_event
        As for every method. There is one plan, so more iterations change nothing.
    """
    return solve_demand(problem, limits, rng, on_event, "spectra", build)


def build(work: Work) -> Iterator[Plan]:
    """Yield the plan for one plane; the frame spreads it."""
    plan = cover_by_busiest(work.demand, work.shortest)
    yield exchange(plan, work.demand, work.shortest)

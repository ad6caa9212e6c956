"""Methods `greedy-cover` and `koenig-cover`: each demand in one slot that is long enough."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optmatch.model import Limits, OnEvent, Solution
from optmatch.problems import Demand
from optmatch.solvers.demands.durations import shorten
from optmatch.solvers.demands.exchange import exchange
from optmatch.solvers.demands.greedy import cover_by_busiest, cover_heaviest_first
from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.demands.scheduling import Work, solve_demand


def solve_greedy(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve a demand heaviest first, each in the first slot that has room.

    Parameters
    ----------
    problem, limits, rng, on_event
        As for every method. There is one plan, so more iterations change nothing.
    """
    return solve_demand(problem, limits, rng, on_event, "greedy-cover", _greedy)


def solve_koenig(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve a demand in as few slots as the busiest port has partners.

    Circuits are exchanged between slots until like weights are together; durations are by an LP.

    Parameters
    ----------
    problem, limits, rng, on_event
        As for every method. There is one plan, so more iterations change nothing.
    """
    return solve_demand(problem, limits, rng, on_event, "koenig-cover", _koenig)


def _greedy(work: Work) -> Iterator[Plan]:
    yield cover_heaviest_first(work.demand, work.shortest)


def _koenig(work: Work) -> Iterator[Plan]:
    sorted_by_weight = exchange(
        cover_by_busiest(work.demand, work.shortest), work.demand, work.shortest
    )
    yield shorten(sorted_by_weight, work.demand, work.shortest)

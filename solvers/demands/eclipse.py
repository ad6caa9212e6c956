"""Method `eclipse`: the slot that serves the most volume for its time, again and again.

Venkatakrishnan, Alizadeh and Viswanath (2016), Costly circuits, submodular schedules and
approximate Caratheodory theorems, doi 10.1145/2896377.2901479; here until everything is served.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optmatch.model import Limits, OnEvent, Solution
from optmatch.problems import Demand
from optmatch.solvers.demands.covering import ECLIPSE, Rating, cover, new_desk
from optmatch.solvers.demands.greedy import cover_heaviest_first
from optmatch.solvers.demands.plans import Plan, join, trim
from optmatch.solvers.demands.scheduling import Work, solve_demand

_SLICE = 4  # slots between two looks at the clock
_LARGE = 128  # ports: from so many on, a look after every slot


def solve(
    problem: Demand, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Solve a demand by Eclipse's rule.

    Parameters
    ----------
    problem, limits, rng, on_event
        As for every method. There is one plan, so more iterations change nothing.
    """
    return solve_demand(problem, limits, rng, on_event, "eclipse", build)


def build(work: Work) -> Iterator[Plan]:
    """Yield the plan of the rule as published."""
    yield cover_by(work, ECLIPSE)


def cover_by(work: Work, rating: Rating, demand: np.ndarray | None = None) -> Plan:
    """Cover a demand by slots of the best rating; if time runs out, the rest heaviest first.

    Parameters
    ----------
    work
        Demand, delay and clock.
    rating
        What a slot is chosen for.
    demand
        What is to be covered, if not all of ``work.demand``; changed to what is left, nothing.
    """
    rest = work.demand.copy() if demand is None else demand
    n = len(rest)
    desk = new_desk(n)
    room = max(16, 4 * n)
    matchings = np.zeros((room, n), dtype=np.int32)
    ticks = np.zeros(room, dtype=np.int64)
    done, took_s = 0, 0.0
    while work.clock.remaining_s > took_s:
        began_s = work.clock.elapsed_s
        until = done + (_SLICE if n < _LARGE else 1)
        if until > len(ticks):
            matchings = np.concatenate([matchings, np.zeros_like(matchings)])
            ticks = np.concatenate([ticks, np.zeros_like(ticks)])
        found = cover(
            desk, rest, work.delay, rating, matchings[:until], ticks, done, work.shortest
        )
        done = int(found)
        took_s = work.clock.elapsed_s - began_s
        if not rest.any():
            break
    plan = Plan(matchings[:done].copy(), ticks[:done].copy())
    if rest.any():
        plan = join(plan, cover_heaviest_first(rest, work.shortest))
    return trim(plan, work.demand, work.shortest) if demand is None else plan

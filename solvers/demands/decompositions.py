"""Rules that decompose a matrix into weighted permutations: Solstice, TMS, and units of delays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optmatch.model import TimeUp, counted_time
from optmatch.solvers.demands.birkhoff import Terms, decompose, peel_terms, stuff
from optmatch.solvers.demands.first_fit import complete
from optmatch.solvers.demands.peeling import HALVING
from optmatch.solvers.demands.plans import Plan, hold_as_needed, trim
from optmatch.solvers.demands.tasks import CoverTask

_PROMISING = 1.25
"""A decomposition that is longer than useful by more than this factor is not tried with other
units: on demands of 48 to 192 ports the best unit saves at most a seventh over one delay
(``benchmarks/demand_constants.py decompositions._PROMISING 1.1 1.5 --ports 48 192``)."""
_ROUNDS = 100  # rounds of scaling rows and columns
_UNITS = 1 << 20  # the line sum of the scaled matrix


def hold_terms(terms: Terms, unit: int, task: CoverTask) -> Plan:
    """Make a plan of weighted permutations that serves the demand of a task.

    The permutations of `terms` become slots in their order, each as long as its weight times
    `unit` ticks, or shorter if the demand needs less. What these slots leave of the demand, a
    first fit serves in further ones.
    """
    ticks = terms.weights * unit
    hold_as_needed(task.demand.copy(), terms.permutations, ticks)
    plan = Plan(terms.permutations, np.maximum(ticks, task.shortest)).take(ticks > 0)
    return complete(plan, task)


def yield_solstice(task: CoverTask) -> Iterator[Plan]:
    """Stuff the demand, then take slots of halving thresholds: the heuristic Solstice (BigSlice).

    Liu et al. 2015, doi 10.1145/2716281.2836126.
    """
    terms = peel_terms(stuff(task.demand), HALVING, deadline=task.deadline)
    yield trim(hold_terms(terms, 1, task), task.demand, task.shortest)


def yield_in_delays(task: CoverTask) -> Iterator[Plan]:
    """Decompose after rounding entries up to whole units of time: one delay, then parts of it.

    Yields a plan for each unit, as long as they get shorter. Where half of a delay is no better
    than one delay, two delays and then four are tried instead.
    """
    best = _decompose_in_units(task, max(1, task.delay))
    yield best

    # Parts down to an eighth of a delay, which is 0 for a delay of few ticks; then multiples.
    # Plans that are far longer than useful (`_PROMISING`) end the search.
    for units in (
        [task.delay >> 1, task.delay >> 2, task.delay >> 3],
        [task.delay << 1, task.delay << 2],
    ):
        best_of_before = best
        for unit in units:
            is_hopeless = best.cost(task.delay) > _PROMISING * task.useful_ticks
            if unit == 0 or is_hopeless or counted_time() >= task.deadline:
                break
            plan = _decompose_in_units(task, unit)
            if plan.cost(task.delay) >= best.cost(task.delay):
                break
            best = plan
            yield best
        if best is not best_of_before:  # the parts have helped
            break


def _decompose_in_units(task: CoverTask, unit: int) -> Plan:
    """Make a schedule of the permutations into which a demand decomposes, in units of time.

    Entries are rounded up to multiples of `unit` ticks, so that fewer permutations add up to them,
    and raised until all rows and columns have the same sum (`stuff`). If the decomposition is not
    complete in time, `TimeUp` is raised where another plan is known; else a first fit serves what
    the permutations so far leave.
    """
    in_units = -(-task.demand // unit)  # rounded up
    terms = decompose(stuff(in_units), "bottleneck", deadline=task.deadline)
    if terms.residual.any() and task.useful_ticks < np.inf:
        raise TimeUp
    return hold_terms(terms, unit, task)


def yield_tms(task: CoverTask) -> Iterator[Plan]:
    """Scale the demand and keep the heaviest terms, as in Mordia (TMS).

    Porter et al. 2013, doi 10.1145/2486001.2486007. Yields a plan of the first term, then of twice
    as many each time; what they leave is served heaviest first.
    """
    # Rows and columns are scaled in turn towards equal sums (Sinkhorn), here towards `_UNITS` in
    # whole numbers; stuffing makes up for the rounding. Terms come with the heaviest first.
    scaled = task.demand.astype(np.float64)
    for _ in range(_ROUNDS):
        for axis in (0, 1):
            sums = scaled.sum(axis=axis, keepdims=True)
            scaled /= np.where(sums > 0, sums, 1.0)
    whole = np.floor(scaled * _UNITS).astype(np.int64)
    terms = decompose(stuff(whole), "bottleneck", deadline=task.deadline)

    # Plans of the heaviest terms.
    busiest = int(task.lines.ticks.max())
    shares = terms.weights / max(1, terms.weights.sum())
    count = 1
    while True:
        # Each term is held for its share of what the busiest line needs.
        ticks = np.ceil(shares[:count] * busiest).astype(np.int64)
        terms_held = Plan(terms.permutations[:count], np.maximum(ticks, task.shortest))
        yield trim(complete(terms_held, task), task.demand, task.shortest)
        if count >= len(shares) or counted_time() >= task.deadline:
            return
        count *= 2

"""Covers after papers: `solstice`, `eclipse`, `tms`, `spectra`, and two by heaviness.

Each is a function that yields plans; `solve_demand` is the frame of all of them.

A *cover* is a plan that serves every entry for as long as it needs; circuits may be up for longer.
Each function takes a `CoverTask` with the demand in ticks, and yields one plan or several.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from optmatch.model import counted_time
from optmatch.solvers.demands.assignment import assign_afresh, new_workspace
from optmatch.solvers.demands.birkhoff import decompose, stuff
from optmatch.solvers.demands.covering import (
    ECLIPSE,
    RatedTerms,
    Rating,
    complete,
    cover,
)
from optmatch.solvers.demands.entries import UNLIMITED_WORK
from optmatch.solvers.demands.first_fit import cover_heaviest_first
from optmatch.solvers.demands.plans import Plan, trim
from optmatch.solvers.demands.quick_rules import cover_critical_lines
from optmatch.solvers.demands.scheduling import CoverTask, solve_demand
from optmatch.solvers.method import Run

_SLICE_S = 0.003
"""A kernel of ratings runs about so long between two looks at the clock."""

_WORK_PER_S = 1.5e8
"""Places of a matrix that kernels look at in a second; 1.5 to 5e8 were measured."""

_ROUNDS = 100  # rounds of scaling rows and columns
_UNITS = 1 << 20  # the line sum of the scaled matrix


def yield_solstice(work: CoverTask) -> Iterator[Plan]:
    """Stuff the demand, then take slots of halving thresholds (BigSlice).

    A cover is a list of slots, matchings that are held for some ticks, that serves the demand.
    Stuffing raises entries until all lines have one sum.

    Liu, Mukerjee et al. (2015), Scheduling techniques for hybrid circuit/packet networks, CoNEXT,
    doi 10.1145/2716281.2836126. The plan goes on here until everything is served, or packets take
    the rest.

    Parameters
    ----------
    work
        The demand in ticks, the shortest slot, and the clock.

    Yields
    ------
    Plan
        One cover. If time runs out before everything is served, `complete` adds the slots that are
        missing.
    """
    # All numbers are of the stuffed demand, whose lines have one sum: a perfect matching of its
    # entries exists at each step, at the latest with a threshold of 1.
    unserved = stuff(work.demand)
    n = len(unserved)
    ports = np.arange(n)
    space = new_workspace(n)
    threshold = 1 << (int(unserved.max()).bit_length() - 1)
    matchings: list[NDArray[np.int32]] = []
    ticks: list[int] = []
    while unserved.any() and work.clock.remaining_s > 0:
        # A perfect matching of entries of at least the threshold has the value n, each worth 1.
        if assign_afresh(space, unserved >= threshold) < n - 0.5:
            threshold = max(1, threshold // 2)
            continue
        matching = space.column_of.astype(np.int32)
        length = int(unserved[ports, matching].min())
        unserved[ports, matching] -= length
        matchings.append(matching)
        ticks.append(max(length, work.shortest))
    plan = complete(Plan.of(matchings, ticks, n), work.demand, work.shortest)
    yield trim(plan, work.demand, work.shortest)


def yield_eclipse(work: CoverTask) -> Iterator[Plan]:
    """Take the slot that serves the most volume for its time, again and again: the method Eclipse.

    Venkatakrishnan, Alizadeh and Viswanath (2016), Costly circuits, submodular schedules and
    approximate Caratheodory theorems, doi 10.1145/2896377.2901479; until everything is served.

    Parameters
    ----------
    work
        The demand in ticks, delay, shortest slot and the clock.

    Yields
    ------
    Plan
        One cover.
    """
    yield cover_by(work, ECLIPSE)


def cover_by(work: CoverTask, rating: Rating, demand: NDArray[np.int64] | None = None) -> Plan:
    """Serve a demand by slots, each the best for its time; if time runs out, the rest quickly.

    A slot is a matching of sources with destinations that is held for some ticks, after a delay.
    Its rating is what it serves, divided by its time. Service of busy ports may count more, and
    each finished demand may earn a bonus: `rating` says how.

    When the clock ends, the demand that is left is served by a quick rule, heaviest first.

    Parameters
    ----------
    work
        Delay, shortest slot, and the clock.
    rating
        How slots are compared.
    demand
        ``demand[source, destination]``, the ticks to be served, shape (n, n). None for all of
        the demand of `work`; then slots are also trimmed of ticks that no demand needs.

    Returns
    -------
    Plan
        Slots that serve the whole of it.
    """
    is_whole = demand is None
    if demand is None:
        demand = work.demand
    unserved = demand.copy()
    n = len(demand)
    space = new_workspace(n)
    terms = RatedTerms(work.delay, work.shortest, rating)
    n_room = max(16, 4 * n)
    matchings = np.zeros((n_room, n), dtype=np.int32)
    ticks = np.zeros(n_room, dtype=np.int64)

    # The kernel makes a few slots at a time, as many as fit between two looks at the clock. Slots
    # up to `done` are made, and those up to `until` are made by the next call.
    done = 0
    took_s = 0.0
    until = 1
    while unserved.any() and work.clock.remaining_s > took_s:
        # Room for twice as many slots.
        if until > len(ticks):
            matchings = np.concatenate([matchings, np.zeros_like(matchings)])
            ticks = np.concatenate([ticks, np.zeros_like(ticks)])
        began_s = work.clock.elapsed_s

        # The kernel has no clock: it gets as many steps as fit in the time that is left.
        space.work[0] = int(min(UNLIMITED_WORK, work.clock.remaining_s * _WORK_PER_S))
        before = done
        done = int(cover(space, unserved, terms, matchings[:until], ticks, done))

        # The time is up: the slots so far count, and the rest is covered heaviest first.
        if space.work[0] < 0:
            break

        # The next call makes as many slots as take about `_SLICE_S` seconds, 16 at most.
        took_s = work.clock.elapsed_s - began_s
        slots_at_once = (done - before) * _SLICE_S / max(took_s, 1e-6)
        until = done + int(np.clip(slots_at_once, 1, 16))
    plan = complete(Plan(matchings[:done].copy(), ticks[:done].copy()), demand, work.shortest)
    return trim(plan, demand, work.shortest) if is_whole else plan


def yield_tms(work: CoverTask) -> Iterator[Plan]:
    """Scale the demand and keep the heaviest terms, as in Mordia (TMS).

    A term of a decomposition is a permutation with its weight; a cover is a list of slots,
    matchings that are held for some ticks, that serves the demand.

    Farrington et al. (2012), Hunting mice with microsecond circuit switches,
    doi 10.1145/2390231.2390244; Porter et al. (2013), doi 10.1145/2486001.2486007. The demand is
    scaled to equal line sums (Sinkhorn), decomposed, and held for as long as its greatest line
    needs. There is a plan for each doubling of the number of terms; the rest of each is covered.

    Parameters
    ----------
    work
        The demand in ticks, the shortest slot and the clock: when the time is up, the terms so far
        are all that there are.

    Yields
    ------
    Plan
        Covers of 1, 2, 4, ... terms and the slots that complete them, trimmed. One at least.
    """
    demand = work.demand
    greatest = int(max(demand.sum(axis=0).max(), demand.sum(axis=1).max()))
    deadline = None
    if work.clock.remaining_s < np.inf:
        deadline = counted_time() + work.clock.remaining_s
    terms = decompose(stuff(_scale(demand)), deadline=deadline)  # the heaviest first
    shares = terms.weights / max(1, terms.weights.sum())
    count = 1
    while True:
        # Each term is held for its share of what the busiest line needs.
        ticks = np.ceil(shares[:count] * greatest).astype(np.int64)
        terms_held = Plan(terms.permutations[:count], np.maximum(ticks, work.shortest))
        plan = complete(terms_held, demand, work.shortest)
        yield trim(plan, demand, work.shortest)
        if count >= len(shares) or work.clock.remaining_s <= 0:
            return
        count *= 2


def _scale(demand: NDArray[np.int64]) -> NDArray[np.int64]:
    """Scale rows and columns in turn towards equal sums (Sinkhorn); stuffing repairs the rounding.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, shape (n, n).

    Returns
    -------
    ndarray, shape (n, n)
        Whole numbers of which the lines with a demand have sums of about `_UNITS`.
    """
    scaled = demand.astype(np.float64)
    for _ in range(_ROUNDS):
        for axis in (0, 1):
            sums = scaled.sum(axis=axis, keepdims=True)
            scaled /= np.where(sums > 0, sums, 1.0)
    return np.floor(scaled * _UNITS).astype(np.int64)


def yield_spectra(work: CoverTask) -> Iterator[Plan]:
    """Take as many matchings as the busiest port has partners, like weights together (SPECTRA).

    Liang, Qiao, Keslassy and Lin (2026), arXiv:2603.07373: Decompose, Schedule, Equalize. The last
    two steps, which spread slots over parallel planes, are those of all methods (`spread`).

    Parameters
    ----------
    work
        The demand in ticks, and the shortest slot.

    Yields
    ------
    Plan
        One cover, trimmed of what the demand does not need.
    """
    plan = cover_critical_lines(work.demand, work.shortest)
    yield trim(plan, work.demand, work.shortest)


def yield_greedy(work: CoverTask) -> Iterator[Plan]:
    """Put each demand, heaviest first, into the first slot that has room."""
    yield cover_heaviest_first(work.demand, work.shortest)


COVERS: dict[str, Run] = {
    name: partial(solve_demand, name=name, build=build)
    for name, build in {
        "solstice": yield_solstice,
        "eclipse": yield_eclipse,
        "greedy-cover": yield_greedy,
        "tms": yield_tms,
        "spectra": yield_spectra,
    }.items()
}
"""The methods by name. An iteration is a plan; all but `tms` have one, so more change nothing."""

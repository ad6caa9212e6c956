"""Plans of slots that join bidirectional ports in pairs, on a switch that holds every pairing.

A demand of bidirectional ports is a graph: an edge for each pair, as long as the larger of both
directions. Slots of equal length would be its edge colouring (Vizing); here edges have lengths,
and a slot lasts as long as its longest.

A *pair* is two ports that need a circuit; a *pairing* is a matching of bidirectional ports, in
which ``matching[port]`` is the partner of a port and the partner's partner is the port itself. A
plan *divides* a pair if several slots serve it. To *trim* a plan is to shorten its slots by what
no pair needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, counted_time
from optmatch.problems import Demand
from optmatch.solvers.demands.plans import Plan, best_length, join, serve, trim
from optmatch.solvers.demands.portfolio import yield_plans
from optmatch.solvers.demands.realisable import shorten
from optmatch.solvers.demands.tasks import CoverTask
from optmatch.solvers.kernels.decorators import kernel

_REBUILDS_EACH_MOVE = 20
"""Rebuilds for each move of the task if there is no limit: 2,000 by default, which takes some
seconds for 64 ports."""

_WORSE = 0.01
"""A rebuilt plan that is so much longer than the best one, as a share, is still gone on from."""

_DIVIDING = 0.3
"""How many of the rebuilds may serve a pair in several slots."""

_SHARE_OF_RULES = 0.25
"""The search for plans of any matchings has this part of the time: `ilp`, which makes such plans
in a quarter of it, is then no better (it was up to 3 % without;
``benchmarks/demand_constants.py pairings._SHARE_OF_RULES 0.1 0.5 --kind pairs``)."""
_MOST_SHORTENED = 100
"""Slots: the linear programme that shortens them takes some milliseconds for so many."""


class _Pairs(NamedTuple):
    """The pairs that have something to carry; all arrays have the shape (pairs,)."""

    first: NDArray[np.int64]
    """The port of the lower number."""
    second: NDArray[np.int64]
    """The other port."""
    ticks: NDArray[np.int64]
    """How long the pair needs its circuit, > 0."""

    @classmethod
    def of(cls, demand: NDArray[np.int64]) -> _Pairs:
        """List each pair of a symmetric demand once."""
        first, second = np.nonzero(np.triu(demand))
        return cls(first, second, demand[first, second])


def suits(problem: Demand) -> bool:
    """Tell whether a switch holds every way to join its ports in pairs."""
    return problem.fabric.graph is None and problem.fabric.bidirectional


def rebuild_pairings(task: CoverTask) -> Iterator[Plan]:
    """Make plan after plan for ports that are joined in pairs, each from a plan before it.

    A pair needs a number of ticks, which it gets in one slot, or divided between several. The
    first plans put each pair, the longest first, into the slot that it lengthens least, or into a
    new one.

    Then follows a large neighbourhood search. From 2 to 8 slots are taken out of the plan. The
    pairs that now lack ticks are put into slots that stay or into new ones, the longest first,
    with some noise in this order. The new plan is the next one to be changed if its cost (ticks,
    with a delay for each slot) is at most a little above the best.
    """
    # With a limit of time, plans of any matchings come first, by all rules, for a part of it.
    demand = task.demand
    if task.deadline < np.inf:
        now_s = counted_time()
        part_s = _SHARE_OF_RULES * (task.deadline - now_s)
        yield from yield_plans(task._replace(deadline=now_s + part_s))

    # Three plans to begin with: first fit, the same with durations by a linear programme, and one
    # whose slots may divide pairs. The search goes on from the shorter of the last two.
    plan = first_fit(_Pairs.of(demand), Plan.of([], [], len(demand)), task, noise=0.0)
    yield plan
    plan = shorten(plan, demand, task.shortest)
    yield plan
    divided = trim(cover_dividing(demand.copy(), task, noise=0.0), demand, task.shortest)
    yield divided
    plan = min(plan, divided, key=lambda plan: plan.cost(task.delay))
    best_cost = plan.cost(task.delay)

    # With a limit (`n_moves` is None) the search goes on until nobody takes its plans any more.
    rebuilds: Iterable[int] = count()
    if task.n_moves is not None:
        rebuilds = range(_REBUILDS_EACH_MOVE * task.n_moves)
    for _ in rebuilds:
        # A single slot leaves nothing to rebuild.
        if len(plan.ticks) < 2:
            return

        # From 2 to 8 slots are taken out, whichever; the others may serve a part of what these
        # did.
        n_out = int(task.rng.integers(2, max(3, min(len(plan.ticks), 8)) + 1))
        is_kept = np.ones(len(plan.ticks), dtype=np.bool_)
        is_kept[task.rng.permutation(len(plan.ticks))[:n_out]] = False
        staying = plan.take(is_kept)
        unserved = np.maximum(demand - serve(staying), 0)
        noise = float(task.rng.choice([0.05, 0.3, 1.0]))
        if task.rng.random() < _DIVIDING:
            rebuilt = trim(
                join(staying, cover_dividing(unserved, task, noise)), demand, task.shortest
            )
        else:
            rebuilt = first_fit(_Pairs.of(unserved), staying, task, noise)

        # The linear programme takes longer than a rebuild, and is kept for new best plans.
        cost = rebuilt.cost(task.delay)
        if cost < best_cost and len(rebuilt.ticks) <= _MOST_SHORTENED:
            rebuilt = shorten(rebuilt, demand, task.shortest)
            cost = rebuilt.cost(task.delay)

        # The cube makes small excesses likely and large ones rare.
        if cost <= best_cost * (1 + _WORSE * task.rng.random() ** 3):
            plan = rebuilt
            best_cost = min(best_cost, cost)
        yield rebuilt


def cover_dividing(unserved: NDArray[np.int64], task: CoverTask, noise: float) -> Plan:
    """Make slots one after another, which may end before their pairs have had all they need.

    Uses up ``unserved[port, port]``, the ticks that pairs lack, which is symmetric; it is 0 at the
    end. Each slot takes the longest pairs whose ports are free. To the ticks of a pair a random
    number is added for that: normal, with the standard deviation `noise` times the mean ticks of
    all pairs. The length of a slot is the one of highest rate (`best_length`), which counts the
    ticks served and a bonus for each pair that is completed. A pair may thus be divided between
    several slots.
    """
    matchings: list[NDArray[np.int32]] = []
    ticks: list[int] = []
    while unserved.any():
        pairs = _Pairs.of(unserved)
        unit = noise * float(pairs.ticks.mean())
        rank = pairs.ticks + unit * task.rng.standard_normal(len(pairs.ticks))
        matching = np.full(len(unserved), IDLE, dtype=np.int32)
        _pair_greedily(pairs, np.argsort(-rank, kind="stable"), matching)

        is_joined = matching[pairs.first] == pairs.second
        needed = pairs.ticks[is_joined]
        length = best_length(needed, task.delay, task.shortest)

        # Take the service off, the same in both directions.
        first = pairs.first[is_joined]
        second = pairs.second[is_joined]
        unserved[first, second] -= np.minimum(needed, length)
        unserved[second, first] = unserved[first, second]
        matchings.append(matching)
        ticks.append(length)
    return Plan.of(matchings, ticks, len(unserved))


@kernel
def _pair_greedily(pairs, order, matching):
    """Join the ports of each pair, in an order, if both are free.

    `order` lists numbers of pairs, whose ports are ``pairs.first[pair]`` and
    ``pairs.second[pair]``. Writes ``matching[port]``, the partner, which is IDLE (-1) before.
    """
    for pair in order:
        first = pairs.first[pair]
        second = pairs.second[pair]
        if matching[first] == IDLE and matching[second] == IDLE:
            matching[first] = second
            matching[second] = first


def first_fit(pairs: _Pairs, base: Plan, task: CoverTask, noise: float) -> Plan:
    """Put pairs, the longest first, into the slots that they lengthen least, or into new ones.

    A slot is free for a pair if it holds neither port. The slots of `base` stay and may become
    longer; at the end all slots are trimmed to what the demand of the task needs. Pairs are ranked
    by their ticks and a normal random number, whose standard deviation is `noise` times the sum of
    a delay and the mean of all pairs: with 0 the longest come first.
    """
    unit = task.delay + float(pairs.ticks.mean()) if len(pairs.ticks) else 1.0
    rank = pairs.ticks + noise * unit * task.rng.standard_normal(len(pairs.ticks))
    order = np.argsort(-rank, kind="stable")
    n_slots = len(base.ticks) + len(order)
    matchings = np.full((n_slots, len(task.demand)), IDLE, dtype=np.int32)
    ticks = np.zeros(n_slots, dtype=np.int64)
    matchings[: len(base.ticks)] = base.matchings
    ticks[: len(base.ticks)] = base.ticks

    longest_first = _Pairs(pairs.first[order], pairs.second[order], pairs.ticks[order])
    _fit_pairs(longest_first, matchings, ticks, len(base.ticks), task.delay)
    is_used = ticks > 0
    plan = Plan(matchings, np.maximum(ticks, task.shortest)).take(is_used)
    return trim(plan, task.demand, task.shortest)


@kernel
def _fit_pairs(pairs, matchings, ticks, n_slots, delay):
    """Put each pair into the slot that it lengthens least, or into a new one.

    A pair is two bidirectional ports, ``pairs.first[pair]`` and ``pairs.second[pair]``, that need
    a circuit for ``pairs.ticks[pair]``. Changes ``matchings[slot, port]``, the partner or -1, and
    ``ticks[slot]``, of which the first `n_slots` are in use before; both have room for a slot more
    for each pair. A slot lasts as long as its longest pair; a new one costs `delay` ticks besides.
    """
    for pair in range(len(pairs.ticks)):
        first = pairs.first[pair]
        second = pairs.second[pair]
        needed = pairs.ticks[pair]

        # A new slot costs a delay and its whole length; it is the choice to beat.
        best_slot = n_slots
        least_growth = needed + delay
        for slot in range(n_slots):
            if matchings[slot, first] != IDLE or matchings[slot, second] != IDLE:
                continue
            growth = max(0, needed - ticks[slot])
            if growth < least_growth:
                best_slot = slot
                least_growth = growth
                if growth == 0:
                    break

        # None is lengthened by less than a new slot costs.
        if best_slot == n_slots:
            n_slots += 1
        matchings[best_slot, first] = second
        matchings[best_slot, second] = first
        ticks[best_slot] = max(ticks[best_slot], needed)

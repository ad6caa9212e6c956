"""Offers: plans that are known by their time before they are made.

A formula, or a short simulation, promises the seconds of a plan; only plans with the least
promises are laid out. A promise is never more than the plan takes: late ranks and circuits that
have to be set up first only make it longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from optmatch.model import RTOL, Clock, Limit, TimeUp
from optmatch.solvers.collectives.plans import Laid
from optmatch.solvers.collectives.rounds import (
    MOST_OFFERED_SENDS,
    QUICK_SENDS,
    SENDS_PER_S,
    is_affordable,
)


class HasTime(Protocol):
    """A plan that knows how long it takes."""

    @property
    def time_s(self) -> float:
        """Infinity if there is no plan."""


Plan = TypeVar("Plan", bound=HasTime)


class NotHeld(Exception):
    """The fabric has no routes for the circuits of a plan."""


class Offer(NamedTuple, Generic[Plan]):
    """A plan that can be made; its time and its size are known before."""

    seconds: float
    """The promised time of the plan, in seconds; the plan takes no less."""
    n_sends: float
    """The work of making it, in sends: to lay out a plan takes ``n_sends / SENDS_PER_S`` seconds.
    A search states how many sends would be laid out in its time."""
    name: str
    """The name of its circuits, for statistics; or of the method that finds it."""
    build: Callable[[], Plan]
    """Makes the plan, with all its sends and circuits, when it is called; raises `NotHeld` if the
    fabric does not hold the circuits."""


RESERVE = 1.5
"""The search for offers ends when the time left is this multiple of what the best one takes."""


def try_offers(
    offers: list[Offer[Plan]],
    clock: Clock,
    left_out: list[Offer[Plan]],
    below_s: float,
    *,
    has_plan: bool = False,
) -> Iterator[tuple[str, Plan]]:
    """Build offers in their order, and yield the names and plans of those that have a plan.

    As long as there is no plan, every offer is built; `has_plan` tells whether there is one at
    first. Afterwards an offer is passed over if it promises no less than `below_s` seconds, or
    than a plan before it (up to `RTOL`), and is added to `left_out` if there is not enough time
    for it. Plans without a time, and those that the fabric does not hold, are dropped.

    Once there is a plan, an interrupt or the end of the time ends the tries: the former sets
    ``clock.interrupted``, the latter adds all other offers to `left_out`. Without a plan both are
    raised.
    """
    for number, offer in enumerate(offers):
        # What cannot be the fastest is passed over, and so is what there is no time for.
        if has_plan and offer.seconds >= below_s * (1 - RTOL):
            continue
        if has_plan and offer.n_sends > SENDS_PER_S * clock.remaining_s:
            left_out.append(offer)
            continue

        try:
            plan = offer.build()
        except (KeyboardInterrupt, TimeUp) as stop:
            if not has_plan:
                raise
            if isinstance(stop, TimeUp):
                left_out += offers[number:]
            else:
                clock.interrupted = True
            return
        except NotHeld:
            continue

        # Later offers compete with this plan, if there is one.
        if math.isfinite(plan.time_s):
            has_plan = True
            below_s = min(below_s, plan.time_s)
            yield offer.name, plan


class TakenOffer(NamedTuple):
    """The fastest plan of some offers, and whether one that was not made may be faster."""

    laid: Laid | None
    """The plan; None if there is none."""
    name: str
    """The name of its offer, "" without a plan."""
    limit: Limit | None
    """What kept a promise of less out: `TIME` or `MEMORY`, or an interrupt; else None."""


def take_best_offer(
    offers: Iterable[Offer[Laid]], clock: Clock, below_s: float = math.inf
) -> TakenOffer:
    """Build the offers with the least promises, until no other one can be faster.

    There is no plan if none takes less than `below_s` seconds, the time of a plan that is known,
    or if all are too large for the memory.

    The search for offers ends early when `clock` has no time left, or only as much as it takes to
    lay out the best offer so far. Ctrl-C ends it, too, and the best one so far is built; it is
    raised again if there is no offer yet, or if `below_s` is finite, as a plan is known then.

    Example: offers of 3, 5 and 6 s. The first one is built, and its plan takes 5.5 s, as a rank is
    late. The second one is built, too, as it may take 5 s; the third one cannot be faster.
    """
    # Offers of less than `below_s` seconds for which there are time and memory are collected, the
    # least promise first.
    waiting = list[Offer[Laid]]()
    smallest: Offer[Laid] | None = None  # the one of fewest sends, if memory holds them
    most_late_s = 0.0  # the seconds that it takes to be made
    too_late_s = math.inf  # the least promise of those for which there is no time
    too_large_s = math.inf  # and of those for which there is no memory
    try:
        for offer in offers:
            has_memory = offer.n_sends <= MOST_OFFERED_SENDS
            if has_memory and (smallest is None or offer.n_sends < smallest.n_sends):
                smallest = offer
                most_late_s = offer.n_sends / SENDS_PER_S

            # It has to be of use, and to fit into the memory and into the time. Time is not asked
            # for if it has no more sends than the best offer so far, which would be laid out in
            # its place; nor, while there is none, if it has few (`QUICK_SENDS`).
            most_sends = waiting[0].n_sends if waiting else QUICK_SENDS
            is_quick = offer.n_sends <= most_sends
            if not has_memory:
                too_large_s = min(too_large_s, offer.seconds)
            elif not is_quick and not is_affordable(offer.n_sends, clock, reserve=RESERVE):
                too_late_s = min(too_late_s, offer.seconds)
            elif offer.seconds < below_s * (1 - RTOL):
                waiting.append(offer)
                waiting.sort(key=lambda offer: (offer.seconds, offer.n_sends))

            # No more offers are looked for when there is just time to lay out the best one. That
            # is told like a `TimeUp` that `offers` raise themselves: offers were not seen.
            if waiting and not is_affordable(waiting[0].n_sends, clock, reserve=RESERVE):
                raise TimeUp("the time that is left is that of the best offer")

            # When the time is over the search ends. Without any plan the smallest offer is made
            # all the same: a smaller one is then looked for as long as that would take.
            is_late = clock.now() >= clock.deadline_s + most_late_s
            if clock.remaining_s <= 0.0 and (is_late or clock.stopped or math.isfinite(below_s)):
                break
    except TimeUp:
        too_late_s = 0.0  # offers that were not seen may promise anything
    except KeyboardInterrupt:
        if smallest is None or math.isfinite(below_s):
            raise
        clock.interrupted = True

    # Without a plan any will do: the one that is made soonest.
    if not waiting and smallest is not None and math.isinf(below_s):
        waiting.append(smallest)

    # Least promises first: no offer is built that promises more than a plan that is there takes.
    unbuilt: list[Offer[Laid]] = []
    best: Laid | None = None
    best_name = ""
    for name, laid in try_offers(waiting, clock, unbuilt, below_s):
        if laid.time_s < below_s:
            best = laid
            best_name = name
            below_s = laid.time_s

    # Which limit has kept out an offer that promises less than the plan takes.
    limit = clock.exceeded(0)
    too_late_s = min([too_late_s, *(offer.seconds for offer in unbuilt)])
    useful_s = below_s * (1 - RTOL)
    if limit is None and too_late_s < useful_s:
        limit = Limit.TIME
    elif limit is None and too_large_s < useful_s:
        limit = Limit.MEMORY
    return TakenOffer(best, best_name, limit)

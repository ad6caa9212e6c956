"""Offers: plans that are known by their time before they are made.

A formula, or a short simulation, promises the seconds of a plan; only plans with the least
promises are laid out. A promise is never more than the plan takes: late ranks and circuits that
have to be set up first only make it longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from optmatch.model import RTOL, Clock
from optmatch.solvers.collectives.plans import Laid
from optmatch.solvers.collectives.rounds import QUICK_SENDS, is_affordable


class Offer(NamedTuple):
    """A plan that can be made; its time and its size are known before."""

    seconds: float
    """The promised time of the plan, in seconds; the plan takes no less."""
    n_sends: int
    """How many sends it has, but for detours of an all-to-all; laying them out takes most of the
    time of a search."""
    name: str
    """The name of its circuits, for statistics."""
    build: Callable[[], Laid]
    """Makes the plan, with all its sends and circuits, when it is called."""


RESERVE = 1.5
"""The search for offers ends when so many times is left as the best one takes to be laid out."""


def take_best_offer(
    offers: Iterable[Offer], clock: Clock, below_s: float = math.inf
) -> tuple[Laid | None, str]:
    """Build the offers with the least promises, until no other one can be faster.

    Returns the fastest plan and the name of its offer; None and "" if no plan takes less than
    `below_s` seconds.
    """
    # Collect offers that may be fast enough, and one of few sends however short the time is.
    # Finding them takes time as well: it ends when there is just time left to lay out the best
    # one.
    waiting = list[Offer]()
    promised: Offer | None = None  # the first one with the least promise
    for offer in offers:
        is_quick = not waiting and offer.n_sends <= QUICK_SENDS
        has_time = is_quick or is_affordable(offer.n_sends, clock, reserve=RESERVE)
        if has_time and offer.seconds < below_s * (1 - RTOL):
            waiting.append(offer)
            if promised is None or offer.seconds < promised.seconds:
                promised = offer
        if promised is not None and not is_affordable(promised.n_sends, clock, reserve=RESERVE):
            break
    # Least promises first: once the next promise is no less than the time of a plan that was laid
    # out, no other offer can be faster.
    waiting.sort(key=lambda offer: (offer.seconds, offer.n_sends))
    best: Laid | None = None
    best_name = ""
    for offer in waiting:
        if offer.seconds >= below_s * (1 - RTOL):
            break
        if best is not None and not is_affordable(offer.n_sends, clock):
            continue

        # Its time may be longer than the offer said.
        laid = offer.build()
        if laid.plan.time_s < below_s:
            best = laid
            best_name = offer.name
            below_s = laid.plan.time_s
    return best, best_name

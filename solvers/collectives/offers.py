"""Offers: plans that are known by their time before they are made.

A formula, or a short simulation, promises the seconds of a plan; only plans with the least promises
are laid out. A promise is never more than the plan takes: late ranks and circuits that have to be
set up first only make it longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from optmatch.model import RTOL, Clock
from optmatch.solvers.collectives.plans import Laid


class Offer(NamedTuple):
    """A plan that can be made."""

    seconds: float
    """The promised time of the plan."""
    n_sends: int
    """How many sends it has; laying them out takes most of the time of a search."""
    name: str
    build: Callable[[], Laid]


MOST_OFFERED_SENDS = 1 << 24
"""Plans of more sends are not offered; laying out a million takes about a second."""


def take_best_offer(
    offers: Iterable[Offer], clock: Clock, below_s: float = math.inf
) -> tuple[Laid | None, str]:
    """Build the offers with the least promises, until no other one can be faster.

    Parameters
    ----------
    offers
        All that there are. They are looked at while there is time.
    clock
        When it has run out, the best so far is returned; the first plan is built in any case.
    below_s
        Only plans faster than that are of use.

    Returns
    -------
    The fastest plan and its name; None if no offer is fast enough.
    """
    waiting = []
    for offer in offers:
        if offer.n_sends <= MOST_OFFERED_SENDS:
            waiting.append(offer)
        if waiting and clock.exceeded(0) is not None:
            break
    waiting.sort(key=lambda offer: (offer.seconds, offer.n_sends))
    best: Laid | None = None
    best_name = ""
    for offer in waiting:
        if offer.seconds >= below_s * (1 - RTOL):
            break
        laid = offer.build()
        if laid.plan.time_s < below_s:
            best, best_name = laid, offer.name
            below_s = laid.plan.time_s
        if clock.exceeded(0) is not None:
            break
    return best, best_name

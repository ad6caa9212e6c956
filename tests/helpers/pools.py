"""Small pools of devices, and policies to try on them."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from optmatch.simulation.sharing.pool import Pool
from optmatch.simulation.sharing.replay import Moment


def first_come(now: Moment) -> np.ndarray:
    """By the time of the first request."""
    return -now.asked_s


def at_random(now: Moment) -> np.ndarray:
    """By the draw of the request."""
    return now.draws


def fewest_first(now: Moment) -> np.ndarray:
    """By what a round still wants."""
    return -now.residual.astype(np.float64)


def choosy(now: Moment) -> np.ndarray:
    """Odd classes serve the last jobs first, and the first job only of a pair."""
    priority = (
        np.arange(len(now.demand)) * np.where(np.arange(len(now.tier)) % 2, 1.0, -1.0)[:, None]
    )
    priority[::2, ::2] = -np.inf
    return priority


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """Small pools, with whole numbers as times, so that events often meet."""
    devices, jobs, classes = draw(st.integers(1, 25)), draw(st.integers(1, 4)), 3
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    eligible = rng.integers(0, 2, (classes, jobs))
    class_of = rng.integers(0, classes, devices)
    eligible[class_of[0]] = 1
    arrival_s = np.sort(rng.integers(0, 20, devices)).astype(np.float64)
    fields: dict[str, Any] = {"tier": [0] * classes, "class_of": class_of, "eligible": eligible}
    return Pool(
        **fields,
        arrival_s=arrival_s,
        departure_s=arrival_s + rng.integers(1, 15, devices),
        response_s=rng.integers(1, 8, devices).astype(np.float64),
        asked_s=rng.integers(0, 10, jobs).astype(np.float64),
        demand=rng.integers(1, 5, jobs),
        rounds=rng.integers(1, 4, jobs),
        deadline_s=rng.integers(3, 20, jobs).astype(np.float64),
        period_s=draw(st.sampled_from([0.0, 20.0])),
    )

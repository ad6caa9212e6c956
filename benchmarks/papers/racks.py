"""Slices that come to racks and leave them: what the scripts on LUMION and Morphlux share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.problems import SliceShape
from optmatch.problems.slices.shape import Shape, cut_shape, orient

SHAPES: tuple[Shape, ...] = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4))
"""The slices of Morphlux, each of which comes as often as the others."""


class Arrival(NamedTuple):
    """A request for a slice; the mean of all durations is the unit of time."""

    time: float
    shape: Shape
    duration: float


def cut_all(fabric: RackFabric, shape: Shape) -> list[SliceShape]:
    """Return a slice in each way to turn it, cut into servers."""
    return [cut_shape(turned, fabric.server) for turned in orient(fabric, shape)]


def write_shape(shape: Shape) -> str:
    """Write a shape as 2x2x4."""
    return "x".join(map(str, shape))


def draw_arrivals(
    fabric: RackFabric, count: int, rng: np.random.Generator, load: float = 0.8
) -> list[Arrival]:
    """Draw a Poisson process of requests that ask for this part of all servers at a time."""
    sizes = [cut_all(fabric, shape)[0].n_slots for shape in SHAPES]
    # Little's law: servers in use = rate * mean servers of a request * mean stay, which is 1.
    weights = np.full(len(SHAPES), 1 / len(SHAPES))
    rate = load * fabric.n_servers / float(weights @ sizes)
    times = np.cumsum(rng.exponential(1 / rate, count)).tolist()
    kinds = rng.choice(len(SHAPES), size=count, p=weights).tolist()
    stays = rng.exponential(1.0, count).tolist()
    return [
        Arrival(time, SHAPES[kind], stay)
        for time, kind, stay in zip(times, kinds, stays, strict=True)
    ]


def write_mean(values: Sequence[float], unit: float = 1.0, digits: int = 1) -> str:
    """Write the mean of independent runs and half the width of its 95 % interval (Student's t)."""
    mean = math.fsum(values) / len(values)
    text = f"{unit * mean:.{digits}f}"
    if len(values) == 1 or len(set(values)) == 1:
        return text
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    from scipy.stats import t  # half a second, which most callers need not wait for

    half_width = float(t.ppf(0.975, len(values) - 1)) * math.sqrt(variance / len(values))
    return f"{text} ± {unit * half_width:.{digits}f}"

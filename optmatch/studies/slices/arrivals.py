"""Requests for slices over time: drawn at random, or read from a trace."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.io.contents import decode, read_bytes
from optmatch.model import FormatError, InputError, VerificationError, number
from optmatch.model.files import path_name
from optmatch.problems.slices.problem import read_shape
from optmatch.problems.slices.shape import Shape, cut_shape, orient, slice_rings
from optmatch.solvers.slices.steering import steer
from optmatch.verify.slices.steering import check_steering

EQUAL_MIX: Mapping[Shape, float] = dict.fromkeys(
    ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4)), 1.0
)
"""The slices of Morphlux, each as often as the others."""

COLUMNS = ("arrival_time", "shape", "duration")


class Arrival(NamedTuple):
    """A request: when it comes, how many chips it wants, and how long it stays."""

    time: float
    shape: Shape
    duration: float


def draw_arrivals(
    fabric: RackFabric,
    count: int,
    rng: np.random.Generator,
    *,
    load: float = 0.8,
    mix: Mapping[Shape, float] = EQUAL_MIX,
) -> list[Arrival]:
    """Draw requests for slices that come at random, a Poisson process, and stay exponential times.

    Parameters
    ----------
    fabric
        The racks; each shape of the mix has to fit into one.
    count
        The number of requests.
    rng
        Draws the numbers.
    load
        The part of all servers that is asked for at a time on average.
    mix
        How often each shape (chips along each axis) comes, in any unit.

    Returns
    -------
    list of Arrival
        In the order of their times. Stays last 1 on average, which is the unit of time.

    Raises
    ------
    InputError
        If the load is 0, a shape does not fit, or the weights are not valid.
    """
    if number("load", load) == 0:
        raise InputError("load = 0: must be > 0", where="load")
    shapes = list(mix)
    weights = np.array(list(mix.values()), dtype=np.float64)
    if not shapes or not (weights >= 0).all() or not weights.sum() > 0:
        raise InputError("mix: weights >= 0 are expected, not all of them 0", where="mix")
    sizes = []
    for shape in shapes:
        turned = orient(fabric, read_shape(shape))
        if not turned:
            name = "x".join(map(str, shape))
            raise InputError(f"mix: {name} does not fit into a rack", where="mix")
        sizes.append(cut_shape(turned[0], fabric.server).n_slots)
    # Little's law: servers in use = rate * mean servers of a request * mean stay, which is 1.
    weights /= weights.sum()
    rate = load * fabric.n_servers / float(weights @ sizes)
    times = np.cumsum(rng.exponential(1 / rate, count))
    chosen = rng.choice(len(shapes), size=count, p=weights)
    stays = rng.exponential(1.0, count)
    return [
        Arrival(float(time), shapes[kind], float(stay))
        for time, kind, stay in zip(times, chosen, stays, strict=True)
    ]


def read_arrivals(path: str | os.PathLike[str]) -> list[Arrival]:
    """Read a trace of requests for slices from a CSV file.

    Parameters
    ----------
    path
        Its columns are ``arrival_time``, ``shape`` (as 2x2x4) and ``duration``. Times may have
        any unit, the same one for both.

    Returns
    -------
    list of Arrival
        By the time of arrival.

    Raises
    ------
    FormatError
        It names the line that cannot be read, or the column that is missing.
    """
    name = path_name(path)
    reader = csv.DictReader(decode(read_bytes(path), name).splitlines())
    try:
        rows = [(f"line {reader.line_num}", row) for row in reader]
    except csv.Error as exc:
        raise FormatError(f"{exc}: not CSV", path=name) from exc
    for column in COLUMNS:
        if column not in (reader.fieldnames or ()):
            raise FormatError(f"column {column!r} is missing", path=name, where="line 1")
    # Each line is read for itself, so that an error names it.
    arrivals = []
    for place, row in rows:
        try:
            shape = parse_shape(row["shape"] or "")
            time = float(row["arrival_time"])
            stay = float(row["duration"])
        except (InputError, TypeError, ValueError) as exc:
            raise FormatError(f"{exc}", path=name, where=place) from exc
        if not (math.isfinite(time) and math.isfinite(stay) and stay > 0):
            raise FormatError(
                f"arrival_time {time:g}, duration {stay:g}: finite, and a stay is > 0",
                path=name,
                where=place,
            )
        arrivals.append(Arrival(time, shape, stay))
    return sorted(arrivals, key=lambda arrival: arrival.time)


def parse_shape(text: str) -> Shape:
    """Read a shape as 2x2x4."""
    parts = text.strip().lower().split("x")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(f"shape {text!r}: three sides in chips as 2x2x4 are expected")
    return read_shape([int(part) for part in parts])


PORTS = 6


class Tenant(NamedTuple):
    """The ports of a chip that carry rings of its slice, as a part of all its ports."""

    shape: Shape
    rings: int
    fixed: float
    """Over fixed torus links: a ring has one port to either side."""
    steered: float
    """The bandwidth with whole ports shared among the rings."""
    level: float
    """The least bandwidth of all rings in ports, as the linear program has it."""

    @property
    def gain(self) -> float:
        """How much more of all its ports a chip uses with steering."""
        return self.steered - self.fixed

    @property
    def ratio(self) -> float:
        """Steered over fixed bandwidth; 1 where there are no rings."""
        return self.steered / self.fixed if self.fixed else 1.0


@lru_cache(maxsize=256)
def tenant(shape: Shape) -> Tenant:
    """Compare the bandwidth of a slice with fixed fibres and with steered ones.

    Parameters
    ----------
    shape
        The chips along x, y and z.

    Returns
    -------
    Tenant
        The number of rings, and which share of the ports of a chip they use: fixed, and steered
        (checked by the verifier); 0 for a slice without rings, such as a single chip.
    """
    rings = slice_rings(shape)
    if not rings:
        return Tenant(shape, 0, 0.0, 0.0, 0.0)
    steering = steer(rings, ports=PORTS)
    report = check_steering(steering)
    if not report.ok:
        raise VerificationError(f"steering: {report.violations[0]}")
    through = [k for k, ring in enumerate(rings) if 0 in ring]
    units = int(steering.units[through].sum())
    return Tenant(shape, len(rings), 2 * len(through) / PORTS, 2 * units / PORTS, steering.level)

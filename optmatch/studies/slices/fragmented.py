"""A pod where small slices have gone at random: what each rule still makes of its free servers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.model import number
from optmatch.problems.slices.shape import Shape, cut_shape, orient
from optmatch.solvers.slices.pod import Pod
from optmatch.studies.slices.replay import JOINED, count_usable, join_racks, scatters

SAMPLES = 32
"""Of the servers of joined racks that no block holds so many are tried."""


class Placed(NamedTuple):
    """Requests of one shape on the same fragmented pod, until no more is placed."""

    rule: str
    shape: Shape
    slices: int
    """How many find a place, one after another."""
    possible: int
    """How many the free servers of each rack, or of all joined ones, would do for."""
    unusable: float
    """Before the first of them: the part of the free servers where it cannot lie."""
    worst_load: int
    """In the end: circuits on the busiest edge."""


def fill_fragmented(
    fabric: RackFabric, shape: Shape, rule: str, rng: np.random.Generator, *, free: float = 0.5
) -> Placed:
    """Fill a pod with slices of one server, let some leave at random, then ask for larger ones.

    `rng` chooses who leaves, until the part `free` of the servers is free. Then slices of `shape`
    are asked for, under a `rule` of `optmatch.studies.slices.replay`.
    """
    fabric, optical = join_racks(fabric, rule), rule in ("optical", JOINED)
    pod = Pod(fabric)
    count = round(number("free", free) * fabric.n_servers)
    pod.free[:] = False
    pod.free[rng.permutation(fabric.n_servers)[:count]] = True
    plans = [cut_shape(turned, fabric.server) for turned in orient(fabric, shape)]
    by_rack = pod.free.reshape(1 if fabric.joined else fabric.racks, -1).sum(axis=1)
    possible = int((by_rack // plans[0].n_slots).sum()) if plans else 0
    usable, _ = count_usable(
        pod,
        plans,
        (lambda rack, p: scatters(pod, rack, p)) if optical else None,
        rng=rng,
        samples=SAMPLES,
    )
    slices = 0
    while pod.allocate(shape, "optical" if optical else rule) is not None:
        slices += 1
    return Placed(
        rule=rule,
        shape=shape,
        slices=slices,
        possible=possible,
        unusable=1 - usable / count if count else 0.0,
        worst_load=int(pod.loads.max(initial=0)),
    )

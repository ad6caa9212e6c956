"""The blast radius of a failed chip: how many chips notice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.model import InputError
from optmatch.problems import Allocation
from optmatch.solvers.slices.pod import Pod
from optmatch.studies.arrivals import Arrival


class BlastRadius(NamedTuple):
    """Chips whose circuits change when one chip fails; means and largest over all chips in use."""

    chips: int
    """Chips in use, each of which fails once."""
    spliced: float
    """A spare takes over: chips that had a circuit with the failed one."""
    spliced_most: int
    migrated: float
    """The slice moves elsewhere: all its chips."""
    migrated_most: int
    racks: float
    """The rack is given up: all its chips in use."""
    circuits: float
    """Circuits that a spare takes over."""


def measure_blast(fabric: RackFabric, arrivals: list[Arrival]) -> BlastRadius:
    """Fill racks by the optical allocator, then let every chip in use fail, one at a time.

    Parameters
    ----------
    fabric
        The racks.
    arrivals
        Requests; they stay, and those that find no place are left out.

    Raises
    ------
    InputError
        If racks are joined: a slice then has no rack to give up.

    Examples
    --------
    >>> blast = measure_blast(RackFabric(), [Arrival(0.0, (2, 2, 4), 1.0)])
    >>> blast.chips, blast.spliced, blast.migrated, blast.circuits
    (16, 4.0, 16.0, 8.0)
    """
    if fabric.joined:
        raise InputError("joined = True: blast radii are of racks by themselves", where="fabric")
    pod, placed = Pod(fabric), list[Allocation]()
    for arrival in arrivals:
        slice_ = pod.allocate(arrival.shape, "optical")
        if slice_ is not None:
            placed.append(slice_)
    partners, circuits, sizes, racks = [], [], [], []
    in_rack = np.zeros(fabric.racks, dtype=np.int64)
    for slice_ in placed:
        in_rack[_rack(fabric, slice_)] += int(np.prod(slice_.shape))
    for slice_ in placed:
        ends = slice_.circuits // fabric.ports_per_chip
        chips, count = np.unique(ends, return_counts=True)
        alone = int(np.prod(slice_.shape)) - len(chips)  # a slice of one chip has no circuit
        pairs = np.unique(np.sort(ends, axis=1), axis=0)
        met = np.bincount(np.searchsorted(chips, pairs).ravel(), minlength=len(chips))
        partners += [*met.tolist(), *[0] * alone]
        circuits += [*count.tolist(), *[0] * alone]
        sizes += [int(np.prod(slice_.shape))] * (len(chips) + alone)
        racks += [int(in_rack[_rack(fabric, slice_)])] * (len(chips) + alone)
    return BlastRadius(
        chips=len(partners),
        spliced=_mean(partners),
        spliced_most=max(partners, default=0),
        migrated=_mean(sizes),
        migrated_most=max(sizes, default=0),
        racks=_mean(racks),
        circuits=_mean(circuits),
    )


def _rack(fabric: RackFabric, slice_: Allocation) -> int:
    return int(fabric.server_coordinates[slice_.servers[0], 0])


def _mean(values: list[int]) -> float:
    return float(np.mean(values)) if values else 0.0

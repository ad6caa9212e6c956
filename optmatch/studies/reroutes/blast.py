"""The blast radius of a failed chip: how many chips notice, replayed by real repairs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.model import InputError
from optmatch.problems import Allocation, Reroute
from optmatch.solvers.reroutes.repair import Reach, Recovery, repair
from optmatch.solvers.reroutes.routing_state import HitCircuits, RoutingState
from optmatch.solvers.slices.pod import Pod
from optmatch.studies.slices.arrivals import Arrival


class BlastRadius(NamedTuple):
    """Chips whose circuits change when one chip fails; means and largest over all chips in use."""

    chips: int
    """Chips in use, each of which fails once."""
    spliced: float
    """A spare takes over: chips, but for the two, that have a circuit which changes."""
    spliced_most: int
    migrated: float
    """The slice moves elsewhere: all its chips."""
    migrated_most: int
    racks: float
    """The rack is given up: all its chips in use."""
    circuits: float
    """Circuits that change where a spare takes over."""
    disturbed: float = 0.0
    """Of these, circuits of other slices."""
    unspliced: int = 0
    """Chips that no spare was found to replace: their slices move, also above."""


class _Noticed(NamedTuple):
    """What one failed chip changes."""

    chips: int
    circuits: int
    disturbed: int
    spliced: bool


def measure_blast(fabric: RackFabric, arrivals: list[Arrival]) -> BlastRadius:
    """Fill racks by the optical allocator, then let every chip in use fail, one at a time.

    Requests stay, and those that find no place are left out. The last server of each rack is kept
    back. It and all other idle chips of the rack are spares, and method ``greedy`` repairs each
    failure on the circuits and fibres that the slices have; interposers count as ideal. Joined
    racks raise `InputError`: a slice then has no rack to give up.
    """
    if fabric.joined:
        raise InputError("joined = True: blast radii are of racks by themselves", where="fabric")
    per_rack = fabric.n_servers // fabric.racks
    last = range(per_rack - 1, fabric.n_servers, per_rack) if per_rack > 1 else ()
    pod = Pod(fabric, reserved=tuple(last))
    placed: list[list[Allocation]] = [[] for _ in range(fabric.racks)]
    for arrival in arrivals:
        slice_ = pod.allocate(arrival.shape, "optical")
        if slice_ is not None:
            placed[int(fabric.server_coordinates[slice_.servers[0], 0])].append(slice_)
    noticed, sizes, racks = list[_Noticed](), list[int](), list[int]()
    one = replace(fabric, racks=1, interposer=None)
    for number, slices in enumerate(placed):
        of_slices = [int(np.prod(slice_.shape)) for slice_ in slices]
        noticed += _fail_each(one, number, slices)
        sizes += [size for size in of_slices for _ in range(size)]
        racks += [sum(of_slices)] * sum(of_slices)
    return BlastRadius(
        chips=len(noticed),
        spliced=_mean([found.chips for found in noticed]),
        spliced_most=max((found.chips for found in noticed), default=0),
        migrated=_mean(sizes),
        migrated_most=max(sizes, default=0),
        racks=_mean(racks),
        circuits=_mean([found.circuits for found in noticed if found.spliced]),
        disturbed=_mean([found.disturbed for found in noticed if found.spliced]),
        unspliced=sum(not found.spliced for found in noticed),
    )


def _fail_each(rack: RackFabric, number: int, slices: list[Allocation]) -> list[_Noticed]:
    """Let every chip of the slices of a rack fail, and repair it."""
    state = state_of_rack(rack, number, slices)
    routing = RoutingState(state)
    reach = Reach(routing, state.loss_units)
    noticed = []
    for slice_ in slices:
        size = int(np.prod(slice_.shape))
        chips = np.unique(slice_.circuits // rack.ports_per_chip) - number * rack.n_chips
        alone = size - len(chips)  # a slice of one chip has no circuit
        noticed += [_Noticed(0, 0, 0, spliced=True)] * alone
        for chip in chips.tolist():
            hit = tuple(np.flatnonzero((routing.ends == chip).any(axis=1)).tolist())
            plan = repair(routing, HitCircuits(hit, (chip,), state.spares, state.owners), reach)
            if not isinstance(plan, Recovery):
                noticed.append(_Noticed(size, 0, 0, spliced=False))
                continue
            touched = set(routing.ends[list(plan.changed)].ravel().tolist())
            others = len(touched - {chip, *plan.handover})
            noticed.append(_Noticed(others, len(plan.changed), plan.levels[0], spliced=True))
    return noticed


def state_of_rack(rack: RackFabric, number: int, slices: list[Allocation]) -> Reroute:
    """Return the slices of a rack as a running state of that rack alone."""
    circuits, routes = list[list[int]](), list[tuple[int, ...]]()
    owners: list[int] = []
    used: set[int] = set()
    for owner, slice_ in enumerate(slices):
        passed = [list[int]() for _ in slice_.circuits]
        for circuit, fibre in slice_.fibres.tolist():
            passed[circuit].append(fibre - number * rack.n_fibres)
        circuits += (slice_.circuits - number * rack.n_ports).tolist()
        routes += map(tuple, passed)
        owners += [owner] * len(passed)
        servers = slice_.servers - number * rack.n_servers
        used.update(np.flatnonzero(np.isin(rack.server_of_chip, servers)).tolist())
    spares = tuple(chip for chip in range(rack.n_chips) if chip not in used)
    return Reroute(
        rack,
        np.array(circuits, dtype=np.int32).reshape(-1, 2),
        np.array(owners, dtype=np.int32),
        spares,
        tuple(routes),
    )


def _mean(values: list[int]) -> float:
    return float(np.mean(values)) if values else 0.0

"""Fabrics with circuits in use: boxes of chips wired as tori in a rack, a matching on a switch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optmatch.fabrics import Fabric, RackFabric
from optmatch.model import FREE, InfeasibleError, InputError, Limits, ignore, uncounted
from optmatch.model.declarations import form_of
from optmatch.problems import Reroute, Routing
from optmatch.solvers.reroutes.changes import name_paths
from optmatch.solvers.reroutes.routing_state import RoutingState

Box = tuple[tuple[int, int, int], tuple[int, int, int]]
"""The first chip of a job (x, y, z), and how many chips it has along each axis."""

FULL_RACK: tuple[Box, ...] = (
    ((0, 0, 0), (4, 4, 2)),
    ((0, 0, 2), (2, 2, 2)),
    ((2, 0, 2), (2, 2, 2)),
    ((0, 2, 2), (2, 2, 2)),
    ((2, 2, 2), (2, 2, 1)),
)
"""Jobs of 32, 8, 8, 8 and 4 chips in a rack of 4x4x4; the four chips left are the spares."""


def fill_rack(rack: RackFabric, boxes: Sequence[Box] = FULL_RACK) -> Reroute:
    """Make a state of a rack in which each job is a box of chips, wired as a torus.

    Port 2k of a chip leads forward along axis k, port 2k + 1 back; a side of one chip needs none.
    Chips that no job has are the spares.

    Parameters
    ----------
    rack
        One rack, or joined ones.
    boxes
        First chip and sides of each job. Boxes do not overlap, and may wrap around. Sides longer
        than those of a rack fill the racks from the first on.

    Returns
    -------
    Reroute
        The state as a problem without a failure: the circuits of all jobs with their routes, and
        the spares.

    Raises
    ------
    InputError
        If boxes overlap, have no place, or the fibres do not suffice for the circuits.

    Examples
    --------
    >>> state = fill_rack(RackFabric())
    >>> len(state.circuits), state.spares
    (352, (60, 61, 62, 63))
    >>> pair = fill_rack(RackFabric(racks=2, joined=True), [((0, 0, 0), (4, 4, 7))])
    >>> len(pair.circuits), len(pair.spares)
    (672, 16)
    """
    form_of(RackFabric).check("rack", rack)
    if rack.ports_per_chip < 6:
        raise InputError(f"ports_per_chip = {rack.ports_per_chip}: a torus needs 6")

    # Each box is a job, whose circuits are its torus; chips in no box are spares.
    circuits: list[tuple[int, int]] = []
    owners: list[int] = []
    taken: set[int] = set()
    for job, (origin, sides) in enumerate(boxes):
        links, chips = _wire_torus(rack, origin, sides)
        if taken & set(chips):
            raise InputError(f"boxes[{job}] overlaps another", where=f"boxes[{job}]")
        taken.update(chips)
        circuits += links
        owners += [job] * len(links)
    reserve = tuple(chip for chip in range(rack.n_chips) if chip not in taken)

    # All circuits are routed together in the empty rack, in random order: neighbours in the order
    # of the jobs would contend for the same fibres.
    empty = Reroute(
        rack,
        np.empty((0, 2), dtype=np.int32),
        cell_states=None if rack.graph is None else np.full(rack.n_cells, -1),
    )
    routing = RoutingState(empty)
    ends = [(a // rack.ports_per_chip, b // rack.ports_per_chip) for a, b in circuits]
    order = np.random.default_rng(0).permutation(len(ends))
    routed_paths = routing.route([ends[k] for k in order])
    if routed_paths is None:
        raise InputError(
            "the fibres do not suffice for the circuits of these boxes", where="boxes"
        )

    # The paths, back in the order of the circuits, get the numbers of ports and fibres; on a rack
    # of cells they say the states.
    paths: list[Any] = [None] * len(ends)
    for k, path in zip(order.tolist(), routed_paths, strict=True):
        paths[k] = path
    named = name_paths(routing.graph, routing.users, routing.first_fibre, paths, circuits)
    if rack.graph is None:
        return Reroute(rack, named.circuits, owners, reserve, tuple(named.routes))
    states = np.full(rack.n_cells, FREE, dtype=np.int8)
    for path in paths:
        for cell, state in routing.cells_of(path):
            states[cell] = state
    return Reroute(rack, named.circuits, owners, reserve, cell_states=states)


def hold_matching(fabric: Fabric, matching: Sequence[int], *, seed: int = 0) -> Reroute:
    """Make a state of a switch from a matching: its circuits are jobs, its idle ports spares.

    Parameters
    ----------
    fabric
        A switch with cells, or an ideal switch.
    matching
        ``matching[source] = destination``, -1 for none; ports in no circuit are spares.
    seed
        Of the routing.

    Returns
    -------
    Reroute
        The state as a problem without a failure: each circuit is a job of its own.

    Raises
    ------
    InfeasibleError
        If no routing was found.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> hold_matching(HexMesh(3, 3, ports=6), [1, 0, 3, 2, -1, -1]).spares
    (4, 5)
    """
    problem = Routing(fabric, matching)
    idle = np.setdiff1d(np.arange(fabric.n_ports), problem.circuits).tolist()
    if fabric.graph is None:  # a switch that holds any matching needs no routes
        return Reroute(fabric, problem.circuits, spares=tuple(idle))

    with uncounted():
        from optmatch.solvers.routing.methods import route_by_negotiation
    solution = route_by_negotiation(
        problem, Limits(time_s=60.0), np.random.default_rng(seed), ignore
    )
    if solution.schedule is None or solution.schedule.cell_states is None:
        raise InfeasibleError(f"no routing of the matching was found: {solution.status.value}")
    return Reroute(
        fabric, problem.circuits, spares=tuple(idle), cell_states=solution.schedule.cell_states[0]
    )


def _wire_torus(
    rack: RackFabric, origin: Sequence[int], sides: Sequence[int]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Wire a box of chips as a torus: list its circuits, as pairs of ports, and its chips.

    `origin` is the corner of the box and `sides` its chips along x, y and z. Each chip has
    circuits forward and back along each axis on which the box has several chips: a box of 2 x 1 x
    1 chips has four circuits. A box that needs more racks than there are is an `InputError`.
    """
    n_racks_along = [
        -(-side // chips_per_rack) for side, chips_per_rack in zip(sides, rack.chips, strict=True)
    ]
    if np.prod(n_racks_along) > (rack.racks if rack.joined else 1):
        raise InputError(
            f"a box of {sides} chips has no place in {rack.racks} racks of {rack.chips}"
        )

    # ``chip_at[place]``: the chip at a place of the box; beyond a rack comes the next one.
    places = list(np.ndindex(*sides))
    chip_at = {}
    for place in places:
        rack_place = np.floor_divide(place, rack.chips)
        number_of_rack = int(np.ravel_multi_index(rack_place.tolist(), n_racks_along))
        x, y, z = np.add(origin, place).tolist()
        chip_at[place] = rack.chip_at(x, y, z, number_of_rack)

    # Port 2k of a chip leads forward along axis k, port 2k + 1 back: forward light arrives at the
    # port that leads back.
    n_ports = rack.ports_per_chip
    circuits = []
    for place in places:
        for axis, side in enumerate(sides):
            if side == 1:
                continue
            for step, tail_port, head_port in (
                (1, 2 * axis, 2 * axis + 1),
                (-1, 2 * axis + 1, 2 * axis),
            ):
                neighbour = list(place)
                neighbour[axis] = (place[axis] + step) % side
                source = n_ports * chip_at[place] + tail_port
                destination = n_ports * chip_at[tuple(neighbour)] + head_port
                circuits.append((source, destination))
    return circuits, list(chip_at.values())

"""Packing pairs of an all-to-all into slots one after the other, where they are too many for few.

Where links are scarce, no slot can hold a circuit of every port. A slot is then filled greedily:
pairs whose ports still have to meet most others come first, each is routed past those that the
slot has, and is left to a later slot if there is no way. With patience, further pairs are put
into a full slot by rip-up and reroute of all its circuits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Tick
from optmatch.solvers.all_to_all.planner import FAILED, RoutedSlot, SlotPlanner
from optmatch.solvers.kernels.decorators import kernel
from optmatch.solvers.routing.pathfinder import (
    FAR,
    UNIT,
    Effort,
    close_route,
    find_route,
    passes_link_twice,
)

_INSERTION = Effort(first=UNIT, growth_percent=130, history=4 * UNIT, rounds=8)
"""The negotiation that puts one more circuit into a full slot: most that succeed take 4 rounds."""

_REFUSALS = 8
"""A slot is full once so many pairs in a row could not be put in.

On 12x12 with 76 ports 95 slots at 8 and at 36 refusals, which takes twice as long; 99 at 1.
"""


PACKING = "pack again"
"""The phase of ticks before each further packing, when a plan is known already."""


class PairTable(NamedTuple):
    """Pairs that have to meet, and which of them have a slot."""

    ends: NDArray[np.int64]  # (pairs, 2): source and destination
    is_placed: NDArray[np.bool_]  # (pairs,)


class OpenSlot(NamedTuple):
    """The circuits of a slot that is being filled; changed in place."""

    destination: NDArray[np.int64]  # (ports,): -1 where the port sends nothing
    source: NDArray[np.int64]  # (ports,): -1 where the port receives nothing
    # (ports, width) ``[source, step]``: the terminals by which light leaves its cells.
    routes: NDArray[np.int32]
    lengths: NDArray[np.int64]  # (ports,): cells on the route of each source, 0 without one


@kernel
def fill_slot(wiring, space, pairs, order, slot, is_bidirectional):
    """Route pairs in an order past each other, as far as there are ways; return how many.

    All go into `slot`; ``space.exit_cost`` closes the links of its circuits, also of those that
    are added, and ``pairs.is_placed`` becomes true for them.
    """
    n_placed = 0
    for place in range(len(order)):
        pair = order[place]
        source = pairs.ends[pair, 0]
        destination = pairs.ends[pair, 1]
        if slot.destination[source] >= 0 or slot.source[destination] >= 0:
            continue

        # The links at both ports have to be free of other light.
        first = wiring.source[source]
        last = wiring.target[destination]
        if space.exit_cost[first] >= FAR or space.exit_cost[last] >= FAR:
            continue
        length = find_route(wiring, space, source, destination, space.spare)
        route = space.spare[:length]
        if length == 0 or passes_link_twice(wiring, space.use, route):
            continue

        # The circuit joins the slot: its route is written, and its links are closed to others.
        slot.lengths[source] = length
        for step in range(length):
            slot.routes[source, step] = route[step]
        close_route(wiring, space.exit_cost, source, route)
        slot.destination[source] = destination
        slot.source[destination] = source
        if is_bidirectional:
            slot.destination[destination] = source
            slot.source[source] = destination
        pairs.is_placed[pair] = True
        n_placed += 1
    return n_placed


def pack_slots(
    planner: SlotPlanner, ends: NDArray[np.int64], *, insists: bool
) -> list[RoutedSlot] | None:
    """Pack the pairs of an all-to-all into slots, one slot after the other, by a greedy search.

    ``ends[pair]``: the source and the destination of each pair. Each slot takes all pairs that
    still have a way past those that it has. With `insists` further pairs are put into full slots
    by rip-up and reroute. None if the time is up before all pairs have a slot, or if some pair
    cannot be routed even alone by a search for cheapest ways.
    """
    pairs = PairTable(ends, np.zeros(len(ends), dtype=np.bool_))
    plan = []
    while not pairs.is_placed.all():
        if planner.clock.remaining_s <= 0:
            return None

        # The pairs come first that have a port with most pairs still to meet: at least so many
        # slots are needed for that port.
        left = np.flatnonzero(~pairs.is_placed)
        meetings_left = np.bincount(ends[left].ravel(), minlength=planner.n_ports)
        urgency = meetings_left[ends[left]].max(axis=1).astype(np.float64)

        # Ties are broken by chance: in the order of their numbers the pairs of a slot are
        # neighbours of each other, and 12x12 with 76 ports takes 115 slots, not 98.
        urgency += planner.rng.random(len(left))
        order = left[np.argsort(-urgency, kind="stable")]

        # The slot is filled in this order; with patience, circuits make room for further ones.
        slot = _open_slot(planner)
        _clear_links(planner)
        arrays = planner.router.wiring, planner.router.workspace
        n_placed = fill_slot(*arrays, pairs, order, slot, planner.bidirectional)
        routed = _close_slot(planner, slot)
        if insists:
            routed = _insert_by_negotiation(planner, pairs, order, routed)
        if n_placed == 0:
            return None  # a pair whose cheapest walks pass a link twice needs an exact search
        plan.append(routed)
        planner.on_event(Tick("pack", int(pairs.is_placed.sum()), len(ends)))
    return plan


def keep_routable(
    planner: SlotPlanner, failed: RoutedSlot
) -> tuple[RoutedSlot, NDArray[np.int64]]:
    """Route the circuits of a slot greedily past each other, and leave out those without a way.

    The source and destination of those that are left out come second.
    """
    # `sources` lists the circuits with the longest ways first; short ones still fit in later.
    sources = planner.sources(failed.partner)
    destinations = planner.destinations(failed.partner)[sources]
    ends = np.stack([sources, destinations], axis=1).astype(np.int64)
    pairs = PairTable(ends, np.zeros(len(ends), dtype=np.bool_))

    # An empty slot, in a fabric all of whose links are free, is filled in that order.
    slot = _open_slot(planner)
    _clear_links(planner)
    router = planner.router
    order = np.arange(len(ends))
    fill_slot(router.wiring, router.workspace, pairs, order, slot, planner.bidirectional)
    return _close_slot(planner, slot), ends[~pairs.is_placed]


def fill_up(
    planner: SlotPlanner, routed: RoutedSlot, ends: NDArray[np.int64]
) -> tuple[RoutedSlot, NDArray[np.int64]]:
    """Put further pairs into the gaps of a slot, past its circuits, which keep their routes.

    ``ends[pair]`` are a source and a destination; `routed` is not changed. The source and
    destination of the pairs that did not fit come second.
    """
    # The links and ports of the circuits that are there are closed to the others.
    slot = _open_slot(planner)
    _clear_links(planner)
    wiring = planner.router.wiring
    destinations = planner.destinations(routed.partner)
    for source in np.flatnonzero(routed.lengths).tolist():
        # The circuit takes its two ports; one of bidirectional ports takes them for both ways.
        destination = destinations[source]
        slot.destination[source] = destination
        slot.source[destination] = source
        if planner.bidirectional:
            slot.destination[destination] = source
            slot.source[source] = destination
        slot.lengths[source] = routed.lengths[source]
        slot.routes[source] = routed.routes[source]
        route = routed.routes[source, : routed.lengths[source]]
        close_route(wiring, planner.router.workspace.exit_cost, source, route)

    # Then the pairs are tried in their order; those that fit are marked as placed.
    pairs = PairTable(ends, np.zeros(len(ends), dtype=np.bool_))
    arrays = wiring, planner.router.workspace
    fill_slot(*arrays, pairs, np.arange(len(ends)), slot, planner.bidirectional)
    return _close_slot(planner, slot), ends[~pairs.is_placed]


def _open_slot(planner: SlotPlanner) -> OpenSlot:
    """Make a slot without circuits: no port has a partner (-1), and no route is laid."""
    routes, lengths = planner.router.empty_routes()
    return OpenSlot(
        destination=np.full(planner.n_ports, -1, dtype=np.int64),
        source=np.full(planner.n_ports, -1, dtype=np.int64),
        routes=routes,
        lengths=lengths,
    )


def _clear_links(planner: SlotPlanner) -> None:
    """Open all links to the search: the workspace of the router is as if no circuit were there.

    Writes ``exit_cost[terminal]`` and ``use[link]`` of ``planner.router.workspace``, 0 everywhere.
    """
    planner.router.workspace.exit_cost[:] = 0
    planner.router.workspace.use[:] = 0


def _close_slot(planner: SlotPlanner, slot: OpenSlot) -> RoutedSlot:
    """Turn an open slot into a `RoutedSlot` with its excess; its arrays are not copied.

    In ``partner``, the destination of a circuit is the vertex `port` if ports are bidirectional,
    or else ``port + n_ports``: outputs have vertices of their own.
    """
    partner = planner.empty_slot().partner
    sources = np.flatnonzero(slot.lengths)
    destinations = slot.destination[sources]
    far_vertices = destinations if planner.bidirectional else destinations + planner.n_ports
    partner[sources] = far_vertices
    partner[far_vertices] = sources
    least = int(planner.router.least[sources, destinations].sum())
    excess = UNIT * int(slot.lengths.sum()) - least
    return RoutedSlot(partner, slot.routes, slot.lengths, excess)


def _insert_by_negotiation(
    planner: SlotPlanner, pairs: PairTable, order: NDArray[np.int64], routed: RoutedSlot
) -> RoutedSlot:
    """Put further pairs into a full slot, by rip-up and reroute of all its circuits.

    `order` lists pairs, which are tried in turn. Pairs that are placed are skipped, others that
    fit become placed. The search ends after `_REFUSALS` failures in a row; `routed` is not
    changed.
    """
    n_refused = 0
    idle = planner.idle_partner
    for pair in order[~pairs.is_placed[order]].tolist():
        if n_refused >= _REFUSALS or planner.clock.remaining_s <= 0:
            break

        # A pair whose port is busy in the slot is passed over. The output of a port that is not
        # bidirectional is a vertex of its own, n_ports further on.
        source, destination = pairs.ends[pair].tolist()
        far_vertex = destination if planner.bidirectional else destination + planner.n_ports
        if routed.partner[source] != idle or routed.partner[far_vertex] != idle:
            continue

        # The slot with this circuit, all of whose circuits may move; it counts if all get routes.
        wider = planner.with_circuit(routed, source, destination, [])
        tried = planner.settle(wider.partner, wider.routes, wider.lengths, _INSERTION)
        if tried.excess >= FAILED:
            n_refused += 1
            continue
        n_refused = 0
        pairs.is_placed[pair] = True
        routed = tried
    return routed

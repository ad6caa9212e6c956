"""Packing pairs of an all-to-all into slots one after the other, where they are too many for few.

Where links are scarce, no slot can hold a circuit of every port. A slot is then filled greedily:
pairs whose ports still have to meet most others come first, each is routed past those that the
slot has, and is left to a later slot if there is no path. With patience, further pairs are put
into a full slot by rip-up and reroute of all its circuits.

How many slots are needed at least is bounded by link prices. Put a price on every link. A link
carries at most one circuit in a slot, so all slots together can pay each price once a slot, and
the pairs pay at least what their cheapest paths cost:

    slots >= sum over pairs of the price of the cheapest path / sum of all prices

The best prices are the dual solution of a fractional packing of routes. They are approached by
multiplicative weights (Plotkin, Shmoys and Tardos 1995, doi 10.1287/moor.20.2.257): links that
many cheapest paths pass become dearer. All prices are whole numbers, so the bound is exact.

For example, if 12 pairs have no path but over one of two links, with the price 1 on these two
links and 0 on all others the pairs pay 12, and the prices add up to 2: there are at least 6 slots.

A *link* is the waveguide between two cells, and a route the list of the terminals by which light
leaves its cells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, Tick
from optmatch.problems import AllToAll, RoutingProof
from optmatch.solvers.all_to_all.planner import FAILED, RoutedSlot, SlotPlanner
from optmatch.solvers.kernels.arrays import copy_into
from optmatch.solvers.kernels.decorators import kernel
from optmatch.solvers.routing.pathfinder import (
    FAR,
    UNIT,
    Effort,
    MeshArrays,
    RoutingSpace,
    close_route,
    find_route,
    passes_link_twice,
)
from optmatch.solvers.routing.router import CellRouter, search_all_paths

_INSERTION = Effort(first=UNIT, growth_percent=130, history=4 * UNIT, rounds=8)
"""The negotiation that puts one more circuit into a full slot: most that succeed take 4 rounds."""

_REFUSALS = 8
"""A slot is full once so many pairs in a row could not be put in.

On 12x12 with 76 ports 95 slots at 8 and at 36 refusals, which takes twice as long; 99 at 1.
"""


PACKING = "pack again"
"""The phase of ticks before each further packing, when a plan is known already."""


@kernel
def fill_slot(wiring: MeshArrays, space: RoutingSpace, pairs, routes, lengths, is_placed):
    """Route pairs in turn past each other and past the circuits that are there, first fit.

    ``space.exit_cost[terminal]`` is the price of the link behind a terminal, `FAR` for the links
    of all circuits, hence also at the ports that have one. ``pairs[pair]`` are a source and a
    destination port. The path of a pair that gets one is written to ``routes[source, step]``, the
    terminals by which light leaves its cells, and ``lengths[source]``; its links are closed, and
    ``is_placed[pair]`` becomes true.
    """
    for pair in range(len(pairs)):
        source = pairs[pair, 0]
        destination = pairs[pair, 1]

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
        lengths[source] = length
        copy_into(routes[source], route)
        close_route(wiring, space.exit_cost, source, route)
        is_placed[pair] = True


def pack_slots(
    planner: SlotPlanner, pairs: NDArray[np.integer], *, patient: bool, phase: str = "pack"
) -> list[RoutedSlot] | None:
    """Pack the pairs of an all-to-all into slots, one slot after the other, by first fit.

    ``pairs[pair]``: the source and the destination of each pair. Each slot takes all pairs that
    still have a path past those that it has. A `patient` search puts further pairs into full slots
    by rip-up and reroute. Returns the slots; None if the time is up before all pairs have a slot,
    or if some pair cannot be routed even alone by a search for cheapest paths.
    """
    waiting = pairs.astype(np.int64)
    plan = []
    while len(waiting):
        if planner.clock.remaining_s <= 0:
            return None

        # The pairs come first that have a port with most pairs still to meet: at least so many
        # slots are needed for that port. Ties are broken by chance: in the order of their numbers
        # the pairs of a slot are neighbours of each other, and 12x12 with 76 ports takes 115
        # slots, not 98.
        meetings_left = np.bincount(waiting.ravel(), minlength=planner.n_ports)
        urgency = meetings_left[waiting].max(axis=1) + planner.rng.random(len(waiting))
        order = np.argsort(-urgency, kind="stable")

        # The slot is filled in this order; with patience, circuits make room for further ones.
        slot, is_placed = fill_up(planner, planner.empty_slot(), waiting[order])
        if not is_placed.any():
            return None  # a pair whose cheapest walks pass a link twice needs an exact search
        if patient:
            slot = _insert_by_negotiation(planner, slot, waiting[order], is_placed)
        plan.append(slot)
        waiting = np.delete(waiting, order[is_placed], axis=0)
        planner.on_event(Tick(phase, len(pairs) - len(waiting), len(pairs)))
    return plan


def fill_up(
    planner: SlotPlanner, slot: RoutedSlot, pairs: NDArray[np.int64]
) -> tuple[RoutedSlot, NDArray[np.bool_]]:
    """Put pairs into the gaps of a slot, in turn, past its circuits, which keep their routes.

    ``pairs[pair]``, shape (pairs, 2), are a source and a destination port. Returns the fuller
    slot, and for each pair whether it has found room; `slot` is not changed. A pair is left out if
    one of its ports has a circuit already, or no path is free.
    """
    # The links of the circuits that are there are closed to the others.
    wiring = planner.router.wiring
    space = planner.router.workspace
    space.exit_cost[:] = 0
    space.use[:] = 0
    routes = slot.routes.copy()
    lengths = slot.lengths.copy()
    for source in np.flatnonzero(lengths).tolist():
        close_route(wiring, space.exit_cost, source, routes[source, : lengths[source]])

    # Pairs that fit in become partners.
    is_placed = np.zeros(len(pairs), dtype=np.bool_)
    fill_slot(wiring, space, pairs, routes, lengths, is_placed)
    partner = slot.partner.copy()
    new_sources, new_destinations = pairs[is_placed].T
    far_vertices = planner.far_vertex(new_destinations)
    partner[new_sources] = far_vertices
    partner[far_vertices] = new_sources

    # All circuits have routes: the excess is what these cost beyond the shortest ones.
    sources = np.flatnonzero(lengths)
    destinations = planner.destinations(partner)[sources]
    least_cost = int(planner.router.least[sources, destinations].sum())
    excess = UNIT * int(lengths.sum()) - least_cost
    return RoutedSlot(partner, routes, lengths, excess), is_placed


def keep_routable(
    planner: SlotPlanner, failed: RoutedSlot
) -> tuple[RoutedSlot, NDArray[np.int64]]:
    """Route the circuits of a slot past each other by first fit, those with long paths first.

    `failed` has all circuits of the slot, some without a usable route; its routes are not read.
    Returns the slot of those that have a path, and ``pairs[pair]``, the source and destination
    port of the others.
    """
    sources = planner.sources(failed.partner)
    destinations = planner.destinations(failed.partner)[sources]
    pairs = np.stack([sources, destinations], axis=1).astype(np.int64)
    slot, is_placed = fill_up(planner, planner.empty_slot(), pairs)
    return slot, pairs[~is_placed]


def _insert_by_negotiation(
    planner: SlotPlanner,
    slot: RoutedSlot,
    pairs: NDArray[np.int64],
    is_placed: NDArray[np.bool_],
) -> RoutedSlot:
    """Put further pairs into a full slot, by rip-up and reroute of all its circuits.

    ``pairs[pair]`` are a source and a destination. Pairs are tried in turn, but for those that are
    placed: others that fit become true in ``is_placed[pair]``. The search ends after `_REFUSALS`
    failures in a row. The result is the fuller slot; `slot` is not changed. An excess of `FAILED`
    or more says that the circuits do not fit together.
    """
    n_refused = 0
    idle = planner.idle_partner
    for pair in np.flatnonzero(~is_placed).tolist():
        if n_refused >= _REFUSALS or planner.clock.remaining_s <= 0:
            break

        # A pair whose port is busy in the slot is passed over.
        source, destination = pairs[pair].tolist()
        far_vertex = planner.far_vertex(destination)
        if slot.partner[source] != idle or slot.partner[far_vertex] != idle:
            continue

        # The slot with this circuit, all of whose circuits may move; it counts if all get routes.
        wider = planner.with_circuit(slot, source, destination, [])
        tried = planner.route_slot(wider.partner, wider.routes, wider.lengths, _INSERTION)
        if tried.excess >= FAILED:
            n_refused += 1
            continue
        n_refused = 0
        is_placed[pair] = True
        slot = tried
    return slot


_PRICE_SCALE = 1_000_000
"""The dearest link has this price: a bound loses less than a thousandth by rounding."""

_ROUNDS = 150
_FIRST_STEP = 8.0
_STEP_FALL = 0.7
_ROUNDS_PER_STEP = 10
"""A round makes the link in most use dearer by exp(step); the step falls every ten rounds.

Tuned on hexagons of 12x12 with 76 and 20x20 with 128 ports, whose bounds are 92 and 156 then.
Half of the first step gives 91 and 153; a step of 0.3 that falls every fifty rounds gives 78 and
127 after 250 rounds.
"""

QUICK_ROUNDS = 40
"""Rounds that show whether slots are far too few, at a quarter of the time of all rounds.

On 12x12 with 24 ports side by side they give 32 slots, as all rounds do, where counting gives 23.
"""

_SHARE_OF_TIME = 0.4
"""Which part of the time that is left the prices may take."""


class SlotBound(NamedTuple):
    """The fewest slots that link prices allow, and the prices that prove it."""

    slots: int
    """No schedule has fewer."""
    proof: RoutingProof
    """The prices of links."""


@kernel
def load_cheapest_paths(
    wiring: MeshArrays, all_paths: MeshArrays, space: RoutingSpace, sources, must_meet, link_use
):
    """Load the cheapest paths of all pairs onto the links, and return what they cost together.

    ``must_meet[source, destination]`` says which pairs of ports there are, and `sources` lists
    their source ports. ``space.exit_cost`` has the price of the link behind each terminal.
    `all_paths` is the same fabric as `wiring`, made by `search_all_paths` such that one search
    from a port finds the cheapest paths to all terminals. Writes ``link_use[link]``, how many
    pairs go over each link. Pairs without a path are left out.
    """
    link_use[:] = 0
    total = np.int64(0)
    for source in sources:
        # A search of Dijkstra from this port; its destination 0 does not matter. After it, light
        # that leaves a cell at a terminal has paid ``space.cost[terminal]`` for all links on its
        # cheapest path but that of the source port (`first`), and has entered the cell at
        # ``space.entered[terminal]``.
        first = wiring.source[source]
        find_route(all_paths, space, source, 0, space.spare)
        for destination in range(len(must_meet)):
            leaving = wiring.target[destination]
            if must_meet[source, destination] and space.cost[leaving] < FAR:
                total += space.exit_cost[first] + space.cost[leaving]

                # Each link on the path is used once more: those at both ports, and those between
                # cells, followed back from the destination until the cell next to the source.
                link_use[wiring.link[first]] += 1
                link_use[wiring.link[leaving]] += 1
                while space.entered[leaving] != first:
                    leaving = wiring.mate[space.entered[leaving]]
                    link_use[wiring.link[leaving]] += 1
    return total


def bound_slots(
    problem: AllToAll, router: CellRouter, clock: Clock, rounds: int = _ROUNDS
) -> SlotBound | None:
    """Bound the slots of all schedules by prices of links; None if counting proves as much.

    The circuits of one slot share no link, so together they pay each price at most once. All
    circuits of all slots pay at least the cheapest path of each pair of ports. Hence there are at
    least as many slots as these cheapest paths cost in all, divided by the sum of all prices. This
    is the dual of a linear programme, and any prices give a bound.

    The search for good prices is the multiplicative-weights method: links on many cheapest paths
    become dearer, in so many `rounds`, or fewer once `_SHARE_OF_TIME` of the time of `clock` is
    used up. The best prices are a certificate: the bound can be recounted by one search for each
    port. The workspace of `router` is overwritten.
    """
    must_meet = np.zeros((problem.fabric.n_ports,) * 2, dtype=np.bool_)
    must_meet[tuple(problem.pairs.T)] = True
    sources = np.flatnonzero(must_meet.any(axis=1))

    # All links begin with the same weight, which grows with their use after each round. Prices are
    # the weights in whole numbers, the largest one `_PRICE_SCALE`.
    wiring = router.wiring
    space = router.workspace
    all_paths = search_all_paths(wiring, np.zeros_like(wiring.cell_cost))
    n_links = len(space.use)
    link_use = np.zeros(n_links, dtype=np.int64)
    weights = np.ones(n_links)
    step = _FIRST_STEP
    best_slots = problem.min_slots
    best_prices: NDArray[np.int64] | None = None
    least_remaining_s = clock.remaining_s * (1 - _SHARE_OF_TIME)

    for turn in range(1, rounds + 1):
        if clock.remaining_s <= least_remaining_s and np.isfinite(clock.remaining_s):
            break

        # The price of the cheapest paths of all pairs together, over the sum of all prices, is how
        # many slots are needed at least: 3 if 70 is paid at prices whose sum is 30.
        # ``prices[link]`` become those of terminals.
        prices = np.rint(weights / weights.max() * _PRICE_SCALE).astype(np.int64)
        np.copyto(space.exit_cost, prices[wiring.link])
        paid = int(load_cheapest_paths(wiring, all_paths, space, sources, must_meet, link_use))
        slots = -(-paid // int(prices.sum()))  # rounded up: slots are whole
        if slots > best_slots:
            best_slots = slots
            best_prices = prices

        # Links that many cheapest paths pass become dearer, by smaller steps from time to time.
        weights = weights / weights.max() * np.exp(step * link_use / link_use.max())
        if turn % _ROUNDS_PER_STEP == 0:
            step *= _STEP_FALL
    if best_prices is None:
        return None
    return SlotBound(best_slots, RoutingProof.of_prices(best_prices, infeasible=True))

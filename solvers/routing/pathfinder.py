"""Routes through cells: negotiated congestion over directed links, with A* and exact distances.

A state of the search is the terminal by which light *leaves* a cell, so the direction of travel is
part of it and a route cannot turn round inside a link. What is scarce are links: if no link is on
two routes, all routes through a cell agree on its state (any way through in bar and any way
through in cross share a link), so states need no variables of their own. Costs are integers, in
1/10,000 of a cell.

The scheme is PathFinder (McMurchie and Ebeling 1995, doi 10.1145/201310.201328): contested links
become dearer from round to round until every circuit can afford its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.routing import PRICE_UNITS
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.kernels.heap import pop, push

UNIT = PRICE_UNITS
"""The cost of one cell."""

FAR = 1 << 40
"""A cost that no route reaches: closed."""

_CAP = 64 * UNIT  # no link becomes dearer than this by one contest
_GUESS_BITS = 26
_GUESS_MASK = (1 << _GUESS_BITS) - 1

BLOCKED = -(1 << 30)
"""Negotiation failed because a circuit has no way at all."""


class MeshArrays(NamedTuple):
    """The arrays of a fabric that kernels need."""

    mate: NDArray[np.int64]
    exits: NDArray[np.int64]  # (terminal entered, state): the terminal left
    link: NDArray[np.int64]
    ends: NDArray[np.int64]  # the one or two terminals of each link, -1 for none
    cell_cost: NDArray[np.int64]  # (cells, state)
    source: NDArray[np.int64]  # terminals of the ports
    target: NDArray[np.int64]
    to_go: NDArray[np.int64]  # (port, terminal): least cost from leaving there to that port


class Effort(NamedTuple):
    """How the price of contested links rises."""

    first: int = UNIT // 2
    growth_percent: int = 120
    history: int = UNIT // 2
    rounds: int = 60
    most: int = 1 << 60
    """The cost of all routes, prices aside, above which it gives up."""


FULL = Effort()

EFFORTS = (
    FULL,
    Effort(first=UNIT // 5, growth_percent=110),
    Effort(first=UNIT, history=UNIT, growth_percent=110, rounds=200),
    Effort(first=UNIT // 4, history=2 * UNIT, growth_percent=103, rounds=300),
)
"""The efforts to try in turn where one negotiation is not enough: ever more patience."""


class RoutingSpace(NamedTuple):
    """The arrays in which kernels work, so that none allocates."""

    exit_cost: NDArray[np.int64]
    cost: NDArray[np.int64]
    entered: NDArray[np.int64]
    use: NDArray[np.int64]
    history: NDArray[np.int64]
    keys: NDArray[np.int64]
    items: NDArray[np.int64]
    spare: NDArray[np.int32]  # a route


def new_workspace(terminals: int, links: int, width: int) -> RoutingSpace:
    """Allocate the workspace for the terminals and links of a graph, and routes up to a width."""
    return RoutingSpace(
        exit_cost=np.zeros(terminals, dtype=np.int64),
        cost=np.zeros(terminals, dtype=np.int64),
        entered=np.zeros(terminals, dtype=np.int64),
        use=np.zeros(links, dtype=np.int64),
        history=np.zeros(links, dtype=np.int64),
        keys=np.zeros(2 * terminals + 8, dtype=np.int64),
        items=np.zeros(2 * terminals + 8, dtype=np.int64),
        spare=np.zeros(width, dtype=np.int32),
    )


@kernel
def cost_to_go(mate, exits, cell_cost, target, out, keys, items):
    """Write to ``out[u]`` the least cost from leaving by u to leaving by `target`, or `FAR`."""
    for terminal in range(len(mate)):
        out[terminal] = FAR
    out[target] = 0
    size = push(keys, items, 0, 0, target)
    while size:
        cost = keys[0]
        leaving = items[0]
        size = pop(keys, items, size)
        if cost > out[leaving]:
            continue
        for state in range(2):
            before = mate[exits[leaving, state]]  # light in a cell comes back the way it went
            if before >= 0:
                total = cost + cell_cost[leaving >> 2, state]
                if total < out[before]:
                    out[before] = total
                    size = push(keys, items, size, total, before)


@kernel
def find_route(wiring, space, port, partner, route):
    """Write the terminals left on the cheapest way (A*); return their number, 0 for no way."""
    source, target = wiring.source[port], wiring.target[partner]
    to_go, mate, cost = wiring.to_go[partner], wiring.mate, space.cost
    for terminal in range(len(mate)):
        cost[terminal] = FAR
    size = 0
    at = source
    so_far = np.int64(0)
    while True:
        for state in range(2):
            leaving = wiring.exits[at, state]
            price = space.exit_cost[leaving]
            if to_go[leaving] >= FAR or price >= FAR:
                continue
            total = so_far + wiring.cell_cost[at >> 2, state] + price
            if total < cost[leaving]:
                cost[leaving] = total
                space.entered[leaving] = at
                key = ((total + to_go[leaving]) << _GUESS_BITS) | min(to_go[leaving], _GUESS_MASK)
                size = push(space.keys, space.items, size, key, leaving)
        while True:
            if size == 0:
                return 0
            leaving = space.items[0]
            key = space.keys[0]
            size = pop(space.keys, space.items, size)
            if (key >> _GUESS_BITS) == cost[leaving] + to_go[leaving]:
                break
        if leaving == target:
            break
        so_far = cost[leaving]
        at = mate[leaving]
    count = 1
    at = space.entered[target]
    while at != source:
        count += 1
        at = space.entered[mate[at]]
    if count > len(route):
        return 0
    leaving = target
    for place in range(count - 1, -1, -1):
        route[place] = leaving
        leaving = mate[space.entered[leaving]]
    return count


@inner_kernel
def _load(wiring, use, port, route, count, amount):
    """Count a route in or out of the use of its links."""
    use[wiring.link[wiring.source[port]]] += amount
    for step in range(count):
        use[wiring.link[route[step]]] += amount


@inner_kernel
def _price(wiring, space, base, pressure, link):
    """Set the cost of entering a link, from either end."""
    price = space.history[link] + pressure * space.use[link]
    for end in range(2):
        terminal = wiring.ends[link, end]
        if terminal >= 0:
            space.exit_cost[terminal] = base[terminal] + price


@inner_kernel
def _cost(wiring, base, port, route, count):
    """Add up the cost of a route that no other one contests."""
    total = np.int64(0)
    entered = wiring.source[port]
    for step in range(count):
        leaving = route[step]
        total += wiring.cell_cost[leaving >> 2, (leaving ^ entered) & 1] + base[leaving]
        entered = wiring.mate[leaving]
    return total


@inner_kernel
def _least(wiring, port, partner):
    """Return the cost of the cheapest way of a circuit that is alone."""
    source, to_go = wiring.source[port], wiring.to_go[partner]
    least = np.int64(FAR)
    for state in range(2):
        cost = wiring.cell_cost[source >> 2, state] + to_go[wiring.exits[source, state]]
        least = min(least, cost)
    return least


@kernel
def negotiate(wiring, space, effort, base, order, partner, routes, lengths):
    """Route the circuits of the ports in `order`, starting from the routes that are there.

    ``routes[port, :lengths[port]]`` are the terminals that its light leaves by; length 0 is
    unrouted. Returns 0 once no link is contested; after `effort.rounds` minus the number of links
    that still are, or `BLOCKED`.
    """
    n_links = len(space.use)
    space.use[:] = 0
    space.history[:] = 0
    total = np.int64(0)
    for place in range(len(order)):
        port = order[place]
        if lengths[port]:
            _load(wiring, space.use, port, routes[port], lengths[port], 1)
            total += _cost(wiring, base, port, routes[port], lengths[port])
        else:
            total += _least(wiring, port, partner[port])
    pressure = effort.first
    contested = 0
    for _ in range(effort.rounds):
        for link in range(n_links):
            _price(wiring, space, base, pressure, link)
        for place in range(len(order)):
            port = order[place]
            count = lengths[port]
            if count:
                clash = False
                for step in range(count):
                    if space.use[wiring.link[routes[port, step]]] > 1:
                        clash = True
                        break
                if not clash:
                    continue
                _load(wiring, space.use, port, routes[port], count, -1)
                total -= _cost(wiring, base, port, routes[port], count)
                for step in range(count):
                    _price(wiring, space, base, pressure, wiring.link[routes[port, step]])
            else:
                total -= _least(wiring, port, partner[port])
            count = find_route(wiring, space, port, partner[port], routes[port])
            lengths[port] = count
            if count == 0:
                return BLOCKED
            _load(wiring, space.use, port, routes[port], count, 1)
            for step in range(count):
                _price(wiring, space, base, pressure, wiring.link[routes[port, step]])
            total += _cost(wiring, base, port, routes[port], count)
        contested = 0
        for link in range(n_links):
            if space.use[link] > 1:
                contested += 1
                dearer = space.history[link] + effort.history * (space.use[link] - 1)
                space.history[link] = min(dearer, _CAP)
        if contested == 0:
            return 0
        if total > effort.most:
            break
        pressure = min(pressure * effort.growth_percent // 100, _CAP)
    return -contested


@inner_kernel
def _open(wiring, space, base, route, count, shut):
    """Close the links of a route to all, or open them again."""
    for step in range(count):
        for end in range(2):
            terminal = wiring.ends[wiring.link[route[step]], end]
            if terminal >= 0:
                space.exit_cost[terminal] = FAR if shut else base[terminal]


@kernel
def close_route(wiring, exit_cost, port, route):
    """Close the links of a route that starts at a port, from both ends."""
    exit_cost[wiring.source[port]] = FAR
    for step in range(len(route)):
        link = wiring.link[route[step]]
        for end in range(2):
            terminal = wiring.ends[link, end]
            if terminal >= 0:
                exit_cost[terminal] = FAR


@inner_kernel
def passes_link_twice(wiring, use, route, count):
    """Tell whether a route passes some link twice, once each way; `use` is 0 on its links."""
    again = False
    for step in range(count):
        use[wiring.link[route[step]]] += 1
        again = again or use[wiring.link[route[step]]] > 1
    for step in range(count):
        use[wiring.link[route[step]]] -= 1
    return again


@kernel
def shorten(wiring, space, base, order, partner, routes, lengths):
    """Put each circuit on its cheapest way past the others, until nothing gets cheaper.

    Needs routes that share no link. Returns their total cost.
    """
    space.use[:] = 0
    for terminal in range(len(wiring.mate)):
        space.exit_cost[terminal] = base[terminal]
    for place in range(len(order)):
        _open(wiring, space, base, routes[order[place]], lengths[order[place]], True)
        space.exit_cost[wiring.source[order[place]]] = FAR
    last = np.int64(FAR)
    while True:
        total = np.int64(0)
        for place in range(len(order)):
            port = order[place]
            count = lengths[port]
            before = _cost(wiring, base, port, routes[port], count)
            if before == _least(wiring, port, partner[port]):
                total += before
                continue
            _open(wiring, space, base, routes[port], count, False)
            found = find_route(wiring, space, port, partner[port], space.spare)
            after = space.cost[wiring.target[partner[port]]]
            if (
                found
                and after < before
                and not passes_link_twice(wiring, space.use, space.spare, found)
            ):
                for step in range(found):
                    routes[port, step] = space.spare[step]
                lengths[port] = found
                before = after
            total += before
            _open(wiring, space, base, routes[port], lengths[port], True)
        if total >= last:
            return total
        last = total

"""Kernels that route circuits through cells: shortest routes at given prices, negotiated congestion.

A state of the search is the terminal by which light *leaves* a cell, so the direction of travel is part
of it and a route cannot turn round inside a link. What is scarce are links: if no link is on two routes,
all routes through a cell agree on its state (any way through in bar and any way through in cross share
a link), so states need no variables of their own. Costs are integers, in 1/10,000 of a cell.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import EXITS
from optmatch.solvers.kernel import kernel

UNIT = 10_000
"""The cost of one cell."""

FAR = 1 << 40
"""A cost that no route reaches: what is closed."""

_H_BITS = 26
_H_MASK = (1 << _H_BITS) - 1
_EXITS = np.ascontiguousarray(EXITS, dtype=np.int64)


@kernel
def _push(keys, items, size, key, item):
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if keys[above] <= key:
            break
        keys[place] = keys[above]
        items[place] = items[above]
        place = above
    keys[place] = key
    items[place] = item
    return size + 1


@kernel
def _pop(keys, items, size):
    """Take the first item out; the caller has read it."""
    size -= 1
    key = keys[size]
    item = items[size]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        keys[place] = keys[below]
        items[place] = items[below]
        place = below
    keys[place] = key
    items[place] = item
    return size


@kernel
def cost_to_go(mate, cell_cost, exit_cost, target, out, keys, items):
    """Write to ``out[u]`` the least cost from leaving by u to leaving by `target`, or `FAR`."""
    for terminal in range(len(mate)):
        out[terminal] = FAR
    out[target] = 0
    size = _push(keys, items, 0, 0, target)
    while size:
        cost = keys[0]
        leaving = items[0]
        size = _pop(keys, items, size)
        if cost > out[leaving] or exit_cost[leaving] >= FAR:
            continue
        for state in range(2):
            entered = (leaving & ~3) + _EXITS[leaving & 3, state]
            before = mate[entered]
            if before >= 0:
                total = cost + cell_cost[leaving >> 2, state] + exit_cost[leaving]
                if total < out[before]:
                    out[before] = total
                    size = _push(keys, items, size, total, before)


@kernel
def _search(source, target, mate, cell_cost, exit_cost, to_go, cost, entered_by, keys, items, route):
    """A*: write the terminals left, in order, to `route`; return their number, or -1."""
    for terminal in range(len(mate)):
        cost[terminal] = FAR
    size = 0
    at = source
    so_far = np.int64(0)
    while True:
        cell = at >> 2
        for state in range(2):
            leaving = (at & ~3) + _EXITS[at & 3, state]
            price = exit_cost[leaving]
            if to_go[leaving] >= FAR or price >= FAR:
                continue
            total = so_far + cell_cost[cell, state] + price
            if total < cost[leaving]:
                cost[leaving] = total
                entered_by[leaving] = at
                key = ((total + to_go[leaving]) << _H_BITS) | min(to_go[leaving], _H_MASK)
                size = _push(keys, items, size, key, leaving)
        while True:
            if size == 0:
                return -1
            leaving = items[0]
            key = keys[0]
            size = _pop(keys, items, size)
            if (key >> _H_BITS) == cost[leaving] + to_go[leaving]:
                break
        if leaving == target:
            break
        so_far = cost[leaving]
        at = mate[leaving]
    count = 0
    while True:
        route[count] = leaving
        count += 1
        at = entered_by[leaving]
        if at == source:
            break
        leaving = mate[at]
    for k in range(count // 2):
        route[k], route[count - 1 - k] = route[count - 1 - k], route[k]
    return count


@kernel
def _load(route, count, source, link, amount, use):
    """Count a route in or out of the use of its links."""
    use[link[source]] += amount
    for k in range(count):
        use[link[route[k]]] += amount


@kernel
def _price(route, count, ends, base, history, pressure, use, link, exit_cost):
    """Set the price of the links of a route, in both directions."""
    for k in range(count):
        at = link[route[k]]
        price = history[at] + pressure * use[at]
        for end in range(2):
            terminal = ends[at, end]
            if terminal >= 0:
                exit_cost[terminal] = base[terminal] + price


@kernel
def negotiate(
    sources,
    targets,
    order,
    goal,
    to_go,
    mate,
    link,
    ends,
    cell_cost,
    base,
    first_pressure,
    growth_percent,
    history_step,
    rounds,
    routes,
    lengths,
    use,
    history,
    exit_cost,
    cost,
    entered_by,
    keys,
    items,
):
    """Route all circuits, raising the price of contested links until none is contested.

    Returns the number of contested links at the end (0: done), or -1 - k if circuit k has no way.
    """
    n_links = len(use)
    for at in range(n_links):
        use[at] = 0
        history[at] = 0
    for terminal in range(len(mate)):
        exit_cost[terminal] = base[terminal]
    for k in range(len(sources)):
        lengths[k] = 0
    pressure = np.int64(first_pressure)
    contested = 0
    for turn in range(rounds):
        for place in range(len(order)):
            k = order[place]
            count = lengths[k]
            if turn > 0:
                clash = False
                for step in range(count):
                    if use[link[routes[k, step]]] > 1:
                        clash = True
                        break
                if not clash:
                    continue
                _load(routes[k], count, sources[k], link, -1, use)
                _price(routes[k], count, ends, base, history, pressure, use, link, exit_cost)
            count = _search(
                sources[k],
                targets[k],
                mate,
                cell_cost,
                exit_cost,
                to_go[goal[k]],
                cost,
                entered_by,
                keys,
                items,
                routes[k],
            )
            if count < 0:
                return -1 - k
            lengths[k] = count
            _load(routes[k], count, sources[k], link, 1, use)
            _price(routes[k], count, ends, base, history, pressure, use, link, exit_cost)
        contested = 0
        for at in range(n_links):
            if use[at] > 1:
                contested += 1
                history[at] = min(history[at] + history_step * (use[at] - 1), 64 * UNIT)
        if contested == 0:
            return 0
        pressure = min(pressure * growth_percent // 100, 64 * UNIT)
        for at in range(n_links):
            price = history[at] + pressure * use[at]
            for end in range(2):
                if ends[at, end] >= 0:
                    exit_cost[ends[at, end]] = base[ends[at, end]] + price
    return contested


@kernel
def shorten(
    sources,
    targets,
    order,
    goal,
    to_go,
    mate,
    link,
    ends,
    cell_cost,
    base,
    routes,
    lengths,
    use,
    exit_cost,
    cost,
    entered_by,
    keys,
    items,
):
    """Take each circuit out and put it back by the cheapest free way, until nothing changes.

    Needs routes that share no link, and their `use`. Returns the total cost at the end.
    """
    for terminal in range(len(mate)):
        exit_cost[terminal] = FAR if use[link[terminal]] else base[terminal]
    better = True
    last = np.int64(FAR)
    while better:
        total = np.int64(0)
        for place in range(len(order)):
            k = order[place]
            for step in range(lengths[k]):
                for end in range(2):
                    terminal = ends[link[routes[k, step]], end]
                    if terminal >= 0:
                        exit_cost[terminal] = base[terminal]
            _load(routes[k], lengths[k], sources[k], link, -1, use)
            count = _search(
                sources[k],
                targets[k],
                mate,
                cell_cost,
                exit_cost,
                to_go[goal[k]],
                cost,
                entered_by,
                keys,
                items,
                routes[k],
            )
            lengths[k] = count
            total += cost[targets[k]]
            _load(routes[k], count, sources[k], link, 1, use)
            for step in range(count):
                for end in range(2):
                    terminal = ends[link[routes[k, step]], end]
                    if terminal >= 0:
                        exit_cost[terminal] = FAR
        better = total < last
        last = total
    return last

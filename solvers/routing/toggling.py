"""Changing the circuits of a switch with few toggles: kernels of `Router.reroute`.

A *toggle* is a lit cell that is driven to its other state. Circuits that the present states carry
stay where they are; the new ones are fitted in between, one after the other, each on its path of
the fewest toggles (a bidirectional search, level by level of toggles). Where one does not fit, all
circuits are ripped up and rerouted by negotiated congestion (McMurchie and Ebeling 1995, doi
10.1145/201310.201328) at the price of their toggles. Then each circuit in turn looks for a way of
fewer toggles past all others.

A route is *occupied* while its links are closed to other circuits, and the states in which it
passes its cells cost no toggle. In all kernels ``scratch.known_states[cell]`` are the states
before the change, and ``scratch.toll[cell, state]`` is what passing a cell costs at present.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.arrays import copy_into
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.kernels.two_sided import (
    NOT_REACHED,
    Meeting,
    count_chain,
    forget,
    turned,
    write_chain,
)
from optmatch.solvers.routing.pathfinder import (
    FAR,
    UNIT,
    Effort,
    MeshArrays,
    RoutedCircuits,
    RoutingSpace,
    cell_of,
    close_route,
    negotiate,
    open_route,
    passes_link_twice,
    state_between,
    sum_cell_costs,
    with_cell_cost,
)
from optmatch.solvers.routing.rows import (
    NO_MATCHING,
    ROUTED,
    WRONG_STATES,
    PortTable,
    RowScratch,
    copy_routes,
    follow_circuit,
    line_up,
    write_states,
)

NO_ROOM = -2
"""`fit_in_circuits` or `negotiate_change` found no routes."""


class Toll(NamedTuple):
    """The terms of one negotiation in which circuits pay for their toggles."""

    price: int
    """The cost of a toggle, in cells."""
    effort: Effort
    """How prices of contested links rise."""


_QUICK = Effort(first=4 * UNIT, growth_percent=130, history=8 * UNIT, rounds=14)
"""How prices rise in the first negotiation.

Those that succeed take 3 to 12 rounds. Half of the first price doubles the time at equal toggles;
twice of it lets one in six fail.
"""

_PATIENT = _QUICK._replace(growth_percent=110, rounds=30)
"""How they rise in further ones: slowly, as two circuits may have given way to each other in turn.

On 36x36 hexagons with 128 ports this took a change of two circuits from 25 ms and 160 toggles,
after three quick negotiations that failed, to a third of both. The first one stays quick: a slow
one has 0.5 % fewer toggles, and takes a tenth more time.
"""

TOLLS = (Toll(8, _QUICK), Toll(4, _PATIENT), Toll(2, _PATIENT))
"""The negotiations that are tried in turn.

Tuned with 480 changes of all circuits and 700 of two, on 9x9 and 17x17 hexagons: at a price of 24
cells a fifth of the negotiations fail and each takes twice as long; at 12 one in fifteen fails; at
6 there are a tenth more toggles, at 3 a quarter more. None of 1,180 failed at all three.
"""

_REFITS = 2
"""Passes over all circuits that look for fewer toggles: a third one saves 0.3 % of them."""

_TOGGLE = 1 << 32
"""The cost of a toggle in `find_fewest_toggles`: more than that of all cells of a route."""

_STRIDE = 64
"""Terminals that one side of a search expands before the other one may go on."""


class RoutedRow(NamedTuple):
    """The arrays that receive the answer for one matching."""

    states: NDArray[np.int8]
    """(cells,): 0 bar, 1 cross, -1 where neither is asked for."""
    routes: NDArray[np.int32]
    """(ports, width): terminals by which light leaves its cells."""
    lengths: NDArray[np.int64]
    """(ports,): cells on the route, 0 where there is none."""


class SearchSide(NamedTuple):
    """The arrays of one of the two ends of a bidirectional search.

    A *terminal* is a place of a cell where light enters or leaves. A *level* is a number of
    toggles on the path from this end. The terminals that wait at a level are in buckets by the
    cells on the path (Dial 1969): each bucket is a linked list of entries, one for each terminal.
    """

    cost: NDArray[np.int64]
    """(terminals,): least cost of coming to a cell by this terminal; `NOT_REACHED` between two
    searches."""
    previous: NDArray[np.int32]
    """(terminals,): the terminal before on the path from this end, -1 at the end itself."""
    reached: NDArray[np.int32]
    """(places,): the terminals that have been reached."""
    bucket: NDArray[np.int32]
    """(buckets,): the first entry of each bucket, -1 where it is empty."""
    entered: NDArray[np.int32]
    """(entries,): the terminal of an entry."""
    next_entry: NDArray[np.int32]
    """(entries,): the entry after it in its bucket, -1 for none."""
    later: NDArray[np.int32]
    """(entries,): terminals of the next level."""


class SideProgress(NamedTuple):
    """How far one of the two ends of a bidirectional search has come."""

    level: int
    """All paths of fewer toggles from this end have been seen."""
    bucket: int
    """All paths of so many toggles, and of fewer cells than this, have been seen as well."""
    n_waiting: int
    """Entries of this level that still have to be expanded."""
    n_entries: int
    """Entries of this level in all."""
    n_later: int
    """Terminals found so far that belong to the next level."""
    n_reached: int
    """Terminals reached since the search began."""
    n_expanded: int
    """Entries expanded since the search began."""


@inner_kernel
def _occupy_route(graph: MeshArrays, space: RoutingSpace, scratch: RowScratch, port):
    """Close the links of a route to others, and let passing its cells cost no toggle any more.

    The route is ``scratch.routes[port, :scratch.lengths[port]]`` of the source port `port`.
    Changes ``space.exit_cost[terminal]`` to `FAR` on its links, and for its cells
    ``scratch.toll[cell, state]`` and ``scratch.n_lit[cell]``, the circuits through the cell.
    """
    route = scratch.routes[port, : scratch.lengths[port]]
    close_route(graph, space.exit_cost, port, route)
    entering = graph.source[port]
    for step in range(len(route)):
        leaving = route[step]
        cell = cell_of(leaving)
        state = state_between(entering, leaving)
        scratch.toll[cell, state] = graph.cell_cost[cell, state]
        scratch.n_lit[cell] += 1
        entering = graph.mate[leaving]


@inner_kernel
def _occupy_routes(graph: MeshArrays, space: RoutingSpace, scratch: RowScratch, order):
    """Occupy the routes of the circuits in `order`, and release all others.

    Writes ``space.exit_cost[terminal]``, and the tolls of the cells with ``scratch.n_lit[cell]``,
    the circuits through a cell; ``space.use[link]`` is cleared, for `passes_link_twice`.
    """
    space.exit_cost[:] = 0
    space.use[:] = 0
    scratch.n_lit[:] = 0
    for cell in range(len(scratch.toll)):
        _price_cell(graph, scratch, cell, _TOGGLE)
    for place in range(len(order)):
        _occupy_route(graph, space, scratch, order[place])


@inner_kernel
def _price_cell(graph: MeshArrays, scratch: RowScratch, cell, toggle_cost):
    """Set ``scratch.toll`` of a cell: its cost, and that of a toggle if it is needed.

    A toggle is needed for the state that is not the known one; where none is known, for neither.
    """
    for state in range(2):
        scratch.toll[cell, state] = graph.cell_cost[cell, state]
        if scratch.known_states[cell] == 1 - state:
            scratch.toll[cell, state] += toggle_cost


@inner_kernel
def _release_route(graph: MeshArrays, space: RoutingSpace, scratch: RowScratch, port):
    """Undo `_occupy_route` for one circuit, while the routes of others stay occupied."""
    route = scratch.routes[port, : scratch.lengths[port]]
    open_route(graph, space.exit_cost, scratch.no_cost, port, route)

    # A cell that another circuit passes as well stays set: passing it costs no toggle.
    for step in range(len(route)):
        cell = cell_of(route[step])
        scratch.n_lit[cell] -= 1
        if scratch.n_lit[cell] == 0:
            _price_cell(graph, scratch, cell, _TOGGLE)


@inner_kernel
def _put_in_bucket(side: SearchSide, entry, entering, cells_cost):
    """Let a terminal wait at the present level, in the bucket of its cost without toggles.

    `entering` is the terminal, `entry` a free place of ``side.entered`` and ``side.next_entry``,
    and `cells_cost` the cost of the cells on its path: 3 * `UNIT` is bucket 3. The new entry comes
    first in its bucket.
    """
    number = min(cells_cost // UNIT, len(side.bucket) - 1)
    side.entered[entry] = entering
    side.next_entry[entry] = side.bucket[number]
    side.bucket[number] = entry


@inner_kernel
def _begin_next_level(side: SearchSide, progress: SideProgress, best_cost) -> SideProgress:
    """Let the terminals of the next level of toggles wait, once none is left at the present one.

    Moves ``side.later`` into the buckets, and returns the progress of the side at the new level;
    terminals that cannot beat `best_cost` are left out. If no terminal waits afterwards, the side
    has nowhere to go. A cost at level 2 is 2 * `_TOGGLE` and that of the cells on the path, which
    says the bucket.
    """
    level = progress.level + 1
    level_cost = level * _TOGGLE
    n_entries = 0
    for place in range(progress.n_later):
        # Some were reached by fewer toggles in the meantime, others cannot be better any more.
        entering = side.later[place]
        cost = side.cost[entering]
        if level_cost <= cost < best_cost:
            _put_in_bucket(side, n_entries, entering, cost - level_cost)
            n_entries += 1
    return SideProgress(
        level=level,
        bucket=0,
        n_waiting=n_entries,
        n_entries=n_entries,
        n_later=0,
        n_reached=progress.n_reached,
        n_expanded=progress.n_expanded,
    )


@inner_kernel
def _expand_stride(
    graph: MeshArrays,
    prices,
    sides: tuple[SearchSide, SearchSide],
    progress: SideProgress,
    least_opposite,
    best: Meeting,
):
    """Expand up to `_STRIDE` terminals of the present level, on one side of the search.

    The terminals with the fewest cells on their path come first. A cell that is set already leads
    on to terminals of the same level, one that has to be toggled to terminals of the next level:
    after 2 toggles and 3 cells, to bucket 4 of level 2, or else to level 3. Light in a cell goes
    back the way it came, hence both sides are expanded alike.

    Parameters
    ----------
    prices
        ``exit_cost[terminal]``, `FAR` where closed, and ``toll[cell, state]``, the cost of passing
        a cell: `_TOGGLE` or more if it has to be toggled.
    sides
        The side that is expanded, whose arrays are changed, and the opposite one.
    progress
        How far the first of them has come.
    least_opposite
        The opposite side has expanded all that it reaches at less than this cost.
    best
        The best meeting of both sides so far: the cost of the whole path, and the terminals by
        which this side (near) and the opposite one (far) enter the cell where they meet. Its cost
        is `NOT_REACHED` before there is one.

    Returns
    -------
    progress, best
        Both as they are after these terminals, or at the end of the level.
    """
    exit_cost, toll = prices
    side, opposite = sides
    level_cost = progress.level * _TOGGLE
    bucket = progress.bucket
    n_waiting = progress.n_waiting
    n_entries = progress.n_entries
    n_later = progress.n_later
    n_reached = progress.n_reached
    n_expanded = progress.n_expanded
    n_capacity = len(side.entered)
    stop = n_expanded + _STRIDE
    while n_waiting > 0 and n_expanded < stop:
        # The next entry that waits. One whose terminal was reached by a shorter path in the
        # meantime is expanded once more, which finds nothing new.
        while side.bucket[bucket] < 0:
            bucket += 1
        entry = side.bucket[bucket]
        side.bucket[bucket] = side.next_entry[entry]
        entering = side.entered[entry]
        n_waiting -= 1
        n_expanded += 1

        # Both states lead on: one of them at a toll if the cell has to be toggled.
        for state in range(2):
            leaving = graph.exits[entering, state]
            if exit_cost[leaving] >= FAR:
                continue
            cell_toll = toll[cell_of(entering), state]
            total = side.cost[entering] + cell_toll
            if total + opposite.cost[leaving] < best.cost:
                cost = total + opposite.cost[leaving]
                best = Meeting(cost, np.int64(entering), np.int64(leaving))  # type: ignore[arg-type]

            # The next cell is worth a visit if this is the cheapest path there so far. Better
            # meetings that the opposite side could have reached have just been looked for.
            onward = graph.mate[leaving]
            if onward < 0 or total >= side.cost[onward] or total + least_opposite >= best.cost:
                continue
            if max(n_entries, n_later) == n_capacity:
                continue  # no place is left, which costs at most a shorter path

            # The first time that it is reached it is noted, for the costs to be reset.
            if side.cost[onward] == NOT_REACHED:
                side.reached[n_reached] = onward
                n_reached += 1
            side.cost[onward] = total
            side.previous[onward] = entering
            if cell_toll >= _TOGGLE:
                side.later[n_later] = onward
                n_later += 1
            else:
                _put_in_bucket(side, n_entries, onward, total - level_cost)
                n_entries += 1
                n_waiting += 1
    progress = SideProgress(
        progress.level, bucket, n_waiting, n_entries, n_later, n_reached, n_expanded
    )
    if n_waiting == 0:
        progress = _begin_next_level(side, progress, best.cost)
    return progress, best


@inner_kernel
def _join_ways(graph: MeshArrays, sides: tuple[SearchSide, SearchSide], meeting: Meeting, route):
    """Write down the way that two searches found, from the source through the cell of meeting.

    Writes to `route` the terminals by which light leaves the cells; `sides` are the searches from
    the source and from the target. Either search has for each terminal the one before it on its
    path, seen from its own end; `meeting` are the terminals by which the way enters and leaves the
    cell where they met. Returns the number of cells, 0 if `route` is too short.
    """
    from_source, from_target = sides
    first = meeting.near
    last = meeting.far

    # The number of cells before the one where the searches met, and of all cells.
    n_before = count_chain(from_source.previous, first) - 1
    count = n_before + count_chain(from_target.previous, last)
    if count > len(route):
        return 0

    # The search from the source has the terminals by which light enters the cells. A cell is left
    # at the mate of the terminal by which the next one is entered.
    write_chain(from_source.previous, first, route, n_before, -1)
    for step in range(n_before):
        route[step] = graph.mate[route[step + 1]]

    # The search from the target saw the cells in reverse, hence its terminals are those by which
    # light leaves, from the cell of meeting on.
    write_chain(from_target.previous, last, route, n_before, 1)
    return count


@inner_kernel
def _side_of_search(scratch: RowScratch, end) -> SearchSide:
    """Return the arrays of one end of a search: 0 for that at the source, 1 at the target."""
    rows = scratch.side_marks[end]
    n_cells = len(scratch.toll)
    return SearchSide(
        cost=scratch.side_costs[end],
        previous=rows[0],
        reached=rows[1],
        bucket=rows[2, : n_cells + 1],
        entered=rows[3],
        next_entry=rows[4],
        later=rows[5],
    )


@inner_kernel
def _begin_at(side: SearchSide, terminal) -> SideProgress:
    """Let one side of a search begin at a terminal; its costs are `NOT_REACHED` before."""
    side.bucket[:] = -1
    side.cost[terminal] = 0
    side.previous[terminal] = -1
    side.reached[0] = terminal
    _put_in_bucket(side, 0, terminal, 0)
    return SideProgress(
        level=0, bucket=0, n_waiting=1, n_entries=1, n_later=0, n_reached=1, n_expanded=0
    )


@kernel
def find_fewest_toggles(
    graph: MeshArrays, space: RoutingSpace, scratch: RowScratch, port, max_toggles, route
):
    """Find the way of a circuit with the fewest toggles, and of these the one of fewest cells.

    Writes ``route[step]``, the terminals by which light leaves cells. Bidirectional Dijkstra: the
    sides of source and target are searched by ascending cost from their ends. A *level* is all
    that costs the same number of toggles, and a *bucket* of it what has the same number of cells.
    Dark cells cost no toggle in either state: a level that comes to them may take in most of the
    fabric. The side that has expanded fewer terminals therefore expands the next `_STRIDE` ones,
    so that the side with little around it ends its levels first.

    A cost is one whole number, ``toggles * _TOGGLE + cells * UNIT``, hence toggles are compared
    first. If the source side is at level 2 and bucket 5, and the target side at level 1 and bucket
    4, no path that is unseen costs less than 3 toggles and 9 cells. If the best meeting of both
    sides costs no more than that, the search ends.

    ``space.exit_cost[terminal]`` is `FAR` where a link is closed, ``scratch.toll[cell, state]``
    the cost of passing a cell, `_TOGGLE` included where it has to be toggled, and
    ``scratch.partner[port]`` the destination. Returns the number of cells and that of toggles,
    both 0 if there is no path of at most `max_toggles` that fits into `route`.
    """
    source = graph.source[port]
    target = graph.target[scratch.partner[port]]
    from_source = _side_of_search(scratch, 0)
    from_target = _side_of_search(scratch, 1)
    source_progress = _begin_at(from_source, source)
    target_progress = _begin_at(from_target, target)

    # The search ends when one side has nowhere to go, or no unseen path can be better.
    prices = (space.exit_cost, scratch.toll)
    best = Meeting(np.int64(NOT_REACHED), np.int64(-1), np.int64(-1))  # type: ignore[arg-type]
    while source_progress.n_waiting and target_progress.n_waiting:
        least_from_source = source_progress.level * _TOGGLE + source_progress.bucket * UNIT
        least_from_target = target_progress.level * _TOGGLE + target_progress.bucket * UNIT
        if (
            source_progress.level + target_progress.level > max_toggles
            or best.cost <= least_from_source + least_from_target
        ):
            break

        # The side that has expanded less goes on. A meeting has a near terminal, of the side that
        # looks at it, and a far one: they are exchanged (`turned`) for the target side, and back.
        if source_progress.n_expanded <= target_progress.n_expanded:
            sides = (from_source, from_target)
            source_progress, best = _expand_stride(
                graph, prices, sides, source_progress, least_from_target, best
            )
        else:
            sides = (from_target, from_source)
            target_progress, seen = _expand_stride(
                graph, prices, sides, target_progress, least_from_source, turned(best)
            )
            best = turned(seen)

    # Costs are reset for the next search; a way that costs too many toggles is none.
    forget(from_source.cost, from_source.reached, source_progress.n_reached)
    forget(from_target.cost, from_target.reached, target_progress.n_reached)
    if best.cost >= min(NOT_REACHED, (max_toggles + 1) * _TOGGLE):
        return 0, 0

    count = _join_ways(graph, (from_source, from_target), best, route)
    if count == 0:
        return 0, 0
    return count, best.cost // _TOGGLE


@inner_kernel
def _route_in_turn(
    graph: MeshArrays, space: RoutingSpace, scratch: RowScratch, ports_in_turn, max_toggles
):
    """Route new circuits one by one past those that are there, each with the fewest toggles.

    `ports_in_turn` are the source ports of the circuits. `max_toggles` bounds all of them
    together. Writes their routes to `scratch` and occupies them. Returns the toggles of all new
    routes together, and those of the one that was found first; both are `NO_ROOM` if a circuit
    does not fit.
    """
    for place in range(len(ports_in_turn)):
        scratch.lengths[ports_in_turn[place]] = 0
    n_toggles = 0
    n_toggles_of_first = 0
    for place in range(len(ports_in_turn)):
        port = ports_in_turn[place]
        length, route_toggles = find_fewest_toggles(
            graph, space, scratch, port, max_toggles - n_toggles, scratch.routes[port]
        )
        if length == 0 or passes_link_twice(graph, space.use, scratch.routes[port, :length]):
            return NO_ROOM, NO_ROOM
        scratch.lengths[port] = length
        n_toggles += route_toggles
        if place == 0:
            n_toggles_of_first = route_toggles

        # Later circuits find these links closed, and these cells set without a toggle.
        _occupy_route(graph, space, scratch, port)
    return n_toggles, n_toggles_of_first


@inner_kernel
def _route_new_circuits(
    graph: MeshArrays, space: RoutingSpace, scratch: RowScratch, new_ports, routed: RoutedRow
):
    """Route the new circuits of a change past those that stay, by few toggles.

    `new_ports` are the source ports of the new circuits, and `routed` receives their routes.
    Returns whether all fit. Two orders are tried, the given one and
    its reverse, and the one of fewer toggles counts. Then each new circuit looks for a path of
    fewer toggles past all others. Links, tolls and routes of `space` and `scratch` follow.
    """
    # `max_toggles` bounds each try: at first by the number of cells, more than are ever needed.
    n_orders = min(len(new_ports), 2)
    max_toggles = len(scratch.toll)
    fits = n_orders == 0
    is_least = fits
    best_order = new_ports
    for turn in range(n_orders):
        ports_in_turn = new_ports
        if turn == 1:
            ports_in_turn = new_ports[::-1]
        n_toggles, n_least = _route_in_turn(graph, space, scratch, ports_in_turn, max_toggles)

        # The other order has to do with fewer toggles.
        if n_toggles != NO_ROOM:
            fits = True
            best_order = ports_in_turn
            max_toggles = n_toggles - 1
            copy_routes(new_ports, scratch, routed)
        for place in range(len(new_ports)):
            _release_route(graph, space, scratch, new_ports[place])

        # The other order has to be better. It cannot be if the circuit that was routed first
        # takes all the toggles: any path of it past those that stay needs as many cells to be
        # driven to their other state, whichever circuit does it.
        if n_toggles != NO_ROOM and n_toggles == n_least:
            is_least = True
            break
    if fits and not is_least:
        copy_routes(new_ports, routed, scratch)
        for place in range(len(new_ports)):
            _occupy_route(graph, space, scratch, new_ports[place])

        # Each took the fewest cells for its toggles, so that only fewer toggles can help now.
        fewer_toggles_only = True
        _save_toggles(graph, space, scratch, best_order, fewer_toggles_only)
        copy_routes(new_ports, scratch, routed)
    return fits


@kernel
def fit_in_circuits(
    graph: MeshArrays,
    space: RoutingSpace,
    ports: PortTable,
    scratch: RowScratch,
    matching,
    present_states,
    routed: RoutedRow,
):
    """Keep the circuits that the present states carry, and fit in the others.

    ``matching[source]`` is the destination, -1 where idle, and ``present_states[cell]`` 0 bar, 1
    cross, or -1 where not known. `routed` receives the new states, in which a stuck cell is stated
    as it is, or -1, and the routes. Returns `ROUTED`, or else `NO_MATCHING`, `WRONG_STATES`, or
    `NO_ROOM`: then ``scratch.order`` has the circuits, and ``scratch.routes`` the routes of those
    that could stay.
    """
    n_circuits = line_up(ports, matching, scratch.order, scratch.partner, scratch.taken)
    if n_circuits < 0:
        return NO_MATCHING
    order = scratch.order[:n_circuits]

    # What is known of the cells: of a stuck one its state, or nothing if another one is given.
    known_states = scratch.known_states
    for cell in range(len(known_states)):
        state = present_states[cell]
        if state < -1 or state > 1:
            return WRONG_STATES
        is_wrong = ports.stuck[cell] >= 0 and state != ports.stuck[cell]
        known_states[cell] = -1 if is_wrong else state

    # The circuits that the states carry, whose length is not 0, come first in the order; the order
    # among them, and among the others, stays: 7, 2, 5, 3 becomes 2, 3, 7, 5 if 2 and 3 are kept.
    routed.lengths[:] = 0
    scratch.lengths[:] = 0
    n_kept = 0
    for place in range(len(order)):
        port = order[place]
        if follow_circuit(graph, scratch, known_states, port):
            for later in range(place, n_kept, -1):
                order[later] = order[later - 1]
            order[n_kept] = port
            n_kept += 1

    # The links of circuits that stay are closed, and cells that they have set cost no toggle.
    _occupy_routes(graph, space, scratch, order[:n_kept])
    copy_routes(order[:n_kept], scratch, routed)

    new_ports = order[n_kept:]
    if not _route_new_circuits(graph, space, scratch, new_ports, routed):
        for place in range(len(new_ports)):
            scratch.lengths[new_ports[place]] = 0
        return NO_ROOM
    copy_into(routed.states, scratch.known_states)
    write_states(graph, order, routed.routes, routed.lengths, routed.states)
    return ROUTED


@inner_kernel
def _save_toggles(
    graph: MeshArrays,
    space: RoutingSpace,
    scratch: RowScratch,
    order,
    fewer_toggles_only,
):
    """Put each circuit in turn on its path of the fewest toggles past all others.

    `order` lists source ports. Changes ``scratch.routes`` and ``scratch.lengths``. Cells whose
    state was not known, or that lie on the routes of others already, cost no toggle. A path is
    taken if it has fewer toggles than the present one, or as many and its cells cost less. With
    `fewer_toggles_only` the search is for fewer toggles alone. All routes are occupied, before and
    afterwards.
    """
    # At most `_REFITS` rounds over all circuits. As long as the routes of the others stay as they
    # are, a circuit finds the same path again: once as many circuits in a row as there are have
    # not changed (`n_unchanged`), nothing will.
    n_unchanged = 0
    for turn in range(_REFITS * len(order)):
        port = order[turn % len(order)]
        _release_route(graph, space, scratch, port)

        # A cost is ``toggles * _TOGGLE + cells``: `_TOGGLE` is more than all cells of a route
        # cost. A circuit without a toggle cannot save any, and keeps its path. The new path is
        # written to ``space.spare``.
        present = scratch.routes[port, : scratch.lengths[port]]
        cost = sum_cell_costs(graph, scratch.toll, port, present)
        max_toggles = cost // _TOGGLE
        if fewer_toggles_only:
            max_toggles -= 1
        length = 0
        if cost >= _TOGGLE and max_toggles >= 0:
            length, _toggles = find_fewest_toggles(
                graph, space, scratch, port, max_toggles, space.spare
            )

        # The new path is taken if it costs less. One that passes a link twice, once in each
        # direction, is no route.
        route = space.spare[:length]
        n_unchanged += 1
        is_cheaper = length > 0 and sum_cell_costs(graph, scratch.toll, port, route) < cost
        if is_cheaper and not passes_link_twice(graph, space.use, route):
            n_unchanged = 0
            scratch.lengths[port] = length
            copy_into(scratch.routes[port], route)
        _occupy_route(graph, space, scratch, port)
        if n_unchanged == len(order):
            break


@kernel
def negotiate_change(
    graph: MeshArrays,
    space: RoutingSpace,
    scratch: RowScratch,
    order,
    toll: Toll,
    routed: RoutedRow,
):
    """Rip up and reroute circuits at the price of their toggles, then save toggles one by one.

    `order` lists the source ports of all circuits, and `routed` receives the answer. Begins with
    ``scratch.routes``, where a length of 0 is a circuit without a route, and with the known
    states, as `fit_in_circuits` leaves both. Returns `ROUTED`, or `NO_ROOM`; then the routes of
    `routed` are of no use.
    """
    # A cell costs more in the state that it is not in now.
    for cell in range(len(scratch.toll)):
        _price_cell(graph, scratch, cell, toll.price * UNIT)
    priced = with_cell_cost(graph, scratch.toll)
    copy_routes(order, scratch, routed)
    circuits = RoutedCircuits(order, scratch.partner, routed.routes, routed.lengths)
    if negotiate(priced, space, toll.effort, scratch.no_cost, circuits) < 0:
        return NO_ROOM
    finish_change(graph, space, scratch, order, routed)
    return ROUTED


@kernel
def finish_change(
    graph: MeshArrays, space: RoutingSpace, scratch: RowScratch, order, routed: RoutedRow
):
    """Save toggles of routed circuits, and state their cells.

    `order` lists source ports. ``routed.routes`` and ``routed.lengths`` are those of their
    circuits, and receive the new ones; ``routed.states`` receives the states.
    ``scratch.routes`` and ``scratch.lengths`` are overwritten.
    """
    copy_routes(order, routed, scratch)
    _occupy_routes(graph, space, scratch, order)

    # Paths of as many toggles and cheaper cells count, too, as negotiation takes detours.
    fewer_toggles_only = False
    _save_toggles(graph, space, scratch, order, fewer_toggles_only)
    copy_routes(order, scratch, routed)
    copy_into(routed.states, scratch.known_states)
    write_states(graph, order, routed.routes, routed.lengths, routed.states)

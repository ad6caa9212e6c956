"""Changing the circuits of a switch with few toggles: kernels of `Router.reroute`.

A *toggle* is a lit cell that is driven to its other state. Circuits that the present states carry
stay where they are; the new ones are fitted in between, one after the other, each on its way of
the fewest toggles (a bidirectional search, level by level of toggles). Where one does not fit, all
circuits are ripped up and rerouted by negotiated congestion (McMurchie and Ebeling 1995, doi
10.1145/201310.201328) at the price of their toggles. Then each circuit in turn looks for a way of
fewer toggles past all others.

Routes are kept as the terminals by which light leaves the cells; `terminals` explains how these
are numbered. In all kernels ``graph`` is the `MeshArrays` of the fabric, ``space`` the
`RoutingSpace` and ``room`` the `Room` to work in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.chains import count_chain, write_chain
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.routing.pathfinder import (
    FAR,
    UNIT,
    Effort,
    RoutedCircuits,
    negotiate,
    passes_link_twice,
    with_cell_cost,
)
from optmatch.solvers.routing.rows import line_up
from optmatch.solvers.routing.terminals import cell_of, state_between

NO_ROOM = -1
"""`fit_in_circuits` or `negotiate_change` found no routes."""
NO_MATCHING_GIVEN = -2
"""The row is no matching of the live ports."""
NO_STATES_GIVEN = -3
"""An entry of the present states is neither -1, 0 nor 1."""

TOLL_PRICES = (8, 4, 2)
"""What a toggle costs in the negotiations that are tried in turn, in cells.

Tuned with 480 changes of all circuits and 700 of two, on 9x9 and 17x17 hexagons: at 24 cells a
fifth of the negotiations fail and each takes twice as long; at 12 one in fifteen fails; at 6 there
are a tenth more toggles, at 3 a quarter more. None of 1,180 failed at all three.
"""

AT_TOLL = Effort(first=4 * UNIT, growth_percent=130, history=8 * UNIT, rounds=14)
"""How prices of contested links rise in these negotiations.

Those that succeed take 3 to 12 rounds. Half of the first price doubles the time at equal toggles;
twice of it lets one in six fail.
"""

_REFITS = 2
"""Passes over all circuits that look for fewer toggles: a third one saves 0.3 % of them."""

_TOGGLE = 1 << 32
"""The cost of a toggle in `find_fewest_toggles`: more than that of all cells of a route."""


class Change(NamedTuple):
    """What is to be changed, and to what."""

    states: NDArray[np.int8]
    """``states[cell]``: 0 bar, 1 cross, -1 where not known."""
    matching: NDArray[np.int32]
    """``matching[source] = destination``, -1 where idle."""


class RoutedRow(NamedTuple):
    """The arrays that receive the answer for one matching."""

    states: NDArray[np.int8]  # (cells,)
    routes: NDArray[np.int32]  # (ports, width): terminals by which light leaves its cells
    lengths: NDArray[np.int64]  # (ports,): cells on the route, 0 where there is none


class SearchSide(NamedTuple):
    """One of the two ends of a bidirectional search."""

    cost: NDArray[np.int64]  # (terminals,): least cost of coming to a cell by this terminal
    # (terminals,): the terminal before on the way from this end, -1 at the end itself.
    previous: NDArray[np.int64]
    waiting: NDArray[np.int64]  # (2, places): terminals of this level and of the next one


class Meeting(NamedTuple):
    """Where the two sides of a search meet, as far as is known."""

    cost: int  # of the whole way
    entered: int  # the terminal by which the side that found it comes to the cell, -1 for none
    left: int  # the terminal by which the other side does


@kernel
def follow_circuit(graph, room, states, port):
    """Follow the light of a port through cell states into ``room.routes`` and ``room.lengths``.

    A route that arrives has each link for itself: as light in a cell goes back the way it came,
    other light there could only come from the place where this light goes to.

    Parameters
    ----------
    graph : MeshArrays
        The graph of the fabric: how terminals of cells are joined by links, and what cells cost.
    room : Room
        ``room.partner[port]`` is the destination.
    states : int8 array, shape (cells,)
        0 bar, 1 cross; light ends at a cell of state -1.
    port : int
        The source port.

    Returns
    -------
    int
        The number of cells; 0 if the light does not come to its destination.
    """
    route = room.routes[port]
    length = 0
    entering = graph.source[port]
    leaving = -1
    while entering >= 0 and states[cell_of(entering)] >= 0 and length < len(route):
        leaving = graph.exits[entering, states[cell_of(entering)]]
        route[length] = leaving
        entering = graph.mate[leaving]
        length += 1
    if leaving != graph.target[room.partner[port]]:
        length = 0
    room.lengths[port] = length
    return length


@kernel
def occupy_route(graph, space, toll, port, route):
    """Close the links of a route to others, and let passing its cells cost no toggle any more.

    Parameters
    ----------
    graph : MeshArrays
        The graph of the fabric: how terminals of cells are joined by links, and what cells cost.
    space : RoutingSpace
        ``space.exit_cost`` of the links becomes `FAR`, and ``space.use`` counts the passages.
    toll : int64 array, shape (cells, states)
        The cost of passing a cell, with `_TOGGLE` if it has to be toggled; changed.
    port : int
        The source port of the circuit.
    route : int32 array, shape (cells on the route,)
        The terminals by which its light leaves the cells.

    Returns
    -------
    bool
        False if the route passes a link twice, once in each direction.
    """
    entering = graph.source[port]
    space.exit_cost[entering] = FAR
    space.use[graph.link[entering]] += 1
    is_simple = True
    for step in range(len(route)):
        leaving = route[step]
        link = graph.link[leaving]
        space.use[link] += 1
        if space.use[link] > 1:
            is_simple = False
        for end in range(2):
            terminal = graph.ends[link, end]
            if terminal >= 0:
                space.exit_cost[terminal] = FAR
        state = state_between(entering, leaving)
        toll[cell_of(leaving), state] = graph.cell_cost[cell_of(leaving), state]
        entering = graph.mate[leaving]
    return is_simple


@kernel
def clear_occupation(graph, space, states, toll):
    """Open all links, and price all cells as before any route is chosen.

    Parameters
    ----------
    graph : MeshArrays
        The graph of the fabric: how terminals of cells are joined by links, and what cells cost.
    space : RoutingSpace
        ``space.exit_cost`` and ``space.use`` become 0.
    states : int8 array, shape (cells,)
        The present states, -1 where not known.
    toll : int64 array, shape (cells, states)
        Receives the cost of passing, and `_TOGGLE` more where the cell is in the other state.
    """
    for terminal in range(len(space.exit_cost)):
        space.exit_cost[terminal] = 0
    for link in range(len(space.use)):
        space.use[link] = 0
    for cell in range(len(states)):
        for state in range(2):
            toll[cell, state] = graph.cell_cost[cell, state]
            if states[cell] == 1 - state:
                toll[cell, state] += _TOGGLE


@inner_kernel
def _release_route(graph, space, room, states, port):
    """Undo `occupy_route` for one circuit, while the routes of others stay occupied.

    Parameters
    ----------
    graph : MeshArrays
        The graph of the fabric: how terminals of cells are joined by links, and what cells cost.
    space : RoutingSpace
        ``space.exit_cost`` of the links becomes 0 again; ``space.use`` counts circuits on links.
    room : Room
        ``room.routes`` and ``room.lengths`` have the route. ``room.n_lit[cell]`` is how many
        times circuits pass a cell; once it is 0, ``room.toll[cell]`` has the costs of an
        unoccupied cell again.
    states : int8 array, shape (cells,)
        The present states, -1 where not known.
    port : int
        The source port of the circuit, whose route passes no link twice.
    """
    entering = graph.source[port]
    space.exit_cost[entering] = 0
    space.use[graph.link[entering]] -= 1
    for step in range(room.lengths[port]):
        leaving = room.routes[port, step]
        link = graph.link[leaving]
        space.use[link] -= 1
        for end in range(2):
            terminal = graph.ends[link, end]
            if terminal >= 0:
                space.exit_cost[terminal] = 0

        # A cell that another circuit passes as well stays set: passing it costs no toggle.
        cell = cell_of(leaving)
        room.n_lit[cell] -= 1
        if room.n_lit[cell] == 0:
            for state in range(2):
                room.toll[cell, state] = graph.cell_cost[cell, state]
                if states[cell] == 1 - state:
                    room.toll[cell, state] += _TOGGLE


@inner_kernel
def _occupy_and_count(graph, space, room, port, route):
    """Occupy a route as `occupy_route` does, and count it on its cells; False if not simple.

    Parameters
    ----------
    graph, space
        The graph of the fabric, and scratch: ``space.exit_cost`` and ``space.use`` of the links.
    room : Room
        ``room.toll`` and ``room.n_lit``, how many times circuits pass a cell, are changed.
    port : int
        The source port of the circuit.
    route : int32 array, shape (cells on the route,)
        The terminals by which its light leaves the cells.
    """
    for step in range(len(route)):
        room.n_lit[cell_of(route[step])] += 1
    return occupy_route(graph, space, room.toll, port, route)


@inner_kernel
def _expand_level(graph, prices, side, opposite, level, best):
    """Expand all terminals at one level of toggles, from one side of a bidirectional search.

    This is a 0-1 breadth-first search: a cell that is set already leads to a terminal of the same
    level, which joins the end of the queue that is being read; a cell that has to be toggled leads
    to one of the next level. As light in a cell goes back the way it came, the work is the same
    from both ends of the circuit. A toggle is a cell that is driven to its other state. Terminals
    are the places of cells where light enters and leaves.

    Parameters
    ----------
    graph : MeshArrays
        The graph of the fabric: how terminals of cells are joined by links, and what cells cost.
    prices : (exit_cost, toll)
        ``exit_cost[terminal]``: a terminal of cost `FAR` is closed, other costs are not read.
        ``toll[cell, state]``: the cost of passing, with `_TOGGLE` if the cell has to be toggled.
    side, opposite : SearchSide
        The side that is expanded, and the one that it may meet: the least cost of coming to a cell
        by each terminal, the terminal before on that way, and the terminals that wait.
    level : (level_number, n_waiting)
        The number of toggles so far, and how many terminals wait in the queue of this level.
    best : Meeting
        The best meeting of the sides so far: the cost of the whole way, and the terminals by which
        both sides come to the cell where they meet.

    Returns
    -------
    (int, Meeting)
        How many terminals wait at the next level, 0 also if a queue is full; and the best meeting.
    """
    exit_cost, toll = prices
    level_number, n_waiting = level
    queue = side.waiting[level_number % 2]
    next_queue = side.waiting[(level_number + 1) % 2]
    head = 0
    n_next = 0
    while head < n_waiting:
        entering = queue[head]
        head += 1
        if side.cost[entering] < level_number * _TOGGLE:
            continue  # reached by fewer toggles in the meantime
        for state in range(2):
            leaving = graph.exits[entering, state]
            if exit_cost[leaving] >= FAR:
                continue
            cell_toll = toll[cell_of(entering), state]
            total = side.cost[entering] + cell_toll
            if total + opposite.cost[leaving] < best.cost:
                best = Meeting(total + opposite.cost[leaving], entering, leaving)

            # The next cell is worth a visit if this is the cheapest way there so far.
            onward = graph.mate[leaving]
            if onward < 0 or total >= side.cost[onward] or total >= best.cost:
                continue
            if max(n_waiting, n_next) == len(queue):
                return 0, best
            side.cost[onward] = total
            side.previous[onward] = entering
            if cell_toll >= _TOGGLE:
                next_queue[n_next] = onward
                n_next += 1
            else:
                queue[n_waiting] = onward
                n_waiting += 1
    return n_next, best


@inner_kernel
def _join_ways(graph, sides, meeting, route):
    """Write down the way that two searches found, from the source through the cell of meeting.

    A terminal is a corner of a cell, where light enters or leaves it. Either search has for each
    terminal the one before it on its way, seen from its own end.

    Parameters
    ----------
    graph : MeshArrays
        The graph of the fabric; ``graph.mate`` is the other end of the link at a terminal.
    sides : (SearchSide, SearchSide)
        The search from the source and that from the target, each with ``previous[terminal]``.
    meeting : (int, int)
        The terminals by which the way enters and leaves the cell where the searches met.
    route : int32 array, shape (width,)
        Receives the terminals by which light leaves its cells, in the order of the way.

    Returns
    -------
    int
        The number of cells, 0 if `route` is too short for them.
    """
    from_source, from_target = sides
    first, last = meeting

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


@kernel
def find_fewest_toggles(graph, space, room, port, max_toggles, route):
    """Find the way of a circuit with the fewest toggles, and of these the one of fewest cells.

    Both ends are searched level by level of toggles, that side first where fewer terminals wait.
    Within a level no order is needed: where cells are set, light has one way to go on. Levels 0 to
    a of one side and 0 to b of the other have seen all ways of a + b + 1 toggles.

    Parameters
    ----------
    graph, space, room
        The graph of the fabric and scratch of searches. ``space.exit_cost`` closes links,
        ``room.toll[cell, state]`` has the costs, with `_TOGGLE` in each cell that has to be driven
        to its other state, and ``room.partner[port]`` the destination.
    port : int
        The source port of the circuit.
    max_toggles : int
        A way of more toggles is of no use.
    route : int32 array, shape (width,)
        Receives the terminals by which light leaves its cells.

    Returns
    -------
    (int, int)
        The number of cells, 0 if there is no such way, and the number of toggles.
    """
    source = graph.source[port]
    target = graph.target[room.partner[port]]
    from_source = SearchSide(space.cost, space.entered, room.queue[:2])
    from_target = SearchSide(space.keys, space.items, room.queue[2:])
    for terminal in range(len(graph.mate)):
        from_source.cost[terminal] = FAR
        from_target.cost[terminal] = FAR
    from_source.cost[source] = 0
    from_target.cost[target] = 0
    from_source.previous[source] = -1
    from_target.previous[target] = -1
    from_source.waiting[0, 0] = source
    from_target.waiting[0, 0] = target

    # The search ends when one side has nowhere to go, or no unseen way can be better.
    prices = (space.exit_cost, room.toll)
    n_source = 1
    n_target = 1
    source_level = 0
    target_level = 0
    first = source
    last = target
    best = Meeting(np.int64(FAR), -1, -1)  # type: ignore[arg-type]
    while n_source and n_target:
        seen = source_level + target_level
        if seen > max_toggles or best.cost < seen * _TOGGLE:
            break
        known_cost = best.cost
        if n_source <= n_target:
            level = (source_level, n_source)
            n_source, best = _expand_level(graph, prices, from_source, from_target, level, best)
            source_level += 1
            if best.cost < known_cost:
                first = best.entered
                last = best.left
        else:
            level = (target_level, n_target)
            n_target, best = _expand_level(graph, prices, from_target, from_source, level, best)
            target_level += 1
            if best.cost < known_cost:
                first = best.left
                last = best.entered
    if best.cost >= min(FAR, (max_toggles + 1) * _TOGGLE):
        return 0, 0

    count = _join_ways(graph, (from_source, from_target), (first, last), route)
    if count == 0:
        return 0, 0
    return count, best.cost // _TOGGLE


@inner_kernel
def _route_in_turn(graph, space, room, states, circuits, max_toggles):
    """Route new circuits one by one past those that stay, each with the fewest toggles.

    Parameters
    ----------
    graph : MeshArrays
        The graph of the fabric: how terminals of cells are joined by links, and what cells cost.
    space : RoutingSpace
        ``space.exit_cost`` and ``space.use`` receive the links that are taken; the rest is scratch
        of the search.
    room : Room
        ``room.order`` has the source ports of the circuits, those that stay first, and
        ``room.partner`` their destinations. ``room.routes`` and ``room.lengths`` have the routes
        of those that stay, and receive those of the new ones. ``room.toll`` is scratch.
    states : int8 array, shape (cells,)
        The present states: 0 bar, 1 cross, -1 where not known.
    circuits : (n_circuits, n_kept, is_reversed)
        The number of all circuits, the number of those that stay, and whether the new ones are
        routed in the reverse of their order.
    max_toggles : int
        Routes of more toggles in all are of no use.

    Returns
    -------
    (int, int)
        The number of toggles of all new routes together, and those of the one that was found
        first; both are `NO_ROOM` if a circuit does not fit.
    """
    n_circuits, n_kept, is_reversed = circuits
    clear_occupation(graph, space, states, room.toll)
    n_toggles = 0
    n_toggles_of_first = 0
    for place in range(n_circuits):
        # The new circuits hold the places from n_kept to n_circuits - 1: in reverse, the first of
        # these places stands for the last one.
        if place < n_kept or not is_reversed:
            port = room.order[place]
        else:
            port = room.order[n_circuits - 1 + n_kept - place]
        if place >= n_kept:
            length, more = find_fewest_toggles(
                graph, space, room, port, max_toggles - n_toggles, room.routes[port]
            )
            room.lengths[port] = length
            n_toggles += more
            if place == n_kept:
                n_toggles_of_first = more
            if length == 0:
                return NO_ROOM, NO_ROOM

        # Later circuits find these links closed, and these cells set without a toggle.
        route = room.routes[port, : room.lengths[port]]
        if not occupy_route(graph, space, room.toll, port, route):
            return NO_ROOM, NO_ROOM
    return n_toggles, n_toggles_of_first


@inner_kernel
def _copy_routes(order, routed, routes, lengths):
    """Copy the routes of the circuits in `order` from ``(routes, lengths)`` to `routed`."""
    for place in range(len(order)):
        port = order[place]
        routed.lengths[port] = lengths[port]
        for step in range(lengths[port]):
            routed.routes[port, step] = routes[port, step]


@inner_kernel
def _state_cells(graph, order, routed):
    """Write the states of lit cells to ``routed.states``; return how many are toggled by that.

    Dark cells stay as they are.

    Parameters
    ----------
    graph : MeshArrays
        The graph of the fabric: how terminals of cells are joined by links, and what cells cost.
    order : int64 array, shape (circuits,)
        The source ports of the circuits.
    routed : RoutedRow
        Has their routes and the present states, and receives the new states.

    Returns
    -------
    int
        The number of cells that were in the other state. A cell of state -1 is not counted.
    """
    n_toggles = 0
    for place in range(len(order)):
        port = order[place]
        entering = graph.source[port]
        for step in range(routed.lengths[port]):
            leaving = routed.routes[port, step]
            cell = cell_of(leaving)
            state = state_between(entering, leaving)
            if routed.states[cell] == 1 - state:
                n_toggles += 1
            routed.states[cell] = state
            entering = graph.mate[leaving]
    return n_toggles


@inner_kernel
def _copy_states(ports, given, states):
    """Copy the present states, stuck cells as they are or free; False if one is no state.

    Parameters
    ----------
    ports : PortTable
        ``ports.stuck[cell]``: -1 where the cell works, 0 or 1 where it stays in bar or cross, 2
        where it is dead.
    given : int8 array, shape (cells,)
        0 bar, 1 cross, -1 where not known; other values are no states.
    states : int8 array, shape (cells,)
        Receives the copy, with -1 for cells that are stuck in another state or dead.
    """
    for cell in range(len(states)):
        state = given[cell]
        if state < -1 or state > 1:
            return False
        if ports.stuck[cell] >= 0 and state != ports.stuck[cell]:
            state = -1
        states[cell] = state
    return True


@inner_kernel
def _keep_circuits(graph, room, order, states):
    """Put the circuits that the states carry to the front; return how many there are.

    Parameters
    ----------
    graph : MeshArrays
        The graph of the fabric: how terminals of cells are joined by links, and what cells cost.
    room : Room
        ``room.partner`` has the destinations; ``room.routes`` and ``room.lengths`` receive the
        routes of the circuits that the states carry, and the length 0 of the others.
    order : int64 array, shape (circuits,)
        The source ports of the circuits. Changed: both groups keep their order.
    states : int8 array, shape (cells,)
        0 bar, 1 cross, -1 where not known.
    """
    n_kept = 0
    for place in range(len(order)):
        port = order[place]
        if follow_circuit(graph, room, states, port):
            for later in range(place, n_kept, -1):
                order[later] = order[later - 1]
            order[n_kept] = port
            n_kept += 1
    return n_kept


@kernel
def fit_in_circuits(graph, space, ports, room, change, routed):
    """Let circuits that the present states carry stay, and fit the others in between.

    Two orders are tried, the longest circuits first and last; the one of fewer toggles counts.

    Parameters
    ----------
    graph, space, ports, room
        The graph of the fabric; scratch of searches; which ports are live and how far they are
        from each other; and arrays by source port to work in.
    change : Change
        The present states of cells, 0 bar, 1 cross, -1 where not known, and the matching that is
        asked for.
    routed : RoutedRow
        Receives the answer. A stuck cell is stated as it is, or free.

    Returns
    -------
    int
        The number of toggles; or `NO_MATCHING_GIVEN`, `NO_STATES_GIVEN`; or `NO_ROOM`: then
        ``routed.states`` are the present ones, ``room.order`` has the circuits and ``room.routes``
        the routes of those that could stay.
    """
    n_circuits = line_up(ports, change.matching, room.order, room.partner, room.taken)
    if n_circuits < 0:
        return NO_MATCHING_GIVEN
    order = room.order[:n_circuits]
    if not _copy_states(ports, change.states, routed.states):
        return NO_STATES_GIVEN
    for port in range(len(routed.lengths)):
        routed.lengths[port] = 0
        room.lengths[port] = 0
    n_kept = _keep_circuits(graph, room, order, routed.states)

    n_orders = 1
    if n_circuits - n_kept > 1:
        n_orders = 2
    max_toggles = len(routed.states)
    fits = False
    for turn in range(n_orders):
        circuits = (n_circuits, n_kept, turn == 1)
        n_toggles, n_least = _route_in_turn(
            graph, space, room, routed.states, circuits, max_toggles
        )
        if n_toggles != NO_ROOM:
            fits = True
            _copy_routes(order, routed, room.routes, room.lengths)

            # The other order has to be better. It cannot be if the circuit that was routed first
            # takes all the toggles: any way of it past those that stay needs as many cells to be
            # driven to their other state, whichever circuit does it.
            max_toggles = n_toggles - 1
            if n_toggles == n_least:
                break
    if fits:
        return _state_cells(graph, order, routed)
    for place in range(n_kept, n_circuits):
        room.lengths[order[place]] = 0
    return NO_ROOM


@inner_kernel
def _sum_tolls(graph, toll, port, route):
    """Add up what the cells of a route cost.

    Parameters
    ----------
    graph : MeshArrays
        The graph of the fabric: how terminals of cells are joined by links, and what cells cost.
    toll : int64 array, shape (cells, states)
        The cost of passing, in 1/`UNIT` of a cell, and `_TOGGLE` more if the cell has to be
        toggled to this state.
    port : int
        Where the light comes from.
    route : int32 array, shape (cells on the route,)
        The terminals by which light leaves the cells.

    Returns
    -------
    int
        The number of toggles is this cost divided by `_TOGGLE`.
    """
    total = np.int64(0)
    entering = graph.source[port]
    for step in range(len(route)):
        leaving = route[step]
        total += toll[cell_of(leaving), state_between(entering, leaving)]
        entering = graph.mate[leaving]
    return total


@kernel
def save_toggles(graph, space, room, order, states):
    """Put each circuit in turn on its way of the fewest toggles past all others.

    A toggle is a cell that is driven to its other state; cells that were not set before, or lie on
    the routes of others already, cost none.

    A way is taken if it has fewer toggles, or as many and its cells cost less. Costs hold both in
    one number: `_TOGGLE` for each toggle, and the cost of the cells, which is always less than one
    `_TOGGLE`. Each step takes a pass over one route, and a search if the circuit has toggles.

    Parameters
    ----------
    graph : MeshArrays
        The graph of the fabric: how terminals of cells are joined by links, and what cells cost.
    space : RoutingSpace
        Scratch; ``space.spare`` holds the route that is found.
    room : Room
        Arrays by source port: ``room.routes``, the terminals by which light leaves its cells, and
        ``room.lengths``, the number of cells, of the circuits in `order` are changed. The routes
        share no link, neither before nor afterwards. ``room.partner`` has the destinations, and
        ``room.toll`` and ``room.n_lit`` are scratch.
    order : int64 array, shape (circuits,)
        The source ports of the circuits, which are tried in this order.
    states : int8 array, shape (cells,)
        The states before the change: 0 bar, 1 cross, -1 where not known.
    """
    # The links of all circuits are closed, and cells that they have set cost no toggle.
    clear_occupation(graph, space, states, room.toll)
    for cell in range(len(states)):
        room.n_lit[cell] = 0
    for place in range(len(order)):
        port = order[place]
        route = room.routes[port, : room.lengths[port]]
        _occupy_and_count(graph, space, room, port, route)

    for _ in range(_REFITS):
        is_better = False
        for place in range(len(order)):
            port = order[place]
            _release_route(graph, space, room, states, port)

            # A circuit without toggles of its own cannot get better.
            present = room.routes[port, : room.lengths[port]]
            cost = _sum_tolls(graph, room.toll, port, present)
            length = 0
            if cost >= _TOGGLE:
                length, _toggles = find_fewest_toggles(
                    graph, space, room, port, cost // _TOGGLE, space.spare
                )

            # A way of as many toggles may still be cheaper by its cells. One that passes a link
            # twice, once in each direction, is no route.
            route = space.spare[:length]
            is_cheaper = length > 0 and _sum_tolls(graph, room.toll, port, route) < cost
            if is_cheaper and not passes_link_twice(graph, space.use, route):
                is_better = True
                room.lengths[port] = length
                for step in range(length):
                    room.routes[port, step] = route[step]
            present = room.routes[port, : room.lengths[port]]
            _occupy_and_count(graph, space, room, port, present)
        if not is_better:
            break


@kernel
def negotiate_change(graph, space, room, order, toggle_price, routed):
    """Rip up and reroute circuits at the price of their toggles, then save toggles one by one.

    Parameters
    ----------
    graph, space, room
        The graph of the fabric, scratch of searches, and arrays by source port: ``room.routes``
        are the routes to begin with, ``room.lengths`` their cells, 0 where there is none;
        ``room.partner`` has the destinations.
    order : int array, shape (circuits,)
        The source ports of the circuits.
    toggle_price : int
        The cost of a toggle, in 1/`UNIT` of a cell: of a cell that is driven to its other state.
    routed : RoutedRow
        Has the present states, 0 bar, 1 cross, -1 where not known; receives the new ones, the
        routes and their lengths.

    Returns
    -------
    int
        The number of toggles, or `NO_ROOM`; then nothing but ``routed.routes`` is changed.
    """
    for cell in range(len(routed.states)):
        for state in range(2):
            room.toll[cell, state] = graph.cell_cost[cell, state]
            if routed.states[cell] == 1 - state:
                room.toll[cell, state] += toggle_price
    priced = with_cell_cost(graph, room.toll)
    _copy_routes(order, routed, room.routes, room.lengths)
    circuits = RoutedCircuits(order, room.partner, routed.routes, routed.lengths)
    status = negotiate(priced, space, AT_TOLL, room.no_cost, circuits)
    if status < 0:
        return NO_ROOM
    return finish_change(graph, space, room, order, routed)


@kernel
def finish_change(graph, space, room, order, routed):
    """Save toggles of routed circuits, and state their cells.

    Parameters
    ----------
    graph, space, room
        The graph of the fabric, scratch of searches, and arrays by source port: ``room.routes``
        and ``room.lengths`` are overwritten; ``room.partner`` has the destinations.
    order : int64 array, shape (circuits,)
        The source ports of the circuits.
    routed : RoutedRow
        Has the routes and the states before the change; receives better routes and their states.

    Returns
    -------
    int
        The number of toggles.
    """
    for place in range(len(order)):
        port = order[place]
        room.lengths[port] = routed.lengths[port]
        for step in range(routed.lengths[port]):
            room.routes[port, step] = routed.routes[port, step]
    save_toggles(graph, space, room, order, routed.states)
    _copy_routes(order, routed, room.routes, room.lengths)
    return _state_cells(graph, order, routed)

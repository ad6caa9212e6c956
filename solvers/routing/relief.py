"""Rip-up and reroute of routed circuits, until no move improves the worst one.

After McMurchie and Ebeling (1995, doi 10.1145/201310.201328), with the worst circuit as objective.
The worst circuit is ripped up and routed anew while links of other circuits cost a price; the
circuits that it displaces are then rerouted past all others. The move is kept if the worst circuit
gets better, or if it stays equal and the tie-break score falls; otherwise all routes are put back.
The price of a link of another circuit changes with each failure in a row (`_PRICES`).

Heater power and cells are sums over lit cells: there a move is kept if it saves power, or cells at
the same power; or the other way round.

The kernels are compiled, so that a scheduler can afford them. In all of them `search` has the
arrays that searches of routes work in, and `scratch` all others. The *value* of a circuit is its
own loss in dB, its crosstalk, or the heater power that it adds in mW.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import CellDevice
from optmatch.problems.routing import split_power
from optmatch.solvers.kernels.arrays import copy_into
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.routing.pathfinder import (
    FAR,
    UNIT,
    MeshArrays,
    RoutedCircuits,
    RoutingSpace,
    cell_of,
    find_route,
    least_cost,
    passes_link_twice,
    state_between,
    sum_cell_costs,
    terminal_beside,
    with_cell_cost,
)
from optmatch.solvers.routing.router import CellRouter
from optmatch.solvers.routing.rows import (
    ROUTED,
    PortTable,
    RowBatch,
    RowScratch,
    copy_routes,
    follow_circuit,
    line_up,
    write_states,
)

_LEAK_COST = 20 * UNIT
"""The cost of passing a cell that leaks into another circuit as much as the worst one gets."""

_LOSS, _CROSSTALK, _POWER, _CELLS = range(4)
"""The objectives as numbers, for kernels: the places in `_OBJECTIVES`."""

_OBJECTIVES = ("worst-loss-db", "worst-snr-db", "power-mw", "total-cells")

_MIN_POWER = 1e-300
"""A beam has at least so much of its power: it is divided by."""

_PRICES = np.array([0, UNIT // 4, UNIT, 4 * UNIT, FAR], dtype=np.int64)
"""Prices of a link of another circuit, in the order of tries; `FAR` closes it."""


class Chip(NamedTuple):
    """The cells, as far as the kernels know them, and the objective."""

    loss_db: NDArray[np.float64]
    """(cells, states): loss of a circuit that passes."""
    share: NDArray[np.float64]
    """(cells, states): the part of its power that goes on."""
    leak: NDArray[np.float64]
    """(cells, states): the part that leaks into the wrong exit."""
    mutual: bool
    """Whether circuits send from both ends."""
    aim: int
    """The objective: `_LOSS`, `_CROSSTALK`, `_POWER` or `_CELLS`."""
    extra_mw: NDArray[np.float64]
    """(cells, states): heater power above that of a dark cell."""
    extra_cost: NDArray[np.int64]
    """(cells, states): the same as a cost of passing, in 1/`UNIT`."""


class ReliefSpace(NamedTuple):
    """Arrays to work in, so that no kernel allocates."""

    owner: NDArray[np.int64]
    """(links,): the port whose circuit passes, -1 for none."""
    is_lit: NDArray[np.bool_]
    """(cells,): whether a circuit counted so far passes."""
    beam: NDArray[np.int64]
    """(terminals,): the beam that enters there, -1 for none."""
    power: NDArray[np.float64]
    """(terminals,): what is left of the power of that beam."""
    crosstalk: NDArray[np.float64]
    """(2 * ports,): leaked power over signal power of each beam."""
    value: NDArray[np.float64]
    """(ports,): the part of each circuit in the objective."""
    toll: NDArray[np.int64]
    """(cells, states): what passing a cell costs at present."""
    kept_routes: NDArray[np.int32]
    """(ports, width): the routes to go back to."""
    kept_lengths: NDArray[np.int64]
    """(ports,): the cells on these routes."""
    kept_value: NDArray[np.float64]
    """(ports,): the part of each of these routes in the objective."""
    displaced: NDArray[np.int64]
    """(ports,): the ports of circuits that are ripped up."""


class CircuitMove(NamedTuple):
    """The circuit to be rerouted, and at what price."""

    port: int
    """The source port of the circuit."""
    price: int
    """What a link of another circuit costs, `FAR` if it is closed."""
    worst: float
    """The objective before the move, the measure of leaks."""


class Relief:
    """The kernels with a fabric, a chip and arrays to work in; one for each thread.

    Parameters
    ----------
    router
        Routes for losses, or for heater power. Its wiring is not used for the sums over lit cells:
        there each cell costs the same beside its heater.
    cells
        Losses, leaks and heater powers of the cells of the fabric.
    objective
        One of "worst-loss-db", "worst-snr-db", "power-mw", "total-cells".
    """

    def __init__(self, router: CellRouter, cells: CellDevice, objective: str) -> None:
        """Collect what the kernels read of a chip, and allocate what they write.

        The cost of a cell in searches depends on the objective. Losses are the costs of `router`
        already. For power and for numbers of cells one whole number has both, in which the
        criterion that counts first is always the larger part.
        """
        aim = _OBJECTIVES.index(objective)
        if aim in (_POWER, _CELLS):
            router = CellRouter(router.fabric)
        self.router = router
        n_ports = len(router.wiring.source)
        n_terminals = len(router.wiring.mate)
        dark_mw, extra_mw = split_power(router.fabric, cells)
        self._dark_mw = dark_mw if aim == _POWER else 0.0

        # If cells are counted first, the heaters of a whole route cost less than one cell. If
        # power is counted first, a cell costs less than most heaters.
        largest_cost = UNIT / (2 * router.width) if aim == _CELLS else _LEAK_COST
        largest_mw = extra_mw.max(initial=0.0) or 1.0
        self.chip = Chip(
            loss_db=cells.loss_db,
            share=10.0 ** (-cells.loss_db / 10.0),
            leak=cells.leak,
            mutual=router.bidirectional,
            aim=aim,
            extra_mw=extra_mw,
            extra_cost=(extra_mw / largest_mw * largest_cost).astype(np.int64),
        )
        kept_routes, kept_lengths = router.empty_routes()
        self._scratch = ReliefSpace(
            owner=np.full(len(router.workspace.use), -1, dtype=np.int64),
            is_lit=np.zeros(router.fabric.n_cells, dtype=np.bool_),
            beam=np.full(n_terminals, -1, dtype=np.int64),
            power=np.zeros(n_terminals),
            crosstalk=np.zeros(2 * n_ports),
            value=np.zeros(n_ports),
            toll=np.zeros_like(router.wiring.cell_cost),
            kept_routes=kept_routes,
            kept_lengths=kept_lengths,
            kept_value=np.zeros(n_ports),
            displaced=np.zeros(n_ports, dtype=np.int64),
        )

    def measure(
        self, order: NDArray[np.int64], routes: NDArray[np.int32], lengths: NDArray[np.int64]
    ) -> float:
        """Return the objective of routed circuits, in its unit; power with that of dark cells.

        The unit is dB for the worst loss, mW for power and 1 for cells; crosstalk is the largest
        ratio of leaked power to signal power. `order` lists the source ports of the circuits,
        ``routes[port, step]`` the terminals by which light leaves their cells, and
        ``lengths[port]`` the number of these.
        """
        circuits = RoutedCircuits(order, order, routes, lengths)  # the partners are not read
        objective, _ = weigh(self.router.wiring, self.chip, self._scratch, circuits)
        return self._dark_mw + float(objective)

    def improve(
        self,
        order: NDArray[np.int64],
        partner: NDArray[np.int64],
        routes: NDArray[np.int32],
        lengths: NDArray[np.int64],
        max_moves: int,
    ) -> None:
        """Lower the objective by rip-up and reroute of the routes, in place.

        `order` lists source ports, and ``partner[port]`` is the destination. ``routes[port,
        step]``, the terminals left, and ``lengths[port]``, in cells, are changed. At most
        `max_moves` are tried, whether they help or not; one reroutes a circuit and those that it
        displaces.
        """
        circuits = RoutedCircuits(order, partner, routes, lengths)
        relieve(
            self.router.wiring,
            self.router.workspace,
            self.chip,
            self._scratch,
            circuits,
            max_moves,
        )

    def improve_rows(
        self, ports: PortTable, row_scratch: RowScratch, rows: RowBatch, max_moves: int
    ) -> None:
        """Improve the routes of all matchings of a batch that are routed.

        Changes ``rows.states[row, cell]``, ``rows.lengths[row, port]`` and, of the last matching,
        ``rows.routes``. At most `max_moves` moves are tried for each; `row_scratch` is written.
        """
        relieve_rows(
            self.router.wiring,
            self.router.workspace,
            self.chip,
            self._scratch,
            ports,
            row_scratch,
            rows,
            max_moves,
        )


@inner_kernel
def _weigh_heaters(graph: MeshArrays, chip: Chip, scratch: ReliefSpace, circuits: RoutedCircuits):
    """Return the heater power of lit cells above that of dark ones in mW, and the cells passed.

    ``scratch.value[port]`` receives the power that this circuit adds to those before it in the
    order, in mW: a cell that two circuits share counts for the first.
    """
    scratch.is_lit[:] = False
    power_mw = 0.0
    n_cells = 0.0
    for place in range(len(circuits.order)):
        port = circuits.order[place]
        added_mw = 0.0

        # The first circuit that passes a cell lights it.
        entering = graph.source[port]
        for step in range(circuits.lengths[port]):
            leaving = circuits.routes[port, step]
            cell = cell_of(leaving)
            if not scratch.is_lit[cell]:
                added_mw += chip.extra_mw[cell, state_between(entering, leaving)]
                scratch.is_lit[cell] = True
            entering = graph.mate[leaving]
        scratch.value[port] = added_mw
        power_mw += added_mw
        n_cells += circuits.lengths[port]
    return power_mw, n_cells


@inner_kernel
def _weigh_losses(graph: MeshArrays, chip: Chip, scratch: ReliefSpace, circuits: RoutedCircuits):
    """Write the loss of each circuit in dB to ``scratch.value``, and return the largest."""
    worst_db = 0.0
    for place in range(len(circuits.order)):
        port = circuits.order[place]
        route = circuits.routes[port, : circuits.lengths[port]]
        scratch.value[port] = sum_cell_costs(graph, chip.loss_db, port, route)
        worst_db = max(worst_db, scratch.value[port])
    return worst_db


@inner_kernel
def _follow_beams(graph: MeshArrays, chip: Chip, scratch: ReliefSpace, circuits: RoutedCircuits):
    """Write which beam enters each cell by each terminal, and what is left of its power there.

    A beam is the light that one end of a circuit sends; it starts with power 1. The beam from the
    source has the number ``2 * port``; if circuits send from both ends (``chip.mutual``), the beam
    from the destination has ``2 * port + 1``. ``scratch.beam[terminal]`` is -1 where no light
    enters, and ``scratch.power[terminal]`` is what it was there. If each of three cells passes on
    half of the power, the beam from the source enters them with 1, 1/2 and 1/4, and the other one
    with 1/4, 1/2 and 1.
    """
    scratch.beam[:] = -1
    for place in range(len(circuits.order)):
        port = circuits.order[place]

        # The beam from the source loses power in each cell. Where the other end sends, too, the
        # terminals of exit hold for now what this beam has left after the cell.
        power = 1.0
        entering = graph.source[port]
        for step in range(circuits.lengths[port]):
            leaving = circuits.routes[port, step]
            scratch.beam[entering] = 2 * port
            scratch.power[entering] = power
            state = state_between(entering, leaving)
            power = max(_MIN_POWER, power * chip.share[cell_of(leaving), state])
            if chip.mutual:
                scratch.power[leaving] = power
            entering = graph.mate[leaving]
        if not chip.mutual:
            continue

        # The beam from the destination enters each cell where the other one leaves it, and has
        # passed there the cells that the other one has yet to pass. Their share is the share of
        # the whole route, now in `power`, divided by that of the cells up to here.
        for step in range(circuits.lengths[port]):
            leaving = circuits.routes[port, step]
            scratch.beam[leaving] = 2 * port + 1
            scratch.power[leaving] = power / scratch.power[leaving]


@inner_kernel
def _add_leak(scratch: ReliefSpace, terminal, leaked_share):
    """Add what leaks out of the beam that enters at a terminal to the beam beside it.

    Changes ``scratch.crosstalk[beam]``; `leaked_share` is the part of the power. The crosstalk is
    added as a ratio: leaked power over the power of the disturbed beam at the same place. Both
    lose the same from there on.
    """
    neighbour = terminal_beside(terminal)
    disturbed = scratch.beam[neighbour]
    if disturbed >= 0 and disturbed != scratch.beam[terminal] and leaked_share > 0.0:
        scratch.crosstalk[disturbed] += (
            leaked_share * scratch.power[terminal] / scratch.power[neighbour]
        )


@inner_kernel
def _weigh_crosstalk(
    graph: MeshArrays, chip: Chip, scratch: ReliefSpace, circuits: RoutedCircuits
):
    """Write the crosstalk of each circuit to ``scratch.value``, and return the largest.

    Ports send from both ends where ``chip.mutual`` is true. The crosstalk of a circuit is the
    ratio of leaked power to signal power at its end; of a circuit that sends from both ends, the
    larger one of the two.
    """
    _follow_beams(graph, chip, scratch, circuits)
    scratch.crosstalk[:] = 0.0

    # Each beam leaks in each of its cells into the beam that enters beside it, if any.
    for place in range(len(circuits.order)):
        port = circuits.order[place]
        entering = graph.source[port]
        for step in range(circuits.lengths[port]):
            leaving = circuits.routes[port, step]
            leaked_share = chip.leak[cell_of(leaving), state_between(entering, leaving)]
            _add_leak(scratch, entering, leaked_share)
            if chip.mutual:
                _add_leak(scratch, leaving, leaked_share)
            entering = graph.mate[leaving]

    # A circuit has the beam of its source, and that of its destination where ports send from both
    # ends: the worse one counts.
    worst = 0.0
    for place in range(len(circuits.order)):
        port = circuits.order[place]
        scratch.value[port] = max(scratch.crosstalk[2 * port], scratch.crosstalk[2 * port + 1])
        worst = max(worst, scratch.value[port])
    return worst


@kernel
def weigh(graph: MeshArrays, chip: Chip, scratch: ReliefSpace, circuits: RoutedCircuits):
    """Return the objective of routed circuits, and write the part of each to ``scratch.value``.

    The second result is what decides between equal sums: the number of cells where power is the
    objective, the power in mW where cells are; 0 for the other objectives.
    """
    if chip.aim == _LOSS:
        return _weigh_losses(graph, chip, scratch, circuits), 0.0
    if chip.aim == _CROSSTALK:
        return _weigh_crosstalk(graph, chip, scratch, circuits), 0.0
    power_mw, n_cells = _weigh_heaters(graph, chip, scratch, circuits)
    if chip.aim == _POWER:
        return power_mw, n_cells
    return n_cells, power_mw


@inner_kernel
def _tie_break_score(chip: Chip, scratch: ReliefSpace, order, worst, second):
    """Return the second criterion of a move; less is better.

    `worst` is the value of the worst circuit, in dB or as a ratio. `order` lists the circuits by
    their sources. Losses: the sum over circuits of 10**(loss_db - worst). Crosstalk: the sum of
    (ratio / worst)**4. Both let the circuits near the worst decide. For the sums, power and cells,
    it is `second`, the other one of the two.
    """
    if chip.aim == _POWER or chip.aim == _CELLS:
        return second
    total = 0.0
    for place in range(len(order)):
        value = scratch.value[order[place]]
        if chip.aim == _LOSS:
            total += 10.0 ** (value - worst)
        elif worst > 0.0:
            total += (value / worst) ** 4
    return total


@inner_kernel
def _set_link_owner(
    graph: MeshArrays, scratch: ReliefSpace, circuits: RoutedCircuits, port, owner
):
    """Set the owner of all links on the route of a port; -1 releases them."""
    scratch.owner[graph.link[graph.source[port]]] = owner
    for step in range(circuits.lengths[port]):
        scratch.owner[graph.link[circuits.routes[port, step]]] = owner


@inner_kernel
def _price_cells(graph: MeshArrays, chip: Chip, scratch: ReliefSpace, worst):
    """Write to ``scratch.toll`` what passing each cell in each state costs a circuit at present.

    Costs are in 1/`UNIT` of a cell. Where crosstalk counts, a lit cell costs `_LEAK_COST` more if
    it leaks as much as `worst`, the ratio of the worst circuit, and in proportion if it leaks more
    or less; where heaters count, a dark cell costs the power that it takes.
    """
    # A cell is lit if the link at one of its four terminals has an owner.
    for cell in range(len(scratch.toll)):
        is_lit = False
        for terminal in range(4 * cell, 4 * cell + 4):
            if scratch.owner[graph.link[terminal]] >= 0:
                is_lit = True
        for state in range(2):
            toll = graph.cell_cost[cell, state]
            if chip.aim == _CROSSTALK:
                if is_lit and worst > 0.0:
                    toll += np.int64(_LEAK_COST * chip.leak[cell, state] / worst)
            elif not is_lit:
                toll += chip.extra_cost[cell, state]
            scratch.toll[cell, state] = toll


@inner_kernel
def _reroute_cheapest(
    graph: MeshArrays,
    search: RoutingSpace,
    chip: Chip,
    scratch: ReliefSpace,
    circuits: RoutedCircuits,
    move: CircuitMove,
):
    """Put the circuit of ``move.port``, which owns no link, on its cheapest path.

    A link of another circuit costs ``move.price``, a free one nothing. Writes
    ``circuits.routes[port]`` and ``circuits.lengths[port]``; the owners of links stay as they are.
    False if there is no path, or the cheapest one passes a link once each way.
    """
    port = move.port
    for terminal in range(len(graph.mate)):
        search.exit_cost[terminal] = 0
        if scratch.owner[graph.link[terminal]] >= 0:
            search.exit_cost[terminal] = move.price
    search.exit_cost[graph.source[port]] = FAR

    # For losses ``scratch.toll`` stays the cost of cells (`_set_up_relief`); for the other
    # objectives costs depend on the circuits that are there.
    if chip.aim != _LOSS:
        _price_cells(graph, chip, scratch, move.worst)
    priced = with_cell_cost(graph, scratch.toll)
    length = find_route(priced, search, port, circuits.partner[port], search.spare)
    if length == 0 or passes_link_twice(graph, search.use, search.spare[:length]):
        return False
    copy_into(circuits.routes[port], search.spare[:length])
    circuits.lengths[port] = length
    return True


@inner_kernel
def _try_move(
    graph: MeshArrays,
    search: RoutingSpace,
    chip: Chip,
    scratch: ReliefSpace,
    circuits: RoutedCircuits,
    move: CircuitMove,
):
    """Reroute the circuit of a move, and then those that it displaces past all others.

    The displaced ones find the links of all others closed (`FAR`); that of the largest
    ``scratch.value`` is routed first. Changes ``circuits.routes`` and ``circuits.lengths``, and
    ``scratch.owner[link]``, the source port whose circuit has the link, -1 for none. If some
    circuit finds no path, the result is False, and routes and owners of links are left half
    changed.
    """
    _set_link_owner(graph, scratch, circuits, move.port, -1)
    if not _reroute_cheapest(graph, search, chip, scratch, circuits, move):
        return False

    # Rip up the circuits in its path, and sort them by insertion: the worst one is routed first.
    n_displaced = 0
    for step in range(circuits.lengths[move.port]):
        displaced = scratch.owner[graph.link[circuits.routes[move.port, step]]]
        if displaced < 0:
            continue
        _set_link_owner(graph, scratch, circuits, displaced, -1)

        # By insertion: those with a larger value stay in front.
        place = n_displaced
        while place > 0:
            in_front = scratch.displaced[place - 1]
            if scratch.value[in_front] >= scratch.value[displaced]:
                break
            scratch.displaced[place] = in_front
            place -= 1
        scratch.displaced[place] = displaced
        n_displaced += 1

    # The links of all others are closed to the circuits that were ripped up.
    _set_link_owner(graph, scratch, circuits, move.port, move.port)
    for place in range(n_displaced):
        displaced = scratch.displaced[place]
        detour = CircuitMove(displaced, FAR, move.worst)
        if not _reroute_cheapest(graph, search, chip, scratch, circuits, detour):
            return False
        _set_link_owner(graph, scratch, circuits, displaced, displaced)
    return True


@inner_kernel
def _find_worst_port(order, value):
    """Return the port, the first one in `order`, whose circuit has the largest value."""
    worst_port = order[0]
    for place in range(len(order)):
        if value[order[place]] > value[worst_port]:
            worst_port = order[place]
    return worst_port


@inner_kernel
def _choose_move(aim, order, worst_port, n_failures):
    """Return the port to be moved and the price of foreign links, after failures in a row.

    The circuit of `worst_port` is tried at each of `_PRICES` in turn. Where circuits disturb each
    other, moving another one may help too: each in the order is then tried twice, first past all
    others and then at the price of a cell for a link. The port is -1 once all has been tried. With
    five prices, 0 to 4 failures lead to the worst circuit, 5 and 6 to ``order[0]``, 7 and 8 to
    ``order[1]``. `aim` is one of `_LOSS` to `_CELLS`.
    """
    if n_failures < len(_PRICES):
        return worst_port, _PRICES[n_failures]
    n_tried = n_failures - len(_PRICES)
    if aim == _LOSS or n_tried >= 2 * len(order):
        return np.int64(-1), np.int64(0)
    port = order[n_tried // 2]
    if n_tried % 2 == 0:
        return port, np.int64(FAR)
    return port, np.int64(UNIT)


@inner_kernel
def _set_up_relief(
    graph: MeshArrays, search: RoutingSpace, scratch: ReliefSpace, circuits: RoutedCircuits
):
    """Set the owners of all links; clear ``search.use``, and set the tolls to costs of cells.

    All links on the route of a circuit are owned by its source port.
    """
    scratch.owner[:] = -1
    search.use[:] = 0
    for cell in range(len(scratch.toll)):
        copy_into(scratch.toll[cell], graph.cell_cost[cell])
    for place in range(len(circuits.order)):
        port = circuits.order[place]
        _set_link_owner(graph, scratch, circuits, port, port)


@kernel
def relieve(
    graph: MeshArrays,
    search: RoutingSpace,
    chip: Chip,
    scratch: ReliefSpace,
    circuits: RoutedCircuits,
    max_moves,
):
    """Rip up and reroute circuits until no move improves the objective, in place.

    Changes ``circuits.routes`` and ``circuits.lengths``, and uses `scratch` and `search`; no more
    than `max_moves` are tried. To relieve is to improve the worst circuit, or a sum over all cells
    with light. A move takes one circuit, and those in its path, off their routes and finds other
    ones for them. It is kept if the objective falls, or if that stays equal and the second
    criterion, `_tie_break_score`, falls (relative tolerances 1e-9 and 1e-6). A move takes one
    search for each circuit that it reroutes, and passes over all cells and all routes. No two
    routes share a link, before and afterwards.
    """
    order = circuits.order
    if len(order) == 0:
        return
    _set_up_relief(graph, search, scratch, circuits)
    before_move = RoutedCircuits(
        order, circuits.partner, scratch.kept_routes, scratch.kept_lengths
    )
    is_sum = chip.aim == _POWER or chip.aim == _CELLS

    # `worst` is the objective: of the worst circuit, or the sum.
    worst, second = weigh(graph, chip, scratch, circuits)
    score = _tie_break_score(chip, scratch, order, worst, second)
    n_failures = 0  # in a row
    n_moves = 0

    # Each turn takes the worst circuit, at the next price after each failure; where crosstalk or a
    # sum counts and all prices have failed, it takes the other circuits (`_choose_move`).
    while n_moves < max_moves and (worst > 0.0 or is_sum):
        worst_port = _find_worst_port(order, scratch.value)
        port, price = _choose_move(chip.aim, order, worst_port, n_failures)
        if port < 0:
            break
        if n_failures >= len(_PRICES) and port == worst_port:
            n_failures += 1  # its turn in the order: it has been tried at all prices
            continue
        # The largest loss cannot fall if the circuit that has it goes its cheapest path.
        if chip.aim == _LOSS and n_failures == 0:
            route = circuits.routes[port, : circuits.lengths[port]]
            cost = sum_cell_costs(graph, graph.cell_cost, port, route)
            if cost == least_cost(graph, port, circuits.partner[port]):
                break

        n_moves += 1
        copy_routes(order, circuits, before_move)
        copy_into(scratch.kept_value, scratch.value)

        # A move counts if the worst is better, or as good with a better score.
        is_better = False
        if _try_move(graph, search, chip, scratch, circuits, CircuitMove(port, price, worst)):
            new_worst, second = weigh(graph, chip, scratch, circuits)
            is_better = new_worst < worst * (1 - 1e-9)
            if not is_better and new_worst <= worst * (1 + 1e-9):
                new_score = _tie_break_score(chip, scratch, order, worst, second)
                is_better = new_score < score * (1 - 1e-6)
            if is_better:
                worst = new_worst
                score = _tie_break_score(chip, scratch, order, worst, second)
                n_failures = 0
        if not is_better:
            # Go back to the routes before the move; the move may have left links without owner.
            scratch.owner[:] = -1
            copy_routes(order, before_move, circuits)
            copy_into(scratch.value, scratch.kept_value)
            for place in range(len(order)):
                _set_link_owner(graph, scratch, circuits, order[place], order[place])
            n_failures += 1


@kernel
def relieve_rows(
    graph: MeshArrays,
    search: RoutingSpace,
    chip: Chip,
    scratch: ReliefSpace,
    ports: PortTable,
    row_scratch: RowScratch,
    rows: RowBatch,
    max_moves,
):
    """Improve the routes of each routed matching of a batch by rip-up and reroute (`relieve`).

    Routes are read out of ``rows.states[row, cell]``. These receive the states of the new routes,
    ``rows.lengths[row, port]`` their lengths, and ``rows.routes`` those of the last matching. Rows
    whose outcome is not `ROUTED` stay as they are. At most `max_moves` moves are tried for each.
    All rows are improved in one call, because a call from Python costs as much as a move. `ports`
    are those of the fabric; `scratch` and `row_scratch` are overwritten.
    """
    for row in range(len(rows.matchings)):
        if rows.outcome[row] != ROUTED:
            continue

        # The circuits, the longest first, with their routes.
        partner = row_scratch.partner
        n_circuits = line_up(
            ports, rows.matchings[row], row_scratch.order, partner, row_scratch.taken
        )
        order = row_scratch.order[:n_circuits]
        circuits = RoutedCircuits(order, partner, rows.routes, rows.lengths[row])
        for place in range(n_circuits):
            follow_circuit(graph, circuits, rows.states[row], order[place])
        relieve(graph, search, chip, scratch, circuits, max_moves)
        rows.states[row, :] = -1
        write_states(graph, order, rows.routes, rows.lengths[row], rows.states[row])

"""Routed circuits made better: compiled, so that a scheduler can afford it.

A circuit is put on another way, and those in its way are routed anew past all others. What makes
the worst circuit no worse, and the others or itself better, stays. Heater power is a sum over the
cells that are lit: there a move stays if it saves power, or cells at the same power; or the other
way round.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import CellDevice
from optmatch.problems.routing import split_power
from optmatch.solvers.kernels.decorators import inner_kernel, kernel
from optmatch.solvers.routing.pathfinder import FAR, UNIT, MeshArrays, find_route
from optmatch.solvers.routing.router import CellRouter
from optmatch.solvers.routing.rows import PortTable, line_up, write_states

_SHARE = 20 * UNIT
"""What it costs to pass a cell that leaks into another circuit as much as the worst one gets."""

_LOSS, _CROSSTALK, _POWER, _CELLS = range(4)
_AIMS = ("worst-loss-db", "worst-snr-db", "power-mw", "total-cells")

_DARK = 1e-300
"""A beam has at least so much of its power: it is divided by."""

_PRICES = np.array([0, UNIT // 4, UNIT, 4 * UNIT, FAR], dtype=np.int64)
"""What a link of another circuit may cost, in the order of tries; `FAR` closes it."""


class Chip(NamedTuple):
    """What the kernels know of the cells, and what is asked for."""

    loss_db: NDArray[np.float64]  # (cells, state)
    share: NDArray[np.float64]  # (cells, state): of the power that goes on
    leak: NDArray[np.float64]  # (cells, state)
    mutual: bool  # whether circuits send from both ends
    aim: int  # the place of the objective in `_AIMS`
    extra_mw: NDArray[np.float64]  # (cells, state): above what a dark cell takes
    extra: NDArray[np.int64]  # (cells, state): the same as a cost of passing


class ReliefSpace(NamedTuple):
    """Arrays to work in."""

    owner: NDArray[np.int64]  # (links,): the port whose circuit passes, -1 for none
    beam: NDArray[np.int64]  # (terminals,): the beam that enters there, -1 for none
    power: NDArray[np.float64]  # (terminals,): what is left of it there
    ratio: NDArray[np.float64]  # (2 * ports,): crosstalk over signal of each beam
    value: NDArray[np.float64]  # (ports,): what counts of each circuit
    toll: NDArray[np.int64]  # (cells, state): what passing a cell costs now
    routes: NDArray[np.int32]  # (ports, width): those to go back to
    lengths: NDArray[np.int64]
    worth: NDArray[np.float64]  # (ports,): their values
    moved: NDArray[np.int64]  # (ports,): circuits in the way


class Relief:
    """The kernels with a fabric, a chip and arrays; one for each thread."""

    def __init__(self, router: CellRouter, cells: CellDevice, objective: str) -> None:
        aim = _AIMS.index(objective)
        if aim >= _POWER:
            router = CellRouter(router.fabric)
        self.router = router
        wiring, space = router.wiring, router.workspace
        n, terminals = len(wiring.source), len(wiring.mate)
        dark_mw, extra_mw = split_power(router.fabric, cells)
        self._dark_mw = dark_mw if aim == _POWER else 0.0
        # all of a way cost less than a cell, or a cell less than most heaters
        dearest = UNIT / (2 * router.width) if aim == _CELLS else _SHARE
        extra = (extra_mw / (extra_mw.max(initial=0.0) or 1.0) * dearest).astype(np.int64)
        share = 10.0 ** (-cells.loss_db / 10.0)
        known = cells.loss_db, share, cells.leak, router.bidirectional
        self.chip = Chip(*known, aim, extra_mw, extra)
        self._space = ReliefSpace(
            np.full(len(space.use), -1, dtype=np.int64),
            np.full(terminals, -1, dtype=np.int64),
            np.zeros(terminals),
            np.zeros(2 * n),
            np.zeros(n),
            np.zeros_like(wiring.cell_cost),
            *router.empty_routes(),
            np.zeros(n),
            np.zeros(n, dtype=np.int64),
        )

    def measure(
        self, order: NDArray[np.int64], routes: NDArray[np.int32], lengths: NDArray[np.int64]
    ) -> float:
        """Return the objective."""
        known = self.router.wiring, self.chip, self._space
        return self._dark_mw + float(weigh(*known, order, routes, lengths))

    def improve(
        self,
        order: NDArray[np.int64],
        partner: NDArray[np.int64],
        routes: NDArray[np.int32],
        lengths: NDArray[np.int64],
        tries: int,
    ) -> None:
        """Improve routes in place by so many tries at most."""
        known = self.router.wiring, self.router.workspace, self.chip, self._space
        relieve(*known, self.router.least, order, partner, routes, lengths, tries)

    def improve_row(
        self,
        ports: PortTable,
        room: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]],
        row: NDArray[np.int32],
        routes: NDArray[np.int32],
        lengths: NDArray[np.int64],
        states: NDArray[np.int8],
        tries: int,
    ) -> None:
        """Improve the routes of a row of matchings, and write their states, in one call."""
        known = self.router.wiring, self.router.workspace, self.chip, self._space
        _relieve_row(*known, self.router.least, ports, *room, row, routes, lengths, states, tries)


@inner_kernel
def _heat(wiring, chip, room, order, routes, lengths):
    """Write what each circuit adds to those before it into ``room.value``; sum up."""
    power, cells = 0.0, 0.0
    for place in range(len(order)):
        port = order[place]
        at, room.value[port] = wiring.source[port], 0.0
        cells += lengths[port]
        for step in range(lengths[port]):
            left = routes[port, step]
            if room.beam[at & ~3] < 0:
                room.value[port] += chip.extra_mw[at >> 2, (left ^ at) & 1]
                room.beam[at & ~3] = port
            at = wiring.mate[left]
        power += room.value[port]
    for place in range(len(order)):
        port = order[place]
        for step in range(lengths[port]):
            room.beam[routes[port, step] & ~3] = -1
    room.ratio[0], room.ratio[1] = power, cells


@kernel
def weigh(wiring, chip, room, order, routes, lengths):
    """Write into ``room.value`` what each circuit has; return the largest, or a sum."""
    if chip.aim >= _POWER:
        _heat(wiring, chip, room, order, routes, lengths)
        return room.ratio[chip.aim - _POWER]
    worst = 0.0
    for place in range(len(order)):
        port = order[place]
        at, lost, power = wiring.source[port], 0.0, 1.0
        for step in range(lengths[port]):
            left = routes[port, step]
            state = (left ^ at) & 1
            lost += chip.loss_db[at >> 2, state]
            if chip.aim == _CROSSTALK:
                room.beam[at], room.power[at] = 2 * port, power
                power = max(_DARK, power * chip.share[at >> 2, state])
                if chip.mutual:
                    room.power[left] = power  # of this end for now
            at = wiring.mate[left]
        room.value[port] = lost if chip.aim == _LOSS else power
        worst = max(worst, lost)
    if chip.aim == _LOSS:
        return worst
    for place in range(len(order)):
        port = order[place]
        room.ratio[2 * port] = room.ratio[2 * port + 1] = 0.0
        for step in range(lengths[port] if chip.mutual else 0):
            left = routes[port, step]  # light of the other end enters where this one leaves
            room.beam[left], room.power[left] = 2 * port + 1, room.value[port] / room.power[left]
    for place in range(len(order)):
        port = order[place]
        at = wiring.source[port]
        for step in range(lengths[port]):
            left = routes[port, step]
            share = chip.leak[at >> 2, (left ^ at) & 1]
            _leak(room, at, share)
            if chip.mutual:
                _leak(room, left, share)
            at = wiring.mate[left]
    worst = 0.0
    for place in range(len(order)):
        port = order[place]
        room.value[port] = max(room.ratio[2 * port], room.ratio[2 * port + 1])
        worst = max(worst, room.value[port])
        at = wiring.source[port]
        for step in range(lengths[port]):
            left = routes[port, step]
            room.beam[at] = room.beam[left] = -1
            at = wiring.mate[left]
    return worst


@inner_kernel
def _leak(room, at, share):
    """Add what leaks out of the beam that enters at a terminal to the beam beside it."""
    other = room.beam[at ^ 1]
    if other >= 0 and other != room.beam[at] and share > 0.0:
        room.ratio[other] += share * room.power[at] / room.power[at ^ 1]


@inner_kernel
def _own(wiring, room, port, routes, lengths, owner):
    """Mark the links of a circuit as its own, or as free (-1)."""
    room.owner[wiring.link[wiring.source[port]]] = owner
    for step in range(lengths[port]):
        room.owner[wiring.link[routes[port, step]]] = owner


@inner_kernel
def _strain(chip, room, order, worst):
    """Add up the circuits, the bad ones so much more that they decide; of sums, the other one."""
    if chip.aim >= _POWER:
        return room.ratio[_CELLS - chip.aim]
    total = 0.0
    for place in range(len(order)):
        value = room.value[order[place]]
        if chip.aim == _CROSSTALK:
            total += (value / worst) ** 4 if worst > 0.0 else 0.0
        else:
            total += 10.0 ** (value - worst)
    return total


@inner_kernel
def _reroute(wiring, space, chip, room, port, partner, routes, lengths, worst, price):
    """Put a circuit that owns no link on its cheapest way; links of others cost `price`."""
    for terminal in range(len(wiring.mate)):
        taken = room.owner[wiring.link[terminal]] >= 0
        space.exit_cost[terminal] = price if taken else 0
    space.exit_cost[wiring.source[port]] = FAR
    tolled = MeshArrays(
        wiring.mate,
        wiring.exits,
        wiring.link,
        wiring.ends,
        room.toll,
        wiring.source,
        wiring.target,
        wiring.to_go,
    )
    if chip.aim != _LOSS:
        for cell in range(len(room.toll)):
            shared = False
            for terminal in range(4 * cell, 4 * cell + 4):
                shared = shared or room.owner[wiring.link[terminal]] >= 0
            for state in range(2):
                room.toll[cell, state] = wiring.cell_cost[cell, state]
                if chip.aim >= _POWER:
                    room.toll[cell, state] += 0 if shared else chip.extra[cell, state]
                elif shared and worst > 0.0:
                    room.toll[cell, state] += np.int64(_SHARE * chip.leak[cell, state] / worst)
    count = find_route(tolled, space, port, partner[port], space.spare)
    again = False
    for step in range(count):  # a route that passes a link twice is none
        link = wiring.link[space.spare[step]]
        space.use[link] += 1
        again = again or space.use[link] > 1
    for step in range(count):
        space.use[wiring.link[space.spare[step]]] = 0
    if count == 0 or again:
        return False
    for step in range(count):
        routes[port, step] = space.spare[step]
    lengths[port] = count
    return True


@inner_kernel
def _move(wiring, space, chip, room, port, partner, routes, lengths, worst, price):
    """Reroute a circuit, and those in its way past all others; tell whether all have a way."""
    _own(wiring, room, port, routes, lengths, -1)
    if not _reroute(wiring, space, chip, room, port, partner, routes, lengths, worst, price):
        return False
    moved = 0
    for step in range(lengths[port]):
        other = room.owner[wiring.link[routes[port, step]]]
        if other >= 0:
            _own(wiring, room, other, routes, lengths, -1)
            place = moved  # the worst first
            while place > 0 and room.value[room.moved[place - 1]] < room.value[other]:
                room.moved[place] = room.moved[place - 1]
                place -= 1
            room.moved[place] = other
            moved += 1
    _own(wiring, room, port, routes, lengths, port)
    for place in range(moved):
        other = room.moved[place]
        if not _reroute(wiring, space, chip, room, other, partner, routes, lengths, worst, FAR):
            return False
        _own(wiring, room, other, routes, lengths, other)
    return True


@inner_kernel
def _copy(order, routes, lengths, value, kept, kept_lengths, kept_value):
    for place in range(len(order)):
        port = order[place]
        kept_value[port] = value[port]
        kept_lengths[port] = lengths[port]
        for step in range(lengths[port]):
            kept[port, step] = routes[port, step]


@kernel
def relieve(wiring, space, chip, room, least, order, partner, routes, lengths, tries):
    """Move circuits until the worst one cannot be helped.

    The worst circuit is tried at each price of links in turn, then all others, as they leak into
    it.
    """
    for terminal in range(len(wiring.mate)):
        room.owner[wiring.link[terminal]] = -1
    for link in range(len(space.use)):
        space.use[link] = 0
    for cell in range(len(room.toll)):
        for state in range(2):
            room.toll[cell, state] = wiring.cell_cost[cell, state]
    for place in range(len(order)):
        _own(wiring, room, order[place], routes, lengths, order[place])
    worst = weigh(wiring, chip, room, order, routes, lengths)
    strain = _strain(chip, room, order, worst)
    k = 0  # tries without success
    if len(order) == 0:
        tries = 0  # there is no worst circuit to begin with
    while tries > 0 and (worst > 0.0 or chip.aim >= _POWER):
        first = order[0]
        for place in range(len(order)):
            if room.value[order[place]] > room.value[first]:
                first = order[place]
        port, price = first, _PRICES[min(k, len(_PRICES) - 1)]
        if k >= len(_PRICES):
            if chip.aim == _LOSS or k - len(_PRICES) >= 2 * len(order):
                break
            port = order[(k - len(_PRICES)) >> 1]
            price = FAR if k & 1 else UNIT
            if port == first:
                k += 1
                continue
        elif chip.aim == _LOSS and k == 0:
            cost = np.int64(0)
            at = wiring.source[port]
            for step in range(lengths[port]):
                left = routes[port, step]
                cost += wiring.cell_cost[at >> 2, (left ^ at) & 1]
                at = wiring.mate[left]
            if cost == least[port, partner[port]]:
                break
        tries -= 1
        _copy(order, routes, lengths, room.value, room.routes, room.lengths, room.worth)
        better = False
        if _move(wiring, space, chip, room, port, partner, routes, lengths, worst, price):
            now = weigh(wiring, chip, room, order, routes, lengths)
            better = now < worst * (1 - 1e-9)
            if not better and now <= worst * (1 + 1e-9):
                better = _strain(chip, room, order, worst) < strain * (1 - 1e-6)
        if better:
            worst, k = now, 0
            strain = _strain(chip, room, order, worst)
        else:
            for place in range(len(order)):
                _own(wiring, room, order[place], routes, lengths, -1)
            _copy(order, room.routes, room.lengths, room.worth, routes, lengths, room.value)
            for place in range(len(order)):
                _own(wiring, room, order[place], routes, lengths, order[place])
            k += 1


@kernel
def _relieve_row(
    wiring, space, chip, room, least, ports, order, partner, taken, row, routes, lengths, states,
    tries,
):  # fmt: skip
    """Line up a row, relieve its routes and write its states: a call costs as much as a try."""
    circuits = order[: line_up(ports, row, order, partner, taken)]
    relieve(wiring, space, chip, room, least, circuits, partner, routes, lengths, tries)
    states[:] = -1
    write_states(wiring, circuits, routes, lengths, states)

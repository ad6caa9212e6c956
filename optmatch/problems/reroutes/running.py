"""The routes of the circuits of a running state, and the effect of a failure on them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, Units
from optmatch.model import FREE, InputError

Routes = tuple[tuple[int, ...], ...]


class Passed(NamedTuple):
    """The fibres or terminals of all routes, one route after another."""

    part: NDArray[np.int64]
    circuit: NDArray[np.int64]
    """``circuit[k]``: whose ``part[k]`` is."""


class Damage(NamedTuple):
    """The effect of failures on a running state."""

    dead_ports: frozenset[int]
    """Ports that have failed, alone or with their chip."""
    hit: NDArray[np.bool_]
    """``hit[circuit]``: whether it has lost its light, or an end of it is lost."""
    lost: tuple[int, ...]
    """Chips or ports with circuits that a spare has to take over, ascending."""
    spares: tuple[int, ...]
    """Spares that can take over, ascending."""


def check_ends(fabric: Fabric, circuits: NDArray[np.int32]) -> None:
    """Refuse circuits whose ports do not exist, or are in use twice; the error names one."""
    for k, end in np.argwhere((circuits < 0) | (circuits >= fabric.n_ports))[:1].tolist():
        port, place = int(circuits[k, end]), f"circuits[{k}, {end}]"
        raise InputError(f"{place} = {port}: ports are 0 .. {fabric.n_ports - 1}", where=place)
    sides = 1 if fabric.bidirectional else 2
    keys = (circuits + np.arange(2) % sides * fabric.n_ports).ravel()
    first = _first_uses(keys, sides * fabric.n_ports)
    for again in np.flatnonzero(first < np.arange(len(keys)))[:1].tolist():
        place = f"circuits[{again // 2}, {again % 2}]"
        port, user = circuits.flat[again], first[again] // 2
        raise InputError(f"{place} = {port}: the port is in use by circuit {user}", where=place)


def _first_uses(keys: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Return where each of some numbers below `most` stands first."""
    first = np.empty(most, dtype=np.int64)
    first[keys[::-1]] = np.arange(len(keys))[::-1]  # the last of equal ones is kept
    return np.asarray(first[keys])


def list_passed(routes: Routes) -> Passed:
    """Put routes one after another."""
    lengths = np.fromiter(map(len, routes), np.int64, len(routes))
    part = np.fromiter(chain.from_iterable(routes), np.int64, lengths.sum())
    return Passed(part, np.repeat(np.arange(len(routes)), lengths))


def follow_fibres(rack: Units, circuits: NDArray[np.int32], routes: Routes) -> Passed:
    """Check that each route leads over fibres of its own from server to server.

    The `InputError` names circuit and fibre.
    """
    if len(routes) != len(circuits):
        raise InputError(f"{len(routes)} routes for {len(circuits)} circuits", where="routes")
    most = rack.n_fibres
    if max(chain.from_iterable(routes), default=-1) >= most:
        k = next(k for k, route in enumerate(routes) if max(route, default=-1) >= most)
        step = next(step for step, fibre in enumerate(routes[k]) if fibre >= most)
        place = f"routes[{k}][{step}]"
        named = f"{place} = {routes[k][step]}: fibres are 0 .. {most - 1}"
        raise InputError(named, where=place)
    fibre, circuit = passed = list_passed(routes)

    def refuse(wrong: NDArray[np.bool_], what: Callable[[int], str]) -> None:
        for k in np.flatnonzero(wrong)[:1].tolist():
            step = k - np.searchsorted(circuit, circuit[k])
            place = f"routes[{circuit[k]}][{step}]"
            raise InputError(f"{place} = {fibre[k]}: {what(k)}", where=place)

    server = rack.server_of_unit[circuits // rack.ports_per_unit]
    tail, head = rack.edges[rack.edge_of_fibre[fibre]].T
    onward = np.diff(circuit, prepend=-1) == 0
    at = np.where(onward, np.roll(head, 1), server[circuit, 0])
    refuse(tail != at, lambda k: f"leaves server {tail[k]}, the light is in server {at[k]}")
    if not rack.through:
        inside = onward & (tail < rack.n_servers)
        refuse(inside, lambda k: f"leaves server {tail[k]}, which no light passes")
    first = _first_uses(fibre, most)
    refuse(
        first < np.arange(len(fibre)),
        lambda k: f"the fibre is in use by circuit {circuit[first[k]]}",
    )
    end = server[:, 0].copy()
    end[circuit] = head  # the last of several is kept
    for k in np.flatnonzero(end != server[:, 1])[:1]:
        raise InputError(
            f"routes[{k}] ends in server {end[k]}, circuit {k} in server {server[k, 1]}",
            where=f"routes[{k}]",
        )
    return passed


def follow_light(
    fabric: Fabric, circuits: NDArray[np.int32], cell_states: NDArray[np.int8]
) -> Routes:
    """Find where the light of each circuit enters cells, and that it reaches its partner.

    The `InputError` names the first circuit whose light goes elsewhere, or is lost.
    """
    graph: Any = fabric.graph
    if len(cell_states) != graph.n_cells:
        raise InputError(
            f"cell_states has {len(cell_states)} entries, the fabric {graph.n_cells} cells",
            where="cell_states",
        )
    mate, exits, states = graph.mate.tolist(), graph.exits.tolist(), cell_states.tolist()
    starts = fabric.source_terminals.tolist()
    ends = fabric.destination_terminals.tolist()
    routes = []
    for k, (source, destination) in enumerate(circuits.tolist()):
        at, route = starts[source], []
        while at >= 0:
            state = states[at // 4]
            if state == FREE:
                _refuse_light(k, source, destination, f"is lost in free cell {at // 4}")
            route.append(at)
            left = exits[at][state]
            at = mate[left]
        if left != ends[destination]:
            name = graph.terminal_name(left)
            _refuse_light(k, source, destination, f"leaves at {name}, where its partner is not")
        routes.append(tuple(route))
    return tuple(routes)


def _refuse_light(circuit: int, source: int, destination: int, what: str) -> None:
    raise InputError(
        f"cell_states: the light of circuit {circuit} (port {source} to port {destination})"
        f" {what}",
        where="cell_states",
    )


def assess(state: Any, passed: Passed) -> Damage:
    """Find which circuits the failures of a `Reroute` hit, and which units are lost.

    A unit is lost if it has failed, or has fewer live ports than circuits. A stuck cell hits the
    circuits that need it in the other state.
    """
    fabric, circuits, cell_states = state.fabric, state.circuits, state.cell_states
    if not state.units.through:
        return _assess_racks(state, passed)
    units, per_unit = state.units.n_units, state.units.ports_per_unit
    dead = np.zeros(fabric.n_ports, dtype=np.bool_)
    dead.reshape(units, per_unit)[list(state.failed_chips)] = True
    dead[list(state.failed_ports)] = True
    live = per_unit - dead.reshape(units, per_unit).sum(axis=1)
    unit_of = circuits // per_unit
    ends = [unit_of] if fabric.bidirectional else list(unit_of.T)
    loads = np.max([np.bincount(end.ravel(), minlength=units) for end in ends], axis=0)
    lost = loads > live
    hit = (dead[circuits] | lost[unit_of]).any(axis=1)
    fibre = passed.part if cell_states is None else state.units.fibre_of_terminal[passed.part]
    gone = np.zeros(state.units.n_fibres + 1, dtype=np.bool_)  # the last is no fibre
    gone[list(state.failed_fibres)] = True
    hit[passed.circuit[gone[fibre]]] = True
    if cell_states is not None:
        broken = np.zeros(len(cell_states), dtype=np.bool_)
        broken[list(state.dead_cells)] = True
        for cell, held in state.stuck.items():
            broken[cell] = held != cell_states[cell]
        hit[passed.circuit[broken[passed.part // 4]]] = True
    usable = tuple(unit for unit in state.spares if live[unit] > 0)
    return Damage(
        frozenset(np.flatnonzero(dead).tolist()), hit, tuple(np.flatnonzero(lost).tolist()), usable
    )


def _assess_racks(state: Any, passed: Passed) -> Damage:
    """Do the same where racks are what spares replace: chips that no light passes."""
    fabric, circuits = state.fabric, state.circuits
    per_rack = fabric.chips_per_rack
    dead = np.zeros((fabric.n_chips, fabric.ports_per_chip), dtype=np.bool_)
    dead[list(state.failed_chips)] = True
    dead.reshape(-1)[list(state.failed_ports)] = True
    rack_of_port = np.arange(fabric.n_ports) // (per_rack * fabric.ports_per_chip)
    in_use = np.zeros(fabric.n_ports, dtype=np.bool_)
    in_use[circuits] = True
    gone = np.isin(passed.part, state.failed_fibres)
    lost = np.zeros(fabric.racks, dtype=np.bool_)
    lost[rack_of_port[in_use & dead.ravel()]] = True
    lost[fabric.rack_of_fibre[passed.part[gone]]] = True
    hit = lost[rack_of_port[circuits]].any(axis=1)
    broken = np.array(dead.any(axis=1).reshape(-1, per_rack).any(axis=1))
    broken[fabric.rack_of_fibre[list(state.failed_fibres)]] = True
    spare = np.zeros(fabric.n_chips, dtype=np.bool_)
    spare[list(state.spares)] = True
    free = spare.reshape(-1, per_rack).all(axis=1) & ~broken
    ports = frozenset(np.flatnonzero(dead).tolist())
    units = (np.flatnonzero(np.repeat(racks, per_rack)).tolist() for racks in (lost, free))
    return Damage(ports, hit, *map(tuple, units))

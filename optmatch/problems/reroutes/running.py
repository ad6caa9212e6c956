"""The routes of the circuits of a running state, and what a failure does to them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import FREE, InputError

Routes = tuple[tuple[int, ...], ...]


class Damage(NamedTuple):
    """What failures do to a running state."""

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
    used: dict[tuple[int, int], int] = {}
    for k, ends in enumerate(circuits.tolist()):
        for end, port in enumerate(ends):
            key = port, 0 if fabric.bidirectional else end
            if key in used:
                place = f"circuits[{k}, {end}]"
                raise InputError(
                    f"{place} = {port}: the port is in use by circuit {used[key]}", where=place
                )
            used[key] = k


def follow_fibres(fabric: Fabric, circuits: NDArray[np.int32], routes: Routes) -> Routes:
    """Check that each route leads over fibres of its own from server to server.

    The `InputError` names circuit and fibre.
    """
    if len(routes) != len(circuits):
        raise InputError(f"{len(routes)} routes for {len(circuits)} circuits", where="routes")
    server = fabric.server_of_unit[circuits // fabric.ports_per_unit]
    ends = fabric.edges[fabric.edge_of_fibre].tolist()
    used: dict[int, int] = {}
    for k, route in enumerate(routes):
        at = int(server[k, 0])
        for step, fibre in enumerate(route):
            what = ""
            if not 0 <= fibre < len(ends):
                what = f"fibres are 0 .. {len(ends) - 1}"
            elif ends[fibre][0] != at:
                what = f"leaves server {ends[fibre][0]}, the light is in server {at}"
            elif fibre in used:
                what = f"the fibre is in use by circuit {used[fibre]}"
            if what:
                place = f"routes[{k}][{step}]"
                raise InputError(f"{place} = {fibre}: {what}", where=place)
            used[fibre], at = k, ends[fibre][1]
        if at != server[k, 1]:
            raise InputError(
                f"routes[{k}] ends in server {at}, circuit {k} in server {server[k, 1]}",
                where=f"routes[{k}]",
            )
    return routes


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


def assess(
    fabric: Fabric,
    circuits: NDArray[np.int32],
    routes: Routes,
    cell_states: NDArray[np.int8] | None,
    spares: tuple[int, ...],
    failed_chips: Collection[int],
    failed_ports: Collection[int],
    failed_fibres: Collection[int],
    stuck: dict[int, int],
    dead_cells: Collection[int],
) -> Damage:
    """Find which circuits a failure hits, and which units are lost.

    A unit is lost if it has failed, or has fewer live ports than circuits. A stuck cell hits the
    circuits that need it in the other state.
    """
    per_unit = fabric.ports_per_unit
    dead = set(failed_ports)
    dead.update(p for c in failed_chips for p in range(per_unit * c, per_unit * (c + 1)))
    loads = np.zeros((2, fabric.n_units), dtype=np.int64)
    for end in (0, 1):
        np.add.at(loads[0 if fabric.bidirectional else end], circuits[:, end] // per_unit, 1)
    live = dict.fromkeys({port // per_unit for port in dead}, per_unit)
    for port in dead:
        live[port // per_unit] -= 1
    lost = {unit for unit in live if loads[:, unit].max() > live[unit]}
    fibre_at = fabric.fibre_of_terminal
    gone, broken = set(failed_fibres), set(dead_cells)
    hit = np.zeros(len(circuits), dtype=np.bool_)
    for k, ((source, destination), way) in enumerate(zip(circuits.tolist(), routes, strict=True)):
        ends = {source // per_unit, destination // per_unit}
        hit[k] = source in dead or destination in dead or bool(ends & lost)
        if cell_states is None:
            hit[k] |= bool(gone.intersection(way))
            continue
        for terminal in way:
            cell = terminal // 4
            wrong = stuck.get(cell, int(cell_states[cell])) != cell_states[cell]
            cut = bool(gone) and int(fibre_at[terminal]) in gone
            hit[k] |= wrong or cut or cell in broken
    usable = tuple(u for u in spares if live.get(u, per_unit) > 0)
    return Damage(frozenset(dead), hit, tuple(sorted(lost)), usable)

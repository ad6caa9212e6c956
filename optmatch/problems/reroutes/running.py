"""Failed parts, and the routes of the circuits of a running state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, Units
from optmatch.fabrics.cellgraph import check_parts
from optmatch.fabrics.fabric import number_names
from optmatch.model import BAR, CROSS, FREE, InputError
from optmatch.model.numbers import check_length, refuse_entries

Routes = tuple[tuple[int, ...], ...]


KIND_OF_FIELD = {
    "failed_chips": "chip",
    "failed_ports": "port",
    "failed_fibres": "fibre",
    "stuck_bar": "cell",
    "stuck_cross": "cell",
    "dead_cells": "cell",
}
"""The kind of part that each field of `FailedParts` lists."""

Part = tuple[str, int]
"""The kind and the number of a part, as ``("fibre", 12)``."""


class FailedParts(NamedTuple):
    """Failed parts, by the fields of `Reroute`."""

    failed_chips: tuple[int, ...] = ()
    """Chips of a rack."""
    failed_ports: tuple[int, ...] = ()
    """Ports that have failed, beside those of failed chips."""
    failed_fibres: tuple[int, ...] = ()
    """Fibres of a rack."""
    stuck_bar: tuple[int, ...] = ()
    """Cells that stay in the bar state."""
    stuck_cross: tuple[int, ...] = ()
    """Cells that stay in the cross state."""
    dead_cells: tuple[int, ...] = ()
    """Cells that carry no light."""

    @classmethod
    def of(cls, faults: Mapping[Part, str]) -> FailedParts:
        """Return the parts of such faults, each field ascending."""
        numbers_of: dict[str, list[int]] = {field: [] for field in cls._fields}
        for (_, number), field in faults.items():
            numbers_of[field].append(number)
        return cls(*(tuple(sorted(numbers)) for numbers in numbers_of.values()))

    @property
    def faults(self) -> dict[Part, str]:
        """What is wrong with each part: the field that lists it; a cell is one part in all three.

        Fibre 12 and a dead cell 7 are ``{("fibre", 12): "failed_fibres", ("cell", 7):
        "dead_cells"}``.
        """
        return {
            (KIND_OF_FIELD[field], number): field
            for field, numbers in self._asdict().items()
            for number in numbers
        }

    @property
    def broken_cells(self) -> tuple[int, ...]:
        """The cells of all three faults."""
        return (*self.stuck_bar, *self.stuck_cross, *self.dead_cells)

    @property
    def stuck(self) -> dict[int, int]:
        """The state of each stuck cell."""
        return {**dict.fromkeys(self.stuck_bar, BAR), **dict.fromkeys(self.stuck_cross, CROSS)}


def group_size(units: Units) -> int:
    """Return how many units, by number in a row, replace each other as a group.

    It is one where light passes chips, and on a switch; else all units of a rack, since only a
    whole rack can replace another one.
    """
    return 1 if units.through else units.n_units // units.racks


class Passed(NamedTuple):
    """The fibres or terminals of all routes, one route after another."""

    part: NDArray[np.int64]
    """(parts,): a fibre in a rack without cells, else a terminal of a cell."""
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


def number_named_ends(fabric: Fabric, circuits: Any) -> Any:
    """Return a list of circuits with the number of each port that is called by its name.

    What is no list of pairs is returned as it is, for others to refuse.
    """
    if not isinstance(circuits, Sequence):
        return circuits
    numbered = []
    for ends in circuits:
        if isinstance(ends, Sequence) and len(ends) == 2:
            (source,) = number_names(fabric.find_port, ends[:1])
            (destination,) = number_names(partial(fabric.find_port, receives=True), ends[1:])
            ends = [source, destination]
        numbered.append(ends)
    return numbered


def check_ends(fabric: Fabric, circuits: NDArray[np.int32]) -> None:
    """Refuse circuits whose ports do not exist, or are in use twice; the error names one.

    A port that is not bidirectional has two sides, a sending and a receiving one, of which each
    may be in use once. A bidirectional port may be in use once.
    """
    wrong = (circuits < 0) | (circuits >= fabric.n_ports)
    refuse_entries(
        "circuits", wrong, lambda *end: f" = {circuits[end]}: ports are 0 .. {fabric.n_ports - 1}"
    )

    # Each side of a port has a number of its own; a number that was there before is in use twice.
    n_sides = 1 if fabric.bidirectional else 2

    # The source is side 0, the destination side 1; on bidirectional ports both are side 0.
    side_of_end = np.arange(2) % n_sides
    keys = (circuits + side_of_end * fabric.n_ports).ravel()
    first = _find_first(keys, n_sides * fabric.n_ports)
    user = (first // 2).reshape(-1, 2)
    refuse_entries(
        "circuits",
        (first < np.arange(len(keys))).reshape(-1, 2),
        lambda *end: f" = {circuits[end]}: the port is in use by circuit {user[end]}",
    )


def _find_first(keys: NDArray[np.integer], n_keys: int) -> NDArray[np.int64]:
    """Return for each of some numbers below `n_keys` the position where it comes first.

    For the keys 5, 3, 5 these are the positions 0, 1, 0.
    """
    first = np.empty(n_keys, dtype=np.int64)
    first[keys[::-1]] = np.arange(len(keys))[::-1]  # of equal ones the last assignment stays
    return np.asarray(first[keys])


def list_passed(routes: Routes) -> Passed:
    """Put routes one after another."""
    lengths = np.fromiter(map(len, routes), np.int64, len(routes))
    part = np.fromiter(chain.from_iterable(routes), np.int64, lengths.sum())
    return Passed(part, np.repeat(np.arange(len(routes)), lengths))


def follow_fibres(rack: Units, circuits: NDArray[np.int32], routes: Routes) -> Passed:
    """Check that each circuit has a connected route of fibres that no other circuit uses.

    A circuit from server 0 to server 2 may have the route (fibre 0 -> 1, fibre 1 -> 2), if light
    may pass server 1. A route is empty if both ends are in one server. Returns the fibres of all
    routes, one route after another. The error names the first circuit and fibre that are wrong.
    """
    check_length("routes", routes, len(circuits), "circuits")
    if max(chain.from_iterable(routes), default=-1) >= rack.n_fibres:
        for circuit_number, route in enumerate(routes):
            check_parts(f"routes[{circuit_number}]", route, rack.n_fibres, "fibres")
    passed = list_passed(routes)
    fibre = passed.part
    circuit = passed.circuit

    def refuse(wrong: NDArray[np.bool_], explain: Callable[[int], str]) -> None:
        """Refuse the first part of a route for which a condition is wrong; `explain` says why."""
        for entry in np.flatnonzero(wrong)[:1].tolist():
            hop = entry - np.searchsorted(circuit, circuit[entry])
            where = f"routes[{circuit[entry]}][{hop}]"
            raise InputError(f"{where} = {fibre[entry]}: {explain(entry)}", where=where)

    # Each fibre starts where the one before it ends, the first one at the source. `tail` and
    # `head` are the servers, or switches between racks, that each passed fibre joins.
    server = rack.server_of_unit[circuits // rack.ports_per_unit]  # (circuits, 2)
    tail, head = rack.edges[rack.edge_of_fibre[fibre]].T

    # Whether a fibre follows another one of the same circuit.
    goes_on = np.diff(circuit, prepend=-1) == 0
    light_at = np.where(goes_on, np.roll(head, 1), server[circuit, 0])
    refuse(
        tail != light_at,
        lambda k: f"leaves server {tail[k]}, the light is in server {light_at[k]}",
    )
    turns_back = goes_on & (head == np.roll(tail, 1))
    refuse(turns_back, lambda k: f"leads back to server {head[k]}, where the light comes from")
    if not rack.through:
        passes_server = goes_on & (tail < rack.n_servers)
        refuse(passes_server, lambda k: f"leaves server {tail[k]}, which no light passes")

    first = _find_first(fibre, rack.n_fibres)
    refuse(
        first < np.arange(len(fibre)),
        lambda k: f"the fibre is in use by circuit {circuit[first[k]]}",
    )

    # A circuit without fibres ends where it begins; others end at the head of their last fibre.
    end = server[:, 0].copy()  # by circuit
    end[circuit] = head  # of several assignments the last one stays
    refuse_entries(
        "routes",
        end != server[:, 1],
        lambda k: f" ends in server {end[k]}, circuit {k} in server {server[k, 1]}",
    )
    return passed


def follow_light(
    fabric: Fabric, circuits: NDArray[np.int32], cell_states: NDArray[np.int8]
) -> Routes:
    """Find where the light of each circuit enters cells, and check that it reaches its partner.

    ``circuits[circuit]`` are a source and a destination port, ``cell_states[cell]`` is 0 bar, 1
    cross, -1 free. Cell 5 has the terminals 20, 21, 22 and 23. Light enters a cell at one terminal
    and leaves it at another one, which depends on the state of the cell; a waveguide leads from
    there to a terminal of the next cell. The error names the first circuit whose light goes
    elsewhere, or is lost.
    """
    graph = fabric.graph
    assert graph is not None
    check_length("cell_states", cell_states, graph.n_cells, "cells")

    # ``exits[terminal][state]`` is where light that enters at a terminal leaves its cell, and
    # ``mate[terminal]`` the terminal that is joined to it, -1 for none. Lists are quicker to step
    # through than arrays.
    mate = graph.mate.tolist()
    exits = graph.exits.tolist()
    states = cell_states.tolist()
    starts = fabric.source_terminals.tolist()
    ends = fabric.destination_terminals.tolist()
    routes = []
    for circuit, (source, destination) in enumerate(circuits.tolist()):
        name = f"the light of circuit {circuit} (port {source} to port {destination})"
        route = []
        entered = starts[source]

        # The light has left the last cell where nothing is joined to its exit.
        while entered >= 0:
            cell = entered // 4
            if states[cell] == FREE:
                place = graph.describe_cell(cell)
                message = f"cell_states: {name} is lost in free {place}"
                raise InputError(message, where="cell_states")
            route.append(entered)
            left = exits[entered][states[cell]]
            entered = mate[left]

        # It has left the network, which has to be at its partner.
        if left != ends[destination]:
            place = graph.terminal_name(left)
            message = f"cell_states: {name} leaves at {place}, where its partner is not"
            raise InputError(message, where="cell_states")
        routes.append(tuple(route))
    return tuple(routes)

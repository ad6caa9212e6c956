"""The routes of the circuits of a running state, and the effect of a failure on them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, RackFabric, Units
from optmatch.model import FREE, InputError

Routes = tuple[tuple[int, ...], ...]


class RunningState(Protocol):
    """What is asked of a `Reroute`, whose module imports this one."""

    @property
    def fabric(self) -> Fabric:
        """The rack or switch."""

    @property
    def units(self) -> Units:
        """What spares replace."""

    @property
    def circuits(self) -> NDArray[np.int32]:
        """``circuits[k] = source, destination``."""

    @property
    def cell_states(self) -> NDArray[np.int8] | None:
        """``cell_states[cell]``; None without cells."""

    @property
    def stuck(self) -> dict[int, int]:
        """The state of each stuck cell."""

    @property
    def dead_cells(self) -> tuple[int, ...]:
        """Cells that let no light through."""

    @property
    def spares(self) -> tuple[int, ...]:
        """The units that may take over."""

    @property
    def failed_chips(self) -> tuple[int, ...]:
        """Chips that have failed."""

    @property
    def failed_ports(self) -> tuple[int, ...]:
        """Ports that have failed, beside those of failed chips."""

    @property
    def failed_fibres(self) -> tuple[int, ...]:
        """Fibres that have failed."""


class Passed(NamedTuple):
    """The fibres or terminals of all routes, one route after another."""

    part: NDArray[np.int64]  # (parts,): a fibre in a rack without cells, else a terminal of a cell
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
    """Refuse circuits whose ports do not exist, or are in use twice; the error names one.

    A port that is not bidirectional has two sides, a sending and a receiving one, of which each
    may be in use once. A bidirectional port may be in use once.

    Parameters
    ----------
    fabric
        The fabric, for its number of ports and whether they are bidirectional.
    circuits
        ``circuits[k] = source port, destination port``, shape (circuits, 2).

    Raises
    ------
    InputError
        Naming the first end whose port does not exist, or else the first end whose port an earlier
        one uses, with the circuit of that one.
    """
    wrong = (circuits < 0) | (circuits >= fabric.n_ports)
    for circuit, end in np.argwhere(wrong)[:1].tolist():
        where = f"circuits[{circuit}, {end}]"
        port = int(circuits[circuit, end])
        message = f"{where} = {port}: ports are 0 .. {fabric.n_ports - 1}"
        raise InputError(message, where=where)

    # Each side of a port has a number of its own; a number that was there before is in use twice.
    n_sides = 1 if fabric.bidirectional else 2

    # The source is side 0, the destination side 1; on bidirectional ports both are side 0.
    side_of_end = np.arange(2) % n_sides
    keys = (circuits + side_of_end * fabric.n_ports).ravel()
    first = _find_first(keys, n_sides * fabric.n_ports)
    for repeated in np.flatnonzero(first < np.arange(len(keys)))[:1].tolist():
        where = f"circuits[{repeated // 2}, {repeated % 2}]"
        port = int(circuits.flat[repeated])
        user = first[repeated] // 2
        message = f"{where} = {port}: the port is in use by circuit {user}"
        raise InputError(message, where=where)


def _find_first(keys: NDArray[np.integer], n_keys: int) -> NDArray[np.int64]:
    """Return for each of some numbers below `n_keys` the position where it comes first.

    Parameters
    ----------
    keys
        Numbers from 0 to `n_keys` - 1, shape (keys,).
    n_keys
        The bound of the numbers.

    Returns
    -------
    ndarray, shape (keys,)
        ``first[k]``: the least position at which the number ``keys[k]`` stands, k at most.
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

    Servers hold chips, and fibres join servers. A fibre leads from one server to another, one way.
    The route of a circuit is the list of fibres that its light passes. For example, a circuit from
    server 0 to server 2 may have the route (fibre 0 -> 1, fibre 1 -> 2), if light may pass
    server 1.

    Parameters
    ----------
    rack
        The chips, servers and fibres. The fields that are read here:

        - ``ports_per_unit``: ports of a chip; ``server_of_unit[chip]``: the server of a chip;
        - ``n_fibres``: how many fibres there are; ``edge_of_fibre[fibre]``: its bundle;
        - ``edges[bundle] = from, to``: what a bundle of fibres joins; numbers below
          ``n_servers`` are servers, higher ones switches;
        - ``through``: whether light may pass through other servers on its way.
    circuits
        ``circuits[k] = source port, destination port``, shape (circuits, 2).
    routes
        ``routes[k]``: the numbers of the fibres that circuit k passes, in order. It is empty if
        both ends are in one server.

    Returns
    -------
    Passed
        The fibres of all routes one after another (``part``), and the circuit that passes each
        (``circuit``).

    Raises
    ------
    InputError
        Naming the first circuit and fibre that are wrong.
    """
    if len(routes) != len(circuits):
        raise InputError(f"{len(routes)} routes for {len(circuits)} circuits", where="routes")
    _check_fibres_exist(rack, routes)
    passed = list_passed(routes)
    fibre = passed.part
    circuit = passed.circuit

    def refuse(wrong: NDArray[np.bool_], explain: Callable[[int], str]) -> None:
        """Refuse the first part of a route for which a condition is wrong.

        Parameters
        ----------
        wrong
            By part of all routes, shape (parts,).
        explain
            Says what is wrong with a part, given its number.
        """
        for entry in np.flatnonzero(wrong)[:1].tolist():
            hop = entry - np.searchsorted(circuit, circuit[entry])
            where = f"routes[{circuit[entry]}][{hop}]"
            raise InputError(f"{where} = {fibre[entry]}: {explain(entry)}", where=where)

    # Each fibre starts where the one before it ends, the first one at the source.
    server = rack.server_of_unit[circuits // rack.ports_per_unit]  # (circuits, 2)
    tail, head = rack.edges[rack.edge_of_fibre[fibre]].T

    # Whether a fibre follows another one of the same circuit; the first one starts at the
    # source.
    goes_on = np.diff(circuit, prepend=-1) == 0
    light_at = np.where(goes_on, np.roll(head, 1), server[circuit, 0])
    refuse(
        tail != light_at,
        lambda k: f"leaves server {tail[k]}, the light is in server {light_at[k]}",
    )
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
    for k in np.flatnonzero(end != server[:, 1])[:1]:
        raise InputError(
            f"routes[{k}] ends in server {end[k]}, circuit {k} in server {server[k, 1]}",
            where=f"routes[{k}]",
        )
    return passed


def _check_fibres_exist(rack: Units, routes: Routes) -> None:
    """Refuse the first fibre of a route that does not exist.

    Parameters
    ----------
    rack
        The units, which say how many fibres there are.
    routes
        ``routes[circuit]``: the fibres that it passes, >= 0.

    Raises
    ------
    InputError
        Naming the circuit, the place in its route, and the fibre.
    """
    if max(chain.from_iterable(routes), default=-1) < rack.n_fibres:
        return
    for circuit, route in enumerate(routes):
        for hop, fibre in enumerate(route):
            if fibre >= rack.n_fibres:
                where = f"routes[{circuit}][{hop}]"
                message = f"{where} = {fibre}: fibres are 0 .. {rack.n_fibres - 1}"
                raise InputError(message, where=where)


def follow_light(
    fabric: Fabric, circuits: NDArray[np.int32], cell_states: NDArray[np.int8]
) -> Routes:
    """Find where the light of each circuit enters cells, and check that it reaches its partner.

    A cell is a 2 x 2 switch. Its four corners are called terminals: cell 5 has the terminals 20,
    21, 22 and 23. Light enters a cell at one terminal and leaves it at another one, which depends
    on the state of the cell. A waveguide leads from there to a terminal of the next cell.

    Parameters
    ----------
    fabric
        A switch with cells.
    circuits
        ``circuits[k] = source port, destination port``; int32, shape (circuits, 2).
    cell_states
        ``cell_states[cell]``: 0 bar, 1 cross, -1 free.

    Returns
    -------
    tuple of tuple of int
        ``routes[k]``: the terminals at which the light of circuit k enters cells, in order. The
        cell of a terminal is ``terminal // 4``.

    Raises
    ------
    InputError
        Naming the first circuit whose light goes elsewhere, or is lost.
    """
    graph = fabric.graph
    assert graph is not None
    if len(cell_states) != graph.n_cells:
        raise InputError(
            f"cell_states has {len(cell_states)} entries, the fabric {graph.n_cells} cells",
            where="cell_states",
        )

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
        if left != ends[destination]:
            place = graph.terminal_name(left)
            message = f"cell_states: {name} leaves at {place}, where its partner is not"
            raise InputError(message, where="cell_states")
        routes.append(tuple(route))
    return tuple(routes)


def assess(state: RunningState, passed: Passed) -> Damage:
    """Find which circuits do not work after failures, and what has to be replaced by a spare.

    A *unit* is what a spare replaces as a whole: a chip of a rack with all its ports, or a single
    port of a switch. A unit is lost if its working ports are fewer than its circuits. For example,
    a chip with 4 ports and 3 circuits is lost when a second port fails.

    Parameters
    ----------
    state
        What runs: circuits, their routes, spare units, and what has failed: chips, ports, fibres
        and cells. A cell is dead (no light passes) or stuck in a state.
    passed
        What the circuits pass: entry k says that circuit ``circuit[k]`` passes ``part[k]``. A part
        is a fibre, or, if the switch consists of cells, a terminal at which light enters a cell
        (its cell is ``part // 4``).

    Returns
    -------
    Damage
        With the fields

        - ``dead_ports``: ports that have failed, alone or with their chip;
        - ``hit[circuit]``: whether it ends at a dead port or a lost unit, or passes a failed
          fibre, a dead cell, or a cell that is stuck in another state than the circuit needs;
        - ``lost``: the lost units, ascending;
        - ``spares``: the spare units with at least one working port.
    """
    # Where light cannot pass through servers, whole racks are replaced.
    if not state.units.through:
        return _assess_racks(state, passed)

    # Which ports are dead, and how many ports of each unit work.
    n_units = state.units.n_units
    per_unit = state.units.ports_per_unit
    is_dead = np.zeros(state.fabric.n_ports, dtype=np.bool_)  # by port

    # A view by unit: all ports of a failed chip are dead.
    is_dead.reshape(n_units, per_unit)[list(state.failed_chips)] = True
    is_dead[list(state.failed_ports)] = True
    n_live = per_unit - is_dead.reshape(n_units, per_unit).sum(axis=1)  # by unit

    # Units that have more circuits than working ports are lost. A bidirectional port serves one
    # circuit, whichever end is there; other ports serve one that starts and one that ends there.
    unit_of_end = state.circuits // per_unit  # (circuits, 2)
    sides = [unit_of_end] if state.fabric.bidirectional else list(unit_of_end.T)
    n_circuits = np.max([np.bincount(side.ravel(), minlength=n_units) for side in sides], axis=0)
    is_lost = n_circuits > n_live
    hit = (is_dead[state.circuits] | is_lost[unit_of_end]).any(axis=1)

    # A circuit that passes a failed fibre is hit. Parts that are no fibre have number -1, and find
    # the last entry of `has_failed`, which is False.
    fibre: NDArray[np.integer] = passed.part
    if state.cell_states is not None:
        fibre = state.units.fibre_of_terminal[passed.part]
    has_failed = np.zeros(state.units.n_fibres + 1, dtype=np.bool_)
    has_failed[list(state.failed_fibres)] = True
    hit[passed.circuit[has_failed[fibre]]] = True

    # A circuit that passes a dead cell is hit, or one that is stuck in another state.
    if state.cell_states is not None:
        is_broken = np.zeros(len(state.cell_states), dtype=np.bool_)  # by cell
        is_broken[list(state.dead_cells)] = True
        for cell, stuck_state in state.stuck.items():
            is_broken[cell] = stuck_state != state.cell_states[cell]
        hit[passed.circuit[is_broken[passed.part // 4]]] = True
    return Damage(
        dead_ports=frozenset(np.flatnonzero(is_dead).tolist()),
        hit=hit,
        lost=tuple(np.flatnonzero(is_lost).tolist()),
        spares=tuple(unit for unit in state.spares if n_live[unit] > 0),
    )


def _assess_racks(state: RunningState, passed: Passed) -> Damage:
    """Find which circuits do not work after failures, and which racks have to be replaced.

    This is for racks in which no light passes through a chip on its way. A circuit cannot go
    around a failure there, and racks are replaced as a whole. A rack is *lost* if a circuit uses a
    dead port or a failed fibre of it. A rack can take over if all of its chips are spares and
    nothing of it has failed.

    Parameters
    ----------
    state
        The circuits, the spare chips, and failed chips, ports and fibres; on a `RackFabric`.
    passed
        The fibres of all routes: circuit ``circuit[k]`` passes fibre ``part[k]``.

    Returns
    -------
    Damage
        With the fields

        - ``dead_ports``: ports that have failed, alone or with their chip;
        - ``hit[circuit]``: whether one of its ends is in a lost rack;
        - ``lost``: the chips of lost racks, ascending;
        - ``spares``: the chips of racks that can take over, ascending.
    """
    fabric = state.fabric
    assert isinstance(fabric, RackFabric)
    per_rack = fabric.chips_per_rack
    failed_fibres = list(state.failed_fibres)
    is_dead = np.zeros((fabric.n_chips, fabric.ports_per_chip), dtype=np.bool_)
    is_dead[list(state.failed_chips)] = True
    is_dead.reshape(-1)[list(state.failed_ports)] = True

    # Racks with a dead port that a circuit ends at, or a failed fibre that one passes, are lost.
    rack_of_port = np.arange(fabric.n_ports) // (per_rack * fabric.ports_per_chip)
    in_use = np.zeros(fabric.n_ports, dtype=np.bool_)
    in_use[state.circuits] = True
    passes_failed = np.isin(passed.part, failed_fibres)
    is_lost = np.zeros(fabric.racks, dtype=np.bool_)  # by rack
    is_lost[rack_of_port[in_use & is_dead.ravel()]] = True
    is_lost[fabric.rack_of_fibre[passed.part[passes_failed]]] = True
    hit = np.asarray(is_lost[rack_of_port[state.circuits]].any(axis=1))

    # A rack that takes over has to be all spare and all sound, also where nothing is in use.
    has_failed = np.array(is_dead.any(axis=1).reshape(-1, per_rack).any(axis=1))  # by rack
    has_failed[fabric.rack_of_fibre[failed_fibres]] = True
    is_spare = np.zeros(fabric.n_chips, dtype=np.bool_)
    is_spare[list(state.spares)] = True
    takes_over = is_spare.reshape(-1, per_rack).all(axis=1) & ~has_failed
    return Damage(
        dead_ports=frozenset(np.flatnonzero(is_dead).tolist()),
        hit=hit,
        lost=tuple(np.flatnonzero(np.repeat(is_lost, per_rack)).tolist()),
        spares=tuple(np.flatnonzero(np.repeat(takes_over, per_rack)).tolist()),
    )

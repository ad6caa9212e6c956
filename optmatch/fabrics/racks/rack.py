"""Racks of chips: servers in a grid, fibres between neighbours, perhaps switches between racks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics.cellgraph import CellGraph
from optmatch.fabrics.fabric import Ends, Fabric
from optmatch.fabrics.faults import Faulty
from optmatch.fabrics.racks.wiring import (
    Cells,
    Wiring,
    count_direct_hops,
    count_hops,
    join_cells,
    number_of,
    wire,
)
from optmatch.fabrics.reach import UNREACHED
from optmatch.model import (
    Count,
    Index,
    InputError,
    Schedule,
    brief_tuple,
    check_fields,
    check_size,
    integer,
    read_only,
)

AXES = ("x", "y", "z")


@brief_tuple
class RouteLengths(NamedTuple):
    """The length of the shortest route between each two units; arrays of shape (units, units)."""

    cells: NDArray[np.int32]
    fibres: NDArray[np.int32]
    """Both are ``UNREACHED`` where there is no route."""


@dataclass(frozen=True, slots=True, eq=False)
class RackFabric(Fabric):
    """Racks of chips on optical servers; the default is one of 4x4x4 chips, four to a server.

    A server is a block of chips on an interposer, which connects the ports of its chips and its
    fibres with one another; neighbours in the grid of servers are joined by fibres. A circuit goes
    from the transmitter of a chip's port to the receiver of another one's, over one fibre between
    each two servers on its way, and has all of it for itself. Hence its fibres, not its ports
    alone, say which circuits hold at once; questions about one switch refuse a rack.

    Chips are numbered server by server, x fastest inside a server; servers rack by rack, x fastest
    inside a rack. Port k of chip c is port ``ports_per_chip * c + k``. Fibres are numbered edge by
    edge.

    Parameters
    ----------
    chips
        How many chips a rack has along x, y and z.
    server
        How many of them one server has along x, y and z; each divides that of the rack.
    fibres
        Fibres from a server to each neighbour, and as many back. Where a ring of two servers
        closes, both ways join the same two servers, which so have twice as many.
    wrap
        Whether the last server along each axis is a neighbour of the first.
    ports_per_chip
        Transmitters of a chip; it has as many receivers.
    racks
        How many such racks there are; no fibre joins two of them, unless they are `joined`.
    interposer
        The cells inside each server: a fabric with inputs and outputs of its own. Port
        ``ports_per_chip * k + i`` of it belongs to port i of the server's k-th chip; the fibres
        that leave follow on the outputs, those that arrive on the inputs. None for an ideal
        interposer, which connects whatever is asked for.
    joined
        Whether the fibres from the ends of an axis lead to optical *inter-rack switches* instead
        of straight to the other end. There is one for each axis and place on a face, for all racks
        together. It joins any fibre that comes in to any that goes out: two racks, or the two
        faces of one. Needs `wrap` and ideal interposers.
    through
        Whether light passes servers. If not, a circuit takes one fibre, or one to an inter-rack
        switch and one from there, and a *rack* is what spares replace: where a part fails that is
        in use, all chips of its rack go to the same places of one whose chips are all spares and
        work. False needs ideal interposers.

    Raises
    ------
    InputError
        Naming the field that is out of range, or an interposer that has no cells, bidirectional
        ports, or too few of them.

    See Also
    --------
    SliceAllocation : One more slice of chips in racks.
    Reroute : A failure in a rack whose circuits run.

    Notes
    -----
    Inter-rack switches are nodes without chips, numbered after all servers: those of the x axis
    first, in each the place (i, j), the two other coordinates in the order of the axes, i fastest.
    An axis of one server has two faces like the others.

    Examples
    --------
    >>> rack = RackFabric()
    >>> rack.n_chips, rack.n_servers, rack.n_ports, rack.n_fibres
    (64, 16, 384, 768)
    >>> rack.edges[:4].tolist(), rack.edge_fibres[:4].tolist()
    ([[0, 1], [0, 2], [0, 4], [0, 12]], [16, 16, 8, 8])
    >>> pod = RackFabric(racks=2, joined=True)
    >>> pod.n_servers, pod.n_rack_switches, pod.edges[:6].tolist()
    (32, 20, [[0, 1], [0, 2], [0, 4], [0, 32], [0, 40], [0, 48]])
    """

    chips: tuple[Count, Count, Count] = (4, 4, 4)
    server: tuple[Count, Count, Count] = (2, 2, 1)
    fibres: Index = 8
    wrap: bool = True
    ports_per_chip: Count = 6
    racks: Count = 1
    interposer: Fabric | None = None
    joined: bool = False
    through: bool = field(default=True, metadata={"brief": True})
    type: ClassVar[str] = "rack"
    unit_name: ClassVar[str] = "chip"
    bidirectional: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse servers that do not fill racks, too many parts, and clashing options.

        With ``joined``, fibres lead from the faces of racks to switches between racks.
        """
        check_fields(self)
        for axis, rack_chips, server_chips in zip(AXES, self.chips, self.server, strict=True):
            if rack_chips % server_chips:
                raise InputError(
                    f"server = {server_chips} chips along {axis}: does not divide the {rack_chips}"
                    " of the rack",
                    where="server",
                )

        # Sizes are checked before any array is made.
        check_size("ports", prod(self.chips) * self.racks * self.ports_per_chip, "chips")
        check_size("fibres", 6 * prod(self.chips) * self.racks * self.fibres, "fibres")
        if self.joined and not self.wrap:
            raise InputError(
                "joined = True: needs wrap, whose fibres lead to switches", where="joined"
            )
        if self.interposer is not None:
            if self.joined:
                raise InputError("joined = True: ideal interposers only", where="joined")
            if not self.through:
                raise InputError("through = False: ideal interposers only", where="through")

            # It needs cells, inputs and outputs, and as many ports as the chips and the most
            # fibres that leave a server together.
            interposer = self.interposer
            interposer.require_switch()
            if interposer.graph is None or interposer.bidirectional:
                raise InputError(
                    "interposer: cells with inputs and outputs are expected; leave it out for an"
                    " ideal one",
                    where="interposer",
                )
            if isinstance(interposer, Faulty):
                raise InputError(
                    "interposer: one that works is expected; name cells and ports that have failed"
                    " in the reroute",
                    where="interposer",
                )
            fibres_from_server = np.zeros(self.n_servers, dtype=np.int64)
            np.add.at(fibres_from_server, self.edges[:, 0], self.edge_fibres)
            most_fibres = int(fibres_from_server.max(initial=0))
            needed = self.chips_per_server * self.ports_per_chip + most_fibres
            if interposer.n_ports < needed:
                raise InputError(
                    f"interposer: {interposer.n_ports} ports, but chips and fibres of a server"
                    f" need {needed}",
                    where="interposer",
                )

    @classmethod
    def tpu_v4(cls, cubes: int = 64) -> RackFabric:
        """Return a pod of TPU v4: cubes of 4x4x4 chips as racks, and 48 switches between them.

        No light passes a chip. After Jouppi et al. (2023),
        https://doi.org/10.1145/3579371.3589350.

        Parameters
        ----------
        cubes
            The number of cubes, from 1 on; a pod has 64.

        Examples
        --------
        >>> pod = RackFabric.tpu_v4()
        >>> pod.n_chips, pod.n_rack_switches
        (4096, 48)
        """
        return cls(server=(1, 1, 1), fibres=1, racks=cubes, joined=True, through=False)

    @property
    def chips_per_server(self) -> int:
        """The number of chips of a server."""
        return prod(self.server)

    @property
    def chips_per_rack(self) -> int:
        """The number of chips of a rack."""
        return prod(self.chips)

    @property
    def server_grid(self) -> tuple[int, int, int]:
        """How many servers a rack has along x, y and z."""
        x, y, z = np.floor_divide(self.chips, self.server).tolist()
        return x, y, z

    @property
    def n_chips(self) -> int:
        """The number of chips of all racks."""
        return self.racks * self.chips_per_rack

    @property
    def n_servers(self) -> int:
        """The number of servers of all racks."""
        return self.n_chips // self.chips_per_server

    @property
    def n_ports(self) -> int:
        """The number of ports of all chips."""
        return self.n_chips * self.ports_per_chip

    @property
    def ports_per_unit(self) -> int:
        """The number of ports of a chip."""
        return self.ports_per_chip

    @property
    def n_units(self) -> int:
        """The number of chips, which are the units that spares replace."""
        return self.n_chips

    @property
    def n_fibres(self) -> int:
        """The number of fibres between servers, each direction counted."""
        return len(self.edge_of_fibre)

    @property
    def n_rack_switches(self) -> int:
        """The number of optical switches that join racks; 0 unless they are joined."""
        return len(self._wiring.switches)

    @property
    def chip_coordinates(self) -> NDArray[np.int32]:
        """``chip_coordinates[chip] = rack, x, y, z``; int32, shape (chips, 4)."""
        return self._wiring.chips

    @property
    def server_coordinates(self) -> NDArray[np.int32]:
        """``server_coordinates[server] = rack, x, y, z`` in the grid of servers."""
        return self._wiring.servers

    @property
    def rack_switches(self) -> NDArray[np.int32]:
        """``rack_switches[k] = axis, i, j`` of node ``n_servers + k``; int32, shape (n, 3)."""
        return self._wiring.switches

    @property
    def server_of_chip(self) -> NDArray[np.int32]:
        """``server_of_chip[chip]``; int32, shape (chips,)."""
        return self._wiring.server_of_chip

    @property
    def server_of_unit(self) -> NDArray[np.int32]:
        """`server_of_chip`: the units are the chips."""
        return self.server_of_chip

    @property
    def rack_of_fibre(self) -> NDArray[np.int32]:
        """``rack_of_fibre[fibre]``: the rack of its servers; the other end may be a switch."""
        return np.repeat(np.arange(self.racks, dtype=np.int32), self.n_fibres // self.racks)

    @property
    def edges(self) -> NDArray[np.int32]:
        """``edges[edge] = node from, node to``, servers or switches; rack by rack, ascending."""
        return self._wiring.edges

    @property
    def edge_fibres(self) -> NDArray[np.int32]:
        """``edge_fibres[edge]``: how many fibres the edge has; int32, shape (edges,)."""
        return self._wiring.edge_fibres

    @property
    def edge_of_fibre(self) -> NDArray[np.int32]:
        """``edge_of_fibre[fibre]``; int32, shape (fibres,)."""
        return self._wiring.edge_of_fibre

    @property
    def graph(self) -> CellGraph | None:
        """The cells of all servers, joined by the fibres; None with ideal interposers."""
        return None if self.interposer is None else self._cells.graph

    @property
    def n_cells(self) -> int:
        """The number of cells of all servers."""
        return 0 if self.interposer is None else self.n_servers * self.interposer.n_cells

    def _ends(self) -> Ends:
        if self.interposer is None:
            return Fabric._ends(self)
        return self._cells.sources, self._cells.destinations

    @property
    def fibre_of_terminal(self) -> NDArray[np.int32]:
        """``fibre_of_terminal[terminal]``: the fibre that ends there, or -1."""
        return np.empty(0, np.int32) if self.interposer is None else self._cells.fibre_of_terminal

    def chip_at(self, x: int, y: int, z: int, rack: int = 0) -> int:
        """Return the chip at a place; coordinates beyond a side start again from 0.

        Parameters
        ----------
        x, y, z
            The place in the rack, in chips.
        rack
            The number of the rack.

        Returns
        -------
        int
            The number of the chip.

        Examples
        --------
        >>> RackFabric().chip_at(2, 0, 0), RackFabric().chip_at(-1, 0, 0)
        (4, 5)
        """
        rack, x, y, z = (
            integer("place", coordinate, at_least=None) for coordinate in (rack, x, y, z)
        )
        # Which server of the rack holds the place, and where in this server it is.
        server_place, place_in_server = np.divmod(np.mod((x, y, z), self.chips), self.server)
        servers_per_rack = self.n_servers // self.racks
        server = rack * servers_per_rack + number_of(server_place.tolist(), self.server_grid)
        return server * self.chips_per_server + number_of(place_in_server.tolist(), self.server)

    def describe_unit(self, unit: int) -> str:
        """Return the chip of a number for messages: with its rack, place there, and server.

        Examples
        --------
        >>> RackFabric().describe_unit(5)
        'chip 5 (rack 0, x 3 y 0 z 0, server 1)'
        """
        if not 0 <= integer("unit", unit, at_least=0) < self.n_chips:
            raise InputError(f"unit = {unit}: chips are 0 .. {self.n_chips - 1}", where="unit")
        rack, x, y, z = self.chip_coordinates[unit].tolist()
        return f"chip {unit} (rack {rack}, x {x} y {y} z {z}, server {self.server_of_chip[unit]})"

    def require_switch(self) -> None:
        """Raise: racks are no single switch."""
        raise InputError("fabric: one switch is expected, not racks of chips", where="fabric")

    def facts(self) -> dict[str, Any]:
        """Return how many there are of everything, by name.

        Returns
        -------
        dict
            The numbers of racks, servers, chips, ports of chips, fibres and cells; of inter-rack
            switches only if racks are joined.
        """
        return {
            "racks": self.racks,
            "servers": self.n_servers,
            "chips": self.n_chips,
            "ports": self.n_ports,
            "fibres": self.n_fibres,
            "cells": self.n_cells,
            **({"inter_rack_switches": self.n_rack_switches} if self.joined else {}),
        }

    @lru_cache(maxsize=64)  # noqa: B019 - equal racks share it
    def route_lengths(self) -> RouteLengths:
        """Count the fibres between the servers of each two chips, and the cells that they need.

        Light passes fibres from server to server, or, unless it may pass servers (``through``),
        one switch between racks at most. The lengths of the last few racks are kept.

        Returns
        -------
        RouteLengths
            With h fibres, h + 1 cells at least, or none with ideal interposers; ``UNREACHED``
            where no way leads.

        Examples
        --------
        >>> RackFabric().route_lengths().fibres[0, [1, 4, 20]].tolist()
        [0, 1, 2]
        """
        count = count_hops if self.through else count_direct_hops
        hops = count(self.n_servers + self.n_rack_switches, self.edges[self.edge_fibres > 0])
        fibres = hops[np.ix_(self.server_of_chip, self.server_of_chip)]
        cells = np.where(fibres == UNREACHED, fibres, (fibres + 1) * (self.n_cells > 0))
        return RouteLengths(read_only(cells), read_only(fibres))

    @property
    @lru_cache(maxsize=64)  # noqa: B019 - equal racks share it
    def _wiring(self) -> Wiring:
        """How chips, servers and fibres are numbered and joined; of the last few racks."""
        return wire(
            self.server_grid,
            self.server,
            racks=self.racks,
            fibres=self.fibres,
            wrap=self.wrap,
            joined=self.joined,
        )

    @property
    @lru_cache(maxsize=8)  # noqa: B019 - equal racks share it
    def _cells(self) -> Cells:
        """The cells of all servers, joined by fibres to one graph; of the last few racks."""
        interposer: Any = self.interposer
        inner = self.chips_per_server * self.ports_per_chip
        return join_cells(interposer, inner, self.server_grid[0], self._wiring)


def fibres_of_switch(rack: RackFabric, switch: int, port: int | None = None) -> tuple[int, ...]:
    """List the fibres that fail with an inter-rack switch, or with one of its ports.

    Parameters
    ----------
    rack
        Joined racks: switches between them join their faces.
    switch
        The number of the inter-rack switch, a row of ``rack.rack_switches``.
    port
        Its input and output of this number; None for all. They count rack by rack, in each the
        fibres of the low face first.

    Returns
    -------
    tuple of int
        The numbers of the fibres that arrive or leave there, ascending.

    Raises
    ------
    InputError
        If there is no such switch or port.

    Examples
    --------
    Cube 3 sits at ports 6 (its low face) and 7 of each switch:

    >>> pod = RackFabric.tpu_v4()
    >>> len(fibres_of_switch(pod, 0)), fibres_of_switch(pod, 0, port=6)
    (256, (1443, 1824))
    """
    switch = _check_number("switch", switch, rack.n_rack_switches)
    inputs, outputs = _ports(rack, switch)
    if port is not None:
        place = _check_number("port", port, len(inputs))
        inputs = inputs[[place]]
        outputs = outputs[[place]]
    return tuple(sorted([*inputs.tolist(), *outputs.tolist()]))


def switch_schedules(rack: RackFabric, uses: ArrayLike) -> tuple[Schedule, ...]:
    """Return which input each switch between racks connects to which output, as a schedule.

    A circuit passes fibres one after the other. Where it arrives at a switch by one fibre and
    leaves it by the next one, the switch has to connect the two. Circuits stay, so that there is
    one slot.

    Parameters
    ----------
    rack
        Joined racks: switches between them join their faces.
    uses
        ``uses[use] = circuit, fibre``, of each circuit in the order of its light; circuits of
        several slices one after the other. Shape (uses, 2).

    Returns
    -------
    tuple of Schedule
        One for each switch; ``matchings[0, input] = output``, -1 where idle. Inputs and outputs of
        a switch are the fibres that arrive and that leave, in the order of their numbers. The slot
        lasts 1 s.
    """
    circuit, fibre = np.asarray(uses, dtype=np.int64).reshape(-1, 2).T
    # Light goes on from one use to the next where both are of one circuit.
    continued = np.flatnonzero(circuit[1:] == circuit[:-1])
    schedules = []
    for switch in range(rack.n_rack_switches):
        inputs, outputs = _ports(rack, switch)
        # A circuit enters the switch by one fibre and leaves it by the next of its uses.
        entering = continued[np.isin(fibre[continued], inputs)]
        input_place = np.searchsorted(inputs, fibre[entering])
        output_place = np.searchsorted(outputs, fibre[entering + 1])
        matching = np.full((1, len(inputs)), -1, dtype=np.int32)
        matching[0, input_place] = output_place
        schedules.append(Schedule(matchings=matching, durations_s=np.ones(1), delay_s=0.0))
    return tuple(schedules)


def _check_number(name: str, value: int, count: int) -> int:
    """Return a number from 0 to count - 1, or raise `InputError`."""
    number = integer(name, value, at_least=0)
    if number >= count:
        raise InputError(f"{name} = {number}: there are {count}", where=name)
    return number


def _ports(rack: RackFabric, switch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the fibres of the inputs and of the outputs of a switch, ascending."""
    tails, heads = rack.edges[rack.edge_of_fibre].T
    node = rack.n_servers + switch
    return np.flatnonzero(heads == node), np.flatnonzero(tails == node)

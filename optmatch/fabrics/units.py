"""What spares replace: chips of a rack, on servers that fibres join, or ports of a switch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.fabric import Fabric
from optmatch.fabrics.racks.rack import RackFabric, RouteLengths
from optmatch.fabrics.reach import UNREACHED


class Units(Protocol):
    """Units in servers, and the fibres between the servers; a rack says so of itself.

    A *unit* is what a spare replaces: one chip of a rack with all its ports, or one port of a
    switch. Port p belongs to unit ``p // ports_per_unit``.
    """

    @property
    def unit_name(self) -> str:
        """What a unit is called, in messages and in the names of fields: "chip" or "port"."""

    @property
    def ports_per_unit(self) -> int:
        """The number of ports of a unit."""

    @property
    def n_units(self) -> int:
        """The number of units."""

    @property
    def n_chips(self) -> int:
        """The number of chips; 0 for a switch."""

    @property
    def racks(self) -> int:
        """The number of racks, all alike; 1 for a switch."""

    @property
    def through(self) -> bool:
        """Whether light passes servers; if not, whole racks are replaced."""

    @property
    def n_servers(self) -> int:
        """The number of servers."""

    @property
    def n_fibres(self) -> int:
        """The number of fibres between servers, each direction counted."""

    @property
    def server_of_unit(self) -> NDArray[np.int32]:
        """``server_of_unit[unit]``; int32, shape (units,)."""

    @property
    def edges(self) -> NDArray[np.int32]:
        """``edges[edge] = node from, node to``: neighbours; int32, shape (edges, 2)."""

    @property
    def edge_fibres(self) -> NDArray[np.int32]:
        """``edge_fibres[edge]``: how many fibres the edge has; int32, shape (edges,)."""

    @property
    def edge_of_fibre(self) -> NDArray[np.int32]:
        """``edge_of_fibre[fibre]``; int32, shape (fibres,)."""

    @property
    def rack_of_fibre(self) -> NDArray[np.int32]:
        """``rack_of_fibre[fibre]``: the rack of its servers."""

    @property
    def fibre_of_terminal(self) -> NDArray[np.int32]:
        """``fibre_of_terminal[terminal]``: the fibre whose light enters there, or -1."""

    def describe_unit(self, unit: int) -> str:
        """Return a unit for messages."""

    def route_lengths(self) -> RouteLengths:
        """Count the cells and fibres on the shortest route between each two units."""


@dataclass(frozen=True)
class PortUnits:
    """The ports of a switch as units, in one server without fibres; see `Units`."""

    fabric: Fabric
    unit_name = "port"
    ports_per_unit = 1
    n_chips = 0
    n_servers = 1
    n_fibres = 0
    racks = 1
    through = True

    @property
    def n_units(self) -> int:
        """The number of ports."""
        return self.fabric.n_ports

    @property
    def server_of_unit(self) -> NDArray[np.int32]:
        """The one server, 0, for each port."""
        return np.zeros(self.fabric.n_ports, dtype=np.int32)

    @property
    def edges(self) -> NDArray[np.int32]:
        """No edges: shape (0, 2)."""
        return np.empty((0, 2), dtype=np.int32)

    @property
    def edge_fibres(self) -> NDArray[np.int32]:
        """No edges: shape (0,)."""
        return np.empty(0, dtype=np.int32)

    @property
    def edge_of_fibre(self) -> NDArray[np.int32]:
        """No fibres: shape (0,)."""
        return np.empty(0, dtype=np.int32)

    @property
    def rack_of_fibre(self) -> NDArray[np.int32]:
        """No fibres: shape (0,)."""
        return np.empty(0, dtype=np.int32)

    @property
    def fibre_of_terminal(self) -> NDArray[np.int32]:
        """A fibre at no terminal: -1 for each."""
        return np.full(4 * self.fabric.n_cells, -1, dtype=np.int32)

    def describe_unit(self, unit: int) -> str:
        """Return a port for messages, with its terminals."""
        return self.fabric.describe_port(unit)

    def route_lengths(self) -> RouteLengths:
        """Count the cells between each two ports, as `route_cells`; there are no fibres."""
        cells = self.fabric.route_cells()
        return RouteLengths(cells, np.where(cells == UNREACHED, cells, 0))


UNITS_PER_DB = 100
"""Losses of routes are compared in hundredths of a dB."""


def stated_losses(units: Units) -> NDArray[np.int64] | None:
    """Return how much light each circuit loses, where a fabric states that for whole circuits.

    Only an ideal switch may state it. In all other fabrics, the loss is that of the cells (2 x 2
    switches) and fibres on the way.

    Parameters
    ----------
    units
        The units that circuits join: ports of a fabric, or chips of racks.

    Returns
    -------
    NDArray or None
        ``loss[source, destination]`` in hundredths of a dB, rounded; int64, shape (units, units).
        ``UNREACHED`` for circuits that lose too much to be used. None if no losses are stated.
    """
    if not isinstance(units, PortUnits) or units.fabric.circuit_loss_db is None:
        return None
    loss = np.rint(UNITS_PER_DB * units.fabric.circuit_loss_db).astype(np.int64)
    loss[units.fabric.route_cells() == UNREACHED] = UNREACHED
    return loss


def units_of(fabric: Fabric) -> Units:
    """Return the chips of a rack, or the ports of a switch, as units."""
    return fabric if isinstance(fabric, RackFabric) else PortUnits(fabric)

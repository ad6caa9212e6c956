"""Units that spares replace: chips of a rack, on servers that fibres join, or switch ports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.fabric import Fabric
from optmatch.fabrics.racks.rack import RackFabric, RouteLengths
from optmatch.fabrics.reach import UNREACHED


@dataclass(frozen=True)
class PortUnits:
    """The ports of a switch as units, in one server without fibres."""

    fabric: Fabric
    unit_name = "port"
    ports_per_unit = 1
    n_chips = 0
    n_servers = 1
    n_fibres = 0
    racks = 1
    through = True
    edges: ClassVar[NDArray[np.int32]] = np.empty((0, 2), dtype=np.int32)
    edge_fibres: ClassVar[NDArray[np.int32]] = np.empty(0, dtype=np.int32)
    edge_of_fibre: ClassVar[NDArray[np.int32]] = np.empty(0, dtype=np.int32)
    rack_of_fibre: ClassVar[NDArray[np.int32]] = np.empty(0, dtype=np.int32)

    @property
    def n_units(self) -> int:
        """The number of ports."""
        return self.fabric.n_ports

    @property
    def server_of_unit(self) -> NDArray[np.int32]:
        """The one server, 0, for each port."""
        return np.zeros(self.fabric.n_ports, dtype=np.int32)

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


Units = RackFabric | PortUnits
"""Units in servers, and the fibres between the servers; a rack says so of itself.

A *unit* is what a spare replaces: one chip of a rack with all its ports, or one port of a switch.
Port p belongs to unit ``p // ports_per_unit``.
"""

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
        The direction that loses more counts between bidirectional ports.
        ``UNREACHED`` for circuits that lose too much to be used. None if no losses are stated.
    """
    if not isinstance(units, PortUnits) or units.fabric.circuit_loss_db is None:
        return None
    loss = np.rint(UNITS_PER_DB * units.fabric.circuit_loss_db).astype(np.int64)
    if units.fabric.bidirectional:
        loss = np.maximum(loss, loss.T)
    loss[units.fabric.route_cells() == UNREACHED] = UNREACHED
    return loss


def units_of(fabric: Fabric) -> Units:
    """Return the chips of a rack, or the ports of a switch, as units."""
    return fabric if isinstance(fabric, RackFabric) else PortUnits(fabric)

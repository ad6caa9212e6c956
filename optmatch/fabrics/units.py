"""Units that spares replace: chips of a rack, on servers that fibres join, or switch ports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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


class Reach(NamedTuple):
    """How far it is from unit to unit if nothing is in the way: no route is shorter.

    Both arrays have the shape (units, units), ``[source, destination]``, and `UNREACHED` where
    there is no route.
    """

    loss: NDArray[np.int64]
    """The least loss, in hundredths of a dB."""
    length: NDArray[np.int32]
    """The fewest cells and fibres."""
    is_stated: bool
    """Whether an ideal switch states the losses: then each circuit has the one that is here."""


def measure_reach(units: Units, loss_units: tuple[int, int]) -> Reach:
    """Find the least loss, and the fewest cells and fibres, between all units.

    An ideal switch may state the losses of circuits, of which the direction that loses more counts
    between bidirectional ports. In all other fabrics a route loses what its cells and fibres do.

    Parameters
    ----------
    units
        The units that circuits join: ports of a fabric, or chips of racks.
    loss_units
        The loss of a cell and of a fibre, in hundredths of a dB.
    """
    cells, fibres = units.route_lengths()
    cell_loss, fibre_loss = loss_units
    length = cells + fibres
    loss = cells * np.int64(cell_loss) + fibres * np.int64(fibre_loss)
    fabric = units.fabric if isinstance(units, PortUnits) else units
    stated_db = fabric.circuit_loss_db
    if stated_db is not None:
        loss = np.rint(UNITS_PER_DB * stated_db).astype(np.int64)
        if fabric.bidirectional:
            loss = np.maximum(loss, loss.T)

    # Two ports that lose too much to be used have no route, either.
    is_unreached = np.maximum(cells, fibres) >= UNREACHED
    loss[is_unreached] = length[is_unreached] = UNREACHED
    return Reach(loss, length, stated_db is not None)


def units_of(fabric: Fabric) -> Units:
    """Return the chips of a rack, or the ports of a switch, as units."""
    return fabric if isinstance(fabric, RackFabric) else PortUnits(fabric)

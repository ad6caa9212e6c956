"""Some ports of a fabric as a fabric of their own, with all of its cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.cellgraph import CellGraph
from optmatch.fabrics.fabric import Fabric


@dataclass(frozen=True, slots=True, eq=False)
class SelectedPorts(Fabric):
    """Some live ports of a fabric, numbered from 0 in the order given; files never have it.

    Parameters
    ----------
    fabric
        The whole fabric.
    chosen
        Its ports that are kept.

    Examples
    --------
    >>> from optmatch.fabrics import Benes
    >>> some = SelectedPorts(Benes(8), (5, 2))
    >>> some.n_ports, some.n_cells, some.source_terminals.tolist()
    (2, 20, [9, 4])
    """

    fabric: Fabric
    chosen: tuple[int, ...]
    type: ClassVar[str] = "selected-ports"

    @property
    def n_ports(self) -> int:
        """The number of ports that are kept."""
        return len(self.chosen)

    @property
    def bidirectional(self) -> bool:
        """As of the whole fabric."""
        return self.fabric.bidirectional

    @property
    def graph(self) -> CellGraph | None:
        """All cells."""
        return self.fabric.graph

    @property
    def port_names(self) -> tuple[str, ...]:
        """As in the whole fabric."""
        names = self.fabric.port_names
        return tuple(names[port] for port in self.chosen)

    @property
    def source_terminals(self) -> NDArray[np.int32]:
        """``source_terminals[port]``: where light from this port enters."""
        return self._choose(self.fabric.source_terminals)

    @property
    def destination_terminals(self) -> NDArray[np.int32]:
        """``destination_terminals[port]``: where light to this port leaves."""
        return self._choose(self.fabric.destination_terminals)

    def _choose(self, terminals: NDArray[np.int32]) -> NDArray[np.int32]:
        return terminals[list(self.chosen)] if len(terminals) else terminals

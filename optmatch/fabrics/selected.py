"""Some ports of a fabric as a fabric of their own, with all of its cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from optmatch.fabrics.cellgraph import CellGraph
from optmatch.fabrics.fabric import Ends, Fabric


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

    def _ends(self) -> Ends:
        ends = self.fabric.source_terminals, self.fabric.destination_terminals
        return ends if self.graph is None else (ends[0][[*self.chosen]], ends[1][[*self.chosen]])

"""Feed-forward fabrics: light enters on the left, passes column after column, leaves on the right.

All have n inputs and n outputs of their own. A cell that splits or joins only (1x2 or 2x1) is a
2x2 cell with a terminal that stays free.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from optmatch.fabrics.cellgraph import CellGraph
from optmatch.fabrics.fabric import Ends, Fabric
from optmatch.fabrics.feedforward.columns import ColumnBuilder, Columns
from optmatch.model import Range, check_fields, check_size

Blocking = Literal["rearrangeable", "wide-sense", "strict-sense"]


@dataclass(frozen=True, slots=True, eq=False)
class FeedForward(Fabric):
    """A fabric of n inputs and n outputs; subclasses say how its cells are wired."""

    n: Annotated[int, Range(2)]
    bidirectional: ClassVar[bool] = False
    blocking: ClassVar[Blocking]
    """What holds any permutation: ``"rearrangeable"`` if circuits in use may have to move for a
    new one, ``"wide-sense"`` if none moves as long as routes are chosen by the rule of the fabric,
    ``"strict-sense"`` if none ever has to."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_size("cells", type(self).most_cells(self.n), "n")

    @staticmethod
    def most_cells(n: int) -> int:
        """Bound the number of cells by that of ports, before any is built."""
        return n * n

    @property
    def n_ports(self) -> int:
        """The number of ports: port k is input k and output k."""
        return self.n

    @property
    def graph(self) -> CellGraph:
        """The cells and how they join; end a of each looks to the left."""
        return _wired(self).graph

    @property
    def n_stages(self) -> int:
        """The number of columns of cells, which is the most cells that any route passes."""
        return _wired(self).count

    @property
    def port_names(self) -> tuple[str, ...]:
        """Input and output, as ``"in 3>out 3"``."""
        return tuple(f"in {port}>out {port}" for port in range(self.n))

    def _ends(self) -> Ends:
        return _wired(self).sources, _wired(self).destinations

    @staticmethod
    @abstractmethod
    def _wire(builder: ColumnBuilder, n: int) -> list[int]:
        """Place all cells; return the wires of the outputs."""


@lru_cache(maxsize=64)
def _wired(fabric: FeedForward) -> Columns:
    builder = ColumnBuilder(fabric.n)
    return builder.finish(fabric._wire(builder, fabric.n))

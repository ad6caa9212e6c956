"""The ideal switch: every matching of its ports, and no cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from optmatch.fabrics.fabric import Fabric
from optmatch.model import Count, check_fields, check_size


@dataclass(frozen=True, slots=True, eq=False)
class IdealSwitch(Fabric):
    """A switch of n inputs and n outputs that realises every partial permutation.

    Parameters
    ----------
    n
        The number of ports, at least 1.

    See Also
    --------
    HexMesh : A mesh of cells, where routes have to be found.
    Crossbar : Any matching, with cells.

    Examples
    --------
    >>> IdealSwitch(4).n_ports, IdealSwitch(4).n_cells
    (4, 0)
    """

    n: Count
    type: ClassVar[str] = "ideal-switch"
    bidirectional: ClassVar[bool] = False
    graph: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_size("ports", self.n, "n")

    @property
    def n_ports(self) -> int:
        """The number of ports."""
        return self.n

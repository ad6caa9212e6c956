"""The ideal switch: every matching of its ports, and no cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from optmatch.fabrics.fabric import Fabric
from optmatch.model import Count, InputError, check_fields, check_size


@dataclass(frozen=True, slots=True, eq=False)
class IdealSwitch(Fabric):
    """A switch of n inputs and n outputs that realises every partial permutation.

    Parameters
    ----------
    n
        The number of ports, at least 1.
    names
        What the ports are called, each once; None: by their numbers.

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
    names: tuple[str, ...] | None = field(default=None, repr=False, metadata={"brief": True})
    type: ClassVar[str] = "ideal-switch"
    bidirectional: ClassVar[bool] = False
    graph: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_size("ports", self.n, "n")
        if self.names is not None and not self.n == len(self.names) == len(set(self.names)):
            raise InputError(f"names: {self.n} different ones, one for each port", where="names")

    @property
    def n_ports(self) -> int:
        """The number of ports."""
        return self.n

    @property
    def port_names(self) -> tuple[str, ...]:
        """The names that were given, or the numbers of the ports."""
        return self.names or tuple(map(str, range(self.n)))

    def describe_port(self, port: int) -> str:
        """Return a port for messages, by its name if it has one."""
        return f"port {port}" if self.names is None else f"port {port} ({self.names[port]})"

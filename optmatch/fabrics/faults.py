"""Fabrics with faults, cells or ports, and fabrics of some ports of another one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.cellgraph import DEAD, CellGraph, check_parts
from optmatch.fabrics.fabric import Ends, Fabric, number_names
from optmatch.model import BAR, CROSS, FREE, CellDevice, InputError, check_fields
from optmatch.model.declarations import Label, form_of

FaultKind = Literal["stuck-bar", "stuck-cross", "dead-cell", "dead-port"]

STATES: dict[str, int] = {"stuck-bar": BAR, "stuck-cross": CROSS, "dead-cell": DEAD}
"""The numbers in `CellGraph.stuck`, by kind of fault."""

_FIELDS = dict(
    zip(get_args(FaultKind), ("stuck_bar", "stuck_cross", "dead_cells", "dead_ports"), strict=True)
)
_WORDS = {
    "stuck-bar": "cell {} stuck in bar",
    "stuck-cross": "cell {} stuck in cross",
    "dead-cell": "dead cell {}",
    "dead-port": "dead port {}",
}


class Fault(NamedTuple):
    """The kind of a fault, and the number of its cell or port.

    Examples
    --------
    >>> print(Fault("stuck-bar", 12))
    cell 12 stuck in bar
    """

    kind: FaultKind
    place: int
    """The cell, or the port."""

    def __str__(self) -> str:
        return _WORDS[self.kind].format(self.place)

    def named_on(self, fabric: Fabric) -> str:
        """Write the fault with the name that a netlist gives its cell or port, else its number."""
        is_port = self.kind == "dead-port"
        name = fabric.name_port(self.place) if is_port else fabric.cell_names[self.place]
        return _WORDS[self.kind].format(name)


@dataclass(frozen=True, slots=True, eq=False)
class Faulty(Fabric):
    """A fabric of which some cells and ports are broken; ports and cells keep their numbers.

    A stuck cell leads light as its state does, whatever it is told; a dead one leads none. A dead
    port takes part in no circuit: an all-to-all is one of the live ports, and other problems may
    not use it. A port at a dead cell is not a dead port: it still wants its circuits, and cannot
    have them, unless it is listed too.

    Parameters
    ----------
    fabric
        The fabric without faults.
    stuck_bar, stuck_cross, dead_cells
        Cells that are broken in this way, by number or name; each cell in one list at most.
    dead_ports
        Ports that are out of use, by number or name.

    Raises
    ------
    InputError
        If a cell or port does not exist or is listed twice, or `fabric` has faults itself.

    See Also
    --------
    study_yield : Faulty fabrics: which circuits chips with random faults can still carry.
    Reroute : A failure while circuits run.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> mesh = Faulty(HexMesh(2, 2, ports=4), stuck_bar=[3], dead_ports=[2])
    >>> mesh.n_ports, mesh.live_ports.tolist(), [str(fault) for fault in mesh.faults]
    (4, [0, 1, 3], ['cell 3 stuck in bar', 'dead port 2'])
    >>> from optmatch.fabrics import IdealSwitch
    >>> Faulty(IdealSwitch(2, names=("rack-1", "rack-2")), dead_ports=["rack-2"]).dead_ports
    (1,)
    """

    fabric: Fabric
    stuck_bar: Sequence[Label] = ()
    stuck_cross: Sequence[Label] = ()
    dead_cells: Sequence[Label] = ()
    dead_ports: Sequence[Label] = ()
    type: ClassVar[str] = "faulty"

    def __post_init__(self) -> None:
        """Check that the faults are of parts of the fabric, and sort them.

        A cell has at most one of the faults stuck in bar, stuck in cross, and dead. A fabric with
        faults inside a fabric with faults is refused.
        """
        form_of(Fabric).check("fabric", self.fabric)
        for name in ("stuck_bar", "stuck_cross", "dead_cells"):
            self._set(**{name: number_names(self.fabric.find_cell, getattr(self, name))})
        self._set(dead_ports=number_names(self.fabric.find_port, self.dead_ports))
        check_fields(self)
        if isinstance(self.fabric, Faulty):
            raise InputError("a fabric with faults has no further ones: list all", where="fabric")
        self.fabric.require_switch()
        taken: dict[int, str] = {}
        for name in ("stuck_bar", "stuck_cross", "dead_cells"):
            cells = check_parts(name, getattr(self, name), self.fabric.n_cells, "cells", taken)
            self._set(**{name: tuple(sorted(cells))})
        ports = check_parts("dead_ports", self.dead_ports, self.fabric.n_ports, "ports")
        self._set(dead_ports=tuple(sorted(ports)))

    @classmethod
    def of(cls, fabric: Fabric, faults: Iterable[Fault]) -> Faulty:
        """Break a fabric in the given ways.

        Parameters
        ----------
        fabric
            A switch without faults.
        faults
            Each a kind (``stuck-bar``, ``stuck-cross``, ``dead-cell`` or ``dead-port``) and the
            number of the cell or port.

        Examples
        --------
        >>> from optmatch.fabrics import HexMesh
        >>> Faulty.of(HexMesh(1, 1), [Fault("dead-cell", 4), Fault("dead-cell", 2)]).dead_cells
        (2, 4)
        """
        places: dict[str, list[int]] = {name: [] for name in _FIELDS.values()}
        faults = form_of(tuple[Fault, ...]).check("faults", faults)
        for fault in faults:
            places[_FIELDS[fault.kind]].append(fault.place)
        return cls(fabric, **places)

    def repaired(self, left: Iterable[Fault]) -> Faulty:
        """Repair all cells but those of the faults that are left; dead ports stay.

        Parameters
        ----------
        left
            The faults of cells that stay.

        Examples
        --------
        >>> from optmatch.fabrics import HexMesh
        >>> mesh = Faulty(HexMesh(1, 1), stuck_bar=[3, 4], dead_ports=[2])
        >>> [str(fault) for fault in mesh.repaired([Fault("stuck-bar", 4)]).faults]
        ['cell 4 stuck in bar', 'dead port 2']
        """
        ports = (fault for fault in self.faults if fault.kind == "dead-port")
        return Faulty.of(self.fabric, [*left, *ports])

    @property
    def intact(self) -> Fabric:
        """The fabric without its faults."""
        return self.fabric

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All faults, by kind and place."""
        return tuple(
            Fault(kind, place) for kind, name in _FIELDS.items() for place in getattr(self, name)
        )

    @property
    def title(self) -> str:
        """The name of the fabric without faults, and how many it has."""
        count = len(self.faults)
        return f"{self.fabric.title} with {count} fault{'s' * (count != 1)}"

    @property
    def n_ports(self) -> int:
        """The number of ports, the dead ones too."""
        return self.fabric.n_ports

    @property
    def bidirectional(self) -> bool:
        """Whether a circuit occupies both its ports in both directions."""
        return self.fabric.bidirectional

    @property
    @lru_cache(maxsize=64)  # noqa: B019 - equal fabrics share it
    def graph(self) -> CellGraph | None:
        """The cells, with their faults; dead ones are joined to nothing. The last few are kept."""
        graph = self.fabric.graph
        if graph is None:
            return None
        stuck = np.full(graph.n_cells, FREE, dtype=np.int8)
        for fault in self.faults:
            if fault.kind in STATES:
                stuck[fault.place] = STATES[fault.kind]
        return break_cells(graph, stuck)

    @property
    def port_names(self) -> tuple[str, ...]:
        """The names of all ports."""
        return self.fabric.port_names

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each port where somebody gave one, else its number."""
        return self.fabric.labels

    @property
    def circuit_loss_db(self) -> NDArray[np.float64] | None:
        """The loss of each circuit of the fabric without faults, in dB."""
        return self.fabric.circuit_loss_db

    @property
    def circuit_budget_db(self) -> NDArray[np.float64] | None:
        """The most that each circuit may lose, as of the fabric without faults, in dB."""
        return self.fabric.circuit_budget_db

    @property
    def sender_names(self) -> tuple[str, ...]:
        """The names of the ports where light comes in."""
        return self.fabric.sender_names

    @property
    def receiver_names(self) -> tuple[str, ...]:
        """The names of the ports where light goes out."""
        return self.fabric.receiver_names

    def _ends(self) -> Ends:
        return self.fabric.source_terminals, self.fabric.destination_terminals


def close_weak_cells(fabric: Fabric, cells: CellDevice, min_extinction_db: float) -> Fabric:
    """Mark cells that leak too much as faulty, so that no circuit uses the state that leaks.

    A cell is a 2 x 2 switch with two states, bar and cross. Its *extinction* in a state is the
    power at the wanted output over that at the other one; a state leaks too much if this is below
    the limit. Then the cell is marked as follows:

    - bar leaks too much: stuck in cross;
    - cross leaks too much: stuck in bar;
    - both do: dead, no light passes.

    Cells that have a fault already stay as they are.

    Parameters
    ----------
    fabric
        A switch, which may have faults.
    cells
        The device of each of its cells.
    min_extinction_db
        The least extinction of a state that is of use, in dB.

    Returns
    -------
    Fabric
        The switch with the faults that it had and the new ones; the same object if it has none.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> from optmatch.model import CellDevice
    >>> cells = CellDevice.of("smartlight", 6, {2: {"cross_extinction_db": 12.0}})
    >>> [str(fault) for fault in close_weak_cells(HexMesh(1, 1), cells, 20.0).faults]
    ['cell 2 stuck in bar']
    """
    faults = list(fabric.faults)
    broken = {fault.place for fault in faults if fault.kind != "dead-port"}
    # By which states leak: bar alone (1), cross alone (2), or both (3), less one.
    kinds: tuple[FaultKind, ...] = ("stuck-cross", "stuck-bar", "dead-cell")
    bar = cells.bar_extinction_db < min_extinction_db
    cross = cells.cross_extinction_db < min_extinction_db
    for cell in np.flatnonzero(bar | cross).tolist():
        if cell not in broken:
            faults.append(Fault(kinds[int(bar[cell]) + 2 * int(cross[cell]) - 1], cell))
    return Faulty.of(fabric.intact, faults) if faults else fabric


def break_cells(graph: CellGraph, stuck: NDArray[np.int8]) -> CellGraph:
    """Return a graph in which some cells are stuck, or dead and cut off.

    The terminals are the same; those that were joined to a dead cell are free, and come last in
    the perimeter.

    Parameters
    ----------
    graph
        The cells and their joins.
    stuck
        ``stuck[cell]``: -1 (`FREE`) for a cell that works, `BAR` or `CROSS` for one that stays in
        that state, `DEAD` for one that carries no light; int8, shape (cells,).

    Returns
    -------
    CellGraph
        The same cells at the same places, with fewer joins and a longer perimeter.

    Examples
    --------
    >>> from optmatch.fabrics import SquareMesh
    >>> graph = SquareMesh(1, 1).graph
    >>> broken = break_cells(graph, np.array([DEAD, FREE, FREE, FREE], dtype=np.int8))
    >>> len(graph.perimeter), len(broken.perimeter)
    (8, 12)
    """
    # Dead cells lose all their joins, and their neighbours those with them.
    mate = graph.mate.copy()
    dead_terminals = np.flatnonzero(np.repeat(stuck == DEAD, 4))
    neighbours = mate[dead_terminals]
    cut = np.union1d(dead_terminals, neighbours[neighbours >= 0])
    mate[cut] = -1
    new = np.setdiff1d(np.flatnonzero(mate < 0), graph.perimeter)
    perimeter = np.concatenate([graph.perimeter, new]).astype(np.int32)
    return replace(graph, mate=mate, perimeter=perimeter, stuck=stuck)


@dataclass(frozen=True, slots=True, eq=False)
class SelectedPorts(Fabric):
    """Some live ports of a fabric, numbered from 0 in the order given; files never have it.

    Parameters
    ----------
    fabric
        The whole fabric.
    chosen
        The ports of the fabric that are kept.

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
        """Whether ports of the whole fabric are bidirectional."""
        return self.fabric.bidirectional

    @property
    def graph(self) -> CellGraph | None:
        """All cells."""
        return self.fabric.graph

    @property
    def port_names(self) -> tuple[str, ...]:
        """The names of the chosen ports in the whole fabric."""
        names = self.fabric.port_names
        return tuple(names[port] for port in self.chosen)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names that somebody gave to the chosen ports, else their numbers here.

        A fabric whose labels are just 0, 1, ... has no names; its chosen ports count from 0 again.
        """
        labels = self.fabric.labels
        numbers = tuple(str(port) for port in range(self.fabric.n_ports))
        if labels == numbers:
            return numbers[: self.n_ports]
        return tuple(labels[port] for port in self.chosen)

    @property
    def circuit_loss_db(self) -> NDArray[np.float64] | None:
        """The loss of each circuit between chosen ports, in dB."""
        return self._between_chosen(self.fabric.circuit_loss_db)

    @property
    def circuit_budget_db(self) -> NDArray[np.float64] | None:
        """The most that each circuit between chosen ports may lose, in dB."""
        return self._between_chosen(self.fabric.circuit_budget_db)

    def _between_chosen(self, matrix: NDArray[Any] | None) -> NDArray[Any] | None:
        """Return the rows and columns of the chosen ports; None has none."""
        return None if matrix is None else matrix[np.ix_(self.chosen, self.chosen)]

    def _ends(self) -> Ends:
        ends = self.fabric.source_terminals, self.fabric.destination_terminals
        return ends if self.graph is None else (ends[0][[*self.chosen]], ends[1][[*self.chosen]])

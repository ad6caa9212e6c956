"""The base of all fabrics: ports, and for most a graph of cells with a terminal for each port."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics.cellgraph import CellGraph
from optmatch.fabrics.reach import UNREACHED, shortest_routes, walk
from optmatch.model import (
    FREE,
    IDLE,
    Amount,
    Axes,
    Count,
    GivenOrNone,
    InputError,
    Range,
    SolverUnavailable,
    Value,
    check_fields,
    check_size,
    given,
    integer,
    read_only,
)
from optmatch.model.declarations import form_of
from optmatch.model.numbers import plain_array

_MOST_NAMES = 8  # of cells or ports, in a message

Ends = tuple[NDArray[np.int32], NDArray[np.int32]]


class Fabric(Value):
    """The ports of a fabric, and how light gets from one to another.

    Subclasses are frozen data classes whose fields are what a file says of them. Ports are
    *bidirectional* (one terminal each; a matching is an involution) or have an input and an output
    (a matching is a partial permutation).

    See Also
    --------
    IdealSwitch : Any matching, no cells.
    HexMesh : A recirculating mesh.
    FeedForward : Fabrics with inputs on the left and outputs on the right.
    RackFabric : Chips on servers that are joined by fibres.

    Examples
    --------
    >>> import optmatch as om
    >>> fabric = om.Benes(8)
    >>> fabric.n_ports, fabric.n_cells, fabric.bidirectional
    (8, 20, False)
    """

    __slots__ = ("_hash",)
    type: ClassVar[str]
    _hash: int

    def __hash__(self) -> int:
        """Return the hash of all fields, which is computed once."""
        try:  # caches of what fabrics have ask for it again and again
            return self._hash
        except AttributeError:
            self._set(_hash=super().__hash__())
            return self._hash

    @property
    @abstractmethod
    def n_ports(self) -> int:
        """The number of ports."""

    @property
    @abstractmethod
    def bidirectional(self) -> bool:
        """Whether a circuit occupies both its ports in both directions."""

    @property
    @abstractmethod
    def graph(self) -> CellGraph | None:
        """The cells; None for a switch that realises any matching by itself."""

    @property
    def n_cells(self) -> int:
        """The number of 2x2 cells."""
        return 0 if self.graph is None else self.graph.n_cells

    @property
    def port_names(self) -> tuple[str, ...]:
        """A name for each port."""
        return tuple(str(port) for port in range(self.n_ports))

    @property
    def cell_names(self) -> tuple[str, ...]:
        """A name for each cell: its number, or the name that a netlist gives it."""
        graph = self.graph
        if graph is None or graph.names is None:
            return tuple(str(cell) for cell in range(self.n_cells))
        return graph.names

    @property
    def sender_names(self) -> tuple[str, ...]:
        """The name of each port where its light comes in: of ``"in 3>out 3"`` the first part."""
        return tuple(name.split(">")[0] for name in self.port_names)

    @property
    def receiver_names(self) -> tuple[str, ...]:
        """The name of each port where light to it goes out: of ``"in 3>out 3"`` the last part."""
        return tuple(name.split(">")[-1] for name in self.port_names)

    def name_port(self, port: int, *, receives: bool = False) -> str:
        """Return a port for messages: the name that a netlist gives it, or its number."""
        if self.graph is None or self.graph.names is None:
            return str(port)
        return (self.receiver_names if receives else self.sender_names)[port]

    def find_cell(self, label: str | int) -> int:
        """Return the number of a cell by its name, or by its number.

        Parameters
        ----------
        label
            The name of the cell, or its number as a whole number or as text; names go first.

        Raises
        ------
        InputError
            If no cell has this name, and it is no number.

        Examples
        --------
        >>> from optmatch.fabrics import Netlist
        >>> one = Netlist(["m"], {}, [("w", "m,a1"), ("e", "m,b1")], open_pins=["m,a2", "m,b2"])
        >>> one.find_cell("m"), one.find_cell("0"), one.find_port("e")
        (0, 0, 1)
        """
        return _find("cell", label, [self.cell_names])

    def find_port(self, label: str | int, *, receives: bool = False) -> int:
        """Return the number of a port by its name, or by its number.

        Parameters
        ----------
        label
            The name of the port; where light comes in and goes out at two places, as
            ``"in 3>out 3"``, one of both names is enough.
        receives
            Whether the name is that of a destination alone, where both places have names.

        Raises
        ------
        InputError
            If no port has this name, and it is no number.
        """
        form_of(bool).check("receives", receives)
        lists = [self.sender_names, self.port_names, self.labels, self.receiver_names]
        if receives:
            lists = [self.receiver_names, self.port_names, self.labels]
        return _find("port", label, lists)

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each port where somebody gave one, else its number: for tables and axes."""
        given_names = getattr(self, "names", None)
        return given_names or tuple(str(port) for port in range(self.n_ports))

    @property
    def source_terminals(self) -> NDArray[np.int32]:
        """``source_terminals[port]``: where light from this port enters; empty without cells."""
        return self._ends()[0]

    @property
    def destination_terminals(self) -> NDArray[np.int32]:
        """``destination_terminals[port]``: where light to this port leaves; empty if no cells."""
        return self._ends()[1]

    def _ends(self) -> Ends:
        """Return the terminals where light of each port enters, and where light to it leaves."""
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)

    @property
    def intact(self) -> Fabric:
        """The fabric without its faults."""
        return self

    @property
    def faults(self) -> tuple[Any, ...]:
        """The faults of cells and ports, by kind and place; none unless it is a `Faulty`."""
        return ()

    @property
    def dead_ports(self) -> Sequence[int]:
        """Ports that are out of use, ascending; none unless the fabric has faults."""
        return ()

    @property
    def circuit_loss_db(self) -> NDArray[np.float64] | None:
        """``circuit_loss_db[source, destination]`` of a switch without cells; None if not known.

        The loss of a way through cells depends on the way, and is no property of two ports.
        """
        return None

    @property
    def circuit_budget_db(self) -> NDArray[np.float64] | None:
        """``circuit_budget_db[source, destination]``: what a circuit may lose; None if any loss.

        The smaller budget of both ends, in dB.
        """
        return None

    @property
    def over_budget(self) -> NDArray[np.bool_] | None:
        """``over_budget[source, destination]``: circuits that lose too much; None if none can.

        Bool, shape (ports, ports). A bidirectional circuit is over its budget if one of its
        directions is. Such a pair is dead: see `dead_pairs`.
        """
        loss_db = self.circuit_loss_db
        budget_db = self.circuit_budget_db
        if loss_db is None or budget_db is None:
            return None
        over_budget = np.asarray(loss_db > budget_db)
        return over_budget | over_budget.T if self.bidirectional else over_budget

    @property
    def live_ports(self) -> NDArray[np.int64]:
        """The ports that may take part in circuits, ascending."""
        return np.setdiff1d(np.arange(self.n_ports), np.array(self.dead_ports, dtype=np.int64))

    def require_switch(self) -> None:
        """Raise if the fabric is no single switch.

        Raises
        ------
        InputError
            If it has servers that fibres join.
        """

    def refuse_dead_ports(self, name: str, used: ArrayLike) -> None:
        """Raise if a dead port is used.

        Parameters
        ----------
        name
            How messages call the array.
        used
            ``used[port]``: whether the port takes part in a circuit; shape (ports,).

        Raises
        ------
        InputError
            Naming the first dead port that is used.
        """
        is_used = plain_array(name, used)
        if is_used.dtype != np.bool_ or is_used.shape != (self.n_ports,):
            raise InputError(f"{name}: true or false for each of {self.n_ports} ports", where=name)
        dead = np.array(self.dead_ports, dtype=np.int64)
        for port in dead[is_used[dead]].tolist():
            raise InputError(
                f"{name}[{port}]: {self.describe_port(port)} is dead and takes part in no circuit",
                where=f"{name}[{port}]",
            )

    def describe_port(self, port: int) -> str:
        """Return a port for messages, with its terminals.

        Parameters
        ----------
        port
            The number of the port.

        Returns
        -------
        str
            Its number, and its name if somebody gave one; on fabrics with cells its name in any
            case, and the terminals of cells where its light enters and leaves, one and the same if
            the port is bidirectional.

        Raises
        ------
        InputError
            If there is no such port.
        """
        port = integer("port", port, at_least=0)
        if port >= self.n_ports:
            raise InputError(f"port = {port}: ports are 0 .. {self.n_ports - 1}", where="port")
        if self.graph is None:
            label = self.labels[port]
            return f"port {port}" if label == str(port) else f"port {port} ({label})"
        source = self.graph.terminal_name(int(self.source_terminals[port]))
        if self.bidirectional:
            return f"port {port} ({self.port_names[port]}, {source})"
        destination = self.graph.terminal_name(int(self.destination_terminals[port]))
        return f"port {port} ({self.port_names[port]}, from {source}, to {destination})"

    @property
    def title(self) -> str:
        """The name of the fabric in pictures and summaries.

        Examples
        --------
        >>> from optmatch.fabrics import Faulty, HexMesh
        >>> Faulty(HexMesh(2, 3), stuck_bar=[4, 5]).title
        'hex mesh 2 x 3 with 2 faults'
        """
        sides = [str(getattr(self, name)) for name in ("rows", "cols") if hasattr(self, name)]
        return f"{self.type.replace('-', ' ')} {' x '.join(sides)}".rstrip()

    def plot(self, *, ax: Any = None, title: str | None = None) -> Any:
        """Return a figure of matplotlib with the cells and ports of the fabric, without light.

        Parameters
        ----------
        ax
            Axes of matplotlib to draw in; None makes a new figure.
        title
            What stands above it; None for the name of the fabric.

        Examples
        --------
        >>> from optmatch.fabrics import HexMesh
        >>> HexMesh(2, 2, ports=4).plot(title="chip A").axes[0].get_title()
        'chip A'
        """
        from optmatch.plotting import plot_fabric  # a layer above fabrics

        return plot_fabric(self, ax=ax, title=title)

    def _repr_svg_(self) -> str | None:
        """Draw the fabric in Jupyter; None, which stands for no picture, without matplotlib."""
        from optmatch.plotting import fabric_svg  # a layer above fabrics

        try:
            return fabric_svg(self)
        except SolverUnavailable:
            return None

    def facts(self) -> dict[str, Any]:
        """Return the properties of the fabric, by name.

        Returns
        -------
        dict
            The numbers of ``ports`` and ``cells``, whether ports are ``bidirectional``, and
            ``dead_pairs``: the ports, source and destination, that no state of the cells connects.

        Examples
        --------
        >>> from optmatch.fabrics import IdealSwitch
        >>> IdealSwitch(3).facts()
        {'ports': 3, 'bidirectional': False, 'cells': 0, 'dead_pairs': []}
        """
        return {
            "ports": self.n_ports,
            "bidirectional": self.bidirectional,
            "cells": self.n_cells,
            "dead_pairs": self.dead_pairs(),
        }

    @lru_cache(maxsize=64)  # noqa: B019 - equal fabrics share it
    def route_cells(self) -> NDArray[np.int32]:
        """Count the cells on the shortest route between each two ports; the last few are kept.

        Returns
        -------
        NDArray
            ``cells[source, destination]``, int32, shape (ports, ports), read-only; ``UNREACHED``
            for a dead pair, for pairs with a dead port, and for circuits over their link budget; 0
            on the diagonal of bidirectional ports and everywhere else on a fabric without cells.
        """
        graph: Any = self.graph
        if graph is None:
            table = np.zeros((self.n_ports, self.n_ports), dtype=np.int32)
        else:
            ends = (self.source_terminals, self.destination_terminals)
            table = shortest_routes(graph, *ends).copy()
        over_budget = self.over_budget
        if over_budget is not None:
            table[over_budget] = UNREACHED
        for port in self.dead_ports:
            # A port is at no distance from itself even if it is dead.
            itself = table[port, port]
            table[port] = table[:, port] = UNREACHED
            table[port, port] = itself
        return read_only(table)

    def dead_pairs(self) -> list[tuple[int, int]]:
        """Find the pairs of different live ports that nothing can connect.

        No state of the cells does, or the circuit of a switch without cells loses too much.

        Returns
        -------
        list of (source, destination)
            In ascending order; of a bidirectional pair only the one with source < destination.
        """
        dead = self.route_cells() == UNREACHED
        dead[list(self.dead_ports)] = dead[:, list(self.dead_ports)] = False
        if self.bidirectional:
            dead = np.triu(dead, 1)
        return [(int(i), int(j)) for i, j in np.argwhere(dead) if i != j]

    def explain_dead_pair(self, source: int, destination: int) -> str:
        """Say why no state of the cells connects two ports, or by how much their circuit fails.

        Parameters
        ----------
        source, destination
            A pair of `dead_pairs`.

        Returns
        -------
        str
            A sentence with both ports and their terminals.

        Examples
        --------
        >>> from optmatch.fabrics import SquareMesh
        >>> SquareMesh(1, 1).explain_dead_pair(0, 2).split(": ")  # doctest: +ELLIPSIS
        ['port 0 (t0, cell 2 b1) and port 2 (t2, cell 1 b1)', 'no way of light leads from ...']
        >>> switch = IdealSwitch(2, loss_db=[[1.0, 3.5], [2.0, 1.0]], budget_db=3.0)
        >>> switch.explain_dead_pair(0, 1)
        'port 0 to port 1: loss 3.5 dB, budget 3 dB'
        """
        graph: Any = self.graph
        if graph is None:
            losses_db: Any = self.circuit_loss_db
            budgets_db: Any = self.circuit_budget_db
            return (
                f"{self.describe_port(source)} to {self.describe_port(destination)}:"
                f" loss {losses_db[source, destination]:g} dB,"
                f" budget {budgets_db[source, destination]:g} dB"
            )
        ports = f"{self.describe_port(source)} and {self.describe_port(destination)}"
        start = [int(self.source_terminals[source])]
        walked = walk(graph, start).cells[0, self.destination_terminals[destination]]
        if walked == UNREACHED:
            return f"{ports}: no way of light leads from one to the other"
        return f"{ports}: every way between them passes some link twice, once in each direction"


def numbers_of_names(names: Sequence[str]) -> dict[str, int]:
    """List all names by which a user may call each cell (2 x 2 switch), with its number.

    A cell of a recursive netlist is called by its couplers, ``x.y.c1+x.y.c2``. An instance that
    holds exactly one cell stands for it too: here ``x.y`` and, if it holds no other, ``x``.

    Parameters
    ----------
    names
        The names of all cells.

    Returns
    -------
    dict
        The number of the cell by each name of a cell, then by each instance that holds one cell.

    Examples
    --------
    >>> numbers_of_names(["x.c1+x.c2", "y.s", "y.t"])
    {'x.c1+x.c2': 0, 'y.s': 1, 'y.t': 2, 'x': 0}
    """
    cells_of_instance: dict[str, list[int]] = {}
    for cell, name in enumerate(names):
        # The instances that hold all parts of the cell, the outermost first.
        levels = [part.split(".")[:-1] for part in name.split("+")]
        shared = []
        for at_level in zip(*levels, strict=False):
            if len(set(at_level)) > 1:
                break
            shared.append(at_level[0])
            cells_of_instance.setdefault(".".join(shared), []).append(cell)
    numbers = {name: cell for cell, name in enumerate(names)}
    for instance, cells in cells_of_instance.items():
        if len(cells) == 1:
            numbers.setdefault(instance, cells[0])
    return numbers


def number_names(find: Callable[[str], int], labels: Any) -> Any:
    """Return a list of cells or ports with the number of each that is called by its name.

    Where there is no name, the list is returned as it is, and so is what is no list; whoever asks
    checks the numbers.

    Parameters
    ----------
    find
        Returns the number of a name, as `Fabric.find_port` does.
    labels
        Names and numbers.

    Examples
    --------
    >>> switch = IdealSwitch(3, names=("a", "b", "spare"))
    >>> number_names(switch.find_port, ["spare", 0])
    [2, 0]
    """
    is_list = isinstance(labels, Sequence | Set) and not isinstance(labels, str)
    if not is_list or not any(isinstance(label, str) for label in labels):
        return labels
    return [find(label) if isinstance(label, str) else label for label in labels]


def _find(part: str, label: str | int, lists: Sequence[Sequence[str]]) -> int:
    """Return the number of a cell or a port that a user has called by its name or its number.

    Parameters
    ----------
    part
        The noun for messages: ``"cell"`` or ``"port"``.
    label
        A name, or a number also as text.
    lists
        Names of all parts by number; the first list that has the label counts.

    Returns
    -------
    int
        A number that is no name is returned as it is, also if there is no such part.

    Raises
    ------
    InputError
        If the label is neither a name nor a number.
    """
    text = str(label)
    for names in lists:
        if text in names:
            return list(names).index(text)
    if part == "cell":
        cell = numbers_of_names(lists[0]).get(text)
        if cell is not None:
            return cell
    if re.fullmatch(r"-?[0-9]{1,12}", text):
        return int(text)

    # The message lists some of the names that there are.
    listed = ", ".join(lists[0][:_MOST_NAMES])
    if len(lists[0]) > _MOST_NAMES:
        listed += " and more"
    raise InputError(f"there is no {part} {text}: {part}s are {listed}", where=part)


@dataclass(frozen=True, slots=True, eq=False)
class IdealSwitch(Fabric):
    """A switch of n inputs and n outputs that realises every partial permutation.

    With `bidirectional` it has n ports that each send and receive, and realises every set of
    circuits that join them in pairs, both ways at once.

    With `loss_db` and `budget_db` every one whose circuits all keep to their link budget: a pair
    of ports over it is dead, for all kinds of problems.

    Parameters
    ----------
    n
        The number of ports, at least 1.
    names
        The names of the ports, each once; None: their numbers.
    loss_db
        ``loss_db[source, destination]``: the insertion loss of each circuit, in dB, 0 to 1e9;
        float64, shape (ports, ports). None if it is not known.
    budget_db
        The most that a circuit may lose, in dB: one number for all, or one for the transceiver of
        each port, of which a circuit keeps to the smaller one of its ends. None: no limit. A
        circuit of bidirectional ports keeps to it both ways.
    bidirectional
        Whether a circuit joins two ports both ways: a matching is an involution then.

    Raises
    ------
    InputError
        If the shape of `loss_db` or the number of budgets does not fit, or there is a budget
        without losses.

    See Also
    --------
    HexMesh : A mesh of cells, where routes have to be found.
    Crossbar : Any matching, with cells.

    Examples
    --------
    >>> IdealSwitch(4).n_ports, IdealSwitch(4).n_cells
    (4, 0)

    The circuit from port 0 to port 1 loses more than the transceivers of both allow:

    >>> switch = IdealSwitch(2, loss_db=[[1.0, 3.5], [2.0, 1.0]], budget_db=(4.0, 3.0))
    >>> switch.dead_pairs()
    [(0, 1)]

    Ports that are joined in pairs:

    >>> IdealSwitch(4, bidirectional=True).bidirectional
    True
    """

    n: Count
    names: tuple[str, ...] | None = field(default=None, repr=False, metadata={"brief": True})
    loss_db: Annotated[GivenOrNone[np.float64], Axes(2), Range(0, 1e9)] = given(
        default=None, kw_only=True, metadata={"brief": True}
    )
    budget_db: Amount | Sequence[Amount] | None = field(
        default=None, kw_only=True, metadata={"brief": True}
    )
    bidirectional: bool = field(default=False, kw_only=True, metadata={"brief": True})
    type: ClassVar[str] = "ideal-switch"
    graph: ClassVar[None] = None

    def __post_init__(self) -> None:
        """Check that names, losses and budgets fit to the number of ports."""
        check_fields(self)
        check_size("ports", self.n, "n")
        if self.names is not None and not self.n == len(self.names) == len(set(self.names)):
            raise InputError(f"names: {self.n} different ones, one for each port", where="names")
        if self.loss_db is not None and self.loss_db.shape != (self.n, self.n):
            rows, columns = self.loss_db.shape
            raise InputError(
                f"loss_db has shape {rows} x {columns}: {self.n} x {self.n}, a row and a column"
                " for each port, is expected",
                where="loss_db",
            )

        # A budget limits the losses, and is one number or a number for each port.
        if self.budget_db is None:
            return
        if self.loss_db is None:
            raise InputError("budget_db: only with loss_db, which it limits", where="budget_db")
        if isinstance(self.budget_db, tuple) and len(self.budget_db) != self.n:
            raise InputError(
                f"budget_db has {len(self.budget_db)} entries: one for all, or one for each of"
                f" {self.n} ports, is expected",
                where="budget_db",
            )

    @property
    def n_ports(self) -> int:
        """The number of ports."""
        return self.n

    @property
    def port_names(self) -> tuple[str, ...]:
        """The names that were given, or the numbers of the ports."""
        return self.names or tuple(map(str, range(self.n)))

    @property
    def circuit_loss_db(self) -> NDArray[np.float64] | None:
        """``circuit_loss_db[source, destination]``, in dB: `loss_db`."""
        return self.loss_db

    @property
    def circuit_budget_db(self) -> NDArray[np.float64] | None:
        """``circuit_budget_db[source, destination]``: the smaller budget of both ends, in dB.

        Shape (ports, ports); None if there is no limit.
        """
        if self.budget_db is None:
            return None
        budget_of_port = np.broadcast_to(np.array(self.budget_db, dtype=np.float64), (self.n,))
        return np.minimum(budget_of_port[:, np.newaxis], budget_of_port[np.newaxis, :])


def find_staying(
    fabric: Fabric, matchings: NDArray[np.int32], states: NDArray[np.int8] | None
) -> NDArray[np.bool_]:
    """Find the circuits that keep their light when a switch goes on to the next slot.

    Returns ``stays[slot, source]``: the slot before has the same circuit, and no cell on its route
    is set anew. Without cells the same ports are enough. ``matchings[slot, source]`` is a
    destination, -1 where idle, and ``states[slot, cell]`` carry these circuits.
    """
    stays = np.zeros(matchings.shape, dtype=np.bool_)
    stays[1:] = (matchings[1:] == matchings[:-1]) & (matchings[1:] != IDLE)
    graph = fabric.graph
    if graph is None or states is None:
        return stays

    # All these circuits are followed at once, one cell in each turn, in the states of the slot
    # before: until the cell has another state in the slot itself, or the light comes out.
    slot, source = np.nonzero(stays)
    terminal = fabric.source_terminals[source]
    while len(terminal):
        state = states[slot - 1, terminal // 4]
        is_set_anew = (states[slot, terminal // 4] != state) | (state == FREE)
        stays[slot[is_set_anew], source[is_set_anew]] = False
        next_terminal = graph.mate[graph.exits[terminal, state]]
        goes_on = ~is_set_anew & (next_terminal >= 0)
        slot, source, terminal = (part[goes_on] for part in (slot, source, next_terminal))
    return stays

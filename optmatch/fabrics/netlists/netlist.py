"""Fabrics from netlists: 2x2 cells by name, joined pin by pin, with every flaw listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np

from optmatch.fabrics.cellgraph import TERMINAL_NAMES, CellGraph
from optmatch.fabrics.fabric import Ends, Fabric
from optmatch.fabrics.netlists.circuits import CellCircuit
from optmatch.fabrics.netlists.flaws import (
    CONVENTIONS,
    NetlistError,
    find_flaws,
    find_port_flaws,
    split_pin,
)
from optmatch.fabrics.netlists.layout import lay_out
from optmatch.model import Axes, GivenOrNone, InputError, check_fields, given

_OURS = {"cell": CONVENTIONS["cell"]}


@dataclass(frozen=True, slots=True, eq=False)
class Netlist(Fabric):
    """Cells by name, and the joins of their pins.

    A pin is ``"instance,pin"`` with pin a1, a2, b1 or b2, as in `CellGraph`: a cell in bar joins
    a1 to b1 and a2 to b2.

    Parameters
    ----------
    instances
        The cells, in the order of their numbers.
    connections
        For pins the pins they are joined to; each join once.
    ports
        Names of ports with their pins, in the order in which they become port 0, 1, ...
    tx, rx
        Where light comes in and goes out at different pins: two equally long lists of names in
        `ports`; port k sends at ``tx[k]`` and receives at ``rx[k]``. None: each port sends
        and receives.
    open_pins
        Pins that are meant to lead nowhere. Others that do are flaws.
    ends
        Where the two ends of each cell lie on the chip, shape (cells, 2, 2), in lengths of a cell;
        None for a drawing that follows the joins.
    circuits
        What each cell is made of, in the order of `instances`; None for a cell of which only the
        name of its component is known, and empty if that holds for all cells.

    Raises
    ------
    NetlistError
        With every flaw: unknown instances and pins, pins connected twice or to nothing, names that
        are not there or there twice, parts that are not connected.

    See Also
    --------
    netlist_from_tree : From a netlist of gdsfactory or sax.
    read_netlist : From a file.

    Examples
    --------
    >>> pair = Netlist(
    ...     instances=["m1", "m2"],
    ...     connections={"m1,b1": "m2,a1", "m1,b2": "m2,a2"},
    ...     ports=[("w1", "m1,a1"), ("w2", "m1,a2"), ("e1", "m2,b1"), ("e2", "m2,b2")],
    ... )
    >>> pair.n_cells, pair.n_ports, pair.dead_pairs()
    (2, 4, [(0, 1), (2, 3)])
    >>> try:
    ...     Netlist(["m1"], {"m1,b1": "m3,a1"}, [("w", "m1,a1"), ("e", "m1,b3")])
    ... except NetlistError as error:
    ...     for flaw in error.flaws:
    ...         print(flaw)
    connection m1,b1 to m3,a1: there is no instance m3
    port e at m1,b3: a cell has no pin b3
    pin m1,a2 is connected to nothing
    pin m1,b2 is connected to nothing
    """

    instances: Sequence[str]
    connections: Mapping[str, str]
    ports: Sequence[tuple[str, str]]
    tx: Sequence[str] | None = None
    rx: Sequence[str] | None = None
    open_pins: Sequence[str] = ()
    ends: Annotated[GivenOrNone[np.float64], Axes(3)] = given(default=None)
    circuits: Sequence[CellCircuit | None] = field(default=(), metadata={"brief": True})
    type: ClassVar[str] = "netlist"

    def __post_init__(self) -> None:
        """Check that instances, connections, ports and open pins fit together."""
        check_fields(self)
        # All flaws are told at once, since whoever mends a netlist wants to know them all.
        flaws = find_flaws(
            self.instances,
            list(self.connections.items()),
            self.ports,
            self.open_pins,
            dict.fromkeys(self.instances, _OURS),
        ) + find_port_flaws(self.ports, self.tx, self.rx)
        if flaws:
            raise NetlistError(flaws)
        if self.ends is not None and self.ends.shape != (len(self.instances), 2, 2):
            raise InputError(f"ends has the shape {self.ends.shape}", where="ends")
        if len(self.circuits) not in (0, len(self.instances)):
            raise InputError(
                f"circuits of {len(self.circuits)} cells, instances of {len(self.instances)}",
                where="circuits",
            )
        self._check_terminals()

    def _check_terminals(self) -> None:
        """Check that whatever is joined to a cell is at a terminal that its circuit has."""
        joined = [*self.connections, *self.connections.values(), *(pin for _, pin in self.ports)]
        circuit_of = dict(zip(self.instances, self.circuits, strict=False))
        for pin in joined:
            cell, terminal = split_pin(pin)
            circuit = circuit_of.get(cell)
            if circuit is not None and not circuit.terminals[TERMINAL_NAMES.index(terminal)]:
                text = f"{pin}: the circuit of the cell has no {terminal}"
                raise InputError(text, where="circuits")

    @property
    def n_ports(self) -> int:
        """The number of ports."""
        return len(self.ports if self.tx is None else self.tx)

    @property
    def bidirectional(self) -> bool:
        """Whether each port is one pin, for both directions."""
        return self.tx is None

    @property
    @lru_cache(maxsize=32)  # noqa: B019 - equal netlists share it
    def graph(self) -> CellGraph:
        """The cells and how they join; in its perimeter ports come first, in their order."""
        number = {name: cell for cell, name in enumerate(self.instances)}
        mate = np.full(4 * len(number), -1, dtype=np.int32)
        for first_pin, second_pin in self.connections.items():
            first = _terminal(first_pin, number)
            second = _terminal(second_pin, number)
            mate[first] = second
            mate[second] = first

        ports = [_terminal(pin, number) for _, pin in self.ports]
        open_terminals = np.setdiff1d(np.flatnonzero(mate < 0), ports)
        return CellGraph(
            mate=mate,
            ends=lay_out(mate) if self.ends is None else self.ends,
            perimeter=np.concatenate([ports, open_terminals]).astype(np.int32),
            names=tuple(self.instances),
            placed=self.ends is not None,
        )

    @property
    def port_names(self) -> tuple[str, ...]:
        """The names of the ports, as ``"west 3"`` or ``"in 3>out 3"`` (sends, receives)."""
        if self.tx is None or self.rx is None:
            return tuple(name for name, _ in self.ports)
        return tuple(f"{i}>{j}" for i, j in zip(self.tx, self.rx, strict=True))

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the ports: the netlist gives each one."""
        return self.port_names

    @property
    def sender_names(self) -> tuple[str, ...]:
        """The names of the ports where light comes in."""
        return self.port_names if self.tx is None else tuple(self.tx)

    @property
    def receiver_names(self) -> tuple[str, ...]:
        """The names of the ports where light goes out."""
        return self.port_names if self.rx is None else tuple(self.rx)

    def rename(self, cells: Mapping[str, str], ports: Mapping[str, str]) -> Netlist:
        """Return the same fabric with other names of cells and ports; the rest keep theirs.

        Parameters
        ----------
        cells, ports
            New names by the old ones.

        Examples
        --------
        >>> one = Netlist(["m"], {}, [("w", "m,a1"), ("e", "m,b1")], open_pins=["m,a2", "m,b2"])
        >>> other = one.rename({"m": "c1+c2"}, {"w": "west"})
        >>> other.port_names, other.open_pins
        (('west', 'e'), ('c1+c2,a2', 'c1+c2,b2'))
        """
        if not cells and not ports:
            return self

        def rename_pin(pin: str) -> str:
            """Rename the cell of a pin."""
            cell, terminal = split_pin(pin)
            return f"{cells.get(cell, cell)},{terminal}"

        def rename_ports(names: Sequence[str] | None) -> Sequence[str] | None:
            """Rename ports in a list."""
            return None if names is None else [ports.get(name, name) for name in names]

        return replace(
            self,
            instances=[cells.get(name, name) for name in self.instances],
            connections={
                rename_pin(first): rename_pin(second) for first, second in self.connections.items()
            },
            ports=[(ports.get(name, name), rename_pin(pin)) for name, pin in self.ports],
            tx=rename_ports(self.tx),
            rx=rename_ports(self.rx),
            open_pins=[rename_pin(pin) for pin in self.open_pins],
        )

    def _ends(self) -> Ends:
        """Return the terminals where light of each port enters, and where light to it leaves."""
        number = {name: cell for cell, name in enumerate(self.instances)}
        terminal_of_port = {name: _terminal(pin, number) for name, pin in self.ports}
        senders = self.tx or terminal_of_port
        receivers = self.rx or terminal_of_port
        return (
            np.array([terminal_of_port[name] for name in senders], dtype=np.int32),
            np.array([terminal_of_port[name] for name in receivers], dtype=np.int32),
        )


def _terminal(pin: str, number: Mapping[str, int]) -> int:
    """Return the terminal of a pin, given the numbers of cells."""
    instance, name = split_pin(pin)
    return 4 * number[instance] + TERMINAL_NAMES.index(name)

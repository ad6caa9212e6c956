"""Fabrics from netlists: 2x2 cells by name, joined pin by pin, with every flaw listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

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
from optmatch.fabrics.reach import count_cells
from optmatch.model import Axes, FrozenMap, GivenOrNone, InputError, check_fields, given

APART = 1.8
"""Between the middles of two joined cells, on average, in lengths of a cell."""

_SWEEPS = 4


def lay_out(mate: NDArray[np.int32]) -> NDArray[np.float64]:
    """Place cells so that joined ones are near each other, and point them along their joins.

    Takes `mate` and returns `ends`, as of `CellGraph`; the result depends on `mate` alone.

    Cells through which light goes from end a to end b only stand in columns, each to the right of
    all that lead to it, and are sorted by the heights of their neighbours [2]_. Of others the two
    slowest modes of the Laplacian are the coordinates [1]_, in time cubic in their number.

    References
    ----------
    .. [1] Hall (1970). An r-dimensional quadratic placement algorithm. *Management Science* 17,
       219. https://doi.org/10.1287/mnsc.17.3.219
    .. [2] Sugiyama, Tagawa and Toda (1981). Methods for visual understanding of hierarchical
       system structures. *IEEE Trans. SMC* 11, 109. https://doi.org/10.1109/TSMC.1981.4308636
    """
    cells = len(mate) // 4
    columns = count_cells(mate, ahead=False)
    if columns is not None and (mate >= 0).any():
        return _stack(mate, columns)
    first = np.flatnonzero(mate >= 0)
    near = np.zeros((cells, cells))
    np.add.at(near, (first // 4, mate[first] // 4), 1.0)
    np.fill_diagonal(near, 0.0)
    middle = np.zeros((cells, 2))
    if cells > 1:
        laplacian = np.diag(near.sum(axis=1)) - near
        modes = np.linalg.eigh(laplacian)[1][:, 1:3]
        signs = np.sign(modes[np.abs(modes).argmax(axis=0), np.arange(modes.shape[1])])
        middle[:, : modes.shape[1]] = modes * signs  # the same on every machine, not mirrored
    i, j = np.nonzero(near)
    lengths = np.linalg.norm(middle[i] - middle[j], axis=1)
    if len(lengths) and lengths.mean() > 1e-9:
        middle *= APART / lengths.mean()
    ends = _point(mate, _spread(middle))
    if (ends[:, 1, 0] - ends[:, 0, 0]).sum() < 0:
        ends[:, :, 0] *= -1  # light that goes from a to b goes to the right
    return ends


def _stack(mate: NDArray[np.int32], columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sort the cells of each column by the mean height of what they are joined to."""
    height = np.zeros(len(columns))
    for column in range(columns.max() + 1):
        here = np.flatnonzero(columns == column)
        height[here] = np.arange(len(here)) - (len(here) - 1) / 2
    for sweep in range(2 * _SWEEPS):
        order = range(columns.max() + 1) if sweep % 2 == 0 else range(columns.max(), -1, -1)
        for column in order:
            here = np.flatnonzero(columns == column)
            ends = 4 * here[:, None] + (np.array([0, 1]) if sweep % 2 == 0 else np.array([2, 3]))
            mates = mate[ends]
            side = np.where(mates & 1, 0.25, -0.25)
            beside = np.where(mates >= 0, height[mates // 4] + side, height[here][:, None])
            ranks = np.argsort(np.argsort(beside.mean(axis=1), kind="stable"), kind="stable")
            height[here] = ranks - (len(here) - 1) / 2
    start = np.stack([columns * (1.0 + APART / 2), -height], axis=1)
    return np.stack([start, start + np.array([1.0, 0.0])], axis=1)


def _spread(middle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move cells apart that are less than a length from each other."""
    apart = middle.copy()
    for _ in range(50):
        gap = apart[:, None] - apart[None]
        distance = np.linalg.norm(gap, axis=2)
        close = (distance < 1.0) & ~np.eye(len(apart), dtype=bool)
        if not close.any():
            break
        turn = np.arange(len(apart))[:, None] - np.arange(len(apart))[None]
        aside = np.stack([np.cos(turn), np.sin(turn)], axis=2) * np.sign(turn)[:, :, None]
        way = np.where((distance > 1e-6)[:, :, None], gap, aside)
        way /= np.maximum(np.linalg.norm(way, axis=2, keepdims=True), 1e-6)
        push = np.where(close, (1.05 - distance) / 2, 0.0)
        apart += (way * push[:, :, None]).sum(axis=1) / np.maximum(close.sum(axis=1), 1)[:, None]
    return apart


def _point(mate: NDArray[np.int32], middle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn each cell from its neighbours at end a towards those at end b."""
    ends = np.zeros((len(middle), 2, 2))
    for cell in range(len(middle)):
        sides = []
        for end in (0, 1):
            mates = mate[4 * cell + 2 * end : 4 * cell + 2 * end + 2]
            joined = mates[mates >= 0] // 4
            sides.append(middle[joined].mean(axis=0) if len(joined) else None)
        a, b = sides
        along = np.array([1.0, 0.0])
        if a is not None or b is not None:
            start = middle[cell] if a is None else a
            along = (middle[cell] if b is None else b) - start
        length = float(np.linalg.norm(along))
        along = along / length if length > 1e-9 else np.array([1.0, 0.0])
        ends[cell] = middle[cell] - along / 2, middle[cell] + along / 2
    return ends


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
        Where the two ends of each cell are drawn, shape (cells, 2, 2), in lengths of a cell; None
        for a layout that follows the joins.
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
        check_fields(self)
        object.__setattr__(self, "connections", FrozenMap(self.connections))
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

    @property
    def n_ports(self) -> int:
        """The number of ports."""
        return len(self.ports if self.tx is None else self.tx)

    @property
    def bidirectional(self) -> bool:
        """Whether each port is one pin, for both directions."""
        return self.tx is None

    @property
    def graph(self) -> CellGraph:
        """The cells and how they join."""
        return _graph(self)

    @property
    def port_names(self) -> tuple[str, ...]:
        """The names of the ports, as ``"west 3"`` or ``"in 3>out 3"`` (sends, receives)."""
        if self.tx is None or self.rx is None:
            return tuple(name for name, _ in self.ports)
        return tuple(f"{i}>{j}" for i, j in zip(self.tx, self.rx, strict=True))

    def _ends(self) -> Ends:
        number = {name: cell for cell, name in enumerate(self.instances)}
        at = {name: _terminal(pin, number) for name, pin in self.ports}
        sends, receives = ([at[name] for name in names or at] for names in (self.tx, self.rx))
        return np.array(sends, dtype=np.int32), np.array(receives, dtype=np.int32)


@lru_cache(maxsize=32)
def _graph(netlist: Netlist) -> CellGraph:
    number = {name: cell for cell, name in enumerate(netlist.instances)}
    mate = np.full(4 * len(number), -1, dtype=np.int32)
    for first, second in netlist.connections.items():
        i, j = _terminal(first, number), _terminal(second, number)
        mate[i], mate[j] = j, i
    ports = [_terminal(pin, number) for _, pin in netlist.ports]
    others = np.setdiff1d(np.flatnonzero(mate < 0), ports)
    return CellGraph(
        mate=mate,
        ends=lay_out(mate) if netlist.ends is None else netlist.ends,
        perimeter=np.concatenate([ports, others]).astype(np.int32),
        names=tuple(netlist.instances),
    )


def _terminal(pin: str, number: Mapping[str, int]) -> int:
    instance, name = split_pin(pin)
    return 4 * number[instance] + TERMINAL_NAMES.index(name)

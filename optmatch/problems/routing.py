"""Routing: one given matching on one fabric, the inner question of all the others."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric
from optmatch.fabrics.reach import cheapest_ways, fit_stuck, lights_every_cell
from optmatch.model import (
    DEVICES,
    IDLE,
    ON_CHIP,
    Axes,
    CellDevice,
    Displayed,
    Given,
    InputError,
    Range,
    Schedule,
    Value,
    check_fields,
    given,
)
from optmatch.model.device import Loss
from optmatch.model.schedule import check_matchings

__path__: list[str] = []  # so that former names below this module are looked up

Objective = Literal[
    "total-cells", "worst-cells", "loss-db", "worst-loss-db", "worst-snr-db", "power-mw"
]


class RoutingObjective(NamedTuple):
    """What an objective of routings and all-to-alls counts."""

    unit: str
    figure: str
    """The figure of a report that shows it."""
    whole: bool
    """Whether it is a whole number, and therefore compared exactly."""


OBJECTIVES: dict[str, RoutingObjective] = {
    "total-cells": RoutingObjective("cells", "total_cells", whole=True),
    "worst-cells": RoutingObjective("cells", "worst_route_cells", whole=True),
    "loss-db": RoutingObjective("dB", "total_loss_db", whole=False),
    "worst-loss-db": RoutingObjective("dB", "worst_loss_db", whole=False),
    "worst-snr-db": RoutingObjective("of the signal", "worst_snr_db", whole=False),
    "power-mw": RoutingObjective("mW", "power_mw", whole=False),
}
"""The table of objectives. `ON_CHIP` names those that need the device of each cell."""


@dataclass(frozen=True, slots=True, eq=False)
class Routing(Displayed):
    """Find the state of every cell such that all circuits of a matching hold at once.

    Parameters
    ----------
    fabric
        The switch.
    matching
        ``matching[source] = destination``, -1 where idle; int32, shape (ports,). On bidirectional
        ports an involution: if i meets j, then j meets i.
    objective
        ``"total-cells"``: cells on all routes together. ``"worst-cells"``: cells on the longest
        route. ``"loss-db"``: loss of all routes together, where bar and cross may cost
        differently. ``"worst-loss-db"``: loss of the circuit that loses most in the cells it
        passes, in dB. ``"worst-snr-db"``: the largest ratio of crosstalk to signal of a circuit, a
        plain number, so that less is better; reports give the signal to crosstalk in dB.
        ``"power-mw"``: power of all heaters; a cell without light is in the state that needs
        less. Of equal answers fewer cells in all are better.
    bar_loss_db, cross_loss_db
        The loss of one cell in each state, in dB, for ``"loss-db"`` and, without `cells`, for the
        last three objectives; at most 1000.
    cells
        The device of each cell, for the last three objectives. None of a fabric with cells takes
        cells that are all alike: with these two losses, and the leaks and heaters of the preset
        ``"smartlight"``. With ``"total-cells"`` less
        power is better of equal answers; that no answer needs less is not shown.

    Raises
    ------
    InputError
        If `matching` is no matching of the live ports of `fabric`, or `cells` are not those that
        the objective needs.

    Notes
    -----
    Crosstalk is of first order: light of one circuit leaks once, in a cell that another circuit
    passes too, and goes on as set. Powers add, and all sources are loaded. What leaks elsewhere
    goes on to dark ways, which lead to no receiver. Waveguides and facets are not counted:
    `measure_optics` has them, and all orders.

    See Also
    --------
    AllToAll : All pairs of ports, over several slots.
    RoutingProof : Shows that no routing is better.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> problem = Routing(HexMesh(2, 2, ports=4), [2, 3, 0, 1])
    >>> problem.circuits.tolist(), problem.lower_bound()
    ([[0, 2], [1, 3]], 14.0)
    """

    fabric: Fabric
    matching: Annotated[Given[np.int32], Range(IDLE)] = given()
    objective: Objective = field(default="total-cells", kw_only=True)
    bar_loss_db: Loss = field(default=0.48, kw_only=True)
    cross_loss_db: Loss = field(default=0.48, kw_only=True)
    cells: CellDevice | None = field(default=None, kw_only=True, metadata={"brief": True})
    kind: ClassVar[str] = "routing"
    answer_class: ClassVar[type[Schedule] | None] = None
    objectives: ClassVar[dict[str, str]] = {
        name: objective.unit for name, objective in OBJECTIVES.items()
    }

    def __post_init__(self) -> None:
        check_fields(self)
        self.fabric.require_switch()
        if self.cells is None:
            losses_db = self.bar_loss_db, self.cross_loss_db
            self._set(cells=cells_alike(self.fabric, self.objective, *losses_db))
        check_cells(self.fabric, self.objective, self.cells)
        matching = self.matching
        if len(matching) != self.fabric.n_ports:
            raise InputError(
                f"matching has {len(matching)} entries, the fabric has {self.fabric.n_ports} ports"
            )
        try:
            check_matchings(matching[None])
        except InputError as exc:
            message = exc.message.replace("matchings[0, ", "matching[")
            raise InputError(message.replace("matchings[0]", "matching")) from None
        if self.fabric.bidirectional:
            for i in np.flatnonzero(matching != IDLE):
                if matching[i] == i:
                    raise InputError(
                        f"matching[{i}] = {i}: a bidirectional port cannot meet itself"
                    )
                if matching[matching[i]] != i:
                    raise InputError(
                        f"matching[{i}] = {matching[i]}, but matching[{matching[i]}] ="
                        f" {matching[matching[i]]}: circuits of bidirectional ports are mutual"
                    )
        held = matching != IDLE
        self.fabric.refuse_dead_ports("matching", held | np.isin(np.arange(len(held)), matching))

    @property
    def circuits(self) -> NDArray[np.int32]:
        """``circuits[k] = source, destination``, int32, shape (circuits, 2), by source port.

        Of bidirectional ports each circuit is there once, with source < destination.
        """
        sources = np.flatnonzero(self.matching != IDLE).astype(np.int32)
        pairs = np.stack([sources, self.matching[sources]], axis=1)
        return pairs[pairs[:, 0] < pairs[:, 1]] if self.fabric.bidirectional else pairs

    def dead_circuits(self) -> list[tuple[int, int]]:
        """List the circuits that no state of the cells can hold, even alone."""
        table = self.fabric.route_cells()
        return [(int(i), int(j)) for i, j in self.circuits if table[i, j] == UNREACHED]

    def lower_bound(self) -> float:
        """Take every circuit by its shortest route, as if it were alone.

        Where light only goes forward and each end of a cell is joined or has a port, a matching
        without idle ports lights every cell twice, so there the total is known.

        Returns
        -------
        float
            In the unit of the objective; for ``"loss-db"`` each cell at the cheaper state.
            Infinite if a circuit is dead. Of crosstalk only what cells leak that two circuits pass
            in any case, shared out among all circuits. Of power half of what a lit cell takes more
            for each circuit, as two may pass it.
        """
        circuits = self.circuits
        if self.dead_circuits():
            return float("inf")
        if self.objective == "worst-loss-db":
            losses = cheapest_singles(self.fabric, self.cells)[tuple(circuits.T)]
            return float(losses.max(initial=0))
        if self.objective == "power-mw":
            return bound_power(self.fabric, self.cells, circuits)
        if self.objective == "worst-snr-db":
            return self._shared_leak()
        cells = self.fabric.route_cells()[circuits[:, 0], circuits[:, 1]]
        if self.objective == "worst-cells":
            return float(cells.max(initial=0))
        total = max(float(cells.sum()), 2.0 * self._cells_lit_twice())
        cheaper = min(self.bar_loss_db, self.cross_loss_db)
        return total * cheaper if self.objective == "loss-db" else total

    def _shared_leak(self) -> float:
        """Bound the worst crosstalk by its mean, if every cell is passed by two circuits.

        Where two circuits leak into each other, the one that is weaker gets more than the leak and
        the other less: no less than twice the leak together.
        """
        if self.cells is None or self.fabric.graph is None or not self._cells_lit_twice():
            return 0.0
        leak = fit_stuck(self.fabric.graph, self.cells.leak).min(axis=1)
        return float(2 * leak.sum() / len(self.circuits))

    def _cells_lit_twice(self) -> int:
        """Count the cells that two circuits pass in any case, if no port is idle."""
        fabric = self.fabric
        if fabric.graph is None or fabric.bidirectional or (self.matching == IDLE).any():
            return 0
        terminals = fabric.source_terminals, fabric.destination_terminals
        return fabric.n_cells if lights_every_cell(fabric.graph, *terminals) else 0


def cells_alike(
    fabric: Fabric, objective: str, bar_loss_db: float, cross_loss_db: float
) -> CellDevice | None:
    """Return the device of each cell where nobody gave one and the objective needs one.

    All cells are alike: they have the two losses, and leak and heat as those of SmartLight do.
    None where the objective needs no device, or the fabric has no cells.
    """
    if objective not in ON_CHIP or not fabric.n_cells:
        return None
    device = replace(DEVICES["smartlight"], bar_loss_db=bar_loss_db, cross_loss_db=cross_loss_db)
    return CellDevice.of(device, fabric.n_cells)


def check_cells(fabric: Fabric, objective: str, cells: CellDevice | None) -> None:
    """Refuse a device of each cell that does not fit, or is missing, or has no use."""
    if objective in ON_CHIP if cells is None else objective not in (*ON_CHIP, "total-cells"):
        rule = "needed for" if cells is None else "of no use for"
        raise InputError(f"cells: a device of each cell is {rule} {objective}", where="cells")
    if cells is not None and cells.n_cells != fabric.n_cells:
        raise InputError(
            f"cells: a device of {cells.n_cells} cells, a fabric of {fabric.n_cells}",
            where="cells",
        )


@lru_cache(maxsize=16)
def cheapest_singles(
    fabric: Fabric, cells: CellDevice | None, *, power: bool = False
) -> NDArray[np.float64]:
    """``cost[source, destination]``: of the cheapest way between ports; 0 without cells.

    The loss in dB, or half the power of heaters beyond that of dark cells.
    """
    if fabric.graph is None or cells is None:
        return np.zeros((fabric.n_ports, fabric.n_ports))
    costs = split_power(fabric, cells)[1] / 2 if power else cells.loss_db
    ways = cheapest_ways(fabric.graph, fabric.source_terminals, costs)
    return ways[:, fabric.destination_terminals]


def split_power(fabric: Fabric, cells: CellDevice) -> tuple[float, NDArray[np.float64]]:
    """Return what all cells take in mW without light, and ``extra[cell, state]`` beyond that."""
    if fabric.graph is None:
        return 0.0, np.zeros((0, 2))
    power_mw = fit_stuck(fabric.graph, cells.power_mw)
    least = power_mw.min(axis=1, keepdims=True)
    return float(least.sum()), power_mw - least


def bound_power(
    fabric: Fabric, cells: CellDevice | None, circuits: NDArray[np.int32], slots: int = 1
) -> float:
    """Take every circuit by its best way, as if alone; two may share what a cell takes."""
    dark_mw = 0.0 if cells is None else split_power(fabric, cells)[0]
    extra_mw = cheapest_singles(fabric, cells, power=True)[tuple(circuits.T)]
    return slots * dark_mw + float(extra_mw.sum())


PRICE_UNITS = 10_000
"""Prices are integers in 1/10,000 of a cell, so that checking involves no rounding."""

_DEAREST = 10_000_000  # units of the dearer cell: route costs stay far from the ends of integers
_FINEST = 10**15  # units of a dB


class LossUnits(NamedTuple):
    """The loss of cells, in whole units of prices, rounded down."""

    per_db: int
    bar: int
    cross: int


def loss_units(bar_loss_db: float, cross_loss_db: float) -> LossUnits:
    """Return losses in units of prices: 1/10,000 dB if that is exact, else finer ones.

    Finer units are a power of ten in which the larger loss is at most ten million.
    """
    losses = bar_loss_db, cross_loss_db
    per_db = PRICE_UNITS
    if any(round(loss * per_db) / per_db != loss for loss in losses):
        per_db = 1
        while Fraction(max(losses)) * per_db * 10 <= _DEAREST and per_db < _FINEST:
            per_db *= 10
    bar, cross = (
        units if units / per_db <= loss else units - 1
        for loss, units in ((loss, round(loss * per_db)) for loss in losses)
    )
    return LossUnits(per_db, bar, cross)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoutingProof(Value):
    """Link prices, and a tree of cases, that bound every routing of one matching from below.

    Put a price on every link. Circuits that share no link pay for each link at most once between
    them, so no routing costs less than the sum, over its circuits, of the cheapest way *including
    prices*, minus the sum of all prices. This holds for any prices that are not negative; good
    ones make the bound tight. Without prices on cells the same sum decides feasibility: if the
    circuits must pay more than all links together are worth, no routing exists.

    All matchings of an all-to-all together use a link at most once in each slot. There the sum of
    all prices counts as often as there are slots, and the proof has a single leaf.

    Where one set of prices is not enough, the proof splits in two cases at a link: either *this*
    circuit does not use the link, or *no other* circuit does. One of the two holds in every
    routing. If it is one circuit that would use the link both ways, the cases are: not in the one
    direction, or not in the other.

    Parameters
    ----------
    circuit
        ``circuit[node]``: the circuit (its place in `Routing.circuits`) on which the node splits,
        -1 for a leaf; int32, shape (nodes,). Node 0 is the root.
    terminal
        ``terminal[node]``: a terminal at the link on which the node splits, -1 for a leaf.
    one_way
        ``one_way[node]``: 1 where the cases are the two directions of the link: the circuit does
        not leave by `terminal`, or does not leave by the terminal joined to it. 0 where they are
        "not this circuit" and "no other circuit".
    children
        ``children[node, case]``: the nodes of the two cases, each greater than `node`; -1 for a
        leaf.
    prices
        ``prices[node, link]`` in 1 / `PRICE_UNITS` cells, or in `loss_units`, >= 0; int64, shape
        (nodes, links); zero at inner nodes.
    infeasible
        ``infeasible[node]``: 1 where the prices of a leaf prove that its case has no routing, so
        cells cost nothing there.

    Raises
    ------
    InputError
        If shapes disagree, a price is negative, or the nodes do not form a tree.

    See Also
    --------
    Routing, AllToAll : The problems whose bounds it proves.
    """

    circuit: Annotated[NDArray[np.int32], Range(-1)]
    terminal: Annotated[NDArray[np.int32], Range(-1)]
    one_way: Annotated[NDArray[np.int8], Range(0, 1)]
    children: Annotated[NDArray[np.int32], Axes(2, 2), Range(-1)]
    prices: Annotated[NDArray[np.int64], Axes(2), Range(0)]
    infeasible: Annotated[NDArray[np.int8], Range(0, 1)]

    def __post_init__(self) -> None:
        check_fields(self)
        nodes = len(self.circuit)
        if nodes == 0 or any(len(getattr(self, f.name)) != nodes for f in fields(self)):
            raise InputError(
                "the arrays of a proof have one entry for each node, and at least one"
            )
        inner = self.circuit >= 0
        below = self.children[inner]
        if (
            (self.children[~inner] != -1).any()
            or sorted(below.ravel().tolist()) != list(range(1, nodes))
            or (below <= np.flatnonzero(inner)[:, None]).any()
        ):
            raise InputError("the nodes of a proof do not form a tree with node 0 as its root")

    @classmethod
    def of_prices(cls, prices: NDArray[np.int64], *, infeasible: bool = False) -> RoutingProof:
        """Make a proof of a single leaf.

        Parameters
        ----------
        prices
            One price for each link, shape (links,).
        infeasible
            Whether they prove that there is no routing.
        """
        return cls(
            circuit=[-1],  # type: ignore[arg-type]
            terminal=[-1],  # type: ignore[arg-type]
            one_way=[0],  # type: ignore[arg-type]
            children=[[-1, -1]],  # type: ignore[arg-type]
            prices=np.asarray(prices)[None],
            infeasible=[int(infeasible)],  # type: ignore[arg-type]
        )

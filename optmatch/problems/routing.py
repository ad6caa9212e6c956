"""Routing: one given matching on one fabric, the inner question of all the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric
from optmatch.fabrics.fabric import number_names
from optmatch.fabrics.netlists.circuits import with_cell_phases
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
from optmatch.model.declarations import BY_NAME, form_of
from optmatch.model.device import Loss
from optmatch.model.numbers import check_length, refuse_entries
from optmatch.model.problem import CROSSTALK_UNIT
from optmatch.model.schedule import check_destinations

Objective = Literal[
    "total-cells", "worst-cells", "loss-db", "worst-loss-db", "worst-snr-db", "power-mw"
]


class _RoutingObjective(NamedTuple):
    """What an objective of routings and all-to-alls counts."""

    unit: str
    figure: str
    """The figure of a report that shows it."""
    whole: bool
    """Whether it is a whole number, and therefore compared exactly."""


OBJECTIVES: dict[str, _RoutingObjective] = {
    "total-cells": _RoutingObjective("cells", "total_cells", whole=True),
    "worst-cells": _RoutingObjective("cells", "worst_route_cells", whole=True),
    "loss-db": _RoutingObjective("dB", "total_loss_db", whole=False),
    "worst-loss-db": _RoutingObjective("dB", "worst_loss_db", whole=False),
    "worst-snr-db": _RoutingObjective(CROSSTALK_UNIT, "worst_snr_db", whole=False),
    "power-mw": _RoutingObjective("mW", "power_mw", whole=False),
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
        ports an involution: if i meets j, then j meets i. Destinations may be names of ports.
    objective
        What is least: cells, loss, crosstalk or power, of all circuits or of the worst one.
        ``"total-cells"``: cells on all routes together. ``"worst-cells"``: cells on the longest
        route. ``"loss-db"``: loss of all routes together, where bar and cross may cost
        differently. ``"worst-loss-db"``: loss of the circuit that loses most in the cells it
        passes, in dB. ``"worst-snr-db"``: the largest ratio of crosstalk to signal of a circuit, a
        plain number, so that less is better; reports give the signal to crosstalk in dB.
        ``"power-mw"``: power of all heaters; a cell without light is in the state that needs
        less. Of equal answers fewer cells in all are better.
    bar_loss_db
        The loss of one cell in bar, in dB. It counts for ``"loss-db"`` and, without `cells`, for
        the last three objectives; at most 1000.
    cross_loss_db
        The loss of one cell in cross, in dB; it counts where that in bar does.
    cells
        The device of each cell, for the last three objectives. None of a fabric with cells takes
        cells that are all alike: with these two losses, and the leaks and heaters of the preset
        ``"smartlight"``. With ``"total-cells"`` less power is better of equal answers; that no
        answer needs less is not shown.

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
    matching: Annotated[Given[np.int32], Range(IDLE), BY_NAME] = given()
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
        """Check all fields, and fill in the device of each cell where the objective needs one."""
        form_of(Fabric).check("fabric", self.fabric)
        find_destination = partial(self.fabric.find_port, receives=True)
        self._set(matching=number_names(find_destination, self.matching))
        check_fields(self)
        self.fabric.require_switch()
        losses_db = (self.bar_loss_db, self.cross_loss_db)
        self._set(cells=cells_for(self.fabric, self.objective, self.cells, losses_db))

        # The matching is one of the ports of the fabric.
        matching = self.matching
        n_ports = self.fabric.n_ports
        check_length("matching", matching, n_ports, "ports")
        refuse_entries(
            "matching",
            matching >= n_ports,
            lambda port: f" = {matching[port]}: ports are 0 .. {n_ports - 1}, -1 is idle",
        )
        check_destinations("matching", matching)

        # Circuits of bidirectional ports lead both ways, and dead ports have none.
        ports = np.arange(n_ports)
        sends = matching != IDLE
        if self.fabric.bidirectional:
            refuse_entries(
                "matching",
                matching == ports,
                lambda port: f" = {port}: a bidirectional port cannot meet itself",
            )
            back = matching[matching]
            refuse_entries(
                "matching",
                sends & (back != ports),
                lambda port: (
                    f" = {matching[port]}, but matching[{matching[port]}] = {back[port]}:"
                    " circuits of bidirectional ports are mutual"
                ),
            )
        receives = np.isin(ports, matching)
        self.fabric.refuse_dead_ports("matching", sends | receives)

    @property
    def circuits(self) -> NDArray[np.int32]:
        """``circuits[k] = source, destination``, int32, shape (circuits, 2), by source port.

        Of bidirectional ports each circuit is there once, with source < destination.
        """
        sources = np.flatnonzero(self.matching != IDLE).astype(np.int32)
        pairs = np.stack([sources, self.matching[sources]], axis=1)
        return pairs[pairs[:, 0] < pairs[:, 1]] if self.fabric.bidirectional else pairs

    def dead_circuits(self) -> list[tuple[int, int]]:
        """List the circuits that no state of the cells can hold, even alone.

        Returns
        -------
        list of (source, destination)
            Empty if each circuit has a way.
        """
        cells = self.fabric.route_cells()
        return [
            (source, destination)
            for source, destination in self.circuits.tolist()
            if cells[source, destination] == UNREACHED
        ]

    def lower_bound(self) -> float:
        """Bound the objective from below: every circuit takes its best route, as if it were alone.

        Where light only goes forward and each end of a cell is joined or has a port, a matching
        without idle ports lights every cell twice, so there the total is known.

        Returns
        -------
        float
            In the unit of the objective; infinite if a circuit is dead. For ``"loss-db"`` each
            cell is in the state that loses less. For ``"worst-snr-db"`` the leaks of the cells
            that two circuits pass in any case are shared out evenly among all circuits. For
            ``"power-mw"`` a circuit counts half of what each lit cell takes more than a dark one,
            as two circuits may pass it.
        """
        # Each objective has a function of its own in the table below the class.
        if self.dead_circuits():
            return float("inf")
        return _BOUNDS[self.objective](self)

    def _bound_total_cells(self) -> float:
        """Add up the shortest routes; a cell that is lit twice counts twice in any case."""
        sources, destinations = self.circuits.T
        shortest = float(self.fabric.route_cells()[sources, destinations].sum())
        return max(shortest, 2.0 * self._cells_lit_twice())

    def _bound_worst_cells(self) -> float:
        """Return the longest of the shortest routes."""
        sources, destinations = self.circuits.T
        return float(self.fabric.route_cells()[sources, destinations].max(initial=0))

    def _bound_total_loss(self) -> float:
        """Count as many cells as there are at least, each in the state that loses less."""
        return self._bound_total_cells() * min(self.bar_loss_db, self.cross_loss_db)

    def _shared_leak(self) -> float:
        """Bound the worst crosstalk by its mean, if two circuits pass every cell.

        It is a ratio of crosstalk to signal, 0 if cells need not be shared. Where two circuits
        leak into each other, the weaker one gets more than the leak and the other less: no less
        than twice the leak together.
        """
        if self.cells is None or self.fabric.graph is None or not self._cells_lit_twice():
            return 0.0
        leak = fit_stuck(self.fabric.graph, self.cells.leak).min(axis=1)
        return float(2 * leak.sum() / len(self.circuits))

    def _cells_lit_twice(self) -> int:
        """Count the cells that two circuits pass in any case, if no port is idle.

        These are all cells if light only goes forward and no end of a cell is unused, else none.
        """
        fabric = self.fabric
        if fabric.graph is None or fabric.bidirectional or (self.matching == IDLE).any():
            return 0
        starts = fabric.source_terminals
        ends = fabric.destination_terminals
        return fabric.n_cells if lights_every_cell(fabric.graph, starts, ends) else 0


_BOUNDS: dict[str, Callable[[Routing], float]] = {
    "total-cells": Routing._bound_total_cells,
    "worst-cells": Routing._bound_worst_cells,
    "loss-db": Routing._bound_total_loss,
    "worst-loss-db": lambda problem: bound_worst_loss(
        problem.fabric, problem.cells, problem.circuits
    ),
    "worst-snr-db": Routing._shared_leak,
    "power-mw": lambda problem: bound_power(problem.fabric, problem.cells, problem.circuits),
}
"""The lower bound of each objective; all circuits have a route."""


def cells_for(
    fabric: Fabric,
    objective: str,
    cells: CellDevice | None,
    losses_db: tuple[float, float] | None = None,
) -> CellDevice | None:
    """Return the device of each cell that an objective needs, with the phases of its states.

    Where nobody gave one and the objective needs one, all cells are alike: those of SmartLight,
    with `losses_db` in bar and in cross if these are given. None if the objective needs none.

    Raises
    ------
    InputError
        If the objective needs a device and the fabric has no cells, or has no use for a device, or
        the numbers of cells differ.
    """
    if cells is None and objective in ON_CHIP and fabric.n_cells:
        device = DEVICES["smartlight"]
        if losses_db is not None:
            bar_loss_db, cross_loss_db = losses_db
            device = replace(device, bar_loss_db=bar_loss_db, cross_loss_db=cross_loss_db)
        cells = CellDevice.of(device, fabric.n_cells)

    # There is a device if and only if the objective has use for it, and it is of all cells.
    if cells is None and objective in ON_CHIP:
        raise InputError(f"cells: a device of each cell is needed for {objective}", where="cells")
    if cells is None:
        return None
    if objective not in (*ON_CHIP, "total-cells"):
        raise InputError(
            f"cells: a device of each cell is of no use for {objective}", where="cells"
        )
    if cells.n_cells != fabric.n_cells:
        raise InputError(
            f"cells: a device of {cells.n_cells} cells, a fabric of {fabric.n_cells}",
            where="cells",
        )
    return with_cell_phases(fabric, cells)


@lru_cache(maxsize=16)
def _cheapest_singles(
    fabric: Fabric, cells: CellDevice | None, *, power: bool = False
) -> NDArray[np.float64]:
    """Find the least cost between each two ports as if each circuit were alone.

    The cost is the loss in dB, or half the power of heaters in mW beyond that of dark cells, since
    two circuits may share a cell. It is 0 without cells.
    """
    if fabric.graph is None or cells is None:
        return np.zeros((fabric.n_ports, fabric.n_ports))
    if power:
        _, extra_mw = split_power(fabric, cells)
        costs = extra_mw / 2  # two circuits may share a cell
    else:
        costs = cells.loss_db
    cost_at = cheapest_ways(fabric.graph, fabric.source_terminals, costs)  # (sources, terminals)
    return cost_at[:, fabric.destination_terminals]


def split_power(fabric: Fabric, cells: CellDevice) -> tuple[float, NDArray[np.float64]]:
    """Divide the power of heaters into that of dark cells and what light costs beyond it.

    Parameters
    ----------
    fabric
        The switch, whose stuck cells stay in one state.
    cells
        The device of each cell.

    Returns
    -------
    dark_mw : float
        The power of all cells together in mW, each in the state that needs less.
    extra_mw : ndarray, shape (cells, 2)
        The power of a cell beyond that in mW, in bar and in cross.
    """
    if fabric.graph is None:
        return 0.0, np.zeros((0, 2))
    power_mw = fit_stuck(fabric.graph, cells.power_mw)
    dark_mw = power_mw.min(axis=1, keepdims=True)
    return float(dark_mw.sum()), power_mw - dark_mw


def bound_power(
    fabric: Fabric, cells: CellDevice | None, circuits: NDArray[np.int32], slots: int = 1
) -> float:
    """Bound the power of all heaters over some slots, in mW.

    Every circuit takes its best way, as if it were alone; two may share what a lit cell takes more
    than a dark one.

    Parameters
    ----------
    fabric
        The switch.
    cells
        The device of each cell; None where there is none.
    circuits
        ``circuits[k] = source, destination`` of all slots together, shape (circuits, 2).
    slots
        The number of slots, in each of which all cells take at least what they take without light.

    Returns
    -------
    float
        The sum over all slots, in mW.
    """
    dark_mw = 0.0
    if cells is not None:
        dark_mw, _ = split_power(fabric, cells)
    sources, destinations = circuits.T
    extra_mw = _cheapest_singles(fabric, cells, power=True)[sources, destinations]
    return slots * dark_mw + float(extra_mw.sum())


def bound_worst_loss(
    fabric: Fabric, cells: CellDevice | None, circuits: NDArray[np.int32]
) -> float:
    """Return the largest loss of a circuit in dB, if each takes the way that loses least.

    Parameters
    ----------
    fabric
        The switch.
    cells
        The device of each cell; None where there is none, and then nothing is lost.
    circuits
        ``circuits[k] = source, destination``, shape (circuits, 2).

    Returns
    -------
    float
        In dB; 0 without circuits.
    """
    sources, destinations = circuits.T
    return float(_cheapest_singles(fabric, cells)[sources, destinations].max(initial=0))


PRICE_UNITS = 10_000
"""Prices are integers in 1/10,000 of a cell, so that checking involves no rounding."""

_MAX_UNITS_PER_CELL = 10_000_000
"""Units of the cell that loses more: route costs stay far from the ends of integers."""
_MAX_UNITS_PER_DB = 10**15


class _LossUnits(NamedTuple):
    """The loss of cells, in whole units of prices, rounded down."""

    per_db: int
    bar: int
    cross: int


def loss_units(bar_loss_db: float, cross_loss_db: float) -> _LossUnits:
    """Write the losses of cells as whole units: 1/10,000 dB if that is exact, else finer ones.

    Finer units are a power of ten in which the larger loss is at most ten million.

    Parameters
    ----------
    bar_loss_db, cross_loss_db
        The loss of a cell in each state, in dB.

    Returns
    -------
    _LossUnits
        How many units a dB has, and both losses in units, rounded down.
    """
    losses_db = (bar_loss_db, cross_loss_db)
    per_db = PRICE_UNITS
    if any(round(loss_db * per_db) / per_db != loss_db for loss_db in losses_db):
        per_db = 1
        larger_db = Fraction(max(losses_db))
        while larger_db * per_db * 10 <= _MAX_UNITS_PER_CELL and per_db < _MAX_UNITS_PER_DB:
            per_db *= 10
    bar = _round_down(bar_loss_db, per_db)
    cross = _round_down(cross_loss_db, per_db)
    return _LossUnits(per_db, bar, cross)


def _round_down(loss_db: float, per_db: int) -> int:
    """Return the most whole units that are no more than a loss."""
    units = round(loss_db * per_db)
    return units if units / per_db <= loss_db else units - 1


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
        """Check that all arrays have an entry for each node, and that the nodes form a tree."""
        check_fields(self)
        n_nodes = len(self.circuit)
        if n_nodes == 0:
            raise InputError("circuit: a proof has one node at least", where="circuit")
        for column in fields(self):
            check_length(column.name, getattr(self, column.name), n_nodes, "nodes")

        # Each node but the root is the child of one node before it.
        is_inner = self.circuit >= 0
        children = self.children[is_inner]
        parents = np.flatnonzero(is_inner)[:, None]
        leaves_have_none = (self.children[~is_inner] == -1).all()
        each_once = sorted(children.ravel().tolist()) == list(range(1, n_nodes))
        if not leaves_have_none or not each_once or (children <= parents).any():
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

        Returns
        -------
        RoutingProof
            A tree of the root alone.
        """
        return cls(
            circuit=[-1],  # type: ignore[arg-type]
            terminal=[-1],  # type: ignore[arg-type]
            one_way=[0],  # type: ignore[arg-type]
            children=[[-1, -1]],  # type: ignore[arg-type]
            prices=np.asarray(prices)[None],
            infeasible=[int(infeasible)],  # type: ignore[arg-type]
        )

"""Routing: one given matching on one fabric, the inner question of all the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import UNREACHED, Fabric
from optmatch.fabrics.reach import lights_every_cell
from optmatch.model import IDLE, InputError, Range, Value, check_fields
from optmatch.model.device import Loss
from optmatch.model.schedule import check_matchings

Objective = Literal["total-cells", "worst-cells", "loss-db"]


@dataclass(frozen=True, slots=True, eq=False)
class Routing(Value):
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
        differently.
    bar_loss_db, cross_loss_db
        The loss of one cell in each state, in dB, for ``"loss-db"``; at most 1000.

    Raises
    ------
    InputError
        If `matching` is no matching of the live ports of `fabric`.

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
    matching: Annotated[NDArray[np.int32], Range(IDLE)]
    objective: Objective = field(default="total-cells", kw_only=True)
    bar_loss_db: Loss = field(default=0.48, kw_only=True)
    cross_loss_db: Loss = field(default=0.48, kw_only=True)
    kind: ClassVar[str] = "routing"
    answer_class: ClassVar[type[Value] | None] = None
    objectives: ClassVar[dict[str, str]] = {
        "total-cells": "cells",
        "worst-cells": "cells",
        "loss-db": "dB",
    }

    def __post_init__(self) -> None:
        check_fields(self)
        self.fabric.require_switch()
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
            In cells, or dB for ``"loss-db"`` (each cell at the cheaper state); infinite if a
            circuit is dead.
        """
        circuits = self.circuits
        if self.dead_circuits():
            return float("inf")
        cells = self.fabric.route_cells()[circuits[:, 0], circuits[:, 1]]
        if self.objective == "worst-cells":
            return float(cells.max(initial=0))
        total = max(float(cells.sum()), 2.0 * self._cells_lit_twice())
        cheaper = min(self.bar_loss_db, self.cross_loss_db)
        return total * cheaper if self.objective == "loss-db" else total

    def _cells_lit_twice(self) -> int:
        """Count the cells that two circuits pass in any case, if no port is idle."""
        fabric = self.fabric
        if fabric.graph is None or fabric.bidirectional or (self.matching == IDLE).any():
            return 0
        terminals = fabric.source_terminals, fabric.destination_terminals
        return fabric.n_cells if lights_every_cell(fabric.graph, *terminals) else 0

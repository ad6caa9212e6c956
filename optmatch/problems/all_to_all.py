"""All-to-all: every pair of ports once, in the fewest matchings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import (
    Amount,
    CellDevice,
    Displayed,
    InputError,
    Positive,
    Schedule,
    check_fields,
    check_size,
)
from optmatch.problems.routing import (
    OBJECTIVES,
    bound_power,
    bound_worst_loss,
    cells_for,
)

Objective = Literal["total-cells", "worst-loss-db", "worst-snr-db", "power-mw"]
"""Those of a `Routing` that can be added up, or taken at their worst, over several slots."""


@dataclass(frozen=True, slots=True, eq=False)
class AllToAll(Displayed):
    """Connect every pair of ports exactly once, in the fewest matchings, by short routes.

    Bidirectional ports: each unordered pair. Ports with an input and an output: each ordered pair
    of different ports. With faults, only live ports have pairs.

    Parameters
    ----------
    fabric
        The switch.
    slot_s
        How long each matching is held, in seconds.
    delay_s
        The reconfiguration delay, in seconds; or cells, where each slot waits for its own cells.
        ``"cells"``: each slot waits for the slowest of the cells that it sets anew, and comes
        where slow cells change little.
    objective
        What is least beside the number of matchings: cells, loss, crosstalk or power.
        ``"total-cells"``: cells on all routes of all matchings together. ``"worst-loss-db"`` and
        ``"worst-snr-db"``: as of `Routing`, of the worst circuit of all matchings. ``"power-mw"``:
        power of all heaters, added up over the matchings.
    cells
        The device of each cell, which the last three objectives and such delays need; as of
        `Routing`. None takes cells that are all as those of the preset ``"smartlight"``, but has
        no settling times for such delays.

    See Also
    --------
    Routing : One given matching on a fabric.
    Demand : Unequal amounts between ports, in the shortest time.

    Examples
    --------
    >>> from optmatch.fabrics import HexMesh
    >>> problem = AllToAll(HexMesh(4, 4, ports=8))
    >>> len(problem.pairs), problem.min_slots
    (28, 7)
    """

    fabric: Fabric
    slot_s: Positive = field(default=1.0, kw_only=True)
    delay_s: Amount | Literal["cells"] = field(default=0.0, kw_only=True)
    objective: Objective = field(default="total-cells", kw_only=True, metadata={"brief": True})
    cells: CellDevice | None = field(default=None, kw_only=True, metadata={"brief": True})
    kind: ClassVar[str] = "all-to-all"
    answer_class: ClassVar[type[Schedule] | None] = None
    objectives: ClassVar[dict[str, str]] = {
        name: OBJECTIVES[name].unit for name in get_args(Objective)
    }
    slots_first: ClassVar[bool] = True
    """Fewer slots are better, whatever the objective."""

    def __post_init__(self) -> None:
        """Check all fields, and fill in the device of each cell where the objective needs one.

        Raises
        ------
        InputError
            Naming the field that is wrong.
        """
        check_fields(self)
        self.fabric.require_switch()

        self._set(cells=cells_for(self.fabric, self.objective, self.cells))

        # A delay that cells decide needs the settling times of their devices.
        if self.delay_s == "cells":
            if self.cells is None:
                raise InputError(
                    "delay_s = 'cells': a device of each cell is needed", where="delay_s"
                )
            if not self.cells.settling_s.any():
                raise InputError("delay_s = 'cells': no cell has a settling time", where="delay_s")
        check_size("entries", self.fabric.n_ports**2, "fabric")

    @property
    def pairs(self) -> NDArray[np.int32]:
        """``pairs[k] = source, destination``: what must meet; int32, (pairs, 2), ascending."""
        dead_ports = list(self.fabric.dead_ports)
        must_meet = ~np.eye(self.fabric.n_ports, dtype=bool)
        must_meet[dead_ports, :] = False
        must_meet[:, dead_ports] = False
        if self.fabric.bidirectional:
            must_meet = np.triu(must_meet)
        return np.argwhere(must_meet).astype(np.int32)

    @property
    def min_slots(self) -> int:
        """The fewest matchings that can hold all pairs, by counting.

        Of N live ports each meets one other in a slot and has N - 1 to meet, so N - 1 at least.
        Bidirectional ports of odd number N leave one idle in each slot, so N (N - 1) / 2 pairs
        need N slots.
        """
        n_live = len(self.fabric.live_ports)
        is_odd = n_live % 2 == 1
        if self.fabric.bidirectional and is_odd and n_live > 1:
            return n_live
        return max(0, n_live - 1)

    def lower_bound(self) -> float:
        """Take each pair by its best route, as if alone; infinite with a dead pair.

        Returns
        -------
        float
            In cells, the largest loss in dB, or mW; 0 for crosstalk, as no pair alone has any.
        """
        if self.fabric.dead_pairs():
            return float("inf")
        if self.objective == "worst-snr-db":
            return 0.0
        if self.objective == "worst-loss-db":
            return bound_worst_loss(self.fabric, self.cells, self.pairs)
        if self.objective == "power-mw":
            return bound_power(self.fabric, self.cells, self.pairs, self.min_slots)
        sources, destinations = self.pairs.T
        return float(self.fabric.route_cells()[sources, destinations].sum(dtype=np.int64))

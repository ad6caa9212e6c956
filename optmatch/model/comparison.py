"""Rows of comparisons of fabrics: what each needs for matchings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optmatch.model.declarations import Value
from optmatch.model.numbers import frozen, read_only, real_array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FabricRow(Value):
    """What one fabric needs to realise the matchings of a comparison, and what light meets there.

    Parameters
    ----------
    stages
        Columns of cells; None where light recirculates.
    crossings
        How many times waveguides cross.
    area_cells
        Of the rectangle around all cells, in squares of the length of a cell, where an
        interferometer is five times as long as high: a proxy for the area of the chip.
    matchings, routed
        How many were asked for, and how many of them a routing was found for.
    route_cells, insertion_loss_db, signal_to_crosstalk_db
        For each circuit of each routed matching: cells passed, loss from fibre to fibre, and
        signal over crosstalk with all circuits loaded; the latter is infinite where nothing leaks.
    toggles
        How often cells are driven to the other state when the routed matchings follow each other.
    """

    name: str
    ports: int
    cells: int
    stages: int | None
    crossings: int
    area_cells: float
    matchings: int
    routed: int
    route_cells: NDArray[np.int32]
    insertion_loss_db: NDArray[np.float64]
    signal_to_crosstalk_db: NDArray[np.float64]
    toggles: int
    time_s: float

    def __post_init__(self) -> None:
        """Make the arrays read-only; all have an entry for each circuit."""
        ratios_db = real_array("signal_to_crosstalk_db", self.signal_to_crosstalk_db)
        self._set(
            route_cells=frozen("route_cells", self.route_cells, 1, np.int32),
            insertion_loss_db=frozen("insertion_loss_db", self.insertion_loss_db, 1, np.float64),
            signal_to_crosstalk_db=read_only(ratios_db),  # infinite without leaks
        )

    @property
    def worst_route_cells(self) -> int | None:
        """The most cells that a circuit passes; None without one."""
        return max(self.route_cells.tolist(), default=None)

    @property
    def worst_insertion_loss_db(self) -> float | None:
        """The largest loss of a circuit; None without one."""
        return max(self.insertion_loss_db.tolist(), default=None)

    @property
    def worst_signal_to_crosstalk_db(self) -> float | None:
        """The lowest signal over crosstalk of a circuit; None without one."""
        return min(self.signal_to_crosstalk_db.tolist(), default=None)

"""Fabrics side by side, on the same matchings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from optmatch.control.routing.router import settle_free_cells
from optmatch.entrances import solve
from optmatch.fabrics import Fabric, FeedForward
from optmatch.fabrics.waveguides import measure_area, measure_waveguides
from optmatch.io.text import plain
from optmatch.model import (
    Device,
    InputError,
    OnEvent,
    Schedule,
    Solution,
    Tick,
    find_device,
    ignore,
)
from optmatch.model.comparison import FabricRow
from optmatch.model.declarations import form_of
from optmatch.model.numbers import plain_array
from optmatch.optics import measure_optics
from optmatch.problems import Routing
from optmatch.studies.outcome import Row, Study
from optmatch.verify.routing.replay import count_toggles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FABRIC_COLUMNS = (
    *("name", "cells", "stages", "crossings", "area_cells", "routed", "matchings"),
    *("worst_route_cells", "worst_insertion_loss_db", "worst_signal_to_crosstalk_db"),
    *("toggles", "time_s"),
)


class FabricComparison(list[FabricRow], Study):
    """A comparison of fabrics: the list of their rows, which is a study, too.

    Parameters
    ----------
    rows
        The figures of each fabric.
    complete
        False if the comparison was interrupted, so that fabrics are missing.
    """

    __slots__ = ("_complete",)

    def __init__(self, rows: Iterable[FabricRow] = (), *, complete: bool = True) -> None:
        super().__init__(rows)
        self._complete = complete

    @property
    def name(self) -> str:
        """What was compared: "fabrics"."""
        return "fabrics"

    @property
    def complete(self) -> bool:
        """Whether all fabrics have their row."""
        return self._complete

    @property
    def tables(self) -> dict[str, list[Row]]:
        """The table "fabrics": the size of each fabric, and the worst figures of its circuits."""
        rows = [{name: getattr(row, name) for name in _FABRIC_COLUMNS} for row in self]
        return {"fabrics": rows}

    def to_object(self) -> dict[str, Any]:
        """Return the comparison as an object for JSON, with its table as ``rows``."""
        content: dict[str, Any] = plain({"of": self.name, "rows": self.tables["fabrics"]})
        return content

    def plot(self, *, fig: Figure | None = None) -> Figure:
        """Draw losses and crosstalk of all circuits, cells, area and toggles of each fabric."""
        from optmatch.plotting import plot_fabrics

        return plot_fabrics(self, fig=fig)


def compare_fabrics(
    fabrics: Mapping[str, Fabric],
    matchings: ArrayLike,
    device: Device | str,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    on_event: OnEvent = ignore,
) -> FabricComparison:
    """Route the same matchings on several fabrics, and compare their cells and their light.

    A matching says which source port is connected to which destination port. A fabric is a switch
    made of cells, which are 2 x 2 switches for light; the more cells a circuit passes, the more
    light it loses.

    Parameters
    ----------
    fabrics
        Fabrics with cells, all of the same number of ports, by the names that rows have.
    matchings
        ``matchings[k, source] = destination``, -1 idle; each is routed on each fabric by its
        default method, and verified. They follow each other in this order.
    device
        The device model, or the name of a preset.
    seed
        The seed of methods, and of the phase errors of the device.
    time_limit_s
        For one matching on one fabric; None for none.
    on_event
        Called with a `Tick` after each matching.

    Returns
    -------
    FabricComparison
        A list with a row for each fabric: its numbers of cells, stages and crossings, how many of
        the matchings were ``routed``, and for each of their circuits the cells that it passes, its
        loss and its ratio of signal to crosstalk in dB. Cells that no circuit passes are in the
        states that leak least.

    Raises
    ------
    InputError
        If a fabric has no cells or another number of ports, or a matching is none for its ports.

    Examples
    --------
    >>> import optmatch as om
    >>> fabrics = {"benes": om.Benes(4), "crossbar": om.Crossbar(4)}
    >>> for row in om.compare_fabrics(fabrics, [[1, 0, 3, 2], [2, 3, 0, 1]], "ideal"):
    ...     print(row.name, row.cells, row.routed, row.worst_route_cells)
    benes 6 2 3
    crossbar 16 2 6
    """
    form_of(Mapping[str, Fabric]).check("fabrics", fabrics)
    form_of(Callable).check("on_event", on_event)
    destinations = plain_array("matchings", matchings)
    if destinations.ndim != 2 or not len(destinations):
        raise InputError(
            f"matchings of shape {destinations.shape}: one row or more", where="matchings"
        )
    cell_device = find_device(device)
    for name, fabric in fabrics.items():
        if fabric.graph is None:
            raise InputError(f"{name}: a fabric without cells cannot be compared", where="fabrics")
        if fabric.n_ports != destinations.shape[1]:
            raise InputError(
                f"{name}: {fabric.n_ports} ports, but the matchings have {destinations.shape[1]}",
                where="fabrics",
            )

    rows = FabricComparison()
    for name, fabric in fabrics.items():
        problems = [Routing(fabric, matching.astype(np.int32)) for matching in destinations]

        # One solve goes before the clock starts: it compiles kernels and makes the cell graph.
        solve(problems[0], seed=seed, time_limit_s=time_limit_s)
        started = time.perf_counter()
        solutions: list[Solution] = []
        for k, problem in enumerate(problems):
            solutions.append(solve(problem, seed=seed, time_limit_s=time_limit_s))
            on_event(Tick(phase=f"matchings on {name}", done=k + 1, total=len(problems)))
        time_s = time.perf_counter() - started
        rows.append(_measure(name, fabric, solutions, cell_device, seed, time_s))
    return rows


def _measure(
    name: str,
    fabric: Fabric,
    solutions: Sequence[Solution],
    device: Device,
    seed: int,
    time_s: float,
) -> FabricRow:
    """Measure the routes and the light of some matchings on one fabric.

    Parameters
    ----------
    name
        The name of the row.
    fabric
        A fabric with cells.
    solutions
        The answer to each matching, in order; those without routes are left out of the figures.
    device
        The device model of its cells.
    seed
        Draws the phase errors of the device.
    time_s
        How long all matchings took to route.

    Returns
    -------
    FabricRow
        Counts of cells, crossings and toggles (cells that change from one matching to the next),
        and for each circuit its cells, its loss and its ratio of signal to crosstalk in dB.
    """
    # All matchings are measured together, as slots of one schedule; free cells leak least.
    schedules = [solution.schedule for solution in solutions if solution.schedule is not None]
    graph: Any = fabric.graph
    toggles = 0
    cells = np.empty(0, dtype=np.int32)
    loss = np.empty(0)
    ratio = np.empty(0)
    if schedules:
        together = Schedule(
            matchings=np.concatenate([schedule.matchings for schedule in schedules]),
            durations_s=np.ones(len(schedules)),
            cell_states=np.concatenate([np.asarray(s.cell_states) for s in schedules]),
        )
        toggles = count_toggles(together)

        # `settled` are the states of all cells, those without light in the ones that leak least.
        # Figures are of the circuits that have light.
        settled = settle_free_cells(solutions[0].problem, together, device, seed=seed)
        optics = measure_optics(solutions[0].problem, together, device, idle=settled, seed=seed)
        cells = optics.cells[optics.lit]
        loss = optics.insertion_loss_db[optics.lit]
        ratio = optics.signal_to_crosstalk_db[optics.lit]
    return FabricRow(
        name=name,
        ports=fabric.n_ports,
        cells=fabric.n_cells,
        stages=fabric.n_stages if isinstance(fabric, FeedForward) else None,
        crossings=int(measure_waveguides(graph).crossings.sum()) // 2,
        area_cells=measure_area(graph),
        matchings=len(solutions),
        routed=len(schedules),
        route_cells=cells,
        insertion_loss_db=loss,
        signal_to_crosstalk_db=ratio,
        toggles=toggles,
        time_s=time_s,
    )

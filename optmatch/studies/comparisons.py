"""Comparisons: fabrics on the same matchings, methods on the same problem."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from optmatch.control.routing.router import settle_free_cells
from optmatch.entrances import solve
from optmatch.fabrics import Fabric, FeedForward
from optmatch.fabrics.waveguides import measure_area, measure_waveguides
from optmatch.io.text import plain
from optmatch.kinds import check_method_name, fitting_methods
from optmatch.model import (
    Device,
    InputError,
    OnEvent,
    Problem,
    Schedule,
    Solution,
    SolverUnavailable,
    Tick,
    find_device,
    ignore,
    is_known,
)
from optmatch.model.comparison import FabricRow, MethodRow
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
_METHOD_COLUMNS = tuple(field.name for field in fields(MethodRow))


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
        return {"fabrics": _tabulate(self, _FABRIC_COLUMNS)}

    def to_object(self) -> dict[str, Any]:
        """Return the comparison as an object for JSON, with its table as ``rows``."""
        return _comparison_object(self.name, self.tables["fabrics"])

    def plot(self, *, fig: Figure | None = None) -> Figure:
        """Draw losses and crosstalk of all circuits, cells, area and toggles of each fabric."""
        from optmatch.plotting import plot_fabrics

        return plot_fabrics(self, fig=fig)


class MethodComparison(list[MethodRow], Study):
    """A comparison of methods: the list of their rows, which is a study, too.

    Parameters
    ----------
    rows
        The result of each method on each problem.
    complete
        False if the comparison was interrupted, so that results are missing.
    """

    __slots__ = ("_complete",)

    def __init__(self, rows: Iterable[MethodRow] = (), *, complete: bool = True) -> None:
        super().__init__(rows)
        self._complete = complete

    @property
    def name(self) -> str:
        """What was compared: "methods"."""
        return "methods"

    @property
    def complete(self) -> bool:
        """Whether all methods have their row for each problem."""
        return self._complete

    @property
    def tables(self) -> dict[str, list[Row]]:
        """The table "methods": a row for each method on each problem."""
        return {"methods": _tabulate(self, _METHOD_COLUMNS)}

    def to_object(self) -> dict[str, Any]:
        """Return the comparison as an object for JSON, with its table as ``rows``."""
        return _comparison_object(self.name, self.tables["methods"])

    def plot(self, *, fig: Figure | None = None) -> Figure:
        """Draw the objectives of all methods, each over the smallest one of its problem."""
        from optmatch.plotting import plot_methods

        return plot_methods(self, fig=fig)


def _comparison_object(of: str, rows: list[Row]) -> dict[str, Any]:
    """Return a comparison as an object for JSON; numbers that are not finite are strings."""
    content: dict[str, Any] = plain({"of": of, "rows": rows})
    return content


def _tabulate(rows: Iterable[Any], columns: Sequence[str]) -> list[Row]:
    """Return some attributes of each record as a row of a table."""
    return [{name: getattr(row, name) for name in columns} for row in rows]


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


def compare_methods(
    problems: Mapping[str, Problem] | Iterable[Problem],
    methods: Sequence[str] | None = None,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    on_event: OnEvent = ignore,
    on_row: Callable[[MethodRow], None] = lambda row: None,
) -> MethodComparison:
    """Solve the same problems by several methods, and put the results into a table.

    Parameters
    ----------
    problems
        Problems by name; or problems without names, which are named by kind and place, as
        ``"demand 0"``.
    methods
        Names of methods. One that does not accept a problem has a row with status ``"refused"``.
        None compares, for each problem, all methods that accept it.
    seed
        The seed of the random numbers of each method.
    time_limit_s
        The limit in seconds for each method on each problem; None for none.
    on_event
        Called with the events of the methods.
    on_row
        Called with each row once it is there.

    Returns
    -------
    MethodComparison
        A list of rows, by problem, then by method, in the given orders; each has the status, the
        objective, the bound and the time. Every answer has been verified.

    Raises
    ------
    InputError
        If there is no method of some name, or `problems` holds something else.

    Examples
    --------
    >>> import optmatch as om
    >>> problem = om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=0.0)
    >>> for row in om.compare_methods({"small": problem}, ["eclipse", "spectra", "negotiated"]):
    ...     print(row.method, row.status, row.objective)
    eclipse optimal 3.0
    spectra optimal 3.0
    negotiated refused None
    """
    named_problems = _name_problems(problems)
    methods = form_of(Sequence[str] | None).check("methods", methods)
    for method in methods or ():
        check_method_name(method, where="methods")

    limits: dict[str, Any] = {"seed": seed, "time_limit_s": time_limit_s, "on_event": on_event}
    rows = MethodComparison()
    for name, problem in named_problems.items():
        for method in fitting_methods(problem) if methods is None else methods:
            row = _try_method(name, problem, method, **limits)
            rows.append(row)
            on_row(row)
    return rows


def _name_problems(problems: Mapping[str, Problem] | Iterable[Problem]) -> dict[str, Problem]:
    """Return the problems by name; those of a list are named by kind and place.

    Parameters
    ----------
    problems
        Problems by name, or in a list: then the second one is named as ``demand 1``.

    Returns
    -------
    dict
        The problems by name, in their order.

    Raises
    ------
    InputError
        If something is no problem.
    """
    if not isinstance(problems, Mapping):
        listed = None
        if not isinstance(problems, Problem):
            with suppress(TypeError):  # an array without axes is an iterable by its type alone
                listed = list(problems)
        if listed is None:
            raise InputError(
                f"problems of type {type(problems).__name__}: problems by name, or a list of"
                " problems, are expected",
                where="problems",
            )
        problems = {
            f"{getattr(problem, 'kind', 'problem')} {place}": problem
            for place, problem in enumerate(listed)
        }
    for name, problem in problems.items():
        if not isinstance(problem, Problem):
            raise InputError(
                f"{name!r} is of type {type(problem).__name__}: a problem is expected",
                where="problems",
            )
    return dict(problems)


def _try_method(name: str, problem: Problem, method: str, **limits: Any) -> MethodRow:
    """Solve a problem by one method, and tabulate what came of it.

    Parameters
    ----------
    name
        The name of the problem in the table.
    problem, method
        The problem, and the name of the method.
    **limits
        Limits of `solve`, such as that of time.

    Returns
    -------
    MethodRow
        Its status is "refused", with the reason, if the method does not take the problem or is
        not installed. An unknown bound or an infinite gap is None.
    """
    try:
        solution = solve(problem, method, **limits)
    except (InputError, SolverUnavailable) as exc:
        reason = str(exc)
        return MethodRow(
            name=name, kind=problem.kind, method=method, status="refused", reason=reason
        )
    answer = solution.schedule or solution.answer
    # Several planes have a schedule each; other answers have none at all.
    schedules = getattr(answer, "schedules", (solution.schedule,) if solution.schedule else ())
    bound = solution.lower_bound
    return MethodRow(
        name=name,
        kind=problem.kind,
        method=method,
        status=solution.status.value,
        objective=solution.objective,
        lower_bound=bound if is_known(bound) else None,
        gap=solution.gap if math.isfinite(solution.gap) else None,
        proof=solution.proof,
        slots=sum(schedule.n_slots for schedule in schedules) if schedules else None,
        time_s=solution.time_s,
        reason=solution.limit.value if solution.limit else str(solution.stats.get("reason", "")),
    )

"""Fabrics side by side; methods side by side, on several problems or over values of fields."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from itertools import combinations, groupby, pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.control.routing.router import settle_free_cells
from optmatch.entrances import solve, take_up
from optmatch.fabrics import Fabric, FeedForward
from optmatch.fabrics.waveguides import measure_area, measure_waveguides
from optmatch.kinds import check_method_name, find_method, fitting_methods
from optmatch.model import (
    CELL_FIELDS,
    CellDevice,
    Device,
    InputError,
    Limits,
    OnEvent,
    Problem,
    Schedule,
    Solution,
    Tick,
    find_device,
    ignore,
    is_known,
)
from optmatch.model.comparison import FabricRow
from optmatch.model.declarations import form_of
from optmatch.model.device import DEFAULT_DEVICE
from optmatch.model.display import titled
from optmatch.model.numbers import list_entries, plain_array
from optmatch.model.problem import split_unit, unit_of, write_amount
from optmatch.optics import measure_optics
from optmatch.problems import Routing
from optmatch.solvers.frame import unite
from optmatch.studies.outcome import Row as TableRow, RowsStudy
from optmatch.sweeps.processes import Submits
from optmatch.sweeps.reports import compare_rows
from optmatch.sweeps.store import REFUSED, Row, Task, row_of
from optmatch.sweeps.sweep import DEFAULT, sweep
from optmatch.verify.routing.replay import count_toggles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from optmatch.plotting.comparison import Line

_FABRIC_COLUMNS = (
    *("name", "cells", "stages", "crossings", "area_cells", "routed", "matchings"),
    *("worst_route_cells", "worst_insertion_loss_db", "worst_signal_to_crosstalk_db"),
    *("toggles", "time_s"),
)


class FabricComparison(RowsStudy[FabricRow]):
    """A comparison of fabrics: the list of their rows, which is a study, too.

    Parameters
    ----------
    rows
        The figures of each fabric.
    complete
        False if the comparison was interrupted, so that fabrics are missing.
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """What was compared: "fabrics"."""
        return "fabrics"

    @property
    def tables(self) -> dict[str, list[TableRow]]:
        """The table "fabrics": the size of each fabric, and the worst figures of its circuits."""
        rows = [{name: getattr(row, name) for name in _FABRIC_COLUMNS} for row in self]
        return {"fabrics": rows}

    def plot(self, *, fig: Figure | None = None, ax: Axes | None = None) -> Figure:
        """Draw losses and crosstalk of all circuits, cells, area and toggles of each fabric."""
        from optmatch.plotting import plot_fabrics

        if ax is not None:
            raise InputError("fabrics take four axes: give an empty figure, fig", where="ax")
        return plot_fabrics(self, fig=fig)


def compare_fabrics(
    fabrics: Mapping[str, Fabric],
    matchings: ArrayLike,
    device: Device | str = DEFAULT_DEVICE,
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
        states that leak least. After Ctrl-C fabrics are missing, and it is not ``complete``.

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

    rows: list[FabricRow] = []
    try:
        for name, fabric in fabrics.items():
            rows.append(
                _measure_fabric(
                    name,
                    fabric,
                    destinations,
                    cell_device,
                    seed=seed,
                    time_limit_s=time_limit_s,
                    on_event=on_event,
                )
            )
    except KeyboardInterrupt:
        return FabricComparison(rows, complete=False)
    return FabricComparison(rows)


def _measure_fabric(
    name: str,
    fabric: Fabric,
    matchings: NDArray[np.generic],
    device: Device,
    *,
    seed: int,
    time_limit_s: float | None,
    on_event: OnEvent,
) -> FabricRow:
    """Route the rows of `matchings` on one fabric, and measure the light of all their circuits."""
    problems = [Routing(fabric, matching.astype(np.int32)) for matching in matchings]

    # One solve goes before the clock starts: it compiles kernels and makes the cell graph.
    solve(problems[0], seed=seed, time_limit_s=time_limit_s)
    started = time.perf_counter()
    solutions: list[Solution] = []
    for k, problem in enumerate(problems):
        solutions.append(solve(problem, seed=seed, time_limit_s=time_limit_s))
        on_event(Tick(phase=f"matchings on {name}", done=k + 1, total=len(problems)))
    time_s = time.perf_counter() - started

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

        # `settled` are the states of all cells, those without light in the ones that leak
        # least. Figures are of the circuits that have light.
        settled = settle_free_cells(solutions[0].problem, together, device, seed=seed)
        optics = measure_optics(solutions[0].problem, together, device, idle=settled, seed=seed)
        cells = optics.cells[optics.lit]
        loss = optics.insertion_loss_db[optics.lit]
        ratio = optics.signal_to_crosstalk_db[optics.lit]

    # A crossing counts at both of the waveguides that cross there.
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


_ALL_LINKS = "all links at once"
"""The line of steps on rails where nothing has to change."""
_NOTICEABLY_LONGER = 1.1
"""Steps on rails are compared with so many times the step with all links.

They are longer by some rounding almost everywhere; 10 % are seen in a picture.
"""
_LIMIT_OF_STEPS = f"{_NOTICEABLY_LONGER:g} x {_ALL_LINKS}"
"""What a line of steps on rails crosses where it becomes noticeably longer."""
_N_HALVINGS = 3
"""How often `vary` halves the distance of values around a crossing: of decades factors of 1.3.

Each takes a solve by both methods."""
_MOST_ROWS = 12
"""The most problems that are drawn as rows of dots; more are a performance profile."""


class Crossing(NamedTuple):
    """Where one method, or one value of a word, falls below another as one field varies."""

    value: float
    """The value of the field at which straight lines between values that were solved cross."""
    before: str
    """The method that is lower at smaller values; or the word, as ``"dp ring"``, by one method."""
    after: str
    """What is lower at larger values; of steps on rails, 1.1 times the step with all links."""
    field: str
    """The name of the field."""
    others: str
    """What both lines share, in words: values of other fields; empty if there are none."""
    last_value: float
    """The last value that was solved with `before` no higher than `after`.

    `vary` solves further values between those that were asked for, to narrow a crossing down.
    """
    next_value: float
    """The next one, with `after` below `before`."""


class MethodComparison(RowsStudy[Row]):
    """Methods side by side: the list of their rows, which is a study, too.

    Parameters
    ----------
    rows
        The result of each method on each problem.
    complete
        False if the comparison was interrupted, so that results are missing.
    units
        The units of objectives, by the name of the problem.
    values
        The values of the fields that vary, by the name of the problem; empty if none do.
    details
        Further columns, by the key of a row: the algorithm of the answer of a collective; how long
        a step on rails takes with all links there at once, and by which share the plan takes
        longer.
    between
        Further rows, of values around crossings that nobody asked for: points of lines, and no
        rows of the table.
    """

    __slots__ = ("_between", "_details", "_units", "_values")

    def __init__(
        self,
        rows: Iterable[Row] = (),
        *,
        complete: bool = True,
        units: Mapping[str, str] | None = None,
        values: Mapping[str, Mapping[str, Any]] | None = None,
        details: Mapping[str, Mapping[str, Any]] | None = None,
        between: Sequence[Row] = (),
    ) -> None:
        super().__init__(rows, complete=complete)
        self._between = between
        self._units = units or {}
        self._values = values or {}
        self._details = details or {}

    @property
    def name(self) -> str:
        """What was done: "methods" were compared, or in a "variation" fields varied."""
        return "variation" if self._values else "methods"

    @property
    def tables(self) -> dict[str, list[TableRow]]:
        """The rows, with the values of fields that vary; and where lines of a variation cross."""
        tables = {self.name: [self._tabulate(row) for row in self]}
        if self._values:
            tables["crossings"] = [crossing._asdict() for crossing in self.crossings()]
        return tables

    def _tabulate(self, row: Row) -> TableRow:
        """Return a row of the table; what is not known is None."""
        # The column `objective` has what answers come to, whichever objective is varied.
        cells: TableRow = {
            "asked" if name == "objective" else name: value
            for name, value in self._values.get(row.name, {}).items()
        } or {"name": row.name, "kind": row.kind}
        has_gap = row.gap is not None and np.isfinite(row.gap)
        names = dict.fromkeys(
            name for row_details in self._details.values() for name in row_details
        )
        cells |= {"method": row.method, "status": row.status}
        if any(other.slots is not None for other in self):
            cells["slots"] = row.slots
        return cells | {
            "objective": row.objective,
            "lower_bound": row.lower_bound if is_known(row.lower_bound) else None,
            "unit": self._units.get(row.name, ""),
            "gap": row.gap if has_gap else None,
            **{name: self._details.get(row.key, {}).get(name) for name in names},
            "proof": row.proof,
            "time_s": row.time_s,
            "reason": row.reason,
        }

    def lines(self) -> list[Line]:
        """Return the objectives over the first field of numbers that varies.

        Lines are of each combination of a method and values of the other fields. Of rail jobs the
        last ones are the steps with all links there at once. There are none where no field varies,
        objectives have levels, or nothing has an answer. Where only fields of words vary, lines
        are over the first one.
        """
        return self._lines_over(self._first_field()) if self._values else []

    def _varied_fields(self) -> list[str]:
        """Return the names of the fields that vary, in their order; none of other comparisons."""
        return list(next(iter(self._values.values()), {}))

    def _first_field(self) -> str:
        """Return the first field that varies over numbers, else the first one."""
        return [*self._fields_of_numbers(), *self._varied_fields()][0]

    def _fields_of_numbers(self) -> list[str]:
        """Return the names of the fields whose values have an order; others are called words."""
        names = self._varied_fields()
        for values in self._values.values():
            for name, value in values.items():
                if name in names and (
                    isinstance(value, bool) or not isinstance(value, int | float)
                ):
                    names.remove(name)
        return names

    def _lines_over(self, field: str) -> list[Line]:
        """Return the objectives over one field, a line for each method and the other values.

        ``line.words`` and ``line.others`` are the values of the other fields, those of words and
        of numbers. Behind these lines come the times of steps with all links, one for each set of
        other values. Rows without an objective are left out.
        """
        from optmatch.plotting.comparison import Line

        fields_of_numbers = self._fields_of_numbers()
        lines: dict[tuple[str, str, str], Line] = {}
        for row in [*self, *self._between]:
            if row.name not in self._values or not isinstance(row.objective, int | float):
                continue

            # Rows of a line share the method and the values of all other fields.
            values = self._values[row.name]
            words: list[str] = []
            others: list[str] = []
            for name, value in values.items():
                if name != field:
                    described = others if name in fields_of_numbers else words
                    described.append(_describe_value(name, value))
            group = (", ".join(words), ", ".join(others))

            # Rows in between, which were added where lines cross, belong to lines over one field
            # alone: over another field they make no lines of their own.
            key = (row.method, *group)
            if key not in lines and row in self._between:
                continue
            line = lines.setdefault(key, Line(*key, values, [], [], [], {}))
            line.values.append(values[field])
            line.objectives.append(row.objective)
            line.bounds.append(row.lower_bound if is_known(row.lower_bound) else np.nan)
            if row.slots is not None:  # of all-to-alls alone: they come before the objective
                line.slots_of[values[field]] = row.slots

            # Steps with all links are the same by each method, and are their own bounds.
            step_s = self._details.get(row.key, {}).get("all_links_s")
            if step_s is not None:
                key = (_ALL_LINKS, *group)
                line = lines.setdefault(key, Line(*key, values, [], [], [], {}))
                if values[field] not in line.values:
                    line.values.append(values[field])
                    line.objectives.append(step_s)
                    line.bounds.append(np.nan)
        return sorted(lines.values(), key=lambda line: line.method == _ALL_LINKS)

    def conclusions(self) -> list[str]:
        """Say where lines of a variation cross, which is lowest, and what changes no answer."""
        unchanging = [
            f"answers are the same at every value of {field}"
            for field in self._varied_fields()
            if self._changes_nothing(field)
        ]
        crossings = [*self._describe_crossings(), *self._describe_leaders()]
        return [*crossings, *unchanging]

    def _changes_nothing(self, field: str) -> bool:
        """Tell whether a field has several values, and all of them have the same answers.

        Answers are compared by objective and slots, where methods and all other fields are equal.
        """
        merits_of_rest: dict[str, list[Any]] = {}
        for row in self:
            if row.objective is not None:
                rest = {**self._values[row.name], field: None, "method": row.method}
                merits_of_rest.setdefault(str(rest), []).append(_merit(row))
        are_equal = all(len(set(merits)) == 1 for merits in merits_of_rest.values())
        return are_equal and any(len(merits) > 1 for merits in merits_of_rest.values())

    def _describe_crossings(self) -> Iterator[str]:
        """Say between which values of a field lines of a variation cross."""
        for crossing in self.crossings():
            unit = split_unit(crossing.field)[1]
            last, following, value = (
                write_amount(amount, unit, digits=3)
                for amount in (crossing.last_value, crossing.next_value, crossing.value)
            )
            between = f"between {crossing.field} = {last} and {following}"
            place = f" at {crossing.others}" if crossing.others else ""

            # No plan is below all links at once: it matters from where it is noticeably longer.
            if _LIMIT_OF_STEPS in (crossing.before, crossing.after):
                begins = "begins" if crossing.after == _LIMIT_OF_STEPS else "ceases"
                (method,) = {crossing.before, crossing.after} - {_LIMIT_OF_STEPS}
                percent = 100 * (_NOTICEABLY_LONGER - 1)
                sentence = f"a step by {method} {begins} to take over {percent:.0f} % longer"
                yield f"{between} {sentence} than with all links{place}"
                continue
            sentence = (
                f"break-even: {between}, {crossing.after} falls below {crossing.before}{place}"
            )
            if crossing.value != crossing.last_value:
                sentence += f" (on straight lines at {value})"
            yield sentence

    def _describe_leaders(self) -> Iterator[str]:
        """Say which of several methods has the least objective, over the values of a single field.

        An algorithm that a method has chosen itself stands behind its name.
        """
        varied_fields = self._varied_fields()
        has_order = len(varied_fields) == 1 and varied_fields == self._fields_of_numbers()
        if len({row.method for row in self}) < 2 or not has_order:
            return

        # The best row of each value; the first one of equal methods leads.
        leader_of_value: dict[float, Row] = {}
        answered = [row for row in self if isinstance(row.objective, int | float)]
        for row in sorted(answered, key=_merit):
            leader_of_value.setdefault(self._values[row.name][varied_fields[0]], row)

        # Neighbouring values with the same leader are told together.
        def name_leader(value: float) -> str:
            """Return the method, and the algorithm that it has chosen."""
            row = leader_of_value[value]
            algorithm = self._details.get(row.key, {}).get("algorithm")
            return f"{row.method} ({algorithm})" if algorithm else row.method

        texts = []
        for name, values in groupby(sorted(leader_of_value), key=name_leader):
            first, *others = (_describe_value(varied_fields[0], value) for value in values)
            texts.append(f"{name} at {' to '.join([first, *others[-1:]])}")
        if texts:
            yield f"least objective: {', '.join(texts)}"

    def crossings(self) -> list[Crossing]:
        """Return where lines of two methods, or of two words, cross, field by field.

        All else is the same on both lines. Between two values that were solved, lines are taken to
        be straight. Lines that touch and part again do not cross, but those that are equal at
        first do, where they part. Values that are no numbers have no order.
        """
        return [crossing for crossing, *_ in self._crossing_lines()]

    def _crossing_lines(self) -> list[tuple[Crossing, Line, Line]]:
        """Return the crossings, each with its two lines, field by field, then by its value."""
        crossing_lines: list[tuple[Crossing, Line, Line]] = []
        for field in self._fields_of_numbers():
            found = []
            for first, second in combinations(self._lines_over(field), 2):
                # Lines with all links there at once are bounds: among themselves they say nothing.
                if first.others != second.others or {first.method, second.method} == {_ALL_LINKS}:
                    continue
                if first.words == second.words or first.method == second.method:
                    compared = second
                    if second.method == _ALL_LINKS:
                        limits_s = [_NOTICEABLY_LONGER * step_s for step_s in second.objectives]
                        compared = second._replace(method=_LIMIT_OF_STEPS, objectives=limits_s)
                    found += [(each, first, second) for each in _cross(first, compared, field)]
            crossing_lines += sorted(found, key=lambda entry: entry[0])
        return crossing_lines

    def _solves_between(self) -> list[tuple[dict[str, Any], str]]:
        """Return what narrows crossings down: values of all fields, and the method to solve by.

        Both lines of a crossing get a value halfway between those that it lies between. The middle
        of values > 0 is their geometric mean; that of whole numbers is rounded.
        """
        solves = []
        for crossing, *lines in self._crossing_lines():
            last, following = crossing.last_value, crossing.next_value
            middle = math.sqrt(last * following) if last > 0 else (last + following) / 2
            if isinstance(last, int) and isinstance(following, int):
                middle = round(middle)
            for line in lines:
                values = {**line.fixed, crossing.field: middle}
                if values not in self._values.values():
                    solves.append((values, line.method))
        return solves

    def _narrowed_by(self, other: MethodComparison) -> MethodComparison:
        """Return this study, with the rows of another one as further points of its lines."""
        return MethodComparison(
            self,
            complete=other.complete,
            units=self._units,
            values={**self._values, **other._values},
            details={**self._details, **other._details},
            between=[*self._between, *other],
        )

    def plot(
        self,
        *,
        fig: Figure | None = None,
        ax: Axes | None = None,
        title: str | None = None,
        profiles: bool | None = None,
    ) -> Figure:
        """Draw lines over the field that varies, else dots by problem, or profiles of many.

        Dots are objectives over the smallest one of their problem. Of more than a dozen problems a
        performance profile shows how often each method is within a factor of the best objective,
        and of the shortest time.

        Parameters
        ----------
        fig
            An empty figure to draw in; None makes a new one.
        ax
            Axes to draw in instead; profiles need two, and take none.
        title
            A title above.
        profiles
            Whether profiles are drawn instead of dots; None: of more than a dozen problems.
        """
        from optmatch.plotting import comparison

        if profiles is None:
            profiles = len({row.name for row in self}) > _MOST_ROWS

        # Lines of fields that vary, profiles of many problems, or dots of a few.
        if self._values:
            unit = next(iter(self._units.values()), "")
            field = self._first_field()
            lines = self.lines()
            if not lines:
                raise InputError("no objectives over a field to draw", where="fields")
            crossings = [crossing for crossing in self.crossings() if crossing.field == field]
            drawn = comparison.plot_variation(lines, field, unit, crossings, fig=fig, ax=ax)

        # Without fields: profiles, or dots.
        elif profiles:
            if ax is not None:
                raise InputError("profiles take two axes: give an empty figure, fig", where="ax")
            # A method that accepts none of the problems has no line.
            suiting = {row.method for row in self if row.status != REFUSED}
            ratios = compare_rows((row.method, row) for row in self if row.method in suiting)
            drawn = comparison.plot_profiles(ratios.quality, ratios.time, fig=fig)
        else:
            drawn = comparison.plot_methods(self, fig=fig, ax=ax)
        titled(drawn, title, ax)
        return drawn


def _merit(row: Row) -> tuple[float, ...]:
    """Return how good a row is, less is better, to nine digits: of all-to-alls slots come first.

    Objectives may have levels.
    """
    levels: Any = row.objective if isinstance(row.objective, tuple) else (row.objective,)
    return (row.slots or 0, *(float(f"{level:.9g}") for level in levels))


def _cross(first: Line, second: Line, field: str) -> list[Crossing]:
    """Return where two lines over a field cross, by linear interpolation.

    Lines that are equal at first cross at the last value at which they are. Differences of 3, 0
    and -1 at the values 1, 2 and 3 cross at 2: the last value is the one of difference 0, and the
    last sign still that of 3. Objectives of different numbers of slots do not compare: no crossing
    is sought beside such a value.
    """
    crossings = []
    objective_of = dict(zip(second.values, second.objectives, strict=True))
    last: tuple[float, float] | None = None  # a value, and first minus second there
    last_sign = 0  # of the last difference that was not 0

    # Values that only one line has, or where slots differ, are passed over.
    for value, objective in sorted(zip(first.values, first.objectives, strict=True)):
        if value not in objective_of:
            continue
        if first.slots_of.get(value) != second.slots_of.get(value):
            last = None
            continue
        difference = objective - objective_of[value]
        if abs(difference) <= 1e-9 * abs(objective):
            last = (value, 0.0)
            continue

        # The sign is not that of the last difference other than 0: both lines cross between the
        # last value and this one. Behind a value of different slots there is no last value.
        sign = 1 if difference > 0 else -1
        if last is not None and sign != last_sign:
            # Differences of 3 and then -1 are 0 at the share 3 / (3 + 1) of the way between.
            share = last[1] / (last[1] - difference)

            # The lines differ in the values of other fields of words, such as "dp ring" (`words`),
            # or else in their methods, and share the rest.
            names = (first.method, second.method)
            shared = ", ".join(filter(None, (first.words, first.others)))
            if first.words != second.words:
                names = (first.words, second.words)
                shared = ", ".join(filter(None, (first.method, first.others)))

            # The line that is lower behind the crossing comes second.
            before, after = names if sign > 0 else names[::-1]
            crossing_value = last[0] + share * (value - last[0])
            crossings.append(
                Crossing(crossing_value, before, after, field, shared, last[0], value)
            )
        last = (value, difference)
        last_sign = sign
    return crossings


def compare_methods(
    problems: Mapping[str, Problem] | Iterable[Problem],
    methods: Sequence[str] | None = None,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    on_event: OnEvent = ignore,
) -> MethodComparison:
    """Solve the same problems by several methods, and put the results into a table.

    Parameters
    ----------
    problems
        Problems by name; or problems without names, which are named by kind and place, as
        ``"demand 0"``.
    methods
        Names of methods, ``"default"`` for that of each kind. One that does not accept a problem
        has a row with status ``"refused"``. None compares, for each problem, all methods that
        accept it.
    seed
        The seed of the random numbers of each method.
    time_limit_s
        The limit in seconds for each method on each problem; None for none.
    on_event
        Called with the events of the methods.

    Returns
    -------
    MethodComparison
        A list of rows, by problem, then by method, in the given orders; each has the status, the
        objective, the bound and the time. Every answer has been verified. After Ctrl-C it has the
        rows that are there, and is not ``complete``.

    Raises
    ------
    InputError
        If there is no method of some name, or `problems` holds something else.

    See Also
    --------
    vary : The same problem with other values of its fields.
    sweep : Many problems on many processes, and a file that keeps the results.

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
    if not isinstance(problems, Mapping):
        listed = list_entries("problems", problems, "problems by name, or a list of problems,")
        problems = {
            f"{getattr(problem, 'kind', 'problem')} {place}": problem
            for place, problem in enumerate(listed)
        }
    named_problems = {str(name): problem for name, problem in problems.items()}
    if len(named_problems) < len(problems):
        raise InputError("problems: two of them have the same name", where="problems")
    form_of(Mapping[str, Problem]).check("problems", named_problems)

    named_methods = _check_methods(methods)
    tasks = [
        Task(problem, method, seed=seed, limits=Limits(time_s=time_limit_s), name=name)
        for name, problem in named_problems.items()
        for method in (named_methods or fitting_methods(problem))
    ]
    return _solve_in_order(tasks, on_event=on_event)


def vary(
    problem: Problem,
    fields: Mapping[str, Sequence[Any]],
    methods: Sequence[str] | None = None,
    *,
    seed: int = 0,
    time_limit_s: float | None = None,
    store: str | os.PathLike[str] | None = None,
    executor: Submits | None = None,
    n_workers: int = 0,
    on_event: OnEvent = ignore,
) -> MethodComparison:
    """Solve a problem for each value of a field, or of several, by one method or several.

    The result says how the objective depends on the field, and where one method falls below
    another: from which delay on fixed circuits are better, or which algorithm of a collective is
    the fastest for which size. Where lines of two methods cross, both solve three values more in
    between, by bisection. These have no rows.

    Parameters
    ----------
    problem
        The problem.
    fields
        The values of each field by its name, as ``{"delay_s": [1e-5, 1e-3]}``. A field of a part
        of the problem is named with the part where several have such a field, as
        ``"network.delay_s"``. Of several fields all combinations are solved. A number for a figure
        of cells, as ``"cells.bar_loss_db"``, is that of all cells, and those that are of one
        device follow ``"cells.device.bar_loss_db"``.
    methods
        Names of methods; None for the default one. An answer of a search for the next value is
        taken if it is valid and better: a plan for a delay of 1 ms is one for 100 us.
    seed
        The seed of the random numbers of each solve.
    time_limit_s
        The limit in seconds for each solve; None for none.
    store
        A file that keeps the results, as of `sweep`: what it has is not solved again.
    executor, n_workers
        As of `sweep`, where 0 solves in this process.
    on_event
        Called with the events of methods, in this process, and with a `Tick` after each solve.

    Returns
    -------
    MethodComparison
        A list of rows, by values, then by method. ``crossings()`` says where lines cross, and
        ``plot()`` draws them with their bounds. After Ctrl-C it has the rows that are there.

    Raises
    ------
    InputError
        If the problem has no such field, a value is out of its range, or no method has a name.

    See Also
    --------
    compare_methods : Several problems.

    Examples
    --------
    >>> import optmatch as om
    >>> problem = om.Collective("all-gather", 8, 1e6, alpha_s=1e-6, rate_bytes_per_s=50e9)
    >>> study = om.vary(problem, {"delay_s": [1e-6, 1e-4]}, ["ring", "bruck"])
    >>> [(row.method, round(1e6 * row.objective, 1)) for row in study]
    [('ring', 24.5), ('bruck', 22.5), ('ring', 24.5), ('bruck', 220.5)]
    >>> [(f"{crossing.value:.2g} s", crossing.after) for crossing in study.crossings()]
    [('2e-06 s', 'ring')]
    >>> [(f"{c.last_value:.2g} s", f"{c.next_value:.2g} s") for c in study.crossings()]
    [('1.8e-06 s', '3.2e-06 s')]
    """
    form_of(Problem).check("problem", problem)
    checked = form_of(Mapping[str, Sequence[Any]]).check("fields", fields)
    if not checked or not all(len(values) for values in checked.values()):
        raise InputError("fields: one field or more, each with values", where="fields")
    paths = {name: find_field(problem, name) for name in checked}
    named_methods = _check_methods(methods) or [None]

    # All combinations of values, by each method.
    base = Task(problem, seed=seed, limits=Limits(time_s=time_limit_s))
    options = {"store": store, "executor": executor, "n_workers": n_workers, "on_event": on_event}
    solves = [
        (dict(zip(checked, combination, strict=True)), method)
        for combination in product(*checked.values())
        for method in named_methods
    ]
    study = _solve_for_values(base, paths, solves, options)

    # Where lines cross, both methods solve a value in between, which nobody asked for, again and
    # again. There is none between neighbouring whole numbers, and the problem may refuse it.
    for _ in range(_N_HALVINGS):
        solves_between: list[tuple[dict[str, Any], str]] = []
        for values, method in study._solves_between():
            with suppress(InputError):
                _with_values(problem, paths, values)
                solves_between.append((values, method))
        if not study.complete or not solves_between:
            break
        study = study._narrowed_by(_solve_for_values(base, paths, solves_between, options))
    return study


def _solve_for_values(
    base: Task,
    paths: Mapping[str, Sequence[str]],
    solves: Sequence[tuple[dict[str, Any], str | None]],
    options: Mapping[str, Any],
) -> MethodComparison:
    """Solve a problem with other values of its fields: for each of `solves`, values and a method.

    `base` has the problem, the seed and limits; ``paths[name]`` leads to the field of a name, as
    `find_field` returns it. `options` are those of a sweep.
    """
    tasks = []
    values_of_name: dict[str, dict[str, Any]] = {}
    for values, method in solves:
        task_name = ", ".join(f"{name}={value}" for name, value in values.items())
        values_of_name[task_name] = values
        if method != _ALL_LINKS:  # a step with all links at once needs no solve
            varied = _with_values(base.problem, paths, values)
            tasks.append(replace(base, problem=varied, method=method, name=task_name))
    return _solve_in_order(tasks, values=values_of_name, **options)


def _solve_in_order(
    tasks: Sequence[Task],
    *,
    values: Mapping[str, Mapping[str, Any]] | None = None,
    n_workers: int = 0,
    **options: Any,
) -> MethodComparison:
    """Run a sweep, and return its rows in the order of the tasks; Ctrl-C ends it early.

    The rows of tasks that are equal but for their names are one row of the sweep.
    """
    row_of_key: dict[str, Row] = {}
    complete = True
    try:
        for row in sweep(tasks, n_workers=n_workers, **options):
            row_of_key[row.key] = row
    except KeyboardInterrupt:
        complete = False
    if values is not None:
        _hand_on_answers(tasks, row_of_key)
    rows = [replace(row_of_key[t.key()], name=t.name) for t in tasks if t.key() in row_of_key]
    units = {task.name: unit_of(task.problem) for task in tasks}

    # Columns of one kind, where values vary: which algorithm of a collective won, and the step on
    # rails without any change. An algorithm that the method already names says nothing new.
    details: dict[str, dict[str, Any]] = {}
    for task in tasks:
        result = row_of_key.get(task.key())
        if result is None or values is None:
            continue

        # The answer of a collective tells its algorithm.
        if result.answer is not None:
            algorithm = result.solution(task.problem).stats.get("algorithm", result.method)
            if algorithm != result.method:
                details[result.key] = {"algorithm": algorithm}
        step_s = getattr(task.problem, "all_links_s", None)
        if step_s is not None:
            details[result.key] = {"all_links_s": step_s}
            if step_s and isinstance(result.objective, int | float):
                longer = round(result.objective / step_s - 1, 9)  # no rounding of floats
                details[result.key]["longer"] = longer
    return MethodComparison(rows, complete=complete, units=units, values=values, details=details)


def _hand_on_answers(tasks: Sequence[Task], row_of_key: dict[str, Row]) -> None:
    """Give a row of `row_of_key` the answer for a neighbouring value, if it is valid and better.

    `tasks` are in the order of the values. Answers of each method that can start from one go from
    the last value towards the first, then back. A plan of rails for a delay of 1 ms, for example,
    is one for 100 us.
    """
    places_of_method: dict[str | None, list[int]] = {}
    for place, task in enumerate(tasks):
        row = row_of_key.get(task.key())
        if row is not None and row.done and find_method(row.method, task.problem).warm:
            places_of_method.setdefault(task.method, []).append(place)
    for places in places_of_method.values():
        for giver, taker in (*pairwise(places[::-1]), *pairwise(places)):
            given: Any = row_of_key[tasks[giver].key()]
            taken: Any = row_of_key[tasks[taker].key()]
            if None in (given.objective, taken.objective) or given.score >= taken.score:
                continue
            problem = tasks[taker].problem
            answer = take_up(problem, given.solution(tasks[giver].problem), taken.method)
            if answer is None:
                continue
            united = unite(taken.solution(problem), answer)
            united = replace(united, proof=taken.proof, time_s=taken.time_s)
            better: Any = row_of(tasks[taker], united)
            if better.score < taken.score:
                row_of_key[taken.key] = better


def find_field(record: Any, name: str) -> tuple[str, ...]:
    """Return the names that lead from a problem to one of its fields, the field last.

    `record` is the problem. A name without dots may be that of a field of the problem, else of one
    of its parts: ``delay_s`` of a rail job leads to ``("network", "delay_s")``. Parts are searched
    level by level (breadth-first). An entry of a mapping is named by its key, as ``late_s.63``.
    """
    first, *rest = name.split(".")
    level: list[tuple[tuple[str, ...], Any]] = [((), record)]
    known_names: list[str] = []

    # Level by level: the fields of the record, then those of its parts, and so on.
    while level:
        members = [
            ((*path, field.name), getattr(part, field.name))
            for path, part in level
            for field in fields(part)
        ]
        known_names += [".".join(path) for path, _ in members]
        found = [(path, value) for path, value in members if path[-1] == first]

        # The nearest level that has the field counts; two of them there are refused.
        if len(found) > 1:
            listed = ", ".join(".".join([*path, *rest]) for path, _ in found)
            raise InputError(f"{name!r}: which of {listed}?", where="fields")
        if found:
            (path, value), *_ = found
            if isinstance(value, Mapping) and len(rest) > 1:
                raise InputError(f"{name!r}: entries of {first} have no fields", where="fields")
            if isinstance(value, Mapping):  # such as late_s.63, the time of rank 63
                return (*path, *rest)
            return path + find_field(value, ".".join(rest)) if rest else path
        level = [(path, value) for path, value in members if is_dataclass(value)]

    # No level has it: the nearest name is proposed.
    words = {word.rpartition(".")[2]: word for word in reversed(known_names)}
    close = get_close_matches(first, words, n=1, cutoff=0.5)
    hint = f"perhaps {words[close[0]]!r}" if close else f"fields are {', '.join(known_names)}"
    raise InputError(f"{name!r}: no field of this problem; {hint}", where="fields")


def _with_values(
    problem: Problem, paths: Mapping[str, Sequence[str]], values: Mapping[str, Any]
) -> Problem:
    """Return a problem with other values of fields, to which ``paths[name]`` leads."""
    for name, value in values.items():
        problem = _with_field(problem, paths[name], value)
    return problem


def _with_field(record: Any, path: Sequence[str], value: Any) -> Any:
    """Return a record with another value of a field, which may be one of its parts' fields.

    A field that is a mapping has parts by their keys. A number for a column of a table of cells is
    that of all cells.
    """
    first, *rest = path
    if isinstance(record, Mapping):
        return {**record, first: value}
    if rest:
        value = _with_field(getattr(record, first), rest, value)
    if isinstance(record, CellDevice) and first == "device":
        return _with_device(record, record.device, value)
    if isinstance(record, CellDevice) and value is not None and np.ndim(value) == 0:
        value = np.full(record.n_cells, form_of(float).check(first, value))
    changes = {first: value}

    # A problem that states losses has made the device of its cells with them.
    cells = getattr(record, "cells", None)
    if isinstance(cells, CellDevice) and first in CELL_FIELDS:
        former = replace(cells.device, **{first: getattr(record, first)})
        changes["cells"] = _with_device(cells, former, replace(former, **changes))
    return replace(record, **changes)


def _with_device(cells: CellDevice, former: Device, device: Device) -> CellDevice:
    """Return a table of cells with another device, in all figures in which it differs.

    `former` is the device of which the table has a copy of each figure for each cell, but for
    those that were measured. The copies count, so a figure that was measured is refused.
    """
    former_cells = CellDevice.of(former, cells.n_cells)
    new_cells = CellDevice.of(device, cells.n_cells)
    changes: dict[str, Any] = {"device": new_cells.device}
    for name in CELL_FIELDS:
        former_column = former_cells.column(name)
        new_column = new_cells.column(name)
        if np.array_equal(former_column, new_column):
            continue
        if not np.array_equal(former_column, cells.column(name)):
            raise InputError(
                f"{name}: the cells have values of their own; the field that counts is"
                f" 'cells.{name}', where one number is that of all cells",
                where="fields",
            )
        changes[name] = new_column
    return replace(cells, **changes)


def _describe_value(name: str, value: Any) -> str:
    """Return a field and its value with its unit, in words."""
    words, unit = split_unit(name)
    words = words.rpartition(".")[2]
    return f"{words} {write_amount(value, unit) if isinstance(value, float) else value}"


def _check_methods(methods: Sequence[str] | None) -> list[str | None]:
    """Check that there are methods of these names; the default method is None."""
    checked: list[str | None] = []
    for method in form_of(Sequence[str] | None).check("methods", methods) or ():
        if method == DEFAULT:
            checked.append(None)
            continue
        check_method_name(method, where="methods")
        checked.append(method)
    return checked

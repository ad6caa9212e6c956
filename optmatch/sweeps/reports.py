"""Reports of a store: tables of methods and performance profiles; as CSV, Parquet and HTML."""

from __future__ import annotations

import html
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from optmatch.io.text import csv_text
from optmatch.model import Score, SolverUnavailable, gap_between, write_score
from optmatch.model.display import html_table, write_table
from optmatch.model.problem import split_unit, write_amount
from optmatch.plotting.comparison import Spread, draw_profile, draw_spreads
from optmatch.plotting.drawing import blank_figure
from optmatch.plotting.viewer import figure_svg
from optmatch.sweeps.store import COLUMNS, DAMAGED, FAILED, REFUSED, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = (1.0, 1.01, 1.05, 1.1, 1.25, 1.5, 2.0, 5.0)
"""The factors over the best for which a table states the share of tasks within them."""

# A number in the name of a problem, and the name of a parameter in front of one: a task of `vary`
# is called ``delay_s=1e-06, planes=2``.
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_PARAMETER = re.compile(r"([A-Za-z_][\w.]*)=$")

# Relative differences of two objectives below this count as equal.
_EQUAL_GAP = 1e-9


class _Grid(NamedTuple):
    """Gaps over one number in the names of problems, such as the size in ``solstice-16-0``.

    Parameters
    ----------
    family
        The names of the problems, with ``*`` for each number that differs.
    place
        Which number of the names it is, from 1.
    gaps : dict of method to dict of number to list of float
        The gaps of all problems, draws and seeds with that number.
    parameter
        The name that stands before the number, as ``delay_s``; empty without one.
    """

    family: str
    place: int
    gaps: dict[str, dict[float, list[float]]]
    parameter: str = ""

    @property
    def title(self) -> str:
        """What the number is: a parameter, or the place in the name where it stands."""
        return self.parameter or f"number {self.place} of the name"

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each number of a grid: its tasks with a known gap, and mean gaps.

        The mean gap of each method stands by its name, in percent; None without a task.
        """
        numbers = sorted({number for of_number in self.gaps.values() for number in of_number})
        words, unit = split_unit(self.parameter or "number")
        rows = []
        for number in numbers:
            written = write_amount(number, unit) if unit else f"{number:g}"
            row: dict[str, Any] = {words: written}
            counts = [len(of_number.get(number, [])) for of_number in self.gaps.values()]
            row["tasks"] = sum(counts)
            for method, of_number in self.gaps.items():
                gaps = of_number.get(number)
                row[method] = f"{100 * fmean(gaps):.3g} %" if gaps else None
            rows.append(row)
        return rows


class _KindReport(NamedTuple):
    """The methods on one kind of problem.

    Parameters
    ----------
    kind
        The kind of the problems.
    table
        The figures of the methods, a row for each.
    quality : dict of method to list of float
        The performance profile of a method (Dolan and More, 2002): for each task, its objective
        over the best of all methods on the same problem and seed; sorted, infinite without an
        answer.
    time : dict of method to list of float
        Its time over the shortest of the methods with the best objective; infinite with a worse
        one. Sorted.
    grids
        The gaps by size, of problems whose names differ in numbers alone.
    n_uneven
        How many problems, each with a seed, only some of the methods have.
    """

    kind: str
    table: list[dict[str, Any]]
    quality: dict[str, list[float]]
    time: dict[str, list[float]]
    grids: list[_Grid]
    n_uneven: int

    @property
    def note(self) -> str:
        """A sentence where means of methods are of different tasks, else empty."""
        if not self.n_uneven:
            return ""
        return (
            f"only some methods have run on {self.n_uneven:,} of the problems and seeds: means are"
            " of different tasks"
        )

    def shares(self) -> list[dict[str, Any]]:
        """Return the share of the tasks that each method solved within each factor of the best.

        A row has ``method``, and a share from 0 to 1 by each factor of `STEPS`.
        """
        table: list[dict[str, Any]] = []
        for method, ratios in self.quality.items():
            row: dict[str, Any] = {"method": method}
            for step in STEPS:
                n_within = sum(ratio <= step for ratio in ratios)
                row[f"{step:g}"] = n_within / max(1, len(ratios))
            table.append(row)
        return table


class SweepReport(NamedTuple):
    """The figures of a store."""

    rows: int
    """The number of tasks."""
    problems: int
    """The number of different problems among them."""
    statuses: dict[str, int]
    """How many tasks ended with each status, as ``"optimal"`` or ``"failed"``."""
    kinds: list[_KindReport]
    """A report for each kind of problem."""
    failures: list[Row]
    """Rows that were refused, failed or are damaged."""


def make_report(rows: Iterable[Row]) -> SweepReport:
    """Tabulate the rows of a sweep, one for each task, by kind of problem and method.

    A method has a row of the table for each set of limits and each version, where there are
    several. Its rank is the mean over all tasks, each a problem with a seed, of its place among
    the methods: methods as good as each other share the mean of their places.
    """
    all_rows = list(rows)

    # The columns of a damaged row are not to be trusted, so it counts among the failures alone.
    intact_rows = [row for row in all_rows if row.status != DAMAGED]
    rows_of_kind: dict[str, list[Row]] = defaultdict(list)
    for row in intact_rows:
        rows_of_kind[row.kind].append(row)

    kinds = []
    for kind, rows_of_one in sorted(rows_of_kind.items()):
        # A label is the name of a method, with limits and version only where these differ.
        settings = {(row.options, row.version) for row in rows_of_one}
        rows_of_label: dict[str, list[Row]] = defaultdict(list)
        for row in rows_of_one:
            label = row.method
            if len(settings) > 1:
                label = f"{row.method} {row.options} {row.version}"
            rows_of_label[label].append(row)
        rows_of_label = dict(sorted(rows_of_label.items()))
        n_labels_of_task = Counter(
            task
            for label_rows in rows_of_label.values()
            for task in {(row.problem_sha256, row.seed) for row in label_rows}
        )

        # How far the objectives and times of each label are from the best of each task; `n_uneven`
        # counts the tasks that only some labels have.
        ratios = compare_rows(
            (label, row) for label, label_rows in rows_of_label.items() for row in label_rows
        )
        kinds.append(
            _KindReport(
                kind,
                table=[_method_row(label, rows, ratios) for label, rows in rows_of_label.items()],
                quality={label: sorted(ratios.quality[label]) for label in rows_of_label},
                time={label: sorted(ratios.time[label]) for label in rows_of_label},
                grids=_list_grids(rows_of_label),
                n_uneven=sum(count < len(rows_of_label) for count in n_labels_of_task.values()),
            )
        )
    n_of_status = Counter(row.status for row in all_rows)
    return SweepReport(
        rows=len(all_rows),
        problems=len({row.problem_sha256 for row in intact_rows}),
        statuses=dict(sorted(n_of_status.items())),
        kinds=kinds,
        failures=[row for row in all_rows if not row.done],
    )


class _Ratios(NamedTuple):
    """How methods compare on the same problems and seeds: by label of a method, one entry each."""

    quality: dict[str, list[float]]
    """Objective over the best one."""
    time: dict[str, list[float]]
    """Time over the shortest with the best objective."""
    rank: dict[str, list[float]]
    """Place among the methods, from 1."""


def compare_rows(labelled_rows: Iterable[tuple[str, Row]]) -> _Ratios:
    """Compare the rows of methods, each with its label, on the same problems and seeds.

    A row is one solve of a problem by a method. A method that has not found the best objective has
    an infinite ratio of times; only rows with an objective have a rank.
    """
    contests: dict[tuple[str, int], list[tuple[str, Row]]] = defaultdict(list)
    for label, row in labelled_rows:
        contests[row.problem_sha256, row.seed].append((label, row))
    ratios = _Ratios(defaultdict(list), defaultdict(list), defaultdict(list))
    for contest in contests.values():
        scores = [row.score for _, row in contest if row.score is not None]
        if not scores:
            continue  # proved to be infeasible, or too hard for all
        best = min(scores)
        rated = [(label, row, _score_ratio(row.score, best)) for label, row in contest]

        # Times compare among the methods that have found the best objective.
        shortest_s = min(row.time_s for _, row, quality in rated if quality == 1.0)

        # Fewer slots of an all-to-all are better, whatever the ratio of objectives is.
        places = [(row.slots or 0, quality) for _, row, quality in rated]
        for (label, row, quality), place in zip(rated, places, strict=True):
            ratios.quality[label].append(quality)
            if quality != 1.0:
                time_ratio = math.inf
            elif shortest_s:
                time_ratio = max(1.0, row.time_s / shortest_s)
            else:
                time_ratio = 1.0
            ratios.time[label].append(time_ratio)

            # Equal methods share the mean of their places: two best ones are both at 1.5.
            if row.objective is not None:
                n_better = sum(other < place for other in places)
                n_equal = places.count(place)
                ratios.rank[label].append(1 + n_better + (n_equal - 1) / 2)
    return ratios


# Families of names that a report shows; beyond that they are no grid, but names of files.
_MAX_GRIDS = 6


def _list_grids(rows_of_label: dict[str, list[Row]]) -> list[_Grid]:
    """Group the results of problems whose names differ only in numbers, for charts against size.

    Such a group is a family: ``mesh-8-1``, ``mesh-8-2`` and ``mesh-16-1`` are ``mesh-*-*``. Each
    number that differs has a grid: ``gaps[label][8]`` are the gaps of a method where the first
    number is 8. There are at most `_MAX_GRIDS` grids. ``rows_of_label[label]`` are the results of
    a method.
    """
    # Names by what is left of them without their numbers: ``mesh-8-1`` is of ``mesh-*-*``, with
    # the numbers 8 and 1.
    names = {row.name for rows in rows_of_label.values() for row in rows}
    numbers_of_family: dict[str, list[list[str]]] = defaultdict(list)
    for name in sorted(names):
        numbers_of_family[_NUMBER.sub("*", name)].append(_NUMBER.findall(name))

    grids: list[_Grid] = []
    for family, numbers_of_name in numbers_of_family.items():
        values_of_place = [set(column) for column in zip(*numbers_of_name, strict=True)]
        differing = [place for place, values in enumerate(values_of_place) if len(values) > 1]
        words_before = family.split("*")

        # Numbers that all names have stay in the name of the family.
        first_numbers = numbers_of_name[0]
        shown, *rest = words_before
        for k, words in enumerate(rest):
            shown += ("*" if k in differing else first_numbers[k]) + words

        for place in differing:
            gaps = _gaps_by_number(rows_of_label, family, place)
            match = _PARAMETER.search(words_before[place])
            parameter = "" if match is None else match[1]
            if gaps and len(grids) < _MAX_GRIDS:
                grids.append(_Grid(shown, place + 1, gaps, parameter))
    return grids


def _gaps_by_number(
    rows_of_label: dict[str, list[Row]], family: str, place: int
) -> dict[str, dict[float, list[float]]]:
    """Return the known gaps of each method by the number at a place of the names of a family."""
    # In ``mesh-8-1`` of the family ``mesh-*-*`` the number at place 0 is 8.
    gaps: dict[str, dict[float, list[float]]] = {}
    for label, rows in rows_of_label.items():
        of_number: dict[float, list[float]] = defaultdict(list)
        for row in rows:
            is_known = row.gap is not None and math.isfinite(row.gap)
            if is_known and _NUMBER.sub("*", row.name) == family:
                of_number[float(_NUMBER.findall(row.name)[place])].append(row.gap or 0.0)
        if of_number:
            gaps[label] = dict(of_number)
    return gaps


def _method_row(label: str, rows: list[Row], ratios: _Ratios) -> dict[str, Any]:
    """Return the figures of one method as a row of the table; None where nothing is known."""
    # `best` counts the tasks of which it has the best objective, and `mean_over_best` is how many
    # times the best one its objectives are.
    gaps = [row.gap for row in rows if row.gap is not None and math.isfinite(row.gap)]
    times_s = [row.time_s for row in rows if row.done]
    n_of_status = Counter(row.status for row in rows)
    ranks = ratios.rank[label]
    finite_ratios = [ratio for ratio in ratios.quality[label] if math.isfinite(ratio)]
    return {
        "method": label,
        "tasks": len(rows),
        "optimal": n_of_status["optimal"],
        "answers": sum(row.objective is not None for row in rows),
        "infeasible": n_of_status["infeasible"],
        "failed": n_of_status[FAILED] + n_of_status[REFUSED],
        "best": finite_ratios.count(1.0),
        "rank": fmean(ranks) if ranks else None,
        "mean_gap": fmean(gaps) if gaps else None,
        "worst_gap": max(gaps, default=None),
        "mean_over_best": fmean(finite_ratios) if finite_ratios else None,
        "median_time_s": median(times_s) if times_s else None,
        "total_time_s": math.fsum(times_s),
    }


def _score_ratio(score: Score | None, best: Score) -> float:
    """Return a score divided by the best one: 1 for the best, infinite without one.

    Two scores of several levels compare by the first level that differs: two all-to-alls by their
    slots, and if these are equal by their objectives.
    """
    if score is None:
        return math.inf
    # The gap is (objective - best) / objective, hence the ratio 1 / (1 - gap).
    gap = gap_between(score, best)
    if gap <= _EQUAL_GAP:
        return 1.0
    if gap < 1:
        return 1 / (1 - gap)
    return math.inf


_STYLE = """body{font:14px/1.5 system-ui,sans-serif;max-width:64em;margin:2em auto;padding:0 1em;
color:#1f2937}table{border-collapse:collapse;margin:.6em 0 1.6em;display:block;overflow-x:auto}
th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid #e3e7ed;
font-variant-numeric:tabular-nums}th{white-space:nowrap;font-weight:600}
th:first-child,td:first-child{text-align:left}h1{font-size:1.5em}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,360px),1fr));gap:1em}
svg{width:100%;height:auto;max-width:480px}.failed td{text-align:left}
@media(max-width:600px){body{margin:1em auto;padding:0 .7em}}"""

# Failures that a page lists.
_MAX_FAILURES = 100


def _flat_row(row: Row) -> dict[str, Any]:
    """Return a result as a line of a table, in which each cell is one number or text.

    An objective of several levels stands as text in the column ``levels``; ``objective`` is None
    then.
    """
    cells: dict[str, Any] = {name: getattr(row, name) for name in COLUMNS}
    cells["slots"] = row.slots
    cells["levels"] = None
    if isinstance(row.objective, tuple):
        cells["levels"] = write_score(row.objective)
    for name in ("objective", "lower_bound"):
        score = cells[name]
        is_number = score is not None and not isinstance(score, tuple)
        cells[name] = float(score) if is_number else None
    return cells


def csv_table(rows: Iterable[Row]) -> bytes:
    """Write rows as CSV."""
    lines = [[*COLUMNS, "slots", "levels"], *(_flat_row(row).values() for row in rows)]
    return csv_text(lines).encode()


def parquet_table(rows: Iterable[Row]) -> bytes:
    """Write results as the content of a Parquet file, for which pyarrow has to be installed."""
    try:
        from pyarrow import BufferOutputStream, Table, parquet
    except ImportError as exc:
        raise SolverUnavailable("needs pyarrow: pip install 'optmatch[parquet]'") from exc
    stream = BufferOutputStream()
    parquet.write_table(Table.from_pylist([_flat_row(row) for row in rows]), stream)
    content: bytes = stream.getvalue().to_pybytes()
    return content


def html_page(report: SweepReport, title: str) -> str:
    """Write the results of a sweep as one page of HTML, which loads no other file.

    Each kind of problem has a chapter with three parts: a table with a row for each method; charts
    of gaps, in percent of the objective, against a number in the names of problems; and
    performance profiles, which show for which share of the problems a method is within a given
    factor of the best objective, or of the shortest time. Tasks without a result are listed at the
    end.
    """
    counts = ", ".join(f"{count:,} {status}" for status, count in report.statuses.items())
    parts = [
        "<!DOCTYPE html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{report.rows:,} tasks of {report.problems:,} problems: {html.escape(counts)}.</p>",
    ]

    # A chapter for each kind. A grid is one chart of gaps: those of the problems `family`, such as
    # ``mesh-*``, by the number that stands in the name; `place` 1 is the first number of a name.
    for kind in report.kinds:
        parts.append(f"<h2>{html.escape(kind.kind)}</h2><p>{kind.note}</p>")
        parts.append(html_table(write_table(kind.table)))
        # Gaps are shown in per cent: their mean, least and largest value by number.
        charts: list[str] = []
        for grid in kind.grids:
            heading = f"{grid.family}: mean gap by {grid.title}"
            parts.append(f"<h3>{html.escape(heading)}</h3>")
            parts.append(html_table(write_table(grid.table())))
            with _chart(charts, "Gap against size", "gap, %") as ax:
                label = grid.parameter or f"number {grid.place} in {grid.family}"

                # The spread of the gaps of each method.
                curves = {}
                for method, gaps_of_number in grid.gaps.items():
                    numbers = sorted(gaps_of_number)
                    gaps = [[100 * gap for gap in gaps_of_number[number]] for number in numbers]
                    curves[method] = Spread(
                        numbers,
                        list(map(fmean, gaps)),
                        list(map(min, gaps)),
                        list(map(max, gaps)),
                    )
                draw_spreads(ax, curves, label)
        with _chart(charts, "How near methods come to the best", "% of the tasks") as ax:
            draw_profile(ax, kind.quality, "objective, times the best")
        with _chart(charts, "How quick they are if they find the best", "% of the tasks") as ax:
            draw_profile(ax, kind.time, "time, times the shortest")
        parts.append(f"<div class='charts'>{''.join(charts)}</div>")

    # Tasks without a result: their number, and a table of the first ones.
    if report.failures:
        parts.append(f"<h2>Refused, failed, damaged ({len(report.failures):,})</h2>")
        columns = ("name", "method", "seed", "status", "error")
        table = [
            {column: getattr(row, column) for column in columns}
            for row in report.failures[:_MAX_FAILURES]
        ]
        parts.append(html_table(write_table(table), "failed"))
    return "\n".join(parts) + "</html>\n"


@contextmanager
def _chart(charts: list[str], title: str, ylabel: str) -> Iterator[Axes]:
    """Make axes as wide as a phone, and add the picture of what the block draws to the charts."""
    figure = blank_figure(5.4, 4.2)
    ax = figure.add_subplot()
    yield ax
    ax.set_title(title, fontsize=13)
    ax.set_ylabel(ylabel, fontsize=12)
    ax.xaxis.label.set_fontsize(12)
    ax.tick_params(labelsize=12)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower left", fontsize=12)
    charts.append(figure_svg(figure))

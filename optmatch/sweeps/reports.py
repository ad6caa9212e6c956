"""Reports of a store: tables of methods and performance profiles; as CSV, Parquet and HTML."""

from __future__ import annotations

import csv
import html
import io
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from optmatch.io.text import as_cell
from optmatch.model import Score, SolverUnavailable, gap_between, write_score
from optmatch.plotting.profiles import profile_svg
from optmatch.sweeps.tasks import COLUMNS, DAMAGED, FAILED, REFUSED, Row

STEPS = (1.0, 1.01, 1.05, 1.1, 1.25, 1.5, 2.0, 5.0)
"""The factors over the best for which a table states the share of tasks within them."""

# Relative differences of two objectives below this count as equal.
_EQUAL_GAP = 1e-9


class KindReport(NamedTuple):
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
    """

    kind: str
    table: list[dict[str, Any]]
    quality: dict[str, list[float]]
    time: dict[str, list[float]]

    def shares(self) -> list[dict[str, Any]]:
        """Return the share of the tasks that each method solved within each factor of the best."""
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
    problems: int
    statuses: dict[str, int]
    kinds: list[KindReport]
    failures: list[Row]
    """Rows that were refused, failed or are damaged."""


def make_report(rows: Iterable[Row]) -> SweepReport:
    """Tabulate rows by kind and method.

    A method has a row of the table for each set of limits and each version, where there are
    several. The rank of a method is the mean of its places on a problem with a seed; methods as
    good as each other share the mean of their places.
    """
    all_rows = list(rows)

    # The columns of a damaged row are not to be trusted, so it counts among the failures alone.
    intact_rows = [row for row in all_rows if row.status != DAMAGED]
    rows_of_kind: dict[str, list[Row]] = defaultdict(list)
    for row in intact_rows:
        rows_of_kind[row.kind].append(row)

    n_of_status = Counter(row.status for row in all_rows)
    return SweepReport(
        rows=len(all_rows),
        problems=len({row.problem_sha256 for row in intact_rows}),
        statuses=dict(sorted(n_of_status.items())),
        kinds=[_report_kind(kind, rows_of_kind[kind]) for kind in sorted(rows_of_kind)],
        failures=[row for row in all_rows if not row.done],
    )


class _Ratios(NamedTuple):
    """How methods compare on the same problems and seeds: by label of a method, one entry each."""

    quality: dict[str, list[float]]  # objective over the best one
    time: dict[str, list[float]]  # time over the shortest with the best objective
    rank: dict[str, list[float]]  # place among the methods, from 1


def _report_kind(kind: str, rows: list[Row]) -> KindReport:
    """Compare the methods on the problems of one kind.

    Parameters
    ----------
    kind
        The kind of all rows.
    rows
        The rows, none of them damaged.
    """
    # A label is the name of a method, with limits and version only where these differ.
    settings = {(row.options, row.version) for row in rows}
    rows_of_label: dict[str, list[Row]] = defaultdict(list)
    contests: dict[tuple[str, int], list[tuple[str, Row]]] = defaultdict(list)
    for row in rows:
        label = row.method
        if len(settings) > 1:
            label = f"{row.method} {row.options} {row.version}"
        rows_of_label[label].append(row)
        contests[row.problem_sha256, row.seed].append((label, row))

    ratios = _Ratios(defaultdict(list), defaultdict(list), defaultdict(list))
    for contest in contests.values():
        _compare_methods(contest, ratios)

    labels = sorted(rows_of_label)
    return KindReport(
        kind,
        [_method_row(label, rows_of_label[label], ratios) for label in labels],
        {label: sorted(ratios.quality[label]) for label in labels},
        {label: sorted(ratios.time[label]) for label in labels},
    )


def _method_row(label: str, rows: list[Row], ratios: _Ratios) -> dict[str, Any]:
    """Return the figures of one method as a row of the table; None where nothing is known."""
    gaps = [row.gap for row in rows if row.gap is not None and math.isfinite(row.gap)]
    times_s = [row.time_s for row in rows if row.done]
    ranks = ratios.rank[label]
    finite_ratios = [ratio for ratio in ratios.quality[label] if math.isfinite(ratio)]
    return {
        "method": label,
        "tasks": len(rows),
        "optimal": sum(row.status == "optimal" for row in rows),
        "answers": sum(row.objective is not None for row in rows),
        "infeasible": sum(row.status == "infeasible" for row in rows),
        "failed": sum(row.status in (FAILED, REFUSED) for row in rows),
        "best": sum(ratio == 1.0 for ratio in finite_ratios),
        "rank": fmean(ranks) if ranks else None,
        "mean_gap": fmean(gaps) if gaps else None,
        "worst_gap": max(gaps, default=None),
        "mean_over_best": fmean(finite_ratios) if finite_ratios else None,
        "median_time_s": median(times_s) if times_s else None,
        "total_time_s": math.fsum(times_s),
    }


def _compare_methods(contest: list[tuple[str, Row]], ratios: _Ratios) -> None:
    """Compare the answers of all methods to one problem with one seed.

    Parameters
    ----------
    contest : list of (label, row)
        The rows of the methods.
    ratios
        Gets one entry for each method; no rank for a method without an answer.
    """
    objectives = [row.objective for _, row in contest if row.objective is not None]
    if not objectives:
        return  # proved to be infeasible, or too hard for all
    best = min(objectives)
    qualities = [_objective_ratio(row.objective, best) for _, row in contest]

    # Times compare among the methods that have found the best objective.
    shortest_s = min(
        row.time_s for (_, row), quality in zip(contest, qualities, strict=True) if quality == 1.0
    )

    for (label, row), quality in zip(contest, qualities, strict=True):
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
            n_better = sum(other < quality for other in qualities)
            n_equal = qualities.count(quality)
            ratios.rank[label].append(1 + n_better + (n_equal - 1) / 2)


def _objective_ratio(objective: Score | None, best: Score) -> float:
    """Return an objective divided by the best one; infinite without an objective.

    Two objectives of several levels compare by the first level that differs. The gap is
    ``(objective - best) / objective``, hence the ratio ``1 / (1 - gap)``.
    """
    if objective is None:
        return math.inf
    gap = gap_between(objective, best)
    if gap <= _EQUAL_GAP:
        return 1.0
    if gap < 1:
        return 1 / (1 - gap)
    return math.inf


_STYLE = """body{font:14px/1.5 system-ui,sans-serif;max-width:64em;margin:2em auto;padding:0 1em;
color:#1f2937}table{border-collapse:collapse;margin:.6em 0 1.6em}th,td{padding:.2em .7em;
text-align:right;border-bottom:1px solid #e3e7ed;font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left}h1{font-size:1.5em}svg{max-width:100%}
.failed td{text-align:left}"""

# Failures that a page lists.
_MAX_FAILURES = 100


def flat_row(row: Row) -> dict[str, Any]:
    """Return a row as a line of a table, in which each cell is one number or text.

    An objective of several levels stands as text in the column ``levels``.
    """
    cells: dict[str, Any] = {name: getattr(row, name) for name in COLUMNS}
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
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, "levels"])
    writer.writerows(map(as_cell, flat_row(row).values()) for row in rows)
    return text.getvalue().encode()


def parquet_table(rows: Iterable[Row]) -> bytes:
    """Write rows as Parquet."""
    try:
        from pyarrow import BufferOutputStream, Table, parquet
    except ImportError as exc:
        raise SolverUnavailable("needs pyarrow: pip install 'optmatch[parquet]'") from exc
    stream = BufferOutputStream()
    parquet.write_table(Table.from_pylist([flat_row(row) for row in rows]), stream)
    content: bytes = stream.getvalue().to_pybytes()
    return content


def html_page(report: SweepReport, title: str) -> str:
    """Write a report as one page of HTML that loads nothing else.

    Parameters
    ----------
    report
        The figures of a store.
    title
        The title of the page, not yet escaped.
    """
    counts = ", ".join(f"{count:,} {status}" for status, count in report.statuses.items())
    parts = [
        "<!DOCTYPE html><html lang='en'><meta charset='utf-8'>",
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{report.rows:,} tasks of {report.problems:,} problems: {html.escape(counts)}.</p>",
    ]

    # A table and two performance profiles for each kind.
    for kind in report.kinds:
        parts.append(f"<h2>{html.escape(kind.kind)}</h2>")
        parts.append(_html_table(kind.table))
        parts.append(profile_svg(kind.quality, "objective, times the best"))
        parts.append(profile_svg(kind.time, "time, times the shortest to the best objective"))

    if report.failures:
        parts.append(f"<h2>Refused, failed, damaged ({len(report.failures):,})</h2>")
        columns = ("name", "method", "seed", "status", "error")
        table = []
        for row in report.failures[:_MAX_FAILURES]:
            table.append({column: getattr(row, column) for column in columns})
        parts.append(_html_table(table, "failed"))
    return "\n".join(parts) + "</html>\n"


def _html_table(rows: Sequence[dict[str, Any]], style: str = "") -> str:
    """Write rows of equal keys as a table of HTML; `style` is its class of CSS."""
    if not rows:
        return ""
    titles = [html.escape(name.replace("_", " ")) for name in rows[0]]
    head = "".join(f"<th>{title}</th>" for title in titles)
    lines = []
    for row in rows:
        cells = [html.escape(show(value)) for value in row.values()]
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    body = "\n".join(lines)
    return f"<table class='{style}'><tr>{head}</tr>\n{body}</table>"


def show(value: Any) -> str:
    """Write an entry of a table for readers."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

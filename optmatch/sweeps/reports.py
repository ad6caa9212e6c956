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
from optmatch.model import SolverUnavailable, gap_between, write_score
from optmatch.plotting.profiles import profile_svg
from optmatch.sweeps.tasks import COLUMNS, DAMAGED, FAILED, REFUSED, Row

STEPS = (1.0, 1.01, 1.05, 1.1, 1.25, 1.5, 2.0, 5.0)
"""The factors over the best at which tables look at a profile."""


class KindReport(NamedTuple):
    """The methods on one kind of problem."""

    kind: str
    table: list[dict[str, Any]]
    quality: dict[str, list[float]]
    """``quality[method]``: for each task, the objective over the best of all methods on the same
    problem and seed; sorted, infinite without an answer."""
    time: dict[str, list[float]]
    """The time over the shortest of those with the best objective; infinite with a worse one."""

    def shares(self) -> list[dict[str, Any]]:
        """Return which part of the tasks each method has done within some factors of the best."""
        return [
            {
                "method": method,
                **{
                    f"{step:g}": sum(ratio <= step for ratio in ratios) / max(1, len(ratios))
                    for step in STEPS
                },
            }
            for method, ratios in self.quality.items()
        ]


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

    A method has a row for each set of limits and each version, where there are several. The rank
    of a method is the mean of its places on a problem with a seed; methods as good as each other
    share theirs.
    """
    found = list(rows)
    by_kind: dict[str, list[Row]] = defaultdict(list)
    failures = [row for row in found if not row.done]
    for row in found:
        if row.status != DAMAGED:
            by_kind[row.kind].append(row)
    return SweepReport(
        rows=len(found),
        problems=len({row.problem_sha256 for row in found if row.status != DAMAGED}),
        statuses=dict(sorted(Counter(row.status for row in found).items())),
        kinds=[_of_kind(kind, by_kind[kind]) for kind in sorted(by_kind)],
        failures=failures,
    )


def _of_kind(kind: str, rows: list[Row]) -> KindReport:
    several = len({(row.options, row.version) for row in rows}) > 1
    questions: dict[Any, list[tuple[str, Row]]] = defaultdict(list)
    by_label: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        label = f"{row.method} {row.options} {row.version}" if several else row.method
        by_label[label].append(row)
        questions[row.problem_sha256, row.seed].append((label, row))
    quality: dict[str, list[float]] = defaultdict(list)
    time: dict[str, list[float]] = defaultdict(list)
    ranks: dict[str, list[float]] = defaultdict(list)
    for asked in questions.values():
        _compare(asked, quality, time, ranks)
    table = []
    for label in sorted(by_label):
        here = by_label[label]
        known = [row.gap for row in here if row.gap is not None and math.isfinite(row.gap)]
        finite = [ratio for ratio in quality[label] if math.isfinite(ratio)]
        times = [row.time_s for row in here if row.done]
        table.append(
            {
                "method": label,
                "tasks": len(here),
                "optimal": sum(row.status == "optimal" for row in here),
                "answers": sum(row.objective is not None for row in here),
                "infeasible": sum(row.status == "infeasible" for row in here),
                "failed": sum(row.status in (FAILED, REFUSED) for row in here),
                "best": sum(ratio == 1.0 for ratio in finite),
                "rank": fmean(ranks[label]) if ranks[label] else None,
                "mean_gap": fmean(known) if known else None,
                "worst_gap": max(known, default=None),
                "mean_over_best": fmean(finite) if finite else None,
                "median_time_s": median(times) if times else None,
                "total_time_s": math.fsum(times),
            }
        )
    sort = ({m: sorted(ratios[m]) for m in sorted(by_label)} for ratios in (quality, time))
    return KindReport(kind, table, *sort)


def _compare(
    asked: list[tuple[str, Row]],
    quality: dict[str, list[float]],
    time: dict[str, list[float]],
    ranks: dict[str, list[float]],
) -> None:
    """Put the answers of methods to one problem with one seed beside each other."""
    scores = [row.objective for _, row in asked if row.objective is not None]
    if not scores:
        return  # proved to be infeasible, or too hard for all
    best = min(scores)
    ratios = [_ratio(row.objective, best) for _, row in asked]
    quickest = min(row.time_s for (_, row), r in zip(asked, ratios, strict=True) if r == 1.0)
    for (label, row), ratio in zip(asked, ratios, strict=True):
        quality[label].append(ratio)
        slower = max(1.0, row.time_s / quickest) if quickest else 1.0
        time[label].append(slower if ratio == 1.0 else math.inf)
        if math.isfinite(ratio) or row.objective is not None:
            better = sum(other < ratio for other in ratios)
            ranks[label].append(1 + better + (ratios.count(ratio) - 1) / 2)


def _ratio(objective: Any, best: Any) -> float:
    """Return how many times the best an objective is; of levels, the first that differs."""
    if objective is None:
        return math.inf
    gap = gap_between(objective, best)
    return 1.0 if gap <= 1e-9 else 1 / (1 - gap) if gap < 1 else math.inf


_STYLE = """body{font:14px/1.5 system-ui,sans-serif;max-width:64em;margin:2em auto;padding:0 1em;
color:#1f2937}table{border-collapse:collapse;margin:.6em 0 1.6em}th,td{padding:.2em .7em;
text-align:right;border-bottom:1px solid #e3e7ed;font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left}h1{font-size:1.5em}svg{max-width:100%}
.failed td{text-align:left}"""
_MOST_FAILURES = 100


def flat_row(row: Row) -> dict[str, Any]:
    """Return a row as a line of a table: levels have a column of their own, as text."""
    found: dict[str, Any] = {name: getattr(row, name) for name in COLUMNS}
    levels = isinstance(row.objective, tuple)
    found["levels"] = write_score(row.objective) if levels else None
    for name in ("objective", "lower_bound"):
        score = found[name]
        found[name] = None if score is None or isinstance(score, tuple) else float(score)
    return found


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
    """Write a report as one page that loads nothing."""
    told = ", ".join(f"{count:,} {status}" for status, count in report.statuses.items())
    parts = [
        "<!DOCTYPE html><html lang='en'><meta charset='utf-8'>",
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{report.rows:,} tasks of {report.problems:,} problems: {html.escape(told)}.</p>",
        *(_section(kind) for kind in report.kinds),
    ]
    if report.failures:
        parts.append(f"<h2>Refused, failed, damaged ({len(report.failures):,})</h2>")
        shown = report.failures[:_MOST_FAILURES]
        names = ("name", "method", "seed", "status", "error")
        parts.append(_table([{n: getattr(row, n) for n in names} for row in shown], "failed"))
    return "\n".join(parts) + "</html>\n"


def _section(kind: KindReport) -> str:
    return "\n".join(
        (
            f"<h2>{html.escape(kind.kind)}</h2>",
            _table(kind.table),
            profile_svg(kind.quality, "objective, times the best"),
            profile_svg(kind.time, "time, times the shortest to the best objective"),
        )
    )


def _table(rows: Sequence[dict[str, Any]], style: str = "") -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in rows[0])
    body = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(show(v))}</td>" for v in row.values()) + "</tr>"
        for row in rows
    )
    return f"<table class='{style}'><tr>{head}</tr>\n{body}</table>"


def show(value: Any) -> str:
    """Write an entry of a table for readers."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

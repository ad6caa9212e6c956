"""Sweeps for other programs: rows as CSV and Parquet, a report as one HTML page."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Sequence
from typing import Any

from optmatch.io.text import as_cell
from optmatch.model import SolverUnavailable, write_score
from optmatch.plotting.profiles import profile_svg
from optmatch.sweeps.reports import KindReport, SweepReport
from optmatch.sweeps.tasks import COLUMNS, Row

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

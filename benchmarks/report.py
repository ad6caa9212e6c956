"""Tables of one run of `make bench`, or of several side by side, and plots of how times grow.

    python benchmarks/report.py RUN.json... [-o SCALING.png]

The rows of two runs themselves: `pytest-benchmark compare RUN.json RUN.json --group-by=fullname`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]


def by_group(rows: list[Row], field: str) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows that have a field, by group."""
    having = [row for row in rows if field in row["extra_info"]]
    for group, members in groupby(having, key=lambda row: row["group"]):
        yield group, list(members)


def against_peers(rows: list[Row]) -> list[Row]:
    """Return for each peer its least time over ours, and its value over ours where it has one."""
    table = []
    for group, members in by_group(rows, "who"):
        ours = next(row for row in members if row["extra_info"]["who"] == "optmatch")
        for row in members:
            if row is ours:
                continue
            line = {"what": group, "peer": row["extra_info"]["who"]}
            line["time"] = row["stats"]["min"] / ours["stats"]["min"]
            if "value" in row["extra_info"]:
                line["value"] = row["extra_info"]["value"] / ours["extra_info"]["value"]
                line["of"] = row["extra_info"]["unit"]
            table.append(line)
    return table


def against_bounds(rows: list[Row]) -> list[Row]:
    """Return objectives over the best bound that is known, for each problem."""
    return [
        {"what": group, "over": row["extra_info"]["over_bound"], "s": row["stats"]["min"]}
        for group, members in by_group(rows, "over_bound")
        for row in members
    ]


def exponents(rows: list[Row]) -> list[Row]:
    """Fit time and memory as a power of the size, by least squares of their logarithms."""
    table = []
    for group, members in by_group(rows, "size"):
        infos = [row["extra_info"] for row in members]
        sizes = [info["size"] for info in infos]
        line = {"what": group, "sizes": sizes, "of": infos[0]["of"]}
        line["s"] = [row["stats"]["min"] for row in members]
        line["time_exponent"] = float(np.polyfit(np.log(sizes), np.log(line["s"]), 1)[0])
        line["mib"] = [info["memory_mib"] for info in infos]
        line["memory_exponent"] = float(np.polyfit(np.log(sizes), np.log(line["mib"]), 1)[0])
        table.append(line)
    return table


def show(runs: list[Row]) -> None:
    """Print the tables, a column for each run."""
    for name, keys, values in (
        ("peers", ("what", "peer"), ("time", "value", "of")),
        ("bounds", ("what",), ("over",)),
        ("scaling", ("what", "of"), ("time_exponent", "memory_exponent")),
    ):
        lines: dict[tuple[str, ...], list[str]] = {}
        for k, run in enumerate(runs):
            for row in run[name]:
                cells = lines.setdefault(tuple(row[key] for key in keys), [])
                cells += ["", *[""] * (len(values) - 1)] * (k - len(cells) // len(values))
                cells += [_cell(row.get(value, "")) for value in values]
        heads = [*keys, *(value.replace("_", " ") for value in values * len(runs))]
        print(f"\n{name}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
        for key, cells in lines.items():
            print(f"| {' | '.join([*key, *cells])} |")


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def draw(table: list[Row], target: Path) -> None:
    """Draw time and memory against size, and the fitted power."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    for ax, name, label in zip(
        figure.subplots(1, 2), ("s", "mib"), ("time (s)", "memory (MiB)"), strict=True
    ):
        for row in table:
            exponent = row["time_exponent" if name == "s" else "memory_exponent"]
            legend = f"{row['what']}: {row['of']}^{exponent:.1f}"
            ax.loglog(row["sizes"], row[name], "o-", label=legend)
        ax.set(xlabel="size", ylabel=label)
        ax.legend(fontsize="x-small")
    figure.savefig(target)


def main() -> None:
    """Print, and draw the last run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN.json")
    parser.add_argument("-o", "--output", type=Path, metavar="SCALING.png")
    args = parser.parse_args()
    runs = [json.loads(path.read_text("utf-8")) for path in args.runs]
    for path, run in zip(args.runs, runs, strict=True):
        print(f"{path}: commit {run['commit_info']['id'][:10]}, {run['datetime']}")
    show(runs)
    if args.output:
        draw(runs[-1]["scaling"], args.output)


if __name__ == "__main__":
    main()

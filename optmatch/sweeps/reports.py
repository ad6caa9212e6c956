"""What a store says: a table of methods for each kind of problem, and performance profiles."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import fmean, median
from typing import Any, NamedTuple

from optmatch.model import gap_between
from optmatch.sweeps.tasks import DAMAGED, FAILED, REFUSED, Row

STEPS = (1.0, 1.01, 1.05, 1.1, 1.25, 1.5, 2.0, 5.0)
"""Where tables look at a profile: so many times the best is still counted."""


class KindReport(NamedTuple):
    """The methods on one kind of problem."""

    kind: str
    table: list[dict[str, Any]]
    quality: dict[str, list[float]]
    """Of each method, for each task: the objective over the best of all methods on the same
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
    """What a store says."""

    rows: int
    problems: int
    statuses: dict[str, int]
    kinds: list[KindReport]
    failures: list[Row]
    """Rows that were refused, failed or are damaged."""


def make_report(rows: Iterable[Row]) -> SweepReport:
    """Tabulate rows by kind and method.

    A method has a row for each set of limits and each version, where there are several. Its rank
    is the mean of its places on a problem with a seed; methods as good as each other share theirs.
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
    """Put what methods made of one problem with one seed beside each other."""
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

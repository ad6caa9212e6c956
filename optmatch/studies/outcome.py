"""The result of a study: tables of figures, with means and confidence intervals over runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]
"""Figures by name."""


class Estimate(NamedTuple):
    """A mean and the half width of its confidence interval; 0 for a single run."""

    mean: float
    half_width: float
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:.4g} +- {self.half_width:.2g}"


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate a mean from independent runs, at 95 % by Student's t; NaNs are left out."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Estimate(math.nan, 0.0, 0)
    mean = math.fsum(known) / len(known)
    if len(known) == 1:
        return Estimate(mean, 0.0, 1)
    from scipy.stats import t  # a quarter of a second, and for intervals alone

    spread = math.fsum((value - mean) ** 2 for value in known) / (len(known) - 1)
    quantile = float(t.ppf(0.975, len(known) - 1))
    return Estimate(mean, quantile * math.sqrt(spread / len(known)), len(known))


def mean_row(name: str, values: Sequence[float]) -> Row:
    """Return the mean of some runs and the half width of its interval, under their names."""
    found = estimate(values)
    return {name: found.mean, f"{name}_half_width": found.half_width}


class Study(NamedTuple):
    """The outcome of a study."""

    name: str
    tables: dict[str, list[Row]]
    complete: bool
    """False if it was interrupted: the tables are of the runs before."""

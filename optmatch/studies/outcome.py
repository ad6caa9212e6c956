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
    """Estimate a mean from independent runs, at 95 % confidence by Student's t.

    Parameters
    ----------
    values
        The value of each run; NaNs are left out.

    Returns
    -------
    Estimate
        The mean, the half width of its interval (0 with fewer than two runs), and the number of
        runs that count. The mean is NaN without any.
    """
    numbers = [value for value in values if not math.isnan(value)]
    n_runs = len(numbers)
    if not n_runs:
        return Estimate(math.nan, 0.0, 0)
    mean = math.fsum(numbers) / n_runs
    if n_runs == 1:
        return Estimate(mean, 0.0, 1)
    from scipy.stats import t  # a quarter of a second, and for intervals alone

    variance = math.fsum((value - mean) ** 2 for value in numbers) / (n_runs - 1)
    quantile = float(t.ppf(0.975, n_runs - 1))
    return Estimate(mean, quantile * math.sqrt(variance / n_runs), n_runs)


def mean_row(name: str, values: Sequence[float]) -> Row:
    """Return the mean of some runs and the half width of its interval, under their names."""
    interval = estimate(values)
    return {name: interval.mean, f"{name}_half_width": interval.half_width}


class Study(NamedTuple):
    """The outcome of a study."""

    name: str
    tables: dict[str, list[Row]]
    complete: bool
    """False if it was interrupted: the tables are of the runs before."""

"""The result of a study: tables of figures, with means and confidence intervals over runs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from optmatch.io.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


class Study(ABC):
    """The outcome of a study: tables of figures, one picture, one JSON object.

    All studies can be shown and written alike. Those whose figures have types of their own, such
    as `YieldStudy`, have them as attributes, too.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """What was studied, such as "slices"."""

    @property
    @abstractmethod
    def tables(self) -> Mapping[str, Sequence[Row]]:
        """Rows of figures by title of table; all rows of a table have the same names."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """False if the study was interrupted: its tables are of what was done before."""

    def to_object(self) -> dict[str, Any]:
        """Return the study as an object for JSON; numbers that are not finite are strings."""
        content: dict[str, Any] = plain(
            {"study": self.name, "complete": self.complete, "tables": self.tables}
        )
        return content

    @abstractmethod
    def plot(self, *, fig: Figure | None = None) -> Figure:
        """Draw the study.

        Parameters
        ----------
        fig
            An empty figure to draw in; None makes a new one.

        Returns
        -------
        Figure
            The figure.

        Raises
        ------
        InputError
            If there is nothing to draw.
        """


class _Tables(NamedTuple):
    """The fields of a `TableStudy`."""

    name: str
    tables: dict[str, list[Row]]
    complete: bool


class TableStudy(_Tables, Study):
    """A study whose figures are its tables.

    Parameters
    ----------
    name
        What was studied: "slices", "spares", "blast-radius" or "collectives".
    tables
        Rows of figures by title of table.
    complete
        False if it was interrupted: the tables are of the runs before.
    """

    __slots__ = ()

    def plot(self, *, fig: Figure | None = None) -> Figure:
        """Draw the tables as charts beside each other."""
        from optmatch.plotting import plot_delays, plot_study

        if self.name == "collectives":
            return plot_delays(self.tables, fig=fig)
        return plot_study(self.name, self.tables, fig=fig)

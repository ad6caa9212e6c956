"""The result of a study: tables of figures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

from optmatch.io.text import plain
from optmatch.model.display import align_columns, dataframe, html_table, write_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")

Row = dict[str, Any]
"""Figures by name."""


class Study(ABC):
    """The outcome of a study: tables of figures, one picture, one JSON object.

    All studies can be shown and written alike. Those whose figures have types of their own, such
    as `YieldStudy`, have them as attributes, too.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """What was studied, such as "yield"."""

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

    def to_dataframe(self) -> Any:
        """Return the first table of the study as one of pandas."""
        rows = next(iter(self.tables.values()))
        return dataframe({name: [row[name] for row in rows] for name in (rows[0] if rows else ())})

    def written_rows(self) -> list[list[str]]:
        """Write the first table in words: its titles, then its rows, with units.

        Columns that only explain others, and methods that a problem does not suit, are left out;
        `explanations` has them. If no row is left, all are there.
        """
        rows = next(iter(self.tables.values()))
        return write_table([row for row in rows if row.get("status") != "refused"] or rows)

    def explanations(self) -> list[str]:
        """Say why rows of the first table have no answer, each reason of a method once."""
        names_of_reason: dict[tuple[str, str], list[str]] = {}
        for row in next(iter(self.tables.values())):
            if row.get("objective", 0) is None and row["reason"]:
                names = names_of_reason.setdefault((row["method"], row["reason"]), [])
                names.append(str(row.get("name", row["status"])))
        lines = []
        for (method, reason), names in names_of_reason.items():
            line = f"{names[0]}: {method}: {reason}"
            if len(names) > 1:
                line += f" (and {len(names) - 1} more)"
            lines.append(line)
        return lines

    def __str__(self) -> str:
        """Return the first table with units, and why rows were refused: what `print` shows."""
        lines = ["  ".join(cells).rstrip() for cells in align_columns(self.written_rows())]
        return "\n".join([*lines, *self.explanations()])

    def _repr_html_(self) -> str:
        """Show the first table in Jupyter, with units, and why rows were refused."""
        reasons = "".join(f"<p>{escape(line)}</p>" for line in self.explanations())
        return html_table(self.written_rows()) + reasons

    @abstractmethod
    def plot(self, *, fig: Figure | None = None, ax: Axes | None = None) -> Figure:
        """Draw the study.

        Parameters
        ----------
        fig
            An empty figure to draw in; None makes a new one.
        ax
            Axes to draw in instead, where one panel shows it all.

        Returns
        -------
        Figure
            The figure.

        Raises
        ------
        InputError
            If there is nothing to draw.
        """


class RowsStudy(list[T], Study):
    """A comparison: the list of its rows, which is a study, too.

    Parameters
    ----------
    rows
        What was compared.
    complete
        False if the comparison was interrupted, so that rows are missing.
    """

    __slots__ = ("_complete",)

    def __init__(self, rows: Iterable[T] = (), *, complete: bool = True) -> None:
        super().__init__(rows)
        self._complete = complete

    def __repr__(self) -> str:
        """Return how many rows there are: each may hold a whole answer."""
        return f"{type(self).__name__}({len(self)} rows)"

    @property
    def complete(self) -> bool:
        """Whether all rows are there."""
        return self._complete

    def to_object(self) -> dict[str, Any]:
        """Return the comparison as an object for JSON, with its first table as ``rows``."""
        tables = dict(self.tables)
        content: dict[str, Any] = plain({"of": self.name, "rows": tables.pop(self.name), **tables})
        return content

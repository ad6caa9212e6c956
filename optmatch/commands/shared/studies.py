"""How commands show a study: tables in columns, CSV, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optmatch.commands.shared.outcome import csv_text, print_table, say
from optmatch.model import write_score
from optmatch.model.files import PICTURES, check_target

if TYPE_CHECKING:
    from optmatch.studies.outcome import Row, Study


def print_rows(rows: Sequence[Row], *, indent: int = 0) -> None:
    """Print a table in columns, each value with the half-width of its interval.

    Parameters
    ----------
    rows
        Figures by name of column; ``x_half_width`` belongs to ``x``.
    indent
        How many spaces stand before each row.
    """
    if not rows:
        return
    names = [name for name in rows[0] if not name.endswith("_half_width")]
    titles = [name.replace("_", " ") for name in names]
    lines = [[_write_cell(row, name) for name in names] for row in rows]
    print_table([titles, *lines], indent=indent)


def _write_cell(row: Row, name: str) -> str:
    """Write the value of a column as ``0.5 +- 0.02``, with its half-width where there is one.

    Parameters
    ----------
    row
        Values by name of column: numbers, texts, levels of an objective, or None, which is
        written "-".
    name
        The name of the column; a gap is a share, and is written in percent.
    """
    value: Any = row[name]
    if value is None:
        return "-"
    if name == "gap":
        return f"{100 * value:.3g} %"
    if isinstance(value, tuple):
        return write_score(value)
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    half_width = row.get(f"{name}_half_width")
    return f"{text} +- {half_width:.2g}" if half_width else text


def rows_as_csv(rows: Sequence[Row], *, title: str | None = None) -> str:
    """Return a table as CSV.

    Parameters
    ----------
    rows
        Figures by name of column, at least one row.
    title
        What the first column, ``table``, says in each row; without it there is no such column.
    """
    if title is not None:
        rows = [{"table": title, **row} for row in rows]
    return csv_text([rows[0], *(row.values() for row in rows)])


def check_picture(picture: str, *, force: bool) -> None:
    """Refuse a picture that cannot be written or drawn, before the work.

    Parameters
    ----------
    picture
        The file, whose ending says the format.
    force
        Whether a file that is there is replaced.

    Raises
    ------
    InputError
        If the ending is wrong, or the file is there already.
    SolverUnavailable
        If matplotlib is not installed.
    """
    check_target(picture, force=force, endings=PICTURES)
    from optmatch.plotting.drawing import blank_figure

    blank_figure(1.0, 1.0)  # raises an error where matplotlib is missing


def draw_study(study: Study, picture: str, *, force: bool) -> None:
    """Draw a study into a file.

    Parameters
    ----------
    study
        The study.
    picture
        The file, whose ending says the format.
    force
        Whether a file that is there is replaced.
    """
    from optmatch.plotting import save_figure

    save_figure(study.plot, picture, force=force)
    say(f"{picture}: written")

"""How commands show a study: tables in columns, CSV, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optmatch.commands.shared.outcome import csv_text, print_table, say
from optmatch.model import write_score
from optmatch.model.files import PICTURES, check_target

if TYPE_CHECKING:
    from optmatch.studies.outcome import Row, Study


def print_rows(rows: Sequence[Row]) -> None:
    """Print a table in columns."""
    if not rows:
        return
    titles = [name.replace("_", " ") for name in rows[0]]
    lines = [[_write_cell(name, value) for name, value in row.items()] for row in rows]
    print_table([titles, *lines], indent=0)


def _write_cell(name: str, value: Any) -> str:
    """Write a number, a text, levels of an objective, a share (a gap) in percent, or "-"."""
    if value is None:
        return "-"
    if name == "gap":
        return f"{100 * value:.3g} %"
    if isinstance(value, tuple):
        return write_score(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def rows_as_csv(rows: Sequence[Row]) -> str:
    """Return a table of at least one row as CSV."""
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

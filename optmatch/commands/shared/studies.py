"""How commands show a study: tables in columns, CSV, and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared.options import FORCE, JSON, QUIET
from optmatch.commands.shared.outcome import print_object, print_table, say
from optmatch.io.text import csv_text
from optmatch.model import write_score
from optmatch.model.files import PICTURES, check_target, replace_file
from optmatch.model.problem import split_unit, write_amount

if TYPE_CHECKING:
    from optmatch.studies.outcome import Study

STUDY_OPTIONS = (
    click.option(
        "-o",
        "--output",
        type=click.Path(),
        help="Table as x.csv, or a picture: x.png, .svg, .pdf.  [default: none]",
    ),
    FORCE,
    JSON,
    QUIET,
)
"""Where a study goes, and what is printed of it."""


def show_study(study: Study, output: str | None, *, as_json: bool) -> None:
    """Print the first table of a study or its object, and write it as CSV or as a picture.

    `output` is a file, whose ending tells a table from a picture, or None. Rows that were refused
    or failed are explained below the table. The file was checked before the work; nothing is
    written of a study without rows.
    """
    rows = next(iter(study.tables.values()))
    if not study.complete:
        say("interrupted: these rows are there")
    if as_json:
        print_object("comparison", study.to_object())
    elif rows:
        hidden = ("reason", "unit")
        names = [name for name in rows[0] if name not in hidden]
        lines = [
            [_write_cell(name, row[name], row.get("unit", "")) for name in names] for row in rows
        ]
        print_table([[split_unit(name)[0] for name in names], *lines])
        for row in rows:
            if row.get("status") in ("refused", "failed"):
                click.echo(f"{row.get('name', row['status'])}: {row['method']}: {row['reason']}")

    # The file: a table, or a picture.
    if output is None or not rows:
        return
    if is_table(output):
        text = csv_text([rows[0], *(row.values() for row in rows)])
        replace_file(Path(output), text.encode())
        say(f"{output}: written")
    else:
        draw_study(study, output, force=True)


def _write_cell(name: str, value: Any, unit: str) -> str:
    """Write an entry of a table with its unit, which its name says, or `unit` of objectives.

    Levels of an objective stand without names, a gap in percent, and what is not known as "-".
    """
    if value is None:
        return "-"
    if name == "gap":
        return f"{100 * value:.3g} %"
    if isinstance(value, tuple):
        return write_score(value)
    if not isinstance(value, float):
        return str(value)
    unit = unit if name in ("objective", "lower_bound") else split_unit(name)[1]
    return write_amount(value, unit) if unit else f"{value:.4g}"


def read_names(text: str) -> list[str]:
    """Read different names, separated by commas."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names or len(set(names)) < len(names):
        raise click.UsageError(f"{text!r}: different names, separated by commas")
    return names


def is_table(output: str) -> bool:
    """Tell by its ending whether a file is a table."""
    return Path(output).suffix.lower() == ".csv"


def check_output(output: str | None, *, force: bool) -> None:
    """Refuse a table or a picture that cannot be written, before the work."""
    if output is not None:
        check_target(output, force=force, endings=(".csv", *PICTURES))
        if not is_table(output):
            check_picture(output, force=force)


def check_picture(picture: str, *, force: bool) -> None:
    """Refuse a picture that cannot be written or drawn, before the work.

    Its ending may be wrong, the file be there already, or matplotlib not be installed.
    """
    check_target(picture, force=force, endings=PICTURES)
    from optmatch.plotting.drawing import blank_figure

    blank_figure(1.0, 1.0)  # raises an error where matplotlib is missing


def draw_study(study: Study, picture: str, *, force: bool) -> None:
    """Draw a study into a file, whose ending says the format."""
    from optmatch.plotting import save_figure

    save_figure(study.plot, picture, force=force)
    say(f"{picture}: written")

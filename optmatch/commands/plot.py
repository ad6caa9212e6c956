"""`optmatch plot`: draw a schedule."""

from __future__ import annotations

import click

from optmatch.commands.shared.options import FORCE
from optmatch.commands.shared.outcome import name_of, read_solution, say
from optmatch.model import InputError


@click.command()
@click.argument("file", metavar="SCHEDULE", type=click.Path())
@click.option(
    "-o", "--output", required=True, type=click.Path(), help="x.png, .svg, .pdf or .html"
)
@click.option(
    "--slot",
    type=click.IntRange(min=1),
    help="Draw this slot alone; the first is 1, as in pictures.  [default: all]",
)
@FORCE
def plot(file: str, output: str, slot: int | None, force: bool) -> None:
    """Draw the circuits and the cell states of a schedule; .html is a page to click through."""
    solution = read_solution(file)
    if solution.objective is None:
        raise InputError(
            f"status {solution.status.value}: there is no schedule to draw", path=name_of(file)
        )
    if solution.schedule is None and (slot is not None or output.endswith(".html")):
        raise InputError(
            "the answer is not one schedule: there are no slots to click through or to pick from,"
            " only the whole as .png, .svg or .pdf",
            path=name_of(file),
        )
    n_slots = 0 if solution.schedule is None else solution.schedule.n_slots
    if slot is not None and slot > n_slots:
        raise InputError(f"--slot {slot}: slots are 1 .. {n_slots}", path=name_of(file))

    from optmatch.plotting import save_picture

    save_picture(solution, output, slot=None if slot is None else slot - 1, force=force)
    say(f"{output}: written")

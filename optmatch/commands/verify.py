"""`optmatch verify`: replay schedules independently of what made them."""

from __future__ import annotations

from typing import Any

import click

from optmatch.commands import optics
from optmatch.commands.options import JSON_LINES, with_options
from optmatch.commands.outcome import (
    CHECK_FAILED,
    SOLVED,
    UNPROVED,
    for_each,
    name_of,
    paint,
    print_object,
    print_rows,
    read_solution,
)
from optmatch.model import write_score


@click.command()
@click.argument("files", metavar="SCHEDULE...", nargs=-1, required=True, type=click.Path())
@with_options(optics.OPTIONS)
@click.option(
    "--accept-unproved",
    is_flag=True,
    help="Exit code 0, not 6, where a claim rests on a search without a certificate.",
)
@JSON_LINES
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    accept_unproved: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Replay schedules: coverage, light, lengths and bounds. `-` is stdin.

    Exit code 5 if a rule does not hold or, with --optics, the budget is not kept; else 6 if a
    status or a lower bound rests on a search without a certificate.
    """
    optics.check_options(options)

    def run(file: str) -> int:
        code = _verify(file, options, as_json)
        return SOLVED if accept_unproved and code == UNPROVED else code

    ctx.exit(for_each(files, run, as_json=as_json))


def _verify(file: str, options: dict[str, Any], as_json: bool) -> int:
    from optmatch.entrances import verify as replay

    solution = read_solution(file)
    report = replay(solution.problem, solution)
    measured = None
    if options["optics"] and report.valid:  # light through wrong states means nothing
        measured = optics.measure(solution, options)
    if as_json:
        found: dict[str, Any] = {"optics": None} if options["optics"] else {}
        if measured is not None:
            found = {"optics": optics.optics_object(measured)}
        print_object("report", {"file": file, **report.to_json(), **found})
    else:
        _print(name_of(file), report)
        if measured is not None:
            optics.print_optics(measured, per_slot=options["per_slot"])
        elif options["optics"]:
            click.echo("  optics: not measured, since the schedule is refused")
    if not report.valid or (measured is not None and not measured.ok):
        return CHECK_FAILED
    return SOLVED if report.ok else UNPROVED


def _print(name: str, report: Any) -> None:
    verdict = paint("ok", True) if report.ok else click.style("UNPROVED", fg="yellow")
    click.echo(f"{name}: {verdict if report.valid else paint('FAILED', False)}")
    for violation in report.violations:
        click.echo(f"  {violation}")
    figures = report.figures.items()
    print_rows({k: write_score(v) if isinstance(v, tuple) else v for k, v in figures})
    for check in report.skipped:
        click.echo(f"  not checked: {check}")
    for claim in report.unproved:
        click.echo(f"  unproved: {claim}")
    for note in report.notes:
        click.echo(f"  note: {note}")

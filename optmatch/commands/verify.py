"""`optmatch verify`: replay schedules independently of what made them."""

from __future__ import annotations

from typing import Any

import click

from optmatch.commands import optics
from optmatch.commands.options import JSON_LINES, with_options
from optmatch.commands.outcome import (
    CHECK_FAILED,
    SOLVED,
    for_each,
    name_of,
    paint,
    print_object,
    print_rows,
    read_solution,
)


@click.command()
@click.argument("files", metavar="SCHEDULE...", nargs=-1, required=True, type=click.Path())
@with_options(optics.OPTIONS)
@JSON_LINES
@click.pass_context
def verify(ctx: click.Context, /, files: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Replay schedules: coverage, light, lengths and bounds. `-` is stdin.

    Exit code 5 if a rule does not hold or, with --optics, the budget is not kept.
    """
    optics.check_options(options)
    ctx.exit(for_each(files, lambda file: _verify(file, options, as_json), as_json=as_json))


def _verify(file: str, options: dict[str, Any], as_json: bool) -> int:
    from optmatch.entrances import verify as replay

    solution = read_solution(file)
    report = replay(solution.problem, solution)
    measured = None
    if options["optics"] and report.ok:  # light through wrong states means nothing
        measured = optics.measure(solution, options)
    if as_json:
        found: dict[str, Any] = {"optics": None} if options["optics"] else {}
        if measured is not None:
            found = {"optics": optics.optics_object(measured)}
        print_object("report", {"file": file, **_report_object(report), **found})
    else:
        _print(name_of(file), report)
        if measured is not None:
            optics.print_optics(measured, per_slot=options["per_slot"])
        elif options["optics"]:
            click.echo("  optics: not measured, since the schedule is refused")
    kept = measured is None or measured.ok
    return SOLVED if report.ok and kept else CHECK_FAILED


def _report_object(report: Any) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "violations": [
            {
                name: _text(getattr(violation, name))
                for name in ("rule", "where", "got", "expected")
            }
            for violation in report.violations
        ],
        "figures": dict(report.figures),
        "notes": list(report.notes),
        "skipped": list(report.skipped),
    }


def _print(name: str, report: Any) -> None:
    click.echo(f"{name}: {paint('ok' if report.ok else 'FAILED', report.ok)}")
    for violation in report.violations:
        click.echo(f"  {violation}")
    print_rows(report.figures)
    for check in report.skipped:
        click.echo(f"  not checked: {check}")
    for note in report.notes:
        click.echo(f"  note: {note}")


def _text(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)

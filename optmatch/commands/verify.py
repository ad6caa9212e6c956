"""`optmatch verify`: replay schedules independently of the methods that made them."""

from __future__ import annotations

from typing import Any

import click

from optmatch.commands.shared import optics
from optmatch.commands.shared.options import JSON_LINES, with_options
from optmatch.commands.shared.outcome import (
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
from optmatch.model import unit_of, write_score

_SEVERITY = (SOLVED, UNPROVED, CHECK_FAILED)
"""Exit codes from the best to the worst."""


@click.command()
@click.argument("files", metavar="SCHEDULE...", nargs=-1, required=True, type=click.Path())
@with_options(optics.OPTIONS)
@click.option(
    "--accept-unproved",
    is_flag=True,
    help="Exit code 0, not 6, where a claim rests on a search without a certificate.",
)
@click.option("--all", "whole_store", is_flag=True, help="Verify all answers of a STORE.")
@click.option(
    "--discard",
    is_flag=True,
    help="With --all: remove what does not hold, so that a sweep runs it again.",
)
@click.option(
    "--against",
    type=click.Path(),
    help="A config_db.json of a switch: which slot it holds, or how the nearest one differs.",
)
@JSON_LINES
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    accept_unproved: bool,
    against: str | None,
    whole_store: bool,
    discard: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Replay schedules: coverage, light, lengths and bounds. `-` is stdin. With --all, STOREs.

    Exit code 5 if a rule does not hold, with --optics the budget is not kept, or with --against
    the switch holds no slot of the schedule; else 6 if a status or a lower bound rests on a search
    without a certificate.
    """
    optics.check_options(options)
    if discard and not whole_store:
        raise click.UsageError("--discard: only with --all")
    if whole_store and (options["optics"] or against is not None):
        raise click.UsageError("either --all, or --optics or --against")

    def run(file: str) -> int:
        if whole_store:
            code = _verify_store(file, discard, as_json)
        else:
            code = _verify(file, options, as_json)
            if against is not None:
                code = max(code, _compare(file, against, as_json), key=_SEVERITY.index)
        return SOLVED if accept_unproved and code == UNPROVED else code

    ctx.exit(for_each(files, run, as_json=as_json))


def _compare(file: str, config: str, as_json: bool) -> int:
    """Print which slot a switch holds, or how its circuits differ from the nearest one."""
    from optmatch.io.switches.comparing import compare_with_config

    nearest = compare_with_config(read_solution(file), config)
    removals = [circuit.name for circuit in nearest.difference.removals]
    additions = [circuit.name for circuit in nearest.difference.additions]
    if as_json:
        print_object(
            "comparison",
            {
                "file": file,
                "switch": nearest.switch,
                "slot": nearest.state,
                "not_in_the_plan": removals,
                "missing": additions,
            },
        )
    else:
        verdict = "holds" if nearest.difference.is_empty else "is nearest to"
        click.echo(f"{config}: {verdict} slot {nearest.state} of {nearest.switch}")
        for name in removals:
            click.echo(f"  not in the plan: {name}")
        for name in additions:
            click.echo(f"  missing: {name}")
    return SOLVED if nearest.difference.is_empty else CHECK_FAILED


def _verify_store(file: str, discard: bool, as_json: bool) -> int:
    from optmatch.sweeps.checks import check_store
    from optmatch.sweeps.store import Store

    counts = dict.fromkeys(("ok", "unproved", "violated", "damaged", "none"), 0)
    wrong = []
    with Store(file, read_only=not discard) as store:
        for row, verdict, complaint in check_store(store):
            counts[verdict] += 1
            if verdict in ("violated", "damaged"):
                wrong.append({"key": row.key, "name": row.name, "complaint": complaint})
                if discard:
                    store.discard(row.key)
    if as_json:
        print_object("store-report", {"file": file, **counts, "wrong": wrong})
    else:
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        click.echo(f"{file}: {paint('FAILED' if wrong else 'ok', not wrong)}: {told or 'empty'}")
        for entry in wrong:
            click.echo(f"  {entry['key'][:12]} {entry['name']}: {entry['complaint']}")
    if wrong:
        return CHECK_FAILED
    return UNPROVED if counts["unproved"] else SOLVED


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
        _print(name_of(file), report, unit_of(solution.problem))
        if measured is not None:
            optics.print_optics(measured, per_slot=options["per_slot"])
        elif options["optics"]:
            click.echo("  optics: not measured, since the schedule is refused")
    if not report.valid or (measured is not None and not measured.ok):
        return CHECK_FAILED
    return SOLVED if report.ok else UNPROVED


def _print(name: str, report: Any, unit: str) -> None:
    verdict = paint("ok", True) if report.ok else click.style("UNPROVED", fg="yellow")
    click.echo(f"{name}: {verdict if report.valid else paint('FAILED', False)}")
    for violation in report.violations:
        click.echo(f"  {violation}")
    figures = report.figures.items()
    print_rows({k: write_score(v, unit) if isinstance(v, tuple) else v for k, v in figures})
    for check in report.skipped:
        click.echo(f"  not checked: {check}")
    for claim in report.unproved:
        click.echo(f"  unproved: {claim}")
    for note in report.notes:
        click.echo(f"  note: {note}")

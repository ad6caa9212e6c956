"""`optmatch verify`: replay schedules independently of the methods that made them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from optmatch.commands.shared import optics
from optmatch.commands.shared.options import JSON_LINES, SectionedCommand, with_options
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

if TYPE_CHECKING:
    from optmatch.io.switches.exports import NearestState
    from optmatch.model import Solution
    from optmatch.verify import Report

_WORDS_OF_FIGURE = {
    "lower_bound_recomputed": "lower bound by counting",
    "lower_bound_checked": "lower bound by counting or certificate",
}
"""Figures that are printed in other words than the names of their fields."""

_SEVERITY = (SOLVED, UNPROVED, CHECK_FAILED)
"""Exit codes from the best to the worst."""


@click.command(cls=SectionedCommand)
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
@click.option(
    "--ports", type=click.Path(), help="With --against: CSV with the sides of each port: port,A,B."
)
@JSON_LINES
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    accept_unproved: bool,
    against: str | None,
    ports: str | None,
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
    # `files` are solutions or, with `whole_store`, stores of sweeps. `against` is a configuration
    # of a switch to compare with, and `ports` a file with the two sides of each port; None for
    # none. `options` are those of the check of light.
    optics.check_options(options)
    if discard and not whole_store:
        raise click.UsageError("--discard: only with --all")
    if ports is not None and against is None:
        raise click.UsageError("--ports: only with --against")
    if whole_store and (options["optics"] or against is not None):
        raise click.UsageError("either --all, or --optics or --against")

    def verify_file(file: str) -> int:
        """Verify one file, and return the worst exit code of its schedule and of the switch.

        With ``--all`` the file is a store of sweeps.
        """
        if whole_store:
            code = _verify_store(file, discard, as_json)
        else:
            # It is read once, as stdin cannot be read twice.
            solution = read_solution(file)
            code = _verify_schedule(file, solution, options, as_json)
            if against is not None:
                from optmatch.io.switches.exports import compare_with_config

                nearest = compare_with_config(solution, against, ports=ports)
                code_of_switch = _print_comparison(file, nearest, against, as_json)
                code = max(code, code_of_switch, key=_SEVERITY.index)
        if accept_unproved and code == UNPROVED:
            return SOLVED
        return code

    ctx.exit(for_each(files, verify_file, as_json=as_json))


def _print_comparison(file: str, nearest: NearestState, config: str, as_json: bool) -> int:
    """Print which slot a switch holds, or how its circuits differ from the nearest one.

    The nearest slot is the one that needs the fewest changes of `config_db.json`. The exit code is
    0 if it holds a slot, else that of a failed check.
    """
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
    """Verify all answers of a store of sweeps, and print how many hold.

    With `discard` those that do not are removed. The exit code is that of a failed check if an
    answer is wrong or damaged, else that of unproved claims if there are any, else 0.
    """
    from optmatch.sweeps.store import Store
    from optmatch.sweeps.sweep import check_store

    # All verdicts are counted from 0, so that the JSON object names each of them.
    n_of_verdict = dict.fromkeys(("ok", "unproved", "violated", "damaged", "none"), 0)
    wrong_rows = []
    with Store(file, read_only=not discard) as store:
        for row, verdict, complaint in check_store(store):
            n_of_verdict[verdict] += 1
            if verdict in ("violated", "damaged"):
                wrong_rows.append({"key": row.key, "name": row.name, "complaint": complaint})
                if discard:
                    store.discard(row.key)

    if as_json:
        print_object("store-report", {"file": file, **n_of_verdict, "wrong": wrong_rows})
    else:
        word = "FAILED" if wrong_rows else "ok"
        counts = [f"{n} {verdict}" for verdict, n in n_of_verdict.items() if n]
        summary = ", ".join(counts) or "empty"
        click.echo(f"{file}: {paint(word, not wrong_rows)}: {summary}")
        for entry in wrong_rows:
            click.echo(f"  {entry['key'][:12]} {entry['name']}: {entry['complaint']}")

    if wrong_rows:
        return CHECK_FAILED
    return UNPROVED if n_of_verdict["unproved"] else SOLVED


def _verify_schedule(file: str, solution: Solution, options: dict[str, Any], as_json: bool) -> int:
    """Replay one schedule, with `--optics` measure its light, and print the report.

    `options` are those of the check of light, by name. The exit code is that of a failed check if
    a rule does not hold or the optical budget is not kept, else that of unproved claims if there
    are any, else 0.
    """
    from optmatch.entrances import verify as replay

    report = replay(solution.problem, solution)

    # Light through wrong states means nothing, so a refused schedule is not measured.
    measured = None
    if options["optics"] and report.valid:
        measured = optics.measure(solution, options)

    if as_json:
        content = {"file": file, **report.to_json()}
        if options["optics"]:
            content["optics"] = None if measured is None else optics.optics_object(measured)
        print_object("report", content)
    else:
        _print_report(name_of(file), report, unit_of(solution.problem))
        if measured is not None:
            optics.print_optics(measured, per_slot=options["per_slot"])
        elif options["optics"]:
            click.echo("  optics: not measured, since the schedule is refused")

    budget_is_kept = measured is None or measured.ok
    if not report.valid or not budget_is_kept:
        return CHECK_FAILED
    return SOLVED if report.ok else UNPROVED


def _print_report(name: str, report: Report, unit: str) -> None:
    """Print a report: the verdict, violations, figures, and what is unproved.

    `name` is that of the file, and `unit` that of the objective. Unproved are claims of a search
    that has no certificate.
    """
    if not report.valid:
        verdict = paint("FAILED", False)
    elif report.ok:
        verdict = paint("ok", True)
    else:
        verdict = click.style("UNPROVED", fg="yellow")
    click.echo(f"{name}: {verdict}")

    for violation in report.violations:
        click.echo(f"  {violation}")

    # Objectives and bounds have the unit of the problem, or the names of their levels.
    rows: dict[str, Any] = {}
    for figure, value in report.figures.items():
        words = _WORDS_OF_FIGURE.get(figure, figure)
        is_score = isinstance(value, tuple) or figure.startswith(("objective", "lower_bound"))
        rows[words] = write_score(value, unit) if is_score else value
    print_rows(rows)

    for check in report.skipped:
        click.echo(f"  not checked: {check}")
    for claim in report.unproved:
        click.echo(f"  unproved: {claim}")
    for note in report.notes:
        click.echo(f"  note: {note}")

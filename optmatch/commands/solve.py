"""`optmatch solve`: from problem files to schedule files."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from optmatch.commands.shared.interrupt import unbroken
from optmatch.commands.shared.options import FORCE, JSON_LINES, Duration, count, with_options
from optmatch.commands.shared.outcome import (
    INFEASIBLE,
    INTERRUPTED,
    NOTHING_FOUND,
    SOLVED,
    STDIN,
    for_each,
    name_of,
    paint,
    print_object,
    print_rows,
    read_problem,
    read_solution,
    say,
    say_remarks,
)
from optmatch.commands.shared.progress import listening
from optmatch.model import (
    Limit,
    LimitReached,
    Limits,
    Solution,
    Status,
    TimeUp,
    figures_of,
    is_known,
    uncounted,
    uncounted_s,
    unit_of,
    write_score,
)


def _complete_method(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from optmatch.kinds import all_methods

    found = {method.name: method.summary for method in all_methods()}
    return [
        CompletionItem(name, help=summary)
        for name, summary in found.items()
        if name.startswith(incomplete)
    ]


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--method",
    metavar="NAME",
    shell_complete=_complete_method,
    help="Name of a method, see `optmatch methods`.  [default: depends on the problem]",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    metavar="TIME",
    type=Duration(),
    help="Stop then, with the best so far. Imports, compiling, checking and writing do not count."
    "  [default: no limit]",
)
@count("--seed", None, "Seed of the random numbers.  [default: drawn and reported]")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="Schedule file, or a folder for several inputs; `-` is stdout.  [default: none]",
)
@click.option(
    "--start",
    type=click.Path(),
    help="A former schedule file, of FILE or of a problem that differs a little: the result is"
    " never worse than its answer, repaired where it no longer fits.  [default: none]",
)
@click.option(
    "--param",
    "params",
    metavar="NAME=VALUE",
    multiple=True,
    help="A parameter of the method, see `optmatch methods NAME`; once for each.",
)
@with_options((FORCE, JSON_LINES))
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no hints.")
@click.option("-v", "--verbose", is_flag=True, help="Print every step and the log.")
@click.pass_context
def solve(
    ctx: click.Context,
    /,
    files: tuple[str, ...],
    output: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Solve problems. `-` is stdin."""
    if options["verbose"]:
        _log_to_stderr()
    if output == STDIN and as_json:
        raise click.UsageError("--json and -o - both write to stdout")
    targets = _targets(files, output)
    options["params"] = _read_params(options["params"])

    def run(file: str) -> int:
        return _solve(file, targets[file], as_json, several=len(files) > 1, **options)

    ctx.exit(for_each(files, run, as_json=as_json))


@unbroken()
def _solve(
    file: str,
    target: str | None,
    as_json: bool,
    *,
    several: bool,
    method: str | None,
    time_limit_s: float | None,
    seed: int | None,
    start: str | None,
    params: dict[str, float],
    force: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    clock = Limits(time_s=time_limit_s).start()
    before = uncounted_s()
    with uncounted():
        from optmatch.entrances import solve as run
        from optmatch.io import check_target

    units = [""]
    with listening(
        Path(name_of(file)).name,
        quiet=quiet,
        verbose=verbose,
        keep=True,
        limit_s=time_limit_s,
        unit=lambda: units[-1],
    ) as listen:
        with clock.running():
            try:
                problem = read_problem(file)
                if not quiet:
                    say_remarks(problem, name_of(file))
                units.append(unit_of(problem))
            except TimeUp as exc:
                raise LimitReached("no schedule at the limit: time") from exc
            if target not in (None, STDIN):  # refused before the search spends time
                if several:
                    Path(target).parent.mkdir(exist_ok=True)
                check_target(target, force=force)
            former = None if start is None else read_solution(start)
            given: dict[str, Any] = {"seed": seed, "time_limit_s": time_limit_s, "start": former}
            solution = run(problem, method, params=params, on_event=listen, **given)
            solution = replace(solution, time_s=clock.elapsed_s)
        with uncounted("writing"):
            saved = _save(solution, target, force)
    beside = {what: spent - before.get(what, 0.0) for what, spent in uncounted_s().items()}
    beside = {what: spent for what, spent in beside.items() if spent > 0}
    if as_json:
        told = {**_result_object(solution), "uncounted_s": beside, "saved": saved}
        print_object("result", {"file": file, **told})
    elif target != STDIN:
        _print(name_of(file), solution, beside, verbose)
    if not quiet:
        _explain(name_of(file), solution, saved)
        if solution.limit is Limit.EXHAUSTED and solution.objective is not None:
            say(f"{name_of(file)}: {what_goes_on(solution, method, time_limit_s)}")
    return _code(solution)


def _read_params(texts: Sequence[str]) -> dict[str, float]:
    params: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name in params:
            raise click.UsageError(f"--param {name} is there twice")
        try:
            params[name] = float(value) if not value.strip("+-").isdigit() else int(value)
        except ValueError:
            raise click.UsageError(f"--param {text}: NAME=VALUE, with a number") from None
    return params


def _targets(files: Sequence[str], output: str | None) -> dict[str, str | None]:
    """Say where each answer goes; two answers never go to one file."""
    if len(set(files)) < len(files):
        raise click.UsageError("the same FILE twice")
    if output == STDIN and len(files) > 1:
        raise click.UsageError("-o -: only one FILE can go to stdout")
    if output is None or output == STDIN or (len(files) == 1 and not Path(output).is_dir()):
        return dict.fromkeys(files, output)
    if Path(output).exists() and not Path(output).is_dir():
        raise click.UsageError(f"-o {output}: several FILEs need a folder, and this is a file")
    if Path(output).suffix and not Path(output).is_dir():
        raise click.UsageError(
            f"-o {output}: several FILEs need a folder, and this is the name of a file"
        )
    if not Path(output).parent.is_dir():
        raise click.UsageError(f"-o {output}: the folder around it is not there")
    stems = {f: "stdin" if f == STDIN else Path(f).name.removesuffix(".json") for f in files}
    if len(set(stems.values())) < len(files):
        raise click.UsageError("two FILEs of one name cannot go to one folder")
    return {file: str(Path(output) / f"{stem}.schedule.json") for file, stem in stems.items()}


def _save(solution: Solution, target: str | None, force: bool) -> str | None:
    """Write what is worth keeping: a schedule, or the proof that there is none."""
    from optmatch.io import dumps, save

    if target is None or solution.status is Status.UNKNOWN:
        return None
    if target == STDIN:
        click.echo(dumps(solution))
    else:
        save(solution, target, force=force)
    return target


def _code(solution: Solution) -> int:
    if solution.limit is Limit.INTERRUPTED:
        return INTERRUPTED
    codes = {Status.INFEASIBLE: INFEASIBLE, Status.UNKNOWN: NOTHING_FOUND}
    return codes.get(solution.status, SOLVED)


def _result_object(solution: Solution) -> dict[str, Any]:
    from optmatch.io import problem_digest

    return {
        "kind": solution.problem.kind,
        "problem_sha256": problem_digest(solution.problem),
        "status": solution.status.value,
        "limit": solution.limit and solution.limit.value,
        "objective": solution.objective,
        "lower_bound": solution.lower_bound,
        "gap": solution.gap,
        "proof": solution.proof,
        "slots": sum(_slots(solution)) if solution.objective is not None else None,
        "method": solution.method,
        "seed": solution.seed,
        "time_s": solution.time_s,
        "stats": solution.stats,
    }


def _print(name: str, solution: Solution, beside: dict[str, float], verbose: bool) -> None:
    good = solution.status in (Status.OPTIMAL, Status.FEASIBLE)
    click.echo(f"{name}: {paint(solution.status.value, good)}")
    rows: dict[str, Any] = {}
    if solution.status is Status.INFEASIBLE or "reason" in solution.stats:
        rows["reason"] = str(solution.stats.get("reason", "none given"))
    if slots := _slots(solution):
        planes = f" on {len(slots)} planes" if len(slots) > 1 else ""
        rows["matchings"] = f"{sum(slots)}{planes}"
    unit = unit_of(solution.problem)
    if solution.objective is not None:
        rows["objective"] = write_score(solution.objective, unit)
    if is_known(solution.lower_bound):
        rows["lower bound"] = write_score(solution.lower_bound, unit)
    if math.isfinite(solution.gap):
        rows["gap"] = f"{100 * solution.gap:.3g} %"
    rows |= figures_of(solution.problem, solution.answer)
    proved = solution.status in (Status.OPTIMAL, Status.INFEASIBLE)
    if solution.proof is not None and (proved or is_known(solution.lower_bound)):
        name = "proof" if proved else "bound by"
        rows[name] = solution.proof + ", unproved" * (solution.proof == "search")
    rows["method"] = f"{solution.method}, seed {solution.seed}, {solution.time_s:.3g} s"
    rows["not counted"] = ", ".join(f"{what} {spent:.2g} s" for what, spent in beside.items())
    for key, value in solution.stats.items():
        told = verbose or isinstance(value, int | float) or key == "fewest_slots"
        if key not in ("reason", "slots", "compile_s") and told:  # the row above has compiling
            rows[key] = value
    print_rows(rows)


def _slots(solution: Solution) -> list[int]:
    """Count the slots of each plane; empty without an answer."""
    if solution.schedule is not None:
        return [solution.schedule.n_slots]
    schedules = getattr(solution.answer, "schedules", ())
    return [schedule.n_slots for schedule in schedules]


def _explain(name: str, solution: Solution, saved: str | None) -> None:
    """Say on stderr what the figures do not say: why it stopped, and where the answer is."""
    if solution.limit is Limit.INTERRUPTED:
        say(f"{name}: interrupted")
    elif solution.limit not in (None, Limit.EXHAUSTED):
        found = "no schedule" if solution.objective is None else "the best so far"
        say(f"{name}: {found} at the limit: {solution.limit.value}")
    if saved is None and solution.objective is not None:
        say(f"{name}: nothing was saved; -o FILE keeps the schedule")
    elif saved not in (None, STDIN):
        say(f"{saved}: written")


def what_goes_on(solution: Solution, method: str | None, time_limit_s: float | None) -> str:
    """Say of an answer that is not proved what would go on from it, as its search does not."""
    from optmatch.kinds import kind_of

    exhausted = "the search is exhausted, and the answer is not proved to be the best"
    exact = [
        other.name
        for other in kind_of(solution.problem).methods
        if other.exact and other.takes(solution.problem) and other.name != solution.method
    ]
    if not exact:
        return exhausted
    if method is None and time_limit_s is None:
        return f"{exhausted}; --time-limit 1 goes on, to a better answer or a proof"
    return f"{exhausted}; --method {exact[0]} may prove it"


def _log_to_stderr() -> None:
    log = logging.getLogger("optmatch")
    if not log.handlers:
        log.addHandler(logging.StreamHandler())
    log.setLevel(logging.DEBUG)

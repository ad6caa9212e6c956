"""`optmatch solve`: from problem files to schedule files."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from optmatch.commands.shared.interrupt import unbroken
from optmatch.commands.shared.options import (
    FORCE,
    JSON_LINES,
    Duration,
    SectionedCommand,
    count,
    with_options,
)
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
    describe_claims,
    uncounted,
    uncounted_s,
    unit_of,
)


def _complete_method(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """List the methods whose names begin so, for the completion of a shell."""
    from click.shell_completion import CompletionItem

    from optmatch.kinds import all_methods

    # Methods of several kinds may share a name, which is completed once.
    summary_of_name = {method.name: method.summary for method in all_methods()}
    return [
        CompletionItem(name, help=summary)
        for name, summary in summary_of_name.items()
        if name.startswith(incomplete)
    ]


@click.command(cls=SectionedCommand)
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
        # What the package logs, of all levels, goes to stderr.
        log = logging.getLogger("optmatch")
        if not log.handlers:
            log.addHandler(logging.StreamHandler())
        log.setLevel(logging.DEBUG)
    if output == STDIN and as_json:
        raise click.UsageError("--json and -o - both write to stdout")
    target_of_file = _choose_targets(files, output)
    options |= {"params": _read_params(options["params"]), "as_json": as_json}

    def solve_file(file: str) -> int:
        return _solve_file(file, target_of_file[file], options, is_alone=len(files) == 1)

    ctx.exit(for_each(files, solve_file, as_json=as_json))


@unbroken()
def _solve_file(file: str, target: str | None, options: dict[str, Any], *, is_alone: bool) -> int:
    """Solve one problem file, save the answer, print it, and return the exit code.

    `target` is the schedule file, ``-`` for stdout, None to save nothing. `options` are those of
    the command, by name, and `is_alone` says that there is no other file. Time that does not count
    in the limit (`uncounted`), such as that of compiling kernels, is printed by its reason.
    """
    # Reading counts in the time limit; importing, checking, compiling and writing do not.
    clock = Limits(time_s=options["time_limit_s"]).start()
    uncounted_before_s = uncounted_s()
    with uncounted():
        # What reading the problem needs; NumPy loads its random numbers and masks late.
        import numpy.ma  # noqa: F401
        import numpy.random  # noqa: F401

        import optmatch.io.files  # noqa: F401
        from optmatch.entrances import solve as solve_problem

    # The unit of objectives is shown once the problem is read.
    name = name_of(file)
    quiet = options["quiet"]
    units = [""]
    with listening(
        Path(name).name,
        quiet=quiet,
        verbose=options["verbose"],
        keep=True,
        limit_s=options["time_limit_s"],
        unit=lambda: units[-1],
    ) as listen:
        with clock.running():
            try:
                problem = read_problem(file)
                if not quiet:
                    say_remarks(problem, name)
            except TimeUp as exc:
                raise LimitReached("no schedule at the limit: time") from exc

            # A file that cannot be written is refused before the search spends time.
            units.append(unit_of(problem))
            _check_target(target, force=options["force"], is_alone=is_alone)
            solution = solve_problem(
                problem,
                options["method"],
                seed=options["seed"],
                time_limit_s=options["time_limit_s"],
                start=None if options["start"] is None else read_solution(options["start"]),
                params=options["params"],
                on_event=listen,
            )
            solution = replace(solution, time_s=clock.elapsed_s)
        # A schedule is written, or the proof that there is none.
        saved_to = None
        with uncounted("writing"):
            from optmatch.io import dumps, problem_digest, save

            if target is not None and solution.status is not Status.UNKNOWN:
                saved_to = target
                if target == STDIN:
                    click.echo(dumps(solution))
                else:
                    save(solution, target, force=options["force"])
    # Print the answer, unless the schedule itself goes to stdout.
    uncounted_here_s = {}
    for reason, time_s in uncounted_s().items():
        if time_s > uncounted_before_s.get(reason, 0.0):
            uncounted_here_s[reason] = time_s - uncounted_before_s.get(reason, 0.0)
    if options["as_json"]:
        has_answer = solution.objective is not None
        result = {
            "file": file,
            "kind": solution.problem.kind,
            "problem_sha256": problem_digest(solution.problem),
            "status": solution.status.value,
            "limit": solution.limit and solution.limit.value,
            "objective": solution.objective,
            "lower_bound": solution.lower_bound,
            "gap": solution.gap,
            "proof": solution.proof,
            "slots": sum(_slots_of_planes(solution)) if has_answer else None,
            "method": solution.method,
            "seed": solution.seed,
            "time_s": solution.time_s,
            "stats": solution.stats,
            "uncounted_s": uncounted_here_s,
            "saved": saved_to,
        }
        print_object("result", result)
    elif target != STDIN:
        _print_solution(name, solution, uncounted_here_s, options["verbose"])

    if not quiet:
        _explain(name, solution, saved_to)
        if solution.limit is Limit.EXHAUSTED and solution.objective is not None:
            hint = suggest_next_step(solution, options["method"], options["time_limit_s"])
            say(f"{name}: {hint}")
    if solution.limit is Limit.INTERRUPTED:
        return INTERRUPTED
    code_of_status = {Status.INFEASIBLE: INFEASIBLE, Status.UNKNOWN: NOTHING_FOUND}
    return code_of_status.get(solution.status, SOLVED)


_DRAWN = (".png", ".svg", ".pdf", ".html")


def _check_target(target: str | None, *, force: bool, is_alone: bool) -> None:
    """Refuse a schedule file that cannot be written, before the search spends time.

    The name of a picture is refused too. For several files, their folder is made if it is missing.
    """
    from optmatch.io import check_target

    if target in (None, STDIN):
        return
    if Path(target).suffix.lower() in _DRAWN:
        raise click.UsageError(
            f"-o {target}: a schedule is written as JSON, which `optmatch plot` draws"
        )
    if not is_alone:
        Path(target).parent.mkdir(exist_ok=True)
    check_target(target, force=force)


def _read_params(texts: Sequence[str]) -> dict[str, float]:
    """Read parameters of a method, given as texts such as ``restarts=3``."""
    params: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name in params:
            raise click.UsageError(f"--param {name} is there twice")
        is_whole = value.strip("+-").isdigit()
        try:
            params[name] = int(value) if is_whole else float(value)
        except ValueError:
            raise click.UsageError(f"--param {text}: NAME=VALUE, with a number") from None
    return params


def _choose_targets(files: Sequence[str], output: str | None) -> dict[str, str | None]:
    """Choose the schedule file of each problem file, so that no two have the same.

    `output` is a file or, for several of them, a folder, in which ``a.json`` has its schedule in
    ``a.schedule.json``; ``-`` for stdout, None to save nothing.
    """
    if len(set(files)) < len(files):
        raise click.UsageError("the same FILE twice")
    if output == STDIN and len(files) > 1:
        raise click.UsageError("-o -: only one FILE can go to stdout")
    if output is None or output == STDIN:
        return dict.fromkeys(files, output)

    folder = Path(output)
    if len(files) == 1 and not folder.is_dir():
        return dict.fromkeys(files, output)

    # From here on the output has to be a folder, which may not be there yet.
    if folder.exists() and not folder.is_dir():
        raise click.UsageError(f"-o {output}: several FILEs need a folder, and this is a file")
    if folder.suffix and not folder.is_dir():
        raise click.UsageError(
            f"-o {output}: several FILEs need a folder, and this is the name of a file"
        )
    if not folder.parent.is_dir():
        raise click.UsageError(f"-o {output}: the folder around it is not there")

    # In a folder, schedules are named after their problems; two problems of one name would meet.
    stem_of_file = {file: Path(file).name.removesuffix(".json") for file in files}
    if STDIN in stem_of_file:
        stem_of_file[STDIN] = "stdin"
    if len(set(stem_of_file.values())) < len(files):
        raise click.UsageError("two FILEs of one name cannot go to one folder")
    return {file: str(folder / f"{stem}.schedule.json") for file, stem in stem_of_file.items()}


def _print_solution(
    name: str, solution: Solution, uncounted_here_s: dict[str, float], verbose: bool
) -> None:
    """Print the status of a solution, and its figures below each other.

    `name` is that of the file. ``uncounted_here_s[reason]`` are the seconds that do not count in
    the time of the solution, as those of compiling. With `verbose`, statistics of the method that
    are no numbers follow, too.
    """
    has_answer = solution.status in (Status.OPTIMAL, Status.FEASIBLE)
    click.echo(f"{name}: {paint(solution.status.value, has_answer)}")
    rows: dict[str, Any] = {}

    # The answer: its size, its objective and how near it is to the best one.
    if solution.status is Status.INFEASIBLE or "reason" in solution.stats:
        rows["reason"] = str(solution.stats.get("reason", "none given"))
    slots_of_planes = _slots_of_planes(solution)
    if len(slots_of_planes) > 1:
        rows["slots"] = f"{sum(slots_of_planes)} on {len(slots_of_planes)} planes"
    elif slots_of_planes and "rounds" not in solution.stats:
        # The slots of a collective are its changes of circuits, which a row below counts.
        rows["slots"] = f"{slots_of_planes[0]}"

    rows |= describe_claims(solution)
    rows["method"] = f"{solution.method}, seed {solution.seed}, {solution.time_s:.3g} s"
    times = [f"{name} {time_s:.2g} s" for name, time_s in uncounted_here_s.items()]
    rows["not counted"] = ", ".join(times)

    # Statistics of the method, but those that rows above have already.
    for key, value in solution.stats.items():
        if key in ("reason", "slots", "compile_s") or (key, value) == ("rounds_late", 0):
            continue  # without late ranks no round is late
        if verbose or type(value) in (int, float) or key == "fewest_slots":
            rows[key] = value
    print_rows(rows)


def _slots_of_planes(solution: Solution) -> list[int]:
    """Count the slots of each plane; empty without an answer."""
    if solution.schedule is not None:
        return [solution.schedule.n_slots]
    schedules = getattr(solution.answer, "schedules", ())
    return [schedule.n_slots for schedule in schedules]


def _explain(name: str, solution: Solution, saved_to: str | None) -> None:
    """Say on stderr why a search stopped, and where the answer is (`saved_to`, None: nowhere)."""
    if solution.limit is Limit.INTERRUPTED:
        say(f"{name}: interrupted")
    elif solution.limit not in (None, Limit.EXHAUSTED):
        best = "no schedule" if solution.objective is None else "the best so far"
        say(f"{name}: {best} at the limit: {solution.limit.value}")

    if saved_to is None and solution.objective is not None:
        say(f"{name}: nothing was saved; -o FILE keeps the schedule")
    elif saved_to not in (None, STDIN):
        say(f"{saved_to}: written")


def suggest_next_step(solution: Solution, method: str | None, time_limit_s: float | None) -> str:
    """Say how to improve or prove an answer whose search has nothing left to try.

    An exact method or a time limit may help, where the user has set none. The line has no full
    stop.
    """
    from optmatch.kinds import kind_of

    exhausted = "the search is exhausted, and the answer is not proved to be the best"
    exact_methods = [
        other.name
        for other in kind_of(solution.problem).methods
        if other.exact and other.takes(solution.problem) and other.name != solution.method
    ]
    if not exact_methods:
        return exhausted

    # With a time limit, ten times of what it took, the default method goes on by itself.
    if method is None and time_limit_s is None:
        longer_s = max(1, round(10 * solution.time_s))
        return f"{exhausted}; --time-limit {longer_s} goes on, to a better answer or a proof"
    return f"{exhausted}; --method {exact_methods[0]} may prove it"

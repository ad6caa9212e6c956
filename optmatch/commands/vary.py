"""`optmatch vary`: a problem solved for each value of a field, by methods side by side."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import click

from optmatch.commands.shared.interrupt import unbroken
from optmatch.commands.shared.options import (
    EXECUTOR_OPTIONS,
    Duration,
    SectionedCommand,
    count,
    executing,
    type_of_field,
    with_options,
)
from optmatch.commands.shared.outcome import INTERRUPTED, SOLVED, read_problem
from optmatch.commands.shared.progress import listening
from optmatch.commands.shared.studies import STUDY_OPTIONS, check_output, read_names, show_study
from optmatch.model.problem import split_unit, write_amount

_MOST_VALUES = 1000
"""So many values are filled in for dots."""


@click.command(cls=SectionedCommand)
@click.argument("file", metavar="PROBLEM", type=click.Path())
@click.option(
    "--field",
    "names",
    multiple=True,
    required=True,
    metavar="NAME",
    help="A field of the problem, as delay_s; of a part of it where several have it, as"
    " network.delay_s. Several fields, each with --values: all combinations.",
)
@click.option(
    "--values",
    multiple=True,
    required=True,
    metavar="V,...",
    help="Its values, as 1us,10us,...,1s, where dots go on by the same factor or step.",
)
@click.option("--method", metavar="NAME,...", help="Methods.  [default: that of the kind]")
@click.option(
    "--time-limit", "time_limit_s", metavar="TIME", type=Duration(), help="Limit of each solve."
)
@count("--seed", 0, "Seed of each solve.")
@click.option(
    "--store",
    type=click.Path(),
    help="A file that keeps the answers: what it has is not solved again, and `optmatch report`"
    " reads it.",
)
@with_options(EXECUTOR_OPTIONS)
@with_options(STUDY_OPTIONS)
@click.pass_context
@unbroken()
def vary(ctx: click.Context, /, file: str, **options: Any) -> None:
    """Solve a problem for each value of a field: how the objective depends on it.

    Of several methods it says where one falls below another. Ctrl-C ends with what is there.
    """
    # `options` are those of the command: `names` and `values` are lists of the same length, a
    # field and its values in one text, as "delay_s" and "1us,10us"; `jobs` and `dask` are where
    # tasks run, and `store` keeps their results, None for none.
    from optmatch.studies.comparisons import find_field, vary as run

    problem = read_problem(file)
    if len(options["names"]) != len(options["values"]):
        raise click.UsageError("--field and --values: as many of one as of the other")
    check_output(options["output"], force=options["force"])

    # Values are typed as those of the options of `generate`, with their units.
    values: dict[str, list[Any]] = {}
    for name, text in zip(options["names"], options["values"], strict=True):
        *parts, field = find_field(problem, name)
        record: Any = problem
        for part in parts:
            record = getattr(record, part)
        try:
            field_type = type_of_field(type(record), field)
        except TypeError as exc:
            raise click.UsageError(f"--field {name}: neither number nor word") from exc
        values[name] = read_values(text, field_type)
    methods = None if options["method"] is None else read_names(options["method"])

    with (
        executing(options["jobs"], options["dask"]) as executor,
        listening("values", quiet=options["quiet"]) as listen,
    ):
        study = run(
            problem,
            values,
            methods,
            seed=options["seed"],
            time_limit_s=options["time_limit_s"],
            store=options["store"],
            executor=executor,
            on_event=listen,
        )
    show_study(study, options["output"], as_json=options["as_json"])
    if not options["as_json"]:
        first = next(iter(values))
        for crossing in study.crossings():
            at = write_amount(crossing.value, split_unit(first)[1], digits=3)
            click.echo(f"from {first} = {at} on, {crossing.after} is below {crossing.before}")
    ctx.exit(SOLVED if study.complete else INTERRUPTED)


def read_values(text: str, field_type: Any) -> list[Any]:
    """Read values between commas; dots between them go on until the value behind them.

    They go on by the step of the values before them, or by their factor: whole numbers by the step
    where both would do, others by the factor. `text` is the option as it was typed, and
    `field_type` a type of click or Python.

    Examples
    --------
    >>> read_values("1,2,...,5", int), read_values("1,2,4,...,32", int)
    ([1, 2, 3, 4, 5], [1, 2, 4, 8, 16, 32])
    >>> read_values("1us,10us,...,10ms", Duration())
    [1e-06, 1e-05, 0.0001, 0.001, 0.01]
    """
    read_value = click.types.convert_type(field_type)
    values: list[Any] = []
    words = [word.strip() for word in text.split(",")]
    for place, word in enumerate(words):
        if word != "...":
            values.append(read_value(word, None, None))
            continue
        if len(values) < 2 or place + 1 == len(words):
            raise click.UsageError(f"--values {text}: dots stand after two values and before one")
        last = read_value(words[place + 1], None, None)
        values += _fill_in(values, last, text)
    return values


def _fill_in(values: list[Any], last: Any, text: str) -> list[Any]:
    """Return the values between the last of `values` and `last`, by their step or factor.

    A step needs equal differences, a factor equal ratios of all values before the dots. `text` is
    the option as it was typed, for the error.
    """
    former, latest = values[-2:]
    for is_step in (isinstance(last, int), not isinstance(last, int)):
        n_steps = 0.0
        if is_step and all(math.isclose(b - a, latest - former) for a, b in pairwise(values)):
            n_steps = (last - latest) / (latest - former or math.inf)
        elif not is_step and min(*values, last) > 0 and latest != former:
            is_factor = all(math.isclose(b * former, a * latest) for a, b in pairwise(values))
            n_steps = math.log(last / latest) / math.log(latest / former) if is_factor else 0.0

        # A whole number of steps, or of factors, leads to the last value.
        if 1 <= round(n_steps) <= _MOST_VALUES and abs(n_steps - round(n_steps)) <= 1e-6:
            filled = []
            for k in range(1, round(n_steps)):
                step, factor = latest - former, latest / (former or 1)
                value = latest + k * step if is_step else latest * factor**k
                filled.append(type(last)(float(f"{value:.12g}")))
            return filled
    raise click.UsageError(f"--values {text}: neither a step nor a factor leads to the last value")

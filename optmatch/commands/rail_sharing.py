"""`optmatch generate rail-sharing`: training jobs that divide the same rails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from optmatch.commands.shared.options import (
    FILE_OPTIONS,
    FieldOption,
    field_options,
    with_options,
    write_problem,
)
from optmatch.commands.shared.outcome import read_problem
from optmatch.model import InputError
from optmatch.problems import NamedJob, RailJob, RailSharing

_FIELDS = ("radix", "by", "handover_s", FieldOption("round_s", "--longest-round"))


@click.command()
@click.argument("files", metavar="[NAME=]JOB...", nargs=-1, required=True)
@with_options(field_options(RailSharing, _FIELDS))
@with_options(FILE_OPTIONS)
def rail_sharing(files: tuple[str, ...], output: str, force: bool, **options: Any) -> None:
    """Training jobs that divide rails by ports, servers or time.

    Each job is a file of `generate rail-job`, and has the name of the file unless another one is
    given before it.
    """
    jobs = []
    for text in files:
        # A file whose own path has an equals sign in it, as lr=0.1/job.json, has no other name.
        name, is_named, path = text.partition("=")
        if not is_named or Path(text).is_file():
            path = text
            name = Path(path).stem
        problem = read_problem(path)
        if not isinstance(problem, RailJob):
            raise InputError(
                f"a problem of kind {problem.kind}: a rail job is expected", path=path
            )
        jobs.append(NamedJob(name, problem))
    write_problem(RailSharing(jobs=tuple(jobs), **options), output, force)

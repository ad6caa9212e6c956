"""`optmatch generate collective`: the operation of ranks, and the costs of rounds and circuits."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from optmatch.commands.shared.options import (
    FABRIC_NAMES,
    FILE_OPTIONS,
    FieldOption,
    SectionedCommand,
    build_fabric,
    fabric_options,
    field_options,
    listed,
    pair,
    read_seconds,
    take,
    with_options,
    write_problem,
)
from optmatch.problems import Collective
from optmatch.problems.collectives.fields import OPERATIONS
from optmatch.problems.collectives.problem import STARTS

_SIZES = ("n_ranks", FieldOption("size_bytes", "--bytes"))
_TYPED = {
    "two_way": FieldOption("two_way", is_flag=True),
    "start": FieldOption("start", type=click.Choice(STARTS)),
    "steps": FieldOption("steps", type=listed(pair(":", int, float), "1:8e6")),
    "late_s": FieldOption("late_s", type=listed(pair("=", int, read_seconds), "63=10ms")),
}
_ASKED_ELSEWHERE = {"operation", "n_ranks", "size_bytes", "demand_bytes", "ports", "fabric"}
_COSTS = [
    _TYPED.get(part.name, part.name)
    for part in fields(Collective)
    if part.name not in _ASKED_ELSEWHERE
]


@click.command(cls=SectionedCommand)
@click.argument("operation", type=click.Choice(OPERATIONS))
@with_options(field_options(Collective, _SIZES, optional=True))
@click.option(
    "--matrix",
    type=click.Path(),
    help="Instead of both, of an uneven all-to-all: bytes from each to each, as of a demand.",
)
@with_options(field_options(Collective, _COSTS))
@click.option("--ports-per-rank", type=int, default=1, show_default=True, help="On each plane.")
@with_options(fabric_options(None, "The switch of a plane.  [default: an ideal one]"))
@with_options(FILE_OPTIONS)
def collective(
    type_: str | None,
    matrix: str | None,
    ports_per_rank: int,
    late_s: Any,
    output: str,
    force: bool,
    **options: Any,
) -> None:
    """Write a collective over circuits that may change between its rounds."""
    # The data are a number of ranks and bytes, in `options`, or those of the file `matrix`: bytes
    # from each rank to each other one. `late_s` has pairs (rank, seconds) of ranks that begin
    # late. The other `options` are those of the switch, of type `type_`, and fields of the
    # problem, by name.
    shape = take(options, FABRIC_NAMES)
    stated_sizes = [options["n_ranks"], options["size_bytes"]]
    if matrix is None:
        if None in stated_sizes:
            raise click.UsageError("--ranks and --bytes, or --matrix")
    else:
        from optmatch.io import read_matrix

        if stated_sizes != [None, None]:
            raise click.UsageError("--ranks and --bytes: not with --matrix")
        demand_bytes = read_matrix(matrix)
        options["n_ranks"] = len(demand_bytes)
        options["size_bytes"] = 0.0
        options["demand_bytes"] = demand_bytes
    fabric = build_fabric(type_, shape) if type_ else None
    problem = Collective(
        ports=ports_per_rank,
        late_s=dict(late_s or ()),
        fabric=fabric,  # type: ignore[arg-type]
        **options,
    )
    write_problem(problem, output, force)

"""`optmatch generate collective`: the operation of ranks, and the costs of rounds and circuits."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from optmatch.commands.demands.generate import read_numbers, with_names
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
    without_none,
    write_problem,
)
from optmatch.fabrics import IdealSwitch
from optmatch.problems import Collective
from optmatch.problems.collectives.fields import OPERATIONS
from optmatch.problems.collectives.problem import STARTS
from optmatch.problems.demands.matrices import plain_matrix

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
    if {options["n_ranks"] is None, options["size_bytes"] is None} != {matrix is not None}:
        raise click.UsageError("either --ranks and --bytes, or --matrix")
    rank_names = None
    if matrix is not None:
        numbers, rank_names = read_numbers(
            matrix, traces=(), layout_options={}, groups=None, lenient=False, unit=None
        )
        demand_bytes = plain_matrix(numbers, "matrix").entries
        options.update(n_ranks=len(demand_bytes), size_bytes=0.0, demand_bytes=demand_bytes)

    # The ports have the names of their ranks in the file. Each of several ports of a rank has its
    # number behind that.
    fabric = None
    if type_ or without_none(shape):
        fabric = build_fabric(type_ or "ideal-switch", shape)
    if rank_names is not None:
        endings = [f".{port}" for port in range(ports_per_rank)] if ports_per_rank > 1 else [""]
        port_names = tuple(rank + ending for rank in rank_names for ending in endings)
        fabric = with_names(fabric or IdealSwitch(len(port_names)), port_names)
    options.update(ports=ports_per_rank, late_s=dict(late_s or ()), fabric=fabric)
    write_problem(Collective(**options), output, force)

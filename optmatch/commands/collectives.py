"""`optmatch generate collective`: the operation of ranks, and the costs of rounds and circuits."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from optmatch.commands.shared.options import (
    FABRIC_NAMES,
    FILE_OPTIONS,
    Listed,
    Row,
    build_fabric,
    fabric_options,
    field_options,
    pair,
    read_seconds,
    take,
    with_options,
    write_problem,
)
from optmatch.problems import Collective
from optmatch.problems.collectives.problem import OPERATIONS, STARTS

_COSTS: tuple[Row, ...] = (
    ("--alpha", "alpha_s", "Seconds of software for each round."),
    ("--hop", "hop_s", "Seconds for each hop.  [default: none is forwarded in a round]"),
    ("--rate", "rate_bytes_per_s", "Bytes per second of a port, or as 100Gbit/s."),
    ("--delay", "delay_s", "Seconds to set up new circuits."),
    ("--planes", "planes", "Switches side by side."),
    ("--start", "start", "Whether the first circuits are there.", click.Choice(STARTS)),
    ("--root", "root", "The rank that has the buffer of a broadcast."),
    ("--island", "island", "Ranks of an island, which have links of their own."),
    ("--island-rate", "island_rate_bytes_per_s", "Bytes per second of a rank inside its island."),
    ("--island-alpha", "island_alpha_s", "Seconds for each round inside islands."),
    ("--align", "align_bytes", "Each chunk is a multiple of so many bytes."),
)


@click.command()
@click.argument("operation", type=click.Choice(OPERATIONS))
@click.option("--ranks", "n_ranks", type=int, help="How many take part.")
@click.option("--bytes", "size_bytes", type=float, help="The whole buffer of a rank.")
@click.option(
    "--matrix",
    type=click.Path(),
    help="Instead of both, of an uneven all-to-all: bytes from each to each, as of a demand.",
)
@with_options(field_options(Collective, _COSTS))
@click.option("--ports-per-rank", type=int, default=1, show_default=True, help="On each plane.")
@click.option("--two-way", is_flag=True, help="Circuits join ports in both directions.")
@click.option(
    "--late",
    type=Listed(pair("=", int, read_seconds), "63=10ms"),
    help="Late ranks and by how many seconds, as 63=0.01,5=0.02.",
)
@click.option(
    "--steps",
    type=Listed(pair(":", int, float), "1:8e6"),
    help="Steps from outside, as 1:8e6,2:4e6: state and bytes.",
)
@with_options(fabric_options(None, "The switch of a plane.  [default: an ideal one]"))
@with_options(FILE_OPTIONS)
def collective(
    type_: str | None,
    matrix: str | None,
    ports_per_rank: int,
    late: Any,
    output: str,
    force: bool,
    **options: Any,
) -> None:
    """Write a collective over circuits that may change between its rounds."""
    shape = take(options, FABRIC_NAMES)
    has_ranks = options["n_ranks"] is not None
    has_size = options["size_bytes"] is not None
    if matrix is None:
        if not (has_ranks and has_size):
            raise click.UsageError("--ranks and --bytes, or --matrix")
    else:
        from optmatch.io import read_matrix

        if has_ranks or has_size:
            raise click.UsageError("--ranks and --bytes: not with --matrix")
        demand_bytes = read_matrix(matrix).copy()
        np.fill_diagonal(demand_bytes, 0.0)  # a block that stays is not sent
        options["n_ranks"] = len(demand_bytes)
        options["size_bytes"] = 0.0
        options["demand_bytes"] = demand_bytes
    fabric = build_fabric(type_, shape) if type_ else None
    problem = Collective(
        ports=ports_per_rank,
        late_s=dict(late or ()),
        fabric=fabric,  # type: ignore[arg-type]
        **options,
    )
    write_problem(problem, output, force)

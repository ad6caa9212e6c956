"""`optmatch generate placement`: which port each host gets."""

from __future__ import annotations

from typing import Any, get_args

import click
import numpy as np

from optmatch.commands.shared.options import (
    FABRIC_NAMES,
    FILE_OPTIONS,
    LABELS,
    NUMBERS,
    FieldOption,
    build_fabric,
    count,
    fabric_options,
    field_options,
    take,
    with_options,
    write_problem,
)
from optmatch.problems.placements import HostPlacement, Pattern

MEAN_LOSS_DB = 1.5
SPREAD_DB = 0.5
LEAST_LOSS_DB = 0.1


@click.command()
@with_options(fabric_options("ideal-switch"))
@click.option("--dead-ports", type=LABELS, help="Ports that take part in no circuit.")
@with_options(field_options(HostPlacement, ("n_hosts",)))
@click.option(
    "--pattern",
    type=click.Choice(get_args(Pattern)),
    help="Which hosts need circuits.  [default: all-to-all, or demand with --matrix]",
)
@click.option("--matrix", type=click.Path(), help="A demand between hosts; it needs circuits > 0.")
@with_options(field_options(HostPlacement, (FieldOption("held", type=NUMBERS), "objective")))
@count("--seed", 0, "Without --loss: seed of losses that are drawn, of 1.5 dB in the mean.")
@with_options(FILE_OPTIONS)
def placement(
    *,
    type_: str,
    n_hosts: int,
    pattern: str | None,
    matrix: str | None,
    held: list[int] | None,
    objective: str,
    seed: int,
    output: str,
    force: bool,
    **options: Any,
) -> None:
    """Hosts that want ports of an ideal switch whose circuits lose least."""
    # `pattern` says which of the `n_hosts` hosts need circuits; with the file `matrix` those with
    # bytes for each other (None: no file). `held` lists the ports that hosts have already.
    # `options` are those of the switch, among them the file of its losses; without one, losses are
    # drawn by `seed`.
    shape = take(options, (*FABRIC_NAMES, "dead_ports"))
    if shape["loss"] is None:
        if shape["size"] is None:
            raise click.UsageError("--loss: a file; or --size, for losses that are drawn")
        shape["loss"] = _draw_losses(shape["size"], seed)
    demand: Any = None
    if matrix is not None:
        from optmatch.io import read_matrix

        demand = np.asarray(read_matrix(matrix), dtype=np.float64)
    if pattern is None:
        pattern = "all-to-all" if demand is None else "demand"
    problem = HostPlacement(
        build_fabric(type_, shape),
        n_hosts,
        pattern=pattern,  # type: ignore[arg-type]
        demand_bytes=demand,
        held=tuple(held or ()),
        objective=objective,  # type: ignore[arg-type]
    )
    write_problem(problem, output, force)


def _draw_losses(n_ports: int, seed: int) -> Any:
    """Draw ``loss_db[source, destination]`` from a normal distribution, to hundredths of a dB."""
    rng = np.random.default_rng(seed)
    drawn_db = rng.normal(MEAN_LOSS_DB, SPREAD_DB, (n_ports, n_ports))
    return np.maximum(LEAST_LOSS_DB, drawn_db).round(2)

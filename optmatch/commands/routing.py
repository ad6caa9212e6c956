"""`optmatch generate routing`: a matching, given or drawn at random."""

from __future__ import annotations

from typing import Any, get_args

import click

from optmatch.commands.shared.chip import CHIP_OPTIONS, take_chip
from optmatch.commands.shared.options import (
    CONDITION_OPTIONS,
    FABRIC_OPTIONS,
    FILE_OPTIONS,
    LABELS,
    build_fabric,
    count,
    draw_ports,
    with_options,
    write_problem,
)
from optmatch.fabrics import Fabric
from optmatch.problems import Routing
from optmatch.problems.routing import Objective


@click.command()
@with_options(FABRIC_OPTIONS)
@with_options(CONDITION_OPTIONS)
@with_options(CHIP_OPTIONS)
@click.option(
    "--matching", type=LABELS, help="Destinations by source, numbers or names, -1 idle: 1,0,3,2"
)
@click.option("--random-matching", is_flag=True, help="Draw a random matching of all ports.")
@count("--seed", 0, "Seed of the random matching.")
@click.option("--objective", type=click.Choice(get_args(Objective)), default="total-cells")
@click.option("--bar-loss-db", type=float, default=0.48, help="Loss of a cell in bar.")
@click.option("--cross-loss-db", type=float, default=0.48, help="Loss of a cell in cross.")
@with_options(FILE_OPTIONS)
def routing(
    type_: str,
    output: str,
    force: bool,
    matching: Any,
    random_matching: bool,
    seed: int,
    **options: Any,
) -> None:
    """One matching, to be routed through the cells."""
    if (matching is None) == (not random_matching):
        raise click.UsageError("either --matching or --random-matching")
    fabric, cells = take_chip(build_fabric(type_, options), options)
    if matching is None:
        chosen = draw_matching(fabric, seed)
    else:
        chosen = [fabric.find_port(label, receives=True) for label in matching]
    write_problem(Routing(fabric, chosen, cells=cells, **options), output, force)


def draw_matching(fabric: Fabric, seed: int) -> list[int]:
    """Draw a matching of all ports: ``matching[source] = destination``.

    No port meets itself, unless it is alone; of an odd number of bidirectional ports one is idle.
    """
    return draw_ports(fabric.n_ports, fabric.bidirectional, seed)

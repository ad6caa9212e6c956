"""`optmatch generate routing`: a matching, given or drawn at random."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from optmatch.commands.options import (
    CONDITION_OPTIONS,
    FABRIC_OPTIONS,
    FILE_OPTIONS,
    Integers,
    build_fabric,
    with_options,
    write_problem,
)
from optmatch.fabrics import Fabric
from optmatch.problems import Routing


@click.command()
@with_options(FABRIC_OPTIONS)
@with_options(CONDITION_OPTIONS)
@click.option(
    "--matching", type=Integers(single=False), help="Destinations by source, -1 idle: 1,0,3,2"
)
@click.option("--random-matching", is_flag=True, help="A random matching of all ports.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the random matching.",
)
@click.option(
    "--objective",
    type=click.Choice(["total-cells", "worst-cells", "loss-db"]),
    default="total-cells",
    show_default=True,
)
@click.option(
    "--bar-loss-db", type=float, default=0.48, show_default=True, help="Of one cell, for loss-db."
)
@click.option(
    "--cross-loss-db",
    type=float,
    default=0.48,
    show_default=True,
    help="Of one cell, for loss-db.",
)
@with_options(FILE_OPTIONS)
def routing(
    type_: str,
    output: str,
    force: bool,
    matching: list[int] | None,
    random_matching: bool,
    seed: int,
    objective: Any,
    bar_loss_db: float,
    cross_loss_db: float,
    **options: Any,
) -> None:
    """One matching, to be routed through the cells."""
    if (matching is None) == (not random_matching):
        raise click.UsageError("either --matching or --random-matching")
    fabric = build_fabric(type_, options)
    problem = Routing(
        fabric,
        draw_matching(fabric, seed) if matching is None else matching,  # type: ignore[arg-type]
        objective=objective,
        bar_loss_db=bar_loss_db,
        cross_loss_db=cross_loss_db,
    )
    write_problem(problem, output, force)


def draw_matching(fabric: Fabric, seed: int) -> list[int]:
    """Draw a matching of all ports; of an odd number of bidirectional ports one stays idle.

    Parameters
    ----------
    fabric
        The switch.
    seed
        Of the random numbers.

    Returns
    -------
    list of int
        ``matching[source] = destination``; no port meets itself, unless it is alone.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> sorted(draw_matching(IdealSwitch(4), seed=1))
    [0, 1, 2, 3]
    """
    return draw_ports(fabric.n_ports, fabric.bidirectional, seed)


def draw_ports(n: int, pairs: bool, seed: int) -> list[int]:
    """Draw a matching of n ports, which exchanges them in pairs or has inputs and outputs."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    matching = np.full(n, -1)
    if pairs:
        two = order[: n - n % 2].reshape(-1, 2)
        matching[two[:, 0]], matching[two[:, 1]] = two[:, 1], two[:, 0]
    else:
        while (
            n > 1 and (order == np.arange(n)).any()
        ):  # one draw in e has no port that meets itself
            order = rng.permutation(n)
        matching = order
    return [int(port) for port in matching]


COMMANDS = (routing,)

"""`optmatch generate routing`: a matching, given or drawn at random."""

from __future__ import annotations

from typing import Any

import click

from optmatch.commands.shared.chip import CHIP_OPTIONS, take_chip
from optmatch.commands.shared.options import (
    CONDITION_OPTIONS,
    FABRIC_OPTIONS,
    FILE_OPTIONS,
    LABELS,
    SectionedCommand,
    build_fabric,
    count,
    draw_ports,
    field_options,
    with_options,
    write_problem,
)
from optmatch.fabrics import Fabric
from optmatch.model import InputError
from optmatch.problems import Routing


@click.command(cls=SectionedCommand)
@with_options(FABRIC_OPTIONS)
@with_options(CONDITION_OPTIONS)
@with_options(CHIP_OPTIONS)
@click.option(
    "--matching", type=LABELS, help="Destinations by source, numbers or names, -1 idle: 1,0,3,2"
)
@click.option("--random-matching", is_flag=True, help="Draw a random matching of all ports.")
@count("--seed", 0, "Seed of the random matching.")
@with_options(field_options(Routing, ("objective", "bar_loss_db", "cross_loss_db")))
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
        chosen = draw_ports(fabric.n_ports, fabric.bidirectional, seed)
    else:
        chosen = _find_destinations(fabric, matching)
    write_problem(Routing(fabric, chosen, cells=cells, **options), output, force)


def _find_destinations(fabric: Fabric, labels: list[str]) -> list[int]:
    """Return the numbers of the ports of a typed matching, the destination of each source port.

    If there is no port of a name, the message of the `InputError` shows the form of the list.
    """
    try:
        return [fabric.find_port(label, receives=True) for label in labels]
    except InputError as exc:
        # A list of the user's own ports shows the form best: the last port comes first.
        names = list(fabric.receiver_names[:4])
        example = ",".join(reversed(names))
        rule = f"the destinations of all sources in order are expected, as {example}"
        if fabric.n_ports > len(names):
            rule += ",..."
        raise InputError(f"{exc}; {rule}", where="matching") from None

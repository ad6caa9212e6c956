"""`optmatch generate all-to-all`."""

from __future__ import annotations

from typing import Any, get_args

import click

from optmatch.commands.shared.chip import CHIP_OPTIONS, take_chip
from optmatch.commands.shared.options import (
    CONDITION_OPTIONS,
    FABRIC_OPTIONS,
    FILE_OPTIONS,
    Duration,
    build_fabric,
    read_seconds,
    with_options,
    write_problem,
)
from optmatch.problems import AllToAll
from optmatch.problems.all_to_all import Objective


def _read_delay(text: str) -> float | str:
    try:
        return text if text == "cells" else read_seconds(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: seconds, or cells") from None


@click.command()
@with_options(FABRIC_OPTIONS)
@with_options(CONDITION_OPTIONS)
@with_options(CHIP_OPTIONS)
@click.option(
    "--slot", "slot_s", type=Duration(), default="1s", help="How long each matching lasts."
)
@click.option(
    "--delay",
    "delay_s",
    type=_read_delay,
    metavar="S|cells",
    default="0",
    help="Reconfiguration delay, as 20us; cells: that of the slowest cell that a slot sets anew.",
)
@click.option("--objective", type=click.Choice(get_args(Objective)), default="total-cells")
@with_options(FILE_OPTIONS)
def all_to_all(type_: str, output: str, force: bool, **options: Any) -> None:
    """Every pair of ports once, in the fewest matchings."""
    fabric, cells = take_chip(build_fabric(type_, options), options)
    write_problem(AllToAll(fabric, cells=cells, **options), output, force)

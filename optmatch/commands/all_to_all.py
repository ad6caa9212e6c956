"""`optmatch generate all-to-all`."""

from __future__ import annotations

from typing import Any

import click

from optmatch.commands.shared.options import (
    CONDITION_OPTIONS,
    FABRIC_OPTIONS,
    FILE_OPTIONS,
    build_fabric,
    with_options,
    write_problem,
)
from optmatch.problems import AllToAll


@click.command()
@with_options(FABRIC_OPTIONS)
@with_options(CONDITION_OPTIONS)
@click.option("--slot", "slot_s", type=float, default=1.0, help="Seconds of each matching.")
@click.option("--delay", "delay_s", type=float, default=0.0, help="Reconfiguration delay in s.")
@with_options(FILE_OPTIONS)
def all_to_all(
    type_: str, output: str, force: bool, slot_s: float, delay_s: float, **options: Any
) -> None:
    """Every pair of ports once, in the fewest matchings."""
    problem = AllToAll(build_fabric(type_, options), slot_s=slot_s, delay_s=delay_s)
    write_problem(problem, output, force)

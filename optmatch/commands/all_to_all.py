"""`optmatch generate all-to-all`."""

from __future__ import annotations

from typing import Any

import click

from optmatch.commands.shared.chip import CHIP_OPTIONS, take_chip
from optmatch.commands.shared.options import (
    CONDITION_OPTIONS,
    FABRIC_OPTIONS,
    FILE_OPTIONS,
    FieldOption,
    Parsed,
    SectionedCommand,
    build_fabric,
    field_options,
    read_seconds,
    with_options,
    write_problem,
)
from optmatch.problems import AllToAll


def _read_delay(text: str) -> float | str:
    """Read a time as `Duration` does, or the word ``cells``; else it is a `ValueError`."""
    if text == "cells":
        return text
    return read_seconds(text)


_DELAY = Parsed("S|cells", _read_delay, "seconds, or cells")


@click.command(cls=SectionedCommand)
@with_options(FABRIC_OPTIONS)
@with_options(CONDITION_OPTIONS)
@with_options(CHIP_OPTIONS)
@with_options(
    field_options(AllToAll, ("slot_s", FieldOption("delay_s", type=_DELAY), "objective"))
)
@with_options(FILE_OPTIONS)
def all_to_all(type_: str, output: str, force: bool, **options: Any) -> None:
    """Every pair of ports once, in the fewest matchings."""
    fabric, cells = take_chip(build_fabric(type_, options), options)
    write_problem(AllToAll(fabric, cells=cells, **options), output, force)

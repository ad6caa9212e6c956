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
    SectionedCommand,
    build_fabric,
    field_options,
    read_seconds,
    with_options,
    write_problem,
)
from optmatch.problems import AllToAll


class Delay(click.ParamType):  # type: ignore[type-arg] # no generic class before click 8.3.2
    """A time as `Duration` reads it, or the word ``cells``."""

    name = "S|cells"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        """Return seconds >= 0, or the word."""
        if value == "cells":
            return "cells"
        try:
            return read_seconds(str(value))
        except ValueError:
            self.fail(f"{value!r}: seconds, or cells", param, ctx)


@click.command(cls=SectionedCommand)
@with_options(FABRIC_OPTIONS)
@with_options(CONDITION_OPTIONS)
@with_options(CHIP_OPTIONS)
@with_options(
    field_options(AllToAll, ("slot_s", FieldOption("delay_s", type=Delay()), "objective"))
)
@with_options(FILE_OPTIONS)
def all_to_all(type_: str, output: str, force: bool, **options: Any) -> None:
    """Every pair of ports once, in the fewest matchings."""
    fabric, cells = take_chip(build_fabric(type_, options), options)
    write_problem(AllToAll(fabric, cells=cells, **options), output, force)

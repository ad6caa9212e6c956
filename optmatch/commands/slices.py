"""`optmatch generate slice-allocation`: one more slice for racks in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import numpy as np

from optmatch.commands.shared.options import (
    FILE_OPTIONS,
    NUMBERS,
    FieldOption,
    count,
    field_options,
    with_options,
    without_none,
    write_problem,
)
from optmatch.fabrics import RackFabric
from optmatch.model import InputError
from optmatch.problems import SliceAllocation

if TYPE_CHECKING:
    from optmatch.problems.slices.shape import Shape

_RACK_OPTIONS = (
    click.option("--racks", type=int, help="Number of racks.  [default: 1]"),
    click.option("--chips", metavar="AxBxC", help="Chips of a rack.  [default: 4x4x4]"),
    click.option("--server", metavar="AxBxC", help="Chips of a server.  [default: 2x2x1]"),
    click.option("--fibres", type=int, help="Fibres to each neighbour.  [default: 8]"),
)


@click.command("slice-allocation")
@with_options(_RACK_OPTIONS)
@click.option(
    "--joined", is_flag=True, help="Join the racks by optical switches; slices may span them."
)
@click.option("--shape", metavar="AxBxC", required=True, help="Chips of the slice.")
@with_options(field_options(SliceAllocation, (FieldOption("twisted", is_flag=True),)))
@click.option(
    "--placed", metavar="AxBxC,...", help="Slices that are there, on random servers and routes."
)
@with_options(field_options(SliceAllocation, (FieldOption("reserved", type=NUMBERS), "routes")))
@count("--seed", 0, "Seed of the slices that are there.")
@with_options(FILE_OPTIONS)
def slice_allocation(
    output: str,
    force: bool,
    shape: str,
    placed: str | None,
    reserved: list[int] | None,
    routes: int,
    seed: int,
    joined: bool,
    twisted: bool,
    **options: Any,
) -> None:
    """One more torus of chips, on servers anywhere in a rack, or in joined racks."""
    # `shape` is the number of chips of the new slice along each axis, as "4x4x4"; `placed` lists
    # the shapes of slices that are there, None for none. `reserved` are servers that no slice may
    # take. `routes` is how many routes are tried between two servers. `options` are of the racks.
    from optmatch.problems.slices.problem import draw_occupancy

    rack_options = without_none(options)
    for name in rack_options.keys() & {"chips", "server"}:
        try:
            rack_options[name] = _parse_shape(rack_options[name])
        except InputError as exc:
            raise InputError(f"--{name} {exc.message}", where=name) from exc
    fabric = RackFabric(**rack_options, joined=joined)
    placed_shapes = []
    if placed is not None:
        placed_shapes = [_parse_shape(part) for part in placed.split(",")]

    # Slices that are there obey the same limits as the new one.
    limits: dict[str, Any] = {"routes": routes, "reserved": tuple(reserved or ())}
    slices = draw_occupancy(fabric, placed_shapes, np.random.default_rng(seed), **limits)
    chips = _parse_shape(shape)
    problem = SliceAllocation(fabric, chips, placed=slices, twisted=twisted, **limits)
    write_problem(problem, output, force)


def _parse_shape(text: str) -> Shape:
    """Read a shape as 2x2x4."""
    from optmatch.problems.slices.problem import read_shape

    parts = text.strip().lower().split("x")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(f"shape {text!r}: three sides in chips as 2x2x4 are expected")
    return read_shape([int(part) for part in parts])

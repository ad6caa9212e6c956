"""`optmatch generate slice-allocation`: one more slice for racks in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import numpy as np

from optmatch.commands.shared.options import (
    FILE_OPTIONS,
    NUMBERS,
    FieldOption,
    Parsed,
    count,
    field_options,
    listed,
    with_options,
    without_none,
    write_problem,
)
from optmatch.fabrics import RackFabric
from optmatch.problems import SliceAllocation

if TYPE_CHECKING:
    from optmatch.problems.slices.shape import Shape


def _read_shape(text: str) -> tuple[int, ...]:
    """Read the sides of a box of chips, as 2x2x4; else it is a `ValueError`."""
    sides = tuple(int(side) for side in text.lower().split("x"))
    if len(sides) != 3:
        raise ValueError(text)
    return sides


_SHAPE = Parsed("shape", _read_shape, "three sides in chips as 2x2x4 are expected")
_RACK_OPTIONS = (
    click.option("--racks", type=int, help="Number of racks.  [default: 1]"),
    click.option(
        "--chips", metavar="AxBxC", type=_SHAPE, help="Chips of a rack.  [default: 4x4x4]"
    ),
    click.option(
        "--server", metavar="AxBxC", type=_SHAPE, help="Chips of a server.  [default: 2x2x1]"
    ),
    click.option("--fibres", type=int, help="Fibres to each neighbour.  [default: 8]"),
)


@click.command("slice-allocation")
@with_options(_RACK_OPTIONS)
@click.option(
    "--joined", is_flag=True, help="Join the racks by optical switches; slices may span them."
)
@click.option("--shape", metavar="AxBxC", type=_SHAPE, required=True, help="Chips of the slice.")
@with_options(field_options(SliceAllocation, (FieldOption("twisted", is_flag=True),)))
@click.option(
    "--placed",
    metavar="AxBxC,...",
    type=listed(_read_shape, "three sides in chips as 2x2x4"),
    help="Slices that are there, on random servers and routes.",
)
@with_options(field_options(SliceAllocation, (FieldOption("reserved", type=NUMBERS), "routes")))
@count("--seed", 0, "Seed of the slices that are there.")
@with_options(FILE_OPTIONS)
def slice_allocation(
    output: str,
    force: bool,
    shape: Shape,
    placed: list[Shape] | None,
    reserved: list[int] | None,
    routes: int,
    seed: int,
    joined: bool,
    twisted: bool,
    **options: Any,
) -> None:
    """One more torus of chips, on servers anywhere in a rack, or in joined racks."""
    # `shape` is the number of chips of the new slice along each axis; `placed` lists the shapes of
    # slices that are there, None for none. `reserved` are servers that no slice may
    # take. `routes` is how many routes are tried between two servers. `options` are of the racks.
    from optmatch.problems.slices.problem import draw_occupancy

    fabric = RackFabric(**without_none(options), joined=joined)

    # Slices that are there obey the same limits as the new one.
    limits: dict[str, Any] = {"routes": routes, "reserved": tuple(reserved or ())}
    slices = draw_occupancy(fabric, placed or [], np.random.default_rng(seed), **limits)
    problem = SliceAllocation(fabric, shape, placed=slices, twisted=twisted, **limits)
    write_problem(problem, output, force)

"""`optmatch generate slice-allocation`: one more slice for racks in use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
import numpy as np

from optmatch.commands.shared.options import (
    FILE_OPTIONS,
    NUMBERS,
    FieldOption,
    count,
    field_options,
    with_options,
    write_problem,
)
from optmatch.commands.study import RACK_OPTIONS, build_racks
from optmatch.problems import SliceAllocation


@click.command("slice-allocation")
@with_options(RACK_OPTIONS)
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
    from optmatch.studies.slices.arrivals import parse_shape

    fabric = replace(build_racks(options, racks=1), joined=joined)
    placed_shapes = []
    if placed is not None:
        placed_shapes = [parse_shape(part) for part in placed.split(",")]

    # Slices that are there obey the same limits as the new one.
    limits: dict[str, Any] = {"routes": routes, "reserved": tuple(reserved or ())}
    slices = draw_occupancy(fabric, placed_shapes, np.random.default_rng(seed), **limits)
    problem = SliceAllocation(fabric, parse_shape(shape), placed=slices, twisted=twisted, **limits)
    write_problem(problem, output, force)

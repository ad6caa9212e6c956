"""What a slice is made of: a torus of chips cut into servers, and the circuits between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import permutations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.fabrics.racks.wiring import number_of
from optmatch.model import Count, integer

Shape = tuple[Count, Count, Count]


class SliceShape(NamedTuple):
    """The slots of a slice, one server each, and its circuits; arrays are read-only."""

    shape: Shape
    """Chips along x, y and z."""
    grid: Shape
    """Slots along x, y and z; they are numbered x fastest."""
    pairs: NDArray[np.int32]
    """``pairs[pair] = slot, slot``: slots that exchange light, each direction a pair."""
    weights: NDArray[np.int32]
    """``weights[pair]``: how many circuits it has."""
    circuits: NDArray[np.int32]
    """``circuits[circuit] = slot, chip of the server, port, slot, chip, port``."""
    pair_of: NDArray[np.int32]
    """``pair_of[circuit]``: its pair, -1 where both ends are in one slot."""

    @property
    def n_slots(self) -> int:
        """How many servers the slice takes."""
        return int(np.prod(self.grid))


def read_numbers(name: str, rows: Iterable[Iterable[Any]]) -> tuple[tuple[int, ...], ...]:
    """Check rows of numbers of servers or chips."""
    return tuple(
        tuple(integer(f"{name}[{k}]", entry, at_least=0) for entry in row)
        for k, row in enumerate(rows)
    )


def orient(fabric: RackFabric, shape: Shape) -> tuple[Shape, ...]:
    """Return the ways to turn a slice such that it stands in a rack on the fewest servers.

    The shape as given comes first, if it is among them; there are none if no way stands. In racks
    that are joined there is light between any two servers, so a slice may have any sides as long
    as there are servers enough.
    """
    slots: dict[Shape, int] = {}
    for x, y, z in permutations(shape):
        grid = [-(-side // part) for side, part in zip((x, y, z), fabric.server, strict=True)]
        inside = all(side <= most for side, most in zip(grid, fabric.server_grid, strict=True))
        if inside or (fabric.joined and math.prod(grid) <= fabric.n_servers):
            slots[x, y, z] = math.prod(grid)
    fewest = min(slots.values(), default=0)
    return tuple(turned for turned, count in slots.items() if count == fewest)


@lru_cache(maxsize=256)
def cut_shape(shape: Shape, server: Shape) -> SliceShape:
    """Cut a torus of chips into servers of so many chips along x, y and z.

    Along an axis of three or more chips the last is joined to the first; along one of two they
    are joined once. Port 2k of a chip looks down axis k, port 2k + 1 up.
    """
    sides = [-(-side // part) for side, part in zip(shape, server, strict=True)]
    rows = []
    for z, y, x in product(*map(range, reversed(shape))):
        here = (x, y, z)
        for axis, side in enumerate(shape):
            if side > 2 or (side == 2 and here[axis] == 0):
                there = list(here)
                there[axis] = (here[axis] + 1) % side
                low = *_seat(here, server, sides), 2 * axis + 1
                high = *_seat(there, server, sides), 2 * axis
                rows += [[*low, *high], [*high, *low]]
    circuits = np.array(rows, dtype=np.int32).reshape(-1, 6)
    ends = circuits[:, [0, 3]]
    outside = ends[:, 0] != ends[:, 1]
    pairs, inverse = np.unique(ends[outside], axis=0, return_inverse=True)
    pair_of = np.full(len(circuits), -1, dtype=np.int32)
    pair_of[outside] = inverse.ravel()
    weights = np.bincount(inverse.ravel(), minlength=len(pairs)).astype(np.int32)
    for array in (pairs, weights, circuits, pair_of):
        array.flags.writeable = False
    x, y, z = sides
    return SliceShape(shape, (x, y, z), pairs.astype(np.int32), weights, circuits, pair_of)


def _seat(place: tuple[int, ...] | list[int], server: Shape, sides: list[int]) -> tuple[int, int]:
    """Return the slot of a chip and its number in the server."""
    block = [at // part for at, part in zip(place, server, strict=True)]
    inner = [at % part for at, part in zip(place, server, strict=True)]
    return number_of(block, sides), number_of(inner, server)

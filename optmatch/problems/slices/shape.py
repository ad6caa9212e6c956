"""The parts of a slice: a torus of chips cut into servers, its circuits, and its rings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.fabrics.racks.wiring import number_of
from optmatch.model import Axes, Count, Index, InputError, Value, brief_tuple, integer, read_only
from optmatch.model.declarations import Positive, Range, form_of
from optmatch.model.numbers import check_length

Shape = tuple[Count, Count, Count]


@brief_tuple
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
    twisted: bool = False

    @property
    def n_slots(self) -> int:
        """The number of servers that the slice takes."""
        return int(np.prod(self.grid))


def orient(fabric: RackFabric, shape: Shape) -> tuple[Shape, ...]:
    """Return the ways to turn a slice such that it stands in a rack on the fewest servers.

    The shape as given comes first, if it is among them. In racks that are joined a slice may have
    any sides as long as there are servers enough.
    """
    n_slots_of: dict[Shape, int] = {}
    for x, y, z in permutations(shape):
        # Servers along each axis, rounded up.
        grid = [-(-side // part) for side, part in zip((x, y, z), fabric.server, strict=True)]
        n_slots = math.prod(grid)
        fits = all(side <= most for side, most in zip(grid, fabric.server_grid, strict=True))
        if fits or (fabric.joined and n_slots <= fabric.n_servers):
            n_slots_of[x, y, z] = n_slots
    fewest = min(n_slots_of.values(), default=0)
    return tuple(turned for turned, n_slots in n_slots_of.items() if n_slots == fewest)


@lru_cache(maxsize=256)
def cut_shape(shape: Shape, server: Shape, twisted: bool = False) -> SliceShape:
    """Cut a torus of chips into slots, of so many chips as a server has, and list its circuits.

    Along an axis of three or more chips the last chip is joined to the first one; two chips are
    joined once. Port 2k of a chip looks down axis k, port 2k + 1 up. In a twisted torus, whoever
    goes once around a shorter axis also moves on along the longer axes, by as many chips as the
    shorter axis has.
    """
    # `sides` are the servers along each axis. From each chip there is a circuit upwards along each
    # axis, and one back; a row has slot, chip of the server and port of both ends.
    sides = [-(-side // part) for side, part in zip(shape, server, strict=True)]
    rows = []
    for z, y, x in product(*map(range, reversed(shape))):
        chip = (x, y, z)
        for axis in range(3):
            next_chip = _next_up(shape, twisted, chip, axis)
            if next_chip is not None:
                low = [*_seat(chip, server, sides), 2 * axis + 1]
                high = [*_seat(next_chip, server, sides), 2 * axis]
                rows.append([*low, *high])
                rows.append([*high, *low])
    circuits = np.array(rows, dtype=np.int32).reshape(-1, 6)

    # Circuits between two slots need fibres; those within a server do not.
    ends = circuits[:, [0, 3]]
    outside = ends[:, 0] != ends[:, 1]
    pairs, inverse = np.unique(ends[outside], axis=0, return_inverse=True)
    pair_of = np.full(len(circuits), -1, dtype=np.int32)
    pair_of[outside] = inverse.ravel()
    weights = np.bincount(inverse.ravel(), minlength=len(pairs)).astype(np.int32)
    x, y, z = sides
    return SliceShape(
        shape,
        (x, y, z),
        read_only(pairs.astype(np.int32)),
        read_only(weights),
        read_only(circuits),
        read_only(pair_of),
        twisted,
    )


def _next_up(shape: Shape, twisted: bool, chip: Shape, axis: int) -> list[int] | None:
    """Return the chip to which one is joined upwards along an axis; None if there is none.

    Two chips along an axis are joined once, so the upper one is not joined on. Twisted, the way
    around a shorter axis shifts all longer ones by its side.
    """
    side = shape[axis]
    is_shorter = twisted and side < max(shape)
    joined_on = side > 2 or (side == 2 and (is_shorter or chip[axis] == 0))
    if not joined_on:
        return None
    position = list(chip)
    position[axis] = (chip[axis] + 1) % side
    if is_shorter and position[axis] == 0:
        for other, other_side in enumerate(shape):
            if other_side > side:
                position[other] = (position[other] + side) % other_side
    return position


def _seat(chip: Sequence[int], server: Shape, sides: list[int]) -> tuple[int, int]:
    """Return the slot of a chip and its number in the server."""
    slot = [position // part for position, part in zip(chip, server, strict=True)]
    in_server = [position % part for position, part in zip(chip, server, strict=True)]
    return number_of(slot, sides), number_of(in_server, server)


Ring = tuple[int, ...]

_CUBE = (0, 1, 3, 7, 5, 4, 6, 2)
"""A ring through all chips of 2x2x2, numbered x fastest."""


def slice_rings(shape: Shape) -> tuple[Ring, ...]:
    """Return the rings over which a slice runs its collectives.

    Along an axis of three chips or more each line is a ring. Axes of two chips, along which there
    is but one link, are joined to rings through both, or together with the first longer axis.

    Parameters
    ----------
    shape
        Chips along x, y and z.

    Returns
    -------
    tuple of tuples
        The chips of each ring in order, numbered x fastest within the slice.

    Examples
    --------
    >>> slice_rings((2, 2, 1)), slice_rings((2, 2, 2))
    (((0, 1, 3, 2),), ((0, 1, 3, 7, 5, 4, 6, 2),))
    >>> [len(ring) for ring in slice_rings((2, 2, 4))]
    [4, 4, 4, 4, 4, 4, 4, 4]
    """
    axes_of_two = [axis for axis in range(3) if shape[axis] == 2]
    longer_axes = [axis for axis in range(3) if shape[axis] > 2]
    groups = [[axis] for axis in longer_axes]
    if len(axes_of_two) == 1 and longer_axes:
        groups[0] = [*axes_of_two, longer_axes[0]]
    elif axes_of_two:
        groups.insert(0, axes_of_two)
    return tuple(ring for group in groups for ring in _rings_along(shape, group))


def _rings_along(shape: Shape, group: list[int]) -> list[Ring]:
    """List the rings that run along the axes of `group`, one for each place on the other axes.

    Along one axis a ring is a line of chips, closed at its ends. Along an axis of two chips and a
    longer one it goes up on one side and back on the other one; a cube of side 2 has one ring.
    Chips are numbered with the first axis quickest.
    """
    stride = (1, shape[0], shape[0] * shape[1])
    others = [axis for axis in range(3) if axis not in group]
    if len(group) == 3:
        return [_CUBE]
    long_axis = group[-1]

    # A ring as distances from its first chip.
    offsets = [position * stride[long_axis] for position in range(shape[long_axis])]
    if len(group) == 2:  # up on one side, back on the other
        side = stride[group[0]]
        upwards = [offset + side for offset in offsets[1:]]
        offsets = [0, side, *upwards, *reversed(offsets[1:])]

    # The same ring from each place on the other axes.
    rings = []
    other_axes = list(reversed(others))
    for positions in product(*(range(shape[axis]) for axis in other_axes)):
        corner = 0
        for position, axis in zip(positions, other_axes, strict=True):
            corner += position * stride[axis]
        rings.append(tuple(corner + offset for offset in offsets))
    return rings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steering(Value):
    r"""How the chips of a slice share their ports among its rings.

    A ring takes two ports of each member for each unit of its bandwidth. With the share
    :math:`s_{cr}` of the ports of chip c for ring r and the demand :math:`d_r`, the *level* is the
    largest :math:`\theta` with

    .. math::

        \tfrac{p}{2} s_{cr} \ge \theta d_r, \quad \sum_r s_{cr} \le 1, \quad \theta d_r \le b

    for p ports of a chip and the bandwidth b of a link. Prices :math:`y_c, z_r \ge 0` prove

    .. math::

        \theta \le \frac{\sum_c y_c + b \sum_r z_r}
        {\sum_c y_c \tfrac{2}{p} \sum_{r \ni c} d_r + \sum_r z_r d_r}

    Parameters
    ----------
    rings
        The chips of each ring, in order.
    demands
        ``demands[ring]`` > 0.
    ports
        Ports of a chip.
    link_units
        The most ports that a ring can use; None for no limit.
    shares
        ``shares[chip, ring]``, 0 where the chip is no member; float64.
    level
        The least bandwidth over demand of all rings, in ports.
    units
        ``units[ring]``: whole ports that each member gives to either side, with the largest least
        units over demand that whole numbers allow; int64.
    chip_prices, link_prices
        The proof that no level is larger.
    """

    rings: tuple[Ring, ...]
    demands: NDArray[np.float64]
    ports: int
    link_units: float | None
    shares: Annotated[NDArray[np.float64], Axes(2)]
    level: float
    units: NDArray[np.int64]
    chip_prices: NDArray[np.float64]
    link_prices: NDArray[np.float64]


def check_rings(
    rings: Sequence[Sequence[int]],
    demands: Sequence[float] | None,
    ports: int,
    link_units: float | None,
) -> tuple[tuple[Ring, ...], NDArray[np.float64]]:
    """Check the rings of a slice, their demands and the ports of a chip; return rings and demands.

    An InputError names the ring that has less than two chips or passes one twice, or the demand
    out of range. Demands of None are 1 each.
    """
    integer("ports", ports, at_least=2)
    checked = form_of(tuple[tuple[Index, ...], ...]).check("rings", rings)
    for k, ring in enumerate(checked):
        if len(ring) < 2 or len(set(ring)) < len(ring):
            raise InputError(f"rings[{k}] = {ring}: two or more different chips are expected")
    ring_demands = [1.0] * len(checked) if demands is None else list(demands)
    check_length("demands", ring_demands, len(checked), "rings")
    form_of(tuple[Annotated[float, Range(1e-100, 1e100)], ...]).check("demands", ring_demands)
    form_of(Positive | None).check("link_units", link_units)
    return checked, np.array(ring_demands, dtype=np.float64)

"""Small slice problems as hypothesis strategies and as lists."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from optmatch.fabrics import RackFabric
from optmatch.problems import SliceAllocation
from optmatch.problems.slices.problem import draw_occupancy
from optmatch.problems.slices.shape import Shape

_SHAPES: tuple[Shape, ...] = ((2, 2, 2), (2, 2, 3), (2, 4, 2), (2, 2, 1), (4, 3, 1), (2, 4, 4))


@st.composite
def slice_problems(draw: st.DrawFn, *, tiny: bool = False) -> SliceAllocation:
    """Draw a rack or two in use, perhaps joined, and one more slice (a box of chips).

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether every place of its servers can be tried.

    Returns
    -------
    SliceAllocation
        A problem with some slices placed and up to two servers in reserve; some have no answer,
        since the slice does not fit.

    Examples
    --------
    >>> slice_problems(tiny=True)
    slice_problems(tiny=True)
    """
    joined = draw(st.booleans())
    if not tiny:
        chips = (4, 4, 3)
        racks = draw(st.integers(1, 2))
    elif joined:
        chips = (2, 2, 2)
        racks = 2
    else:
        chips = draw(st.sampled_from([(4, 4, 1), (2, 2, 4), (2, 2, 3)]))
        racks = 1

    # Some slices are placed on the racks, and another one is asked for.
    fabric = RackFabric(
        chips=chips,
        fibres=draw(st.sampled_from((4, 2, 1, 8))),
        wrap=joined or draw(st.booleans()),
        racks=racks,
        joined=joined,
    )
    shapes = draw(st.lists(st.sampled_from(_SHAPES[:4]), max_size=1 if tiny else 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    routes = 2 if tiny else draw(st.integers(1, 5))
    placed = draw_occupancy(fabric, shapes, rng, routes=routes)
    shape = draw(st.sampled_from(_SHAPES[:4] if tiny else _SHAPES))
    problem = SliceAllocation(fabric, shape, placed=placed, routes=routes)

    # Reserved servers are some that no placed slice has: a first problem tells which are free.
    spares = draw(st.integers(0, min(2, len(problem.free_servers))))
    reserved = tuple(int(server) for server in problem.free_servers[:spares])
    return SliceAllocation(fabric, shape, placed=placed, reserved=reserved, routes=routes)


def smallest_slices() -> list[SliceAllocation]:
    """List slices with next to nothing in them, and one that is too large."""
    one_server = RackFabric(chips=(2, 2, 1))
    return [
        SliceAllocation(one_server, (1, 1, 1)),
        SliceAllocation(one_server, (2, 2, 1)),
        SliceAllocation(one_server, (2, 2, 2)),
        SliceAllocation(one_server, (2, 2, 1), reserved=(0,)),
        SliceAllocation(RackFabric(chips=(1, 1, 2), server=(1, 1, 1)), (1, 1, 2)),
    ]

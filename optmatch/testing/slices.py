"""Small slice problems, and the best answers to tiny ones by trying everything."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
from hypothesis import strategies as st

from optmatch.fabrics import RackFabric
from optmatch.problems import SliceAllocation
from optmatch.problems.slices.occupancy import draw_occupancy
from optmatch.problems.slices.shape import Shape

_SHAPES: tuple[Shape, ...] = ((2, 2, 2), (2, 2, 3), (2, 4, 2), (2, 2, 1), (4, 3, 1), (2, 4, 4))


@st.composite
def slice_problems(draw: st.DrawFn, *, tiny: bool = False) -> SliceAllocation:
    """Draw a rack or two in use, perhaps joined, and one more slice; some do not fit.

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether `brute_force` is to be able to solve it.

    Examples
    --------
    >>> slice_problems(tiny=True)
    slice_problems(tiny=True)
    """
    joined = draw(st.booleans())
    chips = (4, 4, 3)
    if tiny:
        chips = (2, 2, 2) if joined else draw(st.sampled_from([(4, 4, 1), (2, 2, 4), (2, 2, 3)]))
    racks = draw(st.integers(1, 2)) if not tiny else 2 if joined else 1
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
    spares = draw(st.integers(0, min(2, len(problem.free_servers))))
    reserved = tuple(int(server) for server in problem.free_servers[:spares])
    return SliceAllocation(fabric, shape, placed=placed, reserved=reserved, routes=routes)


def smallest_slices() -> list[SliceAllocation]:
    """List slices with next to nothing in them, and one that is too large."""
    one = RackFabric(chips=(2, 2, 1))
    return [
        SliceAllocation(one, (1, 1, 1)),
        SliceAllocation(one, (2, 2, 1)),
        SliceAllocation(one, (2, 2, 2)),
        SliceAllocation(one, (2, 2, 1), reserved=(0,)),
        SliceAllocation(RackFabric(chips=(1, 1, 2), server=(1, 1, 1)), (1, 1, 2)),
    ]


def best_slice(problem: SliceAllocation) -> float | None:
    """Find the least load of a tiny slice problem; None if nothing fits."""
    best: float | None = None
    before = problem.loads
    racks = problem.fabric.server_coordinates[:, 0]
    for plan in problem.slice_shapes:
        pairs = list(zip(plan.pairs.tolist(), plan.weights.tolist(), strict=True))
        for servers in permutations(problem.free_servers.tolist(), plan.n_slots):
            if len({int(racks[server]) for server in servers}) > 1 and not problem.fabric.joined:
                continue
            choices = [problem.candidates(servers[a], servers[b], w) for (a, b), w in pairs]
            for routes in product(*choices):
                loads = before.copy()
                for route, (_, weight) in zip(routes, pairs, strict=True):
                    loads[list(route)] += weight
                used = [edge for route in routes for edge in route]
                if (loads <= problem.fabric.edge_fibres).all():
                    load = float(loads[used].max(initial=0))
                    best = load if best is None else min(best, load)
    return best

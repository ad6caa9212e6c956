"""Slices of joined racks: where they lie, and what proves it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import optmatch as om
from optmatch.plotting import slice_data
from optmatch.problems.slices.problem import draw_occupancy
from optmatch.solvers.slices.pod import Pod

few = settings(max_examples=25, deadline=None, database=None)
PAIR = om.RackFabric(racks=2, joined=True)


def half_used(rng: np.random.Generator, fabric: om.RackFabric, free: int) -> tuple[int, ...]:
    """Return servers to reserve such that each rack has so many free ones."""
    per_rack = fabric.n_servers // fabric.racks
    kept = [rng.permutation(per_rack)[free:] + rack * per_rack for rack in range(fabric.racks)]
    return tuple(np.concatenate(kept).tolist())


@pytest.mark.parametrize("seed", range(5))
def test_a_slice_spans_joined_racks(seed: int) -> None:
    """Three racks with six free servers: a slice of 16 only fits where light joins them."""
    rng = np.random.default_rng(seed)
    for joined in (False, True):
        fabric = om.RackFabric(racks=3, joined=joined)
        problem = om.SliceAllocation(fabric, (4, 4, 4), reserved=half_used(rng, fabric, 6))
        solution = om.solve(problem, "optical", seed=0)
        if not joined:
            assert solution.status is om.Status.INFEASIBLE
            continue
        report = om.verify(problem, solution)
        assert report.ok, report
        assert report.figures["racks"] == 3
        assert not om.verify(replace(problem, fabric=replace(fabric, joined=False)), solution).ok


@pytest.mark.slow
def test_the_search_for_a_large_slice_has_steps_for_all_its_pairs() -> None:
    """Of 24 racks none is whole: 256 servers are spread, and 1,500 steps would not do."""
    fabric = om.RackFabric(racks=24, joined=True)
    pod = Pod(fabric, reserved=half_used(np.random.default_rng(0), fabric, 15))
    assert pod.allocate((16, 8, 8), "optical") is not None


def test_a_slice_that_a_rack_can_hold_stays_there() -> None:
    fabric = om.RackFabric(racks=4, joined=True)
    free = {0: 3, 1: 9, 2: 5, 3: 1}
    busy = [s for s in range(64) if s % 16 >= free[s // 16]]
    racks_of = {}
    for shape in ((2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 3)):
        pod = Pod(fabric, reserved=tuple(busy))
        found = pod.allocate(shape, "optical")
        assert found is not None
        racks_of[shape] = sorted(set((found.servers // 16).tolist()))
    assert racks_of == {(2, 2, 4): [2], (2, 4, 4): [1], (4, 4, 4): [0, 1, 2], (4, 4, 3): [0, 1]}


def test_larger_slices_take_whole_racks_by_every_rule() -> None:
    """The circuits between them pass one switch each; what is no multiple of a rack is spread."""
    fabric = om.RackFabric(racks=4, joined=True)
    for rule in ("first-fit", "optical"):
        problem = om.SliceAllocation(fabric, (8, 4, 4), reserved=(17,))
        solution = om.solve(problem, rule, seed=0)
        assert set((solution.answer.servers // 16).tolist()) == {0, 2}
        assert solution.stats["longest_route_hops"] == 2
        assert solution.status is om.Status.OPTIMAL
    for shape, servers in (((6, 4, 4), 24), ((6, 6, 6), 54)):
        odd = om.SliceAllocation(fabric, shape)
        assert om.solve(odd, "first-fit", seed=0).status is om.Status.UNKNOWN
        assert om.solve(odd, "optical", seed=0).stats["servers"] == servers
    huge = om.SliceAllocation(fabric, (32, 4, 4))
    assert "takes more than all 64 servers" in huge.dead_end()
    full = om.SliceAllocation(fabric, (8, 8, 4), reserved=(5,))
    assert "takes 64 servers, 63 are free" in full.dead_end()


def test_ilp_searches_joined_racks_as_one() -> None:
    placed = draw_occupancy(PAIR, [(2, 2, 4)] * 6, np.random.default_rng(2))
    problem = om.SliceAllocation(PAIR, (2, 2, 4), placed=placed)
    assert len({int(s) // 16 for slice_ in placed for s in slice_.servers}) == 2
    solution = om.solve(problem, "ilp", seed=0)
    assert solution.status is om.Status.OPTIMAL
    assert solution.lower_bound > problem.lower_bound()
    assert solution.stats["bound_by"] == "search"
    with pytest.raises(
        om.InputError, match="joined racks of at most 32 servers in all, not of 48"
    ):
        om.solve(om.SliceAllocation(replace(PAIR, racks=3), (2, 2, 4)), "ilp", seed=0)


def test_a_cut_may_hold_hubs() -> None:
    """Two racks of one server, one fibre to either face: no way for four circuits."""
    fabric = om.RackFabric(chips=(2, 2, 1), fibres=1, racks=2, joined=True)
    problem = om.SliceAllocation(fabric, (2, 2, 2))
    solution = om.solve(problem, "ilp", seed=0)
    assert solution.status is om.Status.INFEASIBLE
    assert "bound_by" not in solution.stats
    assert om.verify(problem, solution).ok


def test_a_picture_of_joined_racks_shows_the_light_between_them() -> None:
    fabric = om.RackFabric(racks=3, joined=True)
    free = {0: 5, 1: 0, 2: 4}
    busy = [s for s in range(48) if s % 16 >= free[s // 16]]
    solution = om.solve(om.SliceAllocation(fabric, (2, 4, 4), reserved=tuple(busy)), seed=0)
    data = slice_data(solution)
    assert data.racks == (0, 2)
    assert solution.stats["racks"] == 2
    assert (data.owner == -2).sum() == 32 - 9
    heads = fabric.edges[fabric.edge_of_fibre[solution.answer.fibres[:, 1]], 1]
    assert data.new.sum() == (heads < fabric.n_servers).sum()
    assert ((data.edges // 16)[:, 0] != (data.edges // 16)[:, 1]).any()
    assert data.centres[:16, 1].min() > data.centres[16:, 1].max()


def test_a_ring_of_three_chips_takes_the_same_corner_of_three_cubes() -> None:
    """Where no light passes chips: each two of them meet at a switch of their own.

    In one cube there is no way, as its torus has even sides.
    """
    problem = om.SliceAllocation(om.RackFabric.tpu_v4(3), (3, 1, 1))
    found = om.solve(problem, seed=0)
    assert om.verify(problem, found).ok and found.status is om.Status.OPTIMAL
    places: Any = problem.fabric.chip_coordinates[found.answer.servers]
    assert len(set(places[:, 0].tolist())) == 3 and (places[:, 1:] == places[0, 1:]).all()
    cube = om.RackFabric((2, 2, 2), (1, 1, 1), fibres=1, joined=True, through=False)
    alone = om.solve(om.SliceAllocation(cube, (3, 1, 1)), method="ilp", seed=0)
    assert alone.status is om.Status.INFEASIBLE

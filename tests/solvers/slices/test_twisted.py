"""Twisted tori against their lattices, which are built directly."""

from dataclasses import replace
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.problems.slices.shape import cut_shape
from optmatch.solvers.slices.pod import Pod
from optmatch.verify.slices.bounds import measure
from tests.helpers.exhaustive.slices import best_slice

Shape = tuple[int, int, int]
CUBES = om.RackFabric((2, 2, 2), (1, 1, 1), fibres=1, racks=4, joined=True, through=False)
SHAPES: list[Shape] = [(2, 2, 4), (2, 4, 2), (4, 2, 2), (2, 4, 4), (4, 2, 4), (4, 4, 2)]


@cache
def lattice(shape: Shape, twisted: bool = True) -> NDArray[np.bool_]:
    """Return ``joined[chip, chip]``: all points, up to those that the lattice says are the same.

    Its rows are the ways around: along each axis, and from a short one k along each long one.
    """
    k, most = min(shape), max(shape)
    long = np.array([side == most for side in shape])
    rows = np.diag(shape) + (twisted * k * np.outer(~long, long))
    points = np.array([(x, y, z) for z, y, x in product(*map(range, reversed(shape)))])
    joined = np.zeros((len(points), len(points)), dtype=np.bool_)
    for axis, step in product(range(3), (-1, 1)):
        onward = points + step * np.eye(3, dtype=int)[axis]
        turns = (onward[:, None] - points[None]) @ np.linalg.inv(rows)
        joined |= (np.abs(turns - np.rint(turns)) < 1e-9).all(axis=2)
    return joined


def bisection(joined: NDArray[np.bool_]) -> int:
    """Return the fewest links between one half of the chips and the other, of all halves."""
    halves = np.array([*combinations(range(1, len(joined)), len(joined) // 2)])
    side = np.zeros((len(halves), len(joined)), dtype=np.int64)
    np.put_along_axis(side, halves, 1, axis=1)
    return int(((side @ joined) * (1 - side)).sum(axis=1).min())


def links_of(chips: NDArray[Any], pairs: NDArray[Any]) -> NDArray[np.bool_]:
    """Return ``joined[chip of the slice, chip of the slice]`` of circuits between chips."""
    place = np.full(chips.max() + 1, -1)
    place[chips] = np.arange(len(chips))
    joined = np.zeros((len(chips), len(chips)), dtype=np.bool_)
    joined[tuple(place[pairs].T)] = True
    return joined


@pytest.mark.parametrize("shape", [*SHAPES, (4, 4, 8), (8, 4, 8)])
def test_circuits_are_the_links_of_the_lattice(shape: Shape) -> None:
    """Each chip has six, each circuit stands once, and the verifier counts the same."""
    plan = cut_shape(shape, (1, 1, 1), True)
    joined = lattice(shape)
    assert (joined.sum(axis=1) == 6).all()
    assert np.array_equal(links_of(np.arange(len(joined)), plan.circuits[:, [0, 3]]), joined)
    assert len(plan.circuits) == joined.sum()
    pairs = map(tuple, plan.pairs.tolist())
    weights = dict(zip(pairs, plan.weights.tolist(), strict=True))
    assert measure(shape, (1, 1, 1), True).weights == weights
    of_servers = cut_shape(shape, (2, 2, 1), True)
    pairs = map(tuple, of_servers.pairs.tolist())
    weights = dict(zip(pairs, of_servers.weights.tolist(), strict=True))
    assert measure(shape, (2, 2, 1), True).weights == weights


@pytest.mark.parametrize("shape", [(2, 2, 4), (2, 4, 4)])
def test_a_pod_of_cubes_carries_a_twisted_slice(shape: Shape) -> None:
    """On whole cubes that need not be neighbours; the switches carry what leads elsewhere."""
    problem = om.SliceAllocation(CUBES, shape, twisted=True)
    cubes = int(np.prod(shape)) // 8
    if cubes < CUBES.racks:
        problem = replace(problem, reserved=(8,))
    found = om.solve(problem, seed=0)
    assert om.verify(problem, found).ok
    answer: Any = found.answer
    ports = CUBES.ports_per_chip
    joined = links_of(answer.servers, answer.circuits // ports)
    assert np.array_equal(joined, lattice(answer.shape))
    assert not om.verify(replace(problem, twisted=False), answer).ok
    plain = om.solve(replace(problem, twisted=False), seed=0).answer
    assert not om.verify(problem, plain).ok


def test_a_twisted_slice_is_cut_by_more_links_and_has_shorter_ways() -> None:
    plain, twisted = lattice((2, 2, 4), False), lattice((2, 2, 4))
    answer = Pod(CUBES).allocate((2, 2, 4), "first-fit", twisted=True)
    assert answer is not None
    joined = links_of(answer.servers, answer.circuits // CUBES.ports_per_chip)
    assert bisection(plain) < bisection(twisted) == bisection(joined)
    for shape in ((4, 4, 8), (4, 8, 8)):
        assert mean_distance(lattice(shape)) < mean_distance(lattice(shape, False))


def mean_distance(joined: NDArray[np.bool_]) -> float:
    near, steps, total = np.eye(len(joined), dtype=np.bool_)[0], 0, 0
    while not near.all():
        steps += 1
        onward = near | joined[near].any(axis=0)
        total += steps * int((onward & ~near).sum())
        near = onward
    return total / len(joined)


def test_the_least_load_of_a_twisted_slice_is_that_of_all_ways() -> None:
    """On servers of four chips, of which a slice of 2x2x4 takes four."""
    rack = om.RackFabric((2, 2, 5), (2, 2, 1), fibres=12)
    problem = om.SliceAllocation(rack, (2, 2, 4), twisted=True, routes=1)
    found = om.solve(problem, method="ilp", seed=0)
    assert found.status is om.Status.OPTIMAL and om.verify(problem, found).ok
    assert found.objective == best_slice(problem)


@pytest.mark.parametrize(
    ("fabric", "shape"),
    [(CUBES, (1, 1, 2)), (CUBES, (2, 2, 2)), (CUBES, (2, 2, 8)), (om.RackFabric(), (3, 3, 6))],
)
def test_only_doubled_sides_of_whole_servers_can_be_twisted(fabric: Any, shape: Shape) -> None:
    with pytest.raises(om.InputError, match="k x k x 2k or k x 2k x 2k"):
        om.SliceAllocation(fabric, shape, twisted=True)

"""Time and memory against size. `make bench` runs it; each answer is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Measure
from decomposition import add_up, permutation_sum
from feedforward import check, permutations
from one_matching import random_matchings
from optics import draw

import optmatch as om
from optmatch.optics.scattering import scatter
from optmatch.problems.demands import traffic
from optmatch.solvers.feedforward.router import route_batch

MESHES = {5: 12, 7: 24, 9: 32, 13: 48, 17: 64}
"""Rows, and ports that a router finds room for."""

Case = tuple[Callable[[], Any], Callable[[Any], dict[str, Any]]]


def decompose(n: int) -> Case:
    """Decompose a dense sum of n squared permutations."""
    matrix = permutation_sum(n, n * n, 0)

    def tell(terms: Any) -> dict[str, Any]:
        assert np.array_equal(add_up(terms), matrix)
        return {"size": n, "of": "ports"}

    return lambda: om.decompose(matrix), tell


def cover(n: int) -> Case:
    """Schedule noisy Solstice traffic by `spectra`, verified."""
    demand = traffic.solstice(n, np.random.default_rng(0), noise=0.003)
    problem = om.Demand(om.IdealSwitch(n), demand, delay_s=20e-6)
    return lambda: om.solve(problem, "spectra"), lambda _: {"size": n, "of": "ports"}


def route(rows: int) -> Case:
    """Route 50 random matchings on a hexagonal mesh."""
    mesh = om.HexMesh(rows, rows, ports=MESHES[rows])
    router = om.Router(mesh, check=True)
    matchings = random_matchings(mesh.n_ports, 50, 0)

    def tell(found: int) -> dict[str, Any]:
        return {"size": mesh.n_cells, "of": "cells", "held": found}

    return lambda: int(router.route_batch(np.array(matchings)).held.sum()), tell


def all_to_all(rows: int) -> Case:
    """Schedule all pairs on a hexagonal mesh, verified."""
    problem = om.AllToAll(om.HexMesh(rows, rows, ports=MESHES[rows]))
    found = lambda _: {"size": problem.fabric.n_cells, "of": "cells"}  # noqa: E731
    return lambda: om.solve(problem, seed=0), found


def benes(n: int) -> Case:
    """Route a thousand permutations of a Benes network."""
    fabric, rows = om.Benes(n), permutations(n, 1000)

    def tell(states: np.ndarray) -> dict[str, Any]:
        check(fabric, rows, states)
        return {"size": n, "of": "ports"}

    return lambda: route_batch(fabric, rows), tell


def optics(rows: int) -> Case:
    """Compute the scattering matrix of all inputs of a mesh."""
    fabric = om.HexMesh(rows, rows)
    guides = np.ones(fabric.graph.links.count, dtype=np.complex128)
    cells, inputs = draw(fabric, 1)[0], fabric.graph.perimeter
    return (
        lambda: scatter(fabric.graph, cells, guides, inputs),
        lambda _: {"size": fabric.n_cells, "of": "cells"},
    )


def late_rank(n: int) -> Case:
    """Plan an all-reduce around a late rank; the verifier replays it."""
    problem = om.Collective("all-reduce", n, 1e9, alpha_s=3e-6, two_way=True, late_s={n - 1: 0.01})
    return lambda: om.solve(problem, "stragglar"), lambda _: {"size": n, "of": "ranks"}


CASES = {
    decompose: (16, 32, 64, 128, 256),
    cover: (16, 32, 64, 128),
    route: tuple(MESHES),
    all_to_all: (5, 7, 9, 13),
    benes: (8, 16, 32, 64, 128),
    optics: (5, 7, 9, 13),
    late_rank: (32, 64, 128, 256),
}


@pytest.mark.parametrize(("case", "size"), [(c, n) for c, sizes in CASES.items() for n in sizes])
def test_scaling(measure: Measure, case: Callable[[int], Case], size: int) -> None:
    """One point of a curve."""
    work, tell = case(size)
    measure(
        case.__name__.replace("_", " "),
        work,
        tell,
        rounds=1 if case is all_to_all else 5,
        memory=True,
    )

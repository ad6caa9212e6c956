"""Demands on small meshes, against a programme over all that any states of the cells connect."""

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import Fabric
from optmatch.solvers.demands.small_meshes import list_matchings
from tests.helpers.held import all_held, least_completion_s

MESHES = [
    om.HexMesh(1, 1, ports=[0, 1, 2, 3]),
    om.HexMesh(1, 2, ports=6),
    om.Faulty(om.HexMesh(1, 2, ports=5), stuck_bar=[3], dead_cells=[6]),
    om.TriangularMesh(1, 1, ports=[0, 1, 2, 3, 4]),
]


def draw(fabric: Fabric, seed: int) -> om.Demand:
    """Draw whole demands between pairs that are not dead, and a delay."""
    rng, n = np.random.default_rng(seed), fabric.n_ports
    most = int(rng.choice([3, 20]))
    demand = np.triu(rng.integers(1, most, (n, n), endpoint=True) * (rng.random((n, n)) < 0.8), 1)
    for pair in fabric.dead_pairs():
        demand[pair] = 0
    delay_s, min_slot_s = float(rng.choice([0, 1, most, 5 * most])), float(rng.integers(3))
    return om.Demand(
        fabric, demand.astype(np.float64), delay_s=delay_s, min_slot_s=min_slot_s, quantum_s=1.0
    )


@pytest.mark.parametrize("fabric", MESHES, ids=lambda fabric: fabric.title)
def test_what_is_listed_is_all_that_is_held(fabric: Fabric) -> None:
    listed = list_matchings(fabric)
    found = {
        frozenset((i, j) for i, j in enumerate(row) if i < j) for row in listed.matchings.tolist()
    }
    known = all_held(fabric)
    assert found == {row for row in known if row and not any(row < other for other in known)}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fabric", MESHES, ids=lambda fabric: fabric.title)
def test_small_demands_are_solved_and_bounded(fabric: Fabric, seed: int) -> None:
    """The plan is the best one; the bound, which `om.solve` verifies, is no higher, and near."""
    problem = draw(fabric, seed)
    best = least_completion_s(problem, [row for row in all_held(fabric) if row])
    solution = om.solve(problem, seed=0, limits=om.Limits(iterations=3))
    assert solution.objective == best
    assert 0.9 * best <= solution.lower_bound <= best


def test_prices_of_what_a_mesh_holds_prove_more_than_lines() -> None:
    """Two pairs that share the one link between two cells meet one after the other."""
    fabric = om.HexMesh(1, 2, ports=6)
    apart = [
        (first, second)
        for first in range(6)
        for second in range(first + 1, 6)
        if frozenset({(first, second)}) <= frozenset().union(*all_held(fabric))
    ]
    one, other = next(
        (a, b)
        for a in apart
        for b in apart
        if not set(a) & set(b) and not any({a, b} <= row for row in all_held(fabric))
    )
    demand = np.zeros((6, 6))
    demand[one], demand[other] = 3, 4
    problem = om.Demand(fabric, demand, delay_s=2.0)
    solution = om.solve(problem, seed=0)
    assert problem.lower_bound() == 6.0
    assert solution.status is om.Status.OPTIMAL and solution.objective == 3 + 4 + 2 * 2
    assert solution.proof == "certificate"


def test_a_circuit_that_the_router_misses_is_routed_exactly() -> None:
    """Light comes back from cell m1 to itself: it was an empty slot, and then a ValueError."""
    fabric = om.Netlist(
        ["m0", "m1", "m2", "m3"],
        {
            "m0,b1": "m2,b2",
            "m0,a2": "m2,b1",
            "m1,a1": "m0,a1",
            "m0,b2": "m3,a2",
            "m1,b2": "m1,b1",
            "m1,a2": "m3,a1",
        },
        [("p0", "m2,a2"), ("p1", "m3,b1"), ("p2", "m3,b2"), ("p3", "m2,a1")],
        tx=["p0", "p1"],
        rx=["p2", "p3"],
    )
    problem = om.Demand.from_matrix([[0, 0], [1, 0]], fabric, delay_s=1)
    solution = om.solve(problem, seed=0, time_limit_s=2.0)
    assert solution.objective == 2.0
    assert om.verify(problem, solution).ok

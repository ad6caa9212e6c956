"""Few terms for few ports, by a walk over the vertices of all decompositions."""

from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import nnls

import optmatch as om
from optmatch.solvers.demands.vertex_walk import VertexWalk, suits

INSTANCE = Path(__file__).parents[3] / "instances" / "demand" / "qoblib-05-dense.json"


def draw_sum(n_ports: int, n_terms: int, total: int, seed: int) -> NDArray[np.int64]:
    """Add up random permutations with random whole weights that add up to a total."""
    rng = np.random.default_rng(seed)
    demand = np.zeros((n_ports, n_ports), dtype=np.int64)
    for weight in rng.multinomial(total - n_terms, rng.dirichlet(np.ones(n_terms))) + 1:
        demand[np.arange(n_ports), rng.permutation(n_ports)] += weight
    return demand


def walk_down(demand: NDArray[np.int64], n_walks: int, seed: int = 0) -> Any:
    """Return the best plan of some walks."""
    walk = VertexWalk(demand, np.random.default_rng(seed))
    best = None
    fewest = demand.size + 1
    for _ in range(n_walks):
        plan = walk.walk(fewest)
        if plan is not None:
            best = plan
            fewest = len(plan.ticks)
    return best


def fewest_terms(demand: NDArray[np.int64]) -> int:
    """Try all sets of permutations, the small sets first."""
    n_ports = len(demand)
    terms = [np.eye(n_ports)[list(row)].ravel() for row in permutations(range(n_ports))]
    for count in range(1, len(terms) + 1):
        for chosen in combinations(terms, count):
            weights, residual = nnls(np.array(chosen).T, demand.ravel().astype(float))
            if residual < 1e-6 and np.allclose(weights, np.rint(weights), atol=1e-6):
                return count
    raise AssertionError("no decomposition")


@pytest.mark.parametrize("seed", range(12))
def test_three_ports_have_the_fewest_terms(seed: int) -> None:
    demand = draw_sum(3, 1 + seed % 5, 30, seed)
    plan = walk_down(demand, 3)
    assert len(plan.ticks) == fewest_terms(demand)


@pytest.mark.parametrize(("n_ports", "n_terms"), [(2, 2), (4, 3), (4, 16), (5, 25), (6, 5)])
def test_terms_add_up(n_ports: int, n_terms: int) -> None:
    """They are whole and positive, and no more than the dimension allows (Marcus and Ree)."""
    demand = draw_sum(n_ports, n_terms, 1000, seed=n_terms)
    plan = walk_down(demand, 4)
    total = np.zeros_like(demand)
    for permutation, weight in zip(plan.matchings, plan.ticks.tolist(), strict=True):
        assert sorted(permutation) == list(range(n_ports)) and weight > 0
        total[np.arange(n_ports), permutation] += weight
    assert np.array_equal(total, demand)
    assert len(plan.ticks) <= (n_ports - 1) ** 2 + 1
    assert len(plan.ticks) <= max(n_terms, 14)


def test_a_dense_matrix_of_qoblib_takes_fourteen_terms() -> None:
    """As few as its record (QOBLIB, 03-birkhoff); decompositions alone came to 16 or 17."""
    problem: Any = om.load(INSTANCE)
    solution = om.solve(problem, seed=0)
    assert solution.objective <= 14
    assert om.verify(solution).ok


def test_it_is_for_few_ports_and_weights_that_are_exact() -> None:
    assert suits(draw_sum(6, 4, 100, seed=0))
    assert not suits(draw_sum(7, 4, 100, seed=0))
    assert not suits(draw_sum(4, 4, 10**12, seed=0))
    assert not suits(np.zeros((3, 3), dtype=np.int64))

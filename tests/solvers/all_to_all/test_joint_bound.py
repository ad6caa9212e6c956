"""Bounds on all slots together, and their proofs in the verifier."""

from dataclasses import replace

import numpy as np
import pytest

import optmatch as om
from optmatch.problems import RoutingProof
from optmatch.solvers.routing.columns import bound_jointly, refute_again
from optmatch.solvers.routing.router import CellRouter


@pytest.fixture(scope="module")
def solved() -> om.Solution:
    """Thirty ports or so: prices prove more than shortest routes do."""
    solution = om.solve(om.AllToAll(om.HexMesh(9, 9, ports=32)), seed=0)
    assert solution.certificate is not None
    return solution


def test_prices_prove_what_shortest_routes_do_not(solved: om.Solution) -> None:
    report = om.verify(solved.problem, solved)
    assert report.ok, report
    assert solved.lower_bound > solved.problem.lower_bound()
    assert report.figures["lower_bound_checked"] == solved.lower_bound


def test_prices_refute_the_fewest_slots() -> None:
    """24 ports on 4x4: more slots than by counting, and the reason is proved."""
    problem = om.AllToAll(om.HexMesh(4, 4, ports=24))
    bound, proof = bound_jointly(problem, CellRouter(problem.fabric), np.inf, om.Limits().start())
    assert bound == np.inf
    assert proof is not None
    router = CellRouter(problem.fabric)
    by_terminal = proof.prices[0][router.wiring.link]
    assert refute_again(problem, router, by_terminal)
    assert not refute_again(problem, router, np.zeros_like(by_terminal))
    solution = om.solve(problem, seed=0, limits=om.Limits(iterations=1))
    assert solution.status is om.Status.FEASIBLE
    assert solution.stats["slots"] > problem.min_slots
    assert solution.stats["fewest_slots"] == "refuted by link prices"
    report = om.verify(problem, solution)
    assert "the certificate proves that 23 slots do not do" in report.notes
    harmless = RoutingProof.of_prices(np.zeros_like(proof.prices[0]), infeasible=True)
    assert not om.verify(problem, replace(solution, certificate=harmless)).ok

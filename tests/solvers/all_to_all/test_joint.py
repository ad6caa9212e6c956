"""The joint model of pairs, slots and routes, and the longest route: proofs by search."""

import pytest

import optmatch as om
from optmatch.solvers.all_to_all import joint_model


def test_the_joint_model_is_never_worse_than_a_short_search_and_often_better() -> None:
    """The search without iterations finds the optimum with two of five seeds, not with three."""
    problem = om.AllToAll(om.HexMesh(3, 3, tx=4, rx=4))
    exact = om.solve(problem, "ilp", seed=0)
    assert exact.status is om.Status.OPTIMAL
    assert exact.objective is not None
    optimum = (exact.schedule.n_slots, exact.objective)
    n_beaten = 0
    for seed in range(5):
        quick = om.solve(problem, "negotiated", seed=seed, limits=om.Limits(iterations=0))
        assert quick.objective is not None
        assert optimum <= (quick.schedule.n_slots, quick.objective)
        n_beaten += optimum < (quick.schedule.n_slots, quick.objective)
    assert n_beaten >= 3
    assert exact.stats["bound_by"] == "cp-sat"
    assert exact.proof == "certificate"


def test_the_default_hands_small_meshes_to_the_joint_model() -> None:
    """Six ports on 19 cells, where 5 slots are too few: the search finds 9, and 8 are enough."""
    problem = om.AllToAll(om.HexMesh(2, 2, ports=6))
    solution = om.solve(problem, seed=0)
    assert (solution.method, solution.proof) == ("negotiated", "certificate")
    assert solution.status is om.Status.OPTIMAL
    assert (solution.stats["slots"], solution.objective) == (8, 83.0)
    assert solution.stats["slots_lower_bound"] == 8  # link prices refute seven


def test_the_default_of_a_larger_mesh_looks_further_only_within_a_time_limit() -> None:
    """Eight ports on 19 cells take the joint model too long for a call without any limit."""
    problem = om.AllToAll(om.HexMesh(2, 2, ports=8))
    assert om.solve(problem, seed=0).limit is om.Limit.EXHAUSTED
    assert om.solve(problem, seed=0, time_limit_s=1.0).limit is not om.Limit.EXHAUSTED


def test_what_is_too_large_for_the_joint_model_keeps_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joint_model, "MOST_LITERALS", 100)
    problem = om.AllToAll(om.HexMesh(2, 2, ports=4))
    solution = om.solve(problem, "ilp", seed=0)
    assert solution.limit is om.Limit.MEMORY
    assert solution.schedule is not None

"""What a solution claims besides its schedule: objective, bound, certificate, statistics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems import RoutingProof
from optmatch.problems.routing.proof import PRICE_UNITS
from optmatch.verify.routing.bounds import bound_objective
from optmatch.verify.routing.claims import list_circuits
from tests.helpers import oracles

MESH = om.HexMesh(1, 2, ports=[0, 6, 1, 8])
"""Ports whose matching 0-1, 2-3 needs 11 cells, while the circuits alone need 7."""
CLASH = om.HexMesh(1, 2, ports=[0, 1, 3, 10])
"""Ports whose matching 0-1, 2-3 has no routing, though each circuit has one."""
PAIRS: Any = [1, 0, 3, 2]
IDLE_ROW: Any = [-1] * 4
DEAD = om.HexMesh(2, 2, ports=om.HexMesh(2, 2).dead_pairs()[0])
DEAD_PAIR: Any = [1, 0]


def proof(link: int, price: int, **fields: Any) -> RoutingProof:
    """Make a proof with one price."""
    prices = np.zeros(MESH.graph.links.count, dtype=np.int64)
    prices[link] = price
    return RoutingProof.of_prices(prices, **fields)


PROOF = proof(4, 3 * PRICE_UNITS)


def best_schedule(problem: Any) -> om.Schedule:
    """Return the routing of 11 cells."""
    graph = problem.fabric.graph
    ends = problem.fabric.source_terminals[[0, 1, 2, 3]].reshape(2, 2).tolist()
    found = oracles.route_matching(graph, [tuple(pair) for pair in ends])
    assert found is not None
    matchings: Any = [PAIRS]
    durations: Any = [1.0]
    states: Any = [oracles.states_of(graph, found)]
    return om.Schedule(matchings=matchings, durations_s=durations, cell_states=states)


def claim(problem: Any, **fields: Any) -> om.Report:
    """Verify a solution that claims `fields`."""
    status = fields.setdefault("status", om.Status.OPTIMAL)
    if status in (om.Status.OPTIMAL, om.Status.FEASIBLE) and "schedule" not in fields:
        fields["schedule"] = best_schedule(problem)
    if status in (om.Status.FEASIBLE, om.Status.UNKNOWN):
        fields.setdefault("limit", om.Limit.TIME)
    return om.verify(problem, om.Solution(problem=problem, method="by hand", **fields))


def rules(report: om.Report) -> list[str]:
    """List the rules that do not hold."""
    return [violation.rule for violation in report.violations]


def test_a_bound_with_its_proof() -> None:
    """11 cells are optimal by the proof, and unsupported without it, or with a weaker one."""
    problem = om.Routing(MESH, PAIRS)
    report = claim(problem, objective=11.0, lower_bound=11.0, certificate=PROOF)
    assert report.ok, report
    assert report.figures["lower_bound_recomputed"] == 7
    assert report.figures["lower_bound_checked"] == 11
    for certificate in (None, proof(4, 2 * PRICE_UNITS)):
        report = claim(problem, objective=11.0, lower_bound=11.0, certificate=certificate)
        assert rules(report) == ["the lower bound is supported"]
    weaker = claim(
        problem, status=om.Status.FEASIBLE, objective=11.0, lower_bound=9.0, certificate=PROOF
    )
    assert weaker.ok


def test_optimal_means_that_the_bound_is_reached() -> None:
    """A true bound below the objective is no proof, whatever the status says."""
    problem = om.Routing(MESH, PAIRS)
    solution = om.Solution(
        problem=problem,
        schedule=best_schedule(problem),
        status=om.Status.OPTIMAL,
        objective=11.0,
        lower_bound=11.0,
        certificate=PROOF,
        method="by hand",
    )
    object.__setattr__(solution, "lower_bound", 9.0)
    assert rules(om.verify(problem, solution)) == ["optimal means that the bound is reached"]


@pytest.mark.parametrize("by", ["cp-sat", "search"])
def test_a_bound_from_a_search_is_unproved(by: str) -> None:
    """It is valid and not ok, with what could be checked; any other word is no excuse."""
    problem = om.Routing(MESH, PAIRS)
    fields: dict[str, Any] = {"objective": 11.0, "lower_bound": 11.0}
    report = claim(problem, **fields, stats={"bound_by": by})
    assert report.valid and not report.ok
    assert report.proof == "search"
    assert report.unproved == (
        "lower bound 11: from a search without a certificate; 7 was checked",
    )
    assert report.figures["lower_bound_checked"] == 7
    assert not claim(problem, **fields, stats={"bound_by": "believe me"}).valid


def test_losses_have_proofs_too() -> None:
    """Prices are then in units of a dB."""
    losses = {"objective": "loss-db", "bar_loss_db": 0.5, "cross_loss_db": 0.5}
    half = proof(4, 3 * PRICE_UNITS // 2)
    problem = om.Routing(MESH, PAIRS, **losses)  # type: ignore[arg-type]
    feasible = {"status": om.Status.FEASIBLE, "objective": 5.5}
    report = claim(problem, **feasible, lower_bound=5.5, certificate=half)
    assert report.ok, report
    report = claim(problem, **feasible, lower_bound=5.5, certificate=proof(4, 2500))
    assert rules(report) == ["the lower bound is supported"]


def test_cells_without_light_are_counted_for_nothing() -> None:
    """Alone on a feed-forward fabric, a circuit needs what its shortest route needs."""
    for destination in range(4):
        matching = np.array([destination, -1, -1, -1], dtype=np.int32)
        problem = om.Routing(om.Benes(4), matching)
        assert bound_objective(problem) == om.solve(problem, "ilp", seed=0).objective


def test_the_worst_route_has_no_proof_but_of_infeasibility() -> None:
    """Prices say nothing about one route; the shortest routes do."""
    problem = om.Routing(MESH, PAIRS, objective="worst-cells")
    schedule = best_schedule(problem)
    worst = om.verify(problem, schedule).figures["objective"]
    feasible = {"status": om.Status.FEASIBLE, "objective": worst}
    bound = bound_objective(problem)
    report = claim(problem, **feasible, lower_bound=bound, certificate=PROOF)
    assert report.ok
    assert report.figures["lower_bound_checked"] == bound < worst
    clash = om.Routing(CLASH, PAIRS, objective="worst-cells")
    infeasible = {"status": om.Status.INFEASIBLE, "lower_bound": math.inf}
    assert claim(clash, **infeasible, certificate=proof(7, 1, infeasible=True)).ok
    assert not claim(clash, **infeasible, certificate=proof(7, 1)).ok


def test_infeasibility_needs_support() -> None:
    """By a proof or a dead pair; from a search it is unproved. And its bound is infinite."""
    clash = om.Routing(CLASH, PAIRS)
    infeasible = {"status": om.Status.INFEASIBLE, "lower_bound": math.inf}
    assert claim(clash, **infeasible, certificate=proof(7, 1, infeasible=True)).ok
    assert rules(claim(clash, **infeasible)) == ["infeasibility is supported"]
    report = claim(clash, **infeasible, stats={"bound_by": "cp-sat"})
    assert report.valid and not report.ok
    assert report.unproved == (
        "status infeasible: from a search without a certificate; 8 was checked",
    )
    for problem in (om.Routing(DEAD, DEAD_PAIR), om.AllToAll(DEAD)):
        assert claim(problem, **infeasible).ok
    report = claim(om.AllToAll(DEAD), status=om.Status.INFEASIBLE, lower_bound=8.0)
    assert rules(report) == ["of an infeasible problem the bound is infinite"]
    report = claim(om.AllToAll(MESH), **infeasible)
    assert rules(report) == ["infeasibility is supported"]


def test_unknown_claims_nothing_but_its_bound() -> None:
    """The bound and the statistics are checked all the same."""
    problem = om.Routing(MESH, PAIRS)
    report = claim(problem, status=om.Status.UNKNOWN)
    assert report.ok
    assert report.notes == ("status unknown: there is no answer to check",)
    assert claim(problem, status=om.Status.UNKNOWN, lower_bound=7.0).ok
    assert not claim(problem, status=om.Status.UNKNOWN, lower_bound=8.0).ok
    stats = {"slots_lower_bound": 4}
    assert not claim(om.AllToAll(MESH), status=om.Status.UNKNOWN, stats=stats).ok


def test_an_answer_that_is_no_schedule() -> None:
    """These problems ask for a schedule."""
    report = claim(
        om.Routing(MESH, PAIRS),
        status=om.Status.FEASIBLE,
        schedule=None,
        answer="yes",
        objective=11.0,
        lower_bound=7.0,
    )
    assert rules(report) == ["the answer is a schedule", "the schedule is the whole answer"]
    assert report.skipped == ("objective: nothing could be replayed",)


@pytest.mark.parametrize(
    ("certificate", "message"),
    [
        ("believe me", "a str, where only a RoutingProof on cells"),
        (RoutingProof.of_prices(np.zeros(3, np.int64)), "prices for 3 links"),
        (proof(4, 1, infeasible=True), "leaf 0 claims that there is no routing"),
    ],
)
def test_a_certificate_that_proves_nothing(certificate: Any, message: str) -> None:
    """It is refused even where the claimed bound would hold without it."""
    fields = {"status": om.Status.FEASIBLE, "objective": 11.0, "lower_bound": 7.0}
    report = claim(om.Routing(MESH, PAIRS), **fields, certificate=certificate)
    (violation,) = report.violations
    assert violation.rule == "the certificate is a proof"
    assert message in violation.got


def test_an_ideal_switch_has_no_proofs() -> None:
    """There are no cells to route through."""
    row: Any = [1, 0]
    schedule = om.Schedule(matchings=[row], durations_s=[1.0])  # type: ignore[arg-type]
    fields = {"schedule": schedule, "objective": 0.0, "lower_bound": 0.0}
    for problem in (om.Routing(om.IdealSwitch(2), row), om.AllToAll(om.IdealSwitch(2))):
        assert claim(problem, **fields).ok
        assert rules(claim(problem, **fields, certificate=PROOF)) == ["the certificate is a proof"]


def all_to_all(**fields: Any) -> om.Report:
    """Verify an all-to-all solution of three slots, of which the first is the plainest."""
    problem = om.AllToAll(om.HexMesh(3, 3, ports=4))
    schedule = oracles.all_to_all(problem.fabric)
    known = {"objective": 50.0, "lower_bound": 50.0, "schedule": schedule}
    return claim(problem, **known | fields)


@pytest.mark.parametrize("fabric", [om.HexMesh(3, 3, ports=4), om.HexMesh(3, 3, tx=4, rx=4)])
def test_proofs_number_circuits_as_the_problem_does(fabric: Any) -> None:
    """By source, of bidirectional ports from the lower one."""
    row: Any = [3, 2, 1, 0]
    problem = om.Routing(fabric, row)
    starts, ends = fabric.source_terminals, fabric.destination_terminals
    expected = [(starts[i], ends[j]) for i, j in problem.circuits]
    assert list_circuits(problem) == expected
    assert list_circuits(om.Routing(fabric, IDLE_ROW)) == []


@pytest.mark.parametrize(
    ("certificate", "message"),
    [
        ("no", "a str, where only a RoutingProof on cells"),
        (PROOF, "prices for 30 links"),
        ((PROOF, None), "a tuple, where only a RoutingProof on cells"),
    ],
)
def test_proofs_of_slots_that_prove_nothing(certificate: Any, message: str) -> None:
    """Type, number, and the mesh."""
    (violation,) = all_to_all(certificate=certificate).violations
    assert violation.rule == "the certificate is a proof"
    assert message in violation.got


def test_proofs_without_slots() -> None:
    """Where there is no schedule, no slot can be proved."""
    report = claim(om.AllToAll(MESH), status=om.Status.UNKNOWN, certificate=(None,))
    assert rules(report) == ["the certificate is a proof"]


def test_optimal_all_to_all_has_the_fewest_slots() -> None:
    """An idle slot more is feasible, but not optimal."""
    schedule = oracles.all_to_all(om.HexMesh(3, 3, ports=4))
    assert schedule.cell_states is not None
    longer = om.Schedule(
        matchings=np.vstack([schedule.matchings, np.full((1, 4), -1)]),
        durations_s=np.ones(4),
        cell_states=np.vstack([schedule.cell_states, np.full((1, 38), -1)]),
    )
    assert rules(all_to_all(schedule=longer)) == ["optimal means the fewest slots"]
    assert all_to_all(schedule=longer, status=om.Status.FEASIBLE).ok


def test_statistics_without_a_figure_are_free() -> None:
    """Only what is recomputed can be wrong; whole numbers may come as floats."""
    assert all_to_all(stats={"restarts": 3, "slots": 3.0, "reason": "none"}).ok
    report = all_to_all(stats={"toggles": "few"})
    assert [str(v) for v in report.violations] == [
        "stats['toggles']: statistics are as recomputed: got few, expected"
        f" {report.figures['toggles']}"
    ]

"""Exact methods: bounds that hold at any prices, against HiGHS and against brute force."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import optmatch as om
from optmatch.model import Bound, Event, NewBest, ignore
from optmatch.problems.routing import Objective
from optmatch.solvers.routing.negotiation import Negotiation
from optmatch.solvers.routing.pathfinder import FULL
from optmatch.solvers.routing.totals import shorten_longest_route
from optmatch.testing import brute_force

OBJECTIVES: tuple[Objective, ...] = ("total-cells", "worst-cells", "loss-db")


def random_matching(ports: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw a perfect matching of an even number of ports."""
    order = rng.permutation(ports)
    matching = np.empty(ports, dtype=np.int32)
    matching[order[0::2]], matching[order[1::2]] = order[1::2], order[0::2]
    return matching


def lossy(matching: NDArray[np.int32], objective: Objective) -> om.Routing:
    """Ask for a matching on a small mesh whose bars and crosses cost differently."""
    fabric = om.HexMesh(3, 3, ports=10)
    return om.Routing(fabric, matching, objective=objective, bar_loss_db=0.3, cross_loss_db=0.5)


def test_events_are_of_the_objective_that_was_asked_for() -> None:
    """Told were the cells of all routes together, and 0 for a model that has no objective."""
    problem = lossy(random_matching(10, np.random.default_rng(6)), "worst-cells")
    events = list[Event]()
    solution = om.solve(problem, "ilp", seed=0, on_event=events.append)
    told = [event.objective for event in events if isinstance(event, NewBest)]
    bounds = [event.lower_bound for event in events if isinstance(event, Bound)]
    assert solution.objective is not None and told[-1] == solution.objective
    assert all(objective >= solution.objective for objective in told)
    assert all(bound <= solution.objective for bound in bounds)
    lengths = problem.fabric.route_cells()[problem.matching, np.arange(10)]
    assert told[0] < lengths.sum()


def test_a_cut_names_circuits_and_links() -> None:
    """Two ports behind one corner link cannot both be busy: circuits and link are named."""
    fabric = om.HexMesh(2, 2, ports=[2, 10, 5, 15])
    solution = om.solve(om.Routing(fabric, np.array([1, 0, 3, 2], dtype=np.int32)), "ilp", seed=0)
    assert solution.status is om.Status.INFEASIBLE
    assert solution.stats["cut_circuits"] == [[0, 1], [2, 3]]
    assert "must pass the links" in solution.stats["reason"]
    assert "2 times in all, but each carries one circuit, 1 in all" in solution.stats["reason"]
    assert om.verify(solution.problem, solution).ok


def test_a_dead_pair_is_named_before_any_search() -> None:
    mesh = om.HexMesh(2, 2)
    (i, j), *_ = mesh.dead_pairs()
    fabric = om.HexMesh(2, 2, ports=[i, j])
    for method in ("negotiated", "ilp"):
        solution = om.solve(
            om.Routing(fabric, np.array([1, 0], dtype=np.int32)),
            method,
            limits=om.Limits(iterations=0),
        )
        assert solution.status is om.Status.INFEASIBLE
        assert f"t{i}" in solution.stats["reason"]
        assert f"t{j}" in solution.stats["reason"]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objectives_are_all_proved(objective: Objective) -> None:
    """On a small mesh each objective ends with a proof, and no other routes are better at it."""
    rng = np.random.default_rng(3)
    for _ in range(4):
        matching = random_matching(10, rng)
        problem = lossy(matching, objective)
        solution = om.solve(problem, "ilp", seed=0)
        assert solution.status is om.Status.OPTIMAL
        for other in OBJECTIVES:
            routed = om.solve(lossy(matching, other), "ilp", seed=0)
            assert routed.schedule is not None
            value = om.verify(problem, routed.schedule).figures["objective"]
            assert solution.objective <= value + 1e-9


def test_a_proof_splits_where_prices_do_not_suffice() -> None:
    """Twelve ports crowd a 3x3 mesh: now and then the proof needs cases, which are all checked."""
    fabric = om.HexMesh(3, 3, ports=12)
    rng = np.random.default_rng(7)
    for _ in range(40):
        solution = om.solve(om.Routing(fabric, random_matching(12, rng)), "ilp", seed=0)
        if solution.certificate is not None and len(solution.certificate.circuit) > 1:
            assert solution.status is om.Status.OPTIMAL
            assert solution.lower_bound > solution.problem.lower_bound()
            return
    pytest.fail("no matching needed a split: the test needs another seed")


def test_a_search_cut_short_keeps_its_best() -> None:
    fabric = om.HexMesh(9, 9, ports=36)
    rng = np.random.default_rng(7)
    for _ in range(12):
        problem = om.Routing(fabric, random_matching(36, rng))
        solution = om.solve(problem, "ilp", seed=0, limits=om.Limits(iterations=1))
        assert problem.lower_bound() <= solution.lower_bound <= solution.objective


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_gap_is_all_that_is_asked_for(objective: Objective) -> None:
    rng = np.random.default_rng(3)
    stopped = 0
    for _ in range(12):
        problem = lossy(random_matching(10, rng), objective)
        solution = om.solve(problem, "ilp", seed=0, limits=om.Limits(gap=0.5))
        assert solution.schedule is None or solution.gap <= 0.5
        stopped += solution.limit is om.Limit.GAP
    assert stopped or objective == "worst-cells"


def test_lengths_are_refuted_one_by_one_and_not_one_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The longest route has 11 cells at least, as all states say; the start is told to have 12."""
    matching = np.array([1, 0, 8, 7, 9, 6, 5, 3, 2, 4], dtype=np.int32)
    problem = om.Routing(om.HexMesh(2, 2, ports=10), matching, objective="worst-cells")
    monkeypatch.setattr("optmatch.solvers.routing.negotiation.PATIENT", FULL)  # for worse routes
    start = Negotiation(problem).attempt(0, np.random.default_rng(0))
    assert start is not None
    assert start.objective == 13
    np.minimum(start.lengths, 12, out=start.lengths)
    monkeypatch.setattr("optmatch.solvers.routing.totals.RESTARTS", 0)
    clock, rng = om.Limits().start(), np.random.default_rng(0)
    solution = shorten_longest_route(problem, clock, rng, ignore, start)
    assert (solution.status, solution.objective) == (om.Status.OPTIMAL, 11)
    assert (problem.lower_bound(), solution.stats["bound_by"]) == (7, "cp-sat")


def test_longest_routes_without_a_start_and_without_time(monkeypatch: pytest.MonkeyPatch) -> None:
    matching, rng = np.array([1, 0, 3, 2]), np.random.default_rng(0)
    problem = om.Routing(om.HexMesh(1, 2, ports=4), matching, objective="worst-cells")
    found = shorten_longest_route(problem, om.Limits().start(), rng, ignore, None)
    assert (found.status, found.objective) == (om.Status.OPTIMAL, brute_force(problem))
    routes = Negotiation(problem).attempt(0, rng)
    monkeypatch.delattr(Negotiation, "attempt")
    again = shorten_longest_route(problem, om.Limits().start(), rng, ignore, routes)
    assert (again.status, again.objective) == (found.status, found.objective)
    late = shorten_longest_route(problem, om.Limits(time_s=1e-9).start(), rng, ignore, None)
    assert (late.status, late.limit) == (om.Status.UNKNOWN, om.Limit.TIME)


@pytest.mark.parametrize("scale", [1.0, 1000.0, 1e-5])
@pytest.mark.parametrize("fabric", [om.HexMesh(1, 2, ports=4), om.Benes(4)])
def test_losses_of_any_size_are_proved(fabric: om.Fabric, scale: float) -> None:
    rng = np.random.default_rng(11)
    answered = 0
    for _ in range(4):
        bar, cross = (scale * rng.random(2)).tolist()
        cells = rng.permutation(fabric.n_cells).tolist()
        broken = om.Faulty(fabric, stuck_bar=cells[:1], stuck_cross=cells[1:3])
        matching = random_matching(4, rng)
        problem = om.Routing(
            broken, matching, objective="loss-db", bar_loss_db=bar, cross_loss_db=cross
        )
        solution, best = om.solve(problem, "ilp", seed=0), brute_force(problem)
        if best is None:
            assert solution.status is om.Status.INFEASIBLE
            continue
        assert solution.status is om.Status.OPTIMAL
        assert solution.objective == pytest.approx(best, rel=1e-9)
        answered += 1
    assert answered


def test_losses_of_small_problems_are_proved_in_few_cases() -> None:
    """Cases are split where circuits compete; elsewhere one of the two cases changes nothing."""
    fabric = om.HexMesh(2, 2, tx=(0, 18, 10), rx=(15, 3, 6))
    matching = np.array([2, 0, -1], dtype=np.int32)
    losses: dict[str, Any] = {"bar_loss_db": 0.2, "cross_loss_db": 0.5}
    problem = om.Routing(fabric, matching, objective="loss-db", **losses)
    solution = om.solve(problem, "ilp", seed=0, limits=om.Limits(iterations=20))
    assert (solution.status, solution.proof) == (om.Status.OPTIMAL, "certificate")
    assert solution.objective == pytest.approx(6.5)  # of all 2^19 states

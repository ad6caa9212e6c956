"""Optima against networkx, and against every assignment of tiny problems."""

import networkx as nx
import numpy as np
import pytest

import optmatch as om
from optmatch.model import Bound, NewBest, figures_of
from optmatch.problems import PortSharing
from optmatch.solvers.sharing import flows
from tests.helpers.modes import examples
from tests.helpers.sharing import (
    Jobs,
    Resources,
    Sharing,
    SupplyProof,
    best_by_hand,
    draw_sharing,
    serves,
)

OBJECTIVES = ("max-flow", "lexicographic", "max-min", "min-jct")


def flow_by_networkx(problem: PortSharing) -> int:
    """Return the largest flow from resources to jobs, resource by resource."""
    graph = nx.DiGraph()
    resources, jobs = problem.resources, problem.jobs
    graph.add_nodes_from(("s", "t"))
    for job, wants in enumerate(jobs.demand.tolist()):
        graph.add_edge(("job", job), "t", capacity=wants)
        for plane in range(3 if jobs.plane_caps is not None else 0):
            cap = int(jobs.plane_caps[job, plane])  # type: ignore[index]
            graph.add_edge(("door", job, plane), ("job", job), capacity=cap)
        for resource in range(resources.n_resources):
            if serves(resources, jobs, resource, job):
                plane = int(resources.planes[resource])
                door = ("job", job) if jobs.plane_caps is None else ("door", job, plane)
                graph.add_edge(("resource", resource), door, capacity=1)
                graph.add_edge("s", ("resource", resource), capacity=1)
    return int(nx.maximum_flow_value(graph, "s", "t"))


@pytest.mark.parametrize("caps", [False, True])
def test_max_flow_is_that_of_networkx(caps: bool) -> None:
    rng = np.random.default_rng(22)
    for _ in range(examples(50, plain=10)):
        problem = draw_sharing(rng, caps=caps)
        solution = om.solve(problem, "max-flow", seed=0)
        served = int((solution.answer.job_of >= 0).sum())
        assert served == flow_by_networkx(problem)
        assert solution.objective == problem.jobs.demand.sum() - served
        assert solution.status is om.Status.OPTIMAL and solution.proof != "search"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_optima_are_those_of_all_assignments(objective: str) -> None:
    rng = np.random.default_rng(23)
    for k in range(examples(24, plain=12)):
        problem = draw_sharing(
            rng, objective, resources=5, jobs=3, caps=k % 2 == 0, whole=k % 4 < 2
        )
        best, solution = best_by_hand(problem), om.solve(problem, seed=0)
        assert solution.method == objective
        assert solution.objective == best
        infeasible = solution.status is om.Status.INFEASIBLE
        assert infeasible == (figures_of(solution.problem, solution.answer) == {})
        assert solution.status is om.Status.OPTIMAL or (infeasible and best is None)
        if objective in ("max-min", "lexicographic"):
            assert solution.proof in ("counting", "certificate")
        if not problem.jobs.whole.any():
            for name in ("fifo", "srsf", "random"):
                found = om.solve(problem, name, seed=k).objective
                assert found is None or found >= best


def test_jobs_that_a_flow_would_tear_are_left_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No choice by CP-SAT is needed, nor waited for: 1,000 resources meet the bound in a pass."""
    monkeypatch.setattr(flows, "choose_whole", None)
    rng = np.random.default_rng([12012, 11])
    resources = Resources(rng.integers(0, 50, (2, 1000)), arrival_s=rng.integers(0, 100, 1000))
    jobs = Jobs(
        rng.integers(1, 20, 400), rng.integers(0, 30, (2, 400)), all_or_nothing=[0, 1] * 200
    )
    solution = om.solve(PortSharing(resources, jobs), seed=0, time_limit_s=0.5)
    assert solution.status is om.Status.OPTIMAL


def test_all_or_nothing_is_chosen_where_a_flow_would_tear() -> None:
    """One of two jobs of 3 that share 4 resources; the bound of the flow alone is lower."""
    ports = Resources([[1.0, 1, 1, 1]])
    problem = Sharing(ports, Jobs([3, 3], [[1.0, 1.0]], all_or_nothing=[1, 1]))
    solution = om.solve(problem, seed=0)
    assert (solution.objective, solution.status) == (3.0, om.Status.OPTIMAL)
    assert sorted(solution.answer.served(2).tolist()) == [0, 3]
    report = om.verify(problem, solution)
    assert report.valid and not report.ok  # the flow bounds it by 2, CP-SAT says 3


def test_what_does_best_together_is_chosen() -> None:
    """Jobs of 3 and of 2 fill 5 resources; the job of 4 that asks first leaves one."""
    jobs = Jobs([4, 3, 2], [[1.0] * 3], all_or_nothing=[1, 1, 1])
    solution = om.solve(Sharing(Resources([[1.0] * 5]), jobs), seed=0)
    assert (solution.objective, solution.status) == (4.0, om.Status.OPTIMAL)


def test_waits_are_seconds_not_jobs() -> None:
    """Two jobs that wait a little longer are better than one that waits long; no part is lost."""
    ports = Resources(
        [[1.0, 0, 1, 0], [1.0, 1, 0, 0], [0.0, 0, 1, 1]], arrival_s=[0.0, 2.75, 1.25, 2.25]
    )
    solution = om.solve(Sharing(ports, Jobs([1, 1, 1], np.eye(3)), "min-jct"), seed=0)
    assert solution.answer.job_of.tolist() == [1, -1, 0, 2]
    assert (solution.objective, solution.status) == (3.5 / 3, om.Status.OPTIMAL)


def test_a_given_order_counts() -> None:
    ports = Resources([[1.0, 1.0, 2.0]])
    jobs = Jobs([2, 2], [[1.0, 2.0]])
    by_time = om.solve(Sharing(ports, jobs, "lexicographic"), seed=0)
    by_order = om.solve(Sharing(ports, jobs, "lexicographic", order=[1, 0]), seed=0)
    assert by_time.objective == (0, 1)
    assert by_order.objective == (1, 0)
    assert by_order.answer.job_of[2] == 1
    assert all(cut is None or isinstance(cut, SupplyProof) for cut in by_order.certificate)


def test_little_time_is_a_normal_outcome() -> None:
    problem = draw_sharing(np.random.default_rng(3), "lexicographic", resources=30)
    for limits in (om.Limits(time_s=0.0), om.Limits(time_s=1e-6)):
        solution = om.solve(problem, seed=0, limits=limits)
        assert solution.status in (om.Status.UNKNOWN, om.Status.FEASIBLE, om.Status.OPTIMAL)


def test_events_of_min_jct_are_mean_seconds() -> None:
    """CP-SAT counts steps of all jobs together, many to a second where times are not whole."""
    resources = Resources([[1.0] * 4], arrival_s=[0.25, 1.75, 3.5, 4.125])
    problem = Sharing(resources, Jobs([2, 1], [[1.0, 1.0]]), "min-jct")
    events: list[object] = []
    solution = om.solve(problem, "min-jct", seed=0, on_event=events.append)
    objectives = [event.objective for event in events if isinstance(event, NewBest)]
    bounds = [event.lower_bound for event in events if isinstance(event, Bound)]
    assert solution.objective == (0.25 + 3.5) / 2
    assert objectives[-1] == pytest.approx(solution.objective, rel=1e-9)
    assert bounds[-1] == pytest.approx(solution.lower_bound, rel=1e-9)

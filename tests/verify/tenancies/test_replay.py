"""The verifier of tenancies refuses what is wrong, by the rule that it breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.problems import Tenancy, TenancyPlan, Tenant


@cache
def solution() -> om.Solution:
    """Three jobs of three kinds on a small mesh; the demand has a slot to spare."""
    demand = np.array([[0, 2.0], [0, 0]])
    tenants = (
        Tenant("pairs", 4),
        Tenant("phase", 2, "demand", demand_bytes=demand, held=(6, 7)),
        Tenant("sum", 2, "all-reduce", size_bytes=2.0),
    )
    return om.solve(Tenancy(om.HexMesh(4, 4, ports=8), tenants, delay_s=0.5), seed=0)


def plan() -> TenancyPlan:
    """Return its ports and plans."""
    answer: Any = solution().answer
    return answer  # type: ignore[no-any-return]


def on_schedule(change: Callable[[np.ndarray[Any, Any], int, int], None]) -> om.Solution:
    """Change the matchings of the first slot, given two ports of different jobs."""
    schedule = solution().schedule
    assert schedule is not None
    matchings = schedule.matchings.copy()
    change(matchings, plan().ports[0][0], plan().ports[1][0])
    return replace(solution(), schedule=replace(schedule, matchings=matchings))


def drop_a_pair(matchings: np.ndarray[Any, Any], port: int, _: int) -> None:
    """Leave out one circuit of the all-to-all."""
    matchings[0, matchings[0, port]] = -1
    matchings[0, port] = -1


def join_jobs(matchings: np.ndarray[Any, Any], port: int, other: int) -> None:
    """Join ports of two jobs, and leave their partners idle."""
    for each in (port, other):
        matchings[0, matchings[0, each]] = -1
    matchings[0, port], matchings[0, other] = other, port


def rest(matchings: np.ndarray[Any, Any], _: int, port: int) -> None:
    """Let the demand rest all the time."""
    matchings[:, list(plan().ports[1])] = -1


def skip_rounds(matchings: np.ndarray[Any, Any], _: int, __: int) -> None:
    """Let the collective do nothing in its slots."""
    matchings[:, list(plan().ports[2])] = -1


def with_ports(*ports: tuple[int, ...]) -> om.Solution:
    """Put other ports into the plan."""
    return replace(solution(), answer=replace(plan(), ports=ports))


def claiming(**claims: Any) -> om.Solution:
    """Change what the solution says of itself."""
    open_: dict[str, Any] = {"status": om.Status.FEASIBLE, "limit": om.Limit.EXHAUSTED}
    return replace(solution(), **open_, **claims)


def test_the_answer_is_verified() -> None:
    """Before it is changed: three slots, by counting."""
    report = om.verify(solution().problem, solution())
    assert report.ok and report.proof == "counting"
    assert report.figures["slots"] == report.figures["slots_lower_bound"] == 3
    assert report.figures["objective"] == 4.5
    assert report.figures["total_cells"] >= report.figures["shortest_cells"] > 0


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: on_schedule(drop_a_pair), "every pair meets exactly once"),
        (lambda: on_schedule(join_jobs), "a circuit joins ports of one job"),
        (lambda: on_schedule(rest), "all demand is served"),
        (lambda: on_schedule(skip_rounds), "a collective has its epochs one after the other"),
        (lambda: with_ports(*plan().ports[:2]), "each job has its ports"),
        (lambda: with_ports((0,), *plan().ports[1:]), "a job has as many ports as it needs"),
        (lambda: with_ports(*plan().ports[:2], plan().ports[1]), "a port belongs to one job"),
        (lambda: with_ports(*plan().ports[:2], (6, 99)), "ports are alive"),
        (lambda: replace(solution(), answer=replace(plan(), plans=(None,) * 3)), "has a plan"),
        (
            lambda: replace(solution(), schedule=replace(solution().schedule, delay_s=0.1)),  # type: ignore[type-var]
            "the delay is the problem's",
        ),
        (
            lambda: replace(
                solution(),
                schedule=replace(solution().schedule, durations_s=[1, 2, 1]),  # type: ignore[type-var]
            ),
            "a slot lasts slot_s",
        ),
        (lambda: replace(solution(), schedule=None), "a plan and a schedule answer it"),
        (lambda: claiming(objective=4.6), "the objective is as recomputed"),
        (lambda: claiming(lower_bound=4.0), "the lower bound is not below that of the"),
    ],
)
def test_what_is_wrong_is_named(make: Callable[[], om.Solution], rule: str) -> None:
    """With its rule."""
    report = om.verify(solution().problem, make())
    assert not report.valid
    assert any(rule in violation.rule for violation in report.violations), report


def test_light_of_two_jobs_on_one_link_is_seen() -> None:
    """Cells of one slot, given to another slot, lead light astray."""
    schedule = solution().schedule
    assert schedule is not None and schedule.cell_states is not None
    mixed = replace(schedule, cell_states=np.roll(schedule.cell_states, 1, axis=0))
    report = om.verify(solution().problem, replace(solution(), schedule=mixed))
    assert any("light" in violation.rule for violation in report.violations)


def test_who_moves_pays() -> None:
    """The demand held its ports; ranks the other way round are two moved ports, one circuit."""
    problem: Any = solution().problem
    held = plan().ports[1]
    turned = replace(problem.tenants[1], held=held[::-1])
    moved = replace(problem, tenants=(problem.tenants[0], turned, problem.tenants[2]))
    report = om.verify(moved, claiming(problem=moved, objective=5.0))
    assert report.figures["changed_circuits"] == 1
    assert report.valid and report.figures["objective"] == 5.0


def test_ports_or_schedule_alone_are_no_answer() -> None:
    """Both are needed."""
    for part in (plan(), solution().schedule):
        assert part is not None
        assert "together" in om.verify(solution().problem, part).violations[0].rule

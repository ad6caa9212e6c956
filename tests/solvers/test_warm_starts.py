"""A solve that starts from a former answer is never worse than it, as it is or repaired."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.fabrics import Fault, Faulty
from optmatch.kinds import all_kinds
from optmatch.model import Bound, NewBest, Problem
from tests.helpers.command import call, refused
from tests.helpers.modes import examples

MESH = om.HexMesh(4, 4, ports=8)
MATCHING = [4, 3, 6, 1, 0, 7, 2, 5]
MATRIX = np.array([[0, 9, 2, 1], [4, 0, 6, 3], [5, 1, 0, 7], [2, 8, 3, 0]])
SQUARE = np.array([[0, 5, 3, 2], [2, 0, 5, 3], [3, 2, 0, 5], [5, 3, 2, 0]])
GROUPS: Any = np.arange(16).reshape(4, 4) % 3
FEW = om.Limits(iterations=3)


def _broken(cell: int) -> Any:
    return Faulty.of(MESH, [Fault("dead-cell", cell)])


def _demand(matrix: Any, **more: Any) -> om.Demand:
    return om.Demand.from_matrix(matrix, **{"delay_s": 2.0, **more})


def _more(matrix: Any) -> Any:
    changed = np.array(matrix)
    changed[0, 1] += 2
    return changed


def _mixed(matrix: Any) -> Any:
    return np.array(matrix) + np.eye(4, dtype=int)[[1, 0, 3, 2]]


ORIGINALS: dict[str, tuple[Problem, Problem]] = {
    "all-to-all": (om.AllToAll(MESH), om.AllToAll(_broken(20))),
    "routing": (om.Routing(MESH, MATCHING), om.Routing(_broken(20), MATCHING)),
    "other circuits": (om.Routing(MESH, MATCHING), om.Routing(MESH, [4, 3, 7, 1, 0, 6, 5, 2])),
    "demand": (_demand(MATRIX), _demand(_more(MATRIX))),
    "planes": (_demand(MATRIX, planes=2), _demand(_more(MATRIX), planes=2)),
    "matchings": (
        _demand(SQUARE, objective="matchings"),
        _demand(_mixed(SQUARE), objective="matchings"),
    ),
    "groups": (
        _demand(MATRIX, objective="weighted-completion-s", groups=GROUPS),
        _demand(_more(MATRIX), objective="weighted-completion-s", groups=GROUPS),
    ),
    "collective": (
        om.Collective("all-to-all", 8, 1e6, alpha_s=2.7e-6, delay_s=1e-5),
        om.Collective("all-to-all", 8, 2e6, alpha_s=2.7e-6, delay_s=1e-5),
    ),
}
"""A problem, and what has become of it."""


def _solve(problem: Problem, *given: Any, **more: Any) -> Any:
    return om.solve(problem, *given, **more)


def _improvements(heard: list[Any]) -> list[float]:
    return [event.objective for event in heard if isinstance(event, NewBest)]


@pytest.mark.parametrize("name", ORIGINALS)
def test_it_goes_on_from_an_answer_to_the_same_problem(name: str) -> None:
    """The first news is the former value, later ones are better, and the result is no worse."""
    problem, _ = ORIGINALS[name]
    former = _solve(problem, seed=0, limits=om.Limits(iterations=40))
    heard: list[Any] = []
    found = _solve(problem, seed=1, limits=FEW, start=former, on_event=heard.append)
    assert found.objective <= former.objective
    assert found.lower_bound >= former.lower_bound
    if former.status is not om.Status.OPTIMAL:
        news = _improvements(heard)
        assert news[0] == former.objective
        assert all(b < a for a, b in pairwise(news))


@pytest.mark.parametrize("name", ORIGINALS)
def test_what_no_longer_fits_is_repaired(name: str) -> None:
    """The answer to what a problem has become is valid, and as good as a long search without."""
    problem, changed = ORIGINALS[name]
    former = _solve(problem, seed=0, limits=om.Limits(iterations=40))
    found = _solve(changed, seed=1, limits=FEW, start=former)
    assert om.verify(changed, found).valid
    alone = _solve(changed, seed=1, limits=FEW)
    assert found.objective <= alone.objective * 1.05 + 1


@pytest.mark.parametrize("name", ["best", "ilp"])
@settings(max_examples=examples(12, plain=12))
@given(data=st.data())
def test_a_demand_is_no_worse_than_its_missing_circuits_alone(
    name: str, data: st.DataObject
) -> None:
    """The naive repair gives each missing entry a slot of its own."""
    entries = st.lists(st.integers(0, 9), min_size=16, max_size=16)
    before, after = (np.array(data.draw(entries)).reshape(4, 4) for _ in range(2))
    former = _solve(_demand(before, quantum_s=1.0), seed=0, limits=FEW)
    served = np.zeros((4, 4))
    for matching, lasts_s in zip(
        former.schedule.matchings, former.schedule.durations_s, strict=True
    ):
        ports = np.flatnonzero(matching >= 0)
        served[ports, matching[ports]] += lasts_s
    missing = np.maximum(after - served, 0)
    naive = former.objective + missing.sum() + 2.0 * np.count_nonzero(missing)
    problem = _demand(after, quantum_s=1.0)
    found = _solve(problem, name, seed=0, limits=om.Limits(iterations=1), start=former)
    assert found.objective <= naive


@pytest.mark.parametrize(
    "spoil",
    [
        lambda former: replace(
            former, schedule=replace(former.schedule, cell_states=np.zeros((1, 63), np.int8))
        ),
        lambda former: _solve(om.Routing(om.IdealSwitch(8), MATCHING), seed=0),
        lambda former: _solve(om.Routing(om.HexMesh(5, 5, ports=8), MATCHING), seed=0),
        lambda former: replace(
            former, status=om.Status.UNKNOWN, limit=om.Limit.TIME, schedule=None, objective=None
        ),
    ],
    ids=["other states", "no cells", "other mesh", "no answer"],
)
def test_what_is_no_answer_does_no_harm(spoil: Callable[[om.Solution], om.Solution]) -> None:
    problem = om.Routing(MESH, MATCHING)
    former = spoil(_solve(problem, seed=0))
    found = _solve(problem, seed=0, start=former)
    assert found.objective == _solve(problem, seed=0).objective


def test_times_that_are_not_kept_do_no_harm() -> None:
    """What claims to answer the same demand, and does not, is left aside."""
    problem = _demand(MATRIX)
    former: Any = om.solve(problem, seed=0)
    short = replace(former.schedule, durations_s=former.schedule.durations_s / 2)
    spoiled = replace(former, schedule=short, objective=former.objective / 2, lower_bound=0.0)
    assert _solve(problem, seed=0, limits=FEW, start=spoiled).objective >= former.objective


def test_a_solution_of_another_kind_is_refused() -> None:
    former = _solve(om.Routing(MESH, MATCHING), seed=0)
    with pytest.raises(om.InputError, match="a solution of routing, not all-to-all"):
        _solve(om.AllToAll(MESH), start=former)
    with pytest.raises(om.InputError, match="start"):
        _solve(om.AllToAll(MESH), start=former.schedule)


def test_a_longer_solve_proves_what_the_default_method_leaves_open() -> None:
    """The default answers at once without a bound; the exact method has the rest of the time."""
    problem = om.SliceAllocation(om.RackFabric(), (4, 2, 2))
    reroute = next(k for k in all_kinds() if k.problem is om.Reroute).small_problems()[0]
    for each in (problem, reroute):
        alone = _solve(each, seed=0)
        heard: list[Any] = []
        longer = _solve(each, seed=0, time_limit_s=5, on_event=heard.append)
        assert longer.objective <= alone.objective
        assert longer.status is om.Status.OPTIMAL
        news = _improvements(heard)
        assert all(b < a for a, b in pairwise(news))
        bounds = [event.lower_bound for event in heard if isinstance(event, Bound)]
        assert all(b > a for a, b in pairwise(bounds))


def test_the_command_starts_from_a_file(tmp_path: Any) -> None:
    om.save(om.Routing(MESH, MATCHING), tmp_path / "problem.json")
    om.save(om.AllToAll(MESH), tmp_path / "other.json")
    solve = "solve", str(tmp_path / "problem.json"), "--seed", "0", "-q"
    old = str(tmp_path / "old.json")
    call(*solve, "-o", old)
    call(*solve, "--start", old)
    refused(
        "start: a solution of routing, not all-to-all",
        "solve",
        str(tmp_path / "other.json"),
        "-q",
        "--start",
        old,
    )
    call(*solve, "--start", str(tmp_path / "problem.json"), code=2)

"""Parameters of searches: declared by methods, set by users, refused where they are wrong."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

import optmatch as om
from optmatch.io import dumps, loads
from optmatch.kinds import all_methods
from optmatch.model import Problem, Solution, Tick
from tests.helpers.command import call

MESH = om.HexMesh(4, 4, ports=8)
MATRIX = [[0, 9, 2, 1, 3], [4, 0, 6, 3, 1], [5, 1, 0, 7, 2], [2, 8, 3, 0, 9], [1, 1, 7, 2, 0]]
SMALL: dict[str, Problem] = {
    "all-to-all": om.AllToAll(MESH),
    "demand": om.Demand.from_matrix(MATRIX, delay_s=2.0),
    "routing": om.Routing(MESH, [4, 3, 6, 1, 0, 7, 2, 5]),
}
TUNABLE = [method for method in all_methods() if method.params is not None]


def test_defaults_are_what_runs_without_parameters() -> None:
    assert {method.solves.kind for method in TUNABLE} >= set(SMALL)
    for method in TUNABLE:
        problem = SMALL.get(method.solves.kind)
        if problem is None or method.params is None:
            continue
        plain = om.solve(problem, method.name, seed=1)
        given = asdict(method.params())
        same = om.solve(problem, method.name, seed=1, params=given)
        assert (same.schedule, same.lower_bound) == (plain.schedule, plain.lower_bound)
        assert same.stats["params"] == given and "params" not in plain.stats
        read = loads(dumps(same))
        assert isinstance(read, Solution) and read.stats["params"] == given


def test_parameters_reach_the_search() -> None:
    def steps(problem: Problem, **params: float) -> int:
        found: list[object] = []
        om.solve(problem, seed=1, params=params, on_event=found.append)
        return sum(isinstance(event, Tick) for event in found)

    few, many = (steps(SMALL["demand"], rebuilds=count) for count in (3, 9))
    assert many == few + 6
    pairs = om.Demand(om.IdealSwitch(5, bidirectional=True), MATRIX, delay_s=2.0, quantum_s=1.0)
    few, many = (steps(pairs, rebuilds=count) for count in (0, 2))
    assert many == few + 40
    count = om.Demand.from_matrix([[1, 2, 3], [2, 3, 1], [3, 1, 2]], objective="matchings")
    assert steps(count, decompositions=1) <= 1
    groups = om.Demand.from_matrix(
        MATRIX, delay_s=1.0, objective="weighted-completion-s", groups=[[0, 1, 2, 0, 1]] * 5
    )
    assert steps(groups, orders=9) == steps(groups, orders=4) + 5
    hard = om.AllToAll(om.HexMesh(5, 5, ports=8))
    assert steps(hard, starts=1, moves_per_slot=1) <= steps(hard, starts=2, moves_per_slot=9)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"sstarts": 3}, "no parameter 'sstarts'; it has starts, moves_per_slot"),
        ({"starts": 0}, "starts = 0: must be >= 1"),
        ({"starts": 1.5}, "starts"),
        ({"starts": True}, "starts"),
        ([3], "params"),
    ],
)
def test_wrong_parameters_are_refused(params: object, told: str) -> None:
    with pytest.raises(om.InputError, match=told.replace("(", r"\(")):
        om.solve(SMALL["all-to-all"], params=params)  # type: ignore[arg-type]
    with pytest.raises(om.InputError, match="it has none"):
        om.solve(SMALL["all-to-all"], "ilp", params={"starts": 2})


def test_command_line(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    om.save(SMALL["all-to-all"], file)
    words = ("--seed", "1", "--param", "starts=2", "--param", "moves_per_slot=7", "--json")
    done = call("solve", file, *words)
    found = json.loads(done.stdout)
    assert found["stats"]["params"] == {"starts": 2, "moves_per_slot": 7}
    for texts, told in (
        (["start=2"], "no parameter 'start'"),
        (["starts=x"], "with a number"),
        (["starts=-1"], ">= 1"),
        (["starts=2", "starts=3"], "--param starts is there twice"),
    ):
        done = call("solve", file, *(f"--param={text}" for text in texts), "-q", code=2)
        assert told in done.stderr and done.stdout == ""
    listed = call("methods", "negotiated").stdout
    assert (
        "--param starts=...  how often the search begins without a limit (int, 1 or more; 4 by"
        in listed
    )
    assert "demand:" not in listed and "a second for 32 ports" in listed
    call("methods", "nobody", code=2)

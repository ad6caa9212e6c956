"""`optmatch verify`: exit codes of wrong and of unproved answers."""

import json
from pathlib import Path

import pytest

import optmatch as om
from tests.helpers.command import IDEAL, INSTANCES, call, ideal_solution, refused


@pytest.fixture
def unproved(tmp_path: Path) -> Path:
    """Claim by a search that a problem with an answer has none."""
    path = tmp_path / "unproved.schedule.json"
    claim = om.Solution(
        problem=ideal_solution().problem,
        status=om.Status.INFEASIBLE,
        lower_bound=float("inf"),
        method="by hand",
        stats={"bound_by": "search"},
    )
    om.save(claim, path)
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """Claim an objective that the schedule does not have."""
    path = tmp_path / "wrong.schedule.json"
    om.save(ideal_solution(objective=1.0, lower_bound=1.0), path)
    return path


def test_unproved_claims_have_a_code_of_their_own(unproved: Path) -> None:
    done = call("verify", unproved, code=6)
    first, *rest = done.stdout.splitlines()
    assert first == f"{unproved}: UNPROVED"
    claim = "  unproved: status infeasible: from a search without a certificate; 0 was checked"
    assert claim in rest
    accepted = call("verify", unproved, "--accept-unproved")
    assert accepted.stdout == done.stdout
    report = json.loads(call("verify", unproved, "--json", code=6).stdout)
    assert (report["ok"], report["valid"], report["proof"]) == (False, True, "search")
    assert report["unproved"] == [claim.removeprefix("  unproved: ")]


def test_a_violation_comes_before_an_unproved_claim(unproved: Path, wrong: Path) -> None:
    for files, code in (
        ((unproved, wrong), 5),
        ((wrong, unproved), 5),
        ((unproved, IDEAL), 6),
        ((unproved, "missing.json"), 6),
    ):
        call("verify", *files, code=code)
    call("verify", wrong, "--accept-unproved", code=5)


def test_a_file_keeps_what_its_claims_rest_on(tmp_path: Path) -> None:
    problem, path = tmp_path / "p.json", tmp_path / "s.json"
    om.save(om.AllToAll(om.HexMesh(2, 2, ports=5)), problem)
    done = call("solve", problem, "--method", "ilp", "--seed", "0", "-o", path)
    assert "  proof              search, unproved" in done.stdout.splitlines()
    assert json.loads(path.read_text())["proof"] == "search"
    assert om.load(path).proof == "search"  # type: ignore[union-attr]
    path.write_text(path.read_text().replace('"proof": "search"', '"proof": "hope"'))
    refused("/proof: proof = 'hope': one of counting, certificate, search", "verify", path)


def test_levels_are_shown_one_by_one(tmp_path: Path) -> None:
    problem, path = INSTANCES / "reroute" / "rack-64-chip.json", tmp_path / "s.json"
    done = call("solve", problem, "--seed", "0", "-o", path)
    levels = json.loads(path.read_text())["objective"]
    assert om.load(path).objective == tuple(levels)  # type: ignore[union-attr]
    names = "disturbed", "changed", "cells set", "hundredths of a dB", "cells or fibres"
    text = ", ".join(f"{level} {name}" for level, name in zip(levels, names, strict=True))
    assert f"  objective    {text}" in done.stdout.splitlines()
    assert ", ".join(map(str, levels)) in call("compare", problem, "--methods", "greedy").stdout
    shown = call("verify", path).stdout.splitlines()
    assert f"  {'objective':<38}  {text}" in shown


def test_figures_are_said_in_words(tmp_path: Path) -> None:
    """Both bounds are told apart, loops are counted, and the worst circuits have a place."""
    fabric = om.HexMesh(4, 4, ports=8)
    problem = om.Routing(fabric, [3, 2, 1, 0, -1, -1, -1, -1])
    path = tmp_path / "s.json"
    om.save(om.solve(problem, seed=0), path)
    shown = call("verify", path, "--optics").stdout
    for words in (
        "lower bound by counting",
        "lower bound by counting or certificate",
        "loops",
    ):
        assert shown.count(f"  {words}  ") == 1

    (slot,) = json.loads(call("verify", path, "--optics", "--json").stdout)["optics"]["slots"]
    for words, circuit in (
        ("worst insertion loss", slot["worst_loss_circuit"]),
        ("worst signal to crosstalk", slot["worst_crosstalk_circuit"]),
    ):
        (line,) = [line for line in shown.splitlines() if words in line]
        assert line.endswith(f"(slot 0, port {circuit[0]} to port {circuit[1]})")


def test_a_budget_that_fails_is_told_in_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    om.save(om.solve(om.Routing(om.Benes(4), [1, 0, 3, 2]), seed=0), path)
    for limit_db, code, verdict in ((0, 5, "FAILED"), (100, 0, "ok")):
        done = call("verify", path, "--optics", "--max-loss-db", limit_db, code=code)
        assert done.stdout.splitlines()[0].startswith(f"{path}: {verdict}")
        assert f"budget {verdict}: " in done.stdout


def test_an_infeasible_answer_is_told_as_such(tmp_path: Path) -> None:
    """Nothing is said of its optics, of causes that it does not have, and of cells without end."""
    mesh = om.Faulty(om.HexMesh(3, 3, ports=8), dead_cells=[3])
    problem = om.Routing(mesh, [4, 5, 6, 7, 0, 1, 2, 3])
    om.save(problem, tmp_path / "h.json")
    path = tmp_path / "s.json"
    solved = call("solve", tmp_path / "h.json", "--seed", 0, "-o", path, code=None).stdout
    assert "without faults it cannot be done either" in solved
    assert "causes minimal" not in solved

    shown = call("verify", path).stdout.splitlines()
    assert "  lower bound by counting or certificate  infinite" in shown
    for idle in ("cross", "least-leak"):
        options = ("--optics", "--idle", idle)
        refused("s.json: status infeasible: there is no schedule", "verify", path, *options)

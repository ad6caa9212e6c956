"""Yield studies: every verdict against enumeration, honest intervals, and the command."""

import itertools
import json
import math
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.fabrics import Fault, Faulty
from optmatch.plotting import heat_data, plot_heat
from optmatch.solvers.all_to_all.repair import Repair, Verdict
from optmatch.solvers.routing.columns import bound_jointly
from optmatch.solvers.routing.router import CellRouter
from optmatch.studies.all_to_all import CELL_FAULTS, study_yield, wilson
from optmatch.testing import brute_force
from tests.helpers.command import call_in, start
from tests.helpers.modes import examples

MESH = om.HexMesh(1, 2, ports=4)
"""Eleven cells: every state can be tried."""


def repair_of(problem: Any, *, fixed: bool = False) -> Repair:
    """Solve a problem, and take its schedule."""
    solution = om.solve(problem, seed=0)
    assert solution.schedule is not None
    return Repair(problem, solution.schedule, fixed=fixed)


def some_faults(cells: int, most: int) -> st.SearchStrategy[tuple[Fault, ...]]:
    """Draw faults of different cells."""
    fault = st.builds(Fault, st.sampled_from(CELL_FAULTS), st.integers(0, cells - 1))
    return st.lists(fault, min_size=1, max_size=most, unique_by=lambda f: f.place).map(
        lambda faults: tuple(sorted(faults))
    )


def accepted(problem: Any, faults: tuple[Fault, ...], verdict: Verdict) -> bool:
    """Let the verifier look at what a verdict says survives."""
    assert verdict.matchings is not None and verdict.states is not None
    schedule = om.Schedule(
        matchings=verdict.matchings,
        durations_s=np.ones(len(verdict.matchings)),
        cell_states=verdict.states,
    )
    return om.verify(om.AllToAll(Faulty.of(problem.fabric, faults)), schedule).ok


ALL = om.AllToAll(MESH)
REPAIR = repair_of(ALL)


@given(some_faults(MESH.n_cells, 3))
@settings(deadline=None, max_examples=25)
def test_verdicts_are_those_of_enumeration(faults: tuple[Fault, ...]) -> None:
    verdict = REPAIR.judge(faults)
    best = brute_force(om.AllToAll(Faulty.of(MESH, faults)))
    assert (verdict.outcome == "survived") <= (best is not None)
    assert (verdict.outcome == "failed") <= (best is None)
    if verdict.outcome == "survived":
        assert accepted(ALL, faults, verdict)
    else:
        assert set(verdict.causes) <= set(faults)


def test_verdicts_do_not_depend_on_the_order() -> None:
    """Routes found for some faults help with the next, and prices prove neither more nor less."""
    problem, rng = om.AllToAll(om.HexMesh(4, 4, ports=8)), np.random.default_rng(2)
    asked = []
    for _ in range(60):
        cells = rng.choice(problem.fabric.n_cells, 2, replace=False).tolist()
        asked.append(tuple(sorted(Fault(CELL_FAULTS[rng.integers(3)], cell) for cell in cells)))
    forth, back = repair_of(problem), repair_of(problem)
    there = [forth.judge(faults) for faults in asked]
    again = [back.judge(faults) for faults in reversed(asked)][::-1]
    assert [v.outcome for v in there] == [v.outcome for v in again]
    priced = [faults for faults, v in zip(asked, there, strict=True) if v.how == "prices"]
    assert len(priced) > 1
    for faults in priced:  # a linear programme of its own says the same
        broken = om.AllToAll(Faulty.of(problem.fabric, faults))
        router, clock = CellRouter(broken.fabric), om.Limits().start()
        assert bound_jointly(broken, router, np.inf, clock)[0] == np.inf


def test_prices_prove_something_about_dead_cells() -> None:
    mesh = om.HexMesh(2, 2, ports=5)
    repair = repair_of(om.AllToAll(mesh))
    found = (repair.judge((Fault("dead-cell", cell),)) for cell in range(mesh.n_cells))
    assert any(verdict.how == "prices" for verdict in found)


@pytest.mark.parametrize(
    "fabric",
    [om.HexMesh(4, 4, ports=7), om.HexMesh(3, 3, tx=4, rx=4), om.Benes(6)],
    ids=lambda fabric: str(fabric.type),
)
def test_repairs_verify_on_other_fabrics(fabric: om.Fabric) -> None:
    problem = om.AllToAll(fabric)
    judge, rng = repair_of(problem), np.random.default_rng(0)
    seen = set()
    for _ in range(examples(5, plain=5)):
        cells = rng.choice(fabric.n_cells, 2, replace=False).tolist()
        faults = tuple(sorted(Fault(CELL_FAULTS[rng.integers(3)], cell) for cell in cells))
        verdict = judge.judge(faults)
        seen.add(verdict.outcome)
        if verdict.outcome == "survived":
            assert accepted(problem, faults, verdict)
    assert "survived" in seen


@given(some_faults(MESH.n_cells, 2))
@settings(deadline=None, max_examples=25)
def test_fixed_matchings_are_judged_one_by_one(faults: tuple[Fault, ...]) -> None:
    """A matching survives exactly if some state of the cells that are left holds it."""
    matching = np.array([2, 3, 0, 1], dtype=np.int32)
    problem = om.Routing(MESH, matching)
    if brute_force(problem) is None:
        matching = np.array([1, 0, 3, 2], dtype=np.int32)
        problem = om.Routing(MESH, matching)
    verdict = repair_of(problem).judge(faults)
    possible = brute_force(om.Routing(Faulty.of(MESH, faults), matching)) is not None
    assert verdict.outcome == ("survived" if possible else "failed")


def test_what_nothing_quick_decides_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    matching = np.array([3, 2, 1, 0], dtype=np.int32)
    repair = repair_of(om.Routing(MESH, matching))
    monkeypatch.setattr(Repair, "_reroute_slot", lambda *_: None)
    monkeypatch.setattr(Faulty, "dead_pairs", lambda _: frozenset())
    seen = set()
    for kind, cell in itertools.product(CELL_FAULTS, range(MESH.n_cells)):
        faults = (Fault(kind, cell),)
        verdict = repair.judge(faults)
        seen.add((verdict.outcome, verdict.how))
        best = brute_force(om.Routing(Faulty.of(MESH, faults), matching))
        assert verdict.outcome == ("failed" if best is None else "survived")
    assert seen == {("failed", "search"), ("survived", "rerouted"), ("survived", "untouched")}


def test_fixed_slots_of_an_all_to_all_stay() -> None:
    solution = om.solve(ALL, seed=0)
    fixed, free = Repair(ALL, solution.schedule, fixed=True), REPAIR
    for kind, cell in itertools.product(CELL_FAULTS, range(MESH.n_cells)):
        verdict = fixed.judge((Fault(kind, cell),))
        if verdict.matchings is not None:
            assert np.array_equal(verdict.matchings, solution.schedule.matchings)
            assert accepted(ALL, (Fault(kind, cell),), verdict)
            assert free.judge((Fault(kind, cell),)).outcome == "survived"


def test_a_study_counts_what_the_repair_says() -> None:
    study = study_yield(ALL, 2, samples=60, seed=3)
    again = study_yield(om.solve(ALL, seed=3), 2, samples=60, seed=3)
    assert (study.survived, study.failed) == (again.survived, again.failed)
    assert np.array_equal(study.lost, again.lost)
    assert study.samples == 60 and study.broken.sum() == 120
    assert study.lost.sum() == 2 * study.failed and study.open_.sum() == 2 * study.unrepaired
    assert sum(study.how.values()) == 60 and study.limit is None
    for kind, cell in itertools.product(range(3), range(MESH.n_cells)):
        if study.broken[cell, kind]:
            alone = repair_of(ALL).judge((Fault(CELL_FAULTS[kind], cell),)).outcome
            assert study.alone[cell, kind] == {"survived": 1, "failed": 0}[alone]
            assert alone == "survived" or study.lost[cell, kind] == study.broken[cell, kind]


def test_a_stopped_study_is_the_first_part() -> None:
    """Ctrl-C returns what was done, and each sample is the same as in the whole study."""
    seen = 0

    def stop(event: object) -> None:
        nonlocal seen
        seen += 1
        if seen == 7:
            raise KeyboardInterrupt

    part = study_yield(ALL, samples=1000, seed=5, on_event=stop)
    assert part.limit is om.Limit.INTERRUPTED and part.samples == 7
    whole = study_yield(ALL, samples=7, seed=5)
    assert np.array_equal(part.broken, whole.broken) and part.survived == whole.survived
    late = study_yield(ALL, samples=1000, seed=5, time_limit_s=0.0)
    assert late.limit is om.Limit.TIME and late.interval == (0.0, 1.0)


def test_only_the_kinds_asked_for() -> None:
    study = study_yield(ALL, samples=20, seed=0, kinds=["dead-cell"])
    assert study.broken.shape == (MESH.n_cells, 1) and study.kinds == ("dead-cell",)


@given(st.integers(1, 60), st.data())
@settings(max_examples=50)
def test_wilson_solves_its_equation(samples: int, data: st.DataObject) -> None:
    """At each end the observed share is z standard deviations away, or the end is trivial."""
    successes, z = data.draw(st.integers(0, samples)), 1.959963984540054
    share = successes / samples
    low, high = wilson(successes, samples)
    assert 0 <= low <= share <= high <= 1
    for end in {low, high} - {0.0, 1.0}:
        assert math.isclose(abs(share - end), z * math.sqrt(end * (1 - end) / samples))


def test_intervals_cover_open_samples_both_ways() -> None:
    study = study_yield(ALL, samples=30, seed=0)
    from dataclasses import replace

    moved = replace(study, survived=study.survived - 5, unrepaired=5)
    assert moved.samples == 30
    assert moved.interval == (wilson(study.survived - 5, 30)[0], wilson(study.survived, 30)[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ALL, 12), "faults = 12: the fabric has 11 cells"),
        ((om.AllToAll(om.IdealSwitch(3)), 0), "a switch without cells"),
        ((om.AllToAll(Faulty(MESH, stuck_bar=[0])), 1), "has faults already"),
        ((MESH, 1), "HexMesh: a solution, or an all-to-all"),
        ((om.AllToAll(om.SquareMesh(1, 1)), 1), "status infeasible"),
    ],
)
def test_what_cannot_be_studied(arguments: tuple[Any, int], message: str) -> None:
    with pytest.raises(om.InputError, match=re.escape(message)):
        study_yield(*arguments, samples=1, seed=0)
    with pytest.raises(om.InputError, match="'dead-port': one of stuck-bar"):
        study_yield(ALL, kinds=["dead-port"])


def test_heat_of_cells() -> None:
    """Every cell has its place and figure; unknown ones are drawn apart."""
    values = np.array([0.5, np.nan, *range(9)])
    data = heat_data(MESH, values)
    assert data.bodies.shape == (11, 2, 2) and np.isnan(data.values[1])
    ax = plot_heat(MESH, values, label="share")
    sizes = {c.get_label(): len(c.get_paths()) for c in ax.collections}
    assert sizes["cells"] == 10 and sizes["unknown"] == 1
    with pytest.raises(om.InputError, match="one for each of 11 cells"):
        heat_data(MESH, values[:3])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with a problem and its schedule."""
    om.save(ALL, tmp_path / "all.json")
    om.save(om.solve(ALL, seed=0), tmp_path / "all.schedule.json")
    return tmp_path


def test_command_writes_tables_and_a_picture(folder: Path) -> None:
    """The JSON object, the table in both forms, and a heat map agree with the study."""
    options = ["-k", "2", "--samples", "25", "--seed", "4", "-q"]
    done = call_in(
        folder, "faults", "all.schedule.json", *options, "--json", "-o", "x.csv", "--plot", "x.svg"
    )
    tree = json.loads(done.stdout)
    study = study_yield(om.solve(ALL, seed=0), 2, samples=25, seed=4)
    assert tree["format"] == "optmatch/yield/1"
    assert (tree["survived"], tree["failed"]) == (study.survived, study.failed)
    assert tree["cells"][0]["cell"] == study.ranking()[0]
    rows = [row.split(",") for row in (folder / "x.csv").read_text().splitlines()[1:]]
    assert sum(int(row[2]) for row in rows) == 50
    assert "share of samples lost" in (folder / "x.svg").read_text() or done.stderr.count(
        "written"
    )
    done = call_in(folder, "faults", "all.json", *options, "-o", "x.json")
    assert "critical cells" in done.stdout
    written = json.loads((folder / "x.json").read_text())
    assert written["samples"] == 25 and written["cells"] == tree["cells"]


def test_command_refuses_before_it_works(folder: Path) -> None:
    call_in(folder, "faults", "all.json", "-o", "all.json", code=2)
    done = call_in(folder, "faults", "all.json", "-o", "x.txt", code=2)
    assert "has to end in .json, .csv" in done.stderr
    call_in(folder, "faults", "absent.json", code=2)
    call_in(folder, "faults", "all.json", "-k", "99", "--samples", "1", code=2)
    assert {path.name for path in folder.iterdir()} == {"all.json", "all.schedule.json"}


def test_ctrl_c_keeps_what_was_done(folder: Path) -> None:
    asked = ["faults", "all.json", "--samples", "100000000", "-o", "part.json", "--json"]
    with start(*asked, cwd=folder) as running:
        assert running.stderr is not None
        running.stderr.readline()  # progress
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    tree = json.loads(output)
    assert tree["limit"] == "interrupted" and tree["samples"] > 0
    assert json.loads((folder / "part.json").read_text())["samples"] == tree["samples"]

"""The library: each listed file exists, and only a verified answer changes the index."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import optmatch as om
from optmatch.model import InputError, Status, VerificationError
from optmatch.problems import PROBLEMS
from optmatch.sweeps.library import Library
from optmatch.sweeps.store import Store
from optmatch.sweeps.sweep import run_task
from tests.helpers.benchmarks import load_benchmark
from tests.helpers.command import INSTANCES, call, refused

NAME = "all-to-all/hex-4x4-8"
ROOT = INSTANCES.parent


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """Return a copy with one problem of which nothing is known; commands see it too."""
    (tmp_path / "all-to-all").mkdir()
    shutil.copy(INSTANCES / f"{NAME}.json", tmp_path / "all-to-all")
    index = json.loads((INSTANCES / "index.json").read_text())
    index["instances"] = [
        {**entry, "best": None} for entry in index["instances"] if entry["name"] == NAME
    ]
    (tmp_path / "index.json").write_text(json.dumps(index))
    monkeypatch.setenv("OPTMATCH_INSTANCES", str(tmp_path))
    return Library(tmp_path)


def test_the_index_is_of_the_files() -> None:
    library = Library()
    files = {
        path.relative_to(INSTANCES).with_suffix("").as_posix()
        for path in INSTANCES.rglob("*.json")
    }
    assert {entry.name for entry in library} == files - {"index"}
    assert {entry.kind for entry in library} == set(PROBLEMS)
    assert len(library) >= 60
    for entry in library:
        assert library.problem(entry.name).kind == entry.kind
        assert entry.question and entry.source


def test_what_is_known_does_not_contradict_itself() -> None:
    """A bound is not above the value, and equals it where that is optimal."""
    for entry in Library():
        best = entry.best
        assert best is not None, entry.name
        assert (best.objective is None) == (best.status in ("infeasible", "unknown")), entry.name
        if best.objective is not None and best.lower_bound is not None:
            if best.status == "optimal":
                assert best.lower_bound == pytest.approx(best.objective)
            else:
                assert best.lower_bound <= best.objective


def test_the_page_is_the_table() -> None:
    page = (ROOT / "docs" / "instances.md").read_text("utf-8")
    assert page.endswith(Library().table())


def test_only_a_better_answer_changes_the_index(library: Library) -> None:
    problem = library.problem(NAME)
    good = om.solve(problem, seed=0)
    weak = replace(good, status=Status.FEASIBLE, limit=om.Limit.TIME, lower_bound=-math.inf)
    entry, better = library.submit(weak)
    assert better and entry.best is not None
    assert (entry.best.objective, entry.best.lower_bound) == (good.objective, None)
    assert not library.submit(weak)[1]
    entry, better = library.submit(good)
    assert better and entry.best is not None
    assert (entry.best.status, entry.best.lower_bound) == ("optimal", good.objective)
    assert not library.submit(good)[1]
    assert not library.submit(weak)[1]
    wrong = replace(good, objective=273.0, lower_bound=273.0)
    with pytest.raises(VerificationError, match="lower_bound"):
        library.submit(wrong)
    assert library.entry(NAME) == entry
    other = om.solve(om.AllToAll(om.HexMesh(3, 3, ports=4)), seed=0)
    with pytest.raises(InputError, match="not in the library"):
        library.submit(other)


def test_an_answer_that_meets_a_known_bound_is_optimal(library: Library) -> None:
    """It comes with a bound of its own that is worse; the known one keeps its proof."""
    good = om.solve(library.problem(NAME), seed=0)
    assert good.objective is not None
    known = {
        "status": "feasible", "objective": good.objective + 1, "lower_bound": good.objective,
        "proof": "search", "method": "greedy", "seed": 0, "time_s": 1.0, "bound_by": "ilp",
    }  # fmt: skip
    path = library.folder / "index.json"
    index = json.loads(path.read_text())
    index["instances"][0]["best"] = known
    path.write_text(json.dumps(index))
    weak = replace(good, status=Status.FEASIBLE, limit=om.Limit.TIME, lower_bound=-math.inf)
    best = Library(library.folder).submit(weak)[0].best
    assert best is not None
    assert (best.objective, best.lower_bound) == (good.objective, good.objective)
    assert (best.status, best.bound_by, best.proof) == ("optimal", "ilp", "search")


def test_answers_are_handed_in_by_the_script(
    library: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submit = load_benchmark("submit").main
    row = run_task(om.Task(library.problem(NAME)))
    with Store(tmp_path / "a.sqlite") as store:
        store.add(row, library.problem(NAME))
    om.save(row.solution(library.problem(NAME)), tmp_path / "a.schedule.json")
    for file, write in (("a.schedule.json", ()), ("a.sqlite", ("--write",))):
        assert submit([str(tmp_path / file), *write]) == 0
        assert f"{NAME}: better: 274" in capsys.readouterr().out
    assert submit([str(tmp_path / "a.sqlite")]) == 0
    assert "not better than: 274 cells, optimal" in capsys.readouterr().out
    tree = json.loads((tmp_path / "a.schedule.json").read_text())
    (tmp_path / "b.schedule.json").write_text(
        json.dumps(
            {**tree, "objective": 273.0, "lower_bound": 1.0, "status": "feasible", "limit": "time"}
        )
    )
    index = (library.folder / "index.json").read_bytes()
    assert submit([str(tmp_path / "b.schedule.json"), "--write"]) == 5
    assert submit([str(library.path(NAME)), "--write"]) == 2
    assert (library.folder / "index.json").read_bytes() == index


def test_instances_are_shown() -> None:
    done = call("instances", "list", "--kind", "routing")
    assert "routing/hex-9x9-32-random-1" in done.stdout and "all-to-all" not in done.stdout
    content = json.loads(call("instances", "show", NAME, "--json").stdout)
    assert content["best"]["objective"] == 274.0
    path = Path(call("instances", "path", NAME).stdout.strip())
    assert path == INSTANCES / f"{NAME}.json"
    refused("perhaps 'all-to-all/hex-4x4-8'", "instances", "path", NAME + "8")
    call("instances", "list", "--kind", "x", code=2)


def test_two_who_write_lose_nothing(library: Library) -> None:
    """What somebody else has written since the index was read stays, if it is better."""
    good = om.solve(library.problem(NAME), seed=0)
    weak = replace(good, status=Status.FEASIBLE, limit=om.Limit.TIME, lower_bound=-math.inf)
    other = Library(library.folder)
    assert library.submit(weak)[1] and other.submit(good)[1]
    other.write()
    library.write()
    assert Library(library.folder).entry(NAME) == other.entry(NAME) == library.entry(NAME)
    best = library.entry(NAME).best
    assert best is not None and best.status == "optimal"

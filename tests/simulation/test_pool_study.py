"""The study of a shared pool in benchmarks/: its bound, its tables, and the script."""

import functools
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from optmatch.model import FormatError, InputError, Tick
from optmatch.plotting.studies import draw_panels
from optmatch.simulation.sharing.pool import Pool, draw_devices, draw_workload, pool_of
from optmatch.simulation.sharing.replay import simulate_pool
from tests.helpers.benchmarks import ROOT, load_benchmark
from tests.helpers.pools import at_random, first_come, pools

_study = load_benchmark("pool_study")
COLUMNS = _study.COLUMNS
POLICIES = _study.POLICIES
VARIED = _study.VARIED
list_panels = _study.list_panels
make_policy = _study.make_policy
read_trace = _study.read_trace
study_sharing = _study.study_sharing
bound_completions = load_benchmark("pool_bounds").bound_completions

SMALL: dict[str, Any] = {"jobs": 6, "scale": 1000.0, "runs": 2}


@given(pools())
def test_no_policy_beats_the_bound(pool: Pool) -> None:
    for policy in (first_come, at_random):
        run = simulate_pool(pool, policy, over_selection=2.0, enough=0.8, until_s=90.0)
        bound = bound_completions(pool, 90.0)
        done = ~np.isnan(run.completion_s)
        assert (bound.alone_s[done] <= run.completion_s[done]).all()
        if done.all():
            assert bound.mean_s <= run.completion_s.mean() + 1e-9
            assert bound.mean_s == bound_completions(pool, run.end_s).mean_s


def least_sum(ends_s: list[float], asked_s: list[float], work: list[int]) -> float:
    """Return the least sum of completions if results are dealt out in all possible ways."""

    @functools.cache
    def rest(place: int, left: tuple[int, ...]) -> float:
        if not any(left):
            return 0.0
        if place == len(ends_s):
            return math.inf
        best = rest(place + 1, left)
        for job, wants in enumerate(left):
            if wants and asked_s[job] <= ends_s[place]:
                after = (*left[:job], wants - 1, *left[job + 1 :])
                done = 0.0 if wants > 1 else ends_s[place] - asked_s[job]
                best = min(best, done + rest(place + 1, after))
        return best

    return rest(0, tuple(work))


@pytest.mark.parametrize("seed", range(8))
def test_shared_results_are_dealt_out_best(seed: int) -> None:
    """Where all jobs may have all results, and each is quick alone, the bound is the optimum."""
    rng = np.random.default_rng(seed)
    arrival_s = np.sort(rng.uniform(4, 20, 9))
    pool = Pool(
        arrival_s=arrival_s,
        departure_s=arrival_s + 50,
        response_s=np.full(9, 0.001),
        class_of=np.zeros(9, np.int32),
        eligible=np.ones((1, 3), np.int8),
        tier=np.zeros(1, np.int32),
        asked_s=rng.uniform(0, 4, 3),  # before the first device
        demand=rng.integers(1, 4, 3),
        rounds=np.ones(3, np.int64),
        deadline_s=np.full(3, 99.0),
    )
    ends_s = (pool.arrival_s + pool.response_s).tolist()
    found = bound_completions(pool, 99.0, enough=1.0)
    best = least_sum(ends_s, pool.asked_s.tolist(), pool.demand.tolist())
    assert 3 * found.mean_s == pytest.approx(best)


def test_tables_and_picture() -> None:
    """Each mix and policy has a row; ratios are paired; the same seed gives the same tables."""
    study = study_sharing(mixes=["low", "even"], policies=["irs", "scarce"], **SMALL)
    rows = study.tables["completion"]
    assert [(row["mix"], row["policy"]) for row in rows] == [
        (mix, policy) for mix in ("low", "even") for policy in ("random", "irs", "scarce")
    ]
    for row in rows:
        assert row["of_bound"] >= 1
        assert row["completion_s"] <= row["completion_p99_s"]
    assert all(row["ratio"] == 1 for row in rows if row["policy"] == "random")
    told: list[Any] = []
    again = study_sharing(
        mixes=["low", "even"], policies=["irs", "scarce"], on_event=told.append, **SMALL
    )
    assert told[-1] == Tick("pools", 4, 4) and told[0] == Tick("pools", 0, 4)
    assert again.tables["completion"] == rows
    first, second = list_panels(rows)
    assert list(first.series) == list(second.series) == ["random", "irs", "scarce"]
    assert first.labels == ["low", "even"] and first.series["random"] == [1, 1]
    assert len(draw_panels([first, second]).axes) == 2


def test_what_varies_is_a_column_and_leaves_the_rest_as_it_was() -> None:
    """Each cell of the map is the study of its own values, on the same devices and jobs."""
    names: dict[str, Any] = {"mixes": ["low"], "policies": ["fifo"], **SMALL | {"runs": 1}}
    rows = study_sharing(vary=["baseline", "response"], **names).tables["completion"]
    assert [(row["response"], row["baseline"]) for row in rows[::2]] == [
        (response, baseline) for response in (0.5, 1.0) for baseline in VARIED["baseline"]
    ]
    plain = study_sharing(**names).tables["completion"]
    known = [row for row in rows if row["response"] == 1 and row["baseline"] == "requests"]
    assert [{name: row[name] for name in plain[0]} for row in known] == plain
    alike = {(row["response"], row["completion_s"]) for row in rows if row["policy"] == "fifo"}
    assert len(alike) == 2  # a policy does not depend on what it is compared with
    base = {row["baseline"]: row["completion_s"] for row in rows[6::2]}
    assert base["tested"] > max(base["devices"], base["requests"])  # most devices are lost
    more = study_sharing(vary=["supply"], **names).tables["completion"]
    assert [row["supply"] for row in more[::2]] == list(VARIED["supply"])
    assert len(list_panels(more)[0].labels) == 4


def test_runs_do_not_depend_on_the_others() -> None:
    pool = pool_of(
        draw_workload("small", np.random.SeedSequence(3).spawn(2)[0], jobs=6, scale=1000)
    )
    alone = study_sharing(mixes=["small"], policies=["fifo"], seed=3, **SMALL | {"runs": 1})
    fifo = simulate_pool(pool, make_policy("fifo", pool))
    assert alone.tables["completion"][1]["completion_s"] == fifo.completion_s.mean()


def write_trace(path: Path, end: int | None = None) -> Path:
    """Write 400 devices as CSV, or the first bytes of it."""
    (devices, response_s, _) = draw_devices(400, 60.0, np.random.default_rng(0))
    columns = [devices.arrivals_s, devices.departures_s, response_s, *devices.public]
    rows = [",".join(map(repr, row)) for row in zip(*(c.tolist() for c in columns), strict=True)]
    path.write_bytes("\n".join([",".join(COLUMNS), *rows, ""]).encode()[:end])
    return path


def test_trace(tmp_path: Path) -> None:
    """A trace gives back its devices, as CSV and as Parquet, and the study runs on it."""
    devices, response_s, _ = draw_devices(400, 60.0, np.random.default_rng(0))
    trace = read_trace(write_trace(tmp_path / "t.csv"))
    assert trace.devices == devices
    assert trace.response_s.tolist() == response_s.tolist()
    assert trace.period_s == pytest.approx(devices.arrivals_s.max())
    csv, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(csv.read_csv(tmp_path / "t.csv"), tmp_path / "t.parquet")
    assert read_trace(tmp_path / "t.parquet").devices == devices
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "t.parquet").read_bytes()[:-9])
    with pytest.raises(FormatError, match=r"cut\.parquet"):
        read_trace(tmp_path / "cut.parquet")
    study = study_sharing(mixes=["low"], policies=["fifo"], trace=trace, **SMALL)
    assert study.tables["completion"][0]["runs"] == 2


@pytest.mark.parametrize(
    ("end", "message"), [(-1, "cut off"), (-60, "cut off"), (30, "cut off"), (0, "cut off")]
)
def test_truncated_trace(tmp_path: Path, end: int, message: str) -> None:
    """A trace that is cut off anywhere is refused by the name of its file."""
    path = write_trace(tmp_path / "t.csv", end)
    with pytest.raises(FormatError, match=message) as refused:
        read_trace(path)
    assert "t.csv" in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cpu", "gpu", "cpu"),
        (",2.0,", ",two,", "two"),
        (",2.0,", ",", "columns"),
        (",2.0,", ",nan,", "finite"),
    ],
)
def test_bad_trace(tmp_path: Path, old: str, new: str, message: str) -> None:
    """A column that is missing, and a value that is no number, are named."""
    path = write_trace(tmp_path / "t.csv")
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(FormatError, match=message):
        read_trace(path)


@pytest.mark.parametrize("name", POLICIES)
def test_all_policies_finish(name: str) -> None:
    """Under each policy all jobs are done, with the devices of the trace."""
    pool = pool_of(draw_workload("even", 1, jobs=6, scale=1000))
    run = simulate_pool(pool, make_policy(name, pool))
    assert not np.isnan(run.completion_s).any()
    assert 0 < run.utilisation < 1 and run.throughput_per_s > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mixes": ["medium"]}, "mix 'medium': one of even"),
        ({"policies": ["lottery"]}, "policy 'lottery': one of random"),
        ({"scale": 0.0}, "scale = 0: must be > 0"),
        ({"runs": 0}, "runs"),
        ({"vary": ["supply", "weather"]}, "vary 'weather': one of supply, response"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study_sharing(**SMALL | change)


def test_script(tmp_path: Path) -> None:
    """The script prints both tables, and draws them."""
    words = "--mix low --policy fifo --jobs 3 --scale 2000 --runs 1 --vary response,baseline"
    script = ROOT / "benchmarks" / "pool_study.py"
    picture = tmp_path / "p.png"
    told = subprocess.run(
        [sys.executable, script, *words.split(), "-o", picture],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert told.stdout.count("policy fifo") == 6 + 1
    assert picture.stat().st_size > 1000

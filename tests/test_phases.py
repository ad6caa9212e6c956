"""Lists of phases and recordings: the same step as written, and flaws by line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optmatch as om
from optmatch.io import loads
from optmatch.io.chakra_options import TraceOptions
from optmatch.io.chakra_write import step_traces
from optmatch.io.groups import groups_text
from optmatch.io.phases import read_phase_list
from optmatch.io.recordings import (
    PhaseRecord,
    count_switches,
    phases_of_step,
    read_recording,
    windows_s,
)
from optmatch.problems import RailJob
from optmatch.problems.rail_step import OPERATIONS

GROUPS = {"d0": (0, 1), "d1": (2, 3), "p0": (0, 2), "p1": (1, 3)}
TABLE = """rank, group, operation, count, size_bytes, compute_s, peer
0, d0, all-reduce, 3, 1e9, 0.5,
1, d0, all-reduce, 3, 1e9, 0.25,
0, p0, send, , 8, , 2
1, p1, send, , 8, , 3
2, p0, recv, , 8, , 0
3, p1, recv, , 8, , 1
2, d1, all-gather, 1, 16, ,
3, d1, all-gather, 1, 16, ,
3, , compute, , , 1.5,
"""
RECORDING = """Node: n1, Rank: 0, Tid: 7
PP start_backend: 1 start_idx: 0 end_backend: 1 end_idx: 1 len: 2
DP start_backend: 5 start_idx: 0 end_backend: 5 end_idx: 16 len: 17
""" + "".join(
    f"""PP start_backend: 1 start_idx: {7 * k} end_backend: 1 end_idx: {7 * k + 4} len: 5
DP start_backend: 5 start_idx: {86 * k} end_backend: 5 end_idx: {86 * k + 17} len: 18
PP start_backend: 1 start_idx: {7 * k + 5} end_backend: 1 end_idx: {7 * k + 5} len: 1
DP start_backend: 6 start_idx: {3 * k} end_backend: 5 end_idx: {86 * k + 34} len: 20
PP start_backend: 1 start_idx: {7 * k + 6} end_backend: 1 end_idx: {7 * k + 6} len: 1
DP start_backend: 5 start_idx: {86 * k + 35} end_backend: 5 end_idx: {86 * k + 51} len: 17
"""
    for k in range(4)
)
"""Four steps of Llama-3 on 16 GPUs in the form of the published recordings."""


def write(folder: Path, name: str, text: str) -> Path:
    """Write a file."""
    path = folder / name
    path.write_text(text)
    return path


def test_a_table_of_phases(tmp_path: Path) -> None:
    """Lines of a rank in their order; computation comes before what it is named with."""
    step = read_phase_list(write(tmp_path, "step.csv", TABLE), GROUPS)
    named = [
        (int(rank), OPERATIONS[kind], float(size), float(seconds))
        for rank, kind, size, seconds in zip(
            step.rank, step.kind, step.size_bytes, step.duration_s, strict=True
        )
    ]
    assert named == [
        (0, "compute", 0.0, 0.5),
        *[(0, "all-reduce", 1e9, 0.0)] * 3,
        (0, "send", 8.0, 0.0),
        (1, "compute", 0.0, 0.25),
        *[(1, "all-reduce", 1e9, 0.0)] * 3,
        (1, "send", 8.0, 0.0),
        (2, "recv", 8.0, 0.0),
        (2, "all-gather", 16.0, 0.0),
        (3, "recv", 8.0, 0.0),
        (3, "all-gather", 16.0, 0.0),
        (3, "compute", 0.0, 1.5),
    ]
    assert step.dep.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 10, 12, 13]
    dimensions = {group.name: (group.dimension, group.rail) for group in step.groups}
    assert dimensions == {"d0": ("dp", 0), "d1": ("dp", 0), "p0": ("pp", 0), "p1": ("pp", 0)}


def test_a_list_of_objects_is_the_same_step(tmp_path: Path) -> None:
    """JSON and CSV say the same; a job of it has the phases one reads off."""
    rows = [line.split(", ") for line in TABLE.replace(",\n", ", \n").splitlines()]
    entries: list[dict[str, Any]] = []
    for row in rows[1:]:
        given = {key: value for key, value in zip(rows[0], row, strict=True) if value}
        numbers = {"rank", "count", "size_bytes", "compute_s", "peer"} & given.keys()
        entries.append({**given, **{key: float(given[key]) for key in numbers}})
    from_json = read_phase_list(write(tmp_path, "s.json", json.dumps(entries)), GROUPS)
    step = read_phase_list(write(tmp_path, "s.csv", TABLE), GROUPS)
    assert from_json == step
    job = RailJob(n_gpus=4, gpus_per_server=1, recorded=step)
    seen = [(phase.ranks, phase.dimension) for phase in job.phases()]
    assert seen == [((0, 1), "dp"), ((0, 1), "pp"), ((2, 3), "pp"), ((2, 3), "dp")]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2**40)), max_size=6))
def test_counts_are_kept(
    tmp_path_factory: pytest.TempPathFactory, phases: list[tuple[int, int]]
) -> None:
    """As many operations as the list says, with their sizes, at each rank."""
    rows = [
        {"rank": rank, "group": "g", "operation": "all-reduce", "count": n, "size_bytes": size}
        for rank in (0, 1)
        for n, size in phases
    ]
    path = write(tmp_path_factory.mktemp("list"), "s.json", json.dumps(rows))
    step = read_phase_list(path, {"g": (1, 0)}, TraceOptions(dimensions={"g": "cp"}))
    wanted = [float(size) for n, size in phases for _ in range(n)]
    assert step.size_bytes.tolist() == wanted * 2
    assert step.match.tolist() == list(range(len(wanted))) * 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.txt", "", "phases are in .csv or .json"),
        ("s.csv", "rank, groop\n", "line 1: column 'groop': known are rank, group"),
        ("s.csv", "rank,operation\n0,sleep\n", "line 2: operation = 'sleep': one of compute"),
        ("s.csv", "rank,operation,compute_s\nx,compute,1\n", "line 2: rank = 'x': a whole number"),
        ("s.csv", "rank,operation\n0,compute\n", "line 2: compute_s = None: a number >= 0"),
        ("s.csv", "rank,operation,size_bytes\n0,all-reduce,1\n", "line 2: all-reduce without a g"),
        ("s.csv", "rank,operation,size_bytes\n0,send,1\n", "line 2: peer = None: a whole number"),
        (
            "s.csv",
            "rank,group,operation,size_bytes\n0,d0,all-reduce,1\n",
            "line 2: group d0: rank 1",
        ),
        (
            "s.csv",
            "rank,group,operation,size_bytes\n0,x,all-reduce,1\n",
            "line 2: group x: its me",
        ),
        (
            "s.csv",
            "rank,group,operation,size_bytes\n0,d1,all-reduce,1\n",
            "line 2: rank 0 is no m",
        ),
        ("s.csv", "rank,operation,size_bytes,peer\n0,send,1,2\n", "line 2: rank 2 never receives"),
        ("s.csv", b"\xff", "a file is UTF-8 text"),
        ("s.json", "{}", "a list of phases is expected"),
        ("s.json", "[3]", "/0: 3: an object is expected"),
        ("s.json", '[{"size": 3}]', "/0: key 'size': known are rank"),
        ("s.json", '[{"rank": true, "operation": "compute", "compute_s": 1}]', "rank = True"),
        ("s.json", '[{"rank": 0, "operation": "compute", "compute_s": -1}]', "compute_s = -1"),
        ("s.json", '[{"rank": 0.5, "operation": "compute", "compute_s": 1}]', "rank = 0.5"),
    ],
)
def test_flaws_of_lists_are_named(
    tmp_path: Path, name: str, text: str | bytes, message: str
) -> None:
    """File, line, and what does not fit."""
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(om.FormatError, match=message) as caught:
        read_phase_list(path, GROUPS)
    assert str(path) in str(caught.value)
    with pytest.raises(om.FormatError, match="cannot be read"):
        read_phase_list(tmp_path / "none.csv", GROUPS)


def test_a_recording_of_llama(tmp_path: Path) -> None:
    """Phases PP5 DP18 PP1 DP20 PP1 DP17 repeat: six reconfigurations for each rank and step."""
    records = read_recording(write(tmp_path, "rank0.txt", RECORDING))
    assert records[2] == PhaseRecord("PP", 5, 1, 0, 1, 4)
    step = phases_of_step(records)
    shapes = [f"{record.dimension}{record.n_operations}" for record in step]
    assert len(step) == 6
    at = shapes.index("PP5")
    assert shapes[at:] + shapes[:at] == ["PP5", "DP18", "PP1", "DP20", "PP1", "DP17"]
    assert count_switches(step) == 6
    assert sum(record.n_operations for record in step if record.dimension == "PP") == 7
    assert np.isnan(windows_s(records)).all()


def test_times_of_a_recording(tmp_path: Path) -> None:
    """Milliseconds in the file; a window is what lies between two phases."""
    line = "{} start_backend: 1 start_idx: 0 end_backend: 5 end_idx: 0 len: 1, "
    text = (line + "start_time: 1000.5, end_time: 2000\n").format("PP")
    text += (line + "start_time: 2250, end_time: 2300.25\n").format("DP")
    records = read_recording(write(tmp_path, "rank0.txt", text))
    assert (records[0].start_s, records[1].end_s) == (1.0005, 2.30025)
    assert windows_s(records).tolist() == [0.25]


def test_flaws_of_recordings_are_named(tmp_path: Path) -> None:
    """File and line; a recording in which nothing repeats has no step."""
    path = write(tmp_path, "rank0.txt", RECORDING + "PP start_backend: 1\n")
    with pytest.raises(om.FormatError, match=r"rank0\.txt:28: 'PP start_backend: 1': no phase"):
        read_recording(path)
    with pytest.raises(om.FormatError, match="cannot be read"):
        read_recording(tmp_path / "none.txt")
    once = [PhaseRecord("PP", n, 0, 0, 0, 0) for n in range(5)]
    with pytest.raises(om.FormatError, match="5 phases, in which no step repeats"):
        phases_of_step(once)


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `optmatch generate rail-trace` in a process."""
    command = [sys.executable, "-m", "optmatch", "generate", "rail-trace", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.slow
def test_the_command_makes_a_job(tmp_path: Path) -> None:
    """Of a list of phases and of Chakra traces; they are the same job."""
    write(tmp_path, "groups.json", groups_text(GROUPS))
    step = read_phase_list(write(tmp_path, "step.csv", TABLE), GROUPS)
    for rank, content in enumerate(step_traces(step)):
        (tmp_path / f"run.{rank}.et").write_bytes(content)
    shared = ("--groups", "groups.json", "--delay", "0.25", "--dimension", "d1=cp")
    done = run(tmp_path, "--phases", "step.csv", *shared, "-o", "listed.json")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    done = run(tmp_path, "--chakra", "run", *shared)
    assert done.returncode == 0, done.stderr
    job = om.load(tmp_path / "listed.json")
    assert isinstance(job, RailJob)
    assert (job.delay_s, job.n_gpus) == (0.25, 4)
    assert [g.dimension for g in job.groups()] == ["dp", "cp", "pp", "pp"]
    assert loads(done.stdout) == job


@pytest.mark.slow
def test_bad_input_of_the_command(tmp_path: Path) -> None:
    """Exit code 2, one line with file and line, rank or group; nothing is written."""
    write(tmp_path, "groups.json", groups_text({"d0": (0, 1)}))
    write(tmp_path, "step.csv", "rank,group,operation,size_bytes\n3,d0,all-reduce,1\n")
    (tmp_path / "run.0.et").write_bytes(b"\x07\x0a\x05")
    for options, message in (
        (["--phases", "step.csv", "--groups", "groups.json"], "line 2: rank 3 is no member of gr"),
        (["--chakra", "run"], "run.0.et: byte 0: node number 0 is cut off"),
        (["--chakra", "walk"], "no file name.RANK.et"),
        (["--chakra", "run", "--dimension", "x=up"], "'x=up': NAME=DIMENSION, one of dp"),
        (["--chakra", "run", "--phases", "step.csv"], "either --chakra or --phases"),
    ):
        done = run(tmp_path, *options, "-o", "job.json")
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr, done.stderr
    assert not (tmp_path / "job.json").exists()

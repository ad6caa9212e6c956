"""Lists of phases and recordings: the same step as written, and flaws by line."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import optmatch as om
from optmatch.io import loads
from optmatch.io.rails.chakra import TraceOptions, groups_text, step_traces
from optmatch.io.rails.phases import (
    PhaseRecord,
    phases_of_step,
    read_phase_list,
    read_recorded_step,
    read_recording,
    windows_s,
)
from optmatch.problems import RailJob
from optmatch.problems.rails.training.step import OPERATIONS
from optmatch.simulation.rails.replay import simulate_rails
from tests.helpers.command import call_in, process, put
from tests.helpers.rails import change_job, make_job

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


def recording(stage: int = 0, steps: int = 4) -> str:
    """Write the phases that a rank of Llama-3 on 16 GPUs has seen, as in the published recordings.

    Before the steps that repeat the first stage warms up longer; at the end it has more small
    collectives of its second communicator, 6.
    """
    warm = [("PP", 2), ("DP", 17)] * 2 if stage == 0 else [("PP", 4), ("DP", 17)]
    middle = ("DP", 20 if stage == 0 else 3)
    step = [("PP", 5), ("DP", 18), ("PP", 1), middle, ("PP", 1), ("DP", 17)]
    lines, done = ["Node: n1, Rank: 0, Tid: 7"], {"PP": 0, "DP": 0}
    for name, length in [*warm, ("PP", 1), ("DP", 17), *step * steps]:
        begin, backend = done[name], 1 if name == "PP" else 5
        start = 6 if length in (3, 20) else backend
        done[name] += length
        lines.append(
            f"{name} start_backend: {start} start_idx: {begin} end_backend: {backend}"
            f" end_idx: {done[name] - 1} len: {length}"
        )
    return "\n".join(lines) + "\n"


RECORDING = recording()
LLAMA = {
    **{f"dp.{s}.{g}": (8 * s + g, 8 * s + 4 + g) for s in range(2) for g in range(4)},
    **{f"pp.{d}.{g}": (4 * d + g, 8 + 4 * d + g) for d in range(2) for g in range(4)},
}
"""Its groups: two replicas of two stages, a server of four GPUs for each."""


def test_a_table_of_phases(tmp_path: Path) -> None:
    step = read_phase_list(put(tmp_path, "step.csv", TABLE), GROUPS)
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


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2**40)), max_size=6))
def test_counts_are_kept(
    tmp_path_factory: pytest.TempPathFactory, phases: list[tuple[int, int]]
) -> None:
    rows = [
        {"rank": rank, "group": "g", "operation": "all-reduce", "count": n, "size_bytes": size}
        for rank in (0, 1)
        for n, size in phases
    ]
    path = put(tmp_path_factory.mktemp("list"), "s.json", json.dumps(rows))
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
        (
            "s.csv",
            "rank,group,operation,size_bytes,count\n0,d0,all-reduce,1,1e12\n",
            "line 2: 1000000000000 operations: at most 1000000",
        ),
        ("s.csv", b"\xff", "a file is UTF-8 text"),
        ("s.json", "{}", "/: a list of objects is expected"),
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
    path = put(tmp_path, name, text)
    with pytest.raises(om.FormatError, match=message) as caught:
        read_phase_list(path, GROUPS)
    assert str(path) in str(caught.value)
    with pytest.raises(om.FormatError, match="cannot be read"):
        read_phase_list(tmp_path / "none.csv", GROUPS)


def test_times_of_a_recording(tmp_path: Path) -> None:
    line = "{} start_backend: 1 start_idx: 0 end_backend: 5 end_idx: 0 len: 1, "
    text = (line + "start_time: 1000.5, end_time: 2000\n").format("PP")
    text += (line + "start_time: 2250, end_time: 2300.25\n").format("DP")
    records = read_recording(put(tmp_path, "rank0.txt", text))
    assert (records[0].start_s, records[1].end_s) == (1.0005, 2.30025)
    assert windows_s(records).tolist() == [0.25]


def test_flaws_of_recordings_are_named(tmp_path: Path) -> None:
    path = put(tmp_path, "rank0.txt", RECORDING + "PP start_backend: 1\n")
    with pytest.raises(om.FormatError, match=r"rank0\.txt:32: 'PP start_backend: 1': no phase"):
        read_recording(path)
    line = RECORDING.splitlines()[1] + ", start_time: 1.2.3, end_time: 4"
    with pytest.raises(om.FormatError, match="no phase"):
        read_recording(put(tmp_path, "times.txt", line))
    with pytest.raises(om.FormatError, match="cannot be read"):
        read_recording(tmp_path / "none.txt")
    once = [PhaseRecord("PP", n, 0) for n in range(5)]
    with pytest.raises(om.FormatError, match="5 phases, in which no step repeats"):
        phases_of_step(once)


def record_llama(folder: Path, **changes: str) -> Path:
    """Write the recordings of all 16 ranks, some of them otherwise."""
    for server in range(4):
        for place in range(4):
            name = f"run_{server}_rank{place}"
            put(folder, f"{name}.txt", changes.get(name, recording(server // 2)))
    put(folder, "groups.json", groups_text(LLAMA))
    return folder / "run"


def test_recordings_of_all_ranks_are_a_job(tmp_path: Path) -> None:
    """Six phases of each rank, six reconfigurations on demand, whichever comes first."""
    prefix = record_llama(tmp_path)
    told = TraceOptions(gpus_per_server=4)
    step = read_recorded_step(prefix, LLAMA, told, message_bytes=8, collective_bytes=16)
    assert step.n_ranks == 16
    assert np.bincount(step.rank).tolist() == [62] * 8 + [45] * 8
    sizes = {OPERATIONS[k]: step.size_bytes[step.kind == k].tolist() for k in np.unique(step.kind)}
    assert sizes == {"send": [8.0] * 7 * 8, "recv": [8.0] * 7 * 8, "all-gather": [16.0] * 744}
    job = make_job(gpus_per_server=4, recorded=step, delay_s=0.01)
    for rank in range(16):
        seen = [p for p in job.phases() if rank in p.ranks]
        shapes = [f"{phase.dimension}{phase.n_operations}" for phase in seen]
        at = shapes.index("pp5")
        middle = "dp20" if rank < 8 else "dp3"
        assert shapes[at:] + shapes[:at] == ["pp5", "dp18", "pp1", middle, "pp1", "dp17"]
        assert {phase.rail for phase in seen} == {rank % 4}
    job = change_job(job, recorded=read_recorded_step(prefix, LLAMA, told))  # sizes do not matter
    played = simulate_rails(job, "on-demand")
    switched = [
        sum(
            bool(played.switched[k]) for k, phase in enumerate(job.phases()) if rank in phase.ranks
        )
        for rank in range(16)
    ]
    assert switched == [6] * 16


def test_recordings_without_a_pipeline(tmp_path: Path) -> None:
    line = "{} start_backend: 1 start_idx: 0 end_backend: 1 end_idx: 0 len: {}\n"
    text = line.format("DP", 9) + 3 * (line.format("DP", 2) + line.format("EP", 1))
    for server in range(2):
        put(tmp_path, f"run_{server}_rank0.txt", text)
    step = read_recorded_step(tmp_path / "run", {"dp": (0, 1), "ep": (1, 0)})
    told = [step.groups[group].dimension for group in step.group[step.rank == 0]]
    assert told == ["dp", "dp", "ep"]


def test_windows_of_recordings_are_computation(tmp_path: Path) -> None:
    line = "{} start_backend: 1 start_idx: {} end_backend: 1 end_idx: 0 len: 1, "
    line += "start_time: {}, end_time: {}\n"
    text = "".join(
        line.format("PP", k, 1000 * k, 1000 * k + 100)
        + line.format("DP", k, 1000 * k + 350, 1000 * k + 90)
        for k in range(4)
    )
    for server in range(2):
        put(tmp_path, f"run_{server}_rank0.txt", text)
    step = read_recorded_step(tmp_path / "run", {"pp": (0, 1), "DP.all": (1, 0)})
    computed = step.duration_s[step.duration_s > 0]
    np.testing.assert_allclose(computed, [0.25] * 2)


@pytest.mark.parametrize(
    ("changes", "groups", "gpus", "message"),
    [
        ({}, {}, 4, r"run_0_rank0\.txt:\d+: rank 0 is in 0 groups whose names begin with pp"),
        ({}, {"PP0": (0, 8)}, 4, r"rank 0 is in 2 groups whose names begin with pp"),
        ({}, {"pp.0.0": (0, 8, 12)}, 4, r"pp\.0\.0: a pipeline of 3 ranks; records fit two"),
        ({}, {}, 3, r"run_0_rank3\.txt: GPU 3 of a server that has 3"),
        ({}, {}, 5, r"there is no recording of rank 4"),
        ({"run_1_rank2": "PP\n"}, {}, 4, r"run_1_rank2\.txt:1: 'PP': no phase"),
        ({"run_1_rank2": ""}, {}, 4, r"run_1_rank2\.txt: 0 phases, in which no step repeats"),
        (
            {"run_1_rank2": recording(1)},
            LLAMA,
            4,
            r"run_0_rank2\.txt: line \d+: group dp\.0\.2: rank 6 has no part in this collective",
        ),
        (
            {"run_3_rank0": recording(1).replace("start_idx: ", "start_idx: 9")},
            LLAMA,
            4,
            r"run_0_rank0\.txt: no whole step begins with message 9\d+",
        ),
    ],
)
def test_flaws_of_recorded_steps_are_named(
    tmp_path: Path,
    changes: dict[str, str],
    groups: dict[str, tuple[int, ...]],
    gpus: int,
    message: str,
) -> None:
    prefix = record_llama(tmp_path, **changes)
    members = groups if not groups else {**LLAMA, **groups}
    with pytest.raises(om.FormatError, match=message):
        read_recorded_step(prefix, members, TraceOptions(gpus_per_server=gpus))
    with pytest.raises(om.FormatError, match="no file name_SERVER_rankGPU"):
        read_recorded_step(tmp_path / "walk", members)


@pytest.mark.slow
def test_the_command_makes_a_job(tmp_path: Path) -> None:
    put(tmp_path, "groups.json", groups_text(GROUPS))
    step = read_phase_list(put(tmp_path, "step.csv", TABLE), GROUPS)
    for rank, content in enumerate(step_traces(step)):
        (tmp_path / f"run.{rank}.et").write_bytes(content)
    shared = ("--groups", "groups.json", "--delay", "0.25", "--dimension", "d1=cp")
    done = call_in(
        tmp_path, "generate", "rail-trace", "--phases", "step.csv", *shared, "-o", "listed.json"
    )
    assert done.stdout == ""
    done = call_in(tmp_path, "generate", "rail-trace", "--chakra", "run", *shared)
    job = om.load(tmp_path / "listed.json")
    assert isinstance(job, RailJob)
    assert (job.network.delay_s, job.n_gpus) == (0.25, 4)
    assert [g.dimension for g in job.groups()] == ["dp", "cp", "pp", "pp"]
    assert loads(done.stdout) == job


@pytest.mark.slow
def test_the_command_reads_recordings(tmp_path: Path) -> None:
    prefix = record_llama(tmp_path)
    shared = ("--groups", "groups.json", "--gpus-per-server", "4", "--collective-bytes", "9")
    done = process("generate", "rail-trace", "--recordings", "run", *shared, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = TraceOptions(gpus_per_server=4)
    job = loads(done.stdout)
    assert isinstance(job, RailJob)
    assert job.workload.recorded == read_recorded_step(prefix, LLAMA, told, collective_bytes=9)


@pytest.mark.slow
def test_bad_input_of_the_command(tmp_path: Path) -> None:
    """Exit code 2, one line with file and line, rank or group; nothing is written."""
    put(tmp_path, "groups.json", groups_text({"d0": (0, 1)}))
    put(tmp_path, "step.csv", "rank,group,operation,size_bytes\n3,d0,all-reduce,1\n")
    for options, message in (
        (["--phases", "step.csv", "--groups", "groups.json"], "line 2: rank 3 is no member of gr"),
        (["--chakra", "run", "--dimension", "x=up"], "'x=up': NAME=DIMENSION, one of dp"),
        (["--chakra", "run", "--phases", "step.csv"], "either --chakra, --kineto, --phases or"),
        (["--chakra", "run", "--message-bytes", "8"], "are for --recordings"),
    ):
        done = call_in(tmp_path, "generate", "rail-trace", *options, "-o", "job.json", code=2)
        assert done.stdout == ""
        assert message in done.stderr, done.stderr
    assert not (tmp_path / "job.json").exists()

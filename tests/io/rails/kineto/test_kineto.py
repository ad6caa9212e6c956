"""Traces of PyTorch's profiler: a job that was recorded, drawn ones, and broken ones."""

import gzip
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import optmatch as om
from optmatch.io.rails.kineto import (
    Activity,
    Call,
    Recording,
    list_calls,
    make_nodes,
    measure,
    read_kineto_demand,
    read_kineto_step,
    read_recording,
)
from optmatch.problems.rails.training.step import OPERATIONS
from tests.helpers.command import DATA, call, put, refused

GLOO = sorted((DATA / "kineto").iterdir())
MESSAGE, EXPERTS, WEIGHT = 256 * 192 * 4, 256 * 192 * 4, 192 * 192 * 4
"""Bytes in the recorded job, see `benchmarks/record_kineto.py`."""
Tree = dict[str, Any]


def record(k: int, start: float, args: Tree | None = None) -> Tree:
    """Return the record of a call of NCCL in group 0 of ranks 0 and 1."""
    told = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8}
    told |= {"dtype": "Float", "Group size": 2, "Process Group Name": "0"}
    told |= {"Process Group Ranks": "[0, 1]", "External id": k} | (args or {})
    event = {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 1}
    return {**event, "ts": start, "dur": 1.0, "args": told}


def kernel(k: int, start: float, lasts: float, name: str = "ncclDevKernel_AllReduce") -> Tree:
    """Return a kernel that the record of the same number launched."""
    args = {"External id": k, "correlation": k, "stream": 7}
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7}
    return {**event, "ts": start, "dur": lasts, "args": args}


def write(folder: Path, *ranks: list[Tree], **about: Any) -> list[Path]:
    """Write a trace for each rank."""
    paths = []
    for rank, events in enumerate(ranks):
        told = {"backend": "nccl", "rank": rank, "world_size": len(ranks)} | about
        paths.append(folder / f"trace.{rank}.json")
        paths[-1].write_text(json.dumps({"distributedInfo": told, "traceEvents": events}))
    return paths


def test_the_recorded_job_as_a_demand() -> None:
    """What its program sends: messages, experts, gradients, weights, and the loss of all."""
    expected = np.zeros((4, 4))
    for one, other in ((0, 2), (1, 3)):
        expected[one, other] = expected[other, one] = 2 * MESSAGE
    for one, other in ((0, 1), (2, 3)):
        inside = 2 * EXPERTS / 2 + WEIGHT / 2 + WEIGHT / 2
        expected[one, other] += inside
        expected[other, one] += inside
    for rank in range(4):
        expected[rank, (rank + 1) % 4] += 2 * 3 / 4 * 4
    assert read_kineto_demand(GLOO).tolist() == expected.tolist()
    assert read_kineto_demand(GLOO[::-1]).tolist() == expected.tolist()


def test_the_recorded_job_as_a_list() -> None:
    rows = list_calls(map(read_recording, GLOO))
    found = {(row.operation, row.ranks): (row.size_bytes, row.times) for row in rows}
    assert len(found) == len(rows)
    expected: dict[tuple[str, tuple[int, ...]], tuple[int, int]] = {
        ("all-reduce", (0, 1, 2, 3)): (4, 1),
        ("barrier", (0, 1, 2, 3)): (0, 1),
    }
    for replicas in ((0, 1), (2, 3)):
        expected["all-to-all", replicas] = (EXPERTS, 2)
        expected["reduce-scatter", replicas] = (WEIGHT, 1)
        expected["all-gather", replicas] = (WEIGHT // 2, 1)
    for pair in ((0, 2), (1, 3)):
        expected["send", pair] = expected["recv", pair] = (MESSAGE, 2)
    assert found == expected


def test_the_recorded_job_as_a_problem(tmp_path: Path) -> None:
    """By the command line, to a plan that the verifier accepts."""
    file = tmp_path / "job.json"
    call("generate", "rail-trace", "--kineto", *GLOO, "--delay", "0.001", "-o", file)
    job = om.load(file)
    assert isinstance(job, om.RailJob)
    solution = om.solve(job, method="prefetch", seed=0, limits=om.Limits(iterations=20))
    assert om.verify(job, solution).ok
    step = job.step()
    for rank, path in enumerate(GLOO):
        own = step.rank == rank
        assert step.duration_s[own].sum() == pytest.approx(measure(read_recording(path))[1])


def test_communication_of_nccl_as_of_gloo(tmp_path: Path) -> None:
    """The same job, as records and kernels of NCCL tell it."""
    ranks = []
    for path in GLOO:
        found, events = read_recording(path), []
        for k, one in enumerate(found.calls):
            name = one.kind.lower()
            args = {"Collective name": name, "In msg nelems": one.size_bytes // 4}
            n_ranks = len(found.members[one.group])
            n_out = one.size_bytes // 4
            if one.kind in ("ALL_GATHER", "GATHER"):
                n_out *= n_ranks
            elif one.kind in ("REDUCE_SCATTER", "SCATTER"):
                n_out //= n_ranks
            args |= {"Out msg nelems": n_out, "Process Group Name": one.group}
            args |= {"Process Group Ranks": str(list(found.members[one.group]))}
            args |= {"Group size": len(found.members[one.group])}
            if one.kind in ("SEND", "RECV"):
                args["Dst Rank" if one.kind == "SEND" else "Src Rank"] = one.peer
            events.append(record(k, one.start_us - 2, args))
            events.append(kernel(k, one.start_us, one.end_us - one.start_us))
        events += [kernel(10**6, a[0], a[1] - a[0], "gemm") for a in found.computing]
        ranks.append(events)
    paths = write(tmp_path, *ranks)
    assert read_kineto_demand(paths).tolist() == read_kineto_demand(GLOO).tolist()
    same, other = read_kineto_step(paths), read_kineto_step(GLOO)
    assert same.groups == other.groups
    for column in ("rank", "kind", "group", "size_bytes", "peer", "match", "dep_start", "dep"):
        assert getattr(same, column).tolist() == getattr(other, column).tolist()
    assert np.allclose(same.duration_s, other.duration_s, rtol=0, atol=1e-9)


def test_messages_that_are_launched_together(tmp_path: Path) -> None:
    """Their records have no kernel: both take the one that their thread launches next."""
    here = launch(77, 8, "cuda_runtime")
    elsewhere = launch(78, 7, "cuda_runtime", thread=2)
    ranks = []
    for rank in range(2):
        peer = 1 - rank
        ends: list[dict[str, Any]] = [{"Dst Rank": peer}, {"Src Rank": peer}]
        calls = [
            record(k, k, {"Collective name": name} | more)
            for k, (name, more) in enumerate(zip(("send", "recv"), ends, strict=True))
        ]
        ranks.append([*calls, here, elsewhere, kernel(77, 20, 5), kernel(78, 30, 5)])
    paths = write(tmp_path, *ranks)
    times = [(one.start_us, one.end_us) for one in read_recording(paths[0]).calls]
    assert times == [(20, 25), (20, 25)]
    assert read_kineto_demand(paths).tolist() == [[0, 32], [32, 0]]


def test_ranks_that_are_cut(tmp_path: Path) -> None:
    """By start and stride, by the configuration, by a file; else the message asks for it."""
    cut = {"Process Group Ranks": "[0, ..., 2]", "Process Group Name": "7"}
    start = {"Global rank start": 0, "Global rank stride": 2}
    whole = [{"pg_name": "7", "ranks": [0, 2]}]
    for args, about in ((cut | start, {}), (cut, {"pg_config": whole})):
        (path, *_) = write(tmp_path, [record(1, 0, args)], **about)
        assert read_recording(path).members == {"7": (0, 2)}
    paths = write(tmp_path, [record(1, 0, cut)], [], [record(1, 0, cut)])
    with pytest.raises(om.FormatError, match=r"0/args/Process Group Ranks: group 7.*--groups"):
        read_recording(paths[0])
    told = read_kineto_demand(paths, {"7": (0, 2)})
    assert told.tolist() == [[0, 0, 32], [0, 0, 0], [32, 0, 0]]


def test_groups_of_one_name(tmp_path: Path) -> None:
    """Groups that some ranks make without the others may get the same name."""
    ranks = [
        [record(1, 0, {"Process Group Ranks": str(members), "In msg nelems": size})]
        for members, size in (([0, 1], 2), ([0, 1], 2), ([2, 3], 4), ([2, 3], 4))
    ]
    paths = write(tmp_path, *ranks)
    demand = read_kineto_demand(paths)
    assert (demand[0, 1], demand[2, 3], demand.sum()) == (8, 16, 48)
    assert {group.name for group in read_kineto_step(paths).groups} == {"0.0", "0.2"}


def launch(correlation: int, start: float, category: str, thread: int = 1) -> Tree:
    """Return the event of the processor that launched the kernel of the same correlation."""
    event = {"ph": "X", "cat": category, "name": "launches a kernel", "pid": 1, "tid": thread}
    return {**event, "ts": start, "dur": 1.0, "args": {"correlation": correlation}}


def annotation(name: str, start: float, sides: list[int] | None = None) -> Tree:
    """Return an annotation around a call of NCCL, which tells its tensor if `sides` are given."""
    args: Tree = {"External id": 5}
    if sides is not None:
        args |= {"Input Dims": [sides], "Input type": ["float"]}
    event = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1}
    return {**event, "ts": start, "dur": 3.0, "args": args}


def silent_record(start: float) -> Tree:
    """Return the record of a call by PyTorch before 2.2, which has no arguments."""
    event = record(1, start)
    event["args"] = {"External id": 1}
    return event


@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "hip_runtime", "anything"])
def test_launches_of_any_category_join_kernels(tmp_path: Path, category: str) -> None:
    unmarked = kernel(77, 20, 5)
    del unmarked["args"]["External id"]
    (path, _) = write(tmp_path, [record(1, 0), launch(77, 8, category), unmarked], [])
    (found,) = read_recording(path).calls
    assert (found.start_us, found.end_us) == (20, 25)


def test_traces_before_2_2_are_read_by_their_annotations(tmp_path: Path) -> None:
    """Kind, size and partner; a kernel belongs to the call that launched it, not by its id."""
    ranks = []
    for rank in range(2):
        peer = 1 - rank
        message = "send 0->1" if rank == 0 else "recv 1<-0"
        ranks.append(
            [
                silent_record(0),
                annotation("nccl:_all_gather_base", 0, [4, 5]),
                launch(1, 2, "cuda_runtime"),
                silent_record(9),
                annotation(f"nccl:{message}", 10, [3]),
                launch(5, 12, "cuda_runtime"),
                annotation("nccl:coalesced", 20),
                kernel(1, 30, 4 + peer),
                kernel(5, 40, 6),
            ]
        )
    paths = write(tmp_path, *ranks)
    gather, sent = read_recording(paths[0]).calls
    assert gather == Call(30, 35, 1, "ALL_GATHER", "all", 80)
    assert sent == Call(40, 46, 4, "SEND", "all", 12, peer=1)
    assert read_recording(paths[1]).calls[1].peer == 0
    assert read_kineto_demand(paths).tolist() == [[0, 80 + 12], [80, 0]]


def test_sizes_that_an_old_trace_does_not_tell(tmp_path: Path) -> None:
    """The message says which version has them; leniently its kernel is computation."""
    events = [annotation("nccl:all_reduce", 0), launch(1, 2, "cuda_runtime"), kernel(1, 5, 2)]
    (path,) = write(tmp_path, events)
    with pytest.raises(om.FormatError, match=r"0/args/Input Dims: .*2\.2.*record_shapes=True"):
        read_recording(path)
    skipped: list[str] = []
    found = read_recording(path, skipped=skipped)
    assert (len(skipped), found.calls, len(found.computing)) == (1, [], 1)


def test_kernels_of_nccl_whose_calls_nothing_tells(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [silent_record(0), kernel(1, 5, 2)])
    with pytest.raises(om.FormatError, match=r"1 kernels of NCCL.*from 2\.2 on"):
        read_recording(path)
    assert len(read_recording(path, skipped=[]).computing) == 1


def test_groups_that_no_event_tells(tmp_path: Path) -> None:
    """The only group of the caller or of the file counts; else all ranks; never one of several."""
    events = [annotation("nccl:all_reduce", 0, [2])]
    two = [{"pg_name": "a", "ranks": [0, 1]}, {"pg_name": "b", "ranks": [0]}]
    for about, known, expected in (
        ({}, {}, {"all": (0, 1, 2)}),
        ({"pg_config": two[:1]}, {}, {"a": (0, 1)}),
        ({"pg_config": two}, {"c": [1, 2]}, {"c": (1, 2)}),
        ({"pg_config": two}, {"all": [0, 1, 2], "c": [1]}, {"all": (0, 1, 2)}),
    ):
        path = write(tmp_path, events, [], [], **about)[0]
        assert read_recording(path, groups=known).members == expected
    path = write(tmp_path, events, **{"pg_config": two})[0]
    with pytest.raises(om.FormatError, match=r"traceEvents/0: .*which of 2 groups.*--groups"):
        read_recording(path)
    path.write_text(json.dumps({"traceEvents": events}))
    assert read_recording(path).members == {"all": ()}


def test_gloo_without_calls_of_c10d(tmp_path: Path) -> None:
    """Its own events tell kind and size, and the only group is that of the trace."""
    event = {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "pid": 1, "tid": 1}
    event |= {"ts": 4, "dur": 2, "args": {"Input Dims": [[6]], "Input type": ["float"]}}
    path = write(tmp_path, [event], [])[0]
    assert read_recording(path).calls == [Call(4, 6, 0, "ALL_REDUCE", "all", 24)]


def test_other_accelerators_are_named(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "mtia_ccp_events", "name": "fc", "ts": 0, "dur": 1}
    (path,) = write(tmp_path, [event, event])
    with pytest.raises(om.FormatError, match="2 events of category mtia_ccp_events"):
        read_recording(path, skipped=[])


def test_values_that_nobody_needs(tmp_path: Path) -> None:
    """Leniently they are passed over and counted; where a value is needed, its rule stays."""
    (path,) = write(tmp_path, [record(1, 0), kernel(1, 2, 3)])
    text = path.read_text()
    flaws = text.replace('"stream": 7', '"stream": NaN, "note": "a\x01b"')
    path.write_text(flaws)
    with pytest.raises(om.FormatError, match="not JSON"):
        read_recording(path)
    skipped: list[str] = []
    assert len(read_recording(path, skipped=skipped).calls) == 1
    assert len(skipped) == 2
    assert "/traceEvents/1/args/stream: NaN" in skipped[1]
    path.write_text(flaws.replace('"dur": 3', '"dur": NaN'))
    with pytest.raises(om.FormatError, match="/traceEvents/1/dur: None: a number"):
        read_recording(path, skipped=[])


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Draw one rank that computes and communicates, in ticks."""
    spans = st.tuples(st.integers(0, 30), st.integers(0, 9))
    computing = [
        Activity(s, s + d, k) for k, (s, d) in enumerate(draw(st.lists(spans, max_size=8)))
    ]
    groups = st.sampled_from(["a", "b"])
    calls = [
        Call(s, s + d, 100 + k, "ALL_REDUCE", name, 4)
        for k, ((s, d), name) in enumerate(draw(st.lists(st.tuples(spans, groups), max_size=4)))
    ]
    talking = [Activity(*one[:3]) for one in calls]
    members: dict[str, tuple[int, ...]] = {"a": (0,), "b": (0,)}
    return Recording("t", 0, 1, members, sorted(calls), sorted(computing), talking)


@given(recordings())
def test_parts_wait_for_what_had_ended(recording: Recording) -> None:
    """Just that: ticks of an oracle tell what ended before what began."""
    trace, _ = make_nodes([recording], None)
    by_event: dict[int, Activity | Call] = {one.event: one for one in recording.calls}
    by_event |= {one.event: one for one in recording.computing}
    order = [by_event[int(event)] for event in trace.node_id]
    ran = sorted(recording.computing)
    parts: dict[int, list[Activity]] = {}
    first = sorted(ran.index(one) for one in order if isinstance(one, Activity))
    for begin, end in pairwise([*first, len(ran)]):
        parts[ran[begin].event] = ran[begin:end]
    assert sum(map(len, parts.values())) == len(ran)
    for node, one in enumerate(order):
        known = set(trace.parent[trace.child == node])
        for before, other in enumerate(order):
            last = max((a.end_us for a in parts.get(other.event, ())), default=0)
            ends = max(last, other.end_us)
            if before in known:
                assert before < node
                assert ends <= one.start_us
            elif before < node and ends <= one.start_us and isinstance(other, Call):
                # Left out only where a later one of its group is there.
                later = [order[k] for k in known if isinstance(order[k], Call)]
                same = [c for c in later if isinstance(c, Call) and c.group == other.group]
                assert any(c.end_us >= other.end_us for c in same)
        if isinstance(one, Call):  # each part either had ended, or holds nothing that had
            ended = [a for a in ran if a.end_us <= one.start_us]
            waited = max((k for k in known if not isinstance(order[k], Call)), default=-1)
            inside = [a for k in range(waited + 1) for a in parts.get(order[k].event, [])]
            still = [a for a in ran if a.end_us > one.start_us]
            assert all(a in inside or (still and a > min(still)) for a in ended)
    ticks = [any(a.start_us <= t < a.end_us for a in ran) for t in range(40)]
    assert trace.duration_us.sum() == sum(ticks)


@given(recordings())
def test_times_are_those_of_ticks(recording: Recording) -> None:
    """An oracle looks at each tick."""
    first, second = (
        np.array([any(a.start_us <= t < a.end_us for a in ones) for t in range(40)])
        for ones in (recording.talking, recording.computing)
    )
    found = measure(recording)
    assert np.allclose(
        np.array(found[:3]) * 1e6, [first.sum(), second.sum(), (first & second).sum()]
    )


def _change(**args: Any) -> Callable[[Tree], None]:
    return lambda tree: tree["traceEvents"][0]["args"].update(args)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update(traceEvents={}), "/traceEvents: {}: .*a list of events"),
        (lambda t: t.pop("traceEvents"), "/traceEvents: no trace of PyTorch"),
        (lambda t: t["traceEvents"].append(3), "/traceEvents/2: 3: an object"),
        (lambda t: t["distributedInfo"].update(rank="a"), "distributedInfo/rank: 'a': a whole"),
        (lambda t: t["distributedInfo"].update(rank=10**9), "1000000000 ranks"),
        (lambda t: t["traceEvents"][1].update(ts="x"), "/traceEvents/1/ts: 'x': a number"),
        (lambda t: t["traceEvents"][1].update(ts=10**400), "/traceEvents/1/ts: 1000.*2..63"),
        (lambda t: t["traceEvents"][1].update(dur=-2), "/traceEvents/1/dur: -2.0: .*>= 0"),
        (lambda t: t["traceEvents"][1].update(args=[]), "/traceEvents/1/args: .*an object"),
        (_change(**{"Collective name": None}), "0/args/Collective name: None: begins with"),
        (_change(**{"Collective name": "hop"}), "0/args/Collective name: 'hop': begins with"),
        (_change(dtype="Quarter"), "0/args/dtype: 'Quarter': one of"),
        (_change(**{"In msg nelems": -1}), "0/args/In msg nelems: -1: a whole number"),
        (_change(**{"In msg nelems": 2**62}), "0/args/In msg nelems: 4611.*2..63 bytes"),
        (_change(**{"In msg nelems": True}), "0/args/In msg nelems: True: a whole number"),
        (_change(**{"Process Group Name": None}), "0/args/Process Group Name: None: the name"),
        (_change(**{"Process Group Ranks": "[0, x]"}), "group 0: rank 'x': ranks are whole"),
        (_change(**{"Process Group Ranks": "[0, ٣]"}), "group 0: rank '٣': ranks are whole"),
        (_change(**{"Process Group Ranks": "9" * 5000}), "group 0: rank '9999.*: ranks are whole"),
        (_change(**{"Process Group Ranks": "[0, 0]"}), "group 0: ranks .0, 0.: 2 different"),
        (_change(**{"Group size": 3}), "group 0: ranks .0, 1.: 3 different"),
        (_change(**{"Process Group Ranks": "[0, 999999999]"}), "1000000000 ranks"),
        (_change(**{"Collective name": "send", "Dst Rank": 7}), "0/args/Dst Rank: 7: a rank of"),
        (_change(**{"Collective name": "broadcast", "Rank": 2}), "0/args/Rank: 2: a place in"),
    ],
)
def test_broken_traces(tmp_path: Path, change: Callable[[Tree], None], message: str) -> None:
    (path,) = write(tmp_path, [record(1, 0), kernel(1, 2, 3)])
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))
    with pytest.raises(om.FormatError, match=message) as caught:
        read_recording(path)
    assert str(caught.value).startswith(str(path))


def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTMATCH_MAX_BYTES", "100000")
    bomb = put(
        tmp_path, "bomb.json.gz", gzip.compress(b'{"traceEvents": [' + b" " * 10**6 + b"]}")
    )
    refused(
        "bomb.json.gz",
        "generate",
        "demand",
        "--kineto",
        bomb,
        "--delay",
        0,
        "-o",
        tmp_path / "out",
    )
    assert not (tmp_path / "out").exists()


def test_files_that_make_no_job(tmp_path: Path) -> None:
    one, two = write(tmp_path, [record(1, 0)], [record(1, 0)])
    for paths, message in (
        ([one], "distributedInfo/rank: 1 files, 2 ranks"),
        ([one, one], "distributedInfo/rank: 0: .*trace.0.json is of the same rank"),
    ):
        with pytest.raises(om.FormatError, match=message):
            read_kineto_demand(paths)
    two.write_text(two.read_text().replace('"rank": 1, ', ""))
    with pytest.raises(om.FormatError, match="rank: is missing"):
        read_kineto_demand([one, two])
    for options in (["--kineto"], [one], ["--kineto", one, "--chakra", "x"]):
        call("generate", "rail-trace", *options, "-o", tmp_path / "out", code=2)


def test_what_is_left_out(tmp_path: Path) -> None:
    """Old PyTorch tells no arguments: such calls count as computation, and are listed."""
    old = record(2, 10)
    del old["args"]["Collective name"]
    ranks = [[record(1, 0), kernel(1, 2, 3), old, kernel(2, 12, 4)] for _ in range(2)]
    skipped: list[str] = []
    step = read_kineto_step(write(tmp_path, *ranks), skipped=skipped)
    assert [OPERATIONS[k] for k in step.kind] == ["all-reduce", "compute"] * 2
    assert np.allclose(step.duration_s, [0, 4e-6] * 2)
    assert len(skipped) == len(step.skipped) == 2
    found = read_recording(tmp_path / "trace.0.json", skipped=[])
    assert np.allclose(measure(found), (7e-6, 0, 0, 14e-6))


def test_the_command_that_lists() -> None:
    result = call("generate", "rail-trace", "--kineto", *GLOO, "--list")
    head, *rows = result.stdout.splitlines()
    assert head == "operation,group,ranks,size_bytes,times,mean_s"
    assert len(rows) == len(list_calls(map(read_recording, GLOO)))
    assert any(row.startswith(f"all-to-all,1,0 1,{EXPERTS},2,") for row in rows)
    assert f"{GLOO[3]}: communication 0.0" in result.stderr

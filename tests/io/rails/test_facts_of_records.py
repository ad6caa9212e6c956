"""Facts that records of communication state are used: parts, batches, links, groups, numbers."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io.rails.chakra import TraceOptions, read_step
from optmatch.io.rails.kineto import (
    list_calls,
    read_kineto_demand,
    read_kineto_step,
    read_recording,
)
from tests.io.rails.kineto.test_kineto import record as record_of_call, write


def record(name: str, external_id: int, ts: int, **arguments: Any) -> dict[str, Any]:
    """Return the record of a call, of 1,000 floats in group "g" of all ranks unless told."""
    args = {"Collective name": name, "In msg nelems": 1000, "Out msg nelems": 1000}
    return record_of_call(external_id, ts, args | {"Process Group Name": "g"} | arguments)


def kernel(
    name: str, correlation: int, launch_ts: int, ts: int, external_id: int | None, launch_id: Any
) -> list[dict[str, Any]]:
    """Return the launch of a kernel and the kernel, which lasts 500 us."""
    launch_args = {"correlation": correlation}
    kernel_args = {"correlation": correlation, "stream": 20, "device": 0}
    if launch_id is not None:
        launch_args["External id"] = launch_id
    if external_id is not None:
        kernel_args["External id"] = external_id
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 1, "tid": 1}
    on_device = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 20}
    return [
        launch | {"ts": launch_ts, "dur": 2, "args": launch_args},
        on_device | {"ts": ts, "dur": 500, "args": kernel_args},
    ]


@pytest.mark.parametrize("row", [1, 4])
def test_parts_of_an_all_to_all_are_counted_as_written(tmp_path: Path, row: int) -> None:
    parts = np.array([[7, 100, 300], [200, 0, 100], [0, 0, 0]])
    events = [
        [
            record(
                "all_to_allv",
                10,
                1000,
                **{
                    "In msg nelems": row * int(parts[rank].sum()),
                    "Out msg nelems": row * int(parts[:, rank].sum()),
                    "In split size": str(parts[rank].tolist()),
                    "Out split size": str(parts[:, rank].tolist()),
                    "Process Group Ranks": "[0, 1, 2]",
                    "Group size": 3,
                },
            )
        ]
        for rank in range(3)
    ]
    paths = write(tmp_path, *events)
    sent_bytes = 4 * row * parts
    np.fill_diagonal(sent_bytes, 0)  # what a rank keeps is not sent
    assert read_kineto_demand(paths).tolist() == sent_bytes.tolist()

    # A step is no shorter than its busiest port allows: that of rank 0, or into rank 2.
    step = read_kineto_step(paths, options=TraceOptions(gpus_per_server=1))
    busiest_bytes = max(sent_bytes.sum(axis=0).max(), sent_bytes.sum(axis=1).max())
    assert step.size_bytes.max() * 2 / 3 >= busiest_bytes


@pytest.mark.parametrize("parts", ["[1, 2]", "[1, ..., 3]", "[-1, 1001]", "[999, 2, 3]"])
def test_parts_that_do_not_fit_are_refused(tmp_path: Path, parts: str) -> None:
    events = [[record("all_to_allv", 10, 1000, **{"In split size": parts})]]
    with pytest.raises(om.FormatError, match="In split size"):
        read_kineto_demand(write(tmp_path, *events))


def test_parts_on_which_two_ranks_disagree_are_refused_or_listed(tmp_path: Path) -> None:
    """In the second all-to-all rank 1 lists 1,200 bytes from rank 0, which sends 1,600."""
    events = [
        [
            record(
                "all_to_allv",
                10 + k,
                1000 + 10 * k,
                **{"In split size": f"[{own[0]}, {own[1]}]", "Out split size": listed},
            )
            for k, listed in enumerate(lists)
        ]
        for own, lists in (
            ((600, 400), ["[600, 400]"] * 2),
            ((400, 600), ["[400, 600]", "[300, 700]"]),
        )
    ]
    paths = write(tmp_path, *events)
    rule = "lists 1200 bytes from rank 0, which sends 1600"
    for read in (read_kineto_demand, read_kineto_step):
        with pytest.raises(om.FormatError, match=rule):
            read(paths)
    skipped = list[str]()
    assert read_kineto_demand(paths, skipped=skipped).tolist() == [[0, 3200], [3200, 0]]
    assert len(skipped) == 1 and rule in skipped[0] and str(paths[1]) in skipped[0]


@pytest.mark.parametrize("kernel_id", [None, 20])
@pytest.mark.parametrize("launch_id", [None, 20])
@pytest.mark.parametrize("both_ways", [False, True])
def test_messages_of_a_batch_have_the_kernel_of_the_batch(
    tmp_path: Path, kernel_id: int | None, launch_id: int | None, both_ways: bool
) -> None:
    events = []
    for rank in range(2):
        peer = 1 - rank
        own = []
        if both_ways or rank == 0:
            own.append(record("send", 10, 1000, **{"Dst Rank": peer}))
        if both_ways or rank == 1:
            own.append(record("recv", 11, 1006, **{"Src Rank": peer}))
        batch = record("coalesced", 20, 1020)
        name = "ncclDevKernel_SendRecv(x)"
        events.append([*own, batch, *kernel(name, 77, 1022, 2000, kernel_id, launch_id)])
    for path in write(tmp_path, *events):
        for row in list_calls([read_recording(path)]):
            assert row.mean_s == pytest.approx(500e-6)


@pytest.mark.parametrize(("kernel_id", "launch_id"), [(10, None), (None, 10), (10, 10)])
def test_a_kernel_is_found_by_its_links_whatever_its_name(
    tmp_path: Path, kernel_id: int | None, launch_id: int | None
) -> None:
    own = kernel("allreduce_low_latency(float*, int)", 77, 1002, 2000, kernel_id, launch_id)
    other = kernel("gemm", 999, 1500, 2600, None, None)
    for path in write(tmp_path, *[[record("allreduce", 10, 1000), *own, *other]] * 2):
        recording = read_recording(path)
        (row,) = list_calls([recording])
        assert row.mean_s == pytest.approx(500e-6)
        assert len(recording.computing) == len(recording.talking) == 1


@pytest.mark.parametrize("size", [2, None])
def test_the_group_of_all_ranks_need_not_list_them(tmp_path: Path, size: int | None) -> None:
    call = record("allreduce", 10, 1000, **{"Process Group Ranks": "[]"})
    if size is None:
        del call["args"]["Group size"]
    group = {"pg_name": "g", "pg_desc": "default_pg", "ranks": [], "pg_size": 2}
    paths = write(tmp_path, *[[call]] * 2, pg_config=[group])
    assert read_kineto_demand(paths).tolist() == [[0, 4000], [4000, 0]]


def test_ranks_whose_recordings_are_shifted_are_refused(tmp_path: Path) -> None:
    events = [
        [record("allreduce", 10 + k, 1000 + 10 * k, Seq=first + k) for k in range(2)]
        for first in (5, 6)
    ]
    paths = write(tmp_path, *events)
    with pytest.raises(om.FormatError, match=r"\(Seq\) 6, at rank 0 5"):
        read_kineto_demand(paths)
    for recorded, first in zip(events, (5, 5), strict=True):
        for k, event in enumerate(recorded):
            event["args"]["Seq"] = first + k
    assert read_kineto_demand(write(tmp_path, *events)).tolist() == [[0, 8000], [8000, 0]]


@pytest.mark.parametrize(
    ("name", "n_in", "n_out", "size_bytes"),
    [
        ("scatter", 1000, 500, 4000),
        ("scatter", 500, 1000, 4000),
        ("_reduce_scatter_base", 1000, 500, 4000),
        ("_allgather_base", 500, 1000, 2000),
        ("gather", 500, 1000, 2000),
    ],
)
def test_the_size_of_a_collective_follows_from_both_of_its_sides(
    tmp_path: Path, name: str, n_in: int, n_out: int, size_bytes: int
) -> None:
    sides = {"In msg nelems": n_in, "Out msg nelems": n_out, "Rank": 0}
    (path, _) = write(tmp_path, *[[record(name, 10, 1000, **sides)]] * 2)
    (row,) = list_calls([read_recording(path)])
    assert row.size_bytes == size_bytes


@pytest.mark.parametrize("name", ["_reduce_scatter_base", "_allgather_base", "scatter"])
def test_parts_that_differ_are_refused_where_they_are_not_read(tmp_path: Path, name: str) -> None:
    sides = {"In msg nelems": 1000, "Out msg nelems": 700, "Rank": 0}
    (path, _) = write(tmp_path, *[[record(name, 10, 1000, **sides)]] * 2)
    with pytest.raises(om.FormatError, match="parts that differ"):
        read_recording(path)


@pytest.mark.parametrize("involved", [[True, False], {"values": [True, False]}])
def test_a_collective_of_some_dimensions_is_refused(tmp_path: Path, involved: Any) -> None:
    node = {"Id": 1, "NodeType": 7, "comm_type": 0, "comm_size": 1000, "data_deps": []}
    for rank in range(4):
        graph = {"workload_graph": [node | {"involved_dim": involved}]}
        (tmp_path / f"t.{rank}.json").write_text(json.dumps(graph))
    with pytest.raises(om.FormatError, match=r"involved_dim = \[true, false\]"):
        read_step(tmp_path / "t")
    for rank in range(4):
        graph = {"workload_graph": [node | {"involved_dim": [True, True]}]}
        (tmp_path / f"t.{rank}.json").write_text(json.dumps(graph))
    assert len(read_step(tmp_path / "t").rank) == 4


def test_computations_without_duration_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for rank in range(2):
        node = {"Id": 1, "NodeType": 4, "num_ops": 10**12, "tensor_size": 10, "data_deps": []}
        (tmp_path / f"t.{rank}.json").write_text(json.dumps({"workload_graph": [node]}))
    with caplog.at_level(logging.WARNING):
        assert read_step(tmp_path / "t").duration_s.tolist() == [0, 0]
    assert "2 computations tell their operations" in caplog.text
    step = read_step(tmp_path / "t", options=TraceOptions(flops_per_s=1e15))
    assert step.duration_s.tolist() == [1e-3, 1e-3]

"""Chakra traces that are cut: missing parts are refused, or left out and listed."""

from pathlib import Path

import numpy as np
import pytest

import optmatch as om
from optmatch.io import read_chakra, read_matrix
from optmatch.io.rails.chakra import (
    COLLECTIVE,
    RECEIVE,
    SEND,
    Node,
    groups_text,
    node_class,
    read_step,
    trace_bytes,
)
from optmatch.problems.rails.training.step import OPERATIONS, Step
from tests.helpers.chakra import collective, send, trace
from tests.helpers.command import call, put, refused

COMPUTE, ALL_REDUCE, ALL_TO_ALL = map(OPERATIONS.index, ("compute", "all-reduce", "all-to-all"))


def leniently(path: Path, complaints: list[str], groups: Path | None = None) -> Step:
    """Read a step that strict reading refuses with the first complaint; compare all of them."""
    skipped: list[str] = []
    step = read_step(path, groups, skipped=skipped)
    told = [line.split(": ", 1)[1] for line in skipped]
    assert told == complaints
    assert step.skipped == tuple(skipped)
    with pytest.raises(om.FormatError):
        read_step(path, groups)
    return step


def kinds(step: Step) -> list[int]:
    """Return the kinds of all operations."""
    return [int(kind) for kind in step.kind]


def test_nodes_that_are_not_there(tmp_path: Path) -> None:
    (path,) = trace(
        tmp_path, [Node(5, parents=[3], duration_us=7), Node(6, parents=[2, 5, 3], duration_us=1)]
    )
    step = leniently(
        path,
        [
            "node 5: waits for node 3, which is not there",
            "node 6: waits for node 2, which is not there",
            "node 6: waits for node 3, which is not there",
        ],
    )
    assert (step.dep_start.tolist(), step.dep.tolist()) == ([0, 0, 1], [0])


def test_communication_that_does_not_tell_what_it_is(tmp_path: Path) -> None:
    odd = [
        Node(1, COLLECTIVE, duration_us=85),
        Node(2, COLLECTIVE, duration_us=9, attributes={"comm_type": 77, "comm_size": 8}),
        Node(3, COLLECTIVE, duration_us=4, attributes={"comm_type": 0}),
        Node(4, SEND, duration_us=2, attributes={"comm_dst": 1}),
    ]
    both = [collective(5, "ALL_REDUCE", 64), collective(6, "BARRIER", None)]
    paths = trace(tmp_path, odd + both, both)
    ending = "is missing or out of range: taken as computation"
    lines = [f"node {k}: comm_type {ending}" for k in (1, 2)]
    lines += [f"node {k}: comm_size {ending}" for k in (3, 4)]
    step = leniently(paths[0], lines)
    assert kinds(step) == [COMPUTE] * 4 + [ALL_REDUCE] * 4
    np.testing.assert_allclose(step.duration_s[:4], [85e-6, 9e-6, 4e-6, 2e-6])
    assert step.size_bytes.tolist() == [0, 0, 0, 0, 64, 0, 64, 0]
    assert read_chakra(paths, skipped=[]).tolist() == [[0, 64], [64, 0]]


def test_a_file_that_ends_too_early(tmp_path: Path) -> None:
    """Its last node is lost, so the other rank's collective has no partner: it only takes time."""
    both = [collective(k, "ALL_REDUCE", 8)._replace(duration_us=k) for k in (1, 2)]
    paths = trace(tmp_path, both, both)
    whole = paths[1].read_bytes()
    paths[1].write_bytes(whole[:-3])
    begin = len(trace_bytes(both[:1]))
    step = leniently(
        paths[0],
        [
            f"byte {begin}: node number 1, after node 1, is cut off",
            "node 2: group all: rank 1 has no part in this collective",
        ],
    )
    assert kinds(step) == [ALL_REDUCE, COMPUTE, ALL_REDUCE]
    np.testing.assert_allclose(step.duration_s, [0, 2e-6, 0])
    assert read_matrix(paths[0], skipped=[]).tolist() == [[0, 16], [8, 0]]
    paths[1].write_bytes(whole[:begin] + b"\x04\xff\xff\xff\xff" + whole[begin:])
    with pytest.raises(om.FormatError, match="damaged"):  # not cut: nothing behind it is sure
        read_step(paths[0], skipped=[])


def test_messages_without_their_other_end(tmp_path: Path) -> None:
    receive = Node(2, RECEIVE, attributes={"comm_src": 0, "comm_size": 8})
    silent = Node(3, SEND, duration_us=6, attributes={"comm_size": 5, "pg_name": "q"})
    first = [
        send(1, comm_dst=1, comm_size=8),
        send(2, comm_dst=1, comm_size=9, comm_tag=4),
        silent,
    ]
    paths = trace(tmp_path, first, [receive], [])
    (tmp_path / "groups.json").write_text(groups_text({"q": [0, 1, 2]}))
    step = leniently(
        paths[0],
        [
            "node 3: its other end is not told; ranks that it could be: none",
            "node 2: rank 1 never receives it",
        ],
        tmp_path / "groups.json",
    )
    assert step.peer.tolist() == [1, -1, -1, 0]
    np.testing.assert_allclose(step.duration_s, [0, 0, 6e-6, 0])
    matrix = read_chakra(paths, groups={"q": [0, 1, 2]}, skipped=[])
    assert matrix.tolist() == [[0, 8, 0], [0, 0, 0], [0, 0, 0]]


def test_a_root_that_is_not_told(tmp_path: Path) -> None:
    paths = trace(tmp_path, *[[collective(1, "GATHER", 8), collective(2, "ALL_REDUCE", 4)]] * 2)
    skipped: list[str] = []
    assert read_chakra(paths, skipped=skipped).tolist() == [[0, 4], [4, 0]]
    assert [line[-51:] for line in skipped] == [
        "collective GATHER: the trace does not tell its root"
    ] * 2
    with pytest.raises(om.FormatError, match="root"):
        read_chakra(paths)


def test_a_circle_of_control_dependencies(tmp_path: Path) -> None:
    """PyTorch's converter writes the operation around as one, and an operation waits for parts."""
    around = node_class()(id=1, type=4, ctrl_deps=[1, 2], duration_micros=3)
    inside = node_class()(id=2, type=4, data_deps=[1], ctrl_deps=[1], duration_micros=4)
    parts = [node.SerializeToString() for node in (around, inside)]
    path = put(
        tmp_path,
        "run.0.et",
        trace_bytes([]) + b"".join(bytes([len(part)]) + part for part in parts),
    )
    step = leniently(
        path,
        [
            "node 1: waits for itself, in a circle of 2 nodes by way of 2:"
            " no control dependency of this file counts"
        ],
    )
    assert (step.dep_start.tolist(), step.dep.tolist()) == ([0, 0, 1], [0])
    (path,) = trace(tmp_path, [Node(1, parents=[2]), Node(2, parents=[1])])
    with pytest.raises(om.FormatError, match="circle"):  # of data: no order is right
        read_step(path, skipped=[])


def test_an_all_to_all_of_uneven_parts(tmp_path: Path) -> None:
    """`all_to_allv`: each sends what it has, and the largest part tells how long it lasts."""
    paths = trace(tmp_path, *[[collective(1, "ALL_TO_ALL", size)] for size in (30, 90, 60)])
    assert read_chakra(paths).tolist() == [[0, 10, 10], [30, 0, 30], [20, 20, 0]]
    step = read_step(paths[0])
    assert kinds(step) == [ALL_TO_ALL] * 3
    assert step.size_bytes.tolist() == [90, 90, 90]


def test_the_commands_say_what_they_leave_out(tmp_path: Path) -> None:
    nodes = [Node(k, parents=[99], duration_us=1) for k in range(22)]
    (path,) = trace(tmp_path, nodes)
    for words in (
        ["rail-trace", "--chakra", path, "--delay", "0.001"],
        ["demand", "--matrix", path, "--delay", "0.001"],
    ):
        out = tmp_path / f"{words[0]}.json"
        refused("waits for node 99", "generate", *words, "-o", out)
        assert not out.exists()
        lenient = call("generate", *words, "--lenient", "-o", out)
        assert lenient.stderr.count("left out: ") == 21
        assert "left out: 22 in all" in lenient.stderr
    job = om.load(tmp_path / "rail-trace.json")
    assert isinstance(job, om.RailJob)
    assert job.workload.recorded is not None
    assert len(job.workload.recorded.skipped) == 22
    refused(
        "--lenient",
        "generate",
        "demand",
        "--model",
        "uniform",
        "--lenient",
        "--delay",
        1,
        "-o",
        out,
    )


def test_sizes_are_told_and_lengths_are_whole(tmp_path: Path) -> None:
    """Two ends without a size do not agree; a length of which a byte is lost is a cut."""
    ends = [[Node(1, SEND, attributes={"comm_dst": 1})]]
    ends += [[Node(1, RECEIVE, attributes={"comm_src": 0})]]
    paths = trace(tmp_path, *ends)
    with pytest.raises(om.FormatError, match="comm_size = -1, and -1 at rank 1"):
        read_step(paths[0])
    (path,) = trace(tmp_path, [Node(1)], name="cut")
    path.write_bytes(path.read_bytes() + b"\x80")
    with pytest.raises(om.FormatError, match="node number 1, after node 1, is cut off"):
        read_step(path)


def test_a_group_without_a_whole_collective_is_named(tmp_path: Path) -> None:
    """Groups that overlap are refused by their first node, also if no collective is left."""
    ranks = [
        [collective(k, "ALL_REDUCE", 8, pg_name=name) for k, name in ((1, "a"), (2, "b"))],
        [],
        [],
    ]
    trace(tmp_path, *ranks)
    groups = put(tmp_path, "groups.json", groups_text({"a": (0, 1), "b": (0, 1, 2)}))
    with pytest.raises(om.FormatError, match=r"run\.0\.et: node 2: rank 0 is in the groups a and"):
        read_step(tmp_path / "run", groups, skipped=[])

"""Demand from Chakra traces: sends of ranks add up, by messages and by collectives."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.io import loads, read_chakra, read_matrix
from optmatch.io.rails.chakra import (
    COMPUTE,
    RECEIVE,
    Node,
    groups_text,
    siblings,
)
from tests.helpers.chakra import collective, send, trace
from tests.helpers.command import call


def test_sends_add_up(tmp_path: Path) -> None:
    first = [send(1, comm_src=0, comm_dst=1, comm_size=300), Node(2, COMPUTE)]
    first += [send(3, comm_dst=2, comm_size=5, comm_tag=7)]
    second = [Node(1, RECEIVE, attributes={"comm_src": 0, "comm_dst": 1, "comm_size": 300})]
    second += [send(2, comm_src=1, comm_dst=0, comm_size=2**40)]
    second += [send(3, comm_src=1, comm_dst=0, comm_size=1)]
    paths = trace(tmp_path, first, second, [])
    wanted = [[0.0, 300.0, 5.0], [2.0**40 + 1, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert read_chakra(paths).tolist() == wanted
    paths[1].write_bytes(gzip.compress(paths[1].read_bytes()))
    trace(tmp_path, first, name="other")
    assert read_matrix(paths[2]).tolist() == wanted
    assert siblings(tmp_path / "run") == paths


@pytest.mark.parametrize(
    ("name", "to_next"),
    [("ALL_REDUCE", 120.0), ("ALL_GATHER", 180.0), ("REDUCE_SCATTER", 60.0), ("BARRIER", 0.0)],
)
def test_rings(tmp_path: Path, name: str, to_next: float) -> None:
    each = [collective(1, name, 90, pg_name="7")]
    paths = trace(tmp_path, [], each, each, each)
    wanted = np.zeros((4, 4))
    wanted[2, 3] = wanted[3, 1] = wanted[1, 2] = to_next
    assert read_chakra(paths, groups={"7": [2, 3, 1]}).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("name", "told"),
    [("BROADCAST", "comm_src"), ("SCATTER", "root"), ("REDUCE", "root"), ("GATHER", "comm_dst")],
)
@settings(max_examples=40)
@given(order=st.permutations(range(4)), n=st.integers(1, 4), which=st.integers(0, 3))
def test_collectives_with_a_root(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    told: str,
    order: list[int],
    n: int,
    which: int,
) -> None:
    members, size = order[:n], 12 * n
    root = members[which % n]
    each = [collective(1, name, size, pg_name="g", **{told: root})]
    ranks = [each if rank in members else [] for rank in range(4)]
    paths = trace(tmp_path_factory.mktemp("trace"), *ranks)
    found = read_chakra(paths, groups={"g": members})
    wanted = np.zeros((4, 4))
    others = [rank for rank in members if rank != root]
    if name in ("BROADCAST", "REDUCE"):
        line = members[members.index(root) :] + members[: members.index(root)]
        line = line[1:] + line[:1] if name == "REDUCE" else line
        wanted[line[:-1], line[1:]] = size
    elif name == "SCATTER":
        wanted[root, others] = size / n
    else:
        wanted[others, root] = size
    assert found.tolist() == wanted.tolist()


def test_sends_without_a_receive_of_their_size_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They count all the same; where a trace has no receives, there is nothing to compare."""
    sends = [send(1, comm_dst=1, comm_size=9), send(2, comm_dst=1, comm_size=4)]
    received: dict[str, int | str] = {"comm_src": 0, "comm_size": 9}
    for attributes, n_warnings in (
        (received, 1),
        ({"comm_size": 9}, 1),
        (received | {"comm_size": 4}, 1),
        (None, 0),
    ):
        caplog.clear()
        receives = [] if attributes is None else [Node(1, RECEIVE, attributes=attributes)]
        found = read_chakra(trace(tmp_path, sends, receives))
        assert found.tolist() == [[0, 13], [0, 0]]
        assert len(caplog.messages) == n_warnings
    read_chakra(trace(tmp_path, sends, [Node(1, RECEIVE, attributes=received)]))
    assert caplog.messages == [
        "1 sends have no receive of the same size, and count all the same; the first is of"
        " 4 bytes from rank 0 to rank 1"
    ]


def test_sends_without_their_destination(tmp_path: Path) -> None:
    groups = {"q": (0, 1, 2)}
    one = [send(1, comm_size=5, comm_tag=1, pg_name="q"), send(2, comm_dst=2, comm_size=7)]
    two = [Node(1, RECEIVE, attributes={"comm_size": 5, "comm_tag": 1, "pg_name": "q"})]
    three = [Node(1, RECEIVE, attributes={"comm_size": 7, "comm_src": 0})]
    found = read_chakra(trace(tmp_path, one, two, three), groups=groups)
    assert found.tolist() == [[0.0, 5.0, 7.0], [0.0] * 3, [0.0] * 3]
    complaint = r"run\.0\.et: node 1: its other end is not told; ranks that it could be: 1, 2"
    paths = trace(tmp_path, one[:1], two, two, one[:1])
    with pytest.raises(om.FormatError, match=complaint):
        read_chakra(paths, groups={"q": range(4)})


def test_an_all_to_all_is_spread_evenly(tmp_path: Path) -> None:
    both = [collective(1, "ALL_TO_ALL", 80)]
    assert read_chakra(trace(tmp_path, both, both)).tolist() == [[0.0, 40.0], [40.0, 0.0]]
    inside = [collective(1, "ALL_TO_ALL", 80, pg_name="a")]
    paths = trace(tmp_path, inside, [], inside)
    found = read_chakra(paths, groups={"a": (0, 2)})
    assert found.tolist() == [[0.0, 0.0, 40.0], [0.0, 0.0, 0.0], [40.0, 0.0, 0.0]]


def test_the_command_reads_them(tmp_path: Path) -> None:
    paths = trace(tmp_path, [send(1, comm_dst=1, comm_size=9)], [])
    result = call("generate", "demand", "--delay", "0", "--matrix", paths[0])
    problem: Any = loads(result.stdout)
    assert problem.demand_bytes.tolist() == [[0.0, 9.0], [0.0, 0.0]]
    both = [collective(1, "ALL_GATHER", 7, pg_name="1")]
    paths = trace(tmp_path, both, both)
    (tmp_path / "groups.json").write_text(groups_text({"1": [0, 1]}))
    options = [
        "--delay",
        "0",
        "--matrix",
        str(paths[0]),
        "--groups",
        str(tmp_path / "groups.json"),
    ]
    result = call("generate", "demand", *options)
    problem = loads(result.stdout)
    assert problem.demand_bytes.tolist() == [[0.0, 7.0], [7.0, 0.0]]


def test_a_group_of_one_needs_no_root(tmp_path: Path) -> None:
    given = [collective(1, "BROADCAST", 80), send(2, comm_dst=0, comm_size=4)]
    paths = trace(tmp_path, given, given)
    with pytest.raises(om.FormatError, match=r"node 1: collective BROADCAST: .* root"):
        read_chakra(paths)
    alone = trace(tmp_path, given, name="alone")
    assert read_chakra(alone).tolist() == [[4.0]]  # a group of one needs no communication

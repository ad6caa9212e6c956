"""Chakra traces: sends and all-to-alls add up, damage is named."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import optmatch as om
from optmatch.cli import main
from optmatch.io import loads, read_chakra, read_matrix

SEND, RECEIVE, COLLECTIVE, COMPUTE = 5, 6, 7, 4


def varint(value: int) -> bytes:
    """Encode a number as protobuf does."""
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def field(number: int, value: int | bytes) -> bytes:
    """Encode a field."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def node(number: int, kind: int, **attributes: int | str) -> bytes:
    """Encode a node with its length; integers as uint64_val, text as string_val."""
    message = field(1, number) + field(2, b"name") + field(3, kind) + field(5, 7) + field(7, 160)
    for name, value in attributes.items():
        coded = field(13, value) if isinstance(value, int) else field(29, value.encode())
        message += field(10, field(1, name.encode()) + coded)
    return varint(len(message)) + message


def trace(folder: Path, *ranks: bytes, name: str = "run") -> list[Path]:
    """Write a file for each rank."""
    metadata = field(1, b"0.0.4")
    paths = []
    for rank, nodes in enumerate(ranks):
        paths.append(folder / f"{name}.{rank}.et")
        paths[-1].write_bytes(varint(len(metadata)) + metadata + nodes)
    return paths


def test_sends_add_up(tmp_path: Path) -> None:
    """Each counts where it is sent; receives and computations do not."""
    first = node(1, SEND, comm_src=0, comm_dst=1, comm_size=300) + node(2, COMPUTE)
    first += node(3, SEND, comm_dst=2, comm_size=5, comm_tag=7)
    second = node(1, RECEIVE, comm_src=0, comm_dst=1, comm_size=300)
    second += node(2, SEND, comm_src=1, comm_dst=0, comm_size=2**40)
    second += node(3, SEND, comm_src=1, comm_dst=0, comm_size=1)
    paths = trace(tmp_path, first, second, b"")
    wanted = [[0.0, 300.0, 5.0], [2.0**40 + 1, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert read_chakra(paths).tolist() == wanted
    paths[1].write_bytes(gzip.compress(paths[1].read_bytes()))
    trace(tmp_path, first, name="other")
    assert read_matrix(paths[2]).tolist() == wanted


def test_an_all_to_all_is_spread_evenly(tmp_path: Path) -> None:
    """What a rank keeps for itself is no demand."""
    both = [node(1, COLLECTIVE, comm_type=6, comm_size=80)] * 2
    assert read_chakra(trace(tmp_path, *both)).tolist() == [[0.0, 40.0], [40.0, 0.0]]


def test_the_command_reads_them(tmp_path: Path) -> None:
    """By the file of any rank."""
    paths = trace(tmp_path, node(1, SEND, comm_dst=1, comm_size=9), b"")
    result = CliRunner().invoke(main, ["generate", "demand", "--matrix", str(paths[0])])
    assert result.exit_code == 0, result.output
    problem: Any = loads(result.stdout)
    assert problem.demand_bytes.tolist() == [[0.0, 9.0], [0.0, 0.0]]


def test_other_collectives_depend_on_their_algorithm(tmp_path: Path) -> None:
    """Refused, or left out where the caller says so."""
    nodes = node(1, COLLECTIVE, comm_type=0, comm_size=80)
    nodes += node(2, SEND, comm_dst=0, comm_size=4)
    paths = trace(tmp_path, nodes)
    with pytest.raises(om.FormatError, match="node 1: collective ALL_REDUCE"):
        read_chakra(paths)
    assert read_chakra(paths, skip_collectives=True).tolist() == [[4.0]]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (node(8, SEND, comm_dst=1), "node 8: rank 1: ranks are 0 .. 0"),
        (node(8, SEND, comm_size=1), "node 8: comm_dst is missing"),
        (node(8, SEND, comm_dst=0, comm_size="big"), "node 8: comm_size is missing or no whole"),
        (node(8, COLLECTIVE, comm_type=6, comm_size=1, pg_name="2"), "node 8: all-to-all of a g"),
        (node(8, COMPUTE)[:-3], "cut off"),
        (b"\x80", "no number of protobuf"),
        (b"\x02\x0b\x00", "wire type 3: not a Chakra trace"),
        (b"\x03\x12\x7f\x00", "a field is cut off"),
        (b"\x04\x18\x05\x50\x01", "an attribute is no message"),
    ],
)
def test_damage_is_named(tmp_path: Path, nodes: bytes, message: str) -> None:
    """File and node."""
    paths = trace(tmp_path, nodes)
    with pytest.raises(om.FormatError, match=message) as caught:
        read_chakra(paths)
    assert str(paths[0]) in str(caught.value)


def test_ranks_must_be_complete(tmp_path: Path) -> None:
    """From 0 on, each with a file named after it."""
    paths = trace(tmp_path, b"", b"")
    with pytest.raises(om.FormatError, match=r"ranks \[1\]: a file for each of 0 .. 0"):
        read_chakra(paths[1:])
    with pytest.raises(om.FormatError, match=r"named name.RANK.et"):
        read_matrix(tmp_path / "trace.et")
    with pytest.raises(om.FormatError, match="cannot be read"):
        read_chakra([tmp_path / "none.0.et"])

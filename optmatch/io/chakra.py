"""Demand from Chakra execution traces: who sends how many bytes to whom, over a whole trace."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from optmatch.model import FormatError

_SEND, _COLLECTIVE = 5, 7  # types of nodes
_ALL_TO_ALL = 6  # a type of collective
_COLLECTIVES = (
    *("ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL"),
    *("REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"),
)
_VARINTS = (7, 9, 11, 13)  # attribute values that are plain integers: int32 .. uint64
_MASK = 2**64 - 1

Value = int | bytes


def read_chakra(
    paths: Sequence[str | os.PathLike[str]], *, skip_collectives: bool = False
) -> NDArray[np.float64]:
    """Add up what the ranks of a trace send.

    Parameters
    ----------
    paths
        A file for each rank, ``name.RANK.et``, perhaps gzipped.
    skip_collectives
        Whether collectives other than all-to-all are left out; else they are refused, as it
        depends on their algorithm who sends to whom.

    Returns
    -------
    NDArray
        ``matrix[source, destination]`` in bytes, float64. A send counts with its ``comm_size``; an
        all-to-all spreads its ``comm_size`` evenly over all ranks, one's own included.

    Raises
    ------
    FormatError
        Naming file and node: a file cut off, a node without size or partner, a rank that is none.
    """
    ranks = {_rank(path): os.fspath(path) for path in paths}
    if sorted(ranks) != list(range(len(paths))):
        raise FormatError(f"ranks {sorted(ranks)}: a file for each of 0 .. {len(paths) - 1}")
    matrix = np.zeros((len(ranks), len(ranks)))
    for rank, path in ranks.items():
        messages = _messages(_content(path), path)
        next(messages, None)  # what describes the trace as a whole
        for message in messages:
            node = list(_fields(message, path))
            kind = next((value for number, value in node if number == 3), 0)
            if kind in (_SEND, _COLLECTIVE):
                _add(matrix, rank, kind, node, path, skip_collectives)
    return matrix


def siblings(path: str | os.PathLike[str]) -> list[Path]:
    """Find the files of all ranks beside the file of one."""
    name = Path(path).name
    stem, suffix = name[: name.rindex(f".{_rank(path)}.et")], ".et"
    pattern = re.compile(re.escape(stem) + r"\.\d+" + re.escape(suffix))
    return sorted(p for p in Path(path).parent.iterdir() if pattern.fullmatch(p.name))


def _rank(path: str | os.PathLike[str]) -> int:
    found = re.search(r"\.(\d+)\.et$", os.fspath(path))
    if found is None:
        raise FormatError("a trace is named name.RANK.et", path=os.fspath(path))
    return int(found[1])


def _add(
    matrix: NDArray[np.float64],
    rank: int,
    kind: Value,
    node: list[tuple[int, Value]],
    path: str,
    skip_collectives: bool,
) -> None:
    place = f"node {next((value for number, value in node if number == 1), '?')!r}"
    attributes = dict(_attribute(value, path) for number, value in node if number == 10)

    def needed(name: str) -> int:
        value = attributes.get(name)
        if not isinstance(value, int):
            raise FormatError(f"{name} is missing or no whole number", where=place, path=path)
        return value

    if kind == _SEND:
        source = needed("comm_src") if "comm_src" in attributes else rank
        destination = needed("comm_dst")
        for port in (source, destination):
            if not 0 <= port < len(matrix):
                raise FormatError(
                    f"rank {port}: ranks are 0 .. {len(matrix) - 1}", where=place, path=path
                )
        matrix[source, destination] += needed("comm_size")
        return
    collective = needed("comm_type")
    if collective == _ALL_TO_ALL:
        if attributes.get("pg_name"):
            raise FormatError("all-to-all of a group of ranks", where=place, path=path)
        matrix[rank] += needed("comm_size") / len(matrix)
        matrix[rank, rank] -= needed("comm_size") / len(matrix)
    elif not skip_collectives:
        name = _COLLECTIVES[collective] if collective < len(_COLLECTIVES) else str(collective)
        raise FormatError(
            f"collective {name}: who sends to whom depends on its algorithm",
            where=place,
            path=path,
        )


def _content(path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError, zlib.error) as exc:
        raise FormatError(f"cannot be read: {exc}", path=path) from exc


def _messages(content: bytes, path: str) -> Iterator[bytes]:
    """Split what is a length and a message, again and again."""
    at = 0
    while at < len(content):
        length, at = _varint(content, at, path)
        if at + length > len(content):
            raise FormatError(f"byte {at}: cut off", path=path)
        yield content[at : at + length]
        at += length


def _fields(message: bytes, path: str) -> Iterator[tuple[int, Value]]:
    """Yield number and value of each field of a protobuf message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at, path)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(message, at, path)
            yield number, value
            continue
        if wire not in (1, 2, 5):
            raise FormatError(f"wire type {wire}: not a Chakra trace", path=path)
        length = {1: 8, 5: 4}.get(wire, 0)
        if wire == 2:
            length, at = _varint(message, at, path)
        if at + length > len(message):
            raise FormatError("a field is cut off", path=path)
        yield number, message[at : at + length]
        at += length


def _attribute(value: Value, path: str) -> tuple[str, Value]:
    """Return name and value of an attribute; of those that are no integers the bytes."""
    if not isinstance(value, bytes):
        raise FormatError("an attribute is no message: not a Chakra trace", path=path)
    name = ""
    found: Value = b""
    for number, part in _fields(value, path):
        if number == 1 and isinstance(part, bytes):
            name = part.decode("utf-8", "replace")
        elif number in _VARINTS and isinstance(part, int):
            found = part
        elif number > 2:
            found = part if isinstance(part, bytes) else b""
    return name, found


def _varint(content: bytes, at: int, path: str) -> tuple[int, int]:
    value = shift = 0
    while at < len(content) and shift < 70:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value & _MASK, at
    raise FormatError(f"byte {at}: no number of protobuf", path=path)

"""Chakra execution traces: what each rank of a job computes and sends, node by node."""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.chakra_schema import messages
from optmatch.model import FormatError

MISSING = -1
"""In a column: the node does not say."""

_LARGEST = 2**63

_ATTRIBUTES = (
    *("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "pg_name"),
    *("num_ops", "tensor_size"),
)
_PLACE = {name.encode(): k for k, name in enumerate(_ATTRIBUTES)}
_GROUP = _ATTRIBUTES.index("pg_name")
_MOST_ATTRIBUTES = 1 << 16
"""So many different ones are remembered; a trace has a few hundred, unless its tags are unique."""

Integers = NDArray[np.int64]


class Trace(NamedTuple):
    """The nodes of one rank in columns, in the order of the file; `MISSING` where absent."""

    path: str
    rank: int
    node_id: NDArray[np.uint64]
    kind: NDArray[np.int8]
    start_us: Integers
    duration_us: Integers | NDArray[np.float64]
    parents: Integers
    """Places of the nodes that a node waits for; of node k from ``first_parent[k]`` on."""
    first_parent: Integers
    """One entry more than there are nodes."""
    collective: NDArray[np.int8]
    """The type of a collective, a place in `COLLECTIVES`."""
    size_bytes: Integers
    source: Integers
    destination: Integers
    tag: Integers
    group: NDArray[np.int32]
    """A place in `group_names`."""
    operations: Integers
    """Floating-point operations of a computation."""
    tensor_bytes: Integers
    group_names: tuple[str, ...]
    noun: str = "node"
    """What messages call a node."""

    def place(self, node: int) -> str:
        """Return what messages call one node."""
        return f"{self.noun} {int(self.node_id[node])}"

    def fail(self, node: int, message: str) -> FormatError:
        """Return an error about a node."""
        return FormatError(message, where=self.place(node), path=self.path)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read the trace of one rank.

    Parameters
    ----------
    path
        ``name.RANK.et``, perhaps gzipped: messages of protobuf, each with its length in front,
        first what describes the trace, then its nodes.

    Returns
    -------
    Trace
        All nodes. Integers may have any width that protobuf knows.

    Raises
    ------
    FormatError
        Naming file, node and byte: a trace that is cut off or no trace, a node twice, a
        dependency on a node that is not there, a size that is no whole number.
    SolverUnavailable
        If protobuf is not installed.

    Notes
    -----
    About 3 us and 130 bytes of memory for a node.
    """
    file = os.fspath(path)
    rank = rank_of(path)
    columns = _Columns()
    _read_nodes(_content(file), file, columns)
    return columns.finish(file, rank)


def read_traces(paths: Sequence[str | os.PathLike[str]]) -> list[Trace]:
    """Read the traces of all ranks, in the order of ranks.

    Raises
    ------
    FormatError
        If the ranks are not 0, 1, 2 and so on, or a file is damaged.
    """
    ranks = {rank_of(path): path for path in paths}
    if sorted(ranks) != list(range(len(paths))):
        raise FormatError(f"ranks {sorted(ranks)}: a file for each of 0 .. {len(paths) - 1}")
    return [read_trace(ranks[rank]) for rank in range(len(ranks))]


def siblings(path: str | os.PathLike[str]) -> list[Path]:
    """Find the files of all ranks beside the file of one, or those that begin with a prefix.

    Parameters
    ----------
    path
        ``folder/name.RANK.et``, or ``folder/name``.

    Raises
    ------
    FormatError
        If there is none.
    """
    name = Path(path).name
    stem = name[: name.rindex(f".{rank_of(path)}.et")] if name.endswith(".et") else name
    pattern = re.compile(re.escape(stem) + r"\.\d+\.et")
    folder = Path(path).parent
    found = [p for p in folder.iterdir() if pattern.fullmatch(p.name)] if folder.is_dir() else []
    if not found:
        raise FormatError("no file name.RANK.et is there", path=os.fspath(path))
    return sorted(found)


def rank_of(path: str | os.PathLike[str]) -> int:
    """Return the rank that the name of a trace has in it."""
    found = re.search(r"\.(\d+)\.et$", os.fspath(path))
    if found is None:
        raise FormatError("a trace is named name.RANK.et", path=os.fspath(path))
    return int(found[1])


class _Attributes(dict[bytes, tuple[int, ...]]):
    """Attributes by their bytes: place of the name and value; nothing for names not known."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, int] = {}
        self._parse = messages().attribute.FromString

    def __missing__(self, raw: bytes) -> tuple[int, ...]:
        parsed = self._parse(raw)
        place = _PLACE.get(parsed.name)
        found: tuple[int, ...] = ()
        if place is not None:
            value = parsed.int64_val or parsed.uint64_val or parsed.int32_val  # most are these
            usual = 0 < value < _LARGEST and place != _GROUP
            found = (place, value if usual else self._convert(parsed, _ATTRIBUTES[place]))
        if len(self) >= _MOST_ATTRIBUTES:
            self.clear()
        self[raw] = found
        return found

    def _convert(self, parsed: Any, name: str) -> int:
        """Return a number of any width, of a group its place; refuse what is no whole number."""
        width = parsed.WhichOneof("value")
        value = getattr(parsed, width) if width else None
        if name == "pg_name" and value is not None:
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            return self.groups.setdefault(text, len(self.groups)) if text else MISSING
        if isinstance(value, bool) or not isinstance(value, int):
            raise FormatError(f"{name} = {value!r}: a whole number is expected")
        if abs(value) >= _LARGEST:
            raise FormatError(f"{name} = {value}: numbers are below 2**63")
        return value


class _Columns:
    """Columns that grow; rows of attributes only for nodes that have one of those we know."""

    def __init__(self) -> None:
        self.node_id: list[int] = []
        self.kind: list[int] = []
        self.start: list[int] = []
        self.duration: list[int] = []
        self.parents: list[int] = []
        self.first_parent: list[int] = [0]
        self.told: list[int] = []  # place of an attribute, value; and again
        self.first_told: list[int] = [0]
        self.attributes = _Attributes()

    def add(self, node: Any) -> None:
        """Append a node. Empty lists are left out before they are copied, which takes longer."""
        told, attributes = self.told, self.attributes
        for raw in node.attr:
            told += attributes[raw]
        self.first_told.append(len(told))
        if parents := node.data_deps:
            self.parents += parents[:]
        if parents := node.ctrl_deps:
            self.parents += parents[:]
        self.first_parent.append(len(self.parents))
        self.node_id.append(node.id)
        self.kind.append(node.type)
        self.start.append(node.start_time_micros)
        self.duration.append(node.duration_micros)

    def finish(self, path: str, rank: int) -> Trace:
        """Turn the lists into arrays; dependencies become places."""
        ids = np.array(self.node_id, dtype=np.uint64)
        first_parent = np.array(self.first_parent, dtype=np.int64)
        attribute, value = np.array(self.told, dtype=np.int64).reshape(-1, 2).T
        node = np.repeat(np.arange(len(ids)), np.diff(self.first_told) // 2)
        table = np.full((len(_ATTRIBUTES), len(ids)), MISSING, dtype=np.int64)
        table[attribute, node] = value
        return Trace(
            path=path,
            rank=rank,
            node_id=ids,
            kind=np.array(self.kind, dtype=np.int8),
            start_us=np.array(self.start, dtype=np.int64),
            duration_us=np.array(self.duration, dtype=np.int64),
            parents=_places(ids, np.array(self.parents, dtype=np.uint64), first_parent, path),
            first_parent=first_parent,
            collective=table[0].astype(np.int8),
            size_bytes=table[1],
            source=table[2],
            destination=table[3],
            tag=table[4],
            group=table[5].astype(np.int32),
            operations=table[6],
            tensor_bytes=table[7],
            group_names=tuple(self.attributes.groups),
        )


def _read_nodes(content: bytes, path: str, columns: _Columns) -> None:
    from google.protobuf.message import DecodeError
    from google.protobuf.proto import parse_length_prefixed

    stream, kind, at = io.BytesIO(content), messages().node, 0
    node = None
    try:
        # What describes the trace has no number and no type; parsed as a node, neither is there.
        first = parse_length_prefixed(kind, stream)
        if first is None or first.type or first.id:
            raise FormatError("byte 0: a trace begins with what describes it", path=path)
        at = stream.tell()
        while (node := parse_length_prefixed(kind, stream)) is not None:
            columns.add(node)
            at = stream.tell()
    except FormatError as exc:
        exc.path, exc.where = path, f"node {node.id}" if node is not None else ""
        raise
    except (DecodeError, EOFError, ValueError, MemoryError) as exc:
        number, ended = len(columns.node_id), stream.tell() == len(content)
        flaw = "is cut off" if ended else "is damaged, or this is no Chakra trace"
        after = f", after node {columns.node_id[-1]}," if number else ""
        raise FormatError(f"byte {at}: node number {number}{after} {flaw}", path=path) from exc


def _places(
    ids: NDArray[np.uint64], wanted: NDArray[np.uint64], first: Integers, path: str
) -> Integers:
    """Find the place of each wanted node."""
    order = np.argsort(ids, kind="stable")
    ranked = ids[order]
    for k in np.flatnonzero(ranked[1:] == ranked[:-1])[:1]:
        raise FormatError("is there twice", where=f"node {ranked[k]}", path=path)
    found = np.searchsorted(ranked, wanted)
    known = found < len(ids)
    known[known] = ranked[found[known]] == wanted[known]
    for k in np.flatnonzero(~known)[:1]:
        node = ids[np.searchsorted(first, k, side="right") - 1]
        raise FormatError(
            f"waits for node {wanted[k]}, which is not there", where=f"node {node}", path=path
        )
    return order[found].astype(np.int64)


def _content(path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError, zlib.error) as exc:
        raise FormatError(f"cannot be read: {exc}", path=path) from exc

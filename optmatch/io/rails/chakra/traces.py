"""Chakra execution traces: the computations and sends of each rank of a job, node by node."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.contents import read_bytes, unzip
from optmatch.io.rails.chakra.messages import (
    ATTRIBUTES,
    COLLECTIVE,
    COLLECTIVES,
    COMPUTE,
    LARGEST,
    RECEIVE,
    SEND,
    messages,
)
from optmatch.io.rails.chakra.writer import is_json_trace, json_nodes, trace_bytes
from optmatch.model import FormatError
from optmatch.model.files import path_name

MISSING = -1
"""In a column: the node does not say."""

Integers = NDArray[np.int64]

_NAME = re.compile(r"(?P<stem>.*)\.(?P<rank>\d+)\.(?P<ending>et|json)")


class Trace(NamedTuple):
    """The nodes of one rank in columns, in the order of the file; `MISSING` where absent."""

    path: str
    rank: int
    node_id: NDArray[np.uint64]
    kind: Integers
    duration_us: Integers | NDArray[np.float64]
    parents: Any
    """Places of the nodes that a node waits for; of node k from ``first_parent[k]`` on."""
    first_parent: Integers
    """One entry more than there are nodes."""
    collective: Integers
    """The type of a collective, a place in `COLLECTIVES`."""
    size_bytes: Integers
    source: Integers
    destination: Integers
    tag: Integers
    group: Integers
    """A place in `group_names`."""
    operations: Integers
    """Floating-point operations of a computation."""
    root: Integers
    """A rank, of collectives; producers that tell it at all may do so otherwise: `roots_of`."""
    group_names: tuple[str, ...]
    first_control: Integers | None = None
    """From ``first_control[k]`` on, what node k waits for stands in its `ctrl_deps`."""
    noun: str = "node"
    """The name of a node in messages."""
    skipped: list[str] | None = None
    """The parts that were left out, and why; None if none may be: then such a part is an error."""

    def place(self, node: int) -> str:
        """Return the name of one node in messages."""
        return f"{self.noun} {int(self.node_id[node])}"

    def fail(self, node: int, message: str) -> FormatError:
        """Return an error about a node."""
        return FormatError(message, where=self.place(node), path=self.path)

    def keep_parents(self, kept: NDArray[np.bool_]) -> Trace:
        """Return the trace with some of its dependencies."""
        before = np.concatenate([[0], np.cumsum(kept)])
        first_control = None if self.first_control is None else before[self.first_control]
        return self._replace(
            parents=self.parents[kept],
            first_parent=before[self.first_parent],
            first_control=first_control,
        )

    def skip(self, node: int, message: str) -> None:
        """Note that something of a node is left out; refuse it where nothing may be."""
        if self.skipped is None:
            raise self.fail(node, message)
        self.skipped.append(str(self.fail(node, message)))


class Nodes(NamedTuple):
    """Nodes of all ranks, those of a rank side by side."""

    traces: Sequence[Trace]
    rank: Integers
    node: Integers
    """``node[k]``: its place in the trace of its rank."""

    @classmethod
    def of(cls, traces: Sequence[Trace], chosen: Sequence[Integers]) -> Nodes:
        """Put the chosen nodes of each trace together."""
        rank = np.repeat(np.arange(len(traces)), [len(nodes) for nodes in chosen])
        return cls(traces, rank, np.concatenate([*chosen, np.zeros(0, dtype=np.int64)]))

    def take(self, at: Integers) -> Nodes:
        """Return some of them."""
        return Nodes(self.traces, self.rank[at], self.node[at])

    def column(self, name: str) -> NDArray[Any]:
        """Return a column of the traces."""
        counts = [len(trace.node_id) for trace in self.traces]
        first = np.cumsum([0, *counts])
        columns = [getattr(self.traces[k], name) for k, count in enumerate(counts) if count]
        joined = np.concatenate([*columns, np.zeros(0, dtype=np.int64)])
        chosen: NDArray[Any] = joined[first[self.rank] + self.node]
        return chosen

    def group_name(self, k: int) -> str:
        """Return the name of the group of a node, nothing if it has none."""
        trace = self.traces[int(self.rank[k])]
        group = int(trace.group[self.node[k]])
        return "" if group == MISSING else trace.group_names[group]

    def place(self, k: int) -> str:
        """Return the name of a node in messages."""
        return self.traces[int(self.rank[k])].place(int(self.node[k]))

    def fail(self, k: int, message: str) -> FormatError:
        """Return an error about a node."""
        return self.traces[int(self.rank[k])].fail(int(self.node[k]), message)

    def skip(self, k: int, message: str) -> None:
        """Note that something of a node is left out, or refuse it: see `Trace.skip`."""
        self.traces[int(self.rank[k])].skip(int(self.node[k]), message)


def alike(*columns: Integers) -> list[Integers]:
    """Group the places at which all columns are equal, in the order of their entries."""
    order = np.lexsort(columns[::-1])
    table = np.stack(columns)[:, order]
    new = np.flatnonzero((table[:, 1:] != table[:, :-1]).any(axis=0))
    return np.split(order, new + 1) if len(order) else []


def read_trace(path: str | os.PathLike[str], *, skipped: list[str] | None = None) -> Trace:
    """Read the trace of one rank.

    The file is ``name.RANK.et``, perhaps gzipped: messages of protobuf, each with its length in
    front, first what describes the trace, then its nodes; integers may have any width that
    protobuf knows. Or it is ``name.RANK.json``, see `json_nodes`.

    With a list as `skipped`, a cut trace is read as far as it goes. What is left out is added to
    the list: what is behind the end of the file, dependencies on nodes that are not there, and
    communication without its kind or size, which becomes computation of the time that it took.

    About 5 us for a node, and 200 bytes of memory.
    """
    file, content = path_name(path), _content(path)
    rank, _, _ = _parts(path)
    if file.endswith(".json"):  # the same messages, then, and the same checks
        content = trace_bytes(json_nodes(content, file))
    trace = _find_parents(decode_nodes(content, file, rank, skipped))
    return trace if skipped is None else _without_attributes(trace)


def read_traces(
    paths: Sequence[str | os.PathLike[str]], *, skipped: list[str] | None = None
) -> list[Trace]:
    """Read the traces of all ranks, in the order of ranks; `skipped` as in `read_trace`."""
    ranks = {_parts(path)[0]: path for path in paths}
    if sorted(ranks) != list(range(len(paths))):
        raise FormatError(f"ranks {sorted(ranks)}: a file for each of 0 .. {len(paths) - 1}")
    return [read_trace(ranks[rank], skipped=skipped) for rank in range(len(ranks))]


def siblings(path: str | os.PathLike[str]) -> list[Path]:
    """Find the files of all ranks beside the file of one, or those that begin with a prefix.

    `path` is ``folder/name.RANK.et`` or ``.json``, or ``folder/name``: then those in JSON count
    only where there is no other. If no file fits, `FormatError` is raised.
    """
    stem, endings = Path(path).name, ["et", "json"]
    if stem.endswith((".et", ".json")):
        _, stem, ending = _parts(path)
        endings = [ending]
    folder = Path(path).parent
    names = [_NAME.fullmatch(p.name) for p in folder.iterdir()] if folder.is_dir() else []
    for ending in endings:
        beside = [m[0] for m in names if m and m["stem"] == stem and m["ending"] == ending]
        if beside:
            return sorted(folder / one for one in beside)
    raise FormatError("no file name.RANK.et is there", path=path_name(path))


def is_trace(path: str | os.PathLike[str]) -> bool:
    """Tell a trace from other files: by its ending, of JSON by what it says."""
    name = Path(path).name
    if not name.endswith(".json"):
        return name.endswith(".et")
    return _NAME.fullmatch(name) is not None and is_json_trace(_content(path))


def decode_nodes(content: bytes, path: str, rank: int, skipped: list[str] | None = None) -> Trace:
    """Decode the messages of a trace, each with its length in front: a description, then nodes.

    `parents` of the result are still numbers of nodes as in the file.
    """
    from google.protobuf.message import DecodeError

    parse, groups = messages().node.FromString, dict[str, int]()
    ids, parents, first_parent, told = array("Q"), array("Q"), array("q", [0]), array("q")
    first_control = array("q")
    places = {name.encode(): place for place, name in enumerate(ATTRIBUTES)}
    blank = [MISSING] * len(ATTRIBUTES)
    end = _skip_metadata(content, path)
    while end < len(content):
        begin = end
        start, end = _next_message(content, begin)
        try:
            if end > len(content):
                raise DecodeError
            node = parse(content[start:end])
        except DecodeError as exc:
            after = f", after node {ids[-1]}," if ids else ""
            cut = end >= len(content)
            flaw = "is cut off" if cut else "is damaged, or this is no Chakra trace"
            message = f"byte {begin}: node number {len(ids)}{after} {flaw}"
            error = FormatError(message, path=path)
            if skipped is None or not cut:
                raise error from exc
            skipped.append(str(error))
            break
        row = [*blank, min(node.type, 127), node.duration_micros]  # unknown types stay unknown
        try:
            for attribute in node.attr:  # of a field that is there twice, the last one counts
                place = places.get(attribute.name)
                if place is not None:
                    row[place] = _read_attribute(attribute, groups)
            if node.duration_micros >= LARGEST:
                given = node.duration_micros
                raise FormatError(f"duration_micros = {given}: numbers are below 2**63")
        except FormatError as exc:
            raise FormatError(str(exc), where=f"node {node.id}", path=path) from None
        ids.append(node.id)
        told.extend(row)
        parents.extend(node.data_deps)
        first_control.append(len(parents))
        parents.extend(node.ctrl_deps)
        first_parent.append(len(parents))
    table = np.array(told, dtype=np.int64).reshape(-1, len(blank) + 2).T.copy()
    columns: dict[str, Any] = dict(
        zip((*ATTRIBUTES.values(), "kind", "duration_us"), table, strict=True)
    )
    return Trace(
        path=path,
        rank=rank,
        node_id=np.array(ids, dtype=np.uint64),
        parents=np.array(parents, dtype=np.uint64),
        first_parent=np.array(first_parent, dtype=np.int64),
        first_control=np.array(first_control, dtype=np.int64),
        group_names=tuple(groups),
        skipped=skipped,
        **columns,
    )


def _next_message(content: bytes, at: int) -> tuple[int, int]:
    """Return where the message at a byte begins behind its length, and where it ends."""
    size = shift = 0
    while at < len(content) and shift < 64:
        size |= (content[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if content[at - 1] < 128:
            return at, at + size
    return at, len(content) + 1  # no length, or not all of it


def _skip_metadata(content: bytes, path: str) -> int:
    """Return where the nodes begin: behind a message without the number and type of a node."""
    from google.protobuf.message import DecodeError

    start, end = _next_message(content, 0)
    try:
        node: Any = messages().node.FromString(content[start:end])
        if end <= len(content) and not (node.id or node.type):
            return end
    except DecodeError:
        pass
    raise FormatError("byte 0: a trace begins with a description of it", path=path)


def _read_attribute(told: Any, groups: dict[str, int]) -> int:
    """Return the value of an attribute; the number of the group of one that names it."""
    width = told.WhichOneof("value")
    value, name = getattr(told, width) if width else None, told.name.decode()
    if name == "pg_name" and value is not None:
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        return groups.setdefault(text, len(groups)) if text else MISSING
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"{name} = {value!r}: a whole number is expected")
    if abs(value) >= LARGEST:
        raise FormatError(f"{name} = {value}: numbers are below 2**63")
    return value


def _parts(path: str | os.PathLike[str]) -> tuple[int, str, str]:
    """Split the name of a trace into its rank, what stands before, and its ending."""
    found = _NAME.fullmatch(Path(path).name)
    if found is None:
        raise FormatError("a trace is named name.RANK.et or .json", path=path_name(path))
    return int(found["rank"]), found["stem"], found["ending"]


def _find_parents(trace: Trace) -> Trace:
    """Find the place of each node that another one waits for."""
    ids, wanted, path = trace.node_id, trace.parents, trace.path
    order = np.argsort(ids, kind="stable")
    ranked = ids[order]
    for k in np.flatnonzero(ranked[1:] == ranked[:-1])[:1]:
        raise FormatError("is there twice", where=f"node {ranked[k]}", path=path)
    found = np.searchsorted(ranked, wanted)
    known = found < len(ids)
    known[known] = ranked[found[known]] == wanted[known]
    for k in np.flatnonzero(~known).tolist():
        node = int(np.searchsorted(trace.first_parent, k, side="right")) - 1
        trace.skip(node, f"waits for node {wanted[k]}, which is not there")
    return trace.keep_parents(known)._replace(parents=order[found[known]].astype(np.int64))


def _without_attributes(trace: Trace) -> Trace:
    """Let communication without its kind or size be computation."""
    kind, types = trace.kind.copy(), trace.collective
    collective, message = kind == COLLECTIVE, (kind == SEND) | (kind == RECEIVE)
    untyped = collective & ((types < 0) | (types >= len(COLLECTIVES)))
    barrier = collective & (types == COLLECTIVES.index("BARRIER"))
    unsized = (collective | message) & ~untyped & ~barrier & (trace.size_bytes < 0)
    for nodes, name in ((untyped, "comm_type"), (unsized, "comm_size")):
        for node in np.flatnonzero(nodes).tolist():
            trace.skip(node, f"{name} is missing or out of range: taken as computation")
    kind[untyped | unsized] = COMPUTE
    return trace._replace(kind=kind)


def _content(path: str | os.PathLike[str]) -> bytes:
    return unzip(read_bytes(path), path_name(path))

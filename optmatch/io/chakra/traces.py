"""Chakra execution traces: what each rank of a job computes and sends, node by node."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.chakra.columns import ATTRIBUTES, Columns, Integers, decode_nodes
from optmatch.io.chakra.json_nodes import is_json_trace, json_nodes
from optmatch.io.chakra.writer import trace_bytes
from optmatch.model import FormatError

_NAME = re.compile(r"(?P<stem>.*)\.(?P<rank>\d+)\.(?P<ending>et|json)")


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
    root: Integers
    """A rank, of collectives; producers that tell it at all may do so otherwise: `roots_of`."""
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
        first what describes the trace, then its nodes; or ``name.RANK.json``, see `json_nodes`.

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
    About 4 us for a node, 6 us where each has attributes of its own, and 200 bytes of memory.
    """
    file = os.fspath(path)
    rank = rank_of(path)
    content = _content(file)
    if file.endswith(".json"):  # the same messages, then, and the same checks
        content = trace_bytes(json_nodes(content, file))
    return _trace(decode_nodes(content, file), file, rank)


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
        ``folder/name.RANK.et`` or ``.json``, or ``folder/name``: then those in JSON count only
        where there is no other.

    Raises
    ------
    FormatError
        If there is none.
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
    raise FormatError("no file name.RANK.et is there", path=os.fspath(path))


def rank_of(path: str | os.PathLike[str]) -> int:
    """Return the rank that the name of a trace has in it."""
    return _parts(path)[0]


def is_trace(path: str | os.PathLike[str]) -> bool:
    """Tell a trace from other files: by its ending, of JSON by what it says."""
    name = Path(path).name
    if not name.endswith(".json"):
        return name.endswith(".et")
    return _NAME.fullmatch(name) is not None and is_json_trace(_content(os.fspath(path)))


def _parts(path: str | os.PathLike[str]) -> tuple[int, str, str]:
    """Split the name of a trace into its rank, what stands before, and its ending."""
    found = _NAME.fullmatch(Path(path).name)
    if found is None:
        raise FormatError("a trace is named name.RANK.et or .json", path=os.fspath(path))
    return int(found["rank"]), found["stem"], found["ending"]


def _trace(columns: Columns, path: str, rank: int) -> Trace:
    """Make a trace of columns; dependencies become places, times whole numbers with a sign."""
    ids, first = columns.node_id, columns.first_parent
    for name, times in (("start", columns.start_us), ("duration", columns.duration_us)):
        for k in np.flatnonzero(times >= np.uint64(2**63))[:1]:
            raise FormatError(
                f"{name}_micros = {times[k]}: numbers are below 2**63",
                where=f"node {ids[k]}",
                path=path,
            )
    told = dict(zip(ATTRIBUTES, columns.told, strict=True))
    return Trace(
        path=path,
        rank=rank,
        node_id=ids,
        kind=np.minimum(columns.kind, 127).astype(np.int8),  # what we do not know stays unknown
        start_us=columns.start_us.astype(np.int64),
        duration_us=columns.duration_us.astype(np.int64),
        parents=_places(ids, columns.parents, first, path),
        first_parent=first,
        collective=told["comm_type"].clip(-1, 127).astype(np.int8),
        size_bytes=told["comm_size"],
        source=told["comm_src"],
        destination=told["comm_dst"],
        tag=told["comm_tag"],
        group=told["pg_name"].astype(np.int32),
        operations=told["num_ops"],
        tensor_bytes=told["tensor_size"],
        root=told["root"],
        group_names=columns.groups,
    )


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

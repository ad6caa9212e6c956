"""Nodes of Chakra traces in columns, decoded message by message."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.chakra.messages import messages
from optmatch.model import FormatError

MISSING = -1
"""In a column: the node does not say."""
ATTRIBUTES = (
    *("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "pg_name"),
    *("num_ops", "tensor_size", "root"),
)
"""The attributes that matter here, by their row in `Columns.told`."""
LARGEST = 2**63
"""Attributes and times are below this."""
MOST_ATTRIBUTES = 1 << 16
"""So many different ones are remembered; a trace has a few hundred, unless its tags are unique."""

Integers = NDArray[np.int64]
_Words = NDArray[np.uint64]

_ROW = {name.encode(): k for k, name in enumerate(ATTRIBUTES)}
_GROUP = ATTRIBUTES.index("pg_name")


class Columns(NamedTuple):
    """Nodes in columns, in the order of the file; numbers of nodes as in the file."""

    node_id: _Words
    kind: _Words
    start_us: _Words
    duration_us: _Words
    parents: _Words
    first_parent: Integers
    """Node k waits for ``parents[first_parent[k]:first_parent[k + 1]]``."""
    told: Integers
    """``told[attribute, node]``, attributes as in `ATTRIBUTES`; `MISSING` where absent."""
    groups: tuple[str, ...]
    """Names of groups, by the number that an attribute ``pg_name`` has."""


def decode_nodes(content: bytes, path: str) -> Columns:
    """Decode the messages of a trace.

    Parameters
    ----------
    content
        Messages, each with its length in front: first what describes the trace, then its nodes.
    path
        The file, for messages about flaws.

    Raises
    ------
    FormatError
        Naming file, byte and node: a trace that is cut off or no trace, an attribute whose value
        is no whole number.
    """
    from google.protobuf.message import DecodeError

    parse = messages().node.FromString
    numbers, parents = array("Q"), array("Q")
    first_parent, given, first_given = array("q", [0]), array("q"), array("q", [0])
    attributes = _Attributes()
    n_nodes, end, size = 0, _skip_metadata(content, path), len(content)
    while end < size:
        begin = end
        start, end = _next_message(content, begin)
        try:
            if end > size:
                raise DecodeError
            node = parse(content[start:end])
        except DecodeError as exc:
            after = f", after node {numbers[-4]}," if n_nodes else ""
            flaw = "is cut off" if end >= size else "is damaged, or this is no Chakra trace"
            message = f"byte {begin}: node number {n_nodes}{after} {flaw}"
            raise FormatError(message, path=path) from exc
        try:
            given.extend(map(attributes.__getitem__, node.attr[:]))
        except (DecodeError, FormatError) as exc:
            flaw = str(exc) if isinstance(exc, FormatError) else "an attribute is damaged"
            raise FormatError(flaw, where=f"node {node.id}", path=path) from exc
        first_given.append(len(given))
        numbers.extend((node.id, node.type, node.start_time_micros, node.duration_micros))
        parents.extend(node.data_deps)
        parents.extend(node.ctrl_deps)
        first_parent.append(len(parents))
        n_nodes += 1
    table = np.full((len(ATTRIBUTES) + 1, n_nodes), MISSING, dtype=np.int64)
    row, value = np.array(attributes.found, dtype=np.int64).reshape(-1, 2)[given].T
    node_of = np.repeat(np.arange(n_nodes), np.diff(first_given))
    table[row, node_of] = value  # of an attribute that is there twice, the last one counts
    number, kind, start_us, duration_us = np.array(numbers, np.uint64).reshape(-1, 4).T.copy()
    return Columns(
        number,
        kind,
        start_us,
        duration_us,
        parents=np.array(parents, dtype=np.uint64),
        first_parent=np.array(first_parent, dtype=np.int64),
        told=table[:-1],
        groups=tuple(attributes.groups),
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
    raise FormatError("byte 0: a trace begins with what describes it", path=path)


class _Attributes(dict[bytes, int]):
    """The number of each attribute, by its bytes: each is parsed once, since most are repeated."""

    def __init__(self) -> None:
        self.groups: dict[str, int] = {}
        self.found: list[tuple[int, int]] = []
        """Row in the table and value, by number; the last row has what is not needed."""

    def __missing__(self, raw: bytes) -> int:
        if len(self) >= MOST_ATTRIBUTES:
            self.clear()
        self.found.append(self._read(raw))
        self[raw] = len(self.found) - 1
        return self[raw]

    def _read(self, raw: bytes) -> tuple[int, int]:
        parsed = messages().attribute.FromString(raw)
        row, width = _ROW.get(parsed.name, len(ATTRIBUTES)), parsed.WhichOneof("value")
        value = getattr(parsed, width) if width else None
        if row == len(ATTRIBUTES):
            return row, 0
        if row == _GROUP and value is not None:
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            return row, self.groups.setdefault(text, len(self.groups)) if text else MISSING
        if isinstance(value, bool) or not isinstance(value, int):
            raise FormatError(f"{ATTRIBUTES[row]} = {value!r}: a whole number is expected")
        if abs(value) >= LARGEST:
            raise FormatError(f"{ATTRIBUTES[row]} = {value}: numbers are below 2**63")
        return row, value

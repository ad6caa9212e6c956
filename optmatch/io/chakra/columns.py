"""Nodes of Chakra traces in columns, as protobuf decodes them, many at a time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.chakra.messages import COLUMNS, messages
from optmatch.model import FormatError

MISSING = -1
"""In a column: the node does not say."""
ATTRIBUTES = (
    *("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "pg_name"),
    *("num_ops", "tensor_size", "root"),
)
"""The attributes that matter here, by their row in `Columns.told`."""

Integers = NDArray[np.int64]
_Words = NDArray[np.uint64]

_PLACE = {name.encode(): k for k, name in enumerate(ATTRIBUTES)}
_GROUP = ATTRIBUTES.index("pg_name")
_LARGEST = 2**63
_USUAL = ("int64_val", "int32_val")
"""The widths of most attributes."""
_BATCH = 2048
_TAG = b"\n"
"""In front of a message in `Nodes`: field 1, with a length."""
_MOST_ATTRIBUTES = 1 << 16
"""So many different ones are remembered; a trace has a few hundred, unless its tags are unique."""
_NO_ATTRIBUTE = b"\0"
"""No message begins like this."""
_SINGLE = ("id", "type", "start_time_micros", "duration_micros")


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

    columns, (head, at) = _Growing(path), _cut_out(content, 0, 1)
    try:
        if not content or (head and not _is_metadata(head[0])):
            raise FormatError("byte 0: a trace begins with what describes it", path=path)
        while at < len(content):
            batch, at = _cut_out(content, at, _BATCH)
            columns.add(batch)
            if len(batch) < _BATCH and at < len(content):
                raise DecodeError("a message that does not end")
    except DecodeError as exc:
        raise _locate(content, path) from exc
    return columns.finish()


def _cut_out(content: bytes, at: int, most: int) -> tuple[list[bytes], int]:
    """Cut out whole messages, each with its length in front; return where the next one begins."""
    from google.protobuf.internal.decoder import _DecodeVarint32 as decode_length
    from google.protobuf.message import DecodeError

    found: list[bytes] = []
    try:
        while len(found) < most:
            size, end = content[at], at + 1
            if size > 127:  # its first bit says that there are more bytes
                size, end = decode_length(content, at)
            end += size
            if end > len(content):
                break
            found.append(content[at:end])
            at = end
    except (IndexError, DecodeError):  # at the end, or no length
        pass
    return found, at


def _locate(content: bytes, path: str) -> FormatError:
    """Return an error about the first message that cannot be parsed."""
    from google.protobuf.message import DecodeError

    start = _cut_out(content, 0, 1)[1]  # what describes the trace comes before node number 0
    number, after = 0, ""
    while (found := _cut_out(content, start, 1))[0]:
        try:
            numbers, _ = _merge(found[0])
        except DecodeError:
            break
        number, start = number + 1, found[1]
        after = f", after node {_last(*numbers['id'])[0]},"
    ended = not found[0] or found[1] == len(content)
    flaw = "is cut off" if ended else "is damaged, or this is no Chakra trace"
    return FormatError(f"byte {start}: node number {number}{after} {flaw}", path=path)


class _Growing:
    """Columns that grow by batches of nodes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.parts: list[tuple[NDArray[Any], ...]] = []
        self.attributes = _Attributes()

    def add(self, batch: Sequence[bytes]) -> None:
        """Append nodes, each a message with its length in front."""
        if not batch:
            return
        numbers, attributes = _merge(batch)
        parents, n_parents = _join_parents(numbers["data_deps"], numbers["ctrl_deps"])
        single = (_last(*numbers[name]) for name in _SINGLE)
        try:
            told = self.attributes.table(attributes, len(batch))
        except _BadAttribute as exc:
            node = next(n.id for n in map(_node, batch) if exc.raw in n.attr)
            raise FormatError(str(exc), where=f"node {node}", path=self.path) from exc.__cause__
        self.parts.append((*single, parents, n_parents, told))

    def finish(self) -> Columns:
        """Put the batches together."""
        if not self.parts:
            word, whole = np.zeros(0, np.uint64), np.zeros(1, np.int64)
            table = np.zeros((len(ATTRIBUTES), 0), np.int64)
            return Columns(word, word, word, word, word, whole, table, ())
        node_id, kind, start, duration, parents, n_parents, told = zip(*self.parts, strict=True)
        return Columns(
            node_id=np.concatenate(node_id),
            kind=np.concatenate(kind),
            start_us=np.concatenate(start),
            duration_us=np.concatenate(duration),
            parents=np.concatenate(parents),
            first_parent=np.cumsum(np.concatenate([[0], *n_parents])),
            told=np.concatenate(told, axis=1),
            groups=tuple(self.attributes.groups),
        )


def _node(message: bytes) -> Any:
    """Parse one node with its length in front."""
    from google.protobuf.proto import parse_length_prefixed

    return parse_length_prefixed(messages().node, io.BytesIO(message))


def _is_metadata(message: bytes) -> bool:
    """Tell what describes a trace from a node: parsed as one, it has no number and no type."""
    from google.protobuf.message import DecodeError

    try:
        node = _node(message)
    except DecodeError:
        return False
    return not (node.id or node.type)


def _merge(batch: Sequence[bytes]) -> tuple[dict[str, tuple[_Words, Integers]], Sequence[bytes]]:
    """Parse nodes as one whose fields have the values of all, with a mark before each node.

    Returns
    -------
    dict
        Of each field with numbers the values and the places of the marks.
    Sequence
        All attributes, and `_NO_ATTRIBUTE` before those of each node.
    """
    nodes = messages().nodes
    mark = 2**64  # the last number that is no value of these nodes
    while True:
        mark -= 1
        marks: dict[str, list[Any]] = {name: [mark] for name in COLUMNS}
        marks["attr"] = [_NO_ATTRIBUTE]
        before = nodes(merged=marks).SerializeToString() + _TAG
        merged = nodes.FromString(before.join([b"", *batch])).merged
        found = {}
        for name in COLUMNS[:-1]:
            column = getattr(merged, name)[:]  # a list is read faster
            values = np.fromiter(column, np.uint64, len(column))
            found[name] = values, np.flatnonzero(values == np.uint64(mark))
        if all(len(places) == len(batch) for _, places in found.values()):
            return found, merged.attr


def _last(values: _Words, marks: Integers) -> _Words:
    """Return the last value after each mark, 0 where there is none."""
    end = np.append(marks[1:], len(values)) - 1
    return np.where(end > marks, values[end], np.uint64(0))


def _join_parents(*lists: tuple[_Words, Integers]) -> tuple[_Words, Integers]:
    """Return what all nodes wait for, node by node, and how much each."""
    values, of = [], []
    for column, marks in lists:
        n_values = np.diff(marks, append=len(column)) - 1
        of.append(np.repeat(np.arange(len(marks)), n_values))
        values.append(np.delete(column, marks))
    nodes = np.concatenate(of)
    order = np.argsort(nodes, kind="stable")
    n_parents = np.bincount(nodes, minlength=len(lists[0][1])).astype(np.int64)
    return np.concatenate(values)[order], n_parents


def _is_damaged(raw: bytes) -> bool:
    """Tell whether an attribute cannot be parsed."""
    from google.protobuf.message import DecodeError

    try:
        messages().attribute.FromString(raw)
    except DecodeError:
        return True
    return False


class _BadAttribute(Exception):
    """An attribute that is damaged, or has no whole number where there should be one."""

    def __init__(self, raw: bytes, message: str) -> None:
        super().__init__(message)
        self.raw = raw


class _Attributes:
    """Attributes by their bytes: each is parsed once, and known by a number."""

    def __init__(self) -> None:
        self.groups: dict[str, int] = {}
        self._forget()

    def _forget(self) -> None:
        self.number = {_NO_ATTRIBUTE: 0}
        self.place = np.full(1, MISSING, dtype=np.int64)
        self.value = np.full(1, MISSING, dtype=np.int64)

    def table(self, attributes: Sequence[bytes], n_nodes: int) -> Integers:
        """Return the values of all nodes, before each of whose attributes there is none."""
        if len(self.number) > _MOST_ATTRIBUTES:
            self._forget()
        given = attributes[:]
        numbers = np.fromiter(map(self.number.get, given, repeat(-1)), np.int64, len(given))
        node = np.cumsum(numbers == 0) - 1
        if node[-1] != n_nodes - 1:
            raise _BadAttribute(_NO_ATTRIBUTE, "an attribute is damaged")
        new = np.flatnonzero(numbers < 0)
        if len(new):
            raws = [given[k] for k in new.tolist()]
            numbers[new] = np.arange(len(self.place), len(self.place) + len(new))
            self.number.update(zip(raws, numbers[new].tolist(), strict=True))
            self._parse(raws)
        place = self.place[numbers]
        known = np.flatnonzero(place >= 0)
        table = np.full((len(ATTRIBUTES), n_nodes), MISSING, dtype=np.int64)
        table[place[known], node[known]] = self.value[numbers[known]]
        return table

    def _parse(self, raws: Sequence[bytes]) -> None:
        """Append places and values of new attributes."""
        from google.protobuf.message import DecodeError

        kinds, n = messages(), len(raws)
        try:
            parsed = list(
                kinds.attributes.FromString(kinds.node(attr=raws).SerializeToString()).attr
            )
        except DecodeError as exc:
            damaged = next(filter(_is_damaged, raws))
            raise _BadAttribute(damaged, "an attribute is damaged") from exc
        names = map(attrgetter("name"), parsed)
        place = np.fromiter(map(_PLACE.get, names, repeat(MISSING)), np.int64, n)
        value = np.zeros(n, dtype=np.int64)
        for width in _USUAL:  # one of them is there, the others are 0
            value += np.fromiter(map(attrgetter(width), parsed), value.dtype, n)
        for k in np.flatnonzero((place == _GROUP) | ((place >= 0) & (value <= 0))).tolist():
            value[k] = self._convert(parsed[k], raws[k])
        self.place = np.concatenate([self.place, place])
        self.value = np.concatenate([self.value, value])

    def _convert(self, parsed: Any, raw: bytes) -> int:
        """Return a number of any width, of a group its place; refuse what is no whole number."""
        width = parsed.WhichOneof("value")
        value = getattr(parsed, width) if width else None
        name = parsed.name.decode()
        if name == ATTRIBUTES[_GROUP] and value is not None:
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            return self.groups.setdefault(text, len(self.groups)) if text else MISSING
        if isinstance(value, bool) or not isinstance(value, int):
            raise _BadAttribute(raw, f"{name} = {value!r}: a whole number is expected")
        if abs(value) >= _LARGEST:
            raise _BadAttribute(raw, f"{name} = {value}: numbers are below 2**63")
        return value

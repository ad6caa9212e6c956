"""Chakra execution traces, binary or JSON, and the steps and demands of jobs that they tell.

A trace has the nodes of one rank: computations, messages, collectives. Steps and demands match
them over all ranks.
"""

from __future__ import annotations

import heapq
import io
import json
import logging
import os
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.racks.wiring import rank_in_group
from optmatch.io.fields import check_object, shorten
from optmatch.io.text import (
    check_content,
    decode,
    describe_content,
    describe_tree,
    layout,
    parse_json,
    pointer,
    read_bytes,
    refused_at,
    unzip,
)
from optmatch.model import (
    Count,
    FormatError,
    FrozenMap,
    InputError,
    Positive,
    SolverUnavailable,
    Value,
    naming,
)
from optmatch.model.accounts import Level, accounting, take
from optmatch.model.files import file_path, path_name
from optmatch.problems.rails.training.network import RailNetwork
from optmatch.problems.rails.training.step import (
    ALL_TO_ALL,
    COMPUTE as COMPUTE_OPERATION,
    OPERATIONS,
    RECV,
    SEND as SEND_OPERATION,
    Dimension,
    Group,
    Step,
)
from optmatch.problems.rails.training.times import ends_s, events, list_circle, streams

COMPUTE = 4
"""The type of nodes that compute. Types that are not named here cost their duration, no more."""
SEND = 5
RECEIVE = 6
COLLECTIVE = 7

NODE_TYPES = tuple(
    f"{name}_NODE"
    for name in (
        *("INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV"),
        *("COMM_COLL", "STORAGE", "BATCH", "CHECKPOINT"),
    )
)
"""Names of types by their number."""

COLLECTIVES = (
    *("ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL"),
    *("REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"),
)
"""Names by the number that `comm_type` has."""

_NODE = {
    "id": (1, "UINT64"),
    "name": (2, "TEXT"),
    "type": (3, "UINT64"),
    "ctrl_deps": (4, "UINT64"),
    "data_deps": (5, "UINT64"),
    "duration_micros": (7, "UINT64"),
    "attr": (10, "AttributeProto"),
}
"""The fields of a node that are read: number and type, by name."""
_REPEATED = ("ctrl_deps", "data_deps", "attr", "values")
_WIDTHS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool"),
)
_VALUES = {  # each attribute has one of these; producers choose the width
    **{f"{width}_val": (3 + 2 * k, width.upper()) for k, width in enumerate(_WIDTHS)},
    "string_val": (29, "TEXT"),
    "bool_list": (28, "BoolList"),
}

ATTRIBUTES = {
    "comm_type": "collective",
    "comm_size": "size_bytes",
    "comm_src": "source",
    "comm_dst": "destination",
    "comm_tag": "tag",
    "pg_name": "group",
    "num_ops": "operations",
    "root": "root",
}
"""The attributes that matter here, with the columns of `Trace` that they become."""

ATTRIBUTE_NAMES = Level(
    "attribute of nodes",
    (*ATTRIBUTES, "involved_dim"),
    {
        "is_cpu_op": "computation takes its duration wherever it runs",
        "tensor_size": "memory is not modelled, and communication has comm_size",
        "comm_priority": "the order follows from the dependencies",
        **dict.fromkeys(("rf_id", "seq_id", "tid", "fw_*", "op_schema", "kernel_*"), "a label"),
        **dict.fromkeys(("pid", "stream", "cat", "dur", "ts", "fw_tid", "scope"), "a label"),
    },
    "they are not read, as if they were not there",
)

LARGEST = 2**63
"""Attributes and times are below this."""


@lru_cache
def node_class(text: str = "BYTES") -> Any:
    """Return protobuf's class of a node, by the schema of Chakra's traces, ``et_def.proto`` [1]_.

    The differences to Chakra's own messages change nothing in files: text is read as bytes, since
    names of kernels are not always UTF-8, but as ``"STRING"`` where JSON tells it; fields that are
    not declared are skipped by protobuf.

    References
    ----------
    .. [1] MLCommons Chakra 1.0.0, ``schema/protobuf/et_def.proto``.
       https://github.com/mlcommons/chakra
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as exc:
        raise SolverUnavailable("Chakra traces need protobuf: pip install protobuf") from exc
    file = descriptor_pb2.FileDescriptorProto(
        name="optmatch/et_def.proto", package="optmatch.chakra", syntax="proto3"
    )
    _declare(file, "Node", _NODE, text)
    _declare(file, "BoolList", {"values": (1, "BOOL")}, text)
    attribute = _declare(file, "AttributeProto", {"name": (1, "TEXT"), **_VALUES}, text)
    attribute.oneof_decl.add(name="value")
    for field in attribute.field[1:]:
        field.oneof_index = 0

    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    node = pool.FindMessageTypeByName("optmatch.chakra.Node")
    return message_factory.GetMessageClass(node)


def _declare(file: Any, name: str, fields: dict[str, tuple[int, str]], text: str) -> Any:
    """Add a type of message, as ``"Node"``, to the schema of a file of protobuf, and return it.

    ``fields[name]`` is the number of a field on the wire, and its type by protobuf's name, as in
    ``{"id": (1, "UINT64")}``; a name that is not in capitals is that of another message. The type
    ``"TEXT"`` is `text`. Fields in `_REPEATED` hold a list, all others one value.
    """
    message = file.message_type.add(name=name)
    for field_name, (number, kind) in fields.items():
        field = message.field.add(name=field_name, number=number)
        field.label = field.LABEL_REPEATED if field_name in _REPEATED else field.LABEL_OPTIONAL
        if kind == "TEXT":
            field.type = getattr(field, f"TYPE_{text}")
        elif kind.isupper():
            field.type = getattr(field, f"TYPE_{kind}")
        else:
            field.type = field.TYPE_MESSAGE
            field.type_name = f".optmatch.chakra.{kind}"
    return message


_DESCRIPTION = b"\x07\x0a\x051.0.0"
"""The message in front of each trace: its length, and the version of the schema."""
_LONGEST_S = 1e12
"""Durations are whole microseconds of 64 bits."""
_TYPE_OF = {"SEND": SEND, "RECV": RECEIVE, "COMPUTE": COMPUTE}
"""Types of nodes by operation; other operations are collectives."""
_NUMBER_OF = {name: number for number, name in enumerate(COLLECTIVES)}
"""`comm_type` by the names of collectives."""


class Node(NamedTuple):
    """A node of a trace."""

    id: int
    kind: int = COMPUTE
    """A type of node: `COMPUTE`, `SEND`, `RECEIVE`, `COLLECTIVE` or another number."""
    name: str = ""
    parents: Sequence[int] = ()
    """The nodes whose data it needs."""
    duration_us: int = 0
    """In microseconds."""
    attributes: Mapping[str, bool | int | str] = {}


def trace_bytes(nodes: Iterable[Node]) -> bytes:
    """Write nodes as the trace of one rank, the content of ``name.RANK.et``, in their order.

    A description comes first; each message has its length in front.
    """
    from google.protobuf.proto import serialize_length_prefixed

    stream = io.BytesIO(_DESCRIPTION)
    stream.seek(len(_DESCRIPTION))
    for node in nodes:
        message = node_class()(
            id=node.id,
            type=node.kind,
            name=node.name.encode(),
            data_deps=node.parents,
            duration_micros=node.duration_us,
        )
        for name, value in node.attributes.items():
            _add_attribute(message, name, value)
        serialize_length_prefixed(message, stream)
    return stream.getvalue()


def step_traces(step: Step) -> list[bytes]:
    """Write a step as Chakra traces, one for each rank, with as many nodes as operations.

    Times are rounded to microseconds and sizes to bytes, as the format wants. A duration that is
    too long for its field is refused.
    """
    for operation in (step.duration_s > _LONGEST_S).nonzero()[0][:1].tolist():
        seconds = step.duration_s[operation]
        raise InputError(f"{step.describe(operation)} takes {seconds:g} s")
    return [
        trace_bytes(_write_node(step, operation, first) for operation in range(first, stop))
        for first, stop in pairwise(step.rank_start.tolist())
    ]


def _write_node(step: Step, operation: int, first: int) -> Node:
    """Make the node of one operation; the one of the rank's first operation has the number 0.

    Seconds become microseconds, and bytes whole numbers, rounded; `first` is the number of the
    rank's first operation in the step. If `first` is 100, operation 103 becomes node 3.
    """
    # A computation has no size and no group. A message has its ends, a collective its type.
    name = OPERATIONS[step.kind[operation]]
    attributes: dict[str, bool | int | str] = {"is_cpu_op": False}
    if name != "compute":
        attributes["comm_size"] = round(float(step.size_bytes[operation]))
        attributes["pg_name"] = step.groups[step.group[operation]].name

    # The ends and the tag of a message pair it with its counterpart.
    rank = int(step.rank[operation])
    peer = int(step.peer[operation])
    if name == "send":
        attributes |= {"comm_src": rank, "comm_dst": peer}
    elif name == "recv":
        attributes |= {"comm_src": peer, "comm_dst": rank}
    elif name != "compute":
        attributes["comm_type"] = _NUMBER_OF[name.replace("-", "_").upper()]
    if name in ("send", "recv"):
        attributes["comm_tag"] = int(step.match[operation])

    # Numbers of operations of the rank become numbers of its nodes, from 0.
    parents = step.dep[step.dep_start[operation] : step.dep_start[operation + 1]]
    return Node(
        id=operation - first,
        kind=_TYPE_OF.get(name.upper(), COLLECTIVE),
        name=step.names[operation] if step.names else name,
        parents=(parents - first).tolist(),
        duration_us=round(float(step.duration_s[operation]) * 1e6),
        attributes=attributes,
    )


def _add_attribute(node: Any, name: str, value: bool | int | str) -> None:
    """Add an attribute, as ``"comm_size"``, to a node."""
    content: Any = value
    if isinstance(value, bool):
        field = "bool_val"
    elif isinstance(value, str):
        field = "string_val"
        content = value.encode()
    else:
        field = "int64_val"
    try:
        node.attr.add(name=name.encode(), **{field: content})
    except ValueError as exc:
        raise InputError(f"{name}: {float(value):g} is too large for int64") from exc


_GRAPH = "workload_graph"
_DESCRIPTION_KEYS = {"version", "attr"}
"""The keys of the object that stands in front of the nodes of the jsonizer."""

_SPELLINGS = {
    "id": ("Id", "id"),
    "type": ("NodeType", "type"),
    "duration_micros": ("runtime", "durationMicros", "duration_micros"),
    "data_deps": ("data_deps", "dataDeps"),
    "ctrl_deps": ("ctrl_deps", "ctrlDeps"),
}
"""The keys of a node: Chakra's own tools and test data write each in several ways."""

_KEYS = Level(
    "key of nodes",
    (*(key for keys in _SPELLINGS.values() for key in keys), *ATTRIBUTE_NAMES.used, "attr"),
    {
        **ATTRIBUTE_NAMES.harmless,
        **dict.fromkeys(("inputs", "outputs", "ioInfo", "io_info"), "dependencies are listed"),
        **dict.fromkeys(("Name", "name"), "a label"),
        "startTimeMicros": "a node begins when what it waits for has ended",
        "start_time_micros": "a node begins when what it waits for has ended",
    },
    ATTRIBUTE_NAMES.assumed,
)


def json_to_binary(content: bytes, path: str) -> bytes:
    """Return a trace in JSON as the same trace in the binary format, whose reader checks it.

    The content is ``{"workload_graph": [{"Id": 1, "NodeType": 7, "comm_size": 8}, ...]}``, or what
    Chakra's jsonizer writes, object after object: what describes the trace, then nodes such as
    ``{"id": "1", "type": "COMM_COLL_NODE", "attr": [...]}``. Keys may have the spelling of either
    form; those that are not read are named in a warning.
    """
    from google.protobuf.json_format import ParseDict, ParseError
    from google.protobuf.proto import serialize_length_prefixed

    is_graph = _GRAPH.encode() in content
    if is_graph:
        tree = parse_json(content, path)
        entries = tree.get(_GRAPH) if isinstance(tree, dict) else None
        if not isinstance(entries, list):
            raise FormatError(
                f"{shorten(entries)}: a list of nodes", where=f"/{_GRAPH}", path=path
            )
    elif is_json_trace(content):
        _, *entries = _read_objects(content, path)
    else:
        rule = "no Chakra trace, which has workload_graph, or nodes after version"
        raise FormatError(f"{rule}{describe_content(content)}", path=path)

    stream = io.BytesIO(_DESCRIPTION)
    stream.seek(len(_DESCRIPTION))
    for number, entry in enumerate(entries):
        place = f"node number {number}"
        with refused_at(place, path):
            check_object(entry, "")
        node_id = entry.get("Id", entry.get("id"))
        if node_id is not None:
            place = f"node {node_id!s:.60}"
        with refused_at(place, path):
            spelled = _spell_as_protobuf(entry, as_text=not is_graph)
            try:
                node = ParseDict(spelled, node_class("STRING")(), ignore_unknown_fields=True)
            except (ParseError, ValueError) as exc:
                raise FormatError(str(exc).rstrip(".")) from exc
        take(_KEYS, entry, path=path)
        serialize_length_prefixed(node, stream)
    return stream.getvalue()


def _spell_as_protobuf(entry: dict[str, Any], *, as_text: bool) -> dict[str, Any]:
    """Return a node of JSON with the names that its fields have in the schema.

    Types become numbers, and attributes that stand beside the other keys are put into the list of
    all: ``{"Id": 3, "comm_size": 8}`` becomes ``{"id": 3, "attr": [{"name": "comm_size",
    "int64_val": 8}]}``. With `as_text`, whole numbers may be texts, as the jsonizer writes them.
    """
    listed = entry.get("attr", [])
    if not isinstance(listed, list):
        raise FormatError(f"attr = {shorten(listed)}: a list is expected")
    listed_names = []
    for attribute in listed:
        check_object(attribute, "")
        if None in attribute.values():
            raise FormatError(f"attr: {shorten(attribute)}: an attribute has a value")
        listed_names.append(attribute.get("name"))

    # Each field has the one spelling that the node uses, and a type has its number.
    node: dict[str, Any] = {}
    for field, spellings in _SPELLINGS.items():
        present = [key for key in spellings if key in entry]
        if len(present) > 1:
            raise FormatError(f"{' and '.join(present)} are the same key: one of them is expected")
        if not present:
            continue
        value = entry[present[0]]
        if field == "type" and value in NODE_TYPES:
            value = NODE_TYPES.index(value)
        _check_whole(present[0], value, as_text=as_text)
        node[field] = value

    # Names of groups are texts, dimensions true or false, and all others whole numbers. Of an
    # attribute that is there twice, the one in the list counts.
    key_attributes: list[dict[str, Any]] = []
    for name in ATTRIBUTE_NAMES.used:
        if name not in entry or name in listed_names:
            continue
        if name == "pg_name":
            key_attributes.append({"name": name, "string_val": str(entry[name])})
        elif name == "involved_dim":
            involved = entry[name]
            if isinstance(involved, dict):
                involved = involved.get("values", [])
            if not isinstance(involved, list):
                raise FormatError(f"{name} = {shorten(involved)}: a list of true and false")
            key_attributes.append({"name": name, "bool_list": {"values": involved}})
        else:
            _check_whole(name, entry[name], as_text=as_text)
            key_attributes.append({"name": name, "int64_val": entry[name]})
    node["attr"] = key_attributes + listed
    return node


def _check_whole(key: str, value: Any, *, as_text: bool) -> None:
    """Refuse null, 2.0, and ``"2"`` without `as_text`, all of which protobuf would take.

    `value` is a whole number or a list of them, of less than 64 bits; what else is wrong with it,
    protobuf refuses.
    """
    for number in value if isinstance(value, list) else [value]:
        if as_text and isinstance(number, str):
            continue
        if isinstance(number, bool) or not isinstance(number, int):
            raise FormatError(f"{key} = {shorten(number)}: a whole number is expected")
        if abs(number) >= LARGEST:
            raise FormatError(f"{key} = {number}: numbers are below 2**63")


def is_json_trace(content: bytes) -> bool:
    """Tell a trace from other JSON, by its key or by the object that stands first.

    A trace has the key ``workload_graph``, or begins with an object that has no keys but
    ``version`` and ``attr``.
    """
    if _GRAPH.encode() in content:
        return True
    try:
        first = next(_read_objects(content, ""), None)
    except FormatError:
        return False
    return isinstance(first, dict) and first.keys() <= _DESCRIPTION_KEYS


def _read_objects(content: bytes, path: str) -> Iterator[Any]:
    """Yield values of JSON that follow each other, with white space between them."""
    text = decode(content, path)
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as exc:
            raise FormatError(f"{exc}: no object of JSON", path=path) from exc
        yield value


MISSING = -1
"""In a column: the node does not say."""

Integers = NDArray[np.int64]

_FILE_NAME = re.compile(r"(?P<stem>.*)\.(?P<rank>\d+)\.(?P<ending>et|json)")
_UNKNOWN_TYPE = 127
"""Larger types of nodes are read as this one, which is unknown too."""


class NodeRow(NamedTuple):
    """A node of a trace that other formats tell; see `Trace.of_rows`."""

    node_id: int
    operation: str
    """``"COMPUTE"``, ``"SEND"``, ``"RECV"``, or one of `COLLECTIVES`."""
    duration_us: float = 0.0
    size_bytes: int = MISSING
    group: str = ""
    peer: int = MISSING
    """The other rank of a message."""
    root: int = MISSING


class Trace(NamedTuple):
    """The nodes of one rank in columns, in the order of the file; `MISSING` where absent.

    Columns have shape (nodes,), unless said.
    """

    path: str
    node_id: Integers | NDArray[np.uint64]
    """The number of each node in the file."""
    kind: Integers
    """The type of each node, see `optmatch.io.rails.chakra`."""
    duration_us: Integers | NDArray[np.float64]
    """How long each node was measured to take, in microseconds."""
    parents: Any
    """Places of the nodes that a node waits for; those of node k begin at ``first_parent[k]``."""
    first_parent: Integers
    """Shape (nodes + 1,)."""
    collective: Integers
    """The type of a collective, a place in `COLLECTIVES`."""
    size_bytes: Integers
    """Of a message or collective."""
    source: Integers
    """The rank that sends a message, and below the rank that receives it."""
    destination: Integers
    tag: Integers
    """Of a message: a send and its receive have the same."""
    group: Integers
    """A place in `group_names`."""
    operations: Integers
    """Floating-point operations of a computation."""
    root: Integers
    """The root of a collective; some producers tell it otherwise, see `roots_of`."""
    group_names: tuple[str, ...]
    rank: int = MISSING
    """The rank that the name of the file tells."""
    first_control: Integers | None = None
    """From ``first_control[k]`` on, what node k waits for stands in its `ctrl_deps`."""
    sent_bytes: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    """``sent_bytes[node]``: what the rank sends to each rank of the group of an all-to-all whose
    parts differ; other nodes are absent."""
    noun: str = "node"
    """The name of a node in messages."""
    skipped: list[str] | None = None
    """The parts that were left out, and why; None if none may be: then such a part is an error."""

    @classmethod
    def of_rows(cls, rows: Sequence[NodeRow], **others: Any) -> Trace:
        """Put nodes together, given row by row; `others` has the fields that rows do not have."""
        group_names = tuple(dict.fromkeys(row.group for row in rows if row.group))
        number_of_group = {name: number for number, name in enumerate(group_names)}
        columns: dict[str, Any] = {
            name: np.array([getattr(row, name) for row in rows], dtype=np.int64)
            for name in ("node_id", "size_bytes", "peer", "root")
        }
        kind = np.array([_TYPE_OF.get(row.operation, COLLECTIVE) for row in rows], np.int64)
        peer = columns.pop("peer")
        unknown = np.full(len(rows), MISSING)
        return cls(
            **columns,
            kind=kind,
            duration_us=np.array([row.duration_us for row in rows], dtype=np.float64),
            collective=np.array(
                [_NUMBER_OF.get(row.operation, MISSING) for row in rows], np.int64
            ),
            source=np.where(kind == RECEIVE, peer, MISSING),
            destination=np.where(kind == SEND, peer, MISSING),
            group=np.array([number_of_group.get(row.group, MISSING) for row in rows], np.int64),
            tag=unknown,
            operations=unknown,
            group_names=group_names,
            **others,
        )

    def place(self, node: int) -> str:
        """Return the name of one node in messages."""
        return f"{self.noun} {int(self.node_id[node])}"

    def fail(self, node: int, message: str) -> FormatError:
        """Return an error about a node."""
        return FormatError(message, where=self.place(node), path=self.path)

    def keep_parents(self, is_kept: NDArray[np.bool_]) -> Trace:
        """Return the trace with the dependencies ``parents[k]`` that ``is_kept[k]`` marks."""
        # The dependencies of a node move up by those that are dropped before them.
        n_kept_before = np.concatenate([[0], np.cumsum(is_kept)])
        first_control = None
        if self.first_control is not None:
            first_control = n_kept_before[self.first_control]
        return self._replace(
            parents=self.parents[is_kept],
            first_parent=n_kept_before[self.first_parent],
            first_control=first_control,
        )

    def skip(self, node: int, message: str) -> None:
        """Note that something of a node is left out; refuse it where nothing may be."""
        if self.skipped is None:
            raise self.fail(node, f"{message}; --lenient leaves it out")
        self.skipped.append(str(self.fail(node, message)))


class Nodes(NamedTuple):
    """Some nodes of all ranks, those of a rank side by side; columns have shape (nodes,)."""

    traces: Sequence[Trace]
    rank: Integers
    node: Integers
    """``node[k]``: its place in the trace of its rank."""

    @classmethod
    def of(cls, traces: Sequence[Trace], chosen: Sequence[Integers]) -> Nodes:
        """Put together ``chosen[rank]``, places of nodes in ``traces[rank]``."""
        rank = np.repeat(np.arange(len(traces)), [len(nodes) for nodes in chosen])
        return cls(traces, rank, np.concatenate([*chosen, np.zeros(0, dtype=np.int64)]))

    def take(self, places: Integers) -> Nodes:
        """Return the nodes at some places."""
        return Nodes(self.traces, self.rank[places], self.node[places])

    def column(self, name: str) -> NDArray[Any]:
        """Return a column of `Trace`, as ``"size_bytes"``, for these nodes."""
        # All traces one after the other: node k of a rank is entry first_of_rank[rank] + k.
        counts = [len(trace.node_id) for trace in self.traces]
        first_of_rank = np.cumsum([0, *counts])
        # A rank without nodes may have an empty column of another type, which would change others.
        columns = [
            getattr(trace, name)
            for trace, count in zip(self.traces, counts, strict=True)
            if count > 0
        ]
        joined = np.concatenate([*columns, np.zeros(0, dtype=np.int64)])
        chosen: NDArray[Any] = joined[first_of_rank[self.rank] + self.node]
        return chosen

    def group_name(self, place: int) -> str:
        """Return the name of the group of a node, an empty text if it has none."""
        trace = self.traces[int(self.rank[place])]
        group = int(trace.group[self.node[place]])
        return "" if group == MISSING else trace.group_names[group]

    def place(self, place: int) -> str:
        """Return the name of a node in messages."""
        return self.traces[int(self.rank[place])].place(int(self.node[place]))

    def fail(self, place: int, message: str) -> FormatError:
        """Return an error about a node."""
        return self.traces[int(self.rank[place])].fail(int(self.node[place]), message)

    def skip(self, place: int, message: str) -> None:
        """Note that something of a node is left out, or refuse it where nothing may be."""
        self.traces[int(self.rank[place])].skip(int(self.node[place]), message)


def alike(*columns: Integers) -> list[Integers]:
    """Group the places at which all columns are equal, in the order of their entries.

    The groups are disjoint, and together 0 .. n - 1 for columns of shape (n,).
    """
    order = np.lexsort(columns[::-1])
    table = np.stack(columns)[:, order]
    differs_from_last = (table[:, 1:] != table[:, :-1]).any(axis=0)
    first_of_group = np.flatnonzero(differs_from_last) + 1
    return np.split(order, first_of_group) if len(order) else []


def read_trace(path: str | os.PathLike[str], *, skipped: list[str] | None = None) -> Trace:
    """Read the trace of one rank.

    The file is ``name.RANK.et``, perhaps gzipped: messages of protobuf, each with its length in
    front, first what describes the trace, then its nodes; integers may have any width that
    protobuf knows. Or it is ``name.RANK.json``, see `json_to_binary`. Reading takes about 5 us for
    a node, and 200 bytes of memory.

    What is left out is added to a list `skipped`: what is behind the end of a cut file,
    dependencies on nodes that are not there, and communication without its kind or size, which
    becomes computation of the time that it took. None allows none of this.
    """
    file = path_name(path)
    content = _read_content(path)
    rank = int(_parse_name(path)["rank"])
    with accounting(file):
        if file.endswith(".json"):
            content = json_to_binary(content, file)

        # Numbers of nodes, which are there once each, in `parents` become places of nodes.
        trace = decode_nodes(content, file, skipped)
        ids = trace.node_id
        order = np.argsort(ids, kind="stable")
        sorted_ids = ids[order]
        for place in np.flatnonzero(sorted_ids[1:] == sorted_ids[:-1])[:1].tolist():
            raise FormatError("is there twice", where=f"node {sorted_ids[place]}", path=trace.path)

        # Each parent is searched among the sorted numbers, which may find the end, or another
        # number. Dependencies on nodes that are not there are left out or refused.
        place_in_sorted = np.searchsorted(sorted_ids, trace.parents)
        is_known = place_in_sorted < len(ids)
        is_known[is_known] = sorted_ids[place_in_sorted[is_known]] == trace.parents[is_known]
        for dependency in np.flatnonzero(~is_known).tolist():
            node = int(np.searchsorted(trace.first_parent, dependency, side="right")) - 1
            trace.skip(node, f"waits for node {trace.parents[dependency]}, which is not there")
        parents = order[place_in_sorted[is_known]].astype(np.int64)
        trace = trace.keep_parents(is_known)._replace(parents=parents, rank=rank)
    return trace if skipped is None else _without_attributes(trace)


def read_traces(
    paths: Sequence[str | os.PathLike[str]], *, skipped: list[str] | None = None
) -> list[Trace]:
    """Read the traces of all ranks, from files in any order; the name of a file tells its rank.

    Ranks that are absent or there twice are refused.
    """
    path_of_rank = {int(_parse_name(path)["rank"]): path for path in paths}
    if sorted(path_of_rank) != list(range(len(paths))):
        raise FormatError(
            f"ranks {sorted(path_of_rank)}: a file for each of 0 .. {len(paths) - 1}"
        )
    return [read_trace(path_of_rank[rank], skipped=skipped) for rank in range(len(paths))]


def siblings(path: str | os.PathLike[str]) -> list[Path]:
    """Find the files of all ranks beside the file of one, or those of a prefix.

    ``siblings("run/job.0.et")`` and ``siblings("run/job")`` find ``job.0.et``, ``job.1.et``, and
    so on. They have the same name and ending, and are sorted by name. Of a prefix, files in JSON
    count only where there is no other.
    """
    stem = file_path(path).name
    endings = ["et", "json"]
    if stem.endswith((".et", ".json")):
        name = _parse_name(path)
        stem = name["stem"]
        endings = [name["ending"]]

    folder = file_path(path).parent
    files = list(folder.iterdir()) if folder.is_dir() else []
    names = [match for file in files if (match := _FILE_NAME.fullmatch(file.name))]
    for ending in endings:
        sibling_paths = [
            folder / name[0] for name in names if name["stem"] == stem and name["ending"] == ending
        ]
        if sibling_paths:
            return sorted(sibling_paths)
    raise FormatError(f"no file name.RANK.et is there{_describe_file(path)}", path=path_name(path))


def is_trace(path: str | os.PathLike[str]) -> bool:
    """Tell a trace from other files: by its ending, of JSON by what it says."""
    name = file_path(path).name
    if not name.endswith(".json"):
        return name.endswith(".et")
    return _FILE_NAME.fullmatch(name) is not None and is_json_trace(_read_content(path))


class _NodeColumns:
    """Nodes while they are decoded, column by column; parents are numbers of nodes.

    The parents of node k are ``parents[first_parent[k]:first_parent[k + 1]]``, those that it waits
    for without need of their data from ``first_control[k]`` on. A row of `table`, which is flat,
    has the columns of `ATTRIBUTES`, type and duration of a node.
    """

    def __init__(self) -> None:
        """Make empty columns."""
        self.node_id = array("Q")
        self.parents = array("Q")
        self.first_parent = array("q", [0])
        self.first_control = array("q")
        self.groups: dict[str, int] = {}
        """The number of each group, by name."""
        self.table = array("q")
        """Row by row: the columns of `ATTRIBUTES`, type and duration of each node."""
        self.attribute_names: set[bytes] = set()
        self._column_of_attribute = {name.encode(): place for place, name in enumerate(ATTRIBUTES)}

    def append(self, node: Any) -> None:
        """Add a node, as protobuf has parsed it; a value that breaks a rule is refused.

        Its attributes become a row of `table`, `MISSING` where it has none; its parents, those of
        data before those of control, are added to `parents`, with their bounds in `first_control`
        and `first_parent`.
        """
        if node.duration_micros >= LARGEST:
            raise FormatError(f"duration_micros = {node.duration_micros}: numbers are below 2**63")
        row = [MISSING] * len(ATTRIBUTES)
        involved: list[bool] = []
        for attribute in node.attr:
            if attribute.name == b"involved_dim":
                involved = list(attribute.bool_list.values)
            if not attribute.name:
                raise FormatError("an attribute has no name")
            self.attribute_names.add(attribute.name)
            # Where one is there twice, the last one counts.
            column = self._column_of_attribute.get(attribute.name)
            if column is None:
                continue

            # The name of a group becomes its number, `MISSING` if it is empty; all other values
            # are whole numbers of at most 64 bits.
            field = attribute.WhichOneof("value")
            value = getattr(attribute, field) if field else None
            name = attribute.name.decode()
            if name == "pg_name" and value is not None:
                text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
                value = self.groups.setdefault(text, len(self.groups)) if text else MISSING
            if isinstance(value, bool) or not isinstance(value, int):
                raise FormatError(f"{name} = {value!r}: a whole number is expected")
            if abs(value) >= LARGEST:
                raise FormatError(f"{name} = {value}: numbers are below 2**63")
            row[column] = value

        # A collective of some dimensions of a network alone has no ranks that are known.
        if node.type == COLLECTIVE:
            has_group = row[self._column_of_attribute[b"pg_name"]] != MISSING
            if not all(involved) and not has_group:
                listed = ", ".join(str(one).lower() for one in involved)
                raise FormatError(
                    f"involved_dim = [{listed}]: a collective of some dimensions of a network,"
                    " whose sizes the trace does not tell; pg_name and --groups tell its ranks"
                )
        self.table.extend([*row, min(node.type, _UNKNOWN_TYPE), node.duration_micros])

        self.node_id.append(node.id)
        self.parents.extend(node.data_deps)
        self.first_control.append(len(self.parents))
        self.parents.extend(node.ctrl_deps)
        self.first_parent.append(len(self.parents))

    def make_trace(self, path: str, skipped: list[str] | None) -> Trace:
        """Return the nodes as a trace, whose `parents` are still numbers of nodes."""
        # The table has a row for each node; its transpose has the columns of a trace.
        names = (*ATTRIBUTES.values(), "kind", "duration_us")
        table = np.array(self.table, dtype=np.int64).reshape(-1, len(names)).T.copy()
        columns: dict[str, Any] = dict(zip(names, table, strict=True))
        return Trace(
            path=path,
            node_id=np.array(self.node_id, dtype=np.uint64),
            parents=np.array(self.parents, dtype=np.uint64),
            first_parent=np.array(self.first_parent, dtype=np.int64),
            first_control=np.array(self.first_control, dtype=np.int64),
            group_names=tuple(self.groups),
            skipped=skipped,
            **columns,
        )


def decode_nodes(content: bytes, path: str, skipped: list[str] | None = None) -> Trace:
    """Read a trace in Chakra's binary format; `parents` are still numbers of nodes.

    `content` is the file, and `path` its name for messages. `skipped` receives what is
    left out, a line for each thing; None refuses it. The file is a sequence of protobuf messages,
    each behind its length. The first one describes the trace and is passed over. A file that is
    cut off is read up to there where parts may be left out.
    """
    from google.protobuf.message import DecodeError
    from google.protobuf.proto import parse_length_prefixed

    columns = _NodeColumns()
    stream = io.BytesIO(content)
    flaws = (DecodeError, ValueError, OverflowError)

    # Parsed as a node, the description of the trace, which comes first, has neither number nor
    # type.
    try:
        description: Any = parse_length_prefixed(node_class(), stream)
        is_description = description is not None and not (description.id or description.type)
    except flaws:
        is_description = False
    if not is_description:
        raise FormatError(
            f"byte 0: a trace begins with a description of it{describe_content(content)}",
            path=path,
        )

    # Messages follow each other, each behind its length. A file that ends within one is cut off,
    # which happens to long runs; a message that cannot be read before the end is a damaged file.
    while stream.tell() < len(content):
        length_start = stream.tell()
        try:
            node: Any = parse_length_prefixed(node_class(), stream)
        except flaws as exc:
            # The message says where, and whether the file is cut off or damaged.
            n_nodes = len(columns.node_id)
            after = f", after node {columns.node_id[-1]}," if n_nodes else ""
            is_cut = stream.tell() == len(content)
            flaw = "is cut off" if is_cut else "is damaged, or this is no Chakra trace"
            rule = f"byte {length_start}: node number {n_nodes}{after} {flaw}"
            error = FormatError(rule, path=path)
            if not is_cut:
                raise error from exc
            if skipped is None:
                hint = "; --lenient reads what is before it"
                raise FormatError(f"{rule}{hint}", path=path) from exc
            skipped.append(str(error))
            break
        with refused_at(f"node {node.id}", path):
            columns.append(node)
    names = sorted(name.decode(errors="replace") for name in columns.attribute_names)
    take(ATTRIBUTE_NAMES, names, path=path)
    return columns.make_trace(path, skipped)


def _parse_name(path: str | os.PathLike[str]) -> re.Match[str]:
    """Split the name of a trace into ``"stem"``, ``"rank"`` (digits) and ``"ending"``."""
    match = _FILE_NAME.fullmatch(file_path(path).name)
    if match is None:
        raise FormatError(
            f"a trace is named name.RANK.et or .json{_describe_file(path)}", path=path_name(path)
        )
    return match


def _without_attributes(trace: Trace) -> Trace:
    """Let communication without its kind or size be computation, and note it in `skipped`.

    A barrier needs no size.
    """
    is_collective = trace.kind == COLLECTIVE
    is_message = (trace.kind == SEND) | (trace.kind == RECEIVE)
    is_type_known = (trace.collective >= 0) & (trace.collective < len(COLLECTIVES))
    is_barrier = trace.collective == COLLECTIVES.index("BARRIER")

    is_untyped = is_collective & ~is_type_known
    needs_size = (is_collective & ~is_untyped & ~is_barrier) | is_message
    is_unsized = needs_size & (trace.size_bytes < 0)
    for is_flawed, name in ((is_untyped, "comm_type"), (is_unsized, "comm_size")):
        for node in np.flatnonzero(is_flawed).tolist():
            trace.skip(node, f"{name} is missing or out of range: taken as computation")
    return trace._replace(kind=np.where(is_untyped | is_unsized, COMPUTE, trace.kind))


def _read_content(path: str | os.PathLike[str]) -> bytes:
    """Read a file, and unpack it."""
    return unzip(read_bytes(path), path_name(path))


def _describe_file(path: str | os.PathLike[str]) -> str:
    """Say what a file looks like, as the end of a sentence; empty if it cannot be read."""
    if not file_path(path).is_file():
        return ""
    try:
        return describe_content(_read_content(path))
    except FormatError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceOptions(Value):
    """Options for what traces leave open.

    Parameters
    ----------
    gpus_per_server, stride
        How many GPUs a server has, and how far apart their ranks are: 1 if they are neighbours,
        the degree of data parallelism if its ranks come first.
    dimensions
        The dimensions of groups by name. Of the others, one that sends and receives is a
        pipeline, one with an all-to-all has experts, one inside a server is tensor parallel, and
        the rest is data parallel.
    leave_out
        Names of groups whose collectives take no time, such as the one of all ranks.
    flops_per_s
        What a GPU reaches: the time of computations that have operations but no duration; None
        if they take none.
    """

    gpus_per_server: Count = 1
    stride: Count = 1
    dimensions: Mapping[str, Dimension] = FrozenMap()
    leave_out: tuple[str, ...] = ()
    flops_per_s: Positive | None = None

    def rail(self, ranks: Sequence[int]) -> int | None:
        """Return the rail of a group, -1 inside a server, None if there are several.

        A rail joins the GPUs of one number in all servers.
        """
        # A rank is (block * gpus_per_server + rail) * stride + place: servers of a block are
        # interleaved, `stride` of them, and `place` says which one it is.
        block, place = np.divmod(np.asarray(ranks), self.stride)
        server, rail = np.divmod(block, self.gpus_per_server)
        if len(set(zip(server.tolist(), place.tolist(), strict=True))) == 1:
            return -1
        return int(rail[0]) if (rail == rail[0]).all() else None

    def rank(self, server: int, place: int) -> int:
        """Return the rank of the GPU of a server at a place, its rail; both count from 0."""
        block, offset = divmod(server, self.stride)
        return (block * self.gpus_per_server + place) * self.stride + offset


_log = logging.getLogger("optmatch")

_MOST_NAMED_NODES = 8
"""The most nodes of a circle that a message names behind the first one."""


def _send_eagerly(step: Step) -> Step:
    """Let messages wait for their senders alone: receives depend on nothing any more.

    Operation k waits for ``step.dep[step.dep_start[k]:step.dep_start[k + 1]]``. If it waits for a
    receive, it takes over the last of the receive's dependencies in each stream (a queue of a
    rank); earlier ones of the stream have ended by then.
    """
    # Operations stand behind those that they depend on, so that the dependencies of a receive are
    # known when an operation that depends on it comes. Later operations of a stream have larger
    # numbers: the largest one is the last.
    stream_of_operation = streams(step).tolist()
    is_receive = (step.kind == RECV).tolist()
    dep_start = step.dep_start.tolist()
    dep = step.dep.tolist()

    dependencies_of_receive: dict[int, list[int]] = {}
    new_dependencies: list[list[int]] = []
    for operation in range(len(is_receive)):
        last_of_stream: dict[int, int] = {}
        for dependency in dep[dep_start[operation] : dep_start[operation + 1]]:
            for inherited in (dependency, *dependencies_of_receive.get(dependency, ())):
                stream = stream_of_operation[inherited]
                last_of_stream[stream] = max(inherited, last_of_stream.get(stream, inherited))
        if is_receive[operation]:
            dependencies_of_receive[operation] = list(last_of_stream.values())
            new_dependencies.append([])
        else:
            new_dependencies.append(sorted(last_of_stream.values()))

    flat = [dependency for dependencies in new_dependencies for dependency in dependencies]
    return replace(
        step,
        dep_start=np.cumsum([0, *map(len, new_dependencies)]),
        dep=np.array(flat, dtype=np.int64),
    )


_OPERATION_OF_COLLECTIVE = {
    "ALL_REDUCE": "all-reduce",
    "ALL_GATHER": "all-gather",
    "REDUCE_SCATTER": "reduce-scatter",
    "REDUCE_SCATTER_BLOCK": "reduce-scatter",
    "ALL_TO_ALL": "all-to-all",
    "BROADCAST": "broadcast",
    "BARRIER": "all-reduce",  # of nothing
    # On a ring they load the link next to the root, and last, as much as these load each link.
    "REDUCE": "broadcast",
    "GATHER": "all-gather",
    "SCATTER": "reduce-scatter",
}
_KIND_OF_COLLECTIVE = np.array(
    [OPERATIONS.index(_OPERATION_OF_COLLECTIVE[name]) for name in COLLECTIVES]
)
"""``_KIND_OF_COLLECTIVE[type]``: the kind of operation, by Chakra's type of collective."""

ALL_RANKS = "all"
"""The name of the group of collectives that name none."""


def read_step(
    prefix: str | os.PathLike[str],
    groups: str | os.PathLike[str] | None = None,
    options: TraceOptions | None = None,
    *,
    skipped: list[str] | None = None,
) -> Step:
    """Read the Chakra traces of all ranks as one step of a job.

    Computations take their duration; communication takes what its circuits need, whatever the
    trace has measured. The k-th collective of a group at one rank belongs to the k-th at the
    others. A send belongs to the receive between the same ranks with the same tag, in order, and
    begins when both are ready. Where ranks would wait for each other in a circle, it does not wait
    for the receive (`_send_eagerly`). Where the ranks of an all-to-all send more or less than each
    other (``all_to_allv``), the largest size counts at all of them.

    With a list `skipped`, what a cut trace does not tell is left out of the step and added to it:
    collectives without a part at some rank and messages without their other end take the time that
    they took; control dependencies do not count where nodes would wait in a circle (Chakra's own
    feeder follows data dependencies alone). With None each of these is an error.

    Parameters
    ----------
    prefix
        ``folder/name`` of ``folder/name.RANK.et``, or the file of one rank.
    """
    traces = read_traces(siblings(prefix), skipped=skipped)
    members = {} if groups is None else read_groups(groups, n_ranks=len(traces))
    step = step_of(traces, members, options or TraceOptions())
    return replace(step, skipped=tuple(skipped)) if skipped else step


def step_of(traces: Sequence[Trace], groups: Members, options: TraceOptions) -> Step:
    """Make a step of ``traces[rank]``; matches communication of ranks as `read_step` says.

    The first node that fits to no other, or waits for itself, is refused.
    """
    draft = _Draft(traces, groups, options)
    draft.read_collectives()
    draft.match_collectives()
    draft.match_messages()
    step = draft.make_step()

    # Each send waits until its receive is ready, unless operations then wait for each other in a
    # circle.
    if (step.kind == RECV).any():
        try:
            ends_s(events(step, RailNetwork(gpus_per_server=1), {}))
        except InputError:
            return _send_eagerly(step)
    return step


class _Draft:
    """The operations of all ranks, one trace after the other, before they are a step.

    Columns have shape (operations,), in the order of `nodes`: in each rank, an operation stands
    behind those that it waits for. `nodes` are the nodes of the traces, one for each operation;
    `MISSING` (-1) stands for what is not known. ``group_ranks[group]`` are the ranks of a group.
    """

    def __init__(self, traces: Sequence[Trace], groups: Members, options: TraceOptions) -> None:
        """Begin with an operation for each node of ``traces[rank]``, all computations.

        ``groups[name]`` are the ranks of each group as the user or the trace tells them.
        `group_ranks` lists the ranks of the groups that operations use, and `number_of_group`
        gives a group's place there by name. Both are empty yet, and `group`, `peer` and `match`
        are `MISSING` everywhere. The methods `read_collectives`, `match_collectives` and
        `match_messages` fill these columns in place, in this order. A barrier counts as a
        collective of 0 bytes.
        """
        # The nodes in the order of operations, and what each waits for: operation k waits for
        # ``dep[dep_start[k]:dep_start[k + 1]]``.
        self.members = groups
        self.options = options
        ordered = [_order_nodes(trace) for trace in traces]
        ordered_traces = [trace for trace, _ in ordered]
        orders = [order for _, order in ordered]
        self.nodes = Nodes.of(ordered_traces, orders)
        self.dep_start, self.dep = _join_dependencies(ordered_traces, orders)

        # Nothing is known of communications yet.
        n_operations = len(self.nodes.rank)
        self.kind = np.full(n_operations, COMPUTE_OPERATION, dtype=np.int64)
        """A place in `OPERATIONS`."""
        self.group = np.full(n_operations, MISSING)
        """A place in `group_ranks`."""
        self.peer = np.full(n_operations, MISSING)
        """The other rank of a message."""
        self.match = np.full(n_operations, MISSING)
        """A number that the parts of one communication have in common."""
        self.n_matches = 0
        self.number_of_group: dict[str, int] = {}
        self.group_ranks: list[tuple[int, ...]] = []

        # A collective takes the time of its circuits, or none if its group is left out. What the
        # trace has measured counts only where the collective becomes computation.
        self.takes_no_time = self.nodes.column("kind") == COLLECTIVE
        self.root = roots_of(self.nodes)
        """The root of a collective; `MISSING` if it has none or does not tell it."""
        self.told_collective = self.nodes.column("collective")
        # All parts of a reduce-scatter are equal here, as those of its block form are.
        is_block = self.told_collective == COLLECTIVES.index("REDUCE_SCATTER_BLOCK")
        self.collective = np.where(
            is_block, COLLECTIVES.index("REDUCE_SCATTER"), self.told_collective
        )
        """The type of a collective, a place in `COLLECTIVES`."""
        is_barrier = self.collective == COLLECTIVES.index("BARRIER")
        self.size_bytes = np.where(is_barrier, 0, self.nodes.column("size_bytes"))

    def find_group(self, name: str, ranks: Sequence[int]) -> int:
        """Return the place of a group in `group_ranks`; a new one is added with these ranks."""
        if name not in self.number_of_group:
            self.number_of_group[name] = len(self.group_ranks)
            self.group_ranks.append(tuple(ranks))
        return self.number_of_group[name]

    def read_collectives(self) -> None:
        """Set kind and group of all collectives, which are computations before.

        Collectives of one rank and one group are looked at together.
        """
        # `alike` gives arrays of places in `operations` with equal ranks and groups.
        operations = np.flatnonzero(self.nodes.column("kind") == COLLECTIVE)
        rank = self.nodes.rank[operations]
        group = self.nodes.column("group")[operations]
        for places in alike(rank, group):
            # Collectives of a group that is left out, or that has one rank, stay computations,
            # which take no time. Unknown types, groups and roots are refused.
            collectives = operations[places]
            first = int(collectives[0])
            name = self.nodes.group_name(first) or ALL_RANKS
            if name in self.options.leave_out:
                continue
            types = self.told_collective[collectives]
            is_unknown = (types < 0) | (types >= len(COLLECTIVES))
            for operation in collectives[is_unknown][:1].tolist():
                raise self.nodes.fail(
                    operation,
                    f"comm_type = {self.told_collective[operation]}: no type of collective;"
                    " --lenient takes it as computation",
                )

            ranks = members_of(self.nodes, first, self.members)
            is_foreign_root = ~np.isin(self.root[collectives], [MISSING, *ranks])
            for operation in collectives[is_foreign_root][:1].tolist():
                check_root(self.nodes, operation, int(self.root[operation]), ranks)

            # Some producers write groups of one rank, which sends nothing.
            if len(ranks) > 1:
                self.kind[collectives] = _KIND_OF_COLLECTIVE[types]
                self.group[collectives] = self.find_group(name, ranks)

    def match_collectives(self) -> None:
        """Find which operations of different ranks are parts of the same collective.

        The k-th collective of a group at one rank belongs to the k-th at the others; parts of a
        collective get the same number in `match`. Their kinds and sizes have to agree. Collectives
        that some rank lacks become computation, or are refused where nothing may be left out.
        """
        is_unsized = (self.group != MISSING) & (self.size_bytes < 0)
        for operation in np.flatnonzero(is_unsized)[:1].tolist():
            raise self.nodes.fail(
                operation, "comm_size is missing or negative; --lenient takes it as computation"
            )

        # The collectives of group g are ``by_group[bounds[g]:bounds[g + 1]]``, in their order.
        by_group = np.argsort(self.group, kind="stable")
        n_groups = len(self.group_ranks)
        bounds = np.searchsorted(self.group[by_group], np.arange(n_groups + 1))
        for name, group in self.number_of_group.items():
            operations = by_group[bounds[group] : bounds[group + 1]]
            operations_of_rank = [
                operations[self.nodes.rank[operations] == rank] for rank in self.group_ranks[group]
            ]
            # If one rank has 10 and another 8, the last 2 of the first rank have no counterpart.
            # They become computation that lasts as long as the trace says, or are refused where
            # nothing may be left out; the rank that has most of them names them.
            longest = max(operations_of_rank, key=len)
            n_common = min(map(len, operations_of_rank))
            for rank, operations in zip(self.group_ranks[group], operations_of_rank, strict=True):
                for operation in longest[len(operations) :].tolist():
                    rule = f"group {name}: rank {rank} has no part in this collective"
                    self.nodes.skip(operation, rule)
            for operations in operations_of_rank:
                self._turn_into_computation(operations[n_common:])
            # table[rank, k]: the k-th collective at a rank.
            table = np.stack([operations[:n_common] for operations in operations_of_rank])

            # From a root only the root may say what there is, and an ``all_to_allv`` ends when
            # its largest part does: the largest size of a collective counts where ranks may tell
            # less.
            from_root = [COLLECTIVES.index(name) for name in FROM_ROOT]
            may_be_less = (self.size_bytes[table] == 0) & np.isin(
                self.collective[table], from_root
            )
            may_be_less |= self.collective[table] == COLLECTIVES.index("ALL_TO_ALL")
            largest = self.size_bytes[table].max(axis=0, initial=0)
            largest_at_each_rank = np.broadcast_to(largest, table.shape)
            self.size_bytes[table[may_be_less]] = largest_at_each_rank[may_be_less]

            for row in table:
                # Kinds, sizes and, where both tell one, roots agree.
                differs = self.collective[row] != self.collective[table[0]]
                differs |= self.size_bytes[row] != self.size_bytes[table[0]]
                tell_roots = (self.root[row] != MISSING) & (self.root[table[0]] != MISSING)
                differs |= tell_roots & (self.root[row] != self.root[table[0]])
                for place in np.flatnonzero(differs)[:1].tolist():
                    other = int(table[0][place])
                    other_place = f"{self.nodes.place(other)} of rank {self.nodes.rank[other]}"
                    raise self.nodes.fail(
                        int(row[place]),
                        f"group {name}: kind, size or root differs from {other_place}",
                    )
            n_collectives = table.shape[1]
            self.match[table] = self.n_matches + np.arange(n_collectives)
            self.n_matches += n_collectives

    def _turn_into_computation(self, operations: Integers) -> None:
        """Let operations, given by their numbers, be computation that takes as long as they took.

        They have no group, no other rank and no counterparts any more.
        """
        self.kind[operations] = COMPUTE_OPERATION
        self.group[operations] = MISSING
        self.peer[operations] = MISSING
        self.match[operations] = MISSING
        self.takes_no_time[operations] = False

    def match_messages(self) -> None:
        """Pair each send with its receive: set `peer`, `match`, `kind` and `group` at both ends.

        A message whose trace names no group, or one that has collectives too, gets a group of its
        two ranks. One without its counterpart becomes computation; unknown groups are refused.
        """
        # All groups that messages name have to be known.
        is_message = np.isin(self.nodes.column("kind"), (SEND, RECEIVE))
        operations = np.flatnonzero(is_message)
        messages = self.nodes.take(operations)
        groups = [messages.group_name(message) for message in range(len(operations))]
        for message, group in enumerate(groups):
            if group and group not in self.members:
                raise messages.fail(message, f"group {group}: its members are not known")

        # ``pair[message]`` is a number that both ends have, from 0 on, MISSING without a
        # counterpart. Collectives have the numbers in `match` below these.
        self.peer[operations], pair = pair_messages(messages, self.members)
        self.match[operations] = self.n_matches + pair
        self.kind[operations] = np.where(messages.column("kind") == SEND, SEND_OPERATION, RECV)
        self._turn_into_computation(operations[pair == MISSING])

        # The group of each message that has both ends. Messages do not share a group with
        # collectives, as they are communication of a pipeline.
        groups_of_collectives = set(self.number_of_group)
        for message in np.flatnonzero(pair != MISSING).tolist():
            operation = int(operations[message])
            group = groups[message]
            ends = (int(self.nodes.rank[operation]), int(self.peer[operation]))
            ranks = tuple(self.members.get(group, ends))
            for rank in ends:
                if rank not in ranks:
                    raise self.nodes.fail(operation, f"rank {rank} is no member of group {group}")

            # Without a group of its own, a pair of ranks is one.
            if not group or group in groups_of_collectives:
                ranks = (min(ends), max(ends))
                group = f"{group or 'pair'}.{ranks[0]}-{ranks[1]}"
            self.group[operation] = self.find_group(group, ranks)

    def make_step(self) -> Step:
        """Put the step together.

        Communication lasts as long as its circuits need, and has no duration; a computation
        without one takes its floating-point operations at the rate of `TraceOptions.flops_per_s`.
        """
        duration_s = self.nodes.column("duration_us") * 1e-6
        if self.options.flops_per_s is not None:
            n_flops = self.nodes.column("operations").clip(min=0)
            duration_s = np.where(duration_s > 0, duration_s, n_flops / self.options.flops_per_s)
        else:
            is_untimed = (self.nodes.column("operations") > 0) & (duration_s == 0)
            if is_untimed.any():
                _log.warning(
                    "%d computations tell their operations (num_ops) but no duration: they take no"
                    " time without --flops",
                    int(is_untimed.sum()),
                )
        communicates = self.group >= 0
        takes_no_time = communicates | self.takes_no_time
        return Step(
            groups=tuple(self._make_groups()),
            rank=self.nodes.rank.astype(np.int32),
            kind=self.kind.astype(np.int8),
            group=self.group.astype(np.int32),
            size_bytes=np.where(communicates, self.size_bytes, 0).astype(np.float64),
            duration_s=np.where(takes_no_time, 0.0, duration_s),
            peer=self.peer.astype(np.int32),
            match=self.match.astype(np.int32),
            dep_start=self.dep_start,
            dep=self.dep,
        )

    def _make_groups(self) -> list[Group]:
        """Return all groups by number, each with its dimension (kind of parallelism) and rail.

        A dimension that the options do not tell is guessed: "pp" with messages, "ep" with
        all-to-alls, else "tp" inside a server (rail -1) and "dp" on a rail. Groups of one
        dimension, but for "pp", have the same ranks or none in common.
        """
        # The numbers of groups that have messages, and all-to-alls; only messages have a peer.
        has_messages = set(np.unique(self.group[self.peer != MISSING]).tolist())
        has_all_to_alls = set(np.unique(self.group[self.kind == ALL_TO_ALL]).tolist())
        groups: list[Group] = []
        group_of_rank: dict[tuple[str, int], Group] = {}
        for name, number in self.number_of_group.items():
            ranks = self.group_ranks[number]
            rail = self.options.rail(ranks)
            if rail is None:
                raise self._fail_group(
                    number, f"group {name}: its ranks are on several rails and several servers"
                )

            # What a group does tells its dimension, unless the options do.
            if number in has_messages:
                guess = "pp"
            elif number in has_all_to_alls:
                guess = "ep"
            else:
                guess = "tp" if rail < 0 else "dp"
            dimension = self.options.dimensions.get(name, cast(Dimension, guess))
            group = Group(name, dimension, ranks, rail)
            groups.append(group)

            # Groups of one dimension either have the same ranks or none in common. Those of a
            # pipeline may be pairs of neighbours, which overlap.
            if dimension == "pp":
                continue
            for rank in ranks:
                other = group_of_rank.setdefault((dimension, rank), group)
                if set(other.ranks) != set(ranks):
                    raise self._fail_group(
                        number,
                        f"rank {rank} is in the groups {other.name} and {name}, both {dimension}:"
                        " tell the dimension of one of them",
                    )
        return groups

    def _fail_group(self, group: int, message: str) -> FormatError:
        """Return an error about the first node of a group."""
        return self.nodes.fail(int(np.flatnonzero(self.group == group)[0]), message)


def _order_nodes(trace: Trace) -> tuple[Trace, Integers]:
    """Return a trace, and its nodes in an order in which each is behind those that it waits for.

    Where nodes wait in a circle and parts may be left out, control dependencies do not count.
    """
    try:
        return trace, _sort_topologically(trace)
    except FormatError as exc:
        if trace.skipped is None or trace.first_control is None:
            raise
        trace.skipped.append(f"{exc}: no control dependency of this file counts")

    # Only data dependencies are kept. Those of a node stand before its control dependencies.
    first_control = np.repeat(trace.first_control, np.diff(trace.first_parent))
    trace = trace.keep_parents(np.arange(len(trace.parents)) < first_control)
    return trace, _sort_topologically(trace)


def _sort_topologically(trace: Trace) -> Integers:
    """Put nodes behind the nodes that they wait for; otherwise the order of the file stays.

    Returns ``order[k]``, the place in the trace of the node that comes as number k. Nodes that
    wait for each other in a circle are refused.
    """
    # Mostly every node stands behind what it waits for, and the order stays.
    n_nodes = len(trace.node_id)
    child_of_dependency = np.repeat(np.arange(n_nodes), np.diff(trace.first_parent))
    if (trace.parents < child_of_dependency).all():
        return np.arange(n_nodes)

    # Kahn's algorithm with a heap: of all nodes that wait for nothing more, the one that stands
    # first in the trace comes next.
    children: list[list[int]] = [[] for _ in range(n_nodes)]
    for parent, child in zip(trace.parents.tolist(), child_of_dependency.tolist(), strict=True):
        children[parent].append(child)

    # A node is ready when all that it waits for are in the order.
    n_waiting_for = np.diff(trace.first_parent).tolist()
    ready = [node for node in range(n_nodes) if n_waiting_for[node] == 0]
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for child in children[node]:
            n_waiting_for[child] -= 1
            if n_waiting_for[child] == 0:
                heapq.heappush(ready, child)
    if len(order) == n_nodes:
        return np.array(order, dtype=np.int64)

    # Nodes that are left wait for each other, or for such nodes. `list_circle` follows the
    # dependencies between them, and gives the nodes of one circle in order.
    is_held = np.array(n_waiting_for)[trace.parents] > 0
    circle = list_circle(trace.parents[is_held].tolist(), child_of_dependency[is_held].tolist())
    named_nodes = circle[1 : 1 + _MOST_NAMED_NODES]
    ways = ", ".join(str(trace.node_id[node]) for node in named_nodes) or "nothing"
    raise trace.fail(
        circle[0], f"waits for itself, in a circle of {len(circle)} nodes by way of {ways}"
    )


def _join_dependencies(
    traces: Sequence[Trace], orders: Sequence[Integers]
) -> tuple[Integers, Integers]:
    """Return `dep_start` and `dep`, what operations wait for, of all ranks.

    ``orders[rank][k]`` is the node that is operation k of the rank. Operations are numbered one
    rank after the other: if rank 0 has 5 nodes, the first one of rank 1 is number 5. Operation k
    waits for ``dep[dep_start[k] : dep_start[k + 1]]``.
    """
    counts = [np.zeros(1, dtype=np.int64)]
    dependencies = [np.zeros(0, dtype=np.int64)]
    first_operation = 0
    for trace, order in zip(traces, orders, strict=True):
        n_nodes = len(order)
        operation_of_node = np.empty(n_nodes, dtype=np.int64)
        operation_of_node[order] = first_operation + np.arange(n_nodes)

        # Dependencies of nodes become those of operations, in the order of the operations that
        # wait.
        count = np.diff(trace.first_parent)
        waiting = np.repeat(operation_of_node, count)
        in_order = np.argsort(waiting, kind="stable")
        dependencies.append(operation_of_node[trace.parents[in_order]])
        counts.append(count[order])
        first_operation += n_nodes
    return np.cumsum(np.concatenate(counts)), np.concatenate(dependencies)


Groups = dict[str, tuple[int, ...]]


def read_groups(path: str | os.PathLike[str], *, n_ranks: int | None = None) -> Groups:
    """Read a file of communicator groups: ranks by name, in the order of the ring.

    The file is JSON such as ``{"1": [0, 1], "2": [2, 3]}``, by the names that the attribute
    `pg_name` of traces has. `n_ranks` is None if it is not known.
    """
    file = path_name(path)
    with naming(file):
        tree = parse_json(read_bytes(path), file)
        check_object(tree, "")
        groups: Groups = {}
        for name, members in tree.items():
            where = pointer("", name)
            if not isinstance(members, list) or not members:
                raise FormatError(
                    f"{shorten(members)}: a list of ranks is expected{describe_tree(tree)}",
                    where=where,
                )

            # Ranks are whole numbers of the job, each once.
            seen = set[int]()
            for place, rank in enumerate(members):
                if type(rank) is not int or rank < 0 or (n_ranks is not None and rank >= n_ranks):
                    allowed = "whole numbers >= 0" if n_ranks is None else f"0 .. {n_ranks - 1}"
                    raise FormatError(
                        f"group {name}: rank {shorten(rank)}: ranks are {allowed}",
                        where=pointer(where, place),
                    )
                if rank in seen:
                    raise FormatError(
                        f"group {name}: rank {rank} is a member twice", where=pointer(where, place)
                    )
                check_content("ranks", rank + 1, "")
                seen.add(rank)
            groups[name] = tuple(members)
        return groups


def groups_text(groups: Mapping[str, Sequence[int]]) -> str:
    """Write groups as JSON."""
    return layout({name: [int(rank) for rank in ranks] for name, ranks in groups.items()}) + "\n"


Members = Mapping[str, Sequence[int]]
"""The ranks of each group."""


def pair_messages(messages: Nodes, members: Members) -> tuple[Integers, Integers]:
    """Return two arrays of shape (messages,): the rank at the other end, and a number of the pair.

    A send and its receive have the same number: a send of rank 0 to rank 3 and the receive at rank
    3 give the ranks 3 and 0, and the pairs 7 and 7. ``members[group]`` are the ranks of a group.
    Messages between two ranks with the same tag are in the same order at both. A rank that is not
    told is the other one of a group of two, or the only rank of the group with a counterpart of
    the same tag. A message that is left out has the pair `MISSING`.
    """
    is_send = messages.column("kind") == SEND

    # Ends that no node tells are found among the messages of the same group and tag.
    groups = [messages.group_name(message) for message in range(len(messages.rank))]
    peer = _told_peers(messages, is_send, groups, members)
    if (peer == MISSING).any():
        tag = messages.column("tag").tolist()
        messages_alike = defaultdict[tuple[str, int], list[int]](list)
        for message, group in enumerate(groups):
            messages_alike[group, tag[message]].append(message)
        for candidates in messages_alike.values():
            _resolve_peers(messages, is_send, peer, candidates)

    # The ends of a message are the same for its send and its receive: from where to where.
    source = np.where(is_send, messages.rank, peer)
    destination = np.where(is_send, peer, messages.rank)
    ends_and_tag = np.stack([source, destination, messages.column("tag")])

    # ``count_before[message]`` is how many messages of the same ends, tag and kind come before it.
    of_kind = np.stack([*ends_and_tag, is_send])
    _, kind = np.unique(of_kind, axis=1, return_inverse=True)
    count_before = rank_in_group(kind.reshape(-1).astype(np.int32))

    # A pair is a send and a receive with the same ends, tag and count.
    key = np.stack([*ends_and_tag, count_before], axis=1)
    _, pair, n_with_key = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    pair = pair.reshape(-1).astype(np.int64)
    pair = np.where(n_with_key[pair] == 2, pair, MISSING)

    # A message without counterpart is left out, or refused where nothing may be (`skip`); those
    # whose other end is not told have been before.
    is_alone = pair == MISSING
    for message in np.flatnonzero(is_alone & (peer != MISSING)).tolist():
        verb = "receives" if is_send[message] else "sends"
        messages.skip(message, f"rank {peer[message]} never {verb} it")

    # A send and its receive tell the same size. Sorted by pair, messages without a counterpart
    # come first, and then two of each pair.
    order = np.argsort(pair, kind="stable")
    paired = order[(pair == MISSING).sum() :].reshape(-1, 2)
    size_bytes = messages.column("size_bytes")
    for first, second in paired.tolist():
        if size_bytes[first] != size_bytes[second] or size_bytes[first] < 0:
            rule = f"comm_size = {size_bytes[first]}, and {size_bytes[second]}"
            raise messages.fail(first, f"{rule} at rank {peer[first]}")
    return peer, pair


def _told_peers(
    messages: Nodes, is_send: NDArray[np.bool_], groups: Sequence[str], members: Members
) -> Integers:
    """Return the rank at the other end of each message as its node tells it, else `MISSING`.

    ``is_send[message]`` tells sends from receives; ``groups[message]`` is a name, with its ranks
    in `members`. The other end of a send is its destination, that of a receive its source; in a
    group of two ranks, the other member. A trace of a rank that is neither end of a message is
    refused.
    """
    # A node may name both ends: the one that is the rank itself, and the other one.
    rank = messages.rank
    n_ranks = len(messages.traces)
    source = messages.column("source")
    destination = messages.column("destination")
    own_end = np.where(is_send, source, destination)
    peer = np.where(is_send, destination, source)

    is_elsewhere = (own_end != MISSING) & (own_end != rank)
    for message in np.flatnonzero(is_elsewhere)[:1].tolist():
        name = "comm_src" if is_send[message] else "comm_dst"
        raise messages.fail(
            message, f"{name} = {own_end[message]} in the trace of rank {rank[message]}"
        )

    # In a group of two the other end is the other member.
    for message in np.flatnonzero(peer == MISSING).tolist():
        group = members.get(groups[message], ())
        other_members = [member for member in group if member != rank[message]]
        if len(other_members) == 1:
            peer[message] = other_members[0]

    # The other end is a rank that has a trace, or not known.
    is_wrong = (peer < MISSING) | (peer >= n_ranks) | (peer == rank)
    for message in np.flatnonzero(is_wrong)[:1].tolist():
        raise messages.fail(message, f"rank {peer[message]}: another of 0 .. {n_ranks - 1}")
    return peer


def _resolve_peers(
    messages: Nodes, is_send: NDArray[np.bool_], peer: Integers, candidates: Sequence[int]
) -> None:
    """Find by exclusion, in `peer`, the ranks of messages whose nodes do not say it.

    `messages` are sends and receives of all ranks, told apart by ``is_send[message]``.
    ``peer[message]`` is the rank at the other end, `MISSING` where it is not known yet.
    `candidates` are the numbers of the messages of one group and tag. A message with only one
    possible rank gets it, which may leave one rank for another, and so on; the others are left
    out, or refused.
    """
    rank = messages.rank
    hopeless: set[int] = set()
    while True:
        # Messages of one rank and direction are interchangeable: they get one end together.
        unresolved = defaultdict[tuple[int, bool], list[int]](list)
        for message in candidates:
            if peer[message] == MISSING and message not in hopeless:
                unresolved[int(rank[message]), bool(is_send[message])].append(message)
        if not unresolved:
            return

        # A choice is messages (`same_end`) and the ranks that are possible for them. The first
        # choice with one rank alone is certain; without any, the first choice of all is given up.
        choices = [
            (same_end, _possible_peers(messages, is_send, peer, candidates, same_end[0]))
            for same_end in unresolved.values()
        ]
        certain = [choice for choice in choices if len(choice[1]) == 1]
        same_end, ranks = certain[0] if certain else choices[0]
        if len(ranks) == 1:
            peer[same_end] = ranks.pop()
            continue
        listed = ", ".join(map(str, sorted(ranks))) or "none"
        for message in same_end:
            rule = f"its other end is not told; ranks that it could be: {listed}"
            messages.skip(message, rule)
        hopeless.update(same_end)


def _possible_peers(
    messages: Nodes,
    is_send: NDArray[np.bool_],
    peer: Integers,
    candidates: Sequence[int],
    message: int,
) -> set[int]:
    """Return the ranks that could be the other end of a message that does not say it.

    `message` and `candidates` are places in `messages`; the candidates are all messages of its
    group and tag. A send at rank 0 goes to one of the receives that say they are from rank 0 and
    that no other send of rank 0 takes; without any, to a receive that does not say from where it
    is. For a receive it is the same with sends.
    """
    rank = messages.rank
    counterparts = [
        other
        for other in candidates
        if is_send[other] != is_send[message] and rank[other] != rank[message]
    ]
    same_end = [
        other
        for other in candidates
        if is_send[other] == is_send[message] and rank[other] == rank[message]
    ]
    # By rank the number of counterparts that name the rank of this message, less those that are
    # taken by other messages of this rank.
    n_naming_us = Counter(
        int(rank[other]) for other in counterparts if peer[other] == rank[message]
    )
    n_naming_us -= Counter(int(peer[other]) for other in same_end)
    if n_naming_us:
        return set(n_naming_us)
    return {int(rank[other]) for other in counterparts if peer[other] == MISSING}


FROM_ROOT = ("BROADCAST", "SCATTER")
"""Collectives in which one rank has all data before."""
_TO_ROOT = ("REDUCE", "GATHER")
"""Collectives in which one rank has all data after."""


def read_chakra(
    paths: Sequence[str | os.PathLike[str]],
    *,
    groups: Mapping[str, Sequence[int]] | None = None,
    skipped: list[str] | None = None,
) -> NDArray[np.float64]:
    r"""Add up the bytes that the ranks of a trace send.

    Parameters
    ----------
    paths
        A file for each rank, ``name.RANK.et``, perhaps gzipped.
    groups
        The members of each communicator group in the order of the ring, see `read_groups`; a
        collective without a group is one of all ranks.
    skipped
        A list: what a cut trace does not tell is left out, and added to it, see `read_trace`; so
        are messages without their other end, and collectives without the root that they need.
        None: incomplete traces are an error.

    Returns
    -------
    NDArray
        ``matrix[source, destination]`` in bytes, float64. With S bytes of ``comm_size``, a send
        counts S; of n members of an all-to-all each sends S/n to each other. The other collectives
        go round the ring, so a member sends to the next one :math:`2(n-1)S/n` in an all-reduce,
        :math:`(n-1)S` in an all-gather, where S is the shard, and :math:`(n-1)S/n` in a
        reduce-scatter. A broadcast goes round it from the root, and a reduce to the root: all but
        one send S to the next. In a gather all others send S to the root, in a scatter it sends
        S/n to each.

    Raises
    ------
    FormatError
        Naming file and node: a file cut off, a node without size or partner, a rank that is none,
        a group that is not known or that the rank is no member of, a collective whose root is
        not told; a message whose other end is not told and could be several ranks.

    Notes
    -----
    A root is told by ``root``, or by ``comm_src`` of a broadcast or scatter and ``comm_dst`` of a
    reduce or gather.

    Sends count, not receives. Where the trace has both and they differ, a warning names the ranks.
    """
    return add_up(read_traces(paths, skipped=skipped), groups or {})


def add_up(traces: Sequence[Trace], groups: Members) -> NDArray[np.float64]:
    """Return ``matrix[source, destination]``: the bytes that ranks send, from ``traces[rank]``.

    ``groups[name]`` are the ranks of a group of collectives, in the order of its ring. Messages
    count where they are sent. The data of collectives go once round the group as a ring, from each
    member to the next one, twice for an all-reduce; in all-to-alls, gathers and scatters each rank
    sends straight to the receiver.
    """
    matrix = np.zeros((len(traces), len(traces)))
    _add_messages(matrix, traces, groups)

    # Collectives of one rank, group, kind and root are counted together, as there may be
    # thousands; `places` are the places of such nodes in `nodes`, and `first` is one of them.
    nodes = Nodes.of(traces, [np.flatnonzero(trace.kind == COLLECTIVE) for trace in traces])
    collectives = nodes.column("collective")
    size_bytes = nodes.column("size_bytes")
    roots = roots_of(nodes)
    for places in alike(nodes.rank, collectives, nodes.column("group"), roots):
        # All of them need a size, but for barriers.
        first = int(places[0])
        collective = int(collectives[first])
        root = int(roots[first])
        for place in places[size_bytes[places] < 0][:1].tolist():
            if COLLECTIVES[collective : collective + 1] != ("BARRIER",):
                raise nodes.fail(place, "comm_size is missing or negative")

        # The members come first, since they say which roots are possible.
        members = members_of(nodes, first, groups)
        check_root(nodes, first, root, members)
        if not 0 <= collective < len(COLLECTIVES):
            raise nodes.fail(first, f"comm_type = {collective}: no type of collective")

        # Some producers write groups of one rank, which sends nothing.
        if len(members) == 1:
            continue
        # Without its root, a collective from or to one rank cannot be counted.
        name = COLLECTIVES[collective]
        if name in FROM_ROOT + _TO_ROOT and root == MISSING:
            for place in places.tolist():
                nodes.skip(place, f"collective {name}: the trace does not tell its root")
            continue
        # Parts that differ are added one by one.
        rank = int(nodes.rank[first])
        uneven = traces[rank].sent_bytes
        is_even = np.array([node not in uneven for node in nodes.node[places].tolist()])
        for node in nodes.node[places[~is_even]].tolist():
            for member, part_bytes in zip(members, uneven[node], strict=True):
                matrix[rank, member] += part_bytes
        places = places[is_even]

        # Barriers, whose size may be missing, count 0 bytes.
        total_bytes = float(size_bytes[places].clip(min=0).sum(dtype=np.float64))
        for peer, sent_bytes in _sent_bytes(name, rank, members, root, total_bytes).items():
            matrix[rank, peer] += sent_bytes
    return matrix


def roots_of(nodes: Nodes) -> Integers:
    """Return the root of each node: the rank that has all data before or after a collective.

    It is told by the attribute ``root``, else by the source of a broadcast or scatter, and by the
    destination of a reduce or gather; `MISSING` where none is told.
    """
    collective = nodes.column("collective")
    is_from_root = np.isin(collective, [COLLECTIVES.index(name) for name in FROM_ROOT])
    is_to_root = np.isin(collective, [COLLECTIVES.index(name) for name in _TO_ROOT])
    has_root = (nodes.column("kind") == COLLECTIVE) & (is_from_root | is_to_root)

    told_root = nodes.column("root")
    end = np.where(is_from_root, nodes.column("source"), nodes.column("destination"))
    root = np.where(told_root != MISSING, told_root, end)
    roots: Integers = np.where(has_root, root, MISSING)
    return roots


def members_of(nodes: Nodes, place: int, groups: Members) -> Sequence[int]:
    """Return the group of a collective in the order of the ring; its rank has to be a member.

    `place` is the place of the collective in `nodes`. A collective that names no group has all
    ranks. Groups that are not known, or that have a rank without a trace, are refused.
    """
    name = nodes.group_name(place)
    rank = nodes.rank[place]
    n_ranks = len(nodes.traces)
    if not name:
        return range(n_ranks)
    if name not in groups:
        raise nodes.fail(place, f"group {name}: its members are not known")
    if rank not in groups[name]:
        raise nodes.fail(place, f"rank {rank} is no member of group {name}")

    # All members have a trace.
    for member in groups[name]:
        if not 0 <= member < n_ranks:
            raise nodes.fail(place, f"group {name}: rank {member}: ranks are 0 .. {n_ranks - 1}")
    return groups[name]


def check_root(nodes: Nodes, place: int, root: int, members: Sequence[int]) -> None:
    """Refuse a root outside of the group; `MISSING` is allowed."""
    if root != MISSING and root not in members:
        name = nodes.group_name(place) or "of all ranks"
        raise nodes.fail(place, f"its root, rank {root}, is no member of group {name}")


def _add_messages(matrix: NDArray[np.float64], traces: Sequence[Trace], groups: Members) -> None:
    """Add the bytes of all messages to ``matrix[source, destination]``.

    ``traces[rank]`` are the nodes of a rank, and ``groups[name]`` the ranks of a group, which help
    to pair messages. Only sends are counted. Where a trace does not say where a send goes, it is
    paired with a receive; sends without one are left out. Sends without a size are refused.
    """
    # The sends and receives of all ranks. A send that does not say its source is from the rank of
    # its trace; MISSING stands for what is not said.
    nodes = Nodes.of(
        traces, [np.flatnonzero(np.isin(trace.kind, (SEND, RECEIVE))) for trace in traces]
    )
    is_send = nodes.column("kind") == SEND
    source = nodes.column("source")
    source = np.where(is_send & (source == MISSING), nodes.rank, source)

    # Sends that tell their destinations need no receives.
    destination = nodes.column("destination")
    is_counted = is_send
    if (destination[is_send] == MISSING).any():
        destination, pair = pair_messages(nodes, groups)
        is_counted = is_send & (pair != MISSING)

    # Each counted send has a size, and ranks with a trace; the first that has not is named.
    size_bytes = nodes.column("size_bytes")
    for place in np.flatnonzero(is_counted & (size_bytes < 0))[:1].tolist():
        raise nodes.fail(place, "comm_size is missing or negative")
    for ends in (source, destination):
        is_outside = (ends < 0) | (ends >= len(traces))
        for place in np.flatnonzero(is_counted & is_outside)[:1].tolist():
            raise nodes.fail(place, f"rank {ends[place]}: ranks are 0 .. {len(traces) - 1}")
    np.add.at(matrix, (source[is_counted], destination[is_counted]), size_bytes[is_counted])

    # Sends that have no receive of the same size at their destination are told. If some receive
    # does not say its source, sends and receives are compared by destination and size alone.
    if is_send.all():
        return
    size_bytes = nodes.column("size_bytes")
    is_any_source = bool((source[~is_send] == MISSING).any())

    def count(chosen: NDArray[np.bool_], receiver: Integers) -> Counter[tuple[int, int, int]]:
        """Count the chosen messages by sender, receiver and size in bytes."""
        senders = np.full(len(source), MISSING) if is_any_source else source
        ends = np.stack([senders, receiver, size_bytes], axis=1)[chosen]
        return Counter(map(tuple, ends.tolist()))

    # More sends than receives of the same sender, receiver and size: these have no counterpart.
    unmatched = count(is_send, destination) - count(~is_send, nodes.rank)
    if not unmatched:
        return
    sender, receiver, n_bytes = next(iter(unmatched))
    whence = "" if sender == MISSING else f" from rank {sender}"
    first = f"{n_bytes} bytes{whence} to rank {receiver}"
    _log.warning(
        "%d sends have no receive of the same size, and count all the same; the first is of %s",
        unmatched.total(),
        first,
    )


def _sent_bytes(
    name: str, rank: int, members: Sequence[int], root: int, total_bytes: float
) -> dict[int, float]:
    """Return the bytes that a rank sends to others in a collective, by destination.

    `name` is the type of the collective, and `members` are in the order of the ring. `root` is the
    rank that has all data before or after, `MISSING` where there is none. `total_bytes` is the
    size of one collective or of several together: of an all-gather the shard of a rank, of others
    the whole buffer. In an all-reduce of 1 kB between 4 ranks each sends 1.5 kB to the next one.
    """
    n = len(members)
    other_members = [member for member in members if member != rank]
    next_rank = members[(list(members).index(rank) + 1) % n]
    if name == "ALL_TO_ALL" or (name == "SCATTER" and rank == root):
        return dict.fromkeys(other_members, total_bytes / n)
    if name == "GATHER" and rank != root:
        return {root: total_bytes}
    # A broadcast goes along the ring as far as the member before the root, a reduce to the root.
    if (name == "BROADCAST" and next_rank != root) or (name == "REDUCE" and rank != root):
        return {next_rank: total_bytes}

    # All other collectives go once round the ring of members, an all-reduce nearly twice.
    round_the_ring = {
        "ALL_REDUCE": 2 * (n - 1) / n,
        "ALL_GATHER": n - 1.0,
        "REDUCE_SCATTER": (n - 1) / n,
        "REDUCE_SCATTER_BLOCK": (n - 1) / n,
    }
    if name not in round_the_ring:
        return {}
    return {next_rank: round_the_ring[name] * total_bytes}

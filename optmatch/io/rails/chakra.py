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
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
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
    Value,
    naming,
)
from optmatch.model.accounts import Level, accounting, take
from optmatch.model.files import file_path, path_name
from optmatch.problems.rails.training.network import RailNetwork
from optmatch.problems.rails.training.step import (
    ALL_TO_ALL,
    COMPUTE as COMPUTE_OPERATION,
    DIMENSIONS,
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

_NUMBERS = {
    "comm_type": "collective",
    "comm_size": "size_bytes",
    "comm_src": "source",
    "comm_dst": "destination",
    "comm_tag": "tag",
    "num_ops": "operations",
    "root": "root",
}
"""The attributes that are numbers, with the columns of `Nodes` that they become."""
_TEXTS = ("pg_name", "pg_desc")
"""The attributes that are texts: the name of a group, and what it is for, as ``"dp"``."""

ATTRIBUTE_NAMES = Level(
    "attribute of nodes",
    (*_NUMBERS, *_TEXTS, "involved_dim"),
    {
        "is_cpu_op": "computation takes its duration wherever it runs",
        "tensor_size": "memory is not modelled, and communication has comm_size",
        "comm_priority": "the order follows from the dependencies",
        **dict.fromkeys(("rf_id", "seq_id", "tid", "fw_*", "op_schema", "kernel_*"), "a label"),
        **dict.fromkeys(("pid", "stream", "cat", "dur", "ts", "fw_tid", "scope"), "a label"),
    },
    "they are not read, as if they were not there",
)

MISSING = -1
"""The node does not say."""

LARGEST = 2**63
"""Attributes and times are below this."""


@lru_cache
def node_class(text: str = "BYTES") -> Any:
    """Return protobuf's class of a node, by the schema of Chakra's traces, ``et_def.proto`` [1]_.

    `text` is protobuf's type of all text: ``"BYTES"`` for binary traces, as names of kernels are
    not always UTF-8, and ``"STRING"`` to parse nodes of JSON. Both are the same in a file. Fields
    that are not declared here are skipped by protobuf.

    References
    ----------
    .. [1] MLCommons Chakra 1.0.0, ``schema/protobuf/et_def.proto``.
       https://github.com/mlcommons/chakra
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="optmatch/et_def.proto", package="optmatch.chakra", syntax="proto3"
    )
    _declare(file, "Node", _NODE, text)
    _declare(file, "BoolList", {"values": (1, "BOOL")}, text)
    # An attribute has a name and one value: all fields but the first are of one `oneof`.
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
    duration_us: float = 0
    """In microseconds."""
    attributes: Mapping[str, bool | int | str] = {}


def make_node(
    number: int,
    operation: str,
    size_bytes: int,
    group: str,
    *,
    peer: int = MISSING,
    root: int = MISSING,
) -> Node:
    """Make the node of a communication: ``"SEND"``, ``"RECV"``, or one of `COLLECTIVES`.

    `peer` is the other rank of a message.
    """
    attributes: dict[str, bool | int | str] = {"comm_size": size_bytes, "pg_name": group}
    kind = _TYPE_OF.get(operation, COLLECTIVE)
    if kind == SEND:
        attributes["comm_dst"] = peer
    elif kind == RECEIVE:
        attributes["comm_src"] = peer
    else:
        attributes["comm_type"] = _NUMBER_OF[operation]
        attributes["root"] = root
    return Node(number, kind, operation, attributes=attributes)


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
        group = step.groups[step.group[operation]]
        attributes |= {"pg_name": group.name, "pg_desc": group.dimension}

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
    field = {bool: "bool_val", str: "string_val"}.get(type(value), "int64_val")
    content: Any = value
    if isinstance(value, str):
        content = value.encode()
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
        raise FormatError(
            "no Chakra trace, which has workload_graph, or nodes after version"
            f"{describe_content(content)}",
            path=path,
        )

    # A binary trace begins with a description of itself; the nodes are appended to it.
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
        for key in present:
            node[field] = entry[key]
            if field == "type" and entry[key] in NODE_TYPES:
                node[field] = NODE_TYPES.index(entry[key])
            _check_whole(key, node[field], as_text=as_text)

    # Names of groups are texts, dimensions true or false, and all others whole numbers. Of an
    # attribute that is there twice, the one in the list counts.
    key_attributes: list[dict[str, Any]] = []
    for name in ATTRIBUTE_NAMES.used:
        if name not in entry or name in listed_names:
            continue
        if name in _TEXTS:
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


Integers = NDArray[np.int64]

_FILE_NAME = re.compile(r"(?P<stem>.*)\.(?P<rank>\d+)\.(?P<ending>et|json)")
_NO_NUMBERS = dict.fromkeys(_NUMBERS, MISSING)
_list_numbers = itemgetter(*_NUMBERS)
_NAME_OF_BYTES = {name.encode(): name for name in (*_NUMBERS, *_TEXTS)}
"""The attributes that are read, by their names in files."""
_UNKNOWN_TYPE = 127
"""Larger types of nodes are read as this one, which is unknown too."""


class Nodes(NamedTuple):
    """Nodes of one rank or of several in columns, those of a rank in the order of its file.

    Columns have shape (nodes,), unless said, and `MISSING` where a node does not say.
    """

    rank: Integers
    """Ascending."""
    node_id: Integers | NDArray[np.uint64]
    """The number of each node in the file."""
    kind: Integers
    """The type of each node, see `optmatch.io.rails.chakra`."""
    duration_us: NDArray[np.float64]
    """How long each node was measured to take, in microseconds."""
    collective: Integers
    """The type of a collective, a place in `COLLECTIVES`; a reduce-scatter in blocks, whose parts
    are all equal, counts as a reduce-scatter."""
    size_bytes: Integers
    """Of a message or collective; 0 of a barrier."""
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
    """The rank that has all data of a collective before or after it."""
    group_names: tuple[str, ...]
    described_groups: Mapping[str, str]
    """What each group is for, by its name, as the trace says it; our own say the dimension."""
    child: Integers
    """Shape (dependencies,), ascending: node ``child[k]`` waits for node ``parent[k]``."""
    parent: Any
    """Shape (dependencies,)."""
    is_control: NDArray[np.bool_]
    """Shape (dependencies,): whether the child does not need the data of its parent."""
    path_of_rank: Mapping[int, str]
    """The file of each rank."""
    noun: str = "node"
    """The name of a node in messages."""
    skipped: list[str] | None = None
    """The parts that were left out, and why; None if none may be: then such a part is an error."""
    sent_bytes: Mapping[tuple[int, int], tuple[int, ...]] = MappingProxyType({})
    """``sent_bytes[rank, node_id]``: what a rank sends to each rank of the group of an all-to-all
    whose parts differ; other nodes are absent."""

    def take(self, places: Integers) -> Nodes:
        """Return the nodes at some places, with dependencies that do not fit to them."""
        columns: dict[str, Any] = {name: getattr(self, name)[places] for name in _NODE_COLUMNS}
        return self._replace(**columns)

    def keep_dependencies(self, is_kept: NDArray[np.bool_]) -> Nodes:
        """Return the nodes with the dependencies that ``is_kept[k]`` marks."""
        return self._replace(
            child=self.child[is_kept],
            parent=self.parent[is_kept],
            is_control=self.is_control[is_kept],
        )

    def group_name(self, place: int) -> str:
        """Return the name of the group of a node, an empty text if it has none."""
        group = int(self.group[place])
        return "" if group == MISSING else self.group_names[group]

    def name(self, place: int) -> str:
        """Return the name of a node in messages."""
        return f"{self.noun} {int(self.node_id[place])}"

    def fail(self, place: int, message: str) -> FormatError:
        """Return an error about a node."""
        path = self.path_of_rank[int(self.rank[place])]
        return FormatError(message, where=self.name(place), path=path)

    def skip(self, place: int, message: str) -> None:
        """Note that something of a node is left out; refuse it where nothing may be."""
        if self.skipped is None:
            raise self.fail(place, f"{message}; --lenient leaves it out")
        self.skipped.append(str(self.fail(place, message)))


_UNKNOWN_GROUP = (
    "group {}: its members are not known; --groups FILE (in Python groups=) says them, which"
    " `optmatch export PLAN --to astra-groups` writes of a plan of ours"
)
_NODE_COLUMNS = Nodes._fields[: Nodes._fields.index("group_names")]


class NodeBuilder:
    """The nodes of one rank while they are read, column by column.

    A row of `table`, which is flat, has the type of a node, the place of its group in
    `group_names`, and the numbers of `_NUMBERS`. Node k has ``counts[2 * k]`` parents whose data
    it needs, and then ``counts[2 * k + 1]`` others.
    """

    def __init__(self) -> None:
        """Make empty columns."""
        self.node_id = array("Q")
        self.duration_us = array("d")
        self.table = array("q")
        self.parent = array("Q")
        self.counts = array("q")
        self.group_names: dict[str, int] = {}
        """The place of each group, by its name."""
        self.described_groups: dict[str, str] = {}
        """See `Nodes.described_groups`."""
        self.sent_bytes: dict[int, tuple[int, ...]] = {}
        """By the number of a node, see `Nodes.sent_bytes`."""

    def append(self, node: Node, controls: Sequence[int] = ()) -> None:
        """Add a node, which waits for further nodes, `controls`, without need of their data."""
        attributes = node.attributes
        name = attributes.get("pg_name")
        group = MISSING
        if name:
            group = self.group_names.setdefault(str(name), len(self.group_names))
            self.described_groups.setdefault(str(name), str(attributes.get("pg_desc", "")))
        numbers = _list_numbers({**_NO_NUMBERS, **attributes})
        self.table.extend((node.kind, group, *numbers))
        self.node_id.append(node.id)
        self.duration_us.append(node.duration_us)
        self.parent.extend(node.parents)
        self.parent.extend(controls)
        self.counts.extend((len(node.parents), len(controls)))

    def build(self, rank: int, path: str, noun: str, skipped: list[str] | None) -> Nodes:
        """Return the nodes; `parent` has what was appended, places or numbers of nodes."""
        # The table has a row for each node; its transpose has the columns.
        names = ("kind", "group", *_NUMBERS.values())
        rows = np.asarray(self.table, dtype=np.int64).reshape(-1, len(names))
        columns: dict[str, Any] = dict(zip(names, rows.T.copy(), strict=True))

        # A barrier has no bytes, and of a reduce-scatter in blocks all parts are equal, as they
        # are of any other here.
        is_collective = columns["kind"] == COLLECTIVE
        collective = columns["collective"]
        is_block = collective == COLLECTIVES.index("REDUCE_SCATTER_BLOCK")
        collective[is_block] = COLLECTIVES.index("REDUCE_SCATTER")
        is_barrier = is_collective & (collective == COLLECTIVES.index("BARRIER"))
        columns["size_bytes"][is_barrier] = 0

        # The root of a collective is told by the attribute ``root``, else by the end of the same
        # meaning. Others have none.
        is_from_root = np.isin(collective, [COLLECTIVES.index(name) for name in FROM_ROOT])
        is_to_root = np.isin(collective, [COLLECTIVES.index(name) for name in _TO_ROOT])
        end = np.where(is_from_root, columns["source"], columns["destination"])
        root = np.where(columns["root"] == MISSING, end, columns["root"])
        has_root = is_collective & (is_from_root | is_to_root)
        columns["root"] = np.where(has_root, root, MISSING)

        # Parents stand node after node, those with data before the others, as many as `counts`
        # says: with the counts 2, 1 and 0, 1 two nodes have three parents and one, and `child` is
        # 0, 0, 0, 1.
        n_nodes = len(self.node_id)
        counts = np.asarray(self.counts)
        return Nodes(
            rank=np.full(n_nodes, rank),
            node_id=np.asarray(self.node_id),
            duration_us=np.asarray(self.duration_us),
            group_names=tuple(self.group_names),
            described_groups=self.described_groups,
            child=np.repeat(np.arange(2 * n_nodes) // 2, counts),
            parent=np.asarray(self.parent),
            is_control=np.repeat(np.arange(2 * n_nodes) % 2 == 1, counts),
            path_of_rank={rank: path},
            noun=noun,
            skipped=skipped,
            sent_bytes={(rank, node): sent for node, sent in self.sent_bytes.items()},
            **columns,
        )


def join(traces: Sequence[Nodes], n_ranks: int) -> Nodes:
    """Put the nodes of ranks together, given by ascending rank; absent ranks have none."""
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(trace, name) for trace in traces])
        for name in (*_NODE_COLUMNS, "is_control")
    }
    # Places of nodes go up by the nodes of the ranks before.
    first_place = np.cumsum([0, *(len(trace.rank) for trace in traces)])
    for name in ("child", "parent"):
        places = [getattr(trace, name).astype(np.int64) for trace in traces]
        columns[name] = np.concatenate(list(map(np.add, places, first_place)))

    # Each trace numbers the groups that it names; its last entry is for nodes without a group.
    group_names = tuple(dict.fromkeys(name for trace in traces for name in trace.group_names))
    number_of_group = {name: number for number, name in enumerate(group_names)}
    groups = []
    for trace in traces:
        numbers = [*(number_of_group[name] for name in trace.group_names), MISSING]
        groups.append(np.array(numbers)[trace.group])
    columns["group"] = np.concatenate(groups)
    path_of_rank = dict.fromkeys(range(n_ranks), "")
    for trace in traces:
        path_of_rank |= trace.path_of_rank
    return traces[0]._replace(
        group_names=group_names,
        described_groups={
            name: description
            for trace in traces
            for name, description in trace.described_groups.items()
            if description
        },
        path_of_rank=path_of_rank,
        sent_bytes={key: sent for trace in traces for key, sent in trace.sent_bytes.items()},
        **columns,
    )


def group_alike(*columns: Integers) -> list[Integers]:
    """Group the places at which all columns are equal, in the order of their entries.

    The groups are disjoint, and together 0 .. n - 1 for columns of shape (n,).
    """
    order = np.lexsort(columns[::-1])
    table = np.stack(columns)[:, order]
    differs_from_last = (table[:, 1:] != table[:, :-1]).any(axis=0)
    first_of_group = np.flatnonzero(differs_from_last) + 1
    return np.split(order, first_of_group) if len(order) else []


def read_trace(path: str | os.PathLike[str], *, skipped: list[str] | None = None) -> Nodes:
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

        # Numbers of nodes, which are there once each, in `parent` become places of nodes.
        nodes = decode_nodes(content, file, rank, skipped)
        ids = nodes.node_id
        order = np.argsort(ids, kind="stable")
        sorted_ids = ids[order]
        for place in np.flatnonzero(sorted_ids[1:] == sorted_ids[:-1])[:1].tolist():
            raise FormatError("is there twice", where=f"node {sorted_ids[place]}", path=file)

        # Each parent is searched among the sorted numbers, which may find the end, or another
        # number. Dependencies on nodes that are not there are left out or refused.
        place_in_sorted = np.searchsorted(sorted_ids, nodes.parent)
        is_known = place_in_sorted < len(ids)
        is_known[is_known] = sorted_ids[place_in_sorted[is_known]] == nodes.parent[is_known]
        for dependency in np.flatnonzero(~is_known).tolist():
            nodes.skip(
                int(nodes.child[dependency]),
                f"waits for node {nodes.parent[dependency]}, which is not there",
            )
        parent = order[place_in_sorted[is_known]]
        nodes = nodes.keep_dependencies(is_known)._replace(parent=parent)
    return nodes if skipped is None else _without_attributes(nodes)


def read_traces(
    paths: Sequence[str | os.PathLike[str]], *, skipped: list[str] | None = None
) -> Nodes:
    """Read the traces of all ranks, from files in any order; the name of a file tells its rank.

    Ranks that are absent or there twice are refused.
    """
    path_of_rank = {int(_parse_name(path)["rank"]): path for path in paths}
    if sorted(path_of_rank) != list(range(len(paths))):
        raise FormatError(
            f"ranks {sorted(path_of_rank)}: a file for each of 0 .. {len(paths) - 1}"
        )
    ranks = range(len(paths))
    traces = [read_trace(path_of_rank[rank], skipped=skipped) for rank in ranks]
    return join(traces, len(paths))


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


def decode_nodes(content: bytes, path: str, rank: int, skipped: list[str] | None = None) -> Nodes:
    """Read a trace in Chakra's binary format; `parent` has numbers of nodes yet, no places.

    `content` is the file, and `path` its name for messages. `skipped` receives what is
    left out, a line for each thing; None refuses it. The file is a sequence of protobuf messages,
    each behind its length. The first one describes the trace and is passed over. A file that is
    cut off is read up to there where parts may be left out.
    """
    from google.protobuf.message import DecodeError
    from google.protobuf.proto import parse_length_prefixed

    builder = NodeBuilder()
    attribute_names = set[bytes]()
    stream = io.BytesIO(content)
    flaws = (DecodeError, ValueError, OverflowError)

    # Parsed as a node, the description of the trace, which comes first, has neither number nor
    # type.
    description: Any = None
    with suppress(*flaws):
        description = parse_length_prefixed(node_class(), stream)
    if description is None or description.id or description.type:
        raise FormatError(
            f"byte 0: a trace begins with a description of it{describe_content(content)}",
            path=path,
        )

    # Messages follow each other, each behind its length. A file that ends within one is cut off,
    # which happens to long runs; a message that cannot be read before the end is a damaged file.
    while stream.tell() < len(content):
        length_start = stream.tell()
        try:
            message: Any = parse_length_prefixed(node_class(), stream)
        except flaws as exc:
            # The message says where, and whether the file is cut off or damaged.
            n_nodes = len(builder.node_id)
            after = f", after node {builder.node_id[-1]}," if n_nodes else ""
            is_cut = stream.tell() == len(content)
            flaw = "is cut off" if is_cut else "is damaged, or this is no Chakra trace"
            rule = f"byte {length_start}: node number {n_nodes}{after} {flaw}"
            error = FormatError(rule, path=path)

            # What stands before a cut is read where parts may be left out.
            if not is_cut:
                raise error from exc
            if skipped is None:
                hint = "; --lenient reads what is before it"
                raise FormatError(f"{rule}{hint}", path=path) from exc
            skipped.append(str(error))
            break
        with refused_at(f"node {message.id}", path):
            builder.append(_read_node(message, attribute_names), message.ctrl_deps)
    names = sorted(name.decode(errors="replace") for name in attribute_names)
    take(ATTRIBUTE_NAMES, names, path=path)
    return builder.build(rank, path, "node", skipped)


def _read_node(message: Any, attribute_names: set[bytes]) -> Node:
    """Return a node as protobuf has parsed it, with the attributes that are read.

    The names of all its attributes are added to `attribute_names`. A value that breaks a rule is
    refused. Where an attribute is there twice, the last one counts.
    """
    if message.duration_micros >= LARGEST:
        raise FormatError(f"duration_micros = {message.duration_micros}: numbers are below 2**63")
    attributes: dict[str, bool | int | str] = {}
    involved: list[bool] = []
    for attribute in message.attr:
        # Names of all attributes are kept, also of those that are not read.
        encoded_name = attribute.name
        if encoded_name == b"involved_dim":
            involved = list(attribute.bool_list.values)
        if not encoded_name:
            raise FormatError("an attribute has no name")
        attribute_names.add(encoded_name)
        name = _NAME_OF_BYTES.get(encoded_name)
        if name is None:
            continue

        # A group may be named by a number; all other values are whole numbers of at most 64 bits.
        field = attribute.WhichOneof("value")
        value: Any = getattr(attribute, field) if field else None
        if name in _TEXTS and value is not None:
            value = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        elif isinstance(value, bool) or not isinstance(value, int):
            raise FormatError(f"{name} = {value!r}: a whole number is expected")
        elif abs(value) >= LARGEST:
            raise FormatError(f"{name} = {value}: numbers are below 2**63")
        attributes[name] = value

    # A collective of some dimensions of a network alone has no ranks that are known.
    if message.type == COLLECTIVE and not all(involved) and not attributes.get("pg_name"):
        listed = ", ".join(str(one).lower() for one in involved)
        raise FormatError(
            f"involved_dim = [{listed}]: a collective of some dimensions of a network,"
            " whose sizes the trace does not tell; pg_name and --groups tell its ranks"
        )
    kind = min(message.type, _UNKNOWN_TYPE)
    return Node(message.id, kind, "", message.data_deps, message.duration_micros, attributes)


def _parse_name(path: str | os.PathLike[str]) -> re.Match[str]:
    """Split the name of a trace into ``"stem"``, ``"rank"`` (digits) and ``"ending"``."""
    match = _FILE_NAME.fullmatch(file_path(path).name)
    if match is None:
        raise FormatError(
            f"a trace is named name.RANK.et or .json{_describe_file(path)}", path=path_name(path)
        )
    return match


def _without_attributes(nodes: Nodes) -> Nodes:
    """Let communication without its kind or size be computation, and note it in `skipped`."""
    is_collective = nodes.kind == COLLECTIVE
    is_message = (nodes.kind == SEND) | (nodes.kind == RECEIVE)
    is_type_known = (nodes.collective >= 0) & (nodes.collective < len(COLLECTIVES))
    is_untyped = is_collective & ~is_type_known
    is_unsized = (is_message | (is_collective & is_type_known)) & (nodes.size_bytes < 0)
    for is_flawed, name in ((is_untyped, "comm_type"), (is_unsized, "comm_size")):
        for place in np.flatnonzero(is_flawed).tolist():
            nodes.skip(place, f"{name} is missing or out of range: taken as computation")
    return nodes._replace(kind=np.where(is_untyped | is_unsized, COMPUTE, nodes.kind))


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
        The dimensions of groups by name. Of the others, one whose trace says it (``pg_desc``) has
        this dimension; else one that sends and receives is a pipeline, one with an all-to-all has
        experts, one inside a server is tensor parallel, and the rest is data parallel.
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

_NO_NODES = np.zeros(0, dtype=np.int64)

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
    nodes = read_traces(siblings(prefix), skipped=skipped)
    members = {} if groups is None else read_groups(groups, n_ranks=len(nodes.path_of_rank))
    return step_of(nodes, members, options or TraceOptions())


def step_of(nodes: Nodes, groups: Members, options: TraceOptions) -> Step:
    """Make a step of the nodes of all ranks; matches their communication as `read_step` says.

    The first node that fits to no other, or waits for itself, is refused.
    """
    draft = _Draft(_sort_topologically(nodes), groups, options)
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


class _UsedGroup(NamedTuple):
    """A group that operations of a step use."""

    number: int
    ranks: tuple[int, ...]
    first: int
    """The first operation that uses it."""


class _Draft:
    """The operations of all ranks, one for each node, before they are a step.

    Columns have shape (operations,), in the order of `nodes`, in which each node stands behind
    those that it waits for; `MISSING` (-1) stands for what is not known.
    """

    def __init__(self, nodes: Nodes, groups: Members, options: TraceOptions) -> None:
        """Begin with computations alone.

        ``groups[name]`` are the ranks of each group as the user or the trace tells them. The
        methods `match_collectives` and `match_messages` fill the columns in place, in this order.
        """
        self.nodes = nodes
        self.members = groups
        self.options = options
        self.groups: dict[str, _UsedGroup] = {}
        """The groups that operations use, by their names, in the order of their numbers."""

        n_operations = len(nodes.rank)
        self.kind = np.full(n_operations, COMPUTE_OPERATION, dtype=np.int64)
        """A place in `OPERATIONS`."""
        self.group = np.full(n_operations, MISSING)
        """The number of a group."""
        self.peer = np.full(n_operations, MISSING)
        """The other rank of a message."""
        self.match = np.full(n_operations, MISSING)
        """A number that the parts of one communication have in common."""
        self.n_matches = 0

        self.size_bytes = nodes.size_bytes.copy()
        self.takes_no_time = nodes.kind == COLLECTIVE
        """A collective takes the time of its circuits, or none if its group is left out. What the
        trace has measured counts only where the collective becomes computation."""

    def find_group(self, name: str, ranks: Sequence[int], operation: int) -> int:
        """Return the number of the group of an operation; a new one is added with these ranks."""
        if name not in self.groups:
            self.groups[name] = _UsedGroup(len(self.groups), tuple(ranks), operation)
        return self.groups[name].number

    def match_collectives(self) -> None:
        """Find which operations of different ranks are parts of the same collective.

        The k-th collective of a group at one rank belongs to the k-th at the others; parts of a
        collective get the same number in `match`. Their kinds and sizes have to agree. Collectives
        that some rank lacks stay computation, or are refused where nothing may be left out.
        Collectives of a group that is left out, or of one rank, take no time.
        """
        nodes = self.nodes
        operations_of_rank = defaultdict[int, dict[int, Integers]](dict)
        for name, ranks, operations in list_collectives(
            nodes, self.members, self.options.leave_out
        ):
            first = int(operations[0])
            group = self.find_group(name, ranks, first)
            operations_of_rank[group][int(nodes.rank[first])] = operations

        for name, used in self.groups.items():
            operations_of = operations_of_rank[used.number]
            columns = [operations_of.get(rank, _NO_NODES) for rank in used.ranks]
            # If one rank has 10 and another 8, the last 2 of the first rank have no counterpart.
            # They become computation that lasts as long as the trace says, or are refused where
            # nothing may be left out; the rank that has most of them names them.
            longest = max(columns, key=len)
            n_common = min(map(len, columns))
            for rank, operations in zip(used.ranks, columns, strict=True):
                for operation in longest[len(operations) :].tolist():
                    nodes.skip(
                        operation, f"group {name}: rank {rank} has no part in this collective"
                    )
                self.takes_no_time[operations[n_common:]] = False
            # table[member, k]: the k-th collective at a rank.
            table = np.stack([operations[:n_common] for operations in columns])

            # From a root only the root may say what there is, and an ``all_to_allv`` ends when
            # its largest part does: the largest size of a collective counts where ranks may tell
            # less.
            collective = nodes.collective[table]
            size_bytes = nodes.size_bytes[table]
            from_root = [COLLECTIVES.index(name) for name in FROM_ROOT]
            may_be_less = (size_bytes == 0) & np.isin(collective, from_root)
            may_be_less |= collective == COLLECTIVES.index("ALL_TO_ALL")
            largest_bytes = size_bytes.max(axis=0, initial=0)
            size_bytes = np.where(may_be_less, largest_bytes, size_bytes)

            # Kinds, sizes and, where both tell one, roots agree.
            root = nodes.root[table]
            differs = (collective != collective[0]) | (size_bytes != size_bytes[0])
            differs |= (root != MISSING) & (root[0] != MISSING) & (root != root[0])
            for member, place in np.argwhere(differs)[:1].tolist():
                other = int(table[0, place])
                other_place = f"{nodes.name(other)} of rank {nodes.rank[other]}"
                raise nodes.fail(
                    int(table[member, place]),
                    f"group {name}: kind, size or root differs from {other_place}",
                )

            self.kind[table] = _KIND_OF_COLLECTIVE[collective]
            self.group[table] = used.number
            self.size_bytes[table] = size_bytes
            self.match[table] = self.n_matches + np.arange(n_common)
            self.n_matches += n_common

    def match_messages(self) -> None:
        """Pair each send with its receive: set `peer`, `match`, `kind` and `group` at both ends.

        A message whose trace names no group, or one that has collectives too, gets a group of its
        two ranks. One without its counterpart stays computation; unknown groups are refused.
        """
        # All groups that messages name have to be known.
        is_message = np.isin(self.nodes.kind, (SEND, RECEIVE))
        operations = np.flatnonzero(is_message)
        messages = self.nodes.take(operations)
        groups = [messages.group_name(message) for message in range(len(operations))]
        for message, group in enumerate(groups):
            if group and group not in self.members:
                raise messages.fail(message, _UNKNOWN_GROUP.format(group))

        # ``pair[message]`` is a number that both ends have, from 0 on, MISSING without a
        # counterpart. Collectives have the numbers in `match` below these.
        peer, pair = pair_messages(messages, self.members)
        paired = np.flatnonzero(pair != MISSING)
        both_ends = operations[paired]
        self.peer[both_ends] = peer[paired]
        self.match[both_ends] = self.n_matches + pair[paired]
        self.kind[both_ends] = np.where(messages.kind[paired] == SEND, SEND_OPERATION, RECV)

        # Messages do not share a group with collectives, as they are communication of a pipeline.
        groups_of_collectives = set(self.groups)
        for message in paired.tolist():
            operation = int(operations[message])
            group = groups[message]
            ends = (int(messages.rank[message]), int(peer[message]))
            ranks = tuple(self.members.get(group, ends))
            for rank in ends:
                if rank not in ranks:
                    raise messages.fail(message, f"rank {rank} is no member of group {group}")

            # Without a group of its own, a pair of ranks is one.
            if not group or group in groups_of_collectives:
                ranks = (min(ends), max(ends))
                group = f"{group or 'pair'}.{ranks[0]}-{ranks[1]}"
            self.group[operation] = self.find_group(group, ranks, operation)

    def make_step(self) -> Step:
        """Put the step together.

        Communication lasts as long as its circuits need, and has no duration; a computation
        without one takes its floating-point operations at the rate of `TraceOptions.flops_per_s`.
        """
        nodes = self.nodes
        duration_s = nodes.duration_us * 1e-6
        if self.options.flops_per_s is not None:
            n_flops = nodes.operations.clip(min=0)
            duration_s = np.where(duration_s > 0, duration_s, n_flops / self.options.flops_per_s)
        else:
            is_untimed = (nodes.operations > 0) & (duration_s == 0)
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
            rank=nodes.rank.astype(np.int32),
            kind=self.kind.astype(np.int8),
            group=self.group.astype(np.int32),
            size_bytes=np.where(communicates, self.size_bytes, 0).astype(np.float64),
            duration_s=np.where(takes_no_time, 0.0, duration_s),
            peer=self.peer.astype(np.int32),
            match=self.match.astype(np.int32),
            dep_start=np.searchsorted(nodes.child, np.arange(len(nodes.rank) + 1)),
            dep=nodes.parent,
            skipped=tuple(nodes.skipped or ()),
        )

    def _make_groups(self) -> list[Group]:
        """Return all groups by number, each with its dimension (kind of parallelism) and rail.

        A dimension that neither the options nor the trace tell is guessed: "pp" with messages,
        "ep" with all-to-alls, else "tp" inside a server (rail -1) and "dp" on a rail. Inside
        servers and on rails, groups of one dimension, but for "pp", have the same ranks or none
        in common.
        """
        # The numbers of groups that have messages, and all-to-alls; only messages have a peer.
        has_messages = set(np.unique(self.group[self.peer != MISSING]).tolist())
        has_all_to_alls = set(np.unique(self.group[self.kind == ALL_TO_ALL]).tolist())
        groups: list[Group] = []
        group_of_rank: dict[tuple[str, bool, int], Group] = {}
        for name, used in self.groups.items():
            rail = self.options.rail(used.ranks)
            if rail is None:
                raise self.nodes.fail(
                    used.first,
                    f"group {name}: its ranks are on several rails and several servers, with"
                    f" {self.options.gpus_per_server} GPUs in a server (--gpus-per-server) whose"
                    f" ranks are {self.options.stride} apart (--stride)",
                )

            # What a group does tells its dimension, unless the options or the trace do.
            if used.number in has_messages:
                guess = "pp"
            elif used.number in has_all_to_alls:
                guess = "ep"
            else:
                guess = "tp" if rail < 0 else "dp"
            told = self.options.dimensions.get(name, self.nodes.described_groups.get(name))
            dimension = cast(Dimension, told if told in DIMENSIONS else guess)
            group = Group(name, dimension, used.ranks, rail)
            groups.append(group)

            # Groups of one dimension either have the same ranks or none in common. Those of a
            # pipeline may be pairs of neighbours, which overlap.
            if dimension == "pp":
                continue
            for rank in used.ranks:
                other = group_of_rank.setdefault((dimension, rail < 0, rank), group)
                if set(other.ranks) != set(used.ranks):
                    raise self.nodes.fail(
                        used.first,
                        f"rank {rank} is in the groups {other.name} and {name}, both {dimension}:"
                        f" tell the dimension of one of them (--dimension {name}=cp)",
                    )
        return groups


def _sort_topologically(nodes: Nodes) -> Nodes:
    """Put the nodes of each rank behind those that they wait for; else the order stays.

    Where nodes of a rank wait in a circle and parts may be left out, its control dependencies do
    not count; otherwise a circle is refused.
    """
    order = np.arange(len(nodes.rank))
    is_early = nodes.child <= nodes.parent
    for rank in np.unique(nodes.rank[nodes.child[is_early]]).tolist():
        first, end = np.searchsorted(nodes.rank, [rank, rank + 1]).tolist()
        try:
            order[first:end] = _order_rank(nodes, first, end)
        except FormatError as exc:
            # Only data dependencies are kept.
            is_left_out = nodes.is_control & (nodes.rank[nodes.child] == rank)
            if nodes.skipped is None or not is_left_out.any():
                raise
            nodes.skipped.append(f"{exc}: no control dependency of this file counts")
            nodes = nodes.keep_dependencies(~is_left_out)
            order[first:end] = _order_rank(nodes, first, end)

    # Dependencies follow their nodes, and are sorted by the new places of those that wait.
    new_place = np.empty_like(order)
    new_place[order] = np.arange(len(order))
    child = new_place[nodes.child]
    by_child = np.argsort(child, kind="stable")
    return nodes.take(order)._replace(
        child=child[by_child], parent=new_place[nodes.parent[by_child]]
    )


def _order_rank(nodes: Nodes, first: int, end: int) -> list[int]:
    """Return the places ``first .. end - 1`` of the nodes of a rank in topological order.

    Nodes that wait for each other in a circle are refused.
    """
    begin, stop = np.searchsorted(nodes.child, [first, end]).tolist()
    child = (nodes.child[begin:stop] - first).tolist()
    parent = (nodes.parent[begin:stop] - first).tolist()

    # Kahn's algorithm with a heap: of all nodes that wait for nothing more, the one that stands
    # first in the trace comes next.
    children: list[list[int]] = [[] for _ in range(end - first)]
    n_waiting_for = [0] * (end - first)
    for waiting, awaited in zip(child, parent, strict=True):
        children[awaited].append(waiting)
        n_waiting_for[waiting] += 1

    # A node is ready when all that it waits for are in the order.
    ready = [node for node, n_parents in enumerate(n_waiting_for) if n_parents == 0]
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(first + node)
        for waiting in children[node]:
            n_waiting_for[waiting] -= 1
            if n_waiting_for[waiting] == 0:
                heapq.heappush(ready, waiting)
    if len(order) == end - first:
        return order

    # Nodes that are left wait for each other, or for such nodes. `list_circle` follows the
    # dependencies between them, and gives the nodes of one circle in order.
    is_held = np.array(n_waiting_for)[parent] > 0
    circle = list_circle(np.array(parent)[is_held].tolist(), np.array(child)[is_held].tolist())
    named_nodes = circle[1 : 1 + _MOST_NAMED_NODES]
    ways = ", ".join(str(nodes.node_id[first + node]) for node in named_nodes) or "nothing"
    raise nodes.fail(
        first + circle[0], f"waits for itself, in a circle of {len(circle)} nodes by way of {ways}"
    )


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
    Messages between two ranks with the same tag are in the same order at both. If a node does not
    say the rank at the other end, it is the other one of a group of two, or the only rank of the
    group with a counterpart of the same tag. A message that is left out has the pair `MISSING`.
    """
    is_send = messages.kind == SEND

    # Ends that a node does not say are found among the messages of the same group and tag.
    groups = [messages.group_name(message) for message in range(len(messages.rank))]
    peer = _told_peers(messages, is_send, groups, members)
    if (peer == MISSING).any():
        tag = messages.tag.tolist()
        messages_alike = defaultdict[tuple[str, int], list[int]](list)
        for message, group in enumerate(groups):
            messages_alike[group, tag[message]].append(message)
        for candidates in messages_alike.values():
            _resolve_peers(messages, is_send, peer, candidates)

    # The ends of a message are the same for its send and its receive: from where to where.
    source = np.where(is_send, messages.rank, peer)
    destination = np.where(is_send, peer, messages.rank)
    ends_and_tag = np.stack([source, destination, messages.tag])

    # ``count_before[message]`` is how many messages of the same ends, tag and kind come before it.
    of_kind = np.stack([*ends_and_tag, is_send])
    _, kind = np.unique(of_kind, axis=1, return_inverse=True)
    count_before = rank_in_group(kind.reshape(-1))

    # A pair is a send and a receive with the same ends, tag and count.
    key = np.stack([*ends_and_tag, count_before], axis=1)
    _, pair, n_with_key = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    pair = pair.reshape(-1).astype(np.int64)
    pair = np.where(n_with_key[pair] == 2, pair, MISSING)

    # A message without counterpart is left out, or refused where nothing may be left out (`skip`).
    # Those whose other end was not found have been left out above.
    is_alone = pair == MISSING
    for message in np.flatnonzero(is_alone & (peer != MISSING)).tolist():
        verb = "receives" if is_send[message] else "sends"
        messages.skip(message, f"rank {peer[message]} never {verb} it")

    # A send and its receive tell the same size. Sorted by pair, messages without a counterpart
    # come first, and then two of each pair.
    order = np.argsort(pair, kind="stable")
    paired = order[(pair == MISSING).sum() :].reshape(-1, 2)
    size_bytes = messages.size_bytes
    for first, second in paired.tolist():
        if size_bytes[first] != size_bytes[second] or size_bytes[first] < 0:
            raise messages.fail(
                first,
                f"comm_size = {size_bytes[first]}, and {size_bytes[second]} at rank {peer[first]}",
            )
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
    n_ranks = len(messages.path_of_rank)
    source = messages.source
    destination = messages.destination
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
    # Messages of one rank and direction are interchangeable: they get one end together.
    unresolved = defaultdict[tuple[int, bool], list[int]](list)
    for message in candidates:
        if peer[message] == MISSING:
            unresolved[int(messages.rank[message]), bool(is_send[message])].append(message)

    # A choice is messages that get one end, and the ranks that are possible for it. The first
    # choice with one rank alone is certain; without any, the first choice of all is given up.
    while unresolved:
        choices = {
            key: _possible_peers(messages, is_send, peer, candidates, same_end[0])
            for key, same_end in unresolved.items()
        }
        certain = [key for key, ranks in choices.items() if len(ranks) == 1]
        chosen = (certain or list(choices))[0]
        same_end = unresolved.pop(chosen)
        if certain:
            peer[same_end] = choices[chosen].pop()
            continue
        listed = ", ".join(map(str, sorted(choices[chosen]))) or "none"
        for message in same_end:
            rule = f"its other end is not told; ranks that it could be: {listed}"
            messages.skip(message, rule)


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


def add_up(nodes: Nodes, groups: Members) -> NDArray[np.float64]:
    """Return ``matrix[source, destination]``: the bytes that ranks send, by the nodes of all.

    ``groups[name]`` are the ranks of a group of collectives, in the order of its ring. Messages
    count where they are sent. The data of collectives go once round the group as a ring, from each
    member to the next one, twice for an all-reduce; in all-to-alls, gathers and scatters each rank
    sends straight to the receiver.
    """
    n_ranks = len(nodes.path_of_rank)
    matrix = np.zeros((n_ranks, n_ranks))
    _add_messages(matrix, nodes, groups)

    # Collectives of one rank, group, kind and root are counted together, as there may be
    # thousands.
    for _, members, places in list_collectives(nodes, groups):
        for rows in group_alike(nodes.collective[places], nodes.root[places]):
            equal_places = places[rows]
            rank = int(nodes.rank[equal_places[0]])
            root = int(nodes.root[equal_places[0]])

            # Without its root, a collective from or to one rank cannot be counted.
            name = COLLECTIVES[nodes.collective[equal_places[0]]]
            if name in FROM_ROOT + _TO_ROOT and root == MISSING:
                for place in equal_places.tolist():
                    nodes.skip(place, f"collective {name}: the trace does not tell its root")
                continue
            # Parts that differ are added one by one.
            total_bytes = 0.0
            node_ids = nodes.node_id[equal_places].tolist()
            for node_id, size_bytes in zip(
                node_ids, nodes.size_bytes[equal_places].tolist(), strict=True
            ):
                uneven = nodes.sent_bytes.get((rank, node_id))
                if uneven is None:
                    total_bytes += size_bytes
                else:
                    matrix[rank, list(members)] += uneven
            for peer, sent_bytes in _sent_bytes(name, rank, members, root, total_bytes).items():
                matrix[rank, peer] += sent_bytes
    return matrix


def list_collectives(
    nodes: Nodes, groups: Members, leave_out: Sequence[str] = ()
) -> Iterator[tuple[str, Sequence[int], Integers]]:
    """Yield the collectives of one rank and group after the other: name, ranks, places of nodes.

    Groups of one rank, which some producers write and which send nothing, and groups by the names
    of `leave_out` are passed over. Unknown types, groups and roots are refused, and so are groups
    with a rank without a trace, and collectives without a size.
    """
    collectives = np.flatnonzero(nodes.kind == COLLECTIVE)
    for rows in group_alike(nodes.rank[collectives], nodes.group[collectives]):
        places = collectives[rows]
        first = int(places[0])
        name = nodes.group_name(first) or ALL_RANKS
        if name in leave_out:
            continue
        types = nodes.collective[places]
        is_unknown = (types < 0) | (types >= len(COLLECTIVES))
        for place in places[is_unknown][:1].tolist():
            raise nodes.fail(
                place,
                f"comm_type = {nodes.collective[place]}: no type of collective;"
                " --lenient takes it as computation",
            )

        ranks = _members_of(nodes, first, groups)
        is_foreign_root = ~np.isin(nodes.root[places], [MISSING, *ranks])
        for place in places[is_foreign_root][:1].tolist():
            group = nodes.group_name(place) or "of all ranks"
            raise nodes.fail(
                place, f"its root, rank {nodes.root[place]}, is no member of group {group}"
            )

        for place in places[nodes.size_bytes[places] < 0][:1].tolist():
            raise nodes.fail(
                place, "comm_size is missing or negative; --lenient takes it as computation"
            )
        if len(ranks) > 1:
            yield name, ranks, places


def _members_of(nodes: Nodes, place: int, groups: Members) -> Sequence[int]:
    """Return the group of a collective in the order of the ring; its rank has to be a member.

    A collective that names no group has all ranks. Groups that are not known, or that have a rank
    without a trace, are refused.
    """
    name = nodes.group_name(place)
    rank = nodes.rank[place]
    n_ranks = len(nodes.path_of_rank)
    if not name:
        return range(n_ranks)
    if name not in groups:
        raise nodes.fail(place, _UNKNOWN_GROUP.format(name))
    if rank not in groups[name]:
        raise nodes.fail(place, f"rank {rank} is no member of group {name}")

    # All members have a trace.
    for member in groups[name]:
        if not 0 <= member < n_ranks:
            raise nodes.fail(place, f"group {name}: rank {member}: ranks are 0 .. {n_ranks - 1}")
    return groups[name]


def _add_messages(matrix: NDArray[np.float64], nodes: Nodes, groups: Members) -> None:
    """Add the bytes of all messages to ``matrix[source, destination]``.

    ``groups[name]`` are the ranks of a group, which help to pair messages. Only sends are counted.
    Where a trace does not say where a send goes, it is paired with a receive; sends without one
    are left out. Sends without a size are refused.
    """
    # The sends and receives of all ranks. A send that does not say its source is from the rank of
    # its trace; MISSING stands for what is not said.
    messages = nodes.take(np.flatnonzero(np.isin(nodes.kind, (SEND, RECEIVE))))
    is_send = messages.kind == SEND
    source = np.where(is_send & (messages.source == MISSING), messages.rank, messages.source)

    # Sends that tell their destinations need no receives.
    destination = messages.destination
    is_counted = is_send
    if (destination[is_send] == MISSING).any():
        destination, pair = pair_messages(messages, groups)
        is_counted = is_send & (pair != MISSING)

    # Each counted send has a size, and ranks with a trace; the first that has not is named.
    size_bytes = messages.size_bytes
    for place in np.flatnonzero(is_counted & (size_bytes < 0))[:1].tolist():
        raise messages.fail(place, "comm_size is missing or negative")
    for ends in (source, destination):
        is_outside = (ends < 0) | (ends >= len(matrix))
        for place in np.flatnonzero(is_counted & is_outside)[:1].tolist():
            raise messages.fail(place, f"rank {ends[place]}: ranks are 0 .. {len(matrix) - 1}")
    np.add.at(matrix, (source[is_counted], destination[is_counted]), size_bytes[is_counted])

    # Sends that have no receive of the same size at their destination are told. If some receive
    # does not say its source, sends and receives are compared by destination and size alone.
    if is_send.all():
        return

    # Sends that no receive answers, by sender, receiver and size in bytes.
    sender = source
    if (source[~is_send] == MISSING).any():
        sender = np.full(len(source), MISSING)
    receiver = np.where(is_send, destination, messages.rank)
    ends_and_size = np.stack([sender, receiver, size_bytes], axis=1)
    n_sends = Counter(map(tuple, ends_and_size[is_send].tolist()))
    unmatched = n_sends - Counter(map(tuple, ends_and_size[~is_send].tolist()))
    if not unmatched:
        return
    first_sender, first_receiver, n_bytes = next(iter(unmatched))
    whence = "" if first_sender == MISSING else f" from rank {first_sender}"
    first = f"{n_bytes} bytes{whence} to rank {first_receiver}"
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

    # All other collectives go once round the ring of members, an all-reduce nearly twice. Who is
    # left only receives, such as the root of a gather, or has a barrier, and sends nothing.
    round_the_ring = {
        "ALL_REDUCE": 2 * (n - 1) / n,
        "ALL_GATHER": n - 1.0,
        "REDUCE_SCATTER": (n - 1) / n,
        "REDUCE_SCATTER_BLOCK": (n - 1) / n,
    }
    if name not in round_the_ring:
        return {}
    return {next_rank: round_the_ring[name] * total_bytes}

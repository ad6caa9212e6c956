"""Chakra execution traces, binary or JSON: computations and sends of each rank, node by node."""

from __future__ import annotations

import io
import json
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.fields import shorten
from optmatch.io.text import decode, describe_content, parse_json, read_bytes, refused_at, unzip
from optmatch.model import FormatError, InputError, SolverUnavailable
from optmatch.model.accounts import Level, accounting, take
from optmatch.model.files import file_path, path_name
from optmatch.problems.rails.training.step import OPERATIONS, Step

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
    "name": (2, "BYTES"),
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
    "string_val": (29, "BYTES"),
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


class Messages(NamedTuple):
    """Classes of messages; an instance of each is what protobuf has parsed."""

    node: Any
    """With the fields of `_NODE`."""
    attribute: Any
    """With a name and one of the fields of `_VALUES`."""


def check_dimensions(involved: list[bool], has_group: bool) -> None:
    """Refuse a collective, without a group, that leaves out some dimensions of a network.

    No file describes these dimensions.
    """
    if not all(involved) and not has_group:
        listed = ", ".join(str(one).lower() for one in involved)
        raise FormatError(
            f"involved_dim = [{listed}]: a collective of some dimensions of a network, whose sizes"
            " the trace does not tell; pg_name and --groups tell its ranks"
        )


@lru_cache
def messages() -> Messages:
    """Compile the schema of Chakra's traces, of ``et_def.proto`` [1]_, for protobuf.

    The differences to Chakra's own messages change nothing in files: text is read as bytes, since
    names of kernels are not always UTF-8; fields that are not declared are skipped by protobuf.

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
    _declare(file, "Node", _NODE)
    _declare(file, "BoolList", {"values": (1, "BOOL")})
    attribute = _declare(file, "AttributeProto", {"name": (1, "BYTES"), **_VALUES})
    attribute.oneof_decl.add(name="value")
    for field in attribute.field[1:]:
        field.oneof_index = 0

    # Protobuf makes a class of each declared message.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    node = pool.FindMessageTypeByName("optmatch.chakra.Node")
    attribute_type = pool.FindMessageTypeByName("optmatch.chakra.AttributeProto")
    return Messages(
        node=message_factory.GetMessageClass(node),
        attribute=message_factory.GetMessageClass(attribute_type),
    )


def _declare(file: Any, name: str, fields: dict[str, tuple[int, str]]) -> Any:
    """Add a type of message, as ``"Node"``, to the schema of a file of protobuf, and return it.

    ``fields[name]`` is the number of a field on the wire, and its type by protobuf's name, as in
    ``{"id": (1, "UINT64")}``; a name that is not in capitals is that of another message. Fields in
    `_REPEATED` hold a list, all others one value.
    """
    message = file.message_type.add(name=name)
    for field_name, (number, kind) in fields.items():
        field = message.field.add(name=field_name, number=number)
        field.label = field.LABEL_REPEATED if field_name in _REPEATED else field.LABEL_OPTIONAL
        if kind.isupper():
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
    control_parents: Sequence[int] = ()
    """The nodes that it waits for without need of their data."""


def trace_bytes(nodes: Iterable[Node], *, integers: str = "int64") -> bytes:
    """Write nodes as the trace of one rank, the content of ``name.RANK.et``, in their order.

    A description comes first; each message has its length in front. `integers` is the width of
    whole attributes, as ``"int64"`` or ``"uint32"``: producers differ.
    """
    from google.protobuf.proto import serialize_length_prefixed

    stream = io.BytesIO(_DESCRIPTION)
    stream.seek(len(_DESCRIPTION))
    for node in nodes:
        message = messages().node(
            id=node.id,
            type=node.kind,
            name=node.name.encode(),
            data_deps=node.parents,
            ctrl_deps=node.control_parents,
            duration_micros=node.duration_us,
            attr=[
                _write_attribute(name, value, integers) for name, value in node.attributes.items()
            ],
        )
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


def _write_attribute(name: str, value: bool | int | str, integers: str) -> Any:
    """Return the message of an attribute, as ``"comm_size"``, with whole numbers of a width."""
    content: Any = value
    if isinstance(value, bool):
        field = "bool_val"
    elif isinstance(value, str):
        field = "string_val"
        content = value.encode()
    else:
        field = f"{integers}_val"
    try:
        return messages().attribute(name=name.encode(), **{field: content})
    except ValueError as exc:
        width = field.removesuffix("_val")
        raise InputError(f"{name}: {float(value):g} is too large for {width}") from exc


_GRAPH = "workload_graph"
_DESCRIPTION_KEYS = {"version", "attr"}
"""The keys of the object that stands in front of the nodes of the jsonizer."""

_SPELLINGS = {
    "id": ("Id", "id"),
    "name": ("Name", "name"),
    "kind": ("NodeType", "type"),
    "duration_us": ("runtime", "durationMicros", "duration_micros"),
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
        "startTimeMicros": "a node begins when what it waits for has ended",
        "start_time_micros": "a node begins when what it waits for has ended",
    },
    ATTRIBUTE_NAMES.assumed,
)

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")


class _Place(NamedTuple):
    """Where a node stands, for messages, and how its numbers may be written."""

    path: str
    where: str
    """The JSON pointer or the name of the node."""
    numbers_as_text: bool
    """The jsonizer writes integers of 64 bits as text."""

    def fail(self, message: str) -> FormatError:
        """Return an error about the node."""
        return FormatError(message, where=self.where, path=self.path)


def json_nodes(content: bytes, path: str) -> list[Node]:
    """Read the nodes of a trace in JSON, in the order of the file, with durations in microseconds.

    The content is ``{"workload_graph": [{"Id": 1, "NodeType": 7, "comm_size": 8}, ...]}``, or what
    Chakra's jsonizer writes, object after object: what describes the trace, then nodes such as
    ``{"id": "1", "type": "COMM_COLL_NODE", "attr": [...]}``. Keys may have the spelling of either
    form; those that are not read are named in a warning.
    """
    if _GRAPH.encode() in content:
        tree = parse_json(content, path)
        entries = tree.get(_GRAPH) if isinstance(tree, dict) else None
        if not isinstance(entries, list):
            raise FormatError(
                f"{shorten(entries)}: a list of nodes", where=f"/{_GRAPH}", path=path
            )
        places = [_Place(path, f"/{_GRAPH}/{index}", False) for index in range(len(entries))]
    elif is_json_trace(content):
        _, *entries = _read_objects(content, path)
        places = [_Place(path, f"object {index}", True) for index in range(1, len(entries) + 1)]
    else:
        rule = "no Chakra trace, which has workload_graph, or nodes after version"
        raise FormatError(f"{rule}{describe_content(content)}", path=path)

    nodes = [_read_node(entry, place) for entry, place in zip(entries, places, strict=True)]
    for entry in entries:
        take(_KEYS, entry, path=path)
    return nodes


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


def _read_node(entry: Any, place: _Place) -> Node:
    """Read one node of a trace in JSON, whose keys may have any of their known spellings.

    `entry` is the object of the node, and `place` names the file and the node in errors. Only
    attributes in `ATTRIBUTES` are read: names of groups as texts, others as whole numbers.
    """
    if not isinstance(entry, dict):
        raise place.fail(f"{shorten(entry)}: a node is an object")
    id_key = _find_key(entry, "id", place)
    if id_key in entry:
        place = place._replace(where=f"node {entry[id_key]}")

    kind_key = _find_key(entry, "kind", place)
    kind_name = entry.get(kind_key, 0)
    if kind_name in NODE_TYPES:
        kind = NODE_TYPES.index(kind_name)
    else:
        kind = _read_count(entry, "kind", place)

    # Attributes stand in a list of their own, or beside the other keys. In the list each has the
    # key ``name`` and, under a key that tells its width (as ``int64Val``), its value.
    entries = entry.get("attr", [])
    listed = {}
    for attribute in entries if isinstance(entries, list) else [entries]:
        if not isinstance(attribute, dict) or not isinstance(attribute.get("name"), str):
            raise place.fail(f"{shorten(attribute)}: an attribute has a name")
        take(ATTRIBUTE_NAMES, [attribute["name"]], place.where, place.path)
        contents = [value for key, value in attribute.items() if key not in ("name", "docString")]
        listed[attribute["name"]] = contents[0] if contents else None

    # Names of groups are texts, all others whole numbers.
    values = entry | listed
    attributes: dict[str, bool | int | str] = {}
    for name in ATTRIBUTES:
        if name == "pg_name" and name in values:
            attributes[name] = str(values[name])
        elif name in values:
            attributes[name] = _read_whole(name, values[name], place)

    # Collectives name the dimensions that take part.
    if kind == COLLECTIVE:
        involved = values.get("involved_dim", [])
        if isinstance(involved, dict):
            involved = involved.get("values", [])
        if not isinstance(involved, list) or not all(isinstance(one, bool) for one in involved):
            raise place.fail(f"involved_dim = {shorten(involved)}: a list of true and false")
        with refused_at(place.where, place.path):
            check_dimensions(involved, has_group=bool(attributes.get("pg_name")))

    return Node(
        id=_read_count(entry, "id", place),
        kind=kind,
        name=str(entry.get(_find_key(entry, "name", place), "")),
        parents=_read_list(entry, "data_deps", place),
        control_parents=_read_list(entry, "ctrl_deps", place),
        duration_us=_read_count(entry, "duration_us", place),
        attributes=attributes,
    )


def _find_key(entry: dict[str, Any], field: str, place: _Place) -> str:
    """Return the spelling that a node has of a key of `_SPELLINGS`; the first one without any.

    Several spellings are refused.
    """
    spellings = _SPELLINGS[field]
    present = [key for key in spellings if key in entry]
    if len(present) > 1:
        raise place.fail(f"{' and '.join(present)} are the same key: one of them is expected")
    return present[0] if present else spellings[0]


def _read_whole(name: str, value: Any, place: _Place) -> int:
    """Return a whole number of less than 64 bits; the jsonizer writes it as a text of digits."""
    if place.numbers_as_text and isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise place.fail(f"{name} = {shorten(value)}: a whole number is expected")
    if not -LARGEST < value < LARGEST:
        raise place.fail(f"{name} = {value}: numbers are below 2**63")
    return value


def _read_count(entry: dict[str, Any], field: str, place: _Place) -> int:
    """Return a whole number >= 0; 0 if the node does not have the key."""
    key = _find_key(entry, field, place)
    return _check_count(key, entry.get(key, 0), place)


def _read_list(entry: dict[str, Any], field: str, place: _Place) -> list[int]:
    """Return a list of whole numbers >= 0; an empty one if the node does not have the key."""
    key = _find_key(entry, field, place)
    numbers = entry.get(key, [])
    if not isinstance(numbers, list):
        raise place.fail(f"{key}: a list is expected")
    return [_check_count(key, number, place) for number in numbers]


def _check_count(name: str, value: Any, place: _Place) -> int:
    """Return a whole number >= 0."""
    number = _read_whole(name, value, place)
    if number < 0:
        raise place.fail(f"{name} = {number}: must be >= 0")
    return number


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
    node_id: NDArray[np.uint64]
    """The number of each node in the file."""
    kind: Integers
    """The type of each node, see `optmatch.io.rails.chakra.traces`."""
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
        kind = np.array([_TYPE_OF.get(row.operation, COLLECTIVE) for row in rows], np.int64)
        peer = np.array([row.peer for row in rows], dtype=np.int64)
        unknown = np.full(len(rows), MISSING)
        return cls(
            node_id=np.array([row.node_id for row in rows], dtype=np.uint64),
            kind=kind,
            duration_us=np.array([row.duration_us for row in rows], dtype=np.float64),
            collective=np.array(
                [_NUMBER_OF.get(row.operation, MISSING) for row in rows], np.int64
            ),
            size_bytes=np.array([row.size_bytes for row in rows], dtype=np.int64),
            source=np.where(kind == RECEIVE, peer, MISSING),
            destination=np.where(kind == SEND, peer, MISSING),
            group=np.array([number_of_group.get(row.group, MISSING) for row in rows], np.int64),
            root=np.array([row.root for row in rows], dtype=np.int64),
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
    protobuf knows. Or it is ``name.RANK.json``, see `json_nodes`. Reading takes about 5 us for a
    node, and 200 bytes of memory.

    Parameters
    ----------
    skipped
        A list, to which what is left out is added: what is behind the end of a cut file,
        dependencies on nodes that are not there, and communication without its kind or size, which
        becomes computation of the time that it took. None: each of these is an error.
    """
    file = path_name(path)
    content = _read_content(path)
    rank = int(_parse_name(path)["rank"])
    with accounting(file):
        if file.endswith(".json"):
            # The nodes become the same messages as in an .et file, which have the same checks.
            content = trace_bytes(json_nodes(content, file))

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
            check_dimensions(involved, has_group)
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

    parse_node = messages().node.FromString
    columns = _NodeColumns()

    # Parsed as a node, the description of the trace, which comes first, has neither number nor
    # type.
    start, end = _locate_message(content, 0)
    try:
        description: Any = messages().node.FromString(content[start:end])
        is_node = bool(description.id or description.type)
    except DecodeError:
        is_node = True
    if end > len(content) or is_node:
        raise FormatError(
            f"byte 0: a trace begins with a description of it{describe_content(content)}",
            path=path,
        )

    # Messages follow each other, each behind its length. A file that ends within one is cut off,
    # which happens to long runs; a message that cannot be read before the end is a damaged file.
    while end < len(content):
        length_start = end
        start, end = _locate_message(content, length_start)
        try:
            if end > len(content):
                raise DecodeError
            node = parse_node(content[start:end])
        except DecodeError as exc:
            # The message says where, and whether the file is cut off or damaged.
            n_nodes = len(columns.node_id)
            after = f", after node {columns.node_id[-1]}," if n_nodes else ""
            is_cut = end >= len(content)
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


def _locate_message(content: bytes, at: int) -> tuple[int, int]:
    """Return where the message behind the length at byte `at` begins and ends.

    The length is a varint: seven bits in each byte, the lowest first, the eighth set in all but
    the last: bytes 172 and 2 are 44 + 2 * 128 = 300. Without a whole length the end is behind
    `content`.
    """
    size = 0
    shift = 0
    while at < len(content) and shift < 64:
        byte = content[at]
        size |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < 128:
            return at, at + size
    return at, len(content) + 1


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

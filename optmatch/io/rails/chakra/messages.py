"""Messages of Chakra execution traces, compiled by protobuf at first use, and written as files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from optmatch.model import FormatError, InputError, SolverUnavailable
from optmatch.model.accounts import Level
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
    "attr": (10, "MESSAGE"),
}
"""The fields of a node that are read: number and type, by name."""
_REPEATED = ("ctrl_deps", "data_deps", "attr")
_WIDTHS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool"),
)
_VALUES = {  # each attribute has one of these; producers choose the width
    **{f"{width}_val": (3 + 2 * k, width.upper()) for k, width in enumerate(_WIDTHS)},
    "string_val": (29, "BYTES"),
    "bool_list": (28, "BYTES"),  # a message of its own, see `read_booleans`
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


def read_booleans(content: bytes) -> list[bool]:
    """Read the message of a list of true and false, whose entries may be packed or not.

    Examples
    --------
    >>> read_booleans(bytes([10, 2, 1, 0])), read_booleans(bytes([8, 1, 8, 1]))
    ([True, False], [True, True])
    """
    booleans: list[bool] = []
    place = 0
    while place + 1 < len(content):
        tag, value = content[place : place + 2]
        is_packed = tag == 10
        last = place + 2 + (value if is_packed else 0)
        booleans += [bool(byte) for byte in (content[place + 2 : last] if is_packed else [value])]
        place = last
    return booleans


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
    ``{"id": (1, "UINT64")}``. A field of the type ``"MESSAGE"`` holds attributes, the only
    messages inside others. Fields in `_REPEATED` hold a list, all others one value.
    """
    message = file.message_type.add(name=name)
    for field_name, (number, kind) in fields.items():
        field = message.field.add(name=field_name, number=number)
        field.type = getattr(field, f"TYPE_{kind}")
        field.label = field.LABEL_REPEATED if field_name in _REPEATED else field.LABEL_OPTIONAL
        if kind == "MESSAGE":
            field.type_name = ".optmatch.chakra.AttributeProto"
    return message


_DESCRIPTION = b"\x07\x0a\x051.0.0"
"""The message in front of each trace: its length, and the version of the schema."""
_LONGEST_S = 1e12
"""Durations are whole microseconds of 64 bits."""
_NODE_TYPES = {"send": SEND, "recv": RECEIVE, "compute": COMPUTE}
"""Types of nodes by operation; other operations are collectives."""


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
        attributes["comm_type"] = COLLECTIVES.index(name.replace("-", "_").upper())
    if name in ("send", "recv"):
        attributes["comm_tag"] = int(step.match[operation])

    # Numbers of operations of the rank become numbers of its nodes, from 0.
    parents = step.dep[step.dep_start[operation] : step.dep_start[operation + 1]]
    return Node(
        id=operation - first,
        kind=_NODE_TYPES.get(name, COLLECTIVE),
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

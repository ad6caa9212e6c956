"""Messages of Chakra execution traces, compiled by protobuf when the first trace is read."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from optmatch.model import SolverUnavailable

SEND, RECEIVE, COLLECTIVE, COMPUTE = 5, 6, 7, 4
"""Types of nodes that matter here; the others cost no more than their duration."""

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
    "start_time_micros": (6, "UINT64"),
    "duration_micros": (7, "UINT64"),
    "attr": (10, "BYTES"),
}
_REPEATED = ("ctrl_deps", "data_deps", "attr")
_VALUES = {  # one of them in each attribute; which width a producer takes is its own affair
    "double_val": (3, "DOUBLE"),
    "float_val": (5, "FLOAT"),
    "int32_val": (7, "INT32"),
    "int64_val": (9, "INT64"),
    "uint32_val": (11, "UINT32"),
    "uint64_val": (13, "UINT64"),
    "sint32_val": (15, "SINT32"),
    "sint64_val": (17, "SINT64"),
    "fixed32_val": (19, "FIXED32"),
    "fixed64_val": (21, "FIXED64"),
    "sfixed32_val": (23, "SFIXED32"),
    "sfixed64_val": (25, "SFIXED64"),
    "bool_val": (27, "BOOL"),
    "string_val": (29, "BYTES"),
}


class Messages(NamedTuple):
    """Classes of messages; an instance of each is what protobuf has parsed."""

    metadata: Any
    node: Any
    attribute: Any


@lru_cache
def messages() -> Messages:
    """Compile the schema.

    Field numbers are those of ``et_def.proto`` [1]_. What differs changes nothing in files: text
    is read as bytes, since names of kernels are not always UTF-8; attributes of a node stay
    bytes, since most of them occur a million times in a trace and are parsed once; fields that
    are not declared are skipped by protobuf.

    Raises
    ------
    SolverUnavailable
        If protobuf is not installed.

    References
    ----------
    .. [1] MLCommons Chakra 1.0.0, ``schema/protobuf/et_def.proto``.
       https://github.com/mlcommons/chakra

    Examples
    --------
    >>> attribute = messages().attribute(name=b"comm_size", uint64_val=300)
    >>> attribute.SerializeToString().hex()
    '0a09636f6d6d5f73697a6568ac02'
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as exc:
        raise SolverUnavailable("Chakra traces need protobuf: pip install protobuf") from exc
    file = descriptor_pb2.FileDescriptorProto(
        name="optmatch/et_def.proto", package="optmatch.chakra", syntax="proto3"
    )
    _declare(file, "GlobalMetadata", {"version": (1, "BYTES")})
    _declare(file, "Node", _NODE)
    attribute = _declare(file, "AttributeProto", {"name": (1, "BYTES"), **_VALUES})
    attribute.oneof_decl.add(name="value")
    for field in attribute.field[1:]:
        field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("GlobalMetadata", "Node", "AttributeProto")
    found = (pool.FindMessageTypeByName(f"optmatch.chakra.{name}") for name in names)
    return Messages(*map(message_factory.GetMessageClass, found))


def _declare(file: Any, name: str, fields: dict[str, tuple[int, str]]) -> Any:
    """Add a message with its fields."""
    message = file.message_type.add(name=name)
    for field_name, (number, kind) in fields.items():
        field = message.field.add(name=field_name, number=number)
        field.type = getattr(field, f"TYPE_{kind}")
        field.label = field.LABEL_REPEATED if field_name in _REPEATED else field.LABEL_OPTIONAL
    return message

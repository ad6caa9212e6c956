"""Chakra execution traces, written as files, one for each rank."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from optmatch.io.rails.chakra.messages import (
    COLLECTIVE,
    COLLECTIVES,
    COMPUTE,
    RECEIVE,
    SEND,
    messages,
)
from optmatch.model import InputError
from optmatch.problems.rails.training.step import OPERATIONS, Step

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
    rank's first operation in the step.
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

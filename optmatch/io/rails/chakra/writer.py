"""Chakra execution traces as files: nodes in, one file for a rank out."""

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

_METADATA = b"\x07\x0a\x051.0.0"  # stands in front of each trace: the version of the schema
_TYPES = {"send": SEND, "recv": RECEIVE, "compute": COMPUTE}  # of nodes; else collectives


class Node(NamedTuple):
    """A node of a trace."""

    id: int
    kind: int = COMPUTE
    """A type of node: `COMPUTE`, `SEND`, `RECEIVE`, `COLLECTIVE` or another number."""
    name: str = ""
    parents: Sequence[int] = ()
    duration_us: int = 0
    attributes: Mapping[str, bool | int | str] = {}


def trace_bytes(nodes: Iterable[Node], *, integers: str = "int64") -> bytes:
    """Write nodes as the trace of one rank, the content of ``name.RANK.et``, in their order.

    `integers` is the width of attributes that are whole numbers, ``"int64"`` or ``"uint32"`` for
    instance; producers differ. A number that does not fit its width raises `ValueError`.
    """
    from google.protobuf.proto import serialize_length_prefixed

    out = io.BytesIO(_METADATA)
    out.seek(len(_METADATA))
    for node in nodes:
        message = messages().node(
            id=node.id,
            type=node.kind,
            name=node.name.encode(),
            data_deps=node.parents,
            duration_micros=node.duration_us,
            attr=[_attribute(*item, integers) for item in node.attributes.items()],
        )
        serialize_length_prefixed(message, out)
    return out.getvalue()


def step_traces(step: Step) -> list[bytes]:
    """Write a step as Chakra traces, one for each rank, with as many nodes as operations.

    Times are rounded to microseconds and sizes to bytes, as the format wants. A duration that is
    too long for its field raises `InputError`.
    """
    for k in (step.duration_s > 1e12).nonzero()[0][:1]:
        raise InputError(f"{step.describe(int(k))} takes {step.duration_s[k]:g} s")
    return [
        trace_bytes(_node(step, k, start) for k in range(start, end))
        for start, end in pairwise(step.rank_start.tolist())
    ]


def _node(step: Step, operation: int, first: int) -> Node:
    name = OPERATIONS[step.kind[operation]]
    attributes: dict[str, bool | int | str] = {"is_cpu_op": False}
    if name != "compute":
        attributes["comm_size"] = round(float(step.size_bytes[operation]))
        attributes["pg_name"] = step.groups[step.group[operation]].name
    if name in ("send", "recv"):
        ends = [int(step.rank[operation]), int(step.peer[operation])]
        ends = ends if name == "send" else ends[::-1]
        attributes |= {"comm_src": ends[0], "comm_dst": ends[1]}
        attributes["comm_tag"] = int(step.match[operation])
    elif name != "compute":
        attributes["comm_type"] = COLLECTIVES.index(name.replace("-", "_").upper())
    parents = step.dep[step.dep_start[operation] : step.dep_start[operation + 1]]
    return Node(
        id=operation - first,
        kind=_TYPES.get(name, COLLECTIVE),
        name=step.names[operation] if step.names else name,
        parents=(parents - first).tolist(),
        duration_us=round(float(step.duration_s[operation]) * 1e6),
        attributes=attributes,
    )


def _attribute(name: str, value: bool | int | str, integers: str) -> Any:
    width = "string" if isinstance(value, str) else integers
    width = "bool" if isinstance(value, bool) else width
    given: Any = {f"{width}_val": value.encode() if isinstance(value, str) else value}
    return messages().attribute(name=name.encode(), **given)

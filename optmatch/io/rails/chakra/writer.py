"""Nodes of Chakra execution traces: written as files, one for each rank, and read from JSON."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from optmatch.io.contents import decode
from optmatch.io.fields import shorten
from optmatch.io.rails.chakra.messages import (
    ATTRIBUTES,
    COLLECTIVE,
    COLLECTIVES,
    COMPUTE,
    LARGEST,
    NODE_TYPES,
    RECEIVE,
    SEND,
    messages,
)
from optmatch.io.text import parse_json
from optmatch.model import FormatError, InputError
from optmatch.problems.rails.training.step import OPERATIONS, Step

_METADATA = b"\x07\x0a\x051.0.0"  # stands in front of each trace: the version of the schema
_TYPES = {"send": SEND, "recv": RECEIVE, "compute": COMPUTE}  # others are collectives


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
    try:
        return messages().attribute(name=name.encode(), **given)
    except ValueError as exc:
        raise InputError(f"{name}: {float(value):g} is too large for {width}") from exc


_GRAPH = "workload_graph"
_JSON_METADATA = {"version", "attr"}
_NAMES = {  # keys of a node in the two forms
    "id": ("Id", "id"),
    "name": ("Name", "name"),
    "kind": ("NodeType", "type"),
    "duration_us": ("runtime", "durationMicros"),
    "data_deps": ("data_deps", "dataDeps"),
    "ctrl_deps": ("ctrl_deps", "ctrlDeps"),
}


def json_nodes(content: bytes, path: str) -> list[Node]:
    """Read the nodes of a trace in JSON.

    The text is ``{"workload_graph": [{"Id": 1, "NodeType": 7, "comm_size": 8}, ...]}``, times in
    microseconds; or what Chakra's jsonizer writes, object after object: what describes the trace,
    then ``{"id": "1", "type": "COMM_COLL_NODE", "attr": [...]}``.
    """
    if _GRAPH.encode() in content:
        tree = parse_json(content, path)
        listed = tree.get(_GRAPH) if isinstance(tree, dict) else None
        if not isinstance(listed, list):
            raise FormatError(f"{shorten(listed)}: a list of nodes", where=f"/{_GRAPH}", path=path)
        return [_read_node(given, f"/{_GRAPH}/{k}", 0, path) for k, given in enumerate(listed)]
    if not is_json_trace(content):
        raise FormatError("no Chakra trace: workload_graph, or nodes after version", path=path)
    objects = enumerate(_objects(content, path))
    return [_read_node(given, f"object {k}", 1, path) for k, given in objects if k]


def is_json_trace(content: bytes) -> bool:
    """Tell a trace from other JSON, by its key or by what stands first."""
    if _GRAPH.encode() in content:
        return True
    try:
        first = next(_objects(content, ""), None)
    except FormatError:
        return False
    return isinstance(first, dict) and first.keys() <= _JSON_METADATA


def _objects(content: bytes, path: str) -> Iterator[Any]:
    """Read values that follow each other."""
    text = decode(content, path)
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as exc:
            raise FormatError(f"{exc}: no object of JSON", path=path) from exc
        yield value
        at = end


def _read_node(given: Any, place: str, form: int, path: str) -> Node:
    """Read a node; names of its parts are those of one form or the other."""
    if not isinstance(given, dict):
        raise FormatError(f"{shorten(given)}: a node is an object", where=place, path=path)
    key = {name: both[form] for name, both in _NAMES.items()}
    where = f"node {given[key['id']]}" if key["id"] in given else place

    def whole(name: str, value: Any) -> int:
        if form and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
            value = int(value)  # so JSON has integers of 64 bits
        if isinstance(value, bool) or not isinstance(value, int):
            flaw = f"{name} = {shorten(value)}: a whole number is expected"
        elif not -LARGEST < value < LARGEST:
            flaw = f"{name} = {value}: numbers are below 2**63"
        else:
            return value
        raise FormatError(flaw, where=where, path=path)

    def number(name: str, value: Any = None) -> int:
        found = whole(key[name], given.get(key[name], 0) if value is None else value)
        if found < 0:
            raise FormatError(f"{key[name]} = {found}: must be >= 0", where=where, path=path)
        return found

    def numbers(name: str) -> list[int]:
        listed = given.get(key[name], [])
        if not isinstance(listed, list):
            raise FormatError(f"{key[name]}: a list is expected", where=where, path=path)
        return [number(name, one) for one in listed]

    told = _attributes(given.get("attr", []), where, path) if form else given
    kind = given.get(key["kind"], 0)
    return Node(
        id=number("id"),
        kind=NODE_TYPES.index(kind) if kind in NODE_TYPES else number("kind"),
        name=str(given.get(key["name"], "")),
        parents=numbers("data_deps") + numbers("ctrl_deps"),
        duration_us=number("duration_us"),
        attributes={
            name: str(told[name]) if name == "pg_name" else whole(name, told[name])
            for name in ATTRIBUTES
            if name in told
        },
    )


def _attributes(listed: Any, where: str, path: str) -> dict[str, Any]:
    """Take attributes out of a list of messages: each has a name, and a value of some width."""
    found = {}
    for one in listed if isinstance(listed, list) else [listed]:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise FormatError(f"{shorten(one)}: an attribute has a name", where=where, path=path)
        values = [value for key, value in one.items() if key not in ("name", "docString")]
        found[one["name"]] = values[0] if values else None
    return found

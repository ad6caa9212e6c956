"""Chakra traces as JSON: the nodes that the C++ feeder reads, or that the jsonizer has written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from optmatch.io.contents import decode
from optmatch.io.fields import shorten
from optmatch.io.rails.chakra.messages import ATTRIBUTES, LARGEST, NODE_TYPES
from optmatch.io.rails.chakra.writer import Node
from optmatch.io.text import parse
from optmatch.model import FormatError

_GRAPH = "workload_graph"
_METADATA = {"version", "attr"}
_NAMES = {  # of what a node has, in the two forms
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
        tree = parse(content, path)
        listed = tree.get(_GRAPH) if isinstance(tree, dict) else None
        if not isinstance(listed, list):
            raise FormatError(f"{shorten(listed)}: a list of nodes", where=f"/{_GRAPH}", path=path)
        return [_node(given, f"/{_GRAPH}/{k}", 0, path) for k, given in enumerate(listed)]
    if not is_json_trace(content):
        raise FormatError("no Chakra trace: workload_graph, or nodes after version", path=path)
    objects = enumerate(_objects(content, path))
    return [_node(given, f"object {k}", 1, path) for k, given in objects if k]


def is_json_trace(content: bytes) -> bool:
    """Tell a trace from other JSON, by its key or by what stands first."""
    if _GRAPH.encode() in content:
        return True
    try:
        first = next(_objects(content, ""), None)
    except FormatError:
        return False
    return isinstance(first, dict) and first.keys() <= _METADATA


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


def _node(given: Any, place: str, form: int, path: str) -> Node:
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

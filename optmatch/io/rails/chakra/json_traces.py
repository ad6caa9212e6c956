"""Chakra execution traces in JSON: workload graphs of its feeder, and output of its jsonizer."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from optmatch.io.contents import decode
from optmatch.io.fields import shorten
from optmatch.io.rails.chakra.messages import (
    ATTRIBUTE_NAMES,
    ATTRIBUTES,
    COLLECTIVE,
    LARGEST,
    NODE_TYPES,
    check_dimensions,
)
from optmatch.io.rails.chakra.writer import Node
from optmatch.io.recognition import describe_content
from optmatch.io.text import parse_json
from optmatch.model import FormatError
from optmatch.model.accounts import Level, accounting

_log = logging.getLogger("optmatch")

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
            rule = f"{shorten(entries)}: a list of nodes"
            raise FormatError(rule, where=f"/{_GRAPH}", path=path)
        places = [_Place(path, f"/{_GRAPH}/{index}", False) for index in range(len(entries))]
    elif is_json_trace(content):
        _, *entries = _read_objects(content, path)
        places = [_Place(path, f"object {index}", True) for index in range(1, len(entries) + 1)]
    else:
        rule = "no Chakra trace, which has workload_graph, or nodes after version"
        raise FormatError(f"{rule}{describe_content(content)}", path=path)

    nodes = [_read_node(entry, place) for entry, place in zip(entries, places, strict=True)]
    with accounting(path) as account:
        for entry in entries:
            account.take(_KEYS, entry)
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
    """Read one node of a trace, whose keys may have any of their known spellings.

    Of its attributes those of `ATTRIBUTES` are read: names of groups as texts, others as whole
    numbers.
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

    # Attributes stand in a list of their own, or beside the other keys.
    values = entry | _read_attributes(entry.get("attr", []), place)
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
        try:
            check_dimensions(involved, has_group=bool(attributes.get("pg_name")))
        except FormatError as exc:
            raise place.fail(exc.message) from None

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


def _read_attributes(entries: Any, place: _Place) -> dict[str, Any]:
    """Return the attributes of a node, by name; None for one without a value.

    Entries are a list of objects, or one alone; each has the key ``name`` and, under a key that
    tells its width (as ``int64Val``), its value.
    """
    attributes = {}
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise place.fail(f"{shorten(entry)}: an attribute has a name")
        with accounting(place.path) as account:
            account.take(ATTRIBUTE_NAMES, [entry["name"]], place.where)
        values = [value for key, value in entry.items() if key not in ("name", "docString")]
        attributes[entry["name"]] = values[0] if values else None
    return attributes

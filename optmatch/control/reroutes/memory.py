"""The memory of a controller, as a file, and the changes from one record to the next."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from optmatch.control.reroutes.failed_parts import (
    FailedParts,
    Record,
    check_failure,
    list_parts,
    parts_in,
    subtract,
    unite,
)
from optmatch.io.contents import read_bytes
from optmatch.io.fields import check_keys, check_object
from optmatch.io.problems import check_format, problem_from_tree, problem_to_tree
from optmatch.io.text import canonical, digest, layout, parse
from optmatch.model import FormatError, InputError, integer
from optmatch.model.files import check_target, path_name, replace_file
from optmatch.problems import Reroute

_FORMAT, _BEFORE = "optmatch/rerouter/2", "optmatch/rerouter/1"
_LISTS = ("spares", *FailedParts._fields)
_BESIDE = ("homes", "refused", "cut_off", "answered")
_KEYS = ("circuits", "routes", "cell_states", *_LISTS, *_BESIDE)


class Memory(NamedTuple):
    """The content of a file."""

    records: list[Record]
    """The present last."""
    journal: int = 0
    """The number of the journal that goes on from here."""
    sha256: str = ""


def write_memory(
    path: str | os.PathLike[str], records: Sequence[Record], journal: int = 0
) -> Memory:
    """Write records, the present last, in place of the old file.

    The file has the present record in full; of earlier records it has the differences.
    """
    present, steps = records[-1], list[dict[str, Any]]()
    for later, record in zip(reversed(records), reversed(records[:-1]), strict=False):
        steps.append(list_changes(later, record))
    tree = {
        "format": _FORMAT,
        "state": problem_to_tree(present.state),
        **_beside(present),
        "before": steps,
        "journal": journal,
    }
    sha256 = digest(canonical(tree))
    text = layout({**tree, "sha256": sha256}) + "\n"
    replace_file(check_target(path, force=True), text.encode())
    return Memory(list(records), journal, sha256)


def _beside(record: Record) -> dict[str, Any]:
    refused, answered = (
        [
            {name: list(numbers) for name, numbers in parts._asdict().items() if numbers}
            for parts in fs
        ]
        for fs in (record.refused, record.answered)
    )
    homes = [list(pair) for pair in record.homes]
    cut_off = list(record.cut_off)
    return {"homes": homes, "refused": refused, "cut_off": cut_off, "answered": answered}


def list_changes(before: Record, after: Record) -> dict[str, Any]:
    """List the differences of a later record (or an earlier one), as JSON."""
    old, new = before.state, after.state
    rows = np.flatnonzero((old.circuits != new.circuits).any(axis=1)).tolist()
    found: dict[str, Any] = {"circuits": [[k, *new.circuits[k].tolist()] for k in rows]}
    found["routes"] = [
        [k, list(way)]
        for k, (way, known) in enumerate(zip(new.routes, old.routes, strict=True))
        if way != known
    ]
    if old.cell_states is not None and new.cell_states is not None:
        cells = np.flatnonzero(old.cell_states != new.cell_states).tolist()
        found["cell_states"] = [[c, int(new.cell_states[c])] for c in cells]
    found = {key: entries for key, entries in found.items() if entries}
    for key in _LISTS:
        if getattr(old, key) != getattr(new, key):
            found[key] = list(getattr(new, key))
    known_beside = _beside(before)
    return found | {k: v for k, v in _beside(after).items() if v != known_beside[k]}


def change(record: Record, changes: Any, where: str) -> Record:
    """Return the record after the changes from `list_changes`; each change is checked."""
    check_object(changes, where)
    check_keys(changes, where, known=_KEYS, needed=())
    state, new = record.state, dict[str, Any]()
    tables = {"circuits": state.circuits, "cell_states": state.cell_states}
    for key, table in tables.items():
        if key in changes and table is not None:
            new[key] = np.array(table)
            for k, *values in changes[key]:
                new[key][_place(key, k, len(table))] = values if key == "circuits" else values[0]
    if "routes" in changes:
        routes = list(state.routes)
        for k, way in changes["routes"]:
            routes[_place("routes", k, len(routes))] = tuple(way)
        new["routes"] = tuple(routes)
    new |= {key: tuple(changes[key]) for key in _LISTS if key in changes}
    after = replace(state, **new) if new else state
    beside = {key: changes[key] for key in _BESIDE if key in changes}
    return check_record(record._replace(state=after, **_read_beside(beside)), where)


def _place(name: str, k: Any, count: int) -> int:
    at = integer(name, k, at_least=0)
    if at >= count:
        raise FormatError(f"{name}[{at}]: there are {count}")
    return at


def _read_beside(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "homes" in entry:
        pairs = ([integer("homes", u, at_least=0) for u in pair] for pair in entry["homes"])
        found["homes"] = tuple((stand_in, home) for stand_in, home in pairs)
    for key in {"refused", "answered"} & entry.keys():
        for failure in entry[key]:
            check_keys(failure, f"/{key}", known=FailedParts._fields, needed=())
        found[key] = tuple(
            FailedParts(**{field: list_parts(field, parts) for field, parts in failure.items()})
            for failure in entry[key]
        )
    if "cut_off" in entry:
        found["cut_off"] = list_parts("cut_off", entry["cut_off"])
    return found


def check_record(record: Record, where: str) -> Record:
    """Refuse circuits without light, units that do not exist, or stand in twice; return it."""
    state, count = record.state, record.state.n_units
    if state.hit.any():
        raise FormatError(f"circuit {state.hit.argmax()} has no light", where=where or "/")
    for units in zip(*record.homes, strict=True):
        for unit in units:
            if unit >= count:
                raise FormatError(f"homes: unit {unit}: units are 0 .. {count - 1}", where=where)
            if units.count(unit) > 1:
                raise FormatError(f"homes: unit {unit} stands there twice", where=where)
    waits = unite(record.waiting)
    if subtract(waits, parts_in(state)) != waits or not all(map(any, record.waiting)):
        raise FormatError("refused: a part that is answered, or none", where=where)
    check_failure(state, waits)
    if not set(record.cut_off) <= set(state.failed_chips):
        raise FormatError("cut_off: a chip that has not failed", where=where)
    return record


def add_line(journal: Path, what: str, parts: FailedParts, stand_ins: dict[int, int]) -> None:
    """Add a change to a journal, as a whole line of JSON, or raise an `OSError`."""
    named = {name: list(numbers) for name, numbers in parts._asdict().items() if numbers}
    line = {"what": what, **named, "stand_ins": list(map(list, stand_ins.items()))}
    with journal.open("ab", buffering=0) as file:
        append(file, (json.dumps(line) + "\n").encode(), journal)


def append(file: Any, text: bytes, path: Path, *, sync: bool = False) -> None:
    """Add bytes to an open file, all of them or none, or raise an `OSError`."""
    size = os.fstat(file.fileno()).st_size
    try:
        if file.write(text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if sync:
            os.fsync(file.fileno())
    except OSError as exc:
        exc.filename = path_name(path)
        if path.is_file():
            file.truncate(size)
        raise


def read_memory(path: str | os.PathLike[str]) -> Memory:
    """Read the files that `write_memory` has written, in this version or the one before."""
    name = path_name(path)
    tree = parse(read_bytes(path), name)
    try:
        check_object(tree, "")
        if check_format(tree, "", _BEFORE, _FORMAT) == _BEFORE:
            check_keys(tree, "", known=("format", "memories"), needed=("memories",))
            found = [_read(entry, f"/memories/{k}") for k, entry in enumerate(tree["memories"])]
            if not found:
                raise FormatError("no state in it", where="/memories")
            return Memory(found)
        keys = ("format", "state", *_BESIDE, "before", "journal", "sha256")
        check_keys(tree, "", known=keys, needed={*keys} - {"answered"})
        sha256 = tree.pop("sha256")
        if sha256 != digest(canonical(tree)):
            raise FormatError("does not fit the content", where="/sha256")
        beside = {key: tree[key] for key in _BESIDE if key in tree}
        records = [_read({"state": tree["state"], **beside}, "")]
        for k, step in enumerate(tree["before"]):
            records.append(change(records[-1], step, f"/before/{k}"))
        return Memory(records[::-1], integer("journal", tree["journal"], at_least=0), sha256)
    except InputError as exc:
        exc.path = name
        raise
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as exc:
        raise FormatError(f"is no memory of a controller: {exc!r}", path=name) from exc


def _read(entry: Any, where: str) -> Record:
    check_object(entry, where)
    known = ("state", *_BESIDE)
    check_keys(entry, where, known=known, needed=known[:3])
    state = problem_from_tree(entry["state"], f"{where}/state")
    if not isinstance(state, Reroute):
        raise FormatError(f"kind {state.kind!r}: a reroute is expected", where=f"{where}/state")
    beside = _read_beside({key: entry[key] for key in known[1:] if key in entry})
    record = Record(state, **beside)
    if "cut_off" not in entry:  # version 1 kept answered parts among those refused
        record = record.without(parts_in(state))
    return check_record(record, where)

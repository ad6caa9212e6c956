"""The memory of a controller as a file, and the changes from one record to the next as JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

from optmatch.control.reroutes.failed_parts import (
    Record,
    check_failure,
    list_parts,
    list_unanswered,
)
from optmatch.io.contents import read_bytes
from optmatch.io.fields import check_keys, check_object, shorten
from optmatch.io.problems import check_format, problem_from_tree, problem_to_tree
from optmatch.io.text import canonical, digest, layout, parse_json, pointer
from optmatch.model import FormatError, integer, naming
from optmatch.model.declarations import Range, form_of
from optmatch.model.files import check_target, path_name, replace_file
from optmatch.problems import Reroute
from optmatch.problems.reroutes.running import FailedParts

_FORMAT = "optmatch/rerouter/2"

_STATE_LISTS = ("spares", *FailedParts._fields)
"""The fields of a state that are lists of numbers; a change replaces each as a whole."""

_RECORD_KEYS = ("homes", "refused", "cut_off", "answered")
"""What a record has beside its state."""

_ROW_LENGTHS = {"circuits": 3, "routes": 2, "cell_states": 2}
"""The length of a row of a change: a number, and its circuit, route or state from then on."""

_CHANGE_KEYS = (*_ROW_LENGTHS, *_STATE_LISTS, *_RECORD_KEYS)

_Number = Annotated[int, Range(-1, 2**31 - 1)]
_NUMBERS = form_of(tuple[_Number, ...])
_PAIRS = form_of(tuple[tuple[_Number, _Number], ...])
_ROWS = form_of(tuple[tuple[_Number | tuple[_Number, ...], ...], ...])


class Memory(NamedTuple):
    """The content of a file."""

    records: list[Record]
    """The present last."""
    journal: int = 0
    """The number of the journal that goes on from here."""
    sha256: str = ""
    """The digest of the content."""


def write_memory(
    path: str | os.PathLike[str], records: Sequence[Record], journal: int = 0
) -> Memory:
    """Write the records of a controller to a file, the present last, in place of the old file.

    The file has the present record in full, each earlier record as its differences from the one
    after it, and a digest of all. `journal` is the number of the journal that goes on from here.
    """
    present = records[-1]
    later_first = list(reversed(records))
    differences = [list_changes(later, record) for later, record in pairwise(later_first)]
    tree = {
        "format": _FORMAT,
        "state": problem_to_tree(present.state),
        **_record_to_tree(present),
        "before": differences,
        "journal": journal,
    }
    sha256 = digest(canonical(tree))
    text = layout({**tree, "sha256": sha256}) + "\n"
    replace_file(check_target(path, force=True), text.encode())
    return Memory(list(records), journal, sha256)


def read_memory(path: str | os.PathLike[str]) -> Memory:
    """Read a file that `write_memory` has written, and check it.

    Entry 0 of ``before`` turns the present record into the one before it, entry 1 turns that one
    into the one before, and so on. The digest ``sha256`` is that of all other keys.
    """
    # Files that were written before records had answered failures lack that key.
    keys = ("format", "state", *_RECORD_KEYS, "before", "journal", "sha256")
    optional = ("answered", "prepare")
    name = path_name(path)
    tree = parse_json(read_bytes(path), name)
    with naming(name):
        check_object(tree, "")
        check_format(tree, "", _FORMAT)
        check_keys(tree, "", allowed=(*keys, "prepare"), required={*keys}.difference(optional))
        sha256 = tree.pop("sha256")
        if sha256 != digest(canonical(tree)):
            raise FormatError("does not fit the content", where="/sha256")
        if tree.get("prepare") is not None:
            message = "is gone, since controllers prepare no answers: null is expected"
            raise FormatError(f"{shorten(tree['prepare'])}: {message}", where="/prepare")

        # The present record, then each earlier one from the one after it.
        state = problem_from_tree(tree["state"], "/state")
        if not isinstance(state, Reroute):
            raise FormatError(f"kind {state.kind!r}: a reroute is expected", where="/state")
        later_first = [_check_record(Record(state, **_read_record_fields(tree, "")), "")]
        for k, changes in enumerate(form_of(tuple[Any, ...]).check("before", tree["before"])):
            later_first.append(apply_changes(later_first[-1], changes, f"/before/{k}"))
        journal = integer("journal", tree["journal"], at_least=0)
    return Memory(later_first[::-1], journal, sha256)


def _record_to_tree(record: Record) -> dict[str, Any]:
    """Return what a record has beside its state, as JSON."""
    return {
        "homes": [list(pair) for pair in record.homes],
        "refused": [_failure_to_tree(failure) for failure in record.refused],
        "cut_off": list(record.cut_off),
        "answered": [_failure_to_tree(failure) for failure in record.answered],
    }


def _failure_to_tree(failure: FailedParts) -> dict[str, list[int]]:
    """Return the failed parts as JSON, by field; fields without a part are absent."""
    return {field: list(parts) for field, parts in failure._asdict().items() if parts}


def _list_fields(record: Record) -> dict[str, Any]:
    """Return all that a change may replace in a record, as JSON by the keys of changes."""
    state = record.state
    fields: dict[str, Any] = {"circuits": state.circuits.tolist(), "routes": state.routes}
    if state.cell_states is not None:
        fields["cell_states"] = state.cell_states.tolist()
    fields |= {key: list(getattr(state, key)) for key in _STATE_LISTS}
    return fields | _record_to_tree(record)


def list_changes(before: Record, after: Record) -> dict[str, Any]:
    """List what differs between two records of the same fabric, as JSON for a line of a journal.

    Fields that are equal are absent. ``circuits`` has rows (circuit, source, destination),
    ``cell_states`` rows (cell, state), and ``routes`` pairs (circuit, parts of its route); the
    other fields are the new lists as a whole. `apply_changes` is the inverse.
    """
    old_fields = _list_fields(before)
    changes: dict[str, Any] = {}
    for key, entries in _list_fields(after).items():
        if entries == old_fields[key]:
            continue
        changes[key] = entries
        if key in _ROW_LENGTHS:
            pairs = enumerate(zip(entries, old_fields[key], strict=True))
            rows = [(k, entry) for k, (entry, old_entry) in pairs if entry != old_entry]
            changes[key] = [[k, *entry] if key == "circuits" else [k, entry] for k, entry in rows]
    return changes


def apply_changes(record: Record, changes: Any, where: str) -> Record:
    """Apply what `list_changes` has listed, as read from `where` in a file, and check the record.

    Raises `InputError` if a change is malformed, names what is not there, or leads to a record to
    which no controller can have come.
    """
    check_object(changes, where)
    check_keys(changes, where, allowed=_CHANGE_KEYS, required=())
    state = record.state
    new_fields = dict[str, Any]()

    # The fields of the state, row by row where there are many; the state checks their values.
    for key in _ROW_LENGTHS:
        if key in changes and getattr(state, key) is not None:
            new_fields[key] = _replace_rows(key, getattr(state, key), changes[key])
    for key in _STATE_LISTS:
        if key in changes:
            new_fields[key] = list_parts(key, _NUMBERS.check(key, changes[key]))

    # A new state, and what stands beside it in the record.
    after = replace(state, **new_fields) if new_fields else state
    changed = record._replace(state=after, **_read_record_fields(changes, where))
    return _check_record(changed, where)


def _replace_rows(key: str, entries: Any, rows: Any) -> list[Any]:
    """Replace some circuits, routes or states of cells; a row begins with the number of one."""
    changed = list(entries)
    for row in _ROWS.check(key, rows):
        if len(row) != _ROW_LENGTHS[key] or row[0] not in range(len(changed)):
            raise FormatError(f"{key}: {shorten(list(row))}: one of {len(changed)} is expected")
        number, *values = row
        changed[number] = values if key == "circuits" else values[0]
    return changed


def _read_record_fields(entry: dict[str, Any], where: str) -> dict[str, Any]:
    """Read the fields that a record has beside its state; absent ones stay absent."""
    fields: dict[str, Any] = {}
    if "homes" in entry:
        fields["homes"] = _PAIRS.check("homes", entry["homes"])
    for key in ("refused", "answered"):
        if key in entry:
            place = pointer(where, key)
            failures = form_of(tuple[Any, ...]).check(key, entry[key])
            fields[key] = tuple(_read_failure(failure, place) for failure in failures)
    if "cut_off" in entry:
        fields["cut_off"] = list_parts("cut_off", _NUMBERS.check("cut_off", entry["cut_off"]))
    return fields


def _read_failure(entry: Any, where: str) -> FailedParts:
    """Read the failed parts of one failure: lists of numbers, by the fields of `FailedParts`."""
    check_object(entry, where)
    check_keys(entry, where, allowed=FailedParts._fields, required=())
    fields = {
        field: list_parts(field, _NUMBERS.check(field, parts)) for field, parts in entry.items()
    }
    return FailedParts(**fields)


def _check_record(record: Record, where: str) -> Record:
    """Refuse what was read from a file if no controller can have come to it; else return it.

    A circuit may have no light, a unit stand in for two or have two stand-ins, a pending failure
    be empty or have a part that the state answers, or a chip be cut off that has not failed.
    """
    # The state answers its failures, hence light passes on all circuits.
    state = record.state
    if state.hit.any():
        raise FormatError(f"circuit {state.hit.argmax()} has no light", where=where or "/")

    # Each unit is a stand-in once at most, and has one stand-in at most.
    stand_ins = [stand_in for stand_in, _ in record.homes]
    homes = [home for _, home in record.homes]
    for units in (stand_ins, homes):
        for unit in units:
            if not 0 <= unit < state.n_units:
                allowed = f"units are 0 .. {state.n_units - 1}"
                raise FormatError(f"homes: unit {unit}: {allowed}", where=where)
            if units.count(unit) > 1:
                raise FormatError(f"homes: unit {unit} stands there twice", where=where)

    # No pending part is among those that the state answers, and each failure has some part.
    has_answered_part = any(list_unanswered(f, state) != f for f in record.waiting)
    has_empty_failure = not all(any(failure) for failure in record.waiting)
    if has_answered_part or has_empty_failure:
        raise FormatError("refused: a part that is answered, or none", where=where)
    for failure in record.waiting:
        check_failure(state, failure)

    # Chips that are cut off count as failed in the state.
    if not set(record.cut_off) <= set(state.failed_chips):
        raise FormatError("cut_off: a chip that has not failed", where=where)
    return record

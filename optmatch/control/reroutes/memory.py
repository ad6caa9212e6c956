"""The memory of a controller as a file, and the changes from one record to the next as JSON."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from optmatch.control.reroutes.failed_parts import (
    FailedParts,
    Record,
    check_failure,
    list_parts,
    list_unanswered,
)
from optmatch.io.contents import read_bytes
from optmatch.io.fields import check_keys, check_object, shorten
from optmatch.io.problems import check_format, problem_from_tree, problem_to_tree
from optmatch.io.text import canonical, digest, layout, parse_json, pointer
from optmatch.model import FormatError, InputError, integer
from optmatch.model.files import check_target, path_name, replace_file
from optmatch.problems import Reroute

_FORMAT = "optmatch/rerouter/2"

_STATE_LISTS = ("spares", *FailedParts._fields)
"""The fields of a state that are lists of numbers; a change replaces each as a whole."""

_RECORD_KEYS = ("homes", "refused", "cut_off", "answered")
"""What a record has beside its state."""

_CHANGE_KEYS = ("circuits", "routes", "cell_states", *_STATE_LISTS, *_RECORD_KEYS)

_LARGEST = 2**31 - 1
"""The largest number of a port, a cell or a fibre that arrays hold."""


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

    The file has the present record in full. It has each earlier record as its differences from the
    one after it, and a digest of all.

    Parameters
    ----------
    path
        The file; it is replaced as a whole.
    records
        The history, the oldest first, and the present record.
    journal
        The number of the journal that goes on from here; 0 without a journal.

    Returns
    -------
    Memory
        The content of the file: the records, the number of the journal and the digest.
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

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    Memory
        The records, the oldest first and the present one last; the number of the journal that goes
        on from there; and the digest.

    Raises
    ------
    FormatError, InputError
        If the file cannot be read, is damaged, or its records contradict themselves.
    """
    name = path_name(path)
    tree = parse_json(read_bytes(path), name)
    try:
        check_object(tree, "")
        check_format(tree, "", _FORMAT)
        return _read_memory_tree(tree)
    except InputError as exc:
        exc.path = name
        raise


def _read_memory_tree(tree: dict[str, Any]) -> Memory:
    """Read the content of a file in the present format, and check its digest.

    The file has the present record in full. Its field ``before`` is a list of differences that
    lead back in time: entry 0 turns the present record into the one before it, entry 1 turns that
    one into the one before, and so on.

    Parameters
    ----------
    tree
        The content as JSON. The key ``sha256`` is removed from it, since the digest is that of all
        the other keys.

    Returns
    -------
    Memory
        The records in the order of time, the present one last; the number of the journal to which
        later changes are added; and the digest.

    Raises
    ------
    FormatError, InputError
        If a key is missing or unknown, the digest is another one, or a record is malformed.
    """
    # Files that were written before records had answered failures lack that key.
    keys = ("format", "state", *_RECORD_KEYS, "before", "journal", "sha256")
    optional = ("answered", "prepare")
    check_keys(tree, "", allowed=(*keys, "prepare"), required={*keys}.difference(optional))
    sha256 = tree.pop("sha256")
    if sha256 != digest(canonical(tree)):
        raise FormatError("does not fit the content", where="/sha256")
    if tree.get("prepare") is not None:
        message = "is gone, since controllers prepare no answers: null is expected"
        raise FormatError(f"{shorten(tree['prepare'])}: {message}", where="/prepare")

    # The present record, then each earlier one from the one after it.
    record_keys = {key: tree[key] for key in _RECORD_KEYS if key in tree}
    later_first = [_read_record({"state": tree["state"], **record_keys}, "")]
    for k, changes in enumerate(_check_list(tree["before"], "/before")):
        later_first.append(apply_changes(later_first[-1], changes, f"/before/{k}"))
    journal = integer("journal", tree["journal"], at_least=0)
    return Memory(later_first[::-1], journal, sha256)


def _read_record(entry: Any, where: str) -> Record:
    """Build a record from its state in full and the other fields of a record.

    Parameters
    ----------
    entry
        The record as JSON: ``state``, and the fields of `_RECORD_KEYS`.
    where
        The place in the file that messages name.

    Returns
    -------
    Record
        The checked record.

    Raises
    ------
    FormatError, InputError
        If it is malformed, or no controller can have such a record.
    """
    check_object(entry, where)
    state = problem_from_tree(entry["state"], f"{where}/state")
    if not isinstance(state, Reroute):
        raise FormatError(f"kind {state.kind!r}: a reroute is expected", where=f"{where}/state")

    fields = {key: entry[key] for key in _RECORD_KEYS if key in entry}
    record = Record(state, **_read_record_fields(fields, where))
    return check_record(record, where)


def _record_to_tree(record: Record) -> dict[str, Any]:
    """Return what a record has beside its state, as JSON.

    Parameters
    ----------
    record
        The record.

    Returns
    -------
    dict
        ``homes``, pairs of a stand-in and the unit whose circuits it has; ``refused`` and
        ``answered``, the pending failures without and with a proposal; ``cut_off``, the chips that
        have gone with the fibres of their server.
    """
    return {
        "homes": [list(pair) for pair in record.homes],
        "refused": [_failure_to_tree(failure) for failure in record.refused],
        "cut_off": list(record.cut_off),
        "answered": [_failure_to_tree(failure) for failure in record.answered],
    }


def _failure_to_tree(failure: FailedParts) -> dict[str, list[int]]:
    """Return the failed parts as JSON, by field; fields without a part are absent."""
    return {field: list(parts) for field, parts in failure._asdict().items() if parts}


def list_changes(before: Record, after: Record) -> dict[str, Any]:
    """List what differs between two records of a controller, as JSON for a line of a journal.

    A record is what a controller knows at one time: the circuits that run, their routes and cells
    (2 x 2 switches), failed parts, and failures that are not answered yet. Both records are of the
    same fabric. `apply_changes` is the inverse.

    Parameters
    ----------
    before
        The record to which the changes are applied.
    after
        The record that comes out; it may be an earlier one.

    Returns
    -------
    dict
        The new values by field; fields that are equal are absent:

        - ``circuits``: rows (number of the circuit, source port, destination port);
        - ``cell_states``: rows (cell, state), where a state is 0 bar, 1 cross or -1 free;
        - ``routes``: pairs (number of the circuit, list of the parts on its route);
        - other fields: the new list as a whole.
    """
    old = before.state
    new = after.state
    changes: dict[str, Any] = {}

    # Rows of circuits, routes and cells that differ.
    changed_circuits = np.flatnonzero((old.circuits != new.circuits).any(axis=1))
    changes["circuits"] = [[k, *new.circuits[k].tolist()] for k in changed_circuits.tolist()]
    pairs = zip(new.routes, old.routes, strict=True)
    changes["routes"] = [
        [k, list(route)] for k, (route, old_route) in enumerate(pairs) if route != old_route
    ]
    if old.cell_states is not None and new.cell_states is not None:
        changed_cells = np.flatnonzero(old.cell_states != new.cell_states)
        changes["cell_states"] = [[c, int(new.cell_states[c])] for c in changed_cells.tolist()]
    changes = {key: rows for key, rows in changes.items() if rows}

    # All other fields that differ, as a whole.
    for key in _STATE_LISTS:
        if getattr(old, key) != getattr(new, key):
            changes[key] = list(getattr(new, key))
    old_fields = _record_to_tree(before)
    for key, value in _record_to_tree(after).items():
        if value != old_fields[key]:
            changes[key] = value
    return changes


def apply_changes(record: Record, changes: Any, where: str) -> Record:
    """Apply one line of a journal of changes to what a controller knows, and check it.

    A record is what a controller knows at one time: the circuits that run, their routes and cells
    (2 x 2 switches), failed parts, and failures that are not answered yet.

    Parameters
    ----------
    record
        The record before.
    changes
        New values by field, as read from a file; fields that stay are absent:

        - ``circuits``: rows (number of the circuit, source port, destination port);
        - ``cell_states``: rows (cell, state), where a state is 0 bar, 1 cross or -1 free;
        - ``routes``: pairs (number of the circuit, list of the parts on its route);
        - other fields: the new list as a whole.
    where
        The place in the file that messages name.

    Returns
    -------
    Record
        The record after.

    Raises
    ------
    InputError
        If a change is malformed, names what is not there, or leads to no record of a controller.
    """
    check_object(changes, where)
    check_keys(changes, where, allowed=_CHANGE_KEYS, required=())
    state = record.state
    new_fields = dict[str, Any]()

    # The fields of the state, row by row where there are many.
    if "circuits" in changes:
        circuits = np.array(state.circuits)
        for k, source, destination in _read_rows(changes, "circuits", 3, where):
            circuits[_check_index("circuits", k, len(circuits))] = source, destination
        new_fields["circuits"] = circuits
    if "cell_states" in changes and state.cell_states is not None:
        cell_states = np.array(state.cell_states)
        for cell, cell_state in _read_rows(changes, "cell_states", 2, where):
            if cell_state not in (-1, 0, 1):
                raise FormatError(f"cell_states: {cell_state}: -1, 0 or 1 are expected")
            cell_states[_check_index("cell_states", cell, len(cell_states))] = cell_state
        new_fields["cell_states"] = cell_states
    if "routes" in changes:
        new_fields["routes"] = _change_routes(state.routes, changes["routes"], where)
    for key in _STATE_LISTS:
        if key in changes:
            new_fields[key] = list_parts(key, _check_list(changes[key], pointer(where, key)))

    # A new state, and what stands beside it in the record.
    after = replace(state, **new_fields) if new_fields else state
    fields = {key: changes[key] for key in _RECORD_KEYS if key in changes}
    changed = record._replace(state=after, **_read_record_fields(fields, where))
    return check_record(changed, where)


def _change_routes(
    routes: Sequence[tuple[int, ...]], entries: Any, where: str
) -> tuple[tuple[int, ...], ...]:
    """Replace some routes, as a line of the journal says.

    Parameters
    ----------
    routes
        ``routes[circuit]``: the fibres of each circuit before.
    entries
        The value that was read: a list of pairs, the number of a circuit and its new route.
    where
        The place in the file, for messages.

    Returns
    -------
    tuple of tuples
        The routes of all circuits after.

    Raises
    ------
    FormatError
        If an entry is no such pair, or names a circuit that does not exist.
    """
    place = pointer(where, "routes")
    changed = list(routes)
    for entry in _check_list(entries, place):
        if not isinstance(entry, list) or len(entry) != 2:
            raise FormatError(
                f"{shorten(entry)}: a circuit and its route are expected", where=place
            )
        circuit, route = entry
        index = _check_index("routes", circuit, len(changed))
        parts = _check_list(route, place)
        changed[index] = tuple(_check_number("routes", part) for part in parts)
    return tuple(changed)


def _read_rows(changes: dict[str, Any], key: str, length: int, where: str) -> list[list[int]]:
    """Read rows of so many whole numbers from a field.

    Parameters
    ----------
    changes
        Fields as JSON, by name.
    key
        The name of the field, which is there.
    length
        How many numbers each row has.
    where
        The place of `changes` in the file, for messages.

    Returns
    -------
    list of list of int
        The rows; each number is from -1 to `_LARGEST`.

    Raises
    ------
    FormatError, InputError
        If it is no list of such rows.
    """
    place = pointer(where, key)
    rows = _check_list(changes[key], place)
    for row in rows:
        if not isinstance(row, list) or len(row) != length:
            raise FormatError(f"{shorten(row)}: {length} numbers are expected", where=place)
        for entry in row:
            _check_number(key, entry)
    return rows


def _check_list(tree: Any, where: str) -> list[Any]:
    """Return what was read if it is a list, and refuse all else."""
    if not isinstance(tree, list):
        raise FormatError(f"{shorten(tree)}: a list is expected here", where=where)
    return tree


def _check_number(name: str, value: Any) -> int:
    """Refuse numbers that no array of ports, cells or fibres holds."""
    checked = integer(name, value, at_least=-1)
    if checked > _LARGEST:
        raise FormatError(f"{name}: {checked}: at most {_LARGEST} is expected")
    return checked


def _check_index(name: str, index: Any, count: int) -> int:
    """Refuse an index that is no whole number from 0 to below `count`."""
    checked = integer(name, index, at_least=0)
    if checked >= count:
        raise FormatError(f"{name}[{checked}]: there are {count}")
    return checked


def _read_record_fields(entry: dict[str, Any], where: str) -> dict[str, Any]:
    """Read the fields that a record has beside its state.

    A stand-in is a spare unit (a chip of a rack or a port of a switch) that has the circuits of a
    failed one.

    Parameters
    ----------
    entry
        Some of the fields of `_RECORD_KEYS`, as JSON.
    where
        The place in the file that messages name.

    Returns
    -------
    dict
        Arguments of `Record`: ``homes`` as pairs of a stand-in and the unit whose circuits it has,
        ``refused`` and ``answered`` as tuples of `FailedParts`, ``cut_off`` as numbers of units.
        Fields that are absent in `entry` are absent here.
    """
    fields: dict[str, Any] = {}
    if "homes" in entry:
        pairs = _read_rows(entry, "homes", 2, where)
        fields["homes"] = tuple((stand_in, home) for stand_in, home in pairs)
    for key in ("refused", "answered"):
        if key in entry:
            place = pointer(where, key)
            failures = _check_list(entry[key], place)
            fields[key] = tuple(_read_failure(failure, place) for failure in failures)
    if "cut_off" in entry:
        parts = _check_list(entry["cut_off"], pointer(where, "cut_off"))
        fields["cut_off"] = list_parts("cut_off", parts)
    return fields


def _read_failure(entry: Any, where: str) -> FailedParts:
    """Read the failed parts of one failure.

    Parameters
    ----------
    entry
        As JSON: lists of numbers, by the fields of `FailedParts`, such as ``failed_fibres``.
    where
        The place in the file that messages name.

    Returns
    -------
    FailedParts
        The parts, ascending; kinds that are absent have none.

    Raises
    ------
    FormatError, InputError
        If a field is unknown, or no list of different whole numbers >= 0.
    """
    check_object(entry, where)
    check_keys(entry, where, allowed=FailedParts._fields, required=())
    fields = {
        field: list_parts(field, _check_list(parts, pointer(where, field)))
        for field, parts in entry.items()
    }
    return FailedParts(**fields)


def check_record(record: Record, where: str) -> Record:
    """Refuse what was read from a file if no controller can have come to it; else return it.

    A unit is a chip of a rack, or a port of a switch. After a failure, a spare unit stands in for
    the one that failed.

    Parameters
    ----------
    record
        All that a controller knows at one time:

        - ``state``: the circuits that run, and the failed parts that were answered;
        - ``homes``: pairs (unit that stands in, unit whose circuits it has);
        - ``waiting``: failures that were reported and are not answered yet;
        - ``cut_off``: chips that count as failed since their server lost its last fibres.
    where
        The place in the file that a message names.

    Returns
    -------
    Record
        `record` itself.

    Raises
    ------
    FormatError
        If a circuit has no light, a unit stands in for two or has two stand-ins, a pending failure
        is empty or has a part that the state answers, or a chip was cut off that has not failed.
    InputError
        If a pending part does not exist.
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


def append_bytes(file: BinaryIO, text: bytes, path: Path, *, sync: bool = False) -> None:
    """Add bytes to an open file, all of them or none.

    Parameters
    ----------
    file
        The file, open for appending and without a buffer.
    text
        The bytes to add.
    path
        The name of the file, for the error.
    sync
        Whether it has to be on disk when this returns.

    Raises
    ------
    OSError
        If the disk is full or fails; the file is then as long as it was, if it can be cut.
    """
    size = os.fstat(file.fileno()).st_size
    try:
        if file.write(text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if sync:
            os.fsync(file.fileno())
    except OSError as exc:
        exc.filename = os.fspath(path)
        if path.is_file():
            file.truncate(size)
        raise

"""The records of a controller in a database of SQLite, a row each.

Row 0 has the state with which the controller began, as a problem. Each later row has a record, the
present one last: the fields of its state that changes touch, and what stands beside the state.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from optmatch.control.reroutes.failed_parts import (
    Record,
    check_failure,
    list_parts,
)
from optmatch.fabrics.cellgraph import check_parts
from optmatch.io.fields import check_keys, check_object, from_object
from optmatch.io.problems import problem_from_tree, problem_to_tree
from optmatch.io.text import canonical, digest, parse_json, pointer
from optmatch.model import FormatError, naming
from optmatch.model.databases import Database, Layout
from optmatch.model.declarations import Index, form_of
from optmatch.model.files import check_target, file_path, path_name
from optmatch.problems import Reroute
from optmatch.problems.reroutes.running import FailedParts

Durable = Literal["always", "interval"]
"""When changes are brought to disk: each before its call returns, or once a second."""

_INTERVAL_S = 1.0  # seconds after which a change is brought to disk in any case

_LAYOUT = Layout(
    noun="controller of optmatch",
    application_id=0x6F70726F,  # "opro" in ASCII
    version=1,
    tables=("CREATE TABLE records (number INTEGER PRIMARY KEY, content BLOB, sha256 TEXT)",),
)
_STATE_FIELDS = ("circuits", "routes", "cell_states", "spares", *FailedParts._fields)
"""The fields of a state that changes touch; the others are those of the first state."""

_SELECT = "SELECT rowid, content, sha256 FROM records ORDER BY rowid"
_INSERT = "INSERT INTO records VALUES (?, ?, ?)"
_FAILURES = form_of(tuple[Mapping[str, tuple[Index, ...]], ...])
_PARTS = form_of(tuple[Index, ...])
_PAIRS = form_of(tuple[tuple[Index, Index], ...])


class RecordFile:
    """The file of one controller.

    Parameters
    ----------
    path
        The file, which is made if it is not there.
    read_only
        Whether it is opened for `read` alone. Otherwise no other process can open it before
        `close`.
    durable
        When changes are brought to disk.

    Raises
    ------
    StoreError
        If the file is no controller, or cannot be opened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        durable: Durable = "always",
    ) -> None:
        """Open the file; nothing is read or written yet."""
        self._durable = form_of(Durable).check("durable", durable)
        if not read_only:
            path = check_target(path, force=True)
        elif not file_path(path).exists():
            raise FormatError("cannot be read: there is no such file", path=path_name(path))
        self._file = Database(path, _LAYOUT, read_only=read_only, exclusive=not read_only)
        self.path = self._file.path
        self._rows: list[tuple[int, Record]] = []
        """The number of each later row, ascending, and its record."""
        self._synced_s = 0.0

    def read(self) -> list[Record]:
        """Read all records, the present one last, and check them; none from a new file.

        `FormatError` says which row is not what was written, or has a record to which no
        controller can have come. `StoreError` says that SQLite cannot read the file.
        """
        connection = self._file.connection
        with self._file.errors_by_name():
            ((damage,), *_) = connection.execute("PRAGMA quick_check(1)").fetchall()
            rows = connection.execute(_SELECT).fetchall()
        with naming(self.path):
            if damage != "ok":
                raise FormatError(f"damaged: {damage}")
            if not rows:
                return []

            # Each row has what was written, and the digest of that.
            trees = []
            for number, content, sha256 in rows:
                if not isinstance(content, bytes) or digest(content) != sha256:
                    raise FormatError("is not what was written", where=f"/{number}")
                trees.append(parse_json(content, self.path))

            # Numbers of records are consecutive, so that none can be missing between others.
            numbers = [number for number, _, _ in rows]
            if numbers[1:] != list(range(numbers[-1] - len(rows) + 2, numbers[-1] + 1)):
                raise FormatError("a record is missing")
            first_state = problem_from_tree(trees[0], "/0")
            if numbers[0] != 0 or not isinstance(first_state, Reroute) or len(rows) == 1:
                raise FormatError("has no first state, or no record", where="/0")
            for number, tree in zip(numbers[1:], trees[1:], strict=True):
                record = _read_record(tree, trees[0], first_state, f"/{number}")
                self._rows.append((number, record))
        return [record for _, record in self._rows]

    def write(self, records: Sequence[Record], *, is_urgent: bool = True) -> None:
        """Replace the records of the file, the present one last.

        Rows of records that stay are kept; these come before all new ones. If `read` was not
        called before, nothing stays. It is a transaction: after an error the file is as it was.
        A change that is not urgent, as a proposal whose caller has nothing to lose yet, may reach
        the disk a second later.
        """
        kept = [row for row in self._rows if any(row[1] is record for record in records)]
        first_new = kept[-1][0] + 1 if kept else 1
        new_rows = list(enumerate(records[len(kept) :], first_new))
        kept_numbers = {number for number, _ in kept}
        removed = [(number,) for number, _ in self._rows if number not in kept_numbers]
        is_due = time.monotonic() >= self._synced_s + _INTERVAL_S
        sync = is_due or (is_urgent and self._durable == "always")

        connection = self._file.connection
        with self._file.errors_by_name():
            connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")

            # All in one transaction: a new file gets its first record as a whole.
            with self._file.transaction():
                if not self._rows:
                    first_tree = problem_to_tree(records[0].state)
                    connection.execute("DELETE FROM records")
                    connection.execute(_INSERT, _write_row(0, first_tree))
                connection.executemany("DELETE FROM records WHERE number = ?", removed)
                for number, record in new_rows:
                    row = _write_row(number, record_to_tree(record))
                    connection.execute(_INSERT, row)
        if sync:
            self._synced_s = time.monotonic()
        self._rows = kept + new_rows

    def close(self) -> None:
        """Release the file; all changes are on disk then."""
        self._file.close()


def _write_row(number: int, tree: dict[str, Any]) -> tuple[int, bytes, str]:
    """Return a row: its number, its content and the digest of that."""
    content = canonical(tree)
    return number, content, digest(content)


def record_to_tree(record: Record) -> dict[str, Any]:
    """Return a record as JSON."""
    state_fields = {name: getattr(record.state, name) for name in _STATE_FIELDS}
    for name, entries in state_fields.items():
        if isinstance(entries, np.ndarray):
            state_fields[name] = entries.tolist()
    return {
        "state": state_fields,
        "homes": record.homes,
        "refused": [failure._asdict() for failure in record.refused],
        "cut_off": record.cut_off,
        "answered": [failure._asdict() for failure in record.answered],
    }


def _read_record(tree: Any, first_tree: dict[str, Any], first: Reroute, where: str) -> Record:
    """Read a record that `record_to_tree` has written; refuse it if no controller can come to it.

    Fields that changes never touch, the fabric among them, come from the first state of the file:
    `first_tree` is that state as JSON, `first` the same as an object. `where` is the place of the
    record in the file, for errors.
    """
    check_object(tree, where)
    check_keys(tree, where, allowed=Record._fields, required=Record._fields)
    place = pointer(where, "state")
    check_object(tree["state"], place)
    check_keys(tree["state"], place, allowed=_STATE_FIELDS, required=_STATE_FIELDS)
    state = from_object(
        Reroute,
        first_tree | tree["state"],
        place,
        tags=("format", "kind"),
        fabric=lambda *_: first.fabric,
    )
    record = Record(
        state,
        homes=_PAIRS.check("homes", tree["homes"]),
        refused=_read_failures(tree, "refused", where),
        cut_off=list_parts("cut_off", _PARTS.check("cut_off", tree["cut_off"])),
        answered=_read_failures(tree, "answered", where),
    )

    # The state answers its failures, hence light passes on all circuits. Each unit is a stand-in
    # once at most, and has one stand-in at most.
    if state.hit.any():
        raise FormatError(f"circuit {state.hit.argmax()} has no light", where=where)
    for units in zip(*record.homes, strict=True):
        check_parts("homes", units, state.n_units, "units")

    # No pending part is among those that the state answers, and each failure has some part. Chips
    # that are cut off count as failed in the state.
    for failure in record.waiting:
        if not any(failure):
            raise FormatError("refused: a failure without a part", where=where)
        check_failure(state, failure)
    if not set(record.cut_off) <= set(state.failed_chips):
        raise FormatError("cut_off: a chip that has not failed", where=where)
    return record


def _read_failures(tree: dict[str, Any], key: str, where: str) -> tuple[FailedParts, ...]:
    """Read failures: lists of numbers, by the fields of `FailedParts`."""
    failures = list[FailedParts]()
    for entry in _FAILURES.check(key, tree[key]):
        check_keys(entry, pointer(where, key), allowed=FailedParts._fields, required=())
        parts = {name: list_parts(name, numbers) for name, numbers in entry.items()}
        failures.append(FailedParts(**parts))
    return tuple(failures)

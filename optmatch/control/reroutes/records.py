"""Failed parts by their numbers, the record that a controller keeps of them, and its file.

A failure is in one of three states. It is *answered in the state* if its answer was applied: the
`Reroute` then lists its parts. It is *pending with a proposal* (``answered``) if a way over it was
found and not applied yet. It is *pending without a way* (``refused``) if nothing has helped yet.

A cell may fail once more in another way: a stuck cell dies. The new fault takes the place of the
former one: at once where the former one is pending, and with the answer where it is in the state.

The records of a controller in a file are rows of a database of SQLite. Row 0 has the state with
which the controller began, as a problem. Each later row has a record, the present one last: the
fields of its state that changes touch, and what stands beside the state.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, Units
from optmatch.fabrics.cellgraph import check_parts
from optmatch.fabrics.fabric import number_names
from optmatch.io.fields import check_keys, check_object, from_object
from optmatch.io.files import problem_from_tree, problem_to_tree
from optmatch.io.text import canonical, digest, parse_json, pointer
from optmatch.model import FormatError, InputError, integer, naming
from optmatch.model.databases import Database, Layout
from optmatch.model.declarations import Index, form_of
from optmatch.model.files import check_target, file_path, path_name
from optmatch.problems import Reroute
from optmatch.problems.reroutes.running import FailedParts, Part, group_size

Parts = int | str | Iterable[int | str] | None
Stuck = Literal["bar", "cross"] | None


class Record(NamedTuple):
    """The failed parts and the answers to them; a record never changes.

    No part is both in the state and pending, and no part is pending twice. The exception is a cell
    that has failed once more, in another way than the state has it: the new fault is pending. All
    parts that the record does not name work.
    """

    state: Reroute
    """The running state, with the failures whose answers were applied."""
    homes: tuple[tuple[int, int], ...] = ()
    """Pairs of a stand-in and the unit whose circuits it has."""
    refused: tuple[FailedParts, ...] = ()
    """Parts that were reported together, and that nothing has helped so far."""
    cut_off: tuple[int, ...] = ()
    """Units that have gone with the last fibres of their server: they work again with these."""
    answered: tuple[FailedParts, ...] = ()
    """Parts that were reported together, and have a proposal that is not applied."""

    @property
    def waiting(self) -> tuple[FailedParts, ...]:
        """All pending failures, with a proposal or without one."""
        return (*self.refused, *self.answered)

    @property
    def waiting_parts(self) -> FailedParts:
        """The parts of all pending failures."""
        return unite(self.waiting)

    def report(self, failure: FailedParts, *, has_proposal: bool) -> Record:
        """Add a pending failure, with a proposal or without one.

        A part is pending in the last failure alone that has named it, and with its last fault: it
        leaves the failures that have named it before. The result is the record itself if nothing
        is new.
        """
        if not any(failure) or failure in (self.answered if has_proposal else self.refused):
            return self
        others = self.without(failure)
        if has_proposal:
            return others._replace(answered=(*others.answered, failure))
        return others._replace(refused=(*others.refused, failure))

    def without(self, failure: FailedParts) -> Record:
        """Remove the parts of a failure from all pending failures."""
        refused = (subtract(pending, failure) for pending in self.refused)
        answered = (subtract(pending, failure) for pending in self.answered)
        return self._replace(
            refused=tuple(filter(any, refused)), answered=tuple(filter(any, answered))
        )

    def back_to(self, past: Record) -> Record:
        """Return to a past record; failures that were reported since stay pending."""
        record = past._replace(answered=())
        for failure in self.waiting:
            unanswered = list_unanswered(failure, past.state)
            record = record.report(unanswered, has_proposal=failure in self.answered)
        return record

    def with_reported_chips(self, chips: Set[int]) -> Record:
        """Return a past record that knows of chips which have failed by themselves since.

        Chips that work in the past state become pending. The others were cut off in that state,
        with the fibres of their server: they have failed in it already, and no longer work again
        with their server.
        """
        working = tuple(sorted(chips - {*self.state.failed_chips}))
        cut_off = tuple(unit for unit in self.cut_off if unit not in chips)
        record = self.report(FailedParts(working), has_proposal=False)
        return record._replace(cut_off=cut_off)

    def closed_to(self, failure: FailedParts) -> FailedParts:
        """Return the pending parts other than those of a failure; its answer uses none of them."""
        return subtract(self.waiting_parts, failure)


def list_parts(
    name: str, parts: Parts, find: Callable[[str], int] | None = None
) -> tuple[int, ...]:
    """Return parts that are given as one, several or none, ascending; `name` is for messages.

    `find` returns the number of a part that is called by its name; None if such parts have none.
    """
    if parts is None:
        return ()
    listed: Any = parts
    if not isinstance(parts, Iterable) or isinstance(parts, str | bytes):
        listed = [parts]
    elif isinstance(parts, np.ndarray):
        listed = np.atleast_1d(parts)
    if find is not None:
        listed = number_names(find, list(listed))
    numbers = sorted(integer(name, part, at_least=0) for part in listed)
    for number, next_number in pairwise(numbers):
        if number == next_number:
            raise InputError(f"{name} {number} is named twice", where=name)
    return tuple(numbers)


def list_failure(
    fabric: Fabric, *, chip: Parts, port: Parts, fibre: Parts, cell: Parts, stuck: Stuck = None
) -> FailedParts:
    """Check a report of failed parts, and list them by kind; ports and cells may be names."""
    form_of(Stuck).check("stuck", stuck)

    # Cells that are named are dead, unless they are stuck in a state.
    cells = list_parts("cell", cell, fabric.find_cell)
    if stuck and not cells:
        raise InputError(f"stuck = {stuck!r}, but no cell is named", where="stuck")

    failure = FailedParts(
        failed_chips=list_parts("chip", chip),
        failed_ports=list_parts("port", port, fabric.find_port),
        failed_fibres=list_parts("fibre", fibre),
        stuck_bar=cells if stuck == "bar" else (),
        stuck_cross=cells if stuck == "cross" else (),
        dead_cells=cells if stuck is None else (),
    )
    if not any(failure):
        raise InputError("no part is named: a chip, port, fibre or cell")
    return failure


def unite(failures: Iterable[FailedParts]) -> FailedParts:
    """Return the parts of all failures, ascending; of several faults of a cell the last one."""
    faults: dict[Part, str] = {}
    for failure in failures:
        faults.update(failure.faults)
    return FailedParts.of(faults)


def subtract(parts: FailedParts, removed: FailedParts) -> FailedParts:
    """Return parts without others; a cell is the same whatever is wrong with it."""
    faults = parts.faults
    return FailedParts.of({part: faults[part] for part in faults.keys() - removed.faults.keys()})


def list_unanswered(failure: FailedParts, state: Reroute) -> FailedParts:
    """Return the parts of a failure that work in a state, or have failed in another way there."""
    return FailedParts.of(dict(failure.faults.items() - state.failed.faults.items()))


def drop_former_faults(state: Reroute, failure: FailedParts) -> Reroute:
    """Return a state without the faults of cells that a failure reports with another fault."""
    remaining = subtract(state.failed, FailedParts(dead_cells=failure.broken_cells))
    if remaining == state.failed:
        return state
    return replace(state, **remaining._asdict())


def add_failure(state: Reroute, failure: FailedParts) -> Reroute:
    """Return a state in which the parts of a failure have failed too.

    A cell that had another fault before has the new one alone.
    """
    return replace(state, **unite([state.failed, failure])._asdict())


def check_failure(state: Reroute, failure: FailedParts) -> None:
    """Refuse parts that do not exist, or have failed in the same way in the state.

    A broken cell may fail once more in another way: a stuck one may die, for instance.
    """
    former_faults = state.failed.faults
    n_parts = {
        "chip": state.units.n_chips,
        "port": state.fabric.n_ports,
        "fibre": state.units.n_fibres,
        "cell": state.fabric.n_cells,
    }
    for (kind, part), fault in failure.faults.items():
        count = n_parts[kind]
        if not 0 <= part < count:
            allowed = f"{kind}s are 0 .. {count - 1}" if count else f"there are no {kind}s"
            raise InputError(f"{kind} = {part}: {allowed}", where=kind)
        if former_faults.get((kind, part)) == fault:
            raise InputError(f"{kind} {part} has failed already", where=kind)


def check_faults_are_latest(record: Record, failure: FailedParts) -> None:
    """Refuse a failure with a cell that is pending in another state, as it was reported since."""
    pending = record.waiting_parts.faults
    for part, fault in failure.faults.items():
        if pending.get(part, fault) != fault:
            kind, number = part
            raise InputError(
                f"the proposal is outdated: {kind} {number} was reported in another state since it"
                " was made; take one of `offers`",
                where="proposal",
            )


def take_out(record: Record, repaired: FailedParts) -> Record:
    """Take repaired parts out of the failed ones; circuits and cells stay as they were.

    A repaired unit without circuits is a spare; chips that were cut off work again once their
    server has fibres both ways; where whole racks replace each other, a rack is a spare once
    nothing in it is broken.
    """
    # Parts are refused that are neither pending nor failed in the state.
    state = record.state
    failed = record.waiting_parts.faults | state.failed.faults
    for kind, number in repaired.faults:
        if (kind, number) not in failed:
            raise InputError(f"{kind} {number} has not failed", where=kind)

    # The state in which the parts work, chips included that come back with their server.
    rejoined: list[int] = []
    if record.cut_off and repaired.failed_fibres:
        units = state.units
        dead_fibres = {*state.failed_fibres, *record.waiting_parts.failed_fibres}
        joined_servers = find_joined_servers(units, dead_fibres.difference(repaired.failed_fibres))
        rejoined = [
            unit for unit in record.cut_off if units.server_of_unit[unit] in joined_servers
        ]
    repaired = repaired._replace(failed_chips=(*repaired.failed_chips, *rejoined))
    after = replace(state, **subtract(state.failed, repaired)._asdict())

    # Units that work again and have no circuits are spares.
    idle = _list_usable_units(after, repaired)
    busy = np.unique(after.circuits // state.units.ports_per_unit).tolist()
    new_spares = idle.difference(busy, after.spares)
    if new_spares:
        after = replace(after, spares=(*after.spares, *sorted(new_spares)))
    cut_off = tuple(unit for unit in record.cut_off if unit in after.failed_chips)
    return record.without(repaired)._replace(state=after, cut_off=cut_off)


def _list_usable_units(after: Reroute, repaired: FailedParts) -> set[int]:
    """List the units that can be used again after a repair.

    `after` is the state in which the `repaired` parts work again. Units replace each other in
    groups (`group_size`): of those in which a chip, a port or, in a rack, a fibre was repaired,
    all units count unless something in the group is still broken.
    """
    units = after.units
    size = group_size(units)
    repaired_ports = np.array(repaired.failed_ports, dtype=np.int64)
    dead_ports = np.array([*after.dead_ports], dtype=np.int64)
    touched = {*(repaired_ports // units.ports_per_unit // size).tolist()}
    touched.update(chip // size for chip in repaired.failed_chips)
    broken = {*(dead_ports // units.ports_per_unit // size).tolist()}

    # Fibres count where whole racks replace each other.
    if not units.through:
        touched.update(units.rack_of_fibre[list(repaired.failed_fibres)].tolist())
        broken.update(units.rack_of_fibre[list(after.failed_fibres)].tolist())
    usable = touched - broken
    return {unit for unit in range(units.n_units) if unit // size in usable}


def find_joined_servers(units: Units, dead_fibres: Iterable[int]) -> NDArray[np.int32]:
    """List the servers with a live fibre that leaves them and one that enters, ascending."""
    live_fibres = np.setdiff1d(np.arange(units.n_fibres), list(dead_fibres))
    edges = units.edges[units.edge_of_fibre[live_fibres]]
    return np.intersect1d(edges[:, 0], edges[:, 1])


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
        self._rows: dict[int, Record] = {}
        """``_rows[number]``: the record of each row but the first one, ascending."""
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
                self._rows[number] = _read_record(tree, trees[0], first_state, f"/{number}")
        return list(self._rows.values())

    def write(self, records: Sequence[Record], *, is_urgent: bool = True) -> None:
        """Replace the records of the file, the present one last.

        Rows of records that stay are kept; these come before all new ones. If `read` was not
        called before, nothing stays. It is a transaction: after an error the file is as it was.
        A change that is not urgent, as a proposal whose caller has nothing to lose yet, may reach
        the disk a second later.
        """
        # ``_rows[number]`` is the record of a row as it stands in the file. Rows that stay keep
        # their numbers, and new ones count on from the last of these. `sync` says whether SQLite
        # waits for the disk.
        kept = {
            number: former
            for number, former in self._rows.items()
            if any(former is record for record in records)
        }
        removed = [(number,) for number in self._rows.keys() - kept.keys()]
        new_rows = dict(enumerate(records[len(kept) :], max(kept, default=0) + 1))
        trees = {number: record_to_tree(record) for number, record in new_rows.items()}
        is_due = time.monotonic() >= self._synced_s + _INTERVAL_S
        sync = is_due or (is_urgent and self._durable == "always")

        # A new file gets its first state and its first record at once, as do files of `save`.
        if not self._rows:
            trees[0] = problem_to_tree(records[0].state)
        connection = self._file.connection
        with self._file.errors_by_name():
            connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
            with self._file.transaction():
                if not self._rows:
                    connection.execute("DELETE FROM records")
                connection.executemany("DELETE FROM records WHERE number = ?", removed)
                for number, tree in trees.items():
                    content = canonical(tree)
                    connection.execute(_INSERT, (number, content, digest(content)))
        if sync:
            self._synced_s = time.monotonic()
        self._rows = kept | new_rows

    def close(self) -> None:
        """Release the file; all changes are on disk then."""
        self._file.close()


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

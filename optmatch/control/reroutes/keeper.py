"""The record of a controller: failed parts, applied changes, and how to undo them."""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Any, NoReturn, Self

import numpy as np

from optmatch.control.figures import Call, Tally
from optmatch.control.reroutes.answering import Ahead, Proposal, Snapshot, look, prepare
from optmatch.control.reroutes.background import Background
from optmatch.control.reroutes.failed_parts import KINDS, FailedParts, Record, parts_in, unite
from optmatch.control.reroutes.journal import Durable, Journal
from optmatch.control.reroutes.memory import add_line, read_memory, write_memory
from optmatch.model import InputError, Limits, integer
from optmatch.model.declarations import form_of
from optmatch.model.files import check_target
from optmatch.problems import Reroute

_PATIENCE = Limits(time_s=0.1)
"""The limits of an answer prepared before a change returns; a longer one is left to `fail`."""


def begin(state: Reroute | None) -> Record:
    """Make a record of a state; the `InputError` names a circuit without light."""
    state = form_of(Reroute).check("state", state)
    if state.hit.any():
        circuit = int(np.flatnonzero(state.hit)[0])
        raise InputError(f"circuit {circuit} has no light in this state", where="state")
    return Record(state)


class Keeper:
    """Keeps the record of a `Rerouter`: all changes of it go through here, one at a time."""

    def _set_up(
        self,
        record: Record,
        ahead: Ahead,
        background: bool,
        history: int,
        journal: Any,
        on_event: Callable[[Call], None] | None,
        priorities: Mapping[int, int] | None,
    ) -> None:
        form_of(Ahead).check("prepare", ahead)
        form_of(bool).check("background", background)
        if not isinstance(journal, str | os.PathLike | None):
            raise InputError(f"journal = {journal!r}: a path is expected", where="journal")
        self._lock = threading.Lock()
        """Held while the record changes, never while somebody searches."""
        self._ahead: Ahead = ahead
        self._background, self._behind = background, Background(ahead)
        self._history = deque[Record](maxlen=integer("history", history, at_least=0))
        self._journal = None if journal is None else check_target(journal, force=True)
        self._store: Journal | None = None
        self._tally = Tally(on_event)
        self._offers: tuple[Record, tuple[Proposal, ...]] | None = None
        self._turn = 0
        """How many failures `retry` has looked at so far: it goes on with the next one."""
        given = (priorities or {}).items()
        ranks = {job: integer(f"priorities[{job}]", rank, at_least=0) for job, rank in given}
        owners = record.state.owners.tolist()
        self._priorities = np.array([ranks.get(job, 0) for job in owners], dtype=np.int64)
        self._now = look(record, self._priorities)
        self._look_ahead()

    def __repr__(self) -> str:
        record = self._now.record
        return (
            f"<{type(self).__name__} {record.state.fabric.title},"
            f" {len(record.state.circuits)} circuits, {len(record.state.spares)} spares,"
            f" {len(record.waiting)} failures on record, {len(self._history)} changes undoable>"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Rerouter cannot be pickled, since it has a lock, threads and a journal: send its"
            " `state` and make a Rerouter of it, or the file that its `save` writes"
        )

    @property
    def state(self) -> Reroute:
        """The state as it is now, without changes that are only proposed."""
        return self._now.state

    @property
    def stand_ins(self) -> dict[int, int]:
        """The unit that has the circuits of each failed unit at present."""
        return {home: unit for unit, home in self._now.record.homes}

    @property
    def refused(self) -> tuple[FailedParts, ...]:
        """The failures on record that nothing has helped so far."""
        return self._now.record.refused

    @property
    def answered(self) -> tuple[FailedParts, ...]:
        """The failures on record that have a proposal, of which none was applied so far."""
        return self._now.record.answered

    @property
    def history(self) -> tuple[Reroute, ...]:
        """The states before the last changes, the oldest first."""
        return tuple(memory.state for memory in self._history)

    def rollback(self) -> Reroute:
        """Return to the state before the last change.

        A rollback is for a false alarm, or changes that were never made: circuits, cells, spares,
        failures and stand-ins are again as they were then.

        Raises
        ------
        InputError
            If nothing was applied, or so many changes were taken back as are remembered.
        """
        with self._tally.call("rollback"), self._lock:
            if not self._history:
                raise InputError("nothing was applied that is remembered")
            record = self._now.record.back_to(self._history[-1])
            now = self._take_over(record, "rollback", FailedParts())
            self._history.pop()
            self._compact()
        self._look_ahead()
        return now.state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that a restart needs: state, stand-ins, refused parts, and the history.

        The file is replaced at once or not at all.
        """
        with self._lock:
            records = [*self._history, self._now.record]
        write_memory(path, records)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        prepare: Ahead = True,
        background: bool = False,
        history: int = 32,
        journal: str | os.PathLike[str] | None = None,
        on_event: Callable[[Call], None] | None = None,
        priorities: Mapping[int, int] | None = None,
    ) -> Self:
        """Load a saved controller; arguments as of the class.

        Raises
        ------
        FormatError
            If the file cannot be read, or is no such file.
        """
        *past, present = read_memory(path).records
        controller = cls.__new__(cls)
        controller._set_up(present, prepare, background, history, journal, on_event, priorities)
        controller._history.extend(past)
        return controller

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        state: Reroute | None = None,
        *,
        durable: Durable = "always",
        compact_lines: int = 1000,
        prepare: Ahead = True,
        background: bool = False,
        history: int = 32,
        on_event: Callable[[Call], None] | None = None,
        priorities: Mapping[int, int] | None = None,
    ) -> Self:
        """Keep a controller in files: after a crash each change is there whose call returned.

        The snapshot is `path`; a journal beside it has the changes since, and refusals.

        Parameters
        ----------
        path
            The snapshot; a file of `save` is taken up as well.
        state
            The state to begin with, where there is no such file yet.
        durable
            Whether each change is on disk before its call returns, or those of the last second
            may be lost if the machine, not the process, crashes.
        compact_lines
            After how many lines a new snapshot takes the place of the journal.

        Raises
        ------
        InputError
            If a process has it open, or there is neither a file nor a state.
        FormatError
            Naming the broken line. A last line that ends early is cut off, with a warning in the
            log.
        """
        store = Journal(path, durable, compact_lines)
        try:
            records = store.read(integer("history", history, at_least=0))
            if not records and state is None:
                raise InputError("is not there: a state to begin with", path=os.fspath(path))
            *past, present = records or [begin(state)]
            controller = cls.__new__(cls)
            controller._set_up(present, prepare, background, history, None, on_event, priorities)
            controller._history.extend(past)
            store.compact([*controller._history, controller._now.record], anyway=not store.started)
        except BaseException:
            store.close()
            raise
        controller._store = store
        return controller

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all is prepared in the background; tell whether it is."""
        return self._behind.wait(timeout_s)

    def figures(self) -> dict[str, Any]:
        """Return how things go, by name; `to_prometheus` makes text of it.

        Returns
        -------
        dict
            ``calls[call, outcome]`` so far, and ``call_s[call]``, how long they took; ``spares``
            that work, by rack; ``parts[kind, state]`` on record, which have failed and are
            ``replaced``, ``answered`` or ``refused``; ``changes_undoable``; of a controller in
            files ``journal_lines`` and ``snapshot_age_s``.
        """
        record, store = self._now.record, self._store
        units, closed = record.state.units, record.closed_to(FailedParts())
        avoid = closed.failed_chips if units.n_chips else closed.failed_ports
        per_rack = units.n_units // units.racks
        left = Counter(u // per_rack for u in record.state.live_spares if u not in avoid)
        parts = Counter[tuple[str, str]]()
        lists = ((parts_in(record.state),), record.answered, record.refused)
        for state, failures in zip(("replaced", "answered", "refused"), lists, strict=True):
            for kind, numbers in zip(KINDS, unite(failures), strict=True):
                parts[kind, state] += len(numbers)
        found = self._tally.figures() | {
            "spares": {rack: left[rack] for rack in range(units.n_units // per_rack)},
            "parts": dict(parts),
            "changes_undoable": len(self._history),
        }
        return found if store is None else found | store.figures()

    def _note(self, what: str, record: Record, own: Set[int] = frozenset()) -> None:
        """Go on to a record of the same state; past ones are told of chips that failed alone."""
        before = self._now.record
        if record is not before:
            if self._store is not None:
                self._store.write(what, before, record)
            self._now = self._now._replace(record=record)
            for k, past in enumerate(list(self._history) if own else ()):
                self._history[k] = past.reported(own)
            self._compact()

    def _change(self, record: Record, what: str, parts: FailedParts) -> Snapshot:
        """Go on to a new state, and remember the last one."""
        before = self._now.record
        now = self._take_over(record, what, parts)
        self._history.append(before.before(record))
        self._compact()
        return now

    def _take_over(self, record: Record, what: str, parts: FailedParts) -> Snapshot:
        """Go on to a state, once that is noted in the journal."""
        now = look(record, self._priorities, self._now)
        if self._journal is not None:
            add_line(self._journal, what, parts, {home: unit for unit, home in record.homes})
        if self._store is not None:
            self._store.write(what, self._now.record, record)
        self._now = now
        return now

    def close(self) -> None:
        """Release the files that `Rerouter.open` has opened."""
        with self._lock:
            if self._store is not None:
                self._store.close()

    def _compact(self) -> None:
        """Begin a new journal where the old one is long; if that fails, the old one goes on."""
        if self._store is not None:
            with suppress(OSError):
                self._store.compact([*self._history, self._now.record])

    def _look_ahead(self) -> None:
        """Prepare answers, or let it be done; outside the lock."""
        now = self._now
        if not self._background:
            prepare(now, self._ahead, limits=_PATIENCE, going_on=lambda: self._now is now)
        elif self._ahead:
            self._behind.put(now)

"""The record of a controller: what has failed, what was done, and how that can be undone."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from optmatch.control.reroutes.answering import Ahead, Proposal, Snapshot, look, prepare
from optmatch.control.reroutes.background import Background
from optmatch.control.reroutes.failed_parts import FailedParts, Record, parts_in
from optmatch.control.reroutes.journal import Journal
from optmatch.control.reroutes.memory import add_line, write_memory
from optmatch.model import InputError, Limits, integer
from optmatch.model.declarations import form_of
from optmatch.model.files import check_target
from optmatch.problems import Reroute

_PATIENCE = Limits(time_s=0.1)
"""The limits of an answer prepared before a change returns; a longer one is left to `fail`."""


class Keeper:
    """Keeps the record of a `Rerouter`: all changes of it go through here, one at a time."""

    def _set_up(
        self, record: Record, ahead: Ahead, background: bool, history: int, journal: Any
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
        self._reported: list[FailedParts] = []
        """What was reported since the last change: older proposals may use it."""
        self._offers: tuple[Record, tuple[Proposal, ...]] | None = None
        self._now = look(record)
        self._look_ahead()

    @property
    def state(self) -> Reroute:
        """The state as it is now, without what is only proposed."""
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
    def history(self) -> tuple[Reroute, ...]:
        """The states before the last changes, the oldest first."""
        return tuple(memory.state for memory in self._history)

    def rollback(self) -> Reroute:
        """Return to the state before the last change.

        That is for a false alarm, or changes that were never made: circuits, cells, spares,
        failures and stand-ins are again as they were then.

        Raises
        ------
        InputError
            If nothing was applied, or so many changes were taken back as are remembered.
        """
        with self._lock:
            if not self._history:
                raise InputError("nothing was applied that is remembered")
            record = self._history[-1]
            for parts in self._now.record.refused:
                record = record.refuse(parts)
            record = record.without(parts_in(record.state))
            now = self._take_over(record, "rollback", FailedParts())
            self._history.pop()
            self._compact()
        self._look_ahead()
        return now.state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that a restart needs: state, stand-ins, what was refused, and the history.

        The file is replaced at once or not at all.
        """
        with self._lock:
            records = [*self._history, self._now.record]
        write_memory(path, records)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all is prepared in the background; tell whether it is."""
        return self._behind.wait(timeout_s)

    def _note(self, record: Record) -> None:
        """Go on to a record of the same state."""
        before = self._now.record
        if record is not before:
            if self._store is not None:
                self._store.write("refuse", before, record)
            self._now = self._now._replace(record=record)
            self._compact()

    def _change(self, record: Record, what: str, parts: FailedParts) -> Snapshot:
        """Go on to a new state, and remember the last one."""
        before = self._now.record
        now = self._take_over(record, what, parts)
        self._history.append(before)
        self._compact()
        return now

    def _take_over(self, record: Record, what: str, parts: FailedParts) -> Snapshot:
        """Go on to a state, once that is noted in the journal."""
        now = look(record, self._now)
        if self._journal is not None:
            add_line(self._journal, what, parts, {home: unit for unit, home in record.homes})
        if self._store is not None:
            self._store.write(what, self._now.record, record)
        self._now, self._reported = now, []
        return now

    def close(self) -> None:
        """Leave the files that `Rerouter.open` has opened to others."""
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

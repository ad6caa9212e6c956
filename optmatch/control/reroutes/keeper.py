"""The record of a controller: failed parts, applied changes, and how to undo them.

A *record* (`Record`) is all that a controller knows: the running state with the failures that were
answered in it, the failures that are still *pending*, and the stand-ins of failed units. A change
makes a new record. The *history* has the records before the last changes, for `rollback`. The
*snapshot* is the present record with what searches derive from it; the snapshot in a file is a
record with its history. The *journal* is a file beside it with a line for each change since.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from optmatch.control.figures import Call, Tally
from optmatch.control.reroutes.answering import (
    Proposal,
    Snapshot,
    take_snapshot,
)
from optmatch.control.reroutes.failed_parts import KINDS, FailedParts, Record, parts_in, unite
from optmatch.control.reroutes.journal import ROLLED_BACK, Durable, Journal
from optmatch.control.reroutes.memory import read_memory, write_memory
from optmatch.model import InputError, integer
from optmatch.model.declarations import form_of
from optmatch.model.files import path_name
from optmatch.problems import Reroute


class Options(NamedTuple):
    """How a controller works; the fields are arguments of `Rerouter`."""

    history: int  # how many changes can be taken back at most
    on_event: Callable[[Call], None] | None  # is told of each call that has ended
    priorities: Mapping[int, int] | None  # by job, >= 0; jobs that are not named have 0


def begin_record(state: Reroute | None) -> Record:
    """Make a record of a state, in which nothing is pending.

    Parameters
    ----------
    state
        The running state; None, which is no state, is refused.

    Returns
    -------
    Record
        The state without stand-ins and pending failures.

    Raises
    ------
    InputError
        If it is no state, or a circuit of it has no light; the message names the first one.
    """
    state = form_of(Reroute).check("state", state)
    if state.hit.any():
        circuit = int(np.flatnonzero(state.hit)[0])
        raise InputError(f"circuit {circuit} has no light in this state", where="state")
    return Record(state)


class Keeper:
    """Keeps the record of a `Rerouter`: all changes of it go through here, one at a time."""

    def _set_up(self, record: Record, options: Options) -> None:
        """Start a controller of running circuits.

        The controller holds one record: the circuits that run, and the failures reported so far.
        Each change replaces the record by a new one. Former records are kept (the history), so
        that changes can be taken back.

        Parameters
        ----------
        record
            The record to begin with.
        options
            How the controller works; each option is checked here:

            - ``history``: how many former records are kept, at least 0;
            - ``on_event``: a function that is called after each call, or None;
            - ``priorities``: the priority of each job, or None.
        """
        # Options are checked before anything is made of them.
        if options.on_event is not None and not callable(options.on_event):
            raise InputError(f"on_event = {options.on_event!r:.60}: a function is expected")

        # Nothing has happened yet: no history, no journal, no failures looked at again.
        self._lock = threading.Lock()
        """Held while the record changes, never while a search runs."""
        self._is_closed = False
        self._history = deque[Record](maxlen=integer("history", options.history, at_least=0))
        self._journal: Journal | None = None
        self._tally = Tally(options.on_event)
        self._offers: tuple[Record, tuple[Proposal, ...]] | None = None
        """The record for which offers were looked for, and those found."""
        self._n_retried = 0
        """How many failures `retry` has looked at so far: it goes on with the next one."""

        self._priorities = _list_priorities(record.state, options.priorities)
        self._now = take_snapshot(record, self._priorities)

    def __repr__(self) -> str:
        record = self._now.record
        return (
            f"<{type(self).__name__} {record.state.fabric.title},"
            f" {len(record.state.circuits)} circuits, {len(record.state.spares)} spares,"
            f" {len(record.waiting)} failures on record, {len(self._history)} changes undoable>"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Rerouter cannot be pickled, since it has a lock and a journal: send its"
            " `state` and make a Rerouter of it, or the file that its `save` writes"
        )

    @property
    def state(self) -> Reroute:
        """The state as it is now, without changes that are only proposed."""
        return self._now.state

    @property
    def path(self) -> Path | None:
        """The snapshot of a controller in files, as `open` was given it; None without files."""
        return None if self._journal is None else self._journal.path

    @property
    def stand_ins(self) -> dict[int, int]:
        """The unit that has the circuits of each failed unit at present."""
        return {home: stand_in for stand_in, home in self._now.record.homes}

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
        return tuple(record.state for record in self._history)

    def rollback(self) -> Reroute:
        """Return to the state before the last change.

        A rollback is for a false alarm, or changes that were never made: circuits, cells, spares,
        failures and stand-ins are again as they were then.

        Returns
        -------
        Reroute
            The state as it was before the change.

        Raises
        ------
        InputError
            If nothing was applied, or so many changes were taken back as are remembered; or the
            controller is closed.
        """
        self._check_open()
        with self._tally.call("rollback"), self._lock:
            if not self._history:
                raise InputError("nothing was applied that is remembered")
            record = self._now.record.back_to(self._history[-1])
            snapshot = self._take_over(record, ROLLED_BACK)
            self._history.pop()
            self._compact()
        return snapshot.state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that a restart needs: state, stand-ins, refused parts, and the history.

        The file is replaced at once or not at all.

        Parameters
        ----------
        path
            The file, for `load`.

        Raises
        ------
        InputError
            If the controller is closed.
        """
        self._check_open()
        with self._lock:
            records = [*self._history, self._now.record]
        write_memory(path, records)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        history: int = 32,
        on_event: Callable[[Call], None] | None = None,
        priorities: Mapping[int, int] | None = None,
    ) -> Self:
        """Load a controller from a file that `save` has written.

        Parameters
        ----------
        path
            The file.
        history
            How many changes can be taken back at most.
        on_event
            Called with a `Call` after each call, in its thread; None for nobody.
        priorities
            The priority of jobs, >= 0, by number; 0 for jobs that are not named.

        Returns
        -------
        Rerouter
            A controller that goes on from the record that was saved.

        Raises
        ------
        FormatError
            If the file cannot be read, or is no such file.
        """
        options = Options(history, on_event, priorities)
        *past, present = read_memory(path).records
        controller = cls.__new__(cls)
        controller._set_up(present, options)
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
        history: int = 32,
        on_event: Callable[[Call], None] | None = None,
        priorities: Mapping[int, int] | None = None,
    ) -> Self:
        """Open a controller that is kept in files, or begin one; it survives a crash.

        Two files hold it. The snapshot, at `path`, has the whole controller at one time. The
        journal, beside it, has a line for each change since. `close` releases the files, as does
        the end of a ``with`` block.

        Parameters
        ----------
        path
            The snapshot; a file of `save` is taken up as well.
        state
            The state to begin with, where there is no such file yet.
        durable
            ``"always"``: each change is on disk before its call returns. ``"interval"``: those of
            the last second may be lost if the machine, not the process, crashes.
        compact_lines
            After how many lines a new snapshot takes the place of the journal.
        history
            How many changes can be taken back at most; older ones are not read from the files.
        on_event
            Is called with a `Call` when a call of the controller has returned or raised, in the
            thread of the call; None for nobody.
        priorities
            The priority of jobs, >= 0, by the numbers in ``state.owners``; 0 for jobs that are not
            named. Circuits of jobs with lower ones make room first. Files do not keep them.

        Returns
        -------
        Rerouter
            The controller as it was after its last change, or one that begins with `state`.

        Raises
        ------
        InputError
            If a process has it open, or there is neither a file nor a state.
        FormatError
            Naming the broken line. A last line that ends early is cut off, with a warning in the
            log.
        """
        options = Options(history, on_event, priorities)
        journal = Journal(path, durable, compact_lines)

        # The files are locked from here on, so that whatever fails has to release them.
        try:
            # The records of the files, the oldest first, the present one last; none in new files.
            records = journal.read(integer("history", history, at_least=0))
            if not records and state is None:
                raise InputError("is not there: a state to begin with", path=path_name(path))
            *past, present = records or [begin_record(state)]
            controller = cls.__new__(cls)
            controller._set_up(present, options)
            controller._history.extend(past)

            # A new controller has its first snapshot on disk before anything can change.
            remembered = [*controller._history, controller._now.record]
            journal.compact(remembered, always=not journal.has_snapshot)
        except BaseException:
            journal.close()
            raise

        # Changes are written from now on; what was read must not be written again.
        controller._journal = journal
        return controller

    def close(self) -> None:
        """Release the files that `Rerouter.open` has opened.

        Every call after this one raises `InputError`, except a second `close`; the properties keep
        what they were.
        """
        with self._lock:
            self._is_closed = True
            if self._journal is not None:
                self._journal.close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def figures(self) -> dict[str, Any]:
        """Return how things go, by name.

        Returns
        -------
        dict
            ``calls[call, outcome]`` so far, and ``call_s[call]``, how long they took; ``spares``
            that work, by rack; ``parts[kind, state]`` on record, which have failed and are
            ``replaced``, ``answered`` or ``refused``; ``changes_undoable``; of a controller in
            files ``journal_lines`` and ``snapshot_age_s``.
        """
        self._check_open()
        record = self._now.record
        figures = self._tally.figures() | {
            "spares": _count_spares(record),
            "parts": _count_parts(record),
            "changes_undoable": len(self._history),
        }
        if self._journal is not None:
            figures |= self._journal.figures()
        return figures

    def _check_open(self) -> None:
        """Refuse a call of a controller that is closed, by an `InputError`."""
        if self._is_closed:
            raise InputError("the controller is closed: open it again")

    def _note(self, event: str, record: Record, reported: Set[int] = frozenset()) -> None:
        """Take over a record that differs only in failures on record, not in circuits or cells.

        That is a report of a failure, with an answer that is not applied yet, or without any. As
        the running state is the same, there is nothing to undo: the history gets no record. The
        journal gets a line. The caller holds the lock.

        Parameters
        ----------
        event
            The name of the event in the journal: `REFUSED` or `ANSWERED`.
        record
            The new record, with the same state as the present one. Nothing is done if it is the
            present one.
        reported
            Numbers of chips that have failed by themselves, and not only lost the fibres of their
            server. The records of the history learn of them, so that a rollback does not forget
            the report.

        Raises
        ------
        InputError
            If the controller is closed.
        OSError
            If the journal cannot be written; then nothing has changed.
        """
        self._check_open()
        before = self._now.record
        if record is before:
            return
        if self._journal is not None:
            self._journal.write(event, before, record)
        self._now = self._now._replace(record=record)
        if reported:
            for k, past in enumerate(list(self._history)):
                self._history[k] = past.with_reported_chips(reported)
        self._compact()

    def _change(self, record: Record, event: str) -> Snapshot:
        """Go on to a new state, and remember the last one; the caller holds the lock.

        A record is the running state of circuits with the failures on record; the history has the
        records before the last changes, for `rollback`.

        Parameters
        ----------
        record
            The record with the new state.
        event
            The name of the change in the journal, such as ``"fail"``.

        Returns
        -------
        Snapshot
            The present record from now on.
        """
        before = self._now.record
        snapshot = self._take_over(record, event)
        self._history.append(before.with_answered_of(record))
        self._compact()
        return snapshot

    def _take_over(self, record: Record, event: str) -> Snapshot:
        """Go on to a state, once that is written to disk; the caller holds the lock.

        A record is the running state of circuits with the failures on record; its snapshot is the
        record with what answers to the next failures need. The journal, if there is one, gets a
        line before anything changes.

        Parameters
        ----------
        record
            The record with the new state.
        event
            The name of the change in the journal.

        Returns
        -------
        Snapshot
            The present record from now on.

        Raises
        ------
        InputError
            If the controller is closed.
        OSError
            If a file cannot be written; then the present record is still the former one.
        """
        self._check_open()
        snapshot = take_snapshot(record, self._priorities, self._now)
        if self._journal is not None:
            self._journal.write(event, self._now.record, record)
        self._now = snapshot
        return snapshot

    def _compact(self) -> None:
        """Begin a new journal where the old one is long; if that fails, the old one goes on.

        The journal has a line for each change since a snapshot in a file.
        """
        if self._journal is not None:
            with suppress(OSError):
                self._journal.compact([*self._history, self._now.record])


def _list_priorities(state: Reroute, priorities: Mapping[int, int] | None) -> NDArray[np.int64]:
    """List the priorities of circuits, which are those of the jobs that own them.

    Parameters
    ----------
    state
        The running state, with the owner of each circuit.
    priorities
        A whole number >= 0 by job; jobs that are not named have 0. None for no job.

    Returns
    -------
    ndarray, shape (circuits,)
        ``priorities[circuit]``.

    Raises
    ------
    InputError
        If it is no mapping, or a priority is negative, no whole number or beyond 64 bits.
    """
    if priorities is None:
        priorities = {}
    if not isinstance(priorities, Mapping):
        message = f"priorities = {priorities!r:.60}: a mapping of jobs is expected"
        raise InputError(message, where="priorities")
    priority_of_job = {
        job: integer(f"priorities[{job!r:.60}]", priority, at_least=0)
        for job, priority in priorities.items()
    }
    owners = state.owners.tolist()
    of_circuit = [priority_of_job.get(job, 0) for job in owners]
    try:
        return np.array(of_circuit, dtype=np.int64)
    except OverflowError:
        raise InputError("priorities: at most 64 bits", where="priorities") from None


def _count_spares(record: Record) -> dict[int, int]:
    """Count the spares of each rack that work and are not pending.

    Parameters
    ----------
    record
        The state with its spares, and the failures that are pending.

    Returns
    -------
    dict
        The number of spares by rack, 0 for a rack without any.
    """
    units = record.state.units
    pending = record.waiting_parts
    pending_units = pending.failed_chips if units.n_chips else pending.failed_ports
    units_per_rack = units.n_units // units.racks
    live = (unit for unit in record.state.live_spares if unit not in pending_units)
    count = Counter(unit // units_per_rack for unit in live)
    return {rack: count[rack] for rack in range(units.n_units // units_per_rack)}


def _count_parts(record: Record) -> dict[tuple[str, str], int]:
    """Count the failed parts by kind and by what was done about them.

    A pending failure is one that was reported and whose answer was not applied yet.

    Parameters
    ----------
    record
        The state with the failures in it, and those that are pending.

    Returns
    -------
    dict
        Numbers of parts by (kind, state): kinds are chip, port, fibre and cell, states are
        ``"replaced"`` (in the running state), ``"answered"`` and ``"refused"`` (pending, with and
        without a proposal).
    """
    count = Counter[tuple[str, str]]()
    failures_by_state = {
        "replaced": (parts_in(record.state),),
        "answered": record.answered,
        "refused": record.refused,
    }
    for state, failures in failures_by_state.items():
        for kind, numbers in zip(KINDS, unite(failures), strict=True):
            count[kind, state] += len(numbers)
    return dict(count)

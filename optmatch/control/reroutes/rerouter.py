"""A controller: it holds a running state, answers failures at once, and keeps a record of both.

A *record* (`Record`) is all that a controller knows: the running state with the failures that were
answered in it, the failures that are still *pending*, and the stand-ins of failed units. A change
makes a new record. The *history* has the records before the last changes, for `rollback`. The
*snapshot* is the present record with what searches derive from it. A controller in a file has its
present record and its history there (`RecordFile`); each change is a transaction.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from optmatch.control.figures import Call, Tally
from optmatch.control.reroutes.answering import (
    Proposal,
    explain_stale,
    find_answer,
    start_clock,
    take_snapshot,
)
from optmatch.control.reroutes.records import (
    Durable,
    Parts,
    Record,
    RecordFile,
    Stuck,
    check_failure,
    check_faults_are_latest,
    drop_former_faults,
    list_failure,
    list_unanswered,
    subtract,
    take_out,
    unite,
)
from optmatch.model import FormatError, InputError, frozen, integer
from optmatch.model.declarations import form_of
from optmatch.model.files import file_path, path_name
from optmatch.problems import Reroute
from optmatch.problems.reroutes.running import KIND_OF_FIELD, FailedParts, group_size


class Rerouter:
    """Holds a running state; proposes how to get over failures, and follows applied changes.

    `fail` returns a proposal and changes nothing; `apply` takes over the one that it is given;
    `rollback` takes back what was applied last. A failure stays on record until its answer is
    applied or its parts are repaired: they take over nothing, and `offers` tries it again after
    each change. Reading `state` never waits.

    Parameters
    ----------
    state
        A `Reroute` whose circuits all have light; earlier failures may be in it.
    history
        How many changes can be taken back at most.
    on_event
        Is told of each call when it has returned or raised, in its thread.
    priorities
        Of jobs, 0 unless told: where circuits of others must make room, those of jobs with lower
        ones do so before any of a higher one are tried. Files do not keep them.

    Raises
    ------
    InputError
        If a circuit of the state is hit by a failure in it.

    See Also
    --------
    Reroute : The state that it holds, and the problem of one failure.
    Transition : What it proposes.

    Examples
    --------
    >>> from optmatch import RackFabric, Reroute, Rerouter
    >>> state = Reroute(RackFabric(), [[0, 6], [6, 0]], routes=[[], []], spares=[2, 63])
    >>> controller = Rerouter(state)
    >>> proposal = controller.fail(chip=0)
    >>> proposal.transition.moves.tolist(), proposal.transition.describe()[0]
    ([[0, 2]], 'set up circuit 0: port 12 to port 6')
    >>> controller.apply(proposal).spares
    (63,)
    """

    def __init__(
        self,
        state: Reroute,
        *,
        history: int = 32,
        on_event: Callable[[Call], None] | None = None,
        priorities: Mapping[int, int] | None = None,
    ) -> None:
        """Take a running state into control; the parameters are those of the class."""
        state = form_of(Reroute).check("state", state)
        if state.hit.any():
            circuit = int(np.flatnonzero(state.hit)[0])
            raise InputError(
                f"circuit {circuit} has no light in this state: a controller begins with the state"
                " before a failure, or with that after its answer, which `generate reroute --state"
                " ANSWER` and `Reroute.after` make",
                where="state",
            )
        self._begin([Record(state)], history, on_event, priorities)

    def _begin(
        self,
        records: list[Record],
        history: int,
        on_event: Callable[[Call], None] | None,
        priorities: Mapping[int, int] | None,
    ) -> None:
        """Begin with the records of a controller, the present one last; check the options.

        `history` is how many records before the present one are kept for rollbacks, and
        ``priorities[job]`` says whose circuits give way last.
        """
        form_of(Callable | None).check("on_event", on_event)
        *past, present = records
        self._lock = threading.Lock()
        """Held while the record changes, never while a search runs."""
        self._is_closed = False
        self._history = deque(past, maxlen=integer("history", history, at_least=0))
        self._file: RecordFile | None = None
        self._tally = Tally(on_event)
        self._offers: tuple[Record, tuple[Proposal, ...]] | None = None
        """The record for which offers were looked for, and those found."""
        self._n_retried = 0
        """How many failures `retry` has looked at so far: it goes on with the next one."""
        self._priorities = _list_priorities(present.state, priorities)
        self._now = take_snapshot(present, self._priorities)
        """The present snapshot. It is replaced as a whole, hence readers need no lock."""

    @property
    def offers(self) -> tuple[Proposal, ...]:
        """Ways over failures that wait on record, as of now; looked for when first asked."""
        return self.retry()

    def retry(self, *, deadline_s: float | None = None) -> tuple[Proposal, ...]:
        """Search again for answers to all failures that have none yet.

        A failure is pending from its report until its answer is applied or its parts are repaired.
        Repairs, and answers to other failures, may have made an answer possible that was not
        before. If the time is not enough for all, the next call begins with the next failure.

        Parameters
        ----------
        deadline_s
            Seconds after which the search ends; None for as long as it takes.

        Returns
        -------
        tuple of Proposal
            The changes for each failure for which some were found, for `apply`. A complete result
            is kept, and returned again, until anything changes.
        """
        self._check_open()
        clock = start_clock(deadline_s)
        snapshot = self._now
        if self._offers is not None and self._offers[0] is snapshot.record:
            return self._offers[1]

        # Failures take turns, so that a short deadline does not always end at the same ones.
        pending = deque(snapshot.record.waiting)
        pending.rotate(-self._n_retried)
        proposals = list[Proposal]()
        with self._tally.call("retry"):
            while pending and clock.remaining_s > 0:
                self._n_retried += 1
                answer = find_answer(snapshot, pending.popleft(), clock)
                if isinstance(answer, Proposal):
                    proposals.append(answer)

        # Offers are complete, and kept, only if all failures were reached.
        offers = tuple(proposals)
        if clock.remaining_s > 0:
            self._offers = snapshot.record, offers
        return offers

    @staticmethod
    def warm_up() -> None:
        """Compile all kernels that controllers call, before there is one.

        A controller of a rack and one of a mesh answer a failure each, and take the answer.
        """
        from optmatch.fabrics import HexMesh, RackFabric
        from optmatch.solvers.reroutes.states import fill_rack, hold_matching

        rack = Rerouter(fill_rack(RackFabric()))
        rack.apply(rack.fail(chip=21))
        switch_state = hold_matching(HexMesh(5, 5, ports=12), [1, 0, 3, 2, *[-1] * 8], seed=0)
        lit_cells = np.flatnonzero(np.asarray(switch_state.cell_states) >= 0)
        switch = Rerouter(switch_state)
        switch.apply(switch.fail(cell=int(lit_cells[0])))
        switch.apply(switch.fail(port=0))

    def fail(
        self,
        *,
        chip: Parts = None,
        port: Parts = None,
        fibre: Parts = None,
        cell: Parts = None,
        stuck: Stuck = None,
        deadline_s: float | None = None,
    ) -> Proposal:
        """Propose how to get over the failure of one part, or of several at once.

        Parameters
        ----------
        chip, port, fibre, cell
            The failed parts: a number, or several. Ports and cells may be called by their names.
        stuck
            The state in which the cells (2 x 2 switches) stay, ``"bar"`` or ``"cross"``; None if
            they carry no light.
        deadline_s
            How long the search may take, after which it ends with the best way so far; None for as
            long as it takes.

        Returns
        -------
        Proposal
            The changes of circuits and cells (its `transition`), for `apply`, and their times in
            seconds (its `timeline`).

        Raises
        ------
        InputError
            If no part is named, or one does not exist, is named twice, or has failed before. Yet a
            cell may fail once more in another way: a stuck one that dies is dead from then on. A
            chip that is only cut off may be reported: it stays failed when its server works again.
        InfeasibleError
            If it is proved that nothing helps: too few spares, or an end that is cut off.
        LimitReached
            If no way was found; method ``ilp`` may find one, or prove that there is none. `offers`
            looks for one again, without a deadline.
        """
        failure = list_failure(
            self.state.fabric, chip=chip, port=port, fibre=fibre, cell=cell, stuck=stuck
        )
        return self._ask("fail", failure, deadline_s, report=True)

    def what_if(
        self,
        *,
        chip: Parts = None,
        port: Parts = None,
        fibre: Parts = None,
        cell: Parts = None,
        stuck: Stuck = None,
        deadline_s: float | None = None,
    ) -> Proposal:
        """Propose how to get over a failure that has not happened; nothing goes on record.

        It is what `fail` would propose for the same failure, and can be applied like that.

        Parameters
        ----------
        chip, port, fibre, cell
            Parts that would fail, as of `fail`.
        stuck
            The state in which the cells (2 x 2 switches) would stay, ``"bar"`` or ``"cross"``;
            None if they would carry no light.
        deadline_s
            How long the search may take, after which it ends with the best way so far; None for as
            long as it takes.

        Returns
        -------
        Proposal
            The changes (`transition`) and their times (`timeline`).

        Raises
        ------
        InputError
            If no part is named, or one does not exist, is named twice, or has failed already.
        InfeasibleError
            If it is proved that nothing would help.
        LimitReached
            If no way was found, and none is refuted.
        """
        failure = list_failure(
            self.state.fabric, chip=chip, port=port, fibre=fibre, cell=cell, stuck=stuck
        )
        return self._ask("what_if", failure, deadline_s, report=False)

    def drain(
        self,
        *,
        chip: Parts = None,
        port: Parts = None,
        fibre: Parts = None,
        cell: Parts = None,
        by_s: float | None = None,
    ) -> Proposal:
        """Propose how working parts can leave: once that is applied, no light uses them.

        `restore` brings back what has left. Without `by_s` nothing goes on record, and where there
        is no way the parts stay in use.

        Parameters
        ----------
        chip, port, fibre, cell
            The leaving parts, as of `fail`; None for none.
        by_s
            Seconds from now until the parts leave in any case. The search may take as long; from
            now on the parts are on record as failed, and no other proposal uses them. None for a
            question alone, which may take as long as it needs.

        Returns
        -------
        Proposal
            The changes (`transition`), for `apply`, and their times (`timeline`).

        Raises
        ------
        InputError
            If no part is named, or one does not exist, is named twice, or has failed already.
        InfeasibleError
            If it is proved that the parts cannot leave.
        LimitReached
            If no way was found.
        """
        self._check_open()
        failure = list_failure(self.state.fabric, chip=chip, port=port, fibre=fibre, cell=cell)

        # Only working cells can be drained: neither stuck nor dead, in the state or pending.
        record = self._now.record
        broken = {*record.state.failed.broken_cells, *record.waiting_parts.broken_cells}
        for number in failure.dead_cells:
            if number in broken:
                raise InputError(
                    f"cell {number} has failed: only working cells leave", where="cell"
                )
        return self._ask("drain", failure, by_s, report=by_s is not None)

    def _ask(
        self, call: str, failure: FailedParts, deadline_s: float | None, *, report: bool
    ) -> Proposal:
        """Search an answer to a failure, and with `report` put the failure on record.

        `call` is the name of the public method, for the figures. Raises the refusal if there is no
        repair. The search sees a snapshot of the record. Its answer is stale if the state has
        changed meanwhile, or if a part that it uses has failed: then the search begins anew. After
        `deadline_s` seconds it does not: even a stale answer counts.
        """
        self._check_open()
        clock = start_clock(deadline_s)
        with self._tally.call(call, failure):
            if report:
                failure = self._report_cut_off_chips(failure)
            while True:
                snapshot = self._now
                answer = find_answer(snapshot, failure, clock)
                is_late = clock.remaining_s <= 0.0
                with self._lock:
                    record = self._now.record
                    is_stale = snapshot.state is not record.state
                    if isinstance(answer, Proposal):
                        is_stale = explain_stale(answer, record) is not None
                    if is_stale and not is_late:
                        continue

                    # The answer, a proposal or a refusal, counts. Parts that a change has answered
                    # meanwhile are not pending.
                    pending = list_unanswered(failure, record.state) if is_stale else failure
                    if report:
                        # Whoever gets a proposal decides later, hence only a failure without any
                        # is urgent to record.
                        has_proposal = isinstance(answer, Proposal)
                        reported = record.report(pending, has_proposal=has_proposal)
                        self._go_to(reported, self._history, is_urgent=not has_proposal)
                if isinstance(answer, Proposal):
                    return answer
                raise answer

    def _report_cut_off_chips(self, failure: FailedParts) -> FailedParts:
        """Note that chips which are cut off have failed themselves; return the other parts.

        A chip that is cut off counts as failed, but would work again with the fibres of its
        server. After this report it would not. If another part does not exist or has failed,
        nothing is noted.
        """
        with self._lock:
            record = self._now.record
            reported = set(failure.failed_chips).intersection(record.cut_off)
            other_parts = subtract(failure, FailedParts(tuple(reported)))
            if reported:
                # They have failed in the past, too.
                check_failure(record.state, other_parts)
                past = [former.with_reported_chips(reported) for former in self._history]
                self._go_to(record.with_reported_chips(reported), past)
        return other_parts

    def apply(self, proposal: Proposal) -> Reroute:
        """Record that proposed changes of circuits are made, and return the state after them.

        A proposal lists the changes of circuits and cells (2 x 2 switches) that answer a failure.
        The caller makes them in the hardware; this makes them in what the controller knows.

        Parameters
        ----------
        proposal
            A proposal from `fail`, `what_if`, `drain`, `give_back` or `offers`.

        Returns
        -------
        Reroute
            The state after the changes, with the failed parts in it.

        Raises
        ------
        InputError
            If the proposal is outdated: the state has changed since it was made, or a part that
            it uses has failed (the `where` of the error is ``"proposal"``); or the controller is
            closed.
        """
        self._check_open()
        form_of(Proposal).check("proposal", proposal)
        failure = proposal.failure
        with self._tally.call("apply", failure), self._lock:
            record = self._now.record
            reason = explain_stale(proposal, record)
            if reason is not None:
                raise InputError(
                    f"the proposal is outdated: {reason} since it was made; take one of `offers`,"
                    " or ask for it again, as by `fail`",
                    where="proposal",
                )
            check_faults_are_latest(record, failure)
            return self._go_to(_record_after(record, proposal), [*self._history, record])

    def repair(
        self,
        *,
        chip: Parts = None,
        port: Parts = None,
        fibre: Parts = None,
        cell: Parts = None,
    ) -> Reroute:
        """Take failed parts that were repaired into use again.

        Units are the chips of a rack or the ports of a switch. After a failure, circuits of a unit
        may have moved to a spare, which then stands in for it. They stay there when the unit is
        repaired, and the repaired unit becomes a spare itself; `give_back` proposes how it gets
        its circuits back. Chips that were cut off with their server work again with its fibres.

        Parameters
        ----------
        chip, port, fibre, cell
            The repaired parts of each kind: a number, several, or None for none. Cells are named
            alike whether they were dead or stuck.

        Returns
        -------
        Reroute
            The new state, in which the parts work. No circuit of it has changed.

        Raises
        ------
        InputError
            If no part is named, one has not failed, or the controller is closed.
        """
        self._check_open()
        repaired = list_failure(self.state.fabric, chip=chip, port=port, fibre=fibre, cell=cell)
        with self._tally.call("repair", repaired), self._lock:
            record = self._now.record
            return self._go_to(take_out(record, repaired), [*self._history, record])

    restore = repair
    """The same for parts that were drained."""

    def give_back(self, unit: int, *, deadline_s: float | None = None) -> Proposal:
        """Propose the changes by which a repaired unit gets its circuits back.

        When the unit failed, a spare took over its circuits: its stand-in. That one becomes a
        spare again once the proposal is applied.

        Parameters
        ----------
        unit
            The number of the repaired unit: a chip of a rack, or a port of a switch.
        deadline_s
            Seconds that the search may take; None for as long as it takes.

        Returns
        -------
        Proposal
            The changes, for `apply`; its `restored` are the unit and its stand-in.

        Raises
        ------
        InputError
            If no spare stands in for the unit, or it has not been repaired.
        InfeasibleError
            If it is proved that the circuits cannot go back.
        LimitReached
            If no way was found in time.
        """
        self._check_open()
        clock = start_clock(deadline_s)
        unit = integer("unit", unit, at_least=0)
        snapshot = self._now

        # The search treats the stand-in as failed.
        state = snapshot.state
        stand_in = self.stand_ins.get(unit, -1)
        kind = state.units.unit_name
        leaving = FailedParts(**{f"failed_{kind}s": (stand_in,)})
        is_pending = (kind, unit) in snapshot.record.closed_to(leaving).faults
        if stand_in < 0 or unit not in state.spares or is_pending:
            raise InputError(f"unit {unit} has no stand-in, or is not repaired", where="unit")

        # No spare is left to it but `unit`, with its rack where whole racks replace each other.
        size = group_size(state.units)
        own_spares = tuple(spare for spare in state.spares if spare // size == unit // size)
        own_record = snapshot.record._replace(state=replace(state, spares=own_spares))

        with self._tally.call("give_back", leaving):
            answer = find_answer(snapshot._replace(record=own_record), leaving, clock)
            if not isinstance(answer, Proposal):
                raise answer
            return replace(answer, state=state, restored=(unit, stand_in))

    def __repr__(self) -> str:
        record = self._now.record
        return (
            f"<{type(self).__name__} {record.state.fabric.title},"
            f" {len(record.state.circuits)} circuits, {len(record.state.spares)} spares,"
            f" {len(record.waiting)} failures on record, {len(self._history)} changes undoable>"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Rerouter cannot be pickled, since it has a lock and a file: send its"
            " `state` and make a Rerouter of it, or the file that its `save` writes"
        )

    @property
    def state(self) -> Reroute:
        """The state as it is now, without changes that are only proposed."""
        return self._now.state

    @property
    def path(self) -> Path | None:
        """The file of a controller that `open` has opened, behind all links; None without one."""
        return None if self._file is None else Path(self._file.path)

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
            *earlier, past = self._history
            return self._go_to(self._now.record.back_to(past), earlier)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that a restart needs: state, stand-ins, refused parts, and the history.

        A former controller in the file is replaced as a whole or not at all.

        Parameters
        ----------
        path
            The file, for `load` or `open`.

        Raises
        ------
        InputError
            If the controller is closed, or one has the file open.
        StoreError
            If the file is of another kind, or cannot be written.
        """
        self._check_open()
        with self._lock:
            records = [*self._history, self._now.record]
        with closing(RecordFile(path)) as file:
            file.write(records)

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
        StoreError
            If the file cannot be read, or is no such file.
        FormatError
            If something in it is not what was written.
        """
        with closing(RecordFile(path, read_only=True)) as file:
            records = file.read()
        if not records:
            raise FormatError("has no record", path=file.path)
        controller = cls.__new__(cls)
        controller._begin(records, history, on_event, priorities)
        return controller

    @staticmethod
    def is_begun(path: str | os.PathLike[str]) -> bool:
        """Tell whether a file holds a controller: it is there, and not empty.

        Parameters
        ----------
        path
            A file that `open` is to open, which begins with a state unless this is true.

        Returns
        -------
        bool
            Whether there is a record in it.

        Raises
        ------
        StoreError
            If the file is open elsewhere, is no controller, or is damaged.
        FormatError
            If a record in it was changed by somebody else.

        Examples
        --------
        >>> import optmatch as om
        >>> om.Rerouter.is_begun("not-there")
        False
        """
        if not file_path(path).exists():
            return False
        with closing(RecordFile(path)) as file:
            return bool(file.read())

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        state: Reroute | None = None,
        *,
        durable: Durable = "always",
        history: int = 32,
        on_event: Callable[[Call], None] | None = None,
        priorities: Mapping[int, int] | None = None,
    ) -> Self:
        """Open a controller that is kept in a file, or begin one; it survives a crash.

        The file is a database of SQLite with the present record and the history; the write-ahead
        log beside it has the last changes. `close` releases it, as does the end of a ``with``
        block.

        Parameters
        ----------
        path
            The file; one of `save` is taken up as well.
        state
            The state to begin with, where there is no such file yet.
        durable
            ``"always"``: each change is on disk before its call returns. ``"interval"``: those of
            the last second may be lost if the machine, not the process, crashes.
        history
            How many changes can be taken back at most; older ones are not read from the file.
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
            If it is open already, here or in another process, or there is neither a file nor a
            state.
        StoreError
            If the file is no controller, or is damaged.
        FormatError
            Naming the record that is not what was written.
        """
        if state is None and not file_path(path).exists():
            raise InputError("is not there: no state to begin with", path=path_name(path))

        # The file is locked from here on, so that whatever fails has to release it.
        file = RecordFile(path, durable=durable)
        try:
            records = file.read()
            if records:
                controller = cls.__new__(cls)
                controller._begin(records, history, on_event, priorities)
            elif state is None:
                raise InputError("is empty: no state to begin with", path=path_name(path))
            else:
                controller = cls(state, history=history, on_event=on_event, priorities=priorities)
                file.write([controller._now.record])
        except BaseException:
            file.close()
            raise

        # Changes are written from now on.
        controller._file = file
        return controller

    def close(self) -> None:
        """Release the file that `Rerouter.open` has opened.

        Every call after this one raises `InputError`, except a second `close`; the properties keep
        what they were.
        """
        with self._lock:
            self._is_closed = True
            if self._file is not None:
                self._file.close()

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
            ``replaced``, ``answered`` or ``refused``; ``changes_undoable``.
        """
        self._check_open()
        record = self._now.record
        units = record.state.units

        # The spares of each rack that work and are not pending.
        pending = record.waiting_parts.faults
        units_per_rack = units.n_units // units.racks
        spares = dict.fromkeys(range(units.n_units // units_per_rack), 0)
        for unit in record.state.live_spares:
            if (units.unit_name, unit) not in pending:
                spares[unit // units_per_rack] += 1

        # Failed parts by kind: in the running state, or pending with and without a proposal.
        failures_by_state = {
            "replaced": (record.state.failed,),
            "answered": record.answered,
            "refused": record.refused,
        }
        parts = Counter[tuple[str, str]]()
        for name, failures in failures_by_state.items():
            for field, numbers in unite(failures)._asdict().items():
                parts[KIND_OF_FIELD[field], name] += len(numbers)
        return self._tally.figures() | {
            "spares": spares,
            "parts": dict(parts),
            "changes_undoable": len(self._history),
        }

    def _check_open(self) -> None:
        """Refuse a call of a controller that is closed, by an `InputError`."""
        if self._is_closed:
            raise InputError("the controller is closed: open it again")

    def _go_to(
        self, record: Record, history: Iterable[Record], *, is_urgent: bool = True
    ) -> Reroute:
        """Take over a record, once it is in the file, and return its state; the lock is held.

        `history` has the records before it from now on. If the file cannot be written, the present
        record is still the former one. A change that is not urgent may reach the disk a second
        later.
        """
        self._check_open()
        before = self._now
        if record is before.record:
            return record.state

        # All values that searches derive from a state hold as long as the state is the same.
        snapshot = before._replace(record=record)
        if record.state is not before.state:
            snapshot = take_snapshot(record, self._priorities, before)
        past = deque(history, self._history.maxlen)
        if self._file is not None:
            self._file.write([*past, record], is_urgent=is_urgent)
        self._now = snapshot
        self._history = past
        return record.state


def _record_after(record: Record, proposal: Proposal) -> Record:
    """Return the record once a proposal is applied.

    After a failure spares become stand-ins, and the failed parts those of the state. Once a unit
    has its circuits back, its stand-in is a spare again, unless it is pending: then it has failed.
    Chips that were cut off with their server are noted, unless they have been reported by
    themselves.
    """
    # ``homes[stand_in]``: the unit whose circuits it has. A stand-in may be lost in turn: then the
    # new one stands in for the same unit.
    homes = dict(record.homes)
    changes = proposal.failure._asdict()
    moves = proposal.transition.moves.tolist()
    if proposal.restored is None:
        for lost, spare in moves:
            homes[spare] = homes.pop(lost, lost)
    else:
        stand_ins = tuple(stand_in for stand_in, _ in moves)
        for stand_in in stand_ins:
            del homes[stand_in]

        # A stand-in that is not pending works, and is a spare again.
        if subtract(proposal.failure, record.waiting_parts) == proposal.failure:
            changes = {"spares": stand_ins}

    # Chips that are pending by themselves do not work again with the fibres of their server.
    reported = record.waiting_parts.failed_chips
    cut_off = [unit for unit in proposal.cut_off if unit not in reported]
    state = drop_former_faults(record.state, proposal.failure)
    return record.without(proposal.failure)._replace(
        state=state.after(proposal.transition, changes),
        homes=tuple(homes.items()),
        cut_off=(*record.cut_off, *cut_off),
    )


def _list_priorities(state: Reroute, priorities: Mapping[int, int] | None) -> NDArray[np.int64]:
    """List the priorities of circuits, which are those of the jobs that own them, else 0."""
    if priorities is None:
        priorities = {}
    if not isinstance(priorities, Mapping):
        message = f"priorities = {priorities!r:.60}: a mapping of jobs is expected"
        raise InputError(message, where="priorities")
    priority_of_job = {
        job: integer(f"priorities[{job!r:.60}]", priority, at_least=0)
        for job, priority in priorities.items()
    }
    of_circuit = [priority_of_job.get(job, 0) for job in state.owners.tolist()]
    return frozen("priorities", of_circuit, 1, np.int64)

"""The view of a controller: it holds a running state and answers failures at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from optmatch.control.figures import Call
from optmatch.control.reroutes.answering import (
    Answer,
    Proposal,
    Snapshot,
    failure_of_unit,
    find_answer,
    find_closed_part,
    start_clock,
)
from optmatch.control.reroutes.failed_parts import (
    FailedParts,
    Parts,
    Record,
    Stuck,
    check_cells_work,
    check_failure,
    check_faults_are_latest,
    drop_former_faults,
    list_failure,
    list_unanswered,
    subtract,
    take_out,
)
from optmatch.control.reroutes.journal import ANSWERED, REFUSED
from optmatch.control.reroutes.keeper import Keeper, Options, begin_record
from optmatch.model import InputError, OptMatchError, integer
from optmatch.problems import Reroute


class Rerouter(Keeper):
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
        """Take a running state into control.

        Parameters
        ----------
        state
            The circuits with their routes, cells and spares, without any circuit in the dark.
        history
            How many changes can be taken back at most.
        on_event
            Called with a `Call` when a call has returned or raised, in its thread; None for
            nobody.
        priorities
            The priority of jobs, >= 0, by number; 0 for jobs that are not named.
        """
        options = Options(history, on_event, priorities)
        self._set_up(begin_record(state), options)

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
        pending = snapshot.record.waiting
        first = self._n_retried % max(1, len(pending))
        proposals = list[Proposal]()
        with self._tally.call("retry"):
            for failure in (*pending[first:], *pending[:first]):
                if clock.remaining_s <= 0:
                    break
                self._n_retried += 1
                answer = find_answer(snapshot, failure, clock)
                if isinstance(answer, Answer):
                    proposals.append(_make_proposal(snapshot, failure, answer, 0.0))

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
            The failed parts: a number, or several.
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
        failure = list_failure(chip=chip, port=port, fibre=fibre, cell=cell, stuck=stuck)
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
            Parts that would fail: a number, or several.
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
        failure = list_failure(chip=chip, port=port, fibre=fibre, cell=cell, stuck=stuck)
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
            The leaving parts: a number, or several; None for none.
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
        failure = list_failure(chip=chip, port=port, fibre=fibre, cell=cell)
        check_cells_work(self._now.record, failure.dead_cells)
        return self._ask("drain", failure, by_s, report=by_s is not None)

    def _ask(
        self, call: str, failure: FailedParts, deadline_s: float | None, *, report: bool
    ) -> Proposal:
        """Search an answer to a failure, and put the failure on record if that is wanted.

        A failure that is on record is pending until its answer is applied or its parts are
        repaired: no other answer uses these parts.

        Parameters
        ----------
        call
            The name of the method that asks, for the count of calls.
        failure
            The parts that have failed, or are to leave.
        deadline_s
            Seconds that the search may take; None for as long as it takes.
        report
            Whether the failure is put on record, with an answer or without one.

        Returns
        -------
        Proposal
            The changes, which the caller may `apply`.

        Raises
        ------
        InputError
            If a part does not exist or has failed, or the controller is closed.
        InfeasibleError, LimitReached
            If it is proved that nothing helps, or no way was found in time.
        """
        self._check_open()
        clock = start_clock(deadline_s)
        with self._tally.call(call, failure):
            if report:
                failure = self._report_cut_off_chips(failure)

            # The record may change while the search runs: then the search begins anew, until the
            # time is up.
            while True:
                snapshot = self._now
                answer = find_answer(snapshot, failure, clock)
                is_late = clock.remaining_s <= 0.0
                if self._put_on_record(
                    snapshot, failure, answer, report=report, even_if_stale=is_late
                ):
                    break
            if isinstance(answer, Answer):
                return _make_proposal(snapshot, failure, answer, clock.elapsed_s)
            raise answer

    def _report_cut_off_chips(self, failure: FailedParts) -> FailedParts:
        """Note that chips which are cut off have failed themselves.

        A chip is cut off if its server has lost its fibres; it counts as failed, but would work
        again with them. After this report it would not.

        Parameters
        ----------
        failure
            The reported parts.

        Returns
        -------
        FailedParts
            All other parts of the failure.

        Raises
        ------
        InputError
            If one of these does not exist or has failed already; then nothing is noted.
        """
        with self._lock:
            record = self._now.record
            reported = set(failure.failed_chips).intersection(record.cut_off)
            other_parts = subtract(failure, FailedParts(tuple(reported)))
            if reported:
                check_failure(record.state, other_parts)
                self._note(REFUSED, record.with_reported_chips(reported), reported)
        return other_parts

    def _put_on_record(
        self,
        basis: Snapshot,
        failure: FailedParts,
        answer: Answer | OptMatchError,
        *,
        report: bool,
        even_if_stale: bool,
    ) -> bool:
        """Put a failure on record if `report` says so; return False if its answer is stale.

        An answer is stale if the state has changed since its search began, or if a part that it
        uses has failed.

        Parameters
        ----------
        basis
            The snapshot in which the answer was searched.
        failure
            The parts that have failed.
        answer
            The answer, or the error that says that nothing helps or was found.
        report
            Whether the failure is put on record.
        even_if_stale
            Whether a stale answer counts too, because there is no time for another search.

        Returns
        -------
        bool
            False if the answer is stale, and another one has to be searched: nothing was recorded.
        """
        with self._lock:
            record = self._now.record
            is_stale = basis.state is not record.state
            if isinstance(answer, Answer) and not is_stale:
                closed = record.closed_to(failure)
                used = find_closed_part(basis.state, answer.transition, closed)
                is_stale = used is not None
            if is_stale and not even_if_stale:
                return False

            # Parts of the failure that a change has answered in the meantime are not pending.
            pending = list_unanswered(failure, record.state) if is_stale else failure
            if report and any(pending):
                if isinstance(answer, Answer):
                    self._note(ANSWERED, record.answer(pending))
                else:
                    self._note(REFUSED, record.refuse(pending))
            return True

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
            If the state has changed since it was made, or a part that it uses has failed; or the
            controller is closed.
        """
        self._check_open()
        if not isinstance(proposal, Proposal):
            raise InputError(f"proposal of type {type(proposal).__name__}", where="proposal")
        failure = proposal.failure
        with self._tally.call("apply", failure), self._lock:
            # Only a proposal for the present state is applied, and only if no part that it uses
            # has been reported as failed since.
            record = self._now.record
            if proposal.state is not record.state:
                raise InputError("the state has changed since this was proposed: ask again")
            check_faults_are_latest(record, failure)
            closed = record.closed_to(failure)
            used = find_closed_part(record.state, proposal.transition, closed)
            if used is not None:
                raise InputError(f"{used} has failed since this was proposed: ask again")

            # A unit that gets its circuits back makes its stand-in a spare again; after a failure
            # the lost unit is none.
            if proposal.restored is None:
                snapshot = self._change(_record_after_failure(record, proposal), "fail")
            else:
                snapshot = self._change(_record_after_return(record, proposal), "give back")
        return snapshot.state

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
        repaired = list_failure(chip=chip, port=port, fibre=fibre, cell=cell)
        with self._tally.call("repair", repaired), self._lock:
            snapshot = self._change(take_out(self._now.record, repaired), "repair")
        return snapshot.state

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

        # The search treats the stand-in as failed, and allows `unit` alone to take over from it.
        stand_in = self.stand_ins.get(unit, -1)
        leaving = failure_of_unit(snapshot.state, stand_in)
        closed = snapshot.record.closed_to(leaving)
        pending_units = (
            closed.failed_chips if snapshot.state.units.n_chips else closed.failed_ports
        )
        if stand_in < 0 or unit not in snapshot.state.spares or unit in pending_units:
            raise InputError(f"unit {unit} has no stand-in, or is not repaired", where="unit")

        with self._tally.call("give_back", leaving):
            answer = find_answer(snapshot, leaving, clock, only_unit=unit)
            if not isinstance(answer, Answer):
                raise answer
            proposal = _make_proposal(snapshot, leaving, answer, clock.elapsed_s)
            return replace(proposal, restored=(unit, stand_in))


def _record_after_failure(record: Record, proposal: Proposal) -> Record:
    """Return the record once the answer to a failure is applied.

    A record is the running state of circuits with the failures on record. A stand-in is a spare
    unit that has the circuits of a failed one, its home.

    Parameters
    ----------
    record
        The record before.
    proposal
        The answer; each of its moves is a lost unit and the spare that takes over its circuits.

    Returns
    -------
    Record
        The failure is in its state and no longer pending; spares that took over are stand-ins.
    """
    homes = dict(record.homes)
    for lost, spare in proposal.transition.moves.tolist():
        homes[spare] = homes.pop(lost, lost)  # a stand-in may be lost in turn
    return _record_after(record, proposal, homes, proposal.failure._asdict())


def _record_after_return(record: Record, proposal: Proposal) -> Record:
    """Return the record once units have their circuits back; their stand-ins are spares again.

    A stand-in is a spare unit that has the circuits of a failed one, its home.

    Parameters
    ----------
    record
        The record before.
    proposal
        The answer; each of its moves is a stand-in and the unit that gets its circuits back.

    Returns
    -------
    Record
        Without these stand-ins. One that is pending has failed: it is in the state as a failed
        part.
    """
    homes = dict(record.homes)
    stand_ins = tuple(proposal.transition.moves[:, 0].tolist())
    for stand_in in stand_ins:
        del homes[stand_in]

    # A stand-in that is pending has failed: it becomes a failed part of the state, and no spare.
    is_pending = subtract(proposal.failure, record.waiting_parts) != proposal.failure
    changes: dict[str, tuple[int, ...]] = {"spares": stand_ins}
    if is_pending:
        changes = proposal.failure._asdict()
    return _record_after(record, proposal, homes, changes)


def _record_after(
    record: Record,
    proposal: Proposal,
    homes: dict[int, int],
    changes: dict[str, tuple[int, ...]],
) -> Record:
    """Return the record after the changes of a proposal.

    A record is the running state of circuits with the failures that are pending, those without an
    applied answer.

    Parameters
    ----------
    record
        The record before.
    proposal
        The proposal, whose failure is no longer pending.
    homes
        The unit whose circuits each stand-in has after the changes.
    changes
        Numbers that are added to fields of the state, such as ``spares`` or ``failed_chips``.

    Returns
    -------
    Record
        The record with the new state; chips that were cut off with their server are noted, unless
        they have been reported by themselves.
    """
    # Chips that are pending by themselves do not work again with the fibres of their server.
    reported = record.waiting_parts.failed_chips
    cut_off = [unit for unit in proposal.cut_off if unit not in reported]
    state = drop_former_faults(record.state, proposal.failure)
    return record.without(proposal.failure)._replace(
        state=state.after(proposal.transition, changes),
        homes=tuple(homes.items()),
        cut_off=(*record.cut_off, *cut_off),
    )


def _make_proposal(
    snapshot: Snapshot, failure: FailedParts, answer: Answer, decided_s: float
) -> Proposal:
    """Make a proposal of an answer; chips that it cuts off are a part of the failure.

    Parameters
    ----------
    snapshot
        The state for which the answer was found.
    failure
        The parts that have failed.
    answer
        The transition, and the chips that are cut off with their servers.
    decided_s
        Seconds that the answer took.

    Returns
    -------
    Proposal
        The changes, for the caller to apply.
    """
    chips = tuple(sorted({*failure.failed_chips, *answer.cut_off}))
    return Proposal(
        state=snapshot.state,
        failure=failure._replace(failed_chips=chips),
        transition=answer.transition,
        decided_s=decided_s,
        cut_off=answer.cut_off,
    )

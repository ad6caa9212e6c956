"""The view of a controller: it holds a running state and answers failures at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from optmatch.control.figures import Call
from optmatch.control.reroutes.answering import (
    Ahead,
    Answer,
    Proposal,
    Snapshot,
    decide,
    failure_of_unit,
    find_closed,
    start_clock,
)
from optmatch.control.reroutes.failed_parts import (
    FailedParts,
    Parts,
    Stuck,
    check_failure,
    list_failure,
    parts_in,
    subtract,
    take_out,
)
from optmatch.control.reroutes.keeper import Keeper, begin
from optmatch.model import InputError, OptMatchError, integer
from optmatch.problems import Reroute


class Rerouter(Keeper):
    """Holds a running state; proposes how to get over failures, and follows applied changes.

    `fail` returns a proposal and changes nothing; `apply` takes over the one that it is given;
    `rollback` takes back what was applied last. A failure stays on record until its answer is
    applied or its parts are repaired: they take over nothing, and `offers` tries it again after
    each change. Reading `state` and asking for prepared answers never waits.

    Parameters
    ----------
    state
        A `Reroute` whose circuits all have light; earlier failures may be in it.
    prepare
        Whether the answer to the failure of each chip (or port of a switch) is worked out ahead,
        now and after each change; ``"all"`` for each fibre and cell in use as well, dead or stuck
        in the state that it is not in. Parts that are not in use need no preparation.
    background
        Whether that is done by a thread of its own, so that a change takes no longer for it; then
        an answer that takes more than 5 ms stays unprepared.
    history
        How many changes can be taken back at most.
    journal
        A file to which each change adds a line of JSON; None for none. If that fails, by an
        `OSError`, nothing changes.
    on_event
        Is told of each call when it has returned or raised, in its thread.
    priorities
        Of jobs, 0 unless told: where circuits of others must make room, those of jobs with lower
        ones do so before any of a higher one are tried. Files do not keep them.

    Raises
    ------
    InputError
        If a circuit of the state is hit by a failure in it, or `journal` cannot be written.

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
    ([[0, 2]], 'raise circuit 0: port 12 to port 6')
    >>> controller.apply(proposal).spares
    (63,)
    """

    def __init__(
        self,
        state: Reroute,
        *,
        prepare: Ahead = True,
        background: bool = False,
        history: int = 32,
        journal: str | os.PathLike[str] | None = None,
        on_event: Callable[[Call], None] | None = None,
        priorities: Mapping[int, int] | None = None,
    ) -> None:
        self._set_up(begin(state), prepare, background, history, journal, on_event, priorities)

    @property
    def offers(self) -> tuple[Proposal, ...]:
        """Ways over failures that wait on record, as of now; looked for when first asked."""
        return self.retry()

    def retry(self, *, deadline_s: float | None = None) -> tuple[Proposal, ...]:
        """Look for ways over all failures on record; return those found until the deadline.

        The next call begins with the failures that were not reached.
        """
        clock, now, known = start_clock(deadline_s), self._now, self._offers
        if known is not None and known[0] is now.record:
            return known[1]
        found, waiting = list[Proposal](), now.record.waiting
        first = self._turn % max(1, len(waiting))
        with self._tally.call("retry"), self._behind.asked():
            for failure in (*waiting[first:], *waiting[:first]):
                if clock.remaining_s <= 0:
                    break
                self._turn += 1
                answered = decide(now, failure, clock)
                if isinstance(answered, Answer):
                    found.append(_propose(now, failure, answered, 0.0))
        offers = tuple(found)
        if clock.remaining_s > 0:
            self._offers = now.record, offers
        return offers

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
            The state in which the cells stay; None if they carry no light.
        deadline_s
            How long the search may take, after which it ends with the best way so far; None for as
            long as it takes.

        Returns
        -------
        Proposal
            The `transition` of a proposal has the changes, its `timeline` the times of them; see
            `apply`.

        Raises
        ------
        InputError
            If no part is named, or one does not exist, is named twice, or has failed before. A
            chip that is only cut off may be reported: it stays failed when its server works again.
        InfeasibleError
            If it is proved that nothing helps: too few spares, or an end that is cut off.
        LimitReached
            If no way was found; method ``ilp`` may find one, or prove that there is none. `offers`
            looks for one again, without a deadline.
        """
        failure = list_failure(chip, port, fibre, cell, stuck)
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
        """Say what `fail` would say, and put nothing on record; arguments and errors as there."""
        failure = list_failure(chip, port, fibre, cell, stuck)
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

        Errors as of `fail`; `restore` brings back what has left. Without `by_s` nothing goes on
        record, and where there is no way the parts stay in use.

        Parameters
        ----------
        chip, port, fibre, cell
            The leaving parts: a number, or several.
        by_s
            Seconds from now until the parts leave in any case. The search may take as long; from
            now on the parts are on record as failed, and no other proposal uses them.
        """
        failure = list_failure(chip, port, fibre, cell, None)
        return self._ask("drain", failure, by_s, report=by_s is not None)

    def _ask(
        self, call: str, failure: FailedParts, deadline_s: float | None, *, report: bool
    ) -> Proposal:
        """Search; with `report` put the failure on record."""
        clock = start_clock(deadline_s)
        with self._tally.call(call, failure), self._behind.asked():
            failure = self._claim(failure) if report else failure
            while True:
                now = self._now
                answered = decide(now, failure, clock)
                late = clock.remaining_s <= 0.0
                if self._settle(now, failure, answered, report=report, anyway=late):
                    break  # or else the record has changed in the meantime
            if isinstance(answered, Answer):
                return _propose(now, failure, answered, clock.elapsed_s)
            raise answered

    def _claim(self, failure: FailedParts) -> FailedParts:
        """Note that chips which are cut off have failed themselves; return all other parts."""
        with self._lock:
            record = self._now.record
            own = set(failure.failed_chips).intersection(record.cut_off)
            left = subtract(failure, FailedParts(tuple(own)))
            if own:
                check_failure(record.state, left)
                self._note("refuse", record.reported(own), own)
        return left

    def _settle(
        self,
        now: Snapshot,
        failure: FailedParts,
        found: Answer | OptMatchError,
        *,
        report: bool,
        anyway: bool,
    ) -> bool:
        """Put a failure on record, unless its answer is out of date; tell whether it is not."""
        with self._lock:
            record = self._now.record
            stale = now.state is not record.state
            if isinstance(found, Answer):
                closed = record.closed_to(failure)
                stale = stale or find_closed(now.state, found.transition, closed) is not None
            if stale and not anyway:
                return False
            left = subtract(failure, parts_in(record.state)) if stale else failure
            if report and any(left):
                way = isinstance(found, Answer)
                after = record.answer(left) if way else record.refuse(left)
                self._note("answer" if way else "refuse", after)
            return True

    def apply(self, proposal: Proposal) -> Reroute:
        """Take over a proposal; return the new state.

        Raises
        ------
        InputError
            If the state has changed since it was made, or a part that it uses has failed.
        """
        if not isinstance(proposal, Proposal):
            raise InputError(f"proposal of type {type(proposal).__name__}", where="proposal")
        with self._tally.call("apply", proposal.failure), self._lock:
            record, failure = self._now.record, proposal.failure
            if proposal.state is not record.state:
                raise InputError("the state has changed since this was proposed: ask again")
            used = find_closed(record.state, proposal.transition, record.closed_to(failure))
            if used is not None:
                raise InputError(f"{used} has failed since this was proposed: ask again")
            homes, changes, what = dict(record.homes), failure._asdict(), "fail"
            if proposal.restored is None:
                for lost, spare in proposal.transition.moves.tolist():
                    homes[spare] = homes.pop(lost, lost)
            else:
                what, stand_ins = "give back", tuple(proposal.transition.moves[:, 0].tolist())
                for stand_in in stand_ins:
                    del homes[stand_in]
                if subtract(failure, record.closed_to(FailedParts())) == failure:
                    changes = {"spares": stand_ins}  # else the stand-in has failed
            after = record.state.after(proposal.transition, changes)
            reported = record.closed_to(FailedParts()).failed_chips  # these fail on their own
            cut_off = (*record.cut_off, *(u for u in proposal.cut_off if u not in reported))
            new = record.without(failure)._replace(
                state=after, homes=tuple(homes.items()), cut_off=cut_off
            )
            now = self._change(new, what, failure)
        self._look_ahead()
        return now.state

    def repair(
        self,
        *,
        chip: Parts = None,
        port: Parts = None,
        fibre: Parts = None,
        cell: Parts = None,
    ) -> Reroute:
        """Take failed parts into use again; a unit whose circuits went to a spare is a spare now.

        Raises
        ------
        InputError
            If no part is named, or one has not failed.
        """
        repaired = list_failure(chip, port, fibre, cell, None)
        with self._tally.call("repair", repaired), self._lock:
            now = self._change(take_out(self._now.record, repaired), "repair", repaired)
        self._look_ahead()
        return now.state

    restore = repair
    """The same for parts that were drained."""

    def give_back(self, unit: int, *, deadline_s: float | None = None) -> Proposal:
        """Propose how a repaired unit gets its circuits back.

        The stand-in is a spare again once that is applied.

        Raises
        ------
        InputError
            If no spare stands in for the unit, or it has not been repaired.
        InfeasibleError, LimitReached
            As for `fail`.
        """
        clock, unit = start_clock(deadline_s), integer("unit", unit, at_least=0)
        now, stand_ins = self._now, self.stand_ins
        stand_in = stand_ins.get(unit, -1)
        leaving = failure_of_unit(now.state, stand_in)
        closed = now.record.closed_to(leaving)
        units = closed.failed_chips if now.state.units.n_chips else closed.failed_ports
        if stand_in < 0 or unit not in now.state.spares or unit in units:
            raise InputError(f"unit {unit} has no stand-in, or is not repaired", where="unit")
        with self._tally.call("give_back", leaving), self._behind.asked():
            answered = decide(now, leaving, clock, only=(unit,))
            if isinstance(answered, Answer):
                way = _propose(now, leaving, answered, clock.elapsed_s)
                return replace(way, restored=(unit, stand_in))
            raise answered


def _with_cut_off(failure: FailedParts, found: Answer) -> FailedParts:
    chips = tuple(sorted({*failure.failed_chips, *found.cut_off}))
    return failure._replace(failed_chips=chips)


def _propose(now: Snapshot, failure: FailedParts, found: Answer, decided_s: float) -> Proposal:
    failure = _with_cut_off(failure, found)
    return Proposal(now.state, failure, found.transition, None, decided_s, found.cut_off)

"""The view of a controller: it holds a running state and answers failures at once."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from optmatch.control.reroutes.answering import (
    Ahead,
    Proposal,
    answer,
    failure_of_unit,
    look,
    prepare,
    prepare_behind,
)
from optmatch.control.reroutes.failed_parts import (
    FailedParts,
    Parts,
    Stuck,
    list_failure,
    take_out,
)
from optmatch.control.reroutes.memory import Memory, add_line, read_memory, write_memory
from optmatch.model import (
    InfeasibleError,
    InputError,
    LimitReached,
    Limits,
    OptMatchError,
    TimeUp,
    integer,
    number,
)
from optmatch.model.declarations import form_of
from optmatch.model.files import check_target
from optmatch.problems import Reroute, Transition


class Rerouter:
    """Holds a running state; says how to get over failures, and follows what was done.

    `fail` returns a proposal and changes nothing; `apply` takes over the one that it is given;
    `rollback` takes back what was applied last. A failure that nothing helps stays on record: its
    parts take over nothing, and it is tried again after each change. Reading `state` and asking
    for what is prepared never waits; other calls exclude each other.

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
        what takes more than 5 ms stays unprepared.
    history
        How many changes can be taken back at most.
    journal
        A file to which each change adds a line of JSON; None for none. If that fails, by an
        `OSError`, nothing changes.

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
    ) -> None:
        form_of(Reroute).check("state", state)
        form_of(Ahead).check("prepare", prepare)
        if state.hit.any():
            circuit = int(np.flatnonzero(state.hit)[0])
            raise InputError(f"circuit {circuit} has no light in this state", where="state")
        self._lock = threading.RLock()
        self._ahead: Ahead = prepare
        self._background, self._worker = background, threading.Thread()
        self._history = deque[Memory](maxlen=integer("history", history, at_least=0))
        self._journal = None if journal is None else check_target(journal, force=True)
        self._homes: dict[int, int] = {}  # the unit whose circuits each stand-in has
        self._refused: tuple[FailedParts, ...] = ()
        self._offers: tuple[Proposal, ...] | None = ()
        self._now = look(state)
        self._look_ahead()

    @property
    def state(self) -> Reroute:
        """The state as it is now, without what is only proposed."""
        return self._now.state

    @property
    def stand_ins(self) -> dict[int, int]:
        """The unit that has the circuits of each failed unit at present."""
        return {home: unit for unit, home in self._homes.items()}

    @property
    def refused(self) -> tuple[FailedParts, ...]:
        """The failures on record that nothing has helped so far."""
        return self._refused

    @property
    def history(self) -> tuple[Reroute, ...]:
        """The states before the last changes, the oldest first."""
        return tuple(memory.state for memory in self._history)

    @property
    def offers(self) -> tuple[Proposal, ...]:
        """Ways over failures that were refused, as of now; looked for when first asked."""
        with self._lock:
            if self._offers is None:
                self._offers = tuple(self._retry())
            return self._offers

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
        """Say how to get over the failure of one part, or of several at once.

        Parameters
        ----------
        chip, port, fibre, cell
            What has failed: a number, or several.
        stuck
            The state in which the cells stay; None if they carry no light.
        deadline_s
            How long the search may take, after which it ends with the best way so far; None for as
            long as it takes.

        Returns
        -------
        Proposal
            Its `transition` says what to do, its `timeline` how long that takes; see `apply`.

        Raises
        ------
        InputError
            If no part is named, or one does not exist, is named twice, or has failed before.
        InfeasibleError
            If it is proved that nothing helps: too few spares, or an end that is cut off.
        LimitReached
            If no way was found; method ``ilp`` may find one, or prove that there is none. `offers`
            looks for one again, without a deadline.
        """
        within_s = None if deadline_s is None else number("deadline_s", deadline_s)
        clock = Limits(time_s=within_s).start()
        failure = list_failure(chip, port, fibre, cell, stuck)
        now, avoid = self._now, self._unfit()
        prepared = None if avoid else now.answers.get(failure)
        if isinstance(prepared, Transition):
            return Proposal(now.state, failure, prepared, decided_s=clock.elapsed_s)
        with self._lock:
            now = self._now
            try:
                if isinstance(prepared, OptMatchError):
                    raise type(prepared)(str(prepared))
                with clock.running():
                    found = answer(now, failure, avoid=self._unfit())
            except (InfeasibleError, LimitReached) as exc:
                if failure not in self._refused:
                    self._refused, self._offers = (*self._refused, failure), None
                if isinstance(exc, TimeUp):
                    raise LimitReached(f"no way was found within {within_s:g} s") from None
                raise
        return Proposal(now.state, failure, found, decided_s=clock.elapsed_s)

    def apply(self, proposal: Proposal) -> Reroute:
        """Take over a proposal; return the new state.

        Raises
        ------
        InputError
            If the state has changed since it was made.
        """
        if not isinstance(proposal, Proposal):
            raise InputError(f"proposal of type {type(proposal).__name__}", where="proposal")
        with self._lock:
            before, failure = self._now.state, proposal.failure
            if proposal.state is not before:
                raise InputError("the state has changed since this was proposed: ask again")
            homes, changes, what = dict(self._homes), failure._asdict(), "fail"
            if proposal.restored is None:
                for lost, spare in proposal.transition.moves.tolist():
                    homes[spare] = homes.pop(lost, lost)
            else:
                stand_in, what = proposal.restored[1], "give back"
                del homes[stand_in]
                if failure not in self._refused:  # else the stand-in has failed
                    changes = {"spares": (stand_in,)}
            after = before.after(proposal.transition, changes)
            refused = tuple(f for f in self._refused if f != failure)
            self._change(after, homes, refused, what, failure)
            return after

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
            memory = self._history[-1]
            since = tuple(failure for failure in self._refused if failure not in memory.refused)
            memory = memory._replace(refused=memory.refused + since)
            self._take_over(memory, "rollback", FailedParts())
            self._history.pop()
            return memory.state

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
        with self._lock:
            before = self._now.state
            changes, refused = take_out(before, self._refused, repaired)
            after = replace(before, **changes)
            per_unit, whole = before.units.ports_per_unit, set(range(before.n_units))
            whole -= {port // per_unit for port in after.dead_ports}
            units = {*repaired.failed_chips, *(p // per_unit for p in repaired.failed_ports)}
            busy = np.unique(self._now.routing.ends).tolist()
            idle = (units & whole).difference(busy, before.spares)
            if idle:
                after = replace(after, spares=(*after.spares, *sorted(idle)))
            self._change(after, self._homes, refused, "repair", repaired)
            return after

    def give_back(self, unit: int) -> Proposal:
        """Say how a repaired chip (or port of a switch) gets its circuits back from its stand-in.

        The stand-in is a spare again once that is applied.

        Raises
        ------
        InputError
            If no spare stands in for the unit, or it has not been repaired.
        """
        with self._lock:
            now, stand_ins = self._now, self.stand_ins
            if unit not in stand_ins or unit not in now.state.spares or unit in self._unfit():
                raise InputError(f"unit {unit} has no stand-in, or is not repaired", where="unit")
            stand_in = stand_ins[unit]
            leaving = failure_of_unit(now.state, stand_in)
            found = answer(now, leaving, only=(unit,))
            return Proposal(now.state, leaving, found, (unit, stand_in))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that a restart needs: state, stand-ins, what was refused, and the history.

        The file is replaced at once or not at all.
        """
        with self._lock:
            write_memory(path, [*self._history, self._memory()])

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        prepare: Ahead = True,
        background: bool = False,
        history: int = 32,
        journal: str | os.PathLike[str] | None = None,
    ) -> Rerouter:
        """Take up what was saved; arguments as of the class.

        Raises
        ------
        FormatError
            If the file cannot be read, or is no such file.
        """
        *past, present = read_memory(path)
        controller = cls(
            present.state,
            prepare=prepare,
            background=background,
            history=history,
            journal=journal,
        )
        controller._history.extend(past)
        controller._homes, controller._refused = dict(present.homes), present.refused
        controller._offers = None
        return controller

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all is prepared in the background; tell whether it is."""
        worker = self._worker
        if worker.ident is not None:
            worker.join(timeout_s)
        return not worker.is_alive()

    def _memory(self) -> Memory:
        return Memory(self._now.state, tuple(self._homes.items()), self._refused)

    def _unfit(self) -> frozenset[int]:
        """List the units that have failed and stand on record only."""
        field = f"failed_{self._now.state.units.unit_name}s"
        return frozenset(unit for failure in self._refused for unit in getattr(failure, field))

    def _change(
        self,
        state: Reroute,
        homes: dict[int, int],
        refused: tuple[FailedParts, ...],
        what: str,
        parts: FailedParts,
    ) -> None:
        """Go on to a new state, and remember the last one."""
        memory = self._memory()
        self._take_over(Memory(state, tuple(homes.items()), refused), what, parts)
        self._history.append(memory)

    def _take_over(self, memory: Memory, what: str, parts: FailedParts) -> None:
        """Go on to a state, once that is noted in the journal."""
        now = look(memory.state, self._now)
        if self._journal is not None:
            add_line(self._journal, what, parts, {home: unit for unit, home in memory.homes})
        self._now = now
        self._look_ahead()
        self._homes, self._refused = dict(memory.homes), memory.refused
        self._offers = None

    def _look_ahead(self) -> None:
        """Prepare answers, or let it be done."""
        now = self._now

        def going_on() -> bool:  # while nobody asks, until the state changes
            with self._lock:
                return self._now is now

        if not self._background:
            prepare(now, self._ahead)
        elif self._ahead:
            self._worker = prepare_behind(now, self._ahead, going_on)

    def _retry(self) -> Iterator[Proposal]:
        """Look for ways over the failures on record."""
        for failure in self._refused:
            own = frozenset(failure.failed_chips + failure.failed_ports)
            try:
                way = answer(self._now, failure, avoid=self._unfit() - own)
            except OptMatchError:
                continue
            yield Proposal(self._now.state, failure, way)

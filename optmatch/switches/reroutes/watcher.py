"""Watching switches: a port that fails is a failure of a controller, whose answer is played.

The loop from a failed port to tuned circuits. A change is on record with the controller before it
is sent to a switch; after a crash at any point, the circuits of the record are compared with those
of the switches, and what differs is told or mended.

Switches are numbered by their places among those of the running state, watched or not. A failure
is *open* from the reading that showed it until an answer was told or the part works again.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from optmatch.control import Proposal, Rerouter
from optmatch.control.reroutes.records import add_failure
from optmatch.fabrics import RackFabric
from optmatch.io.switches.circuits import CrossConnect, Difference, difference_between
from optmatch.io.switches.plans import (
    NamedSwitch,
    RackPart,
    name_ports,
    rack_nodes,
    switches_of_state,
    switches_of_transition,
)
from optmatch.io.text import digest
from optmatch.model import Clock, InfeasibleError, InputError, LimitReached, Limits
from optmatch.model.declarations import Amount, form_of
from optmatch.model.files import path_name
from optmatch.problems import Reroute
from optmatch.problems.reroutes.transition import DROP, RAISE
from optmatch.switches.protocol import (
    CLAIM_EVERY_S,
    Switch,
    SwitchError,
    match_switches,
    own_circuits,
    run_in_thread,
    run_side_by_side,
)

_LONGEST_READING_S = 1.0
"""A switch that has not answered by then counts as lost. Its thread goes on waiting, and the other
switches are read without it. Readings take milliseconds; half of it would call a switch lost whose
machine is merely busy, twice of it would hold up the failures of all other switches as long."""


class StatusReader:
    """Reads the status of all ports of some switches, each switch in a thread of its own.

    A switch that does not answer holds up the others once, for a second, and from then on no more.
    """

    def __init__(self, switches: Mapping[int, Switch]) -> None:
        """Start a pool of threads, one for each of ``switches[number]``."""
        self._switches = switches
        self._pool = ThreadPoolExecutor(
            max_workers=max(1, len(switches)), thread_name_prefix="optmatch reading"
        )
        self._unanswered: dict[int, Future[Mapping[str, str]]] = {}
        """Readings of former looks that have not ended yet, by switch."""

    def read(self) -> tuple[dict[int, Mapping[str, str]], dict[int, str]]:
        """Read all switches once, side by side: their statuses and errors, by switch.

        Returns ``statuses[switch][side]`` (``tuned``, ``tuning``, ``failed`` or ``blocked``) of
        those that have answered within a second, and ``errors[switch]``, why it could not be read,
        of the others. A switch that has not answered at a former look is not asked again before it
        does.
        """
        # Switches that owe an answer from a former look are not waited for.
        new_readings = {
            index: self._pool.submit(switch.read_statuses)
            for index, switch in self._switches.items()
            if index not in self._unanswered
        }
        wait(new_readings.values(), _LONGEST_READING_S)

        statuses: dict[int, Mapping[str, str]] = {}
        errors: dict[int, str] = {}
        for index, reading in (self._unanswered | new_readings).items():
            if not reading.done():
                self._unanswered[index] = reading
                name = self._switches[index].name
                errors[index] = f"{name}: no answer within {_LONGEST_READING_S:g} s"
                continue

            # The switch has answered now, or failed to.
            self._unanswered.pop(index, None)
            try:
                statuses[index] = reading.result()
            except SwitchError as error:
                errors[index] = str(error)
        return statuses, errors

    def close(self) -> None:
        """End all threads but those that still wait for a switch."""
        self._pool.shutdown(wait=False, cancel_futures=True)


_QUICK_S = 0.05
"""How long the first search for an answer to a failure may take. Racks of 64 chips take 1 ms, and
300 ms where no spare can take over; while it lasts, other failures wait."""

_TUNING_POLL_S = 0.005
"""How often a switch is asked for circuits that are being tuned."""


class WatchEvent(NamedTuple):
    """Something that a watcher has seen or done."""

    what: str
    """``differs`` or ``mended`` (the circuits of a switch were not those on record), ``failed``,
    ``proposed``, ``repaired``, ``unanswered`` (no way over a failure is known so far, or none
    exists), ``untuned`` (a circuit that was sent carries no light), ``recovered`` (a failed part
    works again), ``lost`` (a switch cannot be read) or ``back``."""
    message: str
    time_s: float = 0.0
    """For ``repaired`` and ``mended``: from the reading that showed it to the last tuned
    circuit."""


@dataclass
class _SentChange:
    """Circuits that were sent to switches, and are not known to be tuned yet."""

    event: str
    """``repaired`` or ``mended``: what is told once all circuits are tuned."""
    message: str
    untuned: dict[int, tuple[CrossConnect, ...]]
    """The circuits that are not known to be tuned, by the number of their switch."""
    began_s: float
    """When the reading was made that led to the change, on the monotonic clock."""
    give_up_s: float
    """When its circuits have to be tuned, on the monotonic clock."""
    has_failed: bool = False
    """Whether one of its circuits has failed. The others are still expected, and told if they are
    not tuned in time, but `event` is not told any more."""


@dataclass
class _OpenFailure:
    """A failed part that has no answer so far."""

    began_s: float
    """When its failure was read, on the monotonic clock."""
    searched_state: Reroute | None = None
    """The state in which a whole search has found nothing; None if none has come to its end."""
    message: str = ""
    """The message of the last event about it."""


class _SearchClock(Clock):
    """A count without a limit that ends a search as soon as something else has to be done."""

    def __init__(self, is_interrupted: Callable[[], bool]) -> None:
        """Make a count without a limit, which ends a search once `is_interrupted` is true."""
        count = Limits().start()
        super().__init__(count.limits, count.now, count.started)
        self._is_interrupted = is_interrupted

    @property
    def stopped(self) -> bool:
        """Whether something else has to be done, which is asked until it is so."""
        if not self.interrupted:
            self.interrupted = self._is_interrupted()
        return self.interrupted


class Watcher:
    """Watches the switches of a controller.

    Parameters
    ----------
    controller
        Holds the running state. One that `Rerouter.open` has opened keeps each change on disk
        before it is sent.
    switch
        The switch of the state, or for racks one for each server and inter-rack switch, by name.
        Switches of racks that are not given are not watched, and nothing may have to change there.
    apply
        Whether answers are applied; by default they are only told.
    ports
        A file with the names of ports; None: port p has the sides ``(p + 1)A`` and ``(p + 1)B``.
    time_limit_s
        How long circuits may take to be tuned, in seconds.
    on_event
        Is called with each event.

    Raises
    ------
    InputError
        If switches and state do not fit, or an argument is of another type.
    """

    def __init__(
        self,
        controller: Rerouter,
        switch: Switch | Mapping[str, Switch],
        *,
        apply: bool = False,
        ports: str | os.PathLike[str] | None = None,
        time_limit_s: float = 10.0,
        on_event: Callable[[WatchEvent], object] = lambda event: None,
    ) -> None:
        """Make a watcher of the switches that carry a running state; nothing is read yet.

        Each switch that is given is found among those of the state, and gets a thread that will
        read it. No failure is known, and no switch claimed.
        """
        form_of(Rerouter).check("controller", controller)
        form_of(bool).check("apply", apply)
        time_limit_s = form_of(Amount).check("time_limit_s", time_limit_s)
        form_of(Callable).check("on_event", on_event)
        if ports is not None:
            path_name(ports, "ports")

        # The controller, and what may be done with its answers.
        self.controller: Rerouter = controller
        self.may_apply: bool = apply
        self.time_limit_s: float = time_limit_s
        self.on_event: Callable[[WatchEvent], object] = on_event

        # The switches that carry the state, each with the sides that are ours.
        self._ports = ports
        self._plans = self._state_plans(controller.state)
        self._switches = match_switches(self._plans, switch, partial=True)
        self._own_sides = [frozenset(plan.ports.port_of_side) for plan in self._plans]

        # Failures as they are known so far.
        self._failed_sides: list[dict[str, RackPart]] = [{} for _ in self._plans]
        """For each switch the sides that have failed, and the part that is at each of them."""
        self._known_parts: set[RackPart] = set()
        """Failed parts that the controller has been told of."""
        self._open_failures: dict[RackPart, _OpenFailure] = {}
        """Failed parts that have no answer so far."""
        self._tuning: list[_SentChange] = []
        """Changes that were sent, in their order, and are not tuned yet."""

        # How the switches are read and claimed.
        self._reader = StatusReader(dict(self._watched()))
        self._lost: set[int] = set()
        """Switches that could not be read at the last look."""
        # Switches are claimed under a name that the path of a controller and the name of this
        # machine decide; without a path it is random. The files of a controller are open in one
        # process alone: whoever can open them knows that the former watcher has ended, and has its
        # name, so that its claims need not expire first.
        name = uuid.uuid4().hex
        if controller.path is not None:
            name = digest(f"{socket.gethostname()}:{controller.path.resolve()}".encode())
        self._owner = f"optmatch watch {name[:12]}"
        self._claimed: set[int] = set()
        """Switches that were claimed at least once, and are released at the end."""
        self._next_claim_s = 0.0
        self._next_reading_s = 0.0
        """When a search that is going on looks at the switches again."""

    @staticmethod
    def check_switches(
        state: Reroute,
        switch: Switch | Mapping[str, Switch],
        *,
        ports: str | os.PathLike[str] | None = None,
    ) -> None:
        """Refuse switches that are none of a running state, before its controller is begun.

        Parameters
        ----------
        state
            The running state that is to be watched.
        switch
            The switch, or switches by the names that the state has for them.
        ports
            A file with the sides of each port; None for ``1A`` and ``1B`` of port 0, and on.

        Raises
        ------
        InputError
            If it is no running state, it has no switch of such a name, or the file lacks a switch
            or a port.

        Examples
        --------
        >>> import optmatch as om
        >>> from optmatch.switches import DrySwitch, Watcher
        >>> state = om.Reroute(om.IdealSwitch(4), [[0, 1]], spares=(2, 3))
        >>> Watcher.check_switches(state, DrySwitch())
        """
        form_of(Reroute).check("state", state)
        match_switches(name_ports(switches_of_state(state), ports), switch, partial=True)

    def _state_plans(self, state: Reroute) -> tuple[NamedSwitch, ...]:
        """Return the switches of a state with the names of their ports."""
        return name_ports(switches_of_state(state), self._ports)

    def run_until(self, stop: threading.Event, *, poll_s: float = 0.02) -> None:
        """Compare switches and record, then watch until `stop` is set, or until Ctrl-C.

        A look that has begun is finished first: no change is left halfway.

        Parameters
        ----------
        stop
            Ends the watch, from any thread.
        poll_s
            How long to pause between two looks, in seconds.
        """
        run_in_thread(lambda: self._run(stop, poll_s), stop)

    def _run(self, stop: threading.Event, poll_s: float) -> None:
        """Look at the switches until `stop` is set, and search for answers between the looks.

        At first the circuits on the switches are compared with the record. Each look reads which
        parts have failed and gives quick answers. After a look, circuits that were sent are
        watched until they are tuned; if there are none, the search for an answer to an open
        failure goes on (`search_on`, false if there is none to search for); else the watcher
        pauses for `poll_s`. At the end the claims on all switches that can still be reached are
        given up.
        """
        try:
            self.reconcile()

            # The first answer loads compiled kernels, which takes seconds: one is asked for
            # ahead.
            state = self.controller.state
            if len(state.circuits):
                with suppress(InputError, InfeasibleError, LimitReached):
                    self.controller.what_if(port=int(state.circuits[0, 0]))

            while not stop.is_set():
                self.look()
                if self._tuning:
                    # Circuits that were sent are looked at until all are tuned, or the next look
                    # is due.
                    next_look_s = time.monotonic() + poll_s
                    while self._tuning and time.monotonic() < next_look_s:
                        stop.wait(min(poll_s, _TUNING_POLL_S))
                        self._check_tuning()
                elif not self.search_on(stop, poll_s=poll_s):
                    stop.wait(poll_s)
        finally:
            self._reader.close()
            for index, switch in self._watched():
                if index in self._claimed and index not in self._lost:
                    # A claim that cannot be given up expires by itself. It hides neither the error
                    # that has ended the watch, nor keeps the other switches claimed.
                    with suppress(SwitchError):
                        switch.release(self._owner)

    def reconcile(self) -> None:
        """Compare what the switches hold with the record of the controller.

        Differences are told; with `apply` they are mended, removals first.

        The circuits on record are those of the running state of the controller. At the end it is
        waited until all that was sent is tuned, or its time is over.
        """
        self._claim()
        began_s = time.monotonic()
        plans = self._state_plans(self.controller.state)
        for index, switch in self._watched():
            present = own_circuits(switch, self._own_sides[index])
            difference = difference_between(present, plans[index].circuits(0))
            if difference.is_empty:
                continue
            message = (
                f"{switch.name}: {len(difference.removals)} circuits are there that should not be,"
                f" {len(difference.additions)} are missing"
            )
            if not self.may_apply:
                self.on_event(WatchEvent("differs", message))
                continue

            switch.apply(difference)
            self._expect_tuned("mended", message, [(index, difference)], began_s)

        # The wait ends before this returns: the next thing that a watcher does takes seconds at
        # first, and would be counted as time of the switches.
        self._check_tuning()
        while self._tuning:
            time.sleep(_TUNING_POLL_S)
            self._check_tuning()

    def look(self) -> None:
        """Read all switches once, and answer the parts that have failed since the last look.

        Failures that are read together are answered together if that is possible at once, or else
        each for itself. A failure without a quick answer is on record from then on, and does not
        hold up others: `search_on` goes on with it. Switches that cannot be read are passed over.

        A part is a port of a chip or a fibre between racks; its failure is on record with the
        controller, which finds the answer: a change of circuits that gets around it.

        Raises
        ------
        SwitchError
            If an answer cannot be sent to a switch.
        """
        began_s = time.monotonic()
        failed_parts = self._read_failed_parts()
        self._check_tuning()
        self._claim()

        # Failures of parts that work again are taken off the record, if nothing was changed for
        # them. A part whose circuits have moved away stays out of use: `Rerouter.repair` makes
        # it a spare.
        state = self.controller.state
        for part in self._known_parts.difference(failed_parts):
            self._known_parts.discard(part)
            self._open_failures.pop(part, None)

            # A part that has failed in the state was answered: others have taken over.
            message = f"{part.kind} {part.number} works again"
            if part in state.failed.faults:
                message += "; it stays out of use until it is repaired on record"
            else:
                with suppress(InputError):  # the record never had it
                    self.controller.repair(**{part.kind: part.number})
            self.on_event(WatchEvent("recovered", message))

        new_parts = [part for part in failed_parts if part not in self._known_parts]
        self._known_parts.update(new_parts)
        for part in new_parts:
            self._open_failures[part] = _OpenFailure(began_s)

        # One answer to all failures is one change of the switches. Without it, those that can be
        # answered must not wait for those that cannot.
        outcome = None
        if len(new_parts) > 1:
            outcome = self._ask(new_parts, _QUICK_S)
        if isinstance(outcome, Proposal):
            self._carry_out(new_parts, outcome)
        else:
            for part in new_parts:
                self._note_outcome(part, self._ask([part], _QUICK_S), "; the search goes on")

    def search_on(self, stop: threading.Event | None = None, *, poll_s: float = 0.02) -> bool:
        """Search on for answers to failures that have none, until a switch reports another one.

        Each failure is searched for once more when the state of the controller has changed.

        A failure is a port of a chip or a fibre that does not work, its answer a change of
        circuits that gets around it. A failure that was searched for to the end is left until
        then.

        Parameters
        ----------
        stop
            Ends the search, from any thread; None for nobody.
        poll_s
            How often the switches are read while a search is going on, in seconds.

        Returns
        -------
        bool
            Whether there was anything to search for.
        """
        state = self.controller.state
        unfinished = [
            part
            for part, failure in self._open_failures.items()
            if failure.searched_state is not state
        ]
        self._next_reading_s = time.monotonic() + poll_s

        def is_interrupted() -> bool:
            """Tell whether the watch ends, or a switch reports another failure.

            A search asks this every few milliseconds; switches are read every `poll_s` seconds.
            """
            if stop is not None and stop.is_set():
                return True
            if time.monotonic() < self._next_reading_s:
                return False
            failed_parts = self._read_failed_parts()
            self._claim()  # a search may take longer than a claim lasts
            self._next_reading_s = time.monotonic() + poll_s
            return not self._known_parts.issuperset(failed_parts)

        for part in unfinished:
            clock = _SearchClock(is_interrupted)
            with clock.running():
                outcome = self._ask([part], None)
            if clock.interrupted and not isinstance(outcome, Proposal):
                break
            self._note_outcome(part, outcome)
            if self.controller.state is not state:
                break
        return bool(unfinished)

    def _read_failed_parts(self) -> tuple[RackPart, ...]:
        """Read all switches, and return each part once that any of them reports as failed.

        A part is a port of a chip or a fibre between racks. A switch that cannot be read keeps the
        failures that it reported last. It is told as lost once, and as back when it can be read
        again; `_lost` has the numbers of the switches that are lost at present.
        """
        statuses_of_switch, errors = self._reader.read()
        for index, message in errors.items():
            if index not in self._lost:
                self.on_event(WatchEvent("lost", message))
            self._lost.add(index)

        for index, statuses in statuses_of_switch.items():
            if index in self._lost:
                self._lost.discard(index)
                self._next_claim_s = 0.0  # its claim may have expired in the meantime
                name = self._plans[index].plan.name
                self.on_event(WatchEvent("back", f"{name}: can be read again"))

            # A side that has failed stays so until the switch says that it is ``tuned``:
            # ``blocked``, as it may be without a circuit, says nothing of its light.
            failed = self._failed_sides[index]
            port_of_side = self._plans[index].ports.port_of_side
            for side, status in statuses.items():
                if status == "failed" and side in port_of_side:
                    failed[side] = self._part_of(index, port_of_side[side], side)
                elif status == "tuned":
                    failed.pop(side, None)

        # A fibre may be reported by the switches at both of its ends.
        parts = {part for failed in self._failed_sides for part in failed.values()}
        return tuple(sorted(parts))

    def _part_of(self, index: int, port: int, side: str) -> RackPart:
        """Return the part of the state that is at a side of a port of a switch.

        A sides are inputs, B sides outputs. The part is a port of a chip or a fibre of racks; on a
        single switch its port.
        """
        fabric = self.controller.state.fabric
        if isinstance(fabric, RackFabric):
            return rack_nodes(fabric).part_at(index, port, is_input=side.endswith("A"))
        return RackPart("port", port)

    def _ask(
        self, parts: Sequence[RackPart], deadline_s: float | None
    ) -> Proposal | InfeasibleError | LimitReached | None:
        """Ask the controller for a way over a failure, which is on record from then on.

        An error that is returned says that nothing helps, or that nothing was found within
        `deadline_s` seconds (None: no limit but that of a running clock). The result is None if
        the record has answered one of the parts already, as after a restart.
        """
        ports = [part.number for part in parts if part.kind == "port"]
        fibres = [part.number for part in parts if part.kind == "fibre"]
        try:
            return self.controller.fail(port=ports, fibre=fibres, deadline_s=deadline_s)
        except InputError:
            return None
        except (InfeasibleError, LimitReached) as error:
            return error.with_traceback(None)

    def _note_outcome(
        self,
        part: RackPart,
        outcome: Proposal | InfeasibleError | LimitReached | None,
        addition: str = "",
    ) -> None:
        """Carry out the answer to the failure of one part, or tell that there is none.

        `outcome` is what `_ask` has returned: an `InfeasibleError` says that nothing gets around
        the failure, a `LimitReached` that nothing was found in time, and None that the failure is
        open no more. `addition` ends the message of a search that was cut short, as another one
        follows; without it the search has come to its end.
        """
        if outcome is None:
            del self._open_failures[part]
            return
        if isinstance(outcome, Proposal):
            self._carry_out([part], outcome)
            return

        # A proof, or the end of a whole search, holds until the state changes.
        failure = self._open_failures[part]
        is_over = isinstance(outcome, InfeasibleError) or not addition
        message = f"{part.kind} {part.number} has failed: {outcome}"
        if is_over:
            failure.searched_state = self.controller.state
        else:
            message += addition
        if message != failure.message:
            failure.message = message
            self.on_event(WatchEvent("unanswered", message))

    def _carry_out(self, parts: Sequence[RackPart], proposal: Proposal) -> None:
        """Report the answer to the failure of some parts, and send it if `may_apply` allows that.

        The failures are open no more: the parts leave ``_open_failures``. An answer that is sent
        goes on record first; `_play_transition` returns its last change, for `_expect_tuned` to
        wait for.
        """
        failures = [self._open_failures.pop(part) for part in parts]
        began_s = min(failure.began_s for failure in failures)
        for part in parts:
            self.on_event(WatchEvent("failed", f"{part.kind} {part.number} has failed"))

        named = ", ".join(f"{part.kind} {part.number}" for part in parts)
        message = f"{named}: {proposal.transition.summary()}"
        if not self.may_apply:
            self.on_event(WatchEvent("proposed", message))
            return
        self.controller.apply(proposal)  # on record before anything is sent
        sent = self._play_transition(proposal)
        self._expect_tuned("repaired", message, sent, began_s)
        self._check_tuning()

    def _play_transition(self, proposal: Proposal) -> list[tuple[int, Difference]]:
        """Send an applied transition to the switches, in the order of its steps.

        Steps that follow each other are one change as long as no circuit goes dark after another
        has been raised: within a change removals come first anyway. Each change but the last one
        is waited for. The result is the last one: the number of each switch that changed, and the
        circuits that were removed and added there.
        """
        # The state that the proposal was made for, with the parts that failed in it.
        problem = add_failure(proposal.state, proposal.failure)

        # ``plans[index].matchings[k]``: the circuits of a switch in state k, which
        # `_last_states_of_changes` counts. `before` is the state that the switches have so far,
        # `last` the one that the next change leads to.
        plans = switches_of_transition(problem, proposal.transition)
        steps = proposal.transition.steps[:, 0].tolist()

        before = 0
        sent: list[tuple[int, Difference]] = []
        for last in _last_states_of_changes(steps):
            # Switches change side by side; the next change waits for all of them.
            for index, difference in sent:
                switch = self._switches[index]
                assert switch is not None
                tuning = switch.wait(difference.additions, self.time_limit_s)
                for circuit, status in tuning.status_of_untuned.items():
                    self._tell_untuned(index, circuit, status)
            sent = []

            # Each switch is sent the circuits that differ.
            for index, plan in enumerate(plans):
                if np.array_equal(plan.matchings[before], plan.matchings[last]):
                    continue
                ports = self._plans[index].ports
                old_circuits = ports.circuits_of(plan.matchings[before])
                new_circuits = ports.circuits_of(plan.matchings[last])
                sent.append((index, difference_between(old_circuits, new_circuits)))

            # Switches change side by side, as each may wait for its removals. If one has to
            # change that is not watched, nothing is sent.
            calls: list[Callable[[], object]] = []
            for index, difference in sent:
                switch = self._switches[index]
                if switch is None:
                    name = self._plans[index].plan.name
                    raise SwitchError(f"{name} has to change, and is not watched")
                calls.append(partial(switch.apply, difference))
            run_side_by_side(calls)
            for index, difference in sent:
                self._drop_removed(index, difference)

            before = last
        return sent

    def _tell_untuned(self, index: int, circuit: CrossConnect, status: str) -> None:
        """Tell that a circuit carries no light; a port that has failed is answered by a look."""
        name = self._plans[index].plan.name
        self.on_event(WatchEvent("untuned", f"{name}: circuit {circuit.name} is {status}"))

    def _expect_tuned(
        self,
        event: str,
        message: str,
        sent: Sequence[tuple[int, Difference]],
        began_s: float,
    ) -> None:
        """Note a change that was sent, so that `_check_tuning` tells when all of it is tuned.

        `sent` has the number of each switch that changed, with the difference that it was sent:
        the circuits that it added are those to be tuned. The other arguments are fields of
        `_SentChange`.
        """
        additions = {index: difference.additions for index, difference in sent}
        give_up_s = time.monotonic() + self.time_limit_s
        self._tuning.append(_SentChange(event, message, additions, began_s, give_up_s))

    def _drop_removed(self, index: int, difference: Difference) -> None:
        """Expect circuits of earlier changes no more that a change of a switch has removed.

        Earlier changes without a circuit left are dropped.
        """
        removed = set(difference.removals)
        still_expected: list[_SentChange] = []
        for sent in self._tuning:
            circuits = sent.untuned.get(index, ())
            remaining = tuple(circuit for circuit in circuits if circuit not in removed)
            is_shortened = len(remaining) < len(circuits)
            if is_shortened:
                sent.untuned[index] = remaining

            # A change whose last dark circuits are removed never carried light as a whole: nothing
            # is told of it. One that has added no circuit is told by the next check.
            if not is_shortened or any(sent.untuned.values()):
                still_expected.append(sent)
        self._tuning = still_expected

    def _check_tuning(self) -> None:
        """Tell which of the changes that were sent are tuned by now, and which never will be.

        It does not wait. A circuit that has failed is told as untuned at once; the other circuits
        of its change are still expected until the time of the change is over, when those that are
        dark are told. `_tuning` keeps the changes with circuits that are still expected.
        """
        now_s = time.monotonic()
        still_tuning: list[_SentChange] = []
        for sent in self._tuning:
            is_over = now_s >= sent.give_up_s
            for index in sent.untuned:
                statuses = self._untuned_now(index, sent)
                for circuit, status in statuses.items():
                    if status == "failed" or is_over:
                        self._tell_untuned(index, circuit, status)

                # A circuit that has failed is told once, and not expected any more.
                sent.untuned[index] = tuple(
                    circuit for circuit, status in statuses.items() if status != "failed"
                )
                if len(sent.untuned[index]) < len(statuses):
                    sent.has_failed = True

            if any(sent.untuned.values()):
                if not is_over:
                    still_tuning.append(sent)
            elif not sent.has_failed:
                self.on_event(WatchEvent(sent.event, sent.message, now_s - sent.began_s))
        self._tuning = still_tuning

    def _untuned_now(self, index: int, sent: _SentChange) -> Mapping[CrossConnect, str]:
        """Return the status of each circuit of a change that is not tuned yet on a switch.

        A switch that cannot be read at present says nothing new: all its circuits stay, with words
        that tell why, and the next look tells that it is lost.
        """
        switch = self._switches[index]
        assert switch is not None
        circuits = sent.untuned[index]
        if index in self._lost:
            return dict.fromkeys(circuits, "on a switch that is lost")
        try:
            return switch.wait(circuits, 0.0).status_of_untuned
        except SwitchError:
            return dict.fromkeys(circuits, "on a switch that cannot be read")

    def _watched(self) -> list[tuple[int, Switch]]:
        """List the switches that are watched, by their place among those of the state."""
        return [
            (index, switch) for index, switch in enumerate(self._switches) if switch is not None
        ]

    def _claim(self) -> None:
        """Renew the claims on the switches now and then, if they may be changed."""
        if self.may_apply and time.monotonic() >= self._next_claim_s:
            self._next_claim_s = time.monotonic() + CLAIM_EVERY_S
            for index, switch in self._watched():
                if index not in self._lost:
                    switch.claim(self._owner)
                    self._claimed.add(index)


def _last_states_of_changes(steps: Sequence[int]) -> list[int]:
    """Return the states to which changes lead, one for each change, ascending.

    ``steps[k]`` is the kind of step k.

    A transition goes from the old circuits to the new ones in steps, each of which darkens one
    circuit (`DROP`), raises one (`RAISE`) or sets a cell. State 0 is the beginning, state 1 is
    without the circuits that the failure hit, and state k + 2 comes after step k, as
    `switches_of_transition` counts them. Steps go out together as long as possible: a new change
    begins with a circuit that goes dark after another one was raised. Steps of kinds DROP, RAISE,
    DROP, RAISE are two changes, which end with states 3 and 5.
    """
    lasts = []
    has_raised = False
    for step, kind in enumerate(steps):
        if kind == DROP and has_raised:
            lasts.append(step + 1)  # the state before this step
            has_raised = False
        has_raised = has_raised or kind == RAISE
    return [*lasts, len(steps) + 1]

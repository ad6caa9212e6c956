"""Watching switches: a port that fails is a failure of a controller, whose answer is played.

The loop from a failed port to tuned circuits. A change is on record with the controller before it
is sent to a switch; after a crash at any point, the circuits of the record are compared with those
of the switches, and what differs is told or mended.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from optmatch.control.reroutes.answering import Proposal
from optmatch.control.reroutes.rerouter import Rerouter
from optmatch.fabrics import RackFabric
from optmatch.io.switches.circuits import CrossConnect, Difference, difference_between
from optmatch.io.switches.exports import NamedSwitch, name_ports
from optmatch.io.switches.plans import switches_of_state, switches_of_transition
from optmatch.io.switches.racks import RackPart, rack_nodes
from optmatch.io.text import digest
from optmatch.model import InfeasibleError, InputError, LimitReached
from optmatch.model.declarations import Amount, form_of
from optmatch.model.files import path_name
from optmatch.problems import Reroute
from optmatch.problems.reroutes.transition import DROP, RAISE
from optmatch.switches.matching import match_switches
from optmatch.switches.protocol import Switch, SwitchError
from optmatch.switches.threads import run_in_thread

_CLAIM_EVERY_S = 5.0


class WatchEvent(NamedTuple):
    """Something that a watcher has seen or done."""

    what: str
    """``differs``, ``mended``, ``failed``, ``proposed``, ``repaired``, ``unanswered``, ``lost`` (a
    switch cannot be read) or ``back``."""
    message: str
    time_s: float = 0.0
    """For ``repaired`` and ``mended``: from the reading that showed it to the last tuned
    circuit."""


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
        A table of the sides of ports.
    time_limit_s
        How long circuits may take to be tuned.
    on_event
        Is told of each event.

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

        self._known_parts: set[RackPart] = set()
        """Failed parts that the controller has been told of."""
        self._lost: set[int] = set()
        """Switches that could not be read at the last look."""
        self._owner = f"optmatch watch {_name_of_owner(controller)}"
        self._next_claim_s = 0.0

    def _state_plans(self, state: Reroute) -> tuple[NamedSwitch, ...]:
        """Return the switches of a state with the names of their ports."""
        return name_ports(switches_of_state(state), self._ports)

    def run_until(self, stop: threading.Event, *, poll_s: float = 0.02) -> None:
        """Compare switches and record, then watch until `stop` is set, or until Ctrl-C.

        A look that has begun is finished first: no change is left halfway.
        """
        run_in_thread(lambda: self._run(stop, poll_s), stop)

    def _run(self, stop: threading.Event, poll_s: float) -> None:
        try:
            self.reconcile()
            self._warm_up()
            while not stop.is_set():
                self.look()
                stop.wait(poll_s)
        finally:
            for switch in self._switches:
                if switch is not None and self.may_apply:
                    switch.release(self._owner)

    def _warm_up(self) -> None:
        """Ask for one answer ahead: the first one loads compiled kernels, which takes seconds."""
        state = self.controller.state
        if len(state.circuits):
            with suppress(InputError, InfeasibleError, LimitReached):
                self.controller.what_if(port=int(state.circuits[0, 0]))

    def reconcile(self) -> None:
        """Compare what the switches hold with the record of the controller.

        What differs is told; with `apply` it is mended, removals first.
        """
        self._claim()
        began_s = time.monotonic()
        plans = self._state_plans(self.controller.state)
        for index, switch in self._watched():
            present = self._own_circuits(index)
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
            self._wait(index, difference.additions)
            self.on_event(WatchEvent("mended", message, time.monotonic() - began_s))

    def look(self) -> None:
        """Read all switches once; answer the ports that have failed since the last look.

        A switch that cannot be read is passed over and told once, and told again when it is back.

        Raises
        ------
        SwitchError
            If an answer cannot be carried out on a switch.
        """
        self._claim()
        began_s = time.monotonic()

        # Gather the failed parts of all switches that can be read.
        failed: list[RackPart] = []
        for index, switch in self._watched():
            try:
                statuses = switch.read_statuses()
            except SwitchError as error:
                if index not in self._lost:
                    self.on_event(WatchEvent("lost", str(error)))
                self._lost.add(index)
                continue
            if index in self._lost:
                self._lost.discard(index)
                self.on_event(WatchEvent("back", f"{switch.name}: can be read again"))

            port_of_side = self._plans[index].ports.port_of_side
            for side, status in statuses.items():
                if status == "failed" and side in port_of_side:
                    failed.append(self._part_of(index, port_of_side[side], side))

        # Answer each part once, however many sides report it.
        for part in dict.fromkeys(failed):
            if part not in self._known_parts:
                self._known_parts.add(part)
                self._answer(part, began_s)

    def _part_of(self, index: int, port: int, side: str) -> RackPart:
        """Return the part of the state that is at a side of a switch."""
        fabric = self.controller.state.fabric
        if isinstance(fabric, RackFabric):
            return rack_nodes(fabric).part_at(index, port, is_input=side.endswith("A"))
        return RackPart("port", port)

    def _answer(self, part: RackPart, began_s: float) -> None:
        """Ask the controller for a way over a failure, and go it if that is allowed.

        Parameters
        ----------
        part
            The port or fibre that has failed.
        began_s
            When the failure was read, on the monotonic clock.
        """
        named = f"{part.kind} {part.number}"
        try:
            if part.kind == "port":
                proposal = self.controller.fail(port=part.number)
            else:
                proposal = self.controller.fail(fibre=part.number)
        except InputError:
            return  # the record has this failure already, as after a restart
        except (InfeasibleError, LimitReached) as error:
            self.on_event(WatchEvent("unanswered", f"{named} has failed: {error}"))
            return

        self.on_event(WatchEvent("failed", f"{named} has failed"))
        summary = proposal.transition.summary()
        if not self.may_apply:
            self.on_event(WatchEvent("proposed", summary))
            return
        self.controller.apply(proposal)  # on record before anything is sent
        self._play_transition(proposal)
        self.on_event(WatchEvent("repaired", summary, time.monotonic() - began_s))

    def _play_transition(self, proposal: Proposal) -> None:
        """Send a transition to the switches, in the order of its steps.

        Steps that follow each other are one change as long as no circuit goes dark after another
        has been raised: within a change removals come first anyway.
        """
        problem = _with_failure(proposal)
        plans = name_ports(switches_of_transition(problem, proposal.transition), self._ports)
        steps = proposal.transition.steps[:, 0].tolist()

        before = 0
        for last in _last_states_of_changes(steps):
            changed: list[tuple[int, Difference]] = []
            for index, plan in enumerate(plans):
                difference = difference_between(plan.circuits(before), plan.circuits(last))
                switch = self._switches[index]
                if difference.is_empty:
                    continue
                if switch is None:
                    raise SwitchError(f"{plan.plan.name} has to change, and is not watched")
                switch.apply(difference)
                changed.append((index, difference))

            # Switches change side by side; the next change waits for all of them.
            for index, difference in changed:
                self._wait(index, difference.additions)
            before = last

    def _wait(self, index: int, circuits: Sequence[CrossConnect]) -> None:
        """Wait until circuits of a switch are tuned."""
        switch = self._switches[index]
        assert switch is not None
        tuning = switch.wait(circuits, self.time_limit_s)
        for circuit, status in tuning.status_of_untuned.items():
            raise SwitchError(
                f"{switch.name}: circuit {circuit.name} is {status} after {tuning.delay_s:.3g} s"
            )

    def _own_circuits(self, index: int) -> frozenset[CrossConnect]:
        """Return the circuits of a switch that have a side of ours."""
        switch = self._switches[index]
        assert switch is not None
        own_sides = self._own_sides[index]
        return frozenset(
            circuit
            for circuit in switch.read_circuits()
            if circuit.a_side in own_sides or circuit.b_side in own_sides
        )

    def _watched(self) -> list[tuple[int, Switch]]:
        """List the switches that are watched, by their place among those of the state."""
        return [
            (index, switch) for index, switch in enumerate(self._switches) if switch is not None
        ]

    def _claim(self) -> None:
        """Renew the claims on the switches now and then, if they may be changed."""
        if self.may_apply and time.monotonic() >= self._next_claim_s:
            self._next_claim_s = time.monotonic() + _CLAIM_EVERY_S
            for _, switch in self._watched():
                switch.claim(self._owner)


def _name_of_owner(controller: Rerouter) -> str:
    """Return a name under which switches are claimed.

    The files of a controller are open in one process alone. Whoever can open them knows that the
    former watcher has ended, and has its name, so that its claims need not expire first.
    """
    if controller.path is None:
        return uuid.uuid4().hex[:12]
    place = f"{socket.gethostname()}:{controller.path.resolve()}"
    return digest(place.encode())[:12]


def _with_failure(proposal: Proposal) -> Reroute:
    """Return the state that a proposal was made for, with the failure in it."""
    state = proposal.state
    failed: dict[str, Any] = {
        name: (*getattr(state, name), *parts)
        for name, parts in proposal.failure._asdict().items()
        if parts
    }
    return dataclasses.replace(state, **failed)


def _last_states_of_changes(steps: Sequence[int]) -> list[int]:
    """Return the states after which a change is sent, by the states of `switches_of_transition`.

    State 1 is without the circuits that the failure hit, state k + 2 after step k. A new change
    begins with a circuit that goes dark after another one was raised.
    """
    lasts = []
    has_raised = False
    for step, kind in enumerate(steps):
        if kind == DROP and has_raised:
            lasts.append(step + 1)  # the state before this step
            has_raised = False
        has_raised = has_raised or kind == RAISE
    return [*lasts, len(steps) + 1]

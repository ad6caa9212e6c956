"""From a failed port to tuned circuits, on stand-ins of SONiC switches over a real database."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.io.switches.circuits import PortTable
from optmatch.io.switches.plans import switches_of_state
from optmatch.model import LimitReached, TimeUp, check_time
from optmatch.switches import (
    CrossConnect,
    Difference,
    DrySwitch,
    SonicSwitch,
    SwitchError,
    Watcher,
    WatchEvent,
)
from optmatch.switches.protocol import Tuning
from optmatch.switches.reroutes.watcher import StatusReader
from tests.helpers.sonic_agent import needs_redis, sonic_switch


def ring_state(n_ports: int, n_used: int) -> om.Reroute:
    """Return a ring of circuits on an ideal switch, with the other ports as spares."""
    circuits = [[port, (port + 1) % n_used] for port in range(n_used)]
    return om.Reroute(om.IdealSwitch(n_ports), circuits, spares=tuple(range(n_used, n_ports)))


def set_up(switch: Any, state: om.Reroute) -> None:
    """Set the circuits of a state."""
    (held,) = switches_of_state(state)
    table = PortTable.numbered(held.matchings.shape[1])
    switch.apply(Difference((), table.circuits_of(held.matchings[0])))


def names_for(state: om.Reroute) -> set[str]:
    """Name the circuits of a state of one switch."""
    return {f"{source + 1}A-{destination + 1}B" for source, destination in state.circuits.tolist()}


class FailingSwitch(DrySwitch):
    """A rehearsal whose sides can fail."""

    def __init__(self) -> None:
        super().__init__(write=lambda line: None)
        self.failed_sides: set[str] = set()
        self.untuned_sides: set[str] = set()
        self.broken_sides: set[str] = set()
        self.is_gone = False

    def read_statuses(self) -> dict[str, str]:
        """Return the status of sides, of which some have failed; nothing, if it is gone."""
        if self.is_gone:
            raise SwitchError("dry: cannot be reached")
        return super().read_statuses() | dict.fromkeys(self.failed_sides, "failed")

    def wait(self, circuits: Sequence[CrossConnect], time_limit_s: float) -> Tuning:
        """Return at once; circuits of some sides are never tuned, those of others have failed."""
        if self.is_gone:
            raise SwitchError("dry: cannot be reached")
        untuned = dict(super().wait(circuits, time_limit_s).status_of_untuned)
        for circuit in circuits:
            if self.untuned_sides.intersection(circuit):
                untuned[circuit] = "tuning"
            if self.broken_sides.intersection(circuit):
                untuned[circuit] = "failed"
        return Tuning(0.0, untuned)


def watched(state: om.Reroute, **options: Any) -> tuple[Watcher, FailingSwitch, list[WatchEvent]]:
    """Return a watcher of a rehearsal that holds the state, and the events it will tell."""
    switch = FailingSwitch()
    set_up(switch, state)
    events: list[WatchEvent] = []
    watcher = Watcher(om.Rerouter(state), switch, on_event=events.append, **options)
    return watcher, switch, events


def fail(watcher: Watcher, switch: FailingSwitch, *sides: str) -> None:
    """Let sides fail, and the watcher look."""
    switch.failed_sides.update(sides)
    watcher.look()


def test_a_failed_port_is_repaired() -> None:
    watcher, switch, events = watched(ring_state(8, 6), apply=True)
    watcher.look()
    assert events == []
    fail(watcher, switch, "3B")
    watcher.look()
    assert [event.what for event in events] == ["failed", "repaired"]
    state = watcher.controller.state
    assert state.failed_ports == (2,) and 2 not in state.circuits
    assert {circuit.name for circuit in switch.read_circuits()} == names_for(state)


def test_answers_are_only_told_by_default() -> None:
    state = ring_state(8, 6)
    watcher, switch, events = watched(state)
    fail(watcher, switch, "3A")
    assert [event.what for event in events] == ["failed", "proposed"]
    assert {circuit.name for circuit in switch.read_circuits()} == names_for(state)


def test_too_many_failures_are_told() -> None:
    watcher, switch, events = watched(ring_state(5, 4), apply=True)
    fail(watcher, switch, "1A", "2A")
    assert [event.what for event in events] == ["failed", "repaired", "unanswered"]
    assert "no spare" in events[-1].message or "spares" in events[-1].message


def test_a_switch_that_is_gone_comes_back() -> None:
    watcher, switch, events = watched(ring_state(6, 4))
    switch.is_gone = True
    watcher.look()
    watcher.look()
    switch.is_gone = False
    watcher.look()
    assert [event.what for event in events] == ["lost", "back"]


def test_a_restart_mends_what_a_crash_left() -> None:
    """After each step of a repair that was cut off, the circuits of the record are set."""
    state = ring_state(8, 6)
    controller = om.Rerouter(state)
    controller.apply(controller.fail(port=2))
    wanted = names_for(controller.state)
    for there in (names_for(state), names_for(state) & wanted, wanted, set[str]()):
        circuits = [CrossConnect(*name.split("-")) for name in there]
        switch = DrySwitch(circuits, write=lambda line: None)
        events: list[WatchEvent] = []
        told = Watcher(controller, switch, on_event=events.append)
        told.reconcile()
        assert [event.what for event in events] == ([] if there == wanted else ["differs"])
        Watcher(controller, switch, apply=True).reconcile()
        assert {circuit.name for circuit in switch.read_circuits()} == wanted


def test_chips_of_a_rack() -> None:
    """A port of a chip and a fibre fail; all servers follow, and hold what the state says."""
    state = om.fill_rack(om.RackFabric())
    switches: dict[str, Any] = {}
    for planned in switches_of_state(state):
        table = PortTable.numbered(planned.matchings.shape[1])
        switches[planned.name] = FailingSwitch()
        switches[planned.name].apply(Difference((), table.circuits_of(planned.matchings[0])))
    events: list[WatchEvent] = []
    watcher = Watcher(om.Rerouter(state), switches, apply=True, on_event=events.append)
    fail(watcher, switches["server 0"], "2A")
    fail(watcher, switches["server 3"], "30A")
    assert [event.what for event in events].count("repaired") == 2, events
    after = watcher.controller.state
    assert after.failed_ports and after.failed_fibres
    for planned in switches_of_state(after):
        table = PortTable.numbered(planned.matchings.shape[1])
        held = set(switches[planned.name].read_circuits())
        assert held == set(table.circuits_of(planned.matchings[0]))


@needs_redis
@pytest.mark.slow
def test_on_a_real_database(tmp_path: Path) -> None:
    n_ports = 32
    state = ring_state(n_ports, 28)
    with sonic_switch(tmp_path, n_ports, delay_s=0.02) as (server, agent):
        sonic = SonicSwitch(server.url)
        set_up(sonic, state)
        assert not sonic.wait(sonic.read_circuits(), 10.0).status_of_untuned
        events: list[WatchEvent] = []
        controller = om.Rerouter.open(tmp_path / "state", state)
        watcher = Watcher(controller, sonic, apply=True, on_event=events.append)
        stop = threading.Event()
        thread = threading.Thread(target=lambda: watcher.run_until(stop))
        thread.start()
        for number, port in enumerate((3, 9, 20), 1):
            agent.fail(f"{port + 1}A")
            wait_until(lambda: len(events) == 2 * number)  # noqa: B023 - called in this round
        stop.set()
        thread.join(20)
        controller.close()
        assert [event.what for event in events] == ["failed", "repaired"] * 3
        assert agent.violations == []
        names = {circuit.name for circuit in sonic.read_circuits()}
        reopened = om.Rerouter.open(tmp_path / "state")
        assert names == names_for(reopened.state)
        assert set(np.flatnonzero(np.isin(range(n_ports), (3, 9, 20)))) == set(
            reopened.state.failed_ports
        )
        reopened.close()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds, for twenty seconds at most."""
    give_up_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def test_failures_that_are_read_together_are_one_change() -> None:
    watcher, switch, events = watched(ring_state(10, 6), apply=True)
    changes: list[Difference] = []
    apply = switch.apply
    switch.apply = lambda change: (changes.append(change), apply(change))  # type: ignore
    fail(watcher, switch, "2A", "4A")
    assert [event.what for event in events] == ["failed", "failed", "repaired"]
    assert events[-1].message.startswith("port 1, port 3: ")
    assert len(changes) == 1
    assert watcher.controller.state.failed_ports == (1, 3)


def test_a_failure_without_a_quick_answer_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Searches for port 0 never end by themselves: the next failure interrupts them."""
    watcher, switch, events = watched(ring_state(10, 6), apply=True)
    search = watcher.controller._ask

    def ask(call: str, failure: Any, deadline_s: float | None, *, report: bool) -> Any:
        if failure.failed_ports == (0,) and watcher.controller.state.failed_ports != (3,):
            if deadline_s is not None:
                raise LimitReached(f"no way was found within {deadline_s:g} s")
            if "4A" in switch.failed_sides:
                raise AssertionError("the failure of port 3 waits")
            switch.failed_sides.add("4A")
            while True:
                try:
                    check_time()
                except TimeUp:
                    raise LimitReached("interrupted") from None
        return search(call, failure, deadline_s, report=report)

    monkeypatch.setattr(watcher.controller, "_ask", ask)
    fail(watcher, switch, "1A")
    assert [event.what for event in events] == ["unanswered"]
    assert events[0].message.endswith("; the search goes on")
    assert watcher.search_on(poll_s=0.0)
    watcher.look()
    assert [event.what for event in events[1:]] == ["failed", "repaired"]
    assert events[-1].message.startswith("port 3: ")

    # The search for port 0 goes on in the new state, and there it finds a way.
    assert watcher.search_on(poll_s=0.0)
    assert [event.what for event in events[3:]] == ["failed", "repaired"]
    assert not watcher.search_on(poll_s=0.0)


def test_what_is_proved_is_not_searched_again_before_the_state_changes() -> None:
    watcher, switch, events = watched(ring_state(6, 5), apply=True)
    fail(watcher, switch, "1A", "2A", "3A")
    what = [event.what for event in events]
    assert what == ["failed", "repaired", "unanswered", "unanswered"]
    assert not watcher.search_on()

    # Port 5 has taken over for port 0. A repaired port is a spare, which answers one failure.
    watcher.controller.repair(port=0)
    assert watcher.search_on()
    watcher.search_on()
    assert [event.what for event in events[4:]] == ["failed", "repaired"]
    assert not watcher.search_on()


def test_a_spare_that_fails_while_it_is_tuned_is_replaced_in_turn() -> None:
    """The first repair never carries light; only the second one, which removes it, is told."""
    watcher, switch, events = watched(ring_state(9, 6), apply=True)
    switch.untuned_sides |= {"7A", "7B"}
    fail(watcher, switch, "3A")
    assert [event.what for event in events] == ["failed"]
    fail(watcher, switch, "7A")
    assert [event.what for event in events] == ["failed", "failed", "repaired"]
    assert events[-1].message.startswith("port 6: ")
    state = watcher.controller.state
    assert state.failed_ports == (2, 6)
    assert {circuit.name for circuit in switch.read_circuits()} == names_for(state)


def test_a_switch_that_goes_away_while_it_is_tuning_is_lost_and_comes_back() -> None:
    """It goes away between two looks, when only its circuits are asked for."""
    watcher, switch, events = watched(ring_state(8, 6), apply=True)
    switch.untuned_sides.add("7A")
    fail(watcher, switch, "3A")
    switch.is_gone = True
    watcher._check_tuning()
    watcher.look()
    assert [event.what for event in events] == ["failed", "lost"]
    switch.is_gone = False
    switch.untuned_sides.clear()
    watcher.look()
    assert [event.what for event in events] == ["failed", "lost", "back", "repaired"]


def test_a_claim_that_cannot_be_given_up_hides_no_error_and_keeps_no_other_switch() -> None:
    released: list[str] = []

    class LostSwitch(FailingSwitch):
        """A switch that is gone when its claim is given up."""

        def release(self, owner: str) -> None:
            """Note that it is asked, and fail."""
            released.append(owner)
            raise SwitchError("dry: cannot be reached")

    state = om.fill_rack(om.RackFabric())
    switches: dict[str, Any] = {}
    for planned in switches_of_state(state):
        table = PortTable.numbered(planned.matchings.shape[1])
        switches[planned.name] = LostSwitch()
        switches[planned.name].apply(Difference((), table.circuits_of(planned.matchings[0])))
    watcher = Watcher(om.Rerouter(state), switches, apply=True)

    def refuse() -> None:
        raise SwitchError("the error that has ended the watch")

    watcher.look = refuse  # type: ignore[method-assign]
    with pytest.raises(SwitchError, match="the error that has ended the watch"):
        watcher.run_until(threading.Event())
    assert len(released) == len(switches) > 1


@pytest.mark.parametrize("is_late", [True, False])
def test_a_failed_circuit_hides_no_dark_one_and_no_repair_is_told(is_late: bool) -> None:
    """Port 6 takes over with two circuits: one fails, the other one is late or never tuned."""
    watcher, switch, events = watched(ring_state(8, 6), apply=True)
    switch.broken_sides.add("7B")
    switch.untuned_sides.add("7A")
    fail(watcher, switch, "3A")
    watcher.look()
    assert [event.what for event in events] == ["failed", "untuned"]
    assert "-7B is failed" in events[-1].message
    if is_late:
        switch.untuned_sides.clear()
    else:
        watcher._tuning[0].give_up_s = time.monotonic()
    watcher.look()
    assert [event.what for event in events[2:]] == ([] if is_late else ["untuned"])
    assert is_late or "circuit 7A-" in events[-1].message
    assert not watcher._tuning


def test_circuits_that_are_never_tuned_are_told_and_hold_up_nothing() -> None:
    watcher, switch, events = watched(ring_state(9, 6), apply=True, time_limit_s=0.0)
    switch.untuned_sides.add("7A")
    fail(watcher, switch, "3A")
    assert [event.what for event in events] == ["failed", "untuned"]
    assert "circuit 7A-" in events[-1].message and "is tuning" in events[-1].message
    fail(watcher, switch, "1A")
    assert [event.what for event in events[2:]] == ["failed", "repaired"]


def test_a_failure_that_nothing_was_done_for_is_forgotten_when_the_port_works_again() -> None:
    watcher, switch, events = watched(ring_state(4, 4), apply=True)
    fail(watcher, switch, "1A")
    assert [event.what for event in events] == ["unanswered"]
    assert watcher.controller.refused
    switch.failed_sides.clear()
    watcher.look()
    assert [event.what for event in events] == ["unanswered", "recovered"]
    assert not watcher.controller.refused
    fail(watcher, switch, "1A")
    assert [event.what for event in events[2:]] == ["unanswered"]


def test_a_replaced_port_that_works_again_stays_out_of_use() -> None:
    watcher, switch, events = watched(ring_state(8, 6), apply=True)
    fail(watcher, switch, "3A")
    switch.failed_sides.clear()
    watcher.look()  # the side has no circuit, which says nothing of its light
    assert [event.what for event in events] == ["failed", "repaired"]
    switch.apply(Difference((), (CrossConnect("3A", "3B"),)))
    watcher.look()
    assert "stays out of use" in events[-1].message
    assert watcher.controller.state.failed_ports == (2,)
    fail(watcher, switch, "3A")
    assert [event.what for event in events] == ["failed", "repaired", "recovered"]


def test_a_switch_that_does_not_answer_holds_up_the_others_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One reading of the first switch takes until the test ends."""
    monkeypatch.setattr("optmatch.switches.reroutes.watcher._LONGEST_READING_S", 0.2)
    ended = threading.Event()

    class SilentSwitch(FailingSwitch):
        """A switch that never answers."""

        def read_statuses(self) -> dict[str, str]:
            """Return nothing, at the end."""
            ended.wait(60)
            return {}

    reader = StatusReader({0: SilentSwitch(), 1: FailingSwitch()})
    for _number in range(3):
        statuses, errors = reader.read()
        assert list(statuses) == [1] and list(errors) == [0]
        assert "no answer within 0.2 s" in errors[0]
    assert len(reader._unanswered) == 1
    ended.set()
    reader.close()


@needs_redis
@pytest.mark.slow
def test_a_dark_port_that_fails_is_read_at_once(tmp_path: Path) -> None:
    """The state says nothing of a port without a circuit, until it fails."""
    with sonic_switch(tmp_path, 4) as (server, agent):
        sonic = SonicSwitch(server.url)
        assert "2B" not in sonic.read_statuses()
        agent.fail("2B")
        wait_until(lambda: agent.state.exists("OCS_PORT|2B") == 1)
        assert sonic._next_whole_reading_s > time.monotonic(), "no whole reading was due"
        assert sonic.read_statuses()["2B"] == "failed"
        sonic.close()

"""The record of failures against a plain model of it: random events, in one or several threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import InfeasibleError, LimitReached
from optmatch.solvers.reroutes.states import fill_rack, hold_matching
from tests.control.reroutes.test_rerouter import mesh_state, rack_state
from tests.helpers.modes import examples

Part = tuple[str, int]
THREADS = 4
KINDS = {"failed_chips": "chip", "failed_ports": "port", "failed_fibres": "fibre"}
KINDS |= {"dead_cells": "cell", "stuck_bar": "cell", "stuck_cross": "cell"}


@cache
def pod_state() -> om.Reroute:
    """Put a job on four of eight small cubes, whose chips no light passes."""
    pod = om.RackFabric((2, 2, 2), (1, 1, 1), fibres=1, racks=8, joined=True, through=False)
    return fill_rack(pod, [((0, 0, 0), (4, 4, 2))])


def parts_of(holder: Any) -> set[Part]:
    """List the failed parts of a state or a failure, cells whatever is wrong with them."""
    return {(kind, part) for field, kind in KINDS.items() for part in getattr(holder, field)}


def used_by(state: om.Reroute, transition: om.Transition) -> Iterator[Part]:
    """List the parts that the new routes pass, the units that take over, and all their ports."""
    fabric = state.units
    for lost, spare in transition.moves.tolist():
        yield fabric.unit_name, spare
        circuits = state.circuits[transition.changed]
        for old, new in zip(circuits.ravel(), transition.circuits.ravel(), strict=True):
            if old // fabric.ports_per_unit == lost:
                yield "port", int(new)
    for circuit, route in zip(transition.changed.tolist(), transition.routes, strict=True):
        for at in route:
            if not fabric.through and at in state.routes[circuit]:
                continue  # the other end's, dark as it may be until its rack has gone too
            if state.cell_states is None:
                yield "fibre", at
                continue
            yield "cell", at // 4
            if fabric.fibre_of_terminal[at] >= 0:
                yield "fibre", int(fabric.fibre_of_terminal[at])


class Model:
    """The failed parts, as the reporter knows them: a plain set, beside the controller."""

    def __init__(self, controller: om.Rerouter) -> None:
        self.controller, self.lock = controller, threading.Lock()
        self.turns, self.entering = threading.Semaphore(THREADS), threading.Lock()
        self.failed: set[Part] = set()
        self.ended: list[Part] = []
        """Parts that were repaired, in their order."""
        self.wrong: list[str] = []
        self.proposals: list[Any] = []

    def look(self) -> tuple[set[Part], int]:
        """Return the parts on record now, and how many repairs there were."""
        with self.lock:
            return set(self.failed), len(self.ended)

    def judge(self, proposal: Any, known: tuple[set[Part], int], what: str) -> None:
        """Note an answer that uses what was on record before it was asked for, and still is."""
        with self.lock:
            closed = known[0].difference(self.ended[known[1] :])
        closed -= parts_of(proposal.failure)
        bad = closed.intersection(used_by(proposal.state, proposal.transition))
        if bad:
            self.wrong.append(f"{what} uses {sorted(bad)}")
        problem = replace(
            proposal.state,
            **{
                field: (*getattr(proposal.state, field), *more)
                for field, more in proposal.failure._asdict().items()
            },
        )
        if proposal.restored is None and not om.verify(problem, proposal.transition).ok:
            self.wrong.append(f"{what}: wrong answer to {proposal.failure}")

    def act(self, rng: np.random.Generator) -> None:
        """Do one thing at random."""
        draw, controller = rng.random(), self.controller
        if controller.state.hit.any():
            self.wrong.append("a state with dark circuits")
        if draw >= 0.95:
            with self.alone():
                self.rollback()
            return
        with self.turns:
            if draw < 0.5:
                self.fail(rng)
            elif draw < 0.65 and self.proposals:
                self.apply(self.proposals[int(rng.integers(len(self.proposals)))])
            elif draw < 0.85:
                self.repair(rng)
            elif draw < 0.9:
                known = self.look()
                for offer in controller.retry(deadline_s=0.1)[:2]:
                    self.judge(offer, known, "an offer")
                    self.apply(offer)
            else:
                for unit in list(controller.stand_ins)[:2]:
                    try:
                        self.apply(controller.give_back(unit, deadline_s=0.5))
                    except (om.InputError, InfeasibleError, LimitReached):
                        continue

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other thread does anything, and hold them up."""
        with self.entering:
            for _ in range(THREADS):
                self.turns.acquire()
        yield
        self.turns.release(THREADS)

    def rollback(self) -> None:
        """Undo a change; what waited then or was refused since waits."""
        controller = self.controller
        waiting = self.failed - parts_of(controller.state)
        try:
            after = controller.rollback()
        except om.InputError:
            return
        self.ended += sorted(self.failed)
        self.failed = waiting | parts_of(after)

    def fail(self, rng: np.random.Generator) -> None:
        """Report one part or two; apply the answer, or keep it for later."""
        fabric = self.controller.state.units
        counts = {
            "chip": fabric.n_chips,
            "port": self.controller.state.fabric.n_ports,
            "fibre": fabric.n_fibres,
        }
        counts |= {"cell": self.controller.state.fabric.n_cells}
        kinds = [kind for kind, count in counts.items() if count]
        kind = kinds[int(rng.integers(len(kinds)))]
        parts = rng.choice(counts[kind], int(rng.integers(1, 3)), replace=False).tolist()
        if kind == "fibre" and rng.random() < 0.2:  # all that lead to, or from, a server
            fabric_of: Any = fabric
            node = fabric_of.edges[fabric_of.edge_of_fibre[parts[0]], int(rng.integers(2))]
            parts = np.flatnonzero((fabric_of.edges[fabric_of.edge_of_fibre] == node).any(1))
        known = self.look()
        try:
            proposal = self.controller.fail(**{kind: parts}, deadline_s=0.1)
        except om.InputError:
            return  # one of them has failed
        except (InfeasibleError, LimitReached):
            self.add({(kind, int(part)) for part in parts}, known)
            return
        self.judge(proposal, known, f"fail({kind}={parts})")
        self.add({(kind, int(part)) for part in parts}, known)
        self.proposals = [*self.proposals[-20:], proposal]
        if rng.random() < 0.6:
            self.apply(proposal)

    def apply(self, proposal: Any) -> None:
        """Take it over; what is refused is out of date."""
        known = self.look()
        try:
            self.controller.apply(proposal)
        except om.InputError:
            return
        self.judge(proposal, known, "what was applied")
        if proposal.restored is None:  # nobody reported what is cut off; it comes back by itself
            cut_off = {("chip", unit) for unit in proposal.cut_off}
            self.add(parts_of(proposal.failure) - cut_off, known)

    def add(self, parts: set[Part], known: tuple[set[Part], int]) -> None:
        """Put parts on record, but for those that another thread has repaired since `known`."""
        with self.lock:
            self.failed |= parts.difference(self.ended[known[1] :])

    def repair(self, rng: np.random.Generator) -> None:
        """Repair something that has failed."""
        with self.lock:
            if not self.failed:
                return
            part = sorted(self.failed)[int(rng.integers(len(self.failed)))]
        self.forget(part)
        try:
            self.controller.repair(**{part[0]: part[1]})
        except om.InputError:
            return  # another thread was first
        finally:
            self.forget(part)  # reported again since, it may have been repaired with this

    def forget(self, part: Part) -> None:
        """Take a part off the record, also for those who have looked before."""
        with self.lock:
            self.failed.discard(part)
            self.ended.append(part)

    def end(self) -> None:
        """Compare the whole record, repair all, and see that nothing is stranded."""
        controller = self.controller
        waits = (*controller.refused, *controller.answered)
        on_record = parts_of(controller.state).union(*map(parts_of, waits))
        missing = self.failed - on_record
        if missing:
            self.wrong.append(f"not on record: {sorted(missing)}")
        answered = parts_of(controller.state)
        for event in waits:
            if parts_of(event) & answered:
                self.wrong.append(f"answered and waiting: {sorted(parts_of(event) & answered)}")
        for kind, part in sorted(on_record):
            waits = (*controller.refused, *controller.answered)
            still = parts_of(controller.state).union(*map(parts_of, waits))
            if (kind, part) in still:  # units that were cut off come back with the fibres
                controller.repair(**{kind: part})
        waits = (*controller.refused, *controller.answered)
        if waits or parts_of(controller.state) or controller.state.hit.any():
            self.wrong.append("something is on record after all was repaired")
        for _ in range(len(controller.stand_ins)):
            for unit in controller.stand_ins:
                try:
                    controller.apply(controller.give_back(unit, deadline_s=0.5))
                except (om.InputError, InfeasibleError, LimitReached):
                    continue
        idle = set(range(controller.state.n_units))
        idle -= set((controller.state.circuits // controller.state.units.ports_per_unit).ravel())
        if set(controller.state.spares) != idle:
            self.wrong.append(f"stranded: {sorted(idle.difference(controller.state.spares))}")


@pytest.mark.parametrize("state", [rack_state, mesh_state, pod_state])
@pytest.mark.parametrize("threads", [1, THREADS])
@pytest.mark.parametrize("seed", range(2))
def test_no_answer_uses_what_is_on_record(state: Any, threads: int, seed: int) -> None:
    """Refused, answered or reported since; nothing is forgotten, and nothing is stranded."""
    model = Model(om.Rerouter(state()))
    failures: list[BaseException] = []

    def work(rng: np.random.Generator) -> None:
        try:
            for _ in range(examples(40, plain=16) // threads):
                model.act(rng)
        except BaseException as exc:
            failures.append(exc)
            raise

    runs = [
        threading.Thread(target=work, args=(rng,))
        for rng in np.random.default_rng(seed).spawn(threads)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert not failures
    model.end()
    assert model.wrong == []


def refuse(controller: om.Rerouter, **failure: Any) -> None:
    """Report a failure that nothing helps."""
    with pytest.raises((InfeasibleError, LimitReached)):
        controller.fail(**failure)


def fibres_of(server: int) -> list[int]:
    """List the fibres that lead to a server of a rack, or from it."""
    fabric: Any = rack_state().fabric
    return np.flatnonzero((fabric.edges[fabric.edge_of_fibre] == server).any(axis=1)).tolist()


def test_a_spare_that_has_failed_since_does_not_take_over() -> None:
    """Whether its own failure was answered, or refused."""
    state = replace(rack_state(), spares=(60, 61))
    controller = om.Rerouter(state)
    proposal = controller.fail(chip=0)
    spare = int(proposal.transition.moves[0, 1])
    controller.fail(chip=spare)
    with pytest.raises(om.InputError, match=f"chip {spare} has failed since this was proposed"):
        controller.apply(proposal)
    controller.apply(controller.fail(chip=0))
    refuse(controller, chip=[5, 20])


def test_overlapping_failures_wait_for_their_rest() -> None:
    controller = om.Rerouter(replace(rack_state(), spares=(60,)))
    refuse(controller, chip=[1, 2])
    controller.apply(controller.fail(chip=1))
    assert [failure.failed_chips for failure in controller.refused] == [(2,)]
    assert not controller.offers
    controller.repair(chip=1)
    (offer,) = controller.offers
    assert offer.failure.failed_chips == (2,)
    controller.apply(offer)
    assert controller.refused == ()


def test_chips_of_a_server_without_fibres_have_stand_ins() -> None:
    state = replace(rack_state(), spares=(60, 61, 62, 63))
    controller = om.Rerouter(state)
    proposal = controller.fail(fibre=fibres_of(5))
    assert proposal.cut_off == proposal.failure.failed_chips == (20, 21, 22, 23)
    failed: dict[str, Any] = {
        "failed_fibres": tuple(fibres_of(5)),
        "failed_chips": proposal.cut_off,
    }
    assert om.verify(replace(state, **failed), proposal.transition).ok
    controller.apply(proposal)
    controller.repair(fibre=fibres_of(5)[0])
    assert controller.state.failed_chips == proposal.cut_off
    after = controller.repair(fibre=fibres_of(5)[1:])
    assert after.failed_chips == () and after.spares == proposal.cut_off


def test_chips_that_are_cut_off_wait_no_longer_than_their_fibres() -> None:
    """Nobody has reported them: a false report of fibres leaves nothing on record."""
    controller = om.Rerouter(rack_state())
    assert controller.fail(fibre=fibres_of(5)).cut_off
    controller.repair(fibre=fibres_of(5))
    assert controller.answered == controller.refused == ()


def test_a_chip_that_is_cut_off_can_be_reported(tmp_path: Path) -> None:
    """It stays failed when its server works again, also after a restart; nothing else changes."""
    state, path = replace(rack_state(), spares=(60, 61, 62, 63)), tmp_path / "rack.json"
    controller = om.Rerouter.open(path, state)
    before = controller.apply(controller.fail(fibre=fibres_of(5)))
    with pytest.raises(om.InputError, match="chip = 99"):
        controller.fail(chip=[21, 99])
    proposal = controller.fail(chip=20)
    assert not len(proposal.transition.changed) and not any(proposal.failure)
    controller.apply(proposal)
    assert controller.state.failed_chips == before.failed_chips
    with pytest.raises(om.InputError, match="chip 20 has failed already"):
        controller.fail(chip=20)
    controller.close()
    controller = om.Rerouter.open(path)
    after = controller.repair(fibre=fibres_of(5))
    assert after.failed_chips == (20,) and after.spares == (21, 22, 23)
    controller.close()


def test_a_report_of_its_own_outlives_a_rollback(tmp_path: Path) -> None:
    """Undo the change that cut a chip off: it was reported since, and waits; also in files."""
    state, path = replace(rack_state(), spares=(60, 61, 62, 63)), tmp_path / "rack.json"
    controller = om.Rerouter.open(path, state)
    controller.apply(controller.fail(fibre=fibres_of(5)))
    controller.apply(controller.fail(fibre=0))
    controller.fail(chip=20)
    controller.save(tmp_path / "saved.json")
    controller.close()
    saved = om.Rerouter.load(tmp_path / "saved.json")
    for again in (om.Rerouter.open(path), saved):
        assert again.rollback().failed_chips == (20, 21, 22, 23)
        after = again.rollback()
        assert not after.failed_chips and not after.failed_fibres
        assert [parts.failed_chips for parts in again.refused] == [(20,)]
        again.close()


def test_a_cut_is_proved_before_others_are_moved() -> None:
    """More circuits must leave the server than fibres are left: no search settles that."""
    controller = om.Rerouter(rack_state())
    with pytest.raises(InfeasibleError, match="more circuits must leave the servers"):
        controller.fail(fibre=[f for k, f in enumerate(fibres_of(5)) if k % 16])


def test_what_if_and_drain_put_nothing_on_record() -> None:
    """A drained part is out of use once that is applied, and comes back."""
    controller = om.Rerouter(rack_state())
    for ask in (controller.what_if, controller.drain):
        with pytest.raises(InfeasibleError):
            ask(chip=[0, 5, 10, 15, 20])
    assert controller.refused == ()
    asked = controller.what_if(chip=21)
    assert np.array_equal(asked.transition.moves, controller.drain(chip=21).transition.moves)
    assert controller.apply(controller.drain(chip=21, by_s=60.0)).failed_chips == (21,)
    assert 21 in controller.restore(chip=21).spares


def test_a_search_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one searches, others ask, apply and undo."""
    controller = om.Rerouter(rack_state())
    searching, go_on = threading.Event(), threading.Event()
    real = om.Rerouter.what_if.__globals__["find_answer"]

    def decide(now: Any, failure: Any, clock: Any, **more: Any) -> Any:
        if failure.failed_chips == (33,):
            searching.set()
            assert go_on.wait(60)
        return real(now, failure, clock, **more)

    monkeypatch.setitem(om.Rerouter.what_if.__globals__, "find_answer", decide)
    thread = threading.Thread(target=lambda: controller.what_if(chip=33))
    thread.start()
    assert searching.wait(60)
    controller.apply(controller.fail(chip=1))
    controller.rollback()
    assert controller.offers == ()
    go_on.set()
    thread.join(60)


def test_what_is_answered_is_on_record_before_it_is_applied() -> None:
    """No later answer uses it, also after another change; a repair or the answer ends that."""
    controller = om.Rerouter(replace(rack_state(), spares=(60, 61)))
    controller.fail(chip=60)
    assert [parts.failed_chips for parts in controller.answered] == [(60,)]
    proposal = controller.fail(chip=0)
    assert proposal.transition.moves.tolist() == [[0, 61]]
    controller.apply(proposal)
    refuse(controller, chip=5)
    assert [offer.failure.failed_chips for offer in controller.offers] == [(60,)]
    controller.rollback()
    assert [parts.failed_chips for parts in controller.answered] == [(60,)]
    controller.repair(chip=60)
    controller.fail(chip=[0, 60])
    controller.fail(chip=0)  # the other part is as it was
    assert sorted(parts.failed_chips for parts in controller.answered) == [(0,), (60,)]
    controller.apply(controller.fail(chip=[0, 60]))
    assert controller.answered == ()


def test_what_is_tried_again_ends_at_its_deadline() -> None:
    """No failure is looked at once the time is over, and the next call looks at all."""
    controller = om.Rerouter(rack_state())
    controller.fail(chip=60)
    assert controller.retry(deadline_s=0.0) == ()
    assert [offer.failure.failed_chips for offer in controller.retry()] == [(60,)]


def test_what_was_not_reached_is_tried_first_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With time for one failure each, as many calls as failures wait try them all."""
    controller = om.Rerouter(rack_state())
    for chip in (60, 61, 62):
        controller.fail(chip=chip)
    tried, clock = list[int](), SimpleNamespace(remaining_s=1.0)

    def decide(now: Any, failure: Any, clock: Any) -> Any:
        tried.append(failure.failed_chips[0])
        clock.remaining_s = 0.0
        return LimitReached("no way")

    monkeypatch.setitem(om.Rerouter.retry.__globals__, "find_answer", decide)
    monkeypatch.setitem(om.Rerouter.retry.__globals__, "start_clock", lambda _: clock)
    for _ in range(3):
        clock.remaining_s = 1.0
        controller.retry(deadline_s=1.0)
    assert sorted(tried) == [60, 61, 62]


def test_what_leaves_at_a_time_is_on_record() -> None:
    """With `by_s` a drained spare is closed at once, and what nothing helps stays on record."""
    controller = om.Rerouter(replace(rack_state(), spares=(60, 61)))
    controller.drain(chip=60, by_s=60.0)
    assert controller.what_if(chip=0).transition.moves.tolist() == [[0, 61]]
    with pytest.raises(InfeasibleError):
        controller.drain(chip=[1, 2], by_s=60.0)
    assert [parts.failed_chips for parts in controller.refused] == [(1, 2)]


# The timeline of a recovery adds up, and has a stage for each round of steps.


def test_the_stages_of_a_rack() -> None:
    """Switches are programmed at once; what was published for a prototype is an example."""
    controller = om.Rerouter(fill_rack(om.RackFabric()))
    proposal = controller.fail(chip=7)
    stages = proposal.timeline(program_s=1e-3, cell_s=1e-6, lock_s=2e-3, restart_s=1.1)
    count = len(proposal.transition.changed)
    names = ["detect", "decide", "program switches", f"raise circuits ({count})", "restart"]
    assert [stage.name for stage in stages] == names
    assert stages[1].end_s == proposal.decided_s > 0
    assert [stage.start_s for stage in stages[1:]] == [stage.end_s for stage in stages[:-1]]
    assert stages[-1].end_s == pytest.approx(proposal.decided_s + 1e-3 + 1e-6 + 2e-3 + 1.1)
    with pytest.raises(om.InputError, match="lock_s = -1"):
        proposal.timeline(lock_s=-1)


def test_the_rounds_of_a_mesh() -> None:
    state = hold_matching(om.HexMesh(5, 5, ports=12), [1, 0, 4, 6, 2, 8, 3, 9, 5, 7, -1, -1])
    proposal = om.Rerouter(state).fail(port=4)
    kinds = [kind for kind, _, _ in proposal.transition.steps.tolist()]
    rounds = [kind for k, kind in enumerate(kinds) if k == 0 or kinds[k - 1] != kind]
    stages = proposal.timeline(decide_s=0, program_s=1, cell_s=2, lock_s=10)
    assert stages[-1].end_s == 3 * rounds.count(1) + 10 * rounds.count(2)
    assert rounds.count(1) and rounds.count(2)

"""The record of failures: what waits, what was answered, and what comes back after repairs."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import InfeasibleError, LimitReached
from optmatch.solvers.reroutes.states import fill_rack, hold_matching
from tests.control.reroutes.test_rerouter import rack_state


def refuse(controller: om.Rerouter, **failure: Any) -> None:
    """Report a failure that nothing helps."""
    with pytest.raises((InfeasibleError, LimitReached)):
        controller.fail(**failure)


def fibres_of(server: int) -> list[int]:
    """List the fibres that lead to a server of a rack, or from it."""
    fabric: Any = rack_state().fabric
    return np.flatnonzero((fabric.edges[fabric.edge_of_fibre] == server).any(axis=1)).tolist()


@pytest.fixture
def controller() -> om.Rerouter:
    return om.Rerouter(rack_state())


def test_threads_undo_nothing_of_each_other(controller: om.Rerouter) -> None:
    """Each reports ten chips, applies what there are spares for, and repairs every other one."""

    def work(chips: range) -> None:
        for chip in chips:
            with suppress(om.OptMatchError):  # no spare is left, or the state has changed since
                controller.apply(controller.fail(chip=chip))
        for chip in chips[::2]:
            controller.repair(chip=chip)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, (range(k, k + 10) for k in (0, 10, 20, 30))))
    on_record = list(controller.state.failed_chips)
    for failure in (*controller.refused, *controller.answered):
        on_record += failure.failed_chips
    assert sorted(on_record) == list(range(1, 40, 2))
    assert not controller.state.hit.any()


def test_a_spare_that_has_failed_since_does_not_take_over() -> None:
    """Whether its own failure was answered, or refused."""
    state = replace(rack_state(), spares=(60, 61))
    controller = om.Rerouter(state)
    proposal = controller.fail(chip=0)
    spare = int(proposal.transition.moves[0, 1])
    controller.fail(chip=spare)
    with pytest.raises(om.InputError, match=f"outdated: chip {spare} has failed since") as said:
        controller.apply(proposal)
    assert said.value.where == "proposal" and "take one of `offers`" in said.value.message
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


def test_chips_that_are_cut_off_wait_no_longer_than_their_fibres(controller: om.Rerouter) -> None:
    """Nobody has reported them: a false report of fibres leaves nothing on record."""
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


def test_a_cut_is_proved_before_others_are_moved(controller: om.Rerouter) -> None:
    """More circuits must leave the server than fibres are left: no search settles that."""
    with pytest.raises(InfeasibleError, match="more circuits must leave the servers"):
        controller.fail(fibre=[f for k, f in enumerate(fibres_of(5)) if k % 16])


def test_what_if_and_drain_put_nothing_on_record(controller: om.Rerouter) -> None:
    """A drained part is out of use once that is applied, and comes back."""
    for ask in (controller.what_if, controller.drain):
        with pytest.raises(InfeasibleError):
            ask(chip=[0, 5, 10, 15, 20])
    assert controller.refused == ()
    asked = controller.what_if(chip=21)
    assert np.array_equal(asked.transition.moves, controller.drain(chip=21).transition.moves)
    assert controller.apply(controller.drain(chip=21, by_s=60.0)).failed_chips == (21,)
    assert 21 in controller.restore(chip=21).spares


def test_a_search_holds_nobody_up(
    controller: om.Rerouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one searches, others ask, apply and undo."""
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


def test_what_is_tried_again_ends_at_its_deadline(controller: om.Rerouter) -> None:
    """No failure is looked at once the time is over, and the next call looks at all."""
    controller.fail(chip=60)
    assert controller.retry(deadline_s=0.0) == ()
    assert [offer.failure.failed_chips for offer in controller.retry()] == [(60,)]


def test_what_was_not_reached_is_tried_first_next_time(
    controller: om.Rerouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With time for one failure each, as many calls as failures wait try them all."""
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

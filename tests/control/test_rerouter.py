"""The controller's view: what it proposes is right, and states follow what is applied."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import InfeasibleError, LimitReached
from optmatch.solvers.reroutes.states import fill_rack, hold_matching


@cache
def rack_state() -> om.Reroute:
    """Fill a rack but for four spares."""
    return fill_rack(om.RackFabric())


@cache
def mesh_state() -> om.Reroute:
    """Connect ten of twelve ports of a mesh."""
    return hold_matching(om.HexMesh(5, 5, ports=12), [1, 0, 4, 6, 2, 8, 3, 9, 5, 7, -1, -1])


FAILURES: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (rack_state, {"chip": 7}, {"failed_chips": (7,)}),
    (rack_state, {"chip": [7, 30, 61]}, {"failed_chips": (7, 30, 61)}),
    (rack_state, {"fibre": 5}, {"failed_fibres": (5,)}),
    (rack_state, {"port": 100}, {"failed_ports": (100,)}),
    (rack_state, {"chip": 7, "fibre": [1, 2]}, {"failed_chips": (7,), "failed_fibres": (1, 2)}),
    (mesh_state, {"port": 4}, {"failed_ports": (4,)}),
    (mesh_state, {"cell": 40}, {"dead_cells": (40,)}),
    (mesh_state, {"cell": 33, "stuck": "bar"}, {"stuck_bar": (33,)}),
    (mesh_state, {"cell": 52, "stuck": "cross"}, {"stuck_cross": (52,)}),
    (mesh_state, {"cell": 40, "port": 2}, {"dead_cells": (40,), "failed_ports": (2,)}),
]


@pytest.mark.parametrize(("state", "failure", "fields"), FAILURES)
@pytest.mark.parametrize("prepare", [False, True, "all"])
def test_its_answers_pass_the_verifier(
    state: Any, failure: dict[str, Any], fields: dict[str, Any], prepare: Any
) -> None:
    """Prepared or not, they answer the problem that names the same failure."""
    controller = om.Rerouter(state(), prepare=prepare)
    problem = replace(state(), **fields)
    transition = controller.fail(**failure)
    assert om.verify(problem, transition).ok
    assert controller.state == state()
    after = controller.apply()
    assert after == problem.after(transition) == controller.state
    assert not after.hit.any()


@pytest.mark.parametrize("state", [rack_state, mesh_state])
def test_all_that_is_prepared_is_what_would_be_worked_out(state: Any) -> None:
    """Every fibre and cell in use, also where nothing helps; asking again says it again."""
    ahead, later = (om.Rerouter(state(), prepare=p) for p in ("all", False))
    states, ways = state().cell_states, state().circuit_routes
    failures: list[dict[str, Any]] = []
    if states is None:
        failures = [{"fibre": fibre} for way in ways[:9] for fibre in way]
    for cell in {t // 4 for way in ways[:2] for t in way} if states is not None else ():
        failures += [{"cell": cell}, {"cell": cell, "stuck": "bar" if states[cell] else "cross"}]
    assert failures
    for failure in failures * 2:
        answers: list[Any] = []
        for controller in (ahead, later):
            try:
                answers.append(controller.fail(**failure))
            except (InfeasibleError, LimitReached) as exc:
                answers.append((type(exc), str(exc)))
        assert answers[0] == answers[1]


def test_every_chip_is_covered_by_any_spare() -> None:
    """One at a time, nobody of another job is disturbed."""
    for spare in rack_state().spares:
        state = replace(rack_state(), spares=(spare,))
        controller = om.Rerouter(state)
        for chip in range(0, 60, 7):
            transition = controller.fail(chip=chip)
            report = om.verify(replace(state, failed_chips=(chip,)), transition)
            assert report.ok
            assert report.figures["disturbed"] == 0


def test_failures_in_sequence_until_the_spares_are_gone() -> None:
    """Each takes a spare; the next has none."""
    controller = om.Rerouter(rack_state())
    for number, chip in enumerate((0, 20, 41, 59)):
        controller.fail(chip=chip)
        assert len(controller.apply().spares) == 3 - number
    with pytest.raises(InfeasibleError, match="1 units with circuits are lost, 0 live spares"):
        controller.fail(chip=33)
    assert sorted(controller.stand_ins) == [0, 20, 41, 59]


def test_a_stand_in_may_fail_too() -> None:
    """It is a chip like any other."""
    controller = om.Rerouter(rack_state())
    controller.fail(chip=0)
    controller.apply()
    (stand_in,) = controller.stand_ins.values()
    assert controller.fail(chip=stand_in).moves[0, 0] == stand_in
    assert not controller.apply().hit.any()


@pytest.mark.parametrize(
    ("state", "unit", "kind"), [(rack_state, 12, "chip"), (mesh_state, 4, "port")]
)
def test_repair_and_return(state: Any, unit: int, kind: str) -> None:
    """A repaired unit is a spare, and gets its circuits back; its stand-in is a spare again."""
    controller = om.Rerouter(state())
    failure: dict[str, Any] = {kind: unit}
    controller.fail(**failure)
    controller.apply()
    assert unit in controller.repair(**failure).spares
    before = controller.state
    transition = controller.give_back(unit)
    stand_in = controller.stand_ins[unit]
    field = f"failed_{kind}s"
    moved: dict[str, Any] = {field: (stand_in,), "spares": (unit,)}
    assert om.verify(replace(before, **moved), transition).ok
    after = controller.apply()
    assert after.circuits.tolist() == state().circuits.tolist()
    assert after.spares == state().spares
    assert getattr(after, field) == ()
    assert controller.stand_ins == {}


def test_rollback_drops_a_proposal_then_undoes_changes() -> None:
    """In this order, and says when there is nothing to undo."""
    controller = om.Rerouter(rack_state())
    controller.fail(chip=1)
    first = controller.apply()
    controller.fail(chip=2)
    assert controller.rollback() == first
    assert controller.rollback() == rack_state()
    assert controller.stand_ins == {}
    with pytest.raises(om.InputError, match="nothing was applied"):
        controller.rollback()
    with pytest.raises(om.InputError, match="nothing is proposed"):
        controller.apply()


def test_other_repairs() -> None:
    """Fibres, ports and cells work again, and circuits stay where they are."""
    for state, failure in ((rack_state(), {"fibre": 5}), (mesh_state(), {"cell": 40})):
        controller = om.Rerouter(state)
        controller.fail(**failure)  # type: ignore[arg-type]
        failed = controller.apply()
        after = controller.repair(**failure)
        assert after.circuits.tolist() == failed.circuits.tolist()
        assert (after.failed_fibres, after.dead_cells) == ((), ())


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ({"chip": 64}, "failed_chips: 64 is none of 64"),
        ({"fibre": -1}, "failed_fibres: -1 is none of 768"),
        ({"cell": 0}, "dead_cells: 0 is none of 0"),
    ],
)
def test_parts_that_do_not_exist_are_refused(failure: dict[str, Any], message: str) -> None:
    """By kind and number."""
    with pytest.raises(om.InputError, match=message):
        om.Rerouter(rack_state(), prepare=False).fail(**failure)


def test_what_has_failed_does_not_fail_again() -> None:
    """Nor is it repaired twice, or given back without need."""
    controller = om.Rerouter(rack_state(), prepare=False)
    controller.fail(chip=3)
    controller.apply()
    with pytest.raises(om.InputError, match="3 has failed already"):
        controller.fail(chip=3)
    with pytest.raises(om.InputError, match="unit 3 has no stand-in, or is not repaired"):
        controller.give_back(3)
    controller.repair(chip=3)
    with pytest.raises(om.InputError, match="chip 3 has not failed"):
        controller.repair(chip=3)


def test_a_state_without_light_is_refused() -> None:
    """Reroute it first."""
    with pytest.raises(om.InputError, match="circuit 0 has no light in this state"):
        om.Rerouter(replace(rack_state(), failed_chips=(0,)))


def test_what_cannot_be_found_is_said() -> None:
    """An end that is cut off is a proof; a search without result is none."""
    state = mesh_state()
    cells = {way[0] // 4 for way in state.circuit_routes}
    controller = om.Rerouter(state, prepare=False)
    unanswered = 0
    for cell in sorted(cells):
        try:
            controller.fail(cell=cell)
        except (InfeasibleError, LimitReached):
            unanswered += 1
    assert unanswered == len(cells)  # the cell at a port is the only way in


def test_readers_see_whole_states_while_others_apply() -> None:
    """Threads ask and read while one applies and undoes; every answer is right for its state."""
    controller = om.Rerouter(rack_state())
    wrong: list[str] = []
    stop = threading.Event()

    def read() -> None:
        rng = np.random.default_rng(threading.get_ident() % 1000)
        while not stop.is_set():
            state = controller.state
            if state.hit.any():
                wrong.append("a state with dark circuits")
            chip = int(rng.integers(60))
            if chip in state.failed_chips:
                continue
            try:
                transition = controller.fail(chip=chip)
            except om.InputError:
                continue  # it failed in the meantime
            if len(transition.moves) != 1:
                wrong.append(f"chip {chip}: {transition.moves.tolist()}")

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    applied = 0
    for _ in range(40):
        try:
            controller.apply()
            applied += 1
        except om.InputError:
            continue  # nothing was proposed for this state yet
        if applied == 3:
            break
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong

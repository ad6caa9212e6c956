"""The controller's view: its proposals are right, and states follow applied changes."""

import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import InfeasibleError, LimitReached, TimeUp
from optmatch.model.databases import StoreError
from optmatch.solvers.reroutes.routing_state import RoutingState
from optmatch.solvers.reroutes.states import fill_rack, hold_matching
from tests.helpers.files import largest_file


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


@pytest.fixture
def controller() -> om.Rerouter:
    return om.Rerouter(rack_state())


@pytest.mark.parametrize(
    ("state", "failure", "fields"),
    FAILURES,
)
def test_its_answers_pass_the_verifier(
    state: Any, failure: dict[str, Any], fields: dict[str, Any]
) -> None:
    controller = om.Rerouter(state())
    problem = replace(state(), **fields)
    proposal = controller.fail(**failure)
    transition = proposal.transition
    assert om.verify(problem, transition).ok
    assert controller.state == state()
    after = controller.apply(proposal)
    assert after == problem.after(transition) == controller.state
    assert not after.hit.any()


def test_a_stand_in_may_fail_too(controller: om.Rerouter) -> None:
    controller.apply(controller.fail(chip=0))
    (stand_in,) = controller.stand_ins.values()
    proposal = controller.fail(chip=stand_in)
    assert proposal.transition.moves[0, 0] == stand_in
    assert not controller.apply(proposal).hit.any()
    assert controller.stand_ins == {0: proposal.transition.moves[0, 1]}


@pytest.mark.parametrize(
    ("state", "unit", "kind"), [(rack_state, 12, "chip"), (mesh_state, 4, "port")]
)
def test_repair_and_return(state: Any, unit: int, kind: str) -> None:
    controller = om.Rerouter(state())
    failure: dict[str, Any] = {kind: unit}
    controller.apply(controller.fail(**failure))
    assert unit in controller.repair(**failure).spares
    before = controller.state
    proposal = controller.give_back(unit)
    stand_in = controller.stand_ins[unit]
    field = f"failed_{kind}s"
    moved: dict[str, Any] = {field: (stand_in,), "spares": (unit,)}
    assert om.verify(replace(before, **moved), proposal.transition).ok
    after = controller.apply(proposal)
    assert after.circuits.tolist() == state().circuits.tolist()
    assert after.spares == state().spares
    assert getattr(after, field) == ()
    assert controller.stand_ins == {}


def test_a_chip_is_a_spare_again_when_its_port_is_repaired(controller: om.Rerouter) -> None:
    """A chip with fewer live ports than circuits gives them away; not before all ports work."""
    per_chip = rack_state().units.ports_per_unit
    controller.apply(controller.fail(port=per_chip * 12))
    (lost,) = controller.stand_ins
    assert lost == 12
    controller.fail(port=per_chip * 12 + 1)
    controller.apply(controller.fail(port=per_chip * 12 + 1))
    assert 12 not in controller.repair(port=per_chip * 12).spares
    assert 12 in controller.repair(port=per_chip * 12 + 1).spares
    controller.apply(controller.give_back(12))
    assert controller.state.circuits.tolist() == rack_state().circuits.tolist()


def test_rollback_undoes_changes() -> None:
    controller = om.Rerouter(rack_state(), history=2)
    first = controller.apply(controller.fail(chip=1))
    second = controller.apply(controller.fail(chip=2))
    controller.apply(controller.fail(chip=3))
    assert controller.history == (first, second)
    assert controller.rollback() == second
    assert controller.rollback() == first
    assert list(controller.stand_ins) == [1]
    with pytest.raises(om.InputError, match="nothing was applied that is remembered"):
        controller.rollback()
    with pytest.raises(om.InputError, match="proposal = None: a Proposal is expected"):
        controller.apply(None)  # type: ignore[arg-type]


def test_only_what_is_given_is_applied(controller: om.Rerouter) -> None:
    mine, theirs = controller.fail(chip=1), controller.fail(chip=2)
    assert controller.apply(mine).failed_chips == (1,)
    with pytest.raises(
        om.InputError, match=r"outdated: circuits have moved \(first 0, 12 in all\)"
    ):
        controller.apply(theirs)


def test_what_is_refused_without_spares_is_tried_again_after_repairs(
    controller: om.Rerouter,
) -> None:
    for number, chip in enumerate((0, 20, 41, 59)):
        assert len(controller.apply(controller.fail(chip=chip)).spares) == 3 - number
    with pytest.raises(InfeasibleError, match="1 units with circuits are lost, 0 live spares"):
        controller.fail(chip=33)
    assert sorted(controller.stand_ins) == [0, 20, 41, 59]
    assert [failure.failed_chips for failure in controller.refused] == [(33,)]
    assert not controller.offers
    controller.repair(chip=20)
    (offer,) = controller.offers
    assert offer.transition.moves.tolist() == [[33, 20]]
    after = controller.apply(offer)
    assert set(after.failed_chips) == {0, 33, 41, 59}
    assert (controller.refused, controller.offers) == ((), ())
    with pytest.raises(InfeasibleError):
        controller.fail(chip=5)
    controller.repair(chip=5)
    assert controller.refused == ()


def test_no_time_is_no_answer_but_goes_on_record(controller: om.Rerouter) -> None:
    with pytest.raises(LimitReached, match="no way was found within 0 s"):
        controller.fail(chip=7, deadline_s=0)
    assert [failure.failed_chips for failure in controller.refused] == [(7,)]
    offers = controller.offers
    assert controller.offers is offers
    assert om.verify(replace(rack_state(), failed_chips=(7,)), offers[0].transition).ok
    controller.apply(offers[0])
    assert not controller.refused and not controller.offers
    assert controller.apply(controller.fail(chip=8, deadline_s=60)).failed_chips == (7, 8)
    with pytest.raises(om.InputError, match="deadline_s = -1"):
        controller.fail(chip=9, deadline_s=-1)


@pytest.mark.parametrize(("state", "kind"), [(rack_state, "chip"), (mesh_state, "port")])
def test_a_deadline_ends_the_search_at_any_moment(
    state: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def tick() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr("optmatch.model.limits.Stopwatch.counted_s", lambda _: tick())
    decided = []
    for deadline_s in (1, 2, 4, 8, 1000):
        controller = om.Rerouter(state())
        failure: dict[str, Any] = {kind: [2, 5]}
        try:
            transition = controller.fail(**failure, deadline_s=deadline_s).transition
        except LimitReached:
            decided.append(False)
            continue
        decided.append(True)
        assert om.verify(replace(state(), **{f"failed_{kind}s": (2, 5)}), transition).ok
    assert decided == sorted(decided)
    assert (decided[0], decided[-1]) == (False, True)


def test_a_search_that_ends_early_gives_its_workspace_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One ends by its limit, one lacks a spare; only the first search makes a workspace."""
    workspaces = list[Any]()
    fork = RoutingState.fork

    def note_workspace(self: RoutingState, work: Any = None) -> RoutingState:
        workspaces.append(work)
        return fork(self, work)

    def end_early(*_: Any, **__: Any) -> None:
        raise TimeUp

    monkeypatch.setattr(RoutingState, "fork", note_workspace)
    controller = om.Rerouter(mesh_state())
    with monkeypatch.context() as context, pytest.raises(LimitReached):
        context.setattr("optmatch.solvers.reroutes.repair.repair", end_early)
        controller.fail(port=0)
    with pytest.raises(InfeasibleError, match="spare"):
        controller.fail(port=[0, 1, 2, 3])
    controller.fail(port=4)
    assert [work is None for work in workspaces] == [True, False]


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
def test_a_file_that_cannot_grow(tmp_path: Path) -> None:
    """The change is refused as a whole, and no part of it stays."""
    file = tmp_path / "a"
    controller = om.Rerouter.open(file, rack_state())
    first = controller.apply(controller.fail(chip=0))
    proposal = controller.fail(chip=20)
    with largest_file(4096):
        with pytest.raises(StoreError, match=re.escape(str(file))):
            controller.apply(proposal)
        with pytest.raises(StoreError, match=re.escape(str(file))):
            controller.rollback()
    assert controller.state is first and len(controller.history) == 1
    controller.apply(proposal)
    controller.close()
    with om.Rerouter.open(file) as again:
        assert again.state == controller.state


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ({"chip": 64}, "chip = 64: chips are 0 .. 63"),
        ({"fibre": -1}, "fibre = -1: must be >= 0"),
        ({"fibre": 768}, "fibre = 768: fibres are 0 .. 767"),
        ({"chip": [3, 4, 3]}, "chip 3 is named twice"),
        ({"chip": "3"}, "chip = '3': not a whole number"),
        ({"chip": 3.0}, "chip = 3.0: not a whole number"),
        ({"chip": [True]}, "chip = True: not a whole number"),
        ({"cell": 3, "stuck": "Cross"}, "stuck = 'Cross': one of"),
        ({"chip": 3, "stuck": "bar"}, "but no cell is named"),
        ({}, "no part is named"),
        ({"chip": []}, "no part is named"),
        ({"cell": 0}, "cell = 0: there are no cells"),
    ],
)
def test_parts_that_do_not_exist_are_refused(failure: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        om.Rerouter(rack_state()).fail(**failure)


def test_what_has_failed_does_not_fail_again(controller: om.Rerouter) -> None:
    controller.apply(controller.fail(chip=3))
    with pytest.raises(om.InputError, match="3 has failed already"):
        controller.fail(chip=3)
    with pytest.raises(om.InputError, match="unit 3 has no stand-in, or is not repaired"):
        controller.give_back(3)
    with pytest.raises(om.InputError, match=r"unit = \[3\]: not a whole number"):
        controller.give_back([3])  # type: ignore[arg-type]
    controller.repair(chip=3)
    with pytest.raises(om.InputError, match="chip 3 has not failed"):
        controller.repair(chip=3)


def test_a_state_without_light_is_refused() -> None:
    with pytest.raises(om.InputError, match="circuit 0 has no light in this state"):
        om.Rerouter(replace(rack_state(), failed_chips=(0,)))


def test_what_cannot_be_found_is_said() -> None:
    state = mesh_state()
    cells = {way[0] // 4 for way in state.circuit_routes}
    controller = om.Rerouter(state)
    unanswered = 0
    for cell in sorted(cells):
        try:
            controller.fail(cell=cell)
        except (InfeasibleError, LimitReached):
            unanswered += 1
    assert unanswered == len(cells)  # the cell at a port is the only way in


@pytest.mark.parametrize(
    ("state", "given", "message"),
    [
        (om.RackFabric(), {}, "a Reroute is expected"),
        (None, {"history": -1}, "history = -1"),
        (None, {"priorities": [1]}, "priorities = .1.: a mapping"),
    ],
)
def test_wrong_arguments_are_refused(state: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        om.Rerouter(state or rack_state(), **given)


def test_jobs_of_low_priority_give_way_first() -> None:
    """Whoever makes room for a broken cell keeps its place if another can make it."""
    matching, pairs = np.full(16, -1), np.random.default_rng(0).permutation(16)[:14].reshape(-1, 2)
    matching[pairs] = pairs[:, ::-1]
    state = hold_matching(om.HexMesh(6, 6, ports=16), matching.tolist())
    cells = sorted({at // 4 for way in state.circuit_routes for at in way})
    disturbed = spared = 0
    for cell in cells:
        problem = replace(state, dead_cells=(cell,))
        try:
            first = om.Rerouter(state).what_if(cell=cell).transition
        except (InfeasibleError, LimitReached):
            continue
        moved = [k for k in first.changed.tolist() if not problem.hit[k]]
        if not moved:
            continue
        disturbed += 1
        ranks = {int(state.owners[k]): 1 for k in moved}
        second = om.Rerouter(state, priorities=ranks).what_if(cell=cell).transition
        assert om.verify(problem, second).ok
        spared += not set(moved) & set(second.changed.tolist())
    assert disturbed and spared
    with pytest.raises(om.InputError, match="priorities"):
        om.Rerouter(state, priorities={0: "high"})  # type: ignore[dict-item]


def cut_off_port() -> om.Reroute:
    """Give a mesh with one circuit, all of whose light passes cell 57, and with free ports."""
    mesh = om.HexMesh(4, 4, ports=8)
    routed = om.solve(om.Routing(mesh, [4, -1, -1, -1, 0, -1, -1, -1]), seed=0).schedule
    assert routed is not None and routed.cell_states is not None
    return om.Reroute(mesh, [(0, 4)], spares=(1, 2, 3), cell_states=routed.cell_states[0])


def test_who_is_cut_off_is_told_that_spares_take_over_for_failed_ports_alone() -> None:
    reason = "the circuit from port 0 .* has no route.*; port 0 .* is cut off: reported as failed"
    with pytest.raises(InfeasibleError, match=reason):
        om.Rerouter(cut_off_port()).fail(cell=57)
    problem = replace(cut_off_port(), dead_cells=(57,))
    assert re.match(reason, om.solve(problem, seed=0).stats["reason"])
    moves = om.Rerouter(cut_off_port()).fail(cell=57, port=0).transition.moves
    assert moves[:, 0].tolist() == [0]


def test_what_was_not_found_is_told_with_the_call_that_settles_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("optmatch.solvers.reroutes.repair.repair", lambda *_, **__: None)
    call = (
        r"om.solve\(dataclasses.replace\(state, failed_ports=\(0,\), dead_cells=\(57,\)\), 'ilp'\)"
    )
    with pytest.raises(LimitReached, match=call):
        om.Rerouter(cut_off_port()).fail(cell=57, port=0)

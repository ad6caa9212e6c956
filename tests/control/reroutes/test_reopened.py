"""Controllers in files: what is written can be read back, and nothing is written after `close`."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.reroutes.states import hold_matching
from tests.helpers.modes import examples
from tests.helpers.reopened import STATES, Reopened, describe

MESH = om.HexMesh(4, 4, ports=8)


def mesh_state() -> om.Reroute:
    """Hold two pairs of ports of a mesh; four ports are spares."""
    return hold_matching(MESH, [1, 0, 3, 2, -1, -1, -1, -1], seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", STATES)
def test_what_is_written_is_read_back_after_random_operations(name: str, tmp_path: Path) -> None:
    """One in ten is followed by a reopen that must give an equal controller.

    Nothing is forgotten, no answer uses what is on record, and nothing is stranded in the end.
    """
    played = Reopened(name, tmp_path, seed=12)
    for _ in range(examples(60, plain=10)):
        played.operate()
    played.finish()
    assert played.violations == []


FAULTS = [(a, b) for a in ("bar", "cross", None) for b in ("bar", "cross", None) if a != b]


def far_pairs() -> om.Reroute:
    """Hold two pairs of distant ports of a larger mesh, in which there are several ways."""
    matching = [6, -1, -1, 9, -1, -1, 0, -1, -1, 3, -1, -1]
    return hold_matching(om.HexMesh(5, 5, ports=12), matching, seed=0)


def cell_of(state: om.Reroute, *, lit: bool) -> int:
    """Return a cell that light passes, or one that is dark, whose death leaves a way to all."""
    is_lit = np.asarray(state.cell_states) >= 0
    controller = om.Rerouter(state)
    for cell in np.flatnonzero(is_lit == lit).tolist():
        with contextlib.suppress(om.InfeasibleError):
            controller.what_if(cell=cell)
            return int(cell)
    raise AssertionError("no such cell")


def reread(controller: om.Rerouter, folder: Path) -> om.Rerouter:
    """Check that a copy and the files of a controller give an equal one; return that one."""
    path = controller.path
    assert path is not None
    before = describe(controller)
    controller.save(folder / "copy.json")
    controller.close()
    assert describe(om.Rerouter.load(folder / "copy.json")) == before
    again = om.Rerouter.open(path)
    assert describe(again) == before
    return again


@pytest.mark.parametrize("lit", [False, True])
@pytest.mark.parametrize("first, second", FAULTS)
def test_a_broken_cell_that_fails_in_another_way_has_the_new_fault(
    first: Any, second: Any, lit: bool, tmp_path: Path
) -> None:
    """The former fault is taken out and the new one put in, by one change that can be undone."""
    state = far_pairs()
    cell = cell_of(state, lit=lit)
    controller = om.Rerouter.open(tmp_path / "a.json", state)
    once = controller.apply(controller.fail(cell=cell, stuck=first))
    with pytest.raises(om.InputError, match=f"cell {cell} has failed already"):
        controller.fail(cell=cell, stuck=first)

    proposal = controller.fail(cell=cell, stuck=second)
    assert controller.answered == (proposal.failure,)
    controller = reread(controller, tmp_path)
    assert controller.state == once
    controller.apply(controller.offers[0])
    fields = {"bar": "stuck_bar", "cross": "stuck_cross", None: "dead_cells"}
    for fault, field in fields.items():
        assert getattr(controller.state, field) == ((cell,) if fault == second else ())
    assert not controller.state.hit.any() and not controller.answered

    controller = reread(controller, tmp_path)
    assert controller.rollback() == once
    controller = reread(controller, tmp_path)
    assert controller.state == once
    repaired = controller.repair(cell=cell)
    assert not repaired.stuck and not repaired.dead_cells
    controller.close()


@pytest.mark.parametrize("answered", [True, False])
def test_the_latest_report_of_a_pending_cell_counts(
    answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proposal for the former fault is refused, and offers are for the new one."""
    state = mesh_state()
    cell = cell_of(state, lit=False)
    controller = om.Rerouter(state)
    if answered:
        former = controller.fail(cell=cell, stuck="cross")
    else:
        former = controller.what_if(cell=cell, stuck="cross")
        with monkeypatch.context() as patch:
            names = om.Rerouter._ask.__globals__
            patch.setitem(names, "find_answer", lambda *_, **__: om.LimitReached("no way"))
            for fault in ("cross", None):
                with pytest.raises(om.LimitReached):
                    controller.fail(cell=cell, stuck=fault)
        assert [failure.dead_cells for failure in controller.refused] == [(cell,)]
        assert not controller.refused[0].stuck_cross
    controller.fail(cell=cell)
    with pytest.raises(om.InputError, match=f"cell {cell} was reported in another state"):
        controller.apply(former)
    assert controller.state == state
    (offer,) = controller.offers
    assert offer.failure.dead_cells == (cell,)
    assert controller.apply(offer).dead_cells == (cell,)


@pytest.mark.parametrize("apply", [True, False])
def test_only_working_cells_are_drained(apply: bool) -> None:
    """`restore` would bring a broken cell back as if it worked."""
    state = mesh_state()
    cell = cell_of(state, lit=False)
    controller = om.Rerouter(state)
    proposal = controller.fail(cell=cell, stuck="cross")
    if apply:
        controller.apply(proposal)
    with pytest.raises(om.InputError, match=f"cell {cell} has failed: only working cells leave"):
        controller.drain(cell=cell)


def calls_of(controller: om.Rerouter, folder: Path) -> dict[str, Callable[[], object]]:
    """List a call of each method."""
    proposal = controller.what_if(port=0)
    return {
        "fail": lambda: controller.fail(port=1),
        "what_if": lambda: controller.what_if(port=1),
        "drain": lambda: controller.drain(port=1),
        "apply": lambda: controller.apply(proposal),
        "repair": lambda: controller.repair(port=1),
        "restore": lambda: controller.restore(port=1),
        "give_back": lambda: controller.give_back(1),
        "rollback": controller.rollback,
        "retry": controller.retry,
        "offers": lambda: controller.offers,
        "save": lambda: controller.save(folder / "saved.json"),
        "figures": controller.figures,
        "with": controller.__enter__,
    }


@pytest.mark.parametrize("in_files", [True, False])
def test_every_call_after_close_is_an_error_and_writes_nothing(
    in_files: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    state = mesh_state()
    controller = om.Rerouter.open(path, state) if in_files else om.Rerouter(state)
    calls = calls_of(controller, tmp_path)
    public = {name for name in dir(om.Rerouter) if not name.startswith("_")}
    properties = {"state", "path", "stand_ins", "refused", "answered", "history"}
    of_no_controller = {"load", "open", "is_begun", "warm_up"}
    assert set(calls) == public - properties - of_no_controller - {"close"} | {"with"}
    controller.close()
    controller.close()
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    for call in calls.values():
        with pytest.raises(om.InputError, match="the controller is closed"):
            call()
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert not controller.state.failed_ports


def test_a_block_closes_its_controller(tmp_path: Path) -> None:
    with om.Rerouter.open(tmp_path / "a.json", mesh_state()) as controller:
        controller.apply(controller.fail(port=0))
        with pytest.raises(om.InputError, match="in use by another process"):
            om.Rerouter.open(tmp_path / "a.json")
    with om.Rerouter.open(tmp_path / "a.json") as again:
        assert again.state == controller.state


@pytest.mark.parametrize(
    "wrong",
    [
        lambda path: om.Rerouter.open(3),  # type: ignore[arg-type]
        lambda path: om.Rerouter.load(None),  # type: ignore[arg-type]
        lambda path: om.Rerouter(mesh_state()).save(3),  # type: ignore[arg-type]
        lambda path: om.Rerouter(mesh_state(), priorities=3),  # type: ignore[arg-type]
        lambda path: om.Rerouter(mesh_state(), priorities={0: 10**30}),
        lambda path: om.Rerouter(mesh_state(), on_event=3),  # type: ignore[arg-type]
        lambda path: om.Rerouter.open(path / "a\0b", mesh_state()),
    ],
)
def test_wrong_arguments_are_refused(wrong: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(om.InputError):
        wrong(tmp_path)
    assert not list(tmp_path.iterdir())

"""Controllers and results say what they are, in a shell, a notebook and another process."""

import pickle

import numpy as np
import pytest

import optmatch as om

MESH = om.HexMesh(3, 3, ports=4)


def test_a_router_can_be_sent_to_another_process() -> None:
    """The copy answers as the router does, with the same options."""
    router = om.Router(MESH, check=True, time_limit_s=2.0)
    router.route([2, 3, 0, 1])
    copied = pickle.loads(pickle.dumps(router))
    assert repr(copied) == repr(router)
    assert copied.route([2, 3, 0, 1]).lengths.tolist() == [9, 11, 0, 0]
    with pytest.raises(om.InputError):
        copied.route([1, 1, 0, 0])


def test_controllers_say_what_they_are() -> None:
    router = om.Router(MESH, check=True, time_limit_s=0.0)
    assert repr(router) == (
        f"<Router hex mesh 3 x 3, 4 ports, {MESH.n_cells} cells, check=True, time_limit_s=0.0>"
    )
    rolling = om.RollingSchedule(om.IdealSwitch(2), delay_s=0.5)
    rolling.add([[0, 3], [2, 0]])
    rolling.next_slot()
    assert "2 ports, now_s=0, slots=1, queued_bytes=5>" in repr(rolling)
    rerouter = om.Rerouter(om.fill_rack(om.RackFabric()))
    rerouter.fail(chip=21)
    shown = repr(rerouter)
    assert shown.startswith("<Rerouter ")
    assert "4 spares, 1 failures on record, 0 changes undoable>" in shown


def test_a_rerouter_says_what_to_send_instead() -> None:
    controller = om.Rerouter(om.fill_rack(om.RackFabric()))
    with pytest.raises(TypeError, match=r"a Rerouter cannot be pickled.*`state`.*`save`"):
        pickle.dumps(controller)
    assert pickle.loads(pickle.dumps(controller.state)) == controller.state


def test_a_schedule_is_a_sequence_of_slots() -> None:
    schedule = om.Schedule(
        matchings=[[1, 0], [-1, -1]],
        durations_s=[2.0, 1.0],
        delay_s=0.5,
        delays_s=[0.5, 0.25],
        cell_states=[[0], [-1]],
    )
    assert len(schedule) == 2
    slots = list(schedule)
    assert [slot.matching.tolist() for slot in slots] == [[1, 0], [-1, -1]]
    assert [slot.duration_s for slot in slots] == [2.0, 1.0]
    assert [slot.delay_s for slot in slots] == [0.5, 0.25]
    assert [slot.cell_states.tolist() for slot in slots if slot.cell_states is not None] == [
        [0],
        [-1],
    ]
    empty = om.Schedule(matchings=np.empty((0, 2), np.int32), durations_s=[])
    assert len(empty) == 0
    assert bool(empty), "a schedule without slots is one"


def test_results_show_themselves_in_notebooks() -> None:
    problem = om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=1.0)
    solution = om.solve(problem, seed=0, time_limit_s=0.2)
    report = om.verify(problem, solution)._repr_html_()
    assert "<b>verified: no violation</b>" in report
    assert "<th>completion_s</th><td>4</td>" in report
    wrong = problem.schedule([[1, 0]], [1])
    assert "<li>" in om.verify(problem, wrong)._repr_html_()
    replay = om.simulate(problem, solution)._repr_html_()
    assert "<b>all demand was carried</b>" in replay
    assert "<th>completion</th><td>4 s</td>" in replay
    assert "<b>demand is left over</b>" in om.simulate(problem, wrong)._repr_html_()


def test_html_is_escaped() -> None:
    report = om.Report(violations=(om.Violation("a < b", "x", 1, 2),))
    assert "a &lt; b" in report._repr_html_()

"""Where flows are queued, ports have names, and labels of tables are not passed over."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import optmatch as om

MATRIX = [[0, 1, 2], [3, 0, 4], [5, 6, 0]]
SWITCH = om.IdealSwitch(3, names=("a", "b", "c"))


def frame(labels: str) -> Any:
    """Return the matrix with these labels of rows and columns."""
    return pd.DataFrame(MATRIX, index=list(labels), columns=list(labels))


def test_a_table_in_another_order_is_queued_by_its_labels() -> None:
    schedule = om.RollingSchedule(SWITCH, delay_s=1.0)
    schedule.add(frame("cab"))
    expected = om.Demand.from_matrix(frame("cab"), SWITCH, delay_s=1.0).demand_bytes
    assert expected.tolist() == [[0, 4, 3], [6, 0, 5], [1, 2, 0]]
    assert np.allclose(schedule.take_back(np.full((3, 3), 9.0) - 9 * np.eye(3)), expected)


def test_a_flow_is_queued_by_the_names_of_its_ports() -> None:
    schedule = om.RollingSchedule(SWITCH, delay_s=1.0)
    schedule.add("c", "a", 2.0)
    slot: Any = schedule.next_slot()
    assert slot.matching.tolist() == [-1, -1, 0]
    with pytest.raises(om.InputError, match="there is no port d"):
        schedule.add("d", "a", 2.0)


def test_labels_without_names_to_compare_them_with_are_refused() -> None:
    schedule = om.RollingSchedule(om.IdealSwitch(3), delay_s=1.0)
    with pytest.raises(om.InputError, match="no port of the fabric is called 'a'"):
        schedule.add(frame("abc"))
    with pytest.raises(om.InputError, match="no port of the fabric is called 'd'"):
        om.Demand.from_matrix(frame("abd"), SWITCH, delay_s=1.0)


def test_labels_name_the_first_ports_of_a_larger_switch() -> None:
    problem = om.Demand.from_matrix(frame("abc"), om.IdealSwitch(5), delay_s=1.0)
    assert problem.fabric.port_names == ("a", "b", "c", "3", "4")
    after = problem.with_dead_ports(["b"])
    assert after.fabric.port_names == ("a", "3", "c", "b", "4")


def test_ports_of_faults_matchings_and_failures_are_named() -> None:
    """Names mean the same as the numbers of the ports, wherever a port is given."""
    assert om.Faulty(SWITCH, dead_ports=["c", 0]) == om.Faulty(SWITCH, dead_ports=[0, 2])
    matching: Any = ["out 1", "out 0", -1, 3]
    assert om.Routing(om.Benes(4), matching).matching.tolist() == [1, 0, -1, 3]
    with pytest.raises(om.InputError, match="there is no port d"):
        om.Routing(SWITCH, ["b", "d", "a"])

    circuits = [[0, 1], [1, 0]]
    assert om.Reroute(SWITCH, circuits, failed_ports=("b",)).failed_ports == (1,)
    proposals = []
    for port in (1, "b"):
        controller = om.Rerouter(om.Reroute(SWITCH, circuits, spares=(2,)))
        proposals.append(controller.fail(port=port).transition)
        assert controller.repair(port=[port]).failed_ports == ()
        assert controller.drain(port=port).transition.circuits.tolist() == [[0, 2], [2, 0]]
    assert proposals[0] == proposals[1]
    with pytest.raises(om.InputError, match="there is no port d"):
        controller.fail(port="d")


NAMED = om.IdealSwitch(4, names=("a", "b", "c", "spare"))


def test_a_spare_takes_over_a_failed_port_with_weights_deadlines_and_waits() -> None:
    """The same calls on a switch that never failed give the same waits, weights and late flows."""
    figures = []
    for fails in (False, True):
        rolling = om.RollingSchedule(NAMED, delay_s=0.5)
        rolling.add("a", "b", 4.0, weight=2.0)
        rolling.add("c", "b", 3.0, deadline_s=1.0)
        if fails:
            assert not rolling.fail("b", spare="spare").any()
            assert rolling.fabric.port_names == ("a", "spare", "c", "b")
        while (slot := rolling.next_slot()) is not None:
            assert slot.matching[0] in (-1, 3 if fails else 1)
            rolling.advance(slot.end_s)
        counts = rolling.figures()
        figures.append({name: counts[name] for name in counts if name not in ("calls", "call_s")})
    assert figures[0] == figures[1]
    assert (figures[1]["late"], figures[1]["completed"]) == (1, 2)


def test_a_failed_port_without_a_spare_tells_what_is_lost() -> None:
    """Its circuits are down at once, also of a committed slot; the others go on as before."""
    rolling = om.RollingSchedule(NAMED, delay_s=0.5)
    completions = rolling.record_completions()
    rolling.add("a", "b", 4.0)
    rolling.add("c", "a", 3.0)
    slot: Any = rolling.next_slot()
    rolling.advance(1.5)
    lost = rolling.fail(1)
    assert np.argwhere(lost).tolist() == [[0, 1]]
    assert lost[0, 1] == 3.0
    assert completions == []
    figures = rolling.figures()
    assert (figures["waiting"], figures["completed"], figures["lost"]) == (1, 0, 1)
    rolling.advance(slot.end_s)
    assert rolling.queued_bytes.sum() == 3.0 - (slot.end_s - 0.5)
    assert rolling.figures()["calls"]["fail", "done"] == 1
    with pytest.raises(om.InputError, match="dead"):
        rolling.add("a", "b", 1.0)


def test_a_demand_that_has_lost_a_flow_is_never_complete(tmp_path: Path) -> None:
    """It waits for its other flows, also through a file, and counts as lost after them."""
    rolling = om.RollingSchedule(om.IdealSwitch(4), delay_s=0.5)
    rolling.add([[0, 4, 0, 0], [0, 0, 0, 0], [0, 0, 0, 2], [0, 0, 0, 0]], deadline_s=1.0)
    rolling.add(2, 0, 1.0)
    rolling.fail(1)
    rolling.save(tmp_path / "rolling.json")
    rolling = om.RollingSchedule.load(tmp_path / "rolling.json")
    completions = rolling.record_completions()
    assert (rolling.figures()["waiting"], rolling.figures()["lost"]) == (2, 0)
    while rolling.next_slot() is not None:
        rolling.advance(rolling.next_free_s)
    figures = rolling.figures()
    assert [number for number, _ in completions] == [1]
    assert (figures["waiting"], figures["completed"], figures["lost"]) == (0, 1, 1)
    assert (figures["with_deadline"], figures["late"]) == (1, 1), "it can never be in time"
    assert figures["max_wait_s"] == figures["completion_s"]


def test_what_was_served_and_what_is_lost_is_told_in_bytes(tmp_path: Path) -> None:
    """Three demands that all meet a failed port were 0 completed and 0 late, and no more."""
    rolling = om.RollingSchedule(om.IdealSwitch(4), delay_s=0.5, packet_bytes_per_s=0.01)
    matrix = np.array([[0, 4, 0, 1], [0, 0, 2, 0], [3, 0, 0, 0], [1, 0, 2, 0]])
    for deadline_s in (100.0, 0.5, None):
        rolling.add(matrix, deadline_s=deadline_s)
    rolling.add(0, 3, 1.0)
    taken = rolling.take_back(np.where(matrix == 2, 1, 0)).sum()
    rolling.next_slot()
    rolling.advance(2.0)
    served = 3 * matrix.sum() + 1 - taken - rolling.queued_bytes.sum()
    assert served > 1 and rolling.figures()["served_bytes"] == pytest.approx(served)
    lost = rolling.fail(1).sum()
    assert rolling.figures()["lost_bytes"] == pytest.approx(lost)
    rolling.save(tmp_path / "rolling.json")
    rolling = om.RollingSchedule.load(tmp_path / "rolling.json")
    rolling.repair(1)
    rolling.add(1, 2, 5.0, deadline_s=1000.0)
    while rolling.next_slot() is not None:
        rolling.advance(rolling.next_free_s)
    figures = rolling.figures()
    total = 3 * matrix.sum() + 6 - taken
    assert figures["served_bytes"] + figures["lost_bytes"] == pytest.approx(total)
    assert figures["lost_bytes"] == pytest.approx(lost)
    assert (figures["waiting"], figures["completed"], figures["lost"]) == (0, 2, 3)
    assert (figures["with_deadline"], figures["late"]) == (3, 2)


def test_a_port_fails_however_long_the_queue_is() -> None:
    rolling = om.RollingSchedule(om.IdealSwitch(4), delay_s=1e-6)
    for _ in range(2):
        rolling.add(0, 1, 6e9)
    assert not rolling.fail(3).any()
    assert rolling.fail(1)[0, 1] == 1.2e10


def test_a_slot_that_is_committed_loses_the_failed_port_alone() -> None:
    """What it would have carried over the port waits for the spare, and is served there once."""
    rolling = om.RollingSchedule(NAMED, delay_s=0.5, planes=2, aim="completion")
    rolling.add([[0, 4, 0, 0], [0, 0, 4, 0], [4, 0, 0, 0], [0, 0, 0, 0]])
    for _ in range(2):
        rolling.next_slot()
    rolling.advance(1.0)
    left_bytes = rolling.queued_bytes.sum()
    rolling.fail("b", spare=3)
    assert rolling.queued_bytes.sum() == left_bytes
    while (slot := rolling.next_slot()) is not None:
        assert slot.matching[1] == -1
        assert 1 not in slot.matching
        rolling.advance(slot.start_s)
    rolling.advance(100.0)
    assert (rolling.queued_bytes.sum(), rolling.figures()["completed"]) == (0.0, 1)


@pytest.mark.parametrize(
    ("port", "spare", "message"),
    [
        ("d", None, "there is no port d"),
        (9, None, "ports are 0"),
        ("a", 9, "ports are 0"),
        ("a", "a", "spare is the port that has failed"),
        ("a", "b", "is no spare: demand waits for it"),
        ("c", None, "has failed before"),
        ("a", "c", "has failed before"),
    ],
)
def test_a_failure_that_cannot_be_is_refused_and_changes_nothing(
    port: Any, spare: Any, message: str
) -> None:
    rolling = om.RollingSchedule(NAMED, delay_s=0.5)
    rolling.fail("c")
    rolling.add("a", "b", 4.0)
    with pytest.raises(om.InputError, match=message):
        rolling.fail(port, spare)
    assert rolling.fabric.dead_ports == (2,)
    assert rolling.queued_bytes[0, 1] == 4.0


def test_a_repaired_port_is_in_use_again(tmp_path: Path) -> None:
    """It never came back; it takes the name of its spare, and may take over in turn."""
    rolling = om.RollingSchedule(NAMED, delay_s=0.5)
    rolling.add("a", "b", 4.0, deadline_s=1.0)
    completions = rolling.record_completions()
    rolling.next_slot()
    rolling.fail("b", spare=3)
    spare = rolling.fabric.port_names[1]
    rolling.repair(spare)
    assert rolling.fabric.dead_ports == () and rolling.fabric.port_names[3] == "b"
    assert rolling.queued_bytes[0].tolist() == [0, 0, 0, 4]
    with pytest.raises(om.InputError, match="has not failed"):
        rolling.repair(spare)
    with pytest.raises(om.InputError, match="ports are 0"):
        rolling.repair(9)

    # It carries demand of its own, after a restart, too; and takes over from its former spare.
    rolling.add("c", 1, 2.0)
    assert not rolling.fail("a").all()
    rolling.repair("a")
    rolling.save(tmp_path / "rolling.json")
    rolling = om.RollingSchedule.load(tmp_path / "rolling.json")
    while (slot := rolling.next_slot()) is not None:
        rolling.advance(slot.end_s)
    assert rolling.figures()["completed"] == 1 and rolling.figures()["lost"] == 1
    rolling.fail("b", spare=1)
    assert rolling.fabric.port_names[1] == "b" and completions == []

"""Where flows are queued, ports have names, and labels of tables are not passed over."""

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

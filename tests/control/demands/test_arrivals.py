"""Flows that arrive in time: weights, deadlines, coflows, and when each flow is complete."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.control import replay_flows
from optmatch.control.demands.flows import FlowQueue, Urgency
from optmatch.io import read_flows
from optmatch.io.matrices import FlowList
from tests.control.demands.test_rolling import complete_in_turn, run_next_slot
from tests.helpers.command import call, put

DELAY_S = 1.0


def draw_flows(load: float, size: float, count: int = 1500, seed: int = 3) -> FlowList:
    """Draw flows between eight ports, of so many delays in the mean."""
    rng = np.random.default_rng(seed)
    time_s = np.cumsum(rng.exponential(size / (8 * load), count))
    source, destination = rng.integers(8, size=(2, count))
    size_bytes = rng.exponential(size, count)
    return FlowList(time_s, source, destination, size_bytes, np.arange(count), 8, None)


@pytest.mark.parametrize(("load", "size"), [(0.3, 4.0), (0.8, 40.0)])
def test_each_flow_is_complete_when_its_slots_say(load: float, size: float) -> None:
    """All times are whole seconds, eight of which are a delay."""
    drawn = draw_flows(load, size, 400)
    flows = drawn._replace(time_s=np.floor(drawn.time_s), size_bytes=np.ceil(drawn.size_bytes))
    replay = replay_flows(flows, 8.0)
    columns = (column.astype(int).tolist() for column in flows[:4])
    rows = [(when, (source, to), size) for when, source, to, size in zip(*columns, strict=True)]
    completion_s = complete_in_turn(rows, [(slot, None) for slot in replay.slots])
    assert replay.completion_s.tolist() == [completion_s[flow] for flow in range(400)]
    assert replay.figures["completed"] == 400
    assert replay.wait_s.mean() == pytest.approx(replay.figures["mean_wait_s"])


@pytest.mark.parametrize(("load", "size"), [(0.5, 2.0), (0.9, 20.0)])
def test_heavy_flows_wait_less(load: float, size: float) -> None:
    flows = draw_flows(load, size)
    weight = np.random.default_rng(1).choice([1.0, 10.0], len(flows.time_s))
    plain = replay_flows(flows, DELAY_S)
    weighted = replay_flows(flows._replace(weight=weight), DELAY_S)
    assert weighted.figures["weighted_wait_s"] == pytest.approx(
        np.average(weighted.wait_s, weights=weight)
    )
    assert weighted.figures["weighted_wait_s"] < 0.85 * np.average(plain.wait_s, weights=weight)
    assert weighted.figures["completed"] == len(flows.time_s)


@pytest.mark.parametrize(("load", "size"), [(0.5, 2.0), (0.9, 20.0)])
def test_fewer_flows_are_late(load: float, size: float) -> None:
    flows = draw_flows(load, size)
    rng = np.random.default_rng(1)
    deadline_s = flows.time_s + flows.size_bytes + rng.exponential(60, len(flows.time_s))
    deadline_s[rng.random(len(deadline_s)) > 0.2] = np.inf
    plain = replay_flows(flows, DELAY_S)
    urgent = replay_flows(flows._replace(deadline_s=deadline_s), DELAY_S)
    is_late = urgent.completion_s > deadline_s
    assert urgent.figures["late"] == is_late.sum()
    assert urgent.figures["with_deadline"] == np.isfinite(deadline_s).sum()
    assert is_late.sum() < 0.7 * (plain.completion_s > deadline_s).sum()


def test_weights_of_one_change_nothing() -> None:
    flows = draw_flows(0.8, 2.0, 300)
    plain = replay_flows(flows, DELAY_S)
    same = replay_flows(
        flows._replace(weight=np.ones(300), deadline_s=np.full(300, np.inf)), DELAY_S
    )
    assert np.array_equal(plain.completion_s, same.completion_s)


def test_a_light_flow_does_not_wait_for_ever() -> None:
    """Heavier flows overtake it on its circuit until it is due, and no longer."""
    rolling = om.RollingSchedule(om.IdealSwitch(2), DELAY_S)
    completions = rolling.record_completions()
    rolling.add(0, 1, 1.0)
    due_s = 2.0
    for _ in range(20):
        rolling.add(0, 1, 5.0, weight=100.0)
        run_next_slot(rolling)
        if any(demand == 0 for demand, _ in completions):
            break
    (tick,) = [tick for demand, tick in completions if demand == 0]
    assert tick / 1e15 <= 2 * due_s + 6.0  # and the slot that was committed


def test_a_flow_is_urgent_until_it_cannot_be_in_time() -> None:
    """Its latest start is 1000 - 5 - 10, and twelve delays before that it becomes urgent."""
    queue = FlowQueue(2, delay=10)
    queue.add(0, [((0, 1), 5)], 0, Urgency(deadline=1000))
    in_time = [tick for tick in range(850, 1000) if queue.urgent_places(tick)]
    assert in_time == list(range(865, 986))


@pytest.mark.parametrize(
    ("urgency", "message"),
    [
        ({"weight": 0.0}, "weight = 0: must be > 0"),
        ({"weight": -1.0}, "weight = -1"),
        ({"weight": float("nan")}, "weight = nan"),
        ({"weight": "much"}, "weight = 'much'"),
        ({"deadline_s": -2.0}, "deadline_s = -2"),
        ({"deadline_s": float("inf")}, "deadline_s = inf"),
    ],
)
def test_wrong_urgency_is_refused(urgency: dict[str, Any], message: str) -> None:
    rolling = om.RollingSchedule(om.IdealSwitch(2), DELAY_S)
    with pytest.raises(om.InputError, match=message):
        rolling.add(0, 1, 1.0, **urgency)
    assert rolling.next_slot() is None


def test_coflows_share_an_entry() -> None:
    """The wait of a coflow goes from its first arrival to its last byte."""
    zeros = np.zeros(4, dtype=np.int64)
    flows = FlowList(
        np.array([0.0, 0.0, 2.0, 30.0]), zeros, zeros + 1, np.array([3.0, 2.0, 1.0, 4.0]),
        np.array([0, 1, 0, 3]), 2, None,
    )  # fmt: skip
    replay = replay_flows(flows, DELAY_S)
    assert replay.completion_s.tolist() == [4.0, 6.0, 7.0, 34.0]
    assert replay.coflow_wait_s.tolist() == [7.0, 6.0, 0.0, 4.0]


@pytest.mark.parametrize("planes", [1, 2])
def test_flows_meet_planes_packets_and_empty_flows(planes: int) -> None:
    flows = draw_flows(0.6, 2.0, 200)
    flows.size_bytes[::17] = 0.0
    replay = replay_flows(flows, DELAY_S, planes=planes, packet_bytes_per_s=0.05)
    assert (replay.wait_s[::17] == 0).all()
    assert (replay.wait_s >= 0).all()
    assert replay.figures["queued_bytes"] == 0


def put_flows(folder: Path) -> Path:
    """Write a file of flows with all columns."""
    path = put(
        folder,
        "flows.csv",
        "time,source,destination,bytes,coflow,weight,deadline\n"
        "0.5,a,b,30,x,1,\n0,b,a,12,y,5,4.5\n0,a,b,8,y,1,100\n1,c,a,20,x,2,\n",
    )
    return path


def test_columns_of_urgency_are_read(tmp_path: Path) -> None:
    flows = read_flows(put_flows(tmp_path))
    assert flows.weight is not None and flows.deadline_s is not None
    assert flows.weight.tolist() == [5.0, 1.0, 1.0, 2.0]
    assert flows.deadline_s.tolist() == [4.5, 100.0, np.inf, np.inf]
    (tmp_path / "zero.csv").write_text("time,source,destination,bytes,weight\n0,a,b,1,0\n")
    with pytest.raises(om.FormatError, match=r"zero\.csv:2: weight 0"):
        read_flows(tmp_path / "zero.csv")


def test_the_command_replays_a_list_of_flows(tmp_path: Path) -> None:
    path = put_flows(tmp_path)
    result = call("simulate", path, "--delay", "1", "--rate", "10", "--json")
    shown = json.loads(result.stdout)
    replay = replay_flows(read_flows(path), 1.0, rate_bytes_per_s=10.0)
    assert shown["flow_completion_s"] == replay.completion_s.tolist()
    assert shown["coflow_wait_s"] == replay.coflow_wait_s.tolist()
    assert shown["flows"] == 4 and shown["coflows"] == 2
    assert shown["with_deadline"] == 2
    lines = call("simulate", path, "--delay", "1", "--rate", "10", "--flows").stdout
    assert "a -> b: 8 B" in lines and "c -> a: 20 B" in lines


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--delay"),
        (["--delay", "1", "--policy", "static"], "for rail jobs"),
        (["--delay", "1", "--aim", "late"], "--aim"),
    ],
)
def test_the_command_refuses_what_does_not_fit(
    tmp_path: Path, options: list[str], message: str
) -> None:
    result = call("simulate", put_flows(tmp_path), *options, code=2)
    assert message in result.stderr


def test_options_of_flows_are_refused_for_schedules(tmp_path: Path) -> None:
    problem = om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=1.0)
    om.save(om.solve(problem, seed=0), tmp_path / "two.schedule.json")
    result = call("simulate", tmp_path / "two.schedule.json", "--aim", "wait", code=2)
    assert "--rate, --aim and --planes are for lists of flows" in result.stderr


def test_a_coflow_trace_is_replayed(tmp_path: Path) -> None:
    """A trace of coflow-benchmark, by another way to count its bytes and its coflows."""
    path = put(tmp_path, "trace.txt", "3 2\n1 0 2 0 1 1 2:10\n2 500 1 0 2 1:4 2:6\n")
    result = call("simulate", path, "--delay", "1ms", "--rate", "1e6", "--json")
    shown = json.loads(result.stdout)
    assert shown["flows"] == 4 and shown["coflows"] == 2
    assert shown["bytes"] == 20e6
    # Port 2 receives 16 MB, 5 of them from port 1.
    assert shown["completion_s"] >= 16.0
    assert sorted(shown["flow_completion_s"])[-1] == shown["completion_s"]

"""Demand that arrives while slots run: all is served, and no plan is worse than a new one."""

import copy
import cProfile
import json
import pickle
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import optmatch as om
from optmatch.control.demands.flows import FlowQueue, Urgency
from optmatch.control.demands.rolling import Aim, RollingSchedule, Slot
from optmatch.control.demands.schedules import schedule
from optmatch.model.schedule import Switching
from tests.helpers.benchmarks import load_benchmark
from tests.helpers.command import python
from tests.helpers.modes import some
from tests.helpers.oracles import follow

DELAY_S = 0.5


def next_slot_of(rolling: RollingSchedule) -> Slot:
    """Commit the next slot, which there has to be."""
    slot = rolling.next_slot()
    assert slot is not None
    return slot


def run_next_slot(rolling: RollingSchedule) -> Slot:
    """Commit the next slot, and let it run to its end."""
    slot = next_slot_of(rolling)
    rolling.advance(slot.end_s)
    return slot


def drain(rolling: RollingSchedule) -> list[Slot]:
    """Commit slots and let them run until the queue is empty."""
    slots = []
    while (slot := rolling.next_slot()) is not None:
        slots.append(slot)
        rolling.advance(slot.end_s)
    return slots


@pytest.mark.parametrize(
    "fabric",
    [
        om.IdealSwitch(6),
        om.IdealSwitch(6, bidirectional=True),
        om.Benes(6),
        om.HexMesh(2, 2, ports=4),
    ],
    ids=str,
)
def test_all_that_comes_is_served(fabric: om.Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count()  # a clock of its own, which a busy machine does not stretch
    monkeypatch.setattr("optmatch.model.limits.time.perf_counter", lambda: 2e-3 * next(looks))
    rng, n = np.random.default_rng(0), fabric.n_ports
    rolling = RollingSchedule(fabric, DELAY_S, time_limit_s=None if n == 6 else 0.02)
    total, slots = np.zeros((n, n)), list[Slot]()
    for turn in range(4):
        demand = rng.integers(0, 9, (n, n)) * (rng.random((n, n)) < 0.5)
        np.fill_diagonal(demand, 0)
        rolling.add(demand)
        total += demand
        slot = next_slot_of(rolling)
        slots.append(slot)
        rolling.advance((slot.light_s + slot.end_s) / 2 if turn % 2 else slot.end_s)
    slots += drain(rolling)
    assert rolling.queued_bytes.sum() == 0
    served, end_s, held = np.zeros((n, n)), 0.0, np.full(n, -1)
    for slot in slots:
        assert slot.start_s >= end_s
        changed = not np.array_equal(slot.matching, held)
        assert slot.light_s == slot.start_s + (DELAY_S if changed else 0.0)
        used = np.flatnonzero(slot.matching >= 0)
        assert not fabric.bidirectional or (slot.matching[slot.matching[used]] == used).all()
        served[used, slot.matching[used]] += slot.end_s - slot.light_s
        end_s, held = slot.end_s, slot.matching
        if slot.cell_states is not None:
            states: Any = slot.cell_states[None]
            row = om.Schedule(
                matchings=slot.matching[None], durations_s=np.ones(1), cell_states=states
            )
            assert om.verify(om.Routing(fabric, slot.matching), row).ok
    assert (served >= total - 1e-9).all()
    figures = rolling.figures()
    assert (figures["completed"], figures["waiting"]) == (4, 0)
    assert 0 < figures["mean_wait_s"] <= figures["max_wait_s"] <= figures["completion_s"] <= end_s


def test_it_is_never_worse_than_to_start_again() -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rolling = RollingSchedule(om.IdealSwitch(8), DELAY_S, time_limit_s=None, aim="completion")
        rolling.add(rng.integers(0, 9, (8, 8)))
        for _ in range(3):
            run_next_slot(rolling)
        rolling.add(rng.integers(0, 3, (8, 8)))
        anew = schedule(rolling.queued_bytes, DELAY_S, time_limit_s=None)
        began_s = rolling.now_s
        last = drain(rolling)[-1]
        assert last.end_s - began_s <= anew.completion_s + 1e-9


def test_a_circuit_that_still_serves_is_kept() -> None:
    rolling = RollingSchedule(om.IdealSwitch(3), DELAY_S)
    rolling.add([[0, 4, 0], [0, 0, 4], [0, 0, 0]])
    next_slot_of(rolling)
    rolling.advance(2.0)
    rolling.add([[0, 2, 0], [0, 0, 0], [0, 0, 0]])
    second = next_slot_of(rolling)
    assert (second.start_s, second.light_s, second.end_s) == (4.5, 4.5, 6.5)
    assert rolling.next_slot() is None
    rolling.advance(10.0)
    assert rolling.figures()["completion_s"] == 6.5
    assert rolling.figures()["max_wait_s"] == 4.5


def test_rounding_takes_nothing_back() -> None:
    rolling = RollingSchedule(om.IdealSwitch(2), 0.0, time_limit_s=None, aim="completion")
    for size in (0.3, 0.9, 1.0):
        rolling.add([[0.0, size], [0.0, 0.0]])
    rolling.next_slot()
    rolling.advance(0.9)
    assert rolling.queued_bytes[0, 1] == pytest.approx(1.3)
    assert rolling.figures()["completed"] == 1


def test_what_is_wrong_is_refused() -> None:
    rolling = RollingSchedule(om.IdealSwitch(2), DELAY_S)
    rolling.advance(3.0)
    with pytest.raises(om.InputError, match="before 3"):
        rolling.advance(2.0)
    with pytest.raises(om.InputError, match="the fabric has 2 ports"):
        rolling.add([[1]])
    number: Any = 4
    with pytest.raises(om.InputError, match="fabric = 4: a Fabric is expected"):
        om.RollingSchedule(number, delay_s=1.0)
    with pytest.raises(om.InputError, match="time_limit_s = -1"):
        om.RollingSchedule(om.IdealSwitch(2), delay_s=1.0, time_limit_s=-1)
    with pytest.raises(om.InputError, match="must be > 0"):
        RollingSchedule(om.IdealSwitch(2), DELAY_S, rate_bytes_per_s=0)
    assert rolling.next_slot() is None


@pytest.mark.parametrize(("ports", "load"), [(8, 0.5), (8, 0.95), (16, 0.8)])
def test_demands_wait_no_longer_than_by_a_rival(ports: int, load: float) -> None:
    """The matching of the most waiting demand, with hysteresis, in slots of ten delays."""
    stability = load_benchmark("rolling_stability")
    cell = stability.Cell(load, ports, "uniform", 40.0)
    flows = list(islice(stability.yield_flows(cell, 0), 30 * ports))
    ours, _flows, _end_s = stability.run_ours(ports, iter(flows))
    rival = stability.run_maximum_weight(ports, flows, np.inf, 10.0, 1.3)
    assert ours.mean_wait_s <= 0.9 * rival.mean_wait_s


@pytest.mark.parametrize("aim", ["wait", "completion"])
@pytest.mark.parametrize("unit_s", [1.0, 1e-6])
def test_slots_do_not_depend_on_the_clock(aim: Aim, unit_s: float) -> None:
    rng = np.random.default_rng(0)
    first, second = unit_s * rng.random((2, 6, 6)) * (rng.random((2, 6, 6)) < 0.5)
    runs = []
    for began_s in (0.0, 1.0, 86400.0, 1.7e9):
        rolling = RollingSchedule(om.IdealSwitch(6), 0.1 * unit_s, time_limit_s=None, aim=aim)
        rolling.advance(began_s)
        rolling.add(first)
        slot = run_next_slot(rolling)
        rolling.add(second)
        slots = [slot, *drain(rolling)]
        assert rolling.queued_bytes.sum() == 0
        runs.append([(slot.matching.tolist(), slot.duration_s) for slot in slots])
    assert all(run == runs[0] for run in runs)


@pytest.mark.parametrize("aim", ["wait", "completion"])
@pytest.mark.parametrize("mouse_waits", [True, False])
def test_no_flow_waits_for_ever(aim: Aim, mouse_waits: bool) -> None:
    """Beside demand that comes again and again, each flow is served within its bound."""
    delay_s, waits, fills = 0.1, 0.5 if mouse_waits else 40.0, 40.0 if mouse_waits else 0.5
    rolling = RollingSchedule(om.IdealSwitch(3), delay_s, time_limit_s=None, aim=aim)
    rolling.add(np.array([[0, waits, 0], [0, 0, 0], [0, 0, 0]]))
    rolling.add(np.array([[0, 0, fills], [0, fills, 0], [0, 0, 0]]))
    bound_s = 2 * (waits + 2 * fills + 3 * delay_s)
    for _ in range(400):
        run_next_slot(rolling)
        if rolling.queued_bytes[0, 1] == 0:
            break
        refill = np.where(rolling.queued_bytes < fills / 2, fills, 0.0)
        rolling.add(refill * [[0, 0, 1], [0, 1, 0], [0, 0, 0]])
    longest_slot_s = max(10 * delay_s, waits, fills) + delay_s
    assert rolling.queued_bytes[0, 1] == 0
    assert rolling.now_s <= bound_s + longest_slot_s


def test_demand_is_taken_back() -> None:
    rolling = RollingSchedule(om.IdealSwitch(2), DELAY_S)
    rolling.add([[0, 2], [0, 0]])
    rolling.add([[0, 3], [1, 0]])
    assert rolling.take_back([[0, 4], [5, 0]]).tolist() == [[0, 4], [1, 0]]
    assert rolling.queued_bytes.tolist() == [[0, 1], [0, 0]]
    assert rolling.figures()["completed"] == 1
    assert drain(rolling)[-1].end_s == DELAY_S + 1
    assert rolling.figures()["completed"] == 2


def test_planes_serve_side_by_side() -> None:
    demand = 4.0 * (1 - np.eye(5))
    ends = []
    for planes in (1, 2):
        rolling = RollingSchedule(om.IdealSwitch(5), DELAY_S, planes=planes)
        rolling.add(demand)
        slots = [rolling.next_slot() for _ in range(planes)]
        served = np.zeros((5, 5))
        while slots:
            slot = min((slot for slot in slots if slot), key=lambda slot: slot.end_s)
            used = np.flatnonzero(slot.matching >= 0)
            served[used, slot.matching[used]] += slot.duration_s
            rolling.advance(slot.end_s)
            slots = [other for other in slots if other is not None and other is not slot]
            following = rolling.next_slot()
            assert following is None or following.plane == slot.plane or not slots
            slots += [following] if following else []
        assert (served >= demand).all()
        assert rolling.queued_bytes.sum() == 0
        ends.append(rolling.figures()["completion_s"])
    assert ends[1] <= 0.6 * ends[0]


def test_circuits_that_stay_carry_during_a_change() -> None:
    ends = {}
    switchings: tuple[Switching, ...] = ("all-stop", "per-circuit")
    for switching in switchings:
        rolling = RollingSchedule(om.IdealSwitch(4), DELAY_S, switching=switching)
        rolling.add([[0, 6, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0]])
        slots = drain(rolling)
        ends[switching] = rolling.figures()["completion_s"]
        assert rolling.queued_bytes.sum() == 0
        assert slots[0].matching[0] == 1
    assert ends["per-circuit"] < ends["all-stop"]


@pytest.mark.parametrize("aim", ["wait", "completion"])
def test_a_mesh_without_a_plan_in_time_goes_on(aim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By matchings of the last plan, and by single circuits; figures say how often."""
    mesh = om.HexMesh(4, 4, ports=8)
    rolling = RollingSchedule(mesh, DELAY_S, aim=aim, time_limit_s=None)
    rolling.add(np.triu(np.ones((8, 8)), 1))
    assert rolling.next_slot() is not None and rolling.figures()["late_plans"] == 0

    def solve_nothing(problem: Any, **_: Any) -> om.Solution:
        return om.Solution(
            problem=problem, status=om.Status.UNKNOWN, limit=om.Limit.TIME, method="late"
        )

    monkeypatch.setattr("optmatch.control.demands.slot_choices.solve", solve_nothing)
    widths = []
    while (slot := rolling.next_slot()) is not None:
        widths.append(np.count_nonzero(slot.matching != -1))
        rolling.advance(slot.end_s)
    assert max(widths) > 2, "matchings of the last plan serve several circuits"
    figures = rolling.figures()
    assert (figures["queued_bytes"], figures["completed"]) == (0.0, 1)
    assert figures["late_plans"] == len(widths)
    rolling.add(0, 5, 1.0)
    rolling.fail(7)
    slot = rolling.next_slot()
    assert slot is not None and slot.matching[0] == 5
    assert rolling.figures()["late_plans"] == len(widths) + 1


@pytest.mark.parametrize("fabric", [om.Benes(6), om.HexMesh(2, 2, ports=4)], ids=lambda f: f.type)
def test_circuits_whose_cells_are_set_anew_wait(
    fabric: om.Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What circuits carry whose light is followed is what is no longer waiting."""
    looks = count()  # a clock of its own, which a busy machine does not stretch
    monkeypatch.setattr("optmatch.model.limits.time.perf_counter", lambda: 2e-3 * next(looks))
    rng = np.random.default_rng(1)
    n = fabric.n_ports
    demand = rng.integers(1, 9, (n, n))
    np.fill_diagonal(demand, 0)
    limit_s = None if n == 6 else 0.02
    rolling = RollingSchedule(fabric, DELAY_S, time_limit_s=limit_s, switching="per-circuit")
    rolling.add(demand)
    carried_s = np.zeros((n, n))
    before: dict[tuple[int, int], Any] = {}
    n_dark = 0
    for slot in drain(rolling):
        assert slot.cell_states is not None
        assert fabric.graph is not None
        routes = {}
        for source in np.flatnonzero(slot.matching >= 0).tolist():
            circuit = source, int(slot.matching[source])
            start = int(fabric.source_terminals[source])
            routes[circuit], end = follow(fabric.graph, slot.cell_states.tolist(), start)
            assert end == fabric.destination_terminals[circuit[1]]
            carried_s[circuit] += slot.end_s - slot.light_s
            if before.get(circuit) == routes[circuit]:
                carried_s[circuit] += slot.light_s - slot.start_s
            n_dark += circuit in before and before[circuit] != routes[circuit]
        before = routes
    assert (carried_s >= demand - 1e-9).all()
    assert n_dark or fabric.bidirectional


def test_packets_are_sent_beside() -> None:
    rolling = RollingSchedule(om.IdealSwitch(3), DELAY_S, packet_bytes_per_s=0.25)
    rolling.add([[0, 1, 1], [0, 0, 1], [0, 0, 0]])
    rolling.advance(2.0)
    sent = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]]) - rolling.queued_bytes
    assert sent.sum(axis=0).max() == sent.sum(axis=1).max() == 0.5
    drain(rolling)
    assert rolling.queued_bytes.sum() == 0


@pytest.mark.parametrize("fabric", [om.IdealSwitch(6), om.Benes(6)], ids=lambda f: f.type)
@pytest.mark.parametrize("aim", ["wait", "completion"])
@pytest.mark.parametrize("way", ["file", "pickle", "copy"])
def test_another_one_goes_on(tmp_path: Path, fabric: om.Fabric, way: str, aim: Aim) -> None:
    """With the slots that are planned, and with the weights and deadlines of what waits."""
    rng = np.random.default_rng(0)
    rolling = RollingSchedule(fabric, 0.1, planes=2, packet_bytes_per_s=0.01, aim=aim,
        time_limit_s=None,
    )  # fmt: skip
    rolling.advance(1.7e9)
    rolling.add(rng.integers(0, 9, (6, 6)) / 3)
    for _ in range(20):
        source, destination = rng.integers(6, size=2).tolist()
        rolling.add(
            source,
            destination,
            float(rng.exponential()),
            weight=float(rng.choice([1.0, 7.5])),
            deadline_s=1.7e9 + float(rng.uniform(1, 30)) if rng.random() < 0.6 else None,
        )
    rolling.next_slot()
    rolling.advance(1.7e9 + 0.2)
    if way == "file":
        rolling.save(tmp_path / "queue.json")
        other = RollingSchedule.load(tmp_path / "queue.json")
    else:
        other = pickle.loads(pickle.dumps(rolling)) if way == "pickle" else copy.copy(rolling)
    own = "calls", "call_s"  # counted from its own beginning
    assert _but(other.figures(), own) == _but(rolling.figures(), own)
    rolling.add(np.eye(6)[::-1])
    other.add(np.eye(6)[::-1])
    for slot, again in zip(drain(rolling), drain(other), strict=True):
        np.testing.assert_equal(slot, again)
    figures = rolling.figures()
    assert _but(other.figures(), own) == _but(figures, own)
    assert figures["with_deadline"] > 5


def _but(figures: dict[str, Any], own: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if name not in own}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", "optmatch/rolling-schedule/9", "/format"),
        ("delay_s", -1, "delay_s = -1"),
        ("free", [0, 0], "free has 2 entries, there are 1 planes"),
        ("held", [[0, 0]], "held|matching"),
        ("flows", [[0, 9, 0, 5, 5]], "a port out of range"),
        ("flows", [[0, 1, 7, 5, 5]], "each waiting demand has flows"),
        ("waiting", [], "each waiting demand has flows"),
        ("weights", [2.0, 1.0], r"weights has 2 entries, there are \d+ waiting demands"),
        ("what", 1, "what"),
    ],
)
def test_files_are_checked(tmp_path: Path, key: str, value: object, message: str) -> None:
    rolling = RollingSchedule(om.IdealSwitch(2), DELAY_S)
    rolling.add([[0, 1], [0, 0]])
    rolling.next_slot()
    path = tmp_path / "queue.json"
    rolling.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(om.InputError, match=message) as caught:
        RollingSchedule.load(path)
    assert str(path) in str(caught.value)


def test_the_queue_costs_no_time() -> None:
    """The work of a slot is that of its circuits, however many demands wait for them."""
    calls = []
    for waiting in (10, 1000):
        rolling = RollingSchedule(om.IdealSwitch(4), 0.1)
        for _ in range(waiting):
            rolling.add(np.ones((4, 4)))
        slot = next_slot_of(rolling)
        profile = cProfile.Profile()
        profile.runcall(rolling.advance, slot.light_s + 1.0)
        profile.runcall(rolling.next_slot)
        calls.append(sum(entry.callcount for entry in profile.getstats()))
    assert calls[1] <= 1.2 * calls[0]


FIRST_SLOT = """
import sys
import optmatch as om
from optmatch.solvers.kernels.decorators import LazyKernel

def loaded():
    kernels = {kernel.__name__ for kernel in LazyKernel._all if kernel._made is not None}
    return kernels | set(sys.modules)

rolling = om.RollingSchedule(om.IdealSwitch(6), 0.5, aim=sys.argv[1], time_limit_s=None)
if sys.argv[2] == "load":
    rolling.save(sys.argv[3])
    rolling = om.RollingSchedule.load(sys.argv[3])
before = loaded()
for k in range(3):
    matrix = [[1 + (7 * i + 3 * j + k) % 11 for j in range(6)] for i in range(6)]
    for port in range(6):
        matrix[port][port] = 0
    rolling.add(matrix)
    rolling.next_slot()
print(sorted(loaded() - before))
"""


@pytest.mark.parametrize(
    ("way", "aim"),
    some([("new", "wait"), ("new", "completion"), ("load", "wait"), ("load", "completion")], 3),
)
def test_the_first_slot_loads_nothing(aim: Aim, way: str, tmp_path: Path) -> None:
    """Kernels and SciPy take half a second to load: the constructor does it."""
    assert python("-c", FIRST_SLOT, aim, way, tmp_path / "state.json").stdout == "[]\n"


def test_complete_flows_are_forgotten_at_once() -> None:
    """No slot pays for the flows that were complete before: each goes when it is served."""
    queue = FlowQueue(2, delay=1)
    for number in range(100):
        queue.add(number, [((0, 1), 2)], now_tick=0)
    queue.add(100, [((1, 0), 1000)], now_tick=0)
    queue.serve((0, 1), 2 * 60, begin=0)
    queue.take_back((0, 1), 2 * 10, now_tick=120)

    profile = cProfile.Profile()
    overdue = profile.runcall(queue.most_overdue, 10**6, {})
    assert overdue == ((0, 1), 2)
    assert [flow.demand for flow in queue.flows()] == [*range(60, 90), 100]
    calls = sum(entry.callcount for entry in profile.getstats())
    assert calls <= 2 * 31 + 10, "31 flows are left, and no other is looked at"


def test_one_flow_is_added_as_a_matrix_of_it_would_be() -> None:
    one, other, sparse = (RollingSchedule(om.IdealSwitch(3), DELAY_S) for _ in range(3))
    matrix = np.zeros((3, 3))
    matrix[0, 2] = 1.25
    one.add(0, 2, 1.25)
    other.add(matrix)
    sparse.add(scipy.sparse.csr_array(matrix))
    assert one.queued_bytes.tolist() == other.queued_bytes.tolist() == sparse.queued_bytes.tolist()
    for slot, again in zip(drain(one), drain(other), strict=True):
        np.testing.assert_equal(slot, again)
    for flow, message in (
        ((0, 3, 1.0), "destination = 3: ports are 0 .. 2"),
        ((-1, 0, 1.0), "source = -1"),
        ((0, 1, 0.0), "size_bytes = 0: > 0"),
        ((0, 1, None), "size_bytes = None"),
    ):
        with pytest.raises(om.InputError, match=message):
            one.add(*flow)
    mesh = RollingSchedule(om.HexMesh(2, 2, ports=om.HexMesh(2, 2).dead_pairs()[0]), DELAY_S)
    with pytest.raises(om.InputError, match="no states of the cells connect"):
        mesh.add(0, 1, 1.0)


def test_a_planned_slot_has_a_longest_length() -> None:
    """A mouse that comes during an elephant does not wait for all of it."""
    rolling = RollingSchedule(om.IdealSwitch(3), DELAY_S, time_limit_s=None, aim="completion")
    rolling.add(0, 1, 1000.0)
    slot = next_slot_of(rolling)
    assert slot.duration_s == 10 * DELAY_S
    rolling.advance(1.0)
    rolling.add(2, 0, 1.0)
    slots = drain(rolling)
    assert rolling.figures()["completed"] == 2
    assert slots[-1].end_s <= 1000.0 + 2 * DELAY_S


@pytest.mark.parametrize(("n_flows", "long_queue_first"), [(1, False), (30, True)])
def test_many_flows_come_before_a_short_one(n_flows: int, long_queue_first: bool) -> None:
    """Each port has one short flow for one partner, and `n_flows` long ones for another.

    The short flow goes before one long flow. It does not go before many: a policy that served
    short flows first whatever waits would not keep queues finite at high loads.
    """
    ports = 8
    rolling = RollingSchedule(om.IdealSwitch(ports), 1.0)
    for source in range(ports):
        rolling.add(source, (source + 1) % ports, 30.0)
        for _ in range(n_flows):
            rolling.add(source, (source + 2) % ports, 50.0)
    slot = next_slot_of(rolling)
    long_queues = (np.arange(ports) + 2) % ports
    assert (slot.matching == long_queues).all() == long_queue_first


def test_a_due_flow_leaves_the_best_other_circuits() -> None:
    """Beside the circuit of a flow that is due, the others are those that are worth most.

    The flow from port 31 is due because the clock has moved on while no slot was committed. Port 0
    has a short flow for the same destination, and two for others, of which the second is shorter.
    The worth of circuits must not be lost beside the number that makes the due flow come first.
    """
    delay_s = 1000.0
    rolling = RollingSchedule(om.IdealSwitch(32), delay_s)
    rolling.add(31, 1, 5 * delay_s)
    rolling.advance(100 * delay_s)
    rolling.add(0, 1, 20 * delay_s)
    rolling.add(0, 2, 50 * delay_s)
    rolling.add(0, 3, 40 * delay_s)
    slot = next_slot_of(rolling)
    assert (slot.matching[31], slot.matching[0]) == (1, 3)


@pytest.mark.parametrize("as_matrix", [True, False])
def test_the_size_of_a_flow_counts_at_its_rate(as_matrix: bool) -> None:
    """A flow of 0.8 s at 100 Gb/s is not long, and one of 2**53 delays is too long.

    That one is refused whether or not another flow between the same ports came before.
    """
    delay_s, rate = 1e-6, 12.5e9

    def add(size_bytes: float) -> None:
        if as_matrix:
            rolling.add([[0.0, size_bytes], [0.0, 0.0]])
        else:
            rolling.add(0, 1, size_bytes)

    rolling = RollingSchedule(om.IdealSwitch(2), delay_s, rate_bytes_per_s=rate)
    too_long = 2.0**53 * delay_s * rate
    for _ in range(2):
        with pytest.raises(om.InputError):
            add(too_long)
        add(1e10)
    assert rolling.queued_bytes.tolist() == [[0.0, 2e10], [0.0, 0.0]]


def complete_in_turn(
    flows: list[tuple[int, tuple[int, int], int]], slots: list[tuple[Slot, Slot | None]]
) -> dict[int, int]:
    """Say when each flow is complete, in plain integers: first come first served by circuit.

    Flows are (arrival, circuit, length). Each slot comes with the one before if the circuits that
    both have carry on during the delay, else with None. All times are whole seconds.
    """
    completion: dict[int, int] = {}
    lengths = [length for _, _, length in flows]
    for slot, before in slots:
        for source, destination in enumerate(slot.matching.tolist()):
            stays = before is not None and before.matching[source] == destination
            now = round(slot.start_s if stays else slot.light_s)
            for number, (arrival, place, _) in enumerate(flows):
                if place == (source, destination) and lengths[number]:
                    begin = max(now, arrival)
                    carried = max(0, min(lengths[number], round(slot.end_s) - begin))
                    lengths[number] -= carried
                    now = begin + carried
                    if not lengths[number]:
                        completion[number] = now
    return completion


@pytest.mark.parametrize("switching", ["all-stop", "per-circuit"])
@pytest.mark.parametrize(("ports", "delay_s"), [(1, 8.0), (2, 0.0), (2, 8.0), (4, 8.0)])
def test_slots_that_are_committed_ahead_serve_later_flows(
    ports: int, delay_s: float, switching: Switching
) -> None:
    """Flows are complete when plain integers say so, with up to three slots committed ahead.

    Slots last for whole eighths of a delay, which are whole seconds here.
    """
    rng = np.random.default_rng(ports)
    rolling = RollingSchedule(om.IdealSwitch(ports), delay_s, switching=switching)
    completions = rolling.record_completions()
    flows: list[tuple[int, tuple[int, int], int]] = []
    slots: list[Slot] = []
    ends_s: list[float] = []
    for turn in range(40):
        for _ in range(int(rng.integers(4)) if turn < 20 else 0):
            source, destination, length = rng.integers((ports, ports, 30)).tolist()
            rolling.add(source, destination, length + 1.0)
            flows.append((round(rolling.now_s), (source, destination), length + 1))
        ends_s = [end_s for end_s in ends_s if end_s > rolling.now_s]
        while len(ends_s) < 3 and (slot := rolling.next_slot()) is not None:
            slots.append(slot)
            ends_s.append(slot.end_s)
        rolling.advance(ends_s[0] if ends_s else rolling.now_s + 1.0)
    slots += drain(rolling)

    before: list[Slot | None] = [None] * len(slots)
    if switching == "per-circuit":
        before = [None, *slots[:-1]]
    expected = complete_in_turn(flows, list(zip(slots, before, strict=True)))
    assert {demand: tick // 10**15 for demand, tick in completions} == expected
    assert len(expected) == len(flows)


@pytest.mark.parametrize("priorities", [False, True])
def test_flows_that_are_committed_are_passed_over_once(priorities: bool) -> None:
    """What `look` remembers between slots changes none of its answers."""
    rng = np.random.default_rng(4)
    queue = FlowQueue(2, delay=3)
    place = (0, 1)
    n_flows = 0
    for step in range(300):
        kind = int(rng.integers(4))
        ticks = int(rng.integers(1, 30))
        if kind < 2:
            weight = float(rng.integers(1, 3)) if priorities else 1.0
            queue.add(n_flows, [(place, ticks)], step, Urgency(weight))
            n_flows += 1
        elif kind == 2:
            queue.serve(place, ticks, step)
        else:
            queue.take_back(place, ticks // 4, step)

        # A copy has nothing to remember. Reserved ticks are rising at times, and falling at times.
        reserved = int(rng.integers(0, 1 + queue.total(place)))
        forgetful = copy.deepcopy(queue)
        forgetful._passed.clear()
        assert queue.look(place, reserved) == forgetful.look(place, reserved)
        overdue = queue.most_overdue(step, {place: reserved})
        assert overdue == forgetful.most_overdue(step, {place: reserved})


def test_slots_far_ahead_cost_no_more_than_the_first() -> None:
    """The flows that committed slots serve are not summed up for each of them."""
    queue = FlowQueue(2, delay=1)
    place = (0, 1)
    for number in range(2_000):
        queue.add(number, [(place, 10)], now_tick=0)
    assert queue.most_overdue(10**9, {place: 10_000}) == (place, 10)
    profile = cProfile.Profile()
    assert profile.runcall(queue.most_overdue, 10**9, {place: 10_015}) == (place, 5)
    assert sum(entry.callcount for entry in profile.getstats()) < 100


# The benchmark of rolling schedules copes with runs of any length.

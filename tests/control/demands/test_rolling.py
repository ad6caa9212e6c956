"""Demand that arrives while slots run: all is served, and no plan is worse than a new one."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.control.demands.rolling import RollingSchedule, Slot
from optmatch.control.demands.schedules import schedule

DELAY_S = 0.5


def drain(rolling: RollingSchedule) -> list[Slot]:
    """Commit slots and let them run until the queue is empty."""
    slots = []
    while (slot := rolling.next_slot()) is not None:
        slots.append(slot)
        rolling.advance(slot.end_s)
    return slots


@pytest.mark.parametrize(
    "fabric", [om.IdealSwitch(6), om.Benes(6), om.HexMesh(2, 2, ports=4)], ids=lambda f: f.type
)
def test_all_that_comes_is_served(fabric: om.Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replayed by hand: slots follow each other, and carry what has come before they end."""
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
        slot = rolling.next_slot()
        assert slot is not None
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
    """After what is committed, what is left takes no longer than a new schedule of it."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rolling = RollingSchedule(om.IdealSwitch(8), DELAY_S, time_limit_s=None)
        rolling.add(rng.integers(0, 9, (8, 8)))
        for _ in range(3):
            slot = rolling.next_slot()
            assert slot is not None
            rolling.advance(slot.end_s)
        rolling.add(rng.integers(0, 3, (8, 8)))
        anew = schedule(rolling.queued_bytes, DELAY_S, time_limit_s=None)
        began_s = rolling.now_s
        last = drain(rolling)[-1]
        assert last.end_s - began_s <= anew.completion_s + 1e-9


def test_a_circuit_that_still_serves_is_kept() -> None:
    """More of the same needs no delay; idle ports keep their circuits."""
    rolling = RollingSchedule(om.IdealSwitch(3), DELAY_S)
    rolling.add([[0, 4, 0], [0, 0, 4], [0, 0, 0]])
    first = rolling.next_slot()
    assert first is not None
    rolling.advance(2.0)
    rolling.add([[0, 2, 0], [0, 0, 0], [0, 0, 0]])
    second = rolling.next_slot()
    assert second is not None
    assert (second.start_s, second.light_s, second.end_s) == (4.5, 4.5, 6.5)
    assert rolling.next_slot() is None
    rolling.advance(10.0)
    assert rolling.figures()["completion_s"] == 6.5
    assert rolling.figures()["max_wait_s"] == 4.5


def test_the_oldest_are_served_first() -> None:
    """Two demands of one circuit: the first is complete when it would be alone."""
    rolling = RollingSchedule(om.IdealSwitch(2), DELAY_S, rate_bytes_per_s=2.0)
    rolling.add([[0, 4], [0, 0]])
    rolling.add([[0, 2], [0, 0]])
    assert rolling.figures()["waiting"] == 2
    drain(rolling)
    figures = rolling.figures()
    assert (figures["mean_wait_s"], figures["max_wait_s"]) == (3.0, 3.5)


def test_rounding_takes_nothing_back() -> None:
    """In 0.9 s: 0.3 of the first demand and 0.9 - 0.3 of the second, which together are more."""
    rolling = RollingSchedule(om.IdealSwitch(2), 0.0, time_limit_s=None)
    for size in (0.3, 0.9, 1.0):
        rolling.add([[0.0, size], [0.0, 0.0]])
    rolling.next_slot()
    rolling.advance(0.9)
    assert rolling.queued_bytes[0, 1] == pytest.approx(1.3)
    assert rolling.figures()["completed"] == 1


def test_what_is_wrong_is_refused() -> None:
    """Time that runs backwards, demands of other ports, a rate of nothing."""
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

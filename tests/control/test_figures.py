"""The view of an operator: figures against plain counts, and what listeners are told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import optmatch as om
from optmatch.control.figures import BUCKETS_S, Call, Histogram, Tally
from optmatch.model import InfeasibleError
from tests.control.reroutes.test_rerouter import mesh_state, rack_state


def test_a_controller_counts_what_it_is_asked(tmp_path: Path) -> None:
    """Calls by outcome, spares by rack and parts by what was done about them."""
    told = list[Call]()
    state, path = replace(rack_state(), spares=(60, 61)), tmp_path / "controller.json"
    controller = om.Rerouter.open(path, state, on_event=told.append)
    proposal = controller.fail(chip=3)
    controller.fail(fibre=5)
    with pytest.raises(InfeasibleError):
        controller.fail(chip=[10, 11, 12])
    controller.apply(proposal)
    with pytest.raises(om.InputError):
        controller.apply(proposal)
    controller.what_if(chip=20)
    figures = controller.figures()
    assert figures["calls"]["fail", "done"] == 2
    assert figures["calls"]["fail", "infeasible"] == 1
    assert figures["calls"]["apply", "refused"] == 1
    assert sum(figures["call_s"]["fail"].counts) == 3 and figures["call_s"]["fail"].sum_s > 0
    assert figures["spares"] == {0: 1}
    assert om.Rerouter(mesh_state()).figures()["spares"] == {0: 2}
    assert figures["parts"]["chip", "replaced"] == 1
    assert figures["parts"]["chip", "refused"] == 3
    assert figures["parts"]["fibre", "answered"] == 1
    names = [(call.call, call.outcome) for call in told]
    assert names[:3] == [("fail", "done")] * 2 + [("fail", "infeasible")]
    assert names[3:] == [("apply", "done"), ("apply", "refused"), ("what_if", "done")]
    assert told[2].parts.failed_chips == (10, 11, 12) and told[2].took_s > 0
    controller.close()


def test_a_schedule_counts_and_tells_as_well(tmp_path: Path) -> None:
    """Its queue, its calls by outcome, and how long these took; a loaded one counts anew."""
    told = list[Call]()
    rolling = om.RollingSchedule(om.IdealSwitch(2), delay_s=0.5, on_event=told.append)
    rolling.add([[0, 3], [2, 0]])
    slot: Any = rolling.next_slot()
    rolling.advance(slot.end_s)
    with pytest.raises(om.InputError):
        rolling.advance(0.0)
    rolling.take_back([[0, 1], [0, 0]])
    figures = rolling.figures()
    assert figures["queued_bytes"] == pytest.approx(rolling.figures()["queued_bytes"])
    names = [(call.call, call.outcome) for call in told]
    assert names == [
        ("add", "done"),
        ("next_slot", "done"),
        ("advance", "done"),
        ("advance", "refused"),
        ("take_back", "done"),
    ]
    for call in set(names):
        assert figures["calls"][call] == 1
    assert sum(figures["call_s"]["advance"].counts) == 2
    rolling.save(tmp_path / "rolling.json")
    om.RollingSchedule.load(tmp_path / "rolling.json", on_event=told.append).next_slot()
    assert len(told) == len(names) + 1


@given(st.lists(st.floats(0, 20), max_size=30))
def test_buckets_hold_what_lies_below_their_end(times: list[float]) -> None:
    tally = Tally()
    for took_s in times:
        tally.count("fail", "done", None, took_s)
    figures = tally.figures()
    assert set(figures["call_s"]) == ({"fail"} if times else set())
    assert figures["calls"].get(("fail", "done"), 0) == len(times)
    counts = [0] * (len(BUCKETS_S) + 1)
    for took_s in times:
        bucket = next((k for k, end in enumerate(BUCKETS_S) if took_s <= end), len(BUCKETS_S))
        counts[bucket] += 1
    if times:
        assert figures["call_s"]["fail"] == Histogram(tuple(counts), sum(times))


def test_an_error_of_a_listener_is_logged(caplog: pytest.LogCaptureFixture) -> None:

    def fail(call: Call) -> None:
        raise RuntimeError("no listener")

    tally = Tally(fail)
    with tally.call("route"):
        pass
    assert tally.figures()["calls"] == {("route", "done"): 1}
    assert "on_event failed" in caplog.text

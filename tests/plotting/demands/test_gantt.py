"""Charts of demands over time: the data, the drawing, the files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.plotting import gantt_data, plot_gantt, save_picture
from tests.helpers.command import call

PROBLEM = om.Demand.from_matrix([[0, 3], [2, 0]], delay_s=1.0)


def answer(problem: om.Demand = PROBLEM, **fields: Any) -> om.Solution:
    """Make a solution by hand."""
    given: dict[str, Any] = {
        "status": om.Status.FEASIBLE,
        "limit": om.Limit.TIME,
        "objective": 4.0,
        "lower_bound": 4.0,
        "method": "by hand",
    }
    fields.setdefault("schedule", PROBLEM.schedule([[1, 0]], [3]))
    return om.Solution(problem=problem, **{**given, **fields})


def on_planes() -> om.Solution:
    """Make one of the same circuits on two planes, for two ticks and for one."""
    problem = replace(PROBLEM, planes=2)
    parts = (problem.schedule([[1, 0]], [2]), problem.schedule([[1, -1]], [1]))
    plan = om.PlaneSchedules(schedules=parts)
    return replace(
        answer(), problem=problem, schedule=None, answer=plan, objective=3.0, lower_bound=2.0
    )


def test_bars_by_hand() -> None:
    data = gantt_data(answer())
    assert data.source.tolist() == [0, 1]
    assert data.destination.tolist() == [1, 0]
    assert data.start_s.tolist() == [1.0, 1.0]
    assert data.sent_s.tolist() == [4.0, 3.0]
    assert data.end_s.tolist() == [4.0, 4.0]
    assert (data.makespan_s, data.lower_bound_s, data.n_ports, data.planes) == (4.0, 4.0, 2, 1)


def test_planes_share_a_flow() -> None:
    data = gantt_data(on_planes())
    assert data.plane.tolist() == [0, 0, 1]
    assert (data.sent_s - data.start_s).tolist() == [2.0, 2.0, 1.0]
    assert data.makespan_s == 3.0


def test_circuits_that_stay_have_no_gap() -> None:
    """Per circuit, the bar of the second slot begins where that of the first ends."""
    problem = replace(PROBLEM, switching="per-circuit")
    data = gantt_data(answer(problem, schedule=problem.schedule([[1, -1], [1, 0]], [1, 2])))
    assert data.start_s.tolist() == [1.0, 2.0, 3.0]
    assert data.sent_s.tolist() == [2.0, 4.0, 5.0]


def test_sums_are_those_of_the_replay() -> None:
    """Bars that send add up to what the simulator says went over circuits."""
    rng = np.random.default_rng(0)
    problem = om.Demand.from_matrix(rng.integers(0, 9, (5, 5)), delay_s=1.0)
    rows = [rng.permutation(5) for _ in range(9)]
    schedule = problem.schedule(rows, rng.integers(1, 6, 9))
    data = gantt_data(answer(problem, schedule=schedule, objective=99.0, lower_bound=0.0))
    sent = float((data.sent_s - data.start_s).sum())
    assert sent == pytest.approx(om.simulate(problem, schedule).circuit_bytes)


def test_what_cannot_be_charted() -> None:
    routing = om.Routing(om.IdealSwitch(2), np.array([1, 0]))
    other = om.Solution(
        problem=routing, status=om.Status.UNKNOWN, limit=om.Limit.TIME, method="by hand"
    )
    with pytest.raises(om.InputError, match="kind routing: this picture is of demand"):
        gantt_data(other)
    nothing = om.Solution(
        problem=PROBLEM, status=om.Status.UNKNOWN, limit=om.Limit.TIME, method="by hand"
    )
    with pytest.raises(om.InputError, match="nothing to draw: the status is unknown"):
        gantt_data(nothing)


def test_the_drawing() -> None:
    """A full bar, a pale one for the rest, destinations, the bound, ports downwards."""
    axes = plot_gantt(answer())
    bars = {
        (round(y.mean()), *x.round(3).tolist())
        for drawn in axes.collections
        for x, y in (path.vertices[:2].T for path in drawn.get_paths())
    }
    assert {(x, end) for _, x, end in bars} == {(1.0, 4.0), (1.0, 3.0), (3.0, 4.0)}
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["1", "0"]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["to 0", "to 1", "lower bound"]
    lower, upper = axes.get_ylim()
    assert lower > upper
    assert axes.get_xlabel() == "time in s"
    assert "4 s" in axes.get_title()
    assert "2 planes" in plot_gantt(on_planes()).get_title()
    empty = om.Demand.from_matrix(np.zeros((2, 2)), delay_s=0.0)
    quiet = answer(empty, schedule=empty.schedule([], []), objective=0.0, lower_bound=0.0)
    assert not plot_gantt(quiet).collections


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_the_files(tmp_path: Path, suffix: str) -> None:
    """The chart is what a demand is drawn as; planes have no other picture."""
    save_picture(answer(), tmp_path / f"one{suffix}")
    save_picture(on_planes(), tmp_path / f"two{suffix}")
    assert (tmp_path / f"one{suffix}").stat().st_size > 1000
    om.save(on_planes(), tmp_path / "two.schedule.json")
    file = str(tmp_path / "two.schedule.json")
    call("plot", file, "-o", tmp_path / f"cli{suffix}")
    result = call("plot", file, "--slot", "1", "-o", tmp_path / "x.png", code=2)
    assert "the answer is not one schedule" in " ".join(result.output.split())

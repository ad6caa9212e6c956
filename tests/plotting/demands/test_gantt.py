"""Charts of demands over time: the data, the drawing, the files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

import optmatch as om
from optmatch.fabrics import SelectedPorts
from optmatch.io import read_traffic
from optmatch.io.exports import exported
from optmatch.plotting import (
    gantt_data,
    left_bytes,
    plot_gantt,
    plot_left,
    problem_html,
    save_picture,
)
from tests.helpers.command import call, refused

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


def test_the_drawing() -> None:
    """A full bar, a pale one for the rest, destinations, the bound, ports downwards."""
    axes = plot_gantt(answer())
    bars = {
        (round(y.mean()), *x.round(3).tolist())
        for drawn in axes.collections
        if drawn.get_label() != "lower bound"
        for x, y in (np.asarray(path.vertices)[:2].T for path in drawn.get_paths())
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
    assert [drawn.get_label() for drawn in plot_gantt(quiet).collections] == ["lower bound"]


def test_planes_have_no_other_picture(tmp_path: Path) -> None:
    file = tmp_path / "two.schedule.json"
    om.save(on_planes(), file)
    call("plot", file, "-o", tmp_path / "two.pdf")
    refused("kind demand is not one schedule", "plot", file, "--slot", "1", "-o", "x.png")


# What is left of a demand while its schedule runs.

ROUTING = om.Routing(om.IdealSwitch(2), [1, 0])
NOTHING = om.Solution(
    problem=PROBLEM, status=om.Status.UNKNOWN, limit=om.Limit.TIME, method="by hand"
)


def solve_drawn(seed: int, **options: Any) -> om.Solution:
    sizes = np.random.default_rng(seed).integers(0, 9, (4, 4)).astype(float)
    problem = om.Demand(om.IdealSwitch(4), sizes, delay_s=1.0, rate_bytes_per_s=2.0, **options)
    return om.solve(problem, "solstice", seed=0)


@pytest.mark.parametrize("options", [{}, {"planes": 2}, {"switching": "per-circuit"}])
def test_what_is_left_agrees_with_a_replay_in_small_steps(options: dict[str, Any]) -> None:
    solution = solve_drawn(len(options), **options)
    answer: Any = solution.schedule or solution.answer
    end_s: Any = solution.objective
    times = np.linspace(0.0, end_s, 7)
    counted = left_bytes(solution, times)
    for time_s, found in zip(times, counted, strict=True):
        rest: Any = solution.problem.demand_bytes.copy()  # type: ignore[attr-defined]
        carried = np.zeros_like(rest)
        for schedule in getattr(answer, "schedules", (answer,)):
            clock, before = 0.0, np.full(4, -1)
            for matching, lasts in zip(schedule.matchings, schedule.durations_s, strict=True):
                end = clock + schedule.delay_s + lasts
                for source, destination in enumerate(matching.tolist()):
                    stays = "switching" in options and before[source] == destination
                    begin = clock + (0.0 if stays else schedule.delay_s)
                    if destination >= 0:
                        carried[source, destination] += 2.0 * max(0.0, min(time_s, end) - begin)
                clock, before = end, matching
        if "planes" not in options:  # planes may serve one pair at once, in an order of their own
            np.testing.assert_allclose(found, np.maximum(rest - carried, 0.0), atol=1e-9)
        assert (found >= rest - carried - 1e-9).all()
    assert (counted[0] == solution.problem.demand_bytes).all()  # type: ignore[attr-defined]
    assert not counted[-1].any()
    figure = plot_left(solution)
    assert [ax.get_title().split(",")[0] for ax in figure.axes[:3]] == [
        "before",
        "during",
        "after",
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: left_bytes(s, [-1.0]), "finite numbers >= 0"),
        (lambda s: plot_left(s, []), "1 to 8 times"),
        (lambda s: plot_left(om.solve(ROUTING)), "of kind routing"),
        (lambda s: gantt_data(om.solve(ROUTING)), "kind routing: this picture is of demand"),
        (lambda s: gantt_data(NOTHING), "nothing to draw: the status is unknown"),
    ],
)
def test_what_cannot_be_drawn_is_said(call: Any, message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        call(solve_drawn(5))


# The labels of a demand are in all that is made of it: files, pictures, pages, tables.


CITIES = ("Berlin", "Oslo", "Paris")
MATRIX = [[0, 3, 2], [1, 0, 0], [4, 2, 0]]


def from_frame(folder: Path) -> om.Demand:
    return om.Demand.from_matrix(pd.DataFrame(MATRIX, CITIES, CITIES), delay_s=0.5)


def from_table(folder: Path) -> om.Demand:
    (folder / "tm.csv").write_text("src,dst,bytes\nBerlin,Oslo,3\nParis,Berlin,4\n")
    traffic = read_traffic(folder / "tm.csv")
    return om.Demand.from_matrix(traffic.demand_bytes, names=traffic.names, delay_s=0.5)


def from_graph(folder: Path) -> om.Demand:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("Berlin", "Oslo", 3), ("Oslo", "Paris", 2)])
    return om.Demand.from_matrix(graph, delay_s=0.5)


@pytest.mark.parametrize("source", [from_frame, from_table, from_graph])
def test_labels_are_everywhere(tmp_path: Path, source: Any) -> None:
    problem = source(tmp_path)
    om.save(problem, tmp_path / "p.json")
    loaded: Any = om.load(tmp_path / "p.json")
    solution = om.solve(loaded, seed=0)
    om.save(solution, tmp_path / "s.json")
    for name in ("s.svg", "s.html"):
        save_picture(solution, tmp_path / name)

    texts = [(tmp_path / name).read_text() for name in ("p.json", "s.json", "s.html", "s.svg")]
    texts.append(problem_html(problem))
    texts += [str(exported(solution, "csv")), str(exported(solution, "perfetto"))]
    texts += [solution.to_dataframe().to_string(), problem.to_dataframe().to_string()]
    texts.append(" ".join(text.get_text() for text in problem.plot().findobj(Text)))
    for text in texts:
        for city in CITIES:
            assert city in text

    arguments = ["simulate", str(tmp_path / "s.json"), "--flows"]
    result = call(*arguments)
    assert "Berlin -> Oslo: 3 B" in result.stdout


def test_perfetto_has_a_track_for_each_label(tmp_path: Path) -> None:
    solution = om.solve(from_frame(tmp_path), seed=0, time_limit_s=0.1)
    events = json.loads(str(exported(solution, "perfetto")))["traceEvents"]
    tracks = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {f"port {city}" for city in CITIES} <= tracks


def test_labels_of_faulty_switches() -> None:
    switch = om.IdealSwitch(3, CITIES)
    assert om.Faulty(switch, dead_ports=[1]).labels == CITIES
    assert SelectedPorts(switch, (2, 0)).labels == ("Paris", "Berlin")
    assert SelectedPorts(om.IdealSwitch(3), (2, 0)).labels == ("0", "1")


def test_circuits_of_a_matching_have_labels() -> None:
    text = problem_html(om.Routing(om.IdealSwitch(3, CITIES), [1, 2, 0]))
    assert all(city in text for city in CITIES)

"""The labels of a demand are in all that is made of it: files, pictures, pages, tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd
import pytest

import optmatch as om
from optmatch.fabrics import SelectedPorts
from optmatch.io import read_traffic
from optmatch.io.exports import exported
from optmatch.plotting import problem_html, save_picture
from tests.helpers.command import call

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
    solution = om.solve(loaded, seed=0, time_limit_s=0.1)
    om.save(solution, tmp_path / "s.json")
    for name in ("s.svg", "s.html"):
        save_picture(solution, tmp_path / name)

    texts = [(tmp_path / name).read_text() for name in ("p.json", "s.json", "s.html", "s.svg")]
    texts.append(problem_html(problem))
    texts += [str(exported(solution, "csv")), str(exported(solution, "perfetto"))]
    texts += [solution.to_dataframe().to_string(), problem.to_dataframe().to_string()]
    for text in texts:
        for city in CITIES:
            assert city in text

    arguments = ["simulate", str(tmp_path / "s.json"), "--flows"]
    result = call(*arguments)
    assert "Berlin -> Oslo: 3 bytes" in result.stdout


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

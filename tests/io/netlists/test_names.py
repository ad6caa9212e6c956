"""Names of cells and ports of netlists stand on the command line wherever numbers do."""

import json
import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import netlist_from_tree
from optmatch.io.cells import read_cells, write_cells
from optmatch.plotting.viewer import page_data
from tests.helpers.command import call_in, refused

PAIR: dict[str, Any] = {
    "instances": {"m 1": "switch", "m+2": "switch"},
    "connections": {"m 1,o3": "m+2,o2", "m 1,o4": "m+2,o1"},
    "ports": {"o1": "m 1,o1", "o2": "m 1,o2", "o3": "m+2,o3", "o4": "m+2,o4"},
}
DIRECTIONS = ("--tx", "o2,o1", "--rx", "o3,o4")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the netlist."""
    (tmp_path / "x.json").write_text(json.dumps(PAIR))
    return tmp_path


def test_info_lists_ports_and_what_they_reach(folder: Path) -> None:
    both = call_in(folder, "info", "x.json").stdout
    assert "port 0 o1: at cell m 1 a2, reaches o3, o4" in both
    tree = json.loads(call_in(folder, "info", "x.json", *DIRECTIONS, "--json").stdout)
    assert tree["permutations_held"] == 2
    assert [row["name"] for row in tree["port_table"]] == ["o2>o3", "o1>o4"]
    less = call_in(folder, "info", "x.json", "--leave-out", "o1", "--json")
    assert json.loads(less.stdout)["ports"] == 3


def test_matchings_and_faults_take_names(folder: Path) -> None:
    make = ("generate", "routing", "--netlist", "x.json", *DIRECTIONS)
    for matching in ("o4,o3", "1,0"):
        call_in(folder, *make, "--matching", matching, "-o", "p.json", "--force")
        problem = om.load(folder / "p.json")
        assert isinstance(problem, om.Routing) and problem.matching.tolist() == [1, 0]
    done = call_in(
        folder, *make, "--matching", "o3,-1", "--dead-ports", "o1", "--stuck-bar", "m+2"
    )
    tree = json.loads(done.stdout)
    assert tree["fabric"]["stuck_bar"] == [1] and tree["fabric"]["dead_ports"] == [1]
    wrong = call_in(folder, *make, "--matching", "o4,west", code=2)
    assert "there is no port west: ports are o3, o4" in wrong.stderr
    wrong = call_in(folder, *make, "--matching", "o3=o4", code=2)
    assert "there is no port o3=o4: ports are o3, o4" in wrong.stderr
    assert "the destinations of all sources in order are expected, as o4,o3" in wrong.stderr
    wrong = call_in(folder, *make, "--matching", "o4,o3", "--dead-cells", "m3", code=2)
    assert "there is no cell m3: cells are m 1, m+2" in wrong.stderr


def test_tables_of_cells_have_names(folder: Path) -> None:
    """Of a netlist, as they are written by commands; and come back as they were."""
    make = ("generate", "device", "--netlist", "x.json", *DIRECTIONS)
    for name in ("t.csv", "t.json"):
        call_in(folder, *make, "--sigma", "bar_loss_db=0.1", "--seed", "3", "-o", name)
        text = (folder / name).read_text()
        assert "m+2" in text
        table = read_cells(folder / name, 2, "smartlight", netlist_from_tree(PAIR).cell_names)
        of_numbers = write_cells(table)
        assert of_numbers.splitlines()[2].startswith("1,")
    done = call_in(folder, *make)
    assert done.stdout.splitlines()[1].startswith("m 1,")
    mesh = call_in(folder, "generate", "device", "--rows", "1", "--cols", "1")
    assert mesh.stdout.splitlines()[1].startswith("0,")


NESTED: dict[str, Any] = {
    "top": {
        "instances": {"west": "arm_pair", "east": {"component": "arm_pair"}},
        "connections": {"west,o3": "east,o2", "west,o4": "east,o1"},
        "ports": {"in0": "west,o2", "in1": "west,o1", "out0": "east,o3", "out1": "east,o4"},
    },
    "arm_pair": {
        "instances": {
            "c1": "mmi2x2",
            "c2": "mmi2x2",
            "h": "straight_heater_metal",
            "w": "straight",
        },
        "connections": {"c1,o3": "h,o1", "h,o2": "c2,o2", "c1,o4": "w,o1", "w,o2": "c2,o1"},
        "ports": {"o1": "c1,o1", "o2": "c1,o2", "o3": "c2,o3", "o4": "c2,o4"},
    },
}
"""Two instances of a component, each of which is one cell."""


def test_an_instance_stands_for_its_only_cell(tmp_path: Path) -> None:
    """In tables, faults and calibrations, where a heater needs no instance in front either."""
    (tmp_path / "n.json").write_text(json.dumps(NESTED))
    fabric = om.read_netlist(tmp_path / "n.json")
    assert fabric.cell_names == ("west.c1+west.c2", "east.c1+east.c2")
    (tmp_path / "t.csv").write_text("cell,bar_loss_db\neast,1.5\n")
    table = read_cells(tmp_path / "t.csv", 2, "ideal", fabric.cell_names)
    assert table.bar_loss_db.tolist() == [0.0, 1.5]
    make = ("generate", "routing", "--netlist", "n.json", "--matching", "out1,out0")
    done = call_in(tmp_path, *make, "--stuck-bar", "east")
    assert json.loads(done.stdout)["fabric"]["stuck_bar"] == [1]
    call_in(tmp_path, *make, "-o", "p.json")
    call_in(tmp_path, "solve", "p.json", "-o", "s.json")
    (tmp_path / "h.csv").write_text(
        "cell,arm,a_rad,b_rad_per_v2\nwest,h,0.25,0.35\neast,east.h,0.5,0.35\n"
    )
    done = call_in(
        tmp_path, "export", "s.json", "--to", "heaters", "--heaters", "h.csv", "-o", "-"
    )
    turns_rad = {}
    for line in done.stdout.splitlines()[2:]:
        _, cell, arm, state, turn_rad, *_ = line.split(",")
        turns_rad[cell, arm, state] = float(turn_rad)
    states = {state for _, _, state in turns_rad}
    assert states == {"bar", "cross"}
    for (cell, arm, state), set_rad in turns_rad.items():
        instance = cell.partition(".")[0]
        assert arm == f"{instance}.h"
        wanted_rad = (np.pi if state == "bar" else 0.0) - {"west": 0.25, "east": 0.5}[instance]
        assert set_rad == pytest.approx(wanted_rad % (2 * np.pi))
    (tmp_path / "h.csv").write_text("cell,arm,a_rad,b_rad_per_v2\nnorth,h,0.25,0.35\n")
    with chdir(tmp_path):
        refused(
            "there is no cell north: cells are west.c1+west.c2, east.c1+east.c2",
            *("export", "s.json", "--to", "heaters", "--heaters", "h.csv", "-o", "-"),
        )


def test_studies_of_faults_have_names(folder: Path) -> None:
    make = ("generate", "routing", "--netlist", "x.json", *DIRECTIONS, "--matching", "o4,o3")
    call_in(folder, *make, "-o", "p.json")
    study = ("faults", "p.json", "--samples", "40", "--seed", "0", "--fixed")
    text = call_in(folder, *study, "-o", "yield.csv").stdout
    assert "cell m+2" in text or "cell m 1" in text
    names = {line.split(",")[0] for line in (folder / "yield.csv").read_text().splitlines()[1:]}
    assert names == {"m 1", "m+2"}
    tree = json.loads(call_in(folder, *study, "--json").stdout)
    assert {entry["name"]: entry["cell"] for entry in tree["cells"]} == {"m 1": 0, "m+2": 1}


def test_steps_of_a_transition_have_names() -> None:
    fabric = netlist_from_tree(PAIR, tx=["o2", "o1"], rx=["o3", "o4"])
    steps = [[0, 0, -1], [1, 1, 1], [2, 0, -1]]
    transition = om.Transition(
        moves=[], changed=[0], circuits=[[0, 1]], routes=((0, 4),), steps=steps
    )
    assert transition.describe(fabric) == [
        "take down circuit 0",
        "set cell m+2 to cross",
        "set up circuit 0: port o2>o3 to port o1>o4",
    ]
    assert transition.describe()[1] == "set cell 1 to cross"
    assert transition.describe(om.HexMesh(1, 1))[1:] == [
        "set cell 1 to cross",
        "set up circuit 0: port 0 to port 1",
    ]


@pytest.mark.parametrize("directions", [(), DIRECTIONS])
def test_optics_have_names_of_ports(folder: Path, directions: tuple[str, ...]) -> None:
    """The worst circuit of all slots, and that of each."""
    matching = "o4,o3" if directions else "o4,o3,o2,o1"
    make = ("generate", "routing", "--netlist", "x.json", *directions, "--matching", matching)
    call_in(folder, *make, "-o", "p.json")
    call_in(folder, "solve", "p.json", "-o", "s.json")
    shown = call_in(folder, "verify", "s.json", "--optics", "--per-slot").stdout
    (line,) = [line for line in shown.splitlines() if "worst insertion loss " in line]
    carried = {"port o2 to port o4", "port o1 to port o3"}
    if not directions:
        carried = {f"port o{k} to port o{5 - k}" for k in range(1, 5)}
    assert line.partition("(slot 0, ")[2].rstrip(")") in carried
    (circuit,) = re.findall(r"slot 0: loss .*? dB \((.*?)\)", shown)
    assert circuit in carried


def test_complaints_and_pictures_have_names() -> None:
    fabric = netlist_from_tree(PAIR, tx=["o2", "o1"], rx=["o3", "o4"])
    solution = om.solve(om.Routing(fabric, [1, 0]), seed=0)
    assert page_data(solution)["cell_names"] == ["m 1", "m+2"]
    wrong = om.Schedule(matchings=[[1, 0]], durations_s=[1.0], cell_states=[[0, -1]])
    complaints = " ".join(map(str, om.verify(solution.problem, wrong).violations))
    assert "lost in free cell m+2" in complaints
    assert "circuit from port o2 to port o4" in complaints


def test_names_go_before_numbers() -> None:
    tree = json.loads(json.dumps(PAIR).replace("m 1", "1").replace("m+2", "0"))
    fabric = netlist_from_tree(tree)
    assert fabric.cell_names == ("1", "0")
    assert fabric.find_cell("1") == 0 and fabric.find_cell("0") == 1
    assert om.Benes(4).find_port("2") == 2 and om.Benes(4).find_port("in 3>out 3") == 3
    assert om.Benes(4).find_port("out 1", receives=True) == 1
    assert om.Faulty(fabric, dead_ports=[0]).find_port("o3") == 2


def test_tables_of_problems_and_answers_have_names_of_ports(folder: Path) -> None:
    """Circuits of a matching, pairs that have to meet, and what is up when, each by name."""
    fabric = netlist_from_tree(PAIR)
    problem = om.Routing(fabric, ["o3", "o4", "o1", "o2"])
    table = problem.to_dataframe()
    assert table["from"].tolist() == ["o1", "o2", "o3", "o4"]
    assert table["to"].tolist() == ["o3", "o4", "o1", "o2"]
    assert om.AllToAll(fabric).to_dataframe()["from"].isin(["o1", "o2", "o3", "o4"]).all()
    answer = om.solve(problem, seed=0).to_dataframe()
    assert "o1 to o3" in answer["name"].tolist()
    matching: Any = ["o3", -1, "o1", -1]
    broken = om.Routing(om.Faulty(fabric, dead_ports=["o4"]), matching)
    assert broken.to_dataframe()["to"].tolist() == ["o3", "o1"]
    by_number = om.Routing(om.Benes(2), [1, 0]).to_dataframe()
    assert by_number["from"].tolist() == ["0", "1"]

"""Netlists of other tools: their fabrics, every flaw by name, and their permutations."""

import json
import pickle
import re
from pathlib import Path
from typing import Any
from xml.dom import minidom

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.fabrics import NetlistError, netlist_from_tree
from optmatch.fabrics.netlists.flaws import CONVENTIONS
from optmatch.fabrics.netlists.layout import lay_out
from optmatch.fabrics.waveguides import heat_shares, places_on_chip
from optmatch.io.netlists.gdsfactory import netlist_tree, read_tree
from optmatch.plotting import mesh_data
from optmatch.solvers.routing.reachable import count_matchings
from optmatch.testing import brute_force
from tests.helpers.command import call, call_in

PAIR: dict[str, Any] = {
    "instances": {"m1": "mzi", "m2": {"component": "mzi", "settings": {}}},
    "connections": {"m1,o3": "m2,o2", "m1,o4": "m2,o1"},
    "ports": {"in0": "m1,o2", "in1": "m1,o1", "out0": "m2,o3", "out1": "m2,o4"},
}
"""Two cells in a row, as gdsfactory calls their pins."""
BAR_OF_TWO: Any = [0, 1]
WARM = om.Device(thermal_crosstalk=0.05)


def changed(**parts: Any) -> dict[str, Any]:
    """Change parts of the pair; None takes one away."""
    tree = {**PAIR, **parts}
    return {key: value for key, value in tree.items() if value is not None}


def flaws_of(tree: Any, **options: Any) -> list[str]:
    """Read what must not be right."""
    with pytest.raises(NetlistError) as caught:
        netlist_from_tree(tree, **options)
    return list(caught.value.flaws)


def test_cells_and_ports_of_a_pair() -> None:
    fabric = netlist_from_tree(PAIR)
    assert fabric.instances == ("m1", "m2") and not fabric.bidirectional
    assert fabric.port_names == ("in0>out0", "in1>out1")
    assert fabric.graph.mate.tolist() == [-1, -1, 4, 5, 2, 3, -1, -1]
    assert fabric.source_terminals.tolist() == [0, 1]
    assert fabric.destination_terminals.tolist() == [6, 7]


@pytest.mark.parametrize("name", CONVENTIONS)
def test_conventions_agree(name: str) -> None:
    theirs, ours = CONVENTIONS[name], CONVENTIONS["optical"]
    text = json.dumps(PAIR)
    renamed = re.sub(r",(o\d)", lambda found: f",{theirs[ours.index(found[1])]}", text)
    assert netlist_from_tree(json.loads(renamed)) == netlist_from_tree(PAIR)
    own = {f"w{k}": ("a1", "a2", "b1", "b2")[k] for k in range(4)}
    mine = re.sub(r",(o\d)", lambda found: f",w{ours.index(found[1])}", text)
    assert netlist_from_tree(json.loads(mine), pins=own) == netlist_from_tree(PAIR)


def test_nets_routes_and_recursion() -> None:
    nets = [{"p1": first, "p2": second} for first, second in PAIR["connections"].items()]
    routes = {"bundle": {"links": PAIR["connections"]}}
    expected = netlist_from_tree(PAIR)
    assert netlist_from_tree(changed(connections=None, nets=nets)) == expected
    assert netlist_from_tree(changed(connections=None, routes=routes)) == expected
    assert netlist_from_tree({"top": PAIR, "mzi": {"instances": {"c": "coupler"}}}) == expected


def test_directions_of_ports() -> None:
    assert netlist_from_tree(PAIR, directed=False).n_ports == 4
    names = {"w1": "m1,o2", "w2": "m1,o1", "e1": "m2,o3", "e2": "m2,o4"}
    assert netlist_from_tree(changed(ports=names)).bidirectional
    assert "0 ports send, 0 receive" in flaws_of(changed(ports=names), directed=True)


FLAWS: list[tuple[dict[str, Any], list[str]]] = [
    ({"connections": {"m1,o3": "m2,o2"}}, ["m1,o4 is connected to nothing", "m2,o1 is conn"]),
    (
        {"connections": {**PAIR["connections"], "m2,o2": "m1,o4"}},
        ["pin m2,o2 is connected twice: to pin m1,o3 and to pin m1,o4", "pin m1,o4 is conn"],
    ),
    (
        {"ports": {**PAIR["ports"], "tap": "m1,o3"}},
        ["pin m1,o3 is connected twice: to pin m2,o2 and to port tap"],
    ),
    (
        {"connections": {**PAIR["connections"], "m3,o1": "m1,o9"}},
        [
            "connection m3,o1 to m1,o9: there is no instance m3",
            "connection m3,o1 to m1,o9: a cell has no pin o9",
        ],
    ),
    ({"ports": {**PAIR["ports"], "in2": None}}, ["ports: in2 is connected to nothing"]),
    (
        {"ports": {**PAIR["ports"], "in2": "m7,o1"}},
        ["port in2 at m7,o1: there is no instance m7"],
    ),
    (
        {"connections": {**PAIR["connections"], "m1,o9": ""}},
        ["connections: m1,o9 is connected to"],
    ),
    ({"nets": [{"p1": "m1,o3"}]}, ["nets[0]: m1,o3 is connected to nothing"]),
    ({"nets": {"p1": "m1,o3"}}, ["nets: a list is expected"]),
    ({"nets": [3]}, ["nets[0]: p1 and p2 are expected"]),
    ({"ports": []}, ["there are no ports"]),
    ({"ports": [1]}, ["ports: a mapping is expected", "there are no ports"]),
    ({"conections": {}}, ["unknown key conections: known are instances, connections"]),
    ({"instances": {}}, ["there are no instances"]),
    (
        {"instances": {**PAIR["instances"], "m1": {"component": "mzi", "array": {"columns": 2}}}},
        ["instance m1 is an array"],
    ),
    (
        {
            "instances": {**PAIR["instances"], "m3": "mzi", "m4": "mzi"},
            "connections": {**PAIR["connections"], "m3,o3": "m4,o2", "m3,o4": "m4,o1"},
            "ports": {**PAIR["ports"], "x": "m3,o1", "y": "m3,o2", "u": "m4,o3", "v": "m4,o4"},
        },
        ["2 parts are not connected: m1, m2 | m3, m4"],
    ),
]


@pytest.mark.parametrize(("parts", "expected"), FLAWS, ids=[text[0] for _, text in FLAWS])
def test_flaws_are_named(parts: dict[str, Any], expected: list[str]) -> None:
    found = flaws_of(changed(**parts))
    for text in expected:
        assert any(text in flaw for flaw in found), found
    assert len(found) == len(set(found))


def test_a_message_names_the_first_flaws_and_counts_the_rest() -> None:
    """The error holds all of them, in another process too."""
    found = [f"instance m{k} is there twice" for k in range(1000)]
    error = NetlistError(found)
    assert str(error).startswith("1000 flaws: instance m0 is there twice; instance m1 is")
    assert re.search(r"; and \d+ more$", str(error))
    assert len(str(error)) < 5000
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.flaws, str(copied)) == (tuple(found), str(error))


def test_not_even_a_mapping() -> None:
    assert flaws_of([1]) == ["a netlist is a mapping with instances, connections and ports"]
    with pytest.raises(om.InputError, match="names for a1 and b1 at least"):
        netlist_from_tree(PAIR, pins={"w": "a1"})


def test_pins_may_stay_open_on_purpose() -> None:
    one = changed(ports={"w": "m1,o2", "e": "m2,o3"})
    assert len(flaws_of(one)) == 2
    told = {**one, "info": {"open_pins": ["m1,o1", "m2,o4"]}}
    fabric = netlist_from_tree(told)
    assert fabric == netlist_from_tree(one, open_pins=True)
    assert fabric.n_ports == 2 and len(fabric.graph.perimeter) == 4
    assert "pin m1,o1 is connected twice" in flaws_of({**told, "ports": PAIR["ports"]})[0]


@pytest.mark.parametrize(
    "fabric",
    [
        om.HexMesh(2, 2, ports=4),
        om.HexMesh(2, 3, tx=3, rx=3),
        om.Benes(5),
        om.SwitchAndSelect(3),
        om.Clements(4),
    ],
    ids=lambda fabric: str(fabric.type),
)
def test_our_fabrics_come_back(fabric: om.Fabric) -> None:
    """Written as a netlist and read again: the same cells, places on the chip, heat and ports."""
    back = netlist_from_tree(json.loads(json.dumps(netlist_tree(fabric))))
    assert fabric.graph is not None
    assert np.array_equal(back.graph.mate, fabric.graph.mate)
    assert np.allclose(back.graph.ends, places_on_chip(fabric.graph))
    assert np.allclose(heat_shares(back.graph, WARM), heat_shares(fabric.graph, WARM))
    assert np.array_equal(back.source_terminals, fabric.source_terminals)
    assert np.array_equal(back.destination_terminals, fabric.destination_terminals)
    assert back.bidirectional == fabric.bidirectional
    again = netlist_tree(back)
    assert again["ports"].keys() == netlist_tree(fabric)["ports"].keys()


def test_a_netlist_survives_files(tmp_path: Path) -> None:
    ports = {"z": "m2,o3", "a": "m1,o2", "m": "m1,o1", "b": "m2,o4"}
    fabric = netlist_from_tree(changed(ports=ports))
    assert fabric.port_names == ("z", "a", "m", "b")
    om.save(om.Routing(fabric, np.array([1, 0, 3, 2])), tmp_path / "x.json")
    back = om.load(tmp_path / "x.json")
    assert isinstance(back, om.Routing) and back.fabric == fabric
    turned = netlist_from_tree(changed(ports=dict(reversed(ports.items()))))
    assert turned != fabric and hash(turned) != hash(fabric)


@given(st.integers(2, 5), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=25)
def test_random_netlists_are_what_they_say(cells: int, random: Any) -> None:
    """Cells joined at random: no flaw but parts, and matchings are held as by enumeration."""
    pins = [f"c{k},{name}" for k in range(cells) for name in CONVENTIONS["cell"]]
    random.shuffle(pins)
    joins = cells + cells // 2
    tree = {
        "instances": {f"c{k}": "mzi" for k in range(cells)},
        "connections": dict(zip(pins[:joins], pins[joins : 2 * joins], strict=True)),
        "ports": {f"p{k}": pin for k, pin in enumerate(pins[2 * joins :][:6])},
    }
    try:
        fabric = netlist_from_tree(tree, open_pins=True)
    except NetlistError as error:
        assert all("parts are not connected" in flaw for flaw in error.flaws)
        return
    counted = count_matchings(fabric)
    assert counted is not None and counted.held + counted.refuted == counted.total
    order = list(range(fabric.n_ports))
    random.shuffle(order)
    matching = np.full(fabric.n_ports, -1, dtype=np.int32)
    for i, j in zip(order[0::2], order[1::2], strict=False):
        matching[i], matching[j] = j, i
    problem = om.Routing(fabric, matching)
    assert (om.solve(problem, "ilp", seed=0).objective) == brute_force(problem)


def test_counts_of_matchings() -> None:
    """All permutations of a rearrangeable fabric, some of a narrower one, none if too many."""
    assert count_matchings(om.Benes(3)) == (6, 6, 0)
    assert count_matchings(om.Benes(7)) is None
    narrow = netlist_from_tree(PAIR)  # two cells in a row do what one does
    assert count_matchings(narrow) == (2, 2, 0)
    assert count_matchings(netlist_from_tree(PAIR, directed=False)) == (3, 2, 1)
    assert count_matchings(om.Faulty(om.Benes(3), dead_ports=[0])) == (2, 2, 0)


@pytest.mark.parametrize(
    "fabric", [om.Benes(8), om.HexMesh(2, 2), om.Crossbar(3)], ids=lambda f: str(f.type)
)
def test_layouts_are_drawable(fabric: om.Fabric) -> None:
    """Cells of length 1, apart from each other, light from left to right; always the same."""
    assert fabric.graph is not None
    ends = lay_out(fabric.graph.mate)
    assert np.allclose(np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1), 1.0)
    middle = ends.mean(axis=1)
    distance = np.linalg.norm(middle[:, None] - middle[None], axis=2) + 9 * np.eye(len(middle))
    assert distance.min() > 0.4
    assert (ends[:, 1, 0] - ends[:, 0, 0]).sum() >= 0
    assert np.array_equal(ends, lay_out(fabric.graph.mate))


@pytest.mark.parametrize(
    "fabric",
    [om.HexMesh.smartlight(), om.SquareMesh(4, 4), om.TriangularMesh(4, 4), om.HexMesh(2, 12)],
    ids=lambda f: str(f.type),
)
def test_cells_that_are_joined_are_drawn_near_each_other(fabric: om.Fabric) -> None:
    """No two cells overlap, not even twins with the same neighbours; no join is stretched."""
    assert fabric.graph is not None
    mate = fabric.graph.mate
    middle = lay_out(mate).mean(axis=1)
    distance = np.linalg.norm(middle[:, None] - middle[None], axis=2)
    joined = np.flatnonzero(mate >= 0)
    assert distance[joined // 4, mate[joined] // 4].max() < 2.6
    assert (distance + 9 * np.eye(len(middle))).min() > 1.1


def test_placements_are_where_cells_are_drawn() -> None:
    """In their own unit, turned as they are; expressions of gdsfactory are not evaluated."""
    places = {"m1": {"x": 0, "y": 0}, "m2": {"x": 300.0, "y": 0, "rotation": 90}}
    ends = netlist_from_tree(changed(placements=places)).graph.ends
    assert np.allclose(ends[0], [[-0.5, 0], [0.5, 0]])
    assert np.allclose(ends[1], [[1.5, -0.5], [1.5, 0.5]])
    places["m2"] = {"x": "m1,east"}
    fabric = netlist_from_tree(changed(placements=places))
    assert fabric.ends is None and len(mesh_data(fabric).terminals) == 8


YAML = """\
instances:
  m1: mzi
  m2: {component: mzi}
nets:
- {p1: "m1,o3", p2: "m2,o2"}
- {p1: "m1,o4", p2: "m2,o1"}
ports:
  in0: m1,o2
  in1: m1,o1
  out0: m2,o3
  out1: m2,o4
"""


def test_files_in_yaml_and_json(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML: pip install 'optmatch[netlist]'")
    (tmp_path / "x.yml").write_text(YAML)
    (tmp_path / "x.json").write_text(json.dumps(PAIR))
    assert om.read_netlist(tmp_path / "x.yml") == om.read_netlist(tmp_path / "x.json")
    (tmp_path / "y.yml").write_text(YAML + "  in1: m2,o4\n")
    with pytest.raises(NetlistError, match=r"y\.yml: 3 flaws: in1 is there twice, line 12"):
        om.read_netlist(tmp_path / "y.yml")
    (tmp_path / "z.yml").write_text("instances: {a: [\n")
    with pytest.raises(om.FormatError, match=r"z\.yml:2:1: .*: not YAML"):
        om.read_netlist(tmp_path / "z.yml")
    with pytest.raises(om.FormatError, match="cannot be read"):
        om.read_netlist(tmp_path / "absent.yml")
    (tmp_path / "a.yml").write_text("a: &x {b: *x}\n")
    with pytest.raises(om.FormatError, match=r"a\.yml:1: \*x: an alias within"):
        read_tree(tmp_path / "a.yml", [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--netlist x.json --rows 3", "--rows: no option of a netlist"),
        ("--rows 3 --cols 3 --open-pins", "--open-pins: only with --netlist"),
        ("--netlist x.json --pins west", "name=pin, separated by commas"),
        ("--rows 2 --cols 2 --ports 4 --dead-cells 99", "dead_cells[0] = 99: cells are 0 .. 18"),
    ],
)
def test_options_that_do_not_fit(arguments: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(PAIR))
    done = call_in(tmp_path, "generate", "all-to-all", *arguments.split(), code=2)
    assert message in done.stderr


def test_names_are_drawn_as_text(tmp_path: Path) -> None:
    tree = changed(
        instances={"$\\foo$": "mzi", "m2": "mzi"},
        connections={"$\\foo$,o3": "m2,o2", "$\\foo$,o4": "m2,o1"},
        ports={"in0>": "$\\foo$,o2", "in1$\\x$": "$\\foo$,o1", "out0": "m2,o3", "out1": "m2,o4"},
    )
    problem = om.Routing(netlist_from_tree(tree, directed=True), BAR_OF_TWO)
    om.save(om.solve(problem, seed=0), tmp_path / "a.json")
    for ending in ("svg", "png", "html"):
        call("plot", tmp_path / "a.json", "-o", tmp_path / f"a.{ending}")
    names = {**tree["ports"], "in0\x03": "$\\foo$,o2"}
    del names["in0>"]
    problem = om.Routing(netlist_from_tree({**tree, "ports": names}, directed=True), BAR_OF_TWO)
    om.save(om.solve(problem, seed=0), tmp_path / "b.json")
    call("plot", tmp_path / "b.json", "-o", tmp_path / "b.svg")
    minidom.parse(str(tmp_path / "b.svg"))


def test_commands_take_netlists(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(PAIR))
    tree = json.loads(call_in(tmp_path, "info", "x.json", "--json").stdout)
    assert (tree["permutations"], tree["permutations_held"], tree["dead_pairs"]) == (2, 2, [])
    assert "pairings held" in call_in(tmp_path, "info", "--bidirectional", "x.json").stdout
    broken = changed(connections=FLAWS[3][0]["connections"], conections={})
    (tmp_path / "bad.json").write_text(json.dumps(broken))
    for command in (("info",), ("generate", "all-to-all", "-o", "p.json", "--netlist")):
        done = call_in(tmp_path, *command, "bad.json", code=2)
        assert "bad.json: 3 flaws: " in done.stderr
        for text in (*FLAWS[3][1], "unknown key conections"):
            assert text in done.stderr
    assert not (tmp_path / "p.json").exists()

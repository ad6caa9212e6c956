"""Parts of netlists that are no cells: some pass light, some split it, some have a netlist."""

import json
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.fabrics import NetlistError, netlist_from_tree
from optmatch.solvers.routing.reachable import count_matchings
from tests.helpers.command import call, refused

MZI: dict[str, Any] = {
    "instances": {"c1": "coupler", "c2": "coupler", "p1": "phase_shifter", "p2": "straight"},
    "connections": {"c1,O1": "p1,I1", "p1,O1": "c2,I1", "c1,O2": "p2,I1", "p2,O1": "c2,I2"},
    "ports": {"I1": "c1,I1", "I2": "c1,I2", "O1": "c2,O1", "O2": "c2,O2"},
}
"""A switch of two couplers, as PICBench and sax describe it."""

BENES: dict[str, Any] = {
    "instances": dict.fromkeys(("s1", "s2", "s3", "s4", "s5", "s6"), "osu"),
    "connections": {
        **{"s1,O1": "s3,I1", "s1,O2": "s4,I1", "s2,O1": "s3,I2", "s2,O2": "s4,I2"},
        **{"s3,O1": "s5,I1", "s3,O2": "s6,I1", "s4,O1": "s5,I2", "s4,O2": "s6,I2"},
    },
    "ports": {
        **{"I1": "s1,I1", "I2": "s1,I2", "I3": "s2,I1", "I4": "s2,I2"},
        **{"O1": "s5,O1", "O2": "s5,O2", "O3": "s6,O1", "O4": "s6,O2"},
    },
}


def flaws_of(tree: Any, **options: Any) -> str:
    """Read what must not be right."""
    with pytest.raises(NetlistError) as caught:
        netlist_from_tree(tree, **options)
    return "\n".join(caught.value.flaws)


def test_a_benchmark_of_netlists_is_read() -> None:
    """PICBench: netlist and models, pins I1 and O1, ports that send and receive by their names."""
    fabric = netlist_from_tree({"netlist": BENES, "models": {"osu": "OSU"}})
    assert fabric.port_names == ("I1>O1", "I2>O2", "I3>O3", "I4>O4")
    assert count_matchings(fabric) == (24, 24, 0)
    narrow = {"netlist": BENES, "models": {"osu": "mmi1x2"}}
    assert "port I2 at s1,I2: a cell has no pin I2" in flaws_of(narrow)


def test_netlists_within_are_opened() -> None:
    known = netlist_from_tree(BENES)
    whole = json.loads(json.dumps({"mine": MZI, "top": BENES}).replace("osu", "mine"))
    opened = netlist_from_tree(whole)
    assert opened.instances[0] == "s1.c1+s1.c2"
    assert opened.graph.mate.tolist() == known.graph.mate.tolist()
    assert opened.source_terminals.tolist() == known.source_terminals.tolist()
    declared = netlist_from_tree(whole, components={"mine": "switch"})
    assert declared == known
    del whole["mine"]["ports"]["I2"]
    assert "s1,I2: its netlist has no such port" in flaws_of(whole)
    whole["mine"]["instances"]["p2"] = "mine"
    assert "component mine is part of itself" in flaws_of(whole)


@given(st.lists(st.sampled_from(["straight", "bend_euler", "taper", "heater"]), max_size=6))
@settings(deadline=None, max_examples=25)
def test_what_passes_light_is_passed(lengths: list[str]) -> None:
    tree: dict[str, Any] = json.loads(json.dumps(BENES))
    for k, component in enumerate(lengths):
        name, ends = f"w{k}", ("o1", "o2")[:: (-1) ** k]
        tree["instances"][name] = component
        place = ("connections", "ports")[k % 2]
        first = sorted(tree[place])[k]
        tree["connections"][f"{name},{ends[0]}"] = tree[place][first]
        tree[place][first] = f"{name},{ends[1]}"
    assert netlist_from_tree(tree) == netlist_from_tree(BENES)


def test_crossings_cross() -> None:
    pair: dict[str, Any] = {
        "instances": {"m1": "switch", "m2": "switch", "x": "crossing"},
        "connections": {"m1,o3": "x,o2", "m1,o4": "x,o1", "x,o3": "m2,o2", "x,o4": "m2,o1"},
        "ports": {"w1": "m1,o2", "w2": "m1,o1", "e1": "m2,o3", "e2": "m2,o4"},
    }
    fabric = netlist_from_tree(pair)
    assert fabric.connections == {"m1,b1": "m2,a2", "m1,b2": "m2,a1"}
    pair["instances"]["x"] = "straight_pair"  # two waveguides side by side
    straight = {"m1,o3": "x,o2", "m1,o4": "x,o1", "x,o3": "m2,o2", "x,o4": "m2,o1"}
    kept = netlist_from_tree({**pair, "connections": straight})
    assert kept.connections == {"m1,b1": "m2,a1", "m1,b2": "m2,a2"}
    beside = {"m1,o3": "x,o2", "x,o3": "m2,o2"}
    ports = {**pair["ports"], "past": "x,o1", "it": "x,o4"}
    told = flaws_of({**pair, "connections": beside, "ports": ports}, open_pins=True)
    assert "port past at x,o1: the light reaches no cell" in told


def test_couplers_are_no_switches() -> None:
    lone = {
        "instances": {"c": "coupler"},
        "ports": {"w1": "c,o1", "w2": "c,o2", "e1": "c,o3", "e2": "c,o4"},
    }
    assert "couplers c split the light" in flaws_of(lone)
    tree = {
        "instances": {"m": "mmi1x2", "top": "mmi1x2", "low": "mmi1x2"},
        "connections": {"m,o2": "top,o1", "m,o3": "low,o1"},
        "ports": {"in": "m,o1", "a": "top,o2", "b": "top,o3", "c": "low,o2", "d": "low,o3"},
    }
    assert "couplers m, top, low split the light" in flaws_of(tree)
    fixed = {**MZI, "instances": {**MZI["instances"], "p1": "straight"}}
    assert "couplers c1, c2 have no phase shifter" in flaws_of(fixed)
    tuned = netlist_from_tree(fixed, components={"straight": "shifter"})
    assert replace(tuned, circuits=()) == replace(netlist_from_tree(MZI), circuits=())


def test_cells_of_one_and_two_pins() -> None:
    tree = {
        "instances": {"s": "mmi1x2", "p": "straight_heater_metal", "w": "straight", "c": "mmi2x2"},
        "connections": {"s,o2": "p,o1", "p,o2": "c,o2", "s,o3": "w,o1", "w,o2": "c,o1"},
        "ports": {"w": "s,o1", "n": "c,o3", "s": "c,o4"},
    }
    fabric = netlist_from_tree(tree)
    assert (fabric.n_cells, fabric.open_pins, fabric.dead_pairs()) == (1, ("s+c,a2",), [(1, 2)])
    named = {"instances": {"s": "switch1x2"}, "ports": {"w": "s,o1", "n": "s,o2", "s": "s,o3"}}
    assert netlist_from_tree(named).graph.mate.tolist() == fabric.graph.mate.tolist()


def test_unknown_components_are_named() -> None:
    ring = {**BENES, "instances": {**BENES["instances"], "s2": "ring", "s6": "ring"}}
    text = "component ring of s2, s6 is not known: say --component ring=switch|pass|"
    assert text in flaws_of(ring)
    assert netlist_from_tree(ring, components={"ring": "switch"}) == netlist_from_tree(BENES)
    assert "s3 has no component" in flaws_of(
        {**BENES, "instances": {**BENES["instances"], "s3": {"settings": {}}}}
    )
    with pytest.raises(om.InputError, match="ring = swich: one of switch, pass"):
        netlist_from_tree(ring, components={"ring": "swich"})
    narrow = {"instances": {"m": "mzi"}, "ports": {"w": "m,o1", "e": "m,o2"}}
    assert "component mzi of m is not known" in flaws_of(narrow)
    assert "nothing switches" in flaws_of(narrow, components={"mzi": "pass"})


def test_wires_are_no_light() -> None:
    wired: dict[str, Any] = json.loads(json.dumps(MZI))
    wired["instances"] |= {"pad1": "pad", "pad2": "pad"}
    wired["connections"] |= {"p1,l_e1": "pad1,e3", "pad2,e1": "p1,r_e4"}
    wired["ports"] |= {"e1": "pad1,e4"}
    assert netlist_from_tree(wired) == netlist_from_tree(MZI)


def test_netlists_within_netlists_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten levels of ten each are refused before they are built."""
    monkeypatch.setenv("OPTMATCH_MAX_CELLS", "1000")
    tree: dict[str, Any] = {"level0": MZI}
    for k in range(10):
        inner = {f"m{i}": f"level{k}" for i in range(10)}
        tree[f"level{k + 1}"] = {"instances": inner, "ports": {}}
    with pytest.raises(om.InputError, match="cells: at most"):
        netlist_from_tree(tree)


def test_the_command_line_says_what_components_are(tmp_path: Path) -> None:
    ring = {**MZI, "instances": {**MZI["instances"], "p1": "ring"}}
    (tmp_path / "x.json").write_text(json.dumps(ring))
    with chdir(tmp_path):
        refused("component ring of p1", "info", "x.json")
        call("info", "x.json", "--component", "ring=shifter")
        refused("name=kind, separated by commas", "info", "x.json", "--component", "ring")

"""Chips as other people write them: what a cell is, who is left out, and which way is bar."""

import math
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import Netlist, NetlistError, netlist_from_tree
from optmatch.fabrics.netlists.circuits import find_differences
from optmatch.solvers.routing.reachable import count_matchings

PI = math.pi
COUPLERS: dict[str, Any] = {"c1": "mmi2x2", "c2": "mmi2x2"}
ARMS: dict[str, Any] = {"h": "straight_heater_metal", "w": "straight"}
STRAIGHT: dict[str, Any] = {
    "instances": COUPLERS | ARMS,
    "connections": {
        **{"c1,o3": "h,o1", "h,o2": "c2,o3"},
        **{"c1,o4": "w,o1", "w,o2": "c2,o4"},
    },
    "ports": {"in0": "c1,o2", "in1": "c1,o1", "out0": "c2,o2", "out1": "c2,o1"},
}
TWISTED: dict[str, Any] = {
    "instances": COUPLERS | ARMS,
    "connections": {
        **{"c1,o3": "h,o1", "h,o2": "c2,o4"},
        **{"c1,o4": "w,o1", "w,o2": "c2,o3"},
    },
    "ports": {"in0": "c1,o2", "in1": "c1,o1", "out0": "c2,o1", "out1": "c2,o2"},
}
NARROW: dict[str, Any] = {
    "instances": {"c1": "mmi1x2", "c2": "mmi2x2"} | ARMS,
    "connections": {
        **{"c1,o2": "h,o1", "h,o2": "c2,o3"},
        **{"c1,o3": "w,o1", "w,o2": "c2,o4"},
    },
    "ports": {"feed": "c1,o1", "top": "c2,o2", "bottom": "c2,o1"},
}
GATE: dict[str, Any] = {
    "instances": {"c1": "mmi1x2", "c2": "mmi1x2"} | ARMS,
    "connections": {
        **{"c1,o2": "h,o1", "h,o2": "c2,o2"},
        **{"c1,o3": "w,o1", "w,o2": "c2,o3"},
    },
    "ports": {"in0": "c1,o1", "out0": "c2,o1"},
}


def states_of(fabric: Netlist, matching: list[int]) -> list[int]:
    """Solve for one matching, verify it, and return the cell states."""
    problem = om.Routing(fabric, np.array(matching))
    solution = om.solve(problem, seed=0)
    assert om.verify(problem, solution).ok
    assert solution.schedule is not None and solution.schedule.cell_states is not None
    states: list[int] = solution.schedule.cell_states[0].tolist()
    return states


def changed(tree: dict[str, Any], **instances: str) -> dict[str, Any]:
    """Replace components of some instances."""
    return {**tree, "instances": {**tree["instances"], **instances}}


def joined(tree: dict[str, Any], instances: dict[str, str], *joins: tuple[str, str]) -> Any:
    """Add instances and joins."""
    connections = {**tree["connections"], **dict(joins)}
    return {
        **tree,
        "instances": {**tree["instances"], **instances},
        "connections": connections,
    }


def test_1x2_switches_have_phases_of_a_quarter_turn() -> None:
    fabric = netlist_from_tree(NARROW)
    assert states_of(fabric, [1, 0, -1]) == [0] and states_of(fabric, [2, -1, 0]) == [1]
    assert find_differences(fabric).tolist() == [[PI / 2, -PI / 2]]
    assert fabric.dead_pairs() == [(1, 2)]
    lower = changed(NARROW, h="straight", w="straight_heater_metal")
    (circuit,) = netlist_from_tree(lower).circuits
    assert circuit is not None and circuit.arms == ((), ("w",))


def test_heaters_of_1x2_switches_take_what_their_phases_need() -> None:
    """A quarter turn either way, up to whole turns: a half of pi, and three halves."""
    fabric = netlist_from_tree(NARROW)
    phases_rad = find_differences(fabric)[0]
    cells = om.model.CellDevice.of(om.Device(heater_mw_per_pi=20.0), 1)
    feed, top = (fabric.port_names.index(name) for name in ("feed", "top"))
    matching = np.full(3, -1)
    matching[[feed, top]] = top, feed
    problem = om.Routing(fabric, matching, objective="power-mw", cells=cells)
    assert problem.cells is not None
    wanted_mw = 20.0 * np.mod(phases_rad, 2 * PI) / PI
    assert problem.cells.power_mw[0] == pytest.approx(wanted_mw)
    assert sorted(wanted_mw) == pytest.approx([10.0, 30.0])
    solution = om.solve(problem, seed=0)
    report = om.verify(problem, solution)
    assert report.ok
    optics = om.measure_optics(problem, solution, cells)
    assert optics.heater_mw[0] in (pytest.approx(10.0), pytest.approx(30.0))


def test_an_mzi_with_three_pins_is_a_1x2_switch() -> None:
    tree = {
        "instances": {"s0": "mzi", "s1": "mzi", "s2": "mzi"},
        "connections": {"s0,o2": "s1,o1", "s0,o3": "s2,o1"},
        "ports": {
            **{"feed": "s0,o1", "leaf0": "s1,o2", "leaf1": "s1,o3"},
            **{"leaf2": "s2,o2", "leaf3": "s2,o3"},
        },
    }
    fabric = netlist_from_tree(tree)
    assert fabric.dead_pairs() == [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]
    assert find_differences(fabric).tolist() == [[PI / 2, -PI / 2]] * 3
    tree["ports"]["spare"] = "s2,o4"  # then all have four pins, some of which lead nowhere
    assert netlist_from_tree(tree, open_pins=True).circuits == ()


def test_two_interferometers_in_a_row_are_two_cells() -> None:
    second = {"d1": "mmi2x2", "d2": "mmi2x2", "g": "straight_heater_metal", "v": "straight"}
    chain = joined(
        STRAIGHT,
        second,
        *(("c2,o2", "d1,o2"), ("c2,o1", "d1,o1"), ("d1,o3", "g,o1")),
        *(("g,o2", "d2,o3"), ("d1,o4", "v,o1"), ("v,o2", "d2,o4")),
    )
    chain["ports"] = {"in0": "c1,o2", "in1": "c1,o1", "out0": "d2,o2", "out1": "d2,o1"}
    fabric = netlist_from_tree(chain)
    assert fabric.instances == ("c1+c2", "d1+d2") and count_matchings(fabric) == (2, 2, 0)
    three = {**chain, "ports": {**chain["ports"], "out0": "v,o2", "out1": "g,o2"}}
    three["instances"] = {k: v for k, v in chain["instances"].items() if k != "d2"}
    three["connections"] = {
        first: second for first, second in chain["connections"].items() if "d2" not in second
    }
    with pytest.raises(NetlistError, match="couplers d1 split the light"):
        netlist_from_tree(three)


@pytest.mark.parametrize("component", ["straight_pin", "straight_pn", "straight_pin_slot"])
def test_electro_optic_arms_are_phase_shifters(component: str) -> None:
    (circuit,) = netlist_from_tree(changed(STRAIGHT, h=component)).circuits
    assert circuit is not None and circuit.arms == (("h",), ())


def test_what_has_no_cell_is_left_out_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    loop = {"g1": "grating_coupler_te", "g2": "grating_coupler_te", "f": "straight"}
    tree = joined(STRAIGHT, loop, ("g1,o1", "f,o1"), ("f,o2", "g2,o1"))
    tree["ports"] = {**STRAIGHT["ports"], "align0": "g1,o2", "align1": "g2,o2"}
    tree["instances"]["logo"] = "text"
    assert netlist_from_tree(tree) == netlist_from_tree(STRAIGHT)
    assert "left out: g1, g2, f, with ports align0, align1" in caplog.text
    assert "left out: logo" in caplog.text


def test_names_are_left_out() -> None:
    tree = joined(STRAIGHT, {"tap": "mmi1x2"}, ("c2,o2", "tap,o1"))
    tree["ports"] = {
        **{name: pin for name, pin in STRAIGHT["ports"].items() if name != "out0"},
        **{"out0": "tap,o2", "monitor": "tap,o3"},
    }
    with pytest.raises(NetlistError, match="couplers tap split the light"):
        netlist_from_tree(tree)
    fabric = netlist_from_tree(tree, leave_out=["tap"])
    assert fabric.port_names == ("in0", "in1", "out1") and fabric.open_pins == ("c1+c2,b1",)
    one = netlist_from_tree(STRAIGHT, leave_out=["in1", "out1"])
    assert one.port_names == ("in0>out0",)
    with pytest.raises(NetlistError, match="leave out x: there is no such part or port"):
        netlist_from_tree(tree, leave_out=["x"])
    with pytest.raises(NetlistError, match="there is no such part"):
        netlist_from_tree(STRAIGHT, leave_out=["c1,o1"])


def test_a_join_that_is_listed_twice_is_one_join() -> None:
    turned = {second: first for first, second in STRAIGHT["connections"].items()}
    twice = {**STRAIGHT, "connections": {**STRAIGHT["connections"], **turned}}
    twice["nets"] = [{"p1": "c1,o3", "p2": "h,o1"}]
    assert netlist_from_tree(twice) == netlist_from_tree(STRAIGHT)


def test_ports_that_no_name_tells_the_direction_of() -> None:
    """In gdsfactory ports are numbered round the chip."""
    clockwise = dict(zip(("o2", "o1", "o3", "o4"), STRAIGHT["ports"].values(), strict=True))
    tree = {**STRAIGHT, "ports": clockwise}
    assert netlist_from_tree(tree).bidirectional
    with pytest.raises(NetlistError, match="say with tx and rx what sends"):
        netlist_from_tree(tree, directed=True)
    fabric = netlist_from_tree(tree, tx=["o1", "o2"], rx=["o4", "o3"])
    assert fabric.port_names == ("o1>o4", "o2>o3") and count_matchings(fabric) == (2, 2, 0)
    with pytest.raises(NetlistError, match="tx, rx: there is no port o9"):
        netlist_from_tree(tree, tx=["o1", "o9"], rx=["o4", "o3"])
    halves: list[dict[str, Any]] = [{"tx": ["o1"]}, {"rx": ["o4"]}]
    for directions in halves:
        with pytest.raises(NetlistError, match="tx and rx come together"):
            netlist_from_tree(tree, **directions)


def test_crossings_of_sax_lead_light_as_their_matrix_does() -> None:
    """The drawing in sax has out0 opposite to in0; its matrix leads in0 to out1."""
    tree = {
        "instances": {"m": "mzi2x2", "n": "mzi2x2", "x": "crossing_ideal"},
        "connections": {
            **{"m,out0": "x,in0", "m,out1": "x,in1"},
            **{"x,out0": "n,in0", "x,out1": "n,in1"},
        },
        "ports": {"in0": "m,in0", "in1": "m,in1", "out0": "n,out0", "out1": "n,out1"},
    }
    assert sorted(states_of(netlist_from_tree(tree), [0, 1])) == [0, 1]
    sax = pytest.importorskip("sax", reason="needs sax")
    sax.set_port_naming_strategy("inout")
    try:
        pins = sax.PortNamer(2, 2)  # the crossing of sax leads light from o1 to o3
        assert (pins.o1, pins.o3) == ("in0", "out1")
    finally:
        sax.set_port_naming_strategy("optical")


def test_what_a_netlist_describes_goes_before_its_name() -> None:
    top = {
        "instances": {"s": "mzi2x2"},
        "ports": {name: f"s,{name}" for name in STRAIGHT["ports"]},
    }
    assert netlist_from_tree({"top": top, "mzi2x2": TWISTED}).instances == ("s.c1+s.c2",)
    passive = changed(STRAIGHT, h="straight")
    with pytest.raises(
        NetlistError, match=r"s\.c1, s\.c2 have no phase shifter.*matrix is \[\[0j"
    ):
        netlist_from_tree({"top": top, "mzi2x2": passive})

    # A coupler is drawn of pieces that are called couplers too; it stays one.
    pieces = {
        "instances": {"left": "coupler_symmetric", "right": "coupler_symmetric"},
        "connections": {"left,o3": "right,o2", "left,o4": "right,o1"},
        "ports": {"o1": "left,o1", "o2": "left,o2", "o3": "right,o3", "o4": "right,o4"},
    }
    built = {"top": changed(STRAIGHT, c1="coupler", c2="coupler"), "coupler": pieces}
    assert netlist_from_tree(built).instances == ("c1+c2",)


def test_arrays_are_their_cells() -> None:
    tree = {
        "instances": {"s": {"component": "switch", "array": {"columns": 2, "rows": 1}}},
        "routes": {"r": {"links": {"s<0.0>,o3-4": "s<1.0>,o2-1"}}},
        "ports": {
            **{"in0": "s<0.0>,o2", "in1": "s<0.0>,o1"},
            **{"out0": "s<1.0>,o3", "out1": "s<1.0>,o4"},
        },
    }
    fabric = netlist_from_tree(tree)
    assert fabric.instances == ("s<0.0>", "s<1.0>") and len(fabric.connections) == 2
    older = {**tree, "routes": {"r": {"links": {"s<0.0>,o:3:4": "s<1.0>,o:2:1"}}}}
    assert netlist_from_tree(older) == fabric
    wrong = {**tree, "routes": {"r": {"links": {"s<0.0>,o3-4": "s<1.0>,o2"}}}}
    with pytest.raises(NetlistError, match=r"o3-4 has 2 pins, s<1\.0>,o2 1"):
        netlist_from_tree(wrong)


def test_netlists_of_kfactory_have_nets_of_pins_and_ports() -> None:
    nets: list[Any] = [
        [{"instance": a.split(",")[0], "port": a.split(",")[1]} for a in pair]
        for pair in STRAIGHT["connections"].items()
    ]
    nets += [
        [{"name": name}, {"instance": pin.split(",")[0], "port": pin.split(",")[1]}]
        for name, pin in STRAIGHT["ports"].items()
    ]
    instances = {
        name: {"kcl": "PDK", "component": component, "settings": {}, "array": None}
        for name, component in STRAIGHT["instances"].items()
    }
    names = [{"name": name} for name in STRAIGHT["ports"]]
    tree = {"instances": instances, "nets": nets, "ports": names}
    assert netlist_from_tree(tree) == netlist_from_tree(STRAIGHT)
    assert netlist_from_tree({"chip": tree}) == netlist_from_tree(STRAIGHT)


@pytest.mark.parametrize(
    "tree",
    [
        {**STRAIGHT, "nets": [[{}], [{"name": "x"}]]},
        {**STRAIGHT, "instances": {"a": {"component": "switch", "array": {"columns": math.inf}}}},
        {**STRAIGHT, "instances": {"a": {"component": "switch", "array": {"columns": "many"}}}},
        {"top": {"instances": {"a": None}, "nets": [[{"instance": "a"}]]}},
    ],
)
def test_what_makes_no_sense_is_a_flaw(tree: Any) -> None:
    with pytest.raises(NetlistError):
        netlist_from_tree(tree)

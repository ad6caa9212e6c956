"""Exported plans send light where they say: in sax, if it is there, and by a dense matrix."""

import csv
import json
import re
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import netlist_from_tree
from optmatch.io.exports import exported
from optmatch.io.netlists.gdsfactory import layout_tree, netlist_tree
from tests.fabrics.netlists.chips import flatten, port_amplitudes
from tests.io.netlists.test_chips import GATE, NARROW, STRAIGHT, TWISTED

OURS = [
    *(om.Benes(4), om.DilatedBenes(4), om.SpankeBenes(4), om.Crossbar(3)),
    *(om.SwitchAndSelect(3), om.Piloss(3), om.Clements(4), om.Reck(4)),
    *(om.HexMesh(2, 2, ports=4), om.SquareMesh(2, 2, tx=2, rx=2)),
]


def benes_of(component: dict[str, Any]) -> dict[str, Any]:
    """Return a 4x4 Benes network whose cells are a component with ports in0 to out1."""
    ports = {f"in{k}": f"s{k // 2},in{k % 2}" for k in range(4)}
    ports |= {f"out{k}": f"s{4 + k // 2},out{k % 2}" for k in range(4)}
    top = {
        "instances": dict.fromkeys(("s0", "s1", "s2", "s3", "s4", "s5"), "unit"),
        "connections": {
            f"s{2 * stage + k},out{j}": f"s{2 * stage + 2 + j},in{k}"
            for stage in (0, 1)
            for k in (0, 1)
            for j in (0, 1)
        },
        "ports": ports,
    }
    return {"top": top, "unit": component}


LOWER = {
    **TWISTED,
    "instances": {**TWISTED["instances"], "h": "straight", "w": "straight_heater_metal"},
}
READ: dict[str, tuple[Any, list[int]]] = {
    "straight": (STRAIGHT, [1, 0]),
    "twisted": (TWISTED, [0, 1]),
    "1x2": (NARROW, [2, -1, 0]),
    "gate": (GATE, [0]),
    "benes": (benes_of(STRAIGHT), [3, 1, 0, 2]),
    "benes of twisted cells, heater below": (benes_of(LOWER), [2, 3, 1, 0]),
}


def solve(fabric: om.Fabric, matching: Any) -> om.Solution:
    """Solve for one matching."""
    return om.solve(om.Routing(fabric, np.array(matching)), seed=0)


def ports_of(fabric: om.Fabric, source: int, destination: int) -> tuple[str, str]:
    """Return the names of the ports where light of a circuit enters and leaves."""
    enter = fabric.port_names[source].split(">")[0]
    leave = fabric.port_names[destination].split(">")[-1]
    return enter, leave


@pytest.mark.parametrize("name", READ)
def test_exported_phases_light_the_wanted_port(name: str) -> None:
    """The phases of all shifters, set in the netlist as it was given."""
    tree, matching = READ[name]
    fabric = netlist_from_tree(tree)
    solution = solve(fabric, matching)
    text = exported(solution, "json")
    assert isinstance(text, str)
    (slot,) = json.loads(text)["slots"]
    phases = {name: phase for row in slot for name, phase in row["shifters_rad"].items()}
    ports, amplitude = port_amplitudes(flatten(tree), phases)
    power = np.abs(amplitude) ** 2
    for source, destination in enumerate(matching):
        if destination >= 0:
            enter, leave = ports_of(fabric, source, destination)
            assert power[ports.index(leave), ports.index(enter)] > 0.999

    # theta and phi are half the difference and half the sum of the phases of both arms.
    for row in slot:
        (circuit,) = [
            c for c, n in zip(fabric.circuits, fabric.instances, strict=True) if n == row["cell"]
        ]
        assert circuit is not None
        arms = [sum(row["shifters_rad"][name] for name in arm) for arm in circuit.arms]
        stated = [row["phi_rad"] + row["theta_rad"], row["phi_rad"] - row["theta_rad"]]
        assert np.allclose(np.exp(1j * np.array(arms)), np.exp(1j * np.array(stated)))


def test_names_stand_in_exports() -> None:
    solution = solve(netlist_from_tree(benes_of(STRAIGHT)), [3, 1, 0, 2])
    csv_text, lists = exported(solution, "csv"), exported(solution, "smartlight")
    assert isinstance(csv_text, str) and isinstance(lists, str)
    rows = list(csv.DictReader(csv_text.splitlines()[1:]))
    assert {row["cell"] for row in rows} == set(solution.problem.fabric.instances)
    assert all(re.fullmatch(r"s\d\.c1\+s\d\.c2", cell) for cell, _ in json.loads(lists))


@pytest.mark.parametrize("make", [netlist_tree, layout_tree])
def test_names_come_back_as_they_were(make: Any) -> None:
    tree = {
        "instances": {"x.a": "switch", "x_a": "switch", "3": "switch"},
        "connections": {
            **{"x.a,o3": "x_a,o2", "x.a,o4": "x_a,o1"},
            **{"x_a,o3": "3,o2", "x_a,o4": "3,o1"},
        },
        "ports": {"west 1": "x.a,o2", "west+2": "x.a,o1", "é": "3,o3", "e": "3,o4"},
    }
    choices: list[dict[str, Any]] = [{}, {"tx": ["west 1", "west+2"], "rx": ["e", "é"]}]
    for directions in choices:
        fabric = netlist_from_tree(tree, **directions)
        written = make(fabric)
        for name in (*written["instances"], *written["ports"]):
            assert name.isidentifier() and name.isascii()
        back = netlist_from_tree(json.loads(json.dumps(written)))
        assert back.instances == fabric.instances and back.port_names == fabric.port_names
        assert np.array_equal(back.graph.mate, fabric.graph.mate)


def cell_model(state: str = "bar") -> dict[tuple[str, str], Any]:
    """Return the amplitudes of a cell for sax, which wants all entries in every state.

    A cell loses 1e-9 of its light: without any loss, loops of light make sax's system singular.
    """
    kept = np.sqrt(1 - 1e-9)
    ways = {
        **{("a1", "b1"): 1j * (state == "bar"), ("a2", "b2"): -1j * (state == "bar")},
        **{("a1", "b2"): 1j * (state == "cross"), ("a2", "b1"): 1j * (state == "cross")},
    }
    return {key: np.asarray(kept * t) for pair, t in ways.items() for key in (pair, pair[::-1])}


@pytest.mark.parametrize("fabric", OURS, ids=lambda fabric: str(fabric.type))
def test_sax_sends_light_to_the_wanted_port(fabric: om.Fabric) -> None:
    sax = pytest.importorskip("sax", reason="needs sax")
    matching = np.roll(np.arange(fabric.n_ports), 1)
    if fabric.bidirectional:
        matching = np.array([1, 0, 3, 2])
    solution = solve(fabric, matching)
    text = exported(solution, "netlist")
    assert isinstance(text, str)
    tree = json.loads(text)
    for entry in tree["instances"].values():
        entry["settings"].setdefault("state", "cross")
    del tree["info"], tree["placements"]
    circuit, _ = sax.circuit(netlist=tree, models={"mzi2x2": cell_model})
    scattered = sax.sdict(circuit())
    names = list(tree["ports"])
    for source, destination in enumerate(matching.tolist()):
        enter = names[source]
        leave = names[destination if fabric.bidirectional else fabric.n_ports + destination]
        power = {
            left: float(np.abs(t) ** 2)
            for (entered, left), t in scattered.items()
            if entered == enter
        }
        assert power[leave] / sum(power.values()) > 0.999

"""Values of a wrong type or shape are refused by name, wherever they are given."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch import switches
from optmatch.fabrics.netlists.tree import netlist_from_tree
from optmatch.kinds import find_method
from optmatch.model import DEVICES, CellDevice
from optmatch.switches import play
from tests.helpers.command import put

MESH = om.HexMesh(2, 2, ports=4)
ROUTING = om.Routing(MESH, [1, 0, 3, 2])
RAGGED: Any = [[1], [1, 2]]
TABLE: Any = np.zeros((2, 2))
ANY: Any = object()
verify: Any = importlib.import_module("optmatch.verify")
CELLS = CellDevice.of("smartlight", MESH.n_cells)
CONTROLLER = om.Rerouter(om.Reroute(om.IdealSwitch(2), [[0, 1], [1, 0]]))

CALLS: list[tuple[str, Callable[[], object]]] = [
    ("receives", lambda: om.RackFabric().find_port("0", receives=TABLE)),
    ("used", lambda: MESH.refuse_dead_ports("used", RAGGED)),
    ("states", lambda: DEVICES["smartlight"].cell(RAGGED)),
    ("errors_rad", lambda: DEVICES["smartlight"].cell([0, 1], {1: 2})),  # type: ignore[arg-type]
    ("errors_rad", lambda: DEVICES["smartlight"].cell([0, 1], np.zeros((3, 2)))),
    ("device", lambda: om.compare_fabrics({"mesh": MESH}, [[1, 0, 3, 2]], ANY)),
    ("device", lambda: om.compare_fabrics({"mesh": MESH}, [[1, 0, 3, 2]], [])),  # type: ignore[arg-type]
    ("matchings", lambda: om.compare_fabrics({"mesh": MESH}, RAGGED, "ideal")),
    ("fabrics", lambda: om.compare_fabrics(MESH, [[1, 0, 3, 2]], "ideal")),  # type: ignore[arg-type]
    ("problems", lambda: om.compare_methods(np.array(None))),
    ("methods", lambda: om.compare_methods([ROUTING], ROUTING)),  # type: ignore[arg-type]
    ("components", lambda: netlist_from_tree({}, components=["switch"])),  # type: ignore[arg-type]
    ("pins", lambda: netlist_from_tree({}, pins=["a1"])),  # type: ignore[arg-type]
    ("matrix", lambda: om.decompose(RAGGED, tolerance=0.1)),
    ("matrix", lambda: om.decompose("x", tolerance=0.1)),
    ("names", lambda: om.Demand.from_matrix([[0, 1], [1, 0]], delay_s=1.0, names=2j)),  # type: ignore[arg-type]
    ("fabric", lambda: om.Demand.from_matrix([[0, 1], [1, 0]], delay_s=1.0, fabric=TABLE)),
    ("delay_s", lambda: om.Demand.from_matrix([[0, 1], [1, 0]], objective=TABLE)),
    ("ports", lambda: om.Demand.from_matrix([[0]], delay_s=1.0).with_dead_ports(0.5)),  # type: ignore[arg-type]
    ("method", lambda: om.solve(ROUTING, TABLE)),
    ("on_event", lambda: om.solve(ROUTING, on_event=3)),  # type: ignore[arg-type]
    ("method", lambda: om.solve(ROUTING, find_method("ilp", ROUTING))),  # type: ignore[arg-type]
    ("method", lambda: om.Task(ROUTING, TABLE)),
    ("slot", lambda: om.solve(ROUTING, seed=0).plot(slot=TABLE)),
    ("options", lambda: play(om.solve(ROUTING, seed=0), ANY, {})),  # type: ignore[arg-type]
    ("time_limit_s", lambda: om.study_yield(ROUTING, time_limit_s=(1,))),  # type: ignore[arg-type]
    ("kinds", lambda: om.study_yield(om.AllToAll(MESH), kinds=ANY)),
    ("fill", lambda: om.decompose([[1, 0], [0, 1]], fill=TABLE)),
    ("switch", lambda: play(om.solve(ROUTING, seed=0), None)),  # type: ignore[arg-type]
    ("executor", lambda: om.study_yield(om.AllToAll(MESH), executor=ANY)),
    ("kinds", lambda: om.warm_up(3)),  # type: ignore[arg-type]
    ("kinds", lambda: om.warm_up(np.array(None))),
    ("kinds[0]", lambda: om.warm_up(np.zeros((2, 2)))),
    ("switch", lambda: switches.open_switch(3)),  # type: ignore[arg-type]
    ("source", lambda: switches.read_losses([])),  # type: ignore[arg-type]
    ("ports", lambda: switches.read_losses("x.csv", 3)),  # type: ignore[arg-type]
    ("conditions", lambda: switches.read_losses("x.csv", None, 3)),  # type: ignore[arg-type]
    ("path", lambda: switches.measured_delays(3)),  # type: ignore[arg-type]
    ("before", lambda: switches.difference_between(3, [])),  # type: ignore[arg-type]
    ("after[0]", lambda: switches.difference_between([], ["1A-2B"])),  # type: ignore[list-item]
    ("circuits", lambda: switches.DrySwitch(np.array(None))),
    ("circuits[0]", lambda: switches.DrySwitch([switches.CrossConnect(1, "2B")])),  # type: ignore[arg-type]
    ("write", lambda: switches.DrySwitch(write=3)),  # type: ignore[arg-type]
    ("difference", lambda: switches.DrySwitch().apply(0.5)),  # type: ignore[arg-type]
    ("circuits", lambda: switches.DrySwitch().wait(0.5, 1.0)),  # type: ignore[arg-type]
    ("url", lambda: switches.SonicSwitch(3)),  # type: ignore[arg-type]
    ("host", lambda: switches.PolatisSwitch(3)),  # type: ignore[arg-type]
    ("port", lambda: switches.PolatisSwitch("x", "y")),  # type: ignore[arg-type]
    ("sides", lambda: switches.PortTable(3)),  # type: ignore[arg-type]
    ("sides[0]", lambda: switches.PortTable([3])),  # type: ignore[list-item]
    ("n_ports", lambda: switches.PortTable.numbered([])),  # type: ignore[arg-type]
    ("labels", lambda: switches.PortTable.numbered(2, ["a"])),
    ("matching", lambda: switches.PortTable.numbered(2).circuits_of([[1], [0]])),
    ("matching", lambda: switches.PortTable.numbered(2).circuits_of([5, 0])),
    ("rounds", lambda: switches.PlayOptions(rounds="x")),  # type: ignore[arg-type]
    ("own_delay_s", lambda: switches.PlayOptions(own_delay_s=-1)),
    ("only_ports", lambda: switches.PlayOptions(only_ports={"a"})),  # type: ignore[arg-type]
    ("steering", lambda: verify.check_steering([])),
    ("controllers", lambda: om.warm_up((), controllers=TABLE)),
    ("frequencies_hz", lambda: DEVICES["smartlight"].coupling_changes({1})),  # type: ignore[arg-type]
    ("controller", lambda: switches.Watcher("x", ANY)),  # type: ignore[arg-type]
    ("on_event", lambda: switches.Watcher(CONTROLLER, ANY, on_event=3)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(
    ("name", "call"), CALLS, ids=[f"{k}-{row[0]}" for k, row in enumerate(CALLS)]
)
def test_wrong_values_are_refused_by_name(name: str, call: Callable[[], object]) -> None:
    with pytest.raises(om.InputError) as caught:
        call()
    assert name in str(caught.value)
    assert caught.value.where in ("", name)


def test_names_of_files_may_be_bytes(tmp_path: Any) -> None:
    path = put(tmp_path, "empty.yml", "{}")
    with pytest.raises(om.OptMatchError, match=r"empty\.yml"):
        om.read_netlist(bytes(path))  # type: ignore[arg-type]
    matrix = put(tmp_path, "loss.csv", "1.0,3.5\n2.0,1.0")
    assert switches.read_losses(bytes(matrix)).shape == (2, 2)  # type: ignore[arg-type]

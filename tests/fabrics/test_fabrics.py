"""Meshes have the cells, terminals and dead pairs that they must, and light is reciprocal."""

import dataclasses
import pickle
from itertools import product
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.fabrics import UNREACHED, CellGraph, state_between
from optmatch.fabrics.light import trace, trace_circuits
from tests.helpers import oracles
from tests.helpers.modes import nightly_only

SIZES = [*product(range(1, 6), repeat=2), (9, 9)]
GRAPHS = [
    om.HexMesh(2, 3).graph,
    om.SquareMesh(2, 2).graph,
    om.TriangularMesh(2, 2).graph,
    om.HexMesh.smartlight().graph,
]


@pytest.mark.parametrize(("rows", "cols"), SIZES)
def test_the_counts_of_regular_meshes(rows: int, cols: int) -> None:
    """Cells, perimeter terminals, and links follow the formulas of each grid."""
    m, n = rows, cols
    for mesh, cells, terminals in (
        (om.HexMesh(m, n), 3 * m * n + 2 * m + 2 * n - 1, 4 * (m + n + 1)),
        (om.SquareMesh(m, n), 2 * m * n + m + n, 4 * (m + n)),
        (om.TriangularMesh(m, n), 3 * m * n + m + n, 4 * (m + n)),
    ):
        assert (mesh.n_cells, len(mesh.graph.perimeter)) == (cells, terminals)
        assert mesh.graph.links.count == 2 * cells + terminals // 2
        assert mesh.n_ports == terminals


def test_the_smartlight_chip() -> None:
    """72 cells, 56 vertices of the drawn degrees, 17 hexagons, 40 terminals."""
    graph = om.HexMesh.smartlight().graph
    assert (graph.n_cells, len(graph.perimeter)) == (72, 40)
    drawn = nx.Graph()
    for a, b in np.round(graph.ends, 6).tolist():
        drawn.add_edge(tuple(a), tuple(b))
    degrees = [degree for _, degree in drawn.degree]
    assert [degrees.count(d) for d in (1, 2, 3)] == [4, 16, 36]
    assert len(degrees) == 56
    assert drawn.number_of_edges() - len(degrees) + nx.number_connected_components(drawn) == 17


@nightly_only
@pytest.mark.slow
def test_all_states_of_two_by_two_hexagons() -> None:
    """524,288 states make 233,213 matchings and connect 186 of 190 pairs."""
    graph = om.HexMesh(2, 2).graph
    place = np.full(len(graph.mate), -1, dtype=np.int8)
    place[graph.perimeter] = np.arange(20)
    rows = []
    for high in range(32):
        numbers = np.arange(2**14) + (high << 14)
        states = (numbers[:, None] >> np.arange(19) & 1).astype(np.int8)
        arrived = trace(graph, states, np.tile(graph.perimeter, (len(states), 1))).arrived
        rows.append(place[arrived])
    matchings = np.unique(np.concatenate(rows).view("V20"))
    assert len(matchings) == 233_213
    held = matchings.view(np.int8).reshape(-1, 20)
    met = np.zeros((20, 20), dtype=bool)
    met[np.broadcast_to(np.arange(20), held.shape), held] = True
    assert not met.diagonal().any()
    assert np.triu(met).sum() == 186
    dead = np.argwhere(np.triu(~met, 1)).tolist()
    assert [tuple(pair) for pair in dead] == om.HexMesh(2, 2).dead_pairs()


@pytest.mark.parametrize("graph", GRAPHS)
@given(seed=st.integers(0, 2**32))
def test_light_is_followed_until_it_meets_a_free_cell(graph: CellGraph, seed: int) -> None:
    """All cells of the first slot are set, so that its light arrives, and would come back."""
    rng = np.random.default_rng(seed)
    states = rng.integers([[0], [-1]], 2, (2, graph.n_cells))
    light = trace(graph, states, np.tile(graph.perimeter, (2, 1)))
    back = trace(graph, states[:1], light.arrived[:1])
    assert np.array_equal(back.arrived[0], graph.perimeter)
    for slot, beam in np.ndindex(light.arrived.shape):
        steps, end = oracles.follow(graph, states[slot].tolist(), int(graph.perimeter[beam]))
        mine = (light.slot == slot) & (light.beam == beam)
        found = zip(light.entered[mine].tolist(), light.left[mine].tolist(), strict=True)
        assert list(found) == steps
        assert light.arrived[slot, beam] == (-1 if end is None else end)
        stopped = int(light.stopped[slot, beam])
        if end is None:
            assert stopped == (graph.mate[steps[-1][1]] if steps else graph.perimeter[beam])
        else:
            assert stopped == -1


def test_light_enters_at_free_terminals_only() -> None:
    graph = GRAPHS[0]
    states = np.zeros((1, graph.n_cells))
    for wrong in (int(np.flatnonzero(graph.mate >= 0)[0]), -2, len(graph.mate)):
        with pytest.raises(om.InputError, match="free terminals only"):
            trace(graph, states, [[wrong]])
    with pytest.raises(om.InputError, match="cell_states"):
        trace(graph, states[:, 1:], [[0]])


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32))
def test_shortest_routes_in_any_wiring(seed: int) -> None:
    fabric = oracles.random_fabric(np.random.default_rng(seed), 4)
    expected = oracles.route_lengths(fabric.graph, fabric.graph.perimeter.tolist())
    expected[np.isinf(expected)] = UNREACHED
    assert np.array_equal(fabric.route_cells(), expected)


@pytest.mark.parametrize("size", [(4, 4), (5, 7), (9, 9)])
def test_spread_ports_can_all_meet(size: tuple[int, int]) -> None:
    """No choice has a dead pair; ports are different terminals in ascending order."""
    most = 4 * (sum(size) + 1)
    for count in range(2, most // 3, 3):
        mesh = om.HexMesh(*size, ports=count)
        assert mesh.dead_pairs() == []
        chosen = mesh.perimeter_ports[0]
        assert list(chosen) == sorted(set(chosen))
        assert len(chosen) == count
        if count * 4 <= most:
            split = om.HexMesh(*size, tx=count // 2, rx=count // 2)
            assert split.dead_pairs() == []
            assert len({*split.perimeter_ports[0], *split.perimeter_ports[1]}) == count // 2 * 2


def test_listed_ports_are_taken_as_they_are() -> None:
    dead = om.HexMesh(3, 3).dead_pairs()[0]
    mesh = om.HexMesh(3, 3, ports=[*dead[::-1], 0])
    assert mesh.dead_pairs() == [(0, 1)]
    assert mesh.port_names == (f"t{dead[1]}", f"t{dead[0]}", "t0")
    assert mesh.describe_port(2).startswith("port 2 (t0, cell ")
    split = om.HexMesh(2, 2, tx=[0, 6], rx=[10, 15])
    assert split.source_terminals.tolist() == split.graph.perimeter[[0, 6]].tolist()
    assert split.destination_terminals.tolist() == split.graph.perimeter[[10, 15]].tolist()
    assert split.describe_port(0).startswith("port 0 (t0>t10, from cell ")
    assert om.IdealSwitch(3).describe_port(1) == "port 1"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": 0}, "rows = 0"),
        ({"cols": 2.5}, "cols = 2.5"),
        ({"ports": 0}, "ports = 0"),
        ({"ports": 21}, "ports = 21: at most 20"),
        ({"ports": []}, "ports is empty"),
        ({"ports": [0, 20]}, r"ports\[1\] = 20: perimeter terminals are 0 \.\. 19"),
        ({"ports": [3, 4, 3]}, r"ports\[2\] = 3: is ports\[0\] already"),
        ({"ports": "all"}, "ports = 'all'"),
        ({"ports": True}, "ports = True"),
        ({"tx": [0]}, "tx and rx come together"),
        ({"tx": [0], "rx": [1], "ports": 2}, "either ports, or tx and rx"),
        ({"tx": [0], "rx": [0]}, r"rx\[0\] = 0: is tx\[0\] already"),
        ({"tx": [0, 1], "rx": [2]}, "two equal numbers, or two lists of one length"),
        ({"tx": 11, "rx": 11}, "tx = 11: at most 10"),
    ],
)
def test_a_wrong_choice_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        om.HexMesh(**{"rows": 2, "cols": 2} | fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mate": [1, -1, -1, -1]}, r"mate\[0\] = 1: joins are mutual"),
        ({"mate": [9, -1, -1, -1]}, r"mate\[0\] = 9: joins are mutual"),
        ({"mate": [0, -1, -1, -1]}, "joined to itself"),
        ({"mate": [-1] * 5}, "mate has 5 terminals"),
        ({"perimeter": [0, 1, 2]}, "each free terminal once"),
    ],
)
def test_a_wrong_graph_is_named(fields: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {
        "mate": [-1] * 4,
        "ends": [[[0, 0], [1, 0]]],
        "perimeter": [0, 1, 2, 3],
    }
    assert CellGraph(**right).n_cells == 1
    with pytest.raises(om.InputError, match=message):
        CellGraph(**right | fields)


def test_fabrics_are_values() -> None:
    mesh = om.HexMesh(3, 3, ports=[0, 5])
    assert pickle.loads(pickle.dumps(mesh)) == mesh == om.HexMesh(3, 3, ports=(0, 5))
    assert hash(mesh) == hash(om.HexMesh(3, 3, ports=np.array([0, 5])))  # type: ignore[arg-type]
    assert mesh != om.HexMesh(3, 3, ports=[5, 0])
    assert om.SquareMesh(3, 3) != om.TriangularMesh(3, 3)
    with pytest.raises(ValueError, match="read-only"):
        mesh.graph.mate[0] = 3
    with pytest.raises(ValueError, match="read-only"):
        mesh.route_cells()[0, 0] = 3


def test_links_are_numbered_by_their_lower_terminal() -> None:
    graph = om.HexMesh(2, 3).graph
    of_terminal = graph.links.of_terminal
    first = [int(np.flatnonzero(of_terminal == link)[0]) for link in range(graph.links.count)]
    assert first == sorted(first)
    for terminal, mate in enumerate(graph.mate.tolist()):
        assert (
            np.flatnonzero(of_terminal == of_terminal[terminal]) == sorted({terminal, mate} - {-1})
        ).all()


def test_the_state_between_two_terminals() -> None:
    graph = om.HexMesh(1, 1).graph
    for entered, row in enumerate(graph.exits.tolist()):
        for state, left in enumerate(row):
            assert state_between(entered, left) == state


def test_circuits_are_traced_in_order() -> None:
    mesh = om.HexMesh(3, 3, ports=5)
    schedule: Any = om.solve(om.AllToAll(mesh), seed=0).schedule
    slots = trace_circuits(mesh, schedule)
    for k, routes in enumerate(slots):
        held = oracles.circuits(mesh, schedule.matchings[k].tolist())
        assert [(route.source, route.destination) for route in routes] == held
        for route in routes:
            start = int(mesh.source_terminals[route.source])
            steps, end = oracles.follow(mesh.graph, schedule.cell_states[k].tolist(), start)
            assert route.cells == tuple(entered // 4 for entered, _ in steps)
            assert route.terminals == tuple(terminal for step in steps for terminal in step)
            assert end == mesh.destination_terminals[route.destination] == route.terminals[-1]


def test_circuits_without_cells_have_empty_routes() -> None:
    rows: Any = [[1, 2, 0]]
    schedule = om.Schedule(matchings=rows, durations_s=np.ones(1))
    routes = trace_circuits(om.IdealSwitch(3), schedule)[0]
    assert [tuple(route) for route in routes] == [(i, (i + 1) % 3, (), ()) for i in range(3)]
    split = om.HexMesh(3, 3, tx=3, rx=3)
    assert [tuple(route) for route in trace_circuits(split, schedule)[0]] == [
        (i, (i + 1) % 3, (), ()) for i in range(3)
    ]
    with pytest.raises(om.InputError, match="3 ports, a fabric of 4"):
        trace_circuits(om.IdealSwitch(4), schedule)


def test_terminals_have_places() -> None:
    """Side 1 lies to the left of the way from end a to end b."""
    one: Any = {"mate": [-1] * 4, "ends": [[[0, 0], [1, 0]]], "perimeter": [0, 1, 2, 3]}
    places = CellGraph(**one).terminal_positions(inset=0.25, offset=0.5)
    assert places.tolist() == [[0.25, 0.5], [0.25, -0.5], [0.75, 0.5], [0.75, -0.5]]


# A number of ports that cannot be spread is refused at once; ports that are listed are not.


def test_a_number_that_cannot_be_spread_is_refused_when_the_mesh_is_made() -> None:
    with pytest.raises(om.InputError, match="ports = 5: the 20 perimeter terminals are of two"):
        om.SquareMesh(2, 3, ports=5)
    with pytest.raises(om.InputError, match="at most 2 ports can all meet"):
        om.SquareMesh(3, 3, ports=3)
    with pytest.raises(om.InputError, match="ports = 16: no even spread over the 16 perimeter"):
        om.HexMesh(2, 1, ports=16)


@pytest.mark.parametrize(
    ("mesh", "count"),
    [
        (om.SquareMesh(3, 3), 4),
        (om.SquareMesh(5, 4), 3),
        (om.SquareMesh(5, 4), 5),
        (om.TriangularMesh(2, 2), 3),
    ],
)
def test_fewer_ports_are_accepted_where_more_are(mesh: om.SquareMesh, count: int) -> None:
    """They are some of the ports of the larger number, and all of them can be used."""
    smaller = dataclasses.replace(mesh, tx=count, rx=count)
    assert smaller.n_ports == count
    solution = om.solve(om.AllToAll(smaller), seed=0, limits=om.Limits(iterations=20))
    assert solution.objective is not None


def test_listed_ports_do_route() -> None:
    """A list may have pairs that cannot meet; others do."""
    mesh = om.SquareMesh(2, 3, ports=(0, 5, 11, 16))
    for matching in ([1, 0, 3, 2], [3, 2, 1, 0]):
        assert om.solve(om.Routing(mesh, matching), seed=0).status is om.Status.OPTIMAL

"""The kernels of repair: ways are as short as there are, and routes together share nothing."""

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.solvers.kernels.two_sided import NOT_REACHED
from optmatch.solvers.reroutes.routing_state import RoutingState
from optmatch.solvers.reroutes.splice import LOSS_COST, SET_COST
from optmatch.testing.reroutes import draw_rack_state, draw_state

pytestmark = pytest.mark.kernels

FABRICS: tuple[Any, ...] = (
    om.HexMesh(1, 2, ports=[0, 1, 3, 4, 7, 10]),
    om.HexMesh(2, 2, tx=3, rx=3),
    om.RackFabric((6, 2, 1), (2, 2, 1), fibres=2, ports_per_chip=2),
)


def on_fabrics(test: Any) -> Any:
    """Run a test on some drawn states of each fabric."""
    some = settings(max_examples=8, deadline=None)(given(seed=st.integers(0, 1000))(test))
    named = pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: type(fabric).__name__)
    return named(some)


def routing_of(fabric: Any, seed: int) -> RoutingState:
    """Draw a state of a fabric."""
    rng = np.random.default_rng(seed)
    draw = draw_rack_state if fabric.graph is None else draw_state
    return RoutingState(draw(fabric, rng))


def cheapest(routing: RoutingState, source: int, destination: int) -> int | None:
    """Find by networkx what the way between two units costs at least."""
    graph, found = routing.graph, nx.DiGraph()
    for node in range(len(graph.resource)):
        for arc in range(int(graph.first[node]), int(graph.first[node + 1])):
            head, cell = int(graph.head[arc]), int(graph.cell[arc])
            if routing.free[graph.resource[head]] > 0:
                to_set = cell >= 0 and routing.now[cell] != graph.state[arc]
                found.add_edge(node, head, cost=int(routing.cost[arc]) + SET_COST * to_set)
    ends = graph.leaving(source), graph.entering(destination)
    if not (found.has_node(ends[0]) and found.has_node(ends[1]) and nx.has_path(found, *ends)):
        return None
    length: int = nx.shortest_path_length(found, *ends, weight="cost")
    return length


@on_fabrics
def test_a_single_way_is_as_cheap_as_any(fabric: Any, seed: int) -> None:
    routing = routing_of(fabric, seed)
    units = routing.graph.units
    for source, destination in [(0, units - 1), (1, 0), (units // 2, 1)]:
        best = cheapest(routing, source, destination)
        found = routing.route([(source, destination)])
        if found is None:
            continue
        sets, worst, length = routing.sum_up(found)
        assert best is not None
        assert worst * LOSS_COST + length >= best % SET_COST or sets > best // SET_COST
        used = routing.graph.resource[found[0]].tolist()
        assert len(set(used)) == len(used)
        if fabric.graph is None:
            assert worst * LOSS_COST + length == best


@on_fabrics
def test_routes_together_overdraw_nothing(fabric: Any, seed: int) -> None:
    routing = routing_of(fabric, seed)
    before = routing.free.copy()
    ends = [tuple(pair) for pair in routing.ends[:3].tolist()]
    with routing.without(range(len(ends))):
        found = routing.route(ends)
        assert found is not None
        nodes = [node for path in found for node in path.tolist()]
        used = np.zeros(len(before), dtype=np.int64)
        np.add.at(used, routing.graph.resource[np.array(nodes, dtype=np.int64)], 1)
        assert (used <= routing.free).all()
    assert np.array_equal(routing.free, before)
    work = routing.work
    for end in (work.forward, work.backward):
        assert (end.cost == NOT_REACHED).all()


def test_paths_say_which_cells_they_pass() -> None:
    mesh = om.HexMesh(2, 2, ports=8)
    state = draw_state(mesh, np.random.default_rng(3))
    routing = RoutingState(state)
    for path, way in zip(routing.paths, state.circuit_routes, strict=True):
        cells = routing.cells_of(path)
        assert [cell for cell, _ in cells] == [terminal // 4 for terminal in way]
        assert all(state.cell_states[cell] == wanted for cell, wanted in cells)  # type: ignore[index]

"""The kernels of repair: ways are as short as there are, and routes together share nothing."""

import heapq
from collections.abc import Iterator
from itertools import pairwise
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


class PlainState:
    """What is free of a routing, and negotiations in plain Python."""

    def __init__(self, routing: RoutingState) -> None:
        self.routing, self.graph = routing, routing.graph
        self.history = [0] * len(routing.free)
        self.using = [0] * len(routing.free)

    def arcs(self, node: int) -> Iterator[tuple[int, int, int]]:
        """Yield the arcs that light can take from a node: number, node, cost."""
        routing, graph = self.routing, self.graph
        for arc in range(int(graph.first[node]), int(graph.first[node + 1])):
            head, cell, state = (int(x[arc]) for x in (graph.head, graph.cell, graph.state))
            if routing.shut[head] or (cell >= 0 and routing.mode[cell] not in (-1, state)):
                continue
            to_set = cell >= 0 and routing.now[cell] != state
            yield arc, head, int(routing.cost[arc]) + SET_COST * to_set

    def find(self, start: int, goal: int, shared: int) -> list[int]:
        """Run Dijkstra; no nodes if there is no way."""
        queue, known = [(0, start, -1)], dict[int, int]()
        while queue:
            cost, node, before = heapq.heappop(queue)
            if node in known:
                continue
            known[node] = before
            if node == goal:
                way = [node]
                while known[way[-1]] >= 0:
                    way.append(known[way[-1]])
                return way[::-1]
            for _, head, price in self.arcs(node):
                entered = int(self.graph.resource[head])
                room = int(self.routing.free[entered])
                if room > 0:
                    price += shared * (self.using[entered] >= room) + self.history[entered]
                    heapq.heappush(queue, (cost + price, head, node))
        return []

    def negotiate(self, ends: list[tuple[int, int]], rounds: int) -> tuple[int, list[list[int]]]:
        """Route circuits together, as `negotiate` says it does."""
        resource, ways = self.graph.resource.tolist(), list[list[int]]()
        for turn in range(1, rounds + 1):
            self.using, ways = [0] * len(self.using), []
            for start, goal in ends:
                self.using[resource[start]] += 1
                way = self.find(start, goal, (1 << 46) * turn)
                self.using[resource[start]] -= 1
                if not way:
                    return -1, []
                ways.append(way)
                for node in way:
                    self.using[resource[node]] += 1
            over = [resource[node] for way in ways for node in way]
            over = [used for used in over if self.using[used] > self.routing.free[used]]
            if not over:
                return turn, ways
            for used in over:
                self.history[used] += 1 << 44
        return 0, ways

    def levels(self, ways: list[list[int]]) -> tuple[int, int, int]:
        """Count cells to be set, the worst loss and the length."""
        cells, losses, length = set(), [0], 0
        for way in ways:
            arcs = [(a, n) for n, head in pairwise(way) for a, h, _ in self.arcs(n) if h == head]
            cells |= {int(self.graph.cell[a]) for a, n in arcs if self.to_set(a)}
            costs = [int(self.routing.cost[a]) for a, _ in arcs]
            losses.append(sum(cost // LOSS_COST for cost in costs))
            length += sum(cost % LOSS_COST for cost in costs)
        return len(cells), max(losses), length

    def to_set(self, arc: int) -> bool:
        """Tell whether the cell of an arc is in another state."""
        cell = int(self.graph.cell[arc])
        return cell >= 0 and bool(self.routing.now[cell] != self.graph.state[arc])


SEEDS = [92, 117, 668, 352, 567, 872, 266, 422, 566, *range(40)]
"""With the first ones it takes two or three rounds, on one of the fabrics."""
CROWDED: tuple[Any, ...] = (om.HexMesh(2, 2, ports=8), om.HexMesh(3, 3, tx=5, rx=5), FABRICS[2])


@pytest.mark.parametrize("fabric", CROWDED, ids=["ports", "tx-rx", "rack"])
def test_negotiations_are_those_of_plain_python(fabric: Any) -> None:
    outcomes = set()
    for seed in SEEDS:
        rng, routing = np.random.default_rng(seed), routing_of(fabric, seed)
        routing.cost = rng.integers(1, 1 << 30, len(routing.cost))
        routing.free[rng.random(len(routing.free)) < rng.choice([0.0, 0.1])] = 0
        if fabric.graph is not None and seed % 2:
            cells = rng.permutation(fabric.n_cells)[:3].tolist()
            routing.break_cells({cells[0]: int(rng.integers(2))}, cells[1:])
            routing.shut_ports([int(rng.integers(fabric.n_ports))])
        units = rng.permutation(routing.graph.units).tolist()
        ends = list(zip(units[0::2], units[1::2], strict=False))[: int(rng.integers(1, 5))]
        with routing.without(range(len(routing.paths) // (1 + seed // 2 % 2))):
            plain = PlainState(routing)
            nodes = [(routing.graph.leaving(a), routing.graph.entering(b)) for a, b in ends]
            expected, ways = plain.negotiate(nodes, 5)
            outcomes.add(expected)
            found = routing.route(ends, expected if expected > 0 else 5)
            assert (found is not None) == (expected > 0)
            if found is not None:
                assert [path.tolist() for path in found] == ways
                assert routing.sum_up(found) == plain.levels(ways)
                assert routing.route(ends, expected - 1) is None
            for end in (routing.work.forward, routing.work.backward):
                assert (end.cost == NOT_REACHED).all()
    assert {0, 1, 2} < outcomes


def test_paths_say_which_cells_they_pass() -> None:
    mesh = om.HexMesh(2, 2, ports=8)
    state = draw_state(mesh, np.random.default_rng(3))
    routing = RoutingState(state)
    for path, way in zip(routing.paths, state.circuit_routes, strict=True):
        cells = routing.cells_of(path)
        assert [cell for cell, _ in cells] == [terminal // 4 for terminal in way]
        assert all(state.cell_states[cell] == wanted for cell, wanted in cells)  # type: ignore[index]

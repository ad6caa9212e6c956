"""The kernels that route circuits, against Dijkstra in plain Python and by what routes must be."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import optmatch as om
from optmatch.solvers.routing.pathfinder import BLOCKED, FAR, UNIT, Effort, find_route
from optmatch.solvers.routing.router import Router

pytestmark = pytest.mark.kernels

MESHES = [
    om.HexMesh(2, 3, ports=6),
    om.HexMesh(3, 3, ports=8),
    om.SquareMesh(4, 4, tx=4, rx=4),
    om.HexMesh(4, 4, tx=5, rx=5),
    om.HexMesh.smartlight(ports=10),
]


def cheapest(router: Router, port: int, partner: int, prices: NDArray[np.int64]) -> float:
    """Run Dijkstra over the terminals left, with heapq and nothing else."""
    graph, wiring = router.graph, router.wiring
    done: set[int] = set()
    queue = [(0, -1, int(wiring.source[port]))]
    while queue:
        cost, left, entered = heapq.heappop(queue)
        if left == wiring.target[partner]:
            return cost
        if left in done or entered < 0:
            continue
        done.add(left)
        for state in (0, 1):
            leaving = int(graph.exits[entered, state])
            if prices[leaving] < FAR:
                further = cost + int(wiring.cell_cost[entered >> 2, state] + prices[leaving])
                heapq.heappush(queue, (further, leaving, int(graph.mate[leaving])))
    return np.inf


def random_circuits(
    fabric: om.Fabric, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw a matching, as the ports that start circuits and the partner of each port."""
    n = fabric.n_ports
    order = rng.permutation(n)
    partner = np.full(n, -1, dtype=np.int64)
    if fabric.bidirectional:
        first, second = order[: n // 2 * 2 : 2], order[1::2][: n // 2]
        partner[first], partner[second] = second, first
        return np.flatnonzero(partner > np.arange(n)), partner
    partner[order] = np.roll(order, 1)
    return np.arange(n), partner


def passed(router: Router, port: int, route: NDArray[np.int32]) -> list[int]:
    """List the links of a route, checking that its terminals follow one another."""
    entered, links = int(router.wiring.source[port]), [int(router.wiring.source[port])]
    for left in route.tolist():
        assert left >> 2 == entered >> 2, "light stays in its cell"
        assert (left ^ entered) & 2, "and leaves at the other end"
        links.append(left)
        entered = int(router.graph.mate[left])
    return [int(router.wiring.link[terminal]) for terminal in links]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MESHES), st.integers(0, 2**32 - 1))
def test_a_route_is_the_cheapest_at_any_prices(fabric: om.Fabric, seed: int) -> None:
    """A* gives Dijkstra's cost, also with closed links, and terminals that lead there."""
    rng = np.random.default_rng(seed)
    router = Router(fabric)
    by_link = rng.integers(0, 3 * UNIT, size=len(router.workspace.use))
    by_link[rng.random(len(by_link)) < 0.1] = FAR
    prices = by_link[router.wiring.link]
    i, j = rng.choice(fabric.n_ports, 2, replace=False)
    router.workspace.exit_cost[:] = prices
    route = np.zeros(len(prices), dtype=np.int32)
    count = find_route(router.wiring, router.workspace, i, j, route)  # type: ignore[no-untyped-call]
    expected = cheapest(router, i, j, prices)
    if count == 0:
        assert expected == np.inf
        return
    assert router.workspace.cost[router.wiring.target[j]] == expected
    assert route[count - 1] == router.wiring.target[j]
    passed(router, i, route[:count])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MESHES), st.integers(0, 2**32 - 1))
def test_routes_of_a_matching_share_no_link(fabric: om.Fabric, seed: int) -> None:
    """Each ends where it should; the cost is the number of cells; cell states carry them all."""
    rng = np.random.default_rng(seed)
    router = Router(fabric)
    order, partner = random_circuits(fabric, rng)
    routes, lengths = router.empty_routes()
    cost = router.settle(order, partner, routes, lengths)
    if cost < 0:
        assert cost == BLOCKED or -cost <= len(router.workspace.use)
        return
    links = [link for p in order for link in passed(router, p, routes[p, : lengths[p]])]
    assert len(set(links)) == len(links)
    assert cost == UNIT * lengths.sum()
    assert (routes[order, lengths[order] - 1] == router.wiring.target[partner[order]]).all()
    states = router.states(order, routes, lengths)
    for port in order:
        entered = int(router.wiring.source[port])
        for left in routes[port, : lengths[port]].tolist():
            assert router.graph.exits[entered, states[left >> 2]] == left
            entered = int(router.graph.mate[left])
    lit = {left >> 2 for p in order for left in routes[p, : lengths[p]].tolist()}
    assert set(np.flatnonzero(states >= 0).tolist()) == lit


def test_least_is_what_a_circuit_costs_alone() -> None:
    """The router's table equals that of the fabric, which is computed in another way."""
    for fabric in MESHES:
        table, least = fabric.route_cells(), Router(fabric).least
        different = ~np.eye(fabric.n_ports, dtype=bool)
        assert (least[different] == UNIT * table[different]).all()


def test_cross_may_cost_less_than_bar() -> None:
    """With free bars, a route through the mesh costs its crosses only."""
    fabric = om.HexMesh(3, 3, ports=8)
    router = Router(fabric, bar_cost=0, cross_cost=UNIT)
    order, partner = np.array([0, 1]), np.array([4, 6, -1, -1, 0, -1, 1, -1])
    routes, lengths = router.empty_routes()
    cost = router.settle(order, partner, routes, lengths, effort=Effort(rounds=200))
    assert cost >= 0
    crosses = 0
    for port in order:
        entered = int(router.wiring.source[port])
        for left in routes[port, : lengths[port]].tolist():
            crosses += (left ^ entered) & 1
            entered = int(router.graph.mate[left])
    assert cost == UNIT * crosses


def test_rivals_at_one_corner_stay_contested() -> None:
    """Light from both far ends of a corner needs its one link: no number of rounds helps."""
    graph = om.HexMesh(2, 2).graph
    from optmatch.fabrics import forced_links

    ports = [2, 5]  # perimeter terminals
    first, second = forced_links(graph, graph.perimeter[ports].tolist())
    assert first & second
    fabric = om.HexMesh(2, 2, ports=[2, 10, 5, 15])
    router = Router(fabric)
    routes, lengths = router.empty_routes()
    partner = np.array([1, 0, 3, 2])
    assert router.settle(np.array([0, 2]), partner, routes, lengths) < 0


def test_a_fabric_without_cells_has_no_router() -> None:
    """It needs none."""
    with pytest.raises(ValueError, match="without cells"):
        Router(om.IdealSwitch(4))

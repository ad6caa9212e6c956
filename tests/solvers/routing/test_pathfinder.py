"""The kernels that route circuits, against Dijkstra in plain Python and by what routes must be."""

import heapq
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import optmatch as om
from optmatch.fabrics.fabric import find_staying
from optmatch.fabrics.light import trace
from optmatch.solvers.kernels import heap
from optmatch.solvers.routing.pathfinder import (
    BLOCKED,
    FAR,
    UNIT,
    Effort,
    RoutedCircuits,
    find_route,
    negotiate,
    shorten,
)
from optmatch.solvers.routing.router import CellRouter
from tests.helpers.modes import examples

pytestmark = pytest.mark.kernels

MESHES = [
    om.HexMesh(2, 3, ports=6),
    om.HexMesh(3, 3, ports=8),
    om.SquareMesh(4, 4, tx=4, rx=4),
    om.HexMesh(4, 4, tx=5, rx=5),
    om.HexMesh.smartlight(ports=10),
]

EFFORT_RANGES = [(0, UNIT), (100, 130), (0, UNIT), (1, 12)]
"""First pressure, growth, history, rounds."""


def cheapest(router: CellRouter, port: int, partner: int, prices: NDArray[np.int64]) -> float:
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


def passed(router: CellRouter, port: int, route: NDArray[np.int32]) -> list[int]:
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
    router = CellRouter(fabric)
    by_link = rng.integers(0, 3 * UNIT, size=len(router.workspace.use))
    by_link[rng.random(len(by_link)) < 0.1] = FAR
    prices = by_link[router.wiring.link]
    i, j = rng.choice(fabric.n_ports, 2, replace=False)
    router.workspace.exit_cost[:] = prices
    route = np.zeros(len(prices), dtype=np.int32)
    count = find_route(router.wiring, router.workspace, i, j, route)
    expected = cheapest(router, i, j, prices)
    if count == 0:
        assert expected == np.inf
        return
    assert router.workspace.cost[router.wiring.target[j]] == expected
    assert route[count - 1] == router.wiring.target[j]
    passed(router, i, route[:count])


@settings(max_examples=examples(40, plain=4), deadline=None)
@given(st.sampled_from([*MESHES, om.Benes(8), om.Crossbar(5)]), st.integers(0, 2**32 - 1))
def test_circuits_of_two_slots_keep_their_routes(fabric: om.Fabric, seed: int) -> None:
    """All light arrives, and circuits go on where there is room; in a crossbar all do."""
    rng = np.random.default_rng(seed)
    router = CellRouter(fabric)
    matchings: list[NDArray[np.int32]] = []
    states: list[NDArray[np.int8]] = []
    former: NDArray[np.int32] | None = None
    while len(states) < 4:
        # A few circuits are those of the slot before, the others are drawn.
        matching = draw_matching(fabric, rng, former)
        routed = om.solve(om.Routing(fabric, matching), seed=0, limits=om.Limits(iterations=5))
        if routed.schedule is not None and routed.schedule.cell_states is not None:
            former = matching
            matchings.append(matching)
            states.append(routed.schedule.cell_states[0])
    matchings[-1] = matchings[0]
    states[-1] = states[0]
    rows, before = np.array(matchings, dtype=np.int32), np.array(states, dtype=np.int8)
    shared = (rows[1:] == rows[:-1]) & (rows[1:] >= 0)
    for repeats in (False, True):
        after = router.keep_routes(rows, before, repeats=repeats)
        starts = np.where(rows < 0, -1, fabric.source_terminals)
        ends = np.where(rows < 0, -1, fabric.destination_terminals[rows])
        assert fabric.graph is not None
        assert (trace(fabric.graph, after, starts).arrived == ends).all()
        assert not repeats or (after[-1] == after[0]).all()
        stays = find_staying(fabric, rows, after)[1:]
        assert not (stays & ~shared).any()
        if fabric.type == "crossbar":
            assert (stays == shared).all()
        if not repeats:  # the first change may keep no less than before
            assert stays[0].sum() >= find_staying(fabric, rows, before)[1].sum()


def draw_matching(fabric: om.Fabric, rng: Any, former: Any) -> NDArray[np.int32]:
    """Draw circuits of two thirds of the ports; some are those of another matching."""
    n = fabric.n_ports
    matching = np.full(n, -1, dtype=np.int32)
    if former is not None:
        kept = np.flatnonzero(rng.random(n) < 0.5)
        for port in kept[former[kept] >= 0]:
            if not fabric.bidirectional or former[port] in kept:
                matching[port] = former[port]
    free = [port for port in rng.permutation(n).tolist() if matching[port] < 0]
    if fabric.bidirectional:
        for one, two in zip(free[: n // 3], free[n // 3 : 2 * (n // 3)], strict=False):
            matching[one], matching[two] = two, one
        return matching
    ends = np.setdiff1d(rng.permutation(n), matching)
    for one, two in zip(free[: 2 * n // 3], rng.permutation(ends).tolist(), strict=False):
        matching[one] = two
    return matching


class PlainRouter:
    """The same negotiations in plain Python, but for the search of a single route."""

    def __init__(self, router: CellRouter, base: NDArray[np.int64]) -> None:
        self.router, self.base = router, base
        self.links = len(router.workspace.use)

    def find(self, price: NDArray[np.int64], port: int, partner: int) -> list[int]:
        """Find the cheapest route at a price of each link."""
        space, route = self.router.workspace, np.zeros(self.router.width, dtype=np.int32)
        space.exit_cost[:] = np.minimum(self.base + price[self.router.wiring.link], FAR)
        count = find_route(self.router.wiring, space, port, partner, route)
        return route[:count].tolist()  # type: ignore[no-any-return]

    def use(self, routes: dict[int, list[int]]) -> NDArray[np.int64]:
        """Count the routes on each link."""
        use = np.zeros(self.links, dtype=np.int64)
        for port, route in routes.items():
            if route:
                np.add.at(use, passed(self.router, port, np.array(route)), 1)
        return use

    def negotiate(self, effort: Effort, partner: NDArray[np.int64], routes: Any) -> int:
        """Do as `negotiate` with routes by port, in their order."""
        history, pressure = np.zeros(self.links, dtype=np.int64), effort.first
        contested = 0
        for _ in range(effort.rounds):
            for port in routes:
                if routes[port]:
                    links = [int(self.router.wiring.link[left]) for left in routes[port]]
                    if self.use(routes)[links].max() <= 1:
                        continue
                    routes[port] = []
                price = history + pressure * self.use(routes)
                routes[port] = self.find(price, port, int(partner[port]))
                if not routes[port]:
                    return BLOCKED
            over = np.maximum(self.use(routes) - 1, 0)
            contested = int(np.count_nonzero(over))
            if not contested:
                return 0
            if sum(self.cost(port, route) for port, route in routes.items()) > effort.most:
                break
            history = np.where(
                over > 0, np.minimum(history + effort.history * over, 64 * UNIT), history
            )
            pressure = min(pressure * effort.growth_percent // 100, 64 * UNIT)
        return -contested

    def cost(self, port: int, route: list[int]) -> int:
        """Add up cells and `base`."""
        entered, total = int(self.router.wiring.source[port]), 0
        for left in route:
            total += int(self.router.wiring.cell_cost[left >> 2, (left ^ entered) & 1])
            total += int(self.base[left])
            entered = int(self.router.graph.mate[left])
        return total

    def shorten(self, partner: NDArray[np.int64], routes: Any) -> int:
        """Do as `shorten`."""
        last = FAR
        while True:
            for port, route in routes.items():
                others = self.use({**routes, port: []})
                others[self.router.wiring.link[self.router.wiring.source[list(routes)]]] += 1
                found = self.find(FAR * others, port, int(partner[port]))
                links = passed(self.router, port, np.array(found)) if found else [0, 0]
                if len(set(links)) == len(links) and self.cost(port, found) < self.cost(
                    port, route
                ):
                    routes[port] = found
            total = sum(self.cost(port, route) for port, route in routes.items())
            if total >= last:
                return total
            last = total


@settings(max_examples=examples(60, plain=10), deadline=None)
@given(st.sampled_from(MESHES[:4]), st.integers(0, 2**32 - 1))
def test_negotiations_are_those_of_plain_python(fabric: om.Fabric, seed: int) -> None:
    rng = np.random.default_rng(seed)
    router = CellRouter(fabric)
    order, partner = random_circuits(fabric, rng)
    by_link = rng.integers(0, UNIT, size=len(router.workspace.use))
    by_link[rng.random(len(by_link)) < 0.03] = FAR
    base = by_link[router.wiring.link]
    effort = Effort(*(int(rng.integers(low, high)) for low, high in EFFORT_RANGES))
    if seed % 2:
        effort = effort._replace(most=int(rng.integers(10, 20 * (1 + len(order)))) * UNIT)
    plain = PlainRouter(router, base)
    routes, lengths = router.empty_routes()
    if seed % 3:  # start from a route of each, whatever it meets
        for port in order:
            lengths[port] = find_alone(router, port, int(partner[port]), routes[port])
    expected = {int(port): routes[port, : lengths[port]].tolist() for port in order}
    matching = base, RoutedCircuits(order, partner, routes, lengths)
    status = negotiate(router.wiring, router.workspace, effort, *matching)
    assert status == plain.negotiate(effort, partner, expected)
    if status == BLOCKED:
        return
    found = {int(port): routes[port, : lengths[port]].tolist() for port in order}
    assert found == expected
    if status == 0:
        total = shorten(router.wiring, router.workspace, *matching)
        assert total == plain.shorten(partner, expected)
        found = {int(port): routes[port, : lengths[port]].tolist() for port in order}
        assert found == expected


def find_alone(router: CellRouter, port: int, partner: int, route: NDArray[np.int32]) -> int:
    """Write the cheapest route at no prices."""
    router.workspace.exit_cost[:] = 0
    return int(find_route(router.wiring, router.workspace, port, partner, route))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_heaps_give_the_least_first(seed: int) -> None:
    kernels: Any = heap.push, heap.pop
    push, pop = (getattr(kernel, "__wrapped__", kernel) for kernel in kernels)
    rng, size = np.random.default_rng(seed), 0
    keys, items = np.zeros(100, dtype=np.int64), np.zeros(100, dtype=np.int64)
    left: list[int] = []
    for _ in range(150):
        if rng.random() < 0.6 and size < 99:
            key = int(rng.integers(40))
            left.append(key)
            size = push(keys, items, size, key, -key)
        elif size:
            assert (keys[0], items[0]) == (min(left), -min(left))
            left.remove(int(keys[0]))
            size = pop(keys, items, size)
        assert size == len(left)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10 * UNIT), st.integers(0, 10 * UNIT), st.integers(0, 2**32 - 1))
def test_least_is_the_cheapest_way_whatever_bar_and_cross_cost(
    bar: int, cross: int, seed: int
) -> None:
    cells = np.random.default_rng(seed).permutation(27).tolist()
    fabric = om.Faulty(
        om.HexMesh(2, 3, ports=6),
        stuck_bar=cells[:4],
        stuck_cross=cells[4:8],
        dead_cells=cells[8:10],
    )
    router = CellRouter(fabric, bar, cross)
    prices = router.no_cost
    for i, j in permutations(range(6), 2):
        assert min(router.least[i, j], FAR) == min(cheapest(router, i, j, prices), FAR)


def test_a_fabric_without_cells_has_no_router() -> None:
    with pytest.raises(ValueError, match="without cells"):
        CellRouter(om.IdealSwitch(4))

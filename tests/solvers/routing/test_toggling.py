"""Changes with few toggles: a single way against Dijkstra, the choice of ways in plain Python."""

import heapq
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import optmatch as om
from optmatch.solvers.routing.pathfinder import FAR
from optmatch.solvers.routing.router import CellRouter
from optmatch.solvers.routing.row_router import MeshRouter
from optmatch.solvers.routing.rows import ROUTED, WRONG_STATES, new_scratch
from optmatch.solvers.routing.toggling import (
    NO_ROOM,
    TOLLS,
    RoutedRow,
    find_fewest_toggles,
    fit_in_circuits,
    negotiate_change,
)
from tests.helpers.modes import compiled_only, examples

pytestmark = pytest.mark.kernels

TOGGLE = 1 << 32
FABRICS = [
    om.HexMesh(2, 3, ports=8),
    om.HexMesh(3, 3, tx=5, rx=5),
    om.SquareMesh(4, 4, tx=4, rx=4),
]


class Plain:
    """The kernels of a fabric, and the same without them but for the search of a single way."""

    def __init__(self, fabric: om.Fabric) -> None:
        self.rows, self.router = MeshRouter(fabric), CellRouter(fabric)
        self.room = new_scratch(self.router.wiring, self.router.width)
        self.wiring, self.space = self.router.wiring, self.router.workspace

    def circuits(self, matching: NDArray[np.int32]) -> list[tuple[int, int]]:
        """List the circuits of a matching, the longest first."""
        once = self.router.bidirectional
        pairs = [(i, j) for i, j in enumerate(matching.tolist()) if j > (i if once else -1)]
        return sorted(pairs, key=lambda pair: -self.router.least[pair])

    def set_toll(self, states: NDArray[np.int8]) -> None:
        """Set the toll of each cell: its cost, and a toggle more for the other state."""
        self.room.toll[:] = self.wiring.cell_cost
        for cell, state in enumerate(states.tolist()):
            if state >= 0:
                self.room.toll[cell, 1 - state] += TOGGLE

    def find(self, port: int, partner: int, most: int) -> tuple[list[int], int]:
        """Search a way by the kernel."""
        route = np.zeros(self.router.width, dtype=np.int32)
        self.room.partner[port] = partner
        ways = self.wiring, self.space, self.room
        count, toggles = find_fewest_toggles(*ways, port, most, route)
        return route[:count].tolist(), toggles

    def cost(self, port: int, route: list[int]) -> int:
        """Add up what a way costs, and check that it is one."""
        entered, total = int(self.wiring.source[port]), 0
        for left in route:
            state = (left ^ entered) & 1
            assert self.wiring.exits[entered, state] == left
            assert self.space.exit_cost[left] < FAR
            total += int(self.room.toll[left >> 2, state])
            entered = int(self.wiring.mate[left])
        return total

    def links(self, port: int, route: list[int]) -> list[int]:
        """List the links of a way, that of the port too."""
        terminals = [int(self.wiring.source[port]), *route]
        return [int(self.wiring.link[terminal]) for terminal in terminals]

    def follow(self, port: int, partner: int, states: NDArray[np.int8]) -> list[int]:
        """Follow light; return its way if it arrives and passes no link twice."""
        at, route = int(self.wiring.source[port]), list[int]()
        while at >= 0 and states[at >> 2] >= 0 and len(route) < len(self.wiring.mate):
            route.append(int(self.wiring.exits[at, states[at >> 2]]))
            at = int(self.wiring.mate[route[-1]])
        links = self.links(port, route)
        arrives = at < 0 and route[-1:] == [self.wiring.target[partner]]
        return route if arrives and len(set(links)) == len(links) else []

    def occupy(self, states: NDArray[np.int8], routes: dict[int, list[int]]) -> bool:
        """Close the links of routes, and pay for their toggles; False if one is none."""
        self.set_toll(states)
        self.space.exit_cost[:] = 0
        are_routes = True
        for port, route in routes.items():
            links = self.links(port, route)
            are_routes = are_routes and bool(route) and len(set(links)) == len(links)
            self.space.exit_cost[np.isin(self.wiring.link, links[1:])] = FAR
            self.space.exit_cost[self.wiring.source[port]] = FAR
            entered = int(self.wiring.source[port])
            for left in route:
                place = left >> 2, (left ^ entered) & 1
                self.room.toll[place] = self.wiring.cell_cost[place]
                entered = int(self.wiring.mate[left])
        return are_routes

    def fit(
        self, states: NDArray[np.int8], stay: dict[int, list[int]], moving: list[Any], most: int
    ) -> tuple[list[int], dict[int, list[int]]] | None:
        """Route circuits one after the other past those that stay; return toggles and routes."""
        routes, toggles = dict(stay), list[int]()
        self.occupy(states, routes)
        for port, partner in moving:
            routes[port], more = self.find(port, partner, most - sum(toggles))
            toggles.append(more)
            if not self.occupy(states, routes):
                return None
        return toggles, routes

    def refit(
        self, states: NDArray[np.int8], routes: dict[int, list[int]], moving: list[Any]
    ) -> dict[int, list[int]]:
        """Look for a cheaper way of each new circuit past all others, twice at most."""
        routes = dict(routes)
        for _ in range(2):
            is_better = False
            for port, partner in moving:
                self.occupy(states, {i: route for i, route in routes.items() if i != port})
                cost = self.cost(port, routes[port])
                if cost < TOGGLE:
                    continue
                route, _ = self.find(port, partner, cost // TOGGLE)
                links = self.links(port, route)
                is_simple = bool(route) and len(set(links)) == len(links)
                if is_simple and self.cost(port, route) < cost:
                    routes[port], is_better = route, True
            if not is_better:
                break
        return routes

    def change(
        self, states: NDArray[np.int8], circuits: list[tuple[int, int]]
    ) -> dict[int, list[int]] | None:
        """Let all circuits stay that can, fit the others in, in two orders, and refit them."""
        stay = {i: route for i, j in circuits if (route := self.follow(i, j, states))}
        moving = [(i, j) for i, j in circuits if i not in stay]
        if not moving:
            return stay
        most, best = len(states), None
        for turn in range(2 if len(moving) > 1 else 1):
            fitted = self.fit(states, stay, moving[:: 1 - 2 * turn], most) if most >= 0 else None
            if fitted:
                toggles, best = fitted
                most = sum(toggles) - 1
                if sum(toggles) == toggles[0]:
                    return best
        return best and self.refit(states, best, moving)


PLAIN = [Plain(fabric) for fabric in FABRICS]
LARGE = Plain(om.HexMesh(5, 5, ports=8))


def draw(plain: Plain, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw a matching."""
    n = len(plain.wiring.source)
    live = rng.permutation(n)[: n - 2 * int(rng.integers(2))]
    matching = np.full(n, -1, dtype=np.int32)
    if plain.router.bidirectional:
        matching[live] = live.reshape(-1, 2)[:, ::-1].ravel()
    else:
        matching[live] = rng.permutation(live)
    return matching


@settings(max_examples=examples(80, plain=10), deadline=None)
@given(st.sampled_from([*PLAIN, LARGE]), st.integers(0, 2**32 - 1), st.integers(-1, 2))
def test_a_way_has_the_fewest_toggles_and_then_cells(plain: Plain, seed: int, more: int) -> None:
    rng, wiring = np.random.default_rng(seed), plain.wiring
    states = rng.integers(-(seed % 2), 2, size=len(wiring.cell_cost)).astype(np.int8)
    closed = rng.random(len(plain.space.use)) < rng.choice([0.0, 0.1])
    plain.set_toll(states)
    port, partner = rng.choice(len(wiring.source), 2, replace=False).tolist()
    closed[wiring.link[wiring.target[partner]]] = False
    plain.space.exit_cost[:] = np.where(closed, FAR, 0)[wiring.link]
    least, done = dict[int, int](), set[int]()
    queue = [(0, -1, int(wiring.source[port]))]
    while queue:
        cost, left, entered = heapq.heappop(queue)
        least.setdefault(left, cost)
        if entered < 0 or entered in done:
            continue
        done.add(entered)
        for state in (0, 1):
            onward = int(wiring.exits[entered, state])
            if plain.space.exit_cost[onward] < FAR:
                total = cost + int(plain.room.toll[entered >> 2, state])
                heapq.heappush(queue, (total, onward, int(wiring.mate[onward])))
    best = least.get(int(wiring.target[partner]), FAR)
    most = max(0, min(best // TOGGLE, 20) + more)
    route, toggles = plain.find(port, partner, most)
    if best >= TOGGLE * (most + 1):
        assert (route, toggles) == ([], 0)
    else:
        assert route[-1] == wiring.target[partner]
        assert plain.cost(port, route) == best
        assert toggles == best // TOGGLE


SEEDS = [6, 15, 26, 29, 32, 133, *range(30, 62)][: examples(20, plain=6)]
"""For the first ones not all circuits that are up can stay."""


@pytest.mark.parametrize("plain", PLAIN, ids=["hex", "tx-rx", "square"])
def test_changes_are_those_of_plain_python(plain: Plain) -> None:
    for seed in SEEDS:
        rng, cells = np.random.default_rng(seed), len(plain.wiring.cell_cost)
        dark = rng.integers(-1, 2, size=cells).astype(np.int8)
        before, after = draw(plain, rng), draw(plain, rng)
        if seed % 4:
            after = change_two(plain, before, rng)
        lit, held = np.empty((1, cells), dtype=np.int8), np.empty(1, dtype=np.int8)
        routes, lengths = plain.router.empty_routes()
        plain.rows.route(before[None], lit, routes, lengths[None], held)
        states = np.where(lit[0] >= 0, lit[0], dark).astype(np.int8)
        states[rng.integers(cells)] = -1
        compare(plain, states, after)


def change_two(
    plain: Plain, before: NDArray[np.int32], rng: np.random.Generator
) -> NDArray[np.int32]:
    """Exchange the partners of two ports."""
    a, b = rng.choice(np.flatnonzero(before >= 0), 2, replace=False)
    after = before.copy()
    if not plain.router.bidirectional:
        after[[a, b]] = after[[b, a]]
    elif after[a] != b:
        c, d = after[[a, b]]
        after[[a, b, c, d]] = d, c, b, a
    return after


def compare(plain: Plain, states: NDArray[np.int8], matching: NDArray[np.int32]) -> None:
    """Change states by the kernel and in plain Python."""
    routes, lengths = plain.router.empty_routes()
    circuits = plain.circuits(matching)
    expected = plain.change(states, circuits)
    found = np.empty_like(states)
    kernels = plain.wiring, plain.space, plain.rows.ports, plain.room
    routed = RoutedRow(found, routes, lengths)
    outcome = fit_in_circuits(*kernels, matching, states, routed)
    if expected is None:
        assert outcome == NO_ROOM
        check_negotiated(plain, states, matching, routed)
        return
    assert {i: routes[i, : lengths[i]].tolist() for i, _ in circuits} == expected
    assert (lengths > 0).sum() == len(circuits)
    assert outcome == ROUTED
    carried = states.copy()
    for port, route in expected.items():
        entered = int(plain.wiring.source[port])
        for left in route:
            carried[left >> 2] = (left ^ entered) & 1
            entered = int(plain.wiring.mate[left])
    assert np.array_equal(found, carried)


def check_negotiated(
    plain: Plain, states: NDArray[np.int8], matching: NDArray[np.int32], routed: RoutedRow
) -> None:
    """Negotiate what does not fit in; follow its light through the cells, and count toggles."""
    circuits = plain.circuits(matching)
    order = np.array([i for i, _ in circuits])
    kernels = plain.wiring, plain.space, plain.room
    for toll in TOLLS:
        outcome = negotiate_change(*kernels, order, toll, routed)
        if outcome != NO_ROOM:
            break
    else:
        return
    assert outcome == ROUTED
    lit = set[int]()
    for i, j in circuits:
        route = routed.routes[i, : routed.lengths[i]].tolist()
        assert plain.follow(i, j, routed.states) == route
        assert not lit & set(plain.links(i, route))
        lit |= set(plain.links(i, route))
    cells = {left >> 2 for i, _ in circuits for left in routed.routes[i, : routed.lengths[i]]}
    dark = np.array([cell not in cells for cell in range(len(states))])
    assert np.array_equal(routed.states[dark], states[dark])


@pytest.mark.parametrize("limit_s", [None, 1e-9])
def test_reroute_has_an_answer_where_route_has_one(limit_s: float | None) -> None:
    """Without a limit, and with one that leaves no time for anything but routing anew."""
    router = om.Router(om.HexMesh(5, 5, ports=18), check=True, time_limit_s=limit_s)
    fast = MeshRouter(router.fabric)
    rng, states = np.random.default_rng(3), None
    for _ in range(examples(200, plain=4)):
        pairs = rng.permutation(18).reshape(-1, 2)
        matching = np.full(18, -1, dtype=np.int32)
        matching[pairs] = pairs[:, ::-1]
        lit, held = np.empty((1, router.fabric.n_cells), dtype=np.int8), np.empty(1, dtype=np.int8)
        routes = np.zeros((18, fast.width), dtype=np.int32)
        fast.route(matching[None], lit, routes, np.zeros((1, 18), dtype=np.int64), held)
        if held[0] == ROUTED:
            states = router.reroute(lit[0] if states is None else states, matching).states


def test_stuck_cells_are_stated_as_they_are_or_free() -> None:
    rows = MeshRouter(om.Faulty(om.HexMesh(2, 3, ports=6), stuck_bar=[5], stuck_cross=[9]))
    nothing, found = np.full(6, -1, dtype=np.int32), np.empty(27, dtype=np.int8)
    room = np.zeros((6, rows.width), dtype=np.int32), np.zeros(6, dtype=np.int64)
    for state in (-1, 0, 1):
        given = np.full(27, state, dtype=np.int8)
        assert rows.change(given, nothing, found, *room) == ROUTED
        expected = given.copy()
        expected[5], expected[9] = min(state, 0) - (state == 1), 1 if state == 1 else -1
        assert np.array_equal(found, expected)
    for wrong in (-2, 2):
        given = np.zeros(27, dtype=np.int8)
        given[3] = wrong
        assert rows.change(given, nothing, found, *room) == WRONG_STATES


@compiled_only
def test_circuits_that_give_way_to_each_other_in_turn_do_not_move_all_others() -> None:
    """Two of 64 circuits change, and do not fit in; quick negotiations do not converge."""
    rng = np.random.default_rng(5)
    for _ in range(18):
        ports = rng.permutation(128)
        before = np.empty(128, dtype=np.int32)
        before[ports[::2]], before[ports[1::2]] = ports[1::2], ports[::2]
        after = before.copy()
        while np.array_equal(after, before):
            first, second = rng.choice(128, 2, replace=False).tolist()
            if before[first] != second:
                peer, other_peer = before[[first, second]]
                after[[first, second, peer, other_peer]] = second, first, other_peer, peer
    router = om.Router(om.HexMesh(36, 36, ports=128), check=True)
    states = router.route(before).states
    changed = router.reroute(states, after).states
    assert ((states >= 0) & (changed >= 0) & (changed != states)).sum() <= 20


@compiled_only
def test_a_circuit_of_more_than_256_toggles_is_fitted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all cells are in bar, the way between these ports takes 259 toggles."""
    monkeypatch.setattr("optmatch.solvers.routing.row_router.TOLLS", ())
    fabric = om.HexMesh(2, 520, ports=8)
    matching = np.full(8, -1, dtype=np.int32)
    matching[[0, 4]] = 4, 0
    rows = MeshRouter(fabric)
    found = np.empty(fabric.n_cells, dtype=np.int8)
    room = np.zeros((8, rows.width), dtype=np.int32), np.zeros(8, dtype=np.int64)
    bar = np.zeros(fabric.n_cells, dtype=np.int8)
    monkeypatch.setattr(MeshRouter, "route", None)  # no negotiation from scratch
    assert rows.change(bar, matching, found, *room) == ROUTED
    assert (found == 1).sum() == 259

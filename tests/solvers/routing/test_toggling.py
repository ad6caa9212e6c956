"""Changes with few toggles: a single way against Dijkstra, and whole matchings on any states."""

import heapq

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
    find_fewest_toggles,
)
from tests.helpers.modes import compiled_only, examples

pytestmark = pytest.mark.kernels

TOGGLE = 1 << 32
FABRICS = [
    om.HexMesh(2, 3, ports=8),
    om.HexMesh(3, 3, tx=5, rx=5),
    om.SquareMesh(4, 4, tx=4, rx=4),
    om.HexMesh(5, 5, ports=8),
]


class SingleWay:
    """The search of a single way on a fabric, with what it reads and writes."""

    def __init__(self, fabric: om.Fabric) -> None:
        self.router = CellRouter(fabric)
        self.room = new_scratch(self.router.wiring, self.router.width)
        self.wiring, self.space = self.router.wiring, self.router.workspace

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


SEARCHES = [SingleWay(fabric) for fabric in FABRICS]


@settings(max_examples=examples(80, plain=10), deadline=None)
@given(st.sampled_from(SEARCHES), st.integers(0, 2**32 - 1), st.integers(-1, 2))
def test_a_way_has_the_fewest_toggles_and_then_cells(
    search: SingleWay, seed: int, more: int
) -> None:
    rng, wiring = np.random.default_rng(seed), search.wiring
    states = rng.integers(-(seed % 2), 2, size=len(wiring.cell_cost)).astype(np.int8)
    closed = rng.random(len(search.space.use)) < rng.choice([0.0, 0.1])
    search.set_toll(states)
    port, partner = rng.choice(len(wiring.source), 2, replace=False).tolist()
    closed[wiring.link[wiring.target[partner]]] = False
    search.space.exit_cost[:] = np.where(closed, FAR, 0)[wiring.link]
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
            if search.space.exit_cost[onward] < FAR:
                total = cost + int(search.room.toll[entered >> 2, state])
                heapq.heappush(queue, (total, onward, int(wiring.mate[onward])))
    best = least.get(int(wiring.target[partner]), FAR)
    most = max(0, min(best // TOGGLE, 20) + more)
    route, toggles = search.find(port, partner, most)
    if best >= TOGGLE * (most + 1):
        assert (route, toggles) == ([], 0)
    else:
        assert route[-1] == wiring.target[partner]
        assert search.cost(port, route) == best
        assert toggles == best // TOGGLE


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
    """Where all cells are in bar, light from a corner of this mesh stays at its rim."""
    monkeypatch.setattr("optmatch.solvers.routing.row_router.TOLLS", ())
    side = 260
    fabric = om.HexMesh(side, side, ports=8)
    matching = np.full(8, -1, dtype=np.int32)
    matching[[0, 4]] = 4, 0
    rows = MeshRouter(fabric)
    found = np.empty(fabric.n_cells, dtype=np.int8)
    room = np.zeros((8, rows.width), dtype=np.int32), np.zeros(8, dtype=np.int64)
    bar = np.zeros(fabric.n_cells, dtype=np.int8)
    monkeypatch.setattr(MeshRouter, "route", None)  # no negotiation from scratch
    assert rows.change(bar, matching, found, *room) == ROUTED
    assert (found == 1).sum() == side + 1

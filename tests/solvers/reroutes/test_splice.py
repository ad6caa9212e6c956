"""The kernels of repair: ways are as short as there are, and routes together share nothing."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optmatch as om
from optmatch.solvers.reroutes.board import Board
from optmatch.solvers.reroutes.splice import FAR, LOSS_COST, SET_COST
from optmatch.testing.reroutes import draw_rack_state, draw_state

FABRICS: tuple[Any, ...] = (
    om.HexMesh(1, 2, ports=[0, 1, 3, 4, 7, 10]),
    om.HexMesh(2, 2, tx=3, rx=3),
    om.RackFabric((6, 2, 1), (2, 2, 1), fibres=2, ports_per_chip=2),
)


def board_of(fabric: Any, seed: int) -> Board:
    """Draw a state of a fabric."""
    rng = np.random.default_rng(seed)
    draw = draw_rack_state if fabric.graph is None else draw_state
    return Board(draw(fabric, rng))


def cheapest(board: Board, source: int, destination: int) -> int | None:
    """Find by networkx what the way between two units costs at least."""
    ways, graph = board.ways, nx.DiGraph()
    for node in range(len(ways.resource)):
        for arc in range(int(ways.first[node]), int(ways.first[node + 1])):
            head, cell = int(ways.head[arc]), int(ways.cell[arc])
            if board.free[ways.resource[head]] > 0:
                to_set = cell >= 0 and board.now[cell] != ways.state[arc]
                graph.add_edge(node, head, cost=int(board.cost[arc]) + SET_COST * to_set)
    ends = ways.leaving(source), ways.entering(destination)
    if not (graph.has_node(ends[0]) and graph.has_node(ends[1]) and nx.has_path(graph, *ends)):
        return None
    length: int = nx.shortest_path_length(graph, *ends, weight="cost")
    return length


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: type(fabric).__name__)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000))
def test_a_single_way_is_as_cheap_as_any(fabric: Any, seed: int) -> None:
    """Cells to be set first, then loss, then length; a way that turns back is not taken."""
    board = board_of(fabric, seed)
    units = board.ways.units
    for source, destination in [(0, units - 1), (1, 0), (units // 2, 1)]:
        best, found = cheapest(board, source, destination), board.route([(source, destination)])
        if found is None:
            continue
        sets, worst, length = found.levels
        assert best is not None
        assert worst * LOSS_COST + length >= best % SET_COST or sets > best // SET_COST
        used = board.ways.resource[found.paths[0]].tolist()
        assert len(set(used)) == len(used)
        if fabric.graph is None:
            assert worst * LOSS_COST + length == best


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: type(fabric).__name__)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000))
def test_routes_together_overdraw_nothing(fabric: Any, seed: int) -> None:
    """What is taken is free, and the board is as it was."""
    board = board_of(fabric, seed)
    before = board.free.copy()
    lifted = board.paths[:3]
    ends = [tuple(pair) for pair in board.ends[:3].tolist()]
    board.lift(lifted)
    found = board.route(ends)
    assert found is not None
    board.put(found.paths)
    assert (board.free >= 0).all()
    board.lift(found.paths)
    board.put(lifted)
    assert np.array_equal(board.free, before)
    assert board.sum_up(found.paths) == found.levels


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: type(fabric).__name__)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000))
def test_polished_routes_are_no_worse(fabric: Any, seed: int) -> None:
    """They overdraw nothing, more orders do not harm, and the board is as it was."""
    board = board_of(fabric, seed)
    lifted = board.paths[:4]
    ends = [tuple(pair) for pair in board.ends[:4].tolist()]
    board.lift(lifted)
    free = board.free.copy()
    plain = board.route(ends)
    assert plain is not None
    best = plain.levels
    for orders in (1, 4):
        found = board.route(ends, orders=orders)
        assert found is not None
        assert found.levels <= best
        assert [path[[0, -1]].tolist() for path in found.paths] == [
            [board.ways.leaving(a), board.ways.entering(b)] for a, b in ends
        ]
        assert board.sum_up(found.paths) == found.levels
        board.put(found.paths)
        assert (board.free >= 0).all()
        board.lift(found.paths)
        best = found.levels
    assert np.array_equal(board.free, free)
    work = board.work
    assert not (work.using.any() or work.history.any() or work.passing.any())
    assert (work.distance == FAR).all()


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: type(fabric).__name__)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000))
def test_only_who_stands_at_both_walls_can_open_a_way_alone(fabric: Any, seed: int) -> None:
    """Walls are just where there is no way; whoever opens one alone bounds both sides."""
    board = board_of(fabric, seed)
    for source, destination in combinations(range(min(6, board.ways.units)), 2):
        walls = board.walls(source, destination)
        assert bool(walls) == (cheapest(board, source, destination) is None)
        for path in board.paths if walls else ():
            board.lift([path])
            opened = cheapest(board, source, destination) is not None
            board.put([path])
            stands = all(wall[board.ways.resource[path]].any() for wall in walls)
            assert stands or not opened


def test_paths_say_which_cells_they_pass() -> None:
    """As the running light does."""
    mesh = om.HexMesh(2, 2, ports=8)
    state = draw_state(mesh, np.random.default_rng(3))
    board = Board(state)
    for path, way in zip(board.paths, state.ways, strict=True):
        cells = board.cells_of(path)
        assert [cell for cell, _ in cells] == [terminal // 4 for terminal in way]
        assert all(state.cell_states[cell] == wanted for cell, wanted in cells)  # type: ignore[index]

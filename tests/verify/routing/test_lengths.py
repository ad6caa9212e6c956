"""Shortest routes of light that goes one way: counted by columns, and only there."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.verify.routing import bounds
from optmatch.verify.routing.bounds import forward_lengths, shortest_route, shortest_walk
from tests.helpers import oracles
from tests.verify.rules.routing import TWO_CELLS, OneWay

FORWARD = om.Benes(4), om.SpankeBenes(5), om.Crossbar(3), om.Faulty(om.Benes(4), dead_cells=[2])


@pytest.mark.parametrize("fabric", FORWARD, ids=lambda fabric: fabric.type)
def test_columns_count_what_a_search_finds(fabric: Any) -> None:
    """Pair by pair; a beam that starts on the right is not for columns."""
    starts, ends = fabric.source_terminals, fabric.destination_terminals
    found = forward_lengths(fabric.graph, starts, ends)
    wanted = [[shortest_route(fabric.graph, a, b) for b in ends.tolist()] for a in starts.tolist()]
    assert found is not None and found.tolist() == wanted
    assert not bounds.route_lengths(fabric).flags.writeable  # it is kept
    for end in ends:
        assert forward_lengths(fabric.graph, np.append(starts, end), ends) is None


def test_light_that_may_turn_back_is_not_counted_by_columns() -> None:
    """Meshes join ends of a kind, and rings come round."""
    for mesh in (om.HexMesh(1, 2, ports=4), om.SquareMesh(3, 3, ports=2)):
        lefts = np.flatnonzero(np.arange(4 * mesh.n_cells) % 4 < 2).astype(np.int32)
        assert forward_lengths(mesh.graph, lefts[:1], mesh.source_terminals) is None
    back: Any = {"mate": [2, -1, 0, -1], "perimeter": [1, 3]}  # b1 leads to a1
    ring = om.fabrics.CellGraph(**back, ends=np.array([[[0.0, 0.0], [1.0, 0.0]]]))
    starts, ends = np.array([1], dtype=np.int32), np.array([3], dtype=np.int32)
    assert forward_lengths(ring, starts, ends) is None
    both: Any = {"mate": [-1, -1, -1, 7, -1, -1, -1, 3], "perimeter": [0, 1, 2, 4, 5, 6]}
    facing = om.fabrics.CellGraph(**both, ends=np.zeros((2, 2, 2)))  # b1 leads to b1
    assert forward_lengths(facing, starts, ends + 1) is None


@pytest.mark.parametrize("seed", range(10))
def test_walks_leave_by_no_closed_terminal(seed: int) -> None:
    """Their lengths are those of all that light reaches, cell by cell."""
    rng = np.random.default_rng(seed)
    graph = oracles.random_fabric(rng, 5).graph
    shut = frozenset(np.flatnonzero(rng.random(20) < 0.3).tolist())
    start, *ends = graph.perimeter.tolist()
    length, at = dict[int, int](), {start}
    while at:
        lefts = {int(left) for here in at for left in graph.exits[here]} - shut - set(length)
        length |= dict.fromkeys(lefts, max(length.values(), default=0) + 1)
        at = {int(graph.mate[left]) for left in lefts} - {-1}
    for end in ends:
        way = shortest_walk(graph, start, end, shut)
        assert (None if way is None else len(way)) == length.get(end)
        assert way is None or (way[-1] == end and not shut & {*way})


def test_the_first_port_tells_whether_light_goes_forward() -> None:
    """Cell 0 is passed by two circuits; another one comes from the right."""
    cells = om.fabrics.CellGraph(**TWO_CELLS)
    right: Any = om.Routing(OneWay((0, 6, 1), (2, 4, 3), cells), [0, 1, 2])
    left: Any = om.Routing(OneWay((6, 0, 1), (4, 2, 3), cells), [0, 1, 2])
    assert [bounds._count_passed_twice(problem) for problem in (right, left)] == [1, 0]


def test_light_goes_forward_only_from_ends_b_to_ends_a() -> None:
    """Two cells, joined once: every pair of their terminals."""
    for first, second in product(range(4), range(4, 8)):
        mate = np.full(8, -1, dtype=np.int32)
        mate[[first, second]] = second, first
        ends = np.flatnonzero(mate < 0).astype(np.int32)
        cells = om.fabrics.CellGraph(mate=mate, ends=TWO_CELLS["ends"], perimeter=ends)
        starts = np.array([0 if first else 1], dtype=np.int32)
        goes_forward = (first >= 2) != (second % 4 >= 2)
        lengths = forward_lengths(cells, starts, ends)
        assert (lengths is not None) == goes_forward, (first, second)

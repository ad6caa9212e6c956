"""Shortest routes, and cells that two circuits pass where light goes one way."""

from itertools import product
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.verify.routing import bounds
from optmatch.verify.routing.bounds import shortest_route, shortest_walk
from tests.helpers import oracles
from tests.verify.rules.routing import TWO_CELLS, OneWay

FABRICS = (
    om.Benes(4),
    om.SpankeBenes(5),
    om.Crossbar(3),
    om.Faulty(om.Benes(4), dead_cells=[2]),
    om.HexMesh(1, 2, ports=4),
    om.SquareMesh(2, 2),
    om.HexMesh(2, 2, tx=[0, 6, 4, 1], rx=[10, 15, 12, 8]),
)


@pytest.mark.parametrize("most", [1, 2**24])
@pytest.mark.parametrize("fabric", FABRICS, ids=lambda fabric: fabric.type)
def test_all_lengths_are_those_of_a_search_pair_by_pair(
    fabric: Any, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sources side by side, or one after the other where memory allows no more."""
    monkeypatch.setattr(bounds, "_MAX_ENTRIES", most)
    starts, ends = fabric.source_terminals, fabric.destination_terminals
    bounds.route_lengths.cache_clear()
    found = bounds.route_lengths(fabric)
    wanted = [[shortest_route(fabric.graph, a, b) for b in ends.tolist()] for a in starts.tolist()]
    wanted = np.where(starts[:, None] == ends, 0, wanted).tolist()
    assert found.tolist() == wanted
    assert not found.flags.writeable  # it is kept


def test_all_lengths_are_those_of_all_routes_in_any_wiring() -> None:
    for seed in range(200):
        fabric = oracles.random_fabric(np.random.default_rng(seed), 4)
        wanted = oracles.route_lengths(fabric.graph, fabric.graph.perimeter.tolist())
        assert np.array_equal(bounds.route_lengths(fabric), wanted)


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


def test_either_way_may_be_over_the_budget_of_bidirectional_ports() -> None:
    for loss_db in ([[0, 9], [1, 0]], [[0, 1], [9, 0]]):
        switch = om.IdealSwitch(2, bidirectional=True, loss_db=loss_db, budget_db=2.0)
        assert bounds.route_lengths(switch).tolist() == [[0, np.inf], [np.inf, 0]]


def test_light_that_goes_one_way_passes_cells_twice() -> None:
    """Cell 0 is passed by two circuits; another one may come from the right."""
    cells = om.fabrics.CellGraph(**TWO_CELLS)
    right: Any = om.Routing(OneWay((0, 6, 1), (2, 4, 3), cells), [0, 1, 2])
    left: Any = om.Routing(OneWay((6, 0, 1), (4, 2, 3), cells), [0, 1, 2])
    assert [bounds._count_passed_twice(problem) for problem in (right, left)] == [1, 1]
    # One circuit alone passes no cell twice, whichever side of its cell it enters.
    alone: Any = [om.Routing(OneWay((side,), (2,), cells), [0]) for side in (0, 1)]
    assert [bounds._count_passed_twice(problem) for problem in alone] == [0, 0]


def test_light_goes_one_way_only_from_ends_b_to_ends_a() -> None:
    """Two cells, joined once: every pair of their terminals."""
    for first, second in product(range(4), range(4, 8)):
        mate = np.full(8, -1, dtype=np.int32)
        mate[[first, second]] = second, first
        ends = np.flatnonzero(mate < 0).astype(np.int32)
        cells = om.fabrics.CellGraph(mate=mate, ends=TWO_CELLS["ends"], perimeter=ends)
        starts = tuple(end for end in ends.tolist() if end % 4 < 2)
        outs = tuple(end for end in ends.tolist() if end % 4 >= 2)[: len(starts)]
        starts = starts[: len(outs)]
        problem: Any = om.Routing(OneWay(starts, outs, cells), list(range(len(starts))))
        goes_one_way = (first >= 2) != (second % 4 >= 2)
        lit = {*starts}
        for cell in (0, 1, 0):
            if {4 * cell, 4 * cell + 1} <= lit:
                lit |= {int(mate[4 * cell + 2]), int(mate[4 * cell + 3])}
        twice = ({0, 1} <= lit) + ({4, 5} <= lit)
        expected = twice if goes_one_way else 0
        assert bounds._count_passed_twice(problem) == expected, (first, second)

"""Feed-forward fabrics have the cells they must, and hold every permutation, left to right."""

import math
import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.fabrics import FABRICS, FeedForward
from optmatch.fabrics.feedforward.networks import ColumnBuilder
from optmatch.fabrics.light import trace
from optmatch.io import dumps, loads
from optmatch.solvers.feedforward import router
from tests.helpers.command import call

CLASSES: list[Any] = [cls for cls in FABRICS.values() if issubclass(cls, FeedForward)]
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.type)


def outputs(fabric: FeedForward, states: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Trace light from every input: the output it comes to, -1 for another terminal."""
    graph = fabric.graph
    place = np.full(len(graph.mate), -1)
    place[fabric.destination_terminals] = np.arange(fabric.n)
    light = trace(graph, states, np.tile(fabric.source_terminals, (len(states), 1)))
    assert (light.entered % 4 < 2).all()
    assert (light.left % 4 >= 2).all()
    found: np.ndarray[Any, Any] = place[light.arrived]
    return found


def column_of(fabric: FeedForward) -> np.ndarray[Any, Any]:
    """Tell the column of each cell by where it is drawn."""
    return np.unique(fabric.graph.ends[:, 0, 0], return_inverse=True)[1]


def test_every_feed_forward_fabric_has_an_exact_router() -> None:
    assert len(CLASSES) >= 8
    assert {cls.type for cls in CLASSES} == router._ROUTERS.keys()


@pytest.mark.parametrize(("n", "cells"), [(8, 20), (16, 56), (32, 144), (64, 352), (128, 832)])
def test_the_cells_of_published_benes_networks(n: int, cells: int) -> None:
    fabric = om.Benes(n)
    levels = n.bit_length() - 1
    assert (fabric.n_cells, fabric.n_stages) == (cells, 2 * levels - 1)
    if n <= 32:
        assert (fabric.route_cells() == 2 * levels - 1).all()
    dilated = om.DilatedBenes(n)
    assert (dilated.n_cells, dilated.n_stages) == (2 * n * levels, 2 * levels)


@pytest.mark.parametrize("n", [2, 3, 5, 7, 12, 33, 100])
def test_benes_networks_of_any_size(n: int) -> None:

    def cells(size: int) -> int:
        if size <= 2:
            return size - 1
        return 2 * (size // 2) + cells(size // 2) + cells(size - size // 2)

    fabric = om.Benes(n)
    assert fabric.n_cells == cells(n) >= math.log2(math.factorial(n))
    assert fabric.n_stages == 2 * math.ceil(math.log2(n)) - 1
    assert om.DilatedBenes(n).n_stages == 2 * math.ceil(math.log2(n))


@pytest.mark.parametrize("n", [2, 3, 5, 8, 32])
def test_the_cells_of_the_others(n: int) -> None:
    half, full = n * (n - 1) // 2, n * n
    levels = math.ceil(math.log2(n))
    expected: dict[Any, tuple[int, int]] = {
        om.SpankeBenes: (half, n if n > 2 else 1),
        om.Clements: (half, n if n > 2 else 1),
        om.Reck: (half, 2 * n - 3),
        om.Crossbar: (full, 2 * n - 1),
        om.Piloss: (full, n),
        om.SwitchAndSelect: (2 * n * (n - 1), 2 * levels),
    }
    for cls, counts in expected.items():
        fabric = cls(n)
        assert (fabric.n_cells, fabric.n_stages) == counts, cls
    i, j = np.indices((n, n))
    assert np.array_equal(om.Crossbar(n).route_cells(), n - i + j)
    assert (om.Piloss(n).route_cells() == n).all()
    assert om.SwitchAndSelect(n).route_cells().max() == 2 * levels


@each_class
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 9, 16])
def test_light_goes_from_left_to_right(cls: Any, n: int) -> None:
    fabric = cls(n)
    graph, column = fabric.graph, column_of(fabric)
    assert fabric.dead_pairs() == []
    outputs(fabric, np.random.default_rng(n).integers(0, 2, (50, fabric.n_cells)))
    assert column.max() + 1 == fabric.n_stages
    joined = np.flatnonzero(graph.mate >= 0)
    assert (joined % 4 // 2 != graph.mate[joined] % 4 // 2).all()
    right = joined[joined % 4 >= 2]
    assert (column[right // 4] < column[graph.mate[right] // 4]).all()
    assert np.array_equal(graph.perimeter[:n], fabric.source_terminals)
    assert np.array_equal(graph.perimeter[n : 2 * n], fabric.destination_terminals)
    assert (fabric.source_terminals % 4 < 2).all()
    assert (fabric.destination_terminals % 4 >= 2).all()


@each_class
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 11])
def test_cells_are_drawn_apart(cls: Any, n: int) -> None:
    ends = cls(n).graph.ends
    assert np.allclose(ends[:, 1] - ends[:, 0], [1.0, 0.0])
    for x in np.unique(ends[:, 0, 0]):
        heights = np.sort(ends[ends[:, 0, 0] == x, 0, 1])
        assert (np.diff(heights) >= 0.99).all()
    assert (np.diff(np.unique(ends[:, 0, 0])) >= 1.49).all()


def lit(fabric: FeedForward, terminals: np.ndarray[Any, Any]) -> list[set[int]]:
    """List the cells that light from each terminal passes if all cells are in cross."""
    states = np.ones((len(terminals), fabric.n_cells), dtype=np.int8)
    light = trace(fabric.graph, states, terminals[:, None])
    return [set((light.left[light.slot == k] // 4).tolist()) for k in range(len(terminals))]


@pytest.mark.parametrize("n", [2, 4])
def test_the_ring_of_piloss_is_strictly_non_blocking(n: int) -> None:
    """Row of an input and column of an output meet in exactly one cell, in n different ones."""
    fabric = om.Piloss(n)
    rows = lit(fabric, fabric.source_terminals)
    columns = lit(fabric, fabric.destination_terminals)
    met = [row & column for row, column in product(rows, columns)]
    assert [len(cells) for cells in met] == [1] * n * n
    assert set().union(*met) == set(range(n * n))


@each_class
def test_fabrics_are_values_in_files_and_commands(cls: Any) -> None:
    fabric = cls(5)
    assert pickle.loads(pickle.dumps(fabric)) == fabric == cls(np.int64(5)) != cls(4)
    problem = om.AllToAll(fabric)
    assert loads(dumps(problem)) == problem
    arguments = ["generate", "all-to-all", "--fabric", cls.type, "--size", "5"]
    done = call(*arguments)
    assert loads(done.stdout) == problem
    assert fabric.describe_port(3).startswith("port 3 (in 3>out 3, from cell ")
    assert fabric.blocking in ("rearrangeable", "wide-sense", "strict-sense")


@each_class
def test_a_wrong_size_is_named(cls: Any) -> None:
    for n, message in ((1, "n = 1: must be >= 2"), (2.5, "n = 2.5: not a whole"), (True, "True")):
        with pytest.raises(om.InputError, match=message):
            cls(n)


def test_the_same_cells_are_two_fabrics() -> None:
    clements, planar = om.Clements(6), om.SpankeBenes(6)
    assert clements.graph == planar.graph
    assert clements != planar


def test_a_cell_stands_to_the_right_of_what_leads_to_it() -> None:
    builder = ColumnBuilder(2)
    near, _ = builder.place(~0, None, line=0)
    far, _ = builder.place(~1, None, line=20, column=2)
    wired = builder.finish(builder.place(near, far, line=0))
    assert wired.count == 4
    assert wired.sources.tolist() == [0, 4]
    gaps = np.diff(np.unique(wired.graph.ends[:, 0, 0])) - 1
    assert gaps[-1] > gaps[0] > 0

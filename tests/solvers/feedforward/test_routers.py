"""Exact routers of feed-forward fabrics: light arrives, cells without light are free."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

import optmatch as om
from optmatch.fabrics import FABRICS, FeedForward
from optmatch.fabrics.light import Light, trace
from optmatch.solvers.feedforward.direct import route_by_sorting
from optmatch.solvers.feedforward.loop_search import choose_loops
from optmatch.solvers.feedforward.looping import route_dilated, route_loops
from optmatch.solvers.feedforward.router import count_cells, route_batch
from tests.helpers.looping import loop_in_python
from tests.helpers.modes import PLAIN, SOAK, examples

pytestmark = pytest.mark.kernels

LARGEST = 4 if PLAIN else 8 if SOAK else 7
FEW = settings(max_examples=examples(80, plain=20), deadline=None)
CLASSES: list[Any] = [cls for cls in FABRICS.values() if issubclass(cls, FeedForward)]
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.type)


def follow(fabric: FeedForward, matchings: Any, states: Any) -> Light:
    """Trace the light of all circuits."""
    starts = np.where(np.asarray(matchings) < 0, -1, fabric.source_terminals)
    return trace(fabric.graph, states, starts)


def carried(fabric: FeedForward, matchings: Any, states: Any) -> NDArray[np.bool_]:
    """Tell which matchings are carried by their states, with all dark cells free."""
    wanted = np.where(matchings < 0, -1, fabric.destination_terminals[matchings])
    light = follow(fabric, matchings, states)
    lit = np.zeros(states.shape, dtype=bool)
    lit[light.slot, light.entered // 4] = True
    right: NDArray[np.bool_] = (light.arrived == wanted).all(axis=1)
    right &= (lit == (states >= 0)).all(axis=1)
    return right


def partial(draw: Any, n: int) -> list[int]:
    """Draw a matching of n ports, some of them idle."""
    order = draw(st.permutations(range(n)))
    lit = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return [o if used else -1 for o, used in zip(order, lit, strict=True)]


@st.composite
def matchings(draw: st.DrawFn, most: int = 12) -> list[int]:
    """Draw a size and a matching."""
    return partial(draw, draw(st.integers(2, most)))


def batch(*rows: list[int]) -> NDArray[np.int32]:
    """Make a batch of matchings."""
    return np.array(rows, dtype=np.int32)


@each_class
@pytest.mark.parametrize("n", range(2, LARGEST + 1))
def test_every_permutation_is_routed(cls: Any, n: int) -> None:
    fabric = cls(n)
    everything = batch(*map(list, permutations(range(n))))
    for rows in np.array_split(everything, -(-len(everything) // 8192)):
        assert carried(fabric, rows, route_batch(fabric, rows)).all()


@each_class
@FEW
@given(data=st.data())
def test_partial_matchings_leave_cells_free(cls: Any, data: st.DataObject) -> None:
    """Idle ports send no light, and what no light passes is stated free."""
    rows = batch(data.draw(matchings()))
    fabric = cls(rows.shape[1])
    assert carried(fabric, rows, route_batch(fabric, rows)).all()


@pytest.mark.parametrize("n", [3, 5, 7, 12, 33, 100, 300])
def test_benes_networks_of_any_size(n: int) -> None:
    if PLAIN and n > 40:
        pytest.skip("too slow as plain Python")
    rng = np.random.default_rng(n)
    full = rng.permutation(n).astype(np.int32)
    for matching in (full, np.where(rng.random(n) < 0.5, full, -1)):
        problem = om.Routing(om.Benes(n), matching)
        solution = om.solve(problem, seed=0)
        assert solution.method == "constructive"
        assert om.verify(problem, solution).ok


@FEW
@given(matching=matchings(most=40))
def test_looping_agrees_with_plain_python(matching: list[int]) -> None:
    assert route_loops(batch(matching))[0].tolist() == loop_in_python(matching)


def all_states(fabric: FeedForward, matching: list[int]) -> NDArray[np.int8]:
    """List all states that carry a matching, dark cells free; if dilated, without sharing."""
    bits = np.arange(2**fabric.n_cells)[:, None] >> np.arange(fabric.n_cells) & 1
    rows = np.tile(batch(matching), (len(bits), 1))
    light = follow(fabric, rows, bits)
    states = np.full(bits.shape, -1, dtype=np.int8)
    cells = light.entered // 4
    states[light.slot, cells] = bits[light.slot, cells]
    wanted = np.where(rows < 0, -1, fabric.destination_terminals[rows])
    right = (light.arrived == wanted).all(axis=1)
    if isinstance(fabric, om.DilatedBenes):
        users = np.zeros(bits.shape, dtype=np.int64)
        np.add.at(users, (light.slot, cells), 1)
        right &= (users <= 1).all(axis=1)
    return np.unique(states[right], axis=0)


def costs(
    fabric: FeedForward, matching: list[int], states: Any, cell_cost: Any
) -> NDArray[np.int64]:
    """``costs[k, source]``: what each circuit costs, counted along its light."""
    light = follow(fabric, np.tile(batch(matching), (len(states), 1)), states)
    cells = light.entered // 4
    users = np.zeros(states.shape, dtype=np.int64)
    np.add.at(users, (light.slot, cells), 1)
    passed = cell_cost[cells, states[light.slot, cells], users[light.slot, cells] - 1]
    found = np.zeros((len(states), fabric.n), dtype=np.int64)
    np.add.at(found, (light.slot, light.beam), passed)
    return found


@FEW
@given(data=st.data(), worst=st.booleans(), dilated=st.booleans())
def test_the_best_directions(data: st.DataObject, worst: bool, dilated: bool) -> None:
    n = data.draw(st.integers(2, 3 if dilated else 6 if not PLAIN else 5))
    fabric = om.DilatedBenes(n) if dilated else om.Benes(n)
    matching = partial(data.draw, n)
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    cell_cost = rng.integers(0, data.draw(st.sampled_from([2, 100])), (fabric.n_cells, 2, 2))
    found = choose_loops(batch(matching), cell_cost, dilated=dilated, worst=worst)
    assert found.exact.all()
    assert carried(fabric, batch(matching), found.states).all()

    def total(states: Any) -> NDArray[np.int64]:
        each = costs(fabric, matching, states, cell_cost)
        result: NDArray[np.int64] = each.max(axis=1) if worst else each.sum(axis=1)
        return result

    assert total(found.states) == found.cost
    assert found.cost == total(all_states(fabric, matching)).min()


def test_a_search_cut_short_says_so() -> None:
    rng = np.random.default_rng(0)
    for n, visits in ((16, 1), (100, 5)):
        fabric, rows = om.Benes(n), batch(rng.permutation(n).tolist())
        cell_cost = rng.integers(0, 9, (fabric.n_cells, 2, 2))
        found = choose_loops(rows, cell_cost, visits=visits)
        assert carried(fabric, rows, found.states).all()
        assert not found.exact.any()
        assert found.cost == costs(fabric, rows[0].tolist(), found.states, cell_cost).sum()


@pytest.mark.parametrize("cls", [om.SpankeBenes, om.Reck], ids=lambda cls: cls.type)
@FEW
@given(data=st.data())
def test_sorting_crosses_the_fewest_cells(cls: Any, data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 4 if PLAIN else 5))
    matching = partial(data.draw, n)
    states = route_by_sorting(batch(matching), triangle=cls is om.Reck)
    fewest = (all_states(cls(n), matching) == 1).sum(axis=1).min()
    assert (states == 1).sum() == fewest


@pytest.mark.parametrize("cls", [om.Crossbar, om.Piloss, om.SwitchAndSelect])
@FEW
@given(data=st.data())
def test_circuits_in_use_stay_where_they_are(cls: Any, data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 9))
    after = partial(data.draw, n)
    gone = data.draw(st.integers(0, n - 1))
    before = [-1 if k == gone else o for k, o in enumerate(after)]
    old, new = route_batch(cls(n), [before, after])
    assert (new[old >= 0] == old[old >= 0]).all()


@FEW
@given(matching=matchings(most=20))
def test_dilated_networks_have_one_circuit_in_a_cell(matching: list[int]) -> None:
    fabric, rows = om.DilatedBenes(len(matching)), batch(matching)
    light = follow(fabric, rows, route_dilated(rows))
    assert len(np.unique(light.entered // 4)) == len(light.entered)


@FEW
@given(data=st.data(), n=st.integers(2, 7), dilated=st.booleans())
def test_few_toggles(data: st.DataObject, n: int, dilated: bool) -> None:
    fabric = om.DilatedBenes(n) if dilated else om.Benes(n)
    rows = batch(*(partial(data.draw, n) for _ in range(3)))
    states = route_batch(fabric, rows, prefer="toggles")
    assert carried(fabric, rows, states).all()
    again = route_batch(fabric, rows[-1:], prefer="toggles", previous=states[-1])
    assert np.array_equal(again[0], states[-1])
    plain = route_batch(fabric, rows[1:2])[0]

    def toggles(new: NDArray[np.int8]) -> int:
        return int(((new >= 0) & (states[0] >= 0) & (new != states[0])).sum())

    assert toggles(states[1]) <= toggles(plain)
    if not dilated and n <= 5:
        assert toggles(states[1]) == min(map(toggles, all_states(fabric, rows[1].tolist())))


@FEW
@given(matching=matchings(most=6))
def test_little_loss_and_little_crosstalk(matching: list[int]) -> None:
    fabric, rows = om.Benes(len(matching)), batch(matching)
    if PLAIN and fabric.n > 5:
        return
    options = all_states(fabric, matching)
    losses = {"bar_loss_db": 0.9, "cross_loss_db": 0.4}
    states = route_batch(fabric, rows, prefer="loss", **losses)
    cell_cost = np.broadcast_to(np.array([[9], [4]]), (fabric.n_cells, 2, 2))
    worst = costs(fabric, matching, options, cell_cost).max(axis=1).min()
    assert costs(fabric, matching, states, cell_cost).max() == worst
    shared = np.broadcast_to(np.array([0, 1]), (fabric.n_cells, 2, 2))
    states = route_batch(fabric, rows, prefer="crosstalk")
    fewest = costs(fabric, matching, options, shared).sum(axis=1).min()
    assert costs(fabric, matching, states, shared).sum() == fewest


@each_class
def test_preferences_are_taken_everywhere(cls: Any) -> None:
    rows = batch([2, -1, 0, 1], [3, 2, 1, 0])
    for prefer in ("toggles", "loss", "crosstalk"):
        states = route_batch(cls(4), rows, prefer=prefer)
        assert carried(cls(4), rows, states).all()


@each_class
def test_cells_are_counted_along_routes(cls: Any) -> None:
    fabric, rows = cls(7), batch([3, -1, 0, 6, 5, 1, 2])
    states = route_batch(fabric, rows)
    passed, crossed = count_cells(fabric, rows, states)
    light = follow(fabric, rows, states)
    cells = np.bincount(light.beam, minlength=7)
    crosses = np.bincount(light.beam[states[0, light.entered // 4] == 1], minlength=7)
    assert np.array_equal(passed[0], cells)
    assert np.array_equal(crossed[0], crosses)


def test_bad_input_is_named() -> None:
    fabric = om.Benes(4)
    for rows, message in (
        ([[0, 1, 2]], "matchings of 3 ports, a fabric of 4"),
        ([[0, 1, 2, 3], [0, 0, -1, -1]], r"matchings\[1\]: sources 0 and 1 share destination 0"),
        ([[0, 1, 2, 4]], r"matchings\[0, 3\] = 4: ports are 0 .. 3"),
        ([[0.5, 1, 2, 3]], "not a whole number of 32 bits"),
    ):
        with pytest.raises(om.InputError, match=message):
            route_batch(fabric, rows)
    with pytest.raises(om.InputError, match="prefer = 'speed': one of toggles, loss"):
        route_batch(fabric, [[0, 1, 2, 3]], prefer="speed")  # type: ignore[arg-type]
    for previous in ([0, 1], [2] * 6):
        with pytest.raises(om.InputError, match="previous: not -1, 0 or 1 for each of 6 cells"):
            route_batch(fabric, [[0, 1, 2, 3]], prefer="toggles", previous=previous)
    assert route_batch(fabric, np.empty((0, 4), dtype=np.int32)).shape == (0, 6)

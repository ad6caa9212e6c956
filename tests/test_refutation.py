"""The search for plans of a given number of slots: against all there are, and its programmes."""

from __future__ import annotations

from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from optmatch.problems import traffic
from optmatch.solvers.demands import partitions, programmes
from optmatch.solvers.demands.board import lay
from optmatch.solvers.demands.partitions import EXHAUSTED, FOUND, FULL
from optmatch.solvers.demands.plans import Plan, serve
from optmatch.solvers.demands.refutation import first_lines, fits, quickest_lines, seek

KERNELS: Any = programmes  # which have no types
SEARCH: Any = partitions.search
Matrix = tuple[tuple[int, ...], ...]
Constraints = list[tuple[int, int]]


def shortest_sum(demand: Matrix, slots: int, shortest: int) -> int | None:
    """Try all permutations with all durations, slot after slot: the least sum of so many slots."""
    n = len(demand)
    durations = range(shortest, max(shortest, *map(max, demand)) + 1)

    @cache
    def least(left: Matrix, more: int) -> int | None:
        if more == 0:
            return None if any(map(any, left)) else 0
        found = None
        for matching, ticks in product(permutations(range(n)), durations):
            rows = [list(row) for row in left]
            for i, j in enumerate(matching):
                rows[i][j] = max(0, rows[i][j] - ticks)
            rest = least(tuple(map(tuple, rows)), more - 1)
            if rest is not None and (found is None or ticks + rest < found):
                found = ticks + rest
        return found

    return least(demand, slots)


def even_demand(n: int, *, seed: int, weight: int) -> NDArray[np.int64]:
    """Draw a sum of 2n permutations."""
    drawn = traffic.permutations(n, np.random.default_rng(seed), count=2 * n, bytes=weight)
    return np.asarray(drawn).astype(np.int64)


def last_plan(demand: NDArray[np.int64], slots: int, shortest: int, most: int) -> Plan | None:
    """Return the shortest plan of a search, after a look at every one."""
    best = None
    for _, plan in seek(demand, slots, shortest, most, first_lines(demand), portion=7):
        if plan is not None:
            assert (serve(plan) >= demand).all()
            assert plan.ticks.min() >= shortest
            assert plan.ticks.sum() <= most
            best, most = plan, int(plan.ticks.sum()) - 1
    return best


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=9, max_size=9),
    st.integers(1, 4),
    st.integers(1, 2),
)
def test_nothing_shorter_is_there(entries: list[int], slots: int, shortest: int) -> None:
    """The last plan found has the least sum that any plan of so many slots has."""
    demand = np.array(entries).reshape(3, 3)
    if not demand.any():
        demand[0, 1] = 1
    least = shortest_sum(tuple(map(tuple, demand.tolist())), slots, shortest)
    plan = last_plan(demand, slots, shortest, most=40)
    assert (None if plan is None else int(plan.ticks.sum())) == least


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 5))
def test_a_hidden_plan_is_found(seed: int, slots: int) -> None:
    """A sum of random permutations is served in the time of their weights, or sooner."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 60, size=slots)
    demand = np.zeros((5, 5), dtype=np.int64)
    for weight in weights:
        demand[np.arange(5), rng.permutation(5)] += weight
    assert last_plan(demand, slots, 1, int(weights.sum())) is not None


@pytest.mark.parametrize("pair", [(0, 1), (2, 0), (4, 3), (5, 7)])
def test_lines_to_begin_with_do_not_matter(pair: tuple[int, int]) -> None:
    """Rows or columns, even or not: the least sum is the same."""
    demand = even_demand(4, seed=3, weight=30)
    most = int(demand[0].sum()) + 40
    found = [
        [int(plan.ticks.sum()) for _, plan in seek(demand, 5, 1, most, first) if plan][-1]
        for first in (pair, first_lines(demand))
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_make_up_the_whole(parts: int) -> None:
    """The best of all parts is the best; and some part is less work than the whole."""
    demand = even_demand(4, seed=3, weight=30)
    most = int(demand[0].sum()) + 40
    first = first_lines(demand)
    steps = [
        list(seek(demand, 5, 1, most, first, part=part, parts=parts)) for part in range(parts)
    ]
    whole = list(seek(demand, 5, 1, most, first))
    shortest = min(int(plan.ticks.sum()) for part in steps for _, plan in part if plan)
    assert shortest == min(int(plan.ticks.sum()) for _, plan in whole if plan)
    least = shortest - 1
    whole = list(seek(demand, 5, 1, least, first))
    work = []
    for part in range(parts):
        some = list(seek(demand, 5, 1, least, first, part=part, parts=parts))
        assert not any(plan for _, plan in some)
        work.append(sum(solved for solved, _ in some))
    assert min(work) < sum(solved for solved, _ in whole)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 3), st.data())
def test_parts_with_limits_of_their_own_miss_nothing(
    seed: int, parts: int, data: st.DataObject
) -> None:
    """Each part begins with another limit, and lowers it as it finds plans: none falls between."""
    demand = even_demand(3, seed=seed, weight=20)
    first = first_lines(demand)
    loose = int(demand[0].sum()) + 30
    plans = [int(plan.ticks.sum()) for _, plan in seek(demand, 4, 1, loose, first) if plan]
    least = min(plans, default=loose)
    found = []
    for part in range(parts):
        most = data.draw(st.integers(least, loose))
        steps = seek(demand, 4, 1, most, first, part=part, parts=parts)
        found += [int(plan.ticks.sum()) for _, plan in steps if plan]
    assert min(found, default=None) == min(plans, default=None)


def test_quickest_lines_take_fewest_programmes() -> None:
    """Of all pairs, tried again one by one, none ends sooner."""
    demand = even_demand(4, seed=5, weight=99)
    most = int(demand[0].sum()) + 4
    first = quickest_lines(demand, 5, 1, most, 10**6)
    assert first is not None
    counts = {
        pair: sum(solved for solved, _ in seek(demand, 5, 1, most, pair))
        for pair in [*permutations(range(4), 2), *permutations(range(4, 8), 2)]
    }
    assert counts[first] == min(counts.values())
    assert quickest_lines(demand, 5, 1, most, 1) is None


def test_a_pool_that_runs_over_is_no_proof() -> None:
    """Without room for all ways the search says so, since it may have missed a plan."""
    demand = np.full((4, 4), 5, dtype=np.int64)
    state, board = lay(demand, 4, 1)
    board = board._replace(pool=np.zeros((3, 3), dtype=np.int64))
    board.first[:] = (0, 1)
    assert SEARCH(state, board, 20.5, 10**6) == FULL
    state, board = lay(demand, 4, 1)
    board.first[:] = (0, 1)
    assert SEARCH(state, board, 20.5, 10**6) == FOUND
    state, board = lay(demand, 4, 1)
    board.first[:] = (0, 1)
    assert SEARCH(state, board, 19.5, 10**6) == EXHAUSTED


def test_what_has_no_room_is_left_out() -> None:
    """More slots than bits, or sums that doubles do not count exactly enough."""
    assert fits(np.full((3, 3), 5), 4)
    assert not fits(np.full((3, 3), 5), 17)
    assert not fits(np.full((3, 3), 10**8), 4)
    assert not fits(np.full((1, 1), 5), 1)


def solve(slots: int, shortest: int, constraints: Constraints) -> Any:
    """Solve by HiGHS what the kernels solve: the least sum of durations."""
    rows = [[-(mask >> slot & 1) for slot in range(slots)] for mask, _ in constraints]
    needs = [-need for _, need in constraints]
    return linprog(np.ones(slots), A_ub=rows, b_ub=needs, bounds=(shortest, None))


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda slots: st.tuples(
            st.just(slots),
            st.integers(0, 3),
            st.lists(
                st.tuples(st.integers(1, 2**slots - 1), st.integers(0, 50)), min_size=1, max_size=9
            ),
        )
    )
)
def test_programmes_agree_with_highs(drawn: tuple[int, int, Constraints]) -> None:
    """Constraint by constraint: the least sum, durations that keep them all, a bound before."""
    slots, shortest, constraints = drawn
    p = KERNELS.stack(slots, shortest, levels=2, rows=12)
    for number, (mask, need) in enumerate(constraints, start=1):
        KERNELS.express(p, 0, mask, float(need), 0)
        bound = KERNELS.least_total(p, 0, 0)
        KERNELS.add(p, 0, 0, -1)
        assert KERNELS.settle(p, 0, 1e9)
        ticks = [KERNELS.duration(p, 0, slot) for slot in range(slots)]
        assert sum(ticks) == pytest.approx(solve(slots, shortest, constraints[:number]).fun)
        assert sum(ticks) == pytest.approx(p.table[0, 0, -1])
        assert bound <= sum(ticks) + 1e-6
        assert min(ticks) >= shortest - 1e-6
        for held, least in constraints[:number]:
            assert sum(t for slot, t in enumerate(ticks) if held >> slot & 1) >= least - 1e-6
    KERNELS.duplicate(p, 0, 1)
    assert not KERNELS.settle(p, 1, p.table[0, 0, -1] - 1.0)


def test_only_loose_constraints_are_dropped() -> None:
    """A tight one has no row of its own, and stays in force."""
    p = KERNELS.stack(slots=2, shortest=1, levels=1, rows=6)
    for mask, need in ((0b01, 9.0), (0b11, 3.0)):
        KERNELS.express(p, 0, mask, need, 0)
        KERNELS.add(p, 0, 0, -5)
        assert KERNELS.settle(p, 0, 100.0)
    KERNELS.drop(p, 0, -5)
    KERNELS.express(p, 0, 0b10, 4.0, 0)
    KERNELS.add(p, 0, 0, -1)
    assert KERNELS.settle(p, 0, 100.0)
    assert (KERNELS.duration(p, 0, 0), KERNELS.duration(p, 0, 1)) == (9.0, 4.0)

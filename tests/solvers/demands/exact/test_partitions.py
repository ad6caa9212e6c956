"""The search for plans of a given number of slots, against all there are; its linear programs."""

from __future__ import annotations

from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from optmatch.problems.demands import traffic
from optmatch.solvers.demands.exact import dual_simplex, partitions, slot_sets, state
from optmatch.solvers.demands.exact.enumeration import choose_line, fits, list_plans
from optmatch.solvers.demands.exact.partitions import EXHAUSTED, FOUND, FULL, PAUSED
from optmatch.solvers.demands.plans import Plan, serve
from tests.helpers.modes import examples

pytestmark = pytest.mark.kernels

KERNELS: Any = dual_simplex  # which have no types
SETS: Any = slot_sets
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
    for _, plan in list_plans(demand, slots, shortest, most, choose_line(demand), portion=7):
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


@pytest.mark.parametrize("line", [0, 3, 4, 7])
def test_the_line_to_begin_with_does_not_matter(line: int) -> None:
    """Rows or columns, even or not: the least sum is the same."""
    demand = even_demand(4, seed=3, weight=30)
    most = int(demand[0].sum()) + 40
    found = [
        [int(plan.ticks.sum()) for _, plan in list_plans(demand, 5, 1, most, first) if plan][-1]
        for first in (line, choose_line(demand))
    ]
    assert found[0] == found[1]


def begin(demand: NDArray[np.int64], slots: int, first: int) -> tuple[Any, Any]:
    """Begin a search."""
    return state.begin(demand, slots, 1, first)


def test_a_pool_that_runs_over_is_no_proof() -> None:
    """Without room for all ways the search says so, since it may have missed a plan."""
    demand = np.full((4, 4), 5, dtype=np.int64)
    programs, found = begin(demand, 4, 0)
    small = found._replace(pool=np.zeros((0, 3), dtype=np.int64))
    assert SEARCH(programs, small, 20.5, 9) == FULL
    assert SEARCH(*begin(demand, 4, 0), 20.5, 10**6) == FOUND
    assert SEARCH(*begin(demand, 4, 0), 19.5, 10**6) == EXHAUSTED


def test_a_portion_ends_where_sets_are_many() -> None:
    """Few linear programs may take long: a portion of however many ends in time for the clock."""
    demand = even_demand(7, seed=0, weight=200)
    p, board = begin(demand, 11, 0)
    assert SEARCH(p, board, float(demand[0].sum() + 60), 10**9) == PAUSED
    assert p.solved[0] < 10**6


def sets_by_highs(board: Any, kept: Constraints, most: int, i: int, j: int) -> set[int]:
    """Try all sets of slots: those that serve an entry and leave enough to its row and column."""
    slots, size = len(board.seat), int(board.demand[i, j])
    found = set()
    for mask in range(1, 1 << slots):
        asked, possible = [*kept, (mask, size)], True
        for line in (i, len(board.demand) + j):
            free = int(board.free[line])
            others = free & ~mask
            possible &= not mask & ~free
            possible &= others.bit_count() >= board.left[line] - 1
            possible &= bool(board.left[line] > 1) or not others
            asked.append((others, int(board.rest[line]) - size))
        if possible:
            least = solve(slots, 1, [(some, need) for some, need in asked if need > 0])
            if least.status == 0 and least.fun <= most:
                found.add(mask)
    return found


def in_order(board: Any, mask: int, common: int) -> bool:
    """Tell whether a set takes the first of slots that serve the same so far."""
    rows = [tuple(row) for row in board.seat.tolist()]
    free = [slot for slot in range(len(rows)) if common >> slot & 1]
    return not any(
        rows[a] == rows[b] and not mask >> a & 1 and mask >> b & 1
        for a, b in product(free, free)
        if a < b
    )


@settings(max_examples=examples(12, plain=12), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(0, 40))
def test_no_set_that_serves_is_missed(seed: int, programs: int, spare: int) -> None:
    """Somewhere in a search, every set that durations allow for an entry is listed."""
    demand = even_demand(4, seed=seed, weight=20)
    most = int(demand[0].sum()) + spare
    p, board = begin(demand, 5, choose_line(demand))
    if SEARCH(p, board, float(most), programs) != PAUSED:
        return
    level = int(board.progress[1])
    SETS.note_twins(board.seat, board.twins)
    decided: Constraints = []
    for i, j in np.argwhere(~board.open):
        held = [slot for slot in range(5) if board.seat[slot, i] == j]
        decided.append((sum(1 << slot for slot in held), int(demand[i, j])))
    for line in range(8):
        decided.append((int(board.free[line]), int(board.rest[line])))
    kept = [(mask, need) for mask, need in decided if need > 0]
    for i, j in np.argwhere(board.open):
        many = SETS.list_sets(p, board, level, i, j, float(most) + 1e-6)
        listed = set(board.sets[board.number[i, j], :many].tolist())
        common = int(board.free[i] & board.free[4 + j])
        every = sets_by_highs(board, kept, most, i, j)
        assert {mask for mask in every if in_order(board, mask, common)} <= listed


def test_what_has_no_room_is_left_out() -> None:
    """Too many sets of slots, or sums that doubles do not count exactly enough."""
    assert fits(np.full((3, 3), 5), 4)
    assert not fits(np.full((3, 3), 5), 14)
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
def test_programs_agree_with_highs(drawn: tuple[int, int, Constraints]) -> None:
    """Constraint by constraint: the least sum, durations that keep them all, a bound before."""
    slots, shortest, constraints = drawn
    p = KERNELS.make_programs(slots, shortest, levels=2, rows=12)
    for number, (mask, need) in enumerate(constraints, start=1):
        KERNELS.express(p, 0, mask, float(need))
        bound = KERNELS.least_total(p, 0)
        KERNELS.add(p, 0)
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

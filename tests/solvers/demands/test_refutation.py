"""The search for plans of a given number of slots: against all there are, and its programmes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from optmatch.model import Limits
from optmatch.problems.demands import traffic
from optmatch.solvers.demands import partitions, programmes, ranges
from optmatch.solvers.demands.board import lay
from optmatch.solvers.demands.partitions import EXHAUSTED, FOUND, FULL, PAUSED
from optmatch.solvers.demands.plans import Plan, serve
from optmatch.solvers.demands.ranges import make_ranges
from optmatch.solvers.demands.refutation import (
    choose_line,
    estimate_work,
    fits,
    promising_lines,
    quickest_lines,
    seek,
)
from tests.helpers.modes import PLAIN, examples

pytestmark = pytest.mark.kernels

KERNELS: Any = programmes  # which have no types
RANGES: Any = ranges
SEARCH: Any = partitions.search
IS_MINE: Any = partitions._is_mine
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
    for _, plan in seek(demand, slots, shortest, most, promising_lines(demand)[0], portion=7):
        if plan is not None:
            assert (serve(plan) >= demand).all()
            assert plan.ticks.min() >= shortest
            assert plan.ticks.sum() <= most
            best, most = plan, int(plan.ticks.sum()) - 1
    return best


@settings(max_examples=examples(40, plain=10), deadline=None)
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
        [int(plan.ticks.sum()) for _, plan in seek(demand, 5, 1, most, first) if plan][-1]
        for first in (line, promising_lines(demand)[0])
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_make_up_the_whole(parts: int) -> None:
    """The best of all parts is the best; and some part is less work than the whole."""
    demand = even_demand(4, seed=3, weight=30)
    most = int(demand[0].sum()) + 40
    first = promising_lines(demand)[0]
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


@settings(max_examples=examples(60, plain=3), deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 3), st.data())
def test_parts_with_limits_of_their_own_miss_nothing(
    seed: int, parts: int, data: st.DataObject
) -> None:
    """Each part begins with another limit, and lowers it as it finds plans: none falls between."""
    demand = even_demand(4, seed=seed, weight=20)
    first = promising_lines(demand)[0]
    loose = int(demand[0].sum()) + 40
    plans = [int(plan.ticks.sum()) for _, plan in seek(demand, 6, 1, loose, first) if plan]
    least = min(plans, default=loose)
    found = []
    for part in range(parts):
        most = data.draw(st.integers(least, loose))
        steps = seek(demand, 6, 1, most, first, part=part, parts=parts)
        found += [int(plan.ticks.sum()) for _, plan in steps if plan]
    assert min(found, default=None) == min(plans, default=None)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 31), min_size=4, max_size=4), st.permutations(range(4)))
def test_the_order_of_entries_does_not_decide_whose_a_way_is(
    masks: list[int], order: list[int]
) -> None:
    """Parts whose limits differ take a line's entries in another order, and in other slots."""
    _, board, _ = begin(even_demand(4, seed=1, weight=20), 5, 0)
    board.share[2:] = (0, 3)
    answers = set()
    for crosses in (range(4), order):
        for frame, cross in enumerate(crosses):
            turned = (masks[cross] << 1 | masks[cross] >> 4) & 31  # as many other slots
            board.pool[frame] = (0, cross, turned if crosses is order else masks[cross], 1)
            board.next[frame] = frame + 1
        answers.add(bool(IS_MINE(board, 3)))
    assert len(answers) == 1


def test_the_quickest_lines_take_fewest_programmes() -> None:
    """Of all lines, tried again one by one, none but those kept ends sooner."""
    demand = even_demand(5, seed=5, weight=99)
    most = int(demand[0].sum()) + 60
    clock = Limits().start()
    counts = [sum(solved for solved, _ in seek(demand, 6, 1, most, line)) for line in range(10)]
    kept = quickest_lines(demand, 6, 1, most, promising_lines(demand), 10**6, clock)
    assert [counts[line] for line in kept] == sorted(counts)[:5]
    few = quickest_lines(demand, 6, 1, most, promising_lines(demand), sorted(counts)[2], clock)
    assert 1 <= len(few) <= 3
    assert quickest_lines(demand, 6, 1, most, [0, 1], 10**6, Limits(time_s=0.0).start()) == []


def begin(demand: NDArray[np.int64], slots: int, first: int) -> tuple[Any, Any, Any]:
    """Lay out a whole search."""
    state, board = lay(demand, slots, 1)
    board.share[:] = (first, board.left[first] - 1, 0, 1)
    return state, board, make_ranges(board)


def count_work(
    demand: NDArray[np.int64], slots: int, most: int, sample: tuple[int, int, int]
) -> tuple[int, float]:
    """Search to the end; return the programmes solved, and how many they stand for."""
    state, board, room = begin(demand, slots, 0)
    board.sample[:] = sample
    solved, code = 0, PAUSED
    while code != EXHAUSTED:
        code = SEARCH(state, board, room, float(most), 100)
        solved += int(state.solved[0])
    return solved, float(board.work[0])


def test_samples_tell_the_work_of_a_search() -> None:
    """Without sampling just what is solved, and on average of a hundred samples, too."""
    demand = even_demand(5, seed=0, weight=200)
    most = int(demand[0].sum()) + 5
    solved, work = count_work(demand, 8, most, (0, 1, 1))
    assert solved == work > 200
    samples = examples(100, plain=10)
    drawn = [count_work(demand, 8, most, (3, 2, state)) for state in range(1, samples + 1)]
    told = np.array([work for _, work in drawn])
    assert abs(told.mean() - work) <= 3 * told.std() / samples**0.5 < work
    assert PLAIN or 3 * told.std() / samples**0.5 < work / 5
    assert max(some for some, _ in drawn) < solved


def test_work_is_not_estimated_beyond_limits() -> None:
    """Infinite where a sample takes more programmes or time than it may."""
    demand, clock = even_demand(5, seed=0, weight=200), Limits().start()
    asked = demand, 8, 1, int(demand[0].sum()) + 5, 0
    assert 0 < estimate_work(*asked, parts=1, programmes=10**6, clock=clock) < np.inf
    assert estimate_work(*asked, parts=1, programmes=0, clock=clock) == np.inf
    over = Limits(time_s=0.0).start()
    assert estimate_work(*asked, parts=1, programmes=10**6, clock=over) == np.inf


def test_the_line_with_the_least_work_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one estimate of all and a better one of the best three; if there is none, the first."""
    coarse, fine = {7: 5.0, 3: 4.0, 1: 3.0, 2: 9.0}, {7: 2.0, 3: 1.0, 1: 3.0, 2: 0.0}

    def estimate(*asked: Any) -> float:
        line, parts = asked[4:6]
        return (fine if parts == 1 else coarse)[line]

    asked = np.ones((4, 4), dtype=np.int64), 6, 1, 9
    clock = Limits().start()
    with ThreadPoolExecutor(2) as threads:
        monkeypatch.setattr("optmatch.solvers.demands.refutation.estimate_work", estimate)
        assert choose_line(*asked, [7, 3, 1, 2], 10**6, clock, threads) == 3
        monkeypatch.undo()
        assert choose_line(*asked, [7, 3, 1, 2], 0, Limits(time_s=0.0).start(), threads) == 7


def test_a_pool_that_runs_over_is_no_proof() -> None:
    """Without room for all ways the search says so, since it may have missed a plan."""
    demand = np.full((4, 4), 5, dtype=np.int64)
    state, board, room = begin(demand, 4, 0)
    assert (
        SEARCH(state, board._replace(pool=np.zeros((0, 4), dtype=np.int64)), room, 20.5, 9) == FULL
    )
    assert SEARCH(*begin(demand, 4, 0), 20.5, 10**6) == FOUND
    assert SEARCH(*begin(demand, 4, 0), 19.5, 10**6) == EXHAUSTED


@pytest.mark.skipif(PLAIN, reason="minutes in plain Python, and no line of its own")
def test_a_portion_ends_where_sets_are_many() -> None:
    """Few programmes may take long: a portion of however many ends in time for the clock."""
    demand = even_demand(7, seed=0, weight=200)
    p, board, room = begin(demand, 11, 0)
    assert SEARCH(p, board, room, float(demand[0].sum() + 60), 10**9) == PAUSED
    assert p.solved[0] < 10**6


def durations_left(p: Any, board: Any, level: int, most: int) -> tuple[Any, Any, Any, Any]:
    """Read off a programme which durations there can be: those of slots, and rows not below 0.

    As linear functions of the nonbasic variables, each with its constant.
    """
    slots, n = len(board.seat), len(board.demand)
    table, basis = p.table[level], p.basis[level]
    where = basis[1 + programmes.WIDTH :][:slots]
    slopes, base = np.zeros((slots, slots)), np.ones(slots)
    for slot, row in enumerate(where):
        if row < 0:
            slopes[slot, ~row] = 1.0
        else:
            slopes[slot] = table[row, :slots]
            base[slot] += table[row, -1]
    rows, constants = list(table[1 : basis[0], :slots]), list(table[1 : basis[0], -1])
    rows.append(-slopes.sum(axis=0))
    constants.append(most - base.sum())
    for line in range(2 * n):
        free = [slot for slot in range(slots) if board.free[line] >> slot & 1]
        rows.append(slopes[free].sum(axis=0))
        constants.append(base[free].sum() - board.rest[line])
        for slot in free if board.full[line] else []:  # it serves an open entry, which may waste
            longest = max(board.demand[i, j] for i, j in open_entries(board, line))
            rows.append(-slopes[slot])
            constants.append(longest + most - board.sums[line] - base[slot])
    return slopes, base, np.array(rows), np.array(constants)


def open_entries(board: Any, line: int) -> list[tuple[int, int]]:
    """Entries of a line that nothing serves yet."""
    n = len(board.demand)
    every = [(line, cross) if line < n else (cross, line - n) for cross in range(n)]
    return [(i, j) for i, j in every if board.open[i, j]]


def sets_by_highs(board: Any, left: tuple[Any, Any, Any, Any], i: int, j: int) -> set[int]:
    """Try all sets of slots: those that serve an entry and leave enough to its row and column."""
    slopes, base, rows, constants = left
    slots, lines = len(base), (i, len(board.demand) + j)
    found = set()
    for mask in range(1, 1 << slots):
        some = [slot for slot in range(slots) if mask >> slot & 1]
        asked, needs = [*rows, slopes[some].sum(axis=0)], [*constants, base[some].sum()]
        needs[-1] -= board.demand[i, j]
        possible = True
        for line in lines:
            free = int(board.free[line])
            others = [s for s in range(slots) if (free & ~mask) >> s & 1]
            last = bool(board.full[line]) and board.left[line] == 1
            possible &= not mask & ~free and len(others) >= board.left[line] - 1
            possible &= not last or not others
            asked.append(slopes[others].sum(axis=0))
            needs.append(base[others].sum() - board.rest[line] + board.demand[i, j])
        if possible and linprog(np.zeros(slots), A_ub=-np.array(asked), b_ub=needs).success:
            found.add(mask)
    return found


@settings(max_examples=examples(30, plain=10), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(0, 40))
def test_no_set_that_serves_is_missed(seed: int, programmes: int, spare: int) -> None:
    """Somewhere in a search, every set that durations allow for an entry is listed."""
    demand = even_demand(4, seed=seed, weight=20)
    most = int(demand[0].sum()) + spare
    p, board, room = begin(demand, 5, promising_lines(demand)[0])
    if SEARCH(p, board, room, float(most), programmes) != PAUSED:
        return
    level = int(board.state[0])
    left = durations_left(p, board, level, most)
    RANGES.scale(p, board, room, level, float(most))
    for i, j in np.argwhere(board.open):
        entry = board.number[i, j]
        many = RANGES.list_sets(board, room, i, j, False)
        listed = room.sets[entry, :many].tolist()
        assert sets_by_highs(board, left, i, j) <= set(listed)
        assert room.listed.view(np.uint64)[entry, 0] == sum(1 << mask for mask in listed)


def ordered_covers(
    sets: list[list[int]], twins: list[int], free: int, full: bool
) -> set[tuple[int, ...]]:
    """Choose one set of each list, so that none shares a slot and the first of twins go first."""
    found = set()
    for choice in product(*sets):
        left, fits_in = free, True
        for mask in choice:
            others = left & ~mask
            fits_in &= not mask & ~left
            fits_in &= not any(mask >> slot & 1 and twins[slot] & others for slot in range(6))
            left = others
        if fits_in and not (full and left):
            found.add(choice)
    return found


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(1, 63), min_size=1, max_size=6, unique=True), min_size=1, max_size=4
    ),
    st.lists(st.integers(0, 8), min_size=6, max_size=6),
    st.integers(0, 63),
    st.booleans(),
)
def test_covers_are_found(sets: list[list[int]], kinds: list[int], free: int, full: bool) -> None:
    """Sets that share no slot, one of each list; all slots are used where a line is full."""
    _, board, room = begin(np.full((4, 4), 5, dtype=np.int64), 6, 0)
    for entry, masks in enumerate(sets):
        room.sets[entry, : len(masks)], room.counts[entry] = masks, len(masks)
        room.listed.view(np.uint64)[entry, 0] = sum(1 << mask for mask in masks)
    board.order[:] = np.arange(4)
    twins = [
        sum(1 << before for before in range(slot) if kinds[before] == kinds[slot])
        for slot in range(6)
    ]
    board.twins[:] = [*twins, sum(1 << slot for slot in range(6) if twins[slot])]
    expected = ordered_covers(sets, twins, free, full)
    most = len(room.covers)
    many = RANGES.list_covers(board, room, len(sets), free, full, most, 10**6)
    assert many == min(len(expected), most + 1)
    listed = {tuple(masks) for masks in room.covers[: min(many, most), : len(sets)].tolist()}
    assert listed <= expected and (many > most or listed == expected)
    assert (RANGES.list_covers(board, room, len(sets), free, full, 0, 10**6) > 0) == (many > 0)
    assert RANGES.list_covers(board, room, len(sets), free, full, 0, 1) == 1  # too many steps


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

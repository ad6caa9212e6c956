"""Covers slot by slot against plain Python, and what is done to plans afterwards."""

from collections.abc import Iterator
from itertools import product
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import optmatch as om
from optmatch.model import TimeUp
from optmatch.solvers.demands import entry_covers
from optmatch.solvers.demands.birkhoff import decompose, stuff
from optmatch.solvers.demands.decompositions import hold_terms, yield_in_delays
from optmatch.solvers.demands.entries import Entries, LineSums, assign_entries, port_vectors
from optmatch.solvers.demands.entry_covers import (
    CHOICES,
    COMPARED,
    CRITICAL,
    MEDIAN,
    RATED,
    CoverTerms,
    copy_entries,
    cover_entries,
    yield_cover,
)
from optmatch.solvers.demands.first_fit import (
    complete,
    cover_heaviest_first,
    cover_matrix_first_fit,
)
from optmatch.solvers.demands.plans import Plan, serve, trim
from optmatch.solvers.demands.scheduling import (
    leave_to_packets,
    order_slots,
    put_in_order,
    use_delays,
)
from optmatch.solvers.demands.tasks import CoverTask
from tests.helpers.modes import examples

pytestmark = pytest.mark.kernels

Matrix = NDArray[np.int64]


def draw(seed: int, most: int = 8) -> Matrix:
    """Draw a demand, full or in part."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, most + 1))
    drawn: Matrix = rng.integers(1, 10_000, (n, n)) * (rng.random((n, n)) < rng.choice([0.4, 1]))
    drawn[0, 1] += 1
    return drawn


def weights(rest: Matrix, delay: int, pressure: float) -> NDArray[np.float64]:
    """Return the weight of a tick of each pair: the more, the busier its ports."""
    busy = rest + delay * (rest > 0)
    most = max(busy.sum(axis=0).max(), busy.sum(axis=1).max())
    rows, columns = (np.exp(pressure * (busy.sum(axis=k) / most - 1)) for k in (1, 0))
    weight: NDArray[np.float64] = np.where(rest > 0, rows[:, None] + columns, 0.0)
    return weight


def heaviest(value: NDArray[np.float64]) -> float:
    """Return the value of the best assignment."""
    return float(value[linear_sum_assignment(value, maximize=True)].sum())


def slots_of(plan: Plan, demand: Matrix) -> Iterator[tuple[Matrix, int, list[tuple[int, int]]]]:
    """Yield for each slot what is left before it, its length, and its circuits that serve."""
    rest = demand.copy()
    for matching, length in zip(plan.matchings.tolist(), plan.ticks.tolist(), strict=True):
        held = [(i, j) for i, j in enumerate(matching) if j >= 0 and rest[i, j] > 0]
        yield rest, length, held
        for pair in held:
            rest[pair] -= min(rest[pair], length)
    assert not rest.any()


def cover_by(demand: Matrix, delay: int, choice: int, shortest: int = 1, **terms: Any) -> Plan:
    """Return the whole cover of a demand by a rule."""
    return next(yield_cover(CoverTask.of(demand, delay, shortest), choice, **terms))


@settings(max_examples=examples(40, plain=6), deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0, 100, 5000]),
    st.sampled_from([(3.0, 1.0), (10.0, 0.5), (0.0, 0.0)]),
    st.sampled_from([1, 700]),
)
def test_covers_take_the_slot_of_the_best_rating(
    seed: int, delay: int, rating: tuple[float, float], shortest: int
) -> None:
    """Each slot serves as much for its time as any matching at any of the lengths compared."""
    demand, (pressure, bonus) = draw(seed), rating
    plan = cover_by(demand, delay, COMPARED, shortest, pressure=pressure, bonus=bonus)
    for rest, length, held in slots_of(plan, demand):
        weight = weights(rest, delay, pressure)
        sizes = np.unique(rest[rest > 0])
        choices = min(CHOICES, len(sizes))
        sizes = sizes[np.arange(choices) * (len(sizes) - 1) // max(1, choices - 1)]
        best, reached, least = 0.0, 0.0, min(rest[pair] for pair in held)
        for size in sizes.tolist():
            value = weight * np.where(rest <= size, rest + bonus * delay, size) * (rest > 0)
            best = max(best, heaviest(value) / (size + delay))
            if length == max(size, shortest, least):
                reached = max(reached, sum(value[pair] for pair in held) / (size + delay))
        assert reached == pytest.approx(best, rel=1e-9)


def test_lengths_are_tried_in_the_order_of_their_bounds() -> None:
    # Two sizes for eight lengths: a slot of 1 tick serves 3 in 2 ticks with its delay, and one of
    # 10 ticks at most 12 in 11. The heaviest matching of the second need not be made.
    entries = Entries.of_matrix(np.array([[10, 0, 0], [0, 1, 0], [0, 0, 1]]))
    unserved = copy_entries(entries)
    slots = Plan(np.empty((1, 3), np.int32), np.empty(1, np.int64))
    terms = CoverTerms(delay=1, shortest=1, rule=COMPARED, pressure=0.0, bonus=0.0)
    cast("Any", cover_entries)(port_vectors(3, 3), unserved, 3, terms, slots)
    assert slots.ticks.tolist() == [1]
    bounds = np.where(unserved.lengths == 1, -1.0, 2 * 12 / 11)
    assert np.allclose(unserved.rate, bounds)


def test_of_many_demands_a_part_is_ranked() -> None:
    """Of 1,056 entries every other one: a slot takes one of the eight lengths, evenly by rank."""
    demand = np.random.default_rng(0).integers(1, 10**6, (33, 33)) * (1 - np.eye(33, dtype=int))
    sizes = np.unique(demand[demand > 0][::2])
    sizes = sizes[np.arange(CHOICES) * (len(sizes) - 1) // (CHOICES - 1)]
    assert cover_by(demand, 10**6, COMPARED).ticks[0] in sizes


@settings(max_examples=examples(25, plain=8), deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0, 300, 5000]),
    st.sampled_from([1, 700]),
)
def test_quick_covers_take_one_length_for_each_slot(seed: int, delay: int, shortest: int) -> None:
    demand = draw(seed)
    plan = cover_by(demand, delay, RATED, shortest)
    for rest, length, held in slots_of(plan, demand):
        weight, left = weights(rest, delay, 3.0), rest[rest > 0]
        least = min(rest[pair] for pair in held)
        choices = min(CHOICES, len(left))
        places = np.arange(choices) * (len(left) - 1) // max(1, choices - 1)
        rates, fits = {}, []
        for size in left[places].tolist():
            value = weight * np.where(rest <= size, rest + delay, size) * (rest > 0)
            rates[size] = value.max(axis=1).sum() / (size + delay)
            total = sum(value[pair] for pair in held)
            is_heaviest = total == pytest.approx(heaviest(value), rel=1e-9)
            if length == max(size, shortest, least) and is_heaviest:
                fits.append(size)
        assert max(rates[size] for size in fits) == pytest.approx(max(rates.values()), rel=1e-9)


@settings(max_examples=examples(40, plain=15), deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1, 50, 4000]))
def test_nothing_is_left_to_trim(seed: int, shortest: int) -> None:
    rng, demand = np.random.default_rng(seed), draw(seed)
    covered = cover_heaviest_first(demand, shortest)
    slots, n = 6, len(demand)
    more = np.array([rng.permutation(n) for _ in range(slots)], dtype=np.int32)
    longer = rng.integers(shortest, 9000, slots)
    plan = Plan(np.concatenate([covered.matchings, more]), np.append(covered.ticks, longer))
    trimmed = trim(plan, demand, shortest)
    slack = serve(trimmed) - demand
    assert (slack >= 0).all()
    for matching, ticks in zip(trimmed.matchings.tolist(), trimmed.ticks.tolist(), strict=True):
        needed = [slack[i, j] for i, j in enumerate(matching) if j >= 0 and demand[i, j] > 0]
        assert ticks >= shortest
        assert needed and min(needed) < ticks
        assert ticks == shortest or min(needed) == 0


@settings(max_examples=examples(20, plain=6), deadline=None)
@given(st.integers(0, 10_000))
def test_heavy_demands_come_first_and_busy_ports_are_held(seed: int) -> None:
    demand = draw(seed)
    first = cover_heaviest_first(demand)
    taken: list[set[tuple[str, int]]] = []
    for place in np.argsort(-demand, axis=None, kind="stable").tolist():
        i, j = divmod(place, len(demand))
        if demand[i, j]:
            ends = {("source", i), ("destination", j)}
            slot = next((k for k, used in enumerate(taken) if not used & ends), len(taken))
            if slot == len(taken):
                taken.append(set())
            taken[slot] |= ends
            assert first.matchings[slot, i] == j
    rest = demand.copy()
    for matching, ticks in zip(*cover_by(demand, 0, CRITICAL), strict=True):
        partners = [(rest > 0).sum(axis=axis) for axis in (1, 0)]
        most = max(partners[0].max(), partners[1].max())
        held = [(i, j) for i, j in enumerate(matching.tolist()) if j >= 0]
        assert set(np.flatnonzero(partners[0] == most)) <= {i for i, _ in held}
        assert set(np.flatnonzero(partners[1] == most)) <= {j for _, j in held}
        busy = (partners[0] == most)[:, None] * 1.0 + (partners[1] == most)
        value = (rest / demand.max() + 2 * len(demand) * busy) * (rest > 0)
        assert heaviest(value) == pytest.approx(sum(value[pair] for pair in held), rel=1e-12)
        assert ticks == max(rest[pair] for pair in held)
        for pair in held:
            rest[pair] = 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_the_next_slot_shares_most_circuits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matchings = rng.integers(-1, 4, (int(rng.integers(0, 8)), 6)).astype(np.int32)
    order = order_slots(matchings).tolist()
    assert sorted(order) == list(range(len(matchings)))
    shared = ((matchings[:, None] == matchings) & (matchings >= 0)).sum(axis=2)
    np.fill_diagonal(shared, 0)
    if len(order) > 2:
        assert shared[order[0]].sum() == shared.sum(axis=1).min()
        for k in range(1, len(order)):
            assert shared[order[k - 1], order[k]] == shared[order[k - 1], order[k:]].max()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1, 40]))
def test_circuits_that_stay_serve_during_delays(seed: int, shortest: int) -> None:
    """Slots keep what is needed, are no longer than before, and none can be made shorter."""
    demand, delay = draw(seed, most=4) % 200, 20
    demand[0, 0] += 1
    problem = om.Demand.from_matrix(
        demand,
        delay_s=float(delay),
        quantum_s=1.0,
        min_slot_s=float(shortest),
        switching="per-circuit",
    )
    plan = trim(cover_heaviest_first(demand, shortest), demand, shortest)
    kept = use_delays(put_in_order(plan, problem), None, problem)
    assert (np.sort(kept.ticks) <= np.sort(plan.ticks)).all() and (kept.ticks >= shortest).all()
    assert {row.tobytes() for row in kept.matchings} == {row.tobytes() for row in plan.matchings}

    def served(ticks: Any) -> Matrix:
        total = serve(Plan(kept.matchings, ticks))
        for before, after in zip(kept.matchings[:-1], kept.matchings[1:], strict=True):
            for i, j in enumerate(after.tolist()):
                total[i, j] += delay * (j >= 0 and before[i] == j)
        return total

    assert (served(kept.ticks) >= demand).all()
    for slot in np.flatnonzero(kept.ticks > shortest).tolist():
        less = kept.ticks - (np.arange(len(kept.ticks)) == slot)
        assert (served(less) < demand).any()


def test_slots_whose_delays_take_too_long_keep_their_order() -> None:
    """Each two slots are compared for an order, which takes minutes for ten thousands of them."""
    rng = np.random.default_rng(3)
    matchings = np.array([rng.permutation(6) for _ in range(100)], dtype=np.int32)
    demand = np.zeros((6, 6), dtype=np.int64)
    for matching in matchings:
        demand[np.arange(6), matching] += 1
    plan = Plan(matchings, np.ones(100, dtype=np.int64))
    few_delays = om.Demand.from_matrix(demand, delay_s=1, switching="per-circuit")
    long_delays = om.Demand.from_matrix(demand, delay_s=3, switching="per-circuit")
    assert not np.array_equal(put_in_order(plan, few_delays).matchings, matchings)
    assert np.array_equal(put_in_order(plan, long_delays).matchings, matchings)


@settings(max_examples=examples(12, plain=3), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 2), st.sampled_from([0, 3]))
def test_what_is_left_to_packets_ends_no_later(seed: int, planes: int, delay: int) -> None:
    rng = np.random.default_rng(seed)
    demand = rng.integers(0, 8, (2, 2))
    demand[0, 1] += 1
    problem = om.Demand.from_matrix(
        demand,
        delay_s=float(delay),
        quantum_s=1.0,
        planes=planes,
        packet_bytes_per_s=float(rng.choice([0.25, 1.0])),
    )
    plan = Plan(np.array([[0, 1], [1, 0]], dtype=np.int32), demand[[0, 0], [0, 1]] + 1)
    plan = trim(complete(plan, CoverTask.of(demand, 0)), demand)

    def ends(chosen: Plan) -> float:
        left = np.maximum(problem.directed_ticks - serve(chosen), 0)
        busiest = max(left.sum(axis=0).max(), left.sum(axis=1).max())
        return max(chosen.cost(delay) / planes, float(busiest) / problem.packet_share)

    best = min(
        ends(Plan(plan.matchings, np.array(ticks)).take(np.array(ticks) > 0))
        for ticks in product(range(10), repeat=len(plan.ticks))
    )
    kept = leave_to_packets(problem, plan)
    assert best <= ends(kept) <= min(ends(plan), ends(plan.take(np.arange(0))))


def test_a_slot_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels get so much work as the time that is left allows: here, less than a slot takes.

    If a plan is known a late rule gives up; or else what it leaves is served heaviest first.
    """
    monkeypatch.setattr(entry_covers, "counted_time", lambda: 0.0)
    demand = np.random.default_rng(0).integers(1, 99, (60, 60))
    late = CoverTask.of(demand, 2)._replace(deadline=1e-6)
    for choice in (RATED, COMPARED, CRITICAL, MEDIAN):
        with pytest.raises(TimeUp):
            next(yield_cover(late._replace(useful_ticks=10**9), choice))
        rest = next(yield_cover(late, choice))
        assert rest.ticks.tolist() == cover_heaviest_first(demand).ticks.tolist()


def test_critical_lines_and_holds() -> None:
    """As many slots as the busiest line has entries, held for the largest; or the median."""
    rng = np.random.default_rng(3)
    demand = rng.integers(1, 99, (9, 9)) * (rng.random((9, 9)) < 0.4)
    demand[0, 0] = 5
    degree = max((demand > 0).sum(axis=0).max(), (demand > 0).sum(axis=1).max())
    assert len(cover_by(demand, 2, CRITICAL).ticks) == degree
    for rest, length, held in slots_of(cover_by(demand, 2, MEDIAN), demand):
        value = rest.astype(float)
        assert sum(rest[pair] for pair in held) == pytest.approx(heaviest(value))
        assert length == sorted(rest[pair] for pair in held)[len(held) // 2]
    assert cover_by(demand, 2, MEDIAN, shortest=70).ticks.min() >= 70


def test_terms_are_held_as_long_as_an_entry_needs_them() -> None:
    """Of a heavy tail: the large entries are served before the terms that stuffing made."""
    demand = np.diag([1000, 900, 50, 7]) + np.ones((4, 4), dtype=np.int64)
    plan = hold_terms(decompose(stuff(demand)), 1, CoverTask.of(demand, 0))
    assert (serve(plan) >= demand).all()
    assert plan.ticks.sum() == 1004


def test_entries_are_rounded_to_the_unit_that_makes_the_shortest_plan() -> None:
    """Of a heavy tail with short delays: half a delay, or less, is better than one."""
    rng = np.random.default_rng(7)
    demand = np.ceil((1.0 + rng.pareto(1.1, size=(48, 48))) * 1e3).astype(np.int64)
    plans = list(yield_in_delays(CoverTask.of(demand, 20_000)))
    costs = [plan.cost(20_000) for plan in plans]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.99 * costs[0]
    for plan in plans:
        assert (serve(plan) >= demand).all()
    (whole,) = yield_in_delays(CoverTask.of(demand, 0))
    assert whole.cost(0) == pytest.approx(
        max(demand.sum(axis=0).max(), demand.sum(axis=1).max()), rel=0.1
    )


@given(st.integers(1, 12), st.integers(0, 10_000), st.sampled_from([3, 1000, 2**40]))
def test_first_fit_of_a_matrix_serves_all_in_the_slots_of_first_fit(
    n: int, seed: int, largest: int
) -> None:
    """Entries of like ticks may come in another order than by exact ticks."""
    rng = np.random.default_rng(seed)
    demand = rng.integers(0, largest, (n, n)) * (rng.random((n, n)) < 0.8)
    demand[0, n - 1] = 1
    plan = cover_matrix_first_fit(demand, LineSums.of_matrix(demand))
    assert (serve(plan) >= demand).all()
    assert plan.matchings.dtype == np.int32
    degree = max((demand > 0).sum(axis=0).max(), (demand > 0).sum(axis=1).max())
    assert degree <= len(plan.ticks) < 2 * degree + 1

    # Each entry is in one slot, and each slot is as long as its heaviest entry.
    slots, sources = np.nonzero(plan.matchings >= 0)
    destinations = plan.matchings[slots, sources]
    assert len(slots) == np.count_nonzero(demand)
    assert len(set(zip(sources.tolist(), destinations.tolist(), strict=True))) == len(slots)
    for slot, ticks in enumerate(plan.ticks.tolist()):
        is_here = slots == slot
        assert demand[sources[is_here], destinations[is_here]].max() == ticks
    if largest == 3:
        same = cover_heaviest_first(demand)
        assert plan.matchings.tolist() == same.matchings.tolist()


def test_full_matrices_are_planned_without_a_list_of_their_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 300 ports; a list would take memory, and so time, that the limit does not allow."""
    demand_s = np.random.default_rng(0).random((300, 300))
    monkeypatch.setattr(Entries, "of_matrix", None)
    slots = om.schedule(demand_s, 1e-3, time_limit_s=0.0)
    served = serve(Plan(slots.matchings, np.rint(slots.durations_s * 1e9).astype(np.int64)))
    assert (served >= np.floor(demand_s * 1e9) - 1).all()
    assert slots.completion_s < 1.2 * slots.lower_bound_s
    sparse = np.where(np.arange(300)[:, None] == np.arange(300), demand_s, 0.0)
    assert om.schedule(sparse, 1e-3, time_limit_s=0.0).completion_s == pytest.approx(
        sparse.max() + 1e-3
    )


@pytest.mark.kernels
@given(st.data())
def test_entries_are_assigned_best(data: st.DataObject) -> None:
    """SciPy finds no better matching, and prices of rows and columns prove it."""
    n = data.draw(st.integers(1, 7))
    value = np.array(
        data.draw(
            st.lists(st.sampled_from([0, 0, 1, 2, 5, 0.1, 0.3]), min_size=n * n, max_size=n * n)
        ),
        dtype=float,
    ).reshape(n, n)
    rows, columns = np.nonzero(value)
    ticks = np.ones(len(rows), dtype=np.int64)
    entries = Entries(n, rows.astype(np.int32), columns.astype(np.int32), ticks)
    left = copy_entries(entries)._replace(value=value[rows, columns])
    space = port_vectors(n, n * n)
    cast(Any, assign_entries)(space, left, len(rows))
    chosen = space.column_of[:n]
    used = chosen[chosen >= 0]
    assert len(set(used.tolist())) == len(used)
    total = value[np.flatnonzero(chosen >= 0), used].sum()
    best = linear_sum_assignment(value, maximize=True)
    assert total == pytest.approx(value[best].sum())
    assert (
        space.row_price[rows] + space.column_price[columns] >= value[rows, columns] - 1e-9
    ).all()
    assert space.row_price.sum() + space.column_price.sum() == pytest.approx(total)

"""All-to-all on shifts: hops, routes, replayed sends, the number of configurations."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

import optmatch as om
from optmatch.model import InputError, Limits
from optmatch.problems.collectives.bounds import add_up_hops, ranks_at_hops
from optmatch.solvers.collectives import algorithms, circulant, rounds
from optmatch.solvers.collectives.algorithms import fits
from optmatch.solvers.collectives.circulant import (
    choose,
    list_shifts,
    route,
    route_digit_values,
)
from optmatch.solvers.collectives.exchanges import lay_circulant_exchange
from tests.helpers.contributions import Held, replay
from tests.helpers.modes import compiled_only

pytestmark = pytest.mark.kernels


def fewest_hops_counted(n: int, k: int) -> int:
    """Return the bound of k configurations."""
    return int(add_up_hops(ranks_at_hops(n, k)))


def blocks(n: int) -> Held:
    """Let rank r have its blocks r n ... r n + n - 1."""
    held = np.zeros((n, n * n, n), dtype=bool)
    rank = np.repeat(np.arange(n), n)
    held[rank, np.arange(n * n), rank] = True
    return held


def fewest_hops(n: int, shifts: tuple[int, ...]) -> int:
    """Add up the least hops to every offset, by trying all ways; n n if one is not reached."""
    hops = np.full(n, n * n)
    for way in product(range(n), repeat=len(shifts)):
        to = sum(j * g for j, g in zip(way, shifts, strict=True)) % n
        hops[to] = min(hops[to], sum(way))
    return int(hops.sum())


@pytest.mark.parametrize(
    ("n", "shifts"),
    [(5, (1,)), (6, (2, 3)), (8, (1, 3)), (9, (3, 4)), (10, (1, 2, 5)), (7, (4, 4))],
)
def test_routes_are_shortest_paths(n: int, shifts: tuple[int, ...]) -> None:
    found = route(n, np.array(shifts))
    assert (found.exponents @ found.shifts % n == np.arange(n)).all()
    assert found.hops == fewest_hops(n, shifts)
    problem = om.Collective("all-to-all", n, 1e6)
    sends = lay_circulant_exchange(problem, found).plan.sends
    held = replay(blocks(n), sends, two_way=False, shared=True)
    assert held[np.tile(np.arange(n), n), np.arange(n * n)].any(axis=1).all()
    assert len(sends) == n * found.hops
    assert sends[-1, 0] + 1 == found.rounds.sum()
    assert len(np.unique(np.bincount(sends[:, 1]))) == 1  # all ranks send as much


@pytest.mark.parametrize(("n", "k"), [(6, 2), (7, 2), (8, 2), (8, 3), (9, 2)])
def test_the_search_finds_the_best_shifts_of_few_ranks(n: int, k: int) -> None:
    best = min(fewest_hops(n, shifts) for shifts in combinations(range(1, n), k))
    assert (
        route(n, list_shifts(n, k, Limits().start())[0]).hops == best >= fewest_hops_counted(n, k)
    )


@pytest.mark.parametrize("n", [2, 3, 4, 5, 9])
def test_more_shifts_than_there_are_are_all_of_them(n: int) -> None:
    """The rest of uneven all-to-alls of few ranks asks for some more."""
    best, *others = list_shifts(n, n + 2, Limits().start())
    assert set(best.tolist()) == set(range(1, n))
    assert all(route(n, shifts).hops >= n - 1 == route(n, best).hops for shifts in others)


@compiled_only
@pytest.mark.parametrize(("k", "bar"), [(2, 436), (3, 266), (4, 209), (6, 159), (12, 115)])
def test_hops_of_64_ranks(k: int, bar: int) -> None:
    shifts = list_shifts(64, k, Limits().start())[0]
    assert fewest_hops_counted(64, k) <= route(64, shifts).hops <= bar
    assert np.array_equal(shifts, list_shifts(64, k, Limits().start())[0])


@compiled_only
@pytest.mark.parametrize(("delay_s", "bar_s"), [(1e-3, 46.95e-3), (1e-2, 95.40e-3)])
def test_times_of_64_ranks(delay_s: float, bar_s: float) -> None:
    """A buffer of 1e9 bytes on each, at 50e9 bytes/s and 2.7 us a round."""
    problem = om.Collective("all-to-all", 64, 1e9, alpha_s=2.7e-6, delay_s=delay_s)
    time_s = choose(problem, Limits().start())[0].time_s(problem)
    assert problem.lower_bound() <= time_s <= bar_s


def ask(block_s: float, each_s: float, delay_s: float) -> om.Collective:
    """Return an all-to-all of 16 ranks with these costs."""
    return om.Collective(
        "all-to-all", 16, 16 * block_s, alpha_s=each_s, delay_s=delay_s, rate_bytes_per_s=1.0
    )


@compiled_only
def test_few_rounds_are_worth_longer_paths() -> None:
    clock = Limits().start()
    dear, _ = choose(ask(1e-9, 1.0, 1.0), clock)
    cheap, _ = choose(ask(1.0, 1e-9, 1.0), clock)
    assert dear.rounds.sum() < cheap.rounds.sum() and dear.hops > cheap.hops
    long_delays = ask(1.0, 1.0, 1e6)
    alone, _ = choose(long_delays, clock)
    assert alone.rounds.tolist() == [15]
    assert alone.time_s(long_delays) == long_delays.lower_bound() == 15 + 120


@compiled_only
def test_what_takes_too_many_sends_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One shift takes 16 * 120 sends, and so does a ring; two shifts take fewer."""
    problem = ask(1.0, 1.0, 1e6)
    assert fits(problem, "ring")
    monkeypatch.setattr(algorithms, "MOST_SENDS", 16 * 120 - 1)
    monkeypatch.setattr(rounds, "MOST_OFFERED_SENDS", 16 * 120 - 1)
    monkeypatch.setattr(circulant, "QUICK_SENDS", 0)
    chosen, _ = choose(problem, Limits().start())
    assert len(chosen.shifts) == 2 and 16 * chosen.hops < 16 * 120
    assert not fits(problem, "ring") and fits(replace(problem, operation="all-gather"), "ring")


def test_without_time_shifts_of_digits_or_straight_ways_are_taken() -> None:
    """With time shifts of climbs are used, if they are faster."""
    without_time = Limits(time_s=0.0)
    small_blocks, _ = choose(ask(1e-9, 1.0, 1.0), without_time.start())
    assert small_blocks.shifts.tolist() == [1, 2, 4, 8]
    long_delays, _ = choose(ask(1e-9, 1.0, 3.0), without_time.start())
    assert long_delays.shifts.tolist() == [1, 4]
    large_blocks, _ = choose(ask(10.0, 1.0, 1.0), without_time.start())
    assert large_blocks.shifts.tolist() == list(range(1, 16)) and large_blocks.hops == 15

    alike, _ = choose(ask(1.0, 1.0, 1.0), without_time.start())
    assert alike.shifts.tolist() == [1, 2, 3, 4, 8, 12]
    dear_changes = ask(1.0, 1.0, 10.0)
    assert choose(dear_changes, without_time.start())[0].time_s(dear_changes) == 61.0
    assert choose(dear_changes, Limits().start())[0].time_s(dear_changes) < 61.0


@pytest.mark.parametrize("n_ranks", [1000, 1024])
def test_many_ranks_have_a_shift_for_each_value_of_a_digit(n_ranks: int) -> None:
    """Before, blocks of 100 kB took 2.3 times the bound, by five digits or straight ways."""
    problem = om.Collective(
        "all-to-all", n_ranks, 1e5 * n_ranks, alpha_s=2e-6, rate_bytes_per_s=5e10, delay_s=1e-5
    )
    solution = om.solve(problem, limits=om.Limits(time_s=1.0))
    assert solution.objective <= 1.05 * problem.lower_bound()
    assert om.verify(problem, solution).ok


@pytest.mark.parametrize(("n", "held"), [(12, (3, 2)), (11, (3, 2)), (6, (5,)), (8, (1, 1, 1))])
def test_values_of_digits_add_up_to_their_offset(n: int, held: tuple[int, ...]) -> None:
    shifts, exponents = route_digit_values(n, held)
    assert (exponents @ shifts == np.arange(n)).all()
    assert exponents.any(axis=0).all() and exponents.max() == 1


def test_shifts_that_miss_a_rank() -> None:
    with pytest.raises(InputError, match="reach"):
        route(6, np.array([2, 4]))

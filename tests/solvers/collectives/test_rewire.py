"""Circuits that change where it pays: the published figures, and what must hold of any delay."""

from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.collectives.algorithms import list_algorithm_rounds
from optmatch.solvers.collectives.rewire import choose, rewire

DELAYS_S = (1.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
TABLE = [
    (8, 1e6, "all-reduce", "ring", (73, 73, 73, 73, 73, 73)),
    (8, 1e6, "all-reduce", "bruck", (129, 56, 93, 129, 129, 129)),
    (8, 1e6, "all-reduce", "halving-doubling", (184, 56, 101, 184, 184, 184)),
    (8, 1e6, "all-reduce", "swing", (188, 56, 101, 188, 188, 188)),
    (8, 1e6, "all-to-all", "bruck", (82, 40, 58, 82, 82, 82)),
    (8, 1e6, "all-to-all", "pairwise", (110, 42, 77, 110, 110, 110)),
    (8, 1e9, "all-reduce", "ring", (35038, 35038, 35038, 35038, 35038, 35038)),
    (8, 1e9, "all-reduce", "bruck", (105024, 35021, 35066, 35516, 40016, 75018)),
    (8, 1e9, "all-to-all", "bruck", (70012, 30010, 30028, 30208, 32008, 50008)),
    (8, 1e9, "all-to-all", "pairwise", (70040, 17525, 17579, 18119, 23519, 50028)),
    (64, 1e6, "all-reduce", "ring", (380, 380, 380, 380, 380, 380)),
    (64, 1e6, "all-reduce", "bruck", (1000, 83, 151, 460, 1000, 1000)),
    (64, 1e6, "all-reduce", "halving-doubling", (1922, 83, 182, 879, 1922, 1922)),
    (64, 1e6, "all-reduce", "swing", (1964, 83, 182, 1172, 1964, 1964)),
    (64, 1e6, "all-to-all", "bruck", (703, 81, 126, 264, 703, 703)),
    (64, 1e6, "all-to-all", "pairwise", (2753, 252, 710, 1462, 2451, 2753)),
    (64, 1e9, "all-reduce", "ring", (39715, 39715, 39715, 39715, 39715, 39715)),
    (64, 1e9, "all-reduce", "bruck", (853271, 39418, 39517, 40507, 49659, 108167)),
    (64, 1e9, "all-to-all", "bruck", (630073, 60021, 60066, 60516, 65016, 110016)),
    (64, 1e9, "all-to-all", "pairwise", (632123, 19920, 20478, 26058, 79501, 258207)),
]
"""Microseconds, of a ring that is there; alpha 1.7 us, 1 us a hop, 50 GB/s."""


def ask(operation: Any, n: int, size: float, delay_s: float, **fields: Any) -> om.Collective:
    """Return a collective on a ring that is there."""
    ring: Any = [[(rank + 1) % n for rank in range(n)]]
    costs = {"alpha_s": 1.7e-6, "hop_s": 1e-6, "start": ring} | fields
    return om.Collective(operation, n, size, delay_s=delay_s, **costs)


@pytest.mark.parametrize(("n", "size", "operation", "algorithm", "times"), TABLE)
def test_the_published_table_comes_out(
    n: int, size: float, operation: str, algorithm: str, times: tuple[int, ...]
) -> None:
    rounds = list_algorithm_rounds(ask(operation, n, size, 0.0), algorithm)
    found = [choose(ask(operation, n, size, delay), rounds).time_s for delay in DELAYS_S]
    assert tuple(round(time * 1e6) for time in found) == times


@pytest.mark.parametrize("hop_s", [None, 1e-6])
@pytest.mark.parametrize("operation", ["all-reduce", "all-to-all", "all-gather"])
def test_the_plan_takes_as_long_as_was_counted(operation: str, hop_s: float | None) -> None:
    for delay_s in DELAYS_S:
        problem = ask(operation, 6, 1e6, delay_s, hop_s=hop_s, late_s={2: 1e-5})
        rounds = list_algorithm_rounds(problem, "bruck")
        choice = choose(problem, rounds)
        if not np.isfinite(choice.time_s):
            assert (operation, hop_s) == ("all-reduce", None)
            continue
        plan = rewire(problem, rounds, choice).plan
        assert plan.time_s == pytest.approx(choice.time_s, rel=1e-12)
        assert om.verify(problem, plan).ok


def test_no_other_choice_from_the_pool_is_faster() -> None:
    for delay_s in (1e-6, 1e-5, 1e-4):
        problem = ask("all-to-all", 5, 1e6, delay_s)  # each ring leads everywhere
        rounds = list_algorithm_rounds(problem, "bruck")
        choice = choose(problem, rounds)
        times = []
        for numbers in product(range(len(choice.pool)), repeat=rounds.n_rounds):
            other = choice._replace(number=np.array(numbers))
            times.append(rewire(problem, rounds, other).plan.time_s)
        assert min(times) == pytest.approx(choice.time_s, rel=1e-12)


def test_time_is_concave_in_the_delay() -> None:
    rounds = list_algorithm_rounds(ask("all-to-all", 16, 1e6, 0.0), "bruck")
    delays = np.linspace(0, 2e-4, 41)
    times = [choose(ask("all-to-all", 16, 1e6, delay), rounds).time_s for delay in delays]
    slopes = np.diff(times) / np.diff(delays)
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise(slopes))
    assert slopes[-1] >= -1e-6


def over_all_cuts(problem: om.Collective, changes: int) -> dict[tuple[int, ...], float]:
    """Return the time for each way to cut six steps by so many changes of circuits.

    All steps between two cuts go over the ring of the nearest of them, without delays.
    """
    gathers = problem.operation == "all-gather"  # which begins with the farthest
    rounds = list_algorithm_rounds(
        problem, "bruck" if problem.operation == "all-to-all" else "near-sums"
    )
    choice = choose(problem, rounds)
    numbers = [choice.pool[:, 0].tolist().index(to) for to in rounds.partners(64)[:, 0].tolist()]
    times = {}
    for cuts in combinations(range(1, 6), changes):
        ends = (0, *cuts, 6)
        parts = [(b - 1 if gathers else a, b - a) for a, b in pairwise(ends)]
        number = np.concatenate([np.full(length, numbers[near]) for near, length in parts])
        times[cuts] = rewire(problem, rounds, choice._replace(number=number)).plan.time_s
    return times


@pytest.mark.parametrize(
    ("operation", "firsts"),
    [
        ("all-to-all", {1: (3,), 2: (2, 4)}),
        ("reduce-scatter", {1: (2,), 2: (1, 3)}),
        ("all-gather", {1: (4,), 2: (3, 5)}),
    ],
)
def test_the_cuts_hops_and_bytes_of_bridge_come_out(
    operation: str, firsts: dict[int, tuple[int, ...]]
) -> None:
    moves = operation == "all-to-all"
    known = [63, 14, 9, 8] if moves else [3.048, 1.524, 1.206, 1.079]
    costs: dict[str, Any] = {"hop_s": 1e-6, "rate_bytes_per_s": 1e15}
    if not moves:  # against a ring, which sends 63 bytes
        costs = {"hop_s": 0.0, "rate_bytes_per_s": 63e6}
    for changes, wanted in enumerate(known):
        times = over_all_cuts(ask(operation, 64, 64.0, 0.0, alpha_s=0.0, **costs), changes)
        least = min(times.values())
        assert least * 1e6 == pytest.approx(wanted, abs=5e-4)
        best = {cuts for cuts, time in times.items() if time <= least * (1 + 1e-9)}
        assert changes not in firsts or firsts[changes] in best

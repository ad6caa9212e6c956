"""All-reduces that pass data on, and those that are composed of other collectives."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.collectives.plans import lay
from optmatch.solvers.collectives.sums import (
    Sides,
    choose_torus,
    choose_torus_within,
    list_torus_rounds,
)
from tests.helpers.collectives import compute
from tests.helpers.modes import examples


@pytest.mark.parametrize("n", [2, 3, 4, 6, 7, 8, 12, 18])
def test_sums_are_right(n: int) -> None:
    seen = set()
    for size in (1.0, 3e3, 3e5):
        for two_way in (False, True)[: 1 if n & (n - 1) else 2]:
            problem = om.Collective(
                "all-reduce", n, size, alpha_s=1e-6, delay_s=1e-7, rate_bytes_per_s=1e9,
                two_way=two_way,
            )  # fmt: skip
            solution = om.solve(problem, "one-pass", seed=0)
            sides = choose_torus(problem)
            assert compute(problem, solution.answer) and om.verify(problem, solution).ok
            assert solution.objective == pytest.approx(sides.seconds)
            assert np.prod((*sides.scattered, sides.windowed[0], *sides.passed)) == n
            seen.add((bool(sides.scattered), bool(sides.passed)))
    assert len(seen) > 1 or n == 2


def test_the_sides_are_the_fastest() -> None:

    def products(left: int) -> list[tuple[int, ...]]:
        return [()] * (left == 1) + [
            (q, *more) for q in range(2, left + 1) if left % q == 0 for more in products(left // q)
        ]

    for size, delay_s in ((1e2, 1e-6), (1e4, 1e-6), (1e4, 1e-5), (1e6, 1e-5)):
        problem = om.Collective(
            "all-reduce", 24, size, alpha_s=1e-6, delay_s=delay_s, rate_bytes_per_s=1e9
        )
        least = np.inf
        for sides in products(24):
            for cut in range(len(sides) + 1):
                options = [Sides(0.0, scattered=sides[:cut], passed=sides[cut:])]
                if cut < len(sides):
                    side = sides[cut]
                    options += [
                        Sides(0.0, sides[:cut], (side, windows), sides[cut + 1 :])
                        for windows in range(2, side)
                        if side % windows == 0
                    ]
                for option in options:
                    rounds = list_torus_rounds(24, option)
                    least = min(least, _seconds(problem, rounds.sends, rounds.chunk_count))
        assert choose_torus(problem).seconds == pytest.approx(least)


def _seconds(problem: om.Collective, sends: np.ndarray[Any, Any], chunks: int) -> float:
    """Add up rounds of ranks with one partner, and changes of partners."""
    total, before = 0.0, None
    for turn in range(sends[-1, 0] + 1):
        rows = sends[sends[:, 0] == turn]
        now = set(map(tuple, rows[:, 1:3].tolist()))
        total += problem.delay_s * (before not in (None, now)) + problem.alpha_s
        most = np.bincount(rows[:, 1]).max()
        total += most * problem.size_bytes / chunks / problem.rate_bytes_per_s
        before = now
    return total


def draw(rng: np.random.Generator) -> om.Collective:
    """Draw an all-reduce of any shape."""
    n = int(rng.choice([2, 3, 4, 5, 6, 7, 8, 9, 12, 16]))
    planes, ports = (int(rng.choice([1, 1, 1, 2])) for _ in range(2))
    late = {str(int(rng.integers(n))): float(10 ** rng.uniform(-6, -3))}
    fields: dict[str, Any] = {
        "hop_s": [None, 1e-6][int(rng.random() < 0.3)],
        "two_way": bool(rng.random() < 0.3),
        "start": ["free", "dark"][int(rng.random() < 0.5)],
        "late_s": late if rng.random() < 0.3 else {},
    }
    return om.Collective(
        "all-reduce", n, float(10 ** rng.uniform(2, 8)), alpha_s=float(10 ** rng.uniform(-7, -5)),
        delay_s=float(10 ** rng.uniform(-7, -3)), planes=planes, ports=ports, **fields,
    )  # fmt: skip


def compose(problem: om.Collective) -> float:
    """Return the least time of compositions, by times and last circuits alone."""
    whole = replace(
        problem, operation="all-gather", size_bytes=problem.n_ranks * problem.size_bytes
    )
    least = om.solve(whole, seed=0).objective
    scattered = om.solve(replace(problem, operation="reduce-scatter"), seed=0)
    for start in ("dark", _ends_with(problem, scattered.answer)):
        then = replace(problem, operation="all-gather", start=start, late_s={})
        gathered = om.solve(then, seed=0).objective
        assert isinstance(least, float) and isinstance(gathered, float)
        least = min(least, float(scattered.answer.time_s) + gathered)
    assert isinstance(least, float)
    return least


def _ends_with(problem: om.Collective, plan: om.CollectivePlan) -> Any:
    """Return the circuits of all lanes at the end."""
    last = np.full((problem.lanes, problem.n_ranks), -1, dtype=np.int32)
    for turn, epoch in enumerate(plan.epoch_of_round.tolist()):
        for lane in range(problem.lanes):
            if not plan.shares_bytes.size or plan.shares_bytes[turn, lane // problem.ports] > 0:
                last[lane] = plan.circuits[epoch, lane]
    return last


@pytest.mark.parametrize("seed", range(examples(6, plain=6)))
def test_compositions_of_our_own_operations_are_never_faster(seed: int) -> None:
    problem = draw(np.random.default_rng(seed))
    solution = om.solve(problem, seed=0)
    assert solution.objective is not None and om.verify(problem, solution).valid
    assert solution.objective <= compose(problem) * (1 + 1e-9)


def test_a_torus_of_few_sends_is_nearly_as_fast() -> None:
    problem = om.Collective("all-reduce", 1024, 1e9, alpha_s=1e-6, delay_s=1e-5)
    fastest = choose_torus(problem)
    assert fastest.count_sends(1024) > 2_000_000
    light = choose_torus_within(problem, 600_000)
    assert light.count_sends(1024) < 600_000
    assert fastest.seconds < light.seconds < 1.002 * fastest.seconds


@pytest.mark.parametrize("two_way", [False, True])
def test_plans_of_few_sends_are_right_and_keep_their_promise(two_way: bool) -> None:
    problem = om.Collective("all-reduce", 32, 1e8, alpha_s=1e-6, delay_s=1e-5, two_way=two_way)
    for most_sends in (2200, 1200, 600, 0):
        sides = choose_torus_within(problem, most_sends)
        plan = lay(problem, list_torus_rounds(32, sides)).plan
        assert len(plan.sends) <= sides.count_sends(32)
        assert plan.time_s == pytest.approx(sides.seconds)
        assert om.verify(problem, plan).ok and compute(problem, plan)

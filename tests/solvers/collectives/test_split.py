"""Blocks that split: against all sequences of a few matchings, and in the large."""

from dataclasses import replace
from itertools import combinations, pairwise, permutations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

import optmatch as om
from optmatch.solvers.collectives import split
from tests.helpers.collectives import compute
from tests.helpers.modes import examples

UNIT: dict[str, Any] = {"alpha_s": 1.0, "rate_bytes_per_s": 1.0, "delay_s": 1.0}


def ask(demand: Any, **fields: Any) -> om.Collective:
    """Return an all-to-all of whole seconds."""
    return om.Collective(
        "all-to-all", len(demand), 0, demand_bytes=demand, **(UNIT | {"start": "dark"} | fields)
    )


def optimum(problem: om.Collective, most: int = 4) -> float:
    """Return the least time over all sequences of so many matchings, a programme for each."""
    n, demand = problem.n_ranks, problem.demand
    ways = [p for p in permutations(range(n)) if sum(k == v for k, v in enumerate(p)) < 2]
    least, dark = np.inf, problem.start == "dark"
    bytes_ = max(float(demand.sum(axis=axis).max()) for axis in (0, 1))
    for count in range(1, most + 1):
        for chosen in product(ways, repeat=count):
            changes = sum(a != b for a, b in pairwise(chosen)) + dark
            fixed = count * problem.alpha_s + changes * problem.delay_s
            if fixed + bytes_ / problem.rate_bytes_per_s < least * (1 - 1e-9):
                least = min(least, fixed + _loads(demand, chosen) / problem.rate_bytes_per_s)
    return float(least)


def _loads(demand: NDArray[np.float64], ways: tuple[tuple[int, ...], ...]) -> float:
    """Add up what the busiest rank sends in each round, with the best routes."""
    n, count = len(demand), len(ways)
    columns, blocks = [], []
    for source in range(n):
        for hops in range(1, count + 1):
            for turns in combinations(range(count), hops):
                at, used = source, []
                for turn in turns:
                    used.append(turn * n + at)
                    at = ways[turn][at]
                if demand[source, at] > 0:
                    columns.append(used)
                    blocks.append(source * n + at)
    wanted = np.flatnonzero(demand.reshape(-1) > 0)
    if not set(wanted.tolist()) <= set(blocks):
        return np.inf
    total = len(columns)
    most = np.zeros((count * n, total + count))
    for k, used in enumerate(columns):
        np.add.at(most[:, k], used, 1.0)
    most[np.arange(count * n), total + np.arange(count * n) // n] = -1.0
    sums = (np.array(blocks) == wanted[:, None]).astype(np.float64)
    sums = np.hstack([sums, np.zeros((len(wanted), count))])
    goal = np.append(np.zeros(total), np.ones(count))
    found = linprog(
        goal, A_ub=most, b_ub=np.zeros(count * n), A_eq=sums, b_eq=demand.reshape(-1)[wanted]
    )
    return float(found.fun)


def draw(seed: int) -> om.Collective:
    """Draw a small uneven all-to-all."""
    rng = np.random.default_rng(seed)
    n = 3 + seed % 2
    demand = rng.integers(0, 10, (n, n)) * rng.integers(0, 2, (n, n), endpoint=True)
    np.fill_diagonal(demand, 0)
    demand[0, 1] += 1
    alpha_s, delay_s = rng.choice([0.25, 1.0, 3.0], 2)
    start = ["dark", "free"][int(rng.random() < 0.3)]
    return ask(demand.astype(float), alpha_s=float(alpha_s), delay_s=float(delay_s), start=start)


def test_a_block_goes_by_two_ways() -> None:
    """In 12 s; whole blocks need 13 s."""
    problem = ask([[0, 7, 1], [2, 0, 0], [7, 0, 0]])
    best = om.solve(problem, seed=0)
    assert best.objective == pytest.approx(12.0) == optimum(problem)
    assert best.answer.among == "all" and len(best.answer.parts)
    assert compute(problem, best.answer)
    pairs = om.solve(problem, "pairwise", seed=0)
    whole = replace(pairs.answer, among="whole-blocks")
    report = om.verify(problem, replace(pairs, answer=whole))
    assert report.valid
    assert "the claims are of plans that send whole blocks" in report.notes


@pytest.mark.parametrize("seed", [k for k in range(examples(8, plain=4))])
def test_small_ones_are_optimal(seed: int) -> None:
    """Within 1 %; and no bound is above what is possible."""
    problem = draw(seed)
    solution, least = om.solve(problem, seed=0), optimum(problem, 4 if seed % 2 == 0 else 3)
    assert solution.objective is not None and isinstance(solution.lower_bound, float)
    assert solution.lower_bound <= least * (1 + 1e-9)
    assert solution.objective <= least * 1.01
    assert om.verify(problem, solution).ok and compute(problem, solution.answer)


def test_who_mainly_sends_has_ports_idle() -> None:
    """No circuits are faster than the bound; rank 2 sends 39 bytes and receives 15."""
    problem = ask([[0, 4, 6], [9, 0, 9], [18, 21, 0]], delay_s=0.25)
    assert problem.lower_bound() == pytest.approx(41.5) == optimum(problem)
    rng = np.random.default_rng(0)
    for _ in range(40):
        demand = rng.integers(0, 9, (5, 5)) * rng.integers(1, 6, 5) * rng.integers(1, 6, (5, 1))
        np.fill_diagonal(demand, 0)
        problem = ask(demand, alpha_s=0.1, delay_s=float(rng.choice([1.0, 30.0])))
        ways = tuple(tuple(rng.permutation(5)) for _ in range(2))
        chosen = tuple(way for way in ways for _ in range(2))
        fixed_s = 2 * problem.delay_s + 4 * problem.alpha_s
        assert problem.lower_bound() <= (fixed_s + _loads(problem.demand, chosen)) * (1 + 1e-9)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"ports": 2},
        {"planes": 2, "start": "free"},
        {"hop_s": 0.5},
        {"late_s": {"2": 30.0, "5": 3.0}},
        {"start": np.roll(np.arange(9), -1)[None]},
    ],
)
def test_plans_are_right_and_as_fast_as_whole_blocks(fields: Any) -> None:
    """With lanes, planes, hops, late ranks, and circuits that are there."""
    rng = np.random.default_rng(1)
    demand = np.round(rng.exponential(5.0, (9, 9)))
    np.fill_diagonal(demand, 0.0)
    problem = ask(demand, **fields)
    solution = om.solve(problem, "split", seed=0)
    assert om.verify(problem, solution).ok and compute(problem, solution.answer)
    for method in ("pairwise", "bruck"):
        other = om.solve(problem, method, seed=0).objective
        assert other is not None and solution.objective <= other * (1 + 1e-9)


def test_late_ranks_are_waited_for_while_others_send() -> None:
    """Two pairs of which one is late: its block is all that is left when it is ready."""
    demand = np.zeros((6, 6))
    demand[:4, :4] = 5.0
    demand[4, 5] = 2.0
    np.fill_diagonal(demand, 0.0)
    problem = ask(demand, late_s={"4": 60.0})
    solution = om.solve(problem, "split", seed=0)
    assert solution.objective == pytest.approx(60.0 + 1.0 + 2.0)


@pytest.mark.parametrize("seed", range(3))
def test_drawn_paths_are_as_good_as_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes over five rounds are within 1 % of those with all paths."""
    monkeypatch.setattr(split, "LEAST_DRAWN_RANKS", 2)
    rng = np.random.default_rng(seed)
    demand = np.round(rng.exponential(5.0, (8, 8)) ** 2)
    np.fill_diagonal(demand, 0.0)
    shifts = np.array([1, 3, 1, 2, 5])
    sequence = (np.arange(8) + shifts[:, None]) % 8
    problem = ask(demand, alpha_s=0.0, delay_s=0.0)
    found = split.SplitSearch(problem, om.Limits().start())._route(sequence[:, None])
    assert found is not None
    least = _loads(demand, tuple(map(tuple, sequence.tolist())))
    assert least * (1 - 1e-9) <= found.time_s <= least * 1.01


def test_blocks_that_are_tiny_beside_others_are_sent() -> None:
    """The programme keeps to its equations up to a tolerance, in which a block of 18 B is lost."""
    demand = np.random.default_rng(9).random((9, 9)) ** 3 * 1e8
    np.fill_diagonal(demand, 0.0)
    problem = om.Collective(
        "all-to-all", 9, 0.0, demand_bytes=demand, ports=2, alpha_s=1e-6, delay_s=1e-4
    )
    solution = om.solve(problem, "split", seed=0, limits=om.Limits(iterations=20))
    assert solution.objective >= problem.lower_bound()


def test_parts_of_small_blocks_lie_end_to_end() -> None:
    """Blocks of a byte stand behind a billion times as many, each cut into parts at random."""
    rng = np.random.default_rng(1)
    n = 6
    demand = rng.uniform(1e9, 2e9, (n, n))
    demand[:, ::2] = rng.uniform(1.0, 2.0, (n, n // 2))
    np.fill_diagonal(demand, 0)
    problem = om.Collective("all-to-all", n, 0.0, demand_bytes=demand, rate_bytes_per_s=1e9)
    search = split.SplitSearch(problem, om.Limits().start())
    sequence = np.array([[np.roll(np.arange(n), -turn)] for turn in (1, 2, 3, 4, 5, 1, 2)])
    paths = split.list_paths(search.demand_s, sequence, every=True)
    assert paths is not None
    amounts = search._carry_whole_blocks(paths, rng.random(len(paths.block)))
    assert om.verify(problem, search._lay(sequence, paths, amounts).plan).ok

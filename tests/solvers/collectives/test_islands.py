"""Islands: data of real numbers, a flat rival that is never faster, and the stated figures."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import optmatch as om
from optmatch.solvers.collectives import islands
from optmatch.solvers.collectives.islands import find_island_plan
from tests.helpers.collectives import compute
from tests.helpers.modes import SOAK, compiled_only, examples

OPERATIONS: tuple[Any, ...] = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")


def rival_s(problem: om.Collective) -> float:
    """Count the time of whole buffers: islands, then rails one island onward at a time.

    Blocks of an all-to-all go to the place of their goal inside islands first, then over rails to
    the islands 1, 2, ... onward, with new circuits for each.
    """
    members, n = problem.island, problem.n_ranks
    islands, block = n // members, problem.size_bytes / n
    links = problem.island_rate_bytes_per_s

    def inside_s(blocks: float) -> float:
        return (problem.island_alpha_s + blocks * block / links) if members > 1 else 0.0

    around_s = (islands - 1) * (problem.alpha_s + block / problem.rate_bytes_per_s)
    dark_s = problem.delay_s * (problem.start == "dark")
    gather_s = around_s + inside_s((members - 1) * islands)
    if problem.operation == "all-reduce":
        return dark_s + 2 * gather_s
    if problem.operation != "all-to-all":
        return dark_s + gather_s
    each_s = problem.alpha_s + members * block / problem.rate_bytes_per_s
    changes_s = max(islands - 2, 0) * problem.delay_s
    return dark_s + inside_s((members - 1) * islands) + (islands - 1) * each_s + changes_s


@st.composite
def island_problems(draw: st.DrawFn) -> om.Collective:
    """Draw a collective of a few islands."""
    island, islands = draw(st.integers(2, 4)), draw(st.integers(1, 5))
    amounts = st.sampled_from([0.0, 1e-6, 5e-6])
    return om.Collective(
        draw(st.sampled_from(OPERATIONS)),
        island * islands,
        draw(st.sampled_from([1e3, 1e6, 1e9])),
        alpha_s=draw(amounts),
        delay_s=draw(st.sampled_from([0.0, 1e-6, 1e-4])),
        rate_bytes_per_s=draw(st.sampled_from([1e9, 50e9, 900e9])),
        start=draw(st.sampled_from(["free", "dark"])),
        island=island,
        island_rate_bytes_per_s=draw(st.sampled_from([1e9, 450e9])),
        island_alpha_s=draw(amounts),
    )


@given(island_problems())
@settings(max_examples=examples(9, plain=8))
def test_islands_end_with_their_data_and_no_later_than_a_flat_rival(problem: Any) -> None:
    solution: Any = om.solve(problem, seed=0)
    assert compute(problem, solution.answer)
    faster = problem.island_rate_bytes_per_s >= problem.rate_bytes_per_s
    if faster and problem.island_alpha_s <= problem.alpha_s:  # else rails need not wait for links
        assert solution.objective <= rival_s(problem) * (1 + 1e-9)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("islands", "size", "gap"), [(8, 1e7, 0.13), (2, 1e9, 0.04), (8 if SOAK else 4, 1e9, 0.04)]
)
def test_buffers_end_near_the_bound(operation: Any, islands: int, size: float, gap: float) -> None:
    """Phases of different waves go on together; of 1 GB what islands hand on is hidden."""
    problem = om.Collective(
        operation, 8 * islands, size, alpha_s=1.7e-6, delay_s=1e-5, island=8, island_alpha_s=7e-7
    )
    assert om.solve(problem, seed=0).gap <= gap


def test_links_that_start_slowly_are_used_in_few_rounds() -> None:
    """Copies that rails do not wait for share a round with others, which it makes longer."""
    problem = om.Collective(
        "all-gather", 16, 800.0, rate_bytes_per_s=1e9, delay_s=1e-3, island=4, island_alpha_s=7e-7
    )
    solution = om.solve(problem, seed=0)
    assert 2 * 7e-7 <= solution.objective < 3 * 7e-7


def test_circuits_that_are_there_cost_nothing() -> None:
    fields: Any = {"alpha_s": 1e-6, "delay_s": 1e-3, "island": 2}
    ring: Any = [[2, 3, 4, 5, 0, 1]]
    times: Any = [
        om.solve(om.Collective("all-gather", 6, 1e9, start=start, **fields), seed=0).objective
        for start in ("free", ring, "dark")
    ]
    assert times[1] <= times[2] == pytest.approx(times[0] + 1e-3)


def test_the_table_tells_the_link_of_each_send() -> None:
    solution = om.solve(om.Collective("all-gather", 4, 4e6, island=2), seed=0)
    table = solution.to_dataframe()
    inside = table["source"] // 2 == table["destination"] // 2
    assert ((table["link"] == "island") == inside).all()
    assert set(table["link"]) == {"island", "rail"}


def test_short_time_leaves_out_plans_of_many_sends_alone() -> None:
    """Without time there is one wave, but all schemes have been seen and the best is taken."""
    problem = om.Collective(
        "all-gather", 64, 1e9, alpha_s=2.7e-6, delay_s=1e-5, rate_bytes_per_s=1e9, island=4
    )
    at_once, limit_at_once = find_island_plan(problem, _clock_with(0.0))
    at_leisure, limit_at_leisure = find_island_plan(problem, _clock_with(60.0))
    assert limit_at_once is om.Limit.TIME
    assert limit_at_leisure is None
    assert len(at_once.plan.sends) == 64 * 63
    assert len(at_leisure.plan.sends) > len(at_once.plan.sends)

    # Small data gain nothing by waves, so the best scheme of all is found at once.
    small = replace(problem, size_bytes=1e3)
    at_once, _ = find_island_plan(small, _clock_with(0.0))
    at_leisure, _ = find_island_plan(small, _clock_with(60.0))
    assert at_once.plan.time_s == at_leisure.plan.time_s


@compiled_only
def test_sums_of_large_islands_keep_to_a_short_limit() -> None:
    """Before, 4,096 ranks took 1.8 s: each addition to a sum copied all that still waited."""
    options: dict[str, Any] = {"alpha_s": 2e-6, "delay_s": 1e-5, "island_rate_bytes_per_s": 4e11}
    om.solve(om.Collective("reduce-scatter", 128, 1e6, island=8, **options))  # loads kernels
    problem = om.Collective("reduce-scatter", 4096, 1e6, island=64, **options)
    begin_s = time.process_time()
    solution = om.solve(problem, limits=om.Limits(time_s=1.0))
    assert time.process_time() - begin_s < 1.2
    assert solution.objective <= 1.1 * problem.lower_bound()


@pytest.mark.parametrize("method", ["islands", "best"])
def test_plans_too_large_for_memory_are_not_said_to_lack_time(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Only plans of one wave are small enough; without a limit of time, time is not the reason."""
    problem = om.Collective(
        "all-gather", 64, 1e9, alpha_s=2.7e-6, delay_s=1e-5, rate_bytes_per_s=1e9, island=4
    )
    monkeypatch.setattr(islands, "MOST_SENDS", 64 * 63)
    solution = om.solve(problem, method, seed=0)
    assert solution.limit is om.Limit.MEMORY
    assert len(solution.answer.sends) == 64 * 63


def _clock_with(remaining_s: float) -> Any:
    """Return a clock that stands still."""
    return SimpleNamespace(remaining_s=remaining_s)

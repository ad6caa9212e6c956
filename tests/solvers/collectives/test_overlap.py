"""Planes that change circuits while others send: the published figures, corrected."""

from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.solvers.collectives import overlap


def steps_of(configurations: Any, megabytes: Any, **fields: Any) -> om.Collective:
    """Return steps from outside: 0.2 ms for new circuits, 20 us for each step."""
    table = np.column_stack([configurations, np.asarray(megabytes) * 1e6])
    costs: dict[str, Any] = {"alpha_s": 2e-5, "delay_s": 2e-4, "rate_bytes_per_s": 50e9}
    return om.Collective("all-reduce", 8, 1.0, steps=table, **(costs | fields))


def halving_doubling(ranks: int) -> tuple[list[int], list[float]]:
    """Return the steps of an all-reduce of 32 MB."""
    levels = list(range(1, ranks.bit_length()))
    sizes = [32 / 2**level for level in levels]
    return levels + levels[::-1], sizes + sizes[::-1]


REDUCE = halving_doubling(8)
PAIRS = ([1, 2, 3, 4], [8.0] * 4)


@pytest.mark.parametrize(
    ("steps", "fields", "microseconds"),
    [
        (REDUCE, {"planes": 2}, 1140),
        (REDUCE, {"planes": 2, "start": "dark"}, 1340),
        (PAIRS, {"planes": 4, "rate_bytes_per_s": 25e9}, 740),
        (PAIRS, {"planes": 4, "rate_bytes_per_s": 25e9, "start": "dark"}, 940),
        (([1, 2, 1], [1.0] * 3), {"planes": 2, "delay_s": 0.01, "start": "dark"}, 10120),
        (([1, 2, 2, 1], [1.0] * 4), {"planes": 2, "delay_s": 0.002, "start": "dark"}, 2160),
        (([1, 2, 3, 3], [8.0, 4.0, 2.0, 2.0]), {"planes": 2, "start": "dark"}, 670),
    ],
)
def test_swot_comes_out_and_is_proved(
    steps: Any, fields: dict[str, Any], microseconds: int
) -> None:
    problem = steps_of(*steps, **fields)
    solution = om.solve(problem, seed=0)
    assert solution.objective == pytest.approx(microseconds * 1e-6, rel=1e-6)
    assert solution.status is om.Status.OPTIMAL


@pytest.mark.parametrize(
    ("configurations", "planes", "set_ups"),
    [
        ([0, 1, 0, 1], 1, 4),
        ([0, 1, 2, 0, 1], 1, 5),
        ([0, 1, 2, 0, 1], 2, 4),  # the circuits that are needed again first stay (Belady)
        ([0, 1, 2, 0, 1], 3, 3),
        ([4, 4, 4], 2, 1),
    ],
)
def test_circuits_that_come_back_are_set_up_again(
    configurations: list[int], planes: int, set_ups: int
) -> None:
    # Without bytes to speak of the bound is the work of all set-ups, divided among the planes.
    costs: dict[str, Any] = {"delay_s": 1.0, "alpha_s": 0.0, "planes": planes, "start": "dark"}
    problem = steps_of(configurations, [1e-6] * len(configurations), **costs)
    assert problem.lower_bound() == pytest.approx(max(1.0, set_ups / planes), rel=1e-6)


@pytest.mark.parametrize("start", ["free", "dark"])
@pytest.mark.parametrize("hop_s", [None, 3e-5])
def test_steps_over_one_plane_are_proved_by_counting(start: str, hop_s: float | None) -> None:
    # Steps follow each other, so that no plan of one plane has a choice; hops take their time.
    problem = steps_of([1, 2, 2, 1], [8.0, 4.0, 2.0, 1.0], start=start, hop_s=hop_s)
    solution = om.solve(problem)
    expected_s = 4 * (2e-5 + (hop_s or 0.0)) + 15e6 / 50e9 + (2 + (start == "dark")) * 2e-4
    assert solution.objective == pytest.approx(expected_s, rel=1e-9)
    assert om.verify(solution).ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "cut"),
    [
        (halving_doubling(64), 0.396),
        (halving_doubling(512), 0.469),
        ((range(9), [32 / 9] * 9), 0.454),
    ],
)
def test_the_cuts_are_those_of_swot_at_least(steps: Any, cut: float) -> None:
    problem = steps_of(*steps, planes=4, rate_bytes_per_s=25e9)
    configurations, megabytes = steps
    changes = int((np.diff(list(configurations)) != 0).sum())
    together = sum(2e-5 + size * 1e6 / 100e9 for size in megabytes) + changes * 2e-4
    solution = om.solve(problem, seed=0)
    assert 1 - solution.objective / together >= cut


def test_planes_beat_a_schedule_that_stops_them_all() -> None:
    problem = om.Collective("all-reduce", 8, 3.2e7, alpha_s=2e-5, delay_s=2e-4, planes=2)
    overlap, together = (
        om.solve(problem, name, seed=0).objective for name in ("overlap", "halving-doubling")
    )
    best = om.solve(problem, seed=0)
    assert overlap is not None and together is not None
    assert overlap < together
    assert best.objective == overlap or best.objective < overlap


@pytest.mark.parametrize("planes", [3, 20])
def test_too_many_parts_are_shared_evenly(planes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "PROGRAMME_EFFORT", 0)
    problem = om.Collective("all-gather", 4, 1e6, alpha_s=1e-6, delay_s=1e-5, planes=planes)
    solution = om.solve(problem, "overlap", seed=0)
    assert om.verify(problem, solution).ok
    for shares in solution.answer.shares_bytes:
        assert np.allclose(shares[shares > 0], shares.max(), rtol=1e-12)


def test_a_rank_that_is_very_late_leaves_a_valid_plan() -> None:
    """Shares of picoseconds at a million seconds are lost in rounding, and nothing is wrong."""
    fields: dict[str, Any] = {"rate_bytes_per_s": 1e12, "delay_s": 1e3, "late_s": {0: 1e6}}
    late = om.Collective("all-reduce", 4, 8, planes=2, **fields)
    assert om.solve(late, method="overlap").objective == pytest.approx(1e6, rel=1e-12)

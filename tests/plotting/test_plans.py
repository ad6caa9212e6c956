"""Plans side by side, what is left of a demand, and best and bound against time."""

from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import Bound, NewBest, Tick
from optmatch.plotting import left_bytes, plot_left, plot_plans, plot_progress
from optmatch.sweeps.library import Library


def solve_drawn(seed: int, **options: Any) -> om.Solution:
    sizes = np.random.default_rng(seed).integers(0, 9, (4, 4)).astype(float)
    problem = om.Demand(om.IdealSwitch(4), sizes, delay_s=1.0, rate_bytes_per_s=2.0, **options)
    return om.solve(problem, "solstice", seed=0)


@pytest.mark.parametrize("options", [{}, {"planes": 2}, {"switching": "per-circuit"}])
def test_what_is_left_agrees_with_a_replay_in_small_steps(options: dict[str, Any]) -> None:
    solution = solve_drawn(len(options), **options)
    answer: Any = solution.schedule or solution.answer
    end_s: Any = solution.objective
    times = np.linspace(0.0, end_s, 7)
    counted = left_bytes(solution, times)
    for time_s, found in zip(times, counted, strict=True):
        rest: Any = solution.problem.demand_bytes.copy()  # type: ignore[attr-defined]
        carried = np.zeros_like(rest)
        for schedule in getattr(answer, "schedules", (answer,)):
            clock, before = 0.0, np.full(4, -1)
            for matching, lasts in zip(schedule.matchings, schedule.durations_s, strict=True):
                end = clock + schedule.delay_s + lasts
                for source, destination in enumerate(matching.tolist()):
                    stays = "switching" in options and before[source] == destination
                    begin = clock + (0.0 if stays else schedule.delay_s)
                    if destination >= 0:
                        carried[source, destination] += 2.0 * max(0.0, min(time_s, end) - begin)
                clock, before = end, matching
        if "planes" not in options:  # planes may serve one pair at once, in an order of their own
            np.testing.assert_allclose(found, np.maximum(rest - carried, 0.0), atol=1e-9)
        assert (found >= rest - carried - 1e-9).all()
    assert (counted[0] == solution.problem.demand_bytes).all()  # type: ignore[attr-defined]
    assert not counted[-1].any()
    figure = plot_left(solution)
    assert [ax.get_title().split(",")[0] for ax in figure.axes[:3]] == [
        "before",
        "during",
        "after",
    ]


def test_plans_share_one_axis_of_time() -> None:
    demand = solve_drawn(3)
    job = om.solve(Library().problem("rails/dense-32"), "provisioned", seed=0)
    figure = plot_plans([demand, om.solve(demand.problem, "tms", seed=0), job])
    assert len({ax.get_xlim() for ax in figure.axes}) == 1
    names = [ax.get_title().split(":")[0] for ax in figure.axes]
    assert names == ["solstice", "tms", "provisioned"]
    assert plot_plans([demand, demand], ["a", "b"]).axes[1].get_title().startswith("b: ")


def test_progress_draws_the_last_of_each() -> None:
    ax = plot_progress(
        [(0.5, Bound(2.0)), (1.0, NewBest(9.0)), (1.5, Tick("search", 1)), (2.0, NewBest(4.0))]
    )
    best, bound = ax.get_lines()
    assert np.asarray(best.get_xdata()).tolist() == [1.0, 2.0, 2.0] and np.asarray(
        best.get_ydata()
    ).tolist() == [9.0, 4.0, 4.0]
    assert np.asarray(bound.get_xdata()).tolist() == [0.5, 2.0] and np.asarray(
        bound.get_ydata()
    ).tolist() == [2.0, 2.0]
    (gap,) = ax.collections
    assert gap.get_paths()[0].get_extents().get_points().tolist() == [[1.0, 2.0], [2.0, 9.0]]
    levels = plot_progress([(0.0, NewBest((3, 1))), (1.0, NewBest((2, 7)))])
    assert np.asarray(levels.get_lines()[0].get_ydata()).tolist() == [3, 2, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: plot_progress([(0.0, Tick("search", 1))]), "neither a best answer nor a bound"),
        (lambda s: plot_plans([s]), "2 to 8 plans"),
        (lambda s: plot_plans([s, s], ["a"]), "1 names of 2 plans"),
        (lambda s: left_bytes(s, [-1.0]), "finite numbers >= 0"),
        (lambda s: plot_left(s, []), "1 to 8 times"),
        (lambda s: plot_left(om.solve(om.Routing(om.IdealSwitch(2), [1, 0]))), "of kind routing"),
    ],
)
def test_what_cannot_be_drawn_is_said(call: Any, message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        call(solve_drawn(5))

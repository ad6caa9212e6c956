"""What is left of a demand while its schedule runs."""

from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.plotting import left_bytes, plot_left


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: left_bytes(s, [-1.0]), "finite numbers >= 0"),
        (lambda s: plot_left(s, []), "1 to 8 times"),
        (lambda s: plot_left(om.solve(om.Routing(om.IdealSwitch(2), [1, 0]))), "of kind routing"),
    ],
)
def test_what_cannot_be_drawn_is_said(call: Any, message: str) -> None:
    with pytest.raises(om.InputError, match=message):
        call(solve_drawn(5))

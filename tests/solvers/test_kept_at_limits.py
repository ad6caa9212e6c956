"""An answer that was told is not lost, wherever the time ends or a signal comes after it.

The clock of these runs stands still. At one of the looks that a method takes at it, counted from
the start, the time is suddenly over, or the run is interrupted. So a moment is the same in each
run, however busy the machine is.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest

from optmatch.kinds import default_method, find_method
from optmatch.model import Clock, Event, Limits, NewBest, Problem, Score, Solution, TimeUp
from tests.helpers.flows import FLOWS, Flow
from tests.helpers.modes import compiled_only

pytestmark = [pytest.mark.slow, compiled_only]

MANY_LOOKS = 200
"""A method that looks more often has its time ended then."""


class Run(NamedTuple):
    """How a run ended, and what it told until then."""

    solution: Solution | None
    told: list[Score]
    looks: int
    looks_at_first_best: int


def run_until(flow: Flow, problem: Problem[Any], last_look: int, *, interrupted: bool) -> Run:
    """Run the method of a flow until a look at the clock, and let it end then."""
    looks = 0
    told: list[Score] = []
    looks_at_best: list[int] = []

    def now() -> float:
        nonlocal looks
        looks += 1
        if looks < last_look:
            return 0.0
        if interrupted:
            clock.interrupted = True
            return 0.0
        return 1e12

    def listen(event: Event) -> None:
        if isinstance(event, NewBest):
            told.append(event.objective)
            looks_at_best.append(looks)
        if clock.interrupted:
            raise KeyboardInterrupt

    clock = Clock(limits=Limits(time_s=1e9), now=now, started=0.0)
    words = flow.options.split()
    method = default_method(problem)
    if "--method" in words:
        method = find_method(words[words.index("--method") + 1], problem)
    rng = np.random.default_rng(0)
    solution: Solution | None = None
    with clock.running():
        try:
            solution = method.run(problem, Limits(time_s=1e9), rng, listen)
        except (TimeUp, KeyboardInterrupt):
            assert not told, "an answer that was told is lost"
    return Run(solution, told, looks, looks_at_best[0] if looks_at_best else 0)


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_what_was_told_is_returned(flow: Flow) -> None:
    """Right after the first best, in the middle, and at the last look."""
    problem = flow.problem()
    whole = run_until(flow, problem, MANY_LOOKS, interrupted=False)
    if not whole.told:
        pytest.skip("tells of nothing before its answer")
    first = whole.looks_at_first_best + 1
    moments = {first, (first + whole.looks) // 2, whole.looks}
    for last_look in sorted(moments):
        for interrupted in (False, True):
            ended = run_until(flow, problem, last_look, interrupted=interrupted)
            if ended.told:
                assert ended.solution is not None
                assert ended.solution.objective is not None, (last_look, interrupted)
                assert is_as_good(ended.solution.objective, ended.told[-1])


def is_as_good(objective: Score, told: Score) -> bool:
    """Tell whether an objective is no worse than one that was told, up to rounding."""
    if isinstance(objective, tuple) or isinstance(told, tuple):
        return bool(objective <= told)
    return bool(objective <= told * (1 + 1e-9))

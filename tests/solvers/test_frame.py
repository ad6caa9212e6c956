"""The frame of searches: why it stops, what is best, and what is proved of it."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import Bound, Event, Limit, Limits, NewBest, Status, Tick, TimeUp, ignore
from optmatch.solvers.frame import conclude, take_best

PROBLEM = om.AllToAll(om.IdealSwitch(2))


@pytest.mark.parametrize(
    ("costs", "bound", "expected"),
    [
        ([5, None, 3, 4], 0, (2, Limit.EXHAUSTED, 4)),
        ([5, 3, 2], 3, (1, None, 2)),
        ([5, 3, 2], 3 * (1 - 1e-12), (1, None, 2)),
        ([5, 3, 2], 2.9, (2, None, 3)),
        ([None, None], 1, (None, Limit.EXHAUSTED, 2)),
        ([4, 4], 1, (0, Limit.EXHAUSTED, 2)),
        ([], 0, (None, Limit.EXHAUSTED, 0)),
        ([0, 1], 0, (0, None, 1)),
    ],
)
def test_the_best_of_what_comes_is_taken(
    costs: list[Any], bound: float, expected: tuple[Any, ...]
) -> None:
    events: list[Event] = []
    answers = iter([None if cost is None else (cost, k) for k, cost in enumerate(costs)])
    clock = Limits().start()
    assert take_best(answers, bound, clock, events.append, "tries", 7) == expected
    told = [event.objective for event in events if isinstance(event, NewBest)]
    seen = [cost for cost in costs[: expected[2]] if cost is not None]
    assert told == sorted({min(seen[: k + 1]) for k in range(len(seen))}, reverse=True)
    ticks = [event for event in events if isinstance(event, Tick)]
    asked = expected[2] + (expected[1] is Limit.EXHAUSTED)
    assert ticks == [Tick("tries", done, 7) for done in range(asked)]


def test_limits_end_it_with_the_best_so_far() -> None:

    def run(costs: list[float], **options: Any) -> Any:
        limits, rest = Limits(**options.pop("limits", {})), options
        answers = iter([(cost, k) for k, cost in enumerate(costs)])
        return take_best(answers, 1.0, limits.start(), ignore, "tries", **rest)

    assert run([5, 4, 3], limits={"iterations": 2}) == (1, Limit.ITERATIONS, 2)
    assert run([5, 4, 2, 3], limits={"gap": 0.5}) == (2, Limit.GAP, 3)
    assert run([5, 4, 2.01, 3], limits={"gap": 0.5})[1] is Limit.EXHAUSTED
    assert run([5, 5, 6], ties=True)[0] == 1
    assert run([1.4], rtol=0.5) == (0, None, 1)
    for stop, limit in ((KeyboardInterrupt, Limit.INTERRUPTED), (TimeUp, Limit.TIME)):

        def answers(stop: type[BaseException] = stop) -> Iterator[tuple[float, str]]:
            yield 3.0, "a"
            raise stop

        clock = Limits().start()
        assert take_best(answers(), 0.0, clock, ignore, "tries") == ("a", limit, 1)

    def hear(event: Event) -> None:
        if isinstance(event, NewBest):
            raise KeyboardInterrupt

    stopped = take_best(iter([(3.0, "a")]), 0.0, Limits().start(), hear, "tries")
    assert stopped == ("a", Limit.INTERRUPTED, 1)


def test_a_bound_among_the_answers_ends_the_search() -> None:
    events: list[Event] = []
    clock = Limits(iterations=3).start()
    stream: Iterator[tuple[float, str] | Bound | None]
    stream = iter([(5.0, "a"), Bound(2.0), Bound(1.0), (3.0, "b"), (2.0, "c"), (1.0, "d")])
    assert take_best(stream, 0.5, clock, events.append, "tries") == ("c", None, 3)
    bounds = [event.lower_bound for event in events if isinstance(event, Bound)]
    assert bounds == [0.5, 2.0, 1.0]
    worse: list[tuple[float, str]] = [(5.0, "a")]
    start = 4.0, "start"
    found = take_best(iter(worse), 0.0, clock, ignore, "tries", start=start)
    assert found == ("start", Limit.EXHAUSTED, 1)
    met = take_best(iter(worse), 4.0, clock, ignore, "tries", start=start)
    assert met == ("start", None, 0)


@pytest.mark.parametrize(
    ("objective", "bound", "status"),
    [
        (None, math.inf, Status.INFEASIBLE),
        (None, 3.0, Status.UNKNOWN),
        (3.0, 3.0, Status.OPTIMAL),
        (3.0, 3.0 * (1 - 1e-12), Status.OPTIMAL),
        (3.0, math.inf, Status.OPTIMAL),
        (3.0, 2.9, Status.FEASIBLE),
    ],
)
def test_what_is_proved_has_no_limit(
    objective: float | None, bound: float, status: Status
) -> None:
    schedule = om.Schedule(matchings=np.array([[1, 0]], dtype=np.int32), durations_s=np.ones(1))
    known: dict[str, Any] = {} if objective is None else {"schedule": schedule}
    found = conclude(PROBLEM, "tests", objective, bound, **known)
    assert (found.status, found.objective) == (status, objective)
    proved = status in (Status.OPTIMAL, Status.INFEASIBLE)
    assert found.limit is (None if proved else Limit.EXHAUSTED)
    assert found.lower_bound == (bound if objective is None else min(bound, objective))
    stopped = conclude(PROBLEM, "tests", objective, bound, Limit.TIME, **known)
    assert stopped.limit is (None if proved else Limit.TIME)

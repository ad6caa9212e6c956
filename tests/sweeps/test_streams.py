"""Calls through executors: their order, their errors, and a study that is the same on any."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

import optmatch as om
from optmatch.model import OnEvent, ignore
from optmatch.sweeps.processes import in_order, stream


class Backwards(Executor):
    """Runs four calls when it has them, the last one first."""

    ahead = 4

    def __init__(self, rest: int) -> None:
        self.rest = rest
        self.calls: list[Any] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Keep a call, or run all that are kept."""
        future: Future[Any] = Future()
        self.calls.append((future, fn, args))
        self.rest -= 1
        if len(self.calls) == 4 or not self.rest:
            while self.calls:
                future_, fn, args = self.calls.pop()
                try:
                    future_.set_result(fn(*args))
                except ZeroDivisionError as exc:
                    future_.set_exception(exc)
        return future


def inverse(number: int, on_event: OnEvent = ignore) -> float:
    """Divide by a number."""
    return 1 / number


def test_results_come_as_they_are_done_or_in_order() -> None:
    executor = Backwards(10)
    assert len([task for _, task, _ in stream(inverse, range(10), executor)]) == 10
    executor = Backwards(8)
    found = in_order(inverse, [1, 2, 4, 0, 5, 6, 7, 8], executor)
    assert [next(found) for _ in range(3)] == [1, 0.5, 0.25]
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_tasks_are_taken_when_they_are_needed() -> None:
    taken: list[int] = []
    futures: list[Future[Any]] = []

    class Keeps(Executor):
        """Runs the first call only."""

        ahead = 3

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            futures.append(Future())
            if len(futures) == 1:
                futures[0].set_result(fn(*args))
            return futures[-1]

    results = stream(abs, (taken.append(k) or k for k in range(100)), Keeps())  # type: ignore[func-returns-value]
    assert next(results)[2]() == 0
    assert taken == [0, 1, 2]
    results.close()  # type: ignore[attr-defined]
    assert [future.cancelled() for future in futures] == [False, True, True]


def test_a_yield_is_the_same_on_an_executor() -> None:
    problem = om.AllToAll(om.HexMesh(3, 3, ports=4))
    alone = om.study_yield(problem, 2, samples=520, seed=1)
    together = om.study_yield(problem, 2, samples=520, seed=1, executor=Backwards(3))
    assert alone.samples == 520
    for name in ("survived", "failed", "unrepaired", "how", "seed", "limit"):
        assert getattr(alone, name) == getattr(together, name)
    for name in ("broken", "lost", "open_", "alone"):
        assert (getattr(alone, name) == getattr(together, name)).all()

"""Processes of a sweep: what happens to one of them happens to its task alone."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from pathlib import Path
from typing import Any

import pytest

import optmatch as om
from optmatch.model import OnEvent, ignore
from optmatch.sweeps import processes
from optmatch.sweeps.processes import Processes, WorkerDied, in_order, stream


def patience(*args: object) -> float | None:
    """Wait long for all calls but those with the argument 60."""
    return 0.2 if args == (60,) else None


@pytest.mark.slow
def test_a_process_that_dies_or_hangs_costs_its_own_task() -> None:
    with Processes(1, patience=patience) as executor:
        assert executor.submit(os.getenv, "NUMBA_NUM_THREADS").result() is not None
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result()
        first = executor.submit(os.getpid).result()
        with pytest.raises(WorkerDied, match="exit code 3"):
            executor.submit(os._exit, 3).result()
        with pytest.raises(WorkerDied, match="ended"):
            executor.submit(time.sleep, 60).result()
        assert executor.submit(os.getpid).result() not in (first, os.getpid())
        with pytest.raises(Exception, match="pickle"):
            executor.submit(open, os.devnull).result()
        assert executor.submit(divmod, 7, 2).result() == (3, 1)


DYING = """
import os, signal
with open(file, "a+") as calls:
    calls.write("x")
    if calls.tell() <= deaths:
        calls.flush()
        os.kill(os.getpid(), signal.SIGKILL)
"""
"""A call that notes itself in a file; the first ones are killed."""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_process_costs_no_task(tmp_path: Path) -> None:
    with Processes(1) as executor:
        executor.submit(exec, DYING, {"file": tmp_path / "one", "deaths": 1}).result()
        with pytest.raises(WorkerDied, match="SIGKILL"):
            executor.submit(exec, DYING, {"file": tmp_path / "two", "deaths": 2}).result()
    assert (tmp_path / "one").read_text() == "xx"
    assert (tmp_path / "two").read_text() == "xx"


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no masks of signals")
def test_signals_are_for_who_started_the_processes() -> None:
    with Processes(1) as executor:
        masked = executor.submit(signal.pthread_sigmask, signal.SIG_BLOCK, []).result()
    assert {signal.SIGINT, signal.SIGTERM} <= masked


def test_cancelled_calls_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shut executor takes no more, and ends what runs, also in a process that just starts."""
    started, go_on = threading.Event(), threading.Event()

    class Slow(processes._Worker):
        def __init__(self, cores: list[int]) -> None:
            super().__init__(cores)
            started.set()
            go_on.wait()

    monkeypatch.setattr(processes, "_Worker", Slow)
    executor = Processes(1)
    running, waiting = executor.submit(time.sleep, 60), executor.submit(os.getpid)
    started.wait()
    executor.shutdown(wait=False, cancel_futures=True)
    go_on.set()
    with pytest.raises(WorkerDied):
        running.result(10)
    with pytest.raises(CancelledError):
        waiting.result(10)
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(os.getpid)


# Calls through executors: their order, their errors, and a study that is the same on any.


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

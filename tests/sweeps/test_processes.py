"""Processes of a sweep: what happens to one of them happens to its task alone."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from optmatch.sweeps import processes
from optmatch.sweeps.processes import Processes, WorkerDied


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

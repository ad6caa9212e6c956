"""A sweep: each task once, whatever fails, and on from where it was killed."""

import random
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optmatch as om
from optmatch.model import Tick
from optmatch.sweeps.store import Store
from optmatch.sweeps.sweep import ExecutorLost, run_task
from tests.helpers.modes import SOAK
from tests.helpers.sweeps import check, command

PROBLEM = om.Routing(om.IdealSwitch(4), np.array([1, 0, 3, 2], np.int32))
TASKS = [om.Task(PROBLEM, seed=seed, name="four") for seed in range(6)]


def test_the_key_is_of_all_that_matters() -> None:
    keys = {
        task.key()
        for task in (
            *TASKS,
            om.Task(PROBLEM, "ilp"),
            om.Task(PROBLEM, limits=om.Limits(time_s=1.0)),
            om.Task(om.Routing(om.IdealSwitch(4), np.array([2, 3, 0, 1], np.int32))),
            om.Task(PROBLEM, name="other"),
        )
    }
    assert len(keys) == 9


def test_rows_stream_and_are_not_run_again(tmp_path: Path) -> None:
    ran: list[Any] = []

    class Counts(ThreadPoolExecutor):
        """Counts its calls."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            ran.append(args)
            return super().submit(fn, *args, **kwargs)

    ticks: list[Any] = []
    with Counts(1) as executor:
        rows = list(om.sweep(TASKS[:4] * 2, executor, store=tmp_path / "a", on_event=ticks.append))
        assert len(rows) == len(ran) == 4
        assert [tick for tick in ticks if isinstance(tick, Tick)][-1] == Tick("tasks", 4, 4)
        again = list(om.sweep(TASKS, executor, store=tmp_path / "a"))
    assert len(ran) == 6
    assert {row.seed: row.status for row in again} == dict.fromkeys(range(6), "optimal")


def test_what_fails_is_a_row(tmp_path: Path) -> None:
    tasks = [om.Task(PROBLEM, "solstice"), om.Task(PROBLEM, "swing"), TASKS[0]]
    with ThreadPoolExecutor(1) as executor:
        for retry in (False, True):
            rows = list(om.sweep(tasks, executor, store=tmp_path / "a", retry=retry))
            found = {row.method: (row.status, row.error[:40]) for row in rows}
            assert found["solstice"][0] == found["swing"][0] == "refused"
            assert "swing" in found["swing"][1]
            assert [row.status for row in rows].count("optimal") == 1


def test_an_executor_that_is_lost_says_so(tmp_path: Path) -> None:

    class Breaks:
        """Breaks at the third call."""

        def __init__(self) -> None:
            self.calls = 0
            self.ahead = 1

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            self.calls += 1
            future: Future[Any] = Future()
            if self.calls < 3:
                future.set_result(fn(*args))
            else:
                future.set_exception(BrokenProcessPool("gone"))
            return future

    with pytest.raises(ExecutorLost, match="BrokenProcessPool"):
        list(om.sweep(TASKS, Breaks(), store=tmp_path / "a"))
    with Store(tmp_path / "a", read_only=True) as store:
        assert len(list(store.rows())) == 2


def test_two_sweeps_share_a_store(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor, ThreadPoolExecutor(2) as sweeps:

        def run(tasks: list[om.Task]) -> int:
            return len({row.key for row in om.sweep(tasks, executor, store=tmp_path / "a")})

        futures = [sweeps.submit(run, TASKS[:4]), sweeps.submit(run, TASKS[2:])]
        assert [future.result() for future in futures] == [4, 4]
    with Store(tmp_path / "a", read_only=True) as store:
        assert sorted(row.seed for row in store.rows()) == list(range(6))


@pytest.mark.slow
def test_a_task_has_limits_from_outside() -> None:
    """A task that takes too much memory is a row, and the next one is solved."""
    mesh = om.AllToAll(om.HexMesh(12, 12, ports=32))
    tight = om.Task(mesh, limits=om.Limits(memory_bytes=1_000_000))
    rows = {row.name: row for row in om.sweep([tight, TASKS[0]], n_workers=1)}
    assert rows.pop("four").status == "optimal"
    (row,) = rows.values()
    assert row.status == "failed"
    assert "memory" in row.error or "died" in row.error, row.error


@pytest.mark.slow
def test_a_killed_sweep_goes_on(tmp_path: Path) -> None:
    """Kill -9 in the middle: all rows told of are there, none is twice, all answers hold."""
    store, rng, told = tmp_path / "a.sqlite", random.Random(0), set[str]()
    n_tasks, n_kills = (1000, 20) if SOAK else (60, 1)
    for _ in range(n_kills):
        with subprocess.Popen(
            command(store, n_tasks), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(len(told) + 20):  # those of the store come first
                told.add(process.stdout.readline().strip())
            if SOAK:
                time.sleep(rng.random() / 50)
            process.send_signal(signal.SIGKILL)
        with Store(store, read_only=True) as kept:
            before = {row.key for row in kept.rows()}
        assert told <= before and len(before) < n_tasks
    done = subprocess.run(command(store, n_tasks), capture_output=True, text=True, check=True)
    assert len(set(done.stdout.split())) == len(done.stdout.split()) == n_tasks
    check(store, n_tasks)


def test_an_interrupted_solve_is_not_done() -> None:

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(om.Task(om.AllToAll(om.HexMesh(3, 3, ports=4))), stop)

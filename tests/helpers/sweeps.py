"""Sweeps that can be killed: a program of small tasks, and the cluster that they run on."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import optmatch as om
from optmatch.sweeps.store import Store
from optmatch.sweeps.sweep import check_store


def small_tasks(n: int) -> list[om.Task]:
    """Return tasks of a millisecond each, of three problems."""
    matchings = np.array([[1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]], np.int32)
    problems = [om.Routing(om.IdealSwitch(4), matching) for matching in matchings]
    return [om.Task(problems[k % 3], seed=k // 3) for k in range(n)]


def command(store: Path, n: int) -> list[str]:
    """Return the command of a sweep of small tasks, which prints each key."""
    return [sys.executable, "-m", "tests.helpers.sweeps", str(store), str(n)]


def check(store: Path, n: int) -> None:
    """Look into a store: each task once, and each answer accepted."""
    with Store(store, read_only=True) as kept:
        found = list(check_store(kept))
    assert sorted(row.key for row, _, _ in found) == sorted(task.key() for task in small_tasks(n))
    assert {verdict for _, verdict, _ in found} == {"ok"}


def start_cluster(port: int) -> list[subprocess.Popen[bytes]]:
    """Start a scheduler of Dask and two workers, as processes that can be killed."""
    address = f"tcp://127.0.0.1:{port}"
    scheduler = ["dask_scheduler", "--host", address, "--no-dashboard", "--no-show"]
    worker = ["dask_worker", address, "--nworkers", "2", "--nthreads", "1", "--no-dashboard"]
    started = []
    for name, *rest in (scheduler, worker):
        program = [sys.executable, "-m", f"distributed.cli.{name}", *rest]
        started.append(subprocess.Popen(program, stderr=subprocess.DEVNULL))
        time.sleep(3)
    return started


if __name__ == "__main__":
    for row in om.sweep(small_tasks(int(sys.argv[2])), store=sys.argv[1], n_workers=2):
        print(row.key, flush=True)

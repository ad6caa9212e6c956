"""Sweeps that are killed again and again; `make soak` runs them, since they take minutes."""

import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

import optmatch as om
from optmatch.sweeps.processes import dask_client
from optmatch.sweeps.store import Store
from optmatch.sweeps.sweep import ExecutorLost
from tests.helpers.sweeps import check, command, small_tasks, start_cluster

pytestmark = pytest.mark.skipif("OPTMATCH_EXAMPLES" not in os.environ, reason="for make soak")


def test_kill_at_twenty_random_moments(tmp_path: Path) -> None:
    store, rng = tmp_path / "a.sqlite", random.Random(0)
    told: set[str] = set()
    for _ in range(20):
        with subprocess.Popen(command(store, 1000), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(len(told) + rng.randrange(40)):  # those of the store come first
                told.add(process.stdout.readline().strip())
            time.sleep(rng.random() / 50)
            process.send_signal(signal.SIGKILL)
        with Store(store, read_only=True) as kept:
            assert told - {""} <= {row.key for row in kept.rows()}
    assert len(told) < 1000
    subprocess.run(command(store, 1000), capture_output=True, check=True)
    check(store, 1000)


def test_two_sweeps_that_write_at_once(tmp_path: Path) -> None:
    store = tmp_path / "a.sqlite"
    both = [subprocess.Popen(command(store, 500), stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    check(store, 500)


def test_a_worker_of_dask_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    store, done = tmp_path / "a.sqlite", 0
    with dask_client("local", 3) as client:
        pids = list(client.run(os.getpid).values())
        for row in om.sweep(small_tasks(300), client, store=store):
            assert row.status == "optimal"
            done += 1
            if done == 60:
                os.kill(pids[0], signal.SIGKILL)
    check(store, 300)


def test_the_scheduler_of_dask_is_killed(tmp_path: Path) -> None:
    """The sweep ends with an error, and goes on with another scheduler."""
    pytest.importorskip("distributed")
    store, done = tmp_path / "a.sqlite", 0
    for last in (False, True):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        scheduler, workers = start_cluster(port)
        try:
            with dask_client(f"tcp://127.0.0.1:{port}") as client:
                try:
                    for _ in om.sweep(small_tasks(300), client, store=store):
                        done += 1
                        if done == 60 and not last:
                            scheduler.kill()
                    assert last
                except ExecutorLost:
                    assert not last
        finally:
            scheduler.kill()
            workers.terminate()
            scheduler.wait()
            workers.wait()
    check(store, 300)

"""Sweeps on Dask whose worker or scheduler is killed; `make soak` runs them: they take minutes."""

import os
import signal
import socket
from pathlib import Path

import pytest

import optmatch as om
from optmatch.sweeps.processes import dask_client
from optmatch.sweeps.sweep import ExecutorLost
from tests.helpers.sweeps import check, small_tasks, start_cluster

pytestmark = pytest.mark.skipif("OPTMATCH_EXAMPLES" not in os.environ, reason="for make soak")


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

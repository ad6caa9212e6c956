"""An executor of processes of which one that dies costs its own task, and no other."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process, resource_tracker
from queue import SimpleQueue
from typing import Any

from optmatch.model import OptMatchError

_SPAWN = get_context("spawn")  # the threads of numba and OR-tools do not survive a fork
_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_starting = threading.Lock()


class WorkerDied(OptMatchError):
    """The process of a task ended before the task did."""


class WorkerKilled(WorkerDied):
    """Somebody else has killed the process of a task."""


class Processes(Executor):
    """Runs calls in processes of its own, one for each core or `n`, each with its share of them.

    Called with the arguments of a call, `patience` says after how many seconds it is ended from
    outside, or None. The future then raises `WorkerDied`, as it does after a crash. A call whose
    process was killed from outside is tried once more.
    """

    def __init__(
        self, n: int | None = None, *, patience: Callable[..., float | None] = lambda *_: None
    ) -> None:
        cores = _cores()
        self.n = n or len(cores)
        self.ahead = 2 * self.n
        self._patience = patience
        self._calls: SimpleQueue[Any] = SimpleQueue()
        self._closed = self._stopped = False
        self._workers: set[_Worker] = set()
        share = max(1, len(cores) // self.n)
        self._threads = [
            threading.Thread(
                target=self._serve,
                args=([cores[(k * share + j) % len(cores)] for j in range(share)],),
            )
            for k in range(self.n)
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a call; `concurrent.futures.Executor.submit` has the rules."""
        if self._closed:
            raise RuntimeError("the executor is shut down")
        future: Future[Any] = Future()
        self._calls.put((future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, after all calls or, with `cancel_futures`, at once."""
        self._closed = True
        if cancel_futures:
            self._stopped = True
            for worker in tuple(self._workers):
                worker.kill()
        for _ in self._threads:
            self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _serve(self, cores: list[int]) -> None:
        """Give calls to one process after another, until there are no more."""
        worker = None
        while (call := self._calls.get()) is not None:
            future = call[0]
            if self._stopped:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            worker = self._try(worker, cores, call, again=True)
            if not future.done():
                worker = self._try(worker, cores, call, again=False)
        if worker is not None:
            worker.close()

    def _try(
        self, worker: _Worker | None, cores: list[int], call: Any, again: bool
    ) -> _Worker | None:
        """Run a call, unless it is to be tried again; return the process for the next one."""
        future, fn, args, kwargs = call
        try:
            if worker is None:
                worker = _Worker(cores)
                self._workers.add(worker)
                if self._stopped:  # the signal came while the process was started
                    worker.kill()
            future.set_result(worker.call((fn, args, kwargs), self._patience(*args)))
        except BaseException as exc:
            # after a lack of memory modules may be there by half
            if worker is not None and isinstance(exc, WorkerDied | MemoryError):
                self._workers.discard(worker)
                worker.close()
                worker = None
            if not (again and isinstance(exc, WorkerKilled) and not self._stopped):
                future.set_exception(exc)
        return worker


class _Worker:
    """One process, and the pipe to it. Only the process that started the sweep hears signals."""

    def __init__(self, cores: list[int]) -> None:
        self.pipe, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_work, args=(theirs, cores), daemon=True)
        with _starting, _threads_of(len(cores)):
            if hasattr(signal, "pthread_sigmask"):  # processes started here inherit the mask
                resource_tracker.ensure_running()  # the child lets signals through again
                signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
            self.process.start()
        theirs.close()

    def call(self, call: Any, patience_s: float | None) -> Any:
        """Return the result of a call, or raise its error."""
        try:
            self.pipe.send(call)
            if not self.pipe.poll(patience_s):
                self.kill()
                raise WorkerDied(f"still running {patience_s:.0f} s after its start: ended")
            outcome, error = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            killed = -code in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM))
            raise (WorkerKilled if killed else WorkerDied)(f"its process died: {how}") from None
        if error is not None:
            raise error
        return outcome

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        self.pipe.close()
        self.process.join()


def _cores() -> list[int]:
    """List the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def _threads_of(n: int) -> Iterator[None]:
    """Let a process that starts here have so many threads of numba and BLAS."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update({name: value or str(n) for name, value in before.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]


def _work(pipe: Any, cores: list[int]) -> None:
    """Answer calls until the pipe is closed; in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where signals have no masks
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        # CP-SAT's threads are strategies, and fewer would be another search: they share cores
        os.sched_setaffinity(0, cores)
    while True:
        try:
            fn, args, kwargs = pipe.recv()
        except (EOFError, OSError):
            return
        except Exception as exc:  # an object that cannot be unpickled here
            pipe.send((None, exc))
            continue
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = fn(*args, **kwargs), None
        except BaseException as exc:
            outcome = None, exc
        try:
            pipe.send(outcome)
        except (BrokenPipeError, EOFError):
            return
        except Exception as exc:  # an object that cannot be pickled
            pipe.send((None, OptMatchError(f"{type(exc).__name__}: {exc}")))


def _end_with_parent() -> None:
    """End this process at once when the one that started it is gone."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        sys.stderr.flush()
        os._exit(1)

"""Calls that stream through an executor; and a pool in which a worker that dies costs one task.

The pools of the standard library give up all tasks when one process dies, and cannot end a call
that takes too long. Here each worker process has a thread of its own in this process, which hands
it one call at a time and waits for the result at a pipe.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from itertools import islice
from multiprocessing import connection, get_context, parent_process, resource_tracker
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from optmatch.model import InputError, OnEvent, OptMatchError, SolverUnavailable, ignore

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 256
"""The most calls under way at a time with executors that name no number."""


class Submits(Protocol):
    """Anything with `submit`: executors of `concurrent.futures`, clients of Dask, and others."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Return a future of the call, with `add_done_callback`, `result` and `cancel`."""


def stream(
    function: Callable[..., R],
    tasks: Iterable[T],
    executor: Submits | None = None,
    *,
    on_event: OnEvent = ignore,
) -> Iterator[tuple[int, T, Callable[[], R]]]:
    """Call a function with each task, and yield the calls in the order in which they end.

    `executor` is any object with ``submit(function, task)`` that returns a future. Yields the
    number of a task, the task, and a function that returns the result or raises the error of its
    call. Tasks may be endless: one is taken when there is room for its call, for which the
    attribute `ahead` of an executor may state a number. Without an executor calls run here, one
    after another, and get `on_event`.
    """
    if executor is None:
        for number, task in enumerate(tasks):
            yield number, task, partial(function, task, on_event)
        return

    submit = getattr(executor, "submit", None)
    if submit is None:
        raise InputError(
            f"executor = {executor!r:.60}: an object with a method submit is expected",
            where="executor",
        )

    # Dask would compute a name from the content of each task to find equal calls, which takes
    # long.
    if type(executor).__module__.startswith("distributed"):
        submit = partial(submit, pure=False)

    # ``under_way[number]`` is a task with its future; `finished` gets numbers of futures that are
    # done, in this order.
    max_under_way = getattr(executor, "ahead", _AHEAD)
    finished: SimpleQueue[int] = SimpleQueue()
    under_way: dict[int, tuple[T, Any]] = {}
    remaining = enumerate(tasks)
    try:
        while True:
            # Fill the window. A future puts its number into the queue when it is done.
            for number, task in islice(remaining, max_under_way - len(under_way)):
                future = submit(function, task)
                under_way[number] = (task, future)
                future.add_done_callback(lambda _, number=number: finished.put(number))
            if not under_way:
                return

            # Wait for one call, then take all others that have ended meanwhile.
            ready = [finished.get()]
            while not finished.empty():
                ready.append(finished.get())

            futures = [under_way[number][1] for number in ready]
            gathered = _gather_results(executor, futures)
            for number in ready:
                task, future = under_way.pop(number)
                outcome = future.result
                if id(future) in gathered:
                    outcome = partial(gathered.get, id(future))
                yield number, task, outcome
    finally:
        for _, future in under_way.values():
            future.cancel()


def in_order(
    function: Callable[..., R],
    tasks: Iterable[T],
    executor: Submits | None = None,
    *,
    on_event: OnEvent = ignore,
) -> Iterator[R]:
    """Yield the results of calls in the order of the tasks, the first error in its place.

    Results that come early wait for those before them.
    """
    waiting: dict[int, Callable[[], R]] = {}
    next_number = 0
    for number, _, outcome in stream(function, tasks, executor, on_event=on_event):
        waiting[number] = outcome
        while next_number in waiting:
            yield waiting.pop(next_number)()
            next_number += 1


def _gather_results(executor: Any, futures: list[Any]) -> dict[int, Any]:
    """Fetch the results of many futures of Dask in one message, by the `id` of a future.

    A message for each result would take milliseconds. Futures that are missing, and those of other
    executors, have to be asked themselves.
    """
    if not hasattr(executor, "gather"):
        return {}
    successful = [future for future in futures if future.status == "finished"]
    try:
        results = executor.gather(successful)
    except Exception:  # each future, asked by itself, shows its own error
        return {}
    return {id(future): result for future, result in zip(successful, results, strict=True)}


_LOCAL = "local"
"""Stands for workers on this machine."""


@contextmanager
def dask_client(address: str, n_workers: int | None = None) -> Iterator[Any]:
    """Connect to a scheduler of Dask, by its address, its file, or with "local" workers.

    `n_workers` is the number of local workers; None for one for each core. Without Dask it raises
    `SolverUnavailable`, and `OSError` if no scheduler answers.
    """
    try:
        import distributed
    except ImportError as exc:
        hint = "needs Dask: pip install 'optmatch[dask]'"
        raise SolverUnavailable(f"--dask {address} {hint}") from exc

    settings: dict[str, Any]
    if address == _LOCAL:
        settings = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": None}
    elif address.endswith(".json"):
        settings = {"scheduler_file": address}
    else:
        settings = {"address": address}
    client_class: Any = distributed.Client
    with client_class(**settings) as client:
        yield client


# The threads of numba and OR-tools do not survive a fork.
_SPAWN = get_context("spawn")

# Variables of the environment that limit the threads of numba and of BLAS.
_THREAD_VARIABLES = (
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)

# The environment is changed while a process starts, so processes start one after another.
_start_lock = threading.Lock()


class WorkerDied(OptMatchError):
    """The process of a task ended before the task did."""


class WorkerKilled(WorkerDied):
    """Somebody else has killed the process of a task."""


class Processes(Executor):
    """An executor that runs calls in worker processes, each on its own share of the cores.

    A call whose process was killed by somebody else is tried once more. After a crash, a second
    such kill, or a call that took too long, the future raises `WorkerDied`.

    Parameters
    ----------
    n
        The number of processes; one for each core if None.
    patience
        Called with the positional arguments of a call: returns the seconds after which the call is
        ended by killing its process, or None to wait without a limit.
    """

    def __init__(
        self, n: int | None = None, *, patience: Callable[..., float | None] = lambda *_: None
    ) -> None:
        """Make an executor of n workers, None for as many as there are cores.

        A worker is a process with a thread that hands calls to it; processes start with their
        first calls. `patience` returns for a call after how many seconds it counts as lost.
        """
        # `ahead` says how many calls may be under way or wait. Each thread takes calls from the
        # queue `_calls` and hands them to its own process; `_workers` are the processes that run.
        cores = list(range(os.cpu_count() or 1))
        if hasattr(os, "sched_getaffinity"):
            cores = sorted(os.sched_getaffinity(0))
        self.n = n or len(cores)
        self.ahead = 2 * self.n
        self._patience = patience
        self._calls: SimpleQueue[tuple[Future[Any], partial[Any]] | None] = SimpleQueue()
        self._closed = False
        self._stopped = False
        self._workers: set[_Worker] = set()

        # Worker k gets the k-th share of the cores; with more workers than cores they take turns.
        n_cores_each = max(1, len(cores) // self.n)
        self._threads: list[threading.Thread] = []
        for k in range(self.n):
            first = k * n_cores_each
            share = [cores[(first + j) % len(cores)] for j in range(n_cores_each)]
            thread = threading.Thread(target=self._serve_calls, args=(share,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a call; `concurrent.futures.Executor.submit` has the rules."""
        if self._closed:
            raise RuntimeError("the executor is shut down")
        future: Future[Any] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, after all calls or at once; open calls are then cancelled or lost."""
        self._closed = True
        if cancel_futures:
            self._stopped = True
            for worker in tuple(self._workers):
                worker.kill()

        # Each thread ends at the first None that it takes from the queue.
        for _ in self._threads:
            self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _serve_calls(self, cores: list[int]) -> None:
        """Take calls from the queue and run them in a worker process, until the queue ends.

        Runs in a thread of this process. A worker that dies is replaced for the next call, and a
        call whose result is not there yet after that is tried once more.
        """
        worker = None
        while (call := self._calls.get()) is not None:
            future, function = call
            if self._stopped:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            worker = self._run_call(worker, cores, future, function, may_retry=True)
            if not future.done():
                worker = self._run_call(worker, cores, future, function, may_retry=False)
        if worker is not None:
            worker.close()

    def _run_call(
        self,
        worker: _Worker | None,
        cores: list[int],
        future: Future[Any],
        function: partial[Any],
        *,
        may_retry: bool,
    ) -> _Worker | None:
        """Run a call in a worker process, and put its result or error into the future.

        `worker` is the process, None to start one on `cores`. Returns the process for the next
        call; None if it has to be replaced. With `may_retry` the future stays open if somebody
        kills the process, for a second try.
        """
        try:
            if worker is None:
                worker = _Worker(cores)
                self._workers.add(worker)

                # `shutdown` may have killed all workers while this one was being started.
                if self._stopped:
                    worker.kill()
            future.set_result(worker.call(function, self._patience(*function.args)))
        except BaseException as exc:
            # A process that ran out of memory may hold modules that were imported by half.
            if worker is not None and isinstance(exc, WorkerDied | MemoryError):
                self._workers.discard(worker)
                worker.close()
                worker = None

            was_killed = isinstance(exc, WorkerKilled) and not self._stopped
            if not (may_retry and was_killed):
                future.set_exception(exc)
        return worker


class _Worker:
    """One worker process, and the pipe to it.

    Signals of the terminal reach the process that started the sweep alone, which then decides
    what becomes of the workers.
    """

    def __init__(self, cores: list[int]) -> None:
        """Start a process that serves calls through a pipe, on these cores."""
        self.pipe, child_pipe = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve_pipe, args=(child_pipe, cores), daemon=True)
        with _start_lock, _thread_limit(len(cores)):
            # A child inherits the signal mask of this thread. The resource tracker would reset the
            # mask when it starts, so it is started first.
            if hasattr(signal, "pthread_sigmask"):
                resource_tracker.ensure_running()
                signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
            self.process.start()
        child_pipe.close()

    def call(self, function: partial[Any], patience_s: float | None) -> Any:
        """Run a call in the process, and return its result or raise its error.

        `WorkerDied` says that the process ended before it answered; after `patience_s` it is
        killed.
        """
        try:
            self.pipe.send(function)
            if not self.pipe.poll(patience_s):
                self.kill()
                raise WorkerDied(f"still running {patience_s:.0f} s after its start: ended")
            result, error = self.pipe.recv()
        except (EOFError, OSError):
            raise self._death() from None
        if error is not None:
            raise error
        return result

    def _death(self) -> WorkerDied:
        """Wait until the process has ended, and return the error that says how it ended."""
        self.process.join()
        exit_code = self.process.exitcode or 0
        if exit_code >= 0:
            return WorkerDied(f"its process died: exit code {exit_code}")

        # A negative exit code is the signal that ended the process. Windows has no SIGKILL.
        number = -exit_code
        message = f"its process died: {signal.Signals(number).name}"
        if number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            return WorkerKilled(message)
        return WorkerDied(message)

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        self.pipe.close()
        self.process.join()


@contextmanager
def _thread_limit(n_threads: int) -> Iterator[None]:
    """Limit the threads of numba and BLAS in processes that start within this context.

    The limit stands in variables of the environment, which are put back at the end. A limit that
    the user has set stays.
    """
    values_before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    for name, value in values_before.items():
        os.environ[name] = value or str(n_threads)
    try:
        yield
    finally:
        for name, value in values_before.items():
            if value is None:
                del os.environ[name]


def _serve_pipe(pipe: Any, cores: list[int]) -> None:
    """Run the calls that come through a pipe, until it is closed: the main loop of a worker.

    The pipe receives functions without arguments, and answers each with ``(result, error)``, one
    of which is None. `cores` are the numbers of the processor's cores on which the worker may run.
    """
    # Where signals have no masks, Ctrl-C would end the worker before its parent has decided.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()

    # The number of threads of CP-SAT selects its strategies. Fewer threads would be another
    # search, so threads share the cores of the process.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)

    while True:
        try:
            function = pipe.recv()
        except (EOFError, OSError):
            return
        except Exception as exc:  # an object that cannot be unpickled here
            pipe.send((None, exc))
            continue

        answer: tuple[Any, BaseException | None]
        try:
            answer = (function(), None)
        except BaseException as exc:
            answer = (None, exc)

        try:
            pipe.send(answer)
        except (BrokenPipeError, EOFError):
            return
        except Exception as exc:  # an object that cannot be pickled
            pipe.send((None, OptMatchError(f"{type(exc).__name__}: {exc}")))


def _exit_with_parent() -> None:
    """End this process at once when the process that started it is gone."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        sys.stderr.flush()
        os._exit(1)

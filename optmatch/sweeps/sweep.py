"""Solve many problems by many methods, on any executor, and keep each row as it comes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import contextmanager
from multiprocessing import parent_process
from pathlib import Path

from optmatch.entrances import solve
from optmatch.io.problems import problem_digest
from optmatch.model import (
    InputError,
    Limit,
    OnEvent,
    OptMatchError,
    Problem,
    SolverUnavailable,
    Tick,
    ignore,
)
from optmatch.model.declarations import form_of
from optmatch.sweeps.processes import Processes, WorkerDied
from optmatch.sweeps.store import Store
from optmatch.sweeps.streams import Submits, stream
from optmatch.sweeps.tasks import FAILED, REFUSED, Row, Task, empty_row, row_of

GRACE_S = 300.0
"""Seconds beyond twice its time limit after which a task is ended from outside; its time limit
does not count compiling."""


class ExecutorLost(OptMatchError):
    """The executor has given up tasks that it had taken; finished rows are kept."""


def sweep(
    tasks: Iterable[Task],
    executor: Submits | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    n_workers: int | None = None,
    retry: bool = False,
    on_event: OnEvent = ignore,
) -> Iterator[Row]:
    """Solve many problems; a crash costs at most the tasks in flight.

    Parameters
    ----------
    tasks
        What to solve. Tasks of the same problem, method, seed and limits count once.
    executor
        Anything with `submit`, as a client of Dask; None for processes of this machine.
    store
        A file that keeps the rows. Tasks that it has are not run again.
    n_workers
        Without an executor: how many processes; all cores if None.
    retry
        Whether tasks are run again that were refused or failed before.
    on_event
        Hears a `Tick` after each task.

    Yields
    ------
    Row
        The rows, one for each task: those that the store has first, then each as it is done.
        Nothing runs before the first is asked for. A task that fails is a row with its error.

    Raises
    ------
    StoreError
        If the store cannot be read or written. Rows that the store has stay.
    ExecutorLost
        If the executor breaks or is closed. Run it again with the same store to go on.

    Notes
    -----
    Each row is written when it comes, before it is yielded. In processes of its own, a script
    needs ``if __name__ == "__main__":``, as for all of `multiprocessing`.

    Examples
    --------
    >>> import optmatch as om
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> mesh = om.AllToAll(om.HexMesh(3, 3, ports=4))
    >>> tasks = [om.Task(mesh, seed=seed) for seed in range(2)]
    >>> with ThreadPoolExecutor(1) as executor:
    ...     [(row.seed, row.status, row.objective) for row in om.sweep(tasks, executor)]
    [(0, 'optimal', 50.0), (1, 'optimal', 50.0)]
    """
    wanted = _by_key(tasks)
    kept = None if store is None else Store(store)
    done = 0
    try:
        for row in () if kept is None else kept.rows():
            if row.key in wanted and (row.done or (row.status in (REFUSED, FAILED) and not retry)):
                del wanted[row.key]
                done += 1
                yield row
        total = done + len(wanted)
        on_event(Tick("tasks", done, total))
        for row in _run(wanted, executor, n_workers, kept):
            done += 1
            yield row
            on_event(Tick("tasks", done, total))
    finally:
        if kept is not None:
            kept.close()


def _by_key(tasks: Iterable[Task]) -> dict[str, Task]:
    """Return the tasks by their keys; neighbours often have one problem."""
    found: dict[str, Task] = {}
    last: Problem | None = None
    known = ""
    for task in tasks:
        form_of(Task).check("tasks", task)
        if task.problem is not last:
            last = task.problem
            known = problem_digest(task.problem)
        found.setdefault(task.key(known), task)
    return found


def _run(
    wanted: dict[str, Task], executor: Submits | None, n_workers: int | None, kept: Store | None
) -> Iterator[Row]:
    """Run tasks, and keep their rows."""
    elsewhere: list[str] = []

    def left() -> Iterator[Task]:
        for key, task in wanted.items():
            if kept is not None and kept.has(key):  # another sweep has just stored it
                elsewhere.append(key)
            else:
                yield task

    own = None if executor is not None else Processes(n_workers, patience=_patience)
    try:
        for _, task, outcome in stream(run_task, left(), executor or own):
            row = _row(task, outcome)
            if kept is not None:
                kept.add(row, task.problem)
            yield row
        for key in elsewhere:
            assert kept is not None
            yield kept.row(key)
    finally:
        if own is not None:
            own.shutdown(cancel_futures=True)


def _row(task: Task, outcome: Callable[[], Row]) -> Row:
    try:
        return outcome()
    except WorkerDied as exc:
        return empty_row(task, FAILED, str(exc))
    except MemoryError as exc:
        return empty_row(task, FAILED, f"out of memory {exc}".rstrip())
    except (BrokenExecutor, CancelledError) as exc:
        raise ExecutorLost(
            f"the executor has lost tasks ({type(exc).__name__}): run again"
        ) from exc
    except OSError as exc:  # the way to a scheduler
        raise ExecutorLost(f"the executor cannot be reached: {exc}") from exc
    except Exception as exc:  # as Dask's KilledWorker
        return empty_row(task, FAILED, f"{type(exc).__name__}: {exc}")


def _patience(task: Task) -> float | None:
    """Return after how many seconds a task is ended from outside."""
    limit = task.limits.time_s
    return None if limit is None else 2 * limit + GRACE_S


def run_task(task: Task, on_event: OnEvent = ignore) -> Row:
    """Solve one task, wherever this runs, and return its row.

    An interrupt raises `KeyboardInterrupt`: the task is not done. Where memory may have been too
    little, `MemoryError` says that this process should take no further tasks.
    """
    try:
        with _memory(task.limits.memory_bytes):
            solution = solve(
                task.problem, task.method, seed=task.seed, limits=task.limits, on_event=on_event
            )
            if solution.limit is not Limit.INTERRUPTED:
                return row_of(task, solution)
    except (InputError, SolverUnavailable) as exc:
        return empty_row(task, REFUSED, str(exc))
    except MemoryError:
        raise
    except (Exception, SystemExit) as exc:  # a method that exits loses its task
        if task.limits.memory_bytes is not None:
            raise MemoryError(f"or {type(exc).__name__}: {exc}") from exc
        return empty_row(task, FAILED, f"{type(exc).__name__}: {exc}")
    raise KeyboardInterrupt


@contextmanager
def _memory(most_bytes: int | None) -> Iterator[None]:
    """Let this process grow by so many bytes, if it is one of an executor and on Linux."""
    status = Path("/proc/self/status")
    if most_bytes is None or parent_process() is None or not status.exists():
        yield
        return
    import resource

    (line,) = (t for t in status.read_text().splitlines() if t.startswith("VmData"))
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(line.split()[1]) * 1024 + most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

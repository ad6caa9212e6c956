"""Calls that stream through an executor: a few at a time go out, and come back when done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from optmatch.model import OnEvent, SolverUnavailable, ignore

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 256
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
    """Call a function with each task, taken when it is needed.

    Yields the number of a task, the task, and what returns its result or raises its error, in the
    order of their ends. Without an executor the calls are made in this process, one after another,
    with `on_event` too, which hears their events.
    """
    if executor is None:
        for number, task in enumerate(tasks):
            yield number, task, partial(function, task, on_event)
        return
    submit = executor.submit
    if type(executor).__module__.startswith("distributed"):
        submit = partial(submit, pure=False)  # Dask need not find a name for each task
    ahead = getattr(executor, "ahead", AHEAD)
    done: SimpleQueue[int] = SimpleQueue()
    flying: dict[int, tuple[T, Any]] = {}
    left = enumerate(tasks)
    try:
        while True:
            for number, task in islice(left, ahead - len(flying)):
                flying[number] = task, submit(function, task)
                flying[number][1].add_done_callback(lambda _, n=number: done.put(n))
            if not flying:
                return
            ready = [done.get()]
            while not done.empty():
                ready.append(done.get())
            together = _gather(executor, [flying[number][1] for number in ready])
            for number in ready:
                task, future = flying.pop(number)
                yield number, task, together.get(id(future), future.result)
    finally:
        for _, future in flying.values():
            future.cancel()


def in_order(
    function: Callable[..., R],
    tasks: Iterable[T],
    executor: Submits | None = None,
    *,
    on_event: OnEvent = ignore,
) -> Iterator[R]:
    """Yield the results of `stream` in the order of the tasks, the first error in its place."""
    waiting: dict[int, Callable[[], R]] = {}
    place = 0
    for number, _, outcome in stream(function, tasks, executor, on_event=on_event):
        waiting[number] = outcome
        while place in waiting:
            yield waiting.pop(place)()
            place += 1


def _gather(executor: Any, futures: list[Any]) -> dict[int, Callable[[], Any]]:
    """Fetch results that lie elsewhere at once, since each way to them takes milliseconds."""
    if not hasattr(executor, "gather"):
        return {}
    finished = [future for future in futures if future.status == "finished"]
    try:
        results = executor.gather(finished)
    except Exception:  # run one by one, each call shows its own error
        return {}
    return {id(f): partial(_same, result) for f, result in zip(finished, results, strict=True)}


def _same(result: R) -> R:
    return result


LOCAL = "local"
"""Stands for workers on this machine."""


@contextmanager
def dask_client(address: str, n_workers: int | None = None) -> Iterator[Any]:
    """Connect to a scheduler of Dask, which takes tasks by `submit`.

    The address is that of the scheduler, as ``tcp://10.0.0.1:8786``; its file, as
    ``scheduler.json``; or ``"local"`` for workers that are started here, one for each core unless
    `n_workers` says how many. Without Dask `SolverUnavailable` is raised, and `OSError` if no
    scheduler answers.
    """
    try:
        import distributed
    except ImportError as exc:
        hint = "needs Dask: pip install 'optmatch[dask]'"
        raise SolverUnavailable(f"--dask {address} {hint}") from exc
    client_class: Any = distributed.Client
    if address == LOCAL:
        given: dict[str, Any] = {"n_workers": n_workers, "threads_per_worker": 1}
        given["dashboard_address"] = None
    elif address.endswith(".json"):
        given = {"scheduler_file": address}
    else:
        given = {"address": address}
    with client_class(**given) as client:
        yield client

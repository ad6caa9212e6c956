"""Calls that stream through an executor: a window of them is under way at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from optmatch.model import InputError, OnEvent, SolverUnavailable, ignore

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

    Yields the number of a task, the task, and a function that returns the result or raises the
    error of its call. Tasks may be endless: one is taken when there is room for its call, for
    which the attribute `ahead` of an executor may state a number. Without an executor calls run
    here, one after another, and get `on_event`.
    """
    if executor is None:
        for number, task in enumerate(tasks):
            yield number, task, partial(function, task, on_event)
        return

    # Dask would compute a name from the content of each task to find equal calls, which takes
    # long.
    submit = getattr(executor, "submit", None)
    if submit is None:
        message = f"executor = {executor!r:.60}: an object with a method submit is expected"
        raise InputError(message, where="executor")
    if type(executor).__module__.startswith("distributed"):
        submit = partial(submit, pure=False)

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
                yield number, task, gathered.get(id(future), future.result)
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


def _gather_results(executor: Any, futures: list[Any]) -> dict[int, Callable[[], Any]]:
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
    outcomes: dict[int, Callable[[], Any]] = {}
    for future, result in zip(successful, results, strict=True):
        outcomes[id(future)] = partial(_identity, result)
    return outcomes


def _identity(result: R) -> R:
    return result


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

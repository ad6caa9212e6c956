"""Work that Ctrl-C does not end halfway."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Outcome = TypeVar("Outcome")


def run_in_thread(run: Callable[[], Outcome], stop: threading.Event) -> Outcome:
    """Run a function in a thread of its own, so that Ctrl-C does not end it halfway.

    A KeyboardInterrupt in the calling thread sets `stop`, at which the function looks from time to
    time; it ends what it has begun. Its result is returned, or its error raised again. An event
    tells the end: after an interrupted `Thread.join` a thread counts as dead (CPython issue
    90882).
    """
    ended = threading.Event()
    outcome: list[Outcome] = []
    failure: list[BaseException] = []

    def work() -> None:
        """Call the function, keep its result or its error, and tell that it has ended."""
        try:
            outcome.append(run())
        except BaseException as error:  # raised again in the calling thread
            failure.append(error)
        finally:
            ended.set()

    threading.Thread(target=work, name="optmatch player", daemon=True).start()
    while True:
        try:
            ended.wait()
            break
        except KeyboardInterrupt:
            stop.set()
    if failure:
        raise failure[0]
    return outcome[0]


def run_side_by_side(calls: Sequence[Callable[[], object]]) -> None:
    """Run some calls, each in a thread of its own, and return when all of them have ended.

    The error of the first call that has raised one is raised again. A single call runs in the
    calling thread.
    """
    if len(calls) <= 1:
        for call in calls:
            call()
        return
    with ThreadPoolExecutor(max_workers=len(calls), thread_name_prefix="optmatch switch") as pool:
        running = [pool.submit(call) for call in calls]
    for ended in running:
        ended.result()

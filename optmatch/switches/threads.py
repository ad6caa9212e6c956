"""Work that Ctrl-C does not end halfway."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Outcome = TypeVar("Outcome")


def run_in_thread(run: Callable[[], Outcome], stop: threading.Event) -> Outcome:
    """Run a function in a thread of its own, so that Ctrl-C does not end it halfway.

    A KeyboardInterrupt in the calling thread sets `stop`; the function ends what it has
    begun, and its result is returned. An event tells the end: after an interrupted `Thread.join` a
    thread counts as dead (CPython issue 90882).

    Parameters
    ----------
    run
        The function, which looks at `stop` from time to time and returns soon once it is set.
    stop
        The event that asks the function to end.

    Returns
    -------
    Outcome
        The result of the function.

    Raises
    ------
    BaseException
        The error of the function, raised again.
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

    Parameters
    ----------
    calls
        Functions without arguments. A single one runs in the calling thread.

    Raises
    ------
    BaseException
        The error of the first call, in their order, that has raised one.
    """
    if len(calls) <= 1:
        for call in calls:
            call()
        return
    with ThreadPoolExecutor(max_workers=len(calls), thread_name_prefix="optmatch switch") as pool:
        running = [pool.submit(call) for call in calls]
    for ended in running:
        ended.result()

"""The time that counts: what is done once, on the first call after an installation, does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class _Stopped(threading.local):
    """What does not count in a thread, in seconds, and how deep it is inside of it."""

    total_s = 0.0
    depth = 0


_OURS = _Stopped()


def now_s() -> float:
    """Return seconds since some moment, without those in which this thread's time was `stopped`.

    Examples
    --------
    >>> began_s = now_s()
    >>> now_s() >= began_s
    True
    """
    return time.perf_counter() - _OURS.total_s


def stopped_s() -> float:
    """Return how long the time of this thread was stopped so far, in seconds."""
    return _OURS.total_s


@contextmanager
def stopped() -> Iterator[None]:
    """Stop the time of this thread; inside of it, it still runs.

    Examples
    --------
    >>> began_s = now_s()
    >>> with stopped():
    ...     time.sleep(0.01)
    >>> now_s() - began_s < 0.01
    True
    """
    began_s = time.perf_counter()
    _OURS.depth += 1
    try:
        yield
    finally:
        _OURS.depth -= 1
        if _OURS.depth == 0:
            _OURS.total_s += time.perf_counter() - began_s

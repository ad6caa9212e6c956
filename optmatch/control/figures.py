"""Figures of a controller for its operator: counts of calls, histograms of their times."""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from optmatch.model import InfeasibleError, InputError, LimitReached

BUCKETS_S = tuple(n * 10.0**power for power in range(-5, 1) for n in (1, 2.5, 5))
"""The upper ends of all buckets but the last, which has none."""
_LOG = logging.getLogger("optmatch")
_OUTCOMES = {InfeasibleError: "infeasible", LimitReached: "limit", InputError: "refused"}


class Histogram(NamedTuple):
    """How many times lay in each of `BUCKETS_S`, those beyond last, and their sum."""

    counts: tuple[int, ...]
    sum_s: float

    def __repr__(self) -> str:
        """Say how many times there were, and their mean: the counts are for machines."""
        n_times = sum(self.counts)
        return f"Histogram({n_times} times, mean {self.sum_s / max(1, n_times):.3g} s)"


class Call(NamedTuple):
    """An event for `on_event`: a call that has returned or raised."""

    call: str
    outcome: str
    """``done``, ``infeasible``, ``limit``, ``refused`` (wrong or out of date), or ``error``."""
    parts: Any
    """The parts that it was about; None for none."""
    took_s: float
    at_s: float
    """Seconds since 1970."""


class _TimedCall:
    """A call that is counted when its block ends; a class, since generators take a microsecond."""

    __slots__ = ("_name", "_parts", "_started_s", "_tally")

    def __init__(self, tally: Tally, name: str, parts: Any) -> None:
        self._tally = tally
        self._name = name
        self._parts = parts

    def __enter__(self) -> None:
        self._started_s = time.perf_counter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        took_s = time.perf_counter() - self._started_s
        outcome = "done"
        if isinstance(error, Exception):
            words = (word for kind, word in _OUTCOMES.items() if isinstance(error, kind))
            outcome = next(words, "error")
        self._tally.count(self._name, outcome, self._parts, took_s)


class Tally:
    """Counts calls by outcome, and the times that they took; for any threads.

    Each call is told to `on_event`; what that raises goes to the log.
    """

    def __init__(self, on_event: Callable[[Call], None] | None = None) -> None:
        """Begin without any call."""
        self._on_event = on_event
        self._lock = threading.Lock()
        self._calls = Counter[tuple[str, str]]()
        self._counts_of_call = dict[str, list[int]]()
        self._sum_of_call_s = defaultdict[str, float](float)

    def call(self, name: str, parts: Any = None) -> _TimedCall:
        """Return a context that counts the calls in its block, by outcome."""
        return _TimedCall(self, name, parts)

    def count(self, name: str, outcome: str, parts: Any, took_s: float) -> None:
        """Count a call that has returned or raised, by its method, and tell `on_event` of it.

        The outcome is ``"done"``, ``"infeasible"``, ``"limit"``, ``"refused"`` or ``"error"``.
        """
        with self._lock:
            self._calls[name, outcome] += 1
            # The bucket of the least upper end that is no less; longer times are in the last
            # one.
            counts = self._counts_of_call.setdefault(name, [0] * (len(BUCKETS_S) + 1))
            counts[bisect_left(BUCKETS_S, took_s)] += 1
            self._sum_of_call_s[name] += took_s
        if self._on_event is None:
            return

        # An error in `on_event` does not reach the caller.
        try:
            self._on_event(Call(name, outcome, parts, took_s, time.time()))
        except Exception:
            _LOG.exception("on_event failed")

    def figures(self) -> dict[str, Any]:
        """Return the counts and times of all calls so far.

        Returns
        -------
        dict
            ``calls[call, outcome]``, how many calls had this outcome; and ``call_s[call]``, a
            `Histogram` of their times in seconds.
        """
        with self._lock:
            histograms = {
                name: Histogram(tuple(counts), self._sum_of_call_s[name])
                for name, counts in self._counts_of_call.items()
            }
            return {"calls": dict(self._calls), "call_s": histograms}

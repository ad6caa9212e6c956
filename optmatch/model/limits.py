"""The limits of a solve, the clock that counts them, and the events that a method reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from optmatch.model.declarations import Amount, Count, Index, check_fields
from optmatch.model.errors import TimeUp
from optmatch.model.problem import Score
from optmatch.model.solution import Limit

_running: ContextVar[Clock | None] = ContextVar("running", default=None)
_preparing = threading.local()


def uncounted_s() -> dict[str, float]:
    """Seconds that this thread has spent in `uncounted`, by reason."""
    return dict(getattr(_preparing, "by_name", {}))


def counted_time() -> float:
    """Seconds of a clock that stands still while this thread is in `uncounted`."""
    return time.perf_counter() - float(getattr(_preparing, "spent_s", 0.0))


@contextmanager
def uncounted(what: str = "importing") -> Iterator[None]:
    """Keep work that is no search out of all time limits: importing, compiling, checking, writing.

    Examples
    --------
    >>> clock = Limits(time_s=10.0).start()
    >>> with uncounted("sleeping"):
    ...     time.sleep(0.05)
    >>> clock.elapsed_s < 0.05 <= uncounted_s()["sleeping"]
    True
    """
    counted = counted_time()
    try:
        yield
    finally:
        by_name, more = (
            uncounted_s(),
            counted_time() - counted,
        )  # more than a block inside this one
        _preparing.by_name = by_name | {what: by_name.get(what, 0.0) + more}
        _preparing.spent_s = time.perf_counter() - counted


def running_clock() -> Clock | None:
    """Return the clock of the solve that this thread is in, or None."""
    return _running.get()


@contextmanager
def unlimited() -> Iterator[None]:
    """Let nothing in this block heed the clock of a solve around it: a check is never cut."""
    token = _running.set(None)
    try:
        yield
    finally:
        _running.reset(token)


def check_time() -> None:
    """Give up where the time of the running solve is over; tables and bounds ask now and then.

    Raises
    ------
    TimeUp
        If no time is left, or somebody asked to stop. `optmatch.solve` catches it.

    Examples
    --------
    >>> check_time()  # nobody counts
    >>> with Limits(time_s=0.0).start().running():
    ...     check_time()
    Traceback (most recent call last):
    ...
    optmatch.model.errors.TimeUp: the time is up
    """
    clock = _running.get()
    if clock is not None and clock.remaining_s <= 0.0:
        raise TimeUp("the time is up")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one solve; a plain value, so nothing leaks from one solve to the next.

    Parameters
    ----------
    time_s
        Wall-clock time in seconds, from the call of `optmatch.solve` (on the command line: from
        parsed arguments) to the end of the search: tables and bounds count, imports, compiling and
        the check of the answer do not. Methods look at the clock every few milliseconds.
    iterations
        Steps of the method's main loop. Exact, so runs with it can be repeated.
    gap
        Stop once (objective - lower bound) / objective is at most this.
    memory_bytes
        Methods that would need more stop with their best.

    Examples
    --------
    >>> Limits(time_s=1.0).start().exceeded(0) is None
    True
    >>> Limits(iterations=3).start().exceeded(3)
    <Limit.ITERATIONS: 'iterations'>
    """

    time_s: Amount | None = None
    iterations: Index | None = None
    gap: Amount = 0.0
    memory_bytes: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def start(self, now: Callable[[], float] | None = None) -> Clock:
        """Start counting; inside a solve never for longer than that solve has left.

        Parameters
        ----------
        now
            Returns seconds; None for the clock of the running solve, or else `counted_time`.
        """
        outer = _running.get()
        now = now or (counted_time if outer is None else outer.now)
        return Clock(limits=self, now=now, started=now(), outer=outer)


@dataclass(slots=True)
class Clock:
    """A running count against `Limits`, and against those of `outer`, a solve around this one."""

    limits: Limits
    now: Callable[[], float]
    started: float
    outer: Clock | None = None
    interrupted: bool = False

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.now() - self.started

    @property
    def remaining_s(self) -> float:
        """Seconds left: infinite without a time limit, none after an interrupt."""
        if self.interrupted:
            return 0.0
        limit = self.limits.time_s
        own = float("inf") if limit is None else max(0.0, limit - self.elapsed_s)
        return own if self.outer is None else min(own, self.outer.remaining_s)

    @property
    def stopped(self) -> bool:
        """Whether somebody interrupted this count, or one around it."""
        return self.interrupted or (self.outer is not None and self.outer.stopped)

    def exceeded(self, iterations: int) -> Limit | None:
        """Which limit is reached after so many iterations, or None."""
        if self.stopped:
            return Limit.INTERRUPTED
        if self.limits.iterations is not None and iterations >= self.limits.iterations:
            return Limit.ITERATIONS
        if self.remaining_s <= 0.0:
            return Limit.TIME
        return None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let every count that starts in this block, and `check_time`, heed this one."""
        token = _running.set(self)
        try:
            yield
        finally:
            _running.reset(token)


@dataclass(frozen=True, slots=True)
class Tick:
    """Still at work: a phase and how far it is (``done`` of ``total``, total 0 if unknown)."""

    phase: str
    done: int
    total: int = 0


@dataclass(frozen=True, slots=True)
class NewBest:
    """A better answer, by its objective."""

    objective: Score


@dataclass(frozen=True, slots=True)
class Bound:
    """A better lower bound."""

    lower_bound: Score


Event = Tick | NewBest | Bound
OnEvent = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Listen to nothing."""

"""The limits of a solve, the clock that counts them, and the events that a method reports."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

from optmatch.model.declarations import Amount, Count, Index, check_fields
from optmatch.model.errors import TimeUp
from optmatch.model.problem import Score
from optmatch.model.solution import Limit

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class UncountedBlock:
    """A block of work that counts in no limit, while it runs."""

    reason: str
    since_s: float


class Stopwatch:
    """Measures time that counts: it stands still while any thread of one solve is preparing.

    Preparing is work that is no search: importing, compiling, checking, writing. Threads that work
    for one solve share a stopwatch. One that compiles holds it for all of them, since the others
    are about to need the same kernel; solves in other threads are not held.
    """

    def __init__(self) -> None:
        """Start the stopwatch.

        Blocks during which it stands still are in ``_open``, the innermost last; the time that
        they took is added up by reason.
        """
        self._lock = threading.Lock()
        self._open: list[UncountedBlock] = []
        self._changed_s = time.perf_counter()
        self._uncounted_s = defaultdict[str, float](float)

    def counted_s(self) -> float:
        """Return the time in seconds, from any start, without what was uncounted."""
        with self._lock:
            now_s = self._settle()
            return now_s - sum(self._uncounted_s.values())

    def uncounted_by_reason(self) -> dict[str, float]:
        """Return the seconds that did not count, by reason."""
        with self._lock:
            self._settle()
            return dict(self._uncounted_s)

    def running_block(self) -> UncountedBlock | None:
        """Return the block that holds the stopwatch now, the innermost one; None if it runs."""
        # Another thread may end the last block at any moment, so the list is read once.
        return next(reversed(self._open), None)

    def hold(self, block: UncountedBlock) -> None:
        """Let no time count until `release`; blocks may overlap."""
        with self._lock:
            block.since_s = self._settle()
            self._open.append(block)

    def release(self, block: UncountedBlock) -> None:
        """End a block, whether or not it was begun: an interrupt may have come before."""
        with self._lock:
            self._settle()
            if block in self._open:
                self._open.remove(block)

    def add(self, other: Stopwatch) -> None:
        """Add what did not count on another stopwatch.

        Parameters
        ----------
        other
            A stopwatch of a block within, whose pauses are pauses here too.
        """
        by_reason = other.uncounted_by_reason()
        with self._lock:
            for reason, seconds in by_reason.items():
                self._uncounted_s[reason] += seconds

    def _settle(self) -> float:
        """Book the time since the last change on the innermost open block; return the time now.

        The caller holds the lock. While a block is open, time does not count (`uncounted`); it is
        added up by the reason of the block.
        """
        now_s = time.perf_counter()
        if self._open:
            self._uncounted_s[self._open[-1].reason] += now_s - self._changed_s
        self._changed_s = now_s
        return now_s


_running: ContextVar[Clock | None] = ContextVar("running", default=None)
_stopwatch: ContextVar[Stopwatch | None] = ContextVar("stopwatch", default=None)


def current_stopwatch() -> Stopwatch:
    """Return the stopwatch of the solve that this thread works for, or of the thread."""
    stopwatch = _stopwatch.get()
    if stopwatch is None:
        stopwatch = Stopwatch()
        _stopwatch.set(stopwatch)
    return stopwatch


def uncounted_s() -> dict[str, float]:
    """Seconds that have been spent here in `uncounted`, by reason."""
    return current_stopwatch().uncounted_by_reason()


def counted_time() -> float:
    """Seconds of a clock that stands still during `uncounted`."""
    return current_stopwatch().counted_s()


@contextmanager
def uncounted(reason: str = "importing") -> Iterator[None]:
    """Keep work that is no search out of all time limits: importing, compiling, checking, writing.

    Parameters
    ----------
    reason
        A word under which the time is reported.

    Examples
    --------
    >>> clock = Limits(time_s=10.0).start()
    >>> with uncounted("sleeping"):
    ...     time.sleep(0.05)
    >>> clock.elapsed_s < 0.05 <= uncounted_s()["sleeping"]
    True
    """
    stopwatch = current_stopwatch()
    block = UncountedBlock(reason, 0.0)
    try:
        stopwatch.hold(block)
        yield
    finally:
        stopwatch.release(block)


@contextmanager
def own_stopwatch() -> Iterator[None]:
    """Give this block a new stopwatch, so that pauses of other solves do not count for it.

    A stopwatch measures the time of a solve, and stands still while one of its threads imports or
    compiles (`uncounted`). Solves in several threads may share the stopwatch of the thread that
    has started them, and would stand still together.

    At the end of the block, the time that did not count on the new stopwatch is added to that of
    the outer one. Inside a running solve there is no new stopwatch: the block shares that of the
    solve.
    """
    if _running.get() is not None:
        yield
        return
    outer = current_stopwatch()
    stopwatch = Stopwatch()
    token = _stopwatch.set(stopwatch)
    try:
        yield
    finally:
        _stopwatch.reset(token)
        outer.add(stopwatch)


def for_other_threads(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make a function that heeds the clock and the stopwatch of this thread in any thread.

    Threads of a pool know nothing of the solve that they work for unless the call brings it along.

    Parameters
    ----------
    function
        Any function.

    Returns
    -------
    Callable
        A function of the same arguments and result.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(1) as pool, Limits(time_s=9.0).start().running():
    ...     clock = pool.submit(for_other_threads(running_clock)).result()
    >>> clock.limits.time_s
    9.0
    """
    current_stopwatch()  # so that the copy has it
    context = copy_context()

    def run(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        """Call the function in a copy of the context of the thread that made this one."""
        # A context can be entered by one thread at a time, so each call has a copy.
        return context.copy().run(function, *args, **options)

    return run


def start_in_thread(function: Callable[[], Result], name: str) -> Future[Result]:
    """Call a function in a thread of its own that does not keep the program alive.

    The result, or whatever the function raises, ``SystemExit`` and ``KeyboardInterrupt`` included,
    is in the future that is returned.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        """Call the function and keep its result or its error."""
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome


def running_clock() -> Clock | None:
    """Return the clock of the solve that this thread is in, or None."""
    return _running.get()


@contextmanager
def unlimited() -> Iterator[None]:
    """Let nothing in this block heed the clock of a solve around it: a check is never cut.

    A clock counts the time and the iterations of a solve; code that runs longer asks it whether to
    stop.
    """
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

    def at_most(self, iterations: int) -> Limits:
        """Return these limits with so many iterations, or fewer if they allow fewer.

        Parameters
        ----------
        iterations
            The most steps of a part of a search, 0 or more.

        Returns
        -------
        Limits
            Limits with the smaller number of iterations; all others stay.

        Examples
        --------
        >>> Limits().at_most(30).iterations, Limits(iterations=3).at_most(30).iterations
        (30, 3)
        """
        if self.iterations is not None:
            iterations = min(iterations, self.iterations)
        return replace(self, iterations=iterations)

    def start(self, now: Callable[[], float] | None = None) -> Clock:
        """Start counting; inside a solve never for longer than that solve has left.

        Parameters
        ----------
        now
            Returns seconds; None for the clock of the running solve, or else the stopwatch of this
            thread, which other threads may read too.
        """
        outer = _running.get()
        if now is None and outer is not None:
            now = outer.now
        elif now is None:
            now = current_stopwatch().counted_s
        return Clock(limits=self, now=now, started=now(), outer=outer)


@dataclass(slots=True)
class Clock:
    """A running count against `Limits`, and against those of `outer`, a solve around this one."""

    limits: Limits
    now: Callable[[], float]
    started: float
    outer: Clock | None = None
    interrupted: bool = False
    cut_by: Limit | None = None
    """Which limit some work was left out for: time, if less is left than it needs."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.now() - self.started

    @property
    def deadline_s(self) -> float:
        """When the time of this count, or of one around it, is up; infinite without a limit."""
        deadline_s = float("inf")
        if self.limits.time_s is not None:
            deadline_s = self.started + self.limits.time_s
        if self.outer is not None:
            deadline_s = min(deadline_s, self.outer.deadline_s)
        return deadline_s

    @property
    def remaining_s(self) -> float:
        """Seconds left: infinite without a time limit, none after an interrupt.

        A count inside another one has no more time than the outer count.
        """
        if self.stopped:
            return 0.0
        return max(0.0, self.deadline_s - self.now())

    def has_less_than(self, seconds: float) -> bool:
        """Tell whether less time is left than some work needs; `cut_by` says so then.

        Parameters
        ----------
        seconds
            The time that the work needs; it is left out if there is less.
        """
        if self.remaining_s < seconds:
            self.cut_by = Limit.TIME
            return True
        return False

    @property
    def stopped(self) -> bool:
        """Whether somebody interrupted this count, or one around it."""
        return self.interrupted or (self.outer is not None and self.outer.stopped)

    def exceeded(self, iterations: int) -> Limit | None:
        """Tell which limit is reached after so many iterations; None if none is.

        An interrupt goes first, then the limit of iterations, then that of time.

        Parameters
        ----------
        iterations
            The iterations that were made so far.
        """
        if self.stopped:
            return Limit.INTERRUPTED
        if self.limits.iterations is not None and iterations >= self.limits.iterations:
            return Limit.ITERATIONS
        if self.remaining_s <= 0.0:
            return Limit.TIME
        return None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let every count that starts in this block, and `check_time`, heed this one.

        Afterwards the count that was running before runs again.
        """
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

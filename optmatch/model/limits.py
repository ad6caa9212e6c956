"""What a solve may spend, and the clock that counts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from optmatch.model.declarations import Amount, Count, Index, check_fields
from optmatch.model.solution import Limit
from optmatch.model.working_time import now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one solve; a plain value, so nothing leaks from one solve to the next.

    Parameters
    ----------
    time_s
        Wall-clock time in seconds. A wish: methods look at the clock every few milliseconds.
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

    def start(self, clock: Callable[[], float] = now_s) -> Clock:
        """Start counting."""
        return Clock(limits=self, now=clock, started=clock())


@dataclass(slots=True)
class Clock:
    """A running count against `Limits`."""

    limits: Limits
    now: Callable[[], float]
    started: float
    interrupted: bool = field(default=False)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self.now() - self.started

    @property
    def remaining_s(self) -> float:
        """Seconds left; infinite without a time limit."""
        limit = self.limits.time_s
        return float("inf") if limit is None else max(0.0, limit - self.elapsed_s)

    def exceeded(self, iterations: int) -> Limit | None:
        """Which limit is reached after so many iterations, or None."""
        if self.interrupted:
            return Limit.INTERRUPTED
        if self.limits.iterations is not None and iterations >= self.limits.iterations:
            return Limit.ITERATIONS
        if self.remaining_s <= 0.0:
            return Limit.TIME
        return None

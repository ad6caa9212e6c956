"""The task of all rules and searches for demands: what is to be covered, and until when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.entries import Entries, LineSums
from optmatch.solvers.demands.plans import Plan


class CoverTask(NamedTuple):
    """A demand that is to be covered, and the limits of a search."""

    entries: Entries
    lines: LineSums
    """The sums of the rows and columns of these entries."""
    full_matrix: NDArray[np.int64] | None
    """``[source, destination]``; None where ports are so many that no full matrix is made."""
    delay: int
    """Ticks before each slot."""
    shortest: int = 1
    """No slot is shorter, in ticks."""
    deadline: float = np.inf
    """When to stop, a time of `counted_time`."""
    useful_ticks: float = np.inf
    """A plan that takes longer than this, delays included, is of no use. If this is finite a plan
    is known, and a rule that is late raises `TimeUp` instead of covering the rest quickly."""
    is_plain: bool = True
    """Whether slots and delays alone decide: then rules end early whose plans get too long."""
    former: Plan | None = None
    """A plan that serves the demand, to start from."""
    n_moves: int | None = None
    """The rounds of moves after which a search ends; None: as long as somebody takes its plans."""
    rng: np.random.Generator = np.random.default_rng(0)

    @classmethod
    def of(cls, demand: NDArray[np.int64], delay: int, shortest: int = 1) -> CoverTask:
        """Make the task of covering ``demand[source, destination]``."""
        entries = Entries.of_matrix(demand)
        return cls(entries, LineSums.of(entries), demand, delay, shortest)

    @property
    def demand(self) -> NDArray[np.int64]:
        """``demand[source, destination]``, for rules that need the full matrix."""
        assert self.full_matrix is not None
        return self.full_matrix


Build = Callable[[CoverTask], Iterator[Plan]]
"""A rule or a search: it yields plans that serve the demand, as good as it can make them."""


class Size(NamedTuple):
    """The numbers on which the time of a rule depends."""

    n_ports: int
    """Rows and columns of the demand."""
    n_entries: int
    """The pairs of ports with a demand."""
    degree: int
    """The entries of the line with most of them."""
    delays_per_entry: float
    """How many delays an entry takes in the mean; the more, the more slots are worth it."""

    @classmethod
    def of(cls, task: CoverTask) -> Size:
        """Measure the demand of a task."""
        n_entries = len(task.entries.ticks)
        total = float(task.lines.ticks.sum(dtype=np.float64)) / 2
        return cls(
            task.entries.n_ports,
            n_entries,
            task.lines.most_entries,
            total / max(1, n_entries * task.delay),
        )

    @property
    def slots_of_service(self) -> float:
        """Estimate the slots of a cover that weighs service against delays.

        About one for each partner of the busiest port, and another one each time that entries take
        twice as many delays.
        """
        return 1 + self.degree * (1.0 + float(np.log2(1.0 + self.delays_per_entry)))

    @property
    def best_slots_s(self) -> float:
        """Estimate the time of a cover by the best slots where entries differ, as usual."""
        return 4e-8 * self.n_entries * self.degree

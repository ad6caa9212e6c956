"""CP-SAT model of how long to hold each of some listed matchings, for demands of few ports."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Demand
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.exact_models import ExactModel


class HoldingModel(ExactModel[NDArray[np.int64]]):
    """The durations of slots, one for each matching, that serve a demand and end first.

    Parameters
    ----------
    problem
        The demand, symmetric; its ports are bidirectional.
    matchings : int32 array, shape (matchings, ports)
        The partner of each port, -1 if it has none: what a slot may hold.
    """

    workers = 1

    def __init__(self, problem: Demand, matchings: NDArray[np.int32]) -> None:
        """Write the model: which matchings are held, how long, and whom they serve.

        It minimises the sum of all durations, and a delay for each matching that is held.
        """
        super().__init__()
        model = self.model
        longest = max(int(problem.ticks.max()), problem.min_slot_ticks)

        # Each matching is held for no time, or for as long as the shortest slot at least.
        is_held = [model.new_bool_var("") for _ in matchings]
        self.ticks = [model.new_int_var(0, longest, "") for _ in matchings]
        for use, length in zip(is_held, self.ticks, strict=True):
            model.add(length <= longest * use)
            model.add(length >= problem.min_slot_ticks * use)

        # A pair is served by all matchings that connect it.
        for source, destination in np.argwhere(np.triu(problem.ticks)).tolist():
            connecting = np.flatnonzero(matchings[:, source] == destination).tolist()
            served = sum(self.ticks[slot] for slot in connecting)
            model.add(served >= int(problem.ticks[source, destination]))
        model.minimize(sum(self.ticks) + problem.delay_ticks * sum(is_held))

    def read(self, outcome: Outcome) -> NDArray[np.int64]:
        """Return for how many ticks each matching is held, shape (matchings,)."""
        return np.array([outcome.value(length) for length in self.ticks], dtype=np.int64)

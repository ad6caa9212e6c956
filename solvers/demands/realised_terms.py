"""Decompositions of a demand into weighted matchings that a mesh can hold.

Not every permutation can be realised, so a term is a matching of some of the ports. Each term
makes at least one demand zero, and every demand alone can be routed, so there is always an end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Demand
from optmatch.solvers.demands.decomposer import Decomposer
from optmatch.solvers.demands.plans import Plan, serve
from optmatch.solvers.demands.realisable import Realiser

_LEVELS = (0.0, 0.0, 0.25, 0.5)  # quantiles of what is left: weights that are aimed at


class RealisedDecomposer(Decomposer):
    """Random decompositions into matchings for which there are routes.

    Parameters
    ----------
    problem
        On a fabric with cells.
    rng
        Decides what else is free.
    """

    def __init__(self, problem: Demand, rng: np.random.Generator) -> None:
        super().__init__(problem.ticks, rng, problem.fabric)
        self.realiser = Realiser(problem)

    def states(self, plan: Plan) -> NDArray[np.int8]:
        """Return the states of all cells in all slots of a decomposition made here."""
        return self.realiser.states(plan)

    def draw(self) -> Plan:
        """Decompose the whole; a uniform demand by the matchings of an all-to-all."""
        everyone = self.realiser.all_pairs
        if everyone is not None and np.array_equal(serve(everyone), self.demand):
            return everyone
        return super().draw()

    def _term(self, rest: NDArray[np.int64], zeros: float, noise: float) -> NDArray[np.int32]:
        """Choose a matching of entries of a certain size or more, some of them of just this size.

        Ports with many entries left come first: each of these needs a term of its own.
        """
        size = np.quantile(rest[rest > 0], self.rng.choice(_LEVELS), method="lower")
        entries = (rest > 0).sum(axis=1)[:, None] + (rest > 0).sum(axis=0)
        worth = entries / entries.max() + zeros * (rest == size)
        worth = worth + 0.1 * noise * self.rng.random(rest.shape)
        rows, columns = np.nonzero(rest >= size)
        order = np.argsort(-worth[rows, columns], kind="stable")
        pairs = [(int(rows[k]), int(columns[k])) for k in order]
        return self.realiser.place(pairs)

"""Method `ilp` for placements: hosts are assigned to ports by CP-SAT.

For the worst loss it is asked, for one threshold after another, whether all circuits can be had
below it: a bisection over the losses between what is known and what is proved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Bound, Limits, OnEvent, Solution, ignore
from optmatch.problems import HostPlacement
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.exact_models import ExactModel, draw_seed
from optmatch.solvers.frame import stoppable
from optmatch.solvers.placements.progress import PlacementSearch, candidates_of

_UNITS_PER_DB = 1e6
"""Sums of losses are counted in whole units by CP-SAT, each loss rounded down to one."""


class AssignmentModel(ExactModel[NDArray[np.int64]]):
    """Variables that say which host has which port; circuits within a set that is allowed.

    Parameters
    ----------
    problem
        The placement.
    allowed
        ``allowed[source port, destination port]``: the circuits that may be used.
    """

    def __init__(self, problem: HostPlacement, allowed: NDArray[np.bool_]) -> None:
        """Write a model for CP-SAT: hosts get ports so that all circuits are allowed.

        A variable says of each host and each port that it may have whether the host is on it
        (``is_on[host][port]``).

        Parameters
        ----------
        problem
            The placement; its pairs of hosts need circuits.
        allowed
            ``allowed[source port, destination port]``: whether a circuit may be used; bool, shape
            (ports, ports).
        """
        super().__init__()
        self.problem = problem
        self.allowed = allowed
        candidates = candidates_of(problem)
        self.is_on: list[dict[int, Any]] = [
            {port: self.model.new_bool_var("") for port in np.flatnonzero(row).tolist()}
            for row in candidates
        ]
        # Each host is on one port, and each port has one host at most.
        for variables in self.is_on:
            self.model.add_exactly_one(variables.values())
        for port in range(len(allowed)):
            on_port = [variables[port] for variables in self.is_on if port in variables]
            self.model.add_at_most_one(on_port)

        # Where the source is decides where the destination may be, and the other way round.
        for source, destination in problem.pairs.tolist():
            for port, literal in self.is_on[source].items():
                ends = self.is_on[destination].items()
                partners = [other for end, other in ends if allowed[port, end]]
                self.model.add_bool_or([literal.negated(), *partners])
            for port, literal in self.is_on[destination].items():
                starts = self.is_on[source].items()
                partners = [other for start, other in starts if allowed[start, port]]
                self.model.add_bool_or([literal.negated(), *partners])

    def minimise_total(self, units: NDArray[np.int64]) -> None:
        """Let the sum of the costs of all circuits be least.

        The cost of a circuit depends on the ports of both of its hosts; ``is_on[host][port]`` is
        the variable that says whether a host is on a port.

        Parameters
        ----------
        units
            ``units[source port, destination port]``: what a circuit costs, in whole units; 0 or
            more where it is allowed.
        """
        costs = []
        usable = units[self.allowed]
        largest = int(usable.max(initial=0))
        for source, destination in self.problem.pairs.tolist():
            # The cost of a circuit is at least that of the ports that its ends have: one row for
            # each port of the source, which counts only if the source is there.
            cost = self.model.new_int_var(0, largest, "")
            costs.append(cost)
            for port, literal in self.is_on[source].items():
                ends = self.is_on[destination].items()
                spent = sum(
                    int(units[port, end]) * other for end, other in ends if self.allowed[port, end]
                )
                self.model.add(cost >= spent).only_enforce_if(literal)
        self.model.minimize(sum(costs))

    def read(self, outcome: Outcome) -> NDArray[np.int64]:
        """Return the port of each host in a solution of the model.

        Parameters
        ----------
        outcome
            The solution of CP-SAT: which variables are true.

        Returns
        -------
        NDArray
            ``port_of_host[host]``; int64, shape (hosts,).
        """
        chosen = [
            next(port for port, literal in variables.items() if outcome.holds(literal))
            for variables in self.is_on
        ]
        return np.array(chosen, dtype=np.int64)


def solve_exactly(
    problem: HostPlacement,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
) -> Solution:
    """Solve a placement by CP-SAT to its end, or until a limit.

    An iteration is a conflict of CP-SAT.

    Parameters
    ----------
    problem
        The placement: hosts get ports so that their circuits lose least, in dB.
    limits
        When the search has to end.
    rng
        Gives the solver its seed.
    on_event
        Is called with each better answer and bound.

    Returns
    -------
    Solution
        The best placement and the proved bound; without an answer if there is none, or none was
        found in time.
    """
    search = PlacementSearch(problem, limits, rng, on_event, "ilp")
    with stoppable() as stop:
        settle_exactly(search, np.inf)
    return search.conclude(stop.limit)


def settle_exactly(search: PlacementSearch, work_s: float) -> None:
    """Close the gap of a search by CP-SAT, for one threshold of the loss after another.

    At a threshold the model has only circuits that lose no more. An answer to it lowers the best
    loss; a proof that there is none raises the bound.

    Parameters
    ----------
    search
        The best placement and the bound so far; both are improved. Its `limit` is set if a model
        is not settled.
    work_s
        The most work of each model, in seconds as CP-SAT counts them.
    """
    if search.is_closed:
        return
    if search.problem.objective == "total-loss-db":
        _minimise_total(search, work_s)
        return
    # A bisection: an answer at the threshold lowers the best loss, and none raises the bound.
    while not search.is_closed and search.limit is None:
        threshold_db = search.next_threshold()
        model = AssignmentModel(search.problem, search.loss_db <= threshold_db)
        outcome = model.solve(search.clock, ignore, seed=draw_seed(search.rng), work=work_s)
        if outcome.found:
            search.keep(model.read(outcome))
        elif outcome.infeasible:
            search.raise_bound(threshold_db, "cp-sat")
        else:
            search.limit = outcome.limit
            return


def _minimise_total(search: PlacementSearch, work_s: float) -> None:
    """Find the least sum of losses, in whole units rounded down, and its bound.

    CP-SAT counts in whole numbers: a unit is 1 / `_UNITS_PER_DB` dB. Rounding down keeps the bound
    right.

    Parameters
    ----------
    search
        The best placement and the bound so far; both are improved.
    work_s
        The most work of CP-SAT, in seconds as it counts them.
    """
    usable = np.isfinite(search.loss_db)
    units = np.where(usable, np.floor(search.loss_db * _UNITS_PER_DB + 1e-6), 0).astype(np.int64)
    model = AssignmentModel(search.problem, usable)
    model.minimise_total(units)
    outcome = model.solve(search.clock, ignore, seed=draw_seed(search.rng), work=work_s)
    if outcome.found:
        search.keep(model.read(outcome))
    search.limit = search.limit or outcome.limit
    # The bound of the rounded losses is one of the real ones, too.
    bound_db = outcome.lower_bound / _UNITS_PER_DB
    if bound_db > search.bound_db:
        search.bound_db = bound_db
        search.bound_by = "cp-sat"
    search.on_event(Bound(search.bound_db))

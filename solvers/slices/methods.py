"""Methods `first-fit`, `best-fit` and `optical`: one more slice, as a scheduler would place it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from optmatch.model import Limit, Limits, NewBest, OnEvent, Solution, Status, Tick
from optmatch.problems import Allocation, SliceAllocation
from optmatch.solvers.slices.pod import Pod


def solve_first_fit(
    problem: SliceAllocation, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Take the first free block of servers; see `optmatch.solvers.slices.pod.Pod.allocate`."""
    return _solve("first-fit", problem, limits, on_event)


def solve_best_fit(
    problem: SliceAllocation, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Take the free block of servers that leaves the fewest gaps."""
    return _solve("best-fit", problem, limits, on_event)


def solve_optical(
    problem: SliceAllocation, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Take a block or, where none is free, scattered servers joined by circuits.

    Parameters
    ----------
    problem
        The slice and the racks.
    limits
        One iteration places the slice.
    rng
        Not used: the answer depends on the problem alone.
    on_event
        Hears a `Tick` and, if a place is found, a `NewBest`.

    Examples
    --------
    >>> from optmatch.fabrics import RackFabric
    >>> from optmatch.model import ignore
    >>> problem = SliceAllocation(RackFabric(), (2, 2, 2))
    >>> solution = solve_optical(problem, Limits(), np.random.default_rng(0), ignore)
    >>> solution.status, solution.answer.routes
    (<Status.OPTIMAL: 'optimal'>, ((0, 4), (4, 0)))
    """
    return _solve("optical", problem, limits, on_event)


def _solve(rule: str, problem: SliceAllocation, limits: Limits, on_event: OnEvent) -> Solution:
    clock = limits.start()
    bound = problem.lower_bound()
    if math.isinf(bound):
        return infeasible(problem, rule, problem.dead_end())
    limit = clock.exceeded(0)
    found: Allocation | None = None
    try:
        if limit is None:
            on_event(Tick("place", 0, 1))
            found = Pod.of(problem).allocate(problem.shape, rule)
            limit = Limit.EXHAUSTED
            if found is not None:
                on_event(NewBest(load_of(problem, found)))
    except KeyboardInterrupt:
        limit = Limit.INTERRUPTED
    return conclude(problem, rule, found, bound, limit)


def load_of(problem: SliceAllocation, found: Allocation) -> float:
    """Return the largest load of the edges that a slice uses, with what was there before."""
    edges = problem.fabric.edge_of_fibre[found.fibres[:, 1]]
    added = np.bincount(edges, minlength=len(problem.fabric.edges))
    return float((problem.loads + added)[edges].max(initial=0))


def conclude(
    problem: SliceAllocation,
    method: str,
    found: Allocation | None,
    bound: float,
    limit: Limit | None,
    *,
    certificate: Any = None,
    stats: dict[str, Any] | None = None,
) -> Solution:
    """Make a solution of what was found and what is proved."""
    common: dict[str, Any] = {
        "problem": problem,
        "lower_bound": bound,
        "method": method,
        "certificate": certificate,
    }
    told = dict(stats or {})
    if found is None:
        return Solution(status=Status.UNKNOWN, limit=limit, stats=told, **common)
    objective = load_of(problem, found)
    told |= {"servers": len(found.servers), "fibres": len(found.fibres)}
    if problem.fabric.joined:
        told["racks"] = len(np.unique(problem.fabric.server_coordinates[found.servers, 0]))
    told["longest_route_hops"] = max((len(route) - 1 for route in found.routes), default=0)
    proved = objective <= bound
    return Solution(
        answer=found,
        status=Status.OPTIMAL if proved else Status.FEASIBLE,
        limit=None if proved else limit,
        objective=objective,
        stats=told,
        **common,
    )


def infeasible(
    problem: SliceAllocation,
    method: str,
    reason: str,
    *,
    certificate: Any = None,
    stats: dict[str, Any] | None = None,
) -> Solution:
    """Say that there is no answer, and why."""
    return Solution(
        problem=problem,
        status=Status.INFEASIBLE,
        lower_bound=math.inf,
        method=method,
        certificate=certificate,
        stats={**(stats or {}), "reason": reason},
    )

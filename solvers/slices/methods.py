"""Methods `first-fit` and `optical`: one more slice, as a scheduler would place it.

A *slice* is a torus of chips for one job, which takes servers of a rack and fibres between them.
The *load* of such a bundle of fibres is how many circuits it carries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from optmatch.model import Limit, Limits, OnEvent, Solution
from optmatch.problems import Allocation, SliceAllocation
from optmatch.solvers.frame import conclude, take_best
from optmatch.solvers.slices.pod import Pod


def place_by_rule(
    problem: SliceAllocation,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    *,
    rule: str,
) -> Solution:
    """Place a slice by the rule ``"first-fit"`` or ``"optical"``; see `Pod.allocate`."""
    clock = limits.start()
    bound = problem.lower_bound()
    if math.isinf(bound):
        return refuse(problem, rule)

    def answers() -> Iterator[tuple[float, Allocation]]:
        """Yield the load and the slice, if the rule finds one."""
        allocation = Pod.of(problem).allocate(problem.shape, rule, twisted=problem.twisted)
        if allocation is not None:
            yield load_of(problem, allocation), allocation

    best, limit, _ = take_best(answers(), bound, clock, on_event, "place", 1)
    return conclude_load(problem, rule, best, bound, limit)


def refuse(problem: SliceAllocation, method: str) -> Solution:
    """Report that there is no answer, by the bound of the problem."""
    return conclude(problem, method, None, math.inf, stats={"reason": problem.dead_end()})


def load_of(problem: SliceAllocation, allocation: Allocation) -> float:
    """Return the largest load of the edges that a slice uses, earlier slices included."""
    edges = problem.fabric.edge_of_fibre[allocation.fibres[:, 1]]
    added_loads = np.bincount(edges, minlength=len(problem.fabric.edges))
    return float((problem.loads + added_loads)[edges].max(initial=0))


def conclude_load(
    problem: SliceAllocation,
    method: str,
    best: Allocation | None,
    bound: float,
    limit: Limit | None,
    *,
    certificate: Any = None,
    stats: Mapping[str, Any] = MappingProxyType({}),
) -> Solution:
    """Make a solution of the best slice, if there is one, and the proved bound on its load.

    `certificate` proves the bound where the problem's own proof does not.
    """
    # Without a slice there is nothing to count.
    if best is None:
        parts: dict[str, Any] = {"certificate": certificate, "stats": stats}
        return conclude(problem, method, None, bound, limit, **parts)
    all_stats = {**stats, "servers": len(best.servers), "fibres": len(best.fibres)}
    if problem.fabric.joined:
        rack_of_server = problem.fabric.server_coordinates[:, 0]
        all_stats["racks"] = len(np.unique(rack_of_server[best.servers]))
    hops = [len(route) - 1 for route in best.routes]
    all_stats["longest_route_hops"] = max(hops, default=0)
    parts = {"answer": best, "certificate": certificate, "stats": all_stats}
    return conclude(problem, method, load_of(problem, best), bound, limit, **parts)

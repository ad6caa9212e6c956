"""Methods `first-fit` and `optical`: one more slice, as a scheduler would place it."""

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


def solve(
    problem: SliceAllocation,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    *,
    rule: str,
) -> Solution:
    """Place a slice by a rule of `optmatch.solvers.slices.pod.Pod.allocate`.

    One iteration places the slice.
    """
    clock = limits.start()
    bound = problem.lower_bound()
    if math.isinf(bound):
        return refuse(problem, rule)

    def places() -> Iterator[tuple[float, Allocation]]:
        found = Pod.of(problem).allocate(problem.shape, rule, twisted=problem.twisted)
        if found is not None:
            yield load_of(problem, found), found

    found, limit, _ = take_best(places(), bound, clock, on_event, "place", 1)
    return conclude_load(problem, rule, found, bound, limit)


def refuse(problem: SliceAllocation, method: str) -> Solution:
    """Report that there is no answer, by the bound of the problem."""
    return conclude(problem, method, None, math.inf, stats={"reason": problem.dead_end()})


def load_of(problem: SliceAllocation, found: Allocation) -> float:
    """Return the largest load of the edges that a slice uses, earlier slices included."""
    edges = problem.fabric.edge_of_fibre[found.fibres[:, 1]]
    added = np.bincount(edges, minlength=len(problem.fabric.edges))
    return float((problem.loads + added)[edges].max(initial=0))


def conclude_load(
    problem: SliceAllocation,
    method: str,
    found: Allocation | None,
    bound: float,
    limit: Limit | None,
    *,
    certificate: Any = None,
    stats: Mapping[str, Any] = MappingProxyType({}),
) -> Solution:
    """Make a solution of the best answer and the proved bound."""
    if found is None:
        known = {"certificate": certificate, "stats": stats}
        return conclude(problem, method, None, bound, limit, **known)
    told = {**stats, "servers": len(found.servers), "fibres": len(found.fibres)}
    if problem.fabric.joined:
        told["racks"] = len(np.unique(problem.fabric.server_coordinates[found.servers, 0]))
    told["longest_route_hops"] = max((len(route) - 1 for route in found.routes), default=0)
    known = {"answer": found, "certificate": certificate, "stats": told}
    return conclude(problem, method, load_of(problem, found), bound, limit, **known)

"""What a mesh of few cells holds, by all states of its cells, and the best plans of it."""

from collections.abc import Collection
from functools import cache

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from optmatch.fabrics import Fabric, light
from optmatch.problems import Demand


@cache
def all_held(fabric: Fabric) -> frozenset[frozenset[tuple[int, int]]]:
    """Trace light through all states of the cells, and list the pairs that each connects."""
    graph = fabric.graph
    assert graph is not None
    n = graph.n_cells
    states = np.arange(1 << n)[:, None] >> np.arange(n) & 1
    stuck = graph.stuck
    for cell in np.flatnonzero(stuck >= 0).tolist():
        states[:, cell] = np.where(stuck[cell] < 2, stuck[cell], 0)
    starts = np.broadcast_to(fabric.source_terminals, (len(states), fabric.n_ports))
    arrived = light.trace(graph, states, starts).arrived
    port_at = {int(terminal): port for port, terminal in enumerate(fabric.source_terminals)}
    found = set()
    for row in np.unique(arrived, axis=0).tolist():
        ends = [port_at.get(terminal, -1) for terminal in row]
        found.add(frozenset((i, j) for i, j in enumerate(ends) if i < j))
    return frozenset(found)


def least_completion_s(
    problem: Demand, matchings: Collection[frozenset[tuple[int, int]]]
) -> float:
    """Choose matchings and whole durations that serve all pairs at the least time.

    A matching is the set of the pairs that it joins both ways, the lower port first.
    """
    need = np.triu(np.maximum(problem.demand_bytes, problem.demand_bytes.T))
    pairs = np.argwhere(need)
    count, most = len(matchings), max(need.max(), problem.min_slot_s)
    serves = np.array([[tuple(pair) in row for row in matchings] for pair in pairs.tolist()])
    serves = serves.reshape(len(pairs), count).astype(float)
    rules = [
        LinearConstraint(np.hstack([serves, np.zeros_like(serves)]), need[tuple(pairs.T)]),
        LinearConstraint(np.hstack([np.eye(count), -most * np.eye(count)]), ub=0),
        LinearConstraint(np.hstack([np.eye(count), -problem.min_slot_s * np.eye(count)]), lb=0),
    ]
    costs = np.repeat([1.0, problem.delay_s], count)
    box = Bounds(0, np.repeat([most, 1.0], count))
    found = milp(costs, constraints=rules, integrality=np.ones(2 * count), bounds=box)
    return float(round(found.fun))

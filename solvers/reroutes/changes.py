"""From a plan to the transition that carries it out: ports, routes, and the steps in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Transition
from optmatch.solvers.reroutes.naming import name_paths
from optmatch.solvers.reroutes.repair import Recovery
from optmatch.solvers.reroutes.routing_state import HitCircuits, RoutingState
from optmatch.solvers.reroutes.steps import RouteNeeds, Step, order_steps

Path = NDArray[np.int32]


def make_transition(routing: RoutingState, case: HitCircuits, plan: Recovery) -> Transition:
    """Name the ports and fibres of a plan, and order its changes."""
    order = sorted(range(len(plan.changed)), key=plan.changed.__getitem__)
    changed = [plan.changed[k] for k in order]
    paths = [plan.paths[k] for k in order]
    lit = set(changed).difference(case.hit)
    named = name_paths(
        routing.graph,
        routing.users,
        routing.first_fibre,
        paths,
        routing.circuits[changed].tolist(),
        leaving=set(changed),
        lit=lit,
    )
    cells = [routing.cells_of(path) for path in paths]
    steps = _order(routing, case, changed, paths, cells, named)
    moved = [*zip(case.lost, plan.handover, strict=True)]
    return Transition(
        moves=np.array(moved, dtype=np.int32).reshape(-1, 2),
        changed=np.array(changed, dtype=np.int32),
        circuits=np.array(named.circuits, dtype=np.int32).reshape(-1, 2),
        routes=tuple(named.routes),
        steps=np.array(steps, dtype=np.int32).reshape(-1, 3),
    )


def _order(
    routing: RoutingState,
    case: HitCircuits,
    changed: Sequence[int],
    paths: Sequence[Path],
    cells: Sequence[Sequence[tuple[int, int]]],
    named: Any,
) -> list[Step]:
    old, new = {}, {}
    for k, circuit in enumerate(changed):
        before, ends = routing.paths[circuit], routing.circuits[circuit].tolist()
        parts = _parts(routing, before, ends, routing.old_routes[circuit])
        old[circuit] = RouteNeeds(parts, dict(routing.cells_of(before)))
        parts = _parts(routing, paths[k], named.circuits[k], named.routes[k])
        new[circuit] = RouteNeeds(parts, dict(cells[k]))
    now = {cell: int(routing.now[cell]) for passed in cells for cell, _ in passed}
    return order_steps(old, new, case.hit, now)


def _parts(
    routing: RoutingState, path: Path, ends: tuple[int, int], route: Sequence[int]
) -> frozenset[tuple[str, int]]:
    """Name what a circuit has for itself."""
    if routing.first_fibre:
        fibres = [("fibre", fibre) for fibre in route]
        return frozenset([*fibres, ("out", ends[0]), ("in", ends[1])])
    return frozenset(("link", int(link)) for link in routing.graph.resource[path[1:-1]])

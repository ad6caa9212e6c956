"""From a plan to the transition that carries it out: ports, routes, and the steps in order."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Transition
from optmatch.problems.reroutes.transition import DROP, RAISE, SET
from optmatch.solvers.reroutes.naming import name_paths
from optmatch.solvers.reroutes.repair import Recovery
from optmatch.solvers.reroutes.routing_state import HitCircuits, RoutingState

Step = tuple[int, int, int]


class RouteNeeds(NamedTuple):
    """The cells and fibres that a route needs for itself."""

    parts: frozenset[Hashable]  # waveguides, fibres and ports
    cells: Mapping[int, int]  # the states of the cells it passes


def order_steps(
    old: Mapping[int, RouteNeeds],
    new: Mapping[int, RouteNeeds],
    dark: Collection[int],
    now: Mapping[int, int],
) -> list[Step]:
    """Order the changes of circuits from old routes to new ones.

    Each circuit in turn: the cells of its new route are set as far as its old light allows, then
    it goes dark, the rest is set, and it is raised. A circuit waits for others that stand in its
    way; where they wait in a ring, one that stands in the way of most goes dark early. `old` and
    `new` are what the route of each circuit that changes needs; the circuits `dark` have no light
    from the beginning; ``now[cell]`` is the state of each cell on a new route, -1 if it was never
    set.

    Cells and parts of circuits that stay are in no conflict: new routes share no waveguide with
    them, and through a cell in two states there are no two routes that share none.
    """
    states, steps = dict(now), list[Step]()
    lit = {circuit for circuit in new if circuit not in dark}
    waiting = sorted(new, key=lambda circuit: (circuit in lit, circuit))

    def needs(circuit: int) -> list[tuple[int, int]]:
        return [(c, s) for c, s in new[circuit].cells.items() if states[c] != s]

    def blockers(circuit: int) -> list[int]:
        wanted = needs(circuit)
        return [
            other
            for other in sorted(lit)
            if other != circuit
            and (
                new[circuit].parts & old[other].parts
                or any(c in old[other].cells for c, _ in wanted)
            )
        ]

    def put(cells: list[tuple[int, int]]) -> None:
        for cell, state in cells:
            states[cell] = state
            steps.append((SET, cell, state))

    def drop(circuit: int) -> None:
        lit.discard(circuit)
        steps.append((DROP, circuit, -1))

    while waiting:
        blocked = {circuit: blockers(circuit) for circuit in waiting}
        ready = [circuit for circuit in waiting if not blocked[circuit]]
        if not ready:
            every = [other for others in blocked.values() for other in others]
            drop(max(sorted(set(every)), key=every.count))
            continue
        circuit = ready[0]
        if circuit in lit:
            put([entry for entry in needs(circuit) if entry[0] not in old[circuit].cells])
            drop(circuit)
        put(needs(circuit))
        steps.append((RAISE, circuit, -1))
        waiting.remove(circuit)
    return steps


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
    """Name the parts that a circuit has for itself."""
    if routing.first_fibre:
        fibres = [("fibre", fibre) for fibre in route]
        return frozenset([*fibres, ("out", ends[0]), ("in", ends[1])])
    return frozenset(("link", int(link)) for link in routing.graph.resource[path[1:-1]])

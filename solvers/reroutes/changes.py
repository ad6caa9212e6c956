"""From a plan to the transition that carries it out: ports, routes, and the steps in order.

A *step* drops a circuit (takes its light away), sets a cell, or raises a circuit (gives it light
on its new route). A cell may be set only while no light passes it. A *part* is what only one
circuit can have at a time: a waveguide, or a fibre or port of a rack with ideal interposers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Transition
from optmatch.problems.reroutes.transition import DROP, RAISE, SET
from optmatch.solvers.reroutes.naming import Named, name_paths
from optmatch.solvers.reroutes.repair import Recovery
from optmatch.solvers.reroutes.routing_state import HitCircuits, RoutingState

Step = tuple[int, int, int]
"""What is done, to which circuit or cell, and the new state of a cell, -1 otherwise."""


class RouteNeeds(NamedTuple):
    """The cells and fibres that a route needs for itself."""

    parts: frozenset[Hashable]  # waveguides, fibres and ports
    cells: Mapping[int, int]  # the states of the cells it passes


class ChangeOrder:
    """The steps of a transition so far: which circuits have light, and the states of cells.

    Parameters
    ----------
    old, new
        What the old and the new route of each circuit that changes need.
    dark
        The circuits without light from the beginning.
    now
        ``now[cell]``: the state of each cell on a new route, -1 if it was never set.
    """

    def __init__(
        self,
        old: Mapping[int, RouteNeeds],
        new: Mapping[int, RouteNeeds],
        dark: Collection[int],
        now: Mapping[int, int],
    ) -> None:
        """Begin a transition without steps: circuits that are not in `dark` have light."""
        self._old = old
        self._new = new
        self._states = dict(now)
        self.lit = {circuit for circuit in new if circuit not in dark}
        self.steps = list[Step]()

    def missing_cells(self, circuit: int) -> list[tuple[int, int]]:
        """List cells that the new route of a circuit needs in another state, with that state."""
        return [
            (cell, state)
            for cell, state in self._new[circuit].cells.items()
            if self._states[cell] != state
        ]

    def blockers(self, circuit: int) -> list[int]:
        """List the lit circuits whose old light is in the way of the new route of a circuit."""
        missing_cells = [cell for cell, _ in self.missing_cells(circuit)]
        blocking = []
        for other in sorted(self.lit - {circuit}):
            shares_part = self._new[circuit].parts & self._old[other].parts
            if shares_part or any(cell in self._old[other].cells for cell in missing_cells):
                blocking.append(other)
        return blocking

    def set_cells(self, cells: Sequence[tuple[int, int]]) -> None:
        """Set cells to states."""
        for cell, state in cells:
            self._states[cell] = state
            self.steps.append((SET, cell, state))

    def drop(self, circuit: int) -> None:
        """Take the light of a circuit away."""
        self.lit.discard(circuit)
        self.steps.append((DROP, circuit, -1))

    def move(self, circuit: int) -> None:
        """Move a circuit that nothing blocks to its new route, with as little time in the dark."""
        if circuit in self.lit:
            # Cells that its old light does not pass are set while it still has light.
            early = [
                (cell, state)
                for cell, state in self.missing_cells(circuit)
                if cell not in self._old[circuit].cells
            ]
            self.set_cells(early)
            self.drop(circuit)
        self.set_cells(self.missing_cells(circuit))
        self.steps.append((RAISE, circuit, -1))


def order_steps(
    old: Mapping[int, RouteNeeds],
    new: Mapping[int, RouteNeeds],
    dark: Collection[int],
    now: Mapping[int, int],
) -> list[Step]:
    """Order the changes of circuits from old routes to new ones.

    Each circuit in turn: the cells of its new route are set as far as its old light allows, then
    it goes dark, the rest is set, and it is raised. A circuit waits for others that stand in its
    way; where they wait in a ring, one that stands in the way of most goes dark early.

    Cells and parts of circuits that stay are in no conflict: new routes share no waveguide with
    them, and through a cell in two states there are no two routes that share none.
    """
    order = ChangeOrder(old, new, dark, now)
    # Circuits that are dark already come first: they lose nothing by waiting for nobody.
    waiting = sorted(new, key=lambda circuit: (circuit in order.lit, circuit))
    while waiting:
        # The first circuit that nothing blocks moves; `blockers` are those of the ones before it.
        blockers = list[int]()
        for circuit in waiting:
            in_the_way = order.blockers(circuit)
            if not in_the_way:
                order.move(circuit)
                waiting.remove(circuit)
                break
            blockers += in_the_way
        else:
            # A ring of circuits that wait for each other: some circuit has to go dark early.
            order.drop(max(sorted(set(blockers)), key=blockers.count))
    return order.steps


Path = NDArray[np.int32]


def make_transition(routing: RoutingState, case: HitCircuits, plan: Recovery) -> Transition:
    """Name the ports and fibres of a plan, by rising circuits, and order its changes."""
    order = sorted(range(len(plan.changed)), key=plan.changed.__getitem__)
    changed = [plan.changed[place] for place in order]
    paths = [plan.paths[place] for place in order]
    named = name_paths(
        routing.graph,
        routing.users,
        routing.first_fibre,
        paths,
        routing.circuits[changed].tolist(),
        leaving=set(changed),
        lit=set(changed).difference(case.hit),
    )
    steps = _order_changes(routing, case, changed, paths, named)
    moves = list(zip(case.lost, plan.handover, strict=True))
    return Transition(
        moves=np.array(moves, dtype=np.int32).reshape(-1, 2),
        changed=np.array(changed, dtype=np.int32),
        circuits=np.array(named.circuits, dtype=np.int32).reshape(-1, 2),
        routes=tuple(named.routes),
        steps=np.array(steps, dtype=np.int32).reshape(-1, 3),
    )


def _order_changes(
    routing: RoutingState,
    case: HitCircuits,
    changed: Sequence[int],
    paths: Sequence[Path],
    named: Named,
) -> list[Step]:
    """Order the steps of changed circuits, of which the hit ones are dark from the beginning.

    ``changed[k]`` is a circuit and ``paths[k]`` its new path; what a circuit occupies before and
    after, ports, fibres and cells with their states, decides which one has to go dark before
    another comes up.
    """
    old_needs = {}
    new_needs = {}
    present_states = {}
    for place, circuit in enumerate(changed):
        old_path = routing.paths[circuit]
        old_ends = routing.circuits[circuit].tolist()
        old_needs[circuit] = RouteNeeds(
            _list_parts(routing, old_path, old_ends, routing.old_routes[circuit]),
            dict(routing.cells_of(old_path)),
        )
        cells = routing.cells_of(paths[place])
        new_needs[circuit] = RouteNeeds(
            _list_parts(routing, paths[place], named.circuits[place], named.routes[place]),
            dict(cells),
        )
        for cell, _ in cells:
            present_states[cell] = int(routing.now[cell])
    return order_steps(old_needs, new_needs, case.hit, present_states)


def _list_parts(
    routing: RoutingState, path: Path, ends: tuple[int, int], route: Sequence[int]
) -> frozenset[tuple[str, int]]:
    """List the parts that a circuit has for itself: fibres and ports, or waveguides."""
    if routing.first_fibre:
        fibres = [("fibre", fibre) for fibre in route]
        return frozenset([*fibres, ("out", ends[0]), ("in", ends[1])])
    return frozenset(("link", int(link)) for link in routing.graph.resource[path[1:-1]])

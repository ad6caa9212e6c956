"""From a plan to the transition that carries it out: ports, routes, and the steps in order.

A *step* drops a circuit (takes its light away), sets a cell, or raises a circuit (gives it light
on its new route). A cell may be set only while no light passes it. A *part* is what only one
circuit can have at a time: a waveguide, or a fibre or port of a rack with ideal interposers.
Where no light passes chips, a rack takes over all of another one, and nothing is searched.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from optmatch.model import InfeasibleError
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.running import Damage
from optmatch.problems.reroutes.transition import DROP, RAISE, SET
from optmatch.solvers.reroutes.impossible import explain_bound
from optmatch.solvers.reroutes.repair import Recovery
from optmatch.solvers.reroutes.routing_state import (
    DESTINATION,
    NOBODY,
    SOURCE,
    HitCircuits,
    Path,
    RoutingState,
    Users,
)
from optmatch.solvers.reroutes.splice import FlowGraph

Step = tuple[int, int, int]
"""The kind of step, the circuit or cell, and the new state of a cell, -1 otherwise."""


class RouteNeeds(NamedTuple):
    """The cells and fibres that a route needs for itself."""

    parts: frozenset[Hashable]  # waveguides, fibres and ports
    cells: Mapping[int, int]  # the states of the cells it passes


class ChangeOrder:
    """The steps of a transition so far: which old routes have light, and the states of cells.

    Parameters
    ----------
    old, new
        The needs of the old and the new route, by circuit, of all circuits that change.
    dark
        The circuits without light from the beginning.
    now
        ``now[cell]``: the state of each cell on a new route before the first step, -1 if it was
        never set.

    Attributes
    ----------
    lit : set of int
        The circuits that still have light on their old route: a circuit that was dropped or moved
        is not among them.
    steps : list of Step
        All steps so far, in their order.
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
        """List cells that the new route of a circuit needs in another state than they have now.

        They come as pairs (cell, state needed).
        """
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
    """Order the changes of circuits from old routes to new ones; arguments as of `ChangeOrder`.

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


def make_transition(routing: RoutingState, case: HitCircuits, plan: Recovery) -> Transition:
    """Turn a plan into a transition: choose its ports and fibres, and order its changes.

    Circuits come in rising order. The ports, fibres and cell states that each one needs before
    and after decide which one has to go dark before another comes up; hit ones are dark from the
    beginning. `routing` still has the old routes.
    """
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

    # The parts and cells that each circuit needs for itself before and after.
    old_needs = {}
    new_needs = {}
    present_states: dict[int, int] = {}
    for place, circuit in enumerate(changed):
        old_path = routing.paths[circuit]
        old_ends = routing.circuits[circuit].tolist()
        old_needs[circuit] = RouteNeeds(
            _list_parts(routing, old_path, old_ends, routing.old_routes[circuit]),
            dict(routing.cells_of(old_path)),
        )
        cells = dict(routing.cells_of(paths[place]))
        new_needs[circuit] = RouteNeeds(
            _list_parts(routing, paths[place], named.circuits[place], named.routes[place]), cells
        )
        present_states |= {cell: int(routing.now[cell]) for cell in cells}

    # The steps, and the spares.
    steps = order_steps(old_needs, new_needs, case.hit, present_states)
    moves = list(zip(case.lost, plan.handover, strict=True))
    return Transition(
        moves=np.array(moves, dtype=np.int32).reshape(-1, 2),
        changed=np.array(changed, dtype=np.int32),
        circuits=np.array(named.circuits, dtype=np.int32).reshape(-1, 2),
        routes=tuple(named.routes),
        steps=np.array(steps, dtype=np.int32).reshape(-1, 3),
    )


def _list_parts(
    routing: RoutingState, path: Path, ends: tuple[int, int], route: Sequence[int]
) -> frozenset[tuple[str, int]]:
    """List the parts that a circuit has for itself: fibres and ports, or waveguides."""
    if routing.first_fibre:
        fibres = [("fibre", fibre) for fibre in route]
        return frozenset([*fibres, ("out", ends[0]), ("in", ends[1])])
    return frozenset(("link", int(link)) for link in routing.graph.resource[path[1:-1]])


class Named(NamedTuple):
    """Circuits as files have them."""

    circuits: list[tuple[int, int]]  # the source and the destination port of each
    routes: list[tuple[int, ...]]
    """Fibres passed in a rack with ideal interposers, else terminals entered."""


def name_paths(
    graph: FlowGraph,
    users: Users,
    first_fibre: Sequence[int],
    paths: Sequence[Path],
    wishes: Sequence[tuple[int, int]],
    *,
    leaving: Collection[int] = (),
    lit: Collection[int] = (),
) -> Named:
    """Choose ports and fibres for circuits; with cells the paths have them already.

    ``wishes[k]`` are the ports (source, destination) that the circuit of ``paths[k]`` has so far,
    and edge e has the fibres from ``first_fibre[e]`` up to ``first_fibre[e + 1]``; `first_fibre`
    is empty on a fabric with cells. In another unit a circuit keeps the place of its port: with 6
    ports to a unit, port 15 is at place 3, and in unit 7 it becomes port 45. If that is in use,
    the lowest free port of the unit is taken.

    `leaving` are running circuits that give up the parts that `users` says they have, and `lit`
    those among them that still have light: their fibres are taken only if there are no others.
    There is always a choice if the paths overdraw no resource.
    """
    # On a fabric with cells the nodes of a path are: the source unit, light about to enter a cell
    # (one node for each cell, the first of them at the stub of the source port), light that leaves
    # by the stub of the destination port, and the destination unit.
    if not len(first_fibre):
        return Named(
            circuits=[
                (int(graph.port_in[path[1]]), int(graph.port_out[path[-2]])) for path in paths
            ],
            routes=[tuple(graph.terminal[path[1:-2]].tolist()) for path in paths],
        )

    # In a rack with ideal interposers a node is an edge, of which any free fibre will do.
    chooser = _PartChooser(users, leaving, lit)
    named = Named([], [])
    for path, wish in zip(paths, wishes, strict=True):
        nodes = path.tolist()
        source_unit = nodes[0]
        destination_unit = nodes[-1] - graph.units
        source = chooser.take_port(SOURCE, source_unit, graph.per_unit, wish[SOURCE])
        destination = chooser.take_port(
            DESTINATION, destination_unit, graph.per_unit, wish[DESTINATION]
        )

        # A fibre of each edge between both units.
        route = []
        for node in nodes[1:-1]:
            edge = node - graph.inner
            fibres = range(first_fibre[edge], first_fibre[edge + 1])
            route.append(chooser.take_fibre(fibres))
        named.circuits.append((source, destination))
        named.routes.append(tuple(route))
    return named


class _PartChooser:
    """Gives ports and fibres that are free, or become free, each once.

    Parameters
    ----------
    users, leaving, lit
        As of `name_paths`: who has which part, and which circuits give theirs up.
    """

    def __init__(self, users: Users, leaving: Collection[int], lit: Collection[int]) -> None:
        """Begin with no port and no fibre given away."""
        self._users = users
        self._leaving = leaving
        self._lit = lit
        self._taken_ports: set[tuple[int, int]] = set()
        self._taken_fibres: set[int] = set()

    def take_port(self, end: int, unit: int, n_ports: int, wish: int) -> int:
        """Take the port of a unit at the place that port `wish` has in its own unit.

        If it is in use, the lowest free one of the `n_ports` ports of the unit is taken. `end` is
        `SOURCE` or `DESTINATION`: a port serves one circuit as each.
        """
        first = unit * n_ports
        port = first + wish % n_ports
        if not self._is_free_port(end, port):
            ports = range(first, first + n_ports)
            port = next(other for other in ports if self._is_free_port(end, other))
        self._taken_ports.add((end, port))
        return port

    def _is_free_port(self, end: int, port: int) -> bool:
        """Tell whether a port was not given away, and nobody or a leaving circuit has it."""
        user = self._users.ports[end][port]
        return (end, port) not in self._taken_ports and (user == NOBODY or user in self._leaving)

    def take_fibre(self, fibres: Iterable[int]) -> int:
        """Take the lowest fibre without light, or else the lowest that a lit circuit leaves.

        The fibre counts as taken from then on. The result is -1 if all are in use by circuits that
        stay.
        """
        # A fibre with light would have to go dark before the new circuit can have it.
        chosen = -1
        for fibre in fibres:
            user = self._users.fibres[fibre]
            is_free = user == NOBODY or user in self._leaving
            if not is_free or fibre in self._taken_fibres:
                continue
            if user not in self._lit:
                chosen = fibre
                break
            if chosen < 0:
                chosen = fibre
        self._taken_fibres.add(chosen)
        return chosen


Levels = tuple[int, int, int, int, int]
"""The five numbers that a plan is compared by; `Recovery` says which."""


def replace_racks(state: Reroute, damage: Damage) -> tuple[Transition, Levels]:
    """Let the first racks that are free take over from those that are lost, chip by chip.

    All racks are alike, and fibres and ports count rack by rack, so each circuit of a lost rack
    has the same ports and fibres in the other one. A part that lies in a third rack stays there.
    The result is the transition with its levels. Raises `InfeasibleError` if too few racks are
    free: since light passes no chips, only a whole rack can replace another one.
    """
    # Numbers of chips, ports and fibres are shifted by whole racks. A rack is lost, or free, with
    # all of its chips: every `per_rack`-th chip of these lists begins a rack.
    rack = state.units
    size = rack.n_chips
    n_racks = rack.racks
    per_rack = size // n_racks
    lost = damage.lost[::per_rack]
    free = damage.spares[::per_rack]
    if len(lost) > len(free):
        raise InfeasibleError(explain_bound(len(damage.lost), len(damage.spares)))

    # How many racks further on the rack is that takes over, by lost rack.
    shift = np.zeros(n_racks, dtype=np.int64)  # in racks
    for old, new in zip(lost, free, strict=False):
        shift[old // per_rack] = (new - old) // per_rack

    # Ports and fibres of hit circuits move along with their racks.
    changed = np.flatnonzero(damage.hit)
    ports = state.circuits[changed].astype(np.int64)
    ports_per_rack = state.fabric.n_ports // n_racks
    fibres_per_rack = rack.n_fibres // n_racks
    ports += shift[ports // ports_per_rack] * ports_per_rack
    routes = []
    for circuit in changed.tolist():
        fibres = np.array(state.routes[circuit], dtype=np.int64)
        fibres += shift[fibres // fibres_per_rack] * fibres_per_rack
        routes.append(tuple(fibres.tolist()))

    # The transition: which units move where, and all circuits raised anew; no cell is set.
    units = np.array(damage.lost, dtype=np.int64).reshape(-1, 1)
    transition = Transition(
        moves=np.hstack([units, units + shift[units // per_rack] * per_rack]).astype(np.int32),
        changed=changed.astype(np.int32),
        circuits=ports.astype(np.int32),
        routes=tuple(routes),
        steps=np.array([(RAISE, k, -1) for k in changed], dtype=np.int32).reshape(-1, 3),
    )
    lengths = [len(route) for route in routes]
    worst = max(lengths, default=0) * state.loss_units[1]
    return transition, (0, len(changed), 0, worst, sum(lengths))

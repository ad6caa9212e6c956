"""From a plan to the transition that carries it out: ports, routes, and the steps in order.

A *step* drops a circuit (takes its light away), sets a cell, or raises a circuit (gives it light
on its new route). A cell may be set only while no light passes it. A *part* is what only one
circuit can have at a time: a waveguide, or a fibre or port of a rack with ideal interposers. Where
no light passes chips, a rack takes over all of another one, and nothing is searched.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from optmatch.model import InfeasibleError
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.running import Damage
from optmatch.problems.reroutes.transition import DROP, RAISE, SET
from optmatch.solvers.reroutes.impossible import explain_shortage
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

    parts: frozenset[Hashable]
    """The numbers of waveguides; without cells pairs ("fibre", number), ("out", source port) and
    ("in", destination port)."""
    cells: Mapping[int, int]
    """``cells[cell]``: the state that a cell on the route must have, 0 bar or 1 cross."""


def order_steps(
    old: Mapping[int, RouteNeeds],
    new: Mapping[int, RouteNeeds],
    dark: Collection[int],
    now: Mapping[int, int],
) -> list[Step]:
    """Order the changes of circuits from old routes to new ones.

    `old` and `new` are the needs of both routes, by circuit; circuits in `dark` have no light from
    the beginning; ``now[cell]`` is the present state of a cell on a new route, -1 if it was never
    set. Returns the steps in their order.

    Each circuit in turn: the cells of its new route are set as far as its old light allows, then
    it goes dark, the rest is set, and it is raised. A circuit waits for others that stand in its
    way; where they wait in a ring, one that stands in the way of most goes dark early.

    Cells and parts of circuits that stay are in no conflict: new routes share no waveguide with
    them, and through a cell in two states there are no two routes that share none.
    """
    # What the steps so far have come to: the states of cells, and the old needs of the circuits
    # that still have light.
    steps = list[Step]()
    states = dict(now)
    lit = {circuit: old[circuit] for circuit in new if circuit not in dark}

    # Circuits that are dark already come first: they lose nothing by waiting for nobody.
    waiting = sorted(new, key=lambda circuit: (circuit in lit, circuit))
    while waiting:
        # The first circuit that nothing blocks moves; `blockers` are those of the ones before it.
        blockers = list[int]()
        for circuit in waiting:
            others = {other: needs for other, needs in lit.items() if other != circuit}
            in_the_way = _list_blockers(new[circuit], others, states)
            blockers += in_the_way
            if not in_the_way:
                break
        else:
            # A ring of circuits that wait for each other: some circuit has to go dark early.
            circuit = max(sorted(set(blockers)), key=blockers.count)
            del lit[circuit]
            steps.append((DROP, circuit, -1))
            continue

        # Cells that its old light does not pass are set while it still has light.
        if circuit in lit:
            old_cells = lit.pop(circuit).cells
            missing_cells = _list_missing_cells(new[circuit], states)
            _set_cells(
                [entry for entry in missing_cells if entry[0] not in old_cells], states, steps
            )
            steps.append((DROP, circuit, -1))
        _set_cells(_list_missing_cells(new[circuit], states), states, steps)
        steps.append((RAISE, circuit, -1))
        waiting.remove(circuit)
    return steps


def _list_missing_cells(needs: RouteNeeds, states: Mapping[int, int]) -> list[tuple[int, int]]:
    """List cells that are not in the state that a new route needs, each with that state."""
    return [(cell, state) for cell, state in needs.cells.items() if states[cell] != state]


def _list_blockers(
    needs: RouteNeeds, old_needs: Mapping[int, RouteNeeds], states: Mapping[int, int]
) -> list[int]:
    """List the circuits whose light is in the way of a new route, by number.

    `needs` is what the new route needs, ``old_needs[circuit]`` what the other circuits have on
    their old routes, on which they still have light, and ``states[cell]`` is as cells are now.
    """
    blocking = []
    missing_cells = {cell for cell, _ in _list_missing_cells(needs, states)}
    for circuit, old in sorted(old_needs.items()):
        if needs.parts & old.parts or not missing_cells.isdisjoint(old.cells):
            blocking.append(circuit)
    return blocking


def _set_cells(
    cells: Sequence[tuple[int, int]], states: dict[int, int], steps: list[Step]
) -> None:
    """Set cells to states: writes ``states[cell]``, and adds to the steps."""
    states.update(cells)
    steps.extend((SET, cell, state) for cell, state in cells)


def make_transition(routing: RoutingState, case: HitCircuits, plan: Recovery) -> Transition:
    """Turn a plan into a transition: choose its ports and fibres, and order its changes.

    `routing` still has the old routes. The circuits of the transition come in rising order. What
    each of them needs on its old and on its new route (`RouteNeeds`) decides which one has to go
    dark before another comes up.
    """
    # Ports and fibres for the new paths. All changed circuits give up those that they have; those
    # that the failure hit have no light any more, the others are `lit`.
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

    # The needs of each circuit before and after, and the present state of each cell on a new
    # route.
    old_needs = {}
    new_needs = {}
    present_states: dict[int, int] = {}
    for place, circuit in enumerate(changed):
        old_ends = routing.circuits[circuit].tolist()
        old_needs[circuit] = _list_needs(
            routing, routing.paths[circuit], old_ends, routing.old_routes[circuit]
        )
        new_needs[circuit] = _list_needs(
            routing, paths[place], named.circuits[place], named.routes[place]
        )
        cells = new_needs[circuit].cells
        present_states |= {cell: int(routing.now[cell]) for cell in cells}

    # A row of `steps` is a kind, a circuit or cell, and the new state of a cell, -1 for circuits.
    # A row of `moves` is a lost unit and the spare that takes over.
    steps = order_steps(old_needs, new_needs, case.hit, present_states)
    moves = list(zip(case.lost, plan.handover, strict=True))
    return Transition(
        moves=np.array(moves, dtype=np.int32).reshape(-1, 2),
        changed=np.array(changed, dtype=np.int32),
        circuits=np.array(named.circuits, dtype=np.int32).reshape(-1, 2),
        routes=tuple(named.routes),
        steps=np.array(steps, dtype=np.int32).reshape(-1, 3),
    )


def _list_needs(
    routing: RoutingState, path: Path, ends: tuple[int, int], route: Sequence[int]
) -> RouteNeeds:
    """List what a circuit has for itself: fibres and ports, or waveguides and cells.

    `ends` are its ports, and `route` its fibres in a rack with ideal interposers.
    """
    if routing.first_fibre:
        fibres = [("fibre", fibre) for fibre in route]
        return RouteNeeds(frozenset([*fibres, ("out", ends[0]), ("in", ends[1])]), {})
    links = frozenset(routing.graph.resource[path[1:-1]].tolist())
    return RouteNeeds(links, dict(routing.cells_of(path)))


class Named(NamedTuple):
    """Circuits as files have them."""

    circuits: list[tuple[int, int]]
    """The source and the destination port of each."""
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

    `leaving` are running circuits that give up the parts that `users` says they have, so that
    these are free to take. Some of them still have light (`lit`): their fibres are taken only if
    there are no others. There is always a choice if the paths overdraw no resource.
    """
    # On a fabric with cells the nodes of a path are: the source unit, light about to enter a cell
    # (one node for each cell, the first of them at the stub of the source port), light that leaves
    # by the stub of the destination port, and the destination unit. The nodes between the source
    # and the last two are the terminals by which light leaves cells: the route.
    if not len(first_fibre):
        return Named(
            circuits=[
                (int(graph.port_in[path[1]]), int(graph.port_out[path[-2]])) for path in paths
            ],
            routes=[tuple(graph.terminal[path[1:-2]].tolist()) for path in paths],
        )

    # In a rack with ideal interposers the inner nodes of a path are edges, of which any free fibre
    # will do. The last node is the destination, numbered behind all units as sources. Lists are
    # quicker to look at one by one than arrays.
    users_of_port = users.ports.tolist()
    user_of_fibre = users.fibres.tolist()
    taken_ports: tuple[set[int], set[int]] = (set(), set())  # of sources, of destinations
    taken_fibres: set[int] = set()
    named = Named([], [])
    for path, wish in zip(paths, wishes, strict=True):
        nodes = path.tolist()
        ports = []
        for end, unit in ((SOURCE, nodes[0]), (DESTINATION, nodes[-1] - graph.units)):
            first = unit * graph.per_unit
            wished_port = first + wish[end] % graph.per_unit
            ports_of_unit = range(first, first + graph.per_unit)
            candidates: Iterable[int] = chain([wished_port], ports_of_unit)
            ports.append(_take_first(candidates, users_of_port[end], leaving, taken_ports[end]))

        # A fibre of each edge between both units. One with light would have to go dark before the
        # new circuit can have it.
        route = []
        for node in nodes[1:-1]:
            edge = node - graph.inner
            fibres = range(first_fibre[edge], first_fibre[edge + 1])
            dark_fibres = (fibre for fibre in fibres if user_of_fibre[fibre] not in lit)
            candidates = chain(dark_fibres, fibres)
            route.append(_take_first(candidates, user_of_fibre, leaving, taken_fibres))
        named.circuits.append((ports[SOURCE], ports[DESTINATION]))
        named.routes.append(tuple(route))
    return named


def _take_first(
    candidates: Iterable[int],
    user_of_part: Sequence[int],
    leaving: Collection[int],
    taken: set[int],
) -> int:
    """Take the first candidate that nobody keeps, and return it; -1 if there is none.

    Candidates are parts of one kind, such as fibres, of which ``user_of_part[part]`` is the
    circuit that has it now. Circuits in `leaving` give theirs up. The part is added to `taken`,
    those that new circuits have.
    """
    for part in candidates:
        user = user_of_part[part]
        if part not in taken and (user == NOBODY or user in leaving):
            taken.add(part)
            return part
    return -1


Levels = tuple[int, int, int, int, int]
"""The five numbers that a plan is compared by; `Recovery` says which."""


def replace_racks(state: Reroute, damage: Damage) -> tuple[Transition, Levels]:
    """Let the first racks that are free take over from those that are lost, chip by chip.

    `damage` says what a failure of `state` hits, which chips are lost and which can take over. All
    racks are alike, and fibres and ports count rack by rack, hence each circuit of a lost rack has
    the same ports and fibres in the other one. A part that lies in a third rack stays there. The
    result is the transition with its levels. Raises `InfeasibleError` if too few racks are free:
    since light passes no chips, only a whole rack can replace another one.
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
        raise InfeasibleError(explain_shortage(len(damage.lost), len(damage.spares)))

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
    # The levels: nobody else is disturbed, and light passes fibres alone, whose loss in hundredths
    # of a dB is the second one of `loss_units`.
    lengths = [len(route) for route in routes]
    worst = max(lengths, default=0) * state.loss_units[1]
    return transition, (0, len(changed), 0, worst, sum(lengths))

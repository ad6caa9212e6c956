"""The order of changes: make before break, so that no circuit is dark longer than it must be."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import NamedTuple

from optmatch.problems.reroutes.transition import DROP, RAISE, SET

Step = tuple[int, int, int]


class RouteNeeds(NamedTuple):
    """What a route needs for itself."""

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

"""The best answers to tiny failures of meshes by trying every state of the cells."""

from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Reroute
from optmatch.testing.reroutes import follow


def best_reroute(problem: Reroute) -> tuple[int, ...] | None:
    """Find the best objective by trying every state of the cells of a mesh; None if nothing helps.

    The mesh has at most a dozen cells or so.
    """
    fabric: Any = problem.fabric
    now = np.array(problem.cell_states)
    for cell, state in problem.stuck.items():
        now[cell] = state
    best: tuple[int, ...] | None = None
    for code in range(2**fabric.n_cells):
        states = (code >> np.arange(fabric.n_cells) & 1).astype(np.int8)
        if any(states[cell] != state for cell, state in problem.stuck.items()):
            continue
        for handover in permutations(problem.live_spares, len(problem.lost)):
            levels = _levels(problem, states, now, dict(zip(problem.lost, handover, strict=True)))
            if levels is not None and (best is None or levels < best):
                best = levels
    return best


def _levels(
    problem: Reroute, states: NDArray[np.int8], now: NDArray[np.int8], after: dict[int, int]
) -> tuple[int, ...] | None:
    """Return the costs of ending in these states; None if they do not hold the circuits."""
    fabric: Any = problem.fabric
    link_of = fabric.graph.links.of_terminal
    used: set[int] = set()
    changed: list[int] = []
    ways = []
    for circuit, ends in enumerate(problem.circuits.tolist()):
        source, destination = (after.get(port, port) for port in ends)
        way, left = follow(fabric.graph, states, int(fabric.source_terminals[source]))
        links = [*link_of[way].tolist(), int(link_of[left])]
        broken = any(terminal // 4 in problem.dead_cells for terminal in way)
        if left != fabric.destination_terminals[destination] or broken:
            return None
        if len(set(links)) < len(links) or not used.isdisjoint(links):
            return None
        used.update(links)
        if problem.hit[circuit] or tuple(way) != problem.circuit_routes[circuit]:
            changed.append(circuit)
            ways.append(way)
    touched = {terminal // 4 for way in ways for terminal in way}
    sets = sum(now[cell] != states[cell] for cell in touched)
    lengths = [len(way) for way in ways]
    worst = max(lengths, default=0) * problem.loss_units[0]
    disturbed = sum(bool(problem.foreign[circuit]) for circuit in changed)
    return disturbed, len(changed), int(sets), worst, sum(lengths)

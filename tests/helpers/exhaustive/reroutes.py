"""The best answers to tiny failures of meshes by trying every state of the cells."""

from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.light import Light, trace
from optmatch.problems import Reroute


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
        light = trace(fabric.graph, states[None], fabric.source_terminals[None])
        for handover in permutations(problem.live_spares, len(problem.lost)):
            after = dict(zip(problem.lost, handover, strict=True))
            levels = _levels(problem, states, light, now, after)
            if levels is not None and (best is None or levels < best):
                best = levels
    return best


def _levels(
    problem: Reroute,
    states: NDArray[np.int8],
    light: Light,
    now: NDArray[np.int8],
    after: dict[int, int],
) -> tuple[int, ...] | None:
    """Return the costs of ending in these states; None if they do not hold the circuits."""
    fabric: Any = problem.fabric
    link_of = fabric.graph.links.of_terminal
    used: set[int] = set()
    changed: list[int] = []
    ways = []
    for circuit, ends in enumerate(problem.circuits.tolist()):
        source, destination = (after.get(port, port) for port in ends)
        way = light.entered[light.beam == source].tolist()
        left = int(light.arrived[0, source])
        links = link_of[[*way, left]].tolist()
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

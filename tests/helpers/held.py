"""What a mesh of few cells holds, by all states of its cells."""

from functools import cache

import numpy as np

from optmatch.fabrics import Fabric, light


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

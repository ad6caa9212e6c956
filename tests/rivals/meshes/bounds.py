"""A bound on the slots of an all-to-all, by a linear programme over flows of light."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array

from optmatch.fabrics import Fabric
from tests.rivals.meshes.routes import Pairs


def bound_slots_by_flows(fabric: Fabric, pairs: Pairs) -> float:
    """Bound the slots of an all-to-all by a linear programme over flows of light.

    Light of each pair is a flow of size 1, which may split up. If a schedule has T slots, a link
    carries at most T of it. The least T for which there are such flows is therefore a bound.

    The flow of each source splits up among its destinations. One variable for each source and
    terminal is the flow that leaves there; the last variable is the number of slots. For each side
    of a cell one equation says that what enters there leaves by the other side; of a stuck cell,
    one for each terminal. For each link an inequality says that all flows on it are no more than
    the slots.

    Parameters
    ----------
    fabric
        A fabric with cells.
    pairs
        Source and destination ports.

    Returns
    -------
    float
        The least number of slots, which need not be whole.
    """
    graph = fabric.graph
    assert graph is not None
    n_terminals = len(graph.mate)
    sources = sorted({source for source, _ in pairs})
    n_variables = len(sources) * n_terminals + 1
    entries: list[tuple[int, int, float]] = []  # of equations: row, column, coefficient
    right: list[float] = []  # of equations
    loads: list[tuple[int, int, float]] = []  # of links
    port_load = np.zeros(graph.links.count)
    upper = np.full(n_variables, np.inf)
    for k, source in enumerate(sources):
        first = k * n_terminals
        start = int(fabric.source_terminals[source])
        goals = {int(fabric.destination_terminals[j]) for i, j in pairs if i == source}
        port_load[graph.links.of_terminal[start]] += len(goals)
        for terminal in range(n_terminals):
            loads.append((int(graph.links.of_terminal[terminal]), first + terminal, 1.0))
            if graph.mate[terminal] < 0:
                upper[first + terminal] = terminal in goals
        for entrances in _list_entrances(graph.exits):
            row = len(right)
            for terminal in entrances:
                if graph.mate[terminal] >= 0:
                    entries.append((row, first + int(graph.mate[terminal]), 1.0))
            for leaving in {int(leaving) for leaving in graph.exits[entrances[0]]}:
                entries.append((row, first + leaving, -1.0))
            right.append(-float(len(goals)) if start in entrances else 0.0)
    loads += [(link, n_variables - 1, -1.0) for link in range(graph.links.count)]
    cost = np.zeros(n_variables)
    cost[-1] = 1.0
    solved = linprog(
        cost,
        A_ub=_matrix(loads, (graph.links.count, n_variables)),
        b_ub=-port_load,
        A_eq=_matrix(entries, (len(right), n_variables)),
        b_eq=right,
        bounds=np.stack([np.zeros(n_variables), upper], axis=1),
        method="highs",
    )
    return float(solved.fun)


def _list_entrances(exits: NDArray[np.int32]) -> list[tuple[int, ...]]:
    """List the terminals of cells in groups from which light can leave by the same terminals.

    ``exits[terminal, state]`` is where light that enters at a terminal leaves. Both terminals of a
    side are a group; those of a stuck cell lead apart.
    """
    groups: list[tuple[int, ...]] = []
    for side in range(0, len(exits), 2):
        if set(exits[side].tolist()) == set(exits[side + 1].tolist()):
            groups.append((side, side + 1))
        else:
            groups += [(side,), (side + 1,)]
    return groups


def _matrix(entries: list[tuple[int, int, float]], shape: tuple[int, int]) -> coo_array:
    """Make a sparse matrix of its entries."""
    rows, columns, values = zip(*entries, strict=True)
    return coo_array((values, (rows, columns)), shape=shape)

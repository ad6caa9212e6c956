"""Best values by trying every state of every cell: slow, and too simple to be wrong."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
from optmatch.fabrics.light import trace
from optmatch.model import BAR, InputError
from optmatch.problems import AllToAll, Routing

MOST_CELLS = 16

Matching = frozenset[tuple[int, int]]


class Traces(NamedTuple):
    """Where light from each port goes in every state of the cells."""

    destination: NDArray[np.int32]
    """``destination[state, source]``: the port it leaves by, -1 if by a terminal that is none."""
    cells: NDArray[np.int32]
    """``cells[state, source]``: the cells it passes."""
    bar_cells: NDArray[np.int32]
    """``bar_cells[state, source]``: those of them that are bar."""


def best_routing(problem: Routing) -> float | None:
    """Find the best objective of a matching, by trying all states of all cells.

    Parameters
    ----------
    problem
        On a fabric with few cells, or without cells, where the objective is 0. Its objective is
        `worst-cells`, `loss-db` or `total-cells`.

    Returns
    -------
    float or None
        Cells, or dB; None if no state holds the matching.
    """
    if problem.fabric.graph is None:
        return 0.0
    sources, destinations = problem.circuits.T
    traces = _trace_every_state(problem.fabric)
    holds_matching = (traces.destination[:, sources] == destinations).all(axis=1)
    if not holds_matching.any():
        return None

    # The cells that each circuit passes, in all states that hold the matching.
    n_cells = traces.cells[holds_matching][:, sources]
    n_bar_cells = traces.bar_cells[holds_matching][:, sources]
    if problem.objective == "worst-cells":
        return float(n_cells.max(axis=1, initial=0).min())
    if problem.objective == "loss-db":
        n_cross_cells = n_cells - n_bar_cells
        loss_db = n_bar_cells * problem.bar_loss_db + n_cross_cells * problem.cross_loss_db
        return float(loss_db.sum(axis=1).min())
    return float(n_cells.sum(axis=1).min())


def best_all_to_all(problem: AllToAll) -> float | None:
    """Find the fewest cells with the fewest slots in which all pairs can meet, by enumeration.

    All slots are full, since with one slot less there would be too few.

    Parameters
    ----------
    problem
        A problem on a tiny fabric.

    Returns
    -------
    float or None
        The number of cells that light passes in all slots together; None without an answer.
    """
    pairs = frozenset((int(i), int(j)) for i, j in problem.pairs)
    if not pairs or problem.fabric.graph is None:
        return 0.0
    pairs_per_slot = len(pairs) // problem.min_slots

    # Many states lead the ports to the same destinations; the cheapest of each such group counts.
    traces = _trace_every_state(problem.fabric)
    rows, row_of_state = np.unique(traces.destination, axis=0, return_inverse=True)
    cost_of_matching = {}
    for k, row in enumerate(rows.tolist()):
        matching = [pair for pair in enumerate(row) if pair in pairs]
        if len(matching) == pairs_per_slot:
            sources = [source for source, _ in matching]
            n_cells = traces.cells[row_of_state.ravel() == k][:, sources]
            cost_of_matching[frozenset(matching)] = float(n_cells.sum(axis=1).min())
    best = _cheapest_partition(pairs, cost_of_matching)
    return None if math.isinf(best) else best


def _cheapest_partition(pairs: Matching, cost_of_matching: dict[Matching, float]) -> float:
    """Return the least cost of a partition of pairs into matchings; infinite if there is none.

    The first pair is in one of the matchings: each of them is tried, and the rest is partitioned
    in the same way.
    """
    if not pairs:
        return 0.0
    first_pair = min(pairs)
    best = math.inf
    for matching, cost in cost_of_matching.items():
        if first_pair in matching and matching <= pairs:
            rest_cost = _cheapest_partition(pairs - matching, cost_of_matching)
            best = min(best, cost + rest_cost)
    return best


def largest_matchings(fabric: Fabric) -> list[list[int]] | None:
    """List the matchings that the states of a fabric hold.

    Parameters
    ----------
    fabric
        A fabric of few cells.

    Returns
    -------
    list of list of int, or None
        ``matching[source] = destination``, -1 for none; None where every matching is held, since
        the fabric has no cells.
    """
    if fabric.graph is None:
        return None
    destinations = np.unique(_trace_every_state(fabric).destination, axis=0)
    if fabric.bidirectional:
        # Light that comes back to its own port is no circuit.
        is_own_port = destinations == np.arange(fabric.n_ports)
        destinations = np.unique(np.where(is_own_port, -1, destinations), axis=0)
    matchings: list[list[int]] = destinations.tolist()
    return matchings


@lru_cache(maxsize=16)
def _trace_every_state(fabric: Fabric) -> Traces:
    """Follow the light of each port through all 2**cells states of the cells at once.

    Bit c of the number of a state is 1 if cell c is in cross. More than `MOST_CELLS` cells are
    refused.
    """
    graph = fabric.graph
    if not isinstance(graph, CellGraph) or graph.n_cells > MOST_CELLS:
        raise InputError(f"brute force is for fabrics of at most {MOST_CELLS} cells")

    # states[number, cell]: the bits of the number of a state.
    n_states = 2**graph.n_cells
    states = np.arange(n_states)[:, None] >> np.arange(graph.n_cells) & 1
    port_of_terminal = np.full(len(graph.mate), -1, dtype=np.int32)
    port_of_terminal[fabric.destination_terminals] = np.arange(fabric.n_ports)
    shape = (n_states, fabric.n_ports)
    traces = Traces(
        destination=np.zeros(shape, dtype=np.int32),
        cells=np.zeros(shape, dtype=np.int32),
        bar_cells=np.zeros(shape, dtype=np.int32),
    )
    for source, terminal in enumerate(fabric.source_terminals):
        # The exits of a stuck cell are those of its state. Bar joins terminals that are both the
        # first or both the second at their end of the cell.
        light = trace(graph, states, np.full((n_states, 1), terminal))
        is_bar = (light.left ^ light.entered) & 1 == BAR
        traces.cells[:, source] = np.bincount(light.slot, minlength=n_states)
        traces.bar_cells[:, source] = np.bincount(light.slot[is_bar], minlength=n_states)
        traces.destination[:, source] = port_of_terminal[light.arrived[:, 0]]
    return traces

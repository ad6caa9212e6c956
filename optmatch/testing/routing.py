"""Best values by trying every state of every cell: slow, and too simple to be wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import CellGraph, Fabric
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
    """Find the best objective of a matching; None if no state holds it."""
    if problem.fabric.graph is None:
        return 0.0
    sources, destinations = problem.circuits.T
    traces = _trace_every_state(problem.fabric)
    held = (traces.destination[:, sources] == destinations).all(axis=1)
    if not held.any():
        return None
    cells = traces.cells[held][:, sources]
    bars = traces.bar_cells[held][:, sources]
    if problem.objective == "worst-cells":
        return float(cells.max(axis=1, initial=0).min())
    if problem.objective == "loss-db":
        loss = bars * problem.bar_loss_db + (cells - bars) * problem.cross_loss_db
        return float(loss.sum(axis=1).min())
    return float(cells.sum(axis=1).min())


def best_all_to_all(problem: AllToAll) -> float | None:
    """Find the fewest cells of so many slots as are needed at least; None if there are none."""
    wanted = frozenset((int(i), int(j)) for i, j in problem.pairs)
    if not wanted or problem.fabric.graph is None:
        return 0.0
    per_slot = (
        len(wanted) // problem.min_slots
    )  # the slots are all full: there is one slot too few
    costs = dict(_full_matchings(problem.fabric, wanted, per_slot))
    best = _best_partition(wanted, costs)
    return None if math.isinf(best) else best


def _full_matchings(
    fabric: Fabric, wanted: Matching, per_slot: int
) -> Iterator[tuple[Matching, float]]:
    """Yield each matching of so many wanted pairs that some state holds, with its fewest cells."""
    traces = _trace_every_state(fabric)
    rows, of_state = np.unique(traces.destination, axis=0, return_inverse=True)
    for k, row in enumerate(rows):
        pairs = [(i, int(j)) for i, j in enumerate(row) if (i, int(j)) in wanted]
        if len(pairs) == per_slot:
            cells = traces.cells[of_state.ravel() == k][:, [i for i, _ in pairs]]
            yield frozenset(pairs), float(cells.sum(axis=1).min())


def _best_partition(left: Matching, costs: dict[Matching, float]) -> float:
    """Split the pairs in matchings of least cost together; infinite if there is no way."""
    if not left:
        return 0.0
    first = min(left)
    return min(
        (
            cost + _best_partition(left - matching, costs)
            for matching, cost in costs.items()
            if first in matching and matching <= left
        ),
        default=math.inf,
    )


def largest_matchings(fabric: Fabric) -> list[list[int]] | None:
    """List what the states hold between ports; None where every matching is held."""
    if fabric.graph is None:
        return None
    found = np.unique(_trace_every_state(fabric).destination, axis=0)
    if fabric.bidirectional:  # light that comes back to its own port is no circuit
        found = np.unique(np.where(found == np.arange(fabric.n_ports), -1, found), axis=0)
    rows: list[list[int]] = found.tolist()
    return rows


@lru_cache(maxsize=16)
def _trace_every_state(fabric: Fabric) -> Traces:
    graph = fabric.graph
    if not isinstance(graph, CellGraph) or graph.n_cells > MOST_CELLS:
        raise InputError(f"brute force is for fabrics of at most {MOST_CELLS} cells")
    states = np.arange(2**graph.n_cells)[:, None] >> np.arange(graph.n_cells) & 1
    port_at = np.full(len(graph.mate), -1, dtype=np.int32)
    port_at[fabric.destination_terminals] = np.arange(fabric.n_ports)
    shape = len(states), fabric.n_ports
    traces = Traces(*(np.zeros(shape, dtype=np.int32) for _ in range(3)))
    every = np.arange(len(states))
    for source, terminal in enumerate(fabric.source_terminals):
        entered = np.full(len(states), terminal)
        light = every  # the states in which this light is still inside
        while len(light):
            state = states[light, entered // 4]
            left = graph.exits[entered, state]
            traces.cells[light, source] += 1
            traces.bar_cells[light, source] += (left ^ entered) & 1 == BAR  # stuck cells: as is
            traces.destination[light, source] = port_at[left]
            inside = graph.mate[left] >= 0
            light = light[inside]
            entered = graph.mate[left[inside]]
    return traces

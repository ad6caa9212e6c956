"""The way of light: the physics of a mesh whose cells are all set.

This module is not part of the exports of `optmatch.fabrics`: methods find routes without it, and
are checked by it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.fabrics.cellgraph import CellGraph
from optmatch.fabrics.fabric import Fabric
from optmatch.model import FREE, IDLE, InputError, Schedule


class Light(NamedTuple):
    """The ways of many beams: an entry for each cell that a beam passes, in this order."""

    slot: NDArray[np.int64]
    beam: NDArray[np.int64]
    entered: NDArray[np.int64]
    """The terminal at which the cell is entered."""
    left: NDArray[np.int64]
    """The terminal by which it is left."""
    arrived: NDArray[np.int64]
    """``arrived[slot, beam]``: the free terminal where the light comes out, -1 if it does not."""
    stopped: NDArray[np.int64]
    """``stopped[slot, beam]``: where in a free cell the light is lost, -1 if it is not."""


class Route(NamedTuple):
    """The way of one circuit."""

    source: int
    destination: int
    cells: tuple[int, ...]
    """The cells passed, in order; a cell that is passed twice is there twice."""
    terminals: tuple[int, ...]
    """For each of these cells the terminal entered and the terminal left."""


def trace(graph: CellGraph, cell_states: ArrayLike, entered: ArrayLike) -> Light:
    """Follow light through cells that are all set.

    ``cell_states[slot, cell]`` is 0 bar, 1 cross, -1 free; ``entered[slot, beam]`` the free
    terminal at which a beam enters, -1 for none. Light ends at a free terminal, or in a free cell.
    Where shapes disagree, or light would enter elsewhere, `InputError` is raised.

    A set cell leads different ways in to different ways out, so light from outside never comes
    round to where it was: the loop below ends after at most 4 steps for each cell. All beams take
    a step together; time is proportional to the number of cells passed.
    """
    states, entries = np.asarray(cell_states), np.asarray(entered, dtype=np.int64)
    if states.ndim != 2 or entries.ndim != 2 or states.shape != (len(entries), graph.n_cells):
        raise InputError(
            f"cell_states {states.shape} and entered {entries.shape}:"
            f" not (slots, {graph.n_cells} cells) and (slots, beams)"
        )
    slot, beam = np.nonzero(entries != -1)
    at = entries[slot, beam]
    if ((at < 0) | (at >= len(graph.mate))).any() or (graph.mate[at] >= 0).any():
        raise InputError("light enters at free terminals only", where="entered")
    exits = graph.exits
    arrived, stopped = np.full_like(entries, -1), np.full_like(entries, -1)
    steps = [np.empty((4, 0), dtype=np.int64)]
    while len(at):
        state = states[slot, at // 4]
        free = state == FREE
        stopped[slot[free], beam[free]] = at[free]
        slot, beam, at, state = slot[~free], beam[~free], at[~free], state[~free]
        left = exits[at, state].astype(np.int64)
        steps.append(np.stack([slot, beam, at, left]))
        onward = graph.mate[left].astype(np.int64)
        out = onward < 0
        arrived[slot[out], beam[out]] = left[out]
        slot, beam, at = slot[~out], beam[~out], onward[~out]
    passed = np.concatenate(steps, axis=1)
    order = np.argsort(passed[0] * entries.shape[1] + passed[1], kind="stable")
    slot, beam, at, left = passed[:, order]
    return Light(slot, beam, at, left, arrived, stopped)


def trace_circuits(fabric: Fabric, schedule: Schedule) -> list[list[Route]]:
    """Follow the light of every circuit of a schedule of these ports and cells, right or not.

    Returns for each slot its circuits by source port; of bidirectional ports each circuit once,
    from the lower port. A route ends where its light ends; on a fabric without cells, or without
    stated states, it is empty. A schedule of other ports raises `InputError`.
    """
    matchings = schedule.matchings
    if schedule.n_ports != fabric.n_ports:
        raise InputError(f"matchings of {schedule.n_ports} ports, a fabric of {fabric.n_ports}")
    wanted = matchings != IDLE
    if fabric.bidirectional:
        wanted &= np.arange(schedule.n_ports) < matchings
    if fabric.graph is None or schedule.cell_states is None:
        entered = left = np.empty(0, dtype=np.int64)
        counts = np.zeros(matchings.shape, dtype=np.int64)
    else:
        starts = np.where(wanted, fabric.source_terminals, -1)
        light = trace(fabric.graph, schedule.cell_states, starts)
        entered, left = light.entered, light.left
        counts = np.zeros(matchings.shape, dtype=np.int64)
        np.add.at(counts, (light.slot, light.beam), 1)
    slots, sources = np.nonzero(wanted)
    ends = np.cumsum(counts[slots, sources])
    cells, terminals = (entered // 4).tolist(), np.stack([entered, left], axis=1).ravel().tolist()
    routes: list[list[Route]] = [[] for _ in range(schedule.n_slots)]
    first = 0
    for slot, source, end in zip(slots.tolist(), sources.tolist(), ends.tolist(), strict=True):
        destination = int(matchings[slot, source])
        way, passed = tuple(cells[first:end]), tuple(terminals[2 * first : 2 * end])
        routes[slot].append(Route(source, destination, way, passed))
        first = end
    return routes

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
    """The row of states in which the beam is followed."""
    beam: NDArray[np.int64]
    """The number of the beam in its slot."""
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
    """Follow beams of light through the cells of a fabric, to where they end.

    ``cell_states[slot, cell]`` is 0 for bar, 1 for cross, -1 for a cell that is not set. A beam
    enters at a free terminal, ``entered[slot, beam]``, -1 for none, and ends at another one, or in
    a cell that is not set. All beams take a step, through one cell, together; time is proportional
    to the number of cells passed. The passed cells are sorted by slot and beam, and in the order
    of the way. Wrong shapes, and light that would enter elsewhere, are an `InputError`.
    """
    states = np.asarray(cell_states)
    entries = np.asarray(entered, dtype=np.int64)
    if states.ndim != 2 or entries.ndim != 2 or states.shape != (len(entries), graph.n_cells):
        raise InputError(
            f"cell_states {states.shape} and entered {entries.shape}:"
            f" not (slots, {graph.n_cells} cells) and (slots, beams)"
        )

    # Each beam of the loop below has its place in flat arrays, slot * beams + beam, and the
    # terminal that it enters next.
    n_beams = entries.shape[1]
    place = np.flatnonzero(entries != -1)
    terminal = entries.flat[place]
    exists = (terminal >= 0) & (terminal < len(graph.mate))
    if not exists.all() or (graph.mate[terminal] >= 0).any():
        raise InputError("light enters at free terminals only", where="entered")

    # ``exits[terminal, state]`` is the terminal by which light that enters at a terminal leaves
    # its cell.
    exits = graph.exits  # looked up once: graphs are told apart by all that they hold
    arrived = np.full_like(entries, -1)
    stopped = np.full_like(entries, -1)
    steps = [np.empty((3, 0), dtype=np.int64)]  # place, terminal entered, terminal left
    # A set cell leads different ways in to different ways out: no beam comes round to where it
    # was, and the loop ends after at most 4 steps for each cell.
    while len(terminal):
        # Light that enters a free cell is lost there.
        state = states[place // n_beams, terminal // 4]
        is_free = state == FREE
        stopped.flat[place[is_free]] = terminal[is_free]
        place = place[~is_free]
        terminal = terminal[~is_free]

        # All other light leaves its cell, and comes out or enters the next one.
        left = exits[terminal, state[~is_free]].astype(np.int64)
        steps.append(np.stack([place, terminal, left]))
        next_terminal = graph.mate[left].astype(np.int64)
        comes_out = next_terminal < 0
        arrived.flat[place[comes_out]] = left[comes_out]
        place = place[~comes_out]
        terminal = next_terminal[~comes_out]

    # Steps of one beam stand together, in the order in which it takes them.
    passed = np.concatenate(steps, axis=1)
    place, terminal, left = passed[:, np.argsort(passed[0], kind="stable")]
    return Light(place // n_beams, place % n_beams, terminal, left, arrived, stopped)


def trace_circuits(fabric: Fabric, schedule: Schedule) -> list[list[Route]]:
    """List the cells that the light of every circuit of a schedule passes, right or not.

    ``routes[slot]`` has its circuits by source port; of bidirectional ports each circuit once,
    from the lower port. A route has the cells passed in order, with the terminals entered and
    left. It ends where the light ends; without cells or stated states it is empty.
    """
    matchings = schedule.matchings
    if schedule.n_ports != fabric.n_ports:
        raise InputError(f"matchings of {schedule.n_ports} ports, a fabric of {fabric.n_ports}")
    is_traced = matchings != IDLE
    if fabric.bidirectional:
        is_traced &= np.arange(schedule.n_ports) < matchings
    # Without stated cells routes are empty; else count the cells on each beam.
    n_passed = np.zeros(matchings.shape, dtype=np.int64)
    entered = np.empty(0, dtype=np.int64)
    left = np.empty(0, dtype=np.int64)
    if fabric.graph is not None and schedule.cell_states is not None:
        starts = np.where(is_traced, fabric.source_terminals, -1)
        light = trace(fabric.graph, schedule.cell_states, starts)
        entered = light.entered
        left = light.left
        np.add.at(n_passed, (light.slot, light.beam), 1)

    # Beams follow each other by slot and source, so a route ends where the next one begins.
    slots, sources = np.nonzero(is_traced)
    ends = np.cumsum(n_passed[slots, sources]).tolist()
    # For each cell the terminal entered and the terminal left follow each other.
    cells = (entered // 4).tolist()
    terminals = np.stack([entered, left], axis=1).ravel().tolist()
    routes: list[list[Route]] = [[] for _ in range(schedule.n_slots)]
    first = 0
    for slot, source, end in zip(slots.tolist(), sources.tolist(), ends, strict=True):
        route = Route(
            source=source,
            destination=int(matchings[slot, source]),
            cells=tuple(cells[first:end]),
            terminals=tuple(terminals[2 * first : 2 * end]),
        )
        routes[slot].append(route)
        first = end
    return routes

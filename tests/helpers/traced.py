"""Schedules that hold by construction: random cell states, and the matching of their light."""

import numpy as np
from numpy.typing import ArrayLike

from optmatch.fabrics import Fabric
from optmatch.fabrics.light import trace
from optmatch.model import FREE, Schedule


def schedule_of(
    matchings: ArrayLike, *, slot_s: float = 1.0, cell_states: ArrayLike | None = None
) -> Schedule:
    """Make a schedule of nested lists, with slots of one duration."""
    rows = np.asarray(matchings, dtype=np.int32)
    states = None if cell_states is None else np.asarray(cell_states, dtype=np.int8)
    return Schedule(
        matchings=rows, durations_s=np.full(len(rows), slot_s), delay_s=0.015, cell_states=states
    )


def traced_schedule(fabric: Fabric, n_slots: int, seed: int = 0) -> Schedule:
    """Set all cells at random, 40 times for each slot; keep states that connect the most ports.

    Cells without light from port to port are free.
    """
    graph = fabric.graph
    assert graph is not None
    rng = np.random.default_rng(seed)
    port_at = np.full(4 * graph.n_cells, -1)
    port_at[fabric.destination_terminals] = np.arange(fabric.n_ports)
    tries = rng.integers(0, 2, (40 * n_slots, graph.n_cells)).astype(np.int8)
    starts = np.tile(fabric.source_terminals, (len(tries), 1))
    connected = (port_at[trace(graph, tries, starts).arrived] >= 0).sum(axis=1)
    random = tries[np.sort(np.argsort(-connected, kind="stable")[:n_slots])]
    light = trace(graph, random, starts[:n_slots])
    matchings = port_at[light.arrived]
    kept = matchings[light.slot, light.beam] >= 0
    slots, cells = light.slot[kept], light.entered[kept] // 4
    states = np.full_like(random, FREE)
    states[slots, cells] = random[slots, cells]
    return schedule_of(matchings, cell_states=states)

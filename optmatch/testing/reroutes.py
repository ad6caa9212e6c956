"""Small failures of meshes and racks, as a hypothesis strategy and drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from optmatch.fabrics import Benes, Fabric, HexMesh, RackFabric, SquareMesh, units_of
from optmatch.model import FREE
from optmatch.problems import Reroute

_TINY: tuple[Fabric, ...] = (
    HexMesh(1, 2, ports=[0, 1, 3, 4, 7, 10]),
    HexMesh(1, 1, ports=[0, 1, 4, 5, 8]),
    SquareMesh(1, 2, ports=[0, 2, 4, 6, 8, 10]),
    HexMesh(1, 1, tx=[0, 3, 6], rx=[5, 8, 11]),
)
_SMALL: tuple[Fabric, ...] = (HexMesh(3, 3, ports=12), HexMesh(2, 2, tx=4, rx=4), Benes(8))
_RING = RackFabric((6, 2, 1), (2, 2, 1), fibres=2)
_RACKS: tuple[RackFabric, ...] = (
    _RING,
    RackFabric((4, 2, 2), (2, 1, 1), fibres=1, ports_per_chip=2),
    RackFabric((4, 2, 1), (2, 1, 1), fibres=1, ports_per_chip=2, racks=2, joined=True),
    replace(_RING, fibres=1, ports_per_chip=2, interposer=Benes(12)),
)


@st.composite
def reroute_problems(draw: st.DrawFn, *, tiny: bool = False) -> Reroute:
    """Draw a running state of a mesh or a rack, and what fails in it.

    Parameters
    ----------
    draw
        Given by hypothesis.
    tiny
        Whether every state of the cells can be tried: a mesh of few cells.

    Examples
    --------
    >>> reroute_problems(tiny=True)
    reroute_problems(tiny=True)
    """
    fabric: Any = draw(st.sampled_from(_TINY if tiny else (*_TINY, *_SMALL, *_RACKS)))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    state = draw_rack_state(fabric, rng) if fabric.graph is None else draw_state(fabric, rng)
    return fail_something(state, rng)


def draw_state(fabric: Any, rng: np.random.Generator) -> Reroute:
    """Set all cells at random; some of the pairs that are then connected become circuits."""
    states = rng.integers(0, 2, fabric.n_cells).astype(np.int8)
    port_at = {int(t): port for port, t in enumerate(fabric.destination_terminals)}
    link_of = fabric.graph.links.of_terminal
    circuits: list[tuple[int, int]] = []
    taken: set[int] = set()
    lit: set[int] = set()
    for source in rng.permutation(fabric.n_ports).tolist():
        way, left = follow(fabric.graph, states, int(fabric.source_terminals[source]))
        links = [*link_of[way].tolist(), int(link_of[left])]
        alone = len(set(links)) == len(links) and taken.isdisjoint(links)
        if left in port_at and port_at[left] != source and alone and rng.random() < 0.7:
            circuits.append((source, port_at[left]))
            taken.update(links)
            lit.update(terminal // 4 for terminal in way)
    for cell in set(range(fabric.n_cells)) - lit:
        if rng.random() < 0.3:
            states[cell] = FREE
    return Reroute(
        fabric,
        circuits,
        rng.integers(0, 3, len(circuits)).astype(np.int32),
        _draw_spares(fabric, circuits, rng),
        cell_states=states,
    )


def draw_rack_state(rack: RackFabric, rng: np.random.Generator) -> Reroute:
    """Connect chips at random over the fewest fibres that are free."""
    circuits: list[tuple[int, int]] = []
    routes: list[tuple[int, ...]] = []
    free = set(range(rack.n_fibres))
    outs, ins = (rng.permutation(rack.n_ports).tolist() for _ in range(2))
    for source, destination in list(zip(outs, ins, strict=True))[: rack.n_ports // 3]:
        chips = source // rack.ports_per_chip, destination // rack.ports_per_chip
        start, goal = (int(rack.server_of_chip[chip]) for chip in chips)
        route = _find_fibres(rack, free, start, goal)
        if route is not None and chips[0] != chips[1]:
            circuits.append((source, destination))
            routes.append(route)
            free.difference_update(route)
    return Reroute(
        rack,
        circuits,
        rng.integers(0, 3, len(circuits)).astype(np.int32),
        _draw_spares(rack, circuits, rng),
        tuple(routes),
    )


def _find_fibres(
    rack: RackFabric, free: set[int], start: int, goal: int
) -> tuple[int, ...] | None:
    routes: dict[int, tuple[int, ...]] = {start: ()}
    fibres = sorted(free)
    edges = rack.edges[rack.edge_of_fibre[fibres]].tolist()
    waiting = [start]
    for server in waiting:
        for fibre, (tail, head) in zip(fibres, edges, strict=True):
            if tail == server and head not in routes:
                routes[head] = (*routes[server], fibre)
                waiting.append(head)
    return routes.get(goal)


def _draw_spares(
    fabric: Any, circuits: Sequence[tuple[int, int]], rng: np.random.Generator
) -> tuple[int, ...]:
    units = units_of(fabric)
    per_unit = units.ports_per_unit
    busy = {port // per_unit for pair in circuits for port in pair}
    idle = [unit for unit in range(units.n_units) if unit not in busy]
    chosen = rng.permutation(np.array(idle, dtype=np.int64))[: rng.integers(0, 4)]
    return tuple(sorted(chosen.tolist()))


def fail_something(state: Reroute, rng: np.random.Generator) -> Reroute:
    """Let one to three parts of a state fail."""
    fabric = state.fabric
    cells: Any = rng.permutation(fabric.n_cells).tolist() if fabric.graph is not None else []
    failed: dict[str, tuple[int, ...]] = {}
    for _ in range(int(rng.integers(1, 4))):
        kinds = ["failed_ports"]
        kinds += ["failed_chips", "failed_fibres"] if state.units.n_chips else []
        kinds += ["stuck_bar", "stuck_cross", "dead_cells"] if len(cells) > 2 else []
        kind = str(rng.choice(kinds))
        if kind in ("stuck_bar", "stuck_cross", "dead_cells"):
            part = cells.pop()
        else:
            counts = {"failed_chips": state.n_units, "failed_ports": fabric.n_ports}
            most = counts.get(kind) or state.units.n_fibres
            part = int(rng.integers(most))
        failed[kind] = tuple({*failed.get(kind, ()), part})
    return replace(state, **failed)  # type: ignore[arg-type]


def follow(graph: Any, states: NDArray[np.int8], start: int) -> tuple[list[int], int]:
    """Follow light from a free terminal; return the terminals it enters, and where it leaves."""
    way = []
    at = start
    left = -1
    while at >= 0:
        way.append(at)
        left = int(graph.exits[at, states[at // 4]])
        at = int(graph.mate[left])
    return way, left

"""Small failures of meshes and racks, as a hypothesis strategy and drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from optmatch.fabrics import Benes, Fabric, HexMesh, RackFabric, SquareMesh, units_of
from optmatch.fabrics.light import trace
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
    """Draw a running state of a mesh: all cells are set at random, and some circuits follow.

    Each setting of the cells leads the light of a port to some other port; pairs of ports that are
    connected so become circuits with a probability of 0.7.

    Parameters
    ----------
    fabric
        A fabric with cells.
    rng
        The generator of random numbers.

    Returns
    -------
    Reroute
        A state without failures: circuits, a job from 0 to 2 for each, spare ports, and states of
        cells, of which some without light are free.
    """
    states = rng.integers(0, 2, fabric.n_cells).astype(np.int8)
    port_of_terminal = {
        int(terminal): port for port, terminal in enumerate(fabric.destination_terminals)
    }
    link_of_terminal = fabric.graph.links.of_terminal
    light = trace(fabric.graph, states[None], fabric.source_terminals[None])
    circuits: list[tuple[int, int]] = []
    used_links: set[int] = set()
    lit_cells: set[int] = set()
    for source in rng.permutation(fabric.n_ports).tolist():
        entered = light.entered[light.beam == source]
        last_terminal = int(light.arrived[0, source])
        links = link_of_terminal[[*entered, last_terminal]].tolist()

        # A circuit ends at another port, and passes no link twice and none of another circuit.
        destination = port_of_terminal.get(last_terminal, source)
        passes_no_link_twice = len(set(links)) == len(links)
        is_possible = passes_no_link_twice and used_links.isdisjoint(links)
        if destination != source and is_possible and rng.random() < 0.7:
            circuits.append((source, destination))
            used_links.update(links)
            lit_cells.update((entered // 4).tolist())

    # Some of the cells without light are free.
    for cell in set(range(fabric.n_cells)) - lit_cells:
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
    """Draw a running state of racks: chips that are connected over fibres.

    Circuits are drawn one by one, each over the fewest fibres that are still free, up to a third
    as many as there are ports. Jobs and spares are drawn as well; nothing has failed.
    """
    circuits: list[tuple[int, int]] = []
    routes: list[tuple[int, ...]] = []

    # Up to a third of the ports try to become sources, each with a destination of its own.
    free_fibres = set(range(rack.n_fibres))
    n_tries = rack.n_ports // 3
    sources = rng.permutation(rack.n_ports)[:n_tries].tolist()
    destinations = rng.permutation(rack.n_ports)[:n_tries].tolist()

    # A circuit takes the fibres of its route from those that are free.
    for source, destination in zip(sources, destinations, strict=True):
        source_chip = source // rack.ports_per_chip
        destination_chip = destination // rack.ports_per_chip
        route = _shortest_free_route(
            rack,
            free_fibres,
            int(rack.server_of_chip[source_chip]),
            int(rack.server_of_chip[destination_chip]),
        )
        if route is not None and source_chip != destination_chip:
            circuits.append((source, destination))
            routes.append(route)
            free_fibres.difference_update(route)
    return Reroute(
        rack,
        circuits,
        rng.integers(0, 3, len(circuits)).astype(np.int32),
        _draw_spares(rack, circuits, rng),
        tuple(routes),
    )


def _shortest_free_route(
    rack: RackFabric, free_fibres: set[int], start: int, goal: int
) -> tuple[int, ...] | None:
    """Find a route between two servers over the fewest free fibres, by breadth-first search.

    None if there is none.
    """
    fibres = sorted(free_fibres)
    ends = rack.edges[rack.edge_of_fibre[fibres]].tolist()
    route_to: dict[int, tuple[int, ...]] = {start: ()}
    queue = [start]
    for node in queue:  # which grows meanwhile
        for fibre, (tail, head) in zip(fibres, ends, strict=True):
            if tail == node and head not in route_to:
                route_to[head] = (*route_to[node], fibre)
                queue.append(head)
    return route_to.get(goal)


def _draw_spares(
    fabric: Any, circuits: Sequence[tuple[int, int]], rng: np.random.Generator
) -> tuple[int, ...]:
    """Draw up to three of the units, chips or ports, that have no circuit.

    Their numbers are ascending.
    """
    units = units_of(fabric)
    busy_units = {port // units.ports_per_unit for pair in circuits for port in pair}
    idle_units = [unit for unit in range(units.n_units) if unit not in busy_units]
    in_random_order = rng.permutation(np.array(idle_units, dtype=np.int64))
    spares = in_random_order[: rng.integers(0, 4)]
    return tuple(sorted(spares.tolist()))


_CELL_FAULTS = ["stuck_bar", "stuck_cross", "dead_cells"]


def fail_something(state: Reroute, rng: np.random.Generator) -> Reroute:
    """Let one to three parts of a state fail, drawn at random.

    Parameters
    ----------
    state
        A running state. Ports may fail on any fabric; chips and fibres of racks, and cells where
        there are more than two, dead or stuck in a state.
    rng
        The random numbers.

    Returns
    -------
    Reroute
        The same state with the failed parts; a part that is drawn twice fails once.
    """
    fabric = state.fabric

    # Cells in random order, so that none breaks in two ways.
    cells: list[int] = []
    if fabric.graph is not None:
        cells = rng.permutation(fabric.n_cells).tolist()
    n_parts = {
        "failed_ports": fabric.n_ports,
        "failed_chips": state.n_units,
        "failed_fibres": state.units.n_fibres,
    }

    # Each failure is of a kind that the fabric has.
    failed_parts: dict[str, tuple[int, ...]] = {}
    for _ in range(int(rng.integers(1, 4))):
        kinds = ["failed_ports"]
        if state.units.n_chips:
            kinds += ["failed_chips", "failed_fibres"]
        if len(cells) > 2:
            kinds += _CELL_FAULTS
        kind = str(rng.choice(kinds))
        part = cells.pop() if kind in _CELL_FAULTS else int(rng.integers(n_parts[kind]))
        failed_parts[kind] = tuple({*failed_parts.get(kind, ()), part})
    return replace(state, **failed_parts)  # type: ignore[arg-type]

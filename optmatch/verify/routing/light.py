"""The rules of light: it goes from each port to its partner and back, and nowhere else."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import DEAD, CellGraph, Fabric
from optmatch.fabrics.light import Light, trace
from optmatch.model import CROSS, FREE, IDLE, Schedule
from optmatch.verify.loops import find_loops
from optmatch.verify.report import Findings


class Traced(NamedTuple):
    """The cells on the light of a schedule, each circuit counted once."""

    cells: NDArray[np.int64]
    """``cells[slot, source]``: cells passed from there; 0 where no circuit is counted."""
    crossed: NDArray[np.int64]
    """``crossed[slot, source]``: how many of them are in the cross state."""
    light: Light | None = None
    """All beams, those of both ports of a circuit; None without cells."""


def check_light(fabric: Fabric, schedule: Schedule, findings: Findings) -> Traced:
    """Trace every circuit both ways through the stated cells, and apply all rules of light.

    The schedule has the shapes of the fabric, and matchings in all slots. Loops of light are
    notes.
    """
    graph, states, matchings = fabric.graph, schedule.cell_states, schedule.matchings
    once = matchings != IDLE
    if fabric.bidirectional:  # the light of both ports is traced, the circuit counts for the lower
        once &= np.arange(fabric.n_ports) < matchings
    if graph is None:
        nothing = np.zeros(matchings.shape, dtype=np.int64)
        return Traced(nothing, nothing)
    assert states is not None
    starts = np.where(matchings == IDLE, -1, fabric.source_terminals)
    ends = np.where(matchings == IDLE, -1, fabric.destination_terminals[matchings])
    light = trace(graph, states, starts)
    _check_arrival(graph, matchings, "light reaches its partner", light, ends, findings)
    back = trace(graph, states, ends)
    _check_arrival(graph, matchings, "light comes back from the partner", back, starts, findings)
    if not fabric.bidirectional:  # there a shared link leads light to another port than its own
        _check_sharing(graph, matchings, light, findings)
    _check_stuck_cells(graph, states, findings)
    loops = find_loops(graph, states)
    for slot, found in enumerate(loops):  # no rule forbids loops, but leaked light stays there
        for loop in found:
            findings.notes.append(f"slot {slot}: loop of light through cells {list(loop.cells)}")
    findings.figures["loops"] = sum(map(len, loops))
    lit = np.zeros(states.shape, dtype=bool)  # cells without light may be in any state
    lit[light.slot, light.entered // 4] = True
    findings.figures["cells_used_max"] = int(lit.sum(axis=1).max(initial=0))

    cells = np.zeros(matchings.shape, dtype=np.int64)
    crossed = np.zeros(matchings.shape, dtype=np.int64)
    np.add.at(cells, (light.slot, light.beam), 1)
    np.add.at(crossed, (light.slot, light.beam), states[light.slot, light.entered // 4] == CROSS)
    return Traced(cells * once, crossed * once, light)


def _check_arrival(
    graph: CellGraph,
    matchings: NDArray[np.int32],
    rule: str,
    light: Light,
    ends: NDArray[np.int32],
    findings: Findings,
) -> None:
    """Compare where the light of each circuit ends with where it must."""
    for slot, port in np.argwhere(light.arrived != ends):
        lost = int(light.stopped[slot, port])
        if lost >= 0:
            got = f"lost in free cell {lost // 4}"
        else:
            got = graph.terminal_name(int(light.arrived[slot, port]))
        findings.refuse(
            rule,
            f"slot {slot}, circuit from port {port} to port {matchings[slot, port]}",
            got,
            graph.terminal_name(int(ends[slot, port])),
        )


def _check_sharing(
    graph: CellGraph,
    matchings: NDArray[np.int32],
    light: Light,
    findings: Findings,
) -> None:
    """Look for links that carry the light of two circuits, in whatever direction."""
    n_ports = matchings.shape[1]
    circuit = light.beam * n_ports + matchings[light.slot, light.beam].astype(np.int64)
    links = graph.links
    slot = np.concatenate([light.slot, light.slot])
    passed = links.of_terminal[np.concatenate([light.entered, light.left])]
    place = slot * links.count + passed
    users = np.unique(place * n_ports**2 + np.concatenate([circuit, circuit]))
    places, first, counts = np.unique(users // n_ports**2, return_index=True, return_counts=True)
    _, terminal_at = np.unique(links.of_terminal, return_index=True)
    for k in np.flatnonzero(counts > 1):
        slot_number, link = divmod(int(places[k]), links.count)
        circuits = (users[first[k] : first[k] + counts[k]] % n_ports**2).tolist()
        findings.refuse(
            "a link carries one circuit",
            f"slot {slot_number}, link {link} at {graph.terminal_name(int(terminal_at[link]))}",
            f"circuits {[divmod(number, n_ports) for number in circuits]}",
            "one circuit",
        )


def _check_stuck_cells(graph: CellGraph, states: NDArray[np.int8], findings: Findings) -> None:
    """Check that no cell is told to be in a state that it cannot have, or that moves its light."""
    is_stuck = (graph.stuck != FREE) & (graph.stuck != DEAD)
    for slot, cell in np.argwhere(is_stuck & (states != FREE) & (states != graph.stuck)):
        findings.refuse(
            "a stuck cell is stated as it is, or free",
            f"cell_states[{slot}, {cell}]",
            int(states[slot, cell]),
            int(graph.stuck[cell]),
        )

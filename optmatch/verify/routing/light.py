"""The rules of light: it goes from each port to its partner and back, and nowhere else."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import DEAD, CellGraph, Fabric
from optmatch.fabrics.light import Light, trace
from optmatch.model import CROSS, FREE, IDLE, Schedule
from optmatch.verify.budgets import check_budgets
from optmatch.verify.circuits import find_wrong_states
from optmatch.verify.loops import find_loops
from optmatch.verify.report import Findings, Rule

LIGHT_ARRIVES = Rule("light reaches its partner")
LIGHT_COMES_BACK = Rule("light comes back from the partner")
ONE_CIRCUIT_PER_LINK = Rule("a link carries one circuit")
STUCK_AS_IT_IS = Rule("a stuck cell is stated as it is, or free")
STATE_OF_CIRCUIT = Rule("a cell has the state that it is in, by its parts")


class Traced(NamedTuple):
    """The cells that the light of a schedule passes, each circuit counted once."""

    cells: NDArray[np.int64]
    """``cells[slot, source]``: cells passed from there; 0 where no circuit is counted."""
    crossed: NDArray[np.int64]
    """``crossed[slot, source]``: how many of them are in the cross state."""
    light: Light | None = None
    """All beams, those of both ports of a circuit; None without cells."""


def check_light(fabric: Fabric, schedule: Schedule, findings: Findings) -> Traced:
    """Check that the light of every circuit of a schedule gets to its partner, and back.

    Loops are noted only. A switch without cells has no paths; losses are compared with link
    budgets instead. The shapes of the schedule have to fit the switch.
    """
    graph = fabric.graph
    matchings = schedule.matchings
    states = schedule.cell_states
    if graph is None:
        check_budgets(fabric, matchings, findings)
        no_cells = np.zeros(matchings.shape, dtype=np.int64)
        return Traced(no_cells, no_cells)
    assert states is not None

    # The terminals at which the light of each source enters, and at which it must come out.
    idle = matchings == IDLE
    starts = np.where(idle, -1, fabric.source_terminals)
    ends = np.where(idle, -1, fabric.destination_terminals[matchings])

    # Forth and back: light must come out where it is expected.
    light = trace(graph, states, starts)
    _check_arrival(fabric, matchings, LIGHT_ARRIVES, light, ends, findings)
    light_back = trace(graph, states, ends)
    _check_arrival(fabric, matchings, LIGHT_COMES_BACK, light_back, starts, findings)
    # Between bidirectional ports a shared link leads light to a wrong port, which is found above.
    if not fabric.bidirectional:
        _check_sharing(graph, matchings, light, findings)
    _check_stuck_cells(graph, states, findings)
    _check_circuits(fabric, states, findings)
    _note_loops(graph, states, findings)

    # Which cells have light, by slot and cell.
    lit = np.zeros(states.shape, dtype=bool)
    lit[light.slot, light.entered // 4] = True
    findings.figures["cells_used_max"] = int(lit.sum(axis=1).max(initial=0))
    return _count_cells(fabric, matchings, states, light)


def _count_cells(
    fabric: Fabric, matchings: NDArray[np.int32], states: NDArray[np.int8], light: Light
) -> Traced:
    """Count the cells that each circuit passes, and those in cross.

    A circuit between bidirectional ports is counted once, at the port of the lower number.
    """
    counted = matchings != IDLE
    if fabric.bidirectional:
        counted &= np.arange(fabric.n_ports) < matchings
    cells = np.zeros(matchings.shape, dtype=np.int64)
    crossed = np.zeros(matchings.shape, dtype=np.int64)
    is_cross = states[light.slot, light.entered // 4] == CROSS
    np.add.at(cells, (light.slot, light.beam), 1)
    np.add.at(crossed, (light.slot, light.beam), is_cross)
    return Traced(cells * counted, crossed * counted, light)


def _check_arrival(
    fabric: Fabric,
    matchings: NDArray[np.int32],
    rule: str,
    light: Light,
    ends: NDArray[np.int32],
    findings: Findings,
) -> None:
    """Check by a rule that the light of each circuit comes out at ``ends[slot, source]``."""
    graph: CellGraph = fabric.graph  # type: ignore[assignment]  # light was traced through it
    for slot, port in np.argwhere(light.arrived != ends):
        stopped_at = int(light.stopped[slot, port])
        if stopped_at >= 0:
            got = f"lost in free {graph.describe_cell(stopped_at // 4)}"
        else:
            got = graph.terminal_name(int(light.arrived[slot, port]))
        source = fabric.name_port(int(port))
        destination = fabric.name_port(int(matchings[slot, port]), receives=True)
        where = f"slot {slot}, circuit from port {source} to port {destination}"
        expected = graph.terminal_name(int(ends[slot, port]))
        findings.refuse(rule, where, got, expected)


def _check_sharing(
    graph: CellGraph, matchings: NDArray[np.int32], light: Light, findings: Findings
) -> None:
    """Check that no link carries the light of two circuits in a slot, in whatever direction.

    Uses of links are sorted by (slot, link, circuit), so that a shared link has several in a row.
    """
    n_ports = matchings.shape[1]
    links = graph.links
    destination = matchings[light.slot, light.beam].astype(np.int64)
    circuit = light.beam * n_ports + destination

    # Each cell on a way uses two links: that of the terminal entered and that of the one left.
    terminal = np.concatenate([light.entered, light.left])
    slot_and_link = np.tile(light.slot, 2) * links.count + links.of_terminal[terminal]
    uses = np.unique(slot_and_link * n_ports**2 + np.tile(circuit, 2))
    used_link = uses // n_ports**2
    used_by = uses % n_ports**2

    places, first_use, n_circuits = np.unique(used_link, return_index=True, return_counts=True)
    _, terminal_of_link = np.unique(links.of_terminal, return_index=True)
    for shared in np.flatnonzero(n_circuits > 1):
        slot, link = divmod(int(places[shared]), links.count)
        first = first_use[shared]
        circuits = used_by[first : first + n_circuits[shared]].tolist()
        findings.refuse(
            ONE_CIRCUIT_PER_LINK,
            f"slot {slot}, link {link} at {graph.terminal_name(int(terminal_of_link[link]))}",
            f"circuits {[divmod(number, n_ports) for number in circuits]}",
            "one circuit",
        )


def _check_stuck_cells(graph: CellGraph, states: NDArray[np.int8], findings: Findings) -> None:
    """Check that no cell is told to be in a state that it cannot have."""
    is_stuck = (graph.stuck != FREE) & (graph.stuck != DEAD)
    for slot, cell in np.argwhere(is_stuck & (states != FREE) & (states != graph.stuck)):
        where = f"cell_states[{slot}, {cell}]"
        findings.refuse(STUCK_AS_IT_IS, where, int(states[slot, cell]), int(graph.stuck[cell]))


def _note_loops(graph: CellGraph, states: NDArray[np.int8], findings: Findings) -> None:
    """Note and count loops of light: no rule forbids them.

    Light that leaks into a loop stays in it.
    """
    n_loops = 0
    for slot, loops in enumerate(find_loops(graph, states)):
        n_loops += len(loops)
        for loop in loops:
            cells = graph.list_cells(loop.cells)
            findings.notes.append(f"slot {slot}: loop of light through cells {cells}")
    findings.figures["loops"] = n_loops


def _check_circuits(fabric: Fabric, states: NDArray[np.int8], findings: Findings) -> None:
    """Check that cells in use have the stated states, by the matrices of their parts.

    Only cells whose parts are known are checked.
    """
    for wrong in find_wrong_states(fabric):
        slots = np.flatnonzero(states[:, wrong.cell] == wrong.state)
        if len(slots):
            power = np.round(np.abs(wrong.matrix) ** 2, 3).tolist()
            findings.refuse(
                STATE_OF_CIRCUIT,
                f"slot {slots[0]}, cell {fabric.cell_names[wrong.cell]}",
                f"power {power} from (a1, a2) to (b1, b2)",
                ("bar", "cross")[wrong.state],
            )

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

    The cells of the switch are put into the states that the schedule says, slot by slot, and light
    is followed through them. Circuits may not share a link, and stuck cells have to be stated as
    they are. Closed loops of cells break no rule; they are noted. A switch without cells has no
    paths to follow; the losses of its circuits are compared with their budgets instead.

    Parameters
    ----------
    fabric
        The switch.
    schedule
        The schedule; its shapes are known to fit the switch. The fields that are read here:

        - ``matchings[slot, source]``: the destination, `IDLE` (-1) for none;
        - ``cell_states[slot, cell]``: 0 bar, 1 cross, -1 free; None without cells.
    findings
        The report, to which violations, notes and figures are added, such as ``cells_used_max``:
        the most cells with light in a slot.

    Returns
    -------
    Traced
        The cells that each circuit passes, by slot and source; 0 on a switch without cells.
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
    """Count the cells that the light of each circuit passes, and those that it passes in cross.

    Between bidirectional ports light goes both ways on one route, which is counted once: at the
    port of the lower number.

    Parameters
    ----------
    fabric
        The fabric, with bidirectional ports or not.
    matchings
        ``matchings[slot, source] = destination``, -1 where idle.
    states
        ``states[slot, cell]``: 0 bar, 1 cross, -1 free.
    light
        The steps of all light, one entry for each cell that is passed.

    Returns
    -------
    Traced
        Cells and crossed cells, int64 of shape (slots, ports), and the light.
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
    """Compare where the light of each circuit comes out with where it must.

    Parameters
    ----------
    fabric
        The fabric, for the names of ports and terminals.
    matchings
        ``matchings[slot, source] = destination``, -1 where idle.
    rule
        The rule that is violated if light goes astray.
    light
        Where the light of each port came out, or was lost.
    ends
        ``ends[slot, source]``: the terminal where it must come out, -1 without a circuit.
    findings
        The report, to which violations are added.
    """
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

    All uses of links are sorted by (slot, link, circuit): a link that stands there with several
    circuits is shared.

    Parameters
    ----------
    graph
        The cells and the links between their terminals.
    matchings
        ``matchings[slot, source] = destination``, -1 idle.
    light
        The beams, as they were traced from their sources.
    findings
        The report, to which violations are added.
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
    """Check that no cell is told to be in a state that it cannot have.

    Parameters
    ----------
    graph
        ``stuck[cell]``: the only state of a stuck cell.
    states
        ``states[slot, cell]``: 0 bar, 1 cross, -1 free.
    findings
        Violations are added to it.
    """
    is_stuck = (graph.stuck != FREE) & (graph.stuck != DEAD)
    for slot, cell in np.argwhere(is_stuck & (states != FREE) & (states != graph.stuck)):
        where = f"cell_states[{slot}, {cell}]"
        findings.refuse(STUCK_AS_IT_IS, where, int(states[slot, cell]), int(graph.stuck[cell]))


def _note_loops(graph: CellGraph, states: NDArray[np.int8], findings: Findings) -> None:
    """Note and count loops of light: no rule forbids them, but leaked light stays in them.

    Parameters
    ----------
    graph
        The cells and links.
    states
        ``states[slot, cell]``: 0 bar, 1 cross, -1 free.
    findings
        Gets a note for each loop, and their number as the figure ``loops``.
    """
    n_loops = 0
    for slot, loops in enumerate(find_loops(graph, states)):
        n_loops += len(loops)
        for loop in loops:
            cells = graph.list_cells(loop.cells)
            findings.notes.append(f"slot {slot}: loop of light through cells {cells}")
    findings.figures["loops"] = n_loops


def _check_circuits(fabric: Fabric, states: NDArray[np.int8], findings: Findings) -> None:
    """Check that the cells have the states that a schedule says, by the matrices of their parts.

    Parameters
    ----------
    fabric
        A switch with cells; only cells whose circuit of parts is known are checked.
    states
        ``states[slot, cell]``: 0 bar, 1 cross, -1 free.
    findings
        Gets a violation for each cell and state in use in which light goes elsewhere.
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

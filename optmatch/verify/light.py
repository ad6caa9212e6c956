"""The replay of slots on a switch: matchings, link budgets, and the light through every cell.

`check_shapes` and `check_matchings` come before all else, `check_light` traces light through cells
or compares losses where there are none. All kinds of schedules use them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import DEAD, CellCircuit, CellGraph, CellPart, Fabric
from optmatch.fabrics.light import Light, trace
from optmatch.fabrics.netlists.circuits import cell_circuits
from optmatch.model import BAR, CROSS, FREE, IDLE, Schedule, read_only
from optmatch.verify.report import Findings


def check_shapes(
    fabric: Fabric, schedule: Schedule, findings: Findings, *, own_delays: bool = False
) -> bool:
    """Check that the arrays of a schedule fit the switch; else nothing else can be checked.

    That they fit each other, and that entries are ports and states, was checked when the schedule
    was made. ``delays_s`` is expected with `own_delays` alone.
    """
    fits = findings.expect(
        "a slot has an entry for each port",
        "matchings.shape[1]",
        schedule.matchings.shape[1],
        fabric.n_ports,
    )
    fits &= findings.expect(
        "each slot has a delay where cells say it, and only there",
        "delays_s",
        schedule.delays_s is not None,
        own_delays,
    )
    n_cells = None if schedule.cell_states is None else schedule.cell_states.shape[1]
    expected = None if fabric.graph is None else fabric.n_cells
    return fits & findings.expect(
        "a slot has a state for each cell, and none without cells",
        "cell_states.shape[1]",
        n_cells,
        expected,
    )


def check_matchings(fabric: Fabric, matchings: NDArray[np.int32], findings: Findings) -> bool:
    """Check that each slot is a matching; without that circuits are not defined.

    Each live port has one destination or is idle, no two have the same one, and bidirectional
    ports face each other in pairs. ``matchings[slot, source]`` are ports of the switch, or `IDLE`.
    Returns whether all of this holds.
    """
    violations_before = len(findings.violations)
    port = np.arange(fabric.n_ports)
    is_used = matchings != IDLE

    # Dead ports send nothing, and nothing is sent to them. An idle entry, -1, looks up the last
    # port here and below, and does not count.
    is_dead = np.isin(port, fabric.dead_ports)
    findings.expect_none(
        "a dead port takes part in no circuit",
        is_used & (is_dead | is_dead[matchings]),
        "matchings[{}, {}]",
        matchings,
        "another port, or none",
        most=None,
    )

    # No two circuits have the same destination.
    n_circuits = np.zeros_like(matchings)  # by slot and destination
    slot, source = np.nonzero(is_used)
    np.add.at(n_circuits, (slot, matchings[slot, source]), 1)
    findings.expect_none(
        "a port is the destination of one circuit",
        n_circuits > 1,
        "slot {}, destination {}",
        n_circuits,
        1,
        most=None,
    )

    # The circuit of a bidirectional port leads back to it, from another port.
    if fabric.bidirectional:
        back = np.take_along_axis(matchings, matchings, axis=1)
        findings.expect_none(
            "circuits of bidirectional ports are mutual",
            is_used & (back != port),
            "slot {}, partner of port {}",
            back,
            np.broadcast_to(port, back.shape),
            most=None,
        )
        findings.expect_none(
            "a bidirectional port does not meet itself",
            matchings == port,
            "matchings[{}, {}]",
            matchings,
            "another port",
            most=None,
        )
    return len(findings.violations) == violations_before


# The transfer matrix of each cell, computed from the parts that it is made of
#
# A reader of netlists says which couplers are a cell, which of its states is bar, and which phase
# sets it. Here the matrix of every cell follows from its parts alone: the waves at all pins of the
# circuit are one linear system. It shares no code with the reader, so a cell that was read wrongly
# is found.

MAX_LEAK = 0.1
"""The most power that may leak elsewhere in a state, over the power that goes where it should."""


def circuit_matrix(
    circuit: CellCircuit, difference_rad: float, coupling_change: float = 0.0
) -> NDArray[np.complex128]:
    """Compute the transfer matrix ``T[b side, a side]`` of a cell from its optical parts.

    Light of amplitude 1 that enters at a side a leaves at a side b with the complex amplitude T.
    With the amplitudes :math:`x` that enter parts at all pins, :math:`y` that leave them, and the
    light :math:`s` from outside, parts are :math:`y = S x` and joins :math:`x = C y + s`; hence
    :math:`(I - C S) x = s` is solved. The first phase shifter of arm 1 adds `difference_rad`; if
    arm 1 has none, the first one of arm 2 adds its negative. `coupling_change` is by how much more
    of the power crosses in couplers of four pins than their matrices say: at another wavelength.
    Entries of terminals that the cell lacks are 0.
    """
    arm_1, arm_2 = circuit.arms
    phase_of_part = {arm_1[0]: difference_rad} if arm_1 else {arm_2[0]: -difference_rad}
    # Row and column k of all matrices belong to pin k of all parts.
    pins = [f"{part.name},{pin}" for part in circuit.parts for pin in part.pins if pin]
    number = {pin: k for k, pin in enumerate(pins)}

    # S has a block for each part, C is a permutation of the joined pins.
    scattering = np.zeros((len(number), len(number)), dtype=np.complex128)
    for part in circuit.parts:
        phase_rad = phase_of_part.get(part.name, 0.0)
        for exit_, entry, amplitude in ways_through(part, phase_rad, coupling_change):
            scattering[number[exit_], number[entry]] = amplitude
    joined = np.zeros((len(number), len(number)))
    for first, second in circuit.joins:
        joined[number[first], number[second]] = 1.0
        joined[number[second], number[first]] = 1.0

    # One column at a time: light of amplitude 1 comes in at one a pin, and the equations give what
    # leaves by the b pins. The terminals a1, a2, b1 and b2 are pins; empty if the cell lacks one.
    a_pins, b_pins = circuit.terminals[:2], circuit.terminals[2:]
    matrix = np.zeros((2, 2), dtype=np.complex128)
    for column, pin in enumerate(a_pins):
        if pin:
            source = np.zeros(len(number), dtype=np.complex128)
            source[number[pin]] = 1.0
            entering = np.linalg.solve(np.eye(len(number)) - joined @ scattering, source)
            leaving = scattering @ entering
            for row, b_pin in enumerate(b_pins):
                if b_pin:
                    matrix[row, column] = leaving[number[b_pin]]
    return matrix


def ways_through(
    part: CellPart, phase_rad: float, coupling_change: float
) -> list[tuple[str, str, complex]]:
    """List exit, entry and amplitude of all ways through a part, in both directions.

    Both ends are named ``part,pin``. A part without a matrix leads a1 to b1 and a2 to b2, and adds
    `phase_rad`. In a coupler `coupling_change` more of the power crosses: with 0.02, 52 % instead
    of 50 %. A coupler of three pins is symmetric, and splits evenly at each wavelength.
    """
    # The last axis of a part's matrix holds the real and the imaginary part.
    a_pins, b_pins = part.pins[:2], part.pins[2:]
    through = np.eye(2) * np.exp(1j * phase_rad)
    if part.matrix is not None:
        through = part.matrix[..., 0] + 1j * part.matrix[..., 1]
        if all(part.pins) and coupling_change != 0.0:
            # Another share of the power crosses, from 0 to 1. Phases stay, and so does the power
            # that leaves the coupler altogether. Rows are sides left by, columns sides entered:
            # what crosses from side 0 is ``power[1, 0]``, from side 1 ``power[0, 1]``. With the
            # rows exchanged, these two are the diagonal.
            power = np.abs(through) ** 2
            power_out = power.sum(axis=0)
            crossing = power[::-1].diagonal() + coupling_change * power_out
            crossing = np.clip(crossing, 0.0, power_out)
            staying = power_out - crossing
            changed = np.array([[staying[0], crossing[1]], [crossing[0], staying[1]]])
            through = np.sqrt(changed) * np.exp(1j * np.angle(through))

    # Each way is there in both directions, with the same amplitude.
    ways = []
    for row, b_pin in enumerate(b_pins):
        for column, a_pin in enumerate(a_pins):
            if a_pin and b_pin:
                b_end = f"{part.name},{b_pin}"
                a_end = f"{part.name},{a_pin}"
                amplitude = complex(through[row, column])
                ways += [(b_end, a_end, amplitude), (a_end, b_end, amplitude)]
    return ways


@lru_cache(maxsize=64)
def circuit_matrices(
    fabric: Fabric, coupling_change: float = 0.0
) -> NDArray[np.complex128] | None:
    """Return the transfer matrices of all cells, read-only; None if the parts of none are known.

    ``T[cell, state, b side, a side]`` is the complex amplitude that leaves at a side b, over that
    which enters at a side a; state 0 is bar and 1 cross, side 0 is a1 or b1. The parts of a cell
    are its couplers and arms; a cell whose parts are not known is ideal. `coupling_change` is
    added to the share of the power that crosses in each coupler of two inputs and two outputs,
    .01 for .51 in place of .5, as at another wavelength.
    """
    circuits = cell_circuits(fabric)  # by cell its parts and their joins, or None
    if not any(circuits):
        return None

    matrices = np.empty((len(circuits), 2, 2, 2), dtype=np.complex128)
    for cell, circuit in enumerate(circuits):
        for state in (BAR, CROSS):
            if circuit is None:
                matrices[cell, state] = ideal_matrix(state)
                continue
            difference_rad = circuit.difference_rad[state]
            matrices[cell, state] = circuit_matrix(circuit, difference_rad, coupling_change)
    return read_only(matrices)


def ideal_matrix(state: int) -> NDArray[np.complex128]:
    """Return the transfer matrix ``T[b side, a side]`` of an ideal interferometer.

    In bar all light stays on its side, in cross all changes sides; phases as in `CellDevice`.
    """
    if state == BAR:
        return np.array([[1j, 0], [0, -1j]])
    return np.array([[0, 1j], [1j, 0]])


@lru_cache(maxsize=64)
def find_wrong_states(fabric: Fabric) -> list[tuple[int, int, NDArray[np.float64]]]:
    """List the states of cells in which light does not go where they say.

    Each comes as (cell, state, power): of light of power 1 that enters at a side a, the part
    ``power[b side, a side]`` leaves at a side b.

    Where the light of a cell goes follows from its parts (`circuit_matrices`); cells whose parts
    are not known are left out. In bar light has to go from a1 to b1 and from a2 to b2, in cross
    from a1 to b2 and from a2 to b1, as far as the cell has these terminals. If it goes from a1 to
    b1, then what leaves by b2 from a1, and by b1 from a2, may be `MAX_LEAK` of that power at most,
    for light of power 1 at each entry. A cell with one terminal on each side is dark in cross.
    """
    matrices = circuit_matrices(fabric)
    if matrices is None:
        return []
    wrong = []
    for cell, circuit in enumerate(cell_circuits(fabric)):
        if circuit is None:
            continue
        # A terminal without a pin is not there; a1 and a2 come first, then b1 and b2.
        has_a = np.array([bool(pin) for pin in circuit.terminals[:2]])
        has_b = np.array([bool(pin) for pin in circuit.terminals[2:]])
        power = np.abs(matrices[cell]) ** 2  # [state, b side, a side]; side 0 is a1 or b1
        # With one terminal on each side all light passes in bar, and hardly any in cross; where
        # that is not so, nothing tells which of the two states is wrong.
        if has_a.sum() == has_b.sum() == 1:
            if power[BAR].sum() <= 0 or power[CROSS].sum() > MAX_LEAK * power[BAR].sum():
                wrong += [(cell, state, power[state]) for state in (BAR, CROSS)]
            continue

        # The light that should pass is there, and outweighs all leaks in its row and its column.
        for state in (BAR, CROSS):
            holds = True
            for a_side in np.flatnonzero(has_a):
                b_side = a_side if state == BAR else 1 - a_side
                passed = power[state, b_side, a_side]
                leaked = max(power[state, 1 - b_side, a_side], power[state, b_side, 1 - a_side])
                if has_b[b_side] and (passed <= 0 or leaked > MAX_LEAK * passed):
                    holds = False
            if not holds:
                wrong.append((cell, state, power[state]))
    return wrong


# Link budgets of ideal switches: which circuits lose too much, by the stated losses


def find_over_budget(fabric: Fabric) -> NDArray[np.bool_]:
    """Find the circuits that lose more than the link budget of either end allows.

    Returns ``is_over[source, destination]``. Between bidirectional ports either direction counts.
    All False where no losses or no budgets are stated.
    """
    is_over = np.zeros((fabric.n_ports, fabric.n_ports), dtype=bool)
    if fabric.circuit_loss_db is None or fabric.circuit_budget_db is None:
        return is_over
    is_over |= fabric.circuit_loss_db > fabric.circuit_budget_db
    return is_over | is_over.T if fabric.bidirectional else is_over


def round_losses(fabric: Fabric) -> NDArray[np.int64] | None:
    """Return the stated losses in whole hundredths of a dB; None if they are not stated.

    Between bidirectional ports the direction that loses more counts.
    """
    loss_db = fabric.circuit_loss_db
    if loss_db is None:
        return None
    loss = np.rint(100 * loss_db).astype(np.int64)
    return np.maximum(loss, loss.T) if fabric.bidirectional else loss


def _check_budgets(
    fabric: Fabric,
    loss_db: NDArray[np.float64],
    matchings: NDArray[np.int32],
    findings: Findings,
) -> None:
    """Check that all circuits keep to their link budgets; set ``worst_circuit_loss_db``.

    ``matchings[slot, source]`` are destinations; a circuit may lose the smaller budget of its two
    ports, in dB. ``loss_db[source, destination]`` is what the switch states of each circuit.
    """
    slots, sources = np.nonzero(matchings != IDLE)
    destinations = matchings[slots, sources]
    circuit_losses_db = loss_db[sources, destinations]
    findings.figures["worst_circuit_loss_db"] = float(circuit_losses_db.max(initial=0.0))
    budget_db = fabric.circuit_budget_db
    if budget_db is None:
        return
    budgets_db = budget_db[sources, destinations]
    for circuit in np.flatnonzero(circuit_losses_db > budgets_db):
        source = fabric.name_port(int(sources[circuit]))
        destination = fabric.name_port(int(destinations[circuit]), receives=True)
        findings.refuse(
            "a circuit keeps to its link budget",
            f"slot {slots[circuit]}, circuit from port {source} to port {destination}",
            f"{circuit_losses_db[circuit]:g} dB",
            f"at most {budgets_db[circuit]:g} dB",
        )


# Light: it goes from each port to its partner and back, and nowhere else


def find_staying(
    fabric: Fabric | None, matchings: NDArray[np.int32], states: NDArray[np.int8] | None
) -> NDArray[np.bool_]:
    """Find the circuits that keep their light while a switch changes from one slot to the next.

    Returns ``stays[slot, source]``, False in slot 0: the source is idle in this slot and in the
    one before, or has the same circuit in both, and no cell that its light passed in the slot
    before has another state now. A new state takes the delay to come about, and the light is lost
    meanwhile. States that do not fit the switch count as if it had no cells.
    """
    stays = np.zeros(matchings.shape, dtype=bool)
    stays[1:] = matchings[1:] == matchings[:-1]
    if fabric is None or fabric.graph is None or states is None:
        return stays
    if states.shape == (len(matchings), fabric.n_cells):
        # The light of every slot but the last one is followed in the states of this slot. There is
        # a beam for each source, and `light` has an entry for each cell that a beam passes.
        starts = np.where(matchings == IDLE, -1, fabric.source_terminals)
        light = trace(fabric.graph, states[:-1], starts[:-1])
        cell = light.entered // 4
        is_set_anew = states[light.slot, cell] != states[light.slot + 1, cell]
        stays[light.slot[is_set_anew] + 1, light.beam[is_set_anew]] = False
    return stays


def check_light(
    fabric: Fabric,
    matchings: NDArray[np.int32],
    states: NDArray[np.int8] | None,
    findings: Findings,
) -> Light | None:
    """Check that the light of every circuit gets to its partner, and back.

    Returns all beams, those of both ports of a circuit; None for a switch without cells, of which
    losses are compared with link budgets instead. ``matchings[slot, source]`` and
    ``states[slot, cell]`` have to fit the switch.
    """
    if fabric.graph is not None:
        assert states is not None  # as its shape was checked
        return _trace_cells(fabric, fabric.graph, matchings, states, findings)
    if fabric.circuit_loss_db is not None:
        _check_budgets(fabric, fabric.circuit_loss_db, matchings, findings)
    return None


def _trace_cells(
    fabric: Fabric,
    graph: CellGraph,
    matchings: NDArray[np.int32],
    states: NDArray[np.int8],
    findings: Findings,
) -> Light:
    """Check the rules of light on a switch with cells; return the light from all sources.

    ``states[slot, cell]`` leads the light on. Four rules are checked in each slot:

    1. The light of a source comes out at the terminal of its destination, ``matchings[slot,
       source]``, -1 where idle; and light that enters there comes back to the source.
    2. A link has the light of one circuit.
    3. A stuck cell is stated as it is, or free.
    4. By the parts of a cell, light goes where its stated state says (`check_parts`).

    Sets the figure ``cells_used_max``, the most cells that have light in a slot.
    """
    # By slot and source, the terminals at which light enters, and at which it must come out; -1
    # where the source is idle.
    idle = matchings == IDLE
    starts = np.where(idle, -1, fabric.source_terminals)
    ends = np.where(idle, -1, fabric.destination_terminals[matchings])

    # Forth and back. There is a beam for each source, with its number.
    light = trace(graph, states, starts)
    check_arrival(fabric, matchings, "light reaches its partner", light, ends, findings)
    light_back = trace(graph, states, ends)
    check_arrival(
        fabric, matchings, "light comes back from the partner", light_back, starts, findings
    )
    # Between bidirectional ports a shared link leads light to a wrong port, which is found above.
    if not fabric.bidirectional:
        _check_sharing(graph, matchings, light, findings)

    # ``graph.stuck[cell]`` is the state in which a cell is stuck: `FREE` if in none, and `DEAD` if
    # no light passes it, in which case any state may be stated.
    is_stuck = (graph.stuck != FREE) & (graph.stuck != DEAD)
    wrong = is_stuck & (states != FREE) & (states != graph.stuck)
    expected = np.broadcast_to(graph.stuck, states.shape)
    findings.expect_none(
        "a stuck cell is stated as it is, or free",
        wrong,
        "cell_states[{}, {}]",
        states,
        expected,
        most=None,
    )
    check_parts(fabric, states, findings)

    # The cells that have light: cell c has the terminals 4 c to 4 c + 3.
    lit = np.zeros(states.shape, dtype=bool)
    lit[light.slot, light.entered // 4] = True
    findings.figures["cells_used_max"] = int(lit.sum(axis=1).max(initial=0))
    return light


def check_parts(
    fabric: Fabric, states: NDArray[np.int8], findings: Findings, *, when: str = "slot {}"
) -> None:
    """Check that the parts of each cell lead light as ``states[slot, cell]`` says.

    A cell that is free leads no light. `when` names the slot in messages.
    """
    for cell, state, power in find_wrong_states(fabric):
        slots = np.flatnonzero(states[:, cell] == state)
        if len(slots):
            findings.refuse(
                "a cell has the state that it is in, by its parts",
                f"{when.format(slots[0])}, cell {fabric.cell_names[cell]}",
                f"power {power.round(3).tolist()} from (a1, a2) to (b1, b2)",
                ("bar", "cross")[state],
            )


def check_arrival(
    fabric: Fabric,
    matchings: NDArray[np.int32],
    rule: str,
    light: Light,
    ends: NDArray[np.int32],
    findings: Findings,
    *,
    when: str = "slot {}",
) -> None:
    """Check by a rule that the light of each circuit comes out at ``ends[slot, source]``.

    An end is a terminal, -1 where the source is idle. `rule` is the text of a violation, and
    `when` names the slot there.
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
        where = f"{when.format(slot)}, circuit from port {source} to port {destination}"
        expected = graph.terminal_name(int(ends[slot, port]))
        findings.refuse(rule, where, got, expected)


def _check_sharing(
    graph: CellGraph,
    matchings: NDArray[np.int32],
    light: Light,
    findings: Findings,
) -> None:
    """Check that no link carries the light of two circuits in a slot, in whatever direction.

    Uses of links are sorted by (slot, link, circuit), so that a shared link has several in a row.
    With n ports the circuit from s to d is the number ``s * n + d``. `light` has an entry for each
    cell that a beam passes: ``light.slot``, ``light.beam`` (its source), and the terminals entered
    and left. Beams go from sources to destinations alone.
    """
    n_ports = matchings.shape[1]
    links = graph.links
    destination = matchings[light.slot, light.beam].astype(np.int64)
    circuit = light.beam * n_ports + destination

    # Each cell on a way uses two links: that of the terminal entered and that of the one left. A
    # use is one number for slot, link and circuit, and is listed once.
    terminal = np.concatenate([light.entered, light.left])
    slot_and_link = np.tile(light.slot, 2) * links.count + links.of_terminal[terminal]
    uses = np.unique(slot_and_link * n_ports**2 + np.tile(circuit, 2))
    used_place = uses // n_ports**2
    used_by = uses % n_ports**2

    # ``places[k]`` is one number for a slot and a link: its uses are ``n_circuits[k]`` ones, from
    # ``first_use[k]`` on. In messages a link is named by one of the terminals that it joins.
    places, first_use, n_circuits = np.unique(used_place, return_index=True, return_counts=True)
    _, terminal_of_link = np.unique(links.of_terminal, return_index=True)
    for shared in np.flatnonzero(n_circuits > 1):
        slot, link = divmod(int(places[shared]), links.count)
        terminal_name = graph.terminal_name(int(terminal_of_link[link]))
        first = first_use[shared]
        circuits = used_by[first : first + n_circuits[shared]].tolist()
        findings.refuse(
            "a link carries one circuit",
            f"slot {slot}, link {link} at {terminal_name}",
            f"circuits {[divmod(number, n_ports) for number in circuits]}",
            "one circuit",
        )

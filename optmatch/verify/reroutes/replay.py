"""The replay of a transition: what failed, each step, the new circuits and spares, the cost.

The failure comes first (`assess_failure`): lost units, hit circuits, spares that are left. Then
`replay_transition` checks in this order, and ends where later rules cannot be asked:

1. Circuits and fibres that are named exist (`_check_numbers`).
2. Each lost unit has a live spare of its own (`_check_moves`), and ends of circuits follow their
   units (`_check_ends`); without cells, routes lead over live fibres (`_check_fibres`).
3. After every step each circuit that is up has its parts for itself and its light, and in the end
   all circuits have theirs, along the stated routes (`_replay_steps`).
4. Circuits of ideal switches keep their link budgets (`check_light`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import DEAD, CellGraph
from optmatch.fabrics.light import Light, trace
from optmatch.model import BAR, CROSS, FREE, IDLE
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.transition import DROP, SET
from optmatch.verify.light import (
    check_arrival,
    check_light,
    check_parts,
    round_losses,
)
from optmatch.verify.report import Findings


@dataclass
class Failure:
    """The state after the failure, before anything is done.

    A *unit* is what a spare replaces: a chip of a rack, or a port of a switch.
    """

    problem: Reroute
    graph: CellGraph | None
    """The cells as they were; None where circuits lead over fibres alone."""
    faults: NDArray[np.int8]
    """``faults[cell]``: `DEAD`, the state in which a cell is stuck, or `FREE` if it works."""
    states: NDArray[np.int8]
    """``states[cell]``: those of stuck cells as they are, dead ones free: light is lost there."""
    fibre_of_terminal: NDArray[np.int32]
    """``fibre_of_terminal[terminal]``: the fibre that ends there, or -1."""
    per_unit: int
    """Ports of a unit."""
    dead_ports: set[int] = field(default_factory=set)
    """Ports that have failed, and all ports of chips that have."""
    hit: set[int] = field(default_factory=set)
    """Circuits that have lost their light, as rows of ``problem.circuits``."""
    lost: set[int] = field(default_factory=set)
    """Units that have to be replaced."""
    spares: set[int] = field(default_factory=set)
    """Units that can replace them."""

    def unit(self, port: int) -> int:
        """Return the unit that a port belongs to."""
        return port // self.per_unit


def assess_failure(problem: Reroute) -> Failure:
    """Find the circuits that a failure hits, the lost units, and the spares that are left.

    Dead ports and cells are noted first; what is lost or hit follows from them.
    """
    fabric = problem.fabric
    units = problem.units
    failure = Failure(
        problem=problem,
        graph=fabric.graph,
        faults=np.full(fabric.n_cells, FREE, dtype=np.int8),
        states=np.empty(0, dtype=np.int8),
        fibre_of_terminal=units.fibre_of_terminal,
        per_unit=units.ports_per_unit,
        dead_ports=set(problem.failed_ports),
    )
    # A stuck cell is in the state that its fault names. Light is lost in a dead one: it counts as
    # free. All ports of a chip that has failed are dead.
    if fabric.graph is not None:
        failure.faults[list(problem.stuck_bar)] = BAR
        failure.faults[list(problem.stuck_cross)] = CROSS
        failure.faults[list(problem.dead_cells)] = DEAD
        works = failure.faults == FREE
        failure.states = np.where(works, np.asarray(problem.cell_states), failure.faults)
        failure.states[failure.faults == DEAD] = FREE
    for chip in problem.failed_chips:
        first_port = chip * failure.per_unit
        failure.dead_ports.update(range(first_port, first_port + failure.per_unit))

    # Where no light passes a chip on its way, racks are replaced as a whole.
    if units.through:
        _find_lost_units(failure)
        _find_hit_circuits(failure)
    else:
        _find_lost_racks(failure)
    return failure


def _rack_of(problem: Reroute, chip: int) -> int:
    """Return the rack of a chip."""
    chips_per_rack = problem.units.n_units // problem.units.racks
    return chip // chips_per_rack


def _find_lost_racks(failure: Failure) -> None:
    """Find racks with failed parts in use, which are lost, and racks of spares that work.

    Adds to ``failure.lost``, ``failure.hit`` and ``failure.spares``. Where no light passes a chip
    on its way, racks are replaced as a whole: all chips of a lost rack are lost, and all their
    circuits are hit.
    """
    problem = failure.problem
    units = problem.units
    chips = range(units.n_units)
    failed_fibres = set(problem.failed_fibres)

    # The racks at the ends of failed fibres. An end of an edge is a server, or a switch that joins
    # racks, which is in none: switches have the numbers after those of servers.
    chips_per_server = units.n_units // units.n_servers
    racks_of_fibre: dict[int, set[int]] = {}
    for fibre in failed_fibres:
        servers = [end for end in units.edges[units.edge_of_fibre[fibre]] if end < units.n_servers]
        first_chips = [int(server) * chips_per_server for server in servers]
        racks_of_fibre[fibre] = {_rack_of(problem, chip) for chip in first_chips}
    racks_of_dead_ports = {_rack_of(problem, failure.unit(port)) for port in failure.dead_ports}

    # Racks are lost where a circuit ends at a dead port, or passes a failed fibre.
    lost_racks = set[int]()
    for ports, route in zip(problem.circuits.tolist(), problem.routes, strict=True):
        dead_ends = failure.dead_ports.intersection(ports)
        lost_racks.update(_rack_of(problem, failure.unit(port)) for port in dead_ends)
        for fibre in failed_fibres.intersection(route):
            lost_racks |= racks_of_fibre[fibre]

    # A spare rack has spares alone, and no failed part, in use or not.
    not_spare = {_rack_of(problem, chip) for chip in chips if chip not in problem.spares}
    not_spare = not_spare.union(racks_of_dead_ports, *racks_of_fibre.values())

    # All chips of a lost rack are lost, and all its circuits are hit.
    for circuit, ports in enumerate(problem.circuits.tolist()):
        if any(_rack_of(problem, failure.unit(port)) in lost_racks for port in ports):
            failure.hit.add(circuit)
    failure.lost.update(chip for chip in chips if _rack_of(problem, chip) in lost_racks)
    failure.spares.update(chip for chip in chips if _rack_of(problem, chip) not in not_spare)


def _find_lost_units(failure: Failure) -> None:
    """Find the units that are lost, and the spares that can replace them.

    A unit is lost if fewer of its ports work than circuits begin there, or end there; a spare can
    take its place if any of its ports works. Adds to ``failure.lost`` and ``failure.spares``. Unit
    u has `per_unit` ports, from ``u * failure.per_unit`` on.
    """
    problem = failure.problem
    n_units = problem.units.n_units
    # By unit, the circuits that begin there, and those that end there.
    circuits_out = [0] * n_units
    circuits_in = [0] * n_units
    for source, destination in problem.circuits.tolist():
        circuits_out[failure.unit(source)] += 1
        # A bidirectional port serves one circuit, whichever end of it the port is.
        at_destination = circuits_out if problem.fabric.bidirectional else circuits_in
        at_destination[failure.unit(destination)] += 1

    for unit in range(n_units):
        ports = range(unit * failure.per_unit, (unit + 1) * failure.per_unit)
        n_live = sum(port not in failure.dead_ports for port in ports)
        if n_live < max(circuits_out[unit], circuits_in[unit]):
            failure.lost.add(unit)
        if n_live > 0 and unit in problem.spares:
            failure.spares.add(unit)


def _find_hit_circuits(failure: Failure) -> None:
    """Find the circuits that have lost their light.

    Adds to ``failure.hit``, numbers of ``problem.circuits``. A circuit is hit if it has a dead
    port or a lost unit, or if its light passes a failed fibre, a dead cell, or a cell that is
    stuck in another state than it needs.
    """
    problem = failure.problem
    for circuit, ports in enumerate(problem.circuits.tolist()):
        if any(port in failure.dead_ports or failure.unit(port) in failure.lost for port in ports):
            failure.hit.add(circuit)
    if failure.graph is None:
        failed_fibres = set(problem.failed_fibres)
        for circuit, route in enumerate(problem.routes):
            if not failed_fibres.isdisjoint(route):
                failure.hit.add(circuit)
        return

    # The light as it was before the failure is lost where a cell has another state now: dead ones
    # are free.
    states = problem.cell_states
    assert states is not None  # there are cells
    starts = problem.fabric.source_terminals[problem.circuits[:, 0]].astype(np.int64)
    light = trace(failure.graph, states[None], starts[None])
    # By entry, a cell that a beam passes; beam k is circuit k.
    cells = light.entered // 4
    hit = states[cells] != failure.states[cells]
    hit |= np.isin(failure.fibre_of_terminal[light.entered], problem.failed_fibres)
    failure.hit.update(light.beam[hit].tolist())


# The steps: circuits that do not change keep their light


class UsedPart(NamedTuple):
    """A part that one circuit at a time can use."""

    kind: str
    """``"port out"``, ``"port in"``, ``"fibre"`` or ``"link"``."""
    number: int


class UpCircuit(NamedTuple):
    """A circuit that has light."""

    parts: list[UsedPart]
    """Its ports, and the fibres or the links of cells that it passes."""
    entered: list[int]
    """The terminals at which its light enters cells, in order; none without cells."""


def _replay_steps(failure: Failure, transition: Transition, findings: Findings) -> bool:
    """Take all steps of a transition, one after another, and check the circuits after each.

    Circuits that the failure hit are dark at first, all others are up. A step (kind, target,
    state) sets the cell `target`, or drops or raises the circuit of that number; one that may not
    be taken is a violation, and changes nothing. In the end all circuits are up, on their new
    ports and routes. Sets the figure ``dark_steps``; returns whether all steps can be taken, and
    lead to the new circuits.
    """
    violations_before = len(findings.violations)
    problem = failure.problem
    new_ports = dict(zip(transition.changed.tolist(), transition.circuits.tolist(), strict=True))
    new_routes = dict(zip(transition.changed.tolist(), transition.routes, strict=True))
    states = failure.states.copy()
    healthy = set(range(len(problem.circuits))) - failure.hit
    old_ports = {circuit: problem.circuits[circuit].tolist() for circuit in sorted(healthy)}
    old_routes = dict(enumerate(problem.routes))
    user_of: dict[UsedPart, int] = {}  # the circuit that uses a part; `_raise_circuits` adds to it
    up = _raise_circuits(
        failure, states, old_ports, old_routes, user_of, "the beginning", findings
    )

    # A circuit that was not hit counts once in `dark_steps` for each step after which it is dark:
    # one that is dropped in step 3 and raised in step 5 counts twice, after steps 3 and 4. A
    # dropped circuit gives up its parts, and others may use them.
    dark_steps = 0
    raised_anew = set[int]()
    for number, (kind, target, state) in enumerate(transition.steps.tolist()):
        where = f"steps[{number}]"
        if kind == SET:
            works = 0 <= target < len(states) and failure.faults[target] == FREE
            if findings.expect("only cells that work are set", where, works, True):
                if states[target] != state:
                    _check_untouched(target, up, where, findings)
                states[target] = state
        elif _may_change(target in new_ports, target in up, kind, where, findings):
            if kind == DROP:
                for part in up.pop(target).parts:
                    user_of.pop(part, None)
            else:
                raised_anew.add(target)
                ports = {target: new_ports[target]}
                up |= _raise_circuits(failure, states, ports, new_routes, user_of, where, findings)
        dark_steps += len(healthy - up.keys())
    findings.figures["dark_steps"] = dark_steps

    # In the end all circuits are up, and light takes the routes that are stated.
    dark = sorted(set(range(len(problem.circuits))) - up.keys())
    findings.expect("at the end every circuit is up", "steps", dark, [])
    not_raised = sorted(new_ports.keys() - raised_anew)
    findings.expect("every changed circuit is raised anew", "steps", not_raised, [])
    if len(findings.violations) > violations_before:
        return False
    if failure.graph is not None:
        for circuit, route in new_routes.items():
            entered = tuple(up[circuit].entered)
            findings.expect("light takes its route", f"circuit {circuit}", entered, route)
    return True


def _may_change(is_changed: bool, is_up: bool, kind: int, where: str, findings: Findings) -> bool:
    """Check that a step drops or raises a circuit of those that change, and that it can.

    `is_changed` and `is_up` are about the circuit, and `kind` is `DROP` or `RAISE`.
    """
    rule = "only circuits that change are touched"
    if not findings.expect(rule, where, is_changed, True):
        return False
    rule = "a circuit is dropped if it is up, and raised if not"
    return findings.expect(rule, where, is_up, kind == DROP)


def _check_untouched(cell: int, up: dict[int, UpCircuit], where: str, findings: Findings) -> None:
    """Check that no circuit that is up passes a cell whose state changes.

    ``up[circuit]`` are the circuits that have light; `where` names the step in messages.
    """
    terminals = set(range(4 * cell, 4 * cell + 4))
    for circuit, running in up.items():
        if not terminals.isdisjoint(running.entered):
            got = f"circuit {circuit}: another one"
            findings.refuse("a circuit keeps its route while it is up", where, got, "its own")


def _raise_circuits(
    failure: Failure,
    states: NDArray[np.int8],
    ports: dict[int, list[int]],
    fibres: Mapping[int, Sequence[int]],
    user_of: dict[UsedPart, int],
    where: str,
    findings: Findings,
) -> dict[int, UpCircuit]:
    """Switch circuits on: check their light and that their parts are free, and return them.

    ``ports[circuit]`` are the source and the destination of each of these circuits. Without cells
    ``fibres[circuit]`` are the fibres that it passes; with cells, whose states at this moment are
    ``states[cell]``, its light is followed instead. Adds the parts of the circuits to `user_of`:
    ``user_of[part]`` is the circuit that uses a part. `where` names the step in messages.
    """
    fabric = failure.problem.fabric
    matching = np.full((1, fabric.n_ports), IDLE, dtype=np.int32)
    sources, destinations = np.array([*ports.values()], dtype=np.int64).reshape(-1, 2).T
    matching[0, sources] = destinations
    light = None
    if failure.graph is not None:
        light = _trace_light(failure, failure.graph, states, matching, where, findings)
        link_of_terminal = failure.graph.links.of_terminal

    # A bidirectional port is one part, whichever end of a circuit it is.
    arrival = "port out" if fabric.bidirectional else "port in"
    raised: dict[int, UpCircuit] = {}
    for circuit, (source, destination) in ports.items():
        parts = [UsedPart("port out", source), UsedPart(arrival, destination)]
        entered: list[int] = []
        if light is None:
            parts += [UsedPart("fibre", fibre) for fibre in fibres[circuit]]
        else:
            # Light uses the links at which it enters cells, and the one by which it comes out.
            is_own = light.beam == source
            entered = light.entered[is_own].tolist()
            terminals = entered + light.left[is_own].tolist()[-1:]
            parts += [UsedPart("link", link) for link in link_of_terminal[terminals].tolist()]
        if len(set(parts)) < len(parts):
            got = f"circuit {circuit}"
            findings.refuse("no part is passed twice", where, got, "each once")
        for part in parts:
            user = user_of.setdefault(part, circuit)
            if user != circuit:
                rule = "a port, a fibre, a waveguide has one circuit at a time"
                got = f"{part.kind} {part.number}: circuits {user} and {circuit}"
                findings.refuse(rule, where, got, "one")
        raised[circuit] = UpCircuit(parts, entered)
    return raised


def _trace_light(
    failure: Failure,
    graph: CellGraph,
    states: NDArray[np.int8],
    matching: NDArray[np.int32],
    where: str,
    findings: Findings,
) -> Light:
    """Follow the light of circuits that are raised (switched on), and check three rules of it.

    The light arrives at its destination; the cells that it passes are in states that their parts
    make; and it passes no failed fibre. Returns the light: beam k is that from port k.

    ``matching[0, source]`` is the destination of each raised circuit, `IDLE` at all other ports;
    ``states[cell]`` is how cells are set at this moment, which `where` names in messages.
    """
    fabric = failure.problem.fabric
    starts = np.where(matching == IDLE, -1, fabric.source_terminals)
    ends = np.where(matching == IDLE, -1, fabric.destination_terminals[matching])
    light = trace(graph, states[None], starts)
    check_arrival(
        fabric,
        matching,
        "a circuit that is raised has its light",
        light,
        ends,
        findings,
        when=where,
    )

    # Cells without light may be in any state: they count as free, which `check_parts` leaves out.
    cells = light.entered // 4
    lit_states = np.full((1, fabric.n_cells), FREE, dtype=np.int8)
    lit_states[0, cells] = states[cells]
    check_parts(fabric, lit_states, findings, when=where)

    # By entry, a cell that light passes: the fibre by which it has come there, -1 if by none.
    fibre = failure.fibre_of_terminal[light.entered]
    for entry in np.flatnonzero(np.isin(fibre, failure.problem.failed_fibres)):
        got = f"circuit from port {light.beam[entry]}: fibre {fibre[entry]}"
        findings.refuse("no light goes through a failed fibre", where, got, "a live one")
    return light


# The transition as a whole

LEVELS = ("disturbed", "changed", "cells_set", "worst_loss_centidb", "length")
"""The levels of the objective; each is a figure too."""


def replay_transition(failure: Failure, transition: object, findings: Findings) -> bool:
    """Check a repair after a failure by all rules; return whether its objective could be computed.

    Checked are numbers that exist, then spares, ends and fibres of circuits, then the steps, then
    the light in the end, or its loss. Each check is skipped if one before it failed.
    """
    if not isinstance(transition, Transition):
        name = type(transition).__name__
        findings.refuse("the answer is a transition", "answer", name, "Transition")
        return False
    # First all numbers must exist, since they are used as indices from there on.
    violations_before = len(findings.violations)
    _check_numbers(failure.problem, transition, findings)
    if len(findings.violations) > violations_before:
        findings.skipped.append("routes and steps: circuits that do not exist")
        return False

    _check_moves(failure, transition, findings)
    _check_ends(failure, transition, findings)
    if failure.graph is None and len(findings.violations) == violations_before:
        _check_fibres(failure, transition, findings)
    if len(findings.violations) > violations_before:
        findings.skipped.append("steps: the circuits at the end are not right")
        return False

    if not _replay_steps(failure, transition, findings):
        findings.skipped.append("losses: the steps do not lead to the circuits that are stated")
        return False
    if failure.graph is None:
        _check_budgets(failure.problem, transition, findings)
    _add_figures(failure, transition, findings)
    return True


def _check_numbers(problem: Reroute, transition: Transition, findings: Findings) -> None:
    """Check that all circuits and fibres exist, and that changed circuits ascend."""
    changed = transition.changed.tolist()
    exist = all(0 <= circuit < len(problem.circuits) for circuit in changed)
    ascend = changed == sorted(set(changed))
    findings.expect("changed circuits exist, and ascend", "changed", exist and ascend, True)
    if problem.fabric.graph is not None:
        return  # a route is one of cells there
    n_fibres = problem.units.n_fibres
    for number, route in enumerate(transition.routes):
        if not all(0 <= fibre < n_fibres for fibre in route):
            findings.refuse("fibres exist", f"routes[{number}]", route, f"0 .. {n_fibres - 1}")


def _check_moves(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Check that each lost unit has a live spare of its own, and that no other unit moves.

    Rows of ``transition.moves`` are a lost unit and its spare. If light can pass chips on its way
    (``units.through``), units move one by one. If not, units are chips of racks, which move whole.
    """
    lost = transition.moves[:, 0].tolist()
    spares = transition.moves[:, 1].tolist()
    findings.expect(
        "what is lost is taken over, and nothing else", "moves", sorted(lost), sorted(failure.lost)
    )
    for number, spare in enumerate(spares):
        where = f"moves[{number}, 1] = {spare}"
        findings.expect("a live spare takes over", where, spare in failure.spares, True)
    findings.expect("each takes over one", "moves", len(set(spares)), len(spares))
    if not failure.problem.units.through:
        _check_racks(failure.problem, lost, spares, findings)


def _check_racks(problem: Reroute, lost: list[int], spares: list[int], findings: Findings) -> None:
    """Check that lost chips of one rack move to the same places of one other rack.

    Chip ``spares[k]`` takes over from chip ``lost[k]``; all chips of a lost rack are lost.
    """
    # Chips are numbered rack after rack. With 64 chips in each, and rack 0 taken over by rack 3,
    # chip 5 moves to chip 3 * 64 + 5.
    chips_per_rack = problem.units.n_units // problem.units.racks
    spare_rack_of: dict[int, int] = {}  # by lost rack, as its first chip says
    for number, (chip, spare) in enumerate(zip(lost, spares, strict=True)):
        rack = chip // chips_per_rack
        spare_rack = spare_rack_of.setdefault(rack, spare // chips_per_rack)
        expected = spare_rack * chips_per_rack + chip % chips_per_rack
        findings.expect(
            "racks move as a whole, chip by chip", f"moves[{number}, 1]", spare, expected
        )


def _check_ends(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Check that ends stay at their unit, or go to its spare, and that their ports live.

    ``transition.circuits[k]`` are the new source and destination port of the circuit
    ``transition.changed[k]``.
    """
    spare_of = dict(transition.moves.tolist())
    changed = transition.changed.tolist()
    for circuit, ports in zip(changed, transition.circuits.tolist(), strict=True):
        for end, port in enumerate(ports):
            where = f"circuit {circuit}, end {end}"
            unit_before = failure.unit(int(failure.problem.circuits[circuit, end]))
            expected = spare_of.get(unit_before, unit_before)
            findings.expect(
                "an end stays at its unit, or goes to the spare",
                where,
                failure.unit(port),
                expected,
            )
            findings.expect("a port in use is alive", where, port in failure.dead_ports, False)


def _check_fibres(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Check that routes lead over live fibres from server to server, where there are no cells."""
    units = failure.problem.units
    ends_of_fibre = units.edges[units.edge_of_fibre].tolist()
    changed = transition.changed.tolist()
    routed = zip(changed, transition.circuits.tolist(), transition.routes, strict=True)
    for circuit, (source, destination), route in routed:
        where = f"route of circuit {circuit}"
        # Where the light is: a server, or a switch between racks with a number after all servers.
        server = int(units.server_of_unit[failure.unit(source)])
        came_from = server
        for hop, fibre in enumerate(route):
            tail, head = ends_of_fibre[fibre]
            findings.expect("a fibre starts where the light is", where, tail, server)
            # A server or a switch sends light on to another one than that it has come from.
            findings.expect("light does not turn back", where, head == came_from, False)
            # Behind its first fibre a route may pass switches, but servers only if light can.
            passes_chip = hop > 0 and tail < units.n_servers and not units.through
            findings.expect("no light passes a chip", where, passes_chip, False)
            is_dead = fibre in failure.problem.failed_fibres
            findings.expect("a fibre in use is alive", where, is_dead, False)
            came_from = tail
            server = head
        expected = int(units.server_of_unit[failure.unit(destination)])
        findings.expect("a route ends at its server", where, server, expected)


def _check_budgets(problem: Reroute, transition: Transition, findings: Findings) -> None:
    """Check that the changed circuits of an ideal switch keep to their link budgets."""
    fabric = problem.fabric
    matching = np.full((1, fabric.n_ports), IDLE, dtype=np.int32)
    sources, destinations = transition.circuits.T
    matching[0, sources] = destinations
    if fabric.bidirectional:
        matching[0, destinations] = sources
    check_light(fabric, matching, None, findings)


def _add_figures(failure: Failure, transition: Transition, findings: Findings) -> None:
    """Compute the levels of the objective, and add them as figures.

    They are changed circuits of jobs that the failure did not hit (disturbed), changed circuits,
    cells set, the worst loss of a changed circuit in 0.01 dB, and the cells and fibres of all
    changed circuits.
    """
    # A route lists its fibres or, with cells, the terminals at which its light enters cells: those
    # that it enters from a fibre tell how many fibres it has. Losses are in 0.01 dB.
    cell_loss, fibre_loss = failure.problem.loss_units
    worst_loss = 0  # in hundredths of a dB
    length = 0
    for route in transition.routes:
        n_cells = 0
        n_fibres = len(route)
        if failure.graph is not None:
            n_cells = len(route)
            n_fibres = int(np.count_nonzero(failure.fibre_of_terminal[list(route)] >= 0))
        worst_loss = max(worst_loss, n_cells * cell_loss + n_fibres * fibre_loss)
        length += n_cells + n_fibres

    # A switch without cells may state the losses of its circuits.
    stated_losses = round_losses(failure.problem.fabric)
    if stated_losses is not None:
        sources, destinations = transition.circuits.T
        worst_loss = int(stated_losses[sources, destinations].max(initial=0))

    # ``owners[circuit]`` is the job of a circuit. A job with a circuit that is hit is disturbed by
    # the failure itself, and does not count.
    changed = transition.changed.tolist()
    owners = failure.problem.owners
    owners_hit = {owners[circuit] for circuit in failure.hit}
    n_disturbed = sum(owners[circuit] not in owners_hit for circuit in changed)
    n_set = int(np.count_nonzero(transition.steps[:, 0] == SET))
    levels = (n_disturbed, len(changed), n_set, worst_loss, length)
    findings.figures.update(zip(LEVELS, levels, strict=True))
    findings.figures["objective"] = levels

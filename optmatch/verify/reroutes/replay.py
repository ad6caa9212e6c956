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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import DEAD, CellGraph
from optmatch.fabrics.light import trace
from optmatch.model import BAR, CROSS, FREE, IDLE
from optmatch.problems import Reroute, Transition
from optmatch.problems.reroutes.transition import DROP, RAISE, SET
from optmatch.verify.light import check_light, round_losses
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
    """``fibre_of_terminal[terminal]``: the fibre whose light enters there, or -1."""
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
    chips = range(problem.units.n_units)
    failed_fibres = set(problem.failed_fibres)

    # The racks at the ends of failed fibres. An end of an edge is a server, or a switch that joins
    # racks, which is in none: switches have the numbers after those of servers.
    units = problem.units
    chips_per_server = units.n_units // units.n_servers
    racks_of_fibre: dict[int, set[int]] = {}
    for fibre in failed_fibres:
        servers = [end for end in units.edges[units.edge_of_fibre[fibre]] if end < units.n_servers]
        racks = {_rack_of(problem, int(server) * chips_per_server) for server in servers}
        racks_of_fibre[fibre] = racks
    racks_of_dead_ports = {_rack_of(problem, failure.unit(port)) for port in failure.dead_ports}

    lost_racks = set[int]()
    for ports, route in zip(problem.circuits.tolist(), problem.routes, strict=True):
        dead_ends = failure.dead_ports.intersection(ports)
        lost_racks.update(_rack_of(problem, failure.unit(port)) for port in dead_ends)
        for fibre in failed_fibres.intersection(route):
            lost_racks |= racks_of_fibre[fibre]

    # A spare rack has spares alone, and no failed part, in use or not.
    not_spare = {_rack_of(problem, chip) for chip in chips if chip not in problem.spares}
    not_spare = not_spare.union(racks_of_dead_ports, *racks_of_fibre.values())

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
    light = trace(failure.graph, states[None], starts[None])  # in slot 0; beam k is circuit k
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


def _replay_steps(failure: Failure, transition: Transition, findings: Findings) -> bool:
    """Take all steps of a transition, and check the circuits at every moment.

    Circuits that the failure hit are down at first, all others are up. No two circuits that are up
    have a port, a fibre or a link in common, and the light of each arrives. After a cell is set,
    only the circuits that pass it are traced again. Sets the figure ``dark_steps``; returns
    whether all steps can be taken and lead to the new circuits.
    """
    violations_before = len(findings.violations)
    replay = Replay(failure, transition, findings)
    healthy = set(range(len(failure.problem.circuits))) - failure.hit
    for circuit in sorted(healthy):
        fibres = failure.problem.routes[circuit] if failure.graph is None else ()
        replay.raise_circuit(circuit, fibres, "the beginning")

    # Step by step: a cell is set, or a circuit dropped or raised. `target` is the cell or the
    # circuit, and `state` the new state of a cell. A circuit that was not hit counts once in
    # `dark_steps` for each step after which it is dark.
    dark_steps = 0
    for number, (kind, target, state) in enumerate(transition.steps.tolist()):
        where = f"steps[{number}]"
        if kind == SET:
            replay.set_cell(target, state, where)
        elif findings.expect(
            "only circuits that change are touched", where, target in replay.new_ports, True
        ):
            replay.touch(target, kind, where)
        dark_steps += len(healthy - replay.up)
    findings.figures["dark_steps"] = dark_steps

    # In the end all circuits are up, and those that change are on their new ports.
    dark = sorted(set(range(len(replay.ports))) - replay.up)
    findings.expect("at the end every circuit is up", "steps", dark, [])
    not_raised = sorted(set(replay.new_ports) - replay.raised_anew)
    findings.expect("every changed circuit is raised anew", "steps", not_raised, [])
    if len(findings.violations) > violations_before:
        return False
    if failure.graph is not None:
        # In the end the light of the changed circuits takes the routes that are stated.
        for circuit, route in replay.new_routes.items():
            passed = tuple(replay.follow(circuit, "the end"))
            findings.expect("light takes its route", f"circuit {circuit}", passed, route)
    return True


class Replay:
    """The fabric in the course of a transition.

    Attributes
    ----------
    ports
        ``ports[circuit]``: its source and destination port at present.
    new_ports, new_routes
        By changed circuit, those that it will have: source and destination port; its fibres, or
        with cells the terminals that its light enters.
    states
        ``states[cell]``: 0 bar, 1 cross, -1 free.
    up, raised_anew
        The circuits that have light, and those that got it again.
    mate, exits, link_of
        The wiring by terminal (4 for each cell), if there are cells: the terminal that it is
        joined to (-1: none), the two by which light that enters here leaves in bar and in cross,
        and its link.
    starts, stops
        By port, the terminals where its light enters, and where light for it comes out.
    """

    def __init__(self, failure: Failure, transition: Transition, findings: Findings) -> None:
        self.failure = failure
        self.findings = findings
        changed = transition.changed.tolist()
        self.new_ports = dict(zip(changed, transition.circuits.tolist(), strict=True))
        self.new_routes = dict(zip(changed, transition.routes, strict=True))
        self.ports = failure.problem.circuits.tolist()  # of each circuit, as they are now
        self.states = failure.states.tolist()  # by cell
        self.up: set[int] = set()
        self.user_of: dict[UsedPart, int] = {}
        """The circuit that uses a part."""
        self.passing: dict[int, set[int]] = {}
        """The circuits whose light passes a cell."""
        self.route_of: dict[int, list[int]] = {}
        """The terminals by which the light of a circuit that is up enters cells."""
        self.raised_anew: set[int] = set()
        graph = failure.graph
        if graph is not None:
            self.mate = graph.mate.tolist()
            self.exits = graph.exits.tolist()
            self.link_of = graph.links.of_terminal.tolist()
            self.starts = failure.problem.fabric.source_terminals.tolist()
            self.stops = failure.problem.fabric.destination_terminals.tolist()

    def touch(self, circuit: int, kind: int, where: str) -> None:
        """Drop a changed circuit that is up, or raise one that is down, at its new ports.

        `kind` is `DROP` or `RAISE`; `where` names the step in messages.
        """
        if not self.findings.expect(
            "a circuit is dropped if it is up, and raised if not",
            where,
            circuit in self.up,
            kind == DROP,
        ):
            return
        if kind == RAISE:
            self.ports[circuit] = self.new_ports[circuit]
            self.raised_anew.add(circuit)
            self.raise_circuit(circuit, self.new_routes[circuit], where)
            return
        self.up.discard(circuit)
        self.route_of.pop(circuit, None)
        self.user_of = {part: user for part, user in self.user_of.items() if user != circuit}
        for circuits in self.passing.values():
            circuits.discard(circuit)

    def raise_circuit(self, circuit: int, fibres: Sequence[int], where: str) -> None:
        """Switch a circuit on, and note its ports and its fibres or links as used.

        A part that is in use already is a violation. `fibres` is empty where light is traced
        through cells.
        """
        self.up.add(circuit)
        source, destination = self.ports[circuit]
        # A bidirectional port is one part, whichever end of a circuit it is.
        is_bidirectional = self.failure.problem.fabric.bidirectional
        arrival = "port out" if is_bidirectional else "port in"
        parts = [UsedPart("port out", source), UsedPart(arrival, destination)]
        if self.failure.graph is None:
            parts += [UsedPart("fibre", fibre) for fibre in fibres]
        else:
            # Links have the numbers that they have without faults. Light uses those by which it
            # enters cells, and the one by which it leaves the last of them.
            passed = self.follow(circuit, where)
            left = [self.exits[entry][self.states[entry // 4]] for entry in passed[-1:]]
            parts += [UsedPart("link", self.link_of[end]) for end in passed + left]

        if len(set(parts)) < len(parts):
            self.findings.refuse(
                "no part is passed twice", where, f"circuit {circuit}", "each once"
            )
        for part in parts:
            user = self.user_of.setdefault(part, circuit)
            if user != circuit:
                got = f"{part.kind} {part.number}: circuits {user} and {circuit}"
                self.findings.refuse(
                    "a port, a fibre, a waveguide has one circuit at a time", where, got, "one"
                )

    def follow(self, circuit: int, where: str) -> list[int]:
        """Trace a circuit, note which cells it passes, and return the terminals that it enters.

        It is a violation if the light passes a failed fibre, is lost in a free cell, or arrives at
        a wrong port.
        """
        # `entered` is the terminal where light enters the next cell, negative if there is none,
        # and `left` the one by which it has left the last cell.
        source, destination = self.ports[circuit]
        failed_fibres = self.failure.problem.failed_fibres
        passed = []
        entered = self.starts[source]
        left = -1

        # From cell to cell, until light leaves the network or comes to a free cell.
        while entered >= 0 and self.states[entered // 4] != FREE:
            cell = entered // 4
            self.passing.setdefault(cell, set()).add(circuit)
            passed.append(entered)
            fibre = int(self.failure.fibre_of_terminal[entered])
            if fibre in failed_fibres:
                got = f"circuit {circuit}: fibre {fibre}"
                self.findings.refuse(
                    "no light goes through a failed fibre", where, got, "a live one"
                )
            left = self.exits[entered][self.states[cell]]
            entered = self.mate[left]

        if left != self.stops[destination]:
            graph = self.failure.graph
            assert graph is not None  # light is traced through cells
            if entered >= 0:
                end = f"lost in free {graph.describe_cell(entered // 4)}"
            else:
                end = f"leaves at {graph.terminal_name(left)}"
            got = f"circuit {circuit}: {end}"
            expected = graph.terminal_name(self.stops[destination])
            self.findings.refuse(
                "every circuit that is up has its light, after every step", where, got, expected
            )
        elif self.route_of.setdefault(circuit, passed) != passed:
            got = f"circuit {circuit}: another one"
            self.findings.refuse("a circuit keeps its route while it is up", where, got, "its own")
        return passed

    def set_cell(self, cell: int, state: int, where: str) -> None:
        """Set a cell, and trace the circuits that pass it again; a faulty cell is a violation."""
        works = 0 <= cell < len(self.states) and self.failure.faults[cell] == FREE
        if not self.findings.expect("only cells that work are set", where, works, True):
            return
        self.states[cell] = state
        for circuit in sorted(self.passing.get(cell, ())):
            self.follow(circuit, where)


# The transition as a whole

LEVELS = ("disturbed", "changed", "cells_set", "worst_loss_centidb", "length")
"""The levels of the objective; each is a figure too."""


def replay_transition(failure: Failure, transition: Transition, findings: Findings) -> bool:
    """Check a repair after a failure by all rules; return whether its objective could be computed.

    Checked are numbers that exist, then spares, ends and fibres of circuits, then the steps, then
    the light in the end, or its loss. Each check is skipped if one before it failed.
    """
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
        findings.skipped.append("light: the steps cannot be taken")
        return False
    if failure.graph is None:
        # The changed circuits of an ideal switch keep to their link budgets.
        fabric = failure.problem.fabric
        matching = np.full((1, fabric.n_ports), IDLE, dtype=np.int32)
        sources, destinations = transition.circuits.T
        matching[0, sources] = destinations
        if fabric.bidirectional:
            matching[0, destinations] = sources
        check_light(fabric, matching, None, findings)
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

    Rows of ``transition.moves`` are a lost unit and its spare. Where light may not pass a chip on
    its way (`through`), racks move as a whole.
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
    units = failure.problem.units
    if units.through:
        return

    # All chips of a lost rack go to the same places of one other rack.
    chips_per_rack = units.n_units // units.racks
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
        for fibre in route:
            tail, head = ends_of_fibre[fibre]
            findings.expect("a fibre starts where the light is", where, tail, server)
            # Behind its first fibre a route may pass switches, but servers only if light can.
            is_first = fibre == route[0]
            passes_chip = not is_first and tail < units.n_servers and not units.through
            findings.expect("no light passes a chip", where, passes_chip, False)
            is_dead = fibre in failure.problem.failed_fibres
            findings.expect("a fibre in use is alive", where, is_dead, False)
            server = head
        expected = int(units.server_of_unit[failure.unit(destination)])
        findings.expect("a route ends at its server", where, server, expected)


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
    levels = (n_disturbed, len(changed), transition.n_set, worst_loss, length)
    findings.figures.update(zip(LEVELS, levels, strict=True))
    findings.figures["objective"] = levels

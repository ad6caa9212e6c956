"""The replay of a transition, step by step: circuits that do not change keep their light."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from optmatch.model import FREE
from optmatch.problems import Transition
from optmatch.problems.reroutes.transition import DROP, RAISE, SET
from optmatch.verify.report import Findings, Rule
from optmatch.verify.reroutes.failure import Failure

ONLY_CHANGED_ARE_TOUCHED = Rule("only circuits that change are touched")
DROPPED_IF_UP = Rule("a circuit is dropped if it is up, and raised if not")
NO_PART_TWICE = Rule("no part is passed twice")
ONE_CIRCUIT_PER_PART = Rule("a port, a fibre, a waveguide has one circuit at a time")
NO_FAILED_FIBRE = Rule("no light goes through a failed fibre")
LIGHT_AFTER_EVERY_STEP = Rule("every circuit that is up has its light, after every step")
WORKING_CELLS_ARE_SET = Rule("only cells that work are set")
ALL_UP_AT_END = Rule("at the end every circuit is up")
CHANGED_ARE_RAISED = Rule("every changed circuit is raised anew")


class UsedPart(NamedTuple):
    """What one circuit at a time can use."""

    kind: str
    """``"port out"``, ``"port in"``, ``"fibre"`` or ``"link"``."""
    number: int


def replay_steps(failure: Failure, transition: Transition, findings: Findings) -> bool:
    """Take all steps of a transition, and check the circuits at every moment.

    Circuits that the failure hit are down at first, all others are up. Each circuit that is up has
    its parts for itself, and its light arrives. After a cell is set, only the circuits that pass
    it are traced again. Sets the figure ``dark_steps``; returns whether all steps can be taken and
    lead to the new circuits.
    """
    violations_before = len(findings.violations)
    replay = Replay(failure, transition, findings)
    for circuit in range(len(failure.problem.circuits)):
        if circuit not in failure.hit:
            fibres = failure.problem.routes[circuit] if failure.graph is None else ()
            replay.raise_circuit(circuit, fibres, "the beginning")
    for number, (kind, target, state) in enumerate(transition.steps.tolist()):
        where = f"steps[{number}]"
        if kind == SET:
            replay.set_cell(target, state, where)
        elif findings.expect(ONLY_CHANGED_ARE_TOUCHED, where, target in replay.new_ports, True):
            replay.touch(target, kind, where)
        replay.count_dark()
    replay.finish()
    findings.figures["dark_steps"] = replay.dark_steps
    return len(findings.violations) == violations_before


class Replay:
    """The fabric in the course of a transition.

    Attributes
    ----------
    ports
        ``ports[circuit]``: its source and destination port at present.
    new_ports, new_routes
        Those that changed circuits will have.
    states
        ``states[cell]``: 0 bar, 1 cross, -1 free.
    up, raised_anew
        The circuits that have light, and those that got it again.
    mate, exits, link_of, starts, stops
        The wiring by terminal, and the terminals of ports, if there are cells.
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
        self.raised_anew: set[int] = set()
        self.dark_steps = 0
        """Steps times circuits that are dark then, though the failure did not hit them."""
        graph = failure.graph
        if graph is not None:
            fabric = failure.problem.fabric
            self.mate = graph.mate.tolist()
            self.exits = graph.exits.tolist()
            self.link_of = graph.links.of_terminal.tolist()
            self.starts = fabric.source_terminals.tolist()
            self.stops = fabric.destination_terminals.tolist()

    def touch(self, circuit: int, kind: int, where: str) -> None:
        """Drop a changed circuit that is up, or raise one that is down, at its new ports."""
        if not self.findings.expect(DROPPED_IF_UP, where, circuit in self.up, kind == DROP):
            return
        if kind == RAISE:
            self.ports[circuit] = self.new_ports[circuit]
            self.raised_anew.add(circuit)
            self.raise_circuit(circuit, self.new_routes[circuit], where)
            return
        self.up.discard(circuit)
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
            parts += [UsedPart("link", link) for link in self.follow(circuit, where)]

        if len(set(parts)) < len(parts):
            self.findings.refuse(NO_PART_TWICE, where, f"circuit {circuit}", "each once")
        for part in parts:
            user = self.user_of.setdefault(part, circuit)
            if user != circuit:
                got = f"{part.kind} {part.number}: circuits {user} and {circuit}"
                self.findings.refuse(ONE_CIRCUIT_PER_PART, where, got, "one")

    def follow(self, circuit: int, where: str) -> list[int]:
        """Trace a circuit, note which cells it passes, and return its links in order.

        It is a violation if the light passes a failed fibre, is lost in a free cell, or arrives at
        a wrong port. Links have the numbers that they have without faults.
        """
        # `entered` is the terminal where light enters the next cell, negative if there is none,
        # and `left` the one by which it has left the last cell.
        source, destination = self.ports[circuit]
        failed_fibres = self.failure.problem.failed_fibres
        links = []
        entered = self.starts[source]
        left = -1
        while entered >= 0 and self.states[entered // 4] != FREE:
            cell = entered // 4
            self.passing.setdefault(cell, set()).add(circuit)
            links.append(self.link_of[entered])
            fibre = int(self.failure.fibre_of_terminal[entered])
            if fibre in failed_fibres:
                got = f"circuit {circuit}: fibre {fibre}"
                self.findings.refuse(NO_FAILED_FIBRE, where, got, "a live one")
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
            self.findings.refuse(LIGHT_AFTER_EVERY_STEP, where, got, expected)
        if left >= 0:
            links.append(self.link_of[left])
        return links

    def set_cell(self, cell: int, state: int, where: str) -> None:
        """Set a cell, and trace the circuits that pass it again; a faulty cell is a violation."""
        problem = self.failure.problem
        exists = 0 <= cell < len(self.states)
        broken_cells = {*problem.stuck_bar, *problem.stuck_cross, *problem.dead_cells}
        works = exists and cell not in broken_cells
        if not self.findings.expect(WORKING_CELLS_ARE_SET, where, works, True):
            return
        if self.states[cell] == state:
            return
        self.states[cell] = state
        for circuit in sorted(self.passing.get(cell, ())):
            self.follow(circuit, where)

    def count_dark(self) -> None:
        """Count the circuits that are dark now without having been hit."""
        n_healthy = len(self.ports) - len(self.failure.hit)
        n_healthy_up = len(self.up.difference(self.failure.hit))
        self.dark_steps += n_healthy - n_healthy_up

    def finish(self) -> None:
        """Check that all circuits are up, and that those that change are on their new ports."""
        dark = sorted(set(range(len(self.ports))) - self.up)
        self.findings.expect(ALL_UP_AT_END, "steps", dark, [])
        not_raised = sorted(set(self.new_ports) - self.raised_anew)
        self.findings.expect(CHANGED_ARE_RAISED, "steps", not_raised, [])

"""The replay of a transition, step by step: circuits that do not change keep their light."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from optmatch.model import FREE
from optmatch.problems import Transition
from optmatch.problems.reroutes.transition import DROP, RAISE, SET
from optmatch.verify.report import Findings
from optmatch.verify.reroutes.failure import Failure


def replay_steps(failure: Failure, transition: Transition, findings: Findings) -> bool:
    """Take all steps; tell whether they can be taken and lead to the new circuits.

    At every moment each circuit that is up has its ports, fibres and waveguides for itself, and
    its light arrives. Circuits that the transition does not change are never dropped. Light
    depends on the cells that it passes and on no others, so after a cell is set the circuits that
    pass it are traced again; at the beginning all are.
    """
    before = len(findings.violations)
    replay = Replay(failure, transition, findings)
    for circuit in range(len(failure.problem.circuits)):
        if circuit not in failure.hit:
            way = failure.problem.routes[circuit] if failure.graph is None else ()
            replay.raise_circuit(circuit, way, "the beginning")
    for number, (kind, which, state) in enumerate(transition.steps.tolist()):
        where = f"steps[{number}]"
        if kind == SET:
            replay.set_cell(which, state, where)
        elif findings.expect(
            "only circuits that change are touched", where, which in replay.after, True
        ):
            replay.touch(which, kind, where)
        replay.count_dark()
    replay.finish()
    findings.figures["dark_steps"] = replay.dark_steps
    return len(findings.violations) == before


class Replay:
    """The fabric in the course of a transition."""

    def __init__(self, failure: Failure, transition: Transition, findings: Findings) -> None:
        self.failure, self.findings = failure, findings
        changed = transition.changed.tolist()
        self.after = dict(zip(changed, transition.circuits.tolist(), strict=True))
        self.routes = dict(zip(changed, transition.routes, strict=True))
        self.ends = failure.problem.circuits.tolist()
        self.states = failure.states.tolist()
        self.up: set[int] = set()
        self.users: dict[Hashable, int] = {}
        self.passing: dict[int, set[int]] = {}
        """The circuits whose light passes a cell."""
        self.moved: set[int] = set()
        self.dark_steps = 0
        graph = failure.graph
        if graph is not None:
            self.mate, self.exits = graph.mate.tolist(), graph.exits.tolist()
            self.link_of = graph.links.of_terminal.tolist()
            self.starts = failure.problem.fabric.source_terminals.tolist()
            self.stops = failure.problem.fabric.destination_terminals.tolist()

    def touch(self, circuit: int, kind: int, where: str) -> None:
        """Drop or raise a circuit that changes."""
        rule = "a circuit is dropped if it is up, and raised if not"
        if not self.findings.expect(rule, where, circuit in self.up, kind == DROP):
            return
        if kind == RAISE:
            self.ends[circuit] = self.after[circuit]
            self.moved.add(circuit)
            self.raise_circuit(circuit, self.routes[circuit], where)
            return
        self.up.discard(circuit)
        self.users = {part: user for part, user in self.users.items() if user != circuit}
        for circuits in self.passing.values():
            circuits.discard(circuit)

    def raise_circuit(self, circuit: int, fibres: Sequence[int], where: str) -> None:
        """Give a circuit light, and all that it uses."""
        self.up.add(circuit)
        source, destination = self.ends[circuit]
        both = self.failure.problem.fabric.bidirectional
        parts: list[tuple[str, int]] = [("port out", source)]
        parts.append(("port out" if both else "port in", destination))
        if self.failure.graph is None:
            parts += [("fibre", fibre) for fibre in fibres]
        else:
            parts += [("link", link) for link in self.follow(circuit, where)]
        if len(set(parts)) < len(parts):
            self.findings.refuse(
                "no part is passed twice", where, f"circuit {circuit}", "each once"
            )
        for part in parts:
            user = self.users.setdefault(part, circuit)
            if user != circuit:
                self.findings.refuse(
                    "a port, a fibre, a waveguide has one circuit at a time",
                    where,
                    f"{part[0]} {part[1]}: circuits {user} and {circuit}",
                    "one",
                )

    def follow(self, circuit: int, where: str) -> list[int]:
        """Trace a circuit, note the cells, and return the links it uses."""
        source, destination = self.ends[circuit]
        at, left, links = self.starts[source], -1, []
        fibres = self.failure.fibre_of_terminal
        failed = self.failure.problem.failed_fibres
        while at >= 0 and self.states[at // 4] != FREE:
            self.passing.setdefault(at // 4, set()).add(circuit)
            links.append(self.link_of[at])
            if int(fibres[at]) in failed:
                rule, got = "no light goes through a failed fibre", f"fibre {fibres[at]}"
                self.findings.refuse(rule, where, f"circuit {circuit}: {got}", "a live one")
            left = self.exits[at][self.states[at // 4]]
            at = self.mate[left]
        rule = "every circuit that is up has its light, after every step"
        got = f"lost in free cell {at // 4}" if at >= 0 else f"leaves at terminal {left}"
        if left != self.stops[destination]:
            expected = f"terminal {self.stops[destination]}"
            self.findings.refuse(rule, where, f"circuit {circuit}: {got}", expected)
        return [*links, self.link_of[left]] if left >= 0 else links

    def set_cell(self, cell: int, state: int, where: str) -> None:
        """Set a cell, and trace the circuits that pass it again."""
        problem = self.failure.problem
        works = 0 <= cell < len(self.states)
        works = works and cell not in problem.stuck and cell not in problem.dead_cells
        if not self.findings.expect("only cells that work are set", where, works, True):
            return
        if self.states[cell] == state:
            return
        self.states[cell] = state
        for circuit in sorted(self.passing.get(cell, ())):
            self.follow(circuit, where)

    def count_dark(self) -> None:
        """Count the circuits that are dark now without having been hit."""
        healthy = len(self.ends) - len(self.failure.hit)
        self.dark_steps += healthy - len(self.up.difference(self.failure.hit))

    def finish(self) -> None:
        """Check that all are up on their new ports."""
        dark = sorted(set(range(len(self.ends))) - self.up)
        self.findings.expect("at the end every circuit is up", "steps", dark, [])
        stale = sorted(set(self.after) - self.moved)
        self.findings.expect("every changed circuit is raised anew", "steps", stale, [])

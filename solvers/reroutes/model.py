"""The exact model of a failure for CP-SAT: flows on the flow graph, and a choice of spares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.exact_models import ExactModel
from optmatch.solvers.reroutes.routing_state import HitCircuits, Path, RoutingState, spread
from optmatch.solvers.reroutes.splice import LOSS_COST


class ModelledPlan(NamedTuple):
    """What a solution of the model stands for."""

    paths: list[Path]
    """For each of the model's circuits the nodes of the flow graph from its start to its goal."""
    handover: tuple[int, ...]
    """The spare that takes over for each lost unit, in their order."""


class RerouteModel(ExactModel[ModelledPlan]):
    """The model: spares that take over, and routes of circuits that may move around the others.

    A circuit is a flow from where its source may be to where its destination may be. Each arc is a
    variable for each circuit that can use it; nodes use up what is free of their resource. Whoever
    was not hit may keep its route, and moves only if `moved` says so.

    The hit circuits, and those that may move, are off the routing.
    """

    def __init__(self, routing: RoutingState, case: HitCircuits, movable: Sequence[int]) -> None:
        """Build the model: a choice of spares, a flow for each circuit, and two objectives.

        The hit circuits and `movable`, which were not hit and may move, have been taken off
        `routing`.
        """
        super().__init__()
        self.routing = routing
        self.case = case
        self.circuits = [*case.hit, *movable]

        # ``take[unit, spare]``: whether a spare takes over. Each lost unit has one, each spare
        # takes over one at most.
        self.take: dict[tuple[int, int], Any] = {
            (unit, spare): self.model.new_bool_var("")
            for unit in case.lost
            for spare in case.spares
        }
        for unit in case.lost:
            self.model.add_exactly_one(self.take[unit, spare] for spare in case.spares)
        for spare in case.spares:
            self.model.add_at_most_one(self.take[unit, spare] for unit in case.lost)

        self.moved = {circuit: self.model.new_bool_var("") for circuit in movable}
        self.uses: dict[int, list[Any]] = defaultdict(list)
        """``uses[resource]``: literals of circuits that use one unit of it."""
        self.sets: dict[int, Any] = {}
        """``sets[cell]``: whether a cell must be set."""
        self.flows: list[dict[int, Any]] = []
        """``flows[k][arc]``: whether ``circuits[k]`` goes along an arc."""
        self.sums: list[tuple[Any, Any]] = []
        """The loss and the length of each circuit."""
        for circuit in self.circuits:
            self._add_circuit(circuit)
        for resource, literals in self.uses.items():
            capacity = int(routing.free[resource])
            if len(literals) > capacity:
                self.model.add(sum(literals) <= capacity)
        self._add_levels()

    def _ends(self, circuit: int) -> tuple[dict[int, Any], dict[int, Any]]:
        """Return by node where a circuit may start and end, with the literals of these choices.

        The literal is 1 where there is no choice; at a lost unit each spare has the literal that
        it takes over.
        """
        source, destination = self.routing.ends[circuit].tolist()
        graph = self.routing.graph

        def choices(unit: int) -> list[tuple[int, Any]]:
            """List the units where an end at this unit may be, with their literals."""
            if unit not in self.case.lost:
                return [(unit, 1)]
            return [(spare, self.take[unit, spare]) for spare in self.case.spares]

        starts = {graph.leaving(unit): literal for unit, literal in choices(source)}
        goals = {graph.entering(unit): literal for unit, literal in choices(destination)}
        return starts, goals

    def _add_circuit(self, circuit: int) -> None:
        """Add the flow of a circuit: one unit from one of its starts to one of its goals.

        The flow is a variable for each arc of the flow graph that the circuit can use. What it
        uses is appended to ``flows``, ``sums``, ``uses`` and ``sets``.
        """
        graph = self.routing.graph
        model = self.model
        starts, goals = self._ends(circuit)
        arcs, tails = useful_arcs(self.routing, list(starts), list(goals))
        flow = {int(arc): model.new_bool_var("") for arc in arcs}
        self.flows.append(flow)

        # An arc uses the resource of its head, and sets its cell if that has another state.
        out_of_node: dict[int, list[Any]] = defaultdict(list)
        into_node: dict[int, list[Any]] = defaultdict(list)
        for arc, tail in zip(arcs.tolist(), tails.tolist(), strict=True):
            literal = flow[arc]
            head = int(graph.head[arc])
            out_of_node[tail].append(literal)
            into_node[head].append(literal)
            self.uses[int(graph.resource[head])].append(literal)
            cell = int(graph.cell[arc])
            if cell >= 0 and self.routing.now[cell] != graph.state[arc]:
                if cell not in self.sets:
                    self.sets[cell] = model.new_bool_var("")
                model.add_implication(literal, self.sets[cell])

        # What goes into a node leaves it, but for the ends of the circuit. An end at a lost unit
        # is at the spare that takes over.
        for start, literal in starts.items():
            model.add(sum(out_of_node[start]) == literal)
            if not isinstance(literal, int):
                self.uses[int(graph.resource[start])].append(literal)
        for goal, literal in goals.items():
            model.add(sum(into_node[goal]) == literal)
        for node in out_of_node:
            if node not in starts and node not in goals:
                model.add(sum(into_node[node]) == sum(out_of_node[node]))

        # A circuit that may move does so if it takes an arc off its old route.
        if circuit in self.moved:
            kept_arcs = set(path_arcs(self.routing, self.routing.paths[circuit]))
            for arc, literal in flow.items():
                if arc not in kept_arcs:
                    model.add_implication(literal, self.moved[circuit])
        cost = self.routing.cost
        loss = sum(int(cost[arc] // LOSS_COST) * literal for arc, literal in flow.items())
        length = sum(int(cost[arc] % LOSS_COST) * literal for arc, literal in flow.items())
        self.sums.append((loss, length))

    def _add_levels(self) -> None:
        """Make two objectives, ``movers_cost`` and ``routes_cost``, which are minimised in turn.

        The first are the circuits that move although they were not hit, those of others
        outweighing all of hit jobs. The second are digits that are compared in their order: cells
        to be set, the worst loss, the length, each with a radix larger than any value of its
        digit.
        """
        routing = self.routing
        self.length_radix = len(routing.graph.capacity) + 1
        most = self.length_radix * int(routing.cost.max(initial=0) // LOSS_COST) + 1
        self.loss_radix = most + 1
        self.worst = self.model.new_int_var(0, most, "")
        lengths: Any = 0
        for circuit, (loss, length) in zip(self.circuits, self.sums, strict=True):
            lengths += length
            if circuit not in self.moved:
                self.model.add(loss <= self.worst)
                continue

            # A circuit that may move counts only if it does.
            moved = self.moved[circuit]
            self.model.add(loss <= self.worst).only_enforce_if(moved)
            old_arcs = path_arcs(routing, routing.paths[circuit])
            old_length = sum(int(routing.cost[arc] % LOSS_COST) for arc in old_arcs)
            lengths -= old_length * (1 - moved)  # of a circuit that stays, nothing counts
        self.routes_cost = (
            sum(self.sets.values()) * self.loss_radix + self.worst
        ) * self.length_radix + lengths
        weight = len(routing.paths) + 1
        self.movers_cost = sum(
            moved * (1 + weight * self.case.foreign(circuit))
            for circuit, moved in self.moved.items()
        )

    def minimise(self, objective: Any) -> None:
        """Set the objective: a linear expression of the variables, in place of a former one."""
        self.model.clear_objective()
        self.model.minimize(objective)

    def read(self, outcome: Outcome) -> ModelledPlan:
        """Read out of a solution the path of each circuit, and which spares take over.

        ``flows[k][arc]`` is the literal of circuit number k in `circuits` on an arc of the flow
        graph, and arcs are sorted by the node that they leave. Spares are listed in the order of
        ``case.lost``.
        """
        graph = self.routing.graph
        paths: list[Path] = []
        for circuit, flow in zip(self.circuits, self.flows, strict=True):
            next_node = {}
            for arc, literal in flow.items():
                if outcome.holds(literal):
                    tail = int(np.searchsorted(graph.first, arc, side="right")) - 1
                    next_node[tail] = int(graph.head[arc])

            # From its start along the lit arcs to where none leads on.
            starts, _ = self._ends(circuit)
            path = [next(start for start in starts if start in next_node)]
            while path[-1] in next_node:
                path.append(next_node[path[-1]])
            paths.append(np.array(path, dtype=np.int32))
        spares = [
            next(spare for spare in self.case.spares if outcome.holds(self.take[unit, spare]))
            for unit in self.case.lost
        ]
        return ModelledPlan(paths, tuple(spares))


def path_arcs(routing: RoutingState, path: Path) -> list[int]:
    """List the arcs of a path, which is given by its nodes."""
    graph = routing.graph
    nodes = path.tolist()
    return [
        next(a for a in range(graph.first[n], graph.first[n + 1]) if graph.head[a] == onward)
        for n, onward in pairwise(nodes)
    ]


def useful_arcs(
    routing: RoutingState, starts: Sequence[int], goals: Sequence[int]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """List the arcs between a start and a goal, with their tails; closed parts are left out.

    `starts` and `goals` are nodes of the flow graph.
    """
    graph = routing.graph
    arcs = np.flatnonzero(routing.open_arcs() & (routing.free[graph.resource[graph.head]] > 0))
    tail = graph.tail[arcs]
    head = graph.head[arcs]
    forward = spread(len(graph.resource), starts, tail, head)
    backward = spread(len(graph.resource), goals, head, tail)
    useful = forward[tail] & backward[head]
    return arcs[useful], tail[useful]

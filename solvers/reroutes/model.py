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

        A literal is a variable that is 0 or 1. A unit is what ports belong to, for example a chip
        or a server; for each lost one a spare takes over, and the circuits that ended at the lost
        unit end at the spare.

        Parameters
        ----------
        routing
            The running state on its flow graph, from which the hit circuits and `movable` are
            taken off. ``routing.free[resource]`` is how many more circuits a resource can hold.
        case
            The losses by the failure: the hit circuits, which have lost their light or an end; the
            lost units, each of which needs a spare; and the spares.
        movable
            Numbers of circuits that were not hit and may move.
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
        """Return the nodes where a circuit may start and end, with their literals.

        A literal is a variable of the model that is 0 or 1. An end at a lost unit moves to the
        spare that takes over for the unit, which the model chooses.

        Parameters
        ----------
        circuit
            The number of the circuit.

        Returns
        -------
        starts, goals : dict of int to literal
            By node of the flow graph. The literal is 1 where there is no choice; at a lost unit,
            each spare with the literal that it takes over.
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

        The flow is a variable for each arc of the flow graph that the circuit can use. Each node
        belongs to a resource, such as a waveguide or the fibres of an edge, that holds so many
        circuits. An arc may pass a cell, in the one state that leads light along it.

        Parameters
        ----------
        circuit
            The number of the circuit. Its variables are appended to ``flows``, its loss and length
            to ``sums``, and what it uses to ``uses`` and ``sets``.
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

        The first are the circuits that move although they were not hit, the second is what the
        routes cost: one number of digits that are compared in their order, each with a radix
        larger than any value of its digit.

        Circuits of others that move weigh more than all of hit jobs, which are the jobs that the
        failure took circuits from. Among routes, cells to be set come first, then the worst loss
        in hundredths of a dB, then the length in cells and fibres.
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
        """Read out of a solution the route of each circuit, and which spares take over.

        A route is followed along the arcs of its flow, from the start where the circuit has one.

        Parameters
        ----------
        outcome
            Tells which variables of the model are 1: of each circuit the arcs of the flow graph
            that it takes, and of each lost unit its spare.

        Returns
        -------
        ModelledPlan
            The nodes on the path of each circuit, and the spare of each lost unit.
        """
        graph = self.routing.graph
        paths: list[Path] = []
        for circuit, flow in zip(self.circuits, self.flows, strict=True):
            next_node = {}
            for arc, literal in flow.items():
                if outcome.holds(literal):
                    tail = int(np.searchsorted(graph.first, arc, side="right")) - 1
                    next_node[tail] = int(graph.head[arc])
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
    """List the arcs between nodes that can be reached from a start and can reach a goal.

    Parameters
    ----------
    routing
        The running state: arcs through closed or used up parts are left out.
    starts, goals
        Nodes of the flow graph.

    Returns
    -------
    arcs, tails : int arrays, shape (useful arcs,)
        The arcs, by rising numbers, and the nodes they leave.
    """
    graph = routing.graph
    arcs = np.flatnonzero(routing.open_arcs() & (routing.free[graph.resource[graph.head]] > 0))
    tail = graph.tail[arcs]
    head = graph.head[arcs]
    forward = spread(len(graph.resource), starts, tail, head)
    backward = spread(len(graph.resource), goals, head, tail)
    useful = forward[tail] & backward[head]
    return arcs[useful], tail[useful]

"""Method `ilp` for failures: the least disturbance, proved by CP-SAT, or a proof of none.

The model has a flow of light on the flow graph for each circuit, and a choice of spares (a
*handover*: one for each lost unit, a chip or a port). Nodes of that graph are light going one way
along a waveguide or over fibres, arcs lead through cells and chips, and each node uses one unit
of a *resource*, such as the fibres of a bundle. Circuits are *hit* that lost light or an end.

Level by level: if only hit circuits have to move, the rest is one small model of what is left
free. Else circuits of hit jobs may move, and only if that does not help those of others, as few as
possible: on small switches every small set of them is a small model of its own, which is far
quicker than one in which all may move.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import combinations, pairwise
from math import comb
from typing import Any

import numpy as np

from optmatch.fabrics.units import measure_reach
from optmatch.model import Clock, Limit, Limits, NewBest, OnEvent, Solution, ignore
from optmatch.problems import BlockProof, CutProof, Reroute
from optmatch.solvers.cpsat import Outcome
from optmatch.solvers.exact_models import ExactModel
from optmatch.solvers.frame import conclude, stoppable
from optmatch.solvers.reroutes.greedy import (
    answer_at_once,
    case_of,
    make_solution,
    refuse,
)
from optmatch.solvers.reroutes.impossible import (
    explain,
    find_cut,
    prove_handovers,
)
from optmatch.solvers.reroutes.repair import (
    Handover,
    Recovery,
    plan_recovery,
    repair,
    split_rest,
)
from optmatch.solvers.reroutes.routing_state import (
    HitCircuits,
    Path,
    RoutingState,
    spread,
)
from optmatch.solvers.reroutes.splice import LOSS_COST

_MOST_SETS = 200
"""At most so many sets of circuits that may move are each a model of their own."""
_LARGEST_SET = 3
"""Larger sets are not tried one by one: all may move in one model."""


class RerouteModel(ExactModel[tuple[list[Path], Handover]]):
    """The model: spares that take over, and routes of circuits that may move around the others.

    A circuit is a flow from where its source may be to where its destination may be. Each arc is a
    variable for each circuit that can use it; nodes use up what is free of their resource. A
    movable circuit may keep its route, and leaves it only if `moved` says so.

    There are two objectives, linear expressions that the search minimises one after the other:
    ``movers_cost`` counts circuits that move although they were not hit, and ``routes_cost``
    weighs the routes. `_add_levels` says how.

    Attributes
    ----------
    routing : RoutingState
        The flow graph, and what is free of it without the circuits of the model.
    case : HitCircuits
        The hit circuits, the lost units and the spares.
    circuits : list of int
        The hit circuits, then the movable ones.
    take : dict
        ``take[unit, spare]``: the literal that a spare takes over for a lost unit.
    moved : dict
        ``moved[circuit]``: the literal that a movable circuit leaves its old route.
    uses : dict of lists
        ``uses[resource]``: the literals of circuits that use one unit of it.
    sets : dict
        ``sets[cell]``: the literal that some route needs a cell in another state than it has.
    flows : list of dicts
        ``flows[k][arc]``: the literal that ``circuits[k]`` goes along an arc.
    sums : list of pairs
        ``sums[k]``: the loss of ``circuits[k]`` in hundredths of a dB, and its length in cells and
        fibres, both linear expressions.
    """

    def __init__(self, routing: RoutingState, case: HitCircuits, movable: Sequence[int]) -> None:
        """Build the model: a choice of spares, a flow for each circuit, and both objectives.

        `movable` are circuits that were not hit and may move. They and the hit ones have been
        taken off `routing`: the resources that they use count as free.
        """
        super().__init__()
        self.routing = routing
        self.case = case
        self.circuits = [*case.hit, *movable]

        # Each lost unit has one spare, and each spare takes over one unit at most.
        self.take: dict[tuple[int, int], Any] = {
            (unit, spare): self.model.new_bool_var("")
            for unit in case.lost
            for spare in case.spares
        }
        for unit in case.lost:
            self.model.add_exactly_one(self.take[unit, spare] for spare in case.spares)
        for spare in case.spares:
            self.model.add_at_most_one(self.take[unit, spare] for unit in case.lost)

        # `_add_circuit` fills the last four: `uses` is needed for capacities, `sets` and `sums`
        # for the objectives, and `flows` to read the routes out of a solution.
        self.moved = {circuit: self.model.new_bool_var("") for circuit in movable}
        self.uses: dict[int, list[Any]] = defaultdict(list)
        self.sets: dict[int, Any] = {}
        self.flows: list[dict[int, Any]] = []
        self.sums: list[tuple[Any, Any]] = []
        for circuit in self.circuits:
            self._add_circuit(circuit)
        for resource, literals in self.uses.items():
            capacity = int(routing.free[resource])
            if len(literals) > capacity:
                self.model.add(sum(literals) <= capacity)
        self._add_levels()

    def _list_ends(self, circuit: int) -> tuple[dict[int, Any], dict[int, Any]]:
        """Return by node where a circuit may start and end, with the literals of these choices.

        The literal is 1 where there is no choice; at a lost unit each spare has the literal that
        it takes over.
        """
        source, destination = self.routing.ends[circuit].tolist()
        graph = self.routing.graph
        starts = {graph.leaving(unit): literal for unit, literal in self._list_choices(source)}
        goals = {
            graph.entering(unit): literal for unit, literal in self._list_choices(destination)
        }
        return starts, goals

    def _list_choices(self, unit: int) -> list[tuple[int, Any]]:
        """List the units where an end at a unit may be, each with the literal of this choice."""
        if unit not in self.case.lost:
            return [(unit, 1)]
        return [(spare, self.take[unit, spare]) for spare in self.case.spares]

    def _add_circuit(self, circuit: int) -> None:
        """Add the flow of a circuit: one unit from one of its starts to one of its goals.

        The flow is a 0-1 variable for each arc of the flow graph that the circuit can use. It is
        added to ``flows`` and ``sums``, and the resources and cells that it needs to ``uses`` and
        ``sets``. At a lost unit the circuit begins, or ends, at the spare that takes over.
        """
        routing = self.routing
        graph = routing.graph
        model = self.model
        # Both map a node to the number 1, where the circuit has to start or end there, or to the
        # literal that this spare takes over.
        starts, goals = self._list_ends(circuit)

        # The arcs on some path from a start to a goal; closed parts are left out.
        is_open = routing.open_arcs() & (routing.free[graph.resource[graph.head]] > 0)
        arcs = np.flatnonzero(is_open)
        tails = graph.tail[arcs]
        heads = graph.head[arcs]
        from_start = spread(len(graph.resource), list(starts), tails, heads)
        to_goal = spread(len(graph.resource), list(goals), heads, tails)
        is_useful = from_start[tails] & to_goal[heads]
        arcs = arcs[is_useful]
        tails = tails[is_useful]
        flow = {int(arc): model.new_bool_var("") for arc in arcs}
        self.flows.append(flow)

        # An arc uses one unit of the resource of its head, and sets its cell if that has another
        # state now.
        out_of_node: dict[int, list[Any]] = defaultdict(list)
        into_node: dict[int, list[Any]] = defaultdict(list)
        for arc, tail in zip(arcs.tolist(), tails.tolist(), strict=True):
            literal = flow[arc]
            head = int(graph.head[arc])
            out_of_node[tail].append(literal)
            into_node[head].append(literal)
            self.uses[int(graph.resource[head])].append(literal)
            cell = int(graph.cell[arc])
            if cell >= 0 and routing.now[cell] != graph.state[arc]:
                if cell not in self.sets:
                    self.sets[cell] = model.new_bool_var("")
                model.add_implication(literal, self.sets[cell])

        # Flow that enters a node leaves it, but for the ends of the circuit. No arc leads into a
        # start, hence its resource is counted here, if it is a spare; the ports of a unit that
        # stays were those of the circuit before. The resource of a goal is counted by the arcs
        # into it.
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
            kept_steps = set(pairwise(routing.paths[circuit].tolist()))
            for arc, literal in flow.items():
                if (int(graph.tail[arc]), int(graph.head[arc])) not in kept_steps:
                    model.add_implication(literal, self.moved[circuit])

        # The cost of an arc is its loss in hundredths of a dB times `LOSS_COST`, plus its length,
        # the number of cells and fibres, which is less than `LOSS_COST`.
        cost = routing.cost
        loss = sum(int(cost[arc] // LOSS_COST) * literal for arc, literal in flow.items())
        length = sum(int(cost[arc] % LOSS_COST) * literal for arc, literal in flow.items())
        self.sums.append((loss, length))

    def _add_levels(self) -> None:
        """Add the worst loss to the model, and make the objectives of all circuits' sums.

        ``movers_cost`` counts the circuits that move although they were not hit; one of another
        job weighs more than all of hit jobs together. ``routes_cost`` is one number with three
        digits: cells to be set, the worst loss, the length, hence compared in this order. With
        ``length_radix`` = 100 and ``loss_radix`` = 1000, two cells, a loss of 35 and a length of 7
        are (2 * 1000 + 35) * 100 + 7 = 203507; each radix is larger than any value of its digit.
        """
        routing = self.routing
        self.length_radix = len(routing.graph.capacity) + 1
        most_loss = self.length_radix * int(routing.cost.max(initial=0) // LOSS_COST) + 1
        self.loss_radix = most_loss + 1
        self.worst = self.model.new_int_var(0, most_loss, "")
        lengths: Any = 0
        for circuit, (loss, length) in zip(self.circuits, self.sums, strict=True):
            lengths += length
            if circuit not in self.moved:
                self.model.add(loss <= self.worst)
                continue

            # A circuit that may move counts only if it does.
            moved = self.moved[circuit]
            self.model.add(loss <= self.worst).only_enforce_if(moved)
            _, _, old_length = routing.sum_up([routing.paths[circuit]])
            lengths -= old_length * (1 - moved)  # of a circuit that stays, nothing counts
        self.routes_cost = (
            sum(self.sets.values()) * self.loss_radix + self.worst
        ) * self.length_radix + lengths
        weight = len(routing.paths) + 1
        self.movers_cost = sum(
            moved * (1 + weight * self.case.foreign(circuit))
            for circuit, moved in self.moved.items()
        )

    def read(self, outcome: Outcome) -> tuple[list[Path], Handover]:
        """Read out of a solution the path of each circuit, and which spares take over.

        Returned in this order. Paths are in the order of ``self.circuits``, each with the nodes of
        the flow graph from the start to the goal. Spares are listed in the order of ``case.lost``.
        """
        graph = self.routing.graph
        paths: list[Path] = []
        for circuit, flow in zip(self.circuits, self.flows, strict=True):
            next_node = {}
            for arc, literal in flow.items():
                if outcome.holds(literal):
                    # The node that the arc leaves: arcs are numbered node by node.
                    tail = int(np.searchsorted(graph.first, arc, side="right")) - 1
                    next_node[tail] = int(graph.head[arc])

            # From its start along the lit arcs to where none leads on.
            starts, _ = self._list_ends(circuit)
            path = [next(start for start in starts if start in next_node)]  # one has been chosen
            while path[-1] in next_node:
                path.append(next_node[path[-1]])
            paths.append(np.array(path, dtype=np.int32))
        spares = [
            next(spare for spare in self.case.spares if outcome.holds(self.take[unit, spare]))
            for unit in self.case.lost
        ]
        return paths, tuple(spares)


class RerouteSearch:
    """The best plan so far, and its proof.

    Parameters
    ----------
    problem
        The running state, and what has failed.
    clock
        Ends the search; an iteration is one model.
    on_event
        Receives new best plans.
    rng
        Draws the seed of CP-SAT.

    Attributes
    ----------
    case : HitCircuits
        What the failure has hit.
    routing : RoutingState
        The running circuits on the flow graph.
    best : Recovery or None
        The best plan so far.
    settled : (int, int)
        No plan disturbs fewer circuits of others than the first number; of those that disturb as
        many, none changes fewer circuits than the second.
    proved : bool
        Whether it is proved that no plan is better than `best`, or that there is none.
    limit : Limit or None
        The first limit that was met.
    models : int
        How many models were solved.
    """

    def __init__(
        self, problem: Reroute, clock: Clock, on_event: OnEvent, rng: np.random.Generator
    ) -> None:
        """Put the running circuits on the flow graph; an iteration of the clock is one model."""
        # The question, and the running circuits on the flow graph.
        self.problem = problem
        self.clock = clock
        self.on_event = on_event
        self.case: HitCircuits = case_of(problem)
        self.routing = RoutingState(problem)
        self.seed = int(rng.integers(2**31))

        # Nothing is known yet.
        self.best: Recovery | None = None
        self.limit: Limit | None = None
        self.models = 0
        self.proved = False
        self.settled = (0, 0)

    def note(self, plan: Recovery) -> None:
        """Keep a plan if its levels are less than those of the best one; tell the listener."""
        if self.best is None or plan.levels < self.best.levels:
            self.best = plan
            with stoppable() as stop:
                self.on_event(NewBest(plan.levels))
            self.limit = stop.limit or self.limit

    def try_moving(self, movable: Sequence[int], *, few: bool = False) -> bool:
        """Search exactly for a plan in which some circuits may move; tell whether that ended.

        Circuits that were not hit stay where they are, but for those in `movable`, by number. With
        `few` it is found first how few of them must move; then routes are chosen among plans in
        which no more do. Else all of them count as moved, whether they do or not. A plan that is
        better than the best so far is kept. The result is False if a limit came before.
        """
        # The model works around the routes of all others: hit and movable circuits are taken off.
        # A known plan that moves as many circuits (level 1 counts those that change) bounds the
        # costs of the routes: they need not be proved to be better, only not to be worse.
        with self.routing.without((*self.case.hit, *movable)):
            model = RerouteModel(self.routing, self.case, movable)
        if few:
            outcome = self._minimise(model, model.movers_cost)
            if not outcome.optimal:
                return bool(outcome.infeasible)
            model.model.add(model.movers_cost <= round(outcome.lower_bound))
        elif self.best is not None and self.best.levels[1] == len(self.case.hit) + len(movable):
            _, _, sets, worst, length = self.best.levels
            known = (sets * model.loss_radix + worst) * model.length_radix + length
            model.model.add(model.routes_cost <= known)

        # Now the routes: cells to be set, the worst loss, and the length. A circuit that was
        # movable but has kept its route is no part of the plan.
        outcome = self._minimise(model, model.routes_cost)
        if outcome.found:
            paths, handover = model.read(outcome)
            self.note(plan_recovery(self.routing, self.case, handover, model.circuits, paths))
        return bool(outcome.optimal or outcome.infeasible)

    def _minimise(self, model: RerouteModel, objective: Any) -> Outcome:
        """Minimise an objective of a model in the remaining time; note a limit that was met."""
        self.models += 1
        remaining = self.clock.remaining_s
        clock = Limits(time_s=remaining if math.isfinite(remaining) else None).start()
        model.model.clear_objective()
        model.model.minimize(objective)
        outcome = model.solve(clock, ignore, seed=self.seed)
        self.limit = self.limit or outcome.limit
        return outcome

    def stopped(self) -> bool:
        """Tell whether a limit of time or of iterations, counted in models, was met."""
        self.limit = self.limit or self.clock.exceeded(self.models)
        return self.limit is not None

    def has(self, disturbed: int, moved: int) -> bool:
        """Tell whether the best plan is no worse than so many disturbed and moved circuits.

        `disturbed` counts circuits of jobs that were not hit, `moved` all circuits that were not
        hit. Fewer disturbed ones outweigh any number of moved ones. False, too, without a plan.
        """
        levels = disturbed, len(self.case.hit) + moved
        return self.best is not None and self.best.levels[:2] <= levels


def solve(
    problem: Reroute, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Get over a failure with the least disturbance, or prove that it cannot be done.

    Disturbance is compared by five levels in this order: circuits disturbed of jobs from which the
    failure took none, circuits changed, cells set, the worst loss, and the length of routes.

    The quick repair comes first. If it meets the bound of the problem, no model is needed.
    Iterations count models, each solved to its end. The solution is OPTIMAL, or INFEASIBLE with a
    reason, unless a limit was reached.
    """
    clock = limits.start()
    bound: Any = problem.lower_bound()
    decided = answer_at_once(problem, "ilp", bound, clock)
    if decided is not None:
        return decided

    # The quick repair first: its plan bounds the models, or it has a proof that there is none.
    search = RerouteSearch(problem, clock, on_event, rng)
    reach = measure_reach(problem.units, problem.loss_units)
    cut = partial(find_cut, problem) if problem.units.n_chips else None
    repaired = repair(search.routing, search.case, reach, clock=clock, prove=cut)
    certificate: Any = None if isinstance(repaired, Recovery) else repaired
    if isinstance(repaired, Recovery):
        search.note(repaired)

    # Models decide what that leaves open.
    if certificate is not None or (search.best is not None and search.best.levels == bound):
        search.proved = True
    else:
        with stoppable() as stop:
            certificate = _settle_all(search)
        search.limit = stop.limit or search.limit

    # There may be a proof that no plan exists, or no plan and no proof.
    best = search.best
    if best is None and search.proved:
        bound_by = None if isinstance(certificate, BlockProof | CutProof) else "cp-sat"
        return refuse(
            problem, "ilp", explain(problem, certificate), certificate, bound_by=bound_by
        )
    if best is None:
        return conclude(problem, "ilp", None, bound, search.limit)

    # Levels are compared in their order. The settled ones bound the first two; a proved plan has
    # its own levels as the bound.
    levels = max(tuple(bound), (*search.settled, 0, *bound[3:]))
    if search.proved:
        levels = best.levels
    return make_solution(
        problem,
        search.routing,
        best,
        levels,
        limit=search.limit or Limit.EXHAUSTED,
        method="ilp",
        bound_by=None if levels == bound else "cp-sat",
    )


def _settle_all(search: RerouteSearch) -> Any:
    """Find the best plan, or a proof that there is none, as far as limits allow.

    First only hit circuits move; then others of the jobs that are hit as well; at last circuits of
    anybody. Each step disturbs more than the one before, hence the search ends with the first one
    that has a plan. Changes ``search.best``, ``search.proved`` and ``search.settled``, lower
    bounds of two levels: the circuits disturbed of jobs that are not hit, and the circuits
    changed. The result is a certificate that there is no plan, a `CutProof` or what
    `prove_handovers` returns, and None in all other cases, also after a limit.
    """
    # First only hit circuits move. `has` asks whether the best plan disturbs 0 circuits of other
    # jobs, and changes none but the hit ones.
    if search.stopped() or not search.try_moving(()):
        return None
    if search.has(0, 0):
        search.proved = True
        return None

    # No plan moves hit circuits alone: with none of other jobs disturbed, at least one circuit
    # more than the hit ones is changed. If there is no plan yet, a proof that there is none at all
    # is sought before larger models.
    search.settled = (0, len(search.case.hit) + 1)
    if search.best is None:
        certificate = find_cut(search.problem)
        proofs = certificate or prove_handovers(search.problem, search.clock, search.seed)
        if proofs is not None:
            search.proved = True
            return proofs

    # Then circuits of hit jobs may move, too, as few as possible (`few`), which disturbs nobody
    # else.
    job_circuits, other_circuits = split_rest(search.routing, search.case)
    if job_circuits and (search.stopped() or not search.try_moving(job_circuits, few=True)):
        return None
    if search.best is not None and search.best.levels[0] == 0:
        search.proved = True
        return None

    # At last circuits of others: at least one of them is disturbed.
    search.settled = (1, len(search.case.hit) + 1)
    search.proved = _move_others(search, job_circuits, other_circuits)
    return None


def _move_others(
    search: RerouteSearch, job_circuits: Sequence[int], other_circuits: Sequence[int]
) -> bool:
    """Let circuits of others move, as few as possible; tell whether that was settled.

    `job_circuits` and `other_circuits` are those that may move, of jobs that are hit and of
    others. ``search.best`` receives plans, and ``search.settled`` the least that their first two
    levels can be: the circuits of others disturbed, and the circuits changed. If the result is
    True, ``search.best`` is the best of all plans, or None as there is no plan; it is False if a
    limit came before.
    """
    # One set of circuits after the other, while these are few and small. If circuits of hit jobs
    # could move as well, there would be many more sets: then one model has all of them.
    size = 0
    while (
        not job_circuits
        and size < _LARGEST_SET
        and comb(len(other_circuits), size + 1) <= _MOST_SETS
    ):
        size += 1

        # The set that the best plan moves comes first: that plan then bounds the costs of its set,
        # and later sets have to beat it.
        moved_before: tuple[int, ...] = ()
        if search.best is not None:
            moved_before = tuple(sorted(set(search.best.changed) - set(search.case.hit)))
        sets = list(combinations(other_circuits, size))
        sets.sort(key=moved_before.__ne__)
        for moving in sets:
            if search.stopped() or not search.try_moving(moving):
                return False

        # All sets of this size have been searched. The best plan is the best of all if it disturbs
        # no more than `size` circuits of others, and changes these and the hit ones at most.
        if search.has(size, size):
            return True
        search.settled = (size + 1, len(search.case.hit) + size + 1)

    # Larger sets are left to one model, which first finds how few of all circuits have to move.
    if size == len(other_circuits) and not job_circuits:
        return True
    return not search.stopped() and search.try_moving((*job_circuits, *other_circuits), few=True)

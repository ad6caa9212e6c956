"""Which circuits are there and when: the common part of schedules and plans of rails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.fabric import find_staying
from optmatch.fabrics.racks.wiring import rank_in_group
from optmatch.model import IDLE, InputError, Problem, Schedule, Solution
from optmatch.problems import (
    Collective,
    CollectivePlan,
    Demand,
    PlaneSchedules,
    RailJob,
)
from optmatch.problems.rails.execution.plan import RailPlan, ranks_of_rails


class TimedCircuits(NamedTuple):
    """Circuits, each in one state of one switch; all arrays have the shape (circuits,)."""

    switch: NDArray[np.int64]
    """The place of the switch in `Topologies.switches`."""
    state: NDArray[np.int64]
    source: NDArray[np.int64]
    """The node where it begins."""
    destination: NDArray[np.int64]
    start_s: NDArray[np.float64]
    """When it carries data."""
    end_s: NDArray[np.float64]

    def in_order(self, order: NDArray[np.intp]) -> TimedCircuits:
        """Return the same circuits in another order."""
        return TimedCircuits(
            switch=self.switch[order],
            state=self.state[order],
            source=self.source[order],
            destination=self.destination[order],
            start_s=self.start_s[order],
            end_s=self.end_s[order],
        )


class Switch(NamedTuple):
    """One switch over time."""

    name: str
    starts_s: NDArray[np.float64]
    """When the reconfiguration to each state starts."""
    ready_s: NDArray[np.float64]
    """When its circuits carry data."""
    ends_s: NDArray[np.float64]
    """When the next state begins, or all ends."""
    matchings: NDArray[np.int32]
    """``matchings[state, transmit port] = receive port``."""
    node: NDArray[np.int64]
    """``node[port]``: the port or GPU of the whole system that it belongs to; -1 if it is dark."""
    port: NDArray[np.int64]
    """``port[port]``: which of the ports of that node it is."""
    bytes_per_s: float

    def circuits(self, state: int) -> NDArray[np.int64]:
        """List the circuits of a state.

        Parameters
        ----------
        state
            The number of the state of this switch.

        Returns
        -------
        int64 array, shape (circuits, 4)
            Source node, destination node, source port and destination port, the ports counted at
            their nodes. Empty for a switch that never has a circuit, and has no states.
        """
        matching = self.matchings[state : state + 1].reshape(-1)
        transmit_ports = np.flatnonzero(matching != IDLE)
        receive_ports = matching[transmit_ports]
        columns = [
            self.node[transmit_ports],
            self.node[receive_ports],
            self.port[transmit_ports],
            self.port[receive_ports],
        ]
        return np.stack(columns, axis=1)


class Topologies(NamedTuple):
    """The states of all switches together, and their order in time."""

    n_nodes: int
    n_ports: int
    """Ports of a node: how many circuits it can send over at once."""
    switches: tuple[Switch, ...]
    states: tuple[tuple[int, ...], ...]
    """``states[topology][switch]``: a state of each switch that holds in this topology."""
    starts_s: NDArray[np.float64]
    """``starts_s[moment]``: when a switch begins to change, ascending; the first is 0."""
    topology: NDArray[np.int64]
    """``topology[moment]``: an index of `states`."""
    delay_s: float

    def list_circuits(self) -> TimedCircuits:
        """List all circuits, switch by switch, state by state and by transmit port."""
        # Without a switch the empty part alone is left.
        none = np.zeros(0, dtype=np.int64)
        parts = [TimedCircuits(none, none, none, none, np.zeros(0), np.zeros(0))]
        for place, switch in enumerate(self.switches):
            state, transmit_port = np.nonzero(switch.matchings != IDLE)
            receive_port = switch.matchings[state, transmit_port]
            parts.append(
                TimedCircuits(
                    switch=np.full(len(state), place),
                    state=state,
                    source=switch.node[transmit_port],
                    destination=switch.node[receive_port],
                    start_s=switch.ready_s[state],
                    end_s=switch.ends_s[state],
                )
            )
        return TimedCircuits(
            switch=np.concatenate([part.switch for part in parts]),
            state=np.concatenate([part.state for part in parts]),
            source=np.concatenate([part.source for part in parts]),
            destination=np.concatenate([part.destination for part in parts]),
            start_s=np.concatenate([part.start_s for part in parts]),
            end_s=np.concatenate([part.end_s for part in parts]),
        )

    def circuits(self, topology: int) -> NDArray[np.int64]:
        """List the circuits of a topology, over all switches, shape (circuits, 4).

        A row is source node, destination node, source port and destination port, the ports counted
        at their nodes.
        """
        pairs = zip(self.switches, self.states[topology], strict=True)
        parts = [switch.circuits(state) for switch, state in pairs]
        return np.concatenate([*parts, np.zeros((0, 4), dtype=np.int64)])

    def rates(self, topology: int) -> NDArray[np.float64]:
        """Return ``rates[source, destination]`` of a topology in bytes per second.

        Circuits between the same nodes are added up.
        """
        matrix = np.zeros((self.n_nodes, self.n_nodes))
        for switch, state in zip(self.switches, self.states[topology], strict=True):
            source, destination = switch.circuits(state)[:, :2].T
            np.add.at(matrix, (source, destination), switch.bytes_per_s)
        return matrix


def topologies(solution: Solution) -> Topologies:
    """Put the states of all switches of an answer together.

    There is one switch for each rail of a training job, and one for each plane of other answers:
    switches side by side, to each of which every node has ports. Nodes are ranks, or ports of the
    problem. A topology is a state of each switch, all of which hold at a time. Equal ones are one
    topology, numbered in the order of time. A moment is when some switch begins to change. The
    routes of one matching, which hold for no stated time, are an `InputError`, and so are rails or
    circuits that do not fit the problem.
    """
    answer = answer_of(solution)
    problem = solution.problem

    # Rails and planes that change circuits by themselves have a switch each; a schedule is that of
    # one switch.
    if isinstance(answer, RailPlan):
        if not isinstance(problem, RailJob):
            raise InputError(f"a plan of rails for a problem of kind {problem.kind}")
        switches = _switches_of_rails(problem, answer)
        n_nodes = problem.n_gpus
        n_ports = problem.network.ports_per_gpu
        delay_s = problem.network.delay_s
    elif isinstance(answer, CollectivePlan):
        assert isinstance(problem, Collective)
        planes = range(problem.planes)
        switches = tuple(_switch_of_shares(problem, answer, plane) for plane in planes)
        n_nodes = problem.n_ranks
        n_ports = problem.lanes
        delay_s = problem.delay_s
    else:
        schedules = schedules_of(answer)
        ports_per_node = problem.ports if isinstance(problem, Collective) else 1
        switches = _switches_of_schedules(problem, schedules, ports_per_node)
        n_nodes = schedules[0].n_ports if schedules else 0
        if isinstance(problem, Collective):
            # The switch may have more ports than the ranks; these stay dark.
            n_nodes = problem.n_ranks
            n_used = n_nodes * ports_per_node
            matchings = np.concatenate([schedule.matchings for schedule in schedules])
            if (matchings[:, n_used:] != IDLE).any() or (matchings >= n_used).any():
                raise InputError("circuits at ports of no rank", where="matchings")
        n_ports = len(schedules) * ports_per_node
        delay_s = max((schedule.delay_s for schedule in schedules), default=0.0)

    # ``state_columns[switch][moment]``: the state that holds from a moment on; of equal states of
    # a switch always the first. A switch without states counts as one that is always in state 0.
    starts_s = np.unique(np.concatenate([[0.0], *(switch.starts_s for switch in switches)]))
    state_columns = []
    for switch in switches:
        first_equal_state = np.zeros(1, dtype=np.int64)
        if len(switch.matchings):
            _, first_of_kind, kind_of_state = np.unique(
                switch.matchings, axis=0, return_index=True, return_inverse=True
            )
            first_equal_state = first_of_kind[kind_of_state.reshape(-1)]
        state = np.searchsorted(switch.starts_s, starts_s, side="right") - 1
        state_columns.append(first_equal_state[state.clip(min=0)].tolist())

    topology_of_states: dict[tuple[int, ...], int] = {}
    topology_of_moment = [
        topology_of_states.setdefault(states, len(topology_of_states))
        for states in zip(*state_columns, strict=True)
    ]
    # Moments after which everything is as before are left out.
    is_change = np.diff(topology_of_moment, prepend=-1) != 0
    return Topologies(
        n_nodes=n_nodes,
        n_ports=n_ports,
        switches=switches,
        states=tuple(topology_of_states),
        starts_s=starts_s[: len(topology_of_moment)][is_change],
        topology=np.array(topology_of_moment, dtype=np.int64)[is_change],
        delay_s=delay_s,
    )


def list_carried(solution: Solution) -> tuple[TimedCircuits, NDArray[np.float64]]:
    """List the circuits of an answer to a demand by their begin, and the bytes each carries.

    With per-circuit switching, a circuit that stays from the state before (`find_staying`) is up
    during the delay between both, and begins with it. A pair of ports sends over its first
    circuits.
    """
    problem = solution.problem
    assert isinstance(problem, Demand)
    system = topologies(solution)
    circuits = system.list_circuits()
    if problem.switching == "per-circuit":
        for place, schedule in enumerate(schedules_of(answer_of(solution))):
            stays = find_staying(problem.fabric, schedule.matchings, schedule.cell_states)
            # Each port of a schedule is a node.
            of_switch = np.flatnonzero(circuits.switch == place)
            is_kept = stays[circuits.state[of_switch], circuits.source[of_switch]]
            listed = of_switch[is_kept]
            circuits.start_s[listed] = system.switches[place].starts_s[circuits.state[listed]]
    circuits = circuits.in_order(np.argsort(circuits.start_s, kind="stable"))

    # ``turn[circuit]``: how many circuits of the same pair of ports come before it. Circuits of
    # one turn are of different pairs, so all of them carry at once.
    pair = circuits.source * problem.fabric.n_ports + circuits.destination
    turn = rank_in_group(pair)
    by_turn = np.argsort(turn, kind="stable")
    left_bytes = problem.demand_bytes.reshape(-1).copy()
    room_bytes = (circuits.end_s - circuits.start_s) * problem.rate_bytes_per_s
    carried_bytes = np.zeros(len(pair))
    for of_turn in np.split(by_turn, np.cumsum(np.bincount(turn))):
        size_bytes = np.minimum(left_bytes[pair[of_turn]], room_bytes[of_turn])
        left_bytes[pair[of_turn]] -= size_bytes
        carried_bytes[of_turn] = size_bytes
    return circuits, carried_bytes


def schedules_of(answer: object) -> tuple[Schedule, ...]:
    """Return the schedule of each plane of an answer; an `InputError` if it has none."""
    if isinstance(answer, PlaneSchedules):
        return answer.schedules
    if isinstance(answer, Schedule):
        return (answer,)
    raise InputError("there is no schedule over time", where="schedule")


def answer_of(solution: Solution) -> Schedule | PlaneSchedules | RailPlan | CollectivePlan:
    """Return what a solution holds over time: a schedule, one for each plane, or a plan.

    For a collective it is the plan only if its planes change circuits by themselves.
    """
    answer = solution.schedule if solution.schedule is not None else solution.answer
    if isinstance(answer, Schedule | PlaneSchedules | RailPlan):
        return answer
    if isinstance(answer, CollectivePlan) and answer.shares_bytes.size and answer.n_epochs:
        return answer
    if isinstance(answer, CollectivePlan) and answer.n_epochs:
        raise InputError(
            "planes that change circuits together: the plan says which rounds use which circuits,"
            " but not when; csv, chakra, msccl, mscclpp and the formats of switches need no times"
        )
    raise InputError(
        f"a solution of kind {solution.problem.kind}, status {solution.status.value}: neither a"
        " schedule nor a plan of rails"
    )


def _switches_of_schedules(
    problem: Problem, schedules: Sequence[Schedule], ports_per_node: int
) -> tuple[Switch, ...]:
    """Return the switches of planes that hold schedules, with a state for each matching.

    A state begins with its change; after the wait of its slot, circuits carry data until the end.
    Each node has `ports_per_node` consecutive ports: of 4, port 9 of plane 1 belongs to node 2, as
    port 4 + 1 = 5 there. Without a rate in the problem, a circuit carries one unit in a second.
    """
    rate_bytes_per_s = 1.0
    if isinstance(problem, Demand | Collective):
        rate_bytes_per_s = problem.rate_bytes_per_s
    switches = []
    for plane, schedule in enumerate(schedules):
        starts_s = schedule.ends_s - (schedule.durations_s + schedule.waits_s)
        ports = np.arange(schedule.n_ports)
        switches.append(
            Switch(
                name=f"plane {plane}",
                starts_s=starts_s,
                ready_s=starts_s + schedule.waits_s,
                ends_s=schedule.ends_s,
                matchings=schedule.matchings,
                node=ports // ports_per_node,
                port=plane * ports_per_node + ports % ports_per_node,
                bytes_per_s=rate_bytes_per_s,
            )
        )
    return tuple(switches)


def _switch_of_shares(problem: Collective, plan: CollectivePlan, plane: int) -> Switch:
    """Return the circuits of one plane over time, in a plan in which each plane has its own times.

    The switch has a state for each round in which the plane sends. ``plan.circuits[round, lane,
    rank]`` is the rank to which port number `lane` of a rank leads, -1 for none: with 2 ports at
    each plane, plane 1 has the lanes 2 and 3. ``shares_bytes``, ``start_s`` and ``end_s`` are by
    round and plane.
    """
    # The circuits have to be those of this problem.
    n_ports = problem.ports
    n_ranks = problem.n_ranks
    shape = (len(plan.shares_bytes), problem.lanes, n_ranks)
    if plan.circuits.shape != shape or plan.shares_bytes.shape[1] != problem.planes:
        raise InputError(
            f"circuits: shape {plan.circuits.shape}, {shape} wanted", where="circuits"
        )
    rounds = np.flatnonzero(plan.shares_bytes[:, plane] > 0)
    lanes = slice(plane * n_ports, (plane + 1) * n_ports)

    # Port p of rank r at this plane is port ``r * n_ports + p`` of the switch, at both ends of a
    # circuit. `matchings` has by round and transmit port the receive port, -1 for none.
    peers = plan.circuits[rounds, lanes].swapaxes(1, 2)
    receive_ports = np.where(peers == IDLE, IDLE, peers * n_ports + np.arange(n_ports))
    matchings = receive_ports.reshape(len(rounds), -1)
    ready_s = plan.start_s[rounds, plane]

    # The change of circuits for a round starts one delay before the round. The first round needs
    # a change, and a later one only if its circuits differ from those of the round before.
    differs_from_last = (np.diff(matchings, axis=0) != 0).any(axis=1)
    is_changed = np.append(True, differs_from_last)[: len(rounds)]
    ports = np.arange(n_ranks * n_ports)
    return Switch(
        name=f"plane {plane}",
        starts_s=np.maximum(ready_s - problem.delay_s * is_changed, 0.0),
        ready_s=ready_s,
        ends_s=plan.end_s[rounds, plane],
        matchings=matchings.astype(np.int32),
        node=ports // n_ports,
        port=plane * n_ports + ports % n_ports,
        bytes_per_s=problem.rate_bytes_per_s,
    )


def _switches_of_rails(job: RailJob, plan: RailPlan) -> tuple[Switch, ...]:
    """Return the switch of each rail of a training job, with its circuits over time.

    GPUs have the first ports of the switch that work: port p of GPU number g of a rail is number
    ``g * ports_per_gpu + p`` of these. Ports behind the last of them are left out. Rails that
    behave alike share a timeline in the plan. A rail that the job does not have, a switch with too
    few ports, and a circuit at a port that no GPU has are an `InputError`.
    """
    ranks_of_rail = ranks_of_rails(job.step())
    n_ports_of_gpu = job.network.ports_per_gpu
    switch_of_rail: dict[int, Switch] = {}
    for timeline in plan.rails:
        # The first state is there when the step begins; each later one is up after a delay. A
        # state ends when the next change starts, and the last one with the step.
        is_later = np.arange(len(timeline.starts_s)) > 0
        ready_s = timeline.starts_s + np.where(is_later, job.network.delay_s, 0.0)
        last_end_s = max(plan.step_s, *timeline.starts_s[-1:])
        matchings = timeline.matchings
        n_switch_ports = matchings.shape[1]
        for rail in timeline.rails:
            if rail not in ranks_of_rail:
                raise InputError(f"rail {rail}: no group of the job is on it", where="rails")

            # The switch may have more ports than the GPUs of the rail; these stay dark.
            rank_of_port = np.repeat(ranks_of_rail[rail], n_ports_of_gpu)
            gpu_ports = np.arange(len(rank_of_port))
            if job.fabric is not None:
                gpu_ports = job.fabric.live_ports[: len(rank_of_port)]
            n_ports = int(gpu_ports[-1]) + 1
            if n_ports > n_switch_ports:
                raise InputError(f"rail {rail}: {n_ports} ports, its switch has {n_switch_ports}")
            # The rank that each port of the switch leads to (``node``), and the number of the port
            # at that rank (``port``). A circuit is foreign if one of its ends leads to no rank.
            node = np.full(n_switch_ports, IDLE, dtype=np.int64)
            node[gpu_ports] = rank_of_port
            port = np.zeros(n_switch_ports, dtype=np.int64)
            port[gpu_ports] = np.arange(len(gpu_ports)) % n_ports_of_gpu
            is_foreign = (matchings != IDLE) & ((node == IDLE) | (node[matchings] == IDLE))
            if is_foreign.any():
                raise InputError(f"rail {rail}: it has circuits at ports of no GPU", where="rails")
            switch_of_rail[rail] = Switch(
                name=f"rail {rail}",
                starts_s=timeline.starts_s,
                ready_s=ready_s,
                ends_s=np.append(timeline.starts_s[1:], last_end_s),
                matchings=matchings[:, :n_ports],
                node=node[:n_ports],
                port=port[:n_ports],
                bytes_per_s=job.network.port_bytes_per_s,
            )
    return tuple(switch_of_rail[rail] for rail in sorted(switch_of_rail))

"""Which circuits are there and when: the common part of schedules and plans of rails."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, InputError, Schedule, Solution
from optmatch.problems import Collective, CollectivePlan, Demand, PlaneSchedules, RailJob
from optmatch.problems.rails.execution.plan import RailPlan, ranks_of_rails


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
    """``node[port]``: the port or GPU of the whole system that it belongs to."""
    port: NDArray[np.int64]
    """``port[port]``: which of the ports of that node it is."""
    bytes_per_s: float

    def circuits(self, state: int) -> NDArray[np.int64]:
        """List ``source node, destination node, source port, destination port`` of a state.

        None of a switch that never has a circuit, and so no states.
        """
        matching = self.matchings[state : state + 1].reshape(-1)
        sources = np.flatnonzero(matching != IDLE)
        destinations = matching[sources]
        ends = (self.node[sources], self.node[destinations])
        return np.stack([*ends, self.port[sources], self.port[destinations]], axis=1)


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

    def circuits(self, topology: int) -> NDArray[np.int64]:
        """List ``source node, destination node, source port, destination port``."""
        pairs = zip(self.switches, self.states[topology], strict=True)
        parts = [switch.circuits(state) for switch, state in pairs]
        return np.concatenate([*parts, np.zeros((0, 4), dtype=np.int64)])

    def rates(self, topology: int) -> NDArray[np.float64]:
        """Return ``rates[source, destination]`` of the circuits, in bytes per second."""
        matrix = np.zeros((self.n_nodes, self.n_nodes))
        for switch, state in zip(self.switches, self.states[topology], strict=True):
            source, destination = switch.circuits(state)[:, :2].T
            np.add.at(matrix, (source, destination), switch.bytes_per_s)
        return matrix


def topologies(solution: Solution) -> Topologies:
    """Put the states of all switches of an answer together.

    Equal states are one topology, numbered in the order of time. A solution without a schedule, a
    schedule for each plane, or a plan of rails is an `InputError`.
    """
    switches, n_nodes, n_ports, delay_s = _switches(solution)
    starts = np.unique(np.concatenate([[0.0], *(switch.starts_s for switch in switches)]))
    local = [_alike(switch) for switch in switches]
    columns = []
    for switch, first in zip(switches, local, strict=True):
        at = np.searchsorted(switch.starts_s, starts, side="right") - 1
        columns.append(first[at.clip(min=0)])
    known: dict[tuple[int, ...], int] = {}
    rows = zip(*(column.tolist() for column in columns), strict=True)
    order = [known.setdefault(row, len(known)) for row in rows]
    kept = np.flatnonzero(np.diff(order, prepend=-1))
    return Topologies(
        n_nodes=n_nodes,
        n_ports=n_ports,
        switches=switches,
        states=tuple(known),
        starts_s=starts[kept],
        topology=np.array(order, dtype=np.int64)[kept],
        delay_s=delay_s,
    )


def answer_of(solution: Solution) -> Schedule | PlaneSchedules | RailPlan | CollectivePlan:
    """Return what a solution holds over time; of collectives over several planes the plan."""
    answer = solution.schedule if solution.schedule is not None else solution.answer
    if isinstance(answer, Schedule | PlaneSchedules | RailPlan):
        return answer
    if isinstance(answer, CollectivePlan) and answer.shares_bytes.size and answer.n_epochs:
        return answer
    raise InputError(
        f"a solution of kind {solution.problem.kind}, status {solution.status.value}: neither a"
        " schedule nor a plan of rails"
    )


class PlaneEpochs(NamedTuple):
    """What one plane of a collective holds, epoch by epoch, without times."""

    matchings: NDArray[np.int32]
    """``matchings[epoch, port] = port``, -1 where dark; port ``lane`` of a rank is ``rank * ports
    + lane``."""
    labels: tuple[str, ...]
    """``labels[port]``: the rank, and with several ports to a rank its lane."""


def list_plane_epochs(solution: Solution) -> list[PlaneEpochs]:
    """Return the planes of a collective whose plan has epochs of circuits and no other times.

    Such a plan says which rounds use which circuits, but not when a round ends. Other answers have
    no such planes: the list is empty.
    """
    plan, problem = solution.answer, solution.problem
    if not isinstance(plan, CollectivePlan) or not isinstance(problem, Collective):
        return []
    if solution.schedule is not None or plan.shares_bytes.size:
        return []
    n_ports = problem.ports
    labels = tuple(
        f"{rank}.{lane}" if n_ports > 1 else str(rank)
        for rank in range(problem.n_ranks)
        for lane in range(n_ports)
    )
    planes = []
    for plane in range(problem.planes):
        peers = plan.circuits[:, plane * n_ports : (plane + 1) * n_ports].swapaxes(1, 2)
        matchings = np.where(peers == IDLE, IDLE, peers * n_ports + np.arange(n_ports))
        planes.append(PlaneEpochs(matchings.reshape(plan.n_epochs, -1).astype(np.int32), labels))
    return planes


def _switches(solution: Solution) -> tuple[tuple[Switch, ...], int, int, float]:
    answer, problem = answer_of(solution), solution.problem
    if isinstance(answer, RailPlan):
        if not isinstance(problem, RailJob):
            raise InputError(f"a plan of rails for a problem of kind {problem.kind}")
        found = _rails(problem, answer)
        return found, problem.n_gpus, problem.network.ports_per_gpu, problem.network.delay_s
    each = problem.ports if isinstance(problem, Collective) else 1
    if isinstance(answer, CollectivePlan):
        assert isinstance(problem, Collective)
        found = tuple(_shared(problem, answer, plane) for plane in range(problem.planes))
        return found, problem.n_ranks, problem.lanes, problem.delay_s
    schedules = answer.schedules if isinstance(answer, PlaneSchedules) else (answer,)
    rate = problem.rate_bytes_per_s if isinstance(problem, Demand | Collective) else 1.0
    planes = tuple(_plane(schedule, k, rate, each) for k, schedule in enumerate(schedules))
    n_nodes = -(-schedules[0].n_ports // each) if schedules else 0
    delay_s = max((s.delay_s for s in schedules), default=0.0)
    return planes, n_nodes, len(planes) * each, delay_s


def _plane(schedule: Schedule, plane: int, rate: float, each: int) -> Switch:
    """Return a switch, of which each node has `each` ports."""
    starts = schedule.ends_s - (schedule.durations_s + schedule.waits_s)
    ports = np.arange(schedule.n_ports)
    return Switch(
        name=f"plane {plane}",
        starts_s=starts,
        ready_s=starts + schedule.waits_s,
        ends_s=schedule.ends_s,
        matchings=schedule.matchings,
        node=ports // each,
        port=plane * each + ports % each,
        bytes_per_s=rate,
    )


def _shared(problem: Collective, plan: CollectivePlan, plane: int) -> Switch:
    """Return a plane that changes circuits by itself; only rounds in which it sends are states."""
    each, ranks = problem.ports, problem.n_ranks
    shape = (len(plan.shares_bytes), problem.lanes, ranks)
    if plan.circuits.shape != shape or plan.shares_bytes.shape[1] != problem.planes:
        raise InputError(
            f"circuits: shape {plan.circuits.shape}, {shape} wanted", where="circuits"
        )
    used = np.flatnonzero(plan.shares_bytes[:, plane] > 0)
    to = plan.circuits[used, plane * each : (plane + 1) * each].swapaxes(1, 2)
    matchings = np.where(to == IDLE, IDLE, to * each + np.arange(each)).reshape(len(used), -1)
    ready, ends = plan.start_s[used, plane], plan.end_s[used, plane]
    changed = np.append(True, (np.diff(matchings, axis=0) != 0).any(axis=1))[: len(used)]
    ports = np.arange(ranks * each)
    return Switch(
        name=f"plane {plane}",
        starts_s=np.maximum(ready - problem.delay_s * changed, 0.0),
        ready_s=ready,
        ends_s=ends,
        matchings=matchings.astype(np.int32),
        node=ports // each,
        port=plane * each + ports % each,
        bytes_per_s=problem.rate_bytes_per_s,
    )


def _rails(job: RailJob, plan: RailPlan) -> tuple[Switch, ...]:
    ranks = ranks_of_rails(job.step())
    found = []
    for timeline in plan.rails:
        ready = np.where(np.arange(len(timeline.starts_s)) > 0, job.network.delay_s, 0.0)
        for rail in timeline.rails:
            if rail not in ranks:
                raise InputError(f"rail {rail}: no group of the job is on it", where="rails")
            node = np.repeat(ranks[rail], job.network.ports_per_gpu)
            n_ports = timeline.matchings.shape[1]
            if len(node) > n_ports:
                raise InputError(f"rail {rail}: {len(node)} ports, its switch has {n_ports}")
            found.append(
                Switch(
                    name=f"rail {rail}",
                    starts_s=timeline.starts_s,
                    ready_s=timeline.starts_s + ready,
                    ends_s=np.append(
                        timeline.starts_s[1:], max(plan.step_s, *timeline.starts_s[-1:])
                    ),
                    matchings=timeline.matchings[:, : len(node)],
                    node=node,
                    port=np.arange(len(node)) % job.network.ports_per_gpu,
                    bytes_per_s=job.network.port_bytes_per_s,
                )
            )
    return tuple(sorted(found, key=lambda switch: int(switch.name.removeprefix("rail "))))


def _alike(switch: Switch) -> NDArray[np.int64]:
    """Return for each state the first one with the same circuits."""
    if not len(switch.matchings):
        return np.zeros(1, dtype=np.int64)
    _, first, which = np.unique(switch.matchings, axis=0, return_index=True, return_inverse=True)
    return first[which.reshape(-1)]

"""What each switch of an answer holds, state by state: schedules, rails, transitions, slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import RackFabric
from optmatch.io.rails.topologies import Switch, topologies
from optmatch.io.switches.planned import PlannedSwitch
from optmatch.io.switches.racks import FibreRoute, rack_nodes
from optmatch.model import IDLE, InputError, Solution
from optmatch.problems import (
    Allocation,
    Collective,
    CollectivePlan,
    Reroute,
    SliceAllocation,
    Transition,
)
from optmatch.problems.reroutes.transition import DROP, RAISE


class _LitCircuit(NamedTuple):
    """A circuit of racks: two ports of chips, and the fibres between them."""

    source_port: int
    destination_port: int
    route: FibreRoute


def list_planned_switches(solution: Solution) -> tuple[PlannedSwitch, ...]:
    """Return the switches of an answer with their states, labels of ports, and times in seconds.

    Schedules have one switch, or one for each plane; plans of rails one for each rail; a
    transition or a slice in racks one for each server and each inter-rack switch. An answer
    without circuits, or of racks whose interposers have cells, is an `InputError`.

    Examples
    --------
    >>> import optmatch as om
    >>> solution = om.solve(om.AllToAll(om.IdealSwitch(3)), seed=0)
    >>> (switch,) = list_planned_switches(solution)
    >>> switch.name, switch.n_states
    ('switch', 2)
    """
    answer = solution.answer
    problem = solution.problem
    if isinstance(answer, Transition) and isinstance(problem, Reroute):
        return switches_of_transition(problem, answer)
    if isinstance(answer, Allocation) and isinstance(problem, SliceAllocation):
        return _switches_of_slice(problem.fabric, answer)
    if isinstance(problem, Collective) and _has_epochs_alone(solution):
        return _switches_of_epochs(problem, answer)

    # All others have a time for each state.
    timed_switches = topologies(solution).switches
    labels: tuple[str, ...] = ()
    if problem.fabric is not None:
        labels = problem.fabric.labels
    return tuple(
        _planned(switch, labels, single=len(timed_switches) == 1) for switch in timed_switches
    )


def _planned(switch: Switch, labels: Sequence[str], *, single: bool) -> PlannedSwitch:
    """Return a switch of schedules or of rails as a planned switch, with labels of its ports.

    ``switch.node`` and ``switch.port`` say which port of the fabric each of its ports serves, and
    which of several there. A `single` switch is called ``switch``, not ``plane 0``.
    """
    several_ports = bool(switch.port.max(initial=0))
    names = []
    for node, port in zip(switch.node.tolist(), switch.port.tolist(), strict=True):
        name = labels[node] if node < len(labels) else str(node)
        names.append(f"{name}.{port}" if several_ports else name)
    return PlannedSwitch(
        name="switch" if single and switch.name.startswith("plane") else switch.name,
        labels=tuple(names),
        matchings=switch.matchings,
        starts_s=switch.starts_s,
        ready_s=switch.ready_s,
        ends_s=switch.ends_s,
    )


def _has_epochs_alone(solution: Solution) -> bool:
    """Tell whether a plan says which rounds use which circuits, but not when a round ends.

    Such is the plan of a collective that changes all planes at once, unless it sends nothing or
    has given steps, and no circuits of ours.
    """
    plan = solution.answer
    if not isinstance(plan, CollectivePlan) or not isinstance(solution.problem, Collective):
        return False
    return solution.schedule is None and not plan.shares_bytes.size and plan.circuits.size > 0


def _switches_of_epochs(problem: Collective, plan: CollectivePlan) -> tuple[PlannedSwitch, ...]:
    """Return the planes of a collective as switches, with a state without times for each epoch.

    A plane is a switch to which each rank has some ports (lanes); an epoch is the time for which
    circuits stay. Port ``lane`` of a rank is port ``rank * ports + lane`` of its switch.
    """
    n_ports = problem.ports
    labels = tuple(
        f"{rank}.{lane}" if n_ports > 1 else str(rank)
        for rank in range(problem.n_ranks)
        for lane in range(n_ports)
    )
    switches = []
    for plane in range(problem.planes):
        # circuits[epoch, lane, rank] is the rank that this lane leads to, on the same lane; as a
        # row of ports, lanes of a rank stand together.
        peers = plan.circuits[:, plane * n_ports : (plane + 1) * n_ports].swapaxes(1, 2)
        matchings = np.where(peers == IDLE, IDLE, peers * n_ports + np.arange(n_ports))
        name = f"plane {plane}" if problem.planes > 1 else "switch"
        rows = matchings.reshape(plan.n_epochs, -1).astype(np.int32)
        switches.append(_without_times(name, labels, rows))
    return tuple(switches)


def _lit_circuits_by_step(
    problem: Reroute, transition: Transition
) -> list[dict[int, _LitCircuit]]:
    """List the circuits that a switch is told to hold, in the beginning and after each step.

    A failure takes the light of the circuits it hits, but the switch holds them still: the second
    entry is without them. A step darkens a circuit (`DROP`), raises one (`RAISE`), or sets a cell,
    which changes no circuit. A state has the two ports and the fibres of each circuit, by its
    number in the problem; fabrics with cells have no fibres.
    """
    has_fibres = problem.fabric.graph is None
    lit = {}
    for circuit, (source, destination) in enumerate(problem.circuits.tolist()):
        route = problem.routes[circuit] if has_fibres else ()
        lit[circuit] = _LitCircuit(source, destination, route)
    hit = set(np.flatnonzero(problem.hit).tolist())
    states = [lit, {circuit: ends for circuit, ends in lit.items() if circuit not in hit}]

    # New ends are listed by the place of a circuit among those that change.
    place_of_circuit = {circuit: k for k, circuit in enumerate(transition.changed.tolist())}
    for kind, circuit, _state in transition.steps.tolist():
        lit = dict(states[-1])
        if kind == DROP:
            lit.pop(circuit, None)
        elif kind == RAISE:
            place = place_of_circuit[circuit]
            source, destination = transition.circuits[place].tolist()
            route = transition.routes[place] if has_fibres else ()
            lit[circuit] = _LitCircuit(source, destination, route)
        states.append(lit)
    return states


def switches_of_transition(problem: Reroute, transition: Transition) -> tuple[PlannedSwitch, ...]:
    """Return what each switch holds before a failure, without circuits hit, after each step."""
    states = [list(lit.values()) for lit in _lit_circuits_by_step(problem, transition)]
    return _switches_of_states(problem, states)


def switches_of_state(problem: Reroute) -> tuple[PlannedSwitch, ...]:
    """Return the one state that each switch holds for the circuits of a running state.

    There is a single switch, or in racks each server and each inter-rack switch.
    """
    has_fibres = problem.fabric.graph is None
    lit = [
        _LitCircuit(source, destination, problem.routes[circuit] if has_fibres else ())
        for circuit, (source, destination) in enumerate(problem.circuits.tolist())
    ]
    return _switches_of_states(problem, [lit])


def _switches_of_states(
    problem: Reroute, states: Sequence[Sequence[_LitCircuit]]
) -> tuple[PlannedSwitch, ...]:
    """Return the switches of racks, or the one switch, with a matching for each state.

    A state has the lit circuits: two ports, and in racks the fibres between them. A circuit of
    bidirectional ports stands in ``matchings[state, source]`` twice; -1 is idle.
    """
    fabric = problem.fabric
    if isinstance(fabric, RackFabric):
        return _rack_switches(fabric, states)
    matchings = np.full((len(states), fabric.n_ports), IDLE, dtype=np.int32)
    for state, lit in enumerate(states):
        for circuit in lit:
            matchings[state, circuit.source_port] = circuit.destination_port
            if fabric.bidirectional:
                matchings[state, circuit.destination_port] = circuit.source_port
    return (_without_times("switch", fabric.labels, matchings),)


def _switches_of_slice(rack: RackFabric, allocation: Allocation) -> tuple[PlannedSwitch, ...]:
    """Return the switches of racks with the one state that a slice needs.

    ``allocation.fibres`` has rows of a circuit and a fibre that it passes, in the order of its
    way.
    """
    route_of_circuit: dict[int, list[int]] = {}
    for circuit, fibre in allocation.fibres.tolist():
        route_of_circuit.setdefault(circuit, []).append(fibre)
    lit = [
        _LitCircuit(source, destination, route_of_circuit.get(circuit, []))
        for circuit, (source, destination) in enumerate(allocation.circuits.tolist())
    ]
    return _rack_switches(rack, [lit])


def _rack_switches(
    rack: RackFabric, states: Sequence[Sequence[_LitCircuit]]
) -> tuple[PlannedSwitch, ...]:
    """Return the servers and inter-rack switches of racks with the matchings of all states.

    Switches are in the order of `RackNodes.list_nodes`; ``matchings[state, input]`` is the output
    that a circuit leaves by, -1 where nothing is joined. Interposers with cells are refused: the
    states of cells would say what a server does.
    """
    if rack.interposer is not None:
        raise InputError(
            "racks whose interposers have cells: their states say what each server does,"
            " and no switch joins the fibres",
            where="fabric",
        )
    nodes = rack_nodes(rack)
    listed = nodes.list_nodes()
    matchings = [np.full((len(states), node.n_ports), IDLE, dtype=np.int32) for node in listed]

    # Most circuits are the same in all states, so their way is looked up once: by ports and
    # fibres of a circuit, the switch, input and output of each connection on its way.
    connections: dict[tuple[int, int, tuple[int, ...]], list[tuple[int, int, int]]] = {}
    for state, circuits in enumerate(states):
        for circuit in circuits:
            key = (circuit.source_port, circuit.destination_port, tuple(circuit.route))
            if key not in connections:
                connections[key] = list(nodes.connections_of(*circuit))
            for node, entry, exit_ in connections[key]:
                matchings[node][state, entry] = exit_
    return tuple(
        _without_times(node.name, node.labels, table)
        for node, table in zip(listed, matchings, strict=True)
    )


def _without_times(
    name: str, labels: tuple[str, ...], matchings: NDArray[np.int32]
) -> PlannedSwitch:
    """Return a switch whose states follow each other as soon as the one before is there."""
    zeros = np.zeros(len(matchings))
    return PlannedSwitch(name, labels, matchings, zeros, zeros, zeros)

"""What each switch of an answer holds, state by state: schedules, rails, transitions, slices.

A server of racks is a switch between the ports of its chips and its fibres. Its inputs are the
transmitters of its chips, then the fibres that arrive; its outputs are the receivers of its chips,
then the fibres that leave, both ascending. An inter-rack switch has fibres alone. Where light does
not pass servers (`RackFabric.through` is False), each chip has fibres of its own and only the
inter-rack switches hold anything.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric, RackFabric
from optmatch.fabrics.racks.rack import AXES
from optmatch.fabrics.racks.wiring import rank_in_group
from optmatch.io.switches import polatis, sonic
from optmatch.io.switches.circuits import (
    CrossConnect,
    Difference,
    PortTable,
    difference_between,
    read_port_tables,
    with_a_side_of,
)
from optmatch.io.switches.sonic import read_config
from optmatch.model import IDLE, InputError, Solution
from optmatch.model.files import path_name
from optmatch.problems import (
    Allocation,
    Collective,
    CollectivePlan,
    Reroute,
    SliceAllocation,
    Transition,
)
from optmatch.problems.reroutes.transition import DROP, RAISE
from optmatch.problems.topologies import topologies

_log = logging.getLogger("optmatch")

FibreRoute = Sequence[int]
"""The fibres that a circuit passes, in the order of its light."""


class RackPart(NamedTuple):
    """A part of racks that can fail."""

    kind: str
    """``port`` or ``fibre``."""
    number: int


class RackNodes:
    """The switches of some racks, and how circuits pass them.

    Parameters
    ----------
    rack
        Racks with ideal interposers.

    Attributes
    ----------
    tail_of_fibre, head_of_fibre
        The node where a fibre begins and the one where it ends: servers, then inter-rack switches.
    output_of_fibre, input_of_fibre
        The output of its tail at which a fibre begins, and the input of its head at which it ends.
    n_chip_ports
        How many inputs and outputs of a server are ports of chips.
    first_node
        The first node that holds anything: a server, or where light does not pass servers the
        first inter-rack switch.
    """

    def __init__(self, rack: RackFabric) -> None:
        """Give numbers to the inputs and outputs of all switches of racks.

        Servers come first, then inter-rack switches. A server has the ports of its chips first,
        then its fibres; an inter-rack switch has fibres alone. Fibres of one switch have the order
        of their numbers, separately for those that leave it (outputs) and those that arrive
        (inputs).
        """
        self.rack = rack
        tails, heads = rack.edges[rack.edge_of_fibre].T
        self.tail_of_fibre: NDArray[np.int64] = tails.astype(np.int64)
        self.head_of_fibre: NDArray[np.int64] = heads.astype(np.int64)
        n_nodes = rack.n_servers + rack.n_rack_switches
        self.n_chip_ports = rack.chips_per_server * rack.ports_per_chip
        self.first_node = 0 if rack.through else rack.n_servers
        first_place = np.where(np.arange(n_nodes) < rack.n_servers, self.n_chip_ports, 0)
        self.input_of_fibre: NDArray[np.int64] = first_place[heads] + rank_in_group(heads)
        self.output_of_fibre: NDArray[np.int64] = first_place[tails] + rank_in_group(tails)

    def label_nodes(self) -> dict[str, tuple[str, ...]]:
        """Return what is at input k and at output k of each switch, by the name of the switch.

        The servers come first, if light passes them, then the inter-rack switches.

        The ports of a server are those of its chips, then its places for fibres; those of an
        inter-rack switch are the low and the high end of each rack in turn.
        """
        rack = self.rack
        # As many fibres arrive at a switch as leave it, so that those that leave count its ports.
        leaving = np.bincount(self.tail_of_fibre, minlength=rack.n_servers)
        labels_of_node: dict[str, tuple[str, ...]] = {}
        for server in range(self.first_node, rack.n_servers):
            first_chip = server * rack.chips_per_server
            labels_of_node[f"server {server}"] = (
                *(
                    f"chip {chip} port {port}"
                    for chip in range(first_chip, first_chip + rack.chips_per_server)
                    for port in range(rack.ports_per_chip)
                ),
                *(f"fibre place {place}" for place in range(leaving[server])),
            )

        # An inter-rack switch has the low and the high end of each rack in turn.
        for switch, (axis, first, second) in enumerate(rack.rack_switches.tolist()):
            name = f"inter-rack switch {switch} ({AXES[axis]} {first} {second})"
            labels_of_node[name] = tuple(
                f"rack {k // 2} {('low', 'high')[k % 2]}"
                for k in range(leaving[rack.n_servers + switch])
            )
        return labels_of_node

    def connections_of(
        self, source_port: int, destination_port: int, route: FibreRoute
    ) -> Iterable[tuple[int, int, int]]:
        """Yield the connection in each switch that a circuit passes, from source to destination.

        Ports are those of chips, counted chip by chip over all racks. `route` has the numbers of
        the fibres that the circuit takes, in order; it is empty within a server. A connection is
        three numbers: the place of the switch in `label_nodes`, and which of its inputs it joins
        to which output; in servers the ports of chips come first, then fibres. Fibres that do not
        join the two ports, one after the other, are an `InputError`.
        """
        through = self.rack.through
        name = f"the circuit from port {source_port} to port {destination_port}"

        # `node` and `entry` are where the light is: at first a port of a chip at its server, then
        # where each fibre ends, at which the next one has to begin. Where light does not pass
        # servers, it is in the first fibre from the start, and in the last one at the end.
        node, entry = divmod(source_port, self.n_chip_ports)
        for place, fibre in enumerate(route):
            if place or through:
                if self.tail_of_fibre[fibre] != node:
                    begin = f"at server {node}"
                    if place:
                        begin = f"where fibre {route[place - 1]} ends"
                    raise InputError(
                        f"{name}: fibre {fibre} does not begin {begin}", where="fibres"
                    )
                yield node - self.first_node, entry, int(self.output_of_fibre[fibre])
            node = int(self.head_of_fibre[fibre])
            entry = int(self.input_of_fibre[fibre])

        if through:
            last_server, exit_ = divmod(destination_port, self.n_chip_ports)
            if node != last_server:
                raise InputError(
                    f"{name}: its fibres do not end at server {last_server}", where="fibres"
                )
            yield node, entry, exit_

    def part_at(self, node: int, place: int, *, is_input: bool) -> RackPart:
        """Return the port of a chip, or the fibre, that is at an input or an output of a switch.

        `node` is its place in `label_nodes`, and `place` counts chips first, then fibres: those
        that arrive at inputs, or leave at outputs.
        """
        graph_node = node + self.first_node
        if graph_node < self.rack.n_servers and place < self.n_chip_ports:
            return RackPart("port", node * self.n_chip_ports + place)
        is_there = (self.tail_of_fibre == graph_node) & (self.output_of_fibre == place)
        if is_input:
            is_there = (self.head_of_fibre == graph_node) & (self.input_of_fibre == place)
        return RackPart("fibre", int(np.flatnonzero(is_there)[0]))


@lru_cache(maxsize=4)
def rack_nodes(rack: RackFabric) -> RackNodes:
    """Return the switches of racks; the last few are remembered."""
    return RackNodes(rack)


class PlannedSwitch(NamedTuple):
    """One switch, and what it holds over time.

    Times are seconds from the beginning of the plan. A transition has no times: its states follow
    each other as soon as the one before is there.
    """

    name: str
    """Such as ``switch``, ``plane 1``, ``rail 3``, ``server 2``."""
    labels: tuple[str, ...]
    """``labels[port]``: what is at the port."""
    matchings: NDArray[np.int32]
    """``matchings[state, source] = destination``, -1 where idle; shape (states, ports)."""
    starts_s: NDArray[np.float64]
    """``starts_s[state]``: when the switch begins to change to the state."""
    ready_s: NDArray[np.float64]
    """``ready_s[state]``: when its circuits carry data."""
    ends_s: NDArray[np.float64]
    """``ends_s[state]``: when the next state begins, or the plan ends."""

    @property
    def n_states(self) -> int:
        """The number of states."""
        return len(self.matchings)

    @property
    def file_name(self) -> str:
        """The name as a part of file names: letters, digits and hyphens.

        Examples
        --------
        >>> import numpy as np
        >>> none = np.zeros(0)
        >>> PlannedSwitch("rail 3", (), np.zeros((0, 2), np.int32), none, none, none).file_name
        'rail-3'
        """
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


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
        # ``allocation.fibres`` has rows of a circuit and a fibre that it passes, in the order of
        # its way.
        route_of_circuit: dict[int, list[int]] = {}
        for circuit, fibre in answer.fibres.tolist():
            route_of_circuit.setdefault(circuit, []).append(fibre)
        lit = [
            _LitCircuit(source, destination, route_of_circuit.get(circuit, []))
            for circuit, (source, destination) in enumerate(answer.circuits.tolist())
        ]
        return _rack_switches(problem.fabric, [lit])

    fabric: Fabric | None = getattr(problem, "fabric", None)
    has_names = fabric is not None and fabric.labels != tuple(map(str, range(fabric.n_ports)))

    # A collective that changes all planes at once says which rounds use which circuits, but not
    # when a round ends, unless it sends nothing or has given steps, and no circuits of ours.
    if (
        isinstance(problem, Collective)
        and isinstance(answer, CollectivePlan)
        and solution.schedule is None
        and not answer.shares_bytes.size
        and answer.circuits.size
    ):
        # A plane is a switch to which each rank has some ports (lanes); an epoch is the time for
        # which circuits stay. Port ``lane`` of a rank is port ``rank * ports + lane`` of its
        # switch.
        n_ports = problem.ports
        rank_labels = tuple(
            f"{rank}.{lane}" if n_ports > 1 else str(rank)
            for rank in range(problem.n_ranks)
            for lane in range(n_ports)
        )
        if has_names:
            rank_labels = problem.fabric.labels[: len(rank_labels)]
        switches = []
        for plane in range(problem.planes):
            # circuits[epoch, lane, rank] is the rank that this lane leads to, on the same lane; as
            # a row of ports, lanes of a rank stand together.
            peers = answer.circuits[:, plane * n_ports : (plane + 1) * n_ports].swapaxes(1, 2)
            matchings = np.where(peers == IDLE, IDLE, peers * n_ports + np.arange(n_ports))
            name = f"plane {plane}" if problem.planes > 1 else "switch"
            rows = matchings.reshape(answer.n_epochs, -1).astype(np.int32)
            switches.append(_without_times(name, rank_labels, rows))
        return tuple(switches)

    # All others have a time for each state.
    timed_switches = topologies(solution).switches
    planned = []
    for switch in timed_switches:
        # A port has its name in the fabric. Without names it has the name of its node, and which
        # of several ports there it is, on all planes together; a dark port has none.
        is_used = switch.node != IDLE
        has_several_ports = len(np.unique(switch.node[is_used])) < np.count_nonzero(is_used)
        port_labels = []
        for number, node in enumerate(switch.node.tolist()):
            if fabric is not None and has_names:
                port_labels.append(fabric.labels[number])
            elif node == IDLE:
                port_labels.append("")
            elif has_several_ports:
                port_labels.append(f"{node}.{switch.port[number]}")
            else:
                port_labels.append(str(node))
        is_single_plane = len(timed_switches) == 1 and switch.name.startswith("plane")
        planned.append(
            PlannedSwitch(
                name="switch" if is_single_plane else switch.name,
                labels=tuple(port_labels),
                matchings=switch.matchings,
                starts_s=switch.starts_s,
                ready_s=switch.ready_s,
                ends_s=switch.ends_s,
            )
        )
    return tuple(planned)


def _lit_circuits(problem: Reroute) -> dict[int, _LitCircuit]:
    """Return the circuits of a running state, by number; fabrics with cells have no fibres."""
    lit = {}
    for circuit, (source, destination) in enumerate(problem.circuits.tolist()):
        route = problem.routes[circuit] if problem.fabric.graph is None else ()
        lit[circuit] = _LitCircuit(source, destination, route)
    return lit


def switches_of_transition(problem: Reroute, transition: Transition) -> tuple[PlannedSwitch, ...]:
    """Return what each switch is told to hold, in the beginning and after each step.

    A failure takes the light of the circuits it hits, but the switch holds them still: the second
    state is without them. A step darkens a circuit (`DROP`), raises one (`RAISE`), or sets a cell,
    which changes no circuit.
    """
    hit = set(np.flatnonzero(problem.hit).tolist())
    first = _lit_circuits(problem)
    states = [first, {circuit: ends for circuit, ends in first.items() if circuit not in hit}]

    # New ends are listed by the place of a circuit among those that change.
    place_of_circuit = {circuit: k for k, circuit in enumerate(transition.changed.tolist())}
    for kind, circuit, _state in transition.steps.tolist():
        lit = dict(states[-1])
        if kind == DROP:
            lit.pop(circuit, None)
        elif kind == RAISE:
            place = place_of_circuit[circuit]
            source, destination = transition.circuits[place].tolist()
            route = transition.routes[place] if problem.fabric.graph is None else ()
            lit[circuit] = _LitCircuit(source, destination, route)
        states.append(lit)
    return _switches_of_states(problem, [list(lit.values()) for lit in states])


def switches_of_state(problem: Reroute) -> tuple[PlannedSwitch, ...]:
    """Return the one state that each switch holds for the circuits of a running state.

    There is a single switch, or in racks each server and each inter-rack switch.
    """
    return _switches_of_states(problem, [list(_lit_circuits(problem).values())])


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


def _rack_switches(
    rack: RackFabric, states: Sequence[Sequence[_LitCircuit]]
) -> tuple[PlannedSwitch, ...]:
    """Return the servers and inter-rack switches of racks with the matchings of all states.

    Switches are in the order of `RackNodes.label_nodes`; ``matchings[state, input]`` is the output
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
    labels_of_node = nodes.label_nodes()
    matchings = [
        np.full((len(states), len(labels)), IDLE, dtype=np.int32)
        for labels in labels_of_node.values()
    ]

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
        _without_times(name, labels, table)
        for (name, labels), table in zip(labels_of_node.items(), matchings, strict=True)
    )


def _without_times(
    name: str, labels: tuple[str, ...], matchings: NDArray[np.int32]
) -> PlannedSwitch:
    """Return a switch whose states follow each other as soon as the one before is there."""
    zeros = np.zeros(len(matchings))
    return PlannedSwitch(name, labels, matchings, zeros, zeros, zeros)


class NamedSwitch(NamedTuple):
    """A switch of an answer, with the names of its ports."""

    plan: PlannedSwitch
    ports: PortTable
    dead_ports: tuple[int, ...] = ()
    """Numbers of ports that have failed and stay dark."""

    def circuits(self, state: int | None) -> tuple[CrossConnect, ...]:
        """Return the circuits that the switch holds in a state; None is a dark switch."""
        return () if state is None else self.ports.circuits_of(self.plan.matchings[state])

    def dark_ports(self, state: int) -> list[int]:
        """Return the ports that have failed and have no circuit in a state: they are blocked."""
        matching = self.plan.matchings[state].tolist()
        return [port for port in self.dead_ports if matching[port] < 0 and port not in matching]

    def command_lines(self, before: int | None, after: int, *, is_first: bool) -> list[str]:
        """Return what leads from a state to another as commands of SONiC.

        Ports that have failed are blocked, on all their sides, by the first commands that leave
        them without circuits. `is_first` tells that no commands come before these in the file:
        then no port has been blocked yet.
        """
        blocked = [] if is_first or before is None else self.dark_ports(before)
        newly_dark = [port for port in self.dark_ports(after) if port not in blocked]
        sides = [side for port in newly_dark for side in self.ports.sides[port].in_use]
        return sonic.command_lines(self.change(before, after), sides)

    def scpi_lines(self, before: int | None, after: int, *, is_first: bool) -> list[str]:
        """Return what leads from a state to another as commands of a Polatis switch."""
        return polatis.command_lines(self.change(before, after), self.ports.n_ports)

    def change(self, before: int | None, after: int) -> Difference:
        """Return what leads from one state, or from a dark switch, to another."""
        return difference_between(self.circuits(before), self.circuits(after))


def name_switches(
    solution: Solution, ports: str | os.PathLike[str] | None = None
) -> tuple[NamedSwitch, ...]:
    """Return the switches of an answer with port names: of a file, or ``1A``, ``1B`` and on.

    A warning names the sides that a file has for dead ports. After a failure only whoever moved a
    fibre knows whether the file says so.
    """
    plans = list_planned_switches(solution)
    problem = solution.problem
    fabric: Fabric | None = getattr(problem, "fabric", None)
    if fabric is None:
        return name_ports(plans, ports)

    # Failures of a rerouting are in its state, others in its fabric. The switch of a rail may have
    # fewer ports than the fabric: then dead ones behind its last port do not count.
    failed_ports = problem.failed_ports if isinstance(problem, Reroute) else ()
    if isinstance(fabric, RackFabric):
        return _with_failed_ports(name_ports(plans, ports), fabric, failed_ports)
    n_ports = max((len(plan.labels) for plan in plans), default=0)
    dead_ports = {port for port in (*fabric.dead_ports, *failed_ports) if port < n_ports}
    names: tuple[str, ...] = ()
    if all(plan.labels == fabric.labels[: len(plan.labels)] for plan in plans):
        names = fabric.labels
    switches = name_ports(plans, ports, sorted(dead_ports), names)

    if ports is None or any(plan.labels != fabric.labels for plan in plans):
        return switches
    for switch in switches:
        for port in fabric.dead_ports:
            sides = switch.ports.sides[port]
            if sides.a_side:
                _log.warning(
                    "%s: the sides %s and %s of %s are taken for those of a port that has failed,"
                    " and stay dark. If the table is from before the failure, they are those of"
                    " the free port, which works: write them in the row of the port whose fibre"
                    " was moved there, in place of its old sides",
                    path_name(ports),
                    sides.a_side,
                    sides.b_side,
                    fabric.labels[port],
                )
    return switches


def _with_failed_ports(
    switches: tuple[NamedSwitch, ...], rack: RackFabric, failed_ports: Sequence[int]
) -> tuple[NamedSwitch, ...]:
    """Return the switches of racks, with the ports of chips that have failed at each server."""
    if not rack.through:  # light passes inter-rack switches alone, at which no chip is
        return switches
    n_chip_ports = rack_nodes(rack).n_chip_ports
    dead_ports: list[list[int]] = [[] for _ in switches]
    for port in sorted(failed_ports):
        dead_ports[port // n_chip_ports].append(port % n_chip_ports)
    return tuple(
        switch._replace(dead_ports=tuple(dead))
        for switch, dead in zip(switches, dead_ports, strict=True)
    )


def name_ports(
    plans: Sequence[PlannedSwitch],
    ports: str | os.PathLike[str] | None,
    dead_ports: Sequence[int] = (),
    names: Sequence[str] = (),
) -> tuple[NamedSwitch, ...]:
    """Give planned switches the names of their ports, in the same order.

    A planned switch has the states that it goes through, and `ports` is the file of its sides. A
    file of `read_port_tables` has a table for each switch or one for all, and may call ports by
    `names`; without a file port p has the sides ``(p + 1)A`` and ``(p + 1)B``.
    """
    if ports is None:
        return tuple(
            NamedSwitch(
                plan,
                PortTable.numbered(plan.matchings.shape[1], plan.labels),
                tuple(dead_ports),
            )
            for plan in plans
        )
    # Without names of the fabric labels that all switches share are names; racks have others.
    labels = {plan.labels for plan in plans}
    if not names and len(labels) == 1:
        names = labels.pop()
    tables = read_port_tables(ports, names, dead_ports=dead_ports)

    # A switch has its own table, by its name (``rail 3``) or that of its file (``rail-3``), or
    # the one for all.
    named = []
    for plan in plans:
        path = path_name(ports)
        table = tables.get(plan.name, tables.get(plan.file_name, tables.get("")))
        if table is None:
            raise InputError(f"there are no ports of switch {plan.name!r}", path=path)
        n_ports = plan.matchings.shape[1]
        if table.n_ports < n_ports:
            raise InputError(
                f"{plan.name}: {n_ports} ports are needed, and the last"
                f" {n_ports - table.n_ports} of them have no line",
                path=path,
            )
        named.append(NamedSwitch(plan, table, tuple(dead_ports)))
    return tuple(named)


def write_sonic_configs(
    solution: Solution,
    *,
    ports: str | os.PathLike[str] | None = None,
    slot: int | None = None,
    from_slot: int | str | None = None,
) -> str | dict[str, str]:
    """Write what each switch holds as ``config_db.json``, or changes as JSON patches.

    `ports` is a file with the names of ports, None for ports as numbered. Only `slot` is written,
    or all slots if it is None. With `from_slot` patches are written in place of whole
    configurations: from this slot to `slot`, or with ``"previous"`` from the slot before each, the
    first from a dark switch. Contents stand by the endings of file names, such as
    ``.rail-3.slot-002.json``; a single file is a text.
    """
    files = {}
    switches = name_switches(solution, ports)

    # A file for each switch and each of its states, or each change between two of them.
    for switch in switches:
        for before, state in _chosen_changes(switch, slot, from_slot):
            place = f".{switch.plan.file_name}" if len(switches) > 1 else ""
            if switch.plan.n_states > 1:
                place += f".slot-{state:03}"
            if from_slot is None:
                circuits = switch.circuits(state)
                config = sonic.write_config(circuits, switch.ports, switch.dark_ports(state))
                files[f"{place}.json"] = config
            else:
                change = switch.change(before, state)
                patch = sonic.write_patch(change, switch.ports, switch.dark_ports(state))
                files[f"{place}.patch.json"] = patch
    return _unless_single(files)


def _chosen_changes(
    switch: NamedSwitch, slot: int | None, from_slot: int | str | None
) -> Iterator[tuple[int | None, int]]:
    """Yield the state before and the state after each change that is asked for.

    The state after is `slot`, or each one if it is None. The one before is `from_slot`, with
    ``"previous"`` the one before in the order of the plan, and None for a dark switch.
    """
    n_states = switch.plan.n_states
    if slot is not None and not 0 <= slot < n_states:
        raise InputError(
            f"slot {slot}: {switch.plan.name} has slots 0 .. {n_states - 1}", where="slot"
        )
    for state in range(n_states) if slot is None else (slot,):
        if from_slot is None or (from_slot == "previous" and state == 0):
            yield None, state
        elif from_slot == "previous":
            yield state - 1, state
        elif not isinstance(from_slot, int) or not 0 <= from_slot < n_states:
            raise InputError(
                f"from_slot {from_slot!r}: 'previous', or one of 0 .. {n_states - 1} of"
                f" {switch.plan.name}",
                where="from_slot",
            )
        else:
            yield from_slot, state


def _unless_single(files: dict[str, str]) -> str | dict[str, str]:
    """Return the text of a single file, which gets the name that the user chose."""
    if len(files) == 1:
        return next(iter(files.values()))
    return files


def write_commands(
    lines_of: Callable[..., list[str]],
    solution: Solution,
    *,
    ports: str | os.PathLike[str] | None = None,
    slot: int | None = None,
    from_slot: int | str | None = None,
) -> str | dict[str, str]:
    """Write the changes of each switch as commands, a file for each switch.

    `lines_of` is a method of `NamedSwitch` that returns the commands for a change; a comment with
    its time begins each state. With `slot` only the commands that lead to it are written, from
    `from_slot`, ``"previous"`` or a dark switch. All slots in order follow one another, so that
    ``"previous"`` alone goes with them.
    """
    if slot is None and from_slot not in (None, "previous"):
        raise InputError(
            f"from_slot {from_slot!r}: only with a slot that the commands lead to; those of all"
            " slots begin with a dark switch",
            where="from_slot",
        )

    files = {}
    for switch in name_switches(solution, ports):
        lines = list[str]()
        # Of all slots each follows the one before; of one slot the comment says what it does.
        start = "previous" if slot is None else from_slot
        for before, state in _chosen_changes(switch, slot, start):
            begin = ""
            if slot is not None:
                begin = f", from slot {before}" if before is not None else ", from a dark switch"
            start_s = float(switch.plan.starts_s[state])
            commands = lines_of(switch, before, state, is_first=not lines)
            lines.append(f"# {switch.plan.name}, slot {state}, at {start_s:.9g} s{begin}")
            lines += commands
        files[f".{switch.plan.file_name}.txt"] = "".join(f"{line}\n" for line in lines)
    return _unless_single(files)


class NearestState(NamedTuple):
    """The state of a plan that a configuration is nearest to."""

    switch: str
    state: int
    difference: Difference
    """What would have to change on the switch to reach the state; empty if it is there."""


def compare_with_config(
    solution: Solution,
    config: str | os.PathLike[str],
    *,
    ports: str | os.PathLike[str] | None = None,
    switch_name: str | None = None,
) -> NearestState:
    """Return the switch and state of a plan that differ least from a SONiC ``config_db.json``.

    The switch has the name `switch_name`, as ``plane 1`` or in names of files ``plane-1``; None
    compares all of them. The difference is the number of circuits to remove and to add; of equal
    ones the first counts. Circuits with no side of the plan's switch are others' and do not count.
    Without a file of names, port p has the sides ``(p + 1)A`` and ``(p + 1)B``.
    """
    present = read_config(config).circuits
    nearest: NearestState | None = None
    fewest_changes = float("inf")

    # The first of the states with the fewest changes is kept.
    switches = name_switches(solution, ports)
    for switch in switches:
        if switch_name not in (None, switch.plan.name, switch.plan.file_name):
            continue
        own_circuits = with_a_side_of(present, switch.ports.port_of_side.keys())
        for state in range(switch.plan.n_states):
            difference = difference_between(own_circuits, switch.circuits(state))
            n_changes = len(difference.removals) + len(difference.additions)
            if n_changes < fewest_changes:
                fewest_changes = n_changes
                nearest = NearestState(switch.plan.name, state, difference)
    if nearest is None:
        names = ", ".join(switch.plan.file_name for switch in switches)
        raise InputError(
            f"there is nothing to compare: switches of the plan are {names or 'none'}"
        )
    return nearest

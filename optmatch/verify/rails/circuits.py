"""One rail in the replay: the matching of its switch over time, and where each circuit leads.

A *state* is one matching of the switch, from the start of its reconfiguration to that of the next
one. A *spell* is the time for which a port keeps its circuit, or has none. GPUs of a rail are
numbered in the order of their ranks; port p of GPU g is the *GPU port* ``g * ports_per_gpu + p``,
and the switch has a port for each of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Schedule
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailTimeline
from optmatch.verify.budgets import check_budgets
from optmatch.verify.rails.context import MOST_TOLD, Context
from optmatch.verify.report import Rule
from optmatch.verify.routing.light import check_light

# Ports
SWITCH_HAS_PORTS = Rule("the switch has its ports")
RAIL_FITS_SWITCH = Rule("a rail fits its switch")
ONLY_GPUS_HAVE_CIRCUITS = Rule("only ports of GPUs have circuits")

# Times
STEP_REPEATS = Rule("a step ends with the circuits it begins with")
FIRST_STATE_IS_THERE = Rule("the first state is there")
ASKED_BEFORE_SET_UP = Rule("a state is asked for before it is set up")
ONE_AFTER_ANOTHER = Rule("reconfigurations follow one another")
PORT_KEEPS_CIRCUIT = Rule("a port gets no new circuit before its last one is up")

# States of the cells
MUTUAL = Rule("circuits of bidirectional ports are mutual")
IDEAL_HAS_NO_CELLS = Rule("an ideal switch has no cells")
EVERY_CELL_HAS_STATE = Rule("every cell has a state")


class Sent(NamedTuple):
    """Sends over ports: an entry for each port of the switch that an operation sends over.

    Each entry has the operation of the step, and the port of the switch.
    """

    operation: NDArray[np.int64]
    port: NDArray[np.int64]


class UsedPorts(NamedTuple):
    """The ports that some operations use: an entry for each port of each operation."""

    row: NDArray[np.int64]
    """The place of the operation in the list that was asked for."""
    number: NDArray[np.int64]
    """The number of the port at its GPU."""
    port: NDArray[np.int64]
    """The port of the switch."""


class Arrival(NamedTuple):
    """Where circuits lead."""

    rank: NDArray[np.int64]
    """The rank at which they arrive; -1 without a circuit."""
    number: NDArray[np.int64]
    """The number of the port there, at its GPU."""


class Rail(NamedTuple):
    """The circuits of one rail over a step.

    A *spell* is the time for which a port keeps its circuit, or has none. The spells of a port
    stand together, in the order of time. A change takes `delay_s` seconds, and a GPU has
    `ports_per_gpu` ports.
    """

    ranks: NDArray[np.int64]
    """The ranks on the rail, ascending: their GPUs are numbered in this order."""
    state_starts_s: NDArray[np.float64]
    """``state_starts_s[state]``: when the reconfiguration to it starts."""
    spell_key: NDArray[np.int64]
    """``spell_key[spell]``: the port times the number of states, plus its first state."""
    since_s: NDArray[np.float64]
    """``since_s[spell]``: when the change to the circuit began; -inf if it was there."""
    until_s: NDArray[np.float64]
    """``until_s[spell]``: when the circuit is given up; inf if it stays."""
    gpu_port: NDArray[np.int64]
    """``gpu_port[spell]``: where the circuit arrives, as GPU times ports plus port; -1 if dark."""
    switch_port: NDArray[np.int64]
    """``switch_port[gpu port]``: the port of the switch."""
    ports_per_gpu: int
    stops_s: NDArray[np.float64]
    """When all circuits of the rail go dark for a reconfiguration; empty if only some do."""
    delay_s: float

    def list_ports(self, ranks: NDArray[np.integer], masks: NDArray[np.integer]) -> UsedPorts:
        """List the ports that operations use, an entry for each port of each operation.

        With 2 ports a GPU, an operation on GPU 5 with the mask 0b11 has the ports 10 and 11,
        counted over all GPUs; the switch may give these other numbers.
        """
        bits = masks[:, None] >> np.arange(self.ports_per_gpu) & 1
        row, number = np.nonzero(bits)
        gpu = np.searchsorted(self.ranks, ranks[row])
        return UsedPorts(row, number, self.switch_port[gpu * self.ports_per_gpu + number])

    def spell_at(self, time_s: NDArray[np.float64], port: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the spells of ports of the switch at some times; at first those of the start."""
        # The spell is the last one of the port that begins no later than the state of that time.
        # Keys of spells are port times the number of states plus their first state, ascending.
        n_states = len(self.state_starts_s)
        n_started = np.searchsorted(self.state_starts_s, time_s, side="right")
        state = np.maximum(n_started - 1, 0)
        return np.searchsorted(self.spell_key, port * n_states + state, side="right") - 1

    def arrival(self, spell: NDArray[np.int64]) -> Arrival:
        """Return where the circuits of some spells lead."""
        gpu_port = self.gpu_port[spell]
        rank = np.where(gpu_port < 0, -1, self.ranks[gpu_port // self.ports_per_gpu])
        return Arrival(rank, gpu_port % self.ports_per_gpu)

    def dark_s(self, start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up how long the whole rail is dark between two times, `delay_s` from each stop."""
        total_s = np.zeros(len(start))
        for stop_s in self.stops_s:
            overlap_s = np.minimum(end, stop_s + self.delay_s) - np.maximum(start, stop_s)
            total_s += np.maximum(overlap_s, 0.0)
        return total_s


def open_rail(job: RailJob, ranks: NDArray[np.int64], timeline: RailTimeline) -> Rail:
    """Find the spells of all ports of a rail's switch.

    If a port leads to 4, 4 and 7 in three states that begin at 0, 3 and 5 s, it has two spells: to
    4 until 5 s, and to 7 from then on.
    """
    network = job.network
    matchings = timeline.matchings
    starts_s = timeline.starts_s
    n_states, n_ports = matchings.shape

    # A spell begins in the first state, and whenever the port changes its circuit. Transposed, all
    # spells of a port stand together, in the order of time.
    begins = np.ones(matchings.shape, dtype=bool)
    begins[1:] = matchings[1:] != matchings[:-1]
    port, state = np.nonzero(begins.T)
    since_s = np.where(state > 0, starts_s[state], -np.inf)
    until_s = np.append(since_s[1:], np.inf)[: len(since_s)]

    # A spell ends when the next one of the port begins. Where that is at -inf, it belongs to the
    # next port already, and the spell is the last one of its port.
    until_s[np.isneginf(until_s)] = np.inf

    # The GPUs have the first ports of the switch that work.
    live_ports = np.arange(n_ports) if job.fabric is None else job.fabric.live_ports
    switch_port = live_ports[: len(ranks) * network.ports_per_gpu]
    gpu_port_of = np.full(n_ports + 1, -1)  # by port of the switch; the last entry is for `IDLE`
    gpu_port_of[switch_port] = np.arange(len(switch_port))
    return Rail(
        ranks=ranks,
        state_starts_s=starts_s,
        spell_key=port * n_states + state,
        since_s=since_s,
        until_s=until_s,
        gpu_port=gpu_port_of[matchings[state, port]],
        switch_port=switch_port,
        ports_per_gpu=network.ports_per_gpu,
        stops_s=starts_s[1:] if network.switching == "all-stop" else starts_s[:0],
        delay_s=network.delay_s,
    )


def check_timeline(context: Context, number: int, n_gpus: int) -> bool:
    """Check the states of a switch and their times, before circuits are looked at.

    Only ports of GPUs have circuits, the last state is the first one, each state has the time to
    be set up, and cells make these circuits. False if nothing can be said of circuits.
    """
    # Without the right number of ports nothing else can be checked.
    job = context.job
    findings = context.findings
    timeline = context.plan.rails[number]
    matchings = timeline.matchings
    where = f"rails[{number}]"
    n_needed = n_gpus * job.network.ports_per_gpu
    n_ports = n_needed if job.fabric is None else job.fabric.n_ports
    width = matchings.shape[1]
    if not findings.expect(SWITCH_HAS_PORTS, f"{where}.matchings", width, n_ports):
        return False
    if job.network.radix is not None and n_needed > job.network.radix:
        findings.refuse(RAIL_FITS_SWITCH, where, n_needed, job.network.radix)

    # The GPUs have the first ports of the switch that work. All others are foreign: no circuit may
    # leave them or lead to them.
    live_ports = np.arange(n_ports) if job.fabric is None else job.fabric.live_ports
    foreign = np.isin(np.arange(n_ports), live_ports[:n_needed], invert=True)
    wrong = (matchings != IDLE) & (foreign | foreign[matchings])
    for state, port in np.argwhere(wrong)[:MOST_TOLD]:
        place = f"{where}.matchings[{state}, {port}]"
        findings.refuse(ONLY_GPUS_HAVE_CIRCUITS, place, int(matchings[state, port]), IDLE)

    if not np.array_equal(matchings[0], matchings[-1]):
        place = f"{where}.matchings[-1]"
        findings.refuse(STEP_REPEATS, place, "other circuits", "those of the first state")
    _check_state_times(context, timeline, where)
    _check_port_times(context, timeline, where)
    _check_cell_states(context, timeline, where)
    return True


def _check_state_times(context: Context, timeline: RailTimeline, where: str) -> None:
    """Check that states are asked for before they are set up, and when the first one is.

    Where the whole rail stops, changes are one delay apart at least.
    """
    network = context.job.network
    findings = context.findings
    slack_s = context.slack_s
    asked_s = timeline.asked_s
    starts_s = timeline.starts_s
    for name, first_s in (("starts_s", starts_s[0]), ("asked_s", asked_s[0])):
        findings.expect(FIRST_STATE_IS_THERE, f"{where}.{name}[0]", float(first_s), 0.0)

    wrong = (asked_s < 0) | (asked_s > starts_s + slack_s)
    for state in np.flatnonzero(wrong)[:MOST_TOLD]:
        place = f"{where}.asked_s[{state}]"
        expected = f"from 0 to {starts_s[state]:g}"
        findings.refuse(ASKED_BEFORE_SET_UP, place, float(asked_s[state]), expected)

    if network.switching == "all-stop":
        # The first state was there; between the others the whole switch waits for the delay.
        early = np.diff(starts_s[1:]) < network.delay_s - slack_s
        for state in np.flatnonzero(early)[:MOST_TOLD] + 2:
            place = f"{where}.starts_s[{state}]"
            earliest_s = float(starts_s[state - 1] + network.delay_s)
            findings.refuse(ONE_AFTER_ANOTHER, place, float(starts_s[state]), earliest_s)


def _check_port_times(context: Context, timeline: RailTimeline, where: str) -> None:
    """Check that no port gets another circuit before its last one is up."""
    matchings = timeline.matchings
    delay_s = context.job.network.delay_s
    new_circuit = (matchings[1:] != matchings[:-1]) & (matchings[1:] != IDLE)
    state, port = np.nonzero(new_circuit)
    state += 1  # a difference between states s - 1 and s is a change to state s
    for side, side_ports in (("from", port), ("to", matchings[state, port])):
        # States are ascending in time.
        order = np.lexsort([state, side_ports])
        ports = side_ports[order]
        states = state[order]
        began_s = timeline.starts_s[states]
        early = (np.diff(ports) == 0) & (np.diff(began_s) < delay_s - context.slack_s)
        for row in np.flatnonzero(early)[:MOST_TOLD].tolist():
            place = f"{where}.starts_s[{states[row + 1]}], circuit {side} port {ports[row]}"
            earliest_s = float(began_s[row] + delay_s)
            context.findings.refuse(PORT_KEEPS_CIRCUIT, place, float(began_s[row + 1]), earliest_s)


def _check_cell_states(context: Context, timeline: RailTimeline, where: str) -> None:
    """Check that light goes where the circuits lead, by tracing cells if there are any."""
    matchings = timeline.matchings
    states = timeline.cell_states
    fabric = context.job.fabric
    findings = context.findings
    # The circuit of a bidirectional port comes back: the partner of its partner is the port.
    if fabric is not None and fabric.bidirectional:
        port_itself = np.broadcast_to(np.arange(matchings.shape[1]), matchings.shape)
        partner_of_partner = np.take_along_axis(matchings, matchings, 1)
        mutual = (partner_of_partner == port_itself) & (matchings != port_itself)
        for state, port in np.argwhere((matchings != IDLE) & ~mutual)[:1]:
            place = f"{where}.matchings[{state}, {port}]"
            got = int(matchings[state, port])
            findings.refuse(MUTUAL, place, got, "a port that comes back")
            return  # no light can be traced

    # Without cells there is no light to trace; a switch with losses alone keeps its link budget.
    if fabric is None or fabric.graph is None:
        findings.expect(IDEAL_HAS_NO_CELLS, where, states, None)
        if fabric is not None:
            check_budgets(fabric, matchings, findings)
        return
    shape: tuple[int, ...] | None = None if states is None else states.shape
    expected = (len(matchings), fabric.n_cells)
    if not findings.expect(EVERY_CELL_HAS_STATE, f"{where}.cell_states", shape, expected):
        return
    durations_s = np.ones(len(matchings))  # light does not depend on them
    schedule = Schedule(matchings=matchings, durations_s=durations_s, cell_states=states)
    check_light(fabric, schedule, findings)

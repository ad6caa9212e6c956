"""One rail in the replay: the matching of its switch over time, and where each circuit leads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Schedule
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailTimeline
from optmatch.verify.rails.context import MOST_TOLD, Context
from optmatch.verify.routing.light import check_light


class Sent(NamedTuple):
    """Sends over ports; rows of (operation, port of the switch)."""

    operation: NDArray[np.int64]
    port: NDArray[np.int64]


class Rail(NamedTuple):
    """One rail in the replay.

    A *spell* is the time for which a port keeps its circuit, or none. Circuits of a port stand
    together, in the order of time; their columns have one entry each.
    """

    ranks: NDArray[np.int64]
    starts_s: NDArray[np.float64]
    """Of the states."""
    key: NDArray[np.int64]
    """``key[spell]``: the port times the number of states, plus the first state of the spell."""
    since_s: NDArray[np.float64]
    """When the change to the circuit began; -inf if it was there."""
    until_s: NDArray[np.float64]
    """When it is given up."""
    arrives: NDArray[np.int64]
    """The port at which it arrives, as GPUs count them: GPU times ports plus port; -1 if none."""
    port_of: NDArray[np.int64]
    """``port_of[GPU port]``: the port of the switch."""
    ports_per_gpu: int
    stops_s: NDArray[np.float64]
    """When all circuits of the rail go dark for a reconfiguration; empty if only some do."""
    delay_s: float

    def list_ports(
        self, ranks: NDArray[np.integer], masks: NDArray[np.integer]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """List the ports of ranks that bits name.

        Returns for each port the row of `ranks`, its number at the GPU, and its number at the
        switch.
        """
        row, number = np.nonzero(masks[:, None] >> np.arange(self.ports_per_gpu) & 1)
        gpu = np.searchsorted(self.ranks, ranks[row])
        return row, number, self.port_of[gpu * self.ports_per_gpu + number]

    def spell_at(self, time_s: NDArray[np.float64], port: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the spells of ports at some times; of one before the step, the first."""
        state = np.maximum(np.searchsorted(self.starts_s, time_s, side="right") - 1, 0)
        return np.searchsorted(self.key, port * len(self.starts_s) + state, side="right") - 1

    def reached(self, spell: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ranks at which circuits arrive, -1 without one, and the ports there."""
        at = self.arrives[spell]
        return np.where(at < 0, -1, self.ranks[at // self.ports_per_gpu]), at % self.ports_per_gpu

    def dark_s(self, start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up how long the whole rail is dark between two times."""
        total = np.zeros(len(start))
        for begin in self.stops_s:
            overlap = np.minimum(end, begin + self.delay_s) - np.maximum(start, begin)
            total += np.maximum(overlap, 0.0)
        return total


def open_rail(job: RailJob, ranks: NDArray[np.int64], timeline: RailTimeline) -> Rail:
    """Find when each circuit of a timeline is set up and given up."""
    matchings, starts = timeline.matchings, timeline.starts_s
    n_states, n_ports = matchings.shape
    new = np.ones(matchings.shape, dtype=bool)
    np.not_equal(matchings[1:], matchings[:-1], out=new[1:])
    port, state = np.nonzero(new.T)
    since = np.where(state > 0, starts[state], -np.inf)
    until = np.append(since[1:], np.inf)[: len(since)]
    until[np.isneginf(until)] = np.inf  # the next spell belongs to the next port
    live = np.arange(n_ports) if job.fabric is None else job.fabric.live_ports
    k, delay_s = job.network.ports_per_gpu, job.network.delay_s
    port_of = live[: len(ranks) * k]
    gpu_port = np.full(n_ports + 1, -1)  # the last for `IDLE`
    gpu_port[port_of] = np.arange(len(port_of))
    arrives = gpu_port[matchings[state, port]]
    stops_s = starts[1:] if job.network.switching == "all-stop" else starts[:0]
    key = port * n_states + state
    return Rail(ranks, starts, key, since, until, arrives, port_of, k, stops_s, delay_s)


def check_timeline(context: Context, number: int, n_gpus: int) -> bool:
    """Check the states of a timeline and their times; False if they fit no rail."""
    job, findings, timeline = context.job, context.findings, context.plan.rails[number]
    where, matchings = f"rails[{number}]", timeline.matchings
    needed = n_gpus * job.network.ports_per_gpu
    expected = needed if job.fabric is None else job.fabric.n_ports
    width = matchings.shape[1]
    if not findings.expect("the switch has its ports", f"{where}.matchings", width, expected):
        return False
    if job.network.radix is not None and needed > job.network.radix:
        findings.refuse("a rail fits its switch", where, needed, job.network.radix)
    live = np.arange(expected) if job.fabric is None else job.fabric.live_ports
    foreign = np.isin(np.arange(expected), live[:needed], invert=True)
    strange = (matchings != IDLE) & (foreign | foreign[matchings])
    for state, port in np.argwhere(strange)[:MOST_TOLD]:
        at, got = f"{where}.matchings[{state}, {port}]", int(matchings[state, port])
        findings.refuse("only ports of GPUs have circuits", at, got, IDLE)
    if not np.array_equal(matchings[0], matchings[-1]):
        rule = "a step ends with the circuits it begins with"
        findings.refuse(
            rule, f"{where}.matchings[-1]", "other circuits", "those of the first state"
        )
    _check_state_times(context, timeline, where)
    _check_targets(context, timeline, where)
    _check_states(context, timeline, where)
    return True


def _check_state_times(context: Context, timeline: RailTimeline, where: str) -> None:
    job, findings, slack = context.job, context.findings, context.slack_s
    asked, starts = timeline.asked_s, timeline.starts_s
    findings.expect("the first state is there", f"{where}.starts_s[0]", float(starts[0]), 0.0)
    findings.expect("the first state is there", f"{where}.asked_s[0]", float(asked[0]), 0.0)
    for state in np.flatnonzero((asked < 0) | (asked > starts + slack))[:MOST_TOLD]:
        findings.refuse(
            "a state is asked for before it is set up",
            f"{where}.asked_s[{state}]",
            float(asked[state]),
            f"from 0 to {starts[state]:g}",
        )
    if job.network.switching == "all-stop":
        for state in (
            np.flatnonzero(np.diff(starts[1:]) < job.network.delay_s - slack)[:MOST_TOLD] + 2
        ):
            findings.refuse(
                "reconfigurations follow one another",
                f"{where}.starts_s[{state}]",
                float(starts[state]),
                float(starts[state - 1] + job.network.delay_s),
            )


def _check_targets(context: Context, timeline: RailTimeline, where: str) -> None:
    """Check that no port, sending or receiving, is turned again before its circuit is up."""
    rows, delay_s = timeline.matchings, context.job.network.delay_s
    state, port = np.nonzero((rows[1:] != rows[:-1]) & (rows[1:] != IDLE))
    state += 1
    for side, ports in (("from", port), ("to", rows[state, port])):
        order = np.lexsort([state, ports])
        at, began_s = ports[order], timeline.starts_s[state[order]]
        early = (np.diff(at) == 0) & (np.diff(began_s) < delay_s - context.slack_s)
        for k in np.flatnonzero(early)[:MOST_TOLD].tolist():
            context.findings.refuse(
                "a port gets no new circuit before its last one is up",
                f"{where}.starts_s[{state[order[k + 1]]}], circuit {side} port {at[k]}",
                float(began_s[k + 1]),
                float(began_s[k] + delay_s),
            )


def _check_states(context: Context, timeline: RailTimeline, where: str) -> None:
    """Trace the light of every state, and check that bidirectional circuits are mutual."""
    matchings, fabric, findings = timeline.matchings, context.job.fabric, context.findings
    if fabric is not None and fabric.bidirectional:
        back = np.take_along_axis(matchings, matchings, 1)
        own = np.broadcast_to(np.arange(matchings.shape[1]), matchings.shape)
        for state, port in np.argwhere((matchings != IDLE) & ((back != own) | (matchings == own))):
            findings.refuse(
                "circuits of bidirectional ports are mutual",
                f"{where}.matchings[{state}, {port}]",
                int(matchings[state, port]),
                "a port that comes back",
            )
            return
    if fabric is None or fabric.graph is None:
        findings.expect("an ideal switch has no cells", where, timeline.cell_states, None)
        return
    shape = len(matchings), fabric.n_cells
    states = timeline.cell_states
    got: tuple[int, ...] | None = None if states is None else states.shape
    if not findings.expect("every cell has a state", f"{where}.cell_states", got, shape):
        return
    every = Schedule(matchings=matchings, durations_s=np.ones(len(matchings)), cell_states=states)
    check_light(fabric, every, findings)

"""One rail in the replay: when each circuit is set up and given up, and where it leads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailTimeline


class Sent(NamedTuple):
    """What goes over which port; rows of (operation, port of the switch)."""

    operation: NDArray[np.int64]
    port: NDArray[np.int64]


class Rail(NamedTuple):
    """One rail in the replay.

    A *spell* is the time for which a port keeps its circuit, or none. Those of a port stand
    together, in the order of time; their columns have one entry each.
    """

    ranks: NDArray[np.int64]
    starts_s: NDArray[np.float64]
    """Of the states."""
    key: NDArray[np.int64]
    """Of each spell the port, times the number of states, and the first state."""
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
    until[until < 0] = np.inf  # what follows is the next port's
    live = np.arange(n_ports) if job.fabric is None else job.fabric.live_ports
    k, delay_s = job.network.ports_per_gpu, job.network.delay_s
    port_of = live[: len(ranks) * k]
    gpu_port = np.full(n_ports + 1, -1)  # the last for `IDLE`
    gpu_port[port_of] = np.arange(len(port_of))
    arrives = gpu_port[matchings[state, port]]
    stops_s = starts[1:] if job.network.switching == "all-stop" else starts[:0]
    key = port * n_states + state
    return Rail(ranks, starts, key, since, until, arrives, port_of, k, stops_s, delay_s)

"""One rail in the replay: when each circuit is set up and given up, and where it leads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems import RailJob
from optmatch.problems.rails.plan import RailTimeline


class Sent(NamedTuple):
    """What goes over which port; rows of (operation, port of the switch)."""

    operation: NDArray[np.int64]
    port: NDArray[np.int64]


class Rail(NamedTuple):
    """One rail in the replay."""

    number: int
    ranks: NDArray[np.int64]
    timeline: RailTimeline
    since_s: NDArray[np.float64]
    """``since_s[state, port]``: when the change to its circuit began; -inf if it was there."""
    until_s: NDArray[np.float64]
    """``until_s[state, port]``: when its circuit is next given up."""
    port_of: NDArray[np.int64]
    """``port_of[GPU port]``: the port of the switch."""
    gpu_port: NDArray[np.int64]
    """``gpu_port[port]``, the other way round; -1 of ports without a GPU."""
    ports_per_gpu: int
    stops_s: NDArray[np.float64]
    """When all circuits of the rail go dark for a reconfiguration; empty if only some do."""
    delay_s: float

    def list_ports(
        self, ranks: NDArray[np.integer], masks: NDArray[np.integer]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """List the ports of ranks that bits name.

        Returns
        -------
        tuple
            For each port the row of `ranks`, its number at the GPU, and its number at the switch.
        """
        row, number = np.nonzero(masks[:, None] >> np.arange(self.ports_per_gpu) & 1)
        gpu = np.searchsorted(self.ranks, ranks[row])
        return row, number, self.port_of[gpu * self.ports_per_gpu + number]

    def state_at(self, time_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the states that are held, or being set up, at some times."""
        return np.searchsorted(self.timeline.starts_s, time_s, side="right") - 1

    def reached(
        self, state: int | NDArray[np.int64], port: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ranks at which circuits arrive, -1 without one, and the ports there."""
        arrives = self.timeline.matchings[state, port]
        at = np.where(arrives == IDLE, -1, self.gpu_port[arrives])
        return np.where(at < 0, -1, self.ranks[at // self.ports_per_gpu]), at % self.ports_per_gpu

    def dark_s(self, start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up how long the whole rail is dark between two times."""
        total = np.zeros(len(start))
        for begin in self.stops_s:
            overlap = np.minimum(end, begin + self.delay_s) - np.maximum(start, begin)
            total += np.maximum(overlap, 0.0)
        return total


def open_rail(job: RailJob, number: int, ranks: NDArray[np.int64], timeline: RailTimeline) -> Rail:
    """Find when each circuit of a timeline is set up and given up."""
    matchings, starts = timeline.matchings, timeline.starts_s
    since = np.full(matchings.shape, -np.inf)
    until = np.full(matchings.shape, np.inf)
    for state in range(1, len(matchings)):
        changed = matchings[state] != matchings[state - 1]
        since[state] = np.where(changed, starts[state], since[state - 1])
    for state in range(len(matchings) - 2, -1, -1):
        changed = matchings[state] != matchings[state + 1]
        until[state] = np.where(changed, starts[state + 1], until[state + 1])
    n_ports = matchings.shape[1]
    live = np.arange(n_ports) if job.fabric is None else job.fabric.live_ports
    k, delay_s = job.network.ports_per_gpu, job.network.delay_s
    port_of = live[: len(ranks) * k]
    gpu_port = np.full(n_ports, -1)
    gpu_port[port_of] = np.arange(len(port_of))
    stops_s = starts[1:] if job.network.switching == "all-stop" else starts[:0]
    return Rail(number, ranks, timeline, since, until, port_of, gpu_port, k, stops_s, delay_s)

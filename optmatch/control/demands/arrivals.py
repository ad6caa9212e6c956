"""A rolling schedule fed with flows that arrive at times of their own, and how long they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.control.demands.rolling import Aim, RollingSchedule, Slot
from optmatch.control.demands.rolling_state import TICKS_PER_S
from optmatch.control.figures import Call
from optmatch.fabrics import Fabric, IdealSwitch
from optmatch.io.matrices import FlowList
from optmatch.model import InputError, brief_tuple
from optmatch.model.schedule import Switching


@brief_tuple
class FlowReplay(NamedTuple):
    """The completion times of flows that a rolling schedule has served."""

    flows: FlowList
    """The flows, in the order of their arrival."""
    completion_s: NDArray[np.float64]
    """``completion_s[flow]``: when the last byte was carried, in seconds."""
    slots: tuple[Slot, ...]
    """All slots, in the order in which they were committed."""
    figures: dict[str, Any]
    """What `RollingSchedule.figures` returns at the end; each flow counts as a demand."""

    @property
    def wait_s(self) -> NDArray[np.float64]:
        """``wait_s[flow]``: from its arrival to its last byte, in seconds."""
        return np.asarray(self.completion_s - self.flows.time_s)

    @property
    def coflow_wait_s(self) -> NDArray[np.float64]:
        """``coflow_wait_s[coflow]``: from its first arrival to its last byte, in seconds.

        A coflow of which there is no flow has 0.
        """
        n_coflows = int(self.flows.coflow.max(initial=-1)) + 1
        arrival_s = np.full(n_coflows, np.inf)
        completion_s = np.full(n_coflows, -np.inf)
        np.minimum.at(arrival_s, self.flows.coflow, self.flows.time_s)
        np.maximum.at(completion_s, self.flows.coflow, self.completion_s)
        has_flows = np.isfinite(arrival_s)
        wait_s = np.zeros(n_coflows)
        wait_s[has_flows] = completion_s[has_flows] - arrival_s[has_flows]
        return wait_s


def replay_flows(
    flows: FlowList,
    delay_s: float,
    *,
    fabric: Fabric | None = None,
    rate_bytes_per_s: float = 1.0,
    time_limit_s: float | None = 0.005,
    aim: Aim = "wait",
    planes: int = 1,
    switching: Switching = "all-stop",
    packet_bytes_per_s: float = 0.0,
    on_event: Callable[[Call], None] | None = None,
) -> FlowReplay:
    """Let flows arrive at their times, and serve them by a rolling schedule to the last byte.

    Each slot is chosen when a plane becomes free, by what has arrived until then.

    Parameters
    ----------
    flows
        The flows, as `optmatch.io.read_flows` returns them. Flows of several coflows may want the
        same ports.
    delay_s
        The reconfiguration delay, in seconds.
    fabric
        The switch; None for the ideal one with the ports and names of the flows.
    rate_bytes_per_s, time_limit_s, aim, planes, switching, packet_bytes_per_s, on_event
        As of `RollingSchedule`.

    Returns
    -------
    FlowReplay
        When each flow was complete, and the slots.

    Raises
    ------
    InputError
        If the fabric has fewer ports than the flows, or cannot connect two of them; or as of
        `RollingSchedule`.

    See Also
    --------
    RollingSchedule : The same, one call at a time.
    optmatch.simulate : The replay of a schedule that is made already.

    Examples
    --------
    >>> import numpy as np
    >>> from optmatch.io.matrices import FlowList
    >>> flows = FlowList(
    ...     time_s=np.array([0.0, 1.0]), source=np.array([0, 0]), destination=np.array([1, 1]),
    ...     size_bytes=np.array([3.0, 2.0]), coflow=np.array([0, 0]), n_ports=2, names=None,
    ... )
    >>> replay = replay_flows(flows, delay_s=0.5)
    >>> replay.completion_s.tolist(), replay.wait_s.tolist(), replay.coflow_wait_s.tolist()
    ([3.5, 5.5], [3.5, 4.5], [5.5])
    """
    switch = IdealSwitch(max(1, flows.n_ports), flows.names) if fabric is None else fabric
    if switch.n_ports < flows.n_ports:
        raise InputError(
            f"flows of {flows.n_ports} ports, the fabric has {switch.n_ports}", where="fabric"
        )
    rolling = RollingSchedule(
        switch,
        delay_s,
        rate_bytes_per_s=rate_bytes_per_s,
        time_limit_s=time_limit_s,
        aim=aim,
        planes=planes,
        switching=switching,
        packet_bytes_per_s=packet_bytes_per_s,
        on_event=on_event,
    )

    # Flows without bytes are complete when they come, and no flows to the schedule, which numbers
    # as demands only those that it gets.
    completion_s = flows.time_s.astype(np.float64)
    flow_of_demand: list[int] = []
    completions = rolling.record_completions()
    slots: list[Slot] = []
    arrivals_s = flows.time_s.tolist()
    n_arrived = 0
    while True:
        # A slot is chosen when a plane becomes free. If nothing waits, the clock goes on to the
        # next arrival.
        slot = rolling.next_slot()
        if slot is not None:
            slots.append(slot)
            until_s = max(rolling.now_s, rolling.next_free_s)
        elif n_arrived < len(arrivals_s):
            until_s = max(rolling.now_s, arrivals_s[n_arrived])
        else:
            break

        # Each flow is added when the clock shows the time of its arrival. A deadline that is
        # infinite is none, and without weights all flows have the weight 1.
        while n_arrived < len(arrivals_s) and arrivals_s[n_arrived] <= until_s:
            flow = n_arrived
            n_arrived += 1
            rolling.advance(max(rolling.now_s, arrivals_s[flow]))
            size_bytes = float(flows.size_bytes[flow])
            if size_bytes == 0:
                continue
            deadline_s = None
            if flows.deadline_s is not None and np.isfinite(flows.deadline_s[flow]):
                deadline_s = float(flows.deadline_s[flow])

            rolling.add(
                int(flows.source[flow]),
                int(flows.destination[flow]),
                size_bytes,
                weight=1.0 if flows.weight is None else float(flows.weight[flow]),
                deadline_s=deadline_s,
            )
            flow_of_demand.append(flow)
        rolling.advance(until_s)

    # Nothing comes any more, and committed slots serve all that waits.
    rolling.advance(max([rolling.now_s, *(slot.end_s for slot in slots[-rolling.planes :])]))
    for demand, tick in completions:
        completion_s[flow_of_demand[demand]] = tick / TICKS_PER_S
    return FlowReplay(flows, completion_s, tuple(slots), rolling.figures())

"""The replay of a schedule in time: flows, queued demand, and demand that is left over."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics.fabric import find_staying
from optmatch.model import IDLE, Amount, Axes, InputError, Schedule, Solution, Value, write_amount
from optmatch.model.declarations import form_of
from optmatch.model.display import html_summary
from optmatch.problems import Demand, PlaneSchedules, RailJob
from optmatch.problems.topologies import schedules_of

_EPSILON = 1e-9
"""A remainder below this share of its own demand is a rounding error."""
_CLOCK_EPSILON = 1e-12
"""So is one below this share of the time until the last slot ends."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation(Value):
    """What happened.

    Parameters
    ----------
    flow_completion_s
        ``flow_completion_s[source, destination]``: when the last byte was carried, in seconds; 0
        without demand, -1 if it never was.
    left_bytes
        ``left_bytes[source, destination]``: what was not carried.
    circuit_bytes, packet_bytes
        How much went over circuits and over the packet network.
    makespan_s
        The end of the last slot, in seconds.
    completion_s
        When the last flow was complete, or the makespan if that is later; in seconds.
    busy
        ``busy[source]``: the part of its planes' time up to `makespan_s` for which a port was
        sending.
    reconfiguring
        The part of all planes' time up to `makespan_s` that is spent in reconfigurations.
    times_s
        When something changed: starts and ends of slots, in seconds, ascending, from 0.
    queue_bytes
        ``queue_bytes[event, source]``: the bytes that wait at each of these times.
    """

    flow_completion_s: Annotated[NDArray[np.float64], Axes(2)]
    left_bytes: Annotated[NDArray[np.float64], Axes(2)]
    circuit_bytes: Amount
    packet_bytes: Amount
    makespan_s: Amount
    completion_s: Amount
    busy: NDArray[np.float64]
    reconfiguring: Amount
    times_s: NDArray[np.float64]
    queue_bytes: Annotated[NDArray[np.float64], Axes(2)]

    @property
    def complete(self) -> bool:
        """Whether all demand was carried."""
        return not self.left_bytes.any()

    def _repr_html_(self) -> str:
        """Show the replay in Jupyter: whether all was carried, and its main figures."""
        figures = {
            "completion": write_amount(self.completion_s, "s"),
            "makespan": write_amount(self.makespan_s, "s"),
            "over circuits": write_amount(self.circuit_bytes, "B"),
            "over the packet network": write_amount(self.packet_bytes, "B"),
            "left over": write_amount(float(self.left_bytes.sum()), "B"),
            "time in reconfigurations": f"{self.reconfiguring:.2%}",
            "ports sending, on average": f"{self.busy.mean():.2%}",
        }
        title = "all demand was carried" if self.complete else "demand is left over"
        return html_summary(title, figures)


def simulate(
    problem: Demand | Solution, subject: Schedule | PlaneSchedules | Solution | None = None
) -> Simulation:
    """Measure how long schedules take to carry a demand, and what they leave over.

    A demand says how many bytes each source port has for each destination port. A schedule is a
    row of slots: a matching of ports, held for some time, then a delay without light in which the
    next one is set. A plane is one switch; planes work side by side, each by its own schedule.

    Parameters
    ----------
    problem
        The demand, with rate, delay, kind of switching and packet network; they may differ from
        those that the schedule was made for. A solution alone is one of its own problem.
    subject
        The matching of each plane over time: durations are its own, the rest is the problem's.

    Returns
    -------
    Simulation
        For each pair of ports when its last byte has gone in seconds (-1: never) and the bytes
        left over; the bytes over circuits and over the packet network; the shares of time in which
        ports send and switches are set; and what waits at each source in time. A schedule that
        leaves demand over is replayed, too.

    Raises
    ------
    InputError
        If `subject` holds no schedule, or one of another number of ports.

    Notes
    -----
    Traffic is a fluid. Circuits send at full rate while there is something to send; where several
    planes hold the same circuit, their rates add up. The demand that circuits will never carry
    goes over the packet network from the beginning, all flows at constant rates that fill its
    busiest port, so all end at once. Light is not followed through cells: `verify` does that.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> problem = Demand(IdealSwitch(2), [[0, 3], [2, 0]], delay_s=1.0)
    >>> outcome = simulate(problem, problem.schedule([[1, 0]], [3]))
    >>> outcome.complete, outcome.completion_s, outcome.flow_completion_s.tolist()
    (True, 4.0, [[0.0, 4.0], [3.0, 0.0]])
    >>> import optmatch as om
    >>> om.simulate(om.solve(problem, seed=0)).complete
    True
    """
    demand: Any = problem
    if isinstance(problem, Solution) and subject is None:
        demand = problem.problem
        subject = problem
    if isinstance(demand, RailJob):
        raise InputError("a rail job: `simulate_rails` simulates its step", where="problem")
    form_of(Demand).check("problem", demand)
    return _replay(demand, _list_schedules(demand, subject))


def _replay(problem: Demand, schedules: Sequence[Schedule]) -> Simulation:
    """Replay the schedule of each plane, as `simulate` does.

    What no circuit will ever carry is found first, since it waits for the packet network from the
    beginning; then the rest is replayed segment by segment.
    """
    rate = problem.rate_bytes_per_s

    # Demand is counted in seconds that one circuit takes for it: 6 GB at 2 GB/s are 3 s. A segment
    # is a time in which no circuit changes. ``left_s[source, destination]`` is what no circuit of
    # the schedules will ever carry: what is missing beyond rounding errors, and a demand below
    # these whose circuit is never set.
    demand_s = problem.demand_bytes / rate
    ends_s = [
        float(schedule.durations_s.sum()) + problem.delay_s * schedule.n_slots
        for schedule in schedules
    ]
    makespan_s = max(ends_s)
    tolerance_s = _EPSILON * demand_s + _CLOCK_EPSILON * makespan_s
    served_s = np.zeros_like(demand_s)
    for segment in _list_segments(problem, schedules):
        np.add.at(served_s.reshape(-1), segment.circuits, segment.end_s - segment.start_s)
    is_left = (demand_s - served_s > tolerance_s) | ((demand_s > 0) & (served_s == 0))
    left_s = np.where(is_left, demand_s - served_s, 0.0)
    over_circuits_s = demand_s - left_s

    # Replay the rest segment by segment: what remains of each flow (a pair of ports), when it was
    # complete, and at some times what waits at each source.
    n_ports = problem.fabric.n_ports
    remaining_s = over_circuits_s.reshape(-1).copy()
    complete_s = np.zeros(len(remaining_s))
    event_s = [0.0]
    waiting_s = [over_circuits_s.sum(axis=1)]
    for start_s, end_s, circuits in _list_segments(problem, schedules):
        # A circuit of two planes is listed twice, and sends twice as fast: of 5 s of demand it
        # sends 4 s in a segment of 2 s. A rest as small as a rounding error counts as sent.
        flows, n_planes = np.unique(circuits, return_counts=True)
        before_s = remaining_s[flows]
        sent_s = np.minimum(before_s, n_planes * (end_s - start_s))
        after_s = before_s - sent_s
        after_s[after_s <= tolerance_s.reshape(-1)[flows]] = 0.0
        remaining_s[flows] = after_s

        # Flows that have sent all now: when, in the middle of the segment perhaps.
        is_complete = (before_s > 0) & (after_s == 0)
        duration_s = sent_s[is_complete] / n_planes[is_complete]
        complete_s[flows[is_complete]] = start_s + duration_s

        # Queues are constant until the segment starts, and fall until it ends.
        if start_s > event_s[-1]:
            event_s.append(start_s)
            waiting_s.append(waiting_s[-1])
        sent_by_source_s = np.bincount(flows // n_ports, before_s - after_s, minlength=n_ports)
        event_s.append(end_s)
        waiting_s.append(np.maximum(waiting_s[-1] - sent_by_source_s, 0.0))

    # The packet network, if there is one, carries what is left; its busiest port decides. With
    # half the rate of a circuit (a share of 0.5) it needs 6 s for a port that is left with 3 s.
    packet_end_s = 0.0
    lost_s = left_s
    if problem.packet_bytes_per_s > 0 and left_s.any():
        busiest_port_s = float(max(left_s.sum(axis=0).max(), left_s.sum(axis=1).max()))
        packet_end_s = busiest_port_s / problem.packet_share
        lost_s = np.zeros_like(left_s)
    completion_s = complete_s.reshape(n_ports, n_ports)
    completion_s = np.where(left_s > 0, np.maximum(completion_s, packet_end_s), completion_s)

    # Queues are linear between two events. Demand for the packet network waits there, too.
    times_s = np.array(event_s)
    queue_s = np.array(waiting_s)
    if packet_end_s > times_s[-1]:
        times_s = np.append(times_s, packet_end_s)
        queue_s = np.vstack([queue_s, queue_s[-1:]])
    packet_share = np.ones_like(times_s)  # of what is left, how much waits at each time
    if packet_end_s:
        packet_share = np.maximum(1.0 - times_s / packet_end_s, 0.0)
    queue_s = queue_s + packet_share[:, None] * left_s.sum(axis=1)

    # Shares of time are of the time of all planes until the last one ends.
    n_slots = sum(schedule.n_slots for schedule in schedules)
    plane_time_s = makespan_s * len(schedules) or 1.0
    return Simulation(
        flow_completion_s=np.where(lost_s > 0, -1.0, completion_s),
        left_bytes=lost_s * rate,
        circuit_bytes=float(over_circuits_s.sum()) * rate,
        packet_bytes=float((left_s - lost_s).sum()) * rate,
        makespan_s=makespan_s,
        completion_s=max(makespan_s, packet_end_s),
        busy=over_circuits_s.sum(axis=1) / plane_time_s,
        reconfiguring=n_slots * problem.delay_s / plane_time_s,
        times_s=times_s,
        queue_bytes=queue_s * rate,
    )


class _Segment(NamedTuple):
    """A stretch of time in which the same circuits send."""

    start_s: float
    end_s: float
    circuits: NDArray[np.int64]
    """The circuits as ``source * ports + destination``; one of several planes is there twice."""


def _list_schedules(
    problem: Demand, subject: Schedule | PlaneSchedules | Solution | None
) -> Sequence[Schedule]:
    """List the schedule of each plane of a schedule, of several, or of a solution.

    Other numbers of ports than those of the problem are an InputError.
    """
    answer: object = subject
    if isinstance(subject, Solution):
        answer = subject.schedule or subject.answer
    schedules = schedules_of(answer)
    for schedule in schedules:
        if schedule.n_ports != problem.fabric.n_ports:
            raise InputError(
                f"a schedule of {schedule.n_ports} ports, the demand has {problem.fabric.n_ports}",
                where="schedule",
            )
    return schedules


def _list_segments(problem: Demand, schedules: Sequence[Schedule]) -> Iterator[_Segment]:
    """Yield the segments of time in which no circuit changes on any plane.

    ``schedules[plane]``; times are in seconds. Those in which nothing sends are left out::

        plane 0:   0 to 10 s circuits A    15 to 24 s circuits B
        plane 1:   0 to 6 s circuits C     10 to 24 s circuits D
        segments:  0 to 6 s A and C, 6 to 10 s A, 10 to 15 s D, 15 to 24 s B and D
    """
    planes = [list(_list_plane_segments(problem, schedule)) for schedule in schedules]

    # Between two neighbouring times at which some plane changes, all circuits stay. Of each plane
    # the last segment that has begun by then counts, unless it has ended.
    ends = {(segment.start_s, segment.end_s) for plane in planes for segment in plane}
    changes_s = sorted({time_s for pair in ends for time_s in pair})
    for start_s, end_s in pairwise(changes_s):
        circuits = []
        for segments in planes:
            place = bisect_right(segments, start_s, key=lambda segment: segment.start_s) - 1
            if place >= 0 and segments[place].end_s > start_s:
                circuits.append(segments[place].circuits)
        if circuits:
            yield _Segment(start_s, end_s, np.concatenate(circuits))


def _list_plane_segments(problem: Demand, schedule: Schedule) -> Iterator[_Segment]:
    """Yield when the circuits of one plane send.

    With per-circuit switching, those that a slot keeps send during its delay, too.
    """
    n_ports = problem.fabric.n_ports
    now_s = 0.0
    matchings = schedule.matchings
    stays = find_staying(problem.fabric, matchings, schedule.cell_states)
    durations_s = schedule.durations_s.tolist()
    for matching, is_kept, duration_s in zip(matchings, stays, durations_s, strict=True):
        sources = np.flatnonzero(matching != IDLE)
        light_s = now_s + problem.delay_s
        # A circuit is the number source * ports + destination.
        kept_sources = np.flatnonzero(is_kept)
        if problem.switching == "per-circuit" and light_s > now_s and len(kept_sources):
            yield _Segment(now_s, light_s, kept_sources * n_ports + matching[kept_sources])
        now_s = light_s + duration_s
        yield _Segment(light_s, now_s, sources * n_ports + matching[sources])

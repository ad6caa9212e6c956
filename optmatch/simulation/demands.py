"""The replay of a schedule in time: flows, waiting demand, and the rest that is left over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Amount, Axes, InputError, Schedule, Solution, Value
from optmatch.model.declarations import form_of
from optmatch.model.display import html_summary
from optmatch.model.problem import write_amount
from optmatch.problems import Demand, PlaneSchedules

__path__: list[str] = []  # so that the former name below this module is looked up

EPSILON = 1e-9
"""A rest of a demand below this share of the largest one is rounding."""


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


def simulate(problem: Demand, subject: Schedule | PlaneSchedules | Solution) -> Simulation:
    """Replay schedules against a demand, event by event.

    Parameters
    ----------
    problem
        The demand, with rate, delay, kind of switching and packet network; they may differ from
        those that the schedule was made for.
    subject
        The matching of each plane over time: durations are its own, the rest is the problem's.

    Returns
    -------
    Simulation
        The replay also takes a schedule that leaves demand over.

    Raises
    ------
    InputError
        If `subject` holds no schedule, or one of another number of ports.

    Notes
    -----
    Traffic is a fluid. Circuits send at full rate while there is something to send; where several
    planes hold the same circuit, their rates add up. The demand that circuits will never carry
    goes over the packet network from the beginning, all flows at constant rates that fill its
    busiest port, so all end at once.

    Examples
    --------
    >>> from optmatch.fabrics import IdealSwitch
    >>> problem = Demand(IdealSwitch(2), [[0, 3], [2, 0]], delay_s=1.0)
    >>> outcome = simulate(problem, problem.schedule([[1, 0]], [3]))
    >>> outcome.complete, outcome.completion_s, outcome.flow_completion_s.tolist()
    (True, 4.0, [[0.0, 4.0], [3.0, 0.0]])
    """
    form_of(Demand).check("problem", problem)
    schedules = _schedules(problem, subject)
    asked = problem.demand_bytes / problem.rate_bytes_per_s  # in seconds of a circuit
    tolerance = EPSILON * float(asked.max(initial=0.0))
    held = np.zeros_like(asked)
    for start, end, circuits in _segments(problem, schedules):
        np.add.at(held.reshape(-1), circuits, end - start)
    left = np.where(asked - held > tolerance, asked - held, 0.0)
    replay = _Replay(asked - left, tolerance)
    for start, end, circuits in _segments(problem, schedules):
        replay.run(start, end, circuits)

    packets_s, lost = 0.0, left
    if problem.packet_bytes_per_s > 0 and left.any():
        busiest = float(max(left.sum(axis=0).max(), left.sum(axis=1).max()))
        packets_s, lost = busiest / problem.packet_share, np.zeros_like(left)
    finished = np.where(left > 0, np.maximum(replay.finished, packets_s), replay.finished)
    ends = [float(each.durations_s.sum()) + problem.delay_s * each.n_slots for each in schedules]
    makespan, rate = max(ends), problem.rate_bytes_per_s
    available = makespan * len(schedules)
    slots = sum(schedule.n_slots for schedule in schedules)
    times, queues = replay.history(left, packets_s)
    return Simulation(
        flow_completion_s=np.where(lost > 0, -1.0, finished),
        left_bytes=lost * rate,
        circuit_bytes=float((asked - left).sum()) * rate,
        packet_bytes=float((left - lost).sum()) * rate,
        makespan_s=makespan,
        completion_s=max(makespan, packets_s),
        busy=(asked - left).sum(axis=1) / (available or 1.0),
        reconfiguring=slots * problem.delay_s / (available or 1.0),
        times_s=times,
        queue_bytes=queues * rate,
    )


class _Replay:
    """Flows on their way: what remains for circuits, and when each was complete."""

    def __init__(self, planned: NDArray[np.float64], tolerance: float) -> None:
        self.n_ports = len(planned)
        self.tolerance = tolerance
        self.remaining = planned.reshape(-1).copy()
        self.finished = np.zeros_like(planned)
        self.times = [0.0]
        self.waiting = [planned.sum(axis=1)]

    def run(self, start: float, end: float, circuits: NDArray[np.int64]) -> None:
        """Send from `start` to `end`; a circuit that is there twice sends twice as fast."""
        flows, lanes = np.unique(circuits, return_counts=True)
        before = self.remaining[flows]
        sent = np.minimum(before, lanes * (end - start))
        after = before - sent
        after[after <= self.tolerance] = 0.0
        done = (before > 0) & (after == 0)
        self.finished.reshape(-1)[flows[done]] = start + sent[done] / lanes[done]
        self.remaining[flows] = after
        if start > self.times[-1]:
            self.times.append(start)
            self.waiting.append(self.waiting[-1])
        gone = np.bincount(flows // self.n_ports, before - after, minlength=self.n_ports)
        self.times.append(end)
        self.waiting.append(np.maximum(self.waiting[-1] - gone, 0.0))

    def history(
        self, left: NDArray[np.float64], packets_s: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the bytes that wait at each event, for circuits and packets together."""
        times, waiting = np.array(self.times), np.array(self.waiting)
        if packets_s > times[-1]:
            times, waiting = np.append(times, packets_s), np.vstack([waiting, waiting[-1:]])
        share = np.ones_like(times)
        if packets_s:
            share = np.maximum(1.0 - times / packets_s, 0.0)
        return times, waiting + share[:, None] * left.sum(axis=1)


def _schedules(
    problem: Demand, subject: Schedule | PlaneSchedules | Solution
) -> Sequence[Schedule]:
    answer = subject.schedule or subject.answer if isinstance(subject, Solution) else subject
    if isinstance(answer, PlaneSchedules):
        schedules: Sequence[Schedule] = answer.schedules
    elif isinstance(answer, Schedule):
        schedules = (answer,)
    else:
        raise InputError("there is no schedule to simulate", where="schedule")
    for schedule in schedules:
        if schedule.n_ports != problem.fabric.n_ports:
            raise InputError(
                f"a schedule of {schedule.n_ports} ports, the demand has {problem.fabric.n_ports}",
                where="schedule",
            )
    return schedules


Segment = tuple[float, float, NDArray[np.int64]]
"""The circuits that send over time, as ``source * ports + destination``."""


def _segments(problem: Demand, schedules: Sequence[Schedule]) -> Iterator[Segment]:
    """Cut time where any plane changes."""
    if len(schedules) == 1:
        yield from _sending(problem, schedules[0])
        return
    planes = [list(_sending(problem, schedule)) for schedule in schedules]
    cuts = sorted({time for plane in planes for part in plane for time in part[:2]})
    at = [0] * len(planes)
    for start, end in pairwise(cuts):
        active = []
        for k, plane in enumerate(planes):
            while at[k] < len(plane) and plane[at[k]][1] <= start:
                at[k] += 1
            if at[k] < len(plane) and plane[at[k]][0] <= start:
                active.append(plane[at[k]][2])
        if active:
            yield start, end, np.concatenate(active)


def _sending(problem: Demand, schedule: Schedule) -> Iterator[Segment]:
    """List when the circuits of one plane send, in order; per circuit also during delays."""
    n_ports = problem.fabric.n_ports
    now, before = 0.0, np.full(n_ports, IDLE)
    for matching, duration in zip(schedule.matchings, schedule.durations_s.tolist(), strict=True):
        sources = np.flatnonzero(matching != IDLE)
        ready = now + problem.delay_s
        stayed = sources[matching[sources] == before[sources]]
        if problem.switching == "per-circuit" and ready > now and len(stayed):
            yield now, ready, stayed * n_ports + matching[stayed]
        now = ready + duration
        yield ready, now, sources * n_ports + matching[sources]
        before = matching

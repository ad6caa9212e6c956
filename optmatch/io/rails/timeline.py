"""Timelines: operations, circuits, reconfigurations with their times, as CSV and for Perfetto."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from optmatch.io.rails.topologies import Topologies, answer_of, topologies
from optmatch.io.text import csv_text
from optmatch.model import Solution
from optmatch.problems import Demand, RailJob, Step
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import COMPUTE, OPERATIONS, SEND

_NS_PER_S = 1e9


class Span(NamedTuple):
    """Something that lasts; empty where a column does not apply."""

    what: str
    """``"operation"``, ``"circuit"`` or ``"reconfiguration"``."""
    name: str
    group: str
    rank: int | str
    peer: int | str
    switch: str
    start_s: float
    end_s: float
    size_bytes: float | str
    via: str = ""
    """The ranks that forward it, in order."""
    port_name: str = ""
    """The name of the port where a circuit begins; its number if it has none. In no table."""


_COLUMNS = tuple(field for field in Span._fields if field != "port_name")
"""The columns of tables: the names of both ports of a circuit stand in its name."""


def spans(solution: Solution) -> Iterator[Span]:
    """List the events of an answer: of rails operations, of other schedules circuits.

    First comes what ranks do, rank by rank, or the circuits, slot by slot; then the
    reconfigurations of each switch. Begin and end are in seconds.
    """
    answer = answer_of(solution)
    system = topologies(solution)
    if isinstance(answer, RailPlan) and isinstance(solution.problem, RailJob):
        yield from _operation_spans(solution.problem.step(), answer)
    else:
        fabric = solution.problem.fabric
        labels = () if fabric is None else fabric.labels
        circuits = _circuit_spans(system, labels)
        if isinstance(solution.problem, Demand) and not solution.problem.packet_bytes_per_s:
            yield from _with_bytes(circuits, solution.problem)
        else:
            yield from circuits

    for switch in system.switches:
        times_s = zip(switch.starts_s.tolist(), switch.ready_s.tolist(), strict=True)
        for state, (start_s, ready_s) in enumerate(times_s):
            if ready_s > start_s:
                yield Span(
                    what="reconfiguration",
                    name=f"to state {state}",
                    group="",
                    rank="",
                    peer="",
                    switch=switch.name,
                    start_s=start_s,
                    end_s=ready_s,
                    size_bytes="",
                )


def timeline_csv(solution: Solution) -> str:
    """Write the events of an answer as CSV with a line of names; times are in seconds."""
    rows = ([getattr(span, column) for column in _COLUMNS] for span in spans(solution))
    return csv_text([_COLUMNS, *rows])


def trace_events(solution: Solution) -> str:
    """Write `spans` in the trace event format that ui.perfetto.dev and chrome://tracing load.

    A process for each rank, with a thread for what it computes and one for each of its streams of
    communication; a process for each switch. Events that overlap are on threads of their own.
    Arrows lead from sends to receives. Times are microseconds, in whole nanoseconds.
    """
    write = json.JSONEncoder(separators=(",", ":")).encode
    lines = ",\n".join(map(write, _events(solution)))
    return f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n'


def _operation_spans(step: Step, plan: RailPlan) -> Iterator[Span]:
    """Yield what the ranks of a job do, rank by rank.

    Communication has its group, the rail, its size in bytes and the ranks that forward it
    (``plan.relays``: rows of operation, rank and ports), and a message the other rank.
    """
    # By operation the ranks that forward it. Columns that a kind of operation does not have stay
    # empty.
    forwarders: dict[int, list[str]] = {}
    for operation, rank, _ in plan.relays.tolist():
        forwarders.setdefault(operation, []).append(str(rank))
    for operation in range(step.n_operations):
        kind = int(step.kind[operation])
        span = Span(
            what="operation",
            name=OPERATIONS[kind],
            group="",
            rank=int(step.rank[operation]),
            peer="",
            switch="",
            start_s=float(plan.start_s[operation]),
            end_s=float(plan.end_s[operation]),
            size_bytes="",
            via=" ".join(forwarders.get(operation, ())),
        )
        if kind != COMPUTE:
            group = step.groups[step.group[operation]]
            span = span._replace(
                group=group.name,
                switch=f"rail {group.rail}" if group.rail >= 0 else "",
                size_bytes=float(step.size_bytes[operation]),
            )
        if kind >= SEND:
            span = span._replace(peer=int(step.peer[operation]))
        yield span


def _circuit_spans(system: Topologies, labels: tuple[str, ...]) -> Iterator[Span]:
    """Yield the circuits of each switch, state by state, from when they are up to its end.

    Nodes beyond `labels` have their number as name.
    """
    names = [*labels, *map(str, range(len(labels), system.n_nodes))]
    for switch in system.switches:
        times_s = zip(switch.ready_s.tolist(), switch.ends_s.tolist(), strict=True)
        for state, (start_s, end_s) in enumerate(times_s):
            for source, destination, _, _ in switch.circuits(state).tolist():
                yield Span(
                    what="circuit",
                    name=f"{names[source]} to {names[destination]}",
                    group="",
                    rank=source,
                    peer=destination,
                    switch=switch.name,
                    start_s=start_s,
                    end_s=end_s,
                    size_bytes="",
                    port_name=names[source],
                )


def _with_bytes(circuits: Iterable[Span], demand: Demand) -> list[Span]:
    """State what each circuit of a demand carries: what is left, and as much as it has time for.

    Circuits that are up at the same time on several planes take turns by their begin.
    """
    spans_with_bytes = list(circuits)
    left_bytes = demand.demand_bytes.copy()
    for place in sorted(range(len(spans_with_bytes)), key=lambda k: spans_with_bytes[k].start_s):
        span = spans_with_bytes[place]
        room_bytes = (span.end_s - span.start_s) * demand.rate_bytes_per_s
        pair = (int(span.rank), int(span.peer))
        size_bytes = min(float(left_bytes[pair]), room_bytes)
        left_bytes[pair] -= size_bytes
        spans_with_bytes[place] = span._replace(size_bytes=size_bytes)
    return spans_with_bytes


class _Tracks:
    """The processes and threads of a trace of events; each gets its number when it is new."""

    def __init__(self) -> None:
        """Begin without processes and threads; `place` adds those that events need."""
        self._pid_of_process: dict[str, int] = {}
        self._tid_of_thread: dict[tuple[str, str], int] = {}
        self._busy_until_ns: dict[tuple[str, str], list[int]] = {}
        """For each track, when the last event ends on its thread and on those beside it."""

    def place(
        self, process: str, thread: str, start_ns: int, end_ns: int
    ) -> tuple[dict[str, int], list[dict[str, Any]]]:
        """Choose the thread of a process on which an event is drawn, so that none overlap.

        Returns the keys ``pid`` and ``tid`` of the event, and the events that name process and
        thread, if they are new. An event that would overlap another one on the thread "tp" goes to
        "tp (2)", or "tp (3)" if that is in use, too.
        """
        named = []
        if process not in self._pid_of_process:
            pid = len(self._pid_of_process) + 1
            self._pid_of_process[process] = pid
            named.append(_name_event("process_name", pid, 0, process))
            named.append(_name_event("process_sort_index", pid, 0, pid))
        pid = self._pid_of_process[process]

        # ``busy_until_ns[place]`` is when the last event ends on the thread itself (place 0) and
        # on those beside it. The first one that is free at the begin of the event is taken, else
        # a new one is added.
        busy_until_ns = self._busy_until_ns.setdefault((process, thread), [])
        free = [place for place, until_ns in enumerate(busy_until_ns) if until_ns <= start_ns]
        place = free[0] if free else len(busy_until_ns)
        busy_until_ns[place : place + 1] = [end_ns]
        if place > 0:
            thread = f"{thread} ({place + 1})"
        if (process, thread) not in self._tid_of_thread:
            tid = len(self._tid_of_thread) + 1
            self._tid_of_thread[process, thread] = tid
            named.append(_name_event("thread_name", pid, tid, thread))
        return {"pid": pid, "tid": self._tid_of_thread[process, thread]}, named


_Ends = tuple[object, object, str, str]
"""Sender, receiver, group and name of a message."""


def _events(solution: Solution) -> Iterator[dict[str, Any]]:
    """Yield a solution as the events of a trace that viewers such as Perfetto show.

    Slices ("ph": "X", with begin "ts" and duration "dur" in microseconds) come in the order of
    `spans`; before the first slice of a track comes an event that names the track. An arrow from
    each send to its receive comes at last.
    """
    # Times become whole nanoseconds first, so that what ends when something begins stays so.
    tracks = _Tracks()
    arrow_ends: dict[_Ends, list[dict[str, Any]]] = {}
    for span in spans(solution):
        start_ns = round(span.start_s * _NS_PER_S)
        end_ns = round(span.end_s * _NS_PER_S)
        process, thread = _choose_track(span)
        track, named = tracks.place(process, thread, start_ns, end_ns)
        yield from named
        arguments: dict[str, Any] = {
            "group": span.group,
            "switch": span.switch,
            "bytes": span.size_bytes,
            "via": span.via,
        }
        yield {
            "ph": "X",
            "name": span.name,
            "cat": span.what,
            **track,
            "ts": _microseconds(start_ns),
            "dur": _microseconds(end_ns - start_ns),
            "args": {key: value for key, value in arguments.items() if value != ""},
        }

        # Both ends of a message are kept: arrows join them when all slices are there.
        if span.name == "send":
            arrow_start = {**track, "ts": _microseconds(start_ns)}
            ends = (span.rank, span.peer, span.group, "send")
            arrow_ends.setdefault(ends, []).append(arrow_start)
        elif span.name == "recv":
            arrow_end = {**track, "ts": _microseconds(end_ns)}
            ends = (span.peer, span.rank, span.group, "recv")
            arrow_ends.setdefault(ends, []).append(arrow_end)
    yield from _arrows(arrow_ends)


def _microseconds(time_ns: int) -> float:
    """Convert so that viewers find the same nanosecond, also those that cut off what is below.

    The argument is a whole number of nanoseconds, the result is in microseconds. Perfetto cut off:
    1001 / 1e3 became 1000 ns, and a slice began before the last one had ended.
    """
    time_us = time_ns / 1e3
    return time_us if time_us * 1e3 >= time_ns else math.nextafter(time_us, math.inf)


def _arrows(arrow_ends: dict[_Ends, list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Join the k-th send between two ranks to the k-th receive, by an arrow of two events.

    `arrow_ends` has the tracks and times of the messages, by sender, receiver, group and
    ``"send"`` or ``"recv"``.
    """
    number = 0
    for (sender, receiver, group, name), starts in arrow_ends.items():
        if name != "send":
            continue
        ends = arrow_ends.get((sender, receiver, group, "recv"), [])
        for start, end in zip(starts, ends, strict=False):
            number += 1
            arrow = {"id": number, "name": "message", "cat": "message"}
            yield {"ph": "s", **arrow, **start}
            yield {"ph": "f", **arrow, **end, "bp": "e"}


def _choose_track(span: Span) -> tuple[str, str]:
    """Choose process and thread of an event, by their names.

    There is a process for each rank, switch or port; and a thread for what a rank computes, for
    each of its groups, and of messages for each other rank and direction.
    """
    if span.what == "reconfiguration":
        return span.switch, "reconfigurations"
    if span.what == "circuit":
        return f"port {span.port_name}", span.switch
    if not span.group:
        return f"rank {span.rank}", "compute"
    peer = f", {span.name} {span.peer}" if span.peer != "" else ""
    return f"rank {span.rank}", f"{span.group}{peer}"


def _name_event(what: str, pid: int, tid: int, value: str | int) -> dict[str, Any]:
    """Return an event that names a process or a thread, or says in which order it comes."""
    key = "sort_index" if what.endswith("index") else "name"
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {key: value}}


def tabulate(solution: Solution) -> dict[str, Any]:
    """List `spans` column by column: the table of a kind that has no other."""
    rows = list(spans(solution))
    return {column: [getattr(row, column) for row in rows] for column in _COLUMNS}

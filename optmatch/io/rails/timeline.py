"""Timelines: operations, circuits, reconfigurations with their times, as CSV and for Perfetto."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from optmatch.io.rails.topologies import Topologies, answer_of, topologies
from optmatch.io.text import as_cell
from optmatch.model import Solution
from optmatch.problems import RailJob, Step
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import COMPUTE, OPERATIONS, SEND

_NANO = 1e9


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


def spans(solution: Solution) -> Iterator[Span]:
    """List the events of an answer: of rails operations, of other schedules circuits.

    First what ranks do, rank by rank, or the circuits, slot by slot; then what switches do.
    """
    answer, found = answer_of(solution), topologies(solution)
    if isinstance(answer, RailPlan) and isinstance(solution.problem, RailJob):
        yield from _operations(solution.problem.step(), answer)
    else:
        fabric = solution.problem.fabric
        yield from _circuits(found, () if fabric is None else fabric.labels)
    for switch in found.switches:
        for state in range(len(switch.starts_s)):
            start, end = float(switch.starts_s[state]), float(switch.ready_s[state])
            if end > start:
                name = f"to state {state}"
                yield Span("reconfiguration", name, "", "", "", switch.name, start, end, "")


def timeline_csv(solution: Solution) -> str:
    """Write `spans` as CSV with a line of names; times in seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Span._fields)
    writer.writerows([as_cell(entry) for entry in span] for span in spans(solution))
    return text.getvalue()


def trace_events(solution: Solution) -> str:
    """Write `spans` in the trace event format that ui.perfetto.dev and chrome://tracing load.

    A process for each rank, with a thread for what it computes and one for each of its streams of
    communication; a process for each switch. Events that overlap are on threads of their own.
    Arrows lead from sends to receives. Times are microseconds, in whole nanoseconds.
    """
    write = json.JSONEncoder(separators=(",", ":")).encode
    lines = ",\n".join(map(write, _events(solution)))
    return f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n'


def _operations(step: Step, plan: RailPlan) -> Iterator[Span]:
    names = [group.name for group in step.groups]
    rails = [f"rail {group.rail}" if group.rail >= 0 else "" for group in step.groups]
    columns = (step.rank, step.kind, step.group, step.peer, step.size_bytes)
    times = (plan.start_s, plan.end_s)
    via: dict[int, list[str]] = {}
    for operation, rank, _ in plan.relays.tolist():
        via.setdefault(operation, []).append(str(rank))
    rows = zip(*(column.tolist() for column in (*columns, *times)), strict=True)
    for number, (rank, kind, group, peer, size, start, end) in enumerate(rows):
        communicates = kind != COMPUTE
        yield Span(
            what="operation",
            name=OPERATIONS[kind],
            group=names[group] if communicates else "",
            rank=rank,
            peer=peer if kind >= SEND else "",
            switch=rails[group] if communicates else "",
            start_s=start,
            end_s=end,
            size_bytes=size if communicates else "",
            via=" ".join(via.get(number, ())),
        )


def _circuits(found: Topologies, labels: tuple[str, ...]) -> Iterator[Span]:
    names = [*labels, *map(str, range(len(labels), found.n_nodes))]
    for switch in found.switches:
        for state in range(len(switch.starts_s)):
            start, end = float(switch.ready_s[state]), float(switch.ends_s[state])
            for source, destination, _, _ in switch.circuits(state).tolist():
                name = f"{names[source]} to {names[destination]}"
                yield Span("circuit", name, "", source, destination, switch.name, start, end, "")


def _events(solution: Solution) -> Iterator[dict[str, Any]]:
    processes: dict[str, int] = {}
    threads: dict[tuple[str, str], int] = {}
    busy_until: dict[tuple[str, str], list[float]] = {}
    flows: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for span in spans(solution):
        start, end = round(span.start_s * _NANO), round(span.end_s * _NANO)
        process, thread = _track(span)
        if process not in processes:
            processes[process] = len(processes) + 1
            yield _named("process_name", processes[process], 0, process)
            yield _named("process_sort_index", processes[process], 0, len(processes))
        pid = processes[process]
        # A viewer nests events that overlap on one thread, so such an event goes to a thread
        # beside it.
        beside = busy_until.setdefault((process, thread), [])
        k = next((k for k, until in enumerate(beside) if until <= start), len(beside))
        beside[k : k + 1] = [end]
        thread = f"{thread} ({k + 1})" if k else thread
        if (process, thread) not in threads:
            threads[process, thread] = len(threads) + 1
            yield _named("thread_name", pid, threads[process, thread], thread)
        track = {"pid": pid, "tid": threads[process, thread]}
        told: dict[str, Any] = {"group": span.group, "switch": span.switch}
        told |= {"bytes": span.size_bytes, "via": span.via}
        yield {
            "ph": "X",
            "name": span.name,
            "cat": span.what,
            **track,
            "ts": _microseconds(start),
            "dur": _microseconds(end - start),
            "args": {key: value for key, value in told.items() if value != ""},
        }
        if span.name in ("send", "recv"):
            sends = span.name == "send"
            ends = (span.rank, span.peer) if sends else (span.peer, span.rank)
            place = {**track, "ts": _microseconds(start if sends else end)}
            flows.setdefault((*ends, span.group, span.name), []).append(place)
    yield from _arrows(flows)


def _microseconds(time_ns: int) -> float:
    """Convert so that viewers find the same nanosecond, also those that cut off what is below.

    Perfetto did that: 1001 / 1e3 became 1000 ns, and a slice began before the last one had ended.
    """
    time_us = time_ns / 1e3
    return time_us if time_us * 1e3 >= time_ns else math.nextafter(time_us, math.inf)


def _arrows(flows: dict[tuple[object, ...], list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Join the k-th send between two ranks to the k-th receive."""
    number = 0
    for (*ends, way), sent in flows.items():
        received = flows.get((*ends, "recv"), []) if way == "send" else []
        for one, two in zip(sent, received, strict=False):
            number += 1
            told = {"id": number, "name": "message", "cat": "message"}
            yield {"ph": "s", **told, **one}
            yield {"ph": "f", **told, **two, "bp": "e"}


def _track(span: Span) -> tuple[str, str]:
    """Choose where a span is shown: its process and thread."""
    if span.what == "reconfiguration":
        return span.switch, "reconfigurations"
    if span.what == "circuit":
        return f"port {span.rank}", span.switch
    if not span.group:
        return f"rank {span.rank}", "compute"
    peer = f", {span.name} {span.peer}" if span.peer != "" else ""
    return f"rank {span.rank}", f"{span.group}{peer}"


def _named(what: str, pid: int, tid: int, value: str | int) -> dict[str, Any]:
    key = "sort_index" if what.endswith("index") else "name"
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {key: value}}


def tabulate(solution: Solution) -> dict[str, Any]:
    """List `spans` column by column: the table of a kind that has no other."""
    rows = list(spans(solution))
    return {name: [row[place] for row in rows] for place, name in enumerate(Span._fields)}

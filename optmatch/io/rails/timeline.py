"""Timelines: operations, circuits, reconfigurations with their times, as CSV and for Perfetto."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from optmatch.io.rails.topologies import Topologies, answer_of, topologies
from optmatch.io.text import as_cell
from optmatch.model import Solution
from optmatch.problems import RailJob, Step
from optmatch.problems.rails.plan import RailPlan
from optmatch.problems.rails.step import COMPUTE, OPERATIONS, SEND

_MICRO = 1e6


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
    """List what happens in an answer: of rails operations, of other schedules circuits.

    Parameters
    ----------
    solution
        With a schedule, a schedule for each plane, or the plan of a rail job.

    Yields
    ------
    Span
        First what ranks do, rank by rank, or the circuits, slot by slot; then what switches do.

    Raises
    ------
    InputError
        If there is no such answer.
    """
    answer, found = answer_of(solution), topologies(solution)
    if isinstance(answer, RailPlan) and isinstance(solution.problem, RailJob):
        yield from _operations(solution.problem.step(), answer)
    else:
        yield from _circuits(found)
    for switch in found.switches:
        for state in range(len(switch.starts_s)):
            start, end = float(switch.starts_s[state]), float(switch.ready_s[state])
            if end > start:
                name = f"to state {state}"
                yield Span("reconfiguration", name, "", "", "", switch.name, start, end, "")


def timeline_csv(solution: Solution) -> str:
    """Write `spans` as CSV with a line of names; times in seconds.

    Raises
    ------
    InputError
        If there is neither a schedule nor a plan of rails.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Span._fields)
    writer.writerows([as_cell(entry) for entry in span] for span in spans(solution))
    return text.getvalue()


def trace_events(solution: Solution) -> str:
    """Write `spans` in the trace event format that ui.perfetto.dev and chrome://tracing load.

    A process for each rank, with a thread for what it computes and one for each of its streams of
    communication; a process for each switch. Arrows lead from sends to receives. Times are
    microseconds.

    Raises
    ------
    InputError
        If there is neither a schedule nor a plan of rails.
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
        talks = kind != COMPUTE
        yield Span(
            what="operation",
            name=OPERATIONS[kind],
            group=names[group] if talks else "",
            rank=rank,
            peer=peer if kind >= SEND else "",
            switch=rails[group] if talks else "",
            start_s=start,
            end_s=end,
            size_bytes=size if talks else "",
            via=" ".join(via.get(number, ())),
        )


def _circuits(found: Topologies) -> Iterator[Span]:
    for switch in found.switches:
        for state in range(len(switch.starts_s)):
            start, end = float(switch.ready_s[state]), float(switch.ends_s[state])
            for source, destination, _, _ in switch.circuits(state).tolist():
                name = f"{source} to {destination}"
                yield Span("circuit", name, "", source, destination, switch.name, start, end, "")


def _events(solution: Solution) -> Iterator[dict[str, Any]]:
    processes: dict[str, int] = {}
    threads: dict[tuple[str, str], int] = {}
    flows: dict[tuple[object, ...], list[tuple[int, int, float]]] = {}
    for span in spans(solution):
        process, thread = _track(span)
        if process not in processes:
            processes[process] = len(processes) + 1
            yield _named("process_name", processes[process], 0, process)
            yield _named("process_sort_index", processes[process], 0, len(processes))
        pid = processes[process]
        if (process, thread) not in threads:
            threads[process, thread] = len(threads) + 1
            yield _named("thread_name", pid, threads[process, thread], thread)
        tid = threads[process, thread]
        start, end = span.start_s * _MICRO, span.end_s * _MICRO
        told: dict[str, Any] = {"group": span.group, "switch": span.switch}
        told |= {"bytes": span.size_bytes, "via": span.via}
        yield {
            "ph": "X",
            "name": span.name,
            "cat": span.what,
            "pid": pid,
            "tid": tid,
            "ts": round(start, 4),
            "dur": max(0.0, round(end - start, 4)),
            "args": {key: value for key, value in told.items() if value != ""},
        }
        if span.name in ("send", "recv"):
            ends = (span.rank, span.peer) if span.name == "send" else (span.peer, span.rank)
            key = (*ends, span.group, span.name)
            flows.setdefault(key, []).append((pid, tid, start if span.name == "send" else end))
    yield from _arrows(flows)


def _arrows(
    flows: dict[tuple[object, ...], list[tuple[int, int, float]]],
) -> Iterator[dict[str, Any]]:
    """Join the k-th send between two ranks to the k-th receive."""
    number = 0
    for (*ends, way), sent in flows.items():
        if way != "send":
            continue
        for one, two in zip(sent, flows.get((*ends, "recv"), ()), strict=False):
            number += 1
            for phase, (pid, tid, time) in (("s", one), ("f", two)):
                bound = {"bp": "e"} if phase == "f" else {}
                yield {
                    "ph": phase,
                    "id": number,
                    "name": "message",
                    "cat": "message",
                    "pid": pid,
                    "tid": tid,
                    "ts": round(time, 4),
                    **bound,
                }


def _track(span: Span) -> tuple[str, str]:
    """Choose where a span is shown: no two on one thread overlap."""
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

"""Operations, circuits and reconfigurations over time: as CSV, for Perfetto, for simulators."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.rails.chakra import groups_text, step_traces
from optmatch.io.text import csv_text
from optmatch.model import InputError, Solution, number
from optmatch.problems import Collective, Demand, RailJob, Step
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import COMPUTE, OPERATIONS, SCALE_UP, SEND
from optmatch.problems.topologies import (
    Topologies,
    answer_of,
    list_carried,
    topologies,
)

_NS_PER_S = 1e9


class Span(NamedTuple):
    """Something that lasts; empty where a column does not apply."""

    what: str
    """``"operation"``, ``"circuit"`` or ``"reconfiguration"``."""
    name: str
    """Of an operation its type, as ``"all-reduce"``; of a circuit its two ports."""
    group: str | int = ""
    """Of a communication its group of ranks; of a circuit the number of its group of flows."""
    rank: int | str = ""
    peer: int | str = ""
    """The other rank of a message."""
    switch: str = ""
    """The rail or switch that carries it, or that changes."""
    start_s: float = 0.0
    end_s: float = 0.0
    size_bytes: float | str = ""
    via: str = ""
    """The ranks that forward it, in order."""
    port_name: str = ""
    """The name of the port where a circuit begins; its number if it has none. In no table."""


_COLUMNS = tuple(field for field in Span._fields if field != "port_name")
"""The columns of tables: the names of both ports of a circuit stand in its name."""


def spans(solution: Solution) -> Iterator[Span]:
    """List the events of an answer: the operations of a rail job, or the circuits of a schedule.

    First comes what ranks do, rank by rank, or the circuits, slot by slot (of a demand by their
    begin); then the reconfigurations of each switch. Begin and end are in seconds.
    """
    answer = answer_of(solution)
    problem = solution.problem
    system = topologies(solution)
    if isinstance(answer, RailPlan) and isinstance(problem, RailJob):
        yield from _list_operations(problem, answer)
    else:
        yield from _list_circuits(solution, system)

    for switch in system.switches:
        times_s = zip(switch.starts_s.tolist(), switch.ready_s.tolist(), strict=True)
        for state, (start_s, ready_s) in enumerate(times_s):
            if ready_s > start_s:
                yield Span(
                    what="reconfiguration",
                    name=f"to state {state}",
                    switch=switch.name,
                    start_s=start_s,
                    end_s=ready_s,
                )


def _list_operations(job: RailJob, plan: RailPlan) -> Iterator[Span]:
    """List what the ranks of a job do, rank by rank.

    Columns that a kind of operation does not have stay empty.
    """
    # ``forwarders[operation]`` lists the ranks that forward its data.
    step = job.step()
    forwarders: dict[int, list[str]] = {}
    for operation, rank, _ in plan.relays.tolist():
        forwarders.setdefault(operation, []).append(str(rank))
    for operation in range(step.n_operations):
        kind = int(step.kind[operation])
        span = Span(
            what="operation",
            name=OPERATIONS[kind],
            rank=int(step.rank[operation]),
            start_s=float(plan.start_s[operation]),
            end_s=float(plan.end_s[operation]),
            via=" ".join(forwarders.get(operation, ())),
        )

        # A communication has its group, its rail and its size; a message its other rank.
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


def _list_circuits(solution: Solution, system: Topologies) -> Iterator[Span]:
    """List the circuits of an answer: of a demand by their begin, of others slot by slot.

    `system` has the switches of the answer, and when each is in which state.
    """
    problem = solution.problem

    # Nodes that have no label in the fabric have their number as name.
    labels = () if problem.fabric is None else problem.fabric.labels
    names = [*labels, *map(str, range(len(labels), system.n_nodes))]

    # What circuits of a demand carry is known, unless packets go another way at the same time.
    sizes_bytes: list[float] | list[str]
    if isinstance(problem, Demand) and not problem.packet_bytes_per_s:
        circuits, carried_bytes = list_carried(solution)
        sizes_bytes = carried_bytes.tolist()
    else:
        circuits = system.list_circuits()
        sizes_bytes = [""] * len(circuits.source)
    # The group of each pair of ports, in a demand of groups; -1 for none.
    groups = problem.groups if isinstance(problem, Demand) else None
    places = zip(circuits.source.tolist(), circuits.destination.tolist(), strict=True)
    for place, (source, destination) in enumerate(places):
        group = -1 if groups is None else int(groups[source, destination])
        yield Span(
            what="circuit",
            name=f"{names[source]} to {names[destination]}",
            group=group if group >= 0 else "",
            rank=source,
            peer=destination,
            switch=system.switches[circuits.switch[place]].name,
            start_s=float(circuits.start_s[place]),
            end_s=float(circuits.end_s[place]),
            size_bytes=sizes_bytes[place],
            port_name=names[source],
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


def _name_track(span: Span) -> tuple[str, str]:
    """Return the names of the process and the thread that show an event.

    There is a process for each rank, switch or port; and a thread for what a rank computes, for
    each of its groups, and of messages for each other rank and direction.
    """
    if span.what == "reconfiguration":
        return span.switch, "reconfigurations"
    if span.what == "circuit":
        return f"port {span.port_name}", span.switch
    process = f"rank {span.rank}"
    if not span.group:
        return process, "compute"
    peer = f", {span.name} {span.peer}" if span.peer != "" else ""
    return process, f"{span.group}{peer}"


_Message = tuple[object, object, str | int]
"""Sender, receiver and group."""


def _events(solution: Solution) -> Iterator[dict[str, Any]]:
    """Yield a solution as the events of a trace that viewers such as Perfetto show.

    Slices ("ph": "X", with begin "ts" and duration "dur" in microseconds) come in the order of
    `spans`, then the names of their processes and threads, and at last the arrows from each send
    to its receive, two events each.
    """
    # Processes and threads are numbered in the order in which they are needed. Times become whole
    # nanoseconds first, so that what ends when something begins stays so.
    pid_of_process: dict[str, int] = {}
    tid_of_thread: dict[tuple[str, str], int] = {}
    busy_until_ns = defaultdict[tuple[str, str], list[int]](list)
    sends = defaultdict[_Message, list[dict[str, Any]]](list)
    receives = defaultdict[_Message, list[dict[str, Any]]](list)
    for span in spans(solution):
        start_ns = round(span.start_s * _NS_PER_S)
        end_ns = round(span.end_s * _NS_PER_S)
        process, thread = _name_track(span)

        # ``busy_ns[place]`` is when the last event ends on the thread itself (place 0) and on
        # those beside it, "tp (2)" and "tp (3)". The first one that is free at the begin of the
        # event is taken, else a new one is added.
        busy_ns = busy_until_ns[process, thread]
        free = [place for place, until_ns in enumerate(busy_ns) if until_ns <= start_ns]
        place = min(free, default=len(busy_ns))
        busy_ns[place : place + 1] = [end_ns]
        if place > 0:
            thread = f"{thread} ({place + 1})"
        track = {
            "pid": pid_of_process.setdefault(process, len(pid_of_process) + 1),
            "tid": tid_of_thread.setdefault((process, thread), len(tid_of_thread) + 1),
        }

        # Arguments that do not apply are left out.
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
        if span.name == "send":
            arrow_start = {**track, "ts": _microseconds(start_ns)}
            sends[span.rank, span.peer, span.group].append(arrow_start)
        elif span.name == "recv":
            arrow_end = {**track, "ts": _microseconds(end_ns)}
            receives[span.peer, span.rank, span.group].append(arrow_end)

    for process, pid in pid_of_process.items():
        yield _name_event("process_name", pid, 0, process)
        yield _name_event("process_sort_index", pid, 0, pid)
    for (process, thread), tid in tid_of_thread.items():
        yield _name_event("thread_name", pid_of_process[process], tid, thread)

    # The k-th send between two ranks of a group belongs to the k-th receive.
    number = 0
    for message, starts in sends.items():
        for start, end in zip(starts, receives[message], strict=False):
            number += 1
            arrow = {"id": number, "name": "message", "cat": "message"}
            yield {"ph": "s", **arrow, **start}
            yield {"ph": "f", **arrow, **end, "bp": "e"}


def _microseconds(time_ns: int) -> float:
    """Convert so that viewers find the same nanosecond, also those that cut off what is below.

    The argument is a whole number of nanoseconds, the result is in microseconds. Perfetto cut off:
    1001 / 1e3 became 1000 ns, and a slice began before the last one had ended.
    """
    time_us = time_ns / 1e3
    return time_us if time_us * 1e3 >= time_ns else math.nextafter(time_us, math.inf)


def _name_event(what: str, pid: int, tid: int, value: str | int) -> dict[str, Any]:
    """Return an event that names a process or a thread, or says in which order it comes."""
    key = "sort_index" if what.endswith("index") else "name"
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {key: value}}


def tabulate(solution: Solution) -> dict[str, Any]:
    """List `spans` column by column: the table of a kind that has no other."""
    rows = list(spans(solution))
    return {column: [getattr(row, column) for row in rows] for column in _COLUMNS}


_GIGA = 1e9


def _rated(solution: Solution, rate_bytes_per_s: float | None) -> Topologies:
    """Return the topologies of a solution, each switch with its rate in bytes per second.

    The given rate counts for problems without a rate of their own; these need it.
    """
    system = topologies(solution)
    if hasattr(solution.problem, "rate_bytes_per_s") or isinstance(solution.problem, RailJob):
        return system
    if rate_bytes_per_s is None:
        kind = solution.problem.kind
        raise InputError(
            f"rate: a problem of kind {kind} has no bytes: state what a circuit carries (--rate)",
            where="rate",
        )
    rate = number("rate", rate_bytes_per_s)
    switches = tuple(switch._replace(bytes_per_s=rate) for switch in system.switches)
    return system._replace(switches=switches)


def bandwidths(solution: Solution, rate_bytes_per_s: float | None = None) -> str:
    """Write the circuits as blocks ``BW topology`` for astra-sim, in GB/s, sources in rows.

    A topology is all circuits that are there at a time, in the order of first use; 0 is the
    initial one. In a rail job or a collective the nodes are ranks, and the links inside servers or
    islands are in every topology; of other problems they are ports.
    """
    system = _rated(solution, rate_bytes_per_s)
    return _format_blocks("BW", (rates / _GIGA for rates in _list_rates(solution, system)))


def latencies(solution: Solution) -> str:
    """Write blocks ``LT topology`` for astra-sim: the latency of each link in nanoseconds.

    Rows are sources; 0 where there is no link. Links inside servers and islands are in every
    topology.
    """
    problem = solution.problem
    latency_ns: float | NDArray[np.float64] = _latency_ns(solution)
    if isinstance(problem, Collective):
        island_ns = problem.island_alpha_s * _NS_PER_S
        latency_ns = np.where(_are_in_one_island(problem), island_ns, latency_ns)
    all_rates = _list_rates(solution, topologies(solution))
    return _format_blocks("LT", (np.where(rates > 0, latency_ns, 0.0) for rates in all_rates))


def network(solution: Solution, rate_bytes_per_s: float | None = None) -> str:
    """Write ``network.yml`` of astra-sim: number of nodes, largest bandwidth, latency, delay.

    Bandwidths are in GB/s, times in nanoseconds.
    """
    system = _rated(solution, rate_bytes_per_s)
    all_rates = _list_rates(solution, system)
    largest_rate = max((float(rates.max(initial=0)) for rates in all_rates), default=0)
    return (
        "topology: [FullyConnected]\n"
        f"npus_count: [{system.n_nodes}]\n"
        f"bandwidth: [{_format_number(largest_rate / _GIGA)}]  # GB/s\n"
        f"latency: [{_format_number(_latency_ns(solution))}]  # ns\n"
        f"reconfig_time: [{_format_number(system.delay_s * _NS_PER_S)}]  # ns\n"
    )


def _latency_ns(solution: Solution) -> float:
    """Return the latency of a link, in nanoseconds: of a collective, the time of a round.

    Problems of other kinds than rail jobs and collectives state none, which is 0.
    """
    problem = solution.problem
    if isinstance(problem, RailJob):
        return problem.network.latency_s * _NS_PER_S
    if isinstance(problem, Collective):
        return (problem.alpha_s + (problem.hop_s or 0.0)) * _NS_PER_S
    return 0.0


def _numbered_step(solution: Solution) -> Step:
    """Return the step of a rail job with its groups named by whole numbers, as astra-sim wants.

    These count from 1 in the order of the groups. Their own names stay if all are numbers.
    """
    assert isinstance(solution.problem, RailJob)
    step = solution.problem.step()
    if all(group.name.isdecimal() for group in step.groups):
        return step
    groups = [
        replace(group, name=str(number)) for number, group in enumerate(step.groups, start=1)
    ]
    return replace(step, groups=tuple(groups))


def communicators(solution: Solution) -> str:
    """Write the ranks of the communicator groups of a rail job as JSON, by number of the group."""
    return groups_text({group.name: group.ranks for group in _numbered_step(solution).groups})


def traces(solution: Solution) -> dict[str, bytes]:
    """Write the step of a rail job as Chakra traces, with groups named by numbers.

    The contents stand by the ends of file names, ``.RANK.et``.
    """
    contents = step_traces(_numbered_step(solution))
    return {f".{rank}.et": content for rank, content in enumerate(contents)}


def _format_blocks(kind: str, matrices: Iterable[NDArray[np.float64]]) -> str:
    """Write a block of rows, under the word `kind` and its number, for each square matrix."""
    blocks = []
    for topology, matrix in enumerate(matrices):
        # Few entries of a large matrix differ from 0: only these are formatted.
        cells = [["0"] * len(matrix) for _ in matrix]
        for row, column in np.argwhere(matrix).tolist():
            cells[row][column] = _format_number(float(matrix[row, column]))
        lines = "".join(" ".join(row) + "\n" for row in cells)
        blocks.append(f"{kind} {topology}\n{lines}END\n")
    return "\n".join(blocks)


def _format_number(value: float) -> str:
    """Write a number with as many digits as bring it back, without an empty fraction."""
    return str(int(value)) if value == int(value) else repr(float(value))


def _list_rates(solution: Solution, system: Topologies) -> Iterator[NDArray[np.float64]]:
    """Yield ``rates[source, destination]`` of each topology, in bytes per second.

    The links inside servers of a rail job, and inside islands of a collective, are in all of them.
    """
    inside = np.zeros((system.n_nodes, system.n_nodes))
    problem = solution.problem
    if isinstance(problem, RailJob):
        for group in problem.groups():
            if group.rail == SCALE_UP:
                inside[np.ix_(group.ranks, group.ranks)] = problem.network.scale_up_bytes_per_s
    elif isinstance(problem, Collective):
        inside[_are_in_one_island(problem)] = problem.island_rate_bytes_per_s
    np.fill_diagonal(inside, 0)
    for topology in range(len(system.states)):
        yield system.rates(topology) + inside


def _are_in_one_island(problem: Collective) -> NDArray[np.bool_]:
    """Tell by source and destination whether two ranks are in the same island."""
    island_of_rank = np.arange(problem.n_ranks) // problem.island
    return np.asarray(island_of_rank[:, None] == island_of_rank)


def circuit_list(solution: Solution) -> str:
    """Write ``[time slice, node 1, node 2, port 1, port 2]`` for each circuit, as JSON.

    A slice is one state of all switches, in the order of time; a port is the plane or the port of
    the GPU. A line is for both ways if all circuits go both ways. If not, node 1 sends to node 2,
    and port p becomes 2 p, which sends, and 2 p + 1, which receives.
    """
    # By slice the circuits: source and destination node, source and destination port.
    system = topologies(solution)
    circuits_of_slice = [
        list(map(tuple, system.circuits(topology).tolist())) for topology in system.topology
    ]
    are_both_ways = all(
        {(target, source, back, port) for source, target, port, back in circuits} == set(circuits)
        for circuits in circuits_of_slice
    )

    lines = []
    for slice_, circuits in enumerate(circuits_of_slice):
        for source, target, port, target_port in circuits:
            if not are_both_ways:
                # A port becomes two: the even one sends, the odd one receives.
                lines.append([slice_, source, target, 2 * port, 2 * target_port + 1])
            elif (source, port) <= (target, target_port):
                lines.append([slice_, source, target, port, target_port])
    return "[\n" + ",\n".join(map(json.dumps, lines)) + "\n]\n" if lines else "[]\n"

"""The rules of time in a rail plan: order, durations, equal ranks; and bounds of the step time.

An operation *rides* a rail if it communicates over it. A *relay* is a row of ``plan.relays``: an
operation, a rank that forwards its data, and the ports it forwards them over, as bits. The *load*
of a rail is all that rides it, with times and ports. An *event* is a computation, or a
communication of several ranks as one.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import RailJob
from optmatch.problems.rails.training.step import ALL_TO_ALL, SEND, Step
from optmatch.verify.rails.context import Context, list_in_rounds
from optmatch.verify.rails.work import Column, list_before, measure_work
from optmatch.verify.report import Rule

NOT_BEFORE_STEP = Rule("no operation starts before the step")
AFTER_WHAT_IT_WAITS_FOR = Rule("an operation starts after what it waits for")
LASTS_AS_WORK_NEEDS = Rule("an operation lasts as long as its work or its bytes need")
PARTS_TOGETHER = Rule("all parts of a communication {do} together")
STEP_ENDS_WITH_LAST = Rule("the step ends with its last operation or reconfiguration")

Places = NDArray[np.int64]


def list_operations(step: Step, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """List the operations of some ranks, rank after rank."""
    spans = [np.arange(step.rank_start[rank], step.rank_start[rank + 1]) for rank in ranks]
    return np.concatenate([np.empty(0, np.int64), *spans])


def list_distinct(step: Step, *columns: NDArray[np.float64]) -> NDArray[np.int64]:
    """List one rank of each kind: ranks of one kind have equal operations and values in `columns`.

    Groups are compared by dimension, size and whether they are on a rail, and partners by how far
    their numbers are from that of the rank.
    """
    shapes = [(group.dimension, len(group.ranks), group.rail >= 0) for group in step.groups]
    number_of_shape = {shape: number for number, shape in enumerate(dict.fromkeys(shapes))}
    shape_of_group = np.array([*(number_of_shape[shape] for shape in shapes), -1])

    # Ranks whose first columns have the same hash are compared entry by entry, with one rank of
    # each program that was seen before. Shape -1 is that of no group.
    programs_by_hash: dict[int, list[tuple[NDArray[np.generic], ...]]] = {}
    distinct = []
    for rank, (first, end) in enumerate(pairwise(step.rank_start.tolist())):
        # Peers and dependencies are relative to the rank, so that equal programs compare equal;
        # the number of ranks stands for no peer.
        peer = step.peer[first:end]
        dep_start = step.dep_start[first : end + 1]
        program = (
            *(column[first:end] for column in (*columns, step.size_bytes, step.duration_s)),
            step.kind[first:end],
            shape_of_group[step.group[first:end]],
            np.where(peer < 0, step.n_ranks, peer - rank),
            dep_start - dep_start[0],
            step.dep[dep_start[0] : dep_start[-1]] - first,
        )
        similar = programs_by_hash.setdefault(hash(program[0].tobytes()), [])
        if not any(all(map(np.array_equal, program, other)) for other in similar):
            similar.append(program)
            distinct.append(rank)
    return np.array(distinct, dtype=np.int64)


def describe_load(
    context: Context,
    ranks: NDArray[np.int64],
    riding: NDArray[np.int64],
    numbers_of_groups: dict[tuple[str, bytes], int],
) -> tuple[NDArray[np.generic], ...]:
    """Describe all that happens on a rail without names, so that rails can be compared.

    GPUs are counted on the rail, groups by dimension and members, communications by their first
    operations.
    """
    step = context.step
    plan = context.plan
    gpu_of_rank = np.full(step.n_ranks + 1, -1)  # the last entry: no rank
    gpu_of_rank[ranks] = np.arange(len(ranks))

    # Groups get the same number on all rails if their dimension and their GPUs are the same.
    groups = step.group[riding]
    number_of_group = np.full(len(step.groups), -1)
    for index in np.flatnonzero(np.bincount(groups)).tolist():
        group = step.groups[index]
        key = (group.dimension, gpu_of_rank[[*group.ranks]].tobytes())
        number_of_group[index] = numbers_of_groups.setdefault(key, len(numbers_of_groups))

    # ``plan.relays`` has a row (operation, rank that forwards, ports) for each rank that forwards.
    # A row belongs here if its operation is one of this rail.
    _, first, communication = np.unique(step.match[riding], return_index=True, return_inverse=True)
    position = np.searchsorted(riding, plan.relays[:, 0])
    rides_here = np.append(riding, -1)[position] == plan.relays[:, 0]

    # Thirteen columns: one of GPUs, nine of operations, and three of relays.
    return (
        np.arange(len(ranks)),
        step.kind[riding],
        step.size_bytes[riding],
        plan.start_s[riding],
        plan.end_s[riding],
        plan.ports[riding],
        gpu_of_rank[step.rank[riding]],
        gpu_of_rank[step.peer[riding]],
        number_of_group[groups],
        first[communication],
        position[rides_here],
        gpu_of_rank[plan.relays[rides_here, 1]],
        plan.relays[rides_here, 2],
    )


_CHUNK = 1 << 20
"""The number of operations that are compared with their communication at once."""


def check_times(context: Context) -> None:
    """Check the times of a plan, as far as no circuits are needed for that.

    Nothing starts before what it waits for has ended, what is beside rails lasts as long as its
    work, and the parts of a communication go together. One of all ranks that do the same is
    checked.
    """
    step = context.step
    plan = context.plan
    slack_s = context.slack_s
    for operation in np.flatnonzero(plan.start_s < 0)[:1].tolist():
        where = step.describe(operation)
        context.findings.refuse(NOT_BEFORE_STEP, where, float(plan.start_s[operation]), 0.0)

    # An operation may start when the last of its predecessors has ended: its dependencies, and the
    # one before it in the same queue (stream) of its rank.
    operations = list_operations(step, list_distinct(step, plan.start_s, plan.end_s))
    start_s = plan.start_s[operations]
    end_s = plan.end_s[operations]
    precedence = list_before(step, operations)
    earliest_s = np.full(len(operations), -np.inf)
    np.maximum.at(earliest_s, precedence.after, end_s[precedence.before])
    early = start_s < earliest_s - slack_s
    context.refuse(AFTER_WHAT_IT_WAITS_FOR, operations, early, start_s, earliest_s)

    # Off the rails nothing can be late: durations follow from work and rates.
    duration_s = end_s - start_s
    fixed_s = measure_work(context.job, operations).fixed_s
    off = (step.rail[operations] < 0) & (np.abs(duration_s - fixed_s) > slack_s)
    context.refuse(LASTS_AS_WORK_NEEDS, operations, off, duration_s, fixed_s)

    _check_together(context, "start", plan.start_s)
    _check_together(context, "end", plan.end_s)
    _check_end_of_step(context)


def _check_end_of_step(context: Context) -> None:
    """Check that the step ends with its last operation or its last change."""
    plan = context.plan
    last_s = float(plan.end_s.max(initial=0.0))
    for timeline in plan.rails:
        if timeline.n_reconfigurations:
            up_s = float(timeline.starts_s[-1]) + context.job.network.delay_s
            last_s = max(last_s, up_s)
    if abs(plan.step_s - last_s) > context.slack_s:
        context.findings.refuse(STEP_ENDS_WITH_LAST, "step_s", plan.step_s, last_s)


def _check_together(context: Context, do: str, time_s: NDArray[np.float64]) -> None:
    """Check that all parts of a communication start, or end, at one time."""
    # ``common_s[match]`` is the time of that part of the communication which is written last; all
    # others have to agree with it. Computations write into the last entry, which is not compared.
    match = context.step.match
    chunks = [slice(first, first + _CHUNK) for first in range(0, len(match), _CHUNK)]
    common_s = np.empty(int(match.max(initial=-1)) + 2)  # the last entry: no communication
    for chunk in chunks:
        common_s[match[chunk]] = time_s[chunk]
    differs = [(match[chunk] >= 0) & (common_s[match[chunk]] != time_s[chunk]) for chunk in chunks]
    wrong = np.flatnonzero(np.concatenate([*differs, np.empty(0, bool)]))
    all_wrong = np.ones(len(wrong), dtype=bool)
    rule = PARTS_TOGETHER.format(do=do)
    context.refuse(rule, wrong, all_wrong, time_s[wrong], common_s[match[wrong]])


# Bounds of the step time


class _EventGraph(NamedTuple):
    """The work of a step as a graph of events: all parts of a communication are one event."""

    event: Places
    """``event[row]``: of each operation of the list."""
    lasts_s: Column
    """``lasts_s[event]``: at least, with all links up."""
    before: Places
    """Pairs of events: ``before[pair]`` ends before ``after[pair]`` begins."""
    after: Places


def _build_graph(step: Step, operations: Places, least_s: Column) -> _EventGraph:
    """Build a graph of what has to be done before what, communications as one node."""
    match = step.match[operations]
    # Parts of a communication have its number in `match` as their key; a computation has a key of
    # its own below 0 (~row is -1 - row).
    key = np.where(match >= 0, match, ~np.arange(len(operations)))
    _, first, event = np.unique(key, return_index=True, return_inverse=True)
    event = event.reshape(-1)
    precedence = list_before(step, operations)
    return _EventGraph(event, least_s[first], event[precedence.before], event[precedence.after])


def bound_step(job: RailJob, *, few_ports: bool = False) -> float:
    """Return how long a step takes if all circuits are up at all times, by longest paths.

    Of a step from a model only one pipeline counts; to leave out others only lowers the bound.
    """
    step = job.step()
    operations = np.arange(step.n_operations)
    if job.workload.recorded is None:
        operations = list_operations(step, _list_pipeline(step))
    if few_ports:
        least_s = _measure_with_few_ports(job, operations)
    else:
        least_s = measure_work(job, operations).full_s
    graph = _build_graph(step, operations, least_s)
    begin_s = _find_earliest(graph.lasts_s, graph.before, graph.after)
    return float((begin_s + graph.lasts_s).max(initial=0.0))


def _measure_with_few_ports(job: RailJob, operations: Places) -> Column:
    """Return how long operations last at least, in s, if each port has one circuit at a time.

    Only all-to-alls of n > 2 ranks over a rail take longer than with circuits to all. The faster
    one of two ways counts:

    * Around a ring: a circuit carries n / 2 times the bytes that a rank sends.
    * Over m strides, circuits that lead different numbers of places further on. After exactly h
    hops
      at most C(h + m - 1, h) parts have arrived (multisets of h strides): with 2 strides, 2 parts
      make
      one hop, 3 make two. The p ports of a GPU share the delays of m - p changes, so that m
      strides
      cost (m - p) / p delays.

    Parameters
    ----------
    operations
        Some operations of the job, ascending; the result has a row for each.
    """
    step = job.step()
    work = measure_work(job, operations)
    n_members = np.array([*(len(group.ranks) for group in step.groups), 1])[step.group[operations]]

    # All-to-alls on rails of three or more; those in rounds of an algorithm need no ring.
    in_ring_or_stages = (step.kind[operations] == ALL_TO_ALL) & (step.rail[operations] >= 0)
    in_ring_or_stages &= n_members > 2
    for group in list_in_rounds(job, operations):
        in_ring_or_stages &= ~np.isin(operations, group.operations)

    least_s = work.full_s.copy()
    for n in np.unique(n_members[in_ring_or_stages]).tolist():
        rows = np.flatnonzero(in_ring_or_stages & (n_members == n))
        # Around a ring: n / 2 times the bytes, with the latency of all messages once.
        latency_s = work.latency_s[rows]
        send_s = work.full_s[rows] - latency_s
        part_s = work.full_s[rows] / (n - 1)  # one part over one hop, with its latency
        fastest_s = send_s * n / 2 + latency_s

        # With several strides: the n - 1 parts take the shortest ways that there can be.
        # ``n_ways[h - 1]`` of them make h hops, until each part has its way. With 2 strides and
        # 5 members, the 4 parts make 1, 1, 2 and 2 hops. More than n - 1 strides are of no use.
        n_ports = job.network.ports_per_gpu
        for n_strides in range(max(n_ports, 2), max(n_ports + 1, n)):
            # Capped before they go into an array: from 35 members on, some exceed an int64.
            n_ways = [min(n, math.comb(hops + n_strides - 1, hops)) for hops in range(1, n)]
            hops_of_part = np.repeat(np.arange(1, n), n_ways)[: n - 1]
            changes_s = max(0.0, (n_strides - n_ports) / n_ports * job.network.delay_s)
            fastest_s = np.minimum(fastest_s, hops_of_part.sum() * part_s + changes_s)
        least_s[rows] = fastest_s
    return least_s


def _find_earliest(lasts_s: Column, before: Places, after: Places) -> Column:
    """Return when each event can begin at the earliest, by longest paths (Kahn)."""
    # Pairs are edges from the first event to the second. They are sorted by the first one: the
    # edges from event k are ``after[first_edge[k]:first_edge[k + 1]]``.
    n_events = len(lasts_s)
    after = after[np.argsort(before, kind="stable")]
    n_edges = np.bincount(before, minlength=n_events)
    first_edge = np.append(0, np.cumsum(n_edges))  # of the edges from each event
    n_waiting_for = np.bincount(after, minlength=n_events)
    begin_s = np.zeros(n_events)
    level = np.flatnonzero(n_waiting_for == 0)
    position = np.zeros(n_events, np.int64)  # scratch, to list each event once
    while len(level):
        # `edge` lists the places of all edges that leave this level. If its events have the edges
        # 4 to 5 and 9 to 11, it is [4, 5, 9, 10, 11]: a counter 0, 1, ... plus for each event its
        # first edge less the number of edges listed before.
        end_s = begin_s[level] + lasts_s[level]
        n_level_edges = first_edge[level + 1] - first_edge[level]
        n_earlier = np.cumsum(n_level_edges) - n_level_edges
        edge = np.repeat(first_edge[level] - n_earlier, n_level_edges)
        edge = edge + np.arange(n_level_edges.sum())
        reached = after[edge]
        np.maximum.at(begin_s, reached, np.repeat(end_s, n_level_edges))
        np.subtract.at(n_waiting_for, reached, 1)

        # The next level: events that wait for nothing more. One that several edges reach is kept
        # where it stands last.
        level = reached[n_waiting_for[reached] == 0]
        position[level] = np.arange(len(level))
        level = level[position[level] == np.arange(len(level))]
    return begin_s


def bound_changes(job: RailJob) -> float:
    """Bound the step time from below with changes of circuits counted.

    All-to-alls take as long as the ports allow. With one port either no circuit changes, or one
    changes and changes back: two delays.
    """
    least_s = bound_step(job, few_ports=True)
    if job.network.ports_per_gpu > 1:
        return least_s
    # Two delays count alike where single ports go dark for a change and where the whole switch
    # stops: the next change then waits for the end of this one.
    two_changes_s = 2 * job.network.delay_s
    if two_changes_s <= least_s:
        return least_s
    return max(least_s, min(bound_staying(job), two_changes_s))


def bound_staying(job: RailJob) -> float:
    """Bound the step time in s for plans in which no circuit changes, with one port a GPU.

    All GPUs that communicate, directly or through others, are then on one ring of circuits:

    1. Collectives of a ring exclude each other, so the ring is a single machine: one-machine bound
    of
       Jackson (1955) and Carlier (1982), with heads and tails by longest paths.
    2. Messages are late. On a ring of 64 GPUs the longest way from one of 8 members to the next
    one
       has 8 hops at least, and each message has the latency of all.

    The greatest bound of all rings counts; it is 0 if no collective goes over a rail.
    """
    # An event is a computation, or a communication as a whole, of which each operation is the
    # part of one rank: ``graph.event[operation]``. Heads and tails are longest paths with all
    # circuits up.
    step = job.step()
    operations = np.arange(step.n_operations)
    work = measure_work(job, operations)
    graph = _build_graph(step, operations, work.full_s)
    n_events = len(graph.lasts_s)
    head_s = _find_earliest(graph.lasts_s, graph.before, graph.after)
    tail_s = _find_earliest(graph.lasts_s, graph.after, graph.before)

    # `riding` are the operations on rails, and ``port[row]`` is the port that ``riding[row]``
    # uses, from 0 on: a pair of rail and rank is one port. Ports that take part in one
    # communication are on one ring, which also is the ring of the event.
    riding = np.flatnonzero(step.rail >= 0)
    port_key = step.rail[riding].astype(np.int64) * step.n_ranks + step.rank[riding]
    _, first_of_port, port = np.unique(port_key, return_index=True, return_inverse=True)
    ring_of_event = _join_rings(port, graph.event[riding], n_events)

    # By event its duration on the ring. In an all-to-all of n members, parts go 1, 2, ... or
    # n - 1 hops around the ring: a circuit carries n / 2 times the bytes that a member sends.
    n_members = np.array([len(group.ranks) for group in step.groups])[step.group[riding]]
    is_all_to_all = step.kind[riding] == ALL_TO_ALL
    around_bytes = work.sent_bytes[riding] * n_members / 2
    around_s = around_bytes / job.network.port_bytes_per_s + work.latency_s[riding]
    duration_s = graph.lasts_s.copy()
    duration_s[graph.event[riding[is_all_to_all]]] = around_s[is_all_to_all]

    # The longest way between members has (ports of the ring) / (members) hops at least. One hop
    # is in the duration already; each further one adds its latency to every message. To count the
    # ports of a ring, each port is looked up once: its first operation, the event of that, and the
    # ring of this event.
    ring_of_port = ring_of_event[graph.event[riding[first_of_port]]]
    n_ports_of_ring = np.bincount(ring_of_port)
    least_hops = np.ceil(n_ports_of_ring[ring_of_event[graph.event[riding]]] / n_members)
    added_latency_s = np.zeros(n_events)
    added_latency_s[graph.event[riding]] = (least_hops - 1) * work.latency_s[riding]
    duration_s += added_latency_s

    # Each ring is a machine, and its collectives are the jobs. Messages have kinds from `SEND` on.
    collectives = np.unique(graph.event[riding[step.kind[riding] < SEND]])
    bound_s = 0.0
    for ring in np.unique(ring_of_event[collectives]).tolist():
        jobs = collectives[ring_of_event[collectives] == ring]
        bound_s = max(bound_s, _bound_machine(head_s[jobs], duration_s[jobs], tail_s[jobs]))
    return bound_s


def _bound_machine(head_s: Column, duration_s: Column, tail_s: Column) -> float:
    """Bound the end of jobs on one machine with heads and tails (Jackson, Carlier).

    For each set of jobs with at least a certain head and tail: its least head, all durations, its
    least tail.
    """
    # For each tail, the jobs with at least this tail are added one by one, latest head first. The
    # least head of the set is then that of the job that was added last, and the durations so far
    # are a running sum.
    by_head = np.argsort(-head_s)
    bound_s = 0.0
    for least_tail_s in np.unique(tail_s).tolist():
        jobs = by_head[tail_s[by_head] >= least_tail_s]

        ends_s = head_s[jobs] + np.cumsum(duration_s[jobs])
        bound_s = max(bound_s, float(ends_s.max()) + least_tail_s)
    return bound_s


def _join_rings(port: Places, event: Places, n_events: int) -> Places:
    """Find by event the ring that it is on if circuits stay, by label propagation."""
    # ``label[port]`` is the lowest port that it is known to be joined to, at first itself. In each
    # round, an event takes the lowest label of its ports, and a port that of its events. Then
    # ``label[label]`` jumps ahead: if port 9 has label 5 and port 5 has label 2, port 9 gets 2.
    label = np.unique(port)
    while True:
        lowest_of_event = np.full(n_events, len(label))
        np.minimum.at(lowest_of_event, event, label[port])
        new_label = label.copy()
        np.minimum.at(new_label, port, lowest_of_event[event])
        if np.array_equal(new_label, label):
            return lowest_of_event
        label = new_label[new_label]


def _list_pipeline(step: Step) -> NDArray[np.int64]:
    """List rank 0, and all ranks that exchange messages with it, directly or through others."""
    # The set of ranks grows by the peers of its messages until none is new.
    ranks = np.arange(1)
    n_before = 0
    while len(ranks) > n_before:
        n_before = len(ranks)
        ranks = np.union1d(ranks, step.peer[list_operations(step, ranks)])
        ranks = ranks[ranks >= 0]
    return ranks

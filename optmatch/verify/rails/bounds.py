"""The claims about a rail plan: its bounds, by longest paths and by counting changes.

An *event* is a computation, or a communication of several ranks as one.

1. All links (`bound_step`): with every circuit up at all times, a step takes its longest path.
2. Few ports (`_measure_with_few_ports`): an all-to-all around a ring carries n / 2 times the bytes
   of a member; over m strides at most C(h + m - 1, h) parts make h hops (multisets).
3. Staying or changing (`bound_changes`): with one port either no circuit changes, or one changes
   and changes back, which takes two delays.
4. Rings that stay (`bound_staying`): the collectives of a ring exclude each other, which makes it
   one machine with heads and tails (Jackson 1955, Carlier 1982).
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from optmatch.model import Schedule, Solution
from optmatch.problems import RailJob, RailPlan
from optmatch.problems.rails.training.step import ALL_TO_ALL, SEND, Step
from optmatch.verify.bounds import check_solution
from optmatch.verify.rails.replay import (
    Column,
    Places,
    count_members,
    lets_pool,
    list_before,
    list_in_rounds,
    list_operations,
    measure_work,
    pool_job,
    replay_plan,
)
from optmatch.verify.report import Findings


@np.errstate(over="ignore", invalid="ignore")  # of times far beyond all: they are refused
def verify_rails(
    problem: RailJob, subject: Schedule | RailPlan | Solution, findings: Findings
) -> None:
    """Check a plan by replaying it; of a solution also its objective and its bound.

    The bound may be no higher than the greater of two that are worked out anew: with all circuits
    up at all times (the figure ``lower_bound_recomputed``), and with changes counted
    (``lower_bound_checked``).
    """
    counted_s = bound_step(problem)
    findings.figures["lower_bound_recomputed"] = counted_s
    if not isinstance(subject, Solution):
        replay_plan(problem, subject, findings)
        return

    # A higher bound counts changes of circuits. It is proved for one-way ports alone, each of
    # which either sends or receives; with bidirectional ones the bound of all links remains.
    one_way = problem.fabric is None or not problem.fabric.bidirectional
    if one_way:
        checked_s = bound_changes(problem)

        # If data may change rail inside a server, a plan may also give each GPU a share of all
        # ports of its server. The bound has to hold for both sorts of plans.
        if lets_pool(problem):
            checked_s = min(checked_s, bound_changes(pool_job(problem)))
        findings.figures["lower_bound_checked"] = max(counted_s, checked_s)
        findings.proof = "counting"
    replay = partial(replay_plan, problem, findings=findings)
    check_solution(
        subject,
        findings,
        replay=replay,
        floor="the lower bound is not below that of all links",
    )


class _EventGraph(NamedTuple):
    """The work of a step as a graph of events: all parts of a communication are one event."""

    event: Places
    """``event[row]``: the event of each operation of the list."""
    lasts_s: Column
    """``lasts_s[event]``: at least, with all links up."""
    before: Places
    """``before[pair]``: an event that ends before ``after[pair]`` begins."""
    after: Places


def _build_graph(step: Step, operations: Places, least_s: Column) -> _EventGraph:
    """Build a graph of what has to be done before what, communications as one node.

    `operations` are all those of some ranks, ascending, and ``least_s[row]`` is how long each
    lasts at least, in seconds.
    """
    match = step.match[operations]
    # Parts of a communication have its number in `match` as their key; a computation has a key of
    # its own below 0 (~row is -1 - row).
    key = np.where(match >= 0, match, ~np.arange(len(operations)))
    _, first, event = np.unique(key, return_index=True, return_inverse=True)
    event = event.ravel()
    precedence = list_before(step, operations)
    return _EventGraph(event, least_s[first], event[precedence.before], event[precedence.after])


def bound_step(job: RailJob, *, few_ports: bool = False) -> float:
    """Bound the step time from below, in s: all circuits are up at all times (longest paths).

    In a step from a model only one pipeline counts, the ranks that exchange messages with rank 0;
    to leave out others only lowers the bound. With `few_ports` each port still has one circuit at
    a time, which makes all-to-alls longer.
    """
    step = job.step()
    if job.workload.recorded is not None:
        operations = np.arange(step.n_operations)
    else:
        # Rank 0, and all ranks that exchange messages with it, directly or through others: the
        # set grows by the peers of its messages until none is new.
        ranks = np.arange(1)
        n_before = 0
        while len(ranks) > n_before:
            n_before = len(ranks)
            ranks = np.union1d(ranks, step.peer[list_operations(step, ranks)])
            ranks = ranks[ranks >= 0]
        operations = list_operations(step, ranks)

    if few_ports:
        least_s = _measure_with_few_ports(job, operations)
    else:
        least_s = measure_work(job, operations).full_s
    graph = _build_graph(step, operations, least_s)
    begin_s = _find_earliest(graph.lasts_s, graph.before, graph.after)
    return float((begin_s + graph.lasts_s).max(initial=0.0))


def _measure_with_few_ports(job: RailJob, operations: Places) -> Column:
    """Bound from below how long operations last, in s, if each port has one circuit at a time.

    Only all-to-alls of n > 2 ranks over a rail take longer than with circuits to all. The faster
    one of two ways counts:

    * Around a ring: parts go 1, 2, ... or n - 1 hops, n / 2 on average, and a circuit carries as
      many times the bytes that a rank sends.
    * Over m strides, circuits that lead different numbers of places further on. After exactly h
      hops at most C(h + m - 1, h) parts have arrived (multisets of h strides): with 2 strides,
      2 parts make one hop, 3 make two. The p ports of a GPU hold p strides at the start, and each
      further one is a change of one port. These m - p changes cost least if all ports share them
      evenly: (m - p) / p delays.

    `operations` ascend, and the result has a row for each.
    """
    # ``work.full_s[row]`` is how long an operation lasts over all its ports at once, and
    # ``work.latency_s[row]`` the latency of all its messages, a part of that; both in seconds.
    step = job.step()
    work = measure_work(job, operations)
    n_members = count_members(step)[step.group[operations]]

    # All-to-alls on rails of three or more; those in rounds of an algorithm need no ring.
    in_ring_or_stages = (step.kind[operations] == ALL_TO_ALL) & (step.rail[operations] >= 0)
    in_ring_or_stages &= n_members > 2
    for group in list_in_rounds(job, operations):
        in_ring_or_stages &= ~np.isin(operations, group.operations)

    least_s = work.full_s.copy()
    for n in np.unique(n_members[in_ring_or_stages]).tolist():
        rows = np.flatnonzero(in_ring_or_stages & (n_members == n))
        # Around a ring.
        latency_s = work.latency_s[rows]
        send_s = work.full_s[rows] - latency_s
        part_s = work.full_s[rows] / (n - 1)  # one part over one hop, with its latency
        fastest_s = send_s * n / 2 + latency_s

        # Over several strides, at least those of the ports: one alone makes a ring, and with n - 1
        # each part makes one hop. All parts make the fewest hops if as many as can make one, then
        # as many as can make two, and so on: with 2 strides and 5 members, the first n - 1 of the
        # list 1, 1, 2, 2, 2, ... are 1, 1, 2 and 2. ``n_ways[h - 1]`` parts can make h hops.
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
    """Return when each event can begin at the earliest, by longest paths (Kahn).

    ``before[k]`` has to end before ``after[k]`` begins; times are in seconds from the start of the
    step. Events are taken level by level, each when all that it waits for have been taken.
    """
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
    """Bound the step time from below, in s, with changes of circuits counted.

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
    """Bound the step time from below, in s, if no circuit changes and a GPU has one port.

    All GPUs that communicate, directly or through others, are then on one ring of circuits:

    1. Collectives of a ring exclude each other, so the ring is a single machine: one-machine bound
       of Jackson (1955) and Carlier (1982), with heads and tails by longest paths.
    2. Messages are late. On a ring of 64 GPUs the longest way from one of 8 members to the next
       one has 8 hops at least, and each message has the latency of all.

    The greatest bound of all rings counts; it is 0 if no collective goes over a rail.
    """
    # An event is a computation, or a communication as a whole, of which each operation is the
    # part of one rank: ``graph.event[operation]``. Heads and tails are longest paths with all
    # circuits up.
    step = job.step()
    operations = np.arange(step.n_operations)
    work = measure_work(job, operations)
    graph = _build_graph(step, operations, work.full_s)
    head_s = _find_earliest(graph.lasts_s, graph.before, graph.after)
    tail_s = _find_earliest(graph.lasts_s, graph.after, graph.before)

    # `riding` are the operations on rails; one that takes no time needs no circuits, and joins
    # nobody. By row of it: its event, and its port. A GPU has one port, so each pair of rail and
    # rank is a port; these are numbered from 0 on. All ports of an event are on one ring, which is
    # ``ring_of_event[event]``.
    riding = np.flatnonzero((step.rail >= 0) & (work.full_s > 0))
    event_of_row = graph.event[riding]
    port_key = step.rail[riding].astype(np.int64) * step.n_ranks + step.rank[riding]
    _, first_of_port, port = np.unique(port_key, return_index=True, return_inverse=True)
    ring_of_event = _join_rings(port, event_of_row, len(graph.lasts_s))

    # By event its duration on the ring; that of an all-to-all as in `_measure_with_few_ports`.
    n_members = np.array([len(group.ranks) for group in step.groups])[step.group[riding]]
    is_all_to_all = step.kind[riding] == ALL_TO_ALL
    around_bytes = work.sent_bytes[riding] * n_members / 2
    around_s = around_bytes / job.network.port_bytes_per_s + work.latency_s[riding]
    duration_s = graph.lasts_s.copy()
    duration_s[event_of_row[is_all_to_all]] = around_s[is_all_to_all]

    # The longest way between members has (ports of the ring) / (members) hops at least. One hop
    # is in the duration already; each further one adds its latency to every message. To count the
    # ports of a ring, each port is looked up at its first row. All rows of an event add the same;
    # an assignment by index, unlike `np.add.at`, adds it once for each event.
    ring_of_row = ring_of_event[event_of_row]
    n_ports_of_ring = np.bincount(ring_of_row[first_of_port])
    least_hops = np.ceil(n_ports_of_ring[ring_of_row] / n_members)
    duration_s[event_of_row] += (least_hops - 1) * work.latency_s[riding]

    # Each ring is a machine, and its collectives are the jobs. Messages have kinds from `SEND` on.
    collectives = np.unique(event_of_row[step.kind[riding] < SEND])
    bound_s = 0.0
    for ring in np.unique(ring_of_event[collectives]).tolist():
        jobs = collectives[ring_of_event[collectives] == ring]
        bound_s = max(bound_s, _bound_machine(head_s[jobs], duration_s[jobs], tail_s[jobs]))
    return bound_s


def _bound_machine(head_s: Column, duration_s: Column, tail_s: Column) -> float:
    """Bound the end of a step from below by the jobs of one machine (Jackson, Carlier).

    All three are by job, in seconds. The head of a job is the time before it can start, its tail
    the time from its end to the end of the step. A set of jobs takes at least its least head, all
    its durations and its least tail; all sets with at least a certain head and tail are tried.
    With heads 0 and 4, durations 3 and 3 and tails 0, both together take 0 + 6 + 0 s, and the
    second one alone 4 + 3 + 0 s: the bound is 7 s.
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
    """Find by event the ring that it is on if circuits stay, by label propagation.

    Port ``port[k]`` takes part in event ``event[k]``, and all ports of an event are on one ring. A
    ring has the number of its lowest port; an event without ports gets the number of ports.
    """
    # ``label[port]`` is the lowest port that it is known to be joined to, at first itself: ports
    # are 0, 1, ... without gaps, hence `np.unique` gives just that. In each round, an event takes
    # the lowest label of its ports, and a port that of its events. Then ``label[label]`` jumps
    # ahead: if port 9 has label 5 and port 5 has label 2, port 9 gets 2.
    label = np.unique(port)
    while True:
        lowest_of_event = np.full(n_events, len(label))
        np.minimum.at(lowest_of_event, event, label[port])
        new_label = label.copy()
        np.minimum.at(new_label, port, lowest_of_event[event])
        if np.array_equal(new_label, label):
            return lowest_of_event
        label = new_label[new_label]

"""The rules of time in a rail plan: order, lengths, and ranks that do the same."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import RailJob
from optmatch.problems.rails.training.step import ALL_TO_ALL, SEND, Step
from optmatch.verify.rails.context import Context, list_in_rounds
from optmatch.verify.rails.work import Column, list_before, measure_work

Places = NDArray[np.int64]


def list_operations(step: Step, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """List the operations of some ranks, in their order."""
    spans = [np.arange(step.rank_start[rank], step.rank_start[rank + 1]) for rank in ranks]
    return np.concatenate([np.empty(0, np.int64), *spans])


def list_distinct(step: Step, *columns: NDArray[np.float64]) -> NDArray[np.int64]:
    """List ranks such that each other rank has the same program and `columns` as one of them.

    Programs are the same if all entries are equal, but for the names of ranks and groups: of
    groups only dimension, size and whether they ride a rail count, of peers how far away they are.
    """
    shapes = [(g.dimension, len(g.ranks), g.rail >= 0) for g in step.groups]
    numbers = {shape: k for k, shape in enumerate(dict.fromkeys(shapes))}
    shape = np.array([*(numbers[each] for each in shapes), -1])
    known: dict[int, list[tuple[NDArray[np.generic], ...]]] = {}
    found = []
    for rank, (first, end) in enumerate(pairwise(step.rank_start.tolist())):
        peer, offsets = step.peer[first:end], step.dep_start[first : end + 1]
        rows = (
            *(column[first:end] for column in (*columns, step.size_bytes, step.duration_s)),
            step.kind[first:end],
            shape[step.group[first:end]],
            np.where(peer < 0, step.n_ranks, peer - rank),
            offsets - offsets[0],
            step.dep[offsets[0] : offsets[-1]] - first,
        )
        same = known.setdefault(hash(rows[0].tobytes()), [])
        if not any(all(map(np.array_equal, rows, others)) for others in same):
            same.append(rows)
            found.append(rank)
    return np.array(found, dtype=np.int64)


def list_load(
    context: Context,
    ranks: NDArray[np.int64],
    riding: NDArray[np.int64],
    known: dict[tuple[str, bytes], int],
) -> tuple[NDArray[np.generic], ...]:
    """Describe operations on a rail, without names: rails of equal descriptions differ in nothing.

    GPUs are those of the rail, from 0; a group is its dimension and its members, which `known`
    numbers; a communication is its first operation.
    """
    step, plan = context.step, context.plan
    place = np.full(step.n_ranks + 1, -1)  # the last entry: no rank
    place[ranks] = np.arange(len(ranks))
    groups = step.group[riding]
    group = np.full(len(step.groups), -1)
    for k in np.flatnonzero(np.bincount(groups)).tolist():
        one = step.groups[k]
        group[k] = known.setdefault((one.dimension, place[[*one.ranks]].tobytes()), len(known))
    _, first, of = np.unique(step.match[riding], return_index=True, return_inverse=True)
    at = np.searchsorted(riding, plan.relays[:, 0])
    own = np.append(riding, -1)[at] == plan.relays[:, 0]
    columns = (step.kind, step.size_bytes, plan.start_s, plan.end_s, plan.ports)
    return (
        np.arange(len(ranks)),
        *(column[riding] for column in columns),
        *(place[column[riding]] for column in (step.rank, step.peer)),
        group[groups],
        first[of],
        at[own],
        place[plan.relays[own, 1]],
        plan.relays[own, 2],
    )


_AT_ONCE = 1 << 20
"""The number of operations that are compared with their communication at once."""


def check_times(context: Context) -> None:
    """Check order, simultaneity, and what lasts as long as it must without a rail.

    Order and durations are checked at one of all ranks that do the same at the same time.
    """
    step, plan, slack = context.step, context.plan, context.slack_s
    for early in np.flatnonzero(plan.start_s < 0)[:1]:
        rule = "no operation starts before the step"
        context.findings.refuse(rule, step.describe(int(early)), float(plan.start_s[early]), 0.0)
    own = list_operations(step, list_distinct(step, plan.start_s, plan.end_s))
    start, end = plan.start_s[own], plan.end_s[own]
    before, after = list_before(step, own)
    latest = np.full(len(own), -np.inf)
    np.maximum.at(latest, after, end[before])
    rule = "an operation starts after what it waits for"
    context.refuse(rule, own, start < latest - slack, start, latest)
    fixed_s = measure_work(context.job, own).fixed_s
    wrong = (step.rail[own] < 0) & (np.abs(end - start - fixed_s) > slack)
    rule = "an operation lasts as long as its work or its bytes need"
    context.refuse(rule, own, wrong, end - start, fixed_s)
    _check_together(context, "start", plan.start_s)
    _check_together(context, "end", plan.end_s)
    last = float(plan.end_s.max(initial=0.0))
    for timeline in plan.rails:
        if timeline.n_reconfigurations:
            last = max(last, float(timeline.starts_s[-1]) + context.job.network.delay_s)
    if abs(plan.step_s - last) > slack:
        rule = "the step ends with its last operation or reconfiguration"
        context.findings.refuse(rule, "step_s", plan.step_s, last)


def _check_together(context: Context, name: str, times: NDArray[np.float64]) -> None:
    """Check that all parts of a communication have one time."""
    match = context.step.match
    blocks = [slice(at, at + _AT_ONCE) for at in range(0, len(match), _AT_ONCE)]
    common = np.empty(int(match.max(initial=-1)) + 2)  # the last entry: no communication
    for own in blocks:
        common[match[own]] = times[own]
    differ = [(match[own] >= 0) & (common[match[own]] != times[own]) for own in blocks]
    wrong = np.flatnonzero(np.concatenate([*differ, np.empty(0, bool)]))
    rule = f"all parts of a communication {name} together"
    every = np.ones(len(wrong), dtype=bool)
    context.refuse(rule, wrong, every, times[wrong], common[match[wrong]])


def bound_step(job: RailJob, *, one_port: bool = False) -> float:
    """Return when the last operation ends if all links are there: a bound of every plan.

    With `one_port` all-to-alls take as long as `_exchange_s` says.

    The longest path, found level by level. A plan cannot be faster: each operation lasts at least
    as long as with all links, and all that is before another stays before it. In a job of a
    model only one pipeline counts: rank 0, and the ranks that exchange messages with it, directly
    or through others. To leave out other pipelines can only make the bound lower.
    """
    step, own = job.step(), np.arange(job.step().n_operations)
    if job.workload.recorded is None:
        own = list_operations(step, _list_pipeline(step))
    event = np.arange(len(own))
    match = step.match[own]
    event[match >= 0] = len(own) + np.unique(match[match >= 0], return_inverse=True)[1]
    lasts = np.zeros(int(event.max(initial=-1)) + 1)
    lasts[event] = _exchange_s(job, own) if one_port else measure_work(job, own).full_s
    before, after = (event[column] for column in list_before(step, own))
    return float((_begin(lasts, before, after) + lasts).max(initial=0.0))


def _exchange_s(job: RailJob, own: Places) -> Column:
    """Return how long operations last at least if each GPU has a circuit to one other at a time.

    Rules let an all-to-all of n go around a ring, n / 2 times its bytes; or in s stages, with a
    change before each but the first: parts that differ go different ways, and as many ways of h
    hops lead through s stages as there are multisets of h of them.
    """
    step, work = job.step(), measure_work(job, own)
    members = np.array([*(len(group.ranks) for group in step.groups), 1])[step.group[own]]
    many = (step.kind[own] == ALL_TO_ALL) & (step.rail[own] >= 0) & (members > 2)
    for in_rounds, _, _ in list_in_rounds(job, own):
        many &= ~np.isin(own, in_rounds)
    least = work.full_s.copy()
    for n in np.unique(members[many]).tolist():
        rows = np.flatnonzero(many & (members == n))
        part_s, late_s = work.full_s[rows] / (n - 1), work.latency_s[rows]
        best = (work.full_s[rows] - late_s) * n / 2 + late_s
        for stages in range(2, n):
            ways = np.array([math.comb(hops + stages - 1, hops) for hops in range(1, n)])
            sent = np.repeat(np.arange(1, n), np.minimum(ways, n))[: n - 1]
            best = np.minimum(best, sent.sum() * part_s + (stages - 1) * job.network.delay_s)
        least[rows] = best
    return least


def _begin(lasts: Column, before: Places, after: Places) -> Column:
    """Return the earliest begin of each event: when all events that it waits for have ended."""
    after = after[np.argsort(before, kind="stable")]
    first = np.append(0, np.cumsum(np.bincount(before, minlength=len(lasts))))
    missing = np.bincount(after, minlength=len(lasts))
    begin = np.zeros(len(lasts))
    level, place = np.flatnonzero(missing == 0), np.zeros(len(lasts), np.int64)
    while len(level):
        ends = begin[level] + lasts[level]
        counts = first[level + 1] - first[level]
        skipped = np.cumsum(counts) - counts
        edges = np.repeat(first[level] - skipped, counts) + np.arange(counts.sum())
        np.maximum.at(begin, after[edges], np.repeat(ends, counts))
        np.subtract.at(missing, after[edges], 1)
        reached = after[edges]
        level = reached[missing[reached] == 0]
        place[level] = np.arange(len(level))
        level = level[place[level] == np.arange(len(level))]  # each once
    return begin


def bound_changes(job: RailJob) -> float:
    """Return the least step time of plans with one port for each GPU, changes counted.

    A port that meets two others, one after the other, is dark twice, as a step ends with the
    circuits it begins with; so is the one of two GPUs that take turns at a third.
    """
    least = bound_step(job, one_port=True)
    twice = 2 * job.network.delay_s
    return least if twice <= least else max(least, min(bound_staying(job), twice))


def bound_staying(job: RailJob) -> float:
    """Return the least step time of plans in which each GPU, with one port, meets no two others.

    A GPU then sends to one other and receives from one, so whoever communicates is on
    one ring with the others, and a collective needs all of that ring, since each member passes
    data on to the next. No two collectives of a ring overlap. Of any of them the first waits for
    its head, and what comes after the last is no shorter than the least tail: so long a step
    takes, and no subset counts more than those that heads and tails cut off.
    """
    step = job.step()
    own, work = np.arange(step.n_operations), measure_work(job, np.arange(step.n_operations))
    events = np.where(step.match >= 0, step.match, ~own)
    _, first, event = np.unique(events, return_index=True, return_inverse=True)
    before, after = (event[column] for column in list_before(step, own))
    lasts = work.full_s[first]
    head, tail = _begin(lasts, before, after), _begin(lasts, after, before)
    riding = np.flatnonzero(step.rail >= 0)
    port = step.rail[riding].astype(np.int64) * step.n_ranks + step.rank[riding]
    ring = _join(np.unique(port, return_inverse=True)[1], event[riding], len(first))
    members = np.array([len(group.ranks) for group in step.groups])[step.group[riding]]
    many = step.kind[riding] == ALL_TO_ALL  # half around the ring
    rate, needed = job.network.port_bytes_per_s, lasts.copy()
    passed = work.sent_bytes[riding] * members / 2 / rate + work.latency_s[riding]
    needed[event[riding[many]]] = passed[many]
    collective = np.unique(event[riding[step.kind[riding] < SEND]])
    least = 0.0
    for each in np.unique(ring[collective]).tolist():
        row = collective[ring[collective] == each]
        row = row[np.argsort(-head[row])]
        for after_s in np.unique(tail[row]).tolist():
            late = row[tail[row] >= after_s]
            least = max(least, float((head[late] + np.cumsum(needed[late])).max()) + after_s)
    return least


def _join(port: Places, event: Places, n_events: int) -> Places:
    """Return by event a number that is the same if ports have events in common, step by step."""
    least = np.unique(port)
    while True:
        lowest = np.full(n_events, len(least))
        np.minimum.at(lowest, event, least[port])
        fresh = least.copy()
        np.minimum.at(fresh, port, lowest[event])
        if np.array_equal(fresh, least):
            return lowest
        least = fresh[fresh]


def _list_pipeline(step: Step) -> NDArray[np.int64]:
    """List rank 0, and all that exchange messages with it, directly or through others."""
    found, many = np.arange(1), 0
    while len(found) > many:
        many = len(found)
        found = np.union1d(found, step.peer[list_operations(step, found)])
        found = found[found >= 0]
    return found

"""The rules of time in a rail plan: what comes before what, and how long everything takes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import RailJob
from optmatch.problems.rails.step import COMPUTE, OPERATIONS, RECV, SEND, Step
from optmatch.verify.rails.context import Context, Work
from optmatch.verify.rails.transfers import measure_rounds

Column = NDArray[np.float64]
_FACTORS: dict[str, tuple[Callable[[Column], Column], Callable[[Column], Column]]] = {
    # what a member of a group of n sends per byte of size, and in how many messages
    "all-reduce": (lambda n: 2 * (n - 1) / n, lambda n: 2 * (n - 1)),
    "all-gather": (lambda n: n - 1, lambda n: n - 1),
    "reduce-scatter": (lambda n: (n - 1) / n, lambda n: n - 1),
    "all-to-all": (lambda n: (n - 1) / n, lambda n: n - 1),
    "broadcast": (lambda n: 1 + 0 * n, lambda n: 1 + 0 * n),
    "send": (lambda n: 1 + 0 * n, lambda n: 1 + 0 * n),
    "recv": (lambda n: 1 + 0 * n, lambda n: 1 + 0 * n),
}


def measure_work(job: RailJob) -> Work:
    """Find from sizes and groups how much each operation sends, and how long it lasts."""
    step = job.step()
    members = np.array([*(len(group.ranks) for group in step.groups), 1], dtype=np.float64)
    n = members[step.group]
    sent, messages = np.zeros(len(n)), np.zeros(len(n))
    for kind, (share, count) in _FACTORS.items():
        of = step.kind == OPERATIONS.index(kind)
        sent[of] = share(n[of]) * step.size_bytes[of]
        messages[of] = count(n[of])
    measure_rounds(job, sent, messages)
    latency = messages * job.network.latency_s
    on_rail = step.rail >= 0
    compute = step.kind == COMPUTE
    inside = np.where(compute, step.duration_s, sent / job.network.scale_up_bytes_per_s + latency)
    all_ports = job.network.port_bytes_per_s * job.network.ports_per_gpu
    full = np.where(on_rail, sent / all_ports + latency, inside)
    return Work(sent, latency, on_rail, inside, full)


def list_before(step: Step) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Pair every operation with those that have to end before it starts.

    These are its dependencies, and the one before it in its stream: a rank has a stream for what
    it computes, one for the collectives of each dimension inside its server, one for those on its
    rail, and one for what it sends to each other rank and for what it receives from there.
    """
    dimensions = sorted({group.dimension for group in step.groups})
    number = np.array([*(dimensions.index(g.dimension) for g in step.groups), len(dimensions)])
    which = 2 * number[step.group] + (step.rail >= 0)
    is_message = np.isin(step.kind, [SEND, RECV])
    messages = np.flatnonzero(is_message)
    ends = np.stack([step.rank, which, step.peer, step.kind])[:, messages]
    order = np.lexsort(ends)
    same = (np.diff(ends[:, order], axis=1) == 0).all(axis=0)
    before, after = [messages[order[:-1][same]]], [messages[order[1:][same]]]
    which[messages] = -1
    for each in range(2 * len(dimensions) + 2):  # those of a rank stand together
        own = np.flatnonzero(which == each)
        same = step.rank[own[:-1]] == step.rank[own[1:]]
        before.append(own[:-1][same])
        after.append(own[1:][same])
    depends = np.repeat(np.arange(step.n_operations), np.diff(step.dep_start))
    return (
        np.concatenate([step.dep, *before], dtype=np.int32),  # memory counts: many ranks do much
        np.concatenate([depends, *after], dtype=np.int32),
    )


def check_times(context: Context) -> None:
    """Check order, simultaneity, and what lasts as long as it must without a rail."""
    step, plan, work, slack = context.step, context.plan, context.work, context.slack_s
    start, end, every = plan.start_s, plan.end_s, np.arange(step.n_operations)
    context.refuse("no operation starts before the step", every, start < 0, start, 0.0)
    before, after = list_before(step)
    latest = np.zeros(step.n_operations)
    np.maximum.at(latest, after, end[before])
    rule = "an operation starts after what it waits for"
    context.refuse(rule, every, start < latest - slack, start, latest)
    parts = np.flatnonzero(step.match >= 0)
    _, first, number = np.unique(step.match[parts], return_index=True, return_inverse=True)
    heads = parts[first][number.reshape(-1)]
    for name, times in (("start", start), ("end", end)):
        rule = f"all parts of a communication {name} together"
        context.refuse(rule, parts, times[parts] != times[heads], times[parts], times[heads])
    wrong = ~work.on_rail & (np.abs(end - start - work.fixed_s) > slack)
    rule = "an operation lasts as long as its work or its bytes need"
    context.refuse(rule, every, wrong, end - start, work.fixed_s)
    last = float(end.max(initial=0.0))
    for timeline in plan.rails:
        if timeline.n_reconfigurations:
            last = max(last, float(timeline.starts_s[-1]) + context.job.network.delay_s)
    if abs(plan.step_s - last) > slack:
        rule = "the step ends with its last operation or reconfiguration"
        context.findings.refuse(rule, "step_s", plan.step_s, last)


def bound_step(job: RailJob, work: Work) -> float:
    """Return when the last operation ends if all links are there: a bound of every plan.

    Notes
    -----
    The longest path, found level by level. A plan cannot be faster: each operation lasts at least
    as long as with all links, and all that is before another stays before it.
    """
    step = job.step()
    joined = step.match >= 0
    event = np.arange(step.n_operations, dtype=np.int32)
    event[joined] = step.n_operations + step.match[joined]
    lasts = np.zeros(int(event.max(initial=-1)) + 1)
    lasts[event] = work.full_s
    before, after = (event[column] for column in list_before(step))
    after = after[np.argsort(before, kind="stable")]
    first = np.append(0, np.cumsum(np.bincount(before, minlength=len(lasts))))
    missing = np.bincount(after, minlength=len(lasts))
    begin, done = np.zeros(len(lasts)), 0.0
    level, place = np.flatnonzero(missing == 0), np.zeros(len(lasts), np.int64)
    while len(level):
        ends = begin[level] + lasts[level]
        done = max(done, float(ends.max()))
        counts = first[level + 1] - first[level]
        skipped = np.cumsum(counts) - counts
        edges = np.repeat(first[level] - skipped, counts) + np.arange(counts.sum())
        np.maximum.at(begin, after[edges], np.repeat(ends, counts))
        np.subtract.at(missing, after[edges], 1)
        reached = after[edges]
        level = reached[missing[reached] == 0]
        place[level] = np.arange(len(level))
        level = level[place[level] == np.arange(len(level))]  # each once
    return done

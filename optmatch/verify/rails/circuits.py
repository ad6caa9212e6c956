"""The rules of circuits in a rail plan: who sends has them, nobody else uses them meanwhile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems import RailJob
from optmatch.problems.rails.plan import RailPlan, RailTimeline
from optmatch.problems.rails.step import OPERATIONS
from optmatch.verify.rails.relays import check_routes, forwards
from optmatch.verify.rails.rounds import check_in_rounds
from optmatch.verify.rails.times import SLACK, Work, tell
from optmatch.verify.report import Findings

_RECV = OPERATIONS.index("recv")
_SEND = OPERATIONS.index("send")
_ALL_TO_ALL = OPERATIONS.index("all-to-all")


class Rail(NamedTuple):
    """One rail in the replay."""

    number: int
    ranks: NDArray[np.int64]
    timeline: RailTimeline
    since_s: NDArray[np.float64]
    """``since_s[state, port]``: when the change to its circuit began; -inf if it was there."""
    until_s: NDArray[np.float64]
    """``until_s[state, port]``: when its circuit is next given up."""
    port_of: NDArray[np.int64]
    """``port_of[GPU port]``: the port of the switch."""
    gpu_port: NDArray[np.int64]
    """``gpu_port[port]``, the other way round; -1 of ports without a GPU."""


class Sent(NamedTuple):
    """What goes over which port; rows of (operation, port)."""

    operation: NDArray[np.int64]
    port: NDArray[np.int64]


def open_rail(job: RailJob, number: int, ranks: NDArray[np.int64], timeline: RailTimeline) -> Rail:
    """Find when each circuit of a timeline is set up and given up."""
    matchings, starts = timeline.matchings, timeline.starts_s
    since = np.full(matchings.shape, -np.inf)
    until = np.full(matchings.shape, np.inf)
    for state in range(1, len(matchings)):
        changed = matchings[state] != matchings[state - 1]
        since[state] = np.where(changed, starts[state], since[state - 1])
    for state in range(len(matchings) - 2, -1, -1):
        changed = matchings[state] != matchings[state + 1]
        until[state] = np.where(changed, starts[state + 1], until[state + 1])
    n_ports = matchings.shape[1]
    live = np.arange(n_ports) if job.fabric is None else job.fabric.live_ports
    port_of = live[: len(ranks) * job.network.ports_per_gpu]
    gpu_port = np.full(n_ports, -1)
    gpu_port[port_of] = np.arange(len(port_of))
    return Rail(number, ranks, timeline, since, until, port_of, gpu_port)


def dark_s(
    job: RailJob, rail: Rail, start: NDArray[np.float64], end: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Add up how long everything on a rail stands still between two times."""
    total = np.zeros(len(start))
    if job.network.switching == "all-stop":
        for begin in rail.timeline.starts_s[1:]:
            overlap = np.minimum(end, begin + job.network.delay_s) - np.maximum(start, begin)
            total += np.maximum(overlap, 0.0)
    return total


def check_rail(job: RailJob, plan: RailPlan, rail: Rail, work: Work, findings: Findings) -> None:
    """Apply all rules of circuits to what rides one rail."""
    step = job.step()
    rails = np.array([*(group.rail for group in step.groups), -1])
    riding = np.flatnonzero(rails[step.group] == rail.number)
    masks = plan.ports[riding]
    wrong = np.zeros(step.n_operations, dtype=bool)
    wrong[riding] = (masks <= 0) | (masks >> job.network.ports_per_gpu != 0)
    rule = "an operation on a rail uses ports of its GPU"
    tell(findings, step, rule, wrong, plan.ports.astype(np.float64), 1.0)
    if wrong.any():
        return
    senders = riding[step.kind[riding] != _RECV]
    members = np.array([len(group.ranks) for group in step.groups])
    scattered = (step.kind[senders] == _ALL_TO_ALL) & (members[step.group[senders]] > 2)
    split = senders[scattered]
    in_rounds = _changes_inside(job, plan, rail, split)
    in_rounds |= _takes_one_round(job, plan, rail, split, work)
    changing = split[in_rounds]
    check_rounds(job, plan, rail, changing, work, findings)
    changing = np.union1d(changing, check_in_rounds(job, plan, rail, findings))
    relayed = np.setdiff1d(senders[forwards(plan, step)[senders] & ~scattered], changing)
    direct = np.setdiff1d(senders, np.union1d(changing, relayed))
    sent = _follow(job, plan, rail, direct, findings)
    _check_lengths(job, plan, rail, direct, work, findings)
    if len(relayed):
        dark = dark_s(job, rail, plan.start_s[relayed], plan.end_s[relayed])
        routed = Sent(*check_routes(job, plan, rail, relayed, dark, work, findings))
        sent = Sent(*map(np.concatenate, zip(sent, routed, strict=True)))
    _check_sharing(job, plan, rail, changing, sent, findings)


def _changes_inside(
    job: RailJob, plan: RailPlan, rail: Rail, operations: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Tell in which operations circuits of their ports change: all-to-alls in several rounds."""
    slack = SLACK * max(plan.step_s, 1e-9)
    start, end = plan.start_s[operations], plan.end_s[operations]
    state = np.searchsorted(rail.timeline.starts_s, start + slack, side="right") - 1
    gpu = np.searchsorted(rail.ranks, job.step().rank[operations])
    changes = np.zeros(len(operations), dtype=bool)
    for port in range(job.network.ports_per_gpu):
        uses = plan.ports[operations] >> port & 1 == 1
        at = rail.port_of[gpu * job.network.ports_per_gpu + port]
        changes |= uses & (rail.until_s[state, at] < end - slack)
    return changes


def _takes_one_round(
    job: RailJob, plan: RailPlan, rail: Rail, operations: NDArray[np.int64], work: Work
) -> NDArray[np.bool_]:
    """Tell which all-to-alls have a port for everyone, and last as long as that takes."""
    step, slack = job.step(), SLACK * max(plan.step_s, 1e-9)
    n = np.array([len(group.ranks) for group in step.groups])[step.group[operations]]
    uses = np.array([int(mask).bit_count() for mask in plan.ports[operations]])
    part = work.sent_bytes[operations] / np.maximum(n - 1, 1) / job.network.port_bytes_per_s
    start, end = plan.start_s[operations], plan.end_s[operations]
    lasts = end - start - dark_s(job, rail, start, end)
    part += (n - 1) * job.network.latency_s
    found: NDArray[np.bool_] = (uses >= n - 1) & (np.abs(lasts - part) <= slack)
    return found


def check_rounds(
    job: RailJob,
    plan: RailPlan,
    rail: Rail,
    operations: NDArray[np.int64],
    work: Work,
    findings: Findings,
) -> None:
    """Check that in an all-to-all of several rounds everyone gets to send to everyone else.

    Each pair needs a circuit for as long as its part needs; the operation lasts as many rounds as
    its ports need for all others, and a reconfiguration between each two, or as long as the rail
    stands still meanwhile; rounds share evenly what messages take longer than their bytes.
    """
    step, slack = job.step(), SLACK * max(plan.step_s, 1e-9)
    sizes = np.array([len(group.ranks) for group in step.groups])
    n = sizes[step.group[operations]]
    uses = np.array([int(mask).bit_count() for mask in plan.ports[operations]])
    rounds = -(-(n - 1) // np.maximum(uses, 1))
    part = work.sent_bytes[operations] / np.maximum(n - 1, 1) / job.network.port_bytes_per_s
    part += (n - 1) * job.network.latency_s / np.maximum(rounds, 1)
    start, end = plan.start_s[operations], plan.end_s[operations]
    gpu = np.searchsorted(rail.ranks, step.rank[operations])
    begins = np.append(rail.timeline.starts_s, np.inf)
    served: set[tuple[int, int]] = set()
    for state in range(len(rail.timeline.matchings)):
        here = (start < begins[state + 1] + slack) & (end > begins[state] - slack)
        for port in range(job.network.ports_per_gpu if here.any() else 0):
            at = rail.port_of[gpu * job.network.ports_per_gpu + port]
            arrives = rail.timeline.matchings[state, at]
            there = here & (plan.ports[operations] >> port & 1 == 1) & (arrives != IDLE)
            since = np.maximum(start, rail.since_s[state, at] + job.network.delay_s)
            until = np.minimum(end, rail.until_s[state, at])
            held = until - since
            if job.network.switching == "all-stop":
                held -= dark_s(job, rail, since, np.maximum(since, until))
            for k in np.flatnonzero(there & (held >= part - slack)):
                reached = int(rail.ranks[rail.gpu_port[arrives[k]] // job.network.ports_per_gpu])
                served.add((int(operations[k]), reached))
    count = np.zeros(step.n_operations)
    for operation, reached in served:
        members = step.groups[step.group[operation]].ranks
        count[operation] += reached in members and reached != step.rank[operation]
    wanted = np.zeros(step.n_operations)
    wanted[operations] = n - 1
    rule = "in an all-to-all everyone sends to everyone else"
    tell(findings, step, rule, count != wanted, count, wanted)
    needed = np.zeros(step.n_operations)
    needed[operations] = rounds * part
    if job.network.switching == "all-stop":
        needed[operations] += dark_s(job, rail, start, end)
    else:
        needed[operations] += (rounds - 1) * job.network.delay_s
    lasts = plan.end_s - plan.start_s
    wrong = np.zeros(step.n_operations, dtype=bool)
    wrong[operations] = np.abs(lasts - needed)[operations] > slack
    rule = "an operation lasts as long as its bytes need on its ports"
    tell(findings, step, rule, wrong, lasts, needed)


def _follow(
    job: RailJob,
    plan: RailPlan,
    rail: Rail,
    operations: NDArray[np.int64],
    findings: Findings,
) -> Sent:
    """Follow the circuits of operations: they are up, and lead where the data belong."""
    step, k, slack = job.step(), job.network.ports_per_gpu, SLACK * max(plan.step_s, 1e-9)
    ports = np.arange(k)
    row, port = np.nonzero(plan.ports[operations][:, None] >> ports & 1)
    op = operations[row]
    gpu = np.searchsorted(rail.ranks, step.rank[op])
    at = rail.port_of[gpu * k + port]
    start, end = plan.start_s[op], plan.end_s[op]
    state = np.searchsorted(rail.timeline.starts_s, start + slack, side="right") - 1
    arrives = rail.timeline.matchings[state, at]
    there = (arrives != IDLE) & (rail.gpu_port[arrives] >= 0)
    wait = 0.0 if job.network.switching == "all-stop" else job.network.delay_s
    up = (
        there
        & (rail.since_s[state, at] + wait <= start + slack)
        & (rail.until_s[state, at] >= end - slack)
    )
    shown = np.zeros(step.n_operations, dtype=bool)
    shown[op[~up]] = True
    got = np.where(shown, plan.start_s, 0.0)
    tell(findings, step, "its circuits are there from start to end", shown, got, np.nan)
    there_port = np.where(there, rail.gpu_port[arrives], 0)
    reached = rail.ranks[there_port // k]
    message = step.kind[op] == _SEND
    astray = message & there & (reached != step.peer[op])
    _tell_astray(findings, job, op[astray], reached[astray])
    _check_receivers(job, plan, op[message & there], there_port[message & there] % k, findings)
    together = ~message
    _check_rings(job, op[together], port[together], reached[together], there[together], findings)
    return Sent(op, at)


def _tell_astray(
    findings: Findings, job: RailJob, op: NDArray[np.int64], reached: NDArray[np.int64]
) -> None:
    for k, rank in zip(op[:5].tolist(), reached[:5].tolist(), strict=True):
        step = job.step()
        findings.refuse(
            "a message goes to its receiver", step.describe(k), rank, int(step.peer[k])
        )


def _check_receivers(
    job: RailJob,
    plan: RailPlan,
    op: NDArray[np.int64],
    port: NDArray[np.int64],
    findings: Findings,
) -> None:
    """Check that a receiver states the ports at which the message arrives."""
    step = job.step()
    if not len(op):
        return
    matches = np.full(int(step.match.max()) + 1, -1)
    receives = np.flatnonzero(step.kind == _RECV)
    matches[step.match[receives]] = receives
    found = np.zeros(step.n_operations, dtype=np.int64)
    np.bitwise_or.at(found, matches[step.match[op]], 1 << port)
    touched = np.unique(matches[step.match[op]])
    wrong = np.zeros(step.n_operations, dtype=bool)
    wrong[touched] = plan.ports[touched] != found[touched]
    rule = "a receiver uses the ports at which the message arrives"
    tell(findings, step, rule, wrong, plan.ports.astype(np.float64), found.astype(np.float64))


def _check_rings(
    job: RailJob,
    op: NDArray[np.int64],
    port: NDArray[np.int64],
    reached: NDArray[np.int64],
    there: NDArray[np.bool_],
    findings: Findings,
) -> None:
    """Check that on each port of a collective the circuits make one ring over the group."""
    step = job.step()
    sizes = np.array([len(group.ranks) for group in step.groups])
    ring = step.match[op].astype(np.int64) * job.network.ports_per_gpu + port
    key = ring * step.n_ranks + step.rank[op]
    order = np.argsort(key)
    wanted = np.where(there, ring * step.n_ranks + reached, -1)
    place = np.searchsorted(key[order], wanted)
    onward = np.append(order, -1)[place]
    inside = (onward >= 0) & (np.append(key, -2)[onward] == wanted)
    onward = np.where(inside, onward, np.arange(len(op)))
    once = np.bincount(onward, minlength=len(op)) == 1
    first = np.arange(len(op))  # the first of those that are reached from here
    _, of_ring, count = np.unique(ring, return_inverse=True, return_counts=True)
    for _ in range(int(sizes.max(initial=1)).bit_length()):
        first = np.minimum(first, first[onward])
        onward = onward[onward]
    smallest = np.full(len(count), len(op))
    np.minimum.at(smallest, of_ring.reshape(-1), np.arange(len(op)))
    whole = inside & once & (first == smallest[of_ring.reshape(-1)])
    whole &= count[of_ring.reshape(-1)] == sizes[step.group[op]]
    wrong = np.zeros(step.n_operations, dtype=bool)
    wrong[op[~whole]] = True
    rule = "the circuits of a collective make one ring over its group"
    tell(findings, step, rule, wrong, step.group.astype(np.float64), np.nan)


def _check_lengths(
    job: RailJob,
    plan: RailPlan,
    rail: Rail,
    op: NDArray[np.int64],
    work: Work,
    findings: Findings,
) -> None:
    """Check that an operation lasts as long as its bytes need on its ports."""
    step = job.step()
    start, end = plan.start_s, plan.end_s
    uses = np.array([int(mask).bit_count() for mask in plan.ports[op]])
    needed = np.zeros(step.n_operations)
    members = np.array([len(group.ranks) for group in step.groups])[step.group[op]]
    around = np.where((step.kind[op] == _ALL_TO_ALL) & (members > 2), members / 2, 1.0)
    needed[op] = work.sent_bytes[op] * around / (uses * job.network.port_bytes_per_s)
    needed[op] += work.latency_s[op]
    needed[op] += dark_s(job, rail, start[op], end[op])
    wrong = np.zeros(step.n_operations, dtype=bool)
    slack = SLACK * max(plan.step_s, 1e-9)
    wrong[op] = np.abs(end[op] - start[op] - needed[op]) > slack
    rule = "an operation lasts as long as its bytes need on its ports"
    tell(findings, step, rule, wrong, end - start, needed)


def _check_sharing(
    job: RailJob,
    plan: RailPlan,
    rail: Rail,
    changing: NDArray[np.int64],
    sent: Sent,
    findings: Findings,
) -> None:
    """Check that a port sends for one operation at a time."""
    step, slack = job.step(), SLACK * max(plan.step_s, 1e-9)
    k = job.network.ports_per_gpu
    row, number = np.nonzero(plan.ports[changing][:, None] >> np.arange(k) & 1)
    gpu = np.searchsorted(rail.ranks, step.rank[changing[row]])
    operation = np.concatenate([sent.operation, changing[row]])
    port = np.concatenate([sent.port, rail.port_of[gpu * k + number]])
    start, end = plan.start_s[operation], plan.end_s[operation]
    order = np.lexsort([end, start, port])
    same = np.diff(port[order]) == 0
    overlap = same & (start[order][1:] < end[order][:-1] - slack)
    wrong = np.zeros(step.n_operations, dtype=bool)
    late = operation[order][1:][overlap]
    wrong[late] = True
    latest = np.zeros(step.n_operations)
    latest[late] = end[order][:-1][overlap]
    rule = "a port sends for one operation at a time"
    tell(findings, step, rule, wrong, plan.start_s, latest)

"""The rules of forwarding in a rail plan: hops have their circuits, and lead to the receiver.

Data that are forwarded pass through the ranks between as they come: all hops are held from the
start of the operation to its end. So it lasts as long as its bytes need on the ports of its
narrowest hop, and each message is late by the latency of every hop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems import RailJob
from optmatch.problems.rails.plan import RailPlan
from optmatch.problems.rails.step import OPERATIONS, Step
from optmatch.verify.rails.times import SLACK, Work, tell
from optmatch.verify.rails.transfers import shapes
from optmatch.verify.report import Findings

if TYPE_CHECKING:
    from optmatch.verify.rails.circuits import Rail

_RECV = OPERATIONS.index("recv")
_SEND = OPERATIONS.index("send")
_ALL_TO_ALL = OPERATIONS.index("all-to-all")


class Hops(NamedTuple):
    """The hops of operations, each with all its ports; arrays by hop."""

    operation: NDArray[np.int64]
    rank: NDArray[np.int64]
    """From where."""
    ports: NDArray[np.int64]
    """Over which of its ports, as bits."""
    onward: NDArray[np.int64]
    """To which rank; -1 of the last one, which goes to whom the data are for."""


class Lit(NamedTuple):
    """The circuits of hops, each port of its own; arrays by port in use."""

    hop: NDArray[np.int64]
    port: NDArray[np.int64]
    """Of the switch."""
    there: NDArray[np.bool_]
    """Whether it leads to a GPU at all."""
    reached: NDArray[np.int64]
    """The rank there."""
    arrives: NDArray[np.int64]
    """The port of that GPU."""


def forwards(plan: RailPlan, step: Step) -> NDArray[np.bool_]:
    """Tell which operations are parts of a communication whose data are forwarded."""
    found = np.zeros(step.n_operations, dtype=bool)
    found[plan.relays[:, 0]] = True
    touched = step.match[found & (step.match >= 0)]
    together: NDArray[np.bool_] = found | np.isin(step.match, touched)
    return together


def check_forwarded(job: RailJob, plan: RailPlan, work: Work, findings: Findings) -> bool:
    """Check that only what is sent over a rail is forwarded, and from ranks that are there."""
    step = job.step()
    operation, rank, ports = plan.relays.T.astype(np.int64)
    sizes = np.array([*(len(group.ranks) for group in step.groups), 1])[step.group[operation]]
    in_rounds = np.zeros(step.n_operations, dtype=bool)
    for operations, _, _ in shapes(job):
        in_rounds[operations] = True
    several = in_rounds[operation] | ((step.kind[operation] == _ALL_TO_ALL) & (sizes > 2))
    sent = work.on_rail[operation] & (step.kind[operation] != _RECV) & ~several
    rules = (
        ("what is forwarded is sent over a rail, and goes to one rank", sent),
        ("who forwards has that rank and those ports", _exists(job, rank, ports)),
    )
    for rule, right in rules:
        for row in np.flatnonzero(~right)[:5]:
            findings.refuse(rule, f"relays[{row}]", plan.relays[row].tolist(), "a hop on its way")
    return all(bool(right.all()) for _, right in rules)


def _exists(job: RailJob, rank: NDArray[np.int64], ports: NDArray[np.int64]) -> NDArray[np.bool_]:
    right: NDArray[np.bool_] = (rank >= 0) & (rank < job.step().n_ranks)
    right &= (ports > 0) & (ports >> job.network.ports_per_gpu == 0)
    return right


def check_routes(
    job: RailJob,
    plan: RailPlan,
    rail: Rail,
    operations: NDArray[np.int64],
    dark_s: NDArray[np.float64],
    work: Work,
    findings: Findings,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Apply the rules of forwarding to operations that send.

    Parameters
    ----------
    job, plan, rail, work
        The job, the plan, one of its rails, and what each operation has to do.
    operations
        Of the communications on this rail in which anything is forwarded all parts that send.
    dark_s
        How long the rail stands still as a whole during each of them.
    findings
        Receives violations.

    Returns
    -------
    tuple
        Operation and port of the switch of all that they use.
    """
    step = job.step()
    hops = _list_hops(plan, step, operations)
    away = ~np.isin(hops.rank, rail.ranks)
    _refuse(findings, step, "data are forwarded on their own rail", hops, np.flatnonzero(away))
    if away.any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    lit = _follow(job, plan, rail, hops, findings)
    onward = hops.onward[lit.hop]
    astray = np.flatnonzero(lit.there & (onward >= 0) & (lit.reached != onward))
    _refuse(findings, step, "data are handed on where they arrive", hops, lit.hop[astray])
    lead = _lead(step, hops, lit, findings)
    messages = operations[step.kind[operations] == _SEND]
    wrong = np.zeros(step.n_operations, dtype=bool)
    wrong[messages] = lead[messages] != step.peer[messages]
    rule = "a message goes to its receiver"
    tell(findings, step, rule, wrong, lead.astype(float), step.peer.astype(float))
    _check_arrival(plan, step, hops, lit, findings)
    _check_rings(step, np.setdiff1d(operations, messages), lead, findings)
    _check_lengths(job, plan, operations, dark_s, hops, work, findings)
    return hops.operation[lit.hop], lit.port


def _list_hops(plan: RailPlan, step: Step, operations: NDArray[np.int64]) -> Hops:
    """Put the way of each operation together: its own rank, then those that forward."""
    rows = plan.relays[np.isin(plan.relays[:, 0], operations)].astype(np.int64)
    operation = np.concatenate([operations, rows[:, 0]])
    rank = np.concatenate([step.rank[operations], rows[:, 1]])
    ports = np.concatenate([plan.ports[operations], rows[:, 2]])
    order = np.argsort(operation, kind="stable")
    operation, rank, ports = operation[order], rank[order], ports[order]
    more = np.append(operation[1:] == operation[:-1], False)[: len(operation)]
    return Hops(operation, rank, ports, np.where(more, np.roll(rank, -1), -1))


def _follow(job: RailJob, plan: RailPlan, rail: Rail, hops: Hops, findings: Findings) -> Lit:
    """Find the circuit of every port of every hop, and check that it is up all the time."""
    slack, k = SLACK * max(plan.step_s, 1e-9), job.network.ports_per_gpu
    hop, number = np.nonzero(hops.ports[:, None] >> np.arange(k) & 1)
    port = rail.port_of[np.searchsorted(rail.ranks, hops.rank[hop]) * k + number]
    start, end = (times[hops.operation[hop]] for times in (plan.start_s, plan.end_s))
    state = np.searchsorted(rail.timeline.starts_s, start + slack, side="right") - 1
    arrives = rail.timeline.matchings[state, port]
    there = (arrives != IDLE) & (rail.gpu_port[arrives] >= 0)
    wait = 0.0 if job.network.switching == "all-stop" else job.network.delay_s
    up = there & (rail.since_s[state, port] + wait <= start + slack)
    up &= rail.until_s[state, port] >= end - slack
    dark = np.unique(hop[~up])
    _refuse(findings, job.step(), "its circuits are there from start to end", hops, dark)
    at = np.where(there, rail.gpu_port[arrives], 0)
    return Lit(hop, port, there, rail.ranks[at // k], at % k)


def _lead(step: Step, hops: Hops, lit: Lit, findings: Findings) -> NDArray[np.int64]:
    """Return for each operation the rank where its data arrive, -1 if there is not one."""
    lead = np.full(step.n_operations, -1)
    last = (hops.onward[lit.hop] < 0) & lit.there
    lead[hops.operation[lit.hop[last]]] = lit.reached[last]
    apart = np.flatnonzero(last & (lit.reached != lead[hops.operation[lit.hop]]))
    _refuse(findings, step, "all ports of a hop lead to the same rank", hops, lit.hop[apart])
    return lead


def _check_arrival(plan: RailPlan, step: Step, hops: Hops, lit: Lit, findings: Findings) -> None:
    """Check that a receiver states the ports at which the message arrives."""
    operation = hops.operation[lit.hop]
    last = (hops.onward[lit.hop] < 0) & lit.there & (step.kind[operation] == _SEND)
    receives = np.flatnonzero(step.kind == _RECV)
    receiver = np.full(int(step.match.max(initial=-1)) + 1, -1)
    receiver[step.match[receives]] = receives
    found = np.zeros(step.n_operations, dtype=np.int64)
    to = receiver[step.match[operation[last]]]
    np.bitwise_or.at(found, to, 1 << lit.arrives[last])
    wrong = np.zeros(step.n_operations, dtype=bool)
    wrong[to] = plan.ports[to] != found[to]
    rule = "a receiver uses the ports at which the message arrives"
    tell(findings, step, rule, wrong, plan.ports.astype(float), found.astype(float))


def _check_rings(
    step: Step, operations: NDArray[np.int64], lead: NDArray[np.int64], findings: Findings
) -> None:
    """Check that from each member of a group data come to another, and around to all."""
    parts: dict[int, dict[int, int]] = {}
    for operation in operations.tolist():
        ring = parts.setdefault(int(step.match[operation]), {})
        ring[int(step.rank[operation])] = int(lead[operation])
    wrong = np.zeros(step.n_operations, dtype=bool)
    for operation in operations.tolist():
        ring = parts[int(step.match[operation])]
        rank = int(step.rank[operation])
        if rank in ring:  # once for each ring, from its first member
            seen = _around(ring, rank)
            wrong[operation] = len(seen) < len(step.groups[step.group[operation]].ranks)
            ring.clear()
    rule = "the circuits of a collective make one ring over its group"
    tell(findings, step, rule, wrong, step.group.astype(float), np.nan)


def _around(ring: dict[int, int], start: int) -> set[int]:
    """Return who is passed until the ring comes back to its start; nobody if it does not."""
    seen = {start}
    rank = ring[start]
    while rank in ring and rank not in seen:
        seen.add(rank)
        rank = ring[rank]
    return seen if rank == start else set()


def _check_lengths(
    job: RailJob,
    plan: RailPlan,
    operations: NDArray[np.int64],
    dark_s: NDArray[np.float64],
    hops: Hops,
    work: Work,
    findings: Findings,
) -> None:
    """Check that operations last as long as their bytes and all hops need."""
    step = job.step()
    width = np.bitwise_count(hops.ports.astype(np.uint64)).astype(np.int64)
    top = int(step.match.max(initial=-1)) + 1
    narrowest, longest = np.full(top, job.network.ports_per_gpu), np.zeros(top, np.int64)
    np.minimum.at(narrowest, step.match[hops.operation], width)
    count = np.bincount(hops.operation, minlength=step.n_operations)
    np.maximum.at(longest, step.match[operations], count[operations])
    start, end, match = plan.start_s, plan.end_s, step.match[operations]
    needed = np.zeros(step.n_operations)
    rate = np.maximum(narrowest[match], 1) * job.network.port_bytes_per_s
    needed[operations] = work.sent_bytes[operations] / rate
    needed[operations] += work.latency_s[operations] * longest[match]
    needed[operations] += dark_s
    wrong = np.zeros(step.n_operations, dtype=bool)
    slack = SLACK * max(plan.step_s, 1e-9)
    wrong[operations] = np.abs((end - start - needed)[operations]) > slack
    rule = "an operation lasts as long as its bytes need on its ports"
    tell(findings, step, rule, wrong, end - start, needed)


def _refuse(
    findings: Findings, step: Step, rule: str, hops: Hops, wrong: NDArray[np.int64]
) -> None:
    for hop in wrong[:5].tolist():
        onward = int(hops.onward[hop])
        findings.refuse(
            rule,
            step.describe(int(hops.operation[hop])),
            f"from rank {hops.rank[hop]}, over ports {hops.ports[hop]:b}",
            f"to rank {onward}" if onward >= 0 else "to whom the data are for",
        )

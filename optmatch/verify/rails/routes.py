"""The replay of data along routes: a direct send is a route of one hop.

Data that are forwarded pass through the ranks between as they come: all hops are held from the
start of the operation to its end. So it lasts as long as its bytes need on the ports of its
narrowest hop, and each message is late by the latency of every hop.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.rails.training.step import ALL_TO_ALL, RECV, SEND
from optmatch.verify.rails.circuits import Rail, Sent
from optmatch.verify.rails.context import MOST_TOLD, Context, list_in_rounds
from optmatch.verify.rails.work import measure_work


class Hops(NamedTuple):
    """The hops of operations, each with all its ports; arrays by hop."""

    operation: NDArray[np.int64]
    rank: NDArray[np.int64]
    """From where."""
    ports: NDArray[np.int64]
    """Over which of its ports, as bits."""
    onward: NDArray[np.int64]
    """The rank that the hop leads to; -1 for the last hop, to the receiver of the data."""


def check_forwarded(context: Context) -> bool:
    """Check that only sends over a rail are forwarded, and from ranks that are there."""
    step, relays = context.step, context.plan.relays
    operation, rank, ports = relays.T.astype(np.int64)
    several = [operations for operations, _, _ in list_in_rounds(context.job, operation)]
    sent = (step.rail[operation] >= 0) & (step.kind[operation] != RECV)
    sent &= ~np.isin(operation, np.concatenate([operation[:0], *several]))
    exists = (rank >= 0) & (rank < step.n_ranks)
    exists &= (ports > 0) & (ports >> context.job.network.ports_per_gpu == 0)
    rules = (
        ("what is forwarded is sent over a rail, and not in rounds", sent),
        ("who forwards has that rank and those ports", exists),
    )
    for rule, right in rules:
        for row in np.flatnonzero(~right)[:MOST_TOLD]:
            where = f"relays[{row}]"
            context.findings.refuse(rule, where, relays[row].tolist(), "a hop of a route")
    return all(bool(right.all()) for _, right in rules)


def check_routes(
    context: Context, rail: Rail, riding: NDArray[np.int64], operations: NDArray[np.int64]
) -> Sent:
    """Follow the circuits of operations, hop by hop, to where their data arrive.

    `operations` are those of the `riding`, which are ascending, that send over the rail while
    their circuits stay.
    """
    step, plan, k = context.step, context.plan, rail.ports_per_gpu
    hops = _list_hops(context, operations)
    away = ~np.isin(hops.rank, rail.ranks)
    if away.any():
        _refuse(context, "data are forwarded on their own rail", hops, np.flatnonzero(away))
        return Sent(operations[:0], operations[:0])
    hop, number, port = rail.list_ports(hops.rank, hops.ports)
    operation, onward = hops.operation[hop], hops.onward[hop]
    start, end = plan.start_s[operation], plan.end_s[operation]
    spell = rail.spell_at(start + context.slack_s, port)
    reached, arrives = rail.reached(spell)
    wait = rail.delay_s if not len(rail.stops_s) else 0.0  # a stop counts as part of its time
    up = (reached >= 0) & (rail.since_s[spell] + wait <= start + context.slack_s)
    up &= rail.until_s[spell] >= end - context.slack_s
    _refuse(context, "its circuits are there from start to end", hops, hop[~up])
    astray = (reached >= 0) & (onward >= 0) & (reached != onward)
    _refuse(context, "data are handed on where they arrive", hops, hop[astray])

    last = np.flatnonzero(onward < 0)
    there = last[reached[last] >= 0]
    message = there[step.kind[operation[there]] == SEND]
    sends, to = operation[message], reached[message]
    rule = "a message goes to its receiver"
    context.refuse(rule, sends, to != step.peer[sends], to, step.peer[sends])
    _check_receivers(context, riding, sends, arrives[message])

    # Each port has a ring of its own; what is forwarded is one ring, however wide its hops are.
    forwarded = np.isin(step.match[operation], step.match[plan.relays[:, 0]])
    place = np.searchsorted(operations, operation) * k + np.where(forwarded, 0, number)
    leads_to = np.full(len(operations) * k, -1)
    leads_to[place[there]] = reached[there]
    apart = hop[there][leads_to[place[there]] != reached[there]]
    _refuse(context, "all ports of a hop lead to the same rank", hops, apart)
    is_lane = np.zeros(len(leads_to), dtype=bool)
    is_lane[place[last[step.kind[operation[last]] != SEND]]] = True
    lanes = np.flatnonzero(is_lane)
    _check_rings(context, operations[lanes // k], lanes % k, leads_to[lanes])
    _check_lengths(context, rail, operations, hops)
    return Sent(operation, port)


def _list_hops(context: Context, operations: NDArray[np.int64]) -> Hops:
    """Put the route of each operation together: its own rank, then those that forward."""
    step, plan = context.step, context.plan
    at = np.searchsorted(operations, plan.relays[:, 0])
    own = np.append(operations, -1)[at] == plan.relays[:, 0]
    rows = plan.relays[own].astype(np.int64)
    operation = np.concatenate([operations, rows[:, 0]])
    rank = np.concatenate([step.rank[operations], rows[:, 1]])
    ports = np.concatenate([plan.ports[operations], rows[:, 2]])
    order = np.argsort(operation, kind="stable")
    operation, rank, ports = operation[order], rank[order], ports[order]
    more = np.append(operation[1:] == operation[:-1], False)[: len(operation)]
    return Hops(operation, rank, ports, np.where(more, np.roll(rank, -1), -1))


def _check_receivers(
    context: Context,
    riding: NDArray[np.int64],
    sends: NDArray[np.int64],
    arrives: NDArray[np.int64],
) -> None:
    """Check that a receiver states the ports at which the message arrives."""
    step, ports = context.step, context.plan.ports
    receives = riding[step.kind[riding] == RECV]
    receives = receives[np.argsort(step.match[receives])]
    number = np.searchsorted(step.match[receives], step.match[sends])
    found = np.zeros(len(receives), dtype=np.int64)
    np.bitwise_or.at(found, number, 1 << arrives)
    to, wanted = receives[number], found[number]
    rule = "a receiver uses the ports at which the message arrives"
    context.refuse(rule, to, ports[to] != wanted, ports[to], wanted)


def _check_rings(
    context: Context,
    operation: NDArray[np.int64],
    lane: NDArray[np.int64],
    reached: NDArray[np.int64],
) -> None:
    """Check that on each lane of a collective the circuits make one ring over the group."""
    step = context.step
    size = context.group_size[step.group[operation]]
    ring = step.match[operation].astype(np.int64) * context.job.network.ports_per_gpu + lane
    key = ring * step.n_ranks + step.rank[operation]
    order = np.argsort(key)
    wanted = np.where(reached >= 0, ring * step.n_ranks + reached, -1)
    onward = order[np.searchsorted(key[order][:-1], wanted)]
    inside = key[onward] == wanted
    onward = np.where(inside, onward, np.arange(len(operation)))
    once = np.bincount(onward, minlength=len(operation)) == 1
    first = np.arange(len(operation))  # the first of those that are reached from here
    _, of_ring, count = np.unique(ring, return_inverse=True, return_counts=True)
    of_ring = of_ring.reshape(-1)
    for _ in range(int(size.max(initial=1)).bit_length()):
        first = np.minimum(first, first[onward])
        onward = onward[onward]
    smallest = np.full(len(count), len(operation))
    np.minimum.at(smallest, of_ring, np.arange(len(operation)))
    whole = inside & once & (first == smallest[of_ring]) & (count[of_ring] == size)
    rule = "the circuits of a collective make one ring over its group"
    context.refuse(rule, operation, ~whole, step.group[operation], np.nan)


def _check_lengths(
    context: Context, rail: Rail, operations: NDArray[np.int64], hops: Hops
) -> None:
    """Check that operations last as long as their bytes and all hops need."""
    step, work = context.step, measure_work(context.job, operations)
    start, end = context.plan.start_s[operations], context.plan.end_s[operations]
    match = step.match[operations]
    width = np.bitwise_count(hops.ports.astype(np.uint64)).astype(np.int64)
    top = int(match.max(initial=-1)) + 1
    narrowest, longest = np.full(top, rail.ports_per_gpu), np.zeros(top, np.int64)
    np.minimum.at(narrowest, step.match[hops.operation], width)
    count = np.bincount(np.searchsorted(operations, hops.operation), minlength=len(operations))
    np.maximum.at(longest, match, count)
    size = context.group_size[step.group[operations]]
    # An all-to-all that goes around a ring passes half of all others on the way.
    around = np.where(step.kind[operations] == ALL_TO_ALL, size / 2, 1.0)
    rate = narrowest[match] * context.job.network.port_bytes_per_s
    needed: NDArray[np.float64] = work.sent_bytes * around / rate
    needed += work.latency_s * longest[match] + rail.dark_s(start, end)
    wrong = np.abs(end - start - needed) > context.slack_s
    rule = "an operation lasts as long as its bytes need on its ports"
    context.refuse(rule, operations, wrong, end - start, needed)


def _refuse(context: Context, rule: str, hops: Hops, wrong: NDArray[np.int64]) -> None:
    for hop in np.unique(wrong)[:MOST_TOLD].tolist():
        onward = int(hops.onward[hop])
        context.findings.refuse(
            rule,
            context.step.describe(int(hops.operation[hop])),
            f"from rank {hops.rank[hop]}, over ports {hops.ports[hop]:b}",
            f"to rank {onward}" if onward >= 0 else "to whom the data are for",
        )

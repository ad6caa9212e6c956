"""Simple policies: circuits split once, changed on demand, or as early as communication allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.problems import RailJob
from optmatch.problems.rails.plan import RailPlan
from optmatch.problems.rails.step import DIMENSIONS, SEND, Dimension
from optmatch.solvers.rails.paths import longest_paths
from optmatch.solvers.rails.stopping import stopping_paths
from optmatch.solvers.rails.timetable import Turn, build_plan
from optmatch.solvers.rails.transfers import Spot, Transfer, Transfers, fold_transfers

NO_SPLIT = "fewer ports than there are kinds of circuits to keep"


class Span(NamedTuple):
    """Communication of one class that goes on without a change of its circuits."""

    nodes: list[int]
    facing: dict[tuple[int, int], tuple[int, Spot]]
    """By end and lane: the peer, and what says whom."""


def usual_lanes(transfers: Transfers) -> dict[int, int]:
    """Choose lanes as a simple controller does: all of them, shared where they must be.

    A pipeline needs circuits to both neighbours at once; with two lanes or more, those onward
    take the even ones, those back the odd ones. Lanes are bits, by node.
    """
    everything = (1 << transfers.n_lanes) - 1
    even = sum(1 << lane for lane in range(0, transfers.n_lanes, 2))
    faces: dict[int, set[int]] = {}
    for transfer in transfers.by_node.values():
        if transfer.kind >= SEND:
            for point in transfer.endpoints:
                faces.setdefault(point.end, set()).add(point.peers[0])
    shared = transfers.n_lanes > 1 and any(len(peers) > 1 for peers in faces.values())

    def choose(transfer: Transfer) -> int:
        if transfer.kind < SEND or not shared:
            return everything
        return even if transfer.ahead else everything & ~even

    return {node: choose(transfer) for node, transfer in transfers.by_node.items()}


def spans(
    transfers: Transfers, cls: int, nodes: NDArray[np.int64], lanes: dict[int, int]
) -> list[Span]:
    """Cut what a class does where an end has to face somebody else."""
    found: list[Span] = []
    for node in nodes.tolist():
        wanted = dict(_wanted(transfers.by_node[node], cls, lanes[node]))
        known = found[-1].facing if found else None
        if known is None or any(known.get(at, new)[0] != new[0] for at, new in wanted.items()):
            found.append(Span([], {}))
        found[-1].nodes.append(node)
        for at, new in wanted.items():
            found[-1].facing.setdefault(at, new)
    return found


def _wanted(
    transfer: Transfer, cls: int, lanes: int
) -> Iterator[tuple[tuple[int, int], tuple[int, Spot]]]:
    for point in transfer.endpoints:
        if point.end // 2 == cls:
            for lane in range(lanes.bit_length()):
                if lanes >> lane & 1:
                    yield (point.end, lane), (point.peers[lane], point.spot)


def standing(every: list[list[Span]]) -> Iterator[Turn]:
    """List what all ends face when a step begins, as the step before has left them."""
    for row in every:
        last = {at: place for span in row for at, (_, place) in span.facing.items()}
        yield from (Turn(0.0, 0.0, *at, place) for at, place in last.items())


class Switch(NamedTuple):
    """A change of circuits of one class, before one of its spans."""

    span: Span
    previous: Span | None
    changes: dict[tuple[int, int], Spot]
    """By end and lane: what says whom to face."""


def switches(every: list[list[Span]]) -> list[Switch]:
    """List the changes that the spans of all classes need, in a step that repeats."""
    found = []
    for row in every:
        state = {at: new[0] for span in row for at, new in span.facing.items()}
        for number, span in enumerate(row):
            changes = {at: place for at, (peer, place) in span.facing.items() if state[at] != peer}
            state |= {at: peer for at, (peer, _) in span.facing.items()}
            if changes:
                previous = row[number - 1] if number else None
                found.append(Switch(span, previous, changes))
    return found


def plan_policy(
    job: RailJob,
    policy: Literal["static", "on-demand", "provisioned"],
    ports: Mapping[Dimension, int] | None = None,
) -> RailPlan | None:
    """Return the plan of a policy, without states of cells; None if ports cannot be split.

    `ports` are those of each dimension for ``"static"``; None for shares by traffic.
    """
    if policy == "static":
        return plan_static(fold_transfers(job, fixed=True), ports)
    return plan_by_demand(fold_transfers(job), provisioned=policy == "provisioned")


def plan_by_demand(transfers: Transfers, *, provisioned: bool) -> RailPlan:
    """Change circuits when they are asked for.

    A class changes its circuits when its last span has ended and somebody has asked. On demand
    that is a communication that is ready at all its members. If `provisioned`, it is one that
    waits for no other communication over rails any more. Classes go through their spans as their
    programs say. Where these contradict each other, they go by time, which never does: all that
    is added to the step then leads from what starts earlier to what starts later.
    """
    plan = _plan_in_order(transfers, transfers.order, provisioned)
    plan = plan or _plan_in_order(transfers, by_time(transfers), provisioned)
    assert plan is not None
    return plan


def plan_static(
    transfers: Transfers, ports: Mapping[Dimension, int] | None = None
) -> RailPlan | None:
    """Split the lanes once and never change a circuit.

    Communications that can share a circuit are one kind; each kind gets lanes in proportion to
    the square root of its traffic, which makes the sum of the times of all kinds least, rounded
    to whole lanes and at least one. With `ports` the kinds of a dimension have its ports alone.
    None if there are more kinds than lanes, or rounds that need changes.

    Raises
    ------
    InputError
        If there are not as many ports as `ports` says, or a dimension has too few.
    """
    if transfers.in_rounds:
        return None
    kinds = _kinds(transfers, apart=ports is not None)
    shares = _share(transfers, kinds, ports)
    if shares is None:
        return None
    lanes: dict[int, int] = {}
    given = 0
    for (_, nodes), share in zip(kinds, shares, strict=True):
        lanes |= dict.fromkeys(nodes, (1 << share) - 1 << given)
        given += share
    order = by_time(transfers)
    every = [spans(transfers, cls, nodes, lanes) for cls, nodes in enumerate(order)]
    shared = [
        pair
        for cls, nodes in enumerate(order)
        for pair in share_ports(transfers, cls, nodes, lanes)
    ]
    timed = longest_paths(transfers.lasting(lanes), transfers.pairs_and(shared))
    return None if timed is None else build_plan(transfers, timed, lanes, standing(every), [])


def _kinds(transfers: Transfers, *, apart: bool) -> list[tuple[Dimension | None, list[int]]]:
    """Put communications together that never need two circuits at one port.

    Each with its dimension, if kinds are to have one.
    """
    kinds: list[tuple[tuple[bool, Dimension | None], list[int], dict[int, tuple[int, ...]]]] = []
    step = transfers.job.step()
    for node, transfer in sorted(transfers.by_node.items()):
        wanted = {point.end: point.peers for point in transfer.endpoints}
        group = step.groups[step.group[transfers.folded.part[transfer.node]]]
        what = transfer.kind >= SEND, group.dimension if apart else None
        for known, nodes, facing in kinds:
            fits = all(facing.get(end, peer) == peer for end, peer in wanted.items())
            if known == what and fits:
                nodes.append(node)
                facing |= wanted
                break
        else:
            kinds.append((what, [node], wanted))
    return [(dimension, nodes) for (_, dimension), nodes, _ in kinds]


def _share(
    transfers: Transfers,
    kinds: list[tuple[Dimension | None, list[int]]],
    ports: Mapping[Dimension, int] | None,
) -> list[int] | None:
    """Return the lanes of each kind; None if there are not enough."""
    traffic = [_busiest(transfers, nodes) for _, nodes in kinds]
    if ports is None:
        return share_lanes(traffic, transfers.n_lanes)
    n_ports = transfers.job.network.ports_per_gpu
    if sum(ports.values()) > n_ports:
        raise InputError(
            f"ports: {sum(ports.values())} in all, a GPU has {n_ports}", where="ports"
        )
    shares: dict[int, int] = {}
    for dimension in DIMENSIONS:
        own = [k for k, (name, _) in enumerate(kinds) if name == dimension]
        lanes = ports.get(dimension, 0) * transfers.n_lanes // n_ports
        found = share_lanes([traffic[k] for k in own], lanes)
        if found is None:
            raise InputError(
                f"ports: {dimension} has lanes for {lanes} of its {len(own)} kinds of circuits",
                where="ports",
            )
        shares |= zip(own, found, strict=True)
    return [shares[k] for k in range(len(kinds))]


def _busiest(transfers: Transfers, nodes: list[int]) -> float:
    """Return the most bytes that some communications send over one end."""
    sent: dict[int, float] = {}
    for node in nodes:
        for point in transfers.by_node[node].endpoints:
            sent[point.end] = sent.get(point.end, 0.0) + transfers.by_node[node].bytes_sent
    return max(sent.values())


def share_ports(
    transfers: Transfers, cls: int, nodes: NDArray[np.int64], lanes: dict[int, int]
) -> Iterator[tuple[int, int]]:
    """Let what uses the same ports of a class run one after another, in the order given."""
    last: dict[tuple[int, int], int] = {}
    for node in nodes.tolist():
        for at, _ in _wanted(transfers.by_node[node], cls, lanes[node]):
            if at in last and last[at] != node:
                yield last[at], node
            last[at] = node


def share_lanes(traffic: list[float], lanes: int) -> list[int] | None:
    """Share lanes in proportion to the square root of traffic, at least one each.

    The largest remainders are rounded up, ties to the first.

    Examples
    --------
    >>> share_lanes([900.0, 100.0], 4), share_lanes([1.0, 1.0], 1)
    ([3, 1], None)
    """
    if len(traffic) > lanes:
        return None
    roots = [max(amount, 1e-300) ** 0.5 for amount in traffic]
    shares, left, total = [1] * len(traffic), lanes - len(traffic), sum(roots)
    while left > 0 and traffic:
        missing = [lanes * root / total - share for root, share in zip(roots, shares, strict=True)]
        shares[missing.index(max(missing))] += 1
        left -= 1
    return shares


def by_time(transfers: Transfers) -> tuple[NDArray[np.int64], ...]:
    """Order the communication of each class by when it starts with all circuits there.

    Such orders never contradict each other, as programs may where a rank posts receives early.
    """
    lanes = (1 << transfers.n_lanes) - 1
    durations = transfers.lasting(dict.fromkeys(transfers.by_node, lanes))
    timed = longest_paths(durations, transfers.pairs)
    assert timed is not None  # else `fold_transfers` has named who waits for whom
    rank = transfers.rank(timed.start_s)
    return tuple(nodes[np.argsort(rank[nodes], kind="stable")] for nodes in transfers.order)


def _talk_before(transfers: Transfers, causes: dict[int, list[int]], node: int) -> list[int]:
    """List the communication over rails that a node waits for, directly or through other work."""
    found: list[int] = []
    seen, left = {node}, [node]
    while left:
        for cause in causes.get(left.pop(), ()):
            if cause not in seen:
                seen.add(cause)
                (found if cause in transfers.by_node else left).append(cause)
    return found


def _plan_in_order(
    transfers: Transfers, order: tuple[NDArray[np.int64], ...], provisioned: bool
) -> RailPlan | None:
    lanes = usual_lanes(transfers)
    every = [spans(transfers, cls, nodes, lanes) for cls, nodes in enumerate(order)]
    durations, pairs = transfers.lasting(lanes), list[tuple[int, int]]()
    causes: dict[int, list[int]] = {}
    for one, two in transfers.pairs.tolist():
        causes.setdefault(two, []).append(one)
    for cls, nodes in enumerate(order):
        pairs += share_ports(transfers, cls, nodes, lanes)
    first = len(durations)  # of further nodes: one between every two spans, then the changes
    for row in every:
        for span, following in pairwise(row):
            pairs += [(one, first) for one in span.nodes]
            pairs += [(first, two) for two in following.nodes]
            first += 1
    wanted = switches(every)
    asks: list[list[int]] = []
    for number, switch in enumerate(wanted, first):
        drained = switch.previous.nodes if switch.previous else []
        node = switch.span.nodes[0]
        before = _talk_before(transfers, causes, node) if provisioned else causes.get(node, [])
        asks.append([*drained, *before] if provisioned else before)
        pairs += [(one, number) for one in {*drained, *before}]
        pairs += [(number, two) for two in switch.span.nodes]
    lasts = np.zeros(first + len(wanted))
    lasts[: len(durations)], lasts[first:] = durations, transfers.job.network.delay_s
    waits = transfers.pairs_and(pairs)
    if transfers.job.network.switching == "all-stop":
        rails = np.full(len(lasts), -1)
        rails[: len(durations)] = of_nodes = transfers.rails()
        rails[first:] = [of_nodes[switch.span.nodes[0]] for switch in wanted]
        timed = stopping_paths(lasts.tolist(), waits.tolist(), rails.tolist(), first)
    else:
        timed = longest_paths(lasts, waits)
    if timed is None:
        return None
    turns, begins, ends = [], timed.start_s[first:].tolist(), timed.end_s.tolist()
    for at, switch, asked in zip(begins, wanted, asks, strict=True):
        asked_s = max((ends[node] for node in asked), default=0.0)
        turns += [Turn(at, asked_s, *where, place) for where, place in switch.changes.items()]
    return build_plan(transfers, timed, lanes, standing(every), turns)

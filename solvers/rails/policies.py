"""Simple policies: circuits split once, changed on demand, or as early as communication allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import DIMENSIONS, SEND, Dimension
from optmatch.solvers.rails.lines import Lines, draw_lines
from optmatch.solvers.rails.paths import Ints, longest_paths
from optmatch.solvers.rails.stopping import stopping_paths
from optmatch.solvers.rails.timetable import Draft
from optmatch.solvers.rails.transfers import (
    Transfer,
    Transfers,
    Uses,
    fold_transfers,
    hold_circuits,
)

NO_SPLIT = "fewer ports than there are kinds of circuits to keep"


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


def plan_policy(
    job: RailJob,
    policy: Literal["static", "on-demand", "provisioned"],
    ports: Mapping[Dimension, int] | None = None,
) -> RailPlan | None:
    """Return the plan of a policy, without states of cells; None if ports cannot be split.

    `ports` are those of each dimension for ``"static"``; None for shares by traffic.
    """
    if policy == "static":
        draft = plan_static(fold_transfers(job), ports)
    else:
        draft = plan_by_demand(fold_transfers(job), provisioned=policy == "provisioned")
    return draft and draft.build()


def plan_by_demand(transfers: Transfers, *, provisioned: bool) -> Draft:
    """Change circuits when they are asked for.

    A class changes its circuits when its last span has ended and some rank has asked. On demand
    that is a communication that is ready at all its members. If `provisioned`, it is one that
    waits for no other communication over rails any more. Classes go through their spans as their
    programs say. Where these contradict each other, they go by time, which never does: all that
    is added to the step then leads from what starts earlier to what starts later.
    """
    draft = _draft_in_order(transfers, transfers.order, provisioned=provisioned)
    if draft is None:
        rank = _by_time(transfers)
        order = [nodes[np.argsort(rank[nodes])] for nodes in transfers.order]
        draft = _draft_in_order(transfers, order, provisioned=provisioned)
    assert draft is not None
    return draft


def plan_static(
    transfers: Transfers, ports: Mapping[Dimension, int] | None = None
) -> Draft | None:
    """Split the lanes once and never change a circuit.

    Communications that can share a circuit are one kind; each kind gets lanes in proportion to
    the square root of its traffic, which makes the sum of the times of all kinds least, rounded
    to whole lanes and at least one. With `ports` the kinds of a dimension have its ports alone.
    None if there are more kinds than lanes, or rounds that need changes.
    """
    ways = {transfer.kind >= SEND for transfer in transfers.by_node.values()}
    if ports is None and len(ways) > transfers.n_lanes:  # each a kind at least
        return None
    transfers = hold_circuits(transfers) if transfers.has_all_to_alls else transfers
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
    uses = transfers.uses()
    lines = draw_lines(uses, _by_time(transfers)[uses.node], lanes)
    timed = longest_paths(
        transfers.lasting(lanes), np.concatenate([transfers.pairs, lines.pairs()])
    )
    nothing = lines.turns(lines.last[:0], np.empty(0), np.empty(0))
    return timed and Draft(transfers, timed, lanes, lines.standing(), nothing)


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


def share_lanes(traffic: list[float], lanes: int) -> list[int] | None:
    """Share lanes in proportion to the square root of traffic, at least one each.

    The largest remainders are rounded up, ties to the first.
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


def _by_time(transfers: Transfers) -> Ints:
    """Return the places of nodes ordered by when they start with all circuits there.

    Such orders never contradict each other, as programs may where a rank posts receives early.
    """
    lanes = (1 << transfers.n_lanes) - 1
    durations = transfers.lasting(dict.fromkeys(transfers.by_node, lanes))
    timed = longest_paths(durations, transfers.pairs)
    assert timed is not None  # else `fold_transfers` has named the ranks that wait
    return transfers.rank(timed.start_s)


def _draw_programs(transfers: Transfers, order: Sequence[Ints], lanes: Mapping[int, int]) -> Lines:
    """Let each class go through its order; places count all orders, one behind another."""
    uses, n = transfers.uses(), len(transfers.duration_s)
    keys = np.concatenate([cls * n + nodes for cls, nodes in enumerate(order)] or [uses.node])
    in_order, wanted = np.argsort(keys, kind="stable"), uses.end // 2 * n + uses.node
    found, beyond = (np.searchsorted(keys[in_order], wanted, side) for side in ("left", "right"))
    row = np.repeat(np.arange(len(wanted)), beyond - found)  # sent to itself, it stands twice
    place = in_order[found[row] + np.arange(len(row)) - np.searchsorted(row, row)]
    return draw_lines(Uses(*(column[row] for column in uses)), place, lanes)


def _cut_spans(lines: Lines, n_places: int) -> NDArray[np.bool_]:
    """Tell by place whether a span ends there: an end faces another peer than before."""
    latest, cut = np.full(n_places, -1), np.zeros(n_places, dtype=bool)
    rows = np.flatnonzero(lines.before >= 0)
    rows = rows[lines.uses.peer[rows] != lines.uses.peer[rows - 1]]
    np.maximum.at(latest, lines.place[rows], lines.place[rows - 1])
    begin, turned = 0, np.flatnonzero(latest >= 0)
    for here, back in zip(turned.tolist(), latest[turned].tolist(), strict=True):
        if back >= begin:
            cut[here], begin = True, here
    return cut


def _draft_in_order(
    transfers: Transfers, order: Sequence[Ints], *, provisioned: bool
) -> Draft | None:
    """Let each class go through its spans, which are communication without a change between.

    After the n nodes of the step come, of each node, its asking, which waits for what the node
    waits for, or if `provisioned` for the communication before that alone; of each span its
    beginning, which waits for the span before; and the changes.
    """
    lanes, n = usual_lanes(transfers), len(transfers.duration_s)
    lines = _draw_programs(transfers, order, lanes)
    nodes = np.concatenate([*order, np.empty(0, np.int64)])
    enters = np.diff(np.repeat(np.arange(len(order)), [*map(len, order)]), prepend=-1) > 0
    span = np.cumsum(enters | _cut_spans(lines, len(nodes))) - 1
    head = np.flatnonzero(np.diff(span, prepend=-1))  # by span, where it begins
    follows = np.append(~enters[head], False)  # by span, whether it has one before
    turned = np.flatnonzero(lines.uses.peer != lines.faced(lines.last))
    changed, change_of = np.unique(span[lines.place[turned]], return_inverse=True)
    number = np.full(len(head), -1)  # by span, its change
    number[changed] = np.arange(len(changed))
    begins, changes = 2 * n + np.arange(len(head)), 2 * n + len(head) + np.arange(len(changed))

    waits_for = np.arange(n)
    if provisioned:
        waits_for += n
        waits_for[list(transfers.by_node)] -= n
    one, two = transfers.pairs.T
    last, later, new = follows[span + 1], follows[span], number[span] >= 0
    asks, parts = n + nodes[head[changed]], follows[changed]
    pairs = (
        (waits_for[one], n + two),
        (nodes[last], begins[span[last] + 1]),
        (begins[span[later]], nodes[later]),
        (begins[changed[parts]], changes[parts]),
        (asks, changes),
        (changes[number[span[new]]], nodes[new]),
    )
    joined = [np.stack(each, axis=1) for each in pairs]
    before = np.concatenate([transfers.pairs, lines.pairs(), *joined])
    lasts = np.zeros(2 * n + len(head) + len(changed))
    lasts[:n], lasts[changes] = transfers.lasting(lanes), transfers.job.network.delay_s
    if transfers.job.network.switching == "all-stop":
        rails = np.full(len(lasts), -1)
        rails[:n] = transfers.rails()
        rails[changes] = rails[asks - n]
        first = len(lasts) - len(changes)
        timed = stopping_paths(lasts.tolist(), before.tolist(), rails.tolist(), first)
    else:
        timed = longest_paths(lasts, before)
    if timed is None:
        return None
    asked_s = timed.end_s[asks]
    if provisioned:  # by the end of the span before, too
        asked_s = np.maximum(asked_s, timed.end_s[begins[changed]])
    turns = lines.turns(turned, timed.start_s[changes[change_of]], asked_s[change_of])
    return Draft(transfers, timed, lanes, lines.standing(), turns)

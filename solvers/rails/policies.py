"""Plans that forward nothing: circuits split once, changed on demand, provisioned, or early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from optmatch.model import check_time
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.problems.rails.training.step import SEND
from optmatch.solvers.rails.paths import Ints, Timed, longest_paths
from optmatch.solvers.rails.timetable import Draft, Lines, draw_lines
from optmatch.solvers.rails.transfers import (
    Transfer,
    Transfers,
    Uses,
    fold_transfers,
    hold_circuits,
)

Start = Sequence[float] | NDArray[np.float64]
NO_SPLIT = "fewer ports than there are kinds of circuits to keep"


def usual_lanes(transfers: Transfers) -> dict[int, int]:
    """Choose lanes as a simple controller does: all of them, shared where they must be.

    A pipeline needs circuits to both neighbours at once; with two lanes or more, those onward
    take the even ones, those back the odd ones. Lanes are bits, by node.
    """
    everything = (1 << transfers.lanes.number) - 1
    even = sum(1 << lane for lane in range(0, transfers.lanes.number, 2))
    faces: dict[int, set[int]] = {}
    for transfer in transfers.by_node.values():
        if transfer.kind >= SEND:
            for point in transfer.endpoints:
                faces.setdefault(point.end, set()).add(point.peers[0])
    shared = transfers.lanes.number > 1 and any(len(peers) > 1 for peers in faces.values())

    def choose(transfer: Transfer) -> int:
        if transfer.kind < SEND or not shared:
            return everything
        return even if transfer.ahead else everything & ~even

    return {node: choose(transfer) for node, transfer in transfers.by_node.items()}


def plan_policy(
    job: RailJob, policy: Literal["static", "on-demand", "provisioned"]
) -> RailPlan | None:
    """Return the plan of a policy, without states of cells; None if ports cannot be split."""
    transfers = fold_transfers(job)
    if policy == "static":
        draft = plan_static(transfers)
    else:
        draft = plan_by_demand(transfers, provisioned=policy == "provisioned")
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


def plan_static(transfers: Transfers) -> Draft | None:
    """Split the lanes once and never change a circuit.

    Communications that can share a circuit are one kind; each kind gets lanes in proportion to
    the square root of its traffic, which makes the sum of the times of all kinds least, rounded
    to whole lanes and at least one. None if there are more kinds than lanes, or rounds that need
    changes.
    """
    ways = {transfer.kind >= SEND for transfer in transfers.by_node.values()}
    if len(ways) > transfers.lanes.number:  # each a kind at least
        return None
    transfers = hold_circuits(transfers)
    if len(transfers.first) > len(transfers.last):  # something takes several rounds
        return None
    kinds = _list_kinds(transfers)
    shares = share_lanes([_busiest(transfers, nodes) for nodes in kinds], transfers.lanes.number)
    if shares is None:
        return None
    lanes: dict[int, int] = {}
    given = 0
    for nodes, share in zip(kinds, shares, strict=True):
        lanes |= dict.fromkeys(nodes, (1 << share) - 1 << given)
        given += share
    uses = transfers.uses()
    lines = draw_lines(uses, _by_time(transfers)[uses.node], lanes)
    timed = longest_paths(
        transfers.lasting(lanes), np.concatenate([transfers.pairs, lines.pairs()])
    )
    nothing = lines.turns(lines.last[:0], np.empty(0), np.empty(0))
    return timed and Draft(transfers, timed, lanes, lines.standing(), nothing)


def _list_kinds(transfers: Transfers) -> list[list[int]]:
    """Put communications together that never need two circuits at one port."""
    kinds: list[tuple[bool, list[int], dict[int, tuple[int, ...]]]] = []
    for node, transfer in sorted(transfers.by_node.items()):
        wanted = {point.end: point.peers for point in transfer.endpoints}
        message = transfer.kind >= SEND
        for known, nodes, facing in kinds:
            fits = all(facing.get(end, peer) == peer for end, peer in wanted.items())
            if known == message and fits:
                nodes.append(node)
                facing |= wanted
                break
        else:
            kinds.append((message, [node], wanted))
    return [nodes for _, nodes, _ in kinds]


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
    lanes = (1 << transfers.lanes.number) - 1
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


def plan_ahead(transfers: Transfers, starts: Sequence[Start] = ()) -> Draft | None:
    """Set up circuits early: the best of a few orders; None if no order can be kept.

    Tried are the order in which communications would start with all circuits there, and those of
    known plans, of which `starts` are those of nodes; and steps that begin with the circuits that
    they use first, or used last. Every change begins as soon as the port is free.
    """
    lanes, uses = usual_lanes(transfers), transfers.uses()
    lasts = transfers.lasting(lanes)
    best_s, best = np.inf, None
    for place in (_by_time(transfers), *map(transfers.rank, starts)):
        check_time()
        served = draw_lines(uses, place[uses.node], lanes)
        for standing in (served.last, served.first):
            found = _time(transfers, served, standing, lasts)
            step_s = np.inf if found is None else found[0].end_s.max(initial=0.0)
            if found is not None and step_s < best_s:
                best_s, best = step_s, (served, standing, *found)
    if best is None:
        return None
    served, standing, timed, turned = best
    begins = timed.start_s[len(transfers.duration_s) :]
    turns = served.turns(turned, begins, begins)
    at_once = np.zeros(len(standing))
    still = served.turns(standing, at_once, at_once)
    return Draft(transfers, timed, lanes, still, turns)


def _time(
    transfers: Transfers, served: Lines, standing: Ints, lasts: NDArray[np.float64]
) -> tuple[Timed, Ints] | None:
    """Find the start of each node, and by change the row that it is for.

    Changes are nodes after all others; `standing` has the peer of each line.
    """
    (node, _, _, peer, *_), before, last = served.uses, served.before, served.last
    turns, back = peer != served.faced(standing), peer[last] != peer[standing]
    same = ~turns & (before >= 0)
    turned = np.concatenate([np.flatnonzero(turns), standing[back]])
    number = len(transfers.duration_s) + np.arange(len(turned))
    drained = np.concatenate([before[turns], node[last[back]]])
    used = drained >= 0
    pairs = (
        transfers.pairs,
        np.stack([before[same], node[same]], axis=1),
        np.stack([drained[used], number[used]], axis=1),
        np.stack([number[: turns.sum()], node[turns]], axis=1),
    )
    delays = np.full(len(turned), transfers.job.network.delay_s)
    timed = longest_paths(np.concatenate([lasts, delays]), np.concatenate(pairs))
    return None if timed is None else (timed, turned)


class _Rail:
    """One rail: the end of its change of circuits, and the communications under way."""

    def __init__(self) -> None:
        self.since_s = self.until_s = -1.0
        self.running: set[int] = set()


def stopping_paths(
    duration_s: Sequence[float],
    pairs: Iterable[tuple[int, int]],
    rail_of: Sequence[int],
    first_switch: int,
) -> Timed | None:
    """Start everything as early as it can, where switching stops all that rides a rail.

    As `longest_paths`, with ``rail_of[node]``, the rail that a node rides or changes, -1 if none.
    Nodes from `first_switch` on are changes of circuits: those that begin at the same time are
    one, others wait for each other.
    """
    n = len(duration_s)
    after: list[list[int]] = [[] for _ in range(n)]
    waits, start, end = [0] * n, [0.0] * n, [0.0] * n
    for one, two in pairs:
        after[one].append(two)
        waits[two] += 1
    rails = {rail: _Rail() for rail in set(rail_of)}
    # Order at one moment: ends, starts beside rails, changes of circuits, starts of sends.
    turn = [1 if rail < 0 else 2 + (k < first_switch) for k, rail in enumerate(rail_of)]
    queue = [(0.0, turn[k], k) for k in range(n) if not waits[k]]
    heapify(queue)
    place, done = [0] * n, 0
    while queue:
        now, what, node = heappop(queue)
        rail = rails[rail_of[node]]
        if what == 0:
            if end[node] > now:  # the rail changed circuits in the meantime
                heappush(queue, (end[node], 0, node))
                continue
            place[node], done = done, done + 1
            rail.running.discard(node)
            for later in after[node]:
                waits[later] -= 1
                if not waits[later]:
                    heappush(queue, (now, turn[later], later))
            continue
        if node >= first_switch:
            _stop(rail, now, duration_s[node], end)
            start[node], end[node] = rail.since_s, rail.until_s
        else:
            rides = rail_of[node] >= 0
            start[node] = max(now, rail.until_s) if rides else now
            end[node] = start[node] + duration_s[node]
            if rides:
                rail.running.add(node)
        heappush(queue, (end[node], 0, node))
    return Timed(np.array(start), np.array(end), np.array(place)) if done == n else None


def _stop(rail: _Rail, now: float, delay_s: float, end: list[float]) -> None:
    """Begin to change circuits: now, together with others, or after those under way."""
    if rail.since_s >= now:
        return
    begin = max(now, rail.until_s)
    rail.since_s, rail.until_s = begin, begin + delay_s
    for node in rail.running:
        end[node] += delay_s

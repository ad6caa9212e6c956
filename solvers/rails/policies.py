"""Plans that forward nothing: circuits split once, changed on demand, provisioned, or early.

Words of this module; class, end, lane, peer and node are those of
`optmatch.solvers.rails.transfers`, line and turn those of `optmatch.solvers.rails.timetable`:

Place
    The position of a node in an order; what stands later starts no sooner where both need the
    same lane of an end.
Span
    Communications of one class, one after another in its program, between which no lane has to
    face another peer: a class changes circuits between its spans only.
Asking
    The moment from which somebody wants the circuits of a communication. It is a node that lasts
    0 s.
Standing
    The peers that lanes face when a step begins.

All times are those of longest paths: a change is a node that lasts the delay, comes after the
node that used the port before, and before the node that uses it next.
"""

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
"""``start[node]`` in seconds from the start of a step, by node of a folded step."""
NO_SPLIT = "fewer ports than there are kinds of circuits to keep"
"""Why there is no static plan."""


def usual_lanes(transfers: Transfers) -> dict[int, int]:
    """Choose lanes as a simple controller does: all of them, shared where they must be.

    A lane is the port of one number at all GPUs; a node is an operation or a communication of the
    folded step, in which ranks that do the same are one. A pipeline needs circuits to both
    neighbours at once; with two lanes or more, messages onward take the even ones, those back the
    odd ones.

    Parameters
    ----------
    transfers
        The communications of the folded step.

    Returns
    -------
    dict of int to int
        By node that is a communication, its lanes as bits: bit k for lane k. With four lanes
        0b0101 are those of messages onward, 0b1010 those of messages back.
    """
    everything = (1 << transfers.lanes.number) - 1
    even = sum(1 << lane for lane in range(0, transfers.lanes.number, 2))
    faces: dict[int, set[int]] = {}
    for transfer in transfers.by_node.values():
        if transfer.kind >= SEND:
            for point in transfer.endpoints:
                faces.setdefault(point.end, set()).add(point.peers[0])

    # Some end sends messages to two peers: one would wait for the circuits of the other.
    shared = transfers.lanes.number > 1 and any(len(peers) > 1 for peers in faces.values())

    def choose(transfer: Transfer) -> int:
        """Return the lanes of one communication as bits: all, or those of its direction."""
        if transfer.kind < SEND or not shared:
            return everything
        return even if transfer.ahead else everything & ~even

    return {node: choose(transfer) for node, transfer in transfers.by_node.items()}


def plan_policy(
    job: RailJob, policy: Literal["static", "on-demand", "provisioned"]
) -> RailPlan | None:
    """Make the plan of a policy, without states of cells.

    Parameters
    ----------
    job
        The job.
    policy
        `"static"` splits ports once (`plan_static`), `"on-demand"` and `"provisioned"` change
        circuits when they are asked for (`plan_by_demand`).

    Returns
    -------
    RailPlan or None
        None if the policy is static and ports cannot be split.
    """
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

    Parameters
    ----------
    transfers
        The communications of the folded step.
    provisioned
        Whether circuits are asked for before the computation in front of a communication has
        ended.

    Returns
    -------
    Draft
        The plan of the folded step.
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

    A lane is the port of one number at all GPUs. Communications that can share a circuit are one
    kind; each kind gets lanes in proportion to the square root of its traffic, which makes the sum
    of the times of all kinds least, rounded to whole lanes and at least one.

    Parameters
    ----------
    transfers
        The communications of the folded step.

    Returns
    -------
    Draft or None
        The plan of the folded step; None if there are more kinds than lanes, or collectives whose
        rounds need changes.
    """
    ways = {transfer.kind >= SEND for transfer in transfers.by_node.values()}
    if len(ways) > transfers.lanes.number:  # each a kind at least
        return None

    # All-to-alls go around a ring here, which needs no change. Other collectives may still be done
    # in rounds with different partners, which are nodes beyond those of the folded step.
    transfers = hold_circuits(transfers)
    if len(transfers.first) > len(transfers.last):  # something takes several rounds
        return None
    kinds = _list_kinds(transfers)
    shares = share_lanes([_busiest(transfers, nodes) for nodes in kinds], transfers.lanes.number)
    if shares is None:
        return None

    # Kinds take lanes next to each other, from lane 0 on: bits `given` to ``given + share - 1``.
    lanes: dict[int, int] = {}
    given = 0
    for nodes, share in zip(kinds, shares, strict=True):
        lanes |= dict.fromkeys(nodes, (1 << share) - 1 << given)
        given += share
    uses = transfers.uses()

    # Circuits stay, but a lane still serves one communication after another.
    lines = draw_lines(uses, _by_time(transfers)[uses.node], lanes)
    timed = longest_paths(
        transfers.lasting(lanes), np.concatenate([transfers.pairs, lines.pairs()])
    )
    nothing = lines.turns(lines.last[:0], np.empty(0), np.empty(0))
    return timed and Draft(transfers, timed, lanes, lines.standing(), nothing)


def _list_kinds(transfers: Transfers) -> list[list[int]]:
    """Put communications together that never need two circuits at one port.

    An end is one side of the ports of a class (ranks that do the same), where they transmit or
    receive; the peers there are the ranks at the other ends of its circuits. Each goes to the
    first kind that it fits (first fit, in the order of the nodes): where both use an end, they
    have the same peers there. Messages and collectives are never of one kind.

    Parameters
    ----------
    transfers
        The communications of the folded step.

    Returns
    -------
    list of list of int
        The nodes of each kind, ascending.
    """
    kinds: list[tuple[bool, list[int], dict[int, tuple[int, ...]]]] = []
    for node, transfer in sorted(transfers.by_node.items()):
        wanted = {point.end: point.peers for point in transfer.endpoints}
        message = transfer.kind >= SEND

        # ``facing[end]``: the peers of a kind at an end, one for each lane.
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
    """Return the most bytes that some communications send over one end.

    Parameters
    ----------
    transfers
        The communications of the folded step.
    nodes
        Those that count, at least one.

    Returns
    -------
    float
        Bytes in a step, over all lanes of the end (side of the ports of a class of ranks).
    """
    sent: dict[int, float] = {}
    for node in nodes:
        for point in transfers.by_node[node].endpoints:
            sent[point.end] = sent.get(point.end, 0.0) + transfers.by_node[node].bytes_sent
    return max(sent.values())


def share_lanes(traffic: list[float], lanes: int) -> list[int] | None:
    """Share lanes in proportion to the square root of traffic, at least one each.

    The largest remainders are rounded up, ties to the first. Traffic of 9 and 1 bytes shares four
    lanes as 3 and 1.

    Parameters
    ----------
    traffic
        The bytes of each kind.
    lanes
        How many lanes there are.

    Returns
    -------
    list of int or None
        By kind how many lanes it gets; they sum to `lanes`. None if there are more kinds.
    """
    if len(traffic) > lanes:
        return None
    roots = [max(amount, 1e-300) ** 0.5 for amount in traffic]
    shares, left, total = [1] * len(traffic), lanes - len(traffic), sum(roots)

    # Each further lane goes to the kind that lacks most of its exact share.
    while left > 0 and traffic:
        missing = [lanes * root / total - share for root, share in zip(roots, shares, strict=True)]
        shares[missing.index(max(missing))] += 1
        left -= 1
    return shares


def _by_time(transfers: Transfers) -> Ints:
    """Order nodes by when they start with all circuits there.

    Such orders never contradict each other, as programs may where a rank posts receives early.

    Parameters
    ----------
    transfers
        The communications of the folded step.

    Returns
    -------
    int array, shape (nodes,)
        By node its place.
    """
    lanes = (1 << transfers.lanes.number) - 1
    durations = transfers.lasting(dict.fromkeys(transfers.by_node, lanes))
    timed = longest_paths(durations, transfers.pairs)
    assert timed is not None  # else `fold_transfers` has named the ranks that wait
    return transfers.rank(timed.start_s)


def _draw_programs(transfers: Transfers, order: Sequence[Ints], lanes: Mapping[int, int]) -> Lines:
    """Put the uses of each lane in the order of the programs of the classes.

    Parameters
    ----------
    transfers
        The communications of the folded step.
    order
        ``order[class]``: its nodes on rails, one after another.
    lanes
        By communication its lanes, as bits.

    Returns
    -------
    Lines
        Places count all orders, one behind another: ``np.concatenate(order)[place]`` is a node.
    """
    uses, n = transfers.uses(), len(transfers.duration_s)

    # A node stands in the order of each class that takes part in it: class and node together are a
    # key. Each use is looked up by the key of its end, ``end // 2`` being the class.
    keys = np.concatenate([cls * n + nodes for cls, nodes in enumerate(order)] or [uses.node])
    in_order, wanted = np.argsort(keys, kind="stable"), uses.end // 2 * n + uses.node
    found, beyond = (np.searchsorted(keys[in_order], wanted, side) for side in ("left", "right"))
    row = np.repeat(np.arange(len(wanted)), beyond - found)  # sent to itself, it stands twice
    place = in_order[found[row] + np.arange(len(row)) - np.searchsorted(row, row)]
    return draw_lines(Uses(*(column[row] for column in uses)), place, lanes)


def _cut_spans(lines: Lines, n_places: int) -> NDArray[np.bool_]:
    """Cut the programs of classes into spans, as few as there can be (greedy).

    Each span goes on until some lane of an end would have to face another peer than it did within
    the span. If lane 0 faces a, a, b, a, the spans are the places 0 and 1, 2, and 3.

    Parameters
    ----------
    lines
        The uses of each lane, with places as in `_draw_programs`.
    n_places
        How many places there are.

    Returns
    -------
    bool array, shape (n_places,)
        Whether a span begins at the place because the one before it had to end.
    """
    latest, cut = np.full(n_places, -1), np.zeros(n_places, dtype=bool)

    # ``latest[place]``: the last place at which an end that is used here with another peer was
    # used before; -1 if there is none. A span that contains both places has to be cut between
    # them.
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

    A class is ranks that do the same; a node is an operation of a class or a communication of
    several. A lane is the port of one number at all GPUs, and a peer the rank that it faces. The
    step becomes a graph of longest paths. After the n nodes of the step come, of each node,
    its asking, which waits for what the node waits for, or if `provisioned` for the communication
    before that alone; of each span its beginning, which waits for the span before; and the
    changes, one for each span that needs one.

    Parameters
    ----------
    transfers
        The communications of the folded step.
    order
        ``order[class]``: its nodes on rails, one after another.
    provisioned
        Whether circuits are asked for before the computation in front of a communication has
        ended.

    Returns
    -------
    Draft or None
        The plan of the folded step; None if the orders of classes contradict each other, which is
        a circle in the graph.
    """
    lanes, n = usual_lanes(transfers), len(transfers.duration_s)
    lines = _draw_programs(transfers, order, lanes)

    # Spans by place, and which of them need a change: those with a use whose lane faced another
    # peer before. A step begins as it ends, so that the first use of a lane follows the last one.
    nodes = np.concatenate([*order, np.empty(0, np.int64)])
    enters = np.diff(np.repeat(np.arange(len(order)), [*map(len, order)]), prepend=-1) > 0
    span = np.cumsum(enters | _cut_spans(lines, len(nodes))) - 1
    head = np.flatnonzero(np.diff(span, prepend=-1))  # by span, where it begins
    follows = np.append(~enters[head], False)  # by span, whether it has one before

    # Rows that need a change, and the change that their span has in common.
    turned = np.flatnonzero(lines.uses.peer != lines.faced(lines.last))
    changed, change_of = np.unique(span[lines.place[turned]], return_inverse=True)

    # Numbers in the graph: nodes from 0 on, askings from n, beginnings of spans from 2 n, and then
    # the changes.
    number = np.full(len(head), -1)  # by span, its change
    number[changed] = np.arange(len(changed))
    begins, changes = 2 * n + np.arange(len(head)), 2 * n + len(head) + np.arange(len(changed))

    # The asking of a node waits for the nodes before it. If provisioned, nodes that are no
    # communication pass the asking on without their own time: the asking waits for their asking.
    waits_for = np.arange(n)
    if provisioned:
        waits_for += n
        waits_for[list(transfers.by_node)] -= n
    one, two = transfers.pairs.T

    # By place: whether another span of the class follows, whether one goes before, and whether the
    # span has a change.
    last, later, new = follows[span + 1], follows[span], number[span] >= 0

    # By change: the asking of the first node of its span, and whether a span goes before it.
    asks, parts = n + nodes[head[changed]], follows[changed]

    # The pairs are in this order: asking after what it waits for; the beginning of a span after
    # all nodes of the span before; nodes after the beginning of their span; changes after the
    # beginning of their span and after the asking; nodes after the change of their span.
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

    # Nodes last as long as data need, changes the delay, and all others 0 s.
    lasts = np.zeros(2 * n + len(head) + len(changed))
    lasts[:n], lasts[changes] = transfers.lasting(lanes), transfers.job.network.delay_s
    if transfers.job.network.switching == "all-stop":
        # Where a switch stops as a whole, a change delays all communications of its rail.
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
    """Set up circuits early: the best of a few orders.

    A lane (port of one number at all GPUs) serves communications one after another, and changes
    its circuit between two that need different ones. Tried are the order in which communications
    would start with all circuits there, and those of known plans; and steps that begin with the
    circuits that they use first, or used last. Every change begins as soon as the port is free.

    Parameters
    ----------
    transfers
        The communications of the folded step.
    starts
        Starts of the nodes in plans that are known, in seconds; each of shape (nodes,).

    Returns
    -------
    Draft or None
        The fastest plan; None if no order can be kept.
    """
    lanes, uses = usual_lanes(transfers), transfers.uses()
    lasts = transfers.lasting(lanes)
    best_s, best = np.inf, None
    for place in (_by_time(transfers), *map(transfers.rank, starts)):
        check_time()
        served = draw_lines(uses, place[uses.node], lanes)

        # The step begins with the circuits that each lane used last, or with those that it uses
        # first and then returns to at its end.
        for standing in (served.last, served.first):
            found = _time(transfers, served, standing, lasts)
            step_s = np.inf if found is None else found[0].end_s.max(initial=0.0)
            if found is not None and step_s < best_s:
                best_s, best = step_s, (served, standing, *found)
    if best is None:
        return None

    # Changes are the nodes after those of the step; they are asked for when they begin.
    served, standing, timed, turned = best
    begins = timed.start_s[len(transfers.duration_s) :]
    turns = served.turns(turned, begins, begins)
    at_once = np.zeros(len(standing))
    still = served.turns(standing, at_once, at_once)
    return Draft(transfers, timed, lanes, still, turns)


def _time(
    transfers: Transfers, served: Lines, standing: Ints, lasts: NDArray[np.float64]
) -> tuple[Timed, Ints] | None:
    """Time a step in which each lane goes through its uses, with changes as early as can be.

    Parameters
    ----------
    transfers
        The communications of the folded step.
    served
        The uses of each lane in their order.
    standing
        By line a row whose peer the lane faces when the step begins, and when it ends.
    lasts
        By node how long it lasts, in seconds.

    Returns
    -------
    tuple of (timed, turned), or None
        `timed` has starts and ends of the nodes, and after them those of the changes; `turned` has
        by change the row whose peer the lane faces after it. None if nodes wait for each other in
        a circle.
    """
    (node, _, _, peer, *_), before, last = served.uses, served.before, served.last

    # ``turns[row]``: whether the lane has to turn to another peer for this use; ``back[line]``:
    # whether it has to turn back at the end of the step.
    turns, back = peer != served.faced(standing), peer[last] != peer[standing]
    same = ~turns & (before >= 0)
    turned = np.concatenate([np.flatnonzero(turns), standing[back]])
    number = len(transfers.duration_s) + np.arange(len(turned))

    # Each change waits for the last node that used the lane, if there is one in this step.
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
    """One rail of an all-stop switch: its last change of circuits, and what is under way.

    Attributes
    ----------
    since_s, until_s
        When the last change began, and when it ends, in seconds; -1 before the first one.
    running
        The communications that ride the rail at this moment, by node.
    """

    def __init__(self) -> None:
        """Begin with no change so far, and nothing under way."""
        self.since_s = self.until_s = -1.0
        self.running: set[int] = set()


def stopping_paths(
    duration_s: Sequence[float],
    pairs: Iterable[tuple[int, int]],
    rail_of: Sequence[int],
    first_switch: int,
) -> Timed | None:
    """Start everything as early as it can, where switching stops all that rides a rail.

    A node is an operation, a communication or a change of circuits. An event simulation of what
    `longest_paths` computes without stops. Changes of circuits of one rail that begin at the same
    time are one, others wait for each other; each delays all communications that are under way on
    the rail by its own time.

    Parameters
    ----------
    duration_s
        ``duration_s[node]`` in seconds.
    pairs
        Pairs of nodes: the first has to end before the second starts.
    rail_of
        ``rail_of[node]``: the rail that a node rides or changes, -1 if none.
    first_switch
        Nodes from this number on are changes of circuits.

    Returns
    -------
    Timed or None
        Starts, ends and order of the nodes; None if nodes wait for each other in a circle.
    """
    n = len(duration_s)
    after: list[list[int]] = [[] for _ in range(n)]

    # By node: for how many nodes it still waits, and its times.
    waits, start, end = [0] * n, [0.0] * n, [0.0] * n
    for one, two in pairs:
        after[one].append(two)
        waits[two] += 1
    rails = {rail: _Rail() for rail in set(rail_of)}
    # Order at one moment: ends, starts beside rails, changes of circuits, starts of sends.
    turn = [1 if rail < 0 else 2 + (k < first_switch) for k, rail in enumerate(rail_of)]

    # Events are (time, order at that time, node); of each node one start and at least one end.
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

            # The node has ended: nodes that wait for nothing else any more can start now.
            place[node], done = done, done + 1
            rail.running.discard(node)
            for later in after[node]:
                waits[later] -= 1
                if not waits[later]:
                    heappush(queue, (now, turn[later], later))
            continue

        # A change may be joined to one that has begun at this moment. A communication waits for
        # the end of a change of its rail, and is under way from then on.
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
    """Begin to change the circuits of a rail, and stop the communications under way on it.

    A change that begins at the same moment as another one is the same; one that comes while
    another is under way begins when that has ended.

    Parameters
    ----------
    rail
        The rail; `since_s` and `until_s` of its last change become those of this change.
    now
        When the change could begin, in seconds from the start of the step.
    delay_s
        How long a change takes, in seconds.
    end
        ``end[node]`` in seconds, of all nodes: the ends of those in ``rail.running`` move back by
        the delay.
    """
    # The rail already changes at this moment, or is going to: everything is delayed by that.
    if rail.since_s >= now:
        return
    begin = max(now, rail.until_s)
    rail.since_s, rail.until_s = begin, begin + delay_s
    for node in rail.running:
        end[node] += delay_s

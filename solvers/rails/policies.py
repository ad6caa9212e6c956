"""Plans that forward nothing: circuits split once, changed on demand, provisioned, or early.

Words of this module; class, end, lane, peer and node are those of
`optmatch.solvers.rails.transfers`, line, turn and standing those of
`optmatch.solvers.rails.timetable`:

Place
    The position of a node in an order; what stands later starts no sooner where both need the
    same lane of an end.
Span
    Communications of one class, one after another in its program, between which no lane has to
    face another peer: a class changes circuits between its spans only.
Asking
    The moment from which somebody wants the circuits of a communication. It is a node that lasts
    0 s.

All times are those of longest paths: a change is a node that lasts the delay, comes after the
node that used the port before, and before the node that uses it next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

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
    """Choose the lanes of each communication, as bits, as a simple controller does.

    Each communication gets all lanes. In a pipeline, messages to two neighbours would then wait
    for the circuits of each other: where an end has such messages and there are two lanes or more,
    messages onward take the even lanes, and messages back the odd ones. With four lanes these are
    0b0101 and 0b1010.
    """
    # With four lanes these are 0b1111 and 0b0101.
    everything = (1 << transfers.lanes.number) - 1
    even = sum(1 << lane for lane in range(0, transfers.lanes.number, 2))

    # By end the ranks to which messages go there, or from which they come.
    faces: dict[int, set[int]] = {}
    for transfer in transfers.by_node.values():
        if transfer.kind >= SEND:
            for point in transfer.endpoints:
                faces.setdefault(point.end, set()).add(point.peers[0])

    # If some end has messages to two peers, one would wait for the circuits of the other: lanes
    # are then shared by direction.
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
    """Make the plan of a policy; None if it is static and ports cannot be split.

    `"static"` splits ports once among the kinds of communication, `"on-demand"` changes circuits
    when a communication that needs others is ready, and `"provisioned"` when it waits for no other
    communication any more, only for computation. The plan has no states of cells yet.
    """
    transfers = fold_transfers(job)
    if policy == "static":
        draft = plan_static(transfers)
    else:
        draft = plan_by_demand(transfers, provisioned=policy == "provisioned")
    return draft and draft.build()


def plan_by_demand(transfers: Transfers, *, provisioned: bool) -> Draft:
    """Plan a step in which circuits change when somebody asks for them.

    Classes follow their programs. Programs of different classes may contradict each other, each
    waiting for the other; then all classes go through their communications in the order of time,
    and such orders never contradict each other.
    """
    draft = _draft_in_order(transfers, transfers.order, provisioned=provisioned)
    if draft is None:
        rank = _by_time(transfers)
        order = [nodes[np.argsort(rank[nodes])] for nodes in transfers.order]
        draft = _draft_in_order(transfers, order, provisioned=provisioned)
    assert draft is not None
    return draft


def plan_static(transfers: Transfers) -> Draft | None:
    """Plan a step in which no circuit changes: lanes are divided once among the communications.

    Communications that can share circuits are one kind. Each kind gets lanes in proportion to the
    square root of its traffic, at least one: this makes the sum of the times of all kinds least.
    None if there are more kinds than lanes, or if a collective has rounds that need changes.
    """
    n_lanes = transfers.lanes.number

    # Messages and collectives are never of one kind: this is quick to see.
    is_message = {transfer.kind >= SEND for transfer in transfers.by_node.values()}
    if len(is_message) > n_lanes:
        return None

    # All-to-alls go around a ring here, which needs no change. Other collectives may still be done
    # in rounds with different partners, which are nodes beyond those of the folded step.
    transfers = hold_circuits(transfers)
    if len(transfers.first) > len(transfers.last):
        return None
    kinds = _list_kinds(transfers)
    shares = share_lanes([_busiest(transfers, nodes) for nodes in kinds], n_lanes)
    if shares is None:
        return None

    # Kinds take lanes next to each other, from lane 0 on: a kind that gets three lanes after two
    # lanes are taken has the bits 0b11100.
    lanes: dict[int, int] = {}
    first_lane = 0
    for nodes, share in zip(kinds, shares, strict=True):
        bits = (1 << share) - 1 << first_lane
        lanes |= dict.fromkeys(nodes, bits)
        first_lane += share

    # A lane still serves one communication after another, in the order in which they would start
    # with all circuits there. The plan has no changes of circuits: ``last[:0]`` is empty.
    uses = transfers.uses
    lines = draw_lines(uses, _by_time(transfers)[uses.node], lanes)
    pairs = np.concatenate([transfers.pairs, lines.pairs()])
    timed = longest_paths(transfers.lasting(lanes), pairs)
    if timed is None:
        return None
    no_turns = lines.turns(lines.last[:0], np.empty(0), np.empty(0))
    return Draft(transfers, timed, lanes, lines.standing(), no_turns)


class _Kind(NamedTuple):
    """Communications that can share their circuits."""

    is_message: bool
    """Whether they are messages; else they are collectives."""
    nodes: list[int]
    """The communications."""
    peers_at_end: dict[int, tuple[int, ...]]
    """By end that one of them uses, its peers: a rank for each lane."""


def _list_kinds(transfers: Transfers) -> list[list[int]]:
    """Sort communications into kinds with equal peers at all ends that they share, by first fit.

    Messages and collectives are never of one kind.
    """
    # A kind knows the peers at each end that one of its communications uses. A further one fits if
    # it agrees with them; ends that the kind has not used yet allow any peers.
    kinds: list[_Kind] = []
    for node, transfer in sorted(transfers.by_node.items()):
        peers_at_end = {point.end: point.peers for point in transfer.endpoints}
        is_message = transfer.kind >= SEND

        # At an end that the kind has not used yet, the default lets the communication fit.
        for kind in kinds:
            fits = all(
                kind.peers_at_end.get(end, peers) == peers for end, peers in peers_at_end.items()
            )
            if kind.is_message == is_message and fits:
                kind.nodes.append(node)
                kind.peers_at_end.update(peers_at_end)
                break
        else:  # no kind fits
            kinds.append(_Kind(is_message, [node], peers_at_end))
    return [kind.nodes for kind in kinds]


def _busiest(transfers: Transfers, nodes: list[int]) -> float:
    """Return the most bytes that some communications send over the ports of one GPU."""
    sent: dict[int, float] = {}
    for node in nodes:
        for point in transfers.by_node[node].endpoints:
            sent[point.end] = sent.get(point.end, 0.0) + transfers.by_node[node].bytes_sent
    return max(sent.values())


def share_lanes(traffic: list[float], lanes: int) -> list[int] | None:
    """Share lanes in proportion to the square root of traffic, by largest remainders.

    Each kind gets one at least: traffic of 9 and 1 bytes shares four lanes as 3 and 1. None if
    there are more kinds than lanes.
    """
    if len(traffic) > lanes:
        return None
    roots = [max(amount, 1e-300) ** 0.5 for amount in traffic]
    shares = [1] * len(traffic)
    if not traffic:
        return shares

    # Each further lane goes to the kind that lacks most of its exact share.
    exact = [lanes * root / sum(roots) for root in roots]
    for _ in range(lanes - len(traffic)):
        lacking = [part - share for part, share in zip(exact, shares, strict=True)]
        shares[lacking.index(max(lacking))] += 1
    return shares


def _by_time(transfers: Transfers) -> Ints:
    """Rank nodes by when they start with all circuits there.

    Such orders never contradict each other.
    """
    lanes = (1 << transfers.lanes.number) - 1
    durations = transfers.lasting(dict.fromkeys(transfers.by_node, lanes))
    timed = longest_paths(durations, transfers.pairs)
    assert timed is not None  # else `fold_transfers` has named the ranks that wait
    return transfers.rank(timed.start_s)


def _draw_programs(transfers: Transfers, order: Sequence[Ints], lanes: Mapping[int, int]) -> Lines:
    """Draw the lines of all lanes in the order of programs.

    Places count the nodes of all classes, one class behind another. A message of a class to itself
    stands there twice.
    """
    uses = transfers.uses
    n_nodes = len(transfers.duration_s)

    # At which places does a use stand? A node is in the order of each class that takes part in it:
    # class and node together are a key, ``class * nodes + node``. The class of a use is
    # ``end // 2``. All places are sorted by their keys, and the places of a use are then
    # ``places_by_key[first:beyond]``.
    key_of_place = np.concatenate(
        [number * n_nodes + nodes for number, nodes in enumerate(order)] or [uses.node]
    )
    places_by_key = np.argsort(key_of_place, kind="stable")
    sorted_keys = key_of_place[places_by_key]
    key_of_use = uses.end // 2 * n_nodes + uses.node
    first = np.searchsorted(sorted_keys, key_of_use, "left")
    beyond = np.searchsorted(sorted_keys, key_of_use, "right")

    # A node that a class sends to itself stands in its order twice, and its use has two places: it
    # is repeated, and `copy` counts 0, 1 within each use.
    use = np.repeat(np.arange(len(key_of_use)), beyond - first)
    copy = np.arange(len(use)) - np.searchsorted(use, use)
    place = places_by_key[first[use] + copy]
    return draw_lines(Uses(*(column[use] for column in uses)), place, lanes)


def _cut_spans(lines: Lines, n_places: int) -> NDArray[np.bool_]:
    """Mark the places at which programs are cut into spans: greedily, as late as possible.

    A place is cut off if a lane would face another peer than at a place of the span so far.
    """
    # Rows of uses before which the lane faces another peer. ``conflict[place]`` is the last place
    # at which a lane that is used here with another peer was used before, -1 if there is none. A
    # span that contains both places has to be cut between them.
    rows = np.flatnonzero(lines.before >= 0)
    rows = rows[lines.uses.peer[rows] != lines.uses.peer[rows - 1]]
    conflict = np.full(n_places, -1)
    np.maximum.at(conflict, lines.place[rows], lines.place[rows - 1])

    # A place begins a span if the one by now contains a place that it is in conflict with.
    begins_span = np.zeros(n_places, dtype=bool)
    first_of_span = 0
    places = np.flatnonzero(conflict >= 0)
    for place, former in zip(places.tolist(), conflict[places].tolist(), strict=True):
        if former >= first_of_span:
            begins_span[place] = True
            first_of_span = place
    return begins_span


class _Spans(NamedTuple):
    """The programs of all classes, one behind another, cut into spans."""

    node: Ints
    """``node[place]``: the communication; places count all programs, one behind another."""
    span: Ints
    """``span[place]``: the span, numbered from 0 on."""
    first_place: Ints
    """``first_place[span]``: where the span begins."""
    goes_on: NDArray[np.bool_]
    """``goes_on[span]``: whether a span of the same class goes before it. There is an entry more
    than spans, which is False."""


class _Changes(NamedTuple):
    """The changes of circuits between spans: one for each span that needs one."""

    row: Ints
    """``row[turn]``: the row of the lines whose lane is turned to another peer; shape
    (turns,)."""
    change: Ints
    """``change[turn]``: the change that the turn is a part of; shape (turns,)."""
    span: Ints
    """``span[change]``: the span before which circuits change; shape (changes,)."""


def _list_spans(lines: Lines, order: Sequence[Ints]) -> tuple[_Spans, _Changes]:
    """Cut the programs into spans, and list before which of them circuits have to change.

    ``order[class]`` are its communications on rails, one after another. The first span may need a
    change too, as the step before has left the circuits of the last one. Example: a class with
    peers 4, 4, 7 on its only lane has the spans 0, 0, 1 and changes before both.
    """
    # A span begins where a class begins or where its program had to be cut; spans are counted by
    # these beginnings. The first span of a class has none before it: `goes_on` is False.
    node = np.concatenate([*order, np.empty(0, np.int64)])
    class_of_place = np.repeat(np.arange(len(order)), [len(nodes) for nodes in order])
    enters_class = np.diff(class_of_place, prepend=-1) > 0
    span = np.cumsum(enters_class | _cut_spans(lines, len(node))) - 1
    first_place = np.flatnonzero(np.diff(span, prepend=-1))
    goes_on = np.append(~enters_class[first_place], False)

    # A lane is turned for a use if it faced another peer before; all turns of a span are one
    # change.
    row = np.flatnonzero(lines.uses.peer != lines.faced(lines.last))
    span_of_change, change = np.unique(span[lines.place[row]], return_inverse=True)
    return _Spans(node, span, first_place, goes_on), _Changes(row, change, span_of_change)


class _SpanGraph(NamedTuple):
    """A step as a graph of longest paths, in which classes go through their spans.

    Its nodes are the n nodes of the step; then of each of them its asking; then the beginning of
    each span, when the span before has ended; then the changes.
    """

    duration_s: NDArray[np.float64]
    """``duration_s[node]`` in seconds; askings and beginnings of spans last 0 s."""
    pairs: Ints
    """Pairs of nodes, shape (pairs, 2): the first has to end before the second starts."""
    asking: Ints
    """``asking[change]``: the node that is the asking for the first node of its span."""
    beginning: Ints
    """``beginning[change]``: the node that is the beginning of its span."""
    change: Ints
    """``change[change]``: its node."""


def _link_spans(
    transfers: Transfers,
    duration_s: NDArray[np.float64],
    spans: _Spans,
    changes: _Changes,
    *,
    provisioned: bool,
) -> _SpanGraph:
    """Write a step as a graph, so that the longest path to each node says when it starts.

    A change waits for the end of the span before and for the asking of the first node of its span,
    and all nodes of its span wait for the change. ``duration_s[node]`` is in seconds, with all
    circuits there. With 5 nodes, 2 spans and 1 change, the askings are nodes 5 to 9 of the graph,
    the beginnings of spans 10 and 11, and the change is 12.
    """
    n_nodes = len(transfers.duration_s)
    n_spans = len(spans.first_place)
    n_changes = len(changes.span)

    # Numbers in the graph: nodes from 0 on, askings from n on, beginnings of spans from 2 n on,
    # and then the changes.
    asking = n_nodes + np.arange(n_nodes)
    beginning = 2 * n_nodes + np.arange(n_spans)
    change = 2 * n_nodes + n_spans + np.arange(n_changes)

    # The asking of a node waits for the nodes before it. If provisioned, nodes that are no
    # communication pass the asking on without their own time: it waits for their asking.
    waited_for = np.arange(n_nodes)
    if provisioned:
        is_computation = np.ones(n_nodes, dtype=bool)
        is_computation[list(transfers.by_node)] = False
        waited_for = np.where(is_computation, asking, waited_for)
    former = transfers.pairs[:, 0]
    later = transfers.pairs[:, 1]
    before_askings = np.stack([waited_for[former], asking[later]], axis=1)

    # A span begins after all nodes of the span before, if its class has one. These are two sets of
    # pairs: (node of the span before, beginning) and (beginning, node of the span).
    is_before_another = spans.goes_on[spans.span + 1]
    is_after_another = spans.goes_on[spans.span]
    span_before = spans.span[is_before_another]
    span_after = spans.span[is_after_another]
    before_beginnings = np.stack(
        [spans.node[is_before_another], beginning[span_before + 1]], axis=1
    )
    after_beginnings = np.stack([beginning[span_after], spans.node[is_after_another]], axis=1)

    # A change comes after the beginning of its span and the asking of the first node there, and
    # before all nodes of the span.
    beginning_of_change = beginning[changes.span]
    asking_of_change = asking[spans.node[spans.first_place[changes.span]]]
    follows = spans.goes_on[changes.span]
    change_of_span = np.full(n_spans, -1)
    change_of_span[changes.span] = change
    change_of_place = change_of_span[spans.span]
    has_change = change_of_place >= 0
    pairs = [
        transfers.pairs,
        before_askings,
        before_beginnings,
        after_beginnings,
        np.stack([beginning_of_change[follows], change[follows]], axis=1),
        np.stack([asking_of_change, change], axis=1),
        np.stack([change_of_place[has_change], spans.node[has_change]], axis=1),
    ]

    # Nodes last as long as data need, changes the delay, and all others 0 s.
    lasts_s = np.zeros(2 * n_nodes + n_spans + n_changes)
    lasts_s[:n_nodes] = duration_s
    lasts_s[change] = transfers.job.network.delay_s
    return _SpanGraph(
        lasts_s, np.concatenate(pairs), asking_of_change, beginning_of_change, change
    )


def _draft_in_order(
    transfers: Transfers, order: Sequence[Ints], *, provisioned: bool
) -> Draft | None:
    """Plan a step in which each class keeps a given order and changes circuits between its spans.

    ``order[class]`` are the nodes of its communications on rails, in their order. A circuit is
    asked for when its first communication could begin; if it is `provisioned`, already when the
    computation before that begins, but not before the span before has ended. All starts are as
    early as that allows: longest paths, or simulated events on an all-stop switch. None if the
    orders of classes contradict each other.
    """
    lanes = usual_lanes(transfers)
    lines = _draw_programs(transfers, order, lanes)
    spans, changes = _list_spans(lines, order)
    duration_s = transfers.lasting(lanes)
    graph = _link_spans(transfers, duration_s, spans, changes, provisioned=provisioned)
    pairs = np.concatenate([graph.pairs, lines.pairs()])

    # On an all-stop switch a change delays all communications of its rail. ``rails[node]`` is the
    # rail of a node of the graph, -1 for none. The nodes of the step come first; the asking of
    # node k is node ``n_nodes + k``; changes come last, and are on the rail of the first node of
    # their span, which is the node that asks for them.
    rails: Ints | None = None
    if transfers.job.network.switching == "all-stop":
        n_nodes = len(duration_s)
        rails = np.full(len(graph.duration_s), -1)
        rails[:n_nodes] = transfers.rails()
        rails[graph.change] = rails[graph.asking - n_nodes]
    first_change = len(graph.duration_s) - len(graph.change)
    timed = longest_paths(graph.duration_s, pairs, rails, first_change)
    if timed is None:
        return None

    # Circuits that are provisioned are not asked for before the span before has ended, which is
    # the time of ``graph.beginning[change]``.
    asked_s = timed.end_s[graph.asking]
    if provisioned:
        asked_s = np.maximum(asked_s, timed.end_s[graph.beginning])
    starts_s = timed.start_s[graph.change]
    turns = lines.turns(changes.row, starts_s[changes.change], asked_s[changes.change])
    return Draft(transfers, timed, lanes, lines.standing(), turns)


class _EarlySteps(NamedTuple):
    """A step in which each lane goes through its uses, with changes as early as can be."""

    lines: Lines
    """The uses of each lane in their order."""
    standing: Ints
    """By line a row whose peer the lane faces when the step begins, and when it ends."""
    timed: Timed
    """Starts and ends of the nodes, and after them those of the changes."""
    turned: Ints
    """``turned[change]``: the row whose peer the lane faces after it."""
    step_s: float
    """When the last node or change ends, in seconds."""


def plan_ahead(transfers: Transfers, starts: Sequence[Start] = ()) -> Draft | None:
    """Plan a step in which circuits are set up early, as soon as their ports are free.

    Several orders of the nodes are tried: the one in which they could start if all circuits were
    there, and the order of each known plan in `starts`. For each order two plans are timed, which
    differ in the circuits that stand when the step begins. The fastest plan of all is returned;
    None if no order can be kept, as nodes would wait for each other in a circle.
    """
    lanes = usual_lanes(transfers)
    uses = transfers.uses
    duration_s = transfers.lasting(lanes)
    best: _EarlySteps | None = None
    for place in (_by_time(transfers), *map(transfers.rank, starts)):
        check_time()
        lines = draw_lines(uses, place[uses.node], lanes)

        # The step begins with the circuits that each lane used last, or with those that it uses
        # first and then returns to at its end.
        for standing in (lines.last, lines.first):
            steps = _change_early(transfers, lines, standing, duration_s)
            if steps is not None and (best is None or steps.step_s < best.step_s):
                best = steps
    if best is None:
        return None

    # Changes are the nodes after those of the step; they are asked for when they begin.
    begins_s = best.timed.start_s[len(transfers.duration_s) :]
    turns = best.lines.turns(best.turned, begins_s, begins_s)
    at_once_s = np.zeros(len(best.standing))
    standing_turns = best.lines.turns(best.standing, at_once_s, at_once_s)
    return Draft(transfers, best.timed, lanes, standing_turns, turns)


def _change_early(
    transfers: Transfers, lines: Lines, standing: Ints, duration_s: NDArray[np.float64]
) -> _EarlySteps | None:
    """Time a step in which each lane turns to its next peer once the use before has ended.

    ``standing[line]`` is a row whose peer the lane faces when the step begins, and again when it
    ends: a lane that faces 4 and has uses with peers 4, 4 and 7 turns before the third one, and
    back to 4 after it. ``duration_s[node]`` is in seconds, with all circuits there. None if nodes
    wait for each other in a circle.
    """
    # A use needs a change if the port faces another peer before; a line needs one more at its end
    # if its last peer is not the one with which the step began.
    node = lines.uses.node
    peer = lines.uses.peer
    needs_turn = peer != lines.faced(standing)
    turns_back = peer[lines.last] != peer[standing]

    # Changes are further nodes: first those in front of a use, then those at the end of the step.
    turned = np.concatenate([np.flatnonzero(needs_turn), standing[turns_back]])
    change = len(transfers.duration_s) + np.arange(len(turned))
    change_of_use = change[: int(needs_turn.sum())]

    # Each change waits for the last node that used the lane, if there is one in this step. The
    # pairs are: who waits in the step itself; uses of a lane that follow each other without a
    # change; former use and change; change and the use that it is for.
    former_node = np.concatenate([lines.before[needs_turn], node[lines.last[turns_back]]])
    has_former = former_node >= 0
    stays = ~needs_turn & (lines.before >= 0)
    pairs = (
        transfers.pairs,
        np.stack([lines.before[stays], node[stays]], axis=1),
        np.stack([former_node[has_former], change[has_former]], axis=1),
        np.stack([change_of_use, node[needs_turn]], axis=1),
    )

    # The starts are longest paths; there are none if the pairs make a circle.
    delays_s = np.full(len(turned), transfers.job.network.delay_s)
    timed = longest_paths(np.concatenate([duration_s, delays_s]), np.concatenate(pairs))
    if timed is None:
        return None
    step_s = float(timed.end_s.max(initial=0.0))
    return _EarlySteps(lines, standing, timed, turned, step_s)

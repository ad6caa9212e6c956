"""Plans that forward nothing: circuits split once, changed on demand, provisioned, or early.

A plan is made in five steps:

1. `fold_transfers` folds the step into seats, GPUs that do the same, and lists the ends and the
   peers of each communication.
2. Lanes are chosen for each communication: by direction (`usual_lanes`), or by shares that never
   change (`plan_static`).
3. Each seat has an order of its communications, that of its program or that of time.
4. The order is cut into spans (`plan_in_order`). Circuits change between two spans.
5. Communications, computations and changes are events of a graph, and its longest paths are their
   times. `Draft.build` writes the plan out for all ranks and rails.

A *seat* is a GPU of the folded step, and a *lane* the port of one number at all GPUs, or two
bidirectional ones. The *ends* of a seat are the side where its ports transmit and the side where
they receive, and the *peer* of an end on a lane is the seat that it faces
(`optmatch.solvers.rails.transfers`). A *line* is the uses of one lane of one end, one after
another; an end *turns* on a lane when it gives up its circuit to face another peer
(`optmatch.solvers.rails.timetable`).

Words of this module:

Node
    A computation, or one round of a communication.
Place
    The position of a node among the communications of all seats.
Program
    The communications of a seat in an order; what stands later starts no sooner where both need
    the same lane of an end.
Span
    Communications of one seat, one after another in its program, between which no lane has to
    face another peer: a seat changes circuits between its spans only. Where lanes change alone,
    each lane is a program of its own.
Request
    The moment from which somebody wants the circuits of a communication: an event that lasts 0 s.

All times are those of longest paths: a change of circuits is an event that lasts the delay, comes
after the span before, and before all nodes of its span.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from optmatch.model import IDLE, check_time
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan
from optmatch.solvers.kernels.decorators import kernel
from optmatch.solvers.rails.paths import Floats, Ints, find_heads, find_tails, longest_paths
from optmatch.solvers.rails.timetable import Draft, draw_lines
from optmatch.solvers.rails.transfers import (
    Transfers,
    fold_transfers,
    list_transfers,
)

ChangeRule = Literal["free", "provisioned", "on-demand"]
"""When circuits change: each lane alone, once its last communication has ended (free), or all
lanes of a seat together, once the next communication is ready (on demand) or waits for
computation alone (provisioned)."""
Policy = Literal["static", "on-demand", "provisioned"]
"""What a simple controller does: circuits never change, or by one of two rules."""
CHANGE_RULES: tuple[ChangeRule, ...] = ("provisioned", "on-demand", "free")
"""All of these; a clock that runs out leaves the last ones out."""
NO_SPLIT = (
    "fewer ports than there are kinds of circuits to keep, or rounds that need other circuits;"
    " more ports of a GPU (--ports-per-gpu), or provisioned or on-demand, which change circuits"
)
"""Why there is no static plan."""


def usual_lanes(transfers: Transfers) -> Ints:
    """Choose ``lanes[node]`` of each communication, bit k for lane k, as a simple controller does.

    Each communication gets all lanes, with one exception. In a pipeline, messages of one GPU to
    two neighbours would then wait for the circuits of each other. If any end has messages to two
    peers, and there are two lanes or more, all messages to the next rank of their group take the
    even lanes and all other messages the odd ones: of four lanes 0b0101 and 0b1010.
    """
    # Of four lanes these are 0b1111 and 0b0101. `lanes` is a new array.
    n_lanes = transfers.lanes.number
    all_lanes = (1 << n_lanes) - 1
    even_lanes = sum(1 << lane for lane in range(0, n_lanes, 2))
    lanes = transfers.all_lanes

    # An end with messages to two peers is in two different pairs of an end and a peer.
    uses = transfers.uses.select(np.flatnonzero(transfers.is_message[transfers.uses.node]))
    ends_and_peers = np.unique(np.stack([uses.end, uses.peer]), axis=1)
    is_shared = len(np.unique(ends_and_peers[0])) < ends_and_peers.shape[1]
    if n_lanes > 1 and is_shared:
        lanes[transfers.is_message] = all_lanes & ~even_lanes
        lanes[transfers.is_message & transfers.is_ahead] = even_lanes
    return lanes


def plan_policy(job: RailJob, policy: Policy) -> RailPlan | None:
    """Make the plan of a policy; None if it is static and ports cannot be split.

    `"static"` splits ports once among the kinds of communication, `"on-demand"` changes circuits
    when a communication that needs others is ready, and `"provisioned"` when it waits for no other
    communication any more, only for computation. The plan has no states of cells yet.
    """
    transfers = fold_transfers(job)
    draft = plan_static(transfers) if policy == "static" else plan_programs(transfers, policy)
    if draft is None:
        return None
    return draft.build().spelled_out(job.step())


def plan_programs(transfers: Transfers, rule: ChangeRule) -> Draft:
    """Plan a step in which seats follow their programs, and circuits change when asked for.

    Programs of different seats may contradict each other, each waiting for the other. In that case
    all seats go through their communications in an order of time instead: the better one of the
    orders of earliest and of latest starts. Such orders never contradict each other.

    Example of a contradiction: seat 0 has message A before B, and seat 1, at the other end of
    both, has B before A.
    """
    uses = transfers.uses
    in_program = uses.operation * len(transfers.first) + uses.node
    draft = plan_in_order(transfers, in_program, rule)
    if draft is not None:
        return draft
    earliest_s = find_earliest_starts(transfers)
    lasts_s = transfers.lasting(transfers.all_lanes)
    latest_s = -(find_tails(lasts_s, transfers.pairs) + lasts_s)
    drafts = [plan_by_time(transfers, start_s, rule) for start_s in (earliest_s, latest_s)]
    return min((draft for draft in drafts if draft is not None), key=lambda draft: draft.step_s)


def plan_by_time(
    transfers: Transfers, start_s: Floats, rule: ChangeRule, lanes: Ints | None = None
) -> Draft | None:
    """Plan a step in which each seat communicates in the order of ``start_s[node]``.

    These are times of nodes of the folded step, in seconds, and give the order alone: the plan has
    times of its own. A seat whose nodes 3, 5 and 8 start at 2 s, 0 s and 1 s communicates in the
    order 5, 8, 3. ``lanes[node]`` is as in `usual_lanes`, which chooses them if it is None. None
    if the orders of two seats contradict.
    """
    uses = transfers.uses
    by_time = uses.end // 2 * len(transfers.first) + transfers.rank(start_s)[uses.node]
    return plan_in_order(transfers, by_time, rule, lanes)


def plan_static(transfers: Transfers) -> Draft | None:
    """Plan a step in which no circuit changes: lanes are divided once among the communications.

    Communications that can share circuits are one kind. Each kind gets lanes in proportion to the
    square root of its traffic, at least one. This makes the sum of their times least: kinds of 9
    and 1 GB over 3 and 1 lanes of 1 GB/s take 3 + 1 = 4 s, over 2 lanes each 4.5 + 0.5 = 5 s. None
    if there are more kinds than lanes, or if a collective has rounds that need changes.
    """
    n_lanes = transfers.lanes.number

    # Messages and collectives are never of one kind. A job with both on a single lane has no plan,
    # which is seen here without listing kinds.
    is_message = transfers.is_message[transfers.rides]
    if len(np.unique(is_message)) > n_lanes:
        return None

    # All-to-alls can go around a ring, which needs no change. Other collectives may still be done
    # in rounds with different partners.
    fixed_lanes = transfers.lanes._replace(fixed=True)
    transfers = list_transfers(transfers.seats, fixed_lanes)
    has_rounds = len(transfers.first) > len(transfers.last)
    if has_rounds:
        return None
    kinds = _list_kinds(transfers)
    busiest_bytes = [_find_busiest_bytes(transfers, nodes) for nodes in kinds]
    shares = share_lanes(busiest_bytes, n_lanes)
    if shares is None:
        return None

    # Kinds take lanes next to each other, from lane 0 on, as bits of ``lanes[node]``: a kind that
    # gets three lanes after two lanes are taken has the bits 0b11100.
    lanes = np.zeros(len(transfers.first), np.int64)
    first_lane = 0
    for nodes, n_lanes_of_kind in zip(kinds, shares, strict=True):
        lanes[nodes] = sum(1 << lane for lane in range(first_lane, first_lane + n_lanes_of_kind))
        first_lane += n_lanes_of_kind

    # A lane still serves one communication after another, in the order in which they would start
    # with all circuits there. As those of one kind face equal peers, no lane is ever turned.
    return plan_by_time(transfers, find_earliest_starts(transfers), "free", lanes)


class _Kind(NamedTuple):
    """Communications that can share their circuits."""

    is_message: bool
    """Whether they are messages; else they are collectives."""
    nodes: list[int]
    """The communications."""
    peer: Ints
    """``peer[end]``: the seat that the end faces, -1 if none of them uses it."""

    def allows(self, is_message: bool, ends: Ints, peers: Ints) -> bool:
        """Tell whether each of `ends` faces its peer already, or is not used yet."""
        faced = self.peer[ends]
        is_free_or_equal = (faced == IDLE) | (faced == peers)
        return self.is_message == is_message and bool(is_free_or_equal.all())


def _list_kinds(transfers: Transfers) -> list[list[int]]:
    """Sort communications into kinds that can share their circuits, by first fit.

    Two of one kind face the same peer at each end that both use. Messages and collectives are
    never of one kind. Returns the nodes of each kind: two collectives around one ring are one
    kind, and one around another ring is a second one if it uses one of their ends.
    """
    # The uses of each communication stand together. Where circuits stay, peers are the same on all
    # lanes: those of lane 0 are compared.
    rows = np.flatnonzero(transfers.uses.lane == 0)
    uses = transfers.uses.select(rows[np.argsort(transfers.uses.node[rows], kind="stable")])
    nodes, begins = np.unique(uses.node, return_index=True)

    # The uses of ``nodes[k]`` are the rows from ``begins[k]`` up to ``begins[k + 1]``. Many
    # communications repeat the same ends and peers: they are of the kind of the first one, which
    # is looked up by their bytes.
    kind_of: dict[bytes, _Kind] = {}
    kinds: list[_Kind] = []
    begins = np.append(begins, len(uses.node))
    for node, begin, beyond in zip(
        nodes.tolist(), begins[:-1].tolist(), begins[1:].tolist(), strict=True
    ):
        ends = uses.end[begin:beyond]
        peers = uses.peer[begin:beyond]
        is_message = bool(transfers.is_message[node])
        circuits = b"%d" % is_message + ends.tobytes() + peers.tobytes()

        # First fit: a communication goes into the first kind that allows it, else it begins one.
        if circuits not in kind_of:
            fitting = [kind for kind in kinds if kind.allows(is_message, ends, peers)]
            if not fitting:
                fitting = [_Kind(is_message, [], np.full(2 * transfers.seats.n_seats, IDLE))]
                kinds += fitting
            fitting[0].peer[ends] = peers
            kind_of[circuits] = fitting[0]
        kind_of[circuits].nodes.append(node)
    return [kind.nodes for kind in kinds]


def _find_busiest_bytes(transfers: Transfers, nodes: list[int]) -> float:
    """Return the most bytes that pass one end in these communications together.

    The bytes of a communication are those over all its lanes, and count once: at lane 0.
    """
    uses = transfers.uses
    rows = np.flatnonzero((uses.lane == 0) & np.isin(uses.node, nodes))
    sent_at_end = np.bincount(uses.end[rows], transfers.bytes_sent[uses.node[rows]])
    return float(sent_at_end.max())


def share_lanes(traffic: list[float], lanes: int) -> list[int] | None:
    """Share lanes in proportion to the square root of traffic, by largest remainders.

    ``traffic[kind]`` is in bytes, and the result is the number of lanes by kind, one at least:
    traffic of 9 and 1 bytes shares four lanes as 3 and 1. None if there are more kinds than lanes.
    """
    if len(traffic) > lanes:
        return None

    # A kind without traffic has a tiny root above 0, so that the sum of all roots is never 0.
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


def find_earliest_starts(transfers: Transfers) -> Floats:
    """Find when each node starts with all circuits there and all lanes, ``start_s[node]``.

    Rounds after the first are nodes as well. Orders by these times never contradict each other.
    """
    return find_heads(transfers.lasting(transfers.all_lanes), transfers.pairs)


@kernel
def _mark_spans(conflict, begins_span):
    """Mark in `begins_span` the places at which a new span begins, from the first place on.

    One begins if the present span contains ``conflict[place]``: an earlier place of the same seat
    that cannot be in one span with this place, or -1 if there is none. The first place of each
    program is marked before. With the conflicts -1, -1, 1, -1, 3 of one program, spans begin at
    the places 0, 2 and 4.
    """
    # Where `first_of_span` is still in the program of a seat before, the present program has no
    # mark yet, and its first span contains the former place: it is cut, as it has to be.
    first_of_span = 0
    for place in range(len(conflict)):
        if conflict[place] >= first_of_span:
            begins_span[place] = True
            first_of_span = place


def plan_in_order(
    transfers: Transfers, order: Ints, rule: ChangeRule, lanes: Ints | None = None
) -> Draft | None:
    """Plan a step whose seats communicate in given orders; None if the orders contradict.

    ``order[row]`` by row of `Transfers.uses` is ascending in the program of a seat, equal for all
    rows of one node at it, and differs from those of other seats.

    By the rule `"free"` each lane changes alone, once its last communication has ended. By the
    other rules all lanes of a seat change together, between two *spans*: runs of communications
    that need no change. On demand, a change is asked for when the first communication of its span
    could begin. If provisioned, it is asked for already when the computation before that begins,
    but not before the span before has ended.

    The step is a graph of events, and its longest paths are their times. Events are the nodes
    themselves, the *requests* of all nodes, which last 0 s, and the changes of circuits, one
    before each span, which last the delay, or 0 s if no lane is turned. A seat with peers 4, 4, 7
    on its only lane has two spans: the peers 4, 4 and the peer 7. It changes before both of them,
    as the step begins with the circuits of its end. ``lanes[node]`` has bit k for lane k;
    `usual_lanes` chooses them if it is None.
    """
    check_time()
    if lanes is None:
        lanes = usual_lanes(transfers)
    lines = draw_lines(transfers.uses, order, lanes)
    uses = lines.uses
    n_nodes = len(transfers.first)

    # A *place* is a position in the programs of all seats, one behind another; ``place[row]`` is
    # that of a use. By place: its node, and whether a program begins there. Circuits that change
    # when they are free do so lane by lane: programs are lines then.
    if rule == "free":
        place = np.arange(len(uses.node))
        node = uses.node
        begins_program = lines.before < 0
    else:
        _, row_of_place, place = np.unique(lines.order, return_index=True, return_inverse=True)
        node = uses.node[row_of_place]
        begins_program = np.diff(uses.end[row_of_place] // 2, prepend=-1) != 0

    # Programs are cut into spans as late as possible. Two uses of a lane with different peers, one
    # right after the other, are in conflict: a span that contains both places has to be cut
    # between them. The former use is the row above, but for the first use of a lane, whose
    # ``before`` is -1. ``conflict[place]`` is the last place before with which a place is in
    # conflict on any lane, -1 if there is none: with peers 4, 4, 7, 7, 4 of one lane it is -1, -1,
    # 1, -1, 3, and spans begin at the first 7 and at the last 4.
    is_turned = uses.peer != lines.faced
    conflict_row = np.flatnonzero(is_turned & (lines.before >= 0))
    conflict = np.full(len(node), -1)
    np.maximum.at(conflict, place[conflict_row], place[conflict_row - 1])
    begins_span = begins_program.copy()
    _mark_spans(conflict, begins_span)

    # ``span[place]`` counts spans from 0. By span: its first node, and whether it goes on with the
    # program of the span before (`goes_on`, which has one more entry, False, for the span behind
    # the last one). A lane is turned for a use if it faced another peer before, and all turns of a
    # span are one change. A span that goes on begins with a turn; the first one of a program may
    # have none.
    span = np.cumsum(begins_span) - 1
    first_node = node[begins_span]
    goes_on = np.append(~begins_program[begins_span], False)
    span_of_turn = span[place[is_turned]]

    # Numbers of the events. With 5 nodes and 2 spans, the nodes are 0 to 4, their requests 5 to 9,
    # and the changes of the spans 10 and 11.
    request = n_nodes + np.arange(n_nodes)
    change = 2 * n_nodes + np.arange(len(first_node))

    # Who waits for whom, as (former, later), in this order: nodes for the node before on a line,
    # and for those that they wait for in the step; the change of a span for the nodes of the span
    # before; and nodes for the change of their span.
    has_former = lines.before >= 0
    is_before_another = goes_on[span + 1]
    last_nodes = node[is_before_another]
    next_span = span[is_before_another] + 1
    waits = [
        (lines.before[has_former], uses.node[has_former]),
        (transfers.pairs[:, 0], transfers.pairs[:, 1]),
        (last_nodes, change[next_span]),
        (change[span], node),
    ]

    # Where changes have to be asked for, they wait for the request of the first node of their span
    # as well. The request of a node waits for the nodes before it. If provisioned, it does not
    # wait for a computation before it, but for the request of that: it comes as early as the
    # computation can begin. ``waited_for[node]`` is the event that is waited for in the place of a
    # node.
    if rule != "free":
        waited_for = np.arange(n_nodes)
        if rule == "provisioned":
            waited_for = np.where(transfers.rides, waited_for, request)
        waits.append((waited_for[transfers.pairs[:, 0]], request[transfers.pairs[:, 1]]))
        waits.append((request[first_node[span_of_turn]], change[span_of_turn]))
    pairs = np.stack([np.concatenate(column) for column in zip(*waits, strict=True)], axis=1)

    # Nodes last as their lanes allow, changes with turns a delay, all other events 0 s.
    lasts_s = np.zeros(2 * n_nodes + len(change))
    lasts_s[:n_nodes] = transfers.lasting(lanes)
    network = transfers.seats.job.network
    lasts_s[change[span_of_turn]] = network.delay_s

    # On an all-stop switch a change delays all communications of its rail, which is that of the
    # first node of its span. Changes are the last of the events.
    rails: Ints | None = None
    if network.switching == "all-stop":
        rails = np.full(len(lasts_s), -1)
        rails[:n_nodes] = transfers.seats.set_of_node[transfers.first]
        rails[change[span_of_turn]] = rails[first_node[span_of_turn]]
    timed = longest_paths(lasts_s, pairs, rails, len(change))
    if timed is None:
        return None

    # When the changes of spans are asked for: if lanes change when they are free, as they start;
    # else at the request of the first node, but if provisioned not before the span before has
    # ended.
    starts_s = timed.start_s[change]
    asked_s = starts_s
    if rule != "free":
        asked_s = timed.end_s[request[first_node]]
    if rule == "provisioned":
        np.maximum.at(asked_s, next_span, timed.end_s[last_nodes])

    # The times of changes become those of the turns that they consist of.
    turn_s = np.where(is_turned, starts_s[span[place]], -np.inf)
    turn_asked_s = np.where(is_turned, asked_s[span[place]], np.inf)
    return Draft(
        transfers=transfers,
        timed=timed,
        lines=lines,
        turn_s=turn_s,
        asked_s=turn_asked_s,
    )

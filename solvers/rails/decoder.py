"""List scheduling of a training step whose data are forwarded: the kernel of `prefetch`.

Words of this module:

Seat
    A GPU of the one rail that stands for all rails that are alike
    (`optmatch.solvers.rails.seats`). Circuits lead from seat to seat.
Node
    A computation, or one communication of several seats, which are its *members*.
Bundle
    Some ports of every GPU that always hold the same circuits: with four ports, two bundles may
    have three ports and one. A bundle has one sending and one receiving side at each seat.
Ring
    A permutation of the seats, of one cycle or of several. Data that go over a ring pass from
    seat to seat, and the seats between two members of a communication *forward* them.
Circuit
    From a seat to another one, which is named by its number if it is in the same replica, and by
    this number plus the number of seats if it is in the next one: the circuit *crosses*. Replicas
    do the same on other GPUs (`optmatch.solvers.rails.replicas`); of a job that is not split no
    circuit crosses.
Hop
    One circuit that data pass: without seats that forward, a member is one hop from the next.
Home
    The ring of the same number as a bundle: its circuits are up when the step begins, and again
    when it ends.
Way
    How the data of a node go: over one ring of one bundle, *straight* (over circuits from each
    member to the next one, with nobody between), or over chords. A circuit of the way that is not
    up is set up first, and takes the place of those that its two ports held.
Block
    The data of one member for one other in an all-to-all: each of n members sends n - 1 blocks.
Stage
    One part of an all-to-all that goes straight: in each stage all circuits of the members lead
    the same number of places further on, which is the *stride* of the stage.
Menu
    The table of the ways to do an all-to-all in stages (`optmatch.solvers.rails.exchanges`).
Hold
    A node holds the circuits of its way until it ends: their ports are not free before.
Chord
    A bundle of one port whose home leads a stride further on in each group of experts. An
    all-to-all goes over all chords at once, and a collective over those whose stride makes a ring
    of its members.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inlined_kernel, inner_kernel, kernel
from optmatch.solvers.rails.exchanges import Menu
from optmatch.solvers.rails.paths import Floats, Ints, pop_node, push_node

EITHER = -2
STRAIGHT = -1
CHORDS = -4
"""The way that a plan lets a node go: as it ends soonest, straight, or over chords. Numbers from 0
on are rings; -3 is left to the shapes of `optmatch.solvers.rails.choices`."""
NO_RAIL = -1
RING = 0
MESSAGE = 1
EXCHANGE = 2
"""The kind of a node: a node beside all rails, a collective around its members, a message from one
to another, or an all-to-all from each to each."""
_NODE = 90
_BESIDE = 15
"""The work of a node on a rail, and beside, in circuits that are looked at in the same time
(measured on the presets; it only decides when a search ends)."""


class StepGraph(NamedTuple):
    """The nodes of a step: computations, and communications as one; it never changes."""

    duration_s: Floats
    """``duration_s[node]`` in seconds, of nodes that ride no rail; shape (nodes,)."""
    tail_s: Floats
    """``tail_s[node]`` in seconds: the step lasts at least so much longer when the node has
    ended."""
    bytes_sent: Floats
    """``bytes_sent[node]``: the bytes that each member sends if data go over a ring of the
    members."""
    latency_s: Floats
    """``latency_s[node]`` in seconds: the latency of all its messages, over one hop each."""
    crosses: NDArray[np.bool_]
    """``crosses[node]``: whether data go around the members of all replicas, not of one."""
    how: NDArray[np.int8]
    """``how[node]``: `NO_RAIL`, `RING`, `MESSAGE` or `EXCHANGE`."""
    first_member: Ints
    """Node k has the members ``member[first_member[k]:first_member[k + 1]]``; an entry for each
    node and one more."""
    member: Ints
    """Seats, all nodes one after the other; the members of a node stand in the order of its group.
    The first member of a message is the sender."""
    first_successor: Ints
    """The nodes ``successor[first_successor[k]:first_successor[k + 1]]`` wait for node k; an
    entry for each node and one more."""
    successor: Ints
    """Nodes, as `first_successor` says; shape (pairs of nodes,)."""
    n_predecessors: Ints
    """``n_predecessors[node]``: for how many nodes it waits."""


class Chords(NamedTuple):
    """The bundles that are chords."""

    stride: Ints
    """``stride[bundle]``: how many members further on its circuits lead; 0 if it is no chord."""
    load: Floats
    """``load[n]``: the parts that the busiest chord carries in an all-to-all of n members, a part
    that takes several hops once for each; infinite where the strides do not lead everywhere."""


class PlanChoice(NamedTuple):
    """The choices of a plan that the schedule follows."""

    priority: Floats
    """``priority[node]``: of nodes that could start at one time, the least goes first."""
    haste_s: Floats
    """``haste_s[node]``: how much sooner a node is seen as able to start than it is."""
    way: Ints
    """``way[node]``: `EITHER`, `STRAIGHT`, `CHORDS`, or the number of a ring from 0 on."""
    next_seat: Ints
    """``next_seat[ring, seat]``: the circuit of a seat on a ring, -1 if it is not on it."""
    cycle: Ints
    """``cycle[ring, seat]``: the number of the cycle; a ring may be of several."""
    rate: Floats
    """``rate[bundle]``: bytes per second of all its ports."""
    menu: Menu
    """The stages in which all-to-alls may go straight."""
    chords: Chords
    """The bundles that are chords, and what the busiest one carries."""
    change_s: float
    """Seconds that a circuit takes to be set up; infinite where none may be."""
    price_s: float
    """Seconds: a way with new circuits has to end so much sooner than one without."""
    in_order: bool
    """Whether nodes go in the order of their release, even if they wait for circuits."""


class ScheduleLimits(NamedTuple):
    """When a schedule is given up."""

    step_s: float
    """Seconds: a step that lasts so long, or longer, is of no use."""
    forwarding_seats: int
    """The most seats that forward, counted over all nodes: each takes a row of the plan."""


class BundlePorts(NamedTuple):
    """The circuits of all bundles, and when their ports are free; shape (bundles, seats) each."""

    receiver: Ints
    """The circuit of the sending port, -1 if it is dark."""
    sender: Ints
    """The seat from which the receiving port is lit, -1 if it is dark."""
    send_free_s: Floats
    """Seconds from the start of the step: when the sending port is free."""
    receive_free_s: Floats
    """Seconds from the start of the step: when the receiving port is free."""


class Scratch(NamedTuple):
    """Arrays that the schedule works in; they are used again by the next one."""

    ports: BundlePorts
    """The circuits at the moment of the schedule."""
    mark: Ints
    """``mark[seat]``: the last node taken from the queue that had this seat as a member."""
    heap: Ints
    """Two queues in one array of shape (nodes,): nodes on rails are a binary heap that grows from
    the front, nodes beside rails are a stack that grows from the back."""
    key_s: Floats
    """``key_s[node]``: when a node in the heap is seen as able to start."""
    n_waiting: Ints
    """``n_waiting[node]``: for how many nodes it still waits."""


class Result(NamedTuple):
    """The schedule."""

    start_s: Floats
    """``start_s[node]`` in seconds from the start of the step."""
    end_s: Floats
    """``end_s[node]`` in seconds from the start of the step."""
    taken: Ints
    """``taken[node]``: the way that the node takes, ``bundle * (rings + 1) + choice``. The choice
    is 0 if it goes straight, and 1 + r if it goes over ring r. Chords are coded as straight on one
    more bundle than there are; not written for nodes that ride no rail. With 2 bundles and 3
    rings, 6 is bundle 1 over ring 1, 4 is bundle 1 straight, and 8 is over chords."""
    change_start_s: Floats
    """``change_start_s[change]``: when ports begin to set up a circuit, in seconds. There is room
    for as many as the caller wants to see; further ones are only counted."""
    change: Ints
    """``change[change]``: bundle, sender and circuit of each new circuit; shape (changes, 3)."""


class StepOutcome(NamedTuple):
    """The outcome of a schedule."""

    step_s: float
    """When the last node ends or the last circuit is up, in seconds; infinite if it was given
    up."""
    n_changes: int
    """How many circuits were set up, those at the end of the step included."""
    work: int
    """Circuits that were looked at, with nodes counted as `_NODE` and `_BESIDE` circuits."""


class Node(NamedTuple):
    """A communication that is about to start."""

    members: Ints
    """The seats, in the order of the group; of a message the sender and the receiver."""
    crosses: bool
    """As in `StepGraph`."""
    how: int
    """`RING`, `MESSAGE` or `EXCHANGE`."""
    bytes_sent: float
    """As in `StepGraph`."""
    latency_s: float
    """As in `StepGraph`."""
    ready_s: float
    """When all that it waits for has ended, in seconds from the start of the step."""
    way: int
    """As in `PlanChoice`."""


class BestWay(NamedTuple):
    """The way by which a node ends soonest, of those that were tried."""

    taken: int
    """The way, coded as in `Result`; -1 if none was found."""
    start_s: float
    """When the node is ready and all circuits are free and up, in seconds."""
    end_s: float
    """When the last data have arrived, in seconds."""
    score_s: float
    """The end, plus the price of new circuits where there are any: what ways are compared by."""
    row: int
    """The row of the menu for an all-to-all that goes straight; else 0."""
    n_examined: int
    """Circuits that were looked at to find it."""


class Route(NamedTuple):
    """When the circuits of a way are free and up."""

    free_s: float
    """When the last circuit is free and up, in seconds from the start of the step."""
    max_hops: int
    """Most hops from one member to the next; 0 if the way cannot serve, or not soon enough."""
    n_missing: int
    """Circuits that have to be set up, of those that were looked at."""
    n_examined: int
    """Circuits that were looked at."""


# Ways of a node


@inlined_kernel
def _route_over_ring(node, plan, ring, ports, bundle, limit):
    """Find when all circuits of a communication on one ring are free and up.

    Data go from the first member: a message to its receiver, a collective once round. Around 0 ->
    1 -> 2 -> 3 -> 4 -> 0, a collective of seats 0, 2 and 3 takes all five circuits; 1 and 4
    forward, and the most hops between members are two. `limit` is (mark, give_up_s): members alone
    have the mark of the first one, and a way that is not free before `give_up_s` has 0 hops. One
    circuit of a cycle crosses if it joins all replicas, none if it stays in one.
    """
    mark, give_up_s = limit
    n_seats = ports.receiver.shape[1]
    may_cross = node.crosses
    members = node.members
    is_message = node.how == MESSAGE
    source = members[0]

    # The ring can serve only if all members are on one of its cycles. Else the result has 0 hops,
    # and counts the members that were looked at.
    for index in range(1, len(members)):
        if plan.cycle[ring, members[index]] != plan.cycle[ring, source]:
            return Route(0.0, 0, 0, index)

    # Walk along the ring to the receiver of a message, or once round to the first member. Each
    # circuit is free when both of its ports are; a missing one takes the delay from then on.
    destination = members[1] if is_message else source
    free_s = 0.0
    hops = 0
    max_hops = 0
    n_missing = 0
    n_examined = 0
    seat = source
    while True:
        circuit = plan.next_seat[ring, seat]
        next_seat = circuit
        if circuit >= n_seats:
            # Data of one replica may not leave it; those of all have to do so once.
            if not may_cross:
                return Route(0.0, 0, 0, n_examined)
            may_cross = False
            next_seat -= n_seats
        circuit_s = max(ports.send_free_s[bundle, seat], ports.receive_free_s[bundle, next_seat])
        if ports.receiver[bundle, seat] != circuit:
            circuit_s += plan.change_s
            n_missing += 1

        # The way is free when its last circuit is.
        free_s = max(free_s, circuit_s)
        hops += 1
        n_examined += 1

        # A way that is free too late is given up: circuits further on cannot make it sooner.
        if free_s >= give_up_s:
            return Route(free_s, 0, n_missing, n_examined)

        # For a collective `hops` is the hops since the last member, and begins anew at each
        # member: the pair that is farthest apart decides the latency. For a message it is all hops
        # so far.
        seat = next_seat
        if mark[seat] == mark[source] and not is_message:
            max_hops = max(max_hops, hops)
            hops = 0
        if seat == destination:
            if may_cross:
                return Route(0.0, 0, 0, n_examined)
            return Route(free_s, max(hops, max_hops), n_missing, n_examined)


@inlined_kernel
def _join_straight(node, index, receiver, ports):
    """Return the circuit from member number `index` to a receiver, the next member.

    The last member of a node that goes around all replicas leads to the first one of the next.
    """
    if node.crosses and index == len(node.members) - 1:
        return receiver + ports.receiver.shape[1]
    return receiver


@inlined_kernel
def _route_straight(node, plan, stride, ports, bundle):
    """Find when the circuits to the members `stride` places further on are free and up.

    With stride 2, member 0 sends to member 2, member 1 to member 3, and so on around the group. A
    message needs the circuit from sender to receiver alone; its stride is 1.
    """
    members = node.members
    n = len(members)
    n_senders = 1 if node.how == MESSAGE else n
    free_s = 0.0
    n_missing = 0
    for index in range(n_senders):
        sender = members[index]
        receiver = members[(index + stride) % n]
        circuit = _join_straight(node, index, receiver, ports)

        # A circuit that is missing is up a delay after both of its ports are free.
        circuit_s = max(ports.send_free_s[bundle, sender], ports.receive_free_s[bundle, receiver])
        if ports.receiver[bundle, sender] != circuit:
            circuit_s += plan.change_s
            n_missing += 1
        free_s = max(free_s, circuit_s)
    return Route(free_s, 1, n_missing, n)


@inlined_kernel
def _try_rings(node, plan, bundle, ports, mark, best):
    """Try the rings that a communication may take over the ports of one bundle.

    Each port passes the bytes of the communication once, and those of an all-to-all of n members n
    / 2 times: data for the member d places further on take d hops, of which n / 2 is the mean.
    Returns the best way so far with these included.
    """
    # `passed` is how often the bytes of the communication pass each port.
    n_rings = len(plan.next_seat)
    passed = len(node.members) / 2 if node.how == EXCHANGE else 1.0
    for ring in range(n_rings):
        # A seat that is on no cycle of the ring, as of a chord in few groups, cannot start there.
        may_take = node.way in (EITHER, ring)
        if not may_take or plan.next_seat[ring, node.members[0]] < 0:
            continue

        # A way whose circuits are free only when the best one so far has ended, its price
        # included, is given up.
        route = _route_over_ring(node, plan, ring, ports, bundle, (mark, best.score_s))
        best = _count_examined(best, route.n_examined)

        # The node lasts as long as its bytes need over the ports of the bundle, and each message
        # for each hop between the two members farthest apart.
        if route.max_hops > 0:
            start_s = max(node.ready_s, route.free_s)
            end_s = start_s + (
                node.bytes_sent * passed / plan.rate[bundle] + route.max_hops * node.latency_s
            )
            taken = bundle * (n_rings + 1) + 1 + ring
            menu_row = 0  # only all-to-alls in stages, which use no ring, have another one
            way = (taken, start_s, end_s, menu_row)
            best = _take_if_sooner(best, node, plan, way, route.n_missing)
    return best


@inlined_kernel
def _try_straight(node, plan, bundle, ports, best):
    """Try circuits from each member to the next one on a bundle, or the stages of an all-to-all.

    Of an all-to-all, all rows of the menu for its number of members are tried; circuits change
    between its stages. Returns the best way so far with these included.
    """
    n = len(node.members)
    menu = plan.menu
    taken = bundle * (len(plan.next_seat) + 1)

    # Messages and collectives that go around: one circuit from each sender to the next member.
    if node.how != EXCHANGE:
        route = _route_straight(node, plan, 1, ports, bundle)
        best = _count_examined(best, n)
        start_s = max(node.ready_s, route.free_s)
        end_s = start_s + node.bytes_sent / plan.rate[bundle] + node.latency_s
        return _take_if_sooner(best, node, plan, (taken, start_s, end_s, 0), route.n_missing)

    # In an all-to-all of n members each sends n - 1 blocks, one after another; `part_s` is the
    # time of one block over one circuit. Circuits change between stages. The change to the first
    # stage is before the start: one delay is taken off before the stages, each with a delay, are
    # added up. Two stages of 5 s and 4 s with a delay of 2 s end 11 s after the start. The ways
    # for n members are the rows from ``menu.begin[n]`` up to ``menu.begin[n + 1]``.
    part_s = (node.bytes_sent / plan.rate[bundle] + node.latency_s) / (n - 1)
    for row in range(menu.begin[n], menu.begin[n + 1]):
        route = _route_straight(node, plan, menu.stride[row, 0], ports, bundle)
        best = _count_examined(best, n)
        start_s = max(node.ready_s, route.free_s)

        # Stages that are not used have stride 0 and no hops, and take no time.
        end_s = start_s - plan.change_s
        for stage in range(menu.stride.shape[1]):
            change_s = plan.change_s if menu.stride[row, stage] else 0.0
            end_s += menu.hops[row, stage] * part_s + change_s

        # Circuits change between stages: the way has the price of new ones in any case.
        best = _take_if_sooner(best, node, plan, (taken, start_s, end_s, row), 1)
    return best


@inlined_kernel
def _serves_as_chord(stride, is_exchange, n_members):
    """Tell whether a chord serves: an all-to-all needs circuits to others, a collective a ring."""
    if stride == 0 or stride % n_members == 0:
        return False
    if is_exchange:
        return True

    # The greatest common divisor of both, which is 1 if the stride makes one ring.
    larger = n_members
    smaller = stride % n_members
    while smaller:
        larger, smaller = smaller, larger % smaller
    return larger == 1


@inlined_kernel
def _try_chords(node, plan, ports, best):
    """Try to send the data of a collective of more than two members over all its chords at once.

    All circuits of all chords have to be free. Chords share the bytes of a ring evenly; an
    all-to-all lasts as long as its busiest chord, as a block may pass several: with strides 1 and
    3, one for the member 4 places further on takes two hops. The best way stays the same if no
    chord serves.
    """
    chords = plan.chords
    n = len(node.members)
    is_exchange = node.how == EXCHANGE
    free_s = 0.0
    n_missing = 0
    n_chords = 0
    rate = 0.0

    # Over all chords that serve: when the last circuit is free and up, and their rates added up.
    for bundle in range(len(plan.rate)):
        if _serves_as_chord(chords.stride[bundle], is_exchange, n):
            route = _route_straight(node, plan, chords.stride[bundle] % n, ports, bundle)
            free_s = max(free_s, route.free_s)
            n_missing += route.n_missing
            n_chords += 1
            rate += plan.rate[bundle]
    if n_chords == 0:
        return best

    # Around a ring the chords share the bytes evenly. An all-to-all lasts as long as its busiest
    # chord is busy. A block has 1 / (n - 1) of the bytes and of the latency of the node; the
    # latency counts c times on each of c chords, since the messages of a member are sent one after
    # another, over whichever chord.
    best = _count_examined(best, n_chords * n)
    lasts_s = node.bytes_sent / rate + node.latency_s
    if is_exchange:
        send_s = node.bytes_sent / (rate / n_chords)  # a chord is one port, as all of them are
        lasts_s = chords.load[n] * (send_s + n_chords * node.latency_s) / (n - 1)

    # Chords are coded as straight on one more bundle than there are.
    start_s = max(node.ready_s, free_s)
    taken = len(plan.rate) * (len(plan.next_seat) + 1)
    return _take_if_sooner(best, node, plan, (taken, start_s, start_s + lasts_s, 0), n_missing)


@inlined_kernel
def _count_examined(best, n_examined):
    """Return the best way so far with so many more circuits looked at."""
    return BestWay(
        best.taken,
        best.start_s,
        best.end_s,
        best.score_s,
        best.row,
        best.n_examined + n_examined,
    )


@inlined_kernel
def _take_if_sooner(best, node, plan, way, n_missing):
    """Return the better of the best way so far and a new one (taken, start_s, end_s, row).

    The way that ends sooner is better; of a node that may take any way, one that lacks circuits
    counts a price later: with a price of 2 s, a way that ends at 9 s is compared as 11 s. Of equal
    ways the one so far stays.
    """
    taken, start_s, end_s, row = way
    price_s = plan.price_s if n_missing and node.way == EITHER else 0.0
    if end_s + price_s < best.score_s:
        return BestWay(taken, start_s, end_s, end_s + price_s, row, best.n_examined)
    return best


@inlined_kernel
def _choose_way(node, plan, ports, mark):
    """Choose the way by which a node ends soonest, of those that the plan allows.

    ``mark[seat]`` is one number for all members and another one for other seats. A node that is
    sent over a ring may also go straight if that ring serves it on no bundle. `taken` is -1 if no
    way serves.
    """
    # No way is found yet (-1), and any is better than that. All are tried one after another, and
    # `best` is handed on: as it is, or replaced by a better one.
    best = BestWay(-1, 0.0, 0.0, np.inf, 0, 1)
    n_bundles = len(plan.rate)
    for bundle in range(n_bundles):
        best = _try_rings(node, plan, bundle, ports, mark, best)

        # A node that the plan sends over a ring goes straight only if that ring can serve it on no
        # bundle: this is known at the last one.
        is_last = bundle == n_bundles - 1
        has_ring = node.way >= 0 and (best.taken >= 0 or not is_last)
        has_chords = node.way == CHORDS and not node.crosses
        if not has_chords and not has_ring:
            best = _try_straight(node, plan, bundle, ports, best)
    may_take_chords = node.way in (EITHER, CHORDS)
    is_collective = node.how != MESSAGE and not node.crosses
    if may_take_chords and is_collective and len(node.members) > 2:
        best = _try_chords(node, plan, ports, best)
    return best


# Circuits of the way that is taken


@inlined_kernel
def _set_up(ports, bundle, circuit, start_s, result, n_changes):
    """Set up (sender, circuit) in place of the circuits that its ports held; note the change.

    If 0 -> 1 and 2 -> 3 are up and 0 -> 3 is set up, the receiving port of 1 and the sending port
    of 2 are dark. `ports` is changed, and `result` where it has room; the number of changes,
    greater by 1, is returned.
    """
    # Both ports are taken from their former circuits, whose other ports are dark then.
    sender, new_circuit = circuit
    n_seats = ports.receiver.shape[1]
    receiver = new_circuit % n_seats
    if ports.receiver[bundle, sender] >= 0:
        ports.sender[bundle, ports.receiver[bundle, sender] % n_seats] = -1
    if ports.sender[bundle, receiver] >= 0:
        ports.receiver[bundle, ports.sender[bundle, receiver]] = -1
    ports.receiver[bundle, sender] = new_circuit
    ports.sender[bundle, receiver] = sender

    # Changes are numbered in the order in which nodes are scheduled, not by time.
    if n_changes < len(result.change_start_s):
        result.change_start_s[n_changes] = start_s
        result.change[n_changes, 0] = bundle
        result.change[n_changes, 1] = sender
        result.change[n_changes, 2] = new_circuit
    return n_changes + 1


@inlined_kernel
def _hold_ring(node, plan, way, ports, result, n_changes):
    """Set up the circuits that a way (bundle, ring, end_s) lacks, and hold them until it ends.

    Each circuit changes as soon as its own two ports are free, even if others of the ring are free
    later. Returns the number of changes so far and of seats that forward: around 0 -> 1 -> 2 -> 3
    -> 0 two of them for a collective of 0 and 2.
    """
    bundle, ring, end_s = way
    members = node.members
    is_message = node.how == MESSAGE
    destination = members[1] if is_message else members[0]

    # Every hop reaches a seat; those that are destinations of data (the receiver of a message, or
    # each member of a collective) do not forward and are taken off here.
    n_forwarding = -1 if is_message else -len(members)
    n_seats = ports.receiver.shape[1]
    seat = members[0]
    while True:
        circuit = plan.next_seat[ring, seat]
        next_seat = circuit - n_seats if circuit >= n_seats else circuit
        if ports.receiver[bundle, seat] != circuit:
            start_s = max(ports.send_free_s[bundle, seat], ports.receive_free_s[bundle, next_seat])
            n_changes = _set_up(ports, bundle, (seat, circuit), start_s, result, n_changes)

        # Circuits that were up already are held as well.
        ports.send_free_s[bundle, seat] = end_s
        ports.receive_free_s[bundle, next_seat] = end_s
        seat = next_seat
        n_forwarding += 1
        if seat == destination:
            return n_changes, n_forwarding


@inlined_kernel
def _hold_straight(node, plan, way, ports, result, n_changes):
    """Set up the circuits that a straight way (bundle, best) lacks, and hold them until it ends.

    Circuits of the first stage change as soon as their ports are free, those of a later one when
    the stage before has ended. With a delay of 2 s and stages of 5 s and 4 s, an all-to-all that
    starts at 10 s sends until 15 s, changes until 17 s and ends at 21 s. Returns the changes so
    far.
    """
    bundle, best = way
    members = node.members
    n = len(members)
    menu = plan.menu
    n_senders = 1 if node.how == MESSAGE else n

    # The time of one block over one circuit: each member of an all-to-all sends n - 1 of them.
    part_s = (node.bytes_sent / plan.rate[bundle] + node.latency_s) / max(n - 1, 1)

    # `change_start_s` is when the change to a stage begins: for the first stage a delay before the
    # node starts, for each further one a delay and the length of a stage later. The value of the
    # first stage is only counted on from: each of its circuits has a time of its own.
    change_start_s = best.start_s - plan.change_s
    for stage in range(menu.stride.shape[1]):
        stride = menu.stride[best.row, stage]
        if stride == 0:
            break
        for index in range(n_senders):
            sender = members[index]
            receiver = members[(index + stride) % n]
            circuit = _join_straight(node, index, receiver, ports)
            if ports.receiver[bundle, sender] != circuit:
                start_s = change_start_s
                if stage == 0:
                    start_s = max(
                        ports.send_free_s[bundle, sender], ports.receive_free_s[bundle, receiver]
                    )
                n_changes = _set_up(ports, bundle, (sender, circuit), start_s, result, n_changes)
        change_start_s += plan.change_s + menu.hops[best.row, stage] * part_s

    # All stages use the sending port of each sender and the receiving port of each receiver. These
    # are the members themselves, whatever the stride, so that stride 1 names all of them.
    for index in range(n_senders):
        ports.send_free_s[bundle, members[index]] = best.end_s
        ports.receive_free_s[bundle, members[(index + 1) % n]] = best.end_s
    return n_changes


@inlined_kernel
def _hold_chords(node, plan, end_s, ports, result, n_changes):
    """Set up the circuits that the chords of a collective lack, and hold them until `end_s`.

    Each circuit changes as soon as its two ports are free. Returns the number of changes so far.
    """
    members = node.members
    n = len(members)
    for bundle in range(len(plan.rate)):
        if not _serves_as_chord(plan.chords.stride[bundle], node.how == EXCHANGE, n):
            continue
        stride = plan.chords.stride[bundle] % n

        # Circuits that are missing are set up as soon as their two ports are free.
        for index in range(n):
            sender = members[index]
            receiver = members[(index + stride) % n]
            if ports.receiver[bundle, sender] != receiver:
                start_s = max(
                    ports.send_free_s[bundle, sender], ports.receive_free_s[bundle, receiver]
                )
                n_changes = _set_up(ports, bundle, (sender, receiver), start_s, result, n_changes)

        # Each member sends and receives over each chord.
        for seat in members:
            ports.send_free_s[bundle, seat] = end_s
            ports.receive_free_s[bundle, seat] = end_s
    return n_changes


@inner_kernel
def _light_homes(plan, ports):
    """Put up the homes of all bundles, with which the step begins; all ports are free at 0 s."""
    for bundle in range(len(plan.rate)):
        for seat in range(ports.receiver.shape[1]):
            ports.receiver[bundle, seat] = plan.next_seat[bundle, seat]
            ports.sender[bundle, seat] = -1
            ports.send_free_s[bundle, seat] = 0.0
            ports.receive_free_s[bundle, seat] = 0.0

        # These circuits are a permutation of some seats: its inverse says from whom each is lit.
        n_seats = ports.receiver.shape[1]
        for seat in range(n_seats):
            circuit = ports.receiver[bundle, seat]
            if circuit >= 0:
                ports.sender[bundle, circuit % n_seats] = seat


@inner_kernel
def _restore_homes(plan, ports, result, n_changes):
    """Set up the homes again, each circuit as soon as its ports are free, for the next step.

    Returns when the last one is up, 0 if none is missing, and the number of changes so far.
    """
    last_up_s = 0.0
    for bundle in range(len(plan.rate)):
        n_seats = ports.receiver.shape[1]
        for seat in range(n_seats):
            circuit = plan.next_seat[bundle, seat]
            if circuit >= 0 and ports.receiver[bundle, seat] != circuit:
                start_s = max(
                    ports.send_free_s[bundle, seat],
                    ports.receive_free_s[bundle, circuit % n_seats],
                )
                last_up_s = max(last_up_s, start_s + plan.change_s)
                n_changes = _set_up(ports, bundle, (seat, circuit), start_s, result, n_changes)
    return last_up_s, n_changes


# The schedule


@inlined_kernel
def _start_communication(node, plan, best, scratch, result, n_changes):
    """Set up and hold the circuits of the way that was chosen, decoded from its number.

    `node` is a `Node`, `best` its `BestWay`, and `n_changes` how many changes `result` has so far.
    The ports in `scratch` and the changes in `result` are written. Returns the number of changes
    with those of this node, and how many seats forward: none straight and over chords.
    """
    # ``best.taken`` is ``bundle * (n_rings + 1) + ring + 1``, with ring -1 for straight. Chords
    # have the number of bundles, ``len(plan.rate)``, as their bundle. Only `_hold_ring` returns
    # the seats that forward along with the changes; the others return changes alone.
    ports = scratch.ports
    n_rings = len(plan.next_seat)
    bundle = best.taken // (n_rings + 1)
    ring = best.taken % (n_rings + 1) - 1
    if bundle == len(plan.rate):
        return _hold_chords(node, plan, best.end_s, ports, result, n_changes), 0
    if ring >= 0:
        return _hold_ring(node, plan, (bundle, ring, best.end_s), ports, result, n_changes)
    return _hold_straight(node, plan, (bundle, best), ports, result, n_changes), 0


@inner_kernel
def _queue_first_nodes(graph, plan, scratch, result):
    """Reset the state of all nodes, and queue those that wait for nothing.

    Writes ``result.start_s``, ``scratch.key_s`` and ``scratch.n_waiting``, by node, and the heap.
    Communications go into the heap by when they can start less their haste, others on the stack:
    ``heap[:size]`` and ``heap[top:]``. Returns (size, top).
    """
    size = 0
    top = len(scratch.heap)
    for node in range(len(graph.duration_s)):
        result.start_s[node] = 0.0
        scratch.key_s[node] = -plan.haste_s[node]
        scratch.n_waiting[node] = graph.n_predecessors[node]

        # Nodes on rails wait in the heap, others on the stack.
        if scratch.n_waiting[node] == 0 and graph.how[node] == NO_RAIL:
            top -= 1
            scratch.heap[top] = node
        elif scratch.n_waiting[node] == 0:
            size = push_node(scratch.heap, scratch.key_s, plan.priority, size, node)
    return size, top


@kernel
def decode(graph, plan, limits, scratch, result):
    """Schedule a training step: list scheduling, in which what can start first starts first.

    A communication takes the way by which it ends soonest, sets up the circuits that it lacks and
    holds them until its end. It waits in a queue by when it is ready; if its circuits are busy
    then, it goes back into the queue until they are free, and others may overtake it unless
    ``plan.in_order``. The cost is O(n log n) for n nodes, and all circuits on the ways that are
    tried.

    A schedule that exceeds `limits`, or has a node that no way serves, is given up: its step is
    infinite, and only a part of `result` is written. The first contents of `scratch` do not
    matter.
    """
    # At 0 s the circuits with which a step begins are up. All nodes that wait for nothing are
    # queued, in one array: ``heap[:size]`` is the queue of communications, a binary heap, and
    # ``heap[top:]`` is a stack of nodes that need no circuits.
    n_changes = 0
    n_forwarding = 0
    step_s = 0.0
    work = 0
    _light_homes(plan, scratch.ports)
    size, top = _queue_first_nodes(graph, plan, scratch, result)
    while size or top < len(scratch.heap):
        # Nodes beside rails need no ports: they start when they are ready, in whichever order.
        if top < len(scratch.heap):
            number = scratch.heap[top]
            top += 1
            result.end_s[number] = result.start_s[number] + graph.duration_s[number]
            work += _BESIDE
        else:
            # The first communication of the queue is tried with the circuits as they are now:
            # `pop_node` leaves its number right behind the heap. Its members are marked by this
            # number.
            size = pop_node(scratch.heap, scratch.key_s, plan.priority, size)
            number = scratch.heap[size]
            members = graph.member[graph.first_member[number] : graph.first_member[number + 1]]
            for seat in members:
                scratch.mark[seat] = number
            node = Node(
                members,
                graph.crosses[number],
                graph.how[number],
                graph.bytes_sent[number],
                graph.latency_s[number],
                result.start_s[number],
                plan.way[number],
            )
            best = _choose_way(node, plan, scratch.ports, scratch.mark)
            result.taken[number] = best.taken
            work += best.n_examined

            # No way serves the node: the plan cannot be kept.
            if best.taken < 0:
                return StepOutcome(np.inf, n_changes, work)

            # Its circuits are free later than it was queued for: another node may start sooner,
            # and this one waits in the queue until then.
            seen_s = best.start_s - plan.haste_s[number]
            if seen_s > scratch.key_s[number] and not plan.in_order:
                scratch.key_s[number] = seen_s
                size = push_node(scratch.heap, scratch.key_s, plan.priority, size, number)
                continue

            # The node starts. The tail is the least time from its end to the end of the step: if
            # that ends too late, the schedule is given up.
            n_changes, n_more = _start_communication(node, plan, best, scratch, result, n_changes)
            n_forwarding += n_more
            result.start_s[number] = best.start_s
            result.end_s[number] = best.end_s
            work += _NODE
            is_late = best.end_s + graph.tail_s[number] >= limits.step_s
            if is_late or n_forwarding > limits.forwarding_seats:
                return StepOutcome(np.inf, n_changes, work)
        step_s = max(step_s, result.end_s[number])

        # The node has ended. A node that has waited for it alone is queued, by when it is ready
        # less its haste; nodes that need no circuits go on the stack and start next.
        for place in range(graph.first_successor[number], graph.first_successor[number + 1]):
            later = graph.successor[place]
            result.start_s[later] = max(result.start_s[later], result.end_s[number])
            scratch.key_s[later] = result.start_s[later] - plan.haste_s[later]
            scratch.n_waiting[later] -= 1
            if scratch.n_waiting[later] == 0 and graph.how[later] == NO_RAIL:
                top -= 1
                scratch.heap[top] = later
            elif scratch.n_waiting[later] == 0:
                size = push_node(scratch.heap, scratch.key_s, plan.priority, size, later)

    # The step ends with the circuits that it began with.
    last_up_s, n_changes = _restore_homes(plan, scratch.ports, result, n_changes)
    return StepOutcome(max(step_s, last_up_s), n_changes, work)


@kernel
def trace(graph, member_row, taken, next_seat, rows):
    """List the seats that forward as rows (operation of the sender, seat, bundle, turn).

    The turn is 1 if the seat is one of the next replica, else 0. `graph` is a `StepGraph`, whose
    array ``graph.member`` has the members of all nodes one after another, and ``member_row`` is
    parallel to it: the operation of each member. ``taken[node]`` is as in `Result`, and
    ``next_seat[ring, seat]`` as in `PlanChoice`. If a ring leads 0 -> 1 -> 2 -> 3 and only 0 and 3
    are members, 1 and 2 forward for the operation of 0. `rows` is written as far as there is room,
    node by node; the number of all rows is returned, so that a first call without room counts
    them.
    """
    n_rows = 0
    n_ways = len(next_seat) + 1
    n_seats = next_seat.shape[1]
    for node in range(len(graph.how)):
        # ``taken[node]`` is ``bundle * n_ways``, plus 1 + r over ring r. A remainder of 0 is
        # straight or over chords: circuits lead from member to member, and nobody forwards.
        if graph.how[node] == NO_RAIL or taken[node] % n_ways == 0:
            continue

        # Each sender of a node over a ring sends to the next member along the ring; all seats that
        # the data pass before are rows.
        first = graph.first_member[node]
        members = graph.member[first : graph.first_member[node + 1]]
        bundle = taken[node] // n_ways
        ring = taken[node] % n_ways - 1
        is_message = graph.how[node] == MESSAGE
        n_senders = 1 if is_message else len(members)
        for place in range(n_senders):
            # The way of this sender ends at the first seat that is a destination. Circuits from
            # ``n_seats`` on lead to the seat ``circuit - n_seats`` of the next replica.
            circuit = next_seat[ring, members[place]]
            turn = circuit // n_seats
            while not _arrives(members, is_message, circuit % n_seats):
                seat = circuit % n_seats
                if n_rows < len(rows):
                    rows[n_rows, 0] = member_row[first + place]
                    rows[n_rows, 1] = seat
                    rows[n_rows, 2] = bundle
                    rows[n_rows, 3] = turn
                n_rows += 1
                circuit = next_seat[ring, seat]
                turn += circuit // n_seats
    return n_rows


@inner_kernel
def _arrives(members, is_message, seat):
    """Tell whether a seat is a destination: the receiver of a message, else any other member.

    `seat` has just been reached over the ring; False means that it only forwards.
    """
    if is_message:
        return seat == members[1]
    is_member = False
    for other in members:
        is_member = is_member or other == seat
    return is_member

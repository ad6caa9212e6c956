"""List scheduling of a training step whose data are forwarded: the kernel of `prefetch`.

Words of this module:

Seat
    A GPU of the one rail that stands for all rails that are alike
    (`optmatch.solvers.rails.seats`). Circuits lead from seat to seat.
Bundle
    Some ports of every GPU that always hold the same circuits: with four ports, two bundles may
    have three ports and one. A bundle has one sending and one receiving side at each seat.
Ring
    A permutation of the seats, of one cycle or of several. Data that go over a ring pass from
    seat to seat, and the seats between two members of a communication *forward* them.
Home
    The ring of the same number as a bundle: its circuits are up when the step begins, and again
    when it ends.
Way
    How the data of a node go: over one ring of one bundle, *straight* (over circuits from each
    member to the next one, with nobody between), or over chords. A circuit of the way that is not
    up is set up first, and takes the place of those that its two ports held.
Stage
    One part of an all-to-all that goes straight: in each stage all circuits of the members lead
    the same number of places further on, which is the *stride* of the stage. The *menu* lists the
    ways to do it (`optmatch.solvers.rails.exchanges`).
Hold
    A node holds the circuits of its way until it ends: their ports are not free before.
Chord
    A bundle of one port whose home leads a *stride* of members further on in each group of
    experts. An all-to-all goes over all chords at once, and a collective over those whose stride
    makes a ring of its members.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inlined_kernel, inner_kernel, kernel
from optmatch.solvers.rails.exchanges import Menu

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

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
    menu: Menu
    """The stages in which all-to-alls may go straight."""
    change_s: float
    """Seconds that a circuit takes to be set up; infinite where none may be."""


class Layout(NamedTuple):
    """Rings and ports: bundle b holds ring b when the step begins and ends."""

    order: Ints
    """``order[ring]``: all seats, as they stand on it; shape (rings, seats)."""
    cycle: Ints
    """``cycle[ring, seat]``: the number of the cycle; a ring may be of several."""
    next_seat: Ints
    """``next_seat[ring, seat]``: to whom a seat leads on a ring, -1 if it is alone on its
    cycle."""
    width: Ints
    """``width[bundle]``: how many ports of each GPU it has; they sum to the ports of a GPU."""
    stride: Ints
    """``stride[bundle]``: how many members further on the circuits of a chord lead; 0 if it is
    none."""
    rate: Floats
    """``rate[bundle]``: bytes per second of all its ports."""
    load: Floats
    """``load[n]``: the parts that the busiest chord carries in an all-to-all of n members, a part
    that takes several hops once for each; infinite where the strides do not lead everywhere."""


class RailChoice(NamedTuple):
    """The choices of a plan that the schedule follows."""

    layout: Layout
    """The circuits."""
    way: Ints
    """``way[node]``: `EITHER`, `STRAIGHT`, `CHORDS`, or the number of a ring from 0 on."""
    priority: Floats
    """``priority[node]``: of nodes that could start at one time, the least goes first."""
    haste_s: Floats
    """``haste_s[node]``: how much sooner a node is seen as able to start than it is."""
    price_s: float
    """Seconds: a way with new circuits has to end so much sooner than one without."""
    in_order: bool
    """Whether nodes go in the order of their release, even if they wait for circuits."""


class BundlePorts(NamedTuple):
    """The circuits of all bundles, and when their ports are free; shape (bundles, seats) each."""

    receiver: Ints
    """The seat to which the sending port leads, -1 if it is dark."""
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
    work: Ints
    """``work[0]``: circuits that all schedules have looked at so far, with nodes counted as
    `_NODE` and `_BESIDE` circuits."""


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
    """``change[change]``: bundle, sender and receiver of the new circuit, both as seats; shape
    (changes, 3)."""


class Node(NamedTuple):
    """A communication that is about to start."""

    members: Ints
    """The seats, in the order of the group; of a message the sender and the receiver."""
    how: int
    """`RING`, `MESSAGE` or `EXCHANGE`."""
    bytes_sent: float
    """As in `StepGraph`."""
    latency_s: float
    """As in `StepGraph`."""
    ready_s: float
    """When all that it waits for has ended, in seconds from the start of the step."""
    way: int
    """As in `RailChoice`."""


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


class Route(NamedTuple):
    """When the circuits of a way are free and up."""

    free_s: float
    """When the last circuit is free and up, in seconds from the start of the step."""
    max_hops: int
    """Most hops from one member to the next; 0 if the way cannot serve, or not soon enough."""
    n_missing: int
    """Circuits that have to be set up, of those that were looked at."""


# The queue: a binary heap by key, then by priority


@inlined_kernel
def _goes_before(key_s, priority, node, other):
    """Compare two nodes by key, equal keys by priority; the least goes first."""
    if key_s[node] == key_s[other]:
        return priority[node] < priority[other]
    return key_s[node] < key_s[other]


@inlined_kernel
def _push(heap, key_s, priority, size, node):
    """Add a node to the binary heap ``heap[:size]``, and return its new size."""
    place = size
    heap[place] = node
    while place > 0:
        parent = (place - 1) // 2
        if not _goes_before(key_s, priority, heap[place], heap[parent]):
            break
        heap[place], heap[parent] = heap[parent], heap[place]
        place = parent
    return size + 1


@inlined_kernel
def _pop(heap, key_s, priority, size):
    """Take the first node from the binary heap; return the new size, where the node stands now."""
    size -= 1
    heap[0], heap[size] = heap[size], heap[0]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            return size
        if child + 1 < size and _goes_before(key_s, priority, heap[child + 1], heap[child]):
            child += 1
        if not _goes_before(key_s, priority, heap[child], heap[place]):
            return size
        heap[place], heap[child] = heap[child], heap[place]
        place = child


# Ways of a node


@inlined_kernel
def _route_over_ring(graph, node, layout, ring, scratch, bundle, give_up_s):
    """Find when all circuits of a communication on one ring are free and up, missing ones set up.

    Data go from the first member: a message to its receiver, a collective once round through all
    members. Around 0 -> 1 -> 2 -> 3 -> 4 -> 0, a collective of seats 0, 2 and 3 takes all five
    circuits; seats 1 and 4 forward, and the most hops from one member to the next are two. A way
    that is free no earlier than `give_up_s` is given up, with 0 hops.
    """
    ports = scratch.ports
    mark = scratch.mark
    members = node.members
    is_message = node.how == MESSAGE
    source = members[0]

    # The ring can serve only if all members are on one of its cycles.
    for index in range(1, len(members)):
        scratch.work[0] += 1
        if layout.cycle[ring, members[index]] != layout.cycle[ring, source]:
            return Route(0.0, 0, 0)

    destination = members[1] if is_message else source
    free_s = 0.0
    hops = 0
    max_hops = 0
    n_missing = 0
    seat = source
    while True:
        next_seat = layout.next_seat[ring, seat]
        circuit_s = max(ports.send_free_s[bundle, seat], ports.receive_free_s[bundle, next_seat])
        if ports.receiver[bundle, seat] != next_seat:
            circuit_s += graph.change_s
            n_missing += 1
        free_s = max(free_s, circuit_s)
        hops += 1
        scratch.work[0] += 1
        if free_s >= give_up_s:
            return Route(free_s, 0, n_missing)

        # The hops of a collective begin anew at each member: the pair that is farthest apart
        # decides the latency.
        seat = next_seat
        if mark[seat] == mark[source] and not is_message:
            max_hops = max(max_hops, hops)
            hops = 0
        if seat == destination:
            return Route(free_s, max(hops, max_hops), n_missing)


@inlined_kernel
def _route_straight(graph, node, stride, scratch, bundle):
    """Find when the circuits to the members a stride further on are free and up.

    A message has one circuit, from the first member to the second; its stride is 1.
    """
    ports = scratch.ports
    members = node.members
    n = len(members)
    n_senders = 1 if node.how == MESSAGE else n
    free_s = 0.0
    n_missing = 0
    for index in range(n_senders):
        sender = members[index]
        receiver = members[(index + stride) % n]
        circuit_s = max(ports.send_free_s[bundle, sender], ports.receive_free_s[bundle, receiver])
        if ports.receiver[bundle, sender] != receiver:
            circuit_s += graph.change_s
            n_missing += 1
        free_s = max(free_s, circuit_s)
    scratch.work[0] += n
    return Route(free_s, 1, n_missing)


@inlined_kernel
def _try_rings(graph, node, choice, bundle, scratch, best):
    """Try the rings over the ports of a bundle; in an all-to-all all bytes pass n / 2 seats."""
    layout = choice.layout
    n_rings = len(layout.next_seat)
    passed = len(node.members) / 2 if node.how == EXCHANGE else 1.0
    for ring in range(n_rings):
        # A seat that is on no cycle of the ring, as of a chord in few groups, cannot start there.
        may_take = node.way in (EITHER, ring)
        if not may_take or layout.next_seat[ring, node.members[0]] < 0:
            continue
        route = _route_over_ring(graph, node, layout, ring, scratch, bundle, best.score_s)
        if route.max_hops > 0:
            start_s = max(node.ready_s, route.free_s)
            end_s = start_s + (
                node.bytes_sent * passed / layout.rate[bundle] + route.max_hops * node.latency_s
            )
            taken = bundle * (n_rings + 1) + 1 + ring
            best = _take_if_sooner(best, node, choice, (taken, start_s, end_s, 0), route.n_missing)
    return best


@inlined_kernel
def _try_straight(graph, node, choice, bundle, scratch, best):
    """Try circuits from each member to the next one, and the stages of an all-to-all."""
    n = len(node.members)
    menu = graph.menu
    rate = choice.layout.rate[bundle]
    taken = bundle * (len(choice.layout.next_seat) + 1)
    if node.how != EXCHANGE:
        route = _route_straight(graph, node, 1, scratch, bundle)
        start_s = max(node.ready_s, route.free_s)
        end_s = start_s + node.bytes_sent / rate + node.latency_s
        way = (taken, start_s, end_s, 0)
        return _take_if_sooner(best, node, choice, way, route.n_missing)

    # Each member sends n - 1 blocks. The change to the first stage is before the start: one delay
    # is taken off before the stages, each with a delay, are added up. Two stages of 5 s and 4 s
    # with a delay of 2 s end 11 s after the start.
    part_s = (node.bytes_sent / rate + node.latency_s) / (n - 1)
    for row in range(menu.begin[n], menu.begin[n + 1]):
        route = _route_straight(graph, node, menu.stride[row, 0], scratch, bundle)
        start_s = max(node.ready_s, route.free_s)
        end_s = start_s - graph.change_s
        for stage in range(menu.stride.shape[1]):
            if menu.stride[row, stage]:
                end_s += menu.hops[row, stage] * part_s + graph.change_s
        best = _take_if_sooner(best, node, choice, (taken, start_s, end_s, row), 1)
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
def _try_chords(graph, node, choice, scratch, best):
    """Try all chords that serve the node at once."""
    layout = choice.layout
    n = len(node.members)
    is_exchange = node.how == EXCHANGE
    free_s = 0.0
    n_missing = 0
    n_chords = 0
    rate = 0.0
    for bundle in range(len(layout.rate)):
        if _serves_as_chord(layout.stride[bundle], is_exchange, n):
            route = _route_straight(graph, node, layout.stride[bundle] % n, scratch, bundle)
            free_s = max(free_s, route.free_s)
            n_missing += route.n_missing
            n_chords += 1
            rate += layout.rate[bundle]
    if n_chords == 0:
        return best

    # Around a ring the chords share the bytes evenly. An all-to-all lasts as long as its busiest
    # chord is busy. A block has 1 / (n - 1) of the bytes and of the latency of the node; the
    # latency counts c times on each of c chords, since the messages of a member are sent one after
    # another, over whichever chord.
    lasts_s = node.bytes_sent / rate + node.latency_s
    if is_exchange:
        send_s = node.bytes_sent / (rate / n_chords)  # a chord is one port, as all of them are
        lasts_s = layout.load[n] * (send_s + n_chords * node.latency_s) / (n - 1)
    start_s = max(node.ready_s, free_s)
    taken = len(layout.rate) * (len(layout.next_seat) + 1)
    return _take_if_sooner(best, node, choice, (taken, start_s, start_s + lasts_s, 0), n_missing)


@inlined_kernel
def _take_if_sooner(best, node, choice, way, n_missing):
    """Take a way (code, start, end, row of the menu) if it is better with its price of changes."""
    taken, start_s, end_s, row = way
    price_s = choice.price_s if n_missing and node.way == EITHER else 0.0
    if end_s + price_s < best.score_s:
        return BestWay(taken, start_s, end_s, end_s + price_s, row)
    return best


@inlined_kernel
def _choose_way(graph, node, choice, scratch):
    """Choose the way by which a node ends soonest, of those that the choice allows."""
    best = BestWay(-1, 0.0, 0.0, np.inf, 0)
    n_bundles = len(choice.layout.rate)
    for bundle in range(n_bundles):
        best = _try_rings(graph, node, choice, bundle, scratch, best)

        # A node that is sent over a ring goes straight only if that ring can serve it on no
        # bundle: this is known at the last one.
        is_last = bundle == n_bundles - 1
        has_ring = node.way >= 0 and (best.taken >= 0 or not is_last)
        if node.way != CHORDS and not has_ring:
            best = _try_straight(graph, node, choice, bundle, scratch, best)
    may_take_chords = node.way in (EITHER, CHORDS)
    if may_take_chords and node.how != MESSAGE and len(node.members) > 2:
        best = _try_chords(graph, node, choice, scratch, best)
    return best


# Circuits of the way that is taken


@inlined_kernel
def _hold(ports, circuit, start_s, end_s, result, n_changes):
    """Hold a circuit (bundle, sender, receiver) until `end_s`, and return the changes so far.

    If it is not up, it is set up from `start_s` on; the former circuits of its two ports are gone,
    and their other ports dark. Changes are numbered in the order of scheduling, not by time.
    """
    bundle, sender, receiver = circuit
    if ports.receiver[bundle, sender] != receiver:
        if ports.receiver[bundle, sender] >= 0:
            ports.sender[bundle, ports.receiver[bundle, sender]] = -1
        if ports.sender[bundle, receiver] >= 0:
            ports.receiver[bundle, ports.sender[bundle, receiver]] = -1
        ports.receiver[bundle, sender] = receiver
        ports.sender[bundle, receiver] = sender
        if n_changes < len(result.change_start_s):
            result.change_start_s[n_changes] = start_s
            result.change[n_changes, 0] = bundle
            result.change[n_changes, 1] = sender
            result.change[n_changes, 2] = receiver
        n_changes += 1
    ports.send_free_s[bundle, sender] = end_s
    ports.receive_free_s[bundle, receiver] = end_s
    return n_changes


@inlined_kernel
def _when_free(ports, bundle, sender, receiver):
    """Return when both ports of a circuit are free."""
    return max(ports.send_free_s[bundle, sender], ports.receive_free_s[bundle, receiver])


@inlined_kernel
def _hold_ring(node, layout, way, ports, result, n_changes):
    """Hold the way over a ring (bundle, ring, end); return the changes and who forwards."""
    bundle, ring, end_s = way
    members = node.members
    is_message = node.how == MESSAGE
    destination = members[1] if is_message else members[0]

    # Every hop reaches a seat; destinations of data do not forward and are taken off here.
    n_forwarding = -1 if is_message else -len(members)
    seat = members[0]
    while True:
        next_seat = layout.next_seat[ring, seat]
        start_s = _when_free(ports, bundle, seat, next_seat)
        n_changes = _hold(ports, (bundle, seat, next_seat), start_s, end_s, result, n_changes)
        seat = next_seat
        n_forwarding += 1
        if seat == destination:
            return n_changes, n_forwarding


@inlined_kernel
def _hold_straight(graph, node, layout, way, ports, result, n_changes):
    """Hold the circuits to the next members; those of an all-to-all change after each stage."""
    bundle, best = way
    members = node.members
    n = len(members)
    menu = graph.menu
    n_senders = 1 if node.how == MESSAGE else n
    part_s = (node.bytes_sent / layout.rate[bundle] + node.latency_s) / max(n - 1, 1)

    # The circuits of the first stage change as soon as their ports are free, those of each later
    # one when the stage before has ended.
    stage_s = best.start_s - graph.change_s
    for stage in range(menu.stride.shape[1]):
        stride = menu.stride[best.row, stage]
        if stride == 0:
            break
        for index in range(n_senders):
            sender = members[index]
            receiver = members[(index + stride) % n]
            start_s = stage_s
            if stage == 0:
                start_s = _when_free(ports, bundle, sender, receiver)
            circuit = (bundle, sender, receiver)
            n_changes = _hold(ports, circuit, start_s, best.end_s, result, n_changes)
        stage_s += graph.change_s + menu.hops[best.row, stage] * part_s
    return n_changes


@inlined_kernel
def _hold_chords(node, layout, end_s, ports, result, n_changes):
    """Hold the circuits of all chords that serve the node."""
    members = node.members
    n = len(members)
    for bundle in range(len(layout.rate)):
        if not _serves_as_chord(layout.stride[bundle], node.how == EXCHANGE, n):
            continue
        for index in range(n):
            sender = members[index]
            receiver = members[(index + layout.stride[bundle]) % n]
            start_s = _when_free(ports, bundle, sender, receiver)
            circuit = (bundle, sender, receiver)
            n_changes = _hold(ports, circuit, start_s, end_s, result, n_changes)
    return n_changes


@inner_kernel
def _light_homes(layout, ports):
    """Set all ports as the step begins: each bundle holds the ring of its number."""
    for bundle in range(len(layout.rate)):
        for seat in range(ports.receiver.shape[1]):
            ports.receiver[bundle, seat] = layout.next_seat[bundle, seat]
            ports.sender[bundle, seat] = -1
            ports.send_free_s[bundle, seat] = 0.0
            ports.receive_free_s[bundle, seat] = 0.0
        for seat in range(ports.receiver.shape[1]):
            receiver = ports.receiver[bundle, seat]
            if receiver >= 0:
                ports.sender[bundle, receiver] = seat


@inner_kernel
def _restore_homes(graph, layout, ports, result, n_changes):
    """Set up the circuits with which the step began; return when the last is up, and changes."""
    last_up_s = 0.0
    for bundle in range(len(layout.rate)):
        for seat in range(ports.receiver.shape[1]):
            receiver = layout.next_seat[bundle, seat]
            if receiver >= 0 and ports.receiver[bundle, seat] != receiver:
                start_s = _when_free(ports, bundle, seat, receiver)
                up_s = start_s + graph.change_s
                last_up_s = max(last_up_s, up_s)
                circuit = (bundle, seat, receiver)
                n_changes = _hold(ports, circuit, start_s, up_s, result, n_changes)
    return last_up_s, n_changes


# The schedule


@inlined_kernel
def _start_communication(graph, node, layout, best, ports, result, n_changes):
    """Hold the circuits of a way, decoded from its number; return changes and who forwards."""
    n_rings = len(layout.next_seat)
    bundle = best.taken // (n_rings + 1)
    ring = best.taken % (n_rings + 1) - 1
    if bundle == len(layout.rate):
        return _hold_chords(node, layout, best.end_s, ports, result, n_changes), 0
    if ring >= 0:
        return _hold_ring(node, layout, (bundle, ring, best.end_s), ports, result, n_changes)
    return _hold_straight(graph, node, layout, (bundle, best), ports, result, n_changes), 0


@inner_kernel
def _queue_first_nodes(graph, choice, scratch, result):
    """Queue all nodes that wait for nothing; return the size of the heap and top of the stack."""
    size = 0
    top = len(scratch.heap)
    for node in range(len(graph.duration_s)):
        result.start_s[node] = 0.0
        scratch.key_s[node] = -choice.haste_s[node]
        scratch.n_waiting[node] = graph.n_predecessors[node]
        if scratch.n_waiting[node] == 0 and graph.how[node] == NO_RAIL:
            top -= 1
            scratch.heap[top] = node
        elif scratch.n_waiting[node] == 0:
            size = _push(scratch.heap, scratch.key_s, choice.priority, size, node)
    return size, top


@kernel
def decode(graph, choice, most_s, most_forwarding, scratch, result):
    """Schedule a step: of the communications that wait, the one that can start first starts first.

    A communication is seen as able to start its haste sooner than it is. It takes the way by which
    it ends soonest and holds the circuits until then. The schedule is given up once the step would
    last `most_s` or longer, or `most_forwarding` seats forward, counted over all nodes.

    Returns
    -------
    tuple of (float, int)
        When the last node ends and the last circuit is up, in seconds, infinite if the schedule
        was given up; and how many circuits were set up.
    """
    n_changes = 0
    n_forwarding = 0
    step_s = 0.0
    _light_homes(choice.layout, scratch.ports)
    size, top = _queue_first_nodes(graph, choice, scratch, result)
    while size or top < len(scratch.heap):
        # Nodes beside rails need no ports: they start when they are ready, in whichever order.
        if top < len(scratch.heap):
            number = scratch.heap[top]
            top += 1
            result.end_s[number] = result.start_s[number] + graph.duration_s[number]
            scratch.work[0] += _BESIDE
        else:
            # The first communication of the queue is tried with the circuits as they are now.
            size = _pop(scratch.heap, scratch.key_s, choice.priority, size)
            number = scratch.heap[size]
            members = graph.member[graph.first_member[number] : graph.first_member[number + 1]]
            for seat in members:
                scratch.mark[seat] = number
            node = Node(
                members,
                graph.how[number],
                graph.bytes_sent[number],
                graph.latency_s[number],
                result.start_s[number],
                choice.way[number],
            )
            best = _choose_way(graph, node, choice, scratch)
            result.taken[number] = best.taken
            if best.taken < 0:
                return np.inf, n_changes

            # Its circuits are free later than it was queued for: another node may start sooner,
            # and this one waits in the queue until then.
            seen_s = best.start_s - choice.haste_s[number]
            if seen_s > scratch.key_s[number] and not choice.in_order:
                scratch.key_s[number] = seen_s
                size = _push(scratch.heap, scratch.key_s, choice.priority, size, number)
                continue

            # The node starts; its tail tells whether the step can still end soon enough.
            n_changes, n_more = _start_communication(
                graph, node, choice.layout, best, scratch.ports, result, n_changes
            )
            n_forwarding += n_more
            result.start_s[number] = best.start_s
            result.end_s[number] = best.end_s
            scratch.work[0] += _NODE
            is_late = best.end_s + graph.tail_s[number] >= most_s
            if is_late or n_forwarding > most_forwarding:
                return np.inf, n_changes
        step_s = max(step_s, result.end_s[number])

        # The node has ended: nodes that have waited for it alone are queued.
        for place in range(graph.first_successor[number], graph.first_successor[number + 1]):
            later = graph.successor[place]
            result.start_s[later] = max(result.start_s[later], result.end_s[number])
            scratch.key_s[later] = result.start_s[later] - choice.haste_s[later]
            scratch.n_waiting[later] -= 1
            if scratch.n_waiting[later] == 0 and graph.how[later] == NO_RAIL:
                top -= 1
                scratch.heap[top] = later
            elif scratch.n_waiting[later] == 0:
                size = _push(scratch.heap, scratch.key_s, choice.priority, size, later)

    # The step ends with the circuits that it began with.
    last_up_s, n_changes = _restore_homes(graph, choice.layout, scratch.ports, result, n_changes)
    return max(step_s, last_up_s), n_changes


@kernel
def trace(graph, member_row, taken, next_seat, place_of, rows):
    """List the seats that forward, as rows of (row of the sender, seat, bundle).

    A collective passes all of its seats once: each forwards for the member before it on the ring.
    `place_of`, shape (seats,), is scratch. There may be room for fewer rows than there are.

    Returns
    -------
    int
        How many rows there are in all.
    """
    n_rows = 0
    n_ways = len(next_seat) + 1
    place_of[:] = -1
    for node in range(len(graph.how)):
        if graph.how[node] == NO_RAIL or taken[node] % n_ways == 0:
            continue
        first = graph.first_member[node]
        end = graph.first_member[node + 1]
        ring = taken[node] % n_ways - 1
        for place in range(first, end):
            place_of[graph.member[place]] = place
        destination = graph.member[first + 1 if graph.how[node] == MESSAGE else first]
        sender = first
        seat = next_seat[ring, graph.member[first]]
        while seat != destination:
            if place_of[seat] >= 0:
                sender = place_of[seat]
            else:
                if n_rows < len(rows):
                    rows[n_rows, 0] = member_row[sender]
                    rows[n_rows, 1] = seat
                    rows[n_rows, 2] = taken[node] // n_ways
                n_rows += 1
            seat = next_seat[ring, seat]
        for place in range(first, end):
            place_of[graph.member[place]] = -1
    return n_rows

"""List scheduling of a training step whose data are forwarded: the kernel of `prefetch`.

`decode` makes the schedule of one choice (`RailChoice`), which `optmatch.solvers.rails.choices`
searches for:

1. The initial rings are up, and all nodes that wait for nothing are queued.
2. The node that could start first is taken from the queue. Its routes over rings, straight and
   over chords are timed with the circuits as they are now, and it takes the one that ends soonest.
3. If its circuits are free only later, it is queued again by that time. Else it starts: missing
   circuits are set up, and all circuits of its route are held until it ends. Nodes that have
   waited for it alone are queued by its end.
4. When no node is left, the initial rings are set up again: the next step begins with them.

`trace` lists afterwards the seats that forward.

The GPUs of the folded step are *seats*; a *node* is a computation of one or a communication of
several of them, its members. A circuit leads from seat to seat, and has the number of the seat
where it ends, plus the number of seats if it *crosses* to the next replica. A *bundle* is some
ports of every GPU that hold equal circuits; a *ring* is a permutation of the seats. A *chord* is a
bundle whose circuits lead one *stride* of places further on in each group. A *block* is what one
member of an all-to-all sends to one other.

Words of this module:

Hop
    One circuit that data pass: without seats that forward, a member is one hop from the next.
Initial ring
    The ring of the same number as a bundle.
Route
    How the data of a node go: over one ring of one bundle, *straight* (over circuits from each
    member to the next one, with nobody between), or over chords. A circuit of the route that is
    not up is set up first, and takes the place of those that its two ports held.
Stage
    One part of an all-to-all that goes straight: in each stage all circuits have one stride.
Menu
    The table of the schemes to do an all-to-all in stages (`optmatch.solvers.rails.exchanges`).
Hold
    A node holds the circuits of its route until it ends: their ports are not free before.

An all-to-all goes over all chords at once, and a collective over those chords whose stride makes a
ring of its members.

In all kernels `graph` is the step, `node` the communication that is to be scheduled, `choice` the
choice that is timed, and ``choice.layout`` or `layout` its rings and bundles: ``rate[bundle]`` is
in bytes per second, ``stride[bundle]`` is 0 for a bundle that is no chord, and
``next_seat[ring, seat]`` is the circuit of a seat on a ring, -1 if it has none. `best` is the best
route for `node` so far, which ends at an infinite time if there is none yet. ``scratch.ports`` are
the circuits as they are now. Every search for routes adds to ``scratch.work[0]`` the circuits that
it looks at.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inlined_kernel, inner_kernel, kernel
from optmatch.solvers.rails.exchanges import Menu
from optmatch.solvers.rails.paths import Floats, Ints, pop_node, push_node

STRAIGHT = -1
CHORDS = -2
"""What stands in the place of the number of a ring, from 0 on, for a node that goes straight, or
over all chords which serve it."""
ANY_ROUTE = 0
RINGS_FIRST = 1
STRAIGHT_ALONE = 2
"""The routes that a node may take: any, straight only where no ring serves, or straight alone."""
NO_RAIL = -1
RING = 0
MESSAGE = 1
EXCHANGE = 2
"""How a node goes: beside all rails, around its members, from one to another, or from each to each
other in an all-to-all."""
_NODE = 90
_BESIDE = 15
"""The work of a node on a rail, and beside, in circuits that are looked at in the same time
(measured on the presets; it only decides when a search ends)."""


class StepNodes(NamedTuple):
    """The nodes of a step: computations, and communications of several seats as one."""

    duration_s: Floats
    """``duration_s[node]``: its time with all links up, in seconds; shape (nodes,)."""
    bytes_sent: Floats
    """``bytes_sent[node]``: the bytes that each member sends if data go over a ring of the
    members; 0 beside rails."""
    latency_s: Floats
    """``latency_s[node]`` in seconds: the latency of all its messages, over one hop each."""
    crosses: NDArray[np.bool_]
    """``crosses[node]``: whether data go around the members of all replicas, not of one. Only
    those of replica 0 are in `member` then; data go on from the last of them to the first one of
    the next replica."""
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


class StepGraph(NamedTuple):
    """A step, and what is known of it before any choice is made; it stays during a search."""

    nodes: StepNodes
    """Its nodes, and which of them wait for each other."""
    tail_s: Floats
    """``tail_s[node]`` in seconds: the step lasts at least so much longer when the node has
    ended."""
    menu: Menu
    """The stages in which all-to-alls may go straight."""
    change_s: float
    """Seconds that a circuit takes to be set up; infinite where none may be."""


class RailLayout(NamedTuple):
    """Rings and ports: bundle b holds ring b when the step begins and ends."""

    order: Ints
    """``order[ring]``: all seats, as they stand on it; shape (rings, seats)."""
    cycle: Ints
    """``cycle[ring, seat]``: the number of the cycle; a ring may be of several."""
    next_seat: Ints
    """``next_seat[ring, seat]``: the circuit of a seat on a ring, -1 if it is not on it."""
    width: Ints
    """``width[bundle]``: how many ports of each GPU it has; they sum to the ports of a GPU."""
    ports: Ints
    """``ports[bundle]``: these ports as bits. Bundles take the ports in turn: with widths 3 and 1
    they are 0b0111 and 0b1000."""
    stride: Ints
    """``stride[bundle]``: how many members further on the circuits of a chord lead; 0 if it is
    none."""
    rate: Floats
    """``rate[bundle]``: bytes per second of all its ports."""
    load: Floats
    """``load[n]``: the blocks that the busiest chord carries in an all-to-all of n members, one of
    several hops once for each; infinite where the strides do not lead everywhere."""


class RailChoice(NamedTuple):
    """The choices of a plan that the schedule follows."""

    layout: RailLayout
    """The circuits that there may be."""
    routes: Ints
    """``routes[node]``: `ANY_ROUTE`, `RINGS_FIRST` or `STRAIGHT_ALONE`."""
    priority: Floats
    """``priority[node]``: of nodes that could start at one time, the least goes first."""
    haste_s: Floats
    """``haste_s[node]``: how much sooner a node is seen as able to start than it is."""
    price_s: float
    """Seconds: a route with new circuits has to end so much sooner than one without."""


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
    n_changes: Ints
    """``n_changes[0]``: how many circuits this schedule has set up."""
    n_forwarding: Ints
    """``n_forwarding[0]``: how many seats forward, over all nodes of this schedule."""
    work: Ints
    """``work[0]``: circuits that all schedules have looked at so far, with nodes counted as
    `_NODE` and `_BESIDE` circuits."""


class Result(NamedTuple):
    """The schedule."""

    start_s: Floats
    """``start_s[node]`` in seconds from the start of the step."""
    end_s: Floats
    """``end_s[node]`` in seconds from the start of the step."""
    ring: Ints
    """``ring[node]``: the ring that its data go over, `STRAIGHT` or `CHORDS`; not written for
    nodes that ride no rail."""
    ports: Ints
    """``ports[node]``: the ports of each GPU that it uses, as bits; not written for nodes that
    ride no rail."""
    change_start_s: Floats
    """``change_start_s[change]``: when ports begin to set up a circuit, in seconds. There is room
    for as many as the caller wants to see; further ones are only counted."""
    change: Ints
    """``change[change]``: bundle, sender and circuit of each new circuit; shape (changes, 3)."""


class Node(NamedTuple):
    """A communication that is about to start."""

    members: Ints
    """The seats, in the order of the group; of a message the sender and the receiver."""
    crosses: bool
    """Whether data go around the members of all replicas; `members` are those of replica 0."""
    how: int
    """`RING` for a collective around its members, `MESSAGE`, or `EXCHANGE` for an all-to-all."""
    bytes_sent: float
    """The bytes that each member sends if data go over a ring of the members."""
    latency_s: float
    """The latency of all its messages, over one hop each, in seconds."""
    ready_s: float
    """When all that it waits for has ended, in seconds from the start of the step."""
    routes: int
    """The routes that it may take, as in a `RailChoice`."""


class Route(NamedTuple):
    """A way for the data of a node, and when they go."""

    bundle: int
    """The bundle whose ports they go over; of no meaning for chords, which are bundles of their
    own."""
    ring: int
    """The ring that they go over, `STRAIGHT` or `CHORDS`."""
    start_s: float
    """When the node is ready and all circuits are free and up, in seconds."""
    end_s: float
    """When the last data have arrived, in seconds; infinite if the route cannot serve."""
    n_missing: int
    """Circuits that have to be set up; an all-to-all in stages has 1 at least, as circuits change
    on its way."""
    menu_row: int
    """The row of the menu for an all-to-all that goes straight; else 0."""


class RouteTimes(NamedTuple):
    """When the circuits of a route are free and up."""

    free_s: float
    """When the last circuit is free and up, in seconds from the start of the step; infinite if
    the route cannot serve, or not soon enough."""
    max_hops: int
    """Most hops from one member to the next."""
    n_missing: int
    """Circuits that have to be set up, of those that were looked at."""


# Routes of a node


@inlined_kernel
def _end_of(circuit, ports: BundlePorts):
    """Return the seat where a circuit ends, of the next replica if it crosses."""
    n_seats = ports.receiver.shape[1]
    if circuit >= n_seats:
        return circuit - n_seats
    return circuit


@inlined_kernel
def _when_free(ports: BundlePorts, bundle, sender, circuit):
    """Return when both ports of a circuit from the seat `sender` are free, in seconds."""
    receiver = _end_of(circuit, ports)
    return max(ports.send_free_s[bundle, sender], ports.receive_free_s[bundle, receiver])


@inlined_kernel
def _when_up(graph: StepGraph, ports: BundlePorts, bundle, sender, circuit):
    """Return when a circuit is free and up, in seconds from the start of the step.

    One that is missing is up ``graph.change_s``, the delay, after its two ports are free.
    """
    up_s = _when_free(ports, bundle, sender, circuit)
    if ports.receiver[bundle, sender] != circuit:
        up_s += graph.change_s
    return up_s


@inlined_kernel
def _count_senders(node: Node):
    """Count the members that send data of their own: one of a message, all of a collective."""
    if node.how == MESSAGE:
        return 1
    return len(node.members)


@inlined_kernel
def _find_destination(node: Node):
    """Return the seat at which a walk along a ring from the first member ends.

    It is the receiver of a message, and the first member again for a collective, whose data go
    once round.
    """
    if node.how == MESSAGE:
        return node.members[1]
    return node.members[0]


@inlined_kernel
def _time_ring(
    graph: StepGraph, node: Node, layout: RailLayout, bundle, ring, scratch: Scratch, give_up_s
) -> RouteTimes:
    """Find when all circuits that a communication needs on one ring are free and up.

    Around 0 -> 1 -> 2 -> 3 -> 4 -> 0, a collective of seats 0, 2 and 3 takes all five circuits; 1
    and 4 forward, and the most hops between members are two. `bundle` is the number of a set of
    ports, one of each seat, and `ring` that of the circuits which they are to hold. A route that
    cannot serve, or is not free before `give_up_s` (seconds from the start of the step), is free
    at an infinite time, and the walk along the ring ends where this is known.
    """
    ports = scratch.ports
    mark = scratch.mark
    n_seats = ports.receiver.shape[1]
    members = node.members
    is_message = node.how == MESSAGE
    source = members[0]

    # The ring can serve only if all members are on one of its cycles, ``cycle[ring, seat]``.
    cycle = layout.cycle[ring, source]
    for index in range(1, len(members)):
        if layout.cycle[ring, members[index]] != cycle:
            scratch.work[0] += index
            return RouteTimes(free_s=np.inf, max_hops=0, n_missing=0)

    # Walk along the ring to the receiver of a message, or once round to the first member. The
    # circuit of a seat is the next seat, plus `n_seats` if that is one of the next replica. A
    # cycle that joins all replicas has one circuit that leads to the next one, a cycle that stays
    # in one replica has none. A node of all replicas needs this circuit: `has_to_cross` is whether
    # it is still to come.
    destination = _find_destination(node)
    has_to_cross = node.crosses
    free_s = 0.0
    hops = 0
    max_hops = 0
    n_missing = 0
    seat = source
    while True:
        circuit = layout.next_seat[ring, seat]
        if circuit >= n_seats:
            # Data of one replica may not leave it.
            if not has_to_cross:
                return RouteTimes(free_s=np.inf, max_hops=0, n_missing=0)
            has_to_cross = False
        if ports.receiver[bundle, seat] != circuit:
            n_missing += 1

        # The route is free when its last circuit is. If that is too late, it is given up: circuits
        # further on cannot make it sooner.
        free_s = max(free_s, _when_up(graph, ports, bundle, seat, circuit))
        hops += 1
        scratch.work[0] += 1
        if free_s >= give_up_s:
            return RouteTimes(free_s=np.inf, max_hops=0, n_missing=0)

        # For a collective `hops` is the hops since the last member, and begins anew at each
        # member: the pair that is farthest apart decides the latency. For a message it is all hops
        # so far. Members alone have the same ``mark[seat]`` as the first one, the number of the
        # node.
        seat = _end_of(circuit, ports)
        if mark[seat] == mark[source] and not is_message:
            max_hops = max(max_hops, hops)
            hops = 0
        if seat == destination:
            # A cycle that stays in one replica cannot serve a collective of all replicas.
            if has_to_cross:
                return RouteTimes(free_s=np.inf, max_hops=0, n_missing=0)
            return RouteTimes(free_s=free_s, max_hops=max(hops, max_hops), n_missing=n_missing)


@inlined_kernel
def _join_straight(node: Node, index, stride, ports: BundlePorts):
    """Return the circuit from member number `index` to the one `stride` places further on.

    A node that goes around all replicas has stride 1, and its last member leads to the first one
    of the next replica: with 16 seats, of which 3, 5 and 9 are the members, the circuits are 5, 9
    and, as it crosses, 3 + 16 = 19.
    """
    n_members = len(node.members)
    receiver = node.members[(index + stride) % n_members]
    if node.crosses and index == n_members - 1:
        return receiver + ports.receiver.shape[1]
    return receiver


@inlined_kernel
def _time_straight(graph: StepGraph, node: Node, stride, scratch: Scratch, bundle) -> RouteTimes:
    """Find when circuits to the members `stride` places further on are free and up on a bundle.

    With stride 2, member 0 sends to member 2, member 1 to member 3, and so on around the group. A
    message needs the circuit from sender to receiver alone; its stride is 1. There is always one
    hop. Circuits that are not up on `bundle` now count as missing, and stay so: nothing is changed
    but ``scratch.work[0]``.
    """
    ports = scratch.ports
    free_s = 0.0
    n_missing = 0
    for index in range(_count_senders(node)):
        sender = node.members[index]
        circuit = _join_straight(node, index, stride, ports)
        if ports.receiver[bundle, sender] != circuit:
            n_missing += 1
        free_s = max(free_s, _when_up(graph, ports, bundle, sender, circuit))
    scratch.work[0] += len(node.members)
    return RouteTimes(free_s=free_s, max_hops=1, n_missing=n_missing)


@inlined_kernel
def _count_bytes_around(node: Node):
    """Return the bytes that pass each port if the data of a node go around its members.

    Each byte passes once, but n / 2 times in an all-to-all of n members: data for the member d
    places further on take d hops, and the mean of d from 1 to n - 1 is n / 2.
    """
    if node.how == EXCHANGE:
        return node.bytes_sent * len(node.members) / 2
    return node.bytes_sent


@inlined_kernel
def _try_rings(
    graph: StepGraph, node: Node, choice: RailChoice, bundle, scratch: Scratch, best: Route
) -> Route:
    """Try all rings for a communication over the ports of one bundle.

    Returns the best of these routes if it is better than `best`, else `best`. Circuits stay as
    they are.
    """
    layout = choice.layout
    around_s = _count_bytes_around(node) / layout.rate[bundle]
    for ring in range(len(layout.next_seat)):
        # A seat that is on no cycle of the ring, as of a chord in few groups, cannot start there:
        # its ``next_seat[ring, seat]`` is -1.
        if layout.next_seat[ring, node.members[0]] < 0:
            continue

        # A ring whose circuits are free no sooner than the best route so far has ended, the price
        # of its new circuits included, cannot be better: its walk is given up.
        give_up_s = _priced_end(best, choice)
        times = _time_ring(graph, node, layout, bundle, ring, scratch, give_up_s)

        # The node lasts as long as its bytes need over the ports of the bundle, and each message
        # for each hop between the two members farthest apart.
        start_s = max(node.ready_s, times.free_s)
        end_s = start_s + (around_s + times.max_hops * node.latency_s)
        route = Route(
            bundle=bundle,
            ring=ring,
            start_s=start_s,
            end_s=end_s,
            n_missing=times.n_missing,
            menu_row=0,
        )
        best = _take_better(best, route, choice)
    return best


@inlined_kernel
def _try_straight(
    graph: StepGraph, node: Node, choice: RailChoice, bundle, scratch: Scratch, best: Route
) -> Route:
    """Try circuits from each member to the next one on a bundle, and the stages of an all-to-all.

    For an all-to-all all schemes of the menu for its number of members are tried as well; circuits
    change between the stages of a scheme. Returns the best route of all: `best` if none of these
    is better. No circuit is set up yet.
    """
    n = len(node.members)
    menu = graph.menu
    layout = choice.layout
    rate = layout.rate[bundle]

    # One circuit from each sender to the next member; the data of a collective go around these.
    times = _time_straight(graph, node, 1, scratch, bundle)
    start_s = max(node.ready_s, times.free_s)
    end_s = start_s + _count_bytes_around(node) / rate + node.latency_s
    route = Route(
        bundle=bundle,
        ring=STRAIGHT,
        start_s=start_s,
        end_s=end_s,
        n_missing=times.n_missing,
        menu_row=0,
    )
    best = _take_better(best, route, choice)
    if node.how != EXCHANGE:
        return best

    # In an all-to-all of n members each sends n - 1 blocks, one after another; `block_s` is the
    # time of one block over one circuit. The schemes for n members are the rows from
    # ``menu.begin[n]`` up to ``menu.begin[n + 1]``. In a stage circuits lead ``menu.stride[row,
    # stage]`` places further on (0 behind the last stage), and each circuit carries
    # ``menu.hops[row, stage]`` blocks.
    #
    # Circuits change before every stage, for one delay each. The change to the first stage is
    # before the start: its delay is taken off before the stages are added up. Two stages of 5 s
    # and 4 s with a delay of 2 s end -2 + (5 + 2) + (4 + 2) = 11 s after the start.
    block_s = (node.bytes_sent / rate + node.latency_s) / (n - 1)
    for row in range(menu.begin[n], menu.begin[n + 1]):
        strides = menu.stride[row]
        times = _time_straight(graph, node, strides[0], scratch, bundle)
        start_s = max(node.ready_s, times.free_s)
        end_s = start_s - graph.change_s
        for stage in range(len(strides)):
            if strides[stage]:  # else the row has no further stages
                end_s += menu.hops[row, stage] * block_s + graph.change_s

        # Circuits change between stages: the route has the price of new ones in any case.
        route = Route(
            bundle=bundle,
            ring=STRAIGHT,
            start_s=start_s,
            end_s=end_s,
            n_missing=max(times.n_missing, 1),
            menu_row=row,
        )
        best = _take_better(best, route, choice)
    return best


@inlined_kernel
def _serves_as_chord(stride, is_exchange, n_members):
    """Tell whether a bundle whose circuits lead `stride` members further on serves as a chord.

    An all-to-all is served by each stride that leads to another member. Other collectives need one
    ring of all members: among 8 of them stride 3 leads around one ring, while stride 2 makes two
    rings of four and serves all-to-alls only. A bundle with stride 0 is no chord.
    """
    if stride % n_members == 0:
        return False
    return is_exchange or gcd(stride, n_members) == 1


@inlined_kernel
def _try_chords(
    graph: StepGraph, node: Node, choice: RailChoice, scratch: Scratch, best: Route
) -> Route:
    """Try to send the data of a collective of more than two members over all its chords at once.

    The chords are the bundles that `_serves_as_chord` accepts. The route starts when all circuits
    of all of them are free and up. Returns this route if it is better than `best`; else `best`,
    and so if no chord serves. No circuit is set up yet.
    """
    layout = choice.layout
    n = len(node.members)
    is_exchange = node.how == EXCHANGE
    free_s = 0.0
    n_missing = 0
    n_chords = 0
    rate = 0.0

    # Over all chords that serve: when the last circuit is free and up, how many circuits are
    # missing, how many chords there are, and the sum of their rates.
    for bundle in range(len(layout.rate)):
        stride = layout.stride[bundle]
        if _serves_as_chord(stride, is_exchange, n):
            times = _time_straight(graph, node, stride % n, scratch, bundle)
            free_s = max(free_s, times.free_s)
            n_missing += times.n_missing
            n_chords += 1
            rate += layout.rate[bundle]
    if n_chords == 0:
        return best

    # A collective that goes around a ring shares its bytes among the chords, at the sum of their
    # rates.
    lasts_s = node.bytes_sent / rate + node.latency_s

    # In an all-to-all each member sends n - 1 equal blocks. A chord sends one in ``send_s / (n -
    # 1)``, and a message has the latency ``latency_s / (n - 1)``. The busiest chord carries
    # ``load[n]`` blocks, each counted once for each of its hops (infinite if the strides do not
    # lead to all members), so it sends for ``load[n] * send_s / (n - 1)``. A member starts its
    # messages one after another, over whichever chord: those of c chords, c times ``load[n]`` at
    # most, add their latencies up. With n = 4 and strides 1 and 3, the block for the member 2
    # places further on goes half as 1 + 1 and half as 3 + 3, so that each chord carries 2 blocks.
    # Of 30 MB a block has 10 MB: 2 of them over a chord of 50 GB/s take 0.4 ms, and 2 * 2 messages
    # of 1 us add 4 us.
    if is_exchange:
        send_s = node.bytes_sent / (rate / n_chords)  # over one chord: all have the same rate
        lasts_s = layout.load[n] * (send_s + n_chords * node.latency_s) / (n - 1)

    start_s = max(node.ready_s, free_s)
    route = Route(
        bundle=0,
        ring=CHORDS,
        start_s=start_s,
        end_s=start_s + lasts_s,
        n_missing=n_missing,
        menu_row=0,
    )
    return _take_better(best, route, choice)


@inlined_kernel
def _priced_end(route: Route, choice: RailChoice):
    """Return the end of a route by which it is compared with others, in seconds; less is better.

    One that lacks circuits counts as ending ``choice.price_s`` later: with a price of 2 s, a route
    that ends at 9 s counts as one that ends at 11 s.
    """
    if route.n_missing:
        return route.end_s + choice.price_s
    return route.end_s


@inlined_kernel
def _take_better(best: Route, route: Route, choice: RailChoice) -> Route:
    """Return the better one of two routes by their scores; `best` if they are equal."""
    if _priced_end(route, choice) < _priced_end(best, choice):
        return route
    return best


@inlined_kernel
def _choose_route(graph: StepGraph, node: Node, choice: RailChoice, scratch: Scratch) -> Route:
    """Choose the route by which a node ends soonest, of those that the choice allows.

    ``scratch.mark[seat]`` is one number for all members and another one for other seats. No port
    is held yet. The route ends at an infinite time if none serves.
    """
    # At first there is none: any route ends sooner than at an infinite time.
    best = Route(bundle=0, ring=STRAIGHT, start_s=0.0, end_s=np.inf, n_missing=0, menu_row=0)
    scratch.work[0] += 1
    if node.routes != STRAIGHT_ALONE:
        for bundle in range(len(choice.layout.rate)):
            best = _try_rings(graph, node, choice, bundle, scratch, best)
    if node.routes != RINGS_FIRST or best.end_s == np.inf:
        for bundle in range(len(choice.layout.rate)):
            best = _try_straight(graph, node, choice, bundle, scratch, best)

    # Chords serve collectives of more than two members within one replica.
    is_collective = node.how != MESSAGE and not node.crosses
    if node.routes == ANY_ROUTE and is_collective and len(node.members) > 2:
        return _try_chords(graph, node, choice, scratch, best)
    return best


# Circuits of the route that is taken


@inlined_kernel
def _hold_circuit(scratch: Scratch, bundle, sender, circuit, end_s, result: Result):
    """Hold a circuit from the seat `sender` on a bundle until `end_s`: its two ports are busy.

    If it is not up, it is set up as soon as its two ports are free, in place of the circuits that
    these held: if 0 -> 1 and 2 -> 3 are up and 0 -> 3 is set up, the receiving port of 1 and the
    sending port of 2 are dark. Changes ``scratch.ports``; for a new circuit also adds 1 to
    ``scratch.n_changes[0]`` and writes a row of ``result.change`` and ``result.change_start_s``,
    where they have room. Changes are numbered in the order in which nodes are scheduled, not by
    time.
    """
    # ``ports.receiver[bundle, seat]`` is the circuit of the sending port, which may cross, and
    # ``ports.sender[bundle, seat]`` the seat from which the receiving port is lit; -1 if dark.
    ports = scratch.ports
    receiver = _end_of(circuit, ports)
    former_circuit = ports.receiver[bundle, sender]
    former_sender = ports.sender[bundle, receiver]
    if former_circuit != circuit:
        # The change is noted where there is room for it.
        change = scratch.n_changes[0]
        if change < len(result.change_start_s):
            result.change_start_s[change] = _when_free(ports, bundle, sender, circuit)
            result.change[change, 0] = bundle
            result.change[change, 1] = sender
            result.change[change, 2] = circuit
        scratch.n_changes[0] += 1

        # Both ports are taken from their former circuits, whose other ports are dark then.
        if former_circuit >= 0:
            ports.sender[bundle, _end_of(former_circuit, ports)] = -1
        if former_sender >= 0:
            ports.receiver[bundle, former_sender] = -1
        ports.receiver[bundle, sender] = circuit
        ports.sender[bundle, receiver] = sender
    ports.send_free_s[bundle, sender] = end_s
    ports.receive_free_s[bundle, receiver] = end_s


@inlined_kernel
def _hold_ring(node: Node, layout: RailLayout, route: Route, scratch: Scratch, result: Result):
    """Hold the circuits of a route over a ring until it ends; those that are missing are set up.

    Each circuit changes as soon as its own two ports are free, even if others of the ring are free
    later. Changes ``scratch.ports``, and notes a new circuit in ``scratch.n_changes`` and
    `result`. Adds the number of seats that forward to ``scratch.n_forwarding[0]``: two for a
    collective of 0 and 2 around 0 -> 1 -> 2 -> 3 -> 0, as four circuits lead to four seats, of
    which two are members.
    """
    n_hops = 0
    destination = _find_destination(node)
    seat = node.members[0]
    while True:
        circuit = layout.next_seat[route.ring, seat]
        _hold_circuit(scratch, route.bundle, seat, circuit, route.end_s, result)
        n_hops += 1
        seat = _end_of(circuit, scratch.ports)
        if seat == destination:
            break

    # Each hop reaches a seat, which forwards unless data are sent to it: to the receiver of a
    # message, or to each member of a collective, which are as many as senders.
    scratch.n_forwarding[0] += n_hops - _count_senders(node)


@inlined_kernel
def _hold_stride(node: Node, bundle, stride, end_s, scratch: Scratch, result: Result):
    """Hold the circuits to the members `stride` places further on of a bundle, until `end_s`.

    There is one circuit from each member; a message has one from its sender alone. Missing ones
    are set up. Writes ``scratch.ports``, and new circuits to `result` and ``scratch.n_changes``.
    """
    for index in range(_count_senders(node)):
        circuit = _join_straight(node, index, stride, scratch.ports)
        _hold_circuit(scratch, bundle, node.members[index], circuit, end_s, result)


@inlined_kernel
def _hold_straight(
    graph: StepGraph,
    node: Node,
    layout: RailLayout,
    route: Route,
    scratch: Scratch,
    result: Result,
):
    """Hold the circuits of a straight route until it ends; those that are missing are set up.

    An all-to-all has stages, which are row ``route.menu_row`` of the menu. The circuits of each
    stage are held until the stage ends, and then change to those of the next one. With a delay of
    2 s and stages of 5 s and 4 s, an all-to-all that starts at 10 s sends until 15 s, changes
    until 17 s and ends at 21 s. All other nodes have row 0, which is one stage of stride 1. All
    of this is written to ``scratch.ports``, and each change to ``scratch.n_changes`` and `result`.
    """
    bundle = route.bundle
    strides = graph.menu.stride[route.menu_row]
    hops = graph.menu.hops[route.menu_row]

    # The time of one block over one circuit: each of n members of an all-to-all sends n - 1
    # blocks. In a stage each circuit carries ``hops[stage]`` of them.
    n_others = max(len(node.members) - 1, 1)
    block_s = (node.bytes_sent / layout.rate[bundle] + node.latency_s) / n_others
    stage_end_s = route.start_s

    # The row of the menu ends with strides of 0.
    n_stages = 1
    while n_stages < len(strides) and strides[n_stages] > 0:
        n_stages += 1
    for stage in range(n_stages - 1):
        stage_end_s += hops[stage] * block_s
        _hold_stride(node, bundle, strides[stage], stage_end_s, scratch, result)
        stage_end_s += graph.change_s
    _hold_stride(node, bundle, strides[n_stages - 1], route.end_s, scratch, result)


@inlined_kernel
def _hold_chords(node: Node, layout: RailLayout, end_s, scratch: Scratch, result: Result):
    """Hold the circuits of all chords that serve a collective until `end_s`.

    Those that are missing are set up, which is noted in ``scratch.ports``, ``scratch.n_changes``
    and `result`. Returns the ports of these chords at each GPU, as bits: bit p for port p.
    """
    used_ports = 0
    for bundle in range(len(layout.rate)):
        stride = layout.stride[bundle]
        if _serves_as_chord(stride, node.how == EXCHANGE, len(node.members)):
            _hold_stride(node, bundle, stride, end_s, scratch, result)
            used_ports += layout.ports[bundle]
    return used_ports


# The schedule


@inner_kernel
def _set_initial_circuits(layout: RailLayout, ports: BundlePorts):
    """Set all `ports` to the initial rings of their bundles, free from 0 s on.

    Ring b is the initial one of bundle b.

    Example: the ring 0 -> 2 -> 0 of three seats gives the receivers 2, -1 and 0, and the senders
    2, -1 and 0.
    """
    n_seats = ports.receiver.shape[1]
    for bundle in range(len(layout.rate)):
        for seat in range(n_seats):
            ports.receiver[bundle, seat] = layout.next_seat[bundle, seat]
            ports.sender[bundle, seat] = -1
            ports.send_free_s[bundle, seat] = 0.0
            ports.receive_free_s[bundle, seat] = 0.0

        # These circuits are a permutation of some seats: its inverse says from whom each is lit.
        for seat in range(n_seats):
            circuit = ports.receiver[bundle, seat]
            if circuit >= 0:
                ports.sender[bundle, _end_of(circuit, ports)] = seat


@inner_kernel
def _restore_initial_circuits(
    graph: StepGraph, layout: RailLayout, scratch: Scratch, result: Result
):
    """Set up the initial rings again, each circuit as soon as its ports are free.

    Returns when the last one of them is up, in seconds; 0 if none was missing. Each change is
    written to ``scratch.ports``, ``scratch.n_changes`` and `result`.
    """
    # Ring b is the initial one of bundle b. A new circuit is held until it is up.
    ports = scratch.ports
    last_up_s = 0.0
    for bundle in range(len(layout.rate)):
        for seat in range(ports.receiver.shape[1]):
            circuit = layout.next_seat[bundle, seat]
            if circuit >= 0 and ports.receiver[bundle, seat] != circuit:
                up_s = _when_up(graph, ports, bundle, seat, circuit)
                last_up_s = max(last_up_s, up_s)
                _hold_circuit(scratch, bundle, seat, circuit, up_s, result)
    return last_up_s


@inlined_kernel
def _start_communication(
    graph: StepGraph,
    node: Node,
    layout: RailLayout,
    route: Route,
    scratch: Scratch,
    result: Result,
):
    """Hold the circuits of the route that was chosen until it ends; missing ones are set up.

    Writes the circuits to ``scratch.ports``, changes to ``scratch.n_changes`` and `result`, and
    adds the seats that forward to ``scratch.n_forwarding``. Returns the ports of each GPU that
    the route uses, as bits: bit p for port p.
    """
    if route.ring == CHORDS:
        return _hold_chords(node, layout, route.end_s, scratch, result)
    if route.ring == STRAIGHT:
        _hold_straight(graph, node, layout, route, scratch, result)
    else:
        _hold_ring(node, layout, route, scratch, result)
    return layout.ports[route.bundle]


@inlined_kernel
def _queue_node(graph: StepGraph, choice: RailChoice, scratch: Scratch, node, size, top):
    """Queue a node that waits for nothing more; return the new ends of both queues, (size, top).

    A communication goes into the heap ``scratch.heap[:size]``, by ``scratch.key_s[node]``: when it
    can start less its haste. A node that needs no circuits goes on the stack
    ``scratch.heap[top:]``. With 5 nodes, of which 3 and 1 are in the heap and node 4 is on the
    stack, size is 2 and top is 4. Changes ``scratch.heap``.
    """
    if graph.nodes.how[node] == NO_RAIL:
        top -= 1
        scratch.heap[top] = node
        return size, top
    return push_node(scratch.heap, scratch.key_s, choice.priority, size, node), top


@kernel
def decode(
    graph: StepGraph, choice: RailChoice, most_s, most_forwarding, scratch: Scratch, result: Result
):
    """Schedule a training step: list scheduling, in which what can start first starts first.

    A communication takes the route by which it ends soonest, sets up the circuits that it lacks
    and holds them until its end. Communications wait in a queue, the one that is ready first in
    front. If the circuits of the first one are busy, it goes back into the queue by the time at
    which they are free, and others may overtake it. For n nodes the queue costs O(n log n), and
    each circuit on the routes that are tried is looked at once.

    A schedule is given up if its step takes `most_s` seconds or longer, if more seats than
    `most_forwarding` forward (counted over all nodes), or if no route serves a node: its step is
    infinite then, and only a part of `result` is written. The first contents of `scratch` do not
    matter, but ``scratch.work[0]`` is added to.

    Returns when the last node has ended and the last circuit is up, in seconds. Then `result` is
    the schedule, ``scratch.n_changes[0]`` the number of changes, those at the end of the step
    included, and ``scratch.n_forwarding[0]`` that of seats that forward.
    """
    nodes = graph.nodes
    heap = scratch.heap
    key_s = scratch.key_s
    n_nodes = len(heap)
    start_s = result.start_s
    end_s = result.end_s
    scratch.n_changes[0] = 0
    scratch.n_forwarding[0] = 0
    step_s = 0.0

    # At 0 s the circuits with which a step begins are up, and all nodes that wait for nothing are
    # queued. Until a node starts, ``start_s[node]`` is when it is ready: when the last of the
    # nodes before it has ended. Communications are the heap ``heap[:size]``, nodes beside rails
    # the stack ``heap[top:]``.
    _set_initial_circuits(choice.layout, scratch.ports)
    size = 0
    top = n_nodes
    for number in range(n_nodes):
        start_s[number] = 0.0
        key_s[number] = -choice.haste_s[number]
        scratch.n_waiting[number] = nodes.n_predecessors[number]
        if scratch.n_waiting[number] == 0:
            size, top = _queue_node(graph, choice, scratch, number, size, top)
    while size or top < n_nodes:
        # Nodes beside rails need no ports: they start when they are ready, in whichever order.
        if top < n_nodes:
            number = heap[top]
            top += 1
            end_s[number] = start_s[number] + nodes.duration_s[number]
            scratch.work[0] += _BESIDE
        else:
            # The first communication of the queue is tried with the circuits as they are now. Its
            # members are marked by its number.
            size = pop_node(heap, key_s, choice.priority, size)
            number = heap[size]  # `pop_node` leaves it right behind the heap
            members = nodes.member[nodes.first_member[number] : nodes.first_member[number + 1]]
            for seat in members:
                scratch.mark[seat] = number
            node = Node(
                members=members,
                crosses=nodes.crosses[number],
                how=nodes.how[number],
                bytes_sent=nodes.bytes_sent[number],
                latency_s=nodes.latency_s[number],
                ready_s=start_s[number],
                routes=choice.routes[number],
            )
            best = _choose_route(graph, node, choice, scratch)

            # No route serves the node: there is no schedule of this choice.
            if best.end_s == np.inf:
                return np.inf

            # If its circuits are free later than it was queued for, another node may start sooner:
            # this one goes back into the queue with the later time.
            seen_s = best.start_s - choice.haste_s[number]
            if seen_s > key_s[number]:
                key_s[number] = seen_s
                size = push_node(heap, key_s, choice.priority, size, number)
                continue

            # The node starts. The tail is the least time from its end to the end of the step: if
            # that ends too late, the schedule is given up.
            used_ports = _start_communication(graph, node, choice.layout, best, scratch, result)
            result.ring[number] = best.ring
            result.ports[number] = used_ports
            start_s[number] = best.start_s
            end_s[number] = best.end_s
            scratch.work[0] += _NODE
            is_late = best.end_s + graph.tail_s[number] >= most_s
            if is_late or scratch.n_forwarding[0] > most_forwarding:
                return np.inf
        step_s = max(step_s, end_s[number])

        # The end of the node is known: each of its successors waits for one node less, and is
        # queued when it waits for none, by when it is ready less its haste.
        for place in range(nodes.first_successor[number], nodes.first_successor[number + 1]):
            later = nodes.successor[place]
            start_s[later] = max(start_s[later], end_s[number])
            key_s[later] = start_s[later] - choice.haste_s[later]
            scratch.n_waiting[later] -= 1
            if scratch.n_waiting[later] == 0:
                size, top = _queue_node(graph, choice, scratch, later, size, top)

    # The step ends with the circuits that it began with.
    last_up_s = _restore_initial_circuits(graph, choice.layout, scratch, result)
    return max(step_s, last_up_s)


@kernel
def trace(nodes: StepNodes, member_row, result: Result, next_seat, mark, rows):
    """Write the seats that forward into `rows`, whose shape is (seats that forward, 4).

    The columns are the operation of the sender, the seat that forwards, the ports of its GPU as
    bits, and the turn: 1 if the seat is one of the next replica, else 0. If a ring leads 0 -> 1 ->
    2 -> 3 and only 0 and 3 are members, 1 and 2 forward for the operation of 0. Rows are written
    node by node; there are as many as ``Scratch.n_forwarding`` counts.

    ``result.ring`` and ``result.ports`` are read, ``next_seat[ring, seat]`` is that of
    `RailLayout`, and ``member_row[place]`` is the operation of the member ``nodes.member[place]``,
    as its row in `Folded.own`. ``mark[seat]`` is scratch, -1 at first.
    """
    n_rows = 0
    n_seats = next_seat.shape[1]
    for node in range(len(nodes.how)):
        # Where circuits lead from member to member, straight or over chords, nobody forwards.
        ring = result.ring[node]
        if nodes.how[node] == NO_RAIL or ring < 0:
            continue

        # Destinations are marked by the number of the node: the receiver of a message, or each
        # member of a collective. There are as many senders, the first members: the sender of a
        # message is its member 0, and in a collective each member sends.
        first = nodes.first_member[node]
        members = nodes.member[first : nodes.first_member[node + 1]]
        destinations = members
        if nodes.how[node] == MESSAGE:
            destinations = members[1:]
        for seat in destinations:
            mark[seat] = node

        # Each sender sends to the next destination along the ring; all seats that the data pass
        # before are rows. Circuits are named by where they lead, with replicas counted on: with 4
        # seats circuit 2 leads to seat 2, and circuit 6 to seat 2 of the next replica: its turn is
        # 6 // 4 = 1, and its seat 6 % 4 = 2.
        for place in range(len(destinations)):
            circuit = next_seat[ring, members[place]]
            turn = circuit // n_seats
            seat = circuit % n_seats
            while mark[seat] != node:
                rows[n_rows, 0] = member_row[first + place]
                rows[n_rows, 1] = seat
                rows[n_rows, 2] = result.ports[node]
                rows[n_rows, 3] = turn
                n_rows += 1

                # The data go on to the next seat, which is at most once one of another replica.
                circuit = next_seat[ring, seat]
                turn += circuit // n_seats
                seat = circuit % n_seats

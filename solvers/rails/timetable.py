"""From decisions to a plan: uses of each lane in a line, and the changes of circuits between.

`draw_lines` sorts the uses of the ports of each seat by lane, so that it is seen where a port has
to face another seat than before. The rules of `optmatch.solvers.rails.policies` time these turns
and make a `Draft` of the folded step. `Draft.build` writes it out: each operation gets the times
and ports of its node. `list_timelines` follows the circuits of each switch by time. A circuit is
set up when both of its ends have turned to each other; it takes the place of those that its two
ports held.

A *seat* is a GPU of the folded step, a *lane* the port of one number at every GPU, and a *bundle*
some lanes whose circuits are always equal. *End* 2s is where the ports of seat s transmit, and end
2s + 1 where they receive (sides 0 and 1); the *peer* of an end on a lane is the seat that it faces
there.

Words of this module:

Line
    The uses of one lane of one end, one after another. If node 7 takes lane 0 of an end, and node
    4 comes later and takes lanes 0 and 1 of it, the end has two lines: nodes 7 and 4 on lane 0,
    and node 4 on lane 1.
Turn
    An end of a seat turns on one lane: its ports give up their circuits and face other seats.
State
    All circuits of the switch of one rail at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optmatch.model import IDLE
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline, find_step_end
from optmatch.solvers.kernels.decorators import kernel
from optmatch.solvers.rails.paths import Floats, Ints, Timed
from optmatch.solvers.rails.seats import AlikeRails, Seats
from optmatch.solvers.rails.transfers import Transfers, Uses


class Lines(NamedTuple):
    """The uses of each lane of each end, which are a line of rows, one after another.

    An end is one side of the ports of a seat, where they transmit or where they receive. The step
    begins with the peers that it ends with: a line with the peers 4, 4, 7 faces 7, 4, 4 before its
    rows, and needs changes for the first and the third one.
    """

    uses: Uses
    """The rows of all lines, sorted by line and then by their order."""
    order: Ints
    """``order[row]``: ascending in the program of a seat, and equal for all rows of one node."""
    before: Ints
    """``before[row]``: the node before it on its line, -1 of the first."""
    faced: Ints
    """``faced[row]``: the peer that the port faces before this use."""
    last: Ints
    """``last[row]``: the last row of its line."""


def draw_lines(uses: Uses, order: Ints, lanes: Ints) -> Lines:
    """Sort uses into lines, and leave out uses of lanes that the node does not take.

    A row of `uses` says that a node could use a lane of an end, and ``order[row]`` where it stands
    in the order, the greater the later. Bit k of ``lanes[node]`` is set if the node takes lane k.
    All rows that remain of one lane of one end are a line.
    """
    # The rows of lanes that are taken: of a node with the bits 0b101, those of lanes 0 and 2.
    taken = np.flatnonzero(lanes[uses.node] >> uses.lane & 1)
    uses = uses.select(taken)

    # Sort them by line, and on a line by their order. A line has the number ``(rails * n_ends +
    # end) * n_lanes + lane``: with 8 ends and 2 lanes, lane 1 of end 5 on rails 0 is line 11. Not
    # all numbers occur. A row whose number differs from that of the row before is the first of its
    # line, and the row before it is the last of another line.
    n_ends = 1 + int(uses.end.max(initial=0))
    n_lanes = 1 + int(uses.lane.max(initial=0))
    line = (uses.rails * n_ends + uses.end) * n_lanes + uses.lane
    by_line = np.lexsort([order[taken], line])
    uses = uses.select(by_line)
    first = np.flatnonzero(np.diff(line[by_line], prepend=-1))
    last = np.append(first[1:], len(by_line))[: len(first)] - 1

    # Before each row, on its line, is the row above it in the table; before the first there is no
    # node (-1), and the peer is that of the last row.
    before = np.roll(uses.node, 1)
    before[first] = -1
    faced = np.roll(uses.peer, 1)
    faced[first] = uses.peer[last]
    return Lines(
        uses=uses,
        order=order[taken][by_line],
        before=before,
        faced=faced,
        last=np.repeat(last, last - first + 1),
    )


class _PortCircuits(NamedTuple):
    """Circuits between the ports of a switch, by ascending start; shape (circuits,) each."""

    start_s: Floats
    """When the circuit is set up, in seconds; minus infinite if the step begins with it."""
    transmit: Ints
    """The port of the switch at which it begins."""
    receive: Ints
    """The port of the switch at which it ends."""


class Changes(NamedTuple):
    """The circuits of all switches over time, in any order; shape (changes,) each."""

    start_s: Floats
    """When the ports begin to change, in seconds; minus infinite for a circuit with which the step
    begins."""
    asked_s: Floats
    """When the change is asked for, in seconds. All changes of a rail at one time are asked for
    when the first of them is."""
    rails: Ints
    """The rails on which it is, as a place in `Seats.rails`."""
    bundle: Ints
    """The bundle of ports."""
    sender: Ints
    """The seat from which the circuit leads."""
    receiver: Ints
    """The seat to which it leads, plus the number of seats for each replica between; -1 if ports
    give up their circuits and set up none."""


class Draft(NamedTuple):
    """A plan of a folded job: quick to make, while an unfolded one takes memory."""

    transfers: Transfers
    """The communications of the folded step."""
    timed: Timed
    """Starts and ends of the nodes of the folded job; entries of events, such as changes of
    circuits, may follow."""
    lines: Lines
    """Who uses which lane of which end, in turn. The step begins with the circuits that it ends
    with."""
    turn_s: Floats
    """``turn_s[row]`` by row of `lines`: when the lane begins to turn to its peer, in seconds from
    the start of the step; minus infinite if it faces the peer already."""
    asked_s: Floats
    """``asked_s[row]``: when this turn is asked for, in seconds; infinite if there is none."""

    @property
    def step_s(self) -> float:
        """When the last node ends and the last circuit is up, in seconds."""
        ends_s = self.timed.end_s[: len(self.transfers.first)]
        last_up_s = self.turn_s.max(initial=-np.inf) + self.transfers.seats.job.network.delay_s
        return float(ends_s.max(initial=max(last_up_s, 0.0)))

    def build(self) -> RailPlan:
        """Write the plan out for all rails; `route_plan` adds the states of cells later.

        Operations of ranks that do the same are stored once: those of the first rank of each
        class, in the order of `Folded.own`. ``like[rank]`` is that first rank. Each operation gets
        the start, the end and the ports of its node.
        """
        # ``folded.nodes[row]`` is the node of a stored operation, and ``uses.operation`` such a
        # row. A communication in several rounds is a chain of nodes, from the first one, which
        # stands for it, to ``transfers.last[node]``, with which it ends.
        transfers = self.transfers
        seats = transfers.seats
        folded = seats.folded
        end_s = self.timed.end_s[transfers.last[folded.nodes]]

        # By lane two ports of a GPU, where it transmits and where it receives: lane k of one
        # direction is port k for both. A bidirectional lane k has port 2k towards those that come
        # next in a ring or pipeline (side 0), and port 2k + 1 towards those before. The columns 0
        # and -1 are these two ports, or twice the only one.
        duplex = transfers.lanes.duplex
        lane_ports = np.arange(transfers.lanes.number * (1 + duplex)).reshape(-1, 1 + duplex)
        port_of_side = lane_ports[:, [0, -1]]
        bundles = [(lane, *sides) for lane, sides in enumerate(port_of_side.tolist())]
        timelines = list_timelines(seats, _list_changes(self), bundles, duplex=duplex)

        # The ports that an operation uses, as bits: those of the lanes of its ends.
        uses = self.lines.uses
        ports = np.zeros(len(folded.own), dtype=np.int32)
        np.bitwise_or.at(ports, uses.operation, 1 << port_of_side[uses.lane, uses.end % 2])
        return RailPlan(
            rails=timelines,
            start_s=self.timed.start_s[folded.nodes],
            end_s=end_s,
            ports=ports,
            step_s=find_step_end(timelines, end_s, seats.job.network.delay_s),
            like=folded.like,
        )


def _list_changes(draft: Draft) -> Changes:
    """List the circuits with which the step of a draft begins, and those that are set up later.

    A circuit is set up when the later one of its ends turns: if seat 0 turns to 1 at 2 s, and seat
    1 to 0 at 3 s, their circuit is set up at 3 s. Turns are listed as well, as changes without a
    receiver.
    """
    # A circuit has a row at the sending and one at the receiving end, which are matched by node,
    # lane, sender and receiver as one number. Peers count replicas, too: with 4 seats, peer 6 is
    # seat 2 of the next replica, and here its seat is enough. Some rows have no match, and no
    # circuit comes of them: a seat that waits for a later round may have turned to its peer while
    # that still faces another one.
    lines = draft.lines
    uses = lines.uses
    n_seats = draft.transfers.seats.n_seats
    sends = uses.end % 2 == 0
    seat = uses.end // 2
    peer = uses.peer % n_seats
    circuit = np.ravel_multi_index(
        (uses.node, uses.lane, np.where(sends, seat, peer), np.where(sends, peer, seat)),
        (len(draft.transfers.first), draft.transfers.lanes.number, n_seats, n_seats),
    )
    sending = np.flatnonzero(sends)
    receiving = np.flatnonzero(~sends)
    _, sending_place, receiving_place = np.intersect1d(
        circuit[sending], circuit[receiving], assume_unique=True, return_indices=True
    )
    sending_row = sending[sending_place]
    receiving_row = receiving[receiving_place]

    # A circuit is up from the beginning of the step if both of its ends use it last, as the step
    # begins with the circuits that it ends with. ``lines.last[row]`` is the last use on the line
    # of a row. At the sending end that is the row itself; at the receiving end it is a use by the
    # same node, as a node has one row on a line.
    is_first = lines.last[sending_row] == sending_row
    is_first &= uses.node[lines.last[receiving_row]] == uses.node[sending_row]
    first_row = sending_row[is_first]

    # A circuit is set up when the later end turns. If neither of its ends turns, which is minus
    # infinity for both, it is up already from a use before.
    set_up_s = np.maximum(draft.turn_s[sending_row], draft.turn_s[receiving_row])
    is_new = set_up_s >= 0
    new_row = sending_row[is_new]

    # A turn is a change of its own, without a receiver: an all-stop rail stops for it even if no
    # circuit comes of it, and has a state that begins then. The order is turns, circuits at the
    # beginning, and new circuits.
    turning_row = np.flatnonzero(draft.turn_s >= 0)
    rows = np.concatenate([turning_row, first_row, new_row])
    receiver = np.concatenate(
        [np.full(len(turning_row), IDLE), uses.peer[first_row], uses.peer[new_row]]
    )
    return Changes(
        start_s=np.concatenate(
            [draft.turn_s[turning_row], np.full(len(first_row), -np.inf), set_up_s[is_new]]
        ),
        asked_s=draft.asked_s[rows],
        rails=uses.rails[rows],
        bundle=uses.lane[rows],
        sender=uses.end[rows] // 2,
        receiver=receiver,
    )


def list_timelines(
    seats: Seats,
    changes: Changes,
    bundles: Sequence[tuple[int, int, int]],
    *,
    duplex: bool = False,
) -> tuple[RailTimeline, ...]:
    """List which circuits each switch holds when; one timeline for all rails that are alike.

    A timeline has the states of the switch one after another: ``matchings[state, port]`` is the
    port to which a port leads, and ``starts_s`` and ``asked_s`` are when the state begins and when
    it was asked for, in seconds, both 0 of the first state.

    Each of `bundles` is (number of a bundle, port of a GPU where a circuit of it begins, port
    where it ends). If bundle 0 has the ports 0 and 1, and bundle 1 the port 2, they are (0, 0, 0),
    (0, 1, 1) and (1, 2, 2). The two ports differ with `duplex` alone: a bundle is two
    bidirectional ports then, as (0, 0, 1), and (1, 2, 3).
    """
    timelines = []
    for rail_set, alike in enumerate(seats.rails):
        # ``times_s[k]``: when circuits change, ascending; the first time is the beginning of the
        # step, minus infinite. ``asked_s[k]``: the earliest request of the changes at that time.
        changes_here = np.flatnonzero(changes.rails == rail_set)
        start_s = changes.start_s[changes_here]
        times_s = np.unique(np.append(-np.inf, start_s))
        asked_s = np.full(len(times_s), np.inf)
        np.minimum.at(asked_s, np.searchsorted(times_s, start_s), changes.asked_s[changes_here])

        # A switch has a port for each port of a GPU; a fabric may have more, some of them dead.
        # ``alike.seat`` has an entry for each GPU. A change without a receiver makes no circuit.
        n_ports = len(alike.seat) * seats.job.network.ports_per_gpu
        if seats.job.fabric is not None:
            n_ports = seats.job.fabric.n_ports
        new_circuits = changes_here[changes.receiver[changes_here] != IDLE]
        circuits = _join_ports(seats, alike, changes, new_circuits, bundles, duplex=duplex)

        # Circuits ascend by start, so that those of one time stand together: ``first_circuit[k]``
        # is the first one of time k. With starts 0, 0, 5 and times 0, 5 they are 0, 2 and, behind
        # the last time, 3.
        first_circuit = np.searchsorted(circuits.start_s, np.append(times_s, np.inf))

        # ``states[k]`` is the state from ``times_s[kept[k]]`` on; the first one is that of the
        # beginning, 0 s in the plan. A time at which no circuit of the rail changes has no state
        # of its own, but on an all-stop switch, which stops then.
        keeps_all = seats.job.network.switching == "all-stop"
        states = np.empty((len(times_s), n_ports), np.int32)
        kept = np.empty(len(times_s), np.int64)
        sender = np.full(n_ports, IDLE)
        n_states = _write_states(first_circuit, circuits, sender, keeps_all, states, kept)
        kept = kept[:n_states]
        timelines.append(
            RailTimeline(
                rails=alike.rails,
                matchings=states[:n_states],
                asked_s=np.append(0.0, asked_s[kept[1:]]),
                starts_s=np.append(0.0, times_s[kept[1:]]),
            )
        )
    return tuple(timelines)


def _join_ports(
    seats: Seats,
    alike: AlikeRails,
    changes: Changes,
    new: Ints,
    bundles: Sequence[tuple[int, int, int]],
    *,
    duplex: bool,
) -> _PortCircuits:
    """Write the changes `new`, which set up circuits, as circuits of the ports of a switch.

    Port p of GPU g is live port ``g * ports_per_gpu + p``. Seats become GPUs of the rail,
    and each change is made in all replicas: with 2 replicas of 4 seats whose GPUs are 0 to 3 and 4
    to 7, a circuit from seat 1 to 6, which is seat 2 of the next replica, leads from GPU 1 to 6,
    and from GPU 5 to 2. Each of `bundles` is (bundle, port of a GPU where its circuits begin, port
    where they end): with (1, 2, 3) a circuit of bundle 1 from GPU 5 to GPU 2 joins port 2 of GPU 5
    to port 3 of GPU 2, and if `duplex` port 3 of GPU 2 to port 2 of GPU 5 as well.
    """
    # The ports of the switch, and the GPU of each seat in each replica.
    ports_per_gpu = seats.job.network.ports_per_gpu
    live_ports = np.arange(len(alike.seat) * ports_per_gpu)
    if seats.job.fabric is not None:
        live_ports = seats.job.fabric.live_ports
    gpu_of = np.empty((seats.n_replicas, seats.n_seats), np.int64)
    gpu_of[alike.replica, alike.seat] = np.arange(len(alike.seat))

    # ``sender[change, replica]`` and ``receiver[change, replica]`` are GPUs. A receiver number
    # from that of the seats on is a seat `turn` replicas further on; the last replica is followed
    # by the first one.
    replica = np.arange(seats.n_replicas)
    turn, seat = np.divmod(changes.receiver[new, None], seats.n_seats)
    sender = gpu_of[replica, changes.sender[new, None]]
    receiver = gpu_of[(replica + turn) % seats.n_replicas, seat]

    # A bundle may have several entries in `bundles`, one for each of its ports at a GPU: each of
    # them has the circuit. Columns are start, transmit port and receive port.
    tables = []
    for bundle, sending_port, receiving_port in bundles:
        rows = np.flatnonzero(changes.bundle[new] == bundle)
        start_s = np.repeat(changes.start_s[new[rows]], seats.n_replicas)
        transmit = live_ports[sender[rows] * ports_per_gpu + sending_port].ravel()
        receive = live_ports[receiver[rows] * ports_per_gpu + receiving_port].ravel()
        tables.append((start_s, transmit, receive))
        if duplex:
            tables.append((start_s, receive, transmit))
    columns = [np.concatenate(column) for column in zip(*tables, strict=True)]
    by_time = np.argsort(columns[0], kind="stable")
    return _PortCircuits(*(column[by_time] for column in columns))


@kernel
def _write_states(first_circuit, circuits: _PortCircuits, sender, keeps_all, states, kept):
    """Write the states of a switch and the times from which on they hold; return how many.

    ``states[state, port]`` is the port to which a port leads, -1 for none, and ``kept[state]`` the
    number of the time; there is room for a state at each time, shapes (times, ports) and (times,).
    With `keeps_all` each time has a state, else only those at which some circuit changes. The
    circuits of time k are those from ``first_circuit[k]`` up to ``first_circuit[k + 1]``.
    ``sender[port]`` is scratch: the port whose circuit a port received last, -1 at first.

    Example: 3 ports, the circuit 0 -> 1 at time 0, and 2 -> 1 at time 1. The states are 1, -1, -1
    and then -1, -1, 1.
    """
    n_states = 0
    for time in range(len(kept)):
        # The state of this time begins as the one before; the first one with no circuits.
        state = states[n_states]
        for port in range(len(state)):
            state[port] = IDLE
            if n_states > 0:
                state[port] = states[n_states - 1, port]

        # A receiver of a new circuit loses the one that it had, also one that is set up at this
        # very time, for an operation of no time.
        for circuit in range(first_circuit[time], first_circuit[time + 1]):
            receive = circuits.receive[circuit]
            former = sender[receive]
            if former != IDLE and state[former] == receive:
                state[former] = IDLE
            state[circuits.transmit[circuit]] = receive
            sender[receive] = circuits.transmit[circuit]

        # The next state overwrites this one if it is no other than the one before. The first one,
        # with none before it, is new in any case.
        is_new = keeps_all or n_states == 0
        for port in range(len(state)):
            is_new |= state[port] != states[n_states - 1, port]
        if is_new:
            kept[n_states] = time
            n_states += 1
    return n_states

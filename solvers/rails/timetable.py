"""From decisions to a plan: uses of each lane in a line, and the changes of circuits between.

`draw_lines` sorts the uses of the ports of each class by lane, so that it is seen where a port has
to face another rank than before. The rules of `optmatch.solvers.rails.policies` time these turns
and make a `Draft` of the folded step. `Draft.build` writes it out: each operation gets the times
and ports of its node, and for each pattern of equal rails the turns are followed by time. After
each of them the circuits of the switch, two ports that face each other, are a new state; circuits
that nobody has time to use are taken out. `join_ports` numbers them by the ports of the switch.

Words of this module; class, end, side, lane, peer and spot are those of
`optmatch.solvers.rails.transfers`:

Line
    The uses of one lane of one end, one after another.
Turn
    An end of a class is turned on one lane: its ports give up their circuits and face other
    ranks. Two ports that face each other have a circuit.
State
    All circuits of the switch of one rail at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline, ranks_of_rails
from optmatch.problems.rails.training.step import RECV, SEND
from optmatch.solvers.rails.collectives import Lanes
from optmatch.solvers.rails.paths import Floats, Ints, Timed
from optmatch.solvers.rails.transfers import Spot, Transfers, Uses, face, list_sides


class Turns(NamedTuple):
    """Ends of classes are turned to face others, each on one lane.

    Each field is a column of shape (turns,).
    """

    starts_s: Floats
    """When each change begins, in seconds from the start of the step."""
    asked_s: Floats
    """When each change is asked for, in seconds from the start of the step."""
    end: Ints
    """``2 * class + side``, as in `Uses`."""
    lane: Ints
    """The lane that is turned."""
    place: Ints
    """With `round_number` the spot, which tells the peer: the place of an operation in the program
    of the class."""
    round_number: Ints
    """The round of that operation, from 0."""


class Lines(NamedTuple):
    """The uses of each lane of each end, which are a line of rows, one after another."""

    uses: Uses
    """The rows of all lines, sorted by line and then by place."""
    first: Ints
    """``first[line]``: the first row of the line."""
    last: Ints
    """``last[line]``: the last row of the line."""
    place: Ints
    """``place[row]``: where the node stands in the order; the greater the later."""
    before: Ints
    """``before[row]``: the node before it on its line, -1 of the first."""

    def faced(self) -> Ints:
        """Return the rank to which the port of each row leads before that use.

        The step begins with the peers that it ends with. A row with another peer than the result
        needs a change of circuits: a line with peers 4, 4, 7 has 7, 4, 4 here, and needs changes
        for its first and third use.
        """
        # Rows of one line stand together: before each row is the row above it.
        faced = np.roll(self.uses.peer, 1)
        faced[self.first] = self.uses.peer[self.last]
        return faced

    def turns(self, rows: Ints, starts_s: Floats, asked_s: Floats) -> Turns:
        """Turn the lanes of ``rows[k]`` to the peers that are used there, from ``starts_s[k]`` on.

        Each is asked for at ``asked_s[k]``.
        """
        used = self.uses.select(rows)
        return Turns(starts_s, asked_s, used.end, used.lane, used.place, used.round_number)

    def initial(self) -> Turns:
        """Turn each lane to the peer of its last use, at 0 s, as the step before has left it."""
        at_once = np.zeros(len(self.last))
        return self.turns(self.last, at_once, at_once)

    def pairs(self) -> Ints:
        """List pairs of nodes that use a lane one after the other; shape (pairs, 2).

        A message of a class to itself stands on a line twice, which makes no pair.
        """
        rows = np.flatnonzero((self.before >= 0) & (self.before != self.uses.node))
        return np.stack([self.before[rows], self.uses.node[rows]], axis=1)


def draw_lines(uses: Uses, place: Ints, lanes: Mapping[int, int]) -> Lines:
    """Sort uses into lines, without those of lanes that their communications do not take.

    ``place[row]`` is where the node of a use stands in the order, the greater the later. Bit k of
    ``lanes[node]`` is lane k; nodes that are not in `lanes` take none. If node 7 takes lane 0 of
    an end, and node 4 comes later and takes lanes 0 and 1 of it, the lines are 7, 4 and 4.
    """
    # The rows that count: the bit of their lane is set for their communication. With bits 0b101
    # these are the rows of lanes 0 and 2.
    taken = np.zeros(1 + int(uses.node.max(initial=0)), np.int64)
    taken[list(lanes)] = list(lanes.values())
    rows = np.flatnonzero(taken[uses.node] >> uses.lane & 1)

    # Sort them by line, and on a line by place. Here a line has the number ``end * lanes + lane``,
    # with gaps. A row whose number differs from that of the row before is the first of its line.
    line = uses.end[rows] * (1 + int(uses.lane.max(initial=0))) + uses.lane[rows]
    order = np.lexsort([place[rows], line])
    first = np.flatnonzero(np.diff(line[order], prepend=-1))
    last = np.append(first[1:], len(rows))[: len(first)] - 1

    # Before each row, on its line, is the row above it in the table; before the first there is
    # none (-1).
    sorted_uses = uses.select(rows[order])
    before = np.roll(sorted_uses.node, 1)
    before[first] = -1
    return Lines(sorted_uses, first, last, place[rows[order]], before)


class Draft(NamedTuple):
    """A plan of a folded job: quick to make, while an unfolded one takes memory."""

    transfers: Transfers
    """The communications of the folded step."""
    timed: Timed
    """Starts and ends of the nodes of the folded job; entries of events, such as changes of
    circuits, may follow."""
    lanes: Mapping[int, int]
    """By communication its lanes, as bits: bit k for lane k."""
    initial: Turns
    """Peers of all ends when the step begins, as the step before has left them."""
    turns: Turns
    """All changes in the step, in any order."""

    @property
    def step_s(self) -> float:
        """When the last node ends and the last circuit is up, in seconds."""
        changed_s = float(self.turns.starts_s.max(initial=-np.inf))
        ends_s = self.timed.end_s[: len(self.transfers.first)]
        return max(float(ends_s.max(initial=0.0)), changed_s + self.transfers.job.network.delay_s)

    def build(self) -> RailPlan:
        """Write the plan out for all operations of all ranks, and for all rails.

        Each operation gets the start, the end and the ports of its node. The plan has no states of
        cells yet.
        """
        transfers = self.transfers
        folded = transfers.folded

        # A communication in several rounds is a chain of nodes: it ends with the last of them.
        end_s = folded.spread(self.timed.end_s[transfers.last[folded.nodes]])

        # The lanes of each node as bits; 0 of nodes that ride no rail.
        lanes_of_node = np.zeros(len(transfers.duration_s), dtype=np.int32)
        lanes_of_node[list(self.lanes)] = list(self.lanes.values())
        ports = _ports(transfers, lanes_of_node[folded.nodes])

        # Rails with equal patterns have equal matchings: those of the first one are worked out.
        rails_of_pattern: dict[bytes, list[int]] = {}
        ranks_on_rail = ranks_of_rails(transfers.job.step())
        for rail, ranks in ranks_on_rail.items():
            pattern = _describe_rail(transfers, rail, ranks)
            rails_of_pattern.setdefault(pattern, []).append(rail)
        timelines = tuple(
            _make_timeline(self, rails, ranks_on_rail[rails[0]])
            for rails in rails_of_pattern.values()
        )

        # The last circuits are up a delay after their change has begun.
        delay_s = transfers.job.network.delay_s
        up_s = [
            float(timeline.starts_s[-1]) + delay_s
            for timeline in timelines
            if timeline.n_reconfigurations
        ]
        return RailPlan(
            rails=timelines,
            start_s=folded.spread(self.timed.start_s[folded.nodes]),
            end_s=end_s,
            ports=folded.spread(ports),
            step_s=max(float(end_s.max(initial=0.0)), *up_s, 0.0),
        )


def _ports(transfers: Transfers, lanes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the ports of its GPU that each operation uses as bits, given its lanes as bits.

    ``lanes[row]`` and the result have an entry for each operation of the first ranks of classes.
    The ports are those at which an operation sends, or at which it receives a message. With ports
    of one direction, a message over lanes 0 and 2 has the bits 0b101 at both ends.
    """
    operations = transfers.folded.own
    kind = transfers.folded.step.kind[operations]
    uses_first = kind != RECV
    uses_second = kind == RECV

    # A bidirectional port sends and receives: a collective uses both ports of a lane, a message
    # that of its side.
    if transfers.lanes.duplex:
        sides = np.array([list_sides(transfers, op)[0] for op in operations.tolist()])
        uses_first = (kind < SEND) | (sides == 0)
        uses_second = (kind < SEND) | (sides == 1)
    ports = np.zeros(len(lanes), dtype=np.int32)
    for lane, (first_port, second_port) in enumerate(list_lane_ports(transfers.lanes)):
        uses_lane = (lanes >> lane & 1).astype(np.int32)
        ports |= np.where(uses_first, uses_lane << first_port, 0)
        ports |= np.where(uses_second, uses_lane << second_port, 0)
    return ports


def list_lane_ports(lanes: Lanes) -> list[tuple[int, int]]:
    """List by lane the port of a GPU at which it transmits, and the port at which it arrives.

    Lane k of one direction is port k. A bidirectional lane k has port 2k towards those that come
    next in a ring or pipeline (side 0), and port 2k + 1 towards those before.
    """
    numbers = range(lanes.number)
    if lanes.duplex:
        return [(2 * lane, 2 * lane + 1) for lane in numbers]
    return [(lane, lane) for lane in numbers]


def _describe_rail(transfers: Transfers, rail: int, ranks: Ints) -> bytes:
    """Hash what circuits a rail needs: rails of one hash have the same circuits at all times.

    The hash has rank by rank the class, and operation by operation the group and the partner. It
    knows ranks only by their numbers on the rail, which are their positions in `ranks`.
    """
    step = transfers.job.step()

    # Ranks are described by their number on the rail, groups by the numbers of their members. The
    # last number is that of the partner of operations without one, which is rank -1.
    number_of_rank = np.full(step.n_ranks + 1, -1)
    number_of_rank[ranks] = np.arange(len(ranks))
    operations = np.flatnonzero(step.rail == rail)
    groups, group_of = np.unique(step.group[operations], return_inverse=True)
    group_hashes = [
        hash(number_of_rank[[*step.groups[group].ranks]].tobytes()) for group in groups.tolist()
    ]
    parts = (
        transfers.folded.class_of[ranks],
        np.array(group_hashes, np.int64)[group_of.reshape(-1)],
        number_of_rank[step.peer[operations]],
    )
    return blake2b(b"".join(part.tobytes() for part in parts)).digest()


class _FacingPorts:
    """The ports of the GPUs on one rail, while their lanes are turned one after another.

    Attributes
    ----------
    facing
        ``facing[side, lane, gpu]``: the GPU that a GPU faces where it transmits (side 0) or
        receives (side 1), both as numbers on the rail; -1 if none.
    """

    def __init__(self, transfers: Transfers, ranks: Ints) -> None:
        """Let nobody face anybody; GPU k is that of ``ranks[k]``, and `ranks` are ascending."""
        self.facing = np.full((2, transfers.lanes.number, len(ranks)), IDLE)
        self._transfers = transfers
        self._ranks = ranks

        # By end, lane and spot: the GPUs of the class, and the GPU that each of them faces.
        self._peers_of: dict[tuple[int, int, Spot], tuple[Ints, Ints]] = {}

    def turn(self, turns: Turns, number: int) -> None:
        """Make the turn of row `number` of `turns`, for all GPUs of its class."""
        end = int(turns.end[number])
        lane = int(turns.lane[number])
        spot = (int(turns.place[number]), int(turns.round_number[number]))

        # Each rank of the class has the operation of the spot at the same place in its program,
        # with a partner of its own. Many turns of a step have the same spot.
        if (end, lane, spot) not in self._peers_of:
            folded = self._transfers.folded
            members = np.flatnonzero(folded.class_of[self._ranks] == end // 2)
            operations = folded.step.rank_start[self._ranks[members]] + spot[0]
            peers = face(self._transfers, operations, end % 2, lane, spot[1])
            self._peers_of[end, lane, spot] = members, np.searchsorted(self._ranks, peers)
        members, peers = self._peers_of[end, lane, spot]
        self.facing[end % 2, lane, members] = peers

    def list_circuits(self) -> Ints:
        """List by lane and GPU the GPU to which its circuit leads: one that faces it, or -1."""
        receiver, sender = self.facing

        # Index -1 (nobody) is valid but has no meaning: the first test leaves it out.
        faces_back = np.take_along_axis(sender, receiver, axis=1) == np.arange(len(self._ranks))
        return np.where((receiver != IDLE) & faces_back, receiver, IDLE)


def _make_timeline(draft: Draft, rails: Sequence[int], ranks: Ints) -> RailTimeline:
    """Follow the turns of a draft on some rails that are alike: list the states of their switches.

    GPU k of the first of these rails is that of ``ranks[k]``, and `ranks` are ascending. Turns
    that begin at one time make one state, which is asked for when the first of them is. If GPU 0
    turns to 1 at 2 s, and GPU 1 to 0 at 3 s, the circuit between them is in the state of 3 s.
    """
    # The first state is as the step before has left it; it needs no change.
    transfers = draft.transfers
    ports = _FacingPorts(transfers, ranks)
    for number in range(len(draft.initial.end)):
        ports.turn(draft.initial, number)
    states = [ports.list_circuits()]
    asked_s = [0.0]
    starts_s = [0.0]

    # Only ends of classes on these rails turn here. A rail that stops as a whole does so for a
    # turn that changes no circuit, too: the times of the draft count that stop, and it is a state.
    turns = draft.turns
    stops = transfers.job.network.switching == "all-stop"
    is_here = np.isin(turns.end // 2, transfers.folded.class_of[ranks])
    by_start = np.argsort(turns.starts_s, kind="stable")
    by_start = by_start[is_here[by_start]].tolist()
    for start_s, together in groupby(by_start, key=turns.starts_s.tolist().__getitem__):
        first_asked_s = np.inf
        for number in together:
            ports.turn(turns, number)
            first_asked_s = min(first_asked_s, float(turns.asked_s[number]))

        # A turn of one side alone may change no circuit.
        state = ports.list_circuits()
        if stops or not np.array_equal(state, states[-1]):
            states.append(state)
            asked_s.append(first_asked_s)
            starts_s.append(start_s)

    # A circuit of a lane leads from the port that sends on it to the one that receives.
    lanes = transfers.lanes
    lane_ports = list_lane_ports(lanes)
    circuits = [(lane, sends, receives) for lane, (sends, receives) in enumerate(lane_ports)]
    matchings = join_ports(transfers.job, np.array(states), circuits, duplex=lanes.duplex)
    states_kept = np.arange(len(states))
    if not stops:
        states_kept = _drop_short(matchings, np.array(starts_s), transfers.job.network.delay_s)
    return RailTimeline(
        rails=tuple(rails),
        matchings=matchings[states_kept],
        asked_s=np.array(asked_s)[states_kept],
        starts_s=np.array(starts_s)[states_kept],
    )


def _drop_short(matchings: NDArray[np.int32], starts_s: Floats, delay_s: float) -> Ints:
    """Take out circuits that are given up before they are up; list the states that are left.

    Ports of several GPUs are turned one after another, and on the way two of them may face each
    other although nobody needs that circuit. A circuit that lasts less than the delay is none, nor
    is a state that then equals the one before. `matchings`, shape (states, ports), is changed in
    place; ``starts_s[state]`` is when the change to each state begins.
    """
    n_states = len(matchings)

    # For each port the states in which it gets another peer, and for each of these the state in
    # which it gets the next one (`n_states` if there is none). With peers 4, 4, 7, 4 in states 0
    # to 3 these are 0, 2, 3, and next 2, 3, 4. A peer lasts from the start of one to the other.
    gets_peer = np.ones(matchings.shape, dtype=bool)
    np.not_equal(matchings[1:], matchings[:-1], out=gets_peer[1:])
    port, state = np.nonzero(gets_peer.T)
    is_last_of_port = np.append(port[1:] != port[:-1], True)[: len(port)]
    next_state = np.where(is_last_of_port, n_states, np.append(state[1:], 0)[: len(state)])
    lasts_s = np.append(starts_s, np.inf)[next_state] - starts_s[state]

    # The first state is no change, and a circuit that ends the step lasts on.
    is_circuit = matchings[state, port] != IDLE
    is_short = is_circuit & (state > 0) & (lasts_s < delay_s * (1 - 1e-9))
    for k in np.flatnonzero(is_short).tolist():
        matchings[state[k] : next_state[k], port[k]] = IDLE
    differs = (matchings[1:] != matchings[:-1]).any(axis=1)
    return np.append(0, 1 + np.flatnonzero(differs))


def join_ports(
    job: RailJob, states: Ints, circuits: Sequence[tuple[int, int, int]], *, duplex: bool = False
) -> NDArray[np.int32]:
    """Write circuits between GPUs as matchings of the ports of a switch, shape (states, ports).

    ``states[state, bundle, gpu]`` is the GPU that a bundle of ports leads to, -1 for none. Each of
    `circuits` is a bundle, and the ports of a GPU at which a circuit of it begins and ends: with
    (1, 2, 3), a bundle 1 that leads from GPU 5 to GPU 2 joins port 2 of GPU 5 to port 3 of GPU 2,
    both ways if `duplex`. Port p of GPU g is port ``g * ports_per_gpu + p`` among those of the
    switch that work.
    """
    ports_per_gpu = job.network.ports_per_gpu
    n_ports = states.shape[2] * ports_per_gpu
    live_ports = np.arange(n_ports)
    if job.fabric is not None:
        n_ports = job.fabric.n_ports
        live_ports = job.fabric.live_ports
    matchings = np.full((len(states), n_ports), IDLE, np.int32)

    # Each bundle is done for all GPUs and states in which it leads anywhere.
    for bundle, sending_port, receiving_port in circuits:
        state, gpu = np.nonzero(states[:, bundle] != IDLE)
        sender = live_ports[gpu * ports_per_gpu + sending_port]
        receiver = live_ports[states[state, bundle, gpu] * ports_per_gpu + receiving_port]
        matchings[state, sender] = receiver
        if duplex:
            matchings[state, receiver] = sender
    return matchings

"""From decisions to a plan: uses of each lane in a line, and the changes of circuits between.

Words of this module; class, end, side, lane, peer and spot are those of
`optmatch.solvers.rails.transfers`:

Line
    The uses of one lane of one end, one after another.
Turn
    An end of a class is turned on one lane: its ports give up their circuits and face other
    ranks. Two ports that face each other have a circuit.
Standing
    The peers that ends face when a step begins: as the step before has left them.
State
    All circuits of the switch of one rail at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline, ranks_of_rails
from optmatch.problems.rails.training.step import RECV, SEND
from optmatch.solvers.rails.collectives import Lanes
from optmatch.solvers.rails.paths import Ints, Timed
from optmatch.solvers.rails.transfers import Spot, Transfers, Uses, face, list_sides


class Turns(NamedTuple):
    """Ends of classes are turned to face others, each on one lane.

    Each field is a column of shape (turns,).
    """

    starts_s: NDArray[np.float64]
    """When each change begins, in seconds from the start of the step."""
    asked_s: NDArray[np.float64]
    """When each change is asked for, in seconds from the start of the step."""
    end: Ints
    """``2 * class + side``, as in `Uses`."""
    lane: Ints
    """The lane that is turned."""
    place: Ints
    """With `number` the spot, which tells the peer: the place of an operation in the program of
    the class."""
    number: Ints
    """The round of that operation."""


class Lines(NamedTuple):
    """The uses of each lane of each end, which are a line of rows, one after another."""

    uses: Uses
    """The rows of all lines, sorted by line and then by place."""
    line: Ints
    """``line[row]``, ascending from 0."""
    first: Ints
    """``first[line]``: the first row of the line."""
    last: Ints
    """``last[line]``: the last row of the line."""
    place: Ints
    """``place[row]``: where the node stands in the order; the greater the later."""
    before: Ints
    """``before[row]``: the node before it on its line, -1 of the first."""

    def faced(self, standing: Ints) -> Ints:
        """Return the rank to which the port of each row leads before that use.

        ``standing[line]`` is a row whose peer the port leads to when the step begins. A row with
        another peer than the result needs a change of circuits: a line with peers 4, 4, 7 and its
        last row as `standing` has 7, 4, 4 here, and needs changes for its first and third use.
        """
        # Rows of one line stand together: before each row is the row above it.
        faced = np.roll(self.uses.peer, 1)
        faced[self.first] = self.uses.peer[standing]
        return faced

    def turns(
        self, rows: Ints, starts_s: NDArray[np.float64], asked_s: NDArray[np.float64]
    ) -> Turns:
        """Turn the lanes of some rows to the peers that are used there."""
        # The columns are node, end, lane, peer, place and turn (the round).
        _, end, lane, _, place, number = (column[rows] for column in self.uses)
        return Turns(starts_s, asked_s, end, lane, place, number)

    def standing(self) -> Turns:
        """Turn each lane to the peer of its last use, at 0 s."""
        at_once = np.zeros(len(self.last))
        return self.turns(self.last, at_once, at_once)

    def pairs(self) -> Ints:
        """List pairs of nodes that use a lane one after the other; shape (pairs, 2)."""
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
    begins = np.diff(line[order], prepend=-1) > 0
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(rows))[: len(first)] - 1

    # Before each row, on its line, is the row above it in the table; before the first there is
    # none (-1).
    sorted_uses = Uses(*(column[rows[order]] for column in uses))
    before = np.roll(sorted_uses.node, 1)
    before[first] = -1
    return Lines(sorted_uses, np.cumsum(begins) - 1, first, last, place[rows[order]], before)


class Draft(NamedTuple):
    """A plan of a folded job: quick to make, while an unfolded one takes memory."""

    transfers: Transfers
    """The communications of the folded step."""
    timed: Timed
    """Starts of the nodes of the folded job; further entries may follow."""
    lanes: Mapping[int, int]
    """By communication its lanes, as bits: bit k for lane k."""
    standing: Turns
    """Peers of all ends when the step begins, as the step before has left them."""
    turns: Turns
    """All changes in the step, in any order."""

    @property
    def step_s(self) -> float:
        """When the last node ends and the last circuit is up, in seconds."""
        changed_s = float(self.turns.starts_s.max(initial=-np.inf))
        ends_s = self.timed.end_s[: len(self.transfers.first)]
        return max(float(ends_s.max(initial=0.0)), changed_s + self.transfers.job.network.delay_s)

    @property
    def start(self) -> NDArray[np.float64]:
        """When nodes of the folded step start."""
        return self.timed.start_s[: len(self.transfers.last)]

    def build(self) -> RailPlan:
        """Write the plan out for all operations of all ranks, and for all rails.

        Each operation gets the start, the end and the ports of its node.
        """
        transfers = self.transfers
        folded = transfers.folded

        # A communication in several rounds is a chain of nodes: it ends with the last of them.
        end_s = folded.spread(self.timed.end_s[transfers.last[folded.nodes]])

        # The lanes of each node as bits; 0 of nodes that ride no rail.
        lanes_of_node = np.zeros(len(transfers.duration_s), dtype=np.int32)
        lanes_of_node[list(self.lanes)] = list(self.lanes.values())
        ports = _ports(transfers, lanes_of_node[folded.nodes])

        # The last circuits are up a delay after their change has begun.
        timelines = _timelines(self)
        delay_s = transfers.job.network.delay_s
        up_s = [
            float(each.starts_s[-1]) + delay_s for each in timelines if each.n_reconfigurations
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

    Rows are those of ``transfers.folded.own``. The ports are those at which an operation sends, or
    at which it receives a message. With ports of one direction and two lanes, a send over lane 0
    has the bits 0b01, and the receive of that message 0b10 (`receive_port`).
    """
    operations = transfers.folded.own
    kind = transfers.folded.step.kind[operations]
    ports = np.zeros(len(lanes), dtype=np.int32)

    # A bidirectional port sends and receives. Side 0 of a lane is then its port towards those that
    # come next in a ring or pipeline, side 1 that towards those before. Lane k has ports 2k and
    # 2k + 1: a collective uses both, a message that of its side.
    if transfers.lanes.duplex:
        sides = np.array([list_sides(transfers, op)[0] for op in operations.tolist()])
        for lane in range(transfers.lanes.number):
            uses_lane = (lanes >> lane & 1).astype(np.int32)
            for side in (0, 1):
                uses_side = (kind < SEND) | (sides == side)
                ports |= np.where(uses_side, uses_lane << 2 * lane + side, 0)
        return ports

    # Lane k transmits at port k and receives at the port beside it.
    for lane in range(transfers.lanes.number):
        uses_lane = (lanes >> lane & 1).astype(np.int32)
        sending_bits = uses_lane << lane
        receiving_bits = uses_lane << receive_port(lane, transfers.lanes)
        ports |= np.where(kind == RECV, receiving_bits, sending_bits)
    return ports


def receive_port(lane: int, lanes: Lanes) -> int:
    """Return the port at which a lane arrives: its neighbour, as a ring and its reverse need.

    Lane 0 arrives at port 1, and lane 1 at port 0; the last of an odd number of lanes arrives at
    the port of its own number.
    """
    neighbour = lane ^ 1
    if neighbour < lanes.number:
        return neighbour
    return lane


def _timelines(draft: Draft) -> tuple[RailTimeline, ...]:
    """List the states of all switches, once for all rails that need the same circuits.

    A timeline has the numbers of all its rails; every rail is in one of them.
    """
    # Rails with equal patterns have equal matchings: those of the first one are worked out.
    rails_of_pattern: dict[bytes, list[int]] = {}
    ranks_on_rail = ranks_of_rails(draft.transfers.job.step())
    for rail, ranks in ranks_on_rail.items():
        pattern = _pattern(draft.transfers, rail, ranks)
        rails_of_pattern.setdefault(pattern, []).append(rail)

    # One timeline for each pattern, with the numbers of all its rails.
    timelines = []
    for rails in rails_of_pattern.values():
        states = _list_states(draft, ranks_on_rail[rails[0]])
        timelines.append(
            RailTimeline(
                rails=tuple(rails),
                matchings=states.matchings,
                asked_s=states.asked_s,
                starts_s=states.starts_s,
            )
        )
    return tuple(timelines)


def _pattern(transfers: Transfers, rail: int, ranks: NDArray[np.int64]) -> bytes:
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


class _States(NamedTuple):
    """The states of the switch of one rail, one after another."""

    matchings: NDArray[np.int32]
    """``matchings[state, port]``: the port that receives from a port, -1 where idle."""
    asked_s: NDArray[np.float64]
    """When each state is asked for, in seconds from the start of the step; 0 of the first."""
    starts_s: NDArray[np.float64]
    """When the change to each state begins, in seconds; 0 of the first."""


class _FacingPorts:
    """The GPUs that those of a rail face on each side of each lane, while ends are turned.

    Attributes
    ----------
    facing
        ``facing[side, lane, gpu]``: the GPU, as a number on the rail, that a GPU faces where it
        transmits (side 0) or receives (side 1); -1 if none.
    """

    def __init__(self, transfers: Transfers, ranks: NDArray[np.int64]) -> None:
        """Begin with ports of one rail that lead nowhere; its `ranks` are ascending.

        ``_peers_of[end, lane, spot]`` keeps what `_face_on_rail` has returned.
        """
        self.facing = np.full((2, transfers.lanes.number, len(ranks)), IDLE)
        self._transfers = transfers
        self._ranks = ranks
        self._peers_of: dict[
            tuple[int, int, Spot], tuple[NDArray[np.int64], NDArray[np.int64]]
        ] = {}

    def turn(self, turns: Turns, number: int) -> None:
        """Make the turn of row `number`: change `facing` of all GPUs of its class."""
        end = int(turns.end[number])
        lane = int(turns.lane[number])
        spot = (int(turns.place[number]), int(turns.number[number]))

        # Many turns of a step are for the same operation and round (spot): each is looked up once.
        key = (end, lane, spot)
        if key not in self._peers_of:
            self._peers_of[key] = _face_on_rail(self._transfers, self._ranks, end, lane, spot)
        members, peers = self._peers_of[key]
        self.facing[end % 2, lane, members] = peers


def _list_states(draft: Draft, ranks: NDArray[np.int64]) -> _States:
    """Follow the turns of a draft on one rail: list the states of its switch.

    GPU k of the switch is that of ``ranks[k]``, and `ranks` are ascending. Circuits that never
    come up are left out (`_drop_short`).
    """
    transfers = draft.transfers
    ports = _FacingPorts(transfers, ranks)

    # The first state is as the step before has left it; it needs no change.
    for number in range(len(draft.standing.end)):
        ports.turn(draft.standing, number)
    matchings = [_matching(transfers, ports.facing)]
    asked_s = [0.0]
    starts_s = [0.0]

    # All turns that begin at one time make one state; it is asked for when the first of them is.
    # Only ends of classes on this rail turn here. A rail that stops as a whole does so for a turn
    # that changes no circuit, too: the times of the draft count that stop, and it is a state.
    turns = draft.turns
    stops = transfers.job.network.switching == "all-stop"
    is_here = np.isin(turns.end // 2, transfers.folded.class_of[ranks])
    by_start = np.argsort(turns.starts_s, kind="stable")
    by_start = by_start[is_here[by_start]].tolist()
    for start_s, together in groupby(by_start, key=lambda number: float(turns.starts_s[number])):
        first_asked_s = np.inf
        for number in together:
            ports.turn(turns, number)
            first_asked_s = min(first_asked_s, float(turns.asked_s[number]))
        matching = _matching(transfers, ports.facing)

        # A turn of one side alone may change no circuit.
        if stops or not np.array_equal(matching, matchings[-1]):
            matchings.append(matching)
            asked_s.append(first_asked_s)
            starts_s.append(start_s)
    states = _States(np.array(matchings), np.array(asked_s), np.array(starts_s))
    return states if stops else _drop_short(states, transfers.job.network.delay_s)


def _drop_short(states: _States, delay_s: float) -> _States:
    """Leave out circuits that are given up before they are up: ports that meet by chance.

    Ports of several GPUs are turned one after another, and on the way two of them may face each
    other although nobody needs that circuit. A circuit that lasts less than the delay is none, nor
    is a state that then equals the one before. ``states.matchings`` is changed in place.
    """
    matchings = states.matchings
    n_states = len(matchings)

    # For each port the states in which it gets another peer, and for each of these the state in
    # which it gets the next one (`n_states` if there is none). With peers 4, 4, 7, 4 in states 0
    # to 3 these are 0, 2, 3, and next 2, 3, 4. A peer lasts from the start of one to the other.
    gets_peer = np.ones(matchings.shape, dtype=bool)
    np.not_equal(matchings[1:], matchings[:-1], out=gets_peer[1:])
    port, state = np.nonzero(gets_peer.T)
    is_last_of_port = np.append(port[1:] != port[:-1], True)[: len(port)]
    next_state = np.where(is_last_of_port, n_states, np.append(state[1:], 0)[: len(state)])
    lasts_s = np.append(states.starts_s, np.inf)[next_state] - states.starts_s[state]

    # The first state is no change, and a circuit that ends the step lasts on.
    is_circuit = matchings[state, port] != IDLE
    is_short = is_circuit & (state > 0) & (lasts_s < delay_s * (1 - 1e-9))
    if not is_short.any():
        return states
    for k in np.flatnonzero(is_short).tolist():
        matchings[state[k] : next_state[k], port[k]] = IDLE

    # States that no longer differ from the one before are none.
    differs = (matchings[1:] != matchings[:-1]).any(axis=1)
    states_kept = np.append(0, 1 + np.flatnonzero(differs))
    return _States(
        matchings[states_kept], states.asked_s[states_kept], states.starts_s[states_kept]
    )


def _face_on_rail(
    transfers: Transfers, ranks: NDArray[np.int64], end: int, lane: int, spot: Spot
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """List the GPUs of the class of an end on a rail, and the GPU that each of them faces.

    Both are numbers on the rail, positions in the ascending `ranks`. Each rank of the class has
    the operation of the spot at the same place in its program, with a partner of its own.
    """
    place, round_number = spot
    members = np.flatnonzero(transfers.folded.class_of[ranks] == end // 2)
    operations = transfers.job.step().rank_start[ranks[members]] + place
    peers = face(transfers, operations, end % 2, lane, round_number)
    return members, np.searchsorted(ranks, peers)


def _matching(transfers: Transfers, facing: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return by port of the switch that transmits the port that receives, -1 where idle.

    `facing` is that of `_FacingPorts`. A circuit needs both sides: if GPU 1 transmits to 5 on lane
    0, and GPU 5 receives from 1 on it, then port 0 of GPU 1 leads to the port beside port 0
    (`receive_port`) of GPU 5. Circuits of bidirectional ports are listed both ways.
    """
    job = transfers.job
    ports_per_gpu = job.network.ports_per_gpu
    gpus = np.arange(facing.shape[2])
    n_ports = len(gpus) * ports_per_gpu
    live_ports = np.arange(n_ports)
    if job.fabric is not None:
        n_ports = job.fabric.n_ports
        live_ports = job.fabric.live_ports
    matching = np.full(n_ports, IDLE, dtype=np.int32)
    for lane in range(transfers.lanes.number):
        # A circuit needs both: GPU g transmits to p, and p receives from g.
        receiving_gpu = facing[0, lane]
        sending_gpu = facing[1, lane]
        # Index -1 (nobody) is valid but has no meaning: the first test leaves it out.
        mutual = gpus[(receiving_gpu != IDLE) & (sending_gpu[receiving_gpu] == gpus)]
        sending_port = lane
        receiving_port = receive_port(lane, transfers.lanes)
        if transfers.lanes.duplex:
            sending_port = 2 * lane
            receiving_port = 2 * lane + 1

        # Port p of GPU g is port ``g * ports_per_gpu + p`` among those of the switch that work.
        sender = live_ports[mutual * ports_per_gpu + sending_port]
        receiver = live_ports[receiving_gpu[mutual] * ports_per_gpu + receiving_port]
        matching[sender] = receiver
        if transfers.lanes.duplex:
            matching[receiver] = sender
    return matching

"""From decisions to a plan: uses of each lane in a line, and the changes of circuits between.

Words of this module; class, end, lane, peer and spot are those of
`optmatch.solvers.rails.transfers`:

Line
    The uses of one lane of one end, one after another.
Turn
    An end of a class is turned on one lane: its ports give up their circuits and face other
    ranks. Two ports that face each other have a circuit.
Standing
    The peers that ends face when a step begins: as the step before has left them.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline, ranks_of_rails
from optmatch.problems.rails.training.step import SEND
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
    first: Ints
    """``first[line]``: the first row of the line."""
    last: Ints
    """``last[line]``: the last row of the line."""
    place: Ints
    """``place[row]``: where the node stands in the order; the greater the later."""
    before: Ints
    """``before[row]``: the node before it on its line, -1 of the first."""

    def faced(self) -> Ints:
        """List the peer that a lane faces before each row; before the first, that of the last."""
        faced = np.roll(self.uses.peer, 1)
        faced[self.first] = self.uses.peer[self.last]
        return faced

    def turns(
        self, rows: Ints, starts_s: NDArray[np.float64], asked_s: NDArray[np.float64]
    ) -> Turns:
        """Turn the lanes of some rows to the peers that are used there."""
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
    """Sort uses into lines, those of lanes that their communications do not take left out.

    ``place[row]`` is where the node of a use stands; ``lanes[node]`` are its lanes as bits.
    """
    taken = np.zeros(1 + int(uses.node.max(initial=0)), np.int64)
    taken[list(lanes)] = list(lanes.values())
    rows = np.flatnonzero(taken[uses.node] >> uses.lane & 1)

    # Sort them by line, and on a line by place. Here a line has the number ``end * lanes + lane``,
    # with gaps. A row whose number differs from that of the row before is the first of its line.
    line = uses.end[rows] * (1 + int(uses.lane.max(initial=0))) + uses.lane[rows]
    order = np.lexsort([place[rows], line])
    first = np.flatnonzero(np.diff(line[order], prepend=-1) > 0)
    last = np.append(first[1:], len(rows))[: len(first)] - 1
    sorted_uses = Uses(*(column[rows[order]] for column in uses))
    before = np.roll(sorted_uses.node, 1)
    before[first] = -1
    return Lines(sorted_uses, first, last, place[rows[order]], before)


class Draft(NamedTuple):
    """A plan of the folded step."""

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

    def build(self) -> RailPlan:
        """Make the plan of all ranks and rails."""
        transfers = self.transfers
        folded = transfers.folded

        # A communication in several rounds is a chain of nodes: it ends with the last of them.
        end_s = folded.spread(self.timed.end_s[transfers.last[folded.nodes]])
        lanes_of_node = np.zeros(len(transfers.duration_s), dtype=np.int32)
        lanes_of_node[list(self.lanes)] = list(self.lanes.values())
        ports = _list_ports(transfers, lanes_of_node[folded.nodes])

        # Rails with equal patterns have equal matchings: those of the first one are worked out.
        rails_of_pattern: dict[bytes, list[int]] = {}
        ranks_on_rail = ranks_of_rails(transfers.job.step())
        for rail, ranks in ranks_on_rail.items():
            pattern = _describe_rail(transfers, rail, ranks)
            rails_of_pattern.setdefault(pattern, []).append(rail)
        timelines = tuple(
            _draw_timeline(self, tuple(rails), ranks_on_rail[rails[0]])
            for rails in rails_of_pattern.values()
        )
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


def _list_ports(transfers: Transfers, lanes: NDArray[np.int32]) -> NDArray[np.int32]:
    """List the ports of the operations of the first ranks as bits, given their lanes as bits.

    Ports of one direction are lanes. Of bidirectional ones, lane k has port 2k towards those that
    come next in a ring or pipeline, and port 2k + 1 towards those before: a collective uses both.
    """
    if not transfers.lanes.duplex:
        return lanes
    operations = transfers.folded.own
    kind = transfers.folded.step.kind[operations]
    ports = np.zeros(len(lanes), dtype=np.int32)
    sides = np.array([list_sides(transfers, op)[0] for op in operations.tolist()])
    for lane in range(transfers.lanes.number):
        uses_lane = (lanes >> lane & 1).astype(np.int32)
        for side in (0, 1):
            uses_side = (kind < SEND) | (sides == side)
            ports |= np.where(uses_side, uses_lane << 2 * lane + side, 0)
    return ports


def _describe_rail(transfers: Transfers, rail: int, ranks: NDArray[np.int64]) -> bytes:
    """Describe a rail: its classes, and who communicates with whom by their numbers on it."""
    step = transfers.job.step()

    # The last number is that of the partner of operations without one, which is rank -1.
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


def _draw_timeline(draft: Draft, rails: tuple[int, ...], ranks: NDArray[np.int64]) -> RailTimeline:
    """List the circuits of some rails that are alike, given the ranks of the first one.

    Turns that begin at one time make one state, which is asked for when the first of them is.
    """
    transfers = draft.transfers
    facing = np.full((2, transfers.lanes.number, len(ranks)), IDLE)
    found: dict[tuple[int, int, Spot], tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def turn(turns: Turns, number: int) -> None:
        # Many turns of a step are for the same operation and round: each is looked up once.
        end = int(turns.end[number])
        lane = int(turns.lane[number])
        spot = (int(turns.place[number]), int(turns.number[number]))
        if (end, lane, spot) not in found:
            members = np.flatnonzero(transfers.folded.class_of[ranks] == end // 2)
            operations = transfers.job.step().rank_start[ranks[members]] + spot[0]
            peers = face(transfers, operations, end % 2, lane, spot[1])
            found[end, lane, spot] = members, np.searchsorted(ranks, peers)
        members, peers = found[end, lane, spot]
        facing[end % 2, lane, members] = peers

    for number in range(len(draft.standing.end)):
        turn(draft.standing, number)
    states = [_pair_lanes(facing)]
    asked_s = [0.0]
    starts_s = [0.0]
    turns = draft.turns
    by_start = np.argsort(turns.starts_s, kind="stable").tolist()
    for start_s, together in groupby(by_start, key=lambda number: float(turns.starts_s[number])):
        first_asked_s = np.inf
        for number in together:
            turn(turns, number)
            first_asked_s = min(first_asked_s, float(turns.asked_s[number]))
        state = _pair_lanes(facing)

        # A turn of one side alone may change no circuit.
        if not np.array_equal(state, states[-1]):
            states.append(state)
            asked_s.append(first_asked_s)
            starts_s.append(start_s)
    width = np.ones(transfers.lanes.number, np.int64)
    matchings = join_ports(transfers.job, np.array(states), width, duplex=transfers.lanes.duplex)
    kept = _drop_short(matchings, np.array(starts_s), transfers.job.network.delay_s)
    return RailTimeline(
        rails=rails,
        matchings=matchings[kept],
        asked_s=np.array(asked_s)[kept],
        starts_s=np.array(starts_s)[kept],
    )


def _pair_lanes(facing: NDArray[np.int64]) -> NDArray[np.int64]:
    """List by lane and GPU the GPU that its circuit leads to: one that faces it, else `IDLE`."""
    receiver, sender = facing
    gpus = np.arange(facing.shape[2])

    # Index -1 (nobody) is valid but has no meaning: the first test leaves it out.
    is_mutual = (receiver != IDLE) & (np.take_along_axis(sender, receiver, axis=1) == gpus)
    return np.where(is_mutual, receiver, IDLE)


def _drop_short(
    matchings: NDArray[np.int32], starts_s: NDArray[np.float64], delay_s: float
) -> Ints:
    """Take circuits that are replaced before they are up out of states; list the states that stay.

    `matchings`, shape (states, ports), is changed. A state that no longer differs from the one
    before is none.
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
    job: RailJob, states: Ints, width: Ints, *, duplex: bool = False
) -> NDArray[np.int32]:
    """Write the circuits of bundles of ports as matchings of a switch; shape (states, ports).

    ``states[state, bundle, gpu]`` is the GPU that a bundle leads to, -1 for none. Bundles take the
    ports of a GPU in turn: with widths 3 and 1, port 3 is that of bundle 1. Port p of GPU g is
    port ``g * ports_per_gpu + p`` among those of the switch that work. Where ports are
    bidirectional (`duplex`), bundle k leads from port 2k to port 2k + 1, and back.
    """
    ports_per_gpu = job.network.ports_per_gpu
    n_gpus = states.shape[2]
    n_ports = n_gpus * ports_per_gpu
    live_ports = np.arange(n_ports)
    if job.fabric is not None:
        n_ports = job.fabric.n_ports
        live_ports = job.fabric.live_ports
    matchings = np.full((len(states), n_ports), IDLE, np.int32)
    for port, bundle in enumerate(np.repeat(np.arange(len(width)), width).tolist()):
        state, gpu = np.nonzero(states[:, bundle] >= 0)
        sending_port = receiving_port = port
        if duplex:
            sending_port, receiving_port = 2 * port, 2 * port + 1
        sender = live_ports[gpu * ports_per_gpu + sending_port]
        receiver = live_ports[states[state, bundle, gpu] * ports_per_gpu + receiving_port]
        matchings[state, sender] = receiver
        if duplex:
            matchings[state, receiver] = sender
    return matchings

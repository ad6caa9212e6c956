"""From decisions to a plan: uses of each lane in a line, and the changes of circuits between.

`draw_lines` sorts the uses of the ports of each class by lane, so that it is seen where a port has
to face another rank than before. The rules of `optmatch.solvers.rails.policies` time these turns
and make a `Draft` of the folded step. `Draft.build` writes it out: each operation gets the times
and ports of its node, and for each pattern of equal rails the circuits of the switch are followed
by time. A circuit is set up when both of its ends have turned to each other; it takes the place of
those that its two ports held. `join_ports` numbers circuits by the ports of the switch.

Words of this module; class, end, side, lane, peer and spot are those of
`optmatch.solvers.rails.transfers`:

Line
    The uses of one lane of one end, one after another.
Turn
    An end of a class turns on one lane: its ports give up their circuits and face other ranks.
State
    All circuits of the switch of one rail at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import (
    RailPlan,
    RailTimeline,
    find_step_end,
    ranks_of_rails,
)
from optmatch.problems.rails.training.arrays import list_ranges
from optmatch.problems.rails.training.step import RECV, SEND
from optmatch.solvers.rails.collectives import Lanes
from optmatch.solvers.rails.paths import Floats, Ints, Timed
from optmatch.solvers.rails.transfers import Transfers, Uses, face, list_sides


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

    def find_last(self, rows: Ints) -> Ints:
        """Find the last row of the line of each of some rows."""
        return self.last[np.searchsorted(self.last, rows)]

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
        changed_s = float(self.turn_s.max(initial=-np.inf))
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

        return RailPlan(
            rails=timelines,
            start_s=folded.spread(self.timed.start_s[folded.nodes]),
            end_s=end_s,
            ports=folded.spread(ports),
            step_s=find_step_end(timelines, end_s, transfers.job.network.delay_s),
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


def _make_timeline(draft: Draft, rails: Sequence[int], ranks: Ints) -> RailTimeline:
    """List the states of the switches of some rails that are alike.

    GPU k of the first of these rails is that of ``ranks[k]``, and `ranks` are ascending. Circuits
    that are set up at one time make one state, which is asked for when the first turn of this time
    is. If GPU 0 turns to 1 at 2 s, and GPU 1 to 0 at 3 s, their circuit is set up at 3 s.
    """
    transfers = draft.transfers
    lines = draft.lines
    uses = lines.uses
    is_here = np.isin(uses.end // 2, transfers.folded.class_of[ranks])
    facing, facing_of_row = _list_facing(transfers, uses, ranks, np.flatnonzero(is_here))

    # The step begins with the circuits that both of their ends used last.
    last_rows = lines.last[is_here[lines.last]]
    last = _list_circuits(transfers, uses, ranks, (facing, facing_of_row), last_rows)
    is_last = uses.node[lines.find_last(last.arriving_row)] == uses.node[last.row]
    first_state = np.full((transfers.lanes.number, len(ranks)), IDLE)
    first_state[uses.lane[last.row[is_last]], last.sender[is_last]] = last.receiver[is_last]

    # Circuits are set up when the later one of their ends turns, in the order of time. Those of
    # nodes for which no end turns are up already.
    is_turn = is_here & (draft.turn_s >= 0)
    turning = np.flatnonzero(is_here & np.isin(uses.node, uses.node[is_turn]))
    used = _list_circuits(transfers, uses, ranks, (facing, facing_of_row), turning)
    set_up_s = np.maximum(draft.turn_s[used.row], draft.turn_s[used.arriving_row])
    order = np.argsort(set_up_s, kind="stable")
    order = order[set_up_s[order] >= 0]

    # All turns of one time are asked for when the first of them is. A rail that stops as a whole
    # does so for a turn without a circuit, too: times of communication count that, and it is a
    # state.
    times_s, time_of_turn = np.unique(draft.turn_s[is_turn], return_inverse=True)
    asked_s = np.full(len(times_s), np.inf)
    np.minimum.at(asked_s, time_of_turn.reshape(-1), draft.asked_s[is_turn])
    states, kept = list_states(
        first_state,
        times_s,
        set_up_s[order],
        (uses.lane[used.row[order]], used.sender[order], used.receiver[order]),
        keeps_all=transfers.job.network.switching == "all-stop",
    )

    # A circuit of a lane leads from the port that sends on it to the one that receives.
    lane_ports = list_lane_ports(transfers.lanes)
    bundles = [(lane, sends, receives) for lane, (sends, receives) in enumerate(lane_ports)]
    return RailTimeline(
        rails=tuple(rails),
        matchings=join_ports(transfers.job, states, bundles, duplex=transfers.lanes.duplex),
        asked_s=np.append(0.0, asked_s[kept]),
        starts_s=np.append(0.0, times_s[kept]),
    )


def _list_facing(transfers: Transfers, uses: Uses, ranks: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """List whom the GPUs of a rail face in some rows of `uses`, as a table of different rows.

    ``facing[facing_of_row[row], gpu]`` is a GPU, -1 for a GPU of another class than that of the
    row. Two rows are the same if they are of one end and lane, and the first rank of the class has
    the same peer.
    """
    keys = np.stack([uses.end[rows], uses.lane[rows], uses.peer[rows]])
    _, example, number = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    facing_of_row = np.full(len(uses.end), -1)
    facing_of_row[rows] = number.reshape(-1)
    facing = np.full((len(example), len(ranks)), IDLE)
    for faced, row in zip(facing, rows[example].tolist(), strict=True):
        # Each rank of the class has the operation at the same place in its program, with a partner
        # of its own.
        class_number, side = divmod(int(uses.end[row]), 2)
        gpus = np.flatnonzero(transfers.folded.class_of[ranks] == class_number)
        operations = transfers.folded.step.rank_start[ranks[gpus]] + uses.place[row]
        lane = int(uses.lane[row])
        peers = face(transfers, operations, side, lane, int(uses.round_number[row]))
        faced[gpus] = np.searchsorted(ranks, peers)
    return facing, facing_of_row


class _Circuits(NamedTuple):
    """Circuits on a rail that communications use; each array has an entry for each."""

    row: Ints
    """The row of the end at which it begins, whose side is 0."""
    arriving_row: Ints
    """The row of the end at which it arrives, of the same node and lane, whose side is 1."""
    sender: Ints
    """The GPU at which it begins, as its number on the rail."""
    receiver: Ints
    """The GPU at which it arrives."""


def _list_circuits(
    transfers: Transfers,
    uses: Uses,
    ranks: Ints,
    facing_of_rows: tuple[Ints, Ints],
    rows: Ints,
) -> _Circuits:
    """List the circuits of some rows: of sides 0, to those that face them in return.

    `facing_of_rows` are both results of `_list_facing`. A GPU that waits for a later round faces
    another one that may not face it: there is no circuit.
    """
    facing, facing_of_row = facing_of_rows
    class_of_gpu = transfers.folded.class_of[ranks]

    # Each row of side 0 with all GPUs of its class. Sorted by class, those of one class stand
    # together.
    rows = rows[uses.end[rows] % 2 == 0]
    by_class = np.argsort(class_of_gpu, kind="stable")
    first = np.searchsorted(class_of_gpu[by_class], uses.end[rows] // 2, "left")
    beyond = np.searchsorted(class_of_gpu[by_class], uses.end[rows] // 2, "right")
    row = np.repeat(rows, beyond - first)
    sender = by_class[list_ranges(first, beyond - first)]
    receiver = facing[facing_of_row[row], sender]

    # The row of the receiver, by node, end and lane as one number. The first of several such rows
    # counts: a message of a class to itself stands on a line twice.
    shape = (len(transfers.first), 2 * len(transfers.folded.first), transfers.lanes.number)
    key = np.ravel_multi_index((uses.node, uses.end, uses.lane), shape)
    arriving_end = 2 * class_of_gpu[receiver] + 1
    arriving_key = np.ravel_multi_index((uses.node[row], arriving_end, uses.lane[row]), shape)
    by_key = np.argsort(key, kind="stable")
    arriving_row = by_key[np.searchsorted(key[by_key], arriving_key)]
    is_mutual = facing[facing_of_row[arriving_row], receiver] == sender
    return _Circuits(
        row[is_mutual], arriving_row[is_mutual], sender[is_mutual], receiver[is_mutual]
    )


def list_states(
    first_state: Ints,
    times_s: Floats,
    start_s: Floats,
    changes: tuple[Ints, Ints, Ints],
    *,
    keeps_all: bool = False,
) -> tuple[Ints, Ints]:
    """List the circuits of a rail after each time at which some change, and which times these are.

    ``first_state[bundle, gpu]`` is the state at 0 s, and ``start_s[change]`` says when a change
    begins: at one of the ascending `times_s`. Changes are bundles, senders and receivers by
    ascending start; a receiver loses the circuit that it had. In ``states[state, bundle, gpu]``
    comes first `first_state`, then the state after each of ``times_s[kept]``. Times after which
    the state is that before are left out unless `keeps_all`.
    """
    bundle, sender, receiver = changes
    state = first_state.copy()
    states = [first_state]
    kept = []
    bounds = np.searchsorted(start_s, np.append(times_s, np.inf)).tolist()
    for time, (first, end) in enumerate(pairwise(bounds)):
        # Receivers lose their former circuits before new ones are written: later, the new ones
        # would be lost as well.
        together = slice(first, end)
        for changed in np.unique(bundle[together]).tolist():
            taken = receiver[together][bundle[together] == changed]
            state[changed][np.isin(state[changed], taken)] = IDLE
        state[bundle[together], sender[together]] = receiver[together]
        if keeps_all or not np.array_equal(state, states[-1]):
            states.append(state.copy())
            kept.append(time)
    return np.array(states), np.array(kept, np.int64)


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

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
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline, ranks_of_rails
from optmatch.problems.rails.training.step import RECV, SEND
from optmatch.solvers.rails.collectives import Lanes
from optmatch.solvers.rails.paths import Ints, Timed
from optmatch.solvers.rails.transfers import Spot, Transfers, Uses, face, list_sides


class Turns(NamedTuple):
    """Ends of classes are turned to face others, each on one lane: columns of shape (turns,)."""

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
        """Return by row the peer that its line faces before.

        Parameters
        ----------
        standing
            By line a row whose peer the line faces when the step begins.

        Returns
        -------
        int array, shape (rows,)
            A row whose own peer differs needs a change.
        """
        faced = np.roll(self.uses.peer, 1)
        faced[self.first] = self.uses.peer[standing]
        return faced

    def turns(
        self, rows: Ints, starts_s: NDArray[np.float64], asked_s: NDArray[np.float64]
    ) -> Turns:
        """Turn lines to the peers that rows need.

        Parameters
        ----------
        rows
            The rows; shape (turns,).
        starts_s, asked_s
            When each turn begins, and when it is asked for, in seconds; shape (turns,).
        """
        _, end, lane, _, place, number = (column[rows] for column in self.uses)
        return Turns(starts_s, asked_s, end, lane, place, number)

    def standing(self) -> Turns:
        """Return the peer of each line when a step begins, as the step before has left it."""
        at_once = np.zeros(len(self.last))
        return self.turns(self.last, at_once, at_once)

    def pairs(self) -> Ints:
        """List which nodes follow each other on a line.

        Returns
        -------
        int array, shape (pairs, 2)
            The second node of a pair waits for the first. A node with several rows on a line does
            not wait for itself.
        """
        rows = np.flatnonzero((self.before >= 0) & (self.before != self.uses.node))
        return np.stack([self.before[rows], self.uses.node[rows]], axis=1)


def draw_lines(uses: Uses, place: Ints, lanes: Mapping[int, int]) -> Lines:
    """Put the uses of each lane of each end into an order.

    A lane is the port of one number at all GPUs. An end is one side of the ports of a class (ranks
    that do the same): where they transmit or where they receive. A line is all uses of one lane of
    one end, one after another; between two of them with different peers a circuit changes.

    Parameters
    ----------
    uses
        The lanes of ends that nodes (communications) could use: a row for each node, end and lane.
    place
        By row where its node stands in the order, the greater the later; shape (rows,).
    lanes
        By communication the lanes that it does use, bit k for lane k; other rows are left out.

    Returns
    -------
    Lines
        The rows that are left, sorted by line and then by place (`uses`, with their `line` and
        `place`); by line its `first` and `last` row; and by row the node `before` it on its line,
        -1 of the first.
    """
    # A row counts if the bit of its lane is set for its node.
    taken = np.zeros(1 + int(uses.node.max(initial=0)), np.int64)
    taken[list(lanes)] = list(lanes.values())
    rows = np.flatnonzero(taken[uses.node] >> uses.lane & 1)

    # Rows are sorted by line, and on a line by place.
    line = uses.end[rows] * (1 + int(uses.lane.max(initial=0))) + uses.lane[rows]
    order = np.lexsort([place[rows], line])
    begins = np.diff(line[order], prepend=-1) > 0
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(rows))[: len(first)] - 1

    # The row before is that of the same line unless the row is the first of it.
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
        """The time of a step; an upper bound if the last change joins no two ports."""
        changed_s = float(self.turns.starts_s.max(initial=-np.inf))
        ends_s = self.timed.end_s[: len(self.transfers.first)]
        return max(float(ends_s.max(initial=0.0)), changed_s + self.transfers.job.network.delay_s)

    @property
    def start(self) -> NDArray[np.float64]:
        """When nodes of the folded step start."""
        return self.timed.start_s[: len(self.transfers.last)]

    def build(self) -> RailPlan:
        """Unfold times and turns to all operations and rails.

        Returns
        -------
        RailPlan
            The step ends when the last operation ends or the last circuits are up.
        """
        transfers, timed = self.transfers, self.timed
        folded = transfers.folded
        ends = folded.spread(timed.end_s[transfers.last[folded.nodes]])
        mask = np.zeros(len(transfers.duration_s), dtype=np.int32)
        mask[list(self.lanes)] = list(self.lanes.values())
        timelines = _timelines(self)
        delay_s = transfers.job.network.delay_s
        last = [float(t.starts_s[-1]) + delay_s for t in timelines if t.n_reconfigurations]
        return RailPlan(
            rails=timelines,
            start_s=folded.spread(timed.start_s[folded.nodes]),
            end_s=ends,
            ports=folded.spread(_ports(transfers, mask[folded.nodes])),
            step_s=max(float(ends.max(initial=0.0)), *last, 0.0),
        )


def _ports(transfers: Transfers, lanes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Say which ports of its GPU each operation uses, given the lanes that it uses.

    A lane is the port of one number at all GPUs, or a pair of ports where these are bidirectional.
    A row is one operation of one class: ranks that do the same form a class, and only the
    operations of its first rank are written down. An operation is told the ports at which it
    sends; one that receives a message is told those at which it receives.

    Parameters
    ----------
    transfers
        The communications of the folded step, in which each class stands for all of its ranks.
    lanes
        ``lanes[row]``: the lanes that the operation of the row uses, bit k for lane k; 0 for an
        operation that rides no rail. Rows are those of `Folded.own`; shape (rows,).

    Returns
    -------
    int32 array, shape (rows,)
        By row the ports, bit p for port p of the GPU. With ports of one direction, a send over
        lanes 0 and 1 has the bits 0b11.
    """
    own, kind = transfers.folded.own, transfers.folded.step.kind[transfers.folded.own]
    ports = np.zeros(len(lanes), dtype=np.int32)
    receives = kind == RECV
    sides = None

    # A bidirectional port sends and receives. Side 0 of a lane is then its port towards those that
    # come next in a ring or pipeline, side 1 that towards those before; a message uses one.
    if transfers.lanes.duplex:
        sides = np.array([list_sides(transfers, op)[0] for op in own.tolist()])

    # Lane k transmits at port k and receives at the port beside it. On bidirectional ports lane k
    # has ports 2k and 2k + 1: a collective uses both, a message that of its side.
    for lane in range(transfers.lanes.number):
        on = (lanes >> lane & 1).astype(np.int32)
        if sides is not None:
            both = kind < SEND
            for side in (0, 1):
                ports |= np.where(both | (sides == side), on << 2 * lane + side, 0)
        else:
            ports |= np.where(receives, on << receive_port(lane, transfers.lanes), on << lane)
    return ports


def receive_port(lane: int, lanes: Lanes) -> int:
    """Return the port at which a lane arrives: its neighbour, as a ring and its reverse need.

    Lane 0 arrives at port 1, and lane 1 at port 0; the last of an odd number of lanes arrives at
    the port of its own number.

    Parameters
    ----------
    lane
        The lane, which is also the port that transmits.
    lanes
        How many there are.
    """
    return lane ^ 1 if lane ^ 1 < lanes.number else lane


def _timelines(draft: Draft) -> tuple[RailTimeline, ...]:
    """Follow the turns on every rail; rails with the same matchings share a timeline.

    Parameters
    ----------
    draft
        The plan of the folded step.

    Returns
    -------
    tuple of RailTimeline
        Every rail is in one of them.
    """
    alike: dict[bytes, tuple[list[int], NDArray[np.int64]]] = {}
    for rail, ranks in ranks_of_rails(draft.transfers.job.step()).items():
        alike.setdefault(_pattern(draft.transfers, rail, ranks), ([], ranks))[0].append(rail)
    found = []
    for rails, ranks in alike.values():
        matchings, times = _follow(draft, ranks)
        asked, starts = np.array(times).T
        found.append(
            RailTimeline(rails=tuple(rails), matchings=matchings, asked_s=asked, starts_s=starts)
        )
    return tuple(found)


def _pattern(transfers: Transfers, rail: int, ranks: NDArray[np.int64]) -> bytes:
    """Describe a rail without names: the classes of its ranks, and the pairs that communicate.

    Parameters
    ----------
    transfers
        The communications of the folded step.
    rail
        The rail.
    ranks
        Its ranks, ascending.

    Returns
    -------
    bytes
        A hash; rails of one hash have the same matchings at all times.
    """
    step = transfers.job.step()
    place = np.full(step.n_ranks + 1, -1)  # the last entry: no rank
    place[ranks] = np.arange(len(ranks))
    operations = np.flatnonzero(step.rail == rail)
    groups, which = np.unique(step.group[operations], return_inverse=True)

    # Ranks are described by their number on the rail, groups by the numbers of their members.
    members = [hash(place[[*step.groups[group].ranks]].tobytes()) for group in groups.tolist()]
    parts = (
        transfers.folded.class_of[ranks],
        np.array(members, np.int64)[which.reshape(-1)],
        place[step.peer[operations]],
    )
    return blake2b(b"".join(part.tobytes() for part in parts)).digest()


def _follow(
    draft: Draft, ranks: NDArray[np.int64]
) -> tuple[NDArray[np.int32], list[tuple[float, float]]]:
    """List the states of the switch of one rail.

    A turn lets one lane (port of one number) of all GPUs of a class (ranks that do the same) face
    other GPUs, on the side that transmits or on the side that receives. Two ports that face each
    other have a circuit; a state is all circuits at a time.

    Parameters
    ----------
    draft
        The plan of the folded step, with its turns and the peers that are faced at the beginning.
    ranks
        The ranks on the rail, ascending: the order in which its switch counts GPUs.

    Returns
    -------
    matchings : int32 array, shape (states, ports)
        As in `RailTimeline`: by port that transmits the port that receives, -1 where idle.
    times : list of (asked_s, starts_s)
        By state when it is asked for and when its change begins, in seconds; 0 of the first.
    """
    transfers = draft.transfers

    # ``facing[side, lane, gpu]``: the GPU that it faces, -1 if it faces none.
    facing = np.full((2, transfers.lanes.number, len(ranks)), IDLE)
    known: dict[tuple[int, int, Spot], tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def turn(end: int, lane: int, place: int, number: int) -> None:
        """Let all GPUs of a class face their peers at one end and lane, from now on.

        `end` is ``2 * class + side``; `place` and `number` are the operation in the program of the
        class, and its round, which tell the peers.
        """
        at = end, lane, (place, number)
        if at not in known:
            known[at] = _face_on_rail(transfers, ranks, *at)
        members, peers = known[at]
        facing[end % 2, lane, members] = peers

    # The first state is as the step before has left it. Then all turns that begin at one time make
    # one state; it is asked for when the first of them is.
    for still in zip(*(column.tolist() for column in draft.standing[2:]), strict=True):
        turn(*still)
    rows, times = [_matching(transfers, facing)], [(0.0, 0.0)]
    order = np.argsort(draft.turns.starts_s, kind="stable")
    columns = (column[order].tolist() for column in draft.turns)
    for starts_s, together in groupby(zip(*columns, strict=True), key=lambda each: each[0]):
        asked_s = np.inf
        for _, asked, *where in together:
            turn(*where)
            asked_s = min(asked_s, asked)
        matching = _matching(transfers, facing)

        # A turn of one side alone may change no circuit.
        if not np.array_equal(matching, rows[-1]):
            rows.append(matching)
            times.append((asked_s, starts_s))
    return _drop_short(np.array(rows), times, transfers.job.network.delay_s)


def _drop_short(
    rows: NDArray[np.int32], times: list[tuple[float, float]], delay_s: float
) -> tuple[NDArray[np.int32], list[tuple[float, float]]]:
    """Leave out circuits that are given up before they are up: ports that meet by chance.

    Parameters
    ----------
    rows
        ``rows[state, port]``: the port that receives, -1 where idle; changed.
    times
        By state when it is asked for and when its change begins, in seconds.
    delay_s
        How long a circuit takes to be set up, in seconds.

    Returns
    -------
    matchings : int32 array, shape (states, ports)
        Without states that equal the one before.
    times : list of (asked_s, starts_s)
        By state.
    """
    starts = np.array([starts_s for _, starts_s in times])

    # Each pair (port, state) is a state in which the port gets another peer, port by port and in
    # the order of time; ``following`` is the state in which it gets the next one.
    new = np.ones(rows.shape, dtype=bool)
    np.not_equal(rows[1:], rows[:-1], out=new[1:])
    port, state = np.nonzero(new.T)
    last = np.append(port[1:] != port[:-1], True)[: len(port)]
    following = np.where(last, len(rows), np.append(state[1:], 0)[: len(state)])
    lasts_s = np.append(starts, np.inf)[following] - starts[state]

    # The first state is no change, and a circuit that ends the step lasts on.
    short = (rows[state, port] != IDLE) & (state > 0) & (lasts_s < delay_s * (1 - 1e-9))
    if not short.any():
        return rows, times
    for k in np.flatnonzero(short).tolist():
        rows[state[k] : following[k], port[k]] = IDLE

    # States that no longer differ from the one before are none.
    kept = np.append(0, 1 + np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)))
    return rows[kept], [times[k] for k in kept.tolist()]


def _face_on_rail(
    transfers: Transfers, ranks: NDArray[np.int64], end: int, lane: int, spot: Spot
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Look up whom the GPUs of a class face on a rail.

    Parameters
    ----------
    transfers
        The communications of the folded step.
    ranks
        The ranks on the rail, ascending.
    end
        ``2 * class + side``.
    lane
        The lane.
    spot
        The place of an operation in the program of the class, and its round.

    Returns
    -------
    members : int array
        The GPUs of the class, as numbers on the rail.
    peers : int array
        The GPU that each of them faces, as numbers on the rail.
    """
    side, (place, number) = end % 2, spot
    (members,) = np.nonzero(transfers.folded.class_of[ranks] == end // 2)
    operations = transfers.job.step().rank_start[ranks[members]] + place
    peers = face(transfers, operations, side, lane, number)
    return members, np.searchsorted(ranks, peers)


def _matching(transfers: Transfers, facing: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the circuits between ports that face each other.

    A lane is the port of one number at all GPUs, or two ports where they are bidirectional. Lane k
    transmits at port k and arrives at the port beside it (`receive_port`).

    Parameters
    ----------
    transfers
        The communications of the folded step; its job has fabric and network, and `lanes` says
        how many there are.
    facing
        ``facing[side, lane, gpu]``: the GPU that a GPU faces where it transmits (side 0) or
        receives (side 1), -1 for none.

    Returns
    -------
    int32 array, shape (ports,)
        By port that transmits the port that receives, -1 where idle.
    """
    job, gpus, k = transfers.job, np.arange(facing.shape[2]), transfers.job.network.ports_per_gpu
    n_ports = len(gpus) * k if job.fabric is None else job.fabric.n_ports
    live = np.arange(n_ports) if job.fabric is None else job.fabric.live_ports
    matching = np.full(n_ports, IDLE, dtype=np.int32)
    for lane in range(transfers.lanes.number):
        # A circuit needs both: GPU g transmits to p, and p receives from g.
        peers, back = facing[:, lane]
        mutual = gpus[(peers != IDLE) & (back[peers] == gpus)]
        sends, receives = lane, receive_port(lane, transfers.lanes)
        if transfers.lanes.duplex:
            sends, receives = 2 * lane, 2 * lane + 1

        # Port p of GPU g is port ``g * k + p`` among those of the switch that work.
        one, two = live[mutual * k + sends], live[peers[mutual] * k + receives]
        matching[one] = two
        if transfers.lanes.duplex:
            matching[two] = one
    return matching

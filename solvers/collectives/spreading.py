"""Data that spread over circuits: which chunk comes to which rank, when, from where, and its time.

A *sequence* is configurations of circuits, of which each is held for some rounds. Chunks spread
over it in one of three ways:

- breadth first (BFB schedules of Zhao et al.): in each round a rank takes from its neighbours all
  that it lacks and that they had before (`spread`, for gathers);
- one chunk over each circuit, the rarest first (module `broadcasts`);
- over several circuits inside a round, where hops have a time (module `forwarding`).

What they have in common is here: the *receipts* of an all-gather, its seconds before it is made,
and the collectives that are made of it. A reduce-scatter is an all-gather over the reversed
circuits that runs backwards, with sums; an all-reduce is both, one after the other, or an
all-gather of whole buffers that every rank adds up by itself.

In a *circulant* all ranks have circuits to r + s for the same shifts s, and do the same: the
receipts of the block of rank 0 then stand for those of all blocks, turned around the ring of all
ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import LONGEST_S
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.offers import Offer
from optmatch.solvers.collectives.passing import sum_up
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import (
    PORTS_OF_A_SEND,
    Rounds,
    chunk_sizes,
    one_after_another,
    ranks_to_store,
)
from optmatch.solvers.collectives.topologies import (
    IntArray,
    Topology,
    count_parallel,
    inverse_circuits,
)
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

FloatArray = NDArray[np.float64]

UNKNOWN = 1 << 30
"""The round in which a chunk comes that has not come yet."""
SWEEPS = 6
"""How often circuits of the receipts of a round are chosen: first where there is no choice, then
the others, and then again those of the busiest circuits while all other receipts keep theirs."""


class CircuitSequence(NamedTuple):
    """Configurations of circuits, one after another, each held for some rounds."""

    name: str
    """The name of the circuits, for statistics."""
    peer: IntArray
    """``peer[configuration, lane, rank]``: the rank to which a port leads, -1 if it is dark."""
    held: tuple[int, ...] = (1,)
    """The rounds of each configuration."""
    repeats: bool = False
    """Whether the first configuration follows the last one; else the last one stays."""
    shifts: IntArray | None = None
    """``shifts[configuration, lane]`` of circulants; a port need not have the shift of its lane,
    but each rank has as many circuits of a shift. None for other graphs."""

    @classmethod
    def of(cls, topologies: list[Topology], held: tuple[int, ...] = (1,)) -> CircuitSequence:
        """Make a sequence of graphs; of several graphs all are circulants."""
        name = " then ".join(dict.fromkeys(topology.name for topology in topologies))
        shifts = [topology.shifts for topology in topologies]
        peer = np.array([topology.peer for topology in topologies])
        return cls(name, peer, held, shifts=np.array(shifts) if all(shifts) else None)

    def config_of_round(self, n_rounds: int) -> IntArray:
        """Return the number of the configuration that is there in each of so many rounds."""
        once = np.repeat(np.arange(len(self.peer)), self.held)
        if self.repeats:
            return np.resize(once, n_rounds)
        return np.append(once, np.full(n_rounds, len(self.peer) - 1))[:n_rounds]

    def backwards(self, *, two_way: bool) -> CircuitSequence:
        """Return the sequence whose circuits all lead the other way."""
        if two_way:
            return self
        n = self.peer.shape[2]
        shifts = None if self.shifts is None else (n - self.shifts) % n
        return self._replace(peer=inverse_circuits(self.peer, two_way=False), shifts=shifts)

    def both_ends(self, *, alike: bool, two_way: bool) -> BothEnds:
        """Return where circuits lead and come from; of circulants with the shifts of their lanes.

        With `alike` all ranks stand for one, and a lane has one width.
        """
        if alike and self.shifts is not None:
            ranks = np.arange(self.peer.shape[2])
            shifts = self.shifts[:, :, None]
            width = np.array([count_parallel(row) for row in shifts])
            return BothEnds((ranks + shifts) % len(ranks), (ranks - shifts) % len(ranks), width)
        source = inverse_circuits(self.peer, two_way=two_way)
        width = np.array([count_parallel(row) for row in source])
        return BothEnds(self.peer, source, width)


class BothEnds(NamedTuple):
    """The circuits of all configurations, as senders and as receivers see them."""

    peer: IntArray
    """``peer[configuration, lane, rank]``: the rank to which a port leads, -1 if it is dark."""
    source: IntArray
    """``source[configuration, lane, rank]``: the rank from which data come over the port."""
    width: IntArray
    """``width[configuration, lane, end]``: the circuits from the same source as this lane, at the
    first lane of these; else 0. An end is the receiving rank, or 0 where all ranks are alike."""


class Receipts(NamedTuple):
    """How chunks come to their receivers, ascending by round.

    The arrays from `turn` to `n_links` have one entry for each receipt; a receipt over one circuit
    has one link.
    """

    peer: IntArray
    """``peer[configuration, lane, rank]``, as in the sequence."""
    config_of_round: IntArray
    """``config_of_round[round]``: the configuration that is there."""
    load: FloatArray
    """``load[round]``: the chunks over the busiest circuit; parallel circuits share evenly."""
    pieces: int
    """A block is cut into so many chunks, which may come from different neighbours."""
    n_turns: int
    """Each receipt stands for so many, turned by 0, 1, ... places around the ring of all ranks:
    for all n if the chunks are those of rank 0 in a circulant, else for itself."""
    turn: IntArray
    """The round in which the chunk comes."""
    source: IntArray
    """The rank that has it before the round."""
    target: IntArray
    """The rank that gets it."""
    chunk: IntArray
    """The chunk, ``owner * pieces + piece``."""
    first_link: IntArray
    """The place of its first link among all links."""
    n_links: IntArray
    """The number of circuits on the way from the source to the target."""
    link_from: IntArray
    """``link_from[link]``: the rank at which a circuit begins."""
    link_to: IntArray
    """``link_to[link]``: the rank at which it ends."""

    @property
    def n_rows(self) -> int:
        """Rows of sends and of links; to lay out a link takes about as long as a send."""
        n_forwarding_links = int(self.n_links[self.n_links > 1].sum())
        return (len(self.turn) + n_forwarding_links) * self.n_turns

    @property
    def stored_ranks(self) -> int:
        """Return 1 if a plan of these receipts stores the chunks of rank 0 alone, else 0."""
        is_alike = self.n_turns > 1 and int(self.n_links.max()) == 1
        return ranks_to_store(self.n_rows) if is_alike else 0

    @property
    def n_stored_rows(self) -> int:
        """Rows that a plan stores; to set up a port takes a part of the time of a row."""
        if not self.stored_ranks:
            return self.n_rows
        return self.n_rows // self.n_turns + self.peer.size // PORTS_OF_A_SEND

    def seconds(self, problem: Collective, chunk_bytes: float) -> float:
        """Return how long all rounds take, with the changes of circuits between them."""
        longest = np.zeros(len(self.load), dtype=np.int64)
        np.maximum.at(longest, self.turn, self.n_links)
        latency_s = len(self.load) * problem.alpha_s + int(longest.sum()) * (problem.hop_s or 0.0)
        sending_s = float(self.load.sum()) * chunk_bytes / problem.rate_bytes_per_s
        n_changes = int((np.diff(self.config_of_round) != 0).sum())
        return latency_s + sending_s + n_changes * problem.delay_s


def receive_over_circuits(
    sequence: CircuitSequence,
    load: FloatArray,
    pieces: int,
    n_turns: int,
    columns: tuple[IntArray, IntArray, IntArray, IntArray],
) -> Receipts:
    """Make the receipts of chunks that take one circuit in a round; rounds without any drop out.

    `columns` are round, source, target and chunk of the receipts, ascending by round. The loads
    are those of all rounds.
    """
    turn, source, target, chunk = columns
    is_used = load > 0
    turn = (np.cumsum(is_used) - 1)[turn]
    config_of_round = sequence.config_of_round(len(load))[is_used]
    number = np.arange(len(turn))
    return Receipts(
        sequence.peer,
        config_of_round,
        load[is_used],
        pieces,
        n_turns,
        turn,
        source,
        target,
        chunk,
        number,
        np.ones_like(number),
        source,
        target,
    )


class SpreadArrays(NamedTuple):
    """The result of `spread_chunks`, and the arrays that it works in."""

    came: NDArray[np.int32]
    """``came[chunk, rank]``: the round in which a chunk comes; -1 where it is at first."""
    lane_of: NDArray[np.int16]
    """``lane_of[chunk, rank]``: over which lane of the receiver; -1 before one is chosen."""
    listed: NDArray[np.int32]
    """Rows of chunk and rank: first where chunks are at the beginning, then all receipts by round,
    with room for each chunk at each rank."""
    load: FloatArray
    """Scratch, ``load[lane, end]``: the chunks of this round on each circuit."""
    loads: FloatArray
    """``loads[round]``: the most chunks on any circuit; 0 before."""


@inner_kernel
def _list_wanted(peer, n_first, n_listed, turn, arrays):
    """List behind the first `n_listed` rows each chunk that comes to a rank from a neighbour.

    A neighbour is a rank of the rows from `n_first` on, with the circuits ``peer[lane, rank]``.
    Sets ``came`` to this round and ``lane_of`` to -1, and returns the number of all rows.
    """
    n_before = n_listed
    for place in range(n_first, n_before):
        chunk = arrays.listed[place, 0]
        for lane in range(len(peer)):
            target = peer[lane, arrays.listed[place, 1]]
            if target >= 0 and arrays.came[chunk, target] == UNKNOWN:
                arrays.came[chunk, target] = turn
                arrays.lane_of[chunk, target] = -1
                arrays.listed[n_listed, 0] = chunk
                arrays.listed[n_listed, 1] = target
                n_listed += 1
    return n_listed


@inner_kernel
def _choose_lane(source, width, wanted, most_load, arrays):
    """Give up the lane of a receipt, and choose the one with the least load, if it has room.

    `wanted` is chunk, rank, end of ``load[lane, end]``, round, and whether the receipt may have a
    choice. Of lanes with equal loads another one than before is taken, so that receipts make room
    for each other along chains. Changes ``lane_of`` and ``load``.
    """
    chunk, rank, end, turn, may_choose = wanted
    n_lanes = len(source)
    before = arrays.lane_of[chunk, rank]
    if before >= 0:
        arrays.load[before, end] -= 1.0 / width[before, end]
    best = -1
    least = most_load + 1e-9
    n_choices = 0

    # Lanes are looked at from the one behind that which was given up.
    lane = before
    for _ in range(n_lanes):
        lane = lane + 1 if lane + 1 < n_lanes else 0
        if width[lane, end] == 0 or arrays.came[chunk, source[lane, rank]] >= turn:
            continue
        n_choices += 1
        with_chunk = arrays.load[lane, end] + 1.0 / width[lane, end]
        if with_chunk < least - 1e-9 or (best < 0 and with_chunk <= least):
            best = lane
            least = with_chunk
    if best >= 0 and (may_choose or n_choices == 1):
        arrays.lane_of[chunk, rank] = best
        arrays.load[best, end] = least


@inner_kernel
def _keep_receipts(n_before, n_listed, arrays):
    """Take the rows without a lane off the list, as their chunks wait; return the rows kept."""
    n_kept = n_before
    for place in range(n_before, n_listed):
        chunk = arrays.listed[place, 0]
        rank = arrays.listed[place, 1]
        if arrays.lane_of[chunk, rank] < 0:
            arrays.came[chunk, rank] = UNKNOWN
        else:
            arrays.listed[n_kept, 0] = chunk
            arrays.listed[n_kept, 1] = rank
            n_kept += 1
    return n_kept


@kernel
def spread_chunks(ends, config_of_round, most_load, n_first, arrays):
    """Simulate how chunks spread breadth first, and fill `arrays`; return the number of rounds.

    In each round a rank takes over its circuits every chunk that it lacks and that its neighbours
    had before. A chunk that several neighbours have takes the circuit with the least load. With
    `most_load` a circuit takes no more chunks than that in a round, and the others wait;
    `UNKNOWN`, the largest number, is no limit. The first `n_first` rows of ``arrays.listed`` are
    there at first, and the result is 0 if some chunk does not come everywhere.

    A lane is a port, and the circuit that ends there. Lanes from the same source, counted by the
    widths of `ends`, share their chunks. Over circulants all ranks do the same, and loads are
    counted at one rank for all: the last index of loads and widths is then always 0.

    The lanes of a round are chosen in `SWEEPS` passes, *sweeps*, over all chunks that can come.
    The first places the chunks that have no choice, later ones move chunks from loaded circuits
    to others. While circuits stay and nothing waits, only chunks that came in the last round can
    be new to a neighbour, so each is looked at once: O(chunks ranks lanes) steps in all.
    """
    listed, load = arrays.listed, arrays.load
    n_listed = n_first
    first = 0
    for turn in range(len(config_of_round)):
        config = config_of_round[turn]
        source, width = ends.source[config], ends.width[config]
        if most_load < UNKNOWN or (turn > 0 and config != config_of_round[turn - 1]):
            first = 0

        # All that can come in this round, then a lane for each, and what has none is taken back.
        n_before = n_listed
        n_listed = _list_wanted(ends.peer[config], first, n_before, turn, arrays)
        load[:, :] = 0.0
        for sweep in range(SWEEPS):
            for place in range(n_before, n_listed):
                chunk = listed[place, 0]
                rank = listed[place, 1]
                end = rank if load.shape[1] > 1 else 0
                # From the third sweep on only the busiest circuits of all give chunks up.
                lane = arrays.lane_of[chunk, rank]
                if sweep > 1 and lane >= 0 and load[lane, end] < arrays.loads[turn] - 1e-9:
                    continue
                wanted = (chunk, rank, end, turn, sweep > 0)
                _choose_lane(source, width, wanted, most_load, arrays)
            arrays.loads[turn] = 0.0
            for lane in range(load.shape[0]):
                for end in range(load.shape[1]):
                    arrays.loads[turn] = max(arrays.loads[turn], load[lane, end])
        n_listed = _keep_receipts(n_before, n_listed, arrays)
        if n_listed == len(listed):
            return turn + 1
        if n_listed == n_before and config == config_of_round[-1]:
            return 0
        first = n_before
    return 0


def spread(
    problem: Collective, sequence: CircuitSequence, pieces: int, most_load: int = UNKNOWN
) -> Receipts | None:
    """Simulate an all-gather over a sequence; None if some block does not come everywhere.

    Blocks are cut into `pieces` chunks, and a circuit takes at most `most_load` of them in a
    round. Over circulants only the block of rank 0 is simulated: each receipt then stands for all
    ranks.
    """
    n = problem.n_ranks
    alike = sequence.shifts is not None
    ends = sequence.both_ends(alike=alike, two_way=problem.two_way)
    chunks = np.arange(pieces if alike else n * pieces)
    owner = chunks // pieces
    config_of_round = sequence.config_of_round(2 * n + sum(sequence.held))

    # At first each chunk is at its owner alone.
    arrays = SpreadArrays(
        came=np.full((len(chunks), n), UNKNOWN, dtype=np.int32),
        lane_of=np.full((len(chunks), n), -1, dtype=np.int16),
        listed=np.empty((len(chunks) * n, 2), dtype=np.int32),
        load=np.zeros(ends.width.shape[1:]),
        loads=np.zeros(len(config_of_round)),
    )
    arrays.came[chunks, owner] = -1
    arrays.listed[: len(chunks)] = np.column_stack([chunks, owner])
    n_rounds = spread_chunks(ends, config_of_round, most_load, len(chunks), arrays)
    if not n_rounds:
        return None

    # The rows behind those of the owners are the receipts.
    chunk, target = arrays.listed[len(chunks) :].T.astype(np.int64)
    turn = arrays.came[chunk, target].astype(np.int64)
    source = ends.source[config_of_round[turn], arrays.lane_of[chunk, target], target]
    n_turns = n if alike else 1
    columns = (turn, source, target, chunk)
    return receive_over_circuits(sequence, arrays.loads[:n_rounds], pieces, n_turns, columns)


class Carried(NamedTuple):
    """Which chunks are sent as which receipts tell; arrays of one entry for each send."""

    receipt: IntArray
    """The number of the receipt whose round and circuits the send takes."""
    turned: IntArray
    """By how many places its ranks are turned around the ring of all ranks."""
    chunk: IntArray
    """The chunk that is sent."""


def list_gathered(receipts: Receipts, stored_ranks: int = 0) -> Carried:
    """List the sends of an all-gather: each receipt for all owners for which it stands.

    With n ranks and receipts of rank 0 alone, each becomes n sends, turned by 0 to n - 1 places: a
    receipt of rank 2 from rank 0 becomes a send from 1 to 3 for owner 1, and so on. With stored
    ranks those of the chunks of so many ranks are listed, as in a `CollectivePlan`.
    """
    n_turns = stored_ranks or receipts.n_turns
    receipt = np.repeat(np.arange(len(receipts.turn)), n_turns)
    turned = np.tile(np.arange(n_turns), len(receipts.turn))
    return Carried(receipt, turned, receipts.chunk[receipt] + turned * receipts.pieces)


def list_rounds(
    receipts: Receipts, carried: Carried, chunk_count: int, *, adds: bool = False
) -> Rounds:
    """Make the rounds of an all-gather from its receipts, or those of a reduce-scatter.

    A reduce-scatter, with `adds`, is the gather run backwards: its last round comes first, source
    and destination change places, and a rank adds up the chunks that it had sent on. The circuits
    of the receipts then lead from targets to sources.

    Rows of sends are round, source, destination, chunk and kind, by round, for `chunk_count`
    chunks in all. Sends that are forwarded over two circuits or more inside their round have
    links, whose rows are the number of the send and the two ranks of a circuit.
    """
    n = receipts.peer.shape[2]
    order = np.argsort(receipts.turn[carried.receipt], kind="stable")
    if adds:
        order = order[::-1]
    receipt, turned = carried.receipt[order], carried.turned[order]
    source = (receipts.source[receipt] + turned) % n
    target = (receipts.target[receipt] + turned) % n
    turn = receipts.turn[receipt]
    if adds:
        turn = len(receipts.load) - 1 - turn
        source, target = target, source
    kind = np.full(len(turn), REDUCE if adds else COPY)
    sends = np.column_stack([turn, source, target, carried.chunk[order], kind])

    # The links of forwarded sends, in their order; `place` counts the links of each from 0.
    n_links = np.where(receipts.n_links[receipt] > 1, receipts.n_links[receipt], 0)
    number = np.repeat(np.arange(len(receipt)), n_links)
    place = np.arange(len(number)) - np.repeat(np.cumsum(n_links) - n_links, n_links)
    first = receipts.first_link[receipt][number]
    link = first + (n_links[number] - 1 - place if adds else place)
    link_from = (receipts.link_from[link] + turned[number]) % n
    link_to = (receipts.link_to[link] + turned[number]) % n
    if adds:
        link_from, link_to = link_to, link_from
    links = np.column_stack([number, link_from, link_to])
    matchings = [receipts.peer[config] for config in receipts.config_of_round.tolist()]
    return Rounds(sends, chunk_count, matchings[:: -1 if adds else 1], links=links)


def offer_gathers(
    problem: Collective,
    sequence: CircuitSequence,
    name: str,
    receive: Callable[[CircuitSequence], Receipts | None],
) -> Iterator[Offer]:
    """Offer a gather or the sums that are made of it, with their time, if data come everywhere.

    `receive` finds the receipts of an all-gather over a sequence, or over its reversed circuits.
    An all-reduce is offered a second time, as an all-gather of whole buffers: n times the bytes,
    but half of the rounds, as sums need not be gathered afterwards.
    """
    gather = receive(sequence)
    if gather is None:
        return
    scatter: Receipts | None = gather
    if problem.operation != "all-gather" and not problem.two_way:
        scatter = receive(sequence.backwards(two_way=False))
        if scatter is None:
            return
    assert scatter is not None
    phases = {
        "all-gather": (gather,),
        "reduce-scatter": (scatter,),
        "all-reduce": (scatter, gather),
    }[problem.operation]
    n_chunks = problem.n_ranks * gather.pieces
    chunk_bytes = float(chunk_sizes(problem, n_chunks)[0])
    yield Offer(
        seconds=sum(phase.seconds(problem, chunk_bytes) for phase in phases),
        n_sends=sum(phase.n_stored_rows for phase in phases),
        name=name,
        build=partial(_lay_gathers, problem, sequence, scatter, gather),
    )
    whole_bytes = problem.n_ranks * problem.size_bytes
    is_short = whole_bytes <= LONGEST_S * problem.rate_bytes_per_s
    if problem.operation == "all-reduce" and is_short:
        buffers = replace(problem, operation="all-gather", size_bytes=whole_bytes)
        chunk_bytes = float(chunk_sizes(buffers, n_chunks)[0])
        yield Offer(
            seconds=gather.seconds(problem, chunk_bytes),
            n_sends=gather.n_rows,
            name=f"{name} of buffers",
            build=partial(_lay_buffers, buffers, gather),
        )


def _lay_gathers(
    problem: Collective, sequence: CircuitSequence, scatter: Receipts, gather: Receipts
) -> Laid:
    """Make the plan of an all-gather, of sums that run backwards, or of both."""
    stored_ranks = gather.stored_ranks
    n_chunks = (stored_ranks or problem.n_ranks) * gather.pieces
    carried = list_gathered(gather, stored_ranks)
    gathered = list_rounds(gather, carried, n_chunks)._replace(stored_ranks=stored_ranks)
    if problem.operation == "all-gather":
        return lay(problem, gathered)
    # Receipts over the reversed circuits run backwards over the circuits themselves.
    scatter = scatter._replace(peer=sequence.peer)
    carried = list_gathered(scatter, stored_ranks)
    scattered = list_rounds(scatter, carried, n_chunks, adds=True)
    scattered = scattered._replace(stored_ranks=stored_ranks)
    if problem.operation == "reduce-scatter":
        return lay(problem, scattered)
    return lay(problem, one_after_another(scattered, gathered))


def _lay_buffers(buffers: Collective, gather: Receipts) -> Laid:
    """Make the plan of an all-gather of whole buffers, which every rank adds up by itself."""
    n_chunks = buffers.n_ranks * gather.pieces
    return sum_up(lay(buffers, list_rounds(gather, list_gathered(gather), n_chunks)))

"""All-gathers over several ports, and the reduce-scatters and all-reduces that are made of them.

Data spread breadth first (BFB schedules of Zhao et al.): in each round a rank takes from its
neighbours all blocks that it lacks and that they had before. Blocks that several neighbours can
send are taken from the one that has sent least in this round. Circuits stay, or change between
configurations that are held for some rounds each. A reduce-scatter is an all-gather over the
reversed circuits that runs backwards; an all-reduce is both, or an all-gather of whole buffers.

Words that are used here:

- a *block* is the data of one rank, and a *piece* an equal part of it;
- a *lane* is a port of a rank on some plane, and a *configuration* the circuits of all ports that
  are there at the same time;
- a *circulant* has the same shifts at all ranks: rank r sends to r + s for each shift s. All ranks
  do the same in it, so a block is named by its *offset*, how many places before the receiver its
  owner is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import LONGEST_S, Clock
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.offers import RESERVE, Offer
from optmatch.solvers.collectives.passing import (
    TurnedTorus,
    list_turned_rounds,
    list_turned_tori,
    sum_up,
)
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.ring_sums import list_ring_offers
from optmatch.solvers.collectives.rounds import (
    Rounds,
    as_rounds,
    chunk_sizes,
    is_affordable,
    one_after_another,
)
from optmatch.solvers.collectives.topologies import (
    IntArray,
    Topology,
    count_parallel,
    inverse_circuits,
    lay_circulant,
    list_shift_sets,
    list_topologies,
)
from optmatch.solvers.collectives.walk_sums import list_walk_offers
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

FloatArray = NDArray[np.float64]

UNKNOWN = 1 << 30
"""The round in which a block comes that has not come yet."""


class CircuitSequence(NamedTuple):
    """Configurations of circuits, one after another, each held for some rounds."""

    topologies: tuple[Topology, ...]
    """The circuits of each configuration; several configurations are circulants, all of them."""
    held: tuple[int, ...]
    """Rounds of all configurations but the last one, which is held until all is done."""

    @property
    def is_circulant(self) -> bool:
        """Whether all ranks have the same shifts, so that one rank stands for all."""
        return all(topology.shifts for topology in self.topologies)

    def reversed_shifts(self, n: int) -> CircuitSequence:
        """Return the same sequence of circulants with all circuits reversed."""
        back = [
            Topology(
                topology.name,
                inverse_circuits(topology.peer, two_way=False),
                tuple((n - shift) % n for shift in topology.shifts),
            )
            for topology in self.topologies
        ]
        return CircuitSequence(tuple(back), self.held)


class OffsetArrays(NamedTuple):
    """The result of `spread_offsets`, in arrays that it writes."""

    round_of: IntArray
    """``round_of[offset, piece]``: when it comes, -1 for the own block."""
    lane_of: IntArray
    """``lane_of[offset, piece]``: over which lane."""
    loads: FloatArray
    """``loads[round]``: the most pieces on a circuit; as long as there may be rounds."""
    config_of_round: IntArray
    """``config_of_round[round]``: the configuration that is there."""
    lane_load: FloatArray
    """Scratch, ``lane_load[lane]``: the pieces of this round on each of its circuits."""


class BlockArrays(NamedTuple):
    """The result of `spread_blocks`, and the arrays that it works in."""

    round_of: IntArray
    """``round_of[rank, block]``: when it comes, -1 for the own block."""
    lane_of: IntArray
    """``lane_of[rank, block, piece]``: over which lane."""
    loads: FloatArray
    """``loads[round]``: the most pieces on any circuit; as long as there may be rounds."""
    arrived: IntArray
    """Scratch, ``arrived[rank, place]``: the blocks of a rank in the order of arrival."""
    n_arrived: IntArray
    """Scratch, by rank: how many blocks it has."""
    n_before: IntArray
    """Scratch, by rank: how many it had when the round began."""
    first_new: IntArray
    """Scratch, by rank: the place of the first block that came in the last round."""
    n_choices: IntArray
    """Scratch, by block: how many circuits can bring it."""
    wanted: IntArray
    """Scratch: the blocks that can come to a rank in this round."""
    lane_load: FloatArray
    """Scratch, ``lane_load[lane]``: the pieces of this rank and round on each circuit."""
    queue: IntArray
    """Scratch, by place: the lanes that a search for a lighter lane has reached, in order."""
    reached_from: IntArray
    """Scratch, by lane: the lane from which the search has reached it; -1 if not reached."""
    moved_block: IntArray
    """Scratch, by lane: the block that would move to it from that lane."""
    moved_piece: IntArray
    """Scratch, by lane: the piece of that block."""


class Gather(NamedTuple):
    """How an all-gather spreads over a sequence of circuits, before sends are listed.

    In a circulant all ranks do the same, at the same time, so the rounds and lanes of one rank
    stand for those of all. A block is then named by its *offset*: how many places before the
    receiver its owner is. Over other circuits each rank has rounds and lanes of its own.
    """

    sequence: CircuitSequence
    """The configurations of circuits, one after another, and how long each is held."""
    pieces: int
    """A block is cut into so many pieces, which may come from different neighbours."""
    loads: FloatArray
    """``loads[round]``: the most pieces on any circuit; parallel circuits share evenly."""
    config_of_round: IntArray
    """``config_of_round[round]``: the configuration that is there, by its number."""
    source: IntArray
    """``source[configuration, lane, rank]``: from where data come over each port, -1 if dark."""
    round_of: IntArray
    """The round in which a block comes to a rank, -1 for its own: ``round_of[rank, block]``, for
    all pieces of the block. In circulants ``round_of[offset, piece]``."""
    lane_of: IntArray
    """The lane of the receiver over which a piece comes: ``lane_of[rank, block, piece]``. Of
    circulants ``lane_of[offset, piece]``."""

    def seconds(self, block_bytes: float, problem: Collective) -> float:
        """Return the seconds of an all-gather: its rounds, and changes of circuits in between."""
        # Sets of circuits are numbered in their order, from 0. The number of the last round is
        # therefore how often they have changed.
        round_s = problem.round_s
        most_bytes = float(self.loads.sum()) * block_bytes / self.pieces
        changes_s = int(self.config_of_round[-1]) * problem.delay_s
        return changes_s + len(self.loads) * round_s + most_bytes / problem.rate_bytes_per_s


@kernel
def spread_offsets(shifts, width, held, most_load, result):
    """Simulate an all-gather over circuits that look alike from every rank.

    In configuration c lane l joins ranks ``shifts[c, l]`` places apart, by ``width[c, l]``
    circuits side by side; the configuration is there for ``held[c]`` rounds, the last one until
    the end. All ranks do the same, so one receiver, rank 0, is simulated.

    Over a circuit with shift 1 the receiver hears from the rank before it. Its block of offset 3
    is the block of offset 2 of that rank. Therefore offset 3 can come in a round if offset 3 - 1
    came in an earlier round; in general, offset o over shift s needs offset o - s.

    In each round the receiver takes the pieces that can come, each over the circuit that has
    carried least in this round, until `most_load` is reached.

    `result`, out:

    - ``round_of[offset, piece]``: the round in which the piece of a block comes; -1 for the block
    of the receiver itself, offset 0;
    - ``lane_of[offset, piece]``: the lane over which it comes;
    - ``loads[round]``: the most pieces on any circuit; has to be 0 before;
    - ``config_of_round[round]``: the number of the set of circuits that is there;
    - ``lane_load[lane]``: scratch.

    Returns the number of rounds; 0 if some block never comes, or comes too late for the arrays.
    """
    # At first the receiver has only its own block, that of offset 0.
    n, pieces = result.lane_of.shape
    n_lanes = shifts.shape[1]
    round_of = result.round_of
    round_of[:, :] = UNKNOWN
    round_of[0, :] = -1
    n_missing = (n - 1) * pieces
    turn = 0
    config = 0
    turns_of_config = 0  # for how many rounds the present circuits have been there
    lane_load = result.lane_load
    while n_missing:
        if turn == len(result.loads):
            return 0
        # All configurations have their rounds, but for the last one, which stays until the end.
        if config < len(shifts) - 1 and turns_of_config == held[config]:
            config += 1
            turns_of_config = 0
        lane_load[:] = 0
        n_before = n_missing

        # In the first pass pieces that only one neighbour can send get their lane. In the second
        # one those with a choice fill up the lanes with little load.
        for with_choice in range(2):
            for offset in range(n):
                for piece in range(pieces):
                    if round_of[offset, piece] < UNKNOWN:
                        continue
                    n_choices, lane = find_lane_of_piece(
                        shifts[config], width[config], result, (offset, piece, turn)
                    )
                    if n_choices == 0 or (n_choices > 1) != (with_choice == 1):
                        continue
                    if lane_load[lane] < most_load:
                        # Parallel circuits share a piece evenly.
                        result.lane_of[offset, piece] = lane
                        round_of[offset, piece] = turn
                        lane_load[lane] += 1.0 / width[config, lane]
                        n_missing -= 1
        # If the last set of circuits brings nothing in a round, it never will: give up.
        if n_missing == n_before and config == len(shifts) - 1:
            return 0
        # The busiest circuit decides how long the round lasts.
        for lane in range(n_lanes):
            result.loads[turn] = max(result.loads[turn], lane_load[lane])
        result.config_of_round[turn] = config
        turn += 1
        turns_of_config += 1
    return turn


@inner_kernel
def find_lane_of_piece(shifts, width, result, wanted):
    """Return how many circuits can bring a piece in this round, and the one with the least load.

    ``shifts[lane]`` and ``width[lane]``, the number of circuits side by side, 0 for none, are
    those of this round; `wanted` is (offset, piece, round). Over shift s a rank hears from the
    rank s places before it. That rank can send the piece if it had the piece before this round.

    Returns the number of lanes, and the least loaded of them, -1 if there is none.
    """
    offset, piece, turn = wanted
    n = result.round_of.shape[0]
    n_choices = 0
    best = -1
    for lane in range(len(shifts)):
        # The neighbour knows the block by another offset: the owner is so many places before it.
        # All ranks get the block of an offset in the same round.
        neighbour_offset = (offset - shifts[lane]) % n
        if width[lane] == 0 or result.round_of[neighbour_offset, piece] >= turn:
            continue
        n_choices += 1
        if best < 0 or result.lane_load[lane] < result.lane_load[best]:
            best = lane
    return n_choices, best


@kernel
def spread_blocks(source, width, arrays):
    """Simulate an all-gather over circuits that stay, breadth first.

    In each round a rank takes all blocks that it lacks and that one of the ranks with a circuit to
    it had before the round. Only the blocks that came to neighbours in the last round are looked
    at, as older ones have come already: O(n^2 lanes) steps in all. Which lane brings each piece is
    chosen so that the busiest circuit of the round carries few.

    Writes ``round_of``, ``lane_of`` and ``loads`` of `arrays`, of which `loads` has to be 0
    before; the other arrays are scratch. Returns the number of rounds; 0 if some block never
    comes. ``source[lane, rank]`` is the rank from which a circuit comes, and ``width[lane, rank]``
    how many parallel circuits it stands for, 0 for none.
    """
    n = source.shape[1]
    # arrived[rank] lists the blocks of a rank in the order of arrival; at first its own alone.
    arrays.round_of[:, :] = UNKNOWN
    for rank in range(n):
        arrays.round_of[rank, rank] = -1
        arrays.arrived[rank, 0] = rank
        arrays.n_arrived[rank] = 1
        arrays.first_new[rank] = 0
        arrays.n_choices[rank] = 0
    turn = 0
    n_blocks = n
    while n_blocks < n * n:
        if turn == len(arrays.loads):
            return 0
        # Blocks that come in this round can be sent on only in the next one.
        for rank in range(n):
            arrays.n_before[rank] = arrays.n_arrived[rank]
        n_came = 0
        for rank in range(n):
            # All blocks that can come do come in this round; only their lanes are chosen.
            n_wanted = list_wanted_blocks(source, width, arrays, rank)
            choose_lanes((source, width), arrays, rank, n_wanted, turn)
            # If a circuit of this rank carries more than those of all ranks before it, pieces are
            # moved to other circuits of the rank, as long as that helps.
            heaviest = find_heaviest_lane(arrays.lane_load)
            while arrays.lane_load[heaviest] > arrays.loads[turn]:
                if not relieve_lane((source, width), arrays, rank, n_wanted, turn, heaviest):
                    break
                heaviest = find_heaviest_lane(arrays.lane_load)
            arrays.loads[turn] = max(arrays.loads[turn], arrays.lane_load[heaviest])

            # Note the blocks as arrived, and forget their choices for the next rank.
            for place in range(n_wanted):
                block = arrays.wanted[place]
                arrays.n_choices[block] = 0
                arrays.round_of[rank, block] = turn
                arrays.arrived[rank, arrays.n_arrived[rank]] = block
                arrays.n_arrived[rank] += 1
            n_came += n_wanted
        if n_came == 0:
            return 0
        # In the next round neighbours look at the blocks that came in this one.
        n_blocks += n_came
        for rank in range(n):
            arrays.first_new[rank] = arrays.n_before[rank]
        turn += 1
    return turn


@inner_kernel
def list_wanted_blocks(source, width, arrays, rank):
    """List the blocks that can come to a rank in this round, and from how many neighbours.

    Writes ``arrays.wanted[:n]``, the blocks, and adds 1 to ``arrays.n_choices[block]`` for each
    neighbour; returns n. ``source[lane, rank]`` is the neighbour at a port, and
    ``width[lane, rank]`` 0 where there is none. A *block* is the data of one rank. It can come
    from a neighbour, a rank with a circuit to this one, that had it before the round.
    """
    n_wanted = 0
    for lane in range(source.shape[0]):
        neighbour = source[lane, rank]
        if width[lane, rank] == 0:
            continue
        # Only what came to the neighbour in the last round: all before that has come already.
        for place in range(arrays.first_new[neighbour], arrays.n_before[neighbour]):
            block = arrays.arrived[neighbour, place]
            if arrays.round_of[rank, block] < UNKNOWN:
                continue
            if arrays.n_choices[block] == 0:
                arrays.wanted[n_wanted] = block
                n_wanted += 1
            arrays.n_choices[block] += 1
    return n_wanted


@inner_kernel
def choose_lanes(circuits, arrays, rank, n_wanted, turn):
    """Choose over which port of a rank each piece comes in a round, so that all carry alike.

    Writes ``arrays.lane_of[rank, block, piece]`` and ``arrays.lane_load[lane]``, in pieces over
    the ports that lead to the same neighbour. A *block* is the data of one rank, cut into equal
    pieces. The blocks that come in this round are known: those that the rank lacks, and that a
    neighbour had before. Blocks that only one neighbour can send are placed first. Each piece of
    the others goes to the port (*lane*) with the fewest pieces so far.
    """
    # The first pass is for blocks without a choice, the second one for the others.
    source, width = circuits
    n_lanes = source.shape[0]
    arrays.lane_load[:] = 0
    for with_choice in range(2):
        for place in range(n_wanted):
            block = arrays.wanted[place]
            if (arrays.n_choices[block] > 1) != (with_choice == 1):
                continue
            # Each piece takes the least loaded lane whose neighbour had the block before the
            # round.
            for piece in range(arrays.lane_of.shape[2]):
                best = -1
                for lane in range(n_lanes):
                    neighbour = source[lane, rank]
                    if width[lane, rank] == 0 or arrays.round_of[neighbour, block] >= turn:
                        continue
                    if best < 0 or arrays.lane_load[lane] < arrays.lane_load[best]:
                        best = lane
                arrays.lane_of[rank, block, piece] = best
                arrays.lane_load[best] += 1.0 / width[best, rank]


@inner_kernel
def find_heaviest_lane(lane_load):
    """Find the lane with the greatest load; a lane is one port of every rank."""
    heaviest = 0
    for lane in range(1, len(lane_load)):
        if lane_load[lane] > lane_load[heaviest]:
            heaviest = lane
    return heaviest


@inner_kernel
def relieve_lane(circuits, arrays, rank, n_wanted, turn, heaviest):
    """Move one piece away from the busiest port of a rank, if need be by a chain of moves.

    Changes ``arrays.lane_of`` of the rank and ``arrays.lane_load``, and returns whether it has
    found such moves. `turn` is the round, ``arrays.wanted[:n_wanted]`` are the blocks that come in
    it, and `heaviest` is the busiest lane.

    For example, lane 0 brings five pieces, lane 1 four and lane 2 three. If no piece of lane 0 can
    come over lane 2, a piece of lane 0 may move to lane 1, and one of lane 1 to lane 2: then each
    brings four. Such a chain is searched breadth first from the busiest lane (an augmenting path
    of a bipartite assignment), O(pieces lanes) steps.
    """
    source, width = circuits
    n_lanes = source.shape[0]
    n_pieces = arrays.lane_of.shape[2]
    most = arrays.lane_load[heaviest]
    arrays.reached_from[:] = -1
    arrays.reached_from[heaviest] = heaviest
    arrays.queue[0] = heaviest
    n_reached = 1
    at = 0
    while at < n_reached:
        # All lanes are reached to which a piece of this lane could move: the neighbour at the
        # other end had its block before the round.
        giver = arrays.queue[at]
        at += 1
        for place in range(n_wanted):
            block = arrays.wanted[place]
            for piece in range(n_pieces):
                if arrays.lane_of[rank, block, piece] != giver:
                    continue
                for lane in range(n_lanes):
                    if arrays.reached_from[lane] >= 0 or width[lane, rank] == 0:
                        continue
                    if arrays.round_of[source[lane, rank], block] >= turn:
                        continue
                    # The chain may end at this lane if one piece more does not make it the
                    # busiest one.
                    arrays.reached_from[lane] = giver
                    arrays.moved_block[lane] = block
                    arrays.moved_piece[lane] = piece
                    if arrays.lane_load[lane] + 1.0 / width[lane, rank] < most - 1e-9:
                        move_along_chain(arrays, width, rank, lane)
                        return True
                    arrays.queue[n_reached] = lane
                    n_reached += 1
    return False


@inner_kernel
def move_along_chain(arrays, width, rank, lane):
    """Move a piece to each lane of a chain from the lane before it, from the last lane on.

    The chain ends at `lane`, and ``arrays.reached_from[lane]`` is the one before; the first lane
    is its own. Changes ``arrays.lane_of`` and the loads of the first lane, which has a piece less,
    and of the last one.
    """
    arrays.lane_load[lane] += 1.0 / width[lane, rank]
    while arrays.reached_from[lane] != lane:
        arrays.lane_of[rank, arrays.moved_block[lane], arrays.moved_piece[lane]] = lane
        lane = arrays.reached_from[lane]
    arrays.lane_load[lane] -= 1.0 / width[lane, rank]


def spread(
    n: int, sequence: CircuitSequence, pieces: int, *, two_way: bool, most_load: int = UNKNOWN
) -> Gather | None:
    """Simulate an all-gather over given circuits: which data come when, over which port."""
    peer = np.array([topology.peer for topology in sequence.topologies])
    source = inverse_circuits(peer, two_way=two_way)
    if sequence.is_circulant:
        return _spread_over_circulants(sequence, pieces, source, most_load)
    return _spread_over_one_topology(sequence, pieces, source)


def _spread_over_circulants(
    sequence: CircuitSequence, pieces: int, source: IntArray, most_load: int
) -> Gather | None:
    """Simulate an all-gather over circuits that look alike from every rank.

    ``source[configuration, lane, rank]`` tells from whom data come over a port, -1 if it is dark.
    Returns ``round_of[offset, piece]`` and ``lane_of[offset, piece]``, in which round and over
    which port a piece comes, with the loads of circuits; None if some data do not arrive.
    """
    # A simulation that needs more rounds than this is given up. shifts[configuration, lane].
    n_configs, n_lanes, n = source.shape
    most_rounds = 2 * n + n_configs
    shifts = np.array([topology.shifts for topology in sequence.topologies])
    rounds_held = np.array([*sequence.held, 0])  # the kernel does not read that of the last one

    # Lanes with the same shift lead to the same rank. `count_parallel` wants lanes first.
    width = count_parallel(shifts.T).T  # width[configuration, lane]
    result = OffsetArrays(
        round_of=np.empty((n, pieces), dtype=np.int64),
        lane_of=np.zeros((n, pieces), dtype=np.int64),
        loads=np.zeros(most_rounds),
        config_of_round=np.zeros(most_rounds, dtype=np.int64),
        lane_load=np.zeros(n_lanes),
    )
    # 0 rounds mean that some block never comes.
    n_rounds = spread_offsets(shifts, width, rounds_held, most_load, result)
    if not n_rounds:
        return None
    return Gather(
        sequence=sequence,
        pieces=pieces,
        loads=result.loads[:n_rounds],
        config_of_round=result.config_of_round[:n_rounds],
        source=source,
        round_of=result.round_of,
        lane_of=result.lane_of,
    )


def _spread_over_one_topology(
    sequence: CircuitSequence, pieces: int, source: IntArray
) -> Gather | None:
    """Simulate an all-gather over circuits that never change: when each rank gets which data.

    The result is None if some block does not arrive everywhere.
    """
    # The kernel writes its results into the first three arrays. All others are memory that it
    # works in: which blocks a rank has, in the order of their arrival (`arrived` to `first_new`);
    # which blocks come to one rank in a round, and from how many neighbours (`n_choices`,
    # `wanted`); and how their pieces are moved between ports until all carry alike (`lane_load` to
    # `moved_piece`). Loads have room for more rounds than are ever needed.
    n_configs, n_lanes, n = source.shape
    arrays = BlockArrays(
        round_of=np.empty((n, n), dtype=np.int64),
        lane_of=np.zeros((n, n, pieces), dtype=np.int64),
        loads=np.zeros(2 * n + n_configs),
        arrived=np.empty((n, n), dtype=np.int64),
        n_arrived=np.zeros(n, dtype=np.int64),
        n_before=np.zeros(n, dtype=np.int64),
        first_new=np.zeros(n, dtype=np.int64),
        n_choices=np.zeros(n, dtype=np.int64),
        wanted=np.zeros(n, dtype=np.int64),
        lane_load=np.zeros(n_lanes),
        queue=np.zeros(n_lanes, dtype=np.int64),
        reached_from=np.zeros(n_lanes, dtype=np.int64),
        moved_block=np.zeros(n_lanes, dtype=np.int64),
        moved_piece=np.zeros(n_lanes, dtype=np.int64),
    )
    # `count_parallel` tells which ports of a rank have the same source, and so share what comes
    # from it. 0 rounds mean that some block never comes.
    n_rounds = spread_blocks(source[0], count_parallel(source[0]), arrays)
    if not n_rounds:
        return None
    return Gather(
        sequence=sequence,
        pieces=pieces,
        loads=arrays.loads[:n_rounds],
        config_of_round=np.zeros(n_rounds, dtype=np.int64),
        source=source,
        round_of=arrays.round_of,
        lane_of=arrays.lane_of,
    )


def list_gather_sends(gather: Gather) -> Rounds:
    """Write out the sends of a simulated all-gather, for all ranks.

    Piece p of the block of rank r is chunk ``r * pieces + p``. In circulants one receipt of the
    simulation stands for n sends: with 4 ranks and shift 1, the block 2 places before the receiver
    goes from rank 0 to 1 (block 3), from 1 to 2 (block 0), and so on.
    """
    n = gather.source.shape[2]
    pieces = gather.pieces
    peer = np.array([topology.peer for topology in gather.sequence.topologies])
    ranks = np.arange(n)
    sends_of_round = []
    for turn, config in enumerate(gather.config_of_round.tolist()):
        # All arrays of a round get the shape (receivers, pieces), or can be extended to it.
        if gather.sequence.is_circulant:
            # One receipt of the simulation becomes one for each receiver: the owner of the block
            # is `offset` places before it, and the sender `shift` places before it.
            offset, piece = np.nonzero(gather.round_of == turn)
            shifts = np.array(gather.sequence.topologies[config].shifts)
            shift = shifts[gather.lane_of[offset, piece]]
            receiver = np.broadcast_to(ranks[:, None], (n, len(offset)))
            origin = (receiver - shift) % n
            block = (receiver - offset) % n
        else:
            # All pieces of a block come in the same round, each over a lane of its own.
            receiver, block = (each[:, None] for each in np.nonzero(gather.round_of == turn))
            lane = gather.lane_of[receiver[:, 0], block[:, 0]]  # (blocks, pieces)
            origin = gather.source[config][lane, receiver]
            piece = np.arange(pieces)
        chunk = block * pieces + piece
        receiver = np.broadcast_to(receiver, chunk.shape)
        sends_of_round.append((origin.reshape(-1), receiver.reshape(-1), chunk.reshape(-1)))
    return as_rounds(sends_of_round, COPY, n * pieces)._replace(
        matchings=peer[gather.config_of_round]
    )


def run_backwards(gathered: Rounds, *, two_way: bool) -> Rounds:
    """Turn an all-gather into the reduce-scatter that runs backwards, over reversed circuits."""
    turn, source, destination, chunk, _ = gathered.sends.T
    turn = gathered.n_rounds - 1 - turn
    rows = np.column_stack([turn, destination, source, chunk, np.full(len(turn), REDUCE)])
    assert gathered.matchings is not None
    circuits = inverse_circuits(gathered.matchings[::-1], two_way=two_way)
    return Rounds(rows[np.argsort(turn, kind="stable")], gathered.chunk_count, circuits)


def list_sequences(problem: Collective) -> Iterator[CircuitSequence]:
    """List the circuits that are tried for a gather over several ports."""
    for topology in list_topologies(problem):
        yield CircuitSequence((topology,), ())
    # With p ports data can reach p + 1 times as many ranks in each round, if circuits change every
    # round. That takes log(n) to the base p + 1 sets of circuits; one more is tried.
    n = problem.n_ranks
    most = math.ceil(math.log(n, problem.lanes + 1)) + 1 if n > 1 else 0
    for count in range(2, most + 1):
        yield from _list_changes(problem, count)


def _list_changes(problem: Collective, count: int) -> Iterator[CircuitSequence]:
    """List circuits that change `count` - 1 times and first spread data nearby, then far.

    At any time each rank r has circuits to r + s, modulo n, for the same few *shifts* s. Example
    for 64 ranks with two ports, and one change:

    - first the shifts 1 and 3, whose sums reach the distances 0 to 7 within a few rounds;
    - then the shifts 8 and 24, eight times as large, which reach 0, 8, 16, ... 56.

    Together they reach all distances from 0 to 63. The 8 is the *base*: a distance is a number of
    `count` digits to this base, and each set of circuits serves one digit.
    """
    # The base is the `count`-th root of n, rounded up.
    n = problem.n_ranks
    lanes = problem.lanes
    base = math.ceil(n ** (1 / count) - 1e-9)

    # Candidates for the first shifts: the smallest ones, 1, 2, 3, ..., and those of good circuits
    # of `base` ranks. A two-way circuit takes a port at both ends, so that only half as many
    # different shifts fit; the candidates are other ones then.
    sets = {
        tuple(sorted(shifts))
        for shifts in [tuple(range(1, lanes + 1)), *list_shift_sets(base, lanes, two_way=False)]
    }
    if problem.two_way:
        half = lanes // 2
        sets = {tuple(range(1, half + 1)), *list_shift_sets(base, lanes, two_way=True)}
    for shifts in sorted(some for some in sets if some):
        # scaled[digit] are the shifts for each digit: times 1, the base, its square, ... A set is
        # left out if its sums do not reach all digits, or if a scaled shift is 0 modulo n: such a
        # circuit would lead from a rank to itself.
        rounds = _rounds_to_cover(base, shifts, lanes, two_way=problem.two_way)
        scaled = [tuple(base**digit * shift % n for shift in shifts) for digit in range(count)]
        if not rounds or not all(all(each) for each in scaled):
            continue
        laid = [lay_circulant(problem, each) for each in scaled]
        # All sets of circuits have to fit the ports (None if one does not). They share one array
        # of shifts, so each has to have as many shifts as the others.
        kept = tuple(topology for topology in laid if topology is not None)
        if len(kept) == count and len({len(topology.shifts) for topology in kept}) == 1:
            yield CircuitSequence(kept, (rounds,) * (count - 1))


def _rounds_to_cover(base: int, shifts: tuple[int, ...], lanes: int, *, two_way: bool) -> int:
    """Return after how many rounds sums of shifts have reached `base` numbers in a row.

    Returns the number of rounds; 0 if `base` rounds are not enough.
    """
    # Numbers far beyond those that are wanted are not followed any more.
    steps = set(shifts[:lanes])
    reach = {0}
    if two_way:
        steps |= {-shift for shift in steps}
    lowest = -((base - 1) // 2) if two_way else 0
    wanted = set(range(lowest, lowest + base))
    for turn in range(1, base + 1):
        reach |= {number + step for number in reach for step in steps if abs(number) <= 2 * base}
        if wanted <= reach:
            return turn
    return 0


def block_bytes(problem: Collective, pieces: int) -> float:
    """Return the bytes of a block, padding included, if it is cut into so many pieces."""
    halves = {"all-reduce", "reduce-scatter", "all-gather"}
    assert problem.operation in halves
    chunk: NDArray[np.float64] = chunk_sizes(problem, problem.n_ranks * pieces)
    return float(chunk[0]) * pieces


def list_gather_offers(problem: Collective, clock: Clock) -> Iterator[Offer]:
    """List plans of a gather or a sum over several ports, with their time, before they are made.

    For each choice of circuits an all-gather is simulated, which tells its time. The operation
    then is made of such all-gathers:

    - an all-gather is one of them;
    - a reduce-scatter is one over the reversed circuits that runs backwards, with sums;
    - an all-reduce is a reduce-scatter and then an all-gather; or, as a second offer, an
      all-gather of the whole buffers of all ranks, which each rank adds up by itself. All-reduces
      over tori are offered, too, before these.

    The block of each rank may be cut into pieces, which come over different ports. A limit of
    pieces on a circuit in a round may level the loads.
    """
    # An all-reduce sends everything twice: sums, then copies.
    n = problem.n_ranks
    phases = 2 if problem.operation == "all-reduce" else 1
    if problem.operation == "all-reduce":
        yield from _offer_turned_tori(problem)
        yield from list_walk_offers(problem, clock)
        yield from list_ring_offers(problem)
    for sequence in list_sequences(problem):
        for pieces, most_load in _list_piece_limits(problem, sequence):
            n_sends = phases * n * (n - 1) * pieces
            if pieces > 1 and not is_affordable(n_sends, clock, reserve=RESERVE):
                continue
            # None means that blocks do not reach all ranks over these circuits, or over the
            # reversed ones. Other numbers of pieces do not help then: the next circuits follow.
            gather = spread(n, sequence, pieces, two_way=problem.two_way, most_load=most_load)
            if gather is None:
                break
            scatter = _spread_back(problem, gather, most_load)
            if scatter is None:
                break
            # The time of the offer is that of its all-gathers; backwards they take as long.
            # The name lists the kinds of circuits, each once, in the order of their use.
            size = block_bytes(problem, pieces)
            kinds = sequence.topologies
            name = " then ".join(dict.fromkeys(topology.name for topology in kinds))
            used = {
                "all-gather": (gather,),
                "reduce-scatter": (scatter,),
                "all-reduce": (scatter, gather),
            }[problem.operation]
            seconds = sum(each.seconds(size, problem) for each in used)
            build = partial(_lay_gather, problem, scatter, gather)
            yield Offer(seconds=seconds, n_sends=n_sends, name=name, build=build)
            if problem.operation == "all-reduce":
                yield from _offer_one_pass(problem, gather, name)


def _list_piece_limits(problem: Collective, sequence: CircuitSequence) -> list[tuple[int, int]]:
    """List into how many pieces blocks are cut, and how many pieces a circuit takes in a round.

    A rank can receive the pieces of a block from all of its neighbours at once. A block is cut
    into as many pieces as a rank has ports, or neighbours if several ports lead to the same one:
    these share each piece evenly, so that fewer pieces load all circuits alike. A ring with eight
    two-way ports has two neighbours, and two pieces are enough, which are a quarter of the sends.
    """
    n_ports = problem.lanes
    limits = [(1, UNKNOWN)]
    if n_ports > 1 and sequence.is_circulant:
        limits += [(1, 1), (1, 2)]
    n_neighbours = max(_count_neighbours(topology) for topology in sequence.topologies)
    if 1 < n_neighbours < n_ports:
        limits.append((n_neighbours, UNKNOWN))
    if n_ports > 1:
        limits.append((n_ports, UNKNOWN))
    if n_ports > 1 and sequence.is_circulant:
        limits += [(n_ports, n_ports * factor) for factor in (1, 2, 4, 8)]
    return limits


def _count_neighbours(topology: Topology) -> int:
    """Return to how many different ranks the ports of a rank lead, at most."""
    is_first_circuit = count_parallel(topology.peer) > 0  # [lane, rank]
    return int(is_first_circuit.sum(axis=0).max(initial=0))


def _spread_back(problem: Collective, gather: Gather, most_load: int) -> Gather | None:
    """Simulate the all-gather that a reduce-scatter is, when it runs backwards.

    The result is None if some block does not reach all ranks over them.
    """
    # A sequence that is not made of circulants has one topology, for which no limit counts.
    n = problem.n_ranks
    sequence = gather.sequence
    if problem.two_way or problem.operation == "all-gather":
        return gather
    if sequence.is_circulant:
        back = sequence.reversed_shifts(n)
        return spread(n, back, gather.pieces, two_way=False, most_load=most_load)
    (topology,) = sequence.topologies
    turned = topology._replace(peer=inverse_circuits(topology.peer, two_way=False))
    return spread(n, CircuitSequence((turned,), ()), gather.pieces, two_way=False)


def _lay_gather(problem: Collective, scatter: Gather, gather: Gather) -> Laid:
    """Make the plan of a collective that consists of simulated all-gathers."""
    gathered = list_gather_sends(gather)
    if problem.operation == "all-gather":
        return lay(problem, gathered)
    scattered = run_backwards(list_gather_sends(scatter), two_way=problem.two_way)
    if problem.operation == "reduce-scatter":
        return lay(problem, scattered)
    return lay(problem, one_after_another(scattered, gathered))


def _offer_turned_tori(problem: Collective) -> Iterator[Offer]:
    """List all-reduces over tori that use all ports at once, with their time."""
    round_s = problem.round_s
    for torus in list_turned_tori(problem):
        part_bytes = float(chunk_sizes(problem, torus.n_sides)[0])
        part_s = part_bytes / torus.n_parallel / problem.rate_bytes_per_s

        def build(torus: TurnedTorus = torus) -> Laid:
            """Lay out and time the all-reduce over this torus."""
            return lay(problem, list_turned_rounds(problem, torus))

        yield Offer(
            seconds=torus.n_rounds * (round_s + part_s),
            n_sends=problem.n_ranks * torus.n_sides * torus.n_rounds,
            name="turned torus",
            build=build,
        )


def _offer_one_pass(problem: Collective, gather: Gather, name: str) -> Iterator[Offer]:
    """Offer an all-reduce in which every rank gets all buffers and adds them up by itself.

    It takes n times the bytes of a buffer, but half of the rounds, as sums need not be gathered
    afterwards. An *offer* tells the time of a plan before it is made.
    """
    n = problem.n_ranks
    whole_bytes = n * problem.size_bytes
    if whole_bytes > LONGEST_S * problem.rate_bytes_per_s:
        return
    buffers = replace(problem, operation="all-gather", size_bytes=whole_bytes)
    size = block_bytes(buffers, gather.pieces)
    seconds = gather.seconds(size, problem)

    def build() -> Laid:
        """Lay out the all-gather of buffers, and let every rank add up what it gets."""
        return sum_up(lay(buffers, list_gather_sends(gather)))

    n_sends = n * (n - 1) * gather.pieces
    yield Offer(seconds=seconds, n_sends=n_sends, name=f"{name} of buffers", build=build)

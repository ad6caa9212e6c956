"""Pipelined broadcasts: pieces of a buffer spread over several ports, the rarest piece first.

In each round a rank sends over each circuit a piece that the receiver lacks and that the fewest
ranks have. Over a line this is the usual pipeline; over circuits along the dimensions of a
hypercube in turn it takes as many rounds as the schedule of Johnsson and Ho (1989), pieces +
log2 n - 1; over several ports different pieces leave the root at once.

A *piece* is an equal part of the buffer, a *lane* a port of a rank on some plane (a switch of its
own), and a *configuration* the circuits of all ports that are there at the same time. A place of a
tree is the number of a rank counted from the root.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from optmatch.model import IDLE, Clock, TimeUp
from optmatch.problems import Collective
from optmatch.solvers.collectives.circulant import split_rounds
from optmatch.solvers.collectives.offers import Offer
from optmatch.solvers.collectives.plans import Laid
from optmatch.solvers.collectives.rounds import (
    MOST_PIECES,
    FloatArray,
    IntArray,
    choose_pieces,
    chunk_sizes,
    is_affordable,
    list_aligned_pieces,
)
from optmatch.solvers.collectives.spreading import (
    CircuitSequence,
    Receipts,
    lay_growing_rings,
    lay_phases,
    receive_over_circuits,
)
from optmatch.solvers.collectives.topologies import FAR, Topology, count_hops, list_topologies
from optmatch.solvers.kernels.decorators import kernel

UNKNOWN = 1 << 30
"""The round in which a piece comes that has not come yet."""
PIECE_FACTORS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.4, 2.0)
"""Numbers of pieces that are tried, as parts of what the formula says. With 0.5, 1 and 2 alone
plans take up to 4 % longer."""
MOST_STEPS = 60_000_000
"""Looks at pieces of one simulation, about 0.1 s, after which it gives up."""
MOST_SIMULATED_SENDS = 1 << 22
"""A simulation of more sends is not begun: it would give up."""


class PieceArrays(NamedTuple):
    """The result of `spread_pieces`, in arrays that it writes, and one that it works in."""

    round_of: IntArray
    """``round_of[rank, piece]``: when it comes, -1 at the root."""
    source_of: IntArray
    """``source_of[rank, piece]``: from which rank; not written at the root."""
    n_owners: IntArray
    """``n_owners[piece]``: how many ranks have a piece, or are being sent it."""
    n_sent: IntArray
    """Scratch, ``n_sent[lane]``: the pieces of a rank and round over all circuits to a receiver,
    at the first lane that leads to it."""
    loads: FloatArray
    """``loads[round]``: the most pieces on any circuit, as parallel circuits share evenly; 0
    before."""


@kernel
def spread_pieces(circuits, config_of_round, root, arrays):
    """Simulate a broadcast in which each circuit carries the rarest piece that is of use.

    In each round every circuit carries one of the pieces that its sender had before the round and
    its receiver lacks: that which the fewest ranks have. At first `root` alone has the buffer.

    `circuits` are three arrays of shape (configurations, lanes, ranks): `peer`, the rank to which
    a circuit leads, -1 for none; `width`, how many lanes of the rank lead to the same peer; and
    `first_lane`, the first one of these lanes. Round t has the configuration
    ``config_of_round[t]``.

    A piece is *begun* when the root has sent it for the first time. Pieces are begun in the order
    of their numbers. A circuit need not look at all pieces, therefore: only at those that are
    begun and not at all ranks yet, and at the next one that the root may begin.

    Writes `arrays`, which are `PieceArrays`: when and from where each piece comes to each rank,
    how many ranks have it, and the pieces on the busiest circuit of each round. Returns the number
    of rounds; 0 if the given rounds do not suffice, or if it gave up after `MOST_STEPS` looks at
    pieces.

    Example: the line 0 -> 1 -> 2 with root 0, and 2 pieces. Rank 1 gets piece 0 in round 0, and
    piece 1 in round 1, while rank 2 gets piece 0; with piece 1 at rank 2 there are 3 rounds.
    """
    peer, width, first_lane = circuits
    _, n_lanes, n = peer.shape
    n_pieces = arrays.round_of.shape[1]

    # The root alone has the buffer.
    round_of = arrays.round_of
    round_of[:, :] = UNKNOWN
    round_of[root, :] = -1
    arrays.n_owners[:] = 1
    n_missing = (n - 1) * n_pieces
    first_open = 0  # all pieces before it are at all ranks, or on their way there
    n_begun = 0
    n_steps = 0
    for turn in range(len(config_of_round)):
        config = config_of_round[turn]
        # The root comes first, so that the pieces that it begins count as less rare for others.
        for distance in range(n):
            rank = (root + distance) % n
            arrays.n_sent[:] = 0
            for lane in range(n_lanes):
                receiver = peer[config, lane, rank]
                if receiver < 0 or receiver == root:
                    continue
                # Find the rarest piece that the rank had before this round and the receiver lacks.
                # The receiver lacks a piece whose round is `UNKNOWN`, a number above all rounds.
                rarest = -1
                end_piece = min(n_begun + 1, n_pieces)
                n_steps += end_piece - first_open
                for piece in range(first_open, end_piece):
                    if round_of[rank, piece] >= turn or round_of[receiver, piece] < UNKNOWN:
                        continue
                    if rarest < 0 or arrays.n_owners[piece] < arrays.n_owners[rarest]:
                        rarest = piece
                # The circuit carries this piece; the root may begin the next one after it.
                if rarest >= 0:
                    round_of[receiver, rarest] = turn
                    arrays.source_of[receiver, rarest] = rank
                    arrays.n_owners[rarest] += 1
                    n_missing -= 1
                    n_begun = max(n_begun, rarest + 1)
                    first = first_lane[config, lane, rank]
                    arrays.n_sent[first] += 1
                    load = arrays.n_sent[first] / width[config, lane, rank]
                    arrays.loads[turn] = max(arrays.loads[turn], load)
        # Skip pieces that need not be looked at any more, and end when nothing is missing.
        while first_open < n_pieces and arrays.n_owners[first_open] == n:
            first_open += 1
        if n_missing == 0:
            return turn + 1
        if n_steps > MOST_STEPS:
            return 0
    return 0


class _PieceChoice(NamedTuple):
    """A broadcast that may be simulated."""

    about_s: float
    """About how many seconds it takes, by a formula."""
    pieces: int
    """Into how many equal pieces the buffer is cut."""
    depth: int
    """About how many rounds one piece takes from the root to all ranks."""
    sequence: CircuitSequence
    """Its circuits."""


def list_broadcast_offers(problem: Collective, clock: Clock) -> Iterator[Offer[Laid]]:
    """List plans of a broadcast, with their time, before they are made, while there is time.

    For each sequence of circuits, those that stay and those that change in turn, a formula tells
    about which number of pieces is best; some numbers near it are simulated, which tells the exact
    time.

    Raises
    ------
    TimeUp
        After all offers, if there was no time for some numbers of pieces.
    """
    n = problem.n_ranks
    lanes = problem.lanes
    whole_s = problem.size_bytes / problem.rate_bytes_per_s

    # The first piece takes about `depth` rounds from the root to all ranks, and the others follow,
    # one in a round for each port: p pieces take about depth - 1 + p / lanes rounds. A round takes
    # fixed_s + whole_s / p seconds. The product of both is least for p = sqrt((depth - 1) lanes
    # whole_s / fixed_s), which is 80 for depth 5, 2 lanes, 8 ms and 10 us. Numbers near it are
    # tried (`near_best`), and small ones.
    choices: list[_PieceChoice] = []
    for depth, sequence in chain(
        _list_static(problem), _list_changing(problem), _list_growing(problem)
    ):
        # The fixed seconds of a round, with its part of a change of circuits: the rounds of a
        # configuration share one delay. All count as many rounds as the first one, ``held[0]``.
        fixed_s = problem.round_s
        if len(sequence.peer) > 1:
            fixed_s += problem.delay_s / sequence.held[0]
        n_filling_rounds = max(1, depth - 1)
        best = choose_pieces(n_filling_rounds, lanes * whole_s, fixed_s)
        near_best = {
            pieces
            for factor in PIECE_FACTORS
            for pieces in list_aligned_pieces(
                problem, max(1, min(MOST_PIECES, round(best * factor)))
            )
        }
        for pieces in {1, 2, 3, 4} | near_best:
            if (n - 1) * pieces <= MOST_SIMULATED_SENDS:
                n_rounds = n_filling_rounds + pieces / lanes
                about_s = n_rounds * (fixed_s + whole_s / pieces)
                choices.append(_PieceChoice(about_s, pieces, depth, sequence))

    # One piece, then 2 or 3, then 4 to 7, and so on, each time the fastest by this formula first:
    # a long simulation may end with a slow plan or none, but all short ones come before it. A
    # short limit leaves the last ones out, and plans with too many sends to be laid out in the
    # time that is left are not simulated (`is_affordable`).
    has_skipped = False
    choices.sort(key=lambda choice: (choice.pieces.bit_length(), choice.about_s, choice.pieces))
    for choice in choices:
        pieces = choice.pieces
        if not is_affordable((n - 1) * pieces, clock):
            has_skipped = True
            continue
        receipts = _simulate(problem, choice)  # when each piece comes to each rank
        if receipts is not None:
            yield Offer(
                seconds=receipts.seconds(problem, float(chunk_sizes(problem, pieces)[0])),
                n_sends=receipts.n_rows,
                name=choice.sequence.name,
                build=partial(lay_phases, problem, [receipts], pieces),
            )
    if has_skipped:
        raise TimeUp("no time for all numbers of pieces")


def _simulate(problem: Collective, choice: _PieceChoice) -> Receipts | None:
    """Simulate a broadcast: the result tells when each piece comes to each rank, and from where.

    A piece is a chunk of these receipts. None if the simulation was given up.
    """
    # A pipeline takes about depth + pieces - 1 rounds. A plan of four times as many is of no use;
    # one pass over all configurations is added, as a circuit that is needed may come up last.
    n = problem.n_ranks
    pieces = choice.pieces
    sequence = choice.sequence
    most_rounds = 4 * (choice.depth + pieces) + sum(sequence.held)
    config_of_round = sequence.config_of_round(most_rounds)
    # For each lane how many lanes of its rank lead to the same peer, and the first one of these.
    # is_same[configuration, lane, other lane, rank]: whether both lead to the same one.
    is_same = sequence.peer[:, :, None] == sequence.peer[:, None]
    width = is_same.sum(axis=1)
    first_lane = is_same.argmax(axis=1)
    arrays = PieceArrays(
        round_of=np.empty((n, pieces), dtype=np.int64),
        source_of=np.empty((n, pieces), dtype=np.int64),
        n_owners=np.empty(pieces, dtype=np.int64),
        n_sent=np.empty(problem.lanes, dtype=np.int64),
        loads=np.zeros(len(config_of_round)),
    )
    circuits = (sequence.peer, width, first_lane)
    n_rounds = spread_pieces(circuits, config_of_round, problem.root, arrays)
    if not n_rounds:
        return None

    # The receipts of all ranks but the root, whose pieces have round -1, by round.
    rank, piece = np.nonzero(arrays.round_of >= 0)
    order = np.argsort(arrays.round_of[rank, piece], kind="stable")
    rank, piece = rank[order], piece[order]
    columns = (arrays.round_of[rank, piece], arrays.source_of[rank, piece], rank, piece)
    return receive_over_circuits(
        sequence, arrays.loads[:n_rounds], columns, pieces=pieces, n_rotations=1
    )


def _list_static(problem: Collective) -> Iterator[tuple[int, CircuitSequence]]:
    """List circuits that stay all the time.

    Yields the hops from the root to the farthest rank, and the circuits.
    """
    has_buffer = np.zeros((1, problem.n_ranks), dtype=np.bool_)
    has_buffer[0, problem.root] = True
    for topology in chain(list_topologies(problem), [_lay_tree(problem)]):
        if topology is None:
            continue
        depth = int(count_hops(topology.peer, has_buffer).max())
        if depth < FAR:
            yield depth, CircuitSequence.of([topology])


def _lay_tree(problem: Collective) -> Topology | None:
    """Lay circuits from the root to all ranks as a tree of the least depth.

    Each rank sends to its children. One-way circuits need a port for each child; with two ports
    the root has two children, which have two each, and so on. Two-way circuits take a port at both
    ends, so all ranks but the root have one child less: one port leads to the parent. A two-way
    circuit stays on one plane at both ends.

    The result is None if ranks have one child.
    """
    n = problem.n_ranks
    lanes = problem.lanes
    # With one child for each rank the tree would be a line.
    n_children = lanes - 1 if problem.two_way else lanes
    if n_children < 2:
        return None
    peer = np.full((lanes, n), IDLE)
    next_place = 1
    for place in range(n):
        rank = (place + problem.root) % n
        # A place is the number of a rank counted from the root. Ranks get their children in the
        # order of places: each port that does not lead to the parent gets the next rank without
        # a parent, as long as there are any.
        for lane in np.flatnonzero(peer[:, rank] == IDLE)[: n - next_place]:
            child = (next_place + problem.root) % n
            next_place += 1
            peer[lane, rank] = child
            if problem.two_way:
                # The child answers over its last port of the same plane: a lane has the number
                # plane * ports + port.
                plane = lane // problem.ports
                peer[(plane + 1) * problem.ports - 1, child] = rank
    return Topology("tree", peer)


def _list_changing(problem: Collective) -> Iterator[tuple[int, CircuitSequence]]:
    """List circuits for a broadcast that change in turn, along the sides of a hypercube.

    The circuits of *bit* b pair ranks whose binary numbers differ in digit b alone: for bit 1,
    ranks 0 and 2, 1 and 3, 4 and 6, and so on. Data that have gone over the circuits of every bit,
    in any order, are at all ranks. All lanes have the circuits of one bit at a time, and after the
    last bit the first one comes again.

    One-way circuits of ranks that are no power of two lead 2^b places onward instead, around the
    ring of all ranks. Yields about how many rounds a piece takes to all ranks, and the circuits.
    """
    n = problem.n_ranks
    n_bits = (n - 1).bit_length()
    if n < 3:
        return
    # peer[bit, rank]: the rank to which the circuits of a bit lead, -1 if there is none. With 6
    # ranks those of bit 2 pair 0 and 4, 1 and 5; one-way ones lead four places onward.
    ranks = np.arange(n)
    powers = 1 << np.arange(n_bits)[:, None]
    peer = np.where(ranks ^ powers < n, ranks ^ powers, IDLE)
    if not problem.two_way and n < 1 << n_bits:
        peer = (ranks + powers) % n

    # A piece has to go over the circuits of all bits, one in each round.
    peer = np.repeat(peer[:, None], problem.lanes, axis=1)
    yield n_bits, CircuitSequence("hypercube", peer, (1,) * n_bits, repeats=True)


def _list_growing(problem: Collective) -> Iterator[tuple[int, CircuitSequence]]:
    """List one-way rings whose steps grow: a few changes, each after some rounds.

    Yields the rounds of a piece to all ranks, and the circuits. Between 1,024 ranks four changes
    and 15 rounds can take less time than nine changes and 10 rounds, or than 1,023 rounds.
    """
    if problem.two_way:
        return
    for n_rings in range(2, (problem.n_ranks - 1).bit_length()):
        rounds_of_ring = split_rounds(problem.n_ranks, n_rings)
        yield sum(rounds_of_ring), lay_growing_rings(problem, rounds_of_ring)

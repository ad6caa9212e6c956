"""Pipelined broadcasts: pieces of a buffer spread over several ports, the rarest piece first.

In each round a rank sends over each circuit a piece that the receiver lacks and that the fewest
ranks have. Over a line this is the usual pipeline; over circuits along the dimensions of a
hypercube in turn it takes as many rounds as the schedule of Johnsson and Ho (1989), pieces +
log2 n - 1; over several ports different pieces leave the root at once.

A *piece* is an equal part of the buffer, a *lane* a port of a rank on some plane, and a
*configuration* the circuits of all ports that are there at the same time. A place of a tree is the
number of a rank counted from the root.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from optmatch.model import IDLE, Clock
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY
from optmatch.solvers.collectives.offers import Offer
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import Rounds, chunk_sizes, is_affordable
from optmatch.solvers.collectives.topologies import IntArray, count_parallel, list_topologies
from optmatch.solvers.kernels.decorators import kernel

UNKNOWN = 1 << 30
"""The round in which a piece comes that has not come yet."""
MOST_PIECES = 1024
"""A buffer is cut into so many pieces at most."""
PIECE_FACTORS = (0.5, 0.7, 0.85, 1.0, 1.2, 1.4, 2.0)
"""Numbers of pieces that are tried, as parts of what the formula says. With 0.5, 1 and 2 alone
plans take up to 4 % longer."""
MOST_STEPS = 60_000_000
"""Looks at pieces of one simulation, about 0.1 s; it gives up after so many."""
MOST_TOLD_SENDS = 1 << 22
"""A simulation of more sends is not begun: it would give up."""


class Cycle(NamedTuple):
    """Circuits that are set up one after another, again and again."""

    name: str
    """The name of the circuits, for statistics."""
    peer: IntArray
    """``peer[configuration, lane, rank]``: where each port leads, -1 if it is dark."""
    held: int
    """For how many rounds each configuration is held."""
    depth: int
    """About how many rounds one piece takes from the root to all ranks: of circuits that stay the
    distance of the farthest rank in hops."""

    def config_of(self, turn: IntArray) -> IntArray:
        """Return which configuration of circuits is there in each of some rounds."""
        return turn // self.held % len(self.peer)


class PieceArrays(NamedTuple):
    """The result of `spread_pieces`, in arrays that it writes."""

    round_of: IntArray
    """``round_of[rank, piece]``: when it comes, -1 at the root."""
    source_of: IntArray
    """``source_of[rank, piece]``: from which rank."""
    n_owners: IntArray
    """``n_owners[piece]``: how many ranks have a piece, or are being sent it."""


@kernel
def spread_pieces(peer, held, root, most_rounds, arrays):
    """Simulate a broadcast in which each circuit carries the rarest piece that is of use.

    ``peer[config, lane, rank]`` is the rank to which a circuit leads, -1 for none; each
    configuration is there for `held` rounds. In each round every circuit carries one of the pieces
    that its sender had before the round and its receiver lacks: that which the fewest ranks have.
    Circuits may change in turn, and begin again after the last ones.

    A piece is *begun* when the root has sent it for the first time. Pieces are begun in the order
    of their numbers. A circuit need not look at all pieces, therefore: only at those that are
    begun and not at all ranks yet, and at the next one that the root may begin.

    `arrays`, out:

    - ``round_of[rank, piece]``: the round in which a piece comes, -1 at the root;
    - ``source_of[rank, piece]``: from which rank it comes; not written at the root;
    - ``n_owners[piece]``: how many ranks have it, or are being sent it.

    Returns the number of rounds; 0 if it gave up.
    """
    n_configs, n_lanes, n = peer.shape
    n_pieces = arrays.round_of.shape[1]
    round_of = arrays.round_of
    round_of[:, :] = UNKNOWN
    round_of[root, :] = -1
    arrays.n_owners[:] = 1
    n_missing = (n - 1) * n_pieces
    first_open = 0  # all pieces before it are at all ranks, or on their way there
    n_begun = 0
    n_steps = 0
    for turn in range(most_rounds):
        # After the last configuration the first one comes again.
        config = turn // held % n_configs
        # The root comes first, so that the pieces that it begins count as less rare for others.
        for distance in range(n):
            rank = (root + distance) % n
            for lane in range(n_lanes):
                receiver = peer[config, lane, rank]
                if receiver < 0 or receiver == root:
                    continue
                # Find the rarest piece that the rank had before this round and the receiver lacks.
                # Pieces before `first_open` are at all ranks already, or on their way there.
                rarest = -1
                behind = min(n_begun + 1, n_pieces)
                n_steps += behind - first_open
                for piece in range(first_open, behind):
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
        # Skip pieces that need not be looked at any more, and end when nothing is missing.
        while first_open < n_pieces and arrays.n_owners[first_open] == n:
            first_open += 1
        if n_missing == 0:
            return turn + 1
        if n_steps > MOST_STEPS:
            return 0
    return 0


def list_broadcast_offers(problem: Collective, clock: Clock) -> Iterator[Offer]:
    """List plans of a broadcast, with their time, before they are made, while there is time.

    For each cycle a formula tells the best number of pieces, about; some numbers near it are
    simulated, which tells the exact time.
    """
    n = problem.n_ranks
    lanes = problem.lanes
    round_s = problem.round_s
    whole_s = problem.size_bytes / problem.rate_bytes_per_s

    # With p pieces there are about depth - 1 + p / lanes rounds: the first piece takes `depth`
    # rounds, and the others follow, one for each port. A round takes fixed_s + whole_s / p
    # seconds. The product is least for p = sqrt((depth - 1) lanes whole_s / fixed_s). Small
    # numbers are tried, too; a simulation of too many sends would give up.
    choices: list[tuple[float, int, Cycle]] = []
    for cycle in [*_list_static(problem), *_list_changing(problem)]:
        fixed_s = round_s + _change_s(problem, cycle)
        n_filling_rounds = max(1, cycle.depth - 1)
        best_squared = math.inf
        if fixed_s:
            best_squared = n_filling_rounds * lanes * whole_s / fixed_s
        best = max(1, round(math.sqrt(min(best_squared, MOST_PIECES**2))))
        near = {max(1, min(MOST_PIECES, round(best * factor))) for factor in PIECE_FACTORS}
        for pieces in {1, 2, 3, 4} | near:
            if (n - 1) * pieces <= MOST_TOLD_SENDS:
                n_rounds = n_filling_rounds + pieces / lanes
                choices.append((n_rounds * (fixed_s + whole_s / pieces), pieces, cycle))

    # The fastest by this count come first, as a short limit leaves the last ones out. Plans that
    # take too long to be laid out are not simulated.
    for _, pieces, cycle in sorted(choices, key=lambda choice: choice[:2]):
        if not is_affordable((n - 1) * pieces, clock):
            continue
        arrays = _simulate(problem, cycle, pieces)
        if arrays is None:
            continue

        # The time: that of rounds without bytes, that of the bytes on the busiest circuit of
        # each round, and a delay for each change of circuits.
        piece_bytes = float(chunk_sizes(problem, pieces)[0])
        config_of_round = cycle.config_of(_list_turns(arrays))
        n_changes = int((np.diff(config_of_round) != 0).sum())
        rounds_s = len(config_of_round) * round_s
        bytes_s = _count_busiest(cycle, arrays) * piece_bytes / problem.rate_bytes_per_s
        yield Offer(
            seconds=rounds_s + bytes_s + n_changes * problem.delay_s,
            n_sends=(n - 1) * pieces,
            name=cycle.name,
            build=partial(_lay_broadcast, problem, cycle, arrays),
        )


def _change_s(problem: Collective, cycle: Cycle) -> float:
    """Return the seconds that changes of circuits take for each round, on average."""
    return problem.delay_s / cycle.held if len(cycle.peer) > 1 else 0.0


def _simulate(problem: Collective, cycle: Cycle, pieces: int) -> PieceArrays | None:
    """Simulate a broadcast in equal pieces over circuits that stay or change in turn."""
    # In the order of the fields: round_of and n_owners are set by the simulation; source_of stays
    # IDLE at the root, which receives nothing.
    n = problem.n_ranks
    arrays = PieceArrays(
        np.empty((n, pieces), dtype=np.int64),
        np.full((n, pieces), IDLE),
        np.empty(pieces, dtype=np.int64),
    )

    # A pipeline takes about depth + pieces - 1 rounds. A plan of four times as many is of no use;
    # one pass over all configurations is added, as a circuit that is needed may come up last.
    most_rounds = 4 * (cycle.depth + pieces) + len(cycle.peer) * cycle.held
    n_rounds = spread_pieces(cycle.peer, cycle.held, problem.root, most_rounds, arrays)
    return arrays if n_rounds else None


def _list_turns(arrays: PieceArrays) -> IntArray:
    """List the rounds in which something is sent, ascending; a plan leaves out the others."""
    return np.unique(arrays.round_of[arrays.round_of >= 0])


def _count_busiest(cycle: Cycle, arrays: PieceArrays) -> float:
    """Return how long all rounds of a broadcast last without latencies, in times of one piece.

    A round lasts as long as its busiest circuit needs. Each circuit carries one *piece*, an equal
    part of the buffer. Only parallel circuits, from one rank to the same other one, can have less,
    as they share their pieces evenly: two pieces over three circuits are a load of 2/3 on each.

    ``round_of[rank, piece]`` tells in which round each piece comes to each rank, -1 at the root;
    and ``source_of[rank, piece]``, from which rank.
    """
    turns = _list_turns(arrays)

    # Without parallel circuits each round with a send has one piece on its busiest circuit.
    # width[configuration, lane, rank]: how many circuits of the rank lead to the peer of the lane,
    # at the first of these lanes; 0 at the others.
    width = np.array([count_parallel(peer) for peer in cycle.peer])
    if width.max() == 1:
        return float(len(turns))
    n = width.shape[2]
    # n_parallel[configuration, source, target]: how many circuits lead from one rank to another.
    n_parallel = np.zeros((len(width), n, n))
    config, lane, rank = np.nonzero(width)
    n_parallel[config, rank, cycle.peer[config, lane, rank]] = width[config, lane, rank]
    receiver, piece = np.nonzero(arrays.round_of >= 0)
    turn = arrays.round_of[receiver, piece]
    source = arrays.source_of[receiver, piece]
    # Count the pieces of each pair of ranks in each round. One number stands for a round and a
    # pair, (round * n + source) * n + receiver, so that equal ones can be counted. The pieces of a
    # pair are then shared among its circuits.
    pair_of_round, count = np.unique((turn * n + source) * n + receiver, return_counts=True)
    turn, pair = np.divmod(pair_of_round, n * n)
    load = count / n_parallel[cycle.config_of(turn), pair // n, pair % n]
    # busiest[k]: the largest load in the k-th round in which something is sent.
    busiest = np.zeros(len(turns))
    np.maximum.at(busiest, np.searchsorted(turns, turn), load)
    return float(busiest.sum())


def _lay_broadcast(problem: Collective, cycle: Cycle, arrays: PieceArrays) -> Laid:
    """Make the plan of a simulated broadcast: its sends, its circuits and its time.

    ``round_of[rank, piece]`` tells in which round a piece (an equal part of the buffer) comes to a
    rank, -1 at the root; and ``source_of[rank, piece]``, from which rank.
    """
    # Rounds are numbered anew, without gaps; sends have to ascend by round.
    turns = _list_turns(arrays)
    rank, piece = np.nonzero(arrays.round_of >= 0)
    turn = np.searchsorted(turns, arrays.round_of[rank, piece])
    kind = np.full(len(turn), COPY)
    sends = np.column_stack([turn, arrays.source_of[rank, piece], rank, piece, kind])
    sends = sends[np.argsort(turn, kind="stable")]
    circuits = cycle.peer[cycle.config_of(turns)]
    return lay(problem, Rounds(sends, arrays.round_of.shape[1], circuits))


def _list_static(problem: Collective) -> Iterator[Cycle]:
    """List the circuits that are tried for a broadcast and stay all the time.

    The result ``peer[0, lane, rank]`` tells where each port leads, -1 if it is dark; ``held`` is
    1, as nothing changes; and ``depth`` and ``name``.
    """
    for topology in list_topologies(problem):
        depth = _depth_from(topology.peer, problem.root)
        if depth:
            yield Cycle(topology.name, topology.peer[None], 1, depth)
    tree = _lay_tree(problem)
    if tree is not None:
        yield Cycle("tree", tree[None], 1, _depth_from(tree, problem.root))


def _lay_tree(problem: Collective) -> IntArray | None:
    """Lay circuits from the root to all ranks as a tree of the least depth.

    Each rank sends to its children. One-way circuits need a port for each child; with two ports
    the root has two children, which have two each, and so on. Two-way circuits take a port at both
    ends, so all ranks but the root have one child less: one port leads to the parent. A two-way
    circuit stays on one *plane*, a switch of its own with some ports of each rank, at both ends.

    The result ``peer[lane, rank]`` tells where a port leads, -1 if it is dark. It is None if ranks
    have one child.
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
        # a parent.
        for lane in np.flatnonzero(peer[:, rank] == IDLE):
            if next_place == n:
                return peer
            child = (next_place + problem.root) % n
            next_place += 1
            peer[lane, rank] = child
            if problem.two_way:
                # The child answers over its last port of the same plane: a lane has the number
                # plane * ports + port.
                plane = lane // problem.ports
                peer[(plane + 1) * problem.ports - 1, child] = rank
    return peer


def _depth_from(peer: IntArray, root: int) -> int:
    """Return the hops from the root to the farthest rank, by breadth-first search.

    ``peer[lane, rank]`` tells where each port leads, -1 if it is dark. Returns the hops, one for
    each circuit on the way; 0 if some rank cannot be reached.
    """
    n = peer.shape[1]
    reached = np.zeros(n, dtype=np.bool_)
    reached[root] = True
    layer = np.array([root])
    depth = 0
    # A layer is the ranks that are `depth` hops from the root.
    while not reached.all():
        following = np.unique(peer[:, layer])
        following = following[following >= 0]
        layer = following[~reached[following]]
        if not len(layer):
            return 0
        reached[layer] = True
        depth += 1
    return depth


def _list_changing(problem: Collective) -> Iterator[Cycle]:
    """List circuits for a broadcast that change in turn, along the sides of a hypercube.

    The circuits of *bit* b pair ranks whose binary numbers differ in digit b alone: for bit 1,
    ranks 0 and 2, 1 and 3, 4 and 6, and so on. Data that have gone over the circuits of every bit,
    in any order, are at all ranks. A rank has several ports, called *lanes*, and each of them has
    the circuits of one bit at a time.

    Example: 8 ranks with two lanes, hence the bits 0, 1 and 2. Circuits go through a row of this
    table from left to right, and then begin again. The digits are the bits of lane 0 and lane 1::

        sets of circuits    0    1    2
        lanes alike         00   11   22
        bits dealt in turn  01   20   12

    In the first row data get over all bits within three sets of circuits, in the second row within
    two.

    One-way circuits of ranks that are no power of two lead 2^b places onward instead, around the
    ring of all ranks.
    """
    n = problem.n_ranks
    lanes = problem.lanes
    n_bits = (n - 1).bit_length()
    if n < 3:
        return
    ranks = np.arange(n)
    # peer_of_bit[bit][rank]: the rank to which the circuits of a bit lead, -1 if there is none.
    peer_of_bit = []
    for bit in range(n_bits):
        paired = ranks ^ (1 << bit)
        if problem.two_way or n == 1 << n_bits:
            peer_of_bit.append(np.where(paired < n, paired, IDLE))
        else:
            peer_of_bit.append((ranks + (1 << bit)) % n)

    # An order is an array bits[configuration, lane]. In the first one all lanes have the same bit.
    # In the second one bits are dealt to lanes like cards: with 2 lanes and 3 bits 0 1, 2 0, 1 2,
    # and then 0 1 again. `period`, here 3, is how many rows there are before they come again.
    orders = [np.repeat(np.arange(n_bits)[:, None], lanes, axis=1)]
    if 1 < lanes < n_bits:
        period = n_bits // math.gcd(n_bits, lanes)
        orders.append(np.arange(period * lanes).reshape(period, lanes) % n_bits)

    # A piece has to go over the circuits of all bits. If the lanes of a configuration have k
    # different bits, that takes n_bits / k configurations, each of which stays for `held` rounds.
    for bits in orders:  # bits[configuration, lane]
        peer = np.array(peer_of_bit)[bits]
        depth = math.ceil(n_bits / len(np.unique(bits[0])))
        for held in (1, 2, 4) if problem.delay_s else (1,):
            yield Cycle("hypercube", peer, held, depth * held)

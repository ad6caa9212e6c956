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

from optmatch.model import IDLE
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY
from optmatch.solvers.collectives.offers import Offer
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import Rounds, chunk_sizes
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
        """Return which configuration of circuits is there in each of some rounds.

        Parameters
        ----------
        turn
            The numbers of the rounds, int array of any shape.

        Returns
        -------
        int array, as many
            Each configuration is held for some rounds, and after the last one the first one comes
            again: with 3 configurations held for 2 rounds, the rounds 0 to 7 have 0 0 1 1 2 2 0 0.
        """
        return turn // self.held % len(self.peer)


class PieceArrays(NamedTuple):
    """What `spread_pieces` finds."""

    round_of: IntArray
    """``round_of[rank, piece]``: when it comes, -1 at the root."""
    source_of: IntArray
    """``source_of[rank, piece]``: from which rank."""
    n_owners: IntArray
    """``n_owners[piece]``: how many ranks have a piece, or are being sent it."""


@kernel
def spread_pieces(peer, held, root, most_rounds, arrays):
    """Simulate a broadcast in which each circuit carries the rarest piece that is of use.

    A *piece* is an equal part of the buffer; the rarest one is that which the fewest ranks have. A
    *configuration* is the circuits of all ports that are there at the same time, and a *lane* a
    port of a rank on some plane.

    The root begins pieces in the order of their numbers, as those that it alone has are the
    rarest. A circuit looks only at pieces that were begun, and that some rank still lacks, and
    at the next one that the root may begin.

    Parameters
    ----------
    peer : int array, shape (configurations, lanes, n)
        Where each port leads, -1 if it is dark.
    held : int
        The configurations change after so many rounds, and come again after the last one.
    root : int
        The rank that has all pieces.
    most_rounds : int
        The simulation gives up after so many rounds, or after `MOST_STEPS` looks at pieces.
    arrays : PieceArrays
        Out: ``round_of[rank, piece]``, the round in which a piece comes, -1 at the root;
        ``source_of[rank, piece]``, from which rank it comes; ``n_owners[piece]``, how many ranks
        have it or are being sent it.

    Returns
    -------
    int
        The number of rounds; 0 if it gave up.
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
                # The rarest piece that the rank had before this round and the receiver lacks. All
                # before `first_open` are everywhere; of those not begun only the next one counts.
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
        while first_open < n_pieces and arrays.n_owners[first_open] == n:
            first_open += 1
        if n_missing == 0:
            return turn + 1
        if n_steps > MOST_STEPS:
            return 0
    return 0


def list_broadcast_offers(problem: Collective) -> Iterator[Offer]:
    """Offer pipelined broadcasts over circuits that stay, and over those that change in turn.

    A *cycle* is a row of configurations (the circuits of all ports that are there at the same
    time) that follow each other again and again, each held for some rounds. The buffer is cut into
    equal *pieces*, which follow each other from rank to rank in a pipeline. For each cycle some
    numbers of pieces are simulated, about the number that a formula says is the best one. The
    *depth* of a cycle is about how many rounds one piece takes from the root to all ranks.

    Parameters
    ----------
    problem
        A broadcast of three ranks or more over an ideal switch.

    Yields
    ------
    Offer
        A plan whose time is known from the simulation, and that is laid out only on demand.
    """
    n = problem.n_ranks
    lanes = problem.lanes
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    whole_s = problem.size_bytes / problem.rate_bytes_per_s

    def filling_s(cycle: Cycle) -> float:
        """Return how long one small piece takes to all ranks."""
        return cycle.depth * (round_s + _change_s(problem, cycle))

    # Under a short limit only the first cycles are simulated: those of the least depth come first.
    for cycle in sorted([*_list_static(problem), *_list_changing(problem)], key=filling_s):
        fixed_s = round_s + _change_s(problem, cycle)

        # With p pieces there are about depth - 1 + p / lanes rounds of fixed_s + whole_s / p
        # seconds. This is least for p = sqrt((depth - 1) lanes whole_s / fixed_s).
        n_filling_rounds = max(1, cycle.depth - 1)
        best_squared = math.inf
        if fixed_s:
            best_squared = n_filling_rounds * lanes * whole_s / fixed_s
        best = max(1, round(math.sqrt(min(best_squared, MOST_PIECES**2))))
        near = {max(1, min(MOST_PIECES, round(best * factor))) for factor in PIECE_FACTORS}
        for pieces in sorted({1, 2, 3, 4} | near):
            if (n - 1) * pieces > MOST_TOLD_SENDS:
                continue
            arrays = _simulate(problem, cycle, pieces)
            if arrays is None:
                continue

            # The promise: fixed time of rounds, bytes of the busiest circuits, and changes.
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
    """Return the seconds that changes of circuits take for each round, on average.

    A cycle of several configurations changes once for all rounds for which one is held; a cycle of
    one configuration never changes.
    """
    return problem.delay_s / cycle.held if len(cycle.peer) > 1 else 0.0


def _simulate(problem: Collective, cycle: Cycle, pieces: int) -> PieceArrays | None:
    """Simulate the broadcast of a buffer in equal pieces over a cycle of circuits.

    Parameters
    ----------
    problem
        The broadcast, with its root.
    cycle
        The configurations of circuits, which follow each other again and again. Each is held for
        ``cycle.held`` rounds; one piece needs about ``cycle.depth`` rounds to reach all ranks.
    pieces
        The number of pieces.

    Returns
    -------
    PieceArrays or None
        For each rank and piece, the round in which it comes and the rank that sends it; for each
        piece, the number of ranks that have it. None if a rank still lacks a piece when the
        simulation gives up.
    """
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
    """List the rounds in which something is sent, ascending; the others are left out of the plan.

    ``arrays.round_of[rank, piece]`` is the round in which a piece comes, -1 at the root.
    """
    return np.unique(arrays.round_of[arrays.round_of >= 0])


def _count_busiest(cycle: Cycle, arrays: PieceArrays) -> float:
    """Add up the pieces on the busiest circuit of each round, over all rounds of a broadcast.

    Each circuit carries one piece in a round. Parallel circuits, from one rank to the same other
    one, share theirs evenly: two pieces over three circuits are a load of 2/3 on each.

    Parameters
    ----------
    cycle
        The configurations of circuits, one after another, again and again;
        ``cycle.peer[configuration, lane, rank]`` is where each port leads, -1 if it is dark.
    arrays
        ``round_of[rank, piece]``, in which round each piece (an equal part of the buffer) comes to
        each rank, -1 at the root; and ``source_of[rank, piece]``, from which rank.

    Returns
    -------
    float
        The sum over rounds, in pieces: the rounds take so many times the seconds of one piece,
        beside their latency.
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
    # Count the pieces of each pair of ranks in each round, and share them among its circuits. One
    # number stands for round, source and receiver, so that equal ones can be counted.
    pair_of_round, count = np.unique((turn * n + source) * n + receiver, return_counts=True)
    turn, pair = np.divmod(pair_of_round, n * n)
    load = count / n_parallel[cycle.config_of(turn), pair // n, pair % n]
    busiest = np.zeros(len(turns))
    np.maximum.at(busiest, np.searchsorted(turns, turn), load)
    return float(busiest.sum())


def _lay_broadcast(problem: Collective, cycle: Cycle, arrays: PieceArrays) -> Laid:
    """Lay out the sends of a simulated broadcast.

    Parameters
    ----------
    problem
        The broadcast.
    cycle
        The configurations of circuits, which follow each other again and again.
    arrays
        In which round, and from which rank, each piece (an equal part of the buffer) comes to
        each rank.

    Returns
    -------
    Laid
        The plan, timed, whose chunks are the pieces. Rounds in which nothing comes are left out.
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
    """List the topologies that stay, each with its depth: the hops from the root to the last rank.

    They are the graphs whose degree is the number of ports, and a tree from the root.

    Parameters
    ----------
    problem
        The broadcast, with its root, its ranks and their ports.

    Yields
    ------
    Cycle
        One configuration of circuits, over which the root of the broadcast reaches all ranks.
    """
    for topology in list_topologies(problem):
        depth = _depth_from(topology.peer, problem.root)
        if depth:
            yield Cycle(topology.name, topology.peer[None], 1, depth)
    tree = _lay_tree(problem)
    if tree is not None:
        yield Cycle("tree", tree[None], 1, _depth_from(tree, problem.root))


def _lay_tree(problem: Collective) -> IntArray | None:
    """Lay the tree of least depth: each rank has a port for each child, and one for its parent.

    Two-way circuits lead back on the plane on which they lead there, over the last port of the
    child on this plane. One-way circuits need no port for the parent, and the root never does.

    Parameters
    ----------
    problem
        The broadcast, with its root, its ranks, and its lanes (ports of a rank on all planes).

    Returns
    -------
    int array, shape (lanes, n), or None
        ``peer[lane, rank]``: where a port leads, -1 if it is dark. None if ranks have one child.
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
        # In the order of places each rank is reached before it looks for children.
        # All ports that do not lead to its parent yet lead to the next ranks without a parent.
        for lane in np.flatnonzero(peer[:, rank] == IDLE):
            if next_place == n:
                return peer
            child = (next_place + problem.root) % n
            next_place += 1
            peer[lane, rank] = child
            if problem.two_way:
                # A lane has the number plane * ports + port.
                plane = lane // problem.ports
                peer[(plane + 1) * problem.ports - 1, child] = rank
    return peer


def _depth_from(peer: IntArray, root: int) -> int:
    """Return the hops from the root to the farthest rank, by breadth-first search.

    Parameters
    ----------
    peer
        ``peer[lane, rank]``: where each port leads, -1 if it is dark.
    root
        The rank from which hops are counted.

    Returns
    -------
    int
        The hops, one for each circuit on the way; 0 if some rank cannot be reached.
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
    """List cycles of circuits that lead 1, 2, 4, ... places onward in turn, for a broadcast.

    A *cycle* is a row of configurations, the circuits of all ports at a time, that follow each
    other again and again.

    Two-way circuits pair ranks whose numbers differ in one bit; one-way circuits lead onward
    around the ring of all ranks, so that any number of ranks is possible. Either all lanes lead to
    the same rank, or each lane leads by another bit.

    Example: 8 ranks with two lanes, which either lead by the bits 0, 1 and 2 in turn, both alike;
    or by the bits (0, 1), (2, 0) and (1, 2).

    Parameters
    ----------
    problem
        The broadcast, with its ranks and ports. If changes of circuits take time, configurations
        are held for two and for four rounds, too.

    Yields
    ------
    Cycle
        The configurations, in the order in which they follow each other.
    """
    n = problem.n_ranks
    lanes = problem.lanes
    n_bits = (n - 1).bit_length()
    if n < 3:
        return
    ranks = np.arange(n)
    # peer_of_bit[bit][rank]: the rank whose number differs in this bit, -1 if there is none.
    # One-way circuits of ranks that are no power of two lead 2^bit places onward instead.
    peer_of_bit = []
    for bit in range(n_bits):
        paired = ranks ^ (1 << bit)
        if problem.two_way or n == 1 << n_bits:
            peer_of_bit.append(np.where(paired < n, paired, IDLE))
        else:
            peer_of_bit.append((ranks + (1 << bit)) % n)
    # Each order is an array bits[configuration, lane]. In the second one lanes take the bits in
    # turn; it comes again after as many configurations as let each lane meet each of its bits.
    orders = [np.repeat(np.arange(n_bits)[:, None], lanes, axis=1)]
    if 1 < lanes < n_bits:
        period = n_bits // math.gcd(n_bits, lanes)
        orders.append(np.arange(period * lanes).reshape(period, lanes) % n_bits)

    # A piece needs all bits; one configuration serves as many bits as its lanes have.
    for bits in orders:  # bits[configuration, lane]
        peer = np.array(peer_of_bit)[bits]
        depth = math.ceil(n_bits / len(np.unique(bits[0])))
        for held in (1, 2, 4) if problem.delay_s else (1,):
            yield Cycle("hypercube", peer, held, depth * held)

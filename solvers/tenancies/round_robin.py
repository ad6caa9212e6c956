"""Broadcasts over a round-robin tournament, for jobs whose rounds are whole slots.

In a tournament of n ranks each pair meets once in n - 1 rounds, or in n rounds if n is odd, since
one rank is then idle in each. The tournament is repeated. Whenever the root meets a rank, it sends
the next piece; that rank passes the piece on to all others as it meets them. With n odd, n - 1
pieces come to everybody in n rounds, which is as fast as idle ranks allow. The trees on which the
pieces travel are disjoint: a packing of spanning arborescences (Edmonds 1973).

For 3 ranks, the root 0 and the ranks 1 and 2, the rounds are 0-1, 0-2, 1-2: the root sends one
piece to rank 1 and another one to rank 2, and these exchange them. Two pieces take three rounds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, check_time
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY
from optmatch.solvers.all_to_all.factors import tournament
from optmatch.solvers.collectives.plans import Laid, assemble

_MOST_RANKS = 24
"""Of more ranks the last pieces take longer to get round than idle ranks cost elsewhere."""

_MOST_STEPS = 20_000_000
"""Pieces that are looked at in all simulations together, which takes half a second.

All orders of the rounds of 5 ranks are tried up to 630 pieces, and one order up to 1,990.
"""

_ROOT = 0
"""Tenants do not choose a root, so that a broadcast has the one of `Collective` by default."""


def lay_over_tournament(alone: Collective, slot_s: float) -> Laid | None:
    """Plan a broadcast in rounds, each of which is no longer than a slot, over all pairs in turn.

    A broadcast brings the data of rank 0 (the root) to all ranks. The data are cut into equal
    pieces, and in each round a rank sends one piece to its partner. The partners are those of
    a tournament: its rounds bring each rank together with each other one once, and are repeated.

    Parameters
    ----------
    alone
        The broadcast, on an ideal switch of its own with one port for each rank. It begins at
        rank 0. Its fields `hop_s` (a latency of hops) and `align_bytes` (parts have to be
        multiples of it) are not allowed for.
    slot_s
        The length of a slot in seconds: a round takes no longer.

    Returns
    -------
    Laid or None
        The plan, and the seconds that the circuits of each round are held. None if the collective
        is no broadcast over circuits of both directions, if it has many ranks or pieces, or if not
        even the latency of a round fits into a slot.
    """
    n_ranks = alone.n_ranks
    sending_s = slot_s - alone.alpha_s
    if alone.operation != "broadcast" or not alone.two_way or not 2 < n_ranks <= _MOST_RANKS:
        return None
    if sending_s <= 0.0:
        return None

    # As few pieces as can be, of which each fits into a slot.
    n_pieces = max(1, math.ceil(alone.size_bytes / alone.rate_bytes_per_s / sending_s))

    # ``rounds[round, rank]`` is the partner of a rank. With an odd number of ranks one of them is
    # idle in each round. Which round comes first decides when the root is idle, and whether the
    # last pieces get round quickly: all rounds are tried as the first one, forwards and backwards.
    partners = tournament(n_ranks, bidirectional=True)[:, :n_ranks]
    rounds = np.where(partners < n_ranks, partners, IDLE)
    turned_rounds = [np.roll(rounds, -first, axis=0) for first in range(len(rounds))]
    turned_rounds += [turned[::-1] for turned in turned_rounds]

    # The best of as many trials as there is time for is the one with the fewest rounds.
    n_steps = (n_pieces + n_ranks) * n_ranks * n_pieces  # about, of one simulation
    best: list[list[tuple[int, int, int]]] | None = None
    first_rounds: NDArray[np.int64] = rounds
    for turned in turned_rounds[: _MOST_STEPS // n_steps]:
        check_time()
        sends = _simulate(turned, n_pieces)
        if best is None or len(sends) < len(best):
            best = sends
            first_rounds = turned
    if best is None:
        return None

    # Rows of the plan: round, source, destination, piece, and that the piece is copied. The
    # circuits of round k are those of round k of the tournament, over one port of each rank.
    rows = [
        (number, source, target, piece, COPY)
        for number, sends_of_round in enumerate(best)
        for source, target, piece in sends_of_round
    ]
    order = np.arange(len(best))
    circuits = first_rounds[order % len(first_rounds)][:, None, :]
    return assemble(alone, np.array(rows, dtype=np.int64), n_pieces, circuits, order)


def _simulate(rounds: NDArray[np.int64], n_pieces: int) -> list[list[tuple[int, int, int]]]:
    """Simulate how pieces of data spread from one rank to all, if ranks meet in pairs by turns.

    In each round each rank meets one partner, and sends it one piece: of those that the partner
    lacks, the one that the fewest ranks have; of several such pieces the one that it has had for
    longest. The rounds are repeated until all ranks have all pieces.

    Parameters
    ----------
    rounds : array, shape (rounds, ranks)
        The rank that each rank meets in a round, -1 where it is idle.
    n_pieces
        The number of pieces, all of which rank 0 (the root) has at the beginning.

    Returns
    -------
    list of list of (int, int, int)
        For each round, repeated ones too, the sends: source rank, destination rank and piece.
    """
    # ``has_since[rank][piece]`` is the round in which a rank got a piece. Those of the root count
    # as from rounds before the first one, so that they are sent in their order.
    n_ranks = rounds.shape[1]
    has_since: list[dict[int, int]] = [{} for _ in range(n_ranks)]  # by rank: round of each piece
    has_since[_ROOT] = {piece: piece - n_pieces for piece in range(n_pieces)}
    n_holders = [1] * n_pieces
    sends: list[list[tuple[int, int, int]]] = []
    while sum(n_holders) < n_ranks * n_pieces:
        number = len(sends)
        sends_of_round = []
        for source, target in enumerate(rounds[number % len(rounds)].tolist()):
            offered = []
            if target != IDLE:
                offered = [piece for piece in has_since[source] if piece not in has_since[target]]
            if offered:
                since = has_since[source]
                piece = min(offered, key=lambda piece: (n_holders[piece], since[piece]))
                sends_of_round.append((source, target, piece))

        # What arrives in a round can be passed on from the next one on.
        for _, target, piece in sends_of_round:
            has_since[target][piece] = number
            n_holders[piece] += 1
        sends.append(sends_of_round)
    return sends

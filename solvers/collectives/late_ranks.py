"""All-reduces with several late ranks: the others scatter their sums while they wait.

Each of the E ranks that are in time owns one in E of the buffer, cut into pieces. When the late
ranks come, each of them sends its own data of each piece to the owner, one in a round, and one
piece behind the late rank before it, so that no owner hears from two at once. A piece whose owner
has heard all late ranks is whole; from then on it is copied, the rarest piece first, by
maximum-weight matchings between the ports that these sends leave free. With n ranks, m of them
late, a buffer of S bytes and p pieces of each owner, that takes about E p + m + log2 n rounds of
S / (E p) bytes: little more than the buffer S, which a late rank has to receive in any case, where
a ring takes almost twice as long.
"""

from __future__ import annotations

import numpy as np

from optmatch.model import Clock, uncounted
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.algorithms import list_algorithm_rounds
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import (
    CHUNK,
    DESTINATION,
    SOURCE,
    BoolArray,
    IntArray,
    Rounds,
    list_rows,
    one_after_another,
)

MOST_LATE_ROUNDS_RANKS = 96
"""The most ranks; a round takes n^2 E p steps and a matching, so 96 ranks take some seconds."""
PIECE_COUNTS = (1, 2, 3, 4, 6)
"""Pieces of the part of an owner that are tried: more fill ports sooner, and take more rounds."""
MOST_STEPS = 400_000_000
"""Steps n^2 (E p)^2 of one number of pieces, about a second; the first number is always tried."""


def takes_several_late_ranks(problem: Collective) -> bool:
    """Tell whether a problem is an all-reduce with late ranks that this method takes.

    Fewer than half of the ranks may be late, and circuits are one-way.
    """
    n_late = len(problem.late_s)
    has_few = n_late < problem.n_ranks - n_late and problem.n_ranks <= MOST_LATE_ROUNDS_RANKS
    return problem.flow.sums_for_all and n_late > 0 and has_few and not problem.two_way


def find_late_plan(problem: Collective, clock: Clock) -> Laid:
    """Find a fast plan of an all-reduce with several late ranks, by several cuts of data.

    Each number of pieces in `PIECE_COUNTS` gives a plan, and the fastest one is returned. The
    first is made whatever time is left.

    With 6 owners, for example, the buffer is cut into 6, 12, 18, 24 and 36 pieces.
    """
    plans: list[Laid] = []
    n_late = len(problem.late_s)
    n_owners = problem.n_ranks - n_late
    for pieces in PIECE_COUNTS:
        # More pieces would take too long to plan.
        if plans and (problem.n_ranks * n_owners * pieces) ** 2 > MOST_STEPS:
            break
        after = _spread_late_data(n_owners, n_late, pieces)
        plans.append(lay(problem, list_rounds_around(problem, after, n_owners)))
        if clock.exceeded(0) is not None:
            break
    return min(plans, key=lambda laid: laid.time_s)


def list_rounds_around(problem: Collective, after: Rounds, n_owners: int) -> Rounds:
    """List all rounds of an all-reduce around late ranks: before and `after` these have come.

    The ranks that are in time are called *owners*. While they wait they add up their data, around
    a ring or straight in pairs, after which each has the sums of one equal part of the buffer. In
    `after` they are the ranks 0 to ``n_owners - 1``, and each part is cut into *pieces*, of which
    piece k of owner r is the chunk ``k * n_owners + r``: chunks next to each other have different
    owners. The late ranks follow, the latest one as the last.

    Example with 3 owners and 2 pieces: owner 1 has the chunks 1 and 4.
    """
    # The owners add up their data as if they were alone, each chunk at the rank of its number.
    owners = Collective("reduce-scatter", n_owners, problem.size_bytes, two_way=problem.two_way)
    scatter = list_algorithm_rounds(owners, "direct" if problem.two_way else "ring").sends

    # Each send of a part becomes one send for each of its pieces, in the same round.
    pieces = after.chunk_count // n_owners
    rows = np.repeat(scatter, pieces, axis=0)
    rows[:, CHUNK] += n_owners * np.tile(np.arange(pieces), len(scatter))
    rounds = one_after_another(Rounds(rows, after.chunk_count), after)

    # Now all ranks get their numbers in the problem, by when they are ready: those that are in
    # time are equals, and keep their order.
    rank_of = np.argsort(problem.late, kind="stable")
    rounds.sends[:, [SOURCE, DESTINATION]] = rank_of[rounds.sends[:, [SOURCE, DESTINATION]]]
    return rounds


def _spread_late_data(owners: int, n_late: int, pieces: int) -> Rounds:
    """List the rounds of an all-reduce from the moment on when the late ranks have come.

    The data are cut into equal *pieces*, `pieces` of each owner. The ranks that were in time, 0 to
    ``owners - 1``, have added up theirs already: each piece has an *owner*, rank ``piece %
    owners``, who has its sum over these ranks. The `n_late` late ranks follow. Now two things go
    on at once in each round:

    - each late rank sends its own data of one piece to the owner, who adds them. In round t late
      rank j sends piece t - j (modulo the number of pieces), so no owner hears from two at once;
    - a piece that has the data of all late ranks is *whole*, and is copied by ranks whose ports
      are free.

    Example with 3 owners (ranks 0, 1 and 2), 2 late ranks (3 and 4) and 1 piece each: in round 0
    rank 3 sends piece 0 to rank 0, and rank 4 piece 2 to rank 2; in round 1 rank 3 sends piece 1
    to rank 1, and rank 4 piece 0 to rank 0. After that piece 0 is whole.
    """
    # Each piece is whole nowhere at first, and its owner has heard of no late rank (`n_heard`).
    n = owners + n_late
    n_pieces = owners * pieces
    late_ranks = owners + np.arange(n_late)
    is_whole = np.zeros((n, n_pieces), dtype=np.bool_)  # is_whole[rank, piece]
    n_heard = np.zeros(n_pieces, dtype=np.int64)
    rows: list[IntArray] = []
    round_ = 0
    while not is_whole.all():
        # The sends of late ranks, in the first `n_pieces` rounds: one piece to its owner from each
        # late rank. After these rounds there are none.
        source = target = piece = np.empty(0, dtype=np.int64)
        if round_ < n_pieces:
            source = late_ranks
            piece = (round_ - np.arange(n_late)) % n_pieces
            target = piece % owners

        # Ports that these leave free copy whole pieces; then all sends of the round are written
        # down.
        copies = _match_copies(is_whole, source, target)
        rows.append(list_rows(round_, source, target, piece, REDUCE))
        rows.append(list_rows(round_, *copies.T, COPY))
        # A piece is whole at its owner once all late ranks have been heard. Copies of this round
        # can be sent on from the next round on.
        is_whole[copies[:, 1], copies[:, 2]] = True
        n_heard[piece] += 1
        ready = piece[n_heard[piece] == n_late]
        is_whole[ready % owners, ready] = True
        round_ += 1
    return Rounds(np.concatenate(rows), n_pieces)


def _match_copies(
    is_whole: BoolArray, busy_senders: IntArray, busy_receivers: IntArray
) -> IntArray:
    """Choose what is copied over the free ports of a round, by a maximum-weight matching.

    In a round each rank can send one piece and receive one; `busy_senders` and `busy_receivers`
    list the ranks that do already. ``is_whole[rank, piece]`` tells whether the rank has the piece
    whole. A copy is of use if the sender has the piece whole and the receiver has not. Rare pieces
    should spread first: a piece at k of n ranks weighs 2 - k / n. The result has rows (sender,
    receiver, piece); none if no piece is whole anywhere.

    Example with 3 ranks: rank 0 has pieces 0 and 1 whole, and rank 1 piece 1. Rank 0 sends the
    rarer piece, 0, to rank 1, and rank 1 sends piece 1 to rank 2.
    """
    with uncounted():
        from scipy.optimize import linear_sum_assignment

    # The weight of each piece; and all pieces that somebody has whole, the rarest one first.
    n_owners = is_whole.sum(axis=0)
    value = 2.0 - n_owners / len(is_whole)
    order = np.argsort(n_owners, kind="stable")
    order = order[n_owners[order] > 0]
    if not len(order):
        return np.empty((0, 3), dtype=np.int64)

    # For each pair of ranks the rarest piece of use: is_of_use[sender, receiver, place in the
    # order of rarity] is true of pieces that the sender has and the receiver lacks, and argmax
    # finds the first.
    has = is_whole[:, order]
    is_of_use = has[:, None, :] & ~has[None, :, :]
    place = is_of_use.argmax(axis=2)

    # A pair without such a piece, or with a port that is busy, weighs 0.
    weight = np.where(is_of_use.any(axis=2), value[order][place], 0.0)
    weight[busy_senders] = 0.0
    weight[:, busy_receivers] = 0.0
    source, target = linear_sum_assignment(weight, maximize=True)

    # The matching joins all ranks; pairs of weight 0 send nothing.
    used = weight[source, target] > 0
    source, target = source[used], target[used]
    return np.column_stack([source, target, order[place[source, target]]])

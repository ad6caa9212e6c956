"""All-reduces with several late ranks: the others scatter their sums while they wait.

Each of the E ranks that are in time owns one in E of the buffer, cut into pieces. When the late
ranks come, each of them sends its raw pieces to their owners, one in a round, and one piece behind
the late rank before it, so that no owner hears from two at once. A piece whose owner has heard all
late ranks is whole; from then on it is copied, the rarest piece first, by maximum-weight matchings
between the ports that raw pieces leave free. That takes about E p + m + log2 n rounds of S / (E p)
for p pieces and m late ranks: little more than the buffer S, which a late rank has to receive in
any case, where a ring takes almost twice as long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, uncounted
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.algorithms import list_rounds
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import Rounds, as_rounds, one_after_another

IntArray = NDArray[np.int64]

MOST_LATE_ROUNDS_RANKS = 96
"""The most ranks; a round takes n^2 E p steps and a matching, so 96 ranks take some seconds."""
PIECES = (1, 2, 3, 4, 6)
"""Pieces of the part of an owner that are tried: more fill ports sooner, and take more rounds."""
MOST_STEPS = 400_000_000
"""Steps n^2 (E p)^2 of one number of pieces, about a second; the first number is always tried."""


def takes_several_late_ranks(problem: Collective) -> bool:
    """Tell whether a problem is an all-reduce with late ranks that this method takes.

    A rank is late if it is ready only some seconds after the start (``problem.late_s``). There
    have to be fewer late ranks than others, one-way circuits, and no more than
    `MOST_LATE_ROUNDS_RANKS` ranks in all.
    """
    n_late = len(problem.late_s)
    few = n_late < problem.n_ranks - n_late and problem.n_ranks <= MOST_LATE_ROUNDS_RANKS
    return problem.operation == "all-reduce" and n_late > 0 and few and not problem.two_way


def find_late_plan(problem: Collective, clock: Clock) -> Laid:
    """Return the fastest plan of all numbers of pieces for which there is time.

    While late ranks are not ready, the others add up their data, such that each of them, an
    *owner*, has the sums of one part of the buffer. The part of each owner is cut into some
    *pieces*. When the late ranks come, they send each piece to its owner, one piece in a round,
    and pieces that are whole are copied to all. More pieces fill the ports sooner, but take more
    rounds.

    Parameters
    ----------
    problem
        An all-reduce with late ranks.
    clock
        The limits of the search; the first number of pieces is always tried.

    Returns
    -------
    Laid
        The plan, and for how many seconds the circuits of each epoch (rounds in a row with the
        same circuits) are held.
    """
    best: Laid | None = None
    n_owners = problem.n_ranks - len(problem.late_s)
    for pieces in PIECES:
        if best is not None and (problem.n_ranks * n_owners * pieces) ** 2 > MOST_STEPS:
            break
        laid = lay(problem, _list_late_rounds(problem, pieces))
        if best is None or laid.plan.time_s < best.plan.time_s:
            best = laid
        if clock.exceeded(0) is not None:
            break
    assert best is not None
    return best


def _list_late_rounds(problem: Collective, pieces: int) -> Rounds:
    """List the rounds of the ranks that wait, and those after the late ranks have come.

    The ranks that are in time, the *owners*, add up their data around a ring, after which each has
    the sums of one part of the buffer. Then the late ranks send their data to the owners.

    Parameters
    ----------
    problem
        An all-reduce with late ranks.
    pieces
        Into how many pieces the part of each owner (a rank that is in time) is cut.

    Returns
    -------
    Rounds
        A ring reduce-scatter among the owners, then the spreading of late data: rows of round,
        source, destination, chunk and kind (COPY, or REDUCE for data that are added). The chunks
        are the pieces: piece k of owner r is number ``k * owners + r``.
    """
    n = problem.n_ranks
    n_late = len(problem.late_s)
    owners = n - n_late
    before = Collective("reduce-scatter", owners, problem.size_bytes)
    block_rounds = list_rounds(before, "ring")

    # Piece k of an owner has the number k * owners + owner, so that neighbours have other owners.
    rows = np.repeat(block_rounds.sends, pieces, axis=0)
    rows[:, 3] += owners * np.tile(np.arange(pieces), len(block_rounds.sends))
    first = Rounds(rows, owners * pieces)
    rounds = one_after_another(first, _spread_late_data(owners, n_late, pieces))

    # Until here the owners are the ranks 0 ... owners - 1, and the late ranks the last ones. Now
    # both get their numbers in the problem; columns 1 and 2 are source and destination.
    rank_of = np.argsort(problem.late > 0, kind="stable")
    rounds.sends[:, 1:3] = rank_of[rounds.sends[:, 1:3]]
    return rounds


def _spread_late_data(owners: int, n_late: int, pieces: int) -> Rounds:
    """List the rounds after the late ranks have come.

    A *piece* is an equal part of the buffer. Its *owner* has the sum of it over all ranks that are
    not late. Each late rank sends each piece to its owner, who adds it up, one piece in a round. A
    piece that has the data of all late ranks is whole, and is copied over ports that are free.

    Parameters
    ----------
    owners
        The number of ranks that are not late, 0 to owners - 1: rank r has the sums of the others
        for all pieces whose number is r modulo `owners`.
    n_late
        The number of late ranks, which have the numbers behind the owners.
    pieces
        The number of pieces of each owner.

    Returns
    -------
    Rounds
        Until every rank has every piece whole.
    """
    n = owners + n_late
    count = owners * pieces
    late_ranks = owners + np.arange(n_late)
    is_whole = np.zeros((n, count), dtype=np.bool_)  # is_whole[rank, piece]
    n_heard = np.zeros(count, dtype=np.int64)
    parts: list[IntArray] = []
    turn = 0
    while not is_whole.all():
        # Raw pieces, the data of a late rank alone: late rank j is j pieces behind the first one,
        # and all of them go round in `count` rounds. No owner hears from two late ranks at once,
        # as pieces next to each other have different owners.
        source = target = piece = np.empty(0, dtype=np.int64)
        if turn < count:
            source = late_ranks
            piece = (turn - np.arange(n_late)) % count
            target = piece % owners
        raw = np.column_stack([source, target, piece])
        copies = _match_copies(is_whole, source, target)
        for rows, kind in ((raw, REDUCE), (copies, COPY)):
            turns = np.full((len(rows), 1), turn)
            kinds = np.full((len(rows), 1), kind)
            parts.append(np.hstack([turns, rows, kinds]))
        # A piece is whole at its owner once all late ranks have been heard. Copies of this round
        # can be sent on from the next round on.
        is_whole[copies[:, 1], copies[:, 2]] = True
        n_heard[piece] += 1
        ready = piece[n_heard[piece] == n_late]
        is_whole[ready % owners, ready] = True
        turn += 1
    return as_rounds([], COPY, count)._replace(sends=np.concatenate(parts))


def _match_copies(
    is_whole: NDArray[np.bool_], busy_senders: IntArray, busy_receivers: IntArray
) -> IntArray:
    """Choose copies for the free ports of a round by a maximum-weight matching.

    Each rank can send one piece and receive one. A copy is of use if the sender has the piece
    whole, with the data of all ranks, and the receiver lacks it. A rare piece weighs up to twice
    as much as one that all ranks but one have, so that it spreads first.

    Parameters
    ----------
    is_whole
        ``is_whole[rank, piece]``: whether the rank has the piece with the data of all ranks.
    busy_senders, busy_receivers
        The ranks that send, and those that receive, raw pieces in this round.

    Returns
    -------
    int array, shape (copies, 3)
        Rows of source, destination and piece; no rows if nobody has a piece whole.
    """
    with uncounted():
        from scipy.optimize import linear_sum_assignment

    n = len(is_whole)
    # By piece: how many ranks have it whole, and what a copy of it is worth. Pieces are put in
    # the order of rarity, without those that nobody has.
    n_owners = is_whole.sum(axis=0)
    value = 2.0 - n_owners / n
    order = np.argsort(n_owners, kind="stable")
    order = order[n_owners[order] > 0]
    if not len(order):
        return np.empty((0, 3), dtype=np.int64)

    # of_use[sender, receiver, place in the order of rarity]; the first one that is true is the
    # rarest piece of use. A pair without any, or with a port that is busy, weighs 0.
    has = is_whole[:, order]
    of_use = has[:, None, :] & ~has[None, :, :]
    place = of_use.argmax(axis=2)
    weight = np.where(of_use.any(axis=2), value[order][place], 0.0)
    weight[busy_senders] = 0.0
    weight[:, busy_receivers] = 0.0
    source, target = linear_sum_assignment(weight, maximize=True)
    used = weight[source, target] > 0
    source, target = source[used], target[used]
    return np.column_stack([source, target, order[place[source, target]]])

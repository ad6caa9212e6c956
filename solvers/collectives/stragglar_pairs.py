"""Kernels that lay a plan of doubles on ranks: partners and sends of each round.

Before round t the active chunks are t - 1 (class 0) to t - q (class q - 1, the oldest). Each rank
with the oldest chunk gives it to one without, and takes a younger one for it. The moves of the few
ranks with two active chunks (*doubles*) are planned beforehand: by
`optmatch.solvers.collectives.stragglar`, or by the search beside it. All other ranks hold one
chunk, and only their order matters. The doubles are the ranks 0, 1, ...

Words that are used here:

- the *late rank* joins last and meets one rank in each round. In round t it meets a rank that
  makes chunk t whole, which means reduced over all ranks; from then on chunk t spreads by copies;
- a chunk is *active* while it spreads, for q rounds after it met the late rank. Its *class* is how
  many rounds it has been spreading: 0 for the newest chunk, q - 1 for the oldest one;
- a *double* is a rank that holds two active chunks, and a *move* is what is planned for a double
  in one round: a class, or one of the constants below;
- a *swap* lets a double give the younger one of its chunks and still hold an oldest chunk in the
  next round: it takes a chunk of class q - 2. Its partner gets the young chunk in place of the
  oldest one, is *owed* the oldest chunk, and is repaid in the next round;
- a *bucket* is the list of ranks that give the chunk of one class in the round;
- the *absent rank* makes an odd number of ranks even: whoever is paired with it gets nothing, and
  *misses* a chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel

IDLE = -1
"""A move of a double: it does nothing of its own."""
EXCHANGE = -2
"""A move: the double meets the late rank, and gets a new chunk from it."""
SWAP = -3
"""A move: the double gives the younger one of its two chunks to a rank that gives class q - 2, and
takes the chunk of this class for it."""
REST = -4
"""A move: it faces the absent rank although it holds the oldest chunk: nobody misses that then."""
SEND = 32
"""A move of this plus a class gives the chunk of this class. A class alone is the move that takes
its chunk, and gives the oldest."""
LOSE = 64
"""A move: it gives class q - 2 to the absent rank, and misses the oldest chunk."""
NONE = -1000
"""No chunk: older than all, so an empty rank acts as one that holds the oldest."""

_COPY = 0
"""The kind of a send that is only copied, as in a `CollectivePlan`."""
_REDUCE = 1
"""The kind of a send that the receiver adds to its sum."""
_NOT_CHOSEN = 2
"""The key of a rank that must not be chosen, of those that are compared with `Ranks.key`."""


class Ranks(NamedTuple):
    """The chunks of each rank, and its part in the present round.

    Arrays have shape (ranks,), unless said. The late rank is not among the ranks. Chunks are named
    by number: chunk t is the one that met the late rank in round t.
    """

    hold: NDArray[np.int64]
    """``hold[slot, rank]``, shape (2, ranks): the numbers of the active chunks of a rank; `NONE`
    in an empty slot, which is the second one of all ranks but doubles and ranks that swapped."""
    owed: NDArray[np.int64]
    """The number of the oldest chunk that a rank did not get in the round before, since a double
    swapped with it and gave it a younger one; else `NONE`."""
    met: NDArray[np.int64]
    """1 for a rank that has met the late rank, else 0."""
    missed: NDArray[np.int64]
    """The number of chunks that a rank has missed because it faced the absent rank."""
    owner: NDArray[np.int64]
    """``owner[chunk]``: the rank that had the chunk first."""
    key: NDArray[np.int64]
    """Scratch: keys by which ranks are chosen, the least first."""
    gives: NDArray[np.int64]
    """The number of the chunk that a rank gives to its partner in this round."""
    mate: NDArray[np.int64]
    """The partner of a rank, at one of the two; -1 at the other one, and without a partner."""
    taken: NDArray[np.int64]
    """Whether a rank has a partner in this round already: 1 or 0."""
    bucket: NDArray[np.int64]
    """``bucket[class, place]``, shape (q + 3, ranks): the ranks that give the chunk of a class.
    The last three rows are scratch of `_pair_rest`."""
    size: NDArray[np.int64]
    """``size[class]``, shape (q + 3,): how many ranks a bucket has."""


class SendLog(NamedTuple):
    """The sends of all rounds until now."""

    rows: NDArray[np.int32]
    """Rows of round, source, destination, chunk, kind, shape (sends, 5). Here a chunk is named by
    its owner, the rank that had it first, and not by the round in which it met the late rank."""
    n_written: NDArray[np.int64]
    """Shape (1,): how many rows are written."""


class MatchingRound(NamedTuple):
    """The round that is laid."""

    number: int
    """Its number, from 0; chunk ``number - 1`` is the newest active one."""
    n_active: int
    """How many chunks are active, q."""
    absent: int
    """The number of the rank that is not there, which makes an odd number of ranks even; -1 if all
    ranks are there."""
    moves: NDArray[np.int8]
    """``moves[double]``: the planned move of each double: a class from 0 (it takes its chunk), one
    of the negative constants of this module, `LOSE`, or `SEND` plus a class (it gives its chunk).
    """


def new_ranks(n_active: int, n_ranks: int) -> Ranks:
    """Allocate the workspace of `lay`, which pairs the ranks of each round; nothing is set yet.

    Parameters
    ----------
    n_active
        How many chunks spread at once, q. There is a bucket (a list of the ranks that give a
        chunk) for each of their classes, and three more as scratch.
    n_ranks
        The number of ranks without the late one; the absent rank of odd numbers counts.

    Returns
    -------
    Ranks
        Arrays of shape (n_ranks,), but for `hold` with two slots for each rank, and buckets.
    """

    def of_ranks() -> NDArray[np.int64]:
        """Allocate one number for each rank."""
        return np.empty(n_ranks, dtype=np.int64)

    return Ranks(
        hold=np.empty((2, n_ranks), dtype=np.int64),
        owed=of_ranks(),
        met=of_ranks(),
        missed=of_ranks(),
        owner=of_ranks(),
        key=of_ranks(),
        gives=of_ranks(),
        mate=of_ranks(),
        taken=of_ranks(),
        bucket=np.empty((n_active + 3, n_ranks), dtype=np.int64),
        size=np.empty(n_active + 3, dtype=np.int64),
    )


@inner_kernel
def _choose_rank(ranks, given_class, key):
    """Choose a partner: the free rank with the least key among those that give a certain chunk.

    Parameters
    ----------
    ranks : Ranks
        Reads the bucket of the class (the ranks that give its chunk), and `taken`, which says
        which ranks have a partner already.
    given_class : int
        The class of the chunk that the rank gives in this round: for how many rounds the chunk has
        been spreading.
    key : int array, shape (ranks,)
        The lower, the better; by rank.

    Returns
    -------
    int
        The rank, the first in its bucket of equal ones; -1 if no free rank gives the chunk.
    """
    best = -1
    for place in range(ranks.size[given_class]):
        rank = ranks.bucket[given_class, place]
        if not ranks.taken[rank] and (best < 0 or key[rank] < key[best]):
            best = rank
    return best


@inner_kernel
def _join(ranks, rank, mate):
    """Let two ranks be partners in a round: both are taken, and `mate` has an entry of the first.

    Pairs are gone through by the entries of `mate`, so each pair may have only one.
    """
    ranks.taken[rank] = True
    ranks.taken[mate] = True
    ranks.mate[rank] = mate


@inner_kernel
def _record_send(log, number, source, target, chunk, kind):
    """Write a send as the next row of a log.

    Parameters
    ----------
    log : SendLog
        Gets the row, and counts it.
    number, source, target, chunk, kind : int
        The columns of the row: the round, the rank that sends, the rank that receives, the rank
        that had the chunk first, and `_COPY` or `_REDUCE` (the receiver adds it up).
    """
    row = log.rows[log.n_written[0]]
    row[0] = number
    row[1] = source
    row[2] = target
    row[3] = chunk
    row[4] = kind
    log.n_written[0] += 1


@inner_kernel
def _sort_ranks(turn, order, ranks):
    """Sort ranks by the class that they give; return the double that meets the late rank, or -1.

    In each round the *late rank* meets one rank, and chunk t, for round t, begins to spread from
    these two. The *class* of a chunk is how many rounds it has been spreading, 0 to q - 1, and a
    *bucket* lists the ranks that give the chunk of one class in this round. *Doubles* (ranks with
    two chunks) that take a chunk, and ranks that are *owed* one since a *swap* (they got a younger
    chunk in place of the oldest one), stand in no bucket. An empty rank acts like one that holds
    the oldest chunk.

    Example, q = 3 active chunks, before round 5: chunk 4 has class 0, chunk 3 class 1, and chunk 2
    class 2. A rank that holds chunk 3 alone goes into bucket 1, and gives chunk 3. A double with
    chunks 2 and 4 whose move is 1 gives chunk 2, and is in no bucket, as it takes class 1 later.

    Parameters
    ----------
    turn : MatchingRound
        The number of the round, q (`n_active`), the absent rank, and ``moves[double]``: a class
        that the double takes, `SEND` plus a class that it gives, or a constant such as `SWAP`.
    order : int array, shape (ranks,)
        All ranks in the order in which they stand in the bucket of their class.
    ranks : Ranks
        Reads `hold`, the chunks of a rank, and `owed`. Writes `gives`, the chunk that a rank
        gives, and the buckets with their sizes, and clears the partners (`mate`, `taken`).

    Returns
    -------
    int
        The double whose move is `EXCHANGE`; -1 if no double meets the late rank in this round.
    """
    newest = turn.number - 1
    late_partner = -1
    ranks.size[:] = 0
    for place in range(len(order)):
        rank = order[place]
        ranks.mate[rank] = -1
        ranks.taken[rank] = False
        # A rank with one chunk gives it; `NONE` is so old that it counts as the oldest class.
        ranks.gives[rank] = ranks.hold[0, rank]
        given_class = min(newest - ranks.hold[0, rank], turn.n_active - 1)

        # A double gives the oldest chunk, unless its move says another one. Only a double that
        # gives a class to whoever takes it goes into a bucket; others choose their partners.
        if rank < len(turn.moves):
            move = turn.moves[rank]
            given_class = -1
            ranks.gives[rank] = turn.number - turn.n_active
            if move == EXCHANGE:
                late_partner = rank
            elif move == SWAP:
                ranks.gives[rank] = max(ranks.hold[0, rank], ranks.hold[1, rank])
            elif move == LOSE:
                ranks.gives[rank] = newest - (turn.n_active - 2)
            elif move >= SEND:
                given_class = move - SEND
                ranks.gives[rank] = newest - given_class

        # The absent rank gives nothing, and who is owed a chunk has a partner chosen for it.
        if given_class >= 0 and ranks.owed[rank] == NONE and rank != turn.absent:
            ranks.bucket[given_class, ranks.size[given_class]] = rank
            ranks.size[given_class] += 1
    return late_partner


@inner_kernel
def _meet_late(number, partner, lacks, log, ranks):
    """Let a rank meet the late one, whose rank number equals the number of chunks.

    All ranks but the late one have summed up their data before, in chunks: each of them has one
    chunk, which it *owns*, and which still lacks the data of the late rank. In round t the late
    rank meets a rank that it has not met, and both add what the other has of the chunk of this
    rank. This chunk, whole now, is chunk t. In the rounds after the last chunk the partner only
    gets that chunk if it lacks it.

    Chunks thus have two names: `lacks` and `owner` number them by round, while the rows of the log
    name the rank that owns the chunk.

    Parameters
    ----------
    number : int
        The number of the round, which is that of the new chunk as long as there are new ones.
    partner : int
        The rank that meets the late one.
    lacks : bool array, shape (chunks, ranks)
        ``lacks[chunk, rank]``: whether the rank does not have the chunk, summed over all ranks;
        chunks are numbered by round. Set to False for the chunk and the partner.
    log : SendLog
        Gets two sends that are added (an exchange), or one copy, or nothing: rows of round,
        source, destination, owner of the chunk, and kind.
    ranks : Ranks
        Writes `taken` (the partner is no longer free in this round), `met` (it has met the late
        rank), and ``owner[chunk]``.
    """
    n_chunks = lacks.shape[0]
    late_rank = n_chunks
    chunk = min(number, n_chunks - 1)
    ranks.taken[partner] = True
    if number < n_chunks:
        ranks.met[partner] = 1
        ranks.owner[number] = partner
        _record_send(log, number, partner, late_rank, partner, _REDUCE)
        _record_send(log, number, late_rank, partner, partner, _REDUCE)
    elif lacks[chunk, partner]:
        _record_send(log, number, late_rank, partner, ranks.owner[chunk], _COPY)
    lacks[chunk, partner] = False


@inner_kernel
def _repay(turn, lacks, ranks):
    """Give ranks that swapped in the last round the chunks owed to them; False if that fails.

    Chunks spread from rank to rank for q rounds; the *oldest* one is in its last round. In a
    *swap* a rank gets a younger chunk in place of the oldest one, which it is *owed*. It gets it
    now from a rank that gives the oldest chunk and has the owed one, too; preferably from one that
    has met the late rank (which all ranks have to meet once).

    Example, q = 4: in round 9 rank 7 got chunk 7 in a swap, and is owed chunk 5, which was the
    oldest one. In round 10 chunk 6 is the oldest. A rank that gives chunk 6, and has chunk 5 since
    before, gives chunk 5 to rank 7, and takes chunk 7 for it.

    Parameters
    ----------
    turn : MatchingRound
        The round: how many chunks spread at once, q, and the absent rank, which stands for a
        missing partner (-1 if there is none).
    lacks : bool array, shape (chunks, ranks)
        ``lacks[chunk, rank]``: whether the rank does not have the chunk summed over all ranks.
    ranks : Ranks
        Reads `owed` (the number of a chunk, or `NONE`), `met`, `hold` and the bucket of the oldest
        class (the ranks that give it). Writes the pairs (`mate`, `taken`) and the chunks that they
        give each other (`gives`), and uses `key` as scratch.

    Returns
    -------
    bool
        False if some rank that is owed a chunk finds no rank to pay; the plan cannot be laid then.
    """
    last_chunk = lacks.shape[0] - 1
    for creditor in range(len(ranks.owed)):
        owed = ranks.owed[creditor]
        if owed == NONE:
            continue
        # Payers that have met the late rank come first: what a payer takes may be a young chunk,
        # and ranks that have not met it should take old ones (see `_pair_rest`). A rank without
        # the owed chunk cannot pay; the absent rank, of which `lacks` is not asked, is in no
        # bucket. Chunks after the last one are copies of it, hence the least of two numbers.
        for rank in range(len(ranks.owed)):
            ranks.key[rank] = 1 - ranks.met[rank]
            if rank != turn.absent and owed >= 0 and lacks[min(owed, last_chunk), rank]:
                ranks.key[rank] = _NOT_CHOSEN
        payer = _choose_rank(ranks, turn.n_active - 1, ranks.key)
        if payer < 0 or ranks.key[payer] == _NOT_CHOSEN:
            return False
        # The creditor gives the young chunk that it got in the swap, which is in its second slot.
        _join(ranks, creditor, payer)
        ranks.gives[creditor] = ranks.hold[1, creditor]
        ranks.gives[payer] = owed
    return True


@inner_kernel
def _swap(turn, ranks):
    """Pair doubles whose move is a swap with ranks that give class q - 2; False if that fails.

    A *double* is a rank that holds two chunks that still spread: here the oldest one, of class
    q - 1, and a younger one. (The class of a chunk is how many rounds it has been spreading, and q
    chunks spread at once.) In a *swap* it gives the younger chunk to its partner, which holds the
    chunk of class q - 2 alone, and takes this chunk, which is the oldest one a round later. Hence
    the double spreads its young chunk, and yet has an oldest chunk to give in the next round. The
    partner goes without the oldest chunk for a round, and is owed it (see `_repay`). The sends
    themselves are written by `_exchange_chunks`.

    Example, q = 4, round 9: chunks 8, 7, 6 and 5 have the classes 0, 1, 2 and 3. Double 0 holds
    chunks 5 and 7, and rank 7 holds chunk 6. They swap: double 0 gives chunk 7, and holds 6 and 7;
    rank 7 gives chunk 6, holds 6 and 7, too, and is owed chunk 5.

    Parameters
    ----------
    turn : MatchingRound
        The round: ``moves[double]`` is `SWAP` for the doubles that are paired here.
    ranks : Ranks
        Reads `met` (1 for ranks that have met the late rank, the one that all have to meet once)
        and the bucket of class q - 2, which lists the ranks that give its chunk. Writes `mate` and
        `taken`, and uses `key` as scratch.

    Returns
    -------
    bool
        False if some double finds no partner; the plan cannot be laid then.
    """
    n_doubles = len(turn.moves)
    for double in range(n_doubles):
        if turn.moves[double] != SWAP:
            continue
        # Partners are no doubles: the doubles are the first ranks, and their moves are planned.
        # After the swap and its repayment the partner holds a young chunk alone. Ranks meet the
        # late rank while they hold the oldest one, so those that have met it come first.
        for rank in range(len(ranks.key)):
            ranks.key[rank] = _NOT_CHOSEN
            if rank >= n_doubles:
                ranks.key[rank] = 1 - ranks.met[rank]
        partner = _choose_rank(ranks, turn.n_active - 2, ranks.key)
        if partner < n_doubles:  # a double, or -1: no rank is left
            return False
        _join(ranks, double, partner)
    return True


@inner_kernel
def _face_absent(turn, ranks):
    """Choose the rank that has no partner in a round (faces the absent one); False if that fails.

    The *absent rank* stands in for the partner that one of an odd number of ranks does not have.
    Chunks spread from rank to rank for q rounds, and the *class* of a chunk is how many rounds it
    has been spreading: the chunk of class q - 1 is the oldest one, and goes to ranks that give a
    younger one for it. A rank that gives class q - 2 faces the absent rank with the least harm: it
    *misses* the oldest chunk, which it would have got, but holds the oldest one a round later.

    If no *double* (a rank with two chunks) is planned to face the absent rank, it is a rank of
    class q - 2 that has missed the fewest chunks before; of equals one that has met the late rank
    (whom all ranks have to meet once, while they hold the oldest chunk), and is no double.

    Parameters
    ----------
    turn : MatchingRound
        The round: its number, q, and ``moves[double]``. A double with the move `LOSE` faces the
        absent rank, and one with the move `REST` as well, but that misses nothing.
    ranks : Ranks
        Reads `met` (1 for ranks that have met the late rank), `missed` (how many chunks a rank has
        missed) and the bucket of class q - 2, the list of ranks that give its chunk. Writes
        `taken` and `missed` of the rank that is chosen, and uses `key` as scratch.

    Returns
    -------
    bool
        False if no rank is left that gives class q - 2; the plan cannot be laid then.
    """
    n_doubles = len(turn.moves)
    loser = -1
    for double in range(n_doubles):
        if turn.moves[double] == LOSE or turn.moves[double] == REST:
            loser = double
    if loser < 0:
        for rank in range(len(ranks.key)):
            # The least key is chosen. One missed chunk counts 4, and more than both other reasons
            # together: being a double counts 2, and not having met the late rank 1.
            ranks.key[rank] = 4 * ranks.missed[rank] - ranks.met[rank]
            if rank < n_doubles:
                ranks.key[rank] += 2
        loser = _choose_rank(ranks, turn.n_active - 2, ranks.key)
    if loser < 0:
        return False
    # Before round q there is no oldest chunk that could be missed.
    ranks.taken[loser] = True
    is_missed = loser >= n_doubles or turn.moves[loser] == LOSE
    if turn.number >= turn.n_active and is_missed:
        ranks.missed[loser] += 1
    return True


@inner_kernel
def _take_planned_classes(turn, n_chunks, ranks):
    """Pair doubles that take a chunk with ranks that give it; False if there are too few.

    A *double* is a rank with two chunks that spread. The *class* of a chunk says for how many
    rounds it has spread: in round t, chunk t - 1 has class 0, and chunk t - 1 - c class c. A
    double whose *move* (what is planned for it in this round) is a class takes the chunk of this
    class, and gives its oldest one. A *bucket* is the list of ranks that give the chunk of a
    class in this round.

    When the last chunk has begun to spread no new ones come. The ranks that would hold newer
    chunks hold copies of the last one, so all classes up to that of the last chunk are the same
    chunk. If nobody gives the planned class, a rank of the next such class does as well.

    Parameters
    ----------
    turn : MatchingRound
        The number of the round, q (how many chunks spread at once), and ``moves[double]``, of
        which those from 0 to ``SEND - 1`` are classes that are taken. Doubles are the first ranks.
    n_chunks : int
        How many chunks there are; the last one has the number ``n_chunks - 1``.
    ranks : Ranks
        Reads the buckets, which list the ranks that give each class; writes `mate` (the partner of
        a rank) and `taken`. `key`, by which ranks are chosen, is set to 0: any free rank will do.

    Returns
    -------
    bool
        False if some double finds nobody that gives the class.
    """
    ranks.key[:] = 0
    class_of_last_chunk = turn.number - 1 - (n_chunks - 1)
    last_class_to_try = min(class_of_last_chunk, turn.n_active - 2)  # the oldest is never taken
    for double in range(len(turn.moves)):
        if 0 <= turn.moves[double] < SEND:
            taken_class = turn.moves[double]
            giver = _choose_rank(ranks, taken_class, ranks.key)
            while giver < 0 and taken_class < last_class_to_try:
                taken_class += 1
                giver = _choose_rank(ranks, taken_class, ranks.key)
            if giver < 0:
                return False
            _join(ranks, double, giver)
    return True


@inner_kernel
def _pair_rest(n_active, ranks):
    """Pair the ranks that give the oldest chunk with all others; False if that fails.

    Chunks spread from rank to rank for q rounds, and the *class* of a chunk is how many rounds it
    has been spreading, 0 to q - 1. Each rank gives one chunk to its partner: ranks that hold the
    oldest chunk take a younger one for it. The late rank, which joined last, has to meet each rank
    once, while that holds the oldest chunk. A rank that takes an old class soon holds the oldest
    chunk again, and is free to meet the late rank; so ranks that have not met it yet take the
    oldest classes.

    Parameters
    ----------
    n_active : int
        How many classes there are, q; class q - 1 is the oldest.
    ranks : Ranks
        Reads ``bucket[class]`` and ``size[class]``, the ranks that give each class, and for each
        rank whether it has a partner in this round (`taken`), has met the late rank (`met`), or
        has missed a chunk (`missed`). Writes the pairs into `mate`. The last three buckets are
        scratch.

    Returns
    -------
    bool
        False if more ranks give younger classes than ranks with the oldest chunk are left.
    """
    bucket = ranks.bucket
    size = ranks.size
    oldest_class = n_active - 1

    # Three groups of ranks with the oldest chunk, in the buckets behind those of the classes.
    not_met = n_active
    met_and_missed = n_active + 1
    met_all = n_active + 2
    size[n_active:] = 0
    for index in range(size[oldest_class]):
        rank = bucket[oldest_class, index]
        if not ranks.taken[rank]:
            group = met_all
            if not ranks.met[rank]:
                group = not_met
            elif ranks.missed[rank]:
                group = met_and_missed
            bucket[group, size[group]] = rank
            size[group] += 1

    for given_class in range(oldest_class - 1, -1, -1):
        # The rank that faces the absent one gives class q - 2, and should have missed no chunk
        # before; ranks that take class q - 3 now give class q - 2 in the next round.
        second = met_and_missed
        third = met_all
        if given_class == n_active - 3:
            second = met_all
            third = met_and_missed
        for index in range(size[given_class]):
            giver = bucket[given_class, index]
            if ranks.taken[giver]:
                continue
            # The partner comes from the first of the three groups that is not empty.
            group = third
            if size[not_met] > 0:
                group = not_met
            elif size[second] > 0:
                group = second
            if size[group] == 0:
                return False
            size[group] -= 1
            ranks.mate[bucket[group, size[group]]] = giver
    return True


@inner_kernel
def _exchange_chunks(turn, lacks, log, ranks):
    """Send the chunks that the pairs of a round give each other, and update what ranks hold.

    A pair exchanges one chunk each way; a send is left out if its receiver has the chunk already.
    Chunks spread for q rounds each, and the *oldest* one is in its last round. Each rank *holds*
    one chunk or two that still spread. In a swap a rank gets a younger chunk in place of the
    oldest one, and is *owed* that one, which comes in the next round. The chunks that a rank holds
    are those that it can give later on; all that it has for good is told by `lacks`.

    Parameters
    ----------
    turn : MatchingRound
        The number of the round; q, how many chunks spread at a time; and the moves of the ranks
        with two chunks.
    lacks : bool array, shape (chunks, ranks)
        ``lacks[chunk, rank]``: whether the rank does not have the chunk summed over all ranks, by
        the numbers of chunks; written.
    log : SendLog
        Gets the sends: rows of round, source, destination, owner of the chunk, and kind.
    ranks : Ranks
        Reads `mate`, the partner of a rank; `gives`, the chunk that it gives; and `owner`, the
        rank that had a chunk first. Writes `hold`, the chunks that a rank holds, and `owed`, the
        chunk that it gets a round later.
    """
    last_chunk = lacks.shape[0] - 1
    oldest = turn.number - turn.n_active
    for rank in range(len(ranks.mate)):
        mate = ranks.mate[rank]
        if mate < 0:
            continue

        # A send is written only if it helps. Chunks after the last one are copies of the last.
        for source, target in ((rank, mate), (mate, rank)):
            chunk = min(ranks.gives[source], last_chunk)
            if chunk >= 0 and lacks[chunk, target] and not lacks[chunk, source]:
                lacks[chunk, target] = False
                _record_send(log, turn.number, source, target, ranks.owner[chunk], _COPY)

        # A rank that swapped in the last round gets the chunk that it was owed, which is not
        # active any more; both ranks then hold the chunk that it gave.
        if ranks.owed[rank] != NONE:
            ranks.hold[0, rank] = ranks.gives[rank]
            ranks.hold[0, mate] = ranks.gives[rank]
            ranks.hold[1, rank] = NONE
            ranks.owed[rank] = NONE
            continue

        # Any other rank holds the chunk that it got in place of its oldest one. In a swap the
        # mate gets a younger chunk instead of the oldest, which it is owed from now on.
        slot = 1
        if ranks.hold[0, rank] <= oldest:
            slot = 0
        ranks.hold[slot, rank] = ranks.gives[mate]
        if rank < len(turn.moves) and turn.moves[rank] == SWAP:
            ranks.hold[1, mate] = ranks.gives[rank]
            ranks.owed[mate] = oldest


@inner_kernel
def _pair_ranks(turn, n_chunks, lacks, ranks):
    """Pair all ranks that do not meet the late one; False if that fails.

    In each round of the all-reduce one rank meets the late rank, which joined last, and all others
    exchange chunks in pairs. Most ranks hold one chunk that still spreads; *doubles* hold two, and
    what they do (their *moves*) is planned. In a *swap* a double gives its younger chunk, and its
    partner is *owed* the oldest chunk for a round. The doubles, ranks with two chunks, come first,
    since fewer partners suit them. In order: ranks that are owed a chunk since a swap of the round
    before, doubles that swap now, the rank without a partner if their number is odd, doubles that
    take a chunk as planned, and all others.

    Parameters
    ----------
    turn : MatchingRound
        The round and ``moves[double]``: the class of the chunk that it takes, or a constant such
        as `SWAP`.
    n_chunks : int
        The number of chunks.
    lacks : bool array, shape (chunks, ranks)
        Which rank does not have which chunk reduced over all.
    ranks : Ranks
        Sorted into buckets by `_sort_ranks`, by the *class* of the chunk that a rank gives: how
        many rounds the chunk has been spreading. Gets the pairs in `mate`.

    Returns
    -------
    bool
        False if the moves of the round leave some rank without a partner that suits it.
    """
    if not _repay(turn, lacks, ranks):
        return False
    if not _swap(turn, ranks):
        return False
    if turn.absent >= 0 and turn.number >= turn.n_active - 1 and not _face_absent(turn, ranks):
        return False
    if not _take_planned_classes(turn, n_chunks, ranks):
        return False
    return _pair_rest(turn.n_active, ranks)


@kernel
def lay(n_active, moves, orders, log, lacks, ranks):
    """Write the sends of all rounds of an all-reduce around a late rank.

    In each round one rank meets the late rank, and all others are paired. Their *active* chunks
    are those that met the late rank in the last q rounds and still spread. A rank with the oldest
    one gives it to a rank without, and takes a younger one for it: chunks thus double in number.
    Ranks that hold two active chunks are *doubles*, and their *moves* are planned beforehand: what
    each of them gives or takes in a round. All other ranks hold one, and are equal but for it.

    Parameters
    ----------
    n_active : int
        How many chunks are active, q.
    moves : int8 array, shape (rounds, doubles)
        The moves of the doubles, the ranks 0, 1, ... that hold two active chunks. Each is a class
        (the number of rounds that a chunk has been spreading) whose chunk the double takes for its
        oldest one, `SEND` plus a class that it gives, or `IDLE`, `EXCHANGE` (meets the late rank),
        `SWAP` (gives its young chunk), `LOSE` or `REST` (has no partner).
    orders : int array, shape (orders, ranks)
        ``orders[k]``: the order of equal ranks in rounds k, k + len(orders), ... If there is one
        rank more than chunks, the last is absent: who faces it misses the oldest chunk.
    log : SendLog
        Gets the sends: rows of round, source, destination, owner of the chunk, and kind.
    lacks : bool array, shape (chunks, ranks)
        Which rank does not have which chunk reduced over all; all true at first, and written.
    ranks : Ranks
        Workspace, as `new_ranks` allocates it; what it holds before does not matter.

    Returns
    -------
    int
        How many sends were written; -1 if some round has no pairs that follow the moves.
    """
    n_chunks = lacks.shape[0]
    n_ranks = orders.shape[1]
    absent = -1
    if n_ranks > n_chunks:
        absent = n_ranks - 1

    # At first no rank holds a chunk that spreads, which counts as holding an oldest one.
    ranks.hold[:] = NONE
    ranks.owed[:] = NONE
    ranks.met[:] = 0
    ranks.missed[:] = 0
    log.n_written[0] = 0
    for number in range(len(moves)):
        turn = MatchingRound(number, n_active, absent, moves[number])
        partner = _sort_ranks(turn, orders[number % len(orders)], ranks)

        # Without a double it is a rank that holds the oldest chunk alone and has not met it yet.
        if partner < 0:
            partner = _choose_rank(ranks, n_active - 1, ranks.met)
        if partner < 0 or (ranks.met[partner] and number < n_chunks):
            return -1
        _meet_late(number, partner, lacks, log, ranks)
        if not _pair_ranks(turn, n_chunks, lacks, ranks):
            return -1
        _exchange_chunks(turn, lacks, log, ranks)

        # The partner of the late rank holds the new chunk in place of its oldest one.
        slot = 1
        if ranks.hold[0, partner] <= number - n_active:
            slot = 0
        ranks.hold[slot, partner] = number
    return log.n_written[0]

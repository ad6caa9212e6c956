"""Kernels that lay a plan of doubles on ranks: partners and sends of each round.

`optmatch.solvers.collectives.stragglar` plans what a few ranks do, the *doubles*; here everybody
gets a partner. Rank n - 1 is late, and each other rank meets it once, in the rounds 0 to n - 2.

- The rank that meets the late one in round t makes chunk t whole. In the next q rounds the chunk
  is *active*: ranks that hold it give it on. Its *class* is how many of these rounds are over.
  Before round t the chunks t - 1, t - 2, ..., t - q have the classes 0, 1, ..., q - 1. Class q - 1
  is the *oldest*: it goes to the last ranks that lack it.
- In a round each rank with the oldest chunk gives it to a rank without, and takes the younger one
  of that rank for it. A double holds two active chunks, each other rank one. The doubles are the
  ranks 0, 1, ...; of the others only the order matters. A *bucket* is the list of ranks that give
  the chunk of one class in the round.
- A rank with which a double *swaps* gets a young chunk in place of the oldest one. It is *owed*
  that, and gets it in the next round from a *payer*.
- The *absent* rank, which is only counted, makes an odd number of ranks even. The rank that is
  paired with it *misses* the oldest chunk, unless it has that already.

Example of a round with 8 ranks, q = 3, and rank 7 late. Before round 5 chunks 4, 3 and 2 are
active, with the classes 0, 1 and 2. Chunk 4 is at one rank, chunk 3 at two and chunk 2 at four.
One of these four meets the late rank, which makes chunk 5 whole. The other three are paired with
the ranks of chunks 4 and 3, and take these chunks for chunk 2, which is at all ranks then. There
are no doubles, as the 7 ranks hold one active chunk each.

In all kernels ``lacks[chunk, rank]`` tells whether the rank lacks the whole chunk, and `log` is
the `SendLog`. The round is `this_round`, a `MatchingRound`, and `ranks` are `Ranks`.
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
NO_CHUNK = -1000
"""In place of the number of a chunk: there is none. A rank without a chunk acts as one that holds
the oldest chunk, as this number is below all others: it may meet the late rank, or take any."""

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
    """``hold[slot, rank]``, shape (2, ranks): the numbers of the active chunks of a rank;
    `NO_CHUNK` in an empty slot, which is the second one of all ranks but doubles and ranks that
    swapped."""
    owed: NDArray[np.int64]
    """The number of the oldest chunk that a rank did not get in the round before, since a double
    swapped with it and gave it a younger one; else `NO_CHUNK`."""
    met: NDArray[np.int64]
    """1 for a rank that has met the late rank, else 0."""
    missed: NDArray[np.int64]
    """The number of chunks that a rank has missed."""
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
    """``bucket[class, place]``, shape (q + 1, ranks): the ranks that give the chunk of a class.
    The last row is scratch of `_pair_rest`."""
    size: NDArray[np.int64]
    """``size[class]``, shape (q + 1,): how many ranks a bucket has."""


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
    """The number of the absent rank; -1 if the number of ranks is even."""
    moves: NDArray[np.int8]
    """``moves[double]``: the planned move of each double, a class from 0 or one of the constants
    of this module."""


def new_ranks(n_active: int, n_ranks: int) -> Ranks:
    """Allocate the workspace of `lay`, which pairs the ranks of each round; nothing is set yet."""
    of_ranks = np.empty(n_ranks, dtype=np.int64)  # one number for each rank
    return Ranks(
        hold=np.empty((2, n_ranks), dtype=np.int64),
        owed=of_ranks.copy(),
        met=of_ranks.copy(),
        missed=of_ranks.copy(),
        owner=of_ranks.copy(),
        key=of_ranks.copy(),
        gives=of_ranks.copy(),
        mate=of_ranks.copy(),
        taken=of_ranks.copy(),
        bucket=np.empty((n_active + 1, n_ranks), dtype=np.int64),
        size=np.empty(n_active + 1, dtype=np.int64),
    )


@inner_kernel
def _choose_rank(ranks, given_class, key):
    """Choose a partner: the free rank with the least key among those that give a class.

    They are ``ranks.bucket[given_class]``, and ``key[rank]`` is the lower, the better. Returns the
    rank, the first in the bucket of equal ones; -1 if no free rank gives the chunk. A rank with
    the key `_NOT_CHOSEN` is returned if there are no others, which the caller has to refuse.
    """
    best = -1
    for place in range(ranks.size[given_class]):
        rank = ranks.bucket[given_class, place]
        if not ranks.taken[rank] and (best < 0 or key[rank] < key[best]):
            best = rank
    return best


@inner_kernel
def _join(ranks, rank, mate):
    """Let two ranks be partners in a round: writes ``ranks.taken`` and ``ranks.mate``."""
    ranks.taken[rank] = True
    ranks.taken[mate] = True
    ranks.mate[rank] = mate


@inner_kernel
def _record_send(log, number, source, target, chunk, kind):
    """Write a send as the next row of a log."""
    row = log.rows[log.n_written[0]]
    for column, entry in enumerate((number, source, target, chunk, kind)):
        row[column] = entry
    log.n_written[0] += 1


@inner_kernel
def _sort_ranks(this_round, order, ranks):
    """List which ranks give which chunk in a round, and find who is planned to meet the late rank.

    Writes ``ranks.bucket``, ``ranks.size`` and ``ranks.gives``, and clears ``ranks.mate`` and
    ``ranks.taken``. `order` are all ranks but the late one; each bucket has its ranks in this
    order. What a rank gives, and into which bucket it goes::

        one chunk             this chunk           its class
        double, SEND + class  the chunk of class   class
        double, LOSE          that of class q - 2  none: its partner is the absent rank
        double, SWAP          its younger chunk    none: it chooses a partner (`_swap`)
        double, other moves   the oldest chunk     none: it chooses one, or meets the late rank

    Example with q = 3 in round 5: chunks 4, 3 and 2 have the classes 0, 1 and 2. A rank with
    chunk 3 alone gives it, in bucket 1. A double with chunks 3 and 4 and the move ``SEND + 0``
    gives chunk 4, in bucket 0. One with chunks 2 and 4 and the move 1 gives chunk 2, in no bucket.

    Returns the double whose move is `EXCHANGE`; -1 if there is none.
    """
    # A chunk of class c has the number `newest` - c.
    newest = this_round.number - 1
    oldest_class = this_round.n_active - 1
    late_partner = -1
    ranks.size[:] = 0
    for place in range(len(order)):
        rank = order[place]
        ranks.mate[rank] = -1
        ranks.taken[rank] = False

        # A rank with one chunk gives it. An empty rank holds `NO_CHUNK`, so old that it counts as
        # the oldest class.
        ranks.gives[rank] = ranks.hold[0, rank]
        given_class = min(newest - ranks.hold[0, rank], oldest_class)

        # A double gives the oldest chunk, unless its move says another one. It goes into no bucket
        # (class -1) unless it gives a class to whoever takes it.
        if rank < len(this_round.moves):
            move = this_round.moves[rank]
            given_class = -1
            ranks.gives[rank] = newest - oldest_class
            if move == EXCHANGE:
                late_partner = rank
            elif move == SWAP:
                ranks.gives[rank] = max(ranks.hold[0, rank], ranks.hold[1, rank])
            elif move == LOSE:
                ranks.gives[rank] = newest - (oldest_class - 1)
            elif move >= SEND:  # not `LOSE`, which is more than `SEND` plus any class
                given_class = move - SEND
                ranks.gives[rank] = newest - given_class

        # The absent rank gives nothing. A rank that is owed a chunk, since a double swapped with
        # it in the round before, gets its partner in `_repay`.
        if given_class >= 0 and ranks.owed[rank] == NO_CHUNK and rank != this_round.absent:
            ranks.bucket[given_class, ranks.size[given_class]] = rank
            ranks.size[given_class] += 1
    return late_partner


@inner_kernel
def _meet_late(number, partner, lacks, log, ranks):
    """Let a rank meet the late one in a round, and write what the two send each other.

    Writes ``ranks.owner`` and ``ranks.met``, rows of `log`, and ``lacks[number, partner]``. The
    round is `number`, and `partner` a rank that gives the oldest chunk in it. Example: rank 4
    meets the late rank in round 2. Chunk number 2 is thus the chunk that rank 4 owns, ``owner[2] =
    4``, and both sends have 4 in the column of the chunk.
    """
    # All ranks but the late one own one chunk, so its number is the number of chunks. Numbers
    # after the last chunk stand for copies of it.
    n_chunks = lacks.shape[0]
    late_rank = n_chunks
    chunk = min(number, n_chunks - 1)
    ranks.taken[partner] = True

    # A new chunk becomes whole, as both add what the other one sends, or the last one is copied.
    if number < n_chunks:
        ranks.met[partner] = 1
        ranks.owner[number] = partner
        _record_send(log, number, partner, late_rank, partner, _REDUCE)
        _record_send(log, number, late_rank, partner, partner, _REDUCE)
    elif lacks[chunk, partner]:
        _record_send(log, number, late_rank, partner, ranks.owner[chunk], _COPY)
    lacks[chunk, partner] = False


@inner_kernel
def _repay(this_round, lacks, ranks):
    """Find partners for the ranks that went without a chunk in a swap of the last round.

    Writes the pairs to ``ranks.mate`` and ``ranks.taken``, and what both give to ``ranks.gives``.
    Ends early with False if a rank that is owed a chunk finds nobody. It gets the owed chunk from
    a *payer*: a rank that has it, and would give the oldest chunk of this round otherwise. The
    payer takes the young chunk for it.

    Example with q = 4: in round 9 rank 7 got chunk 7 in a swap, and is owed chunk 5. In round 10
    chunk 6 is the oldest. A rank that holds chunk 6, and got chunk 5 before, gives chunk 5 to rank
    7, and takes chunk 7.
    """
    last_chunk = lacks.shape[0] - 1
    for creditor in range(len(ranks.owed)):
        owed = ranks.owed[creditor]
        if owed == NO_CHUNK:
            continue

        # The keys of payers, of which the least is chosen: 0 for a rank that has met the late
        # rank, else 1. The chunk that a payer takes may be young, and ranks that have not met the
        # late rank should take old chunks (see `_pair_rest`). A rank that lacks the owed chunk
        # cannot pay. Chunks after the last one are copies of it, hence the least of two numbers.
        # `lacks` is not asked of the absent rank, which is in no bucket anyway.
        for rank in range(len(ranks.owed)):
            ranks.key[rank] = 1 - ranks.met[rank]
            if rank != this_round.absent and owed >= 0 and lacks[min(owed, last_chunk), rank]:
                ranks.key[rank] = _NOT_CHOSEN
        payer = _choose_rank(ranks, this_round.n_active - 1, ranks.key)
        if payer < 0 or ranks.key[payer] == _NOT_CHOSEN:
            return False
        # The creditor gives the young chunk that it got in the swap, which is in its second slot.
        _join(ranks, creditor, payer)
        ranks.gives[creditor] = ranks.hold[1, creditor]
        ranks.gives[payer] = owed
    return True


@inner_kernel
def _swap(this_round, ranks):
    """Find partners for the doubles that swap in a round; ends early with False if one finds none.

    A double holds the oldest chunk and a younger one. In a swap it gives the younger one, and
    takes a chunk of class q - 2, which is the oldest in the next round: so it has an oldest chunk
    to give then, too. Its partner gets no oldest chunk in this round, and is owed it until a third
    rank gives it in the next round (`_repay`). Pairs are written to ``ranks.mate`` and
    ``ranks.taken``.

    Example with q = 4, round 9: chunks 8, 7, 6 and 5 have the classes 0, 1, 2 and 3. The double
    lets go of chunk 5, which is not active any more in round 10.

                 holds before   gives   holds after
        double   5 and 7        7       6 and 7
        partner  6              6       6 and 7, and is owed 5
    """
    n_doubles = len(this_round.moves)
    for double in range(n_doubles):
        if this_round.moves[double] != SWAP:
            continue

        # The partner is a free rank that gives class q - 2: one that has met the late rank (key
        # 0) before one that has not (key 1). A rank can meet the late rank only while it holds the
        # oldest chunk, and the partner will hold none for some rounds: after its repayment it is
        # left with the young chunk of the double. Doubles, the first ranks, are never partners, as
        # their moves are planned: `_NOT_CHOSEN` is above all keys, so that one comes out only if
        # no other rank is left.
        for rank in range(len(ranks.key)):
            ranks.key[rank] = _NOT_CHOSEN
            if rank >= n_doubles:
                ranks.key[rank] = 1 - ranks.met[rank]
        partner = _choose_rank(ranks, this_round.n_active - 2, ranks.key)
        if partner < n_doubles:  # a double, or -1: no rank is left
            return False
        _join(ranks, double, partner)
    return True


@inner_kernel
def _face_absent(this_round, ranks):
    """Choose the rank that has no partner in a round, if the number of ranks is odd.

    Such a rank is paired with the absent rank, which is only counted. It is the double that is
    planned to miss the oldest chunk (`LOSE`), or that has it already (`REST`), if there is one.
    Otherwise, of the ranks that give class q - 2, it is one that has missed the fewest chunks
    before. Sets ``ranks.taken`` of this rank, and counts the chunk that it misses in
    ``ranks.missed``. Returns False if nobody can be chosen. Before round q - 1 there is no chunk
    of class q - 2 yet: nobody has to be chosen, and the result is True.

    Example with q = 4 in round 9, whose oldest chunk is 5: rank 7 gives chunk 6, of class 2, to
    the absent rank, which has no chunk 5 for it. Rank 7 misses chunk 5, and goes on with chunk 6.
    """
    n_doubles = len(this_round.moves)
    if this_round.absent < 0 or this_round.number < this_round.n_active - 1:
        return True

    # The double that is planned to be without a partner, if there is one.
    loser = -1
    for double in range(n_doubles):
        if this_round.moves[double] == LOSE or this_round.moves[double] == REST:
            loser = double

    # Else one that gives class q - 2. The absent rank is counted among the half of all ranks that
    # have the oldest chunk. It takes a chunk of class q - 2, the oldest one of the next round, and
    # so is counted among them again: there are as many others as in the round before.
    if loser < 0:
        loser = _choose_rank(ranks, this_round.n_active - 2, ranks.missed)
    if loser < 0:
        return False
    # The oldest chunk of round t is chunk t - q: before round q there is none to miss.
    ranks.taken[loser] = True
    is_missed = loser >= n_doubles or this_round.moves[loser] == LOSE
    if this_round.number >= this_round.n_active and is_missed:
        ranks.missed[loser] += 1
    return True


@inner_kernel
def _take_planned_classes(this_round, n_chunks, ranks):
    """Find partners for the ranks that are planned to take a certain chunk in a round.

    Writes the pairs to ``ranks.mate`` and ``ranks.taken``; ends early with False if nobody gives a
    chunk that a double is planned to take. After the last of the `n_chunks` chunks no new ones
    come. The numbers after it then stand for copies of it, so that several classes are the same
    chunk. If nobody gives the planned class, the next one of these will do.

    Example: 13 chunks, 0 to 12, in round 15. The classes 0, 1 and 2 would be chunks 14, 13 and 12,
    and all stand for chunk 12. A double that is to take class 0 may get it from a rank of class 1
    or 2.
    """
    ranks.key[:] = 0  # any rank of a class will do: the first one in its bucket

    # Classes up to `last_class_to_try` are all copies of the last chunk. The oldest class is never
    # taken, as it stops spreading.
    class_of_last_chunk = this_round.number - 1 - (n_chunks - 1)
    last_class_to_try = min(class_of_last_chunk, this_round.n_active - 2)
    for double in range(len(this_round.moves)):
        if 0 <= this_round.moves[double] < SEND:
            # Go on to older classes, as long as these are the same chunk, until somebody gives it.
            taken_class = this_round.moves[double]
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
    """Pair each rank that gives a younger chunk with one that gives the oldest, which takes it.

    The receivers are the free ranks with the oldest chunk. A rank that takes class q - 2 holds the
    oldest chunk in the next round already, one that takes class 0 only q - 1 rounds later; and
    each rank has to meet the late rank once, while it holds the oldest chunk. Therefore chunks are
    given out from old to young classes, first to receivers that have not met the late rank.

    Example with q = 4. Ranks 1, 2 and 3 hold the oldest chunk, and only rank 3 has not met the
    late rank. Rank 5 gives class 2, ranks 6 and 7 give class 1: rank 3 takes class 2 of rank 5,
    ranks 1 and 2 take class 1.

    `n_active` is q: classes are 0 to q - 1. Writes ``ranks.mate`` of the receivers, and uses the
    last row of ``ranks.bucket`` and ``ranks.size`` as scratch. Ends early with False if a giver
    finds no receiver.
    """
    bucket = ranks.bucket
    size = ranks.size
    oldest_class = n_active - 1

    # Free receivers are a stack, behind the buckets of the classes: ranks that have met the late
    # rank, and on top of them those that have not. ``bucket[stack, size[stack] - 1]`` is the top.
    stack = n_active
    size[stack] = 0
    for has_met in (1, 0):
        for index in range(size[oldest_class]):
            rank = bucket[oldest_class, index]
            if not ranks.taken[rank] and ranks.met[rank] == has_met:
                bucket[stack, size[stack]] = rank
                size[stack] += 1

    # Chunks of old classes first.
    for given_class in range(oldest_class - 1, -1, -1):
        for index in range(size[given_class]):
            giver = bucket[given_class, index]
            if not ranks.taken[giver]:
                if size[stack] == 0:
                    return False
                size[stack] -= 1
                ranks.mate[bucket[stack, size[stack]]] = giver
    return True


@inner_kernel
def _exchange_chunks(this_round, lacks, log, ranks):
    """Let all pairs of a round exchange their chunks: write the sends, and update what ranks hold.

    Appends rows to `log`, clears ``lacks[chunk, rank]`` for what has come, and changes
    ``ranks.hold`` and ``ranks.owed``. A send is written only if the receiver lacks the chunk and
    the sender has it. After the exchange a rank holds the younger chunks, which it may give in
    later rounds; it keeps the data of the oldest one, but does not give them any more.

    Example with q = 4, round 9, whose oldest chunk is 5. Rank 3 holds chunk 5, its partner 8 holds
    chunk 7. After the exchange both have both chunks, and both hold chunk 7, as chunk 5 stops
    spreading. In a swap in the same round double 0 and its partner 4 hold less than they have, and
    rank 4 gets chunk 5 a round later (`_repay`) from rank 9, which holds the oldest chunk then::

                                      double 0    rank 4     rank 9
        before the swap, holds        5 and 7     6
        after the swap, holds         6 and 7     6 and 7    6
        is owed                                   5
        after the repayment, holds                7          7
    """
    last_chunk = lacks.shape[0] - 1
    oldest = this_round.number - this_round.n_active
    for rank in range(len(ranks.mate)):
        # A pair stands at one of its ranks alone: at that which gives the oldest chunk, swaps, or
        # is owed a chunk.
        mate = ranks.mate[rank]
        if mate < 0:
            continue

        # Chunks after the last one are copies of the last.
        for source, target in ((rank, mate), (mate, rank)):
            chunk = min(ranks.gives[source], last_chunk)
            if chunk >= 0 and lacks[chunk, target] and not lacks[chunk, source]:
                lacks[chunk, target] = False
                _record_send(log, this_round.number, source, target, ranks.owner[chunk], _COPY)

        # A rank that swapped in the last round gets the chunk that it was owed, which is not
        # active any more; both ranks then hold the chunk that it gave.
        if ranks.owed[rank] != NO_CHUNK:
            ranks.hold[0, rank] = ranks.gives[rank]
            ranks.hold[0, mate] = ranks.gives[rank]
            ranks.hold[1, rank] = NO_CHUNK
            ranks.owed[rank] = NO_CHUNK
            continue

        # The rank that gave the oldest chunk holds the one that it got in the place of that. Its
        # partner holds what it held before.
        slot = 1
        if ranks.hold[0, rank] <= oldest:
            slot = 0
        ranks.hold[slot, rank] = ranks.gives[mate]

        # In a swap the partner holds the young chunk, too, and is owed the oldest one.
        if rank < len(this_round.moves) and this_round.moves[rank] == SWAP:
            ranks.hold[1, mate] = ranks.gives[rank]
            ranks.owed[mate] = oldest


@kernel
def lay(n_active, moves, orders, log, lacks, ranks):
    """Choose partners, and write the sends, for all rounds of an all-reduce with one late rank.

    `n_active` is q, and ``moves[round, double]`` the plan of the doubles, by the constants of this
    module: `SWAP`, or 1 to take a chunk of class 1. The other ranks differ only by their order:
    ``orders[k]`` lists all ranks but the late one, in the order in which they are looked at in the
    rounds k, k + len(orders), and so on. Returns the number of sends, the first rows of
    ``log.rows``. If in some round not all ranks find a partner, it ends early and returns -1.

    Example with 4 ranks (q = 2), and no doubles: in round 0 rank 0 meets the late rank 3, and
    both have chunk 0 whole. In round 1 rank 1 meets it, and rank 0 gives chunk 0 to rank 2.

    Writes `log`, which has room for n (n - 1) rows, n with the late rank; `lacks`, which says that
    each rank lacks every chunk at first; and `ranks`, scratch from `new_ranks`.
    """
    n_chunks = lacks.shape[0]
    n_ranks = orders.shape[1]

    # Each rank but the late one owns a chunk. One more rank than chunks is the absent rank.
    absent = -1
    if n_ranks > n_chunks:
        absent = n_ranks - 1

    # At first no chunk is whole, and no rank holds one.
    ranks.hold[:] = NO_CHUNK
    ranks.owed[:] = NO_CHUNK
    ranks.met[:] = 0
    ranks.missed[:] = 0
    log.n_written[0] = 0
    for number in range(len(moves)):
        # Every rank but some doubles goes into the bucket of the class that it gives. `partner` is
        # the double that is planned to meet the late rank, or -1.
        this_round = MatchingRound(number, n_active, absent, moves[number])
        partner = _sort_ranks(this_round, orders[number % len(orders)], ranks)

        # If no double is planned to meet the late rank, some other rank does that gives the oldest
        # chunk, one that has not met it (`met` is 0) first. In the rounds after the last chunk,
        # which only spread it, a rank may meet the late rank a second time.
        if partner < 0:
            partner = _choose_rank(ranks, n_active - 1, ranks.met)
        if partner < 0 or (ranks.met[partner] and number < n_chunks):
            return -1
        _meet_late(number, partner, lacks, log, ranks)
        # All others get partners in ``ranks.mate``, in five steps: the ranks that are owed a
        # chunk; doubles that swap; the rank that faces the absent one; doubles that take a certain
        # class; and whoever is left. Each step tells whether it found all of its partners.
        is_paired = _repay(this_round, lacks, ranks) and _swap(this_round, ranks)
        is_paired = is_paired and _face_absent(this_round, ranks)
        is_paired = is_paired and _take_planned_classes(this_round, n_chunks, ranks)
        if not (is_paired and _pair_rest(n_active, ranks)):
            return -1
        _exchange_chunks(this_round, lacks, log, ranks)

        # The partner of the late rank can give the new chunk, number t, from now on. It replaces a
        # chunk that nobody gives any more, of number t - q or less, or an empty slot. With q = 3,
        # a rank that holds chunks 2 and 4 and meets the late rank in round 5 holds 5 and 4 then.
        slot = 1
        if ranks.hold[0, partner] <= number - n_active:
            slot = 0
        ranks.hold[slot, partner] = number
    return log.n_written[0]

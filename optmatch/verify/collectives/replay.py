"""The replay of a collective: circuits, bytes, times, and the data of every rank in the end.

`_replay` checks a plan in this order, and ends where later rules cannot be asked:

1. Form: each block has its chunks and their bytes (`_check_chunks`), entries of sends exist
   (`_check_sends`), parts lie in their chunks (`_check_parts`).
2. Data: who sends a chunk has it, and in the end each rank has what it wants: copies by the round
   in which each piece comes (`_check_copies`), sums by whose data are in them (`check_sums`).
3. Circuits: each lane holds a matching (`_check_epochs`), and each send has circuits to go over
   (`_measure_rounds`).
4. Times: one round after another (`_time_rounds`), or plane by plane (`_check_planes`).
5. The schedule of a solution: it has these circuits (`_check_schedule`).

A *part* is a range of bytes of a chunk that one send carries, and a *piece* a range that no part
cuts. A *place* is a memory of a rank for a chunk: its sum, its own data, or data on their way.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, RTOL, Schedule, Solution
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.fields import plain_fields
from optmatch.problems.collectives.islands import bound_collective
from optmatch.problems.collectives.plan import COPY, KEEP, REDUCE, REPLACE, SUM
from optmatch.verify.bounds import check_solution
from optmatch.verify.demands.bounds import weigh_heaviest
from optmatch.verify.light import check_light, check_shapes, find_over_budget
from optmatch.verify.report import Findings

IntArray = NDArray[np.int64]


class PieceSends(NamedTuple):
    """Sends of whole pieces; columns have shape (sends,)."""

    round_: IntArray
    """The round of each send."""
    source: IntArray
    """The rank that sends."""
    destination: IntArray
    """The rank that receives."""
    piece: IntArray
    """The number of the piece, over all chunks."""
    kind: IntArray
    """``COPY``, ``REDUCE``, ``KEEP`` or ``REPLACE``."""
    source_place: IntArray
    """The place from which it goes at the sender; `SUM` is that of the sum."""
    target_place: IntArray
    """The place into which it goes at the receiver."""

    def take(self, is_taken: NDArray[np.bool_]) -> PieceSends:
        """Return some of the sends in the same order: those with True in a mask by send."""
        return PieceSends(*(column[is_taken] for column in self))


class Pieces(NamedTuple):
    """The pieces of all chunks, and the sends of them."""

    sends: PieceSends
    """All sends, each of one piece; a send of a part of several pieces is several ones."""
    chunk: IntArray
    """``chunk[piece]``: of which chunk it is; pieces of a chunk are in the order of its bytes."""


def _check_parts(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check which parts of chunks a plan sends, and in which memories of ranks it puts them.

    Parts lie in their chunks; only operations that add up have places beside the sum; and a send
    of the kind `KEEP`, which is added to the sum and kept besides, is kept at another place.
    Returns whether the plan can be replayed: False at the first of these rules that is broken.
    """
    if len(plan.parts) and not _check_bytes_of_parts(problem, plan, findings):
        return False
    if problem.operation not in ("all-reduce", "reduce-scatter"):
        return findings.expect("only sums have places", "places", bool(plan.places.any()), False)

    # Without places everything goes into the sum. Column 4 of sends is the kind, and column 1 of
    # places the place at the destination.
    kind = plan.sends[:, 4]
    target_place = np.full(len(kind), SUM)
    if len(plan.places):
        target_place = plan.places[:, 1]
    is_wrong = (kind == KEEP) & (target_place == SUM)  # by send
    return findings.expect_none(
        "what is kept has a place beside the sum", is_wrong, "places[{}]", SUM, "> 0"
    )


def _check_bytes_of_parts(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check that each part of a chunk that is sent lies inside it and is aligned.

    A part is a range of bytes, ``plan.parts[send]``: its first byte and its number of bytes. Plans
    that claim to be the best among those of whole blocks must have no parts. False if a part is
    not inside its chunk.
    """
    chunk_bytes = plan.chunk_bytes[plan.sends[:, 3]]  # by send: of its chunk, which is column 3
    first_byte, n_bytes = plan.parts.T
    is_outside = (first_byte < 0) | (n_bytes < 0)
    is_outside |= first_byte + n_bytes > chunk_bytes * (1 + RTOL)
    if not findings.expect_none(
        "a part lies in its chunk", is_outside, "parts[{}]", plan.parts, chunk_bytes
    ):
        return False

    # Violations that do not hinder a replay: bytes that are not aligned, and parts in a plan of
    # whole blocks.
    if problem.align_bytes:
        is_uneven = (plan.parts % problem.align_bytes != 0).any(axis=1)
        findings.expect_none(
            "a part is a multiple of align_bytes",
            is_uneven,
            "parts[{}]",
            plan.parts,
            problem.align_bytes,
        )
    if plan.among == "whole-blocks":
        findings.refuse("plans of whole blocks send no parts", "parts", len(plan.parts), 0)
    return True


def _list_pieces(plan: CollectivePlan) -> Pieces:
    """List what is sent, piece by piece; without parts of chunks the pieces are the chunks."""
    places = plan.places if len(plan.places) else np.zeros((len(plan.sends), 2), dtype=np.int32)
    rows = np.column_stack([plan.sends, places]).astype(np.int64)
    if len(plan.parts):
        return _cut_into_pieces(plan, rows)
    return Pieces(PieceSends(*rows.T), np.arange(len(plan.chunk_bytes)))


_SAME_CUT = 1e-12
"""Cuts that differ by less, as a part of their chunk, are equal: what sums of parts are off by."""


def _cut_into_pieces(plan: CollectivePlan, rows: IntArray) -> Pieces:
    """Cut the chunks of a plan into pieces, so that each send carries whole pieces.

    A send may carry only a part of a chunk, ``plan.parts[send]``: its first byte and its number of
    bytes. Chunks are cut wherever such a part begins or ends. ``rows[send]`` is round, source,
    destination, chunk, kind, place at the source and place at the destination.

    Example: of a chunk of 10 bytes one send carries bytes 0 to 6, and another one bytes 4 to 10.
    The chunk is cut at 4 and 6 into three pieces, and each of the two sends becomes two sends of a
    piece.
    """
    n_chunks = len(plan.chunk_bytes)
    all_chunks = np.arange(n_chunks)
    # Every part has a cut at its begin and one at its end, and so has every chunk. Cuts are listed
    # in four blocks: the begins of all sends, their ends, the begins of all chunks, their ends. In
    # the example these are [0, 4], [6, 10], [0] and [10]. A part that ends behind its chunk, by
    # rounding, ends with it.
    chunk_of_send = rows[:, 3]  # column 3 is the chunk
    n_sends = len(chunk_of_send)
    chunk_of_cut = np.concatenate([chunk_of_send, chunk_of_send, all_chunks, all_chunks])
    ends_of_chunks = plan.chunk_bytes[chunk_of_send]
    begins = np.minimum(plan.parts[:, 0], ends_of_chunks)
    ends = np.minimum(plan.parts.sum(axis=1), ends_of_chunks)
    byte_of_cut = np.concatenate([begins, ends, np.zeros(n_chunks), plan.chunk_bytes])

    # Number the cuts of all chunks together, sorted by chunk and byte; equal ones get one number.
    # In this order a cut is new (`is_new`), and begins the next number, if it is of another chunk
    # than the one before, or further on than rounding explains. The tolerance for that is a share
    # of the chunk, so small that with all cuts of a chunk it adds up to `RTOL` of it at most.
    order = np.lexsort([byte_of_cut, chunk_of_cut])
    n_cuts_of_chunk = np.bincount(chunk_of_cut, minlength=n_chunks)
    share = np.minimum(_SAME_CUT, RTOL / n_cuts_of_chunk)
    tolerance_bytes = (share * plan.chunk_bytes)[chunk_of_cut[order]]
    gap_bytes = np.diff(byte_of_cut[order])
    is_other_byte = gap_bytes > tolerance_bytes[1:]
    is_other_chunk = np.diff(chunk_of_cut[order]) != 0
    is_new = np.append(True, is_other_byte | is_other_chunk)
    # Cuts of one number have to be equal to the first of them, not to their neighbours alone. With
    # a tolerance of 1 byte and cuts at 4, 4.8 and 5.6, none is far from its neighbour, but 5.6 is
    # too far from 4, and is new. (A second cut at 5.6 has the same byte as that, and is not.)
    first_byte = byte_of_cut[order][is_new][np.cumsum(is_new) - 1]
    is_far = byte_of_cut[order] - first_byte > tolerance_bytes
    is_new[1:] |= is_far[1:] & (gap_bytes > 0)
    number_of_cut = np.empty(len(chunk_of_cut), dtype=np.int64)
    number_of_cut[order] = np.cumsum(is_new) - 1

    # A piece is between two cuts, and the last cut of a chunk begins none. In chunk c there are c
    # such cuts before: the piece that a cut begins is the number of the cut less c. With cuts at
    # 0, 4, 6 and 10 of chunk 0, numbers 0 to 3, the pieces are 0, 1 and 2; the first cut of chunk
    # 1 has number 4, and begins piece 4 - 1 = 3. A part, or a chunk, has as many pieces as there
    # are from its begin to its end, both taken from the four blocks.
    piece_of_cut = number_of_cut - chunk_of_cut
    first_piece = piece_of_cut[:n_sends]
    n_pieces_of_send = piece_of_cut[n_sends : 2 * n_sends] - first_piece
    n_pieces_of_chunk = piece_of_cut[-n_chunks:] - piece_of_cut[-2 * n_chunks : -n_chunks]

    # A send of several pieces becomes a row for each of them, with the piece in column 3. Row k of
    # a send that carries the pieces from 5 on has piece 5 + k. If 8 rows of other sends stand
    # before, it is row 8 + k of all: its `offset`, 5 - 8, plus this number is the piece.
    rows_of_pieces = np.repeat(rows, n_pieces_of_send, axis=0)
    n_rows_before = np.cumsum(n_pieces_of_send) - n_pieces_of_send
    offset = np.repeat(first_piece - n_rows_before, n_pieces_of_send)
    rows_of_pieces[:, 3] = offset + np.arange(len(rows_of_pieces))
    chunk_of_piece = np.repeat(all_chunks, n_pieces_of_chunk)
    return Pieces(PieceSends(*rows_of_pieces.T), chunk_of_piece)


# The data of every rank in operations that add nothing up: who has a chunk, and when it came

_BEFORE_ALL_ROUNDS = -1


def _check_copies(problem: Collective, plan: CollectivePlan, findings: Findings) -> None:
    """Check that ranks only send what they have, and in the end have what they want.

    Of each rule the first place where it is broken is told. This replays a plan of an all-gather,
    an all-to-all or a broadcast. These operations add nothing up and lose nothing, so it is enough
    to know in which round each *piece* of the data first comes to each rank. A piece is a part of
    a chunk that no send cuts.
    """
    kind = plan.sends[:, 4]  # COPY, or a kind that adds up
    findings.expect_none(
        f"{problem.operation} adds nothing up", kind != COPY, "sends[{}, 4]", kind, COPY
    )

    # ``owner[piece]``: the rank that has it at the beginning. Chunks are numbered owner by owner,
    # equally many of each; owners are the first `stored_ranks`, or all ranks if that is 0. In an
    # all-to-all each block is one chunk: that of rank r for rank d is chunk ``r * n_ranks + d``.
    pieces = _list_pieces(plan)
    sends = pieces.sends
    n_pieces = len(pieces.chunk)
    n_owners = plan.stored_ranks or problem.n_ranks
    owner = pieces.chunk // max(len(plan.chunk_bytes) // n_owners, 1)
    if problem.operation == "broadcast":
        owner = np.full(n_pieces, problem.root)

    # A key is a piece at a rank, rank * n_pieces + piece. The round of a key is the first one in
    # which the piece comes to the rank; owners have theirs before all rounds.
    first_keys = owner * n_pieces + np.arange(n_pieces)
    arrived_keys = sends.destination * n_pieces + sends.piece
    keys = np.concatenate([first_keys, arrived_keys])
    rounds = np.concatenate([np.full(n_pieces, _BEFORE_ALL_ROUNDS), sends.round_])
    order = np.lexsort([rounds, keys])
    known_keys, first_place = np.unique(keys[order], return_index=True)
    first_round = rounds[order][first_place]

    # A sender has the piece if it came in an earlier round. The search leaves the last key out, so
    # that it always finds a place: a key that is larger than all is compared with the last one,
    # and differs.
    sent_keys = sends.source * n_pieces + sends.piece
    place = np.searchsorted(known_keys[:-1], sent_keys)
    has_piece = (known_keys[place] == sent_keys) & (first_round[place] < sends.round_)
    for send in np.flatnonzero(~has_piece)[:1]:
        chunk = pieces.chunk[sends.piece[send]]
        where = f"round {sends.round_[send]}, rank {sends.source[send]}"
        findings.refuse("who sends a chunk has it", where, f"no chunk {chunk}", "the chunk")

    # In the end each rank has all that it wants, in whichever round it came: everything, or of an
    # all-to-all the chunks for it. The number of such a chunk, source * n_ranks + destination, is
    # also the index of its bytes in the flattened table of the bytes of blocks.
    if problem.operation == "all-to-all":
        is_wanted = _wanted_blocks(problem, n_owners).ravel()[pieces.chunk] > 0
        destination = pieces.chunk % problem.n_ranks
        wanted_keys = (destination * n_pieces + np.arange(n_pieces))[is_wanted]
    else:
        wanted_keys = np.arange(problem.n_ranks * n_pieces)
    is_missing = known_keys[np.searchsorted(known_keys[:-1], wanted_keys)] != wanted_keys
    for key in np.sort(wanted_keys[is_missing])[:1].tolist():
        rank, piece = divmod(key, n_pieces)
        rule = "in the end every rank has what it wants"
        got = f"no chunk {pieces.chunk[piece]}"
        findings.refuse(rule, f"rank {rank}", got, "the chunk")


def _wanted_blocks(problem: Collective, n_owners: int) -> NDArray[np.float64]:
    """Return the bytes of an all-to-all, shape (n_owners, ranks): by source and destination."""
    if problem.demand_bytes is not None:
        return problem.demand_bytes[:n_owners]
    even_bytes = np.full((n_owners, problem.n_ranks), problem.size_bytes / problem.n_ranks)
    np.fill_diagonal(even_bytes, 0.0)
    return even_bytes


# The data of every rank in operations that add up: whose data are in each sum

MOST_BYTES = 1 << 25
"""The memory of the sets that are held at a time; pieces do not mix, so others come after them.
With 8 times of it to replay a reduce-scatter of 4,096 ranks in islands of 64 takes 3 times as
long, as the sets do not fit into caches; with half of it it takes as long."""
_BITS = 64
"""Bits of a word of a set."""

Sets = NDArray[np.uint64]
"""Sets of ranks as bits, shape (sets, words): bit r % 64 of word r // 64 is rank r."""


def check_sums(problem: Collective, plan: CollectivePlan, findings: Findings) -> None:
    """Check that a plan adds up the data of all ranks, each once, by replaying its sends.

    A sum is represented by the set of the ranks whose data are in it. The first violation ends the
    replay. Apart from what clashes inside a round (`_replay_round`), it is one if

    - a rank sends what it does not have;
    - data of a rank are added to a sum that has them already;
    - a rank lacks data of some rank in the end.
    """
    # Pieces do not mix, and can be replayed in batches. The sets of a batch, one for each rank and
    # piece or more, fit into about `MOST_BYTES`.
    pieces = _list_pieces(plan)
    n_pieces = len(pieces.chunk)
    bytes_of_set = 8 * _count_words(problem.n_ranks)
    n_together = max(1, MOST_BYTES // (bytes_of_set * problem.n_ranks))
    for first in range(0, n_pieces, n_together):
        end_piece = min(first + n_together, n_pieces)
        is_inside = (pieces.sends.piece >= first) & (pieces.sends.piece < end_piece)
        sends = pieces.sends.take(is_inside)
        sends = sends._replace(piece=sends.piece - first)  # pieces of a batch count from 0
        state = _SumState(problem, pieces.chunk[first:end_piece], sends)
        # The sends of a round are a range of them, as rounds ascend.
        rounds, first_sends = np.unique(sends.round_, return_index=True)
        ranges = pairwise([*first_sends.tolist(), len(sends.round_)])
        for round_, (begin, end) in zip(rounds.tolist(), ranges, strict=True):
            of_round = slice(begin, end)
            if not _replay_round(state, sends.kind[of_round], of_round, round_, findings):
                return
        # Each block has equally many chunks; a plan stores those of the first `stored_ranks`, or
        # of all ranks if that is 0.
        n_owners = plan.stored_ranks or problem.n_ranks
        n_chunks_of_block = max(len(plan.chunk_bytes) // n_owners, 1)
        if not _check_ends(problem, state, n_chunks_of_block, findings):
            return


def _count_words(n_ranks: int) -> int:
    """Return how many words a set of ranks has."""
    return -(-n_ranks // _BITS)


class _SumState:
    """Whose data are at each place of each piece at each rank, while rounds are replayed.

    A slot is a place of a piece at a rank, ``(place * n_ranks + rank) * n_pieces + piece``, and
    its set are the ranks whose data are there. Sums have the first sets, by rank and then by
    piece, and beside them only slots that sends use have one. ``sets[set]`` are the ranks as bits,
    and ``is_filled[set]`` tells whether there are any. A send reads ``source_set[send]`` and
    writes ``target_set[send]``; ``sum_set[send]`` is the sum of its destination.

    Parameters
    ----------
    problem
        The collective.
    chunk
        ``chunk[piece]``: the chunk of each piece that is replayed.
    sends
        The sends of these pieces.
    """

    def __init__(self, problem: Collective, chunk: NDArray[np.int64], sends: PieceSends) -> None:
        """Begin the replay of a sum: each rank has its own data in its sum, and nothing else.

        Place 0 of a rank is its sum, place 1 what it had at the start, and other places keep data
        that came from other ranks. With 4 ranks and 10 pieces, place 1 of piece 3 at rank 2 is
        slot (1 * 4 + 2) * 10 + 3 = 63.
        """
        # The slots that are used: all sums (the first `n_sums` ones), and of each send the slot
        # that it reads, the one that it writes, and the sum of that piece at its destination,
        # which `KEEP` adds to as well. The last two are the same slot if a send writes into the
        # sum.
        self.n_ranks = problem.n_ranks
        self.chunk = chunk
        n_sums = self.n_ranks * len(chunk)
        source_slot = self._find_slots(sends.source_place, sends.source, sends.piece)
        target_slot = self._find_slots(sends.target_place, sends.destination, sends.piece)
        sum_place = np.full(len(sends.piece), SUM)
        sum_slot = self._find_slots(sum_place, sends.destination, sends.piece)

        # Slots that nothing uses take no memory: those that are used are numbered, as sets, in
        # ascending order of slots. If the sums are the slots 0 to 39, and of all others 63 and 70
        # are used, they are sets 40 and 41. The inverse of `np.unique` has the set of each slot
        # listed: of the sums, then of the three for all sends.
        slots = [np.arange(n_sums), source_slot, target_slot, sum_slot]
        self.slot_of_set: NDArray[np.int64]
        """``slot_of_set[set]``: the slot of each set; those of the sums come first."""
        self.slot_of_set, set_of_slot = np.unique(np.concatenate(slots), return_inverse=True)
        self.source_set, self.target_set, self.sum_set = set_of_slot[n_sums:].reshape(3, -1)

        # At first the sum of a rank holds its own data, and so does the place of what it had:
        # these are places 0 and 1, whose slots, below ``2 * n_sums``, come before all others. The
        # sets of such slots have one bit, that of the rank itself.
        n_sets = len(self.slot_of_set)
        self.sets: Sets = np.zeros((n_sets, _count_words(self.n_ranks)), dtype=np.uint64)
        self.is_filled = self.slot_of_set < 2 * n_sums
        filled = np.flatnonzero(self.is_filled)
        rank = self.slot_of_set[filled] // len(chunk) % self.n_ranks
        self.sets[filled, rank // _BITS] = np.uint64(1) << (rank % _BITS).astype(np.uint64)

    def _find_slots(
        self, place: NDArray[np.int64], rank: NDArray[np.int64], piece: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the slots of some places of pieces at ranks, all arrays of the same shape."""
        return (place * self.n_ranks + rank) * len(self.chunk) + piece

    def describe(self, round_: int, number: int | np.int64) -> str:
        """Return the name of a set in messages: round, rank, chunk and place."""
        place_and_rank, piece = divmod(int(self.slot_of_set[number]), len(self.chunk))
        place, rank = divmod(place_and_rank, self.n_ranks)
        beside_sum = f", place {place}" if place else ""
        return f"round {round_}, rank {rank}, chunk {self.chunk[piece]}{beside_sum}"


def _replay_round(
    state: _SumState, kind: NDArray[np.int64], of_round: slice, round_: int, findings: Findings
) -> bool:
    """Replay the sends of one round of a sum, and tell whether they are allowed.

    Changes ``state.sets`` and ``state.is_filled`` to those after the round. `of_round` is the
    range of the sends of the round in the arrays of `state` by send; `kind` has these sends alone.
    A set tells whose data are added up in one place of a piece at a rank, the sum or one beside
    it: {0, 2} stands for the data of rank 0 plus the data of rank 2. A send reads one set, as it
    was before the round, and is of one of four kinds:

    - ``COPY`` replaces the set at the destination by the one that was read;
    - ``REDUCE`` adds: the set at the destination becomes the union of both;
    - ``KEEP`` does both: it copies into a place beside the sum of the destination, and adds to the
      sum;
    - ``REPLACE`` adds to an empty set: all sends of this kind to a place in the round are added
      up, and what the place had before is gone.

    A send is not allowed if

    - it reads a place that is empty, or adds to one that is empty;
    - something else comes to the place that it copies to, in the same round, or something of
      another kind to one that it replaces;
    - it adds data of a rank to a place that has data of this rank already.
    """
    # By send of the round, the number of the set that it reads, and of the one that it writes. All
    # that is sent is read before anything is written.
    source = state.source_set[of_round]
    target = state.target_set[of_round]
    for send in np.flatnonzero(~state.is_filled[source]):
        where = state.describe(round_, source[send])
        findings.refuse("who sends a chunk has it", where, "nothing", "the chunk")
        return False
    data = state.sets[source]

    # From here on `data`, `target` and `kind` are by entry instead of by send. An entry is a copy
    # or an addition of data to the set `target`. A send is one entry, but KEEP is two: a copy, and
    # an addition to the sum, which stands behind the entries of all sends.
    is_kept = kind == KEEP
    data = np.concatenate([data, data[is_kept]])
    target = np.append(target, state.sum_set[of_round][is_kept])
    kind = np.append(kind, np.full(int(is_kept.sum()), REDUCE))
    for number in target[(kind == REDUCE) & ~state.is_filled[target]]:
        where = state.describe(round_, number)
        findings.refuse("nothing is added to an empty place", where, "nothing", "a sum")
        return False

    # Sorted by set, neighbours with the same set have to be additions, both of them, and either
    # both or neither of them replace the set.
    by_target = np.argsort(target, kind="stable")
    target = target[by_target]
    data = data[by_target]
    kind = kind[by_target]
    is_replaced = kind == REPLACE
    is_added = is_replaced | (kind == REDUCE)
    is_same = target[1:] == target[:-1]

    # Of several sends to one set all are added, or all of them replace it.
    for clash in np.flatnonzero(is_same & ~(is_added[:-1] & is_added[1:])):
        where = state.describe(round_, target[clash])
        findings.refuse("a copy is all that a rank receives of a chunk", where, "more", "one")
        return False
    for clash in np.flatnonzero(is_same & (is_replaced[:-1] != is_replaced[1:])):
        where = state.describe(round_, target[clash])
        rule = "all that comes to a place replaces what was there, or nothing does"
        findings.refuse(rule, where, "both kinds", "one kind")
        return False

    # A set that is replaced begins empty; what was read of it is in `data` already. No set
    # is copied into and added to in the same round, hence copies may come first.
    state.sets[target[is_replaced]] = 0
    state.sets[target[~is_added]] = data[~is_added]
    state.is_filled[target] = True
    return _add_data(state, target[is_added], data[is_added], round_, findings)


def _add_data(
    state: _SumState, target: NDArray[np.int64], data: Sets, round_: int, findings: Findings
) -> bool:
    """Add what is sent in a round to sums, and check that nothing is added twice.

    ``target[addition]`` is the number of the set to which something is added; equal targets stand
    next to each other. ``data[addition]`` has the ranks whose data are added, as bits; shape
    (additions, words). Changes ``state.sets[target]``. Several additions to one set are made one
    after another, so that each is compared with what was added before. Returns False at the first
    one that adds data of a rank again.
    """
    # Each pass takes the first addition to each target that is still waiting: there are as many
    # passes as one set has additions at most. Data stay where they are, and are read once.
    waiting = np.arange(len(target))
    while len(waiting):
        is_first_of_target = np.diff(target[waiting], prepend=-1) != 0
        addition = waiting[is_first_of_target]
        added = target[addition]
        sums = state.sets[added]
        in_both = sums & data[addition]
        if in_both.any():
            # The message names the first of the sets that have some of the data already.
            where = state.describe(round_, added[in_both.any(axis=1)].min())
            findings.refuse("nothing is added twice", where, "a rank's data, again", "once")
            return False
        state.sets[added] = sums | data[addition]
        waiting = waiting[~is_first_of_target]
    return True


def _check_ends(
    problem: Collective, state: _SumState, n_chunks_of_block: int, findings: Findings
) -> bool:
    """Check that in the end every rank has the data of all ranks in the sums that it wants.

    Sets are bits of 64-bit words, a bit for each rank. In a reduce-scatter a rank wants its own
    block alone: the chunks from `n_chunks_of_block` times its number on, so many of them.
    """
    n_ranks = problem.n_ranks
    n_sums = n_ranks * len(state.chunk)
    # ``n_added[rank, piece]``: how many ranks have their data in the sum of this rank.
    n_added = np.bitwise_count(state.sets[:n_sums]).sum(axis=1).reshape(n_ranks, -1)
    lacks_data = n_added < n_ranks  # [rank, piece]
    if problem.operation == "reduce-scatter":
        owner = state.chunk // n_chunks_of_block
        lacks_data &= np.arange(n_ranks)[:, None] == owner

    # The first sum that lacks something is told, with how many ranks are in it.
    for rank, piece in np.argwhere(lacks_data)[:1].tolist():
        rule = "in the end every rank has the sum that it wants"
        where = f"rank {rank}, chunk {state.chunk[piece]}"
        findings.refuse(rule, where, f"{n_added[rank, piece]} ranks", f"{n_ranks} ranks")
        return False
    return True


# Circuits: the matching of each plane, and that circuits carry every send

_MOST_SHOWN_EPOCHS = 9
_ROUND_AND_PLANE = "round {}, plane {}"
_ROUNDINGS = 8
"""Units in the last place by which a time may be off after the few sums that it comes from."""


class RoundLoads(NamedTuple):
    """The loads of rounds; columns have shape (rounds,)."""

    busiest_bytes: NDArray[np.float64]
    """The bytes that the busiest circuit carries."""
    hops: IntArray
    """Hops of the longest route; 0 in a round without sends."""
    ready_s: Seconds
    """When the last rank that takes part is ready, in seconds."""
    island_bytes: NDArray[np.float64]
    """The bytes that the busiest rank sends or receives inside its island; -1 in a round without
    sends inside islands."""


def _check_planes(
    problem: Collective, plan: CollectivePlan, loads: RoundLoads | None, findings: Findings
) -> tuple[Seconds, Seconds] | None:
    """Check when the switches of a plan send and how much, if each changes its circuits by itself.

    Several switches, called *planes*, carry a collective together; each rank has some ports on
    each of them. In every round each plane carries a *share* of what a rank sends, at times of its
    own; the rank that sends most counts. The checks are:

    - the shares of a round together are all of its bytes;
    - a share starts when the round before has ended on all planes, and the ranks are ready;
    - a share lasts as long as its bytes take;
    - a plane has the time to change circuits between two of its shares.

    Example: two planes, and a round in which no rank sends more than 6 bytes. Shares of 4 and 2
    bytes are right, and so are shares of 6 and 0.

    Sets the figure ``reconfigurations``. Returns by round when it starts and ends, in seconds;
    None if the shares or the circuits of the plan are not those of these rounds, in which case
    times are not checked. `loads` is None for steps that the problem states.
    """
    # Each round, or each step that the problem states, has a share of each plane:
    # ``shares_bytes[round, plane]``, from ``start_s[round, plane]`` to ``end_s[round, plane]``.
    # Rows of ``problem.steps`` are (configuration, bytes).
    if loads is None:
        n_rounds = len(np.asarray(problem.steps))
        ready_s = np.zeros(n_rounds)
        hops = np.ones(n_rounds, dtype=np.int64)
        _check_that_shares_are_all(plan, findings)
    else:
        n_rounds = len(loads.busiest_bytes)
        ready_s = loads.ready_s
        hops = loads.hops
    if not n_rounds and not plan.shares_bytes.size:
        return np.zeros(0), np.zeros(0)
    shape = (n_rounds, problem.planes)
    if not findings.expect(
        "planes have a share in each round", "shares_bytes", plan.shares_bytes.shape, shape
    ):
        return None

    # Planes that have a share also have circuits, and no others do. Steps have no circuits.
    is_used = plan.shares_bytes > 0
    if loads is None:
        wanted_bytes = np.asarray(problem.steps)[:, 1]
    elif not _check_epochs_of_planes(problem, plan, is_used, findings):
        return None
    else:
        # The load of the busiest circuit is that of one port, if all ports of the planes with a
        # share carry equally much. Its rank sends as much over each of its ports on these planes:
        # 2 planes of 3 ports carry 6 times the load.
        wanted_bytes = loads.busiest_bytes * problem.ports * is_used.sum(axis=1)

    # All planes of a round together carry its bytes, or more.
    total_bytes = plan.shares_bytes.sum(axis=1)
    is_wrong = (plan.shares_bytes < 0).any(axis=1) | (total_bytes < wanted_bytes * (1 - RTOL))
    findings.expect_none(
        "planes together carry the bytes of a round",
        is_wrong,
        "shares_bytes[{}]",
        total_bytes,
        wanted_bytes,
    )

    # A round may start when all rounds before it have ended on all planes, and its ranks are
    # ready.
    last_end_s = np.maximum.accumulate(plan.end_s.max(axis=1))[:-1]
    earliest_s = np.maximum(ready_s, np.concatenate([[0.0], last_end_s]))
    _check_times_of_shares(problem, plan, earliest_s, hops, findings)

    # A round starts with its first share; one without shares takes no time.
    first_start_s = np.where(is_used, plan.start_s, math.inf).min(axis=1)
    starts_s = np.where(is_used.any(axis=1), first_start_s, earliest_s)
    return starts_s, np.maximum(plan.end_s.max(axis=1), earliest_s)


def _check_that_shares_are_all(plan: CollectivePlan, findings: Findings) -> None:
    """Check that a plan of steps that the problem states has nothing but the shares of planes."""
    n_of_plan = {
        "sends": len(plan.sends),
        "circuits": plan.n_epochs,
        "epoch_of_round": len(plan.epoch_of_round),
        "chunk_bytes": len(plan.chunk_bytes),
        "links": len(plan.links),
        "stored_ranks": plan.stored_ranks,
    }
    for name, number in n_of_plan.items():
        findings.expect("a plan of given steps has shares alone", name, number, 0)


def _check_times_of_shares(
    problem: Collective,
    plan: CollectivePlan,
    earliest_s: Seconds,
    hops: IntArray,
    findings: Findings,
) -> None:
    """Check that shares of planes start late enough, last long enough, and leave time for changes.

    ``earliest_s[round]`` is when a round may start, and ``hops[round]`` how many hops its longest
    route has. Sets the figure ``reconfigurations``.
    """
    # No share starts before its round may, but for the rounding of a few sums: some units in the
    # last place of the latest end. A message has the rule itself as what was expected.
    is_used = plan.shares_bytes > 0
    slack_s = _ROUNDINGS * float(np.spacing(plan.end_s.max()))
    is_early = is_used & (plan.start_s < earliest_s[:, None] - slack_s)
    rule = "a round starts after the one before, and when ranks are ready"
    findings.expect_none(rule, is_early, _ROUND_AND_PLANE, plan.start_s, rule)

    # A share takes the start-up of a round, the time of its hops if that is stated, and its bytes
    # over one port. A plane without a share has 0 as its start and end.
    duration_s = plan.shares_bytes / (problem.ports * problem.rate_bytes_per_s)
    duration_s += problem.alpha_s + (problem.hop_s or 0.0) * hops[:, None]
    is_short = is_used & (plan.end_s - plan.start_s < duration_s - slack_s)
    rule = "a share takes its time"
    findings.expect_none(rule, is_short, _ROUND_AND_PLANE, plan.start_s, rule)
    has_times = ~is_used & ((plan.start_s != 0) | (plan.end_s != 0))
    rule = "a plane without a share has no times"
    findings.expect_none(rule, has_times, _ROUND_AND_PLANE, plan.start_s, rule)
    findings.figures["reconfigurations"] = sum(
        _check_changes(problem, plan, plane, slack_s, findings) for plane in range(problem.planes)
    )


def _check_epochs_of_planes(
    problem: Collective, plan: CollectivePlan, is_used: NDArray[np.bool_], findings: Findings
) -> bool:
    """Check the circuits of several switches, which carry the same rounds side by side.

    In a round each plane carries a share of the bytes, or nothing. All planes with a share have to
    have the same circuits, and planes without one must have none.

    ``is_used[round, plane]`` tells whether the plane carries something in the round.
    """
    n_rounds = len(is_used)
    if not findings.expect(
        "each round has an epoch of its own", "circuits", plan.n_epochs, n_rounds
    ):
        return False

    # ``peer[round, plane, port, rank]``: the rank to which the port of a rank leads.
    peer = plan.circuits.reshape(n_rounds, problem.planes, problem.ports, problem.n_ranks)
    is_dark = (peer == IDLE).all(axis=(2, 3))
    rule = "planes with a share have circuits, and no others"
    findings.expect_none(rule, is_dark == is_used, _ROUND_AND_PLANE, is_used, rule)

    # ``common_peer[round, rank]``: the circuits of a round, those of any port of a plane that has
    # a share. Other entries are -1, so the maximum finds them.
    is_used_port = is_used[:, :, None, None]
    common_peer = np.where(is_used_port, peer, IDLE).max(axis=(1, 2))
    is_other = (is_used_port & (peer != common_peer[:, None, None])).any(axis=(2, 3))
    rule = "planes and ports of a round have the same circuits"
    findings.expect_none(rule, is_other, _ROUND_AND_PLANE, is_used, rule)
    return True


def _check_changes(
    problem: Collective, plan: CollectivePlan, plane: int, slack_s: float, findings: Findings
) -> int:
    """Check that a switch has the time to change its circuits between two rounds that differ.

    Returns how often it changes them between rounds; to set up its first ones is no change.

    The plane takes part in some rounds. If two of these that follow each other have the same
    circuits, no time is needed in between, otherwise the delay. Rounds in which the plane takes no
    part do not count. A start may be too early by `slack_s`, for rounding errors.
    """
    # The circuits that the plane has at present, a row for each of its ports (`lanes` of the
    # plan). ``problem.start`` has those before the first round, or is a text: "free" if the first
    # ones cost no delay, "dark" if they do. None stands for a text.
    lanes = slice(plane * problem.ports, (plane + 1) * problem.ports)
    circuits: NDArray[np.generic] | None = None
    if not isinstance(problem.start, str):
        circuits = problem.start[lanes]
    free_at_s = 0.0
    n_changes = 0
    # The rounds in which the plane has a share, in order; `number` 0 is the first of them.
    for number, round_ in enumerate(np.flatnonzero(plan.shares_bytes[:, plane] > 0).tolist()):
        # Steps from outside have no circuits, only the number of a configuration: equal numbers
        # stand for equal circuits.
        new_circuits: NDArray[np.generic]
        if problem.steps is not None:
            new_circuits = np.asarray(problem.steps)[round_, :1]
        else:
            new_circuits = plan.circuits[round_, lanes]
        if circuits is None:
            is_kept = problem.start == "free"
        else:
            is_kept = np.array_equal(circuits, new_circuits)
        n_changes += int(number > 0 and not is_kept)

        # The plane is free when its last share has ended, and then changes circuits if it has to.
        earliest_s = free_at_s + (0.0 if is_kept else problem.delay_s)
        start_s = float(plan.start_s[round_, plane])
        if start_s < earliest_s - slack_s:
            rule = "a plane has the time to change its circuits"
            findings.refuse(rule, f"start_s[{round_}, {plane}]", start_s, earliest_s)
        circuits = new_circuits
        free_at_s = float(plan.end_s[round_, plane])
    return n_changes


def _check_sends(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check that rounds, ranks, chunks and kinds exist; without that nothing can be replayed.

    Columns of a send are round, source, destination, chunk and kind; ranks are different. False at
    the first row that is wrong.
    """
    # Each column of a send has a limit of its own, in the order of the docstring; there are four
    # kinds: copied, added, both of these, and added in place of what was there.
    n_ranks = problem.n_ranks
    sends = plan.sends
    n_kinds = 4
    limits = np.array([plan.n_rounds, n_ranks, n_ranks, len(plan.chunk_bytes), n_kinds])
    is_wrong = (sends < 0) | (sends >= limits)
    expected = f"below {limits.tolist()}, by column"
    if not findings.expect_none(
        "entries of sends exist", is_wrong, "sends[{}, {}]", sends, expected
    ):
        return False

    # Columns 1 and 2 are the source and the destination.
    is_to_itself = sends[:, 1] == sends[:, 2]
    return findings.expect_none(
        "a send goes to another rank", is_to_itself, "sends[{}]", sends, "two ranks"
    )


def _check_turns(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Tell whether the chunks of the first ranks of a plan can stand for those of all ranks.

    A plan may store the chunks of the first k of n ranks alone (``plan.stored_ranks``). Those of
    the others follow by symmetry: what rank r does for rank s, rank r + k does for rank s + k,
    modulo n. With 8 ranks of which 4 are stored, a send from rank 1 to rank 6 stands for one from
    rank 5 to rank 2 as well. This needs ranks that are all alike, and circuits of the same
    symmetry. False, with a violation in `findings`, if not.
    """
    # All ranks are alike: none is a root, or has blocks of another size. An island, some ranks
    # with links of their own, is shifted to another island as a whole.
    n_ranks = problem.n_ranks
    n_stored = plan.stored_ranks
    for holds, expected in (
        (problem.operation != "broadcast", "no stored ranks in a broadcast, which has a root"),
        (problem.demand_bytes is None, "no stored ranks where blocks have sizes of their own"),
        (not plan.shares_bytes.size, "no stored ranks where planes have shares"),
        (n_ranks % n_stored == 0, f"a divisor of {n_ranks} ranks"),
        (n_stored % problem.island == 0, f"whole islands of {problem.island} ranks"),
    ):
        if not holds:
            rule = "ranks of a turned plan are alike"
            findings.refuse(rule, "stored_ranks", n_stored, expected)
            return False

    # ``circuits[epoch, lane, rank]`` is the rank at the other end of a circuit, or `IDLE`; a lane
    # is one port of each rank on one plane. If rank 1 leads to rank 3 and 4 ranks are stored, rank
    # 5 has to lead to rank 7 in the same epoch and lane: `onward` has the peers shifted by 4, and
    # the entry of rank 5, rolled to the place of rank 1, is compared with that.
    rule = "each rank has its lanes in each epoch"
    shape = (plan.n_epochs, problem.lanes, n_ranks)
    if not findings.expect(rule, "circuits.shape", plan.circuits.shape, shape):
        return False
    onward = np.where(plan.circuits == IDLE, IDLE, (plan.circuits + n_stored) % n_ranks)
    is_wrong = (np.roll(plan.circuits, -n_stored, axis=2) != onward).any(axis=(1, 2))
    rule = "circuits are turned along with ranks"
    expected = f"those of {n_stored} ranks before"
    return findings.expect_none(rule, is_wrong, "circuits[{}]", "others", expected)


def _check_epochs(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check the circuits of a plan, and that its rounds go through them in order.

    An epoch is some rounds one after another with the same circuits: round by round its number
    stays or grows by 1, and all epochs are used. ``circuits[epoch, lane, rank]`` is the rank at
    the other end or `IDLE`. Each lane holds a matching, and between islands circuits join equal
    places. Returns False at the first rule that is broken, which is noted in `findings`.
    """
    # The number of the epoch grows by 0 or 1 from round to round, and the first one is 0.
    epochs = plan.epoch_of_round
    steps = np.diff(epochs, prepend=-1)
    is_in_order = ((steps == 0) | (steps == 1)).all()
    if not is_in_order or int(epochs.max(initial=-1)) + 1 != plan.n_epochs:
        got = epochs.tolist()[:_MOST_SHOWN_EPOCHS]
        expected = f"0 .. {plan.n_epochs - 1}"
        findings.refuse("rounds go through all epochs in order", "epoch_of_round", got, expected)
        return False
    if not plan.n_epochs:
        return True

    shape = (plan.n_epochs, problem.lanes, problem.n_ranks)
    if not findings.expect(
        "each rank has its lanes in each epoch", "circuits.shape", plan.circuits.shape, shape
    ):
        return False
    if not _check_matchings(problem, plan.circuits.astype(np.int64), findings):
        return False

    # Light of a circuit loses no more than its budget, on any plane.
    is_over = find_over_budget(problem.fabric)
    if is_over.any() and not _check_budgets(problem, plan, is_over, findings):
        return False

    # Between islands a circuit leads to the same place of another island.
    place = np.arange(problem.n_ranks) % problem.island
    leaves_rail = (plan.circuits != IDLE) & (plan.circuits % problem.island != place)
    return findings.expect_none(
        "circuits stay on their rails",
        leaves_rail,
        "circuits[{}, {}, {}]",
        plan.circuits,
        "the same place of another island",
    )


def _check_budgets(
    problem: Collective, plan: CollectivePlan, is_over: NDArray[np.bool_], findings: Findings
) -> bool:
    """Check that no circuit of a plan has to be over its link budget.

    ``is_over[source, destination]`` is by ports: port p of rank r is number ``r * ports + p``. A
    plan says for each port to which rank it leads, but not to which of its ports: one-way circuits
    join ports of equal numbers, and two-way ones may join the ports of two ranks in any way that
    keeps to all budgets. Returns False at the first circuit without such a way.
    """
    n_used = problem.n_ranks * problem.ports
    within = ~is_over[:n_used, :n_used]
    # ``plan.circuits[epoch, lane, rank]`` has a lane for each port of each plane. Made a row for
    # each plane of each epoch, ``peer_of_port[row, port]`` is the rank at the other end, -1 if the
    # port is dark; ports are those of rank 0, then those of rank 1, and so on.
    circuits = plan.circuits.reshape(-1, problem.ports, problem.n_ranks)
    peer_of_port = circuits.swapaxes(1, 2).reshape(-1, n_used)
    rank_of_port = np.arange(n_used) // problem.ports
    for peers in peer_of_port:
        # For each rank and peer with circuits, the ports of the rank that lead to the peer,
        # `there`, are matched with ports of the peer, `back`. ``pairs[i, j]`` tells whether
        # ``there[i]`` may be joined with ``back[j]``. The largest matching, which is the heaviest
        # assignment of weights 0 and 1, has to join all of them.
        for rank, peer in np.unique(np.column_stack([rank_of_port, peers])[peers != IDLE], axis=0):
            there = np.flatnonzero((rank_of_port == rank) & (peers == peer))
            if problem.two_way:
                # Any port that leads back will do, if light keeps to the budget both ways.
                back = np.flatnonzero((rank_of_port == peer) & (peers == rank))
                pairs = within[np.ix_(there, back)] & within[np.ix_(back, there)].T
            else:
                # The port of the peer that has the same number will do alone: the diagonal.
                back = there % problem.ports + peer * problem.ports
                pairs = within[np.ix_(there, back)] & np.eye(len(there), dtype=bool)
            if weigh_heaviest(pairs.astype(np.int64)) < len(there):
                got = f"a circuit from rank {rank} to {peer}"
                rule = "circuits keep to their link budgets"
                findings.refuse(rule, "circuits", got, "no such one")
                return False
    return True


def _check_matchings(problem: Collective, circuits: IntArray, findings: Findings) -> bool:
    """Check that the ports can hold ``circuits[epoch, lane, rank]``; False if not.

    One-way circuits of a lane lead to different ranks. Two-way circuits have another one back: in
    each plane, as many lead from rank r to rank s as from s to r, perhaps over other ports.
    """
    _, n_lanes, n_ranks = circuits.shape
    rule = "each lane holds a matching"
    is_nowhere = (circuits < IDLE) | (circuits >= n_ranks) | (circuits == np.arange(n_ranks))
    if not findings.expect_none(
        rule,
        is_nowhere,
        "circuits[{}, {}, {}]",
        circuits,
        f"another one of {n_ranks} ranks, or none",
    ):
        return False

    # Each circuit is one number, (bundle * n_ranks + rank) * n_ranks + peer, where a bundle is all
    # lanes of a plane in an epoch. With 10 ranks, a circuit from rank 3 to 7 in bundle 2 is 237.
    epoch, lane, rank = np.nonzero(circuits != IDLE)
    peer = circuits[epoch, lane, rank]
    if problem.two_way:
        bundle = (epoch * n_lanes + lane) // problem.ports
        # With as many circuits each way, both lists are equal once they are sorted. The first
        # number in `there` that differs is that of a circuit without one back.
        there = np.sort((bundle * n_ranks + rank) * n_ranks + peer)
        back = np.sort((bundle * n_ranks + peer) * n_ranks + rank)
        for alone in there[there != back].tolist():
            first, second = divmod(alone % n_ranks**2, n_ranks)
            got = f"a circuit joins ranks {first} and {second} in one direction alone"
            findings.refuse(rule, "circuits", got, "one in each")
            return False
        return True

    # One-way circuits: in each lane of each epoch a rank receives from one rank at most. Without
    # their first end circuits are (epoch and lane) * n_ranks + peer, each of which stands once.
    ends = np.sort((epoch * n_lanes + lane) * n_ranks + peer)
    for twice in ends[1:][ends[1:] == ends[:-1]].tolist():
        got = f"lane {twice // n_ranks % n_lanes} leads to rank {twice % n_ranks} more than once"
        findings.refuse(rule, "circuits", got, "once")
        return False
    return True


class _Hops(NamedTuple):
    """The hops of all sends; columns have shape (hops,)."""

    send: IntArray
    """The number of the send that a hop belongs to."""
    source: IntArray
    """The rank at which the hop begins."""
    target: IntArray
    """The rank at which the hop ends."""

    def take(self, is_taken: NDArray[np.bool_]) -> _Hops:
        """Return some of the hops, in the same order: those with True in a mask, shape (hops,)."""
        return _Hops(self.send[is_taken], self.source[is_taken], self.target[is_taken])


def _measure_rounds(
    problem: Collective, plan: CollectivePlan, findings: Findings
) -> RoundLoads | None:
    """Check that each send has circuits to go over, and find what limits each round.

    If several lanes have a circuit from one rank to another, the bytes from the one to the other
    are shared evenly among them. Returns the loads by round; None if a send has no circuit, of
    which the first is told, or if links (the hops of forwarded sends) do not fit. Columns of
    ``plan.sends`` are round, source, destination, chunk and kind.
    """
    n_ranks = problem.n_ranks
    n_rounds = plan.n_rounds
    n_pairs = n_ranks * n_ranks
    sends = plan.sends.astype(np.int64)
    # A direct send has one hop; links replace those of forwarded sends.
    hops = _Hops(np.arange(len(sends)), sends[:, 1], sends[:, 2])
    if len(plan.links):
        forwarded_hops = _forward_hops(problem, plan, hops, findings)
        if forwarded_hops is None:
            return None
        hops = forwarded_hops

    # Members of an island tell each other without circuits.
    island_bytes = np.full(n_rounds, -1.0)
    if problem.island > 1:
        is_inside = hops.source // problem.island == hops.target // problem.island
        island_bytes = _load_islands(plan, n_ranks, hops.send[is_inside])
        hops = hops.take(~is_inside)

    # A plan with k stored ranks lists the chunks of the first k ranks alone. Those of the others
    # go the same ways, shifted by multiples of k, so that all ranks with the same number modulo k
    # carry the same loads: each hop is shifted to begin at a stored rank. With 4 stored ranks of
    # 16, a hop from rank 9 to 14 counts as one from 1 to 6. A stored rank is ready when the last
    # of the ranks that it stands for is. Without stored ranks nothing is shifted.
    n_owners = plan.stored_ranks or n_ranks
    n_turned = hops.source - hops.source % n_owners
    hops = _Hops(hops.send, hops.source - n_turned, (hops.target - n_turned) % n_ranks)
    last_s = problem.late.reshape(-1, n_owners).max(axis=0)
    late_s = np.resize(last_s, n_ranks)  # resize repeats the times of the stored ranks

    # A flow are all bytes from one rank to another in one round. Flows are numbered by round,
    # source and target in one integer: round * n_pairs + source * n_ranks + target.
    round_of_hop = plan.sends[hops.send, 0].astype(np.int64)
    pair_of_hop = hops.source * n_ranks + hops.target
    flows, flow_of_hop = np.unique(round_of_hop * n_pairs + pair_of_hop, return_inverse=True)
    flow_bytes = np.bincount(flow_of_hop, weights=plan.sent_bytes[hops.send])
    round_of_flow, pair_of_flow = np.divmod(flows, n_pairs)

    # Every flow needs a circuit in the epoch of its round, over some lane of its source.
    source_of_flow, target_of_flow = np.divmod(pair_of_flow, n_ranks)
    epoch_of_flow = plan.epoch_of_round[round_of_flow]
    peers_of_flow = plan.circuits[epoch_of_flow, :, source_of_flow]  # [flow, lane]
    n_lanes_of_flow = np.count_nonzero(peers_of_flow == target_of_flow[:, None], axis=1)
    for flow in np.flatnonzero(n_lanes_of_flow == 0):
        where = f"round {round_of_flow[flow]}"
        got = f"none from {source_of_flow[flow]} to {target_of_flow[flow]}"
        findings.refuse("a send goes over a circuit", where, got, "a circuit")
        return None

    # A flow is shared evenly by the lanes that have its circuit. Results are by round: the largest
    # load of a circuit, the most hops of a send, and when the last rank that takes part is ready.
    busiest_bytes = np.zeros(n_rounds)
    np.maximum.at(busiest_bytes, round_of_flow, flow_bytes / n_lanes_of_flow)
    n_hops_of_send = np.bincount(hops.send, minlength=len(plan.sends))
    most_hops = np.zeros(n_rounds, dtype=np.int64)
    np.maximum.at(most_hops, plan.sends[:, 0], n_hops_of_send)
    ready_s = np.zeros(n_rounds)
    ready_of_hop_s = np.maximum(late_s[hops.source], late_s[hops.target])
    np.maximum.at(ready_s, round_of_hop, ready_of_hop_s)
    return RoundLoads(busiest_bytes, most_hops, ready_s, island_bytes)


def _load_islands(plan: CollectivePlan, n_ranks: int, send: IntArray) -> NDArray[np.float64]:
    """Return ``busiest_bytes[round]``: what the busiest rank sends, or receives, in its island.

    The larger one of both counts; -1 for rounds in which nothing is sent inside islands. `send`
    lists the numbers of the sends inside islands, once for each of their hops there.
    """
    # Columns 1 and 2 of a send are its source and its destination. Bytes are added up by round and
    # rank, for either end; -1 stays where a round has no send inside islands.
    busiest_bytes = np.full(plan.n_rounds, -1.0)
    round_ = plan.sends[send, 0].astype(np.int64)
    for end in (1, 2):
        # With stored ranks, all that are turned along with one of them do the same.
        rank = plan.sends[send, end] % (plan.stored_ranks or n_ranks)
        n_entries = plan.n_rounds * n_ranks
        bytes_of_rank = np.bincount(round_ * n_ranks + rank, plan.sent_bytes[send], n_entries)
        most_bytes = bytes_of_rank.reshape(plan.n_rounds, n_ranks).max(axis=1)
        np.maximum.at(busiest_bytes, round_, most_bytes[round_])
    return busiest_bytes


def _forward_hops(
    problem: Collective, plan: CollectivePlan, direct_hops: _Hops, findings: Findings
) -> _Hops | None:
    """List all circuits that sends go over: one for a direct send, several for a forwarded one.

    ``direct_hops`` has one hop for each send, from its source to its destination. Rows of
    ``plan.links`` are (send, source, target), sends ascending. A direct send from rank 0 to rank 2
    has one hop, 0 -> 2, and no links. If rank 1 forwards it, it has two hops, 0 -> 1 and 1 -> 2,
    and the plan lists both as links.

    The result is None if a link names no send or rank, or if the links of a send do not lead from
    its source to its destination.
    """
    if problem.hop_s is None:
        findings.refuse(
            "nothing is forwarded inside a round without hop_s", "links", len(plan.links), 0
        )
        return None

    # Each link is of a send that exists, between ranks that exist.
    send, source, target = plan.links.astype(np.int64).T
    exists = (send < len(plan.sends)) & (source < problem.n_ranks) & (target < problem.n_ranks)
    if not findings.expect_none("sends and ranks exist", ~exists, "links[{}]", plan.links, "both"):
        return None

    # The links of a send follow each other: from its source, each from the end of the last one.
    is_other_send = np.diff(send) != 0
    is_first = np.append(True, is_other_send)
    is_last = np.append(is_other_send, True)
    expected_source = np.where(is_first, direct_hops.source[send], np.roll(target, 1))
    is_broken = (expected_source != source) | (is_last & (target != direct_hops.target[send]))
    if not findings.expect_none(
        "links lead from the source of a send to its destination",
        is_broken,
        "links[{}]",
        plan.links,
        expected_source,
    ):
        return None

    # A send without links is direct: its only hop leads from its source to its destination.
    is_direct = np.ones(len(plan.sends), dtype=np.bool_)
    is_direct[send] = False
    forwarded_hops = _Hops(send, source, target)
    both = zip(forwarded_hops, direct_hops.take(is_direct), strict=True)
    return _Hops(*map(np.concatenate, both))


# The plan as a whole, and the claims of a solution

Seconds = NDArray[np.float64]

SUMS = ("all-reduce", "reduce-scatter")
"""The collectives in which ranks add up what comes."""


def verify_collective(
    problem: Collective, subject: Schedule | CollectivePlan | Solution, findings: Findings
) -> None:
    """Replay a plan and, of a solution, check its schedule and its claims.

    The replay follows the data of every rank from round to round, without trust in what the plan
    says of itself. Claims of a solution are its time, its lower bound and its status. The replay
    sees the declared fields of the problem alone, as a subclass could say otherwise.
    """
    plain: Any = plain_fields(problem)
    if not isinstance(subject, Solution):
        _replay(plain, subject, findings)
        if problem.fabric.graph is not None:
            findings.skipped.append("light: a plan alone does not say how cells are set")
        return

    # The lower bound, in seconds: infinite if link budgets cut off some rank from another.
    bound_s = bound_collective(problem).seconds
    is_over = find_over_budget(problem.fabric)
    if is_over.any() and _is_cut_off(plain, is_over):
        bound_s = math.inf
    findings.figures["lower_bound_recomputed"] = bound_s

    # The whole solution is replayed (`form`): its answer and its schedule. Bounds of collectives
    # come without certificates, hence the claimed one is compared with `bound_s`.
    replay = partial(_replay_solution, plain, findings=findings)
    check_solution(subject, findings, replay=replay, form="both")
    if getattr(subject.answer, "among", "all") == "whole-blocks":
        findings.notes.append("the claims are of plans that send whole blocks")


def _replay_solution(problem: Collective, solution: Solution, findings: Findings) -> bool:
    """Replay the answer of a solution and check its schedule; False if it has no times."""
    times = _replay(problem, solution.answer, findings)
    if times is None:
        return False
    _check_schedule(problem, solution, *times, findings)
    return True


def _replay(
    problem: Collective, plan: object, findings: Findings
) -> tuple[Seconds, Seconds] | None:
    """Check a plan by the rules at the head of this module, in that order.

    Returns when each round starts, and when it ends, in seconds; None if the plan is too wrong to
    define times.
    """
    if not isinstance(plan, CollectivePlan):
        findings.refuse("the answer is a plan", "answer", type(plan).__name__, "CollectivePlan")
        return None
    # Steps that are given from outside have no sends: planes (switches) only share their bytes.
    if problem.steps is not None:
        times = _check_planes(problem, plan, None, findings)
        if times is not None:
            _conclude(problem, plan, *times, findings)
        return times

    # Without chunks, sends and parts that exist nothing can be replayed. The chunks of the first
    # ranks stand for those of all ranks only if everything else is turned along with them.
    if plan.stored_ranks and not _check_turns(problem, plan, findings):
        return None
    if not (
        _check_chunks(problem, plan, findings)
        and _check_sends(problem, plan, findings)
        and _check_parts(problem, plan, findings)
    ):
        return None
    # The data are replayed: sums by which ranks' data are in them, copies by when they come.
    if problem.operation in SUMS:
        check_sums(problem, plan, findings)
    else:
        _check_copies(problem, plan, findings)

    # Circuits, and the times of rounds over them.
    if not _check_epochs(problem, plan, findings):
        return None
    loads = _measure_rounds(problem, plan, findings)
    if loads is None:
        return None
    # `times` has the starts and the ends of all rounds. Planes with shares have times of their
    # own; without, one round follows another.
    if not plan.shares_bytes.size:
        times = _time_rounds(problem, plan, loads)
    elif problem.island > 1:
        findings.refuse(
            "between islands no plane has shares", "shares_bytes", plan.shares_bytes.shape, "none"
        )
        return None
    else:
        times = _check_planes(problem, plan, loads, findings)
    if times is None:
        return None
    n_turns = problem.n_ranks // (plan.stored_ranks or problem.n_ranks)
    findings.figures["sends"] = n_turns * len(plan.sends)
    findings.figures["sent_bytes"] = n_turns * float(plan.sent_bytes.sum())
    _conclude(problem, plan, *times, findings)
    return times


def _check_chunks(problem: Collective, plan: CollectivePlan, findings: Findings) -> bool:
    """Check that the chunks of a plan have the right number and sizes for its operation.

    A plan cuts each block into equally many chunks; a block of an all-to-all is one chunk. There
    is a block for each rank in an all-gather and a reduce-scatter, for each pair of ranks in an
    all-to-all, and a single one in a broadcast and an all-reduce. With `stored_ranks` these ranks
    alone have blocks, in an all-reduce one each.
    """
    n_ranks = problem.n_ranks
    n_chunks = len(plan.chunk_bytes)
    is_all_to_all = problem.operation == "all-to-all"
    n_owners = plan.stored_ranks or n_ranks  # ranks whose chunks the plan stores
    if is_all_to_all:
        n_blocks = n_owners * n_ranks
    elif plan.stored_ranks or problem.operation in ("all-gather", "reduce-scatter"):
        n_blocks = n_owners
    else:
        n_blocks = 1

    # Each block is cut into as many chunks, those of an all-to-all into one.
    if n_chunks < 1 or n_chunks % n_blocks:
        expected = f"a multiple of {n_blocks}"
        findings.refuse("each block has as many chunks", "chunk_bytes", n_chunks, expected)
        return False
    if is_all_to_all and n_chunks != n_blocks:
        findings.refuse("each block is a chunk", "chunk_bytes", n_chunks, n_blocks)
        return False

    # The chunks of a block hold its bytes, or more where they are padded.
    n_all_blocks = n_ranks if plan.stored_ranks else n_blocks
    wanted_bytes = np.full(n_blocks, problem.size_bytes / n_all_blocks)
    if is_all_to_all:
        wanted_bytes = _wanted_blocks(problem, n_owners).ravel()
    block_bytes = plan.chunk_bytes.reshape(n_blocks, -1).sum(axis=1)
    findings.expect_none(
        "the chunks of a block hold its bytes",
        block_bytes < wanted_bytes * (1 - RTOL),
        "block {}",
        block_bytes,
        wanted_bytes,
    )

    is_wrong = plan.chunk_bytes < 0
    if problem.align_bytes:
        is_wrong |= plan.chunk_bytes % problem.align_bytes != 0
    findings.expect_none(
        "a chunk is a multiple of align_bytes",
        is_wrong,
        "chunk_bytes[{}]",
        plan.chunk_bytes,
        problem.align_bytes,
    )
    return True


def _time_rounds(
    problem: Collective, plan: CollectivePlan, loads: RoundLoads
) -> tuple[Seconds, Seconds]:
    """Return by round when it starts and when it ends, in seconds, one round after another.

    A round starts when the round before has ended, its circuits are set up, and all its ranks are
    ready. It lasts the sum of the latency, the bytes of its busiest circuit over the rate, and, if
    the problem states the time of a hop, that of the most hops of a send. Where ranks are in
    islands, it lasts as long as its circuits or as the links of its islands, whichever is slower;
    without sends over circuits these take no time.
    """
    durations_s = loads.busiest_bytes / problem.rate_bytes_per_s + problem.alpha_s
    durations_s += (problem.hop_s or 0.0) * loads.hops
    if problem.island > 1:
        # Circuits and the links of islands work side by side; a round takes what takes longer.
        links_s = problem.island_alpha_s + loads.island_bytes / problem.island_rate_bytes_per_s
        durations_s = np.where(loads.hops > 0, durations_s, 0.0)
        durations_s = np.maximum(durations_s, links_s * (loads.island_bytes >= 0))

    # Circuits change before the first round of each epoch; the first ones may be there already.
    has_change = np.diff(plan.epoch_of_round, prepend=-1) > 0
    has_change[:1] = not _first_is_free(problem, plan)
    starts_s = np.zeros(len(durations_s))
    last_end_s = 0.0
    for round_ in range(len(durations_s)):
        circuits_ready_s = last_end_s + problem.delay_s * has_change[round_]
        starts_s[round_] = max(circuits_ready_s, loads.ready_s[round_])
        last_end_s = starts_s[round_] + durations_s[round_]
    return starts_s, starts_s + durations_s


def _first_is_free(problem: Collective, plan: CollectivePlan) -> bool:
    """Tell whether the circuits of the first epoch (the first rounds) cost no delay."""
    start = problem.start
    if isinstance(start, str):
        return start == "free"
    return not plan.n_epochs or bool((plan.circuits[0] == start).all())


def _conclude(
    problem: Collective,
    plan: CollectivePlan,
    starts_s: Seconds,
    ends_s: Seconds,
    findings: Findings,
) -> None:
    """Compare the time and the counts that a plan states with those of its replay.

    ``starts_s[round]`` and ``ends_s[round]`` are seconds since the first rank was ready. Sets the
    figures of the replay.
    """
    # Rounds that start when all ranks are ready, if any rank is late at all.
    end_s = float(ends_s.max(initial=0.0))
    last_ready_s = float(problem.late.max(initial=0.0))
    n_rounds_late = int(
        np.count_nonzero((starts_s >= last_ready_s * (1 - RTOL)) & (last_ready_s > 0))
    )
    # Planes that change by themselves have counted their changes (`_check_planes`).
    findings.figures.setdefault("reconfigurations", max(0, plan.n_epochs - 1))
    findings.figures |= {
        "objective": end_s,
        "rounds": plan.n_rounds,
        "rounds_late": n_rounds_late,
    }
    if not math.isclose(plan.time_s, end_s, rel_tol=RTOL):
        findings.refuse("the time is that of the replay", "time_s", plan.time_s, end_s)
    findings.expect(
        "rounds after the last late rank is ready are counted",
        "n_rounds_late",
        plan.n_rounds_late,
        n_rounds_late,
    )


def _check_schedule(
    problem: Collective,
    solution: Solution,
    starts_s: Seconds,
    ends_s: Seconds,
    findings: Findings,
) -> None:
    """Check that what the switch does, as the solution says, is what the plan needs.

    In each slot the ports of the switch are joined in a certain way, for some time; before it
    circuits change, for the time of the delay. There has to be one slot for each epoch, which
    joins the same ports, begins no later than the first round of the epoch, and ends with the last
    one. Problems of several switches, or whose rounds are given as a list of steps, have no
    schedule.

    ``starts_s[round]`` and ``ends_s[round]`` are those of the replay, in seconds.
    """
    schedule = solution.schedule
    plan = solution.answer
    fabric = problem.fabric
    if problem.planes > 1 or problem.steps is not None:
        findings.expect("several planes have no one schedule", "schedule", schedule, None)
        return
    if schedule is None:
        findings.refuse("a plan comes with the schedule of its switch", "schedule", None, "one")
        return
    if not check_shapes(fabric, schedule, findings):
        return
    # The same circuits, delay and way of switching as in the plan.
    if not _has_circuits(problem, plan, schedule):
        findings.refuse(
            "the schedule has the circuits of the plan", "matchings", "others", "those"
        )
        return
    findings.expect("the delay is the problem's", "delay_s", schedule.delay_s, problem.delay_s)
    findings.expect("all circuits change together", "switching", schedule.switching, "all-stop")

    # A schedule has a delay before its first slot, too. Where the plan pays none there, the
    # schedule is later by that (`free_delay_s`). A slot has to end when the last round of its
    # epoch ends, which `searchsorted` finds, as epochs ascend.
    epochs = np.arange(plan.n_epochs)
    last_round_of_epoch = np.searchsorted(plan.epoch_of_round, epochs, side="right") - 1
    free_delay_s = problem.delay_s * _first_is_free(problem, plan)
    wanted_s = ends_s[last_round_of_epoch] + free_delay_s
    slot_ends_s = np.cumsum(schedule.durations_s + problem.delay_s)
    is_equal = np.isclose(slot_ends_s, wanted_s, rtol=RTOL, atol=0.0)
    findings.expect_none(
        "a slot ends with the rounds of its circuits",
        ~is_equal,
        "durations_s[{}]",
        slot_ends_s,
        wanted_s,
    )
    # Rounds of shares have times of their own, for which the circuits have to be there.
    first_round_of_epoch = np.searchsorted(plan.epoch_of_round, epochs)
    needed_s = starts_s[first_round_of_epoch] + free_delay_s
    slot_starts_s = slot_ends_s - schedule.durations_s
    findings.expect_none(
        "a slot begins before the rounds of its circuits",
        slot_starts_s > needed_s + RTOL * wanted_s,
        "durations_s[{}]",
        slot_starts_s,
        needed_s,
    )
    check_light(fabric, schedule.matchings, schedule.cell_states, findings)


def _is_cut_off(problem: Collective, is_over: NDArray[np.bool_]) -> bool:
    """Tell whether some rank cannot send to some other one, because light would lose too much.

    A *link budget* is the most that light may lose on a circuit. Circuits over their budget,
    ``is_over[source, destination]`` by ports, cannot be used. Data may go over several circuits,
    from rank to rank. In a broadcast the root has to reach all ranks; in other operations each
    rank has to reach each other one.
    """
    if problem.demand_bytes is not None or problem.steps is not None:
        return False
    # ``reaches[source, destination]`` (ranks): over one circuit (of any port) or one link of an
    # island at most, then over 2, over 4, and so on, until all ranks could be passed.
    island = np.arange(problem.n_ranks) // problem.island
    reaches = _keep_to_budget(problem, is_over).any(axis=1) | (island[:, None] == island)
    for _ in range(problem.n_ranks.bit_length()):
        reaches = reaches.astype(np.float32) @ reaches > 0
    if problem.operation == "broadcast":
        reaches = reaches[problem.root]
    return not reaches.all()


def _keep_to_budget(problem: Collective, is_over: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell which circuits may be within their link budgets, as ``keeps[rank, port, peer]``.

    ``is_over[source, destination]`` is by ports: port p of rank r is number ``r * ports + p``.
    One-way circuits join equal ports of ranks, two-way ones any port of the peer.
    """
    n_used = problem.n_ranks * problem.ports
    shape = (problem.n_ranks, problem.ports, problem.n_ranks, problem.ports)
    within = ~is_over[:n_used, :n_used].reshape(shape)  # [rank, port, peer, port of the peer]
    if not problem.two_way:
        within &= np.eye(problem.ports, dtype=bool)[None, :, None]
    return np.asarray(within.any(axis=3))


def _has_circuits(problem: Collective, plan: CollectivePlan, schedule: Schedule) -> bool:
    """Tell whether the matchings of ports are the circuits of ranks, and no others.

    One-way circuits join ports of equal numbers. A two-way circuit may join others, but it leads
    back from the port to which it leads. There is a slot for each epoch.
    """
    # Port ``lane`` of a rank is ``rank * ports + lane``; ports behind those of all ranks are dark.
    peer_of_port = np.full((plan.n_epochs, problem.fabric.n_ports), IDLE, dtype=np.int32)
    shape = (plan.n_epochs, problem.n_ranks * problem.ports)
    peers = plan.circuits.swapaxes(1, 2).reshape(shape)
    peer_of_port[:, : shape[1]] = peers
    # Quotients are rounded down, so that a dark port, which is -1, faces rank -1.
    facing_port = schedule.matchings
    if not np.array_equal(facing_port // problem.ports, peer_of_port):
        return False
    port = np.arange(facing_port.shape[1])
    if problem.two_way:
        is_right = np.take_along_axis(facing_port, facing_port, axis=1) == port
    else:
        is_right = facing_port % problem.ports == port % problem.ports
    return bool((is_right | (facing_port == IDLE)).all())

"""The data of every rank in operations that add up: whose data are in each sum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.plan import KEEP, REDUCE, REPLACE, SUM
from optmatch.verify.collectives.parts import PieceSends, cut_into_pieces
from optmatch.verify.report import Findings

MOST_BYTES = 1 << 28
"""The memory of the sets that are held at a time; pieces do not mix, so others come after them."""
_BITS = 64
"""Bits of a word of a set."""

Sets = NDArray[np.uint64]
"""Sets of ranks as bits, shape (sets, words): bit r % 64 of word r // 64 is rank r."""


def check_sums(problem: Collective, plan: CollectivePlan, findings: Findings) -> None:
    """Check that a plan adds up the data of all ranks, each once, by replaying its sends.

    A sum is represented by the set of the ranks whose data are in it. It is a violation if

    - a rank sends what it does not have;
    - data of a rank are added to a sum that has them already;
    - a rank lacks data of some rank in the end.
    """
    # Pieces do not mix, and can be replayed in batches. The sets of a batch, one for each rank and
    # piece or more, fit into about `MOST_BYTES`.
    pieces = cut_into_pieces(plan)
    n_pieces = len(pieces.chunk)
    bytes_of_set = 8 * _count_words(problem.n_ranks)
    n_together = max(1, MOST_BYTES // (bytes_of_set * problem.n_ranks))
    for first in range(0, n_pieces, n_together):
        end_piece = min(first + n_together, n_pieces)
        sends = pieces.sends
        if n_together < n_pieces:
            # Pieces of a batch are numbered from 0.
            is_inside = (sends.piece >= first) & (sends.piece < end_piece)
            sends = sends.take(is_inside)
            sends = sends._replace(piece=sends.piece - first)
        state = _SumState(problem, pieces.chunk[first:end_piece], sends)
        if not _replay_sends(state, sends, findings):
            return
        # A block of a rank has equally many chunks.
        n_chunks_of_block = max(len(plan.chunk_bytes) // problem.n_ranks, 1)
        if not _check_ends(problem, state, n_chunks_of_block, findings):
            return


def _count_words(n_ranks: int) -> int:
    """Return how many words a set of ranks has."""
    return -(-n_ranks // _BITS)


def _bit_of_rank(rank: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the bit of each rank in its word of a set, which is word ``rank // 64``."""
    return np.uint64(1) << (rank % _BITS).astype(np.uint64)


class _SumState:
    """Whose data are at each place of each piece at each rank, while rounds are replayed.

    A slot is a place of a piece at a rank, ``(place * n_ranks + rank) * n_pieces + piece``. Only
    slots that sends use have a set, beside the sums, which come first.

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

        A *slot* is one memory of one rank for one piece of the data, as a single number. Place 0
        of a rank is its sum, place 1 what it had at the start, and other places keep data that
        came from other ranks. For each slot that is used there is a *set*: the ranks whose data
        are in it, one bit for each rank. Sets are numbered; those of the sums come first, by rank
        and then by piece.
        """
        # Every sum has a slot, and so has what a send reads, what it writes, and the sum beside
        # what it writes, which is another slot only where something is kept beside it.
        self.n_ranks = problem.n_ranks
        self.chunk = chunk
        n_sums = self.n_ranks * len(chunk)
        self.source_set = self._find_slots(sends.source_place, sends.source, sends.piece)
        """``source_set[send]``: the number of the set that a send reads."""
        self.target_set = self._find_slots(sends.target_place, sends.destination, sends.piece)
        """``target_set[send]``: the number of the set that it writes."""
        self.sum_set = self.target_set
        """``sum_set[send]``: the number of the set of the sum at its destination."""
        if (sends.kind == KEEP).any():
            sum_place = np.full(len(sends.piece), SUM)
            self.sum_set = self._find_slots(sum_place, sends.destination, sends.piece)

        # If slots are few, each of them has a set, whose number is that of the slot. Otherwise
        # slots that nothing uses take no memory, and those that are used are numbered.
        n_slots = n_sums
        for slot_of_send in (self.source_set, self.target_set, self.sum_set):
            n_slots = max(n_slots, 1 + int(slot_of_send.max(initial=0)))
        self.slot_of_set: NDArray[np.int64]
        """``slot_of_set[set]``: the slot of each set; those of the sums come first."""
        if n_slots <= 2 * (n_sums + 3 * len(sends.piece)):
            self.slot_of_set = np.arange(n_slots)
        else:
            slots = [np.arange(n_sums), self.source_set, self.target_set, self.sum_set]
            self.slot_of_set, set_of_slot = np.unique(np.concatenate(slots), return_inverse=True)
            sets_of_sends = set_of_slot.reshape(-1)[n_sums:].reshape(3, -1)
            self.source_set, self.target_set, self.sum_set = sets_of_sends

        # At first the sum of a rank holds its own data, and so does the place of what it had:
        # these are places 0 and 1, whose slots come before all others.
        n_sets = len(self.slot_of_set)
        self.sets: Sets = np.zeros((n_sets, _count_words(self.n_ranks)), dtype=np.uint64)
        """``sets[set]``: the ranks whose data are in a slot, as bits."""
        self.is_filled = self.slot_of_set < 2 * n_sums
        """``is_filled[set]``: whether the set has any rank."""
        filled = np.flatnonzero(self.is_filled)
        rank = self.slot_of_set[filled] // len(chunk) % self.n_ranks
        self.sets[filled, rank // _BITS] = _bit_of_rank(rank)
        self.last_entry = np.zeros(n_sets, dtype=np.int64)
        """``last_entry[set]``: the last entry of a round that comes into a set; scratch."""

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


def _replay_sends(state: _SumState, sends: PieceSends, findings: Findings) -> bool:
    """Replay the sends of all rounds of an all-reduce or a reduce-scatter, round by round."""
    # The sends of each round are a range: `bounds` has its begin, and the begin of the next one.
    rounds, first_sends = np.unique(sends.round_, return_index=True)
    bounds = np.append(first_sends, len(sends.round_)).tolist()
    for place, round_ in enumerate(rounds.tolist()):
        of_round = slice(bounds[place], bounds[place + 1])
        if not _replay_round(state, sends.kind[of_round], of_round, round_, findings):
            return False
    return True


def _replay_round(
    state: _SumState, kind: NDArray[np.int64], of_round: slice, round_: int, findings: Findings
) -> bool:
    """Replay the sends of one round of a sum, and tell whether they are allowed.

    Each rank has a memory for its sum of each piece of the data, and may have others beside it.
    For each memory the replay knows a set: the ranks whose data are added up in it. For example
    {0, 2} means that the memory holds the data of rank 0 plus the data of rank 2. A send reads one
    memory, as it was before the round. There are four kinds of sends:

    - ``COPY`` replaces the set at the destination by the one that was read;
    - ``REDUCE`` adds: the set at the destination becomes the union of both;
    - ``KEEP`` does both: it copies into a memory beside the sum of the destination, and adds to
      the sum;
    - ``REPLACE`` adds to an empty set: all sends of this kind to a memory in the round are added
      up, and what the memory had before is gone.

    A send is not allowed if

    - it reads a memory that is empty, or adds to one that is empty;
    - something else comes to the memory that it copies to, in the same round, or something of
      another kind to one that it replaces;
    - it adds data of a rank to a memory that has data of this rank already.
    """
    # All that is sent is read before anything is written.
    source = state.source_set[of_round]
    target = state.target_set[of_round]
    for send in np.flatnonzero(~state.is_filled[source])[:1]:
        where = state.describe(round_, source[send])
        findings.refuse("who sends a chunk has it", where, "nothing", "the chunk")
        return False
    data = state.sets[source]

    # From here on there are entries in place of sends. An entry is a copy or an addition of data
    # to one set. A send is one entry, but KEEP is two: a copy, and an addition to the sum, which
    # stands behind the entries of all sends.
    is_kept = kind == KEEP
    is_replaced = kind == REPLACE
    is_added = (kind == REDUCE) | is_replaced
    if is_kept.any():
        n_kept = int(is_kept.sum())
        is_added = np.append(is_added, np.ones(n_kept, dtype=np.bool_))
        is_replaced = np.append(is_replaced, np.zeros(n_kept, dtype=np.bool_))
        data = np.concatenate([data, data[is_kept]])
        target = np.append(target, state.sum_set[of_round][is_kept])
    is_empty = is_added & ~is_replaced & ~state.is_filled[target]
    empty_targets = target[is_empty]

    # All entries write their number into `last_entry`, at their set. An entry that does not find
    # its own number there shares the set with a later one. Only then the entries are sorted by
    # set; neighbours with the same set have to be additions, both of them, and either both or
    # neither of them replace the set.
    entries = np.arange(len(target))
    state.last_entry[target] = entries
    if (state.last_entry[target] != entries).any():
        by_target = np.argsort(target, kind="stable")
        target = target[by_target]
        data = data[by_target]
        is_added = is_added[by_target]
        is_replaced = is_replaced[by_target]
        is_same = target[1:] == target[:-1]
        for clash in np.flatnonzero(is_same & ~(is_added[:-1] & is_added[1:]))[:1]:
            where = state.describe(round_, target[clash])
            rule = "a copy is all that a rank receives of a chunk"
            findings.refuse(rule, where, "more", "one")
            return False
        for clash in np.flatnonzero(is_same & (is_replaced[:-1] != is_replaced[1:]))[:1]:
            where = state.describe(round_, target[clash])
            rule = "all that comes to a place replaces what was there, or nothing does"
            findings.refuse(rule, where, "both kinds", "one kind")
            return False
    for number in empty_targets[:1]:
        where = state.describe(round_, number)
        findings.refuse("nothing is added to an empty place", where, "nothing", "a sum")
        return False

    # What is replaced begins with an empty set; what was read of it is in `data` already.
    if is_replaced.any():
        state.sets[target[is_replaced]] = 0
        state.is_filled[target[is_replaced]] = True

    # No set is copied into and added to in the same round, hence copies may come first. In most
    # rounds all entries are of one kind, and their data need not be selected.
    n_added = np.count_nonzero(is_added)
    if n_added == len(target):
        return _add_data(state, target, data, round_, findings)
    if n_added:
        copied_to = target[~is_added]
        state.sets[copied_to] = data[~is_added]
        state.is_filled[copied_to] = True
        return _add_data(state, target[is_added], data[is_added], round_, findings)
    state.sets[target] = data
    state.is_filled[target] = True
    return True


def _add_data(
    state: _SumState, target: NDArray[np.int64], data: Sets, round_: int, findings: Findings
) -> bool:
    """Add what is sent in a round to sums, and check that nothing is added twice.

    For each sum the ranks are known whose data are in it, as a set. Several additions may go to
    one sum in the same round. They are made one after another, so that each is compared with what
    was added before.

    ``target[addition]`` is the number of the set to which something is added. ``data[addition]``
    is the ranks whose data are added, as bits; shape (additions, words).
    """
    # Each pass takes the first addition to each target that is still waiting: there are as many
    # passes as one set has additions at most.
    while len(target):
        is_first_of_target = np.ones(len(target), dtype=np.bool_)
        is_first_of_target[1:] = target[1:] != target[:-1]
        later_target = target[~is_first_of_target]
        later_data = data[~is_first_of_target]
        if len(later_target):
            target = target[is_first_of_target]
            data = data[is_first_of_target]

        sums = state.sets[target]
        in_both = sums & data
        if in_both.any():
            # The message names the first of the sets that have some of the data already.
            where = state.describe(round_, target[in_both.any(axis=1)].min())
            findings.refuse("nothing is added twice", where, "a rank's data, again", "once")
            return False
        state.sets[target] = sums | data
        target = later_target
        data = later_data
    return True


def _check_ends(
    problem: Collective, state: _SumState, n_chunks_of_block: int, findings: Findings
) -> bool:
    """Check that in the end every rank has the data of all ranks in the sums that it wants."""
    n_ranks = problem.n_ranks
    n_sums = n_ranks * len(state.chunk)
    # The bits of all ranks are set; the last word may have more bits than ranks are left.
    ranks = np.arange(n_ranks)
    data_of_all = np.zeros(_count_words(n_ranks), dtype=np.uint64)
    np.bitwise_or.at(data_of_all, ranks // _BITS, _bit_of_rank(ranks))
    sums = state.sets[:n_sums].reshape(n_ranks, len(state.chunk), -1)  # [rank, piece, word]
    is_right = (sums == data_of_all).all(axis=2)
    if problem.operation == "reduce-scatter":
        owner = state.chunk // n_chunks_of_block
        is_right |= np.arange(n_ranks)[:, None] != owner
    for rank, piece in np.argwhere(~is_right)[:1].tolist():
        rule = "in the end every rank has the sum that it wants"
        n_added = sum(int(word).bit_count() for word in sums[rank, piece].tolist())
        where = f"rank {rank}, chunk {state.chunk[piece]}"
        findings.refuse(rule, where, f"{n_added} ranks", f"{n_ranks} ranks")
        return False
    return True

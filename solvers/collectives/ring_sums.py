"""All-reduces around one ring of two-way circuits, whose sums go both ways at once.

The ring is the only graph that joins all ranks over two two-way ports each. Half of it lies
between two opposite ranks, and so an all-reduce takes n / 2 rounds at least. The buffer is cut
into w equal *chunks*. Each chunk has n / w *roots*, w places apart, which get its whole sum:

- the *block* of a root are the w ranks that end with it. Its sum is made twice: by an *item* that
  goes onward through the block to the root, and by one that goes back from the root to the first
  rank of the block;
- both items then go on around the ring, from root to root, and each root adds what passes. Items
  end after half of the ring: a root gets one half of the blocks, its own among them, from behind,
  and the other half from ahead;
- after n / 2 rounds all roots have the whole sum, and tell it to the ranks between them in w / 2
  more rounds.

In every round each circuit carries one chunk each way, as the roots of different chunks are at
different places. Small w means few rounds of many bytes, large w the opposite.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, KEEP, OWN, REDUCE, SUM
from optmatch.solvers.collectives.offers import Offer
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import Rounds, chunk_sizes
from optmatch.solvers.collectives.topologies import IntArray, Topology, lay_circulant

PASSED_ONWARD = 2
"""The memory of a rank for a sum that goes onward, and that it only passes on."""
PASSED_BACK = 3
"""The memory of a rank for a sum that goes back, and that it only passes on."""


def list_ring_offers(problem: Collective) -> Iterator[Offer]:
    """List all-reduces around one ring whose sums go both ways, with their time.

    Parameters
    ----------
    problem
        The all-reduce, with its ranks and their ports.

    Yields
    ------
    Offer
        One for each number of chunks that divides half of the number of ranks: the time of the
        plan in seconds, the number of its sends, and a function that makes it. Nothing is listed
        for one-way circuits, a single port, or an odd number of ranks.
    """
    n = problem.n_ranks
    if not problem.two_way or problem.lanes < 2 or n < 4 or n % 2:
        return
    ring = lay_circulant(problem, (1,))
    if ring is None:
        return
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    rate_bytes_per_s = problem.rate_bytes_per_s * (problem.lanes // 2)
    for chunks in range(1, n // 2 + 1):
        if n // 2 % chunks == 0:
            chunk_s = float(chunk_sizes(problem, chunks)[0]) / rate_bytes_per_s
            n_rounds = n // 2 + chunks // 2
            yield Offer(
                seconds=n_rounds * (round_s + chunk_s),
                n_sends=n * (n + chunks - 2),
                name="two-way ring",
                build=partial(_lay_ring, problem, ring, chunks),
            )


def _lay_ring(problem: Collective, ring: Topology, chunks: int) -> Laid:
    """Lay out and time the all-reduce around a ring with so many chunks."""
    return lay(problem, list_ring_rounds(ring, chunks))


def list_ring_rounds(ring: Topology, chunks: int) -> Rounds:
    """List all sends of an all-reduce around a ring whose sums go both ways.

    Parameters
    ----------
    ring
        The circuits: each rank is joined to the next one and to the one before.
    chunks
        Into how many chunks the buffer is cut; twice as many divide the number of ranks.

    Returns
    -------
    Rounds
        The sends, rows of round, source, destination, chunk and kind; the circuits; and
        ``places``, the memories that each send reads and writes.

    Examples
    --------
    Four ranks and one chunk: every rank is a root, and its block is the rank itself. In round 0
    each rank tells both neighbours what it has; in round 1 what came from ahead is passed on.

    >>> peer = np.array([[1, 2, 3, 0], [3, 0, 1, 2]])
    >>> rounds = list_ring_rounds(Topology("ring", peer), chunks=1)
    >>> rounds.n_rounds, rounds.sends[-4:, 1:3].tolist()
    (2, [[0, 3], [1, 0], [2, 1], [3, 2]])
    """
    n = ring.peer.shape[1]
    rows = [*_list_onward(n, chunks), *_list_back(n, chunks), *_list_spreading(n, chunks)]
    sends = np.concatenate(rows)
    sends = sends[np.argsort(sends[:, 0], kind="stable")]
    n_rounds = int(sends[-1, 0]) + 1
    matchings = np.tile(ring.peer, (n_rounds, 1, 1))
    return Rounds(sends[:, :5], chunks, matchings, places=sends[:, 5:])


def _list_onward(n: int, chunks: int) -> Iterator[IntArray]:
    """Yield the sends of items that go onward, round by round.

    An item begins at the first rank of a block, adds up the block (in the memories for sums), and
    goes on from its root as it is. It ends at a root, after half of the ring.

    Parameters
    ----------
    n
        The number of ranks.
    chunks
        The number of chunks, w; blocks have as many ranks.

    Yields
    ------
    int array, shape (sends, 7)
        Rows of round, source, destination, chunk, kind, and the memories that are read and
        written.
    """
    n_hops = n // 2 - 1
    for hop in range(n_hops):
        is_inside_block = hop < chunks - 1
        arrives_at_root = (hop + 2) % chunks == 0
        has_left_block = hop >= chunks

        # Inside its block, and at its last root, the item is added up; at other roots it is added
        # and kept, and between them only kept.
        kind = COPY
        to_place = PASSED_ONWARD
        if is_inside_block or (arrives_at_root and hop == n_hops - 1):
            kind = REDUCE
            to_place = SUM
        elif arrives_at_root:
            kind = KEEP
        from_place = SUM
        if has_left_block:
            from_place = PASSED_ONWARD
        first_rank_of_block = 1 - chunks
        yield _list_moves(
            n, chunks, hop, first_rank_of_block + hop, 1, (kind, from_place, to_place)
        )


def _list_back(n: int, chunks: int) -> Iterator[IntArray]:
    """Yield the sends of items that go back, round by round.

    An item begins at the root of a block, adds up the block (in the memories of what ranks had
    themselves, as their sums are in use), and goes on from its first rank as it is. It ends at a
    root, after half of the ring.

    Parameters
    ----------
    n
        The number of ranks.
    chunks
        The number of chunks, w; blocks have as many ranks.

    Yields
    ------
    int array, shape (sends, 7)
        Rows as of `_list_onward`.
    """
    n_hops = n // 2
    for hop in range(n_hops):
        is_inside_block = hop < chunks - 1
        arrives_at_root = (hop + 1) % chunks == 0
        has_left_block = hop >= chunks

        # The same as onward, but that the sum of the block is made in another memory.
        kind = COPY
        to_place = PASSED_BACK
        if is_inside_block:
            kind = REDUCE
            to_place = OWN
        elif arrives_at_root and hop == n_hops - 1:
            kind = REDUCE
            to_place = SUM
        elif arrives_at_root:
            kind = KEEP
        from_place = OWN
        if has_left_block:
            from_place = PASSED_BACK
        yield _list_moves(n, chunks, hop, -hop, -1, (kind, from_place, to_place))


def _list_spreading(n: int, chunks: int) -> Iterator[IntArray]:
    """Yield the sends of whole sums from roots to the ranks on both sides, round by round."""
    copied = (COPY, SUM, SUM)
    for hop in range(chunks // 2):
        yield _list_moves(n, chunks, n // 2 + hop, hop, 1, copied)
    for hop in range((chunks - 1) // 2):
        yield _list_moves(n, chunks, n // 2 + hop, -hop, -1, copied)


def _list_moves(
    n: int, chunks: int, turn: int, offset: int, step: int, kind_and_places: tuple[int, int, int]
) -> IntArray:
    """List equal sends of all roots of all chunks in one round.

    Parameters
    ----------
    n
        The number of ranks.
    chunks
        The number of chunks. The roots of chunk c are the ranks c, c + chunks, c + 2 chunks, ...
    turn
        The round.
    offset
        How many places after its root a send begins.
    step
        1 for the next rank, -1 for the one before.
    kind_and_places
        The kind of the sends, and the memories that they read and write.

    Returns
    -------
    int array, shape (ranks, 7)
        Rows of round, source, destination, chunk, kind, and both memories.
    """
    root = np.arange(n)
    source = (root + offset) % n
    rows = np.empty((n, 7), dtype=np.int64)
    rows[:, 0] = turn
    rows[:, 1] = source
    rows[:, 2] = (source + step) % n
    rows[:, 3] = root % chunks
    rows[:, 4:] = kind_and_places
    return rows

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

    All ranks are joined to a ring by two-way circuits, which stay. The buffer is cut into chunks.
    Data have to come from the opposite rank, so n ranks need n / 2 rounds; with w chunks there are
    w / 2 rounds more. In each round every rank sends a chunk both ways. Few chunks mean few rounds
    of many bytes.
    """
    n = problem.n_ranks
    if not problem.two_way or problem.lanes < 2 or n < 4 or n % 2:
        return
    ring = lay_circulant(problem, (1,))
    if ring is None:
        return
    round_s = problem.round_s
    rate_bytes_per_s = problem.rate_bytes_per_s * (problem.lanes // 2)

    # Half of the ports of a rank lead each way, and share the bytes of a chunk.
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

    Example: four ranks and one chunk. Every rank is a root, and its block is the rank itself. In
    round 0 each rank tells both neighbours what it has; in round 1 what came from ahead is passed
    on.
    """
    n = ring.peer.shape[1]
    rows = [*_list_onward(n, chunks), *_list_back(n, chunks), *_list_spreading(n, chunks)]
    sends = np.concatenate(rows)
    sends = sends[np.argsort(sends[:, 0], kind="stable")]
    n_rounds = int(sends[-1, 0]) + 1
    matchings = [ring.peer] * n_rounds
    return Rounds(sends[:, :5], chunks, matchings, places=sends[:, 5:])


def _list_onward(n: int, chunks: int) -> Iterator[IntArray]:
    """Yield the sends of sums that go onward around a ring of ranks, round by round.

    It ends after nearly half of the ring. Example with 8 ranks and w = 2, and the roots 1, 3, 5
    and 7: the sum of ranks 0 and 1 goes from 0 to 1 (made), from 1 to 2 (passed on), and from 2 to
    3 (added, and not needed any further).

    A rank has two memories for a chunk: ``SUM`` for its own sum, and ``PASSED_ONWARD`` for what it
    has to send on.

    Returns for each round the sends of all blocks of all chunks: rows of round, source,
    destination, chunk, kind, and the memories that are read at the source and written at the
    destination.
    """
    # A sum is at place hop + 1 - w from its root before hop number `hop`, and one further after
    # it: at the next root if hop + 2 is a multiple of w.
    n_hops = n // 2 - 1
    for hop in range(n_hops):
        is_inside_block = hop < chunks - 1
        arrives_at_root = (hop + 2) % chunks == 0
        has_left_block = hop >= chunks

        # Inside its block, and at its last root, the sum is added up (REDUCE); at other roots it
        # is added and also kept to be sent on (KEEP), and between roots only kept (COPY). Up to
        # the hop from the root of the block ranks send their own sums, then what they pass on.
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
    """Yield the sends of sums that go back around a ring of ranks, round by round.

    It ends at a root after half of the ring. Example with 8 ranks and w = 2, and the roots 1, 3, 5
    and 7: the sum of ranks 1 and 0 goes from 1 to 0 (made), from 0 to 7 (added and sent on), from
    7 to 6 (passed on), and from 6 to 5 (added).

    A rank has three memories for a chunk here: ``OWN`` for its own data, in which the sum of a
    block is made, since ``SUM`` holds the sum that goes onward meanwhile; ``PASSED_BACK`` for what
    it has to send on; and ``SUM``, to which roots add.

    Returns for each round the sends of all blocks of all chunks: rows of round, source,
    destination, chunk, kind, and the memories that are read at the source and written at the
    destination.
    """
    # A sum is `hop` places before its root before hop number `hop`, and at a root after it if
    # hop + 1 is a multiple of w.
    n_hops = n // 2
    for hop in range(n_hops):
        is_inside_block = hop < chunks - 1
        arrives_at_root = (hop + 1) % chunks == 0
        has_left_block = hop >= chunks

        # Inside its block the sum is added up in the memory of the rank's own data. The last root
        # only adds it (REDUCE), roots before that also keep it to send it on (KEEP), and other
        # ranks only keep it (COPY).
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
    """Yield the sends of whole sums from roots to the ranks on both sides, round by round.

    Returns rows of round, source, destination, chunk, kind (COPY), and the memories that are read
    and written, `SUM` both.
    """
    copied = (COPY, SUM, SUM)
    for hop in range(chunks // 2):
        yield _list_moves(n, chunks, n // 2 + hop, hop, 1, copied)
    for hop in range((chunks - 1) // 2):
        yield _list_moves(n, chunks, n // 2 + hop, -hop, -1, copied)


def _list_moves(
    n: int, chunks: int, turn: int, offset: int, step: int, kind_and_places: tuple[int, int, int]
) -> IntArray:
    """List one send for each chunk and each of its roots, all alike, in one round.

    Each rank is the root of one chunk. A send of it begins at the rank some places after the root,
    and goes to a neighbour of that rank on the ring.
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

"""All-reduces around one ring of two-way circuits, whose sums go both ways at once.

The ring is the only graph that joins all ranks over two two-way ports each. Half of it lies
between two opposite ranks, and so an all-reduce takes n / 2 rounds at least. The buffer is cut
into w equal *chunks*. Each chunk has n / w *roots*, w places apart, which get its whole sum:

- the *block* of a root are the w ranks that end with it. Its sum is made twice: by a partial sum
  that goes onward through the block to the root, and by one that goes back from the root to the
  first rank of the block;
- both then go on around the ring, from root to root, and each root adds what passes. They end
  after half of the ring: a root gets one half of the blocks, its own among them, from behind, and
  the other half from ahead;
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
from optmatch.solvers.collectives.rounds import Rounds, chunk_sizes, list_rows
from optmatch.solvers.collectives.topologies import IntArray, Topology, lay_circulant

PASSED_ONWARD = 2
"""The memory of a rank for a sum that goes onward, and that it only passes on."""
PASSED_BACK = 3
"""The memory of a rank for a sum that goes back, and that it only passes on."""


def list_ring_offers(problem: Collective) -> Iterator[Offer[Laid]]:
    """List all-reduces around one ring whose sums go both ways, by the number of chunks."""
    n = problem.n_ranks
    if not problem.two_way or problem.lanes < 2 or n < 4 or n % 2:
        return
    ring = lay_circulant(problem, (1,))
    if ring is None:
        return

    # Half of the ports of a rank lead each way, and share the bytes of a chunk.
    rate_bytes_per_s = problem.rate_bytes_per_s * (problem.lanes // 2)
    for chunks in range(1, n // 2 + 1):
        if n // 2 % chunks == 0:
            chunk_s = float(chunk_sizes(problem, chunks)[0]) / rate_bytes_per_s
            yield Offer(
                seconds=(n // 2 + chunks // 2) * (problem.round_s + chunk_s),
                n_sends=n * (n + chunks - 2),
                name="two-way ring",
                build=partial(_lay_ring, problem, ring, chunks),
            )


def _lay_ring(problem: Collective, ring: Topology, chunks: int) -> Laid:
    """Lay out and time the all-reduce around a ring with so many chunks.

    Example: four ranks and one chunk. Every rank is a root, and its block is the rank itself. In
    round 0 each rank tells both neighbours what it has; in round 1 what came from ahead is passed
    on.
    """
    n = problem.n_ranks
    onward = _list_sums(n, chunks, 1)
    back = _list_sums(n, chunks, -1)

    # Whole sums go from roots to the ranks on both sides. There are w - 1 ranks between two roots:
    # w // 2 of them get the sum from behind, the others from ahead.
    copied = (COPY, SUM, SUM)
    after = [_list_moves(n, chunks, n // 2 + hop, hop, 1, copied) for hop in range(chunks // 2)]
    before = [
        _list_moves(n, chunks, n // 2 + hop, -hop, -1, copied) for hop in range((chunks - 1) // 2)
    ]
    sends = np.concatenate([*onward, *back, *after, *before])
    sends = sends[np.argsort(sends[:, 0], kind="stable")]
    matchings = [ring.peer] * (n // 2 + chunks // 2)
    return lay(problem, Rounds(sends[:, :5], chunks, matchings, places=sends[:, 5:]))


def _list_sums(n: int, chunks: int, step: int) -> list[IntArray]:
    """List the sends of sums that go onward around a ring (step 1), or back (-1), by round.

    Example with 8 ranks and w = 2, and the roots 1, 3, 5 and 7. The sum of ranks 0 and 1 goes from
    0 to 1 (made), from 1 to 2 (passed on), and from 2 to 3 (added, and not needed any further). At
    the same time that of ranks 1 and 0 goes from 1 to 0 (made), from 0 to 7 (added and sent on),
    from 7 to 6 (passed on), and from 6 to 5 (added).

    Rows are as in `_list_moves`. A rank has several memories for a chunk: `SUM`, to which roots
    add, and in which sums that go onward are made; `OWN` for its own data, in which sums that go
    back are made; and one for what it only passes on each way.
    """
    # Onward a sum begins at the first rank of a block, and is at a root after the hops w - 2,
    # 2 w - 2, ...; back it begins at a root, and is at the next one after the hops w - 1, ...
    n_hops = n // 2
    first_rank = 0
    hops_to_root = 1
    made_in = OWN
    passed_in = PASSED_BACK
    if step == 1:
        n_hops = n // 2 - 1
        first_rank = 1 - chunks
        hops_to_root = 2
        made_in = SUM
        passed_in = PASSED_ONWARD

    moves = []
    for hop in range(n_hops):
        # Inside its block the sum is added up. After that its last root only adds it (REDUCE),
        # roots before that also keep it to send it on (KEEP), and other ranks only keep it (COPY).
        arrives_at_root = (hop + hops_to_root) % chunks == 0
        kind = COPY
        to_place = passed_in
        if hop < chunks - 1:
            kind = REDUCE
            to_place = made_in
        elif arrives_at_root and hop == n_hops - 1:
            kind = REDUCE
            to_place = SUM
        elif arrives_at_root:
            kind = KEEP

        # Up to the hop from the root of the block ranks send what they made, then what they pass.
        from_place = passed_in
        if hop < chunks:
            from_place = made_in
        kind_and_places = (kind, from_place, to_place)
        moves.append(_list_moves(n, chunks, hop, first_rank + step * hop, step, kind_and_places))
    return moves


def _list_moves(
    n: int, chunks: int, turn: int, offset: int, step: int, kind_and_places: tuple[int, int, int]
) -> IntArray:
    """List one send for each chunk and each of its roots, all alike, in one round.

    Each rank is the root of one chunk. A send of it begins at the rank `offset` places after the
    root, and goes to the next rank (`step` 1) or to the one before (-1). Rows are round (`turn`),
    source, destination, chunk, and `kind_and_places`: kind, and the memories that are read at the
    source and written at the destination.
    """
    root = np.arange(n)
    source = (root + offset) % n
    return list_rows(turn, source, (source + step) % n, root % chunks, *kind_and_places)

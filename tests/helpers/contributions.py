"""A replay of sends by sets of contributions, which knows nothing of how they were made."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Held = NDArray[np.bool_]
"""``held[rank, chunk, contributor]``: whose data the rank has in the chunk."""


def raw(n_ranks: int, n_chunks: int) -> Held:
    """Let each rank have its own data of every chunk."""
    return np.repeat(np.eye(n_ranks, dtype=bool)[:, None, :], n_chunks, axis=1)


def own_blocks(n_ranks: int) -> Held:
    """Let rank r have chunk r, complete, and nothing else."""
    held = np.zeros((n_ranks, n_ranks, n_ranks), dtype=bool)
    held[range(n_ranks), range(n_ranks)] = True
    return held


def one_late(n_ranks: int) -> Held:
    """Let the last rank be late, and rank g of the others have chunk g, reduced over them."""
    late = n_ranks - 1
    held = np.zeros((n_ranks, late, n_ranks), dtype=bool)
    held[range(late), range(late), :late] = True
    held[late, :, late] = True
    return held


def replay(
    held: Held, sends: NDArray[np.integer[Any]], *, two_way: bool, shared: bool = False
) -> Held:
    """Run rounds, each reading the state at its start, and return the state after the last.

    Parameters
    ----------
    held
        The state before the first round.
    sends
        Rows of round, source, destination, chunk, kind (0 copy, 1 reduce).
    two_way
        Whether a rank faces one other in a round; else it has one it sends to, one it hears.
    shared
        Whether more than one chunk may pass a circuit in a round.

    Raises
    ------
    AssertionError
        At the first send that is not allowed: of nothing, of what is there, of what would be
        added twice, or over a circuit that cannot be.
    """
    held = held.copy()
    assert (np.diff(sends[:, 0]) >= 0).all(), "rounds are in order"
    for rows in np.split(sends, np.flatnonzero(np.diff(sends[:, 0])) + 1):
        before = held.copy()
        faces: dict[tuple[str, int], int] = {}
        for t, source, to, chunk, kind in rows.tolist():
            where = f"round {t}: {source} -> {to}, chunk {chunk}"
            assert source != to, where
            ends = ("out", source), ("in", to)
            circuits = [(ends[0], to), (ends[1], source)]
            if two_way:
                circuits += [(("in", source), to), (("out", to), source)]
            for end, other in circuits:
                assert faces.setdefault(end, other) == other, f"{where}: a second circuit"
            given, had = before[source, chunk], before[to, chunk]
            assert given.any(), f"{where}: nothing to send"
            if kind == 1:
                assert not (given & had).any(), f"{where}: added twice"
                assert not (given & held[to, chunk]).any(), f"{where}: added twice in a round"
                held[to, chunk] |= given
            else:
                assert given.sum() > held[to, chunk].sum(), f"{where}: nothing new"
                held[to, chunk] = given
        if not shared:
            pairs = rows[:, 1].astype(np.int64) * len(held) + rows[:, 2]
            assert len(np.unique(pairs)) == len(rows), f"round {rows[0, 0]}: a circuit used twice"
    return held

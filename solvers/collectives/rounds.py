"""Rounds of sends, before anything is said of circuits, and the sizes of their chunks.

A *chunk* is what one send carries: a block of an all-to-all (what one rank sends to one other), or
an equal part of a buffer. A *row* of sends is round, source, destination, chunk and kind. A
*place* is a memory of a rank for a chunk: its sum, its own data, or data that are on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Collective
from optmatch.problems.collectives.plan import REDUCE

MOST_SENDS = 1 << 26
"""Sends of a plan of an all-to-all: of more it takes tens of gigabytes; 512 ranks of a ring."""


class Rounds(NamedTuple):
    """The sends of each round, each send over circuits of its own."""

    sends: NDArray[np.int64]
    """Rows of round, source, destination, chunk and kind, as in a `CollectivePlan`."""
    chunk_count: int
    """The number of chunks into which the data of the collective are cut."""
    matchings: NDArray[np.int64] | None = None
    """``matchings[round, lane, rank]``: the peer of each port, -1 if it is dark. None where each
    rank sends to one other in a round, and all lanes have the same circuits."""
    places: NDArray[np.int64] | None = None
    """Shape (sends, 2): from and into which place of its chunk each send is, as in a
    `CollectivePlan`. None: all are sums."""

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return int(self.sends[-1, 0]) + 1 if len(self.sends) else 0

    def partners(self, n: int) -> NDArray[np.int64]:
        """Tell to whom each rank sends in each round.

        Returns the rank that it sends to, -1 for nobody.
        """
        partner = np.full((self.n_rounds, n), -1)
        turn, source, destination = self.sends.T[:3]
        partner[turn, source] = destination
        return partner

    def bytes_sent(self, problem: Collective) -> NDArray[np.float64]:
        """Add up how many bytes each rank sends in each round."""
        n = problem.n_ranks
        turn, source, _, chunk, _ = self.sends.T
        sizes = chunk_sizes(problem, self.chunk_count)[chunk]
        total = np.bincount(turn * n + source, weights=sizes, minlength=self.n_rounds * n)
        return total.astype(np.float64).reshape(self.n_rounds, n)


def ready_s(problem: Collective, sends: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return when the last rank that takes part in each round is ready."""
    ready = np.zeros(count)
    late = problem.late
    if not late.any():
        return ready
    turn, source, destination = sends.T[:3]
    np.maximum.at(ready, turn, np.maximum(late[source], late[destination]))
    return ready


def as_rounds(
    parts: Sequence[tuple[NDArray[np.int64], ...]], kind: int, chunk_count: int
) -> Rounds:
    """Make one record of the sends of rounds, of which each is given by itself."""
    bounds = np.cumsum([0, *(len(chunk) for _, _, chunk in parts)])
    rows = np.empty((bounds[-1], 5), dtype=np.int64)
    rows[:, 4] = kind
    for turn, (source, destination, chunk) in enumerate(parts):
        rows_of_round = rows[bounds[turn] : bounds[turn + 1]]
        rows_of_round[:, 0] = turn
        rows_of_round[:, 1] = source
        rows_of_round[:, 2] = destination
        rows_of_round[:, 3] = chunk
    return Rounds(rows, chunk_count)


def backwards(gather: Rounds) -> Rounds:
    """Turn an all-gather into the reduce-scatter that runs backwards.

    Each copy becomes a sum from its receiver to its sender, in the opposite order; circuits lead
    the other way. Where an all-gather brings a chunk from its owner to all ranks, the sums of this
    chunk come from all ranks to its owner.
    """
    turn, source, destination, chunk, _ = gather.sends.T
    turn = gather.n_rounds - 1 - turn
    kinds = np.full(len(turn), REDUCE)
    rows = np.column_stack([turn, destination, source, chunk, kinds])
    matchings = gather.matchings
    if matchings is not None:
        matchings = _invert_matchings(matchings[::-1])
    return Rounds(rows[np.argsort(turn, kind="stable")], gather.chunk_count, matchings)


def _invert_matchings(matchings: NDArray[np.int64]) -> NDArray[np.int64]:
    """Turn all one-way circuits around, each in its own round and lane.

    ``matchings[round, lane, rank]`` is the rank to which a port leads, -1 if it is dark. Returns
    the rank from which the circuit came that ended at the port, -1 if none did.
    """
    inverse = np.full_like(matchings, -1)
    turn, lane, rank = np.nonzero(matchings >= 0)
    inverse[turn, lane, matchings[turn, lane, rank]] = rank
    return inverse


def one_after_another(first: Rounds, second: Rounds) -> Rounds:
    """Let one collective follow another: a reduce-scatter and an all-gather are an all-reduce."""
    later = second.sends.copy()
    later[:, 0] += first.n_rounds
    matchings = None
    if first.matchings is not None and second.matchings is not None:
        matchings = np.concatenate([first.matchings, second.matchings])
    return Rounds(np.concatenate([first.sends, later]), first.chunk_count, matchings)


def of_gathers(operation: str, gather: Callable[[int], Rounds]) -> Rounds:
    """Make an all-gather, or the sums that are made of it; other operations stay as they are."""
    if operation not in ("all-reduce", "reduce-scatter"):
        return gather(1)
    scatter = backwards(gather(-1))
    return one_after_another(scatter, gather(1)) if operation == "all-reduce" else scatter


def chunk_sizes(problem: Collective, count: int) -> NDArray[np.float64]:
    """Return the bytes of each of so many chunks, padded to multiples of ``align_bytes``."""
    if problem.operation == "all-to-all":
        sizes = problem.demand.reshape(-1)
    else:
        sizes = np.full(count, problem.size_bytes / count)
    if problem.align_bytes:
        sizes = np.ceil(sizes / problem.align_bytes) * problem.align_bytes
    return sizes


def without_nothing(problem: Collective, rounds: Rounds) -> Rounds:
    """Leave out sends of an uneven all-to-all that have no bytes, and rounds without any."""
    if problem.demand_bytes is None:
        return rounds
    has_bytes = problem.demand_bytes.reshape(-1)[rounds.sends[:, 3]] > 0
    kept = rounds.sends[has_bytes]
    turns, new_turn = np.unique(kept[:, 0], return_inverse=True)
    kept = np.column_stack([new_turn.reshape(-1), kept[:, 1:]])
    matchings = None if rounds.matchings is None else rounds.matchings[turns]
    return Rounds(kept, rounds.chunk_count, matchings)

"""Rounds of sends, before anything is said of circuits, and the sizes of their chunks."""

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
    matchings: NDArray[np.int64] | None = None
    """``matchings[round, lane, rank]``; None where each rank sends to one other in a round, and
    all lanes have the same circuits."""
    places: NDArray[np.int64] | None = None
    """From and into which place of its chunk each send is; None: all are sums."""

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return int(self.sends[-1, 0]) + 1 if len(self.sends) else 0

    def partners(self, n: int) -> NDArray[np.int64]:
        """Return ``partner[round, rank]``: to whom each of n ranks sends, -1 for nobody."""
        found = np.full((self.n_rounds, n), -1)
        turn, source, destination = self.sends.T[:3]
        found[turn, source] = destination
        return found

    def bytes_sent(self, problem: Collective) -> NDArray[np.float64]:
        """Return ``bytes_[round, rank]``: how much each rank sends."""
        n = problem.n_ranks
        turn, source, _, chunk, _ = self.sends.T
        sizes = chunk_sizes(problem, self.chunk_count)[chunk]
        total = np.bincount(turn * n + source, weights=sizes, minlength=self.n_rounds * n)
        return total.astype(np.float64).reshape(self.n_rounds, n)


def ready_s(problem: Collective, sends: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return ``ready_s[round]``: when the last rank of each of so many rounds is ready."""
    found, late = np.zeros(count), problem.late
    turn, source, destination = sends.T[:3]
    np.maximum.at(found, turn, np.maximum(late[source], late[destination]))
    return found


def as_rounds(
    parts: Sequence[tuple[NDArray[np.int64], ...]], kind: int, chunk_count: int
) -> Rounds:
    """Put together a list of (sources, destinations, chunks), one for each round."""
    rows = [
        np.column_stack(
            [np.full(len(chunk), turn), source, destination, chunk, np.full(len(chunk), kind)]
        )
        for turn, (source, destination, chunk) in enumerate(parts)
    ]
    empty = np.empty((0, 5), dtype=np.int64)
    return Rounds(np.concatenate([empty, *rows]), chunk_count)


def backwards(gather: Rounds) -> Rounds:
    """Turn an all-gather into the reduce-scatter that runs backwards."""
    turn, source, destination, chunk, _ = gather.sends.T
    turn = gather.n_rounds - 1 - turn
    rows = np.column_stack([turn, destination, source, chunk, np.full(len(turn), REDUCE)])
    matchings = None if gather.matchings is None else _inverse(gather.matchings[::-1])
    return Rounds(rows[np.argsort(turn, kind="stable")], gather.chunk_count, matchings)


def _inverse(matchings: NDArray[np.int64]) -> NDArray[np.int64]:
    found = np.full_like(matchings, -1)
    at = np.nonzero(matchings >= 0)
    found[at[0], at[1], matchings[at]] = at[2]
    return found


def one_after_another(first: Rounds, second: Rounds) -> Rounds:
    """Let one collective follow another: a reduce-scatter and an all-gather are an all-reduce."""
    later = second.sends.copy()
    later[:, 0] += first.n_rounds
    matchings = None
    if first.matchings is not None and second.matchings is not None:
        matchings = np.concatenate([first.matchings, second.matchings])
    return Rounds(np.concatenate([first.sends, later]), first.chunk_count, matchings)


def of_gathers(operation: str, gather: Callable[[int], Rounds]) -> Rounds:
    """Make an all-gather, or the sums that are made of it.

    Operations but all-reduce and reduce-scatter are left as they are. `gather` makes rounds in
    which chunks go round in a direction, 1 or -1: the two halves of an all-reduce go opposite
    ways, so that its middle rounds have the same circuits.
    """
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
    """Leave out chunks of an uneven all-to-all that have no bytes, and rounds without any."""
    if problem.demand_bytes is None:
        return rounds
    kept = rounds.sends[problem.demand_bytes.reshape(-1)[rounds.sends[:, 3]] > 0]
    turns, numbers = np.unique(kept[:, 0], return_inverse=True)
    kept = np.column_stack([numbers.reshape(-1), kept[:, 1:]])
    matchings = None if rounds.matchings is None else rounds.matchings[turns]
    return Rounds(kept, rounds.chunk_count, matchings)

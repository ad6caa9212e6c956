"""Rounds of sends, before anything is said of circuits, and the sizes of their chunks.

A *chunk* is what one send carries: a block of an all-to-all (what one rank sends to one other), or
an equal part of a buffer. A *row* of sends is round, source, destination, chunk and kind. A
*place* is a memory of a rank for a chunk: its sum, its own data, or data that are on their way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock
from optmatch.problems import Collective, CollectivePlan

IntArray = NDArray[np.int64]
IndexArray = NDArray[np.integer[Any]]
"""Numbers of 32 or 64 bits, of ranks, rounds or chunks."""
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Amount = TypeVar("Amount", float, FloatArray)
"""A number, or one for each of several rounds."""

ROUND, SOURCE, DESTINATION, CHUNK, KIND = range(5)
"""The columns of sends, as in a `CollectivePlan`."""

RoundSends = tuple[IntArray, IntArray, IntArray]
"""The sends of a round: arrays of sources, destinations and chunks, an entry for each send."""

MOST_PIECES = 1024
"""The most pieces into which a buffer is cut."""
MOST_SENDS = 1 << 26
"""Sends of a plan of an all-to-all: of more it takes tens of gigabytes; 512 ranks of a ring."""


SENDS_PER_S = 1_200_000
"""Sends that are made, laid out and replayed by the verifier in a second. Measured: 0.8 to 1.6
million, of collectives of 1,024 ranks on one core. With half of this number methods are left out
that would be done in time; with twice of it limits of 1 s are overrun by a second."""
SENDS_OF_A_SUM = 2
"""To lay out and check a send that is added to a sum takes as long as this number of copies: the
ranks in each sum are replayed."""
QUICK_SENDS = 1 << 14
"""Plans of no more sends are made in any case: they take some 10 ms."""
PORTS_OF_A_SEND = 2
"""To set up this number of ports, and to check them, takes as long as a send: plans of 1,024 to
4,096 ranks have 2 to 4 million ports in a second. With twice of it a limit of 1 s is overrun by
0.4 s; with half of it 1,024 ranks of four ports get a plan 1.5 times as long in it."""
MOST_OFFERED_SENDS = 1 << 24
"""Plans of more sends are not offered: they take gigabytes."""
MOST_LISTED_SENDS = 1 << 17
"""Plans of more sends store those of the chunks of one rank, where all ranks do the same. With
half of this number all-gathers of 256 ranks would do so too, which take 0.1 s to be listed; with
twice of it an all-to-all of 256 ranks takes 0.2 s, too long for a limit of 0.1 s."""


def is_affordable(n_sends: float, clock: Clock, *, reserve: float = 1.0) -> bool:
    """Tell whether there is memory and time to lay out a plan of `n_sends` and to check it.

    The time left on `clock` has to be `reserve` times as long as that takes.
    """
    has_memory = n_sends <= MOST_OFFERED_SENDS
    return has_memory and reserve * n_sends <= SENDS_PER_S * clock.remaining_s


class Rounds(NamedTuple):
    """The sends of each round, each send over circuits of its own."""

    sends: IntArray
    """Rows of round, source, destination, chunk and kind, as in a `CollectivePlan`."""
    chunk_count: int
    """The number of chunks into which the data of the collective are cut."""
    matchings: Sequence[IntArray] | None = None
    """``matchings[round][lane, rank]``: the peer of each port, -1 if it is dark. None where each
    rank sends to one other in a round, and all lanes have the same circuits."""
    stored_ranks: int = 0
    """Only the sends of the chunks of this number of first ranks are listed, as in a
    `CollectivePlan`; those of the others are the same between ranks some places onward. 0: the
    sends of all ranks are listed."""
    places: IntArray | None = None
    """Shape (sends, 2): from and into which place of its chunk each send is, as in a
    `CollectivePlan`. None: all are sums."""
    links: IntArray | None = None
    """Rows of send, from and to: the circuits of sends that are forwarded inside their round, in
    their order. None: no send is."""
    parts: FloatArray | None = None
    """Shape (sends, 2): the first byte and the bytes that a send takes of its chunk, as in a
    `CollectivePlan`. None: sends take whole chunks."""

    @classmethod
    def of_plan(cls, plan: CollectivePlan) -> Rounds:
        """Return the rounds of a plan that sends whole chunks between sums, without its circuits.

        An answer stores its arrays as smaller integers; rounds have int64.
        """
        return cls(
            plan.sends.astype(np.int64),
            len(plan.chunk_bytes),
            stored_ranks=plan.stored_ranks,
            links=plan.links.astype(np.int64),
        )

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return int(self.sends[-1, ROUND]) + 1 if len(self.sends) else 0

    def partners(self, n: int) -> IntArray:
        """Tell to whom each rank sends in each round.

        Returns ``partner[round, rank]``, -1 for nobody.
        """
        turn, source, destination = self.sends.T[:3]
        partner = np.full((self.n_rounds, n), -1)
        partner[turn, source] = destination
        return partner

    def bytes_sent(self, problem: Collective) -> FloatArray:
        """Return ``bytes[round, rank]``: how many bytes each rank sends in each round."""
        n = problem.n_ranks
        turn, source, _, chunk, _ = self.sends.T
        sizes = chunk_sizes(problem, self.chunk_count)[chunk]
        total = np.bincount(turn * n + source, weights=sizes, minlength=self.n_rounds * n)
        return total.astype(np.float64).reshape(self.n_rounds, n)


class CircuitLines(NamedTuple):
    """Rings and lines of circuits, laid one after another; arrays by rank."""

    place: IntArray
    """The place of a rank among all ranks, ring after ring and line after line."""
    first: IntArray
    """The first place of the ring or line of a rank."""
    ring_length: IntArray
    """How many ranks the ring of a rank has; 0 for ranks on lines."""

    @property
    def steps(self) -> IntArray:
        """How many circuits lead to each rank from the beginning of its ring or line."""
        return self.place - self.first


def unroll_circuits(circuits: IntArray) -> CircuitLines:
    """Lay the rings and lines that circuits make one after another, and number their places.

    ``circuits[rank]`` is the rank to which it transmits, -1 for none.

    Example: 0 -> 3, and the ring 1 -> 2 -> 1. The line comes first: the ranks 0, 3, 1 and 2 have
    the places 0, 1, 2 and 3. The first place of the ring is 2, and its length is 2.
    """
    n = len(circuits)
    lines = CircuitLines(np.full(n, -1), np.zeros(n, np.int64), np.zeros(n, np.int64))
    next_rank = circuits.tolist()
    has_source = {rank for rank in next_rank if rank >= 0}
    n_placed = 0  # the next free place; ranks without a place have -1 as theirs

    # Ranks to which nobody transmits begin lines, and come first (False is less than True). All
    # ranks that are then left are on rings, which may begin anywhere.
    for start in sorted(range(n), key=lambda rank: rank in has_source):
        if lines.place[start] >= 0:
            continue
        # Follow the circuits until a line ends, or a ring comes back to its start.
        first = n_placed
        members = []
        rank = start
        while rank >= 0 and lines.place[rank] < 0:
            lines.place[rank] = n_placed
            n_placed += 1
            members.append(rank)
            rank = next_rank[rank]

        # A line ends at -1, a ring where it began; a line has no length of a ring.
        lines.first[members] = first
        lines.ring_length[members] = n_placed - first if rank == start else 0
    return lines


def seconds_of(
    problem: Collective,
    n_rounds: int | IntArray,
    circuit_bytes: Amount,
    *,
    n_changes: int = 0,
    n_hops: int | IntArray | None = None,
) -> Amount:
    """Return the seconds of rounds, or of each round by itself, from what is counted in them.

    A round has a start-up, a hop time for each circuit of its longest send, and the bytes of its
    busiest circuit; circuits change between some rounds. Of a plan the numbers are sums over all
    rounds; it has one hop in each round unless `n_hops` are given. Late ranks and the circuits at
    the start are not counted, so that a plan takes so long or longer.

    Example: 3 rounds with start-ups of 1 us, one change in 10 us, and 2,000, 1,000 and 1,000 bytes
    over the busiest circuits at 1 byte per ns last 3 + 10 + 4 = 17 us.
    """
    hops_s: Any = (n_rounds if n_hops is None else n_hops) * problem.circuit_s
    seconds: Amount = n_rounds * problem.start_up_s + hops_s + n_changes * problem.delay_s
    return seconds + circuit_bytes / problem.rate_bytes_per_s


def ready_s(problem: Collective, sends: IntArray, count: int, stored_ranks: int = 0) -> FloatArray:
    """Return when the last rank that takes part in each round is ready.

    Rows of `sends` begin with round, source and destination; there are `count` rounds. The result
    ``ready[round]`` is in seconds from the beginning of the collective on. With `stored_ranks` the
    sends stand for those of all ranks, as in a `CollectivePlan`.

    Example: rank 3 is ready after 5 us. Rounds in which it sends or receives are ready then, all
    others at once.
    """
    # With s stored ranks a send of rank r stands for those of r + s, r + 2 s, ...: the latest of
    # these ranks counts for all of them.
    ready = np.zeros(count)
    late = problem.late
    if stored_ranks:
        latest = late.reshape(-1, stored_ranks).max(axis=0)
        late = np.tile(latest, problem.n_ranks // stored_ranks)
    if not late.any():
        return ready
    turn, source, destination = sends.T[:3]
    np.maximum.at(ready, turn, np.maximum(late[source], late[destination]))
    return ready


def as_rounds(
    sends_of_round: Sequence[tuple[IntArray, ...]], kind: int, chunk_count: int
) -> Rounds:
    """Make one record of the sends of rounds, of which each is given by itself (`RoundSends`)."""
    rows = [
        list_rows(turn, source, destination, chunk, kind)
        for turn, (source, destination, chunk) in enumerate(sends_of_round)
    ]
    return Rounds(np.concatenate([np.empty((0, 5), dtype=np.int64), *rows]), chunk_count)


def choose_pieces(n_filling_rounds: int, whole_s: float, round_s: float) -> int:
    """Return into how many pieces a buffer is cut best that follow each other in a pipeline.

    With p pieces ``n_filling_rounds + p`` rounds take `round_s` and ``whole_s / p`` each: the sum
    is least where p squared is ``n_filling_rounds * whole_s / round_s``.
    """
    if not round_s:
        return MOST_PIECES
    return max(1, round(min(math.sqrt(n_filling_rounds * whole_s / round_s), MOST_PIECES)))


def list_aligned_pieces(problem: Collective, pieces: int) -> list[int]:
    """List two numbers of pieces near a given one that ``align_bytes`` pads least; else itself.

    A buffer of 10 units of ``align_bytes`` in 4 pieces has chunks of 2 or 3 units: 5 or 4 pieces.
    """
    if not problem.align_bytes:
        return [pieces]
    n_units = math.ceil(problem.size_bytes / problem.align_bytes)
    units_of_chunk = max(1, n_units // pieces)
    return [max(1, math.ceil(n_units / units)) for units in (units_of_chunk, units_of_chunk + 1)]


def list_rows(*columns: IntArray | int) -> IntArray:
    """Return rows of sends, whose columns are given; a number stands for a column of itself."""
    return np.stack(np.broadcast_arrays(*columns), axis=1)


def one_after_another(first: Rounds, *following: Rounds) -> Rounds:
    """Let collectives follow each other: a reduce-scatter and an all-gather are an all-reduce.

    The rounds of each one come after those before. All have the same chunks, and the fields that
    are not joined here are those of the first one.

    Example: after a scatter of 3 rounds, round 0 of the gather becomes round 3.
    """
    together = first
    for second in following:
        later = second.sends.copy()
        later[:, ROUND] += together.n_rounds

        # Circuits are stated only if both state theirs; the first column of links are sends.
        matchings = None
        if together.matchings is not None and second.matchings is not None:
            matchings = [*together.matchings, *second.matchings]
        links = None
        if together.links is not None and second.links is not None:
            later_links = second.links.copy()
            later_links[:, 0] += len(together.sends)
            links = np.concatenate([together.links, later_links])
        sends = np.concatenate([together.sends, later])
        together = together._replace(sends=sends, matchings=matchings, links=links)
    return together


def ranks_to_store(n_sends: int) -> int:
    """Return 1 if a plan in which all ranks do the same stores the chunks of rank 0 alone.

    `n_sends` are the sends of all ranks; a plan of few sends lists them all, so that whoever reads
    it need not turn anything.
    """
    return int(n_sends > MOST_LISTED_SENDS)


def has_time_for_all_blocks(n_ranks: int, clock: Clock) -> bool:
    """Tell whether there is time to look at the blocks of all ranks, and not of one for all.

    Between few ranks there is, however short the time.
    """
    n_blocks = n_ranks * n_ranks
    return not ranks_to_store(n_blocks) or is_affordable(n_blocks, clock)


def chunk_sizes(problem: Collective, count: int, stored_ranks: int = 0) -> FloatArray:
    """Return the bytes of each of `count` chunks, padded to multiples of ``align_bytes``.

    With stored ranks they are the chunks of the first `stored_ranks` ranks alone. In an all-to-all
    a rank sends nothing to itself: the chunks r * n + r have 0 bytes.
    """
    n = problem.n_ranks
    if problem.demand_bytes is not None:
        # Blocks of an uneven all-to-all, one for each pair of ranks.
        sizes = problem.demand_bytes.reshape(-1)
    elif problem.flow.has_pairs:
        sizes = np.full(count, problem.size_bytes / n)
        sizes[:: n + 1] = 0.0  # the chunks r * n + r
    else:  # the stored ranks have their n-ths of the buffer, in `count` chunks together
        sizes = np.full(count, problem.size_bytes / count * (stored_ranks or n) / n)
    if problem.align_bytes:
        sizes = np.ceil(sizes / problem.align_bytes) * problem.align_bytes
    return sizes


def drop_empty_sends(problem: Collective, rounds: Rounds) -> Rounds:
    """Leave out sends of an uneven all-to-all that have no bytes, and rounds without any."""
    if problem.demand_bytes is None:
        return rounds
    # Rounds that are left are numbered anew: if round 1 of three has no sends, round 2 becomes 1.
    has_bytes = problem.demand_bytes.reshape(-1)[rounds.sends[:, CHUNK]] > 0
    kept_sends = rounds.sends[has_bytes]
    turns, new_turn = np.unique(kept_sends[:, ROUND], return_inverse=True)
    kept_sends[:, ROUND] = new_turn.reshape(-1)
    matchings = None if rounds.matchings is None else [rounds.matchings[turn] for turn in turns]
    return Rounds(kept_sends, rounds.chunk_count, matchings)

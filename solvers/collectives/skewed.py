"""Uneven all-to-alls of many ranks: greedy matchings for large blocks, circulants for the rest.

In each round a maximum-weight matching joins ranks, in which no pair counts for more than a cap,
so that the round is not longer than its bytes are worth; the cap that carries most bytes a second
is taken. After any number of such rounds the rest of all blocks may go by the routes of an even
all-to-all (Bruck's, or circulants with fewer configurations), whatever is left of them.

Words that are used here:

- a *block* is what one rank sends to one other; the block from rank s to rank t is chunk
  ``s * n + t`` of the plan, and its *offset* is t - s modulo n;
- a *part* of a block is a range of its bytes that goes in one send: its first byte, and how many;
- the *rest* is what greedy rounds leave of all blocks. It goes over a *circulant*, a sequence of
  configurations in each of which every rank sends to the rank some places (a *shift*) onward. A
  *move* of the rest is one hop of the blocks of some offsets, the same for all ranks;
- a *row* is a send of a plan: round, source, destination, chunk and kind;
- an *epoch* is a number of rounds in a row with the same circuits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, uncounted
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY
from optmatch.solvers.collectives.circulant import Circulant, list_shifts, route
from optmatch.solvers.collectives.plans import Laid, assemble
from optmatch.solvers.collectives.topologies import IntArray

FloatArray = NDArray[np.float64]

CAPS = (1.0, 0.7, 0.5, 0.25, 0.1)
"""Caps of the bytes of a pair in a round, as parts of the largest block that is left."""
REST_EVERY = 4
"""After so many greedy rounds the rest is timed anew; timing it takes as long as a round."""
NO_REST = -1
"""In place of the number of a circulant: greedy rounds carry everything."""
MOST_CLIMBED = 160
"""Up to so many ranks shifts of the rest are searched for; Bruck's serve more ranks."""


class GreedyRound(NamedTuple):
    """A round of direct sends; both arrays have shape (lanes, ranks)."""

    peer: IntArray
    """``peer[lane, rank]``: to whom a rank sends; to itself stands for nobody."""
    sent_bytes: FloatArray
    """``sent_bytes[lane, rank]``: how many bytes go from a rank to its peer, all of one block."""


def find_skewed_plan(problem: Collective, clock: Clock) -> Laid:
    """Find a fast plan of an uneven all-to-all: first direct sends, then a rest over other ranks.

    A *block* is what one rank sends to one other. The plan has two stages:

    1. *greedy rounds*: each rank sends a part of one block directly to its receiver, as a
       maximum-weight matching of what is left says;
    2. the *rest*: all that is left then goes over a *circulant*, some sets of circuits in each of
       which all ranks send the same number of places onward.

    How many greedy rounds there are is found by adding them one by one. Now and then each
    circulant is timed for what is left, and the least sum of both stages is kept. The search ends
    when the greedy rounds alone take as long as the best plan so far.

    Parameters
    ----------
    problem
        An uneven all-to-all with one-way circuits, whose blocks may be cut anywhere.
    clock
        When it has run out, the best plan so far is returned.

    Returns
    -------
    Laid
        The plan (sends with their parts of blocks, circuits by epoch, time), and
        ``held_s[epoch]``: for how many seconds the circuits of each epoch (rounds in a row with
        the same circuits) are there.
    """
    # `left` has the bytes of each block that greedy rounds have not carried yet. All times are
    # seconds.
    rests = list(_list_rests(problem, clock))
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    left = problem.demand.copy()
    greedy: list[GreedyRound] = []
    greedy_s = 0.0

    # The first plan to compare with: no greedy rounds, and all goes over the best circulant.
    best_s, best_rest = min((_time_rest(problem, rest, left), k) for k, rest in enumerate(rests))
    best_n_greedy = 0
    for turn in range(4 * problem.n_ranks):
        if clock.exceeded(0) is not None or not left.any():
            break

        # One greedy round more, which lasts until its busiest circuit is done. Circuits change
        # before each round but the first.
        greedy.append(_choose_round(problem, left))
        busiest_bytes = float(greedy[-1].sent_bytes.max())
        greedy_s += round_s + busiest_bytes / problem.rate_bytes_per_s
        if turn > 0:
            greedy_s += problem.delay_s
        if greedy_s >= best_s:
            break

        # Either nothing is left, or what is left goes over the circulant that suits it best.
        if not left.any():
            best_s = greedy_s
            best_rest = NO_REST
            best_n_greedy = turn + 1
        elif turn % REST_EVERY == REST_EVERY - 1:
            for k, rest in enumerate(rests):
                total_s = greedy_s + problem.delay_s + _time_rest(problem, rest, left)
                if total_s < best_s:
                    best_s = total_s
                    best_rest = k
                    best_n_greedy = turn + 1

    # Lay out the best number of greedy rounds, and the circulant that belongs to it.
    chosen_rest = None if best_rest == NO_REST else rests[best_rest]
    return _lay_skewed(problem, greedy[:best_n_greedy], chosen_rest)


def _choose_round(problem: Collective, left: FloatArray) -> GreedyRound:
    """Choose direct sends of one round of an uneven all-to-all, and take them from what is left.

    A *block* is what one rank sends to one other. A round lasts until its busiest circuit is done,
    so one large block keeps all others waiting. A circuit therefore carries at most a *cap* of
    bytes in a round. Several caps are tried: for each the circuits are a maximum-weight matching,
    and the one with which most bytes are carried in a second is taken.

    Example: the blocks that a matching carries have 100, 10 and 10 bytes, a byte takes 1 second,
    and a round costs 5 seconds more. A cap of 100 carries 120 bytes in 105 seconds; a cap of 10
    carries 30 bytes in 15 seconds, which is more in a second.

    Parameters
    ----------
    problem
        Has the costs of a round, and the number of *lanes* (ports of every rank).
    left
        ``left[source, destination]``, shape (ranks, ranks): the bytes of each block that are left;
        what the round carries is taken off.

    Returns
    -------
    GreedyRound
        Int array ``peer[lane, rank]``: to whom a rank sends, itself for nobody; and float array
        ``sent_bytes[lane, rank]``: the bytes that it sends there, at most the cap.
    """
    with uncounted():
        from scipy.optimize import linear_sum_assignment

    n = problem.n_ranks
    ranks = np.arange(n)

    # Try all caps with the first lane, and keep the one that carries most bytes a second. A small
    # cap makes the round short, so that few circuits wait for the largest block.
    fixed_s = problem.alpha_s + (problem.hop_s or 0.0) + problem.delay_s
    largest = float(left.max())
    best_bytes_per_s = -1.0
    best_cap = largest
    first_peer = ranks
    for part in CAPS:
        cap = part * largest
        capped = np.minimum(left, cap)
        _, peer = linear_sum_assignment(capped, maximize=True)
        carried = float(capped[ranks, peer].sum())
        bytes_per_s = carried / (fixed_s + cap / problem.rate_bytes_per_s)
        if bytes_per_s > best_bytes_per_s:
            best_bytes_per_s = bytes_per_s
            best_cap = cap
            first_peer = peer

    # With this cap each lane takes a matching of what the lanes before it leave over.
    peers = np.empty((problem.lanes, n), dtype=np.int64)
    sent = np.empty((problem.lanes, n))
    for lane in range(problem.lanes):
        capped = np.minimum(left, best_cap)
        peers[lane] = first_peer
        if lane:
            _, peers[lane] = linear_sum_assignment(capped, maximize=True)
        sent[lane] = capped[ranks, peers[lane]]
        left[ranks, peers[lane]] -= sent[lane]
    return GreedyRound(peers, sent)


def _list_rests(problem: Collective, clock: Clock) -> Iterator[Circulant]:
    """Yield sets of circuits over which an all-to-all can go, however much data each block has.

    A *circulant* is a sequence of configurations (sets of circuits that are held for some rounds).
    In each of them all ranks send the same number of places onward, a *shift*. A block takes the
    shifts that add up to the distance of its receiver.

    - First comes Bruck's algorithm, with the shifts 1, 2, 4, ... A block for the rank 5 places
      onward takes the shifts 1 and 4.
    - For up to `MOST_CLIMBED` ranks the best shifts that hill climbing finds follow, for each
      number of configurations from 1 to two more than Bruck's.

    Parameters
    ----------
    problem
        The all-to-all, for the number of its ranks.
    clock
        The limits of the search for shifts.

    Yields
    ------
    Circulant
        ``shifts[configuration]``, and ``exponents[offset, configuration]``: how often a block for
        the rank `offset` places onward takes this shift.
    """
    n = problem.n_ranks

    # Bruck's shifts are the powers of two below n. A block takes those that are bits of its
    # offset.
    powers = np.array([1 << k for k in range((n - 1).bit_length())])
    yield Circulant(powers, (np.arange(n)[:, None] & powers) // powers)
    if n <= MOST_CLIMBED:
        for count in range(1, len(powers) + 3):
            for shifts in list_shifts(n, count, clock=clock)[:1]:
                yield route(n, shifts)


def _list_rest_moves(circulant: Circulant) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Yield which blocks move on in each round of an all-to-all over circuits of equal distance.

    A *block* is what one rank sends to one other. Its *offset* is how many places onward its
    receiver is, modulo the number of ranks. In each *configuration* of circuits all ranks send the
    same number of places onward, the *shift*. A block takes shifts that add up to its offset. All
    ranks do the same, so it is enough to say what happens to each offset.

    Example with 4 ranks and the shifts 1 and 2. In the first round the blocks of offsets 1 and 3
    move one place; in the second one those of offsets 2 and 3 move two places, the latter from
    place 1.

    Parameters
    ----------
    circulant
        ``shifts[config]``, and ``exponents[offset, config]``: how often blocks of an offset take
        the shift of a configuration.

    Yields
    ------
    config : int
        The number of the configuration in this round.
    offsets : int array, shape (moving,)
        The offsets of the blocks that move in it.
    distance : int array, shape (moving,)
        How many places from its source each of these blocks is before the round.
    """
    n = len(circulant.exponents)
    distance = np.zeros(n, dtype=np.int64)
    for config, shift in enumerate(circulant.shifts.tolist()):
        # A configuration has as many rounds as the block that takes its shift most often.
        for hop in range(int(circulant.exponents[:, config].max(initial=0))):
            offsets = np.flatnonzero(circulant.exponents[:, config] > hop)
            yield config, offsets, distance[offsets]
            distance[offsets] += shift


def _time_rest(problem: Collective, circulant: Circulant, left: FloatArray) -> float:
    """Return how many seconds an all-to-all takes over circuits of equal distance.

    A *block* is what one rank sends to one other, and its *offset* is how many places onward its
    receiver is. In each configuration of circuits all ranks send the same number of places onward,
    a *shift*. A block takes shifts that add up to its offset, one hop in a round. A round lasts as
    long as the rank that sends most takes, with all its ports; a change of circuits is added where
    the configuration changes. The first circuits are taken to be there.

    Parameters
    ----------
    problem
        The all-to-all, with the costs of rounds, bytes and changes of circuits.
    circulant
        ``shifts[config]``, and ``exponents[offset, config]``: how often blocks of an offset take
        the shift of a configuration.
    left
        ``left[source, destination]``, shape (ranks, ranks): the bytes of each block.

    Returns
    -------
    float
        Seconds; infinite if the circulant has no rounds.
    """
    n = problem.n_ranks
    ranks = np.arange(n)[:, None]
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    seconds = 0.0
    last_config = -1
    for config, offsets, distance in _list_rest_moves(circulant):
        # The bytes that each rank sends in this round: those of all blocks that are at it.
        amounts = left[ranks, (ranks + offsets) % n]
        holder = (ranks + distance) % n  # where each block is before the round
        load = np.bincount(holder.reshape(-1), amounts.reshape(-1), n)
        busiest_s = float(load.max()) / (problem.lanes * problem.rate_bytes_per_s)
        seconds += round_s + busiest_s
        if config != last_config and last_config >= 0:
            seconds += problem.delay_s
        last_config = config
    return seconds if last_config >= 0 else math.inf


def _lay_skewed(problem: Collective, greedy: list[GreedyRound], rest: Circulant | None) -> Laid:
    """Make the plan of an uneven all-to-all of direct sends first, and a rest over other ranks.

    A *block* is what one rank sends to one other; it may be sent in several parts. The plan has
    two stages:

    1. *greedy rounds*: in each of them some ranks send one part of a block directly to its
       receiver;
    2. the *rest*: what is left of each block is one more part. It goes over circuits in which all
       ranks send the same number of places onward, a *shift*. It takes the shifts that add up to
       its *offset*, which is how many places onward its receiver is.

    Example with 4 ranks. Rank 0 has 10 bytes for rank 3; each other block has 2 bytes. A greedy
    round carries the first 7 bytes from rank 0 to rank 3. The rest of this block has 3 bytes, from
    byte 7 on. With the shifts 1 and 2 it goes from rank 0 to rank 1, and from there to rank 3.

    Parameters
    ----------
    problem
        The all-to-all.
    greedy
        The greedy rounds in order: ``peer[lane, rank]``, to whom a rank sends (itself for nobody),
        and ``sent_bytes[lane, rank]``. A *lane* is a port of every rank.
    rest
        The circuits of the rest: ``shifts[config]``, and how often blocks of each offset take each
        of them. None if nothing is left.

    Returns
    -------
    Laid
        The plan, and for how many seconds the circuits of each epoch (rounds in a row with the
        same circuits) are held. In the plan

        - a chunk is a block, with the number ``source * n + destination``;
        - `sends` are rows of round, source, destination, chunk and kind;
        - `parts` has for each send the first byte of its block, and the number of bytes;
        - ``circuits[epoch, lane, rank]`` is to whom a port sends, -1 if it is dark.
    """
    n = problem.n_ranks
    lanes = problem.lanes
    ranks = np.arange(n)

    # All lists are filled round by round. A block is sent from its first byte on, so the bytes
    # that were sent of it say where its next part begins.
    sent_bytes = np.zeros((n, n))  # of each block, from its beginning on
    rows = [np.empty((0, 5), dtype=np.int64)]
    parts = [np.empty((0, 2))]  # for each send the first byte of its block, and the bytes
    circuits: list[IntArray] = []  # for each round peer[lane, rank], -1 of dark ports

    # Greedy rounds: each rank sends a part of the block for its peer.
    for turn, greedy_round in enumerate(greedy):
        for lane in range(lanes):
            source = np.flatnonzero(greedy_round.sent_bytes[lane] > 0)
            target = greedy_round.peer[lane, source]
            amount = greedy_round.sent_bytes[lane, source]
            rows.append(_as_rows(turn, source, target, source * n + target))
            parts.append(np.column_stack([sent_bytes[source, target], amount]))
            sent_bytes[source, target] += amount
        circuits.append(np.where(greedy_round.peer == ranks, -1, greedy_round.peer))

    # The rest of each block goes in one part, from the first byte that was not sent on. Sums of
    # what was sent may differ from the whole in the last bit; such a rest is none.
    left = problem.demand - sent_bytes
    left[left < 1e-12 * problem.demand] = 0.0
    if rest is not None:
        # In each round blocks of some offsets move on by the shift, the same ones from all ranks.
        # Lists by pair of rank and offset say where each block began (`source`), where it goes
        # (`target`), and which rank has it now (`holder`).
        for config, offsets, distance in _list_rest_moves(rest):
            shape = (n, len(offsets))
            source = np.broadcast_to(ranks[:, None], shape).reshape(-1)
            target = ((ranks[:, None] + offsets) % n).reshape(-1)
            holder = ((ranks[:, None] + distance) % n).reshape(-1)  # where the block is now
            has_bytes = left[source, target] > 0
            source, target, holder = source[has_bytes], target[has_bytes], holder[has_bytes]
            # Blocks of which nothing is left are not sent; a round without any is left out.
            if not len(source):
                continue
            next_rank = (holder + int(rest.shifts[config])) % n
            rows.append(_as_rows(len(circuits), holder, next_rank, source * n + target))
            parts.append(np.column_stack([sent_bytes[source, target], left[source, target]]))
            circuits.append(np.tile((ranks + int(rest.shifts[config])) % n, (lanes, 1)))

    # Rounds with the same circuits as the one before are in the same epoch, which begins without a
    # change of circuits.
    peer = np.array(circuits)
    changes = np.append(True, (np.diff(peer, axis=0) != 0).any(axis=(1, 2)))
    return assemble(
        problem,
        np.concatenate(rows),
        n * n,
        peer[changes],
        np.cumsum(changes) - 1,
        parts=np.concatenate(parts),
    )


def _as_rows(turn: int, source: IntArray, target: IntArray, chunk: IntArray) -> IntArray:
    """Return rows of sends that copy chunks in one round.

    Parameters
    ----------
    turn
        The number of the round.
    source, target, chunk
        For each send the rank that sends, the rank that receives, and the chunk.

    Returns
    -------
    int array, shape (sends, 5)
        Rows of round, source, destination, chunk and kind.
    """
    kind = np.full(len(source), COPY)
    return np.column_stack([np.full(len(source), turn), source, target, chunk, kind])

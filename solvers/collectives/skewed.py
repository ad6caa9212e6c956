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
    """Return the fastest plan of some greedy rounds and a rest over circulants.

    A *block* is what one rank sends to one other. In a *greedy round* each rank sends a part of
    one block directly to its receiver, as a maximum-weight matching says. All that is left goes
    over a *circulant*: circuits that lead from all ranks equally many places onward. Greedy rounds
    are added one by one. Now and then each of the circulants is timed for what is left then; the
    number of greedy rounds and the circulant with the least sum are taken. It ends when the greedy
    rounds alone take as long as the best plan so far.

    Parameters
    ----------
    problem
        An uneven all-to-all with one-way circuits, whose blocks may be cut anywhere.
    clock
        When it has run out, the best plan so far is returned.

    Returns
    -------
    Laid
        The plan (sends with their parts of blocks, circuits by epoch, time), and for how many
        seconds the circuits of each epoch are held.
    """
    # `left` has the bytes of each block that greedy rounds have not carried yet.
    rests = list(_list_rests(problem, clock))
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    left = problem.demand.copy()
    greedy: list[GreedyRound] = []
    greedy_s = 0.0

    # At first all goes over a circulant.
    best_s, best_rest = min((_time_rest(problem, rest, left), k) for k, rest in enumerate(rests))
    best_n_greedy = 0
    for turn in range(4 * problem.n_ranks):
        if clock.exceeded(0) is not None or not left.any():
            break
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
    chosen_rest = None if best_rest == NO_REST else rests[best_rest]
    return _lay_skewed(problem, greedy[:best_n_greedy], chosen_rest)


def _choose_round(problem: Collective, left: FloatArray) -> GreedyRound:
    """Choose the matchings of a round, one for each lane, and take what they carry from `left`.

    A *block* is what one rank sends to one other, and a *lane* is a port of every rank. A cap is
    the most that a circuit carries in the round, and with it the length of the round. The cap with
    which the first matching carries most bytes a second is taken for all lanes.

    Parameters
    ----------
    problem
        Has the costs of a round, and the number of lanes.
    left
        ``left[source, destination]``, shape (ranks, ranks): the bytes that are left of each block;
        what the round carries is taken off.

    Returns
    -------
    GreedyRound
        The peer of each rank in each lane, and the bytes that it sends there: no more than the
        cap.
    """
    with uncounted():
        from scipy.optimize import linear_sum_assignment

    n = problem.n_ranks
    ranks = np.arange(n)

    # The cap that carries most bytes a second, with the matching of the first lane. A small cap
    # makes the round short, so that few circuits wait for the largest block.
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

    # Each lane takes what the lanes before it leave over.
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
    """Yield circulants over which what is left of all blocks can go.

    In a *circulant* all ranks send the same number of places onward, a *shift*, in each
    configuration (a set of circuits that is held for some rounds). Bruck's algorithm has the
    shifts 1, 2, 4, ...; the block for the rank o places onward takes the shifts of the bits of o.
    Those with fewer configurations, or with up to two more, are the best that hill climbing finds
    for each number, and only for up to `MOST_CLIMBED` ranks.

    Parameters
    ----------
    problem
        The all-to-all, for the number of its ranks.
    clock
        The limits of the search for shifts.

    Yields
    ------
    Circulant
        The shift of each configuration, and ``exponents[offset, configuration]``: how often the
        blocks for the rank so many places onward take it.
    """
    n = problem.n_ranks
    powers = np.array([1 << k for k in range((n - 1).bit_length())])
    yield Circulant(powers, (np.arange(n)[:, None] & powers) // powers)
    if n <= MOST_CLIMBED:
        for count in range(1, len(powers) + 3):
            for shifts in list_shifts(n, count, clock=clock)[:1]:
                yield route(n, shifts)


def _list_rest_moves(circulant: Circulant) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Yield what moves in each round of an all-to-all over a circulant.

    A *block* is what one rank sends to one other, and its *offset* is how many places from its
    source the destination is. In a *circulant* each configuration of circuits leads from every
    rank the same number of places onward, its *shift*; a block takes shifts that add up to its
    offset. All ranks do the same.

    Parameters
    ----------
    circulant
        ``shifts[config]``, and ``exponents[offset, config]``: how often blocks of an offset take
        the shift of a configuration.

    Yields
    ------
    config : int
        The number of the configuration; its circuits lead ``circulant.shifts[config]`` onward.
    offsets : int array, shape (moving,)
        The offsets of the blocks that move.
    distance : int array, shape (moving,)
        How many places from its source each of them is before the round.
    """
    n = len(circulant.exponents)
    distance = np.zeros(n, dtype=np.int64)
    for config, shift in enumerate(circulant.shifts.tolist()):
        for hop in range(int(circulant.exponents[:, config].max(initial=0))):
            offsets = np.flatnonzero(circulant.exponents[:, config] > hop)
            yield config, offsets, distance[offsets]
            distance[offsets] += shift


def _time_rest(problem: Collective, circulant: Circulant, left: FloatArray) -> float:
    """Return the seconds of what is left over a circulant, whose first circuits are there.

    In a *circulant* all ranks send the same *shift* onward in a configuration of circuits. The
    *offset* of a block is how many places onward its receiver is; the block takes the shifts that
    add up to it, one hop in a round. A round lasts as long as the rank that sends most takes, over
    all lanes, the ports of a rank.

    Parameters
    ----------
    problem
        The all-to-all, with the costs of rounds, bytes and changes of circuits.
    circulant
        The shifts of the configurations, and how often the blocks of each offset take each of
        them.
    left
        ``left[source, destination]``, shape (ranks, ranks): the bytes of each block that are left.

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
    """Lay out greedy rounds, and then the rest; a block that is cut goes in parts.

    A *block* is what one rank sends to one other, and its *offset* is how many places onward the
    receiver is. In a *circulant* the circuits of a round lead from all ranks equally many places
    onward, a *shift*; the shifts that a block takes add up to its offset. Each greedy round sends
    one part of some blocks directly. The rest of each block, one more part, then goes over the
    circulant: it moves from the rank that holds it to the rank one shift onward, in as many rounds
    as its offset needs.

    Example: 4 ranks, where rank 0 has 10 bytes for rank 3 and each other block has 2. A greedy
    round of at most 7 bytes a circuit carries the first 7 bytes of the large block over 0 -> 3.
    Its rest is one part of 3 bytes, from byte 7 on; with the shifts 1 and 2 of Bruck's algorithm
    it goes from rank 0 to rank 1, and from there to rank 3, like all blocks of offset 3.

    Parameters
    ----------
    problem
        The all-to-all.
    greedy
        The rounds of direct sends, in order.
    rest
        The circulant over which all that is left goes; None if nothing is left.

    Returns
    -------
    Laid
        The plan, and for how many seconds the circuits of each epoch (rounds in a row with the
        same circuits) are held. The plan has n * n chunks: chunk ``source * n + destination`` is a
        block. `sends` are rows of round, source, destination, chunk and kind, `parts` has for each
        of them the first byte of its block and the number of bytes, and ``circuits[epoch, lane,
        rank]`` is the peer of a port, -1 if it is dark.
    """
    n = problem.n_ranks
    lanes = problem.lanes
    ranks = np.arange(n)
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
        # A move is one round in which every rank sends on, for each of some offsets, the block
        # that began `distance` places before it. All ranks do the same, so one circulant shift
        # carries all; sources and targets of the blocks, and who holds them, are listed by pairs.
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

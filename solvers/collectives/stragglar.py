"""All-reduce around one late rank: schedules of the fewest rounds for two-way circuits.

Ranks 0 ... n - 2 have reduced n - 1 chunks among themselves while they waited; rank g holds chunk
g. The late rank n - 1 meets each of them once, and both then hold that chunk reduced over all.
From these two ranks the chunk spreads by copies. A round is a matching: one partner for each rank.

Let m be n, or n + 1 if n is odd, and q = ceil(log2 m). Each chunk may spread to 2^(q - 1) ranks
before it is the oldest, but only m / 2 are wanted: D = 2^(q - 1) - m / 2 too many. A rank that
holds class a and does not give it makes 2^(q - 2 - a) fewer. So the chunks in excess of one for
each rank lie on a few *doubles*, which give the oldest and waste the other. The doubles waste in
runs: a run of length k + 1 begins in class q - 2 - k and wastes 1 + 2 + ... + 2^k in all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import SolverError, integer
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.stragglar_pairs import (
    EXCHANGE,
    IDLE,
    LOSE,
    REST,
    SWAP,
    SendLog,
    lay,
    new_ranks,
)
from optmatch.solvers.collectives.stragglar_search import DoublesSearch


def choose_runs(n_active: int, surplus: int, shortest: int = 0) -> tuple[int, int, int] | None:
    """Choose how many doubles waste class q - 2, q - 3 and q - 4 in a round.

    Enough ranks must give the class with which a run begins, although one double on its way from
    its exchange, and its partner, hold it too: at most 2^(q - 3) - 1, 2^(q - 4) - 2, 2^(q - 5) -
    2. More in the first class than in the second let doubles meet the late rank.

    Parameters
    ----------
    n_active
        The number of active chunks, q.
    surplus
        D, how many copies of a chunk are too many. A waste of the classes takes 1, 2 and 4.
    shortest
        The least number of the last class.

    Returns
    -------
    tuple of int or None
        The numbers of the three classes; None if there are none within the limits.
    """
    most_third = max(1, (1 << n_active >> 5) - 1)
    most_second = max(0, (1 << n_active >> 4) - 2)
    for third in range(shortest, most_third):
        most_first = max(1, (1 << n_active >> 3) - 1 - third - (shortest > 0))
        left_for_second = surplus - 4 * third - most_first
        second = max(third, -(-left_for_second // 2))
        first = surplus - 4 * third - 2 * second
        is_large_enough = n_active > 4 or surplus == 1
        if is_large_enough and second <= most_second and second < first:
            return first, second, third
    return None


class _Doubles:
    """The state of doubles that waste in runs, round by round; arrays are by double.

    Parameters
    ----------
    runs
        How many doubles waste class q - 2, q - 3, q - 4 in a round.
    may_lose
        Whether doubles in a run of length 3 face the absent rank, once each.
    """

    def __init__(self, runs: tuple[int, ...], *, may_lose: bool) -> None:
        n_doubles = sum(runs)
        self.place = [0] * n_doubles
        """How far the class that a double wastes next is from q - 2; 0 if it begins a run."""
        self.has_met = [False] * n_doubles
        """Whether a double has met the late rank."""
        self.has_lost = [not may_lose] * n_doubles
        """Whether a double has faced the absent rank, or never does."""
        self.swaps_left = [0] * n_doubles
        """Swaps to come after the exchange with the late rank."""
        self.next_loser = -1
        """The double that faces the absent rank in the next round; -1 if none does."""


def plan_runs(
    n_active: int, runs: tuple[int, int, int], n_chunks: int, *, odd: bool
) -> NDArray[np.int8]:
    """Plan the moves of doubles that waste in runs.

    If `odd`, one rank is absent. The partner of the absent rank misses a chunk, and that should be
    another one in each round: doubles too, in a run of length 3. Two that waste 1 each have none;
    so in the last round one of them faces the absent rank, and all others get their chunk.

    Returns
    -------
    int8 array, shape (rounds, doubles)
        ``moves[round, double]``, see `optmatch.solvers.collectives.stragglar_pairs`.
    """
    # ``starts[k]``: how many runs of length k + 1 begin in a round.
    starts = [runs[0] - runs[1], runs[1] - runs[2], runs[2]]
    n_rounds = n_chunks + n_active - 1
    doubles = _Doubles(runs, may_lose=odd and runs[2] > 0)
    moves = np.full((n_rounds, sum(runs)), IDLE, dtype=np.int8)
    _plan_ramp(n_active, starts, doubles, moves)
    for round_ in range(n_active - 1, n_rounds):
        _plan_round(round_, n_active, starts, doubles, moves[round_])

    # The chunk in place of the one that is not wasted is the last.
    if odd and runs == (2, 0, 0):
        moves[-3:, 0] = (0, n_active - 2, REST)
    return moves


def _plan_ramp(
    n_active: int, starts: list[int], doubles: _Doubles, moves: NDArray[np.int8]
) -> None:
    """Plan the rounds before the first chunk is the oldest.

    As many ranks hold chunk j in class q - 2 - k as waste that class later. Each double gets its
    place in a run, and its move in the round in which it gets its second chunk.
    """
    double = 0
    for place in range(len(starts)):
        for k in range(len(starts) - 1 - place, -1, -1):
            for _ in range(starts[place + k]):
                moves[n_active - 2 - k, double] = n_active - 3 - k - place
                doubles.place[double] = place
                double += 1


def _plan_round(
    round_: int, n_active: int, starts: list[int], doubles: _Doubles, moves: NDArray[np.int8]
) -> None:
    """Plan the moves of doubles in one round, and go on with their states.

    Parameters
    ----------
    round_
        The number of the round.
    n_active
        The number of active chunks, q.
    starts
        ``starts[k]``: how many runs of length k + 1 begin in a round.
    doubles
        The states of the doubles; changed.
    moves
        ``moves[double]``: written.
    """
    all_doubles = range(len(moves))
    free = [
        double
        for double in all_doubles
        if not doubles.swaps_left[double] and not doubles.place[double]
    ]
    n_swapping = sum(swaps > 0 for swaps in doubles.swaps_left)

    # Doubles within a run, or after their exchange, go on with it.
    loser = doubles.next_loser
    doubles.next_loser = -1
    for double in all_doubles:
        if doubles.swaps_left[double]:
            moves[double] = SWAP
            doubles.swaps_left[double] -= 1
        elif double == loser:
            moves[double] = LOSE
            doubles.has_lost[double] = True
            doubles.place[double] -= 1
        elif doubles.place[double]:
            moves[double] = n_active - 2
            is_candidate = doubles.place[double] == 2 and not doubles.has_lost[double]
            if is_candidate and doubles.next_loser < 0 and round_ >= n_active:
                moves[double] = n_active - 3
                doubles.next_loser = double
            doubles.place[double] -= 1

    # A free double that has not met the late rank meets it, if not too many swap after that.
    free.sort(key=lambda double: (not doubles.has_met[double], doubles.has_lost[double]))
    may_exchange = round_ >= n_active and n_swapping < starts[0]
    if may_exchange and not doubles.has_met[free[-1]]:
        double = free.pop()
        moves[double] = EXCHANGE
        doubles.has_met[double] = True
        doubles.swaps_left[double] = n_active - 2

    # The others begin new runs, the longest first; what is left begins runs of length 1.
    for k in range(len(starts) - 1, -1, -1):
        beginning = free[: starts[k]] if k > 0 else free
        for double in beginning:
            moves[double] = n_active - 3 - k
            doubles.place[double] = k
        free = free[starts[k] :]


ORDERS = 200
"""Orders of equals that are tried with each plan, for odd numbers of ranks."""
_EVEN_ORDERS = 8
"""Orders that even numbers of ranks use in turn, round by round."""
SEEDS = 20
"""Seeds of searches for plans."""
STORED = Path(__file__).with_name("stragglar.json")
"""Written by ``python -m tests.helpers.late_ranks``, by number of ranks: ``copies``, the sends of
optimal schedules where plans take a round more, without the exchanges; and ``searches``, the
number of doubles and the seed of a search where the first ones find nothing."""

Sends = NDArray[np.int32]
"""Rows of round, source, destination, chunk, kind, by round; a send reads what its source held
when the round began."""


def schedule(n: int, seed: int = 0) -> Sends:
    """Return the sends of an all-reduce around the late rank n - 1.

    There are the fewest rounds, n + ceil(log2 n) - 2, for every even n; for odd n as many as
    `fewest_late_rounds` says, or one more. There are n (n - 1) sends: no rank gets what it has.

    Time and memory O(n^2), as much as there are sends. For odd n one rank of n + 1 is absent: who
    would face it misses a chunk, always another one, and gets it in a round at the end.
    """
    n = integer("n", n, at_least=2)
    copies = stored()["copies"].get(str(n))
    if copies is not None:
        return _with_exchanges(n, copies)
    is_odd = n % 2 == 1
    n_ranks = n if is_odd else n - 1
    n_active = _count_active(n)
    fewest_rounds = n + n_active - 2 + is_odd
    rng = np.random.default_rng(seed)
    workspace = new_ranks(n_active, n_ranks)
    best: Sends | None = None
    for moves in _list_plans(n, n_active):
        for _ in range(ORDERS if is_odd else 1):
            n_orders = len(moves) if is_odd else _EVEN_ORDERS
            orders = rng.permuted(np.tile(np.arange(n_ranks), (n_orders, 1)), axis=1)
            lacks = np.ones((n - 1, n_ranks), dtype=np.bool_)
            rows = np.empty((n * (n - 1), 5), dtype=np.int32)
            log = SendLog(rows, np.zeros(1, dtype=np.int64))
            n_sends = lay(n_active, moves, orders, log, lacks, workspace)
            if n_sends < 0:
                continue
            sends = _add_missed_chunks(rows[:n_sends], lacks[:, : n - 1])
            if best is None or sends[-1, 0] < best[-1, 0]:
                best = sends
            if best[-1, 0] + 1 <= fewest_rounds:
                return best
    if best is None:
        raise SolverError(f"no plan for {n} ranks")
    return best


def _count_active(n: int) -> int:
    """Return q, how many chunks are active at once: ceil(log2 m), where m is n or n + 1."""
    return (n + n % 2 - 1).bit_length()


def _count_surplus(n: int) -> int:
    """Return D, how many more ranks a chunk can spread to than the m / 2 that are wanted."""
    return (1 << _count_active(n) >> 1) - (n + n % 2) // 2


@cache
def stored() -> Any:
    """Return the content of the file."""
    return json.loads(STORED.read_text("utf-8"))


def _with_exchanges(n: int, copies: list[list[int]]) -> Sends:
    """Return a stored schedule, with the exchange of rank t and the late one in round t."""
    late_rank = n - 1
    rows = [(rank, rank, late_rank, rank, REDUCE) for rank in range(late_rank)]
    rows += [(rank, late_rank, rank, rank, REDUCE) for rank in range(late_rank)]
    rows += [(round_, source, target, chunk, COPY) for round_, source, target, chunk in copies]
    return np.array(sorted(rows, key=lambda row: row[0]), dtype=np.int32)


def _list_plans(n: int, n_active: int) -> Iterator[NDArray[np.int8]]:
    """Yield plans for ranks with two active chunks, the best first."""
    surplus = _count_surplus(n)
    is_odd = n % 2 == 1
    if surplus == 0:
        yield np.empty((n + n_active - 2, 0), dtype=np.int8)
        return

    # Runs are plans in closed form.
    has_runs = False
    for shortest in (1, 0) if is_odd and surplus > 1 else (0,):
        runs = choose_runs(n_active, surplus, shortest)
        if runs is not None:
            has_runs = True
            yield plan_runs(n_active, runs, n - 1, odd=is_odd)

    known = stored()["searches"].get(str(n))
    tries = [known] if known else searches(n, 1 if has_runs else SEEDS)
    for n_doubles, seed in tries:
        moves = new_search(n, n_doubles, seed).plan()
        if moves is not None:
            yield moves


def searches(n: int, seeds: int) -> list[tuple[int, int]]:
    """List numbers of doubles and seeds, in the order in which they are tried."""
    fewest_doubles = max(2, _count_surplus(n).bit_count())
    return [(fewest_doubles + more, seed) for seed in range(seeds) for more in range(3)]


def new_search(n: int, n_doubles: int, seed: int) -> DoublesSearch:
    """Return a search for a plan for n ranks."""
    n_missing = (n % 2) * (n_doubles - 1)
    return DoublesSearch(_count_active(n), _count_surplus(n), n - 1, n_doubles, n_missing, seed)


def _add_missed_chunks(sends: Sends, lacks: NDArray[np.bool_]) -> Sends:
    """Add rounds in which ranks get missed chunks from ranks that miss other ones.

    In each round the rank that misses most comes first, and takes a partner that needs a chunk of
    it in return, if there is one.

    Parameters
    ----------
    sends
        The sends until now.
    lacks
        ``lacks[chunk, rank]``: which rank misses which chunk.
    """
    owner_of_chunk = sends[sends[:, 4] == REDUCE][::2, 3]
    needs = [set(np.flatnonzero(lacked).tolist()) for lacked in lacks.T]
    rows = []
    round_ = int(sends[-1, 0])
    while any(needs):
        round_ += 1
        free = sorted(range(len(needs)), key=lambda rank: -len(needs[rank]))
        needs_before = [frozenset(need) for need in needs]
        while free and needs[free[0]]:
            rank = free.pop(0)
            place = _choose_partner(needs_before, rank, free)
            partner = free.pop(place)
            for target, source in ((rank, partner), (partner, rank)):
                for chunk in sorted(needs_before[target] - needs_before[source])[:1]:
                    needs[target].remove(chunk)
                    rows.append((round_, source, target, owner_of_chunk[chunk], COPY))
    return np.concatenate([sends, np.array(rows, dtype=np.int32).reshape(-1, 5)])


def _choose_partner(needs: list[frozenset[int]], rank: int, free: list[int]) -> int:
    """Return the place in `free` of a partner that has a chunk which a rank needs.

    One that needs a chunk of the rank, too, comes first; without any it is the first of all.
    """
    givers = [place for place, other in enumerate(free) if needs[rank] - needs[other]]
    for place in givers:
        if needs[free[place]] - needs[rank]:
            return place
    return givers[0] if givers else 0

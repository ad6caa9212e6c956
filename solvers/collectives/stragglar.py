"""All-reduce around one late rank: schedules of the fewest rounds for two-way circuits.

Ranks 0 ... n - 2 have reduced n - 1 chunks among themselves while they waited; rank g holds chunk
g. The late rank n - 1 meets each of them once, and both then hold that chunk reduced over all.
From these two ranks the chunk spreads by copies. A round is a matching: one partner for each rank.

A chunk has *class* a if it met the late rank a + 1 rounds ago; the q youngest chunks are *active*,
with classes 0 to q - 1, where q = ceil(log2 m), and m is n, or n + 1 if n is odd. The oldest one,
of class q - 1, goes to the last ranks that lack it.

Each chunk may spread to 2^(q - 1) ranks before it is the oldest, but only m / 2 are wanted: the
surplus is D = 2^(q - 1) - m / 2. A rank that holds a chunk of class a for a round without giving
it away *wastes* this class, and makes 2^(q - 2 - a) holders fewer in the end. Chunks in excess of
one for each rank lie on a few *doubles*, ranks that hold two active chunks. A double gives the
oldest chunk, round by round, and wastes the other one while it grows older. This is a *run*: a run
of length k + 1 begins when the wasted chunk has class q - 2 - k, ends with class q - 2, and wastes
2^k + ... + 2 + 1 holders. Runs of length 1, 2 and 3 suffice.

A *move* is what a double does in one round: it takes the chunk of a class and gives the oldest one
for it, or it is one of the constants of `optmatch.solvers.collectives.stragglar_pairs`. The first
rounds, before there are q active chunks, are the *ramp*: doubles get their second chunks. If the
number of ranks is odd, one rank more is thought of, the *absent* one; whoever is paired with it in
a round *misses* (loses) a chunk, and gets it in a round at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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


class WasteCounts(NamedTuple):
    """How many doubles waste each class in each round; the same number in all rounds.

    A *double* is a rank with two chunks that spread. It gives one of them in a round, and wastes
    the class of the other one; the class of a chunk is how many rounds it has been spreading, and
    q chunks spread at once. A *run* are the rounds, one after another, in which a double wastes
    the same chunk.

    Example: ``WasteCounts(3, 1, 0)`` are four doubles: in each round three waste class q - 2, and
    one wastes class q - 3. Two runs of length 1 and one of length 2 begin in each round.

    A run that wastes an old class has wasted all classes between its first one and that: so the
    counts never ascend from the oldest class to younger ones.
    """

    oldest: int
    """Doubles that waste class q - 2: one for each run, of any length, that ends in this round."""
    second: int
    """Doubles that waste class q - 3: in runs of length 2 or 3."""
    third: int
    """Doubles that waste class q - 4: in runs of length 3."""

    @property
    def n_doubles(self) -> int:
        """The number of doubles, each of which wastes one class in a round."""
        return self.oldest + self.second + self.third

    @property
    def n_runs_of_length(self) -> list[int]:
        """``n_runs_of_length[k]``: how many runs of length k + 1 begin in a round."""
        return [self.oldest - self.second, self.second - self.third, self.third]


def choose_runs(n_active: int, surplus: int, shortest: int = 0) -> WasteCounts | None:
    """Choose how many ranks keep a chunk of the three oldest classes back in each round.

    In an all-reduce around one late rank, the late rank meets another rank in each round, which
    makes one more chunk whole; this chunk then spreads by copies for q rounds. Its *class* is the
    number of rounds since then, from 0 to q - 1. It doubles its holders in each of q - 1 rounds,
    to 2^(q - 1), but only as many are wanted as there are pairs of ranks: the others are the
    *surplus*. Each time that a rank with a chunk of class q - 2, which spreads for one round more,
    keeps it back, there is one holder less in the end; of class q - 3 there are two less, and of
    class q - 4 four. A rank keeps a chunk back (it *wastes* the chunk) because it holds two (it is
    a *double*) and gives the other one. The numbers that are chosen make up the surplus.

    Example: 26 ranks have q = 5 and a surplus of 16 - 13 = 3: ``WasteCounts(3, 0, 0)``.

    Parameters
    ----------
    n_active
        For how many rounds a chunk spreads, q.
    surplus
        How many holders of a chunk are too many, D = 2^(q - 1) - m / 2 for m ranks.
    shortest
        The least number of doubles that keep back class q - 4. It is 1 for odd numbers of ranks,
        where doubles in runs of length 3 can miss a chunk in place of other ranks.

    Returns
    -------
    WasteCounts or None
        How many doubles waste class q - 2 (oldest), q - 3 (second) and q - 4 (third) in a round:
        the choice with the fewest of class q - 4, such that oldest + 2 second + 4 third is the
        surplus. None if no choice keeps to the limits.
    """
    # Doubles take the chunks that they keep back from ranks that give them, when these have one
    # class less. A chunk of class c has 2^c holders at most: 2^(q - 3), 2^(q - 4) and 2^(q - 5)
    # for the three classes. One or two of them do not count: a double on its way from the late
    # rank, and its partner, hold the chunk without giving it.
    most_third = max(1, (1 << n_active >> 5) - 1)
    most_second = max(0, (1 << n_active >> 4) - 2)
    for third in range(shortest, most_third):
        most_oldest = max(1, (1 << n_active >> 3) - 1 - third - (shortest > 0))

        # As few doubles of class q - 3 as possible; those of class q - 2 take the rest.
        left_for_second = surplus - 4 * third - most_oldest
        second = max(third, -(-left_for_second // 2))
        oldest = surplus - 4 * third - 2 * second

        # With more doubles of class q - 2 than of class q - 3 one is free to meet the late rank.
        is_large_enough = n_active > 4 or surplus == 1
        if is_large_enough and second <= most_second and second < oldest:
            return WasteCounts(oldest, second, third)
    return None


class _Doubles:
    """The state of doubles that waste in runs, round by round; lists are by double.

    A double is a rank with two chunks that spread; in a run it keeps one of them, round by round,
    and gives other ones.

    Parameters
    ----------
    n_doubles
        The number of doubles.
    may_lose
        Whether doubles in a run of length 3 face the absent rank, once each.
    """

    def __init__(self, n_doubles: int, *, may_lose: bool) -> None:
        """Begin with doubles that are free: in no run, and without a swap to come.

        A *double* is a rank that holds two chunks that spread. In a *run* it keeps one of them for
        several rounds; in a *swap* it gives its younger chunk for one that is nearly the oldest.

        Parameters
        ----------
        n_doubles
            How many ranks hold two chunks that spread.
        may_lose
            Whether a double may face the absent rank, which is there if ranks are odd in number.
        """
        self.rounds_left = [0] * n_doubles
        """After how many rounds the run of a double ends: how far the class that it wastes next is
        from q - 2. 0 if its next move begins a run."""
        self.has_met = [False] * n_doubles
        """Whether a double has met the late rank."""
        self.has_lost = [not may_lose] * n_doubles
        """Whether a double has faced the absent rank, or never does."""
        self.swaps_left = [0] * n_doubles
        """Swaps to come after the exchange with the late rank."""
        self.next_loser = -1
        """The double that faces the absent rank in the next round; -1 if none does."""


def plan_runs(n_active: int, waste: WasteCounts, n_chunks: int, *, odd: bool) -> NDArray[np.int8]:
    """Plan what the ranks with two chunks do in each round of an all-reduce around a late rank.

    The late rank meets another rank in each round, and the chunk of this rank is then summed over
    all. It spreads by copies, to twice as many ranks a round, while further chunks follow it. A
    chunk has *class* a if it met the late rank a + 1 rounds ago; the q youngest ones are *active*,
    with classes 0 to q - 1, and most ranks hold one of them. The few *doubles*, whose moves are
    planned here, hold two. A double either gives its oldest chunk and takes one of another class
    for it, or meets the late rank, or swaps (gives its young chunk for one of class q - 2) until
    it has an oldest chunk again.

    A chunk that a double holds and does not give in a round is *wasted*. Chunks would come to too
    many ranks otherwise, and `waste` says how many doubles have to waste each class. Doubles do so
    in *runs*: a run of length k + 1 are k + 1 rounds in a row in which a double wastes the same
    chunk, while its class grows from q - 2 - k to q - 2. In each round as many runs of each length
    begin as end.

    Example: 14 ranks have 13 chunks, q = 4, and ``WasteCounts(1, 0, 0)``: one double. By rounds
    its moves are ``-1 -1 1 1 -2 -3 -3 1 1 1 ...``: nothing in two rounds (`IDLE`); twice it takes
    a chunk of class 1; in round 4 it meets the late rank (`EXCHANGE`); then it swaps twice
    (`SWAP`); from there on it takes a chunk of class 1 in each round.

    Parameters
    ----------
    n_active
        The number of active chunks, q.
    waste
        How many doubles waste a chunk of class q - 2, q - 3 and q - 4 in each round. Its property
        ``n_runs_of_length[k]`` says how many runs of length k + 1 begin in a round.
    n_chunks
        The number of chunks: all ranks but the late one have one each.
    odd
        Whether the number of ranks is odd. Then one rank of n + 1 is absent, and whoever faces it
        misses a chunk, which a round at the end makes good. Chunks that are missed should differ,
        so doubles in a run of length 3 miss one each, too.

    Returns
    -------
    int8 array, shape (n_chunks + n_active - 1, doubles)
        ``moves[round, double]``: a class, from 0, which the double takes from its partner while it
        gives the oldest chunk; or one of `IDLE`, `EXCHANGE`, `SWAP`, `LOSE` (faces the absent rank
        and misses a chunk) and `REST` (faces it and misses nothing).
    """
    n_rounds = n_chunks + n_active - 1
    moves = np.full((n_rounds, waste.n_doubles), IDLE, dtype=np.int8)

    # A plan says for each round what every double does, none of the other ranks being fixed yet.
    # In each round as many runs of each length begin as end, so that the same number of doubles
    # wastes each class; the first rounds bring all doubles to their places in runs.
    doubles = _Doubles(waste.n_doubles, may_lose=odd and waste.third > 0)
    _plan_ramp(n_active, waste.n_runs_of_length, doubles, moves)
    for round_ in range(n_active - 1, n_rounds):
        _plan_round(round_, n_active, waste.n_runs_of_length, doubles, moves[round_])

    # Two doubles that both waste class q - 2, ``WasteCounts(2, 0, 0)``, have no run of length 3
    # in which to miss a chunk. Then double 0 faces the absent rank in the last round. It holds the
    # oldest chunk by then, so it needs nothing, and no rank misses a chunk: it takes class 0 two
    # rounds before, which is a copy of the last chunk at this time, and class q - 2 in the round
    # between.
    if odd and waste == WasteCounts(2, 0, 0):
        moves[-3, 0] = 0
        moves[-2, 0] = n_active - 2
        moves[-1, 0] = REST
    return moves


def _plan_ramp(
    n_active: int, n_runs_of_length: list[int], doubles: _Doubles, moves: NDArray[np.int8]
) -> None:
    """Plan the first rounds, in which each double gets its second chunk and its place in a run.

    Chunks spread for q rounds each, and the *class* of a chunk is how many rounds it has been
    spreading. A *double* is a rank that holds two such chunks. A *run* of length k + 1 are k + 1
    rounds in which a double keeps one chunk without giving it away, until this has class q - 2. At
    the end of these rounds as many doubles are within runs of each length, with so many rounds
    left, as in every later round: with two runs of length 2 in a round, two doubles have one round
    left, and two begin anew.

    Parameters
    ----------
    n_active
        The number of active chunks, q. The first chunk is the oldest from round q - 1 on.
    n_runs_of_length
        ``n_runs_of_length[k]``: how many runs of length k + 1 begin in a round.
    doubles
        The states of the doubles. ``rounds_left[double]`` is written: after how many rounds the
        run ends in which the double is when these rounds are over; 0 if it begins a new one.
    moves
        Int8 array of shape (rounds, doubles), ``moves[round, double]``: the move in the round in
        which a double gets its second chunk is written, which is the class of this chunk.
    """
    double = 0
    longest = len(n_runs_of_length) - 1
    for rounds_left in range(longest + 1):
        for rounds_past in range(longest - rounds_left, -1, -1):
            # A run that began `rounds_past` rounds ago; its chunk was that much younger then. Its
            # length is rounds_left + rounds_past + 1, and that is a place in `n_runs_of_length`.
            for _ in range(n_runs_of_length[rounds_left + rounds_past]):
                round_ = n_active - 2 - rounds_past
                moves[round_, double] = n_active - 3 - rounds_past - rounds_left
                doubles.rounds_left[double] = rounds_left
                double += 1


def _plan_round(
    round_: int,
    n_active: int,
    n_runs_of_length: list[int],
    doubles: _Doubles,
    moves: NDArray[np.int8],
) -> None:
    """Plan the moves of all doubles in one round, and go on with their states.

    In each round the *late rank* meets one other rank, and a further chunk begins to spread from
    the two. A double is a rank that holds two chunks which still spread. It is within a *run*
    (some rounds in which it keeps one of them without giving it away), or *swaps* after it met the
    late rank (gives its young chunk for one of class q - 2), or is free for either. The *class* of
    a chunk counts the rounds for which it has been spreading, from 0 to q - 1.

    Parameters
    ----------
    round_
        The number of the round; from round q on a double may meet the late rank.
    n_active
        The number of chunks that still spread, q.
    n_runs_of_length
        ``n_runs_of_length[k]``: how many runs of length k + 1 begin in a round.
    doubles
        The states of the doubles, lists by double; changed: the rounds and swaps that are left,
        and whether it has met the late rank, or missed a chunk.
    moves
        Int8 array of shape (doubles,), written: a class from 0, if the double gives its oldest
        chunk and takes one of this class; `EXCHANGE`, if it meets the late rank; `SWAP`; or
        `LOSE`, if it faces a rank that is not there.
    """
    # Doubles whose run or swaps are over choose anew; all others go on.
    free = [
        double
        for double in range(len(moves))
        if not doubles.swaps_left[double] and not doubles.rounds_left[double]
    ]
    n_swapping = sum(swaps > 0 for swaps in doubles.swaps_left)
    _continue_runs(n_active, doubles, moves, may_lose=round_ >= n_active)

    # A free double that has not met the late rank meets it, if not too many swap after that. Each
    # swap costs class q - 2 one holder, like a run of length 1, whose place it takes. The new
    # chunk of a double is of class 0 in the next round, and swaps last until it has class q - 2.
    # After sorting, the last free double is one that has not met the late rank, if there is any.
    free.sort(key=lambda double: (not doubles.has_met[double], doubles.has_lost[double]))
    may_exchange = round_ >= n_active and n_swapping < n_runs_of_length[0]
    if may_exchange and not doubles.has_met[free[-1]]:
        double = free.pop()
        moves[double] = EXCHANGE
        doubles.has_met[double] = True
        doubles.swaps_left[double] = n_active - 2

    # The others begin new runs, the longest first; what is left begins runs of length 1. A run of
    # length k + 1 begins as its double takes class q - 3 - k, which is q - 2 - k a round later.
    for k in range(len(n_runs_of_length) - 1, -1, -1):
        n_begin = n_runs_of_length[k]
        beginning = free[:n_begin] if k > 0 else free
        for double in beginning:
            moves[double] = n_active - 3 - k
            doubles.rounds_left[double] = k
        free = free[n_begin:]


def _continue_runs(
    n_active: int, doubles: _Doubles, moves: NDArray[np.int8], *, may_lose: bool
) -> None:
    """Plan the moves of the doubles that are within a run, or swap after they met the late rank.

    A *double* is a rank with two chunks that spread, and a *run* are the rounds in a row in which
    it keeps one of them and gives other ones. In a *swap* it gives its young chunk for one that is
    the oldest a round later. The *class* of a chunk counts the rounds for which it has been
    spreading, from 0 to q - 1. Within a run a double takes class q - 2 in each round:
    a chunk that is the oldest a round later, and is given then. If ranks are odd in number, one
    rank faces an absent one in each round and misses a chunk. A double in a run of length 3 may be
    this rank, once: the round before it takes class q - 3 instead.

    Parameters
    ----------
    n_active
        The number of chunks that still spread, q.
    doubles
        The states of all doubles before the round; changed.
    moves
        Int8 array of shape (doubles,), written for these doubles: the class that one takes, or
        `SWAP`, which gives its young chunk for one of class q - 2, or `LOSE`, if it faces the
        absent rank.
    may_lose
        Whether a double may be chosen to face the absent rank in the next round.
    """
    loser = doubles.next_loser
    doubles.next_loser = -1
    for double in range(len(moves)):
        if doubles.swaps_left[double]:
            moves[double] = SWAP
            doubles.swaps_left[double] -= 1
        elif double == loser:
            moves[double] = LOSE
            doubles.has_lost[double] = True
            doubles.rounds_left[double] -= 1
        elif doubles.rounds_left[double]:
            # Of the doubles with two rounds left one may be chosen to face the absent rank in the
            # next round; it gives class q - 2 then, so it takes class q - 3 now.
            moves[double] = n_active - 2
            is_candidate = doubles.rounds_left[double] == 2 and not doubles.has_lost[double]
            if is_candidate and doubles.next_loser < 0 and may_lose:
                moves[double] = n_active - 3
                doubles.next_loser = double
            doubles.rounds_left[double] -= 1


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
"""Shape (sends, 5): rows of round, source, destination, chunk, kind, by round; a send reads what
its source held when the round began. Kinds are `COPY`, and `REDUCE` if the receiver adds."""


def schedule(n: int, seed: int = 0) -> Sends:
    """Return the sends of an all-reduce around one late rank, over two-way circuits (StragglAR).

    While rank n - 1 is late, the others add up n - 1 chunks among themselves: rank g then holds
    chunk g. The schedule begins when the last rank is there. In each of the first n - 1 rounds it
    meets another rank; both then have one chunk that is summed over all. All other ranks copy such
    chunks to each other in pairs, so that a chunk is at twice as many ranks after each round.

    There are the fewest rounds, n + ceil(log2 n) - 2, for every even n; for odd n as many as
    `fewest_late_rounds` says, or one more. For odd n one rank of n + 1 is absent: the rank that
    would face it misses a chunk, and gets it in a round at the end.

    Parameters
    ----------
    n
        The number of ranks, the late one included; 2 at least.
    seed
        The seed of the order of ranks that are equally good as partners.

    Returns
    -------
    int32 array, shape (n (n - 1), 5)
        Rows of round, source, destination, chunk and kind, by round; no rank gets what it has. For
        two ranks: ``[[0, 0, 1, 0, 1], [0, 1, 0, 0, 1]]``, an exchange in which both add.

    Raises
    ------
    SolverError
        If no plan is found, which happens for no n up to 1,024.
    """
    n = integer("n", n, at_least=2)
    copies = stored()["copies"].get(str(n))
    if copies is not None:
        return _with_exchanges(n, copies)
    is_odd = n % 2 == 1
    # The late rank is none of `n_ranks`; if n is odd, the absent one is the last of them, and one
    # round more than for even n, in which missed chunks come, is good enough to stop.
    n_ranks = n if is_odd else n - 1
    n_active = _count_active(n)
    fewest_rounds = n + n_active - 2 + is_odd
    rng = np.random.default_rng(seed)
    workspace = new_ranks(n_active, n_ranks)
    # A plan of the doubles does not say which of the equal ranks meet. For even n any order of
    # them will do; for odd n orders differ in which chunks are missed, and many are tried.
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

            # Chunks that ranks have missed come in rounds at the end; one such round is the least.
            sends = _add_missed_chunks(rows[:n_sends], lacks[:, : n - 1])
            if best is None or sends[-1, 0] < best[-1, 0]:
                best = sends
            if best[-1, 0] + 1 <= fewest_rounds:
                return best
    if best is None:
        raise SolverError(f"no plan for {n} ranks")
    return best


def _count_active(n: int) -> int:
    """Return q, how many chunks spread at once among n ranks: ceil(log2 m).

    Here m is the least even number that is not below n.
    """
    return (n + n % 2 - 1).bit_length()


def _count_surplus(n: int) -> int:
    """Return D, how many more ranks a chunk can spread to than are wanted, among n ranks.

    A chunk doubles its holders to 2^(q - 1) before its last round. Then m / 2 of them are enough,
    where m is the least even number that is not below n, as each gives it to one more rank.
    """
    return (1 << _count_active(n) >> 1) - (n + n % 2) // 2


@cache
def stored() -> Any:
    """Return the content of the file `STORED`: schedules and searches by number of ranks."""
    return json.loads(STORED.read_text("utf-8"))


def _with_exchanges(n: int, copies: list[list[int]]) -> Sends:
    """Return a stored schedule, with the exchange of rank t and the late one in round t.

    In an *exchange* two ranks send each other what they have of a chunk, and both add it up.

    Parameters
    ----------
    n
        The number of ranks; the last one is late.
    copies
        The sends between all other ranks, which are only copied: rows of round, source,
        destination and chunk.

    Returns
    -------
    int32 array, shape (sends, 5)
        Rows of round, source, destination, chunk and kind, by round.
    """
    late_rank = n - 1
    rows = [(rank, rank, late_rank, rank, REDUCE) for rank in range(late_rank)]
    rows += [(rank, late_rank, rank, rank, REDUCE) for rank in range(late_rank)]
    rows += [(round_, source, target, chunk, COPY) for round_, source, target, chunk in copies]
    return np.array(sorted(rows, key=lambda row: row[0]), dtype=np.int32)


def _list_plans(n: int, n_active: int) -> Iterator[NDArray[np.int8]]:
    """Yield plans for the ranks that hold two spreading chunks at once, the best plan first.

    In an all-reduce around one late rank, chunks that are summed over all ranks spread by copies,
    a further one from each round on. Most ranks hold one of them; the few *doubles* hold two, so
    that chunks do not come to more ranks than are wanted (that would be the *surplus*). If n is a
    power of two there is no surplus, and there are no doubles. Otherwise there is a closed form
    for many n, in which doubles keep chunks back in *runs* (several rounds in a row), and a
    depth-first search for the others.

    Parameters
    ----------
    n
        The number of ranks.
    n_active
        The number of chunks that spread at the same time, ceil(log2 n) for even n.

    Yields
    ------
    int8 array, shape (rounds, doubles)
        ``moves[round, double]``: a class from 0 (how many rounds a chunk has been spreading), if
        the double gives its oldest chunk and takes one of this class; else one of the constants of
        moves, such as `EXCHANGE` and `SWAP`. Without doubles it has no columns.
    """
    surplus = _count_surplus(n)
    is_odd = n % 2 == 1
    if surplus == 0:
        yield np.empty((n + n_active - 2, 0), dtype=np.int8)
        return

    # Runs are plans in closed form. If ranks are odd in number, those with a run of length 3 come
    # first, as a double can miss a chunk in it.
    has_runs = False
    for shortest in (1, 0) if is_odd and surplus > 1 else (0,):
        runs = choose_runs(n_active, surplus, shortest)
        if runs is not None:
            has_runs = True
            yield plan_runs(n_active, runs, n - 1, odd=is_odd)

    # One seed is enough where runs are an alternative; a stored one is known to succeed.
    known = stored()["searches"].get(str(n))
    tries = [known] if known else searches(n, 1 if has_runs else SEEDS)
    for n_doubles, seed in tries:
        moves = new_search(n, n_doubles, seed).plan()
        if moves is not None:
            yield moves


def searches(n: int, seeds: int) -> list[tuple[int, int]]:
    """List numbers of doubles and seeds, in the order in which they are tried.

    A double is a rank with two chunks that spread. The *surplus* is how many ranks too many a
    chunk could spread to; doubles hold chunks back to make up for it. The least number of doubles
    is how many ones the surplus has as a binary number, but two at least; with each seed up to two
    more are tried, too.

    Parameters
    ----------
    n
        The number of ranks.
    seeds
        How many seeds are listed with each number of doubles.

    Returns
    -------
    list of (n_doubles, seed)
        Example for a surplus of 3 and one seed: ``[(2, 0), (3, 0), (4, 0)]``.
    """
    fewest_doubles = max(2, _count_surplus(n).bit_count())
    return [(fewest_doubles + more, seed) for seed in range(seeds) for more in range(3)]


def new_search(n: int, n_doubles: int, seed: int) -> DoublesSearch:
    """Return a search for a plan of an all-reduce around one late rank, for n ranks.

    Parameters
    ----------
    n
        The number of ranks, the late one included.
    n_doubles
        How many ranks hold two chunks that spread; if n is odd, all of them but one have to miss a
        chunk each, when they face the rank that is not there.
    seed
        The seed of the order in which equally good moves are tried.
    """
    n_missing = (n % 2) * (n_doubles - 1)
    return DoublesSearch(_count_active(n), _count_surplus(n), n - 1, n_doubles, n_missing, seed)


def _add_missed_chunks(sends: Sends, lacks: NDArray[np.bool_]) -> Sends:
    """Add rounds in which ranks get missed chunks from ranks that miss other ones.

    The sends are those of an all-reduce around one late rank. If ranks are odd in number, one of
    them has no partner in each round and may *miss* a chunk, which comes at the end. In each of
    these rounds the rank that misses most comes first, and takes a partner that needs a chunk of
    it in return, if there is one.

    Parameters
    ----------
    sends
        The sends until now: rows of round, source, destination, chunk and kind. The two reduces of
        each meeting with the late rank are the only ones, in the order in which chunks spread.
    lacks
        ``lacks[chunk, rank]``, shape (chunks, ranks): which rank misses which chunk, where chunks
        are numbered by the round of their meeting with the late rank.

    Returns
    -------
    int32 array, shape (sends, 5)
        All sends, those of the rounds at the end last.

    Notes
    -----
    Partners are chosen by what they need at the beginning of the round: a chunk that comes in a
    round can be given in the next one.
    """
    owner_of_chunk = sends[sends[:, 4] == REDUCE][::2, 3]
    needs = [set(np.flatnonzero(lacked).tolist()) for lacked in lacks.T]  # chunks, by rank
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
            # Each of the two gets the first chunk that it needs and the other one has, if any.
            for target, source in ((rank, partner), (partner, rank)):
                for chunk in sorted(needs_before[target] - needs_before[source])[:1]:
                    needs[target].remove(chunk)
                    rows.append((round_, source, target, owner_of_chunk[chunk], COPY))
    return np.concatenate([sends, np.array(rows, dtype=np.int32).reshape(-1, 5)])


def _choose_partner(needs: list[frozenset[int]], rank: int, free: list[int]) -> int:
    """Return the place in `free` of a partner that has a chunk which a rank needs.

    One that needs a chunk of the rank, too, comes first; without any it is the first of all.

    Parameters
    ----------
    needs
        ``needs[rank]``: the chunks that each rank lacks when the round begins.
    rank
        The rank that looks for a partner.
    free
        The ranks that have no partner in this round yet.

    Returns
    -------
    int
        An index of `free`.
    """
    givers = [place for place, other in enumerate(free) if needs[rank] - needs[other]]
    for place in givers:
        if needs[free[place]] - needs[rank]:
            return place
    return givers[0] if givers else 0

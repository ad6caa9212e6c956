"""All-reduce around one late rank: schedules of the fewest rounds for two-way circuits.

After StragglAR (arXiv 2505.23523). Ranks 0 ... n - 2 have reduced n - 1 chunks among themselves
while they waited; rank g holds chunk g. The late rank n - 1 meets each of them once, one in a
round: both add what the other one sends, and one chunk is then *whole*, reduced over all ranks.
Whole chunks spread by copies. A round is a matching, in which each rank has one partner.

A schedule is made in three steps:

1. Few ranks, the *doubles*, get a plan of what they do in each round (`_list_plans`): by a formula
   (`choose_runs`, `plan_runs`), or by depth-first search (`DoublesSearch`).
2. All ranks get partners, round by round, and the sends are written (`lay`).
3. For odd n, chunks that ranks have missed come in rounds at the end (`_add_missed_chunks`).

Words of this module and of `stragglar_pairs`; m is n, or n + 1 if n is odd, and q is ceil(log2 m):

- a chunk is *active* for q rounds after it has met the late rank. Its *class* is how many rounds
  it has spread: 0 for the newest, q - 1 for the *oldest* chunk, which goes to the last ranks that
  lack it. Chunks after the last one are copies of the last one;
- the *surplus* is 2^(q - 1) - m / 2: copies could bring a chunk to 2^(q - 1) ranks, its *holders*,
  before it is the oldest, but only m / 2 are wanted;
- a rank *wastes* a class if it holds a chunk of this class for a round and does not give it away,
  which makes 2^(q - 2 - class) holders fewer in the end. The *budget* of a chunk is how many of
  its holders have still to be wasted;
- a *double* is a rank that holds two active chunks, as there are more of these than ranks to hold
  them: round by round it gives the oldest chunk, and wastes the other one;
- a *run* are the rounds in which a double wastes one chunk: a run of length k + 1 begins when the
  chunk has class q - 2 - k, ends with class q - 2, and wastes 2^k + ... + 2 + 1 holders;
- a *move* is what a double does in one round, and a *step* are the moves of all doubles: it takes
  the chunk of a class and gives the oldest one for it, or it is one of the constants of
  `stragglar_pairs`. The first rounds, before there are q active chunks, are the *ramp*;
- in a *swap* a double gives its younger chunk to a rank that should have got the oldest one. This
  rank is *owed* the oldest chunk: in the next round it gets it from the *payer*, and gives the
  young chunk for it. The class of that chunk is a *debt* of the search;
- the *absent* rank makes an odd number of ranks even: whoever is paired with it *misses* a chunk.

With 6 ranks q is 3, and the surplus is 4 - 3 = 1. A single double is enough: in each round it
wastes class 1, hence 2^0 = 1 holder of each chunk.

Why powers of two need no doubles
---------------------------------
If n = 2^q, the surplus is 0, and n + q - 2 rounds are enough. Before each round, each rank
but the late one has exactly one active chunk, and the chunk of class a is at 2^a ranks. In the
round, the late rank meets one of the n / 2 ranks with the oldest chunk. Each other rank with the
oldest chunk is paired with a rank that has a younger chunk, and the two exchange these chunks.
After the round, all ranks have the oldest chunk, which is no longer active. Each younger chunk is
at twice as many ranks, with a class that is higher by one, and the rank that the late rank has met
has the new chunk of class 0. Each round therefore ends as it began. In the first rounds, active
chunks that do not exist yet count as chunks without data. After round n - 1, the late rank goes on
to send the last chunk, and q - 1 rounds later all active chunks are this one.

A rank is *new* if the late rank has not met it. As long as there are new ranks, the late rank
finds a new rank with the oldest chunk:

- The chunk of class q - 2 is at n / 4 ranks. Whoever receives it has the oldest chunk in the next
  round. Among the ranks with the oldest chunk, new ranks are paired with these n / 4 ranks first.
  If u new ranks have the oldest chunk, at least min(u - 1, n / 4) new ranks have it in the next
  round, too.
- A new rank with the oldest chunk receives a chunk of a lower class only if n / 4 other new ranks
  receive the chunk of class q - 2. It has the oldest chunk again at most q - 2 rounds later. Until
  then at least n / 4 - (q - 3) > 0 of the others have the oldest chunk and are new.
- At first all ranks are new, and n / 2 of them count as ranks with the oldest chunk. Each other
  rank has the oldest chunk for the first time within q - 1 rounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import SolverError, integer
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.rounds import CHUNK, KIND, ROUND
from optmatch.solvers.collectives.stragglar_pairs import (
    EXCHANGE,
    IDLE,
    LOSE,
    REST,
    SEND,
    SWAP,
    SendLog,
    lay,
    new_ranks,
)


class WasteCounts(NamedTuple):
    """How many doubles waste each class in each round; the same number in all rounds.

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
        """``n_runs_of_length[k]``: how many runs of length k + 1 begin in each round."""
        return [self.oldest - self.second, self.second - self.third, self.third]


def choose_runs(n_active: int, surplus: int, least_third: int = 0) -> WasteCounts | None:
    """Choose how many doubles waste each class in a round: no chunk is to come to too many ranks.

    Wasting class q - 2 takes 1 holder away, class q - 3 takes 2 and class q - 4 takes 4. The
    counts make up the surplus exactly, with as few doubles of class q - 4 as possible, but no
    fewer than `least_third`: 1 where an odd number of ranks needs one that can go without a chunk.
    None if there is no choice within the limits. `n_active` is q.

    Example: with q = 6 a surplus of 9 is ``WasteCounts(7, 1, 0)``, as 7 + 2 * 1 = 9.
    """
    # The most doubles that waste each class. A double takes the chunk a round before, as one class
    # younger, from a rank that gives it. A chunk of class c is at 2^c ranks at most. One or two of
    # these do not give it: a double that has met the late rank, and its partner. With q = 6:
    #
    #     waste class     taken as class    at ranks    doubles at most
    #     q - 2 = 4       3                 8           7
    #     q - 3 = 3       2                 4           2
    #     q - 4 = 2       1                 2           0
    #
    # ``1 << q >> 4`` is 2^(q - 4), and 0 if q is less than 4.
    most_third = max(0, (1 << n_active >> 5) - 2)
    most_second = max(0, (1 << n_active >> 4) - 2)
    for third in range(least_third, most_third + 1):
        # Each double that wastes class q - 4 leaves one holder of class q - 3 less, and one that
        # is to go without a chunk takes class q - 3, too.
        n_not_given = third + (least_third > 0)
        most_oldest = max(1, (1 << n_active >> 3) - 1 - n_not_given)

        # As few doubles of class q - 3 as possible; those of class q - 2 take the rest.
        left_for_second = surplus - 4 * third - most_oldest
        second = max(third, -(-left_for_second // 2))
        oldest = surplus - 4 * third - 2 * second

        # With more doubles of class q - 2 than of class q - 3 one is free to meet the late rank.
        is_large_enough = n_active > 4 or surplus == 1
        if is_large_enough and second <= most_second and second < oldest:
            return WasteCounts(oldest, second, third)
    return None


@dataclass
class _Double:
    """The state of a rank with two active chunks, round by round."""

    number: int
    """Its column of the plan."""
    has_lost: bool
    """Whether it has faced the absent rank, or never does."""
    rounds_left: int = 0
    """After how many rounds its run ends, in which it wastes class q - 2; 0 if its next move
    begins a run."""
    swaps_left: int = 0
    """Swaps to come after the exchange with the late rank."""
    has_met: bool = False
    """Whether it has met the late rank."""
    loses_next: bool = False
    """Whether it faces the absent rank in the next round."""


def plan_runs(n_active: int, waste: WasteCounts, n_chunks: int, *, odd: bool) -> NDArray[np.int8]:
    """Plan ``moves[round, double]`` by the formula, for ``n_chunks + q - 1`` rounds.

    `n_active` is q, and `waste` tells how many doubles there are and what they waste. If the
    number of ranks is `odd`, doubles in runs of length 3 face the absent rank, each once at most.
    """
    n_rounds = n_chunks + n_active - 1
    moves = np.full((n_rounds, waste.n_doubles), IDLE, dtype=np.int8)
    never_loses = not (odd and waste.third > 0)  # only runs of length 3 let a double lose
    doubles = [_Double(number, never_loses) for number in range(waste.n_doubles)]

    # The ramp, the rounds before round q - 1. In that round runs are under way as in any later
    # one: of each length some have just begun, and others have 1, 2, ... rounds past. A chunk is
    # taken in the round before its run, and ages by one class in each round. A run ends with class
    # q - 2, so a double with l rounds left wastes class q - 2 - l in round q - 1. With p rounds
    # past it took the chunk p + 1 rounds before, as class q - 3 - l - p. A run of length l + p + 1
    # has number l + p in `n_runs_of_length`. With q = 5, and two runs of length 2 that begin in
    # each round:
    #
    #     round                           2          3          4 = q - 1    5
    #     doubles 0 and 1, p = 1, l = 0   take 1     waste 2    waste 3
    #     doubles 2 and 3, p = 0, l = 1              take 1     waste 2      waste 3
    n_runs_of_length = waste.n_runs_of_length
    waiting = iter(doubles)
    for rounds_left in range(len(n_runs_of_length)):
        for rounds_past in reversed(range(len(n_runs_of_length) - rounds_left)):
            for _ in range(n_runs_of_length[rounds_left + rounds_past]):
                double = next(waiting)
                round_of_take = n_active - 2 - rounds_past
                moves[round_of_take, double.number] = n_active - 3 - rounds_left - rounds_past
                double.rounds_left = rounds_left

    # Then rounds are planned one by one, for the doubles alone.
    for round_ in range(n_active - 1, n_rounds):
        _plan_round(n_active, n_runs_of_length, doubles, moves[round_], round_ >= n_active)

    # Two doubles in runs of length 1 have no run of length 3 in which to go without a partner. In
    # the last round all active chunks are copies of the last one, so double 0 faces the absent
    # rank then, and nobody misses a chunk, provided that double 0 has the last chunk already. It
    # takes class 0, a copy of it, two rounds before, and class q - 2 in the round between.
    if odd and waste == WasteCounts(2, 0, 0):
        moves[-3, 0] = 0
        moves[-2, 0] = n_active - 2
        moves[-1, 0] = REST
    return moves


def _plan_round(
    n_active: int,
    n_runs_of_length: list[int],
    doubles: list[_Double],
    moves: NDArray[np.int8],
    is_after_ramp: bool,
) -> None:
    """Plan one round of the doubles, each of which swaps, is in a run, or is free.

    Writes ``moves[double]`` of the round, and changes `doubles`. In each round
    ``n_runs_of_length[k]`` doubles begin a run of k + 1 rounds. Without `is_after_ramp`, in round
    q - 1, no double meets the late rank, nor is chosen to face the absent one. Example with q = 5
    of a double in a run of length 3, which ends in round 12; a new one begins in the same round::

        round     9          10         11         12
        takes     class 0    class 3    class 3    class 0
        wastes               class 1    class 2    class 3
    """
    free = [double for double in doubles if not double.swaps_left and not double.rounds_left]
    n_swapping = sum(double.swaps_left > 0 for double in doubles)

    # A double in a run gives the oldest chunk, of class q - 1, and takes one that will be the
    # oldest in the next round, to give that then. If the number of ranks is odd, one double in a
    # run of length 3 may face the absent rank in the next round. It then gives a chunk that is not
    # the oldest yet, so it takes a younger one now.
    next_oldest = n_active - 2  # the class that a chunk has one round before it is the oldest
    may_lose = is_after_ramp
    for double in doubles:
        if double.swaps_left:
            moves[double.number] = SWAP
            double.swaps_left -= 1
        elif double.rounds_left:
            # Its run goes on, or it was chosen for this round in the round before.
            moves[double.number] = next_oldest
            if double.loses_next:
                moves[double.number] = LOSE
                double.loses_next = False
                double.has_lost = True
            elif may_lose and double.rounds_left == 2 and not double.has_lost:
                moves[double.number] = next_oldest - 1
                double.loses_next = True
                may_lose = False
            double.rounds_left -= 1

    # A free double that has not met the late rank, which comes last if there is any, meets it,
    # unless too many swap already. Each swap makes one holder less of a chunk of class q - 2, just
    # as a run of length 1 does, so a double that swaps takes the place of such a run. It swaps
    # until its new chunk, which has class 0 in the next round, has class q - 2.
    free.sort(key=lambda double: (not double.has_met, double.has_lost))
    if is_after_ramp and n_swapping < n_runs_of_length[0] and not free[-1].has_met:
        double = free.pop()
        moves[double.number] = EXCHANGE
        double.has_met = True
        double.swaps_left = n_active - 2

    # The other free doubles begin new runs, the longest first; what is left begins runs of length
    # 1. For a run of length k + 1 a double takes a chunk of class q - 3 - k, which it begins to
    # hold back in the next round, as class q - 2 - k.
    for k in range(len(n_runs_of_length) - 1, -1, -1):
        n_begin = len(free)
        if k > 0:
            n_begin = n_runs_of_length[k]
        for double in free[:n_begin]:
            moves[double.number] = next_oldest - 1 - k
            double.rounds_left = k
        free = free[n_begin:]


ORDERS_TRIED = 200
"""Orders of equals that are tried with each plan, for odd numbers of ranks."""
_EVEN_ORDERS = 8
"""Orders that even numbers of ranks use in turn, round by round."""
SEARCH_SEEDS = 20
"""Seeds of searches for plans."""
STORED = Path(__file__).with_name("stragglar.json")
"""Written by ``python -m tests.helpers.late_ranks``, by number of ranks: ``copies``, the sends of
optimal schedules where plans take a round more, without the exchanges; and ``searches``, the
number of doubles and the seed of a search where the first ones find nothing."""

Sends = NDArray[np.int32]
"""Shape (sends, 5): rows of round, source, destination, chunk, kind, by round; a send reads what
its source held when the round began. Kinds are `COPY`, and `REDUCE` if the receiver adds."""


def list_late_sends(n: int, seed: int = 0) -> Sends:
    """Return the sends of an all-reduce of n ranks, the last of which is late.

    They begin when the late rank is there. For every even n there are n + ceil(log2 n) - 2 rounds,
    the fewest possible; for odd n as many as `fewest_late_rounds` says, or one more. No rank gets
    what it has. A row is round, source, destination, chunk and kind. For two ranks: ``[[0, 0, 1,
    0, REDUCE], [0, 1, 0, 0, REDUCE]]``, an exchange in which both add. `seed` orders ranks that
    are equally good as partners. `SolverError` if no plan is found, which happens for no n up to
    1,024.
    """
    n = integer("n", n, at_least=2)

    # A stored schedule is used where the method below takes one round more. Its copies are stored;
    # in round t rank t meets the late rank, and both add what the other one sends.
    copies = stored()["copies"].get(str(n))
    if copies is not None:
        late_rank = n - 1
        rows = [(rank, rank, late_rank, rank, REDUCE) for rank in range(late_rank)]
        rows += [(rank, late_rank, rank, rank, REDUCE) for rank in range(late_rank)]
        rows += [(*copy, COPY) for copy in copies]
        return np.array(sorted(rows, key=lambda row: row[ROUND]), dtype=np.int32)
    is_odd = n % 2 == 1

    # `n_ranks` counts all ranks but the late one, an odd number for even n. For odd n an imagined
    # rank makes it odd too; it is the last of them, and whoever is to meet it has no partner. A
    # schedule of `fewest_rounds` is good enough to stop; for odd n that has one round more, in
    # which missed chunks come.
    n_ranks = n if is_odd else n - 1
    n_active = _count_active(n)
    fewest_rounds = n + n_active - 2 + is_odd

    # Scratch memory and random numbers for all tries.
    rng = np.random.default_rng(seed)
    workspace = new_ranks(n_active, n_ranks)

    # The other ranks are alike, so that a plan leaves open which of them meet. For even n any
    # order of them will do, and a few are used in turn, round by round. For odd n the order
    # decides which chunks are missed, so many are tried, each with another order in every round.
    best: Sends | None = None
    n_tries = ORDERS_TRIED if is_odd else 1
    for moves in _list_plans(n, n_active):
        n_orders = len(moves) if is_odd else _EVEN_ORDERS
        for _ in range(n_tries):
            # Lay the plan on ranks in drawn orders, where that can be done. At first all ranks
            # lack all chunks.
            orders = rng.permuted(np.tile(np.arange(n_ranks), (n_orders, 1)), axis=1)
            lacks = np.ones((n - 1, n_ranks), dtype=np.bool_)
            log = SendLog(
                rows=np.empty((n * (n - 1), 5), dtype=np.int32),
                n_written=np.zeros(1, dtype=np.int64),
            )
            n_sends = lay(n_active, moves, orders, log, lacks, workspace)
            if n_sends < 0:
                continue

            # Chunks that ranks have missed come in rounds at the end; one such round is the least.
            sends = _add_missed_chunks(log.rows[:n_sends], lacks[:, : n - 1])
            if best is None or sends[-1, ROUND] < best[-1, ROUND]:
                best = sends
            if best[-1, ROUND] + 1 <= fewest_rounds:
                return best
    if best is None:
        raise SolverError(f"no plan for {n} ranks")
    return best


def _count_active(n: int) -> int:
    """Return q, how many chunks spread at once among n ranks: ceil(log2 m)."""
    return (n + n % 2 - 1).bit_length()


def _count_surplus(n: int) -> int:
    """Return the surplus of a chunk among n ranks."""
    return (1 << _count_active(n) >> 1) - (n + n % 2) // 2


@cache
def stored() -> Any:
    """Return the content of the file `STORED`: schedules and searches by number of ranks."""
    return json.loads(STORED.read_text("utf-8"))


def _list_plans(n: int, n_active: int) -> Iterator[NDArray[np.int8]]:
    """Yield plans ``moves[round, double]`` of what doubles do, the best plan first.

    Plans come from three sources, in this order:

    1. no surplus (n is a power of two, or one less): no doubles, a plan without columns;
    2. a formula, by which each double is in one run after another, of length 1, 2 or 3;
    3. a depth-first search, if the caller goes on after the plans of the formula.

    `n` counts all ranks, the late one too, and `n_active` is q.
    """
    surplus = _count_surplus(n)
    is_odd = n % 2 == 1
    # No doubles. There are n + q - 2 rounds: n - 1 meetings with the late rank, and q - 1 rounds
    # more, after which the last chunk is at all ranks.
    if surplus == 0:
        yield np.empty((n + n_active - 2, 0), dtype=np.int8)
        return

    # The formula. If the number of ranks is odd, one rank has no partner in each round. A double
    # in a run of 3 rounds can be that rank at little cost, so choices in which one such run or
    # more begin in each round (`least_third` 1) come first, and then those that may have none (0).
    has_runs = False
    for least_third in (1, 0) if is_odd and surplus > 1 else (0,):
        runs = choose_runs(n_active, surplus, least_third)
        if runs is not None:
            has_runs = True
            yield plan_runs(n_active, runs, n - 1, odd=is_odd)

    # The search, with all seeds, or with one seed if the formula has given a plan. For some
    # numbers of ranks a number of doubles and a seed are stored that are known to succeed.
    known_search = stored()["searches"].get(str(n))
    tries = [known_search] if known_search else searches(n, 1 if has_runs else SEARCH_SEEDS)
    for n_doubles, seed in tries:
        moves = new_search(n, n_doubles, seed).plan()
        if moves is not None:
            yield moves


def searches(n: int, seeds: int) -> list[tuple[int, int]]:
    """List (number of doubles, seed) of the searches that are tried in turn."""
    fewest_doubles = max(2, _count_surplus(n).bit_count())
    return [(fewest_doubles + n_more, seed) for seed in range(seeds) for n_more in range(3)]


def new_search(n: int, n_doubles: int, seed: int) -> DoublesSearch:
    """Return a search for n ranks; if n is odd, all doubles but one have to miss a chunk once."""
    return DoublesSearch(
        _count_active(n),
        _count_surplus(n),
        n_chunks=n - 1,
        n_doubles=n_doubles,
        n_losers=(n % 2) * (n_doubles - 1),
        seed=seed,
    )


def _add_missed_chunks(sends: Sends, lacks: NDArray[np.bool_]) -> Sends:
    """Add rounds at the end of a schedule in which ranks get the chunks that they have missed.

    In each added round the rank that lacks most chooses first. It takes a partner that has a chunk
    for it, and if possible one that also needs a chunk from it. The two then exchange one chunk
    each way.

    Chunks have two names: in ``lacks[chunk, rank]`` the round in which they met the late rank, in
    `sends` the rank that had them first.

    Example: rank 0 lacks chunk 4 alone, and rank 5 chunk 2 alone. One round is added, in which
    they exchange these chunks.
    """
    # ``owner_of_chunk[number]``: the name in `sends`. The two rows of a meeting (`REDUCE`) have
    # the same chunk, so every second row is enough.
    owner_of_chunk = sends[sends[:, KIND] == REDUCE][::2, CHUNK]

    # ``needs[rank]``: the chunks that a rank lacks. Rounds are added until no rank lacks any.
    needs = [set(np.flatnonzero(lacked).tolist()) for lacked in lacks.T]
    rows = []
    round_ = int(sends[-1, ROUND])
    while any(needs):
        # One more round. No rank has a partner yet, and those that lack most come first. A chunk
        # that comes in this round can be given away from the next one on (`needs_before`).
        round_ += 1
        free = sorted(range(len(needs)), key=lambda rank: -len(needs[rank]))
        needs_before = [frozenset(need) for need in needs]
        while free and needs[free[0]]:
            # Its partner has a chunk for it (`givers`), and also needs one from it if that is
            # possible (`takers`). If nobody has one, it waits for the next round, with any
            # partner.
            rank = free.pop(0)
            wanted_chunks = needs_before[rank]
            givers = [other for other in free if wanted_chunks - needs_before[other]]
            takers = [other for other in givers if needs_before[other] - wanted_chunks]
            partner = (takers or givers or free)[0]
            free.remove(partner)
            # Each of the two gets the first chunk that it needs and the other one has, if any.
            for target, source in ((rank, partner), (partner, rank)):
                for chunk in sorted(needs_before[target] - needs_before[source])[:1]:
                    needs[target].remove(chunk)
                    rows.append((round_, source, target, owner_of_chunk[chunk], COPY))
    return np.concatenate([sends, np.array(rows, dtype=np.int32).reshape(-1, 5)])


MOST_FAILED_STATES = 5000
"""States without a plan after which a search gives up; more seeds help more than more nodes."""


NO_WASTE = -1
"""In place of a class: the double wastes nothing."""

Budgets = tuple[int, ...]
"""``budgets[class]``, for the classes 0 to q - 1. A new chunk has the whole surplus as its budget,
and a chunk that is not there has 0."""


class Double(NamedTuple):
    """A rank with two active chunks, by class.

    In the ramp (rounds before q) class q - 1 stands for no chunk. Later a double ``Double(1, 3)``
    with q = 4 holds the oldest chunk and one that spreads for its second round.
    """

    young: int
    """The class of its younger chunk; the lower number."""
    old: int
    """The class of its older chunk; the higher number."""
    met: bool = False
    """Whether it has met the late rank."""
    lost: bool = False
    """Whether it has missed a chunk."""


class _Option(NamedTuple):
    """What one double can do in a round."""

    move: int
    """The move: a class from 0 that it takes for the oldest chunk, `SEND` plus a class that it
    gives, `EXCHANGE`, `SWAP`, `LOSE` or `IDLE`."""
    wasted: int
    """The class that it holds and does not give, or `NO_WASTE`."""
    double: Double
    """The double after the round."""


class DoublesStep(NamedTuple):
    """The moves of doubles in a round, and their classes after it.

    While a step is put together it has the moves of the first doubles only.
    """

    moves: tuple[int, ...]
    """``moves[double]``: the moves. A number tells what a double does (`_Option.move`)."""
    doubles: tuple[Double, ...]
    """``doubles[double]``: the classes of each double in the next round."""
    wasters: tuple[int, ...]
    """``wasters[class]``: how many doubles hold it and do not give it."""
    takers: tuple[int, ...]
    """``takers[class]``: how many doubles take it from ranks that give it."""
    debts: tuple[int, ...]
    """One entry for each swap: the class, a round later, of the young chunk that the partner of
    the double got. In that round the partner gives it to the rank that pays the debt."""
    budgets: Budgets = ()
    """The budgets after the round; none while a step is put together."""


class DoublesSearch:
    """Depth-first search for the moves of doubles, such that `n_losers` of them miss a chunk.

    All doubles move at once, round by round, and rounds that lead nowhere are undone. The other
    ranks are only counted: as many of them have to give a class as doubles take it. Equally good
    moves are tried in an order that the seed draws.
    """

    def __init__(
        self, q: int, surplus: int, n_chunks: int, n_doubles: int, n_losers: int, seed: int
    ) -> None:
        """Keep the numbers that a plan has to meet; nothing has been tried yet."""
        self.q = q
        self.surplus = surplus
        self.n_chunks = n_chunks
        self.n_doubles = n_doubles
        self.n_losers = n_losers
        self.rng = np.random.default_rng(seed)
        self.failed: set[tuple[object, ...]] = set()
        """States from which no plan leads to the end: a round, the sorted doubles before it, their
        budgets, and the debts. With more than `MOST_FAILED_STATES` of them the search gives up."""

    def plan(self) -> NDArray[np.int8] | None:
        """Search for ``moves[round, double]``; None if the search has found no plan."""
        # Before round 0 no double holds a chunk (q - 1 stands for an empty place). Chunk 0, which
        # has class 0 from round 1 on, has its whole surplus still to waste.
        empty = Double(self.q - 1, self.q - 1)
        budgets = (self.surplus,) + (0,) * (self.q - 1)
        doubles = (empty,) * self.n_doubles
        last_first = self._extend(0, doubles, budgets, debts=())
        if last_first is None:
            return None

        # The search lists the last round first.
        return np.array(last_first[::-1], dtype=np.int8)

    def _extend(
        self, round_: int, doubles: tuple[Double, ...], budgets: Budgets, debts: tuple[int, ...]
    ) -> list[tuple[int, ...]] | None:
        """Find the moves of all doubles from one round to the end, by depth-first search.

        `doubles`, `budgets` and `debts` are those before the round; `debts` has one class for each
        swap of the round before, as it is in this round. Returns ``moves[double]`` of each round,
        the last round first; None if there is no plan, or if the search has given up.

        States that led nowhere are added to ``self.failed``. Once these are more than
        `MOST_FAILED_STATES`, all calls return None, which ends the whole search although there may
        be a plan.

        Example with q = 4 and two doubles: in a round with the debts ``(1,)``, a rank that got a
        chunk of class 0 in a swap gives it, now of class 1, to the rank that pays. If the moves of
        the round are ``(2, 32)``, double 0 takes class 2, and double 1 gives class 0 (`SEND` is
        32).
        """
        # All rounds are planned.
        if round_ == self.n_chunks + self.q - 1:
            return []

        # Doubles are alike, so their order makes no difference to what can follow.
        state = (round_, tuple(sorted(doubles)), budgets, debts)
        if state in self.failed or len(self.failed) > MOST_FAILED_STATES:
            return None

        # The first list of moves that leads to the end is taken.
        for step in self._list_steps(round_, doubles, budgets, debts):
            later_moves = self._extend(round_ + 1, step.doubles, step.budgets, step.debts)
            if later_moves is not None:
                return [*later_moves, step.moves]
        self.failed.add(state)
        return None

    def _list_steps(
        self, round_: int, doubles: tuple[Double, ...], budgets: Budgets, debts: tuple[int, ...]
    ) -> list[DoublesStep]:
        """List what all doubles together may do in one round, the most promising choice first.

        The moves of several doubles limit each other:

        - only one double meets the late rank in a round, and only one has no partner;
        - no more doubles take a chunk of a class than other ranks hold it and give it away;
        - a double gives only one of its two chunks, and wastes the other one: by the end of a
          chunk its whole budget has to be wasted, and no more.

        `_add_option` checks the first rule as each double is added, and that doubles waste no more
        of a class than its budget. `_budgets_after` checks the others once all have a move.
        There are none if no moves fit together.
        """
        # Go through the doubles one by one. After each of them, `partial_steps` are all
        # combinations of the moves of the doubles until then that break no rule so far. At first
        # no double wastes or takes any of the q classes, and no swap has left a debt.
        none_of_each = (0,) * self.q
        no_moves = DoublesStep(
            moves=(), doubles=(), wasters=none_of_each, takers=none_of_each, debts=()
        )
        partial_steps = [no_moves]
        for double in doubles:
            longer_steps: list[DoublesStep] = []
            for step in partial_steps:
                for option in self._list_options(round_, double):
                    longer = self._add_option(round_, step, option, budgets)
                    if longer is not None:
                        longer_steps.append(longer)
            partial_steps = longer_steps

        # Keep the combinations that also meet the rules for all doubles together.
        allowed: list[DoublesStep] = []
        for step in partial_steps:
            budgets_after = self._budgets_after(round_, step, doubles, budgets, debts)
            if budgets_after is not None:
                allowed.append(step._replace(budgets=budgets_after))

        # The least score comes first, and False is less than True. Steps in which a double meets
        # the late rank (`EXCHANGE`) come first, then those in which one faces the absent rank
        # (`LOSE`), as every double has to do so once before the end; then those with few swaps.
        # Chance decides among equals, which keep the order in which they are drawn.
        order = np.argsort(self.rng.random(len(allowed))).tolist()
        return sorted(
            (allowed[number] for number in order),
            key=lambda step: (
                EXCHANGE not in step.moves,
                LOSE not in step.moves,
                step.moves.count(SWAP),
            ),
        )

    def _list_options(self, round_: int, double: Double) -> list[_Option]:
        """List what one double can do in the round `round_`.

        A double without the oldest chunk gives one of its two chunks for the oldest one, and
        wastes the other: the move is `SEND` plus the class that it gives. A double with the oldest
        chunk gives that, and wastes the younger one: the move is the class that it takes.

        Examples with q = 4, after the ramp (the rounds before round q). A double holds the classes
        0 and 2. It has two options: give class 0 and waste class 2, or give class 2 and waste
        class 0. A round later both are a round older, 1 and 3. A double with the classes 0 and 3
        gives class 3 and wastes class 0: it takes class 1, or class 2, or meets the late rank. Or
        it swaps: it gives class 0 for class 2.
        """
        n_active = self.q
        young = double.young
        if double.old < n_active - 1:
            aged = self._keep_until_next_round(double, (young, double.old))
            options = [
                _Option(SEND + young, double.old, aged),
                _Option(SEND + double.old, young, aged),
            ]

            # One of an odd number of ranks has no partner. A double can be this rank once, while
            # its older chunk is the oldest but one; before round q no chunk could be missed.
            may_lose = double.old == n_active - 2 and not double.lost and self.n_losers > 0
            if may_lose and round_ >= n_active:
                options.append(_Option(LOSE, young, aged._replace(lost=True)))
            return options

        # Else it holds the oldest chunk; before round q the oldest class stands for an empty
        # place, and the double moves as if it gave a chunk. A double with two empty places in
        # round q - 1 gets one chunk at most in this round, but needs two after it.
        no_chunk = n_active - 1
        wasted = young
        if young == no_chunk:
            wasted = NO_WASTE
            if round_ == n_active - 1:
                return []

        # It takes any class but its own: the move is this class. After the last chunk no new ones
        # come, and the ranks that would have them have copies of the last chunk instead. All these
        # classes are the same chunk, so one of them, the first, is enough. Example: with 13
        # chunks, the last of which began to spread in round 12, the classes 0, 1 and 2 of round 15
        # are all this chunk.
        last_copied_class = round_ - self.n_chunks
        takes = [taken for taken in range(min(round_, n_active - 1)) if taken != young]
        takes = takes[:1] + [taken for taken in takes[1:] if taken > last_copied_class]
        options = [
            _Option(taken, wasted, self._keep_until_next_round(double, (young, taken)))
            for taken in takes
        ]

        # It may meet the late rank once. The new chunk is younger than class 0 in this round, so
        # that it has class 0 when all classes have grown by one.
        if not double.met and round_ < self.n_chunks:
            younger_than_newest = -1
            aged = self._keep_until_next_round(double, (young, younger_than_newest))
            options.append(_Option(EXCHANGE, wasted, aged._replace(met=True)))
        # Or it swaps: it gives its young chunk for one of class q - 2, the oldest a round later.
        if round_ >= n_active and young <= n_active - 3:
            options.append(
                _Option(SWAP, NO_WASTE, self._keep_until_next_round(double, (young, n_active - 2)))
            )

        # In the ramp it may also take nothing, and may give its young chunk meanwhile.
        if round_ < n_active - 1:
            aged = self._keep_until_next_round(double, (young, no_chunk))
            options.append(_Option(IDLE, wasted, aged))
            if young != no_chunk:
                options.append(_Option(SEND + young, NO_WASTE, aged))
        return options

    def _keep_until_next_round(self, double: Double, kept: tuple[int, int]) -> Double:
        """Return a double as it is in the next round, if it has two given chunks after this one.

        `kept` are the classes of these chunks in this round, which grow by 1: 0 and 2 become 1 and
        3. A chunk that is new has class -1, and becomes 0. The oldest chunk, of class q - 1, is
        never kept, so that q - 1 stands for an empty place here, which stays empty.
        """
        classes = [min(class_ + 1, self.q - 1) for class_ in kept]
        return Double(min(classes), max(classes), met=double.met, lost=double.lost)

    def _add_option(
        self, round_: int, step: DoublesStep, option: _Option, budgets: Budgets
    ) -> DoublesStep | None:
        """Add the move of one more double to round `round_`, unless those of others rule it out.

        `step` has the moves of the doubles before this one; the result is a longer copy.

        Example with q = 5 and a budget of 3 for class 2. One double may waste class 2, which takes
        2 ranks from its chunk; a second one may not, as that would be 4.

        The result is None if a second double would meet the late rank (`EXCHANGE`) or be without a
        partner (`LOSE`) in the same round, or if a budget is exceeded.
        """
        # One rank meets the late rank in a round, and one faces the absent rank.
        move = option.move
        if move in (EXCHANGE, LOSE) and move in step.moves:
            return None

        # All doubles together may waste no more of a class than its budget. The last chunk, and
        # numbers after it, which stand for copies of it, may be wasted without limit.
        wasters = list(step.wasters)
        class_ = option.wasted
        if class_ != NO_WASTE:
            wasters[class_] += 1
            n_holders = wasters[class_] * self._holders_wasted_by(class_)
            if not self._may_waste_freely(round_, class_) and n_holders > budgets[class_]:
                return None

        # Count the class that this double takes: a move from 0 to `SEND` - 1 is this class. A swap
        # takes class q - 2; its partner then holds the young chunk of the double, and gives it to
        # another rank in the next round (a debt). ``option.double`` has the classes of that round.
        takers = list(step.takers)
        debts = step.debts
        if 0 <= move < SEND:
            takers[move] += 1
        if move == SWAP:
            takers[self.q - 2] += 1
            debts = (*debts, option.double.young)
        return DoublesStep(
            moves=(*step.moves, move),
            doubles=(*step.doubles, option.double),
            wasters=tuple(wasters),
            takers=tuple(takers),
            debts=debts,
        )

    def _holders_wasted_by(self, class_: int) -> int:
        """Return by how many holders a chunk ends short because one double wastes its class once.

        These are 2^(q - 2 - class): with q = 4 they are 4, 2 and 1 for the classes 0, 1 and 2.
        """
        return 1 << (self.q - 2 - class_)

    def _may_waste_freely(self, round_: int, class_: int) -> bool:
        """Tell whether the chunk of a class in round `round_` is the last one, or a copy of it.

        The chunk that has class c in round t met the late rank in round t - 1 - c, and has this
        number. Nothing spreads after the last chunk, so that any number of holders may keep it.
        """
        chunk = round_ - 1 - class_
        return chunk >= self.n_chunks - 1

    def _budgets_after(
        self,
        round_: int,
        step: DoublesStep,
        doubles: tuple[Double, ...],
        budgets: Budgets,
        debts: tuple[int, ...],
    ) -> Budgets | None:
        """Return the budgets after round `round_`, or None if its moves lead to no whole plan.

        `step` has the moves of all doubles; `doubles`, `budgets` and `debts` are those before the
        round. There is no plan if one of these is true:

        - too few rounds are left for the doubles (`_has_rounds_left`);
        - doubles cannot waste what is left of some budget;
        - more doubles take a chunk than ranks give it;
        - the ramp ends, and some rank is without a chunk (`_gives_all_ranks_chunks`).

        Example with q = 4 and a surplus of 1. A new chunk has a budget of 1: one of its holders
        has to be wasted. When it has class 2, a double wastes it for a round, which takes 2^0 = 1
        off the budget. It is 0 when the chunk has class 3, the oldest, as it has to be.
        """
        if not self._has_rounds_left(round_, step):
            return None

        # A new chunk begins with the whole surplus; all others have grown older by one class. The
        # last chunk and its copies may be wasted without limit: their budget is 0 and not asked.
        budgets_after = [self.surplus] + [0] * (self.q - 1)
        for class_ in range(min(round_, self.q - 1)):
            if self._may_waste_freely(round_, class_):
                continue
            n_wasted = self._holders_wasted_by(class_)  # by one double
            budget = budgets[class_] - step.wasters[class_] * n_wasted
            budgets_after[class_ + 1] = budget

            # Class q - 2 is the last one that can be wasted, so that nothing must be left of its
            # budget. Each swap of this round takes one holder more off it: the partner of the
            # double gets a young chunk in place of the oldest.
            if class_ == self.q - 2:
                if budget != step.moves.count(SWAP):
                    return None
            # A double that goes on to waste the chunk takes `n_wasted` / 2 holders from it in the
            # next round, then `n_wasted` / 4, down to 1: `n_wasted` - 1 in all. With q = 4 and
            # class 0 these are 4 / 2 + 4 / 4 = 3. All doubles must be able to waste what is left.
            elif budget > self.n_doubles * (n_wasted - 1):
                return None

            if step.takers[class_] > self._count_givers(class_, step, doubles, budgets, debts):
                return None
        if round_ == self.q - 1 and not self._gives_all_ranks_chunks(budgets_after):
            return None
        return tuple(budgets_after)

    def _has_rounds_left(self, round_: int, step: DoublesStep) -> bool:
        """Tell whether the rounds after `round_` are enough for what doubles have still to do.

        Each double has to meet the late rank, one in a round, which takes rounds up to number
        n_chunks - 1. As many doubles as `n_losers` have to be without a partner once, one in a
        round, up to the last round, n_chunks + q - 2.
        """
        n_to_meet = sum(not double.met for double in step.doubles)
        n_to_lose = self.n_losers - sum(double.lost for double in step.doubles)
        has_meetings = n_to_meet <= max(0, self.n_chunks - 1 - round_)
        return has_meetings and n_to_lose <= self.n_chunks + self.q - 2 - round_

    def _gives_all_ranks_chunks(self, budgets: list[int]) -> bool:
        """Tell whether every rank has a chunk after the first q rounds, the ramp.

        `budgets` are those after the ramp. Each rank but the late one must hold one active chunk,
        and each double two. A chunk is wanted at m / 2 = 2^(q - 1) - surplus ranks, where m is the
        even number of all ranks.
        """
        n_ranks = 2 * ((1 << (self.q - 1)) - self.surplus) - 1
        n_held = sum(self._count_holders(class_, budgets[class_]) for class_ in range(self.q))
        return n_held == n_ranks + self.n_doubles

    def _count_givers(
        self,
        class_: int,
        step: DoublesStep,
        doubles: tuple[Double, ...],
        budgets: Budgets,
        debts: tuple[int, ...],
    ) -> int:
        """Return from how many ranks doubles can take the chunk of a class in a round.

        The chunk is given by ranks that hold it alone and pay no debt with it, and by doubles
        whose move gives it. Example: 4 ranks hold it, two of which are doubles, and one of these
        gives it: 3 ranks give it.
        """
        # Of 2^class holders those are missing that were wasted before, which is what the budget
        # says. Doubles among them count only if they send it.
        n_with_it = sum(class_ in (double.young, double.old) for double in doubles)
        n_givers = self._count_holders(class_, budgets[class_]) - n_with_it - debts.count(class_)
        n_givers += step.moves.count(SEND + class_)
        # If the number of ranks is odd, the absent rank takes the part of a rank that gives the
        # oldest chunk in each round. To have one in the next round, too, it takes class q - 2:
        # from a double that loses (`LOSE`), else from one of these ranks, which doubles then lack.
        goes_to_absent = class_ == self.q - 2 and self.n_losers > 0 and LOSE not in step.moves
        return n_givers - goes_to_absent

    def _count_holders(self, class_: int, budget: int) -> int:
        """Return how many ranks hold a chunk of a class with the given budget.

        Without waste a chunk of class c is at 2^c ranks. A holder that is missing now would have
        become 2^(q - 1 - c) holders by the time when the chunk is the oldest, and as many are
        taken from its budget.

        Example with q = 5 and a surplus of 3. In class 3 a chunk has a budget of 1 left: 2 of its
        later holders are wasted, which are 2 / 2 holders now. It is at 2^3 - 1 = 7 ranks.
        """
        wasted = self.surplus - budget
        return (1 << class_) - (wasted >> (self.q - 1 - class_))

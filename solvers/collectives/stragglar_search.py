"""Plans of doubles by depth-first search, for where no closed form is known.

A *double* is a rank with two active chunks. In round t the chunk of class c is number t - 1 - c,
and the oldest active one has class q - 1; the modules `stragglar` and `stragglar_pairs` say what
doubles do with them. Chunks after the last one are copies of the last one.

Words that are used here:

- the *class* of a chunk is how many rounds it has been spreading; it is *active* while it spreads,
  for q rounds. The *ramp* are the rounds before round q, without q active chunks yet;
- a double *wastes* the class that it holds and does not give in a round. That takes
  2^(q - 2 - c) later holders from a chunk of class c, and the *budget* of a class says how many of
  them are still to be taken from its chunk;
- a *move* is what one double does in one round, as a number: from 0 the class of the chunk that it
  takes, `SEND` plus a class for the chunk that it gives, or `EXCHANGE`, `SWAP`, `LOSE` or `IDLE`
  (see `stragglar_pairs`); a *step* are the moves of all doubles in one round;
- a *debt* is the class of a chunk that a rank got from a double in a *swap*, in place of the
  oldest one. In the next round this rank gives that chunk to a rank that pays the debt;
- a double *loses* if it is paired with the *absent* rank, which makes an odd number of ranks even,
  and goes without the oldest chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.collectives.stragglar_pairs import EXCHANGE, IDLE, LOSE, SEND, SWAP

NODES = 5000
"""States without a plan after which a search gives up; more seeds help more than more nodes."""


NO_WASTE = -1
"""In place of a class: the double wastes nothing."""

Budgets = tuple[int, ...]
"""``budgets[class]``, for the classes 0 to q - 1: how many of the holders that a chunk could have
by the oldest class are still to be wasted. A rank that does not give class c wastes 2^(q - 2 - c)
of them. A new chunk has the whole surplus as its budget, and a chunk that is not there has 0."""


class Double(NamedTuple):
    """A rank with two active chunks, by class.

    In the ramp (rounds before q) class q - 1 stands for no chunk, and later class q does: a double
    ``Double(1, 3)`` with q = 4 holds the oldest chunk and one that spreads for its second round.
    """

    young: int
    """The class of its younger chunk; the lower number."""
    old: int
    """The class of its older chunk; the higher number."""
    met: bool = False
    """Whether it has met the late rank."""
    lost: bool = False
    """Whether it has missed a chunk, because it faced the rank that is not there."""


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
    wasted: tuple[int, ...]
    """``wasted[class]``: how many doubles hold it and do not give it."""
    asked: tuple[int, ...]
    """``asked[class]``: how many doubles take it from ranks that give it."""
    debts: tuple[int, ...]
    """One entry for each swap: the class, a round later, of the young chunk that the partner of
    the double got. In that round the partner gives it to the rank that pays the debt."""


class DoublesSearch:
    """Depth-first search for the moves of doubles, such that some of them miss a chunk.

    A double is a rank with two active chunks. All doubles move at once, round by round, and rounds
    that lead nowhere are undone. The other ranks are only counted: as many of them have to give a
    class as doubles take it.

    Parameters
    ----------
    q
        The number of active chunks.
    surplus
        How many of the 2^(q - 1) holders that a chunk could have are to be wasted, of each chunk
        but the last one.
    n_chunks
        The number of chunks.
    n_doubles
        The number of doubles.
    n_losers
        How many doubles miss a chunk.
    seed
        The seed of the order in which equally good moves are tried.
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
        budgets, and the debts. With more than `NODES` of them the search gives up."""

    def plan(self) -> NDArray[np.int8] | None:
        """Search for the moves of all ranks with two chunks, in an all-reduce around a late rank.

        The result ``moves[round, double]`` is None if the search found no plan.
        """
        # Before round 0 no double holds a chunk (q - 1 stands for an empty place). Chunk 0, which
        # has class 0 from round 1 on, has its whole surplus still to waste.
        empty = Double(self.q - 1, self.q - 1)
        budgets = (self.surplus,) + (0,) * (self.q - 1)
        last_first = self._extend(0, (empty,) * self.n_doubles, budgets, ())
        if last_first is None:
            return None

        # The search lists the last round first.
        return np.array(last_first[::-1], dtype=np.int8)

    def _extend(
        self, turn: int, doubles: tuple[Double, ...], budgets: Budgets, debts: tuple[int, ...]
    ) -> list[tuple[int, ...]] | None:
        """Find the moves of all doubles from one round to the end, by depth-first search.

        `turn` is the round, and `doubles` are what each of them holds before it.
        ``budgets[class]`` counts the holders that have still to be wasted (`Budgets`). `debts` has
        one class for each swap of the round before: that which the young chunk of the swap has in
        this round. Returns ``moves[double]`` of each round, the last round first; None if there is
        no plan, or if the search has given up.

        States that led nowhere are added to ``self.failed``. Once these are more than `NODES`, all
        calls return None, which ends the whole search although there may be a plan.

        Example with q = 4 and two doubles: in a round with the debts ``(1,)``, a rank that got a
        chunk of class 0 in a swap gives it, now of class 1, to the rank that pays. If the moves of
        the round are ``(2, 32)``, double 0 takes class 2, and double 1 gives class 0 (`SEND` is
        32).
        """
        # All rounds are planned.
        if turn == self.n_chunks + self.q - 1:
            return []

        # Doubles are alike, so their order makes no difference to what can follow.
        state = (turn, tuple(sorted(doubles)), budgets, debts)
        if state in self.failed or len(self.failed) > NODES:
            return None

        # The first list of moves that leads to the end is taken.
        for step, budgets_after in self._list_steps(turn, doubles, budgets, debts):
            later_moves = self._extend(turn + 1, step.doubles, budgets_after, step.debts)
            if later_moves is not None:
                return [*later_moves, step.moves]
        self.failed.add(state)
        return None

    def _list_steps(
        self, turn: int, doubles: tuple[Double, ...], budgets: Budgets, debts: tuple[int, ...]
    ) -> list[tuple[DoublesStep, Budgets]]:
        """List what all doubles together may do in one round, the most promising choice first.

        The moves of several doubles limit each other:

        - only one double meets the late rank in a round, and only one has no partner;
        - a class can be taken only as often as other ranks give it;
        - a double gives only one of its two chunks. The other one, of class c, comes to 2^(q - 2 -
          c) ranks less in the end. Just so many ranks less are wanted as `budgets` says.

        `_add_option` checks the first rule as each double is added, and that doubles waste no more
        of a class than its budget. `_close_round` checks the others once all have a move.
        `doubles`, `budgets` (``budgets[class]``: how many holders of its chunk are still to be
        wasted) and `debts` (a class for each swap of the round before) are those before the round.
        Returns pairs of a step and the budgets after it; none if no moves fit together.
        """
        # Go through the doubles one by one. After each of them, `partial_steps` are all
        # combinations of the moves of the doubles until then that break no rule so far. At first
        # no double wastes or takes any class, and no swap has left a debt.
        none_of_each = (0,) * self.q
        partial_steps = [DoublesStep((), (), none_of_each, none_of_each, ())]
        for double in doubles:
            longer_steps: list[DoublesStep] = []
            for step in partial_steps:
                for option in self._list_options(turn, double):
                    longer = self._add_option(turn, step, option, budgets)
                    if longer is not None:
                        longer_steps.append(longer)
            partial_steps = longer_steps

        # Keep the combinations that also meet the rules for all doubles together.
        allowed: list[tuple[DoublesStep, Budgets]] = []
        for step in partial_steps:
            budgets_after = self._close_round(turn, step, doubles, budgets, debts)
            if budgets_after is not None:
                allowed.append((step, budgets_after))

        # The least score comes first, and False is less than True. Choices with an `EXCHANGE` come
        # first, then those with a `LOSE`, as every double needs its own before the end; then those
        # with few swaps. Chance decides among equals.
        tie_breaks = self.rng.random(len(allowed))
        scores = [
            (
                EXCHANGE not in step.moves,
                LOSE not in step.moves,
                step.moves.count(SWAP),
                tie_breaks[number],
            )
            for number, (step, _) in enumerate(allowed)
        ]
        order = sorted(range(len(allowed)), key=scores.__getitem__)
        return [allowed[number] for number in order]

    def _list_options(self, turn: int, double: Double) -> list[_Option]:
        """List what one double can do in the round `turn`.

        Without the oldest chunk it gives one of its two chunks, for the oldest one, which stops
        spreading now, and *wastes* the other one: the move is `SEND` plus the class that it gives.
        With it, it gives the oldest chunk, and wastes the younger one, which it keeps for itself
        in this round: the move is the class that it takes.

        Examples with q = 4, after the ramp (the rounds before round q). A double holds the classes
        0 and 2. It has two options: give class 0 and waste class 2, or give class 2 and waste
        class 0. A round later both are a round older, 1 and 3. A double with the classes 0 and 3
        gives class 3 and wastes class 0: it takes class 1, or class 2, or meets the late rank. Or
        it swaps: it gives class 0 for class 2.
        """
        n_active = self.q
        young = double.young
        if double.old < n_active - 1:
            after = self._age(double, turn, (young, double.old))
            options = [
                _Option(SEND + young, double.old, after),
                _Option(SEND + double.old, young, after),
            ]

            # One of an odd number of ranks has no partner. A double can be this rank once, while
            # its older chunk is the oldest but one; before round q no chunk could be missed.
            may_lose = double.old == n_active - 2 and not double.lost and self.n_losers > 0
            if may_lose and turn >= n_active:
                options.append(_Option(LOSE, young, after._replace(lost=True)))
            return options

        # Else it holds the oldest chunk; before round q the oldest class stands for an empty
        # place, and the double moves as if it gave a chunk. A double with two empty places in
        # round q - 1 gets one chunk at most in this round, but needs two after it.
        no_chunk = self._class_without_chunk(turn)
        wasted = young
        if young == no_chunk:
            wasted = NO_WASTE
            if turn == n_active - 1:
                return []

        # It takes any class but its own. After the last chunk no new ones come, and the ranks that
        # would have them have copies of the last chunk instead. All these classes are the same
        # chunk, so one of them, the first, is enough. Example: with 13 chunks, the last of which
        # began to spread in round 12, the classes 0, 1 and 2 of round 15 are all this chunk.
        last_copied_class = turn - self.n_chunks
        takes = [age for age in range(min(turn, n_active - 1)) if age != young]
        takes = takes[:1] + [age for age in takes[1:] if age > last_copied_class]
        options = [_Option(age, wasted, self._age(double, turn, (young, age))) for age in takes]

        # It may meet the late rank once. The new chunk is younger than class 0 in this round, so
        # that it has class 0 when all classes have grown by one.
        if not double.met and turn < self.n_chunks:
            younger_than_newest = -1
            after = self._age(double, turn, (young, younger_than_newest))
            options.append(_Option(EXCHANGE, wasted, after._replace(met=True)))
        # Or it swaps: it gives its young chunk for one of class q - 2, the oldest a round later.
        if turn >= n_active and young <= n_active - 3:
            options.append(_Option(SWAP, NO_WASTE, self._age(double, turn, (young, n_active - 2))))

        # In the ramp it may also take nothing, and may give its young chunk meanwhile.
        if turn < n_active - 1:
            after = self._age(double, turn, (young, no_chunk))
            options.append(_Option(IDLE, wasted, after))
            if young != no_chunk:
                options.append(_Option(SEND + young, NO_WASTE, after))
        return options

    def _class_without_chunk(self, turn: int) -> int:
        """Return the number that stands for an empty place among the classes of a double."""
        return self.q - 1 if turn < self.q else self.q

    def _age(self, double: Double, turn: int, kept: tuple[int, int]) -> Double:
        """Return what a rank with two chunks holds in the next round, when these are older.

        `kept` are the classes that they have in the round `turn`, -1 for a chunk that is new, or
        the number of an empty place, which stays: 0 and 2 become 1 and 3, -1 and 2 become 0 and 3.
        """
        no_chunk = self._class_without_chunk(turn)
        classes = [c if c == no_chunk else c + 1 for c in kept]
        return Double(min(classes), max(classes), double.met, double.lost)

    def _add_option(
        self, turn: int, step: DoublesStep, option: _Option, budgets: Budgets
    ) -> DoublesStep | None:
        """Add the move of one more double to round `turn`, unless those of others rule it out.

        `step` has the moves of the doubles before this one; the result is a longer copy.
        ``budgets[class]`` is how many holders of the chunk may still be wasted; one double wastes
        2^(q - 2 - class) of them in a round.

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
        wasted = list(step.wasted)
        if option.wasted != NO_WASTE:
            wasted[option.wasted] += 1
            is_last_chunk = turn - 1 - option.wasted >= self.n_chunks - 1
            waste = wasted[option.wasted] << (self.q - 2 - option.wasted)
            if not is_last_chunk and waste > budgets[option.wasted]:
                return None

        # Count the class that this double takes. A swap takes class q - 2; its partner then holds
        # the young chunk of the double, and owes it to another rank in the next round (a debt).
        asked = list(step.asked)
        debts = step.debts
        if 0 <= move < SEND:
            asked[move] += 1
        if move == SWAP:
            asked[self.q - 2] += 1
            debts = (*debts, option.double.young)
        return DoublesStep(
            moves=(*step.moves, move),
            doubles=(*step.doubles, option.double),
            wasted=tuple(wasted),
            asked=tuple(asked),
            debts=debts,
        )

    def _close_round(
        self,
        turn: int,
        step: DoublesStep,
        doubles: tuple[Double, ...],
        budgets: Budgets,
        debts: tuple[int, ...],
    ) -> Budgets | None:
        """Return the budgets after round `turn`, or None if its moves lead to no whole plan.

        They cannot if too few rounds are left for meetings, if a chunk can no longer come to just
        the wanted number of ranks, if more doubles take a chunk than ranks give it, or if after
        the ramp some rank is without a chunk. `doubles`, `budgets` (``budgets[class]``: how many
        holders of this chunk are still to be wasted) and `debts` (a class for each swap of the
        round before) are those before the round, and `step` has the moves of all doubles.

        Example with q = 4 and a surplus of 1. A new chunk has a budget of 1. When it has class 2,
        one double wastes it for a round, which takes 2^0 = 1 off the budget. It is 0 when the
        chunk has class 3, the oldest, as it has to be.
        """
        # Rounds turn + 1 to n_chunks - 1 are left in which doubles can meet the late rank, and
        # rounds turn + 1 to n_chunks + q - 2 in which one can be without a partner.
        n_active = self.q
        n_to_meet = sum(not double.met for double in step.doubles)
        n_to_lose = self.n_losers - sum(double.lost for double in step.doubles)
        has_meetings = n_to_meet <= max(0, self.n_chunks - 1 - turn)
        if not has_meetings or n_to_lose > self.n_chunks + n_active - 2 - turn:
            return None

        # A new chunk begins with the whole surplus; all others have grown older by one class. The
        # last chunk, and numbers after it, may be wasted without limit.
        budgets_after = [self.surplus] + [0] * (n_active - 1)
        for age in range(min(turn, n_active - 1)):
            if turn - 1 - age >= self.n_chunks - 1:
                continue

            # Class q - 2 is the last one that can be wasted. After it 0 must be left of the
            # budget; but each swap of the round takes one rank from this chunk by itself, so as
            # many must be left as there are swaps. In a younger class c, one double that wastes
            # the chunk in all rounds to come takes 2^(q - 3 - c) + ... + 2 + 1 =
            # 2^(q - 2 - c) - 1 ranks from it; all together must be able to waste what is left.
            budget = budgets[age] - (step.wasted[age] << (n_active - 2 - age))
            budgets_after[age + 1] = budget
            if age == n_active - 2:
                if budget != step.moves.count(SWAP):
                    return None
            elif budget > self.n_doubles * ((1 << (n_active - 2 - age)) - 1):
                return None

            # The chunk is given by ranks that hold it alone and pay no debt with it, and by
            # doubles that give it. One of class q - 2 may have to be without a partner, if the
            # number of ranks is odd. With 4 holders, two of them doubles, one of which gives it, 3
            # ranks give the chunk, and at most 3 doubles can take it.
            n_doubles_with_it = sum(age in (double.young, double.old) for double in doubles)
            n_givers = (
                self._count_holders(age, budgets[age]) - n_doubles_with_it - debts.count(age)
            )
            n_givers += step.moves.count(SEND + age)
            goes_to_absent = age == n_active - 2 and self.n_losers > 0 and LOSE not in step.moves
            if step.asked[age] + goes_to_absent > n_givers:
                return None

        # After the first q rounds every rank but the late one must hold one active chunk, and
        # doubles two. A chunk is wanted at m / 2 = 2^(q - 1) - surplus ranks, where m is the even
        # number of all ranks.
        if turn == n_active - 1:
            n_ranks = 2 * ((1 << (n_active - 1)) - self.surplus) - 1
            holders = sum(self._count_holders(age, budgets_after[age]) for age in range(n_active))
            if holders != n_ranks + self.n_doubles:
                return None
        return tuple(budgets_after)

    def _count_holders(self, c: int, budget: int) -> int:
        """Return how many ranks hold a chunk of class `c` with the given budget.

        Example with q = 5 and a surplus of 3. In class 3 a chunk has a budget of 1 left: 2 of its
        later holders are wasted, which are 2 / 2 holders now. It is at 2^3 - 1 = 7 ranks.
        """
        wasted = self.surplus - budget
        return (1 << c) - (wasted >> (self.q - 1 - c))

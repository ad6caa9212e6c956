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
- a *move* is what one double does in one round, as a number (see `stragglar_pairs`); a *step* are
  the moves of all doubles in one round;
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
"""Rounds that one search may plan; more seeds help more than more nodes."""


NO_WASTE = -1
"""In place of a class: the double wastes nothing."""

Budgets = tuple[int, ...]
"""``budgets[class]``: how many of the holders that a chunk could have by the oldest class are
still to be wasted. A rank that does not give class c wastes 2^(q - 2 - c) of them."""


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
    """``moves[double]``: the moves, numbers as in `_Option.move`."""
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
        """Keep the numbers that a plan has to meet; nothing has been tried yet.

        A *double* is a rank with two chunks that spread. A chunk spreads for q rounds, from rank
        to rank, and could come to 2^(q - 1) *holders*; the *surplus* says how many of them are too
        many. A double *wastes* holders of a chunk while it holds the chunk and does not give it.

        Parameters
        ----------
        q
            The number of chunks that spread at the same time.
        surplus
            How many holders of each chunk but the last one are to be wasted.
        n_chunks
            The number of chunks.
        n_doubles
            The number of doubles.
        n_losers
            How many doubles miss a chunk, because they face the rank that is not there.
        seed
            The seed of the order in which equally good moves are tried.
        """
        self.q = q
        self.surplus = surplus
        self.n_chunks = n_chunks
        self.n_doubles = n_doubles
        self.n_losers = n_losers
        self.rng = np.random.default_rng(seed)
        self.failed: set[tuple[object, ...]] = set()
        """States from which no plan leads to the end."""

    def plan(self) -> NDArray[np.int8] | None:
        """Return the moves of all doubles, or None if the search found none.

        A *double* is a rank that holds two chunks that still spread from rank to rank. Its *move*
        says what it does in one round of an all-reduce around a late rank.

        Returns
        -------
        int8 array, shape (n_chunks + q - 1, doubles), or None
            ``moves[round, double]``: a class from 0 (for how many rounds a chunk has been
            spreading) whose chunk the double takes for its oldest one, `SEND` plus a class that it
            gives, or `EXCHANGE` (meets the late rank), `SWAP`, `LOSE` or `IDLE`.
        """
        # Before round 0 no double holds a chunk, and chunk 0, of class 0 from round 1 on, has its
        # whole surplus still to waste.
        empty = Double(self.q - 1, self.q - 1)
        budgets = (self.surplus,) + (0,) * (self.q - 1)
        last_first = self._extend(0, (empty,) * self.n_doubles, budgets, ())
        if last_first is None:
            return None
        return np.array(last_first[::-1], dtype=np.int8)

    def _extend(
        self, turn: int, doubles: tuple[Double, ...], budgets: Budgets, debts: tuple[int, ...]
    ) -> list[tuple[int, ...]] | None:
        """Return the moves of all doubles from a round on, by depth-first search.

        A *double* is a rank that holds two chunks that still spread. The *class* of a chunk is how
        many rounds it has been spreading, 0 to q - 1. A double *wastes* a chunk while it holds it
        without giving it, so that the chunk has fewer holders in the end, and the *budget* of a
        class says how many fewer they have still to be. In a *swap* a double gives its younger
        chunk for one of class q - 2, and its partner goes without the oldest one until the next
        round: a *debt*. States from which no plan leads to the end
        are remembered, and not entered again.

        Parameters
        ----------
        turn
            The number of the round.
        doubles
            The classes of the two chunks of each double before the round.
        budgets
            ``budgets[class]``: how many of the holders that the chunk of a class could have are
            still to be wasted.
        debts
            One class for each swap of the round before: the partner of a double got this younger
            chunk in place of the oldest one, which some rank has to pay to it in this round.

        Returns
        -------
        list or None
            For each round the move of each double, the last round first; None if there is no plan.
        """
        if turn == self.n_chunks + self.q - 1:
            return []

        # Doubles are alike, so their order makes no difference to what can follow.
        state = (turn, tuple(sorted(doubles)), budgets, debts)
        if state in self.failed or len(self.failed) > NODES:
            return None
        for step, budgets_after in self._list_steps(turn, doubles, budgets, debts):
            later_moves = self._extend(turn + 1, step.doubles, budgets_after, step.debts)
            if later_moves is not None:
                return [*later_moves, step.moves]
        self.failed.add(state)
        return None

    def _list_steps(
        self, turn: int, doubles: tuple[Double, ...], budgets: Budgets, debts: tuple[int, ...]
    ) -> list[tuple[DoublesStep, Budgets]]:
        """List the moves that all doubles together can make in a round, the most promising first.

        A *double* is a rank with two chunks that spread. The *class* of a chunk counts the rounds
        for which it has been spreading, from 0 to q - 1. A chunk has the fewer holders at the end,
        the more doubles hold it without giving it: they *waste* its class. In each round one rank
        meets the *late rank*, whose data are wanted by all (a double *exchanges* with it once),
        and if ranks are odd in number one has no partner, and *loses* a chunk. In a *swap* a
        double gives its younger chunk for one of class q - 2, and its partner goes without the
        oldest chunk until the next round: that is a *debt*.

        A list of moves is allowed if only one double exchanges, and one loses; if no class is
        wasted beyond its budget, and the oldest one is wasted as often as it has to be; if enough
        ranks give each class that doubles take; and if enough rounds are left for what each double
        has to do once.

        Parameters
        ----------
        turn
            The number of the round.
        doubles
            The doubles before the round: the classes of their two chunks, and whether they have
            exchanged and lost before.
        budgets
            ``budgets[class]``: how many of the holders that a chunk could have are still to be
            wasted, by doubles that do not give it.
        debts
            One class for each swap of the round before. The rank that got a chunk of this class in
            it gives that to the rank that pays its debt, and thus to no double.

        Returns
        -------
        list of (DoublesStep, Budgets)
            The moves of all doubles with the doubles, wasted classes and debts after them; and the
            budgets of the next round.
        """
        # Combine the options of all doubles, and drop what already breaks a rule.
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

        allowed: list[tuple[DoublesStep, Budgets]] = []
        for step in partial_steps:
            budgets_after = self._close_round(turn, step, doubles, budgets, debts)
            if budgets_after is not None:
                allowed.append((step, budgets_after))

        # Exchanges and losses come first, because every double needs its own before the end; of
        # the rest few swaps are best. Chance decides among equals.
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
        """List the moves of one double in a round: a rank that holds two chunks that spread.

        The late rank meets one rank in each round; the chunk of this rank is then complete, and
        spreads by copies. A chunk has class c if that was c + 1 rounds ago, and spreads until it
        has class q - 1. Ranks are paired in each round. A rank with the oldest chunk gives it and
        takes a younger one; a rank with younger ones gives one of them and takes the oldest, but
        keeps both of its own. The chunk that a double does not give is *wasted* for a round.

        Example, q = 4, after the ramp: a double with classes 0 and 2 gives one of them, and wastes
        the other: two options. Its classes are 1 and 3 in the next round; it then gives class 3,
        wastes class 1, and takes class 0 or 2, meets the late rank, or swaps.

        Parameters
        ----------
        turn
            The number of the round. Rounds before q are the ramp, in which there are not yet q
            active chunks.
        double
            The classes of its two chunks before the round, and what it has done already.

        Returns
        -------
        list of _Option
            For each move, the class that the double wastes, and its classes in the next round.
        """
        if double.old < self.q - 1:
            return self._options_with_young_chunks(turn, double)
        no_chunk = self._class_without_chunk(turn)
        if turn == self.q - 1 and double.young == no_chunk:  # too late for two chunks
            return []
        return self._options_with_oldest_chunk(turn, double, no_chunk)

    def _class_without_chunk(self, turn: int) -> int:
        """Return the class that stands for no chunk: older than all that there are in a round.

        The class of a chunk is how many rounds it has been spreading, and the oldest one has class
        q - 1. Rounds before q have no chunk as old as that, so class q - 1 is free for this use.
        """
        return self.q - 1 if turn < self.q else self.q

    def _age(self, double: Double, turn: int, kept: tuple[int, int]) -> Double:
        """Return a double after a round: a rank with two chunks, each one round older than before.

        Parameters
        ----------
        double
            The double before the round.
        turn
            The number of the round.
        kept
            The classes, as counted in this round, of the two chunks that it has at the end of the
            round. A class of -1 is a chunk that begins to spread in this round, and the class that
            stands for no chunk (`_class_without_chunk`) does not grow.

        Returns
        -------
        Double
            Its classes in the next round; whether it has met the late rank, or lost, is kept.
        """
        no_chunk = self._class_without_chunk(turn)
        classes = [c if c == no_chunk else c + 1 for c in kept]
        return Double(min(classes), max(classes), double.met, double.lost)

    def _options_with_young_chunks(self, turn: int, double: Double) -> list[_Option]:
        """List the moves of a double without the oldest chunk: it gives one, and wastes the other.

        A *double* is a rank that holds two chunks that still spread. The *class* of a chunk is how
        many rounds it has been spreading, 0 to q - 1. Whoever gets a chunk of the double holds the
        oldest one and gives that; the double has no use for it beyond this round, and keeps both
        of its own. It *wastes* the chunk that it does not give.

        Parameters
        ----------
        turn
            The number of the round.
        double
            The classes of its two chunks, of which none is the oldest, and whether it has missed a
            chunk already (`lost`).

        Returns
        -------
        list of _Option
            For each move (`SEND` plus the class that it gives, or `LOSE`), the class that it
            wastes, and the double in the next round.
        """
        young = double.young
        old = double.old
        after = self._age(double, turn, (young, old))
        options = [_Option(SEND + young, old, after), _Option(SEND + old, young, after)]

        # If ranks are odd in number it may give to the absent rank, and miss the oldest chunk.
        may_lose = old == self.q - 2 and not double.lost and self.n_losers > 0
        if may_lose and turn >= self.q:
            options.append(_Option(LOSE, young, after._replace(lost=True)))
        return options

    def _options_with_oldest_chunk(
        self, turn: int, double: Double, no_chunk: int
    ) -> list[_Option]:
        """List the moves of a double that gives the oldest chunk: it takes another one for it.

        A *double* is a rank that holds two chunks. Chunk t begins to spread in round t, when its
        owner meets the *late rank*, and spreads for q rounds. Its *class* counts the rounds since
        then: 0 for the newest chunk, q - 1 for the oldest one. The double gives its oldest chunk
        in this round, and *wastes* its young one, which it keeps and does not give. It can

        - take a chunk of any other class from a rank that gives it;
        - meet the late rank, and get the newest chunk from it;
        - swap: give its young chunk as well, for one that will be the oldest a round later.

        In the *ramp*, the first q rounds, there is no oldest chunk yet. A rank with one chunk or
        none then moves as if it gave one, and can also take nothing, or give its young chunk.

        Parameters
        ----------
        turn
            The number of the round.
        double
            The classes of its two chunks before the round. The older one is class q - 1; in the
            ramp it is `no_chunk`.
        no_chunk
            The class that stands for an empty place: q - 1 in the ramp, and q after it.

        Returns
        -------
        list of _Option
            For each move, the class that the double wastes, and its classes in the next round.
        """
        q = self.q
        young = double.young
        wasted = young
        if young == no_chunk:
            wasted = NO_WASTE

        # It takes any class but its own. After the last chunk no new ones come, and the ranks that
        # would have them have copies of the last chunk instead. All these classes are the same
        # chunk, so one of them, the first, is enough. Example: with 13 chunks, the last of which
        # began to spread in round 12, the classes 0, 1 and 2 of round 15 are all this chunk.
        last_copied_class = turn - self.n_chunks
        takes = [c for c in range(min(turn, q - 1)) if c != young]
        takes = takes[:1] + [c for c in takes[1:] if c > last_copied_class]
        options = [_Option(c, wasted, self._age(double, turn, (young, c))) for c in takes]

        # It may meet the late rank once. The new chunk is younger than class 0 in this round, so
        # that it has class 0 when all classes have grown by one.
        if not double.met and turn < self.n_chunks:
            younger_than_newest = -1
            after = self._age(double, turn, (young, younger_than_newest))
            options.append(_Option(EXCHANGE, wasted, after._replace(met=True)))
        # Or it swaps: it gives its young chunk for one of class q - 2, the oldest a round later.
        if turn >= q and young <= q - 3:
            options.append(_Option(SWAP, NO_WASTE, self._age(double, turn, (young, q - 2))))

        # In the ramp there is no oldest chunk yet, so it may also take nothing.
        if turn < q - 1:
            after = self._age(double, turn, (young, no_chunk))
            options.append(_Option(IDLE, wasted, after))
            if young != no_chunk:
                options.append(_Option(SEND + young, NO_WASTE, after))
        return options

    def _add_option(
        self, turn: int, step: DoublesStep, option: _Option, budgets: Budgets
    ) -> DoublesStep | None:
        """Let one more double move in a round, and count what all of them waste and take together.

        A *double* is a rank with two chunks that spread, one of which it can give in a round; the
        other one is *wasted*. A chunk has *class* c if it began to spread c + 1 rounds ago; q
        chunks spread at a time, so classes are 0 to q - 1. In an *exchange* the double meets the
        late rank; it *loses* if it has no partner, where ranks are odd in number; in a *swap* it
        gives its younger chunk for one of class q - 2, and the partner has to be paid its oldest
        chunk in the next round, a *debt*.

        Parameters
        ----------
        turn
            The number of the round.
        step
            The moves of the doubles before this one, how many of them waste (``wasted[class]``)
            and take (``asked[class]``) each class, and the debts of their swaps.
        option
            The move of this double, the class that it wastes, and the double after the round.
        budgets
            ``budgets[class]``: how many of the holders that the chunk of a class could have may
            still be wasted; a double that does not give class c wastes 2^(q - 2 - c) of them.

        Returns
        -------
        DoublesStep or None
            The step with one move more; None if the other moves, or the budgets, do not allow it.
        """
        # One rank meets the late rank in a round, and one faces the absent rank.
        move = option.move
        if move in (EXCHANGE, LOSE) and move in step.moves:
            return None

        # All doubles together may waste no more of a class than its budget. The last chunk, copies
        # of which all later classes are, has no budget.
        wasted = list(step.wasted)
        if option.wasted != NO_WASTE:
            wasted[option.wasted] += 1
            is_last_chunk = turn - 1 - option.wasted >= self.n_chunks - 1
            waste = wasted[option.wasted] << (self.q - 2 - option.wasted)
            if not is_last_chunk and waste > budgets[option.wasted]:
                return None

        # A swap takes class q - 2; its partner holds the young chunk of the double afterwards.
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
        """Check the moves of all doubles in a round; return the budgets of the next round.

        A *double* is a rank with two chunks that spread. Chunks could spread to 2^(q - 1) ranks,
        which is too many by the *surplus*; the *budget* of a class is the part of the surplus that
        its chunk has still to lose. The class of a chunk is how many rounds it has been spreading,
        0 to q - 1. A double that does not give a chunk of class c for one round
        *wastes* it: there are 2^(q - 2 - c) holders less at the end.

        Parameters
        ----------
        turn
            The number of the round.
        step
            The moves of all doubles.
        doubles
            The classes of the two chunks of each double before the round.
        budgets
            ``budgets[class]``: how many holders are still to be wasted before the round.
        debts
            One class for each swap of the round before (a double gave its younger chunk in place
            of the oldest one): the rank that got this class in it cannot give it to a double now.

        Returns
        -------
        tuple of int or None
            ``budgets[class]`` after the round, where all chunks are older by one class; None if
            the moves lead nowhere.
        """
        if not self._has_rounds_for_meetings(turn, step):
            return None

        # A new chunk begins with the whole surplus; all others have grown older by one class.
        q = self.q
        budgets_after = [self.surplus] + [0] * (q - 1)
        for c in range(min(turn, q - 1)):
            is_last_chunk = turn - 1 - c >= self.n_chunks - 1
            if is_last_chunk:
                continue

            # The surplus has to be wasted by the oldest class, but for what swaps waste there, one
            # holder each; before that all doubles together must be able to waste the rest. One
            # double can waste 2^(q - 3 - c) + ... + 2 + 1 = 2^(q - 2 - c) - 1 more after class c.
            budget = budgets[c] - (step.wasted[c] << (q - 2 - c))
            budgets_after[c + 1] = budget
            if c == q - 2:
                if budget != step.moves.count(SWAP):
                    return None
            elif budget > self.n_doubles * ((1 << (q - 2 - c)) - 1):
                return None
            if not self._has_enough_givers(c, step, doubles, budgets[c], debts):
                return None

        # When the ramp (the first q rounds) ends, all ranks but the late one hold one active
        # chunk, and doubles two. A chunk is wanted at m / 2 = 2^(q - 1) - surplus ranks.
        if turn == q - 1:
            n_ranks = 2 * ((1 << (q - 1)) - self.surplus) - 1
            holders = sum(self._count_holders(c, budgets_after[c]) for c in range(q))
            if holders != n_ranks + self.n_doubles:
                return None
        return tuple(budgets_after)

    def _has_rounds_for_meetings(self, turn: int, step: DoublesStep) -> bool:
        """Tell whether enough rounds are left, after round `turn`, for what each double does once.

        A double is a rank with two chunks that spread. Each has to meet the late rank, and
        `n_losers` of them face the absent rank (have no partner, where ranks are odd in number);
        one double can do each of that in a round. The late rank has no new chunks after n_chunks
        rounds, while the absent rank is faced up to the last round, n_chunks + q - 2.

        Parameters
        ----------
        turn
            The number of the round of the step.
        step
            The moves of all doubles, and the doubles after them: whether they have met the late
            rank (`met`), and faced the absent one (`lost`).
        """
        n_to_meet = sum(not double.met for double in step.doubles)
        if n_to_meet > max(0, self.n_chunks - 1 - turn):
            return False
        n_to_lose = self.n_losers - sum(double.lost for double in step.doubles)
        return n_to_lose <= self.n_chunks + self.q - 2 - turn

    def _has_enough_givers(
        self,
        c: int,
        step: DoublesStep,
        doubles: tuple[Double, ...],
        budget: int,
        debts: tuple[int, ...],
    ) -> bool:
        """Tell whether there are as many ranks that give the chunk of class c as doubles take it.

        The chunk of class c began to spread c + 1 rounds ago. A rank that holds one chunk gives it
        in every round. A *double* is a rank that holds two, and gives the one that its move says;
        it *wastes* the other one, which has fewer holders in later rounds for that. Givers of
        class c are hence all its holders, less the doubles among them that give their other chunk,
        and less the ranks that are in *debt*: those that got a younger chunk in place of the
        oldest one in a swap of the round before, and give that to the rank that makes up for it.
        One giver may be needed for the *absent* rank, which stands for a missing partner where
        ranks are odd in number; a double that faces it (`LOSE`) makes that needless.

        Parameters
        ----------
        c
            The class.
        step
            The moves of all doubles in the round: ``SEND + c`` gives class c, `LOSE` gives class
            q - 2 to the absent rank. ``step.asked[c]`` counts the doubles that take class c.
        doubles
            The two classes of each double before the round.
        budget
            By how many ranks the chunk is still to be held back until it is the oldest; with it
            `_count_holders` says how many ranks hold the chunk now.
        debts
            One class for each swap of the round before: the rank that got a chunk of this class in
            it gives that to the rank that pays its debt, and to nobody else.

        Returns
        -------
        bool
            Whether doubles, and the absent rank if it needs one, find enough givers of the class.
        """
        n_doubles_with_it = sum(c in (double.young, double.old) for double in doubles)
        n_doubles_that_give = sum(move == SEND + c for move in step.moves)
        n_other_givers = self._count_holders(c, budget) - n_doubles_with_it - debts.count(c)

        # One rank may have to give class q - 2 to the absent rank.
        goes_to_absent = c == self.q - 2 and self.n_losers > 0 and LOSE not in step.moves
        return step.asked[c] + goes_to_absent <= n_other_givers + n_doubles_that_give

    def _count_holders(self, c: int, budget: int) -> int:
        """Return how many ranks hold the chunk of class c, of which `budget` is still to waste.

        The class of a chunk is how many rounds it has been spreading, 0 to q - 1. A chunk that is
        never *wasted* (held without being given) is held by 2^c ranks when it has class c. The
        waste is counted in holders by class q - 1, and is half as much for each class before that.
        Example, q = 5: with 2 of a surplus of 3 wasted until class 3, there are 2^3 - 2 / 2 = 7.
        """
        wasted = self.surplus - budget
        return (1 << c) - (wasted >> (self.q - 1 - c))

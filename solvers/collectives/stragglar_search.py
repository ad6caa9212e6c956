"""Plans of doubles by depth-first search, for where no closed form is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.collectives.stragglar_pairs import EXCHANGE, IDLE, LOSE, SEND, SWAP

NODES = 5000
"""Rounds that one search may plan; more seeds help more than more nodes."""


class Double(NamedTuple):
    """A rank with two active chunks, by class; in the ramp class q - 1 stands for none."""

    young: int
    old: int
    met: bool = False
    """Whether it has met the late rank."""
    lost: bool = False
    """Whether it has missed a chunk."""


class DoublesStep(NamedTuple):
    """The moves of doubles in a round, and their classes after it."""

    moves: tuple[int, ...]
    doubles: tuple[Double, ...]
    wasted: tuple[int, ...]
    """How many of each class are held and not given."""
    asked: tuple[int, ...]
    """How many of each class are taken from ranks that give them."""
    debts: tuple[int, ...]
    """Classes, a round later, that ranks got in swaps."""


class DoublesSearch:
    """Search for the moves of doubles, such that `n_losers` of them miss a chunk.

    A rank that does not give class a wastes 2^(q - 2 - a) of a chunk. `surplus` is how much of
    each chunk is to be wasted, but for the last one.
    """

    def __init__(
        self, q: int, surplus: int, n_chunks: int, n_doubles: int, n_losers: int, seed: int
    ) -> None:
        self.q, self.surplus, self.n_chunks = q, surplus, n_chunks
        self.n_doubles, self.n_losers = n_doubles, n_losers
        self.rng = np.random.default_rng(seed)
        self.failed: set[tuple[object, ...]] = set()

    def plan(self) -> NDArray[np.int8] | None:
        """Return ``moves[round, double]``, or None if none was found."""
        empty = Double(self.q - 1, self.q - 1)
        budgets = (self.surplus,) + (0,) * (self.q - 1)
        found = self._extend(0, (empty,) * self.n_doubles, budgets, ())
        return None if found is None else np.array(found[::-1], dtype=np.int8)

    def _extend(
        self, t: int, doubles: tuple[Double, ...], budgets: tuple[int, ...], debts: tuple[int, ...]
    ) -> list[tuple[int, ...]] | None:
        """Return the moves from round t on, the last first; budgets are by class."""
        if t == self.n_chunks + self.q - 1:
            return []
        key = (t, tuple(sorted(doubles)), budgets, debts)
        if key in self.failed or len(self.failed) > NODES:
            return None
        for step, then in self._steps(t, doubles, budgets, debts):
            found = self._extend(t + 1, step.doubles, then, step.debts)
            if found is not None:
                return [*found, step.moves]
        self.failed.add(key)
        return None

    def _steps(
        self, t: int, doubles: tuple[Double, ...], budgets: tuple[int, ...], debts: tuple[int, ...]
    ) -> list[tuple[DoublesStep, tuple[int, ...]]]:
        """List the moves of a round, and the budgets after each."""
        none = (0,) * self.q
        steps = [DoublesStep((), (), none, none, ())]
        for double in doubles:
            steps = [
                joined
                for step in steps
                for option in self._options(t, double)
                if (joined := self._join(t, step, option, budgets)) is not None
            ]
        found = []
        for step in steps:
            then = self._close(t, step, doubles, budgets, debts)
            if then is not None:
                found.append((step, then))
        luck = self.rng.random(len(found))
        rank = [
            (EXCHANGE not in s.moves, LOSE not in s.moves, s.moves.count(SWAP), luck[k])
            for k, (s, _) in enumerate(found)
        ]
        return [found[k] for k in sorted(range(len(found)), key=rank.__getitem__)]

    def _options(self, t: int, double: Double) -> list[tuple[int, int, Double]]:
        """List moves of a double, with the class that it wastes (-1: none) and its new classes."""
        q, (young, old, met, lost) = self.q, double
        none = q - 1 if t < q else q  # the class that stands for no chunk

        def becomes(a: int, b: int, *, met: bool = met, lost: bool = lost) -> Double:
            a, b = (c if c == none else c + 1 for c in (a, b))
            return Double(min(a, b), max(a, b), met, lost)

        if old < q - 1:
            found = [(SEND + young, old, becomes(young, old))]
            found += [(SEND + old, young, becomes(young, old))]
            if old == q - 2 and not lost and self.n_losers and t >= q:
                found.append((LOSE, young, becomes(young, old, lost=True)))
            return found
        if t == q - 1 and young == none:  # too late for two chunks
            return []
        wasted = young if young != none else -1
        free = t - self.n_chunks  # the oldest class of chunks that stand for the last
        takes = [c for c in range(min(t, q - 1)) if c != young]
        takes = takes[:1] + [c for c in takes[1:] if c > free]
        found = [(c, wasted, becomes(young, c)) for c in takes]
        if not met and t < self.n_chunks:
            found.append((EXCHANGE, wasted, becomes(young, -1, met=True)))
        if t >= q and young <= q - 3:
            found.append((SWAP, -1, becomes(young, q - 2)))
        if t < q - 1:
            found.append((IDLE, wasted, becomes(young, none)))
            if young != none:
                found.append((SEND + young, -1, becomes(young, none)))
        return found

    def _join(
        self, t: int, step: DoublesStep, option: tuple[int, int, Double], budgets: tuple[int, ...]
    ) -> DoublesStep | None:
        """Let one more double move in a round, if the other moves allow it."""
        move, wasted, then = option
        if move in (EXCHANGE, LOSE) and move in step.moves:
            return None
        waste, asked = list(step.wasted), list(step.asked)
        if wasted >= 0:
            waste[wasted] += 1
            free = t - 1 - wasted >= self.n_chunks - 1
            if not free and waste[wasted] << (self.q - 2 - wasted) > budgets[wasted]:
                return None
        if 0 <= move < SEND:
            asked[move] += 1
        debts = step.debts
        if move == SWAP:
            asked[self.q - 2] += 1
            debts = (*debts, then.young)
        return DoublesStep(
            (*step.moves, move), (*step.doubles, then), tuple(waste), tuple(asked), debts
        )

    def _close(
        self,
        t: int,
        step: DoublesStep,
        doubles: tuple[Double, ...],
        budgets: tuple[int, ...],
        debts: tuple[int, ...],
    ) -> tuple[int, ...] | None:
        """Return the budgets after a round, or None if it leads nowhere."""
        q, n_doubles = self.q, self.n_doubles
        if sum(not d.met for d in step.doubles) > max(0, self.n_chunks - 1 - t):
            return None
        losers = self.n_losers - sum(d.lost for d in step.doubles)
        if losers > self.n_chunks + q - 2 - t:
            return None
        then = [self.surplus] + [0] * (q - 1)
        for c in range(min(t, q - 1)):
            if t - 1 - c >= self.n_chunks - 1:
                continue
            left = budgets[c] - (step.wasted[c] << (q - 2 - c))
            then[c + 1] = left
            if c == q - 2:
                if left != step.moves.count(SWAP):
                    return None
            elif left > n_doubles * ((1 << (q - 2 - c)) - 1):
                return None
            held = sum(c in d[:2] for d in doubles) + debts.count(c)
            given = sum(move == SEND + c for move in step.moves)
            gone = c == q - 2 and self.n_losers > 0 and LOSE not in step.moves
            if step.asked[c] + gone > self._holders(c, budgets[c]) - held + given:
                return None
        if t == q - 1:
            n_ranks = 2 * ((1 << (q - 1)) - self.surplus) - 1
            held = sum(self._holders(c, then[c]) for c in range(q))
            if held != n_ranks + n_doubles:
                return None
        return tuple(then)

    def _holders(self, c: int, budget: int) -> int:
        """Return how many ranks hold the chunk of class c, of which so much is still to waste."""
        return (1 << c) - ((self.surplus - budget) >> (self.q - 1 - c))

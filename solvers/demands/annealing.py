"""Exact decompositions into few permutations, found by simulated annealing.

The state is a permutation and a duration for each slot, and what they leave of each entry, too
much or too little. Its energy is the number of bits that this takes to write down. So a state is
good where much is *exactly* right, which leads to the few durations that the entries are sums of;
the plain sum of what is left would not, until the very last moves.

Between what melts and what is frozen there is a narrow range of temperatures, about the same for
all demands, since all entries take some ten bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.kernel import bare_kernel

BURST = 50_000
"""Moves at one temperature: some 2 ms."""

_HOT, _COLD = 2.4, 2.05  # bits
_BURSTS = 400  # from hot to cold
_TABLE = 1 << 16


class Annealing:
    """A walk among states of so many slots that goes on, burst by burst.

    Parameters
    ----------
    demand
        In ticks; all lines have the same sum, at least ``slots * shortest``.
    slots, shortest
        How many, and how many ticks each lasts at least.
    rng
        The same seed gives the same walk.

    Examples
    --------
    >>> demand = np.array([[5, 2, 0], [0, 5, 2], [2, 0, 5]])
    >>> walk = Annealing(demand, 2, 1, np.random.default_rng(0))
    >>> plan = next(filter(None, (walk.go_on() for _ in range(400))))
    >>> sorted(plan.ticks.tolist())
    [2, 5]
    """

    def __init__(
        self, demand: NDArray[np.int64], slots: int, shortest: int, rng: np.random.Generator
    ) -> None:
        n = len(demand)
        self.slots, self._shortest, self._rng, self._bursts = slots, shortest, rng, 0
        self._demand = demand
        self._matchings = rng.permuted(np.tile(np.arange(n), (slots, 1)), axis=1)
        self._ticks = np.full(slots, max(shortest, int(demand[0].sum()) // slots))
        self._left = demand.copy()
        np.subtract.at(
            self._left, (np.tile(np.arange(n), slots), self._matchings.ravel()), self._ticks[0]
        )
        self._bits = np.log2(1.0 + np.arange(_TABLE))

    @property
    def is_cold(self) -> bool:
        """Whether it has cooled down; from then on it is hot again."""
        return self._bursts > 0 and self._bursts % _BURSTS == 0

    def go_on(self) -> Plan | None:
        """Walk on for a burst; return a plan that serves just the demand if it came to one."""
        cooled = self._bursts % _BURSTS / _BURSTS
        self._bursts += 1
        draws = self._rng.integers(1 << 62, size=BURST)
        state = self._demand, self._left, self._matchings, self._ticks, self._bits
        temperature = _HOT * (_COLD / _HOT) ** cooled
        if not _walk(*state, draws, temperature, self._shortest):
            return None
        return Plan(self._matchings.astype(np.int32), self._ticks.copy())


class Walks:
    """One walk after the other, with about the fewest slots that are allowed.

    Parameters
    ----------
    demand, shortest, rng
        As for `Annealing`.
    delay
        Ticks before each slot, at least one.
    """

    def __init__(
        self, demand: NDArray[np.int64], delay: int, shortest: int, rng: np.random.Generator
    ) -> None:
        self._demand, self._delay, self._shortest, self._rng = demand, delay, shortest, rng
        self._walk: Annealing | None = None
        self._begun = 0

    def go_on(self, slots: int, bound: int, sought: int, best: int, bursts: int) -> Plan | None:
        """Walk on for so many bursts, or until a plan is found.

        Parameters
        ----------
        slots
            Plans of so many are being searched otherwise, and there is none with less.
        bound, sought, best
            Costs: no plan is below the bound, those below `sought` are being searched otherwise,
            and only what is below `best` is of use. Numbers of slots are taken in turn: from
            one more than are being searched to those whose plans are just beyond the search.
        bursts
            How many.
        """
        busiest = int(self._demand[0].sum())
        most = min((best - 1 - busiest) // self._delay, busiest // self._shortest)
        fewest = max(slots + 1, -((busiest - bound) // self._delay))
        if fewest > most:
            return None
        last = min(most, -((busiest - sought) // self._delay))
        for _ in range(bursts):
            walk = self._walk
            if walk is None or walk.is_cold or not fewest <= walk.slots <= most:
                many = fewest + self._begun % max(1, last - fewest + 1)
                walk = self._walk = Annealing(self._demand, many, self._shortest, self._rng)
                self._begun += 1
            plan = walk.go_on()
            if plan is not None:
                return plan
        return None


@bare_kernel
def _count(bits, x):
    """Count the bits of what is left of an entry."""
    x = abs(x)
    return bits[x] if x < len(bits) else np.log2(1.0 + x)


@bare_kernel
def _change(bits, left, i, j, more):
    """Count the bits that an entry takes more if `more` is left of it."""
    return _count(bits, left[i, j] + more) - _count(bits, left[i, j])


@bare_kernel
def _draw(draw, at, many):
    """Take a number below `many` from twelve bits of a random number."""
    return (draw >> at & 0xFFF) * many >> 12


@bare_kernel
def _walk(demand, left, matchings, ticks, bits, draws, temperature, shortest):
    """Try moves, one for each draw; tell whether nothing is left of any entry then."""
    n, slots = left.shape[0], len(ticks)
    for x in range(len(draws)):
        draw = draws[x]
        most = -temperature * np.log(((draw >> 38) + 1) * 2.0**-24)  # the last 24 of 62 bits
        slot, i = _draw(draw, 0, slots), _draw(draw, 12, n)
        last = ticks[slot]
        a = matchings[slot, i]
        if draw >> 36 & 3 == 0:  # the duration becomes such that nothing is left of one entry
            more = left[i, a]
            if more == 0 or last + more < shortest:
                continue
            change = 0.0
            for row in range(n):
                change += _change(bits, left, row, matchings[slot, row], -more)
            if change <= most:
                ticks[slot] += more
                for row in range(n):
                    left[row, matchings[slot, row]] -= more
        else:  # two circuits exchange their destinations
            j = _draw(draw, 24, n - 1)
            j += j >= i
            b = matchings[slot, j]
            if demand[i, b] == 0 or demand[j, a] == 0:
                continue
            change = _change(bits, left, i, a, last) + _change(bits, left, j, b, last)
            change += _change(bits, left, i, b, -last) + _change(bits, left, j, a, -last)
            if change <= most:
                left[i, a] += last
                left[j, b] += last
                left[i, b] -= last
                left[j, a] -= last
                matchings[slot, i], matchings[slot, j] = b, a
    return not left.any()

"""Exact decompositions into few permutations, found by simulated annealing.

The state is a permutation and a duration for each slot, and what they leave of each entry, too
much or too little. Its energy is the number of bits that this takes to write down. So a state is
good where much is *exactly* right, which leads to the few durations that the entries are sums of;
the plain sum of what is left would not, until the very last moves.

The temperature stays where states are about to freeze: hotter, too little of them is right at a
time, and colder they are stuck. That is at about the same share of the bits that entries take, for
all demands.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.demands.plans import Plan
from optmatch.solvers.kernel import bare_kernel

BURST = 70_000
"""Moves that are made at once: a millisecond."""

_FREEZING = 0.23  # times the bits that an entry takes on average
_TURN = 300  # bursts until another number of slots is tried
_TABLE = 1 << 16
_PER_BURST = 100, 300  # programmes for each burst: half of the time, later a fifth
_EARLY = 8_000  # bursts; then it is later


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
    >>> demand = np.array([[7, 2, 0], [0, 5, 4], [2, 2, 5]])
    >>> walk = Annealing(demand, 3, 1, np.random.default_rng(0))
    >>> plan = next(filter(None, (walk.go_on() for _ in range(400))))
    >>> sorted(plan.ticks.tolist())
    [2, 2, 5]
    """

    def __init__(
        self, demand: NDArray[np.int64], slots: int, shortest: int, rng: np.random.Generator
    ) -> None:
        n = len(demand)
        self.slots, self._shortest, self._rng = slots, shortest, rng
        destinations = np.arange(n, dtype=np.uint64)  # without sign, so numba checks none
        self._matchings = rng.permuted(np.tile(destinations, (slots, 1)), axis=1)
        self._ticks = np.full(slots, max(shortest, int(demand[0].sum()) // slots))
        self._left = demand.copy()
        for matching in self._matchings:
            self._left[np.arange(n), matching] -= self._ticks[0]
        self._bits = np.log2(1.0 + np.arange(_TABLE))
        # what a move may cost, in temperatures: each is as likely
        self._waits = -np.log((np.arange(1 << 12) + 0.5) / (1 << 12))
        self._held = np.empty(demand.shape)
        self._closed = np.where(demand > 0, 0.0, np.inf)  # bits that no move may cost
        self._temperature = _FREEZING * float(np.log2(1.0 + demand[demand > 0]).mean())

    def go_on(self) -> Plan | None:
        """Walk on for a burst; return a plan that serves just the demand if it came to one."""
        draws = self._rng.integers(-(1 << 63), (1 << 63) - 1, size=BURST, endpoint=True)
        state = self._left, self._matchings, self._ticks
        tables = self._bits, self._waits, self._held, self._closed
        if not _walk(*state, *tables, draws, self._temperature, self._shortest):
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
        self._begun, self._bursts = 0, 0  # walks; bursts of the present one
        self._bounded, self._since, self._seen, self._due = -1, 0, 0, 0  # see `allot`

    def allot(self, bound: int, programmes: int) -> int:
        """Return how many bursts more should be made beside so many linear programmes.

        When a bound comes to what a plan without waste would cost, to meet that plan is all that
        is left to do; so from there on there are more of them for a while.
        """
        bounded = (bound - int(self._demand[0].sum())) // self._delay
        if bounded != self._bounded:
            self._bounded, self._since, self._due = bounded, self._seen, 0
        self._seen = programmes
        early, late = ((programmes - self._since) // some for some in _PER_BURST)
        before, self._due = self._due, min(early, _EARLY + late)
        return self._due - before

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
            is_over = self._bursts == _TURN
            if walk is None or is_over or not fewest <= walk.slots <= most:
                many = fewest + self._begun % max(1, last - fewest + 1)
                walk = self._walk = Annealing(self._demand, many, self._shortest, self._rng)
                self._begun, self._bursts = self._begun + 1, 0
            self._bursts += 1
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
def _draw(draw, at, many):
    """Take a number below `many` from twelve bits of a random number."""
    return np.uint64((draw >> at & 0xFFF) * many >> 12)


@bare_kernel
def _walk(left, matchings, ticks, bits, waits, held, closed, draws, temperature, shortest):
    """Try moves, one for each draw; tell whether nothing is left of any entry then."""
    n, slots = left.shape[0], len(ticks)
    for i in range(n):
        for j in range(n):
            held[i, j] = _count(bits, left[i, j])  # kept, to count half as often
    for x in range(len(draws)):
        draw = draws[x]
        most = temperature * waits[_draw(draw, 36, len(waits))]
        slot, i = _draw(draw, 0, slots), _draw(draw, 12, n)
        last = ticks[slot]
        a = matchings[slot, i]
        if x & 3 == 0:  # the duration becomes such that nothing is left of one entry
            more = left[i, a]
            if more == 0 or last + more < shortest:
                continue
            change = 0.0
            for row in range(n):
                b = matchings[slot, row]
                change += _count(bits, left[row, b] - more) - held[row, b]
            if change <= most:
                ticks[slot] += more
                for row in range(n):
                    b = matchings[slot, row]
                    left[row, b] -= more
                    held[row, b] = _count(bits, left[row, b])
        else:  # two circuits exchange their destinations
            j = _draw(draw, 24, n - 1)
            j += np.uint64(j >= i)
            b = matchings[slot, j]
            ia, jb = _count(bits, left[i, a] + last), _count(bits, left[j, b] + last)
            ib, ja = _count(bits, left[i, b] - last), _count(bits, left[j, a] - last)
            change = ia + jb + ib + ja - held[i, a] - held[j, b] - held[i, b] - held[j, a]
            change += closed[i, b] + closed[j, a]  # a condition would be guessed wrong too often
            if change <= most:
                left[i, a] += last
                left[j, b] += last
                left[i, b] -= last
                left[j, a] -= last
                held[i, a], held[j, b], held[i, b], held[j, a] = ia, jb, ib, ja
                matchings[slot, i], matchings[slot, j] = b, a
    return not left.any()

"""Uneven all-to-alls whose blocks split: circuits by weighted matchings, routes by programming.

A *sequence* says which circuits are there in each round. For a sequence the routes are a linear
programme: how much of each block takes which path, a path being circuits of later and later
rounds; each round lasts as long as its busiest circuit. Its prices say what a circuit of any two
ranks would be worth in any round: the best matching by these values replaces a round, as long as
that helps. Between many ranks circuits exchange their ends instead, a whole configuration at a
time. The first sequences are greedy matchings of what is left to carry; of a few ranks all are
tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, uncounted
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY
from optmatch.solvers.collectives.plans import Laid, assemble
from optmatch.solvers.collectives.ways import (
    DRAWS,
    Paths,
    Sequence,
    draw_paths,
    exchange,
    list_paths,
)

FEW = 4
"""Up to so many ranks all matchings are tried in each round."""
BEAM = 12
"""Sequences of as many rounds that are made longer."""
TRIED = 6
"""Lengths of greedy sequences."""
DETOURS, SLACK = 1.25, 1.4
"""How much farther blocks go than counting says, and what greedy matchings count as carried."""
EFFORT = 400_000
"""Paths of all programmes together: some 40 s."""
SIMPLEX = 5_000
"""Up to so many paths the simplex method is faster."""

DRAWN = 24
"""From so many ranks on paths are drawn by prices, as a list of them all has too many."""
SWEEPS = 3
"""Times that all configurations are changed by the prices of the best sequence."""


class _Routed(NamedTuple):
    """A sequence with its routes."""

    time_s: float
    sequence: Sequence
    amounts: NDArray[np.float64]
    """``amounts[path]``: seconds of a circuit."""
    paths: Paths
    loads: NDArray[np.float64]
    worth: NDArray[np.float64]
    """``worth[source, target]``: what a second less of this block would save."""
    price: NDArray[np.float64]
    """``price[round, lane, rank]``: what a second of this circuit costs others."""


class SplitSearch:
    """The search for a fast plan of one problem."""

    def __init__(self, problem: Collective, clock: Clock) -> None:
        self.problem, self.clock = problem, clock
        n = problem.n_ranks
        self.demand_s = problem.demand / problem.rate_bytes_per_s
        self.each_s = problem.alpha_s + (problem.hop_s or 0.0)
        ends_s = self.demand_s.sum(axis=0), self.demand_s.sum(axis=1)
        self.least_s = float(max(each.max() for each in ends_s)) / problem.lanes
        self.best: _Routed | None = None
        self.effort = EFFORT
        late = problem.late
        self.prompt = late < late.max() if late.any() else np.ones(n, dtype=np.bool_)
        self.known: set[bytes] = set()
        self.routed: list[tuple[float, Sequence]] = []
        self.path_s = 0.0  # what a path costs, as measured

    def run(self) -> Laid | None:
        """Return the fastest plan that is found; None if there is none."""
        for sequence in self._few() if self.problem.n_ranks <= FEW else self._greedy():
            if not self._open():
                break
            self._try(sequence)
        better = True
        while better and self.best is not None and self._open():
            better = any(self._open() and self._try(each) for each in self._changed(self.best))
        return None if self.best is None else self._lay(self.best)

    def _open(self) -> bool:
        return self.effort > 0 and self.clock.exceeded(0) is None

    def fixed_s(self, sequence: Sequence) -> float:
        """Return the seconds of rounds and delays."""
        changes = int((np.diff(sequence, axis=0) != 0).any(axis=(1, 2)).sum())
        start = self.problem.start
        there = start == "free" if isinstance(start, str) else self._is_there(sequence)
        return self.each_s * len(sequence) + self.problem.delay_s * (changes + (not there))

    def _is_there(self, sequence: Sequence) -> bool:
        first = np.where(sequence[0] == np.arange(sequence.shape[2]), -1, sequence[0])
        return bool((first == self.problem.start).all())

    def _try(self, sequence: Sequence) -> bool:
        """Route a sequence; tell whether it is the best so far."""
        limit_s = np.inf if self.best is None else self.best.time_s * (1 - 1e-9)
        key = sequence.tobytes()
        if key in self.known or self.fixed_s(sequence) + self.least_s >= limit_s:
            return False
        self.known.add(key)
        found = self._route(sequence)
        if found is not None and self.problem.n_ranks <= FEW:
            self.routed.append((found.time_s, sequence))
        if found is None or found.time_s >= limit_s:
            return False
        self.best = found
        return True

    def _greedy(self) -> Iterator[Sequence]:
        """Make sequences of several lengths, those first that counting says are the fastest."""
        with uncounted():
            from scipy.optimize import linear_sum_assignment

        n, lanes = self.problem.n_ranks, self.problem.lanes
        work = np.sort(self.demand_s, axis=1)[:, :0:-1].mean(axis=0) / lanes
        estimates = []
        for k, held in product(sorted({*range(1, 17), 20, 26, 34, 44, n - 1, n}), (1, 2, 3)):
            ways = np.ones(1)  # by hops: how many ranks one could reach over k configurations
            for _ in range(k):
                ways = np.convolve(ways, [1, *[lanes**hop for hop in range(1, held + 1)]])[:n]
            hops = np.repeat(np.arange(len(ways)), np.minimum(ways, n).astype(int))[1:n]
            if len(hops) == n - 1 or k == n:
                load_s = max(self.least_s, DETOURS * float(work[: len(hops)] @ hops))
                waits_s = (k - 1) * self.problem.delay_s + k * held * self.each_s
                estimates.append((waits_s + load_s, k, held))
        for k, held, seconds in sorted((k, held, s) for s, k, held in sorted(estimates)[:TRIED]):
            if self.best is not None and seconds >= self.best.time_s:
                continue
            for early in sorted({0} if self.prompt.all() else {0, k // 2, k - 1}):
                left = self.demand_s.copy()
                rounds = []
                for turn in range(k * lanes):
                    part_s = SLACK * self.least_s / k
                    busy = [left.sum(axis=axis) for axis in (1, 0)]
                    hot = [(each / (each.max() or 1.0)) ** 4 for each in busy]
                    value = np.minimum(left, part_s) * (1 + hot[0][:, None] + hot[1])
                    if turn < early * lanes:
                        value[~self.prompt], value[:, ~self.prompt] = 0.0, 0.0
                    np.fill_diagonal(value, -1.0)
                    rank, to = linear_sum_assignment(value, maximize=True)
                    if turn < early * lanes:  # who is late does nothing yet
                        to = np.where(self.prompt & self.prompt[to], to, rank)
                    left[rank, to] = np.maximum(left[rank, to] - part_s, 0.0)
                    rounds.append(to)
                yield np.repeat(np.array(rounds).reshape(k, lanes, n), held, axis=0)

    def _few(self) -> Iterator[Sequence]:
        """Make all sequences of up to three rounds, and then longer ones of the best."""
        ways = self._ways()
        for count in (1, 2, 3):
            for chosen in product(ways, repeat=count):
                yield np.array(chosen)
        for count in (3, 4):
            some = sorted(self.routed, key=lambda each: each[0])
            for longer in [each for _, each in some if len(each) == count][:BEAM]:
                for at, way in product(range(count + 1), ways):
                    yield np.insert(longer, at, way, axis=0)

    def _ways(self) -> list[NDArray[np.int64]]:
        """List what few ranks can do in a round: lanes of matchings that cannot have more."""
        n = self.problem.n_ranks
        ranks = np.arange(n)
        maximal = [np.array(p) for p in permutations(range(n)) if (np.array(p) == ranks).sum() < 2]
        lanes = [np.repeat(each[None], self.problem.lanes, axis=0) for each in maximal]
        if not isinstance(self.problem.start, str):
            there = self.problem.start.astype(np.int64)
            lanes.append(np.where(there < 0, ranks, there))
        return lanes

    def _changed(self, best: _Routed) -> Iterator[Sequence]:
        """Change the best sequence: other circuits in a round, one round more, one less."""
        order = np.argsort(best.loads, kind="stable").tolist()
        count, lanes = len(order), self.problem.lanes
        if self.problem.n_ranks >= DRAWN:
            other = best.sequence
            for _ in range(SWEEPS):
                for _ in range(2):
                    other = exchange(other, self.demand_s, best.sequence, best.price)
                yield other
            order = []
        few = self.problem.n_ranks <= FEW
        for at, way in product(order, self._ways() if few else [None]):
            for lane in range(1 if few else lanes):
                other = best.sequence.copy()
                if way is not None:
                    other[at] = way
                else:
                    other[at, lane] = self._price(best, at)
                yield other
        for at in order if count > 1 else []:
            yield np.delete(best.sequence, at, axis=0)
        for at, way in product(range(count + 1 if order else 0), self._ways() if few else [None]):
            if way is None:
                way = np.repeat(self._price(best, at)[None], lanes, axis=0)
            yield np.insert(best.sequence, at, way, axis=0)
        for at in range(count):
            yield np.insert(best.sequence, at, best.sequence[at], axis=0)

    def _price(self, best: _Routed, at: int) -> NDArray[np.int64]:
        """Return the circuits that are worth most before a round, by the prices of all others."""
        with uncounted():
            from scipy.optimize import linear_sum_assignment

        n = self.problem.n_ranks
        before, after = (np.where(np.eye(n) > 0, 0.0, np.inf) for _ in range(2))
        for turn in range(at):  # the cheapest way from each source to each rank so far
            was = before.copy()
            for to, price in zip(best.sequence[turn], best.price[turn], strict=True):
                before[:, to] = np.minimum(before[:, to], was + price)
        for turn in range(len(best.sequence) - 1, at - 1, -1):
            was = after.copy()
            for to, price in zip(best.sequence[turn], best.price[turn], strict=True):
                after = np.minimum(after, price[:, None] + was[to])
        wanted = np.where(self.demand_s > 0, best.worth, -np.inf)
        value = np.array([(wanted - before[:, u, None]).max(axis=0) for u in range(n)])
        value = np.array([(value - after[v]).max(axis=1) for v in range(n)]).T
        value = np.maximum(np.nan_to_num(value, neginf=0.0), 0.0)
        np.fill_diagonal(value, -1e-9)
        chosen: NDArray[np.int64] = linear_sum_assignment(value, maximize=True)[1]
        return chosen

    def _route(self, sequence: Sequence) -> _Routed | None:
        """Find the best routes over a sequence; None if a block has none, or time is up."""
        with uncounted():
            from scipy.optimize import linprog
            from scipy.sparse import csr_array

        rounds, lanes, n = sequence.shape
        if n < DRAWN:
            paths = list_paths(self.demand_s, sequence, n <= FEW)
        else:
            paths = draw_paths(self.demand_s, sequence)
        if paths is None:
            return None
        count, size = len(paths.source), rounds * lanes * n
        left_s = self.clock.remaining_s
        if 1.5 * count * self.path_s > left_s:  # the programme would not stop in time
            return None
        began_s = self.clock.elapsed_s
        self.effort -= count + (10 * DRAWS if n >= DRAWN else 0)
        number, turn, lane, rank = paths.hop.T
        circuit = (turn * lanes + lane) * n + rank
        every = np.arange(size)
        load = count + every // (lanes * n)
        row, column = np.concatenate([circuit, every]), np.concatenate([number, load])
        factor = np.concatenate([np.ones(len(circuit)), -np.ones(size)])
        last = count + rounds
        limits, goal = np.zeros(size), np.append(np.zeros(count), np.ones(rounds))
        if not self.prompt.all():  # what the late ranks wait for begins when they are ready
            first = int(turn[~self.prompt[rank]].min(initial=rounds))
            reach = ~self.prompt[sequence[turn, lane, rank]]
            first = min(first, int(turn[reach].min(initial=rounds)))
            head = np.arange(count, count + first)
            row = np.append(row, np.full(first + 1, size))
            column, factor = np.append(column, [*head, last]), np.append(factor, [1.0] * first)
            factor = np.append(factor, -1.0)
            waits_s = self.fixed_s(sequence[: first + 1]) - self.each_s
            limits = np.append(limits, -waits_s / self.least_s)
            goal = np.append(goal, 1.0)
            goal[head] = 0.0
        wanted = self.demand_s > 0
        of = np.cumsum(wanted.reshape(-1)).reshape(n, n) - 1
        blocks = of[paths.source, paths.target]
        low = np.zeros(len(goal))
        if len(goal) > last:
            low[last] = self.problem.late.max() / self.least_s
        options: dict[str, Any] = {}
        if np.isfinite(left_s):
            options["time_limit"] = max(left_s, 0.01)
        solved = linprog(
            goal,
            A_ub=csr_array((factor, (row, column)), shape=(len(limits), len(goal))),
            b_ub=limits,
            A_eq=csr_array(
                (np.ones(count), (blocks, np.arange(count))), shape=(int(wanted.sum()), len(goal))
            ),
            b_eq=self.demand_s[wanted] / self.least_s,
            bounds=np.column_stack([low, np.full(len(goal), np.inf)]),
            method="highs-ds" if count < SIMPLEX else "highs-ipm",
            options=options,
        )
        self.path_s = (self.clock.elapsed_s - began_s) / count
        if solved.status != 0:
            return None
        amounts = np.where(solved.x[:count] < 1e-9, 0.0, solved.x[:count]) * self.least_s
        carried = np.bincount(blocks, weights=amounts, minlength=int(wanted.sum()))
        amounts = amounts * (self.demand_s[wanted] / carried)[blocks]
        worth = np.zeros((n, n))
        worth[wanted] = solved.eqlin.marginals
        price = np.maximum(-solved.ineqlin.marginals[:size], 0.0).reshape(rounds, lanes, n)
        loads = solved.x[count : count + rounds]
        found = _Routed(0.0, sequence, amounts, paths, loads, worth, price)
        return found._replace(time_s=self._lay(found).plan.time_s)

    def _lay(self, routed: _Routed) -> Laid:
        """Make a plan: each path takes a part of its block, and rounds without sends are gone."""
        problem, paths = self.problem, routed.paths
        n = problem.n_ranks
        amounts = routed.amounts * problem.rate_bytes_per_s
        block = paths.source * n + paths.target
        used = np.flatnonzero(amounts > 0)
        used = used[np.argsort(block[used], kind="stable")]
        ends = np.cumsum(amounts[used])
        first = np.append(True, np.diff(block[used]) != 0)
        start = ends - amounts[used]
        start -= np.repeat(start[first], np.diff([*np.flatnonzero(first), len(used)]))
        begin = np.zeros(len(amounts))
        begin[used] = start
        number, turn, lane, rank = paths.hop[amounts[paths.hop[:, 0]] > 0].T
        order = np.argsort(turn, kind="stable")
        number, turn, lane, rank = (each[order] for each in (number, turn, lane, rank))
        target = routed.sequence[turn, lane, rank]
        turns, again = np.unique(turn, return_inverse=True)
        circuits = np.where(routed.sequence == np.arange(n), -1, routed.sequence)[turns]
        change = np.append(True, (np.diff(circuits, axis=0) != 0).any(axis=(1, 2)))
        sends = np.column_stack(
            [again.reshape(-1), rank, target, block[number], 0 * number + COPY]
        )
        parts = np.column_stack([begin[number], amounts[number]])
        if not np.array_equal(np.unique(block[used]), np.sort(block[used])):
            return assemble(
                problem, sends, n * n, circuits[change], np.cumsum(change) - 1, parts=parts
            )
        return assemble(problem, sends, n * n, circuits[change], np.cumsum(change) - 1)

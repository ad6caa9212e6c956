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
        self.path_s = 0.0  # what a path costs in a programme, as measured

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
        best_first = sorted(self._estimate_lengths())[:TRIED]
        for count, held, seconds in sorted((k, held, seconds) for seconds, k, held in best_first):
            if self.best is not None and seconds >= self.best.time_s:
                continue
            # With late ranks some configurations may come before they are ready.
            n_early = {0} if self.prompt.all() else {0, count // 2, count - 1}
            for early in sorted(n_early):
                yield self._make_greedy(count, held, early)

    def _estimate_lengths(self) -> list[tuple[float, int, int]]:
        """Estimate the seconds of k configurations that are held for some rounds each.

        Returns tuples of seconds, configurations and rounds. The farther a rank is, by the count
        of ranks that can be reached in so many hops, the smaller its block is assumed to be.
        """
        n, lanes = self.problem.n_ranks, self.problem.lanes
        work_s = np.sort(self.demand_s, axis=1)[:, :0:-1].mean(axis=0) / lanes
        counts = sorted({*range(1, 17), 20, 26, 34, 44, n - 1, n})
        estimates = []
        for count, held in product(counts, (1, 2, 3)):
            n_reached = np.ones(1)  # by hops
            for _ in range(count):
                factor = [1, *[lanes**hop for hop in range(1, held + 1)]]
                n_reached = np.convolve(n_reached, factor)[:n]
            n_at_hops = np.minimum(n_reached, n).astype(np.int64)
            hops = np.repeat(np.arange(len(n_at_hops)), n_at_hops)[1:n]
            if len(hops) == n - 1 or count == n:
                load_s = max(self.least_s, DETOURS * float(work_s[: len(hops)] @ hops))
                fixed_s = (count - 1) * self.problem.delay_s + count * held * self.each_s
                estimates.append((fixed_s + load_s, count, held))
        return estimates

    def _make_greedy(self, count: int, held: int, early: int) -> Sequence:
        """Make a sequence of maximum-weight matchings of what is left to carry.

        A block counts for an even part of the whole at most, and for more if its ranks have much
        left. The first `early` configurations are without late ranks.
        """
        with uncounted():
            from scipy.optimize import linear_sum_assignment

        n, lanes = self.problem.n_ranks, self.problem.lanes
        part_s = SLACK * self.least_s / count
        left_s = self.demand_s.copy()
        matchings = []
        for turn in range(count * lanes):
            to_send = left_s.sum(axis=1)
            to_receive = left_s.sum(axis=0)
            urgency = [(busy / (busy.max() or 1.0)) ** 4 for busy in (to_send, to_receive)]
            value = np.minimum(left_s, part_s) * (1 + urgency[0][:, None] + urgency[1])
            is_early = turn < early * lanes
            if is_early:
                value[~self.prompt] = 0.0
                value[:, ~self.prompt] = 0.0
            np.fill_diagonal(value, -1.0)
            rank, peer = linear_sum_assignment(value, maximize=True)
            if is_early:  # who is late does nothing yet
                peer = np.where(self.prompt & self.prompt[peer], peer, rank)
            left_s[rank, peer] = np.maximum(left_s[rank, peer] - part_s, 0.0)
            matchings.append(peer)
        return np.repeat(np.array(matchings).reshape(count, lanes, n), held, axis=0)

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

    def _price(self, best: _Routed, turn: int) -> NDArray[np.int64]:
        """Return the circuits that are worth most before a round, by the prices of all others.

        A circuit from u to v is worth what the best block over it would save: the worth of the
        block, less the cheapest way from its source to u before, and from v to its target after.
        """
        with uncounted():
            from scipy.optimize import linear_sum_assignment

        n = self.problem.n_ranks
        before = np.where(np.eye(n) > 0, 0.0, np.inf)  # before[source, rank]
        for earlier in range(turn):
            unchanged = before.copy()
            for peer, price in zip(best.sequence[earlier], best.price[earlier], strict=True):
                before[:, peer] = np.minimum(before[:, peer], unchanged + price)
        after = np.where(np.eye(n) > 0, 0.0, np.inf)  # after[rank, target]
        for later in range(len(best.sequence) - 1, turn - 1, -1):
            unchanged = after.copy()
            for peer, price in zip(best.sequence[later], best.price[later], strict=True):
                after = np.minimum(after, price[:, None] + unchanged[peer])
        wanted = np.where(self.demand_s > 0, best.worth, -np.inf)
        at_rank = np.array([(wanted - before[:, u, None]).max(axis=0) for u in range(n)])
        value = np.array([(at_rank - after[v]).max(axis=1) for v in range(n)]).T
        value = np.maximum(np.nan_to_num(value, neginf=0.0), 0.0)
        np.fill_diagonal(value, -1e-9)
        chosen: NDArray[np.int64] = linear_sum_assignment(value, maximize=True)[1]
        return chosen

    def _route(self, sequence: Sequence) -> _Routed | None:
        """Find the best routes over a sequence by a linear programme over paths.

        Returns None if a block has no path, or time is up.
        """
        n = self.problem.n_ranks
        if n < DRAWN:
            paths = list_paths(self.demand_s, sequence, n <= FEW)
        else:
            paths = draw_paths(self.demand_s, sequence)
        if paths is None:
            return None
        n_paths = len(paths.source)
        if 1.5 * n_paths * self.path_s > self.clock.remaining_s:  # it would not stop in time
            return None
        began_s = self.clock.elapsed_s
        self.effort -= n_paths + (10 * DRAWS if n >= DRAWN else 0)
        solved = self._solve_programme(sequence, paths)
        self.path_s = (self.clock.elapsed_s - began_s) / n_paths
        if solved.status != 0:
            return None

        # Parts of each block are scaled so that they make up the whole in spite of tolerances.
        rounds, lanes, _ = sequence.shape
        wanted = self.demand_s > 0
        block_of_path = self._number_blocks()[paths.source, paths.target]
        share = np.where(solved.x[:n_paths] < 1e-9, 0.0, solved.x[:n_paths])
        amounts = share * self.least_s
        carried = np.bincount(block_of_path, weights=amounts, minlength=int(wanted.sum()))
        amounts = amounts * (self.demand_s[wanted] / carried)[block_of_path]
        worth = np.zeros((n, n))
        worth[wanted] = solved.eqlin.marginals
        marginals = solved.ineqlin.marginals[: rounds * lanes * n]
        price = np.maximum(-marginals, 0.0).reshape(rounds, lanes, n)
        loads = solved.x[n_paths : n_paths + rounds]
        routed = _Routed(0.0, sequence, amounts, paths, loads, worth, price)
        return routed._replace(time_s=self._lay(routed).plan.time_s)

    def _number_blocks(self) -> NDArray[np.int64]:
        """Return ``number[source, target]`` of the blocks that have bytes."""
        wanted = self.demand_s > 0
        return np.cumsum(wanted.reshape(-1)).reshape(wanted.shape) - 1

    def _solve_programme(self, sequence: Sequence, paths: Paths) -> Any:
        """Solve the linear programme of the routes over a sequence.

        Columns are the amount on each path, then the length of each round, and with late ranks
        also when the first round with one of them begins; in units of the least time. Rows: what
        each circuit carries is at most the length of its round; the paths of each block carry it
        whole. The sum of the lengths is minimised.
        """
        with uncounted():
            from scipy.optimize import linprog
            from scipy.sparse import csr_array

        rounds, lanes, n = sequence.shape
        n_paths, n_circuits = len(paths.source), rounds * lanes * n
        path, turn, lane, rank = paths.hop.T
        circuits = np.arange(n_circuits)
        row = np.concatenate([(turn * lanes + lane) * n + rank, circuits])
        column = np.concatenate([path, n_paths + circuits // (lanes * n)])
        factor = np.concatenate([np.ones(len(path)), -np.ones(n_circuits)])
        limits = np.zeros(n_circuits)
        goal = np.append(np.zeros(n_paths), np.ones(rounds))
        low = np.zeros(len(goal))
        if not self.prompt.all():
            # What the late ranks wait for begins when they are ready, and no earlier than the
            # rounds before it end.
            begin = n_paths + rounds
            first = int(turn[~self.prompt[rank]].min(initial=rounds))
            reaches_late = ~self.prompt[sequence[turn, lane, rank]]
            first = min(first, int(turn[reaches_late].min(initial=rounds)))
            head = np.arange(n_paths, n_paths + first)
            row = np.append(row, np.full(first + 1, n_circuits))
            column = np.append(column, [*head, begin])
            factor = np.append(np.append(factor, [1.0] * first), -1.0)
            fixed_s = self.fixed_s(sequence[: first + 1]) - self.each_s
            limits = np.append(limits, -fixed_s / self.least_s)
            goal = np.append(goal, 1.0)
            goal[head] = 0.0
            low = np.append(low, self.problem.late.max() / self.least_s)
        wanted = self.demand_s > 0
        block_of_path = self._number_blocks()[paths.source, paths.target]
        shape = int(wanted.sum()), len(goal)
        options: dict[str, Any] = {}
        if np.isfinite(self.clock.remaining_s):
            options["time_limit"] = max(self.clock.remaining_s, 0.01)
        return linprog(
            goal,
            A_ub=csr_array((factor, (row, column)), shape=(len(limits), len(goal))),
            b_ub=limits,
            A_eq=csr_array((np.ones(n_paths), (block_of_path, np.arange(n_paths))), shape=shape),
            b_eq=self.demand_s[wanted] / self.least_s,
            bounds=np.column_stack([low, np.full(len(goal), np.inf)]),
            method="highs-ds" if n_paths < SIMPLEX else "highs-ipm",
            options=options,
        )

    def _lay(self, routed: _Routed) -> Laid:
        """Make a plan: each path takes a part of its block, and rounds without sends are gone."""
        problem, paths = self.problem, routed.paths
        n = problem.n_ranks
        amounts = routed.amounts * problem.rate_bytes_per_s
        block = paths.source * n + paths.target

        # The parts of a block lie one after another, in the order of its paths.
        used = np.flatnonzero(amounts > 0)
        used = used[np.argsort(block[used], kind="stable")]
        start = np.cumsum(amounts[used]) - amounts[used]
        is_first = np.append(True, np.diff(block[used]) != 0)
        n_parts = np.diff([*np.flatnonzero(is_first), len(used)])
        start -= np.repeat(start[is_first], n_parts)
        begin = np.zeros(len(amounts))
        begin[used] = start

        # The hops of the paths that carry something are the sends, by round.
        hops = paths.hop[amounts[paths.hop[:, 0]] > 0]
        hops = hops[np.argsort(hops[:, 1], kind="stable")]
        path, turn, lane, rank = hops.T
        target = routed.sequence[turn, lane, rank]
        turns, new_turn = np.unique(turn, return_inverse=True)
        kind = np.full(len(path), COPY)
        sends = np.column_stack([new_turn.reshape(-1), rank, target, block[path], kind])
        circuits = np.where(routed.sequence == np.arange(n), -1, routed.sequence)[turns]
        changes = np.append(True, (np.diff(circuits, axis=0) != 0).any(axis=(1, 2)))
        parts: NDArray[np.float64] | None = None
        if len(np.unique(block[used])) < len(used):  # some block is cut
            parts = np.column_stack([begin[path], amounts[path]])
        epoch_of_round = np.cumsum(changes) - 1
        return assemble(problem, sends, n * n, circuits[changes], epoch_of_round, parts=parts)

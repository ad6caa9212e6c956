"""Circuits, routes and rounds of a few ranks together, exactly: a model for each split of rounds.

A *split* says for how many rounds each configuration is held. Then rounds and delays are fixed,
and what is left are the loads: in each round that of the busiest rank. Splits are bounded first by
counting reach, bytes and hops, and searched by CP-SAT from the least bound on, until none of those
that are left can be faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import permutations, product
from typing import NamedTuple

import numpy as np
from ortools.sat.python import cp_model

from optmatch.model import RTOL, Clock, Limit, NewBest, OnEvent, Tick, ignore
from optmatch.problems import Collective
from optmatch.problems.collectives.bounds import reach
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.conclusion import FoundPlan
from optmatch.solvers.collectives.plans import Laid, assemble
from optmatch.solvers.collectives.rounds import chunk_sizes
from optmatch.solvers.cpsat import Literal, Outcome, minimise
from optmatch.solvers.frame import stoppable

SUMS = ("all-reduce", "reduce-scatter")
TRY_ALL = 6
"""Up to so many ranks all pairs of circuits are tried for the fewest hops."""
DIGITS = 10_000
"""Sizes that have no common measure are rounded down to the largest over this."""


class Split(NamedTuple):
    """For how many rounds each configuration is held, and in how many chunks data are cut."""

    at_least_s: float
    held: tuple[int, ...]
    fixed_s: float
    """Rounds and delays."""
    least: int
    """Loads of all rounds, in units."""
    there: bool
    """Whether the first circuits are those that are up already."""
    weights: tuple[int, ...]
    """Sizes of chunks, in units."""
    unit_s: float


def find(
    problem: Collective,
    clock: Clock,
    on_event: OnEvent,
    best: Laid | None = None,
    work: float = math.inf,
) -> FoundPlan:
    """Find the fastest plan of whole chunks, each send over one circuit.

    The problem has few ranks with one port; only plans faster than `best` are searched for. With a
    limit of `work`, in seconds that CP-SAT counts, ten splits are searched, each for so long.
    """
    tried = 0
    best_s = math.inf if best is None else best.plan.time_s
    open_s, limit = math.inf, None
    splits = list[Split]()
    for k, split in enumerate(_list_splits(problem, best_s)):
        if split is not None:
            splits.append(split)
        if k % 64 == 63 and clock.exceeded(0) is not None:
            return FoundPlan(best, {}, limit=clock.exceeded(0))
    splits.sort()
    reached_s = 0.0
    with stoppable() as stop:
        for k, split in enumerate(splits):
            reached_s = split.at_least_s
            if split.at_least_s >= min(best_s, open_s) * (1 - RTOL):
                break
            limit = clock.exceeded(0)
            if limit is None and tried == 10 and math.isfinite(work):
                limit = Limit.NODES
            if limit is None:
                tried += 1
                on_event(Tick("splits", k, len(splits)))
                model = _Model(problem, split, best_s)
                outcome = minimise(model.model, clock, ignore, seed=0, linear=False, work=work)
                limit = outcome.limit
                if outcome.found:
                    best = model.read(outcome)
                    best_s = best.plan.time_s
                    on_event(NewBest(best_s))
            if limit is not None:
                open_s = min(open_s, split.at_least_s)
    if stop.limit is not None:
        limit = stop.limit
        open_s = min(open_s, reached_s)  # this split and those behind it are open
    bound_s = min(best_s, open_s)
    most = _most_rounds(problem)
    stats = {
        "family": f"whole chunks, {most} rounds at most, sends over one circuit",
        "family_bound_s": bound_s,
    }
    # Blocks of an all-to-all are not cut; so only plans of more rounds, or hops, are left.
    whole = problem.operation == "all-to-all" and problem.hop_s is None
    more_s = (most + 1) * problem.alpha_s + replace(problem, alpha_s=0.0).lower_bound()
    bound_s = min(bound_s, more_s) if whole else 0.0
    if best is not None and bound_s > problem.lower_bound() * (1 + RTOL):
        best = best._replace(plan=replace(best.plan, among="whole-blocks"))
    return FoundPlan(best, stats, bound_s, limit)


def _most_rounds(problem: Collective) -> int:
    n = problem.n_ranks
    return 2 * n - 2 if problem.operation in ("all-reduce", "broadcast") else n


def _list_splits(problem: Collective, most_s: float) -> Iterator[Split | None]:
    """List the splits that counting allows and that may be faster; None for each other one."""
    n, operation = problem.n_ranks, problem.operation
    circuits_there = not isinstance(problem.start, str)
    alike = operation == "all-to-all" and problem.demand_bytes is None and not circuits_there
    each_s, most = problem.alpha_s + (problem.hop_s or 0.0), _most_rounds(problem)
    counts = {"all-to-all": (n * n,), "all-reduce": (1, n), "broadcast": (1, n)}
    for count in counts.get(operation, (n,)):
        weights, unit_s = _weigh(problem, count)
        for held in _compositions(most):
            rounds = sum(held)
            # Without a cost of rounds more rounds are as good; without delays, more circuits.
            if (not each_s and rounds < most) or (not problem.delay_s and max(held) > 1):
                continue
            if alike and held > held[::-1]:
                continue  # the same plans, backwards
            if (len(held) - 1) * problem.delay_s + rounds * each_s >= most_s * (1 - RTOL):
                yield None
                continue
            least = _least_load(problem, weights, held)
            for there in (True, False) if circuits_there and least else (False,) if least else ():
                dark = not there if circuits_there else problem.start == "dark"
                fixed_s = (len(held) - 1 + dark) * problem.delay_s + rounds * each_s
                at_least_s = fixed_s + least * unit_s
                yield Split(at_least_s, held, fixed_s, least, there, weights, unit_s)


def _compositions(most: int) -> Iterator[tuple[int, ...]]:
    """List all ways to write 1 ... most as a sum."""
    for total in range(1, most + 1):
        for cuts in product((False, True), repeat=total - 1):
            ends = [k for k, cut in enumerate(cuts, 1) if cut]
            yield tuple(np.diff([0, *ends, total]).tolist())


def _weigh(problem: Collective, count: int) -> tuple[tuple[int, ...], float]:
    """Return the sizes of chunks as whole numbers, 0 where nothing is wanted, and a unit."""
    sizes = chunk_sizes(problem, count)
    if problem.operation == "all-to-all":
        sizes = np.where(problem.demand.reshape(-1) > 0, sizes, 0.0)
    unit = float(sizes.max())
    if len(np.unique(sizes[sizes > 0])) > 1:
        whole = bool((sizes % 1 == 0).all())
        unit = float(np.gcd.reduce(sizes.astype(np.int64))) if whole else unit / DIGITS
    weights = np.floor(sizes / unit * (1 + 1e-12)).astype(np.int64)
    return tuple(weights.tolist()), unit / problem.rate_bytes_per_s


def _least_load(problem: Collective, weights: tuple[int, ...], held: tuple[int, ...]) -> int:
    """Bound the loads of all rounds together; 0 if data do not get everywhere."""
    n, operation = problem.n_ranks, problem.operation
    demand = np.array(weights).reshape(n, n) if operation == "all-to-all" else 1 - np.eye(n)
    ways = np.ones(1, dtype=np.int64)  # by hops: the number of ranks that data can have reached
    for rounds in held:
        known = [reach(k, 1, problem.two_way) for k in range(rounds + 1)]
        ways = np.convolve(ways, np.diff(known, prepend=0))
    if ways.sum() <= max(int((demand > 0).sum(axis=axis).max()) for axis in (0, 1)):
        return 0
    if operation == "all-to-all":
        hops = np.repeat(np.arange(len(ways)), ways)[1:n]
        farthest = np.sort(demand, axis=1)[:, ::-1][:, : len(hops)]  # the largest go least far
        work = int((farthest @ hops).sum())
        if len(held) == 2 and n <= TRY_ALL and len(set(weights)) == 2:
            work = max(work, fewest_hops(n, held))
        work = -(-work // n)
        return max(work, *(int(demand.sum(axis=axis).max()) for axis in (0, 1)))
    if len(weights) == 1:
        return (n - 1).bit_length() if operation == "all-reduce" else 1
    return {"all-reduce": 2 * (n - 1), "broadcast": n}.get(operation, n - 1)


@cache
def fewest_hops(n: int, held: tuple[int, int]) -> int:
    """Return the fewest hops from all ranks to all others over two configurations; all are tried.

    `held` are the most hops over each.
    """
    ways = np.array(list(permutations(range(n))))
    second = np.full((len(ways), n, n), n * n)  # hops over each of the second circuits
    at = np.tile(np.arange(n), (len(ways), 1))
    for hop in range(held[1] + 1):
        row = second[np.arange(len(ways))[:, None], np.arange(n), at]
        second[np.arange(len(ways))[:, None], np.arange(n), at] = np.minimum(row, hop)
        at = np.take_along_axis(ways, at, axis=1)
    fewest = n**4
    for way in ways[(ways <= np.arange(n) + 1).all(axis=1)]:  # all others are the same up to names
        hops, at = second, np.arange(n)
        for hop in range(1, held[0] + 1):
            at = way[at]
            hops = np.minimum(hops, second[:, at] + hop)
        fewest = min(fewest, int(hops.sum(axis=(1, 2)).min()))
    return fewest


class _Model:
    """Plans of one split that are faster than the best so far."""

    def __init__(self, problem: Collective, split: Split, below_s: float) -> None:
        self.problem, self.split = problem, split
        self.model = model = cp_model.CpModel()
        self.ranks = range(problem.n_ranks)
        self.chunks = [chunk for chunk, weight in enumerate(split.weights) if weight]
        self.epoch = np.repeat(np.arange(len(split.held)), split.held)
        self.circuits = [self._join(first=epoch == 0) for epoch in range(len(split.held))]
        self.sent = self._table(0)
        loads = [model.new_int_var(0, sum(split.weights), "") for _ in self.epoch]
        for t, u in product(range(len(loads)), self.ranks):
            own = sum(split.weights[c] * self.sent[t, u, c] for c in self.chunks)
            model.add(own <= loads[t])
        model.add(sum(loads) >= split.least)
        if math.isfinite(below_s):
            room = (below_s * (1 - RTOL) - split.fixed_s) / split.unit_s
            model.add(sum(loads) <= math.ceil(room) - 1)
        model.minimize(sum(loads))
        if problem.operation in ("all-reduce", "broadcast"):  # pieces are alike: sent in turn
            for (t, u, c), sent in self.sent.items():
                if u == problem.root and c:
                    model.add_bool_or(~sent, *(self.sent[s, u, c - 1] for s in range(t + 1)))
        self.got: dict[tuple[int, int, int], tuple[Literal, Literal, Literal]] = {}
        """By round, rank and chunk: that it has it afterwards, had it before, copies it."""
        if problem.operation in SUMS:
            self._add_sums()
        else:
            self._add_copies()

    def _table(self, more: int) -> dict[tuple[int, int, int], Literal]:
        keys = product(range(len(self.epoch) + more), self.ranks, self.chunks)
        return {key: self.model.new_bool_var("") for key in keys}

    def _join(self, *, first: bool) -> dict[tuple[int, int], Literal]:
        """Return whether each rank sends to each; to itself stands for nobody."""
        model, problem, n = self.model, self.problem, self.problem.n_ranks
        found: dict[tuple[int, int], Literal] = {}
        for u, v in product(self.ranks, repeat=2):
            back = problem.two_way and u > v
            found[u, v] = found[v, u] if back else model.new_bool_var("")
        for u in self.ranks:
            model.add_exactly_one(found[u, v] for v in self.ranks)
            model.add_exactly_one(found[v, u] for v in self.ranks)
        if first and self.split.there:
            for u, v in enumerate(problem.start[0].tolist()):  # type: ignore[union-attr]
                model.add(found[u, v if v >= 0 else u] == 1)
        elif first and problem.demand_bytes is None and problem.operation != "broadcast":
            for u, v in product(range(n), repeat=2):  # ranks are alike, so rings are numbered on
                if v > u + 1:
                    model.add(found[u, v] == 0)
        return found

    def _add_copies(self) -> None:
        """Let data be where they were, or where circuits lead from a rank that sends them."""
        problem, model, n = self.problem, self.model, self.problem.n_ranks
        moves = problem.operation == "all-to-all"
        has, last = self._table(1), len(self.epoch)
        for u, c in product(self.ranks, self.chunks):
            owner = c // n if moves else c if problem.operation == "all-gather" else problem.root
            model.add(has[0, u, c] == (u == owner))
            if not moves or u == c % n:
                model.add(has[last, u, c] == 1)
        for (t, v, c), sent in self.sent.items():
            circuits, before, after = self.circuits[self.epoch[t]], has[t, v, c], has[t + 1, v, c]
            self.got[t, v, c] = after, before, 0
            model.add_implication(sent, before)
            for u in self.ranks:
                there = self.sent[t, u, c] if u != v else 0
                model.add_bool_or(~after, before, ~circuits[u, v], there)
                if moves and u != v:  # a block is at one place
                    model.add_bool_or(~has[t, u, c], ~after, circuits[u, v])
            if moves and v == 0:
                model.add_exactly_one(has[t + 1, u, c] for u in self.ranks)

    def _add_sums(self) -> None:
        """Let chunks be sums of the data of ranks, in which no rank counts twice."""
        model, last = self.model, len(self.epoch)
        everywhere = self.problem.operation == "all-reduce"
        whose = {key: self._table(1) for key in self.ranks}  # by rank: blocks with its data
        for v, c, i in product(self.ranks, self.chunks, self.ranks):
            model.add(whose[i][0, v, c] == (i == v))
            if everywhere or c == v:
                model.add(whose[i][last, v, c] == 1)
        for t, v, c in self.sent:
            circuits = self.circuits[self.epoch[t]]
            gets = model.new_bool_var("")
            copied = model.new_bool_var("") if everywhere else 0  # replaces the block there
            if everywhere:
                model.add_implication(copied, gets)
            self.got[t, v, c] = gets, 0, copied
            for u in self.ranks:
                there = self.sent[t, u, c] if u != v else 0
                model.add_bool_or(~gets, ~circuits[u, v], there)
            for i in self.ranks:
                had, new, comes = whose[i][t, v, c], whose[i][t + 1, v, c], model.new_bool_var("")
                model.add_implication(comes, gets)
                model.add_implication(comes, new)
                model.add_bool_or(~new, had, comes)
                model.add_bool_or(~had, copied, new)
                model.add_bool_or(~had, copied, ~comes)
                if everywhere:
                    model.add_bool_or(~new, ~copied, comes)
                for u in self.ranks:
                    there = whose[i][t, u, c]
                    model.add_bool_or(~circuits[u, v], ~comes, there)
                    model.add_bool_or(~circuits[u, v], ~gets, ~there, comes)

    def read(self, outcome: Outcome) -> Laid:
        """Return the plan of the solution."""
        problem, n = self.problem, self.problem.n_ranks
        circuits = np.full((len(self.circuits), 1, n), -1)
        for epoch, joined in enumerate(self.circuits):
            for (u, v), circuit in joined.items():
                if u != v and outcome.holds(circuit):
                    circuits[epoch, 0, u] = v
        rows = []
        for t, u, c in self.sent:
            v = int(circuits[self.epoch[t], 0, u])
            after, before, copied = (
                outcome.holds(each) for each in self.got.get((t, v, c), (0,) * 3)
            )
            if after and not before:
                kind = REDUCE if problem.operation in SUMS and not copied else COPY
                rows.append((t, u, v, c, kind))
        sends = np.array(rows)
        # Rounds that cost nothing may have no sends; the plan leaves them and their circuits out.
        turns, sends[:, 0] = np.unique(sends[:, 0], return_inverse=True)
        used, of_round = np.unique(self.epoch[turns], return_inverse=True)
        return assemble(problem, sends, len(self.split.weights), circuits[used], of_round)

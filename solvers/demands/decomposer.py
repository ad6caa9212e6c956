"""The fewest matchings: decompositions drawn at random, parts of them redrawn.

A step of a greedy decomposition takes a permutation whose least entry is large and which makes
many entries zero; the weights of both are drawn anew for each run. The sum of a few terms of a
decomposition is a smaller problem of the same kind: if it splits into fewer, so does the whole.
On a mesh not every permutation can be realised, so a term is a matching of some of the ports. Each
term makes at least one demand zero, and every demand alone can be routed, so there is an end.

A *term* is a matching with its weight in ticks; in a `Plan` it is a slot and its duration. To
*hold* a matching is to have routes for all its circuits at once. A term is *realisable* if the
fabric holds it; a *realiser* routes as many pairs of a list as fit side by side.

As an example, ``[[3, 2], [2, 3]]`` is 3 times the identity and 2 times the exchange: two terms,
the fewest that there are, since each line has two entries.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.fabrics import Fabric
from optmatch.model import IDLE, Limit, Limits, OnEvent, Solution, counted_time, uncounted
from optmatch.problems import Demand
from optmatch.solvers.demands import vertex_walk
from optmatch.solvers.demands.birkhoff import decompose
from optmatch.solvers.demands.line_pairs import count_terms
from optmatch.solvers.demands.plans import Plan, join, serve
from optmatch.solvers.demands.realisable import Realiser
from optmatch.solvers.demands.scheduling import former_plan, route_slots
from optmatch.solvers.demands.vertex_walk import VertexWalk
from optmatch.solvers.feedforward import holds_every_matching
from optmatch.solvers.frame import conclude, take_best

_CHOICES = 6  # least entries that are compared for a term
_ZERO_WORTH = 4.0  # the value of an entry that a term makes zero, before random numbers
_CLOSED = -1e6  # the value of an entry that a term may not use: below any sum of other values


class Decomposer:
    """Random decompositions of one matrix with equal line sums into permutations.

    Parameters
    ----------
    demand
        ``demand[source, destination]`` in ticks, shape (n, n), of which all lines have one sum.
    rng
        The random numbers.
    fabric
        The fabric whose cell states `states` finds; it holds every permutation. None if no states
        are asked for.

    Attributes
    ----------
    ports
        The numbers from 0 to n - 1.
    former
        The decomposition that `take_up` has made of a former one; None without one.
    """

    def __init__(
        self, demand: NDArray[np.int64], rng: np.random.Generator, fabric: Fabric | None = None
    ) -> None:
        """Prepare random decompositions of a matrix into permutations with weights."""
        self.demand = demand
        self.fabric = fabric
        self.rng = rng
        self.ports = np.arange(len(demand))
        self.former: Plan | None = None

    def take_up(self, former: Plan | None) -> Plan | None:
        """Adapt a former decomposition to this demand: keep the terms that fit, and add new ones.

        The result, which also is kept in ``self.former``, has the former terms first; None without
        a former plan.
        """
        if former is None:
            return None

        # A former term counts as often as its least entry still allows, but no more often than
        # before; on a mesh it may lose circuits that have no routes.
        unserved = self.demand.copy()
        matchings: list[NDArray[np.int32]] = []
        weights: list[int] = []
        for wished, ticks in zip(former.matchings, former.ticks.tolist(), strict=True):
            matching = self._held_part(wished)
            sources = np.flatnonzero(matching != IDLE)

            # A term counts as often as each of its entries still has ticks, and as it did.
            weight = int(unserved[sources, matching[sources]].min(initial=ticks))
            if weight > 0 and len(sources):
                unserved[sources, matching[sources]] -= weight
                matchings.append(matching)
                weights.append(weight)
        former_terms = Plan.of(matchings, weights, len(unserved))
        self.former = join(former_terms, self._decompose(unserved))
        return self.former

    def _held_part(self, matching: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return what the fabric holds of ``matching[source]``, shape (n,): here all, or nothing.

        A term joins all ports: without a matching that leaves some idle, sums of lines stay equal.
        """
        return matching if (matching != IDLE).all() else np.full_like(matching, IDLE)

    def states(self, plan: Plan) -> NDArray[np.int8] | None:
        """Return ``states[slot, cell]`` of a decomposition made here; None without a fabric."""
        if self.fabric is None:
            return None
        return route_slots(self.fabric, plan)

    def draw(self) -> Plan:
        """Write the whole demand as a sum of terms, permutations with weights, at random."""
        return self._decompose(self.demand)

    def redraw(self, plan: Plan) -> Plan:
        """Try to write a demand with fewer terms: replace a few of them by others of the same sum.

        Some terms are chosen at random, and their sum is decomposed anew, at random too. This is a
        move of large neighbourhood search.
        """
        # From 2 to 12 terms go. The power of ticks is drawn as well: with 0 all terms are equally
        # likely to go, with 1 the light ones go more often.
        n_terms = len(plan.ticks)
        n_removed = int(self.rng.integers(2, max(3, min(n_terms, 12)) + 1))
        chance = self.rng.random(n_terms)
        power = self.rng.choice([0.0, 0.5, 1.0])
        order = np.argsort(chance * plan.ticks.astype(np.float64) ** power, kind="stable")
        removed = plan.take(order[:n_removed])
        staying = plan.take(order[n_removed:])
        new = self._decompose(serve(removed), most=len(removed.ticks))
        return plan if len(new.ticks) > len(removed.ticks) else join(staying, new)

    def _decompose(self, demand: NDArray[np.int64], most: int | None = None) -> Plan:
        """Write a matrix as a sum of terms, chosen one after the other with some randomness.

        ``demand[source, destination]`` in ticks stays as it is. The weight of a term is the least
        of the entries that its matching uses. It is subtracted from all of these; the next term is
        chosen for the matrix that is left, until that is zero. With `most` it ends unfinished as
        soon as there is one term more than that.
        """
        unserved = demand.copy()
        matchings: list[NDArray[np.int32]] = []
        weights: list[int] = []

        # How terms are chosen is drawn once for the whole, so that decompositions differ:
        # `_choose_term` says what both numbers do.
        zeros = float(self.rng.choice([0.02, 0.1, 0.3, 1.0]))
        noise = float(self.rng.choice([0.1, 1.0, 3.0]))
        while unserved.any() and (most is None or len(weights) <= most):
            matching = self._choose_term(unserved, zeros, noise)
            sources = np.flatnonzero(matching != IDLE)
            weight = int(unserved[sources, matching[sources]].min())
            unserved[sources, matching[sources]] -= weight
            matchings.append(matching)
            weights.append(weight)
        return Plan.of(matchings, weights, len(demand))

    def _choose_term(
        self, unserved: NDArray[np.int64], zeros: float, noise: float
    ) -> NDArray[np.int32]:
        """Choose the next permutation to take off a matrix, by its weight and by what it uses up.

        ``unserved[source, destination]`` is what is left of the matrix, and the result is
        ``matching[source]``. Few terms come of great weights, and of permutations in which many
        entries equal the weight, as these become zero. The greatest weight of all permutations
        (the bottleneck) and some lesser sizes of entries are tried as weights, and the permutation
        of the greatest score wins:

            score = zeros * (entries that become zero) + weight / bottleneck

        `zeros` is a weight, and `noise` the size of the random numbers that are added to the
        values of entries.
        """
        with uncounted():
            from scipy.optimize import linear_sum_assignment

        # The bottleneck is the weight of the first term of a decomposition by this rule.
        bottleneck = int(decompose(unserved, "bottleneck", max_terms=1).weights[0])
        sizes = np.unique(unserved[unserved > 0])
        low = int(np.searchsorted(sizes, bottleneck))

        # The sizes of entries up to the bottleneck, the greatest `_CHOICES` of them, are tried as
        # weights. For each an assignment finds a permutation of entries of this size or more. It
        # prefers entries of just this size, which become zero and are worth `_ZERO_WORTH`; others
        # are worth from 0 down to -1, the larger the less. Random numbers of up to `noise` may
        # outweigh the one for the other.
        best_score = -1.0
        best: NDArray[np.int32] | None = None
        jitter = self.rng.random(unserved.shape) * noise
        for size in sizes[max(0, low + 1 - _CHOICES) : low + 1][::-1]:
            worth = np.where(unserved == size, _ZERO_WORTH + jitter, jitter - unserved / sizes[-1])
            open_worth = np.where(unserved >= size, worth, _CLOSED)

            # The permutation of entries of this size or more that makes most entries zero.
            columns = linear_sum_assignment(open_worth, maximize=True)[1]
            n_zeros = int((unserved[self.ports, columns] == size).sum())
            score = n_zeros * zeros + float(size) / bottleneck
            if score > best_score:
                best_score = score
                best = columns.astype(np.int32)
        assert best is not None  # the permutation of the bottleneck has a score
        return best


_LEVELS = (0.0, 0.0, 0.25, 0.5)  # the quantiles of remaining entries that a term's weight aims at


class RealisedDecomposer(Decomposer):
    """Random decompositions into matchings for which there are routes."""

    def __init__(self, problem: Demand, rng: np.random.Generator) -> None:
        """Prepare decompositions into matchings for which the fabric of a problem has routes."""
        super().__init__(problem.ticks, rng, problem.fabric)
        self.realiser = Realiser(problem)

    def states(self, plan: Plan) -> NDArray[np.int8] | None:
        """Return the states of all cells in all slots of a decomposition made here, if any."""
        return self.realiser.states(plan)

    def _held_part(self, matching: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return what the fabric holds of a matching."""
        pairs = [(i, int(j)) for i, j in enumerate(matching) if j != IDLE]
        return self.realiser.place(pairs)

    def draw(self) -> Plan:
        """Decompose the whole; a uniform demand by the matchings of an all-to-all."""
        everyone = self.realiser.all_pairs
        if everyone is not None and np.array_equal(serve(everyone), self.demand):
            return everyone
        return super().draw()

    def _choose_term(
        self, unserved: NDArray[np.int64], zeros: float, noise: float
    ) -> NDArray[np.int32]:
        """Choose the next matching to take off the matrix: entries of a certain size or more.

        The size is a quantile of the entries that are left, drawn from `_LEVELS`. Entries of just
        that size count `zeros` more, since the term makes them zero. Ports with many entries left
        come first, because each of these needs a term of its own. Random numbers up to a tenth of
        `noise` are added.
        """
        size = np.quantile(unserved[unserved > 0], self.rng.choice(_LEVELS), method="lower")

        # For each pair, the entries of its row and of its column together.
        entries = (unserved > 0).sum(axis=1)[:, None] + (unserved > 0).sum(axis=0)
        worth = entries / entries.max() + zeros * (unserved == size)
        worth = worth + 0.1 * noise * self.rng.random(unserved.shape)

        # The pairs of great enough entries, the worthiest first, as the router takes them in
        # turn.
        rows, columns = np.nonzero(unserved >= size)
        order = np.argsort(-worth[rows, columns], kind="stable")
        pairs = list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))
        return self.realiser.place(pairs)


_RUNS = 12  # whole decompositions before parts are redrawn
_SHARE_OF_COUNT = 0.5  # of the time: the count of terms ends then, decompositions follow


def draw_decompositions(search: Decomposer) -> Iterator[Plan]:
    """Yield decompositions of a demand without end, in a search for one of few terms.

    The first `_RUNS` are drawn at random as a whole. Each later one changes the best so far: some
    of its terms are taken out, and their sum is decomposed anew. Where ports are few, and any
    permutation may be a term, three of four of these come instead from a random walk over the
    decompositions that there are.
    """
    best = search.former
    walk: VertexWalk | None = None
    if not isinstance(search, RealisedDecomposer) and vertex_walk.suits(search.demand):
        walk = VertexWalk(search.demand, search.rng)
    for turn in itertools.count():
        if best is None or turn < _RUNS:
            plan = search.draw()
        elif walk is not None and turn % 4:
            plan = walk.walk(len(best.ticks)) or best
        else:
            plan = search.redraw(best)
        # The search goes on from an equally good plan, too, which leads out of plateaus.
        if best is None or len(plan.ticks) <= len(best.ticks):
            best = plan
        yield plan


class _Drawn(NamedTuple):
    """A decomposition, and the search that has drawn it."""

    plan: Plan
    search: Decomposer
    """Finds the states of cells in its slots."""


def _draw_with_former(
    problem: Demand,
    rng: np.random.Generator,
    draw: Callable[[Decomposer], Iterator[Plan]],
    most: int | None,
    start: Solution | None,
) -> Iterator[tuple[float, _Drawn] | None]:
    """Yield the number of terms with each decomposition; None if one has too short a slot.

    That of `start` comes first, as far as it still fits; then `draw` makes up to `most` of them.
    """
    if holds_every_matching(problem.fabric):
        search = Decomposer(problem.ticks, rng, problem.fabric)
    else:
        search = RealisedDecomposer(problem, rng)
    former = search.take_up(former_plan(problem, start))
    if former is not None:
        yield float(len(former.ticks)), _Drawn(former, search)
    for plan in itertools.islice(draw(search), most):
        # Searches take no care of the shortest slot.
        if (plan.ticks >= problem.min_slot_ticks).all():
            yield float(len(plan.ticks)), _Drawn(plan, search)
        else:
            yield None


def take_fewest(
    problem: Demand,
    limits: Limits,
    rng: np.random.Generator,
    on_event: OnEvent,
    *,
    name: str,
    most: int | None,
    draw: Callable[[Decomposer], Iterator[Plan]] = draw_decompositions,
    start: Solution | None = None,
) -> Solution:
    """Find a decomposition of a demand into few terms: try many, and keep the best.

    A row or column of k entries needs k terms at least, which gives a lower bound. The search ends
    when the best decomposition meets the bound, after `most` of them, or at a limit. `draw` makes
    the decompositions of the method called `name`; `start` is a solution to begin with.
    """
    clock = limits.start()
    count_until = counted_time() + _SHARE_OF_COUNT * clock.remaining_s
    proof, counted = count_terms(problem.ticks, count_until)
    bound = max(float(counted), problem.lower_bound())

    # The search is made by the generator, so that an interrupt while it is made is caught.
    drawn = _draw_with_former(problem, rng, draw, most, start)
    best, limit, done = take_best(drawn, bound, clock, on_event, "decompositions")
    stats: dict[str, object] = {"decompositions": done}
    if not problem.exact:
        # All that is proved, is so of the ticks: floats that are no multiples may need more terms.
        stats["rounded_to_s"] = problem.tick_s
    if best is None:
        return conclude(problem, name, None, bound, limit, certificate=proof, stats=stats)
    states = best.search.states(best.plan)
    return conclude_count(
        problem, best.plan, states, name=name, bound=bound, limit=limit, proof=proof, stats=stats
    )


def conclude_count(
    problem: Demand,
    best: Plan,
    states: NDArray[np.int8] | None,
    *,
    name: str,
    bound: float,
    limit: Limit | None,
    proof: object,
    stats: dict[str, object],
) -> Solution:
    """Make the solution of a search for few terms: each term is a slot, held for its weight.

    `best` are the terms, with ``states[slot, cell]``, None without cells. `bound` is a lower bound
    on their number, which `proof` certifies if it is not None.
    """
    n_terms = len(best.ticks)
    return conclude(
        problem,
        name,
        float(n_terms),
        bound,
        limit,
        schedule=problem.schedule(best.matchings, best.ticks, states),
        certificate=proof,
        stats=stats | {"slots": n_terms},
    )

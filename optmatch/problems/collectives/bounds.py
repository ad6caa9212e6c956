"""Lower bounds of collectives: bytes, reach, distances, late ranks, and steps over planes.

With K configurations in a row, of which the first is held for r_1 rounds and so on, a rank reaches
at most the product of what it reaches within each: 1 + r_c over one circuit, as rounds forward.
So this product (*reach*) bounds the rounds. At most so many ranks are at each number of hops
(*distance*), and every hop takes bytes of a circuit. Neither depends on how data are split. What a
rank hands on takes as much of what it receives as of what it sends; so of two ranks, of which one
mainly sends and the other mainly receives, neither can use all its circuits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_MORE = 32
"""Rounds beyond the fewest for which detours are counted."""


class BoundTerms(NamedTuple):
    """A lower bound and the kind of count behind it."""

    seconds: float
    name: str
    """The kind of count: bytes, reach, distance, late, steps or cut."""
    configurations: int = 0
    """The number of configurations with which the bound is reached, if any."""


def reach(rounds: int, lanes: int, two_way: bool) -> int:
    """Count the ranks that one knows after so many rounds with the same circuits, itself too."""
    onward = lanes - 1 if two_way else lanes
    return 1 + lanes * (rounds if onward == 1 else int(onward**rounds - 1) // (onward - 1))


@lru_cache(maxsize=4096)
def fewest_rounds(n_ranks: int, configurations: int, lanes: int = 1, two_way: bool = False) -> int:
    """Bound the rounds in which each of n ranks can know of each, with K configurations in a row.

    Returns the smallest sum of r_1 .. r_K, each at least 1, whose reach has a product of n or
    more; -1 if there is none.
    """
    limit = reach(1, lanes, two_way) if lanes == 1 and two_way else 0
    if limit and limit**configurations < n_ranks:
        return -1
    for total in count(configurations):
        each, more = divmod(total, configurations)  # reach is log-concave: equal parts are best
        product = reach(each, lanes, two_way) ** (configurations - more)
        if product * reach(each + 1, lanes, two_way) ** more >= n_ranks:
            return total
    raise AssertionError


def distances(n_ranks: int, lanes: int = 1, two_way: bool = False) -> Iterator[NDArray[np.int64]]:
    """Yield, for 1, 2, ... configurations, the fewest hops to the n - 1 others, ascending.

    There are fewer than n - 1 if not all can be reached.
    """
    others = n_ranks - 1
    onward = lanes - 1 if two_way else lanes
    before = [1]
    while True:
        now, found = [1], 0
        while found < others and len(now) <= others:
            hop = len(now)
            came = before[hop] if hop < len(before) else 0
            if two_way:
                came += before[hop - 1] if hop - 1 < len(before) else 0
            now.append(min(came + onward * now[-1], others))
            if not now[-1]:
                break
            found += now[-1]
        yield np.repeat(np.arange(len(now)), now)[1 : others + 1]
        before = now


@lru_cache(maxsize=4096)
def hops_within(
    n_ranks: int, configurations: int, rounds: int, lanes: int = 1, two_way: bool = False
) -> NDArray[np.int64]:
    """Bound the hops to the n - 1 others, ascending, if K configurations are held so many rounds.

    Within one that is held r rounds ``1, lanes, lanes onward, ...`` ranks are at 0 to r hops. The
    counts of all together are those of the product of these polynomials, whose coefficients are
    all largest where the rounds are spread evenly. There are fewer than n - 1 if not all can be
    reached.
    """
    each, more = divmod(rounds, configurations)
    onward = lanes - 1 if two_way else lanes
    ways = np.ones(1)
    for held in [each + 1] * more + [each] * (configurations - more):
        factor = [1.0, *(float(lanes * min(onward**hop, n_ranks)) for hop in range(held))]
        ways = np.minimum(np.convolve(ways, factor), n_ranks)
        enough = int((ways.cumsum() < n_ranks).sum()) + 1
        ways = ways[:enough]  # who is farther is not among the n nearest
    return np.repeat(np.arange(len(ways)), ways.astype(np.int64))[1:n_ranks]


def bound_terms(problem: Any) -> BoundTerms:
    """Return the best lower bound of a `Collective`, whose module imports this one."""
    if problem.steps is not None:
        return BoundTerms(_bound_steps(problem), "steps")
    return max(_bound_all(problem), _bound_late(problem))


def _bound_all(problem: Any) -> BoundTerms:
    """Bound the time as if no rank were late."""
    n, lanes = problem.n_ranks, problem.lanes
    least_bytes = _least_bytes(problem)
    known = _most_partners(problem) + 1
    if not least_bytes or known < 2:
        return BoundTerms(0.0, "bytes")
    rate, alpha_s, delay_s = problem.rate_bytes_per_s, problem.alpha_s, problem.delay_s
    hop_s = problem.hop_s
    to_move, idle_bytes = np.zeros((2, n - 1)), 0.0
    if problem.operation == "all-to-all":  # the largest demands go over the fewest hops
        ways = problem.demand, problem.demand.T
        to_move = np.array([np.sort(way, axis=1)[:, :0:-1].mean(axis=0) for way in ways])
        # What is handed on enters and leaves: a rank that sends more than it gets has a port idle.
        ends = [way.sum(axis=1) for way in ways]
        idle_bytes = float(np.abs(ends[0] - ends[1]).mean()) / 2
    first_s = delay_s if isinstance(problem.start, str) and problem.start == "dark" else 0.0
    terms: list[BoundTerms] = []
    for k, hops in enumerate(islice(distances(n, lanes, problem.two_way), n), 1):
        rounds = fewest_rounds(known, k, lanes, problem.two_way)
        if rounds < 0 or len(hops) < known - 1:
            continue
        round_s, more_s = (alpha_s, 0.0) if hop_s is None else (hop_s, alpha_s * k)
        fixed_s, least = (k - 1) * delay_s + more_s, least_bytes
        if problem.operation == "all-to-all":
            least = max(least, float((to_move[:, : len(hops)] @ hops).max()) + idle_bytes)
        name = "reach" if fixed_s + round_s * rounds > 0 else "bytes"
        name = "distance" if least > least_bytes * (1 + 1e-12) else name
        over_s, best_s = first_s + fixed_s, min(terms).seconds if terms else math.inf
        for turns in range(rounds, rounds + MOST_MORE + 1):  # few rounds make detours longer
            seconds = over_s + turns * round_s + least / (lanes * rate)
            done = not to_move.any() or seconds >= best_s or not round_s
            if not done and turns < rounds + MOST_MORE:
                way = hops_within(n, k, turns, lanes, problem.two_way)
                work = max(least, float((to_move[:, : len(way)] @ way).max()) + idle_bytes)
                seconds += (work - least) / (lanes * rate)
                name = "distance" if work > least_bytes * (1 + 1e-12) else name
                done = work <= least * (1 + 1e-12)
            best_s = min(best_s, seconds)
            terms.append(BoundTerms(seconds, name, k))
            if done:
                break
        if (k - 1) * delay_s + alpha_s * k > min(terms).seconds:
            break
    if problem.planes > 1:  # planes that change while others send hide delays
        rounds = _doublings(known, lanes)
        seconds = first_s + (alpha_s + (hop_s or 0.0)) * rounds + least_bytes / (lanes * rate)
        terms.append(BoundTerms(seconds, "reach" if alpha_s > 0 else "bytes"))
    return min(terms)


def _bound_late(problem: Any) -> BoundTerms:
    """Bound the time by the bytes that the last late rank still has to send or to receive."""
    late = problem.late
    if problem.n_ranks == 1 or not late.any():
        return BoundTerms(0.0, "late")
    last = int(late.argmax())
    n, size = problem.n_ranks, problem.size_bytes
    own = size if problem.operation in ("all-reduce", "broadcast") else size * (n - 1) / n
    partners = n - 1
    if problem.operation == "all-to-all":
        demand = problem.demand
        own = max(float(demand[last].sum()), float(demand[:, last].sum()))
        partners = max(int((demand[last] > 0).sum()), int((demand[:, last] > 0).sum()))
    elif problem.operation == "broadcast" and last != problem.root:
        partners = 1
    if not own:
        return BoundTerms(0.0, "late")
    if problem.hop_s is None:
        rounds_s = problem.alpha_s * _doublings(partners + 1, problem.lanes)
    else:
        rounds_s = problem.alpha_s + problem.hop_s
    seconds = late[last] + rounds_s + own / (problem.lanes * problem.rate_bytes_per_s)
    return BoundTerms(float(seconds), "late")


def _bound_steps(problem: Any) -> float:
    """Bound a list of steps: all planes share each; or the time of all planes together."""
    configurations, sizes = problem.steps[:, 0], problem.steps[:, 1]
    if not len(sizes):
        return 0.0
    k, dark = problem.planes, problem.start == "dark"
    rate = problem.ports * problem.rate_bytes_per_s
    chain = float((problem.alpha_s + sizes / (k * rate)).sum() + problem.delay_s * dark)
    changes = max(0, len(np.unique(configurations)) - (0 if dark else k))
    work = float((problem.alpha_s + sizes / rate).sum() + problem.delay_s * changes)
    return float(max(chain, work / k))


def _least_bytes(problem: Any) -> float:
    """Return the bytes that the busiest rank has to send or to receive at least."""
    n, size = problem.n_ranks, problem.size_bytes
    if n == 1:
        return 0.0
    if problem.operation == "all-to-all":
        demand = problem.demand
        return max(float(demand.sum(axis=axis).max()) for axis in (0, 1))
    if problem.operation == "broadcast":
        return float(size)
    times = 2 if problem.operation == "all-reduce" else 1  # gossip: 2 (n - 1) messages
    return float(times * size * (n - 1) / n)


def _most_partners(problem: Any) -> int:
    """Return how many others some rank has to reach."""
    if problem.operation != "all-to-all":
        return int(problem.n_ranks) - 1
    wanted = problem.demand > 0
    return max(int(wanted.sum(axis=axis).max()) for axis in (0, 1))


def _doublings(known: int, lanes: int) -> int:
    """Count the rounds in which n ranks can be reached if circuits change as they have to."""
    rounds, reached = 0, 1
    while reached < known:
        reached *= lanes + 1
        rounds += 1
    return rounds


def fewest_late_rounds(n_ranks: int) -> int:
    """Bound the rounds of an all-reduce after its one late rank is ready: of n - 1 equal chunks.

    The late rank needs a round to send its part of each chunk; the last one then doubles. And
    n (n - 1) useful receives have to fit into rounds of pairs.
    """
    n = n_ranks
    if n < 2:
        return 0
    least = n + math.ceil(math.log2(n)) - 2
    useful = 0
    for done in count(1):
        full = 2 * (n // 2)
        useful += min(2 ** (done - 1) + 1, full) if done < 64 else full
        silent = max(0, done - (n - 1)) if n % 2 == 0 else 0  # the late one receives nothing
        if done >= least and useful - silent >= n * (n - 1):
            return done
    raise AssertionError

"""Circuits, routes and rounds of a few ranks, exactly: an integer programme for each split.

A *split* says for how many rounds each configuration of circuits is held. It fixes the number of
rounds and the delays; only the loads are left to be minimised: in each round the load of the
busiest rank. Splits are bounded first by counting reach, bytes and hops, and then searched by
CP-SAT in the order of their bounds, until none of the remaining ones can be faster.

Words that are used here:

- a *configuration* is a set of circuits, one from each rank, and an *epoch* the rounds for which
  one configuration is held, by its number;
- a *chunk* is what one send carries: a block of an all-to-all (what one rank sends to one other),
  a whole buffer, or an n-th of it. Its size is a whole number of *units*;
- a *load* is what a rank sends in one round, in units;
- a *literal* is a Boolean variable of the programme, its negation, or a constant 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import permutations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import RTOL, Clock, Limit, NewBest, OnEvent, Tick, ignore
from optmatch.problems import Collective
from optmatch.problems.collectives.bounds import reach
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.conclusion import FoundPlan
from optmatch.solvers.collectives.plans import Laid, assemble
from optmatch.solvers.collectives.rounds import chunk_sizes
from optmatch.solvers.cpsat import Literal, Outcome
from optmatch.solvers.exact_models import ExactModel
from optmatch.solvers.frame import stoppable

SUMS = ("all-reduce", "reduce-scatter")
"""The collectives in which ranks add up what comes."""
TRY_ALL = 6
"""The most ranks for which all pairs of circuits are tried to count the fewest hops."""
DIGITS = 10_000
"""Sizes that have no common measure are rounded down to multiples of the largest over this."""
SEARCHED_SPLITS = 10
"""The number of splits that are searched if there is a limit of work."""
SPLITS_BETWEEN_LOOKS = 64
"""The clock is looked at once for so many splits that are listed."""

Step = tuple[int, int, int]
"""A round, a rank and a chunk."""


class Split(NamedTuple):
    """For how many rounds each configuration is held, and in how many chunks data are cut.

    Splits are sorted by their fields, so the lower bound of the time comes first. Example with 4
    ranks: ``held=(2, 1), weights=(1, 1, 1, 1)`` are two rounds over the first circuits and one
    over others, of four equal chunks.
    """

    at_least_s: float
    """A lower bound of the time of all plans of the split, in seconds."""
    held: tuple[int, ...]
    """The number of rounds of each configuration, each at least 1."""
    fixed_s: float
    """The time of rounds and delays, without any bytes, in seconds."""
    least: int
    """A lower bound of the sum over rounds of the load of the busiest rank, in units."""
    there: bool
    """Whether the first circuits are those that are up already."""
    weights: tuple[int, ...]
    """``weights[chunk]``: the size of each chunk, in units; 0 of a chunk that nobody wants."""
    unit_s: float
    """How many seconds a rank takes to send one unit."""


def find(
    problem: Collective,
    clock: Clock,
    on_event: OnEvent,
    best: Laid | None = None,
    work: float = math.inf,
) -> FoundPlan:
    """Find the fastest plan for few ranks, and prove that it is, by integer programmes.

    Sends carry whole chunks, each over one circuit. The search has two levels:

    - an outline, called a *split*, says for how many rounds each set of circuits stays, and into
      how many chunks the data are cut. Counting gives it a lower bound of the time of its plans,
      ``split.at_least_s``;
    - an integer programme then finds the fastest plan of one split.

    Splits are searched by ascending bounds. When the next bound is no less than the time of the
    best plan, no other split can be better, and the search ends. A split is *open* if a limit
    came before the end of its search. The least bound of an open one limits what is proved.

    Parameters
    ----------
    problem
        A collective of few ranks with one port.
    clock
        The limits of time, and of other things that it counts.
    on_event
        Is told of splits that are searched and of plans that are found.
    best
        A known plan; only faster ones are searched for. None if there is none.
    work
        A limit for each split, in seconds that CP-SAT counts by itself. If it is finite, no more
        than `SEARCHED_SPLITS` splits are searched.

    Returns
    -------
    FoundPlan
        Four fields: ``laid``, the fastest plan known; ``stats``, a description of the plans that
        are searched for (``family``) and a lower bound of their time (``family_bound_s``); a lower
        bound of the time of all plans, in seconds; and ``limit``, which has ended the search, None
        if it came to its end.
    """
    best_s = math.inf  # the time of the best plan, in seconds
    if best is not None:
        best_s = best.plan.time_s
    splits = _collect_splits(problem, best_s, clock)
    if splits is None:
        return FoundPlan(best, {}, limit=clock.exceeded(0))

    # Search the most promising split first, until the bounds of all others are too high.
    n_searched = 0
    open_s = math.inf  # the least bound of a split that was not searched to its end
    reached_s = 0.0  # the bound of the split at which the search is
    limit = None
    with stoppable() as stop:  # an interrupt, or the end of the time, ends the search
        for number, split in enumerate(splits):
            reached_s = split.at_least_s
            # Bounds ascend: no split from here on can be faster than the best plan, or have a
            # lower bound than one that is open.
            if split.at_least_s >= min(best_s, open_s) * (1 - RTOL):
                break
            limit = clock.exceeded(0)
            if limit is None and n_searched == SEARCHED_SPLITS and math.isfinite(work):
                limit = Limit.NODES
            if limit is None:
                n_searched += 1
                on_event(Tick("splits", number, len(splits)))
                # The programme has only plans that are faster than the best one.
                model = _Model(problem, split, best_s)
                outcome = model.solve(clock, ignore, seed=0, work=work)
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

    # The proof: a plan that is searched for is in a split that was searched to its end, and
    # then it takes no less than the best plan; or in an open split, and then no less than its
    # bound. The lower one of both numbers holds for all.
    bound_s = min(best_s, open_s)
    most_rounds = _most_rounds(problem)
    stats = {
        "family": f"whole chunks, {most_rounds} rounds at most, sends over one circuit",
        "family_bound_s": bound_s,
    }

    # A bound that is better than that of the problem comes from the search. It holds for plans
    # that send whole blocks, and the plan tells that its claims are about these.
    bound_s = _bound_all_plans(problem, bound_s)
    if best is not None and bound_s > problem.lower_bound() * (1 + RTOL):
        best = best._replace(plan=replace(best.plan, among="whole-blocks"))
    return FoundPlan(best, stats, bound_s, limit)


def _collect_splits(problem: Collective, most_s: float, clock: Clock) -> list[Split] | None:
    """Return the splits that may take less than `most_s` seconds, those of the least bounds first.

    A *split* says for how many rounds each configuration of circuits is held, and into which
    chunks the data are cut.

    Parameters
    ----------
    problem
        A collective of few ranks with one port.
    most_s
        The time of the best plan that is known, in seconds; infinite if there is none.
    clock
        The listing ends when it has run out.

    Returns
    -------
    list of Split or None
        Ascending by ``at_least_s``, a lower bound of the time; None if the time is up.
    """
    splits = list[Split]()
    for number, split in enumerate(_list_splits(problem, most_s)):
        if split is not None:
            splits.append(split)
        is_look = number % SPLITS_BETWEEN_LOOKS == SPLITS_BETWEEN_LOOKS - 1
        if is_look and clock.exceeded(0) is not None:
            return None
    return sorted(splits)


def _bound_all_plans(problem: Collective, family_bound_s: float) -> float:
    """Return a time that no plan at all can beat, from a bound for the plans searched for.

    The search looks only at plans of n rounds at most, for n ranks, in which each send goes over
    one circuit. In an all-to-all whose data are not cut, any other plan has more rounds, or sends
    over several circuits in a round. The latter is possible only where hops have a time. For other
    operations nothing is known: their data can be cut into more chunks than were tried.

    Parameters
    ----------
    problem
        The collective, with its latency of a round in seconds.
    family_bound_s
        A lower bound of the time of the plans that are searched for, in seconds.

    Returns
    -------
    float
        Seconds; 0 if nothing is known. It is the lower one of two numbers: the given bound, and
        the least time of plans with one round more. The latter is their latencies, and what the
        problem would take at least if rounds had no latency.
    """
    if problem.operation != "all-to-all" or problem.hop_s is not None:
        return 0.0
    without_latency = replace(problem, alpha_s=0.0)
    more_rounds = _most_rounds(problem) + 1
    more_rounds_s = more_rounds * problem.alpha_s + without_latency.lower_bound()
    return min(family_bound_s, more_rounds_s)


def _most_rounds(problem: Collective) -> int:
    """Return the most rounds of a plan that is searched for.

    Parameters
    ----------
    problem
        The collective, of n ranks.

    Returns
    -------
    int
        n; but 2 n - 2 for an all-reduce, which may scatter sums and then gather them, n - 1 rounds
        each, and for a broadcast.
    """
    n = problem.n_ranks
    if problem.operation in ("all-reduce", "broadcast"):
        return 2 * n - 2
    return n


def _list_splits(problem: Collective, most_s: float) -> Iterator[Split | None]:
    """List the outlines of plans that are worth a search, each with a lower bound of its time.

    An outline, a *split*, leaves circuits and sends open. It fixes only two things: for how many
    rounds each set of circuits stays, in order, and into how many chunks the data are cut.
    Example: ``held = (2, 1)`` are two rounds over some circuits, a change, and one round over
    other circuits.

    Left out are splits in whose rounds data cannot get to all ranks, and splits for which another
    one is at least as good.

    Parameters
    ----------
    problem
        A collective of few ranks with one port.
    most_s
        A time in seconds. Splits whose rounds and changes alone take so long are left out.

    Yields
    ------
    Split or None
        None for a split that would take too long, so that the caller can look at the clock. Else
        a record of seven fields:

        - ``at_least_s``: the lower bound of the time, in seconds: ``fixed_s + least * unit_s``;
        - ``held[circuits]``: the number of rounds of each set of circuits;
        - ``fixed_s``: the seconds of rounds and changes, without any bytes;
        - ``least``: a lower bound of what the busiest ranks of all rounds send together, in units;
        - ``there``: whether the first circuits are those that are up at the start;
        - ``weights[chunk]``: the size of each chunk, in units;
        - ``unit_s``: the seconds that a rank takes to send one unit.
    """
    n = problem.n_ranks
    operation = problem.operation
    has_start_circuits = not isinstance(problem.start, str)
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    most_rounds = _most_rounds(problem)

    # An even all-to-all that runs backwards is one again: held = (1, 2) is as good as (2, 1).
    is_symmetric = (
        operation == "all-to-all" and problem.demand_bytes is None and not has_start_circuits
    )
    # An all-to-all has one chunk for each pair of ranks, a gather or a reduce-scatter one for each
    # rank. An all-reduce and a broadcast are tried with the whole buffer, and with n parts of it.
    chunk_counts = {"all-to-all": (n * n,), "all-reduce": (1, n), "broadcast": (1, n)}
    for count in chunk_counts.get(operation, (n,)):
        weights, unit_s = _weigh_chunks(problem, count)
        for held in _compositions(most_rounds):
            rounds = sum(held)
            # Skip splits for which another one is at least as good:
            # - if rounds cost nothing, fewer rounds than the most are never better;
            # - if changes cost nothing, circuits that stay for two rounds are never better;
            # - of a split and its reverse, if they are equal, one is enough.
            if not round_s and rounds < most_rounds:
                continue
            if not problem.delay_s and max(held) > 1:
                continue
            if is_symmetric and held > held[::-1]:
                continue
            # Rounds and changes alone must take less than the time to beat.
            changes = len(held) - 1
            if changes * problem.delay_s + rounds * round_s >= most_s * (1 - RTOL):
                yield None
                continue
            # A bound of 0 means that data cannot get to all ranks in these rounds.
            least_load = _bound_load(problem, weights, held)
            if not least_load:
                continue

            # Each pair says whether the first circuits are those that are up at the start, and
            # whether a delay passes before the first round. If circuits are up, there are both
            # choices: to keep them, or to set up others. Else it depends on whether ports are
            # dark at the start.
            starts = [(False, problem.start == "dark")]
            if has_start_circuits:
                starts = [(True, False), (False, True)]
            for keeps_start, is_dark in starts:
                fixed_s = (changes + is_dark) * problem.delay_s + rounds * round_s
                at_least_s = fixed_s + least_load * unit_s
                yield Split(at_least_s, held, fixed_s, least_load, keeps_start, weights, unit_s)


def _compositions(most: int) -> Iterator[tuple[int, ...]]:
    """List all ways to write each of the numbers 1 ... `most` as an ordered sum.

    Here a sum says for how many rounds each configuration of circuits is held.

    Parameters
    ----------
    most
        The largest number that is written as a sum.

    Yields
    ------
    tuple of int
        The terms, each at least 1. Up to 3 these are (1,), (2,), (1, 1), (3,), (2, 1), (1, 2) and
        (1, 1, 1), in some order.
    """
    for total in range(1, most + 1):
        # A row of `total` units is cut, or not, behind each unit but the last; the lengths of the
        # pieces are the terms.
        for cuts in product((False, True), repeat=total - 1):
            ends = [end for end, is_cut in enumerate(cuts, 1) if is_cut]
            yield tuple(np.diff([0, *ends, total]).tolist())


def _weigh_chunks(problem: Collective, count: int) -> tuple[tuple[int, ...], float]:
    """Return the sizes of `count` chunks in whole units, and the seconds that one unit takes.

    An integer programme wants whole numbers, so sizes in bytes become multiples of a *unit*:
    chunks of 0, 6 and 10 bytes have 0, 3 and 5 units of 2 bytes. Sizes that have no common measure
    are rounded down, so that sums of them stay lower bounds.

    Parameters
    ----------
    problem
        The collective.
    count
        Into how many chunks the data are cut. An all-to-all of n ranks has n * n, one from each
        rank to each.

    Returns
    -------
    weights : tuple of int
        ``weights[chunk]``: the size in units; 0 of a chunk that nobody wants.
    unit_s : float
        The seconds that a rank takes to send one unit over its port.
    """
    sizes = chunk_sizes(problem, count)
    if problem.operation == "all-to-all":
        # Blocks that nobody wants, from a rank to itself for example, have no size.
        sizes = np.where(problem.demand.reshape(-1) > 0, sizes, 0.0)

    # The unit is the one size of all chunks; or the greatest common divisor, if sizes are whole
    # bytes; or a small part of the largest size.
    unit_bytes = float(sizes.max())
    if len(np.unique(sizes[sizes > 0])) > 1:
        if (sizes % 1 == 0).all():
            unit_bytes = float(np.gcd.reduce(sizes.astype(np.int64)))
        else:
            unit_bytes /= DIGITS
    # The factor keeps 3 units from becoming 2 by the rounding of a division.
    weights = np.floor(sizes / unit_bytes * (1 + 1e-12)).astype(np.int64)
    return tuple(weights.tolist()), unit_bytes / problem.rate_bytes_per_s


def _bound_load(problem: Collective, weights: tuple[int, ...], held: tuple[int, ...]) -> int:
    """Return a lower bound of the sum over all rounds of what the busiest rank sends.

    In each round every rank sends over one circuit, and the round lasts until the rank that sends
    most has done so. If that rank sends 3 units in the first round and 2 in the second one, the
    sum is 5. Plans with equal rounds differ in time only by this sum.

    Operations are bounded in two ways:

    - an all-to-all: by units times hops, shared evenly among ranks, and by what one rank has to
      send or to receive;
    - others, whose chunks are all of one unit: by the number of sends.

    Parameters
    ----------
    problem
        The collective, of n ranks.
    weights
        ``weights[chunk]``: the size of each chunk in units, a whole number. A unit is a common
        measure of the sizes of all chunks. The chunk from s to d of an all-to-all has the number
        ``s * n + d``.
    held
        ``held[k]``: for how many rounds the k-th set of circuits stays, before they change. (2, 1)
        are two rounds, a change, and one round.

    Returns
    -------
    int
        The bound in units; 0 if data cannot get to all ranks in these rounds.
    """
    n = problem.n_ranks
    # demand[source, destination]: units of an all-to-all. In other operations it only says that
    # each rank has all others as partners.
    demand = 1 - np.eye(n)
    if problem.operation == "all-to-all":
        demand = np.array(weights).reshape(n, n)

    # Some rank sends to so many others, or receives from so many. All these and the rank itself
    # have to be reached.
    reached_by_hops = _count_reached_by_hops(held, two_way=problem.two_way)
    most_partners = max(int((demand > 0).sum(axis=axis).max()) for axis in (0, 1))
    if reached_by_hops.sum() <= most_partners:
        return 0
    if problem.operation == "all-to-all":
        return _bound_exchange_load(demand, reached_by_hops, held)

    # The whole buffer is one chunk of one unit, so the bound is the number of rounds in which it
    # is sent. In an all-reduce a sum of k ranks becomes one of 2 k ranks at most in a round, which
    # takes ceil(log2 n) rounds. A broadcast has at least one round.
    if len(weights) == 1:
        if problem.operation == "all-reduce":
            return (n - 1).bit_length()
        return 1

    # Otherwise there are n chunks of one unit, and n ranks share the messages of n chunks, so the
    # bound is the number of messages of one chunk: 2 (n - 1) in an all-reduce, whose sum has to
    # come together and to be told; n - 1 in a gather or a reduce-scatter. In a broadcast the root
    # sends each of the n chunks at least once.
    return {"all-reduce": 2 * (n - 1), "broadcast": n}.get(problem.operation, n - 1)


def _count_reached_by_hops(held: tuple[int, ...], *, two_way: bool) -> NDArray[np.int64]:
    """Count the ranks that data of one rank can reach over each number of hops, at most.

    Each rank has one port. A *hop* is a circuit on the way, and there is one hop in a round at
    most.

    Parameters
    ----------
    held
        ``held[k]``: for how many rounds the k-th set of circuits stays, before they change.
    two_way
        Whether circuits lead both ways.

    Returns
    -------
    int array, shape (hops + 1,)
        ``reached[k]``: the ranks that are k hops away. Example for one-way circuits and held =
        (2, 1): the first circuits lead to 1 rank by 0 hops (the rank itself), to 1 by one hop and
        to 1 by two: [1, 1, 1]. The second ones lead on from each of these by 0 or 1 hops, [1, 1].
        Together they reach [1, 2, 2, 1].
    """
    # The hops of both sets of circuits add up, so the counts are multiplied like polynomials,
    # which is a convolution. `reach(k, 1, two_way)` counts the ranks that are at most k hops away.
    reached_by_hops = np.ones(1, dtype=np.int64)
    for rounds in held:
        reached = [reach(hops, 1, two_way) for hops in range(rounds + 1)]
        reached_by_hops = np.convolve(reached_by_hops, np.diff(reached, prepend=0))
    return reached_by_hops


def _bound_exchange_load(
    demand: NDArray[Any], reached_by_hops: NDArray[np.int64], held: tuple[int, ...]
) -> int:
    """Bound the sum over all rounds of what the busiest rank sends, of an all-to-all.

    Parameters
    ----------
    demand
        ``demand[source, destination]``: the units of each block; shape (ranks, ranks).
    reached_by_hops
        ``reached_by_hops[k]``: how many ranks are k hops away from one rank, at most.
    held
        ``held[k]``: for how many rounds the k-th set of circuits stays.

    Returns
    -------
    int
        Units: an n-th of the units times hops of all n ranks, or what one rank has to send or to
        receive, whichever is more.
    """
    # hops[k]: how many hops away the k-th nearest other rank is, at least: [1, 1, 2, 2, 3] if
    # [1, 2, 2, 1] ranks are reached. The sum of units times hops over all blocks is least if the
    # largest blocks of each rank go to the nearest ranks.
    n = len(demand)
    hops = np.repeat(np.arange(len(reached_by_hops)), reached_by_hops)[1:n]
    largest_first = np.sort(demand, axis=1)[:, ::-1][:, : len(hops)]
    total = int((largest_first @ hops).sum())

    # A better sum is known for few ranks and two sets of circuits, by trying all circuits. It
    # counts the hops between all pairs of ranks, so it holds only if every rank sends the same to
    # every other one.
    all_alike = np.array_equal(demand, 1 - np.eye(n))
    if len(held) == 2 and n <= TRY_ALL and all_alike:
        total = max(total, fewest_hops(n, (held[0], held[1])))

    # Every hop of a block is a send of its size by some rank. The busiest ranks of all rounds send
    # an n-th of the total at least. They also send no less than any one rank has to send (a row of
    # the demand) or to receive (a column).
    share = -(-total // n)
    return max(share, *(int(demand.sum(axis=axis).max()) for axis in (0, 1)))


@cache
def fewest_hops(n: int, held: tuple[int, int]) -> int:
    """Return the fewest hops of all data of an all-to-all together, if circuits change once.

    Each rank has one circuit to another rank, before the change and after it; the circuits of all
    ranks at one time are a permutation of the ranks. The data from one rank to one other take some
    hops over the first circuits and then some over the second ones. Either number may be 0.

    All pairs of permutations are tried, but for those that differ from others only by the names
    of ranks.

    Parameters
    ----------
    n
        The number of ranks.
    held
        For how many rounds the first and the second circuits stay. That is also the most hops over
        each of them, as there is one hop in a round.

    Returns
    -------
    int
        The sum of hops over all ordered pairs of ranks. A pair that circuits do not join counts n
        squared, so that a sum with such a pair is more than any other one.
    """
    # all_circuits[permutation, rank]: the rank to which a circuit leads.
    all_circuits = np.array(list(permutations(range(n))))

    # second_hops[permutation, source, target]: hops over each choice of the second circuits; n
    # squared where the target is not reached in time. All sources follow their circuits hop by
    # hop; the first time that a rank is reached counts.
    second_hops = np.full((len(all_circuits), n, n), n * n)
    by_permutation = np.arange(len(all_circuits))[:, None]
    source = np.arange(n)
    reached_rank = np.tile(np.arange(n), (len(all_circuits), 1))
    for hop in range(held[1] + 1):
        known = second_hops[by_permutation, source, reached_rank]
        second_hops[by_permutation, source, reached_rank] = np.minimum(known, hop)
        reached_rank = np.take_along_axis(all_circuits, reached_rank, axis=1)

    # The names of ranks do not matter. Let the ranks along each cycle of the first circuits have
    # ascending numbers: each rank then sends to the next number, or back to the first one of its
    # cycle. As first circuits, permutations that never lead further than one up are enough.
    is_representative = (all_circuits <= np.arange(n) + 1).all(axis=1)
    # Each block takes the best of all ways: k hops over the first circuits, to the rank `relay`,
    # and the rest over the second ones.
    fewest = n**4
    for next_rank in all_circuits[is_representative]:
        hops = second_hops
        relay = np.arange(n)  # where each source changes from the first to the second circuits
        for hop in range(1, held[0] + 1):
            relay = next_rank[relay]
            hops = np.minimum(hops, second_hops[:, relay] + hop)
        fewest = min(fewest, int(hops.sum(axis=(1, 2)).min()))
    return fewest


class _Model(ExactModel[Laid]):
    """The integer programme of the plans of one split that are faster than the best so far.

    Its variables say which circuits each configuration has, which rank sends which chunk in which
    round, and where chunks are. It minimises the sum over rounds of the load of the busiest rank.

    Parameters
    ----------
    problem
        A collective of few ranks with one port.
    split
        For how many rounds each configuration of circuits is held, and the sizes of chunks.
    below_s
        Only plans that take less than so many seconds are solutions; infinite if all are.
    """

    uses_relaxations = False

    def __init__(self, problem: Collective, split: Split, below_s: float) -> None:
        """Make the integer programme for one outline of a plan: variables, goal and rules.

        The outline, a *split*, says for how many rounds each set of circuits stays, and how large
        each chunk of the data is, in units. Chunks of size 0 are wanted by nobody and left out.

        Parameters
        ----------
        problem
            A collective of few ranks with one port.
        split
            ``split.held[k]``: for how many rounds the k-th set of circuits stays;
            ``split.weights[chunk]``: the size of a chunk in units.
        below_s
            Plans must take less than so many seconds; infinite if all may be found.
        """
        # The rules below name ranks, chunks, rounds and sets of circuits by their numbers.
        super().__init__()
        self.problem = problem
        self.split = split
        self.ranks = range(problem.n_ranks)
        self.chunks = [chunk for chunk, weight in enumerate(split.weights) if weight]
        self.epoch = np.repeat(np.arange(len(split.held)), split.held)
        """``epoch[round]``: the number of its configuration."""
        # The variables that say what a plan does: which circuits are up, and what is sent.
        self.circuits = [
            self._add_configuration(first=epoch == 0) for epoch in range(len(split.held))
        ]
        """``circuits[epoch][source, target]``: whether the circuit is up."""
        self.sent = self._new_variables(0)
        """``sent[round, rank, chunk]``: whether the rank sends the chunk."""

        # The goal, and rules that leave out plans that differ from others only in numbers.
        self._minimise_loads(below_s)
        if problem.operation in ("all-reduce", "broadcast"):
            self._order_pieces_of_root()

        self.receipts: dict[Step, tuple[Literal, Literal, Literal]] = {}
        """For each round, rank and chunk: that the rank has it afterwards (for sums: gets it), had
        it before, and takes it as a copy."""
        if problem.operation in SUMS:
            self._add_sums()
        else:
            self._add_copies()

    def _minimise_loads(self, below_s: float) -> None:
        """Set the goal of the programme: the least time of all sends.

        A round lasts until the rank that sends most has done so. Each round gets an integer
        variable that is no less than what any rank sends in it; the sum of these variables is
        minimised. Chunks have sizes in whole units, ``self.split.weights[chunk]``.

        The sum is limited on both sides: it is not below ``self.split.least``, which counting has
        shown, and small enough for a plan that takes less than `below_s` seconds.

        Parameters
        ----------
        below_s
            The time of the best plan so far, in seconds; infinite if there is none.
        """
        model = self.model
        split = self.split
        loads = [model.new_int_var(0, sum(split.weights), "") for _ in self.epoch]
        for turn, rank in product(range(len(loads)), self.ranks):
            rank_load = sum(
                split.weights[chunk] * self.sent[turn, rank, chunk] for chunk in self.chunks
            )
            model.add(rank_load <= loads[turn])
        model.add(sum(loads) >= split.least)
        # The time to beat, without the fixed time of rounds and changes, and in units of
        # ``unit_s`` seconds. The sum is a whole number below it.
        if math.isfinite(below_s):
            load_to_beat = (below_s * (1 - RTOL) - split.fixed_s) / split.unit_s
            model.add(sum(loads) <= math.ceil(load_to_beat) - 1)
        model.minimize(sum(loads))

    def _order_pieces_of_root(self) -> None:
        """Let the root send the equal pieces of a buffer in the order of their numbers.

        Plans that differ only in the numbers of pieces would be searched again and again. The root
        may send a piece only if it sends the piece with the number before in this round or has
        sent it earlier. Keys of ``self.sent`` are a round, a rank that may send, and a chunk (the
        number of a piece).
        """
        # Each clause: the piece is not sent, or the one before it was, in a round up to this one.
        for (turn, rank, chunk), sent in self.sent.items():
            if rank == self.problem.root and chunk:
                previous = (self.sent[before, rank, chunk - 1] for before in range(turn + 1))
                self.model.add_bool_or(~sent, *previous)

    def _new_variables(self, more_rounds: int) -> dict[Step, Literal]:
        """Make a Boolean variable for each chunk, rank and round, and for so many rounds more.

        Parameters
        ----------
        more_rounds
            1 for what is told of the time before each round and of the end, 0 for sends.

        Returns
        -------
        dict
            ``variable[round, rank, chunk]``; chunks of no size have none.
        """
        keys = product(range(len(self.epoch) + more_rounds), self.ranks, self.chunks)
        return {key: self.model.new_bool_var("") for key in keys}

    def _add_configuration(self, *, first: bool) -> dict[tuple[int, int], Literal]:
        """Add the variables of one set of circuits: one from each rank, and one to each rank.

        Parameters
        ----------
        first
            Whether they are the circuits of the first round. These are fixed if the plan keeps
            the circuits that are up at the start (``self.split.there``). Else, where all ranks are
            alike, their numbers are chosen such that fewer equal plans are searched.

        Returns
        -------
        dict
            ``is_up[source, target]``: the Boolean variable that says whether the circuit is up. A
            circuit from a rank to itself stands for no circuit; both directions of a two-way
            circuit are one variable.
        """
        model = self.model
        problem = self.problem
        is_up: dict[tuple[int, int], Literal] = {}
        for source, target in product(self.ranks, repeat=2):
            if problem.two_way and source > target:
                is_up[source, target] = is_up[target, source]
            else:
                is_up[source, target] = model.new_bool_var("")
        for rank in self.ranks:
            model.add_exactly_one(is_up[rank, target] for target in self.ranks)
            model.add_exactly_one(is_up[source, rank] for source in self.ranks)

        if first and self.split.there:
            # The circuits that are up at the start, over the one port of each rank; a dark port
            # leads to its own rank.
            for source, peer in enumerate(problem.start[0].tolist()):  # type: ignore[union-attr]
                target = peer
                if peer < 0:
                    target = source
                model.add(is_up[source, target] == 1)
        elif first and problem.demand_bytes is None and problem.operation != "broadcast":
            # Ranks are alike, so those of each ring can be numbered one after another: a circuit
            # leads to the next number, or back to a lower one.
            for source, target in product(self.ranks, repeat=2):
                if target > source + 1:
                    model.add(is_up[source, target] == 0)
        return is_up

    def _owner(self, chunk: int) -> int:
        """Return the rank that has a chunk at the beginning; not for sums, which all ranks begin.

        Parameters
        ----------
        chunk
            The number of the chunk: ``source * n + destination`` in an all-to-all, the number of
            its rank in an all-gather, and that of a piece of the buffer in a broadcast.

        Returns
        -------
        int
            The source, the rank, or the root of the broadcast.
        """
        if self.problem.operation == "all-to-all":
            return chunk // self.problem.n_ranks
        if self.problem.operation == "all-gather":
            return chunk
        return self.problem.root

    def _add_copies(self) -> None:
        """Add the rules of operations that only copy data: where each chunk is in each round.

        After a round a rank has what it had before, and what came over a circuit. In the end:

        - in an all-gather or a broadcast every rank has every chunk;
        - in an all-to-all chunk ``s * n + d``, which goes from rank s to rank d of n ranks, is at
          rank d. Such a chunk is at one rank at a time.

        These variables of the integer programme are there already, each true or false:

        - ``self.sent[round, rank, chunk]``: the rank sends the chunk in the round;
        - ``self.circuits[k][source, target]``: the circuit is up in the rounds whose
          ``self.epoch[round]`` is k. A circuit from a rank to itself means that it has none.

        New are ``has[round, rank, chunk]``: the rank has the chunk before the round. For each
        round, rank and chunk ``self.receipts`` gets a triple, by which `read` tells what has come:
        whether the rank has the chunk afterwards; whether it had it before; and whether the chunk
        has replaced a sum, which is 0 (never), because nothing is summed up here.
        """
        model = self.model
        n = self.problem.n_ranks
        moves_blocks = self.problem.operation == "all-to-all"
        has = self._new_variables(1)  # before each round, and after the last one
        last = len(self.epoch)
        # Before the first round only the owner has a chunk; after the last one it is where it is
        # wanted. The destination of chunk s * n + d of an all-to-all is its remainder, d.
        for rank, chunk in product(self.ranks, self.chunks):
            model.add(has[0, rank, chunk] == (rank == self._owner(chunk)))
            if not moves_blocks or rank == chunk % n:
                model.add(has[last, rank, chunk] == 1)

        # A rank sends only what it has. A clause of `add_bool_or` holds if one of its literals is
        # true; the first one reads: if the rank has the chunk afterwards, did not have it before,
        # and the circuit from `source` is up, then `source` sends the chunk. A rank sends nothing
        # to itself, so a rank without a circuit gets nothing.
        for (turn, rank, chunk), sent in self.sent.items():
            is_up = self.circuits[self.epoch[turn]]
            before = has[turn, rank, chunk]
            after = has[turn + 1, rank, chunk]
            self.receipts[turn, rank, chunk] = (after, before, 0)
            model.add_implication(sent, before)
            for source in self.ranks:
                is_sent: Literal = 0
                if source != rank:
                    is_sent = self.sent[turn, source, chunk]
                model.add_bool_or(~after, before, ~is_up[source, rank], is_sent)
                # A block is at one rank at a time: if another rank had it before, and this one has
                # it afterwards, the circuit between them is up.
                if moves_blocks and source != rank:
                    model.add_bool_or(~has[turn, source, chunk], ~after, is_up[source, rank])
            # Once for each round and chunk (at rank 0): exactly one rank has the block.
            if moves_blocks and rank == 0:
                model.add_exactly_one(has[turn + 1, other, chunk] for other in self.ranks)

    def _add_sums(self) -> None:
        """Add the rules of operations that add up: whose data each sum contains in each round.

        Every rank has a sum for each chunk. At first it contains the data of this rank alone. Data
        that come are added to it, and no rank may count twice; in an all-reduce, what comes may
        also replace the sum (a copy). In the end the sums contain the data of all ranks: in an
        all-reduce every sum, in a reduce-scatter the sum for chunk r at rank r.

        ``self.sent[round, rank, chunk]`` and ``self.circuits``, the variables for sends and
        circuits, are there already. New are variables that say whose data are in a sum.
        """
        model = self.model
        is_everywhere = self.problem.operation == "all-reduce"
        last = len(self.epoch)

        # contains[origin][round, rank, chunk]: whether the sum that the rank has for the chunk
        # before the round contains the data of the rank `origin`; of round `last`: at the end.
        contains = {origin: self._new_variables(1) for origin in self.ranks}
        for rank, chunk, origin in product(self.ranks, self.chunks, self.ranks):
            model.add(contains[origin][0, rank, chunk] == (origin == rank))
            if is_everywhere or chunk == rank:
                model.add(contains[origin][last, rank, chunk] == 1)

        # A step is a round, a rank that may receive, and a chunk.
        for step in self.sent:
            gets, is_copied = self._add_receipt(step)
            for origin in self.ranks:
                self._add_origin(step, contains[origin], gets, is_copied)

    def _add_receipt(self, step: Step) -> tuple[Literal, Literal]:
        """Add variables that say whether a rank gets a chunk in a round, and whether as a copy.

        The rank can get the chunk only from the rank whose circuit leads to it, if that one sends
        the chunk. A *copy* replaces what the rank had; anything else is added to it. The triple
        of the step in ``self.receipts`` is set.

        Parameters
        ----------
        step
            The round, the rank that may get the chunk, and the chunk.

        Returns
        -------
        gets : Literal
            Whether the rank gets the chunk in the round: a Boolean variable of the programme.
        is_copied : Literal
            Whether what comes replaces the sum of the rank instead of being added to it; 0 where
            nothing may be replaced, in a reduce-scatter.
        """
        turn, rank, chunk = step
        model = self.model
        is_up = self.circuits[self.epoch[turn]]
        gets = model.new_bool_var("")
        is_copied: Literal = 0
        if self.problem.operation == "all-reduce":
            is_copied = model.new_bool_var("")
            model.add_implication(is_copied, gets)
        # By this triple `read` tells whether the chunk has come; whether it was there before (0,
        # never, because each arrival changes the sum); and whether it replaced the sum.
        self.receipts[turn, rank, chunk] = (gets, 0, is_copied)
        for source in self.ranks:
            is_sent: Literal = 0
            if source != rank:
                is_sent = self.sent[turn, source, chunk]
            # If the rank gets it, and the circuit from `source` is up, then `source` sends it.
            model.add_bool_or(~gets, ~is_up[source, rank], is_sent)
        return gets, is_copied

    def _add_origin(
        self, step: Step, contains: dict[Step, Literal], gets: Literal, is_copied: Literal
    ) -> None:
        """Add the rules for when the data of one rank, the *origin*, are in a sum after a round.

        A rank has a sum of the data of some ranks. Data that come are either added to this sum, or
        replace it, as a *copy*. After the round the data of the origin are in the sum:

        - if they come in this round;
        - or if they were in it before, and no copy has replaced the sum.

        They may not come if they are in a sum that stays: nothing is added twice.

        Parameters
        ----------
        step
            The round, the rank that has the sum, and the chunk.
        contains
            ``contains[round, rank, chunk]``: whether the data of the origin are in the sum before
            the round. The number of rounds, as a round, stands for the end.
        gets, is_copied
            Literals (Boolean variables of the programme, or a constant 0): whether the rank gets
            the chunk in this round, and whether it replaces the sum.
        """
        turn, rank, chunk = step
        model = self.model
        is_up = self.circuits[self.epoch[turn]]
        before = contains[turn, rank, chunk]
        after = contains[turn + 1, rank, chunk]
        comes = model.new_bool_var("")  # whether data of the origin come in this round

        # Data come only with a chunk, and are in the sum afterwards. All that is there afterwards
        # was there before or came. All that was there stays, unless a copy replaces it.
        model.add_implication(comes, gets)
        model.add_implication(comes, after)
        model.add_bool_or(~after, before, comes)
        model.add_bool_or(~before, is_copied, after)

        # Data in the sum cannot come again, unless a copy replaces the sum. After a copy the sum
        # has only what came.
        model.add_bool_or(~before, is_copied, ~comes)
        if self.problem.operation == "all-reduce":
            model.add_bool_or(~after, ~is_copied, comes)

        # A chunk brings all data of the sum of its sender, and no others: data of the origin come
        # only if they are in that sum, and then they always come.
        for source in self.ranks:
            at_source = contains[turn, source, chunk]
            model.add_bool_or(~is_up[source, rank], ~comes, at_source)
            model.add_bool_or(~is_up[source, rank], ~gets, ~at_source, comes)

    def read(self, outcome: Outcome) -> Laid:
        """Make the plan that a solution of the integer programme stands for.

        These variables of the programme are read, each of which is true or false:

        - ``self.circuits[k][source, target]``: the circuit is up in the rounds whose
          ``self.epoch[round]`` is k. A circuit from a rank to itself means that it has none;
        - ``self.receipts[round, rank, chunk]``: a triple, whether the rank has the chunk after the
          round, whether it had it before, and whether the chunk replaced a sum (a copy). Where
          ranks add up, the first one says whether the chunk comes, and the second one is 0.

        Each key of ``self.sent`` is a round, a rank that may send, and a chunk.

        Parameters
        ----------
        outcome
            The solution: ``outcome.holds(variable)`` tells whether a variable is true.

        Returns
        -------
        Laid
            The plan, timed; without sends that change nothing and rounds that have no sends. It
            has as many chunks as ``self.split.weights`` has sizes.
        """
        # circuits[k, port, rank]: the peer of a rank over its one port, -1 for none.
        problem = self.problem
        circuits = np.full((len(self.circuits), 1, problem.n_ranks), -1)
        for epoch, is_up in enumerate(self.circuits):
            for (source, target), circuit in is_up.items():
                if source != target and outcome.holds(circuit):
                    circuits[epoch, 0, source] = target

        # A send counts only if its receiver has the chunk afterwards, and had it not before. A
        # sender without a circuit has the receiver -1, for which there is no triple: it sends
        # nothing, as (0, 0, 0) says. A row is round, source, destination, chunk, kind.
        rows = []
        for turn, source, chunk in self.sent:
            target = int(circuits[self.epoch[turn], 0, source])
            receipt = self.receipts.get((turn, target, chunk), (0, 0, 0))
            after, before, copied = (outcome.holds(literal) for literal in receipt)
            if after and not before:
                kind = COPY
                if problem.operation in SUMS and not copied:
                    kind = REDUCE
                rows.append((turn, source, target, chunk, kind))
        sends = np.array(rows)

        # Rounds that cost nothing may have no sends; the plan leaves them and their circuits out.
        # The rounds and the sets of circuits that are left are numbered anew, without gaps.
        turns, sends[:, 0] = np.unique(sends[:, 0], return_inverse=True)
        used, configuration_of_round = np.unique(self.epoch[turns], return_inverse=True)
        return assemble(
            problem, sends, len(self.split.weights), circuits[used], configuration_of_round
        )

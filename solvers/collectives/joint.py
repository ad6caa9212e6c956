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
from typing import NamedTuple

import numpy as np

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
    """Find the fastest plan of whole chunks, each send over one circuit.

    A *split* says for how many rounds each configuration of circuits is held, in order, and into
    how many chunks of which sizes the data are cut. Counting gives each split a lower bound of the
    time of its plans, ``split.at_least_s``. An integer programme finds the fastest plan of one
    split that is faster than the best plan so far. Splits are searched by ascending bounds, until
    the bound of the next one is no less than the time of the best plan: then no other split can
    be better.

    A split is *open* if its search was cut short or never begun, because a limit was reached. The
    least bound of an open split limits what is proved about all of them.

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
        The fastest plan known; a lower bound of the time of all plans, in seconds; as statistics
        the lower bound of plans of whole chunks alone; and the limit that ended the search, None
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

    # A plan of whole chunks takes no less than the best one, or than the bound of an open split.
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
    """Return a lower bound of the time of all plans, from that of the plans searched for.

    The search knows plans with some most rounds, whose sends go over one circuit each. Blocks of
    an all-to-all are not cut, so all other plans have more rounds, or sends of several hops; the
    latter are possible only where hops have a time. Other operations can be cut into more chunks,
    which nothing here bounds.

    Parameters
    ----------
    problem
        The collective, with its latency of a round in seconds.
    family_bound_s
        A lower bound of the time of the plans that are searched for, in seconds.

    Returns
    -------
    float
        Seconds; 0 if nothing is known. It is the lower of the given bound and of the least time of
        plans with one round more: their latencies, and the bound of the problem without latency.
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
    """List the splits that counting allows and that may take less than `most_s` seconds.

    A *split* says for how many rounds each configuration of circuits is held, in order, and into
    how many chunks the data are cut: ``held = (2, 1)`` are two rounds over the first circuits, a
    change, and one round over others.

    Parameters
    ----------
    problem
        A collective of few ranks with one port.
    most_s
        A time in seconds. Splits whose rounds and changes alone take so long are left out.

    Yields
    ------
    Split or None
        None for a split that would take too long, so that the caller can look at the clock.
    """
    n = problem.n_ranks
    operation = problem.operation
    has_start_circuits = not isinstance(problem.start, str)
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    most_rounds = _most_rounds(problem)

    # An even all-to-all that runs backwards is one again, so splits and their reverses are equal.
    is_symmetric = (
        operation == "all-to-all" and problem.demand_bytes is None and not has_start_circuits
    )
    chunk_counts = {"all-to-all": (n * n,), "all-reduce": (1, n), "broadcast": (1, n)}
    for count in chunk_counts.get(operation, (n,)):
        weights, unit_s = _weigh_chunks(problem, count)
        for held in _compositions(most_rounds):
            rounds = sum(held)
            # Without a cost of rounds more rounds are as good, so only the most are listed;
            # without delays more circuits are, so each configuration has one round. One of a split
            # and its reverse is enough where they are equal.
            if not round_s and rounds < most_rounds:
                continue
            if not problem.delay_s and max(held) > 1:
                continue
            if is_symmetric and held > held[::-1]:
                continue
            changes = len(held) - 1
            if changes * problem.delay_s + rounds * round_s >= most_s * (1 - RTOL):
                yield None
                continue
            least_load = _bound_load(problem, weights, held)
            if not least_load:
                continue

            # The first circuits are those of the start, or are set up; without circuits at the
            # start that takes a delay only if the fabric is dark.
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

    A *chunk* is what one send carries, and a *unit* the measure of all sizes: integer programmes
    want whole numbers. A chunk that nobody wants has the size 0. Sizes that have no common measure
    are rounded down, so that loads stay lower bounds.

    Parameters
    ----------
    problem
        The collective.
    count
        Into how many chunks the data are cut; n * n blocks for an all-to-all of n ranks.

    Returns
    -------
    weights : tuple of int
        ``weights[chunk]``: the size in units. Blocks of 0, 6 and 10 bytes have 0, 3 and 5 units.
    unit_s : float
        The seconds that a rank takes to send one unit over its port.
    """
    sizes = chunk_sizes(problem, count)
    if problem.operation == "all-to-all":
        # Blocks that nobody wants, from a rank to itself for example, have no size.
        sizes = np.where(problem.demand.reshape(-1) > 0, sizes, 0.0)

    # The unit is the size of all chunks, or the greatest common divisor of whole bytes.
    unit_bytes = float(sizes.max())
    if len(np.unique(sizes[sizes > 0])) > 1:
        if (sizes % 1 == 0).all():
            unit_bytes = float(np.gcd.reduce(sizes.astype(np.int64)))
        else:
            unit_bytes /= DIGITS
    weights = np.floor(sizes / unit_bytes * (1 + 1e-12)).astype(np.int64)
    return tuple(weights.tolist()), unit_bytes / problem.rate_bytes_per_s


def _bound_load(problem: Collective, weights: tuple[int, ...], held: tuple[int, ...]) -> int:
    """Bound the sum over rounds of the load of the busiest rank, from below.

    The load of a rank in a round is the size of the chunks that it sends over its one circuit, and
    the load of the busiest rank decides how long the round lasts. A *configuration* is a set of
    circuits, one from each rank, that stays for some rounds. The bound comes from how many ranks
    data can reach over how many hops in these rounds, from the bytes that have to be sent that
    often, and from what single ranks have to send and to receive.

    Parameters
    ----------
    problem
        The collective.
    weights
        ``weights[chunk]``: the size of each chunk as a whole number of units; a unit is the size
        of all chunks, or a common measure of their sizes.
    held
        ``held[configuration]``: for how many rounds in a row each configuration is held.

    Returns
    -------
    int
        The bound in units: of an all-to-all by hops and by the bytes of single ranks, of others by
        the number of messages; 0 if data cannot get everywhere in these rounds.
    """
    n = problem.n_ranks
    operation = problem.operation
    demand = 1 - np.eye(n)
    if operation == "all-to-all":
        demand = np.array(weights).reshape(n, n)

    # reached_by_hops[hops]: how many ranks data of one rank can have reached, at most, after all
    # rounds over exactly that number of hops; with 0 hops, the rank itself. In one configuration
    # `reach` counts the ranks within a number of hops over one port, and its differences those at
    # exactly that number. Data go on from each over the next one, hence the convolution.
    reached_by_hops = np.ones(1, dtype=np.int64)
    for rounds in held:
        reached = [reach(hops, 1, problem.two_way) for hops in range(rounds + 1)]
        reached_by_hops = np.convolve(reached_by_hops, np.diff(reached, prepend=0))
    most_partners = max(int((demand > 0).sum(axis=axis).max()) for axis in (0, 1))
    if reached_by_hops.sum() <= most_partners:
        return 0

    if operation == "all-to-all":
        # Bytes times hops, shared among all ranks; the largest blocks go over the fewest hops: the
        # n - 1 others of a rank have the least hops that circuits allow, in ascending order. If
        # all blocks that are wanted have one size (with the 0 of others these are two weights),
        # few ranks and two configurations allow to count the fewest hops exactly. No rank sends or
        # receives less than its own bytes, the sums of rows and columns.
        hops = np.repeat(np.arange(len(reached_by_hops)), reached_by_hops)[1:n]
        largest_first = np.sort(demand, axis=1)[:, ::-1][:, : len(hops)]
        total = int((largest_first @ hops).sum())
        if len(held) == 2 and n <= TRY_ALL and len(set(weights)) == 2:
            total = max(total, fewest_hops(n, (held[0], held[1])))
        share = -(-total // n)
        return max(share, *(int(demand.sum(axis=axis).max()) for axis in (0, 1)))

    # A whole buffer as one chunk has the size of one unit, so the bound counts rounds in which it
    # is sent: data of all ranks can reach a rank of an all-reduce only by doubling, ceil(log2 n)
    # rounds; any broadcast has at least one round.
    if len(weights) == 1:
        if operation == "all-reduce":
            return (n - 1).bit_length()
        return 1

    # Otherwise there are n chunks of one unit. An all-reduce is gossip on each chunk, 2 (n - 1)
    # messages, and n ranks share those of n chunks. The root of a broadcast sends each chunk at
    # least once. In a gather or a reduce-scatter each chunk takes n - 1 messages, which n ranks
    # share, too.
    return {"all-reduce": 2 * (n - 1), "broadcast": n}.get(operation, n - 1)


@cache
def fewest_hops(n: int, held: tuple[int, int]) -> int:
    """Return the least sum of hops of an all-to-all over two configurations of circuits.

    Each rank has one circuit in a configuration, so a configuration is a permutation of the ranks.
    A block takes some hops over the first circuits and then some over the second ones; either
    number may be 0. All pairs of permutations are tried, up to the names of ranks: few of the n!
    first ones differ by more than names, and each is tried with all n! second ones.

    Parameters
    ----------
    n
        The number of ranks.
    held
        For how many rounds the first and the second circuits are held: the most hops that a block
        can take over each of them.

    Returns
    -------
    int
        The sum over all ordered pairs of ranks. A pair that a configuration does not join counts
        n squared, so that a sum with such a pair is more than any other one.
    """
    all_circuits = np.array(list(permutations(range(n))))

    # second_hops[permutation, source, target]: hops over each choice of the second circuits.
    second_hops = np.full((len(all_circuits), n, n), n * n)
    by_permutation = np.arange(len(all_circuits))[:, None]
    source = np.arange(n)
    reached_rank = np.tile(np.arange(n), (len(all_circuits), 1))
    for hop in range(held[1] + 1):
        known = second_hops[by_permutation, source, reached_rank]
        second_hops[by_permutation, source, reached_rank] = np.minimum(known, hop)
        reached_rank = np.take_along_axis(all_circuits, reached_rank, axis=1)

    # If all ranks are renamed in both configurations, the sum stays the same. Ranks of first
    # circuits can be renamed in the order in which their cycles are followed: then each rank sends
    # to the next number, or back to the first one of its cycle, and never to more than the next.
    # Permutations with this property are enough, therefore, as first circuits.
    is_representative = (all_circuits <= np.arange(n) + 1).all(axis=1)
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
        """Make the variables of all rounds, then the goal, then the rules of the operation.

        A *split* says for how many rounds each configuration of circuits is held, and how large
        each chunk of the data is, in units. Chunks of size 0 are wanted by nobody and left out.

        Parameters
        ----------
        problem
            A collective of few ranks with one port.
        split
            ``split.held[configuration]`` are its rounds, ``split.weights[chunk]`` the units of a
            chunk.
        below_s
            Plans must take less than so many seconds; infinite if all may be found.
        """
        super().__init__()
        self.problem = problem
        self.split = split
        self.ranks = range(problem.n_ranks)
        self.chunks = [chunk for chunk, weight in enumerate(split.weights) if weight]
        self.epoch = np.repeat(np.arange(len(split.held)), split.held)
        """``epoch[round]``: the number of its configuration."""
        self.circuits = [
            self._add_configuration(first=epoch == 0) for epoch in range(len(split.held))
        ]
        """``circuits[epoch][source, target]``: whether the circuit is up."""
        self.sent = self._new_variables(0)
        """``sent[round, rank, chunk]``: whether the rank sends the chunk."""

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
        """Minimise the sum over rounds of the load of the busiest rank, in units of chunk sizes.

        The *load* of a rank in a round is the size of the chunks that it sends. Each round gets an
        integer variable that is no less than the load of any rank. Plans that are no faster than
        `below_s` seconds are left out, and so is what counting forbids: sums below the bound of
        the split.

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
        # The time to beat without the fixed time of rounds and changes, in units.
        if math.isfinite(below_s):
            load_to_beat = (below_s * (1 - RTOL) - split.fixed_s) / split.unit_s
            model.add(sum(loads) <= math.ceil(load_to_beat) - 1)
        model.minimize(sum(loads))

    def _order_pieces_of_root(self) -> None:
        """Let the root send the pieces of a buffer in the order of their numbers: they are alike.

        Plans that differ only in the numbers of pieces would be searched again and again. A piece
        may be sent only if the one before it was sent in this round or earlier.
        """
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
        """Add a configuration: one circuit from each rank, and one to each rank.

        Parameters
        ----------
        first
            Whether it is the first configuration. That one is either given by the start of the
            problem, or its ranks may be renamed where they are all alike.

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
        """Add the constraints of operations that only copy: where each chunk is in each round.

        After a round a rank has what it had before, and what is sent to it over a circuit that is
        up. In a gather or a broadcast every rank has every chunk in the end. A block of an
        all-to-all is kept at one place at a time, and ends at its destination.

        The variables ``self.sent[round, rank, chunk]``, whether the rank sends the chunk, and
        ``self.circuits[epoch][source, target]``, whether a circuit is up, are there already; an
        *epoch* are the rounds of one configuration of circuits. New variables say whether a rank
        has a chunk before each round. ``self.receipts`` gets an entry for each round, rank and
        chunk: that the rank has it after the round, and that it had it before.
        """
        model = self.model
        n = self.problem.n_ranks
        moves_blocks = self.problem.operation == "all-to-all"
        has = self._new_variables(1)  # before each round, and after the last one
        last = len(self.epoch)
        for rank, chunk in product(self.ranks, self.chunks):
            model.add(has[0, rank, chunk] == (rank == self._owner(chunk)))
            if not moves_blocks or rank == chunk % n:
                model.add(has[last, rank, chunk] == 1)

        # A rank sends only what it has. It has a chunk after a round only if it had it before, or
        # if each rank whose circuit leads to it sends the chunk; it cannot send to itself.
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
                # A block is at one place, so it can only come from where it was.
                if moves_blocks and source != rank:
                    model.add_bool_or(~has[turn, source, chunk], ~after, is_up[source, rank])
            if moves_blocks and rank == 0:
                model.add_exactly_one(has[turn + 1, other, chunk] for other in self.ranks)

    def _add_sums(self) -> None:
        """Add the constraints of operations that add up: whose data each sum contains.

        A chunk at a rank is a sum of the data of some ranks, at first of its own alone, and in the
        end of all. Data that are sent to a rank are added to its sum, in which no rank may count
        twice; in an all-reduce they may also replace the sum (a copy). New variables say for each
        rank, the *origin*, whether its data are in a sum before each round. In a reduce-scatter
        each rank has to have the whole sum of its own chunk in the end.
        """
        model = self.model
        is_everywhere = self.problem.operation == "all-reduce"
        last = len(self.epoch)

        # contains[origin][round, rank, chunk]: whether the sum has the data of the rank origin.
        contains = {origin: self._new_variables(1) for origin in self.ranks}
        for rank, chunk, origin in product(self.ranks, self.chunks, self.ranks):
            model.add(contains[origin][0, rank, chunk] == (origin == rank))
            if is_everywhere or chunk == rank:
                model.add(contains[origin][last, rank, chunk] == 1)

        for step in self.sent:
            gets, is_copied = self._add_receipt(step)
            for origin in self.ranks:
                self._add_origin(step, contains[origin], gets, is_copied)

    def _add_receipt(self, step: Step) -> tuple[Literal, Literal]:
        """Add variables that say whether a rank gets a chunk in a round, and whether as a copy.

        A *literal* is a Boolean variable of the programme, or a constant 0 or 1. The rank can
        get the chunk only from the rank whose circuit leads to it, if that one sends the chunk.

        Parameters
        ----------
        step
            The round, the rank that may get the chunk, and the chunk.

        Returns
        -------
        gets : Literal
            Whether the rank gets the chunk in the round.
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
        # A receipt tells the reader of a solution: the chunk has come, was not there before, and
        # whether it is a copy.
        self.receipts[turn, rank, chunk] = (gets, 0, is_copied)
        for source in self.ranks:
            is_sent: Literal = 0
            if source != rank:
                is_sent = self.sent[turn, source, chunk]
            model.add_bool_or(~gets, ~is_up[source, rank], is_sent)
        return gets, is_copied

    def _add_origin(
        self, step: Step, contains: dict[Step, Literal], gets: Literal, is_copied: Literal
    ) -> None:
        """Add the constraints that say when the data of one rank are in a sum after a round.

        A chunk at a rank is a sum of the data of some ranks. Data that come are either added to
        it, or replace it as a *copy*. The data of one rank, the *origin*, are in the sum
        afterwards if they come in this round, or were in it before and are not replaced. They may
        not come if they are in a sum that stays, because nothing may be added twice.

        Parameters
        ----------
        step
            The round, the rank that has the sum, and the chunk.
        contains
            ``contains[round, rank, chunk]``: whether the data of that one rank (the origin) are in
            the sum before the round; of the number of rounds: at the end.
        gets, is_copied
            Literals (Boolean variables of the programme, or a constant 0): whether the rank gets
            the chunk in this round, and whether it replaces the sum.
        """
        turn, rank, chunk = step
        model = self.model
        is_up = self.circuits[self.epoch[turn]]
        before = contains[turn, rank, chunk]
        after = contains[turn + 1, rank, chunk]
        comes = model.new_bool_var("")

        # The data that come are in the sum afterwards; nothing else is new, and only a copy
        # displaces what was there.
        model.add_implication(comes, gets)
        model.add_implication(comes, after)
        model.add_bool_or(~after, before, comes)
        model.add_bool_or(~before, is_copied, after)

        # No rank counts twice.
        model.add_bool_or(~before, is_copied, ~comes)
        if self.problem.operation == "all-reduce":
            model.add_bool_or(~after, ~is_copied, comes)

        # Exactly the data of the sender come.
        for source in self.ranks:
            at_source = contains[turn, source, chunk]
            model.add_bool_or(~is_up[source, rank], ~comes, at_source)
            model.add_bool_or(~is_up[source, rank], ~gets, ~at_source, comes)

    def read(self, outcome: Outcome) -> Laid:
        """Read the plan from a solution of the programme.

        Parameters
        ----------
        outcome
            The values of the variables: which circuits are up, and which rank sends which chunk in
            which round. ``outcome.holds(literal)`` tells whether one of them is true.

        Returns
        -------
        Laid
            The plan, timed; without sends that change nothing and rounds that have no sends.
        """
        # circuits[configuration, port, rank] with one port; a circuit from a rank to itself stands
        # for none.
        problem = self.problem
        circuits = np.full((len(self.circuits), 1, problem.n_ranks), -1)
        for epoch, is_up in enumerate(self.circuits):
            for (source, target), circuit in is_up.items():
                if source != target and outcome.holds(circuit):
                    circuits[epoch, 0, source] = target

        # A send counts only if it changes something at its receiver.
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
        turns, sends[:, 0] = np.unique(sends[:, 0], return_inverse=True)
        used, configuration_of_round = np.unique(self.epoch[turns], return_inverse=True)
        return assemble(
            problem, sends, len(self.split.weights), circuits[used], configuration_of_round
        )

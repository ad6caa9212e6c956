"""All-reduces in few rounds over de Bruijn graphs that stay: sums along walks.

In a de Bruijn graph of n = c d^(D - 1) ranks (c <= d, which is the degree) rank z has circuits
from the ranks d z, d z + 1, ..., d z + d - 1 (modulo n). If every rank sends its sum in each
round, and every rank *replaces* its sum by what comes over its d circuits, then after t rounds
rank z has the sum of the ranks d^t z, ..., d^t z + d^t - 1: those from which a walk of t circuits
leads to it. In the last of D rounds c of the d circuits are used, and the sum is of n ranks in a
row, which are all ranks once. D is the fewest rounds that the degree allows, or nearly so, and
nothing has to be told to others afterwards.

Large buffers would take long, as each circuit carries the whole buffer in each round. They are cut
into d^a chunks. The sum of a chunk comes only to one rank in d^a, its *roots*, and `a` more rounds
spread it from there, D + a rounds in all. In each round only those ranks add up a chunk from which
a walk of the right length leads to one of its roots.

Over two-way circuits one half of the buffer goes along the walks, and the other half against them:
a walk that is unique from u to v is unique from v to u backwards.

Words that are used here:

- an *arc* is a circuit of the graph in one direction, and a *walk* is arcs one after another;
- a rank with a *loop* would have an arc to itself; its sum stays, and is added to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, REDUCE, REPLACE
from optmatch.solvers.collectives.offers import Offer
from optmatch.solvers.collectives.plans import lay
from optmatch.solvers.collectives.rounds import Rounds, chunk_sizes
from optmatch.solvers.collectives.topologies import (
    IntArray,
    Topology,
    inverse_circuits,
    list_de_bruijn_graphs,
)

BoolArray = NDArray[np.bool_]


class WalkGraph(NamedTuple):
    """A de Bruijn graph in whose walks all ranks are added up once."""

    n: int
    """The number of ranks."""
    degree: int
    """The number of arcs that lead to each rank, d."""
    n_steps: int
    """The number of arcs of a walk, D."""
    last_digit: int
    """How many of the arcs to each rank are used by the last step, c; n is c d^(D - 1)."""

    def arcs_of_step(self, step: int, *, is_against: bool) -> tuple[IntArray, IntArray]:
        """Return the arcs that carry sums in one round.

        Parameters
        ----------
        step
            The round, from 0 to D - 1.
        is_against
            Whether data go against the arcs: then walks are made backwards, their last step first.

        Returns
        -------
        source, target : int array, shape (arcs,)
            The two ranks of each arc, in the direction in which data go; loops are among them.
        """
        is_last_of_walk = step == (0 if is_against else self.n_steps - 1)
        n_arcs = self.last_digit if is_last_of_walk else self.degree
        return self.arcs(n_arcs, is_against=is_against)

    def arcs(self, n_arcs: int, *, is_against: bool) -> tuple[IntArray, IntArray]:
        """Return so many of the arcs to each rank, all of them if `n_arcs` is the degree.

        The result is source and target of each arc, int arrays of shape (arcs,); against the arcs
        they change places.
        """
        head = np.repeat(np.arange(self.n), n_arcs)
        tail = (self.degree * head + np.tile(np.arange(n_arcs), self.n)) % self.n
        return (head, tail) if is_against else (tail, head)

    def roots(self, number: int, n_classes: int, *, is_against: bool) -> BoolArray:
        """Return the roots of a chunk, from which all ranks can be told in log_d(classes) rounds.

        Along arcs these are the ranks `number`, `number` + classes, ...; each rank is at the end
        of one walk of that many arcs from one of them. Against the arcs they are ranks in a row.

        Parameters
        ----------
        number
            The number of the class of roots, below `n_classes`.
        n_classes
            How many classes there are, a power of d that divides n; each has as many roots.
        is_against
            Whether data go against the arcs.

        Returns
        -------
        bool array, shape (ranks,)
            Whether each rank is a root.
        """
        ranks = np.arange(self.n)
        class_of_rank = ranks * n_classes // self.n if is_against else ranks % n_classes
        return class_of_rank == number


def find_walk_graph(n: int, degree: int) -> WalkGraph | None:
    """Return the graph of n ranks and a degree whose walks add up all ranks once.

    Parameters
    ----------
    n
        The number of ranks.
    degree
        The number of arcs that lead to each rank, 2 or more.

    Returns
    -------
    WalkGraph or None
        None if n is not a power of the degree, or one multiplied by a number below the degree.

    Examples
    --------
    >>> find_walk_graph(32, 4)
    WalkGraph(n=32, degree=4, n_steps=3, last_digit=2)
    """
    if degree < 2 or n <= degree:
        return None
    n_steps = 1
    left = n
    while left > degree:
        if left % degree:
            return None
        left //= degree
        n_steps += 1
    return WalkGraph(n, degree, n_steps, last_digit=left)


def list_walk_offers(problem: Collective) -> Iterator[Offer]:
    """List all-reduces by sums along walks, with their time, before they are made.

    Parameters
    ----------
    problem
        The all-reduce, with its ranks and their ports.

    Yields
    ------
    Offer
        One for each number of rounds in which sums are spread from roots, from 0 on: a time that
        the plan does not beat, the number of its sends, and a function that makes it. Nothing is
        listed where the ranks are not those of a de Bruijn graph, or where the ports cannot hold
        it.
    """
    degree = problem.lanes // 2 if problem.two_way else problem.lanes
    graph = find_walk_graph(problem.n_ranks, degree)
    if graph is None:
        return
    topology = _lay_graph(problem)
    if topology is None:
        return
    round_s = problem.alpha_s + (problem.hop_s or 0.0)
    n_classes = 1
    least_s = math.inf
    while graph.n % n_classes == 0 and n_classes < graph.n:
        # A round takes as long as the average circuit needs, or longer.
        rounds = _list_rounds(problem, graph, topology, n_classes)
        chunk_bytes = float(chunk_sizes(problem, rounds.chunk_count)[0])
        bytes_per_circuit = len(rounds.sends) * chunk_bytes / (graph.n * problem.lanes)
        seconds = rounds.n_rounds * round_s + bytes_per_circuit / problem.rate_bytes_per_s
        yield Offer(
            seconds=seconds,
            n_sends=len(rounds.sends),
            name="de-bruijn walks",
            build=partial(lay, problem, rounds),
        )

        # Each further round saves fewer bytes than the one before.
        if seconds > least_s:
            return
        least_s = seconds
        n_classes *= degree


def _lay_graph(problem: Collective) -> Topology | None:
    """Return the circuits of the de Bruijn graph; over one-way ports rank z hears from d z + k."""
    for topology in list_de_bruijn_graphs(problem):
        if problem.two_way or topology is None:
            return topology
        return Topology(topology.name, inverse_circuits(topology.peer, two_way=False))
    return None


def _list_rounds(
    problem: Collective, graph: WalkGraph, topology: Topology, n_classes: int
) -> Rounds:
    """List the rounds of an all-reduce by sums along walks.

    Parameters
    ----------
    problem
        The all-reduce.
    graph
        The graph, whose arcs are circuits of the topology.
    topology
        The circuits, which stay.
    n_classes
        Into how many classes ranks are divided. There is a chunk for each class, whose sums come
        to the ranks of the class; over two-way circuits there are two.

    Returns
    -------
    Rounds
        The sends of all chunks, and the circuits, which are the same in all rounds.
    """
    directions = (False, True) if problem.two_way else (False,)
    rows_of_round: dict[int, list[IntArray]] = {}
    for half, is_against in enumerate(directions):
        for number in range(n_classes):
            chunk = half * n_classes + number
            sends = _list_sends_of_chunk(graph, number, n_classes, is_against)
            for turn, ends_and_kind in enumerate(sends):
                source, target, kind = ends_and_kind.T
                same = np.ones(len(source), dtype=np.int64)
                rows = np.column_stack([turn * same, source, target, chunk * same, kind])
                rows_of_round.setdefault(turn, []).append(rows)
    sends = np.concatenate([np.concatenate(rows_of_round[turn]) for turn in sorted(rows_of_round)])
    matchings = np.tile(topology.peer, (len(rows_of_round), 1, 1))
    return Rounds(sends, len(directions) * n_classes, matchings)


def _list_sends_of_chunk(
    graph: WalkGraph, number: int, n_classes: int, is_against: bool
) -> list[IntArray]:
    """List the sends of one chunk, round by round.

    First come the rounds in which sums are made along walks, then those in which they are copied
    from the roots of the chunk to all ranks.

    Parameters
    ----------
    graph
        The graph.
    number
        The class of ranks that are the roots of the chunk.
    n_classes
        How many classes there are.
    is_against
        Whether data go against the arcs.

    Returns
    -------
    list of int array, shape (sends, 3)
        For each round rows of source, destination and kind.
    """
    # The ranks whose sum is wanted at the end of each step, from the last step back to the first.
    roots = graph.roots(number, n_classes, is_against=is_against)
    arcs_of_step = [
        graph.arcs_of_step(step, is_against=is_against) for step in range(graph.n_steps)
    ]
    is_wanted_after = [roots]
    for source, target in reversed(arcs_of_step[1:]):
        is_wanted = np.zeros(graph.n, dtype=np.bool_)
        is_wanted[source[is_wanted_after[-1][target]]] = True
        is_wanted_after.append(is_wanted)
    is_wanted_after.reverse()

    # Sums along walks. Against the arcs some ranks hear nothing in the first step: their sum would
    # be empty, and they have nothing to send in the next one.
    sends: list[IntArray] = []
    has_sum = np.ones(graph.n, dtype=np.bool_)
    for (source, target), is_wanted in zip(arcs_of_step, is_wanted_after, strict=True):
        is_used = is_wanted[target] & has_sum[source]
        source, target = source[is_used], target[is_used]
        has_loop = np.zeros(graph.n, dtype=np.bool_)
        has_loop[target[source == target]] = True
        is_sent = source != target
        kind = np.where(has_loop[target], REDUCE, REPLACE)
        sends.append(np.column_stack([source, target, kind])[is_sent])
        has_sum = np.zeros(graph.n, dtype=np.bool_)
        has_sum[target] = True

    # Whole sums spread from the roots, breadth first.
    is_informed = roots.copy()
    source, target = graph.arcs(graph.degree, is_against=is_against)
    while not is_informed.all():
        is_useful = np.flatnonzero(is_informed[source] & ~is_informed[target])
        # Of several arcs to the same rank one is used; which one differs from chunk to chunk.
        order = np.roll(is_useful, -number)
        _, first = np.unique(target[order], return_index=True)
        used = order[first]
        is_informed[target[used]] = True
        kind = np.full(len(used), COPY)
        sends.append(np.column_stack([source[used], target[used], kind]))
    return sends

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

from optmatch.model import Clock
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, REDUCE, REPLACE
from optmatch.solvers.collectives.offers import Offer, is_affordable
from optmatch.solvers.collectives.plans import lay
from optmatch.solvers.collectives.rounds import Rounds, chunk_sizes
from optmatch.solvers.collectives.topologies import (
    IntArray,
    Topology,
    inverse_circuits,
    lay_de_bruijn_graph,
)

BoolArray = NDArray[np.bool_]


class Arcs(NamedTuple):
    """Arcs of a graph, int arrays of shape (arcs,); an arc to the rank itself is a loop."""

    source: IntArray
    """The rank that sends over each arc."""
    target: IntArray
    """The rank that receives."""

    def take(self, is_taken: BoolArray) -> Arcs:
        """Return some of the arcs: those with True in a mask of shape (arcs,)."""
        return Arcs(self.source[is_taken], self.target[is_taken])


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
    is_against: bool = False
    """Whether data go against the arcs: walks are then made backwards, their last step first."""
    first_arc: int = 0
    """The first arc to each rank that the last step uses; a multiple of c."""

    def arcs(self, n_arcs: int, first_arc: int = 0) -> Arcs:
        """Return so many of the arcs to each rank, in the direction in which data go.

        Parameters
        ----------
        n_arcs
            The number of arcs of a rank z; the degree d for all.
        first_arc
            The first of them, k: they come from d z + k, d z + k + 1, ...

        Returns
        -------
        Arcs
            n times as many arcs.
        """
        head = np.repeat(np.arange(self.n), n_arcs)
        digit = np.tile(np.arange(first_arc, first_arc + n_arcs), self.n)
        tail = (self.degree * head + digit) % self.n
        if self.is_against:
            return Arcs(head, tail)
        return Arcs(tail, head)

    def list_steps(self) -> list[Arcs]:
        """List the arcs that carry sums in each of the D rounds."""
        steps = [self.arcs(self.degree)] * (self.n_steps - 1)
        last_step = self.arcs(self.last_digit, self.first_arc)
        if self.is_against:
            return [last_step, *steps]
        return [*steps, last_step]

    def roots(self, number: int, n_classes: int) -> BoolArray:
        """Return the roots of a chunk, from which all ranks can be told in log_d(classes) rounds.

        Along arcs these are the ranks `number`, `number` + classes, ...; each rank is at the end
        of one walk of that many arcs from one of them. Against the arcs they are ranks in a row.

        Parameters
        ----------
        number
            The number of the class of roots, below `n_classes`.
        n_classes
            How many classes there are, a power of d that divides n; each has as many roots.

        Returns
        -------
        bool array, shape (ranks,)
            Whether each rank is a root.
        """
        ranks = np.arange(self.n)
        class_of_rank = ranks % n_classes
        if self.is_against:
            class_of_rank = ranks * n_classes // self.n
        return np.equal(class_of_rank, number)


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


def list_walk_offers(problem: Collective, clock: Clock) -> Iterator[Offer]:
    """List all-reduces by sums along walks, with their time, before they are made.

    Parameters
    ----------
    problem
        The all-reduce, with its ranks and their ports.
    clock
        Says whether there is time for plans of more sends, whose sends are listed here.

    Yields
    ------
    Offer
        One for each number of rounds in which sums are spread from roots, from 0 on: a time that
        the plan does not beat, the number of its sends, and a function that makes it. Nothing is
        listed where the ranks are not those of a de Bruijn graph, or where the ports cannot hold
        it.
    """
    graph = _find_largest_graph(problem)
    if graph is None:
        return
    topology = lay_de_bruijn_graph(problem, graph.degree)
    if topology is None:
        return
    if not problem.two_way:  # rank z has to hear from d z + k, not to send to it
        reversed_peer = inverse_circuits(topology.peer, two_way=False)
        topology = Topology(topology.name, reversed_peer)
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
        n_classes *= graph.degree
        if not is_affordable(graph.degree * len(rounds.sends), clock):
            return


def _find_largest_graph(problem: Collective) -> WalkGraph | None:
    """Return the graph of the largest degree that the ports hold and whose walks add up all ranks.

    Parameters
    ----------
    problem
        The all-reduce, with its ranks and their ports.

    Returns
    -------
    WalkGraph or None
        None if no degree of 2 or more fits the number of ranks.
    """
    most_degree = problem.lanes
    if problem.two_way:
        most_degree = problem.lanes // 2
    for degree in range(most_degree, 1, -1):
        graph = find_walk_graph(problem.n_ranks, degree)
        if graph is not None:
            return graph
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
        Into how many classes ranks are divided. In each part of the buffer there is a chunk for
        each class, whose sums come to the ranks of the class. There is one part, or several that
        use different arcs, or arcs in different directions.

    Returns
    -------
    Rounds
        The sends of all chunks, and the circuits, which are the same in all rounds.
    """
    # If the last step uses c of the d arcs, and c divides d, other chunks use the others. Sums of
    # ranks in a row begin at another rank then, but they still are all ranks once.
    graphs = [graph]
    if graph.degree % graph.last_digit == 0:
        first_arcs = range(0, graph.degree, graph.last_digit)
        graphs = [graph._replace(first_arc=first_arc) for first_arc in first_arcs]
    if problem.two_way:
        graphs += [each._replace(is_against=True) for each in graphs]
    rows_of_round: dict[int, list[IntArray]] = {}
    for part, graph_of_part in enumerate(graphs):
        for number in range(n_classes):
            roots = graph_of_part.roots(number, n_classes)
            sends = [
                *_add_up_along_walks(graph_of_part, roots),
                *_copy_from_roots(graph_of_part, roots, number),
            ]
            chunk = part * n_classes + number
            for turn, ends_and_kinds in enumerate(sends):
                rows = np.empty((len(ends_and_kinds), 5), dtype=np.int64)
                rows[:, 0] = turn
                rows[:, 1:3] = ends_and_kinds[:, :2]
                rows[:, 3] = chunk
                rows[:, 4] = ends_and_kinds[:, 2]
                rows_of_round.setdefault(turn, []).append(rows)
    sends_of_rounds = [rows for turn in sorted(rows_of_round) for rows in rows_of_round[turn]]
    matchings = np.tile(topology.peer, (len(rows_of_round), 1, 1))
    return Rounds(np.concatenate(sends_of_rounds), len(graphs) * n_classes, matchings)


def _add_up_along_walks(graph: WalkGraph, roots: BoolArray) -> list[IntArray]:
    """List the sends of one chunk by which its roots get the sum of all ranks.

    In each round ranks replace their sum by what comes over their arcs. A rank with a loop keeps
    its sum, as if it came over the loop, and adds to it.

    Parameters
    ----------
    graph
        The graph, whose walks have D arcs.
    roots
        Bool array, shape (ranks,): the ranks that are to get the sum.

    Returns
    -------
    list of int array, shape (sends, 3)
        For each of D rounds rows of source, destination and kind.
    """
    # The ranks whose sum is wanted at the end of each step, from the last step back to the first.
    steps = graph.list_steps()
    is_wanted_after = [roots]
    for arcs in reversed(steps[1:]):
        is_wanted = np.zeros(graph.n, dtype=np.bool_)
        is_wanted[arcs.source[is_wanted_after[-1][arcs.target]]] = True
        is_wanted_after.append(is_wanted)
    is_wanted_after.reverse()

    # Against the arcs some ranks hear nothing in the first step. Their sum would be empty, so that
    # they have nothing to send in the next one.
    sends: list[IntArray] = []
    has_sum = np.ones(graph.n, dtype=np.bool_)
    for arcs, is_wanted in zip(steps, is_wanted_after, strict=True):
        used = arcs.take(is_wanted[arcs.target] & has_sum[arcs.source])
        has_sum = np.zeros(graph.n, dtype=np.bool_)
        has_sum[used.target] = True

        is_loop = used.source == used.target
        has_loop = np.zeros(graph.n, dtype=np.bool_)
        has_loop[used.target[is_loop]] = True
        sent = used.take(~is_loop)
        kind = np.where(has_loop[sent.target], REDUCE, REPLACE)
        sends.append(np.column_stack([sent.source, sent.target, kind]))
    return sends


def _copy_from_roots(graph: WalkGraph, roots: BoolArray, number: int) -> list[IntArray]:
    """List the sends by which the whole sum of a chunk spreads from its roots, breadth first.

    Parameters
    ----------
    graph
        The graph.
    roots
        Bool array, shape (ranks,): the ranks that have the sum.
    number
        The number of the chunk among those of its direction. Of several arcs over which a rank
        could get the sum, different chunks use different ones.

    Returns
    -------
    list of int array, shape (sends, 3)
        For each round rows of source, destination and kind; no round if all ranks are roots.
    """
    sends: list[IntArray] = []
    is_informed = roots.copy()
    arcs = graph.arcs(graph.degree)
    while not is_informed.all():
        useful = np.flatnonzero(is_informed[arcs.source] & ~is_informed[arcs.target])
        order = np.roll(useful, -number)
        _, first_of_target = np.unique(arcs.target[order], return_index=True)
        used = order[first_of_target]
        is_informed[arcs.target[used]] = True
        kind = np.full(len(used), COPY)
        sends.append(np.column_stack([arcs.source[used], arcs.target[used], kind]))
    return sends

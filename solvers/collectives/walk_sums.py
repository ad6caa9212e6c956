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
from optmatch.solvers.collectives.offers import Offer
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import Rounds, chunk_sizes, is_affordable, list_rows
from optmatch.solvers.collectives.topologies import (
    IntArray,
    Topology,
    inverse_circuits,
    lay_family,
)

BoolArray = NDArray[np.bool_]
Sends = tuple[IntArray, IntArray, IntArray | int]
"""The sources, the destinations and the kinds of the sends of a chunk in one round."""


class Arcs(NamedTuple):
    """Arcs of a graph, int arrays of shape (arcs,); an arc to the rank itself is a loop."""

    source: IntArray
    """The rank that sends over each arc."""
    target: IntArray
    """The rank that receives."""


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
        """Return some arcs (circuits in one direction) of every rank, as senders and receivers.

        They are `n_arcs` of the d arcs that lead to each rank, from number `first_arc` on. With
        degree d, d arcs lead to each rank z, from the ranks d z to d z + d - 1, modulo the number
        of ranks. With 8 ranks and d = 2, rank 3 hears from 6 and 7, and rank 5 from 2 and 3.
        """
        # head[arc] is the rank z to which an arc leads, and tail[arc] the one it comes from.
        head = np.repeat(np.arange(self.n), n_arcs)
        digit = np.tile(np.arange(first_arc, first_arc + n_arcs), self.n)
        tail = (self.degree * head + digit) % self.n
        if self.is_against:
            return Arcs(head, tail)
        return Arcs(tail, head)

    def list_steps(self) -> list[Arcs]:
        """List the arcs that carry sums in each of the D rounds; D is the length of a walk."""
        steps = [self.arcs(self.degree)] * (self.n_steps - 1)
        last_step = self.arcs(self.last_digit, self.first_arc)
        if self.is_against:
            return [last_step, *steps]
        return [*steps, last_step]

    def roots(self, number: int, n_classes: int) -> BoolArray:
        """Return the ranks that get the sum of a chunk, and then tell it to all others.

        Ranks are divided into `n_classes` of equal size, and those of class `number` are the
        roots: ranks that are `n_classes` apart along the arcs, ranks in a row against them. With 8
        ranks and 2 classes the roots of chunk 0 are 0, 2, 4 and 6 along the arcs, and 0 to 3
        against them.
        """
        ranks = np.arange(self.n)
        class_of_rank = ranks % n_classes
        if self.is_against:
            class_of_rank = ranks * n_classes // self.n
        return np.equal(class_of_rank, number)


def find_walk_graph(n: int, degree: int) -> WalkGraph | None:
    """Return the de Bruijn graph in which walks of equal length lead from all ranks to each rank.

    The result is None if n is not such a number.

    Example: 32 ranks of degree 4 have walks of 3 steps, the last of which has 2 choices, as 32 = 2
    * 4**2.
    """
    if degree < 2 or n <= degree:
        return None

    # Divide by the degree as often as leaves c, a number from 2 to the degree.
    n_steps = 1
    left = n
    while left > degree:
        if left % degree:
            return None
        left //= degree
        n_steps += 1
    return WalkGraph(n, degree, n_steps, last_digit=left)


def list_walk_offers(problem: Collective, clock: Clock) -> Iterator[Offer[Laid]]:
    """List all-reduces over a de Bruijn graph of circuits that stay, before they are made.

    There is one offer for each number of chunks, 1, d, d^2 and so on, where d is the degree: more
    chunks carry fewer bytes over each circuit, in more rounds. It ends when the rounds cost more
    than they save. Nothing is offered without a graph of degree 2 or more.
    """
    # The largest degree that the ports hold and whose walks add up all ranks. With two-way
    # circuits a rank needs ports for those that lead to it, and for those that lead to others.
    most_degree = problem.lanes // 2 if problem.two_way else problem.lanes
    graphs = (find_walk_graph(problem.n_ranks, degree) for degree in range(most_degree, 1, -1))
    graph = next((graph for graph in graphs if graph is not None), None)
    if graph is None:
        return
    topology = lay_family(problem, graph.degree, "de-bruijn")
    if topology is None:
        return
    if not problem.two_way:  # rank z has to hear from d z + k, not to send to it
        reversed_peer = inverse_circuits(topology.peer, two_way=False)
        topology = Topology(topology.name, reversed_peer)
    round_s = problem.round_s

    # The numbers of classes into which ranks are divided, with a chunk each: 1, d, d^2, ... With
    # one class all ranks are roots.
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


def _list_rounds(
    problem: Collective, graph: WalkGraph, topology: Topology, n_classes: int
) -> Rounds:
    """List the rounds of an all-reduce over a de Bruijn graph of circuits that stay.

    The sum of a chunk of the buffer goes along the circuits to some ranks, its roots, and spreads
    from there to all others. How the buffer is cut:

    1. into *parts* that use different circuits in the last step of the sums, or the same circuits
       in the opposite direction. There is one part if neither is possible;
    2. each part into a chunk for each of the `n_classes` of ranks, which are its roots.
    """
    # If the last step uses c of the d arcs, and c divides d, other chunks use the others. Sums of
    # ranks in a row begin at another rank then, but they still are all ranks once.
    graphs = [graph]
    if graph.degree % graph.last_digit == 0:
        first_arcs = range(0, graph.degree, graph.last_digit)
        graphs = [graph._replace(first_arc=first_arc) for first_arc in first_arcs]
    if problem.two_way:
        graphs += [each._replace(is_against=True) for each in graphs]

    # All chunks begin in round 0.
    rows_of_round: dict[int, list[IntArray]] = {}
    for part, graph_of_part in enumerate(graphs):
        for number in range(n_classes):
            roots = graph_of_part.roots(number, n_classes)
            sends = [
                *_add_up_along_walks(graph_of_part, roots),
                *_copy_from_roots(graph_of_part, roots, number),
            ]

            chunk = part * n_classes + number
            for turn, (source, target, kind) in enumerate(sends):
                rows = list_rows(turn, source, target, chunk, kind)
                rows_of_round.setdefault(turn, []).append(rows)
    sends_of_rounds = [rows for turn in sorted(rows_of_round) for rows in rows_of_round[turn]]
    matchings = [topology.peer] * len(rows_of_round)
    return Rounds(np.concatenate(sends_of_rounds), len(graphs) * n_classes, matchings)


def _add_up_along_walks(graph: WalkGraph, roots: BoolArray) -> list[Sends]:
    """List the sends of one chunk by which its roots get the sum of all ranks.

    The graph has arcs, circuits in one direction. In each round ranks send their sum over their
    arcs, and replace it by the sum of all that comes (kind ``REPLACE``). After D rounds a rank has
    the sum of all ranks from which a walk of D arcs leads to it: that is each rank once.

    A rank with a *loop* would have an arc to itself. It keeps its sum, as if that came over the
    loop, and adds what comes over other arcs to it (kind ``REDUCE``).

    Only sums that are wanted are sent: those from which a walk of the rest of the rounds leads to
    a root.
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
    sends: list[Sends] = []
    has_sum = np.ones(graph.n, dtype=np.bool_)
    for arcs, is_wanted in zip(steps, is_wanted_after, strict=True):
        is_used = is_wanted[arcs.target] & has_sum[arcs.source]
        source = arcs.source[is_used]
        target = arcs.target[is_used]
        has_sum = np.zeros(graph.n, dtype=np.bool_)
        has_sum[target] = True

        # A loop is no send; it only decides what its rank does with the sends that come.
        is_loop = source == target
        has_loop = np.zeros(graph.n, dtype=np.bool_)
        has_loop[target[is_loop]] = True
        kind = np.where(has_loop[target], REDUCE, REPLACE)
        sends.append((source[~is_loop], target[~is_loop], kind[~is_loop]))
    return sends


def _copy_from_roots(graph: WalkGraph, roots: BoolArray, number: int) -> list[Sends]:
    """List the sends by which the whole sum of a chunk spreads from its roots, breadth first.

    In each round all ranks that lack the sum, and have a circuit from a rank that has it, get a
    copy of it over one such circuit. ``roots[rank]`` have it at first. The `number` of the chunk
    turns the choice of circuits, so that chunks take different ones.
    """
    sends: list[Sends] = []
    is_informed = roots.copy()
    arcs = graph.arcs(graph.degree)
    while not is_informed.all():
        # The arcs from a rank with the sum to one without it. Each rank takes the first arc that
        # leads to it in a list that begins at another place for each chunk.
        useful = np.flatnonzero(is_informed[arcs.source] & ~is_informed[arcs.target])
        order = np.roll(useful, -number)
        _, first_of_target = np.unique(arcs.target[order], return_index=True)
        used = order[first_of_target]
        is_informed[arcs.target[used]] = True
        sends.append((arcs.source[used], arcs.target[used], COPY))
    return sends

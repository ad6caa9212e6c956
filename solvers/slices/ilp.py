"""Method `ilp` for slices: the least load, proved by cuts or by trying all ways.

The load takes few values, so the question is asked for one after the other: is there a slice whose
edges all carry at most so much? A rack answers no by a cut, or yes or no by a depth-first search.
Racks that are joined answer as if they were one.

A *slice* is a torus of chips, cut into *slots* of a server each, whose *pairs* are joined by
circuits. An *edge* is the fibres from one server to another one, and its *load* the circuits on
it. Joined racks are linked by switches between racks.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import (
    Bound,
    Clock,
    InputError,
    Limit,
    Limits,
    NewBest,
    OnEvent,
    Solution,
    Tick,
)
from optmatch.problems import Allocation, LoadProof, SliceAllocation, SliceShape
from optmatch.problems.slices.problem import connect
from optmatch.problems.slices.shape import Shape, cut_shape
from optmatch.solvers.frame import stoppable
from optmatch.solvers.slices.kernels import BUDGET, FOUND
from optmatch.solvers.slices.methods import conclude_load, load_of, refuse
from optmatch.solvers.slices.pod import Pod, loads_possible, tell_apart
from optmatch.solvers.slices.search import Placement, Rack, SliceSearch

MOST = 16
"""The most nodes whose subsets are tried as cuts, and the most slots of a slice for that."""

MOST_JOINED = 32
"""Joined racks are searched as one, servers and routes of all of them."""

_NODES_OF_AN_ITERATION = 10_000
"""Nodes between two looks at the clock: a few milliseconds."""


def find_cut(rack: Rack, plan: SliceShape, server: Shape, largest_load: int) -> list[int] | None:
    """Find a cut: a set of servers which proves that a rack has no room for a slice.

    However the slice lies, circuits between its slots inside and outside the set have to pass the
    edges that leave the set, and those that enter it. There is no room if these are more circuits
    than the edges may carry; no edge may have more than `largest_load` of them, those of earlier
    slices included. `server` is the shape of a server in chips.

    All sets of nodes are tried, in time and memory :math:`O(2^n m)` for n nodes and m edges. The
    set that lacks the most fibres is returned, servers numbered from the first one of the rack,
    then switches; None if no set proves it, or if there are more than ``MOST`` nodes or slots.

    Example: two servers have room for 6 more circuits on the edges out of them, and two or three
    of the four slots have to lie on them. If 8 circuits leave each set of two or three slots, the
    two servers are a cut.
    """
    # Nodes are servers and switches; `members[subset, node]` and all below is by subset.
    n_nodes = int(rack.edges.max(initial=-1)) + 1
    if not n_nodes or n_nodes > MOST or plan.n_slots > MOST or not len(plan.pairs):
        return None

    # How many circuits fit on the edges out of each set, and into it. The pairs have multiples of
    # `step` circuits, which all take one route, so only multiples fit on an edge.
    step = int(np.gcd.reduce(plan.weights))
    free_fibres = np.maximum(np.minimum(largest_load, rack.fibres) - rack.loads, 0)
    usable_fibres = free_fibres // step * step
    members, leaving = _list_subsets(n_nodes, rack.edges.tobytes())
    room_out = leaving @ usable_fibres.astype(np.float32)

    # Edges into a set leave its complement. The complement of subset number k has all bits of k
    # inverted, which is number 2**n - 1 - k: the subsets in reverse order.
    room_in = room_out[::-1]

    # How many slots lie in each set: at most as many as it has free servers, and at least those
    # that the free servers outside it cannot take.
    is_free = np.zeros(n_nodes, dtype=np.float32)
    is_free[rack.servers] = 1
    n_free_inside = (members @ is_free).astype(np.int64)
    n_free_outside = len(rack.servers) - n_free_inside
    fewest_slots = np.maximum(0, plan.n_slots - n_free_outside)
    most_slots = np.minimum(plan.n_slots, n_free_inside)
    needed = _fewest_circuits_between(plan.shape, server, plan.twisted)[fewest_slots, most_slots]

    # The torus has as many circuits out of a set of slots as into it.
    missing = needed - np.minimum(room_out, room_in)
    worst = int(missing.argmax())
    if missing[worst] <= 0:
        return None
    return np.flatnonzero(members[worst]).tolist()


@lru_cache(maxsize=8)
def _list_subsets(n_nodes: int, edges: bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """List all subsets of nodes as bit masks: bit k of the number of a subset stands for node k.

    `edges` are the bytes of an int64 array (edges, 2), as results are cached. Returned are floats
    0 or 1, for quick products: ``members[subset, node]``, and ``leaving[subset, edge]``.
    """
    members = (np.arange(1 << n_nodes)[:, None] >> np.arange(n_nodes)) & 1
    ends = np.frombuffer(edges, dtype=np.int64).reshape(-1, 2)
    leaving = members[:, ends[:, 0]] > members[:, ends[:, 1]]
    return members.astype(np.float32), leaving.astype(np.float32)


@lru_cache(maxsize=64)
def _fewest_circuits_between(shape: Shape, server: Shape, twisted: bool) -> NDArray[np.int64]:
    """Return ``fewest[a, b]``: the fewest circuits out of a set of at least a and at most b slots.

    `shape` and `server` are the chips of the slice and of a server along each axis. The result has
    the shape (slots + 1, slots + 1); 0 where a > b.

    Example: 4 x 4 x 1 chips on servers of 2 x 2 x 1 are four slots. At least 8 circuits leave each
    set of one, two or three of them: ``fewest[1, 3]`` is 8.
    """
    plan = cut_shape(shape, server, twisted)
    n_slots = plan.n_slots

    # Sets of slots are bit masks: bit k of a mask stands for slot k. A circuit leaves a set if its
    # source is a member and its destination is not.
    sets = np.arange(1 << n_slots)
    leaving = np.zeros(len(sets), dtype=np.int64)
    for (source, destination), weight in zip(
        plan.pairs.tolist(), plan.weights.tolist(), strict=True
    ):
        has_source = sets >> source & 1
        has_destination = sets >> destination & 1
        leaving += weight * (has_source > has_destination)

    # The minimum for each exact size, then for each range of sizes.
    size_of_set = sum(((sets >> slot & 1) for slot in range(n_slots)), np.zeros_like(sets))
    fewest_of_size = [int(leaving[size_of_set == size].min()) for size in range(n_slots + 1)]
    fewest = np.zeros((n_slots + 1, n_slots + 1), dtype=np.int64)
    for least_size in range(n_slots + 1):
        fewest[least_size, least_size:] = np.minimum.accumulate(fewest_of_size[least_size:])
    return fewest


class Refutation(NamedTuple):
    """The proof that no slice has a load of at most so much."""

    cuts: tuple[tuple[int, ...], ...]
    """Sets of servers that lack fibres; see `find_cut`."""
    searched: bool
    """Whether a search had to try all placements somewhere, as no cut was found there."""


def minimise_load(
    problem: SliceAllocation, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Place a slice with the least load on its busiest edge.

    An iteration is ``_NODES_OF_AN_ITERATION`` nodes of the search. The certificate is a
    `LoadProof`; where no cut shows the bound in some rack, ``stats["bound_by"]`` says that it was
    searched. `InputError` for joined racks of more than ``MOST_JOINED`` servers.
    """
    fabric = problem.fabric
    if fabric.joined and fabric.n_servers > MOST_JOINED:
        raise InputError(
            f"method = 'ilp': joined racks of at most {MOST_JOINED} servers in all, not of"
            f" {fabric.n_servers}; optical takes any number",
            where="method",
        )
    if math.isinf(problem.lower_bound()):
        return refuse(problem, "ilp")
    search = _LoadSearch(problem, limits.start(), on_event)
    with stoppable() as stop:
        search.run()
    if stop.limit is not None:
        search.limit = stop.limit
    return search.conclude()


class _LoadSearch:
    """One solve: the best slice so far, loads that are refuted, and why it stopped.

    Attributes
    ----------
    pod
        The racks with the slices that were there before.
    plans
        The slots and circuits of the slice, for each way to turn it that makes a difference.
    best
        The best slice so far.
    bound
        The proved lower bound on the load, in circuits; infinite if there is no slice.
    refutation
        The proof for the largest load that was refuted.
    limit
        Why the search stopped early; None while it has not.
    iterations, nodes
        Iterations begun, and nodes of all searches that have ended.
    """

    def __init__(self, problem: SliceAllocation, clock: Clock, on_event: OnEvent) -> None:
        self.problem = problem
        self.clock = clock
        self.on_event = on_event
        self.pod = Pod.of(problem)
        self.plans = tell_apart(list(problem.slice_shapes))
        self.best: Allocation | None = None
        self.bound = problem.lower_bound()
        self.refutation: Refutation | None = None
        self.limit: Limit | None = None
        self.iterations = 0
        self.nodes = 0

    def run(self) -> None:
        """Find the slice of least load, and prove that it is the least.

        Loads are tried from the smallest on. For each there is either a slice, which ends the
        search, or a proof that there is none, which raises `bound`; the bound is infinite if there
        is no slice.
        """
        # A quick slice first: loads at or above its own need no search.
        self.limit = self.clock.exceeded(0)
        if self.limit is not None:
            return
        self.on_event(Tick("search", 0))
        quick = Pod.of(self.problem).allocate(
            self.problem.shape, "optical", twisted=self.problem.twisted
        )
        if quick is not None:
            self._keep_best(quick)

        # A place is a tuple of racks that are searched as one: a single rack, or all racks where
        # they are joined. Loads that no slice can have on its busiest edge are left out.
        fabric = self.pod.fabric
        places: list[tuple[int, ...]] = [(rack,) for rack in self.pod.fullest_first(self.plans)]
        if fabric.joined:
            places = [tuple(range(fabric.racks))]
        possible_loads = {
            load
            for racks in places
            for plan in self.plans
            for load in loads_possible(self.pod.rack(*racks), plan)
        }
        loads = sorted(possible_loads) or [self._most_fibres()]

        # Each load is either refuted in all places, or a slice of it is found. The bound goes up
        # to the next load, or to that of the slice if this is less.
        for number, largest_load in enumerate(loads):
            if self._has_slice_of(largest_load):
                break
            is_decided = self._decide_load(places, largest_load)
            if not is_decided:  # a limit came first
                return
            next_load = loads[number + 1] if number + 1 < len(loads) else self._most_fibres() + 1
            self._raise_bound(float(next_load))

        # Now all loads below that of the best slice are refuted, or all loads if there is none.
        if self.best is None:
            self.bound = math.inf
        elif self.bound < load_of(self.problem, self.best):
            self._raise_bound(load_of(self.problem, self.best))

    def _most_fibres(self) -> int:
        """Return the fibres of the widest edge; no slice has a larger load."""
        return int(self.pod.fabric.edge_fibres.max(initial=0))

    def _has_slice_of(self, largest_load: int) -> bool:
        """Tell whether there is a slice already, the best one, of at most this load."""
        return self.best is not None and load_of(self.problem, self.best) <= largest_load

    def _keep_best(self, allocation: Allocation) -> None:
        """Keep a slice as the best so far, and report its load."""
        self.best = allocation
        self.on_event(NewBest(load_of(self.problem, allocation)))

    def _raise_bound(self, bound: float) -> None:
        """Take a higher bound over, at most the load of the best slice, and report it.

        One beyond all fibres says that there is no slice, and is not reported.
        """
        if self.best is not None:
            bound = min(bound, load_of(self.problem, self.best))
        if bound > self._most_fibres():
            self.bound = bound
        elif bound > self.bound:
            self.bound = bound
            self.on_event(Bound(bound))

    def _decide_load(self, places: list[tuple[int, ...]], largest_load: int) -> bool:
        """Find out whether there is a slice of at most this load; False if a limit came first.

        The slice becomes `best`, or the proof that there is none `refutation`. Each way to turn
        the slice is tried in each place, a tuple of racks that are searched as one. First a cut is
        looked for; without one the place is searched.
        """
        cuts: list[tuple[int, ...]] = []
        searched = False
        for racks in places:
            rack = self.pod.rack(*racks)
            first_server = racks[0] * self.pod.servers
            for plan in self.plans:
                # A cut costs milliseconds at most, a search may take minutes.
                cut = find_cut(rack, plan, self.pod.fabric.server, largest_load)
                if cut is not None:
                    cuts.append(tuple(first_server + server for server in cut))
                    continue
                searched = True
                placement = self._search_place(racks, plan, largest_load)
                if placement is not None:
                    fabric = self.problem.fabric
                    lit_fibres = self.problem.lit_fibres
                    servers = placement.servers
                    self._keep_best(connect(fabric, lit_fibres, plan, servers, placement.routes))
                    return True
                if self.limit is not None:
                    return False

        # No place has such a slice. The proof is the cuts, each of them once, and whether some
        # places were searched instead.
        self.refutation = Refutation(tuple(dict.fromkeys(cuts)), searched)
        return True

    def _search_place(
        self, racks: tuple[int, ...], plan: SliceShape, largest_load: int
    ) -> Placement | None:
        """Search all placements in one place; None if there is none, or at a `limit`.

        The servers and edges of the result are numbered in the whole pod.
        """
        search = SliceSearch(self.pod.rack(*racks), plan, self.problem.routes, largest_load)
        status = BUDGET
        while status == BUDGET:
            self.limit = self.clock.exceeded(self.iterations)
            if self.limit is not None:
                break
            self.iterations += 1
            self.on_event(Tick("search", self.iterations))
            status = search.run(search.nodes + _NODES_OF_AN_ITERATION)
        self.nodes += search.nodes
        if status != FOUND:
            return None
        return self.pod.globally(racks, search.answer())

    def conclude(self) -> Solution:
        """Make the solution, with a `LoadProof` if the bound is above the problem's own one.

        An infinite bound means that the slice has no place: then there is no answer, and the
        statistics say why.
        """
        # A bound that the problem counts itself needs no certificate.
        stats: dict[str, object] = {"nodes": self.nodes}
        proof = None
        refutation = self.refutation
        if refutation is not None and self.bound > self.problem.lower_bound():
            proved_load = self._most_fibres() + 1 if math.isinf(self.bound) else int(self.bound)
            proof = LoadProof(bound=proved_load, cuts=refutation.cuts)
            if refutation.searched:
                stats["bound_by"] = "search"

        # An infinite bound says that there is no slice; the reason says what shows it.
        best = self.best
        if math.isinf(self.bound):
            best = None
            shown_by = "a search of all ways"
            if refutation is not None and not refutation.searched:
                shown_by = "cuts"
            stats["reason"] = f"no servers and routes have enough fibres: shown by {shown_by}"
        parts: dict[str, Any] = {"certificate": proof, "stats": stats}
        return conclude_load(self.problem, "ilp", best, self.bound, self.limit, **parts)

"""Method `ilp` for slices: the least load, proved by cuts or by trying all ways.

The load takes few values, so the question is asked for one after the other: is there a slice whose
edges all carry at most so much? A rack answers no by a cut, or yes or no by the search of
`optmatch.solvers.slices.search`. Racks that are joined answer as if they were one.
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
from optmatch.solvers.slices.kernels import BUDGET, FOUND
from optmatch.solvers.slices.methods import conclude_load, load_of, refuse
from optmatch.solvers.slices.pod import Pod, loads_possible, tell_apart
from optmatch.solvers.slices.search import Placement, Rack, SliceSearch

MOST = 16
"""All subsets of so many servers, and of so many slots, are looked at."""


def find_cut(rack: Rack, plan: SliceShape, server: Shape, largest: int) -> list[int] | None:
    """Find a set of servers that shows that no slice in this rack has a load of at most `largest`.

    Of all sets the one that misses most, servers counted from the first of the rack, then
    switches, which count as servers that are not free; None if no set does, or there are more than
    ``MOST`` of them or of slots.

    What `optmatch.problems.LoadProof` states, for all sets at once: time and memory
    :math:`O(2^n m)` for n servers and m edges.
    """
    count = int(rack.edges.max(initial=-1)) + 1
    if not count or count > MOST or plan.n_slots > MOST or not len(plan.pairs):
        return None
    step = int(np.gcd.reduce(plan.weights))
    room = np.maximum(np.minimum(largest, rack.fibres) - rack.loads, 0) // step * step
    members, leaving = _subsets(count, rack.edges.tobytes())
    out = leaving @ room.astype(np.float32)
    free = np.zeros(count, dtype=np.float32)
    free[rack.servers] = 1
    within = (members @ free).astype(np.int64)
    total, slots = len(rack.servers), plan.n_slots
    least = np.maximum(0, slots - total + within)
    most = np.minimum(slots, within)
    needed = _fewest_between(plan.shape, server, plan.twisted)[least, most]
    missing = needed - np.minimum(out, out[::-1])  # the complement of a set: what arrives there
    worst = int(missing.argmax())
    return np.flatnonzero(members[worst]).tolist() if missing[worst] > 0 else None


@lru_cache(maxsize=8)
def _subsets(count: int, edges: bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Tell for each set of servers its members, and the edges that leave it."""
    members = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
    ends = np.frombuffer(edges, dtype=np.int64).reshape(-1, 2)
    leaving = members[:, ends[:, 0]] > members[:, ends[:, 1]]
    return members.astype(np.float32), leaving.astype(np.float32)


@lru_cache(maxsize=64)
def _fewest_between(shape: Shape, server: Shape, twisted: bool) -> NDArray[np.int64]:
    """Return ``fewest[a, b]``: circuits that leave any set of a to b slots, at least."""
    plan = cut_shape(shape, server, twisted)
    sets = np.arange(1 << plan.n_slots)
    leaving = np.zeros(len(sets), dtype=np.int64)
    for (a, b), weight in zip(plan.pairs.tolist(), plan.weights.tolist(), strict=True):
        leaving += weight * ((sets >> a & 1) > (sets >> b & 1))
    sizes = sum(((sets >> slot & 1) for slot in range(plan.n_slots)), np.zeros_like(sets))
    single = [int(leaving[sizes == size].min()) for size in range(plan.n_slots + 1)]
    fewest = np.zeros((len(single), len(single)), dtype=np.int64)
    for a in range(len(single)):
        fewest[a, a:] = np.minimum.accumulate(single[a:])
    return fewest


_SLICE = 10_000  # nodes between two looks at the clock: a few milliseconds
MOST_JOINED = 32
"""Joined racks are searched as one, servers and routes of all of them."""


class Refutation(NamedTuple):
    """Why no slice keeps a load."""

    cuts: tuple[tuple[int, ...], ...]
    searched: bool  # whether cuts did not suffice


def solve(
    problem: SliceAllocation, limits: Limits, rng: np.random.Generator, on_event: OnEvent
) -> Solution:
    """Place a slice with the least load on its busiest edge.

    An iteration is so many steps of the search as take a few milliseconds. The certificate is a
    `LoadProof`; where no cut shows the bound in some rack, ``stats["bound_by"]`` says that it was
    searched. Joined racks of more than ``MOST_JOINED`` servers raise `InputError`.
    """
    bound, fabric = problem.lower_bound(), problem.fabric
    if fabric.joined and fabric.n_servers > MOST_JOINED:
        raise InputError(
            f"method = 'ilp': joined racks of at most {MOST_JOINED} servers in all, not of"
            f" {fabric.n_servers}; optical takes any number",
            where="method",
        )
    if math.isinf(bound):
        return refuse(problem, "ilp")
    run = _Run(problem, limits.start(), on_event)
    try:
        run.go()
    except KeyboardInterrupt:
        run.limit = Limit.INTERRUPTED
    return run.solution()


class _Run:
    """One solve: the best so far, refuted loads, and why it stopped."""

    def __init__(self, problem: SliceAllocation, clock: Clock, on_event: OnEvent) -> None:
        self.problem, self.clock, self.on_event = problem, clock, on_event
        self.pod = Pod.of(problem)
        self.plans = tell_apart(list(problem.slice_shapes))
        self.best: Allocation | None = None
        self.bound = problem.lower_bound()
        self.proof: Refutation | None = None
        self.limit: Limit | None = None
        self.iterations = self.nodes = 0

    def go(self) -> None:
        """Raise the load until a slice keeps it; a first one, quickly found, says where to end."""
        self.limit = self.clock.exceeded(0)
        if self.limit is not None:
            return
        self.on_event(Tick("search", 0))
        places: list[tuple[int, ...]] = [(rack,) for rack in self.pod.fullest_first(self.plans)]
        if self.pod.fabric.joined:
            places = [tuple(range(self.pod.fabric.racks))]
        self.best = Pod.of(self.problem).allocate(
            self.problem.shape, "optical", twisted=self.problem.twisted
        )
        if self.best is not None:
            self.on_event(NewBest(load_of(self.problem, self.best)))
        values = {
            value
            for racks in places
            for plan in self.plans
            for value in loads_possible(self.pod.rack(*racks), plan)
        }
        most = int(self.pod.fabric.edge_fibres.max(initial=0))
        for largest in sorted(values) or [most]:
            if self.best is not None and load_of(self.problem, self.best) <= largest:
                break
            if not self._settle(places, largest):
                return
            if self.best is not None and load_of(self.problem, self.best) <= largest:
                break
            higher = [value for value in values if value > largest]
            self._raise_bound(float(min(higher, default=most + 1)))
        if self.best is None:
            self.bound = math.inf
        elif self.bound < load_of(self.problem, self.best):
            self._raise_bound(load_of(self.problem, self.best))

    def _raise_bound(self, bound: float) -> None:
        most = int(self.pod.fabric.edge_fibres.max(initial=0))
        if self.best is not None:
            bound = min(bound, load_of(self.problem, self.best))
        if self.bound < bound <= most:
            self.bound = bound
            self.on_event(Bound(bound))
        elif bound > most:
            self.bound = bound

    def _settle(self, places: list[tuple[int, ...]], largest: int) -> bool:
        """Find a slice with at most this load or refute it in every place; False if cut short."""
        cuts: list[tuple[int, ...]] = []
        searched = False
        for racks in places:
            for plan in self.plans:
                there = self.pod.rack(*racks)
                cut = find_cut(there, plan, self.pod.fabric.server, largest)
                if cut is not None:
                    cuts.append(tuple(server + racks[0] * self.pod.servers for server in cut))
                    continue
                searched = True
                found = self._search(racks, plan, largest)
                if found is not None:
                    lit = self.problem.lit_fibres
                    self.best = connect(
                        self.problem.fabric, lit, plan, found.servers, found.routes
                    )
                    self.on_event(NewBest(load_of(self.problem, self.best)))
                    return True
                if self.limit is not None:
                    return False
        self.proof = Refutation(tuple(dict.fromkeys(cuts)), searched)
        return True

    def _search(self, racks: tuple[int, ...], plan: SliceShape, largest: int) -> Placement | None:
        there = self.pod.rack(*racks)
        search = SliceSearch(there, plan, self.problem.routes, largest)
        status = BUDGET
        while status == BUDGET:
            self.limit = self.clock.exceeded(self.iterations)
            if self.limit is not None:
                break
            self.iterations += 1
            self.on_event(Tick("search", self.iterations))
            status = search.run(search.nodes + _SLICE)
        self.nodes += search.nodes
        return self.pod.globally(racks, search.answer()) if status == FOUND else None

    def solution(self) -> Solution:
        """Put the best slice and the proved bound together."""
        stats: dict[str, object] = {"nodes": self.nodes}
        proof = None
        if self.proof is not None and self.bound > self.problem.lower_bound():
            most = int(self.pod.fabric.edge_fibres.max(initial=0))
            stated = most + 1 if math.isinf(self.bound) else int(self.bound)
            proof = LoadProof(bound=stated, cuts=self.proof.cuts)
            if self.proof.searched:
                stats["bound_by"] = "search"
        if math.isinf(self.bound):
            by = "cuts" if self.proof and not self.proof.searched else "a search of all ways"
            stats["reason"] = f"no servers and routes have enough fibres: shown by {by}"
        best = None if math.isinf(self.bound) else self.best
        known: dict[str, Any] = {"certificate": proof, "stats": stats}
        return conclude_load(self.problem, "ilp", best, self.bound, self.limit, **known)

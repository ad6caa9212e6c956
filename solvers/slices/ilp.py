"""Method `ilp` for slices: the least load, proved by cuts or by trying all ways.

The load takes few values, so the question is asked for one after the other: is there a slice whose
edges all carry at most so much? A rack answers no by a cut, or yes or no by the search of
`optmatch.solvers.slices.search`. Racks that are joined answer as if they were one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

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
from optmatch.solvers.slices.cuts import find_cut
from optmatch.solvers.slices.kernels import BUDGET, FOUND
from optmatch.solvers.slices.methods import conclude_load, load_of, refuse
from optmatch.solvers.slices.pod import Pod, loads_possible, tell_apart
from optmatch.solvers.slices.search import Placement, SliceSearch

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
    """One solve: the best so far, what is refuted, and why it stopped."""

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
        self.best = Pod.of(self.problem).allocate(self.problem.shape, "optical")
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
        """Put together what is known."""
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

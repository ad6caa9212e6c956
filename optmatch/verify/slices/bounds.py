"""Lower bounds of the load of slices: by counting, by cuts, and by trying all ways there are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations, product
from typing import NamedTuple

import numpy as np

from optmatch.fabrics import RackFabric
from optmatch.problems import LoadProof, SliceAllocation
from optmatch.verify.report import ProofError

MOST_SLOTS = 16
"""All sets of so many slots are looked at."""
MOST_STEPS = 60_000
"""The most steps that are made to try all ways in one rack."""

Shape = tuple[int, int, int]


class Torus(NamedTuple):
    """A slice as slots that exchange light."""

    shape: Shape
    """The sides of the slice in chips."""
    slots: int
    weights: dict[tuple[int, int], int]
    """Circuits by slot and slot."""
    sides: Shape
    even: bool
    """Whether all slots hold equally many chips, so that it looks the same from each of them."""


def neighbour(shape: Shape, twisted: bool, place: Shape, axis: int, step: int) -> Shape | None:
    """Return the chip next to one in a torus, perhaps a twisted one; None if there is none."""
    side, longest, at = shape[axis], max(shape), place[axis] + step
    around, short = not 0 <= at < side, twisted and shape[axis] < max(shape)
    if side == 1 or (side == 2 and around and not short):
        return None
    there = [*place]
    there[axis] = at % side
    for other, most in enumerate(shape):
        if around and short and most == longest:
            there[other] = (there[other] + side) % most
    return there[0], there[1], there[2]


@lru_cache(maxsize=64)
def measure(shape: Shape, server: Shape, twisted: bool = False) -> Torus:
    """Count the circuits between the slots of a slice, axis by axis."""
    x, y, z = _sides(shape, server)
    weights: dict[tuple[int, int], int] = {}
    for px, py, pz in product(*map(range, shape)):
        here = _slot((px, py, pz), server, (x, y, z))
        for axis, step in product(range(3), (-1, 1)):
            chip = neighbour(shape, twisted, (px, py, pz), axis, step)
            there = here if chip is None else _slot(chip, server, (x, y, z))
            if there != here:
                weights[here, there] = weights.get((here, there), 0) + 1
    even = all(side % part == 0 or side < part for side, part in zip(shape, server, strict=True))
    return Torus(shape, x * y * z, weights, (x, y, z), even)


def _sides(shape: Sequence[int], server: Shape) -> Shape:
    x, y, z = (math.ceil(side / part) for side, part in zip(shape, server, strict=True))
    return x, y, z


def _slot(place: tuple[int, ...], server: Shape, sides: Shape) -> int:
    x, y, z = (at // part for at, part in zip(place, server, strict=True))
    return x + sides[0] * (y + sides[1] * z)


def _fits(grid: Sequence[int], fabric: RackFabric) -> bool:
    """Tell whether a torus of slots fits into a rack, or joined racks have servers enough."""
    if fabric.joined:
        return math.prod(grid) <= fabric.n_servers
    return all(side <= most for side, most in zip(grid, fabric.server_grid, strict=True))


def _places(problem: SliceAllocation) -> list[list[int]]:
    """List the free servers on which a slice can lie together: of a rack, or of all joined."""
    free = problem.free_servers.tolist()
    if problem.fabric.joined:
        return [free]
    racks = problem.fabric.server_coordinates[:, 0].tolist()
    return [
        [server for server in free if racks[server] == rack]
        for rack in range(problem.fabric.racks)
    ]


def bound_load(problem: SliceAllocation) -> float:
    """Bound the load by the circuits of one pair of slots; infinite without servers enough."""
    tori = list_tori(problem)
    most = max(map(len, _places(problem)))
    fitting = [torus for torus in tori if torus.slots <= most]
    return min(
        (float(max(torus.weights.values(), default=0)) for torus in fitting), default=math.inf
    )


def list_tori(problem: SliceAllocation) -> list[Torus]:
    """List the slice as it may be turned; of those that fit, the ones with the fewest slots."""
    fabric = problem.fabric
    fitting = [
        measure(shape, fabric.server, problem.twisted)
        for shape in dict.fromkeys(permutations(problem.shape))
        if _fits(_sides(shape, fabric.server), fabric)
    ]
    return [torus for torus in fitting if torus.slots == min(each.slots for each in fitting)]


def check_load_proof(problem: SliceAllocation, proof: object) -> float:
    """Return the bound that a proof shows; infinite if it shows that there is no slice.

    A `ProofError` if it is of another kind, or a cut names no servers of one rack, or nothing that
    joined racks have.
    """
    if not isinstance(proof, LoadProof):
        raise ProofError(f"a {type(proof).__name__} says nothing of loads")
    fabric = problem.fabric
    most = int(fabric.edge_fibres.max(initial=0))
    racks = fabric.server_coordinates[:, 0].tolist()
    by_place: dict[int, list[tuple[int, ...]]] = {}
    for cut in proof.cuts:
        if max(cut) >= fabric.n_servers + fabric.n_rack_switches:
            raise ProofError(f"a cut names {max(cut)}, which is no server and no switch")
        within = {0} if fabric.joined else {racks[server] for server in cut}
        if len(within) != 1:
            raise ProofError("a cut is no set of servers of one rack")
        by_place.setdefault(within.pop(), []).append(cut)
    for (place, servers), torus in product(enumerate(_places(problem)), list_tori(problem)):
        if torus.slots <= len(servers):
            asked = problem, torus, servers, proof.bound - 1
            refuted = any(_cut_refutes(*asked, cut) for cut in by_place.get(place, []))
            if not refuted and not _refuted_by_trying(*asked):
                return 0.0
    return math.inf if proof.bound > most else float(proof.bound)


def _cut_refutes(
    problem: SliceAllocation, torus: Torus, servers: list[int], limit: int, cut: tuple[int, ...]
) -> bool:
    """Tell whether fewer circuits fit over the border of a set of servers than must pass it."""
    if torus.slots > MOST_SLOTS or not torus.weights:
        return False
    step = math.gcd(*torus.weights.values())
    fabric, inside = problem.fabric, set(cut)
    out = into = 0
    room = np.minimum(limit, fabric.edge_fibres) - problem.loads
    for (u, v), left in zip(fabric.edges.tolist(), room.tolist(), strict=True):
        if (u in inside) != (v in inside) and left >= step:
            if u in inside:
                out += left // step * step
            else:
                into += left // step * step
    within = sum(server in inside for server in servers)
    least = max(0, torus.slots - len(servers) + within)
    return min(out, into) < min(_border(torus)[least : within + 1])


def _border(torus: Torus) -> list[int]:
    """Return, for each number k, the fewest circuits that leave any k of the slots."""
    sets = np.arange(1 << torus.slots)
    leaving = np.zeros(len(sets), dtype=np.int64)
    for (a, b), weight in torus.weights.items():
        leaving += weight * ((sets >> a & 1) > (sets >> b & 1))
    counts = sum((sets >> slot & 1 for slot in range(torus.slots)), np.zeros_like(sets))
    return [int(leaving[counts == count].min()) for count in range(torus.slots + 1)]


def _refuted_by_trying(
    problem: SliceAllocation, torus: Torus, servers: list[int], limit: int
) -> bool:
    """Tell whether no servers and routes keep the load; False also after too many steps."""
    attempt = _Attempt(problem, torus, servers, limit)
    try:
        return not any(attempt.place(0))
    except _TooMany:
        return False


class _TooMany(Exception):
    """There are too many ways to try."""


class _Attempt:
    """All ways to put the slots of a slice on some servers, with a route for each pair."""

    def __init__(
        self, problem: SliceAllocation, torus: Torus, servers: list[int], limit: int
    ) -> None:
        self.problem, self.torus, self.servers = problem, torus, servers
        room = np.minimum(limit, problem.fabric.edge_fibres) - problem.loads
        self.room: list[int] = room.tolist()
        self.at: list[int] = []
        self.owes = [[0, 0] for _ in range(torus.slots)]
        for (a, b), weight in torus.weights.items():
            self.owes[a][0] += weight
            self.owes[b][1] += weight
        self.leaving: dict[int, list[int]] = {server: [] for server in servers}
        self.arriving: dict[int, list[int]] = {server: [] for server in servers}
        for edge, (u, v) in enumerate(problem.fabric.edges.tolist()):
            if u in self.leaving:
                self.leaving[u].append(edge)
            if v in self.arriving:
                self.arriving[v].append(edge)
        self.offered: dict[tuple[int, int, int], list[tuple[int, ...]]] = {}
        self.steps = 0

    def place(self, slot: int) -> Iterator[bool]:
        """Yield True for each way to place this slot and all after it."""
        if slot == self.torus.slots:
            yield True
            return
        for server in self.servers:
            # An even torus looks the same from each slot: slot 0 may have the smallest server.
            if server in self.at or (slot and self.torus.even and server < self.at[0]):
                continue
            self.at.append(server)
            if self.can_go_on():
                jobs = [pair for pair in self.torus.weights if max(pair) == slot]
                yield from self.route(slot, jobs)
            self.at.pop()

    def route(self, slot: int, jobs: list[tuple[int, int]]) -> Iterator[bool]:
        """Yield True for each way to route these pairs and place the slots that follow."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise _TooMany
        if not jobs:
            yield from self.place(slot + 1)
            return
        (a, b), weight = jobs[0], self.torus.weights[jobs[0]]
        for way in self.candidates(self.at[a], self.at[b], weight):
            if all(self.room[edge] >= weight for edge in way):
                self.pass_(way, (a, b), weight)
                if self.can_go_on():
                    yield from self.route(slot, jobs[1:])
                self.pass_(way, (a, b), -weight)

    def candidates(self, source: int, destination: int, weight: int) -> list[tuple[int, ...]]:
        """Look the offered routes up once."""
        key = source, destination, weight
        if key not in self.offered:
            self.offered[key] = self.problem.candidates(*key)
        return self.offered[key]

    def pass_(self, way: tuple[int, ...], pair: tuple[int, int], weight: int) -> None:
        """Take room on the edges of a way, or give it back."""
        for edge in way:
            self.room[edge] -= weight
        self.owes[pair[0]][0] -= weight
        self.owes[pair[1]][1] -= weight

    def can_go_on(self) -> bool:
        """Tell whether each placed slot still has room for circuits that leave and arrive."""
        return all(
            sum(max(0, self.room[edge]) for edge in edges) >= owed
            for server, owes in zip(self.at, self.owes, strict=False)
            for edges, owed in zip(
                (self.leaving[server], self.arriving[server]), owes, strict=True
            )
        )

"""Lower bounds of the load of slices: by counting, by cuts, and by trying all placements.

1. One pair (`bound_load`): all circuits of a pair of slots take one route, so that the load is at
   least theirs; there is no answer if no rack has the servers.
2. A cut (`_cut_refutes`): whichever slots lie in a set of servers, at least so many circuits leave
   it (`_border` tries all sets), and at a lower load fewer fit over its edges.
3. All placements (`_refuted_by_trying`): depth-first search; out of steps it proves nothing.

A *turn* of a slice is its sides in some order, such as 4 x 8 x 4 of 4 x 4 x 8; a *place* is the
servers that it may lie on: those of one rack, or of all racks if they are joined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import permutations, product
from typing import NamedTuple

import numpy as np

from optmatch.problems import LoadProof, SliceAllocation
from optmatch.verify.report import ProofError

MOST_SLOTS = 16
"""All sets of so many slots are looked at."""
MOST_STEPS = 60_000
"""The most steps that are made to try all placements in one rack."""

Shape = tuple[int, int, int]
"""A place or a size along the three axes."""


class Torus(NamedTuple):
    """A slice as slots that exchange light; a slot is the part of the slice on one server."""

    shape: Shape
    """The sides of the slice in chips."""
    slots: int
    """How many slots there are, numbered from 0."""
    weights: dict[tuple[int, int], int]
    """``weights[slot, slot]``: the number of circuits from one to the other."""
    sides: Shape
    """The sides of the slice in slots."""
    even: bool
    """Whether all slots hold equally many chips, so that it looks the same from each of them."""


def neighbour(shape: Shape, twisted: bool, place: Shape, axis: int, step: int) -> Shape | None:
    """Find the chip next to one along an axis (0 to 2) and step (-1, 1); None without one.

    `shape` has the sides of the slice in chips, and `place` is that of the first chip. On the way
    around a side that is shorter than the longest one, a twisted torus also moves on by the short
    side along all longest sides: in one of 4 x 4 x 8, the way around from (3, 0, 1) leads to
    (0, 0, 5). A side of one chip has no neighbours, and one of two no second circuit unless the
    way around is twisted.
    """
    side = shape[axis]
    longest = max(shape)
    position = place[axis] + step
    goes_around = not 0 <= position < side
    is_shifted = twisted and goes_around and side < longest
    if side == 1 or (side == 2 and goes_around and not is_shifted):
        return None
    moved = list(place)
    moved[axis] = position % side
    if is_shifted:
        for other, other_side in enumerate(shape):
            if other_side == longest:
                moved[other] = (moved[other] + side) % other_side
    return moved[0], moved[1], moved[2]


@lru_cache(maxsize=64)
def measure(shape: Shape, server: Shape, twisted: bool = False) -> Torus:
    """Count the circuits between the slots of a slice; those within a server are not counted.

    `shape` is that of the slice in chips, and `server` that of a server.
    """
    sides = _sides(shape, server)
    weights: dict[tuple[int, int], int] = {}
    for x, y, z in product(*map(range, shape)):
        slot = slot_of((x, y, z), server, sides)
        for axis, step in product(range(3), (-1, 1)):
            chip = neighbour(shape, twisted, (x, y, z), axis, step)
            if chip is None:
                continue
            pair = (slot, slot_of(chip, server, sides))
            if pair[0] != pair[1]:
                weights[pair] = weights.get(pair, 0) + 1
    even = all(side % part == 0 or side < part for side, part in zip(shape, server, strict=True))
    return Torus(shape, math.prod(sides), weights, sides, even)


def _sides(shape: Sequence[int], server: Shape) -> Shape:
    """Return the sides of a slice in slots."""
    x, y, z = (math.ceil(side / part) for side, part in zip(shape, server, strict=True))
    return x, y, z


def slot_of(chip: Shape, server: Shape, sides: Shape) -> int:
    """Return the number of the slot of a chip, given its place; the first axis counts fastest.

    `sides` are those of the slice in slots. With servers of 2 x 2 x 1 chips and 2 x 2 x 4 slots,
    chip (3, 0, 1) is in the slot at (1, 0, 1), which is number 1 + 2 * (0 + 2 * 1) = 5.
    """
    x, y, z = (position // part for position, part in zip(chip, server, strict=True))
    return x + sides[0] * (y + sides[1] * z)


def _places(problem: SliceAllocation) -> list[list[int]]:
    """List the free servers of each place: of each rack, or of all joined racks together."""
    free_servers = problem.free_servers.tolist()
    if problem.fabric.joined:
        return [free_servers]
    servers_of_rack: list[list[int]] = [[] for _ in range(problem.fabric.racks)]
    for server in free_servers:
        rack = int(problem.fabric.server_coordinates[server, 0])
        servers_of_rack[rack].append(server)
    return servers_of_rack


def bound_load(problem: SliceAllocation) -> float:
    """Bound the load from below by the circuits of the pair of slots with most.

    Among turns of the slice that some rack (of joined racks, all together) has servers for, the
    one with the least bound counts; infinite if there is none.
    """
    most_servers = max(len(servers) for servers in _places(problem))
    bounds = [
        float(max(torus.weights.values(), default=0))
        for torus in list_tori(problem)
        if torus.slots <= most_servers
    ]
    return min(bounds, default=math.inf)


def list_tori(problem: SliceAllocation) -> list[Torus]:
    """List the slice as it may be turned; of those that fit, the ones with the fewest slots.

    It has to fit into a rack, or, where racks are joined, these have to have servers enough. Free
    or not, all servers count.
    """
    fabric = problem.fabric
    fitting = []
    for shape in dict.fromkeys(permutations(problem.shape)):
        sides = _sides(shape, fabric.server)
        fits = all(side <= most for side, most in zip(sides, fabric.server_grid, strict=True))
        if fabric.joined:
            fits = math.prod(sides) <= fabric.n_servers
        if fits:
            fitting.append(measure(shape, fabric.server, problem.twisted))
    fewest = min((torus.slots for torus in fitting), default=0)
    return [torus for torus in fitting if torus.slots == fewest]


# Certificates: cuts, and trying all placements


def check_load_proof(problem: SliceAllocation, proof: object) -> float:
    """Return the lower bound of the load that a certificate shows; a wrong one is a `ProofError`.

    The load is the number of circuits on the busiest edge that the slice uses, those of other
    slices included. The bound b, ``proof.bound``, holds if loads up to b - 1 are refuted for each
    place and each turn of the slice, by one of ``proof.cuts`` or by trying all placements. 0 if
    one of them is not; infinite if b exceeds the fibres of every edge: then there is no answer.
    """
    if not isinstance(proof, LoadProof):
        raise ProofError(f"a {type(proof).__name__} says nothing of loads")

    # The cuts of each rack, or of place 0 if racks are joined. A cut is the numbers of servers and
    # switches on its side.
    fabric = problem.fabric
    rack_of_server = fabric.server_coordinates[:, 0].tolist()
    n_nodes = fabric.n_servers + fabric.n_rack_switches
    cuts_of_place: dict[int, list[tuple[int, ...]]] = {}
    for cut in proof.cuts:
        if max(cut) >= n_nodes:
            raise ProofError(f"a cut names {max(cut)}, which is no server and no switch")
        racks = {0} if fabric.joined else {rack_of_server[server] for server in cut}
        if len(racks) != 1:
            raise ProofError("a cut is no set of servers of one rack")
        cuts_of_place.setdefault(racks.pop(), []).append(cut)

    # `servers` are the free servers of a place, and `tori` the turns that they have slots for.
    for place, servers in enumerate(_places(problem)):
        tori = [torus for torus in list_tori(problem) if torus.slots <= len(servers)]
        for torus in tori:
            cuts = cuts_of_place.get(place, [])
            limit = proof.bound - 1
            refuted = any(_cut_refutes(problem, torus, servers, limit, cut) for cut in cuts)
            if not refuted and not _refuted_by_trying(problem, torus, servers, limit):
                return 0.0
    most_fibres = int(fabric.edge_fibres.max(initial=0))
    return math.inf if proof.bound > most_fibres else float(proof.bound)


def _cut_refutes(
    problem: SliceAllocation, torus: Torus, servers: list[int], limit: int, cut: tuple[int, ...]
) -> bool:
    """Tell whether fewer circuits fit over the border of a set of servers than must pass it.

    `cut` is the set, `servers` are those that slots may have, and no edge may carry more than
    `limit` circuits, with those that are there. For example, 6 circuits fit over the edges out of
    a set, and 8 or more lead out, however many slots lie in it. False proves nothing; it is also
    returned for a slice of more than `MOST_SLOTS` slots.
    """
    if torus.slots > MOST_SLOTS or not torus.weights:
        return False
    # All circuits of a pair of slots take one route, so edges are filled in units of this many. An
    # edge leads one way, from ``edges[edge, 0]`` to ``edges[edge, 1]``, and has loads already.
    unit = math.gcd(*torus.weights.values())
    fabric = problem.fabric
    free_fibres = np.minimum(limit, fabric.edge_fibres) - problem.loads
    usable_fibres = np.maximum(0, free_fibres // unit * unit)
    begins_inside, ends_inside = np.isin(fabric.edges, cut).T
    room_out = usable_fibres[begins_inside & ~ends_inside].sum()
    room_in = usable_fibres[ends_inside & ~begins_inside].sum()

    # At most `most_inside` slots lie in the set, one on each free server there, and at least
    # `least_inside`, as the servers outside are too few for the others. `_border` has for each
    # number of slots the fewest circuits that leave them, and as many enter them.
    most_inside = int(np.isin(servers, cut).sum())
    least_inside = max(0, torus.slots - len(servers) + most_inside)
    return bool(min(room_out, room_in) < min(_border(torus)[least_inside : most_inside + 1]))


def _border(torus: Torus) -> list[int]:
    """Return ``fewest[k]``: the fewest circuits that leave any k of the slots of a torus.

    All sets of slots are looked at, 2 to the power of their number.
    """
    # A set is an integer: bit s says whether slot s is inside. ``leaving[set]`` counts the
    # circuits from a slot inside to one outside.
    sets = np.arange(1 << torus.slots)
    leaving = np.zeros(len(sets), dtype=np.int64)
    for (source, destination), weight in torus.weights.items():
        has_source = sets >> source & 1
        has_destination = sets >> destination & 1
        leaving += weight * (has_source > has_destination)
    n_slots = np.bitwise_count(sets)
    return [int(leaving[n_slots == count].min()) for count in range(torus.slots + 1)]


def _refuted_by_trying(
    problem: SliceAllocation, torus: Torus, servers: list[int], limit: int
) -> bool:
    """Tell whether no placement of the slots and their routes keeps to a limit, by trying all.

    `servers` are those that slots may have, and `limit` is the most circuits on an edge. False if
    one does, and also if the search needs too many steps: it proves nothing then.
    """
    attempt = _Attempt(problem, torus, servers, limit)
    try:
        return not any(attempt.place(0))
    except (_TooManySteps, RecursionError):  # a search of so many slots is too deep
        return False


class _TooManySteps(Exception):
    """There are too many placements to try."""


class _Attempt:
    """A depth-first search of all ways to put slots on servers, with a route for each pair.

    No edge may carry more than `limit` circuits. Slots are placed in the order of their numbers.
    All circuits of a slot with the slots before it get their routes before the next slot is
    placed.

    Attributes
    ----------
    room
        ``room[edge]``: how many more circuits the edge may carry; below 0 where other slices load
        it beyond the limit.
    server_of_slot
        ``server_of_slot[slot]``: the servers of the slots that are placed so far.
    owed_out, owed_in
        ``owed_out[slot]``, ``owed_in[slot]``: circuits that leave a slot, and that arrive there,
        and have no route yet.
    edges_out, edges_in
        The edges that leave each server of the place, and that enter it.
    candidates
        Returns the routes from a server to another one that are offered to a number of circuits,
        each as its edges.
    n_steps
        How often `route` was called; the search ends at `MOST_STEPS`.
    """

    def __init__(
        self, problem: SliceAllocation, torus: Torus, servers: list[int], limit: int
    ) -> None:
        self.problem = problem
        self.torus = torus
        self.servers = servers
        room = np.minimum(limit, problem.fabric.edge_fibres) - problem.loads
        self.room: list[int] = room.tolist()
        self.server_of_slot: list[int] = []

        # At first no circuit has a route.
        self.owed_out = [0] * torus.slots
        self.owed_in = [0] * torus.slots
        for (source, destination), weight in torus.weights.items():
            self.owed_out[source] += weight
            self.owed_in[destination] += weight

        # Edges at the servers that slots can have, for the room that placed slots still have.
        self.edges_out: dict[int, list[int]] = {server: [] for server in servers}
        self.edges_in: dict[int, list[int]] = {server: [] for server in servers}
        for edge, (tail, head) in enumerate(problem.fabric.edges.tolist()):
            if tail in self.edges_out:
                self.edges_out[tail].append(edge)
            if head in self.edges_in:
                self.edges_in[head].append(edge)
        self.candidates = cache(problem.candidates)
        self.n_steps = 0

    def place(self, slot: int) -> Iterator[bool]:
        """Yield True for each way to place this slot and all after it, by backtracking.

        It puts the slot on each free server in turn; `route` then routes its circuits, and places
        the next slot. While it yields, the attempt holds the servers and the room of a complete
        way.
        """
        if slot == self.torus.slots:
            yield True
            return
        for server in self.servers:
            if server in self.server_of_slot:
                continue
            # An even torus looks the same from each slot: slot 0 may have the smallest server.
            if slot and self.torus.even and server < self.server_of_slot[0]:
                continue
            # If the edges at each placed server have room for the circuits that still need routes,
            # the pairs with earlier slots are routed, and `route` places slot + 1.
            self.server_of_slot.append(server)
            if self.can_go_on():
                pairs = [pair for pair in self.torus.weights if max(pair) == slot]
                yield from self.route(slot, pairs)
            self.server_of_slot.pop()

    def route(self, slot: int, pairs: list[tuple[int, int]]) -> Iterator[bool]:
        """Yield True for each way to route these pairs and to place all later slots.

        `slot` is the one that was placed last, and `pairs` are its pairs with slots before it that
        have no route yet. Depth-first search; all circuits of a pair take one route. After
        `MOST_STEPS` calls it raises `_TooManySteps`.
        """
        self.n_steps += 1
        if self.n_steps > MOST_STEPS:
            raise _TooManySteps
        if not pairs:
            yield from self.place(slot + 1)
            return
        # All circuits of the first pair take one route; each offered one with room is tried. Then
        # come the other pairs, and the room is given back before the next route is tried.
        pair = pairs[0]
        weight = self.torus.weights[pair]
        source, destination = (self.server_of_slot[end] for end in pair)
        for route in self.candidates(source, destination, weight):
            if all(self.room[edge] >= weight for edge in route):
                self.fill(route, pair, weight)
                if self.can_go_on():
                    yield from self.route(slot, pairs[1:])
                self.fill(route, pair, -weight)

    def fill(self, route: tuple[int, ...], pair: tuple[int, int], weight: int) -> None:
        """Take room for circuits of a pair of slots on a route, or give back a negative weight."""
        for edge in route:
            self.room[edge] -= weight
        self.owed_out[pair[0]] -= weight
        self.owed_in[pair[1]] -= weight

    def can_go_on(self) -> bool:
        """Return whether each placed slot still has room for circuits that leave and arrive."""
        for slot, server in enumerate(self.server_of_slot):
            room_out = sum(max(0, self.room[edge]) for edge in self.edges_out[server])
            room_in = sum(max(0, self.room[edge]) for edge in self.edges_in[server])
            if room_out < self.owed_out[slot] or room_in < self.owed_in[slot]:
                return False
        return True

"""Topologies that stay: graphs whose degree is the number of ports of a rank.

One-way circuits: circulants, generalised de Bruijn and Kautz graphs (Imase and Itoh 1981, 1983).
Two-way circuits: paths, circulants with both directions of each shift, complete graphs between few
ranks, and random regular graphs, whose diameter is close to the least that the degree allows
(Bollobas and de la Vega 1982).

A few hundred exchanges of the ends of two circuits of a random graph often take one round more off
its diameter (local search for the order/degree problem): with 64 ranks and four two-way ports it
falls from 5 or 6 to 4, which is the least that counting allows.

A *lane* is a port of a rank on some plane, with the number ``plane * ports + port``, where a plane
is a switch of its own. A *shift* is how many places onward around the ring of all ranks a circuit
leads.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, cycle, islice, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Clock, uncounted
from optmatch.problems import Collective
from optmatch.solvers.collectives.circulant import list_power_shifts
from optmatch.solvers.collectives.rounds import (
    BoolArray,
    IntArray,
    has_time_for_all_blocks,
    unroll_circuits,
)
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

RANDOM_GRAPHS = 4
"""Random regular graphs of two-way circuits that are tried; their diameters differ by one at most
in practice, and their loads by some percent. With one, some all-to-alls take 3 % longer."""

FAR = 1 << 30
"""The distance of ranks that are not reached."""


class Topology(NamedTuple):
    """Circuits of all ports of all ranks."""

    name: str
    """The name of the graph, for statistics."""
    peer: IntArray
    """``peer[lane, rank]``: the rank to which this port leads, -1 if it is dark."""
    shifts: tuple[int, ...] = ()
    """The shifts of a circulant, empty for other graphs: each rank has circuits to the ranks so
    many places onward, one for each shift. A lane need not have the same shift at all ranks."""


def list_topologies(problem: Collective, clock: Clock | None = None) -> Iterator[Topology]:
    """Yield ways to lay the circuits of all ranks, for plans whose circuits never change.

    Each rank has as many circuits as ports. If there are as many ports as other ranks, all ranks
    are joined directly. Otherwise there are

    - circulants: rank r is joined to r + s for each of some numbers s, the *shifts*;
    - for two-way circuits also a path, and random regular graphs;
    - for one-way circuits with two ports or more, graphs of de Bruijn and Kautz, and a random
      regular graph;
    - the circuits at the start of the problem, if it names them: they cost no change.

    Graphs with the same circuits as one before are left out, and so are those whose circuits find
    no ports. Each graph is laid when it is asked for, as random ones of a thousand ranks take 0.1
    s. There are only circulants if the time of `clock` is too short to look at the blocks of all
    ranks; without a clock there is time enough.
    """
    n = problem.n_ranks
    if n < 2:
        return

    # The shifts of circulants.
    if problem.lanes >= n - 1:
        # All ranks are neighbours. A two-way shift stands for its opposite, too.
        most = n // 2 if problem.two_way else n - 1
        shift_sets: list[tuple[int, ...]] = [tuple(range(1, most + 1))]
        # Ports beyond these double the circuits to some ranks alone: with 5 one-way ports each of
        # 4 ranks has two circuits to the next and to the second next rank, and one to the third,
        # for which large blocks take twice as long. The ring of shift 1 over all 5 ports has five
        # equal circuits to the next rank.
        if problem.lanes % (n - 1):
            shift_sets.append((1,))
    else:
        shift_sets = list_shift_sets(n, problem.lanes, two_way=problem.two_way)
        # One ring over all lanes (shift 1): half of the lanes lead to each neighbour, and large
        # blocks go round without loss. Sets of more shifts may find no ports: of 10 ranks with a
        # port on each of four planes, shift 2 makes two cycles of 5 ranks, and circuits along an
        # odd cycle cannot be on two planes in turn (`lay_circulant`). The root of a broadcast has
        # equally much to send over all of its circuits on this ring alone.
        if problem.two_way or problem.flow.from_root:
            shift_sets.append((1,))

    # Topologies are equal if each rank leads to the same ranks, equally often, over whichever
    # ports. Between 3 ranks with two-way circuits, for example, all sets of shifts are rings.
    seen = set[bytes]()
    circulants = (lay_circulant(problem, shifts) for shifts in shift_sets)
    for topology in chain(circulants, _list_other_graphs(problem, clock)):
        if topology is not None:
            peers_of_ranks = np.sort(topology.peer, axis=0).tobytes()
            if peers_of_ranks not in seen:
                seen.add(peers_of_ranks)
                yield topology


def _list_other_graphs(problem: Collective, clock: Clock | None) -> Iterator[Topology | None]:
    """Yield graphs that are no circulants; None in place of one that finds no ports."""
    if clock is not None and leaves_out_graphs(problem, clock):
        return

    # Circuits that are there already need no change, whatever graph they make.
    if not isinstance(problem.start, str):
        yield Topology("start", problem.start.astype(np.int64))

    # Two-way circuits make a path or any regular graph; one-way ones the graphs of few hops.
    if problem.two_way:
        yield lay_path(problem)
        yield from (_lay_regular_graph(problem, seed) for seed in range(RANDOM_GRAPHS))
    elif 1 < problem.lanes < problem.n_ranks - 1:
        families = [lay_family(problem, problem.lanes, name) for name in FAMILIES]
        yield from families
        yield _lay_regular_graph(problem, seed=0)

        # Gathers load circuits unevenly, and otherwise if all circuits lead the other way.
        for family in families:
            if family is not None:
                peer = inverse_circuits(family.peer, two_way=False)
                yield Topology(f"{family.name}-reversed", peer)


def leaves_out_graphs(problem: Collective, clock: Clock) -> bool:
    """Tell whether there are graphs but circulants, and the time is too short for them."""
    has_others = problem.lanes > 1 or not isinstance(problem.start, str)
    return has_others and not has_time_for_all_blocks(problem.n_ranks, clock)


def list_shift_sets(n: int, lanes: int, *, two_way: bool) -> list[tuple[int, ...]]:
    """List sets of shifts for graphs that join rank r to r + s for each shift s.

    Ranks count modulo n; these graphs are called circulants. The first set makes rings around all
    ranks: data go far on them, but circuits carry no byte in vain. All further sets have powers of
    a number (`list_power_shifts`): data go over fewer circuits, so that small data need fewer
    rounds.

    Example: 8 ranks with two one-way lanes. The first set is (1, 3), two rings around all ranks;
    then come (1, 2) and (1, 4).
    """
    # A two-way shift above n / 2 is the opposite of one below. `count` shifts find ports.
    count = lanes // 2 if two_way else lanes
    if not count:
        return []
    # The shifts nearest to 1 that have no factor in common with n: each makes one ring of all
    # ranks.
    largest = n // 2 if two_way else n - 1
    coprime = [shift for shift in range(1, largest + 1) if np.gcd(shift, n) == 1]
    shift_sets = [tuple(coprime[:count])]
    if 1 < count <= largest:
        powers = list_power_shifts(n, count, two_way=two_way)
        shift_sets += [tuple(shifts.tolist()) for shifts in powers]
    return list(dict.fromkeys(shift_sets))


def list_scaled_circulants(
    problem: Collective, base: int, scales: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], list[Topology]]]:
    """Yield sets of shifts for `base` ranks, with circulants of these shifts times each scale.

    The sets are the smallest shifts, 1, 2, 3, ..., and those of `list_shift_sets` for `base`
    ranks. A two-way circuit takes a port at both ends, so that only half as many shifts fit. A set
    is left out if some circulant finds no ports, if ranks do not have equally many circuits in all
    circulants, or if a scaled shift would lead from a rank to itself.

    Each set comes with one circulant for each scale. Example: with the scales 9, 3 and 1 the
    shifts 1 and 2 become 9 and 18, 3 and 6, 1 and 2.
    """
    n = problem.n_ranks
    n_shifts = problem.lanes // 2 if problem.two_way else problem.lanes
    smallest = tuple(range(1, n_shifts + 1))
    for shifts in sorted(
        {smallest, *list_shift_sets(base, problem.lanes, two_way=problem.two_way)}
    ):
        # A shift that is 0 modulo n would lead from a rank to itself.
        scaled = [tuple(scale * shift % n for shift in shifts) for scale in scales]
        if not shifts or not all(all(scaled_shifts) for scaled_shifts in scaled):
            continue
        laid = [lay_circulant(problem, scaled_shifts) for scaled_shifts in scaled]
        topologies = [topology for topology in laid if topology is not None]
        degrees = {len(topology.shifts) for topology in topologies}  # circuits of each rank
        if len(topologies) == len(scales) and len(degrees) == 1:
            yield shifts, topologies


def inverse_circuits(peer: IntArray, *, two_way: bool) -> IntArray:
    """Return from which rank data come in over each port, given where each port leads.

    ``peer[..., lane, rank]`` is the rank to which a port leads, -1 if it is dark. The result
    ``source[..., lane, rank]`` is the rank whose port of this lane leads here; -1 if none does.
    Over two-way circuits both are the same array. The ring 0 -> 1 -> 2 -> 0 has the peers 1, 2, 0
    and the sources 2, 0, 1.
    """
    if two_way:
        return peer
    flat = peer.reshape(-1, peer.shape[-1])
    source = np.full_like(flat, IDLE)
    lane, rank = np.nonzero(flat != IDLE)
    source[lane, flat[lane, rank]] = rank
    return source.reshape(peer.shape)


def count_parallel(peer: IntArray) -> IntArray:
    """Count how many ports of a rank lead to the same peer, over parallel circuits.

    The result ``width[lane, rank]`` is the number of circuits of the rank to this peer, at the
    first lane that leads there; 0 at its other lanes, and at dark ports.
    """
    is_same_peer = peer[:, None] == peer  # [lane, other lane, rank]
    is_first = is_same_peer.argmax(axis=0) == np.arange(len(peer))[:, None]
    width: IntArray = np.where(is_first & (peer >= 0), is_same_peer.sum(axis=0), 0)
    return width


@kernel
def _measure_distances(peer, has, distance, reached):
    """Search breadth-first from the ranks that have each block, as `reach_ranks` says.

    Writes ``distance[owner, rank]``, and rows of `reached` in the order in which they are found.
    One queue serves all owners, so that distances rise. Returns the number of rows.
    """
    n_reached = 0
    for owner in range(has.shape[0]):
        for rank in range(has.shape[1]):
            distance[owner, rank] = FAR
            if has[owner, rank]:
                distance[owner, rank] = 0
                reached[n_reached, 0] = owner
                reached[n_reached, 1] = rank
                reached[n_reached, 2] = 0
                n_reached += 1

    # The rows up to `n_reached` are the queue.
    place = 0
    while place < n_reached:
        owner = reached[place, 0]
        rank = reached[place, 1]
        hops = reached[place, 2] + 1
        place += 1
        for lane in range(peer.shape[0]):
            neighbour = peer[lane, rank]
            if neighbour >= 0 and distance[owner, neighbour] == FAR:
                distance[owner, neighbour] = hops
                reached[n_reached, 0] = owner
                reached[n_reached, 1] = neighbour
                reached[n_reached, 2] = hops
                n_reached += 1
    return n_reached


def reach_ranks(peer: IntArray, has: BoolArray) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return how far ranks are from blocks, and the ranks in the order of breadth-first search.

    ``peer[lane, rank]`` tells where circuits lead, -1 if nowhere; ``has[block, rank]`` which ranks
    have the block. The first result ``hops[block, rank]`` counts circuits from the nearest rank
    that has it, `FAR` without a way; the second one has rows of block, rank and hops, by rising
    hops. On the ring 0 -> 1 -> 2 -> 0, block 0 at rank 0 has the hops 0, 1, 2 and the rows (0, 0,
    0), (0, 1, 1), (0, 2, 2).
    """
    hops = np.empty(has.shape, dtype=np.int32)
    reached = np.empty((has.size, 3), dtype=np.int32)
    n_reached = _measure_distances(peer, has, hops, reached)
    return hops, reached[:n_reached]


def count_hops(peer: IntArray, has: BoolArray) -> IntArray:
    """Return the hops of `reach_ranks` alone, in 64 bits."""
    return reach_ranks(peer, has)[0].astype(np.int64)


def lay_circulant(problem: Collective, shifts: tuple[int, ...]) -> Topology | None:
    """Join each rank r to the ranks r + s for some shifts s, with the ports that ranks have.

    This makes a circulant graph: ranks count modulo their number n, and all do the same. Shifts
    are taken in turn until all lanes are used:

    - a one-way circuit takes one lane for each shift;
    - two-way circuits take two lanes, one onward and one back;
    - two-way circuits between opposite ranks (2 s = n) take one lane.

    Example: 6 ranks with three two-way lanes, and the shift 1. Lane 0 leads from each rank to the
    next one, lane 1 to the one before, and lane 2 to the rank opposite, three places onward.

    The result ``peer[lane, rank]`` is the rank to which a port leads (-1: to none), and the shifts
    that got lanes. It is None if no shift finds lanes, or if two lanes on different planes would
    have to join a cycle of an odd number of ranks.
    """
    n = problem.n_ranks
    lanes = problem.lanes
    ranks = np.arange(n)
    # One-way circuits: lane k has shift number k, and shifts begin anew after the last one.
    if not problem.two_way:
        shift_of_lane = [shifts[lane % len(shifts)] for lane in range(lanes)]
        peer = (ranks + np.array(shift_of_lane)[:, None]) % n
        return Topology("circulant", peer, tuple(shift_of_lane))

    # Two-way circuits: shifts have turns, and begin anew after the last one, until there are too
    # few free lanes for the next one. A turn takes one lane for the shift n / 2, as two opposite
    # ranks lead to each other, else two: no more turns than lanes.
    peer = np.full((lanes, n), IDLE)
    used_shifts = list[int]()
    free_lanes = list(range(lanes))
    for shift in islice(cycle(shifts), lanes):
        if 2 * shift == n and free_lanes:
            peer[free_lanes.pop(0)] = (ranks + shift) % n
            used_shifts.append(shift)
            continue

        # A shift of two-way circuits takes one lane onward and one back.
        pair = _choose_two_lanes(problem, free_lanes)
        if pair is None:
            break
        onward, back = pair
        free_lanes = [lane for lane in free_lanes if lane not in pair]
        used_shifts += [shift, n - shift]

        # ``way[rank]`` is 1 where the lane `onward` leads onward, and -1 where it leads back. A
        # circuit stays on one plane. If the two lanes are on different planes, each of them has to
        # join ranks in pairs: around the cycle 0 1 2 3 one lane joins 0 with 1 and 2 with 3, the
        # other one 1 with 2 and 3 with 0. Every second rank of a cycle therefore has its two lanes
        # the other way round. In a cycle of an odd number of ranks two neighbours would both be
        # second, or neither of them: it cannot be laid.
        way = np.ones(n, dtype=np.int64)
        next_rank = (ranks + shift) % n
        if onward // problem.ports != back // problem.ports:
            is_second = unroll_circuits(next_rank).steps % 2 == 1
            if (is_second == is_second[next_rank]).any():
                return None
            way[is_second] = -1
        peer[onward] = (ranks + way * shift) % n
        peer[back] = (ranks - way * shift) % n
    if not used_shifts:
        return None

    # A lane that is left over leads to the rank opposite, where there is one, or stays dark.
    for lane in free_lanes:
        if n % 2 == 0:
            peer[lane] = (ranks + n // 2) % n
            used_shifts.append(n // 2)
    return Topology("circulant", peer, tuple(used_shifts))


def _choose_two_lanes(problem: Collective, free_lanes: list[int]) -> tuple[int, int] | None:
    """Choose two free ports of every rank, if possible of the same switch.

    The result is None if fewer than two are free.

    With two ports on each plane and the free lanes 1, 2 and 3, they are 2 and 3, the ports of
    plane 1.
    """
    if len(free_lanes) < 2:
        return None
    for lane, next_lane in pairwise(free_lanes):
        if lane // problem.ports == next_lane // problem.ports:
            return lane, next_lane
    return free_lanes[0], free_lanes[1]


def lay_path(problem: Collective) -> Topology | None:
    """Join neighbours of a line: even pairs by the one half of the ports, odd pairs by the other.

    Circuits are two-way. Paths need no odd cycle, so they fit where each plane has one port and n
    is odd.

    The result has ``peer[lane, rank]``, the rank to which a port leads, -1 if it is dark. It is
    None if a rank has one lane only, or there are fewer than three ranks.

    Example: with 4 ranks and two lanes, lane 0 joins 0 with 1 and 2 with 3, and lane 1 joins 1
    with 2.
    """
    n = problem.n_ranks
    if problem.lanes < 2 or n < 3:
        return None
    peer = np.full((problem.lanes, n), IDLE)
    for lane in range(problem.lanes - problem.lanes % 2):
        lower = np.arange(lane % 2, n - 1, 2)
        peer[lane, lower] = lower + 1
        peer[lane, lower + 1] = lower
    return Topology("path", peer)


FAMILIES = {"de-bruijn": (1, 0), "kautz": (-1, -1)}
"""By the name of a family of graphs the two numbers of its formula, sign and offset: rank x leads
to the ranks sign * (degree x + k) + offset, modulo the number of ranks, for each k below the
degree. With 8 ranks and degree 2, rank 1 leads to 2 and 3 in the de Bruijn graph, and to 5 and 4
in that of Kautz."""


def lay_family(problem: Collective, degree: int, name: str) -> Topology | None:
    """Lay a graph of the family `name`, "de-bruijn" or "kautz", for any number of ranks.

    Each rank leads to `degree` others by the formula of `FAMILIES`. A two-way circuit stands for
    an arc and takes a port at both of its ends. The result is None if the degree is below 2, if
    ports suffice to join all ranks directly, or if no assignment of two-way circuits is found.
    """
    # The circuits of a rank: one-way those that leave it, two-way all of its ports.
    n = problem.n_ranks
    n_circuits = degree
    if problem.two_way:
        n_circuits = problem.lanes
    if degree < 2 or n_circuits >= n - 1:
        return None
    # Arcs from rank x to sign * (degree x + k) + offset, for each k below the degree.
    sign, offset = FAMILIES[name]
    source = np.repeat(np.arange(n), degree)
    k = np.tile(np.arange(degree), n)
    target = (sign * (degree * source + k) + offset) % n
    if problem.two_way:
        pairs = zip(source.tolist(), target.tolist(), strict=True)
        two_way_peer = assign_ports(problem, [pair for pair in pairs if pair[0] != pair[1]])
        if two_way_peer is None:
            return None
        return Topology(name, two_way_peer)

    # The formula may lead from a rank to itself, a loop, which is no circuit. Ranks with loops are
    # joined to each other instead, by a cycle: with loops at the ranks 1, 4 and 6 it is 1 -> 4 ->
    # 6 -> 1. If the cycle would lead from a rank to itself, as only one has a loop or one has
    # several, the ports of all loops stay dark.
    is_loop = source == target
    looped = source[is_loop]
    following = np.roll(looped, -1)
    if (looped != following).all():
        target[is_loop] = following
    peer = np.full((problem.lanes, n), IDLE)
    peer[:degree] = split_into_matchings(source, target, degree)
    return Topology(name, np.where(peer == np.arange(n), IDLE, peer))


def _lay_regular_graph(problem: Collective, seed: int) -> Topology | None:
    """Lay a random regular graph, whose ways are shortened by local search.

    A random graph in which all ranks have the same number of circuits has few hops between any two
    ranks. With fewer ports than three (one-way circuits: two) it would be cycles: none is laid.
    One-way circuits have de Bruijn and Kautz graphs besides, so one graph of another kind is
    enough.

    Two-way circuits take a perfect matching for each lane if n is even. If it is odd they take
    cycles, over two lanes each: one port of a rank leads onward and another one back, so that an
    odd lane is left dark. The result is None where fewer than two cycles find ports.

    Example: 7 ranks with four two-way ports get two cycles through all ranks, and 8 ranks four
    perfect matchings.
    """
    n = problem.n_ranks
    lanes = problem.lanes
    least_lanes = 3 if problem.two_way else 2
    if lanes < least_lanes or lanes >= n - 1:
        return None
    if not problem.two_way or n % 2 == 0:
        graph = find_regular_graph(n, lanes, two_way=problem.two_way, seed=seed)
        return Topology("random-regular", graph)

    # Cycles lead through all ranks, as many as a rank has pairs of ports; each circuit takes any
    # free ports of its two ranks. The first half of the lanes of a graph leads onward along a
    # cycle each.
    n_cycles = lanes // 2
    if n_cycles > 1:
        onward = find_regular_graph(n, 2 * n_cycles, two_way=True, seed=seed)[:n_cycles]
        pairs = [(rank, int(other)) for cycle in onward for rank, other in enumerate(cycle)]
        peer = assign_ports(problem, pairs)
        if peer is not None:
            return Topology("random-regular", peer)

    # If some circuit finds none, each plane has whole cycles of its own, as many as it has pairs
    # of ports: two lanes of the same plane for each cycle, one onward and one back.
    cycles_of_plane = problem.ports // 2
    n_cycles = problem.planes * cycles_of_plane
    if n_cycles < 2:
        return None
    by_plane = np.full((problem.planes, problem.ports, n), IDLE)
    graph = find_regular_graph(n, 2 * n_cycles, two_way=True, seed=seed)
    for number, onward in enumerate(graph[:n_cycles]):
        plane, pair_of_ports = divmod(number, cycles_of_plane)
        by_plane[plane, 2 * pair_of_ports] = onward
        by_plane[plane, 2 * pair_of_ports + 1, onward] = np.arange(n)
    return Topology("random-regular", by_plane.reshape(lanes, n))


def split_into_matchings(source: IntArray, target: IntArray, degree: int) -> IntArray:
    """Share out the circuits of a graph among the ports of its ranks, a perfect matching for each.

    Circuit k leads from ``source[k]`` to ``target[k]``. `degree` of them lead from each rank, and
    as many to it, so that there is a perfect matching as long as any circuit is left (Koenig). The
    result ``peer[lane, rank]`` is the rank to which each port leads. If each of 3 ranks leads to
    both others, lane 0 may lead 0 -> 1 -> 2 -> 0, and lane 1 then leads 0 -> 2 -> 1 -> 0.

    Random walks find it in some n log n steps for each port [1]_: a rank takes one of its circuits
    at random, whoever has had the same target takes another one, until a target was free. Searches
    of SciPy for matchings do not end on some graphs of Kautz.

    References
    ----------
    .. [1] Goel, Kapralov and Khanna (2010), Perfect matchings in O(n log n) time in regular
       bipartite graphs, doi 10.1145/1806689.1806697.
    """
    # ``circuits[rank]``: the targets of its circuits that have no port yet.
    n = len(source) // degree
    by_rank = np.argsort(source, kind="stable")
    circuits: list[list[int]] = target[by_rank].reshape(n, degree).tolist()
    rng = random.Random(0)
    peer = np.empty((degree, n), dtype=np.int64)
    for lane in range(degree):
        holder = [IDLE] * n  # by target: the rank whose circuit leads there
        for first in range(n):
            rank = first
            lost_end = IDLE
            while rank != IDLE:
                # The rank takes the end of one of its circuits; whoever held that goes on. It goes
                # back to the end that it has just lost only if it has no other.
                other_ends = [end for end in circuits[rank] if end != lost_end]
                end = rng.choice(other_ends or circuits[rank])
                displaced = holder[end]
                holder[end] = rank
                rank = displaced
                lost_end = end
        for end, rank in enumerate(holder):
            peer[lane, rank] = end
            circuits[rank].remove(end)
    return peer


def assign_ports(problem: Collective, pairs: list[tuple[int, int]]) -> IntArray | None:
    """Choose a switch for each two-way circuit, and a port of it at both ranks that it joins.

    Each of `pairs` is two ranks. The first plane with a free port at both ranks is taken. If a
    rank has one port on each plane, the circuits of a cycle have to take planes in turn, which an
    odd cycle over two planes cannot; circuits are taken in the order along paths and cycles then.

    The result ``peer[lane, rank]`` is the rank to which a port leads, -1 if it is dark; lane
    ``plane * ports + port``. It is None if some circuit finds no ports.
    """
    n, ports, planes = problem.n_ranks, problem.ports, problem.planes
    peer = np.full((planes, ports, n), IDLE)
    for first, second in _in_path_order(pairs) if ports == 1 else pairs:
        # The first free ports of both ranks, on the first plane where both have one: the second
        # circuit of the ring 0 1 2 with two ports takes port 1 of rank 1, and port 0 of rank 2.
        free_first = peer[:, :, first] == IDLE  # [plane, port]
        free_second = peer[:, :, second] == IDLE
        possible = np.flatnonzero(free_first.any(axis=1) & free_second.any(axis=1))
        if not len(possible):
            return None
        plane = possible[0]
        peer[plane, int(free_first[plane].argmax()), first] = second
        peer[plane, int(free_second[plane].argmax()), second] = first
    return peer.reshape(planes * ports, n)


def _in_path_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Order circuits along the paths and cycles that they make, by depth-first search.

    Each of `pairs` is the two ranks of a circuit. Example: (0, 1), (2, 3), (1, 2) become (0, 1),
    (1, 2), (2, 3).
    """
    with uncounted():
        import networkx

    # Several circuits may join two ranks; a search over edges visits each of them once.
    circuits = networkx.edge_dfs(networkx.MultiGraph(pairs))
    return [(first, second) for first, second, _ in circuits]


EXCHANGE_EFFORT = 5_000_000
"""Unions of sets of 64 ranks in one search, about 30 ms. With half of it the graph of 64 ranks
and four ports still has diameter 4; with forty times of it those of 256 ranks get no better."""
MOST_EXCHANGES = 10_000
"""The most exchanges that one search tries."""
NOT_CONNECTED = 1 << 20
"""In place of a diameter: some rank never hears of another one."""
_BITS = 64


class Farness(NamedTuple):
    """How far the ranks of a graph are from each other; less is better, the first field first."""

    diameter: int
    """The most hops from any rank to any other one; `NOT_CONNECTED` if there is no way."""
    n_farthest: int
    """How many ordered pairs of ranks are exactly so far apart; if there is no way from some ranks
    to others, how many pairs that are."""


class ReachedSets(NamedTuple):
    """Scratch of `measure_farness`: sets of ranks as bits, shape (ranks, words)."""

    now: NDArray[np.uint64]
    """Bit ``other % 64`` of ``now[rank, other // 64]``: the other is within so many hops."""
    next: NDArray[np.uint64]
    """The same sets after one hop more, while they are made."""


class EndExchanges(NamedTuple):
    """Exchanges of the ends of two circuits of a lane that are to be tried, one after another.

    The circuits a -> b and c -> d become a -> d and c -> b.
    """

    lane: IntArray
    """``lane[number]``: the lane of both circuits."""
    first: IntArray
    """``first[number]``: rank a."""
    second: IntArray
    """``second[number]``: rank c."""
    turns_second: NDArray[np.bool_]
    """``turns_second[number]``: whether d takes the place of c where circuits join pairs. They
    become a - c and b - d then, the other way to exchange the ends of a - b and c - d."""


@inner_kernel
def measure_farness(peer, sets):
    """Return the diameter of a graph in hops, and how many ordered pairs are so far apart.

    ``peer[lane, rank]`` is the rank to which a port leads; `sets` is scratch. All ranks are
    searched from at the same time, by breadth-first search. After h steps each rank has a set of
    the ranks that it reaches in h hops or fewer, as bits. Steps go on until no pair of ranks is
    missing in these sets; their number is the diameter. The pairs that were still missing one step
    earlier are exactly so far apart. On a ring of 4 ranks with circuits both ways the diameter is
    2, with 4 pairs.
    """
    # In 0 hops each rank reaches itself. Rank r is bit r modulo the size of a word.
    n_lanes, n = peer.shape
    n_words = sets.now.shape[1]
    sets.now[:, :] = 0
    for rank in range(n):
        sets.now[rank, rank // _BITS] |= np.uint64(1) << np.uint64(rank % _BITS)

    n_missing = n * (n - 1)  # ordered pairs of ranks whose first one has not reached the second
    diameter = 0
    while True:
        # A rank reaches in one hop more what its peers have reached until now.
        n_missing_before = n_missing
        n_missing = n * n
        for rank in range(n):
            for word in range(n_words):
                reached = sets.now[rank, word]
                for lane in range(n_lanes):
                    reached |= sets.now[peer[lane, rank], word]
                sets.next[rank, word] = reached
                # Count the bits. Each step takes the lowest one away: with 12 = 1100 in binary,
                # 12 & 11 is 8 = 1000. Each bit is a pair that is not missing.
                while reached:
                    reached &= reached - np.uint64(1)
                    n_missing -= 1
        diameter += 1
        if n_missing == 0:
            return Farness(diameter, n_missing_before)
        # A step that reaches no further pair is followed by none that does.
        if n_missing == n_missing_before:
            return Farness(NOT_CONNECTED, n_missing)
        for rank in range(n):
            for word in range(n_words):
                sets.now[rank, word] = sets.next[rank, word]


@inner_kernel
def join_ends(peer, lanes, pair, ends):
    """Let the circuits of a lane at two ranks lead to given ends, and back over another lane.

    Changes ``peer[lane, rank]``, the rank to which a port leads. `lanes` are the lane onward and
    the lane back: the same of two-way circuits that join pairs, -1 back of one-way circuits.
    """
    onward, back = lanes
    for k in range(2):
        peer[onward, pair[k]] = ends[k]
        if back >= 0:
            peer[back, ends[k]] = pair[k]


@kernel
def shorten_ways(peer, two_way, exchanges, sets):
    """Shorten the ways in a graph: exchange ends of circuits as long as ranks get no farther.

    Local search over `exchanges` (`EndExchanges`): 0 -> 1 and 2 -> 3 become 0 -> 3 and 2 -> 1.
    Circuits that share an end stay. An exchange is taken back if ranks get farther from each other
    (`Farness`): if the diameter grows, or stays and more pairs of ranks are so far apart. It is
    kept if nothing changes, so that the search can cross plateaus.

    Changes ``peer[lane, rank]``, where a port leads. Each lane is a permutation in which no rank
    leads to itself; of two-way circuits it is a perfect matching, or a cycle if the number of
    ranks is odd. `sets` (`ReachedSets`) is scratch. Returns the `Farness` in the end.
    """
    # Circuits join pairs, over one lane each, if they are two-way and the number of ranks is even.
    best = measure_farness(peer, sets)
    has_pairs = two_way and peer.shape[1] % 2 == 0
    for number in range(len(exchanges.lane)):
        lane = exchanges.lane[number]
        second = exchanges.second[number]
        if has_pairs and exchanges.turns_second[number]:
            second = peer[lane, second]
        pair = (exchanges.first[number], second)
        ends = (peer[lane, pair[0]], peer[lane, pair[1]])
        if pair[0] == pair[1] or pair[0] == ends[1] or pair[1] == ends[0]:
            continue

        # The lane that leads back: none of one-way circuits, and the same lane where circuits join
        # pairs. Cycles take two lanes: of four lanes 0 and 1 lead onward, and are drawn alone; 2
        # and 3 lead back.
        lane_back = -1
        if two_way:
            lane_back = lane
            if not has_pairs:
                lane_back += peer.shape[0] // 2
        join_ends(peer, (lane, lane_back), pair, (ends[1], ends[0]))
        farness = measure_farness(peer, sets)
        if farness.diameter < best.diameter or (
            farness.diameter == best.diameter and farness.n_farthest <= best.n_farthest
        ):
            best = farness
        else:
            join_ends(peer, (lane, lane_back), pair, ends)
    return best


@lru_cache(maxsize=256)
def _find_graph(n: int, degree: int, two_way: bool, seed: int) -> bytes:
    """Search for circuits over which all ranks reach each other in few hops.

    Returns the bytes of ``peer[lane, rank]``, int64, with `degree` lanes, since results are kept
    for further calls and bytes cannot be changed. The search begins with random circuits. Then it
    exchanges the ends of two of them, again and again, and takes an exchange back if ranks get
    farther from each other by it (a local search). The `seed` draws circuits and exchanges.

    The circuits of a lane lead from each rank to one other, and to each rank from one. Two-way
    circuits of a lane join ranks in pairs. If n is odd that is not possible: lane k then leads
    onward along a cycle through all ranks, and lane k + degree / 2 back.
    """
    # The random graph, lane by lane: cycles or pairs along a random order of all ranks.
    rng = np.random.default_rng(seed)
    peer = np.empty((degree, n), dtype=np.int64)
    has_cycles = two_way and n % 2 == 1
    n_drawn_lanes = degree
    if has_cycles:
        n_drawn_lanes = degree // 2  # the others lead back
    for lane in range(n_drawn_lanes):
        order = rng.permutation(n)
        if two_way and not has_cycles:
            first_ends, second_ends = order.reshape(2, -1)
            peer[lane, first_ends] = second_ends
            peer[lane, second_ends] = first_ends
            continue
        peer[lane, order] = np.roll(order, -1)  # one cycle through all ranks
        if has_cycles:
            peer[lane + n_drawn_lanes, order] = np.roll(order, 1)

    # There are as many exchanges as the effort allows. Each is followed by a search from all
    # ranks, which takes about as many steps as the diameter; a step unites sets of `n_words` words
    # for each rank and lane. With d circuits a rank reaches about d^h others in h hops, over
    # two-way circuits (d - 1)^h, which gives the diameter. For 64 ranks with four two-way ports an
    # exchange takes 64 * 1 * 4 * 4 = 1,024 unions, so that there are 4,882. All are drawn
    # beforehand.
    n_words = -(-n // _BITS)
    about_diameter = 1 + int(np.log(n) / np.log(max(2, degree - two_way)))
    effort_of_exchange = n * n_words * degree * about_diameter
    n_exchanges = min(MOST_EXCHANGES, EXCHANGE_EFFORT // effort_of_exchange)
    exchanges = EndExchanges(
        lane=rng.integers(n_drawn_lanes, size=n_exchanges),
        first=rng.integers(n, size=n_exchanges),
        second=rng.integers(n, size=n_exchanges),
        turns_second=rng.integers(2, size=n_exchanges) == 1,
    )
    empty = np.zeros((n, n_words), dtype=np.uint64)
    shorten_ways(peer, two_way, exchanges, ReachedSets(empty, empty.copy()))
    return peer.tobytes()


def find_regular_graph(n: int, degree: int, *, two_way: bool, seed: int) -> IntArray:
    """Return a graph of small diameter in which each rank has `degree` circuits.

    The result ``peer[lane, rank]`` is the rank to which each port leads.
    """
    peers = np.frombuffer(_find_graph(n, degree, two_way, seed), dtype=np.int64)
    return peers.reshape(degree, n).copy()

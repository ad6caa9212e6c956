"""Data that are forwarded inside a round: few rounds, in which sends go over several circuits.

Where a problem states the time of a hop (``hop_s``), a send may pass ranks on its way, and a round
takes ``alpha_s``, the hops of its longest send, and the bytes of its busiest circuit. Many ranks
can then be reached in one round over circuits that stay, or in a few rounds. A *relay* says in
which round each rank gets a block, the same for all blocks but for their owners. In each round
every block comes to its new ranks from the nearest rank that has it, over a shortest way (breadth-
first search), and among shortest ways over the circuits that carry least. With all ranks in one
round this is a direct exchange over a ring, a torus or another graph; with strides n/2, n/4, ...,
1 it is doubling; and with new circuits in each round it is Bruck's algorithm with digits of a
large base. Sums run backwards, and blocks of an all-to-all take the ways of the gather.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import LONGEST_S, Clock
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.offers import Offer
from optmatch.solvers.collectives.passing import sum_up
from optmatch.solvers.collectives.plans import Laid, assemble
from optmatch.solvers.collectives.rounds import chunk_sizes, is_affordable
from optmatch.solvers.collectives.topologies import (
    IntArray,
    Topology,
    count_parallel,
    inverse_circuits,
    lay_circulant,
    list_shift_sets,
    list_topologies,
)
from optmatch.solvers.kernels.decorators import kernel

FloatArray = NDArray[np.float64]

FAR = 1 << 30
"""The distance of ranks that are not reached."""
SWEEPS = 3
"""How often each way is chosen; from the second time on it is given up before, while all others
are kept."""
MOST_STRIDES = 40
"""How many strides of plans of two rounds are tried; all of them up to about so many ranks."""


class Relay(NamedTuple):
    """In which round each rank gets the block of an owner, and over which circuits."""

    topologies: tuple[Topology, ...]
    """The circuits of each round."""
    strides: tuple[int, ...]
    """By round: the ranks whose distance from the owner around the ring of all ranks is a multiple
    of this number have the block after the round. The last stride is 1."""

    @property
    def changes(self) -> int:
        """How often the circuits change between rounds."""
        pairs = zip(self.topologies, self.topologies[1:], strict=False)
        return sum(before is not after for before, after in pairs)

    def backwards(self, *, two_way: bool) -> Relay:
        """Return the relay whose circuits lead the other way."""
        if two_way:
            return self
        turned = {id(each): _turn(each) for each in self.topologies}
        return self._replace(topologies=tuple(turned[id(each)] for each in self.topologies))


class RelayRoutes(NamedTuple):
    """How the pieces of blocks come to their receivers, ascending by round.

    The arrays from `turn` to `n_links` have one entry for each receipt.
    """

    # Into how many equal pieces a block is cut; each piece is a receipt of its own.
    pieces: int
    n_owners: int
    """1 if the ways of all owners are those of rank 0, turned around the ring of all ranks."""
    # The round of the receipt, from 0.
    turn: IntArray
    owner: IntArray
    """The number of the owner among the owners."""
    source: IntArray
    """The rank that has the piece before the round."""
    # The rank that has it after the round.
    target: IntArray
    # The links of a receipt are ``link_from[first_link : first_link + n_links]``, and those of
    # `link_to`.
    first_link: IntArray
    n_links: IntArray
    link_from: IntArray
    """The ends of all links, for each receipt from its source to its target."""
    link_to: IntArray
    load: FloatArray
    """``load[round]``: the blocks over the busiest circuit."""

    @property
    def longest(self) -> IntArray:
        """The most links of a way in each round."""
        longest = np.zeros(len(self.load), dtype=np.int64)
        np.maximum.at(longest, self.turn, self.n_links)
        return longest

    def seconds(self, problem: Collective, block_bytes: float) -> float:
        """Return how long the rounds take, without changes of circuits."""
        hops_s = float(self.longest.sum()) * (problem.hop_s or 0.0)
        sending_s = float(self.load.sum()) * block_bytes / problem.rate_bytes_per_s
        return len(self.load) * problem.alpha_s + hops_s + sending_s


@kernel
def measure_distances(peer, has, distance, queue):
    """Write ``distance[owner, rank]`` from the nearest rank that has the block (breadth-first).

    Distances are in circuits; `FAR` where no circuits lead. `queue`, shape (ranks,), is scratch.
    ``has[owner, rank]`` tells which ranks have it, ``peer[lane, rank]`` where circuits lead.
    """
    for owner in range(has.shape[0]):
        n_reached = 0
        for rank in range(has.shape[1]):
            distance[owner, rank] = FAR
            if has[owner, rank]:
                distance[owner, rank] = 0
                queue[n_reached] = rank
                n_reached += 1

        # Ranks in the queue stand by rising distance.
        place = 0
        while place < n_reached:
            rank = queue[place]
            place += 1
            for lane in range(peer.shape[0]):
                neighbour = peer[lane, rank]
                if neighbour >= 0 and distance[owner, neighbour] == FAR:
                    distance[owner, neighbour] = distance[owner, rank] + 1
                    queue[n_reached] = neighbour
                    n_reached += 1


@kernel
def choose_ways(source, width, distance, receipts, links, load):
    """Lead each receipt back to a rank at distance 0 over circuits with little load, in sweeps.

    Writes rows of from, to and lane to `links`, for each receipt from its source to its target,
    and adds weights to ``load[lane, rank]``, the load of a circuit at its receiving end (one
    column if all ranks are alike). Rows of `receipts` are owner, target, first link and weight.
    ``source[lane, rank]`` is the rank from which a circuit comes, and ``width[lane, rank]`` how
    many parallel ones there are. The first sweep chooses a way for each receipt; in later ones
    each way is given up in turn and chosen anew past all others.
    """
    alike = load.shape[1] == 1
    for sweep in range(SWEEPS):
        for number in range(len(receipts)):
            owner = int(receipts[number, 0])
            rank = int(receipts[number, 1])
            first = int(receipts[number, 2])
            weight = receipts[number, 3]
            n_links = distance[owner, rank]

            # The way of the sweep before is given up, while those of all others stay.
            if sweep:
                for link in range(first, first + n_links):
                    end = 0 if alike else links[link, 1]
                    lane = links[link, 2]
                    load[lane, end] -= weight / width[lane, end]

            # From the target back to its source: of the circuits that come from one hop nearer,
            # the one with the least load is taken.
            for link in range(first + n_links - 1, first - 1, -1):
                end = 0 if alike else rank
                best = -1
                for lane in range(source.shape[0]):
                    before = source[lane, rank]
                    if before < 0 or width[lane, end] == 0:
                        continue
                    if distance[owner, before] != link - first:
                        continue
                    if best < 0 or load[lane, end] < load[best, end]:
                        best = lane
                links[link, 0] = source[best, rank]
                links[link, 1] = rank
                links[link, 2] = best
                load[best, end] += weight / width[best, end]
                rank = source[best, rank]


def find_ways(
    problem: Collective, relay: Relay, pieces: int, owners: IntArray
) -> RelayRoutes | None:
    """Find the ways of all pieces of the blocks of some owners; None if some rank is not reached.

    After each round of the relay, the ranks whose distance from the owner is a multiple of its
    stride have the block. A rank that is new in a round gets each piece from the nearest rank that
    had it before the round, over a shortest way; ways are chosen so that the busiest circuit of
    the round carries little. Where all ranks do the same, the ways of rank 0 stand for those of
    all. Blocks of an uneven all-to-all weigh as much as their bytes; all others weigh 1.

    Example: 4 ranks on a ring of one-way circuits, strides 2 and 1. The block of rank 0 comes to
    rank 2 in round 0, over the links 0-1 and 1-2, and to the ranks 1 and 3 in round 1, from 0 and
    from 2.
    """
    n = problem.n_ranks
    ranks = np.arange(n)
    is_even = problem.demand_bytes is None
    alike = is_even and len(owners) == n and all(each.shifts for each in relay.topologies)
    if alike:
        owners = owners[:1]
    offset = (ranks - owners[:, None]) % n
    n_rounds = len(relay.strides)
    arrives = np.full(offset.shape, n_rounds - 1)
    for turn in range(n_rounds - 1, -1, -1):
        arrives[offset % relay.strides[turn] == 0] = turn
    arrives[offset == 0] = -1

    # Each round by itself: which ranks get which pieces, from where, and over which circuits.
    found: list[tuple[IntArray, ...]] = []
    loads = np.zeros(n_rounds)
    n_links_before = 0
    queue = np.empty(n, dtype=np.int64)
    for turn, topology in enumerate(relay.topologies):
        if alike:
            shifts = np.array(topology.shifts)
            peer = (ranks + shifts[:, None]) % n
            source = (ranks - shifts[:, None]) % n
            width = count_parallel(shifts[:, None])
        else:
            peer = topology.peer
            source = inverse_circuits(peer, two_way=problem.two_way)
            width = count_parallel(source)

        # Who gets the block in this round, and how far it is from a rank that had it before.
        distance = np.empty(offset.shape, dtype=np.int64)
        measure_distances(peer, arrives < turn, distance, queue)
        is_wanted = arrives == turn
        if not is_even:
            is_wanted &= problem.demand[owners] > 0
        owner, target = np.nonzero(is_wanted)
        if not len(owner):
            return None
        if (distance[owner, target] == FAR).any():
            return None

        # A receipt for each piece; its links have a place each in one table for all of them.
        owner, target = np.repeat(owner, pieces), np.repeat(target, pieces)
        n_links = distance[owner, target]
        first_link = np.cumsum(n_links) - n_links
        weight = np.full(len(owner), 1.0 / pieces)
        if not is_even:
            weight = chunk_sizes(problem, n * n).reshape(n, n)[owners[owner], target]
        links = np.empty((int(n_links.sum()), 3), dtype=np.int64)
        load = np.zeros((len(peer), 1 if alike else n))
        receipts = np.column_stack([owner, target, first_link, weight]).astype(np.float64)
        choose_ways(source, width, distance, receipts, links, load)
        loads[turn] = load.max()

        # The rank at the first link had the piece. Links of all rounds are counted together.
        holder = links[first_link, 0]
        starts = first_link + n_links_before
        n_links_before += len(links)
        turns = np.full(len(owner), turn)
        found.append((turns, owner, holder, target, starts, n_links, links[:, 0], links[:, 1]))
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    turn_of, owner, holder, target, starts, n_links, link_from, link_to = columns
    return RelayRoutes(
        pieces,
        len(owners),
        turn_of,
        owner,
        holder,
        target,
        starts,
        n_links,
        link_from,
        link_to,
        loads,
    )


class Carried(NamedTuple):
    """Which chunks are sent over which ways."""

    way: IntArray
    """The number of the receipt among the ways."""
    turned: IntArray
    """By how many places its ranks are turned around the ring of all ranks."""
    # The chunk that is sent: owner times pieces plus piece in a gather, source times ranks plus
    # destination in an all-to-all.
    chunk: IntArray


def list_gathered(ways: RelayRoutes, n: int) -> Carried:
    """List the sends of an all-gather: each receipt once, for all owners.

    With n ranks and ways for owner 0 alone, each receipt becomes n sends, turned by 0 to n - 1
    places: a receipt of rank 2 from rank 0 becomes a send from 1 to 3 for owner 1, and so on.
    """
    n_turns = n if ways.n_owners == 1 else 1
    turned = np.repeat(np.arange(n_turns), len(ways.turn))
    way = np.tile(np.arange(len(ways.turn)), n_turns)
    piece = way % ways.pieces
    return Carried(way, turned, (ways.owner[way] + turned) * ways.pieces + piece)


def list_exchanged(ways: RelayRoutes, n: int, n_turns: int) -> Carried:
    """List the sends of an all-to-all: blocks take the ways of the gather to their receivers.

    A block goes backwards from its receiver, receipt by receipt, to its owner; all these receipts
    become sends of this block alone. If the gather brings the block of rank 0 to rank 2 and on to
    rank 3, the block from 0 to 3 has the sends 0 to 2 and 2 to 3. Where the ways of all owners are
    alike, those of the first `n_turns` owners are listed.
    """
    way_of = np.full((ways.n_owners, n), -1)
    way_of[ways.owner, ways.target] = np.arange(len(ways.turn))
    receiver = np.tile(ways.target, n_turns)
    turned = np.repeat(np.arange(n_turns), len(ways.turn))
    way = np.tile(np.arange(len(ways.turn)), n_turns)
    chunk = (ways.owner[way] + turned) * n + (receiver + turned) % n
    parts = []
    while len(way):
        parts.append((way, turned, chunk))
        before = way_of[ways.owner[way], ways.source[way]]
        goes_on = before >= 0
        way, turned, chunk = before[goes_on], turned[goes_on], chunk[goes_on]
    return Carried(*(np.concatenate(column) for column in zip(*parts, strict=True)))


class LinkedSends(NamedTuple):
    """Sends with the links that they are forwarded over, and the circuits of each round."""

    # Rows of round, source, destination, chunk and kind, by round.
    sends: IntArray
    # Rows of send (its number), from and to, for sends over two links or more.
    links: IntArray
    # By round the circuits, ``peer[lane, rank]``; the same array where they stay.
    matchings: list[IntArray]

    def then(self, later: LinkedSends) -> LinkedSends:
        """Let other rounds follow."""
        sends, links = later.sends.copy(), later.links.copy()
        sends[:, 0] += len(self.matchings)
        links[:, 0] += len(self.sends)
        return LinkedSends(
            np.concatenate([self.sends, sends]),
            np.concatenate([self.links, links]),
            [*self.matchings, *later.matchings],
        )

    def lay(self, problem: Collective, chunk_count: int) -> Laid:
        """Make the plan."""
        epochs: list[IntArray] = []
        numbers = []
        for matching in self.matchings:
            if not epochs or matching is not epochs[-1]:
                epochs.append(matching)
            numbers.append(len(epochs) - 1)
        circuits, epoch_of_round = np.array(epochs), np.array(numbers)
        return assemble(
            problem, self.sends, chunk_count, circuits, epoch_of_round, links=self.links
        )


def list_sends(
    ways: RelayRoutes, carried: Carried, relay: Relay, n: int, *, adds: bool
) -> LinkedSends:
    """Spell the sends out; those of sums run backwards, against all circuits of the relay.

    Rows of sends are round, source, destination, chunk and kind, by round; rows of links are the
    number of the send and the two ranks of a circuit. Only sends over two circuits or more have
    links. With `adds`, the last round of the gather is the first one, and source and destination
    change places: what a rank had sent on it adds up.
    """
    turn = ways.turn[carried.way]
    matchings = [topology.peer for topology in relay.topologies]
    if adds:
        matchings.reverse()
        turn = len(matchings) - 1 - turn
    order = np.argsort(turn, kind="stable")
    way, turned = carried.way[order], carried.turned[order]
    source = (ways.source[way] + turned) % n
    target = (ways.target[way] + turned) % n
    kind = np.full(len(way), REDUCE if adds else COPY)
    if adds:
        source, target = target, source
    sends = np.column_stack([turn[order], source, target, carried.chunk[order], kind])

    # The links of forwarded sends, in their order; `place` counts the links of each from 0.
    n_links = np.where(ways.n_links[way] > 1, ways.n_links[way], 0)
    number = np.repeat(np.arange(len(way)), n_links)
    place = np.arange(len(number)) - np.repeat(np.cumsum(n_links) - n_links, n_links)
    first = ways.first_link[way][number]
    link = first + (n_links[number] - 1 - place if adds else place)
    link_from = (ways.link_from[link] + turned[number]) % n
    link_to = (ways.link_to[link] + turned[number]) % n
    if adds:
        link_from, link_to = link_to, link_from
    return LinkedSends(sends, np.column_stack([number, link_from, link_to]), matchings)


def _turn(topology: Topology) -> Topology:
    """Turn all one-way circuits around; a shift becomes its opposite."""
    n = topology.peer.shape[1]
    back = tuple((n - shift) % n for shift in topology.shifts)
    return Topology(topology.name, inverse_circuits(topology.peer, two_way=False), back)


def list_strides(n: int) -> Iterator[tuple[int, ...]]:
    """Yield the strides of plans of one round, of two, and of more, up to doubling.

    Strides fall to 1. For 8 ranks they are 1 alone; 2, 1 to 5, 1 for two rounds; and 4, 2, 1, by
    which a block comes to the rank 4 places onward, then to every second rank, then to all.
    """
    yield (1,)
    halves = np.unique(np.geomspace(2, max(2, n // 2 + 1), MOST_STRIDES).astype(int))
    yield from ((int(stride), 1) for stride in halves if 1 < stride < n)
    seen = set[tuple[int, ...]]()
    for count in range(3, (n - 1).bit_length() + 1):
        base = math.ceil(n ** (1 / count) - 1e-9)
        powers = [base**power for power in range(count)]
        parts = [round(n ** (power / count)) for power in range(count)]
        for ascending in (powers, parts):
            strides = tuple(sorted({stride for stride in ascending if stride < n}, reverse=True))
            if len(strides) > 2 and strides not in seen:
                seen.add(strides)
                yield strides


def list_relays(problem: Collective) -> Iterator[Relay]:
    """Yield relays over circuits that stay, then those that change circuits in each round.

    An even or uneven all-to-all over circuits that stay takes one round: more rounds only add
    start-ups.
    """
    n = problem.n_ranks
    for topology in list_topologies(problem):
        for strides in list_strides(n):
            if problem.operation == "all-to-all" and len(strides) > 1:
                break
            yield Relay((topology,) * len(strides), strides)

    # With new circuits in each round the shifts of one round are scaled by its stride: with
    # strides 9, 3 and 1, and the shifts 1 and 2, they are 9 and 18, 3 and 6, 1 and 2.
    if problem.demand_bytes is not None:
        return
    for strides in list_strides(n):
        if len(strides) == 1:
            continue
        base = max(
            -(-before // stride) for before, stride in zip((n, *strides), strides, strict=False)
        )
        lanes = problem.lanes // 2 if problem.two_way else problem.lanes
        sets = {
            tuple(range(1, lanes + 1)),
            *list_shift_sets(base, problem.lanes, two_way=problem.two_way),
        }

        # A stride that makes a shift a multiple of n would lead a rank to itself.
        for shifts in sorted(sets):
            scaled = [tuple(stride * shift % n for shift in shifts) for stride in strides]
            if not shifts or not all(all(each) for each in scaled):
                continue
            laid = [lay_circulant(problem, each) for each in scaled]
            topologies = tuple(each for each in laid if each is not None)
            if len(topologies) == len(strides):
                yield Relay(topologies, strides)


def list_forwarding_offers(problem: Collective, clock: Clock) -> Iterator[Offer]:
    """Offer plans that forward data inside rounds, each with its time.

    Blocks go whole or, where they are gathered, cut into as many pieces as ranks have lanes. Plans
    whose sends would take too long to be laid out in the time of `clock` are left out.
    """
    n = problem.n_ranks
    everyone = np.arange(n)
    for relay in list_relays(problem):
        for pieces in sorted({1, 1 if problem.operation == "all-to-all" else problem.lanes}):
            if not is_affordable(n * (n - 1) * pieces, clock):
                continue
            if problem.operation == "broadcast":
                yield from _offer_broadcasts(problem, relay, pieces)
                continue
            gather = find_ways(problem, relay, pieces, everyone)
            if gather is None:
                break
            yield from _offer_gathers(problem, relay, gather)


def _count_rows(ways: RelayRoutes, n: int) -> int:
    """Count sends and links of a gather; to lay out a link takes about as long as a send."""
    return (len(ways.turn) + len(ways.link_from)) * (n if ways.n_owners == 1 else 1)


def _offer_gathers(problem: Collective, relay: Relay, gather: RelayRoutes) -> Iterator[Offer]:
    """Offer a gather, sums that run backwards, or an all-to-all over the same ways.

    Each offer is priced from the loads and hops of its rounds; sends are listed only if it is
    built. An all-gather is the gather itself, an all-to-all goes along its ways block by block. A
    reduce-scatter is the gather over circuits that lead the other way, run backwards in time; an
    all-reduce is this and then the gather, or one gather of whole buffers that each rank adds up
    itself. With 8 ranks and buffers of 8 MB, blocks are 1 MB in the first case and 8 MB in the
    second, which has half of the rounds.
    """
    n = problem.n_ranks
    pieces = gather.pieces
    changes_s = relay.changes * problem.delay_s
    name = f"{relay.topologies[0].name} in {len(relay.strides)}"
    n_rows = _count_rows(gather, n)
    if problem.operation == "all-to-all":
        n_turns = n if gather.n_owners == 1 else 1
        priced = list_exchanged(gather, n, 1)
        load = _load_blocks(problem, relay, gather, priced)
        seconds = gather._replace(load=load).seconds(problem, 1.0)
        rows = n_turns * (int(gather.n_links[priced.way].sum()) + len(priced.way))

        def build_exchange() -> Laid:
            exchanged = list_exchanged(gather, n, n_turns)
            return list_sends(gather, exchanged, relay, n, adds=False).lay(problem, n * n)

        yield Offer(seconds + changes_s, rows, name, build_exchange)
        return

    chunk_bytes = float(chunk_sizes(problem, n * pieces)[0])
    gather_s = gather.seconds(problem, chunk_bytes * pieces) + changes_s
    if problem.operation == "all-gather":

        def build_gather() -> Laid:
            return list_sends(gather, list_gathered(gather, n), relay, n, adds=False).lay(
                problem, n * pieces
            )

        yield Offer(gather_s, n_rows, name, build_gather)
        return
    scatter = find_ways(problem, relay.backwards(two_way=problem.two_way), pieces, np.arange(n))
    if scatter is None:
        return
    scatter_s = scatter.seconds(problem, chunk_bytes * pieces) + changes_s
    is_sum = problem.operation == "all-reduce"

    def build_sums() -> Laid:
        sends = list_sends(scatter, list_gathered(scatter, n), relay, n, adds=True)
        if is_sum:
            sends = sends.then(list_sends(gather, list_gathered(gather, n), relay, n, adds=False))
        return sends.lay(problem, n * pieces)

    seconds = scatter_s + gather_s if is_sum else scatter_s
    yield Offer(seconds, n_rows * (1 + is_sum), name, build_sums)
    whole_bytes = n * problem.size_bytes
    if is_sum and whole_bytes <= LONGEST_S * problem.rate_bytes_per_s:
        buffers = replace(problem, operation="all-gather", size_bytes=whole_bytes)
        chunk_bytes = float(chunk_sizes(buffers, n * pieces)[0])

        def build_buffers() -> Laid:
            sends = list_sends(gather, list_gathered(gather, n), relay, n, adds=False)
            return sum_up(sends.lay(buffers, n * pieces))

        seconds = gather.seconds(problem, chunk_bytes * pieces) + changes_s
        yield Offer(seconds, n_rows, f"{name} of buffers", build_buffers)


def _load_blocks(
    problem: Collective, relay: Relay, ways: RelayRoutes, exchanged: Carried
) -> FloatArray:
    """Return the bytes over the busiest circuit of each round of an all-to-all.

    ``load[round]`` is in bytes; circuits of several lanes between the same ranks share evenly.
    Where all ranks do the same, `exchanged` has the blocks of one owner alone, and what they put
    on all circuits of a shift together is the load of each circuit of this shift.
    """
    n = problem.n_ranks
    sizes = chunk_sizes(problem, n * n)[exchanged.chunk]
    n_links = ways.n_links[exchanged.way]
    number = np.repeat(np.arange(len(n_links)), n_links)
    place = np.arange(len(number)) - np.repeat(np.cumsum(n_links) - n_links, n_links)
    link = ways.first_link[exchanged.way][number] + place
    load = np.zeros(len(relay.strides))
    for turn, topology in enumerate(relay.topologies):
        here = ways.turn[exchanged.way][number] == turn
        source, target = ways.link_from[link[here]], ways.link_to[link[here]]
        if ways.n_owners == 1:
            # All circuits of a shift carry what the blocks of one owner carry over this shift.
            circuits, which = np.unique((target - source) % n, return_inverse=True)
            width = (np.array(topology.shifts)[:, None] == circuits).sum(axis=0)
        else:
            circuits, which = np.unique(source * n + target, return_inverse=True)
            width = (topology.peer[:, circuits // n] == circuits % n).sum(axis=0)
        amounts = np.bincount(which.reshape(-1), sizes[number[here]])
        load[turn] = (amounts / width).max()
    return load


def _offer_broadcasts(problem: Collective, relay: Relay, pieces: int) -> Iterator[Offer]:
    """Offer the gather of the root's block alone, and a scatter before a gather of all parts.

    The first plan sends the whole buffer, cut into `pieces` chunks, to all ranks over the rounds
    of the relay. The second one (scatter-allgather) sends each rank its n-th part in one round
    over the first circuits of the relay, and then all ranks gather the parts of all others: it
    moves far less per circuit, and has a round more. Nothing is offered if the circuits do not
    reach all ranks, and the second plan only if it has few sends.
    """
    n = problem.n_ranks
    name = f"{relay.topologies[0].name} in {len(relay.strides)}"
    changes_s = relay.changes * problem.delay_s
    root = np.array([problem.root])
    ways = find_ways(problem, relay, pieces, root)
    if ways is None:
        return
    ways = ways._replace(n_owners=0)
    whole_bytes = float(chunk_sizes(problem, pieces)[0]) * pieces
    carried = Carried(
        np.arange(len(ways.turn)),
        np.zeros(len(ways.turn), np.int64),
        np.arange(len(ways.turn)) % pieces,
    )
    yield Offer(
        ways.seconds(problem, whole_bytes) + changes_s,
        len(ways.turn) + len(ways.link_from),
        name,
        partial(_lay_carried, problem, ways, carried, relay, pieces),
    )

    # The second plan: each rank gets its own part in one round, then all parts are gathered.
    first = Relay(relay.topologies[:1], (1,))
    gather = find_ways(problem, relay, pieces, np.arange(n))
    scatter = find_ways(problem, first, pieces, root)
    if gather is None or scatter is None or n * (n - 1) * pieces > 1 << 22:
        return
    chunk_bytes = float(chunk_sizes(problem, n * pieces)[0])
    chunks = scatter.target * pieces + np.arange(len(scatter.turn)) % pieces
    scattered = Carried(
        np.arange(len(scatter.turn)), np.zeros(len(scatter.turn), np.int64), chunks
    )

    def build() -> Laid:
        sends = list_sends(scatter, scattered, first, n, adds=False)
        sends = sends.then(list_sends(gather, list_gathered(gather, n), relay, n, adds=False))
        return sends.lay(problem, n * pieces)

    seconds = scatter.seconds(problem, chunk_bytes * pieces) + gather.seconds(
        problem, chunk_bytes * pieces
    )
    yield Offer(seconds + changes_s, _count_rows(gather, n), f"{name} of parts", build)


def _lay_carried(
    problem: Collective, ways: RelayRoutes, carried: Carried, relay: Relay, chunk_count: int
) -> Laid:
    """Make the plan of copies."""
    return list_sends(ways, carried, relay, problem.n_ranks, adds=False).lay(problem, chunk_count)

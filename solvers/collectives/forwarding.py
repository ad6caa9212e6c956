"""Data that are forwarded inside a round: few rounds, in which sends go over several circuits.

Where a problem states the time of a hop (``hop_s``), a send may pass ranks on its way, and a round
takes ``alpha_s``, the hops of its longest send, and the bytes of its busiest circuit. Many ranks
can then be reached in one round over circuits that stay, or in a few rounds. A *relay* says in
which round each rank gets a block, the same for all blocks but for their owners. In each round
every block comes to its new ranks from the nearest rank that has it, over a shortest route
(breadth-first search), and among shortest routes over the circuits that carry least. With all
ranks in one round this is a direct exchange over a ring, a torus or another graph; with strides
n/2, n/4, ..., 1 it is doubling; and with new circuits in each round it is Bruck's algorithm with
digits of a large base. Sums run backwards, and blocks of an all-to-all take the routes of the
gather.

Words that are used here:

- the *stride* of a round: afterwards all ranks have the block whose distance from the owner is a
  multiple of it, counted around the ring of all ranks;
- a *ring*, named by its *shift*: circuits from every rank r to r plus the shift, modulo n, which
  stay for some rounds. On the ring of shift 8 a stride of 32 is 4 circuits;
- a *chain*: the strides of all rounds, each with the ring over which the blocks of the round go.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from optmatch.model import Clock, TimeUp
from optmatch.problems import Collective
from optmatch.solvers.collectives.offers import Offer
from optmatch.solvers.collectives.plans import Laid, lay, list_hops, time_rounds
from optmatch.solvers.collectives.rounds import (
    MOST_OFFERED_SENDS,
    IntArray,
    Rounds,
    chunk_sizes,
    is_affordable,
    seconds_of,
)
from optmatch.solvers.collectives.spreading import (
    Arrivals,
    CircuitSequence,
    Receipts,
    Stage,
    lay_phases,
    list_exchanged,
    make_rounds,
    offer_gathers,
    receive_routed,
)
from optmatch.solvers.collectives.topologies import (
    FAR,
    leaves_out_graphs,
    list_scaled_circulants,
    list_topologies,
    reach_ranks,
)

MOST_STRIDES = 256
"""Up to this number of ranks all strides are tried; between more only the divisors of `SMOOTH`."""
SMOOTH = 30**16
"""Its divisors have no prime factor above 5: some 90 of the numbers to 1,000."""
BEST_CHAINS = 6
"""The choices of rings that are tried for each number of them. With one of them an all-reduce of
24 ranks with two ports takes 2.7 % longer."""
MOST_SCATTERED = 1 << 22
"""Sends of the gather of a broadcast that is a scatter before a gather; of more none is made."""


class Relay(NamedTuple):
    """In which round each rank gets the block of an owner, and over which circuits."""

    sequence: CircuitSequence
    """One configuration that stays, or one for each round."""
    strides: tuple[int, ...]
    """By round: the ranks whose distance from the owner around the ring of all ranks is a multiple
    of this number have the block after the round. The last stride is 1. If strides ascend from 1
    instead, the ranks that are nearer than the stride of the next round have it, and all of them
    after the last round."""

    @property
    def name(self) -> str:
        """The name of the circuits and the number of rounds, for statistics."""
        return f"{self.sequence.name} in {len(self.strides)}"

    def rounds_of_arrival(self, offset: IntArray) -> IntArray:
        """Return the round in which ranks `offset` places onward from the owner get its block.

        The owner itself, at offset 0, has it before all rounds: -1. With the strides (4, 2, 1) the
        offsets 4, 2, 6 and 1 have the rounds 0, 1, 1 and 2; with (1, 2, 4) the offset 1 has round
        0, 2 and 3 have round 1, and all from 4 on round 2.
        """
        # If strides ascend, the ranks nearer than the next stride have the block after a round.
        # Else earlier rounds overwrite later ones, as each stride is taken after those that follow
        # it.
        if len(self.strides) > 1 and self.strides[0] == 1:
            return np.searchsorted(self.strides, offset, side="right") - 1
        arrives = np.full(offset.shape, len(self.strides) - 1)
        for turn in range(len(self.strides) - 1, -1, -1):
            arrives[offset % self.strides[turn] == 0] = turn
        arrives[offset == 0] = -1
        return arrives


def find_routes(
    problem: Collective,
    relay: Relay,
    sequence: CircuitSequence,
    *,
    pieces: int,
    owners: IntArray,
    block_bytes: float,
    below_s: float,
    clock: Clock,
) -> Receipts | None:
    """Find the routes by which blocks of some owners come to all ranks, as receipts.

    `owners` are the ranks whose blocks of `block_bytes` spread, each cut into `pieces`. The
    `relay` tells in which round each rank gets a block: over a shortest route from the nearest
    rank that had it before the round. Routes are chosen so that the busiest circuit of the round
    carries little. The `sequence` is that of the relay, or the same with all circuits reversed.
    Blocks of an uneven all-to-all weigh as much as their bytes; all others weigh 1.

    The result is None if some rank is not reached, if the plan takes `below_s` seconds or longer
    even with equal bytes on all circuits, or if its links are too many for the memory. Raises
    `TimeUp` if `clock` has no time for the links of all routes.

    Example: 4 ranks on a ring of one-way circuits, strides 2 and 1. The block of rank 0 comes to
    rank 2 in round 0, over the links 0-1 and 1-2, and to the ranks 1 and 3 in round 1, from 0 and
    from 2.
    """
    # Where all ranks do the same, over circulants, the block of rank 0 stands for all blocks, and
    # each of its receipts for n; `ends` then count the load of each lane at rank 0 alone.
    n = problem.n_ranks
    is_even = problem.demand_bytes is None
    are_alike = is_even and len(owners) == n and sequence.shifts is not None
    n_rotations = n if are_alike else 1
    if are_alike:
        owners = owners[:1]
    ends = sequence.ends if are_alike else sequence.ends_by_rank

    # What comes in each round, over which circuits. Rounds in which nothing comes are of no use.
    config_of_round = sequence.config_of_round(len(relay.strides))
    n_rounds = len(config_of_round)
    peer_of_round = ends.peer[config_of_round]  # [round, lane, rank], -1 if the port is dark
    onward = 1 if sequence is relay.sequence else -1
    arrivals, stages = _list_arrivals(problem, relay, owners, peer_of_round, onward)
    n_links = np.diff(arrivals.first_link)
    n_arrivals = np.bincount(arrivals.turn, minlength=n_rounds)
    if not n_arrivals.all() or n_links.max() == FAR:
        return None

    # The bytes of the busiest circuit of each round, if the circuits of the round share the bytes
    # of all hops evenly: no routes do better.
    hop_bytes = block_bytes * n_links
    if not is_even:
        hop_bytes = problem.demand[owners][arrivals.block, arrivals.target] * n_links
    n_circuits = np.count_nonzero(peer_of_round >= 0, axis=(1, 2))
    least_bytes = np.bincount(arrivals.turn, hop_bytes) * n_rotations / n_circuits

    # End early if the plan cannot take less than `below_s`, or is too large to be routed.
    first_arrival = np.searchsorted(arrivals.turn, np.arange(n_rounds))
    longest = np.maximum.reduceat(n_links, first_arrival)  # the most links of a route, by round
    at_least_s = seconds_of(
        problem,
        n_rounds,
        float(least_bytes.sum()),
        n_changes=int(np.count_nonzero(np.diff(config_of_round))),
        n_hops=int(longest.sum()),
    )
    n_all_links = pieces * int(arrivals.first_link[-1])
    if at_least_s >= below_s or n_all_links > MOST_OFFERED_SENDS:
        return None
    if not is_affordable(n_all_links, clock):
        raise TimeUp(f"no time for {n_all_links} links of routes")

    # Blocks of an uneven all-to-all load circuits with their bytes; empty ones do not come. All
    # other blocks are alike, and load them with 1.
    if not is_even:
        sizes = chunk_sizes(problem, n * n).reshape(n, n)
        arrivals = arrivals._replace(weight=sizes[owners[arrivals.block], arrivals.target])
    return receive_routed(sequence, arrivals, stages, pieces=pieces, n_rotations=n_rotations)


def _list_arrivals(
    problem: Collective, relay: Relay, owners: IntArray, peer_of_round: IntArray, onward: int
) -> tuple[Arrivals, list[Stage]]:
    """List which blocks of the `owners` come to which ranks in each round, and all rounds.

    ``peer_of_round[round, lane, rank]`` is the rank to which a circuit leads, -1 for none. Ranks
    count `onward` (1) from the owner or, over reversed circuits, back (-1). A block that cannot
    reach a rank has `FAR` links to it.

    Example: 4 ranks on a one-way ring, and the strides 2 and 1. The block of owner 0 comes to rank
    2 in round 0, over 2 links, and to the ranks 1 and 3 in round 1, over one link each.
    """
    # arrives[owner, rank]: the round in which the rank gets the block, -1 if it has it at first.
    # Empty blocks of an uneven all-to-all go nowhere.
    n = problem.n_ranks
    arrives = relay.rounds_of_arrival(onward * (np.arange(n) - owners[:, None]) % n)
    is_wanted = arrives >= 0
    if problem.demand_bytes is not None:
        is_wanted &= problem.demand[owners] > 0
    owner, target = np.argwhere(is_wanted).astype(np.int32).T
    by_round = np.argsort(arrives[owner, target], kind="stable")
    owner = owner[by_round]
    target = target[by_round]
    turn = arrives[owner, target].astype(np.int32)

    # By breadth-first search from all ranks that have the block before a round.
    configs = relay.sequence.config_of_round(len(peer_of_round)).tolist()
    stages = [
        Stage(config, 1, reach_ranks(peer, arrives < round_)[0])
        for round_, (config, peer) in enumerate(zip(configs, peer_of_round, strict=True))
    ]
    distance = np.array([stage.distance for stage in stages])
    first_link = np.zeros(len(turn) + 1, dtype=np.int64)
    np.cumsum(distance[turn, owner, target], out=first_link[1:])
    return Arrivals(turn, owner, target, first_link), stages


class Chain(NamedTuple):
    """Rounds of a relay over rings, with their time by formula; chains compare by it.

    Example: strides 32, 16 and 8 over the ring of shift 8, then 4, 2 and 1 over that of shift 1.
    """

    seconds: float
    """The time of all rounds, without the changes of circuits."""
    rounds: tuple[tuple[int, int], ...]
    """The stride of each round, and the shift of its ring."""


def list_chains(problem: Collective, *, in_parts: bool) -> list[Chain]:
    """List the best rounds over one ring, over two rings one after the other, and so on.

    For two rings and more the `BEST_CHAINS` best shifts of the first ring have a chain each, as
    the formula is exact for one kind of circulants alone. In a broadcast the whole buffer goes to
    all; with `in_parts` the chains are those of a gather of its parts.

    Each stride divides the one before, and is a multiple of the shift of its ring; the last stride
    over a ring is the shift. Example with 64 ranks and two rings: strides 32, 16 and 8 over the
    ring of shift 8, in which blocks take 4, 2 and 1 circuits, then 4, 2 and 1 over that of shift 1
    (data of a doubling, forwarded over fewer changes). The choice is exact for its formula, by
    dynamic programming over strides: rounds over one ring first, then rings.
    """
    n = problem.n_ranks
    block_s = problem.sending_s(problem.block_bytes)
    strides = [stride for stride in range(1, n) if n <= MOST_STRIDES or SMOOTH % stride == 0]
    # following[stride]: the strides that may come next, its divisors. Before all rounds `SMOOTH`,
    # far beyond all ranks, stands for a stride.
    following = {
        stride: [divisor for divisor in strides if divisor < stride and stride % divisor == 0]
        for stride in strides
    }
    following[SMOOTH] = strides

    def time_s(before: int, stride: int, shift: int) -> float:
        """Return the seconds of a round over the ring of this shift.

        Before it every `before`-th rank onward from the owner of a block has it, after it every
        `stride`-th one. With the strides 8 and 2, ranks 0, 8, 16 have a block of rank 0 before,
        and ranks 0, 2, 4, ... behind.
        """
        # The new ranks of a block: `n_between` between each two that have it, and `n_behind`
        # behind the last one; `places` that the block goes onward to all of them together, and to
        # the farthest one. With 20 ranks the stride 8 leaves two gaps, 0 to 8 and 8 to 16, and 3
        # ranks behind 16: with the stride 2 there are 3 new ranks in each gap, and 1 behind.
        n_whole, n_left = divmod(n, before)
        n_between = before // stride - 1
        n_behind = max(0, n_left - 1) // stride
        n_new = n_whole * n_between + n_behind
        places = stride * (n_whole * n_between * (n_between + 1) + n_behind * (n_behind + 1)) / 2
        farthest = min(before - stride, (n - 1) // stride * stride)

        # The blocks that a rank sends, over all its lanes: a hop for each new rank at least, or as
        # many as there are circuits on the way; with 4 lanes circuits lead up to 4 shifts onward,
        # and there are a quarter of them on the way. The root of a broadcast alone has a block, of
        # n times the bytes. Each block of an all-to-all for a new rank goes together with those
        # for the ranks up to the next one.
        n_blocks = max(float(n_new), places / shift / problem.lanes)
        if problem.flow.from_root and not in_parts:
            n_blocks = n * ((min(before, n) - 1) // stride)
        elif problem.flow.has_pairs:
            n_blocks *= stride
        n_hops = max(1.0, farthest / shift / problem.lanes)
        return problem.start_up_s + n_hops * problem.circuit_s + n_blocks * block_s

    @cache
    def fill_ring(before: int, shift: int) -> Chain:
        """Return the best rounds over one ring, from a stride to the shift of the ring.

        From stride 32 to the ring of shift 8 these are the strides 16 and 8, or 8 alone.
        """
        if before == shift:
            return Chain(0.0, ())
        chains = []
        for stride in following[before]:
            if stride % shift == 0:
                later = fill_ring(stride, shift)
                seconds = time_s(before, stride, shift) + later.seconds
                chains.append(Chain(seconds, ((stride, shift), *later.rounds)))
        return min(chains)

    @cache
    def fill_rings(before: int, n_rings: int) -> list[Chain]:
        """Return the best rounds over `n_rings` rings, from a stride to the last one, 1.

        There is one chain for each of the best shifts of the first ring, the fastest first. Its
        time is infinite where no rings are left for the strides, or no strides for the rings.
        """
        if before == 1 or n_rings == 0:
            return [Chain(0.0 if before == 1 and n_rings == 0 else math.inf, ())]
        chains = []
        for shift in following[before]:
            first = fill_ring(before, shift)
            later = fill_rings(shift, n_rings - 1)[0]
            chains.append(Chain(first.seconds + later.seconds, first.rounds + later.rounds))
        return sorted(chains)[:BEST_CHAINS]

    all_chains = [fill_rings(SMOOTH, n_rings) for n_rings in range(1, (n - 1).bit_length() + 1)]
    return [chain for chains in all_chains for chain in chains if math.isfinite(chain.seconds)]


def list_relays(problem: Collective, clock: Clock) -> Iterator[Relay]:
    """Yield relays over circuits that stay, then those whose circuits change between rounds.

    - Over circuits that stay: each topology with one round, and with the strides of all chains. An
      all-to-all takes one round alone, as more only add start-ups.
    - With circuits that change: the chains of two rings and more, over circulants whose shifts are
      multiples of those of the rings. They suit collectives in which all ranks do the same, so an
      uneven all-to-all has none. Where the problem begins with circuits, which often lead to
      neighbours, also the other way round: first nearby, and then as far onward as blocks have
      come.
    """
    # Over circuits that stay. One round comes first.
    n = problem.n_ranks
    chains = list_chains(problem, in_parts=False)
    if problem.flow.from_root:
        chains += list_chains(problem, in_parts=True)
    all_rounds = dict.fromkeys(chain.rounds for chain in chains)

    # All graphs with all strides.
    strides_that_stay: set[tuple[int, ...]] = {(1,)}
    if not problem.flow.has_pairs:
        strides_that_stay |= {tuple(stride for stride, _ in rounds) for rounds in all_rounds}
    for topology in list_topologies(problem, clock):
        for strides in sorted(strides_that_stay, key=len):
            yield Relay(CircuitSequence.of([topology], two_way=problem.two_way), strides)
    if problem.demand_bytes is not None:
        return

    # With circuits that change. Example of 27 ranks, with the strides and rings 9, 3 and 1: for
    # shifts of 1 and 2 circuits lead 9 and 18 ranks onward in the first round, then 3 and 6, then
    # 1 and 2. A configuration has to reach as many multiples of its ring as fit into the ring
    # before (the base, the most of these), and does that like a gather of as many ranks.
    for rounds in all_rounds:
        strides, shifts = zip(*rounds, strict=True)
        rings = tuple(dict.fromkeys(shifts))
        if len(rings) == 1:
            continue
        rounds_of_ring = tuple(shifts.count(ring) for ring in rings)
        base = max(math.ceil(before / ring) for before, ring in pairwise((n, *rings)))

        # From far to near, and the other way round where the first circuits are given.
        orders = [(strides, rings, rounds_of_ring)]
        if not isinstance(problem.start, str):
            orders.append((strides[::-1], rings[::-1], rounds_of_ring[::-1]))
        for strides_in_order, scales_in_order, held_in_order in orders:
            for _, topologies in list_scaled_circulants(problem, base, scales_in_order):
                sequence = CircuitSequence.of(topologies, held_in_order, two_way=problem.two_way)
                yield Relay(sequence, strides_in_order)


def list_forwarding_offers(
    problem: Collective, clock: Clock, below_s: float = math.inf
) -> Iterator[Offer[Laid]]:
    """Offer plans that forward data inside rounds, each with its time.

    Blocks go whole or, where they are gathered, cut into as many pieces as ranks have lanes.
    Left out are plans whose routes would take too long to be found in the time of `clock`, and
    those that take no less than `below_s` seconds, or than one that was offered before. The list
    ends when the time is over; it ends by `TimeUp` if there was no time for some routes, or for
    any other graphs than circulants.
    """
    # If plans take just as long as they promise, an offer that promises no less than an earlier
    # one is left out: `below_s` falls. A plan lasts longer if ranks are late, or if the problem
    # starts with circuits and the first round needs others; then slower offers are listed, too.
    starts_with_circuits = not isinstance(problem.start, str)
    keeps_promises = not problem.late_s and not starts_with_circuits

    # A block of an all-to-all (`has_pairs`) goes to one rank only, and is not cut.
    n_pieces = {1}
    if not problem.flow.has_pairs:
        n_pieces.add(problem.lanes)
    has_skipped = False
    for relay in list_relays(problem, clock):
        for pieces in sorted(n_pieces):
            if clock.remaining_s <= 0:
                return
            try:
                for offer in _offer_relay(problem, relay, pieces, below_s, clock):
                    # Without time for an offer, those that are slower are not left out.
                    if keeps_promises and is_affordable(offer.n_sends, clock):
                        below_s = min(below_s, offer.seconds)
                    yield offer
            except TimeUp:
                has_skipped = True
    # `list_topologies`, from which relays are made, may have yielded circulants alone.
    if has_skipped or leaves_out_graphs(problem, clock):
        raise TimeUp("no time for all graphs and routes")


def _offer_relay(
    problem: Collective, relay: Relay, pieces: int, below_s: float, clock: Clock
) -> Iterator[Offer[Laid]]:
    """Offer the plans of a relay, with blocks in `pieces`, that may take less than `below_s` s."""
    # Blocks of an all-to-all are not cut.
    if problem.flow.has_pairs:
        return _offer_exchange(problem, relay, below_s, clock)
    if problem.flow.from_root:
        return _offer_broadcasts(problem, relay, pieces, below_s, clock)

    # Gathers, and the sums that are made of them.
    receive = partial(
        find_routes,
        problem,
        relay,
        pieces=pieces,
        owners=np.arange(problem.n_ranks),
        block_bytes=problem.block_bytes,
        below_s=below_s,
        clock=clock,
    )
    return offer_gathers(problem, relay.sequence, relay.name, receive)


def _offer_exchange(
    problem: Collective, relay: Relay, below_s: float, clock: Clock
) -> Iterator[Offer[Laid]]:
    """Offer an all-to-all whose blocks take the routes of a gather.

    A gather over the `relay` brings the block of each rank to all others; the block from one rank
    to another goes the same way. There is no offer if the gather does not reach all ranks, or
    cannot take less than `below_s` seconds. Blocks are not cut, hence there is one piece of each.
    """
    n = problem.n_ranks
    if n * n > MOST_OFFERED_SENDS:  # blocks are listed by source and destination
        return
    gather = find_routes(
        problem,
        relay,
        relay.sequence,
        pieces=1,
        owners=np.arange(n),
        block_bytes=problem.block_bytes,
        below_s=below_s,
        clock=clock,
    )
    if gather is None:
        return

    # The sends of all blocks whose routes the gather lists: those of rank 0 alone where all ranks
    # do the same, as rank k has the same k places onward; else those of all ranks. Their bytes
    # tell the time, and not the loads of the gather, which are in chunks.
    listed = _list_blocks(problem, gather, int(gather.n_rotations > 1))
    hops = list_hops(problem, listed, len(gather.load))
    length_s = time_rounds(problem, hops, gather.peer, gather.config_of_round)
    n_changes = np.count_nonzero(np.diff(gather.config_of_round))

    # To lay out a plan takes as long as its hops, for each rank whose blocks are stored, or all
    # that the listed one stands for.
    yield Offer(
        seconds=float(length_s.sum()) + n_changes * problem.delay_s,
        n_sends=len(hops.turn) * (gather.stored_ranks or gather.n_rotations),
        name=relay.name,
        build=partial(_lay_exchange, problem, gather),
    )


def _lay_exchange(problem: Collective, gather: Receipts) -> Laid:
    """Make the plan of an all-to-all whose blocks take the routes of a gather."""
    return lay(problem, _list_blocks(problem, gather, gather.stored_ranks))


def _list_blocks(problem: Collective, gather: Receipts, stored_ranks: int) -> Rounds:
    """List the sends of the blocks of the first `stored_ranks` ranks, of all ranks if it is 0."""
    # Where all ranks do the same, the gather has the receipts of rank 0 alone, which are turned to
    # the other ranks that are listed; else it has those of all.
    n = problem.n_ranks
    exchanged = list_exchanged(gather, stored_ranks or gather.n_rotations)
    rounds = make_rounds(gather, exchanged, (stored_ranks or n) * n)
    return rounds._replace(stored_ranks=stored_ranks)


def _offer_broadcasts(
    problem: Collective, relay: Relay, pieces: int, below_s: float, clock: Clock
) -> Iterator[Offer[Laid]]:
    """Offer two plans of a broadcast: the whole buffer to all, or parts scattered and gathered.

    The first plan is a gather in which the root alone has a block: the whole buffer, cut into
    `pieces` chunks, goes to all ranks over the rounds of the relay. The second one
    (scatter-allgather) sends each rank its n-th part in one round over the first circuits of the
    relay, and then all ranks gather the parts of all others: it moves far less per circuit, and
    has a round more. A plan is left out if the circuits do not reach all ranks, if its gather or
    its scatter alone takes `below_s` seconds or longer even at best, or if `clock` has no time to
    find its routes; the second one also if it has too many sends.
    """
    n = problem.n_ranks
    root = np.array([problem.root])
    routes = find_routes(
        problem,
        relay,
        relay.sequence,
        pieces=pieces,
        owners=root,
        block_bytes=problem.size_bytes,
        below_s=below_s,
        clock=clock,
    )
    if routes is not None:
        yield Offer(
            seconds=routes.seconds(problem, float(chunk_sizes(problem, pieces)[0])),
            n_sends=routes.n_rows,
            name=relay.name,
            build=partial(lay_phases, problem, [routes], pieces),
        )

    # The second plan: each rank gets its own part in one round over the first circuits, and then
    # all parts are gathered. The scatter takes the routes on which the block of the root would
    # come to all ranks in one round: one receipt for each piece and rank, its target.
    if n * (n - 1) * pieces > MOST_SCATTERED:
        return
    first_circuits = replace(relay.sequence, peer=relay.sequence.peer[:1], held=(1,))
    one_round = Relay(first_circuits, strides=(1,))
    find_parts = partial(
        find_routes,
        problem,
        pieces=pieces,
        block_bytes=problem.block_bytes,
        below_s=below_s,
        clock=clock,
    )
    scatter = find_parts(one_round, one_round.sequence, owners=root)
    if scatter is None:
        return
    gather = find_parts(relay, relay.sequence, owners=np.arange(n))
    if gather is None:
        return
    # In one round nobody hands on what has come before, so each arrival may be the part of its
    # target instead of that of the root: what comes to rank 5 is block 5.
    arrivals = scatter.arrivals._replace(block=scatter.arrivals.target)
    scatter = replace(scatter, arrivals=arrivals)
    chunk_bytes = float(chunk_sizes(problem, n * pieces)[0])
    seconds = scatter.seconds(problem, chunk_bytes) + gather.seconds(problem, chunk_bytes)
    build = partial(lay_phases, problem, [scatter, gather], n * pieces)
    # The sends of the scatter, about an n-th of those of the gather, are left out of the work.
    yield Offer(seconds, gather.n_rows, f"{relay.name} of parts", build)

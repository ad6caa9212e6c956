"""Data that spread over circuits: which chunk comes to which rank, when, from where, and its time.

A *sequence* is configurations of circuits, of which each is held for some rounds. Chunks spread
over it in one of three ways:

- breadth first (BFB schedules of Zhao et al.): in each round a rank takes from its neighbours all
  that it lacks and that they had before (`spread`, for gathers);
- one chunk over each circuit, the rarest first (module `broadcasts`);
- over several circuits inside a round, where hops have a time (module `forwarding`).

What they have in common is here: the choice of circuits for whatever comes in a round
(`choose_routes`), the *receipts* of an all-gather, its seconds before it is made, and the
collectives that are made of it. A reduce-scatter is an all-gather over the reversed
circuits that runs backwards, with sums; an all-reduce is both, one after the other, or an
all-gather of whole buffers that every rank adds up by itself.

In a *circulant* all ranks have circuits to r + s for the same shifts s, and do the same: the
receipts of the block of rank 0 then stand for those of all blocks, rotated around the ring of all
ranks: a receipt of rank 2 from rank 0 becomes one of rank 5 from rank 3. In a *mirrored* circulant
of two-way ports all shifts are odd, and odd ranks are joined to r - s: odd ranks do the same the
other way around, and that receipt becomes one of rank 1 from rank 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import IDLE, LONGEST_S, Clock, TimeUp
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.circulant import list_knodel_shifts, split_rounds
from optmatch.solvers.collectives.offers import RESERVE, Offer
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import (
    MOST_OFFERED_SENDS,
    PORTS_OF_A_SEND,
    SENDS_OF_A_SUM,
    FloatArray,
    IndexArray,
    IntArray,
    Rounds,
    chunk_sizes,
    is_affordable,
    one_after_another,
    ranks_to_store,
    seconds_of,
)
from optmatch.solvers.collectives.sums import (
    list_ring_offers,
    list_turned_torus_offers,
    list_walk_offers,
    sum_up,
)
from optmatch.solvers.collectives.topologies import (
    Topology,
    count_parallel,
    inverse_circuits,
    leaves_out_graphs,
    list_scaled_circulants,
    list_topologies,
    reach_ranks,
)
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

SWEEPS = 6
"""How often routes of a round are chosen: first where there is no choice, then the others, and
then again those over the busiest circuits, while all others stay."""
ROUNDING = 1e-9
"""Loads that differ by no more, as a part of themselves, are equal."""


@dataclass(frozen=True, eq=False)
class CircuitSequence:
    """Configurations of circuits, one after another, each held for some rounds."""

    name: str
    """The name of the circuits, for statistics."""
    peer: IntArray
    """``peer[configuration, lane, rank]``: the rank to which a port leads, -1 if it is dark."""
    held: tuple[int, ...] = (1,)
    """The rounds of each configuration."""
    repeats: bool = False
    """Whether the first configuration follows the last one; else the last one stays."""
    shifts: IntArray | None = None
    """``shifts[configuration, lane]`` of circulants; a port need not have the shift of its lane,
    but each rank has as many circuits of a shift. None for other graphs."""
    two_way: bool = False
    """Whether data also come in over a port from the rank to which it leads."""
    is_mirrored: bool = False
    """Whether the shifts, all odd, lead back at odd ranks, so that each port joins a pair."""

    @classmethod
    def of(
        cls, topologies: list[Topology], held: tuple[int, ...] = (1,), *, two_way: bool = False
    ) -> CircuitSequence:
        """Make a sequence of graphs: of one, or of circulants with equally many shifts."""
        name = " then ".join(dict.fromkeys(topology.name for topology in topologies))
        shifts = [topology.shifts for topology in topologies]
        peer = np.array([topology.peer for topology in topologies])
        all_shifts = np.array(shifts) if all(shifts) else None
        return cls(name, peer, held, shifts=all_shifts, two_way=two_way)

    @classmethod
    def onward(
        cls, name: str, n: int, shifts: ArrayLike, held: tuple[int, ...], lanes: int = 1
    ) -> CircuitSequence:
        """Make a sequence in which all lanes lead ``shifts[configuration]`` places onward."""
        shifts_of_lanes = np.repeat(np.asarray(shifts)[:, None], lanes, axis=1)
        peer = (np.arange(n) + shifts_of_lanes[:, :, None]) % n
        return cls(name, peer, held, shifts=shifts_of_lanes)

    @classmethod
    def mirrored(cls, n: int, shifts: IntArray, lanes: int) -> CircuitSequence:
        """Make a sequence of pairs for an even number of ranks, one round for each odd shift.

        All lanes join even ranks r to r + s, modulo n. Of 6 ranks the shift 3 joins 0 and 3, 2 and
        5, 4 and 1.
        """
        ranks = np.arange(n)
        way = 1 - 2 * (ranks % 2)
        peer = np.repeat((ranks + shifts[:, None, None] * way) % n, lanes, axis=1)
        shifts_of_lanes = np.repeat(shifts[:, None], lanes, axis=1)
        held = (1,) * len(shifts)
        return cls("pairs", peer, held, shifts=shifts_of_lanes, two_way=True, is_mirrored=True)

    def config_of_round(self, n_rounds: int) -> IntArray:
        """Return the number of the configuration that is up in each of `n_rounds` rounds.

        Two configurations that are held for 2 and 1 rounds are 0, 0, 1, 1, 1 in five rounds, and
        0, 0, 1, 0, 0 if they repeat.
        """
        one_pass = np.repeat(np.arange(len(self.peer)), self.held)
        if self.repeats:
            return np.resize(one_pass, n_rounds)
        return one_pass[np.minimum(np.arange(n_rounds), len(one_pass) - 1)]

    @cached_property
    def backwards(self) -> CircuitSequence:
        """The sequence whose circuits all lead the other way."""
        if self.two_way:
            return self
        n = self.peer.shape[2]
        shifts = None if self.shifts is None else (n - self.shifts) % n
        return replace(self, peer=inverse_circuits(self.peer, two_way=False), shifts=shifts)

    @cached_property
    def ends_by_rank(self) -> BothEnds:
        """Where all circuits lead and come from, with the widths of each rank."""
        source = inverse_circuits(self.peer, two_way=self.two_way)
        width = np.array([count_parallel(row) for row in source])
        return BothEnds(self.peer, source, width)

    @cached_property
    def ends(self) -> BothEnds:
        """Where all circuits lead and come from, with widths of rank 0 alone over circulants.

        Over a circulant rank 0 stands for all ranks: with the shifts 1, 3 and 1 of three lanes,
        ``width[configuration, :, 0]`` is 2, 1 and 0. In pairs (`is_mirrored`) a circuit leads both
        ways, so that a rank also receives from its peer. Other graphs have the widths of each
        rank.
        """
        if self.shifts is None:
            return self.ends_by_rank
        ranks = np.arange(self.peer.shape[2])
        shifts = self.shifts[:, :, None]
        width = np.array([count_parallel(row) for row in shifts])
        if self.is_mirrored:
            return BothEnds(self.peer, self.peer, width)
        return BothEnds((ranks + shifts) % len(ranks), (ranks - shifts) % len(ranks), width)


class BothEnds(NamedTuple):
    """The circuits of all configurations, as senders and as receivers see them."""

    peer: IntArray
    """``peer[configuration, lane, rank]``: the rank to which a port leads, -1 if it is dark."""
    source: IntArray
    """``source[configuration, lane, rank]``: the rank from which data come over the port."""
    width: IntArray
    """``width[configuration, lane, end]``: how many parallel circuits come from the source of this
    lane. The number stands at the first of their lanes, and 0 at the others: a rank that hears
    from rank 4 over lanes 0 and 2, and from rank 7 over lane 1, has the widths 2, 1 and 0. An end
    is the receiving rank; where all ranks are alike, rank 0 alone stands for all."""


class Arrivals(NamedTuple):
    """The arrivals of blocks at ranks; arrays by arrival, ascending by round."""

    turn: IndexArray
    """The round in which the block comes."""
    block: IndexArray
    """The number of the block. Pieces of it are the chunks ``block * pieces + piece``."""
    target: IndexArray
    """The rank that it comes to."""
    first_link: IntArray
    """The place at which the circuits of its route begin in the table of all routes; one entry
    more, which is the length of the table. Routes of 2, 1 and 1 circuits: 0, 2, 3, 4."""
    weight: FloatArray = np.ones(1)
    """What a piece adds to the load of each circuit on its way: its bytes, or a single 1 for all
    arrivals."""


class ReceiptTable(NamedTuple):
    """All receipts of a gather, one for each piece of each arrival, and the links of their routes.

    The arrays to `n_links` have one entry for each receipt, ascending by round.
    """

    turn: IndexArray
    """The round in which the chunk comes."""
    source: IndexArray
    """The rank that has it before the round."""
    target: IndexArray
    """The rank that gets it."""
    chunk: IndexArray
    """The number of the chunk."""
    first_link: IntArray
    """The place of its first link among all links."""
    n_links: IntArray
    """The number of circuits on the route from the source to the target."""
    link_from: IndexArray
    """``link_from[link]``: the rank at which a circuit begins."""
    link_to: IndexArray
    """``link_to[link]``: the rank at which it ends."""


@dataclass(frozen=True, eq=False)
class Receipts:
    """How chunks come to their receivers; what a plan of it takes is known before it is listed."""

    peer: IntArray
    """``peer[configuration, lane, rank]``, as in the sequence."""
    config_of_round: IntArray
    """``config_of_round[round]``: the configuration that is there."""
    load: FloatArray
    """``load[round]``: the chunks over the busiest circuit; parallel circuits share evenly."""
    pieces: int
    """The chunks into which a block is cut, which may come from different neighbours."""
    n_rotations: int
    """For how many a receipt stands, rotated by 0, 1, ... places around the ring of all ranks: for
    all n if the chunks are those of rank 0 in a circulant, else for itself."""
    arrivals: Arrivals
    """What comes, in all rounds."""
    via: IndexArray
    """``via[piece, link]``: the rank at which a circuit begins on the way of a piece. The links of
    a route follow each other, from its source on."""
    is_mirrored: bool = False
    """Whether rotations by odd numbers of places are mirrored, as in the sequence."""

    @cached_property
    def table(self) -> ReceiptTable:
        """The receipts one by one, which a plan is made of."""
        # Each link ends where the next one of its route begins, the last one at the target.
        turn, block, target, first_link, _ = self.arrivals
        link_to = np.roll(self.via, -1, axis=1)
        link_to[:, first_link[1:] - 1] = target

        # The receipts of an arrival follow each other, while routes are listed piece by piece.
        n_pieces, n_links = self.via.shape
        piece = np.arange(n_pieces)
        first_link_of_receipt = (first_link[:-1, None] + piece * n_links).reshape(-1)
        return ReceiptTable(
            turn=np.repeat(turn, n_pieces),
            source=self.via.reshape(-1)[first_link_of_receipt],
            target=np.repeat(target, n_pieces),
            chunk=(block[:, None] * n_pieces + piece).reshape(-1),
            first_link=first_link_of_receipt,
            n_links=np.repeat(np.diff(first_link), n_pieces),
            link_from=self.via.reshape(-1),
            link_to=link_to.reshape(-1),
        )

    def turn_ranks(self, rank: IndexArray, places_onward: IntArray) -> IntArray:
        """Return where ranks are after a rotation by some places, in the way of the circulant.

        With 8 ranks, rank 2 is rotated by 3 places to rank 5; mirrored to rank 3 - 2 = 1.
        """
        way = 1 - 2 * (places_onward % 2) if self.is_mirrored else 1
        turned: IntArray = (places_onward + way * rank) % self.peer.shape[2]
        return turned

    @property
    def n_rows(self) -> int:
        """Rows of sends and of links; to lay out a link takes about as long as a send."""
        n_links = np.diff(self.arrivals.first_link)
        n_forwarding_links = int(n_links[n_links > 1].sum())
        return (len(n_links) + n_forwarding_links) * len(self.via) * self.n_rotations

    @property
    def stored_ranks(self) -> int:
        """Return how many first ranks have their chunks stored in a plan; 0 if all have.

        The sends of the others are the same some places onward, and so have to be their circuits.
        One rank stands for all, or two where two-way ports on different planes exchange their
        shifts at every second rank, or pairs are mirrored there.
        """
        if self.n_rotations == 1 or not ranks_to_store(self.n_rows):
            return 0
        # onward[configuration, lane, rank]: how many places onward a port leads. Every rank has to
        # be like the one of the first ranks that stands for it.
        ranks = np.arange(self.peer.shape[2])
        onward = np.where(self.peer == IDLE, IDLE, (self.peer - ranks) % len(ranks))
        for n_first in (1, 2):
            if (onward == onward[:, :, ranks % n_first]).all():
                return n_first
        return 0

    @property
    def n_stored_rows(self) -> int:
        """Rows that a plan stores, and the time to set up all ports, counted in rows."""
        stored_ranks = self.stored_ranks
        if not stored_ranks:
            return self.n_rows
        n_rows_of_rank = self.n_rows // self.n_rotations
        return n_rows_of_rank * stored_ranks + self.peer.size // PORTS_OF_A_SEND

    def seconds(self, problem: Collective, chunk_bytes: float) -> float:
        """Return how long all rounds take, with the changes of circuits between them."""
        # A round takes as many hops as its longest route.
        turn = self.arrivals.turn
        first_arrival = np.searchsorted(turn, np.arange(len(self.load), dtype=turn.dtype))
        longest = np.maximum.reduceat(np.diff(self.arrivals.first_link), first_arrival)
        n_changes = int(np.count_nonzero(np.diff(self.config_of_round)))
        circuit_bytes = float(self.load.sum()) * chunk_bytes
        return seconds_of(
            problem,
            len(self.load),
            circuit_bytes,
            n_changes=n_changes,
            n_hops=int(longest.sum()),
        )


def receive_over_circuits(
    sequence: CircuitSequence,
    load: FloatArray,
    columns: Sequence[IntArray],
    *,
    pieces: int,
    n_rotations: int,
) -> Receipts:
    """Make the receipts of chunks that take one circuit in a round; rounds without any drop out.

    `columns` are four arrays with an entry for each receipt, ascending by round: round, source,
    target and chunk. ``load[round]`` are the chunks over the busiest circuit, 0 where nothing
    comes: with the loads 1, 0, 2 what came in round 2 comes in round 1 of the result. `pieces` and
    `n_rotations` become fields of the receipts.
    """
    turn, source, target, chunk = columns
    is_used = load > 0
    config_of_round = sequence.config_of_round(len(load))
    if not is_used.all():
        turn = (np.cumsum(is_used) - 1)[turn]
        config_of_round = config_of_round[is_used]
        load = load[is_used]
    # Each receipt has one link, from its source to its target.
    return Receipts(
        peer=sequence.peer,
        config_of_round=config_of_round,
        load=load,
        pieces=pieces,
        n_rotations=n_rotations,
        arrivals=Arrivals(turn, chunk, target, np.arange(len(turn) + 1)),
        via=source[None],
        is_mirrored=sequence.is_mirrored,
    )


class Stage(NamedTuple):
    """Rounds in a row over one configuration of circuits."""

    config: int
    """The number of the configuration."""
    n_rounds: int
    """The number of rounds; something comes in each of them."""
    distance: NDArray[np.int32]
    """``distance[block, rank]``: the circuits from the nearest rank that has the block before the
    stage, `FAR` without a way. Routes lead from each rank to one that is nearer by 1."""


class RouteArrays(NamedTuple):
    """The routes that `choose_routes` writes, and the array that it works in.

    The links of a route follow each other, from its source to its target.
    """

    via: NDArray[np.int32]
    """``via[piece, link]``: the rank at which a link begins; not set at first."""
    lane_of: NDArray[np.int16]
    """``lane_of[piece, link]``: the lane on which it ends; -1 at first."""
    load: FloatArray
    """Scratch, ``load[lane, rank]``: the sum of weight / width of all receipts of a round that
    take a circuit, in the shape of the widths."""


@inner_kernel
def _gives_up(place, arrivals, width, routes, least_load):
    """Take a route off the loads if one of its circuits has `least_load` or more; tell whether.

    `place` are the arrival and the piece whose route it is, `width` is that of `choose_routes`,
    and `routes` are `RouteArrays`.
    """
    via, lane_of, load = routes
    arrival, piece = place
    weight = arrivals.weight[arrival if len(arrivals.weight) > 1 else 0]
    is_loaded = False
    # The route is followed twice, from its target back. First its loads are looked at; then, if it
    # is given up, they are lowered.
    for changes_loads in (False, True):
        link_end = arrivals.target[arrival]
        for link in range(
            arrivals.first_link[arrival + 1] - 1, arrivals.first_link[arrival] - 1, -1
        ):
            column = 0 if load.shape[1] == 1 else link_end
            lane = lane_of[piece, link]
            if changes_loads:
                load[lane, column] -= weight / width[lane, column]
            is_loaded |= load[lane, column] >= least_load
            link_end = via[piece, link]
        if not is_loaded:
            break
    return is_loaded


@kernel
def choose_routes(source, width, distance, arrivals, begin, routes, loads):
    """Lead each receipt back over circuits with little load towards a rank that has its block.

    A *receipt* is a piece of a block that comes to its *target*, a rank, in some round. Its route
    is chosen from the target back: of the circuits that come from one hop nearer, the one with the
    least load is taken. Of the `SWEEPS` sweeps over a round the first one leaves out receipts of
    one link that have a choice, and the second one adds them; later ones give up only routes over
    the busiest circuits, one after another, and choose them anew past all others. Lanes are looked
    at from the one behind that which was given up, so that of lanes with equal loads another one
    than before is taken: pieces make room for each other along chains.

    Circuits are named by the rank at which they end, and their lane. If `width` has a single
    column, all ranks are alike, and column 0 stands for them.

    Parameters
    ----------
    source : int array, shape (lanes, ranks)
        The rank from which the circuit comes that ends at a rank on a lane; -1 for none.
    width : int array, shape (lanes, ranks)
        How many circuits come to a rank from the same source as this one. They share their load,
        and count as one: the number stands at the first of their lanes, and 0 at the others and
        where no circuit comes.
    distance : int array, shape (blocks, ranks)
        That of a `Stage`.
    arrivals : Arrivals
    begin : int array, shape (rounds + 1,)
        The arrivals of a round are those from ``begin[round]`` up to ``begin[round + 1]``.
    routes : RouteArrays
    loads : float array, shape (rounds,)
        Written: the load of the busiest circuit of each round.

    Example: one lane around the ring 0 1 2 3, and a block of one piece that rank 0 has. A receipt
    at rank 2 with the first link 5 and two links gets ``via[0, 5:7] = (0, 1)``.
    """
    n_lanes = len(source)
    via, lane_of, load = routes
    are_alike = load.shape[1] == 1
    for turn in range(len(loads)):
        load[:, :] = 0.0
        for sweep in range(SWEEPS):
            # The first two sweeps place all receipts, and later ones move what is on the busiest
            # circuits; loads that differ by rounding alone are equal.
            busiest = np.inf
            if sweep > 1:
                busiest = loads[turn] * (1 - ROUNDING)
            has_changed = sweep < 2

            # Piece by piece: the links of its route are `first` to `behind` - 1.
            for arrival in range(begin[turn], begin[turn + 1]):
                weight = arrivals.weight[arrival if len(arrivals.weight) > 1 else 0]
                first = arrivals.first_link[arrival]
                behind = arrivals.first_link[arrival + 1]
                block = arrivals.block[arrival]
                for piece in range(len(via)):
                    # The route of a sweep before is given up, while those of all others stay.
                    place = (arrival, piece)
                    is_placed = lane_of[piece, first] >= 0
                    if is_placed and not _gives_up(place, arrivals, width, routes, busiest):
                        continue

                    # From the target back, link by link: `link_end` is where the route is known to
                    # end, at first the target, and then where the link behind it begins.
                    link_end = arrivals.target[arrival]
                    for link in range(behind - 1, first - 1, -1):
                        column = 0 if are_alike else link_end
                        former_lane = lane_of[piece, link]
                        n_choices = 0
                        best_lane = -1
                        least_load = np.inf

                        # All lanes once, from the one behind the former lane on. Circuits are of
                        # use that come from one hop nearer to a rank with the block.
                        hops_before = distance[block, link_end] - 1
                        for step in range(former_lane + 1, former_lane + 1 + n_lanes):
                            lane = step if step < n_lanes else step - n_lanes
                            n_hops = distance[block, source[lane, link_end]]
                            if width[lane, column] == 0 or n_hops != hops_before:
                                continue
                            n_choices += 1
                            with_piece = load[lane, column] + weight / width[lane, column]
                            if with_piece < least_load * (1 - ROUNDING):
                                best_lane = lane
                                least_load = with_piece
                        if sweep == 0 and n_choices > 1 and behind == first + 1:
                            break

                        # The link is written down, and the route goes on from where it begins.
                        load[best_lane, column] = least_load
                        lane_of[piece, link] = best_lane
                        has_changed |= best_lane != former_lane
                        link_end = source[best_lane, link_end]
                        via[piece, link] = link_end

                    # What one piece leaves to the next sweep the others do, too.
                    if lane_of[piece, first] < 0:
                        break

            # The load of the busiest circuit, which lasts longest. Another sweep of a round in
            # which no route has changed would change none, either.
            loads[turn] = 0.0
            for circuit_load in load.flat:
                loads[turn] = max(loads[turn], circuit_load)
            if not has_changed:
                break


def receive_routed(
    sequence: CircuitSequence,
    arrivals: Arrivals,
    stages: Sequence[Stage],
    *,
    pieces: int,
    n_rotations: int,
) -> Receipts:
    """Choose the routes of all arrivals, and return them as receipts.

    `stages` are all rounds, in their order. Each block is cut into `pieces`, which have the chunks
    ``block * pieces + piece``. With `n_rotations` above 1 all ranks do the same, and the blocks of
    rank 0 stand for those of as many ranks.
    """
    # Stage by stage, the routes of the pieces that come in its rounds: from round `first` up to
    # `behind`, which is that of the next stage. Where all ranks do the same, loads are counted at
    # rank 0 alone.
    ends = sequence.ends if n_rotations > 1 else sequence.ends_by_rank
    n_links = arrivals.first_link[-1]
    routes = RouteArrays(
        via=np.empty((pieces, n_links), dtype=np.int32),
        lane_of=np.full((pieces, n_links), -1, dtype=np.int16),
        load=np.empty(ends.width.shape[1:]),
    )
    loads = np.zeros(sum(stage.n_rounds for stage in stages))
    begin = np.searchsorted(arrivals.turn, np.arange(len(loads) + 1, dtype=np.int32))
    first = 0
    for stage in stages:
        behind = first + stage.n_rounds
        choose_routes(
            ends.source[stage.config],
            ends.width[stage.config],
            stage.distance,
            arrivals,
            begin[first : behind + 1],
            routes,
            loads[first:behind],
        )
        first = behind

    configs = [stage.config for stage in stages]
    return Receipts(
        peer=sequence.peer,
        config_of_round=np.repeat(configs, [stage.n_rounds for stage in stages]),
        load=loads,
        pieces=pieces,
        n_rotations=n_rotations,
        arrivals=arrivals,
        via=routes.via,
        is_mirrored=sequence.is_mirrored,
    )


def spread(sequence: CircuitSequence, pieces: int = 1) -> Receipts | None:
    """Simulate an all-gather over a sequence; None if some block does not come everywhere.

    In each round a rank takes over its circuits every block that it lacks and that its neighbours
    had before (breadth-first search). The block of each rank is cut into `pieces` chunks, which
    may come from different neighbours. Over circulants only the block of rank 0 is simulated: each
    receipt then stands for those of all ranks, rotated around the ring of ranks.

    Example: a ring of 4 ranks, each with one block and a circuit to the next rank. In each of 3
    rounds every rank gets one block, and all loads are 1.
    """
    # In general block k is that of rank k, and all its pieces come to a rank in the same round.
    # Over circulants only the block of rank 0 is simulated, and its pieces are listed as blocks
    # one after another, as if rank 0 owned 3 blocks of one piece in place of one of 3 pieces: the
    # circuits of a round are then loaded more evenly.
    n = sequence.peer.shape[2]
    is_circulant = sequence.shifts is not None
    owner_of_block = np.arange(n)
    pieces_of_block = pieces
    if is_circulant:
        owner_of_block = np.zeros(pieces, dtype=np.int64)
        pieces_of_block = 1

    # The configurations in turn, and how long each is held.
    peer = sequence.ends.peer
    has_block = owner_of_block[:, None] == np.arange(n)  # [block, rank], before the stage
    configs = list(enumerate(sequence.held))
    if sequence.repeats:
        configs *= n
    else:
        configs[-1] = (len(peer) - 1, n)  # the last one stays

    # What is k circuits away when a configuration begins comes in its round k - 1. A stage ends
    # early when nothing else comes, and rounds of the next one follow at once.
    stages: list[Stage] = []
    columns: list[tuple[IndexArray, IndexArray, IndexArray]] = []
    first_round = 0
    for config, held in configs:
        # The ranks that a block reaches in time, in the order of the search, by rounds. Those that
        # hear over different circuits of a rank then stand next to each other, so that the first
        # choice of circuits is even already.
        distance, reached = reach_ranks(peer[config], has_block)
        first, behind = np.searchsorted(reached[:, 2], [1, held + 1])
        block, target, n_hops = reached[first:behind].T

        # They have the block when the next configuration begins.
        columns.append((first_round - 1 + n_hops, block, target))
        stages.append(Stage(config, int(n_hops.max(initial=0)), distance))
        first_round += stages[-1].n_rounds
        has_block = distance <= held
        if has_block.all():
            break
    if not has_block.all():
        return None

    # Each arrival takes one circuit, from a rank that had the block before its round.
    turn, block, target = (np.concatenate(column) for column in zip(*columns, strict=True))
    receipts = receive_routed(
        sequence,
        Arrivals(turn, block, target, np.arange(len(turn) + 1)),
        stages,
        pieces=pieces_of_block,
        n_rotations=n if is_circulant else 1,
    )
    return replace(receipts, pieces=pieces)


class Carried(NamedTuple):
    """Which chunks are sent as which receipts tell; arrays of one entry for each send."""

    receipt: IntArray
    """The number of the receipt whose round and circuits the send takes."""
    places_onward: IntArray
    """How many places onward around the ring of all ranks the send is from its receipt: with 8
    ranks and 3 places, a receipt from rank 0 to rank 6 is a send from 3 to 1."""
    chunk: IntArray
    """The number of the chunk that is sent."""


def list_gathered(receipts: Receipts, stored_ranks: int = 0) -> Carried:
    """List the sends of an all-gather: each receipt for all owners for which it stands.

    With n ranks and receipts of rank 0 alone, each becomes n sends, 0 to n - 1 places onward: a
    receipt of rank 2 from rank 0 becomes a send from 1 to 3 for owner 1, and so on. If
    `stored_ranks` is not 0, only the chunks of this number of first owners are listed, which stand
    for those of all in a `CollectivePlan`.
    """
    n_rotations = stored_ranks or receipts.n_rotations
    chunk = receipts.table.chunk
    receipt = np.repeat(np.arange(len(chunk)), n_rotations)
    places_onward = np.tile(np.arange(n_rotations), len(chunk))
    return Carried(receipt, places_onward, chunk[receipt] + places_onward * receipts.pieces)


def list_exchanged(receipts: Receipts, n_rotations: int) -> Carried:
    """List the sends of an all-to-all: blocks take the routes of the gather to their receivers.

    A block is followed backwards from its receiver, receipt by receipt, to its owner; all these
    receipts become sends of this block alone. Blocks of the gather are not cut; a chunk of the
    result is ``source * n + destination``.

    Over circulants there are only the receipts of owner 0. They are turned 0, 1, ... places onward
    for the first `n_rotations` owners, all or those that a plan stores. Over other graphs, whose
    receipts are those of all owners, it is 1.

    Example: 4 ranks on a one-way ring. The block of owner 0 comes to rank 1 by receipt 0, to rank
    2 by receipt 1, from rank 1, and to rank 3 by receipt 2, from rank 2. The block from 0 to 3,
    chunk 3, is followed back by the receipts 2, 1 and 0, and has these three sends. One place
    onward they are those of the block from 1 to 0, chunk 1 * 4 + 0 = 4.
    """
    n = receipts.peer.shape[2]
    # The last hop of each block. ``receipt_of[owner, target]`` is the receipt by which the data of
    # an owner come to a target. All owners that are turned to follow one after another: first the
    # receipts as they are, 0 places onward, then all of them 1 place onward.
    table = receipts.table
    owner = table.chunk
    receipt_of = np.full((n, n), -1)  # [owner, target], -1 where the target is the owner
    receipt_of[owner, table.target] = np.arange(len(owner))
    receiver = np.tile(table.target, n_rotations)
    places_onward = np.repeat(np.arange(n_rotations), len(owner))
    receipt = np.tile(np.arange(len(owner)), n_rotations)
    block = (owner[receipt] + places_onward) * n + receipts.turn_ranks(receiver, places_onward)

    # One hop back at a time, until all blocks are at their owners: `before` is the receipt by
    # which the source of a hop had got the block, -1 where it is the owner.
    parts = []
    while len(receipt):
        parts.append((receipt, places_onward, block))
        before = receipt_of[owner[receipt], table.source[receipt]]
        goes_on = before >= 0
        receipt, places_onward, block = before[goes_on], places_onward[goes_on], block[goes_on]
    receipt, places_onward, block = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Carried(receipt, places_onward, chunk=block)


def list_links(
    table: ReceiptTable, receipt: IntArray, *, backwards: bool = False
) -> tuple[IntArray, IntArray]:
    """List the links of some receipts, one receipt after another.

    ``receipt[k]`` are numbers of receipts. The two results have one entry for each link:
    ``place[entry]`` is the k of the receipt to which the link belongs, and ``link[entry]`` its
    index in ``table.link_from`` and ``table.link_to``. The links of a receipt stand in the
    order of its route, or backwards.

    Example: receipt 5 has link 7, and receipt 3 the links 2 and 3. ``receipt = [5, 3]`` gives the
    places 0, 1, 1 and the links 7, 2, 3; backwards the links 7, 3, 2.
    """
    n_links = table.n_links[receipt]
    place = np.repeat(np.arange(len(receipt)), n_links)
    first_entry = np.cumsum(n_links) - n_links
    hop = np.arange(len(place)) - first_entry[place]  # of the link on its route, from 0
    if backwards:
        hop = n_links[place] - 1 - hop
    return place, table.first_link[receipt[place]] + hop


def make_rounds(
    receipts: Receipts, carried: Carried, chunk_count: int, *, adds: bool = False
) -> Rounds:
    """Make the rounds of an all-gather from its receipts, or those of a reduce-scatter.

    A reduce-scatter, with `adds`, is the gather run backwards: its last round comes first, source
    and destination change places, and a rank adds up the chunks that it had sent on. The circuits
    of the receipts then lead from targets to sources.

    `carried` tells for each send its receipt, how many places onward from this it is, and its
    chunk. Rows of sends are round, source, destination, chunk and kind, by round, for
    `chunk_count` chunks in all. Sends that are forwarded over two circuits or more inside their
    round have links, whose rows are the number of the send and the two ranks of a circuit.
    """
    # The sends by round; a gather that runs backwards has them in the opposite order. Of 3 rounds,
    # a copy from 0 to 1 in round 0 becomes a sum from 1 to 0 in round 2.
    table = receipts.table
    order = np.argsort(table.turn[carried.receipt], kind="stable")
    if adds:
        order = order[::-1]
    receipt, places_onward = carried.receipt[order], carried.places_onward[order]
    source = receipts.turn_ranks(table.source[receipt], places_onward)
    target = receipts.turn_ranks(table.target[receipt], places_onward)
    turn = table.turn[receipt]
    if adds:
        turn = len(receipts.load) - 1 - turn
        source, target = target, source
    kind = np.full(len(turn), REDUCE if adds else COPY)
    sends = np.column_stack([turn, source, target, carried.chunk[order], kind])

    # The links of forwarded sends, in their order, and the circuits of each round.
    forwarded = np.flatnonzero(table.n_links[receipt] > 1)
    place, link = list_links(table, receipt[forwarded], backwards=adds)
    number = forwarded[place]
    link_from = receipts.turn_ranks(table.link_from[link], places_onward[number])
    link_to = receipts.turn_ranks(table.link_to[link], places_onward[number])
    matchings = [receipts.peer[config] for config in receipts.config_of_round.tolist()]
    if adds:
        link_from, link_to = link_to, link_from
        matchings.reverse()
    links = np.column_stack([number, link_from, link_to])
    return Rounds(sends, chunk_count, matchings, links=links)


def offer_gathers(
    problem: Collective,
    sequence: CircuitSequence,
    name: str,
    receive: Callable[[CircuitSequence], Receipts | None],
) -> Iterator[Offer[Laid]]:
    """Offer a gather, or the sums that are made of one, if data come to all ranks.

    `receive` finds the receipts of an all-gather over a sequence, or over its reversed circuits.
    An all-reduce is offered a second time, as an all-gather of whole buffers: n times the bytes,
    but half of the rounds, as sums need not be gathered afterwards.
    """
    # `flow.adds` lists the phases in their order: (True,) of a reduce-scatter, (False,) of an
    # all-gather, both of an all-reduce. A phase that adds is a gather over the reversed circuits
    # that runs backwards, and so over the circuits themselves. Two-way circuits are the same when
    # they are reversed. ``is_reversed[adds]``: whether a phase needs receipts over the reversed
    # circuits.
    n = problem.n_ranks
    is_reversed = {adds: adds and not problem.two_way for adds in problem.flow.adds}

    # ``received[reverse]``: the receipts over the reversed circuits, or over the circuits as they
    # are; None where data do not come everywhere. An all-reduce over one-way circuits needs both,
    # over two-way circuits both of its phases have the same ones.
    received = {
        reverse: receive(sequence.backwards if reverse else sequence)
        for reverse in set(is_reversed.values())
    }

    # The phases in their order, all over the circuits as they are.
    phases: list[Receipts] = []
    for reverse in is_reversed.values():
        receipts = received[reverse]
        if receipts is not None:
            phases.append(replace(receipts, peer=sequence.peer))
    if len(phases) == len(is_reversed):
        pieces = phases[-1].pieces
        stored_ranks = phases[-1].stored_ranks
        chunk_bytes = float(chunk_sizes(problem, n * pieces)[0])
        yield Offer(
            seconds=sum(phase.seconds(problem, chunk_bytes) for phase in phases),
            n_sends=sum(
                phase.n_stored_rows * (SENDS_OF_A_SUM if adds else 1)
                for adds, phase in zip(is_reversed, phases, strict=True)
            ),
            name=name,
            build=partial(lay_phases, problem, phases, (stored_ranks or n) * pieces, stored_ranks),
        )

    # An all-gather of whole buffers is a problem of its own, and no problem may last longer than
    # `LONGEST_S`.
    gather = received.get(False)
    is_short = n * problem.size_bytes <= LONGEST_S * problem.rate_bytes_per_s
    if problem.flow.sums_for_all and is_short and gather is not None:
        yield Offer(
            seconds=gather.seconds(problem, float(chunk_sizes(problem, gather.pieces)[0])),
            n_sends=gather.n_rows,
            name=f"{name} of buffers",
            build=partial(_lay_buffers, problem, gather),
        )


def _lay_buffers(problem: Collective, gather: Receipts) -> Laid:
    """Make the plan of an all-gather of whole buffers, which every rank adds up by itself."""
    n = problem.n_ranks
    buffers = replace(problem, operation="all-gather", size_bytes=n * problem.size_bytes)
    return sum_up(lay_phases(buffers, [gather], n * gather.pieces))


def lay_phases(
    problem: Collective, phases: list[Receipts], chunk_count: int, stored_ranks: int = 0
) -> Laid:
    """Make the plan of one phase, or of two in a row, each of copies or of sums.

    The phases of a broadcast only copy; those of other operations are sums where ``flow.adds``
    says so. With `stored_ranks` the chunks are those of the first ranks, as in a `CollectivePlan`.
    """
    adds_in_phases = problem.flow.adds or (False,) * len(phases)
    rounds = [
        make_rounds(receipts, list_gathered(receipts, stored_ranks), chunk_count, adds=adds)
        for receipts, adds in zip(phases, adds_in_phases, strict=True)
    ]
    return lay(problem, one_after_another(*rounds)._replace(stored_ranks=stored_ranks))


def list_sequences(problem: Collective, clock: Clock) -> Iterator[CircuitSequence]:
    """List the circuits that are tried for a gather: some that change, and those that stay.

    Those that change first spread data nearby, then far. At any time each rank r has circuits to
    r + s, modulo n, for the same few *shifts* s. Example for 64 ranks with two ports, and one
    change:

    - first the shifts 1 and 3, whose sums reach the distances 0 to 7 within a few rounds;
    - then the shifts 8 and 24, eight times as large, which reach 0, 8, 16, ... 56.

    Together they reach all distances from 0 to 63. The 8 is the *base*: a distance is a number of
    two digits to this base, and each set of circuits serves one digit.
    """
    # With p ports data can reach p + 1 times as many ranks in each round, if circuits change every
    # round. That takes log(n) to the base p + 1 sets of circuits; one more is tried.
    n = problem.n_ranks
    most_digits = 0
    if n > 1:
        most_digits = math.ceil(math.log(n, problem.lanes + 1)) + 1
    for count in range(2, most_digits + 1):
        # The base is the `count`-th root of n, rounded up. A set of shifts is left out if its sums
        # do not reach all digits.
        base = math.ceil(n ** (1 / count) - 1e-9)
        scales = [base**digit for digit in range(count)]
        for shifts, topologies in list_scaled_circulants(problem, base, scales):
            rounds = _rounds_to_cover(base, shifts, problem.lanes, two_way=problem.two_way)
            if rounds:
                held = (rounds,) * count
                yield CircuitSequence.of(topologies, held, two_way=problem.two_way)

    # Those that stay come last, and graphs that are no circulants behind all: without them one
    # rank stands for all, and a gather is known in a millisecond.
    for topology in list_topologies(problem, clock):
        yield CircuitSequence.of([topology], two_way=problem.two_way)


def _rounds_to_cover(base: int, shifts: tuple[int, ...], lanes: int, *, two_way: bool) -> int:
    """Return after how many rounds sums of shifts have reached `base` numbers in a row.

    Only the first shifts get ports, one of the `lanes` each; two-way circuits lead by their shift
    and by its opposite, so that the numbers lie on both sides of 0. Example: the shifts 1 and 3
    reach 0 to 7 after 3 rounds. The result is 0 if `base` rounds are not enough.
    """
    # The numbers in a row that are wanted: from 0 on, or as many on both sides of 0. For base 8
    # these are 0 to 7, or over two-way circuits -3 to 4.
    steps = set(shifts[:lanes])
    reach = {0}  # all sums of at most one step for each round so far
    if two_way:
        steps |= {-shift for shift in steps}
    lowest = -((base - 1) // 2) if two_way else 0
    wanted_numbers = set(range(lowest, lowest + base))

    # Numbers far beyond those that are wanted are not followed any more.
    for turn in range(1, base + 1):
        reach |= {number + step for number in reach for step in steps if abs(number) <= 2 * base}
        if wanted_numbers <= reach:
            return turn
    return 0


def list_gather_offers(
    problem: Collective, clock: Clock, below_s: float = math.inf
) -> Iterator[Offer[Laid]]:
    """List plans of a gather or a sum over several ports, with their time, before they are made.

    For each choice of circuits an all-gather is simulated, which tells its time. The block of each
    rank may be cut into pieces, which come over different ports. All-reduces over tori, along
    walks of de Bruijn graphs and around two-way rings are offered, too, before these. Circuits
    whose changes alone take `below_s` seconds are left out. Raises `TimeUp` after all offers, if
    there was no time for some graphs or numbers of pieces.
    """
    # An all-reduce sends everything twice: sums, then copies.
    n = problem.n_ranks
    phases = problem.n_gathers
    if problem.flow.sums_for_all:
        yield from list_turned_torus_offers(problem)
        yield from list_walk_offers(problem, clock)
        yield from list_ring_offers(problem)

    # Breadth-first gathers over each sequence of circuits, by pieces. A sequence is left out whose
    # changes alone take too long.
    has_skipped = False
    for sequence in list_sequences(problem, clock):
        if phases * (len(sequence.held) - 1) * problem.delay_s >= below_s:
            continue

        # More pieces than one only if there is time to lay them out.
        for pieces in _list_pieces(problem, sequence):
            n_sends = phases * n * (n - 1) * pieces
            if pieces > 1 and not is_affordable(n_sends, clock, reserve=RESERVE):
                has_skipped |= n_sends <= MOST_OFFERED_SENDS
                continue
            receive = partial(spread, pieces=pieces)
            yield from offer_gathers(problem, sequence, sequence.name, receive)
    if has_skipped or leaves_out_graphs(problem, clock):
        raise TimeUp("no time for all graphs and numbers of pieces")


def choose_radix_rounds(problem: Collective) -> tuple[int, ...]:
    """Choose for how many rounds each ring of a mixed-radix gather is held (`lay_growing_rings`).

    Rings that are held for r, s, ... rounds reach (r + 1)(s + 1)... ranks. For each number of
    rings the fewest rounds that reach all n are considered: of 12 ranks (11,), (3, 2), (2, 1, 1)
    and (1, 1, 1, 1). The fastest of them is taken. Two-way circuits join pairs, which are of use
    for one round alone.
    """
    n = problem.n_ranks
    most_rings = (n - 1).bit_length()  # each at least doubles what is reached
    if problem.two_way:
        return (1,) * most_rings
    return min(
        (split_rounds(n, n_rings) for n_rings in range(1, most_rings + 1)),
        key=lambda held: (len(held) - 1) * problem.delay_s + problem.round_s * sum(held),
    )


def list_mixed_radix_offers(problem: Collective) -> Iterator[Offer[Laid]]:
    """Offer a gather or a sum over rings whose steps grow: few rounds of few configurations.

    Configuration c is held for r_c rounds, and leads (1 + r_1) ... (1 + r_(c-1)) places onward
    over all lanes. Afterwards a rank has the blocks of (1 + r_1) ... (1 + r_c) ranks in a row, in
    the end of n or more. Example: 12 ranks with 3 and 2 rounds. The first configuration leads 1
    place onward, and 4 ranks in a row are known after it; the second one leads 4 places onward.

    Over two-way circuits the pairs of a Knoedel graph take their place, as mirrored circulants.
    """
    rounds_of_ring = choose_radix_rounds(problem)
    sequence = lay_growing_rings(problem, rounds_of_ring)
    if problem.two_way:
        shifts = 1 + 2 * np.resize(list_knodel_shifts(problem.n_ranks), len(rounds_of_ring))
        sequence = CircuitSequence.mirrored(problem.n_ranks, shifts, problem.lanes)
    yield from offer_gathers(problem, sequence, sequence.name, spread)


def lay_growing_rings(problem: Collective, rounds_of_ring: tuple[int, ...]) -> CircuitSequence:
    """Lay the rings of a mixed radix: each steps over all ranks that those before it reach.

    Example: 12 ranks, and rings that stay for 3 and 2 rounds. They lead 1 and 4 places onward.
    """
    n = problem.n_ranks
    radices = 1 + np.array(rounds_of_ring)
    shifts = np.cumprod(radices) // radices
    return CircuitSequence.onward("mixed radix", n, shifts, rounds_of_ring, problem.lanes)


def _list_pieces(problem: Collective, sequence: CircuitSequence) -> list[int]:
    """List into how many pieces blocks may be cut: 1, the neighbours of a rank, or its ports.

    A rank can receive the pieces of a block from all of its neighbours at once. If several ports
    lead to the same neighbour, they share each piece evenly, and as many pieces as neighbours load
    all circuits alike: a ring with eight two-way ports has two neighbours, and two pieces are
    enough, with a quarter of the sends of eight.
    """
    # `width` is above 0 at the first lane of each neighbour; the rank with most neighbours counts.
    n_neighbours = int((sequence.ends.width > 0).sum(axis=1).max())
    return sorted({1, n_neighbours, problem.lanes})

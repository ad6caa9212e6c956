"""All-to-alls over several ports: blocks go one hop in a round, over circuits with level loads.

Over a graph that stays each block takes a shortest way to its destination, that of an all-gather,
or a better way by the prices of loads (module `level_routes`). Over circulants that change all
ranks do the same, so an *offset* stands for the blocks of all ranks for the rank as many places
onward: it is a sum of shifts of the configurations, as few as possible.

A *block* is what one rank sends to one other. A *lane* is a port of a rank on some plane, and a
*move* the blocks of some offsets that go over one lane in one round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, InputError, TimeUp
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY
from optmatch.solvers.collectives.circulant import (
    Circulant,
    list_knodel_shifts,
    list_power_shifts,
    list_shifts,
    route,
)
from optmatch.solvers.collectives.level_routes import (
    LEVEL_ENOUGH,
    LevelRoutes,
    find_fewest_blocks,
    find_level_routes,
)
from optmatch.solvers.collectives.offers import RESERVE, NotHeld, Offer
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import (
    CHUNK,
    DESTINATION,
    PORTS_OF_A_SEND,
    SOURCE,
    IntArray,
    Rounds,
    as_rounds,
    drop_empty_sends,
    has_time_for_all_blocks,
    is_affordable,
    ranks_to_store,
    seconds_of,
)
from optmatch.solvers.collectives.spreading import (
    CircuitSequence,
    Receipts,
    list_exchanged,
    list_gathered,
    make_rounds,
    receive_over_circuits,
    spread,
)
from optmatch.solvers.collectives.topologies import (
    FAR,
    Topology,
    count_hops,
    inverse_circuits,
    lay_circulant,
    list_topologies,
)
from optmatch.solvers.kernels.decorators import kernel

MOST_CONFIGURATIONS = 12
"""Numbers of configurations of circulants that are tried."""
SHIFT_SETS = 4
"""Results of local searches of shifts whose rounds are counted, those with the fewest terms."""
PAIR_COUNTS = 16
"""Numbers of rounds of pairs that are tried, from the fewest to half of the ranks. With half of it
all-to-alls of 64 to 1,024 ranks take up to 1.9 % longer, with twice of it up to 0.9 % less."""
FEW_PAIR_COUNTS = 4
"""The same over several ports, all of which join the same pairs."""


def list_exchange_offers(
    problem: Collective, clock: Clock, below_s: float = math.inf
) -> Iterator[Offer[Laid]]:
    """List plans of an all-to-all over several ports, with their time, before they are made.

    Between many ranks circulants that change come first: their plans list the blocks of one rank
    alone, and are made soonest. The list of them ends where the changes alone take `below_s`
    seconds, the time of a plan that is known.

    Raises
    ------
    TimeUp
        After circulants of many ranks, if there is no time to look at the blocks of all ranks.
    """
    # `changing` is an iterator: where its offers come first, none is left for the last line.
    changing = list_changing_offers(problem, clock, below_s)
    if ranks_to_store(problem.n_ranks**2):
        yield from changing
    if not has_time_for_all_blocks(problem.n_ranks, clock):
        raise TimeUp(f"no time for the blocks of {problem.n_ranks} ranks")
    yield from list_static_offers(problem, clock)
    yield from changing


def list_static_offers(problem: Collective, clock: Clock) -> Iterator[Offer[Laid]]:
    """List plans of an all-to-all over circuits that stay, with their time, before they are made.

    The time of an offer is a lower bound: it is counted as if each block took a shortest path, one
    hop in a round, and all circuits carried the same number of bytes.
    """
    n = problem.n_ranks
    for topology in list_topologies(problem):
        # distance[destination, rank]: the fewest hops between them. A graph is left out if some
        # rank cannot reach another one.
        source = inverse_circuits(topology.peer, two_way=problem.two_way)
        distance = count_hops(source, np.eye(n, dtype=np.bool_))
        if distance.max() == FAR:
            continue

        # There are as many rounds as the farthest block has hops. The busiest circuits carry at
        # least the mean: bytes times hops, shared among all circuits, so that 8 bytes over two
        # hops count as 16. The demand has source first, so it is transposed.
        n_rounds = int(distance[problem.demand.T > 0].max(initial=0))
        n_sends = int(distance[problem.demand.T > 0].sum())
        moved_bytes = float((distance * problem.demand.T).sum())
        mean_bytes = moved_bytes / np.count_nonzero(topology.peer >= 0)

        # Blocks that are forwarded inside a round all go in one: more rounds only add start-ups.
        # The promise is lowered by a billionth, as plans add up the same seconds in another order.
        # The target of the search for level loads also has the delay before the first round.
        n_start_ups = n_rounds if problem.hop_s is None else 1
        seconds = seconds_of(problem, n_start_ups, mean_bytes, n_hops=n_rounds)
        promised_s = seconds * (1 - 1e-9)
        target_s = problem.first_delay_s + promised_s
        build = partial(_lay_static, problem, topology, distance, target_s, clock)
        yield Offer(seconds=promised_s, n_sends=n_sends, name=topology.name, build=build)


def _lay_static(
    problem: Collective, topology: Topology, distance: IntArray, target_s: float, clock: Clock
) -> Laid:
    """Make the plan of an all-to-all over circuits that stay.

    In a first plan all blocks take shortest ways, those of an all-gather. It is the answer if it
    takes little more than `target_s`, the seconds of a plan whose circuits all carry the same
    bytes. Else better ways are searched, as long as `clock` has time: on which blocks may wait or
    make a detour, in as many rounds; and, if all blocks are alike, in about twice as many rounds,
    each circuit with so few whole blocks as counting allows.

    ``distance[destination, rank]`` is the fewest hops from a rank to a destination.
    """
    # The first plan: the block of a rank for another one takes the way on which the block of the
    # rank would spread to it.
    n_rounds = int(distance[problem.demand.T > 0].max(initial=0))
    receipts = spread(CircuitSequence.of([topology], two_way=problem.two_way))
    assert receipts is not None
    exchanged = list_exchanged(receipts, receipts.n_rotations)
    first = make_rounds(receipts, exchanged, problem.n_ranks**2)
    best = _lay_blocks(problem, topology, first)

    # Better routes, as long as the plan takes more than `LEVEL_ENOUGH` times the time of level
    # loads, one percent more: first routes that make loads level. These may differ by a block from
    # circuit to circuit, which is much where circuits carry few of them. Blocks that are alike are
    # therefore also counted: no circuit may carry more than a given number.
    peer = topology.peer
    if best.time_s > target_s * LEVEL_ENOUGH:
        peer_by_round = np.repeat(peer[None], n_rounds, axis=0)
        routes = find_level_routes(problem, peer_by_round, distance, clock)
        best = _keep_faster(problem, topology, best, routes)
    if problem.demand_bytes is None and best.time_s > target_s * LEVEL_ENOUGH:
        routes = find_fewest_blocks(problem, peer, distance, best.time_s, clock)
        best = _keep_faster(problem, topology, best, routes)
    return best


def _keep_faster(
    problem: Collective, topology: Topology, best: Laid, routes: LevelRoutes | None
) -> Laid:
    """Return the plan of given routes if it is faster than the best one, else this one."""
    if routes is None:
        return best
    laid = _lay_blocks(problem, topology, as_rounds(routes.sends, COPY, problem.n_ranks**2))
    return min(best, laid, key=lambda candidate: candidate.time_s)


def _lay_blocks(problem: Collective, topology: Topology, rounds: Rounds) -> Laid:
    """Lay out and time the sends of an all-to-all over circuits that stay, one hop in a round.

    Where sends may be forwarded inside a round, each block goes straight to its destination in one
    round, over the circuits of its hops.

    Example: the block from 0 to 2 with the hops 0-1 and 1-2 is then one send from 0 to 2 with
    these two links.
    """
    n = problem.n_ranks
    rounds = rounds._replace(links=None)
    if problem.hop_s is None:
        matchings = [topology.peer] * rounds.n_rounds
        return lay(problem, drop_empty_sends(problem, rounds._replace(matchings=matchings)))

    # All hops of a block become one send in round 0; links, rows of send, from and to, say where a
    # block of several hops goes. The chunk of a hop is the block, ``source * n + destination``,
    # and hops of a block ascend by round.
    hops = drop_empty_sends(problem, rounds).sends
    by_block = hops[np.argsort(hops[:, CHUNK], kind="stable")]
    blocks, number, n_hops = np.unique(by_block[:, CHUNK], return_inverse=True, return_counts=True)
    in_one_round = np.column_stack(
        [np.zeros_like(blocks), blocks // n, blocks % n, blocks, np.full(len(blocks), COPY)]
    )
    links = np.column_stack([number.reshape(-1), by_block[:, [SOURCE, DESTINATION]]])
    links = links[n_hops[links[:, 0]] > 1]
    return lay(problem, Rounds(in_one_round, n * n, [topology.peer], links=links))


def list_changing_offers(
    problem: Collective, clock: Clock, below_s: float
) -> Iterator[Offer[Laid]]:
    """List plans of an even all-to-all over circuits that change, with their time.

    Example with two ports and one change: first the shifts 1 and 2, then 4 and 8. Data that have
    to go 11 places onward go 1 + 2 in the first circulant, and 8 in the second one.

    For each number of circulants, sets of shifts are chosen first, such as 1, 2, 4 and 8. They are
    then divided among the circulants in their order, into (1, 2) and (4, 8); each is one offer.
    The list ends when the changes alone take `below_s` seconds, or when the time of `clock` is
    over.
    """
    # With a port for every other rank, circuits that change are of no use.
    n = problem.n_ranks
    if problem.demand_bytes is not None or n < 3:
        return
    # A two-way shift leads onward and back, over two ports.
    n_shifts = problem.lanes  # of one circulant
    if problem.two_way:
        n_shifts = problem.lanes // 2
    if problem.two_way and n % 2 == 0 and problem.lanes < n - 1:
        yield from _list_pair_offers(problem)
    if n_shifts < 1 or problem.lanes >= n - 1:
        return

    # Between many ranks all data may also go straight to their places, which takes a circulant for
    # each few shifts; such a plan is the best one where changes take little time.
    if ranks_to_store(n * n):
        yield _offer_direct(problem, n_shifts)

    # Circulants beyond those in which every shift is there once are of no use.
    n_circulants_with_all = -(-(n - 1) // problem.lanes)
    has_skipped = False
    for n_circulants in range(1, min(MOST_CONFIGURATIONS, n_circulants_with_all) + 1):
        changes_s = (n_circulants - 1) * problem.delay_s
        is_time_over = n_circulants > 1 and clock.exceeded(0) is not None
        if changes_s >= below_s or is_time_over:
            return

        # Sets of shifts, divided among the circulants in their order.
        for shifts in _list_shift_sets(problem, n_circulants * n_shifts, clock):
            try:
                receipts = _route_offsets(problem, shifts.reshape(n_circulants, n_shifts), clock)
            except TimeUp:
                has_skipped = True
                continue
            if receipts is not None:
                yield Offer(
                    seconds=receipts.seconds(problem, problem.size_bytes / n),
                    n_sends=receipts.n_stored_rows,
                    name=f"{n_circulants} circulants",
                    build=partial(_lay_routes, problem, receipts),
                )
    if has_skipped:
        raise TimeUp("no time for circulants of many hops")


def _offer_direct(problem: Collective, n_shifts: int) -> Offer[Laid]:
    """Offer the all-to-all in which each block takes one hop, over circulants of all shifts.

    A circulant has `n_shifts` of the shifts, and one round, in which a circuit carries one block:
    between 9 ranks with four one-way ports there are two, of the shifts 1 to 4 and 5 to 8.
    """
    # The shifts 1 to `largest` are dealt out to the circulants. The last one has the first shifts
    # again where too few are left for it. A two-way shift is n / 2 at most, and serves both ways.
    # If the number of lanes is odd, the lane left over leads to the rank opposite in every
    # circulant, and n / 2 needs no turn: of 10 ranks the largest shift is 5 with four lanes, and 4
    # with five.
    n = problem.n_ranks
    largest = n - 1
    if problem.two_way:
        largest = (n - problem.lanes % 2) // 2
    n_rounds = -(-largest // n_shifts)
    groups = np.resize(np.arange(1, largest + 1), (n_rounds, n_shifts))

    # If nothing but the shift n / 2 is left for the last circulant, opposite ranks get two
    # circuits in it, and each carries half of their block. Between 10 ranks with four ports the
    # shifts are 1 and 2, 3 and 4, 5 and again 1: in the last circulant shift 5 takes one lane,
    # shift 1 two lanes, and the fourth lane leads to the rank opposite, too.
    n_blocks_in_turn = float(n_rounds)
    if problem.two_way and n == 2 * largest and (largest - 1) % n_shifts == 0:
        n_blocks_in_turn -= 0.5
    circuit_bytes = n_blocks_in_turn * problem.block_bytes

    # The promise is lowered by a billionth, as plans add up the same seconds in another order. A
    # plan lists the sends of rank 0 alone, but the ports of all ranks.
    seconds = seconds_of(problem, n_rounds, circuit_bytes, n_changes=n_rounds - 1)
    return Offer(
        seconds=seconds * (1 - 1e-9),
        n_sends=n + n_rounds * problem.lanes * n // PORTS_OF_A_SEND,
        name=f"{n_rounds} circulants",
        build=partial(_lay_groups, problem, groups),
    )


def _list_pair_offers(problem: Collective) -> Iterator[Offer[Laid]]:
    """List all-to-alls over pairs of two-way ports, which are mirrored circulants.

    The fewest rounds have the shifts of a Knoedel graph, others also random ones, whose sums are
    spread over all offsets. Between 4,096 ranks blocks take 2.8 hops on average in 64 rounds, and
    4 hops with the shifts 1, 3, 5, ... in place of random ones.
    """
    n = problem.n_ranks
    n_bits = (n - 1).bit_length()
    knodel = list_knodel_shifts(n)
    random_shifts = np.random.default_rng(0).permutation(n // 2).tolist()
    all_shifts = list(dict.fromkeys([*knodel, *random_shifts]))
    counts = np.unique(np.geomspace(n_bits, n // 2, PAIR_COUNTS).astype(int)).tolist()
    if problem.lanes > 1:  # several ports have circulants of fewer hops
        counts = counts[:FEW_PAIR_COUNTS]
    for count in counts:
        shifts = 1 + 2 * np.array(all_shifts[:count])
        if count == n_bits:  # those of Knoedel, the first of which may come again
            shifts = 1 + 2 * np.resize(knodel, n_bits)

        # The fewest hops of the block of rank 0 to each rank, by dynamic programming over rounds.
        # is_last[round, rank]: whether the fewest hops up to the round end with one in it.
        sequence = CircuitSequence.mirrored(n, shifts, problem.lanes)
        is_last = np.zeros((count, n), dtype=np.bool_)
        distance = np.full(n, FAR)
        distance[0] = 0
        for round_ in range(count):
            nearer = distance[sequence.peer[round_, 0]] + 1
            is_last[round_] = nearer < distance
            distance = np.minimum(distance, nearer)
        if distance.max() >= FAR:
            continue

        # All ranks do the same, so that each circuit carries the hops of one rank; those of the
        # ranks 0 and 1 stand for all.
        n_hops = int(distance.sum())
        circuit_bytes = n_hops * problem.block_bytes / problem.lanes
        n_sends = n * n_hops
        if ranks_to_store(n_sends):
            n_sends = 2 * n_hops + sequence.peer.size // PORTS_OF_A_SEND
        seconds = seconds_of(problem, count, circuit_bytes, n_changes=count - 1)
        yield Offer(
            seconds=seconds * (1 - 1e-9),
            n_sends=n_sends,
            name=f"{count} rounds of pairs",
            build=partial(_lay_pairs, problem, sequence, is_last),
        )


def _lay_pairs(problem: Collective, sequence: CircuitSequence, is_last: NDArray[np.bool_]) -> Laid:
    """Lay an all-to-all over rounds of pairs, following the blocks of rank 0 back from their ends.

    ``is_last[round, rank]`` tells whether the fewest hops to a rank, up to this round, end with
    one in it. ``sequence`` has the pairs.
    """
    n = problem.n_ranks
    rank = np.arange(n)  # where the block of each offset is after the round
    columns: list[tuple[IntArray, ...]] = []
    for round_ in reversed(range(len(is_last))):
        offset = np.flatnonzero(is_last[round_, rank])
        target = rank[offset]
        rank[offset] = sequence.peer[round_, 0, target]
        columns.insert(0, (np.full_like(offset, round_), rank[offset], target, offset))
    load = np.array([len(offset) for *_, offset in columns], dtype=np.float64)
    receipts = receive_over_circuits(
        sequence,
        load,
        [np.concatenate(column) for column in zip(*columns, strict=True)],
        pieces=1,
        n_rotations=n,
    )
    return _lay_routes(problem, receipts)


def _lay_groups(problem: Collective, groups: IntArray) -> Laid:
    """Lay an even all-to-all over circulants of the shifts ``groups[configuration, k]``.

    Raises `NotHeld` if they do not fit the ports, or do not reach all ranks.
    """
    receipts = _route_offsets(problem, groups)
    if receipts is None:
        raise NotHeld
    return _lay_routes(problem, receipts)


def _list_shift_sets(problem: Collective, size: int, clock: Clock) -> Iterator[IntArray]:
    """List sets of `size` shifts whose sums of few terms reach all of 1 to n - 1, modulo n.

    The circuits of shift s lead s places onward; two-way ones also lead back, so that their shifts
    are n / 2 at most. Powers of a base come first, such as 1, 4 and 16, then what a local search
    makes of these and of random sets.
    """
    n = problem.n_ranks
    largest = n // 2 if problem.two_way else n - 1
    if size <= largest:
        yield from list_power_shifts(n, size, two_way=problem.two_way)
        yield from list_shifts(n, size, clock, two_way=problem.two_way)[:SHIFT_SETS]
        return

    # If there are fewer shifts than `size`, some stand in the set once more than others, in turn
    # each of them: of the shifts 1, 2 and 3 the sets of four are (1, 1, 2, 3), (1, 2, 2, 3) and
    # (1, 2, 3, 3). If all can stand there equally often, there is one set.
    n_sets = largest if size % largest else 1
    for n_behind in range(n_sets):  # how many of the first shifts come last
        yield np.sort(np.resize(np.roll(np.arange(1, largest + 1), -n_behind), size))


def _route_offsets(
    problem: Collective, groups: IntArray, clock: Clock | None = None
) -> Receipts | None:
    """Choose the way of all data of an even all-to-all over circuits that change.

    Each offset becomes a sum of few shifts. With the shifts 1 and 8, offset 10 is 8 + 1 + 1, which
    takes three rounds.

    ``groups[configuration, k]`` are the shifts of each configuration, the circuits that are there
    at one time. The result is None if some configuration does not fit the ports, or the shifts do
    not reach all offsets. Raises `TimeUp` if `clock` has no time for the hops.
    """
    # Lay the circuits of each configuration. All have to fit, with as many shifts each, one for
    # each lane that is used: a two-way shift s takes two lanes, and counts as s and n - s.
    n = problem.n_ranks
    laid = [lay_circulant(problem, tuple(group.tolist())) for group in groups]
    topologies = [topology for topology in laid if topology is not None]
    degrees = {len(topology.shifts) for topology in topologies}  # circuits of each rank
    if len(topologies) < len(groups) or len(degrees) > 1:
        return None

    shifts = np.array([topology.shifts for topology in topologies])
    try:
        routes = route(n, shifts.reshape(-1))
    except InputError:
        return None
    if clock is not None and not is_affordable(routes.hops, clock, reserve=RESERVE):
        raise TimeUp(f"no time for the hops over {len(groups)} circulants")
    return _receive_offsets(
        CircuitSequence.of(topologies), routes.exponents.reshape(n, *shifts.shape)
    )


def _receive_offsets(sequence: CircuitSequence, exponents: NDArray[np.integer[Any]]) -> Receipts:
    """Schedule the hops of an all-to-all over circulants, and return them as receipts.

    The *offset* of a block is how many places onward from its source its receiver is.
    ``exponents[offset, configuration, lane]`` tells how many of its hops go over the shift
    ``sequence.shifts[configuration, lane]``. Configurations follow each other. Each stays until
    all hops over its shifts are made; in each of its rounds every offset with hops left makes one.

    All ranks do the same, so only the blocks of rank 0 are listed: there is a receipt for each of
    their hops, and its chunk is the offset of the block. Example: 8 ranks with one lane, and the
    shifts 1 and 2. Offset 3 has one hop over each: receipts from rank 0 to 1, and from 1 to 3.
    """
    # hops_left[configuration, offset, lane] counts those that are left, and distance_gone[offset]
    # how many places onward the data are by now.
    n, n_configs, lanes = exponents.shape
    shifts = sequence.shifts
    assert shifts is not None
    hops_left = exponents.swapaxes(0, 1).copy()
    lane_of = np.empty(n, dtype=np.int64)
    loads_of_lanes = np.empty(lanes, dtype=np.int64)
    distance_gone = np.zeros(n, dtype=np.int64)
    columns: list[tuple[IntArray, ...]] = []
    loads = list[float]()
    rounds_held = list[int]()

    # Configuration by configuration, in rounds until no offset has hops over it left.
    for config in range(n_configs):
        n_rounds_before = len(columns)
        while hops_left[config].any():
            # A round: each offset takes a lane with hops left, and is its shift farther then. The
            # columns of its receipts are round, source, target and chunk, which is the offset.
            choose_lane_of_offsets(hops_left[config], lane_of, loads_of_lanes)
            offset = np.flatnonzero(lane_of >= 0)
            lane = lane_of[offset]
            shift = shifts[config, lane]
            source = distance_gone[offset] % n
            columns.append(
                (np.full(len(offset), len(columns)), source, (source + shift) % n, offset)
            )
            distance_gone[offset] += shift
            hops_left[config, offset, lane] -= 1

            # Lanes with the same shift share its offsets evenly.
            width = np.bincount(shifts[config], minlength=n)
            loads.append(float((np.bincount(shift, minlength=n) / np.maximum(width, 1)).max()))
        rounds_held.append(len(columns) - n_rounds_before)

    # A block is one piece, and n ranks do what is listed for one of them.
    columns_of_receipts = [np.concatenate(column) for column in zip(*columns, strict=True)]
    held_sequence = replace(sequence, held=tuple(rounds_held))
    return receive_over_circuits(
        held_sequence, np.array(loads), columns_of_receipts, pieces=1, n_rotations=n
    )


@kernel
def choose_lane_of_offsets(hops_left, lane_of, loads):
    """Choose over which port data go in a round, so that all ports carry as much.

    All ranks do the same. ``hops_left[offset, lane]`` tells how often the blocks of an offset
    still have to take a lane. Writes the lane of each offset in this round to ``lane_of[offset]``,
    -1 if it does not move, and how many offsets take a lane to ``loads[lane]``. Offsets that have
    only one lane to take are placed first; the others take the lane with the fewest offsets so
    far.

    Example: offset 1 has hops left over lane 0 alone, and offset 2 over both lanes. Offset 1 takes
    lane 0, and offset 2 lane 1, which no other one takes.
    """
    n, n_lanes = hops_left.shape
    lane_of[:] = -1
    loads[:] = 0

    # Offsets without a choice first, then the others.
    for has_choice in (False, True):
        for offset in range(n):
            n_choices = 0
            best = -1
            for lane in range(n_lanes):
                if hops_left[offset, lane] > 0:
                    n_choices += 1
                    if best < 0 or loads[lane] < loads[best]:
                        best = lane
            if n_choices > 0 and (n_choices > 1) == has_choice:
                lane_of[offset] = best
                loads[best] += 1


def _lay_routes(problem: Collective, receipts: Receipts) -> Laid:
    """Lay out and time an all-to-all over circulants, in which all ranks do the same.

    Each receipt, whose chunk is an offset, becomes a send of every rank, or of rank 0 alone where
    all are too many to be stored. With 8 ranks and shift 2, the blocks of offset 3 that have come
    1 place are sent by rank 1 to rank 3 for source 0, by rank 2 to rank 4 for source 1, and so on;
    the block from rank s to rank t is chunk ``s * n + t``.
    """
    n = problem.n_ranks
    stored_ranks = receipts.stored_ranks
    carried = list_gathered(receipts, stored_ranks)
    receiver = receipts.turn_ranks(receipts.table.chunk[carried.receipt], carried.places_onward)
    carried = carried._replace(chunk=carried.places_onward * n + receiver)
    rounds = make_rounds(receipts, carried, (stored_ranks or n) * n)
    return lay(problem, rounds._replace(stored_ranks=stored_ranks))


def lay_circulant_exchange(problem: Collective, circulant: Circulant) -> Laid:
    """Make the plan of an all-to-all in which all lanes of a configuration have the same shift."""
    # Lanes with the same shift share what the first of them is given.
    sequence = CircuitSequence.onward(
        "circulant", problem.n_ranks, circulant.shifts, (1,), problem.lanes
    )
    return _lay_routes(problem, _receive_offsets(sequence, circulant.exponents[:, :, None]))

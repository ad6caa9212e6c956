"""Routes of all-to-alls over circuits that stay: rip-up and reroute by prices of loads.

Every block takes a route of its own through a fixed number of rounds. In each round it takes one
circuit or waits. Blocks are ripped up and rerouted one by one, over the route whose circuits are
cheapest (`reroute_blocks`). The price of a circuit in a round grows exponentially with its load;
`LoadPrices` says from which load on, and how steeply.

`find_level_routes` makes the sum over all rounds of the bytes on the busiest circuit small: prices
are the softmax of the loads of the round, steeper from sweep to sweep. These are multiplicative
weights, as in the method of Garg and Koenemann (1998) for flows of many commodities, but with
blocks that are not split.

`find_fewest_blocks` is for even all-to-alls in given time, by negotiated congestion. The time is
given as a number of blocks: in each round a circuit may carry a few whole blocks, its *capacity*,
and the capacities of all rounds add up to that number. The method is PathFinder of McMurchie and
Ebeling (1995). Blocks may overuse circuits at first. Those that do are ripped up and rerouted one
by one, over the routes that are cheapest. Overuse costs more from sweep to sweep, and a circuit
that was overused in earlier sweeps stays dearer, so blocks that have another route give it up to
those that have none. The search ends when no circuit is overused.

With level loads as the aim the busiest circuits of all rounds carry 8 blocks
between 16 ranks with four ports; capacities are met with 7, where counting says 6.6.

A *block* is what one rank sends to one other. A *lane* is a port of a rank on some plane. A
*route* says for each round over which lane a block leaves its rank, or that it waits.

In kernels `block` is the number of a block, and `blocks` are `RoutedBlocks`, with the circuits
``blocks.peer[round, lane, rank]``. `routes` are `BlockRoutes`: ``routes.lane_of[block, round]`` is
a lane, `WAITS`, or in the first round `NOT_ROUTED`; ``routes.load`` and ``routes.price`` have the
shape of the circuits. `prices` are the `LoadPrices` by which prices follow loads, and `search` is
the scratch of a search (`RouteSearch`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock
from optmatch.problems import Collective
from optmatch.solvers.collectives.rounds import FloatArray, IntArray, RoundSends, seconds_of
from optmatch.solvers.kernels.decorators import inner_kernel, kernel

WAITS = -1
"""In place of a lane: the block stays where it is in this round."""
NOT_ROUTED = -2
"""In place of the first lane of a route: the block has no route yet."""
SWEEPS = 14
"""How often all blocks are rerouted. Half as many leave circuits of 64 ranks 2 % more uneven,
twice as many 0.5 % less."""
FIRST_SMOOTHING = 0.3
"""The smoothing of the first sweep, in mean loads of a circuit: prices grow by e for so much."""
LAST_SMOOTHING = 0.03
"""The smoothing of the last sweep. With half or twice of it loads are up to 1 % more uneven."""
JITTER = 0.2
"""By how much of itself a price is changed at random in each sweep. Half and twice of it leave
circuits up to 1 % more uneven."""
MOST_EXPONENT = 60.0
"""Loads far above the mean have this exponent of the price at most, so that it stays finite."""
MOST_STEPS = 400_000_000
"""Looks at circuits, about two seconds, after which no other sweep begins."""
BLOCKS_BETWEEN_LOOKS_AT_CLOCK = 4096
"""The blocks that are rerouted before the clock is looked at again. For 1,024 ranks with four
two-way ports they take 20 ms, and a whole sweep 5 s; each look costs microseconds."""
LEVEL_ENOUGH = 1.01
"""Routes whose time is so near the mean of all circuits are not improved."""


class RoutedBlocks(NamedTuple):
    """The blocks of an all-to-all, and the circuits that they can take."""

    peer: IntArray
    """``peer[round, lane, rank]``: the rank to which a port leads, -1 if it is dark."""
    distance: IntArray
    """``distance[destination, rank]``: the fewest hops from a rank to a destination."""
    source: IntArray
    """``source[block]``: the rank that sends the block."""
    destination: IntArray
    """``destination[block]``: the rank that receives it in the end."""
    size: FloatArray
    """``size[block]``: what it adds to the load of a circuit: its bytes, or 1."""
    may_go_farther: bool
    """Whether a route may take a circuit that leads farther from the destination."""

    def list_sends(self, lane_of: NDArray[np.int16]) -> list[RoundSends]:
        """List the sends of each round.

        ``lane_of[block, round]`` is the lane that a block takes, or `WAITS`; a chunk has the
        number ``source * ranks + destination``.
        """
        # rank[block]: where the block is before the round.
        chunk = self.source * self.peer.shape[2] + self.destination
        rank = self.source.copy()
        sends = list[RoundSends]()
        for peer, lane in zip(self.peer, lane_of.T, strict=True):
            moved = np.flatnonzero(lane != WAITS)
            receiver = peer[lane[moved], rank[moved]]
            sends.append((rank[moved], receiver, chunk[moved]))
            rank[moved] = receiver
        return sends


class BlockRoutes(NamedTuple):
    """The routes of all blocks, and what they put on circuits."""

    lane_of: NDArray[np.int16]
    """``lane_of[block, round]``: the lane that the block takes, or `WAITS`; `NOT_ROUTED` in the
    first round of a block without a route."""
    load: FloatArray
    """``load[round, lane, rank]``: what blocks put on the circuit of a port in a round."""
    price: FloatArray
    """``price[round, lane, rank]``: what this circuit costs a block."""


class LoadPrices(NamedTuple):
    """How loads become prices in a sweep.

    The price of a circuit is ``weight * exp((load - reference) / smoothing)``, with an exponent
    from `least_exponent` to `MOST_EXPONENT`. With a least exponent of 0 all circuits up to the
    reference cost their weight.
    """

    weight: FloatArray
    """``weight[round, lane, rank]``: the price where the exponent is 0. A random part of it lets
    blocks that have a choice between equals decide differently."""
    reference: FloatArray
    """``reference[round]``: the load at which the exponent is 0."""
    smoothing: float
    """By how much a load has to grow for its price to grow by the factor e."""
    least_exponent: float
    """The exponent is not below this number."""

    def of_loads(self, load: FloatArray) -> FloatArray:
        """Return ``price[round, lane, rank]`` of given loads."""
        exponent = (load - self.reference[:, None, None]) / self.smoothing
        price: FloatArray = self.weight * np.exp(
            np.clip(exponent, self.least_exponent, MOST_EXPONENT)
        )
        return price


class RouteSearch(NamedTuple):
    """Scratch of `find_cheapest_route`: what is known of each rank before each round.

    Rounds count from 0, and one more entry is for the end: arrays have shape (rounds + 1, ranks),
    `n_reached` has shape (rounds + 1,).
    """

    cost: FloatArray
    """``cost[round, rank]``: the price of the cheapest route to a rank; infinite if unknown."""
    lane_to: NDArray[np.int16]
    """``lane_to[round, rank]``: the lane over which that route came in the round before, `WAITS`
    if it was at the rank already."""
    rank_before: IntArray
    """``rank_before[round, rank]``: where that route was one round before."""
    reached: IntArray
    """``reached[round, place]``: the ranks that some route reaches, in any order."""
    n_reached: IntArray
    """``n_reached[round]``: how many these are."""


@inner_kernel
def _put_on_route(blocks, block, routes, prices, size):
    """Add a size to the loads of all circuits on the route of a block, and set their prices.

    Writes ``routes.load`` and ``routes.price``; a size below 0 takes the block off its route.
    """
    rank = blocks.source[block]
    for round_index in range(len(blocks.peer)):
        lane = routes.lane_of[block, round_index]
        if lane != WAITS:
            routes.load[round_index, lane, rank] += size
            above = routes.load[round_index, lane, rank] - prices.reference[round_index]
            exponent = min(above / prices.smoothing, MOST_EXPONENT)
            factor = np.exp(max(exponent, prices.least_exponent))
            routes.price[round_index, lane, rank] = prices.weight[round_index, lane, rank] * factor
            rank = blocks.peer[round_index, lane, rank]


@inner_kernel
def _exceeds_load(blocks, block, routes, most_load):
    """Tell whether a circuit on the route of a block carries more than ``most_load[round]``."""
    # `rank` is where the block is before the round.
    rank = blocks.source[block]
    for round_index in range(len(most_load)):
        lane = routes.lane_of[block, round_index]
        if lane != WAITS:
            if routes.load[round_index, lane, rank] > most_load[round_index]:
                return True
            rank = blocks.peer[round_index, lane, rank]
    return False


@inner_kernel
def _reach_rank(search, round_index, rank, cost, lane, rank_before):
    """Keep a route that is at a rank before a round, if it is cheaper than the one that is known.

    It comes from `rank_before` over `lane` in the round before, at the price `cost` so far.

    Changes ``search.cost``, ``lane_to`` and ``rank_before`` at ``[round_index, rank]``, and adds a
    rank that is new in the round to ``search.reached``.
    """
    if search.cost[round_index, rank] == np.inf:
        search.reached[round_index, search.n_reached[round_index]] = rank
        search.n_reached[round_index] += 1
    if cost < search.cost[round_index, rank]:
        search.cost[round_index, rank] = cost
        search.lane_to[round_index, rank] = lane
        search.rank_before[round_index, rank] = rank_before


@inner_kernel
def find_cheapest_route(blocks, block, routes, search):
    """Find the cheapest route of one block to its destination, in a fixed number of rounds.

    Writes ``routes.lane_of[block, round]``, and returns how many circuits were looked at. In each
    round the block goes over one circuit, at the price that this circuit has in the round, or
    waits, which costs nothing. The method is dynamic programming: round by round, the cheapest
    route to each rank that can be reached is found. Ranks that are too far from the destination
    for the rounds that are left are not looked at. Without ``blocks.may_go_farther`` no circuit is
    taken that leads away from the destination. ``search.cost`` has to be infinite everywhere, and
    is so again afterwards.

    Example: a block for a rank two hops away has three rounds, and each circuit costs 5 in round
    0, and 1 in the others. It waits in round 0, and takes a circuit in the rounds 1 and 2.
    """
    n_rounds, n_lanes = blocks.peer.shape[:2]
    destination = blocks.destination[block]
    n_looks = 0
    search.n_reached[:] = 0
    _reach_rank(search, 0, blocks.source[block], 0.0, WAITS, blocks.source[block])
    for round_index in range(n_rounds):
        # From each rank that some route reaches before the round, the block waits or takes a lane.
        # Where it is after the round must not be farther from its destination than
        # `most_hops_left`: the rounds that are left, or its distance now if it may not go farther.
        n_rounds_left = n_rounds - round_index - 1
        for place in range(search.n_reached[round_index]):
            rank = search.reached[round_index, place]
            cost = search.cost[round_index, rank]
            if blocks.distance[destination, rank] <= n_rounds_left:
                _reach_rank(search, round_index + 1, rank, cost, WAITS, rank)
            most_hops_left = n_rounds_left
            if not blocks.may_go_farther:
                most_hops_left = min(n_rounds_left, blocks.distance[destination, rank])

            # Over a lane, at its price, to a rank that is still near enough.
            for lane in range(n_lanes):
                peer = blocks.peer[round_index, lane, rank]
                if peer >= 0 and blocks.distance[destination, peer] <= most_hops_left:
                    over_lane = cost + routes.price[round_index, lane, rank]
                    _reach_rank(search, round_index + 1, peer, over_lane, lane, rank)
            n_looks += n_lanes

    # The route is read backwards from the destination. Then the costs that were written, and only
    # these, become infinite again for the next call.
    rank = destination
    for round_index in range(n_rounds, 0, -1):
        routes.lane_of[block, round_index - 1] = search.lane_to[round_index, rank]
        rank = search.rank_before[round_index, rank]
    for round_index in range(n_rounds + 1):
        for place in range(search.n_reached[round_index]):
            search.cost[round_index, search.reached[round_index, place]] = np.inf
    return n_looks


@kernel
def reroute_blocks(blocks, order, routes, prices, search, most_load):
    """Rip up and reroute blocks one after another, each over its cheapest route.

    Changes `routes`: a block is taken off the circuits of its old route, and put on those of the
    new one; prices follow. `order` lists the numbers of the blocks. Blocks all of whose circuits
    carry ``most_load[round]`` at most stay as they are, so that a limit of -1 reroutes all.
    `search` is scratch. Returns how many circuits were looked at.

    Example: with the limits 1 and 2 of two rounds, a block over circuits that carry 1 and 3 blocks
    is rerouted, and one over circuits with 1 and 2 stays.
    """
    n_looks = 0
    for block in order:
        if routes.lane_of[block, 0] != NOT_ROUTED:
            if not _exceeds_load(blocks, block, routes, most_load):
                continue
            _put_on_route(blocks, block, routes, prices, -blocks.size[block])
        n_looks += find_cheapest_route(blocks, block, routes, search)
        _put_on_route(blocks, block, routes, prices, blocks.size[block])
    return n_looks


def begin_routing(blocks: RoutedBlocks) -> tuple[BlockRoutes, RouteSearch]:
    """Allocate the routes and the scratch of `reroute_blocks`: no block has a route yet."""
    n_rounds, _, n_ranks = blocks.peer.shape
    routes = BlockRoutes(
        lane_of=np.full((len(blocks.source), n_rounds), NOT_ROUTED, dtype=np.int16),
        load=np.zeros(blocks.peer.shape),
        price=np.zeros(blocks.peer.shape),
    )
    shape = (n_rounds + 1, n_ranks)
    search = RouteSearch(
        cost=np.full(shape, np.inf),
        lane_to=np.zeros(shape, dtype=np.int16),
        rank_before=np.zeros(shape, dtype=np.int64),
        reached=np.zeros(shape, dtype=np.int64),
        n_reached=np.zeros(n_rounds + 1, dtype=np.int64),
    )
    return routes, search


def list_level_routes(blocks: RoutedBlocks, clock: Clock) -> Iterator[BlockRoutes]:
    """Yield the routes of all blocks after each of `SWEEPS` sweeps, in which loads get more level.

    The arrays are the same each time, and change from sweep to sweep. There are fewer sweeps if
    the clock has run out, or after `MOST_STEPS` looks at circuits; one that is cut off yields
    nothing.
    """
    # The mean load of a circuit, if all blocks take shortest routes: each block loads as many
    # circuits as its distance, and a dark port is no circuit.
    n_hops = blocks.distance[blocks.destination, blocks.source]
    mean_load = float(n_hops @ blocks.size) / np.count_nonzero(blocks.peer >= 0)
    routes, search = begin_routing(blocks)
    below_all_loads = np.full(len(blocks.peer), -1.0)  # by round; blocks above it are rerouted
    rng = np.random.default_rng(0)

    # `smoothing` is by how many bytes more the price of a circuit becomes e times as high. It
    # falls from sweep to sweep, so prices become steeper: first routes are short, then loads are
    # level.
    n_looks = 0
    for smoothing in mean_load * np.geomspace(FIRST_SMOOTHING, LAST_SMOOTHING, SWEEPS):
        if clock.exceeded(iterations=0) is not None or n_looks > MOST_STEPS:
            return
        # The prices of a round are the softmax of its loads when the sweep begins, times a random
        # factor: exp((load - busiest) / smoothing), divided by their sum over all circuits. With
        # the loads 10 and 8 and a smoothing of 1 that is 0.88 and 0.12. The subtraction cancels,
        # but keeps exponents at 0 or below. Dark ports do not count.
        busiest = routes.load.max(axis=(1, 2))
        undivided = LoadPrices(
            weight=np.ones(routes.load.shape),
            reference=busiest,
            smoothing=smoothing,
            least_exponent=-np.inf,
        )
        total = (undivided.of_loads(routes.load) * (blocks.peer >= 0)).sum(axis=(1, 2))
        factor = rng.uniform(1 - JITTER, 1 + JITTER, size=routes.load.shape)
        prices = undivided._replace(weight=factor / total[:, None, None])
        routes.price[:] = prices.of_loads(routes.load)

        # All blocks are rerouted, in random order; the clock is looked at now and then.
        order = rng.permutation(len(blocks.source))
        for first in range(0, len(order), BLOCKS_BETWEEN_LOOKS_AT_CLOCK):
            if first > 0 and clock.exceeded(iterations=0) is not None:
                return
            portion = order[first : first + BLOCKS_BETWEEN_LOOKS_AT_CLOCK]
            n_looks += reroute_blocks(blocks, portion, routes, prices, search, below_all_loads)
        yield routes


class LevelRoutes(NamedTuple):
    """The routes of all blocks of an all-to-all, as sends."""

    sends: list[RoundSends]
    """The sends of each round; a chunk is ``source * ranks + destination``."""
    busiest_bytes: float
    """The bytes of the busiest circuit of a round, the sum over all rounds."""


def find_level_routes(
    problem: Collective, peer_by_round: IntArray, distance: IntArray, clock: Clock
) -> LevelRoutes | None:
    """Route the data of an all-to-all so that all circuits of a round carry about equally much.

    Of the routes after each sweep of `list_level_routes` those are returned whose busiest circuits
    carry the fewest bytes, added up over all rounds.
    ``peer_by_round[round, lane, rank]`` is where a circuit leads, -1 for none; there has to be a
    route for each block. ``distance[destination, rank]`` is in hops, or less. The result is None
    if there was no time for a whole sweep.
    """
    # A block for each pair of ranks with bytes; loads are in bytes, and routes may make detours.
    demand = problem.demand
    source, destination = np.nonzero(demand)
    sizes = demand[source, destination]
    blocks = RoutedBlocks(peer_by_round, distance, source, destination, sizes, may_go_farther=True)
    best: LevelRoutes | None = None
    for routes in list_level_routes(blocks, clock):
        busiest_bytes = float(routes.load.max(axis=(1, 2)).sum())
        if best is None or busiest_bytes < best.busiest_bytes:
            best = LevelRoutes(blocks.list_sends(routes.lane_of), busiest_bytes)
    return best


CAPACITY_SWEEPS = 60
"""After this number of sweeps a search gives up. Between 16 and 64 ranks those that end take 4 to
50; with twice as many hardly any other ends."""
WHOLE_SWEEPS = 3
"""In these first sweeps all blocks are rerouted, then only those that overuse a circuit. One whole
sweep leaves loads so uneven that fewer searches end; six take longer."""
SWEEPS_BEFORE_VERDICT = 7
"""After this number of sweeps a search is given up if much is overused."""
MUCH_OVERUSE = 0.03
"""How much that is, as a part of all hops. No search that ended had more than 2.6 %; circuits that
are uneven by nature, as in graphs of de Bruijn, keep 3 to 20 % for ever."""
FIRST_PENALTY = 0.5
"""By how much of itself a price grows for a block over capacity, in the first sweep."""
PENALTY_GROWTH = 1.3
"""The factor of the penalty from sweep to sweep, as in routers of integrated circuits."""
LARGEST_PENALTY = 1000.0
"""The penalty stops to grow here, where overuse costs more than any detour."""
CAPACITY_JITTER = 0.3
"""How much is added to a price at random in each sweep, at most; without it blocks that have a
choice between equals would decide alike, sweep for sweep."""
ROUNDS_FOR_HOPS = (2, 3)
"""Rounds for each hop of the farthest blocks that are tried, one after another. With one, fewer
searches end; three let some end that two do not, and more none, for up to three times the work."""
CAPACITY_SLACKS = (0.0, 0.02, 0.04)
"""By how much the time may exceed that of level loads, one after another until a search ends."""
MOST_LOOKS = 100_000_000
"""Looks at circuits, about a second, after which no other sweep of a search begins."""


class CapacitySearch(NamedTuple):
    """What came of a search for routes that keep the capacities of circuits."""

    routes: LevelRoutes | None
    """The sends of each round, and the bytes of the busiest circuits of all rounds, added up; None
    if no such routes were found."""
    is_hopeless: bool = False
    """Whether so much was overused that some percent more capacity would not help."""


def find_routes_within_capacity(
    problem: Collective, peer: IntArray, distance: IntArray, capacity: IntArray, clock: Clock
) -> CapacitySearch:
    """Route the blocks of an all-to-all so that no circuit carries more than it may in a round.

    ``capacity[round]`` is the most blocks on a circuit, ``peer[lane, rank]`` where a circuit
    leads, -1 for none, and ``distance[destination, rank]`` is in hops. The circuits are the same
    in all rounds. The method is negotiated congestion, which may fail where routes exist. It also
    ends without routes after `CAPACITY_SWEEPS`, `MOST_LOOKS`, or at a limit of `clock`.
    """
    # Loads and capacities are in blocks, and no route makes a detour.
    n_rounds = len(capacity)
    source, destination = np.nonzero(problem.demand)
    peer_by_round = np.repeat(peer[None], n_rounds, axis=0)
    sizes = np.ones(len(source))
    blocks = RoutedBlocks(
        peer_by_round, distance, source, destination, sizes, may_go_farther=False
    )
    routes, search = begin_routing(blocks)
    rng = np.random.default_rng(0)

    overuse_before = np.zeros(routes.load.shape)
    penalty = FIRST_PENALTY
    n_looks = 0
    for sweep in range(CAPACITY_SWEEPS):
        if clock.exceeded(iterations=0) is not None or n_looks > MOST_LOOKS:
            break
        # A circuit that would not be overused by one block more costs its weight: 1, 1 more for
        # each block over capacity in each sweep before, and a random part. Each block by which it
        # would be overused multiplies this by 1 + penalty. With a penalty of 0.5 and a capacity of
        # 2, a circuit with 1, 2 or 3 blocks costs 1, 1.5 or 2.25 times its weight.
        weight = 1 + overuse_before + rng.uniform(0, CAPACITY_JITTER, size=routes.load.shape)
        most_load = capacity.astype(np.float64)
        prices = LoadPrices(
            weight=weight,
            reference=most_load - 1,
            smoothing=1 / np.log1p(penalty),
            least_exponent=0.0,
        )
        routes.price[:] = prices.of_loads(routes.load)
        if sweep < WHOLE_SWEEPS:
            most_load[:] = -1.0  # below all loads, so that all blocks are rerouted
        order = rng.permutation(len(source))
        n_looks += reroute_blocks(blocks, order, routes, prices, search, most_load)

        # The search ends when no circuit carries more than its capacity.
        overuse = np.maximum(0, routes.load - capacity[:, None, None])
        if not overuse.any():
            busiest_blocks = float(routes.load.max(axis=(1, 2)).sum())
            busiest_bytes = busiest_blocks * float(problem.demand.max())
            return CapacitySearch(LevelRoutes(blocks.list_sends(routes.lane_of), busiest_bytes))
        # It is given up if much is overused after some sweeps. Between few ranks single blocks are
        # some percent, which says nothing, so that as many blocks as ranks are not much.
        is_much = overuse.sum() > max(problem.n_ranks, MUCH_OVERUSE * routes.load.sum())
        if is_much and sweep + 1 >= SWEEPS_BEFORE_VERDICT:
            return CapacitySearch(None, is_hopeless=True)
        overuse_before += overuse
        penalty = min(penalty * PENALTY_GROWTH, LARGEST_PENALTY)
    return CapacitySearch(None)


def find_fewest_blocks(
    problem: Collective, peer: IntArray, distance: IntArray, faster_than_s: float, clock: Clock
) -> LevelRoutes | None:
    """Route the blocks of an even all-to-all so that busiest circuits carry as little as possible.

    ``peer[lane, rank]`` is where a circuit leads, -1 for none; ``distance[destination, rank]`` is
    in hops. What is made small is the number of blocks on the busiest circuit of a round, added up
    over all rounds. It is no less than the mean load of a circuit over all rounds without detours,
    nor than the hops of the farthest blocks, as each hop takes a round of its own.

    Example: each of 16 ranks has four circuits, so that 4 ranks are one hop away and 11 are two.
    The mean load is (4 + 22) / 4 = 6.5 blocks. 7 blocks are tried first, in 4 rounds whose
    circuits may carry 1, 2, 2 and 2 blocks.

    The result is None if no routes were found that are faster than a plan of `faster_than_s`
    seconds.
    """
    # The larger one of the two lower bounds, then numbers some percent larger. Each is tried with
    # 2 rounds for each hop of the farthest blocks, then with 3.
    mean_blocks = distance.sum() / np.count_nonzero(peer >= 0)
    most_hops = int(distance.max())
    enough = [int(np.ceil(mean_blocks * (1 + slack))) for slack in CAPACITY_SLACKS]
    candidates = sorted({max(n_blocks, most_hops) for n_blocks in enough})
    for n_blocks in candidates:
        for rounds_for_hop in ROUNDS_FOR_HOPS:
            # A round in which no circuit may carry a block would be of no use.
            n_rounds = min(n_blocks, rounds_for_hop * most_hops)
            # Too slow already; more rounds of as many blocks would be slower still.
            if seconds_of(problem, n_rounds, n_blocks * problem.block_bytes) >= faster_than_s:
                break
            # The capacities of rounds add up to the blocks, and differ by one at most. If much was
            # overused, a little more room would not help, and the search ends without routes.
            capacity = np.diff(np.arange(n_rounds + 1) * n_blocks // n_rounds)
            outcome = find_routes_within_capacity(problem, peer, distance, capacity, clock)
            if outcome.routes is not None or outcome.is_hopeless:
                return outcome.routes
    return None

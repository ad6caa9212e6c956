"""The known algorithms of collectives: the chunks that each rank sends in each round.

A *block* is what one rank contributes to a gather (then chunk r is that of rank r), or sends to
one other in an all-to-all (then chunk ``source * n + destination``). In a broadcast or an
all-reduce of whole buffers chunks are *pieces*, equal parts of the buffer. A *matching* gives each
rank one partner, and a *lane* is a port of a rank on some plane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Limits, ignore, uncounted
from optmatch.problems import AllToAll, Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.problems.collectives.steps import (
    list_partners,
    list_rounds as list_steps,
    list_sends,
)
from optmatch.solvers.collectives.rounds import (
    MOST_SENDS,
    Rounds,
    as_rounds,
    of_gathers,
    one_after_another,
    without_nothing,
)

MOST_PIECES = 1024
"""Into so many pieces a buffer is cut at most, to be sent along a line of ranks."""


def list_rounds(problem: Collective, algorithm: str) -> Rounds:
    """List the sends of a known algorithm, round by round.

    An algorithm is described by its all-gather alone: the same sends in the opposite order, from
    receiver to sender, with additions in place of copies, are its reduce-scatter; and both, one
    after the other, are its all-reduce. An all-to-all and a broadcast have sends of their own.
    """
    make = ALGORITHMS[algorithm]
    operation = problem.operation
    if problem.n_ranks == 1:
        return Rounds(np.empty((0, 5), dtype=np.int64), 1)

    # Two ranks add up whole buffers in one exchange, where halves would take two; and a line of
    # two ranks would only cut the buffer of a broadcast into pieces that follow one another.
    is_pair = problem.n_ranks == 2
    if algorithm == "whole-buffers" or (is_pair and operation == "all-reduce"):
        return _exchange_whole_buffers(problem, operation, 1)
    if is_pair and operation == "broadcast":
        return _make_tree(problem)

    # `of_gathers` turns an all-gather into sums, and leaves other operations as they are made.
    gathered_operation: str = operation
    if operation in ("all-reduce", "reduce-scatter"):
        gathered_operation = "all-gather"
    rounds = of_gathers(operation, lambda sign: make(problem, gathered_operation, sign))
    if operation == "all-to-all":
        return without_nothing(problem, rounds)
    return rounds


def fits(problem: Collective, algorithm: str) -> bool:
    """Tell whether an algorithm can make a plan for a problem.

    It has to know the operation. Some algorithms need a number of ranks of a certain form, such as
    a power of two. And the ports of ranks have to hold its circuits: a two-way circuit leads back
    from the port of the receiver to that of the sender, so that a rank with one of them cannot
    send to one rank and receive from another.
    """
    n = problem.n_ranks
    operation = problem.operation
    is_power_of_two = n & (n - 1) == 0
    gathers = ("all-reduce", "reduce-scatter", "all-gather")
    if problem.steps is not None:
        return False
    if algorithm == "ring":
        # A block for the rank o places onward takes o sends: n (n - 1) / 2 for each source.
        if operation == "all-to-all" and n * n * (n - 1) // 2 > MOST_SENDS:
            return False
        # A two-way ring takes two lanes in turn, and a third one if it is odd; a line does not.
        n_lanes_of_ring = 2 if operation == "broadcast" else 2 + n % 2
        return not problem.two_way or n <= 2 or problem.lanes >= n_lanes_of_ring
    if algorithm == "halving-doubling":
        return is_power_of_two
    # Ranks send onward and receive from behind, which pairs of two-way circuits cannot do at once;
    # the tree of a broadcast has pairs alone.
    if algorithm == "bruck":
        return not problem.two_way or n <= 2 or operation == "broadcast"
    if algorithm == "near-sums":  # as fast as bruck, but over circuits that stay
        return not problem.two_way and operation in gathers
    if algorithm == "whole-buffers":
        return operation == "all-reduce"
    if algorithm == "knodel":  # a power of two has halving and doubling, one way has Bruck
        return problem.two_way and not is_power_of_two and operation != "broadcast"
    if algorithm == "swing":
        return is_power_of_two and operation in gathers

    # The two that are left send everything straight to its place.
    return operation == "all-to-all" if algorithm == "pairwise" else operation != "broadcast"


def _gather_over(n: int, partners: Iterable[NDArray[np.int64]]) -> Rounds:
    """Make an all-gather in which a rank always sends all that its receiver does not have yet.

    Example: 4 ranks whose partners are ``[1, 0, 3, 2]`` and then ``[2, 3, 0, 1]``. In round 0 each
    rank sends its own block, in round 1 the two blocks that it has by then.
    """
    has_block = np.eye(n, dtype=np.bool_)  # has_block[rank, block]
    sends_of_round = []
    for partner in partners:
        # is_sent[rank, block]: the rank has the block, and its partner lacks it. A rank that rests
        # has the partner -1, which picks the last row, so its sends are deleted again.
        is_sent = has_block & ~has_block[partner]
        is_sent[partner < 0] = False
        source, block = np.nonzero(is_sent)
        sends_of_round.append((source, partner[source], block))
        has_block[partner[source], block] = True
    return as_rounds(sends_of_round, COPY, n)


def _move_blocks(n: int, moves: Iterable[tuple[NDArray[np.int64], NDArray[np.bool_]]]) -> Rounds:
    """Make an all-to-all in which chosen blocks go to the partner of the rank where they are.

    `moves` has for each round ``partner[rank]``, to whom a rank sends, and
    ``is_moved[source, destination]``, which blocks go. A *block* is what one rank, its source,
    sends to one other, its destination. It may go by way of other ranks: in each round some blocks
    move one hop, from the rank that holds them to the rank to which that one sends.
    """
    rank_of_block = np.repeat(np.arange(n), n).reshape(n, n)  # [source, destination]: the holder
    sends_of_round = []
    for partner, is_moved in moves:
        source, destination = np.nonzero(is_moved)
        rank = rank_of_block[source, destination]
        rank_of_block[source, destination] = partner[rank]
        sends_of_round.append((rank, partner[rank], source * n + destination))
    return as_rounds(sends_of_round, COPY, n * n)


def _make_ring(problem: Collective, operation: str, sign: int) -> Rounds:
    """Send chunks around the ring of all ranks, always to the next one.

    - All-gather: in round t each rank sends the block of the rank t places before it; n - 1
      rounds. With 3 ranks, rank 0 sends block 0 to rank 1, and then block 2.
    - All-to-all: in round t all blocks move on that have to go farther than t places.
    - Broadcast: the buffer is cut into p pieces, which follow each other along a line that begins
      at the root: n - 2 + p rounds.
    """
    n = problem.n_ranks
    ranks = np.arange(n)
    successor = list_partners("ring", n, sign)
    if operation == "all-to-all":
        # distance[source, destination]: how many places onward the destination is.
        distance = (ranks - ranks[:, None]) % n
        return _move_blocks(n, ((successor, distance > turn) for turn in range(n - 1)))
    if operation == "broadcast":
        return _make_line(problem)
    # In round t a rank sends on what it got in the round before: the block of t places behind.
    sends_of_round = [(ranks, successor, (ranks - sign * turn) % n) for turn in range(n - 1)]
    return as_rounds(sends_of_round, COPY, n)


def _make_line(problem: Collective) -> Rounds:
    """Broadcast pieces along a line of all ranks that begins at the root, over circuits that stay.

    In each round the rank at place x of the line sends the piece that left the root x rounds ago.
    With 3 ranks and 2 pieces: 0 sends piece 0 to 1; then 0 sends piece 1 to 1, and 1 piece 0 to 2;
    then 1 sends piece 1 to 2.
    """
    n = problem.n_ranks
    pieces = choose_line_pieces(problem)
    sends_of_round = []
    for turn in range(n - 2 + pieces):
        # The places that send in this round: piece turn - place is one of 0 ... pieces - 1, and
        # the last place of the line, n - 1, has nobody behind it.
        place = np.arange(max(0, turn - pieces + 1), min(turn, n - 2) + 1)
        source = (place + problem.root) % n
        sends_of_round.append((source, (source + 1) % n, turn - place))
    rounds = as_rounds(sends_of_round, COPY, pieces)

    # circuits[lane, rank]: the peer of each port, where a lane is a port of a rank on some plane.
    # One-way circuits lead onward over all lanes; two-way ones join even pairs of neighbours over
    # the even lanes, and odd pairs over the odd ones.
    place = np.arange(n - 1)
    circuits = np.full((problem.lanes, n), -1)
    for lane in range(problem.lanes):
        first = place
        if problem.two_way:
            first = place[place % 2 == lane % 2]
        source = (first + problem.root) % n
        target = (source + 1) % n
        circuits[lane, source] = target
        if problem.two_way:
            circuits[lane, target] = source
    return rounds._replace(matchings=[circuits] * rounds.n_rounds)


def choose_line_pieces(problem: Collective) -> int:
    """Return into how many pieces a buffer is cut best that goes along a line of ranks."""
    round_s = problem.round_s
    whole_s = problem.size_bytes / (problem.rate_bytes_per_s * _count_line_circuits(problem))
    best = math.sqrt((problem.n_ranks - 2) * whole_s / round_s) if round_s else math.inf
    return max(1, round(min(best, MOST_PIECES)))


def _count_line_circuits(problem: Collective) -> int:
    """Return how many circuits join two neighbours of a line of ranks, at least."""
    if problem.two_way:
        return problem.lanes // 2
    return problem.lanes


def _make_bruck(problem: Collective, operation: str, sign: int) -> Rounds:
    """Send 1, 2, 4, ... places onward around the ring of all ranks (Bruck et al. 1997).

    ceil(log2 n) rounds for any n. An all-gather of 5 ranks: rank 0 sends its block to rank 1; then
    what it has, two blocks, to rank 2; then to rank 4 the one block that this lacks. An all-to-all
    moves a block in the rounds of the binary digits of its distance: from rank 0 to rank 3 by way
    of rank 1. A broadcast goes along a binomial tree.
    """
    n = problem.n_ranks
    ranks = np.arange(n)
    powers = [1 << k for k in range((n - 1).bit_length())]
    if operation == "all-to-all":
        # distance[source, destination] in places onward. A block moves in the round of each bit
        # that its distance has: 6 = 4 + 2 places are the hops of 2 and of 4 places.
        distance = (ranks - ranks[:, None]) % n
        moves = ((list_partners("ring", n, power), distance & power > 0) for power in powers)
        return _move_blocks(n, moves)
    if operation == "broadcast":
        return _make_tree(problem)
    return _gather_over(n, (list_partners("ring", n, sign * power) for power in powers))


def _make_near_sums(problem: Collective, operation: str, sign: int) -> Rounds:
    """Gather like Bruck's algorithm, but over the longest distance first: ..., 4, 2, 1 places."""
    n = problem.n_ranks
    powers = [1 << k for k in range((n - 1).bit_length())]
    return _gather_over(n, (list_partners("ring", n, sign * power) for power in powers[::-1]))


def _make_tree(problem: Collective) -> Rounds:
    """Broadcast a whole buffer along a binomial tree: as many ranks again get it in each round.

    With root 0 of 4 ranks: 0 sends to 2, and then 0 to 1 and 2 to 3.
    """
    n = problem.n_ranks
    sends_of_round = []
    # The tree is that of root 0; all its ranks are shifted by the number of the root.
    for step in list_steps("tree", "broadcast", n):
        source, target = (list_sends("tree", n, step).T + problem.root) % n
        whole_buffer = np.zeros_like(source)
        sends_of_round.append((source, target, whole_buffer))
    return as_rounds(sends_of_round, COPY, 1)


def _make_halving_doubling(problem: Collective, operation: str, sign: int) -> Rounds:
    """List the rounds in which rank r exchanges with r ^ 1, r ^ 2, r ^ 4, ... (a hypercube).

    The number of ranks is a power of two, and ``^`` flips one bit of a number. Examples with 4
    ranks:

    - all-gather: 0 <-> 1 and 2 <-> 3 exchange one block; then 0 <-> 2 and 1 <-> 3 exchange two;
    - all-to-all: the block from 0 to 3 goes to rank 1 in the first of these rounds, since the
      lowest bits of 0 and 3 differ, and on to rank 3 in the second one;
    - broadcast: the root sends half of the buffer, receivers send half of that, and so on; then
      all parts are gathered as above.
    """
    n = problem.n_ranks
    ranks = np.arange(n)
    powers = [step.distance for step in list_steps("halving", "all-gather", n)]
    partners = [list_partners("halving", n, power) for power in powers]
    if operation == "all-to-all":
        # difference[source, destination]: the bits in which their numbers differ. The round of
        # partner rank ^ power mends the bit of that power.
        difference = ranks ^ ranks[:, None]
        moves = (
            (partner, difference & power > 0)
            for partner, power in zip(partners, powers, strict=True)
        )
        return _move_blocks(n, moves)
    gather = _gather_over(n, partners)
    if operation != "broadcast":
        return gather

    # Scatter: a rank that has a part sends half of it to its partner, farthest partners first.
    # With root 0 of 4 ranks: 0 sends the chunks 2 and 3 to rank 2; then 0 sends chunk 1 to rank 1,
    # and 2 sends chunk 3 to rank 3. A half begins at the number of its receiver with the bits
    # below the power set to 0.
    sends_of_round = []
    for power in powers[::-1]:
        holders = ranks[(ranks ^ problem.root) % (2 * power) == 0]
        source = np.repeat(holders, power)
        partner = source ^ power
        first_chunk_of_half = partner & ~(power - 1)
        chunk = first_chunk_of_half + np.tile(np.arange(power), len(holders))
        sends_of_round.append((source, partner, chunk))
    return one_after_another(as_rounds(sends_of_round, COPY, n), gather)


def _make_knodel(problem: Collective, operation: str, sign: int) -> Rounds:
    """List the rounds of an algorithm of pairs, for ranks that are no power of two.

    In each round every rank is paired with another one (the edges of a Knoedel graph), and both
    send each other all blocks that the other one lacks. After ceil(log2 n) rounds everybody has
    all; for odd n it takes two more at most. In an all-to-all the block from rank s to rank d
    takes the way that the block of s takes to d in the gather.
    """
    n = problem.n_ranks
    gather = _gather_over(n, list_gossip_pairs(n))
    if operation != "all-to-all":
        return gather

    # parent[rank, block] and round_of[rank, block]: from whom and when the gather brings it.
    turn, source, target, block = gather.sends.T[:4]
    parent = np.full((n, n), -1)
    parent[target, block] = source
    round_of = np.full((n, n), -1)
    round_of[target, block] = turn

    # Follow all blocks from their destinations back to their sources, one hop at a time: `owner`,
    # `destination` and `rank` have one entry for each block that is not at its source yet.
    owner, destination = np.nonzero(~np.eye(n, dtype=np.bool_))
    rank = destination.copy()
    rows = []
    while len(rank):
        # `previous` sends the block to `rank` in the round in which the gather brings it there.
        previous = parent[rank, owner]
        kind = np.full(len(rank), COPY)
        number = owner * n + destination
        rows.append(np.column_stack([round_of[rank, owner], previous, rank, number, kind]))
        is_on_its_way = previous != owner
        owner = owner[is_on_its_way]
        destination = destination[is_on_its_way]
        rank = previous[is_on_its_way]
    sends = np.concatenate(rows)
    return Rounds(sends[np.argsort(sends[:, 0], kind="stable")], n * n)


def list_gossip_pairs(n: int) -> list[NDArray[np.int64]]:
    """List rounds of pairs after which each of n ranks can know what all others knew (gossip).

    Even n: in round k rank i < n/2 meets rank n/2 + (i + 2^k - 1) mod n/2, where k counts from 0
    to floor(log2 n) - 1 and begins anew (the graph of Knoedel, 1975). There are ceil(log2 n)
    rounds, the fewest that are possible. For 6 ranks the partners of 0, 1, 2 are 3, 4, 5, then 4,
    5, 3, and again 3, 4, 5.

    Odd n: there are two ways, and the shorter one is taken.

    - The last rank tells rank 0 before the gossip of all others, and is told afterwards.
    - The rounds of n + 1 ranks are taken, without one of them. Its partner rests, and rounds go on
      until all know.

    The result ``partner[rank]`` is for each round: with whom the rank exchanges all that it knows;
    -1 for a rank that rests.
    """
    if n % 2 == 0:
        return [_knodel_partners(n, k) for k in range((n - 1).bit_length())]

    # The last rank joins a pair before and after the gossip of all others.
    last_and_first = np.full(n, -1)
    last_and_first[0] = n - 1
    last_and_first[n - 1] = 0
    among_others = [np.append(partner, -1) for partner in list_gossip_pairs(n - 1)]
    folded = [last_and_first, *among_others, last_and_first]

    # Rank n is absent: its partner rests, and what they would have told is told later.
    knows = np.eye(n, dtype=np.bool_)
    with_absent: list[NDArray[np.int64]] = []
    while not knows.all() and len(with_absent) < len(folded):
        partner = _knodel_partners(n + 1, len(with_absent))[:n]
        partner[partner == n] = -1
        has_partner = partner >= 0
        knows[has_partner] |= knows[partner[has_partner]]
        with_absent.append(partner)
    if knows.all() and len(with_absent) < len(folded):
        return with_absent
    return folded


def _knodel_partners(n: int, round_: int) -> NDArray[np.int64]:
    """Return ``partner[rank]`` in a round of the Knoedel graph of an even number of ranks.

    Rank i of the first half is joined to rank ``n / 2 + (i + 2^k - 1) mod n / 2`` in round k,
    where k counts from 0 to floor(log2 n) - 1 and begins anew.
    """
    half = n // 2
    n_dimensions = n.bit_length() - 1
    shift = 2 ** (round_ % n_dimensions) - 1
    left = np.arange(half)
    right = half + (left + shift) % half
    partner = np.empty(n, dtype=np.int64)
    partner[left] = right
    partner[right] = left
    return partner


def _exchange_whole_buffers(problem: Collective, operation: str, sign: int) -> Rounds:
    """Make an all-reduce by recursive doubling: pairs exchange whole buffers, and add them up.

    4 ranks: 0 <-> 1 and 2 <-> 3, then 0 <-> 2 and 1 <-> 3. If n is no power of two, the ranks from
    the largest power p below n on add their buffers to those of the ranks p before them first, and
    get the whole sum from them at the end: two rounds more.
    """
    # The largest power of two below or at n is 2^n_rounds; ranks from there on are extra.
    n = problem.n_ranks
    n_rounds = n.bit_length() - 1
    ranks = np.arange(1 << n_rounds)
    extra_ranks = np.arange(1 << n_rounds, n)
    buffer = np.zeros_like(ranks)
    doubling = [(ranks, ranks ^ (1 << k), buffer) for k in range(n_rounds)]
    if not len(extra_ranks):
        return as_rounds(doubling, REDUCE, 1)
    hosts = extra_ranks - len(ranks)
    extra_buffer = np.zeros_like(extra_ranks)
    fold_and_double = as_rounds([(extra_ranks, hosts, extra_buffer), *doubling], REDUCE, 1)
    unfold = as_rounds([(hosts, extra_ranks, extra_buffer)], COPY, 1)
    return one_after_another(fold_and_double, unfold)


def _make_swing(problem: Collective, operation: str, sign: int) -> Rounds:
    """Meet partners at distances 1, -1, 3, -5, 11, ... around the ring (De Sensi et al. 2024)."""
    n = problem.n_ranks
    ranks = np.arange(n)
    # (1 - (-2)^(k + 1)) / 3 is 1, -1, 3, -5, 11 for k = 0 ... 4.
    distances = [(1 - (-2) ** (k + 1)) // 3 for k in range((n - 1).bit_length())]
    direction = np.where(ranks % 2 == 0, 1, -1)
    partners = ((ranks + direction * distance) % n for distance in distances[::-1])
    return _gather_over(n, partners)


def _make_pairwise(problem: Collective, operation: str, sign: int) -> Rounds:
    """Make an all-to-all that sends each block straight to its place, a matching after another."""
    n = problem.n_ranks
    ranks = np.arange(n)
    sends_of_round = []
    for partner in list_matchings(problem):
        source = ranks[(partner >= 0) & (partner != ranks)]
        sends_of_round.append((source, partner[source], source * n + partner[source]))
    return as_rounds(sends_of_round, COPY, n * n)


def list_matchings(problem: Collective) -> list[NDArray[np.int64]]:
    """List matchings in which each rank meets each other one once.

    The result ``partner[rank]`` is -1 for a rank that rests.
    """
    n = problem.n_ranks
    ranks = np.arange(n)
    if not problem.two_way:
        return [list_partners("ring", n, shift) for shift in range(1, n)]
    routed = _routed_matchings(problem)
    if routed is not None:
        return routed
    if n & (n - 1) == 0:
        return [ranks ^ other for other in range(1, n)]

    # A round-robin tournament by the circle method: one rank stays, or rests, the others turn. In
    # turn t two ranks meet whose sum is 2 t modulo n_turning. Rank t would meet itself: it rests,
    # or meets rank n - 1, which does not turn where n is even.
    n_turning = n - 1 + n % 2
    matchings = []
    for turn in range(n_turning):
        partner = (2 * turn - ranks) % n_turning
        partner[turn] = -1
        if n % 2 == 0:
            partner[n - 1] = turn
            partner[turn] = n - 1
        matchings.append(partner)
    return matchings


def _routed_matchings(problem: Collective) -> list[NDArray[np.int64]] | None:
    """Return two-way matchings of all pairs of ranks that a mesh of switch cells can hold.

    The result ``partner[rank]`` is of each matching, -1 for a rank that rests; None if the fabric
    is another one, or if no schedule of all pairs was found for it.
    """
    fabric = problem.fabric
    if fabric.graph is None or not fabric.bidirectional or fabric.n_ports != problem.n_ranks:
        return None
    with uncounted():
        from optmatch.solvers.all_to_all.factorise import solve

    # A factorisation of the complete graph whose matchings all have routes through the mesh.
    everyone, rng = AllToAll(fabric), np.random.default_rng(0)
    schedule = solve(everyone, Limits(iterations=0), rng, ignore).schedule
    return None if schedule is None else list(schedule.matchings.astype(np.int64))


def _make_direct(problem: Collective, operation: str, sign: int) -> Rounds:
    """Send everything straight to its place, over as many matchings at a time as a rank has lanes.

    With 5 ranks and 2 one-way lanes, round 0 has circuits to the next and to the second next rank,
    and round 1 those to the other two.

    Returns rows of round, source, destination, chunk and kind (COPY), and the circuits
    ``matchings[round, lane, rank]``, -1 for a dark port.
    """
    n = problem.n_ranks
    lanes = problem.lanes
    matchings = list_matchings(problem)
    if sign < 0:
        matchings = matchings[::-1]
    sends_of_round = []
    circuits = []
    for first in range(0, len(matchings), lanes):
        together = matchings[first : first + lanes]
        # Lanes beyond the matchings of the round take them again from the first one on.
        circuits.append([together[lane % len(together)] for lane in range(lanes)])
        source = np.concatenate([np.flatnonzero(partner >= 0) for partner in together])
        target = np.concatenate([partner[partner >= 0] for partner in together])
        chunk = source * n + target if operation == "all-to-all" else source
        sends_of_round.append((source, target, chunk))
    rounds = as_rounds(sends_of_round, COPY, n * n if operation == "all-to-all" else n)
    return rounds._replace(matchings=[np.array(together) for together in circuits])


ALGORITHMS: dict[str, Callable[[Collective, str, int], Rounds]] = {
    "ring": _make_ring,
    "halving-doubling": _make_halving_doubling,
    "bruck": _make_bruck,
    "pairwise": _make_pairwise,
    "swing": _make_swing,
    "knodel": _make_knodel,
    "direct": _make_direct,
    "near-sums": _make_near_sums,
    "whole-buffers": _exchange_whole_buffers,
}
"""The makers of rounds, by name.

Each takes the problem; the operation whose sends it makes, an all-gather in place of sums; and the
direction in which chunks go round, 1 onward and -1 backward. The gather that becomes a
reduce-scatter is made with -1: it runs backwards, so its sums go onward as the copies after it do.
Algorithms of pairs are the
same in both directions, and `direct` takes its matchings in the opposite order."""

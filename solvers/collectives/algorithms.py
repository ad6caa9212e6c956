"""The known algorithms of collectives: the chunks that each rank sends in each round.

Most are one all-gather: a sequence of *partners*, over which all data spread (`SEQUENCES`). The
other operations are made of it: a reduce-scatter is a gather that runs backwards with sums, an
all-reduce is both, and the blocks of an all-to-all take the routes of the gather.

A *block* is what one rank contributes to a gather (then chunk r is that of rank r), or sends to
one other in an all-to-all (then chunk ``source * n + destination``). In a broadcast or an
all-reduce of whole buffers chunks are *pieces*, equal parts of the buffer. A *matching* gives each
rank one partner, and a *lane* is a port of a rank on some plane.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from optmatch.model import IDLE, Limits, TimeUp, ignore, uncounted
from optmatch.problems import AllToAll, Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.problems.collectives.steps import (
    list_partners,
    list_rounds,
    list_sends,
)
from optmatch.solvers.collectives.circulant import list_knodel_shifts
from optmatch.solvers.collectives.level_routes import find_level_routes
from optmatch.solvers.collectives.rounds import (
    MOST_SENDS,
    IntArray,
    Rounds,
    RoundSends,
    as_rounds,
    choose_pieces,
    chunk_sizes,
    drop_empty_sends,
    list_aligned_pieces,
    one_after_another,
    seconds_of,
)
from optmatch.solvers.collectives.spreading import (
    CircuitSequence,
    list_exchanged,
    list_gathered,
    make_rounds,
    spread,
)
from optmatch.solvers.collectives.topologies import lay_path

ALGORITHMS = (
    "ring",
    "halving-doubling",
    "bruck",
    "pairwise",
    "swing",
    "knodel",
    "direct",
    "near-sums",
    "whole-buffers",
)
"""The names of all known algorithms."""
MOST_ROUTED_RANKS = 32
"""Up to this number of ranks blocks are routed over pairs of several numbers of rounds. Between 32
ranks it takes 0.2 s, and 16 times as long between twice as many."""
ROUNDS_TRIED = 5
"""Numbers of rounds that are tried for that, from the fewest to half of the ranks."""


def _list_shifts(n: int, shifts: list[int]) -> CircuitSequence:
    """Return circuits in which each rank sends `shifts` places onward, one round for each."""
    return CircuitSequence.onward("", n, shifts, (1,) * len(shifts))


def _list_pairs(partners: list[IntArray]) -> CircuitSequence:
    """Return circuits between pairs, one round for each array ``partner[rank]``.

    -1 stands for a rank that rests in the round.
    """
    return CircuitSequence("", np.array(partners)[:, None], (1,) * len(partners))


def _list_powers(n: int) -> list[int]:
    """List 1, 2, 4, ... below the number of ranks: of 5 ranks 1, 2 and 4."""
    return [1 << k for k in range((n - 1).bit_length())]


def _list_swing_partners(n: int) -> list[IntArray]:
    """List partners at the distances ..., 11, -5, 3, -1, 1 around the ring, the farthest first.

    Even ranks count them onward, and odd ranks back. Distance k is (1 - (-2)^(k + 1)) / 3.
    """
    ranks = np.arange(n)
    direction = np.where(ranks % 2 == 0, 1, -1)
    distances = [(1 - (-2) ** (k + 1)) // 3 for k in range((n - 1).bit_length())]
    return [(ranks + direction * distance) % n for distance in distances[::-1]]


SEQUENCES: dict[str, Callable[[int], CircuitSequence]] = {
    # Always to the next rank, in n - 1 rounds (Patarasuk and Yuan 2009).
    "ring": lambda n: CircuitSequence.onward("", n, [1], (n - 1,)),
    # 1, 2, 4, ... places onward, in ceil(log2 n) rounds for any n (Bruck et al. 1997). Of 5 ranks,
    # 0 sends its block to 1, then two blocks to 2, and then to 4 the one block that this lacks.
    "bruck": lambda n: _list_shifts(n, _list_powers(n)),
    # The same with the longest distance first, and sums, which go backwards, to neighbours first:
    # over circuits that may be up at the start.
    "near-sums": lambda n: _list_shifts(n, _list_powers(n)[::-1]),
    # Along the sides of a hypercube: partners r ^ 1, r ^ 2, r ^ 4, ... (Thakur et al. 2005).
    "halving-doubling": lambda n: _list_pairs([np.arange(n) ^ power for power in _list_powers(n)]),
    # Partners at distances 1, -1, 3, -5, 11, ... around the ring (De Sensi et al. 2024).
    "swing": lambda n: _list_pairs(_list_swing_partners(n)),
    # The edges of a Knoedel graph, for any number of ranks (Knoedel 1975).
    "knodel": lambda n: _list_pairs(list_gossip_pairs(n)),
}
"""By the name of an algorithm and the number of ranks: its partners, over which a gather spreads.
Each rank has one circuit, which all its lanes take."""


def list_algorithm_rounds(problem: Collective, algorithm: str) -> Rounds:
    """List the sends of a known algorithm, round by round, without its circuits.

    Only `direct` and the line of a broadcast lay their circuits themselves, as a rank has
    different ones over its lanes; all others take those of the sends.
    """
    n = problem.n_ranks
    flow = problem.flow
    if n == 1:
        return Rounds(np.empty((0, 5), dtype=np.int64), 1)

    # All-reduces of whole buffers, and broadcasts. Two ranks add up whole buffers in one exchange,
    # where halves would take two; and a line of two ranks would only cut the buffer of a broadcast
    # into pieces that follow one another.
    if algorithm == "whole-buffers" or (n == 2 and flow.sums_for_all):
        return _exchange_whole_buffers(problem)
    if flow.from_root:
        if algorithm == "ring" and n > 2:
            return _make_line(problem)
        # The number of ranks of a group, if three groups make a shorter tree; else 0.
        group = group_of_halves(problem)
        return _make_tree_with_halves(problem, group) if group else _make_tree(problem)
    if algorithm in ("pairwise", "direct"):
        return drop_empty_sends(problem, _send_directly(problem, algorithm))

    # The blocks of an all-to-all take the routes of the gather, but for few ranks in pairs.
    if flow.has_pairs and algorithm == "knodel" and n <= MOST_ROUTED_RANKS:
        return drop_empty_sends(problem, _exchange_over_pairs(problem))
    if flow.has_pairs:
        # Which block comes to which rank, when and from where; the circuits of a round are those
        # of its sends.
        receipts = spread(SEQUENCES[algorithm](n))
        assert receipts is not None
        exchanged = list_exchanged(receipts, receipts.n_rotations)
        rounds = make_rounds(receipts, exchanged, n * n)._replace(matchings=None, links=None)
        return drop_empty_sends(problem, rounds)

    # ``flow.adds`` has True for sums, and False for copies: an all-reduce is both. Sums are a
    # gather over the reversed circuits that runs backwards, so that all data go onward.
    return one_after_another(*(_gather(n, algorithm, adds=adds) for adds in flow.adds))


def _exchange_over_pairs(problem: Collective) -> Rounds:
    """Make an all-to-all over pairs of two halves of the ranks, with the best number of rounds.

    In each round the first half meets the second one with another shift, as in a Knoedel graph.
    Few rounds need few changes of circuits; in many rounds blocks go over fewer hops. Among 32
    ranks each sends 80 blocks in 5 rounds, 51 in 16 rounds, and in 31 rounds 31 blocks, straight
    to their places. Routes are chosen by prices for busy circuits. `TimeUp` is raised if the
    search for routes gives up.
    """
    # Shifts near powers of two come first, over which all ranks are reached in the fewest rounds;
    # no shift comes twice. If n is odd, the last rank of `n_even` is absent: whoever would meet it
    # rests (-1).
    n = problem.n_ranks
    n_even = n + n % 2
    shifts = [*list_knodel_shifts(n_even), *range(n_even // 2)]
    all_pairs = [_join_halves(n_even, shift)[:n] for shift in dict.fromkeys(shifts)]
    all_pairs = [np.where(partner < n, partner, -1) for partner in all_pairs]
    n_bits = (n - 1).bit_length()
    counts = np.unique(np.geomspace(n_bits, len(all_pairs), ROUNDS_TRIED).astype(int)).tolist()

    # Each sequence of pairs is tried. That of gossip comes first: over it all ranks hear of all
    # others in the fewest rounds. As pairs change from round to round, any rank but the receiver
    # may be one hop from it: distance[destination, rank] is 1, and 0 at the destination.
    distance = 1 - np.eye(n, dtype=np.int64)
    best: Rounds | None = None
    best_s = np.inf
    for pairs in [list_gossip_pairs(n), *(all_pairs[:count] for count in counts)]:
        # Without a gather over these pairs some block would not come to its receiver.
        if spread(_list_pairs(pairs)) is None:
            continue

        # The routes of these pairs, and how long they take. The clock has no limit of its own, but
        # heeds that of the solve that is running.
        peer_by_round = np.array(pairs)[:, None]
        unlimited = Limits().start()
        routes = find_level_routes(problem, peer_by_round, distance, unlimited)
        if routes is None:
            raise TimeUp(f"no time for routes over {len(pairs)} rounds of pairs")
        circuit_bytes = routes.busiest_bytes / problem.lanes
        n_changes = len(pairs) - 1
        seconds = seconds_of(problem, len(pairs), circuit_bytes, n_changes=n_changes)
        if seconds < best_s:
            best = as_rounds(routes.sends, COPY, n * n)
            best_s = seconds
    assert best is not None
    return best


def _gather(n: int, algorithm: str, *, adds: bool = False) -> Rounds:
    """Make the all-gather of an algorithm, or with `adds` its reduce-scatter."""
    sequence = SEQUENCES[algorithm](n)
    receipts = spread(sequence.backwards if adds else sequence)
    assert receipts is not None
    rounds = make_rounds(receipts, list_gathered(receipts), n, adds=adds)
    return rounds._replace(matchings=None, links=None)


def fits(problem: Collective, algorithm: str) -> bool:
    """Tell whether an algorithm can make a plan for a problem.

    It has to know the operation. Some algorithms need a number of ranks of a certain form, such as
    a power of two. And the ports of ranks have to hold its circuits: a two-way circuit leads back
    from the port of the receiver to that of the sender, so that a rank with one of them cannot
    send to one rank and receive from another.
    """
    n = problem.n_ranks
    flow = problem.flow
    is_power_of_two = n & (n - 1) == 0

    # Steps that are given have their circuits already: algorithms choose their own.
    if problem.steps is not None:
        return False

    # Of an all-to-all around a ring, a block for the rank o places onward takes o sends: n (n - 1)
    # / 2 for each source. The edges of a two-way ring take two lanes in turn, and the last edge of
    # an odd ring a third one. A broadcast goes along a line, which has no such edge.
    is_short_ring = not flow.has_pairs or n * n * (n - 1) // 2 <= MOST_SENDS
    n_lanes_of_ring = 2 if flow.from_root else 2 + n % 2

    # `leads_onward`: ranks can send onward and receive from behind at once, which pairs of two-way
    # circuits cannot do.
    leads_onward = not problem.two_way or n <= 2
    has_few_ranks = flow.has_pairs and 2 < n <= MOST_ROUTED_RANKS
    takes_pairs = problem.two_way and not flow.from_root
    conditions = {
        "ring": is_short_ring and (leads_onward or problem.lanes >= n_lanes_of_ring),
        "halving-doubling": is_power_of_two and not flow.from_root,
        # The tree of a broadcast has pairs alone.
        "bruck": leads_onward or flow.from_root,
        "pairwise": flow.has_pairs,
        "swing": is_power_of_two and bool(flow.adds),
        # A power of two has halving and doubling instead, unless blocks are routed between few
        # ranks; one-way circuits have bruck.
        "knodel": takes_pairs and (not is_power_of_two or has_few_ranks),
        "direct": not flow.from_root,
        # As fast as bruck, but over circuits that may be up at the start.
        "near-sums": not problem.two_way and bool(flow.adds),
        "whole-buffers": flow.sums_for_all,
    }
    return conditions[algorithm]


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

    # circuits[lane, rank]: the peer of each port. One-way circuits lead onward over all lanes,
    # but from the last rank; two-way ones are those of a path that begins at the root.
    circuits = np.tile((np.arange(n) + 1) % n, (problem.lanes, 1))
    circuits[:, problem.root - 1] = IDLE
    path = lay_path(problem) if problem.two_way else None
    if path is not None:
        turned = np.where(path.peer == IDLE, IDLE, (path.peer + problem.root) % n)
        circuits = np.roll(turned, problem.root, axis=1)
    return rounds._replace(matchings=[circuits] * rounds.n_rounds)


def choose_line_pieces(problem: Collective) -> int:
    """Return into how many pieces a buffer is cut best that goes along a line of ranks.

    Example: 10 ranks, 2 ms for the whole buffer over a circuit, and start-ups of 10 us. About
    sqrt(8 * 2 ms / 10 us) = 40 pieces are best.
    """
    n_circuits = problem.lanes // 2 if problem.two_way else problem.lanes  # of two neighbours
    n_filling_rounds = problem.n_ranks - 2
    whole_s = problem.size_bytes / (problem.rate_bytes_per_s * n_circuits)
    pieces = choose_pieces(n_filling_rounds, whole_s, problem.round_s)

    def plan_s(pieces: int) -> float:
        n_rounds = n_filling_rounds + pieces
        chunk_bytes = float(chunk_sizes(problem, pieces)[0])
        return seconds_of(problem, n_rounds, n_rounds * chunk_bytes / n_circuits)

    return min(list_aligned_pieces(problem, pieces), key=plan_s)


def _make_tree(problem: Collective) -> Rounds:
    """Broadcast a whole buffer along a binomial tree: as many ranks again get it in each round.

    With root 0 of 4 ranks: 0 sends to 2, and then 0 to 1 and 2 to 3.
    """
    n = problem.n_ranks
    sends_of_round = []
    # The tree is that of root 0; all its ranks are shifted by the number of the root.
    for step in list_rounds("tree", "broadcast", n):
        source, target = (list_sends("tree", n, step).T + problem.root) % n
        whole_buffer = np.zeros_like(source)
        sends_of_round.append((source, target, whole_buffer))
    return as_rounds(sends_of_round, COPY, 1)


def group_of_halves(problem: Collective) -> int:
    """Return the ranks of a group, if three groups of a power of two save half a buffer; else 0.

    Buffers are sent whole in all rounds but one, which sends halves. A broadcast has groups of m
    ranks for 2 m < n <= 3 m, an all-reduce for n = 3 m; m is 2 at least.
    """
    n = problem.n_ranks
    group = (1 << (n - 1).bit_length()) // 4  # m with 2 m < n <= 4 m
    fits_groups = 2 * group < n <= 3 * group
    if problem.flow.sums_for_all:
        fits_groups = n == 3 * group
    return group if group >= 2 and fits_groups and not problem.align_bytes else 0


def _both_halves(source: IntArray, target: IntArray) -> RoundSends:
    """Return the sends of whole buffers that are cut into two chunks."""
    chunk = np.repeat(np.arange(2), len(source))
    return np.tile(source, 2), np.tile(target, 2), chunk


def _make_tree_with_halves(problem: Collective, group: int) -> Rounds:
    """Broadcast a buffer to three groups of ranks, one of which gets halves and exchanges them.

    `group` is the number of ranks of the first two groups, a power of two; the third one has the
    ranks that are left, as many or fewer. The chunks 0 and 1 are the halves of the buffer.

    Example with root 0 of 6 ranks, groups of 2: 0 sends all to 1; then 0 sends a half to 2, and 1
    the other half to 3; then 0 sends all to 4, 1 all to 5, and 2 and 3 exchange their halves. A
    tree would take three rounds of whole buffers.
    """
    # Places are numbers in a group. The rounds are: doubling in the first group; from each of its
    # ranks one half to a rank of the second group, chunk 0 to even places and chunk 1 to odd ones;
    # and whole buffers to the third group, while the places 0 and 1, 2 and 3, ... of the second
    # one (`place ^ 1`) exchange the halves that they have.
    n = problem.n_ranks
    place = np.arange(group)
    doubling = [_both_halves(np.arange(p), np.arange(p) + p) for p in _list_powers(group)]
    halves = (place, group + place, place % 2)
    exchanged = (group + place, group + (place ^ 1), place % 2)
    last = place[: n - 2 * group]
    whole_buffers = _both_halves(last, 2 * group + last)
    final = tuple(np.concatenate(column) for column in zip(whole_buffers, exchanged, strict=True))
    sends_of_round = [
        ((source + problem.root) % n, (target + problem.root) % n, chunk)
        for source, target, chunk in [*doubling, halves, final]
    ]
    return as_rounds(sends_of_round, COPY, 2)


def _sum_up_three_groups(n: int, group: int) -> Rounds:
    """Make an all-reduce of three groups by exchanges of pairs, one of halves, others of buffers.

    First each group adds up its buffers by recursive doubling. Then A, B and C, the sums of the
    groups, have two ranks each that stand for all: A0 and A1, B0 and B1, C0 and C1. In one round
    of half a buffer the pairs A1-B1, B0-C0 and A0-C1 add up, for both of them, the lower half of
    A + B, the upper half of B + C, and one half each of A + C. In the last one A0-B0, A1-C0 and
    B1-C1 exchange all that they have, which is A + B + C. With 6 ranks A0 to C1 are 0 to 5.
    """
    # A0 are all even ranks of the first group, one for each pair of A0 and A1, and so on. Chunk 0
    # is the lower half; in an exchange both ranks send, so that each pair is there twice. A0 sends
    # C1 the upper half, and gets the lower one.
    ranks = np.arange(n)
    doubling = [_both_halves(ranks, ranks ^ power) for power in _list_powers(group)]
    a0 = np.arange(0, group, 2)
    b0 = a0 + group
    c0 = b0 + group
    source = np.concatenate([a0 + 1, b0 + 1, b0, c0, c0 + 1, a0])
    target = np.concatenate([b0 + 1, a0 + 1, c0, b0, a0, c0 + 1])
    half = np.repeat([0, 0, 1, 1, 0, 1], len(a0))
    first = np.concatenate([a0, a0 + 1, b0 + 1])
    second = np.concatenate([b0, c0, c0 + 1])
    last = _both_halves(np.concatenate([first, second]), np.concatenate([second, first]))
    return as_rounds([*doubling, (source, target, half), last], REDUCE, 2)


def list_gossip_pairs(n: int) -> list[IntArray]:
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
        shifts = itertools.cycle(list_knodel_shifts(n))
        return [_join_halves(n, next(shifts)) for _ in range((n - 1).bit_length())]

    # The last rank joins a pair before and after the gossip of all others.
    last_and_first = np.full(n, -1)
    last_and_first[0] = n - 1
    last_and_first[n - 1] = 0
    among_others = [np.append(partner, -1) for partner in list_gossip_pairs(n - 1)]
    folded = [last_and_first, *among_others, last_and_first]

    # Rank n is absent: its partner rests, and what they would have told is told later.
    knows = np.eye(n, dtype=np.bool_)
    with_absent: list[IntArray] = []
    shifts = itertools.cycle(list_knodel_shifts(n + 1))
    while not knows.all() and len(with_absent) < len(folded):
        partner = _join_halves(n + 1, next(shifts))[:n]
        partner[partner == n] = -1
        has_partner = partner >= 0
        knows[has_partner] |= knows[partner[has_partner]]
        with_absent.append(partner)
    if knows.all() and len(with_absent) < len(folded):
        return with_absent
    return folded


def _join_halves(n: int, shift: int) -> IntArray:
    """Join rank i of the first half to rank ``n / 2 + (i + shift) mod (n / 2)``; n is even.

    Returns ``partner[rank]``.

    With 6 ranks and shift 1 the ranks 0, 1 and 2 have the partners 4, 5 and 3.
    """
    half = n // 2
    first_half = np.arange(half)
    second_half = half + (first_half + shift) % half
    partner = np.empty(n, dtype=np.int64)
    partner[first_half] = second_half
    partner[second_half] = first_half
    return partner


def _exchange_whole_buffers(problem: Collective) -> Rounds:
    """Make an all-reduce by recursive doubling: pairs exchange whole buffers, and add them up.

    4 ranks: 0 <-> 1 and 2 <-> 3, then 0 <-> 2 and 1 <-> 3. If n is no power of two, the ranks from
    the largest power p below n on add their buffers to those of the ranks p before them first, and
    get the whole sum from them at the end: two rounds more. Of 7 ranks 4 to 6 tell 0 to 2.
    Three groups of a power of two have a shorter way (`_sum_up_three_groups`).
    """
    n = problem.n_ranks
    group = group_of_halves(problem)
    if group:
        return _sum_up_three_groups(n, group)

    # The largest power of two below or at n is 2^n_rounds; ranks from there on are extra.
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


def list_matchings(problem: Collective) -> list[IntArray]:
    """List matchings in which each rank meets each other one once.

    Each matching is ``partner[rank]``: the rank to which a rank sends, -1 if it rests. Over
    two-way circuits both send to each other.
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
    # or meets rank n - 1, which does not turn where n is even. In turn 1 of 5 ranks 0 meets 2, 3
    # meets 4, and 1 rests; of 6 ranks 1 meets 5.
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


def _routed_matchings(problem: Collective) -> list[IntArray] | None:
    """Return two-way matchings of all pairs of ranks that a mesh of switch cells can hold.

    The result ``partner[rank]`` is of each matching, -1 for a rank that rests; None if the fabric
    is another one, or if no schedule of all pairs was found for it.
    """
    fabric = problem.fabric
    if fabric.graph is None or not fabric.bidirectional or fabric.n_ports != problem.n_ranks:
        return None
    with uncounted():
        from optmatch.solvers.all_to_all.factorise import solve

    # A factorisation of the complete graph whose matchings all have routes through the mesh. No
    # iterations are spent on exchanges that would save cells.
    all_pairs = AllToAll(fabric)
    rng = np.random.default_rng(0)
    schedule = solve(all_pairs, Limits(iterations=0), rng, ignore).schedule
    return None if schedule is None else list(schedule.matchings.astype(np.int64))


def _send_directly(problem: Collective, algorithm: str) -> Rounds:
    """Send everything straight to its place, a matching after another.

    By the algorithm `direct` each lane of a round has a matching of its own: of 5 ranks and 2
    one-way lanes, round 0 has circuits to the next and to the second next rank, and round 1 those
    to the other two. By `pairwise` all lanes have the same matching (Thakur et al. 2005).
    """
    n = problem.n_ranks
    lanes = 1
    if algorithm == "direct":
        lanes = problem.lanes
    matchings = list_matchings(problem)
    sends_of_round = []
    circuits = []
    for first in range(0, len(matchings), lanes):
        of_round = matchings[first : first + lanes]
        # Lanes beyond the matchings of the round take them again from the first one on.
        circuits.append(np.array([of_round[lane % len(of_round)] for lane in range(lanes)]))
        source = np.concatenate([np.flatnonzero(partner >= 0) for partner in of_round])
        target = np.concatenate([partner[partner >= 0] for partner in of_round])
        is_between = source != target
        sends_of_round.append((source[is_between], target[is_between]))
    # Circuits ``[lane, rank]`` by round. Those of `pairwise` follow from its sends, as each rank
    # sends to one other, and are not stated.
    stated: list[IntArray] | None = None
    if algorithm == "direct":
        stated = circuits

    # In an all-to-all each pair of ranks has a chunk.
    if problem.flow.has_pairs:
        exchange = [(source, target, source * n + target) for source, target in sends_of_round]
        return as_rounds(exchange, COPY, n * n)._replace(matchings=stated)

    # A gather sends the chunk of the source, and a sum that of the destination. Rounds of sums
    # come in reverse, so that an all-reduce, which sums and then gathers, ends its sums with the
    # circuits with which its copies begin. ``flow.adds`` is (True, False) for it.
    copies = [(source, target, source) for source, target in sends_of_round]
    gather = as_rounds(copies, COPY, n)._replace(matchings=stated)
    sums = [(source, target, target) for source, target in sends_of_round[::-1]]
    scatter = as_rounds(sums, REDUCE, n)._replace(matchings=stated and stated[::-1])
    phase = {True: scatter, False: gather}  # by whether it adds
    return one_after_another(*(phase[adds] for adds in problem.flow.adds))

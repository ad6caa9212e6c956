"""All-gathers over several ports, and the reduce-scatters and all-reduces that are made of them.

Data spread breadth first over circuits that stay, or over circulants that change between
configurations that are held for some rounds each; the module `spreading` simulates that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from optmatch.model import Clock
from optmatch.problems import Collective
from optmatch.solvers.collectives.circulant import split_rounds
from optmatch.solvers.collectives.offers import RESERVE, Offer
from optmatch.solvers.collectives.passing import (
    TurnedTorus,
    list_turned_rounds,
    list_turned_tori,
)
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.ring_sums import list_ring_offers
from optmatch.solvers.collectives.rounds import chunk_sizes, is_affordable
from optmatch.solvers.collectives.spreading import UNKNOWN, CircuitSequence, offer_gathers, spread
from optmatch.solvers.collectives.topologies import (
    count_parallel,
    lay_circulant,
    list_shift_sets,
    list_topologies,
)
from optmatch.solvers.collectives.walk_sums import list_walk_offers


def list_sequences(problem: Collective) -> Iterator[CircuitSequence]:
    """List the circuits that are tried for a gather over several ports."""
    for topology in list_topologies(problem):
        yield CircuitSequence.of([topology])
    # With p ports data can reach p + 1 times as many ranks in each round, if circuits change every
    # round. That takes log(n) to the base p + 1 sets of circuits; one more is tried.
    n = problem.n_ranks
    most = math.ceil(math.log(n, problem.lanes + 1)) + 1 if n > 1 else 0
    for count in range(2, most + 1):
        yield from _list_changes(problem, count)


def _list_changes(problem: Collective, count: int) -> Iterator[CircuitSequence]:
    """List circuits that change `count` - 1 times and first spread data nearby, then far.

    At any time each rank r has circuits to r + s, modulo n, for the same few *shifts* s. Example
    for 64 ranks with two ports, and one change:

    - first the shifts 1 and 3, whose sums reach the distances 0 to 7 within a few rounds;
    - then the shifts 8 and 24, eight times as large, which reach 0, 8, 16, ... 56.

    Together they reach all distances from 0 to 63. The 8 is the *base*: a distance is a number of
    `count` digits to this base, and each set of circuits serves one digit.
    """
    # The base is the `count`-th root of n, rounded up.
    n = problem.n_ranks
    lanes = problem.lanes
    base = math.ceil(n ** (1 / count) - 1e-9)

    # Candidates for the first shifts: the smallest ones, 1, 2, 3, ..., and those of good circuits
    # of `base` ranks. A two-way circuit takes a port at both ends, so that only half as many
    # different shifts fit; the candidates are other ones then.
    sets = {
        tuple(sorted(shifts))
        for shifts in [tuple(range(1, lanes + 1)), *list_shift_sets(base, lanes, two_way=False)]
    }
    if problem.two_way:
        half = lanes // 2
        sets = {tuple(range(1, half + 1)), *list_shift_sets(base, lanes, two_way=True)}
    for shifts in sorted(some for some in sets if some):
        # scaled[digit] are the shifts for each digit: times 1, the base, its square, ... A set is
        # left out if its sums do not reach all digits, or if a scaled shift is 0 modulo n: such a
        # circuit would lead from a rank to itself.
        rounds = _rounds_to_cover(base, shifts, lanes, two_way=problem.two_way)
        scaled = [tuple(base**digit * shift % n for shift in shifts) for digit in range(count)]
        if not rounds or not all(all(each) for each in scaled):
            continue
        laid = [lay_circulant(problem, each) for each in scaled]
        # All sets of circuits have to fit the ports (None if one does not). They share one array
        # of shifts, so each has to have as many shifts as the others.
        kept = [topology for topology in laid if topology is not None]
        if len(kept) == count and len({len(topology.shifts) for topology in kept}) == 1:
            yield CircuitSequence.of(kept, (rounds,) * count)


def _rounds_to_cover(base: int, shifts: tuple[int, ...], lanes: int, *, two_way: bool) -> int:
    """Return after how many rounds sums of shifts have reached `base` numbers in a row.

    Returns the number of rounds; 0 if `base` rounds are not enough.
    """
    # Numbers far beyond those that are wanted are not followed any more.
    steps = set(shifts[:lanes])
    reach = {0}
    if two_way:
        steps |= {-shift for shift in steps}
    lowest = -((base - 1) // 2) if two_way else 0
    wanted = set(range(lowest, lowest + base))
    for turn in range(1, base + 1):
        reach |= {number + step for number in reach for step in steps if abs(number) <= 2 * base}
        if wanted <= reach:
            return turn
    return 0


def list_gather_offers(problem: Collective, clock: Clock) -> Iterator[Offer]:
    """List plans of a gather or a sum over several ports, with their time, before they are made.

    For each choice of circuits an all-gather is simulated, which tells its time. The block of each
    rank may be cut into pieces, which come over different ports, and a limit of pieces on a
    circuit in a round may level the loads. All-reduces over tori, along walks of de Bruijn graphs
    and around two-way rings are offered, too, before these.
    """
    # An all-reduce sends everything twice: sums, then copies.
    n = problem.n_ranks
    phases = 2 if problem.operation == "all-reduce" else 1
    if problem.operation == "all-reduce":
        yield from _offer_turned_tori(problem)
        yield from list_walk_offers(problem, clock)
        yield from list_ring_offers(problem)
    for sequence in list_sequences(problem):
        for pieces, most_load in _list_piece_limits(problem, sequence):
            n_sends = phases * n * (n - 1) * pieces
            if pieces > 1 and not is_affordable(n_sends, clock, reserve=RESERVE):
                continue
            receive = partial(spread, problem, pieces=pieces, most_load=most_load)
            yield from offer_gathers(problem, sequence, sequence.name, receive)


def list_mixed_radix_offers(problem: Collective) -> Iterator[Offer]:
    """Offer a gather or a sum over rings whose steps grow: few rounds of few configurations.

    In configuration c each rank sends (1 + r_1) ... (1 + r_(c-1)) places onward over all lanes, in
    r_c rounds. After these it has the blocks of (1 + r_1) ... (1 + r_c) ranks in a row. With the
    fewest rounds for their number of configurations this product is n at least, and no schedule
    can do with less. Example: 12 ranks with 3 and 2 rounds take the steps 1 and 4.
    """
    n = problem.n_ranks
    splits = [split_rounds(n, k) for k in range(1, (n - 1).bit_length() + 1)]
    held = min(
        splits, key=lambda split: (len(split) - 1) * problem.delay_s + problem.round_s * sum(split)
    )
    radices = 1 + np.array(held)
    shifts = np.repeat((np.cumprod(radices) // radices)[:, None], problem.lanes, axis=1)
    peer = (np.arange(n) + shifts[:, :, None]) % n
    sequence = CircuitSequence("mixed radix", peer, held, shifts=shifts)
    yield from offer_gathers(problem, sequence, sequence.name, partial(spread, problem, pieces=1))


def _list_piece_limits(problem: Collective, sequence: CircuitSequence) -> list[tuple[int, int]]:
    """List into how many pieces blocks are cut, and how many pieces a circuit takes in a round.

    A rank can receive the pieces of a block from all of its neighbours at once. A block is cut
    into as many pieces as a rank has ports, or neighbours if several ports lead to the same one:
    these share each piece evenly, so that fewer pieces load all circuits alike. A ring with eight
    two-way ports has two neighbours, and two pieces are enough, which are a quarter of the sends.
    """
    n_ports = problem.lanes
    limits = [(1, UNKNOWN)]
    if n_ports > 1 and sequence.shifts is not None:
        limits += [(1, 1), (1, 2)]
    n_neighbours = max(int((count_parallel(peer) > 0).sum(axis=0).max()) for peer in sequence.peer)
    if 1 < n_neighbours < n_ports:
        limits.append((n_neighbours, UNKNOWN))
    if n_ports > 1:
        limits.append((n_ports, UNKNOWN))
    if n_ports > 1 and sequence.shifts is not None:
        limits += [(n_ports, n_ports * factor) for factor in (1, 2, 4, 8)]
    return limits


def _offer_turned_tori(problem: Collective) -> Iterator[Offer]:
    """List all-reduces over tori that use all ports at once, with their time."""
    round_s = problem.round_s
    for torus in list_turned_tori(problem):
        part_bytes = float(chunk_sizes(problem, torus.n_sides)[0])
        part_s = part_bytes / torus.n_parallel / problem.rate_bytes_per_s

        def build(torus: TurnedTorus = torus) -> Laid:
            """Lay out and time the all-reduce over this torus."""
            return lay(problem, list_turned_rounds(problem, torus))

        yield Offer(
            seconds=torus.n_rounds * (round_s + part_s),
            n_sends=problem.n_ranks * torus.n_sides * torus.n_rounds,
            name="turned torus",
            build=build,
        )

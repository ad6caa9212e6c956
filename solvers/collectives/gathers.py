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
from optmatch.solvers.collectives.passing import list_turned_torus_offers
from optmatch.solvers.collectives.plans import Laid
from optmatch.solvers.collectives.ring_sums import list_ring_offers
from optmatch.solvers.collectives.rounds import is_affordable
from optmatch.solvers.collectives.spreading import CircuitSequence, offer_gathers, spread
from optmatch.solvers.collectives.topologies import list_scaled_circulants, list_topologies
from optmatch.solvers.collectives.walk_sums import list_walk_offers


def list_sequences(problem: Collective) -> Iterator[CircuitSequence]:
    """List the circuits that are tried for a gather: those that stay, and some that change.

    Those that change first spread data nearby, then far. At any time each rank r has circuits to
    r + s, modulo n, for the same few *shifts* s. Example for 64 ranks with two ports, and one
    change:

    - first the shifts 1 and 3, whose sums reach the distances 0 to 7 within a few rounds;
    - then the shifts 8 and 24, eight times as large, which reach 0, 8, 16, ... 56.

    Together they reach all distances from 0 to 63. The 8 is the *base*: a distance is a number of
    two digits to this base, and each set of circuits serves one digit.
    """
    for topology in list_topologies(problem):
        yield CircuitSequence.of([topology], two_way=problem.two_way)
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


def _rounds_to_cover(base: int, shifts: tuple[int, ...], lanes: int, *, two_way: bool) -> int:
    """Return after how many rounds sums of shifts have reached `base` numbers in a row.

    Only the first shifts get ports, one of the `lanes` each; two-way circuits lead by their shift
    and by its opposite, so that the numbers lie on both sides of 0. Example: the shifts 1 and 3
    reach 0 to 7 after 3 rounds. The result is 0 if `base` rounds are not enough.
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


def list_gather_offers(
    problem: Collective, clock: Clock, below_s: float = math.inf
) -> Iterator[Offer[Laid]]:
    """List plans of a gather or a sum over several ports, with their time, before they are made.

    For each choice of circuits an all-gather is simulated, which tells its time. The block of each
    rank may be cut into pieces, which come over different ports. All-reduces over tori, along
    walks of de Bruijn graphs and around two-way rings are offered, too, before these. Circuits
    whose changes alone take `below_s` seconds are left out.
    """
    # An all-reduce sends everything twice: sums, then copies.
    n = problem.n_ranks
    phases = problem.n_gathers
    if problem.operation == "all-reduce":
        yield from list_turned_torus_offers(problem)
        yield from list_walk_offers(problem, clock)
        yield from list_ring_offers(problem)

    # Breadth-first gathers over each sequence of circuits, by pieces. A sequence is left out whose
    # changes alone take too long.
    for sequence in list_sequences(problem):
        if phases * (len(sequence.held) - 1) * problem.delay_s >= below_s:
            continue
        for pieces in _list_pieces(problem, sequence):
            n_sends = phases * n * (n - 1) * pieces
            if pieces > 1 and not is_affordable(n_sends, clock, reserve=RESERVE):
                continue
            receive = partial(spread, pieces=pieces)
            yield from offer_gathers(problem, sequence, sequence.name, receive)


def choose_radix_rounds(problem: Collective) -> tuple[int, ...]:
    """Choose how many rounds each configuration of a mixed-radix gather is held.

    Each number of configurations has the fewest rounds with which every rank can reach all; the
    fastest number is taken. Example: 12 ranks have (11,), (3, 2), (2, 1, 1) or (1, 1, 1, 1).
    """
    n = problem.n_ranks
    splits = [split_rounds(n, k) for k in range(1, (n - 1).bit_length() + 1)]
    return min(
        splits, key=lambda held: (len(held) - 1) * problem.delay_s + problem.round_s * sum(held)
    )


def list_mixed_radix_offers(problem: Collective) -> Iterator[Offer[Laid]]:
    """Offer a gather or a sum over rings whose steps grow: few rounds of few configurations.

    In configuration c each rank sends (1 + r_1) ... (1 + r_(c-1)) places onward over all lanes, in
    r_c rounds. After these it has the blocks of (1 + r_1) ... (1 + r_c) ranks in a row. With the
    fewest rounds for their number of configurations this product is n at least, and no schedule
    can do with less. Example: 12 ranks with 3 and 2 rounds take the steps 1 and 4.
    """
    n = problem.n_ranks
    held = choose_radix_rounds(problem)
    radices = 1 + np.array(held)
    shifts = np.repeat((np.cumprod(radices) // radices)[:, None], problem.lanes, axis=1)
    peer = (np.arange(n) + shifts[:, :, None]) % n
    sequence = CircuitSequence("mixed radix", peer, held, shifts=shifts)
    yield from offer_gathers(problem, sequence, sequence.name, spread)


def _list_pieces(problem: Collective, sequence: CircuitSequence) -> list[int]:
    """List into how many pieces blocks are cut.

    A rank can receive the pieces of a block from all of its neighbours at once. A block is cut
    into as many pieces as a rank has ports, or neighbours if several ports lead to the same one:
    these share each piece evenly, so that fewer pieces load all circuits alike. A ring with eight
    two-way ports has two neighbours, and two pieces are enough, which are a quarter of the sends.
    """
    n_neighbours = int((sequence.ends.width > 0).sum(axis=1).max())
    return sorted({1, n_neighbours, problem.lanes})

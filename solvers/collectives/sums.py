"""All-reduces whose ranks pass on what comes, beside the sums that they add up.

**Over a torus** (`list_torus_rounds`). Ranks are places of a torus, whose sides are factors of n,
each a ring over circuits of its own.

- Over a *scattered* side sums are scattered, and gathered again in the end.
- Over a *windowed* side of q places and m windows, m a divisor of q, sums are scattered over m
  neighbours each, then the sums of windows go round from root to root, m hops at a time, and in
  the end each root gathers its window: q + m - 2 rounds of one in m parts.
- Over a *passed* side each rank passes on what comes, and adds it up: one window, so q - 1 rounds,
  half as many as a scattered side takes, of more bytes.

Small buffers are only passed on. Sums, and what is passed on, have places of their own.

**Around one ring of two-way circuits** (`list_ring_offers`). The ring is the only graph that joins
all ranks over two two-way ports each. Half of it lies between two opposite ranks, and so an
all-reduce takes n / 2 rounds at least. The buffer is cut into w equal *chunks*. Each chunk has n /
w *roots*, w places apart, which get its whole sum:

- the *block* of a root are the w ranks that end with it. Its sum is made twice: by a partial sum
  that goes onward through the block to the root, and by one that goes back from the root to the
  first rank of the block;
- both then go on around the ring, from root to root, and each root adds what passes. They end
  after half of the ring: a root gets one half of the blocks, its own among them, from behind, and
  the other half from ahead;
- after n / 2 rounds all roots have the whole sum, and tell it to the ranks between them in w / 2
  more rounds.

In every round each circuit carries one chunk each way, as the roots of different chunks are at
different places. Small w means few rounds of many bytes, large w the opposite.

**Over de Bruijn graphs that stay** (`list_walk_offers`). In a de Bruijn graph of n = c d^(D - 1)
ranks (c <= d, which is the degree) rank z has circuits from the ranks d z, d z + 1, ..., d z + d -
1 (modulo n). If every rank sends its sum in each round, and every rank *replaces* its sum by what
comes over its d circuits, then after t rounds rank z has the sum of the ranks d^t z, ..., d^t z +
d^t - 1: those from which a walk of t circuits leads to it. In the last of D rounds c of the d
circuits are used, and the sum is of n ranks in a row, which are all ranks once. D is the fewest
rounds that the degree allows, or nearly so, and nothing has to be told to others afterwards.

Large buffers would take long, as each circuit carries the whole buffer in each round. They are cut
into d^a chunks. The sum of a chunk comes only to one rank in d^a, its *roots*, and `a` more rounds
spread it from there, D + a rounds in all. In each round only those ranks add up a chunk from which
a walk of the right length leads to one of its roots.

Over two-way circuits one half of the buffer goes along the walks, and the other half against them:
a walk that is unique from u to v is unique from v to u backwards.

Words that are used here:

- a *side* is one dimension of the torus. Along a side of q places ranks form rings of q ranks, and
  all sends of a round go to the next rank along the same side. The product of all sides is n;
- the *place* of a rank is its coordinate on a side, from 0; `PASSED` and `SUM` are places of
  another kind, memories of a rank for the same chunk;
- a *chunk* is an equal part of the buffer. Each scattered side of q places cuts the chunks before
  it into q, the windowed side into as many as it has windows, and passed sides do not cut them;
- a *window* is the part of the data that the ranks at every m-th place of a windowed side add up;
- an *arc* is a circuit of the graph in one direction, and a *walk* is arcs one after another;
- a rank with a *loop* would have an arc to itself; its sum stays, and is added to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from optmatch.model import IDLE, Clock
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.plan import COPY, KEEP, OWN, REDUCE, REPLACE, SUM
from optmatch.solvers.collectives.offers import RESERVE, Offer
from optmatch.solvers.collectives.plans import Laid, assemble, lay
from optmatch.solvers.collectives.rounds import (
    CHUNK,
    KIND,
    ROUND,
    BoolArray,
    IntArray,
    Rounds,
    chunk_sizes,
    is_affordable,
    list_rows,
    one_after_another,
    seconds_of,
)
from optmatch.solvers.collectives.topologies import (
    Topology,
    inverse_circuits,
    lay_circulant,
    lay_family,
)

PASSED = 2
"""The memory of a rank for data that are only on their way, around a ring onward; its sums are at
`SUM`."""


class Sides(NamedTuple):
    """Sides of a torus, in the order in which they are gone through.

    The product of all numbers of places is the number of ranks. Example with 8 ranks:
    ``scattered=(4,), passed=(2,)`` is a ring reduce-scatter over rings of 4 ranks, an exchange of
    sums between pairs of rings, and a ring all-gather.
    """

    seconds: float
    """How long all rounds and changes of circuits take. It comes first, so that the least of
    several records is the fastest."""
    scattered: tuple[int, ...] = ()
    """The places of each side over which sums are scattered, and gathered in the end."""
    windowed: tuple[int, int] = (1, 1)
    """Places and windows; (1, 1) if there is no such side."""
    passed: tuple[int, ...] = ()
    """The places of each side over which ranks pass on what comes, without cutting it."""

    def count_sends(self, n_ranks: int) -> int:
        """Return about how many sends the plan has."""
        chunks = math.prod(self.scattered) * self.windowed[1]
        return n_ranks * (2 * chunks + self.windowed[0] + sum(self.passed))


def choose_torus(problem: Collective, most_chunks: int | None = None) -> Sides:
    """Return the fastest torus for an all-reduce, by dynamic programming over the factors of n.

    The buffer is cut into at most `most_chunks` chunks, by default as many as there are ranks. The
    seconds of the result are latencies, bytes and changes of circuits, with ``problem.delay_s``
    for each; late ranks and the circuits at the start of the problem do not count. The first side
    is chosen, and those after it by recursion.

    Example of 4 ranks. The choices are ``scattered=(4,)``, 6 rounds of a quarter of the buffer;
    ``scattered=(2,), passed=(2,)``, 3 rounds of a half; ``windowed=(4, 2)``, 4 rounds of a half;
    ``passed=(2, 2)``, 2 rounds of the whole buffer over two sets of circuits; and
    ``passed=(4,)``, 3 rounds of it over one.
    """
    chunk_limit = problem.n_ranks if most_chunks is None else most_chunks
    longest_side = 2 if problem.two_way else problem.n_ranks  # two-way rings have 2 ranks

    def sending_s(n_rounds: int, chunks: int) -> float:
        """Return the seconds of rounds in each of which a rank sends one of `chunks` chunks."""
        chunk_bytes = float(chunk_sizes(problem, chunks)[0])
        return seconds_of(problem, n_rounds, n_rounds * chunk_bytes / problem.lanes)

    # A state has three parts: `places`, the product of the sides that are still to be chosen;
    # `chunks`, the number of equal parts into which the sides before have cut the buffer; and
    # `may_cut`, whether sides to come may cut them further, or are all passed. The seconds of
    # `Sides` are those of the sides in them, with a delay for each use of a side: a scattered side
    # is used twice, before and after all sides inside it, and a passed side once. Example with 8
    # ranks: ``scattered=(4, 2)`` uses the sides 4, 2, 2, 4. The two uses of side 2 follow each
    # other on the same circuits, so that it has three delays.
    @cache
    def choose_sides(places: int, chunks: int, may_cut: bool = True) -> Sides:
        """Choose the fastest sides for the places that are left, in a state of the search."""
        # Without places left the side before is the innermost one. If it was scattered, it is
        # counted with two delays, but its gather follows its scatter on the same circuits: one
        # delay is given back.
        if places == 1:
            return Sides(-problem.delay_s * may_cut)

        options = []
        for side in _list_factors(places, longest_side):
            # Passed: over q places in q - 1 rounds, in each of which a rank sends one chunk.
            # Passed sides alone may follow.
            inner = choose_sides(places // side, chunks, False)
            seconds = inner.seconds + problem.delay_s + sending_s(side - 1, chunks)
            options.append(Sides(seconds, passed=(side, *inner.passed)))

            # Scattered: over q places in q - 1 rounds before all sides inside, and gathered in as
            # many rounds after them. Each round carries a q-th part of the chunk.
            if may_cut and chunks * side <= chunk_limit:
                inner = choose_sides(places // side, chunks * side)
                turns_s = sending_s(side - 1, chunks * side)
                seconds = inner.seconds + 2 * (problem.delay_s + turns_s)
                options.append(inner._replace(seconds=seconds, scattered=(side, *inner.scattered)))

            # Windowed: cut into fewer windows than it has places. Of q places and m windows there
            # are m - 1 rounds to scatter, q - m to pass the sums on, and m - 1 to gather: q + m -
            # 2. Passed sides alone may follow. With them its circuits are set up twice: they come
            # back for the gather.
            for windows in _list_factors(side, min(longest_side, side - 1)):
                if not may_cut or chunks * windows > chunk_limit:
                    continue
                inner = choose_sides(places // side, chunks * windows, False)
                n_changes = 1 if places == side else 2
                turns_s = sending_s(side + windows - 2, chunks * windows)
                seconds = inner.seconds + n_changes * problem.delay_s + turns_s
                options.append(inner._replace(seconds=seconds, windowed=(side, windows)))
        return min(options)  # of the fewest seconds, the first field

    # The seconds have a change of circuits before the first round, which needs none: its circuits
    # can be set up beforehand, since nothing has to be sent before them.
    chosen = choose_sides(problem.n_ranks, 1)
    return chosen._replace(seconds=chosen.seconds - problem.delay_s)


@cache
def _list_factors(number: int, largest: int) -> list[int]:
    """List the factors of a number from 2 up to `largest`: of 12 up to 6 these are 2, 3, 4, 6."""
    return [factor for factor in range(2, min(number, largest) + 1) if number % factor == 0]


def choose_torus_within(problem: Collective, most_sends: float) -> Sides:
    """Return the fastest torus of at most `most_sends` sends; an uncut buffer if none has so few.

    Large buffers are cut into as many chunks as there are ranks, in two million sends between a
    thousand ranks. A torus with a side of four places that is passed has a quarter of them, and
    takes 1 % longer: rings of 256 ranks scatter the sums, and four rings exchange them.
    """
    most_chunks = problem.n_ranks
    while True:
        sides = choose_torus(problem, most_chunks)
        if most_chunks == 1 or sides.count_sends(problem.n_ranks) <= most_sends:
            return sides
        most_chunks //= 2


class _TorusSide(NamedTuple):
    """One side of a torus of ranks: rings of ranks whose numbers are `step` apart.

    With sides of 2 and 4 places the rank 5 = 1 + 2 * 2 has coordinate 1 on the first side, whose
    step is 1, and coordinate 2 on the second one, whose step is 2. On the second side ranks 1, 3,
    5 and 7 are a ring: 1 -> 3 -> 5 -> 7 -> 1.
    """

    step: int
    """The product of the places of the sides before."""
    places: int
    """How many ranks a ring has."""
    windows: int
    """Into how many parts the data that come to this side are cut. The rank with coordinate x
    is the *root* of part x modulo `windows`: the one that gets its sum."""

    def coordinates(self, ranks: IntArray) -> IntArray:
        """Return the place of each rank on its ring, from 0; shape (ranks,)."""
        return ranks // self.step % self.places

    def successors(self, ranks: IntArray) -> IntArray:
        """Return the next rank on the ring of each rank."""
        is_last = self.coordinates(ranks) == self.places - 1
        return np.where(is_last, ranks - (self.places - 1) * self.step, ranks + self.step)


class _TorusRounds:
    """The sends of an all-reduce over a torus, round by round.

    In each round every rank sends some chunks to its successor on one side. A chunk has a number
    like a rank: one digit, the part of the data, for each scattered or windowed side.

    Parameters
    ----------
    n
        The number of ranks.
    chunk_count
        The number of chunks: the product of the windows of all sides.
    """

    def __init__(self, n: int, chunk_count: int) -> None:
        """Begin without any round, with all ranks and all chunks of the buffer."""
        self.ranks = np.arange(n)
        self.chunks = np.arange(chunk_count)
        self.rows: list[IntArray] = []
        """For each round its sends: round, source, destination, chunk, kind, and the places from
        and into which they go."""

    def add_round(
        self,
        side: _TorusSide,
        is_sent: BoolArray,
        kind: int,
        from_place: int = SUM,
        to_place: int = SUM,
    ) -> None:
        """Append a round in which each rank sends chunks to its successor on a side.

        ``is_sent[rank, chunk]`` tells which ones. The `kind` says what the receiver does with
        them: it copies them (`COPY`), adds them to its sum (`REDUCE`), or both (`KEEP`). They are
        read from the memory `from_place` of the sender, and go into `to_place` of the receiver.
        """
        rank, chunk = np.nonzero(is_sent)
        target = side.successors(rank)
        self.rows.append(
            list_rows(len(self.rows), rank, target, chunk, kind, from_place, to_place)
        )

    def select_window(self, side: _TorusSide, rounds_back: int) -> BoolArray:
        """Tell which chunks each rank sends in one round of a ring algorithm.

        A rank sends the chunks of one window: that of the place which is `rounds_back` places
        before its own, as ``is_sent[rank, chunk]``. Example: a ring of 4 ranks and 4 windows. With
        ``rounds_back=1`` the ranks at coordinates 0, 1, 2 and 3 send the windows 3, 0, 1 and 2.
        """
        window_of_rank = (side.coordinates(self.ranks) - rounds_back) % side.places % side.windows
        window_of_chunk = self.chunks // side.step % side.windows
        # The sides before have left to a rank the chunks whose first digits are those of the rank.
        is_left_to_rank = self.ranks[:, None] % side.step == self.chunks % side.step
        is_sent: BoolArray = is_left_to_rank & (window_of_rank[:, None] == window_of_chunk)
        return is_sent

    def go_round(self, side: _TorusSide, kind: int) -> None:
        """Add the ring rounds of a reduce-scatter (`REDUCE`) or of an all-gather (`COPY`).

        In the former each root gets the sum of its window, in the latter whole sums are copied
        from roots to all ranks. A sum goes a place farther, as the root adds it up last.
        """
        for turn in range(side.windows - 1):
            window = self.select_window(side, rounds_back=turn + (kind == REDUCE))
            self.add_round(side, window, kind)

    def pass_windows_on(self, side: _TorusSide) -> None:
        """Add the rounds in which the sums of parts of a ring become sums of the whole ring.

        Ranks form rings along a side of the torus, of q = ``side.places`` ranks each, named by
        their place 0 to q - 1. The data are cut into m = ``side.windows`` equal parts, called
        windows; the roots of a window are the ranks at every m-th place, which have sums of it.
        Afterwards each root has the sum over all q ranks.

        The sums go round the ring from root to root, m hops at a time (a *trip*), q / m - 1 times.
        A root adds what comes to its own sum, and keeps it beside to send it on.

        Example: q = 4 and m = 2. The ranks at places 0 and 2 are the roots of window 0, those at 1
        and 3 the roots of window 1. There is one trip of 2 rounds: the sum of place 0 goes over
        place 1 to place 2, and at the same time that of place 2 goes over place 3 to place 0.
        """
        trips = side.places // side.windows - 1
        for trip in range(trips):
            for hop in range(side.windows):
                # The first hop of all sends the sums, later ones what was passed on.
                starts_anew = trip == 0 and hop == 0
                arrives_at_root = hop == side.windows - 1
                # Between roots data are only copied on (to `PASSED`), beside the sums of the ranks
                # that they pass. A root adds them, and also keeps them (`KEEP`) to send them on;
                # at the end of the last trip it only adds them (`REDUCE`).
                kind = COPY
                to_place = PASSED
                if arrives_at_root:
                    kind = KEEP
                    if trip == trips - 1:
                        kind = REDUCE
                        to_place = SUM
                is_sent = self.select_window(side, rounds_back=hop)
                from_place = SUM if starts_anew else PASSED
                self.add_round(side, is_sent, kind, from_place, to_place)

    def pass_whole_parts_on(self, side: _TorusSide, root_chunk: IntArray) -> None:
        """Add the rounds that sum up one chunk over each ring of a side, by passing data on.

        ``root_chunk[rank]`` is the chunk, the same for all ranks of a ring. In each round a rank
        adds what comes to its sum, and, but for the last one, also keeps it to send it on.

        On a ring of 4 places that is 3 rounds: in two of them data are added and kept, in the last
        one only added.
        """
        is_sent = root_chunk[:, None] == self.chunks  # by rank and chunk, the same in all rounds
        for turn in range(side.places - 1):
            from_place = SUM if turn == 0 else PASSED
            if turn == side.places - 2:
                self.add_round(side, is_sent, REDUCE, from_place, SUM)
            else:
                self.add_round(side, is_sent, KEEP, from_place, PASSED)


def list_torus_rounds(n: int, sides: Sides) -> Rounds:
    """List all sends of an all-reduce of n ranks over a torus.

    A torus has *sides* (dimensions) of q1, q2, ... places. Rank x1 + q1 x2 + q1 q2 x3 + ... has
    the coordinates x1, x2, x3, ... In every round each rank sends to the next one along one side,
    around a ring. Data go over the sides one after another, in one of three ways:

    - *scattered*: ring reduce-scatter, and the ring all-gather back after all other sides;
    - *windowed*: the same with fewer parts of the data than places; between scatter and gather the
      sums of parts go round the ring;
    - *passed*: each rank sends its part once around the ring, and everybody adds it up.

    Example: 4 ranks, one scattered and one passed side of 2 places. The buffer is cut into chunks
    0 and 1.

    - Round 0: 0 <-> 1 and 2 <-> 3 exchange. Even ranks have chunk 0, odd ranks chunk 1, each
      summed over two ranks.
    - Round 1: 0 <-> 2 and 1 <-> 3 exchange these sums, and add them. Now they are whole.
    - Round 2: 0 <-> 1 and 2 <-> 3 copy them to each other.
    """
    # Sides in the order of coordinates, scattered ones first. A scattered side cuts the data into
    # as many parts (`windows`) as it has places, a passed one does not cut them.
    step = 1  # by how much the numbers of neighbours along the next side differ
    scattered_sides: list[_TorusSide] = []
    for places in sides.scattered:
        scattered_sides.append(_TorusSide(step, places, windows=places))
        step *= places
    windowed_places, windows = sides.windowed
    windowed_side = _TorusSide(step, windowed_places, windows)
    step *= windowed_places
    passed_sides: list[_TorusSide] = []
    for places in sides.passed:
        passed_sides.append(_TorusSide(step, places, windows=1))
        step *= places

    # Sums are scattered over the first sides, ...
    chunk_count = windowed_side.step * windows
    rounds = _TorusRounds(n, chunk_count)
    for side in scattered_sides:
        rounds.go_round(side, REDUCE)
    rounds.go_round(windowed_side, REDUCE)
    rounds.pass_windows_on(windowed_side)

    # ... each rank then has the sum of one chunk, which is added up over the passed sides, ... The
    # digits of its number are the coordinates of the rank on the scattered sides, then the window
    # of which the rank is a root on the windowed side: with one scattered side of 2 places and 2
    # windows, rank 5 (coordinates 1 and 2) has chunk 1 + 2 * (2 % 2) = 1.
    window_of_rank = windowed_side.coordinates(rounds.ranks) % windows
    root_chunk = rounds.ranks % windowed_side.step + windowed_side.step * window_of_rank
    for side in passed_sides:
        rounds.pass_whole_parts_on(side, root_chunk)

    # ... and whole sums are gathered over the first sides, in the opposite order.
    rounds.go_round(windowed_side, COPY)
    for side in reversed(scattered_sides):
        rounds.go_round(side, COPY)
    sends = np.concatenate(rounds.rows)
    return Rounds(sends[:, :5], chunk_count, places=sends[:, 5:])


def list_turned_torus_offers(problem: Collective) -> Iterator[Offer[Laid]]:
    """List all-reduces over tori of equal sides whose ports are all used, on circuits that stay.

    The buffer is cut into as many parts as there are sides. Each part goes over all sides, one
    after another, but begins with another side than the other parts (its sides are *turned*): all
    sides are busy at once. Over a side of q places a part is passed on around the ring in q - 1
    rounds, and every rank adds it up.

    Each side needs a port of every rank: with 64 ranks and three ports there are 8 x 8 and 4 x 4 x
    4. Sides of two-way circuits have two places, as a rank needs two ports for a longer ring, one
    to each neighbour.
    """
    n = problem.n_ranks
    for n_sides in range(2, min(problem.lanes, n.bit_length()) + 1):
        places = round(n ** (1 / n_sides))
        is_possible = places == 2 or not problem.two_way
        if places >= 2 and places**n_sides == n and is_possible:
            # In each round a rank sends a whole part along each side, over all lanes of the side:
            # `n_sides` sends of every rank, with the same bytes over each circuit.
            n_rounds = n_sides * (places - 1)
            circuit_bytes = float(chunk_sizes(problem, n_sides)[0]) / (problem.lanes // n_sides)
            yield Offer(
                seconds=seconds_of(problem, n_rounds, n_rounds * circuit_bytes),
                n_sends=n * n_sides * n_rounds,
                name="turned torus",
                build=partial(_lay_turned_torus, problem, places, n_sides),
            )


def _lay_turned_torus(problem: Collective, places: int, n_sides: int) -> Laid:
    """Lay an all-reduce over a torus in which all ports are busy all the time.

    The buffer is cut into `n_sides` parts, one for each side of `places` ranks. Each part goes
    once round all sides, one after another, and is added up. Part 0 begins with side 0, part 1
    with side 1, and so on, so that each side always carries one part.

    Example: 4 ranks with two ports, 2 x 2. In round 0 neighbours along the first side exchange
    part 0, and those along the second side part 1; in round 1 it is the other way round.
    """
    n = problem.n_ranks
    sides = [_TorusSide(places**number, places, windows=1) for number in range(n_sides)]
    # All parts begin in round 0, and their rows are sorted by round.
    rows_of_part = []
    for part in range(n_sides):
        rounds = _TorusRounds(n, n_sides)
        for side in sides[part:] + sides[:part]:
            rounds.pass_whole_parts_on(side, np.full(n, part))
        rows_of_part.append(np.concatenate(rounds.rows))
    rows = np.concatenate(rows_of_part)
    rows = rows[np.argsort(rows[:, ROUND], kind="stable")]

    # Lanes are shared out over the sides in turn; those that are left over stay dark.
    circuits = np.full((problem.lanes, n), IDLE)
    for lane in range(problem.lanes - problem.lanes % n_sides):
        circuits[lane] = sides[lane % n_sides].successors(np.arange(n))
    matchings = [circuits] * (n_sides * (places - 1))
    return lay(problem, Rounds(rows[:, :5], n_sides, matchings, places=rows[:, 5:]))


def sum_up(gathered: Laid) -> Laid:
    """Make an all-reduce of an all-gather of whole buffers: each rank adds up what it hears.

    In the all-reduce the same sends go over the same circuits, but pieces are also added to sums.
    A chunk of the all-gather is a piece of the buffer of one rank, ``owner * pieces + piece``; one
    of the all-reduce is a piece of the sum of all buffers.

    Example: 4 ranks with pieces 0 and 1. Chunk 5 of the all-gather is piece 1 of the buffer of
    rank 2. In the all-reduce its sends are of chunk 1; rank 0 keeps it at place ``OWN + 2``, and
    adds it to its sum of piece 1.
    """
    plan = gathered.plan.spelled_out("all-gather")
    n = plan.circuits.shape[2]
    pieces = len(plan.chunk_bytes) // n
    _, source, target, chunk, _ = plan.sends.astype(np.int64).T
    owner, piece = np.divmod(chunk, pieces)

    # A chunk that comes to a rank for the first time is added to its sum, and kept to be sent on.
    # One that comes again, or had been its own, is only copied, as it must not be added twice.
    # Sends ascend by round, so the first row of a target and a chunk is the earliest send.
    sends = plan.sends.copy()
    sends[:, CHUNK] = piece
    sends[:, KIND] = COPY
    _, first_arrival = np.unique(target * len(plan.chunk_bytes) + chunk, return_index=True)
    sends[first_arrival, KIND] = KEEP
    sends[owner == target, KIND] = COPY

    # A rank keeps the buffer of the rank d places after it at place OWN + d; its own one at OWN.
    places = np.column_stack([OWN + (owner - rank) % n for rank in (source, target)])
    summed = replace(plan, sends=sends, places=places, chunk_bytes=plan.chunk_bytes[:pieces])
    return Laid(summed, gathered.held_s)


def join(problem: Collective, first: CollectivePlan, second: CollectivePlan) -> Laid:
    """Make one plan of an all-reduce from a plan of its reduce-scatter and one of its all-gather.

    Both plans cut the buffer into the same chunks, and list the sends of the same ones: of all, or
    of some ranks that stand for the others. The rounds of the second plan follow those of the
    first one. If the second one begins with the circuits with which the first one ends, they are
    not set up again.
    """
    rounds = one_after_another(Rounds.of_plan(first), Rounds.of_plan(second))
    circuits = np.concatenate([first.circuits, second.circuits]).astype(np.int64)

    # If the second plan begins with the circuits that the first one ends with, they are one epoch:
    # consecutive rounds over the same circuits.
    first_epoch = first.n_epochs
    if (first.circuits[-1] == second.circuits[0]).all():
        circuits = np.delete(circuits, first.n_epochs, axis=0)
        first_epoch = first.n_epochs - 1

    # Epochs of the second plan count on from those of the first one.
    later_epochs = second.epoch_of_round + first_epoch
    epoch_of_round = np.append(first.epoch_of_round, later_epochs).astype(np.int64)
    return assemble(problem, rounds, circuits, epoch_of_round)


PASSED_BACK = 3
"""The memory of a rank for a sum that goes back, and that it only passes on."""


def list_ring_offers(problem: Collective) -> Iterator[Offer[Laid]]:
    """List all-reduces around one ring whose sums go both ways, by the number of chunks.

    There are none for odd numbers of ranks, or fewer than four. With 8 ranks the buffer is cut
    into 1, 2 or 4 chunks, in 4 + 0, 4 + 1 or 4 + 2 rounds.
    """
    n = problem.n_ranks
    if not problem.two_way or problem.lanes < 2 or n < 4 or n % 2:
        return
    ring = lay_circulant(problem, (1,))
    if ring is None:
        return

    # Half of the ports of a rank lead each way, and share the bytes of a chunk.
    for chunks in range(1, n // 2 + 1):
        if n // 2 % chunks == 0:
            n_rounds = n // 2 + chunks // 2
            circuit_bytes = float(chunk_sizes(problem, chunks)[0]) / (problem.lanes // 2)
            yield Offer(
                seconds=seconds_of(problem, n_rounds, n_rounds * circuit_bytes),
                n_sends=n * (n + chunks - 2),
                name="two-way ring",
                build=partial(_lay_ring, problem, ring, chunks),
            )


def _lay_ring(problem: Collective, ring: Topology, chunks: int) -> Laid:
    """Lay out and time the all-reduce around a ring, of a buffer that is cut into `chunks`.

    Example: four ranks and one chunk. Every rank is a root, and its block is the rank itself. In
    round 0 each rank tells both neighbours what it has; in round 1 what came from ahead is passed
    on.
    """
    n = problem.n_ranks
    onward = _list_ring_sums(n, chunks, 1)
    back = _list_ring_sums(n, chunks, -1)

    # Whole sums go from roots to the ranks on both sides, one hop in a round. There are w - 1
    # ranks between two roots: w // 2 of them get the sum from behind, the others from ahead.
    copies = [
        _list_root_sends(n, chunks, n // 2 + hop, offset=hop, step=1, kind=COPY)
        for hop in range(chunks // 2)
    ]
    copies += [
        _list_root_sends(n, chunks, n // 2 + hop, offset=-hop, step=-1, kind=COPY)
        for hop in range((chunks - 1) // 2)
    ]
    sends = np.concatenate([*onward, *back, *copies])
    sends = sends[np.argsort(sends[:, ROUND], kind="stable")]
    matchings = [ring.peer] * (n // 2 + chunks // 2)
    return lay(problem, Rounds(sends[:, :5], chunks, matchings, places=sends[:, 5:]))


def _list_ring_sums(n: int, chunks: int, step: int) -> list[IntArray]:
    """List the sends of sums that go onward around a ring (step 1), or back (-1), by round.

    Each rank is the root of one of the w `chunks`, and a block are the w ranks that end with a
    root. The sum of a block is made hop by hop inside it, and then goes on from root to root; each
    root adds it. The result has an array of rows for each hop, which takes one round.

    Example with 8 ranks and w = 2, and the roots 1, 3, 5 and 7. The sum of ranks 0 and 1 goes from
    0 to 1 (made), from 1 to 2 (passed on), and from 2 to 3 (added, and not needed any further). At
    the same time that of ranks 1 and 0 goes from 1 to 0 (made), from 0 to 7 (added and sent on),
    from 7 to 6 (passed on), and from 6 to 5 (added).

    Rows are round, source, destination, chunk, kind, and the places from and into which data go. A
    rank has several such memories for a chunk: `SUM`, to which roots add, and in which sums that
    go onward are made; `OWN` for its own data, in which sums that go back are made; and one for
    what it only passes on each way.
    """
    # Onward a sum begins at the first rank of a block, and is at a root after the hops w - 2,
    # 2 w - 2, ...; back it begins at a root, and is at the next one after the hops w - 1, ...
    # `first_rank` is where it begins: 0 is the root, 1 - w the rank w - 1 places before it. Hop h
    # arrives at a root if h + `hops_to_root` is a multiple of w.
    n_hops = n // 2
    first_rank = 0
    hops_to_root = 1
    made_in = OWN
    passed_in = PASSED_BACK
    if step == 1:
        n_hops = n // 2 - 1
        first_rank = 1 - chunks
        hops_to_root = 2
        made_in = SUM
        passed_in = PASSED

    sends_of_round = []
    for hop in range(n_hops):
        # Inside its block the sum is added up. After that its last root only adds it (REDUCE),
        # roots before that also keep it to send it on (KEEP), and other ranks only keep it (COPY).
        arrives_at_root = (hop + hops_to_root) % chunks == 0
        kind = COPY
        to_place = passed_in
        if hop < chunks - 1:
            kind = REDUCE
            to_place = made_in
        elif arrives_at_root and hop == n_hops - 1:
            kind = REDUCE
            to_place = SUM
        elif arrives_at_root:
            kind = KEEP

        # The w - 1 hops inside the block, and the one that leaves it, send the sum that is made;
        # later hops send what ranks pass on.
        from_place = passed_in
        if hop < chunks:
            from_place = made_in
        sends_of_round.append(
            _list_root_sends(
                n,
                chunks,
                hop,
                offset=first_rank + step * hop,
                step=step,
                kind=kind,
                from_place=from_place,
                to_place=to_place,
            )
        )
    return sends_of_round


def _list_root_sends(
    n: int,
    chunks: int,
    round_: int,
    *,
    offset: int,
    step: int,
    kind: int,
    from_place: int = SUM,
    to_place: int = SUM,
) -> IntArray:
    """List the sends of a round in which all roots of all chunks do the same.

    Rank r is a root of chunk r modulo `chunks`. For each root one send of its chunk begins at the
    rank `offset` places after it, and goes to the next rank (`step` 1) or to the one before (-1):
    with 8 ranks, 2 chunks, offset 1 and step 1, that of root 3 has chunk 1 and goes from rank 4 to
    5. It reads the memory `from_place` of its source, and writes `to_place` of its destination.
    Rows are round, source, destination, chunk, kind and these two places.
    """
    root = np.arange(n)
    source = (root + offset) % n
    target = (source + step) % n
    return list_rows(round_, source, target, root % chunks, kind, from_place, to_place)


Sends = tuple[IntArray, IntArray, IntArray | int]
"""The sources, the destinations and the kinds of the sends of a chunk in one round."""


class Arcs(NamedTuple):
    """Arcs of a graph, int arrays of shape (arcs,); an arc to the rank itself is a loop."""

    source: IntArray
    """The rank that sends over each arc."""
    target: IntArray
    """The rank that receives."""


class WalkGraph(NamedTuple):
    """A de Bruijn graph in whose walks all ranks are added up once."""

    n: int
    """The number of ranks."""
    degree: int
    """The number of arcs that lead to each rank, d."""
    n_steps: int
    """The number of arcs of a walk, D."""
    last_digit: int
    """How many of the arcs to each rank are used by the last step, c; n is c d^(D - 1)."""
    is_against: bool = False
    """Whether data go against the arcs: walks are then made backwards, their last step first."""
    first_arc: int = 0
    """The first arc to each rank that the last step uses; a multiple of c."""

    def arcs(self, n_arcs: int, first_arc: int = 0) -> Arcs:
        """Return some arcs (circuits in one direction) of every rank, as senders and receivers.

        They are `n_arcs` of the d arcs that lead to each rank, from number `first_arc` on. With
        degree d, d arcs lead to each rank z, from the ranks d z to d z + d - 1, modulo the number
        of ranks. With 8 ranks and d = 2, rank 3 hears from 6 and 7, and rank 5 from 2 and 3.
        """
        # head[arc] is the rank z to which an arc leads, and tail[arc] the one it comes from.
        head = np.repeat(np.arange(self.n), n_arcs)
        digit = np.tile(np.arange(first_arc, first_arc + n_arcs), self.n)
        tail = (self.degree * head + digit) % self.n
        if self.is_against:
            return Arcs(head, tail)
        return Arcs(tail, head)

    def list_steps(self) -> list[Arcs]:
        """List the arcs that carry sums in each of the D rounds; D is the length of a walk."""
        steps = [self.arcs(self.degree)] * (self.n_steps - 1)
        last_step = self.arcs(self.last_digit, self.first_arc)
        if self.is_against:
            return [last_step, *steps]
        return [*steps, last_step]

    def roots(self, number: int, n_classes: int) -> BoolArray:
        """Return the ranks that get the sum of a chunk, and then tell it to all others.

        Ranks are divided into `n_classes` of equal size, and those of class `number` are the
        roots: ranks that are `n_classes` apart along the arcs, ranks in a row against them. With 8
        ranks and 2 classes the roots of chunk 0 are 0, 2, 4 and 6 along the arcs, and 0 to 3
        against them.
        """
        ranks = np.arange(self.n)
        class_of_rank = ranks % n_classes
        if self.is_against:
            class_of_rank = ranks * n_classes // self.n
        return np.equal(class_of_rank, number)


def find_walk_graph(n: int, degree: int) -> WalkGraph | None:
    """Return the de Bruijn graph in which walks of equal length lead from all ranks to each rank.

    There is one if n is a power of the degree times a number c from 2 to the degree; else the
    result is None. Example: 32 ranks of degree 4 have walks of 3 steps, the last of which has c =
    2 choices, as 32 = 2 * 4**2.
    """
    if degree < 2 or n <= degree:
        return None

    # Divide by the degree until c is left.
    n_steps = 1
    quotient = n
    while quotient > degree:
        if quotient % degree:
            return None
        quotient //= degree
        n_steps += 1
    return WalkGraph(n, degree, n_steps, last_digit=quotient)


def list_walk_offers(problem: Collective, clock: Clock) -> Iterator[Offer[Laid]]:
    """List all-reduces over a de Bruijn graph of circuits that stay, before they are made.

    There is one offer for each number of *classes* of ranks, 1, d, d^2 and so on, where d is the
    degree. Each class is the roots of chunks of its own, so that more classes mean smaller chunks:
    fewer bytes over each circuit, in more rounds. 8 ranks with two one-way ports (d = 2, D = 3)
    have 1, 2 or 4 classes: as many chunks, in 3, 4 or 5 rounds. The list ends when the rounds cost
    more than they save, or when `clock` has no time to list the sends of the next offer. Nothing
    is offered without a graph of degree 2 or more.
    """
    # The largest degree that the ports hold and whose walks add up all ranks. With two-way
    # circuits a rank needs ports for those that lead to it, and for those that lead to others.
    most_degree = problem.lanes // 2 if problem.two_way else problem.lanes
    graphs = (find_walk_graph(problem.n_ranks, degree) for degree in range(most_degree, 1, -1))
    graph = next((graph for graph in graphs if graph is not None), None)
    if graph is None:
        return
    topology = lay_family(problem, graph.degree, "de-bruijn")
    if topology is None:
        return
    # In the graphs of `lay_family` rank z sends to d z + k; here it has to hear from there. Over
    # two-way circuits it does both.
    if not problem.two_way:
        topology = topology._replace(peer=inverse_circuits(topology.peer, two_way=False))

    # The ranks are divided into 1, d, d^2, ... classes of equal size. At first the sends are
    # expected to be those of sums of whole buffers: over each arc in each step. Each further offer
    # has chunks for d times as many classes, and about d times the sends of the one before.
    n_classes = 1
    expected_sends = graph.n * graph.degree * graph.n_steps
    least_s = math.inf
    while graph.n % n_classes == 0 and n_classes < graph.n:
        # The sends are listed here to be counted, which takes as long as to lay them out later, so
        # that there has to be time for both.
        if not is_affordable(expected_sends, clock, reserve=2 * RESERVE):
            return
        # The promise counts the mean bytes of all circuits. A round lasts until its busiest
        # circuit is done, which takes as long or longer, so that no plan beats its promise.
        rounds = _list_walk_rounds(problem, graph, topology, n_classes)
        chunk_bytes = float(chunk_sizes(problem, rounds.chunk_count)[0])
        bytes_per_circuit = len(rounds.sends) * chunk_bytes / (graph.n * problem.lanes)
        seconds = seconds_of(problem, rounds.n_rounds, bytes_per_circuit)
        yield Offer(
            seconds=seconds,
            n_sends=len(rounds.sends),
            name="de-bruijn walks",
            build=partial(lay, problem, rounds),
        )

        # Each further round saves fewer bytes than the one before.
        if seconds > least_s:
            return
        least_s = seconds
        n_classes *= graph.degree
        expected_sends = graph.degree * len(rounds.sends)


def _list_walk_rounds(
    problem: Collective, graph: WalkGraph, topology: Topology, n_classes: int
) -> Rounds:
    """List the rounds of an all-reduce over a de Bruijn graph of circuits that stay.

    The sum of a chunk of the buffer goes along the circuits to some ranks, its roots, and spreads
    from there to all others by copies. `graph` says along which walks, and `topology` which
    circuits the plan sets up for all rounds. The buffer is cut twice:

    1. into *parts*, one for each way to use the circuits. If the last step of the sums needs c of
       the d circuits of a rank, each part takes other ones, in d / c parts. Over two-way circuits
       there are twice as many, as the second half of the parts goes the opposite way;
    2. each part into `n_classes` chunks. The ranks are divided into as many classes of equal size,
       and those of class k are the roots of chunk k of the part (`WalkGraph.roots`). With one
       class all ranks are roots, and nothing has to be copied.

    Chunk k of part p has the number ``p * n_classes + k``. Example: 2 parts and 4 classes make 8
    chunks; the roots of chunk 6 = 1 * 4 + 2 are the ranks of class 2.
    """
    # A graph for each part. If c does not divide d there is one part in each direction. With other
    # circuits in the last step the sums of ranks in a row begin at another rank, but they still
    # are all ranks once.
    graphs = [graph]
    if graph.degree % graph.last_digit == 0:
        first_arcs = range(0, graph.degree, graph.last_digit)
        graphs = [graph._replace(first_arc=first_arc) for first_arc in first_arcs]
    if problem.two_way:
        graphs += [part_graph._replace(is_against=True) for part_graph in graphs]

    # All chunks begin in round 0, and share the rounds. The sends of a chunk in a round are arrays
    # of sources and destinations, and what the destination does with them (`Sends`).
    rows_of_round: dict[int, list[IntArray]] = {}
    for part, graph_of_part in enumerate(graphs):
        for number in range(n_classes):
            roots = graph_of_part.roots(number, n_classes)
            sends = [
                *_add_up_along_walks(graph_of_part, roots),
                *_copy_from_roots(graph_of_part, roots, number),
            ]

            # Sums take the first D rounds, copies those that follow.
            chunk = part * n_classes + number
            for turn, (source, target, kind) in enumerate(sends):
                rows = list_rows(turn, source, target, chunk, kind)
                rows_of_round.setdefault(turn, []).append(rows)
    sends_of_rounds = [rows for turn in sorted(rows_of_round) for rows in rows_of_round[turn]]
    return Rounds(
        np.concatenate(sends_of_rounds),
        len(graphs) * n_classes,
        matchings=[topology.peer] * len(rows_of_round),
    )


def _add_up_along_walks(graph: WalkGraph, roots: BoolArray) -> list[Sends]:
    """List the sends of one chunk by which its roots get the sum of all ranks.

    The graph has arcs, circuits in one direction. In each round ranks send their sum over their
    arcs, and replace it by the sum of all that comes (kind ``REPLACE``). After D rounds a rank has
    the sum of all ranks from which a walk of D arcs leads to it: that is each rank once.

    A rank with a *loop* would have an arc to itself. It keeps its sum, as if that came over the
    loop, and adds what comes over other arcs to it (kind ``REDUCE``).

    Only sums that are wanted are sent: those from which a walk of the rest of the rounds leads to
    a root.
    """
    # ``is_wanted_after[step][rank]``: whether the sum that a rank has after the step is needed. It
    # is found from the last step, after which roots need theirs, back to the first: a sum is
    # needed if an arc of the next step leads from its rank to one whose sum is needed after that.
    steps = graph.list_steps()
    is_wanted_after = [roots]
    for arcs in reversed(steps[1:]):
        is_wanted = np.zeros(graph.n, dtype=np.bool_)
        is_wanted[arcs.source[is_wanted_after[-1][arcs.target]]] = True
        is_wanted_after.append(is_wanted)
    is_wanted_after.reverse()

    # Step by step: an arc is used if its target needs a sum and its source has one. Against the
    # arcs some ranks hear nothing in the first step. Their sum would be empty, so that they have
    # nothing to send in the next one.
    sends: list[Sends] = []
    has_sum = np.ones(graph.n, dtype=np.bool_)  # before the step, by rank
    for arcs, is_wanted in zip(steps, is_wanted_after, strict=True):
        is_used = is_wanted[arcs.target] & has_sum[arcs.source]
        source = arcs.source[is_used]
        target = arcs.target[is_used]
        has_sum = np.zeros(graph.n, dtype=np.bool_)
        has_sum[target] = True

        # A loop is no send; it only decides what its rank does with the sends that come. With 8
        # ranks and degree 2 rank 0 has arcs from 0 and 1: it adds the sum of rank 1 to its own.
        is_loop = source == target
        has_loop = np.zeros(graph.n, dtype=np.bool_)
        has_loop[target[is_loop]] = True
        kind = np.where(has_loop[target], REDUCE, REPLACE)
        sends.append((source[~is_loop], target[~is_loop], kind[~is_loop]))
    return sends


def _copy_from_roots(graph: WalkGraph, roots: BoolArray, number: int) -> list[Sends]:
    """List the sends by which the whole sum of a chunk spreads from its roots, breadth first.

    In each round all ranks that lack the sum, and have a circuit from a rank that has it, get a
    copy of it over one such circuit. ``roots[rank]`` have it at first. The `number` of the chunk
    turns the choice of circuits, so that chunks take different ones.

    Example: 8 ranks of degree 2, and the roots 0, 2, 4 and 6. One round is enough: ranks 1 and 5
    hear from rank 2, ranks 3 and 7 from rank 6.
    """
    sends: list[Sends] = []
    is_informed = roots.copy()
    arcs = graph.arcs(graph.degree)
    while not is_informed.all():
        # The arcs from a rank with the sum to one without it. Each rank takes the first arc that
        # leads to it in a list that begins at another place for each chunk.
        useful = np.flatnonzero(is_informed[arcs.source] & ~is_informed[arcs.target])
        order = np.roll(useful, -number)
        _, first_of_target = np.unique(arcs.target[order], return_index=True)
        used = order[first_of_target]
        is_informed[arcs.target[used]] = True
        sends.append((arcs.source[used], arcs.target[used], COPY))
    return sends

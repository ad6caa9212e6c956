"""All-reduces over a torus, in which ranks pass received data on, beside the sums they add up.

Ranks are places of a torus, whose sides are factors of n, each a ring over circuits of its own.

- Over a *scattered* side sums are scattered, and gathered again in the end.
- Over a *windowed* side of q places and m windows, m a divisor of q, sums are scattered over m
  neighbours each, then the sums of windows go round from root to root, m hops at a time, and in
  the end each root gathers its window: q + m - 2 rounds of one in m parts.
- Over a *passed* side each rank passes on what comes, and adds it up: one window, so q - 1 rounds,
  half as many as a scattered side takes, of more bytes.

Small buffers are only passed on. Sums, and what is passed on, have places of their own.

Words that are used here:

- a *side* is one dimension of the torus. Along a side of q places ranks form rings of q ranks, and
  all sends of a round go to the next rank along the same side. The product of all sides is n;
- the *place* of a rank is its coordinate on a side, from 0; `PASSED` and `SUM` are places of
  another kind, memories of a rank for the same chunk;
- a *chunk* is an equal part of the buffer. Each scattered side of q places cuts the chunks before
  it into q, the windowed side into as many as it has windows, and passed sides do not cut them;
- a *window* is the part of the data that the ranks at every m-th place of a windowed side add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE
from optmatch.problems import Collective, CollectivePlan
from optmatch.problems.collectives.plan import COPY, KEEP, OWN, REDUCE, SUM
from optmatch.solvers.collectives.offers import Offer
from optmatch.solvers.collectives.plans import Laid, assemble, lay
from optmatch.solvers.collectives.rounds import Rounds, chunk_sizes, list_rows, seconds_of

PASSED = 2
"""The memory of a rank for data that are only on their way; its sums are at `SUM`."""


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


def choose(problem: Collective, most_chunks: int | None = None) -> Sides:
    """Return the fastest torus for an all-reduce, by dynamic programming over the factors of n.

    The buffer is cut into at most `most_chunks` chunks, by default as many as there are ranks. The
    seconds of the result are latencies, bytes and changes of circuits; late ranks and the circuits
    at the start of the problem do not count. The first side is chosen, and those after it by
    recursion.

    Example of 4 ranks. The choices are ``scattered=(4,)``, 6 rounds of a quarter of the buffer;
    ``scattered=(2,), passed=(2,)``, 3 rounds of a half; ``windowed=(4, 2)``, 4 rounds of a half;
    ``passed=(2, 2)``, 2 rounds of the whole buffer over two sets of circuits; and
    ``passed=(4,)``, 3 rounds of it over one.
    """
    n = problem.n_ranks
    delay_s = problem.delay_s
    chunk_limit = n if most_chunks is None else most_chunks

    @cache
    def list_factors(places: int) -> list[int]:
        """List how many places the next side may have, from 2 on; two-way rings have 2 ranks."""
        most_places = min(places, 2) if problem.two_way else places
        return [side for side in range(2, most_places + 1) if places % side == 0]

    def sending_s(n_rounds: int, chunks: int) -> float:
        """Return the seconds of rounds in each of which a rank sends one of so many chunks."""
        chunk_bytes = problem.size_bytes / chunks
        return seconds_of(problem, n_rounds, n_rounds * chunk_bytes / problem.lanes)

    # In both functions `places` is the product of all sides that are still to be chosen, and
    # `chunks` are those into which the sides before have cut the buffer. The seconds are those of
    # the sides that are returned, with a change of circuits before each use of one. The least
    # record is the one with the fewest seconds, its first field. With 8 ranks, scattered=(4, 2)
    # uses sides 4, 2, 2, 4: two delays for each side, less one since the gather of side 2 follows
    # its scatter, less one before the first use. Two changes are left.
    @cache
    def choose_passed(places: int, chunks: int) -> Sides:
        """Choose the fastest rings over which each rank sends its data once round, to all."""
        if places == 1:
            return Sides(0.0)
        options = []
        for side in list_factors(places):
            inner = choose_passed(places // side, chunks)
            seconds = inner.seconds + delay_s + sending_s(side - 1, chunks)
            options.append(Sides(seconds, passed=(side, *inner.passed)))
        return min(options)

    @cache
    def choose_sides(places: int, chunks: int) -> Sides:
        """Choose the fastest sides of all kinds."""
        # Every scattered side below counts its circuits twice, for the scatter and for the gather.
        # If the innermost side is scattered (no places are left here), it gathers over the
        # circuits that are there, so one change is taken off.
        if places == 1:
            return Sides(-delay_s)

        # Passed sides take all places that are left.
        options = [choose_passed(places, chunks)]
        for side in list_factors(places):
            # The side is scattered over its places before all others, and gathered after them.
            if chunks * side <= chunk_limit:
                inner = choose_sides(places // side, chunks * side)
                seconds = inner.seconds + 2 * (delay_s + sending_s(side - 1, chunks * side))
                options.append(inner._replace(seconds=seconds, scattered=(side, *inner.scattered)))

            # Or it is cut into fewer windows than it has places; passed sides alone may follow.
            for windows in list_factors(side)[:-1]:
                if chunks * windows > chunk_limit:
                    continue
                inner = choose_passed(places // side, chunks * windows)
                # The circuits come back for the gather, unless no passed sides are in between. Of
                # q places and m windows there are m - 1 rounds to scatter, q - m to pass the sums
                # on, and m - 1 to gather: q + m - 2.
                changes_s = (1 if places == side else 2) * delay_s
                turns_s = sending_s(side + windows - 2, chunks * windows)
                seconds = inner.seconds + changes_s + turns_s
                options.append(inner._replace(seconds=seconds, windowed=(side, windows)))
        return min(options)

    # A change of circuits is added before the first round, too. These circuits are there already,
    # since nothing has to be sent before them.
    chosen = choose_sides(n, 1)
    return chosen._replace(seconds=chosen.seconds - delay_s)


def choose_within(problem: Collective, most_sends: float) -> Sides:
    """Return the fastest torus whose plan has at most so many sends; an uncut buffer if none has.

    Large buffers are cut into as many chunks as there are ranks, in two million sends between a
    thousand ranks. A torus with a side of four places that is passed has a quarter of them, and
    takes 1 % longer: rings of 256 ranks scatter the sums, and four rings exchange them.
    """
    most_chunks = problem.n_ranks
    while True:
        sides = choose(problem, most_chunks)
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

    def coordinates(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the place of each rank on its ring, from 0; shape (ranks,)."""
        return ranks // self.step % self.places

    def successors(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
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
        self.rows: list[NDArray[np.int64]] = []
        """For each round its sends: round, source, destination, chunk, kind, and the places from
        and into which they go."""

    def add_round(
        self,
        side: _TorusSide,
        is_sent: NDArray[np.bool_],
        kind: int,
        from_place: int = SUM,
        to_place: int = SUM,
    ) -> None:
        """Append a round in which each rank sends chunks to its successor on a side.

        ``is_sent[rank, chunk]`` tells which ones. The `kind` says what the receiver does with them
        (`COPY`, `REDUCE` or `KEEP`, as in a `CollectivePlan`). They are read from the memory
        `from_place` of the sender, and go into `to_place` of the receiver.
        """
        rank, chunk = np.nonzero(is_sent)
        target = side.successors(rank)
        self.rows.append(
            list_rows(len(self.rows), rank, target, chunk, kind, from_place, to_place)
        )

    def select_window(self, side: _TorusSide, rounds_back: int) -> NDArray[np.bool_]:
        """Tell which chunks each rank sends in one round of a ring algorithm.

        The result ``is_sent[rank, chunk]`` has the chunks of one window: that of the place which
        is `rounds_back` places before the rank. Example: a ring of 4 ranks and 4 windows. With
        ``rounds_back=1`` the ranks at coordinates 0, 1, 2 and 3 send the windows 3, 0, 1 and 2.
        """
        window_of_rank = (side.coordinates(self.ranks) - rounds_back) % side.places % side.windows
        window_of_chunk = self.chunks // side.step % side.windows
        # The sides before have left to a rank the chunks whose first digits are those of the rank.
        is_left_to_rank = self.ranks[:, None] % side.step == self.chunks % side.step
        is_sent: NDArray[np.bool_] = is_left_to_rank & (window_of_rank[:, None] == window_of_chunk)
        return is_sent

    def scatter(self, side: _TorusSide) -> None:
        """Add ring rounds of a reduce-scatter: each root gets the sum of its window."""
        for turn in range(side.windows - 1):
            self.add_round(side, self.select_window(side, rounds_back=turn + 1), REDUCE)

    def gather(self, side: _TorusSide) -> None:
        """Add ring rounds of an all-gather: whole sums are copied from roots to all ranks."""
        for turn in range(side.windows - 1):
            self.add_round(side, self.select_window(side, rounds_back=turn), COPY)

    def pass_windows_on(self, side: _TorusSide) -> None:
        """Add the rounds in which the sums of parts of a ring become sums of the whole ring.

        Ranks form rings along a side of the torus, of q = ``side.places`` ranks each, named by
        their place 0 to q - 1. The data are cut into m = ``side.windows`` equal parts, called
        windows; the roots of a window are the ranks at every m-th place, which have sums of it.
        Afterwards each root has the sum over all q ranks.

        The sums go round the ring from root to root, m hops at a time, q / m - 1 times. A root
        adds what comes to its own sum, and keeps it beside to send it on.

        Example: q = 4 and m = 2. The ranks at places 0 and 2 are the roots of window 0, those at 1
        and 3 the roots of window 1. There is one trip of 2 rounds: the sum of place 0 goes over
        place 1 to place 2, and at the same time that of place 2 goes over place 3 to place 0.
        """
        trips = side.places // side.windows - 1
        for trip in range(trips):
            for hop in range(side.windows):
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

    def pass_whole_parts_on(self, side: _TorusSide, root_chunk: NDArray[np.int64]) -> None:
        """Add the rounds that sum up one chunk over each ring of a side, by passing data on.

        ``root_chunk[rank]`` is the chunk, the same for all ranks of a ring. In each round a rank
        adds what comes to its sum, and, but for the last one, also keeps it to send it on.
        """
        is_sent = root_chunk[:, None] == self.chunks  # by rank and chunk, the same in all rounds
        for turn in range(side.places - 1):
            from_place = SUM if turn == 0 else PASSED
            if turn == side.places - 2:
                self.add_round(side, is_sent, REDUCE, from_place, SUM)
            else:
                self.add_round(side, is_sent, KEEP, from_place, PASSED)


def list_rounds(n: int, sides: Sides) -> Rounds:
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
    # Sides in the order of coordinates. The `step` of a side is by how much the numbers of
    # neighbours along it differ: the product of all sides before. `windows` is into how many parts
    # the side cuts the data: as many as it has places if it is scattered, 1 if it is passed.
    step = 1
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
        rounds.scatter(side)
    rounds.scatter(windowed_side)
    rounds.pass_windows_on(windowed_side)

    # ... the chunk of which a rank is the root is added up over the passed sides, ...
    window_of_rank = windowed_side.coordinates(rounds.ranks) % windows
    root_chunk = rounds.ranks % windowed_side.step + windowed_side.step * window_of_rank
    for side in passed_sides:
        rounds.pass_whole_parts_on(side, root_chunk)

    # ... and whole sums are gathered over the first sides, in the opposite order.
    rounds.gather(windowed_side)
    for side in reversed(scattered_sides):
        rounds.gather(side)
    sends = np.concatenate(rounds.rows)
    return Rounds(sends[:, :5], chunk_count, places=sends[:, 5:])


def list_turned_torus_offers(problem: Collective) -> Iterator[Offer[Laid]]:
    """List all-reduces over tori of equal sides whose ports are all used, on circuits that stay.

    The buffer is cut into as many parts as there are sides. Each side needs a port of every rank:
    with 64 ranks and three ports there are 8 x 8 and 4 x 4 x 4. Two-way circuits make rings of two
    ranks only, so their sides have two places.
    """
    n = problem.n_ranks
    for n_sides in range(2, min(problem.lanes, n.bit_length()) + 1):
        places = round(n ** (1 / n_sides))
        is_possible = places == 2 or not problem.two_way
        if places >= 2 and places**n_sides == n and is_possible:
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
    rows = rows[np.argsort(rows[:, 0], kind="stable")]

    # Lanes are shared out over the sides in turn; those that are left over stay dark.
    circuits = np.full((problem.lanes, n), IDLE)
    for lane in range(problem.lanes - problem.lanes % n_sides):
        circuits[lane] = sides[lane % n_sides].successors(np.arange(n))
    matchings = [circuits] * (n_sides * (places - 1))
    return lay(problem, Rounds(rows[:, :5], n_sides, matchings, places=rows[:, 5:]))


def sum_up(gathered: Laid) -> Laid:
    """Make an all-reduce of an all-gather of whole buffers: each rank adds up what it hears.

    In the all-reduce the same sends go over the same circuits, but pieces are also added to sums.

    The first send that brings a certain piece to a rank stores it, and adds it to the sum (kind
    `KEEP`). Later ones of the same piece only store it (kind `COPY`), since nothing may be added
    twice. The same holds for a piece that comes back to its owner.

    Example: 4 ranks with pieces 0 and 1. Chunk 5 of the all-gather is piece 1 of the buffer of
    rank 2. In the all-reduce its sends are of chunk 1; rank 0 keeps it at place ``OWN + 2``, and
    adds it to its sum of piece 1.
    """
    plan = gathered.plan.spelled_out("all-gather")
    n = plan.circuits.shape[2]
    pieces = len(plan.chunk_bytes) // n
    # The columns of sends are 0 round, 1 source, 2 destination, 3 chunk and 4 kind.
    source, target, chunk = plan.sends[:, 1:4].astype(np.int64).T
    owner, piece = np.divmod(chunk, pieces)

    # A chunk that comes to a rank for the first time is added to its sum, and kept to be sent on.
    # One that comes again, or had been its own, is only copied, as it must not be added twice.
    # Sends ascend by round, so the first row of a target and a chunk is the earliest send.
    sends = plan.sends.copy()
    sends[:, 3] = piece
    sends[:, 4] = COPY
    _, first_arrival = np.unique(target * len(plan.chunk_bytes) + chunk, return_index=True)
    sends[first_arrival, 4] = KEEP
    sends[owner == target, 4] = COPY

    # A rank keeps the buffer of the rank d places after it at place OWN + d; its own one at OWN.
    places = np.column_stack([OWN + (owner - rank) % n for rank in (source, target)])
    summed = replace(plan, sends=sends, places=places, chunk_bytes=plan.chunk_bytes[:pieces])
    return Laid(summed, gathered.held_s)


def last_circuits(laid: Laid, planes: int) -> Any:
    """Return the circuits that are there when a plan ends.

    Returns ``peer[lane, rank]``, -1 if a port is dark. `planes` is the number of switches.
    """
    # Without held seconds each plane changes its circuits by itself, and some rounds leave it out.
    plan = laid.plan
    if laid.held_s is not None:
        return plan.circuits[-1]
    # ``shares_bytes[round, plane]`` is 0 where a round leaves a plane out, and the lanes of
    # ``circuits[round, lane, rank]`` are those of plane 0, then of plane 1, and so on. Rounds
    # ascend, so the last round in which a plane has a share overwrites earlier ones.
    n_rounds, _, n = plan.circuits.shape
    circuits_of_plane = plan.circuits.reshape(n_rounds, planes, -1, n)
    last = np.full(circuits_of_plane.shape[1:], IDLE, dtype=np.int32)
    for round_, plane in np.argwhere(plan.shares_bytes > 0).tolist():
        last[plane] = circuits_of_plane[round_, plane]
    return last.reshape(-1, n)


def join(problem: Collective, first: CollectivePlan, second: CollectivePlan) -> Laid:
    """Make one plan of an all-reduce from a plan of its reduce-scatter and one of its all-gather.

    Both plans cut the buffer into the same chunks, and store those of the same ranks. The rounds
    of the second plan follow those of the first one. If the second one begins with the circuits
    with which the first one ends, they are not set up again.
    """
    # Column 0 of sends is the round, and column 0 of links the send that they belong to.
    later_sends = second.sends.astype(np.int64)
    later_sends[:, 0] += first.n_rounds
    sends = np.concatenate([first.sends.astype(np.int64), later_sends])
    circuits = np.concatenate([first.circuits, second.circuits]).astype(np.int64)

    # Planes that change circuits by themselves have an epoch for each round, and times and shares
    # of shape (rounds, planes). Times of planes that a round does not use stay 0.
    if first.shares_bytes.size:
        is_used = second.shares_bytes > 0
        joined = replace(
            first,
            sends=sends,
            circuits=circuits,
            epoch_of_round=np.arange(len(circuits)),
            shares_bytes=np.concatenate([first.shares_bytes, second.shares_bytes]),
            start_s=np.concatenate([first.start_s, second.start_s + first.time_s * is_used]),
            end_s=np.concatenate([first.end_s, second.end_s + first.time_s * is_used]),
            time_s=first.time_s + second.time_s,
            n_rounds_late=first.n_rounds_late + second.n_rounds * bool(problem.late_s),
        )
        return Laid(joined)

    # If the second plan begins with the circuits that the first one ends with, they are one epoch:
    # consecutive rounds over the same circuits.
    first_epoch = first.n_epochs
    if (first.circuits[-1] == second.circuits[0]).all():
        circuits = np.delete(circuits, first.n_epochs, axis=0)
        first_epoch = first.n_epochs - 1

    # Rounds, epochs and sends of the second plan count on from those of the first one.
    later_epochs = second.epoch_of_round + first_epoch
    later_links = second.links.astype(np.int64)
    later_links[:, 0] += len(first.sends)
    rounds = Rounds(
        sends,
        len(first.chunk_bytes),
        stored_ranks=first.stored_ranks,
        links=np.concatenate([first.links, later_links]).astype(np.int64),
    )
    epoch_of_round = np.append(first.epoch_of_round, later_epochs).astype(np.int64)
    return assemble(problem, rounds, circuits, epoch_of_round)

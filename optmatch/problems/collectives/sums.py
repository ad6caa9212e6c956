"""A lower bound of all-reduces between islands: a linear programme over the rounds of rails.

The programme counts, round by round, the sends of a byte. There are I islands of g ranks.

**The byte's rounds.** Round t is the first one after which some island has the byte of all ranks.
F is the set of the islands that do then, f their number, and J is one of them. The sends of the
byte over rails are divided in two:

- *collecting* sends: those up to round t, without those of round t into islands of F but J. The
  data of every island but J leave it in collecting sends.
- *spreading* sends: all others. Every island but J hears in spreading sends.

An island is *collected* in the round of the last collecting send by which its data leave it, and
*informed* in the round of the first spreading send that it hears. The *excess* is the number of
sends over rails beyond ``2 (I - 1)``, which gossip among I islands takes at least.

**What holds for each byte.** For each round r, with "to r" for the rounds up to r itself:

1. Each member of an island that is collected in a round up to r makes a collecting send itself, or
   told another member before that: ``inside(before r) + collecting(to r) >= g collected(to r)``.
   In each round there are as many collecting sends as islands are collected in it, or more.
2. Each member of an island that is informed in round r or later learns all over rails in such a
   round, or inside its island after r: ``inside(after r) + spreading(from r) >= g informed(from
   r)``. In each round there are as many spreading sends as islands are informed in it, or more.
3. Gossip of k takes ``2 (k - 1)`` messages: ``2 (I - 1)`` over rails, and ``2 (I g - 1)`` over
   rails and inside islands together.
4. ``collected(to r) + informed(after r) >= I - 1``, and about twice that for r = t. Let u islands
   have data that first leave them in round t. All of F hear of each then, so for f > 1 and u > 1
   ``excess >= (f - 1)(u - 1) + 1 - min(u, f)``; and ``excess >= 1`` for f > 2. Therefore u <=
   excess for f > 3, and then ``collected(to t - 1) + informed(from t) >= 2 (I - 1) - excess``. For
   f < 4 it is ``collected(to t) + informed(after t) >= 2 (I - 1) - (f - 1)``; and ``collected(to t
   - 1) + informed(after t)`` is at least ``2 I - 5 - excess`` for f = 2, and ``2 I - 6 - excess``
   for f = 3.

**The programme.** All of this is linear, so the means over all bytes obey it, too, and are the
variables (`Variables`). The sum of the lengths of all rounds and pauses is minimised. The solver
is not trusted: the bound is the objective of the dual, less what its multipliers are off.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_PROGRAMMED = 24
"""Rounds over rails up to which there is a programme."""
_MOST_TIMES_LEAST = 10.0
"""A bound is at most so many times what rounds and bytes over rails take."""

FloatArray = NDArray[np.float64]

Term = tuple[slice, NDArray[Any] | float]
"""A part of an inequality: some variables, and their coefficients."""


class Variables(NamedTuple):
    """The columns of the programme, as slices; means over all bytes.

    Rounds over rails have numbers r = 0, 1, ... Times are numbered from the pause before the first
    round: pause, round, pause, round, ..., pause; round r is time ``2 r + 1``.
    """

    collecting: slice
    """Collecting sends over rails, by round."""
    spreading: slice
    """Spreading sends over rails, by round."""
    collected: slice
    """Islands that are collected, by round."""
    informed: slice
    """Islands that are informed, by round."""
    excess: slice
    """The excess of the bytes whose t is this round, by round; a byte counts in no other round."""
    part_of_bytes: slice
    """The part of all bytes whose t is a round and whose f is in a class, by class and then by
    round. The classes are f = 1 or f > 3; f = 2; f = 3."""
    inside: slice
    """Sends inside islands, by time."""
    length: slice
    """Lengths, by time, in units of the least time of rounds and bytes over rails."""

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return int(self.length.stop)


class Costs(NamedTuple):
    """The durations that the programme adds up, in seconds or in units of the least time."""

    round_: float
    """The fixed length of a round over rails."""
    island_round: float
    """The fixed length of a round inside islands."""
    send: float
    """How much a round over rails grows for each send of every byte: the time of the block of a
    rank, an n-th of its buffer."""
    inside_send: float
    """How much a round inside islands grows for each send of every byte."""


@lru_cache(maxsize=4096)
def bound_sums_s(
    islands: int, members: int, costs: Costs, rounds: int, by_case: bool = True
) -> float:
    """Bound the time of an all-reduce with a given number of rounds between islands.

    Rounds over rails alternate with pauses, in which bytes go inside islands alone. A linear
    programme counts, for each round and pause, how often a byte is sent over rails and inside
    islands, as means over all bytes. It minimises the sum of the lengths of all rounds and pauses.
    Delays for changes of circuits are not counted.

    There are `rounds` rounds over rails, and `members` ranks in each of the `islands`. `costs` are
    in seconds. Before and after all rounds over rails there may be a round inside islands or not:
    with `by_case` each of the four cases has a programme; else a single one, in which these two
    have no start-up, bounds all four from below. Returns seconds that no such all-reduce can beat;
    0 if the solver fails.
    """
    # Lengths are in units of what rounds and bytes over rails take at least, so that numbers are
    # of about the same size.
    least_s = costs.round_ * rounds + 2 * (islands - 1) * costs.send
    relative = Costs(
        round_=costs.round_ / least_s,
        island_round=costs.island_round / least_s,
        send=costs.send / least_s,
        inside_send=costs.inside_send / least_s,
    )

    # Most variables have a column for each round, `part_of_bytes` three, and the last two have one
    # for each time, a round or a pause. With 2 rounds these are columns 0 to 9, 10 to 15 and 16 to
    # 25. The goal is the sum of all lengths.
    n_times = 2 * rounds + 1
    variables = Variables(
        collecting=slice(0, rounds),
        spreading=slice(rounds, 2 * rounds),
        collected=slice(2 * rounds, 3 * rounds),
        informed=slice(3 * rounds, 4 * rounds),
        excess=slice(4 * rounds, 5 * rounds),
        part_of_bytes=slice(5 * rounds, 8 * rounds),
        inside=slice(8 * rounds, 8 * rounds + n_times),
        length=slice(8 * rounds + n_times, 8 * rounds + 2 * n_times),
    )
    rows, least = _list_inequalities(variables, relative, islands, members, rounds)
    goal = np.zeros(variables.n_columns)
    goal[variables.length] = 1.0

    # The largest value of each variable. No length is over `_MOST_TIMES_LEAST`, in units of
    # `least_s`, and no more is sent than takes so long; parts of all bytes are 1 at most.
    most = np.full(variables.n_columns, 1.0)
    most[variables.collecting] = _MOST_TIMES_LEAST / relative.send
    most[variables.spreading] = _MOST_TIMES_LEAST / relative.send
    most[variables.collected] = islands - 1
    most[variables.informed] = islands - 1
    most[variables.excess] = 2 * rounds * _MOST_TIMES_LEAST / relative.send
    most[variables.inside] = _MOST_TIMES_LEAST / relative.inside_send
    most[variables.length] = _MOST_TIMES_LEAST

    if not by_case:
        return min(_MOST_TIMES_LEAST, _bound_programme(rows, least, goal, most)) * least_s

    # Links inside islands have time before the first and after the last round over rails only if
    # a round inside islands is spent there. `has_round` tells for the first and the last pause
    # whether it is, and the fastest of the four cases counts: a pause without it has no sends, and
    # one with it lasts an island round at least. The last rows of the programme are the lengths of
    # all times, and the first and the last of these are those of the two pauses.
    sends_in_pauses = [variables.inside.start, variables.inside.stop - 1]  # columns
    lengths_of_pauses = [-n_times, -1]  # rows
    bounds = []
    for has_round in ((False, False), (False, True), (True, False), (True, True)):
        limits = most.copy()
        limits[sends_in_pauses] *= has_round
        least[lengths_of_pauses] = relative.island_round * np.array(has_round)
        bounds.append(_bound_programme(rows, least, goal, limits))
    return min(_MOST_TIMES_LEAST, *bounds) * least_s


def _list_inequalities(
    variables: Variables, costs: Costs, islands: int, members: int, rounds: int
) -> tuple[FloatArray, FloatArray]:
    """List which sends an all-reduce needs, and how long they take.

    Returns ``rows[row, column]``, coefficients of the columns of `variables`, and ``least[row]``,
    for the programme ``rows @ x >= least``. The last rows are the lengths of all times, in time
    order; those of the first and of the last pause are 0 here. `costs` are in units of the least
    time.
    """
    rows: list[FloatArray] = []
    least: list[float] = []

    def require(at_least: float, *terms: Term) -> None:
        """Add the inequality that the sum of some terms is at least a number."""
        row = np.zeros(variables.n_columns)
        for columns, coefficients in terms:
            row[columns] += coefficients
        rows.append(row)
        least.append(at_least)

    other_islands = islands - 1
    all_rounds = np.arange(rounds)
    all_times = np.arange(2 * rounds + 1)
    for round_ in range(rounds):
        # Coefficients by round: 1 for the rounds up to this one, for those from it on, and so on.
        # Times are numbered: pause 0, round 0 at time 1, pause 2, round 1 at time 3, and so on.
        up_to = 1.0 * (all_rounds <= round_)
        since = 1.0 * (all_rounds >= round_)
        in_round = 1.0 * (all_rounds == round_)
        time = 2 * round_ + 1

        # Each member of an island that is collected up to this round sends over a rail itself, or
        # has told another member inside the island before: g * collected(up to r) <=
        # collecting(up to r) + inside(before r).
        require(
            0.0,
            (variables.inside, all_times < time),
            (variables.collecting, up_to),
            (variables.collected, -members * up_to),
        )

        # Each member of an island that is informed from this round on hears over a rail, or is
        # told inside the island after it: g * informed(from r) <= spreading(from r) +
        # inside(after r).
        require(
            0.0,
            (variables.inside, all_times > time),
            (variables.spreading, since),
            (variables.informed, -members * since),
        )

        # There are as many sends as islands are collected, or informed, or more.
        require(0.0, (variables.collecting, in_round), (variables.collected, -in_round))
        require(0.0, (variables.spreading, in_round), (variables.informed, -in_round))

        # All islands but one are collected once and informed once: collected up to some round t,
        # and informed from it on. Hence, for any round r, at least I - 1 islands are collected up
        # to r or informed after r. Bytes whose t is this round need I - 1 more (f = 1 or f > 3,
        # with f first islands), I - 2 more (f = 2) or I - 3 more (f = 3), less their excess: this
        # is subtracted on the left side, times the part of these bytes. `np.kron` puts the three
        # numbers at the columns of this round in the three classes of f: with 4 islands and 3
        # rounds the nine parts have 0 -3 0, 0 -2 0, 0 -1 0 in round 1.
        after = 1.0 * (all_rounds > round_)
        more_if_here = [-other_islands, 1 - other_islands, 2 - other_islands]
        require(
            other_islands,
            (variables.collected, up_to),
            (variables.informed, after),
            (variables.excess, in_round),
            (variables.part_of_bytes, np.kron(more_if_here, in_round)),
        )

        # The same with the islands that are collected before this round. Bytes whose t is this
        # round need I - 1 (f = 1 or f > 3), 2 I - 5 (f = 2) or 2 I - 6 (f = 3). The excess counts
        # if t is this round or the one before.
        more_if_here = [0, 3 - other_islands, 4 - other_islands]
        here_or_before = in_round + (all_rounds == round_ - 1)
        require(
            other_islands,
            (variables.collected, up_to - in_round),
            (variables.informed, after),
            (variables.excess, here_or_before),
            (variables.part_of_bytes, np.kron(more_if_here, in_round)),
        )

        # A round lasts at least as long as its start-up and all bytes sent over rails.
        require(
            costs.round_,
            (variables.length, 1.0 * (all_times == time)),
            (variables.collecting, -costs.send * in_round),
            (variables.spreading, -costs.send * in_round),
        )

    # In all rounds together: the excess of a byte is what its sends over rails are more than
    # 2 (I - 1). A byte with three first islands has an excess of 1 or more: its mean is at least
    # the part of all bytes that are such.
    require(
        2 * other_islands,
        (variables.collecting, 1.0),
        (variables.spreading, 1.0),
        (variables.excess, -1.0),
    )
    is_of_three = np.repeat([0.0, 0.0, -1.0], rounds)
    require(0.0, (variables.excess, 1.0), (variables.part_of_bytes, is_of_three))

    # One of the first islands needs neither be collected nor informed; every other island is
    # collected once, and informed once. A sum that is equal to a number takes two rows: at least
    # the number, and its negative at least the negative number.
    for islands_by_round in (variables.collected, variables.informed):
        require(other_islands, (islands_by_round, 1.0))
        require(-other_islands, (islands_by_round, -1.0))

    # Gossip among n ranks takes 2 (n - 1) sends, over rails and inside islands together. The first
    # half of each byte ends with some round, and therefore all parts add up to 1.
    require(
        2 * (islands * members - 1),
        (variables.collecting, 1.0),
        (variables.spreading, 1.0),
        (variables.inside, 1.0),
    )
    require(1.0, (variables.part_of_bytes, 1.0))

    # What is sent inside islands takes its time, in rounds and pauses: length - inside_send *
    # inside >= fixed length. That of a round is the smaller one of those of a round over rails and
    # of one inside islands, that of a pause 0.
    for time in all_times.tolist():
        at_time = 1.0 * (all_times == time)
        fixed = min(costs.round_, costs.island_round) * (time % 2)
        require(
            fixed, (variables.length, at_time), (variables.inside, -costs.inside_send * at_time)
        )
    return np.array(rows), np.array(least)


def _bound_programme(
    rows: FloatArray, least: FloatArray, goal: FloatArray, most: FloatArray
) -> float:
    """Bound the least value of a linear programme from below, without trust in its solver.

    The programme: the least ``goal @ x`` with ``rows @ x >= least`` and ``x >= 0``; an optimum has
    no x above `most`. Returns a lower bound; 0 if the solver fails.
    """
    from scipy.optimize import linprog

    limits = np.column_stack([np.zeros(len(most)), np.where(most > 0, np.inf, 0.0)])
    solved = linprog(goal, -rows, -least, bounds=limits)
    if solved.status:
        return 0.0

    # The solver has rows "at most", with the opposite sign. `surplus` is by how much a column of
    # the multipliers exceeds its goal, which a column of up to `most` may take off the bound.
    multipliers = np.maximum(-solved.ineqlin.marginals, 0.0)
    surplus = np.maximum(multipliers @ rows - goal, 0.0)
    return float(multipliers @ least - surplus @ most)

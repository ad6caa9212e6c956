"""Schemes: what happens to the data of one island, whose places stand for those of all islands.

The rail of place p leads from an island to the one ``shifts[p]`` islands onward. A gather reaches
islands in *phases*: each block comes from an island that had it before, over the rail with the
least load, and is then copied to the other places of the island. Blocks of an all-to-all go over
rails straight to their island, or by several hops, and change places inside islands where they
have to.

Words that are used here:

- an *island* is a group of equally many ranks that reach each other without circuits of the
  fabric, and a *place* is the number of a rank in its island;
- the *rail* of a place is its one circuit to another island, to the same place there. The *shift*
  of a rail is how many islands onward it leads. A *phase* is the time in which rails stay the same
  and each block takes one rail at most;
- a *block* is what one rank contributes to a gather, or sends to one other rank in an all-to-all;
- a *row* is one send: from an island and place, to an island and place, and which block. All
  islands do the same as island 0, so only the blocks of island 0 are followed;
- a *move* is a set of rows that are sent in the same phase, either over rails or inside islands.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SAMPLES = 300
"""The number of sets of shifts whose phases are counted; all sets if there are no more."""
SEARCH_STEPS = 150_000
"""Steps of the searches for phases of all sets of shifts that are tried: about 0.1 s. It limits
the sets from 64 islands of eight ranks on."""
COUNTED_RANKS = 1024
"""Between more ranks fewer whole gathers are made, as each lists the sends of an island."""
COUNTED = 6
"""The number of sets with the fewest phases for which whole gathers are made and compared."""

Row = tuple[int, int, int, int, int]
"""One send: source island, source place, destination island, destination place, block. Islands
count from the one that owns the data, which is island 0; all islands do the same."""
Shifts = tuple[int, ...]
"""``shifts[place]``: how many islands onward a rail leads."""


class Move(NamedTuple):
    """Sends of a phase that are done together."""

    rows: list[Row]
    """The sends: source island and place, destination island and place, and block."""
    phase: int
    """The phase, from 0; the number of phases for sends that follow the last one."""
    over: bool
    """Whether they go over rails; if not, they stay inside islands and prepare the phase."""
    spare: bool = False
    """Whether the rails of the phase can do without it, so that it may be a round later."""
    early: bool = False
    """Whether it is inside islands and may come at any time before the rails of its phase, as it
    needs nothing of what comes in phases before."""


class Scheme(NamedTuple):
    """All that happens to the data of one island."""

    shifts: list[Shifts]
    """``shifts[phase][place]``: how many islands onward the rail of a place leads."""
    moves: list[Move]
    """All sends in sets that are made together, each of at least one send."""
    loads: list[NDArray[np.int64]]
    """For each move an array of shape (2 * places,): the blocks that each place sends, then the
    blocks that each place receives."""
    waits: list[bool]
    """For each phase, whether its rails have to wait for moves inside islands before it."""


def list_schemes(operation: str, islands: int, places: int) -> Iterator[Scheme]:
    """List ways to bring the data of one island to all others that are worth a try.

    There are so many `islands` of `places` ranks each. An all-to-all goes over new rails in each
    phase, or by several hops over rails that stay; any other `operation` is made of a gather over
    rails that stay.
    """
    # Rails with the same shift share their load, so numbers of shifts that divide rails evenly
    # into equal shares are enough. Most shifts reach all islands soonest, and come first.
    shift_counts = sorted(
        {places // rails_each for rails_each in range(1, places + 1)}, reverse=True
    )
    if operation != "all-to-all":
        if islands == 1:
            shift_counts = [1]
        for count in shift_counts:
            yield _choose_gather(islands, places, count)
        return

    # Blocks go straight to their islands, with new circuits for each group of shifts ...
    for count in shift_counts:
        groups = [range(first, min(first + count, islands)) for first in range(1, islands, count)]
        yield _exchange_blocks(islands, places, [_share_rails(group, places) for group in groups])
    # ... or by several hops over circuits that stay.
    if places < islands - 1:
        shifts = _choose_gather(islands, places, places).shifts
        yield _exchange_blocks(islands, places, shifts)


def _share_rails(shifts: range | tuple[int, ...], places: int) -> Shifts:
    """Give the rails of an island the shifts in turn: 5 places get the shifts 1, 2, 1, 2, 1."""
    return tuple(shifts[place % len(shifts)] for place in range(places))


def _choose_gather(islands: int, places: int, count: int) -> Scheme:
    """Choose circuits between islands over which the data of each reach all others soonest.

    Example: 5 islands and two different shifts. With the shifts 1 and 4, which lead to both
    neighbours on a ring, all islands are reached in 2 phases.

    `count` is how many different shifts the rails of an island have, one rail for each of its
    `places`. Many sets of shifts are tried: all, or `SAMPLES` of them if there are more. The set
    with the fewest phases is best. Among equals it is the one whose busiest ranks send and receive
    the fewest blocks, added up over all sets of sends that are made together.
    """
    # All islands are reached at once if there are enough shifts; with one, islands form a ring.
    other_islands = range(1, islands)
    if count >= islands - 1:
        return _gather(islands, _share_rails(other_islands or (0,), places))
    if count == 1:
        return _gather(islands, _share_rails((1,), places))

    # The near islands on both sides, 1, -1, 2, -2, ..., are always among the samples.
    shift_sets: Iterator[Shifts] = combinations(other_islands, count)
    n_samples = min(SAMPLES, max(1, SEARCH_STEPS // (islands * count)))
    if comb(islands - 1, count) > n_samples:
        rng = np.random.default_rng(0)
        nearest = tuple(k // 2 * (-1) ** k % islands for k in range(2, count + 2))
        samples = (
            tuple(rng.choice(other_islands, count, replace=False).tolist())
            for _ in range(n_samples)
        )
        shift_sets = iter([nearest, *samples])

    # Whole gathers take longer to make than phases to count, so only the `COUNTED` sets with the
    # fewest phases are made. `_share_rails` gives the shifts of a set to the rails in turn.
    by_phases = sorted(shift_sets, key=lambda shifts: len(_list_phases(islands, shifts)))
    n_counted = min(COUNTED, max(1, COUNTED * COUNTED_RANKS // (islands * places)))
    gathers = [
        _gather(islands, _share_rails(shifts, places)) for shifts in islice(by_phases, n_counted)
    ]
    return min(
        gathers,
        key=lambda scheme: (len(scheme.shifts), sum(load.max() for load in scheme.loads)),
    )


def _list_phases(islands: int, shifts: Shifts) -> list[list[int]]:
    """List the islands at distance 1, 2, ... from island 0, by breadth-first search.

    Example: 5 islands and the shifts (1, 4): ``[[1, 4], [2, 3]]``. If some island is not reached,
    the result is a list that is longer than any other, so that such shifts are not chosen.
    """
    phases = [[0]]
    seen = {0}
    while len(seen) < islands:
        neighbours = {(island + shift) % islands for island in phases[-1] for shift in shifts}
        reached = neighbours - seen
        if not reached:
            return [[0]] * (2 * islands)
        phases.append(sorted(reached))
        seen |= reached
    return phases[1:]


def _make_scheme(shifts: list[Shifts], moves: list[Move], waits: list[bool]) -> Scheme:
    """Make a scheme of the moves that are not empty, and count their loads.

    ``shifts[phase][place]`` tells how many islands onward the rail (circuit) of a rank leads, and
    ``waits[phase]`` whether the rails of a phase need copies inside islands before them.
    """
    used = [move for move in moves if move.rows]
    ends_of_move = [np.array(move.rows)[:, [1, 3]].T for move in used]  # sender, receiver
    places = 1 + max(ends.max() for ends in ends_of_move)
    loads = [
        np.concatenate([np.bincount(end, minlength=places) for end in ends])
        for ends in ends_of_move
    ]
    return Scheme(shifts, used, loads, waits)


def _gather(islands: int, shifts: Shifts) -> Scheme:
    """Let the blocks of island 0 reach all other islands, by breadth-first search in phases.

    In one phase each block takes one rail at most, the one with the least load of those that can
    bring it.

    Example: 3 islands of 2 places with shifts (1, 2). Both islands are one rail away, hence there
    is one phase, and both blocks have to reach both islands. The rail of place 0 leads to island
    1, so place 0 first gets the block of place 1, and then sends both over its rail; place 1 does
    the same towards island 2. At the end each island copies what came to its other place.
    """
    # By island and block: the phase from which on it is there, and the place to which it came.
    places = len(shifts)
    islands_of_phase = _list_phases(islands, shifts)
    phase_of = {(0, block): 0 for block in range(places)}
    place_of = {(0, block): block for block in range(places)}
    new_blocks = list(place_of)  # what came in the last phase, and is not yet copied in the island
    moves: list[Move] = []
    waits: list[bool] = []
    while new_blocks:
        # What has to come in this phase, and the rails from islands that have it; nothing once all
        # islands have been reached.
        phase = len(waits)
        reached: list[int] = []
        if phase < len(islands_of_phase):
            reached = islands_of_phase[phase]
        lacking = [(island, (island + k) % places) for island in reached for k in range(places)]
        rails_of = {
            (island, block): [
                place
                for place, shift in enumerate(shifts)
                if phase_of.get(((island - shift) % islands, block), phase + 1) <= phase
            ]
            for island, block in lacking
        }

        # Blocks with the fewest rails to choose from choose first. At equal loads the rail of the
        # place that holds the block is best: it needs no copy. Blocks of earlier phases have been
        # copied to all places already.
        loads = [0] * places  # the blocks on the rail of each place
        rail_rows: list[Row] = []
        awaited: set[tuple[int, int, int]] = set()  # copies (island, place, block) before rails
        for island, block in sorted(rails_of, key=lambda wanted: len(rails_of[wanted])):
            choices: list[tuple[int, bool, int]] = []
            for place in rails_of[island, block]:
                holder = place_of[(island - shifts[place]) % islands, block]
                choices.append((loads[place], holder != place, place))
            _, has_to_move, place = min(choices)
            origin = (island - shifts[place]) % islands
            if has_to_move and phase_of[origin, block] == phase:
                awaited.add((origin, place, block))
            loads[place] += 1
            rail_rows.append((origin, place, island, place, block))

        # Blocks that have just come to an island are copied to all its other ranks. Those copies
        # are urgent that bring a block to the rank whose rail sends it in this phase.
        copies = [
            (island, place_of[island, block], island, place, block)
            for island, block in new_blocks
            for place in range(places)
            if place != place_of[island, block]
        ]
        urgent = [row for row in copies if (row[0], row[3], row[4]) in awaited]
        other = [row for row in copies if (row[0], row[3], row[4]) not in awaited]
        waits.append(bool(urgent))
        moves.append(Move(urgent, phase, over=False))
        moves.append(Move(other, phase, over=False, spare=bool(urgent)))
        moves.append(Move(rail_rows, phase, over=True))

        # Blocks that were sent are there from the next phase on.
        new_blocks = [(island, block) for _, _, island, _, block in rail_rows]
        place_of |= {(island, block): place for _, _, island, place, block in rail_rows}
        phase_of |= dict.fromkeys(new_blocks, phase + 1)
    waits.pop()  # the last phase only copies, over no rails
    return _make_scheme([shifts] * len(waits), moves, waits)


class _Hop(NamedTuple):
    """A block's way over one rail."""

    phase: int
    """The phase in which it takes the rail, from 0."""
    place: int
    """The place (number of a rank in its island) whose rail it takes, a circuit to another
    island."""


def _exchange_blocks(islands: int, places: int, shifts: list[Shifts]) -> Scheme:
    """Bring the blocks of an island to their places in all islands (all-to-all).

    ``shifts[phase][place]`` tells how many islands onward the rail of a place leads in a phase.
    Where a block is not at the place of its next rail, or in the end not at its receiver, a copy
    inside the island brings it there. The block from place p of island 0 to place r of island d
    has the number ``(p * islands + d) * places + r``.

    Example: 2 islands of 2 places, one phase with the shifts (1, 1). The block from place 0 to
    place 1 of the other island goes over the rail of place 0 and is then copied to place 1, or is
    copied first and takes the rail of place 1; the rail with the lesser load is chosen.
    """
    # The phase in which blocks arrive at each island; they hop from phase to phase where all
    # phases have the same circuits.
    takes_several_hops = len(shifts) > 1 and len(set(shifts)) == 1
    reached_in_phase: list[list[int]] = [list(shifts_of_phase) for shifts_of_phase in shifts]
    if takes_several_hops:
        reached_in_phase = _list_phases(islands, shifts[0])
    phase_of_island = {
        island: phase for phase, reached in enumerate(reached_in_phase) for island in reached
    }

    # Sends by the phase to which they belong, or which they prepare.
    over_rails: list[list[Row]] = [[] for _ in shifts]
    before_first_hop: list[list[Row]] = [[] for _ in shifts]  # in the island of the sender
    between_hops: list[list[Row]] = [[] for _ in shifts]  # in an island that a block passes
    after_last_hop: list[list[Row]] = [[] for _ in range(len(shifts) + 1)]  # at the receiver
    inside_own_island: list[Row] = []
    loads = [[0] * places for _ in shifts]  # loads[phase][place]: the blocks on each rail
    for owner, destination, receiver in np.ndindex(places, islands, places):
        block = (owner * islands + destination) * places + receiver
        hops = _choose_hops(
            owner,
            (destination, receiver),
            islands,
            shifts,
            phase_of_island,
            loads,
            several=takes_several_hops,
        )

        # Follow the block: `island` and `place` are where it is.
        island = 0
        place = owner
        for hop in hops:
            if place != hop.place:
                row = (island, place, island, hop.place, block)
                if island == 0:
                    before_first_hop[hop.phase].append(row)
                else:
                    between_hops[hop.phase].append(row)

            # The rail leads to the same place of an island some shift onward.
            next_island = (island + shifts[hop.phase][hop.place]) % islands
            over_rails[hop.phase].append((island, hop.place, next_island, hop.place, block))
            island = next_island
            place = hop.place

        # The last rail may end at another place of the island than the receiver's.
        if place != receiver:
            row = (island, place, island, receiver, block)
            if hops:
                after_last_hop[hops[-1].phase + 1].append(row)
            else:
                inside_own_island.append(row)

    # Blocks that stay in their island may move at any time, and first hops of later phases are
    # prepared while rails carry earlier phases.
    moves = [Move(inside_own_island, 0, over=False, spare=True)]
    moves += [Move(rows, phase, over=True) for phase, rows in enumerate(over_rails)]
    moves += [Move(rows, phase, over=False) for phase, rows in enumerate(between_hops)]
    moves += [Move(rows, phase, over=False) for phase, rows in enumerate(after_last_hop)]
    moves += [
        Move(rows, phase, over=False, early=True) for phase, rows in enumerate(before_first_hop)
    ]

    # Rails wait for copies between two hops; nothing hides the preparation of the first phase.
    waits = [bool(rows) for rows in between_hops]
    if shifts and before_first_hop[0]:
        waits[0] = True
    return _make_scheme(shifts, moves, waits)


def _choose_hops(
    owner: int,
    destination: tuple[int, int],
    islands: int,
    shifts: list[Shifts],
    phase_of_island: dict[int, int],
    loads: list[list[int]],
    *,
    several: bool,
) -> list[_Hop]:
    """Choose the circuits between groups of ranks over which one block of an all-to-all goes.

    The block begins at the place `owner` of island 0. Adds its hops to ``loads[phase][place]``,
    the blocks on each rail so far. Returns the phase and the place of each rail that it takes,
    from the first to the last; empty if the block stays in island 0. The way is chosen backwards
    from the destination, (island, place), by the least loaded rails. ``shifts[phase][place]``
    tells how many islands onward the rail of a place leads, and ``phase_of_island[island]`` in
    which phase blocks arrive there; with `several` they hop from phase to phase.

    Example with several hops: 4 islands of one rank, and rails that lead one island onward in all
    of three phases. Blocks arrive at islands 1, 2 and 3 in the phases 0, 1 and 2. A block for
    island 2 takes the rail from island 1 in phase 1, and before it that from island 0 in phase 0:
    ``[_Hop(0, 0), _Hop(1, 0)]``.
    """
    hops: list[_Hop] = []

    # `island` is where the block is after the hop that is chosen next, and `next_place` the place
    # at which it is wanted there: its receiver, or the rail that it takes afterwards.
    island, next_place = destination
    while island:
        # Candidates are the rails that lead here from island 0, or from an island where blocks
        # arrive one phase before. The least loaded one is taken; of equals the one that needs the
        # fewest copies between ranks of the same island (before the rail, if the sender has
        # another place, and after it); then one that needs no copy after it.
        phase = phase_of_island[island]
        choices: list[tuple[int, int, bool, int]] = []
        for place, shift in enumerate(shifts[phase]):
            previous_phase = phase_of_island.get((island - shift) % islands)
            if shift == island or (several and previous_phase == phase - 1):
                copy_after = place != next_place
                copies = copy_after + (place != owner)
                choices.append((loads[phase][place], copies, copy_after, place))
        next_place = min(choices)[-1]
        loads[phase][next_place] += 1
        hops.append(_Hop(phase, next_place))
        island = (island - shifts[phase][next_place]) % islands
    return hops[::-1]

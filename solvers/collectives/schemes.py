"""Schemes: what happens to the data of one island, whose places stand for those of all islands.

The rail of place p leads from an island to the one ``shifts[p]`` islands onward. A gather reaches
islands in *phases*: each block comes from an island that had it before, over the rail with the
least load, and is then copied to the other places of the island. Blocks of an all-to-all go over
rails straight to their island, or by several hops, and change places inside islands where they
have to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import combinations, islice
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SAMPLES = 300
"""The number of sets of shifts whose phases are counted; all sets if there are no more."""
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
    """The sends."""
    phase: int
    """The phase, from 0; the number of phases for sends that follow the last one."""
    over: bool
    """Whether they go over rails; if not, they stay inside islands and prepare the phase."""
    spare: bool = False
    """Whether the next phase can do without it, so that it may be a round later."""
    early: bool = False
    """Whether inside islands and before rails of this phase, whatever comes in phases before."""


class Scheme(NamedTuple):
    """What happens to the data of one island."""

    shifts: list[Shifts]
    """The circuits of each phase."""
    moves: list[Move]
    """All sends; no move is empty."""
    loads: list[NDArray[np.int64]]
    """For each move an array of shape (2 * places,): the blocks that each place sends, then the
    blocks that each place receives."""
    waits: list[bool]
    """For each phase, whether its rails have to wait for moves inside islands before it."""


def list_schemes(operation: str, islands: int, places: int) -> Iterator[Scheme]:
    """List schemes that are worth a try for a collective.

    Parameters
    ----------
    operation
        The name of the collective. Schemes of sums are those of gathers, which run backwards.
    islands
        The number of islands.
    places
        The number of ranks of an island, each of which has one rail.

    Yields
    ------
    Scheme
    """
    # Rails with the same shift share their load, so numbers of shifts that divide rails evenly
    # into equal shares are enough.
    shift_counts = sorted({places // rails_each for rails_each in range(1, places + 1)})
    if operation != "all-to-all":
        if islands == 1:
            shift_counts = [1]
        for count in shift_counts:
            yield _choose_gather(islands, places, count)

        # If rails cannot be shared out evenly, some lead where others do; a limit of their load
        # leaves the rest of the blocks to a second phase.
        if places > islands > 2 and places % (islands - 1):
            yield _gather(islands, _share_rails(range(1, islands), places), islands - 1)
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
    """Give the rails of `places` places the shifts in turn."""
    return tuple(shifts[place % len(shifts)] for place in range(places))


def _choose_gather(islands: int, places: int, count: int) -> Scheme:
    """Return the gather with the fewest phases, then the least loads, over `count` shifts.

    The sets of shifts are enumerated, or sampled if there are more than `SAMPLES`.
    """
    # All islands are reached at once if there are enough shifts; with one, islands form a ring.
    other_islands = range(1, islands)
    if count >= islands - 1:
        return _gather(islands, _share_rails(other_islands or (0,), places))
    if count == 1:
        return _gather(islands, _share_rails((1,), places))

    # The near islands on both sides, 1, -1, 2, -2, ..., are always among the samples.
    shift_sets: Iterator[Shifts] = combinations(other_islands, count)
    if comb(islands - 1, count) > SAMPLES:
        rng = np.random.default_rng(0)
        nearest = tuple(k // 2 * (-1) ** k % islands for k in range(2, count + 2))
        samples = (
            tuple(rng.choice(other_islands, count, replace=False).tolist()) for _ in range(SAMPLES)
        )
        shift_sets = iter([nearest, *samples])

    # Whole gathers take longer to make than phases to count.
    by_phases = sorted(shift_sets, key=lambda shifts: len(_list_phases(islands, shifts)))
    gathers = [
        _gather(islands, _share_rails(shifts, places)) for shifts in islice(by_phases, COUNTED)
    ]
    return min(
        gathers,
        key=lambda scheme: (len(scheme.shifts), sum(load.max() for load in scheme.loads)),
    )


def _list_phases(islands: int, shifts: Shifts) -> list[list[int]]:
    """List the islands at distance 1, 2, ... from island 0, by breadth-first search.

    Returns
    -------
    list of lists
        The islands that each phase reaches. If some islands are never reached, a list that is
        longer than any real one, so that such shifts come last in a comparison.
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
    """Make a scheme of the moves that are not empty, and count their loads."""
    used = [move for move in moves if move.rows]
    ends_of_move = [np.array(move.rows)[:, [1, 3]].T for move in used]  # sender, receiver
    places = 1 + max(ends.max() for ends in ends_of_move)
    loads = [
        np.concatenate([np.bincount(end, minlength=places) for end in ends])
        for ends in ends_of_move
    ]
    return Scheme(shifts, used, loads, waits)


def _gather(islands: int, shifts: Shifts, most: int = sys.maxsize) -> Scheme:
    """Let the blocks of an island reach all others, each over the rail with the least load.

    Parameters
    ----------
    islands
        The number of islands.
    shifts
        The circuits, the same in all phases.
    most
        The most blocks that a rail takes before the last phases; other blocks go on from other
        islands in the next phase.
    """
    places = len(shifts)
    # By island and block: the phase after which it is there, and the place over which it came.
    phase_of = {(0, block): 0 for block in range(places)}
    place_of = {(0, block): block for block in range(places)}
    moves: list[Move] = []
    waits: list[bool] = []
    arrived = list(place_of)
    postponed = list[tuple[int, int]]()
    planned = _list_phases(islands, shifts)
    loads = [0] * places
    phase = 0
    while True:
        # The blocks that islands lack, each with the rails that lead from an island that has it.
        reached = []
        if phase < len(planned):
            reached = planned[phase]
        lacking = postponed + [
            (island, (island + k) % places) for island in reached for k in range(places)
        ]
        rails_of = {
            (island, block): [
                place
                for place in range(places)
                if phase_of.get(((island - shifts[place]) % islands, block), phase + 1) <= phase
            ]
            for island, block in lacking
        }

        # Blocks with the fewest rails choose first. Of equal loads the rail of the place that
        # holds the block is best, because it need not be copied there before.
        rail_rows = list[Row]()
        needed_first = set[tuple[int, int, int]]()  # island, place and block of such copies
        postponed = []
        for island, block in sorted(lacking, key=lambda wanted: len(rails_of[wanted])):
            choices: list[tuple[int, bool, int]] = []
            for place in rails_of[island, block]:
                holder = place_of[(island - shifts[place]) % islands, block]
                choices.append((loads[place], holder != place, place))
            load, has_to_move, place = min(choices)
            if load >= most and phase < len(planned):
                postponed.append((island, block))
                continue
            origin = (island - shifts[place]) % islands
            if has_to_move and phase_of[origin, block] == phase:
                needed_first.add((origin, place, block))
            loads[place] += 1
            rail_rows.append((origin, place, island, place, block))

        # Islands copy what has just come to all other places, first what this phase needs.
        copies = [
            (island, place_of[island, block], island, place, block)
            for island, block in arrived
            for place in range(places)
            if place != place_of[island, block]
        ]
        urgent = [row for row in copies if (row[0], row[3], row[4]) in needed_first]
        other = [row for row in copies if (row[0], row[3], row[4]) not in needed_first]
        waits.append(bool(urgent))
        moves.append(Move(urgent, phase, over=False))
        moves.append(Move(other, phase, over=False, spare=bool(urgent)))
        moves.append(Move(rail_rows, phase, over=True))

        # Loads add up over phases only where there is a limit for all of them together.
        arrived = []
        phase += 1
        for _, _, island, place, block in rail_rows:
            arrived.append((island, block))
            place_of[island, block] = place
            phase_of[island, block] = phase
        if most == sys.maxsize:
            loads = [0] * places
        if not rail_rows:
            return _make_scheme([shifts] * (len(waits) - 1), moves, waits[:-1])


class _Hop(NamedTuple):
    """A block's way over one rail."""

    phase: int
    place: int
    """The place whose rail it takes."""


def _exchange_blocks(islands: int, places: int, shifts: list[Shifts]) -> Scheme:
    """Bring the blocks of an island to their places in all islands (all-to-all).

    Only the blocks that island 0 owns are followed; those of other islands do the same from where
    they start. A block has the number ``(owner * islands + destination) * places + receiver``: the
    place in island 0 that sends it, then the island, counted from island 0, and the place that
    receive it. The number of a block that stays in its island has destination 0.

    A rail of a place joins only ranks of this place. Therefore a block is copied inside an island
    where it is at another place than its next rail, or than its receiver in the end.

    Parameters
    ----------
    islands
        The number of islands.
    places
        The number of ranks of an island.
    shifts
        ``shifts[phase][place]``: how many islands onward the rail of a place leads in a phase. If
        several phases all have the same circuits, blocks take several hops; else each block takes
        one, in the phase whose circuits lead to its island.

    Returns
    -------
    Scheme
        Its moves are the sends over rails of each phase, and four kinds of copies inside islands:
        of blocks that stay, before the first hop, between two hops, and after the last hop.
    """
    phases = len(shifts)

    # Sends by the phase that they belong to, or that they prepare.
    rail_rows: list[list[Row]] = [[] for _ in shifts]
    before_first_hop: list[list[Row]] = [[] for _ in shifts]
    between_hops: list[list[Row]] = [[] for _ in shifts]
    after_last_hop: list[list[Row]] = [[] for _ in range(phases + 1)]
    inside_own_island: list[Row] = []

    loads = [[0] * places for _ in shifts]  # loads[phase][place]: the blocks on each rail
    phase_of_island = _list_arrival_phases(islands, shifts)
    for owner, destination, receiver in np.ndindex(places, islands, places):
        block = (owner * islands + destination) * places + receiver
        hops = _choose_hops(
            owner, (destination, receiver), islands, shifts, phase_of_island, loads
        )

        # Follow the block over its rails; it has to be at the place of a rail to take it. A copy
        # in its own island can be made as soon as the collective begins, others only when it came.
        island = 0
        place = owner
        for hop in hops:
            if place != hop.place:
                row = (island, place, island, hop.place, block)
                if island == 0:
                    before_first_hop[hop.phase].append(row)
                else:
                    between_hops[hop.phase].append(row)
            next_island = (island + shifts[hop.phase][hop.place]) % islands
            rail_rows[hop.phase].append((island, hop.place, next_island, hop.place, block))
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
    moves += [Move(rows, phase, over=True) for phase, rows in enumerate(rail_rows)]
    moves += [Move(rows, phase, over=False) for phase, rows in enumerate(between_hops)]
    moves += [Move(rows, phase, over=False) for phase, rows in enumerate(after_last_hop)]
    moves += [
        Move(rows, phase, over=False, early=True) for phase, rows in enumerate(before_first_hop)
    ]

    # Rails wait for copies between two hops; nothing hides the preparation of the first phase.
    waits = [bool(rows) for rows in between_hops]
    if phases and before_first_hop[0]:
        waits[0] = True
    return _make_scheme(shifts, moves, waits)


def _takes_several_hops(shifts: list[Shifts]) -> bool:
    """Tell whether all phases have the same circuits, so that blocks hop from phase to phase."""
    return len(shifts) > 1 and len(set(shifts)) == 1


def _list_arrival_phases(islands: int, shifts: list[Shifts]) -> dict[int, int]:
    """Return for each island other than the sender's the phase in which its blocks arrive.

    Islands count from the sender's. With one hop it is the last phase with a circuit to the
    island, with several hops the least number of hops, less one.
    """
    reached_in_phase: list[list[int]] = [list(shifts_of_phase) for shifts_of_phase in shifts]
    if _takes_several_hops(shifts):
        reached_in_phase = _list_phases(islands, shifts[0])
    return {island: phase for phase, reached in enumerate(reached_in_phase) for island in reached}


def _choose_hops(
    owner: int,
    destination: tuple[int, int],
    islands: int,
    shifts: list[Shifts],
    phase_of_island: dict[int, int],
    loads: list[list[int]],
) -> list[_Hop]:
    """Choose the rails of one block, backwards from its destination: the least loaded ones.

    Parameters
    ----------
    owner
        The place that sends the block.
    destination
        The island, from the sender's own, and the place that receive it.
    islands
        The number of islands.
    shifts
        The circuits of each phase.
    phase_of_island
        The phase in which blocks arrive at each island, as `_list_arrival_phases` returns it.
    loads
        ``loads[phase][place]``: the blocks on each rail until now; the block's rails are added.

    Returns
    -------
    list of _Hop
        From the first to the last; empty if the block stays in its island.
    """
    several = _takes_several_hops(shifts)
    hops: list[_Hop] = []
    island, next_place = destination
    while island:
        # Of equal loads the rail is best that needs the fewest copies inside islands, then one
        # that needs none after it.
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

"""Uneven all-to-alls of many ranks: direct sends for large blocks, circulants for the rest.

Direct rounds are those of a schedule of an optical switch: a sequence of matchings, each held for
some time after a delay, that together carry a demand. The rules for such schedules are those of
`solvers.demands`. After any number of direct rounds the rest of all blocks may go by the routes of
an even all-to-all (Bruck's, or circulants with fewer configurations), whatever is left of them.

Words that are used here:

- a *block* is what one rank sends to one other; the block from rank s to rank t is chunk
  ``s * n + t`` of the plan, and its *offset* is t - s modulo n;
- a *part* of a block is a range of its bytes that goes in one send: its first byte, and how many;
- a *lane* is a port of every rank;
- the *rest* is what direct rounds leave of all blocks. It goes over a *circulant*, a sequence of
  configurations in each of which every rank sends to the rank some places (a *shift*) onward. A
  *move* of the rest is one hop of the blocks of some offsets, the same for all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Clock, uncounted
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY
from optmatch.solvers.collectives.circulant import (
    Circulant,
    list_moves,
    list_shifts,
    route,
    route_digits,
    split_rounds,
)
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import FloatArray, IntArray, Rounds, ready_s, seconds_of

TICKS_OF_BUSIEST = 1 << 40
"""The ticks that the busiest rank sends or receives. Amounts of bytes are rounded up to ticks, so
that with thousands of rounds a plan is longer by less than a part in 10^8."""
LONGEST_RULE_S = 1.0
"""Rules for direct rounds that are estimated to take longer are left out, however much time there
is. Between 256 ranks, with delays that matter little, the best rule is a decomposition that takes
0.02 s; all rules of at most 1 s take 2 s together, and those of at most 10 s take 16 s."""
RESTS_TIMED = 24
"""The different numbers of direct rounds after which the rest is timed, and then near the best of
them. Timing all rests once takes about a tenth of what a rule for direct rounds takes."""
MOST_CLIMBED = 160
"""Up to this number of ranks shifts of the rest are searched for; Bruck's serve more ranks."""


class DirectRound(NamedTuple):
    """A round of direct sends; arrays have shape (lanes, ranks)."""

    peer: IntArray
    """``peer[lane, rank]``: to whom a rank sends; -1 for nobody."""
    sent_bytes: FloatArray
    """``sent_bytes[lane, rank]``: how many bytes go from a rank to its peer, all of one block. If
    several lanes lead to the peer, the first of them names the bytes that they share."""
    busiest_s: float
    """How long its busiest circuit sends, in seconds."""


class TwoStages(NamedTuple):
    """A plan of direct rounds and a rest, whose time is known before its sends are listed."""

    seconds: float
    """The time of both stages, if no rank is late."""
    direct: list[DirectRound]
    """The direct rounds, in order; perhaps none."""
    circulant: Circulant | None
    """The circuits over which the rest goes; None if nothing is left."""


def find_skewed_plan(problem: Collective, clock: Clock) -> Laid:
    """Find a fast plan of an uneven all-to-all: first direct sends, then a rest over other ranks.

    Direct rounds come from several rules for schedules of an optical switch, each of which serves
    all blocks. Of each schedule the first rounds are kept, as many as make the sum of both stages
    least.
    """
    # The first plan to compare with: no direct rounds, and all goes over the best circulant.
    circulants = list(_list_circulants(problem, clock))
    best = min(
        (
            TwoStages(_time_rest(problem, circulant, problem.demand), [], circulant)
            for circulant in circulants
        ),
        key=lambda plan: plan.seconds,
    )
    for direct in _list_direct_schedules(problem, clock):
        best = _choose_stages(problem, direct, circulants, best)
        if clock.exceeded(0) is not None:
            break
    return _lay_skewed(problem, _put_late_ranks_last(problem, best.direct), best.circulant)


def _list_direct_schedules(problem: Collective, clock: Clock) -> Iterator[list[DirectRound]]:
    """Yield schedules of direct rounds that carry all blocks, by rules for optical switches.

    A rule makes a schedule of *slots* for a switch with one port for each rank: a slot is a
    matching that is held for some time, and costs a delay. Slots become rounds later
    (`_share_rounds`), so that the delay of a slot is not known yet: rules count with the whole
    wait of a round. With shorter and longer ones beside, by the factor of the lanes, plans of 32
    to 96 ranks are no faster.

    Rules that are expected to take longer than the time of `clock` allows are left out.
    """
    with uncounted():
        from optmatch.solvers.demands.portfolio import list_rules
        from optmatch.solvers.demands.tasks import CoverTask, Size

    # Rules count in whole ticks, in which one lane sends `tick_bytes`: demand_ticks[source,
    # destination]. Blocks are rounded up, and one tick more covers the rounding of sums. The wait
    # of a round is its start-up, and a change of circuits.
    demand = problem.demand
    busiest_bytes = max(float(demand.sum(axis=1).max()), float(demand.sum(axis=0).max()))
    tick_bytes = busiest_bytes / TICKS_OF_BUSIEST
    demand_ticks = np.ceil(demand / tick_bytes).astype(np.int64) + (demand > 0)
    wait_s = problem.round_s + problem.delay_s
    wait_ticks = wait_s * problem.rate_bytes_per_s / tick_bytes

    # Delays longer than all blocks of the busiest rank decide nothing, and are cut to that. A rule
    # comes with the seconds that it is estimated to take, and gives schedules of matchings and
    # ticks; the shortest one is kept.
    task = CoverTask.of(demand_ticks, min(round(wait_ticks), TICKS_OF_BUSIEST))
    for estimate_s, rule in list_rules(Size.of(task)):
        if estimate_s > min(LONGEST_RULE_S, clock.remaining_s / 2):
            continue
        plans = rule.build(task)
        schedule = min(plans, key=lambda plan: plan.cost(task.delay), default=None)
        if schedule is not None:
            slot_bytes = schedule.ticks.astype(np.float64) * tick_bytes
            yield _make_direct_rounds(problem, schedule.matchings, slot_bytes)


def _make_direct_rounds(
    problem: Collective, matchings: NDArray[np.int32], slot_bytes: FloatArray
) -> list[DirectRound]:
    """Make direct rounds of the slots of a schedule, and say what they carry of which block.

    A round has several slots, each with one lane or more to itself (`_share_rounds`); slots with
    the most bytes come first where ranks have several lanes. Slots may hold circuits longer than
    their blocks need: each carries what is left of its block, and a round that would carry nothing
    is left out. Example: a block of 5 bytes, slots of 3 and 4 bytes with its circuit: it is sent
    as 3 and 2.

    ``matchings[slot, rank]`` tells to whom a rank sends, -1 for nobody, and ``slot_bytes[slot]``
    how much it can send in the slot, over all lanes of the slot together.
    """
    if problem.lanes > 1:
        order = np.argsort(-slot_bytes, kind="stable")
        matchings = matchings[order]
        slot_bytes = slot_bytes[order]
    unsent_bytes = problem.demand.copy()  # [source, target]: bytes that no slot has carried yet
    rounds: list[DirectRound] = []
    slot = 0
    for lanes_of_slots in _share_rounds(problem, slot_bytes):
        peer = np.full((problem.lanes, problem.n_ranks), IDLE, dtype=np.int64)
        sent_bytes = np.zeros((problem.lanes, problem.n_ranks))
        busiest_s = 0.0

        # Slot by slot, each on the next lanes of the round.
        lane = 0
        for n_lanes in lanes_of_slots:
            # The circuits of a slot carry what is left of their blocks, if it is not too much.
            source = np.flatnonzero(matchings[slot] != IDLE)
            target = matchings[slot, source]
            amount = np.minimum(unsent_bytes[source, target], slot_bytes[slot])
            unsent_bytes[source, target] -= amount
            has_bytes = amount > 0
            peer[lane : lane + n_lanes, source[has_bytes]] = target[has_bytes]
            sent_bytes[lane, source] = amount

            # Lanes with the same circuits share their bytes.
            most_bytes = float(amount.max(initial=0.0)) / n_lanes
            busiest_s = max(busiest_s, most_bytes / problem.rate_bytes_per_s)
            lane += n_lanes
            slot += 1
        if busiest_s > 0:
            rounds.append(DirectRound(peer, sent_bytes, busiest_s))
    return rounds


def _share_rounds(problem: Collective, slot_bytes: FloatArray) -> list[list[int]]:
    """Choose which slots of a schedule share a round, and how many ports each of them has.

    A round has the circuits of one slot or of several, as many as ranks have ports (*lanes*) at
    most. It lasts for a wait, and until the slot with the most bytes for each of its lanes is
    done. The least sum over all rounds is found by dynamic programming, O(slots lanes^2).

    Example: 3 lanes, slots of 30, 4, 4 and 4 bytes, and a wait worth 5 bytes. The first slot gets
    a round of its own over all lanes, 10 + 5; the others share one, 4 + 5. With one round for the
    first three slots and another one for the last it would be 30 + 5 + 4 / 3 + 5.

    ``slot_bytes[slot]`` tells how much a rank sends in a slot, over all lanes of the slot; slots
    keep their order. The result has the lanes of the slots of each round, here ``[[3], [1, 1,
    1]]``.
    """
    n_slots = len(slot_bytes)
    n_lanes = problem.lanes
    if n_lanes == 1:
        return [[1]] * n_slots
    wait_s = problem.round_s + problem.delay_s
    wait_bytes = wait_s * problem.rate_bytes_per_s

    # n_lanes_of[count][first, k]: how many lanes slot first + k has, if `count` slots from `first`
    # on share a round. Each has one; the others go one by one to the slot that would end last.
    n_lanes_of: dict[int, IntArray] = {}
    most_bytes: dict[int, FloatArray] = {}  # [count][first]: what the busiest lane then sends
    for count in range(1, min(n_lanes, n_slots) + 1):
        together = np.lib.stride_tricks.sliding_window_view(slot_bytes, count)
        firsts = np.arange(len(together))
        n_lanes_of[count] = np.ones(together.shape, dtype=np.int64)
        for _ in range(n_lanes - count):
            longest = (together / n_lanes_of[count]).argmax(axis=1)
            n_lanes_of[count][firsts, longest] += 1
        most_bytes[count] = (together / n_lanes_of[count]).max(axis=1)

    # total_bytes[first]: the least that all rounds from this slot on take, in bytes of a lane; it
    # is found for the last slots first. best_count[first]: how many slots share the round then.
    total_bytes = np.zeros(n_slots + 1)
    best_count = np.zeros(n_slots, dtype=np.int64)
    for first in range(n_slots - 1, -1, -1):
        totals = {
            count: wait_bytes + most_bytes[count][first] + total_bytes[first + count]
            for count in n_lanes_of
            if first + count <= n_slots
        }
        best_count[first] = min(totals, key=lambda count: totals[count])
        total_bytes[first] = totals[int(best_count[first])]

    # The best rounds, from the first slot on.
    rounds: list[list[int]] = []
    first = 0
    while first < n_slots:
        count = int(best_count[first])
        rounds.append(n_lanes_of[count][first].tolist())
        first += count
    return rounds


def _choose_stages(
    problem: Collective, direct: list[DirectRound], circulants: list[Circulant], best: TwoStages
) -> TwoStages:
    """Choose after how many direct rounds the rest goes over other ranks, and over which circuits.

    `direct` are the rounds of direct sends, `best` the fastest stages so far. `circulants` are the
    candidates for the circuits of the rest. The rest is timed after some numbers of rounds that
    are spread evenly, and then after more of them near the best one: of 240 direct rounds after
    10, 20, ..., 230, and if 50 is the best of these, after 41 to 59. Returns the fastest stages,
    which are `best` if none of these are faster.
    """
    # end_s[count]: the end of the first `count` direct rounds, with the change of circuits before
    # the rest. After all of them nothing is left, so that this change is not needed.
    round_s = problem.round_s + problem.delay_s
    end_s = np.append(
        0.0, np.cumsum([round_s + direct_round.busiest_s for direct_round in direct])
    )
    all_direct_s = float(end_s[-1]) - problem.delay_s
    if all_direct_s < best.seconds:
        best = TwoStages(all_direct_s, direct, circulant=None)

    # Time the rests after about `RESTS_TIMED` numbers of direct rounds, `step` apart. `best_count`
    # is the number after which the fastest of them begins; -1 if none is faster than `best`.
    step = max(1, len(direct) // RESTS_TIMED)
    counts = range(step, len(direct), step)
    while True:
        best_count = -1
        for count, unsent_bytes in _leave_after(problem, direct, counts):
            # The busiest rank has to send what it has left, at least: a lower bound of all rests.
            busiest_bytes = float(unsent_bytes.sum(axis=1).max())
            busiest_s = busiest_bytes / (problem.lanes * problem.rate_bytes_per_s)
            if end_s[count] + busiest_s >= best.seconds:
                continue
            for circulant in circulants:
                seconds = float(end_s[count]) + _time_rest(problem, circulant, unsent_bytes)
                if seconds < best.seconds:
                    best = TwoStages(seconds, direct[:count], circulant)
                    best_count = count

        # All numbers of rounds between those next to the best one follow, in smaller steps.
        if best_count < 0 or step == 1:
            return best
        finer_step = max(1, 2 * step // RESTS_TIMED)
        counts = range(max(1, best_count - step + 1), best_count + step, finer_step)
        step = finer_step


def _leave_after(
    problem: Collective, direct: list[DirectRound], counts: range
) -> Iterator[tuple[int, FloatArray]]:
    """Yield what is left of all blocks after some numbers of direct rounds.

    Yields a number of rounds from `counts`, ascending, and ``unsent_bytes[source, destination]``:
    the same array each time, which changes as the iteration goes on.
    """
    unsent_bytes = problem.demand.copy()
    for count, direct_round in enumerate(direct, start=1):
        lane, source = np.nonzero(direct_round.sent_bytes)
        target = direct_round.peer[lane, source]
        np.subtract.at(unsent_bytes, (source, target), direct_round.sent_bytes[lane, source])
        if count in counts:
            yield count, unsent_bytes


def _put_late_ranks_last(problem: Collective, direct: list[DirectRound]) -> list[DirectRound]:
    """Sort direct rounds by when the last of their ranks is ready.

    Rounds may be in any order, as each sends parts of blocks straight to their receivers.
    """
    if not direct or not problem.late.any():
        return direct
    sent_bytes = np.array([direct_round.sent_bytes for direct_round in direct])
    turn, lane, source = np.nonzero(sent_bytes)
    target = np.array([direct_round.peer for direct_round in direct])[turn, lane, source]
    ready = ready_s(problem, np.column_stack([turn, source, target]), len(direct))
    return [direct[turn] for turn in np.argsort(ready, kind="stable").tolist()]


def _list_circulants(problem: Collective, clock: Clock) -> Iterator[Circulant]:
    """Yield sets of circuits over which an all-to-all can go, however much data each block has.

    Bruck's shifts 1, 2, 4, ... come first. For few ranks there follow digits of fewer shifts, each
    taken several times, and shortest routes over shifts that a hill climb has chosen.
    """
    n = problem.n_ranks

    # Bruck's shifts are the powers of two below n. A block takes those that are bits of its
    # offset, the digits of radix two.
    n_bits = (n - 1).bit_length()
    yield route_digits(n, (1,) * n_bits)
    if n <= MOST_CLIMBED:
        for count in range(1, n_bits):
            yield route_digits(n, split_rounds(n, count))
        for count in range(1, n_bits + 3):
            for shifts in list_shifts(n, count, clock)[:1]:
                yield route(n, shifts)


def _time_rest(problem: Collective, circulant: Circulant, unsent_bytes: FloatArray) -> float:
    """Return how many seconds the second stage of an all-to-all takes, after direct sends.

    ``unsent_bytes[source, destination]`` is what direct sends have left of each block. Every block
    with an offset takes the same shifts, one in a round; a round lasts as long as the busiest rank
    sends, and a change of circuits between two configurations costs the delay. Infinite if the
    circulant has no rounds.

    Example with 4 ranks and the shifts 1 and 2. The block from rank 0 to rank 3 has offset 3. It
    goes to rank 1 in the first round, and from there to rank 3 in the second one.
    """
    n = problem.n_ranks
    ranks = np.arange(n)[:, None]
    configs: list[int] = []  # by round
    circuit_bytes = 0.0  # over the busiest circuits of all rounds

    # One turn for each round: `config` is the number of its configuration, `offsets` are those of
    # the blocks that move in it, and `distance` says how many places from its source a block of
    # each of these offsets is before the round.
    for config, offsets, distance in list_moves(circulant):
        # amounts[source, k] is the block of offset offsets[k] from this source, and
        # holder[source, k] the rank that has it before the round. The load of a rank is the sum
        # of the blocks that it has.
        amounts = unsent_bytes[ranks, (ranks + offsets) % n]
        holder = (ranks + distance) % n
        load = np.bincount(holder.reshape(-1), amounts.reshape(-1), n)
        circuit_bytes += float(load.max()) / problem.lanes
        configs.append(config)
    if not configs:
        return math.inf
    n_changes = len(set(configs)) - 1
    return seconds_of(problem, len(configs), circuit_bytes, n_changes=n_changes)


def _lay_skewed(
    problem: Collective, direct: list[DirectRound], circulant: Circulant | None
) -> Laid:
    """Make the plan of an uneven all-to-all of direct sends first, and a rest over other ranks.

    In a direct round some ranks send one part of a block to its receiver. All that is left of a
    block after these rounds is one more part, which takes the shifts of `circulant` that add up to
    its offset.

    Example with 4 ranks. Rank 0 has 10 bytes for rank 3; each other block has 2 bytes. A direct
    round carries the first 7 bytes from rank 0 to rank 3. The rest of this block has 3 bytes, from
    byte 7 on. With the shifts 1 and 2 it goes from rank 0 to rank 1, and from there to rank 3.
    """
    n = problem.n_ranks
    ranks = np.arange(n)

    # All lists are filled round by round. A block is sent from its first byte on, so the bytes
    # that were sent of it say where its next part begins.
    sent_bytes = np.zeros((n, n))  # [source, target]: of each block, from its beginning on
    turns: list[int] = []  # for each send its round
    sends = [np.empty((0, 3), dtype=np.int64)]  # source, target and chunk
    parts = [np.empty((0, 2))]  # for each send the first byte of its block, and the bytes
    circuits: list[IntArray] = []  # for each round peer[lane, rank], -1 of dark ports

    # Direct rounds: on each lane a rank sends a part of the block for its peer. If several lanes
    # lead to the same peer, one send stands for all of them.
    for direct_round in direct:
        for peer, amounts in zip(direct_round.peer, direct_round.sent_bytes, strict=True):
            source = np.flatnonzero(amounts)
            target = peer[source]
            turns += [len(circuits)] * len(source)
            sends.append(np.column_stack([source, target, source * n + target]))
            parts.append(np.column_stack([sent_bytes[source, target], amounts[source]]))
            sent_bytes[source, target] += amounts[source]
        circuits.append(direct_round.peer)

    # The rest of each block goes in one part, from the first byte that was not sent on. Sums of
    # what was sent may differ from the whole in the last bit; such a rest is none.
    unsent_bytes = problem.demand - sent_bytes
    unsent_bytes[unsent_bytes < 1e-12 * problem.demand] = 0.0
    if circulant is not None:
        # A move of the rest is a round: blocks of some offsets go on by the shift of its
        # configuration, the same ones from all ranks. Blocks of which nothing is left are not
        # sent. Arrays by block say where it began (`source`), where it goes (`target`), and which
        # rank has it before the round (`holder`): that `distance` places onward from its source.
        for config, offsets, distance in list_moves(circulant):
            has_bytes = unsent_bytes[ranks[:, None], (ranks[:, None] + offsets) % n] > 0
            source, offset_index = np.nonzero(has_bytes)
            target = (source + offsets[offset_index]) % n
            holder = (source + distance[offset_index]) % n
            if not len(source):  # the round is left out
                continue
            shift = int(circulant.shifts[config])
            turns += [len(circuits)] * len(source)
            sends.append(np.column_stack([holder, (holder + shift) % n, source * n + target]))
            first_byte = sent_bytes[source, target]
            parts.append(np.column_stack([first_byte, unsent_bytes[source, target]]))
            circuits.append(np.tile((ranks + shift) % n, (problem.lanes, 1)))

    rows = np.column_stack([turns, np.concatenate(sends), np.full(len(turns), COPY)])
    return lay(problem, Rounds(rows, n * n, circuits, parts=np.concatenate(parts)))

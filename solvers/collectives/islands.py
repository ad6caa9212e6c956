"""Collectives between islands: all rails together, while islands hand on what has come.

All islands do the same: a *scheme* says what happens to the data of island 0, whose places stand
for those of all islands. The rail of place p leads from an island to the one ``shifts[p]`` islands
onward. A gather reaches islands in *phases*: each block comes from an island that had it before,
over the rail with the least load, and is then copied to the other places of the island. Blocks of
an all-to-all go over rails straight to their island, or by several hops, and change places inside
islands where they have to. Reduce-scatters are all-gathers that run backwards.

The data are cut into *waves* of parts of each block, so that islands can copy one wave while rails
carry the next (pipelining). The scheme and the number of waves are chosen by counting the time of
each choice, the sizes of the waves by a linear programme.

Words that are used here:

- the *place* of a rank is its number in its island, and its *rail* the one circuit of the rank, to
  the same place of another island; its *shift* is how many islands onward it leads. *Links* join
  the ranks inside an island;
- a *block* is what one rank contributes to a gather, or sends to one other rank in an all-to-all;
- a *phase* is the time in which rails stay the same and each block takes one rail at most, and a
  *move* is a set of sends of a phase, all over rails or all inside islands;
- a *row* is a send: of a move (from an island and place, to an island and place, and which block)
  or of a plan (round, ranks, chunk and kind).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, islice, pairwise
from math import comb
from typing import NamedTuple

import numpy as np

from optmatch.model import Clock, Limit, uncounted
from optmatch.problems import Collective
from optmatch.problems.collectives.fields import DataFlow
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import (
    ROUND,
    SENDS_OF_A_SUM,
    SENDS_PER_S,
    FloatArray,
    IntArray,
    Rounds,
    ranks_to_store,
)

WAVE_COUNTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
"""Numbers of waves that are tried."""
WAVE_RATIO = 0.7
"""The ratio of the size of each wave to the one before, tried beside equal sizes. With equal sizes
alone 1 GB between two islands of eight ranks takes 0.2 % longer."""
PLANS_RESIZED = 32
"""The number of fastest plans whose sizes of waves are optimised by a linear programme."""
LEAST_WAVE = 0.05
"""The least size of a wave in that programme, as a part of the mean size."""
MOST_SENDS = 1 << 25
"""Plans of more sends are not laid out: they take more than six gigabytes."""
SIMILAR_SENDS = 1.75
"""A plan of one wave with this multiple of the sends of another one is never left out for it: an
all-to-all over several hops has more sends than one over single hops, but is many times faster."""


LINKS = 0
RAILS = 1
"""What carries data: links inside islands, or rails between them."""


class _WaveOrder(NamedTuple):
    """How the waves of a plan follow each other."""

    together: bool = False
    """Whether all waves travel in one round in all phases but the last one; only there does each
    wave have a round of its own."""
    woven: bool = False
    """Whether a phase of one wave shares rounds with earlier phases of later waves."""
    mirrored: bool = False
    """Whether the waves of an all-reduce are gathered in the order in which their sums are
    ready."""
    eager: bool = False
    """Whether spare copies come as early as they can: fewer rounds inside islands, but longer
    ones."""


class _Plan(NamedTuple):
    """A scheme in waves, with the round of each move."""

    scheme: Scheme
    """What happens to the data of one island: circuits by phase, and moves."""
    waves: FloatArray
    """Sizes of waves, shape (waves,), as parts of 1."""
    passes: list[tuple[int, IntArray]]
    """For each pass over the scheme its kind, COPY or REDUCE, and ``round_of[move, wave]``, the
    round of each move. An all-reduce has two passes, other operations one."""
    loads: FloatArray
    """``loads[medium, round, end, wave]``: blocks, if the wave were all of the data. The medium is
    `LINKS` inside islands, or `RAILS`. An end is a rank of the island as a sender, or, in the
    second half, as a receiver."""
    shifts_of_turn: dict[int, Shifts]
    """The circuits of each round that has sends over rails."""

    @property
    def n_rounds(self) -> int:
        """The number of rounds of all passes together."""
        return int(self.loads.shape[1])


def find_island_plan(problem: Collective, clock: Clock) -> tuple[Laid, Limit | None]:
    """Find a fast plan for ranks in groups, and lay it out for all ranks.

    The search tries all combinations of a *scheme* (which circuits there are, what they carry, and
    what islands copy inside), a number of *waves*, and their order in time, and counts the time
    of each. The fastest ones then get better sizes of waves. Returns the plan, and the limit that
    kept the search from other ones: time, memory, or None.
    """
    # A candidate is its time in seconds, its number and the plan. The number stands second, so
    # that equal times keep their order, and plans are not compared.
    candidates: list[tuple[float, int, _Plan]] = []
    left_out_s: list[float] = []  # the efforts of plans that were left out
    fewest_sends = math.inf
    for plan in _list_plans(problem, clock):
        effort_s = _effort_s(problem, plan)
        has_time = effort_s < clock.remaining_s
        n_sends = _count_sends(problem, plan)
        # Plans of one wave come first. They are timed even if there is no time to lay them out,
        # but for those with many more sends than others.
        is_first_look = len(plan.waves) == 1 and n_sends <= SIMILAR_SENDS * fewest_sends
        if has_time or is_first_look:
            candidates.append((_time_s(problem, plan), len(candidates), plan))
            fewest_sends = min(fewest_sends, n_sends)
        else:
            left_out_s.append(effort_s)
        # The search ends when the time left is just about enough to lay out the best plan.
        best_effort_s = _effort_s(problem, min(candidates)[-1])
        if len(plan.waves) > 1 and best_effort_s > clock.remaining_s:
            left_out_s.append(best_effort_s)
            break

    # Until here waves are equal, or fall. Linear programmes choose better sizes, but take long, so
    # only the fastest candidates get them.
    fastest = [plan for _, _, plan in sorted(candidates)[:PLANS_RESIZED]]
    best = fastest[0]
    for plan in fastest:
        best_effort_s = _effort_s(problem, best)
        if best_effort_s > clock.remaining_s:
            left_out_s.append(best_effort_s)
            break
        if _bound_all_sizes_s(problem, plan) >= _time_s(problem, best):
            continue  # no sizes make it faster than the best one
        resized = _optimise_wave_sizes(problem, plan)
        if _time_s(problem, resized) < _time_s(problem, best):
            best = resized

    # The effort is infinite where memory is short. Where time was short for another plan, a longer
    # search would already find more.
    limit: Limit | None = None
    if any(math.isfinite(effort_s) for effort_s in left_out_s):
        limit = Limit.TIME
    elif left_out_s:
        limit = Limit.MEMORY
    return _lay_on_ranks(problem, best), limit


def _count_sends(problem: Collective, plan: _Plan) -> int:
    """Return the sends of all ranks for which a plan of the data of one island stands."""
    n_rows = sum(len(move.rows) for move in plan.scheme.moves)
    islands = problem.n_islands
    return n_rows * islands * len(plan.waves) * len(plan.passes)


def _ranks_to_store(problem: Collective, plan: _Plan) -> int:
    """Return the ranks whose chunks a plan stores: those of one island, or 0 for all."""
    return problem.island * ranks_to_store(_count_sends(problem, plan))


def _effort_s(problem: Collective, plan: _Plan) -> float:
    """Estimate the CPU seconds to lay out a plan and to replay it.

    Infinite if the plan has more sends than memory should hold.
    """
    # If chunks of one island are stored for all, only their sends are laid out.
    n_sends = _count_sends(problem, plan)
    if _ranks_to_store(problem, plan):
        n_sends //= problem.n_islands
    if n_sends > MOST_SENDS:
        return math.inf

    # A send of a part of a chunk takes twice as long as one of a whole chunk, and a sum longer.
    if len(plan.waves) > 1:
        n_sends *= 2
    if any(problem.flow.adds):
        n_sends *= SENDS_OF_A_SUM
    return n_sends / SENDS_PER_S


def _list_plans(problem: Collective, clock: Clock) -> Iterator[_Plan]:
    """List the plans that are compared for a collective between islands, those of one wave first.

    A plan is a scheme, a number of waves, and an order of these: in which rounds the phases of
    each wave are. Schemes are made while there is time, one at least: each lists the sends of an
    island. Half of the time that is left has to be enough to lay out the last one.
    """
    schemes = list[Scheme]()
    for scheme in list_schemes(problem.flow.has_pairs, problem.n_islands, problem.island):
        schemes.append(scheme)
        of_one_wave = _arrange(problem.flow, scheme, 1, _WaveOrder())
        if clock.remaining_s <= 2.0 * _effort_s(problem, of_one_wave):
            break

    # Without rails there is nothing that several waves could do at the same time. Each order has
    # waves of equal or of falling sizes, whichever are faster.
    for count in WAVE_COUNTS:  # the number of waves
        for scheme in schemes:
            if count == 1 or scheme.shifts:
                for wave_order in _list_wave_orders(problem.flow, scheme, count):
                    equal = _arrange(problem.flow, scheme, count, wave_order)
                    sizes = WAVE_RATIO ** np.arange(count)
                    falling = equal._replace(waves=sizes / sizes.sum())
                    yield min(equal, falling, key=lambda plan: _time_s(problem, plan))


def _list_wave_orders(flow: DataFlow, scheme: Scheme, count: int) -> list[_WaveOrder]:
    """List the orders in time that are tried for `count` waves of the data of an island.

    For two waves, a and b, and two phases, 1 and 2, the rounds are::

        round      0      1      2      3
        no mark    a1     b1     a2     b2
        together   a1 b1  a2     b2
        woven      a1     a2 b1  b2

    Two marks are not seen there. ``mirrored`` is for all-reduces alone: the wave whose sums are
    ready first is gathered first, else the one whose sums are ready last. With ``eager`` *spare*
    copies, those that no rails wait for (`Move.spare`), come a round earlier.
    """
    # One wave follows nobody, so that only its spare copies have a choice. Eager copies are not
    # combined with `together` or `woven`.
    orders = [_WaveOrder(), _WaveOrder(eager=True)]
    if count == 1:
        return orders
    orders.append(_WaveOrder(together=True))

    # In a woven order several phases share a round, so all phases must have the same circuits.
    if len(scheme.shifts) > 1 and len(set(scheme.shifts)) == 1:
        orders.append(_WaveOrder(woven=True))
    # Only an all-reduce has sums before copies: each order is tried both ways, eager ones too.
    if flow.sums_for_all:
        orders += [order._replace(mirrored=True) for order in orders]
    return orders


def _optimise_wave_sizes(problem: Collective, plan: _Plan) -> _Plan:
    """Make a plan faster by other sizes of the parts into which the data are cut.

    A linear programme chooses the size of each wave and the length of each round. It minimises the
    sum of the lengths. Each round has to be long enough for its latency and for what each rank
    sends or receives in it. The plan stays as it is if it has one wave, or if no sizes are faster.
    """
    with uncounted():
        from scipy.optimize import linprog

    count = len(plan.waves)
    if count == 1:
        return plan

    # The rows of the programme, one for each round, medium and load, say that the round is long
    # enough: load * sizes - length <= -latency. All times are parts of the present time of the
    # plan, so that the numbers are near 1. With a latency of 0.01, and 2 blocks of wave 0 that
    # would take 0.1 each if the wave were all of the data: 0.2 * size_0 - length <= -0.01.
    plan_s = _time_s(problem, plan)
    latencies_s, rates_bytes_per_s = _list_media(problem)
    rows = list[FloatArray]()
    limits = list[float]()
    for medium, latency_s in enumerate(latencies_s):
        # A load in blocks times `scale` is its time, in units of the time of the plan.
        scale = problem.block_bytes / rates_bytes_per_s[medium] / plan_s
        for turn in range(plan.n_rounds):
            # Loads by end and wave; ends with the same loads, or with none, need no row more.
            loads = np.unique(plan.loads[medium, turn] * scale, axis=0)
            loads = loads[loads.any(axis=1)]
            length_factors = np.zeros((len(loads), plan.n_rounds))
            length_factors[:, turn] = -1
            rows.append(np.hstack([loads, length_factors]))
            limits += [-latency_s / plan_s] * len(loads)

    # The variables are the sizes of waves, then the lengths of rounds. `goal` is 0 for sizes and 1
    # for lengths, whose sum is minimised; 1 - goal is 1 for sizes, whose sum is 1. No wave
    # vanishes. The upper bounds, 9 and 10, are far above all values.
    variables_of_part = [count, plan.n_rounds]
    goal = np.repeat([0.0, 1.0], variables_of_part)
    lower = np.repeat([LEAST_WAVE / count, 0.0], variables_of_part)
    bounds = np.column_stack([lower, goal + 9])
    result = linprog(goal, np.vstack(rows), limits, [1 - goal], [1.0], bounds=bounds)
    if result.status:  # the solver has found no solution
        return plan
    sizes = result.x[:count]
    resized = plan._replace(waves=sizes / sizes.sum())
    return min(plan, resized, key=lambda candidate: _time_s(problem, candidate))


def _arrange(flow: DataFlow, scheme: Scheme, count: int, wave_order: _WaveOrder) -> _Plan:
    """Choose the round of every send of a collective between islands, in `count` equal waves.

    The plan has the moves of the scheme once, as copies or as sums, which run backwards in time;
    an all-reduce has the sums and then the copies, put off until every wave is complete.
    """
    # The first pass, turns[move, wave]: rounds of copies, or, with True in ``flow.adds``, of sums,
    # which go backwards: of 5 rounds, round 0 becomes round 4.
    copies = _assign_rounds(scheme, wave_order, count)
    passes = [(COPY, copies)]
    if True in flow.adds:
        passes = [(REDUCE, copies.max() - copies)]

    # The second pass of an all-reduce copies the sums. complete[wave] is the round after the last
    # sum of a wave, and the wave must not be copied before. All copies are put off by the same
    # number of rounds, the least that is enough for all waves. Example: waves are complete in the
    # rounds 4 and 5, and their copies would begin in the rounds 0 and 1; all are put off by 4.
    if flow.sums_for_all:
        sums = passes[0][1]
        complete = sums.max(axis=0) + 1
        if wave_order.mirrored:
            copies = copies[:, ::-1]
        passes.append((COPY, copies + (complete - copies.min(axis=0)).max()))

    # Add the blocks of each move to the round that it has in each wave: loads[medium, round, end,
    # wave], as in a plan.
    n_rounds = 1 + int(passes[-1][1].max())
    loads = np.zeros((2, n_rounds, len(scheme.loads[0]), count))
    shifts_of_turn: dict[int, Shifts] = {}
    for _, turn_of_move in passes:
        for move, load, turn_of_wave in zip(scheme.moves, scheme.loads, turn_of_move, strict=True):
            medium = RAILS if move.on_rails else LINKS
            for wave, turn in enumerate(turn_of_wave.tolist()):
                loads[medium, turn, :, wave] += load
            if move.on_rails:
                shifts = scheme.shifts[move.phase]
                shifts_of_turn |= dict.fromkeys(turn_of_wave.tolist(), shifts)
    return _Plan(scheme, np.full(count, 1 / count), passes, loads, shifts_of_turn)


def _assign_rounds(scheme: Scheme, wave_order: _WaveOrder, count: int) -> IntArray:
    """Return the round of each move of a scheme, for each of `count` waves.

    The result is ``[move, wave]``, a round from 0 on; waves take turns by their numbers. Each
    phase of a wave has two rounds: `link_turn`, in which islands copy inside themselves, and
    `rail_turn`, which is later if rails wait for these copies. The round of a move is::

        on rails      rail_turn
        early copy    rail_turn - 1   it needs nothing of phases before
        spare copy    link_turn, or link_turn + 1: the rails of its phase can do without it
        other copy    link_turn

    Example: one wave and one phase, whose rails wait for copies. Copies get round 0, the rails and
    spare copies round 1, beside each other, and copies after the last phase round 2.
    """
    # rail_turn[phase, wave] and link_turn[phase, wave] are the rounds on rails and of copies. The
    # last row of link_turn is for copies after the last phase.
    phases = len(scheme.shifts)
    rail_turn = np.zeros((phases + 1, count), dtype=np.int64)
    link_turn = np.zeros((phases + 1, count), dtype=np.int64)
    # Unless the order is woven, rails carry one phase of all waves before the next phase.
    if not wave_order.woven:
        _line_up_phases(scheme, wave_order.together, rail_turn, link_turn)
    else:
        # Each wave starts one round after the wave before it, and goes on to its next phase at
        # once: wave k is k rounds behind the first one everywhere. A phase copies in the round
        # after the rails of the phase before, and has its rails in the same round, or one round
        # later if they wait for these copies. If both of 2 phases wait, the first wave copies in
        # the rounds 0 and 2, and has rails in 1 and 3.
        delay_of_wave = np.arange(count)
        turn_of_first_wave = -1  # its last round on rails
        for phase in range(phases):
            link_turn[phase] = turn_of_first_wave + 1 + delay_of_wave
            turn_of_first_wave += 1 + scheme.waits[phase]
            rail_turn[phase] = turn_of_first_wave + delay_of_wave
    if phases:
        link_turn[phases] = rail_turn[phases - 1] + 1

    # A copy costs no time of its own in a round in which rails carry data. Spare copies that would
    # have their round alone therefore come one round later, beside the rails of their own phase:
    # where no other wave is on rails meanwhile, as there is one wave, or all travel together; and
    # in phase 0, before which nothing is on rails. In an eager order they stay early, which saves
    # rounds but costs their time.
    has_no_other_wave = wave_order.together or count == 1
    turns: list[IntArray] = []
    for move in scheme.moves:
        turn = link_turn[move.phase]
        if move.on_rails or move.early:
            turn = rail_turn[move.phase]
        if move.early:
            turn = turn - 1
        if move.spare and not wave_order.eager and (has_no_other_wave or move.phase == 0):
            turn = turn + 1
        turns.append(turn)

    # If the rails of phase 0 have round 0, early copies get round -1: all move up by one then.
    from_zero: IntArray = np.array(turns) - np.min(turns)
    return from_zero


def _line_up_phases(
    scheme: Scheme,
    together: bool,
    rail_turn: IntArray,
    link_turn: IntArray,
) -> None:
    """Give rounds to parts of the data (waves), one phase of all of them before the next phase.

    Waves take turns by their numbers; with `together` all share one round in each phase but the
    last. Islands copy one round after the phase before has brought the data. Rails take the next
    free round; it has to come after the copies if ``scheme.waits[phase]``.

    Writes ``rail_turn[phase, wave]``, the rounds of a wave on rails, and ``link_turn[phase,
    wave]``, those inside islands.

    Example: two waves, a and b, and two phases, of which the second one waits. While islands copy
    b, rails carry a, so that rails never idle; a single wave would leave them idle in round 1::

        round            0    1    2    3
        rails            a1   b1   a2   b2
        inside islands        a    b
    """
    phases = len(scheme.shifts)
    all_waves = list(range(rail_turn.shape[1]))
    last_turn = -1  # the last round on rails until now
    for phase in range(phases):
        # A group is a list of waves that share the rounds of this phase.
        groups = [[wave] for wave in all_waves]
        if together and phase < phases - 1:
            groups = [all_waves]
        for waves in groups:  # waves that travel in the same round
            # Islands can prepare a phase when the phase before has brought the data. For the first
            # phase they are there: a wave is prepared while rails carry the wave before.
            prepared_in = max(last_turn, 0)
            if phase:
                prepared_in = int(rail_turn[phase - 1, waves].max()) + 1
            link_turn[phase, waves] = prepared_in

            # Rails take the next round; or a later one, if they have to wait for the islands.
            last_turn += 1
            if scheme.waits[phase]:
                last_turn = max(last_turn, prepared_in + 1)
            rail_turn[phase, waves] = last_turn


def _time_s(problem: Collective, plan: _Plan) -> float:
    """Return the seconds that a plan takes, changes of circuits included.

    A round lasts until rails and links are done, which send at the same time. Each of them takes
    its latency, and the bytes of the busiest sender or receiver over its rate. A delay is added
    for each change of circuits.
    """
    # Rails and links take a latency and the time of the bytes, but nothing where they are idle.
    latencies_s, rates_bytes_per_s = _list_media(problem)
    busiest_blocks = (plan.loads @ plan.waves).max(axis=2)  # [medium, round]
    bytes_s = busiest_blocks * problem.block_bytes / rates_bytes_per_s[:, None]
    seconds = (latencies_s[:, None] + bytes_s) * (busiest_blocks > 0)
    return float(seconds.max(axis=0).sum()) + _changes_s(problem, plan)


def _list_media(problem: Collective) -> tuple[FloatArray, FloatArray]:
    """Return the latency of a round in seconds, and the rate in bytes per second, by medium."""
    latencies_s = np.array([problem.island_start_up_s, problem.start_up_s])
    return latencies_s, np.array([problem.island_rate_bytes_per_s, problem.rate_bytes_per_s])


def _changes_s(problem: Collective, plan: _Plan) -> float:
    """Return the seconds of all changes of circuits of a plan."""
    # Rounds without rails keep the circuits of the round before, so only those with rails count.
    circuits = [plan.shifts_of_turn[turn] for turn in sorted(plan.shifts_of_turn)]
    n_changes = sum(before != after for before, after in pairwise(circuits))
    return n_changes * problem.delay_s


def _bound_all_sizes_s(problem: Collective, plan: _Plan) -> float:
    """Return a lower bound in seconds of a plan, whatever the sizes of its waves.

    Other sizes only move bytes from one round to another. Hence each medium is busy for the bytes
    of its busiest end in all rounds together, and for the latencies of the rounds that use it. In
    addition it waits in rounds that only the other medium uses, which last as long as the latency
    of that one at least. The larger of the two sums, of links and of rails, counts.
    """
    # Links are medium 0 and rails medium 1; all arrays but `is_used` are by medium. The loads of a
    # wave are counted as if it were all of the data. Added up over all rounds they are the same
    # for each wave, so that wave 0 alone is looked at.
    latencies_s, rates_bytes_per_s = _list_media(problem)
    is_used = np.asarray(plan.loads.any(axis=(2, 3)))  # [medium, round]
    busiest_blocks = plan.loads[..., 0].sum(axis=1).max(axis=1)
    busy_s = busiest_blocks * problem.block_bytes / rates_bytes_per_s
    busy_s += latencies_s * is_used.sum(axis=1)

    # ``alone_s[medium]``: the latencies of rounds that use this medium alone. Indices in the order
    # (RAILS, LINKS) exchange the media: each waits for the rounds of the other one.
    other_medium = [RAILS, LINKS]
    alone_s = latencies_s * (is_used & ~is_used[other_medium]).sum(axis=1)
    return float((busy_s + alone_s[other_medium]).max()) + _changes_s(problem, plan)


def _lay_on_ranks(problem: Collective, plan: _Plan) -> Laid:
    """Write out the sends and circuits of all ranks from a plan for the data of one island.

    All islands do the same at the same time: a send from island 0 to island 2 becomes one send for
    each island, from 1 to 3 for the data of island 1, and onward around all islands. If all ranks
    are too many to store, only the chunks of island 0 are. With waves of 0.75 and 0.25, a chunk of
    100 bytes has the bytes 0 to 74 in the first wave, and 75 to 99 in the second.
    """
    # A chunk of an all-to-all goes from one rank to one other; else it is the data of one rank.
    stored_ranks = _ranks_to_store(problem, plan)
    n_chunks = stored_ranks or problem.n_ranks
    if problem.flow.has_pairs:
        n_chunks *= problem.n_ranks

    # In each wave of a move the same sends are made, in another round and of other bytes. The
    # lists begin with empty arrays, because a plan may have no move at all.
    first_byte_of_wave = problem.block_bytes * (np.cumsum(plan.waves) - plan.waves)
    bytes_of_wave = problem.block_bytes * plan.waves
    rows = [np.empty((0, 5), np.int64)]
    parts_of_rows = [np.empty((0, 2))]
    for kind, round_of in plan.passes:
        for move, turn_of_wave in zip(plan.scheme.moves, round_of, strict=True):
            source, target, chunk = _ends_and_chunks(problem, move, kind, stored_ranks)
            for wave, turn in enumerate(turn_of_wave.tolist()):
                columns = np.broadcast_arrays(turn, source, target, chunk, kind)
                rows.append(np.stack(columns, axis=-1).reshape(-1, 5))
                part = (first_byte_of_wave[wave], bytes_of_wave[wave])
                parts_of_rows.append(np.broadcast_to(part, (len(rows[-1]), 2)))

    # Plans list sends by ascending rounds. A plan of one wave sends whole blocks, and needs no
    # parts.
    sends = np.concatenate(rows)
    by_round = np.argsort(sends[:, ROUND], kind="stable")
    parts = None
    if len(plan.waves) > 1:
        parts = np.concatenate(parts_of_rows)[by_round]

    rounds = Rounds(
        sends[by_round],
        n_chunks,
        matchings=list(_list_rail_circuits(problem, plan)[:, None]),
        stored_ranks=stored_ranks,
        parts=parts,
    )
    return lay(problem, rounds)


def _list_rail_circuits(problem: Collective, plan: _Plan) -> IntArray:
    """Return ``circuits[round, rank]``: the rank to which the rail of a rank leads, -1 if nowhere.

    A round without sends over rails asks for no circuits, -1 for all ranks. Rounds before the
    first sends over rails get their circuits, so that these are up by then. With letters for the
    circuits of all ranks, the rounds ``- A - B`` become ``A A - B``.
    """
    # A rail leads some islands onward, to the same place there. With 3 islands of 2 ranks and the
    # shifts 1 and 0, rank 0 sends to 2, 2 to 4, 4 to 0, and ranks 1, 3 and 5 to nobody.
    islands = problem.n_islands
    island, place = np.divmod(np.arange(problem.n_ranks), problem.island)
    circuits = np.full((plan.n_rounds, problem.n_ranks), -1)
    for turn, shifts in plan.shifts_of_turn.items():
        shift = np.array(shifts)[place] % islands
        peer = (island + shift) % islands * problem.island + place
        circuits[turn] = np.where(shift == 0, -1, peer)
    first_with_rails = min(plan.shifts_of_turn, default=0)
    circuits[:first_with_rails] = circuits[first_with_rails]
    return circuits


def _ends_and_chunks(
    problem: Collective, move: Move, kind: int, stored_ranks: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Turn sends for the data of one island into the sends of all ranks for all data.

    The `kind` is COPY or REDUCE: sums are the copies of the move run backwards. For the data of
    island k all islands are counted from k. With 4 islands of 2 ranks, a copy from rank 1 of
    island 0 to rank 1 of island 1 becomes four sends: from rank 1 to 3, 3 to 5, 5 to 7, 7 to 1.

    The results are the sources, targets and chunks, each ``[island, row]``: the island whose data
    move, and the row of the move. If `stored_ranks` is 0, the data of all islands are listed;
    else those of island 0 alone, as the plan stores the chunks of its ranks for all.
    """
    places = problem.island
    islands = problem.n_ranks // places
    # Arrays have a row for each island whose data move, and a column for each row of the move.
    data_island = np.arange(1 if stored_ranks else islands)[:, None]
    from_island, from_place, to_island, to_place, block = np.asarray(move.rows).T[:, None, :]

    # Sums go backwards, from target to source. To use the same circuits, which lead one way only,
    # they count islands the other way: a copy from island 0 to 1 becomes a sum from -1 to 0.
    direction = 1
    if kind == REDUCE:
        direction = -1
    source = (direction * from_island + data_island) % islands * places + from_place
    target = (direction * to_island + data_island) % islands * places + to_place
    if kind == REDUCE:
        source, target = target, source

    # A block of a gather is named by the place that owns it; one of an all-to-all by the place of
    # its sender and its receiver, a rank counted from the island of the sender.
    if not problem.flow.has_pairs:
        return source, target, data_island * places + block
    owner_place, receiver = np.divmod(block, problem.n_ranks)
    receiver_island, receiver_place = np.divmod(receiver, places)
    receiver = (receiver_island + data_island) % islands * places + receiver_place
    return source, target, (data_island * places + owner_place) * problem.n_ranks + receiver


SHIFT_SAMPLES = 300
"""The number of sets of shifts whose phases are counted; all sets if there are no more."""
SEARCH_STEPS = 150_000
"""Steps of the searches for phases of all sets of shifts that are tried: about 0.1 s. It limits
the sets from 64 islands of eight ranks on."""
RANKS_WITH_MOST_GATHERS = 1024
"""Between more ranks fewer whole gathers are made, as each lists the sends of an island."""
MOST_GATHERS = 6
"""The number of sets with the fewest phases for which whole gathers are made and compared."""

Row = tuple[int, int, int, int, int]
"""One send: source island, source place, destination island, destination place, block. Islands
count from the one that owns the data, which is island 0; all islands do the same."""
Shifts = tuple[int, ...]
"""``shifts[place]``: how many islands onward a rail leads."""


class Move(NamedTuple):
    """Sends of a phase that are done together."""

    rows: list[Row] | IntArray
    """The sends: source island and place, destination island and place, and block; those of a
    scheme are an array of shape (sends, 5)."""
    phase: int
    """The phase, from 0; the number of phases for sends that follow the last one."""
    on_rails: bool
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
    loads: list[IntArray]
    """For each move an array of shape (2 * places,): the blocks that each place sends, then the
    blocks that each place receives."""
    waits: list[bool]
    """For each phase, whether its rails have to wait for moves inside islands before it."""


def list_schemes(has_pairs: bool, islands: int, places: int) -> Iterator[Scheme]:
    """List ways to bring the data of one island to all others that are worth a try.

    There are `islands` islands of `places` ranks each. An all-to-all (`has_pairs`) goes over new
    rails in each phase, or by several hops over rails that stay; any other operation is made of a
    gather over rails that stay.
    """
    # Rails with the same shift share their load, so numbers of shifts that divide rails evenly
    # into equal shares are enough: 8, 4, 2 and 1 of 8 places. Most shifts reach all islands
    # soonest, and come first.
    shift_counts = sorted(
        {places // rails_each for rails_each in range(1, places + 1)}, reverse=True
    )
    if not has_pairs:
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
    """Give the rails of an island the shifts in turn: of (1, 2) 5 places get 1, 2, 1, 2, 1."""
    return tuple(shifts[place % len(shifts)] for place in range(places))


def _choose_gather(islands: int, places: int, count: int) -> Scheme:
    """Choose circuits between islands over which the data of each reach all others soonest.

    Example: 5 islands and two different shifts. With the shifts 1 and 4, which lead to both
    neighbours on a ring, all islands are reached in 2 phases.

    `count` is how many different shifts the rails of an island have, one rail for each of its
    `places`. Many sets of shifts are tried: all, or `SHIFT_SAMPLES` of them if there are more. The
    set with the fewest phases is best. Among equals it is the one whose busiest ranks send and
    receive the fewest blocks, added up over all sets of sends that are made together.
    """
    # All islands are reached at once if there are enough shifts; with one, islands form a ring.
    other_islands = range(1, islands)
    if count >= islands - 1:
        return _gather(islands, _share_rails(other_islands or (0,), places))
    if count == 1:
        return _gather(islands, _share_rails((1,), places))

    # The sets are all combinations of `count` shifts, or samples: first the near islands on both
    # sides, 1, -1, 2, -2, ..., then random ones.
    shift_sets: Iterator[Shifts] = combinations(other_islands, count)
    n_samples = min(SHIFT_SAMPLES, max(1, SEARCH_STEPS // (islands * count)))
    if comb(islands - 1, count) > n_samples:
        rng = np.random.default_rng(0)
        nearest = tuple(k // 2 * (-1) ** k % islands for k in range(2, count + 2))
        samples = (
            tuple(rng.choice(other_islands, count, replace=False).tolist())
            for _ in range(n_samples)
        )
        shift_sets = iter([nearest, *samples])

    # Whole gathers take longer to make than phases to count, so only the `MOST_GATHERS` sets with
    # the fewest phases are made. `_share_rails` gives the shifts of a set to the rails in turn.
    by_phases = sorted(shift_sets, key=lambda shifts: len(_list_phases(islands, shifts)))
    n_counted = min(
        MOST_GATHERS, max(1, MOST_GATHERS * RANKS_WITH_MOST_GATHERS // (islands * places))
    )
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

    Example: with two places, the move of one row from place 0 to place 1 has the loads 1, 0 (sent)
    and 0, 1 (received).
    """
    # Columns 1 and 3 of a row are the places of its sender and its receiver. The loads of a move
    # are the rows of each place as a sender, then those of each place as a receiver.
    used = [move._replace(rows=np.asarray(move.rows)) for move in moves if len(move.rows)]
    ends_of_move = [np.asarray(move.rows)[:, [1, 3]].T for move in used]
    places = 1 + max(ends.max() for ends in ends_of_move)
    loads = [
        np.concatenate([np.bincount(end, minlength=places) for end in ends])
        for ends in ends_of_move
    ]
    return Scheme(shifts, used, loads, waits)


def _gather(islands: int, shifts: Shifts) -> Scheme:
    """Let the blocks of island 0 reach all other islands, by breadth-first search in phases.

    In phase k all blocks come to the islands that are k + 1 rails away from island 0, each block
    over one rail. Meanwhile the islands that were reached before copy what came to one of their
    places to all others. Rails wait only for the copies that bring a block to the place whose rail
    sends it on; all other copies may be a round later.

    Example: 3 islands of 2 places with shifts (1, 2). Both islands are one rail away, hence there
    is one phase, and both blocks have to reach both islands. The rail of place 0 leads to island
    1, so place 0 first gets the block of place 1, and then sends both over its rail; place 1 does
    the same towards island 2. At the end each island copies what came to its other place.
    """
    # ``holder_of[island, block]``: the place of the island to which rails have brought the block.
    places = len(shifts)
    holder_of = {(0, block): block for block in range(places)}
    new_blocks = list(holder_of)  # (island, block) of the phase before, not copied yet
    moves: list[Move] = []
    waits: list[bool] = []
    # No island is reached after the last phase, but those of that phase have still to copy.
    for phase, reached in enumerate([*_list_phases(islands, shifts), []]):
        rail_rows = _choose_rails(islands, shifts, reached, holder_of)

        # Blocks that have just come to an island are copied to all its other places. The copy to
        # a place is urgent if the rail of that place sends the block in this phase:
        # is_sent[island, place, block].
        new = np.array([(island, holder_of[island, block], block) for island, block in new_blocks])
        island, holder, block = np.repeat(new, places, axis=0).T
        place = np.tile(np.arange(places), len(new))
        copies = np.column_stack([island, holder, island, place, block])
        is_sent = np.zeros((islands, places, places), dtype=np.bool_)
        for from_island, from_place, _, _, sent_block in rail_rows:
            is_sent[from_island, from_place, sent_block] = True
        # The holder needs no copy.
        is_urgent = is_sent[island, place, block] & (place != holder)

        # If no copy is urgent, rails wait for nothing, and copies have the round before them.
        waits.append(bool(is_urgent.any()))
        moves.append(Move(copies[is_urgent], phase, on_rails=False))
        moves.append(
            Move(copies[~is_urgent & (place != holder)], phase, on_rails=False, spare=waits[-1])
        )
        moves.append(Move(rail_rows, phase, on_rails=True))

        # What rails bring is there from the next phase on, at the place where its rail ends.
        holder_of |= {(island, block): place for _, _, island, place, block in rail_rows}
        new_blocks = [(island, block) for _, _, island, _, block in rail_rows]
    waits.pop()  # no rails follow the copies after the last phase
    return _make_scheme([shifts] * len(waits), moves, waits)


def _choose_rails(
    islands: int, shifts: Shifts, reached: list[int], holder_of: dict[tuple[int, int], int]
) -> list[Row]:
    """Choose the rail over which each block comes to each island of `reached` in one phase.

    ``holder_of[island, block]`` is the place of an island to which the block came in a phase
    before; islands that have no blocks yet have no entry. The rail with the least load is taken
    of those that come from islands with the block. Among equals it is a rail of the holder, which
    needs no copy inside the island. Returns the sends over the rails, one for each island of
    `reached` and each block.

    In the example of `_gather` both blocks come to island 1 over the rail of place 0, and to
    island 2 over that of place 1, as no other rails lead there.
    """
    # The places whose rails come to an island from one that has the blocks: all of them have come
    # there, so that block 0 tells it.
    places = len(shifts)
    rails_of = {
        island: [
            place
            for place, shift in enumerate(shifts)
            if ((island - shift) % islands, 0) in holder_of
        ]
        for island in reached
    }

    # Islands with the fewest rails to choose from choose first, each beginning with another block.
    loads = [0] * places  # the blocks on the rail of each place
    rows: list[Row] = []
    for island in sorted(reached, key=lambda reached_island: len(rails_of[reached_island])):
        for k in range(places):
            block = (island + k) % places
            # A choice is the load of a rail, whether the block has to be copied to it, its place.
            choices: list[tuple[int, bool, int]] = []
            for place in rails_of[island]:
                holder = holder_of[(island - shifts[place]) % islands, block]
                choices.append((loads[place], holder != place, place))
            place = min(choices)[-1]
            loads[place] += 1
            rows.append(((island - shifts[place]) % islands, place, island, place, block))
    return rows


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
    # The phase in which blocks arrive at each island, straight from island 0; or where all phases
    # have the same circuits, from the islands of the phase before.
    takes_several_hops = len(shifts) > 1 and len(set(shifts)) == 1
    reached_in_phase: list[list[int]] = [list(shifts_of_phase) for shifts_of_phase in shifts]
    senders_of_phase = [{0}] * len(shifts)
    if takes_several_hops:
        reached_in_phase = _list_phases(islands, shifts[0])
        senders_of_phase = [{0}, *(set(reached) for reached in reached_in_phase)]
    phase_of_island = {
        island: phase for phase, reached in enumerate(reached_in_phase) for island in reached
    }

    # The places whose rails may bring a block to each island.
    rails_into = {
        island: [
            place
            for place, shift in enumerate(shifts[phase])
            if (island - shift) % islands in senders_of_phase[phase]
        ]
        for island, phase in phase_of_island.items()
    }

    # Sends by the phase to which they belong, or which they prepare. Those after the last hop
    # have one phase more, as they follow the rails of their phase.
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
            rails_into,
            loads,
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
    moves = [Move(inside_own_island, 0, on_rails=False, spare=True)]
    moves += [Move(rows, phase, on_rails=True) for phase, rows in enumerate(over_rails)]
    moves += [Move(rows, phase, on_rails=False) for phase, rows in enumerate(between_hops)]
    moves += [Move(rows, phase, on_rails=False) for phase, rows in enumerate(after_last_hop)]
    moves += [
        Move(rows, phase, on_rails=False, early=True)
        for phase, rows in enumerate(before_first_hop)
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
    rails_into: dict[int, list[int]],
    loads: list[list[int]],
) -> list[_Hop]:
    """Choose the circuits between groups of ranks over which one block of an all-to-all goes.

    The block goes from the place `owner` of island 0 to the `destination`, (island, place).
    Returns the rails that it takes, from the first to the last; none if it stays in island 0. The
    hops are chosen from the last to the first, each over the rail with the least load, and added
    to ``loads[phase][place]``: the blocks on each rail so far.

    ``shifts[phase][place]`` tells how many islands onward the rail of a place leads,
    ``phase_of_island[island]`` in which phase blocks from island 0 arrive there, and
    ``rails_into[island]`` lists the places whose rails bring them: from island 0, or from islands
    where they arrive one phase before.

    Example with several hops: 4 islands of one rank, and rails that lead one island onward in all
    of three phases. Blocks arrive at islands 1, 2 and 3 in the phases 0, 1 and 2. A block for
    island 2 takes the rail from island 1 in phase 1, and before it that from island 0 in phase 0:
    ``[_Hop(0, 0), _Hop(1, 0)]``.
    """
    # From here on the way from `island`, place `next_place`, to the destination is known: at first
    # both are the receiver, then the island and the place of the rail that was chosen last.
    hops: list[_Hop] = []
    island, next_place = destination
    while island:
        # The least load decides; of equals the fewest copies inside islands: one after the rail if
        # it ends at another place than the next, one before it if that is not the place of the
        # owner. Of equals again a copy before the rail is better than one after it.
        phase = phase_of_island[island]
        choices: list[tuple[int, int, bool, int]] = []
        for place in rails_into[island]:
            copy_after = place != next_place
            copies = copy_after + (place != owner)
            choices.append((loads[phase][place], copies, copy_after, place))

        # The block takes this rail; what is left to choose is its way to where the rail begins.
        next_place = min(choices)[-1]
        loads[phase][next_place] += 1
        hops.append(_Hop(phase, next_place))
        island = (island - shifts[phase][next_place]) % islands
    return hops[::-1]

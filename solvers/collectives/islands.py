"""Collectives between islands: all rails together, while islands hand on what has come.

All islands do the same: a scheme of the module `schemes` says what happens to the data of one.
Reduce-scatters are all-gathers that run backwards. The data are cut into *waves* of parts of each
block, so that islands can copy one wave while rails carry the next (pipelining). The scheme and
the number of waves are chosen by counting the time of each choice, the sizes of the waves by a
linear programme.

Words that are used here:

- the *place* of a rank is its number in its island, and its *rail* the one circuit of the rank, to
  the same place of another island; *links* join the ranks inside an island;
- a *block* is what one rank contributes to a gather, or sends to one other rank in an all-to-all;
- a *phase* is a stage of a scheme in which each block takes one rail at most, and a *move* is a
  set of sends of a phase, all over rails or all inside islands;
- a *row* is a send: of a move (islands and places) or of a plan (round, ranks, chunk and kind).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import Clock, Limit, uncounted
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.plans import Laid, lay
from optmatch.solvers.collectives.rounds import SENDS_PER_S, Rounds, ranks_to_store
from optmatch.solvers.collectives.schemes import Move, Scheme, Shifts, list_schemes

WAVES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
"""Numbers of waves that are tried."""
RATIO = 0.7
"""The ratio of the size of each wave to the one before, tried beside equal sizes. With equal sizes
alone 1 GB between two islands of eight ranks takes 0.2 % longer."""
SIZED = 32
"""The number of fastest plans whose sizes of waves are optimised by a linear programme."""
LEAST = 0.05
"""The least size of a wave in that programme, as a part of the mean size."""
MOST_SENDS = 1 << 25
"""Plans of more sends are not laid out: they take more than six gigabytes."""
SIMILAR = 1.75
"""A plan of one wave with so many times the sends of another one is never left out for it: an
all-to-all over several hops has more sends than one over single hops, but is many times faster."""


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


class _Plan(NamedTuple):
    """A scheme in waves, with the round of each move."""

    scheme: Scheme
    """What happens to the data of one island: circuits by phase, and moves."""
    waves: NDArray[np.float64]
    """Sizes of waves, shape (waves,), as parts of 1."""
    turns: list[tuple[int, NDArray[np.int64]]]
    """For each pass over the scheme its kind, COPY or REDUCE, and ``turn[move, wave]``, the round
    of each move. An all-reduce has two passes, other operations one."""
    loads: NDArray[np.float64]
    """``loads[medium, round, end, wave]``: blocks, if the wave were all of the data. The medium is
    0 for links inside islands, 1 for rails. An end is a rank of the island as a sender, or, in the
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
    of each. The fastest ones then get better sizes of waves. Returns the plan, and
    the limit that kept the search from other ones: time, memory, or None.
    """
    # A candidate is its time in seconds, its number and the plan. The number stands second, so
    # that equal times keep their order, and plans are not compared.
    candidates: list[tuple[float, int, _Plan]] = []
    limits: set[Limit] = set()
    fewest_sends = math.inf
    for plan in _list_plans(problem, clock):
        effort_s = _effort_s(problem, plan)
        has_time = effort_s < clock.remaining_s
        n_sends = _count_sends(problem, plan)
        # Plans of one wave come first. They are timed even if there is no time to lay them out,
        # but for those with many more sends than others.
        is_first_look = len(plan.waves) == 1 and n_sends <= SIMILAR * fewest_sends
        if has_time or is_first_look:
            candidates.append((_time_s(problem, plan), len(candidates), plan))
            fewest_sends = min(fewest_sends, n_sends)
        else:
            limits.add(_limit_of_effort(effort_s))
        # The search ends when the time left is just about enough to lay out the best plan.
        best_effort_s = _effort_s(problem, min(candidates)[-1])
        if len(plan.waves) > 1 and best_effort_s > clock.remaining_s:
            limits.add(_limit_of_effort(best_effort_s))
            break

    # Until here waves are equal, or fall. Linear programmes choose better sizes, but take long, so
    # only the fastest candidates get them.
    fastest = [plan for _, _, plan in sorted(candidates)[:SIZED]]
    best = fastest[0]
    for plan in fastest:
        best_effort_s = _effort_s(problem, best)
        if best_effort_s > clock.remaining_s:
            limits.add(_limit_of_effort(best_effort_s))
            break
        if _bound_all_sizes_s(problem, plan) >= _time_s(problem, best):
            continue
        resized = _optimise_wave_sizes(problem, plan)
        if _time_s(problem, resized) < _time_s(problem, best):
            best = resized
    # Where both were short, a longer search would already find more.
    limit = next((limit for limit in (Limit.TIME, Limit.MEMORY) if limit in limits), None)
    return _lay_on_ranks(problem, best), limit


def _count_sends(problem: Collective, plan: _Plan) -> int:
    """Return the sends of all ranks for which a plan of the data of one island stands."""
    n_rows = sum(len(move.rows) for move in plan.scheme.moves)
    islands = problem.n_ranks // problem.island
    return n_rows * islands * len(plan.waves) * len(plan.turns)


def _ranks_to_store(problem: Collective, plan: _Plan) -> int:
    """Return the ranks whose chunks a plan stores: those of one island, or 0 for all."""
    return problem.island * ranks_to_store(_count_sends(problem, plan))


def _effort_s(problem: Collective, plan: _Plan) -> float:
    """Estimate the CPU seconds to lay out a plan and to replay it.

    Returns seconds; infinite if the plan has more sends than memory should hold.
    """
    n_sends = _count_sends(problem, plan)
    if _ranks_to_store(problem, plan):
        n_sends //= problem.n_ranks // problem.island
    if n_sends > MOST_SENDS:
        return math.inf
    work = n_sends
    if len(plan.waves) > 1:
        work = 2 * n_sends
    return work / SENDS_PER_S


def _limit_of_effort(effort_s: float) -> Limit:
    """Return the limit for which a plan is left out that takes so many seconds to lay out."""
    if math.isinf(effort_s):
        return Limit.MEMORY
    return Limit.TIME


def _list_plans(problem: Collective, clock: Clock) -> Iterator[_Plan]:
    """List the plans that are compared for a collective between islands, those of one wave first.

    A plan is a scheme, a number of waves, and an order of these: in which rounds the phases of
    each wave are. Schemes are made while there is time, one at least: each lists the sends of an
    island.
    """
    schemes = list[Scheme]()
    for scheme in list_schemes(
        problem.operation, problem.n_ranks // problem.island, problem.island
    ):
        schemes.append(scheme)
        if clock.remaining_s <= 0.0:
            break
    for count in WAVES:  # the number of waves
        for scheme in schemes:
            # Without rails there is nothing that several waves could do at the same time.
            if count == 1 or scheme.shifts:
                # Each order has waves of equal or of falling sizes, whichever are faster.
                for wave_order in _list_wave_orders(problem.operation, scheme, count):
                    equal = _arrange(problem.operation, scheme, count, wave_order)
                    sizes = RATIO ** np.arange(count)
                    falling = equal._replace(waves=sizes / sizes.sum())
                    yield min(equal, falling, key=lambda plan: _time_s(problem, plan))


def _list_wave_orders(operation: str, scheme: Scheme, count: int) -> list[_WaveOrder]:
    """List the orders in time that are tried for parts of the data that follow each other.

    For two waves, a and b, and two phases, 1 and 2, the rounds are::

        round      0      1      2      3
        no mark    a1     b1     a2     b2
        together   a1 b1  a2     b2
        woven      a1     a2 b1  b2

    The third mark, ``mirrored``, is for all-reduces alone: the wave whose sums are ready first is
    gathered first, else the one whose sums are ready last.
    """
    # One wave follows nobody, so no mark makes a difference.
    if count == 1:
        return [_WaveOrder()]
    mirrorings = [False]
    if operation == "all-reduce":
        mirrorings = [False, True]
    orders = [
        _WaveOrder(together=together, mirrored=mirrored)
        for together in (False, True)
        for mirrored in mirrorings
    ]

    # In a woven order several phases share a round, so all phases must have the same circuits.
    if len(scheme.shifts) > 1 and len(set(scheme.shifts)) == 1:
        orders += [_WaveOrder(woven=True, mirrored=mirrored) for mirrored in mirrorings]
    return orders


def _optimise_wave_sizes(problem: Collective, plan: _Plan) -> _Plan:
    """Make a plan faster by other sizes of the parts into which the data are cut.

    A linear programme chooses the size of each wave and the length of each round. It minimises the
    sum of the lengths. Each round has to be long enough for its latency and for what each rank
    sends or receives in it.
    """
    with uncounted():
        from scipy.optimize import linprog

    count = len(plan.waves)
    if count == 1:
        return plan

    # One row of the programme for each round, medium and different load says that the round is
    # long enough: load * sizes + latency <= length. All times are parts of the present time of
    # the plan, so that the numbers are near 1.
    plan_s = _time_s(problem, plan)
    block_bytes = problem.size_bytes / problem.n_ranks
    rates_bytes_per_s = (problem.island_rate_bytes_per_s, problem.rate_bytes_per_s)
    latencies_s = (problem.island_alpha_s, problem.alpha_s)
    rows = list[NDArray[np.float64]]()
    limits = list[float]()
    for medium, latency_s in enumerate(latencies_s):
        # A load in blocks times `scale` is its time, in units of the time of the plan.
        scale = block_bytes / rates_bytes_per_s[medium] / plan_s
        for turn in range(plan.n_rounds):
            different = np.unique(plan.loads[medium, turn] * scale, axis=0)
            different = different[different.any(axis=1)]
            length_factors = np.zeros((len(different), plan.n_rounds))
            length_factors[:, turn] = -1
            rows.append(np.hstack([different, length_factors]))
            limits += [-latency_s / plan_s] * len(different)

    # The variables are the sizes of waves, then the lengths of rounds. `goal` is 0 for sizes and 1
    # for lengths, whose sum is minimised; 1 - goal is 1 for sizes, whose sum is 1. No wave
    # vanishes. The upper bounds, 9 and 10, are far above all values.
    variables_of_part = [count, plan.n_rounds]
    goal = np.repeat([0.0, 1.0], variables_of_part)
    lower = np.repeat([LEAST / count, 0.0], variables_of_part)
    bounds = np.column_stack([lower, goal + 9])
    result = linprog(goal, np.vstack(rows), limits, [1 - goal], [1.0], bounds=bounds)
    if result.status:  # the solver has found no solution
        return plan
    sizes = result.x[:count]
    resized = plan._replace(waves=sizes / sizes.sum())
    return min(plan, resized, key=lambda candidate: _time_s(problem, candidate))


def _arrange(operation: str, scheme: Scheme, count: int, wave_order: _WaveOrder) -> _Plan:
    """Choose the round of every send of a collective between islands, in `count` equal waves.

    Sums run backwards in time; an all-reduce has the sums and then the copies, put off until every
    wave is complete.
    """
    # The first pass: turns[move, wave] are the rounds of copies. Sums go backwards: of 5 rounds,
    # round 0 becomes round 4.
    forward = list(range(count))
    turns = _assign_rounds(scheme, forward, wave_order)
    passes = [(COPY, turns)]
    if operation in ("reduce-scatter", "all-reduce"):
        passes = [(REDUCE, turns.max() - turns)]

    # The second pass of an all-reduce copies the sums. complete[wave] is the round after the last
    # sum of a wave, and the wave must not be copied before. All copies are put off by the same
    # number of rounds, the least that is enough for all waves. Example: waves are complete in the
    # rounds 4 and 5, and their copies would begin in the rounds 0 and 1; all are put off by 4.
    if operation == "all-reduce":
        gather_order = forward
        if wave_order.mirrored:
            gather_order = forward[::-1]
        gather = _assign_rounds(scheme, gather_order, wave_order)
        complete = passes[0][1].max(axis=0) + 1
        passes.append((COPY, gather + (complete - gather.min(axis=0)).max()))

    # Add the blocks of each move to the round that it has in each wave.
    n_rounds = 1 + int(passes[-1][1].max())
    loads = np.zeros((2, n_rounds, len(scheme.loads[0]), count))
    shifts_of_turn: dict[int, Shifts] = {}
    for _, turns in passes:
        for move, load, turn_of_wave in zip(scheme.moves, scheme.loads, turns, strict=True):
            for wave, turn in enumerate(turn_of_wave.tolist()):
                loads[int(move.over), turn, :, wave] += load
            if move.over:
                shifts = scheme.shifts[move.phase]
                shifts_of_turn |= dict.fromkeys(turn_of_wave.tolist(), shifts)
    return _Plan(scheme, np.full(count, 1 / count), passes, loads, shifts_of_turn)


def _assign_rounds(scheme: Scheme, order: list[int], wave_order: _WaveOrder) -> NDArray[np.int64]:
    """Return the round of each move of a scheme, for each wave.

    `order` lists the waves in the order in which they take turns. The result is ``[move, wave]``,
    a round from 0 on. Each phase of a wave has one round on rails, and an earlier one in which
    islands copy inside themselves what these rails send. Fields of a move tell which it takes:

    - ``over``: its sends go over rails, in the round on rails;
    - ``early``: a copy that needs nothing of phases before, in the round just before these rails;
    - ``spare``: a copy that these rails do not wait for, and that may come one round later;
    - none of them: a copy in the round of copies.

    Example: one wave and one phase, whose rails wait for copies. Copies get round 0, the rails and
    spare copies round 1, and copies after the last phase round 2.
    """
    # rail_turn[phase, wave] and link_turn[phase, wave] are the rounds on rails and of copies. The
    # last row of link_turn is for copies after the last phase.
    phases = len(scheme.shifts)
    rail_turn = np.zeros((phases + 1, len(order)), dtype=np.int64)
    link_turn = np.zeros((phases + 1, len(order)), dtype=np.int64)
    if wave_order.woven:
        # Each wave starts one round after the wave before it, and goes on to its next phase at
        # once: wave k is k rounds behind the first one everywhere. Only a phase that waits for
        # its copies leaves the rails of the wave idle for a round.
        # (``waits[phase]`` adds 1).
        delay_of_wave = np.arange(len(order))
        last_turn = -1  # the round on rails of the first wave in the phase before
        for phase in range(phases):
            link_turn[phase, order] = last_turn + 1 + delay_of_wave
            last_turn += 1 + scheme.waits[phase]
            rail_turn[phase, order] = last_turn + delay_of_wave
    else:
        _line_up_phases(scheme, order, wave_order.together, rail_turn, link_turn)
    if phases:
        link_turn[phases] = rail_turn[phases - 1] + 1

    # A copy costs no time if rails carry another wave in the same round. There is no such wave if
    # all waves travel together, and no rails are in use before those of phase 0. Spare copies come
    # a round later then, while the rails of their own phase carry data.
    nothing_hides_it = wave_order.together or len(order) == 1
    turns: list[NDArray[np.int64]] = []
    for move in scheme.moves:
        turn = link_turn[move.phase]
        if move.over or move.early:
            turn = rail_turn[move.phase]
        if move.early:
            turn = turn - 1
        if move.spare and (nothing_hides_it or move.phase == 0):
            turn = turn + 1
        turns.append(turn)

    # Copies before the first rails can have round -1.
    from_zero: NDArray[np.int64] = np.array(turns) - np.min(turns)
    return from_zero


def _line_up_phases(
    scheme: Scheme,
    order: list[int],
    together: bool,
    rail_turn: NDArray[np.int64],
    link_turn: NDArray[np.int64],
) -> None:
    """Give rounds to parts of the data, one phase of all of them before the next phase.

    `order` lists the waves in the order in which they take turns; with `together` all share one
    round in each phase but the last. Writes ``rail_turn[phase, wave]`` and
    ``link_turn[phase, wave]``, the rounds of a wave on rails and inside islands. Islands copy one
    round after the phase before has brought the data. Rails take the next free round; if
    ``scheme.waits[phase]``, it has to come after the copies.

    Example: two waves, a and b, and two phases, of which the second one waits. While islands copy
    b, rails carry a, so that rails never idle; a single wave would leave them idle in round 1::

        round            0    1    2    3
        rails            a1   b1   a2   b2
        inside islands        a    b
    """
    phases = len(scheme.shifts)
    last_turn = -1  # the last round on rails until now
    for phase in range(phases):
        # A group is a list of waves that share the rounds of this phase.
        groups = [[wave] for wave in order]
        if together and phase < phases - 1:
            groups = [order]
        for waves in groups:  # waves that travel in the same round
            # Islands can prepare a phase when the phase before has brought the data.
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
    busiest_link, busiest_rail = (plan.loads @ plan.waves).max(axis=2)
    block_bytes = problem.size_bytes / problem.n_ranks
    rails_s = problem.alpha_s + busiest_rail * block_bytes / problem.rate_bytes_per_s
    rails_s *= busiest_rail > 0
    links_s = problem.island_alpha_s + busiest_link * block_bytes / problem.island_rate_bytes_per_s
    links_s *= busiest_link > 0

    return float(np.maximum(rails_s, links_s).sum()) + _changes_s(problem, plan)


def _changes_s(problem: Collective, plan: _Plan) -> float:
    """Return the seconds of all changes of circuits of a plan."""
    # Rounds without rails keep the circuits of the round before, so only those with rails count.
    circuits = [plan.shifts_of_turn[turn] for turn in sorted(plan.shifts_of_turn)]
    n_changes = sum(before != after for before, after in pairwise(circuits))
    return n_changes * problem.delay_s


def _bound_all_sizes_s(problem: Collective, plan: _Plan) -> float:
    """Bound the seconds of a plan whatever the sizes of its waves, which only move bytes about.

    Rails are busy for the latencies of their rounds and the bytes of their busiest end in all
    rounds together; so are links, and rounds of the other kind alone add their latencies.
    """
    block_bytes = problem.size_bytes / problem.n_ranks
    has_links, has_rails = np.asarray(plan.loads.any(axis=(2, 3)))
    # The blocks of an end in all rounds, the same in each wave as if it were all of the data.
    link_blocks, rail_blocks = plan.loads[..., 0].sum(axis=1).max(axis=1)
    rails_s = rail_blocks * block_bytes / problem.rate_bytes_per_s
    rails_s += problem.alpha_s * has_rails.sum()
    rails_s += problem.island_alpha_s * (has_links & ~has_rails).sum()
    links_s = link_blocks * block_bytes / problem.island_rate_bytes_per_s
    links_s += problem.island_alpha_s * has_links.sum()
    links_s += problem.alpha_s * (has_rails & ~has_links).sum()
    return float(max(rails_s, links_s)) + _changes_s(problem, plan)


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
    if problem.operation == "all-to-all":
        n_chunks *= problem.n_ranks

    # In each wave of a move the same sends are made, in another round and of other bytes. The
    # lists begin with empty arrays, because a plan may have no move at all.
    block_bytes = problem.size_bytes / problem.n_ranks
    first_byte_of_wave = block_bytes * (np.cumsum(plan.waves) - plan.waves)
    bytes_of_wave = block_bytes * plan.waves
    rows = [np.empty((0, 5), np.int64)]
    parts_of_rows = [np.empty((0, 2))]
    for kind, turns in plan.turns:
        for move, turn_of_wave in zip(plan.scheme.moves, turns, strict=True):
            source, target, chunk = _ends_and_chunks(problem, move, kind, stored_ranks)
            for wave, turn in enumerate(turn_of_wave.tolist()):
                columns = np.broadcast_arrays(turn, source, target, chunk, kind)
                rows.append(np.stack(columns, axis=-1).reshape(-1, 5))
                part = (first_byte_of_wave[wave], bytes_of_wave[wave])
                parts_of_rows.append(np.broadcast_to(part, (len(rows[-1]), 2)))

    # Plans list sends by ascending rounds. A plan of one wave sends whole blocks, and needs no
    # parts.
    sends = np.concatenate(rows)
    by_round = np.argsort(sends[:, 0], kind="stable")
    parts = None
    if len(plan.waves) > 1:
        parts = np.concatenate(parts_of_rows)[by_round]

    rounds = Rounds(
        sends[by_round],
        n_chunks,
        list(_list_rail_circuits(problem, plan)[:, None]),
        stored_ranks,
        parts=parts,
    )
    return lay(problem, rounds)


def _list_rail_circuits(problem: Collective, plan: _Plan) -> NDArray[np.int64]:
    """Return ``circuits[round, rank]``: the rank to which the rail of a rank leads, -1 if nowhere.

    Rounds that need no rails want none, but before the first rails, which are set up by then. With
    letters for the circuits of all ranks, the rounds ``- A - B`` become ``A A - B``.
    """
    # A rail leads some islands onward, to the same place there. With 3 islands of 2 ranks and the
    # shifts 1 and 0, rank 0 sends to 2, 2 to 4, 4 to 0, and ranks 1, 3 and 5 to nobody.
    islands = problem.n_ranks // problem.island
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
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Turn sends for the data of one island into the sends of all ranks for all data.

    The `kind` is COPY or REDUCE: sums are the copies of the move run backwards. For the data of
    island k all islands are counted from k. With 4 islands of 2 ranks, a copy from rank 1 of
    island 0 to rank 1 of island 1 becomes four sends: from rank 1 to 3, 3 to 5, 5 to 7, 7 to 1.

    The results are the sources, targets and chunks, each ``[island, row]``: the island whose data
    move, and the row of the move. If `stored_ranks` is 0, all islands are listed. Else it is the
    number of ranks of an island: the plan stores the chunks of island 0 alone, and the results
    have one row.
    """
    places = problem.island
    islands = problem.n_ranks // places
    # Arrays have a row for each island whose data move, and a column for each row of the move.
    data_island = np.arange(1 if stored_ranks else islands)[:, None]
    from_island, from_place, to_island, to_place, block = np.array(move.rows).T[:, None, :]

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
    if problem.operation != "all-to-all":
        return source, target, data_island * places + block
    owner_place, receiver = np.divmod(block, problem.n_ranks)
    receiver_island, receiver_place = np.divmod(receiver, places)
    receiver = (receiver_island + data_island) % islands * places + receiver_place
    return source, target, (data_island * places + owner_place) * problem.n_ranks + receiver

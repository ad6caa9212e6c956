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

from optmatch.model import Clock, uncounted
from optmatch.problems import Collective
from optmatch.problems.collectives.plan import COPY, REDUCE
from optmatch.solvers.collectives.plans import Laid, assemble
from optmatch.solvers.collectives.schemes import Move, Scheme, Shifts, list_schemes

WAVES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
"""Numbers of waves that are tried."""
RATIOS = (1.0, 0.85, 0.7, 0.55, 0.4, 0.25)
"""Ratios of the size of each wave to the one before that are tried."""
SIZED = 12
"""The number of fastest plans whose sizes of waves are optimised by a linear programme."""
LEAST = 0.05
"""The least size of a wave in that programme, as a part of the mean size."""
MOST_SENDS = 1 << 25
"""Plans of more sends are not laid out: they take more than six gigabytes."""
CHECKED_SENDS_PER_S = 1_000_000
"""Sends that are laid out and replayed in a second; half as many if they carry parts of blocks.
Measured: 1.0 to 1.3 million, of gathers and all-to-alls of 1,024 ranks on one core; with twice as
many a limit of 2 s is overrun by a second, with half as many only rings are left."""
SIMILAR = 1.75
"""A plan of one wave with so many times the sends of another one is never left out for it: an
all-to-all over several hops has more sends than one over single hops, but is many times faster."""
SMALLEST_RATIO = 1e-3
"""Geometric sizes are not tried if the last wave would be a smaller part of the first one."""


class _WaveOrder(NamedTuple):
    """How the waves of a plan follow each other."""

    together: bool = False
    """Whether all waves travel in one round in all phases but the last one; only there does each
    wave have a round of its own."""
    woven: bool = False
    """Whether a phase of one wave shares rounds with earlier phases of later waves."""
    mirrored: bool = False
    """Whether the waves of an all-reduce are gathered in the order in which their sums are ready,
    and the first and the last wave are the smallest."""


class _Plan(NamedTuple):
    """A scheme in waves, with the round of each move."""

    scheme: Scheme
    """What happens to the data of one island: circuits by phase, and moves."""
    waves: NDArray[np.float64]
    """Sizes of waves, shape (waves,), as parts of 1."""
    turns: list[tuple[int, NDArray[np.int64]]]
    """For each pass over the scheme its kind, COPY or REDUCE, and ``turn[move, wave]``, the round
    of each move. An all-reduce has two passes, other operations one."""
    n_rounds: int
    """The number of rounds of all passes together."""


def find_island_plan(problem: Collective, clock: Clock) -> tuple[Laid, bool]:
    """Return the fastest plan of all schemes, numbers of waves and orders of waves.

    Ranks of an island have fast links among them, and a rail each to other islands. A *scheme*
    says what happens to the data of one island: which rails lead how many islands onward, which
    blocks they carry in which phase, and what islands copy inside. The data may be cut into
    *waves*, which follow each other: while one is told inside islands, rails carry the next one.

    Parameters
    ----------
    problem
        A collective between islands of ``problem.island`` ranks each.
    clock
        Plans for which it leaves no time to lay them out and to replay them are left out, but for
        those of one wave that have about as few sends as any.

    Returns
    -------
    laid : Laid
        The plan of all ranks, timed.
    is_cut_short : bool
        Whether some plan was left out because there is not enough time, or memory, for it.
    """
    # A candidate is its time in seconds, its number and the plan. The number stands second, so
    # that equal times keep their order, and plans are not compared.
    candidates: list[tuple[float, int, _Plan]] = []
    is_cut_short = False
    for plan in _list_plans(problem):
        has_time = _effort_s(problem, plan) < clock.remaining_s
        is_first_look = len(plan.waves) == 1 and _has_few_sends(problem, plan, candidates)
        if has_time or is_first_look:
            candidates.append((_time_s(problem, plan), len(candidates), plan))
        else:
            is_cut_short = True
        # The search ends when there is just the time left to lay out the best plan.
        best = min(candidates)[-1]
        if len(plan.waves) > 1 and _effort_s(problem, best) > clock.remaining_s:
            is_cut_short = True
            break

    # Until here sizes of waves are geometric series. Linear programmes choose better ones, but
    # take long, so only the fastest candidates get them.
    fastest = [plan for _, _, plan in sorted(candidates)[:SIZED]]
    best = fastest[0]
    for plan in fastest:
        if _effort_s(problem, best) > clock.remaining_s:
            is_cut_short = True
            break
        resized = _optimise_wave_sizes(problem, plan)
        if _time_s(problem, resized) < _time_s(problem, best):
            best = resized
    return _lay_on_ranks(problem, best), is_cut_short


def _count_sends(problem: Collective, plan: _Plan) -> int:
    """Return the number of sends of all ranks that a plan for the data of one island stands for.

    The scheme of a plan says what happens to the data of one island. It has *moves*, sets of
    *rows*, each of which is one send. Every row becomes one send for each island (all do the
    same), for each *wave* (the parts into which data are cut), and for each *pass* over the scheme
    (one of sums and one of copies in an all-reduce, else one).
    """
    n_rows = sum(len(move.rows) for move in plan.scheme.moves)
    islands = problem.n_ranks // problem.island
    return n_rows * islands * len(plan.waves) * len(plan.turns)


def _effort_s(problem: Collective, plan: _Plan) -> float:
    """Estimate the CPU seconds to lay out a plan on all ranks and to replay it.

    A plan of several *waves*, which carry parts of blocks, takes twice as long for each send.

    Parameters
    ----------
    problem
        The collective, with the number of its islands.
    plan
        A plan for the data of one island.

    Returns
    -------
    float
        Seconds; infinite if the plan has more sends than memory should hold.
    """
    n_sends = _count_sends(problem, plan)
    if n_sends > MOST_SENDS:
        return math.inf
    work = n_sends
    if len(plan.waves) > 1:
        work = 2 * n_sends
    return work / CHECKED_SENDS_PER_S


def _has_few_sends(
    problem: Collective, plan: _Plan, candidates: list[tuple[float, int, _Plan]]
) -> bool:
    """Tell whether a plan has not many more sends than the candidate with the fewest sends.

    Such a plan is looked at even where there is hardly time for it, since it may be many times
    faster.

    Parameters
    ----------
    problem
        The collective, with the number of its islands.
    plan
        The plan in question, for the data of one island.
    candidates
        The plans so far, as triples of seconds, number and plan.

    Returns
    -------
    bool
        True if it has `SIMILAR` times the fewest sends at most, and if there are no candidates.
    """
    fewest = min((_count_sends(problem, other) for _, _, other in candidates), default=math.inf)
    return _count_sends(problem, plan) <= SIMILAR * fewest


def _list_plans(problem: Collective) -> Iterator[_Plan]:
    """Yield the plans of all schemes in all numbers and orders of waves, with sizes by a series.

    A *scheme* says what happens to the data of one island, and a *wave* is a part of all data that
    travels by itself. Sizes of waves are a geometric series. Among plans that differ in the ratio
    of the series alone, only the fastest is yielded. Plans of few waves come first: they have the
    fewest sends, and a short limit should have seen each scheme once.

    Parameters
    ----------
    problem
        A collective between islands of ``problem.island`` ranks each.

    Yields
    ------
    _Plan
        A scheme, the sizes of its waves, and the round of each of its sets of sends by wave.
    """
    operation = problem.operation
    islands = problem.n_ranks // problem.island
    schemes = list(list_schemes(operation, islands, problem.island))
    for count in WAVES:  # the number of waves
        for scheme in schemes:
            # Without rails there is nothing that several waves could do at the same time.
            if count > 1 and not scheme.shifts:
                continue
            for wave_order in _list_wave_orders(operation, scheme, count):
                plans = _list_geometric_plans(operation, scheme, count, wave_order)
                yield min(plans, key=lambda plan: _time_s(problem, plan))


def _list_wave_orders(operation: str, scheme: Scheme, count: int) -> list[_WaveOrder]:
    """List the orders of `count` waves that are tried for a scheme.

    Waves are parts of the data that travel by themselves, and a *phase* is a stage in which each
    block goes over one circuit between islands at most. An order has three marks:

    - ``together``: all waves share one round in each phase but the last; only in the last phase
      they follow each other. If it is false, they follow each other in all phases;
    - ``woven``: while one wave is in a phase, later waves are in earlier phases in the same round;
    - ``mirrored``, of all-reduces alone: waves are gathered in the order in which their sums are
      ready. If it is false they are gathered in the opposite order, since sums run backwards.

    Example: two waves, and two phases for which nothing has to be copied. Without marks the two
    waves have the rounds 0 and 1 in the first phase, then 2 and 3. Together they have both round
    0, then 1 and 2. Woven they have 0 and 1, then 1 and 2.

    Parameters
    ----------
    operation
        The name of the collective.
    scheme
        Has the circuits of each phase, ``scheme.shifts``.
    count
        The number of waves; one wave has one order.

    Returns
    -------
    list of _WaveOrder
        All combinations of marks that are possible.
    """
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

    # Phases can share a round, and waves be woven, only if all phases use the same circuits.
    if len(scheme.shifts) > 1 and len(set(scheme.shifts)) == 1:
        orders += [_WaveOrder(woven=True, mirrored=mirrored) for mirrored in mirrorings]
    return orders


def _list_geometric_plans(
    operation: str, scheme: Scheme, count: int, wave_order: _WaveOrder
) -> list[_Plan]:
    """List plans of `count` waves whose sizes are geometric series, one for each of `RATIOS`.

    *Waves* are parts of the data that travel by themselves. With the ratio 0.5 each wave is half
    as large as the one before it. Ratios with which the last wave would be less than
    `SMALLEST_RATIO` of the first one are left out; one wave needs one ratio only.

    Parameters
    ----------
    operation
        The name of the collective.
    scheme
        The ways of the data of one island: circuits by phase, and sets of sends.
    count
        The number of waves.
    wave_order
        How the waves follow each other: whether they share rounds, and in which order they come.

    Returns
    -------
    list of _Plan
        The scheme with the sizes of its waves and the round of each set of sends of each wave.
    """
    if count == 1:
        return [_arrange(operation, scheme, count, RATIOS[0], wave_order)]
    return [
        _arrange(operation, scheme, count, ratio, wave_order)
        for ratio in RATIOS
        if ratio ** (count - 1) >= SMALLEST_RATIO
    ]


def _optimise_wave_sizes(problem: Collective, plan: _Plan) -> _Plan:
    """Choose the sizes of waves with which the same rounds take the least time in all.

    A wave is a part of all blocks that travels by itself. The linear programme has the sizes of
    waves and the lengths of rounds as variables, the latter in units of the time of the plan. It
    minimises the sum of the lengths; the load of each place in a round, and the latency, have to
    fit into the length of the round.

    Parameters
    ----------
    problem
        The collective, with the rates and latencies of rails and of links inside islands.
    plan
        The plan: the round of each move (a set of sends) of each wave, which stays; the sizes of
        waves as parts of 1; and the load of each move, in blocks that a place sends or receives.

    Returns
    -------
    _Plan
        The same rounds with the best sizes of waves; the plan as it was if the programme fails
        or its sizes are not faster.
    """
    with uncounted():
        from scipy.optimize import linprog

    count = len(plan.waves)
    if count == 1:
        return plan

    # loads[medium, round, end, wave] in blocks: the medium is 0 for links inside islands and 1 for
    # rails, the circuits between islands; an end is a place of an island (the number of a rank in
    # it) as a sender, or a place as a receiver. It is the load if a wave were the whole of its
    # blocks.
    loads = np.zeros((2, plan.n_rounds, len(plan.scheme.loads[0]), count))
    for _, turns in plan.turns:
        for move, load, turn_of_wave in zip(
            plan.scheme.moves, plan.scheme.loads, turns, strict=True
        ):
            for wave, turn in enumerate(turn_of_wave.tolist()):
                loads[int(move.over), turn, :, wave] += load

    # One row for each round, medium and different load: load * sizes - length <= -latency.
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
            different = np.unique(loads[medium, turn] * scale, axis=0)
            different = different[different.any(axis=1)]
            length_factors = np.zeros((len(different), plan.n_rounds))
            length_factors[:, turn] = -1
            rows.append(np.hstack([different, length_factors]))
            limits += [-latency_s / plan_s] * len(different)

    # The variables are the sizes of waves, then the lengths of rounds; `goal` is 0 for the former
    # and 1 for the latter, so 1 - goal adds up the sizes. These sum up to 1, no wave vanishes, and
    # no variable gets anywhere near its upper bound.
    variables_of_part = [count, plan.n_rounds]
    goal = np.repeat([0.0, 1.0], variables_of_part)
    lower = np.repeat([LEAST / count, 0.0], variables_of_part)
    bounds = np.column_stack([lower, goal + 9])
    result = linprog(goal, np.vstack(rows), limits, [1 - goal], [1.0], bounds=bounds)
    if result.status:
        return plan
    sizes = result.x[:count]
    resized = plan._replace(waves=sizes / sizes.sum())
    return min(plan, resized, key=lambda candidate: _time_s(problem, candidate))


def _arrange(
    operation: str, scheme: Scheme, count: int, ratio: float, wave_order: _WaveOrder
) -> _Plan:
    """Give each move of each wave its round, in one or two passes over a scheme.

    A *scheme* says what happens to the data of one island: its *moves* are groups of sends that
    are made together, each over circuits between islands or inside islands. The data are cut into
    *waves*, which are parts of every block that travel by themselves. A *pass* makes every move
    once for every wave.

    A gather or an exchange is one pass of copies. A reduce-scatter is a gather that runs
    backwards: its last round comes first, and every send goes the other way and is added up. An
    all-reduce is both: a pass of sums, then a pass of copies, which begins as early as possible,
    such that each wave is gathered only after the last round that sums it up.

    Parameters
    ----------
    operation
        The name of the collective: ``"all-gather"``, ``"reduce-scatter"``, ``"all-reduce"`` or
        ``"all-to-all"``.
    scheme
        The circuits by phase (a stage in which circuits stay), and the moves of each phase.
    count
        The number of waves.
    ratio
        The size of each wave, relative to the one before; if mirrored, to its neighbour towards
        the middle.
    wave_order
        How waves follow each other. If it is mirrored, the pass of copies of an all-reduce takes
        the waves in the opposite order, and the first and the last wave are the smallest.

    Returns
    -------
    _Plan
        The scheme; the sizes of its waves, as parts of 1; for each pass its kind (COPY or REDUCE)
        and ``turn[move, wave]``, the rounds of its moves, counted from the start of the first
        pass; and the number of rounds of all passes.
    """
    # A mirrored order has its largest waves in the middle, any other its largest wave first.
    distances = [float(wave) for wave in range(count)]
    if wave_order.mirrored:
        middle = (count - 1) / 2
        distances = [abs(wave - middle) for wave in range(count)]
    sizes = np.array([ratio**distance for distance in distances])

    # A reduce-scatter counts the rounds of the gather from its end.
    forward = list(range(count))
    turns = _assign_rounds(scheme, forward, wave_order)
    passes = [(COPY, turns)]
    if operation in ("reduce-scatter", "all-reduce"):
        passes = [(REDUCE, turns.max() - turns)]

    # The sums of an all-reduce are gathered, each wave no earlier than its sums are complete. One
    # number of rounds is added to the whole gather: the least that is enough for all waves.
    if operation == "all-reduce":
        gather_order = forward
        if wave_order.mirrored:
            gather_order = forward[::-1]
        gather = _assign_rounds(scheme, gather_order, wave_order)
        complete = passes[0][1].max(axis=0) + 1
        passes.append((COPY, gather + (complete - gather.min(axis=0)).max()))
    n_rounds = 1 + int(passes[-1][1].max())
    return _Plan(scheme, sizes / sizes.sum(), passes, n_rounds)


def _assign_rounds(scheme: Scheme, order: list[int], wave_order: _WaveOrder) -> NDArray[np.int64]:
    """Return the round of each move of each wave of a gather or an exchange.

    *Rails* are circuits between islands, and *links* join the ranks inside an island. A *phase* is
    a stage in which each block takes one rail at most, and a *wave* is a part of the data that
    travels by itself. A *move* is a group of sends of a phase, all over rails or all over links.
    Each wave has in each phase a round on rails, and a round on links in which islands prepare it
    by copying what the phase before has brought. Its moves take these rounds as follows:

    - a move over rails (``move.over``) takes the round on rails;
    - an ``early`` move, a copy that needs nothing from earlier phases, the round before that;
    - any other copy the round on links;
    - a ``spare`` move, a copy that the rails of its phase do not need, one round more if otherwise
      the rails would have to wait for it: in the first phase, and where no rounds of other waves
      lie in between.

    Parameters
    ----------
    scheme
        The moves; the circuits of each phase; and for each phase whether its rails wait for
        copies inside islands.
    order
        The numbers of the waves, in the order in which rails carry them.
    wave_order
        If it is ``together``, all waves of a phase but the last phase travel in one round; if it
        is ``woven``, a phase of one wave shares rounds with earlier phases of later waves; if it
        is neither, rails carry each phase of one wave after another, and then the next phase.

    Returns
    -------
    int array, shape (moves, waves)
        The round of each move of each wave; the first round is 0.
    """
    # rail_turn[phase, wave] and link_turn[phase, wave]: each phase of each wave has one round on
    # rails, and one in which islands prepare it. The last row is for copies after the last phase.
    phases = len(scheme.shifts)
    rail_turn = np.zeros((phases + 1, len(order)), dtype=np.int64)
    link_turn = np.zeros((phases + 1, len(order)), dtype=np.int64)
    if wave_order.woven:
        _weave_phases(scheme, order, rail_turn, link_turn)
    else:
        _line_up_phases(scheme, order, wave_order.together, rail_turn, link_turn)
    if phases:
        link_turn[phases] = rail_turn[phases - 1] + 1

    # A move that the next phase does not need gets the next round, unless rails carry other waves
    # in the meantime and hide it.
    nothing_hides_it = wave_order.together or len(order) == 1
    turns: list[NDArray[np.int64]] = []
    for move in scheme.moves:
        turn = link_turn[move.phase]
        if move.over or move.early:
            turn = rail_turn[move.phase]
        # An early copy stands right before the rails that carry what it copies.
        if move.early:
            turn = turn - 1
        if move.spare and (nothing_hides_it or move.phase == 0):
            turn = turn + 1
        turns.append(turn)

    # Copies before the first rails can have round -1.
    from_zero: NDArray[np.int64] = np.array(turns) - np.min(turns)
    return from_zero


def _weave_phases(
    scheme: Scheme,
    order: list[int],
    rail_turn: NDArray[np.int64],
    link_turn: NDArray[np.int64],
) -> None:
    """Give rounds to waves, such that phases of different waves share the rounds of rails.

    *Rails* are circuits between islands. A *phase* is a stage of a scheme in which each block
    takes one rail at most; before it, islands may have to copy blocks to the ranks whose rails
    carry them. Each wave, a part of the data that travels by itself, starts one round after the
    wave before it, and goes on to its next phase at once. Two waves and two phases, in which rails
    need not wait for islands, have the rounds 0 and 1 on rails in the first phase, and 1 and 2 in
    the second one.

    Parameters
    ----------
    scheme
        What happens to the data of one island; all phases have the same circuits.
        ``scheme.waits[phase]`` says whether rails wait for copies inside islands before a phase.
    order
        The waves in the order in which they start.
    rail_turn, link_turn
        Int arrays, shape (phases + 1, waves): the round in which rails (circuits between islands)
        carry a wave in a phase, and the round in which islands prepare it by copies. All rows but
        the last one are written.
    """
    # Wave k is k rounds behind the first one everywhere.
    delay_of_wave = np.arange(len(order))
    last_turn = -1  # the round on rails of the first wave in the phase before
    for phase in range(len(scheme.shifts)):
        link_turn[phase, order] = last_turn + 1 + delay_of_wave
        last_turn += 1 + scheme.waits[phase]
        rail_turn[phase, order] = last_turn + delay_of_wave


def _line_up_phases(
    scheme: Scheme,
    order: list[int],
    together: bool,
    rail_turn: NDArray[np.int64],
    link_turn: NDArray[np.int64],
) -> None:
    """Give rounds to waves, such that rails carry a phase of all waves before the next phase.

    Data are cut into *waves* that travel by themselves. In each *phase* a wave goes over *rails*,
    the circuits between islands, from islands that have it to others. Before that, islands
    *prepare* the phase: they copy the wave to the ranks whose rails will carry it. They can do
    that one round after the phase before has brought the wave. Rails take the next round that is
    free; but if ``scheme.waits[phase]``, one after the preparation at the earliest.

    Example: two waves and two phases, of which the second one waits. The two waves have the rounds
    0 and 1 on rails in the first phase. Islands prepare the second phase in the rounds 1 and 2,
    one round after each wave has come, and rails carry it in the rounds 2 and 3. While islands
    prepare wave 1, rails carry wave 0, so nobody waits. A single wave would have round 0 on rails,
    then round 1 inside islands, in which rails idle, and round 2 on rails.

    Parameters
    ----------
    scheme
        The circuits of each phase, and for each phase whether its rails wait for copies.
    order
        The numbers of the waves, in the order in which rails carry them.
    together
        Whether all waves travel in the same round in all phases but the last one; in the last
        one, each wave has a round of its own.
    rail_turn, link_turn
        Int arrays, shape (phases + 1, waves): the round in which rails carry a wave in a phase,
        and the round in which islands prepare it. All rows but the last one are written.
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
    """Return the seconds that a plan takes, reconfigurations between its rounds included.

    A round lasts until both its rails and its links are done: the latency, and the bytes of the
    busiest place over the rate. The delay counts where circuits change between two rounds.

    Parameters
    ----------
    problem
        The collective, with the rates and latencies of rails and of links inside islands.
    plan
        The round of each move (a set of sends) of each wave (a part of all blocks) in each pass
        over the scheme, the sizes of waves as parts of 1, and the load of each move: how many
        blocks each place of an island sends and receives in it.

    Returns
    -------
    float
        The sum of the lengths of all rounds, and of one delay for each change of circuits between
        rounds that use rails, the circuits between islands.
    """
    # Blocks by round and end of a transfer: the places of an island (numbers of ranks in it) as
    # senders, then as receivers. Rails are circuits between islands, links are inside them.
    ends = len(plan.scheme.loads[0])
    rail_blocks = np.zeros((plan.n_rounds, ends))
    link_blocks = np.zeros((plan.n_rounds, ends))
    shifts_of_turn: dict[int, Shifts] = {}
    for _, turns in plan.turns:
        for move, load, turn in zip(plan.scheme.moves, plan.scheme.loads, turns, strict=True):
            blocks_of_wave = plan.waves[:, None] * load
            if move.over:
                np.add.at(rail_blocks, turn, blocks_of_wave)
                shifts_of_turn |= dict.fromkeys(turn.tolist(), plan.scheme.shifts[move.phase])
            else:
                np.add.at(link_blocks, turn, blocks_of_wave)

    block_bytes = problem.size_bytes / problem.n_ranks
    busiest_rail = rail_blocks.max(axis=1)
    busiest_link = link_blocks.max(axis=1)
    rails_s = problem.alpha_s + busiest_rail * block_bytes / problem.rate_bytes_per_s
    rails_s *= busiest_rail > 0
    links_s = problem.island_alpha_s + busiest_link * block_bytes / problem.island_rate_bytes_per_s
    links_s *= busiest_link > 0

    # Rounds without rails keep the circuits of the round before, so only those with rails count.
    circuits = [shifts_of_turn[turn] for turn in sorted(shifts_of_turn)]
    changes = sum(before != after for before, after in pairwise(circuits))
    return float(np.maximum(rails_s, links_s).sum() + changes * problem.delay_s)


def _lay_on_ranks(problem: Collective, plan: _Plan) -> Laid:
    """Make the sends and circuits of all ranks from a plan for the data of one island.

    A plan says how the data of one island travel, with islands counted from that one. All islands
    do the same at the same time, so each send of the plan is copied once for each island that
    owns data, with all island numbers shifted by the number of the owner.

    Parameters
    ----------
    problem
        The collective.
    plan
        ``plan.scheme``, whose *moves* are groups of sends over *rails* (circuits between islands)
        or inside islands; ``plan.waves``, the sizes of the parts into which each block is cut, as
        parts of 1; and ``plan.turns``, for each pass over the moves its kind, COPY or REDUCE, and
        ``turn[move, wave]``, the round of each move and wave.

    Returns
    -------
    Laid
        The plan of all ranks, timed, with the seconds for which each configuration of circuits is
        held.
    """
    # A chunk of an all-to-all goes from one rank to one other; else it is the data of one rank.
    n_chunks = problem.n_ranks
    if problem.operation == "all-to-all":
        n_chunks = problem.n_ranks**2
    sends, parts = _list_sends_of_ranks(problem, plan)

    # Only changes of circuits are listed: a configuration stays until the next one.
    circuits = _fill_rounds_without_rails(problem, _list_rail_circuits(problem, plan))
    is_change = np.append(True, (np.diff(circuits, axis=0) != 0).any(axis=1))

    # Plans list sends by ascending rounds. A plan of one wave sends whole blocks, and needs no
    # parts.
    by_round = np.argsort(sends[:, 0], kind="stable")
    sorted_parts = None
    if len(plan.waves) > 1:
        sorted_parts = parts[by_round]
    return assemble(
        problem,
        sends[by_round],
        n_chunks,
        circuits[is_change][:, None],
        np.cumsum(is_change) - 1,
        parts=sorted_parts,
    )


def _list_sends_of_ranks(
    problem: Collective, plan: _Plan
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """List the sends of all ranks, wave by wave, and the bytes of its chunk that each one takes.

    Parameters
    ----------
    problem
        The collective.
    plan
        The plan for the data of one island. It has one or two *passes* over the moves of its
        scheme: copies, or the same sends backwards, which add up. In each pass every *move* (a set
        of sends) has a round for each *wave* (a part of all blocks). ``plan.turns`` lists for each
        pass its kind, COPY or REDUCE, and ``turn[move, wave]``, the rounds.

    Returns
    -------
    sends : int array, shape (sends, 5)
        Rows of round, source, destination, chunk and kind, in no order of rounds.
    parts : float array, shape (sends, 2)
        The first byte of the wave in its chunk, and the bytes of the wave.
    """
    block_bytes = problem.size_bytes / problem.n_ranks
    first_byte_of_wave = block_bytes * (np.cumsum(plan.waves) - plan.waves)
    bytes_of_wave = block_bytes * plan.waves

    # Each wave of each move becomes a batch of sends, one for each island and row of the move. The
    # lists begin with empty arrays, because a plan may have no move at all.
    sends = [np.empty((0, 5), np.int64)]
    parts = [np.empty((0, 2))]
    for kind, turns in plan.turns:
        for move, turn_of_wave in zip(plan.scheme.moves, turns, strict=True):
            source, target, chunk = _ends_and_chunks(problem, move, kind)
            for wave, turn in enumerate(turn_of_wave.tolist()):
                columns = np.broadcast_arrays(turn, source, target, chunk, kind)
                rows = np.stack(columns, axis=-1).reshape(-1, 5)
                sends.append(rows)
                part = (first_byte_of_wave[wave], bytes_of_wave[wave])
                parts.append(np.broadcast_to(part, (len(rows), 2)))
    return np.concatenate(sends), np.concatenate(parts)


def _list_rail_circuits(problem: Collective, plan: _Plan) -> NDArray[np.int64]:
    """Return the circuits between islands that each round uses; -1 in rounds inside islands.

    A round with rails has the circuits of the *phase* (a stage of the scheme with fixed circuits)
    that its moves over rails belong to: all moves over rails of a round agree on them. A *rail* is
    the one circuit of a rank to another island, and a *move* is a set of sends.

    Parameters
    ----------
    problem
        The collective, with its ranks and islands.
    plan
        ``plan.turns`` lists for each pass over the moves its kind and ``turn[move, wave]``, the
        round of each move for each wave (a part of the data); ``plan.scheme.shifts[phase]`` says
        how many islands onward rails lead.

    Returns
    -------
    int array, shape (rounds, ranks)
        ``circuits[round, rank]``: the rank to which the rail of a rank leads.
    """
    circuits = np.full((plan.n_rounds, problem.n_ranks), -1)
    for _, turns in plan.turns:
        for move, turn_of_wave in zip(plan.scheme.moves, turns, strict=True):
            if move.over:
                circuits[turn_of_wave] = _peers_over_rails(problem, plan.scheme.shifts[move.phase])
    return circuits


def _ends_and_chunks(
    problem: Collective, move: Move, kind: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the sources, destinations and chunks of a move, for the data of every island.

    A *move* is a set of sends that are made together. Each is a row of source island and place,
    destination island and place, and block, where a *place* is the number of a rank in its island.
    All islands do the same, so each row stands for one send for the data of each island.

    Parameters
    ----------
    problem
        The collective.
    move
        Sends that concern the data of one island; its islands count from that one.
    kind
        COPY, or REDUCE for sends backwards.

    Returns
    -------
    source, target, chunk : int arrays, shape (islands, rows of the move)
        Sources and destinations are ranks. A chunk of an all-to-all is ``sender * ranks +
        receiver``; other chunks have the number of the rank that owns them.
    """
    places = problem.island
    islands = problem.n_ranks // places
    # Arrays have a row for each island whose data move, and a column for each row of the move.
    data_island = np.arange(islands)[:, None]
    from_island, from_place, to_island, to_place, block = np.array(move.rows).T[:, None, :]

    # Sums count islands the other way, so that they go over the same circuits as copies.
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


def _peers_over_rails(problem: Collective, shifts: Shifts) -> NDArray[np.int64]:
    """Return the rank to which each rank sends over its rail, its one circuit to another island.

    Parameters
    ----------
    problem
        The collective. The rank at a *place* of an island has the number ``island * places +
        place``.
    shifts
        ``shifts[place]``: how many islands onward the rail of a place leads, to the same place
        there. A multiple of the number of islands leads nowhere.

    Returns
    -------
    int array, shape (ranks,)
        ``peer[rank]``; -1 for nobody.
    """
    places = problem.island
    islands = problem.n_ranks // places
    shift_of_place = np.array(shifts)
    island = np.arange(islands)[:, None]
    peer = (island + shift_of_place) % islands * places + np.arange(places)
    return np.where(shift_of_place % islands == 0, -1, peer).reshape(-1)


def _fill_rounds_without_rails(
    problem: Collective, circuits: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Let rounds inside islands keep the circuits that are up, as nothing has to change for them.

    Parameters
    ----------
    problem
        The collective. ``problem.start`` has the circuits that are up at the start, or is a word
        where there are none that count.
    circuits
        ``circuits[round, rank]``: the peer of each rank, -1 in all places of rounds without rails.

    Returns
    -------
    int array, shape (rounds, ranks)
        Rounds without rails have the circuits of the last round with rails, or of the first one
        with rails where none is before; without any rails, those of the start of the problem.
    """
    n_rounds = len(circuits)
    with_rails = np.flatnonzero((circuits >= 0).any(axis=1))
    if len(with_rails):
        # The place of the last round with rails up to each round; -1 before the first one.
        last = np.searchsorted(with_rails, np.arange(n_rounds), "right") - 1
        return circuits[with_rails[np.maximum(last, 0)]]
    if isinstance(problem.start, str):
        return circuits
    return np.repeat(problem.start.astype(np.int64), n_rounds, axis=0)

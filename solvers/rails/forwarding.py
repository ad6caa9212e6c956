"""Plans that forward data over circuits of a rail: which circuits stay, and which changes pay.

The step is folded to one rail, whose GPUs are *seats*. A *bundle* is some ports of every GPU with
equal circuits: those of a *ring*, a permutation of the seats, or of a *chord*, which leads some
places further on in each group of an all-to-all. A circuit has the number of the seat where it
ends, plus the number of seats if that is in the next replica. A *relay* is a GPU that forwards
data of others. The *turn* of a relay is how many replicas further on it is than the sender.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, Limit, check_time
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan, find_step_end
from optmatch.solvers.rails.choices import Decoder, Search
from optmatch.solvers.rails.chords import route_exchange
from optmatch.solvers.rails.decoder import CHORDS, EXCHANGE, RailChoice, RailLayout, Result, trace
from optmatch.solvers.rails.paths import Ints
from optmatch.solvers.rails.replicas import find_replicas
from optmatch.solvers.rails.seats import Seats, seat_ranks
from optmatch.solvers.rails.timetable import Changes, list_timelines

_WORK = 6e9
"""Nodes and circuits that a search looks at in all."""
_PLANNED_PER_S = 5e6
"""Operations of a step whose plan is made and spelled out, and that is bounded, in a second: the 2
millions of DeepSeek-V3 on 1,024 GPUs take 0.33 s, without relays."""
_MOST_TRIALS = 180_000
"""The plans that a search tries."""
_MOST_NODES = 1_600_000
"""The most operations of a step, by rail, of one replica if the job is split into several. This is
a limit of memory (`optmatch.solvers.rails.replicas`); work is limited apart, by `_WORK`."""


def plan_forwarded(
    job: RailJob,
    known_s: float,
    rng: np.random.Generator,
    most: int | None = None,
    *,
    share: float = 1.0,
    is_last: bool = True,
) -> Iterator[RailPlan]:
    """Find a plan with forwarding that is faster than a known one, by random local search.

    Regular choices are tried first, with several orders of the GPUs on the rings; then the best
    one is changed at random, again and again. Yields one plan; none if no choice is faster than
    `known_s`, which is infinite if no plan is known, or if `can_forward` is False. If the search
    is interrupted or runs out of time, the plan comes first, and then the exception goes on.

    Parameters
    ----------
    most
        How many choices are tried; None for as many as the work of a search allows.
    share
        The part of the usual work that is done, from 0 to 1.
    is_last
        Whether no other search follows. Else half of the work, and of the time that there is, is
        left to the next one.
    """
    if not can_forward(job):
        return
    seats = seat_ranks(job)
    check_time()

    # The search ends early enough to make a plan of its best choice and to bound the step. If
    # another search follows, half of the time and of the work is left for that.
    spare_s = job.step().n_operations / _PLANNED_PER_S
    search = Search(seats, rng, spare_s, known_s)
    if not is_last:
        search.spare_s += search.clock.remaining_s / 2
        share /= 2

    # The best choice is made into a plan even if the search was interrupted or ran out of time:
    # the exception goes on after that.
    try:
        search.run(_MOST_TRIALS if most is None else most, share * _WORK)
        if search.clock.exceeded(search.tried) is Limit.ITERATIONS:
            search.clock.cut_by = Limit.ITERATIONS
    finally:
        if search.best is not None:
            yield _make_plan(search.decoder, search.best)


def can_forward(job: RailJob) -> bool:
    """Tell whether the kernel of this search serves a job.

    True if ports have one direction, all collectives go around rings, each rank is on one rail at
    most, and the step fits into memory; of a large job, the step of one replica. False as well if
    no communication rides a rail.
    """
    step = job.step()
    if job.fabric is not None and job.fabric.bidirectional:
        return False
    groups = [group for group in step.groups if group.rail >= 0]
    seats = {(rank, group.rail) for group in groups for rank in group.ranks}
    n_rails = len({group.rail for group in groups})
    if step.n_operations > _MOST_NODES * n_rails * find_replicas(job).n_all:
        return False

    # No communication rides a rail; or a rank has ports on several rails, which makes more pairs
    # of a rank and a rail than ranks.
    if not seats or len({rank for rank, _ in seats}) < len(seats):
        return False
    return not any(
        job.collectives.get(group.dimension, "ring") != "ring" and len(group.ranks) > 2
        for group in groups
    )


def _make_plan(decoder: Decoder, choice: RailChoice) -> RailPlan:
    """Make the plan of a choice, which has no states of cells yet.

    The plan has the operations `Folded.own`, those of one rank of all that do the same, as its
    `like` says. The schedule is written to ``decoder.result``.
    """
    seats = decoder.seats
    folded = seats.folded

    # The choice is timed twice: the first run counts its changes of circuits, the second notes
    # them.
    _, n_changes = decoder.run(choice)
    decoder.run(choice, np.inf, n_changes)
    result = decoder.result

    # GPUs that forward on one rail, as rows of (row of the operation, seat, ports, turn).
    layout = choice.layout
    forwarding = np.empty((decoder.n_forwarding, 4), np.int64)
    mark = np.full(seats.n_seats, -1)
    trace(seats.nodes, seats.row, result, layout.next_seat, mark, forwarding)

    # The ports of operations as bits; those beside rails use none. ``folded.nodes[row]`` is the
    # node of an operation.
    rides = seats.job.step().rail[folded.own] >= 0
    ports_of_row = np.where(rides, result.ports[folded.nodes], 0).astype(np.int32)

    # How all-to-alls are routed over chords, once for each number of members, ascending.
    is_over_chords = (seats.nodes.how == EXCHANGE) & (result.ring == CHORDS)
    sizes = seats.n_members[is_over_chords]
    routes = [route_exchange(layout.stride.tolist(), n) for n in np.unique(sizes).tolist()]

    # Bundles take the ports of a GPU in turn: with widths 3 and 1, port 3 is that of bundle 1. A
    # circuit joins ports of one number.
    bundle_of_port = np.repeat(np.arange(len(layout.width)), layout.width).tolist()
    bundles = [(bundle, port, port) for port, bundle in enumerate(bundle_of_port)]
    timelines = list_timelines(seats, _list_changes(seats, result, layout), bundles)

    return RailPlan(
        rails=timelines,
        start_s=result.start_s[folded.nodes],
        end_s=result.end_s[folded.nodes],
        ports=ports_of_row,
        step_s=find_step_end(timelines, result.end_s, seats.job.network.delay_s),
        relays=_spread_relays(seats, forwarding),
        chords=tuple(chords for chords in routes if chords is not None),
        like=folded.like,
    )


def _spread_relays(seats: Seats, rows: Ints) -> NDArray[np.int32]:
    """Copy relays, GPUs that forward data of others, from the folded step to all ranks.

    The columns of `rows` are those of `trace`: the operation of the sender (its row in
    `Folded.own`), the seat that forwards, its ports as bits, and the turn: how many replicas
    further on the seat that forwards is. The columns of the result are the operation and the rank
    that forwards, both of the whole step, and the ports as bits; it is sorted by operation.
    """
    # Rows name operations of the first rank of a seat, which stand seat by seat. All other ranks
    # of the seat have the operation at the same place in their programs. The rows of seat s are
    # those from ``first_row[s]`` to ``first_row[s + 1]``.
    step = seats.job.step()
    folded = seats.folded
    row, forwarding_seat, ports, turn = rows[np.argsort(rows[:, 0], kind="stable")].T
    operation = folded.own[row]
    first_rank = step.rank[operation]
    place_in_program = operation - step.rank_start[first_rank]
    first_row = np.searchsorted(folded.class_of[first_rank], np.arange(seats.n_seats + 1))

    # The ranks of seat s stand together in `ranks`, from ``first_of_seat[s]`` on, in the order of
    # their rails, and on a rail in that of their replicas. Each is a copy of the seat, with a
    # number from 0; with four replicas on each rail, copies 0 to 3 are those on the first rail and
    # 4 to 7 those on the second one. By rank the first copy on its rail is kept: 0 or 4.
    ranks = np.lexsort([seats.replica_of, seats.rail_of, folded.class_of])
    first_of_seat = np.searchsorted(folded.class_of[ranks], np.arange(seats.n_seats))
    first_copy_on_rail = np.empty(step.n_ranks, np.int64)
    first_copy_on_rail[ranks] = np.arange(step.n_ranks) - first_of_seat[folded.class_of[ranks]]
    first_copy_on_rail -= seats.replica_of

    # Ranks are gone through in their order, so that relays are sorted by operation: they are the
    # largest part of a plan, and there is no second copy of them.
    relays = np.empty((np.diff(first_row)[folded.class_of].sum(), 3), np.int32)
    n_relays = 0
    for rank, seat in enumerate(folded.class_of.tolist()):
        rows_of_rank = slice(first_row[seat], first_row[seat + 1])
        relays_of_rank = relays[n_relays : n_relays + first_row[seat + 1] - first_row[seat]]
        n_relays += len(relays_of_rank)

        # The rank that forwards is on the same rail, `turn` replicas further on. With four
        # replicas, copy 7 is of replica 3 on the second rail, whose first copy is 4. With turn 1
        # the data go on over replica (3 + 1) % 4 = 0 of this rail, which is copy 4 + 0.
        forwarding_replica = (seats.replica_of[rank] + turn[rows_of_rank]) % seats.n_replicas
        forwarding_copy = first_copy_on_rail[rank] + forwarding_replica
        first_of_forwarding_seat = first_of_seat[forwarding_seat[rows_of_rank]]
        relays_of_rank[:, 0] = step.rank_start[rank] + place_in_program[rows_of_rank]
        relays_of_rank[:, 1] = ranks[first_of_forwarding_seat + forwarding_copy]
        relays_of_rank[:, 2] = ports[rows_of_rank]
    return relays


def _list_changes(seats: Seats, result: Result, layout: RailLayout) -> Changes:
    """List the initial rings of all bundles, and the circuits that a schedule sets up later.

    The columns of ``result.change`` are the bundle, the seat from which the circuit leads, and the
    circuit: the seat to which it leads, plus the number of seats if that is in the next replica.
    """
    # Circuits of the initial rings are there before the step begins, at minus infinity.
    initial = layout.next_seat[: len(layout.width)]
    bundle, sender = np.nonzero(initial != IDLE)
    start_s = np.concatenate([np.full(len(bundle), -np.inf), result.change_start_s])
    sender = np.concatenate([sender, result.change[:, 1]])

    # A seat is on one set of rails. Changes count as asked for when they begin.
    rails_of_seat = np.full(seats.n_seats, -1)
    for rail_set, alike in enumerate(seats.rails):
        rails_of_seat[alike.seat] = rail_set
    return Changes(
        start_s=start_s,
        asked_s=start_s,
        rails=rails_of_seat[sender],
        bundle=np.concatenate([bundle, result.change[:, 0]]),
        sender=sender,
        receiver=np.concatenate([initial[initial != IDLE], result.change[:, 2]]),
    )

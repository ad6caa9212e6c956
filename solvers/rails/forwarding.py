"""Plans that forward data over circuits of a rail: which circuits stay, and which changes pay."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import gcd

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, TimeUp
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import ChordRoutes, RailPlan, RailTimeline
from optmatch.solvers.rails.choices import Decoder, RailChoice, Search
from optmatch.solvers.rails.decoder import Result, trace
from optmatch.solvers.rails.paths import Ints
from optmatch.solvers.rails.seats import EXCHANGE, Seats, seat_ranks

_WORK, _MOST_TRIALS = 6e9, 60_000
"""Nodes and circuits that a search looks at in all, and plans that it tries with each delay."""
_MOST_NODES = 1_600_000
"""By rail. This is a limit of memory: a search takes 0.9 kB for each node (measured on 4,096 GPUs
of Mixtral-8x22B, 1.2 million nodes a rail: 1.1 GB), and so at most 1.5 GB beside the job and its
plan, which take as much. Work is limited apart, by `_WORK`: of so many nodes some dozens of trials
fit into it."""


def plan_forwarded(
    job: RailJob,
    known_s: float,
    rng: np.random.Generator,
    most: int | None = None,
    *,
    share: float = 1.0,
    is_last: bool = True,
    fits: Callable[[Seats], bool] | None = None,
) -> Iterator[RailPlan]:
    """Find a plan that is faster than a known one, if there is one; also if interrupted.

    First come all shapes, which are rings for groups of some dimensions and how data go, with one
    order; then the best shapes with other orders. Then the best is changed at random: order and
    number of its rings, the way of one communication or of all of a kind, and who goes first.
    All this is done as if the delay was a hundred times as long, and ten times, before: what is
    good then is good now, too. `most` limits how many are tried, and `share` is the part of the
    usual work that is done. Unless it `is_last`, a search leaves half of the time that is left
    to the next one. With `fits` jobs are not planned whose seats it refuses.
    """
    if not can_forward(job) or most == 0:
        return
    began_s = time.process_time()
    seats = seat_ranks(job)
    if fits is not None and not fits(seats):
        return
    spare_s = 2 * (time.process_time() - began_s)  # what it takes to make a plan of a choice
    search = Search(seats, rng, spare_s, known_s)
    if not is_last and search.clock is not None and search.clock.remaining_s < np.inf:
        search.spare_s += search.clock.remaining_s / 2
    stop: BaseException | None = None
    try:
        _search(search, most, share * _WORK, is_last=is_last)
    except (KeyboardInterrupt, TimeUp) as exception:
        stop = exception
    if search.best is not None:
        yield _build(search.decoder, search.best)
    if stop is not None:
        raise stop


def _search(search: Search, most: int | None, most_work: float, *, is_last: bool) -> None:
    """Search with longer delays, with the delay itself, and at last as long as a clock lets."""
    job = search.seats.job
    delay_s = job.network.delay_s
    longer = [many * delay_s for many in (100, 10) if 0 < many * delay_s < job.lower_bound()]
    if job.network.switching == "all-stop":
        longer = []  # no delay counts where circuits never change
    if most_work < _WORK:
        longer = []  # ports that hold different circuits seldom change them
    for part, each in enumerate((*longer, delay_s), 1):
        left = _MOST_TRIALS if most is None else most * part // (1 + len(longer)) - search.tried
        search.go_on(each, left, most_work * part / (1 + len(longer)))
    has_clock = search.clock is not None and search.clock.remaining_s < np.inf
    if is_last and most is None and has_clock:
        search.go_on(delay_s, 10**9, np.inf)  # the clock ends it


def can_forward(job: RailJob) -> bool:
    """Tell whether `plan_forwarded` plans a job: ports go one way, and all collectives in rings.

    Where a switch stops as a whole, its circuits never change in such plans, and nothing stops.
    """
    step = job.step()
    if job.fabric is not None and job.fabric.bidirectional:
        return False
    groups = [group for group in step.groups if group.rail >= 0]
    seats = {(rank, group.rail) for group in groups for rank in group.ranks}
    n_rails = len({group.rail for group in groups})
    if step.n_operations > _MOST_NODES * n_rails:
        return False

    # No communication rides a rail, or a rank has ports on several rails.
    if not seats or len({rank for rank, _ in seats}) < len(seats):
        return False
    return not any(
        job.collectives.get(group.dimension, "ring") != "ring" and len(group.ranks) > 2
        for group in groups
    )


def is_served(job: RailJob) -> bool:
    """Tell whether circuits may change, one by one, in plans that forward data."""
    return job.network.switching == "per-circuit" and can_forward(job)


def _build(decoder: Decoder, choice: RailChoice) -> RailPlan:
    """Make the plan of a choice, for all rails."""
    seats = decoder.seats
    step = seats.job.step()
    folded = seats.folded

    # The choice is timed twice: the first run counts its changes, the second notes them.
    n_changes = decoder.run(choice).n_changes
    decoder.run(choice, np.inf, n_changes)
    result = decoder.result
    last_up_s = result.change_start_s.max(initial=-np.inf) + seats.job.network.delay_s
    last_end_s = float(result.end_s.max(initial=0.0))

    next_seat = np.array([ring.to for ring in choice.rings])
    rows = np.empty((0, 3), np.int64)
    n_rows = trace(decoder.graph, seats.row, result.taken, next_seat, rows)
    rows = np.empty((n_rows, 3), np.int64)
    trace(decoder.graph, seats.row, result.taken, next_seat, rows)

    # The ports of a bundle as bits: bundles take the ports in turn.
    first_port = np.append(0, np.cumsum(choice.widths))
    ports_of_bundle = (1 << first_port[1:]) - (1 << first_port[:-1])
    used = _list_masks(decoder, choice, ports_of_bundle)[folded.nodes]
    ports = np.where(step.rail[folded.own] >= 0, used, 0).astype(np.int32)
    return RailPlan(
        rails=_list_timelines(seats, result, choice, next_seat),
        start_s=folded.spread(result.start_s[folded.nodes]),
        end_s=folded.spread(result.end_s[folded.nodes]),
        ports=folded.spread(ports),
        step_s=max(last_end_s, float(last_up_s)),
        relays=_spread_relays(seats, rows, ports_of_bundle),
        chords=_list_routes(decoder, choice),
    )


def _list_masks(decoder: Decoder, choice: RailChoice, masks: Ints) -> Ints:
    """Return by node the ports that it uses, as bits; `masks` are those of the bundles."""
    seats = decoder.seats
    bundle = decoder.result.taken // (len(choice.rings) + 1)
    over_chords = (bundle == len(masks)) & (seats.how >= 0)
    used = masks[np.minimum(bundle, len(masks) - 1)]
    sizes = np.diff(seats.begin)
    for node in np.flatnonzero(over_chords).tolist():
        n = int(sizes[node])
        serving = [stride % n > 0 for stride in choice.strides]
        if seats.how[node] != EXCHANGE:  # around rings: strides with no divisor in common with n
            serving = [gcd(stride, n) == 1 and stride > 0 for stride in choice.strides]
        used[node] = masks[serving].sum()
    return used


def _list_routes(decoder: Decoder, choice: RailChoice) -> tuple[ChordRoutes, ...]:
    """List the routes of the all-to-alls that go over chords, by their number of members."""
    seats = decoder.seats
    over_chords = decoder.result.taken // (len(choice.rings) + 1) == len(choice.widths)
    sizes = np.diff(seats.begin)[over_chords & (seats.how == EXCHANGE)]
    found = [decoder.route_exchange(choice.strides, n) for n in np.unique(sizes).tolist()]
    return tuple(routes for routes in found if routes is not None)


def _spread_relays(seats: Seats, rows: Ints, masks: Ints) -> NDArray[np.int32]:
    """Copy rows of one rail to all equal rails, with their operations and ranks."""
    step, folded = seats.job.step(), seats.folded
    ranks = np.lexsort([seats.rail_of, folded.class_of])  # of a seat, by rail
    begin = np.searchsorted(folded.class_of[ranks], np.arange(len(folded.first) + 1))
    seat = folded.class_of[step.rank[folded.own[rows[:, 0]]]]
    place = folded.own[rows[:, 0]] - step.rank_start[np.array(folded.first)[seat]]
    found = [np.empty((0, 3), np.int32)]
    copies = np.diff(begin)
    for k in range(int(copies.max(initial=0))):
        here = copies[seat] > k
        one, to = ranks[begin[seat[here]] + k], ranks[begin[rows[here, 1]] + k]
        columns = step.rank_start[one] + place[here], to, masks[rows[here, 2]]
        found.append(np.stack(columns, axis=1).astype(np.int32))
    table = np.concatenate(found)
    return table[np.argsort(table[:, 0], kind="stable")]


def _list_timelines(
    seats: Seats, result: Result, choice: RailChoice, ring: Ints
) -> tuple[RailTimeline, ...]:
    """Follow what is set up on each rail of its own kind.

    ``ring[number, seat]`` is the next seat on a ring.
    """
    turns, where = result.change_start_s, result.change
    job, found, gpu = seats.job, [], seats.number
    k = job.network.ports_per_gpu
    bundle_of = np.repeat(np.arange(len(choice.widths)), choice.widths)
    order = np.argsort(turns, kind="stable")
    for first in np.unique(seats.rail[seats.rail >= 0]).tolist():
        own = np.flatnonzero(seats.rail == first)
        own = own[np.argsort(gpu[own])]
        rails = np.unique(seats.rail_of[seats.folded.class_of == own[0]])
        n_ports = len(own) * k if job.fabric is None else job.fabric.n_ports
        live = np.arange(n_ports) if job.fabric is None else job.fabric.live_ports
        facing = ring[: len(choice.widths), own]
        facing = np.where(facing >= 0, gpu[facing], IDLE)
        states, times = [facing.copy()], [0.0]
        here = order[seats.rail[where[order, 1]] == first]
        cuts = np.flatnonzero(np.diff(turns[here], prepend=-1.0)).tolist()
        for at, end in pairwise([*cuts, len(here)]):
            bundle, one, two = where[here[at:end]].T
            for b in np.unique(bundle).tolist():
                facing[b][np.isin(facing[b], gpu[two[bundle == b]])] = IDLE
            facing[bundle, gpu[one]] = gpu[two]
            if not np.array_equal(facing, states[-1]):
                states.append(facing.copy())
                times.append(float(turns[here[at]]))
        matchings = np.full((len(states), n_ports), IDLE, np.int32)
        table = np.array(states)
        for port, b in enumerate(bundle_of.tolist()):
            to = np.where(table[:, b] >= 0, live[table[:, b] * k + port], IDLE)
            matchings[:, live[np.arange(len(own)) * k + port]] = to
        starts = np.array(times)
        found.append(
            RailTimeline(
                rails=tuple(rails.tolist()), matchings=matchings, asked_s=starts, starts_s=starts
            )
        )
    return tuple(found)

"""Plans that forward data over what a rail holds: which circuits stay, and which changes pay."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, check_time
from optmatch.model.limits import running_clock
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline
from optmatch.solvers.rails.bases import (
    close_rings,
    cut_rings,
    list_components,
    list_families,
    list_orders,
)
from optmatch.solvers.rails.decoder import EITHER, decode, trace
from optmatch.solvers.rails.paths import Ints, longest_paths
from optmatch.solvers.rails.seats import Seats, seat_ranks

_WORK, _MOST_TRIALS, _TURN = 2e8, 60_000, 1_000
"""Nodes and hops that a search looks at, plans that it tries, and after how many it starts again
from the best."""
_MOST_RINGS = 3
_MOST_OPERATIONS = 1_000_000
"""By rail: with more, a few trials would take minutes."""
_MOST_ROWS = 30_000_000
"""Rows of relays of a plan: with more it does not fit into memory."""


class Ring(NamedTuple):
    """Circuits that may be up at the same time: one at each seat."""

    order: Ints
    """Of the seats, as they stand on it."""
    part: Ints
    """By seat the number of its cycle: a ring may be of several."""
    to: Ints
    """By seat to whom it leads."""


def _make_ring(order: Ints, part: Ints) -> Ring:
    return Ring(order, part, close_rings(order, part))


class RailChoice(NamedTuple):
    """What makes a plan."""

    rings: tuple[Ring, ...]
    homes: tuple[int, ...]
    """By bundle of ports the ring that is up when the step begins and ends."""
    widths: tuple[int, ...]
    """By bundle how many ports it has."""
    ways: NDArray[np.int64]
    """By node: `EITHER`, `STRAIGHT` or a ring."""
    only: Ints
    """By node its bundle, -1 for any."""
    rank: NDArray[np.float64]
    """By node: who goes first of those that could start."""
    price_s: float


class _Decoder:
    """All arrays that the kernel needs."""

    def __init__(self, seats: Seats) -> None:
        self.seats = seats
        n, self.wide = len(seats.how), len(seats.rail)
        self.waits = np.bincount(seats.pairs[:, 1], minlength=n)
        self.queue, self.keys = np.zeros(n, np.int64), np.zeros(n)
        self.start, self.end, self.taken = np.zeros(n), np.zeros(n), np.zeros(n, np.int64)

    def run(
        self, choice: RailChoice, most_s: float = np.inf, n_turns: int = 0
    ) -> tuple[float, int, NDArray[np.float64], Ints]:
        """Return the time of the step, how many circuits are set up, when, and which."""
        seats, network = self.seats, self.seats.job.network
        ring = np.array([each.to for each in choice.rings])
        cycle = np.array([each.part for each in choice.rings])
        turns, where = np.zeros(n_turns), np.zeros((n_turns, 3), np.int64)
        widths, shape = np.array(choice.widths), (len(choice.homes), self.wide)
        circuits, free_s = np.zeros((2, *shape), np.int64), np.zeros((2, *shape))
        step_s, number = decode(
            *(seats.duration_s, seats.bytes_sent, seats.latency_s, seats.how, seats.begin),
            *(seats.member, seats.first, seats.after, self.waits.copy(), choice.rank, choice.ways),
            *(choice.only, ring, cycle, np.array(choice.homes), widths * network.port_bytes_per_s),
            *(widths == 1, network.delay_s, choice.price_s, most_s, circuits[0], circuits[1]),
            *(free_s[0], free_s[1], self.queue, self.keys, self.start, self.end, self.taken),
            *(turns, where),
        )
        return step_s, number, turns, where


def plan_forwarded(
    job: RailJob, known_s: float, rng: np.random.Generator, most: int | None = None
) -> RailPlan | None:
    """Find a plan that is faster than a known one; None if there is none.

    First come all orders of `list_orders`, as one ring of all GPUs that communicate or a ring for
    each group of a dimension, with what else is done straight or not at all. Then the best is
    changed at random: order and number of its rings, the way of one communication or of all of a
    kind, and who goes first. `most` limits how many are tried.
    """
    if not _is_served(job) or most == 0:
        return None
    clock, began_s = running_clock(), time.process_time()
    seats = seat_ranks(job)
    spare_s = 2 * (time.process_time() - began_s)  # what it takes to make a plan of a choice
    decoder, search = _Decoder(seats), _Search(seats, rng)
    best: RailChoice | None = None
    best_s = known_s * (1 - 1e-12)
    cost = len(seats.how) + len(seats.riding) * len(seats.rail)
    trials = int(min(_MOST_TRIALS if most is None else most, max(20, _WORK / cost)))
    bound_s = job.lower_bound() * (1 + 1e-9)
    first = list(search.begin())[:trials]
    current, current_s = first[0], np.inf
    for choice in first:
        check_time()
        step_s = decoder.run(choice, min(current_s, 2 * known_s))[0]
        if step_s < current_s:
            current, current_s = choice, step_s
    if current_s < best_s:
        best, best_s = current, current_s
    trials -= len(first)
    for trial in range(trials):
        if best_s <= bound_s or (clock is not None and clock.remaining_s < spare_s):
            break
        moved = search.change(current)
        most_s = current_s * (1 + 0.01 * (1 - (trial % _TURN) / _TURN) ** 2)
        step_s = decoder.run(moved, most_s)[0]
        if step_s <= most_s:
            current, current_s = moved, step_s
            if step_s < best_s:
                best, best_s = moved, step_s
        if trial % _TURN == _TURN - 1 and best is not None:
            current, current_s = best, best_s
    return None if best is None else _build(decoder, best)


def _is_served(job: RailJob) -> bool:
    """Tell whether data may be forwarded: ports go one way, nothing stops, all goes in rings."""
    step, network = job.step(), job.network
    if network.switching != "per-circuit" or (network.fabric and network.fabric.bidirectional):
        return False
    on = {(rank, g.rail) for g in step.groups if g.rail >= 0 for rank in g.ranks}
    if step.n_operations > _MOST_OPERATIONS * len({rail for _, rail in on}):
        return False
    if not on or len({rank for rank, _ in on}) < len(on):
        return False  # nothing rides, or a rank has ports on several rails
    return not any(
        job.collectives.get(g.dimension, "ring") != "ring" and len(g.ranks) > 2
        for g in step.groups
        if g.rail >= 0
    )


class _Search:
    """What is tried."""

    def __init__(self, seats: Seats, rng: np.random.Generator) -> None:
        self.seats, self.rng = seats, rng
        self.component, self.families = list_components(seats), list_families(seats)
        self.orders = list(list_orders(seats, self.families))
        self.riding, self.kinds = seats.riding, _list_kinds(seats)
        self.ports = seats.job.network.ports_per_gpu

    def begin(self) -> Iterator[RailChoice]:
        """List the choices that are tried first."""
        seats, n = self.seats, len(self.seats.how)
        free = longest_paths(seats.duration_s, seats.pairs)
        left = longest_paths(seats.duration_s, seats.pairs[:, ::-1].copy())
        assert free is not None and left is not None
        either, around = np.full(n, EITHER), np.zeros(n, np.int64)
        halves = (self.ports - self.ports // 2, self.ports // 2)
        for rank in (-left.end_s, free.start_s):
            for order in self.orders:
                whole = _make_ring(order, self.component)
                back = _make_ring(order[::-1].copy(), self.component)
                plain = RailChoice((whole,), (0,), (self.ports,), around, around - 1, rank, 0.0)
                yield plain
                if self.ports > 1:
                    yield plain._replace(
                        rings=(whole, back), homes=(0, 1), widths=halves, ways=either
                    )
                for family in self.families:
                    ring = _make_ring(order, cut_rings(order, self.component, family))
                    for price_s in (0.0, seats.job.network.delay_s):
                        one = plain._replace(ways=either, price_s=price_s)
                        yield one
                        yield one._replace(rings=(ring,))
                        yield one._replace(rings=(ring, whole))
                        if self.ports > 1:
                            yield one._replace(rings=(ring, whole), homes=(0, 1), widths=halves)

    def change(self, choice: RailChoice) -> RailChoice:
        """Change one thing at random, or two."""
        what, a, b, c = self.rng.random(4).tolist()
        if what < 0.15:
            choice = self._change_one(choice, *self.rng.random(4).tolist())
        return self._change_one(choice, (what - 0.15) / 0.85 % 1, a, b, c)

    def _change_one(
        self, choice: RailChoice, what: float, a: float, b: float, c: float
    ) -> RailChoice:
        if what < 0.3:
            k = int(a * len(choice.rings))
            rings = list(choice.rings)
            rings[k] = _make_ring(_mix(rings[k].order, b, c, what * 10 % 1), rings[k].part)
            return choice._replace(rings=tuple(rings))
        if what < 0.36:
            return self._exchange(choice, a, b, c)
        if what < 0.72:
            ways = choice.ways.copy()
            own = self.kinds[int(a * len(self.kinds))]
            if what < 0.6:
                own = own[int(b * len(own))]
            ways[own] = int(c * (len(choice.rings) + 2)) - 2
            return choice._replace(ways=ways)
        rank = choice.rank.copy()
        one, two = self.riding[int(a * len(self.riding))], self.riding[int(b * len(self.riding))]
        rank[one] = np.nextafter(rank[two], np.inf if c < 0.5 else -np.inf)
        return choice._replace(rank=rank)

    def _exchange(self, choice: RailChoice, a: float, b: float, c: float) -> RailChoice:
        """Take another ring, or one more."""
        rings = list(choice.rings)
        order, part = self.orders[int(a * len(self.orders))], self.component
        if b < 0.5:
            part = cut_rings(order, part, self.families[int(2 * b * len(self.families))])
        if len(rings) < _MOST_RINGS:
            rings.append(_make_ring(order, part))
        else:
            rings[int(c * len(rings))] = _make_ring(order, part)
        return choice._replace(rings=tuple(rings))


def _mix(order: Ints, a: float, b: float, how: float) -> Ints:
    """Exchange two seats, turn the part between them around, or move one of them."""
    order = order.copy()
    low, high = sorted((int(a * len(order)), int(b * len(order))))
    if how < 1 / 3:
        order[low], order[high] = order[high], order[low]
    elif how < 2 / 3:
        order[low : high + 1] = order[low : high + 1][::-1].copy()
    else:
        order[low : high + 1] = np.roll(order[low : high + 1], 1)
    return order


def _list_kinds(seats: Seats) -> list[Ints]:
    """List nodes that have group, kind and other end in common, and those of all such groups."""
    riding, step = seats.riding, seats.job.step()
    part = seats.folded.part[riding]
    columns = np.stack([step.group[part], step.kind[part], step.peer[part]])
    names = [group.name.rpartition(".")[0] for group in step.groups]
    family = np.unique(names, return_inverse=True)[1].reshape(-1)[step.group[part]]
    found = []
    for table in (columns, np.stack([family, step.kind[part]])):
        which = np.unique(table, axis=1, return_inverse=True)[1].reshape(-1)
        order = np.argsort(which, kind="stable")
        found += np.split(riding[order], np.flatnonzero(np.diff(which[order])) + 1)
    return found


def _build(decoder: _Decoder, choice: RailChoice) -> RailPlan | None:
    """Make the plan of a choice, for all rails; None if it has too many rows."""
    seats = decoder.seats
    step, folded = seats.job.step(), seats.folded
    _, number, *_ = decoder.run(choice)
    step_s, _, turns, where = decoder.run(choice, np.inf, number)
    ring = np.array([each.to for each in choice.rings])
    arrays = seats.how, seats.begin, seats.member, seats.row, decoder.taken, ring
    rows = np.empty((0, 3), np.int64)
    count = trace(*arrays, rows)
    of_seat = np.bincount(folded.class_of, minlength=len(folded.first))
    if count * int(of_seat.max()) > _MOST_ROWS:
        return None
    rows = np.empty((count, 3), np.int64)
    trace(*arrays, rows)
    lanes = np.append(0, np.cumsum(choice.widths))
    masks = (1 << lanes[1:]) - (1 << lanes[:-1])
    used = masks[decoder.taken[folded.nodes] // (len(ring) + 1)]
    ports = np.where(step.rail[folded.own] >= 0, used, 0).astype(np.int32)
    return RailPlan(
        rails=_list_timelines(seats, turns, where, choice, ring),
        start_s=folded.spread(decoder.start[folded.nodes]),
        end_s=folded.spread(decoder.end[folded.nodes]),
        ports=folded.spread(ports),
        step_s=step_s,
        relays=_spread_relays(seats, rows, masks),
    )


def _spread_relays(seats: Seats, rows: Ints, masks: Ints) -> NDArray[np.int32]:
    """Copy rows of one rail to all equal rails, with their operations and ranks."""
    step, folded = seats.job.step(), seats.folded
    ranks = np.argsort(folded.class_of, kind="stable")  # of a seat, by rail
    begin = np.searchsorted(folded.class_of[ranks], np.arange(len(folded.first) + 1))
    ranks = _sort_by_rail(seats, ranks)
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


def _sort_by_rail(seats: Seats, ranks: Ints) -> Ints:
    """Sort ranks by seat, then by rail."""
    rail = _rail_of(seats)
    found: Ints = ranks[np.lexsort([rail[ranks], seats.folded.class_of[ranks]])]
    return found


def _rail_of(seats: Seats) -> Ints:
    found = np.full(seats.job.step().n_ranks, -1)
    for group in seats.job.step().groups:
        if group.rail >= 0:
            found[[*group.ranks]] = group.rail
    return found


def _list_timelines(
    seats: Seats, turns: NDArray[np.float64], where: Ints, choice: RailChoice, ring: Ints
) -> tuple[RailTimeline, ...]:
    """Follow what is set up on each rail of its own kind."""
    job, rail_of = seats.job, _rail_of(seats)
    k, found, gpu = job.network.ports_per_gpu, [], seats.number
    bundle_of = np.repeat(np.arange(len(choice.widths)), choice.widths)
    order = np.argsort(turns, kind="stable")
    for first in np.unique(seats.rail[seats.rail >= 0]).tolist():
        own = np.flatnonzero(seats.rail == first)
        own = own[np.argsort(gpu[own])]
        rails = np.unique(rail_of[seats.folded.class_of == own[0]])
        n_ports = len(own) * k if job.fabric is None else job.fabric.n_ports
        live = np.arange(n_ports) if job.fabric is None else job.fabric.live_ports
        facing = np.array([ring[home, own] for home in choice.homes])
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

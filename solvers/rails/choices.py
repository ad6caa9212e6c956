"""The search of `prefetch`: which circuits stay, how data go, and who goes first.

The kernel of `optmatch.solvers.rails.decoder` makes the schedule of one choice by list scheduling.
`Search.run` looks for the choice of the shortest step:

1. Simple choices are timed: one or two rings, with or without chords, then the same with other
   orders of the seats, priorities and hastes, from the best shape to the worst.
2. Random moves change the best of them: a ring, routes, or who goes first. A move stays if the
   step is no longer than before plus a tolerance that falls from 1 % to 0 (threshold accepting,
   Dueck and Scheuer 1990), again and again from the best choice so far.
3. The search ends at the bound of the step, when its trials or its work are used up, or in time to
   make a plan of the best choice.

The step is folded to one rail and one *replica*, a block of data-parallel ranks like all others;
the GPUs that are left are *seats*. A *node* is a computation or a communication, whose members are
seats. A *bundle* is some ports of every GPU that hold equal circuits: those of a *ring*, which is
a permutation of the seats of one or more cycles, or of a *chord*, which lead one *stride* of
places further on in each group of an all-to-all. The *route* of a node goes over a ring, straight
(over circuits from member to member), or over chords (`optmatch.solvers.rails.decoder`).

Words of this module:

Choice
    All that a schedule follows: which circuits there may be, the routes that communications may
    take, and who goes first.
Trial
    One choice is timed.
Work
    Nodes and circuits that are looked at to time choices. It limits a search like time does, but
    with the same answer on each machine.
Order
    A permutation of all seats.
Cut
    A number for each seat: seats of one number form one cycle. A ring is made of an order and a
    cut, and leads from each seat to the next one of its number in the order. With the order 2, 0,
    3, 1 and the cut 0, 0, 1, 1 it leads 0 -> 1 -> 0 and 2 -> 3 -> 2. A cycle whose number is that
    of the seats or more joins all replicas: its last seat leads to the first one of the next.
Shape
    All of a choice but the order of its rings and who goes first.
Haste
    How much sooner a node is seen as able to start than it is: it is then preferred.
Move
    A random change of one thing of a choice.
Kind
    Nodes that a move changes together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product, zip_longest
from math import gcd
from typing import NamedTuple

import numpy as np

from optmatch.model import Limit, Limits, running_clock
from optmatch.solvers.frame import meets_bound
from optmatch.solvers.rails.bases import (
    close_ring,
    list_components,
    list_cuts,
    list_families,
    list_orders,
)
from optmatch.solvers.rails.chords import choose_chords, route_exchange
from optmatch.solvers.rails.decoder import (
    ANY_ROUTE,
    EXCHANGE,
    MESSAGE,
    RINGS_FIRST,
    STRAIGHT_ALONE,
    BundlePorts,
    RailChoice,
    RailLayout,
    Result,
    Scratch,
    StepGraph,
    decode,
)
from optmatch.solvers.rails.exchanges import list_menu
from optmatch.solvers.rails.paths import Floats, Ints, find_heads, find_tails
from optmatch.solvers.rails.seats import Seats
from optmatch.solvers.rails.staying import bound_step

_TURN = 1_000
"""After this number of trials the tolerance is 0, and moves begin anew from the best choice."""
_MOVE_WORK = 2.0
"""The work of random moves, as a multiple of that of the simple choices before."""
_LEAST_MOVE_WORK = 1e8
"""The least work of random moves, most of a second: jobs of a few GPUs have few simple
choices."""
_MOST_RINGS = 3
"""A move adds a ring while fewer than these may change; after that it replaces one of them."""
_MOST_REVERSE = 0.3
_MOST_REPLACE = 0.36
_MOST_ROUTES = 0.65
_MOST_HASTE = 0.72
"""Moves by the number that draws them, each up to its limit: the order of a ring (30 %), a ring
(6 %), the routes of one communication or of all of a kind (29 %), their haste (7 %), and else who
goes first (28 %). Rings and routes decide most and are drawn most."""
_DOUBLE_SHARE = 0.15
"""The part of the changes that are two moves: some choices no single move makes better."""
_MOST_ROWS = 20_000_000
"""Rows of relays of a plan: with more its file, 12 bytes a row, could not be read again."""
_RELAYS_PER_S = 8e6
"""Rows of relays that are listed in a second: on 1,024 GPUs 14 millions take 0.9 to 1.4 s."""


def _cross_cuts(cuts: Sequence[Ints]) -> list[Ints]:
    """List cuts with cycles that join all replicas, and then those whose cycles stay in one.

    In each of `cuts`, ``cut[seat]`` is the number of a cycle within one replica, less than the
    number n of seats. A cycle that joins all replicas has its number plus n. A seat that is alone
    on its cycle gets such a number in both sorts of cuts, so that it leads to itself in the next
    replica: otherwise its port would be dark when the step begins, and would have to be dark again
    when it ends. With three seats the cut 0, 0, 2 becomes 3, 3, 5, of which both cycles join all
    replicas, and 0, 0, 5. The last cut of the result comes from the last one of `cuts`, within one
    replica.
    """
    n_seats = len(cuts[0])

    # Of equal cuts the one that stands last is kept, so that the last cut stays the last. For that
    # they are gone through backwards, and the result is turned around.
    different_cuts: dict[bytes, Ints] = {}
    for cut in reversed([*(cut + n_seats for cut in cuts), *cuts]):
        is_alone = np.bincount(cut)[cut] == 1
        lone_cut = np.where(is_alone, cut % n_seats + n_seats, cut)
        different_cuts.setdefault(lone_cut.tobytes(), lone_cut)
    return [*different_cuts.values()][::-1]


class Decoder:
    """Times choices of one step by the kernel, with all arrays that it reads and works in.

    Attributes
    ----------
    seats
        The folded step that is timed.
    graph
        Its nodes, as the kernel reads them.
    result
        The schedule of the choice that was timed last; overwritten by the next one.
    """

    def __init__(self, seats: Seats) -> None:
        self.seats = seats
        network = seats.job.network
        n_nodes = len(seats.nodes.how)
        n_seats = seats.n_seats

        # What all choices have in common: the step, its tails, and the menu for the numbers of
        # members that its all-to-alls have. An all-stop switch, of which all circuits are dark
        # while one changes, changes none here.
        change_s = network.delay_s
        if network.switching == "all-stop":
            change_s = np.inf
        self._exchange_sizes = np.unique(seats.n_members[seats.nodes.how == EXCHANGE]).tolist()
        self.graph = StepGraph(
            nodes=seats.nodes,
            tail_s=find_tails(seats.nodes.duration_s, seats.folded.pairs),
            menu=list_menu(self._exchange_sizes),
            change_s=change_s,
        )

        # Arrays that each run writes anew. Ports are by bundle and seat; there are at most as many
        # bundles as ports of a GPU.
        circuits = np.zeros((network.ports_per_gpu, n_seats), np.int64)
        free_s = np.zeros(circuits.shape)
        self._scratch = Scratch(
            ports=BundlePorts(
                receiver=circuits,
                sender=circuits.copy(),
                send_free_s=free_s,
                receive_free_s=free_s.copy(),
            ),
            mark=np.zeros(n_seats, np.int64),
            heap=np.zeros(n_nodes, np.int64),
            key_s=np.zeros(n_nodes),
            n_waiting=np.zeros(n_nodes, np.int64),
            n_changes=np.zeros(1, np.int64),
            n_forwarding=np.zeros(1, np.int64),
            work=np.zeros(1, np.int64),
        )
        self.result = Result(
            start_s=np.zeros(n_nodes),
            end_s=np.zeros(n_nodes),
            ring=np.zeros(n_nodes, np.int64),
            ports=np.zeros(n_nodes, np.int64),
            change_start_s=np.zeros(0),
            change=np.zeros((0, 3), np.int64),
        )

        # A plan has a row of relays for each GPU that forwards data of others, on every rail. The
        # schedule is of one rail; with 8 equal rails (8 ranks of one seat) each of its rows is
        # copied 8 times.
        self._copies = int(np.bincount(seats.folded.class_of, minlength=n_seats).max(initial=1))

    @property
    def n_forwarding(self) -> int:
        """How many seats forward, over all nodes of the last schedule."""
        return int(self._scratch.n_forwarding[0])

    @property
    def n_relays(self) -> int:
        """How many rows of relays a plan of the last schedule has."""
        return self.n_forwarding * self._copies

    @property
    def work(self) -> int:
        """The work of all schedules so far, as `Scratch.work`."""
        return int(self._scratch.work[0])

    def run(
        self, choice: RailChoice, most_s: float = np.inf, n_changes: int = 0
    ) -> tuple[float, int]:
        """Schedule a choice into ``self.result``; return (step in seconds, number of changes).

        The time of the step is infinite if the schedule is given up: when the step gets as long as
        `most_s` seconds, its plan would have more than `_MOST_ROWS` relays, or no route serves a
        node. The first `n_changes` new circuits are noted in ``self.result``, and further ones
        only counted: a caller that needs all of them runs the choice a second time, with the
        number that the first run returned.
        """
        if n_changes != len(self.result.change_start_s):
            self.result = self.result._replace(
                change_start_s=np.zeros(n_changes), change=np.zeros((n_changes, 3), np.int64)
            )
        most_forwarding = _MOST_ROWS // self._copies
        step_s = decode(
            self.graph, choice, float(most_s), most_forwarding, self._scratch, self.result
        )
        return step_s, int(self._scratch.n_changes[0])

    def lay_out(
        self, rings: Sequence[tuple[Ints, Ints]], widths: Sequence[int], strides: Sequence[int]
    ) -> RailLayout:
        """Make the arrays of rings, each given as (order, cycle of each seat), and of bundles.

        ``widths[bundle]`` is how many ports of each GPU it has, and ``strides[bundle]`` the stride
        of a chord, 0 for other bundles. The first rings are the initial ones, one for each bundle:
        with widths 2 and 1 and three rings, rings 0 and 1 are up when the step begins, and ring 2
        may be set up later.
        """
        # ``load[n]``: the blocks that the busiest chord carries in an all-to-all of n members.
        load = np.full(1 + max(self._exchange_sizes, default=0), np.inf)
        for n_members in self._exchange_sizes:
            routes = route_exchange(strides, n_members)
            if routes is not None:
                load[n_members] = routes.busiest_port_parts

        # Bundles take the ports of a GPU in turn, and have them as bits: with widths 2 and 1 the
        # first ports are 0, 2 and, behind the last bundle, 3; the bits are 4 - 1 and 8 - 4.
        first_port = np.append(0, np.cumsum(widths))
        return RailLayout(
            order=np.array([order for order, _ in rings]),
            cycle=np.array([cycle for _, cycle in rings]),
            next_seat=np.array([close_ring(order, cycle) for order, cycle in rings]),
            width=np.array(widths),
            ports=(1 << first_port[1:]) - (1 << first_port[:-1]),
            stride=np.array(strides),
            rate=np.array(widths) * self.seats.job.network.port_bytes_per_s,
            load=load,
        )


class _Shape(NamedTuple):
    """A choice without the order of the seats on its rings, and without who goes first."""

    cuts: tuple[Ints, ...]
    """By ring the cut, shape (seats,)."""
    widths: tuple[int, ...]
    """By bundle that is no chord, how many ports of each GPU it has."""
    routes: int
    """The routes that each node may take, as in a `RailChoice`."""
    price_s: float
    """Seconds: a route with new circuits has to end so much sooner than one without."""
    strides: tuple[int, ...] = ()
    """Strides of further bundles of one port each, which are chords."""


class Search:
    """A random local search for the best choice of a plan.

    Attributes
    ----------
    seats
        The step, folded to one rail.
    spare_s
        The search ends when the solver has no more than these seconds left, beside those for
        relays: a plan of the best choice still has to be made, and another search may follow.
    known_s
        The time of a known plan in seconds: a choice is of use if it is better. Infinite if no
        plan is known.
    best, best_s
        The best choice so far, and the time of its step in seconds; None, and the time of the
        known plan, while none is better than that.
    relays_s
        How many seconds it takes to list the relays of its plan.
    bound_s
        No step is faster, in seconds: the search ends there.
    orders, cuts
        The orders of all seats, and the cuts, of which new rings are made. The last cut
        joins all seats that communicate, directly or through others: as few cycles as there can
        be.
    riding
        The nodes that ride a rail.
    kinds
        Nodes that a move changes together.
    chord_groups
        Groups in which chords can be laid, shape (groups, members); None if there are none.
    plain
        The shape of one ring of each component with all ports, over which everything goes.
    """

    def __init__(
        self, seats: Seats, rng: np.random.Generator, spare_s: float, known_s: float
    ) -> None:
        """List what choices are made of, once for the whole search; nothing is timed yet."""
        self.seats = seats
        self.rng = rng
        self.decoder = Decoder(seats)
        self.clock = running_clock() or Limits().start()
        self.spare_s = spare_s
        self.known_s = known_s
        self.delay_s = seats.job.network.delay_s

        # Nothing is known yet but the plan from before, which a choice has to beat by more than
        # rounding (a part in 10^12). The time for relays of the best choice is 0 until one does.
        self.best: RailChoice | None = None
        self.best_s = known_s * (1 - 1e-12)
        self.tried = 0
        self.relays_s = 0.0
        self.bound_s = bound_step(seats)

        # Rings are made of an order of all seats and a cut, which says which seats share a cycle.
        # Each cut joins the seats that share groups of some families; a family is all groups of
        # one name, such as data parallelism. The last cut joins all seats that communicate,
        # directly or through others: a component.
        families = list_families(seats)
        self.cuts = list_cuts(list_components(seats), families)
        self.orders = list(list_orders(seats, families))

        # Where some communications go around all replicas, cuts with cycles that join replicas
        # come in addition. The last cut still joins each component.
        if seats.nodes.crosses.any():
            self.cuts = _cross_cuts(self.cuts)

        # Moves draw one node on a rail, or a kind of them. Chords are laid in groups of
        # all-to-alls. The plain shape is one ring of each component, with all ports, which all
        # nodes go over that it serves.
        self.riding = seats.riding
        self.kinds = _list_kinds(seats)
        self.ports = seats.job.network.ports_per_gpu
        self.chord_groups = list_exchange_groups(seats)
        self.plain = _Shape(
            cuts=(self.cuts[-1],), widths=(self.ports,), routes=RINGS_FIRST, price_s=0.0
        )

    def run(self, n_trials: int, most_work: float) -> None:
        """Time simple choices, and improve the best one by random moves, in `n_trials` at most.

        Simple choices have half of `most_work`. Moves have `_MOVE_WORK` times the work of these,
        or `_LEAST_MOVE_WORK` if that is more. A choice that one or two moves have changed replaces
        the current one if its step is longer by no more than a tolerance, which falls from 1 % to
        0 within each turn of `_TURN` trials; a turn begins with the best choice so far.
        `_time_choice` keeps each choice in ``self.best`` that is better than the known plan.
        """
        # `scores` is shared with the generator: this loop appends the time of each choice that it
        # was given, in seconds, and the generator reads them to order those that it gives next. A
        # choice that is 30 % worse than the best, or twice as long as the known plan, is given up
        # to save work; its time is infinite then.
        scores: list[float] = []
        best: RailChoice | None = None
        best_s = np.inf
        for choice in self._list_simple_choices(scores):
            if self.tried >= n_trials or self.decoder.work > most_work / 2 or self._is_over():
                break
            step_s = self._time_choice(choice, min(1.3 * best_s, 2 * self.known_s))
            scores.append(step_s)
            if step_s < best_s:
                best = choice
                best_s = step_s
        if best is None:
            return

        # Threshold accepting, from the best simple choice on.
        move_work = max(_LEAST_MOVE_WORK, _MOVE_WORK * self.decoder.work)
        most_work = min(most_work, self.decoder.work + move_work)
        for trial in range(n_trials - self.tried):
            if self._is_done(most_work):
                return
            if trial % _TURN == 0:
                current = best
                current_s = best_s

            # A second move helps to leave choices that no single move makes better.
            changed = self._draw_move(current)
            if self.rng.random() < _DOUBLE_SHARE:
                changed = self._draw_move(changed)

            # The tolerance falls quadratically: from 1 % over 0.25 % in the middle of a turn to 0.
            # Schedules that get longer are given up early, with an infinite time.
            tolerance = 0.01 * (1 - trial % _TURN / _TURN) ** 2
            most_s = current_s * (1 + tolerance)
            step_s = self._time_choice(changed, most_s)
            if step_s <= most_s:
                current = changed
                current_s = step_s
                if step_s < best_s:
                    best = changed
                    best_s = step_s

    def _is_done(self, most_work: float) -> bool:
        """Tell whether the search ends: by clock, at the bound, or after `most_work`."""
        return (
            self._is_over()
            or meets_bound(self.best_s, self.bound_s)
            or self.decoder.work > most_work
        )

    def _is_over(self) -> bool:
        """Tell whether the time that is left is needed for the plan, or for another search."""
        return self.clock.has_less_than(self.spare_s + self.relays_s)

    def _time_choice(self, choice: RailChoice, most_s: float) -> float:
        """Time a choice; if it is the best so far, keep it, its time and that of its relays.

        These are ``self.best``, ``self.best_s`` and ``self.relays_s``. Returns the time of the
        step in seconds; infinite if that is `most_s` or longer.
        """
        self.tried += 1
        step_s, _ = self.decoder.run(choice, most_s)
        if step_s < self.best_s:
            # A choice whose plan cannot be made in the time that is left is of no use.
            relays_s = self.decoder.n_relays / _RELAYS_PER_S
            if relays_s < self.clock.remaining_s:
                self.best = choice
                self.best_s = step_s
                self.relays_s = relays_s
            else:
                self.clock.cut_by = Limit.TIME
        return step_s

    def _list_simple_choices(self, scores: Sequence[float]) -> Iterator[RailChoice]:
        """Yield the simple choices: all shapes, the plain one first, then variants of the best.

        The caller times each choice with ``self.decoder`` and appends its time in seconds to
        `scores` before it asks for the next one, so that `scores` grows while this runs.
        """
        # Two priorities of nodes, of which the least goes first: the node with the longest path to
        # the end of the step, or the node that could start first if all circuits were there.
        seats = self.seats
        tail_s = self.decoder.graph.tail_s
        critical = -seats.nodes.duration_s - tail_s
        earliest = find_heads(seats.nodes.duration_s, seats.folded.pairs)
        first = self.orders[0]

        # All shapes, with one order and one priority.
        shapes = list(self._list_shapes())
        for shape in shapes:
            yield self._make_choice(shape, first, critical)
        best_shapes = [shapes[number] for number in np.argsort(scores, kind="stable").tolist()]

        # Then other orders of the seats and the other priority, from the best shape to the worst.
        # The first pair was timed above and is left out.
        pairs = list(product((critical, earliest), self.orders))[1:]
        shape_variants = (
            self._make_choice(shape, order, priority)
            for shape in best_shapes
            for priority, order in pairs
        )

        # And hastes, by which nodes are preferred: messages by one or three delays of a change,
        # all nodes by a part of the time from their end to the end of the step, or each by its own
        # part of some delays, drawn at random.
        message_s = self.delay_s * (seats.nodes.how == MESSAGE)
        hastes_s = [
            n_delays * message_s + share_of_tail * tail_s
            for n_delays, share_of_tail in product((1, 3), (0.0, 0.01, 0.1, 1.0))
        ]
        hastes_s += [
            self.rng.uniform(0.0, n_delays * self.delay_s, len(tail_s))
            for n_delays in (1, 1, 3, 3, 9)
        ]
        haste_variants = (
            self._make_choice(shape, first, critical)._replace(haste_s=haste_s)
            for shape in best_shapes
            for haste_s in hastes_s
        )
        # Both kinds of variants take turns, as long as there are any of them.
        for variants in zip_longest(shape_variants, haste_variants):
            yield from (choice for choice in variants if choice is not None)

    def _list_shapes(self) -> Iterator[_Shape]:
        """List shapes of one or two rings, and those with chords.

        The plain shape comes first, then chords, then one or two cuts, those with the cut that
        joins all last. With the cuts a, b and all, these are a, b, ab, ba, a all, b all, all a,
        all b, and all. Two rings of all follow, and at last each cut once more for data that go
        straight.
        """
        yield self.plain
        yield from self._list_chord_shapes()

        # All ports may be on one ring at a time: the first ring is up when the step begins, and
        # the second one takes the ports when it is needed. Or two halves of the ports hold one
        # ring each; with an odd number of ports the first half has one more.
        all_ports = (self.ports,)
        halves = (self.ports - self.ports // 2, self.ports // 2)

        # The last cut joins all and has the longest cycles: shapes with it come last.
        joins_all = self.cuts[-1]
        one_or_two_cuts = [*((cut,) for cut in self.cuts), *permutations(self.cuts, 2)]
        one_or_two_cuts.sort(key=lambda cuts: (cuts[0] is joins_all, cuts[-1] is joins_all))
        for cuts in one_or_two_cuts:
            # Each communication goes as it ends soonest. With a price of one delay, circuits
            # change only where that saves more than a delay.
            for price_s in (0.0, self.delay_s):
                yield _Shape(cuts=cuts, widths=all_ports, routes=ANY_ROUTE, price_s=price_s)
                if self.ports > 1 and len(cuts) > 1:
                    yield _Shape(cuts=cuts, widths=halves, routes=ANY_ROUTE, price_s=price_s)

        # Two rings of all: the second one goes backwards, see `_make_choice`.
        if self.ports > 1:
            yield _Shape(cuts=(joins_all, joins_all), widths=halves, routes=ANY_ROUTE, price_s=0.0)

        # Nobody forwards: each communication sets up the circuits of its members.
        for cut in self.cuts:
            yield self.plain._replace(cuts=(cut,), routes=STRAIGHT_ALONE)

    def _list_chord_shapes(self) -> Iterator[_Shape]:
        """List shapes with one chord or more, the other ports in one ring or two halves.

        A chord takes one port of each GPU. With 4 ports and one chord the other 3 ports are one
        ring of width 3, or two rings of the widths 2 and 1, for each cut. Each communication goes
        as it ends soonest, and new circuits have no price. There are no such shapes with one port,
        or if ``self.chord_groups``, the seats of groups of all-to-alls, is None.
        """
        if self.chord_groups is None or self.ports == 1:
            return

        # All groups have the same number of members, and thus the same strides.
        n_members = len(self.chord_groups[0])
        for n_chords in range(1, self.ports + 1):
            # The strides by which an all-to-all over `n_chords` chords ends soonest. None if there
            # are more chords than other members: further ones are of no use.
            chords = choose_chords(n_members, n_chords)
            if chords is None:
                break
            n_other_ports = self.ports - n_chords

            # All ports are chords: there is no other ring.
            if n_other_ports == 0:
                yield _Shape(
                    cuts=(), widths=(), routes=ANY_ROUTE, price_s=0.0, strides=chords.strides
                )
                continue
            for cut in self.cuts:
                one_ring = _Shape(
                    cuts=(cut,),
                    widths=(n_other_ports,),
                    routes=ANY_ROUTE,
                    price_s=0.0,
                    strides=chords.strides,
                )
                yield one_ring
                if n_other_ports > 1:
                    halves = (n_other_ports - n_other_ports // 2, n_other_ports // 2)
                    yield one_ring._replace(cuts=(cut, cut), widths=halves)

    def _make_choice(self, shape: _Shape, order: Ints, priority: Floats) -> RailChoice:
        """Make a choice of a shape: add the order of all its rings, and who goes first.

        ``order[place]`` is a seat, and of ``priority[node]`` the least goes first. No node has a
        haste.
        """
        # A shape with one cut twice has two rings of it, of which the second one goes backwards.
        rings = [(order, cut) for cut in shape.cuts]
        if len(shape.cuts) > 1 and shape.cuts[0] is shape.cuts[1]:
            rings[1] = (order[::-1].copy(), shape.cuts[1])

        # Bundles of one port for the chords come after the others, and so do their rings. With
        # widths (2,) and two chords of strides 1 and 3, the widths become (2, 1, 1) and the
        # strides (0, 1, 3). A shape of two cuts with all ports, widths (4,), has a ring more than
        # bundles: it is set up when it is needed. Shapes with chords have no such ring, so that
        # ring b is always what bundle b holds when the step begins.
        if self.chord_groups is not None:
            rings += [lay_chord(self.chord_groups, stride, len(order)) for stride in shape.strides]
        widths = (*shape.widths, *[1] * len(shape.strides))
        strides = (*[0] * len(shape.widths), *shape.strides)
        layout = self.decoder.lay_out(rings, widths, strides)

        n_nodes = len(self.seats.nodes.how)
        return RailChoice(
            layout=layout,
            routes=np.full(n_nodes, shape.routes),
            priority=priority,
            haste_s=np.zeros(n_nodes),
            price_s=shape.price_s,
        )

    def _draw(self, count: int) -> int:
        """Draw a whole number from 0 to ``count - 1``, all equally likely."""
        return int(self.rng.random() * count)

    def _draw_alike(self) -> Ints:
        """Draw one communication, or in one of three cases all of a kind, as nodes."""
        nodes = self.kinds[self._draw(len(self.kinds))]
        if self.rng.random() < 2 / 3:
            nodes = nodes[[self._draw(len(nodes))]]
        return nodes

    def _draw_move(self, choice: RailChoice) -> RailChoice:
        """Return a copy of a choice with one random change, drawn by the shares of the moves.

        The move is the one in whose interval a random number from 0 to 1 lies: the constants from
        `_MOST_REVERSE` to `_MOST_HASTE` are the upper ends of the intervals. The initial rings of
        chords keep their circuits; a choice of chords alone gets another ring instead.
        """
        # Ring b is the initial one of bundle b, which is a chord if its stride is above 0; rings
        # behind the last bundle are initial nowhere.
        stride = choice.layout.stride
        movable = [
            ring
            for ring in range(len(choice.layout.order))
            if ring >= len(stride) or stride[ring] == 0
        ]
        move = self.rng.random()
        if move < _MOST_REVERSE and movable:
            return self._reverse_part(choice, movable)
        if move < _MOST_REPLACE:
            return self._replace_ring(choice, movable)
        if move < _MOST_ROUTES:
            # The constants from `ANY_ROUTE` to `STRAIGHT_ALONE` are 0 to 2.
            routes = choice.routes.copy()
            routes[self._draw_alike()] = self._draw(1 + STRAIGHT_ALONE)
            return choice._replace(routes=routes)
        if move < _MOST_HASTE:
            haste_s = choice.haste_s.copy()
            haste_s[self._draw_alike()] = self.rng.uniform(0.0, 3 * self.delay_s)
            return choice._replace(haste_s=haste_s)

        # One communication comes right before another one in priority, or right after it: its
        # number becomes the next smaller or the next greater floating-point number.
        moved = self.riding[self._draw(len(self.riding))]
        other = self.riding[self._draw(len(self.riding))]
        priority = choice.priority.copy()
        priority[moved] = np.nextafter(priority[other], self.rng.choice((-np.inf, np.inf)))
        return choice._replace(priority=priority)

    def _reverse_part(self, choice: RailChoice, movable: Sequence[int]) -> RailChoice:
        """Return a copy of a choice with a random part of the order of one ring reversed (2-opt).

        With the order a b c d e f and the places 1 and 4, it becomes a e d c b f. Each cycle keeps
        its seats. `movable` are the numbers of rings that may change, at least one.
        """
        layout = choice.layout
        ring = movable[self._draw(len(movable))]
        order = layout.order.copy()
        low, high = sorted((self._draw(order.shape[1]), self._draw(order.shape[1])))
        order[ring, low : high + 1] = order[ring, low : high + 1][::-1].copy()
        next_seat = layout.next_seat.copy()
        next_seat[ring] = close_ring(order[ring], layout.cycle[ring])
        return choice._replace(layout=layout._replace(order=order, next_seat=next_seat))

    def _replace_ring(self, choice: RailChoice, movable: Sequence[int]) -> RailChoice:
        """Return a copy of a choice with another ring, of a random order and cut.

        The ring is added while fewer than `_MOST_RINGS` may change, and then replaces one of them.
        The last cut, with the fewest cycles, is taken in half of the cases, and the other half is
        shared by all cuts. `movable` are the numbers of the rings that may change, those of no
        chord.
        """
        layout = choice.layout
        order = self.orders[self._draw(len(self.orders))]
        cut = self.cuts[-1]
        if self.rng.random() < 0.5:
            cut = self.cuts[self._draw(len(self.cuts))]
        rings = list(zip(layout.order, layout.cycle, strict=True))
        if len(movable) < _MOST_RINGS:
            rings.append((order, cut))
        else:
            rings[movable[self._draw(len(movable))]] = (order, cut)
        layout = self.decoder.lay_out(rings, layout.width.tolist(), layout.stride.tolist())
        return choice._replace(layout=layout)


def list_exchange_groups(seats: Seats) -> Ints | None:
    """List the groups whose all-to-alls are worth chords, as seats; shape (groups, members).

    All groups have one size, that whose all-to-alls send most bytes: if those of 4 members send 10
    GB in all, and those of 8 members 30 GB, the groups of 8 are listed. The result is None if no
    all-to-all has more than two members, or if a seat is in two of these groups, as its ports
    would have to lead to both.
    """
    # Nodes are `EXCHANGE` if they are all-to-alls of more than two members.
    exchanges = np.flatnonzero(seats.nodes.how == EXCHANGE)
    if not len(exchanges):
        return None

    # By number of members, the bytes of all all-to-alls of that size.
    size_of_exchange = seats.n_members[exchanges]
    sent_by_size = np.bincount(size_of_exchange, seats.nodes.bytes_sent[exchanges])
    sizes = np.unique(size_of_exchange)
    n_members = int(sizes[sent_by_size[sizes].argmax()])  # also if none of them sends a byte
    nodes = exchanges[size_of_exchange == n_members]

    # ``members[k, place]``: those of node ``nodes[k]`` stand in ``nodes.member`` from
    # ``first_member`` on. Micro-batches repeat an all-to-all of the same group: each group is
    # listed once.
    members = seats.nodes.member[seats.nodes.first_member[nodes][:, None] + np.arange(n_members)]
    groups = np.unique(members, axis=0)

    # A seat in two groups is fewer different seats than places in all groups.
    if len(np.unique(groups)) < groups.size:
        return None
    return groups


def lay_chord(groups: Ints, stride: int, n_seats: int) -> tuple[Ints, Ints]:
    """Make the initial ring of a chord: (``order[place]``, a seat, and ``cycle[seat]``).

    ``groups[group, place]`` is a seat. Each member leads to the one `stride` places further on in
    its group, from 1 to n - 1 for n members: of 8, stride 2 leads along two cycles, the places 0,
    2, 4, 6 and the places 1, 3, 5, 7. Seats in no group are alone on their cycle: they come last
    in the order and have no circuit.
    """
    n_members = groups.shape[1]
    n_cycles = gcd(n_members, stride)

    # Cycle k begins at place k of the group and goes on by the stride.
    steps = np.arange(n_members // n_cycles) * stride
    places = (np.arange(n_cycles)[:, None] + steps) % n_members  # by cycle, in its order
    cycles = groups[:, places].reshape(-1, n_members // n_cycles)

    # A cycle has the number of its least seat, so that no two cycles and no lone seats share one.
    order = np.concatenate([cycles.ravel(), np.setdiff1d(np.arange(n_seats), groups)])
    cycle = np.arange(n_seats)
    cycle[cycles] = cycles.min(axis=1)[:, None]
    return order, cycle


def _list_kinds(seats: Seats) -> list[Ints]:
    """List sets of communications that are alike, which a move changes together, as nodes.

    Each communication is in two sets. The first has all of the same group, operation and partner,
    as all messages of one rank to the next. The second has all of the same operation in all groups
    of one name, as all all-gathers of data parallelism.
    """
    riding = seats.riding
    step = seats.job.step()
    operation = seats.folded.part[riding]

    # ``operation[k]`` is one operation of node ``riding[k]``, for the group, the kind and the
    # partner of the node. Groups whose names agree up to the last dot are one family, as dp.0 and
    # dp.1.
    names = [group.name.rpartition(".")[0] for group in step.groups]
    family_of_group = np.unique(names, return_inverse=True)[1].reshape(-1)
    by_group = np.stack([step.group[operation], step.kind[operation], step.peer[operation]])
    by_family = np.stack([family_of_group[step.group[operation]], step.kind[operation]])

    # Equal columns get equal numbers. Nodes with the same number stand together after the sort,
    # and are split where it changes: of the numbers 1, 0, 1 the kinds are nodes 1, and 0 and 2.
    kinds = []
    for columns in (by_group, by_family):
        number = np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1)
        order = np.argsort(number, kind="stable")
        begins = np.flatnonzero(np.diff(number[order])) + 1
        kinds += np.split(riding[order], begins)
    return kinds

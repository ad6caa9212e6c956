"""The search of `prefetch`: which circuits stay, how data go, and who goes first.

A choice fixes the rings of a rail, the way of each communication, and priorities; the kernel of
`optmatch.solvers.rails.decoder`, which defines seats, bundles, rings, homes, ways and chords,
makes a schedule of it. Simple choices are timed first: a few rings in many orders. Local search
then changes the best of them at random: a change stays if the step gets no longer than a tolerance
that falls (threshold accepting, Dueck and Scheuer 1990).

Words of this module:

Order
    All seats in a row, of which rings are made.
Cut
    The part of the rail that each seat is in. A ring has a cycle for each part, on which the seats
    stand as in the order.
Shape
    What cuts, ports and ways a choice has, with the order of the seats left open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import gcd
from typing import NamedTuple

import numpy as np

from optmatch.model.limits import running_clock
from optmatch.solvers.rails.bases import (
    close_rings,
    list_components,
    list_cuts,
    list_families,
    list_orders,
)
from optmatch.solvers.rails.chords import choose_chords, route_exchange
from optmatch.solvers.rails.decoder import (
    CHORDS,
    EITHER,
    EXCHANGE,
    MESSAGE,
    BundlePorts,
    Floats,
    Ints,
    Layout,
    RailChoice,
    Result,
    Scratch,
    StepGraph,
    decode,
)
from optmatch.solvers.rails.exchanges import list_menu
from optmatch.solvers.rails.paths import longest_paths
from optmatch.solvers.rails.seats import Seats
from optmatch.solvers.rails.staying import bound_step

_TURN = 1_000
"""After so many trials a search goes on from another start."""
_STARTS = 4
"""How many starts a search has."""
_MOST_TRIALS = 60_000
"""So many simple choices are timed at most."""
_MOVES_PER_SIMPLE = 2.0
"""Random moves take so many times the work of the simple choices, unless a limit says how long."""
_FIRST = -3
"""The way of a shape in which everything goes over the first ring that joins its members."""
_MOST_RINGS = 3
"""A move adds a ring while fewer than so many may change; after that it replaces one of them."""
_MOST_HASTE_PART = 0.1
"""A move changes a haste by so much of the best step at most."""
_MOST_ROWS = 30_000_000
"""Rows of relays of a plan: with more it does not fit into memory."""


class Decoder:
    """Times choices of one step: the arrays that the kernel reads and works in."""

    def __init__(self, seats: Seats) -> None:
        self.seats = seats
        network = seats.job.network
        n_nodes = len(seats.how)
        n_seats = len(seats.rail)

        # The tail of a node is its earliest start in the step run backwards. A switch that stops
        # as a whole changes no circuit here.
        after = longest_paths(seats.duration_s, seats.pairs[:, ::-1].copy())
        assert after is not None  # else the bound of the job has named the ranks that wait
        self.graph = StepGraph(
            duration_s=seats.duration_s,
            tail_s=after.start_s,
            bytes_sent=seats.bytes_sent,
            latency_s=seats.latency_s,
            how=seats.how,
            first_member=seats.begin,
            member=seats.member,
            first_successor=seats.first,
            successor=seats.after,
            n_predecessors=np.bincount(seats.pairs[:, 1], minlength=n_nodes),
            menu=list_menu(np.diff(seats.begin)[seats.how == EXCHANGE].tolist()),
            change_s=np.inf if network.switching == "all-stop" else network.delay_s,
        )
        circuits = np.zeros((2, network.ports_per_gpu, n_seats), np.int64)
        self._scratch = Scratch(
            ports=BundlePorts(*circuits, *np.zeros(circuits.shape)),
            mark=np.zeros(n_seats, np.int64),
            heap=np.zeros(n_nodes, np.int64),
            key_s=np.zeros(n_nodes),
            n_waiting=np.zeros(n_nodes, np.int64),
            work=np.zeros(1, np.int64),
        )
        self.result = Result(
            start_s=np.zeros(n_nodes),
            end_s=np.zeros(n_nodes),
            taken=np.zeros(n_nodes, np.int64),
            change_start_s=np.zeros(0),
            change=np.zeros((0, 3), np.int64),
        )

        # A plan has a row for each GPU that forwards, on every rail: with 8 equal rails (8 ranks
        # of one seat) an eighth of the rows that fit into memory are allowed on the one rail.
        copies_of_seat = np.bincount(seats.folded.class_of, minlength=n_seats)
        self._most_forwarding = _MOST_ROWS // int(copies_of_seat.max(initial=1))

    @property
    def work(self) -> int:
        """The work of all schedules so far, as `Scratch.work`."""
        return int(self._scratch.work[0])

    def run(
        self, choice: RailChoice, most_s: float = np.inf, n_changes: int = 0
    ) -> tuple[float, int]:
        """Schedule a choice into `result`, with room for so many changes; as `decode` returns."""
        if n_changes != len(self.result.change_start_s):
            self.result = self.result._replace(
                change_start_s=np.zeros(n_changes), change=np.zeros((n_changes, 3), np.int64)
            )
        outcome: tuple[float, int] = decode(
            self.graph, choice, float(most_s), self._most_forwarding, self._scratch, self.result
        )
        return outcome

    def lay_out(
        self, rings: Sequence[tuple[Ints, Ints]], width: Sequence[int], stride: Sequence[int]
    ) -> Layout:
        """Make the arrays of rings, each given by order and cut, and of bundles."""
        seats = self.seats
        n_members = np.diff(seats.begin)[seats.how == EXCHANGE]
        load = np.full(1 + int(n_members.max(initial=0)), np.inf)
        for n in np.unique(n_members).tolist():
            routes = route_exchange(tuple(stride), n)
            if routes is not None:
                load[n] = routes.busiest_port_parts
        return Layout(
            order=np.array([order for order, _ in rings]),
            cycle=np.array([cut for _, cut in rings]),
            next_seat=np.array([close_rings(order, cut) for order, cut in rings]),
            width=np.array(width),
            stride=np.array(stride),
            rate=np.array(width) * seats.job.network.port_bytes_per_s,
            load=load,
        )


class _Shape(NamedTuple):
    """A choice without an order of the seats."""

    cuts: tuple[Ints, ...]
    """By ring the cut, shape (seats,)."""
    widths: tuple[int, ...]
    """By bundle that is no chord, how many ports of each GPU it has."""
    way: int
    """The way of every node: `EITHER`, `_FIRST`, or the number of a ring."""
    price_s: float
    """As in `RailChoice`."""
    strides: tuple[int, ...] = ()
    """Strides of further bundles of one port each, which are chords."""


class _Timed(NamedTuple):
    """A choice and its step."""

    step_s: float
    """The time of the step, in seconds; infinite if its schedule was given up."""
    choice: RailChoice


class Search:
    """A search for the best choice; `best` is the best so far, if it is better than known."""

    def __init__(
        self, seats: Seats, rng: np.random.Generator, spare_s: float, known_s: float
    ) -> None:
        self.seats = seats
        self.rng = rng
        self.decoder = Decoder(seats)
        self.clock = running_clock()
        self.spare_s = spare_s
        self.known_s = known_s
        self.delay_s = seats.job.network.delay_s
        self.n_tried = 0
        self.best: RailChoice | None = None
        self.best_s = known_s * (1 - 1e-12)
        self.bound_s = bound_step(seats) * (1 + 1e-9)

        # What choices are made of. Ports may hold chords where groups have all-to-alls.
        component = list_components(seats)
        families = list_families(seats)
        self.cuts = list_cuts(component, families)
        self.orders = list(list_orders(seats, families))
        self.riding = seats.riding
        self.kinds = _list_kinds(seats)
        self.ports = seats.job.network.ports_per_gpu
        self.chord_groups = list_exchange_groups(seats)
        self.plain = _Shape(cuts=(component,), widths=(self.ports,), way=0, price_s=0.0)

    def run(self, n_trials: int | None, most_work: float) -> None:
        """Time simple choices, then change the best of them at random.

        The simple choices take half of all time and work at most, and half of many trials. The
        random moves take what is left of these; without a limit of trials or time, their share of
        the work.
        """
        spare_s = self.spare_s
        remaining_s = np.inf if self.clock is None else self.clock.remaining_s
        if remaining_s < np.inf:
            self.spare_s += max(0.0, remaining_s - spare_s) / 2
        most_simple = _MOST_TRIALS
        if n_trials is not None:
            most_simple = max(n_trials // 2, min(n_trials, _TURN))
        starts = self._time_simple_choices(most_simple, most_work / 2)
        self.spare_s = spare_s
        if n_trials is None:
            n_trials = 10**9
            if remaining_s == np.inf:
                most_work = min(most_work, (1 + _MOVES_PER_SIMPLE) * self.decoder.work)
        while starts and self.n_tried < n_trials and not self._is_done(most_work):
            start = starts.pop(0)
            n_trials_of_turn = min(_TURN, n_trials - self.n_tried)
            starts.append(self._take_turn(start, n_trials_of_turn, most_work))

    def _take_turn(self, start: _Timed, n_trials: int, most_work: float) -> _Timed:
        """Change a choice at random for a turn, with a falling tolerance; return the best."""
        current = best = start
        for trial in range(n_trials):
            if self._is_done(most_work):
                break

            # The tolerance falls quadratically, from 1 % to 0.
            most_s = current.step_s * (1 + 0.01 * (1 - trial / _TURN) ** 2)
            changed = self._change(current.choice)
            step_s = self._try(changed, most_s)
            if step_s <= most_s:
                current = _Timed(step_s, changed)
            if step_s < best.step_s:
                best = current
        return best

    def _time_simple_choices(self, n_trials: int, most_work: float) -> list[_Timed]:
        """Time the simple choices; return the best ones, no two of which have the same rings."""
        starts: dict[bytes, _Timed] = {}
        scores: list[float] = []
        best_s = np.inf
        for choice in self._list_simple_choices(scores):
            if self.n_tried == n_trials or self._is_done(most_work):
                break

            # A choice that is 30 % worse than the best, or twice as long as the known plan, is
            # given up to save work; its time is infinite then.
            step_s = self._try(choice, min(1.3 * best_s, 2 * self.known_s))
            scores.append(step_s)
            best_s = min(best_s, step_s)
            key = choice.layout.next_seat.tobytes()
            if step_s < np.inf and (key not in starts or step_s < starts[key].step_s):
                starts[key] = _Timed(step_s, choice)
            if len(starts) > _STARTS:
                del starts[max(starts, key=lambda key: starts[key].step_s)]
        return sorted(starts.values(), key=lambda start: start.step_s)

    def _is_done(self, most_work: float) -> bool:
        is_over = self.clock is not None and self.clock.remaining_s < self.spare_s
        return is_over or self.best_s <= self.bound_s or self.decoder.work > most_work

    def _try(self, choice: RailChoice, most_s: float) -> float:
        """Return the step time of a choice, infinite if it is given up; keep the best one."""
        self.n_tried += 1
        step_s, _ = self.decoder.run(choice, most_s)
        if step_s < self.best_s:
            self.best = choice
            self.best_s = step_s
        return step_s

    def _list_simple_choices(self, scores: Sequence[float]) -> Iterator[RailChoice]:
        """List choices without random moves; the caller appends the time of each to `scores`.

        All shapes come first, in one order of seats. Four lists then take turns, each with an
        equal share of the work: one ring in the order of release, one ring, all shapes from best
        to worst in all orders, and all shapes with hastes.
        """
        seats = self.seats
        free = longest_paths(seats.duration_s, seats.pairs)
        assert free is not None

        # Priorities: the longest path to the end of the step first, what could start first with
        # all circuits there, or as programs list it.
        critical = -seats.duration_s - self.decoder.graph.tail_s
        earliest = free.start_s
        in_program = seats.folded.part.astype(float)
        shapes = list(self._list_shapes())
        first = self.orders[0]
        for shape in shapes:
            yield self._form(shape, first, critical)
        best = np.argsort(scores, kind="stable").tolist()
        ordered = list(product((critical, earliest), self.orders))[1:]
        message_s = self.delay_s * (seats.how == MESSAGE)
        hastes_s = [
            n_delays * message_s + part * self.decoder.graph.tail_s
            for n_delays, part in product((1, 3), (0.0, 0.01, 0.1, 1.0))
        ]
        lists = [
            (
                self._form(self.plain, order, priority)._replace(in_order=True)
                for priority, order in product((in_program, critical, earliest), self.orders)
            ),
            (self._form(self.plain, order, priority) for priority, order in ordered),
            (self._form(shapes[k], order, priority) for k in best for priority, order in ordered),
            (
                self._form(shapes[k], first, critical)._replace(haste_s=haste_s)
                for haste_s in hastes_s
                for k in best
            ),
        ]

        # A ring of all GPUs takes more work to time than many others: the list with the least
        # work so far goes on.
        work = [0] * len(lists)
        while lists:
            turn = work.index(min(work))
            former_work = self.decoder.work
            choice = next(lists[turn], None)
            if choice is None:
                del lists[turn], work[turn]
                continue
            yield choice
            work[turn] += self.decoder.work - former_work

    def _list_shapes(self) -> Iterator[_Shape]:
        """List shapes of one or two rings, and those with chords."""
        yield from self._list_chord_shapes()
        all_ports = (self.ports,)
        halves = (self.ports - self.ports // 2, self.ports // 2)

        # The last cut joins all and has the longest cycles: shapes with it come last.
        joins_all = self.cuts[-1]
        one_or_two_cuts = [*((cut,) for cut in self.cuts), *permutations(self.cuts, 2)]
        one_or_two_cuts.sort(key=lambda cuts: (cuts[0] is joins_all, cuts[-1] is joins_all))
        for cuts in one_or_two_cuts:
            # Everything goes over the first ring, which has short cycles, if all members are on
            # one of them; the rest goes over the second ring, which takes the ports then.
            if len(cuts) > 1 and cuts[0] is not joins_all:
                yield _Shape(cuts, all_ports, _FIRST, 0.0)

            # Each communication goes as it ends soonest. With a price of one delay, circuits
            # change less often.
            for price_s in (0.0, self.delay_s):
                yield _Shape(cuts, all_ports, EITHER, price_s)
                if self.ports > 1 and len(cuts) > 1:
                    yield _Shape(cuts, halves, EITHER, price_s)
        yield self.plain

        # Two rings of all: the second one goes backwards, see `_form`.
        if self.ports > 1:
            yield _Shape((joins_all, joins_all), halves, EITHER, 0.0)

    def _list_chord_shapes(self) -> Iterator[_Shape]:
        """List shapes with one chord or more, the other ports in one ring or two halves."""
        if self.chord_groups is None or self.ports == 1:
            return
        n_members = len(self.chord_groups[0])
        for n_chords in range(1, self.ports + 1):
            routes = choose_chords(n_members, n_chords)
            if routes is None:
                break
            n_other_ports = self.ports - n_chords
            if n_other_ports == 0:
                yield _Shape((), (), EITHER, 0.0, routes.strides)
                continue
            for cut in self.cuts:
                yield _Shape((cut,), (n_other_ports,), EITHER, 0.0, routes.strides)
                if n_other_ports > 1:
                    halves = (n_other_ports - n_other_ports // 2, n_other_ports // 2)
                    yield _Shape((cut, cut), halves, EITHER, 0.0, routes.strides)

    def _form(self, shape: _Shape, order: Ints, priority: Floats) -> RailChoice:
        """Make a choice of a shape with an order of the seats.

        If two rings have the same cut, the second one goes backwards. Chords are the last bundles:
        with widths (2,) and chords of strides 1 and 3 the widths become (2, 1, 1), the strides
        (0, 1, 3).
        """
        n_nodes = len(self.seats.how)
        rings = [(order, cut) for cut in shape.cuts]
        if len(shape.cuts) > 1 and shape.cuts[0] is shape.cuts[1]:
            rings[1] = (order[::-1].copy(), shape.cuts[1])
        if self.chord_groups is not None:
            for stride in shape.strides:
                rings.append(lay_chord(self.chord_groups, stride, len(order)))
        layout = self.decoder.lay_out(
            rings,
            (*shape.widths, *(1 for _ in shape.strides)),
            (*(0 for _ in shape.widths), *shape.strides),
        )
        way = np.full(n_nodes, shape.way)
        if shape.way == _FIRST:
            way = self._fit(layout)
        return RailChoice(layout, way, priority, np.zeros(n_nodes), shape.price_s, in_order=False)

    def _fit(self, layout: Layout) -> Ints:
        """Send each node over the first ring that has all of its members on one cycle."""
        seats = self.seats
        way = np.full(len(seats.how), EITHER)
        first_member = seats.begin[self.riding]

        # Backwards, so that the first ring that fits is written last. `reduceat` goes through the
        # members of all nodes from each first member to the next one.
        for number in reversed(range(len(layout.cycle))):
            cycle_of_member = layout.cycle[number][seats.member]
            least = np.minimum.reduceat(cycle_of_member, first_member)
            most = np.maximum.reduceat(cycle_of_member, first_member)
            way[self.riding[least == most]] = number
        return way

    def _change(self, choice: RailChoice) -> RailChoice:
        """Apply one random move."""
        # The homes of chords keep their circuits.
        stride = choice.layout.stride
        movable = [
            ring
            for ring in range(len(choice.layout.order))
            if ring >= len(stride) or stride[ring] == 0
        ]
        draw = self.rng.random()
        if draw < 0.3 and movable:
            return self._perturb_ring(choice, movable)
        if draw < 0.36:
            return self._replace_ring(choice, movable)
        if draw < 0.7:
            return self._change_way(choice)
        if draw < 0.9:
            return self._change_priority(choice)
        return self._change_haste(choice)

    def _draw(self, n: int) -> int:
        """Draw a number from 0 to n - 1."""
        return int(self.rng.random() * n)

    def _perturb_ring(self, choice: RailChoice, movable: Sequence[int]) -> RailChoice:
        """Turn a part of the order of one ring around, or move its last seat to its front."""
        layout = choice.layout
        ring = movable[self._draw(len(movable))]
        order = layout.order.copy()
        low, high = sorted((self._draw(order.shape[1]), self._draw(order.shape[1])))
        part = order[ring, low : high + 1]
        order[ring, low : high + 1] = part[::-1] if self.rng.random() < 0.5 else np.roll(part, 1)
        next_seat = layout.next_seat.copy()
        next_seat[ring] = close_rings(order[ring], layout.cycle[ring])
        return choice._replace(layout=layout._replace(order=order, next_seat=next_seat))

    def _replace_ring(self, choice: RailChoice, movable: Sequence[int]) -> RailChoice:
        """Add a ring of an order and a cut, or replace one if many may change.

        The last cut, which joins all, is taken half of the time.
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

    def _change_way(self, choice: RailChoice) -> RailChoice:
        """Let one communication go another way, or all that are alike."""
        nodes = self.kinds[self._draw(len(self.kinds))]
        if self.rng.random() < 2 / 3:
            nodes = nodes[self._draw(len(nodes))]

        # `EITHER` (-2), `STRAIGHT` (-1), all rings (from 0 on), and chords where there are any.
        n_rings = len(choice.layout.order)
        way = EITHER + self._draw(2 + n_rings + int(choice.layout.stride.any()))
        ways = choice.way.copy()
        ways[nodes] = CHORDS if way == n_rings else way
        return choice._replace(way=ways)

    def _change_priority(self, choice: RailChoice) -> RailChoice:
        """Put one communication right before another one, or right after it, in priority."""
        moved = self.riding[self._draw(len(self.riding))]
        other = self.riding[self._draw(len(self.riding))]
        toward = np.inf if self.rng.random() < 0.5 else -np.inf
        priority = choice.priority.copy()
        priority[moved] = np.nextafter(priority[other], toward)
        return choice._replace(priority=priority)

    def _change_haste(self, choice: RailChoice) -> RailChoice:
        """Prefer one communication, or all that are alike, by up to a delay more or less."""
        nodes = self.kinds[self._draw(len(self.kinds))]
        if self.rng.random() < 0.5:
            nodes = nodes[self._draw(len(nodes))]
        most_s = min(self.delay_s, _MOST_HASTE_PART * self.best_s)
        haste_s = choice.haste_s.copy()
        haste_s[nodes] += (2 * self.rng.random() - 1) * most_s
        return choice._replace(haste_s=haste_s)


def list_exchange_groups(seats: Seats) -> Ints | None:
    """List the groups whose all-to-alls are worth chords, as seats; shape (groups, members).

    All have one size, that whose all-to-alls send most bytes. None without all-to-alls of more
    than two members, or if a seat is in two of these groups: its ports would have to lead to both.
    """
    counts = np.diff(seats.begin)
    exchanges = np.flatnonzero(seats.how == EXCHANGE)
    if not len(exchanges):
        return None
    sent_by_size = np.bincount(counts[exchanges], seats.bytes_sent[exchanges])
    sizes = np.unique(counts[exchanges])
    n_members = int(sizes[sent_by_size[sizes].argmax()])  # also if none of them sends a byte
    nodes = exchanges[counts[exchanges] == n_members]

    # Micro-batches repeat an all-to-all of the same group: each group is listed once.
    members = seats.member[seats.begin[nodes][:, None] + np.arange(n_members)]
    groups = np.unique(members, axis=0)
    is_disjoint = len(np.unique(groups)) == groups.size
    return groups if is_disjoint else None


def lay_chord(groups: Ints, stride: int, n_seats: int) -> tuple[Ints, Ints]:
    """Make the ring, as order and cut, that leads from each member of a group a stride further on.

    Among 8 members, stride 2 leads along two cycles: the places 0, 2, 4, 6 and 1, 3, 5, 7.
    """
    n_members = groups.shape[1]
    n_cycles = gcd(n_members, stride)
    steps = np.arange(n_members // n_cycles) * stride
    places = (np.arange(n_cycles)[:, None] + steps) % n_members  # by cycle, in its order
    cycles = groups[:, places].reshape(-1, n_members // n_cycles)

    # A cycle has the number of its least seat, so that no two cycles and no lone seats share one.
    order = np.concatenate([cycles.ravel(), np.setdiff1d(np.arange(n_seats), groups)])
    cut = np.arange(n_seats)
    cut[cycles] = cycles.min(axis=1)[:, None]
    return order, cut


def _list_kinds(seats: Seats) -> list[Ints]:
    """List sets of communications that are alike, which a move changes together.

    Each is in two sets: with those of the same group, kind and partner, as all messages of one
    rank to the next; and with those of one kind in all groups of one name, as all all-gathers of
    data parallelism.
    """
    riding = seats.riding
    step = seats.job.step()
    operation = seats.folded.part[riding]

    # Groups whose names agree up to the last dot are one family, as dp.0 and dp.1.
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

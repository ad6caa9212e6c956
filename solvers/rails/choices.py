"""The choices of a forwarded plan, and a random local search for the best of them.

Simple choices are timed first: a few rings in many orders. Local search then changes the best of
them at random: a change stays if the step gets no longer than a tolerance that falls (threshold
accepting, Dueck and Scheuer 1990). The kernel of `optmatch.solvers.rails.decoder` makes the
schedule of a choice by list scheduling.

Words of this module; those of the kernel (seat, node, bundle, ring, way, home, chord, block, menu,
stage) are those of `optmatch.solvers.rails.decoder`:

Choice
    All that a schedule follows: which circuits there may be, the way of each communication, and
    who goes first.
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
Start
    A choice with which local search begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model.limits import running_clock
from optmatch.problems.rails.execution.plan import ChordRoutes
from optmatch.solvers.rails.bases import (
    close_rings,
    list_components,
    list_cuts,
    list_families,
    list_orders,
)
from optmatch.solvers.rails.chords import choose_chords, route_over_chords
from optmatch.solvers.rails.critical import Blocked, CriticalPaths, ScheduleTimes
from optmatch.solvers.rails.decoder import (
    CHORDS,
    EITHER,
    BundlePorts,
    Chords,
    PlanChoice,
    Result,
    ScheduleLimits,
    Scratch,
    StepGraph,
    StepOutcome,
    decode,
)
from optmatch.solvers.rails.exchanges import list_menu
from optmatch.solvers.rails.paths import Ints, longest_paths
from optmatch.solvers.rails.seats import EXCHANGE, MESSAGE, Seats
from optmatch.solvers.rails.staying import bound_step

_TURN = 1_000
"""After so many trials a search goes on from another start."""
_STARTS = 4
"""How many starts a search has."""
_TURNS = 6
"""How often each start has its turn, before all further turns go on from the best choice."""
_STALE = 30_000
"""A search ends after so many trials in vain, unless a clock ends it. With half of it, steps of
four jobs on 3 and 4 GPUs are 0.2 % longer in the mean over three seeds, and take 30 % less
time."""
_FIRST = -3
"""The way of a shape in which everything goes over the first ring that joins its members."""
_MOST_RINGS = 3
"""A move adds a ring while fewer than so many may change; after that it replaces one of them."""
_MOST_PERTURB = 0.3
_MOST_REPLACE = 0.36
_MOST_WAY_OF_ONE = 0.6
_MOST_WAY = 0.72
_MOST_PRIORITY = 0.93
_MOST_HASTE = 0.99
"""Moves by the number that draws them, each up to its limit: the order of a ring (30 %), a ring
(6 %), the way of one communication (24 %) or of all of a kind (12 %), who goes first (21 %), haste
(6 %), and whether all goes in turn (1 %). Rings and ways decide most and are drawn most."""
_CRITICAL_SHARE = 0.5
"""The part of the moves that exchange two communications on the critical path, in every second
turn of each start. Without such turns, steps of a pipeline with experts on four GPUs are 1 to 3 %
longer; with them in all turns, steps of others are up to 1 % longer, as rings change less."""
_MOST_HASTE_PART = 0.1
"""A move changes haste by at most one delay and this part of the step: where delays are longer
than the step, circuits stay, and a haste of a delay would only put a communication first or
last."""
_MOST_ROWS = 20_000_000
"""Rows of relays of a plan: with more its file, 12 bytes a row, could not be read again."""


class Ring(NamedTuple):
    """Circuits that may be up at the same time: one at each seat."""

    order: Ints
    """All seats, as they stand on it; shape (seats,)."""
    part: Ints
    """By seat the number of its cycle: a ring may be of several."""
    to: Ints
    """By seat its circuit, -1 if it is alone on its cycle."""


def _make_ring(order: Ints, part: Ints) -> Ring:
    """Make a ring of an order and a cut; a seat that is alone on its cycle has no circuit.

    With the order 0, 2, 1, 3, 4 and seats 0, 1 and 2 on one cycle, circuits lead from 0 to 2, from
    2 to 1, and from 1 back to 0; of several replicas the last one may lead to seat 0 of the next,
    which is circuit 5.
    """
    n_seats = len(order)
    to = close_rings(order, part % n_seats)
    crosses = part >= n_seats
    if crosses.any():
        # The last seat of a cycle is the one that leads to a place before its own, or to itself:
        # ``place[seat]`` is where a seat stands in the order.
        place = np.argsort(order)
        to = np.where(crosses & (to < 0), np.arange(n_seats), to)
        to[crosses & (place[to] <= place)] += n_seats
    return Ring(order, part, to)


def _cross_cuts(cuts: Sequence[Ints]) -> list[Ints]:
    """List cuts with cycles that join all replicas, and then those whose cycles stay in one.

    A seat that is alone on its cycle leads to itself in the next replica in any case: a port that
    is dark when the step begins would have to be dark when it ends. The last cut stays the last.
    """
    n_seats = len(cuts[0])

    # Of equal cuts the one that stands last is kept: they are gone through from the last one on,
    # and turned around in the end.
    both: dict[bytes, Ints] = {}
    for cut in reversed([*(cut + n_seats for cut in cuts), *cuts]):
        is_alone = np.bincount(cut)[cut] == 1
        lone_cut = np.where(is_alone, cut % n_seats + n_seats, cut)
        both.setdefault(lone_cut.tobytes(), lone_cut)
    return [*both.values()][::-1]


class RailChoice(NamedTuple):
    """The choices of a plan."""

    rings: tuple[Ring, ...]
    """Bundle b holds ring b when the step begins and ends; rings beyond the bundles are set up
    when something goes over them."""
    widths: tuple[int, ...]
    """By bundle how many ports of each GPU it has; they sum to the ports of a GPU."""
    ways: NDArray[np.int64]
    """By node: `EITHER`, `STRAIGHT`, `CHORDS`, or the number of a ring."""
    rank: NDArray[np.float64]
    """By node its priority: among those that could start at one time, the least goes first."""
    haste_s: NDArray[np.float64]
    """By node, seconds by which it is seen as ready, or as able to start, sooner than it is."""
    price_s: float
    """Seconds by which a way with new circuits has to end sooner than one without."""
    delay_s: float
    """The delay of a change with which the choice is timed, in seconds; at least that of the
    network."""
    in_turn: bool
    """Whether what is ready first goes first, also if it has to wait for circuits."""
    strides: tuple[int, ...] = ()
    """By bundle the stride of a chord, 0 of a bundle that is none; empty without chords."""


class Decoder:
    """Times choices by the kernel, with all arrays that it needs.

    Attributes
    ----------
    seats
        The folded step that is timed.
    graph
        Its nodes, as the kernel reads them.
    result
        The schedule of the choice that was timed last; overwritten by the next one.
    work
        Nodes and circuits that were looked at so far.
    exchange_sizes
        The numbers of members that all-to-alls have, ascending.
    """

    def __init__(self, seats: Seats) -> None:
        """Write the step as arrays, and make room for schedules and scratch of the kernel.

        The tails of nodes are worked out here, once: the longest path from the end of a node to
        the end of the step, in seconds. All arrays of scratch and results are reused by every
        `run`. Chords, and the scratch of choices with some number of bundles, are made when a
        choice first needs them.
        """
        self.seats = seats
        n_nodes = len(seats.how)
        n_seats = len(seats.rail)
        ports_per_gpu = seats.job.network.ports_per_gpu

        # The tail of a node is the longest path from its end to the end of the step: its earliest
        # start in the step run backwards.
        reversed_pairs = seats.pairs[:, ::-1].copy()
        after = longest_paths(seats.duration_s, reversed_pairs)
        assert after is not None  # else the bound of the job has named the ranks that wait
        self.graph = StepGraph(
            duration_s=seats.duration_s,
            tail_s=after.start_s,
            bytes_sent=seats.bytes_sent,
            latency_s=seats.latency_s,
            crosses=seats.crosses,
            how=seats.how,
            first_member=seats.begin,
            member=seats.member,
            first_successor=seats.first,
            successor=seats.after,
            n_predecessors=np.bincount(seats.pairs[:, 1], minlength=n_nodes),
        )
        self.work = 0

        # Scratch of the kernel. A bundle is some ports of every GPU that always hold the same
        # circuits: there are at most as many as ports. The first axis is sending (0) or receiving
        # (1): to or from which seat a port leads, and when it is free, in seconds.
        self._circuits = np.zeros((2, ports_per_gpu, n_seats), np.int64)
        self._free_s = np.zeros(self._circuits.shape)
        self._mark = np.zeros(n_seats, np.int64)
        self._heap = np.zeros(n_nodes, np.int64)
        self._key_s = np.zeros(n_nodes)
        self._n_waiting = np.zeros(n_nodes, np.int64)
        self._scratch_of: dict[int, Scratch] = {}
        self.result = Result(
            start_s=np.zeros(n_nodes),
            end_s=np.zeros(n_nodes),
            taken=np.zeros(n_nodes, np.int64),
            change_start_s=np.zeros(0),
            change=np.zeros((0, 3), np.int64),
        )

        # A plan has a row for each GPU that forwards data of others, on every rail. The schedule
        # is of one rail; with 8 equal rails (8 ranks of one seat) each of its rows is copied 8
        # times, so that an eighth of the rows that fit into memory are allowed here.
        copies_of_seat = np.bincount(seats.folded.class_of, minlength=n_seats)
        self._most_forwarding = _MOST_ROWS // int(copies_of_seat.max(initial=1))

        # An all-to-all may go in stages, in each of which all circuits lead equally far. The menu
        # is a table of such stages, which depend on the number of members alone. A chord is a port
        # whose circuits stay and lead a fixed number of members further on: what chords can carry
        # is kept by their strides.
        n_members = np.diff(seats.begin)[seats.how == EXCHANGE]
        self.exchange_sizes = np.unique(n_members).tolist()
        self._menu = list_menu(self.exchange_sizes)
        self._chords_of: dict[tuple[int, ...], Chords] = {}

        # Arrays that the kernel reads: of the rings that were timed last (to whom each seat leads,
        # and on which cycle it is), and by division of ports the bytes per second of each bundle.
        self._is_all_stop = seats.job.network.switching == "all-stop"
        self._rings: tuple[Ring, ...] = ()
        self._next_seat = np.empty((0, n_seats), np.int64)
        self._cycle = np.empty((0, n_seats), np.int64)
        self._rate_of: dict[tuple[int, ...], NDArray[np.float64]] = {}

    def run(self, choice: RailChoice, most_s: float = np.inf, n_changes: int = 0) -> StepOutcome:
        """Schedule the step by a choice; return its time, its number of changes, and the work.

        The schedule replaces the one in ``self.result``, and the work is added to ``self.work``. A
        step of `most_s` seconds or longer is given up: its time is infinite. Of the new circuits
        the first `n_changes` are noted in ``self.result``, and further ones only counted: who
        needs all of them runs a choice twice.
        """
        # Most moves of a search change no ring: then the arrays of the former rings are used
        # again. Making them takes half as long as timing a step of a few operations.
        if choice.rings is not self._rings:
            self._rings = choice.rings
            self._next_seat = np.array([ring.to for ring in choice.rings])
            self._cycle = np.array([ring.part for ring in choice.rings])
        if choice.widths not in self._rate_of:
            rate = np.array(choice.widths) * self.seats.job.network.port_bytes_per_s
            self._rate_of[choice.widths] = rate

        # The choice as the kernel reads it.
        plan = PlanChoice(
            priority=choice.rank,
            haste_s=choice.haste_s,
            way=choice.ways,
            next_seat=self._next_seat,
            cycle=self._cycle,
            rate=self._rate_of[choice.widths],
            menu=self._menu,
            chords=self.describe_chords(choice),
            change_s=self.measure_change(choice),
            price_s=choice.price_s,
            in_order=choice.in_turn,
        )

        # The room for changes decides how many of them the kernel notes.
        if n_changes != len(self.result.change_start_s):
            self.result = self.result._replace(
                change_start_s=np.zeros(n_changes), change=np.zeros((n_changes, 3), np.int64)
            )
        limits = ScheduleLimits(float(most_s), self._most_forwarding)
        scratch = self._list_scratch(len(choice.widths))
        outcome: StepOutcome = decode(self.graph, plan, limits, scratch, self.result)
        self.work += outcome.work
        return outcome

    def measure_change(self, choice: RailChoice) -> float:
        """Return how long a change of a circuit counts when a choice is timed, in seconds.

        It is infinite on an all-stop switch, of which all circuits are dark while one changes:
        schedules that are made here do not follow that, and therefore change nothing there.
        """
        if self._is_all_stop:
            return np.inf
        return choice.delay_s

    def _list_scratch(self, n_bundles: int) -> Scratch:
        """Return the scratch of the kernel for choices with so many bundles.

        The arrays of ports share memory: those of two bundles are the first two rows of all.
        """
        if n_bundles not in self._scratch_of:
            ports = BundlePorts(
                receiver=self._circuits[0, :n_bundles],
                sender=self._circuits[1, :n_bundles],
                send_free_s=self._free_s[0, :n_bundles],
                receive_free_s=self._free_s[1, :n_bundles],
            )
            self._scratch_of[n_bundles] = Scratch(
                ports, self._mark, self._heap, self._key_s, self._n_waiting
            )
        return self._scratch_of[n_bundles]

    def describe_chords(self, choice: RailChoice) -> Chords:
        """Return the strides of the bundles of a choice, and the loads of its chords.

        ``load[n]`` is how many blocks the busiest chord carries in an all-to-all of n members,
        each hop counted: with strides 1 and 3, a block for the member 4 places further on takes
        one hop on each. It is infinite where the chords do not lead to all members. Loads are
        answers of linear programmes, and kept by strides.
        """
        strides = choice.strides or (0,) * len(choice.widths)
        if strides not in self._chords_of:
            load = np.full(1 + max(self.exchange_sizes, default=0), np.inf)
            for n in self.exchange_sizes:
                routes = self.route_exchange(strides, n)
                if routes is not None:
                    load[n] = routes.busiest_port_parts
            self._chords_of[strides] = Chords(np.array(strides, np.int64), load)
        return self._chords_of[strides]

    @staticmethod
    def route_exchange(strides: Sequence[int], n_members: int) -> ChordRoutes | None:
        """Return routes of an all-to-all over chords; None if they do not reach all members.

        That is so if all strides have a divisor in common with `n_members`, as 2 and 4 among 8
        members. Multiples of `n_members` lead back to the sender and do not count, nor does 0, the
        stride of a bundle that is no chord.
        """
        used = tuple(stride % n_members for stride in strides if stride % n_members)
        if not used or gcd(n_members, *used) > 1:
            return None
        return route_over_chords(n_members, used)


class _Shape(NamedTuple):
    """A choice without the order of its rings, and of who goes first."""

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


class TimedChoice(NamedTuple):
    """A choice and the time of its step."""

    step_s: float
    """The time of the step, in seconds; infinite if its schedule was given up."""
    choice: RailChoice
    """The choice that was timed."""


class _MoveDraw(NamedTuple):
    """Four random numbers, each at least 0 and less than 1, that decide a move."""

    move: float
    """Which move it is."""
    first: float
    """The first thing that the move changes: a place among so many, as a part of their number."""
    second: float
    """The second thing, as a part of the number of such things."""
    third: float
    """A third thing, or how far or in which direction the move goes."""


class Search:
    """A random local search for the best choice of a plan.

    Attributes
    ----------
    seats
        The step, folded to one rail.
    rng
        Draws the moves.
    spare_s
        The search ends when the solver has no more than so many seconds left, as a plan of the
        best choice still has to be made.
    known_s
        The time of a known plan in seconds: a choice is of use if it is better. Infinite if no
        plan is known.
    decoder
        Times choices.
    clock
        The clock of the solver, None without a limit of time.
    best, best_s
        The best choice so far, and the time of its step in seconds; None while none is better than
        the plan that was known before.
    tried, better
        How many choices were timed, and how many of them when the best one was found.
    bound_s
        No step is faster, in seconds: the search ends there.
    component
        ``component[seat]``: the least seat with which it communicates, directly or through others.
    families
        The kinds of groups, as `list_families` says.
    orders, cuts
        The orders of all seats, and the ways to cut them into rings, of which new rings are made.
        The last cut is `component`: as few cycles as there can be.
    riding
        The nodes that ride a rail.
    kinds
        Nodes that a move changes together.
    ports
        The ports of a GPU.
    chord_groups
        Groups in which chords can be laid, shape (groups, members); None if there are none.
    plain
        The shape of one ring of all with all ports.
    critical_share
        The part of the moves that exchange two communications on the critical path.
    delay_s
        The delay with which choices are timed, in seconds; at least that of the network.
    """

    def __init__(
        self, seats: Seats, rng: np.random.Generator, spare_s: float, known_s: float
    ) -> None:
        """List what choices are made of, once for the whole search; nothing is timed yet.

        A choice has to be faster than the known plan by more than rounding before it counts as the
        best one. The search may end before its limits, at a choice that meets the lower bound of
        the step, which is worked out here too.
        """
        # The problem, and when the search ends.
        self.seats = seats
        self.rng = rng
        self.decoder = Decoder(seats)
        self.clock = running_clock()
        self.spare_s = spare_s
        self.known_s = known_s
        self.delay_s = seats.job.network.delay_s

        # The best choice so far: it has to be better than the known plan by more than rounding.
        # `tried` counts the choices that were timed, `better` is its value when the best one was
        # found.
        self.best: RailChoice | None = None
        self.best_s = known_s * (1 - 1e-12)
        self.tried = 0
        self.better = 0

        # The times of the current choice, and who waits on its critical path; None if not known.
        self.critical_share = 0.0
        self._paths = CriticalPaths(seats)
        self._times: ScheduleTimes | None = None
        self._blocked: list[Blocked] | None = None

        # A choice at the bound, up to rounding, ends the search.
        self.bound_s = bound_step(seats) * (1 + 1e-9)

        # Choices are made of these:
        #
        # - component: by seat the least seat with which it communicates, also through others;
        # - families: the groups of each kind, as all groups of data parallelism;
        # - cuts and orders, of which rings are made;
        # - riding: the communications on rails; kinds: those that a move changes together.
        self.component = list_components(seats)
        self.families = list_families(seats)
        self.cuts = list_cuts(self.component, self.families)
        if seats.crosses.any():
            self.cuts = _cross_cuts(self.cuts)
            self.component = self.cuts[-1]
        self.orders = list(list_orders(seats, self.families))
        self.riding = seats.riding
        self.kinds = _list_kinds(seats)

        # Groups of all-to-alls in which chords can be laid (circuits that lead a fixed number of
        # members further on); None if there are none. The plainest shape of a choice is one ring
        # of each component with all ports. Everything goes over it: way 0 is the first ring.
        self.ports = seats.job.network.ports_per_gpu
        self.chord_groups = list_exchange_groups(seats)
        self.plain = _Shape(cuts=(self.component,), widths=(self.ports,), way=0, price_s=0.0)

    def go_on(self, delay_s: float, n_trials: int, most_work: float) -> None:
        """Improve ``self.best`` by threshold accepting from several starts, which take turns.

        Starts are the former best choice and the best simple ones. The best choice of a turn of
        `_TURN` trials replaces its start if it is better; after `_TURNS` turns of each, all
        further ones begin with the best choice of all. A search calls this with a delay that gets
        shorter, down to that of the network; at most `n_trials` further choices are timed, beside
        the former best one. ``self.decoder.work`` counts on over all calls, and the search ends
        when it exceeds `most_work`, infinite if only a clock ends it.
        """
        former = self.best
        self.delay_s = delay_s

        # An all-to-all may change all circuits several times on its way. With a shorter delay the
        # choices with all-to-alls last another time, and their order may change: the time of the
        # best one is forgotten, and it is timed anew below. Until then a choice is the best one
        # if it is faster than the known plan by more than rounding. Without all-to-alls the best
        # choice stays, with the delay that it was timed with: its schedule is still a plan.
        if (self.seats.how == EXCHANGE).any():
            self.best = None
            self.best_s = self.known_s * (1 - 1e-12)

        # Half of the work that is left, from ``self.decoder.work`` to `most_work`, is for simple
        # choices. The former best one is timed anew with the new delay, and is start 0.
        halfway = (self.decoder.work + most_work) / 2
        n_left, starts = self._time_simple_choices(n_trials, halfway)
        if former is not None:
            again = former._replace(delay_s=delay_s)
            starts = [TimedChoice(self._try(again, np.inf), again), *starts]
        if not starts:
            return

        # With 2,500 trials left and turns of 1,000 there are three turns (rounded up): of start 0,
        # 1, 2 and so on, and then again of start 0. The trials without success after which a
        # search ends are counted from here on.
        self.better = self.tried
        for turn in range(-(-n_left // _TURN)):
            number = turn % len(starts)
            current = starts[number]
            if turn >= _TURNS * len(starts) and self.best is not None:
                current = TimedChoice(self.best_s, self.best._replace(delay_s=delay_s))

            # In every second turn of a start, half of the moves concern communications on the
            # critical path, which alone decide how long the step lasts.
            is_second_turn = turn // len(starts) % 2 == 1
            self.critical_share = _CRITICAL_SHARE if is_second_turn else 0.0
            best_of_turn = self._take_turn(current, min(_TURN, n_left - turn * _TURN), most_work)
            if best_of_turn.step_s < starts[number].step_s:
                starts[number] = best_of_turn
            if self._is_done(most_work):
                return

    def _take_turn(self, current: TimedChoice, n_trials: int, most_work: float) -> TimedChoice:
        """Change a choice at random again and again (threshold accepting); return the best.

        A changed choice is kept, and changed further, if its step is no more than 1 % longer than
        the current one; this tolerance falls to 0 within `_TURN` trials. The turn ends early when
        ``self.decoder.work`` exceeds `most_work`. The answer is `current` if none was better.
        """
        best = current
        self._times = None
        self._blocked = None
        for trial in range(n_trials):
            if self._is_done(most_work):
                break
            changed = self._change(current.choice)

            # The tolerance falls quadratically, from 1 % to 0. Schedules that get longer are given
            # up on the way, with an infinite time.
            tolerance = 0.01 * (1 - trial / _TURN) ** 2
            most_s = current.step_s * (1 + tolerance)
            step_s = self._try(changed, most_s)
            if step_s > most_s:
                continue

            # The critical path of the choice that is now current is looked for when it is needed.
            # The decoder writes the times of the next choice over those of this one, hence copies.
            current = TimedChoice(step_s, changed)
            self._times = None
            self._blocked = None
            if self.critical_share:
                self._times = self._copy_times()
            if step_s < best.step_s:
                best = current
        return best

    def _time_simple_choices(
        self, n_trials: int, most_work: float
    ) -> tuple[int, list[TimedChoice]]:
        """Time the simple choices; return how many trials are left, and the starts.

        Starts, at most `_STARTS`, are the best choice, the one that was the best before it, and
        the best ones with other rings; there are none if no step is less than twice as long as
        that of the known plan. No choice is timed once ``self.decoder.work`` exceeds `most_work`
        or the clock runs out.
        """
        # The best choice and the one that was the best before it; and the best choices of which no
        # two have the same rings.
        record_holders: list[TimedChoice] = []
        best_by_rings: list[TimedChoice] = []
        scores: list[float] = []
        best_s = np.inf
        for choice in self._begin(scores):
            if not n_trials or self.decoder.work > most_work or self._is_over():
                break
            n_trials -= 1

            # A choice that is 30 % worse than the best, or twice as long as the known plan, is
            # given up to save work; its time is infinite then.
            step_s = self._try(choice, min(1.3 * best_s, 2 * self.known_s))
            scores.append(step_s)
            if step_s < np.inf:
                _keep_best(best_by_rings, TimedChoice(step_s, choice))
            if step_s < best_s:
                best_s = step_s
                record_holders = [TimedChoice(step_s, choice), *record_holders[:1]]

        # Other rings than those of the best are starts, too: on a few GPUs it is hard to get from
        # one ring to another by small changes.
        others = [
            timed
            for timed in best_by_rings
            if not any(_has_same_rings(timed.choice, best.choice) for best in record_holders)
        ]
        return n_trials, [*record_holders, *others][:_STARTS]

    def _is_done(self, most_work: float) -> bool:
        """Tell whether the search ends: by clock, at the bound, after `most_work`, or in vain.

        It is in vain after `_STALE` trials without a better choice; this does not count if
        `most_work` is infinite, where only a clock ends the search.
        """
        if self._is_over() or self.best_s <= self.bound_s or self.decoder.work > most_work:
            return True
        return most_work < np.inf and self.tried - self.better > _STALE

    def _is_over(self) -> bool:
        """Tell whether the clock leaves no more than the time that a plan takes to make."""
        return self.clock is not None and self.clock.remaining_s < self.spare_s

    def _try(self, choice: RailChoice, most_s: float) -> float:
        """Time a choice, and remember it in ``self.best`` if it is the best so far.

        Returns the time of the step in seconds; infinite if that is `most_s` or longer.
        """
        self.tried += 1
        step_s = self.decoder.run(choice, most_s).step_s
        if step_s < self.best_s:
            self.best = choice
            self.best_s = step_s
            self.better = self.tried
        return step_s

    def _begin(self, scores: Sequence[float]) -> Iterator[RailChoice]:
        """Yield the simple choices that are tried first.

        First comes the plain shape, in which what is ready first goes first; then all shapes with
        one order and one priority; then other orders, priorities and hastes as four lists, which
        share the work evenly; all shapes go from the best to the worst there. The caller times
        each choice with ``self.decoder`` and appends its time in seconds to `scores` before it
        asks for the next one: ``scores[k]`` is the time of choice k.
        """
        seats = self.seats
        free = longest_paths(seats.duration_s, seats.pairs)
        assert free is not None

        # Three priorities of nodes, of which the least goes first: the node with the longest path
        # to the end of the step; the node that could start first if all circuits were there; or
        # the order in which the ranks' programs list them.
        critical = -seats.duration_s - self.decoder.graph.tail_s
        earliest = free.start_s
        in_program = seats.folded.part.astype(float)
        shapes = list(self._list_shapes())
        first = self.orders[0]

        # Part 1: the first choice of this list; the others come in part 3. The caller has added
        # its time when it asks on. Part 2: the times of the shapes are behind `n_former` others in
        # the scores, which is this one.
        in_turn = (
            self._form(self.plain, order, rank)._replace(in_turn=True)
            for rank, order in product((in_program, critical, earliest), self.orders)
        )
        yield next(in_turn)
        n_former = len(scores)
        for shape in shapes:
            yield self._form(shape, first, critical)

        # Part 3. The caller has timed the shapes by now: `best` numbers them from best to worst.
        # The first pair of priority and order is left out, since part 2 has tried it.
        best = np.argsort(scores[n_former : n_former + len(shapes)], kind="stable").tolist()
        ordered = list(product((critical, earliest), self.orders))[1:]
        lists = [
            in_turn,
            (self._form(self.plain, order, rank) for rank, order in ordered),
            (self._form(shapes[k], order, rank) for k in best for rank, order in ordered),
            (
                self._form(shapes[k], first, critical, haste_s)
                for haste_s in self._list_hastes()
                for k in best
            ),
        ]

        # The list with the least work so far goes on, until none has a choice left. The work of a
        # choice is what the caller adds to ``self.decoder.work`` while it times it. To share by
        # number would not be even: a ring of all GPUs takes more work to time than many others.
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
        """List shapes of one or two rings, and those with chords.

        Chords come first, then one or two cuts, those with the cut that joins all last. With the
        cuts a, b and all, these are a, b, ab, ba, a all, b all, all a, all b, and all; the plain
        shape and two rings of all end the list. All ports are on one ring at a time, and the first
        ring is up when the step begins; or two halves of the ports hold one ring each. A shape
        with a price of a delay changes circuits only where that saves more than it costs.
        """
        # With an odd number of ports the first half has one more.
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

        # One ring of all with all ports, which everything goes over: no circuit changes.
        yield self.plain

        # Two rings of all: the second one goes backwards, see `_form`.
        if self.ports > 1:
            yield _Shape((joins_all, joins_all), halves, EITHER, 0.0)

    def _list_chord_shapes(self) -> Iterator[_Shape]:
        """List shapes with one chord or more, the other ports in one ring or two halves.

        With 4 ports and one chord the other 3 ports are one ring of width 3, or two rings of the
        widths 2 and 1, for each cut. There are no such shapes with one port, or without groups of
        all-to-alls.
        """
        if self.chord_groups is None or self.ports == 1:
            return
        n_members = len(self.chord_groups[0])
        for n_chords in range(1, self.ports + 1):
            # None if there are more chords than other members: further ones are of no use.
            routes = choose_chords(n_members, n_chords)
            if routes is None:
                break
            n_other_ports = self.ports - n_chords

            # All ports are chords: there is no other ring.
            if n_other_ports == 0:
                yield _Shape((), (), EITHER, 0.0, routes.strides)
                continue
            for cut in self.cuts:
                yield _Shape((cut,), (n_other_ports,), EITHER, 0.0, routes.strides)
                if n_other_ports > 1:
                    halves = (n_other_ports - n_other_ports // 2, n_other_ports // 2)
                    yield _Shape((cut, cut), halves, EITHER, 0.0, routes.strides)

    def _list_hastes(self) -> list[NDArray[np.float64]]:
        """List eight hastes by node in seconds, each a sum of one for messages and one of all.

        Messages are preferred by one or three delays of a change, and all nodes by 0, 1, 10 or 100
        % of the time from their end to the end of the step.
        """
        message_s = self.delay_s * (self.seats.how == MESSAGE)
        tail_s = self.decoder.graph.tail_s
        return [
            n_delays * message_s + part * tail_s
            for n_delays, part in product((1, 3), (0.0, 0.01, 0.1, 1.0))
        ]

    def _form(
        self,
        shape: _Shape,
        order: Ints,
        rank: NDArray[np.float64],
        haste_s: NDArray[np.float64] | None = None,
    ) -> RailChoice:
        """Make a choice of a shape: add the order of all its rings, and who goes first.

        If the first two rings have the same cut, the second one goes backwards. Bundle b holds
        ring b, its home, when the step begins; each chord adds a bundle of one port and its home
        behind the other bundles and rings. ``rank[node]`` is a priority, of which the least goes
        first; ``haste_s[node]`` is in seconds, and None stands for no haste. A shape whose way is
        `_FIRST` becomes a way for each node here: no choice has this number.
        """
        # If two rings have the same cut, the second one goes backwards.
        rings = [_make_ring(order, cut) for cut in shape.cuts]
        if len(shape.cuts) > 1 and shape.cuts[0] is shape.cuts[1]:
            rings[1] = _make_ring(order[::-1].copy(), shape.cuts[1])

        # Bundles of one port for the chords come after the others, and so do their rings. Ring b
        # is thus always what bundle b holds when the step begins. With widths (2,) and two chords
        # of strides 1 and 3, the widths become (2, 1, 1) and the strides (0, 1, 3).
        widths = shape.widths
        strides: tuple[int, ...] = ()
        if shape.strides and self.chord_groups is not None:
            rings += [
                lay_chord(self.chord_groups, stride, len(self.component))
                for stride in shape.strides
            ]
            widths = (*widths, *(1 for _ in shape.strides))
            strides = (*(0 for _ in shape.widths), *shape.strides)

        # The same way for all, unless each takes the first ring that joins its members.
        n_nodes = len(self.seats.how)
        ways = np.full(n_nodes, shape.way)
        if shape.way == _FIRST:
            ways = self._fit(rings)
        if haste_s is None:
            haste_s = np.zeros(n_nodes)

        # Nobody has to wait for a turn: others may overtake those whose circuits are busy.
        return RailChoice(
            rings=tuple(rings),
            widths=widths,
            ways=ways,
            rank=rank,
            haste_s=haste_s,
            price_s=shape.price_s,
            delay_s=self.delay_s,
            in_turn=False,
            strides=strides,
        )

    def _fit(self, rings: Sequence[Ring]) -> NDArray[np.int64]:
        """Choose for each communication the first ring that has all its members on one cycle.

        The cycle has to join as many replicas as the communication does. The way of a node is
        `EITHER` if there is no such ring, or if it rides no rail.
        """
        seats = self.seats
        ways = np.full(len(seats.how), EITHER)
        first_member = seats.begin[self.riding]

        # Backwards, so that the first ring that fits is written last. All members are on one cycle
        # if the least and the most of their cycle numbers are the same; a number from that of the
        # seats on is a cycle that joins all replicas. The members of all communications stand one
        # after another in one array, and `reduceat` goes through it from each first member to the
        # next one.
        for number in reversed(range(len(rings))):
            cycle_of_member = rings[number].part[seats.member]
            least = np.minimum.reduceat(cycle_of_member, first_member)
            most = np.maximum.reduceat(cycle_of_member, first_member)
            is_joined = (least >= len(self.component)) == seats.crosses[self.riding]
            ways[self.riding[(least == most) & is_joined]] = number
        return ways

    def _change(self, choice: RailChoice) -> RailChoice:
        """Change a choice by one random move, or by two moves in 15 % of the cases.

        A second move helps to leave choices that no single move makes better. With the probability
        ``self.critical_share`` two communications on the critical path change places instead, if
        one waits for the circuits of the other. Now and then the answer is equal to `choice`.
        """
        draw = _MoveDraw(*self.rng.random(4).tolist())
        if self.critical_share and self.rng.random() < self.critical_share:
            exchanged = self._exchange_on_critical_path(choice)
            if exchanged is not None:
                return exchanged
        if draw.move < 0.15:
            choice = self._apply(choice, _MoveDraw(*self.rng.random(4).tolist()))

        # The number that decided is stretched over 0 to 1 again for the move. Below 0.15 it lands
        # between 0.82 and 1: the second of two moves changes priorities, haste or whether all goes
        # in turn.
        return self._apply(choice, draw._replace(move=(draw.move - 0.15) / 0.85 % 1))

    def _copy_times(self) -> ScheduleTimes:
        """Return the times of the schedule that was made last, as arrays of their own."""
        result = self.decoder.result
        return ScheduleTimes(result.start_s.copy(), result.end_s.copy())

    def _exchange_on_critical_path(self, choice: RailChoice) -> RailChoice | None:
        """Let a communication on the critical path go before the one whose circuits it lacks.

        One such pair is drawn. In half of the cases the one that waits gets more haste and a
        lesser rank, else its blocker gets less haste and a greater rank. None if nobody on the
        path waits for circuits. ``self._times`` and ``self._blocked`` of the current choice are
        filled in if they are None, and kept for the next move.
        """
        # The times of the current choice, and who waits on its critical path.
        if self._times is None:
            self.decoder.run(choice)
            self._times = self._copy_times()
        if self._blocked is None:
            change_s = self.decoder.measure_change(choice)
            self._blocked = self._paths.list_blocked(self._times, change_s)
        if not self._blocked:
            return None

        # A schedule starts what can start first, less its haste: the one that waits goes first if
        # it is seen as ready a little sooner than the other one starts. If it is ready at 7 s and
        # the other one starts at 5 s, it needs 2 s more haste and a billionth of the step.
        blocked = self._blocked[int(self.rng.integers(len(self._blocked)))]
        waiting, blocker = blocked.node, blocked.blocker
        haste_more_s = max(0.0, blocked.ready_s - blocked.blocker_start_s) + 1e-9 * self.best_s
        rank = choice.rank.copy()
        haste_s = choice.haste_s.copy()
        if self.rng.random() < 0.5:
            rank[waiting] = np.nextafter(rank[blocker], -np.inf)
            haste_s[waiting] = haste_s[blocker] + haste_more_s
        else:
            rank[blocker] = np.nextafter(rank[waiting], np.inf)
            haste_s[blocker] = haste_s[waiting] - haste_more_s
        return choice._replace(rank=rank, haste_s=haste_s)

    def _apply(self, choice: RailChoice, draw: _MoveDraw) -> RailChoice:
        """Apply the random move in whose interval `draw.move`, a number from 0 to 1, lies.

        In order: perturb a ring, replace one, change the way, the priority or the earliest start
        of a communication, or toggle whether operations keep their order. The constants from
        `_MOST_PERTURB` to `_MOST_HASTE` are the upper ends of the intervals, so that the share of
        a move is the difference of two. The rings in which ports rest between chords stay.
        """
        movable = [ring for ring in range(len(choice.rings)) if not _is_chord(choice, ring)]
        if draw.move < _MOST_PERTURB and movable:
            return _perturb_ring(choice, movable, draw)

        # A choice of chords alone has no ring that could be changed, and gets another one instead.
        if draw.move < _MOST_REPLACE:
            return self._replace_ring(choice, movable, draw)
        if draw.move < _MOST_WAY:
            return self._change_way(choice, draw)
        if draw.move <= _MOST_PRIORITY:
            return self._change_priority(choice, draw)
        if draw.move <= _MOST_HASTE:
            return self._change_haste(choice, draw)
        return choice._replace(in_turn=not choice.in_turn)

    def _replace_ring(
        self, choice: RailChoice, movable: Sequence[int], draw: _MoveDraw
    ) -> RailChoice:
        """Add a ring to a choice, or replace one if as many as `_MOST_RINGS` may change.

        The order is drawn from ``self.orders``. The last of ``self.cuts``, with the fewest cycles,
        is taken in half of the cases, and the other half is shared by all cuts. `movable` has the
        numbers of the rings that are no homes of chords.
        """
        # Draws of `second` below 0.5 take the last cut. Those above are stretched to 0 to 1 again
        # and count from the last cut back: with four cuts 0.8 takes the last but two.
        order = self.orders[int(draw.first * len(self.orders))]
        cut = self.cuts[-1]
        if draw.second > 0.5:
            cuts_from_last = self.cuts[::-1]
            cut = cuts_from_last[int((2 * draw.second - 1) * len(self.cuts))]
        ring = _make_ring(order, cut)
        rings = list(choice.rings)
        if len(movable) < _MOST_RINGS:
            rings.append(ring)
        else:
            replaced = movable[int(draw.third * len(movable))]
            rings[replaced] = ring
        return choice._replace(rings=tuple(rings))

    def _change_way(self, choice: RailChoice, draw: _MoveDraw) -> RailChoice:
        """Draw a way for one communication, or for all of a kind.

        One changes if `draw.move` is below `_MOST_WAY_OF_ONE`. `EITHER`, `STRAIGHT`, each ring,
        and `CHORDS` where there are any are equally likely.
        """
        nodes = self.kinds[int(draw.first * len(self.kinds))]
        if draw.move < _MOST_WAY_OF_ONE:
            nodes = nodes[int(draw.second * len(nodes))]

        # The ways are `EITHER` (-2), `STRAIGHT` (-1), all rings (from 0 on), and chords where
        # there are any: the number behind the last ring stands for these.
        n_rings = len(choice.rings)
        n_ways = 2 + n_rings + bool(choice.strides)
        way = int(draw.third * n_ways) + EITHER
        if way == n_rings:
            way = CHORDS
        ways = choice.ways.copy()
        ways[nodes] = way
        return choice._replace(ways=ways)

    def _change_priority(self, choice: RailChoice, draw: _MoveDraw) -> RailChoice:
        """Put one communication right before another one, or right after it, in priority.

        Its rank becomes the next float beside that of the other one.
        """
        moved = self.riding[int(draw.first * len(self.riding))]
        other = self.riding[int(draw.second * len(self.riding))]
        toward = np.inf if draw.third < 0.5 else -np.inf
        rank = choice.rank.copy()
        rank[moved] = np.nextafter(rank[other], toward)
        return choice._replace(rank=rank)

    def _change_haste(self, choice: RailChoice, draw: _MoveDraw) -> RailChoice:
        """Change the haste of one communication, or of all of a kind, by a random time.

        It changes by at most the delay of a change, or `_MOST_HASTE_PART` of the best step if that
        is less. All of the kind change if `draw.second` is below 0.5; else it selects one of them.
        """
        # Above 0.5, the number is stretched over 0 to 1 again to select one of the kind.
        nodes = self.kinds[int(draw.first * len(self.kinds))]
        if draw.second >= 0.5:
            nodes = nodes[int(2 * (draw.second - 0.5) * len(nodes))]
        haste_s = choice.haste_s.copy()
        most_s = min(self.delay_s, _MOST_HASTE_PART * self.best_s)
        haste_s[nodes] += (2 * draw.third - 1) * most_s
        return choice._replace(haste_s=haste_s)


def _has_same_rings(choice: RailChoice, other: RailChoice) -> bool:
    """Tell whether ring k of one choice has the circuits of ring k of the other, for all k.

    The orders of which they were made may differ.
    """
    if len(choice.rings) != len(other.rings):
        return False
    return all(
        np.array_equal(ring.to, other_ring.to)
        for ring, other_ring in zip(choice.rings, other.rings, strict=True)
    )


def _keep_best(starts: list[TimedChoice], timed: TimedChoice) -> None:
    """Put a choice into `starts`, the best choices of which no two have the same rings.

    The list is changed in place: at most `_STARTS`, the one with the shortest step first.
    """
    # A worse choice with the same rings makes room for this one; a better one stays instead.
    for place, start in enumerate(starts):
        if _has_same_rings(start.choice, timed.choice):
            if start.step_s <= timed.step_s:
                return
            del starts[place]
            break
    starts.append(timed)
    starts.sort(key=lambda start: start.step_s)
    del starts[_STARTS:]


def _perturb_ring(choice: RailChoice, movable: Sequence[int], draw: _MoveDraw) -> RailChoice:
    """Change the order of one ring: exchange two seats, turn a part around, or move a seat.

    With the order a b c d e f and the places 1 and 4, an exchange gives a e c d b f, turning the
    part around a e d c b f, and moving its last seat to its front a e b c d f. The digits of
    `draw.move` behind the first one select which. At least one ring is `movable`.
    """
    ring = movable[int(draw.first * len(movable))]
    order = choice.rings[ring].order.copy()
    low, high = sorted((int(draw.second * len(order)), int(draw.third * len(order))))

    # The three kinds of changes are equally likely.
    kind = draw.move * 10 % 1
    if kind < 1 / 3:
        order[low], order[high] = order[high], order[low]
    elif kind < 2 / 3:
        order[low : high + 1] = order[low : high + 1][::-1].copy()
    else:
        order[low : high + 1] = np.roll(order[low : high + 1], 1)

    # Cycles keep their seats: only their order changes.
    rings = list(choice.rings)
    rings[ring] = _make_ring(order, rings[ring].part)
    return choice._replace(rings=tuple(rings))


def _is_chord(choice: RailChoice, ring: int) -> bool:
    """Tell whether a ring is the home of a chord, which no move may change."""
    return ring < len(choice.strides) and choice.strides[ring] > 0


def list_exchange_groups(seats: Seats) -> Ints | None:
    """List the groups whose all-to-alls are worth chords, as seats; shape (groups, members).

    All have one size, that whose all-to-alls send most bytes. None without all-to-alls of more
    than two members, or if a seat is in two of these groups: its ports would have to lead to both.
    """
    counts = np.diff(seats.begin)
    exchanges = np.flatnonzero(seats.how == EXCHANGE)
    if not len(exchanges):
        return None

    # By number of members, the bytes of all all-to-alls of so many.
    sent_by_size = np.bincount(counts[exchanges], seats.bytes_sent[exchanges])
    sizes = np.unique(counts[exchanges])
    n_members = int(sizes[sent_by_size[sizes].argmax()])  # also if none of them sends a byte
    nodes = exchanges[counts[exchanges] == n_members]

    # Micro-batches repeat an all-to-all of the same group: each group is listed once.
    members = seats.member[seats.begin[nodes][:, None] + np.arange(n_members)]
    groups = np.unique(members, axis=0)
    is_disjoint = len(np.unique(groups)) == groups.size
    return groups if is_disjoint else None


def lay_chord(groups: Ints, stride: int, n_seats: int) -> Ring:
    """Make the home of a chord: each member leads to the one `stride` places further on.

    ``groups[group, place]`` is a seat. Among 8 members, stride 2 leads along two cycles: the
    places 0, 2, 4, 6 and the places 1, 3, 5, 7. The stride is from 1 to n - 1 for n members; each
    cycle has the number of its least seat, and seats in no group have no circuit.
    """
    n_members = groups.shape[1]
    n_cycles = gcd(n_members, stride)

    # Cycle k begins at place k of the group and goes on by the stride.
    steps = np.arange(n_members // n_cycles) * stride
    places = (np.arange(n_cycles)[:, None] + steps) % n_members  # by cycle, in its order
    cycles = groups[:, places].reshape(-1, n_members // n_cycles)

    # A cycle has the number of its least seat, so that no two cycles and no lone seats share one.
    order = np.concatenate([cycles.ravel(), np.setdiff1d(np.arange(n_seats), groups)])
    part = np.arange(n_seats)
    part[cycles] = cycles.min(axis=1)[:, None]
    return _make_ring(order, part)


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

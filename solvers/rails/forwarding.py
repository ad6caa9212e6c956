"""Plans that forward data over circuits of a rail: which circuits stay, and which changes pay.

The words seat, bundle, ring, home, way and chord are those of `optmatch.solvers.rails.decoder`.
A *relay* is a GPU that forwards data of others; a *stride* is how many places further on in its
group a member sends over a chord.
"""

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

_WORK = 6e9
"""Nodes and circuits that a search looks at in all."""
_MOST_TRIALS = 60_000
"""The plans that a search tries with each delay."""
_MOST_NODES = 1_600_000
"""The most operations of a step, by rail. This is a limit of memory: a search takes 0.9 kB for
each node (measured on 4,096 GPUs of Mixtral-8x22B, 1.2 million nodes a rail: 1.1 GB), and so at
most 1.5 GB beside the job and its plan, which take as much. Work is limited apart, by `_WORK`: of
so many nodes some dozens of trials fit into it."""


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

    In these plans GPUs forward data of others over circuits that stay, or change where that pays.
    A ring is circuits that lead from each GPU of a rail to a next one; a choice is all that a
    schedule needs: rings, which way each communication goes, and who goes first. First come all
    shapes, which are rings for groups of some dimensions and how data go, with one order; then the
    best shapes with other orders. Then the best is changed at random: order and number of its
    rings, the way of one communication or of all of a kind, and who goes first. All this is done
    as if the delay was a hundred times as long, and ten times, before: what is good then is good
    now, too.

    Parameters
    ----------
    job
        The job.
    known_s
        The step time of the known plan, in seconds; infinite if there is none.
    rng
        Draws what is tried.
    most
        How many choices are tried; None for as many as the work of a search allows.
    share
        The part of the usual work (circuits and nodes that are looked at) that is done, from 0 to
        1.
    is_last
        Whether no other search follows. Else half of the time that is left is left to the next
        one.
    fits
        Tells whether a job with such seats is planned, the seats being classes of ranks that do
        the same; None if every job is.

    Yields
    ------
    RailPlan
        One plan, or none.
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

    # The best choice is made into a plan even if the search was interrupted.
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
    """Search with longer delays, with the delay itself, and at last as long as a clock lets.

    The delay is the time that a change of circuits takes. With a delay a hundred and ten times as
    long, choices are found that change little; they are good starts for the search with the delay
    as it is.

    Parameters
    ----------
    search
        The search; its best choice (``search.best``) is the answer.
    most
        How many choices are tried in all; None for as many as the work allows.
    most_work
        The work of the decoder in all (circuits and nodes that it looks at to time choices),
        shared evenly by the delays.
    is_last
        Whether the time that a clock leaves is used up.
    """
    job = search.seats.job
    delay_s = job.network.delay_s

    # Delays that are longer than the least step time would let no circuit change at all.
    delays_s = [times * delay_s for times in (100, 10) if 0 < times * delay_s < job.lower_bound()]
    if job.network.switching == "all-stop":
        delays_s = []  # no delay counts where circuits never change
    if most_work < _WORK:
        delays_s = []  # ports that hold different circuits seldom change them
    delays_s.append(delay_s)

    # Each delay has the same share of trials and work; trials that one leaves go to the next one.
    for number, searched_delay_s in enumerate(delays_s, 1):
        n_trials = _MOST_TRIALS
        if most is not None:
            n_trials = most * number // len(delays_s) - search.tried
        search.go_on(searched_delay_s, n_trials, most_work * number / len(delays_s))

    # With a clock the last search goes on until it runs out.
    has_clock = search.clock is not None and search.clock.remaining_s < np.inf
    if is_last and most is None and has_clock:
        search.go_on(delay_s, 10**9, np.inf)  # the clock ends it


def can_forward(job: RailJob) -> bool:
    """Tell whether plans are made for a job in which GPUs forward data of others over a rail.

    Such plans need ports of one direction, and collectives that go around rings. Where a switch
    stops as a whole to change circuits, its circuits never change in such plans, and nothing
    stops.

    Parameters
    ----------
    job
        The job.

    Returns
    -------
    bool
        False on bidirectional ports, for steps with too many operations, where no communication
        rides a rail or a rank is on several, and where a collective of more than two ranks is not
        done around a ring.
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
    """Tell whether circuits may change, one by one, in plans of a job that forward data."""
    return job.network.switching == "per-circuit" and can_forward(job)


def _build(decoder: Decoder, choice: RailChoice) -> RailPlan:
    """Make the plan of a choice, for all rails.

    A choice is what a schedule follows: rings (circuits from each seat, a GPU of the rail, to a
    next one), bundles (ports of every GPU that hold the same ring), ways and priorities. The
    schedule is that of one rail, by node (a computation, or one communication); all rails that are
    alike get copies of it.

    Parameters
    ----------
    decoder
        Times the choice again. ``decoder.seats`` is the folded step: its `folded` has by row one
        operation of the first rank of each class (`own`) and its node (`nodes`), and `spread`
        turns values by row into values by operation of all ranks.
    choice
        The choice. If it is timed with a delay that is longer than that of the network, its plan
        keeps these times, which leave more time for each change than it needs.

    Returns
    -------
    RailPlan
        `rails`, the states of all switches and their times; `start_s` and `end_s` of all
        operations in seconds, and their `ports` as bits; `step_s`; `relays`, who forwards what
        (operation, rank, ports); and `chords`, the routes of all-to-alls over circuits with fixed
        strides.
    """
    seats = decoder.seats
    folded = seats.folded

    # The choice is timed twice: the first run counts its changes of circuits, the second notes
    # them.
    n_changes = decoder.run(choice).n_changes
    decoder.run(choice, np.inf, n_changes)
    result = decoder.result

    # The step ends when the last operation has ended and the last circuit is up.
    last_up_s = result.change_start_s.max(initial=-np.inf) + seats.job.network.delay_s
    last_end_s = result.end_s.max(initial=0.0)

    # GPUs that forward on one rail, as rows of (row of the operation, seat, bundle): counted
    # first, then listed.
    next_seat = np.array([ring.to for ring in choice.rings])
    forwarding = np.empty((0, 3), np.int64)
    n_rows = trace(decoder.graph, seats.row, result.taken, next_seat, forwarding)
    forwarding = np.empty((n_rows, 3), np.int64)
    trace(decoder.graph, seats.row, result.taken, next_seat, forwarding)

    # The ports of a bundle as bits: bundles take the ports in turn. With widths 3 and 1 these are
    # 0b0111 and 0b1000. Operations beside rails use none.
    first_port = np.append(0, np.cumsum(choice.widths))
    ports_of_bundle = (1 << first_port[1:]) - (1 << first_port[:-1])
    ports_of_node = _list_masks(decoder, choice, ports_of_bundle)
    rides = seats.job.step().rail[folded.own] >= 0
    ports_of_row = np.where(rides, ports_of_node[folded.nodes], 0).astype(np.int32)
    return RailPlan(
        rails=_list_timelines(seats, result, choice, next_seat),
        start_s=folded.spread(result.start_s[folded.nodes]),
        end_s=folded.spread(result.end_s[folded.nodes]),
        ports=folded.spread(ports_of_row),
        step_s=float(max(last_end_s, last_up_s)),
        relays=_spread_relays(seats, forwarding, ports_of_bundle),
        chords=_list_routes(decoder, choice),
    )


def _list_masks(decoder: Decoder, choice: RailChoice, masks: Ints) -> Ints:
    """Return by node (communication) the ports of each GPU that it uses.

    A bundle is some ports of every GPU that hold the same circuits. A chord is a bundle of one
    port whose circuits lead a stride (fixed number of members) further on; a node goes over one
    bundle, or over all chords that serve it. The schedule has the way of each node as
    ``bundle * (rings + 1) + choice``, with one more bundle than there are for chords.

    Parameters
    ----------
    decoder
        Its result is the schedule of the choice.
    choice
        The choice: rings, bundles and strides.
    masks
        ``masks[bundle]``: the ports of the bundle, as bits.

    Returns
    -------
    int array, shape (nodes,)
        Ports as bits, bit p for port p; of no meaning for nodes that ride no rail.
    """
    seats = decoder.seats

    # Chords are coded as one more bundle than there are: the ports are then those of all chords
    # that serve the node, which depend on its number of members. Until then such a node has the
    # ports of the last bundle, only to have a valid index.
    bundle = decoder.result.taken // (len(choice.rings) + 1)
    over_chords = (bundle == len(masks)) & (seats.how >= 0)
    used = masks[np.minimum(bundle, len(masks) - 1)]
    sizes = np.diff(seats.begin)

    # All chords that lead to another member serve an all-to-all: their strides are no multiples of
    # its number of members n. Bundles that are no chord have stride 0.
    for node in np.flatnonzero(over_chords).tolist():
        n = int(sizes[node])
        serving = [stride % n > 0 for stride in choice.strides]
        if seats.how[node] != EXCHANGE:  # around rings: strides with no divisor in common with n
            serving = [gcd(stride, n) == 1 and stride > 0 for stride in choice.strides]
        used[node] = masks[serving].sum()
    return used


def _list_routes(decoder: Decoder, choice: RailChoice) -> tuple[ChordRoutes, ...]:
    """List the routes of the all-to-alls that go over chords, by their number of members.

    A bundle is some ports of every GPU that hold the same circuits. A chord is a bundle of one
    port whose circuits lead a stride (fixed number of members) further on. A route says how often
    the data of one member for one other pass each chord.

    Parameters
    ----------
    decoder
        Its result is the schedule of the choice: ``result.taken`` has by node (communication) its
        way, ``bundle * (rings + 1) + choice``, with one more bundle than there are for chords.
    choice
        The choice: its rings, the widths of bundles and the strides are used.

    Returns
    -------
    tuple of ChordRoutes
        One for each number of members, ascending; empty if no all-to-all goes over chords.
    """
    seats = decoder.seats
    over_chords = decoder.result.taken // (len(choice.rings) + 1) == len(choice.widths)
    sizes = np.diff(seats.begin)[over_chords & (seats.how == EXCHANGE)]
    routes_by_size = [
        decoder.route_exchange(choice.strides, n_members)
        for n_members in np.unique(sizes).tolist()
    ]
    return tuple(routes for routes in routes_by_size if routes is not None)


def _spread_relays(seats: Seats, rows: Ints, ports_of_bundle: Ints) -> NDArray[np.int32]:
    """Copy relays of one rail to all equal rails, with their operations and ranks.

    A relay is a GPU that forwards data of an operation of another one. A seat is a GPU of the one
    rail that stands for all that are alike; a bundle is some ports of every GPU that hold the same
    circuits.

    Parameters
    ----------
    seats
        The folded step; the ranks of a seat are GPUs of one number on rails that are alike.
    rows
        ``rows[relay]``: the row of the operation in `Folded.own`, the seat that forwards, and the
        bundle; int64, shape (relays, 3).
    ports_of_bundle
        The ports of each bundle, as bits.

    Returns
    -------
    int32 array, shape (relays, 3)
        A row for each relay on each rail: the operation whose data are forwarded, the rank that
        forwards, and its ports as bits; sorted by operation.
    """
    # Rows name operations of the first rank of a seat. All other ranks of the seat have the
    # operation at the same place in their programs.
    step = seats.job.step()
    folded = seats.folded
    operation = folded.own[rows[:, 0]]
    seat = folded.class_of[step.rank[operation]]
    first_rank = np.array(folded.first)[seat]
    place_in_program = operation - step.rank_start[first_rank]
    forwarding_seat = rows[:, 1]
    ports = ports_of_bundle[rows[:, 2]]

    # The ranks of a seat in the order of their rails: copy k of a relay is on rail number k.
    ranks = np.lexsort([seats.rail_of, folded.class_of])
    first_of_seat = np.searchsorted(folded.class_of[ranks], np.arange(len(folded.first) + 1))
    n_copies = np.diff(first_of_seat)
    tables = [np.empty((0, 3), np.int32)]
    for copy in range(int(n_copies.max(initial=0))):
        # Seats with fewer ranks are on fewer rails: they have no copy of this number.
        has_copy = n_copies[seat] > copy
        rank = ranks[first_of_seat[seat[has_copy]] + copy]
        forwarding_rank = ranks[first_of_seat[forwarding_seat[has_copy]] + copy]
        columns = (
            step.rank_start[rank] + place_in_program[has_copy],
            forwarding_rank,
            ports[has_copy],
        )
        tables.append(np.stack(columns, axis=1).astype(np.int32))
    relays = np.concatenate(tables)
    return relays[np.argsort(relays[:, 0], kind="stable")]


def _list_timelines(
    seats: Seats, result: Result, choice: RailChoice, next_seat: Ints
) -> tuple[RailTimeline, ...]:
    """List the states of the switches, once for each sort of rails that are alike.

    A seat is a GPU of the one rail that stands for all that are alike. A bundle is some ports of
    every GPU that hold the same circuits; its home is the ring of circuits that it holds when the
    step begins and ends.

    Parameters
    ----------
    seats
        The folded step: by seat its `rail` and its `number` among the GPUs there, and by rank the
        rail (`rail_of`).
    result
        The schedule with all its changes: `change` has bundle, sender and receiver (as seats) of
        each new circuit, and `change_start_s` when it begins, in seconds.
    choice
        The choice: widths of the bundles, in ports.
    next_seat
        ``next_seat[ring, seat]``: the seat to which a ring leads, -1 for none; ring b is the home
        of bundle b.

    Returns
    -------
    tuple of RailTimeline
        By sort of rails the matchings of its switch, one after another, and when the change to
        each begins, in seconds. Every rail is in one of them.
    """
    order = np.argsort(result.change_start_s, kind="stable")
    start_s = result.change_start_s[order]
    bundle, sender, receiver = result.change[order].T
    timelines = []
    for rail in np.unique(seats.rail[seats.rail >= 0]).tolist():
        # Seats become GPUs: they are numbered as they are counted on their rail.
        on_rail = np.flatnonzero(seats.rail == rail)
        on_rail = on_rail[np.argsort(seats.number[on_rail])]
        changed_here = seats.rail[sender] == rail
        homes = next_seat[: len(choice.widths), on_rail]
        first_state = np.where(homes >= 0, seats.number[homes], IDLE)
        states, times = _list_states(
            first_state,
            start_s[changed_here],
            (
                bundle[changed_here],
                seats.number[sender[changed_here]],
                seats.number[receiver[changed_here]],
            ),
        )

        # The ranks of a seat are on all rails that are alike.
        equal_rails = np.unique(seats.rail_of[seats.folded.class_of == on_rail[0]])
        timelines.append(
            RailTimeline(
                rails=tuple(equal_rails.tolist()),
                matchings=_join_ports(seats.job, states, choice.widths),
                asked_s=times,
                starts_s=times,
            )
        )
    return tuple(timelines)


def _list_states(
    first_state: Ints, start_s: NDArray[np.float64], changes: tuple[Ints, Ints, Ints]
) -> tuple[Ints, NDArray[np.float64]]:
    """List the states of a rail, and when each starts.

    A state is all circuits of the rail at a time, by bundle: some ports of every GPU that always
    hold the same circuits. Changes that begin at the same time make one state.

    Parameters
    ----------
    first_state
        ``first_state[bundle, gpu]``: the GPU that the first state leads to, -1 for none.
    start_s
        When each change begins, in seconds from the start of the step, ascending; shape
        (changes,).
    changes
        Bundle, sending and receiving GPU of the new circuit, each of shape (changes,). A receiver
        loses the circuit that it had.

    Returns
    -------
    states : int array, shape (states, bundles, gpus)
        The GPU to which each bundle of each GPU leads, -1 for none; first `first_state`.
    times : float array, shape (states,)
        When the change to the state begins, in seconds; 0 of the first.
    """
    bundle, sender, receiver = changes
    state = first_state.copy()
    states = [first_state]
    times = [0.0]

    # Changes that begin at one time stand together: ``start_s[first:end]``.
    first_at_time = np.flatnonzero(np.diff(start_s, prepend=-1.0)).tolist()
    for first, end in pairwise([*first_at_time, len(start_s)]):
        together = slice(first, end)

        # Receivers lose their former circuits before new ones are written: later, the new ones
        # would be lost as well.
        for changed in np.unique(bundle[together]).tolist():
            taken = receiver[together][bundle[together] == changed]
            state[changed][np.isin(state[changed], taken)] = IDLE
        state[bundle[together], sender[together]] = receiver[together]
        if not np.array_equal(state, states[-1]):
            states.append(state.copy())
            times.append(float(start_s[first]))
    return np.array(states), np.array(times)


def _join_ports(job: RailJob, states: Ints, widths: tuple[int, ...]) -> NDArray[np.int32]:
    """Return the matchings of ports of the switch: port p of a GPU leads to port p of another.

    A bundle is some ports of every GPU that always hold the same circuits, and a state is all
    circuits at a time.

    Parameters
    ----------
    job
        The job: ports of each GPU, and those of the fabric that work.
    states
        ``states[state, bundle, gpu]``: the GPU to which a bundle leads, -1 for none.
    widths
        By bundle how many ports of each GPU it has; bundles take the ports in turn.

    Returns
    -------
    int32 array, shape (states, ports)
        By state and by port of the switch that transmits the port that receives, -1 where idle.
        Port p of GPU g is port ``g * ports_per_gpu + p``, counted among those that work.
    """
    ports_per_gpu = job.network.ports_per_gpu
    n_gpus = states.shape[2]
    n_ports = n_gpus * ports_per_gpu
    live_ports = np.arange(n_ports)
    if job.fabric is not None:
        n_ports = job.fabric.n_ports
        live_ports = job.fabric.live_ports
    matchings = np.full((len(states), n_ports), IDLE, np.int32)

    # Bundles take the ports of a GPU in turn: with widths 3 and 1, port 3 is that of bundle 1.
    bundle_of_port = np.repeat(np.arange(len(widths)), widths)
    for port, bundle in enumerate(bundle_of_port.tolist()):
        senders = live_ports[np.arange(n_gpus) * ports_per_gpu + port]
        receiving_gpu = states[:, bundle]
        receivers = live_ports[receiving_gpu * ports_per_gpu + port]
        matchings[:, senders] = np.where(receiving_gpu >= 0, receivers, IDLE)
    return matchings

"""Derives from a rail plan with times a plan of orders that a controller can execute.

A plan with times fixes when each operation and each change of circuits starts. A controller knows
no times: it waits for messages. Four words say what is left of a plan:

- A *trigger* is one change of circuits of a rail, which the controller makes as one. Trigger k
  leads the rail from its state k to its state k + 1.
- The *place* of an operation or a trigger is its number in one total order of all of them.
- A *cut* is a moment at which a communication changes circuits while it is under way: it *pauses*
  there, and its parts before and after the cut are ordered on their own.
- The *share* of a cut is the part of a communication that is over by then, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import IDLE, InputError
from optmatch.problems.rails.execution.orders import link, list_wanted
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline, ranks_of_rails
from optmatch.problems.rails.execution.triggers import RailTriggers, TriggerPlan
from optmatch.problems.rails.execution.uses import Finder, Use, first_users, list_uses, touched
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.rails.training.times import ends_s

_SLACK = 1e-12
"""Times of a plan that differ by less than this part of its step are the same."""


def derive_triggers(
    job: RailJob, plan: RailPlan, *, timeout_s: float | None = None, tries: int = 5
) -> TriggerPlan:
    """Derive a plan of triggers: keep the order of a plan and leave its times.

    A trigger is a change of circuits that waits for communications to be over, not for a time. A
    state is all circuits of a rail between two changes. A state of which a part waits for other
    communications than another part becomes several: each change concerns the ports of some
    circuits and waits for these alone. On a fabric with cells, and on switches that stop as a
    whole, states stay whole.

    Parameters
    ----------
    job
        The job that the plan is for.
    plan
        A plan with times for all operations of ``job.step()`` and all rails.
    timeout_s
        After so many seconds without an answer a message is sent again; None for ten times the
        reconfiguration delay, and at least 1 ms.
    tries
        After so many messages without an answer a rail goes to its fall-back state.

    Returns
    -------
    TriggerPlan
        The same ports and routes, in the order of the plan. A trigger is marked as set on demand
        where the plan asks for it at another time than its ports are free.

    Raises
    ------
    InputError
        If the plan is for another job, has an order that cannot be kept, or pools rails while a
        communication changes circuits on its way, for which it would have to wait on several rails
        at once.
    """
    # The plan has to be for this job.
    step = job.step()
    ranks_of_rail = ranks_of_rails(step)
    timeline_of_rail = {rail: timeline for timeline in plan.rails for rail in timeline.rails}
    is_same_step = len(plan.start_s) == step.n_operations
    if not is_same_step or set(timeline_of_rail) != set(ranks_of_rail):
        raise InputError("a plan of another job: operations or rails differ", where="plan")

    # Rails that share a timeline have the same changes: they are listed once, by the identity of
    # the timeline.
    slack_s = _SLACK * max(plan.step_s, 1e-6)
    changes_of_timeline = {id(line): _list_changes(job, line) for line in plan.rails}
    changes_of_rails = [changes_of_timeline[id(timeline_of_rail[rail])] for rail in ranks_of_rail]
    places = _order_events(job, plan, changes_of_rails, slack_s)

    # By rail its order: the circuits that the step begins with, and what each trigger changes.
    rails = []
    for (rail, ranks), changes, place in zip(
        ranks_of_rail.items(), changes_of_rails, places.changes, strict=True
    ):
        timeline = timeline_of_rail[rail]
        rails.append(
            RailTriggers(
                rail=rail,
                ranks=tuple(ranks.tolist()),
                circuits=timeline.matchings[0],
                fallback=_ring(job, len(ranks)),
                place=place,
                changes=_number_rows(changes),
                cell_states=_kept_cells(timeline, changes),
            )
        )

    # A communication that changes circuits on its way becomes parts. What waits for what then
    # follows from the order alone; only triggers on demand need the times of the plan.
    find = Finder(step)
    pauses = _list_pauses(job, plan, rails, changes_of_rails, find)
    if timeout_s is None:
        timeout_s = max(10 * job.network.delay_s, 1e-3)
    event_of = job.events().event_of
    triggers = TriggerPlan(
        groups=tuple(group.name for group in step.groups),
        rails=tuple(rails),
        place=places.events[event_of],
        ports=plan.ports,
        relays=plan.relays,
        chords=plan.chords,
        pooled=plan.pooled,
        lasts_s=np.maximum(pauses.lasts_s[event_of], 0.0),
        pauses=pauses.rows,
        shares=pauses.shares,
        timeout_s=timeout_s,
        tries=tries,
    )
    linked, _ = link(job, triggers, find)
    return _mark_demands(job, plan, linked, changes_of_rails, find)


class _Places(NamedTuple):
    """The places of all that happens in a step, in one total order."""

    events: NDArray[np.int32]
    """``events[event]``: of each computation, and of each communication of several ranks."""
    changes: list[NDArray[np.int32]]
    """``changes[rail][change]``: of each change of circuits."""


def _order_events(
    job: RailJob,
    plan: RailPlan,
    changes_of_rails: Sequence[Sequence[_Change]],
    slack_s: float,
) -> _Places:
    """Order events and changes of circuits by time, and events at one time by what they wait for.

    An event is a computation, or a communication of several ranks as one. The place of an event or
    a change is its number in one total order of all of them, from 0.

    Parameters
    ----------
    job, plan
        The job, and the plan with times.
    changes_of_rails
        ``changes_of_rails[rail][change]``: the changes of circuits, with their times; rails
        ascending.
    slack_s
        Events that last no longer take no time, in seconds.

    Returns
    -------
    _Places
        ``events[event]``, the place of each event, and ``changes[rail][change]``, that of each
        change of circuits; int32.
    """
    events = job.events()
    n_events = len(events.part)
    change_s = [change.start_s for changes in changes_of_rails for change in changes]
    times_s = np.concatenate([plan.start_s[events.part], change_s])
    is_event = np.arange(len(times_s)) < n_events

    # Times alone do not order events that last no time: of those at one time, `depth` counts the
    # longest chain of such events up to each one. After other events the next one starts later.
    is_instant = (plan.end_s - plan.start_s)[events.part] <= slack_s
    after_instant = is_instant[events.before]
    depth = ends_s(
        events._replace(
            before=events.before[after_instant],
            after=events.after[after_instant],
            duration_s=np.ones(n_events),
        )
    )

    # At equal times changes come first, as an operation that starts then needs its circuits. All
    # things are sorted by time, then changes before events, then by depth; the places of events
    # and of the changes of each rail are cut out of one array, whose empty rest is dropped.
    depth = np.concatenate([depth, np.zeros(len(change_s))])
    place = np.empty(len(times_s), np.int32)
    place[np.lexsort((depth, is_event, times_s))] = np.arange(len(times_s))
    ends = np.cumsum([n_events, *map(len, changes_of_rails)])
    place_of_events, *places_of_changes = np.split(place, ends)[:-1]
    return _Places(place_of_events, places_of_changes)


class _Pauses(NamedTuple):
    """The pauses of all communications that change circuits while they are under way."""

    rows: NDArray[np.int32]
    """As `TriggerPlan.pauses`; shape (rows, 4)."""
    shares: NDArray[np.float64]
    """By row, how much of the communication is over then."""
    lasts_s: NDArray[np.float64]
    """``lasts_s[event]``: how long it lasts while some of its ports send, in seconds."""


def _list_pauses(
    job: RailJob,
    plan: RailPlan,
    rails: Sequence[RailTriggers],
    changes_of_rails: Sequence[Sequence[_Change]],
    find: Finder,
) -> _Pauses:
    """List where communications pause for changes of circuits.

    A trigger is one change of circuits of a rail; trigger k leads the rail from its state k to its
    state k + 1. A communication whose circuits change while it is under way is cut at this moment:
    it pauses there until the new state is up. The share of a cut is the part of the communication
    that is over by then, from 0 to 1.

    Parameters
    ----------
    job, plan
        The job, and the plan with times.
    rails
        The triggers of each rail.
    changes_of_rails
        ``changes_of_rails[rail][trigger]``: the change of circuits that the trigger makes, with
        its time in seconds; rails as in `rails`.
    find
        Has the number of each operation among those of its group at its rank, from 1.

    Returns
    -------
    _Pauses
        ``rows``, int32, shape (rows, 4): one rank of the communication that pauses, its group, its
        number in the group, and a state that it waits for; ``shares[row]``, how much of it is over
        then; and ``lasts_s[event]``, how long each computation or communication lasts without the
        times in which all of its ports are dark, in seconds.

    Raises
    ------
    InputError
        If a communication of a plan with pooled rails pauses.
    """
    step = job.step()
    events = job.events()
    lasts_s = (plan.end_s - plan.start_s)[events.part]
    rows = []
    shares = []
    for rail, changes in zip(rails, changes_of_rails, strict=True):
        uses = list_uses(job, rail, plan.ports, plan.relays, pooled=plan.pooled)
        for event, cuts in _find_cuts(job, plan, rail, uses, changes).items():
            operation = int(events.part[event])
            if plan.pooled:
                raise InputError(
                    f"{step.describe(operation)} changes circuits on its way, and its data change"
                    " rail: it has no triggers; plan with change_rail_s = None",
                    where="plan",
                )

            # A cut has a row for each state that it waits for, all with the same share.
            lasts_s[event], shares_of_cuts = _measure_parts(job, plan, operation, cuts)
            name = (step.rank[operation], step.group[operation], find.number[operation])
            for cut, share in zip(cuts, shares_of_cuts, strict=True):
                rows += [(*name, state) for state in cut.states]
                shares += [share] * len(cut.states)
    return _Pauses(
        rows=np.array(rows, np.int32).reshape(-1, 4),
        shares=np.array(shares, np.float64),
        lasts_s=lasts_s,
    )


class _Change(NamedTuple):
    """A change of circuits of one rail: what becomes one trigger.

    Parameters
    ----------
    start_s
        When the reconfiguration starts, in seconds from the beginning of the step.
    asked_s
        When the plan asks for it, in the same seconds.
    state
        The state of the timeline that it belongs to, from 1.
    rows
        ``rows[row] = transmit port, receive port`` of the ports that change; the receive port is
        -1 where a port only gives up its circuit. int32, shape (rows, 2).
    """

    start_s: float
    asked_s: float
    state: int
    rows: NDArray[np.int32]


class _Cut(NamedTuple):
    """A moment at which a communication changes circuits while it is under way.

    Parameters
    ----------
    time_s
        When the changes start, in seconds from the beginning of the step.
    states
        The states of the rail that its next part waits for, ascending: trigger k leads to k + 1.
    dark
        Whether all ports of the communication change at once, so that it sends nothing.
    """

    time_s: float
    states: list[int]
    dark: bool


def _list_changes(job: RailJob, timeline: RailTimeline) -> list[_Change]:
    """Split the changes of a timeline into those that have no port in common.

    A timeline is the states of a rail one after the other, and a state is all circuits that are
    there together: which transmit port leads to which receive port. From one state to the next
    several circuits may change that have nothing to do with each other: each becomes a change of
    its own. Ports stay in one change if they share a receive port: port 0 from receiver 4 to 5 and
    port 1 from receiver 5 to 6 change together. Where the switch stops as a whole for each change,
    and on a fabric, all ports that differ between two states are one change.

    Parameters
    ----------
    job
        The job, which says whether rails have a fabric, and whether a switch stops as a whole
        (`network.switching`).
    timeline
        ``matchings[state, transmit port] = receive port`` of the rail, -1 where idle, and when
        each state is asked for and when its change starts, in seconds.

    Returns
    -------
    list of _Change
        State by state; those of a state by their lowest transmit port. Each has the times at which
        it starts and is asked for, in seconds, its state, and the ports that change.
    """
    changes = []
    changes_whole = job.fabric is not None or job.network.switching == "all-stop"
    for state in range(1, len(timeline.matchings)):
        old, new = timeline.matchings[state - 1 : state + 1]
        ports = np.flatnonzero(old != new)

        # Connected components by label propagation: two transmit ports belong together if one
        # receive port is the old or new end of both. At first the label of each port that changes
        # is its number among them. In each round a receive port takes the least label of the
        # ports that lead to it, and they take that of their receive ports, until none changes.
        # Without a split all ports have label 0.
        label = np.zeros(len(ports), np.int64)
        if not changes_whole:
            label = np.arange(len(ports))
            for _ in ports:  # each round joins ports that share a receive port
                least_of_receiver = np.full(len(old) + 1, len(ports))
                for receiver in (old, new):
                    np.minimum.at(least_of_receiver, receiver[ports], label)
                # IDLE = -1 is the last entry, which belongs to no receive port: ports that are
                # both dark have nothing in common by that.
                least_of_receiver[IDLE] = len(ports)
                least_of_ends = np.minimum(
                    least_of_receiver[old[ports]], least_of_receiver[new[ports]]
                )
                least = np.minimum(label, least_of_ends)
                if (least == label).all():
                    break
                label = least

        for component in np.unique(label).tolist():
            changed_ports = ports[label == component]
            rows = np.stack([changed_ports, new[changed_ports]], axis=1).astype(np.int32)
            changes.append(
                _Change(
                    start_s=float(timeline.starts_s[state]),
                    asked_s=float(timeline.asked_s[state]),
                    state=state,
                    rows=rows,
                )
            )
    return changes


def _number_rows(changes: Sequence[_Change]) -> NDArray[np.int32]:
    """Return the rows of all changes as one table, with the number of the trigger.

    Parameters
    ----------
    changes
        The changes of circuits of one rail, each of which becomes a trigger, in their order.

    Returns
    -------
    int32 array, shape (rows, 3)
        Transmit port, its new receive port (-1 where it only gives up its circuit), and trigger,
        from 0.
    """
    n_rows = [len(change.rows) for change in changes]
    trigger = np.repeat(np.arange(len(changes)), n_rows)
    rows = np.concatenate([np.empty((0, 2), np.int32), *(change.rows for change in changes)])
    return np.column_stack([rows, trigger]).astype(np.int32)


def _kept_cells(timeline: RailTimeline, changes: Sequence[_Change]) -> NDArray[np.int8] | None:
    """Return the states of the cells of a fabric between triggers; None without cells.

    Parameters
    ----------
    timeline
        The states of a rail, with ``cell_states[state, cell]`` if its fabric has cells.
    changes
        The changes of circuits that become triggers, with the state of the timeline of each.

    Returns
    -------
    int8 array, shape (1 + triggers, cells), or None
        The first row is the state that the step begins with; each trigger adds one.
    """
    if timeline.cell_states is None:
        return None
    return timeline.cell_states[[0, *(change.state for change in changes)]]


def _ring(job: RailJob, n_gpus: int) -> NDArray[np.int32] | None:
    """Return the fall-back state of a rail: on each port a ring over all its GPUs.

    ``ring[transmit port] = receive port``, shape (`n_gpus` times ports of a GPU,): port p of a GPU
    leads to port p of the next GPU. None on a fabric, through which it may have no way.
    """
    k = job.network.ports_per_gpu
    return None if job.fabric is not None else np.roll(np.arange(n_gpus * k, dtype=np.int32), -k)


def _find_cuts(
    job: RailJob,
    plan: RailPlan,
    rail: RailTriggers,
    uses: Use,
    changes: Sequence[_Change],
) -> dict[int, list[_Cut]]:
    """Find the communications that change circuits while they are under way, and when.

    A trigger is a change of circuits. A cut is a moment at which triggers change circuits that a
    communication uses. An event is a communication of all its ranks as one.

    Parameters
    ----------
    job, plan
        The job, and the plan with times.
    rail
        The rail with its triggers.
    uses
        The sends over its ports: an entry for each operation and port.
    changes
        ``changes[trigger]``: the same triggers with their times. A change at the start or the end
        of an operation does not cut it.

    Returns
    -------
    dict
        By event, ascending, its cuts in the order of time: when in seconds, the states of the rail
        that its next part waits for, and whether all of its ports are dark meanwhile.
    """
    trigger, port = touched(job, rail)
    if not len(trigger):
        return {}

    # Sort triggers by port and time, as one integer key. The triggers of a port that start while
    # it is in use then stand together.
    # Times are replaced by their ranks among all times of changes: with 10 different times, a
    # trigger at the time of rank 3 that touches port 2 has the key 2 * 11 + 3 = 25.
    change_s = np.array([change.start_s for change in changes])
    times_s, time_of_change = np.unique(change_s, return_inverse=True)
    key = port * (len(times_s) + 1) + time_of_change.reshape(-1)[trigger]
    order = np.argsort(key, kind="stable")
    first_key = uses.port * (len(times_s) + 1)

    # During use number u, after its start and before its end, `count[u]` triggers start: those
    # from `low[u]` on in this order. Each of them is a hit: the use and the trigger.
    slack_s = _SLACK * max(plan.step_s, 1e-6)
    begin = np.searchsorted(times_s, plan.start_s[uses.operation] + slack_s, "right")
    until = np.searchsorted(times_s, plan.end_s[uses.operation] - slack_s, "left")
    low = np.searchsorted(key[order], first_key + begin)
    count = np.maximum(np.searchsorted(key[order], first_key + until) - low, 0)
    use_of_hit = np.repeat(np.arange(len(low)), count)
    number_in_use = np.arange(len(use_of_hit)) - np.repeat(np.cumsum(count) - count, count)
    trigger_of_hit = trigger[order[np.repeat(low, count) + number_in_use]]

    # A trigger is listed once for each port of the event that it changes, and `n_uses` counts all
    # these ports: equal numbers say that nothing is sent meanwhile.
    event_of_use = job.events().event_of[uses.operation]
    n_uses = np.bincount(event_of_use)
    states_of_event: dict[int, dict[float, list[int]]] = {}
    hits = zip(event_of_use[use_of_hit].tolist(), trigger_of_hit.tolist(), strict=True)
    for event, k in hits:
        states_at = states_of_event.setdefault(event, {})
        states_at.setdefault(float(change_s[k]), []).append(k + 1)
    return {
        event: [
            _Cut(time_s, sorted(set(states)), len(states) == n_uses[event])
            for time_s, states in sorted(states_at.items())
        ]
        for event, states_at in sorted(states_of_event.items())
    }


def _measure_parts(
    job: RailJob, plan: RailPlan, operation: int, cuts: Sequence[_Cut]
) -> tuple[float, list[float]]:
    """Return how long a communication lasts without dark times, and what is over at each cut.

    A cut is a moment at which a communication changes circuits while it is under way. If all its
    ports change at once, it sends nothing for the delay of a reconfiguration, or until the next
    cut if that is sooner: this time is dark.

    Parameters
    ----------
    job, plan
        The job, whose network has the delay of a reconfiguration, and the plan with times.
    operation
        An operation of the communication; all of them start and end together.
    cuts
        Its cuts, in the order of time: when, in seconds, and whether all its ports are dark then.

    Returns
    -------
    total_s : float
        The seconds from start to end in which some of its ports send.
    shares : list of float
        By cut, the part of these seconds that is over then, from 0 to 1.
    """
    start_s = float(plan.start_s[operation])
    end_s = float(plan.end_s[operation])
    next_cuts_s = [*(cut.time_s for cut in cuts[1:]), end_s]
    # From 0 to 10 s, with a cut at 4 s that is dark for 1 s and one at 7 s that is not dark, it
    # works for 9 s; 4 s and 6 s of them are over at the cuts.
    worked_s = []
    dark_s = 0.0
    for cut, until_s in zip(cuts, next_cuts_s, strict=True):
        worked_s.append(cut.time_s - start_s - dark_s)
        if cut.dark:
            dark_s += min(job.network.delay_s, until_s - cut.time_s)
    total_s = end_s - start_s - dark_s
    return total_s, [work_s / total_s for work_s in worked_s]


def _mark_demands(
    job: RailJob,
    plan: RailPlan,
    linked: TriggerPlan,
    changes_of_rails: Sequence[Sequence[_Change]],
    find: Finder,
) -> TriggerPlan:
    """Mark the triggers that the plan asks for later, or earlier, than their ports are free.

    A trigger is a change of circuits of one rail. Such a trigger is set on demand: it also waits
    until the first operation that needs its new circuits is ready. That is marked only where this
    operation is ready when the plan asks, and where all that it waits for stands before the
    trigger in the order.

    Parameters
    ----------
    job, plan
        The job, and the plan with times.
    linked
        The plan of triggers, with what each waits for.
    changes_of_rails
        ``changes_of_rails[rail][trigger]``, rails as in `linked`.
    find
        Finds the operations that rows name.

    Returns
    -------
    TriggerPlan
        The plan with `RailTriggers.wanted` of each rail.
    """
    # By event (a computation, or a communication of several ranks as one): when all that it waits
    # for is over, and the latest place of that in the order.
    events = job.events()
    slack_s = _SLACK * max(plan.step_s, 1e-6)
    ready_s = np.zeros(len(events.part))
    np.maximum.at(ready_s, events.after, plan.end_s[events.part][events.before])
    latest_place = np.zeros(len(events.part), np.int32)
    np.maximum.at(latest_place, events.after, linked.place[events.part][events.before])

    rails = []
    for rail, changes in zip(linked.rails, changes_of_rails, strict=True):
        # By trigger: when the last data of this step have gone over the circuits that it gives up.
        # Columns 4 and 5 of `after` are `ago`, 0 for this step, and the trigger.
        drained_s = np.zeros(len(changes))
        in_this_step = rail.after[rail.after[:, 4] == 0]
        over_s = plan.end_s[find(in_this_step, "after")]
        np.maximum.at(drained_s, in_this_step[:, 5], over_s)

        # By trigger: the first operation that needs its circuits, -1 for none. It is set on demand
        # if this operation is ready when the plan asks, the plan does not ask just when the old
        # circuits are drained, and all that the operation waits for stands before the trigger.
        users = first_users(rail, linked.place, find)
        event = events.event_of[users]
        asked_s = np.array([change.asked_s for change in changes])
        is_demanded = (users >= 0) & (ready_s[event] <= asked_s + slack_s)
        is_demanded &= np.abs(asked_s - drained_s) > slack_s
        is_demanded &= latest_place[event] < rail.place
        demanded = np.flatnonzero(is_demanded)
        rails.append(replace(rail, wanted=list_wanted(job, demanded, users, find)))
    return replace(linked, rails=tuple(rails))

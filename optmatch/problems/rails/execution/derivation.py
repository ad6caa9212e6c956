"""Derives from a rail plan with times a plan of orders that a controller can execute.

A plan with times fixes when each operation and each change of circuits starts. A controller knows
no times: it waits for messages. These words say what is left of a plan:

- An *event* is a computation, or a communication of several ranks as one.
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
from optmatch.problems.rails.execution.orders import link_triggers, list_wanted
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline, ranks_of_rails
from optmatch.problems.rails.execution.triggers import RailTriggers, TriggerPlan
from optmatch.problems.rails.execution.uses import (
    Finder,
    Use,
    find_first_users,
    list_interruptions,
    list_uses,
)
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.rails.training.arrays import join_members, list_ranges
from optmatch.problems.rails.training.times import ends_s

_TIME_TOLERANCE = 1e-12
"""Times of a plan that differ by less than this part of its step are the same."""


def derive_triggers(
    job: RailJob, plan: RailPlan, *, timeout_s: float | None = None, tries: int = 5
) -> TriggerPlan:
    """Derive the order of a plan with times, and what triggers each change of circuits.

    A plan with times says, for example, that circuits change after 2.5 s. As computations may be
    early or late, the result says instead that they change once the communications over the old
    circuits are over: a *trigger*. `timeout_s` is how long a rank waits for circuits before it
    asks again, by default ten delays and a millisecond at least, and `tries` how often. Raises
    `InputError` for a plan of another job, and for one whose pooled communications change circuits
    on their way.
    """
    plan.check_fits(job)
    step = job.step()
    ranks_of_rail = ranks_of_rails(step)
    timeline_of_rail = {rail: timeline for timeline in plan.rails for rail in timeline.rails}

    # Rails that share a timeline have the same changes: they are listed once, by the identity of
    # the timeline. All changes and events get a place in one order, by their times.
    slack_s = _TIME_TOLERANCE * max(plan.step_s, 1e-6)
    changes_of_timeline = {id(line): _list_changes(job, line) for line in plan.rails}
    changes_of_rails = [changes_of_timeline[id(timeline_of_rail[rail])] for rail in ranks_of_rail]
    place_of_event, places_of_changes = _order_events(job, plan, changes_of_rails, slack_s)

    # By rail its order: the circuits that the step begins with, and what each trigger changes. On
    # ideal switches circuits fall back to a ring by number, in which port p of a GPU leads to port
    # p of the next GPU; with k ports for each GPU that is k ports further on.
    k = job.network.ports_per_gpu
    rails = []
    for (rail, ranks), changes, place in zip(
        ranks_of_rail.items(), changes_of_rails, places_of_changes, strict=True
    ):
        timeline = timeline_of_rail[rail]
        fallback = np.roll(np.arange(len(ranks) * k, dtype=np.int32), -k)

        # Rows of all triggers, each row with the number of its trigger; the states of cells with
        # which the step begins, and those after each trigger.
        trigger = np.repeat(np.arange(len(changes)), [len(change.rows) for change in changes])
        rows = np.concatenate([np.empty((0, 2), np.int32), *(change.rows for change in changes)])
        cell_states = timeline.cell_states
        if cell_states is not None:
            cell_states = cell_states[[0, *(change.state for change in changes)]]
        rails.append(
            RailTriggers(
                rail=rail,
                ranks=tuple(ranks.tolist()),
                circuits=timeline.matchings[0],
                fallback=None if job.fabric is not None else fallback,
                place=place,
                changes=np.column_stack([rows, trigger]).astype(np.int32),
                cell_states=cell_states,
            )
        )

    # A communication that changes circuits on its way becomes parts; in a pooled plan this is an
    # error, which `_list_pauses` raises.
    find = Finder(step)
    pauses, shares, lasts_s = _list_pauses(job, plan, rails, changes_of_rails, find)
    if timeout_s is None:
        timeout_s = max(10 * job.network.delay_s, 1e-3)
    event_of = job.events().event_of
    triggers = TriggerPlan(
        groups=tuple(group.name for group in step.groups),
        rails=tuple(rails),
        place=place_of_event[event_of],
        ports=plan.ports,
        relays=plan.relays,
        chords=plan.chords,
        pooled=plan.pooled,
        lasts_s=np.maximum(lasts_s[event_of], 0.0),
        pauses=pauses,
        shares=shares,
        timeout_s=timeout_s,
        tries=tries,
    )

    # What waits for what follows from the order alone: `link_triggers` fills the tables `after`
    # and `needs` of each rail. Only triggers on demand, the table `wanted`, need the times of the
    # plan.
    linked, _ = link_triggers(job, triggers, find)
    return _mark_demands(job, plan, linked, changes_of_rails, find)


def _order_events(
    job: RailJob,
    plan: RailPlan,
    changes_of_rails: Sequence[Sequence[_Change]],
    slack_s: float,
) -> tuple[NDArray[np.int32], list[NDArray[np.int32]]]:
    """Give each event and change its place in the total order of all of them.

    ``changes_of_rails[rail]`` are the changes of its circuits. The order is by start, changes
    first, and then along chains of events that take no time: `slack_s` at most. Returns
    ``place[event]``, and by rail ``place[change]``.
    """
    # Everything in one list, first the events and then the changes, with the time of its start.
    # ``events.part[event]`` is one operation of the event; all of them start together.
    events = job.events()
    n_events = len(events.part)
    change_s = [change.start_s for changes in changes_of_rails for change in changes]
    times_s = np.concatenate([plan.start_s[events.part], change_s])
    is_event = np.arange(len(times_s)) < n_events

    # ``depth[event]`` is the length of the longest chain of events that ends with this one and in
    # which all events before it take no time. It is computed as the time at which the event would
    # end if each event lasted 1 s and waited only for events that take no time. Events that take
    # time need no depth: what waits for them starts later.
    is_instant = (plan.end_s - plan.start_s)[events.part] <= slack_s
    after_instant = is_instant[events.before]
    depth = ends_s(
        events._replace(
            before=events.before[after_instant],
            after=events.after[after_instant],
            duration_s=np.ones(n_events),
        )
    )

    # Everything is sorted by time, then changes before events, then by depth (0 of changes):
    # `lexsort` takes the last key first. ``place[thing]`` is the number in this order.
    depth = np.concatenate([depth, np.zeros(len(change_s))])
    place = np.empty(len(times_s), np.int32)
    place[np.lexsort((depth, is_event, times_s))] = np.arange(len(times_s))

    # Cut into the places of events and those of the changes of each rail; `split` adds an empty
    # rest, which is dropped.
    ends = np.cumsum([n_events, *map(len, changes_of_rails)])
    place_of_events, *places_of_changes = np.split(place, ends)[:-1]
    return place_of_events, places_of_changes


def _list_pauses(
    job: RailJob,
    plan: RailPlan,
    rails: Sequence[RailTriggers],
    changes_of_rails: Sequence[Sequence[_Change]],
    find: Finder,
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """List the pauses of communications that change circuits on their way.

    `rails` and `changes_of_rails` belong together, entry by entry. Returns the rows of
    `TriggerPlan.pauses` (rank, group, number of the communication, state), for each row the share
    of the communication that is over then, and ``lasts_s[event]``: how long an event takes
    without the delays in which all of its ports are dark. An all-to-all from 0 to 4 s, all of
    whose circuits change from 1 to 2 s, lasts 3 s and has a row with share 1/3. Raises
    `InputError` if a communication of a pooled plan pauses.
    """
    # Without pauses an event lasts from its start to its end.
    step = job.step()
    events = job.events()
    lasts_s = (plan.end_s - plan.start_s)[events.part]

    # `cuts` are the moments at which the circuits of an event change while it is under way.
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
    return np.array(rows, np.int32).reshape(-1, 4), np.array(shares, np.float64), lasts_s


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
    """List the changes of circuits that lead from state to state of a timeline.

    The step from a state to the next one splits into changes that share no port, unless the switch
    changes as a whole. Entry k of the result becomes trigger k.

    Example: ports 0, 1 and 2 lead to the receivers 4, 5 and 8, and then to 5, 6 and 9. Port 0 can
    have receiver 5 only when port 1 gives it up: both are one change, and port 2 is another one.
    """
    changes = []
    changes_whole = job.fabric is not None or job.network.switching == "all-stop"
    for state in range(1, len(timeline.matchings)):
        old, new = timeline.matchings[state - 1 : state + 1]
        ports = np.flatnonzero(old != new)

        # Ports that lead to the same receive port, before or after, belong together and get the
        # same label. Ports that are dark have nothing in common by that.
        label = np.zeros(len(ports), np.int64)
        if not changes_whole:
            receiver = np.concatenate([old[ports], new[ports]])
            member = np.tile(np.arange(len(ports)), 2)
            is_lit = receiver != IDLE
            label = join_members(len(ports), member[is_lit], receiver[is_lit])

        # Ports of one label are one change.
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


def _find_cuts(
    job: RailJob,
    plan: RailPlan,
    rail: RailTriggers,
    uses: Use,
    changes: Sequence[_Change],
) -> dict[int, list[_Cut]]:
    """Find the cuts of each event: moments at which circuits that it uses change on its way.

    A use is a port that an operation sends over from its start to its end. A change hits a use if
    it changes the port in between. An event goes dark where one moment hits all of its uses.
    `uses` are those of this rail, and ``changes[trigger]`` its changes in the order of triggers.
    The result is ``cuts[event]``, in the order of time; events without cuts are left out.

    Example: an all-to-all from 0 to 3 s uses ports 2 and 5. Trigger 0 changes port 2 at 1 s, and
    trigger 1 changes both ports at 2 s. The event has the cuts ``(1.0, [1], False)`` and ``(2.0,
    [2], True)``: trigger k leads to state k + 1.
    """
    # Trigger ``trigger[pair]`` interrupts what is sent over the transmit port ``port[pair]``.
    trigger, port = list_interruptions(job, rail)
    if not len(trigger):
        return {}

    # The triggers of each use are found by bisection. A pair of port and time is one integer, in
    # which the time is its number among all times of changes: with 10 different times, a trigger
    # at time number 3 that changes port 2 has the key 2 * 11 + 3 = 25.
    change_s = np.array([change.start_s for change in changes])
    times_s, time_of_change = np.unique(change_s, return_inverse=True)
    key = port * (len(times_s) + 1) + time_of_change.reshape(-1)[trigger]
    order = np.argsort(key, kind="stable")
    first_key = uses.port * (len(times_s) + 1)

    # Only changes between the start and the end of a use hit it, by more than rounding. The hits
    # of use u are the ``n_hits[u]`` triggers from ``first_hit[u]`` on, by key. All hits are listed
    # use after use: with 2 hits from 4 on and 1 from 9 on, they are 4, 5 and 9.
    slack_s = _TIME_TOLERANCE * max(plan.step_s, 1e-6)
    first_time = np.searchsorted(times_s, plan.start_s[uses.operation] + slack_s, "right")
    end_time = np.searchsorted(times_s, plan.end_s[uses.operation] - slack_s, "left")
    first_hit = np.searchsorted(key[order], first_key + first_time)
    end_hit = np.searchsorted(key[order], first_key + end_time)
    n_hits = np.maximum(end_hit - first_hit, 0)
    use_of_hit = np.repeat(np.arange(len(n_hits)), n_hits)
    trigger_of_hit = trigger[order[list_ranges(first_hit, n_hits)]]

    # ``states_of_event[event][time]`` has the state of a trigger once for each use that the
    # trigger hits. If these are as many as all uses of the event, nothing is sent meanwhile.
    event_of_use = job.events().event_of[uses.operation]
    n_uses = np.bincount(event_of_use)
    states_of_event: dict[int, dict[float, list[int]]] = {}
    hits = zip(event_of_use[use_of_hit].tolist(), trigger_of_hit.tolist(), strict=True)
    for event, trigger_number in hits:
        states_at = states_of_event.setdefault(event, {})
        states_at.setdefault(float(change_s[trigger_number]), []).append(trigger_number + 1)
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
    """Return how long a communication works, in seconds, and the share that is over at each cut.

    `operation` is one of its operations; `cuts` are in the order of time. Delays at which all of
    its ports are dark are no work: from 0 to 10 s, with a cut at 4 s that is dark for 1 s and one
    at 7 s that is not dark, it works for 9 s, of which 4 s and 6 s are over at the cuts: the
    shares are 4/9 and 6/9.
    """
    start_s = float(plan.start_s[operation])
    end_s = float(plan.end_s[operation])
    next_cuts_s = [*(cut.time_s for cut in cuts[1:]), end_s]

    # A dark time ends after the delay, or at the next cut if that comes sooner.
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
    """Return `linked` with the triggers marked that wait for their first user to be ready.

    A trigger that is not marked changes circuits once the old ones are free. If they are free at
    2 s, and the first user of the new ones is ready at 5 s, a change that the plan asks for at 5 s
    is marked, as it waits for this user, and one that it asks for at 2 s is not. Rows of the table
    `wanted` of a rail name the users. `linked` is the order of `plan` with its other tables
    filled, and ``changes_of_rails[rail][trigger]`` has the times of its triggers.
    """
    # ``ready_s[event]`` is when all that an event waits for is over, and ``latest_place[event]``
    # the last place of that in the order of the plan.
    events = job.events()
    slack_s = _TIME_TOLERANCE * max(plan.step_s, 1e-6)
    ready_s = np.zeros(len(events.part))
    np.maximum.at(ready_s, events.after, plan.end_s[events.part][events.before])
    latest_place = np.zeros(len(events.part), np.int32)
    np.maximum.at(latest_place, events.after, linked.place[events.part][events.before])

    rails = []
    for rail, changes in zip(linked.rails, changes_of_rails, strict=True):
        # ``drained_s[trigger]`` is when the last data of this step have gone over its old
        # circuits: what the trigger waits for, but for what is of the step before.
        drained_s = np.zeros(len(changes))
        *_, ago, trigger = rail.after.T
        in_this_step = ago == 0
        over_s = plan.end_s[find(rail.after[in_this_step], "after")]
        np.maximum.at(drained_s, trigger[in_this_step], over_s)

        # ``users[trigger]`` is the first operation over the new circuits. Where there is none, it
        # is -1: what the other arrays say of operation -1 is masked by the first condition. A
        # trigger is marked if its first user is ready when the plan asks, if the plan asks later
        # than the old circuits are free, and if all that the first user waits for stands before
        # the trigger in the order, since nothing may wait for itself.
        users = find_first_users(rail, linked.place, find)
        event = events.event_of[users]
        asked_s = np.array([change.asked_s for change in changes])
        is_demanded = (users >= 0) & (ready_s[event] <= asked_s + slack_s)
        is_demanded &= np.abs(asked_s - drained_s) > slack_s
        is_demanded &= latest_place[event] < rail.place
        demanded = np.flatnonzero(is_demanded)
        rails.append(replace(rail, wanted=list_wanted(job, demanded, users, find)))
    return replace(linked, rails=tuple(rails))

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
    step, n = job.step(), job.step().n_operations
    members = ranks_of_rails(step)
    planned = {rail: timeline for timeline in plan.rails for rail in timeline.rails}
    if len(plan.start_s) != n or set(planned) != set(members):
        raise InputError("a plan of another job: operations or rails differ", where="plan")

    # All that happens has a time: the events of the job first, then the changes rail by rail.
    events, slack = job.events(), _SLACK * max(plan.step_s, 1e-6)
    listed = {id(timeline): _list_changes(job, timeline) for timeline in plan.rails}
    changes = [listed[id(planned[rail])] for rail in members]
    starts = [each.start_s for own in changes for each in own]
    times = np.concatenate([plan.start_s[events.part], starts])
    is_event = np.arange(len(times)) < len(events.part)

    # Times alone do not order events that last no time: of those at one time, `depth` counts the
    # longest chain of such events up to each one.
    instant = (plan.end_s - plan.start_s)[events.part] <= slack
    kept = instant[events.before]  # after other ends the next operation starts later
    depth = ends_s(
        events._replace(
            before=events.before[kept],
            after=events.after[kept],
            duration_s=np.ones(len(events.part)),
        )
    )

    # At equal times changes come first, as an operation that starts then needs its circuits.
    depth = np.concatenate([depth, np.zeros(len(starts))])
    place = np.empty(len(times), np.int32)
    place[np.lexsort((depth, is_event, times))] = np.arange(len(times))
    of_changes = np.split(place, np.cumsum([len(events.part), *map(len, changes)]))[1:-1]

    rails = [
        RailTriggers(
            rail=rail,
            ranks=tuple(ranks.tolist()),
            circuits=planned[rail].matchings[0],
            fallback=_ring(job, len(ranks)),
            place=of_own,
            changes=_number_rows(own),
            cell_states=_kept_cells(planned[rail], own),
        )
        for (rail, ranks), own, of_own in zip(members.items(), changes, of_changes, strict=True)
    ]

    # A communication that changes circuits on its way becomes parts. In `without`, by event, it
    # lasts as long as it would without the times in which all of its ports are dark.
    lasts, pauses, shares = plan.end_s - plan.start_s, [], []
    without = lasts[events.part]
    find = Finder(step)
    for each, own in zip(rails, changes, strict=True):
        uses = list_uses(job, each, plan.ports, plan.relays, pooled=plan.pooled)
        for event, cuts in _find_cuts(job, plan, each, uses, own, slack).items():
            k = events.part[event]
            if plan.pooled:
                raise InputError(
                    f"{step.describe(int(k))} changes circuits on its way, and its data change"
                    " rail: it has no triggers; plan with change_rail_s = None",
                    where="plan",
                )
            total, done = _measure_parts(job, plan, int(k), cuts)
            without[event] = total
            for cut, share in zip(cuts, done, strict=True):
                pauses += [(step.rank[k], step.group[k], find.number[k], s) for s in cut.states]
                shares += [share] * len(cut.states)

    made = TriggerPlan(
        groups=tuple(group.name for group in step.groups),
        rails=tuple(rails),
        place=place[events.event_of],
        ports=plan.ports,
        relays=plan.relays,
        chords=plan.chords,
        pooled=plan.pooled,
        lasts_s=np.maximum(without[events.event_of], 0.0),
        pauses=np.array(pauses, np.int32).reshape(-1, 4),
        shares=np.array(shares, np.float64),
        timeout_s=max(10 * job.network.delay_s, 1e-3) if timeout_s is None else timeout_s,
        tries=tries,
    )
    return _mark_demands(job, plan, link(job, made, find)[0], changes, slack, find)


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
    """Whether all ports of the communication change, so that nothing is sent meanwhile."""


def _list_changes(job: RailJob, timeline: RailTimeline) -> list[_Change]:
    """Split the changes of a timeline into those that have no port in common.

    A timeline is the states of a rail, each of which is all circuits at a time; ports that change
    together because of a receive port that they share are one change. Where the switch stops as a
    whole, and on a fabric, each state is one change.

    Parameters
    ----------
    job
        Has the switch.
    timeline
        The states of the rail and their times.

    Returns
    -------
    list of _Change
        State by state; those of a state by their lowest transmit port. Each has the times at which
        it starts and is asked for, in seconds, its state, and the ports that change.
    """
    found = []
    whole = job.fabric is not None or job.network.switching == "all-stop"
    for state in range(1, len(timeline.matchings)):
        old, new = timeline.matchings[state - 1 : state + 1]
        ports = np.flatnonzero(old != new)

        # Connected components by label propagation: two transmit ports belong together if one
        # receive port is the old or new end of both. All ports of a change have its least label.
        label = np.zeros(len(ports), np.int64)
        if not whole:
            label = np.arange(len(ports))
            for _ in ports:  # each round joins ports that share a receive port
                low = np.full(len(old) + 1, len(ports))
                for arrives in (old, new):
                    np.minimum.at(low, arrives[ports], label)
                low[IDLE] = len(ports)  # the last entry: to be dark joins no ports
                least = np.minimum(label, np.minimum(low[old[ports]], low[new[ports]]))
                if (least == label).all():
                    break
                label = least

        at = float(timeline.starts_s[state]), float(timeline.asked_s[state]), state
        for one in np.unique(label).tolist():
            own = ports[label == one]
            found.append(_Change(*at, np.stack([own, new[own]], axis=1).astype(np.int32)))
    return found


def _number_rows(changes: Sequence[_Change]) -> NDArray[np.int32]:
    """Return the rows of all changes with a third column, the number of the trigger, from 0."""
    trigger = np.repeat(np.arange(len(changes)), [len(each.rows) for each in changes])
    rows = np.concatenate([np.empty((0, 2), np.int32), *(each.rows for each in changes)])
    return np.column_stack([rows, trigger]).astype(np.int32)


def _kept_cells(timeline: RailTimeline, changes: Sequence[_Change]) -> NDArray[np.int8] | None:
    """Return ``cells[state, cell]`` of the states between triggers; None without cells.

    The first row is the state that the step begins with; each trigger adds one.
    """
    if timeline.cell_states is None:
        return None
    return timeline.cell_states[[0, *(each.state for each in changes)]]


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
    slack: float,
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
        ``changes[trigger]``: the same triggers with their times.
    slack
        Times that differ by no more are the same, in seconds: a change at the start or the end of
        an operation does not cut it.

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
    starts = np.array([each.start_s for each in changes])
    times, rank = np.unique(starts, return_inverse=True)
    key = port * (len(times) + 1) + rank.reshape(-1)[trigger]
    order = np.argsort(key, kind="stable")
    base = uses.port * (len(times) + 1)

    # During use number u, after its start and before its end, `count[u]` triggers start: those
    # from `low[u]` on in this order. Each of them is a hit: the use and the trigger.
    begin = np.searchsorted(times, plan.start_s[uses.operation] + slack, "right")
    until = np.searchsorted(times, plan.end_s[uses.operation] - slack, "left")
    low = np.searchsorted(key[order], base + begin)
    count = np.maximum(np.searchsorted(key[order], base + until) - low, 0)
    use = np.repeat(np.arange(len(low)), count)
    at = np.arange(len(use)) - np.repeat(np.cumsum(count) - count, count)
    hit = trigger[order[np.repeat(low, count) + at]]

    # A trigger is listed once for each port of the event that it changes, and `width` counts all
    # these ports: equal numbers say that nothing is sent meanwhile.
    event = job.events().event_of[uses.operation]
    width = np.bincount(event)
    found: dict[int, dict[float, list[int]]] = {}
    for one, k in zip(event[use].tolist(), hit.tolist(), strict=True):
        found.setdefault(one, {}).setdefault(float(starts[k]), []).append(k + 1)
    return {
        one: [
            _Cut(time, sorted(set(states)), len(states) == width[one])
            for time, states in sorted(cuts.items())
        ]
        for one, cuts in sorted(found.items())
    }


def _measure_parts(
    job: RailJob, plan: RailPlan, operation: int, cuts: Sequence[_Cut]
) -> tuple[float, list[float]]:
    """Return how long a communication lasts without dark times, and what is over at each cut.

    Parameters
    ----------
    job, plan
        The job, which has the delay, and the plan with times.
    operation
        An operation of the communication.
    cuts
        Its cuts, in the order of time.

    Returns
    -------
    total_s : float
        The seconds from start to end in which some of its ports send.
    shares : list of float
        By cut, the part of these seconds that is over then, from 0 to 1.
    """
    start, end = float(plan.start_s[operation]), float(plan.end_s[operation])
    stops = [*(cut.time_s for cut in cuts[1:]), end]
    worked, dark = [], 0.0
    for cut, until in zip(cuts, stops, strict=True):
        worked.append(cut.time_s - start - dark)
        dark += min(job.network.delay_s, until - cut.time_s) if cut.dark else 0.0
    total = end - start - dark
    return total, [each / total for each in worked]


def _mark_demands(
    job: RailJob,
    plan: RailPlan,
    linked: TriggerPlan,
    changes: Sequence[Sequence[_Change]],
    slack: float,
    find: Finder,
) -> TriggerPlan:
    """Mark the triggers that the plan asks for later, or earlier, than their ports are free.

    Such a trigger is set on demand: it also waits until the first operation that needs its new
    circuits is ready. That is marked only where this operation is ready when the plan asks, and
    where all that it waits for stands before the trigger in the order.

    Parameters
    ----------
    job, plan
        The job, and the plan with times.
    linked
        The plan of triggers, with what each waits for.
    changes
        ``changes[rail][trigger]``, rails as in `linked`.
    slack
        Times that differ by no more are the same, in seconds.
    find
        Finds the operations that rows name.

    Returns
    -------
    TriggerPlan
        The plan with `RailTriggers.wanted` of each rail.
    """
    events = job.events()
    ready = np.zeros(len(events.part))
    np.maximum.at(ready, events.after, plan.end_s[events.part][events.before])
    after = np.zeros(len(events.part), np.int32)  # the latest place of a node that it waits for
    np.maximum.at(after, events.after, linked.place[events.part][events.before])

    rails = []
    for rail, own in zip(linked.rails, changes, strict=True):
        # By trigger: when the last data have gone over the circuits that it gives up, in seconds,
        # and the first operation that needs its circuits, -1 for none.
        drained, users = np.zeros(len(own)), first_users(rail, linked.place, find)
        now = rail.after[rail.after[:, 4] == 0]
        np.maximum.at(drained, now[:, 5], plan.end_s[find(now, "after")])
        event, asked = events.event_of[users], np.array([each.asked_s for each in own])
        asks = (users >= 0) & (ready[event] <= asked + slack) & (np.abs(asked - drained) > slack)
        asks &= after[event] < rail.place
        rails.append(replace(rail, wanted=list_wanted(job, np.flatnonzero(asks), users, find)))
    return replace(linked, rails=tuple(rails))

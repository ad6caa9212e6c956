"""Derives from a rail plan with times a plan of orders that a controller can execute."""

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
    """Keep the order of a plan and leave its times.

    A state of which a part waits for other communications than another part becomes several: each
    change concerns the ports of some circuits and waits for these alone. On a fabric with cells,
    and on switches that stop as a whole, states stay whole. A message is sent again after
    `timeout_s`, ten times the delay and at least 1 ms unless told; after `tries` messages without
    an answer a rail goes to its fall-back state.
    """
    if plan.pooled:
        raise InputError(
            "a plan in which data change rail inside servers has no triggers: they are for the"
            " controller of one rail; plan with change_rail_s = None",
            where="plan",
        )
    step, n = job.step(), job.step().n_operations
    members = ranks_of_rails(step)
    planned = {rail: timeline for timeline in plan.rails for rail in timeline.rails}
    if len(plan.start_s) != n or set(planned) != set(members):
        raise InputError("a plan of another job: operations or rails differ", where="plan")
    events, slack = job.events(), _SLACK * max(plan.step_s, 1e-6)
    listed = {id(timeline): _list_changes(job, timeline) for timeline in plan.rails}
    changes = [listed[id(planned[rail])] for rail in members]
    starts = [each.start_s for own in changes for each in own]
    times = np.concatenate([plan.start_s[events.part], starts])
    is_event = np.arange(len(times)) < len(events.part)
    instant = (plan.end_s - plan.start_s)[events.part] <= slack
    kept = instant[events.before]  # after other ends the next operation starts later
    depth = ends_s(
        events._replace(
            before=events.before[kept],
            after=events.after[kept],
            duration_s=np.ones(len(events.part)),
        )
    )
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
    lasts, pauses, shares = plan.end_s - plan.start_s, [], []
    without = lasts[events.part]
    find = Finder(step)
    for each, own in zip(rails, changes, strict=True):
        uses = list_uses(job, each, plan.ports, plan.relays)
        for event, cuts in _find_cuts(job, plan, each, uses, own, slack).items():
            k = events.part[event]
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
        lasts_s=np.maximum(without[events.event_of], 0.0),
        pauses=np.array(pauses, np.int32).reshape(-1, 4),
        shares=np.array(shares, np.float64),
        timeout_s=max(10 * job.network.delay_s, 1e-3) if timeout_s is None else timeout_s,
        tries=tries,
    )
    return _mark_demands(job, plan, link(job, made, find)[0], changes, slack, find)


class _Change(NamedTuple):
    """A change of circuits at a time."""

    start_s: float
    asked_s: float
    state: int
    rows: NDArray[np.int32]


class _Cut(NamedTuple):
    """Where a communication changes circuits while it is under way."""

    time_s: float
    states: list[int]
    dark: bool
    """Whether all ports of the communication change, so that nothing is sent meanwhile."""


def _list_changes(job: RailJob, timeline: RailTimeline) -> list[_Change]:
    """Split the changes of a timeline into those that have no port in common."""
    found = []
    whole = job.fabric is not None or job.network.switching == "all-stop"
    for state in range(1, len(timeline.matchings)):
        old, new = timeline.matchings[state - 1 : state + 1]
        ports = np.flatnonzero(old != new)
        label = np.zeros(len(ports), np.int64)
        if not whole:
            label = np.arange(len(ports))
            for _ in ports:  # each round joins operations that share a receive port
                low = np.full(len(old) + 1, len(ports))
                for arrives in (old, new):
                    np.minimum.at(low, arrives[ports], label)
                low[IDLE] = len(ports)
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
    trigger = np.repeat(np.arange(len(changes)), [len(each.rows) for each in changes])
    rows = np.concatenate([np.empty((0, 2), np.int32), *(each.rows for each in changes)])
    return np.column_stack([rows, trigger]).astype(np.int32)


def _kept_cells(timeline: RailTimeline, changes: Sequence[_Change]) -> NDArray[np.int8] | None:
    if timeline.cell_states is None:
        return None
    return timeline.cell_states[[0, *(each.state for each in changes)]]


def _ring(job: RailJob, n_gpus: int) -> NDArray[np.int32] | None:
    """Return a ring over all GPUs of a rail, on each of their ports; none through cells."""
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
    """Find the communications that change circuits while they are under way, and when."""
    trigger, port = touched(job, rail)
    if not len(trigger):
        return {}
    starts = np.array([each.start_s for each in changes])
    times, rank = np.unique(starts, return_inverse=True)
    key = port * (len(times) + 1) + rank.reshape(-1)[trigger]
    order = np.argsort(key, kind="stable")
    base = uses.port * (len(times) + 1)
    begin = np.searchsorted(times, plan.start_s[uses.operation] + slack, "right")
    until = np.searchsorted(times, plan.end_s[uses.operation] - slack, "left")
    low = np.searchsorted(key[order], base + begin)
    count = np.maximum(np.searchsorted(key[order], base + until) - low, 0)
    use = np.repeat(np.arange(len(low)), count)
    at = np.arange(len(use)) - np.repeat(np.cumsum(count) - count, count)
    hit = trigger[order[np.repeat(low, count) + at]]
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
    """Return how long a communication lasts without dark times, and what is over at each cut."""
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
    """Mark the triggers that the plan asks for later, or earlier, than their ports are free."""
    events = job.events()
    ready = np.zeros(len(events.part))
    np.maximum.at(ready, events.after, plan.end_s[events.part][events.before])
    after = np.zeros(len(events.part), np.int32)  # the latest place of a node that it waits for
    np.maximum.at(after, events.after, linked.place[events.part][events.before])
    rails = []
    for rail, own in zip(linked.rails, changes, strict=True):
        drained, users = np.zeros(len(own)), first_users(rail, linked.place, find)
        now = rail.after[rail.after[:, 4] == 0]
        np.maximum.at(drained, now[:, 5], plan.end_s[find(now, "after")])
        event, asked = events.event_of[users], np.array([each.asked_s for each in own])
        asks = (users >= 0) & (ready[event] <= asked + slack) & (np.abs(asked - drained) > slack)
        asks &= after[event] < rail.place
        rails.append(replace(rail, wanted=list_wanted(job, np.flatnonzero(asks), users, find)))
    return replace(linked, rails=tuple(rails))

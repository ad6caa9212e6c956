"""What waits for what if circuits are changed in an order, and when it then happens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.problems.rails.plan import RailPlan, RailTimeline, ranks_of_rails
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.rails.step import Step
from optmatch.problems.rails.times import Events, ends_s
from optmatch.problems.rails.triggers import RailTriggers, TriggerPlan
from optmatch.problems.rails.uses import (
    NONE,
    Finder,
    Ints,
    Ports,
    Use,
    first_users,
    list_uses,
    touched,
)


class Graph(NamedTuple):
    """What happens in a step, in order: parts of communications, and changes of circuits.

    The nodes are the events of the job, then further parts of communications, then the beginning
    of each change and its end.
    """

    events: Events
    """Nodes, and pairs of what ends before what starts."""
    ago: Ints
    """``ago[pair]``: 1 if the first of a pair is in the step before."""
    local: NDArray[np.bool_]
    """``local[pair]``: whether ranks know it themselves, and no controller is asked."""
    place: Ints
    """``place[node]``, ascending along all pairs of one step."""
    parts: tuple[tuple[int, ...], ...]
    """``parts[event]``: its nodes, in order."""
    begins: tuple[tuple[int, ...], ...]
    """``begins[rail][k]``: where trigger k begins; it ends at the next node."""
    uses: tuple[Use, ...]
    """``uses[rail]``, rails as in the plan."""

    def one_step(self) -> Events:
        """Return what happens in a step, with all of the step before over."""
        now, events = self.ago == 0, self.events
        return events._replace(before=events.before[now], after=events.after[now])


def link(job: RailJob, plan: TriggerPlan) -> tuple[TriggerPlan, Graph]:
    """Find from the order of a plan what waits for what.

    Returns
    -------
    tuple
        The plan with the rows `after`, `wanted` and `needs` that follow from its order, whatever
        they were, and the graph.

    Raises
    ------
    InputError
        If the plan is none of this job, or something comes before what it has to wait for.

    Notes
    -----
    Time O(operations log operations).
    """
    step, events, find = job.step(), job.events(), Finder(job.step())
    _check_shape(job, plan)
    n = len(events.part)
    place, lasts = plan.place[events.part].tolist(), plan.lasts_s[events.part].tolist()
    paused, parts = _number_parts(job, plan, find), [(event,) for event in range(n)]
    for event, cuts in paused.items():
        shares = [0.0, *cuts, 1.0]
        parts[event] = (event, *range(len(lasts), len(lasts) + len(cuts)))
        total = lasts[event]
        lasts[event] = total * shares[1]
        lasts += [total * (two - one) for one, two in pairwise(shares[1:])]
        rail = _rail_of(plan, step, int(events.part[event]))
        place += [max(rail.triggers[s - 1].place for s in states) for states in cuts.values()]
    chains = np.array([pair for nodes in parts for pair in pairwise(nodes)]).reshape(-1, 2)
    ends = np.array([nodes[-1] for nodes in parts], np.int64)
    pairs = [(ends[events.before], events.after, 0, True), (*chains.T, 0, True)]
    rails, begins, every = [], [], []
    for rail in plan.rails:
        begin = len(place) + 2 * np.arange(len(rail.triggers))
        place += [each.place for each in rail.triggers for _ in range(2)]
        lasts += [0.0, job.network.delay_s] * len(rail.triggers)
        uses = list_uses(job, rail, plan.ports, plan.relays)
        rails.append(_link_rail(job, plan, rail, uses, begin, find, parts, paused, pairs))
        begins.append(tuple(begin.tolist()))
        every.append(uses)
    before, after = (np.concatenate([p[side] for p in pairs]).astype(np.int64) for side in (0, 1))
    ago = np.concatenate([np.broadcast_to(p[2], np.shape(p[0])) for p in pairs]).astype(np.int64)
    local = np.concatenate([np.full(np.shape(p[0]), p[3]) for p in pairs])
    key, now = np.array(place), ago == 0
    for bad in np.flatnonzero(now & (key[before] > key[after]))[:1]:
        one, two = int(before[bad]), int(after[bad])
        raise InputError(
            f"place: {key[two]} stands before {key[one]}, which has to be over then", where="place"
        )
    part = np.concatenate([events.part, np.full(len(place) - n, -1)])
    nodes = Events(events.event_of, part, before, after, np.array(lasts))
    found = Graph(nodes, ago, local, key, tuple(parts), tuple(begins), tuple(every))
    return replace(plan, rails=tuple(rails)), found


def check_triggers(job: RailJob, plan: TriggerPlan) -> Graph:
    """Check that all in a plan waits for what its order says, and return its graph.

    Raises
    ------
    InputError
        Naming the first row that is missing or does not belong there.
    """
    linked, graph = link(job, plan)
    for number, (given, own) in enumerate(zip(plan.rails, linked.rails, strict=True)):
        where = f"/rails/{number}"
        _compare(f"{where}/needs", given.needs, own.needs)
        for k, (one, two) in enumerate(zip(given.triggers, own.triggers, strict=True)):
            _compare(f"{where}/triggers/{k}/after", one.after, two.after)
            _compare(f"{where}/triggers/{k}/wanted", one.wanted, two.wanted)
    return graph


def _compare(where: str, given: NDArray[np.int32], own: NDArray[np.int32]) -> None:
    stated, right = set(map(tuple, given.tolist())), set(map(tuple, own.tolist()))
    for row in sorted(right - stated)[:1]:
        raise InputError(f"lacks {list(row)}, which follows from the order", where=where)
    for row in sorted(stated - right)[:1]:
        raise InputError(f"{list(row)} does not follow from the order", where=where)


def _check_shape(job: RailJob, plan: TriggerPlan) -> None:
    """Refuse a plan of another job, and places that two things have."""
    step, events = job.step(), job.events()
    names = tuple(group.name for group in step.groups)
    if plan.groups != names or len(plan.place) != step.n_operations:
        raise InputError(
            f"a plan of {len(plan.groups)} groups and {len(plan.place)} operations: the job has"
            f" {len(names)} and {step.n_operations}, or groups of other names",
            where="groups",
        )
    members = {rail: tuple(ranks.tolist()) for rail, ranks in ranks_of_rails(step).items()}
    for number, rail in enumerate(plan.rails):
        ports = len(rail.ranks) * job.network.ports_per_gpu
        ports = ports if job.fabric is None else job.fabric.n_ports
        for name, got, expected in (
            ("ranks", rail.ranks, members.get(rail.rail)),
            ("circuits", len(rail.circuits), ports),
        ):
            if got != expected:
                raise InputError(
                    f"rails[{number}].{name}: {got}, of the job {expected}",
                    where=f"rails[{number}].{name}",
                )
    if len(plan.rails) != len(members):
        raise InputError(f"rails: {len(plan.rails)}, the job has {len(members)}", where="rails")
    for wrong in np.flatnonzero(plan.place != plan.place[events.part][events.event_of])[:1]:
        raise InputError(
            f"place[{wrong}] = {plan.place[wrong]}: not that of the other ranks of its"
            " communication",
            where=f"place[{wrong}]",
        )
    of_triggers = [each.place for rail in plan.rails for each in rail.triggers]
    every = np.concatenate([plan.place[events.part], np.array(of_triggers, np.int64)])
    places, count = np.unique(every, return_counts=True)
    for twice in places[count > 1][:1]:
        raise InputError(f"place: {twice} is there twice", where="place")
    rows = plan.relays
    for row in np.flatnonzero((rows >= (step.n_operations, step.n_ranks, 2**31)).any(axis=1))[:1]:
        raise InputError(
            f"relays[{row}] = {rows[row].tolist()}: no operation or rank of the job",
            where=f"relays[{row}]",
        )


def _rail_of(plan: TriggerPlan, step: Step, operation: int) -> RailTriggers:
    return next(rail for rail in plan.rails if rail.rail == step.rail[operation])


def _number_parts(
    job: RailJob, plan: TriggerPlan, find: Finder
) -> dict[int, dict[float, list[int]]]:
    """List for each event that pauses the shares at which it does, and for which states."""
    found: dict[int, dict[float, list[int]]] = {}
    step, event_of = job.step(), job.events().event_of
    operations = find(plan.pauses, "pauses")
    rows = zip(operations.tolist(), plan.pauses[:, 3].tolist(), plan.shares.tolist(), strict=True)
    for row, (operation, state, share) in enumerate(rows):
        known = 0
        if step.rail[operation] >= 0:
            known = len(_rail_of(plan, step, operation).triggers)
        if not 1 <= state <= known:
            raise InputError(
                f"pauses[{row}]: state {state}, the rail has 1 to {known}", where=f"pauses[{row}]"
            )
        found.setdefault(int(event_of[operation]), {}).setdefault(share, []).append(state)
    return {event: dict(sorted(shares.items())) for event, shares in sorted(found.items())}


def _link_rail(
    job: RailJob,
    plan: TriggerPlan,
    rail: RailTriggers,
    uses: Use,
    begin: Ints,
    find: Finder,
    parts: Sequence[tuple[int, ...]],
    paused: Mapping[int, Mapping[float, Sequence[int]]],
    pairs: list[Any],
) -> RailTriggers:
    """Add what a rail waits for to the pairs, and return it with its rows."""
    event_of = job.events().event_of
    trigger, port = touched(job, rail)
    used = np.isin(port, uses.port)
    trigger, port = trigger[used], port[used]
    table = Ports(
        np.concatenate([uses.port, port]),
        np.concatenate(
            [
                plan.place[uses.operation],
                np.array([each.place for each in rail.triggers], np.int64)[trigger],
            ]
        ),
        np.arange(len(uses.port) + len(port)) < len(uses.port),
        np.concatenate([uses.operation, trigger]),
    )
    first = np.array([nodes[0] for nodes in parts], np.int64)
    last = np.array([nodes[-1] for nodes in parts], np.int64)

    # Over each port one after the other.
    before, after, ago = table.pair(use=True, after_use=True)
    before, after = last[event_of[before]], first[event_of[after]]
    pairs.append((before, after, ago, True))

    # A circuit is given up when what went over it is over, or this part of it.
    over, given_up, ago = table.pair(use=True, after_use=False)
    cut = {
        (event, state - 1): place
        for event, cuts in paused.items()
        for place, states in enumerate(cuts.values())
        for state in states
    }
    number = np.array([len(nodes) - 1 for nodes in parts], np.int64)[event_of[over]]
    if cut:
        at = zip(event_of[over].tolist(), given_up.tolist(), number.tolist(), strict=True)
        number = np.array([cut.get((e, k), last_part) for e, k, last_part in at], np.int64)
    nodes = np.array(
        [parts[e][k] for e, k in zip(event_of[over].tolist(), number.tolist(), strict=True)],
        np.int64,
    )
    pairs.append((nodes, begin[given_up], ago, False))
    rows = find.name(over, number, ago, given_up)

    # Nothing is sent before its circuits are confirmed.
    state, sends, back = table.pair(use=False, after_use=True)
    needs = [find.name(sends, 0, state + 1, back)]
    pairs.append((begin[state] + 1, first[event_of[sends]], back, False))
    by_trigger = _group(trigger, port, len(rail.triggers))
    by_event = _group(event_of[uses.operation], np.arange(len(uses.port)), len(parts))
    for (event, k), place in cut.items():
        own = by_event(event)
        hit = uses.operation[own[np.isin(uses.port[own], by_trigger(k))]]
        if len(hit):
            needs.append(find.name(hit, place + 1, k + 1, 0))
            pairs.append(([begin[k] + 1], [parts[event][place + 1]], 0, False))
    linked = replace(rail, needs=np.concatenate(needs))

    following = np.array(list_followers(job, rail), np.int64).reshape(-1, 3)
    stops = job.network.switching == "all-stop"
    pairs.append((begin[following[:, 0]] + stops, begin[following[:, 1]], following[:, 2], False))
    pairs.append((begin, begin + 1, 0, False))
    users = first_users(linked, plan.place, find)
    after_rows = _group(rows[:, 5], rows[:, :5], len(rail.triggers))
    demanded = [k for k, each in enumerate(rail.triggers) if each.on_demand and k in users]
    if demanded:
        members = _group(event_of, np.arange(len(event_of)), len(parts))
        causes = _group(job.events().after, job.events().before, len(parts))
    triggers = []
    for k, each in enumerate(rail.triggers):
        wanted = NONE
        if k in demanded:
            event = int(event_of[users[k]])
            wanted = members(event)
            pairs.append((last[causes(event)], np.full(len(causes(event)), begin[k]), 0, False))
        triggers.append(replace(each, after=after_rows(k), wanted=find.name(wanted)))
    return replace(linked, triggers=tuple(triggers))


def _group(key: NDArray[Any], rows: NDArray[Any], n: int) -> Callable[[int], NDArray[Any]]:
    """Return what finds the rows of a key from 0 up to n, in their order."""
    order = np.argsort(key, kind="stable")
    ordered, bounds = rows[order], np.searchsorted(key[order], np.arange(n + 1)).tolist()
    return lambda k: ordered[bounds[k] : bounds[k + 1]]


def list_followers(job: RailJob, rail: RailTriggers) -> list[tuple[int, int, int]]:
    """List which trigger follows which, and 1 if that is of the step before."""
    n = len(rail.triggers)
    if job.fabric is not None or job.network.switching == "all-stop":
        return [((k - 1) % n, k, int(k == 0)) for k in range(n)]
    found, states = set(), rail.states()
    last: dict[tuple[int, int], int] = {}
    for turn in (1, 0):  # once around for what the step before has left
        for k, trigger in enumerate(rail.triggers):
            sends = trigger.circuits[:, 0]
            arrives = np.concatenate([states[k][sends], trigger.circuits[:, 1]])
            for at in {*((0, p) for p in sends.tolist()), *((1, p) for p in arrives.tolist())}:
                if turn == 0 and at in last:
                    found.add((last[at] % n, k, int(last[at] < n)))
                last[at] = k + n * (1 - turn)
    return sorted(found)


def retime(job: RailJob, graph: Graph, plan: TriggerPlan) -> RailPlan:
    """Return when everything happens if nothing is late, as a plan that can be verified.

    Parameters
    ----------
    job, graph, plan
        A job, and what `link` has found.
    """
    events = job.events()
    end = ends_s(graph.one_step())
    start = end - graph.events.duration_s
    rails, last = [], 0.0
    for rail, begins in zip(plan.rails, graph.begins, strict=True):
        at = start[list(begins)]
        order = np.argsort(at, kind="stable")
        rows, times, cells = [rail.circuits], [0.0], [0]
        for k in order.tolist():
            circuits = rail.triggers[k].circuits
            changed = rows[-1].copy()
            changed[circuits[:, 0]] = circuits[:, 1]
            if at[k] == times[-1] and len(rows) > 1:
                rows[-1], cells[-1] = changed, k + 1
            else:
                rows, times, cells = [*rows, changed], [*times, float(at[k])], [*cells, k + 1]
        last = max(last, *(t + job.network.delay_s for t in times[1:]), 0.0)
        own = None if rail.cell_states is None else rail.cell_states[cells]
        rails.append(
            RailTimeline(
                rails=(rail.rail,),
                matchings=np.array(rows),
                cell_states=own,
                asked_s=np.array(times),
                starts_s=np.array(times),
            )
        )
    begin = start[[nodes[0] for nodes in graph.parts]][events.event_of]
    done = end[[nodes[-1] for nodes in graph.parts]][events.event_of]
    return RailPlan(
        rails=tuple(rails),
        start_s=begin,
        end_s=done,
        ports=plan.ports,
        relays=plan.relays,
        step_s=max(float(done.max(initial=0.0)), last),
    )

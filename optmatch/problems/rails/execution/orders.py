"""The order of events when circuits change in a given order, and the times that follow.

A plan of triggers is turned into a graph. Its nodes are events of the job (computations, and
communications of several ranks as one), further *parts* of communications that pause for a change
of circuits, and *triggers*, the changes of circuits. Each trigger has two nodes: at the first the
change begins, the second lasts as long as its ports are dark. Pairs of nodes say which has to be
over before which starts; `ago` is 1 where the first is in the step before.

The *place* of a node is its number in the total order of the plan. A *share* says how much of a
communication is over when it pauses, from 0 to 1. *State* s of a rail is the one after its first
s triggers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.problems.rails.execution.plan import RailPlan, RailTimeline, ranks_of_rails
from optmatch.problems.rails.execution.triggers import RailTriggers, TriggerPlan
from optmatch.problems.rails.execution.uses import (
    Finder,
    Ints,
    Ports,
    Use,
    first_users,
    gather,
    list_uses,
    touched,
)
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.rails.training.step import Step
from optmatch.problems.rails.training.times import Events, ends_s


class Parts(NamedTuple):
    """The parts of each event, in order: the first is the event itself.

    An event that does not pause has one part. Parts are counted from 0. Both columns have an
    entry for each event: ``number[event]`` counts its parts, each of which is a node, and
    ``further[event]`` is the node of its second part.
    """

    number: Ints
    """The number of nodes."""
    further: Ints
    """The node of the second part; others follow."""

    def node(self, event: Any, part: Any) -> Ints:
        """Return the nodes of some parts of some events, entry by entry.

        `event` and `part` are integers or arrays of them, which are broadcast together.
        """
        found: Ints = np.where(np.equal(part, 0), event, self.further[event] + part - 1)
        return found

    def of(self, event: int) -> list[int]:
        """List the nodes of an event."""
        return [event, *(self.further[event] + np.arange(self.number[event] - 1)).tolist()]

    @property
    def last(self) -> Ints:
        """``last[event]``: the node of its last part."""
        return self.node(np.arange(len(self.number), dtype=np.int32), self.number - 1)


class Graph(NamedTuple):
    """The events of a step, in order: parts of communications, and changes of circuits.

    The nodes are the events of the job, then further parts of communications, then the beginning
    of each change and its end.
    """

    events: Events
    """Nodes, and pairs of nodes of which the first ends before the second starts."""
    ago: NDArray[np.int8]
    """``ago[pair]``: 1 if the first of a pair is in the step before."""
    local: NDArray[np.bool_]
    """``local[pair]``: whether ranks know it themselves, and no controller is asked."""
    place: NDArray[np.int32]
    """``place[node]``, ascending along all pairs of one step."""
    parts: Parts
    """By event, its nodes."""
    begins: tuple[tuple[int, ...], ...]
    """``begins[rail][k]``: where trigger k begins; it ends at the next node."""
    uses: tuple[Use, ...]
    """``uses[rail]``, rails as in the plan."""
    find: Finder
    """Finds the operations that rows name."""

    def one_step(self) -> Events:
        """Return the events of a step, with all of the step before over."""
        now, events = self.ago == 0, self.events
        return events._replace(before=events.before[now], after=events.after[now])


def link(job: RailJob, plan: TriggerPlan, find: Finder | None = None) -> tuple[TriggerPlan, Graph]:
    """Find from the order of a plan which node waits for which.

    A trigger is a change of circuits of one rail. An event is a computation, or a communication of
    several ranks as one; one that pauses for triggers is cut into parts. The nodes are the events,
    further parts of those that pause, and for each trigger its beginning and its end. The place of
    a node is its number in the total order of the plan. Time O(operations log operations).

    Parameters
    ----------
    job
        The job of the plan.
    plan
        Places, ports, triggers and pauses. The rows `wanted` of its rails tell only which triggers
        are set on demand; `after` and `needs` are not read.
    find
        Finds operations by rank, group and number; made here if it is None.

    Returns
    -------
    plan : TriggerPlan
        The plan with the rows `after`, `wanted` and `needs` that follow from its order.
    graph : Graph
        The nodes with durations in seconds and the pairs of which one waits for the other
        (`events`); by pair whether the first is in the step before (`ago`), and whether ranks know
        it without a controller (`local`); by node its `place`; the nodes of the parts of each
        event; where each trigger begins; and the sends over the ports of each rail (`uses`).

    Raises
    ------
    InputError
        If the plan is of another job, two things have one place, or an operation comes before
        what it has to wait for.
    """
    step, events, find = job.step(), job.events(), find or Finder(job.step())
    _check_shape(job, plan)

    # The first nodes are the events. One that pauses lasts up to its first share, and its further
    # parts are new nodes, from `size` on: each stands where the last of its triggers stands.
    n = size = len(events.part)
    places, lasts = [plan.place[events.part]], [plan.lasts_s[events.part]]
    paused = _number_parts(job, plan, find)
    parts = Parts(np.ones(n, np.int32), np.zeros(n, np.int32))
    for event, cuts in paused.items():
        parts.number[event], parts.further[event] = 1 + len(cuts), size
        size += len(cuts)
        total = lasts[0][event]
        lasts[0][event] *= min(cuts)
        lasts.append(total * np.diff([*cuts, 1.0]))
        rail = _rail_of(plan, step, int(events.part[event]))
        latest = [max(rail.place[s - 1] for s in states) for states in cuts.values()]
        places.append(np.array(latest, np.int32))

    # Each of the pairs is (nodes before, nodes after, ago, local), see `Graph`. An event waits
    # for the last part of another one, and each part for the part before it.
    chained = [pair for event in paused for pair in pairwise(parts.of(event))]
    chains = np.array(chained, np.int64).reshape(-1, 2)
    last = parts.last
    pairs = [(last[events.before], events.after, 0, True), (*chains.T, 0, True)]

    # Trigger k of a rail has the nodes `begin[k]`, which takes no time, and `begin[k] + 1`.
    rails, begins, every = [], [], []
    for rail in plan.rails:
        begin = size + 2 * np.arange(len(rail.place))
        size += 2 * len(begin)
        places.append(np.repeat(rail.place, 2))
        lasts.append(np.tile([0.0, job.network.delay_s], len(begin)))

        # The pairs of this rail are added to those of the events.
        uses = list_uses(job, rail, plan.ports, plan.relays, pooled=plan.pooled)
        rails.append(_link_rail(job, plan, rail, uses, begin, find, last, parts, paused, pairs))
        begins.append(tuple(begin.tolist()))
        every.append(uses)

    before, after = (
        np.concatenate([p[side] for p in pairs], dtype=np.int32, casting="unsafe")
        for side in (0, 1)
    )
    ago = np.concatenate([np.broadcast_to(np.int8(p[2]), np.shape(p[0])) for p in pairs])
    local = np.concatenate([np.full(np.shape(p[0]), p[3]) for p in pairs])
    pairs.clear()  # several hundred megabytes of large jobs

    # Within a step all pairs have to agree with the places: the order then has no cycle.
    place = np.concatenate(places)
    late = np.flatnonzero(place[before] > place[after])
    for bad in late[ago[late] == 0][:1]:
        one, two = place[before[bad]], place[after[bad]]
        raise InputError(
            f"place: {two} stands before {one}, which has to be over then", where="place"
        )

    part = np.concatenate([events.part, np.full(size - n, -1)])
    nodes = Events(events.event_of, part, before, after, np.concatenate(lasts))
    found = Graph(nodes, ago, local, place, parts, tuple(begins), tuple(every), find)
    return replace(plan, rails=tuple(rails)), found


def check_triggers(job: RailJob, plan: TriggerPlan) -> Graph:
    """Check that all in a plan waits for what its order says, and return its graph.

    Parameters
    ----------
    job, plan
        The job, and its plan of triggers.

    Returns
    -------
    Graph

    Raises
    ------
    InputError
        As `link` does, or naming the first row of `needs`, `after` or `wanted` that is missing,
        or does not follow from the order.
    """
    linked, graph = link(job, plan)
    for number, (given, own) in enumerate(zip(plan.rails, linked.rails, strict=True)):
        for name in ("needs", "after", "wanted"):
            _compare(f"/rails/{number}/{name}", getattr(given, name), getattr(own, name))
    return graph


def _compare(where: str, given: NDArray[np.int32], own: NDArray[np.int32]) -> None:
    """Refuse rows that are not those that follow from the order.

    Parameters
    ----------
    where
        The JSON pointer to the table, for the message.
    given, own
        The table of the plan, and the right one; both sorted, shape (rows, columns).

    Raises
    ------
    InputError
        Naming the first row that is missing, or one that does not belong there.
    """
    if np.array_equal(given, own):
        return
    stated, right = set(map(tuple, given.tolist())), set(map(tuple, own.tolist()))
    for row in sorted(right - stated)[:1]:
        raise InputError(f"lacks {list(row)}, which follows from the order", where=where)
    for row in sorted(stated - right)[:1]:
        raise InputError(f"{list(row)} does not follow from the order", where=where)


def _check_shape(job: RailJob, plan: TriggerPlan) -> None:
    """Refuse a plan of another job, and places that two things have.

    The place of an operation or of a trigger (a change of circuits) is its number in the total
    order of the plan. A relay is a row that names an operation, a rank that forwards its data, and
    the ports.

    Parameters
    ----------
    job
        The job.
    plan
        A plan of triggers, of which nothing is known.

    Raises
    ------
    InputError
        If groups, operations, rails, their ranks or ports are not those of the job, if the parts
        of one communication have different places, two things have one place, or a relay is of
        no operation or rank.
    """
    step, events = job.step(), job.events()
    if plan.pooled:
        _check_pooled(job, plan)
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

    # All ranks of a communication do it at one place, and no two things have the same place.
    for wrong in np.flatnonzero(plan.place != plan.place[events.part][events.event_of])[:1]:
        raise InputError(
            f"place[{wrong}] = {plan.place[wrong]}: not that of the other ranks of its"
            " communication",
            where=f"place[{wrong}]",
        )
    every = np.concatenate([plan.place[events.part], *(rail.place for rail in plan.rails)])
    every.sort()
    for twice in every[1:][np.diff(every) == 0][:1]:
        raise InputError(f"place: {twice} is there twice", where="place")

    rows = plan.relays
    for row in np.flatnonzero((rows >= (step.n_operations, step.n_ranks, 2**31)).any(axis=1))[:1]:
        raise InputError(
            f"relays[{row}] = {rows[row].tolist()}: no operation or rank of the job",
            where=f"relays[{row}]",
        )


def _check_pooled(job: RailJob, plan: TriggerPlan) -> None:
    """Refuse a plan in which data change rail inside servers, where the job does not let them.

    The circuits of such a plan stay while a communication is under way: it has no pauses.

    Raises
    ------
    InputError
        Naming what does not allow it.
    """
    is_recorded = job.workload.recorded is not None
    if job.network.change_rail_s is None or job.fabric is not None or is_recorded:
        raise InputError(
            "pooled: data change rail in jobs of a model with network.change_rail_s and ideal"
            " switches alone",
            where="pooled",
        )
    if len(plan.pauses):
        raise InputError(
            "pauses: a communication over several rails has no state of one rail to wait for",
            where="pauses",
        )


def _rail_of(plan: TriggerPlan, step: Step, operation: int) -> RailTriggers:
    """Return the triggers of the rail that an operation rides."""
    return next(rail for rail in plan.rails if rail.rail == step.rail[operation])


def _number_parts(
    job: RailJob, plan: TriggerPlan, find: Finder
) -> dict[int, dict[float, list[int]]]:
    """List for each event that pauses the shares at which it does, and for which states.

    An event is a computation, or a communication of several ranks as one. A share is how much of
    it is over when it pauses, from 0 to 1. State s of a rail is the circuits after its first s
    triggers (changes of circuits).

    Parameters
    ----------
    job, plan
        The job, and its plan of triggers.
    find
        Finds the operations that rows name.

    Returns
    -------
    dict
        ``paused[event][share]``: the states of its rail that it waits for when this share of it
        is over. Events and shares ascend.

    Raises
    ------
    InputError
        If a row of `TriggerPlan.pauses` names no communication, or a state that its rail does not
        have.
    """
    found: dict[int, dict[float, list[int]]] = {}
    step, event_of = job.step(), job.events().event_of
    operations = find(plan.pauses, "pauses")
    rows = zip(operations.tolist(), plan.pauses[:, 3].tolist(), plan.shares.tolist(), strict=True)
    for row, (operation, state, share) in enumerate(rows):
        # States of a rail are counted by its triggers; an operation inside a server has none.
        known = 0
        if step.rail[operation] >= 0:
            known = len(_rail_of(plan, step, operation).place)
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
    last: Ints,
    parts: Parts,
    paused: Mapping[int, Mapping[float, Sequence[int]]],
    pairs: list[Any],
) -> RailTriggers:
    """Add what a rail waits for to the pairs, and return it with its rows.

    A trigger is a change of circuits. An event is a computation, or a communication of several
    ranks as one, cut into parts where it pauses for triggers. The nodes of the graph are the parts
    of events, and for each trigger its beginning and its end. Four kinds of pairs are added: sends
    of each port follow each other; a circuit is given up when the send over it, or a part of it,
    has ended; nothing is sent before its circuits are up; and triggers with a port in common keep
    their order.

    Parameters
    ----------
    job, plan
        The job, and the plan of all rails.
    rail
        The triggers of this rail.
    uses
        The sends over its transmit ports: an entry for each operation and port.
    begin
        ``begin[trigger]``: the node at which it begins; it is up when the next node ends.
    find
        Finds the operations that rows name, and names them.
    last
        ``last[event]``: the node of its last part.
    parts
        The nodes of all parts of each event.
    paused
        ``paused[event][share]``: the states that it waits for when this share of it is over.
    pairs
        Tuples (nodes before, nodes after, ago, local): `ago` is 1 if the first of a pair is in
        the step before, and `local` tells whether ranks know it without a controller. Those of
        this rail are appended.

    Returns
    -------
    RailTriggers
        The rail with the rows that follow from the order: `needs`, which states each send waits
        for; `after`, what has to be over before each trigger; and `wanted`, what has to be ready,
        too, for a trigger on demand.
    """
    event_of = job.events().event_of
    trigger, port = touched(job, rail)

    # With pooled rails the GPUs of a server use a port at once, each a share of it: their sends do
    # not wait for each other, and a change waits for those of all shares.
    used_port = uses.port
    if plan.pooled:
        rails_of_job = np.sort([each.rail for each in plan.rails])
        share = np.searchsorted(rails_of_job, job.step().rail[uses.operation])
        n_shares = len(rails_of_job)
        used_port = uses.port * n_shares + share
        port = np.repeat(port * n_shares, n_shares) + np.tile(np.arange(n_shares), len(port))
        trigger = np.repeat(trigger, n_shares)

    # All that happens at a transmit port, uses and changes, in the order of places.
    used = np.isin(port, used_port)
    trigger = trigger[used]
    port = port[used]
    ports = np.concatenate([used_port, port])
    items = np.concatenate([uses.operation, trigger])
    places = np.concatenate([plan.place[uses.operation], rail.place[trigger]])
    order = np.lexsort((places, ports))
    table = Ports(ports[order], order < len(used_port), items[order])

    # Uses of each port follow one after the other.
    before, after, ago = table.pair(use=True, after_use=True)
    pairs.append((last[event_of[before]], event_of[after], ago, True))

    # A circuit is given up when the operation over it, or this part of it, has ended.
    over, given_up, ago = table.pair(use=True, after_use=False)
    # `cut` tells, by event and trigger, the part that ends there, if the event pauses for it.
    cut = {
        (event, state - 1): place
        for event, cuts in paused.items()
        for place, states in enumerate(cuts.values())
        for state in states
    }
    events = event_of[over]
    number = parts.number[events] - 1
    if cut:
        at = zip(events.tolist(), given_up.tolist(), number.tolist(), strict=True)
        number = np.array([cut.get((e, k), last_part) for e, k, last_part in at], np.int64)
    pairs.append((parts.node(events, number), begin[given_up], ago, False))
    rows = find.name(over, number, ago, given_up)

    # Nothing is sent before its circuits are confirmed.
    state, sends, back = table.pair(use=False, after_use=True)
    # A further part also needs the state that the event has paused for.
    needs = [find.name(sends, 0, state + 1, back)]
    pairs.append((begin[state] + 1, event_of[sends], back, False))
    for (event, k), place in cut.items():
        own = np.flatnonzero(event_of[uses.operation] == event)
        hit = uses.operation[own[np.isin(uses.port[own], port[trigger == k])]]
        if len(hit):
            needs.append(find.name(hit, place + 1, k + 1, 0))
            pairs.append(([begin[k] + 1], parts.node(event, np.array([place + 1])), 0, False))

    # Triggers with a port in common keep their order. A switch that stops as a whole begins a
    # change when the last one is up.
    one, two, ago = list_followers(job, rail).T
    stops = job.network.switching == "all-stop"
    pairs.append((begin[one] + stops, begin[two], ago, False))
    pairs.append((begin, begin + 1, 0, False))
    linked = replace(rail, needs=np.concatenate(needs), after=rows, wanted=rail.wanted[:0])
    if not len(rail.wanted):
        return linked

    # A trigger on demand waits for all that the first operation over its circuits waits for.
    users = first_users(linked, plan.place, find)
    demanded = np.unique(rail.wanted[:, 3])
    demanded = demanded[users[demanded] >= 0]
    which, causes = gather(job.events().after, event_of[users[demanded]])
    pairs.append((last[job.events().before[causes]], begin[demanded[which]], 0, False))
    return replace(linked, wanted=list_wanted(job, demanded, users, find))


def list_wanted(
    job: RailJob, demanded: NDArray[Any], users: Ints, find: Finder
) -> NDArray[np.int32]:
    """List the operations that have to be ready for the triggers that are set on demand.

    Parameters
    ----------
    job
        The job.
    demanded
        The triggers that are set on demand, ascending.
    users
        ``users[trigger]``: the first operation that needs the trigger in the same step, -1 for
        none; those of `demanded` have one.
    find
        Names operations in rows.

    Returns
    -------
    int32 array, shape (rows, 4)
        As `RailTriggers.wanted`: a row for each rank that takes part in the communication.
    """
    event_of = job.events().event_of
    which, members = gather(event_of, event_of[users[demanded]])
    return find.name(members, demanded[which])


def list_followers(job: RailJob, rail: RailTriggers) -> Ints:
    """List which trigger follows which at some port, step after step.

    A trigger is a change of circuits of the rail; it concerns the ports whose circuits change. On
    a fabric, and on a switch that stops as a whole, each follows the one before it.

    Parameters
    ----------
    job
        The job, which has the switch.
    rail
        The triggers of one rail.

    Returns
    -------
    int64 array, shape (rows, 3)
        The trigger before, the trigger after, and 1 if the first is in the step before, else 0.
        Each row stands once.
    """
    number = np.arange(len(rail.place))
    if job.fabric is not None or job.network.switching == "all-stop":
        return np.stack([np.roll(number, 1), number, number == 0], axis=1)
    trigger, sends, old, new = rail.turns()

    # A trigger concerns the transmit port of each change and its receive ports before and after.
    # As keys, transmit ports are even and receive ports odd; each key is joined with the trigger.
    ports = np.concatenate([2 * sends, 2 * old + 1, 2 * new + 1])  # a dark port is -1
    n = len(number)
    port, at = np.divmod(_once(ports.astype(np.int64) * n + np.tile(trigger, 3)), max(n, 1))

    # At each port `one[row]` is the trigger before `at[row]`; before the first one of a step it
    # is the last one of the step before.
    first = np.diff(port, prepend=-2) != 0
    last = np.append(at[np.flatnonzero(first)[1:] - 1], at[-1:])
    one = np.roll(at, 1)
    one[first] = last
    pair, first = np.divmod(_once((one * n + at) * 2 + first), 2)
    return np.stack([*np.divmod(pair, max(n, 1)), first], axis=1)


def _once(keys: Ints) -> Ints:
    """Return each of some integers once, ascending; `np.unique` takes several times as long."""
    keys = np.sort(keys)
    fresh: Ints = keys[np.append(True, np.diff(keys) != 0)[: len(keys)]]
    return fresh


def retime(job: RailJob, graph: Graph, plan: TriggerPlan) -> RailPlan:
    """Return when everything happens if nothing is late, as a plan that can be verified.

    A node is an operation (a communication of several ranks is one, or several parts), or the
    beginning or end of a trigger, which is a change of circuits. Every node starts as early as
    what it waits for allows; the step before is over.

    Parameters
    ----------
    job
        The job of the plan.
    graph
        Nodes, and which waits for which, as `link` returns it.
    plan
        The plan of triggers that the graph was made of.

    Returns
    -------
    RailPlan
        Times of all operations and a timeline for each rail, in the order of ``plan.rails``. A
        state is asked for when its reconfiguration starts.
    """
    events = job.events()
    end = ends_s(graph.one_step())
    start = end - graph.events.duration_s

    # `last` is when the last change of any rail is up, in seconds.
    rails, last = [], 0.0
    for rail, begins in zip(plan.rails, graph.begins, strict=True):
        at = start[list(begins)]
        order = np.argsort(at, kind="stable")

        # Add up the changes in the order of time: by state its circuits, its time, and which row
        # of the states of the cells it has. Changes at one time make one state; the first state,
        # which is there when the step begins, is never replaced.
        rows, times, cells = [rail.circuits], [0.0], [0]
        changes = rail.split(rail.changes)
        for k in order.tolist():
            changed = rows[-1].copy()
            changed[changes[k][:, 0]] = changes[k][:, 1]
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

    # An operation starts with the first part of its event and ends with the last one.
    begin, done = start[events.event_of], end[graph.parts.last[events.event_of]]
    return RailPlan(
        rails=tuple(rails),
        start_s=begin,
        end_s=done,
        ports=plan.ports,
        relays=plan.relays,
        chords=plan.chords,
        pooled=plan.pooled,
        step_s=max(float(done.max(initial=0.0)), last),
    )

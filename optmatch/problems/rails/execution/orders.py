"""The order of events when circuits change in a given order, and the times that follow.

A plan of triggers is turned into a graph. Its nodes are events of the job (computations, and
communications of several ranks as one), further *parts* of communications that pause for a change
of circuits, and *triggers*, the changes of circuits. Each trigger has two nodes: at the first the
change begins, the second lasts as long as its ports are dark. Pairs of nodes say which has to be
over before which starts, in one step; in tables, `ago` is 1 for what is over in the step before.

The *place* of a node is its number in the total order of the plan. A *share* says how much of a
communication is over when it pauses, from 0 to 1. *State* s of a rail is the one after its first
s triggers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.model.numbers import refuse_entries
from optmatch.problems.rails.execution.plan import (
    RailPlan,
    RailTimeline,
    find_step_end,
    ranks_of_rails,
)
from optmatch.problems.rails.execution.triggers import RailTriggers, TriggerPlan
from optmatch.problems.rails.execution.uses import (
    Finder,
    Ints,
    Ports,
    Use,
    find_first_users,
    find_matches,
    list_interruptions,
    list_uses,
)
from optmatch.problems.rails.problem import RailJob
from optmatch.problems.rails.training.times import Events, ends_s


class Pauses(NamedTuple):
    """Where communications pause for triggers: *cuts*, by event and share, and rows of triggers.

    At each cut of an event one of its parts ends and the next one begins. Part 0 is the node of
    the event itself; the part behind cut c is the node `n_events` + c. With 10 events, of which
    event 7 pauses twice, its parts 0, 1 and 2 are the nodes 7, 10 and 11.
    """

    event: Ints
    """``event[cut]``, ascending."""
    share: NDArray[np.float64]
    """``share[cut]``: how much of the event is over then; ascending for each event."""
    part: Ints
    """``part[cut]``: the part that ends there."""
    before: Ints
    """``before[cut]``: the node of that part."""
    after: Ints
    """``after[cut]``: the node of the next part."""
    rail: Ints
    """``rail[row]``: the rail of a row of `TriggerPlan.pauses`."""
    trigger: Ints
    """``trigger[row]``: the trigger that its communication waits for."""
    cut: Ints
    """``cut[row]``: the cut at which it does."""
    last: Ints
    """``last[event]``: the node of its last part, the event itself or the one behind its cuts."""


class Graph(NamedTuple):
    """The events of a step, in order: parts of communications, and changes of circuits.

    The nodes are the events of the job, then further parts of communications, then the beginning
    of each change and its end.
    """

    events: Events
    """Nodes, and pairs of nodes of which the first ends before the second starts; both are in one
    step."""
    last: Ints
    """``last[event]``: the node of its last part."""
    begins: tuple[tuple[int, ...], ...]
    """``begins[rail][k]``: the node at which trigger k begins; it is up at the end of the next
    node."""


def _pair_nodes(before: Any, after: Any, ago: Any = 0) -> NDArray[np.int32]:
    """Return pairs of nodes of one step, of which ``before[k]`` ends before ``after[k]`` starts.

    Pairs whose first node is one of the step before, ``ago[k]`` of 1, are left out: the graph is
    that of one step. The result has the shape (2, pairs).
    """
    is_in_step = np.broadcast_to(np.equal(ago, 0), len(before))
    return np.stack([before, after]).astype(np.int32)[:, is_in_step]


def link_triggers(
    job: RailJob, plan: TriggerPlan, find: Finder | None = None
) -> tuple[TriggerPlan, Graph]:
    """Derive from the order of a plan what waits for what.

    Returns a copy of the plan with the tables `needs`, `after` and `wanted` of each rail, and the
    graph of all events, parts and triggers. The plan may lack these tables; which triggers are on
    demand is read from `wanted`. Raises `InputError` if something stands before what it waits for,
    or if the plan is not of this job.

    A trigger waits for the communications before it that use its old circuits, and those after it
    wait for the trigger. Nodes of the graph are the events of the job, then further parts of
    events that pause for triggers, then two for each trigger: one at which the change begins, and
    one that lasts until it is up. With 10 events, one of which pauses twice, and a rail of 3
    triggers, they are the nodes 0 to 9, 10 and 11, and 12 to 17.
    """
    events = job.events()
    if find is None:
        find = Finder(job.step())
    _check_shape(job, plan)

    # Pairs that hold for any circuits: an event waits for the last part of another one, and each
    # part for the part before it.
    pauses = _list_pauses(job, plan, find)
    pairs = [
        _pair_nodes(pauses.last[events.before], events.after),
        _pair_nodes(pauses.before, pauses.after),
    ]

    # Durations and places of nodes. A further part has the place of the last trigger that it waits
    # for.
    durations_s = [*_time_parts(plan.lasts_s[events.part], pauses)]
    place_of_part = np.zeros(len(pauses.event), np.int32)
    for rail in plan.rails:
        rows = np.flatnonzero(pauses.rail == rail.rail)
        np.maximum.at(place_of_part, pauses.cut[rows], rail.place[pauses.trigger[rows]])
    places = [plan.place[events.part], place_of_part]
    n_nodes = len(events.part) + len(place_of_part)

    # Trigger k of a rail gets the nodes `begin[k]`, which takes no time, and `begin[k] + 1`, which
    # lasts as long as its ports are dark. Both have the place of the trigger. `_link_rail` adds
    # the pairs that follow from the use of circuits.
    rails = []
    begins = []
    for rail in plan.rails:
        n_triggers = len(rail.place)
        begin = n_nodes + 2 * np.arange(n_triggers)
        n_nodes += 2 * n_triggers
        places.append(np.repeat(rail.place, 2))
        durations_s.append(np.tile([0.0, job.network.delay_s], n_triggers))
        rails.append(_link_rail(job, plan, find, pauses, rail, begin, pairs))
        begins.append(tuple(begin.tolist()))

    # The first of each pair has to stand before the second in the order of the plan: the graph
    # then has no cycle.
    before, after = np.concatenate(pairs, axis=1)
    place = np.concatenate(places)
    for bad in np.flatnonzero(place[before] > place[after])[:1]:
        raise InputError(
            f"place: {place[after[bad]]} stands before {place[before[bad]]}, which has to be over"
            " then",
            where="place",
        )

    # Only the nodes that are events themselves have a first operation.
    part = np.concatenate([events.part, np.full(n_nodes - len(events.part), -1)])
    nodes = Events(events.event_of, part, before, after, np.concatenate(durations_s))
    return replace(plan, rails=tuple(rails)), Graph(nodes, pauses.last, tuple(begins))


def _time_parts(
    whole_s: NDArray[np.float64], pauses: Pauses
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how long parts last, in seconds: by event its first part, by cut the part behind it.

    ``whole_s[event]`` is how long an event lasts without its pauses. Its first part lasts up to
    its first cut, each further part from its cut to the next one, and the last part up to share 1:
    an event of 10 s with cuts at the shares 0.4 and 0.7 has parts of 4, 3 and 3 s.
    """
    first_s = whole_s.copy()
    is_first = pauses.part == 0
    first_s[pauses.event[is_first]] *= pauses.share[is_first]

    # Cuts of an event stand one after another. ``next_share[cut]`` is where the part behind a cut
    # ends: at the cut after it if that is one of the same event, which is not its first one.
    next_share = np.ones(len(pauses.share))
    goes_on = pauses.part[1:] > 0
    next_share[:-1][goes_on] = pauses.share[1:][goes_on]
    return first_s, whole_s[pauses.event] * (next_share - pauses.share)


def check_triggers(job: RailJob, plan: TriggerPlan) -> Graph:
    """Check that the tables of a plan are those that follow from its order, and return its graph.

    Raises `InputError` naming the first row that is absent, or that does not follow.
    """
    linked, graph = link_triggers(job, plan)
    for number, (stated, right) in enumerate(zip(plan.rails, linked.rails, strict=True)):
        for name in ("needs", "after", "wanted"):
            _compare(f"/rails/{number}/{name}", getattr(stated, name), getattr(right, name))
    return graph


def _compare(where: str, stated: NDArray[np.int32], right: NDArray[np.int32]) -> None:
    """Raise `InputError` if a table of whole numbers, called `where`, has other rows than `right`.

    The first row that is missing is named, else the first one too many. A row twice, or rows in
    another order, are no error.
    """
    if np.array_equal(stated, right):
        return
    stated_rows = set(map(tuple, stated.tolist()))
    right_rows = set(map(tuple, right.tolist()))
    for row in sorted(right_rows - stated_rows)[:1]:
        raise InputError(f"lacks {list(row)}, which follows from the order", where=where)
    for row in sorted(stated_rows - right_rows)[:1]:
        raise InputError(f"{list(row)} does not follow from the order", where=where)


def _check_shape(job: RailJob, plan: TriggerPlan) -> None:
    """Raise `InputError` at the first entry of a plan that does not fit the job, by these rules.

    - Rails are pooled only in jobs that allow it, and then no communication pauses.
    - The plan names the groups of the job, and has a place for each of its operations.
    - Each rail of the job is there, with its ranks and the ports of its switch.
    - All ranks of a communication have it at one place, and no two things share a place.
    - Relays name operations and ranks of the job.

    The tables of triggers are compared elsewhere (`check_triggers`).
    """
    # Data change rail only where the job says how long that takes, on ideal switches.
    step = job.step()
    events = job.events()
    is_recorded = job.workload.recorded is not None
    stays_on_rail = job.network.change_rail_s is None or job.fabric is not None or is_recorded
    if plan.pooled and stays_on_rail:
        raise InputError(
            "pooled: data change rail in jobs of a model with network.change_rail_s and ideal"
            " switches alone",
            where="pooled",
        )
    if plan.pooled and len(plan.pauses):
        raise InputError(
            "pauses: a communication over several rails has no state of one rail to wait for",
            where="pauses",
        )

    # The groups of the job, and a place for each of its operations.
    names = tuple(group.name for group in step.groups)
    if plan.groups != names or len(plan.place) != step.n_operations:
        raise InputError(
            f"a plan of {len(plan.groups)} groups and {len(plan.place)} operations: the job has"
            f" {len(names)} and {step.n_operations}, or groups of other names",
            where="groups",
        )

    # Each rail has the ranks of the job on it, and as many ports as its switch.
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

    # All ranks of a communication do it at one place, and no two things have the same place. The
    # operations ``events.part`` are the first one of each event, which stands for all of them.
    refuse_entries(
        "place",
        plan.place != plan.place[events.part][events.event_of],
        lambda k: f" = {plan.place[k]}: not that of the other ranks of its communication",
    )
    places = np.concatenate([plan.place[events.part], *(rail.place for rail in plan.rails)])
    places.sort()
    for repeated in places[1:][np.diff(places) == 0][:1]:
        raise InputError(f"place: {repeated} is there twice", where="place")

    # Relays name operations and ranks that exist. The limits are those of the three columns.
    rows = plan.relays
    refuse_entries(
        "relays",
        (rows >= (step.n_operations, step.n_ranks, 2**31)).any(axis=1),
        lambda row: f" = {rows[row].tolist()}: no operation or rank of the job",
    )


def _list_pauses(job: RailJob, plan: TriggerPlan, find: Finder) -> Pauses:
    """List the cuts of all events that pause, and the triggers that they wait for.

    Rows of ``plan.pauses`` are rank, group, number and state, and ``plan.shares`` has an entry for
    each; state k + 1 is that after trigger k. Raises `InputError` for a state that the rail of the
    operation does not have. Rows of event 7 with the shares 1/3, 2/3 and 1/3 make two cuts.
    """
    # By row of pauses its operation, its rail and its trigger. States of a rail are counted by its
    # triggers; an operation inside a server has none.
    operations = find(plan.pauses, "pauses")
    rail_of_row = job.step().rail[operations].astype(np.int64)
    trigger = plan.pauses[:, -1].astype(np.int64) - 1
    n_triggers = np.zeros(len(trigger), np.int64)
    for rail in plan.rails:
        n_triggers[rail_of_row == rail.rail] = len(rail.place)
    refuse_entries(
        "pauses",
        (trigger < 0) | (trigger >= n_triggers),
        lambda row: f": state {trigger[row] + 1}, the rail has 1 to {n_triggers[row]}",
    )

    # Rows of one event with one share are one cut. Cuts are sorted by event, then by share, and
    # parts of an event count from its first cut: with cuts of the events 2, 7, 7 and 9 the parts
    # that end there are 0, 0, 1 and 0.
    event_of_row = job.events().event_of[operations]
    cuts, cut_of_row = np.unique(
        np.stack([event_of_row, plan.shares], axis=1), axis=0, return_inverse=True
    )
    event = cuts[:, 0].astype(np.int64)
    part = np.arange(len(event)) - np.searchsorted(event, event)
    n_events = len(job.events().part)
    after = n_events + np.arange(len(event))
    last = np.arange(n_events)
    last[event] = after  # of several cuts of an event the last one is kept
    return Pauses(
        event=event,
        share=cuts[:, 1],
        part=part,
        before=np.where(part == 0, event, after - 1),
        after=after,
        rail=rail_of_row,
        trigger=trigger,
        cut=cut_of_row.reshape(-1),
        last=last,
    )


def _link_rail(
    job: RailJob,
    plan: TriggerPlan,
    find: Finder,
    pauses: Pauses,
    rail: RailTriggers,
    begin: Ints,
    pairs: list[NDArray[np.int32]],
) -> RailTriggers:
    """Add the pairs of nodes that follow from the use of circuits on a rail, and fill its tables.

    Trigger k is the nodes ``begin[k]``, of no time, and ``begin[k] + 1``, its delay. Appends
    arrays of the shape (2, pairs) to `pairs`: a first node that has to end before the second
    starts. Returns a copy of the rail with new tables `needs`, `after` and `wanted`, whose columns
    `RailTriggers` describes.
    """
    # `table` has all sends (operations) and triggers at each port, in the order of the plan. Its
    # pairs are (last earlier item, later item, steps between: 0 or 1), one array for each of the
    # three; the last is `ago`, 1 if the earlier item is one of the step before. An operation is a
    # part of an event, and `Pauses` tells how events are cut into nodes.
    event_of = job.events().event_of
    uses = list_uses(job, rail, plan.ports, plan.relays, pooled=plan.pooled)
    table = _tabulate_ports(job, plan, rail, uses)

    # ``cut_of[event, trigger]``: the cut at which an event on this rail pauses for a trigger.
    rows = np.flatnonzero(pauses.rail == rail.rail)
    events = pauses.event[pauses.cut[rows]].tolist()
    pairs_of_rows = zip(events, pauses.trigger[rows].tolist(), strict=True)
    cut_of = dict(zip(pairs_of_rows, pauses.cut[rows].tolist(), strict=True))

    # 1. Sends of each port follow one after the other.
    send_before, send_after, ago = table.pair(use=True, after_use=True)
    pairs.append(_pair_nodes(pauses.last[event_of[send_before]], event_of[send_after], ago))

    # 2. A trigger waits for the last part of each send before it, unless the communication pauses
    # for just this trigger: then for the part up to this pause. If an event pauses at cut 0 for
    # trigger 4 and at cut 1 for trigger 6, these two triggers wait for its parts 0 and 1, and all
    # other triggers for part 2.
    send, trigger, ago = table.pair(use=True, after_use=False)
    send_event = event_of[send]
    node = pauses.last[send_event]
    n_cuts = np.bincount(pauses.event, minlength=len(pauses.last))
    part = n_cuts[send_event]  # the last part: an event with 2 cuts has the parts 0, 1 and 2
    for (event, paused_for), cut in cut_of.items():
        is_cut = (send_event == event) & (trigger == paused_for)
        node[is_cut] = pauses.before[cut]
        part[is_cut] = pauses.part[cut]
    pairs.append(_pair_nodes(node, begin[trigger], ago))
    after = find.name(send, part, ago, trigger)

    # 3. Nothing is sent before its circuits are up, which is when the second node of the trigger
    # ends. Part 0 waits for the triggers before it.
    trigger, send, ago = table.pair(use=False, after_use=True)
    needs = [find.name(send, 0, trigger + 1, ago)]
    pairs.append(_pair_nodes(begin[trigger] + 1, event_of[send], ago))

    # Further parts wait for the triggers of their pauses: in `needs` each operation of the event
    # that sends over a port of such a trigger, in the graph the part behind the cut.
    trigger_of_change, changed_port = list_interruptions(job, rail)
    for (event, paused_for), cut in cut_of.items():
        own_uses = np.flatnonzero(event_of[uses.operation] == event)
        is_changed = np.isin(uses.port[own_uses], changed_port[trigger_of_change == paused_for])
        operations = uses.operation[own_uses[is_changed]]
        if len(operations):
            needs.append(find.name(operations, pauses.part[cut] + 1, paused_for + 1, 0))
            pairs.append(_pair_nodes(begin[[paused_for]] + 1, pauses.after[[cut]]))

    # 4. Triggers with a port in common keep their order: one begins after the other has begun, its
    # first node, or on a switch that stops as a whole after the other is up, its second node.
    earlier, later, ago = list_followers(job, rail).T
    earlier_node = begin[earlier]
    if job.network.switching == "all-stop":
        earlier_node += 1
    pairs.append(_pair_nodes(earlier_node, begin[later], ago))
    pairs.append(_pair_nodes(begin, begin + 1))

    # Without triggers on demand the table `wanted` is empty.
    linked = replace(rail, needs=np.concatenate(needs), after=after, wanted=rail.wanted[:0])
    if not len(rail.wanted):
        return linked

    # 5. ``users[trigger]`` is the first operation over its new circuits, -1 for none. A trigger on
    # demand waits for all that this operation waits for. The last column of `wanted` is the
    # trigger.
    users = find_first_users(linked, plan.place, find)
    demanded = np.unique(rail.wanted[:, -1])
    demanded = demanded[users[demanded] >= 0]

    # Each row of `row` and `causes` is one thing that a first user waits for: the event before in
    # pair ``causes[k]`` of the job. Trigger ``demanded[row[k]]`` waits for its last part, too.
    row, causes = find_matches(job.events().after, event_of[users[demanded]])
    pairs.append(_pair_nodes(pauses.last[job.events().before[causes]], begin[demanded[row]]))
    return replace(linked, wanted=list_wanted(job, demanded, users, find))


def _tabulate_ports(job: RailJob, plan: TriggerPlan, rail: RailTriggers, uses: Use) -> Ports:
    """List sends and triggers at each port, in the order of the plan.

    With pooled rails the GPUs of a server send over equal shares of each port, one share for each
    rail, and each share counts as a port of its own. Changes of ports over which nobody sends are
    left out.
    """
    trigger, changed_port = list_interruptions(job, rail)
    used_port = uses.port
    if plan.pooled:
        # With 8 rails, share 3 of port 5 is listed as port 5 * 8 + 3 = 43. The share that a GPU
        # uses is the number of its own rail.
        rails_of_job = np.sort([each_rail.rail for each_rail in plan.rails])
        n_shares = len(rails_of_job)
        share = np.searchsorted(rails_of_job, job.step().rail[uses.operation])
        used_port = uses.port * n_shares + share
        all_shares = np.tile(np.arange(n_shares), len(changed_port))
        changed_port = np.repeat(changed_port * n_shares, n_shares) + all_shares
        trigger = np.repeat(trigger, n_shares)

    # Sends, then changes, sorted by port and place: an entry of `order` below `len(used_port)` is
    # a send.
    is_used = np.isin(changed_port, used_port)
    trigger = trigger[is_used]
    ports = np.concatenate([used_port, changed_port[is_used]])
    items = np.concatenate([uses.operation, trigger])
    places = np.concatenate([plan.place[uses.operation], rail.place[trigger]])
    order = np.lexsort((places, ports))
    return Ports(ports[order], order < len(used_port), items[order])


def list_wanted(
    job: RailJob, demanded: NDArray[Any], users: Ints, find: Finder
) -> NDArray[np.int32]:
    """List the rows of `wanted` for some triggers.

    They name the first communication over the new circuits of a trigger, a row for each of its
    ranks. `demanded` are the numbers of the triggers, and ``users[trigger]`` is the operation that
    uses its new circuits first.
    """
    # Event ``event_of[operation]`` is the communication to which an operation of one rank belongs.
    # Operation ``operations[k]`` belongs to that of the first user of ``demanded[row[k]]``.
    event_of = job.events().event_of
    row, operations = find_matches(event_of, event_of[users[demanded]])
    return find.name(operations, demanded[row])


def list_followers(job: RailJob, rail: RailTriggers) -> Ints:
    """List pairs of triggers that follow each other at some port; shape (pairs, 3).

    Rows are (earlier, later, steps between: 0, or 1 from the last trigger of a port to its first
    one of the next step). All triggers follow each other if the switch changes as a whole: of
    triggers 0, 1, 2 the rows are (2, 0, 1), (0, 1, 0) and (1, 2, 0).
    """
    number = np.arange(len(rail.place))
    if job.fabric is not None or job.network.switching == "all-stop":
        return np.stack([np.roll(number, 1), number, number == 0], axis=1)
    trigger, sends, old, new = rail.turns()

    # A trigger concerns the transmit port of each change and its receive ports before and after.
    # Transmit port p gets the number 2 p, and receive port p the number 2 p + 1. Pairs of such a
    # number and a trigger are packed into one integer, sorted, and unpacked again: with n = 10
    # triggers, that trigger 4 concerns the number 7 is 74.
    ports = np.concatenate([2 * sends, 2 * old + 1, 2 * new + 1])  # a dark port is -1
    n = len(number)
    keys = np.unique(ports.astype(np.int64) * n + np.tile(trigger, 3))
    port, later = np.divmod(keys, max(n, 1))
    table = Ports(port, np.zeros(len(port), dtype=bool), later)
    earlier, later, ago = table.pair(use=False, after_use=False)

    # A pair may occur at several ports: each is kept once, as ``(earlier * n + later) * 2 + ago``.
    pair, ago = np.divmod(np.unique((earlier * n + later) * 2 + ago), 2)
    return np.stack([*np.divmod(pair, max(n, 1)), ago], axis=1)


def retime(job: RailJob, graph: Graph, plan: TriggerPlan) -> RailPlan:
    """Work out the times of a plan anew, from its order alone, as longest paths.

    Everything starts as early as the order allows. `graph` is that of the plan, as `link_triggers`
    builds it.
    """
    # The longest path to each node gives its end, in seconds from the beginning of the step.
    events = job.events()
    end_s = ends_s(graph.events)
    start_s = end_s - graph.events.duration_s
    rails = [
        _retime_rail(rail, start_s[list(begins)])
        for rail, begins in zip(plan.rails, graph.begins, strict=True)
    ]

    # An operation starts with the first part of its event and ends with the last one.
    operation_start_s = start_s[events.event_of]
    operation_end_s = end_s[graph.last[events.event_of]]
    return RailPlan(
        rails=tuple(rails),
        start_s=operation_start_s,
        end_s=operation_end_s,
        ports=plan.ports,
        relays=plan.relays,
        chords=plan.chords,
        pooled=plan.pooled,
        step_s=find_step_end(rails, operation_end_s, job.network.delay_s),
    )


def _retime_rail(rail: RailTriggers, trigger_s: NDArray[np.float64]) -> RailTimeline:
    """List the states of a rail, given when each of its triggers begins.

    ``trigger_s[trigger]`` is in seconds. Triggers that begin at the same time make one state. Each
    state is asked for when it starts.
    """
    order = np.argsort(trigger_s, kind="stable")
    matchings = [rail.circuits]
    changes = rail.split(rail.changes)
    for trigger in order.tolist():
        matching = matchings[-1].copy()
        sends, receives, _ = changes[trigger].T
        matching[sends] = receives
        matchings.append(matching)

    # Of triggers at the same time the last one makes the state. Row s of ``rail.cell_states`` is
    # the state after the first s triggers.
    is_state = np.append(True, np.diff(trigger_s[order], append=np.inf) > 0)
    starts_s = np.append(0.0, trigger_s[order])[is_state]
    cell_states = rail.cell_states
    if cell_states is not None:
        cell_states = cell_states[np.append(0, order + 1)[is_state]]
    return RailTimeline(
        rails=(rail.rail,),
        matchings=np.array(matchings)[is_state],
        cell_states=cell_states,
        asked_s=starts_s,
        starts_s=starts_s,
    )

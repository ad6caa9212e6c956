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

        Parameters
        ----------
        event, part
            Numbers of events, and numbers of their parts, from 0: integers, or integer arrays that
            are broadcast together. An event is a computation, or a communication of several ranks
            as one; one that pauses has several parts.

        Returns
        -------
        integer array, of the shape that both have together
            The nodes of the graph that stand for these parts. Part 0 has the number of its event.
        """
        nodes: Ints = np.where(np.equal(part, 0), event, self.further[event] + part - 1)
        return nodes

    def of(self, event: int) -> list[int]:
        """List the nodes of an event, one for each of its parts, in their order.

        Parameters
        ----------
        event
            The number of the event: a computation, or a communication of several ranks as one.
        """
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
        in_this_step = self.ago == 0
        return self.events._replace(
            before=self.events.before[in_this_step], after=self.events.after[in_this_step]
        )


class _NodePairs:
    """Pairs of nodes of a graph, of which the first has to be over before the second starts."""

    def __init__(self) -> None:
        self._columns: list[tuple[Ints, Ints, NDArray[np.int8], NDArray[np.bool_]]] = []

    def add(self, before: Any, after: Any, *, ago: Any = 0, local: bool) -> None:
        """Add pairs.

        Parameters
        ----------
        before, after
            The nodes, shape (pairs,).
        ago
            1 where the first of a pair is in the step before, else 0; by pair, or one for all.
        local
            Whether ranks know it themselves, and no controller is asked.
        """
        n_pairs = len(before)
        self._columns.append(
            (
                np.asarray(before),
                np.asarray(after),
                np.broadcast_to(np.asarray(ago, np.int8), n_pairs),
                np.full(n_pairs, local),
            )
        )

    def take(self) -> tuple[NDArray[np.int32], NDArray[np.int32], Any, Any]:
        """Return all pairs that were added, as four columns, and forget them.

        They are forgotten since lists of pairs of large jobs have several hundred megabytes.

        Returns
        -------
        before, after : int32 arrays, shape (pairs,)
            The first node of each pair has to be over before the second one starts.
        ago : int8 array, shape (pairs,)
            1 where the first node is in the step before, else 0.
        local : bool array, shape (pairs,)
            Whether ranks know that the first is over, and no controller is asked.
        """
        before, after = (
            np.concatenate(
                [columns[side] for columns in self._columns], dtype=np.int32, casting="unsafe"
            )
            for side in (0, 1)
        )
        ago = np.concatenate([columns[2] for columns in self._columns])
        local = np.concatenate([columns[3] for columns in self._columns])
        self._columns.clear()
        return before, after, ago, local


Paused = Mapping[int, Mapping[float, Sequence[int]]]
"""``paused[event][share]``: the states of its rail that an event waits for when this share of it
is over. Events and shares ascend; those that do not pause are left out."""


class _Linking(NamedTuple):
    """The things that all rails of a plan have in common while it is linked."""

    job: RailJob
    plan: TriggerPlan
    find: Finder
    """Finds the operations that rows name, and names them."""
    parts: Parts
    """The nodes of all parts of each event."""
    last: Ints
    """``last[event]``: the node of its last part."""
    paused: Paused


def link(job: RailJob, plan: TriggerPlan, find: Finder | None = None) -> tuple[TriggerPlan, Graph]:
    """Find from the order of a plan what waits for what, as a graph.

    A plan says in which order everything happens: computations, communications, and changes of
    circuits, which are called triggers. A trigger, for example, has to wait for the communications
    before it in the order that use the old circuits, and those after it wait for the trigger.

    The nodes of the graph are numbered in this order:

    1. the events of the job: computations, and communications of several ranks as one;
    2. further parts of events that pause for triggers while they are under way. The event itself
       is the first part;
    3. for each trigger a node at which the change begins, and one that lasts until it is up.

    Time O(operations log operations).

    Parameters
    ----------
    job
        The job of the plan.
    plan
        The order (`place` of operations and triggers), the ports of each operation, which circuits
        each trigger changes, and pauses. The table `wanted` of a rail is read for which triggers
        are set on demand; its tables `after` and `needs` are not read.
    find
        Finds operations by rank, group and number; made here if it is None.

    Returns
    -------
    plan : TriggerPlan
        The plan with the tables `after`, `wanted` and `needs` of each rail that follow from its
        order: what a trigger waits for, what has to be ready for a trigger on demand, and which
        triggers an operation waits for.
    graph : Graph
        - `events`: durations of nodes in seconds, and pairs of nodes of which the first is over
          before the second starts;
        - `ago`, by pair: 1 if the first is in the step before, else 0;
        - `local`, by pair: whether ranks know it without a controller;
        - `place`, by node: its number in the order of the plan;
        - `parts`: the nodes of each event;
        - `begins`: the first node of each trigger of each rail;
        - `uses`: the sends over the ports of each rail;
        - `find`: as above.

    Raises
    ------
    InputError
        If the plan is of another job, two things have one place, or an operation comes before
        what it has to wait for.
    """
    events = job.events()
    if find is None:
        find = Finder(job.step())
    _check_shape(job, plan)

    # The nodes of events and of their further parts, and the pairs that hold for any circuits: an
    # event waits for the last part of another one, and each part for the part before it.
    paused = _number_parts(job, plan, find)
    parts, places, durations_s = _cut_events(job, plan, paused)
    n_nodes = sum(map(len, places))
    linking = _Linking(job, plan, find, parts, parts.last, paused)
    pairs = _NodePairs()
    pairs.add(linking.last[events.before], events.after, local=True)
    chained = [pair for event in paused for pair in pairwise(parts.of(event))]
    chains = np.array(chained, np.int64).reshape(-1, 2)
    pairs.add(chains[:, 0], chains[:, 1], local=True)

    # Trigger k of a rail gets the nodes `begin[k]`, which takes no time, and `begin[k] + 1`, which
    # lasts as long as its ports are dark. Both have the place of the trigger. `_link_rail` adds
    # the pairs that follow from the use of circuits.
    rails = []
    begins = []
    uses_of_rails = []
    for rail in plan.rails:
        n_triggers = len(rail.place)
        begin = n_nodes + 2 * np.arange(n_triggers)
        n_nodes += 2 * n_triggers
        places.append(np.repeat(rail.place, 2))
        durations_s.append(np.tile([0.0, job.network.delay_s], n_triggers))
        uses = list_uses(job, rail, plan.ports, plan.relays, pooled=plan.pooled)
        rails.append(_link_rail(linking, rail, uses, begin, pairs))
        begins.append(tuple(begin.tolist()))
        uses_of_rails.append(uses)

    # Within a step the first of each pair has to stand before the second in the order of the plan:
    # the graph then has no cycle.
    before, after, ago, local = pairs.take()
    place = np.concatenate(places)
    wrong = np.flatnonzero(place[before] > place[after])
    for bad in wrong[ago[wrong] == 0][:1]:
        raise InputError(
            f"place: {place[after[bad]]} stands before {place[before[bad]]}, which has to be over"
            " then",
            where="place",
        )

    # Only the nodes that are events themselves have a first operation.
    part = np.concatenate([events.part, np.full(n_nodes - len(events.part), -1)])
    nodes = Events(events.event_of, part, before, after, np.concatenate(durations_s))
    graph = Graph(nodes, ago, local, place, parts, tuple(begins), tuple(uses_of_rails), find)
    return replace(plan, rails=tuple(rails)), graph


def _cut_events(
    job: RailJob, plan: TriggerPlan, paused: Paused
) -> tuple[Parts, list[NDArray[np.int32]], list[NDArray[np.float64]]]:
    """Cut communications that pause for changes of circuits into parts, each with its own node.

    A communication of 10 s that pauses when 0.2 of it is over, and again when 0.7 of it is, has
    parts of 2 s, 5 s and 3 s. Computations and communications (of several ranks as one) are called
    events, and changes of circuits triggers. The first part of an event is the node of the event
    itself; further parts are new nodes, numbered from the number of events on. Every node has a
    place, its number in the order of the plan: a further part has the place of the last trigger
    that it waits for.

    Parameters
    ----------
    job, plan
        The job, and its plan of triggers, with the place of each operation and each trigger and
        the seconds that each operation lasts.
    paused
        ``paused[event][share]``: the states of the rail that the event waits for when this share
        of it is over, from 0 to 1. Trigger k leads to state k + 1. Events and shares ascend; an
        event that does not pause is not there.

    Returns
    -------
    parts : Parts
        ``parts.number[event]``, how many nodes each event has, and ``parts.further[event]``, the
        node of its second part.
    places : list of int32 arrays
        The places of all nodes, in pieces: first those of the events, shape (events,), then for
        each event that pauses those of its further parts.
    durations_s : list of float64 arrays
        How long the nodes last, in seconds, in the same pieces.
    """
    # At first each event has one part. ``events.part[event]`` is one operation of the event.
    step = job.step()
    events = job.events()
    n_events = len(events.part)
    n_nodes = n_events
    parts = Parts(np.ones(n_events, np.int32), np.zeros(n_events, np.int32))
    places = [plan.place[events.part]]
    durations_s = [plan.lasts_s[events.part]]
    for event, states_of_share in paused.items():
        parts.number[event] = 1 + len(states_of_share)
        parts.further[event] = n_nodes
        n_nodes += len(states_of_share)

        # The event itself lasts up to the first share, and each further part from its share to
        # the next one, the last part up to 1. State s is reached by trigger s - 1.
        total_s = durations_s[0][event]
        durations_s[0][event] *= min(states_of_share)
        durations_s.append(total_s * np.diff([*states_of_share, 1.0]))
        rail = _rail_of(plan, step, int(events.part[event]))
        last_triggers = [
            max(rail.place[state - 1] for state in states) for states in states_of_share.values()
        ]
        places.append(np.array(last_triggers, np.int32))
    return parts, places, durations_s


def check_triggers(job: RailJob, plan: TriggerPlan) -> Graph:
    """Check the tables of a plan that say what waits for what, and return its graph.

    Each rail of a plan has three tables, which follow from the order of its operations and of its
    changes of circuits, called triggers:

    - `needs`: which triggers a send waits for;
    - `after`: which sends a trigger waits for;
    - `wanted`: which operations have to be ready for a trigger that is set on demand.

    They are derived once more and compared.

    Parameters
    ----------
    job
        The job.
    plan
        Its plan of triggers: by operation and by trigger the place in one total order, which
        circuits each trigger changes, and where communications pause for triggers.

    Returns
    -------
    Graph
        What waits for what: nodes (parts of computations and communications, and the beginning
        and the end of each trigger) with durations in seconds, and pairs of nodes of which one
        waits for the other.

    Raises
    ------
    InputError
        If the plan is of another job or its order cannot be kept, or naming the first row of
        `needs`, `after` or `wanted` that is missing, or does not follow from the order.
    """
    linked, graph = link(job, plan)
    for number, (stated, right) in enumerate(zip(plan.rails, linked.rails, strict=True)):
        for name in ("needs", "after", "wanted"):
            _compare(f"/rails/{number}/{name}", getattr(stated, name), getattr(right, name))
    return graph


def _compare(where: str, stated: NDArray[np.int32], right: NDArray[np.int32]) -> None:
    """Refuse a table of a plan that is not the one that follows from the order of the plan.

    Parameters
    ----------
    where
        The JSON pointer to the table, such as ``"/rails/0/needs"``, for the message.
    stated, right
        The table that the plan states, and the one that follows from its order; both sorted,
        int32, shape (rows, columns).

    Raises
    ------
    InputError
        Naming the first row that is missing, or one that does not belong there.
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
    """Refuse a plan that does not fit the job, or in which two things have the same number.

    A plan numbers all operations and all changes of circuits (triggers) in one order; the number
    is called a place. All ranks of a communication have the same place. A row of `plan.relays`
    has three columns: an operation, a rank that forwards its data, and the ports as bits.

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
    # The plan names the groups of the job, and has a place for each of its operations.
    step = job.step()
    events = job.events()
    if plan.pooled:
        _check_pooled(job, plan)
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
    for wrong in np.flatnonzero(plan.place != plan.place[events.part][events.event_of])[:1]:
        raise InputError(
            f"place[{wrong}] = {plan.place[wrong]}: not that of the other ranks of its"
            " communication",
            where=f"place[{wrong}]",
        )
    places = np.concatenate([plan.place[events.part], *(rail.place for rail in plan.rails)])
    places.sort()
    for repeated in places[1:][np.diff(places) == 0][:1]:
        raise InputError(f"place: {repeated} is there twice", where="place")

    # Relays name operations and ranks that exist. The limits are those of the three columns.
    rows = plan.relays
    for row in np.flatnonzero((rows >= (step.n_operations, step.n_ranks, 2**31)).any(axis=1))[:1]:
        raise InputError(
            f"relays[{row}] = {rows[row].tolist()}: no operation or rank of the job",
            where=f"relays[{row}]",
        )


def _check_pooled(job: RailJob, plan: TriggerPlan) -> None:
    """Refuse a plan in which data change rail inside servers, where the job does not let them.

    The circuits of such a plan stay while a communication is under way: it has no pauses, which
    are moments at which a communication stops for a change of circuits.

    Parameters
    ----------
    job
        The job. It lets data change rail if its network states what that costs
        (`network.change_rail_s`), it is derived from a model, not from a recorded step, and its
        switches are ideal, not a fabric of cells.
    plan
        A plan of triggers with pooled rails.

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
    job
        The job.
    plan
        Its plan of triggers: by operation and by trigger the place in one total order, which
        circuits each trigger changes, and where communications pause for triggers.
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
    paused: dict[int, dict[float, list[int]]] = {}
    step = job.step()
    event_of = job.events().event_of
    operations = find(plan.pauses, "pauses")
    rows = zip(operations.tolist(), plan.pauses[:, 3].tolist(), plan.shares.tolist(), strict=True)
    for row, (operation, state, share) in enumerate(rows):
        # States of a rail are counted by its triggers; an operation inside a server has none.
        n_triggers = 0
        if step.rail[operation] >= 0:
            n_triggers = len(_rail_of(plan, step, operation).place)
        if not 1 <= state <= n_triggers:
            raise InputError(
                f"pauses[{row}]: state {state}, the rail has 1 to {n_triggers}",
                where=f"pauses[{row}]",
            )
        paused.setdefault(int(event_of[operation]), {}).setdefault(share, []).append(state)
    return {event: dict(sorted(shares.items())) for event, shares in sorted(paused.items())}


def _link_rail(
    linking: _Linking, rail: RailTriggers, uses: Use, begin: Ints, pairs: _NodePairs
) -> RailTriggers:
    """List for one rail what waits for what because it uses the same circuits.

    A rail is a switch; a change of its circuits is called a *trigger*. All that happens is laid
    out as a graph. Its nodes are computations, communications, and two for each trigger: the first
    one begins the change, and the second one lasts until the new circuits are up. A pair of nodes
    says that the second waits for the first. These pairs are added, as numbered in the body:

    1. sends over one port follow each other;
    2. a trigger begins when the sends over its old circuits are over;
    3. a send over the new circuits starts when the trigger is up;
    4. two triggers with a port in common keep their order;
    5. a trigger *on demand* also waits until the first operation over its new circuits is ready.

    A communication may pause for a trigger while it is under way. It then has several nodes, one
    for each part between pauses, and 2 and 3 hold for the parts before and after the pause.

    Parameters
    ----------
    linking
        Facts about all rails together. The fields that are read here:

        - ``job``, ``plan``: the job, and the plan of all rails;
        - ``find``: names operations in the tables of the result;
        - ``parts``: the nodes of each event (a computation, or a communication of several ranks);
        - ``last[event]``: the node of the last part of an event;
        - ``paused``: which events pause for which triggers.
    rail
        The triggers of this rail.
    uses
        The sends over its transmit ports: an entry for each operation and port.
    begin
        ``begin[trigger]``: the first of the two nodes of a trigger; int64, shape (triggers,).
    pairs
        Gets the pairs. A pair has `ago` = 1 if its first node is in the step before, and is
        `local` if ranks know by themselves that it is over.

    Returns
    -------
    RailTriggers
        The rail with three tables. The first three columns of each name an operation by rank,
        group and number in the group. The other columns are

        - of `needs`: the part of the operation, the state of the rail that it waits for (trigger k
          leads to state k + 1), and `ago`;
        - of `after`: the part of the operation, `ago`, and the trigger that waits for it;
        - of `wanted`: the trigger on demand that waits until the operation is ready.
    """
    # `table` has all sends and triggers at each port, in the order of the plan.
    job = linking.job
    find = linking.find
    event_of = job.events().event_of
    table = _tabulate_ports(linking, rail, uses)

    # 1. Sends of each port follow one after the other.
    send_before, send_after, ago = table.pair(use=True, after_use=True)
    pairs.add(linking.last[event_of[send_before]], event_of[send_after], ago=ago, local=True)

    # 2. A trigger waits for the last part of each send before it, unless the communication pauses
    # for just this trigger: then for the part up to this pause. Parts are numbered from 0.
    send, trigger, ago = table.pair(use=True, after_use=False)
    part_of_cut = _number_cuts(linking.paused)
    part = linking.parts.number[event_of[send]] - 1
    if part_of_cut:
        # If an event pauses after part 0 for trigger 4 and after part 1 for trigger 6, these two
        # triggers wait for part 0 and part 1, and all other triggers for part 2.
        rows = zip(event_of[send].tolist(), trigger.tolist(), part.tolist(), strict=True)
        part = np.array(
            [part_of_cut.get((event, k), last_part) for event, k, last_part in rows], np.int64
        )
    pairs.add(linking.parts.node(event_of[send], part), begin[trigger], ago=ago, local=False)
    after = find.name(send, part, ago, trigger)

    # 3. Nothing is sent before its circuits are up, which is when the second node of the trigger
    # ends. Part 0 waits for the triggers before it, further parts for those of their pauses.
    trigger, send, ago = table.pair(use=False, after_use=True)
    needs = [find.name(send, 0, trigger + 1, ago)]
    pairs.add(begin[trigger] + 1, event_of[send], ago=ago, local=False)
    needs += _link_cuts(linking, rail, uses, begin, pairs)

    # 4. Triggers with a port in common keep their order: one begins after the other has begun or,
    # on a switch that stops as a whole, after the other is up.
    followers = list_followers(job, rail)
    waits_until_up = job.network.switching == "all-stop"
    pairs.add(
        begin[followers[:, 0]] + waits_until_up,
        begin[followers[:, 1]],
        ago=followers[:, 2],
        local=False,
    )
    pairs.add(begin, begin + 1, local=False)
    linked = replace(rail, needs=np.concatenate(needs), after=after, wanted=rail.wanted[:0])
    if not len(rail.wanted):
        return linked

    # 5. ``users[trigger]`` is the first operation over its new circuits, -1 for none. A trigger on
    # demand waits for all that this operation waits for.
    users = first_users(linked, linking.plan.place, find)
    demanded = np.unique(rail.wanted[:, 3])
    demanded = demanded[users[demanded] >= 0]
    # Pair ``causes[k]`` of the job's events has as its second event that of the first user of
    # trigger ``demanded[row[k]]``: the trigger waits for its first event, too.
    row, causes = gather(job.events().after, event_of[users[demanded]])
    pairs.add(linking.last[job.events().before[causes]], begin[demanded[row]], local=False)
    return replace(linked, wanted=list_wanted(job, demanded, users, find))


def _tabulate_ports(linking: _Linking, rail: RailTriggers, uses: Use) -> Ports:
    """List what happens at each transmit port of a rail, in the order of the plan.

    Two things happen at a port: an operation sends over it, or its circuit changes (a *trigger*).

    With pooled rails all GPUs of a server may send over a port at once, each with an equal share
    of it. Each share is listed like a port of its own, so that the sends of different GPUs do not
    wait for each other. A trigger is listed for every share, as it has to wait for all of them.

    Parameters
    ----------
    linking
        The job and the plan.
    rail
        The triggers (changes of circuits) of this rail.
    uses
        The sends over its transmit ports: an entry for each operation and port.

    Returns
    -------
    Ports
        An entry for each send and each change at a port, sorted by port and then by the place in
        the order of the plan: the port, whether it is a send, and its operation or its trigger.
        Changes of ports that nothing is sent over are left out.
    """
    job = linking.job
    trigger, changed_port = touched(job, rail)
    used_port = uses.port
    if linking.plan.pooled:
        # With 8 rails, share 3 of port 5 is listed as port 5 * 8 + 3 = 43. The share that a GPU
        # uses is the number of its own rail.
        rails_of_job = np.sort([each_rail.rail for each_rail in linking.plan.rails])
        n_shares = len(rails_of_job)
        share = np.searchsorted(rails_of_job, job.step().rail[uses.operation])
        used_port = uses.port * n_shares + share
        all_shares = np.tile(np.arange(n_shares), len(changed_port))
        changed_port = np.repeat(changed_port * n_shares, n_shares) + all_shares
        trigger = np.repeat(trigger, n_shares)

    # Sorted by port and place. The entries before `len(used_port)` are sends.
    is_used = np.isin(changed_port, used_port)
    trigger = trigger[is_used]
    ports = np.concatenate([used_port, changed_port[is_used]])
    items = np.concatenate([uses.operation, trigger])
    places = np.concatenate([linking.plan.place[uses.operation], rail.place[trigger]])
    order = np.lexsort((places, ports))
    return Ports(ports[order], order < len(used_port), items[order])


def _number_cuts(paused: Paused) -> dict[tuple[int, int], int]:
    """Return by event and trigger the number of the part that ends there, from 0.

    An event (a computation, or a communication of several ranks as one) that pauses for triggers
    (changes of circuits) is cut into parts.

    Parameters
    ----------
    paused
        ``paused[event][share]``: the states that the event waits for when this share of it is
        over, from 0 to 1. Trigger k leads to state k + 1.

    Returns
    -------
    dict
        ``part_of_cut[event, trigger]``: the part after which the event waits for the trigger.
        Events that do not pause are left out.
    """
    part_of_cut = {}
    for event, states_of_share in paused.items():
        for part, states in enumerate(states_of_share.values()):
            for state in states:
                part_of_cut[event, state - 1] = part
    return part_of_cut


def _link_cuts(
    linking: _Linking, rail: RailTriggers, uses: Use, begin: Ints, pairs: _NodePairs
) -> list[NDArray[np.int32]]:
    """Let communications that have paused for a change of circuits go on only when it is made.

    Where the circuits of a communication change while it is under way, it is cut into two parts,
    and the second part waits for the new circuits. A change of circuits is called a trigger, and
    a communication of several ranks as one an event.

    Parameters
    ----------
    linking
        The job, the parts of its events, and which of them pause.
    rail
        The triggers of this rail.
    uses
        The sends over its transmit ports: an entry for each operation and port.
    begin
        ``begin[trigger]``: the node at which a trigger begins; it is up when the next node ends.
        int64, shape (triggers,).
    pairs
        The pairs of nodes of which one waits for the other; those of parts after a pause are
        added.

    Returns
    -------
    list of int32 arrays, shape (rows, 6)
        Further rows of the table `needs` of the rail: rank, group, number of the communication in
        the group from 1, the part that waits, from 0, the state of the rail that it waits for
        (trigger k leads to state k + 1), and 0 for the same step. Only ranks whose own circuits
        change at the pause have rows.
    """
    event_of = linking.job.events().event_of
    trigger_of_change, changed_port = touched(linking.job, rail)
    needs = []
    for (event, trigger), part in _number_cuts(linking.paused).items():
        # Only operations whose own ports the trigger changes wait for it. The trigger may also be
        # one of another rail with the same number: then the event has no uses here.
        own_uses = np.flatnonzero(event_of[uses.operation] == event)
        is_changed = np.isin(uses.port[own_uses], changed_port[trigger_of_change == trigger])
        operations = uses.operation[own_uses[is_changed]]
        if len(operations):
            needs.append(linking.find.name(operations, part + 1, trigger + 1, 0))
            node = linking.parts.node(event, np.array([part + 1]))
            pairs.add(begin[[trigger]] + 1, node, local=False)
    return needs


def list_wanted(
    job: RailJob, demanded: NDArray[Any], users: Ints, find: Finder
) -> NDArray[np.int32]:
    """List which ranks have to be ready before a change of circuits is made on demand.

    A change of circuits is called a trigger. One that is set on demand is not made before its
    first user, the first communication over its new circuits, is ready at all of its ranks. The
    result has a row for each of these ranks.

    Parameters
    ----------
    job
        The job; its events are computations, and communications of several ranks as one.
    demanded
        The triggers that are set on demand, ascending.
    users
        ``users[trigger]``: the first operation that needs the trigger in the same step, -1 for
        none; those of `demanded` have one.
    find
        Names operations by their rank, their group, and their number in it.

    Returns
    -------
    int32 array, shape (rows, 4)
        A row for each rank that takes part in the communication: the rank, the group, the number
        of the communication among those of the group at this rank, from 1, and the trigger.
    """
    # Event ``event_of[operation]`` is the communication to which an operation of one rank belongs.
    # Operation ``operations[k]`` belongs to that of the first user of ``demanded[row[k]]``.
    event_of = job.events().event_of
    row, operations = gather(event_of, event_of[users[demanded]])
    return find.name(operations, demanded[row])


def list_followers(job: RailJob, rail: RailTriggers) -> Ints:
    """List which changes of circuits have to keep their order, as they concern the same port.

    A change of circuits is called a trigger; they are numbered from 0. If the triggers 2, 5 and 7
    concern a port, 5 follows 2, 7 follows 5, and trigger 2 of the next step follows 7. On a
    fabric, and on a switch that stops as a whole, each trigger follows the one before it.

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
    # Transmit port p gets the number 2 p, and receive port p the number 2 p + 1. Pairs of such a
    # number and a trigger are packed into one integer, sorted, and unpacked again.
    ports = np.concatenate([2 * sends, 2 * old + 1, 2 * new + 1])  # a dark port is -1
    n = len(number)
    keys = _once(ports.astype(np.int64) * n + np.tile(trigger, 3))
    port, later = np.divmod(keys, max(n, 1))

    # At each port `earlier[row]` is the trigger before `later[row]`. The first trigger of a port
    # has its last one as predecessor, that of the step before.
    is_first = np.diff(port, prepend=-2) != 0
    earlier = np.roll(later, 1)
    earlier[is_first] = np.append(later[np.flatnonzero(is_first)[1:] - 1], later[-1:])

    # A pair may occur at several ports: each is kept once.
    pair, ago = np.divmod(_once((earlier * n + later) * 2 + is_first), 2)
    return np.stack([*np.divmod(pair, max(n, 1)), ago], axis=1)


def _once(keys: Ints) -> Ints:
    """Return each of some integers once, ascending; `np.unique` takes several times as long.

    `keys` is an int64 array of shape (n,), in any order.
    """
    keys = np.sort(keys)
    is_new = np.append(True, np.diff(keys) != 0)[: len(keys)]
    unique_keys: Ints = keys[is_new]
    return unique_keys


def retime(job: RailJob, graph: Graph, plan: TriggerPlan) -> RailPlan:
    """Return the times at which everything happens if nothing is late, for a plan without times.

    A plan of *triggers* (changes of circuits) says what waits for what, and no times. Here
    everything starts as early as what it waits for allows; the step before is taken to be over.

    Parameters
    ----------
    job
        The job of the plan.
    graph
        The graph of this plan. A node is an event (a computation, or a communication of several
        ranks as one), a further part of an event that pauses, the begin of a trigger, or its end.
        Pairs of nodes say which one waits for which. Two tables are read here:

        - ``begins[rail][trigger]``: the node at which a trigger begins;
        - ``parts.last[event]``: the node of the last part of an event.
    plan
        The plan of triggers that the graph was made of.

    Returns
    -------
    RailPlan
        The start and the end of each operation in seconds, and by rail its states of circuits and
        when they change, in the order of ``plan.rails``. A state is asked for when its change
        starts.
    """
    # The longest path to each node gives its end.
    events = job.events()
    end_s = ends_s(graph.one_step())
    start_s = end_s - graph.events.duration_s
    rails = [
        _retime_rail(rail, start_s[list(begins)])
        for rail, begins in zip(plan.rails, graph.begins, strict=True)
    ]

    # The step ends with the last operation, or when the last change of any rail is up.
    up_s = [
        float(timeline.starts_s[-1]) + job.network.delay_s
        for timeline in rails
        if timeline.n_reconfigurations
    ]

    # An operation starts with the first part of its event and ends with the last one.
    operation_start_s = start_s[events.event_of]
    operation_end_s = end_s[graph.parts.last[events.event_of]]
    return RailPlan(
        rails=tuple(rails),
        start_s=operation_start_s,
        end_s=operation_end_s,
        ports=plan.ports,
        relays=plan.relays,
        chords=plan.chords,
        pooled=plan.pooled,
        step_s=max(float(operation_end_s.max(initial=0.0)), *up_s, 0.0),
    )


def _retime_rail(rail: RailTriggers, trigger_s: NDArray[np.float64]) -> RailTimeline:
    """Return all circuits of a rail after each of its changes, in the order of time.

    A change of circuits is called a trigger, and all circuits at a time a state. Triggers at the
    same time make one state. State 0 is there when the step begins, and triggers at 0 s make a
    further state.

    Parameters
    ----------
    rail
        The triggers of the rail, with the circuits that the step begins with.
    trigger_s
        ``trigger_s[trigger]``: when each begins, in seconds from the beginning of the step;
        float64, shape (triggers,).

    Returns
    -------
    RailTimeline
        The states (`matchings[state, transmit port] = receive port`), when each is asked for and
        when its change starts, in seconds (both are the same), and the states of cells where the
        fabric has any.
    """
    # ``changes[trigger]`` has a row of transmit port and new receive port for each port.
    # `cell_rows` has the row of ``rail.cell_states`` of each state, that after its last trigger.
    matchings = [rail.circuits]
    starts_s = [0.0]
    cell_rows = [0]
    changes = rail.split(rail.changes)
    for trigger in np.argsort(trigger_s, kind="stable").tolist():
        matching = matchings[-1].copy()
        matching[changes[trigger][:, 0]] = changes[trigger][:, 1]

        # A trigger at the same time as the one before changes the same state further.
        if trigger_s[trigger] == starts_s[-1] and len(matchings) > 1:
            matchings[-1] = matching
            cell_rows[-1] = trigger + 1
        else:
            matchings.append(matching)
            starts_s.append(float(trigger_s[trigger]))
            cell_rows.append(trigger + 1)

    cell_states = None
    if rail.cell_states is not None:
        cell_states = rail.cell_states[cell_rows]
    return RailTimeline(
        rails=(rail.rail,),
        matchings=np.array(matchings),
        cell_states=cell_states,
        asked_s=np.array(starts_s),
        starts_s=np.array(starts_s),
    )

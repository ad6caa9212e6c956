"""The replay of collectives whose circuits change: in rounds of sends, and all-to-alls.

An all-to-all of more than two is done in one of three ways. *In rounds* each member meets all
others, one after the other or over several ports at once. *In stages* the circuits of all members
lead the same number of places further on, and parts take several hops. Otherwise it goes around a
ring that stays, which `optmatch.verify.rails.routes` checks.

The *place* of a rank is its position in ``group.ranks``, from 0. A *spell* is the time for which a
port keeps one circuit, or none; spells of a port have consecutive numbers in `Rail`. A *stride*
says how many places further on in the group a circuit leads, modulo the number of members. A
*stage* of an all-to-all is one spell of its ports, and a *part* is what one member sends to one
other. A *row* is the place of an operation in the list of operations that is checked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.verify.rails.circuits import Rail
from optmatch.verify.rails.context import Context, InRounds, Transfers, list_in_rounds
from optmatch.verify.rails.work import measure_work
from optmatch.verify.report import Rule

CIRCUITS_OF_EACH_ROUND = Rule("in each round of a collective its circuits are there")
ENDS_WITH_LAST_ROUND = Rule("a collective ends with the last of its rounds")
EVERYONE_TO_EVERYONE = Rule("in an all-to-all everyone sends to everyone else")
LASTS_AS_BYTES_NEED = Rule("an operation lasts as long as its bytes need on its ports")

Places = NDArray[np.int64]
Seconds = NDArray[np.float64]


# Collectives in rounds of sends: recursive halving, trees


class _Senders(NamedTuple):
    """The ports over which the members of some collectives send; an entry for each port.

    The `operation` is the part of the collective at the rank that sends.
    """

    operation: Places
    collective: Places
    """The number of the collective, from 0."""
    place: Places
    """The place of the rank in the group."""
    port: Places
    """The port of the switch."""
    n_ports: Places
    """The number of ports that the operation uses."""


class _Rounds(NamedTuple):
    """When the rounds of collectives end, and which circuits are missing."""

    end_s: Seconds
    """``end_s[collective]``."""
    end_after_stop_s: Seconds
    """The same if the rail stops at that moment and the collective ends after the stop."""
    lacks_circuit: NDArray[np.bool_]
    """``lacks_circuit[sender]``."""


def check_in_rounds(context: Context, rail: Rail, riding: Places) -> Places:
    """Check the collectives on a rail that go in rounds: replay them and compare when they end.

    In a round some members of a group send, each to one other, as in recursive halving or along a
    tree. A round begins when the one before has ended and the circuits of all who send are up; it
    lasts as long as its bytes need. The collective ends with its last round. If the whole rail
    stops at that moment to change circuits, it may end before the stop or after it.

    Parameters
    ----------
    context
        The job, its step, the plan with start and end of all operations in seconds, and the
        findings, to which broken rules are added.
    rail
        The circuits of one rail over time.
    riding
        All operations that communicate over the rail, ascending; int64. Those that are no part of
        a collective in rounds are left out.

    Returns
    -------
    int64 array
        The operations that were checked.
    """
    replayed = [np.empty(0, dtype=np.int64)]
    for group in list_in_rounds(context.job, riding):
        _check_group_in_rounds(context, rail, group)
        replayed.append(group.operations)
    return np.concatenate(replayed)


def _check_group_in_rounds(context: Context, rail: Rail, group: InRounds) -> None:
    """Check collectives that are done in the same rounds: replay them and compare with the plan.

    In a round some members of a collective send, each to one other; the algorithm (such as
    recursive halving) says who. In each round the circuits of all who send have to be there. The
    collective has to end when its last round does.

    Parameters
    ----------
    context
        The plan with start and end of all operations in seconds, its step, and the findings, to
        which broken rules are added.
    rail
        The circuits of one rail over time. `delay_s` is how long a change takes, in seconds.
    group
        Collectives with equal rounds: `operations` (what one rank does in one of them, ascending),
        the number of members of each, and `rounds`, the sends of each round.
    """
    step = context.step
    plan = context.plan

    # The operations of a collective have one number in `match`; the first of them tells its group
    # and its start. ``members[collective, place]`` is a rank.
    _, first_part, collective_of = np.unique(
        step.match[group.operations], return_index=True, return_inverse=True
    )
    first_operation = group.operations[first_part]
    members = np.array([step.groups[g].ranks for g in step.group[first_operation].tolist()])
    start_s = plan.start_s[first_operation]
    senders = _list_senders(context, rail, group, collective_of.reshape(-1), members)
    rounds = _replay_rounds(context, rail, group.rounds, senders, members, start_s)

    operation = senders.operation
    lacks = rounds.lacks_circuit
    context.refuse(CIRCUITS_OF_EACH_ROUND, operation, lacks, plan.start_s[operation], np.nan)

    # If the whole rail stops just at the end of the last round, the plan may say that the
    # collective ends before the stop or after it, also after several stops in a row. The plan may
    # therefore be later by whole delays, from none up to all of these stops: its difference is
    # rounded to whole delays. (Without a delay it is 0, whatever it is divided by.)
    end_s = rounds.end_s[senders.collective]
    planned_s = plan.end_s[operation]
    longest_stop_s = rounds.end_after_stop_s[senders.collective] - end_s
    stopped_s = np.clip(planned_s - end_s, 0.0, longest_stop_s)
    stopped_s = np.rint(stopped_s / (rail.delay_s or 1.0)) * rail.delay_s
    off = np.abs(planned_s - end_s - stopped_s) > context.slack_s
    # The end is compared only where no circuit is missing.
    replayed = ~np.isin(senders.collective, senders.collective[lacks])
    context.refuse(ENDS_WITH_LAST_ROUND, operation, off & replayed, planned_s, end_s)


def _list_senders(
    context: Context, rail: Rail, group: InRounds, collective_of: Places, members: Places
) -> _Senders:
    """List the ports over which collectives send: one entry for each port of each member.

    A collective, such as an all-reduce, is done by all ranks of a group. An operation is what one
    rank does in it. The place of a rank is its position in the group, from 0. A rank that uses two
    ports has two entries.

    Parameters
    ----------
    context
        The plan, with the ports of each operation as bits, and its step.
    rail
        The rail, with the numbers of its ports.
    group
        The operations of some collectives (`operations`, shape (rows,)), and the number of members
        of each collective (`n_members`).
    collective_of
        ``collective_of[row]``: the row of `members` that the operation belongs to.
    members
        ``members[collective, place]``: the rank at each place of its group.

    Returns
    -------
    _Senders
        An entry for each port of each operation:

        * `operation`: its number in the step;
        * `collective`: the row of `members`;
        * `place`: the place of its rank in the group;
        * `port`: the port of the switch;
        * `n_ports`: how many ports the operation uses.
    """
    step = context.step
    used = rail.list_ports(step.rank[group.operations], context.plan.ports[group.operations])
    operation = group.operations[used.row]
    collective = collective_of[used.row]
    n_ports = np.bincount(used.row, minlength=len(group.operations))[used.row]

    # Find the place of each rank by a key, ``collective * n_ranks + rank``. The keys of all
    # members are in one row, collective by collective: with 4 members, number 6 of the row is at
    # place 2 of collective 1.
    member_keys = (np.arange(len(members))[:, None] * step.n_ranks + members).ravel()
    order = np.argsort(member_keys)
    key = collective * step.n_ranks + step.rank[operation]
    place = order[np.searchsorted(member_keys[order], key)] % group.n_members
    return _Senders(operation, collective, place, used.port, n_ports)


def _replay_rounds(
    context: Context,
    rail: Rail,
    rounds: list[Transfers],
    senders: _Senders,
    members: Places,
    start_s: Seconds,
) -> _Rounds:
    """Work out when collectives end that are done in rounds, and which circuits they lack.

    In a round some members of a collective send, each to one other. A round begins when the one
    before has ended and the circuits of all who send in it are up. It lasts as long as its longest
    send. The collective ends with its last round.

    Some switches stop all circuits at once to change them, and data rest during a stop. If a round
    is over at the very moment at which a stop begins, it may count as ended before the stop, or
    after it. If the last round is over at 7 s and a stop lasts from 7 s to 9 s, both 7 s and 9 s
    are right, and both are returned. Earlier rounds end before such a stop.

    Parameters
    ----------
    context
        The plan, with the start of each operation in seconds, and the rates of ports.
    rail
        The circuits of one rail. A spell is a time in which a port keeps one circuit: `since_s`
        and `until_s` are when it begins and ends, in seconds. A circuit is up `delay_s` after
        that.
    rounds
        By round its sends, each from a place of a group to another; the same for all collectives.
    senders
        An entry for each port of each member. Used here are `operation` (what the member does),
        `collective` (the row of `members`), and `port` (that of the switch).
    members
        ``members[collective, place]``: the rank at each place of its group.
    start_s
        ``start_s[collective]``: when it starts, in seconds.

    Returns
    -------
    _Rounds
        With these fields:

        * ``end_s[collective]``: when its last round ends, in seconds, before a stop that begins
          then;
        * ``end_after_stop_s[collective]``: the same, after a stop that begins then;
        * ``lacks_circuit[sender]``: for each entry of `senders`, whether in some round it had no
          circuit to its receiver, or one that was given up before the round had ended.
    """
    # By sender the spell of its port, at first that in which its operation starts.
    slack_s = context.slack_s
    spell = rail.spell_at(context.plan.start_s[senders.operation], senders.port)
    lacks_circuit = np.zeros(len(spell), dtype=bool)
    now_s = start_s.copy()  # by collective: when its next round may begin
    end_after_stop_s = now_s
    for transfers in rounds:
        sends = _list_sends(context, transfers, senders, members)
        collective = sends.collective

        # The round waits for the circuits of all who send: for each the first one that leads to
        # its receiver and lasts long enough. A circuit that is missing holds up nobody.
        earliest_end_s = now_s[collective] + sends.lasts_s - slack_s
        in_use = _seek_circuit(rail, spell[sends.sender], sends.receiver, earliest_end_s)
        spell[sends.sender] = in_use
        missing = rail.arrival(in_use).rank != sends.receiver
        up_s = np.where(missing, -np.inf, rail.since_s[in_use] + rail.delay_s)
        np.maximum.at(now_s, collective, up_s)

        # The round lasts as long as its longest send. Its end is worked out twice: after a stop
        # that begins just then (-slack_s), and before it (slack_s). The next round goes on from
        # the second; the first is overwritten in each round but the last.
        round_s = np.zeros(len(members))
        np.maximum.at(round_s, collective, sends.lasts_s)
        end_after_stop_s = _advance(rail, now_s, round_s, -slack_s)
        now_s = _advance(rail, now_s, round_s, slack_s)

        # A circuit has to stay to the end of the round.
        missing |= rail.until_s[in_use] < now_s[collective] - slack_s
        lacks_circuit[sends.sender[missing]] = True
    return _Rounds(now_s, end_after_stop_s, lacks_circuit)


class _RoundSends(NamedTuple):
    """The sends of one round of all collectives, an entry for each port that sends."""

    sender: Places
    """``sender[send]``: the entry of `_Senders`."""
    collective: Places
    """``collective[send]``, from 0."""
    receiver: Places
    """``receiver[send]``: the rank that it sends to."""
    lasts_s: Seconds
    """``lasts_s[send]``: the seconds for its bytes and one latency."""


def _list_sends(
    context: Context, transfers: Transfers, senders: _Senders, members: Places
) -> _RoundSends:
    """List who sends to whom in one round of some collectives, and how long each send lasts.

    A collective, such as an all-gather, is done by a group of ranks in rounds. In a round some of
    them send, each to one other. All collectives of this call have groups of one size and the same
    rounds. The place of a rank is its position in its group, from 0.

    Parameters
    ----------
    context
        The sizes of operations, and the rates of ports.
    transfers
        The sends of this round: from which place to which (`sender`, `receiver`), and which part
        of the size of the operation (`share`).
    senders
        An entry for each port of each member: its `operation`, its `collective` (a row of
        `members`), the `place` of its rank, and how many ports the operation uses (`n_ports`).
    members
        ``members[collective, place]``: the rank at each place.

    Returns
    -------
    _RoundSends
        An entry for each port that sends in this round:

        * ``sender[send]``: its entry in `senders`;
        * ``collective[send]``: the row of `members`;
        * ``receiver[send]``: the rank that it sends to;
        * ``lasts_s[send]``: the seconds for its bytes and one latency.
    """
    # By place the place that receives from it in this round; -1 where it does not send. Ports of
    # places that do not send are left out.
    network = context.job.network
    receiver_of_place = np.full(members.shape[1], -1)
    for transfer in transfers:
        receiver_of_place[transfer.sender] = transfer.receiver
    sender = np.flatnonzero(receiver_of_place[senders.place] >= 0)
    collective = senders.collective[sender]
    receiver = members[collective, receiver_of_place[senders.place[sender]]]

    # All parts of a round are equally large, and the ports of a member share its part.
    size_bytes = transfers[0].share * context.step.size_bytes[senders.operation[sender]]
    rate = senders.n_ports[sender] * network.port_bytes_per_s
    return _RoundSends(
        sender, collective, receiver, size_bytes / rate + network.latency_on_rails_s
    )


def _seek_circuit(rail: Rail, spell: Places, receiver: Places, earliest_end_s: Seconds) -> Places:
    """Find for each port its next circuit that leads to a certain rank and lasts long enough.

    A port keeps one circuit, or none, for a time, which is called a spell. The spells of a port
    have consecutive numbers, and its last one has no end. The search begins with a given spell of
    each port and goes on to later ones.

    Parameters
    ----------
    rail
        The circuits: ``until_s[spell]`` is when a spell ends, in seconds, and
        ``arrival(spell).rank`` the rank that its circuit leads to, -1 for none.
    spell
        By port the spell to begin with; int64, shape (ports,).
    receiver
        By port the rank that the circuit has to lead to.
    earliest_end_s
        By port, until when the circuit has to stay at least, in seconds.

    Returns
    -------
    int64 array, shape (ports,)
        By port the first spell that fits. If none does, the last spell of the port: the caller has
        to compare the rank again.
    """
    # All ports go on at once, each until a spell fits or it has no further one.
    spell = spell.copy()
    searching = np.arange(len(spell))
    while len(searching):
        current = spell[searching]
        until_s = rail.until_s[current]
        leads_there = rail.arrival(current).rank == receiver[searching]
        fits = leads_there & (until_s >= earliest_end_s[searching])
        has_next = until_s < np.inf
        searching = searching[~fits & has_next]
        spell[searching] += 1
    return spell


def _advance(rail: Rail, begin_s: Seconds, lasts_s: Seconds, slack_s: float) -> Seconds:
    """Return when work ends that rests while the whole rail is dark.

    The rail stops from time to time to change its circuits, and is dark for one delay each time.
    With stops at 4 s and 9 s of 1 s each, work of 6 s that begins at 0 s ends at 7 s: 4 s before
    the first stop and 2 s after it.

    Work of 4 s that begins at 0 s ends just when a stop begins. With a positive `slack_s` it ends
    before the stop, at 4 s. With a negative one it ends after the stop, at 5 s.

    Parameters
    ----------
    rail
        Has the starts of the stops in seconds (`stops_s`, ascending), and `delay_s`.
    begin_s, lasts_s
        By entry when work begins, and how long it lasts without stops, in seconds; shape
        (entries,).
    slack_s
        Seconds by which times may differ that count as the same; its sign says on which side of a
        stop work ends, see above.

    Returns
    -------
    float64 array, shape (entries,)
        When it ends, in seconds.
    """
    stops_s = rail.stops_s
    delay_s = rail.delay_s
    if not len(stops_s):
        return begin_s + lasts_s
    # Times are read from a clock that rests while the rail is dark. At `begin_s` it is late by all
    # stops so far: a delay for each but the last one, which may not be over yet.
    n_stops = np.searchsorted(stops_s, begin_s, side="right")
    in_last_stop_s = np.minimum(begin_s - stops_s[np.maximum(n_stops - 1, 0)], delay_s)
    dark_s = np.where(n_stops > 0, (n_stops - 1) * delay_s + in_last_stop_s, 0.0)
    light_end_s = begin_s - dark_s + lasts_s

    # On that clock stops last no time: stop number k comes k delays earlier. With stops at 4 s and
    # 9 s of 1 s, they are at 4 s and 8 s. Each stop before the end adds a delay on the real clock.
    light_stops_s = stops_s - np.arange(len(stops_s)) * delay_s
    n_stops_before_end = np.searchsorted(light_stops_s, light_end_s - slack_s, side="left")
    return np.maximum(begin_s, light_end_s + n_stops_before_end * delay_s)


# All-to-alls


class Exchanges(NamedTuple):
    """All-to-alls whose circuits change."""

    in_rounds: Places
    """Each member meets all others."""
    in_stages: Places
    """Each member has fewer circuits than there are others, or all of its ports lead to one."""


class _AllToAlls(NamedTuple):
    """All-to-alls of more than two, and what their rounds need; an entry for each operation.

    Each `operation` goes on from `start_s` to `end_s`, in seconds from the beginning of the step.
    """

    operation: Places
    start_s: Seconds
    end_s: Seconds
    n_others: Places
    """The other members."""
    n_rounds: Places
    """The rounds that its ports need for all others."""
    part_s: Seconds
    """How long one round lasts."""
    dark_s: Seconds
    """How long the rail is dark from start to end."""


def check_exchanges(context: Context, rail: Rail, operations: Places) -> Exchanges:
    """Check all-to-alls that are done in rounds, and tell which others are done in stages.

    In an all-to-all of several ranks each sends a part of its data to each other one. A plan may
    do it in three ways:

    * in rounds: each rank has a circuit to each other one for a while, as long as one part needs;
    * in stages: a rank has circuits to few others, and parts take several hops;
    * around a ring: no circuit changes.

    In rounds, all ports of a rank send at once. With 2 ports and 7 others there are 4 rounds, and
    a change of circuits between each two. The operation has to last as long as all of these. The
    latency of all messages is spread evenly over the rounds.

    Parameters
    ----------
    context
        The plan with start and end of all operations in seconds, the network, and the findings, to
        which broken rules are added.
    rail
        The circuits of one rail. A spell is a time in which a port keeps one circuit: `since_s`
        and `until_s` are when it begins and ends, in seconds.
    operations
        The part of each rank in each all-to-all on this rail of more than two ranks, without those
        that other GPUs forward and those whose routes over fixed circuits the plan states
        (chords); numbers in the step, ascending, int64.

    Returns
    -------
    Exchanges
        `in_rounds`: the operations that were checked; `in_stages`: those in stages, which the
        caller has to check. The others go around a ring.
    """
    # An entry of `used` is one port of one operation. By entry, `row` is the place of the
    # operation in the list, `spell` the spell of the port when it starts, and `reached` the rank
    # to which the port leads then. `all_to_one` is by operation: do all its ports lead to one
    # rank?
    used = rail.list_ports(context.step.rank[operations], context.plan.ports[operations])
    exchanges = _measure_rounds(context, rail, operations, used.row)
    row = used.row
    spell = rail.spell_at(exchanges.start_s[row] + context.slack_s, used.port)
    reached = rail.arrival(spell).rank
    all_to_one = _is_single_valued(row, reached, len(operations))

    # Two kinds of operations are taken for rounds at first. One has a port for each other rank and
    # lasts one round; no circuit changes.
    duration_s = exchanges.end_s - exchanges.start_s
    one_round = exchanges.n_rounds == 1
    lasts_a_part = np.abs(duration_s - exchanges.dark_s - exchanges.part_s) <= context.slack_s
    in_rounds = one_round & lasts_a_part & ~all_to_one

    # Around a ring the time may be the same, as for 4 members with 6 ports each: n / 2 times the
    # bytes over all ports are one part over one port. Who does not reach all others then goes
    # around a ring, whose circuits are checked elsewhere.
    n_ports = np.maximum(np.bincount(row, minlength=len(operations)), 1)
    n_members = exchanges.n_others + 1
    sent_bytes = measure_work(context.job, operations).sent_bytes
    around_s = sent_bytes * n_members / 2 / n_ports / context.job.network.port_bytes_per_s
    around_s += exchanges.n_others * context.job.network.latency_on_rails_s
    lasts_a_ring = np.abs(duration_s - exchanges.dark_s - around_s) <= context.slack_s
    n_ranks = context.step.n_ranks + 1  # one more for a port without a circuit
    row_of_pair = np.unique(row * n_ranks + reached + 1) // n_ranks
    reaches_all = np.bincount(row_of_pair, minlength=len(operations)) >= exchanges.n_others
    in_rounds &= reaches_all | ~lasts_a_ring

    # The other kind gives up a circuit before its end. If there is neither, all go around rings.
    changes = rail.until_s[spell] < exchanges.end_s[row] - context.slack_s
    in_rounds[row[changes]] = True
    if not in_rounds.any():
        return Exchanges(operations[:0], operations[:0])

    # Some of these are in stages instead: those with several ports that all lead to one rank, and
    # those with one port that has fewer circuits from start to end than there are other ranks. The
    # spells of a port have consecutive numbers: from 6 to 8 there are three circuits.
    last_spell = rail.spell_at(exchanges.end_s[row] - context.slack_s, used.port)
    n_circuits = np.zeros(len(operations), np.int64)
    np.maximum.at(n_circuits, row, 1 + last_spell - spell)
    in_stages = in_rounds & np.where(n_ports > 1, all_to_one, n_circuits < exchanges.n_others)
    in_rounds &= ~in_stages

    # In rounds every other rank has to be served by a circuit of its own.
    of_rounds = in_rounds[row]
    n_served = _count_served(context, rail, exchanges, row[of_rounds], spell[of_rounds])
    wrong = in_rounds & (n_served != exchanges.n_others)
    context.refuse(EVERYONE_TO_EVERYONE, operations, wrong, n_served, exchanges.n_others)

    # The time is that of all rounds and of the changes between them. With a switch that stops as
    # a whole, these changes are its stops.
    changes_s = (exchanges.n_rounds - 1) * rail.delay_s
    between_s = exchanges.dark_s if len(rail.stops_s) else changes_s
    needed_s = exchanges.n_rounds * exchanges.part_s + between_s
    wrong = in_rounds & (np.abs(duration_s - needed_s) > context.slack_s)
    context.refuse(LASTS_AS_BYTES_NEED, operations, wrong, duration_s, needed_s)
    return Exchanges(operations[in_rounds], operations[in_stages])


def _measure_rounds(context: Context, rail: Rail, operations: Places, row: Places) -> _AllToAlls:
    """Find how many rounds an all-to-all takes over its ports, and how long a round lasts.

    In an all-to-all each rank has a part of data for each other one. In a round each port of a
    rank sends one part: with 7 other ranks and 2 ports there are 4 rounds. The latency of all
    messages is spread evenly over the rounds.

    Parameters
    ----------
    context
        The plan with start and end of all operations in seconds, and the network.
    rail
        The rail, which may be dark as a whole at some times.
    operations
        The part of each rank in all-to-alls of more than two ranks: numbers in the step, int64.
    row
        An entry for each port of each operation: the place of the operation in `operations`.

    Returns
    -------
    _AllToAlls
        Arrays of shape (operations,):

        * `operation`, with its `start_s` and `end_s` in seconds;
        * `n_others`: how many other ranks there are;
        * `n_rounds`: how many rounds the ports need for all of them;
        * `part_s`: how long a round lasts, in seconds;
        * `dark_s`: how long the rail is dark from start to end, in seconds.
    """
    network = context.job.network
    start_s = context.plan.start_s[operations]
    end_s = context.plan.end_s[operations]
    n_others = context.group_size[context.step.group[operations]] - 1
    n_ports = np.maximum(np.bincount(row, minlength=len(operations)), 1)
    n_rounds = -(-n_others // n_ports)

    # A round sends one part over each port, with an equal share of the latency of all messages.
    part_bytes = measure_work(context.job, operations).sent_bytes / n_others
    latency_s = n_others * network.latency_on_rails_s / n_rounds
    part_s = part_bytes / network.port_bytes_per_s + latency_s
    dark_s = rail.dark_s(start_s, end_s)
    return _AllToAlls(operations, start_s, end_s, n_others, n_rounds, part_s, dark_s)


def _is_single_valued(row: Places, value: Places, n_rows: int) -> NDArray[np.bool_]:
    """Return for each row whether all its values are equal.

    Parameters
    ----------
    row, value
        Entry by entry, the row and its value, -1 or more; a row may have several entries.
    n_rows
        The number of rows.

    Returns
    -------
    bool array, shape (n_rows,)
        A row without entries is not single-valued.
    """
    largest = np.full(n_rows, -1)
    smallest = np.full(n_rows, np.iinfo(np.int64).max)
    np.maximum.at(largest, row, value)
    np.minimum.at(smallest, row, value)
    single_valued: NDArray[np.bool_] = largest == smallest
    return single_valued


def _count_served(
    context: Context, rail: Rail, exchanges: _AllToAlls, row: Places, spell: Places
) -> Places:
    """Count for each all-to-all how many other ranks get a circuit from one rank for long enough.

    In an all-to-all of several ranks each sends a part of its data to each other one. A circuit
    serves its receiver if it is up long enough for one part, within the time of the operation.
    Circuits that are shorter do not count, and a receiver counts once.

    Parameters
    ----------
    context
        The step with its groups of ranks.
    rail
        The circuits of one rail. A spell is a time in which a port keeps one circuit: `since_s`
        and `until_s` are when it begins and ends, in seconds. The spells of a port have
        consecutive numbers.
    exchanges
        The part of each rank in some all-to-alls, an entry for each: `operation`, `start_s`,
        `end_s`, and `part_s`, how long a circuit needs for one part, in seconds.
    row, spell
        An entry for each port to look at: the place of its operation in `exchanges`, and the spell
        of the port when the operation starts; int64, shape (entries,).

    Returns
    -------
    int64 array, shape (operations,)
        How many different ranks of the same group are served, over all ports of the operation.
    """
    step = context.step
    # A pair (operation, rank served) is one integer, ``operation * key_base + rank + 1``; rank -1
    # stands for no circuit.
    key_base = step.n_ranks + 1  # keys of (operation, rank + 1)
    served = []
    while len(row):
        # One spell of each port: how long is it up within the operation, without the time in which
        # the whole rail is dark? Ports whose spell ends before the operation go on to their next
        # spell; the others are done.
        since_s = np.maximum(exchanges.start_s[row], rail.since_s[spell] + rail.delay_s)
        until_s = np.minimum(exchanges.end_s[row], rail.until_s[spell])
        dark_s = rail.dark_s(since_s, np.maximum(since_s, until_s))
        enough = until_s - since_s - dark_s >= exchanges.part_s[row] - context.slack_s
        served.append(row[enough] * key_base + rail.arrival(spell[enough]).rank + 1)
        goes_on = rail.until_s[spell] < exchanges.end_s[row]
        row = row[goes_on]
        spell = spell[goes_on] + 1

    # Each pair is kept once: sorting and comparing is much quicker than `np.unique` here. `row` is
    # empty by now, and keeps the type of the array if nothing was served.
    keys = np.sort(np.concatenate([*served, row]))
    keys = keys[np.diff(keys, prepend=-1) > 0]
    served_by = keys // key_base
    rank = keys % key_base - 1
    group = step.group[exchanges.operation].astype(np.int64)

    # Only members of the same group count, and not the rank itself.
    member_keys = [
        number * key_base + member
        for number in np.unique(group)
        for member in step.groups[number].ranks
    ]
    is_member = np.isin(group[served_by] * key_base + rank, member_keys)
    is_other = rank != step.rank[exchanges.operation[served_by]]
    return np.bincount(served_by[is_member & is_other], minlength=len(exchanges.operation))


class _Stages(NamedTuple):
    """The circuits of all-to-alls in stages; an entry for each port of each operation.

    The all-to-all of an entry is among `n_members`.
    """

    row: Places
    """The place of the operation in the list."""
    spell: Places
    """The spell of the port at the start."""
    last_spell: Places
    """The spell of the port at the end."""
    n_members: Places
    strides: Places
    """``strides[entry, stage]``: how many places further on the circuit leads; 0 past the last
    stage, -1 if it leads to no member."""


def check_stages(context: Context, rail: Rail, operations: Places) -> None:
    """Check all-to-alls that are done in stages: all data arrive, and it takes the right time.

    In an all-to-all of n ranks each has a part of data for each other one. The ranks stand on a
    circle. In a stage each has circuits to the rank a fixed number of places further on, the
    stride of the stage; then all circuits change. A part may take several hops: with the strides 1
    and 2 of 4 ranks, the part for the rank 3 places further on takes one hop in each of two
    stages.

    Checked is that all ranks use the same strides, that each part can arrive, that circuits are
    there, and that each stage lasts as long as a circuit needs for the parts that it carries.

    Parameters
    ----------
    context
        The plan with start and end of all operations in seconds, its step, and the findings, to
        which broken rules are added.
    rail
        The circuits of one rail over time.
    operations
        The part of each rank in the all-to-alls in stages on this rail: numbers in the step,
        ascending, int64.
    """
    stages = _list_stages(context, rail, operations)
    if not len(stages.row):
        return
    row = stages.row
    operation = operations[row]

    # An entry of `stages` is one port of one operation. All entries of a collective (operations
    # with one number in `match`) need the strides of its first entry. Parts have to get
    # everywhere, which -1 hops deny.
    _, first, collective = np.unique(
        context.step.match[operation], return_index=True, return_inverse=True
    )
    expected_strides = stages.strides[first][collective.reshape(-1)]
    wrong = (stages.strides != expected_strides).any(axis=1)
    n_hops = _count_hops_of_all(stages)
    wrong |= n_hops[:, 0] < 0

    # A circuit that is missing is refused; the end is compared where all circuits are there.
    end_s, lacks_circuit = _replay_stages(context, rail, operations, stages, n_hops)
    wrong |= lacks_circuit
    context.refuse(EVERYONE_TO_EVERYONE, operation, wrong, stages.strides[:, 0], np.nan)
    start_s = context.plan.start_s[operation]
    planned_s = context.plan.end_s[operation]
    off = ~wrong & (np.abs(planned_s - end_s) > context.slack_s)
    context.refuse(LASTS_AS_BYTES_NEED, operation, off, planned_s - start_s, end_s - start_s)


def _list_stages(context: Context, rail: Rail, operations: Places) -> _Stages:
    """Find how far the circuits of each all-to-all lead, stage by stage.

    The ranks of a group stand on a circle, in the order of the group. A stage of an all-to-all is
    a time in which each port keeps one circuit. Its stride is how many places further on the
    circuit leads: from place 3 to place 1 of 8 it is 6.

    Parameters
    ----------
    context
        The plan with start and end of all operations in seconds, and the ports of each as bits.
    rail
        The circuits of one rail. A spell is a time in which a port keeps one circuit; the spells
        of a port have consecutive numbers.
    operations
        The part of each rank in the all-to-alls in stages on this rail: numbers in the step,
        ascending, int64.

    Returns
    -------
    _Stages
        An entry for each port of each operation:

        * `row`: the place of the operation in `operations`;
        * `spell`, `last_spell`: the spells of the port at its start and at its end;
        * `n_members`: how many ranks the group has;
        * ``strides[entry, stage]``: 0 past the last stage of the port, -1 if the circuit leads to
          no member of the group.
    """
    step = context.step
    used = rail.list_ports(step.rank[operations], context.plan.ports[operations])
    operation = operations[used.row]
    group = step.group[operation].astype(np.int64)
    n_members = context.group_size[group]
    spell = rail.spell_at(context.plan.start_s[operation] + context.slack_s, used.port)
    last_spell = rail.spell_at(context.plan.end_s[operation] - context.slack_s, used.port)

    # Stage s is spell `spell + s`. Ports with fewer stages than the longest one are looked up at
    # their last spell, and then have stride 0.
    n_stages = 1 + int((last_spell - spell).max(initial=0))
    strides = np.zeros((len(operation), n_stages), np.int64)
    place = find_places(context, group, step.rank[operation].astype(np.int64))
    for stage in range(n_stages):
        reached = rail.arrival(np.minimum(spell + stage, last_spell)).rank
        next_place = find_places(context, group, reached)
        stride = np.where(next_place < 0, -1, (next_place - place) % n_members)
        strides[:, stage] = np.where(spell + stage > last_spell, 0, stride)
    return _Stages(used.row, spell, last_spell, n_members, strides)


def find_places(context: Context, group: Places, rank: Places) -> Places:
    """Return the places of ranks in their groups, entry by entry.

    The place of a rank is its position among the members of the group, from 0: rank 5 has place 1
    in a group of the ranks 3, 5 and 8.

    Parameters
    ----------
    context
        The plan, which has the step with its groups.
    group
        Numbers of groups, int64; none is -1.
    rank
        Ranks, -1 for no rank; the same shape.

    Returns
    -------
    int64 array, shape (entries,)
        The position of the rank in ``groups[group].ranks``; -1 if it is no member.
    """
    if not len(group):
        return group

    # A pair of group and rank is one integer: the keys of all members are searched for it. A rank
    # of -1 has a key that no member has.
    groups = context.step.groups
    key_base = context.step.n_ranks + 1
    numbers = np.unique(group).tolist()
    keys = np.concatenate(
        [number * key_base + np.array(groups[number].ranks) for number in numbers]
    )
    places = np.concatenate([np.arange(len(groups[number].ranks)) for number in numbers])
    order = np.argsort(keys)
    key = group * key_base + rank
    entry = order[np.searchsorted(keys[order][:-1], key)]
    return np.where(keys[entry] == key, places[entry], -1)


def _count_hops_of_all(stages: _Stages) -> Places:
    """Count the parts that each circuit carries in each stage; equal strides are counted once.

    A part is the data of one member for one other. In a stage the circuit of each member leads the
    same number of places further on in its group, the stride, and a part may make several hops.

    Parameters
    ----------
    stages
        All-to-alls in stages, an entry for each port: the number of members, and
        ``strides[entry, stage]``.

    Returns
    -------
    int64 array, shape (entries, stages)
        Parts; all -1 in the rows of an all-to-all of which some part gets nowhere.
    """
    # Few cases differ: each row of members and strides is counted once.
    cases = np.column_stack([stages.n_members, stages.strides])
    different, case_of = np.unique(cases, axis=0, return_inverse=True)
    hops = np.array([count_hops(int(case[0]), case[1:]) for case in different])
    return hops[case_of.reshape(-1)]


def _replay_stages(
    context: Context, rail: Rail, operations: Places, stages: _Stages, n_hops: Places
) -> tuple[Seconds, NDArray[np.bool_]]:
    """Work out when all-to-alls end that are done in stages, and which circuits they lack.

    In a stage each port keeps one circuit, which carries several parts of the data one after the
    other. Then all circuits change, and the next stage begins. With stages of 5 s and 4 s and a
    change of 2 s, the all-to-all ends 11 s after its start.

    Parameters
    ----------
    context
        The plan with the start of all operations in seconds, and the network.
    rail
        The circuits of one rail. A spell is a time in which a port keeps one circuit: `since_s`
        and `until_s` are when it begins and ends, in seconds. A circuit is up `delay_s` after its
        spell begins.
    operations
        ``operations[row]``: the part of each rank in the all-to-alls; numbers in the step.
    stages
        An entry for each port of each operation:

        * `row`: the place of the operation in `operations`;
        * `spell`, `last_spell`: the spells of the port at its start and at its end; stage s is
          spell ``spell + s``;
        * `n_members`: how many ranks take part.
    n_hops
        ``n_hops[entry, stage]``: how many parts this port sends in the stage.

    Returns
    -------
    end_s : float64 array, shape (entries,)
        When the last stage of each port ends, in seconds from the beginning of the step.
    lacks_circuit : bool array, shape (entries,)
        Whether some circuit is not up for the whole of its stage.
    """
    # By entry: how long one part needs over one hop. The ports of an operation share its parts
    # evenly, so that together they have the rate of all.
    row = stages.row
    work = measure_work(context.job, operations)
    rate = np.bincount(row)[row] * context.job.network.port_bytes_per_s
    part_s = (work.sent_bytes[row] / rate + work.latency_s[row]) / (stages.n_members - 1)

    lacks_circuit = np.zeros(len(row), dtype=bool)
    end_s = context.plan.start_s[operations[row]] - rail.delay_s  # no change before the first
    for stage in range(stages.strides.shape[1]):
        # An entry with fewer stages than the longest one keeps the end of its last stage. Each
        # stage begins one delay after the end of the one before.
        is_stage = stages.spell + stage <= stages.last_spell
        spell = np.minimum(stages.spell + stage, stages.last_spell)
        begin_s = end_s + rail.delay_s
        done_s = begin_s + n_hops[:, stage] * part_s

        # The circuit has to be there from the beginning of the stage to its end.
        is_up = rail.since_s[spell] + rail.delay_s <= begin_s + context.slack_s
        stays = rail.until_s[spell] >= done_s - context.slack_s
        lacks_circuit |= is_stage & ~(is_up & stays)
        end_s = np.where(is_stage, done_s, end_s)
    return end_s, lacks_circuit


def count_hops(n: int, strides: NDArray[np.int64]) -> list[int]:
    """Count how many parts a circuit carries in each stage of an all-to-all.

    In an all-to-all of n members each has a part of data for each other one. The members stand on
    a circle, and a stage is a time in which the circuit of each leads the same number of places
    further on, its stride. A part for the member d places further on makes some hops in each
    stage, which lead d places further on in all (modulo n).

    With 4 members and the strides 1 and 2, the parts for d = 1, 2 and 3 make the hops (1, 0), (0,
    1) and (1, 1). The counts are their sums, [2, 2].

    A part takes a way of fewest hops. If there are several, it is the one with fewest hops in the
    last stage, then in the stage before, and so on.

    Parameters
    ----------
    n
        The members.
    strides
        By stage the stride of its circuits, from 0 to n - 1; -1 if a circuit leads to no member.
        int64, shape (stages,).

    Returns
    -------
    list of int
        By stage the parts that each circuit carries; -1 for each stage if some part cannot arrive.
    """
    unreachable = [-1] * len(strides)
    if (strides < 0).any():
        return unreachable

    # ``fewest[stage][distance]``: the fewest hops that lead so many places further on, with the
    # stages before `stage` alone. Distances that cannot be reached have no entry.
    fewest: list[dict[int, int]] = [{0: 0}]
    for stride in strides.tolist():
        after: dict[int, int] = {}
        for distance, hops_before in fewest[-1].items():
            for hops_here in range(n):
                reached = (distance + hops_here * stride) % n
                hops = hops_before + hops_here
                after[reached] = min(after.get(reached, hops), hops)
        fewest.append(after)
    if len(fewest[-1]) < n:
        return unreachable

    # Follow the way of each part back from the last stage to the first. In each stage it makes the
    # fewest hops with which the stages before can still do the rest: 0, 1, 2, ... are tried.
    counts = [0] * len(strides)
    for destination in range(n):
        distance = destination
        for stage in reversed(range(len(strides))):
            stride = int(strides[stage])
            total = fewest[stage + 1][distance]
            hops_here = 0
            while fewest[stage].get((distance - hops_here * stride) % n) != total - hops_here:
                hops_here += 1
            counts[stage] += hops_here
            distance = (distance - hops_here * stride) % n
    return counts

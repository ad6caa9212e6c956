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
    """Check the collectives on a rail that go in rounds, and return their operations."""
    replayed = [np.empty(0, dtype=np.int64)]
    for group in list_in_rounds(context.job, riding):
        _check_group_in_rounds(context, rail, group)
        replayed.append(group.operations)
    return np.concatenate(replayed)


def _check_group_in_rounds(context: Context, rail: Rail, group: InRounds) -> None:
    """Replay collectives with the same rounds, and compare when they end."""
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
    """List the ports over which collectives send, an entry for each port of each member."""
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
    """Work out when collectives in rounds end, and which circuits they lack.

    A round begins when the one before has ended and its circuits are up, and lasts as long as its
    longest send. If the last round is over at 7 s, just when the rail stops until 9 s, both 7 s
    and 9 s are right; earlier rounds end before such a stop.
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
    """List who sends to whom in one round of some collectives, and how long each send lasts."""
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
    """Find for each port its next spell that leads to a certain rank and lasts long enough."""
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

    With stops at 4 s and 9 s of 1 s each, work of 6 s that begins at 0 s ends at 7 s. Work of 4 s
    ends just when a stop begins: with a positive `slack_s` before it, at 4 s, with a negative one
    after it, at 5 s.
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

    All ports of a rank send at once: with 2 ports and 7 others there are 4 rounds, and a change of
    circuits between each two. The rest go around rings, without changes.
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
    """Find how many rounds an all-to-all takes over its ports, and how long a round lasts."""
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
    """Return for each row whether all its values are equal."""
    largest = np.full(n_rows, -1)
    smallest = np.full(n_rows, np.iinfo(np.int64).max)
    np.maximum.at(largest, row, value)
    np.minimum.at(smallest, row, value)
    single_valued: NDArray[np.bool_] = largest == smallest
    return single_valued


def _count_served(
    context: Context, rail: Rail, exchanges: _AllToAlls, row: Places, spell: Places
) -> Places:
    """Count for each all-to-all the other members that get a circuit for long enough."""
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
    """Check all-to-alls that are done in stages.

    All ranks use the same strides, each part arrives, circuits are there, and each stage lasts as
    long as a circuit needs for the parts that it carries.
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
    """Find the strides of the circuits of each all-to-all, stage by stage."""
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
    """Return the places of ranks in their groups, entry by entry; -1 for ranks outside.

    Rank 5 has place 1 in a group of the ranks 3, 5 and 8.
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
    """Count the parts that each circuit carries in each stage; equal strides are counted once."""
    # Few cases differ: each row of members and strides is counted once.
    cases = np.column_stack([stages.n_members, stages.strides])
    different, case_of = np.unique(cases, axis=0, return_inverse=True)
    hops = np.array([count_hops(int(case[0]), case[1:]) for case in different])
    return hops[case_of.reshape(-1)]


def _replay_stages(
    context: Context, rail: Rail, operations: Places, stages: _Stages, n_hops: Places
) -> tuple[Seconds, NDArray[np.bool_]]:
    """Work out when all-to-alls in stages end, and which circuits they lack.

    With stages of 5 s and 4 s and a change of 2 s, the all-to-all ends 11 s after its start.
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
    """Count the parts that a circuit carries in each stage, -1 if some part does not arrive.

    With 4 members and the strides 1 and 2, the parts for 1, 2 and 3 places further on make the
    hops (1, 0), (0, 1) and (1, 1): the counts are [2, 2]. A part takes a way of fewest hops; of
    several, that with fewest in the last stage, then in the one before, and so on.
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

"""The replay of data along routes: a direct send is a route of one hop.

Data that are forwarded pass through the ranks on the way as they come: all circuits of a route are
up from the start of the operation to its end. The operation therefore lasts as long as its bytes
need on the ports of its narrowest hop, and each message is late by the latency of every hop.

A *hop* is what one rank on a route sends, over all the ports that it uses for it. A *relay* is a
row of ``plan.relays``: an operation, a rank that forwards its data, and the ports as bits. A
*lane* is the ring of one port of each member of a group. An operation *rides* a rail if it
communicates over it, and a *spell* is the time for which a port keeps one circuit, or none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.rails.training.step import ALL_TO_ALL, RECV, SEND
from optmatch.verify.rails.circuits import Arrival, Rail, Sent, UsedPorts
from optmatch.verify.rails.context import MOST_TOLD, Context, list_in_rounds
from optmatch.verify.rails.work import measure_work
from optmatch.verify.report import Rule

FORWARDED_IS_SENT = Rule("what is forwarded is sent over a rail, and not in rounds")
FORWARDER_EXISTS = Rule("who forwards has that rank and those ports")
OWN_RAIL = Rule("data are forwarded on their own rail")
CIRCUITS_STAY = Rule("its circuits are there from start to end")
HANDED_ON_WHERE_THEY_ARRIVE = Rule("data are handed on where they arrive")
MESSAGE_ARRIVES = Rule("a message goes to its receiver")
RECEIVER_USES_PORTS = Rule("a receiver uses the ports at which the message arrives")
HOP_LEADS_TO_ONE_RANK = Rule("all ports of a hop lead to the same rank")
ONE_RING = Rule("the circuits of a collective make one ring over its group")
LASTS_AS_BYTES_NEED = Rule("an operation lasts as long as its bytes need on its ports")

Places = NDArray[np.int64]


class Hops(NamedTuple):
    """The hops of operations, each with all its ports; an entry for each hop.

    The `operation` is the one of the step whose data are sent.
    """

    operation: Places
    rank: Places
    """The rank that sends."""
    ports: Places
    """The ports that it sends over, as bits."""
    next_rank: Places
    """The rank that forwards next; -1 for the last hop, to the receiver of the data."""


class _HopPorts(NamedTuple):
    """The circuits of hops; an entry for each port of each hop."""

    hop: Places
    """The place of the hop in `Hops`."""
    number: Places
    """The number of the port at its GPU."""
    port: Places
    """The port of the switch."""
    operation: Places
    next_rank: Places
    """As in `Hops`."""
    spell: Places
    """The spell of the port at the start of the operation."""
    reached: Arrival
    """Where its circuit leads."""


def check_forwarded(context: Context) -> bool:
    """Check that relays are of sending operations, and of ranks and ports that exist."""
    step = context.step
    relays = context.plan.relays
    operation, rank, ports = relays.T.astype(np.int64)
    in_rounds = [group.operations for group in list_in_rounds(context.job, operation)]

    # A relay is of an operation that sends over a rail, but not of one that is done in rounds. Its
    # ports are bits, one at least and none beyond those of a GPU.
    is_sent = (step.rail[operation] >= 0) & (step.kind[operation] != RECV)
    is_sent &= ~np.isin(operation, np.concatenate([operation[:0], *in_rounds]))
    exists = (rank >= 0) & (rank < step.n_ranks)
    exists &= (ports > 0) & (ports >> context.job.network.ports_per_gpu == 0)

    for rule, obeyed in ((FORWARDED_IS_SENT, is_sent), (FORWARDER_EXISTS, exists)):
        for row in np.flatnonzero(~obeyed)[:MOST_TOLD]:
            relay = relays[row].tolist()
            context.findings.refuse(rule, f"relays[{row}]", relay, "a hop of a route")
    return bool(is_sent.all() and exists.all())


def check_routes(context: Context, rail: Rail, riding: Places, operations: Places) -> Sent:
    """Check that data over circuits that stay arrive where they should, and in time.

    Returns the ports of all hops.
    """
    step = context.step
    hops = _list_hops(context, operations)
    off_rail = ~np.isin(hops.rank, rail.ranks)
    if off_rail.any():
        _refuse_hops(context, OWN_RAIL, hops, np.flatnonzero(off_rail))
        return Sent(operations[:0], operations[:0])

    # One entry of `used` is one port of one hop. `used.next_rank` is -1 at the last hop of a
    # route, and `used.reached.rank` is -1 for a port without a circuit.
    used = _list_hop_ports(context, rail, hops)
    _check_circuits(context, rail, hops, used)

    # Where the last hops lead: those of messages to receivers, those of collectives around rings.
    is_last = used.next_rank < 0
    arrives = is_last & (used.reached.rank >= 0)
    is_message = step.kind[used.operation] == SEND
    _check_messages(context, riding, used, np.flatnonzero(arrives & is_message))
    _check_collectives(context, rail, operations, hops, used)
    _check_durations(context, rail, operations, hops)
    return Sent(used.operation, used.port)


def _list_hops(context: Context, operations: Places) -> Hops:
    """List the hops of each operation, one after another.

    If ranks 5 and 7 forward an operation of rank 2, it has the ranks 2, 5 and 7 and the next ranks
    5, 7 and -1.
    """
    step = context.step
    plan = context.plan
    # Relays of these operations: each is searched among them, with -1 behind the last.
    relay_operation = plan.relays[:, 0]
    position = np.searchsorted(operations, relay_operation)
    is_listed = np.append(operations, -1)[position] == relay_operation
    relays = plan.relays[is_listed].astype(np.int64)

    # The hops of an operation in the order of its route: a stable sort keeps that of the relays.
    operation = np.concatenate([operations, relays[:, 0]])
    order = np.argsort(operation, kind="stable")
    operation = operation[order]
    rank = np.concatenate([step.rank[operations], relays[:, 1]])[order]
    ports = np.concatenate([plan.ports[operations], relays[:, 2]])[order]

    # A hop whose successor is of the same operation hands on to the rank of that one.
    goes_on = np.append(operation[1:] == operation[:-1], False)[: len(operation)]
    return Hops(operation, rank, ports, np.where(goes_on, np.roll(rank, -1), -1))


def _list_hop_ports(context: Context, rail: Rail, hops: Hops) -> _HopPorts:
    """Find the spell of each port of each hop at the start of its operation."""
    used: UsedPorts = rail.list_ports(hops.rank, hops.ports)
    operation = hops.operation[used.row]
    start_s = context.plan.start_s[operation]
    spell = rail.spell_at(start_s + context.slack_s, used.port)

    # An operation that takes no time, as a barrier without latency, may end just when its circuit
    # is given up: then the circuit before the change is the one that it has used.
    takes_no_time = context.plan.end_s[operation] == start_s
    is_changing = rail.since_s[spell] + rail.delay_s > start_s + context.slack_s
    spell_before = rail.spell_at(start_s - context.slack_s, used.port)
    spell = np.where(takes_no_time & is_changing, spell_before, spell)
    return _HopPorts(
        hop=used.row,
        number=used.number,
        port=used.port,
        operation=operation,
        next_rank=hops.next_rank[used.row],
        spell=spell,
        reached=rail.arrival(spell),
    )


def _check_circuits(context: Context, rail: Rail, hops: Hops, used: _HopPorts) -> None:
    """Check that circuits stay from start to end, and lead to the rank that forwards next."""
    start_s = context.plan.start_s[used.operation]
    end_s = context.plan.end_s[used.operation]
    # A circuit is up one delay after its spell begins. Where the switch stops as a whole, the
    # operation may start during the stop, as that is part of its time.
    delay_s = 0.0 if len(rail.stops_s) else rail.delay_s
    has_circuit = used.reached.rank >= 0
    is_up = rail.since_s[used.spell] + delay_s <= start_s + context.slack_s
    stays = rail.until_s[used.spell] >= end_s - context.slack_s
    _refuse_hops(context, CIRCUITS_STAY, hops, used.hop[~(has_circuit & is_up & stays)])

    goes_on = used.next_rank >= 0
    astray = has_circuit & goes_on & (used.reached.rank != used.next_rank)
    _refuse_hops(context, HANDED_ON_WHERE_THEY_ARRIVE, hops, used.hop[astray])


def _check_messages(context: Context, riding: Places, used: _HopPorts, rows: Places) -> None:
    """Check that messages reach their receivers, at the ports that these name."""
    step = context.step
    sends = used.operation[rows]
    reached = used.reached.rank[rows]
    receiver = step.peer[sends]
    context.refuse(MESSAGE_ARRIVES, sends, reached != receiver, reached, receiver)

    # A receive has the same number in `match` as its send. The ports at which its message arrives
    # are collected as bits, by its place among the receives.
    receives = riding[step.kind[riding] == RECV]
    receives = receives[np.argsort(step.match[receives])]
    receive_of_send = np.searchsorted(step.match[receives], step.match[sends])
    arrives_at = np.zeros(len(receives), dtype=np.int64)  # ports as bits
    np.bitwise_or.at(arrives_at, receive_of_send, 1 << used.reached.number[rows])
    operation = receives[receive_of_send]
    stated = context.plan.ports[operation]
    expected = arrives_at[receive_of_send]
    context.refuse(RECEIVER_USES_PORTS, operation, stated != expected, stated, expected)


def _check_collectives(
    context: Context, rail: Rail, operations: Places, hops: Hops, used: _HopPorts
) -> None:
    """Check that the circuits of each collective lead around rings of its members.

    The ports of one number of all members make one ring, a lane; if others forward, there is lane
    0 alone, and all ports of a member lead to the same next one.
    """
    # A lane of an operation is one integer, ``place in operations * ports of a GPU + lane``: with
    # 2 ports, lane 1 of the operation at place 3 is 7. Column 0 of ``plan.relays`` has the
    # operations that are forwarded.
    step = context.step
    is_forwarded = np.isin(step.match[used.operation], step.match[context.plan.relays[:, 0]])
    lane = np.where(is_forwarded, 0, used.number)
    key = np.searchsorted(operations, used.operation) * rail.ports_per_gpu + lane
    is_last = used.next_rank < 0
    arrives = is_last & (used.reached.rank >= 0)

    # By lane of an operation the rank that it leads to: the next member of the ring. -1 stands
    # for no circuit.
    leads_to = np.full(len(operations) * rail.ports_per_gpu, -1)  # by key of operation and lane
    leads_to[key[arrives]] = used.reached.rank[arrives]
    # Where several ports lead to different ranks, one of them is written last, and others differ.
    differs = leads_to[key[arrives]] != used.reached.rank[arrives]
    _refuse_hops(context, HOP_LEADS_TO_ONE_RANK, hops, used.hop[arrives][differs])

    # A lane that leads nowhere counts, too: it makes no ring.
    is_lane = np.zeros(len(leads_to), dtype=bool)
    is_lane[key[is_last & (step.kind[used.operation] != SEND)]] = True
    lanes = np.flatnonzero(is_lane)
    operation = operations[lanes // rail.ports_per_gpu]
    _check_rings(context, operation, lanes % rail.ports_per_gpu, leads_to[lanes])


def _check_rings(context: Context, operation: Places, lane: Places, reached: Places) -> None:
    """Check that each lane of each collective is one ring over its whole group.

    Cycles are told apart by pointer doubling: each entry learns the lowest entry that is 1, 2, 4
    and more steps further on, so that all entries of a cycle know the same one in the end.
    """
    # `ring` is one integer for a lane of a collective, the same at all of its members: `match` is
    # a number that all operations of one collective share.
    step = context.step
    n_members = context.group_size[step.group[operation]]
    ports_per_gpu = context.job.network.ports_per_gpu
    ring = step.match[operation].astype(np.int64) * ports_per_gpu + lane

    # The entry that each one leads to: same ring, and the rank that is reached. One that leads
    # nowhere, or out of its group, has a key that no entry has; it leads to itself from here on.
    entries = np.arange(len(operation))
    key = ring * step.n_ranks + step.rank[operation]
    order = np.argsort(key)
    next_key = np.where(reached >= 0, ring * step.n_ranks + reached, -1)
    next_entry = order[np.searchsorted(key[order][:-1], next_key)]
    leads_inside = key[next_entry] == next_key
    next_entry = np.where(leads_inside, next_entry, entries)
    reached_once = np.bincount(next_entry, minlength=len(entries)) == 1

    # The number of rounds is enough to go once round the largest group: with 8 members it is 4,
    # and 2**4 steps are more than 8.
    lowest = entries
    for _ in range(int(n_members.max(initial=1)).bit_length()):
        lowest = np.minimum(lowest, lowest[next_entry])
        next_entry = next_entry[next_entry]
    _, ring_number, n_entries = np.unique(ring, return_inverse=True, return_counts=True)
    ring_number = ring_number.reshape(-1)
    lowest_of_ring = np.full(len(n_entries), len(entries))
    np.minimum.at(lowest_of_ring, ring_number, entries)

    # One cycle through all members: on each entry's cycle the lowest entry is the lowest one of
    # the whole ring, and there are as many entries as members.
    one_cycle = lowest == lowest_of_ring[ring_number]
    has_all = n_entries[ring_number] == n_members
    makes_ring = leads_inside & reached_once & one_cycle & has_all
    context.refuse(ONE_RING, operation, ~makes_ring, step.group[operation], np.nan)


def _check_durations(context: Context, rail: Rail, operations: Places, hops: Hops) -> None:
    """Check that each operation lasts as long as its bytes need on their way.

    Bytes go at the rate of the hop with fewest ports, each message has the latency of the longest
    route, of all members, and data rest while the rail is dark.
    """
    step = context.step
    work = measure_work(context.job, operations)
    start_s = context.plan.start_s[operations]
    end_s = context.plan.end_s[operations]
    match = step.match[operations]

    # By communication (its number in `match`), over all members: the ports of the hop with the
    # fewest ports, and the hops of the longest route.
    n_matches = int(match.max(initial=-1)) + 1
    width = np.bitwise_count(hops.ports.astype(np.uint64)).astype(np.int64)
    narrowest = np.full(n_matches, rail.ports_per_gpu)
    np.minimum.at(narrowest, step.match[hops.operation], width)
    hops_per_operation = np.bincount(
        np.searchsorted(operations, hops.operation), minlength=len(operations)
    )
    most_hops = np.zeros(n_matches, np.int64)
    np.maximum.at(most_hops, match, hops_per_operation)

    # Around a ring of n members the parts of an all-to-all go 1, 2, ... or n - 1 hops, n / 2 on
    # average, and a circuit carries as many times the bytes that a member sends.
    n_members = context.group_size[step.group[operations]]
    around = np.where(step.kind[operations] == ALL_TO_ALL, n_members / 2, 1.0)
    rate = narrowest[match] * context.job.network.port_bytes_per_s
    send_s: NDArray[np.float64] = work.sent_bytes * around / rate
    needed_s = send_s + work.latency_s * most_hops[match] + rail.dark_s(start_s, end_s)
    wrong = np.abs(end_s - start_s - needed_s) > context.slack_s
    context.refuse(LASTS_AS_BYTES_NEED, operations, wrong, end_s - start_s, needed_s)


def _refuse_hops(context: Context, rule: str, hops: Hops, wrong: Places) -> None:
    """Refuse hops by their places in `hops`, each once."""
    for hop in np.unique(wrong)[:MOST_TOLD].tolist():
        where = context.step.describe(int(hops.operation[hop]))
        got = f"from rank {hops.rank[hop]}, over ports {hops.ports[hop]:b}"
        next_rank = int(hops.next_rank[hop])
        expected = f"to rank {next_rank}" if next_rank >= 0 else "to whom the data are for"
        context.findings.refuse(rule, where, got, expected)

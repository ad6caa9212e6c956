"""The replay of a rail plan: times, switches, circuits of each operation, and where data go.

The order: the step as the job says it (transfers, work, order); a rail and its circuits over time;
collectives in rounds and all-to-alls; data along routes that stay; chords; the rules of time;
rails used together; and the plan as a whole, which `replay_plan` checks.

Words of this room; an operation is what one rank does in a communication, and *rides* a rail if
that goes over it. A *row* is the place of an operation in the list that is checked:

Spell
    A time in which a port of a switch keeps one circuit, or none. The spells of a port have
    consecutive numbers; its last one has no end.
Part
    The data that one member of an all-to-all sends to one other.
Hop
    A rank that sends data of an operation: its own rank, and those that forward (*relays*).
Round
    A section of a collective in which some members send, each to one other. In an all-to-all in
    rounds each rank has a circuit to each other one for a while.
Stride
    How many places further on in its group a circuit leads, counted on a circle: from place 3 to
    place 1 of 8 it is 6.
Stage
    A section of an all-to-all in which the circuits of all members have one stride; parts may take
    several hops.
Chord
    A circuit of fixed stride that stays for a whole all-to-all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import IDLE
from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import (
    ChordRoutes,
    RailPlan,
    RailTimeline,
    ranks_of_rails,
)
from optmatch.problems.rails.training.layout import place_ranks
from optmatch.problems.rails.training.network import MOST_PORTS
from optmatch.problems.rails.training.step import ALL_TO_ALL, COMPUTE, OPERATIONS, RECV, SEND, Step
from optmatch.verify.light import check_light, find_staying
from optmatch.verify.report import Findings

MOST_TOLD = 5
"""The most places of one rule that are named; further ones are counted."""
_ROUNDING = 512
"""By how many units in the last place two sums of the same numbers may differ.

Each of a hundred additions rounds by half a unit at most, of the largest time that it meets: one
that is counted back from a later time is off by some units of that.
"""
_MOST_ROUNDING = 0.02
"""How much of the longest operation may be lost in rounding.

A step may then last some 1.7e11 times as long as its longest operation.
"""


class Context(NamedTuple):
    """A plan in its replay: the job, its step, the plan, and the findings so far.

    With pooled rails the job is the one in which each GPU has shares of all ports of its server.
    Arrays of `step` and of `plan` are by operation: in ``step.match`` all operations of one
    communication have the same number, and ``plan.ports`` has the ports of the GPU as bits. Rows
    of ``plan.relays`` are an operation, a rank that forwards its data, and the ports of that rank.
    """

    job: RailJob
    step: Step
    plan: RailPlan
    findings: Findings

    def refuse_operations(
        self,
        rule: str,
        operations: NDArray[np.int64],
        wrong: NDArray[np.bool_],
        got: ArrayLike,
        expected: ArrayLike,
    ) -> None:
        """Add a violation for each operation with a wrong row; from `MOST_TOLD` on, their number.

        By row: an operation, which may have several rows; whether it is `wrong`; what it has, and
        what was expected, NaN where no number says that. Nothing is added if no row is wrong.
        """
        if not wrong.any():
            return
        # Each operation is named once, with the numbers of its first wrong row.
        named, first_row = np.unique(operations[wrong], return_index=True)
        got_wrong = np.broadcast_to(got, wrong.shape)[wrong]
        expected_wrong = np.broadcast_to(expected, wrong.shape)[wrong]
        for operation, row in zip(named.tolist()[:MOST_TOLD], first_row, strict=False):
            where = self.step.describe(operation)
            self.findings.refuse(rule, where, float(got_wrong[row]), float(expected_wrong[row]))
        if len(named) > MOST_TOLD:
            n_further = len(named) - MOST_TOLD
            self.findings.refuse(rule, f"{n_further} more operations", "the same", "none")


def rounding(times: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much each time may differ from another sum of the same times."""
    last_place: NDArray[np.float64] = np.spacing(np.abs(times))
    return _ROUNDING * last_place


def count_members(step: Step) -> NDArray[np.int64]:
    """Return the number of ranks of each group; the last entry, 1, is that of group -1."""
    return np.array([*(len(group.ranks) for group in step.groups), 1])


class MemberSend(NamedTuple):
    """One send in a round of a collective.

    Members are named by their places in the group, from 0: `sender` sends to `receiver`.
    """

    sender: int
    """By its place in the group."""
    receiver: int
    share: float
    """The part of the size of the operation that is sent."""


Transfers = list[MemberSend]
"""The sends of one round; each member sends to one other at most, and all shares are equal."""


def list_transfers(algorithm: str, kind: str, n: int) -> list[Transfers]:
    """List who sends to whom in each round of a collective, by places in the group.

    `algorithm` is "halving", "tree" or "ring", `kind` the name of a collective, and `n` the number
    of members, a power of two for halving. Halving serves all-reduce, all-gather and
    reduce-scatter, a tree all-reduce and broadcast; the list is empty for all else and for fewer
    than 3 members. An all-gather of four members by halving has two rounds: 0 and 1, and 2 and 3,
    send each other one shard (a share of 1 of the size); then 0 and 2, and 1 and 3, two (2).
    """
    if n < 3:
        return []
    bits = range((n - 1).bit_length())
    if algorithm == "halving":
        # Shares are parts of the size of the operation, which is the shard of a rank in an
        # all-gather, else the whole buffer. In round `bit` of a doubling, a member sends all that
        # it has, 2**bit shards, to the member whose place differs in this bit (``rank ^ 1 << bit``
        # flips it); a halving is the reverse.
        shard = 1.0 if kind == "all-gather" else 1.0 / n
        doubling = [
            [MemberSend(rank, rank ^ 1 << bit, shard * 2**bit) for rank in range(n)]
            for bit in bits
        ]
        halving = doubling[::-1]
        rounds = {
            "reduce-scatter": halving,
            "all-gather": doubling,
            "all-reduce": halving + doubling,
        }
        return rounds.get(kind, [])

    # A child sends all it has summed to its parent, one level of the tree in each round: of 8
    # members first 1, 3, 5 and 7 send to 0, 2, 4 and 6, then 2 and 6 to 0 and 4, then 4 to 0.
    if algorithm == "tree":
        up = [
            [MemberSend(child, child - 2**bit, 1.0) for child in range(2**bit, n, 2 ** (bit + 1))]
            for bit in bits
        ]
        down = [
            [MemberSend(sent.receiver, sent.sender, sent.share) for sent in level]
            for level in up[::-1]
        ]
        return {"all-reduce": up + down, "broadcast": down}.get(kind, [])
    return []


class InRounds(NamedTuple):
    """Operations that are done in the same rounds.

    They are of one kind, in groups of equally many members; ``rounds[round]`` lists the sends
    between places of such a group.
    """

    operations: NDArray[np.int64]
    """Indices of the operations in ``job.step()``, ascending."""
    rounds: list[Transfers]


def list_in_rounds(job: RailJob, operations: NDArray[np.int64]) -> Iterator[InRounds]:
    """List those of some operations that are collectives in rounds, grouped by their rounds.

    `operations` are indices of ``job.step()``, ascending. Among two members there is but one way
    to send, which is that around a ring, so groups of two are left out.
    """
    step = job.step()
    for dimension, algorithm in job.collectives.items():
        # The number of members of each group, 0 if its collectives use no such algorithm or go
        # over no rail; the last entry is for computation, which has group -1.
        n_joined = [
            len(group.ranks) if group.rail >= 0 and group.dimension == dimension else 0
            for group in step.groups
        ]
        n_members = np.array([*n_joined, 0])[step.group[operations]]
        for n in np.unique(n_members[n_members > 2]).tolist():
            # The kinds of operations in groups of n members; all others are marked by `COMPUTE`,
            # which is the kind of no collective.
            kinds = np.where(n_members == n, step.kind[operations], COMPUTE)
            for kind in np.unique(kinds[kinds != COMPUTE]).tolist():
                rounds = list_transfers(algorithm, OPERATIONS[kind], n)
                if rounds:
                    yield InRounds(operations[kinds == kind], rounds)


# The work of operations, and the order in which each rank has to do them
#
# A *stream* is a queue of a rank, as in CUDA: its operations are done one after the other.

Column = NDArray[np.float64]


class Work(NamedTuple):
    """The work of operations; an entry for each. Each member sends `sent_bytes` bytes in all."""

    sent_bytes: Column
    latency_s: Column
    """The latency of all messages, one after the other."""
    full_s: Column
    """How long the operation lasts with all links up; off the rails it lasts just as long."""


def measure_work(job: RailJob, operations: NDArray[np.int64]) -> Work:
    """Compute what each rank sends in operations, and how long these last with all circuits up.

    `operations` are indices of ``job.step()``, ascending; the result has an entry for each. A
    collective goes around a ring of its members unless the job names another algorithm (such as
    recursive halving), which has fewer rounds. Example: an all-reduce of 8 MB among 4 members
    sends 2 * 3 / 4 * 8 = 12 MB from each, in 6 messages; with 2 ports of 50 GB/s and 2 us for a
    message it lasts 120 + 12 us on a rail. Inside a server its bytes go at the rate of the links
    there (scale-up), with the latency of those.
    """
    step = job.step()
    network = job.network
    kinds = step.kind[operations]
    size_bytes = step.size_bytes[operations]
    n_members = count_members(step)[step.group[operations]]

    # By kind and number of members, around rings: the bytes that a member sends for each byte of
    # the size, and how many messages these are. The size of an all-gather is the shard of one
    # rank, of which each member passes on n - 1; that of all others is the whole buffer of a rank.
    # Collectives in rounds (such as recursive halving) then replace their entries. Computation
    # sends nothing.
    n = np.maximum(np.arange(1 + n_members.max(initial=1)), 1)
    one = np.ones(len(n))
    of_kind = {
        "compute": (0 * one, 0 * one),
        "all-reduce": (2 * (n - 1) / n, 2 * (n - 1)),
        "all-gather": (n - 1, n - 1),
        "reduce-scatter": ((n - 1) / n, n - 1),
        "all-to-all": ((n - 1) / n, n - 1),
        "broadcast": (one, one),
        "send": (one, one),
        "recv": (one, one),
    }
    share, messages = np.stack([of_kind[name] for name in OPERATIONS], axis=1)
    sent_bytes = share[kinds, n_members] * size_bytes
    n_messages = messages[kinds, n_members]

    # In rounds a member sends once in each, and all sends of a round have the same share of the
    # size: that of the first one stands for all. Each round adds the latency of one message.
    for group in list_in_rounds(job, operations):
        rows_in_rounds = np.searchsorted(operations, group.operations)
        share_of_all = sum(transfers[0].share for transfers in group.rounds)
        sent_bytes[rows_in_rounds] = share_of_all * size_bytes[rows_in_rounds]
        n_messages[rows_in_rounds] = len(group.rounds)

    # Seconds: messages come one after the other, and bytes go at the rate of all ports together.
    on_rail = step.rail[operations] >= 0
    message_s = np.where(on_rail, network.latency_on_rails_s, network.latency_s)
    latency_s = n_messages * message_s
    inside_s = sent_bytes / network.scale_up_bytes_per_s + latency_s
    rate = network.port_bytes_per_s * network.ports_per_gpu
    full_s = np.where(on_rail, sent_bytes / rate + latency_s, inside_s)
    full_s = np.where(kinds == COMPUTE, step.duration_s[operations], full_s)
    return Work(sent_bytes, latency_s, full_s)


class Precedence(NamedTuple):
    """Pairs of operations, by their places in a list: one ends before the other starts."""

    before: NDArray[np.int64]
    """``before[pair]``: the place of the operation that ends first."""
    after: NDArray[np.int64]
    """``after[pair]``: the place of the operation that starts then."""


def list_before(step: Step, operations: NDArray[np.int64]) -> Precedence:
    """Pair each operation with those that have to end before it starts.

    These are its dependencies, and the operation before it in the same stream of its rank. Streams
    are: computation; the collectives of a dimension inside servers; those on rails; the messages
    to each other rank; and those from each. `operations` are all those of some ranks, ascending; a
    *row* is a place among them.
    """
    # ``stream[row]``: twice the number of a dimension and queue, and 1 more on rails. Computation
    # has group -1, the last entry of `stream_of_group`: its number comes after those of all names.
    names = sorted({(group.dimension, group.stream) for group in step.groups})
    numbers = [names.index((group.dimension, group.stream)) for group in step.groups]
    stream_of_group = np.array([*numbers, len(names)])
    stream = 2 * stream_of_group[step.group[operations]] + (step.rail[operations] >= 0)

    # Messages have a stream for each direction and peer. Operations stand rank after rank, each in
    # the order of its program; a stable sort by streams keeps that, and neighbours make pairs.
    is_message = np.isin(step.kind[operations], [SEND, RECV])
    direction = np.where(is_message, step.kind[operations], -1)
    peer = np.where(is_message, step.peer[operations], -1)
    keys = np.stack([direction, peer, stream])
    order = np.lexsort(keys)
    same_stream = (np.diff(keys[:, order], axis=1) == 0).all(axis=0)
    same_stream &= np.diff(step.rank[operations[order]]) == 0

    # Dependencies: those of operation k are ``dep[dep_start[k]:dep_start[k + 1]]``. `entry` lists
    # the places in `dep` of all of them. If two operations have the places 4 to 5 and 9 to 11, it
    # is [4, 5, 9, 10, 11], and `dependent` is [0, 0, 1, 1, 1].
    first = step.dep_start[operations]
    n_dependencies = step.dep_start[operations + 1] - first
    dependent = np.repeat(np.arange(len(operations)), n_dependencies)
    n_earlier_rows = np.cumsum(n_dependencies) - n_dependencies
    entry = np.repeat(first - n_earlier_rows, n_dependencies) + np.arange(len(dependent))
    prerequisite = np.searchsorted(operations, step.dep[entry])
    return Precedence(
        before=np.concatenate([order[:-1][same_stream], prerequisite]),
        after=np.concatenate([order[1:][same_stream], dependent]),
    )


# One rail in the replay: the matching of its switch over time, and where each circuit leads
#
# A *state* is one matching of the switch, from the start of its reconfiguration to that of the
# next one. GPUs of a rail are numbered in the order of their ranks; port p of GPU g is the
# *GPU port* ``g * ports_per_gpu + p``, and the switch has a port for each of them.


class UsedPorts(NamedTuple):
    """The ports that some operations use: an entry for each port of each operation."""

    row: NDArray[np.int64]
    """The place of the operation in the list that was asked for."""
    number: NDArray[np.int64]
    """The number of the port at its GPU."""
    port: NDArray[np.int64]
    """The port of the switch."""


class Arrival(NamedTuple):
    """Where circuits lead."""

    rank: NDArray[np.int64]
    """The rank at which they arrive; -1 without a circuit."""
    number: NDArray[np.int64]
    """The number of the port there, at its GPU."""


class Rail(NamedTuple):
    """The circuits of one rail over a step.

    A *spell* is the time for which a port keeps its circuit, or has none. The spells of a port
    stand together, in the order of time. A change takes `delay_s` seconds, and a GPU has
    `ports_per_gpu` ports.
    """

    ranks: NDArray[np.int64]
    """The ranks on the rail, ascending: their GPUs are numbered in this order."""
    state_starts_s: NDArray[np.float64]
    """``state_starts_s[state]``: when the reconfiguration to it starts."""
    spell_key: NDArray[np.int64]
    """``spell_key[spell]``: the port times the number of states, plus its first state."""
    since_s: NDArray[np.float64]
    """``since_s[spell]``: when the change to the circuit began; -inf if it was there."""
    until_s: NDArray[np.float64]
    """``until_s[spell]``: when the circuit is given up; inf if it stays."""
    gpu_port: NDArray[np.int64]
    """``gpu_port[spell]``: where the circuit arrives, as GPU times ports plus port; -1 if dark."""
    switch_port: NDArray[np.int64]
    """``switch_port[gpu port]``: the port of the switch."""
    ports_per_gpu: int
    stops_s: NDArray[np.float64]
    """When all circuits of the rail go dark for a reconfiguration; empty if only some do."""
    stops_end_s: NDArray[np.float64]
    """When each stop ends, or the next one begins, which may be sooner on rails that are used
    together: the time that two stops have in common counts once."""
    delay_s: float

    def list_ports(self, ranks: NDArray[np.integer], masks: NDArray[np.integer]) -> UsedPorts:
        """List the ports that operations use, an entry for each port of each operation.

        With 2 ports a GPU, an operation on GPU 5 with the mask 0b11 has the ports 10 and 11,
        counted over all GPUs; the switch may give these other numbers.
        """
        bits = masks[:, None] >> np.arange(self.ports_per_gpu) & 1
        row, number = np.nonzero(bits)
        gpu = np.searchsorted(self.ranks, ranks[row])
        return UsedPorts(row, number, self.switch_port[gpu * self.ports_per_gpu + number])

    def spell_at(self, time_s: NDArray[np.float64], port: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the spell of each port of the switch at its time, entry by entry.

        Before the first state begins, they are those of the first state.
        """
        # The spell is the last one of the port that begins no later than the state of that time.
        # Keys of spells are port times the number of states plus their first state, ascending.
        n_states = len(self.state_starts_s)
        n_started = np.searchsorted(self.state_starts_s, time_s, side="right")
        state = np.maximum(n_started - 1, 0)
        return np.searchsorted(self.spell_key, port * n_states + state, side="right") - 1

    def arrival(self, spell: NDArray[np.int64]) -> Arrival:
        """Return where the circuits of some spells lead."""
        gpu_port = self.gpu_port[spell]
        rank = np.where(gpu_port < 0, -1, self.ranks[gpu_port // self.ports_per_gpu])
        return Arrival(rank, gpu_port % self.ports_per_gpu)

    def up_s(self, spell: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return from when an operation may use the circuits of some spells.

        It is one delay after a spell begins. Where the switch stops as a whole, the operation may
        start during the stop, as that is part of its time.
        """
        delay_s = 0.0 if len(self.stops_s) else self.delay_s
        return self.since_s[spell] + delay_s

    def dark_before(self, time_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up how long the whole rail is dark until some times, `delay_s` from each stop on.

        All stops so far count, less what is still to come of the last one. With stops at 4 s and
        9 s of 2 s each, the rail has been dark for 0 s at 3 s, 2 s at 8 s, 3 s at 10 s; with stops
        at 4 s and 5 s, for 3 s at 8 s.
        """
        n_stops = np.searchsorted(self.stops_s, time_s, side="right")
        after_stops_s = np.append(0.0, np.cumsum(self.stops_end_s - self.stops_s))
        to_come_s = np.append(-np.inf, self.stops_end_s)[n_stops] - time_s
        return after_stops_s[n_stops] - np.maximum(to_come_s, 0.0)


def _open_rail(job: RailJob, ranks: NDArray[np.int64], timeline: RailTimeline) -> Rail:
    """Find the spells of all ports of a rail's switch.

    `ranks` are those on the rail, ascending; `timeline` has the states of its switch. If a port
    leads to 4, 4 and 7 in three states that begin at 0, 3 and 5 s, it has two spells: to 4 until
    5 s, and to 7 from then on.
    """
    network = job.network
    matchings = timeline.matchings
    starts_s = timeline.starts_s
    n_states, n_ports = matchings.shape

    # A spell begins in the first state, and whenever the port changes its circuit. Where only
    # circuits that change wait, one begins with a new route, too; where the whole rail stops,
    # routes make no difference. `find_staying` tells by state and port whether the circuit of the
    # state before stays, False in the first state; transposed, all spells of a port stand
    # together, in the order of time.
    all_stop = network.switching == "all-stop"
    cell_states = None if all_stop else timeline.cell_states
    stops_s = starts_s[1:] if all_stop else starts_s[:0]
    next_stop_s = np.append(stops_s, np.inf)[1:]
    port, state = np.nonzero(~find_staying(job.fabric, matchings, cell_states).T)
    since_s = np.where(state > 0, starts_s[state], -np.inf)
    until_s = np.append(since_s[1:], np.inf)[: len(since_s)]

    # A spell ends when the next one of the port begins. Where that is at -inf, it belongs to the
    # next port already, and the spell is the last one of its port.
    until_s[np.isneginf(until_s)] = np.inf

    # The GPUs have the first ports of the switch that work.
    live_ports = np.arange(n_ports) if job.fabric is None else job.fabric.live_ports
    switch_port = live_ports[: len(ranks) * network.ports_per_gpu]
    gpu_port_of = np.full(n_ports + 1, -1)  # by port of the switch; the last entry is for `IDLE`
    gpu_port_of[switch_port] = np.arange(len(switch_port))
    return Rail(
        ranks=ranks,
        state_starts_s=starts_s,
        spell_key=port * n_states + state,
        since_s=since_s,
        until_s=until_s,
        gpu_port=gpu_port_of[matchings[state, port]],
        switch_port=switch_port,
        ports_per_gpu=network.ports_per_gpu,
        stops_s=stops_s,
        stops_end_s=np.minimum(stops_s + network.delay_s, next_stop_s),
        delay_s=network.delay_s,
    )


def _check_timeline(context: Context, number: int, n_gpus: int) -> bool:
    """Check the states of a switch and their times, before circuits are looked at.

    The switch has the right number of ports (if not, the check ends here and returns False) and
    its rail fits it; only ports of GPUs have circuits; the last state is the first one; each state
    has the time to be set up; and cells make these circuits. `number` is that of the timeline in
    ``plan.rails``, and `n_gpus` how many GPUs its rails have each.
    """
    # As many ports as GPUs need or, of a fabric that is given, as it has.
    job = context.job
    findings = context.findings
    timeline = context.plan.rails[number]
    matchings = timeline.matchings
    where = f"rails[{number}]"
    n_needed = n_gpus * job.network.ports_per_gpu
    n_ports = n_needed if job.fabric is None else job.fabric.n_ports
    width = matchings.shape[1]
    if not findings.expect("the switch has its ports", f"{where}.matchings", width, n_ports):
        return False
    if job.network.radix is not None and n_needed > job.network.radix:
        findings.refuse("a rail fits its switch", where, n_needed, job.network.radix)

    # The GPUs have the first ports of the switch that work. All others are foreign: no circuit may
    # leave them or lead to them. ``foreign[port]`` is True for those.
    live_ports = np.arange(n_ports) if job.fabric is None else job.fabric.live_ports
    foreign = np.isin(np.arange(n_ports), live_ports[:n_needed], invert=True)
    # ``matchings[state, port]`` is where a port leads to. An idle one, -1, looks up the last port;
    # that does not count.
    wrong = (matchings != IDLE) & (foreign | foreign[matchings])
    findings.expect_none(
        "only ports of GPUs have circuits",
        wrong,
        f"{where}.matchings[{{}}, {{}}]",
        matchings,
        IDLE,
        most=MOST_TOLD,
    )

    # The step repeats: at its beginning no circuit has the time to get another route. For
    # the change from the last state to the first one, row 1 of `find_staying` tells which ports
    # keep theirs.
    last_and_first = np.array([-1, 0])
    cell_states = timeline.cell_states
    if cell_states is not None:
        cell_states = cell_states[last_and_first]
    if not find_staying(job.fabric, matchings[last_and_first], cell_states)[1].all():
        findings.refuse(
            "a step ends with the circuits it begins with",
            f"{where}.matchings[-1]",
            "other circuits, or routes of theirs",
            "those of the first state",
        )

    _check_state_times(context, timeline, where)
    _check_port_times(context, timeline, where)
    _check_cell_states(context, timeline, where)
    return True


def _check_state_times(context: Context, timeline: RailTimeline, where: str) -> None:
    """Check that states are asked for before they are set up, and that the first one is there.

    Where the whole switch stops, changes are one delay apart at least. `where` names the timeline
    in messages.
    """
    findings = context.findings
    asked_s = timeline.asked_s
    starts_s = timeline.starts_s
    for name, first_s in (("starts_s", starts_s[0]), ("asked_s", asked_s[0])):
        findings.expect("the first state is there", f"{where}.{name}[0]", float(first_s), 0.0)
    wrong = (asked_s < 0) | (asked_s > starts_s + rounding(starts_s))
    findings.expect_none(
        "a state is asked for before it is set up",
        wrong,
        f"{where}.asked_s[{{}}]",
        asked_s,
        "from 0 to its start",
        most=MOST_TOLD,
    )

    # ``earliest_s[state]`` is one delay after the start of the state before. The first two states
    # may start at any time: the first one is there, and no change comes before the second one. (A
    # rail of one state has an entry too many, which is cut off.)
    network = context.job.network
    if network.switching == "all-stop":
        earliest_s = np.append([-np.inf, -np.inf], starts_s[1:-1] + network.delay_s)
        early = starts_s < earliest_s[: len(starts_s)] - rounding(starts_s)
        findings.expect_none(
            "reconfigurations follow one another",
            early,
            f"{where}.starts_s[{{}}]",
            starts_s,
            earliest_s,
            most=MOST_TOLD,
        )


def _check_port_times(context: Context, timeline: RailTimeline, where: str) -> None:
    """Check that no port gets another circuit, or a new route of its own, before its last is up.

    A circuit is up one delay after its state starts: two changes of a port are at least so far
    apart. This holds for the ports that send and for those that receive. `where` names the
    timeline in messages.
    """
    matchings = timeline.matchings
    delay_s = context.job.network.delay_s
    stays = find_staying(context.job.fabric, matchings, timeline.cell_states)
    # An entry for each new circuit: the state that it comes with, and the port that sends. In the
    # first state all circuits are there.
    state, port = np.nonzero(~stays[1:] & (matchings[1:] != IDLE))
    state += 1
    for side, side_ports in (("from", port), ("to", matchings[state, port])):
        # Sorted by port, then by state, which is by time: neighbours of one port are compared.
        order = np.lexsort([state, side_ports])
        ports = side_ports[order]
        states = state[order]
        began_s = timeline.starts_s[states]
        is_early = np.diff(began_s) < delay_s - rounding(began_s[1:])
        early = (np.diff(ports) == 0) & is_early
        for row in np.flatnonzero(early)[:MOST_TOLD].tolist():
            context.findings.refuse(
                "a port gets no new circuit before its last one is up",
                f"{where}.starts_s[{states[row + 1]}], circuit {side} port {ports[row]}",
                float(began_s[row + 1]),
                float(began_s[row] + delay_s),
            )


def _check_cell_states(context: Context, timeline: RailTimeline, where: str) -> None:
    """Check that circuits come back where ports are bidirectional, and that light follows them.

    ``matchings[state, port]`` of the timeline is the port to which another one leads, and
    ``cell_states[state, cell]`` how cells are set meanwhile; it is None without cells. `where`
    names the timeline in messages; broken rules are noted in the findings.
    """
    matchings = timeline.matchings
    states = timeline.cell_states
    fabric = context.job.fabric
    findings = context.findings

    # Mutual circuits: the partner of a bidirectional port's partner is the port itself, which is
    # not its own partner. If port 2 leads to port 5, port 5 has to lead to port 2. An idle port,
    # -1, looks up the last one, which does not count.
    if fabric is not None and fabric.bidirectional:
        port_itself = np.broadcast_to(np.arange(matchings.shape[1]), matchings.shape)
        partner_of_partner = np.take_along_axis(matchings, matchings, 1)
        mutual = (partner_of_partner == port_itself) & (matchings != port_itself)
        if not findings.expect_none(
            "circuits of bidirectional ports are mutual",
            (matchings != IDLE) & ~mutual,
            f"{where}.matchings[{{}}, {{}}]",
            matchings,
            "a port that comes back",
        ):
            return  # no light can be traced

    # Cells: an ideal switch (no fabric, or one without cells) has no states of any, and all others
    # have one for each cell and matching.
    if fabric is None or fabric.graph is None:
        findings.expect("an ideal switch has no cells", where, states, None)
    else:
        shape: tuple[int, ...] | None = None if states is None else states.shape
        expected = (len(matchings), fabric.n_cells)
        if not findings.expect("every cell has a state", f"{where}.cell_states", shape, expected):
            return

    # Light follows the circuits through the cells. Without cells only the losses of circuits are
    # compared with link budgets, where the fabric states any.
    if fabric is not None:
        check_light(fabric, matchings, states, findings)


# Collectives whose circuits change: in rounds of sends, and all-to-alls
#
# An all-to-all of more than two is done in one of three ways. *In rounds* each member meets all
# others, one after the other or over several ports at once. *In stages* the circuits of all
# members lead the same number of places further on, and parts take several hops. Otherwise it
# goes around a ring that stays.

EVERYONE_TO_EVERYONE = "in an all-to-all everyone sends to everyone else"
LASTS_AS_BYTES_NEED = "an operation lasts as long as its bytes need on its ports"

Places = NDArray[np.int64]
"""Numbers that count from 0: operations of the step, ranks, spells of a rail, rows of a list."""
Seconds = NDArray[np.float64]


# Collectives in rounds of sends: recursive halving, trees


def _check_in_rounds(context: Context, rail: Rail, group: InRounds) -> None:
    """Check collectives with the same rounds: that each round has its circuits, and when they end.

    All collectives of the group have the same algorithm and number of members, hence they are
    replayed together; ``group.operations`` has the operations of all their members. A round begins
    when the one before has ended and its circuits are up, and lasts as long as its longest send.
    Where a circuit is missing, the end is not compared. If the last round is over at 7 s, just
    when the rail stops until 9 s, both 7 s and 9 s are right; after any other round the next one
    begins at 7 s, and rests during the stop.
    """
    step = context.step
    plan = context.plan
    network = context.job.network

    # All operations of one collective, one of each member, have the same number in `match`; the
    # first of them tells its group and its start. ``members[collective, place]`` is a rank.
    _, first_part, collective_of = np.unique(
        step.match[group.operations], return_index=True, return_inverse=True
    )
    first_operation = group.operations[first_part]
    members = np.array([step.groups[g].ranks for g in step.group[first_operation].tolist()])

    # The ports over which they send, an entry for each port of each member: its collective, the
    # place of the member in the group, the bytes per second of all ports of the member together
    # (`rate`), and the spell of the port (the time for which it keeps a circuit), at first that of
    # the start.
    used = rail.list_ports(step.rank[group.operations], plan.ports[group.operations])
    operation = group.operations[used.row]
    collective_of_entry = collective_of.ravel()[used.row]
    place = _find_places(context, operation, step.rank[operation])
    rate = np.bincount(used.row)[used.row] * network.port_bytes_per_s

    # A first round of 0 s may use circuits that are given up just when it starts.
    start_s = plan.start_s[operation]
    spell = rail.spell_at(start_s - rounding(start_s), used.port)

    # By collective, when the rounds so far are over: before a stop of the rail that begins at just
    # that time (`now_s`), and after it (`end_after_stop_s`).
    lacks = np.zeros(len(spell), dtype=bool)  # by entry: whether a circuit was missing
    now_s = plan.start_s[first_operation].copy()
    end_after_stop_s = now_s
    for transfers in group.rounds:
        # The entries that send in this round (`sender`), and to which rank each (`receiver`).
        # ``receiver_of_place[place]`` is -1 for a member that does not send.
        receiver_of_place = np.full(members.shape[1], -1)
        for transfer in transfers:
            receiver_of_place[transfer.sender] = transfer.receiver
        receiving_place = receiver_of_place[place]
        sender = np.flatnonzero(receiving_place >= 0)
        collective = collective_of_entry[sender]
        receiver = members[collective, receiving_place[sender]]

        # All parts of a round are equally large, and the ports of a member share its part.
        size_bytes = transfers[0].share * step.size_bytes[operation[sender]]
        lasts_s = size_bytes / rate[sender] + network.latency_on_rails_s

        # The round waits for the circuits of all who send: for each the first one that leads to
        # its receiver and lasts long enough; its port goes on from there in later rounds. A
        # circuit that is missing holds up nobody.
        earliest_end_s = now_s[collective] + lasts_s
        earliest_end_s -= rounding(earliest_end_s)
        in_use = _seek_circuit(rail, spell[sender], receiver, earliest_end_s)
        spell[sender] = in_use
        missing = rail.arrival(in_use).rank != receiver
        up_s = np.where(missing, -np.inf, rail.since_s[in_use] + rail.delay_s)
        np.maximum.at(now_s, collective, up_s)

        # The round lasts as long as its longest send. Its end is worked out twice. `_advance`
        # counts the stops that begin earlier than the end by more than the slack it is given: with
        # -slack_s also one that begins just then, with slack_s only earlier ones. The next round
        # goes on from the second end; the first is overwritten in each round but the last.
        round_s = np.zeros(len(members))
        np.maximum.at(round_s, collective, lasts_s)
        slack_s = rounding(now_s + round_s)
        end_after_stop_s = _advance(rail, now_s, round_s, -slack_s)
        now_s = _advance(rail, now_s, round_s, slack_s)

        # A circuit has to stay to the end of the round.
        missing |= rail.until_s[in_use] < now_s[collective] - rounding(now_s)[collective]
        lacks[sender[missing]] = True
    context.refuse_operations(
        "in each round of a collective its circuits are there",
        operation,
        lacks,
        plan.start_s[operation],
        np.nan,
    )

    # The end is compared only for collectives in which no circuit is missing.
    replayed = ~np.isin(collective_of_entry, collective_of_entry[lacks])
    compared = collective_of_entry[replayed]
    _check_last_rounds(
        context, rail, operation[replayed], now_s[compared], end_after_stop_s[compared]
    )


def _check_last_rounds(
    context: Context, rail: Rail, operation: Places, end_s: Seconds, end_after_stop_s: Seconds
) -> None:
    """Check that collectives in rounds end with the last round; all arrays are by operation.

    If the whole rail stops just at the end of the last round, the plan may say that the collective
    ends before the stop or after it, also after several stops in a row: from `end_s` to
    `end_after_stop_s`.
    """
    # A plan that is later than `end_s` says the end of one of these stops: with an end at 7 s and
    # a stop of 2 s then, 8.9 s is compared with 9 s.
    planned_s = context.plan.end_s[operation]
    stops_end_s = np.append(rail.stops_end_s, np.inf)
    next_end_s = stops_end_s[np.searchsorted(stops_end_s, planned_s - rounding(planned_s))]
    is_later = planned_s > end_s + rounding(planned_s)
    expected_s = np.where(is_later, np.minimum(next_end_s, end_after_stop_s), end_s)
    off = np.abs(planned_s - expected_s) > rounding(planned_s)
    context.refuse_operations(
        "a collective ends with the last of its rounds", operation, off, planned_s, expected_s
    )


def _seek_circuit(rail: Rail, spell: Places, receiver: Places, earliest_end_s: Seconds) -> Places:
    """Find for each port its next spell that leads to a certain rank and lasts long enough.

    By port, `spell` is the first spell that counts, `receiver` the rank that it has to lead to,
    and `earliest_end_s` until when it has to last, in seconds. Returns the spell that was found,
    or the last one of the port if none fits. The next spell of a port has the next number.
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


def _advance(rail: Rail, begin_s: Seconds, lasts_s: Seconds, slack_s: Seconds) -> Seconds:
    """Return when work ends that rests during each stop of the whole rail.

    All arrays have an entry for each piece of work, which begins at `begin_s` and needs `lasts_s`
    while the rail is lit. With stops at 4 s and 9 s of 1 s each, work of 6 s that begins at 0 s
    ends at 7 s.

    `slack_s` decides about a stop that begins just when the work ends, up to rounding: as work of
    4 s in the example. If it is positive, the work has ended before the stop, at 4 s. If it is
    negative, the stop is waited for, and the work ends at 5 s.
    """
    # Times are read from a clock that rests while the rail is dark.
    light_end_s = begin_s - rail.dark_before(begin_s) + lasts_s

    # On that clock stops last no time, and come as much earlier as the rail was dark before: stops
    # at 4 s and 9 s of 1 s are at 4 s and 8 s. On the real clock each stop before the end adds its
    # time. Without the maximum, work of no length within a stop would end before it begins.
    light_stops_s = rail.stops_s - rail.dark_before(rail.stops_s)
    n_stops_before_end = np.searchsorted(light_stops_s, light_end_s - slack_s, side="left")
    light_end_s += np.append(0.0, rail.dark_before(rail.stops_end_s))[n_stops_before_end]
    return np.maximum(begin_s, light_end_s)


# All-to-alls


class Exchanges(NamedTuple):
    """Some all-to-alls on one rail, and the circuits with which they start.

    Arrays have an entry for each of `operations`, one for each member of each all-to-all; `spell`
    alone has one for each port of each operation, as `used` has, whose rows are places in
    `operations`.
    """

    operations: Places
    end_s: Seconds
    duration_s: Seconds
    dark_s: Seconds
    """How much of this time the whole rail is dark."""
    n_others: Places
    """The members besides the own rank."""
    n_ports: Places
    """The ports of this operation, which all send at once."""
    n_reached: Places
    """To how many ranks they lead at the start; if some are dark, one more."""
    n_rounds: Places
    """In how many rounds these ports meet all others: with 2 ports and 7 others it is 4."""
    part_s: Seconds
    """How long a round lasts: each port sends one part."""
    around_s: Seconds
    """How long the operation lasts around a ring, over all of its ports."""
    used: UsedPorts
    spell: Places
    """The spell of the port when the operation starts."""


def _check_exchanges(context: Context, rail: Rail, operations: Places) -> tuple[Places, Places]:
    """Check all-to-alls that are done in rounds, and tell which others are done in stages.

    `operations` are those of all-to-alls of more than two members on this rail, one for each
    member. Returns the operations in rounds and those in stages. All others go around rings, whose
    circuits stay, and are checked by `_check_routes`. This is inferred, as plans do not state it:

    - If one of its circuits changes before its end, it is in stages if its one port has fewer
      circuits than there are others, or its several ports begin with one rank, else in rounds.
    - If all of its circuits stay, it is one round (`_is_one_round`), or goes around a ring.
    """
    exchanges = _open_exchanges(context, rail, operations)

    # A circuit changes if the spell of some port at the start ends before the operation does.
    row = exchanges.used.row
    end_s = exchanges.end_s[row]
    is_given_up = rail.until_s[exchanges.spell] < end_s - rounding(end_s)
    changes = np.bincount(row[is_given_up], minlength=len(operations)) > 0
    in_rounds = changes | _is_one_round(exchanges)

    # An operation whose circuits change is in stages if they are too few for rounds. One port
    # alone meets all others if it has as many circuits from start to end; its spells have
    # consecutive numbers, and from 6 to 8 are three circuits. Several ports have too few if all
    # lead to one rank at the start: in rounds they would lead to different ones.
    last_spell = rail.spell_at(end_s - rounding(end_s), exchanges.used.port)
    n_circuits = np.zeros(len(operations), np.int64)
    np.maximum.at(n_circuits, row, 1 + last_spell - exchanges.spell)
    has_few_circuits = n_circuits < exchanges.n_others
    all_to_one = exchanges.n_reached == 1
    in_stages = changes & np.where(exchanges.n_ports > 1, all_to_one, has_few_circuits)
    in_rounds &= ~in_stages
    _check_rounds_of_exchanges(context, rail, exchanges, in_rounds)
    return operations[in_rounds], operations[in_stages]


def _open_exchanges(context: Context, rail: Rail, operations: Places) -> Exchanges:
    """Find the circuits with which all-to-alls start, and how long a round of each would last."""
    start_s = context.plan.start_s[operations]
    end_s = context.plan.end_s[operations]
    used = rail.list_ports(context.step.rank[operations], context.plan.ports[operations])
    n_ports = np.maximum(np.bincount(used.row, minlength=len(operations)), 1)
    spell = rail.spell_at((start_s + rounding(start_s))[used.row], used.port)

    # Each rank that an operation reaches counts once, whichever of its ports lead there. A pair of
    # row and rank is one integer; ranks begin at -1, for a port without a circuit.
    n_ranks = context.step.n_ranks + 1
    pairs = np.unique(used.row * n_ranks + rail.arrival(spell).rank + 1)
    n_reached = np.bincount(pairs // n_ranks, minlength=len(operations))

    # A round sends one part over each port, with an equal share of the latency of all messages:
    # 2 ports meet 7 others in 4 rounds, each with the latency of 7 / 4 messages.
    network = context.job.network
    n_others = count_members(context.step)[context.step.group[operations]] - 1
    n_rounds = -(-n_others // n_ports)  # rounded up
    sent_bytes = measure_work(context.job, operations).sent_bytes
    latency_s = n_others * network.latency_on_rails_s
    part_s = sent_bytes / n_others / network.port_bytes_per_s + latency_s / n_rounds

    # Around a ring of n members the ports of a member together carry n / 2 times the bytes that it
    # sends: parts make 1, 2, ... or n - 1 hops.
    ring_bytes = sent_bytes * (n_others + 1) / 2
    return Exchanges(
        operations=operations,
        end_s=end_s,
        duration_s=end_s - start_s,
        dark_s=rail.dark_before(end_s) - rail.dark_before(start_s),
        n_others=n_others,
        n_ports=n_ports,
        n_reached=n_reached,
        n_rounds=n_rounds,
        part_s=part_s,
        around_s=ring_bytes / n_ports / network.port_bytes_per_s + latency_s,
        used=used,
        spell=spell,
    )


def _is_one_round(exchanges: Exchanges) -> NDArray[np.bool_]:
    """Tell for each operation whether it is one round, if its circuits stay until it ends.

    In a single round each other member has a port that leads there: there are enough ports, they
    reach two ranks at least, and the operation lasts as long as one part needs.
    """
    lit_s = exchanges.duration_s - exchanges.dark_s
    lasts_a_part = np.abs(lit_s - exchanges.part_s) <= rounding(exchanges.end_s)

    # Around a ring it may last just as long: of 4 members with 6 ports each, a port carries 2 / 6
    # of the bytes that a member sends, and one part is 1 / 3 of them. The ranks that the ports
    # reach at the start then decide.
    may_be_ring = np.abs(lit_s - exchanges.around_s) <= rounding(exchanges.end_s)
    may_be_ring &= exchanges.n_reached < exchanges.n_others
    is_one_round: NDArray[np.bool_] = (exchanges.n_rounds == 1) & (exchanges.n_reached > 1)
    is_one_round &= lasts_a_part & ~may_be_ring
    return is_one_round


def _check_rounds_of_exchanges(
    context: Context, rail: Rail, exchanges: Exchanges, in_rounds: NDArray[np.bool_]
) -> None:
    """Check that all-to-alls in rounds serve all others, and last as long as their rounds.

    ``in_rounds[row]`` tells whether ``exchanges.operations[row]`` is in rounds; others are not
    looked at.
    """
    # Every other member has to be served by some circuit. `row` and the spells beside it have an
    # entry for each port of the operations in rounds.
    operations = exchanges.operations
    of_rounds = in_rounds[exchanges.used.row]
    row = exchanges.used.row[of_rounds]
    n_served = _count_served(
        context, rail, operations, exchanges.part_s, row, exchanges.spell[of_rounds]
    )
    wrong = in_rounds & (n_served != exchanges.n_others)
    context.refuse_operations(
        EVERYONE_TO_EVERYONE, operations, wrong, n_served, exchanges.n_others
    )

    # The time is that of all rounds and of the changes between them, one fewer than rounds. With a
    # switch that stops as a whole, the stops within the operation count instead.
    between_s = exchanges.dark_s if len(rail.stops_s) else (exchanges.n_rounds - 1) * rail.delay_s
    needed_s = exchanges.n_rounds * exchanges.part_s + between_s
    wrong = in_rounds & (np.abs(exchanges.duration_s - needed_s) > rounding(exchanges.end_s))
    context.refuse_operations(
        LASTS_AS_BYTES_NEED, operations, wrong, exchanges.duration_s, needed_s
    )


def _count_served(
    context: Context, rail: Rail, operations: Places, part_s: Seconds, row: Places, spell: Places
) -> Places:
    """Count for each all-to-all the other members that one of its ports reaches for long enough.

    Entry k of `row` and `spell` is a port of the all-to-all ``operations[row[k]]``, with its spell
    at the start. Each port is followed through its spells to the end of the operation. A member is
    served by a spell that leads to it and is up for ``part_s[row[k]]`` seconds. For example, a
    port that leads to rank 4 for 3 s and then to rank 7 for 1 s serves rank 4 alone if a part
    takes 2 s. The counts are by place in `operations`.
    """
    # By entry: who may have been served, as pairs of all-to-all and rank. The list grows by one
    # spell of all ports that still go on.
    step = context.step
    start_s = context.plan.start_s[operations]
    end_s = context.plan.end_s[operations]
    pairs = [np.empty((0, 2), np.int64)]
    while len(row):
        # How long the circuit is up within the operation, less the time that the rail is dark.
        since_s = np.maximum(start_s[row], rail.since_s[spell] + rail.delay_s)
        until_s = np.minimum(end_s[row], rail.until_s[spell])
        dark_s = rail.dark_before(until_s) - rail.dark_before(since_s)
        enough = until_s - since_s - dark_s >= part_s[row] - rounding(end_s[row])
        pairs.append(np.column_stack([row[enough], rail.arrival(spell[enough]).rank]))

        # Ports whose spell ends before the operation go on to their next one.
        goes_on = rail.until_s[spell] < end_s[row]
        row = row[goes_on]
        spell = spell[goes_on] + 1

    # Only members of the same group count, not the rank itself, and each of them once: a pair of
    # row and rank is one integer, and of equal ones that stand side by side the first one counts.
    # (`np.unique` is much slower.)
    served_by, rank = np.concatenate(pairs).T
    is_other = _find_places(context, operations[served_by], rank) >= 0
    is_other &= rank != step.rank[operations[served_by]]
    keys = np.sort(served_by[is_other] * step.n_ranks + rank[is_other])
    keys = keys[np.diff(keys, prepend=-1) > 0]
    return np.bincount(keys // step.n_ranks, minlength=len(operations))


def _check_stages(context: Context, rail: Rail, operations: Places) -> None:
    """Check all-to-alls that are done in stages; `operations` are those of all their members.

    All members use the same strides, each part arrives, circuits are there, and each stage lasts
    as long as a circuit needs for the parts that it carries. With stages of 5 s and 4 s and a
    change of 2 s, the all-to-all ends 11 s after its start. Broken rules go into the findings; the
    end is compared only where the other rules hold.
    """
    # All arrays have an entry for each port of each operation, as `used` has: ``row[entry]`` is
    # the place of its operation in `operations`, ``operation[entry]`` the operation itself. While
    # it lasts the port has the spells ``first_spell[entry]`` to ``last_spell[entry]``, one for
    # each stage: those from 6 to 8 are three stages.
    step = context.step
    used = rail.list_ports(step.rank[operations], context.plan.ports[operations])
    row = used.row
    operation = operations[row]
    n_members = count_members(step)[step.group[operation]]
    start_s = context.plan.start_s[operation]
    planned_s = context.plan.end_s[operation]
    first_spell = rail.spell_at(start_s + rounding(start_s), used.port)
    last_spell = rail.spell_at(planned_s - rounding(planned_s), used.port)

    # ``strides[entry, stage]`` has as many columns as the entry with most stages; behind the last
    # stage of any other entry stands 0. All entries of a collective, which has one number in
    # `match`, need the strides of its first entry.
    strides = _find_strides(context, rail, operation, first_spell, last_spell)
    _, first, collective = np.unique(step.match[operation], return_index=True, return_inverse=True)
    expected_strides = strides[first][collective.ravel()]
    wrong = (strides != expected_strides).any(axis=1)

    # ``n_hops[entry, stage]``: how many parts the circuit of this stage carries; 0 behind the last
    # stage, -1 in all stages if some part does not arrive. It follows from the number of members
    # and the strides, so each different row of both is counted once: for 4 members with the
    # strides 1 and 2, the row (4, 1, 2), the counts are 2 and 2.
    cases = np.column_stack([n_members, strides])
    different, case_of = np.unique(cases, axis=0, return_inverse=True)
    hops_of_case = np.array([count_hops(int(case[0]), case[1:]) for case in different])
    n_hops = hops_of_case[case_of.ravel()]
    wrong |= n_hops[:, 0] < 0

    # ``part_s[entry]``: how many seconds one part needs over one hop. `work` has the bytes and the
    # latency of the parts to all others, so that one part has an (n_members - 1)-th of both. Its
    # bytes go over all ports of the operation at once: an operation has as many ports as entries,
    # so ``np.bincount(row)[row]`` counts them for each entry.
    work = measure_work(context.job, operations)
    rate = np.bincount(row)[row] * context.job.network.port_bytes_per_s
    part_s = (work.sent_bytes[row] / rate + work.latency_s[row]) / (n_members - 1)
    begin_s = start_s
    end_s = start_s
    for stage in range(strides.shape[1]):
        # From `begin_s` to `done_s`. Data rest while the whole rail is dark; a stop that begins
        # just at the end is after the stage. Behind its last stage (`is_stage` is False) an entry
        # keeps the `end_s` that it has.
        is_stage = first_spell + stage <= last_spell
        spell = np.minimum(first_spell + stage, last_spell)
        lasts_s = n_hops[:, stage] * part_s
        done_s = _advance(rail, begin_s, lasts_s, rounding(planned_s))

        # The circuit has to be there from the beginning of the stage to its end.
        is_up = rail.since_s[spell] + rail.delay_s <= begin_s + rounding(begin_s)
        stays = rail.until_s[spell] >= done_s - rounding(done_s)
        wrong |= is_stage & ~(is_up & stays)
        end_s = np.where(is_stage, done_s, end_s)

        # The next stage begins one delay after the end of this one.
        begin_s = end_s + rail.delay_s

    # A circuit that is missing is refused; the end is compared where all circuits are there.
    context.refuse_operations(EVERYONE_TO_EVERYONE, operation, wrong, strides[:, 0], np.nan)
    off = ~wrong & (np.abs(planned_s - end_s) > rounding(planned_s))
    context.refuse_operations(
        LASTS_AS_BYTES_NEED, operation, off, planned_s - start_s, end_s - start_s
    )


def _find_strides(
    context: Context, rail: Rail, operation: Places, first_spell: Places, last_spell: Places
) -> Places:
    """Return ``strides[entry, stage]``, how many members further on circuits of stages lead.

    From member 1 of 4 to member 0 the stride is 3; it is -1 if the circuit leads to no member. An
    entry is a port of ``operation[entry]``, an all-to-all whose stages are the spells of the port
    from ``first_spell[entry]`` to ``last_spell[entry]``. In later stages of others it has stride
    0.
    """
    n_members = count_members(context.step)[context.step.group[operation]]
    place = _find_places(context, operation, context.step.rank[operation])
    n_stages = 1 + int((last_spell - first_spell).max(initial=0))
    strides = np.zeros((len(operation), n_stages), np.int64)
    for stage in range(n_stages):
        spell = np.minimum(first_spell + stage, last_spell)
        next_place = _find_places(context, operation, rail.arrival(spell).rank)
        stride = np.where(next_place < 0, -1, (next_place - place) % n_members)
        strides[:, stage] = np.where(first_spell + stage > last_spell, 0, stride)
    return strides


def _find_places(context: Context, operation: Places, rank: NDArray[np.integer]) -> Places:
    """Return the place of each rank in the group of its operation, -1 if it is not a member.

    ``rank[entry]`` is looked up in the group of ``operation[entry]``; a rank of -1, for none, has
    place -1. Rank 5 has place 1 in a group of the ranks 3, 5 and 8.
    """
    if not len(operation):
        return operation

    # A pair of group and rank is one integer: the keys of all members are searched for it. A rank
    # of -1 has a key that no member has: that of rank ``n_ranks``, one too many, of the group
    # before.
    groups = context.step.groups
    group = context.step.group[operation].astype(np.int64)
    key_base = context.step.n_ranks + 1
    numbers = np.unique(group).tolist()
    keys = np.concatenate(
        [number * key_base + np.array(groups[number].ranks) for number in numbers]
    )
    places = np.concatenate([np.arange(len(groups[number].ranks)) for number in numbers])
    order = np.argsort(keys)
    key = group * key_base + rank
    # The search leaves the last key out, so that it always finds a place, perhaps of another key.
    entry = order[np.searchsorted(keys[order][:-1], key)]
    return np.where(keys[entry] == key, places[entry], -1)


def count_hops(n: int, strides: NDArray[np.int64]) -> list[int]:
    """Count the parts that a circuit carries in each stage, -1 if some part does not arrive.

    ``strides[stage]`` is -1 where a circuit leads to no member of the `n`. With 4 members and the
    strides 1 and 2, the parts for 1, 2 and 3 places further on make the hops (1, 0), (0, 1) and
    (1, 1): the counts are [2, 2]. A part takes a way of fewest hops; of several, that with fewest
    in the last stage, then in the one before, and so on.
    """
    unreachable = [-1] * len(strides)
    if (strides < 0).any():
        return unreachable

    # ``fewest[stage][distance]``: the fewest hops that lead so many places further on, with the
    # stages before `stage` alone. Distances that cannot be reached have no entry. In the example
    # it is {0: 0}, then {0: 0, 1: 1, 2: 2, 3: 3}, then {0: 0, 1: 1, 2: 1, 3: 2}.
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


# Data along routes: a direct send is a route of one hop
#
# Data that are forwarded pass through the ranks on the way as they come: all circuits of a route
# are up from the start of the operation to its end. The operation therefore lasts as long as its
# bytes need on the ports of its narrowest hop, and each message is late by the latency of every
# hop. A *relay* is a row of ``plan.relays``: an operation, a rank that forwards its data, and the
# ports as bits. A *lane* is the ring of one port of each member of a group.


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


def _check_forwarded(context: Context) -> bool:
    """Check that relays are of sending operations, and of ranks and ports that exist.

    False if any row of ``plan.relays`` is wrong; then no route is followed.
    """
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

    for rule, obeyed in (
        ("what is forwarded is sent over a rail, and not in rounds", is_sent),
        ("who forwards has that rank and those ports", exists),
    ):
        context.findings.expect_none(
            rule, ~obeyed, "relays[{}]", relays, "a hop of a route", most=MOST_TOLD
        )
    return bool(is_sent.all() and exists.all())


def _check_routes(
    context: Context, rail: Rail, riding: Places, operations: Places
) -> tuple[Places, Places]:
    """Check that data over circuits that stay arrive where they should, and in time.

    `riding` are all operations on this rail, `operations` those of them that send over circuits
    that stay; both are ascending indices of the step. Circuits have to be there from start to end
    and lead to the rank that forwards next; messages come to their receivers, collectives go
    around rings of their members, and all last as long as their narrowest hop needs. Returns an
    entry for each port of each hop: the operation, and the port of the switch that is in use. Both
    arrays are empty if a hop is on another rail.
    """
    step = context.step
    hops = _list_hops(context, operations)
    off_rail = ~np.isin(hops.rank, rail.ranks)
    if off_rail.any():
        _refuse_hops(
            context, "data are forwarded on their own rail", hops, np.flatnonzero(off_rail)
        )
        return operations[:0], operations[:0]

    # One entry of `used` is one port of one hop, and ``used.row`` the place of the hop in `hops`.
    # Times that differ by rounding are equal: spells are looked up just after the start, so that
    # one that begins with the operation is found, and not the one before.
    used = rail.list_ports(hops.rank, hops.ports)
    operation = hops.operation[used.row]
    start_s = context.plan.start_s[operation]
    end_s = context.plan.end_s[operation]
    spell = rail.spell_at(start_s + rounding(start_s), used.port)

    # An operation that takes no time, or less than rounding, as a barrier without latency, may end
    # just when its circuit is given up. The spell just after its start is then that of the next
    # circuit, which is not up yet: the spell just before the start is the one that it has used.
    is_changing = rail.since_s[spell] + rail.delay_s > start_s + rounding(start_s)
    spell_before = rail.spell_at(start_s - rounding(start_s), used.port)
    takes_no_time = end_s - start_s <= rounding(start_s)
    spell = np.where(takes_no_time & is_changing, spell_before, spell)

    # Circuits stay from start to end, up to rounding: they are up no later than the start, and
    # given up no sooner than the end. They lead to the rank that forwards next, which is -1 at the
    # last hop of a route. A port without a circuit reaches rank -1.
    reached = rail.arrival(spell)
    next_rank = hops.next_rank[used.row]
    has_circuit = reached.rank >= 0
    is_up = rail.up_s(spell) <= start_s + rounding(start_s)
    stays = rail.until_s[spell] >= end_s - rounding(end_s)
    _refuse_hops(
        context,
        "its circuits are there from start to end",
        hops,
        used.row[~(has_circuit & is_up & stays)],
    )
    astray = has_circuit & (next_rank >= 0) & (reached.rank != next_rank)
    _refuse_hops(context, "data are handed on where they arrive", hops, used.row[astray])

    # Where the last hops lead: those of messages to receivers, those of collectives around rings.
    arrives = has_circuit & (next_rank < 0) & (step.kind[operation] == SEND)
    arrival = Arrival(reached.rank[arrives], reached.number[arrives])
    _check_messages(context, riding, operation[arrives], arrival)
    _check_collectives(context, rail, operations, hops, used, reached.rank)
    _check_durations(context, rail, operations, hops)
    return operation, used.port


def _list_hops(context: Context, operations: Places) -> Hops:
    """List the hops of each operation, one after another.

    `operations` ascend. Their own ranks send first, then those of their relays in the order of
    ``plan.relays``, whose columns are operation, rank that forwards, and its ports as bits. If
    ranks 5 and 7 forward an operation of rank 2, it has the ranks 2, 5 and 7 and the next ranks 5,
    7 and -1.
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

    # A hop hands on to the rank of the next one, if that is of the same operation: -1 at the last.
    goes_on = np.append(operation[1:] == operation[:-1], False)[: len(operation)]
    return Hops(operation, rank, ports, np.where(goes_on, np.roll(rank, -1), -1))


def _check_messages(context: Context, riding: Places, sends: Places, reached: Arrival) -> None:
    """Check that messages reach their receivers, at the ports that the receives state.

    ``sends[entry]`` is an operation that sends, and the entry of `reached` is where a port of its
    last hop leads. An operation has an entry for each of these ports, all of which have to lead to
    the receiver. `riding` are all operations on the rail, receives among them.
    """
    step = context.step
    receiver = step.peer[sends]
    context.refuse_operations(
        "a message goes to its receiver", sends, reached.rank != receiver, reached.rank, receiver
    )

    # A receive has the same number in `match` as its send. The ports at which its message arrives
    # are collected as bits, by its place among the receives.
    receives = riding[step.kind[riding] == RECV]
    receives = receives[np.argsort(step.match[receives])]
    receive_of_send = np.searchsorted(step.match[receives], step.match[sends])
    arrives_at = np.zeros(len(receives), dtype=np.int64)  # ports as bits
    np.bitwise_or.at(arrives_at, receive_of_send, 1 << reached.number)
    operation = receives[receive_of_send]
    stated = context.plan.ports[operation]
    expected = arrives_at[receive_of_send]
    context.refuse_operations(
        "a receiver uses the ports at which the message arrives",
        operation,
        stated != expected,
        stated,
        expected,
    )


def _check_collectives(
    context: Context, rail: Rail, operations: Places, hops: Hops, used: UsedPorts, reached: Places
) -> None:
    """Check that the circuits of each collective lead around rings of its members.

    With 2 ports there are two rings, called lanes: ports 0 of all members make lane 0, and ports 1
    make lane 1. If other ranks forward the data of a collective, it has lane 0 alone: all ports of
    a member then lead to the same next one.

    Parameters
    ----------
    operations, hops
        Collectives and messages, and all of their hops. Messages are left out here.
    used, reached
        By entry, a port of one of the hops, and the rank to which its circuit leads.
    """
    # A lane of an operation is one integer, ``place in operations * ports of a GPU + lane``: with
    # 2 ports, lane 1 of the operation at place 3 is 7. Column 0 of ``plan.relays`` has the
    # operations that are forwarded.
    step = context.step
    operation = hops.operation[used.row]
    is_forwarded = np.isin(step.match[operation], step.match[context.plan.relays[:, 0]])
    lane = np.where(is_forwarded, 0, used.number)
    key = np.searchsorted(operations, operation) * rail.ports_per_gpu + lane
    is_last = hops.next_rank[used.row] < 0
    arrives = is_last & (reached >= 0)

    # By lane of an operation the rank that it leads to: the next member of the ring. -1 stands
    # for no circuit.
    leads_to = np.full(len(operations) * rail.ports_per_gpu, -1)  # by key of operation and lane
    leads_to[key[arrives]] = reached[arrives]
    # Where several ports lead to different ranks, one of them is written last, and others differ.
    differs = leads_to[key[arrives]] != reached[arrives]
    _refuse_hops(
        context, "all ports of a hop lead to the same rank", hops, used.row[arrives][differs]
    )

    # A lane that leads nowhere counts, too: it makes no ring. (`np.unique` is far slower.)
    is_lane = np.zeros(len(leads_to), dtype=bool)
    is_lane[key[is_last & (step.kind[operation] != SEND)]] = True
    lanes = np.flatnonzero(is_lane)
    number = lanes % rail.ports_per_gpu
    _check_rings(context, operations[lanes // rail.ports_per_gpu], number, leads_to[lanes])


def _check_rings(context: Context, operation: Places, lane: Places, reached: Places) -> None:
    """Check that each lane of each collective is one ring over its whole group.

    By entry: an operation, its lane, and the rank that the lane leads to, -1 for none. Cycles are
    told apart by pointer doubling: each entry learns the lowest entry that is 1, 2, 4 and more
    steps further on, so that all entries of a cycle know the same one in the end.
    """
    # `ring` is one integer for a lane of a collective, the same at all of its members: `match` is
    # a number that all operations of one collective share.
    step = context.step
    n_members = count_members(step)[step.group[operation]]
    ports_per_gpu = context.job.network.ports_per_gpu
    ring = step.match[operation].astype(np.int64) * ports_per_gpu + lane

    # ``next_entry[entry]``: the entry of the same ring whose rank is reached. The search leaves
    # the last key out, so that it always finds an entry, perhaps one with another key. An entry
    # that leads nowhere, or out of its group, searches a key that no entry has; from here on it
    # leads to itself.
    entries = np.arange(len(operation))
    key = ring * step.n_ranks + step.rank[operation]
    order = np.argsort(key)
    next_key = np.where(reached >= 0, ring * step.n_ranks + reached, -1)
    next_entry = order[np.searchsorted(key[order][:-1], next_key)]
    leads_inside = key[next_entry] == next_key
    next_entry = np.where(leads_inside, next_entry, entries)

    # Where each entry is reached once, the way from entry to entry comes back: it is a cycle.
    reached_once = np.bincount(next_entry, minlength=len(entries)) == 1

    # Pointer doubling: after k passes, an entry knows the lowest of the next 2**k entries, itself
    # included. The passes are enough to go once round the largest group: with 8 members they are
    # 4, and 2**4 entries are more than 8.
    lowest = entries
    for _ in range(int(n_members.max(initial=1)).bit_length()):
        lowest = np.minimum(lowest, lowest[next_entry])
        next_entry = next_entry[next_entry]

    # One cycle through all members: as many entries as members know the same lowest entry, since
    # no entry leads to another ring.
    n_in_cycle = np.bincount(lowest, minlength=len(entries))[lowest]
    makes_ring = leads_inside & reached_once & (n_in_cycle == n_members)
    context.refuse_operations(
        "the circuits of a collective make one ring over its group",
        operation,
        ~makes_ring,
        step.group[operation],
        np.nan,
    )


def _check_durations(context: Context, rail: Rail, operations: Places, hops: Hops) -> None:
    """Check that each operation lasts as long as its bytes need on their way.

    Bytes go at the rate of the hop with fewest ports, of all members; each message has the latency
    of every hop of the longest route, of all members; and data rest while the rail is dark. `hops`
    are those of `operations`.
    """
    step = context.step
    work = measure_work(context.job, operations)
    start_s = context.plan.start_s[operations]
    end_s = context.plan.end_s[operations]
    match = step.match[operations]

    # By communication (its number in `match`), over all members: the ports of the hop with the
    # fewest ports, and the hops of the longest route.
    n_matches = int(match.max(initial=-1)) + 1
    width = np.bitwise_count(hops.ports.astype(np.uint64)).astype(np.int64)  # ports, by hop
    narrowest = np.full(n_matches, rail.ports_per_gpu)
    np.minimum.at(narrowest, step.match[hops.operation], width)
    hops_per_operation = np.bincount(
        np.searchsorted(operations, hops.operation), minlength=len(operations)
    )
    most_hops = np.zeros(n_matches, np.int64)
    np.maximum.at(most_hops, match, hops_per_operation)

    # Around a ring of n members the parts of an all-to-all go 1, 2, ... or n - 1 hops, n / 2 on
    # average, and a circuit carries as many times the bytes that a member sends.
    n_members = count_members(step)[step.group[operations]]
    around = np.where(step.kind[operations] == ALL_TO_ALL, n_members / 2, 1.0)
    rate = narrowest[match] * context.job.network.port_bytes_per_s
    send_s: NDArray[np.float64] = work.sent_bytes * around / rate
    needed_s = (
        send_s
        + work.latency_s * most_hops[match]
        + rail.dark_before(end_s)
        - rail.dark_before(start_s)
    )
    wrong = np.abs(end_s - start_s - needed_s) > rounding(end_s)
    context.refuse_operations(LASTS_AS_BYTES_NEED, operations, wrong, end_s - start_s, needed_s)


def _refuse_hops(context: Context, rule: str, hops: Hops, wrong: Places) -> None:
    """Add a violation for each of the first `MOST_TOLD` wrong hops.

    `wrong` has their places in `hops`, perhaps several times.
    """
    for hop in np.unique(wrong)[:MOST_TOLD].tolist():
        where = context.step.describe(int(hops.operation[hop]))
        got = f"from rank {hops.rank[hop]}, over ports {hops.ports[hop]:b}"
        next_rank = int(hops.next_rank[hop])
        expected = f"to rank {next_rank}" if next_rank >= 0 else "to whom the data are for"
        context.findings.refuse(rule, where, got, expected)


# All-to-alls over chords: each port leads to another member, and circuits stay
#
# The members of a group stand on a circle, and port p of each leads a fixed stride further on. The
# plan says which routes the part for each distance takes; as all members do the same, the busiest
# port of one member decides how long the all-to-all lasts.


def _check_chord_routes(context: Context) -> bool:
    """Check the tables of routes over chords: each route arrives, and all data have a route.

    The shares of all routes to one distance have to sum to 1. A table is for groups of some size
    that the job has, which also bounds the memory of the check: a table of another size ends it.
    Returns whether no rule is broken.
    """
    n_before = len(context.findings.violations)
    sizes = {len(group.ranks) for group in context.step.groups}
    for number, routes in enumerate(context.plan.chords):
        if routes.n_members not in sizes:
            context.findings.refuse(
                "routes over chords are for groups of the job",
                f"chords[{number}].n_members",
                routes.n_members,
                f"one of {sorted(sizes)}",
            )
            return False

        # ``hops[route, port]`` times ``strides[port]``, summed over the ports, is how many places
        # further on a route ends.
        reached = routes.hops.astype(np.int64) @ np.array(routes.strides, np.int64)
        reached %= routes.n_members  # places are on a circle
        context.findings.expect_none(
            "routes over chords bring each part to its place",
            reached != routes.distance,
            f"chords[{number}].hops[{{}}]",
            reached,
            routes.distance,
            most=MOST_TOLD,
        )

        # ``carried[distance]``: the sum of the shares of its routes. Distance 0 is the member
        # itself, for whom nothing is sent.
        carried = np.bincount(routes.distance, routes.share, minlength=routes.n_members)
        off = np.abs(carried - 1.0) > rounding(1.0)
        off[0] = False
        context.findings.expect_none(
            "routes over chords carry the whole of each part",
            off,
            f"chords[{number}], distance {{}}",
            carried,
            1.0,
            most=MOST_TOLD,
        )
    return len(context.findings.violations) == n_before


def _check_chords(context: Context, rail: Rail, operations: Places) -> Places:
    """Check the all-to-alls over chords, and return them.

    `operations` are those of all-to-alls on the rail, ascending. Each table of ``plan.chords`` has
    routes over circuits of some strides; an all-to-all is checked here if its circuits have the
    strides of a table when it starts.
    """
    match = context.step.match
    checked = [operations[:0]]
    for routes in context.plan.chords:
        # The operations over these chords, and the spell of each of their ports at the start.
        chosen, spell = _find_over_chords(context, rail, operations, routes)
        if not len(chosen):
            continue

        # All members of the same all-to-alls, which have one number in `match`, use these strides.
        # A member that does not is refused, and the first stride stands in the message for what
        # was expected of it.
        taking_part = operations[np.isin(match[operations], match[chosen])]
        differs = ~np.isin(taking_part, chosen)
        context.refuse_operations(
            "in an all-to-all over chords all members use the same strides",
            taking_part,
            differs,
            np.nan,
            routes.strides[0],
        )
        _check_times_over_chords(context, rail, routes, chosen, spell)
        checked.append(taking_part)
    return np.concatenate(checked)


def _find_over_chords(
    context: Context, rail: Rail, operations: Places, routes: ChordRoutes
) -> tuple[Places, Places]:
    """Find the all-to-alls over the chords of a table: of its number of members and its strides.

    ``routes.strides[k]`` is the stride of the k-th port that a member uses, ports ascending: an
    operation with the ports 0b1011 is compared at the ports 0, 1 and 3. Returns the operations,
    and ``spell[row, k]``: the circuit of this port when the operation of this row starts.
    """
    step = context.step
    plan = context.plan
    n_ports = len(routes.strides)

    # ``plan.ports[operation]`` has a bit for each port: as many bits as strides have to be set.
    n_used = np.bitwise_count(plan.ports[operations].astype(np.uint64))
    n_members = count_members(step)[step.group[operations]]
    operations = operations[(n_members == routes.n_members) & (n_used == n_ports)]

    # An entry for each port of each operation: which place in its group the circuit leads to, -1
    # for none, and its stride, which is never -1 of those that lead to a member.
    used = rail.list_ports(step.rank[operations], plan.ports[operations])
    operation_of_entry = operations[used.row]
    start_s = plan.start_s[operation_of_entry]
    spell = rail.spell_at(start_s + rounding(start_s), used.port)
    place = _find_places(context, operation_of_entry, step.rank[operation_of_entry])
    next_place = _find_places(context, operation_of_entry, rail.arrival(spell).rank)
    stride = np.where(next_place < 0, -1, (next_place - place) % routes.n_members)

    # The entries of an operation stand together, ports ascending, and all operations that are left
    # use `n_ports` of them: the entries make a table with a row for each operation.
    over_chords = (stride.reshape(-1, n_ports) == np.array(routes.strides)).all(axis=1)
    return operations[over_chords], spell.reshape(-1, n_ports)[over_chords]


def _check_times_over_chords(
    context: Context, rail: Rail, routes: ChordRoutes, operations: Places, spell: Places
) -> None:
    """Check that circuits of all-to-alls stay, and that an all-to-all lasts as its busiest port.

    Each member sends a part to each other one, split over the routes to its distance, which take
    one hop or more. The port that carries most decides the time. ``operations[row]`` is an index
    in the step, one for each member of each all-to-all, and ``spell[row, k]`` is the spell of the
    k-th port that this operation uses, at its start: an index of ``rail.since_s`` and
    ``rail.until_s``. Broken rules go into the findings, up to `rounding`.
    """
    start_s = context.plan.start_s[operations]
    end_s = context.plan.end_s[operations]

    # By row: when the last of the circuits is up, and when the first of them is given up.
    up_s = rail.up_s(spell).max(axis=1)
    until_s = rail.until_s[spell].min(axis=1)
    is_up = (up_s <= start_s + rounding(start_s)) & (until_s >= end_s - rounding(end_s))
    context.refuse_operations(
        "circuits of chords are there from start to end", operations, ~is_up, start_s, up_s
    )

    # By row, how long a part occupies a port. `work` has the bytes and the latency of the messages
    # to all others, hence a part has one (n_members - 1)-th of both:
    #
    # - its bytes at the rate of one port;
    # - `n_ports` latencies. A member starts its messages one after another, whichever port they
    #   use, and all its ports wait meanwhile. With 6 others and 2 ports that send 3 parts each, a
    #   port is busy for 6 latencies, which is 2 for each of its 3 parts.
    work = measure_work(context.job, operations)
    rate = context.job.network.port_bytes_per_s
    n_ports = len(routes.strides)
    part_s = (work.sent_bytes / rate + n_ports * work.latency_s) / (routes.n_members - 1)

    # ``parts_of_port[k]``: how many parts the k-th port sends. Each route adds its share, once for
    # each hop over this port: one that carries half of a part and makes 2 hops there adds 1. Data
    # rest while the whole rail is dark between start and end.
    parts_of_port = (routes.share[:, None] * routes.hops).sum(axis=0)
    needed_s = parts_of_port.max() * part_s + rail.dark_before(end_s) - rail.dark_before(start_s)
    off = np.abs(end_s - start_s - needed_s) > rounding(end_s)
    context.refuse_operations(
        "an all-to-all over chords lasts as long as its busiest port needs",
        operations,
        off,
        end_s - start_s,
        needed_s,
    )


# The rules of time: order, durations, equal ranks
#
# The *load* of a rail is all that rides it, with times and ports, as a tuple of arrays: two rails
# do the same if all arrays of their loads are equal.


def list_operations(step: Step, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """List the operations of some ranks as indices of the step, rank after rank as given."""
    spans = [np.arange(step.rank_start[rank], step.rank_start[rank + 1]) for rank in ranks]
    return np.concatenate([np.empty(0, np.int64), *spans])


def _describe_load(
    context: Context,
    ranks: NDArray[np.int64],
    riding: NDArray[np.int64],
    numbers_of_groups: dict[tuple[str, bytes], int],
) -> Iterator[NDArray[np.generic]]:
    """Describe all that happens on a rail without names of ranks, so that rails can be compared.

    Yields the arrays of its load, one after another, as a large job has memory for few of them:
    two rails do the same if all of these are equal.

    `riding` are the operations on the rail, ascending, and `ranks` its ranks, ascending: they are
    replaced by the numbers of their GPUs on the rail, 0, 1, ....

    `numbers_of_groups` is added to: a group gets the next number when its dimension and GPUs are
    met first. One dictionary serves all rails that are compared, hence groups of the same
    dimension and GPUs have the same number on all of them.
    """
    step = context.step
    plan = context.plan
    # Rank -1, as that of a peer where there is none, looks up the last entry: GPU -1.
    gpu_of_rank = np.full(step.n_ranks + 1, -1, np.int32)
    gpu_of_rank[ranks] = np.arange(len(ranks))
    yield np.arange(len(ranks))

    # By operation of `riding`: what it is, when, and over which ports (as bits).
    for column in (step.kind, step.size_bytes, plan.start_s, plan.end_s, plan.ports):
        yield column[riding]

    # By operation of `riding`: its GPU, that of its peer, and the number of its group, which is
    # ``number_of_group[group]`` by the index of the group in ``step.groups``.
    yield gpu_of_rank[step.rank[riding]]
    yield gpu_of_rank[step.peer[riding]]
    groups = step.group[riding]
    number_of_group = np.full(len(step.groups), -1, np.int32)
    for index in np.flatnonzero(np.bincount(groups)).tolist():
        group = step.groups[index]
        key = (group.dimension, gpu_of_rank[[*group.ranks]].tobytes())
        number_of_group[index] = numbers_of_groups.setdefault(key, len(numbers_of_groups))
    yield number_of_group[groups]

    # Operations of one communication have the same number in `match`: each is described by the
    # place in `riding` of the first one that has its number.
    _, first, communication = np.unique(step.match[riding], return_index=True, return_inverse=True)
    yield first.astype(np.int32)[communication]

    # ``plan.relays`` has a row (operation, rank that forwards, ports) for each rank that forwards.
    # A row belongs here if its operation is one of `riding`: if it stands where it is searched.
    # Operations after the last one of `riding` are searched one place behind it, where -1 stands.
    # By rank that forwards: for which operation, its GPU, and its ports (as bits).
    position = np.searchsorted(riding, plan.relays[:, 0])
    rides_here = np.append(riding, -1)[position] == plan.relays[:, 0]
    yield position[rides_here]
    yield gpu_of_rank[plan.relays[rides_here, 1]]
    yield plan.relays[rides_here, 2]


_N_COMPARED = 1 << 20
"""The number of operations that are looked at together, to bound memory."""


def _list_different_ranks(context: Context) -> Places:
    """List the first ranks of all that do the same at the same times, up to names, ascending.

    Ranks are known by a digest of what `list_before`, `measure_work` and their times depend on:
    kinds, sizes, durations, the shapes of groups, peers counted from the own rank, dependencies
    counted from its first operation, starts and ends.
    """
    step = context.step
    shapes = [str((g.dimension, g.stream, len(g.ranks), g.rail >= 0)) for g in step.groups]
    number_of_shape = np.unique(shapes, return_inverse=True)[1].astype(np.int32)
    shape_of_group = np.append(number_of_shape, np.int32(-1))
    first_of_digest: dict[bytes, int] = {}
    for rank, (begin, end) in enumerate(pairwise(step.rank_start.tolist())):
        rows = slice(begin, end)
        dep_start = step.dep_start[begin : end + 1]
        peers = np.where(step.kind[rows] >= SEND, step.peer[rows] - rank, 0)
        columns = (
            dep_start - dep_start[0],
            step.dep[dep_start[0] : dep_start[-1]] - begin,
            step.kind[rows],
            step.size_bytes[rows],
            step.duration_s[rows],
            shape_of_group[step.group[rows]],
            peers,
            context.plan.start_s[rows],
            context.plan.end_s[rows],
        )
        # The lengths of columns come first, so that no bytes belong to another column.
        text = b"".join([b"%d,%d:" % (end - begin, len(columns[1])), *map(bytes, columns)])
        first_of_digest.setdefault(blake2b(text).digest(), rank)
    return np.array([*first_of_digest.values()], np.int64)


def _check_times(context: Context) -> None:
    """Check the times of a plan, as far as no circuits are needed for that; up to `rounding`.

    1. No operation starts before 0 s.
    2. None starts before what it waits for has ended.
    3. One that rides no rail lasts as long as its work; one that does lasts 0 s at least.
    4. All parts of a communication start together, and end together.
    5. The step ends when it should (`_check_step_end`).

    Broken rules go into the findings.
    """
    step = context.step
    plan = context.plan
    negative = np.flatnonzero(plan.start_s < 0)
    context.refuse_operations(
        "no operation starts before the step", negative, negative >= 0, plan.start_s[negative], 0.0
    )

    # Ranks wait for operations of their own alone: of those that do the same at the same times one
    # is looked at.
    operations = list_operations(step, _list_different_ranks(context))
    start_s = plan.start_s[operations]
    end_s = plan.end_s[operations]
    precedence = list_before(step, operations)
    earliest_s = np.full(len(operations), -np.inf)
    np.maximum.at(earliest_s, precedence.after, end_s[precedence.before])
    early = start_s < earliest_s - rounding(start_s)
    context.refuse_operations(
        "an operation starts after what it waits for", operations, early, start_s, earliest_s
    )

    # Beside the rails nothing can be late: durations follow from work and rates. On the rails
    # circuits decide, which is checked later; but nothing ends before it starts, even if it sends
    # no bytes. Either is refused by the same rule.
    duration_s = end_s - start_s
    full_s = measure_work(context.job, operations).full_s
    is_wrong = np.abs(duration_s - full_s) > rounding(end_s)
    context.refuse_operations(
        "an operation lasts as long as its work or its bytes need",
        operations,
        np.where(step.rail[operations] < 0, is_wrong, duration_s < 0),
        duration_s,
        full_s,
    )
    _check_together(context, "start", plan.start_s)
    _check_together(context, "end", plan.end_s)
    longest_s = float(duration_s.max(initial=0.0))
    _check_step_end(context, longest_s if full_s.any() else None)


def _check_step_end(context: Context, longest_s: float | None) -> None:
    """Check that the step ends with its last operation or change, and not too late for rounding.

    `longest_s` is the time of the longest operation; None if none has anything to do.
    """
    # The last change of circuits takes the delay.
    plan = context.plan
    last_s = float(plan.end_s.max(initial=0.0))
    for timeline in plan.rails:
        if timeline.n_reconfigurations:
            last_s = max(last_s, float(timeline.starts_s[-1]) + context.job.network.delay_s)
    if abs(plan.step_s - last_s) > rounding(last_s):
        context.findings.refuse(
            "the step ends with its last operation or reconfiguration",
            "step_s",
            plan.step_s,
            last_s,
        )

    # Rounding grows with times: in a step that ends at 1e12 s all work of milliseconds could take
    # no time. It has to stay far below the longest operation.
    if longest_s is not None and rounding(last_s) > _MOST_ROUNDING * longest_s:
        context.findings.refuse(
            "times are early enough to tell operations apart",
            "step_s",
            last_s,
            f"rounding below {_MOST_ROUNDING} of {longest_s:g} s",
        )


def _check_together(context: Context, verb: str, time_s: NDArray[np.float64]) -> None:
    """Check that all parts of a communication start, or end, at one time.

    ``time_s[operation]`` is when an operation starts, or ends; `verb` is that of the message.
    """
    # ``common_s[match]`` is the time of that part of the communication which is written last; all
    # others have to agree with it. Computations write into the last entry, which is not compared.
    # Operations are looked at some after the others, to bound memory.
    match = context.step.match
    common_s = np.empty(int(match.max(initial=-1)) + 2)  # the last entry: no communication
    starts_of_chunks = range(0, len(match), _N_COMPARED)
    for first in starts_of_chunks:
        common_s[match[first : first + _N_COMPARED]] = time_s[first : first + _N_COMPARED]
    for first in starts_of_chunks:
        operations = np.arange(first, min(first + _N_COMPARED, len(match)))
        expected_s = common_s[match[operations]]
        context.refuse_operations(
            f"all parts of a communication {verb} together",
            operations,
            (match[operations] >= 0) & (expected_s != time_s[operations]),
            time_s[operations],
            expected_s,
        )


# Plans in which data change rail inside a server, so that rails may differ
#
# The GPUs of a server then use all of its rails together, each an equal share of every port: GPU r
# of a server with R GPUs of k ports has R k shares, of which share ``q k + p`` is one R-th of port
# p on rail q. As all GPUs of a server do the same at the same time, each rail of shares is a rail
# like any other, with R k ports for each GPU, and one of these rails stands for all.

RAILS_ARE_ALIKE = "where data change rail, all GPUs of a server do the same together"


def lets_pool(job: RailJob) -> bool:
    """Tell whether plans of a job may let data change rail in servers.

    The job says how long that takes, is made from a model, has ideal switches, and no more than 31
    shares of ports for each GPU.
    """
    n_shares = job.network.gpus_per_server * job.network.ports_per_gpu
    return (
        job.network.change_rail_s is not None
        and job.workload.recorded is None
        and job.fabric is None
        and n_shares <= MOST_PORTS
    )


def _check_pooled(context: Context, ranks_of_rail: dict[int, NDArray[np.int64]]) -> bool:
    """Check that data may change rail inside servers, and that all rails do the same.

    They do if their GPUs are in the same servers, and their loads are equal.
    ``ranks_of_rail[rail]`` has the ranks on it, ascending. False, with the rule that is broken in
    the findings, if not.
    """
    job = context.job
    n_rails = job.network.gpus_per_server
    findings = context.findings
    if not lets_pool(job):
        findings.refuse(
            "data change rail only in jobs that let them",
            "pooled",
            True,
            "network.change_rail_s, ideal switches",
        )
        return False

    # Every GPU of a server has a rail of its own, in the order of their numbers.
    if not findings.expect(RAILS_ARE_ALIKE, "rails", [*ranks_of_rail], [*range(n_rails)]):
        return False

    # Each rail is compared with the first one. `place_ranks` lists the GPU of each rank, and those
    # of a server have consecutive numbers. `_describe_load` adds the groups of ranks that it
    # meets: by dimension and GPUs their number.
    server_of_rank = place_ranks(job.parallelism) // n_rails
    numbers_of_groups: dict[tuple[str, bytes], int] = {}
    for rail, ranks in ranks_of_rail.items():
        riding = np.flatnonzero(context.step.rail == rail)
        load = chain(
            [server_of_rank[ranks]], _describe_load(context, ranks, riding, numbers_of_groups)
        )
        if rail == 0:
            first_load = tuple(load)
        elif not all(map(np.array_equal, load, first_load)):
            findings.refuse(RAILS_ARE_ALIKE, f"rail {rail}", "another load", "that of rail 0")
            return False
    return True


def pool_job(job: RailJob) -> RailJob:
    """Return the job in which a GPU has shares of all ports of its server as ports of its own.

    A server has R GPUs with k ports each; each GPU gets an R-th of all R k ports. A byte takes its
    time on a port, then that on the links of one GPU, which carry the bytes of k ports. With 2
    ports of 50 GB/s and links of 400 GB/s a GB takes 1 / 50 + 2 / 400 = 0.025 s: a port has 40
    GB/s, and each of 8 GPUs 5 GB/s of it. Each message is late by a change of rail.
    """
    network = job.network
    n_rails = network.gpus_per_server
    seconds_per_byte = 1 / network.port_bytes_per_s
    seconds_per_byte += network.ports_per_gpu / network.scale_up_bytes_per_s
    assert network.change_rail_s is not None  # `_check_pooled` refuses jobs without it
    shares = replace(
        network,
        ports_per_gpu=n_rails * network.ports_per_gpu,
        port_bytes_per_s=1 / (seconds_per_byte * n_rails),
        rail_latency_s=network.latency_on_rails_s + network.change_rail_s,
        radix=None,
    )
    # The step and its groups do not depend on rates, and are shared with the job.
    pooled = replace(job, network=shares)
    object.__setattr__(pooled, "_built", {"step": job.step(), "groups": job.groups()})
    return pooled


def _pool_timelines(job: RailJob, plan: RailPlan) -> RailTimeline:
    """Join the switches of all rails to one, on which a GPU has all ports of its server.

    Its ports are numbered by GPU (counted on its rail), rail and port. With 8 rails and 2 ports on
    each, port 21 = 1 * 16 + 2 * 2 + 1 is port 1 of GPU 1 on rail 2: port 1 * 2 + 1 = 3 of that
    switch.
    """
    n_rails = job.network.gpus_per_server
    k = job.network.ports_per_gpu
    timeline_of_rail = {rail: timeline for timeline in plan.rails for rail in timeline.rails}
    # The joined switch changes its state with each change of some rail, at 0 s perhaps. A circuit
    # that a rail gives up and sets up at one time is a new one, so each of several changes of a
    # rail at one time counts: a row of `changes` is the time of a change, and how many its rail
    # has before it at that time. Rails that change at 3 s once and twice have the rows (3, 0), and
    # (3, 0) and (3, 1): the joined switch changes twice at 3 s.
    changes: list[NDArray[np.float64]] = []
    for timeline in plan.rails:
        changes_s = timeline.starts_s[1:]
        n_before = np.arange(len(changes_s)) - np.searchsorted(changes_s, changes_s)
        changes.append(np.stack([changes_s, n_before], axis=1))
    change_s, n_before_at_once = np.unique(np.concatenate(changes), axis=0).T

    # ``shares[state, GPU, rail, port]`` is where that port leads to.
    n_gpus = timeline_of_rail[0].matchings.shape[1] // k
    shares = np.full((1 + len(change_s), n_gpus, n_rails, k), IDLE, np.int32)
    for rail, timeline in timeline_of_rail.items():
        # By state of the joined switch, the state in which this rail is then: at first its first
        # one. After row (3, 1) of the changes it has made those of its own before 3 s, and two of
        # those at 3 s, or all if they are fewer.
        n_earlier = np.searchsorted(timeline.starts_s[1:], change_s)
        n_until = np.searchsorted(timeline.starts_s[1:], change_s, side="right")
        state_after = np.minimum(n_earlier + 1 + n_before_at_once.astype(np.int64), n_until)
        state = np.append(0, state_after)

        # ``receiver[state, GPU, port]``: a port of this rail, g * k + p, or `IDLE`. On the joined
        # switch, on which a GPU has n_rails * k ports, it is g * n_rails * k + rail * k + p.
        receiver = timeline.matchings[state].reshape(-1, n_gpus, k)
        share = receiver // k * (n_rails * k) + rail * k + receiver % k
        shares[:, :, rail] = np.where(receiver == IDLE, IDLE, share)
    return RailTimeline(
        rails=tuple(range(n_rails)),
        matchings=shares.reshape(1 + len(change_s), -1),
        asked_s=np.append(0.0, change_s),
        starts_s=np.append(0.0, change_s),
    )


# The plan as a whole


_CHUNK = 1 << 18
"""About how many sends are followed at once, to bound memory."""


def replay_plan(job: RailJob, plan: object, findings: Findings) -> bool:
    """Check the form of a plan, its times, switches and circuits; False if it ends early.

    The steps build on each other: the plan names the operations and rails of the job; times keep
    to the dependencies; states of switches are matchings; what is forwarded has a route; and every
    operation on a rail has the circuits that it needs for as long as it needs them. Broken rules
    and figures go into `findings`, and where a step cannot be made, ``findings.skipped`` says why.
    """
    # Form. In files a rank may be `like` another one, whose operations it repeats; here each
    # rank has its own. A timeline is the states of a switch over time; rails that do the same
    # share one, and together they name each rail once.
    step = job.step()
    if not isinstance(plan, RailPlan):
        findings.refuse("the answer is a plan", "answer", type(plan).__name__, "RailPlan")
        return False
    n_times = len(plan.start_s)
    if not findings.expect("every operation has its times", "start_s", n_times, step.n_operations):
        return False
    if not findings.expect("all ranks have operations of their own", "like", len(plan.like), 0):
        return False
    ranks_of_rail = ranks_of_rails(step)
    planned = sorted(rail for timeline in plan.rails for rail in timeline.rails)
    if not findings.expect("every rail has a timeline", "rails", planned, list(ranks_of_rail)):
        return False
    for number, timeline in enumerate(plan.rails):
        n_gpus = {len(ranks_of_rail[rail]) for rail in timeline.rails}
        rule = "a timeline is that of rails with equally many GPUs"
        if not findings.expect(rule, f"rails[{number}]", len(n_gpus), 1):
            return False

    # Times. An operation with rail -1 is beside all rails, and may use no port.
    context = Context(job, step, plan, findings)
    _check_times(context)
    off_rails = np.flatnonzero((step.rail < 0) & (plan.ports != 0))
    ports = plan.ports[off_rails]
    context.refuse_operations("what rides no rail uses no port", off_rails, ports != 0, ports, 0)

    # Switches. All timelines are checked, also after a wrong one.
    fits = [
        _check_timeline(context, number, len(ranks_of_rail[timeline.rails[0]]))
        for number, timeline in enumerate(plan.rails)
    ]
    if not all(fits):
        findings.skipped.append("circuits: states that are no matchings of a rail define none")
        return False
    # In a pooled plan the data of a GPU go over any rail, and change rail inside its server.
    if plan.pooled and not _check_pooled(context, ranks_of_rail):
        findings.skipped.append("circuits: rails that may not be used together")
        return False
    if plan.pooled:
        # From here on each GPU has a share of all ports of its server as ports of its own.
        context = Context(pool_job(job), step, plan, findings)
    has_routes = not len(plan.relays) or _check_forwarded(context)
    if not has_routes or (plan.chords and not _check_chord_routes(context)):
        findings.skipped.append("circuits: what is forwarded has no route")
        return False

    # Circuits. In a pooled plan all rails do the same: rail 0 is checked, with the ports of all.
    if plan.pooled:
        rail = _open_rail(context.job, ranks_of_rail[0], _pool_timelines(job, plan))
        _check_rail(context, rail, np.flatnonzero(step.rail == 0))
    else:
        _check_rails(context, ranks_of_rail)

    # The objective, and how often switches and circuits change, over all rails.
    n_reconfigurations = 0
    n_circuits_changed = 0
    for timeline in plan.rails:
        matchings = timeline.matchings
        new_circuit = (matchings[1:] != matchings[:-1]) & (matchings[1:] != IDLE)
        n_circuits_changed += int(new_circuit.sum()) * len(timeline.rails)
        n_reconfigurations += timeline.n_reconfigurations * len(timeline.rails)
    findings.figures |= {
        "objective": plan.step_s,
        "reconfigurations": n_reconfigurations,
        "circuits_changed": n_circuits_changed,
    }
    return True


def _check_rails(context: Context, ranks_of_rail: dict[int, NDArray[np.int64]]) -> None:
    """Check the circuits of all rails, but for a rail that does the same as the one checked last.

    ``ranks_of_rail[rail]`` lists the ranks on it. Only rails of one timeline, whose switches do
    the same, are compared: by their *loads*, which say all that rides them.
    """
    # `_describe_load` adds the groups of ranks that it meets: by dimension and GPUs their number.
    numbers_of_groups: dict[tuple[str, bytes], int] = {}
    for timeline in context.plan.rails:
        checked_load: tuple[NDArray[np.generic], ...] = ()
        for rail_number in timeline.rails:
            ranks = ranks_of_rail[rail_number]
            riding = np.flatnonzero(context.step.rail == rail_number)
            load = _describe_load(context, ranks, riding, numbers_of_groups)
            if not checked_load or not all(map(np.array_equal, load, checked_load)):
                # The comparison has used up `load`: the load to compare others with is made anew.
                _check_rail(context, _open_rail(context.job, ranks, timeline), riding)
                checked_load = (*_describe_load(context, ranks, riding, numbers_of_groups),)


def _check_rail(context: Context, rail: Rail, riding: NDArray[np.int64]) -> None:
    """Check the circuits of all operations on one rail, and refuse those that break a rule.

    `riding` are the indices of these operations, ascending. All-to-alls go over chords, in rounds
    or in stages, other collectives in the rounds of their algorithm; all else, all-to-alls around
    a ring included, goes along circuits that stay. A wrong port ends the check of the rail, since
    all further rules look ports up.
    """
    step = context.step

    # Ports are bits: each operation needs one at least, and none beyond those of its GPU. Later
    # rules look ports up and rely on that.
    ports = context.plan.ports[riding]
    wrong = (ports <= 0) | (ports >> context.job.network.ports_per_gpu != 0)
    context.refuse_operations(
        "an operation on a rail uses ports of its GPU", riding, wrong, ports, 1
    )
    if wrong.any():
        return

    # An operation needs no circuits if it takes no time, and also should take none: `full_s` is
    # how long it lasts with all circuits up.
    lasts_s = context.plan.end_s[riding] - context.plan.start_s[riding]
    riding = riding[(lasts_s > 0) | (measure_work(context.job, riding).full_s > 0)]

    # What is sent is checked in chunks of senders, sorted by communication (`match`). All members
    # of a communication are in the chunk in which it begins: with communications of 2 members that
    # begin at the places 0, 2 and 4, and chunks of 3, two communications are in the first chunk,
    # and the third one in the next. Each check returns who sends over which port of the switch.
    senders = riding[step.kind[riding] != RECV]
    match = step.match[senders]
    chunk_number = np.searchsorted(np.sort(match), match) // _CHUNK
    chunks = [
        _check_sends(context, rail, riding, senders[chunk_number == number])
        for number in np.unique(chunk_number)
    ]
    if chunks:
        operation, port = map(np.concatenate, zip(*chunks, strict=True))
        _check_sharing(context, operation, port)


def _check_sends(
    context: Context, rail: Rail, riding: Places, senders: Places
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Check the circuits of some communications; `senders` are all operations that send for them.

    `riding` are all operations on the rail; both ascend. Checked one after another are all-to-alls

    1. over chords (`_check_chords`),
    2. in rounds (`_check_exchanges`, which also tells which ones are in stages),
    3. in stages (`_check_stages`),

    then other collectives in rounds (`_check_in_rounds`), and all that is left, over circuits that
    stay (`_check_routes`). Returns for all `senders` who sends over which port of the switch: an
    entry for each port of each operation, and of each rank that forwards its data.
    """
    # `scattered` are the all-to-alls that may be of the kinds 1 to 3: of more than two members,
    # none of whose data are forwarded by other ranks. Operations whose data are forwarded stand in
    # column 0 of ``plan.relays``, and all members have the same number in ``step.match``.
    step = context.step
    of_several = count_members(step)[step.group[senders]] > 2
    scattered = senders[(step.kind[senders] == ALL_TO_ALL) & of_several]
    forwarded = step.match[context.plan.relays[:, 0]]
    scattered = scattered[~np.isin(step.match[scattered], forwarded)]
    over_chords = _check_chords(context, rail, scattered)
    scattered = scattered[~np.isin(scattered, over_chords)]

    # `_check_exchanges` looks at each member by itself. If it finds one in stages, all members of
    # that all-to-all are checked in stages, as they all have to hand on the parts of others.
    in_rounds, in_stages = _check_exchanges(context, rail, scattered)
    staged = scattered[np.isin(step.match[scattered], step.match[in_stages])]
    if len(staged):
        _check_stages(context, rail, staged)
    changing = [over_chords, in_rounds, staged]
    for group in list_in_rounds(context.job, senders):
        _check_in_rounds(context, rail, group)
        changing.append(group.operations)

    # All other sends go over circuits that stay for the whole operation. `_check_routes` lists
    # their ports, those of ranks that forward included; `all_changing` are the operations that
    # were checked before, and use the ports of their own ranks alone.
    all_changing = np.unique(np.concatenate(changing))
    staying = senders[~np.isin(senders, all_changing)]
    sent, port = _check_routes(context, rail, riding, staying)
    used = rail.list_ports(step.rank[all_changing], context.plan.ports[all_changing])
    operation = np.concatenate([sent, all_changing[used.row]])
    port = np.concatenate([port, used.port])
    return operation.astype(np.int32), port.astype(np.int32)


def _check_sharing(
    context: Context, operations: NDArray[np.int32], ports: NDArray[np.int32]
) -> None:
    """Check that no port of the switch sends for two operations at the same time.

    Port ``ports[entry]`` of the switch sends for ``operations[entry]``, from its start to its end.
    Times may overlap by rounding alone.
    """
    # Ports are independent of each other: a part of them at a time, to bound memory.
    plan = context.plan
    n_parts = 1 + len(ports) // (4 * _N_COMPARED)
    for part in range(n_parts):
        chosen = ports % n_parts == part
        operation = operations[chosen]
        port = ports[chosen]

        # Sorted by port, then by start, each entry is compared with the one before. If any two
        # sends of a port overlap, so do two that stand side by side: one from 0 to 9 s overlaps
        # one from 5 to 6 s, and also any that starts between them.
        order = np.lexsort([plan.end_s[operation], plan.start_s[operation], port])
        operation = operation[order]
        port = port[order]
        start_s = plan.start_s[operation][1:]
        end_before_s = plan.end_s[operation][:-1]
        overlap = (np.diff(port) == 0) & (start_s < end_before_s - rounding(end_before_s))
        context.refuse_operations(
            "a port sends for one operation at a time",
            operation[1:],
            overlap,
            start_s,
            end_before_s,
        )

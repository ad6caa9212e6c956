"""When the operations of a step end, if nothing but they themselves delays them.

An *event* is a computation, or a communication of several ranks as one. A *stream* is a queue of a
rank, of which the operations are done one after the other. *Rounds* are the steps of a collective
that is no ring: in each of them pairs of members exchange something.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import LONGEST_S, InputError, check_time
from optmatch.problems.collectives import steps
from optmatch.problems.collectives.steps import Algorithm, Round
from optmatch.problems.rails.training.arrays import list_ranges
from optmatch.problems.rails.training.network import RailNetwork
from optmatch.problems.rails.training.step import (
    COLUMNS,
    COMPUTE,
    OPERATIONS,
    SEND,
    Step,
    count_messages,
    ring_bytes,
)


def list_rounds(algorithm: Algorithm, kind: int, members: int) -> tuple[Round, ...]:
    """List the rounds of a collective; none if it goes around a ring, as between two members."""
    around = members <= 2 or algorithm == "ring"
    return () if around else steps.list_rounds(algorithm, OPERATIONS[kind], members)


def find_rounds(
    step: Step, collectives: Mapping[str, Algorithm]
) -> Iterator[tuple[NDArray[np.int64], tuple[Round, ...]]]:
    """List the operations of collectives in rounds, by algorithm, size and kind.

    Yields arrays of operations, ascending, each with the rounds that its members go through.
    Collectives that go around a ring, or that stay inside a server, are left out.
    """
    # The groups with one algorithm and one number of members.
    groups_alike = defaultdict[tuple[Algorithm, int], list[int]](list)
    for number, group in enumerate(step.groups):
        algorithm = collectives.get(group.dimension, "ring")
        if group.rail >= 0 and algorithm != "ring":
            groups_alike[algorithm, len(group.ranks)].append(number)

    # An algorithm may have rounds for some kinds of operations only.
    for (algorithm, members), groups in groups_alike.items():
        operations = np.flatnonzero(np.isin(step.group, groups))
        for kind in np.unique(step.kind[operations]).tolist():
            rounds = list_rounds(algorithm, kind, members)
            if rounds:
                yield operations[step.kind[operations] == kind], rounds


class Events(NamedTuple):
    """The events of a step: computations, and communications of several ranks as one.

    Parameters
    ----------
    event_of
        ``event_of[operation]``: the event that it belongs to.
    part
        ``part[event]``: the first operation that belongs to it.
    before, after
        ``before[k]`` has to end before ``after[k]`` starts: pairs of events.
    duration_s
        ``duration_s[event]``, with all circuits there.
    """

    event_of: NDArray[np.integer]
    part: NDArray[np.int64]
    before: NDArray[np.integer]
    after: NDArray[np.integer]
    duration_s: NDArray[np.float64]


def events(step: Step, network: RailNetwork, collectives: Mapping[str, Algorithm]) -> Events:
    """Join the parts of each communication to one event.

    ``part[event]`` is the first operation of an event, and ``before[k]`` has to end before
    ``after[k]`` starts. Computations come first, the last one being event 0, then communications
    by their number in `match`::

        operation        0     1     2     3     4
        match           -1    -1     0     2     2
        event            1     0     2     3     3
    """
    # Operations of communications are `joined`, and have a number in `match`.
    check_time()
    n = step.n_operations
    joined = step.match >= 0
    n_computations = n - int(joined.sum())
    match = step.match[joined]

    # The event of each operation. Numbers in `match` may have gaps, as 1 in the example, and
    # events have none: a running count of the numbers that are `seen` leaves them out.
    seen = np.zeros(1 + int(match.max(initial=-1)), dtype=bool)
    seen[match] = True
    event_of = np.empty(n, dtype=np.int32)
    event_of[~joined] = np.arange(n_computations)[::-1]
    event_of[joined] = n_computations + (np.cumsum(seen) - 1)[match]
    part = np.empty(n_computations + int(seen.sum()), dtype=np.int64)

    # The first operation of each event: written from the last operation to the first, so that the
    # first of several stays.
    part[event_of[::-1]] = np.arange(n)[::-1]

    # Pairs of operations become pairs of their events.
    before, after = orders(step, np.arange(n))
    lasts_s = durations_s(step, network, collectives)[part]
    return Events(event_of, part, event_of[before], event_of[after], lasts_s)


def orders(
    step: Step, operations: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """List pairs of operations of which the first ends before the second starts.

    These are dependencies, and operations of one stream one after another. `operations` ascend;
    the result is the first operation of each pair, and the second one.
    """
    # The rows of dependencies of these operations, one after the other.
    counts = step.dep_start[operations + 1] - step.dep_start[operations]
    dep = step.dep[list_ranges(step.dep_start[operations], counts)]

    # A stable sort by stream keeps program order: each operation then follows its predecessor.
    stream = streams(step, operations)
    order = np.argsort(stream, kind="stable")
    is_same_stream = stream[order][1:] == stream[order][:-1]
    order = operations[order]
    before = np.concatenate([dep, order[:-1][is_same_stream]])
    after = np.concatenate([np.repeat(operations, counts), order[1:][is_same_stream]])
    return before, after


def streams(step: Step, operations: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the number of the stream of each of some operations, or of all.

    Operations of one stream have equal numbers; which numbers these are has no meaning, and there
    are gaps. Streams differ by rank, by dimension and name of the group (computation has one of
    its own), by rail or server, and of messages by partner and direction.
    """
    rows = slice(None) if operations is None else operations
    kind = step.kind[rows]

    # Groups of one dimension and name of a stream share a number. Of computation, whose group is
    # -1, it is the last one of the list, that of no group.
    names = [(group.dimension, group.stream) for group in step.groups]
    number_of = {name: number for number, name in enumerate(dict.fromkeys(names))}
    stream = np.array([*(number_of[name] for name in names), len(number_of)])[step.group[rows]]
    on_rail = step.rail[rows] >= 0

    # Messages have a stream for each other rank and direction; `peer` is -1 and `direction` 0 of
    # all others.
    direction = np.where(kind >= SEND, kind, 0)

    # All of these are the digits of one number, which counts (rank, stream, rail, peer, direction)
    # in the order of these tuples.
    n_of_digit = (step.n_ranks, len(number_of) + 1, 2, step.n_ranks + 1, len(OPERATIONS))
    digits = (step.rank[rows], stream, on_rail.astype(np.int8), step.peer[rows] + 1, direction)
    numbers: NDArray[np.int64] = np.ravel_multi_index(digits, n_of_digit)
    return numbers


def pick_ranks(step: Step, ranks: Sequence[int]) -> tuple[Step, NDArray[np.int64]]:
    """Return a step that has the operations of some ranks alone, and their former numbers.

    `ranks` ascend, and keep their numbers, as do groups and peers, which may be ranks that have no
    operations any more. Operation k of the new step had the number ``operations[k]``.
    """
    chosen = np.array(ranks, np.int64)
    start = step.rank_start[chosen]
    operations = list_ranges(start, step.rank_start[chosen + 1] - start)

    # The rows of dependencies of these operations, one after the other, with their new numbers.
    counts = step.dep_start[operations + 1] - step.dep_start[operations]
    dep_start = np.concatenate([[0], np.cumsum(counts)])
    dep = step.dep[list_ranges(step.dep_start[operations], counts)]
    columns = {name: getattr(step, name)[operations] for name in COLUMNS}
    part = Step.of_columns(
        step.groups, **columns, dep_start=dep_start, dep=np.searchsorted(operations, dep)
    )
    return part, operations


def durations_s(
    step: Step, network: RailNetwork, collectives: Mapping[str, Algorithm]
) -> NDArray[np.float64]:
    """List how long operations last with all links up, in seconds.

    ``collectives[dimension]`` is an algorithm; dimensions that are left out use rings. Raises
    `InputError` for times that are too long.
    """
    # By operation the number of ranks of its group (1 of a computation, which has group -1), and
    # the rate in bytes per second; rail -1 stands for links inside a server.
    sizes = np.array([*(len(group.ranks) for group in step.groups), 1])[step.group]
    rate = np.where(step.rail >= 0, network.rail_bytes_per_s, network.scale_up_bytes_per_s)

    # By operation the number of messages and the bytes that a rank sends, on a ring.
    messages = count_messages(step.kind, sizes)
    sent = ring_bytes(step.kind, step.size_bytes, sizes)

    # Collectives with another algorithm go in rounds, in each of which a rank sends a share of the
    # size to one other rank, as one message.
    for operations, rounds in find_rounds(step, collectives):
        share = sum(one_round.share for one_round in rounds)
        sent[operations] = step.size_bytes[operations] * share
        messages[operations] = len(rounds)

    # An infinite time is refused with all others that are too long.
    with np.errstate(over="ignore"):  # found by the comparison below
        latency_s = np.where(step.rail >= 0, network.latency_on_rails_s, network.latency_s)
        communicates_s = sent / rate + messages * latency_s
    lasts_s: NDArray[np.float64] = np.where(step.kind == COMPUTE, step.duration_s, communicates_s)
    for k in np.flatnonzero(lasts_s > LONGEST_S)[:1].tolist():
        text = f"{step.describe(k)}: lasts {lasts_s[k]:g} s, at most {LONGEST_S:g} s are expected"
        raise InputError(text, where="network" if step.kind[k] != COMPUTE else "workload")
    return lasts_s


def ends_s(timed_events: Events, describe: Step | None = None) -> NDArray[np.float64]:
    """Find the ends of all events by longest paths, level by level.

    Raises `InputError` naming a circle of events that wait for each other, by their operations in
    the step `describe` or, without one, by numbers.
    """
    # Pairs sorted by their first event: ``after[first[k]:first[k + 1]]`` wait for event k.
    # ``waits[k]`` counts the pairs through which event k still waits.
    n = len(timed_events.part)
    order = np.argsort(timed_events.before, kind="stable")
    after = timed_events.after[order]
    first = np.searchsorted(timed_events.before[order], np.arange(n + 1))
    waits = np.bincount(after, minlength=n)

    # `ready` is a level of events that wait for nothing more. An end of -1 says not yet.
    start = np.zeros(n)
    end = np.full(n, -1.0)
    ready = np.flatnonzero(waits == 0)
    place = np.zeros(n, np.int64)
    while len(ready):
        check_time()
        end[ready] = start[ready] + timed_events.duration_s[ready]

        # The events that wait for this level: `reached` has an entry for each pair.
        counts = first[ready + 1] - first[ready]
        reached = after[list_ranges(first[ready], counts)]

        # An event starts when the last one that it waits for ends. If nothing is left that it
        # waits for, it is in the next level.
        np.maximum.at(start, reached, np.repeat(end[ready], counts))
        np.subtract.at(waits, reached, 1)
        # An event that is reached by several pairs at once has several entries: one stays.
        ready = reached[waits[reached] == 0]
        place[ready] = np.arange(len(ready))
        ready = ready[place[ready] == np.arange(len(ready))]

    # An event that has never been ready waits, directly or through others, for a circle.
    if (end < 0).any():
        never_ends = end[timed_events.before] < 0
        before = timed_events.before[never_ends].tolist()
        circle = list_circle(before, timed_events.after[never_ends].tolist())
        parts = timed_events.part[circle].tolist()
        name, *further = [describe.describe(k) if describe else f"operation {k}" for k in parts]
        ways = ", ".join(further[:8])
        if len(further) > 8:
            ways += f" and {len(further) - 8} more"
        text = f"{name} waits for itself, by way of {ways}: an order that no ranks can keep"
        raise InputError(text, where="dep")
    return end


def list_circle(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """Find events that wait for each other in a circle; each of `after` waits for one.

    ``before[k]`` has to end before ``after[k]`` starts. The circle begins with its lowest number,
    and each event in it waits for the next one.
    """
    # Each event is followed to one that it waits for. As each waits for some event, one is met
    # again at last, and the circle is what has been seen from there on.
    waits_for = dict(zip(after, before, strict=True))
    event = before[0]
    number_of_event: dict[int, int] = {}
    while event not in number_of_event:
        number_of_event[event] = len(number_of_event)
        event = waits_for[event]
    circle = list(number_of_event)[number_of_event[event] :]
    first = circle.index(min(circle))
    return circle[first:] + circle[:first]

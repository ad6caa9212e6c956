"""The kernel of forwarded plans: every communication goes when its circuits are free.

Ports come in *bundles*: so many ports of every GPU that always hold the same circuits. Data go
over one of some *rings*, permutations of the seats, through the seats between, or straight, from
one to the next. What of their way is not up is set up for them, and takes other circuits away.
One ring of each bundle is its *home*: it is up when the step begins, and again when it ends.

*Chords* are bundles of one port whose home leads a stride further on in each group of experts. An
all-to-all goes over all of them at once, and a collective over those whose stride makes a ring.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.solvers.kernels.decorators import inner_kernel, kernel

EITHER, STRAIGHT, CHORDS = -2, -1, -4
"""A node may go as it ends soonest, or straight, or over chords; else the number of its ring."""
_NODE, _BESIDE = 90, 15
"""As many circuits are looked at in the time that a node takes beside them, on a rail and not."""


class Chords(NamedTuple):
    """The bundles that are chords."""

    stride: NDArray[np.int64]
    """``stride[bundle]``: how many members further on its circuits lead; 0 if it is no chord."""
    load: NDArray[np.float64]
    """``load[members]``: parts that the busiest chord carries in an all-to-all of so many members;
    infinite where the strides lead not everywhere."""


class ChordWay(NamedTuple):
    """When a node could go over chords."""

    free_s: float
    """When all its circuits are free and up."""
    n_missing: int
    """How many of them have to be set up."""
    lasts_s: float
    """How long the node then lasts; infinite if chords cannot serve it."""
    n_examined: int
    """Circuits that were looked at."""


@inner_kernel
def _serves_as_chord(stride, is_exchange, n_members):
    """Tell whether a bundle of this stride serves a node: all-to-alls all, others rings alone.

    A stride makes a ring through all members if it has no divisor in common with their number.
    """
    if stride == 0 or stride % n_members == 0:
        return False
    if is_exchange:
        return True
    larger, smaller = n_members, stride % n_members
    while smaller:
        larger, smaller = smaller, larger % smaller
    return larger == 1


@inner_kernel
def _find_chord_way(members, given, chords, rates, facing, sends, receives, delay_s):
    """Find when a node could go over chords, and how long it would last.

    Parameters
    ----------
    members : int array, shape (members,)
        The seats of the node, in the order of its group.
    given : tuple
        How it goes (2: an all-to-all), bytes over a ring, latency, when it is ready, and its way.
    chords : Chords
    rates : float array, shape (bundles,)
        Bytes per second.
    facing : int array, shape (bundles, seats)
        The seat that each sending port leads to.
    sends, receives : float arrays, shape (bundles, seats)
        When ports are free.
    delay_s : float
        What a circuit takes that has to be set up.
    """
    how, sent, late = given[0], given[1], given[2]
    n = len(members)
    free_s, n_missing, n_examined, rate, n_chords = 0.0, 0, 0, 0.0, 0
    for b in range(len(rates)):
        if _serves_as_chord(chords.stride[b], how == 2, n):
            rate += rates[b]
            n_chords += 1
            chord_free_s, missing = _straight(
                members, False, chords.stride[b] % n, facing[b], sends[b], receives[b], delay_s
            )
            free_s = max(free_s, chord_free_s)
            n_missing += missing
            n_examined += n
    lasts_s = np.inf
    if rate > 0.0 and how == 2:
        # Each hop of a part has its share of the latency: one message after the other, as with
        # all links, over whichever port.
        send_s = sent / _chord_rate(chords, rates)
        lasts_s = chords.load[n] * (send_s + n_chords * late) / (n - 1)
    elif rate > 0.0:
        lasts_s = sent / rate + late
    return ChordWay(free_s, n_missing, lasts_s, n_examined)


@inner_kernel
def _chord_rate(chords, rates):
    """Return the bytes per second of one chord: all are bundles of one port."""
    for b in range(len(rates)):
        if chords.stride[b] > 0:
            return rates[b]
    return 0.0


@inner_kernel
def _take_chords(
    members, is_exchange, ends, chords, facing, faced, sends, receives, turns, where, number
):  # fmt: skip
    """Set up the missing circuits of all chords that serve a node, and hold them until it ends.

    Returns how many circuits were set up so far.
    """
    n = len(members)
    for b in range(len(chords.stride)):
        if not _serves_as_chord(chords.stride[b], is_exchange, n):
            continue
        stride = chords.stride[b] % n
        for k in range(n):
            one, two = members[k], members[(k + stride) % n]
            if facing[b, one] != two:
                at_s = max(sends[b, one], receives[b, two])
                number = _turn(one, two, at_s, facing[b], faced[b], turns, where, number, b)
        for k in range(n):
            sends[b, members[k]] = ends
            receives[b, members[k]] = ends
    return number


@inner_kernel
def _less(keys, ranks, a, b):
    return keys[a] < keys[b] or (keys[a] == keys[b] and ranks[a] < ranks[b])


@inner_kernel
def _push(heap, size, keys, ranks, node):
    at = size
    heap[at] = node
    while at > 0:
        up = (at - 1) // 2
        if not _less(keys, ranks, heap[at], heap[up]):
            break
        heap[at], heap[up] = heap[up], heap[at]
        at = up
    return size + 1


@inner_kernel
def _pop(heap, size, keys, ranks):
    """Move the least to the end of the heap."""
    size -= 1
    heap[0], heap[size] = heap[size], heap[0]
    at = 0
    while True:
        low = 2 * at + 1
        if low >= size:
            return size
        if low + 1 < size and _less(keys, ranks, heap[low + 1], heap[low]):
            low += 1
        if not _less(keys, ranks, heap[low], heap[at]):
            return size
        heap[at], heap[low] = heap[low], heap[at]
        at = low


@inner_kernel
def _around(members, message, ring, cycle, facing, sends, receives, mark, delay_s, most_s):
    """Return when all circuits of a way over a ring are free and up, hops, and missing circuits.

    The hops are the most from one member to the next, 0 if there is no such way, or none that is
    free before some time; what is missing has to be set up. Members share a cycle, all of which
    is used but by a message; they are marked as the first of them is. At last comes how many
    circuits were looked at.
    """
    free, missing, looked = 0.0, 0, 0
    source = members[0]
    for k in range(1, len(members)):
        if cycle[members[k]] != cycle[source]:
            return 0.0, 0, 0, k
    last = members[1] if message else source
    at, hops, longest, token = source, 0, 0, mark[source]
    while True:
        to = ring[at]
        up = max(sends[at], receives[to])
        if facing[at] != to:
            up += delay_s
            missing += 1
        free = max(free, up)
        hops += 1
        looked += 1
        if free >= most_s:
            return free, 0, missing, looked
        at = to
        if mark[at] == token and not message:
            longest = max(longest, hops)
            hops = 0
        if at == last:
            return free, max(hops, longest), missing, looked


@inner_kernel
def _turn(one, two, at_s, facing, faced, turns, where, number, bundle):
    """Set a circuit up, in place of the circuits that its ports held."""
    if facing[one] >= 0:
        faced[facing[one]] = -1
    if faced[two] >= 0:
        facing[faced[two]] = -1
    facing[one] = two
    faced[two] = one
    if number < len(turns):
        turns[number] = at_s
        where[number, 0] = bundle
        where[number, 1] = one
        where[number, 2] = two
    return number + 1


@inner_kernel
def _choose(
    members, given, ring, cycle, rates, begin, stride, hop, chords, delay_s, price_s, facing,
    sends, receives, mark,
):  # fmt: skip
    """Return which way a node ends soonest, -1 if it has none, when, and its row of the menu.

    At last comes how many circuits were looked at.
    """
    how, sent, late, ready_s, way = given
    taken, best_s, begins, ends, row, n = -1, np.inf, 0.0, 0.0, 0, len(members)
    looked = 1
    for b in range(len(rates)):
        for r in range(len(ring)):
            if (way != EITHER and way != r) or ring[r, members[0]] < 0:
                continue
            free, hops, missing, more = _around(
                members, how == 1, ring[r], cycle[r], facing[b], sends[b], receives[b], mark,
                delay_s, best_s,
            )  # fmt: skip
            looked += more
            if hops > 0:
                at_s = max(ready_s, free)
                ends_s = at_s + (sent * (n / 2 if how == 2 else 1.0) / rates[b] + hops * late)
                price = price_s if missing and way == EITHER else 0.0
                if ends_s + price < best_s:
                    best_s, begins, ends = ends_s + price, at_s, ends_s
                    taken = b * (len(ring) + 1) + r + 1
        if way == CHORDS or (way >= 0 and (taken >= 0 or b < len(rates) - 1)):
            continue  # straight is for those that may, or have no other way
        first, last = (begin[n], begin[n + 1]) if how == 2 else (0, 1)
        for each in range(first, last):
            free, missing = _straight(
                members, how == 1, stride[each, 0], facing[b], sends[b], receives[b], delay_s
            )  # fmt: skip
            looked += n
            at_s = max(ready_s, free)
            ends_s = at_s + sent / rates[b] + late
            if how == 2:
                part_s = (sent / rates[b] + late) / (n - 1)
                ends_s = at_s - delay_s
                for k in range(stride.shape[1]):
                    ends_s += hop[each, k] * part_s + (delay_s if stride[each, k] else 0.0)
            price = price_s if (missing or how == 2) and way == EITHER else 0.0
            if ends_s + price < best_s:
                best_s, begins, ends, row = ends_s + price, at_s, ends_s, each
                taken = b * (len(ring) + 1)
    if how != 1 and len(members) > 2 and way in (EITHER, CHORDS):
        found = _find_chord_way(members, given, chords, rates, facing, sends, receives, delay_s)
        looked += found.n_examined
        at_s = max(ready_s, found.free_s)
        ends_s = at_s + found.lasts_s
        price = price_s if found.n_missing and way == EITHER else 0.0
        if ends_s + price < best_s:
            best_s, begins, ends = ends_s + price, at_s, ends_s
            taken = len(rates) * (len(ring) + 1)
    return taken, begins, ends, row, looked


@inner_kernel
def _straight(members, message, stride, facing, sends, receives, delay_s):
    """Return when the circuits to who is so much further on are free and up, and how many not."""
    free, missing, n = 0.0, 0, len(members)
    for k in range(1 if message else n):
        one, two = members[k], members[(k + stride) % n]
        up = max(sends[one], receives[two])
        if facing[one] != two:
            up += delay_s
            missing += 1
        free = max(free, up)
    return free, missing


@inner_kernel
def _take(
    members, message, ends, ring, facing, faced, sends, receives, turns, where, number, b
):  # fmt: skip
    """Set up the missing circuits of a way over a ring, and hold it until a node ends.

    Return how many circuits were set up so far, and how many seats forward.
    """
    last = members[1] if message else members[0]
    at, rows = members[0], -1 if message else -len(members)
    while True:
        to = ring[at]
        if facing[at] != to:
            at_s = max(sends[at], receives[to])
            number = _turn(at, to, at_s, facing, faced, turns, where, number, b)
        sends[at] = receives[to] = ends
        at = to
        rows += 1
        if at == last:
            return number, rows


@inner_kernel
def _go(
    members, message, begins, ends, strides, hops, part_s, delay_s, facing, faced, sends, receives,
    turns, where, number, b,
):  # fmt: skip
    """Set up the missing circuits of a straight way and its stages; hold it until the end."""
    n = len(members)
    count = 1 if message else n
    at_s = begins - delay_s
    for stage in range(len(strides)):
        if strides[stage] == 0:
            break
        for k in range(count):
            one, two = members[k], members[(k + strides[stage]) % n]
            if facing[one] != two:
                from_s = max(sends[one], receives[two]) if stage == 0 else at_s
                number = _turn(one, two, from_s, facing, faced, turns, where, number, b)
        at_s += delay_s + hops[stage] * part_s
    for k in range(count):
        sends[members[k]] = receives[members[(k + 1) % n]] = ends
    return number


@inner_kernel
def _restore(ring, delay_s, facing, faced, sends, receives, turns, where, number, b):
    """Set up the missing circuits of a ring; return when it is up, and the number of turns."""
    ends = 0.0
    for g in range(len(ring)):
        if ring[g] >= 0 and facing[g] != ring[g]:
            at_s = max(sends[g], receives[ring[g]])
            ends = max(ends, at_s + delay_s)
            number = _turn(g, ring[g], at_s, facing, faced, turns, where, number, b)
    return ends, number


@kernel
def decode(
    lasts, tail, sent, late, how, begin, member, first, after, waits, rank, haste, way, ring,
    cycle, home, rates, menu, stride, hop, chords, delay_s, price_s, in_turn, most_s,
    most_rows, facing, faced, sends, receives, mark, heap, keys, start, end, taken, turns, where,
):  # fmt: skip
    """Write starts and ends of all nodes; return the time of the step and the number of turns.

    Nodes are as in `Seats`, choices as in `RailChoice`, stages as in `Menu`, and `chords` are
    `Chords`.

    Parameters
    ----------
    tail, waits
        By node, how long the step lasts at least after it, and for how many it waits; used up.
    cycle, rates
        By ring and seat the number of its cycle; by bundle bytes per second.
    most_s, most_rows
        The time, and how many seats forward in all, at which to give up.
    facing, faced, sends, receives, mark, heap, keys
        Room for work: by bundle and seat, whom a seat sends to and receives of, and when its
        ports are free; by seat; by node.
    start, end, taken, turns, where
        Results: by node its times, and bundle and way, as in `trace`; by turn when, and the
        bundle, who and to whom.

    Returns
    -------
    tuple
        The time of the step, infinite if given up, how many circuits were set up, and how many
        nodes and circuits were looked at.
    """
    size, number, step_s, work, rows, top = 0, 0, 0.0, 0, 0, len(heap)
    for b in range(len(home)):
        for g in range(facing.shape[1]):
            facing[b, g], faced[b, g] = ring[home[b], g], -1
            sends[b, g] = receives[b, g] = 0.0
        for g in range(facing.shape[1]):
            if facing[b, g] >= 0:
                faced[b, facing[b, g]] = g
    for node in range(len(lasts)):
        start[node], keys[node] = 0.0, -haste[node]
        if waits[node] == 0 and how[node] < 0:
            top -= 1
            heap[top] = node  # what rides no rail goes at once, from a stack behind the heap
        elif waits[node] == 0:
            size = _push(heap, size, keys, rank, node)
    while size or top < len(heap):
        if top < len(heap):
            node = heap[top]
            top += 1
            end[node] = start[node] + lasts[node]
            work += _BESIDE
        else:
            size = _pop(heap, size, keys, rank)
            node = heap[size]
            members = member[begin[node] : begin[node + 1]]
            for k in members:
                mark[k] = node
            given = how[node], sent[node], late[node], start[node], way[node]
            taken[node], begins, ends, row, looked = _choose(
                members, given, ring, cycle, rates, menu, stride, hop, chords, delay_s, price_s,
                facing, sends, receives, mark,
            )  # fmt: skip
            work += looked
            if taken[node] < 0:
                return np.inf, number, work
            if begins - haste[node] > keys[node] and not in_turn:
                keys[node] = begins - haste[node]
                size = _push(heap, size, keys, rank, node)
                continue
            b, r = taken[node] // (len(ring) + 1), taken[node] % (len(ring) + 1) - 1
            if b == len(rates):
                number = _take_chords(
                    members, how[node] == 2, ends, chords, facing, faced, sends, receives, turns,
                    where, number,
                )  # fmt: skip
            elif r >= 0:
                number, more = _take(
                    members, how[node] == 1, ends, ring[r], facing[b], faced[b], sends[b],
                    receives[b], turns, where, number, b,
                )  # fmt: skip
                rows += more
            else:
                part_s = (sent[node] / rates[b] + late[node]) / max(len(members) - 1, 1)
                number = _go(
                    members, how[node] == 1, begins, ends, stride[row], hop[row], part_s, delay_s,
                    facing[b], faced[b], sends[b], receives[b], turns, where, number, b,
                )  # fmt: skip
            start[node], end[node] = begins, ends
            work += _NODE
            if ends + tail[node] >= most_s or rows > most_rows:
                return np.inf, number, work
        step_s = max(step_s, end[node])
        for k in range(first[node], first[node + 1]):
            later = after[k]
            start[later] = max(start[later], end[node])
            keys[later] = start[later] - haste[later]
            waits[later] -= 1
            if waits[later] == 0 and how[later] < 0:
                top -= 1
                heap[top] = later
            elif waits[later] == 0:
                size = _push(heap, size, keys, rank, later)
    for b in range(len(home)):
        ends, number = _restore(
            ring[home[b]], delay_s, facing[b], faced[b], sends[b], receives[b], turns, where,
            number, b,
        )  # fmt: skip
        step_s = max(step_s, ends)
    return step_s, number, work


@kernel
def trace(how, begin, member, row, taken, ring, rows):
    """List who forwards: of a member its row, the seat and the bundle; return how many.

    ``taken[node]`` is the bundle times one more than the rings there are, and 0 if the node goes
    straight, or one more than its ring; chords count as one more bundle, straight. With room
    for no rows they are counted alone.
    """
    number, wide = 0, len(ring) + 1
    for node in range(len(how)):
        if how[node] < 0 or taken[node] % wide == 0:
            continue
        members = member[begin[node] : begin[node + 1]]
        b, r = taken[node] // wide, taken[node] % wide - 1
        for k in range(1 if how[node] == 1 else len(members)):
            at = ring[r, members[k]]
            while True:
                stops = at == members[1]
                if how[node] != 1:
                    for other in range(len(members)):
                        stops = stops or members[other] == at
                if stops:
                    break
                if number < len(rows):
                    rows[number, 0] = row[begin[node] + k]
                    rows[number, 1] = at
                    rows[number, 2] = b
                number += 1
                at = ring[r, at]
    return number

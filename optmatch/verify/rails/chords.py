"""The replay of all-to-alls over chords: each port leads to another member, and circuits stay.

The members of a group stand on a circle, and port p of each leads a fixed stride further on. The
plan says which routes the part for each distance takes; as all members do the same, the busiest
port of one member decides how long the all-to-all lasts.

The *place* of a rank is its position in ``group.ranks``, a *stride* the number of places from a
member to the one that a circuit leads to, modulo the number of members, and a *part* what one
member sends to one other. A *spell* is the time for which a port keeps one circuit, or none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.rails.execution.plan import ChordRoutes
from optmatch.verify.rails.circuits import Rail
from optmatch.verify.rails.context import MOST_TOLD, Context
from optmatch.verify.rails.exchanges import find_places
from optmatch.verify.rails.work import measure_work
from optmatch.verify.report import Rule

ROUTES_ARRIVE = Rule("routes over chords bring each part to its place")
ROUTES_CARRY_ALL = Rule("routes over chords carry the whole of each part")
ALL_OVER_CHORDS = Rule("in an all-to-all over chords all members use the same strides")
CHORDS_STAY = Rule("circuits of chords are there from start to end")
LASTS_AS_BUSIEST_CHORD = Rule("an all-to-all over chords lasts as long as its busiest port needs")

Places = NDArray[np.int64]

_SHARE_SLACK = 1e-9
"""Shares of a part are sums of a few floats near 1."""


def check_chord_routes(context: Context) -> bool:
    """Check the tables of routes over chords: each route arrives, and all data have a route.

    The shares of all routes to one distance have to sum to 1.
    """
    n_before = len(context.findings.violations)
    for number, routes in enumerate(context.plan.chords):
        where = f"chords[{number}]"
        # ``hops[route, port]`` times ``strides[port]``, summed over the ports, is how many places
        # further on a route ends.
        reached = routes.hops.astype(np.int64) @ np.array(routes.strides, np.int64)
        reached %= routes.n_members
        for route in np.flatnonzero(reached != routes.distance)[:MOST_TOLD].tolist():
            place = f"{where}.hops[{route}]"
            expected = int(routes.distance[route])
            context.findings.refuse(ROUTES_ARRIVE, place, int(reached[route]), expected)

        # Distance 0 is the member itself, for whom nothing is sent.
        carried = np.bincount(routes.distance, routes.share, minlength=routes.n_members)
        off = np.abs(carried[1:] - 1.0) > _SHARE_SLACK
        for distance in (1 + np.flatnonzero(off)[:MOST_TOLD]).tolist():
            place = f"{where}, distance {distance}"
            context.findings.refuse(ROUTES_CARRY_ALL, place, float(carried[distance]), 1.0)
    return len(context.findings.violations) == n_before


def check_chords(context: Context, rail: Rail, operations: Places) -> Places:
    """Check the all-to-alls over chords, and return them.

    An all-to-all belongs here if its circuits have the strides of a table of routes in the plan.
    """
    operations_by_chord = [
        _check_with_routes(context, rail, operations, chord) for chord in context.plan.chords
    ]
    return np.concatenate([operations[:0], *operations_by_chord])


def _check_with_routes(
    context: Context, rail: Rail, operations: Places, routes: ChordRoutes
) -> Places:
    """Check the all-to-alls that use one table of routes, and return them."""
    chosen = _find_over_chords(context, rail, operations, routes)
    if not len(chosen.operation):
        return chosen.operation

    # All members of the same all-to-alls use these strides. A member that does not is refused, and
    # the first stride stands in the message for what was expected of it.
    match = context.step.match
    taking_part = operations[np.isin(match[operations], match[chosen.operation])]
    differs = ~np.isin(taking_part, chosen.operation)
    context.refuse(ALL_OVER_CHORDS, taking_part, differs, np.nan, routes.strides[0])
    _check_times_over_chords(context, rail, chosen, routes)
    return taking_part


class _OverChords(NamedTuple):
    """All-to-alls that go over chords of one set of routes."""

    operation: Places
    """``operation[row]``"""
    spell: Places
    """``spell[row, port]``: the circuit of each of its ports when it starts."""


def _find_over_chords(
    context: Context, rail: Rail, operations: Places, routes: ChordRoutes
) -> _OverChords:
    """Find the all-to-alls with as many members, and ports of the strides, as a table."""
    step = context.step
    plan = context.plan
    n_ports = len(routes.strides)
    n_used = np.bitwise_count(plan.ports[operations].astype(np.uint64))
    n_members = context.group_size[step.group[operations]]
    operations = operations[(n_members == routes.n_members) & (n_used == n_ports)]
    if not len(operations):
        return _OverChords(operations, np.empty((0, n_ports), np.int64))

    # An entry for each port of each operation: which place in its group the circuit leads to, -1
    # for none, and its stride, which is never -1 of those that lead to a member.
    used = rail.list_ports(step.rank[operations], plan.ports[operations])
    operation_of_entry = operations[used.row]
    spell = rail.spell_at(plan.start_s[operation_of_entry] + context.slack_s, used.port)
    group = step.group[operation_of_entry].astype(np.int64)
    place = find_places(context, group, step.rank[operation_of_entry].astype(np.int64))
    next_place = find_places(context, group, rail.arrival(spell).rank)
    stride = np.where(next_place < 0, -1, (next_place - place) % routes.n_members)

    # The entries of an operation stand together, ports ascending, and all operations that are left
    # use `n_ports` of them: the entries make a table with a row for each operation.
    over_chords = (stride.reshape(-1, n_ports) == np.array(routes.strides)).all(axis=1)
    return _OverChords(operations[over_chords], spell.reshape(-1, n_ports)[over_chords])


def _check_times_over_chords(
    context: Context, rail: Rail, chosen: _OverChords, routes: ChordRoutes
) -> None:
    """Check that circuits of all-to-alls stay, and that these last as busiest ports need."""
    operations = chosen.operation
    start_s = context.plan.start_s[operations]
    end_s = context.plan.end_s[operations]

    # Where the switch stops as a whole, the stop is part of the time of the operation.
    delay_s = 0.0 if len(rail.stops_s) else rail.delay_s
    up_s = (rail.since_s[chosen.spell] + delay_s).max(axis=1)
    until_s = rail.until_s[chosen.spell].min(axis=1)
    is_up = (up_s <= start_s + context.slack_s) & (until_s >= end_s - context.slack_s)
    context.refuse(CHORDS_STAY, operations, ~is_up, start_s, up_s)

    # How long a part occupies a port: its bytes at the rate of one port, and its latency. A member
    # sends its messages one after another, whichever port they use. On a port that has one of
    # n_ports messages, each therefore counts n_ports times its own latency.
    work = measure_work(context.job, operations)
    rate = context.job.network.port_bytes_per_s
    n_ports = len(routes.strides)
    part_s = (work.sent_bytes / rate + n_ports * work.latency_s) / (routes.n_members - 1)

    # How many parts a port sends: each route adds its share, once for each hop over this port. A
    # route that carries half of a part and makes 2 hops over port 0 adds 1 to it.
    parts_of_port = (routes.share[:, None] * routes.hops).sum(axis=0)
    needed_s = parts_of_port.max() * part_s + rail.dark_s(start_s, end_s)
    off = np.abs(end_s - start_s - needed_s) > context.slack_s
    context.refuse(LASTS_AS_BUSIEST_CHORD, operations, off, end_s - start_s, needed_s)

"""Groups that need several rails: the parts of their members inside servers, and on rails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from optmatch.problems.rails.training.layout import RAIL, SERVER
from optmatch.problems.rails.training.network import Spanning
from optmatch.problems.rails.training.program import Operation
from optmatch.problems.rails.training.step import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    RECV,
    REDUCE_SCATTER,
    SEND,
    Group,
)

_Part = tuple[int, str, float]
"""Kind, which groups (`SERVER` or `RAIL`), and size."""


def span_rails(
    programs: Sequence[Sequence[Operation]], groups: Iterable[Group], spanning: Spanning
) -> list[list[Operation]]:
    """Replace what goes over several rails by what goes inside servers, and over one rail each.

    ``programs[stage]`` are of families of groups that may need several rails; `spanning` is as in
    `RailNetwork`.
    """
    groups = list(groups)
    members = {group.name.partition(".")[0]: len(group.ranks) for group in groups}
    on_rails = {group.name.partition(".")[0] for group in groups if group.rail >= 0}
    if "pp" + RAIL in members:
        programs = _forward_messages(programs, members["pp" + SERVER])
    return [
        [
            each._replace(size_bytes=each.size_bytes * each.leaving)
            if each.family in on_rails
            else each
            for each in _span_program(program, members, spanning)
        ]
        for program in programs
    ]


def _span_program(
    program: Sequence[Operation], members: Mapping[str, int], spanning: Spanning
) -> Iterator[Operation]:
    ends: list[tuple[int, ...]] = []  # by operation of the program: the operation that ends it now
    count = 0
    for each in program:
        after = tuple(end for before in each.after for end in ends[before])
        if each.family + RAIL not in members:
            parts = [(each.kind, "", each.size_bytes)]
        else:
            inside, across = (members[each.family + where] for where in (SERVER, RAIL))
            cut = _cut if spanning == "hierarchical" else _cut_rings
            parts = cut(each.kind, each.size_bytes, inside, across)
        made = []
        for kind, where, size in parts:
            yield each._replace(
                kind=kind, after=after, family=each.family + where, size_bytes=size
            )
            made.append(count)
            if spanning == "hierarchical":
                after, made = (count,), [count]
            count += 1
        ends.append(tuple(made))


def _cut(kind: int, size: float, inside: int, across: int) -> list[_Part]:
    """List the parts one after another: each rail carries its share of what a server has."""
    return {
        ALL_REDUCE: [
            (REDUCE_SCATTER, SERVER, size),
            (ALL_REDUCE, RAIL, size / inside),
            (ALL_GATHER, SERVER, size / inside),
        ],
        ALL_GATHER: [(ALL_GATHER, RAIL, size), (ALL_GATHER, SERVER, size * across)],
        REDUCE_SCATTER: [(REDUCE_SCATTER, SERVER, size), (REDUCE_SCATTER, RAIL, size / inside)],
        ALL_TO_ALL: [(ALL_TO_ALL, SERVER, size), (ALL_TO_ALL, RAIL, size)],
    }[kind]


def _cut_rings(kind: int, size: float, inside: int, across: int) -> list[_Part]:
    """List both parts of rings through all members, one ring leaving servers over each rail.

    Each ring has an equal share of the data. A member sends all of them but the one that leaves
    over its rail to the next member of its server.
    """
    n = inside * across
    if kind == ALL_TO_ALL:
        return _cut(kind, size, inside, across)
    if kind == ALL_GATHER:
        return [
            (kind, SERVER, size * (n - 1) / inside),
            (kind, RAIL, size * (n - 1) / (inside * (across - 1))),
        ]
    return [
        (kind, SERVER, size * (n - 1) / n),
        (kind, RAIL, size * (n - 1) / (inside * inside * (across - 1))),
    ]


def _forward_messages(
    programs: Sequence[Sequence[Operation]], inside: int
) -> list[list[Operation]]:
    """Send messages to other servers from the GPU there that has the rail of their receiver.

    The stages of a pipeline fill servers, `inside` in each. A stage receives what it forwards in
    the order in which it is sent, before and after what it receives itself.
    """
    hops = [
        [_hop(stage, each, inside) for each in program] for stage, program in enumerate(programs)
    ]
    queues: dict[tuple[int, int], list[list[Operation]]] = defaultdict(lambda: [[]])
    for stage, program in enumerate(programs):
        for each, hop in zip(program, hops[stage], strict=True):
            if each.kind == SEND and hop.toward != each.toward:
                queues[stage, hop.toward][-1].append(each)
            elif each.kind == SEND:
                queues[stage, hop.toward].append([])
    found = []
    for stage, program in enumerate(programs):
        waiting = {source: iter(rows) for (source, via), rows in queues.items() if via == stage}
        made: list[Operation] = []
        for source, rows in waiting.items():
            made += _forward(next(rows), source, len(made))
        place: list[int] = []
        for each, hop in zip(program, hops[stage], strict=True):
            place.append(len(made))
            made.append(hop._replace(after=tuple(place[before] for before in each.after)))
            if each.kind == RECV and hop.toward == each.toward and each.toward in waiting:
                made += _forward(next(waiting[each.toward]), each.toward, len(made))
        found.append(made)
    return found


def _hop(stage: int, message: Operation, inside: int) -> Operation:
    """Let a message go to or come from the next stage on its way; anything else as it is."""
    if message.kind not in (SEND, RECV):
        return message
    other = message.toward
    if stage // inside == other // inside:
        return message._replace(family="pp" + SERVER)
    source, to = (stage, other) if message.kind == SEND else (other, stage)
    via = source // inside * inside + to % inside
    if message.kind == RECV:
        return message._replace(family="pp" + RAIL, toward=via)
    if via == stage:
        return message._replace(family="pp" + RAIL)
    return message._replace(family="pp" + SERVER, toward=via)


def _forward(messages: Iterable[Operation], source: int, count: int) -> Iterator[Operation]:
    """Receive messages from a stage and send them on, in a program of so many operations."""
    for number, each in enumerate(messages):
        yield each._replace(kind=RECV, after=(), family="pp" + SERVER, toward=source)
        yield each._replace(after=(count + 2 * number,), family="pp" + RAIL)

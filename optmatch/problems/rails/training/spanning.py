"""Groups that need several rails: the parts of their members inside servers, and on rails.

A *family* is a set of groups of one kind. One whose groups have members in several servers and on
several rails has no groups itself, but two families of parts: inside servers, with `SERVER` at the
end of its name, and on rails, with `RAIL`. Operations of such a family are replaced by operations
of its parts; dependencies are numbers of operations in the program of a stage.
"""

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
    """Split communication of groups that need several rails into parts that need one at most.

    GPU number r of every server is connected to the switch of rail r: data for another rail have
    to pass another GPU of the same server. An all-reduce of 2 servers of 4 GPUs, for example, is
    split into collectives among the 4 GPUs of each server, and all-reduces of 2 GPUs on each rail.

    All groups of one kind are a family, such as "dp". If its groups need several rails, there are
    groups of two families in its stead: "dp-server" inside servers, and "dp-rail" on rails.

    Parameters
    ----------
    programs
        ``programs[stage]``: the operations of the ranks of a stage of the pipeline. Each names the
        family of groups that it is done in (`family`), and has its size in bytes (`size_bytes`)
        and the part of it that leaves servers (`leaving`, from 0 to 1).
    groups
        All groups that there are, with names ``family.number``.
    spanning
        How a group uses several rails: ``"hierarchical"``, first inside servers and then on rails,
        or ``"rings"``, both at once.

    Returns
    -------
    list of lists of Operation
        By stage its operations, now all of families in `groups`. On rails, their size is only what
        leaves servers, ``size_bytes * leaving``.
    """
    groups = list(groups)
    members = {group.name.partition(".")[0]: len(group.ranks) for group in groups}
    on_rails = {group.name.partition(".")[0] for group in groups if group.rail >= 0}
    if "pp" + RAIL in members:
        programs = _forward_messages(programs, members["pp" + SERVER])

    # On rails, operations have the size that leaves servers.
    spanned_programs = []
    for program in programs:
        operations = []
        for operation in _span_program(program, members, spanning):
            if operation.family in on_rails:
                leaving_bytes = operation.size_bytes * operation.leaving
                operation = operation._replace(size_bytes=leaving_bytes)
            operations.append(operation)
        spanned_programs.append(operations)
    return spanned_programs


def _span_program(
    program: Sequence[Operation], members: Mapping[str, int], spanning: Spanning
) -> Iterator[Operation]:
    """Replace each collective that needs several rails by collectives that need one at most.

    A collective of the family "dp" (all groups of one kind) whose members are in several servers
    and on several rails becomes two or three collectives: of the family "dp-server" among the
    members in one server, and of "dp-rail" among those on one rail. Other operations stay.

    Parameters
    ----------
    program
        The operations of a stage; each depends on some before it (`after`, numbers from 0).
    members
        The number of members of each group, by family; families that need several rails are there
        by the names of their parts.
    spanning
        With ``"hierarchical"`` the parts of a collective come one after the other, with
        ``"rings"`` side by side.

    Yields
    ------
    Operation
        The new operations, in order; their `after` has new numbers.
    """
    ends: list[tuple[int, ...]] = []  # by operation of the program: the operation that ends it now
    count = 0
    for operation in program:
        # A collective is replaced by parts inside servers and on rails, anything else by itself.
        after = tuple(end for before in operation.after for end in ends[before])
        if operation.family + RAIL not in members:
            parts = [(operation.kind, "", operation.size_bytes)]
        else:
            inside = members[operation.family + SERVER]
            n_servers = members[operation.family + RAIL]
            cut = _cut if spanning == "hierarchical" else _cut_rings
            parts = cut(operation.kind, operation.size_bytes, inside, n_servers)

        # One after the other each part waits for the one before, and the last one is the end; side
        # by side all of them are.
        made = []
        for kind, where, size in parts:
            yield operation._replace(
                kind=kind, after=after, family=operation.family + where, size_bytes=size
            )
            made.append(count)
            if spanning == "hierarchical":
                after = (count,)
                made = [count]
            count += 1
        ends.append(tuple(made))


def _cut(kind: int, size: float, inside: int, n_servers: int) -> list[_Part]:
    """List the parts of a collective one after another: each rail carries its share of a server's.

    An all-reduce, for example, reduces and scatters inside each server, all-reduces the scattered
    pieces over the rails, and gathers them inside each server.

    Parameters
    ----------
    kind
        The collective of the whole group: `ALL_REDUCE`, `ALL_GATHER`, `REDUCE_SCATTER` or
        `ALL_TO_ALL`.
    size
        Its size in bytes: of an all-gather the shard of a rank, else the whole buffer of a rank.
    inside, n_servers
        The members in each server, and the number of servers.

    Returns
    -------
    list of (kind, where, size)
        By part its collective, `SERVER` or `RAIL`, and its size in bytes, meant in the same way.
    """
    return {
        ALL_REDUCE: [
            (REDUCE_SCATTER, SERVER, size),
            (ALL_REDUCE, RAIL, size / inside),
            (ALL_GATHER, SERVER, size / inside),
        ],
        ALL_GATHER: [(ALL_GATHER, RAIL, size), (ALL_GATHER, SERVER, size * n_servers)],
        REDUCE_SCATTER: [(REDUCE_SCATTER, SERVER, size), (REDUCE_SCATTER, RAIL, size / inside)],
        ALL_TO_ALL: [(ALL_TO_ALL, SERVER, size), (ALL_TO_ALL, RAIL, size)],
    }[kind]


def _cut_rings(kind: int, size: float, inside: int, n_servers: int) -> list[_Part]:
    """Divide a collective among rings into what goes inside servers, and what goes over rails.

    There are `inside` rings through all members of all servers, with an equal share of the data
    each. Every ring leaves servers over another rail. A member therefore sends the share of one
    ring over its rail, to the next server, and the shares of all other rings to the next member of
    its server.

    Both are written as collectives of smaller groups: one among the `inside` members of a server,
    and one among the `n_servers` members on a rail. Their sizes are such that these groups send as
    many bytes as the large rings do there.

    Parameters
    ----------
    kind
        The collective of the whole group: `ALL_REDUCE`, `ALL_GATHER`, `REDUCE_SCATTER` or
        `ALL_TO_ALL`.
    size
        Its size in bytes: of an all-gather the shard of a rank, else the whole buffer of a rank.
    inside, n_servers
        The members in each server, and the number of servers.

    Returns
    -------
    list of (kind, where, size)
        The part inside servers (`SERVER`) and the part on rails (`RAIL`), with their sizes in
        bytes. They go on at once.
    """
    # A ring of m members sends (m - 1) / m of a buffer (m - 1 shards of an all-gather). The sizes
    # are what a member has to send, divided by this.
    n = inside * n_servers
    if kind == ALL_TO_ALL:
        return _cut(kind, size, inside, n_servers)
    if kind == ALL_GATHER:
        return [
            (kind, SERVER, size * (n - 1) / inside),
            (kind, RAIL, size * (n - 1) / (inside * (n_servers - 1))),
        ]
    return [
        (kind, SERVER, size * (n - 1) / n),
        (kind, RAIL, size * (n - 1) / (inside * inside * (n_servers - 1))),
    ]


def _forward_messages(
    programs: Sequence[Sequence[Operation]], inside: int
) -> list[list[Operation]]:
    """Let messages between pipeline stages go around where sender and receiver share no rail.

    A rail is a switch that joins the GPUs of the same place in all servers. With two stages in a
    server, stages 0 and 1 are in the first server, 2 and 3 in the second one. Stages 0 and 2 share
    a rail, 1 and 3 another one. A message from stage 0 to stage 3 then takes two steps::

        server A        server B
        0               2           rails of 0 and 2
        | (1)
        1 ----(2)-----> 3           rails of 1 and 3

    Stage 1 *forwards* the message: its program gets a receive and a send. They have to stand where
    the stage takes all messages of one sender in the order in which they are sent. Example: stage
    0 sends f, g, x and h to stage 1; x is for stage 1 itself, the others are forwarded. Stage 1
    then forwards f and g at the very beginning, and h right after it has received x.

    Parameters
    ----------
    programs
        ``programs[stage]``: the operations of each stage in order. A message is a `SEND` at one
        stage and a `RECV` at another; each names the other stage as `toward`.
    inside
        The number of stages in a server.

    Returns
    -------
    list of lists of Operation
        By stage its operations, with those that forward messages. Each message now goes inside a
        server or over one rail, and `toward` names the other end of this step. `after` (numbers of
        operations that come before) is counted anew.
    """
    # ``hops[stage][k]`` is operation k with `toward` set to the next stage on the way.
    # ``queues[sender, stage]`` has the messages that `stage` forwards for `sender`, as a list of
    # runs: all before the first message that is for the stage itself, all between this one and the
    # second one, and so on. In the example it is [[f, g], [h]]. A run may be empty.
    hops = [
        [_hop(stage, operation, inside) for operation in program]
        for stage, program in enumerate(programs)
    ]
    queues: dict[tuple[int, int], list[list[Operation]]] = defaultdict(lambda: [[]])
    for stage, program in enumerate(programs):
        for operation, hop in zip(program, hops[stage], strict=True):
            if operation.kind == SEND and hop.toward != operation.toward:
                queues[stage, hop.toward][-1].append(operation)
            elif operation.kind == SEND:
                queues[stage, hop.toward].append([])

    # The new program of a stage begins with the first run of each sender. Each iterator of
    # `runs_of_source` hands out the runs of one sender, the next one with each call of `next`.
    forwarding_programs = []
    for stage, program in enumerate(programs):
        runs_of_source = {
            source: iter(runs) for (source, via), runs in queues.items() if via == stage
        }
        operations: list[Operation] = []
        for source, runs in runs_of_source.items():
            operations += _forward(next(runs), source, len(operations))

        # The operations that it had before follow. After each message that it receives for itself
        # comes the next run of this sender. ``new_number[k]`` is the place of old operation k in
        # the new program.
        new_number: list[int] = []
        for operation, hop in zip(program, hops[stage], strict=True):
            new_number.append(len(operations))
            after = tuple(new_number[before] for before in operation.after)
            operations.append(hop._replace(after=after))
            source = operation.toward
            receives_itself = operation.kind == RECV and hop.toward == source
            if receives_itself and source in runs_of_source:
                operations += _forward(next(runs_of_source[source]), source, len(operations))
        forwarding_programs.append(operations)
    return forwarding_programs


def _hop(stage: int, message: Operation, inside: int) -> Operation:
    """Replace the other end of a message by the next stage on its way, seen from one of its ends.

    A *stage* is one place of the pipeline; `inside` consecutive stages share a server. A *rail*
    is a switch that joins the GPUs of the same place in all servers. A message to another server
    goes over the rail of its receiver. If the sender is not on this rail, it first hands the
    message to the stage `via` of its own server that is. With two stages in a server, stage 0
    sends to stage 3 like this::

        0 -> 1 (via, same server) -> 3 (over the rail of 1 and 3)

    The send of stage 0 then goes to stage 1, and the receive of stage 3 comes from stage 1. The
    operations of stage 1 itself are not listed here.

    Parameters
    ----------
    stage
        The stage whose operation it is.
    message
        An operation of this stage: `kind`, and `toward`, the stage at the other end of a message.
    inside
        The number of stages in a server.

    Returns
    -------
    Operation
        The same operation with `toward` set to the next stage on the way of a send, or to the last
        stage before a receive. `family` says what it passes: ``"pp" + SERVER`` inside a server,
        ``"pp" + RAIL`` over a rail. An operation that is no message is returned as it is.
    """
    if message.kind not in (SEND, RECV):
        return message
    other = message.toward
    # Stages of one server need no rail.
    if stage // inside == other // inside:
        return message._replace(family="pp" + SERVER)

    # `via` is the stage in the server of the source with the place of the receiver. A receiver
    # always gets the message from there, over a rail. The source itself may be `via`.
    source, to = (stage, other) if message.kind == SEND else (other, stage)
    via = source // inside * inside + to % inside
    if message.kind == RECV:
        return message._replace(family="pp" + RAIL, toward=via)
    if via == stage:
        return message._replace(family="pp" + RAIL)
    return message._replace(family="pp" + SERVER, toward=via)


def _forward(messages: Iterable[Operation], source: int, count: int) -> Iterator[Operation]:
    """Receive messages from a stage and send them on, over the rail of their receiver.

    Parameters
    ----------
    messages
        The sends of the stage `source`, to their receivers, in order.
    source
        The stage that they come from, in the same server.
    count
        The number of operations that the program of the forwarder has so far.

    Yields
    ------
    Operation
        For each message its receive, which waits for nothing, and then its send, which waits for
        the receive.
    """
    # Receive number `n` is operation `count + 2 * n` of the program, and its send the next one.
    for number, message in enumerate(messages):
        yield message._replace(kind=RECV, after=(), family="pp" + SERVER, toward=source)
        yield message._replace(after=(count + 2 * number,), family="pp" + RAIL)

"""Groups that need several rails: the parts of their members inside servers, and on rails.

A *family* is a set of groups of one kind. One whose groups have members in several servers and on
several rails has no groups itself, but two families of parts: inside servers, with `SERVER` at the
end of its name, and on rails, with `RAIL`. Operations of such a family are replaced by operations
of its parts; dependencies are numbers of operations in the program of a stage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

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
    programs: Sequence[Sequence[Operation]], groups: Sequence[Group], spanning: Spanning
) -> list[list[Operation]]:
    """Cut communications that span servers and rails into parts inside servers and on rails.

    ``programs[stage]`` lists operations, and so does the result. Families that have groups named
    "family-server.0" and "family-rail.0" are cut: all groups of a family have equally many
    members, and are all inside servers or all on rails. Messages of pipelines are forwarded over
    ranks of the sender's server; `spanning` says whether the parts of collectives follow each
    other ("hierarchical") or go side by side.

    Example: an all-reduce of 2 servers of 4 GPUs is split into collectives among the 4 GPUs of
    each server, family "dp-server", and all-reduces of 2 GPUs on each rail, family "dp-rail".
    """
    # By family: the members of each of its groups, which all have as many. The name of a group is
    # that of its family, a dot, and a number.
    members = {group.name.partition(".")[0]: len(group.ranks) for group in groups}
    on_rails = {group.name.partition(".")[0] for group in groups if group.rail >= 0}
    if "pp" + RAIL in members:
        programs = _forward_messages(programs, members["pp" + SERVER])

    # On rails, operations have the size that leaves servers.
    return [[*_span_program(program, members, on_rails, spanning)] for program in programs]


def _span_program(
    program: Sequence[Operation],
    members: Mapping[str, int],
    on_rails: Collection[str],
    spanning: Spanning,
) -> Iterator[Operation]:
    """Cut the collectives of one program.

    ``members[family]`` is the number of ranks in each group of a family, parts included, and
    `on_rails` are the families on rails. Parts wait for each other if `spanning` is hierarchical;
    those of rings go side by side.
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
            family = operation.family + where
            if family in on_rails:
                size *= operation.leaving
            yield operation._replace(kind=kind, after=after, family=family, size_bytes=size)
            made.append(count)
            if spanning == "hierarchical":
                after = (count,)
                made = [count]
            count += 1
        ends.append(tuple(made))


def _cut(kind: int, size: float, inside: int, n_servers: int) -> list[_Part]:
    """Cut a collective of a hierarchy into its parts, one after another.

    `size` is in bytes, and `inside` the number of members in a server. An all-reduce of 8 MB over
    4 members in each server has all-reduces of 2 MB on rails.
    """
    # The size of an all-gather is the shard of each member, that of all others the whole buffer.
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
    """Cut a collective into rings side by side.

    One ring is inside each server and one goes over rails; they share the bytes. Each of
    `n_servers` servers has `inside` members, and `size` is in bytes.
    """
    # In one ring through all n members each sends (n - 1) / n of the buffer (n - 1 shards of an
    # all-gather). Of its hops one in `inside` is on a rail, and all others are inside servers. A
    # ring of m members has each send (m - 1) / m of its buffer, or m - 1 shards: the sizes are
    # what a member has to send there, divided by this.
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
    """Send each message over the rank of the sender's server that is on the receiver's rail.

    ``programs[stage]`` lists the operations of a stage; `toward` of a message is the stage at the
    other end, and in the result the other end of its next hop. There are `inside` stages in a
    server. With two of them, a message from stage 0 to stage 3 takes two hops::

        server A        server B
        0               2           rail of 0 and 2
        | (1)
        1 ----(2)-----> 3           rail of 1 and 3

    The rank between forwards messages of one sender in the order in which they are sent, before
    what it receives itself after them. Example: stage 0 sends f, g, x and h to stage 1, and x is
    for stage 1 itself. Stage 1 forwards f and g at the very beginning, and h right after it has
    received x.
    """
    # ``hops[stage][k]`` is operation k with `toward` set to the next stage on the way.
    # ``queues[sender, stage]`` has the messages that `stage` forwards for `sender`, as a list of
    # runs: all before the first message that is for the stage itself, all between this one and the
    # second one, and so on. In the example it is [[f, g], [h]]. A run may be empty.
    hops = [
        [_choose_hop(stage, operation, inside) for operation in program]
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


def _choose_hop(stage: int, message: Operation, stages_per_server: int) -> Operation:
    """Return the end of a message at a stage with its next stage on the way.

    Stages of one server talk inside it. Otherwise a message goes first, inside the server, to the
    stage with the place of the receiver, and from there over a rail. With 4 stages a server, a
    message from stage 1 to 6 goes by stage 2.
    """
    if message.kind not in (SEND, RECV):
        return message
    other = message.toward
    # Stages of one server need no rail.
    if stage // stages_per_server == other // stages_per_server:
        return message._replace(family="pp" + SERVER)

    # `via` is the stage in the server of the source with the place of the receiver. A receiver
    # always gets the message from there, over a rail. The source itself may be `via`.
    source, destination = (stage, other) if message.kind == SEND else (other, stage)
    via = source // stages_per_server * stages_per_server + destination % stages_per_server
    if message.kind == RECV:
        return message._replace(family="pp" + RAIL, toward=via)
    if via == stage:
        return message._replace(family="pp" + RAIL)
    return message._replace(family="pp" + SERVER, toward=via)


def _forward(messages: Iterable[Operation], source: int, count: int) -> Iterator[Operation]:
    """List the receives and sends by which a stage forwards messages of a stage `source`.

    `count` operations stand before in the program of the stage.
    """
    # Receive number `n` is operation `count + 2 * n` of the program, and its send the next one.
    for number, message in enumerate(messages):
        yield message._replace(kind=RECV, after=(), family="pp" + SERVER, toward=source)
        yield message._replace(after=(count + 2 * number,), family="pp" + RAIL)

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
    """Replace what goes over several rails by what goes inside servers, and over one rail each.

    A rail is a switch to which the GPUs of one number in all servers are connected, so that data
    for another rail have to pass a GPU of the same server. A family is all groups of one kind. One
    with members on several rails has groups for its parts: inside servers, ``family-server``, and
    on rails, ``family-rail``; operations of the family become operations of these.

    Parameters
    ----------
    programs
        ``programs[stage]``: the operations of the ranks of a stage of the pipeline, of families of
        groups that may need several rails.
    groups
        All groups that there are, with names ``family.number``.
    spanning
        How a group uses several rails: ``"hierarchical"``, first inside servers and then on rails,
        or ``"rings"``, both at once.

    Returns
    -------
    list of lists of Operation
        By stage the operations of the groups that there are. On rails, what goes only once to
        each server has the size that leaves servers.
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
    """Replace the collectives of a program that need several rails.

    A collective of a group with members in several servers and on several rails becomes
    collectives of its parts: inside servers (family with `SERVER` at the end of its name), and on
    rails (with `RAIL`). Sizes are in bytes.

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
        In order; dependencies are counted anew.
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
    """List both parts of rings through all members, one ring leaving servers over each rail.

    Each ring has an equal share of the data. A member sends all of them but the one that leaves
    over its rail to the next member of its server.

    The sizes are such that a ring of the part alone, of `inside` or `n_servers` members, sends as
    many bytes as the ring through all n members sends over the links of this part.

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
    # Each of the `inside` rings has 1 / inside of the data: a member sends the shares of all rings
    # but one inside its server, and the share of that one over its rail.
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
    """Send messages to other servers from the GPU there that has the rail of their receiver.

    A stage is the GPUs of one place in the pipeline; stages fill servers, `inside` in each, and
    stages with the same remainder modulo `inside` are on the same rails. A message to a stage of
    another server and another rail goes in two hops: inside the server to the stage that has the
    rail of the receiver, and from there, forwarded, over this rail. With 2 stages in a server a
    message from stage 0 to stage 3 goes to stage 1, which sends it on.

    A stage takes the messages of one sender in the order of their sending, those that it forwards
    and those for itself. For each sender, what it forwards is cut into *runs*: messages with none
    for itself between them. Run 0 comes before the first message for itself, run k after the k-th.

    Parameters
    ----------
    programs
        ``programs[stage]``: the operations of each stage in order; messages name the other stage
        as `toward`, whichever it is.
    inside
        The number of stages in a server.

    Returns
    -------
    list of lists of Operation
        By stage its operations, of which each message goes inside a server or over one rail.
        Dependencies are counted anew.
    """
    # ``queues[sender, forwarder]``: the runs of what is forwarded. A message for the forwarder
    # itself begins a new run, which may stay empty.
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

    # A stage forwards the first run of each sender before its own operations, and each further
    # run after the message of this sender that it receives itself. Numbers of its own operations
    # change by what stands before them: `new_number` translates dependencies.
    forwarding_programs = []
    for stage, program in enumerate(programs):
        runs_of_source = {
            source: iter(runs) for (source, via), runs in queues.items() if via == stage
        }
        operations: list[Operation] = []
        for source, runs in runs_of_source.items():
            operations += _forward(next(runs), source, len(operations))

        new_number: list[int] = []  # by operation of the old program
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
    """Let a message go to or come from the next stage on its way; anything else as it is.

    A stage is the GPUs of one place in the pipeline; consecutive stages share a server. A message
    to another server goes first, inside its server, to the stage `via` whose GPU has the rail of
    the receiver, and then over this rail.

    Parameters
    ----------
    stage
        The stage whose operation it is.
    message
        An operation of this stage.
    inside
        The number of stages in a server.

    Returns
    -------
    Operation
        The same operation toward the next stage on its way, in the family of messages inside a
        server (``"pp" + SERVER``) or over a rail (``"pp" + RAIL``).
    """
    if message.kind not in (SEND, RECV):
        return message
    other = message.toward
    # Stages of one server need no rail.
    if stage // inside == other // inside:
        return message._replace(family="pp" + SERVER)

    # A receiver gets it over its own rail; a sender that has this rail needs no help.
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

"""Steps of training jobs from Chakra traces: nodes become operations, matched over ranks."""

from __future__ import annotations

import heapq
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from optmatch.io.rails.chakra.demand import (
    FROM_ROOT,
    Members,
    check_root,
    members_of,
    pair_messages,
    read_groups,
    roots_of,
)
from optmatch.io.rails.chakra.traces import (
    COLLECTIVE,
    COLLECTIVES,
    MISSING,
    RECEIVE,
    SEND,
    Integers,
    Nodes,
    Trace,
    alike,
    read_traces,
    siblings,
)
from optmatch.model import Count, FormatError, FrozenMap, InputError, Positive, Value
from optmatch.problems.rails.training.network import RailNetwork
from optmatch.problems.rails.training.step import (
    COMPUTE as COMPUTE_OPERATION,
    OPERATIONS,
    RECV,
    Dimension,
    Group,
    Step,
)
from optmatch.problems.rails.training.times import ends_s, events, list_circle, streams


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceOptions(Value):
    """Options for what traces leave open.

    Parameters
    ----------
    gpus_per_server, stride
        How many GPUs a server has, and how far apart their ranks are: 1 if they are neighbours,
        the degree of data parallelism if its ranks come first.
    dimensions
        The dimensions of groups by name. Of the others, one that sends and receives is a
        pipeline, one with an all-to-all has experts, one inside a server is tensor parallel, and
        the rest is data parallel.
    leave_out
        Names of groups whose collectives take no time, such as the one of all ranks.
    flops_per_s
        What a GPU reaches: the time of computations that have operations but no duration; None
        if they take none.
    """

    gpus_per_server: Count = 1
    stride: Count = 1
    dimensions: Mapping[str, Dimension] = FrozenMap()
    leave_out: tuple[str, ...] = ()
    flops_per_s: Positive | None = None

    def rail(self, ranks: Sequence[int]) -> int | None:
        """Return the rail of a group, -1 inside a server, None if there are several.

        A rail joins the GPUs of one number in all servers.
        """
        # A rank is (block * gpus_per_server + rail) * stride + place: servers of a block are
        # interleaved, `stride` of them, and `place` says which one it is.
        block, place = np.divmod(np.asarray(ranks), self.stride)
        server, rail = np.divmod(block, self.gpus_per_server)
        if len(set(zip(server.tolist(), place.tolist(), strict=True))) == 1:
            return -1
        return int(rail[0]) if (rail == rail[0]).all() else None

    def rank(self, server: int, place: int) -> int:
        """Return the rank of the GPU of a server at a place, its rail; both count from 0."""
        block, offset = divmod(server, self.stride)
        return (block * self.gpus_per_server + place) * self.stride + offset


_log = logging.getLogger("optmatch")

_MOST_NAMED_NODES = 8
"""The most nodes of a circle that a message names behind the first one."""


def _send_eagerly(step: Step) -> Step:
    """Let messages wait for their senders alone: receives depend on nothing any more.

    Operation k waits for ``step.dep[step.dep_start[k]:step.dep_start[k + 1]]``. If it waits for a
    receive, it takes over the last of the receive's dependencies in each stream (a queue of a
    rank); earlier ones of the stream have ended by then.
    """
    # Operations stand behind those that they depend on, so that the dependencies of a receive are
    # known when an operation that depends on it comes. Later operations of a stream have larger
    # numbers: the largest one is the last.
    stream_of_operation = streams(step).tolist()
    is_receive = (step.kind == RECV).tolist()
    dep_start = step.dep_start.tolist()
    dep = step.dep.tolist()

    dependencies_of_receive: dict[int, list[int]] = {}
    new_dependencies: list[list[int]] = []
    for operation in range(len(is_receive)):
        last_of_stream: dict[int, int] = {}
        for dependency in dep[dep_start[operation] : dep_start[operation + 1]]:
            for inherited in (dependency, *dependencies_of_receive.get(dependency, ())):
                stream = stream_of_operation[inherited]
                last_of_stream[stream] = max(inherited, last_of_stream.get(stream, inherited))
        if is_receive[operation]:
            dependencies_of_receive[operation] = list(last_of_stream.values())
            new_dependencies.append([])
        else:
            new_dependencies.append(sorted(last_of_stream.values()))

    flat = [dependency for dependencies in new_dependencies for dependency in dependencies]
    return replace(
        step,
        dep_start=np.cumsum([0, *map(len, new_dependencies)]),
        dep=np.array(flat, dtype=np.int64),
    )


_OPERATION_OF_COLLECTIVE = {
    "ALL_REDUCE": "all-reduce",
    "ALL_GATHER": "all-gather",
    "REDUCE_SCATTER": "reduce-scatter",
    "REDUCE_SCATTER_BLOCK": "reduce-scatter",
    "ALL_TO_ALL": "all-to-all",
    "BROADCAST": "broadcast",
    "BARRIER": "all-reduce",  # of nothing
    # On a ring they load the link next to the root, and last, as much as these load each link.
    "REDUCE": "broadcast",
    "GATHER": "all-gather",
    "SCATTER": "reduce-scatter",
}
_KIND_OF_COLLECTIVE = np.array(
    [OPERATIONS.index(_OPERATION_OF_COLLECTIVE[name]) for name in COLLECTIVES]
)
"""``_KIND_OF_COLLECTIVE[type]``: the kind of operation, by Chakra's type of collective."""
_ALL_TO_ALL = OPERATIONS.index("all-to-all")
_SEND = OPERATIONS.index("send")
_RECV = OPERATIONS.index("recv")

ALL_RANKS = "all"
"""The name of the group of collectives that name none."""


def read_step(
    prefix: str | os.PathLike[str],
    groups: str | os.PathLike[str] | None = None,
    options: TraceOptions | None = None,
    *,
    skipped: list[str] | None = None,
) -> Step:
    """Read the Chakra traces of all ranks as one step of a job.

    Computations take their duration; communication takes what its circuits need, whatever the
    trace has measured. The k-th collective of a group at one rank belongs to the k-th at the
    others. A send belongs to the receive between the same ranks with the same tag, in order, and
    begins when both are ready. Where ranks would wait for each other in a circle, it does not wait
    for the receive (`_send_eagerly`). Where the ranks of an all-to-all send more or less than each
    other (``all_to_allv``), the largest size counts at all of them.

    Parameters
    ----------
    prefix
        ``folder/name`` of ``folder/name.RANK.et``, or the file of one rank.
    skipped
        A list, to which what a cut trace does not tell is added; it is left out of the step.
        Collectives without a part at some rank and messages without their other end take the time
        that they took; control dependencies do not count where nodes would wait in a circle
        (Chakra's own feeder follows data dependencies alone). None: each of these is an error.
    """
    traces = read_traces(siblings(prefix), skipped=skipped)
    members = {} if groups is None else read_groups(groups, n_ranks=len(traces))
    step = step_of(traces, members, options or TraceOptions())
    return replace(step, skipped=tuple(skipped)) if skipped else step


def step_of(traces: Sequence[Trace], groups: Members, options: TraceOptions) -> Step:
    """Make a step of ``traces[rank]``; matches communication of ranks as `read_step` says.

    The first node that fits to no other, or waits for itself, is refused.
    """
    draft = _Draft(traces, groups, options)
    draft.read_collectives()
    draft.match_collectives()
    draft.match_messages()
    step = draft.make_step()

    # Each send waits until its receive is ready, unless operations then wait for each other in a
    # circle.
    if (step.kind == RECV).any():
        try:
            ends_s(events(step, RailNetwork(gpus_per_server=1), {}))
        except InputError:
            return _send_eagerly(step)
    return step


class _Draft:
    """The operations of all ranks, one trace after the other, before they are a step.

    Columns have shape (operations,), in the order of `nodes`: in each rank, an operation stands
    behind those that it waits for. `nodes` are the nodes of the traces, one for each operation;
    `MISSING` (-1) stands for what is not known. ``group_ranks[group]`` are the ranks of a group.
    """

    def __init__(self, traces: Sequence[Trace], groups: Members, options: TraceOptions) -> None:
        """Begin with an operation for each node of ``traces[rank]``, all computations.

        ``groups[name]`` are the ranks of each group as the user or the trace tells them.
        `group_ranks` lists the ranks of the groups that operations use, and `number_of_group`
        gives a group's place there by name. Both are empty yet, and `group`, `peer` and `match`
        are `MISSING` everywhere. The methods `read_collectives`, `match_collectives` and
        `match_messages` fill these columns in place, in this order. A barrier counts as a
        collective of 0 bytes.
        """
        # The nodes in the order of operations, and what each waits for: operation k waits for
        # ``dep[dep_start[k]:dep_start[k + 1]]``.
        self.members = groups
        self.options = options
        ordered = [_order_nodes(trace) for trace in traces]
        ordered_traces = [trace for trace, _ in ordered]
        orders = [order for _, order in ordered]
        self.nodes = Nodes.of(ordered_traces, orders)
        self.dep_start, self.dep = _join_dependencies(ordered_traces, orders)

        # Nothing is known of communications yet.
        n_operations = len(self.nodes.rank)
        self.kind = np.full(n_operations, COMPUTE_OPERATION, dtype=np.int64)
        """A place in `OPERATIONS`."""
        self.group = np.full(n_operations, MISSING)
        """A place in `group_ranks`."""
        self.peer = np.full(n_operations, MISSING)
        """The other rank of a message."""
        self.match = np.full(n_operations, MISSING)
        """A number that the parts of one communication have in common."""
        self.n_matches = 0
        self.number_of_group: dict[str, int] = {}
        self.group_ranks: list[tuple[int, ...]] = []

        # A collective takes the time of its circuits, or none if its group is left out. What the
        # trace has measured counts only where the collective becomes computation.
        self.takes_no_time = self.nodes.column("kind") == COLLECTIVE
        self.root = roots_of(self.nodes)
        """The root of a collective; `MISSING` if it has none or does not tell it."""
        self.told_collective = self.nodes.column("collective")
        # All parts of a reduce-scatter are equal here, as those of its block form are.
        is_block = self.told_collective == COLLECTIVES.index("REDUCE_SCATTER_BLOCK")
        self.collective = np.where(
            is_block, COLLECTIVES.index("REDUCE_SCATTER"), self.told_collective
        )
        """The type of a collective, a place in `COLLECTIVES`."""
        is_barrier = self.collective == COLLECTIVES.index("BARRIER")
        self.size_bytes = np.where(is_barrier, 0, self.nodes.column("size_bytes"))

    def find_group(self, name: str, ranks: Sequence[int]) -> int:
        """Return the place of a group in `group_ranks`; a new one is added with these ranks."""
        if name not in self.number_of_group:
            self.number_of_group[name] = len(self.group_ranks)
            self.group_ranks.append(tuple(ranks))
        return self.number_of_group[name]

    def read_collectives(self) -> None:
        """Set kind and group of all collectives, which are computations before.

        Collectives of one rank and one group are looked at together.
        """
        # `alike` gives arrays of places in `operations` with equal ranks and groups.
        operations = np.flatnonzero(self.nodes.column("kind") == COLLECTIVE)
        rank = self.nodes.rank[operations]
        group = self.nodes.column("group")[operations]
        for places in alike(rank, group):
            # Collectives of a group that is left out, or that has one rank, stay computations,
            # which take no time. Unknown types, groups and roots are refused.
            collectives = operations[places]
            first = int(collectives[0])
            name = self.nodes.group_name(first) or ALL_RANKS
            if name in self.options.leave_out:
                continue
            types = self.told_collective[collectives]
            is_unknown = (types < 0) | (types >= len(COLLECTIVES))
            for operation in collectives[is_unknown][:1].tolist():
                raise self.nodes.fail(
                    operation,
                    f"comm_type = {self.told_collective[operation]}: no type of collective;"
                    " --lenient takes it as computation",
                )

            ranks = members_of(self.nodes, first, self.members)
            is_foreign_root = ~np.isin(self.root[collectives], [MISSING, *ranks])
            for operation in collectives[is_foreign_root][:1].tolist():
                check_root(self.nodes, operation, int(self.root[operation]), ranks)

            # Some producers write groups of one rank, which sends nothing.
            if len(ranks) > 1:
                self.kind[collectives] = _KIND_OF_COLLECTIVE[types]
                self.group[collectives] = self.find_group(name, ranks)

    def match_collectives(self) -> None:
        """Find which operations of different ranks are parts of the same collective.

        The k-th collective of a group at one rank belongs to the k-th at the others; parts of a
        collective get the same number in `match`. Their kinds and sizes have to agree. Collectives
        that some rank lacks become computation, or are refused where nothing may be left out.
        """
        is_unsized = (self.group != MISSING) & (self.size_bytes < 0)
        for operation in np.flatnonzero(is_unsized)[:1].tolist():
            raise self.nodes.fail(
                operation, "comm_size is missing or negative; --lenient takes it as computation"
            )

        # The collectives of group g are ``by_group[bounds[g]:bounds[g + 1]]``, in their order.
        by_group = np.argsort(self.group, kind="stable")
        n_groups = len(self.group_ranks)
        bounds = np.searchsorted(self.group[by_group], np.arange(n_groups + 1))
        for name, group in self.number_of_group.items():
            operations = by_group[bounds[group] : bounds[group + 1]]
            operations_of_rank = [
                operations[self.nodes.rank[operations] == rank] for rank in self.group_ranks[group]
            ]
            # If one rank has 10 and another 8, the last 2 of the first rank have no counterpart.
            # They become computation that lasts as long as the trace says, or are refused where
            # nothing may be left out; the rank that has most of them names them.
            longest = max(operations_of_rank, key=len)
            n_common = min(map(len, operations_of_rank))
            for rank, operations in zip(self.group_ranks[group], operations_of_rank, strict=True):
                for operation in longest[len(operations) :].tolist():
                    rule = f"group {name}: rank {rank} has no part in this collective"
                    self.nodes.skip(operation, rule)
            for operations in operations_of_rank:
                self._turn_into_computation(operations[n_common:])
            # table[rank, k]: the k-th collective at a rank.
            table = np.stack([operations[:n_common] for operations in operations_of_rank])

            # From a root only the root may say what there is, and an ``all_to_allv`` ends when
            # its largest part does: the largest size of a collective counts where ranks may tell
            # less.
            from_root = [COLLECTIVES.index(name) for name in FROM_ROOT]
            may_be_less = (self.size_bytes[table] == 0) & np.isin(
                self.collective[table], from_root
            )
            may_be_less |= self.collective[table] == COLLECTIVES.index("ALL_TO_ALL")
            largest = self.size_bytes[table].max(axis=0, initial=0)
            largest_at_each_rank = np.broadcast_to(largest, table.shape)
            self.size_bytes[table[may_be_less]] = largest_at_each_rank[may_be_less]

            for row in table:
                # Kinds, sizes and, where both tell one, roots agree.
                differs = self.collective[row] != self.collective[table[0]]
                differs |= self.size_bytes[row] != self.size_bytes[table[0]]
                tell_roots = (self.root[row] != MISSING) & (self.root[table[0]] != MISSING)
                differs |= tell_roots & (self.root[row] != self.root[table[0]])
                for place in np.flatnonzero(differs)[:1].tolist():
                    other = int(table[0][place])
                    other_place = f"{self.nodes.place(other)} of rank {self.nodes.rank[other]}"
                    raise self.nodes.fail(
                        int(row[place]),
                        f"group {name}: kind, size or root differs from {other_place}",
                    )
            n_collectives = table.shape[1]
            self.match[table] = self.n_matches + np.arange(n_collectives)
            self.n_matches += n_collectives

    def _turn_into_computation(self, operations: Integers) -> None:
        """Let operations, given by their numbers, be computation that takes as long as they took.

        They have no group, no other rank and no counterparts any more.
        """
        self.kind[operations] = COMPUTE_OPERATION
        self.group[operations] = MISSING
        self.peer[operations] = MISSING
        self.match[operations] = MISSING
        self.takes_no_time[operations] = False

    def match_messages(self) -> None:
        """Pair each send with its receive: set `peer`, `match`, `kind` and `group` at both ends.

        A message whose trace names no group, or one that has collectives too, gets a group of its
        two ranks. One without its counterpart becomes computation; unknown groups are refused.
        """
        # All groups that messages name have to be known.
        is_message = np.isin(self.nodes.column("kind"), (SEND, RECEIVE))
        operations = np.flatnonzero(is_message)
        messages = self.nodes.take(operations)
        groups = [messages.group_name(message) for message in range(len(operations))]
        for message, group in enumerate(groups):
            if group and group not in self.members:
                raise messages.fail(message, f"group {group}: its members are not known")

        # ``pair[message]`` is a number that both ends have, from 0 on, MISSING without a
        # counterpart. Collectives have the numbers in `match` below these.
        self.peer[operations], pair = pair_messages(messages, self.members)
        self.match[operations] = self.n_matches + pair
        self.kind[operations] = np.where(messages.column("kind") == SEND, _SEND, _RECV)
        self._turn_into_computation(operations[pair == MISSING])

        # The group of each message that has both ends. Messages do not share a group with
        # collectives, as they are communication of a pipeline.
        groups_of_collectives = set(self.number_of_group)
        for message in np.flatnonzero(pair != MISSING).tolist():
            operation = int(operations[message])
            group = groups[message]
            ends = (int(self.nodes.rank[operation]), int(self.peer[operation]))
            ranks = tuple(self.members.get(group, ends))
            for rank in ends:
                if rank not in ranks:
                    raise self.nodes.fail(operation, f"rank {rank} is no member of group {group}")

            # Without a group of its own, a pair of ranks is one.
            if not group or group in groups_of_collectives:
                ranks = (min(ends), max(ends))
                group = f"{group or 'pair'}.{ranks[0]}-{ranks[1]}"
            self.group[operation] = self.find_group(group, ranks)

    def make_step(self) -> Step:
        """Put the step together.

        Communication lasts as long as its circuits need, and has no duration; a computation
        without one takes its floating-point operations at the rate of `TraceOptions.flops_per_s`.
        """
        duration_s = self.nodes.column("duration_us") * 1e-6
        if self.options.flops_per_s is not None:
            n_flops = self.nodes.column("operations").clip(min=0)
            duration_s = np.where(duration_s > 0, duration_s, n_flops / self.options.flops_per_s)
        else:
            is_untimed = (self.nodes.column("operations") > 0) & (duration_s == 0)
            if is_untimed.any():
                _log.warning(
                    "%d computations tell their operations (num_ops) but no duration: they take no"
                    " time without --flops",
                    int(is_untimed.sum()),
                )
        communicates = self.group >= 0
        takes_no_time = communicates | self.takes_no_time
        return Step(
            groups=tuple(self._make_groups()),
            rank=self.nodes.rank.astype(np.int32),
            kind=self.kind.astype(np.int8),
            group=self.group.astype(np.int32),
            size_bytes=np.where(communicates, self.size_bytes, 0).astype(np.float64),
            duration_s=np.where(takes_no_time, 0.0, duration_s),
            peer=self.peer.astype(np.int32),
            match=self.match.astype(np.int32),
            dep_start=self.dep_start,
            dep=self.dep,
        )

    def _make_groups(self) -> list[Group]:
        """Return all groups by number, each with its dimension (kind of parallelism) and rail.

        A dimension that the options do not tell is guessed: "pp" with messages, "ep" with
        all-to-alls, else "tp" inside a server (rail -1) and "dp" on a rail. Groups of one
        dimension, but for "pp", have the same ranks or none in common.
        """
        # The numbers of groups that have messages, and all-to-alls; only messages have a peer.
        has_messages = set(np.unique(self.group[self.peer != MISSING]).tolist())
        has_all_to_alls = set(np.unique(self.group[self.kind == _ALL_TO_ALL]).tolist())
        groups: list[Group] = []
        group_of_rank: dict[tuple[str, int], Group] = {}
        for name, number in self.number_of_group.items():
            ranks = self.group_ranks[number]
            rail = self.options.rail(ranks)
            if rail is None:
                raise self._fail_group(
                    number, f"group {name}: its ranks are on several rails and several servers"
                )

            # What a group does tells its dimension, unless the options do.
            if number in has_messages:
                guess = "pp"
            elif number in has_all_to_alls:
                guess = "ep"
            else:
                guess = "tp" if rail < 0 else "dp"
            dimension = self.options.dimensions.get(name, cast(Dimension, guess))
            group = Group(name, dimension, ranks, rail)
            groups.append(group)

            # Groups of one dimension either have the same ranks or none in common. Those of a
            # pipeline may be pairs of neighbours, which overlap.
            if dimension == "pp":
                continue
            for rank in ranks:
                other = group_of_rank.setdefault((dimension, rank), group)
                if set(other.ranks) != set(ranks):
                    raise self._fail_group(
                        number,
                        f"rank {rank} is in the groups {other.name} and {name}, both {dimension}:"
                        " tell the dimension of one of them",
                    )
        return groups

    def _fail_group(self, group: int, message: str) -> FormatError:
        """Return an error about the first node of a group."""
        return self.nodes.fail(int(np.flatnonzero(self.group == group)[0]), message)


def _order_nodes(trace: Trace) -> tuple[Trace, Integers]:
    """Return a trace, and its nodes in an order in which each is behind those that it waits for.

    Where nodes wait in a circle and parts may be left out, control dependencies do not count.
    """
    try:
        return trace, _sort_topologically(trace)
    except FormatError as exc:
        if trace.skipped is None or trace.first_control is None:
            raise
        trace.skipped.append(f"{exc}: no control dependency of this file counts")

    # Only data dependencies are kept. Those of a node stand before its control dependencies, so
    # they are the first `n_data_dependencies` of its entries in ``trace.parents``.
    n_dependencies = np.diff(trace.first_parent)
    n_data_dependencies = trace.first_control - trace.first_parent[:-1]
    place_at_node = np.arange(len(trace.parents)) - np.repeat(
        trace.first_parent[:-1], n_dependencies
    )
    is_data = place_at_node < np.repeat(n_data_dependencies, n_dependencies)
    trace = trace.keep_parents(is_data)
    return trace, _sort_topologically(trace)


def _sort_topologically(trace: Trace) -> Integers:
    """Put nodes behind the nodes that they wait for; otherwise the order of the file stays.

    Returns ``order[k]``, the place in the trace of the node that comes as number k. Nodes that
    wait for each other in a circle are refused.
    """
    # Mostly every node stands behind what it waits for, and the order stays.
    n_nodes = len(trace.node_id)
    if not n_nodes:
        return np.arange(0)
    child_of_dependency = np.repeat(np.arange(n_nodes), np.diff(trace.first_parent))
    if (trace.parents < child_of_dependency).all():
        return np.arange(n_nodes)

    # Kahn's algorithm with a heap: of all nodes that wait for nothing more, the one that stands
    # first in the trace comes next.
    children: list[list[int]] = [[] for _ in range(n_nodes)]
    for parent, child in zip(trace.parents.tolist(), child_of_dependency.tolist(), strict=True):
        children[parent].append(child)

    # A node is ready when all that it waits for are in the order.
    n_waiting_for = np.diff(trace.first_parent).tolist()
    ready = [node for node in range(n_nodes) if n_waiting_for[node] == 0]
    order = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for child in children[node]:
            n_waiting_for[child] -= 1
            if n_waiting_for[child] == 0:
                heapq.heappush(ready, child)
    if len(order) == n_nodes:
        return np.array(order, dtype=np.int64)

    # Nodes that are left wait for each other, or for such nodes. `list_circle` follows the
    # dependencies between them, and gives the nodes of one circle in order.
    is_held = np.array(n_waiting_for)[trace.parents] > 0
    circle = list_circle(trace.parents[is_held].tolist(), child_of_dependency[is_held].tolist())
    named_nodes = circle[1 : 1 + _MOST_NAMED_NODES]
    ways = ", ".join(str(trace.node_id[node]) for node in named_nodes) or "nothing"
    raise trace.fail(
        circle[0], f"waits for itself, in a circle of {len(circle)} nodes by way of {ways}"
    )


def _join_dependencies(
    traces: Sequence[Trace], orders: Sequence[Integers]
) -> tuple[Integers, Integers]:
    """Return `dep_start` and `dep`, what operations wait for, of all ranks.

    ``orders[rank][k]`` is the node that is operation k of the rank. Operations are numbered one
    rank after the other: if rank 0 has 5 nodes, the first one of rank 1 is number 5. Operation k
    waits for ``dep[dep_start[k] : dep_start[k + 1]]``.
    """
    counts = [np.zeros(1, dtype=np.int64)]
    dependencies = [np.zeros(0, dtype=np.int64)]
    first_operation = 0
    for trace, order in zip(traces, orders, strict=True):
        n_nodes = len(order)
        if n_nodes == 0:
            continue
        operation_of_node = np.empty(n_nodes, dtype=np.int64)
        operation_of_node[order] = first_operation + np.arange(n_nodes)

        # The dependencies of a node are a slice of trace.parents, of which `count` is the length.
        # The slices are put one behind the other in the new order: for each entry this is the
        # begin of its slice plus its place in the slice (0, 1, ..., then 0 again).
        count = np.diff(trace.first_parent)[order]
        slice_start = np.repeat(trace.first_parent[:-1][order], count)
        place_in_slice = np.arange(len(slice_start)) - np.repeat(np.cumsum(count) - count, count)
        parents = trace.parents[slice_start + place_in_slice]
        dependencies.append(operation_of_node[parents])
        counts.append(count)
        first_operation += n_nodes
    return np.cumsum(np.concatenate(counts)), np.concatenate(dependencies)

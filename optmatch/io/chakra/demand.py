"""Demand from Chakra execution traces: who sends how many bytes to whom, over a whole trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from optmatch.io.chakra.columns import MISSING, Integers
from optmatch.io.chakra.messages import COLLECTIVE, COLLECTIVES, RECEIVE, SEND
from optmatch.io.chakra.pairs import Messages, pair_messages
from optmatch.io.chakra.traces import Trace, read_traces

FROM_ROOT, TO_ROOT = ("BROADCAST", "SCATTER"), ("REDUCE", "GATHER")
"""Collectives in which one rank has all data before, or after."""
_ALL_TO_ALL = COLLECTIVES.index("ALL_TO_ALL")


def read_chakra(
    paths: Sequence[str | os.PathLike[str]],
    *,
    groups: Mapping[str, Sequence[int]] | None = None,
    skip_collectives: bool = False,
) -> NDArray[np.float64]:
    r"""Add up what the ranks of a trace send.

    Parameters
    ----------
    paths
        A file for each rank, ``name.RANK.et``, perhaps gzipped.
    groups
        The members of each communicator group in the order of the ring, see `read_groups`; a
        collective without a group is one of all ranks.
    skip_collectives
        Whether collectives other than all-to-all are left out.

    Returns
    -------
    NDArray
        ``matrix[source, destination]`` in bytes, float64. With S bytes of ``comm_size``, a send
        counts S; of n members of an all-to-all each sends S/n to each other. The others go round
        the ring, so a member sends to the next one :math:`2(n-1)S/n` in an all-reduce,
        :math:`(n-1)S` in an all-gather, where S is the shard, and :math:`(n-1)S/n` in a
        reduce-scatter. A broadcast goes round it from the root, and a reduce to the root: all
        but one send S to the next. In a gather all others send S to the root, in a scatter it
        sends S/n to each.

    Raises
    ------
    FormatError
        Naming file and node: a file cut off, a node without size or partner, a rank that is none,
        a group that is not known or that the rank is no member of, a collective whose root is
        not told; a message whose other end is not told and could be several ranks.

    Notes
    -----
    A root is told by ``root``, or by ``comm_src`` of a broadcast or scatter and ``comm_dst`` of a
    reduce or gather.
    """
    traces = read_traces(paths)
    matrix = np.zeros((len(traces), len(traces)))
    for trace in _with_destinations(traces, groups or {}):
        _add_sends(matrix, trace)
        _add_collectives(matrix, trace, groups or {}, skip_collectives)
    return matrix


def roots_of(trace: Trace) -> Integers:
    """Return the root of each node; `MISSING` where it is not told, or there is none."""
    codes = [[COLLECTIVES.index(name) for name in names] for names in (FROM_ROOT, TO_ROOT)]
    first, last = (np.isin(trace.collective, code) for code in codes)
    end = np.where(first, trace.source, np.where(last, trace.destination, MISSING))
    rooted = (trace.kind == COLLECTIVE) & (first | last)
    found: Integers = np.where(rooted, np.where(trace.root != MISSING, trace.root, end), MISSING)
    return found


def _with_destinations(
    traces: Sequence[Trace], groups: Mapping[str, Sequence[int]]
) -> Sequence[Trace]:
    """Find out where sends go that do not tell, by the receives of all ranks."""
    sends = [trace.kind == SEND for trace in traces]
    if not any(
        (trace.destination[of] == MISSING).any() for trace, of in zip(traces, sends, strict=True)
    ):
        return traces
    at = [np.flatnonzero(of | (t.kind == RECEIVE)) for t, of in zip(traces, sends, strict=True)]
    rank = np.repeat(np.arange(len(traces)), [len(nodes) for nodes in at])
    node = np.concatenate(at)

    def column(name: str) -> Integers:
        parts = [getattr(trace, name)[nodes] for trace, nodes in zip(traces, at, strict=True)]
        joined: Integers = np.concatenate(parts).astype(np.int64)
        return joined

    names = [
        "" if group == MISSING else traces[r].group_names[group]
        for r, group in zip(rank.tolist(), column("group").tolist(), strict=True)
    ]
    messages = Messages(
        sends=column("kind") == SEND,
        rank=rank,
        source=column("source"),
        destination=column("destination"),
        tag=column("tag"),
        size_bytes=column("size_bytes"),
        group=tuple(names),
        members=groups,
        n_ranks=len(traces),
        fail=lambda k, text: traces[rank[k]].fail(int(node[k]), text),
    )
    peer, _ = pair_messages(messages)
    found = []
    for trace, nodes, of in zip(traces, at, sends, strict=True):
        destination = trace.destination.copy()
        destination[nodes] = peer[rank == trace.rank]
        found.append(trace._replace(destination=np.where(of, destination, trace.destination)))
    return found


def _add_sends(matrix: NDArray[np.float64], trace: Trace) -> None:
    nodes = np.flatnonzero(trace.kind == SEND)
    source = np.where(trace.source[nodes] == MISSING, trace.rank, trace.source[nodes])
    for node in nodes[trace.size_bytes[nodes] < 0][:1]:
        raise trace.fail(int(node), "comm_size is missing or negative")
    for ranks in (source, trace.destination[nodes]):
        for k in np.flatnonzero((ranks < 0) | (ranks >= len(matrix)))[:1]:
            raise trace.fail(int(nodes[k]), f"rank {ranks[k]}: ranks are 0 .. {len(matrix) - 1}")
    np.add.at(matrix, (source, trace.destination[nodes]), trace.size_bytes[nodes])


def _add_collectives(
    matrix: NDArray[np.float64],
    trace: Trace,
    groups: Mapping[str, Sequence[int]],
    skip: bool,
) -> None:
    nodes = np.flatnonzero(trace.kind == COLLECTIVE)
    if skip:
        nodes = nodes[trace.collective[nodes] == _ALL_TO_ALL]
    keys = np.stack([trace.collective[nodes], trace.group[nodes], roots_of(trace)[nodes]], axis=1)
    kinds, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    for k, (collective, group, root) in enumerate(kinds.tolist()):
        alike = nodes[which.ravel() == k]
        for node in alike[trace.size_bytes[alike] < 0][:1]:
            if COLLECTIVES[collective : collective + 1] != ("BARRIER",):
                raise trace.fail(int(node), "comm_size is missing or negative")
        total = float(trace.size_bytes[alike].clip(min=0).sum(dtype=np.float64))
        node = int(nodes[first[k]])
        members = members_of(trace, node, group, groups, len(matrix))
        check_root(trace, node, root, members)
        _add_collective(matrix, trace, node, members, total, root)


def members_of(
    trace: Trace, node: int, group: int, groups: Mapping[str, Sequence[int]], n_ranks: int
) -> Sequence[int]:
    """Return the members of the group of a collective, the rank of the trace among them.

    Raises
    ------
    FormatError
        Naming the node: the group is not known, or the rank is no member of it.
    """
    if group == MISSING:
        return range(n_ranks)
    name = trace.group_names[group]
    if name not in groups:
        raise trace.fail(node, f"group {name}: its members are not known")
    if trace.rank not in groups[name]:
        raise trace.fail(node, f"rank {trace.rank} is no member of group {name}")
    for rank in groups[name]:
        if not 0 <= rank < n_ranks:
            raise trace.fail(node, f"group {name}: rank {rank}: ranks are 0 .. {n_ranks - 1}")
    return groups[name]


def check_root(trace: Trace, node: int, root: int, members: Sequence[int]) -> None:
    """Refuse a root outside of the group.

    Raises
    ------
    FormatError
        Naming node, rank and group.
    """
    if root != MISSING and root not in members:
        group = trace.group[node]
        name = "of all ranks" if group == MISSING else trace.group_names[group]
        raise trace.fail(node, f"its root, rank {root}, is no member of group {name}")


def _add_collective(
    matrix: NDArray[np.float64],
    trace: Trace,
    node: int,
    members: Sequence[int],
    total: float,
    root: int,
) -> None:
    """Spread the bytes of all collectives of one type and group that a rank takes part in."""
    collective, n, rank = int(trace.collective[node]), len(members), trace.rank
    if not 0 <= collective < len(COLLECTIVES):
        raise trace.fail(node, f"comm_type = {collective}: no type of collective")
    if n == 1:  # some producers write them; there is nobody to talk to
        return
    name = COLLECTIVES[collective]
    if name in FROM_ROOT + TO_ROOT and root == MISSING:
        raise trace.fail(node, f"collective {name}: the trace does not tell its root")
    others = [other for other in members if other != rank]
    after = members[(list(members).index(rank) + 1) % n]
    if name == "ALL_TO_ALL" or (name == "SCATTER" and rank == root):
        matrix[rank, others] += total / n
    elif name == "GATHER" and rank != root:
        matrix[rank, root] += total
    elif (name == "BROADCAST" and after != root) or (name == "REDUCE" and rank != root):
        matrix[rank, after] += total
    elif name in _RINGS:
        matrix[rank, after] += _RINGS[name](n) * total


_RINGS: dict[str, Callable[[int], float]] = {  # what a member sends to the next one, per byte
    "ALL_REDUCE": lambda n: 2 * (n - 1) / n,
    "ALL_GATHER": lambda n: n - 1,
    "REDUCE_SCATTER": lambda n: (n - 1) / n,
    "REDUCE_SCATTER_BLOCK": lambda n: (n - 1) / n,
}

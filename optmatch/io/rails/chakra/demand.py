"""Demand from Chakra execution traces: who sends how many bytes to whom, over a whole trace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from optmatch.io.rails.chakra.messages import COLLECTIVE, COLLECTIVES, RECEIVE, SEND
from optmatch.io.rails.chakra.pairs import Members, pair_messages
from optmatch.io.rails.chakra.traces import MISSING, Integers, Nodes, Trace, alike, read_traces

FROM_ROOT, TO_ROOT = ("BROADCAST", "SCATTER"), ("REDUCE", "GATHER")
"""Collectives in which one rank has all data before, or after."""


def read_chakra(
    paths: Sequence[str | os.PathLike[str]],
    *,
    groups: Mapping[str, Sequence[int]] | None = None,
    skipped: list[str] | None = None,
) -> NDArray[np.float64]:
    r"""Add up the bytes that the ranks of a trace send.

    Parameters
    ----------
    paths
        A file for each rank, ``name.RANK.et``, perhaps gzipped.
    groups
        The members of each communicator group in the order of the ring, see `read_groups`; a
        collective without a group is one of all ranks.
    skipped
        A list: what a cut trace does not tell is left out, and added to it, see `read_trace`; so
        are messages without their other end, and collectives without the root that they need.
        None: incomplete traces are an error.

    Returns
    -------
    NDArray
        ``matrix[source, destination]`` in bytes, float64. With S bytes of ``comm_size``, a send
        counts S; of n members of an all-to-all each sends S/n to each other. The other collectives
        go round the ring, so a member sends to the next one :math:`2(n-1)S/n` in an all-reduce,
        :math:`(n-1)S` in an all-gather, where S is the shard, and :math:`(n-1)S/n` in a
        reduce-scatter. A broadcast goes round it from the root, and a reduce to the root: all but
        one send S to the next. In a gather all others send S to the root, in a scatter it sends
        S/n to each.

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
    return add_up(read_traces(paths, skipped=skipped), groups or {})


def add_up(traces: Sequence[Trace], groups: Members) -> NDArray[np.float64]:
    """Add up the bytes that the ranks of traces send; see `read_chakra`."""
    matrix = np.zeros((len(traces), len(traces)))
    _add_messages(matrix, traces, groups)
    chosen = [np.flatnonzero(trace.kind == COLLECTIVE) for trace in traces]
    nodes = Nodes.of(traces, chosen)
    kinds, roots, sizes = nodes.column("collective"), roots_of(nodes), nodes.column("size_bytes")
    for same in alike(nodes.rank, kinds, nodes.column("group"), roots):
        first, collective, root = int(same[0]), int(kinds[same[0]]), int(roots[same[0]])
        for k in same[sizes[same] < 0][:1].tolist():
            if COLLECTIVES[collective : collective + 1] != ("BARRIER",):
                raise nodes.fail(k, "comm_size is missing or negative")
        members = members_of(nodes, first, groups)
        check_root(nodes, first, root, members)
        if not 0 <= collective < len(COLLECTIVES):
            raise nodes.fail(first, f"comm_type = {collective}: no type of collective")
        name = COLLECTIVES[collective]
        if len(members) == 1:  # some producers write groups of one rank, which sends nothing
            continue
        if name in FROM_ROOT + TO_ROOT and root == MISSING:
            for k in same.tolist():
                nodes.skip(k, f"collective {name}: the trace does not tell its root")
            continue
        total = float(sizes[same].clip(min=0).sum(dtype=np.float64))
        _add_collective(
            matrix[nodes.rank[first]], name, int(nodes.rank[first]), members, total, root
        )
    return matrix


def roots_of(nodes: Nodes) -> Integers:
    """Return the root of each node; `MISSING` where it is not told, or there is none."""
    codes = [[COLLECTIVES.index(name) for name in names] for names in (FROM_ROOT, TO_ROOT)]
    first, last = (np.isin(nodes.column("collective"), code) for code in codes)
    end = np.where(first, nodes.column("source"), nodes.column("destination"))
    told = nodes.column("root")
    rooted = (nodes.column("kind") == COLLECTIVE) & (first | last)
    found: Integers = np.where(rooted, np.where(told != MISSING, told, end), MISSING)
    return found


def members_of(nodes: Nodes, k: int, groups: Members) -> Sequence[int]:
    """Return the members of the group of a collective; its rank has to be one of them."""
    name, rank, n_ranks = nodes.group_name(k), nodes.rank[k], len(nodes.traces)
    if not name:
        return range(n_ranks)
    if name not in groups:
        raise nodes.fail(k, f"group {name}: its members are not known")
    if rank not in groups[name]:
        raise nodes.fail(k, f"rank {rank} is no member of group {name}")
    for member in groups[name]:
        if not 0 <= member < n_ranks:
            raise nodes.fail(k, f"group {name}: rank {member}: ranks are 0 .. {n_ranks - 1}")
    return groups[name]


def check_root(nodes: Nodes, k: int, root: int, members: Sequence[int]) -> None:
    """Refuse a root outside of the group; the error names node, rank and group."""
    if root != MISSING and root not in members:
        name = nodes.group_name(k) or "of all ranks"
        raise nodes.fail(k, f"its root, rank {root}, is no member of group {name}")


def _add_messages(matrix: NDArray[np.float64], traces: Sequence[Trace], groups: Members) -> None:
    """Add the bytes of sends; where a send does not tell its destination, receives may."""
    chosen = [np.flatnonzero(np.isin(trace.kind, (SEND, RECEIVE))) for trace in traces]
    nodes = Nodes.of(traces, chosen)
    sends = nodes.column("kind") == SEND
    source, destination = nodes.column("source"), nodes.column("destination")
    source = np.where(source == MISSING, nodes.rank, source)
    if (destination[sends] == MISSING).any():
        destination, pair = pair_messages(nodes, groups)
        sends &= pair != MISSING
    size_bytes = nodes.column("size_bytes")
    for k in np.flatnonzero(sends & (size_bytes < 0))[:1].tolist():
        raise nodes.fail(k, "comm_size is missing or negative")
    for ends in (source, destination):
        wrong = sends & ((ends < 0) | (ends >= len(traces)))
        for k in np.flatnonzero(wrong)[:1].tolist():
            raise nodes.fail(k, f"rank {ends[k]}: ranks are 0 .. {len(traces) - 1}")
    np.add.at(matrix, (source[sends], destination[sends]), size_bytes[sends])


def _add_collective(
    sent: NDArray[np.float64],
    name: str,
    rank: int,
    members: Sequence[int],
    total: float,
    root: int,
) -> None:
    """Add the bytes that a rank sends to each other in its collectives of one kind and group."""
    n, others = len(members), [other for other in members if other != rank]
    after = members[(list(members).index(rank) + 1) % n]
    if name == "ALL_TO_ALL" or (name == "SCATTER" and rank == root):
        sent[others] += total / n
    elif name == "GATHER" and rank != root:
        sent[root] += total
    elif (name == "BROADCAST" and after != root) or (name == "REDUCE" and rank != root):
        sent[after] += total
    else:
        rings = {"ALL_REDUCE": 2 * (n - 1) / n, "ALL_GATHER": n - 1}
        rings |= dict.fromkeys(("REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK"), (n - 1) / n)
        sent[after] += rings.get(name, 0.0) * total

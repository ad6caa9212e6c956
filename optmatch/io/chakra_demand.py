"""Demand from Chakra execution traces: who sends how many bytes to whom, over a whole trace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from optmatch.io.chakra import Trace, read_traces
from optmatch.io.chakra_columns import MISSING
from optmatch.io.chakra_schema import COLLECTIVE, COLLECTIVES, SEND

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
        reduce-scatter.

    Raises
    ------
    FormatError
        Naming file and node: a file cut off, a node without size or partner, a rank that is none,
        a group that is not known or that the rank is no member of, a collective with a root,
        which traces do not tell.
    """
    traces = read_traces(paths)
    matrix = np.zeros((len(traces), len(traces)))
    for trace in traces:
        _add_sends(matrix, trace)
        _add_collectives(matrix, trace, groups or {}, skip_collectives)
    return matrix


def _add_sends(matrix: NDArray[np.float64], trace: Trace) -> None:
    nodes = np.flatnonzero(trace.kind == SEND)
    source = np.where(trace.source[nodes] == MISSING, trace.rank, trace.source[nodes])
    for name, column in (("comm_size", trace.size_bytes), ("comm_dst", trace.destination)):
        for node in nodes[column[nodes] < 0][:1]:
            raise trace.fail(int(node), f"{name} is missing or negative")
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
    keys = np.stack([trace.collective[nodes], trace.group[nodes]], axis=1)
    kinds, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    for k, (collective, group) in enumerate(kinds.tolist()):
        alike = nodes[which.ravel() == k]
        for node in alike[trace.size_bytes[alike] < 0][:1]:
            if COLLECTIVES[collective : collective + 1] != ("BARRIER",):
                raise trace.fail(int(node), "comm_size is missing or negative")
        total = float(trace.size_bytes[alike].clip(min=0).sum(dtype=np.float64))
        members = members_of(trace, int(nodes[first[k]]), group, groups, len(matrix))
        _add_collective(matrix, trace, int(nodes[first[k]]), members, total)


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


def _add_collective(
    matrix: NDArray[np.float64], trace: Trace, node: int, members: Sequence[int], total: float
) -> None:
    """Spread the bytes of all collectives of one type and group that a rank takes part in."""
    collective, n = int(trace.collective[node]), len(members)
    if collective == _ALL_TO_ALL:
        others = [rank for rank in members if rank != trace.rank]
        matrix[trace.rank, others] += total / n
        return
    if not 0 <= collective < len(COLLECTIVES):
        raise trace.fail(node, f"comm_type = {collective}: no type of collective")
    sent = _to_next(COLLECTIVES[collective], n, total)
    if sent is None:
        raise trace.fail(
            node, f"collective {COLLECTIVES[collective]}: traces do not tell its root"
        )
    after = members[(list(members).index(trace.rank) + 1) % n]
    if n > 1:
        matrix[trace.rank, after] += sent


def _to_next(name: str, n: int, size: float) -> float | None:
    """Tell what a member of n sends to the next one on a ring; None of what is no ring."""
    share = size * (n - 1) / n
    sent = {
        "ALL_REDUCE": 2 * share,
        "ALL_GATHER": size * (n - 1),
        "REDUCE_SCATTER": share,
        "REDUCE_SCATTER_BLOCK": share,
        "BARRIER": 0.0,
    }
    return sent.get(name)

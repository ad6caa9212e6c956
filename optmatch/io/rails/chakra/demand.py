"""Demand from Chakra execution traces: who sends how many bytes to whom, over a whole trace."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from optmatch.io.rails.chakra.messages import COLLECTIVE, COLLECTIVES, RECEIVE, SEND
from optmatch.io.rails.chakra.pairs import Members, pair_messages
from optmatch.io.rails.chakra.traces import MISSING, Integers, Nodes, Trace, alike, read_traces

_log = logging.getLogger("optmatch")

FROM_ROOT = ("BROADCAST", "SCATTER")
"""Collectives in which one rank has all data before."""
_TO_ROOT = ("REDUCE", "GATHER")
"""Collectives in which one rank has all data after."""


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

    Sends count, not receives. Where the trace has both and they differ, a warning names the ranks.
    """
    return add_up(read_traces(paths, skipped=skipped), groups or {})


def add_up(traces: Sequence[Trace], groups: Members) -> NDArray[np.float64]:
    """Return ``matrix[source, destination]``: the bytes that ranks send, from ``traces[rank]``.

    Messages count where they are sent. The data of collectives go once round the group as a ring,
    from each member to the next one, twice for an all-reduce; in all-to-alls, gathers and scatters
    each rank sends straight to the receiver.
    """
    matrix = np.zeros((len(traces), len(traces)))
    _add_messages(matrix, traces, groups)

    # Collectives of one rank, group, kind and root are counted together, as there may be
    # thousands; `places` are the places of such nodes in `nodes`, and `first` is one of them.
    nodes = Nodes.of(traces, [np.flatnonzero(trace.kind == COLLECTIVE) for trace in traces])
    collectives = nodes.column("collective")
    size_bytes = nodes.column("size_bytes")
    roots = roots_of(nodes)
    for places in alike(nodes.rank, collectives, nodes.column("group"), roots):
        # All of them need a size, but for barriers.
        first = int(places[0])
        collective = int(collectives[first])
        root = int(roots[first])
        for place in places[size_bytes[places] < 0][:1].tolist():
            if COLLECTIVES[collective : collective + 1] != ("BARRIER",):
                raise nodes.fail(place, "comm_size is missing or negative")

        # The members come first, since they say which roots are possible.
        members = members_of(nodes, first, groups)
        check_root(nodes, first, root, members)
        if not 0 <= collective < len(COLLECTIVES):
            raise nodes.fail(first, f"comm_type = {collective}: no type of collective")

        # Some producers write groups of one rank, which sends nothing.
        if len(members) == 1:
            continue
        # Without its root, a collective from or to one rank cannot be counted.
        name = COLLECTIVES[collective]
        if name in FROM_ROOT + _TO_ROOT and root == MISSING:
            for place in places.tolist():
                nodes.skip(place, f"collective {name}: the trace does not tell its root")
            continue
        # Parts that differ are added one by one.
        rank = int(nodes.rank[first])
        uneven = traces[rank].sent_bytes
        is_even = np.array([node not in uneven for node in nodes.node[places].tolist()])
        for node in nodes.node[places[~is_even]].tolist():
            for member, part_bytes in zip(members, uneven[node], strict=True):
                matrix[rank, member] += part_bytes
        places = places[is_even]

        # Barriers, whose size may be missing, count 0 bytes.
        total_bytes = float(size_bytes[places].clip(min=0).sum(dtype=np.float64))
        for peer, sent_bytes in _sent_bytes(name, rank, members, root, total_bytes).items():
            matrix[rank, peer] += sent_bytes
    return matrix


def roots_of(nodes: Nodes) -> Integers:
    """Return the root of each node: the rank that has all data before or after a collective.

    It is told by the attribute ``root``, else by the source of a broadcast or scatter, and by the
    destination of a reduce or gather; `MISSING` where none is told.
    """
    collective = nodes.column("collective")
    is_from_root = np.isin(collective, [COLLECTIVES.index(name) for name in FROM_ROOT])
    is_to_root = np.isin(collective, [COLLECTIVES.index(name) for name in _TO_ROOT])
    has_root = (nodes.column("kind") == COLLECTIVE) & (is_from_root | is_to_root)

    told_root = nodes.column("root")
    end = np.where(is_from_root, nodes.column("source"), nodes.column("destination"))
    root = np.where(told_root != MISSING, told_root, end)
    roots: Integers = np.where(has_root, root, MISSING)
    return roots


def members_of(nodes: Nodes, place: int, groups: Members) -> Sequence[int]:
    """Return the group of a collective in the order of the ring; its rank has to be a member.

    A collective that names no group has all ranks. Groups that are not known, or that have a rank
    without a trace, are refused.
    """
    name = nodes.group_name(place)
    rank = nodes.rank[place]
    n_ranks = len(nodes.traces)
    if not name:
        return range(n_ranks)
    if name not in groups:
        raise nodes.fail(place, f"group {name}: its members are not known")
    if rank not in groups[name]:
        raise nodes.fail(place, f"rank {rank} is no member of group {name}")

    # All members have a trace.
    for member in groups[name]:
        if not 0 <= member < n_ranks:
            rule = f"group {name}: rank {member}: ranks are 0 .. {n_ranks - 1}"
            raise nodes.fail(place, rule)
    return groups[name]


def check_root(nodes: Nodes, place: int, root: int, members: Sequence[int]) -> None:
    """Refuse a root outside of the group; `MISSING` is allowed."""
    if root != MISSING and root not in members:
        name = nodes.group_name(place) or "of all ranks"
        raise nodes.fail(place, f"its root, rank {root}, is no member of group {name}")


def _add_messages(matrix: NDArray[np.float64], traces: Sequence[Trace], groups: Members) -> None:
    """Add the bytes of all messages to ``matrix[source, destination]``.

    Only sends are counted. Where a trace does not say where a send goes, it is paired with a
    receive; sends without one are left out. Sends without a size are refused.
    """
    # The sends and receives of all ranks. A send that does not say its source is from the rank of
    # its trace; MISSING stands for what is not said.
    nodes = Nodes.of(
        traces, [np.flatnonzero(np.isin(trace.kind, (SEND, RECEIVE))) for trace in traces]
    )
    is_send = nodes.column("kind") == SEND
    source = nodes.column("source")
    source = np.where(is_send & (source == MISSING), nodes.rank, source)

    # Sends that tell their destinations need no receives.
    destination = nodes.column("destination")
    is_counted = is_send
    if (destination[is_send] == MISSING).any():
        destination, pair = pair_messages(nodes, groups)
        is_counted = is_send & (pair != MISSING)

    # Each counted send has a size, and ranks with a trace; the first that has not is named.
    size_bytes = nodes.column("size_bytes")
    for place in np.flatnonzero(is_counted & (size_bytes < 0))[:1].tolist():
        raise nodes.fail(place, "comm_size is missing or negative")
    for ends in (source, destination):
        is_outside = (ends < 0) | (ends >= len(traces))
        for place in np.flatnonzero(is_counted & is_outside)[:1].tolist():
            raise nodes.fail(place, f"rank {ends[place]}: ranks are 0 .. {len(traces) - 1}")
    np.add.at(matrix, (source[is_counted], destination[is_counted]), size_bytes[is_counted])
    _warn_of_unmatched_sends(nodes, is_send, source, destination)


def _warn_of_unmatched_sends(
    nodes: Nodes, is_send: NDArray[np.bool_], source: Integers, destination: Integers
) -> None:
    """Log a warning if some sends have no receive of the same size at their destination.

    By message, `is_send` tells sends from receives, and `source` and `destination` are ranks.
    Traces without any receives are not compared. If some receive does not say its source, sends
    and receives are compared by destination and size alone.
    """
    if is_send.all():
        return
    size_bytes = nodes.column("size_bytes")
    is_any_source = bool((source[~is_send] == MISSING).any())

    def count(chosen: NDArray[np.bool_], receiver: Integers) -> Counter[tuple[int, int, int]]:
        """Count the chosen messages by sender, receiver and size in bytes."""
        senders = np.full(len(source), MISSING) if is_any_source else source
        ends = np.stack([senders, receiver, size_bytes], axis=1)[chosen]
        return Counter(map(tuple, ends.tolist()))

    # More sends than receives of the same sender, receiver and size: these have no counterpart.
    unmatched = count(is_send, destination) - count(~is_send, nodes.rank)
    if not unmatched:
        return
    sender, receiver, n_bytes = next(iter(unmatched))
    whence = "" if sender == MISSING else f" from rank {sender}"
    first = f"{n_bytes} bytes{whence} to rank {receiver}"
    _log.warning(
        "%d sends have no receive of the same size, and count all the same; the first is of %s",
        unmatched.total(),
        first,
    )


def _sent_bytes(
    name: str, rank: int, members: Sequence[int], root: int, total_bytes: float
) -> dict[int, float]:
    """Return the bytes that a rank sends to others in a collective, by destination.

    Members are in the order of the ring. `total_bytes` is the size of one collective or of several
    together: of an all-gather the shard of a rank, of others the whole buffer.
    """
    n = len(members)
    other_members = [member for member in members if member != rank]
    next_rank = members[(list(members).index(rank) + 1) % n]
    if name == "ALL_TO_ALL" or (name == "SCATTER" and rank == root):
        return dict.fromkeys(other_members, total_bytes / n)
    if name == "GATHER" and rank != root:
        return {root: total_bytes}
    if (name == "BROADCAST" and next_rank != root) or (name == "REDUCE" and rank != root):
        return {next_rank: total_bytes}

    # All other collectives go once round the ring of members, an all-reduce nearly twice.
    round_the_ring = {
        "ALL_REDUCE": 2 * (n - 1) / n,
        "ALL_GATHER": n - 1.0,
        "REDUCE_SCATTER": (n - 1) / n,
        "REDUCE_SCATTER_BLOCK": (n - 1) / n,
    }
    if name not in round_the_ring:
        return {}
    return {next_rank: round_the_ring[name] * total_bytes}

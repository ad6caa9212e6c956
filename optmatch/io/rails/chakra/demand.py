"""Demand from Chakra execution traces: groups of ranks, pairs of messages, bytes of a trace."""

from __future__ import annotations

import logging
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from optmatch.io.fields import check_object, shorten
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
)
from optmatch.io.text import check_content, describe_tree, layout, parse_json, pointer, read_bytes
from optmatch.model import FormatError, naming
from optmatch.model.files import path_name

Groups = dict[str, tuple[int, ...]]


def read_groups(path: str | os.PathLike[str], *, n_ranks: int | None = None) -> Groups:
    """Read a file of communicator groups: ranks by name, in the order of the ring.

    The file is JSON such as ``{"1": [0, 1], "2": [2, 3]}``, by the names that the attribute
    `pg_name` of traces has. `n_ranks` is None if it is not known.
    """
    file = path_name(path)
    with naming(file):
        tree = parse_json(read_bytes(path), file)
        check_object(tree, "")
        groups: Groups = {}
        for name, members in tree.items():
            where = pointer("", name)
            if not isinstance(members, list) or not members:
                raise FormatError(
                    f"{shorten(members)}: a list of ranks is expected{describe_tree(tree)}",
                    where=where,
                )

            # Ranks are whole numbers of the job, each once.
            seen = set[int]()
            for place, rank in enumerate(members):
                if type(rank) is not int or rank < 0 or (n_ranks is not None and rank >= n_ranks):
                    allowed = "whole numbers >= 0" if n_ranks is None else f"0 .. {n_ranks - 1}"
                    raise FormatError(
                        f"group {name}: rank {shorten(rank)}: ranks are {allowed}",
                        where=pointer(where, place),
                    )
                if rank in seen:
                    raise FormatError(
                        f"group {name}: rank {rank} is a member twice", where=pointer(where, place)
                    )
                check_content("ranks", rank + 1, "")
                seen.add(rank)
            groups[name] = tuple(members)
        return groups


def groups_text(groups: Mapping[str, Sequence[int]]) -> str:
    """Write groups as JSON."""
    return layout({name: [int(rank) for rank in ranks] for name, ranks in groups.items()}) + "\n"


Members = Mapping[str, Sequence[int]]
"""The ranks of each group."""


def pair_messages(messages: Nodes, members: Members) -> tuple[Integers, Integers]:
    """Return two arrays of shape (messages,): the rank at the other end, and a number of the pair.

    A send and its receive have the same number: a send of rank 0 to rank 3 and the receive at rank
    3 give the ranks 3 and 0, and the pairs 7 and 7. ``members[group]`` are the ranks of a group.
    Messages between two ranks with the same tag are in the same order at both. A rank that is not
    told is the other one of a group of two, or the only rank of the group with a counterpart of
    the same tag. A message that is left out has the pair `MISSING`.
    """
    is_send = messages.column("kind") == SEND

    # Ends that no node tells are found among the messages of the same group and tag.
    groups = [messages.group_name(message) for message in range(len(messages.rank))]
    peer = _told_peers(messages, is_send, groups, members)
    if (peer == MISSING).any():
        tag = messages.column("tag").tolist()
        messages_alike = defaultdict[tuple[str, int], list[int]](list)
        for message, group in enumerate(groups):
            messages_alike[group, tag[message]].append(message)
        for candidates in messages_alike.values():
            _resolve_peers(messages, is_send, peer, candidates)

    # The ends of a message are the same for its send and its receive: from where to where.
    source = np.where(is_send, messages.rank, peer)
    destination = np.where(is_send, peer, messages.rank)
    ends_and_tag = np.stack([source, destination, messages.column("tag")])

    # ``count_before[message]`` is how many messages of the same ends, tag and kind come before it.
    # Sorted by these columns they stand together: the count is the distance to the first of them,
    # which stands at `first_place`.
    order = np.lexsort([is_send, *ends_and_tag[::-1]])
    ranked = np.stack([*ends_and_tag, is_send])[:, order]
    is_first = np.any(ranked != np.roll(ranked, 1, axis=1), axis=0)
    first_place = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    count_before = np.empty(len(order), dtype=np.int64)
    count_before[order] = np.arange(len(order)) - first_place

    # A pair is a send and a receive with the same ends, tag and count.
    key = np.stack([*ends_and_tag, count_before], axis=1)
    _, pair, n_with_key = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    pair = pair.reshape(-1).astype(np.int64)
    pair = np.where(n_with_key[pair] == 2, pair, MISSING)

    # A message without counterpart is left out, or refused where nothing may be (`skip`); those
    # whose other end is not told have been before.
    is_alone = pair == MISSING
    for message in np.flatnonzero(is_alone & (peer != MISSING)).tolist():
        verb = "receives" if is_send[message] else "sends"
        messages.skip(message, f"rank {peer[message]} never {verb} it")

    # A send and its receive tell the same size. Sorted by pair, messages without a counterpart
    # come first, and then two of each pair.
    order = np.argsort(pair, kind="stable")
    paired = order[(pair == MISSING).sum() :].reshape(-1, 2)
    size_bytes = messages.column("size_bytes")
    for first, second in paired.tolist():
        if size_bytes[first] != size_bytes[second] or size_bytes[first] < 0:
            rule = f"comm_size = {size_bytes[first]}, and {size_bytes[second]}"
            raise messages.fail(first, f"{rule} at rank {peer[first]}")
    return peer, pair


def _told_peers(
    messages: Nodes, is_send: NDArray[np.bool_], groups: Sequence[str], members: Members
) -> Integers:
    """Return the rank at the other end of each message as its node tells it, else `MISSING`.

    ``is_send[message]`` tells sends from receives; ``groups[message]`` is a name, with its ranks
    in `members`. The other end of a send is its destination, that of a receive its source; in a
    group of two ranks, the other member. A trace of a rank that is neither end of a message is
    refused.
    """
    # A node may name both ends: the one that is the rank itself, and the other one.
    rank = messages.rank
    n_ranks = len(messages.traces)
    source = messages.column("source")
    destination = messages.column("destination")
    own_end = np.where(is_send, source, destination)
    peer = np.where(is_send, destination, source)

    is_elsewhere = (own_end != MISSING) & (own_end != rank)
    for message in np.flatnonzero(is_elsewhere)[:1].tolist():
        name = "comm_src" if is_send[message] else "comm_dst"
        raise messages.fail(
            message, f"{name} = {own_end[message]} in the trace of rank {rank[message]}"
        )

    # In a group of two the other end is the other member.
    for message in np.flatnonzero(peer == MISSING).tolist():
        group = members.get(groups[message], ())
        other_members = [member for member in group if member != rank[message]]
        if len(other_members) == 1:
            peer[message] = other_members[0]

    # The other end is a rank that has a trace, or not known.
    is_wrong = (peer < MISSING) | (peer >= n_ranks) | (peer == rank)
    for message in np.flatnonzero(is_wrong)[:1].tolist():
        raise messages.fail(message, f"rank {peer[message]}: another of 0 .. {n_ranks - 1}")
    return peer


def _resolve_peers(
    messages: Nodes, is_send: NDArray[np.bool_], peer: Integers, candidates: Sequence[int]
) -> None:
    """Find by exclusion, in `peer`, the ranks of messages whose nodes do not say it.

    `messages` are sends and receives of all ranks, told apart by ``is_send[message]``.
    ``peer[message]`` is the rank at the other end, `MISSING` where it is not known yet.
    `candidates` are the numbers of the messages of one group and tag. A message with only one
    possible rank gets it, which may leave one rank for another, and so on; the others are left
    out, or refused.
    """
    rank = messages.rank
    hopeless: set[int] = set()
    while True:
        # Messages of one rank and direction are interchangeable: they get one end together.
        unresolved = defaultdict[tuple[int, bool], list[int]](list)
        for message in candidates:
            if peer[message] == MISSING and message not in hopeless:
                unresolved[int(rank[message]), bool(is_send[message])].append(message)
        if not unresolved:
            return

        # A choice is messages (`same_end`) and the ranks that are possible for them. The first
        # choice with one rank alone is certain; without any, the first choice of all is given up.
        choices = [
            (same_end, _possible_peers(messages, is_send, peer, candidates, same_end[0]))
            for same_end in unresolved.values()
        ]
        certain = [choice for choice in choices if len(choice[1]) == 1]
        same_end, ranks = certain[0] if certain else choices[0]
        if len(ranks) == 1:
            peer[same_end] = ranks.pop()
            continue
        listed = ", ".join(map(str, sorted(ranks))) or "none"
        for message in same_end:
            rule = f"its other end is not told; ranks that it could be: {listed}"
            messages.skip(message, rule)
        hopeless.update(same_end)


def _possible_peers(
    messages: Nodes,
    is_send: NDArray[np.bool_],
    peer: Integers,
    candidates: Sequence[int],
    message: int,
) -> set[int]:
    """Return the ranks that could be the other end of a message that does not say it.

    `message` and `candidates` are places in `messages`; the candidates are all messages of its
    group and tag. A send at rank 0 goes to one of the receives that say they are from rank 0 and
    that no other send of rank 0 takes; without any, to a receive that does not say from where it
    is. For a receive it is the same with sends.
    """
    rank = messages.rank
    counterparts = [
        other
        for other in candidates
        if is_send[other] != is_send[message] and rank[other] != rank[message]
    ]
    same_end = [
        other
        for other in candidates
        if is_send[other] == is_send[message] and rank[other] == rank[message]
    ]
    # By rank the number of counterparts that name the rank of this message, less those that are
    # taken by other messages of this rank.
    n_naming_us = Counter(
        int(rank[other]) for other in counterparts if peer[other] == rank[message]
    )
    n_naming_us -= Counter(int(peer[other]) for other in same_end)
    if n_naming_us:
        return set(n_naming_us)
    return {int(rank[other]) for other in counterparts if peer[other] == MISSING}


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

    ``groups[name]`` are the ranks of a group of collectives, in the order of its ring. Messages
    count where they are sent. The data of collectives go once round the group as a ring, from each
    member to the next one, twice for an all-reduce; in all-to-alls, gathers and scatters each rank
    sends straight to the receiver.
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

    `place` is the place of the collective in `nodes`. A collective that names no group has all
    ranks. Groups that are not known, or that have a rank without a trace, are refused.
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
            raise nodes.fail(place, f"group {name}: rank {member}: ranks are 0 .. {n_ranks - 1}")
    return groups[name]


def check_root(nodes: Nodes, place: int, root: int, members: Sequence[int]) -> None:
    """Refuse a root outside of the group; `MISSING` is allowed."""
    if root != MISSING and root not in members:
        name = nodes.group_name(place) or "of all ranks"
        raise nodes.fail(place, f"its root, rank {root}, is no member of group {name}")


def _add_messages(matrix: NDArray[np.float64], traces: Sequence[Trace], groups: Members) -> None:
    """Add the bytes of all messages to ``matrix[source, destination]``.

    ``traces[rank]`` are the nodes of a rank, and ``groups[name]`` the ranks of a group, which help
    to pair messages. Only sends are counted. Where a trace does not say where a send goes, it is
    paired with a receive; sends without one are left out. Sends without a size are refused.
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

    # Sends that have no receive of the same size at their destination are told. If some receive
    # does not say its source, sends and receives are compared by destination and size alone.
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

    `name` is the type of the collective, and `members` are in the order of the ring. `root` is the
    rank that has all data before or after, `MISSING` where there is none. `total_bytes` is the
    size of one collective or of several together: of an all-gather the shard of a rank, of others
    the whole buffer. In an all-reduce of 1 kB between 4 ranks each sends 1.5 kB to the next one.
    """
    n = len(members)
    other_members = [member for member in members if member != rank]
    next_rank = members[(list(members).index(rank) + 1) % n]
    if name == "ALL_TO_ALL" or (name == "SCATTER" and rank == root):
        return dict.fromkeys(other_members, total_bytes / n)
    if name == "GATHER" and rank != root:
        return {root: total_bytes}
    # A broadcast goes along the ring as far as the member before the root, a reduce to the root.
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

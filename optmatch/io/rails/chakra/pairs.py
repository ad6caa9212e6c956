"""Which receive belongs to which send, where traces tell both ends, one, or only the tag."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from optmatch.io.rails.chakra.messages import SEND
from optmatch.io.rails.chakra.traces import MISSING, Integers, Nodes

Members = Mapping[str, Sequence[int]]
"""The ranks of each group."""


def pair_messages(messages: Nodes, members: Members) -> tuple[Integers, Integers]:
    """Find the rank at the other end of every message, and the number of its pair.

    Messages between two ranks with the same tag are in the same order at both. A rank that is not
    told is the other one of a group of two, or the only rank of the group with a counterpart of
    the same tag. A message that is left out has the pair `MISSING`.
    """
    is_send = messages.column("kind") == SEND
    peer = _find_peers(messages, is_send, members)
    pair = _number_pairs(messages, is_send, peer)

    is_alone = pair == MISSING
    for message in np.flatnonzero(is_alone & (peer != MISSING)).tolist():
        verb = "receives" if is_send[message] else "sends"
        messages.skip(message, f"rank {peer[message]} never {verb} it")
    _check_sizes(messages, peer, pair)
    return peer, pair


def _find_peers(messages: Nodes, is_send: NDArray[np.bool_], members: Members) -> Integers:
    """Return the rank at the other end of each message, `MISSING` where it stays unknown.

    ``is_send[message]`` tells sends from receives. Ends that no node tells are found among the
    messages of the same group and tag.
    """
    groups = [messages.group_name(message) for message in range(len(messages.rank))]
    peer = _told_peers(messages, is_send, groups, members)
    if (peer == MISSING).any():
        tag = messages.column("tag").tolist()
        messages_alike = defaultdict[tuple[str, int], list[int]](list)
        for message, group in enumerate(groups):
            messages_alike[group, tag[message]].append(message)
        for candidates in messages_alike.values():
            _resolve_peers(messages, is_send, peer, candidates)
    return peer


def _number_pairs(messages: Nodes, is_send: NDArray[np.bool_], peer: Integers) -> Integers:
    """Give each send and its receive the same number, with gaps; `MISSING` without a counterpart.

    By message, `is_send` tells sends from receives, and `peer` is the rank at the other end. The
    first send from rank 0 to rank 3 with tag 7 belongs to the first receive at rank 3 from rank 0
    with tag 7, the second one to the second one, and so on.
    """
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
    return np.where(n_with_key[pair] == 2, pair, MISSING)


def _check_sizes(messages: Nodes, peer: Integers, pair: Integers) -> None:
    """Refuse a send and its receive that tell different sizes, or none."""
    # Sorted by pair, messages without a counterpart come first, and then two of each pair.
    order = np.argsort(pair, kind="stable")
    paired = order[(pair == MISSING).sum() :].reshape(-1, 2)
    size_bytes = messages.column("size_bytes")
    for first, second in paired.tolist():
        if size_bytes[first] != size_bytes[second] or size_bytes[first] < 0:
            rule = f"comm_size = {size_bytes[first]}, and {size_bytes[second]}"
            raise messages.fail(first, f"{rule} at rank {peer[first]}")


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
        rule = f"{name} = {own_end[message]} in the trace of rank {rank[message]}"
        raise messages.fail(message, rule)

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

    `candidates` are the messages of one group and tag. A message with only one possible rank gets
    it, which may leave one rank for another, and so on; the others are left out, or refused.
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
    """List the ranks that could be the other end of a message that does not say it.

    `candidates` are the messages of one group and tag. A send at rank 0 goes to one of the
    receives that say they are from rank 0 and that no other send of rank 0 takes; without any, to
    a receive that does not say from where it is. Receives alike.
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

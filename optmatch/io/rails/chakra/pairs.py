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
    """Find the other end of every message: its rank ``peer[message]``, and ``pair[message]``.

    `messages` are all nodes of all ranks that send or receive. A send and its receive have the
    same number as `pair`, from 0 up. Messages between two ranks with the same tag are in the same
    order at both. Where a rank is not told, it is the other one of a group of two, or the only
    rank in the group that has a counterpart with the same tag. In a trace of which parts may be
    left out, a message without its other end is no error; it is `MISSING` in `pair`.
    """
    sends, rank = messages.column("kind") == SEND, messages.rank
    tag, size_bytes = messages.column("tag"), messages.column("size_bytes")
    names = [messages.group_name(k) for k in range(len(rank))]
    peer = _told(messages, sends, names, members)
    alike: dict[tuple[str, int], list[int]] = defaultdict(list)
    for k in range(len(peer)) if (peer == MISSING).any() else ():
        alike[names[k], int(tag[k])].append(k)
    for bucket in alike.values():
        _resolve(messages, sends, peer, bucket)
    keys = np.stack([np.where(sends, rank, peer), np.where(sends, peer, rank), tag])
    order = np.lexsort([sends, *keys[::-1]])
    ranked = np.stack([*keys, sends])[:, order]
    new = np.any(ranked != np.roll(ranked, 1, axis=1), axis=0)
    begin = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    count = np.empty(len(order), dtype=np.int64)  # its number among like messages
    count[order] = np.arange(len(order)) - begin
    full = np.stack([*keys, count], axis=1)
    _, pair, twice = np.unique(full, axis=0, return_inverse=True, return_counts=True)
    pair = pair.reshape(-1)
    alone = twice[pair] != 2
    for k in np.flatnonzero(alone & (peer != MISSING)).tolist():
        verb = "receives" if sends[k] else "sends"
        messages.skip(k, f"rank {peer[k]} never {verb} it")
    pair = np.where(alone, MISSING, pair)
    one, other = np.argsort(pair, kind="stable")[alone.sum() :].reshape(-1, 2).T
    sizes = size_bytes[one], size_bytes[other]
    for k in np.flatnonzero((sizes[0] != sizes[1]) | (sizes[0] < 0))[:1]:
        text = f"comm_size = {sizes[0][k]}, and {sizes[1][k]} at rank {peer[one[k]]}"
        raise messages.fail(int(one[k]), text)
    return peer, pair.astype(np.int64)


def _told(
    messages: Nodes, sends: NDArray[np.bool_], names: Sequence[str], members: Members
) -> Integers:
    """Take the other end from the node, or from a group of two."""
    source, destination = messages.column("source"), messages.column("destination")
    own, peer = np.where(sends, source, destination), np.where(sends, destination, source)
    rank, n_ranks = messages.rank, len(messages.traces)
    for k in np.flatnonzero((own != MISSING) & (own != rank))[:1].tolist():
        name = "comm_src" if sends[k] else "comm_dst"
        raise messages.fail(k, f"{name} = {own[k]} in the trace of rank {rank[k]}")
    for k in np.flatnonzero(peer == MISSING).tolist():
        others = [other for other in members.get(names[k], ()) if other != rank[k]]
        if len(others) == 1:
            peer[k] = others[0]
    wrong = (peer < MISSING) | (peer >= n_ranks) | (peer == rank)
    for k in np.flatnonzero(wrong)[:1].tolist():
        raise messages.fail(k, f"rank {peer[k]}: another of 0 .. {n_ranks - 1}")
    return peer


def _resolve(
    messages: Nodes, sends: NDArray[np.bool_], peer: Integers, bucket: Sequence[int]
) -> None:
    """Find ends that no node tells among messages of one tag, as long as there is one choice."""
    rank = messages.rank

    def choices(k: int) -> set[int]:
        """List the ranks that could be the other end: senders of this rank, else of none."""
        opposite = [j for j in bucket if sends[j] != sends[k] and rank[j] != rank[k]]
        beside = [j for j in bucket if sends[j] == sends[k] and rank[j] == rank[k]]
        named = Counter(int(rank[j]) for j in opposite if peer[j] == rank[k])
        named -= Counter(int(peer[j]) for j in beside)
        return set(named) or {int(rank[j]) for j in opposite if peer[j] == MISSING}

    hopeless: set[int] = set()
    while True:
        silent: dict[tuple[int, bool], list[int]] = defaultdict(list)
        for k in bucket:
            if peer[k] == MISSING and k not in hopeless:
                silent[int(rank[k]), bool(sends[k])].append(k)
        if not silent:
            return
        found = [(same, choices(same[0])) for same in silent.values()]
        same, ranks = next((one for one in found if len(one[1]) == 1), found[0])
        if len(ranks) != 1:
            shown = ", ".join(map(str, sorted(ranks))) or "none"
            text = f"its other end is not told; ranks that it could be: {shown}"
            for k in same:
                messages.skip(k, text)
            hopeless.update(same)
            continue
        peer[same] = ranks.pop()

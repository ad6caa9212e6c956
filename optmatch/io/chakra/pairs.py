"""Which receive belongs to which send, where traces tell both ends, one, or only the tag."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.io.chakra.columns import MISSING, Integers
from optmatch.model import FormatError


class Messages(NamedTuple):
    """Sends and receives of all ranks in columns, those of a rank in their order."""

    sends: NDArray[np.bool_]
    rank: Integers
    source: Integers
    destination: Integers
    tag: Integers
    size_bytes: Integers
    group: tuple[str, ...]
    members: Mapping[str, Sequence[int]]
    n_ranks: int
    fail: Callable[[int, str], FormatError]
    """Returns an error about the message with a number."""


def pair_messages(messages: Messages) -> tuple[Integers, Integers]:
    """Find the other end of every message.

    Returns
    -------
    peer
        ``peer[message]``: the other rank.
    pair
        ``pair[message]``: the same number at a send and its receive, from 0 up.

    Raises
    ------
    FormatError
        Naming the node: an end that is no rank or another one than its own, a message without
        its other end, several ranks that could be it, or another size there.

    Notes
    -----
    Messages between two ranks with the same tag are in the same order at both. Where a rank is
    not told, it is the other one of a group of two, or the only rank in the group that has a
    counterpart with the same tag.
    """
    peer = _told(messages)
    if (peer == MISSING).any():
        peer = _resolve(messages, peer)
    source = np.where(messages.sends, messages.rank, peer)
    destination = np.where(messages.sends, peer, messages.rank)
    keys = np.stack([source, destination, messages.tag], axis=1)
    order = np.lexsort([~messages.sends, *keys.T[::-1]])
    count = np.zeros(len(order), dtype=np.int64)  # which of its kind, between these ranks
    for half in (messages.sends, ~messages.sends):
        ours = order[half[order]]
        new = np.any(keys[ours] != np.roll(keys[ours], 1, axis=0), axis=1)
        new[:1] = True
        begin = np.maximum.accumulate(np.where(new, np.arange(len(ours)), 0))
        count[ours] = np.arange(len(ours)) - begin
    full = np.concatenate([keys, count[:, None]], axis=1)
    _, pair, twice = np.unique(full, axis=0, return_inverse=True, return_counts=True)
    pair = pair.reshape(-1)
    for k in np.flatnonzero(twice[pair] != 2)[:1]:
        verb, end = ("receives", peer[k]) if messages.sends[k] else ("sends", peer[k])
        raise messages.fail(int(k), f"rank {end} never {verb} it")
    ends = np.argsort(pair, kind="stable").reshape(-1, 2)
    sizes = messages.size_bytes[ends]
    for k in np.flatnonzero((sizes[:, 0] != sizes[:, 1]) | (sizes[:, 0] < 0))[:1]:
        one = int(ends[k, 0])
        raise messages.fail(
            one, f"comm_size = {sizes[k, 0]}, and {sizes[k, 1]} at rank {peer[one]}"
        )
    return peer, pair.astype(np.int64)


def _told(messages: Messages) -> Integers:
    """Take the other end from the node, or from a group of two."""
    own = np.where(messages.sends, messages.source, messages.destination)
    peer = np.where(messages.sends, messages.destination, messages.source)
    for k in np.flatnonzero((own != MISSING) & (own != messages.rank))[:1]:
        name = "comm_src" if messages.sends[k] else "comm_dst"
        raise messages.fail(int(k), f"{name} = {own[k]} in the trace of rank {messages.rank[k]}")
    for k in np.flatnonzero(peer == MISSING):
        members = messages.members.get(messages.group[k], ())
        others = [rank for rank in members if rank != messages.rank[k]]
        if len(others) == 1:
            peer[k] = others[0]
    wrong = (peer < MISSING) | (peer >= messages.n_ranks) | (peer == messages.rank)
    for k in np.flatnonzero(wrong)[:1]:
        raise messages.fail(int(k), f"rank {peer[k]}: another of 0 .. {messages.n_ranks - 1}")
    return peer


def _resolve(messages: Messages, peer: Integers) -> Integers:
    """Find ends that no node tells, as long as there is but one choice."""
    peer = peer.copy()
    alike: dict[tuple[str, int], list[int]] = defaultdict(list)
    for k in range(len(peer)):
        alike[messages.group[k], int(messages.tag[k])].append(k)
    for bucket in alike.values():
        while silent := _silent(messages, peer, bucket):
            choices = [_choices(messages, peer, bucket, same[0]) for same in silent]
            certain = [k for k, ranks in enumerate(choices) if len(ranks) == 1]
            if not certain:
                shown = ", ".join(map(str, sorted(choices[0]))) or "none"
                raise messages.fail(
                    silent[0][0], f"its other end is not told; ranks that it could be: {shown}"
                )
            peer[silent[certain[0]]] = choices[certain[0]].pop()
    return peer


def _silent(messages: Messages, peer: Integers, bucket: list[int]) -> list[list[int]]:
    """Group the messages without another end by their rank and direction."""
    found: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for k in bucket:
        if peer[k] == MISSING:
            found[int(messages.rank[k]), bool(messages.sends[k])].append(k)
    return list(found.values())


def _choices(messages: Messages, peer: Integers, bucket: list[int], k: int) -> set[int]:
    """List the ranks that could be the other end: those that name this one, else the silent."""
    rank, sends = messages.rank[k], messages.sends[k]
    opposite = [j for j in bucket if messages.sends[j] != sends and messages.rank[j] != rank]
    named = Counter(int(messages.rank[j]) for j in opposite if peer[j] == rank)
    named -= Counter(
        int(peer[j]) for j in bucket if messages.sends[j] == sends and messages.rank[j] == rank
    )
    if named:
        return set(named)
    return {int(messages.rank[j]) for j in opposite if peer[j] == MISSING}

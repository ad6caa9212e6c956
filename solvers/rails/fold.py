"""A step folded: ranks that do the same at the same time stand for each other.

Two ranks are of one class if their programs agree in all numbers, and all their partners, place
by place, are of the same classes. By induction over time they then do everything at the same
moments, as long as a plan treats the ranks of a class alike. Nothing is lost by that: take any
plan, pick one pipeline, and let all others do what it does; its collectives do not last longer,
since a ring goes at the speed of its slowest member.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.model import check_time
from optmatch.problems import RailJob
from optmatch.problems.rails.step import COMPUTE, RECV, SEND, Step, dimensions
from optmatch.problems.rails.times import orders


class Folded(NamedTuple):
    """What the classes of ranks do, each thing once."""

    class_of: NDArray[np.int64]
    """``class_of[rank]``."""
    node_of: NDArray[np.int64]
    """``node_of[operation]``: the node it belongs to, with all parts of its communication."""
    part: NDArray[np.int64]
    """``part[node]``: one operation of it."""
    before: NDArray[np.int64]
    """``before[k]`` has to end before ``after[k]`` starts: pairs of nodes, each once."""
    after: NDArray[np.int64]
    order: tuple[NDArray[np.int64], ...]
    """``order[class]``: the nodes on a rail in program order."""
    first: tuple[int, ...]
    """``first[class]``: its first rank, which stands for the others."""
    to: NDArray[np.int64]
    """``to[operation]``: the rank that it sends to, on a ring the next member; -1 if none."""
    of: NDArray[np.int64]
    """``of[operation]``: the rank that it receives from, on a ring the last member; -1 if none."""


def fold(job: RailJob, apart: Sequence[bytes] = ()) -> Folded:
    """Find the classes of ranks, and what they do.

    With `apart`, something for each rank, the ranks of a class agree in that, too.

    Notes
    -----
    Classes are refined until they are stable, as in the minimisation of automata. Partners are
    compared by sums of 64-bit hashes; if two different ones ever agreed, the plan would be wrong
    and its replay would say so.
    """
    step, start = job.step(), job.step().rank_start
    to, of = _partners(step, list_places(step))
    programs = _programs(step, to, of)
    programs = [a + b for a, b in zip(programs, apart, strict=True)] if apart else programs
    class_of, code = _refine(step, _number(programs))
    first = np.unique(class_of, return_index=True)[1].tolist()
    spans = [np.arange(start[rank], start[rank + 1]) for rank in first]
    own = np.concatenate([*spans, np.empty(0, np.int64)]).astype(np.int64)
    kept, chosen = np.unique(code[own], return_index=True)
    node_of, n = np.searchsorted(kept, code).astype(np.int64), max(1, len(kept))
    one, two = orders(step, own)
    before, after = np.divmod(np.unique(node_of[one] * n + node_of[two]), n)
    rail = step.rail
    on_rail = tuple(node_of[span[rail[span] >= 0]] for span in spans)
    return Folded(class_of, node_of, own[chosen], before, after, on_rail, tuple(first), to, of)


def _refine(step: Step, colour: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Refine ``colour[rank]`` until those that communicate with the same colours have one.

    Also return ``key[operation]``, the same for operations that happen at the same time.
    """
    local = np.arange(step.n_operations) - step.rank_start[step.rank]
    at = np.argsort(step.match, kind="stable")
    at = at[step.match[at] >= 0]
    first = np.flatnonzero(np.diff(step.match[at], prepend=-1))
    sizes = np.diff(first, append=len(at))
    while True:
        check_time()
        keys: NDArray[np.uint64] = _mix(colour[step.rank], local)
        if len(at):
            keys[at] = np.repeat(_mix(np.add.reduceat(keys[at], first), sizes), sizes)
        refined = _number(
            [
                keys[start:end].tobytes() + colour[rank].tobytes()
                for rank, (start, end) in enumerate(pairwise(step.rank_start.tolist()))
            ]
        )
        if refined.max(initial=-1) == colour.max(initial=-1):
            return colour, keys
        colour = refined


def _programs(step: Step, to: NDArray[np.int64], of: NDArray[np.int64]) -> list[bytes]:
    """Describe what each rank does, and which of its partners on rails are the same."""
    sizes = np.array([*(len(group.ranks) for group in step.groups), 1])[step.group]
    counts, riding = np.diff(step.dep_start), np.flatnonzero(step.rail >= 0)
    back = np.repeat(np.arange(step.n_operations), counts) - step.dep
    columns = (
        *(step.kind, dimensions(step), sizes, step.rail >= 0, step.size_bytes, step.duration_s),
        counts,
    )
    faced = np.stack([to, of], axis=1)[riding]
    bounds = np.searchsorted(riding, step.rank_start).tolist()
    found = []
    for (start, end), (one, two) in zip(
        pairwise(step.rank_start.tolist()), pairwise(bounds), strict=True
    ):
        check_time()
        parts = [column[start:end].tobytes() for column in columns]
        parts.append(back[step.dep_start[start] : step.dep_start[end]].tobytes())
        parts.append(number_first(faced[one:two].reshape(-1)).tobytes())
        found.append(b"".join(parts))
    return found


def _mix(one: Any, two: Any) -> Any:
    """Hash pairs of integers to 64 bits, as splitmix64 does; single ones or arrays."""
    with np.errstate(over="ignore"):
        z = np.asarray(one).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = z + np.asarray(two).astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
        z = z + np.uint64(0x8CB92BA72F3D8DD7)  # else twice a number has twice its hash
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _number(keys: list[bytes]) -> NDArray[np.int64]:
    """Give equal texts equal numbers, counted in the order of their first appearance."""
    seen: dict[bytes, int] = {}
    return np.array(
        [seen.setdefault(blake2b(key, digest_size=16).digest(), len(seen)) for key in keys],
        dtype=np.int64,
    )


class Places(NamedTuple):
    """The places of ranks in their groups."""

    member: NDArray[np.int64]
    """``member[group, place]``, padded with -1."""
    keys: NDArray[np.int64]
    """``group * n_ranks + rank`` of all members, ascending."""
    place_of: NDArray[np.int64]
    """The place of each of these."""

    def place(self, step: Step, operations: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of the ranks of operations in their groups."""
        keys = step.group[operations].astype(np.int64) * step.n_ranks + step.rank[operations]
        return self.place_of[np.searchsorted(self.keys, keys)]


def list_places(step: Step) -> Places:
    """Put the groups of a step into tables."""
    sizes = np.array([len(group.ranks) for group in step.groups], dtype=np.int64)
    member = np.full((len(sizes), int(sizes.max(initial=0))), -1)
    for number, group in enumerate(step.groups):
        member[number, : len(group.ranks)] = group.ranks
    of, place = np.nonzero(member >= 0)
    keys = of * step.n_ranks + member[of, place]
    order = np.argsort(keys)
    return Places(member, keys[order], place[order])


def _partners(step: Step, places: Places) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    to = np.where(step.kind == SEND, step.peer, np.int64(-1))
    of = np.where(step.kind == RECV, step.peer, np.int64(-1))
    together = np.flatnonzero((step.kind != COMPUTE) & (step.kind < SEND))
    group, place = step.group[together], places.place(step, together)
    sizes = (places.member >= 0).sum(axis=1)[group]
    to[together] = places.member[group, (place + 1) % sizes]
    of[together] = places.member[group, (place - 1) % sizes]
    return to, of


def number_first(values: NDArray[np.integer]) -> NDArray[np.int64]:
    """Replace values by numbers in the order in which they first occur: who is whom again.

    Examples
    --------
    >>> number_first(np.array([7, 3, 7, 5])).tolist()
    [0, 1, 0, 2]
    """
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    found: NDArray[np.int64] = np.argsort(np.argsort(first))[inverse.reshape(-1)]
    return found

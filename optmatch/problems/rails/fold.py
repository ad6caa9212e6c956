"""Ranks that behave alike: a step of thousands of ranks folded to a few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.rails.phases import stages
from optmatch.problems.rails.step import Step, dimensions


class Fold(NamedTuple):
    """A step, up to symmetry.

    Parameters
    ----------
    rank_class
        ``rank_class[rank]``: ranks of one class do the same at the same times.
    ranks
        ``ranks[class]``: the first rank of each class, which stands for all.
    event
        ``event[operation]``: operations of one number happen at the same time; the parts of a
        communication are among them.
    stage_class
        ``stage_class[stage]`` of ``stages(step)``: stages whose ranks are of the same classes, on
        rails that are alike.
    """

    rank_class: NDArray[np.int64]
    ranks: NDArray[np.int64]
    event: NDArray[np.int64]
    stage_class: NDArray[np.int64]


def fold(step: Step) -> Fold:
    """Find ranks that no simulation can tell apart, by refinement of colours.

    Ranks start with the colour of their program: kinds, sizes, durations, order and dependencies.
    Then ranks are told apart by the colours of those they communicate with in each operation, of
    their stage and of their rail, until nothing changes. By induction over time all ranks of a
    class do the same at the same times, whatever switches the rails, as long as it treats ranks
    of one class alike.

    Notes
    -----
    Time O(operations) for each round; a job that was not recorded needs two or three. Colours are
    sums of 64-bit hashes: two classes fall together with a probability of about ``2**-60``.

    Examples
    --------
    >>> from optmatch.problems.rails.step import RECV, SEND, Group
    >>> pair = Group("pp.0", "pp", (0, 1), rail=0)
    >>> step = Step(groups=(pair,), rank=[0, 1], kind=[SEND, RECV], group=[0, 0],
    ...             size_bytes=[8, 8], duration_s=[0, 0], peer=[1, 0], match=[0, 0],
    ...             dep_start=[0, 0, 0], dep=[])
    >>> found = fold(step)
    >>> found.rank_class.tolist(), found.event.tolist()
    ([0, 1], [0, 0])
    """
    places = stages(step)
    colour, keys = refine(step, around=lambda colour: _surroundings(colour, places)[0])
    _, ranks = np.unique(colour, return_index=True)
    _, event = np.unique(keys, return_inverse=True)
    _, stage_class = np.unique(_surroundings(colour, places)[1], return_inverse=True)
    return Fold(colour, ranks, event.reshape(-1), stage_class.reshape(-1))


def refine(
    step: Step,
    *,
    apart: Sequence[bytes] = (),
    around: Callable[[NDArray[np.int64]], NDArray[np.uint64]] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Refine colours of ranks until those that communicate with the same colours have one.

    Parameters
    ----------
    step
        The step.
    apart
        For each rank something in which ranks of a colour have to agree, beyond their programs.
    around
        For colours of ranks what else has to agree, a number for each rank.

    Returns
    -------
    colour
        ``colour[rank]``, numbered in the order of their first appearance.
    key
        ``key[operation]``: the same for operations that happen at the same time, the parts of a
        communication among them.
    """
    local = np.arange(step.n_operations) - step.rank_start[step.rank]
    at = np.argsort(step.match, kind="stable")
    at = at[step.match[at] >= 0]
    first = np.flatnonzero(np.diff(step.match[at], prepend=-1))
    spans = list(pairwise(step.rank_start.tolist()))
    programs = _programs(step)
    colour = _number([a + b for a, b in zip(programs, apart, strict=True)] if apart else programs)
    while True:
        keys: NDArray[np.uint64] = _mix(colour[step.rank], local)
        if len(at):
            sizes = np.diff(first, append=len(at))
            keys[at] = np.repeat(_mix(np.add.reduceat(keys[at], first), sizes), sizes)
        beside = np.zeros(len(spans), np.uint64) if around is None else around(colour)
        refined = _number(
            [
                keys[start:end].tobytes() + beside[rank].tobytes() + colour[rank].tobytes()
                for rank, (start, end) in enumerate(spans)
            ]
        )
        if refined.max(initial=-1) == colour.max(initial=-1):
            return colour, keys
        colour = refined


def _programs(step: Step) -> list[bytes]:
    """Describe what each rank does, without names of ranks and groups."""
    dimension = dimensions(step)
    sizes = np.array([*(len(group.ranks) for group in step.groups), 1])[step.group]
    back = np.repeat(np.arange(step.n_operations), np.diff(step.dep_start)) - step.dep
    columns = (
        *(step.kind, dimension, sizes, step.rail >= 0, step.size_bytes, step.duration_s),
        np.diff(step.dep_start),
    )
    found = []
    for start, end in zip(step.rank_start[:-1], step.rank_start[1:], strict=True):
        parts = [column[start:end].tobytes() for column in columns]
        parts.append(back[step.dep_start[start] : step.dep_start[end]].tobytes())
        peers = step.peer[start:end]
        _, seen, which = np.unique(peers, return_index=True, return_inverse=True)
        parts.append(seen[which.reshape(-1)].tobytes())
        found.append(b"".join(parts))
    return found


def _surroundings(
    colour: NDArray[np.int64], places: tuple[tuple[int, tuple[int, ...]], ...]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Sum up colours over the stage and the rail of each rank, and over each stage."""
    zero = np.uint64(0)
    rails: dict[int, int] = {}
    sums = np.zeros(len(places), np.uint64)
    for number, (rail, ranks) in enumerate(places):
        sums[number] = _mix(colour[list(ranks)], zero).sum(dtype=np.uint64)
        rails[rail] = (rails.get(rail, 0) + int(_mix(sums[number], zero))) % 2**64
    around = np.zeros(len(colour), np.uint64)
    for number, (rail, ranks) in enumerate(places):
        sums[number] = _mix(sums[number], np.uint64(rails[rail]))
        around[list(ranks)] += _mix(sums[number], np.uint64(2))
    return around, sums


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

"""All-to-alls in stages: rings of members whose circuits lead so many places further on.

With a few of such rings, one after another, every part goes over several hops: fewer changes than
with a ring for each distance, and fewer bytes than around one ring.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from optmatch.solvers.rails.paths import Ints

_MOST_SETS = 600
"""All sets of strides are tried if there are no more of them."""
_MOST_STAGES = 6
"""Strides are chosen for up to so many stages; then comes one stage for each stride."""


class Menu(NamedTuple):
    """The ways to do all-to-alls in stages: a row for each way, a column for each stage."""

    begin: Ints
    """Those of n members are rows ``begin[n]`` to ``begin[n + 1]``; row 0 is a ring as it is."""
    stride: Ints
    """``stride[row, stage]``: how many places further on its circuits lead; 0 past the last
    stage."""
    hops: Ints
    """``hops[row, stage]``: how many parts each circuit carries."""


class _Way(NamedTuple):
    """One way to do an all-to-all in stages; an entry for each stage."""

    strides: tuple[int, ...]
    hops: list[int]


def list_menu(sizes: Iterable[int]) -> Menu:
    """List ways for groups of some sizes, each also with its stages in reverse."""
    wanted_sizes = set(sizes)
    ways = [_Way((1,), [0])]  # row 0, for what goes straight without stages
    begin = [1, 1]
    for n_members in range(1, max(wanted_sizes, default=0) + 1):
        if n_members in wanted_sizes:
            for strides in _choose_strides(n_members):
                for ordered in (strides, strides[::-1]):
                    ways.append(_Way(ordered, _count_hops(n_members, ordered)))
        begin.append(len(ways))

    n_stages = max(len(way.strides) for way in ways)
    stride = np.zeros((len(ways), n_stages), np.int64)
    hops = np.zeros_like(stride)
    for row, way in enumerate(ways):
        stride[row, : len(way.strides)] = way.strides
        hops[row, : len(way.hops)] = way.hops
    return Menu(np.array(begin), stride, hops)


@lru_cache(maxsize=64)
def _choose_strides(n: int) -> tuple[tuple[int, ...], ...]:
    """Choose strides for each number of stages from two on: sets with few hops, and all strides.

    All sets with stride 1 are tried if they are few, otherwise the best one gets one stride more.
    """
    best: tuple[int, ...] = (1,)
    chosen = []
    for n_stages in range(2, min(_MOST_STAGES, n - 2) + 1):
        if comb(n - 2, n_stages - 1) <= _MOST_SETS:
            sets = [(1, *others) for others in combinations(range(2, n), n_stages - 1)]
        else:
            sets = [tuple(sorted((*best, stride))) for stride in range(2, n) if stride not in best]
        best = min(sets, key=lambda strides: _fewest_hops_by_stage(n, strides)[-1].sum())
        chosen.append(best)
    return (*chosen, tuple(range(1, n)))


def _fewest_hops_by_stage(n: int, strides: tuple[int, ...]) -> list[Ints]:
    """Return before the first stage and after each one the fewest hops to each distance.

    An entry for each distance from 0 to n - 1; n * n stands for those that are not reached.
    """
    distance = np.arange(n)
    n_hops_here = np.arange(n)[:, None]
    fewest = np.where(distance == 0, 0, n * n)
    after_stage = [fewest]
    for stride in strides:
        # So many hops in this stage lead to a distance from one that stages before have reached.
        reached_before = (distance - n_hops_here * stride) % n
        fewest = (fewest[reached_before] + n_hops_here).min(axis=0)
        after_stage.append(fewest)
    return after_stage


def _count_hops(n: int, strides: tuple[int, ...]) -> list[int]:
    """Count the parts that a circuit carries in each stage, on ways of fewest hops.

    Of such ways a part takes the one with fewest hops in the last stage, then in the one before.
    """
    fewest = _fewest_hops_by_stage(n, strides)
    distance = np.arange(n)  # by part: how far it still is from its sender, going back
    parts_carried = []
    for stage in range(len(strides) - 1, -1, -1):
        hops_to_here = fewest[stage + 1][distance]
        hops_in_stage = np.full(n, -1)
        for n_hops in range(n):
            reached_before = (distance - n_hops * strides[stage]) % n
            is_fewest = fewest[stage][reached_before] + n_hops == hops_to_here
            hops_in_stage[is_fewest & (hops_in_stage < 0)] = n_hops
        distance = (distance - hops_in_stage * strides[stage]) % n
        parts_carried.append(int(hops_in_stage.sum()))
    return parts_carried[::-1]

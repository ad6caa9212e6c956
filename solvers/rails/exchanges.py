"""All-to-alls in stages: rings of members whose circuits lead some places further on.

A *block* is the data of one member for one other, and its *distance* is how many places further on
that one is. A *stage* is a time in which the circuits of all members stay and have one *stride*;
blocks may take several hops in it. The *menu* is a table of schemes to do all-to-alls of some
sizes, each with its stages and their strides.

With a few stages one after another every block goes over several hops: fewer changes than with a
ring for each distance, and fewer bytes than around one ring. Among 6 members, the strides 1 and 3
serve distance 5 by two hops in the first stage and one in the second. Below, n is the number of
members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import combinations
from math import comb, gcd
from typing import NamedTuple

import numpy as np

from optmatch.solvers.collectives.topologies import list_shift_sets
from optmatch.solvers.rails.paths import Ints

_MOST_SETS = 600
"""All sets of strides are looked at if there are no more of them; else the geometric ones of
`list_shift_sets` and a greedy one."""
_MOST_STAGES = 6
"""Strides are chosen for up to this number of stages; then comes one stage for each stride."""


class Menu(NamedTuple):
    """The schemes to do all-to-alls in stages: a row for each scheme, a column for each stage."""

    begin: Ints
    """Those of n members are rows ``begin[n]`` to ``begin[n + 1]``, the last one excluded; row 0,
    one stage of stride 1, is for what is no all-to-all."""
    stride: Ints
    """``stride[row, stage]``: how many places further on its circuits lead; 0 past the last
    stage."""
    hops: Ints
    """``hops[row, stage]``: how many blocks each circuit carries, one for each hop of a block."""


class _Scheme(NamedTuple):
    """One scheme to do an all-to-all in stages; an entry for each stage."""

    strides: tuple[int, ...]
    """How many places further on circuits lead."""
    hops: list[int]
    """How many blocks each circuit carries."""


def list_menu(sizes: Iterable[int]) -> Menu:
    """List the schemes to do an all-to-all in stages, for some numbers of members.

    For n members there is one scheme for each number of stages from 2 to `_MOST_STAGES` or n - 2,
    with the strides of fewest hops, and one with a stage for each distance: the strides 1, 2, ...,
    n - 1. Each also has its strides in reverse. For 4 members these are the rows (1, 2), (2, 1),
    (1, 2, 3) and (3, 2, 1). In the first one, blocks for distances 1 and 3 take a hop in the first
    stage, those for 2 and 3 in the second: each circuit carries 2 blocks in either.
    """
    wanted_sizes = set(sizes)
    schemes = [_Scheme((1,), [0])]  # row 0, for what goes straight without stages

    # `begin` is filled up to the largest size, so that it can be read by number of members. There
    # are no schemes for 0 members: they begin at row 1, and so do those for 1 member.
    begin = [1, 1]
    for n_members in range(1, max(wanted_sizes, default=0) + 1):
        if n_members in wanted_sizes:
            for strides in _choose_strides(n_members):
                for ordered in (strides, strides[::-1]):
                    schemes.append(_Scheme(ordered, _count_hops(n_members, ordered)))
        begin.append(len(schemes))

    # Rows have the length of the longest scheme; shorter ones end with strides of 0.
    n_stages = max(len(scheme.strides) for scheme in schemes)
    stride = np.zeros((len(schemes), n_stages), np.int64)
    hops = np.zeros_like(stride)
    for row, scheme in enumerate(schemes):
        stride[row, : len(scheme.strides)] = scheme.strides
        hops[row, : len(scheme.hops)] = scheme.hops
    return Menu(np.array(begin), stride, hops)


@lru_cache(maxsize=64)
def _choose_strides(n: int) -> tuple[tuple[int, ...], ...]:
    """Choose for 2, 3 and more stages the set of strides with the fewest hops of all blocks.

    The result has a set for each number of stages up to `_MOST_STAGES`, and last the set of all
    strides from 1 to n - 1. A set has a stride for each stage, ascending. For 6 members the sets
    are (1, 2), (1, 2, 3), (1, 2, 3, 4) and (1, 2, 3, 4, 5).
    """
    chosen = [
        min(list_stride_sets(n, n_stages), key=lambda strides: count_fewest_hops(n, strides))
        for n_stages in range(2, min(_MOST_STAGES, n - 2) + 1)
    ]
    return (*chosen, tuple(range(1, n)))


def list_stride_sets(n: int, size: int) -> Iterator[tuple[int, ...]]:
    """List all sets of `size` strides if they are few, else some known ones and a greedy one.

    A set has different strides from 1 to n - 1, ascending, for n members; 1 is the first.
    """
    if comb(n - 2, size - 1) <= _MOST_SETS:
        yield from ((1, *larger) for larger in combinations(range(2, n), size - 1))
        return
    for shifts in list_shift_sets(n, size, two_way=False):
        if len(shifts) == size:
            yield shifts
    yield _choose_greedily(n, size)


@lru_cache(maxsize=256)
def _choose_greedily(n: int, size: int) -> tuple[int, ...]:
    """Choose strides one after another: from stride 1 on, the next one saves most hops."""
    if size == 1:
        return (1,)
    former = _choose_greedily(n, size - 1)
    sets = [tuple(sorted((*former, stride))) for stride in range(2, n) if stride not in former]
    return min(sets, key=lambda strides: count_fewest_hops(n, strides))


def count_fewest_hops(n: int, strides: tuple[int, ...]) -> int:
    """Count the fewest hops to all distances together; the order of strides does not matter.

    Among n = 6 members with strides 1 and 3, distances 1 to 5 take 1, 2, 1, 2 and 3 hops: 9.
    """
    return int(_fewest_hops_by_stage(n, strides)[-1].sum())


def _fewest_hops_by_stage(n: int, strides: tuple[int, ...]) -> list[Ints]:
    """Count after each stage the fewest hops to each distance, by dynamic programming.

    An array has an entry for each distance from 0 to n - 1; one that is not reached has n * n.
    Array 0 is before all stages. Among 6 members with ``strides[stage]`` 1 and 3, array 1 is 0, 1,
    2, 3, 4, 5 and array 2 is 0, 1, 2, 1, 2, 3.
    """
    fewest = np.where(np.arange(n) == 0, 0, n * n)
    after_stage = [fewest]
    for stride in strides:
        # A distance is reached from each one before it on its cycle of this stride, with a hop for
        # each step between. The best one to come from is that with the least hops so far minus its
        # place on the cycle: a running minimum. Cycles are followed twice around, as the best one
        # may stand behind, and the second time is written last. Among 4 members with stride 2 the
        # cycles are the distances 0, 2, 0, 2 and 1, 3, 1, 3.
        n_cycles = gcd(n, stride)
        hops = np.arange(2 * n // n_cycles)
        cycles = (np.arange(n_cycles)[:, None] + hops * stride) % n
        fewest = fewest.copy()
        fewest[cycles] = np.minimum.accumulate(fewest[cycles] - hops, axis=1) + hops
        after_stage.append(fewest)
    return after_stage


def _count_hops(n: int, strides: tuple[int, ...]) -> list[int]:
    """Count the blocks that each circuit carries in each stage, one for each hop of a block.

    ``strides[stage]`` and the result have an entry for each stage; n is the number of members. A
    block takes a route of fewest hops; among these the one with the fewest hops in the last stage,
    and then in the stage before, and so on. Among 6 members with the strides 1 and 3 it is 6
    blocks, then 3: those for the distances 1 to 5 take 1, 2, 0, 1 and 2 hops of stride 1, and the
    last three one of stride 3.
    """
    # With a stage for each distance, each block takes one hop, in the stage of its distance.
    if len(strides) == n - 1:
        return [1] * (n - 1)
    # ``fewest[stage][distance]``: the fewest hops to a distance in the stages before `stage`.
    fewest = _fewest_hops_by_stage(n, strides)

    # The stages are gone through backwards. ``distance[block]`` is how far a block is from its
    # sender after the stage that is looked at: at the end that is where its receiver stands.
    distance = np.arange(n)
    blocks_carried = []
    for stage in range(len(strides) - 1, -1, -1):
        # The hops of each block in this stage: the least number that is on a route of fewest hops.
        # Numbers are tried from 0 on; -1 stands for none so far. Before these hops the block was
        # as many strides nearer to its sender: from there the stage before is looked at.
        hops_to_here = fewest[stage + 1][distance]
        hops_in_stage = np.full(n, -1)
        for n_hops in range(n):
            reached_before = (distance - n_hops * strides[stage]) % n
            is_fewest = fewest[stage][reached_before] + n_hops == hops_to_here
            hops_in_stage[is_fewest & (hops_in_stage < 0)] = n_hops
        distance = (distance - hops_in_stage * strides[stage]) % n
        blocks_carried.append(int(hops_in_stage.sum()))
    return blocks_carried[::-1]

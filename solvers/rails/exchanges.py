"""All-to-alls in stages: rings of members whose circuits lead so many places further on.

Words of this module:

Part
    The data of one member for one other; its distance is how many places further on that is.
Stage
    A time in which the circuits of all members stay; parts may take several hops in it.
Stride
    How many places further on the circuits of a stage lead.
Menu
    A table of ways to do all-to-alls of some sizes, each with its stages and their strides.

With a few stages one after another every part goes over several hops: fewer changes than with a
ring for each distance, and fewer bytes than around one ring. Among 6 members, the strides 1 and 3
serve distance 5 by two hops in the first stage and one in the second.
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
    """Those of n members are rows ``begin[n]`` to ``begin[n + 1]``, the last one excluded; row 0
    is a ring as it is."""
    stride: Ints
    """``stride[row, stage]``: how many places further on its circuits lead; 0 past the last
    stage."""
    hops: Ints
    """``hops[row, stage]``: how many parts each circuit carries, one for each hop of a part."""


class _Way(NamedTuple):
    """One way to do an all-to-all in stages; an entry for each stage."""

    strides: tuple[int, ...]
    """How many places further on circuits lead."""
    hops: list[int]
    """How many parts each circuit carries."""


def list_menu(sizes: Iterable[int]) -> Menu:
    """List the ways to do an all-to-all in stages, for groups of some numbers of members.

    In an all-to-all each member has data for each other one, a part. In a stage the circuits of
    all members lead the same number of places further on in the group, the stride, and a part may
    take several hops. From stage to stage all circuits change. With 4 members and the strides 1
    and 2, the part for the member 3 places further on takes one hop in each of two stages. Each
    way is also listed with its stages in reverse.

    Parameters
    ----------
    sizes
        Numbers of members that all-to-alls have; each at least 3.

    Returns
    -------
    Menu
        A row for each way and a column for each stage. The ways for n members are the rows from
        ``begin[n]`` up to, but without, ``begin[n + 1]``; ``stride[row, stage]`` is 0 past the
        last stage; ``hops[row, stage]`` is how many parts each circuit carries. Row 0 stands for
        a node that goes straight without stages. There are no rows for other numbers of members.
    """
    wanted_sizes = set(sizes)
    ways = [_Way((1,), [0])]  # row 0, for what goes straight without stages
    begin = [1, 1]
    for n_members in range(1, max(wanted_sizes, default=0) + 1):
        if n_members in wanted_sizes:
            for strides in _choose_strides(n_members):
                for ordered in (strides, strides[::-1]):
                    ways.append(_Way(ordered, _count_hops(n_members, ordered)))
        begin.append(len(ways))

    # Rows have the length of the longest way; shorter ones end with strides of 0.
    n_stages = max(len(way.strides) for way in ways)
    stride = np.zeros((len(ways), n_stages), np.int64)
    hops = np.zeros_like(stride)
    for row, way in enumerate(ways):
        stride[row, : len(way.strides)] = way.strides
        hops[row, : len(way.hops)] = way.hops
    return Menu(np.array(begin), stride, hops)


@lru_cache(maxsize=64)
def _choose_strides(n: int) -> tuple[tuple[int, ...], ...]:
    """Choose which circuits an all-to-all uses, for each number of stages.

    In a stage the circuits of all members lead the same number of places further on, the stride.
    The data of one member for one other may take several hops; fewer hops mean fewer bytes on the
    circuits. For each number of stages from two on, the strides with the fewest hops are chosen.
    All sets of strides that contain 1 are tried if these are few; else the best set so far gets
    one stride more. The last choice has all strides, where each part takes one hop.

    Parameters
    ----------
    n
        The members of the group, at least 3.

    Returns
    -------
    tuple of tuple of int
        For each number of stages, up to `_MOST_STAGES`, the strides, ascending; the last entry has
        all from 1 to n - 1.
    """
    best: tuple[int, ...] = (1,)
    chosen = []
    for n_stages in range(2, min(_MOST_STAGES, n - 2) + 1):
        if comb(n - 2, n_stages - 1) <= _MOST_SETS:
            sets = [(1, *larger) for larger in combinations(range(2, n), n_stages - 1)]
        else:
            sets = [tuple(sorted((*best, stride))) for stride in range(2, n) if stride not in best]
        best = min(sets, key=lambda strides: _fewest_hops_by_stage(n, strides)[-1].sum())
        chosen.append(best)
    return (*chosen, tuple(range(1, n)))


def _fewest_hops_by_stage(n: int, strides: tuple[int, ...]) -> list[Ints]:
    """Count by distance the fewest hops, before the first stage and after each one.

    An all-to-all goes in stages, one after another; in each of them circuits lead a fixed number
    of places further on, the stride, and data may take any number of hops. The distance of data is
    how many places further on their receiver stands. Dynamic programming over the stages.

    Parameters
    ----------
    n
        The members of the group.
    strides
        By stage how many places further on circuits lead, from 1 to n - 1.

    Returns
    -------
    list of int array, shape (n,)
        An array before the first stage and one after each: by distance from 0 to n - 1 the fewest
        hops so far; n * n stands for distances that are not reached. Among 5 members with the
        strides 1 and 3, distance 4 takes four hops after the first stage and two after the second:
        1 + 3.
    """
    distance = np.arange(n)
    n_hops_here = np.arange(n)[:, None]
    fewest = np.where(distance == 0, 0, n * n)
    after_stage = [fewest]
    for stride in strides:
        # With k hops in this stage (rows), a distance (columns) is reached from the one that is k
        # strides nearer, which the stages before have reached.
        reached_before = (distance - n_hops_here * stride) % n
        fewest = (fewest[reached_before] + n_hops_here).min(axis=0)
        after_stage.append(fewest)
    return after_stage


def _count_hops(n: int, strides: tuple[int, ...]) -> list[int]:
    """Count how many parts a circuit carries in each stage of an all-to-all.

    In an all-to-all each member has data for each other one, a part. In a stage all circuits lead
    the same number of places further on (the stride), and a part may take several hops. Each part
    takes the fewest hops in all; of such ways the one with fewest hops in the last stage, then in
    the one before. With 4 members and strides 1 and 2, the parts for distances 1, 2 and 3 make the
    hops (1, 0), (0, 1) and (1, 1): a circuit carries 2 parts in each stage.

    Parameters
    ----------
    n
        The members of the group.
    strides
        By stage how many places further on circuits lead; stride 1 is one of them.

    Returns
    -------
    list of int
        By stage the hops of all parts of one member, which is what each circuit carries.
    """
    fewest = _fewest_hops_by_stage(n, strides)
    distance = np.arange(n)  # by part: how far it still is from its sender, going back
    parts_carried = []
    for stage in range(len(strides) - 1, -1, -1):
        # The hops of each part in this stage: the least number that is on a way of fewest hops.
        # Numbers are tried from 0 on; -1 stands for none so far. Without these hops the part is so
        # many strides nearer to its sender, which is where the stage before goes on.
        hops_to_here = fewest[stage + 1][distance]
        hops_in_stage = np.full(n, -1)
        for n_hops in range(n):
            reached_before = (distance - n_hops * strides[stage]) % n
            is_fewest = fewest[stage][reached_before] + n_hops == hops_to_here
            hops_in_stage[is_fewest & (hops_in_stage < 0)] = n_hops
        distance = (distance - hops_in_stage * strides[stage]) % n
        parts_carried.append(int(hops_in_stage.sum()))
    return parts_carried[::-1]

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

_MOST_SETS, _MOST_STAGES = 600, 6


class Menu(NamedTuple):
    """The ways to do all-to-alls in stages."""

    begin: Ints
    """Those of n members are rows ``begin[n]`` to ``begin[n + 1]``; row 0 is a ring as it is."""
    stride: Ints
    """By row and stage, how many places further on its circuits lead; 0 after the last stage."""
    hops: Ints
    """By row and stage, how many parts each circuit carries."""


def list_menu(sizes: Iterable[int]) -> Menu:
    """List ways for groups of some sizes, each also with its stages in reverse."""
    wanted, most = set(sizes), max(sizes, default=0)
    begin = [1, 1]
    rows: list[tuple[tuple[int, ...], list[int]]] = [((1,), [0])]
    for n in range(1, most + 1):
        if n in wanted:
            for strides in _choose_strides(n):
                rows += [(strides, _count_hops(n, strides))]
                rows += [(strides[::-1], _count_hops(n, strides[::-1]))]
        begin.append(len(rows))
    tables = np.zeros((2, len(rows), max((len(one) for one, _ in rows), default=1)), np.int64)
    for row, pair in enumerate(rows):
        for table, column in zip(tables, pair, strict=True):
            table[row, : len(column)] = column
    return Menu(np.array(begin), *tables)


@lru_cache(maxsize=64)
def _choose_strides(n: int) -> tuple[tuple[int, ...], ...]:
    """Choose strides for each number of stages from two on: sets with few hops, and all strides.

    All sets with stride 1 are tried if they are few, otherwise the best one gets one stride more.
    """
    best: tuple[int, ...] = (1,)
    found = []
    for stages in range(2, min(_MOST_STAGES, n - 2) + 1):
        if comb(n - 2, stages - 1) <= _MOST_SETS:
            sets = [(1, *more) for more in combinations(range(2, n), stages - 1)]
        else:
            sets = [tuple(sorted((*best, s))) for s in range(2, n) if s not in best]
        best = min(sets, key=lambda strides: _spread(n, strides)[-1].sum())
        found.append(best)
    return (*found, tuple(range(1, n)))


def _spread(n: int, strides: tuple[int, ...]) -> list[Ints]:
    """Return after each stage the fewest hops in which a part gets by each distance."""
    far = np.where(np.arange(n) == 0, 0, n * n)
    found, times = [far], np.arange(n)[:, None]
    for stride in strides:
        far = (far[(np.arange(n) - times * stride) % n] + times).min(axis=0)
        found.append(far)
    return found


def _count_hops(n: int, strides: tuple[int, ...]) -> list[int]:
    """Count the parts that a circuit carries in each stage, on ways of fewest hops.

    Of such ways a part takes the one with fewest hops in the last stage, then in the one before.
    """
    known, at, hops = _spread(n, strides), np.arange(n), []
    for k in range(len(strides) - 1, -1, -1):
        far = known[k + 1][at]
        took = np.full(n, -1)
        for times in range(n):
            fits = (took < 0) & (known[k][(at - times * strides[k]) % n] + times == far)
            took[fits] = times
        at = (at - took * strides[k]) % n
        hops.append(int(took.sum()))
    return hops[::-1]

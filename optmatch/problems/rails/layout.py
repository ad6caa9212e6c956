"""Where the ranks of a job sit, and which of them communicate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.problems.rails.parallelism import DEGREES, Degree, Parallelism
from optmatch.problems.rails.step import SCALE_UP, Dimension, Group

_FAMILIES: dict[str, tuple[Dimension, tuple[Degree, ...]]] = {
    "dp": ("dp", ("dp", "cp")),
    "tp": ("tp", ("tp",)),
    "pp": ("pp", ("pp",)),
    "cp": ("cp", ("cp",)),
    "ep": ("ep", ("dp",)),
    "edp": ("dp", ("dp", "cp")),
}
"""Families of groups: their dimension, and the degrees in which the members of a group differ.

Weights are the same over dp and cp. With experts the members of "ep" are consecutive replicas,
and those of "edp" hold the same experts.
"""


def coordinates(split: Parallelism) -> NDArray[np.int64]:
    """Return ``coordinates[rank, degree]``, by `DEGREES`: the place of a rank in each degree."""
    sizes = [getattr(split, degree) for degree in split.order]
    counted = np.unravel_index(np.arange(split.n_ranks), sizes, order="F")
    return np.stack([counted[split.order.index(degree)] for degree in DEGREES], axis=1)


def place_ranks(split: Parallelism) -> NDArray[np.int64]:
    """Return the GPU of each rank, counted through the servers as they are filled."""
    places = coordinates(split)[:, [DEGREES.index(degree) for degree in split.placement]]
    sizes = [getattr(split, degree) for degree in split.placement]
    found: NDArray[np.int64] = np.ravel_multi_index(tuple(places.T), sizes, order="F")
    return found


def count_members(split: Parallelism, family: str) -> int:
    """Count the members of each group of a family."""
    if family == "ep":
        return split.ep
    size = int(np.prod([getattr(split, degree) for degree in _FAMILIES[family][1]]))
    return size // split.ep if family == "edp" else size


def list_stages(split: Parallelism) -> NDArray[np.int64]:
    """Return ``table[rank, stage]``: the rank at that stage of the same pipeline."""
    places = coordinates(split)
    _, line = np.unique(np.delete(places, DEGREES.index("pp"), 1), axis=0, return_inverse=True)
    line = line.reshape(-1)
    table = np.empty((split.n_ranks // split.pp, split.pp), dtype=np.int64)
    table[line, places[:, DEGREES.index("pp")]] = np.arange(split.n_ranks)
    found: NDArray[np.int64] = table[line]
    return found


def make_groups(split: Parallelism, gpus_per_server: int) -> tuple[Group, ...]:
    """Put together the ranks that communicate, in groups of two or more.

    Raises
    ------
    InputError
        If a group of several servers would need several rails.
    """
    places, gpus = coordinates(split), place_ranks(split)
    found: list[Group] = []
    for family, (dimension, differ) in _FAMILIES.items():
        if count_members(split, family) == 1 or (split.ep == 1 and family in ("ep", "edp")):
            continue
        key, place = places.copy(), np.zeros(len(places), np.int64)
        for degree in reversed(differ):
            place = place * getattr(split, degree) + places[:, DEGREES.index(degree)]
            key[:, DEGREES.index(degree)] = 0
        replica = places[:, DEGREES.index("dp")]
        if family in ("ep", "edp"):
            key[:, DEGREES.index("dp")] = (
                replica // split.ep if family == "ep" else replica % split.ep
            )
        _, which = np.unique(key, axis=0, return_inverse=True)
        ranks = np.lexsort([place, which.reshape(-1)]).reshape(-1, count_members(split, family))
        ranks = ranks[np.argsort(ranks.min(axis=1))]
        for number, row in enumerate(ranks.tolist()):
            name = f"{family}.{number}"
            rail = _rail(name, row, *np.divmod(gpus[row], gpus_per_server))
            found.append(Group(name, dimension, tuple(row), rail))
    return tuple(found)


def _rail(
    name: str, ranks: list[int], servers: NDArray[np.int64], rails: NDArray[np.int64]
) -> int:
    if (servers == servers[0]).all():
        return SCALE_UP
    for k in np.flatnonzero(rails != rails[0])[:1]:
        raise InputError(
            f"group {name} joins rank {ranks[0]} on rail {rails[0]} and rank {ranks[k]} on rail"
            f" {rails[k]}: a group of several servers rides one rail; change placement or"
            " gpus_per_server",
            where="parallelism.placement",
        )
    return int(rails[0])

"""Where the ranks of a job sit, and which of them communicate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.problems.rails.step import SCALE_UP, Dimension, Group

if TYPE_CHECKING:
    from optmatch.problems.rails.problem import RailJob

Split = Literal["dp", "tp", "pp", "cp"]
"""The degrees whose product is the number of ranks."""
SPLITS: tuple[Split, ...] = get_args(Split)

_FAMILIES: dict[str, tuple[Dimension, tuple[Split, ...]]] = {
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


def coordinates(job: RailJob) -> NDArray[np.int64]:
    """Return ``coordinates[rank, split]``, by `SPLITS`: the place of a rank in each degree."""
    sizes = [getattr(job, split) for split in job.order]
    counted = np.unravel_index(np.arange(job.n_gpus), sizes, order="F")
    return np.stack([counted[job.order.index(split)] for split in SPLITS], axis=1)


def positions(job: RailJob) -> NDArray[np.int64]:
    """Return ``positions[rank]``: its GPU, ``server * gpus_per_server + rail``."""
    if job.recorded is not None:
        return np.arange(job.n_gpus)
    places = coordinates(job)[:, [SPLITS.index(split) for split in job.placement]]
    sizes = [getattr(job, split) for split in job.placement]
    found: NDArray[np.int64] = np.ravel_multi_index(tuple(places.T), sizes, order="F")
    return found


def members(job: RailJob, family: str) -> int:
    """Count the members of each group of a family."""
    if family == "ep":
        return job.ep
    size = int(np.prod([getattr(job, split) for split in _FAMILIES[family][1]]))
    return size // job.ep if family == "edp" else size


def memberships(job: RailJob) -> dict[str, NDArray[np.int64]]:
    """Return for each family the number of each rank's group, -1 without one."""
    tables = {family: np.full(job.n_gpus, -1) for family in _FAMILIES}
    for number, group in enumerate(job.groups()):
        tables[group.name.partition(".")[0]][list(group.ranks)] = number
    return tables


def beside(job: RailJob) -> NDArray[np.int64]:
    """Return ``beside[rank, stage]``: the rank at that stage of the same pipeline."""
    places = coordinates(job)
    _, line = np.unique(np.delete(places, SPLITS.index("pp"), 1), axis=0, return_inverse=True)
    line = line.reshape(-1)
    table = np.empty((job.n_gpus // job.pp, job.pp), dtype=np.int64)
    table[line, places[:, SPLITS.index("pp")]] = np.arange(job.n_gpus)
    found: NDArray[np.int64] = table[line]
    return found


def make_groups(job: RailJob) -> tuple[Group, ...]:
    """Put together the ranks that communicate, in groups of two or more.

    Raises
    ------
    InputError
        If a group of several servers would need several rails.
    """
    places, gpus = coordinates(job), positions(job)
    found: list[Group] = []
    for family, (dimension, differ) in _FAMILIES.items():
        if members(job, family) == 1 or (job.ep == 1 and family in ("ep", "edp")):
            continue
        key, place = places.copy(), np.zeros(job.n_gpus, np.int64)
        for split in reversed(differ):
            place = place * getattr(job, split) + places[:, SPLITS.index(split)]
            key[:, SPLITS.index(split)] = 0
        replica = places[:, SPLITS.index("dp")]
        if family in ("ep", "edp"):
            key[:, SPLITS.index("dp")] = replica // job.ep if family == "ep" else replica % job.ep
        _, label = np.unique(key, axis=0, return_inverse=True)
        ranks = np.lexsort([place, label.reshape(-1)]).reshape(-1, members(job, family))
        ranks = ranks[np.argsort(ranks.min(axis=1))]
        for number, row in enumerate(ranks.tolist()):
            name = f"{family}.{number}"
            found.append(Group(name, dimension, tuple(row), _rail(job, name, row, gpus)))
    return tuple(found)


def _rail(job: RailJob, name: str, ranks: list[int], gpus: NDArray[np.int64]) -> int:
    servers, rails = np.divmod(gpus[ranks], job.gpus_per_server)
    if (servers == servers[0]).all():
        return SCALE_UP
    for k in np.flatnonzero(rails != rails[0])[:1]:
        raise InputError(
            f"group {name} joins rank {ranks[0]} on rail {rails[0]} and rank {ranks[k]} on rail"
            f" {rails[k]}: a group of several servers rides one rail; change placement or"
            " gpus_per_server",
            where="placement",
        )
    return int(rails[0])

"""Where the ranks of a job sit, and which of them communicate.

A *family* is a set of groups of one kind: all groups of tensor parallelism, for example. The
members of a group differ in the degrees of its family and agree in all others. *Replica* is the
coordinate of a rank in data parallelism, *part* that in context parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from optmatch.model import InputError
from optmatch.problems.rails.training.parallelism import DEGREES, Axis, Degree, Parallelism
from optmatch.problems.rails.training.step import SCALE_UP, Dimension, Group

_FAMILIES: dict[str, tuple[Dimension, tuple[Degree, ...]]] = {
    "dp": ("dp", ("dp", "cp")),
    "copies": ("dp", ("dp", "cp")),
    "tp": ("tp", ("tp",)),
    "pp": ("pp", ("pp",)),
    "cp": ("cp", ("cp",)),
    "ep": ("ep", ("dp", "cp")),
    "edp": ("dp", ("dp", "cp")),
}
"""Families of groups: their dimension, and the degrees in which the members of a group differ.

Weights are the same over dp and cp. With hybrid sharding "dp" shares one copy of them, and
"copies" have the same shard. With experts the members of "ep" hold different ones, and those of
"edp" the same.
"""
SERVER = "-server"
"""What the name of a family ends with whose groups are the parts inside a server of groups that
need several rails."""
RAIL = "-rail"
"""The same for their parts on one rail."""


def coordinates(split: Parallelism) -> NDArray[np.int64]:
    """List by rank its place in each degree, in the order of `DEGREES`.

    With dp = 2 and tp = 4 in the order dp, cp, tp, pp, rank 5 is replica 1 and has place 2 in
    tensor parallelism.
    """
    sizes = _sizes(split, split.order)
    counted = np.unravel_index(np.arange(split.n_ranks), sizes, order="F")
    place = dict(zip(split.order, counted, strict=True))

    # With "ep" as an axis of its own, "dp" counts the replicas of the same experts: a replica is
    # a number of two digits, of which "ep" is the lower one.
    if "ep" in place:
        place["dp"] = place["ep"] + split.expert_replicas * place["dp"]
    return np.stack([place[degree] for degree in DEGREES], axis=1)


def place_ranks(split: Parallelism) -> NDArray[np.int64]:
    """List by rank its GPU; those of a server have consecutive numbers."""
    # With "ep" as an axis of its own, the replica is split: ranks with the same experts differ in
    # the higher digit, `dp`, and those with different ones in the lower digit, `ep`.
    place: dict[Axis, NDArray[np.int64]] = dict(zip(DEGREES, coordinates(split).T, strict=True))
    if "ep" in split.placement:
        place["dp"], place["ep"] = np.divmod(place["dp"], split.expert_replicas)
    axes = tuple(place[axis] for axis in split.placement)
    gpu_of_rank: NDArray[np.int64] = np.ravel_multi_index(
        axes, _sizes(split, split.placement), order="F"
    )
    return gpu_of_rank


def _sizes(split: Parallelism, order: tuple[Axis, ...]) -> list[int]:
    """List the sizes of axes, of which experts may be one of their own that divides replicas."""
    sizes: dict[Axis, int] = {degree: getattr(split, degree) for degree in DEGREES}
    if "ep" in order:
        sizes |= {"ep": split.expert_replicas, "dp": split.dp // split.expert_replicas}
    return [sizes[axis] for axis in order]


def count_members(split: Parallelism, family: str) -> int:
    """Count the members of each group of a family."""
    size: int = math.prod(getattr(split, degree) for degree in _FAMILIES[family][1])
    shard = split.shard or size
    special = {"dp": shard, "copies": size // shard, "ep": split.ep, "edp": size // split.ep}
    return special.get(family, size)


def list_stages(split: Parallelism) -> NDArray[np.int64]:
    """List by rank the ranks of its pipeline, stage by stage."""
    pipelines = _list_members(split, "pp")
    stages_of_rank = np.empty((split.n_ranks, split.pp), np.int64)
    stages_of_rank[pipelines] = pipelines[:, None]
    return stages_of_rank


@lru_cache(maxsize=1)
def make_groups(split: Parallelism, gpus_per_server: int) -> tuple[Group, ...]:
    """Make all groups that communicate.

    A group is whole if it needs no rail or one alone; else its parts in servers and on rails are
    groups. The last result is cached: it is large, 26,816 groups for 16,384 GPUs, and a job that
    is read again, or copied with another network, has the same groups.
    """
    # Nobody communicates in groups of one member, and without experts (ep = 1) the families "ep"
    # and "edp" are not used: "dp" has all replicas.
    servers, rails = np.divmod(place_ranks(split), gpus_per_server)
    groups: list[Group] = []
    for family, (dimension, _) in _FAMILIES.items():
        if count_members(split, family) == 1 or (split.ep == 1 and family in ("ep", "edp")):
            continue

        # ``ranks[group, member]``: whole groups if they need no rail or one alone; else parts.
        ranks = _list_members(split, family)
        one_rail = (rails[ranks] == rails[ranks[:, :1]]).all()
        if one_rail or (servers[ranks] == servers[ranks[:, :1]]).all():
            parts = [(family, ranks)]
        else:
            parts = [*_split_members(family, ranks, servers, rails)]

        # The all-reduces of copies may overlap with the collectives of shards. The groups of a
        # table are alike: they ride a rail if the first two members of one are in two servers.
        stream = "copies" if family == "copies" and split.fsdp == "fsdp2" else ""
        for name, table in parts:
            on_rail = servers[table[0, 0]] != servers[table[0, 1]]
            for number, row in enumerate(table.tolist()):
                rail = int(rails[row[0]]) if on_rail else SCALE_UP
                groups.append(Group(f"{name}.{number}", dimension, tuple(row), rail, stream))
    return tuple(groups)


def _list_members(split: Parallelism, family: str) -> NDArray[np.int64]:
    """List the groups of a family by their least ranks; shape (groups, members).

    With ``tp = 2`` and ``dp = 2`` ranks 0 and 2 are one group of tensor parallelism, 1 and 3 the
    other; the groups of data parallelism are 0, 1 and 2, 3. Members stand in the order of their
    places in the group.
    """
    # By rank: `place` orders the members of a group, its digits are the coordinates in the degrees
    # of the family, ``_FAMILIES[family][1]``. Ranks with equal rows of `columns`, the coordinates
    # in the other degrees, are one group: in those of the family the column is 0.
    places = coordinates(split)
    place = np.zeros(len(places), np.int64)
    columns = list(places.T)
    for degree in reversed(_FAMILIES[family][1]):
        place = place * getattr(split, degree) + places[:, DEGREES.index(degree)]
        columns[DEGREES.index(degree)] = np.zeros_like(place)

    # Expert groups and shards split the ranks with the same weights further, by a column more: by
    # blocks of consecutive ones ("ep", "dp"), or by the place in such a block ("edp", "copies").
    # With dp = 4 and ep = 2, the groups of "ep" are 0, 1 and 2, 3, those of "edp" 0, 2 and 1, 3.
    replica = places[:, DEGREES.index("dp")]
    part = places[:, DEGREES.index("cp")]
    if family == "ep":
        columns += [replica // split.expert_replicas, part // split.expert_parts]
    elif family == "edp":
        columns += [replica % split.expert_replicas, part % split.expert_parts]
    elif split.shard is not None and family in ("dp", "copies"):
        place_of_weights = replica * split.cp + part
        if family == "dp":
            columns.append(place_of_weights // split.shard)
        else:
            columns.append(place_of_weights % split.shard)

    # All groups of a family are equally large, so ranks sorted by group, and then by place, make a
    # table with a row for each group.
    _, group = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    ranks = np.lexsort([place, group.reshape(-1)]).reshape(-1, count_members(split, family))
    sorted_ranks: NDArray[np.int64] = ranks[np.argsort(ranks.min(axis=1))]
    return sorted_ranks


def _split_members(
    family: str, ranks: NDArray[np.int64], servers: NDArray[np.int64], rails: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Split groups into parts inside servers and parts on rails.

    ``ranks[group, member]`` is a rank, ``servers[rank]`` and ``rails[rank]`` say where it is. The
    two results are a family and its table, with a part in each row. Raises `InputError` if servers
    have members on different rails.

    The members of a group form a table, whose rows are the parts inside servers, and whose columns
    are those on rails::

                    rail 0   rail 1   rail 2
        server 0    0        1        2
        server 1    3        4        5
    """
    # The members of each group are sorted by server and then by rail; `inside` is the number of
    # members in a server.
    order = np.lexsort([rails[ranks], servers[ranks]])
    ranks = np.take_along_axis(ranks, order, axis=1)
    inside = int((servers[ranks[0]] == servers[ranks[0, 0]]).sum())
    # They form such a table only if each server has members on the same rails.
    for number, row in enumerate(ranks):
        server_of_member = servers[row]
        rails_of_server = {
            server: rails[row][server_of_member == server].tolist()
            for server in np.unique(server_of_member).tolist()
        }
        first_rails = rails_of_server[server_of_member[0]]
        differs = any(own_rails != first_rails for own_rails in rails_of_server.values())
        if differs or len(first_rails) != inside:
            places = [
                f"server {server} on rails {', '.join(map(str, own_rails))}"
                for server, own_rails in rails_of_server.items()
            ]
            raise InputError(
                f"group {family}.{number} has members in {'; '.join(places[:3])}: the same rails"
                " in each server are needed; change placement, degrees or gpus_per_server",
                where="parallelism.placement",
            )

    # grid[group, server, rail]: rows are the parts inside servers, columns those on rails.
    grid = ranks.reshape(len(ranks), -1, inside)
    yield family + SERVER, grid.reshape(-1, inside)
    yield family + RAIL, grid.transpose(0, 2, 1).reshape(-1, grid.shape[1])

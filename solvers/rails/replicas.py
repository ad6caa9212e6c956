"""Replicas of a large job: those that do the same on other GPUs are planned as one.

A *replica* is a block of data-parallel ranks that no collective but those of data parallelism
leaves: of 128 ranks with experts on 64 there are two. In a plan that treats all alike, a circuit
leads to a GPU of the same replica, or *crosses* to one of the next, and of the last to the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.problems import RailJob
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.layout import coordinates
from optmatch.problems.rails.training.parallelism import DEGREES
from optmatch.problems.rails.training.step import ALL_TO_ALL
from optmatch.solvers.rails.paths import Ints

_FEW_NODES = 400_000
"""Steps of up to this number of operations, by rail, are searched with all replicas; larger ones
with the fewest replicas that are no larger. The search of a larger one times too few choices: on
2,048 GPUs of DeepSeek-V3 (526,528 by rail) the step is 44.3 s with two replicas, and 61.0 s with
one of all; on Mixtral-8x22B (599,808) it is 3.804 and 3.797 s."""


class Replicas(NamedTuple):
    """The ranks of a job as replicas that do the same."""

    n_all: int
    """How many there are: 1 if the job is not split."""
    number: Ints
    """``number[rank]``: its replica."""
    first: Ints
    """``first[rank]``: the rank at the same place in replica 0."""
    crosses: NDArray[np.bool_]
    """``crosses[group]``: whether a group on a rail has members in all replicas; the last entry is
    that of operations without a group."""


def find_replicas(job: RailJob) -> Replicas:
    """Split a large job into replicas that can be searched; the job keeps the answer.

    A small job, and one that cannot be split, is one replica.
    """
    return job.once("replicas", lambda: _find_fewest_replicas(job))


def keep_whole(job: RailJob) -> Replicas:
    """Return the ranks of a job as one replica."""
    step = job.step()
    return Replicas(
        n_all=1,
        number=np.zeros(step.n_ranks, np.int64),
        first=np.arange(step.n_ranks),
        crosses=np.zeros(len(step.groups) + 1, np.bool_),
    )


def _find_fewest_replicas(job: RailJob) -> Replicas:
    """Split a large job into the fewest replicas that are small enough, or as small as can be.

    Example: the data parallelism is 12, and 3 replicas are small enough. They are tried first,
    then 4, 6 and 12, and 2 at last.
    """
    if job.workload.recorded is not None:
        return keep_whole(job)
    step = job.step()
    n_rails = len({group.rail for group in step.groups if group.rail >= 0})
    most_nodes = _FEW_NODES * n_rails
    if step.n_operations <= most_nodes:
        return keep_whole(job)

    # Divisors of the data parallelism that are enough come first, ascending, and then those that
    # are not, descending. The groups cannot be split by all of them.
    n_data_parallel = job.parallelism.dp
    divisors = [count for count in range(2, n_data_parallel + 1) if n_data_parallel % count == 0]
    enough = [count for count in divisors if step.n_operations <= most_nodes * count]
    too_few = [count for count in divisors if step.n_operations > most_nodes * count]
    for count in [*enough, *too_few[::-1]]:
        replicas = _split_ranks(job, count)
        if replicas is not None:
            return replicas
    return keep_whole(job)


def _split_ranks(job: RailJob, count: int) -> Replicas | None:
    """Split the ranks by blocks of data parallelism; None if the groups do not allow it.

    With 128 ranks of data parallelism and two replicas, ranks 0 to 63 are one and 64 to 127 the
    other, and rank 70 is at the place of rank 6.
    """
    # ``places[rank]`` has the coordinates of a rank, one for each degree of parallelism. That of
    # data parallelism is a replica and a place in it: with 128 in two replicas, 70 is 1 and 6.
    step = job.step()
    places = coordinates(job.parallelism)
    column = DEGREES.index("dp")
    replica, place = np.divmod(places[:, column], job.parallelism.dp // count)

    # Ranks that agree in all but their replica are sorted by it: ``table[place, replica]`` is a
    # rank. ``first[rank]`` is the rank at its place in replica 0, ``next_one[rank]`` in the next
    # one, which after the last one is replica 0.
    places[:, column] = place
    key = np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)
    table = np.lexsort([replica, key]).reshape(-1, count)
    first = np.empty(step.n_ranks, np.int64)
    next_one = np.empty(step.n_ranks, np.int64)
    first[table] = table[:, :1]
    next_one[table] = np.roll(table, -1, axis=1)

    # A rail that has a rank has to have those at its place in all replicas.
    for on_rail in ranks_of_rails(step).values():
        if not np.array_equal(np.sort(next_one[on_rail]), on_rail):
            return None

    # A group on a rail has to lie in one replica or, with each member, have those of all replicas
    # at its place: moved on by a replica it is the same group. All-to-alls, messages and exchanges
    # in pairs lead to certain members, and may not cross. The last entry of `crosses` is that of
    # no group, which is -1.
    crosses = np.zeros(len(step.groups) + 1, np.bool_)
    for index, group in enumerate(step.groups):
        ranks = np.array(group.ranks)
        crosses[index] = group.rail >= 0 and (replica[ranks] != replica[ranks[0]]).any()
        is_ring = job.collectives.get(group.dimension, "ring") == "ring"
        is_moved_on = np.array_equal(np.sort(next_one[ranks]), np.sort(ranks))
        if crosses[index] and not (is_ring and is_moved_on):
            return None
    is_bound = (step.kind == ALL_TO_ALL) | (step.peer >= 0)
    if crosses[step.group[is_bound]].any():
        return None
    return Replicas(
        n_all=count,
        number=replica,
        first=first,
        crosses=crosses,
    )

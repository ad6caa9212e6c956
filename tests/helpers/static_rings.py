"""One ring on each rail for the whole step, over which GPUs forward everything: a naive rival.

Written apart from the methods: no rank is folded, only a few orders are searched.
"""

import random
from collections.abc import Callable, Iterator
from itertools import permutations

import numpy as np

import optmatch as om
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.step import ALL_TO_ALL, SEND
from optmatch.verify.rails.replay import measure_work
from tests.helpers.list_scheduling import Way, time_step

Orders = dict[int, list[int]]
"""By rail its ranks, as they stand on the ring."""


def ring_s(job: om.RailJob, seed: int) -> float:
    """Return the least step time over a few orders of the rings."""
    return min(time_rings(job, orders) for orders in list_orders(job, seed))


def list_orders(job: om.RailJob, seed: int) -> Iterator[Orders]:
    """List orders: by rank, by each family of groups, also there and back, and at random."""
    rails = {rail: ranks.tolist() for rail, ranks in ranks_of_rails(job.step()).items()}
    yield rails
    for name in sorted({g.name.partition(".")[0] for g in job.step().groups if g.rail >= 0}):
        groups = [list(g.ranks) for g in job.step().groups if g.name.partition(".")[0] == name]
        for snake in (False, True):
            row = [
                r for k, ranks in enumerate(groups) for r in ranks[:: -1 if snake * k % 2 else 1]
            ]
            place = {rank: k for k, rank in enumerate(row)}
            yield {
                rail: sorted(own, key=lambda r: place.get(r, -1)) for rail, own in rails.items()
            }
    rng = random.Random(seed)
    for _ in range(2):
        yield {rail: rng.sample(own, len(own)) for rail, own in rails.items()}


def list_all_orders(job: om.RailJob) -> Iterator[Orders]:
    """List all rings of a job whose rails are alike."""
    rails = {rail: ranks.tolist() for rail, ranks in ranks_of_rails(job.step()).items()}
    n_gpus = max(map(len, rails.values()))
    for order in permutations(range(1, n_gpus)):
        yield {rail: [ranks[0], *(ranks[k] for k in order)] for rail, ranks in rails.items()}


def time_rings(job: om.RailJob, orders: Orders) -> float:
    """Let everything go in the order of its release, over all ports of every GPU on its way."""
    return time_step(job, ways_along(job, orders))


def ways_along(job: om.RailJob, orders: Orders) -> Callable[[int], Way]:
    """Return a function from an operation to its way; a port is named by the rank that sends."""
    step = job.step()
    work = measure_work(job, np.arange(step.n_operations))

    def find_way(k: int) -> Way:
        # The hops from each sender to its receiver, along the ring.
        ring = orders[int(step.rail[k])]
        members = sorted(step.groups[step.group[k]].ranks, key=ring.index)
        ends = list(zip(members, [*members[1:], members[0]], strict=True))
        if step.kind[k] >= SEND:
            one, two = int(step.rank[k]), int(step.peer[k])
            ends = [(one, two) if step.kind[k] == SEND else (two, one)]
        hops = [(ring.index(to) - ring.index(source)) % len(ring) for source, to in ends]
        passed = [
            ring[(ring.index(source) + hop) % len(ring)]
            for (source, _), count in zip(ends, hops, strict=True)
            for hop in range(count)
        ]

        # Of an all-to-all each part goes half around in the mean.
        n_passes = 1.0
        if step.kind[k] == ALL_TO_ALL and len(members) > 2:
            n_passes = len(members) / 2
        sent_s = float(work.sent_bytes[k]) * n_passes / job.network.rail_bytes_per_s
        return Way(sent_s + float(work.latency_s[k]) * max(hops), passed)

    return find_way

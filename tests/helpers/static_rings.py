"""One ring on each rail for the whole step, over which GPUs forward everything: a naive rival.

Written apart from the methods: no rank is folded, only a few orders are searched.
"""

import heapq
import random
from collections.abc import Iterator

import numpy as np

import optmatch as om
from optmatch.problems.rails.execution.plan import ranks_of_rails
from optmatch.problems.rails.training.step import ALL_TO_ALL, SEND
from optmatch.verify.rails.replay import list_before, measure_work

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


def time_rings(job: om.RailJob, orders: Orders) -> float:
    """Let everything go in the order of its release, over all ports of every GPU on its way."""
    step, every = job.step(), np.arange(job.step().n_operations)
    work = measure_work(job, every)
    event: dict[int, int] = {}
    of = [
        event.setdefault(int(m) if m >= 0 else -1 - k, len(event))
        for k, m in enumerate(step.match)
    ]
    parts: list[list[int]] = [[] for _ in event]
    for k, number in enumerate(of):
        parts[number].append(k)
    before = (column.tolist() for column in list_before(step, every))
    pairs = {(of[a], of[b]) for a, b in zip(*before, strict=True)}
    after: list[list[int]] = [[] for _ in event]
    waits, ready = [0] * len(event), [0.0] * len(event)
    for a, b in pairs:
        after[a].append(b)
        waits[b] += 1
    free = dict.fromkeys(range(step.n_ranks), 0.0)
    queue = [(0.0, k) for k in range(len(event)) if not waits[k]]
    last = 0.0
    rate = job.network.rail_bytes_per_s
    while queue:
        start, number = heapq.heappop(queue)
        k = parts[number][0]
        lasts, used = float(work.full_s[k]), []
        if step.rail[k] >= 0:
            ring, members = orders[int(step.rail[k])], step.groups[step.group[k]].ranks
            if step.kind[k] >= SEND:
                one, two = int(step.rank[k]), int(step.peer[k])
                ends = [(one, two) if step.kind[k] == SEND else (two, one)]
            else:
                row = sorted(members, key=ring.index)
                ends = list(zip(row, [*row[1:], row[0]], strict=True))
            hops = [(ring.index(b) - ring.index(a)) % len(ring) for a, b in ends]
            for (a, _), count in zip(ends, hops, strict=True):
                used += [ring[(ring.index(a) + j) % len(ring)] for j in range(count)]
            many = len(members) / 2 if step.kind[k] == ALL_TO_ALL and len(members) > 2 else 1.0
            lasts = float(work.sent_bytes[k]) * many / rate + float(work.latency_s[k]) * max(hops)
            start = max([start, *(free[rank] for rank in used)])
        for rank in used:
            free[rank] = start + lasts
        last = max(last, start + lasts)
        for later in after[number]:
            waits[later] -= 1
            ready[later] = max(ready[later], start + lasts)
            if not waits[later]:
                heapq.heappush(queue, (ready[later], later))
    return last

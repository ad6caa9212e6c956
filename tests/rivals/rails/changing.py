"""Rivals whose circuits change: each as soon as its ports are free, in the best of some orders.

Every communication goes straight, over circuits from each member to the next one. A step begins
with the circuits that it ends with.
"""

import heapq
import random
from collections.abc import Iterator, Sequence
from math import ceil, inf
from typing import NamedTuple

import numpy as np

import optmatch as om
from optmatch.problems.rails.training.step import ALL_TO_ALL, COMPUTE, SEND
from optmatch.verify.rails.replay import measure_work
from tests.helpers.list_scheduling import list_events

ORDERS = 6
"""So many orders are tried with each split of ports."""
Port = tuple[int, int]
"""A rank and the number of one of its ports."""


class Task(NamedTuple):
    """A computation, or one communication with all of its parts."""

    lasts_s: float
    circuits: Sequence[tuple[Port, Port]]
    """Sending and receiving port of each circuit that it needs."""
    left: Sequence[tuple[Port, Port]]
    """The circuits that it leaves behind: others after an all-to-all that changes on its way."""


class Tasks(NamedTuple):
    """All that a step does, and who waits for whom."""

    tasks: Sequence[Task]
    after: Sequence[Sequence[int]]
    n_before: Sequence[int]


def changing_s(job: om.RailJob) -> float:
    """Return the least step time over splits of ports and orders; infinite if there is none."""
    if job.fabric is not None or job.collectives or job.network.switching == "all-stop":
        return inf
    rng = random.Random(0)
    best_s = inf
    for split in list_splits(job):
        shop = list_tasks(job, split)
        for number in range(ORDERS):
            most_s = job.network.delay_s * (0, 1, 3, 1, 3, 9)[number]
            hastes_s = [rng.uniform(0, most_s) for _ in shop.tasks]
            order, _, left = time_step(job, shop, hastes_s, {})
            _, step_s, again = time_step(job, shop, [-float(k) for k in order], left, fixed=True)
            if again == left:
                best_s = min(best_s, step_s)
    return best_s


def list_splits(job: om.RailJob) -> Iterator[tuple[Sequence[int], Sequence[int], Sequence[int]]]:
    """List the ports of collectives, of messages onward and of messages back."""
    every = range(job.network.ports_per_gpu)
    yield every, every, every
    if len(every) > 1:
        yield every, every[::2], every[1::2]
        half = len(every) // 2
        yield every[:half], every[half:], every[half:]
        if len(every) > 2:
            yield every[:-2], every[-2:-1], every[-1:]
            yield every[:1], every[1::2], every[2::2]


def list_tasks(
    job: om.RailJob, split: tuple[Sequence[int], Sequence[int], Sequence[int]]
) -> Tasks:
    """List the tasks of a step with the circuits of each."""
    step = job.step()
    work = measure_work(job, np.arange(step.n_operations))
    events = list_events(step)
    tasks = []
    for k, *_ in events.parts:
        task = Task(float(work.full_s[k]), (), ())
        if step.rail[k] >= 0 and step.kind[k] != COMPUTE:
            sent = float(work.sent_bytes[k]), float(work.latency_s[k])
            task = _find_circuits(job, k, split, *sent)
        tasks.append(task)
    return Tasks(tasks, events.after, events.n_before)


def _find_circuits(
    job: om.RailJob,
    k: int,
    split: tuple[Sequence[int], Sequence[int], Sequence[int]],
    sent: float,
    latency_s: float,
) -> Task:
    """Return how a communication goes, given one of its operations."""
    step, rate = job.step(), job.network.port_bytes_per_s
    ranks = step.groups[step.group[k]].ranks
    n, ports = len(ranks), split[0]
    if step.kind[k] >= SEND:
        ends = int(step.rank[k]), int(step.peer[k])
        source, target = ends if step.kind[k] == SEND else ends[::-1]
        is_onward = (ranks.index(target) - ranks.index(source)) % n <= n // 2
        ports = split[1] if is_onward else split[2]
        circuits = [((source, p), (target, p)) for p in ports]
        return Task(sent / (len(ports) * rate) + latency_s, circuits, circuits)

    def shift(stride: int, p: int) -> list[tuple[Port, Port]]:
        return [((rank, p), (ranks[(i + stride) % n], p)) for i, rank in enumerate(ranks)]

    around = [circuit for p in ports for circuit in shift(1, p)]
    if step.kind[k] != ALL_TO_ALL or n <= 2:
        return Task(sent / (len(ports) * rate) + latency_s, around, around)
    around_s = sent * n / 2 / (len(ports) * rate) + latency_s
    n_rounds = ceil((n - 1) / len(ports))
    part_s = sent / (n - 1) / rate + latency_s / n_rounds
    shifts_s = n_rounds * part_s + (n_rounds - 1) * job.network.delay_s
    if around_s <= shifts_s:
        return Task(around_s, around, around)
    first = [c for i, p in enumerate(ports) for c in shift(1 + i % (n - 1), p)]
    last = [c for i, p in enumerate(ports) for c in shift(n - 1 - i % (n - 1), p)]
    return Task(shifts_s, first, last)


def time_step(
    job: om.RailJob,
    shop: Tasks,
    hastes_s: Sequence[float],
    facing: dict[Port, Port],
    *,
    fixed: bool = False,
) -> tuple[list[int], float, dict[Port, Port]]:
    """Start what can start first, less its haste; return places, step time, and circuits left.

    With `fixed` the hastes are places in an order that is kept, as negative numbers.
    """
    delay_s = job.network.delay_s
    facing = dict(facing)
    lit = {receiver: sender for sender, receiver in facing.items()}
    free_s: dict[tuple[str, Port], float] = {}
    ready_s, waits = [0.0] * len(shop.tasks), [*shop.n_before]
    place, step_s, n_done = [0] * len(shop.tasks), 0.0, 0
    queue = [(-hastes_s[k], k) for k in range(len(waits)) if not waits[k]]
    heapq.heapify(queue)
    while queue:
        key, k = heapq.heappop(queue)
        task, start_s = shop.tasks[k], ready_s[k]
        for one, two in task.circuits:
            up_s = max(free_s.get(("s", one), 0.0), free_s.get(("r", two), 0.0))
            is_up = facing.get(one) == two
            if not fixed:  # a port that nobody has used yet may begin with any circuit
                is_up = facing.get(one, two) == two and lit.get(two, one) == one
            start_s = max(start_s, up_s + (0.0 if is_up else delay_s))
        if not fixed and start_s - hastes_s[k] > key:
            heapq.heappush(queue, (start_s - hastes_s[k], k))
            continue
        place[k], n_done = n_done, n_done + 1
        end_s = start_s + task.lasts_s
        for one, two in (*task.circuits, *task.left):
            lit.pop(facing.pop(one, two), None)
            facing.pop(lit.pop(two, one), None)
            facing[one], lit[two] = two, one
            free_s["s", one] = free_s["r", two] = end_s
        step_s = max(step_s, end_s)
        for later in shop.after[k]:
            ready_s[later] = max(ready_s[later], end_s)
            waits[later] -= 1
            if not waits[later]:
                key = -hastes_s[later] if fixed else ready_s[later] - hastes_s[later]
                heapq.heappush(queue, (key, later))
    return place, step_s, facing

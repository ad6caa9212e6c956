"""List scheduling of a training step: what is released first goes first, over all its ports."""

import heapq
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

import optmatch as om
from optmatch.verify.rails.replay import list_before, measure_work


class Way(NamedTuple):
    """How a communication goes over the circuits of a layout."""

    lasts_s: float
    ports: Sequence[Hashable]
    """What it holds meanwhile."""


def time_step(job: om.RailJob, find_way: Callable[[int], Way | None]) -> float:
    """Return the step time; infinite if a communication on a rail has no way.

    Parameters
    ----------
    job
        The job.
    find_way
        Returns the way of an operation on a rail, the first of its communication.
    """
    step = job.step()
    operations = np.arange(step.n_operations)
    full_s = measure_work(job, operations).full_s

    # All parts of a communication are one event.
    event_of_key: dict[int, int] = {}
    event_of = [
        event_of_key.setdefault(int(match) if match >= 0 else -1 - k, len(event_of_key))
        for k, match in enumerate(step.match)
    ]
    first_part: dict[int, int] = {}
    for k, event in enumerate(event_of):
        first_part.setdefault(event, k)
    columns = (column.tolist() for column in list_before(step, operations))
    pairs = {(event_of[one], event_of[two]) for one, two in zip(*columns, strict=True)}
    after: list[list[int]] = [[] for _ in event_of_key]
    n_waiting_for = [0] * len(event_of_key)
    for one, two in pairs:
        after[one].append(two)
        n_waiting_for[two] += 1

    ready_s = [0.0] * len(event_of_key)
    free_s: dict[Hashable, float] = {}
    queue = [(0.0, event) for event, count in enumerate(n_waiting_for) if not count]
    step_s = 0.0
    while queue:
        start_s, event = heapq.heappop(queue)
        k = first_part[event]
        way: Way | None = Way(float(full_s[k]), ())
        if step.rail[k] >= 0:
            way = find_way(k)
        if way is None:
            return float("inf")
        start_s = max([start_s, *(free_s.get(port, 0.0) for port in way.ports)])
        end_s = start_s + way.lasts_s
        for port in way.ports:
            free_s[port] = end_s
        step_s = max(step_s, end_s)
        for later in after[event]:
            ready_s[later] = max(ready_s[later], end_s)
            n_waiting_for[later] -= 1
            if not n_waiting_for[later]:
                heapq.heappush(queue, (ready_s[later], later))
    return step_s

"""List scheduling of a training step: what is released first goes first, over all its ports."""

import heapq
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

import optmatch as om
from optmatch.problems.rails.training.step import Step
from optmatch.verify.rails.replay import list_before, measure_work


class Events(NamedTuple):
    """What a step does: computations, and communications with all of their parts."""

    parts: list[list[int]]
    """The operations of each event."""
    after: list[list[int]]
    """The events that start when this one has ended, or later."""
    n_before: list[int]
    """How many events each one waits for."""


def list_events(step: Step) -> Events:
    """List what happens in a step; all parts of a communication are one event."""
    event_of_key: dict[int, int] = {}
    event_of = [
        event_of_key.setdefault(int(match) if match >= 0 else -1 - k, len(event_of_key))
        for k, match in enumerate(step.match)
    ]
    parts: list[list[int]] = [[] for _ in event_of_key]
    for k, event in enumerate(event_of):
        parts[event].append(k)
    columns = (column.tolist() for column in list_before(step, np.arange(step.n_operations)))
    after: list[list[int]] = [[] for _ in parts]
    n_before = [0] * len(parts)
    for one, two in {(event_of[one], event_of[two]) for one, two in zip(*columns, strict=True)}:
        after[one].append(two)
        n_before[two] += 1
    return Events(parts, after, n_before)


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
    full_s = measure_work(job, np.arange(step.n_operations)).full_s
    parts, after, n_waiting_for = list_events(step)
    ready_s = [0.0] * len(parts)
    free_s: dict[Hashable, float] = {}
    queue = [(0.0, event) for event, count in enumerate(n_waiting_for) if not count]
    step_s = 0.0
    while queue:
        start_s, event = heapq.heappop(queue)
        k = parts[event][0]
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

"""Lower bounds of mean completion times: no policy can beat them on the same devices."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.simulation.sharing.pool import Pool

_MAX_GROUPS = 6  # which have 203 partitions


class Bound(NamedTuple):
    """A bound for all policies."""

    mean_s: float
    """A lower bound of the mean completion time."""
    alone_s: NDArray[np.float64]
    """``alone_s[job]``: of its completion time."""


def bound_completions(pool: Pool, until_s: float, *, enough: float = 0.8) -> Bound:
    """Return a lower bound of the mean completion time, for any policy and any over-selection.

    The better of two: each job alone (`alone_s`), and jobs that share results (`shared_s`), the
    latter for the best partition of the groups of jobs. After `until_s` some policy has finished,
    so what comes later needs no look; if none has, the bound may be infinite.

    The mean over all jobs is that over sets of jobs, each bounded on its own. So every partition
    of the groups (jobs that the same classes may serve) gives a bound, and the largest counts. Of
    many groups only two are tried: all together, and each by itself.
    """
    devices = _Devices(pool, until_s)
    needed = np.ceil((pool.demand * enough).round(9)).astype(np.int64)
    alone = np.array([alone_s(devices, job, int(needed[job])) for job in range(len(needed))])
    kinds, group_of = np.unique(pool.eligible, axis=1, return_inverse=True)
    groups = range(kinds.shape[1])
    group_of = group_of.reshape(-1)
    shared_of_part: dict[tuple[int, ...], float] = {}
    best = float(alone.sum())
    two_partitions: Iterable[list[tuple[int, ...]]] = [
        [tuple(groups)],
        [(group,) for group in groups],
    ]
    for parts in _partitions([*groups]) if len(groups) <= _MAX_GROUPS else two_partitions:
        for part in parts:
            if part not in shared_of_part:
                jobs = np.flatnonzero(np.isin(group_of, part))
                shared_of_part[part] = shared_s(devices, jobs, needed)
        best = max(best, sum(shared_of_part[part] for part in parts))
    return Bound(best / len(needed), alone)


class _Devices:
    """All devices that come up to some time and answer before they leave."""

    def __init__(self, pool: Pool, until_s: float) -> None:
        turns = int(until_s // pool.period_s) + 1 if pool.period_s else 1
        shift_s = np.repeat(np.arange(turns) * pool.period_s, len(pool.arrival_s))
        good = np.tile(pool.departure_s - pool.arrival_s >= pool.response_s, turns)
        self.pool = pool
        self.come_s = (np.tile(pool.arrival_s, turns) + shift_s)[good]
        self.leave_s = (np.tile(pool.departure_s, turns) + shift_s)[good]
        self.response_s = np.tile(pool.response_s, turns)[good]
        self.class_of = np.tile(pool.class_of, turns)[good]
        self.longest_s = float((pool.departure_s - pool.arrival_s).max(initial=0.0))


def alone_s(devices: _Devices, job: int, needed: int) -> float:
    """Return the least completion time of a job that has all devices for itself.

    A round that begins at t ends at the earliest when as many devices as it needs have answered
    that come later than t, or were there and stay long enough. A device may serve each round anew,
    so beginning earlier never harms, and rounds follow one after the other.
    """
    pool = devices.pool
    is_eligible = pool.eligible[devices.class_of, job].astype(np.bool_)
    come_s = devices.come_s[is_eligible]
    leave_s = devices.leave_s[is_eligible]
    response_s = devices.response_s[is_eligible]
    now = float(pool.asked_s[job])
    for _ in range(int(pool.rounds[job])):
        first = int(come_s.searchsorted(now - devices.longest_s))
        last = int(come_s.searchsorted(now, side="right"))
        present = np.flatnonzero(leave_s[first:last] - now >= response_s[first:last]) + first
        ends_s = now + response_s[present]
        later = come_s[last : last + needed] + response_s[last : last + needed]
        if len(ends_s) + len(later) < needed:
            return np.inf  # not by then
        end = float(np.partition(np.concatenate((ends_s, later)), needed - 1)[needed - 1])

        # Devices that come after the first `needed` ones may answer sooner.
        n_before_end = int(come_s.searchsorted(end))
        if n_before_end > last + needed:
            later = come_s[last:n_before_end] + response_s[last:n_before_end]
            end = float(np.partition(np.concatenate((ends_s, later)), needed - 1)[needed - 1])
        now = end
    return now - float(pool.asked_s[job])


def shared_s(devices: _Devices, jobs: NDArray[np.intp], needed: NDArray[np.int64]) -> float:
    """Return the least sum of the completion times of some jobs that share all results.

    A device that some of them may use gives one result, at the earliest when it has come and
    answered; here any of these jobs may have it, at any time from then on, whatever its round. A
    job is done with its last result. This is one machine that serves one job at a time; to serve
    the job with the least left leaves the fewest jobs undone at any time, so it is optimal.
    """
    pool = devices.pool
    is_eligible = pool.eligible[:, jobs].max(axis=1)[devices.class_of] > 0
    results_s = np.sort((devices.come_s + devices.response_s)[is_eligible])
    order = jobs[np.argsort(pool.asked_s[jobs], kind="stable")]
    work = (needed * pool.rounds).tolist()
    asked_s = [*pool.asked_s[order].tolist(), np.inf]
    results_left: list[int] = []  # of each job that is not done; a heap
    n_used = 0
    total = 0.0
    for place, job in enumerate(order.tolist()):
        heapq.heappush(results_left, work[job])
        now = asked_s[place]
        until_s = asked_s[place + 1]
        total -= now
        n_arrived = int(results_s.searchsorted(until_s, side="right"))
        while results_left and n_used < n_arrived:
            n_wanted = heapq.heappop(results_left)
            n_taken = min(n_wanted, n_arrived - n_used)
            n_used += n_taken
            if n_taken < n_wanted:
                heapq.heappush(results_left, n_wanted - n_taken)
            else:
                total += max(now, float(results_s[n_used - 1]))
    return np.inf if results_left else total


def _partitions(items: list[int]) -> Iterator[list[tuple[int, ...]]]:
    """Yield the ways to split a few items into sets."""
    if not items:
        yield []
        return
    for parts in _partitions(items[1:]):
        yield [(items[0],), *parts]
        for k, part in enumerate(parts):
            yield [*parts[:k], tuple(sorted((items[0], *part))), *parts[k + 1 :]]

"""Lower bounds of mean completion times: no policy can beat them on the same devices."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optmatch.simulation.sharing.pool import Pool

_MOST = 6  # groups, of which there are 203 partitions


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
    known: dict[tuple[int, ...], float] = {}
    best = float(alone.sum())
    few: Iterable[list[tuple[int, ...]]] = [[tuple(groups)], [(group,) for group in groups]]
    for parts in _partitions([*groups]) if len(groups) <= _MOST else few:
        for part in parts:
            if part not in known:
                known[part] = shared_s(devices, np.flatnonzero(np.isin(group_of, part)), needed)
        best = max(best, sum(known[part] for part in parts))
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
    mine = pool.eligible[devices.class_of, job].astype(np.bool_)
    come_s = devices.come_s[mine]
    leave_s = devices.leave_s[mine]
    response_s = devices.response_s[mine]
    now = float(pool.asked_s[job])
    for _ in range(int(pool.rounds[job])):
        first = int(come_s.searchsorted(now - devices.longest_s))
        last = int(come_s.searchsorted(now, side="right"))
        there = np.flatnonzero(leave_s[first:last] - now >= response_s[first:last]) + first
        ends_s = now + response_s[there]
        later = come_s[last : last + needed] + response_s[last : last + needed]
        if len(ends_s) + len(later) < needed:
            return np.inf  # not by then
        end = float(np.partition(np.concatenate((ends_s, later)), needed - 1)[needed - 1])
        more = int(come_s.searchsorted(end))  # late comers may be quicker
        if more > last + needed:
            later = come_s[last:more] + response_s[last:more]
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
    mine = pool.eligible[:, jobs].max(axis=1)[devices.class_of] > 0
    results_s = np.sort((devices.come_s + devices.response_s)[mine])
    order = jobs[np.argsort(pool.asked_s[jobs], kind="stable")]
    work = (needed * pool.rounds).tolist()
    asked_s = [*pool.asked_s[order].tolist(), np.inf]
    left: list[int] = []
    used = 0
    total = 0.0
    for place, job in enumerate(order.tolist()):
        heapq.heappush(left, work[job])
        now = asked_s[place]
        until_s = asked_s[place + 1]
        total -= now
        by_then = int(results_s.searchsorted(until_s, side="right"))
        while left and used < by_then:
            wants = heapq.heappop(left)
            taken = min(wants, by_then - used)
            used += taken
            if taken < wants:
                heapq.heappush(left, wants - taken)
            else:
                total += max(now, float(results_s[used - 1]))
    return np.inf if left else total


def _partitions(items: list[int]) -> Iterator[list[tuple[int, ...]]]:
    """Yield the ways to split a few items into sets."""
    if not items:
        yield []
        return
    for parts in _partitions(items[1:]):
        yield [(items[0],), *parts]
        for k, part in enumerate(parts):
            yield [*parts[:k], tuple(sorted((items[0], *part))), *parts[k + 1 :]]

"""A pool of devices by their classes, and the jobs that ask it: what a simulation runs on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import Axes, InputError, Range, Value, check_fields, number
from optmatch.problems.sharing.classes import classify
from optmatch.problems.sharing.resources import Jobs, Resources
from optmatch.simulation.sharing.workloads import TIER_LIMITS_S, Workload

Times = Annotated[NDArray[np.float64], Range(0)]
Durations = Annotated[NDArray[np.float64], Range(0, above=True)]
Counts = Annotated[NDArray[np.int64], Range(1)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool(Value):
    """Devices in the order of their check-ins, and jobs.

    A class holds devices that may serve the same jobs and have the same tier of speed.

    Parameters
    ----------
    arrival_s, departure_s
        When each device checks in and leaves.
    response_s
        ``response_s[device]``: how long it takes for a result.
    class_of
        ``class_of[device]``.
    eligible
        ``eligible[class, job]``: 1 if devices of the class may serve the job.
    tier
        ``tier[class]``: 0 is the fastest.
    asked_s
        ``asked_s[job]``: when its first round asks.
    demand, rounds, deadline_s
        Of each job: results wanted in a round, rounds, and how long a round may take.
    period_s
        After this the trace of devices starts anew; 0: it does not.
    """

    arrival_s: Times
    departure_s: Times
    response_s: Durations
    class_of: Annotated[NDArray[np.int32], Range(0)]
    eligible: Annotated[NDArray[np.int8], Axes(2), Range(0, 1)]
    tier: Annotated[NDArray[np.int32], Range(0)]
    asked_s: Times
    demand: Counts
    rounds: Counts
    deadline_s: Durations
    period_s: Annotated[float, Range(0)] = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        classes, jobs = self.eligible.shape
        lengths = {
            **dict.fromkeys(("departure_s", "response_s", "class_of"), len(self.arrival_s)),
            **dict.fromkeys(("asked_s", "demand", "rounds", "deadline_s"), jobs),
            "tier": classes,
        }
        for name, length in lengths.items():
            if len(getattr(self, name)) != length:
                raise InputError(f"{name}: {length} entries are expected", where=name)
        if (np.diff(self.arrival_s) < 0).any() or (self.departure_s <= self.arrival_s).any():
            told = "arrival_s: in order, and before the departures, are expected"
            raise InputError(told, where="arrival_s")
        if self.period_s and (self.arrival_s >= self.period_s).any():
            raise InputError("arrival_s: later than the period", where="arrival_s")
        if (self.class_of >= classes).any():
            raise InputError(f"class_of: there are {classes} classes", where="class_of")
        served = self.eligible[np.unique(self.class_of)].any(axis=0)
        for job in np.flatnonzero(~served)[:1].tolist():
            raise InputError(f"job {job}: no device may serve it", where=f"demand[{job}]")

    @property
    def rates(self) -> NDArray[np.float64]:
        """``rates[class]``: how many devices check in, each second on average."""
        span_s = self.period_s or max(float(self.arrival_s.max(initial=0)), 1e-9)
        found: NDArray[np.float64] = np.bincount(self.class_of, minlength=len(self.tier)) / span_s
        return found


def make_pool(
    devices: Resources,
    jobs: Jobs,
    response_s: ArrayLike,
    deadline_s: ArrayLike,
    *,
    period_s: float = 0.0,
) -> Pool:
    """Sort devices by their check-ins, and into classes.

    Plane caps and the like are not looked at. `response_s` is of each device and `deadline_s` of
    each job, or one number for all. The response times `TIER_LIMITS_S` cut the devices into tiers.
    After `period_s` the trace starts anew, unless it is 0.
    """
    here = replace(devices, departure_s=None)  # who leaves in time is seen in the simulation
    found = classify(here, jobs)
    response = np.broadcast_to(np.asarray(response_s, np.float64), devices.n_resources)
    tiers = np.searchsorted(TIER_LIMITS_S, response)
    cells, class_of = np.unique(np.stack((found.class_of, tiers)), axis=1, return_inverse=True)
    order = np.argsort(devices.arrivals_s, kind="stable")
    departure_s = devices.departures_s
    if not np.isfinite(departure_s).all():
        raise InputError("departure_s: each device leaves", where="departure_s")
    return Pool(
        arrival_s=devices.arrivals_s[order],
        departure_s=departure_s[order],
        response_s=response[order],
        class_of=class_of.reshape(-1)[order].astype(np.int32),
        eligible=found.jobs_of[cells[0]].astype(np.int8),
        tier=cells[1].astype(np.int32),
        asked_s=jobs.arrivals_s,
        demand=jobs.demand,
        rounds=jobs.requests,
        deadline_s=np.broadcast_to(np.asarray(deadline_s, np.float64), jobs.n_jobs),
        period_s=number("period_s", period_s),
    )


def pool_of(workload: Workload) -> Pool:
    """Make the pool of a drawn workload."""
    (devices, response_s, period_s), jobs, deadline_s = workload
    return make_pool(devices, jobs, response_s, deadline_s, period_s=period_s)

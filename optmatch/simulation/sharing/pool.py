"""A pool of devices that come and go, its workloads, and jobs that ask for devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optmatch.model import Axes, InputError, Range, Value, check_fields, integer, number
from optmatch.problems.sharing.classes import classify
from optmatch.problems.sharing.resources import Jobs, Resources

NAMES = ("cpu", "ram", "fp16", "android")
"""The attributes of a device."""

# Distributions of a published trace of 952 phones; quantiles at `_LEVELS`, or counts of values.
_LEVELS = (0, 0.05, 0.1, 0.25, 0.44, 0.5, 0.75, 0.9, 0.95, 1)
_QUANTILES = {
    "cpu": (0.06, 1.7, 2, 3.1, 5, 6.1, 10.3, 14.6, 16.6, 24.8),
    "fp16": (100, 400, 500, 700, 1000, 1000, 1900, 2100, 2500, 2800),
}
_COUNTS = {
    "ram": (
        (0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16),
        (1, 13, 7, 69, 82, 204, 181, 268, 110, 17),
    ),
    "android": (
        (5, 5.1, 6, 7, 7.1, 8, 8.1, 9, 10, 11, 12, 13, 14, 15),
        (9, 15, 30, 18, 10, 17, 12, 54, 105, 234, 254, 191, 2, 1),
    ),
}
_RANK_CORRELATIONS = (  # of cpu, ram, fp16, android, and the time of a benchmark
    (1, 0.88, 0.78, 0.73, -0.89),
    (0.88, 1, 0.72, 0.71, -0.79),
    (0.78, 0.72, 1, 0.5, -0.6),
    (0.73, 0.71, 0.5, 1, -0.69),
    (-0.89, -0.79, -0.6, -0.69, 1),
)
_RESPONSE_LEVELS = (0, 0.25, 0.5, 0.75, 0.95, 1)
_RESPONSE_S = (13.0, 28.95, 59.99, 85.32, 137.14, 200.0)
TIER_LIMITS_S = _RESPONSE_S[1:4]
"""The bounds between the four tiers of speed."""

PERIOD_S = 432_000.0
"""The length of the published trace."""
CHECK_INS = 7_000_000
"""How many devices check in during the published trace."""
_LEAST_STAY_S = 80.0
_MEAN_FURTHER_STAY_S = 600.0

GROUPS = (
    (1.0, 0.0, 10.0, 6.0),
    (7.0, 0.0, 10.0, 6.0),
    (1.0, 0.0, 1000.0, 6.0),
    (7.0, 0.0, 1000.0, 6.0),
)
"""Least attributes of general, compute-rich, memory-rich and high-performance jobs."""

_DEMANDS = (
    *(1500, 500, 750, 100, 100, 100, 100, 200, 200, 200, 800, 200, 400, 32, 64, 128, 20, 50, 200),
    *(500,) * 14,
)
_ROUNDS = (
    *(856, 2568, 1712, 1000, 2000, 3000, 4000, 1000, 2000, 3000, 1000, 1000, 1000),
    *(1463, 1463, 1463, 2000, 2000, 2000, 2000, 930, 980, 1280, 1620, 530, 1900, 1750),
    *(1800, 1360, 1600, 1290, 1980, 640),
)
MIXES: Mapping[str, tuple[int, ...]] = {
    "even": tuple(range(33)),
    "small": (*range(3, 10), *range(11, 19), 20, 21, 24, 32),
    "large": (0, 1, 2, 10, 19, 22, 23, *range(25, 32)),
    "low": (3, 4, 7, 11, *range(13, 18)),
    "high": (0, 1, 2, 10, 12, *range(19, 33)),
}
"""The templates of each mix."""

_FIRST_ARRIVAL_S = 3600.0
"""When the first job asks, before the division by `scale`."""
_MEAN_BETWEEN_S = 1800.0
"""The mean time between two jobs, before the division by `scale`."""


class Trace(NamedTuple):
    """Devices that check in."""

    devices: Resources
    response_s: NDArray[np.float64]
    """``response_s[device]``: how long it takes for a result."""
    period_s: float
    """After this the trace starts anew."""


class Workload(NamedTuple):
    """Devices, and the jobs that ask them."""

    trace: Trace
    jobs: Jobs
    deadline_s: NDArray[np.float64]
    """``deadline_s[job]``: how long a round may take from its request on."""


def draw_devices(count: int, period_s: float, rng: np.random.Generator) -> Trace:
    """Draw devices that check in within a period, and how long each takes for a result.

    Parameters
    ----------
    count
        The number of devices.
    period_s
        They check in at times drawn evenly from 0 to this.
    rng
        The random numbers.

    Returns
    -------
    Trace
        The devices with their attributes and times, and the response time of each in seconds.
        Attributes and response times have the published distributions and rank correlations.
    """
    count = integer("count", count, at_least=1)

    # A Gaussian copula: normal variables whose ranks have the published correlations. A rank
    # correlation of r needs a linear one of 2 sin(pi r / 6).
    correlations = 2 * np.sin(np.pi / 6 * np.array(_RANK_CORRELATIONS))
    np.fill_diagonal(correlations, 1)
    normal = np.linalg.cholesky(correlations) @ rng.standard_normal((5, count))
    ranks = (np.argsort(np.argsort(normal, axis=1), axis=1) + 0.5) / count

    # Each attribute has its value at this rank of its own distribution.
    rank_of_attribute = dict(zip(NAMES, ranks, strict=False))
    columns = {
        name: np.interp(rank_of_attribute[name], _LEVELS, quantiles)
        for name, quantiles in _QUANTILES.items()
    }
    for name, (values, counts) in _COUNTS.items():
        phones = np.repeat(values, counts)
        columns[name] = phones[(rank_of_attribute[name] * len(phones)).astype(np.intp)]

    arrival_s = np.sort(rng.uniform(0, number("period_s", period_s), count))
    further_stay_s = rng.exponential(_MEAN_FURTHER_STAY_S, count)
    devices = Resources(
        np.array([columns[name] for name in NAMES]),
        arrival_s=arrival_s,
        departure_s=arrival_s + _LEAST_STAY_S + further_stay_s,
        names=NAMES,
    )
    response_s = np.interp(ranks[4], _RESPONSE_LEVELS, _RESPONSE_S)
    return Trace(devices, response_s, period_s)


def draw_jobs(
    mix: str, count: int, rng: np.random.Generator, *, scale: float = 50.0
) -> tuple[Jobs, NDArray[np.float64]]:
    """Draw jobs of one of `MIXES`, and the deadlines of their rounds.

    A job asks for a number of devices in each of its rounds. It comes an exponential time after
    the one before it.

    Parameters
    ----------
    mix
        The name of a mix: which kinds of jobs there are.
    count
        The number of jobs.
    rng
        Draws the numbers.
    scale
        Rounds, and the times between arrivals, are divided by it.

    Returns
    -------
    jobs : Jobs
        Demands in devices, numbers of rounds, and arrivals in seconds.
    deadline_s : float64 array, shape (jobs,)
        How long a round may last: 300 s below 200 devices, 600 s below 400, else 1000 s.

    Raises
    ------
    InputError
        If the mix is unknown, or the scale is 0.
    """
    if mix not in MIXES:
        raise InputError(f"mix {mix!r}: one of {', '.join(MIXES)}", where="mix")
    if number("scale", scale) == 0:
        raise InputError("scale = 0: must be > 0", where="scale")
    chosen = rng.choice(MIXES[mix], count)
    demand = np.array(_DEMANDS)[chosen]
    between_s = rng.exponential(_MEAN_BETWEEN_S, count - 1)
    waits_s = np.concatenate(([_FIRST_ARRIVAL_S], between_s)) / scale
    rounds = np.maximum(1, np.rint(np.array(_ROUNDS)[chosen] / scale))
    # Jobs belong to the groups of requirements in turn.
    group_of_job = np.arange(count) % len(GROUPS)
    jobs = Jobs(
        demand,
        np.array(GROUPS).T[:, group_of_job],
        rounds=rounds.astype(np.int64),
        arrival_s=np.cumsum(waits_s),
    )
    deadline_s = np.select([demand < 200, demand < 400], [300.0, 600.0], 1000.0)
    return jobs, deadline_s


def draw_workload(
    mix: str,
    seed: int | np.random.SeedSequence,
    *,
    jobs: int = 50,
    scale: float = 50.0,
    supply: float = 1.0,
    trace: Trace | None = None,
) -> Workload:
    """Draw devices, unless a trace has them, and jobs of one of `MIXES`.

    Parameters
    ----------
    mix
        The name of a mix: which kinds of jobs there are.
    seed
        The seed of all numbers that are drawn.
    jobs
        The number of jobs.
    scale
        The published size is divided by it: rounds, times between jobs, length of the trace.
    supply
        Devices that are drawn check in at this many times the published rate.
    trace
        Devices with their check-ins and response times; None draws them.

    Returns
    -------
    Workload
        Devices, jobs, and the deadline of each job's rounds in seconds.
    """
    rng = np.random.default_rng(seed)
    n_jobs = integer("jobs", jobs, at_least=1)
    drawn_jobs, deadline_s = draw_jobs(mix, n_jobs, rng, scale=scale)
    if trace is None:
        n_devices = max(1, round(CHECK_INS * supply / scale))
        trace = draw_devices(n_devices, PERIOD_S / scale, rng)
    return Workload(trace, drawn_jobs, deadline_s)


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
        """Check the arrays of a pool of devices and jobs.

        Raises
        ------
        InputError
            If arrays have other lengths than they must, times are out of order, a class does not
            exist, or nobody may serve some job.
        """
        check_fields(self)
        n_classes, n_jobs = self.eligible.shape
        lengths = {
            **dict.fromkeys(("departure_s", "response_s", "class_of"), len(self.arrival_s)),
            **dict.fromkeys(("asked_s", "demand", "rounds", "deadline_s"), n_jobs),
            "tier": n_classes,
        }
        for name, length in lengths.items():
            if len(getattr(self, name)) != length:
                raise InputError(f"{name}: {length} entries are expected", where=name)
        if (np.diff(self.arrival_s) < 0).any() or (self.departure_s <= self.arrival_s).any():
            message = "arrival_s: in order, and before the departures, are expected"
            raise InputError(message, where="arrival_s")
        if self.period_s and (self.arrival_s >= self.period_s).any():
            raise InputError("arrival_s: later than the period", where="arrival_s")
        if (self.class_of >= n_classes).any():
            raise InputError(f"class_of: there are {n_classes} classes", where="class_of")
        # Classes without a device serve nobody.
        is_served = self.eligible[np.unique(self.class_of)].any(axis=0)
        for job in np.flatnonzero(~is_served)[:1].tolist():
            raise InputError(f"job {job}: no device may serve it", where=f"demand[{job}]")

    @property
    def rates(self) -> NDArray[np.float64]:
        """``rates[class]``: how many devices check in, each second on average."""
        span_s = self.period_s or max(float(self.arrival_s.max(initial=0)), 1e-9)
        counts = np.bincount(self.class_of, minlength=len(self.tier))
        rates: NDArray[np.float64] = counts / span_s
        return rates


def make_pool(
    devices: Resources,
    jobs: Jobs,
    response_s: ArrayLike,
    deadline_s: ArrayLike,
    *,
    period_s: float = 0.0,
) -> Pool:
    """Put devices and jobs into the arrays that a simulation of shared devices reads.

    Devices come (check in) and leave. A job has several rounds, each of which asks for devices and
    waits for their results. Devices are sorted by the time at which they come, and each gets the
    number of its class: devices of one class may serve the same jobs, and are in the same tier of
    speed. Other limits of the jobs, such as caps of planes, are not looked at.

    Parameters
    ----------
    devices
        When each device checks in and leaves, in seconds, and its attributes.
    jobs
        Requests, demands and rounds, and the bounds of attributes that each job asks for.
    response_s
        Seconds until the result of each device, shape (devices,), or one number for all.
        `TIER_LIMITS_S` cut them into tiers.
    deadline_s
        Seconds that a round of each job may last, shape (jobs,), or one number for all.
    period_s
        After so many seconds the trace of devices starts anew; 0 for never.

    Returns
    -------
    Pool
        Arrays by device in the order of check-ins (times in seconds, class); by class
        (``eligible``: the jobs that it may serve; ``tier``: its speed, 0 is the fastest); and by
        job (time of the first request, results wanted in a round, rounds, deadline).

    Raises
    ------
    InputError
        If a device never leaves.
    """
    departure_s = devices.departures_s
    if not np.isfinite(departure_s).all():
        raise InputError("departure_s: each device leaves", where="departure_s")
    order = np.argsort(devices.arrivals_s, kind="stable")

    # A class of the pool is a class of devices that may serve the same jobs, and a tier of speed.
    # Departures are left out of it, since the simulation sees which devices leave in time.
    classes = classify(replace(devices, departure_s=None), jobs)
    response_s = np.broadcast_to(np.asarray(response_s, np.float64), devices.n_resources)
    tier_of_device = np.searchsorted(TIER_LIMITS_S, response_s)

    # Each pair (class of jobs, tier) that some device has is a class of the pool.
    pairs = np.stack((classes.class_of, tier_of_device))
    pair_of_class, class_of = np.unique(pairs, axis=1, return_inverse=True)
    return Pool(
        arrival_s=devices.arrivals_s[order],
        departure_s=departure_s[order],
        response_s=response_s[order],
        class_of=class_of.reshape(-1)[order].astype(np.int32),
        eligible=classes.jobs_of[pair_of_class[0]].astype(np.int8),
        tier=pair_of_class[1].astype(np.int32),
        asked_s=jobs.arrivals_s,
        demand=jobs.demand,
        rounds=jobs.requests,
        deadline_s=np.broadcast_to(np.asarray(deadline_s, np.float64), jobs.n_jobs),
        period_s=number("period_s", period_s),
    )


def pool_of(workload: Workload) -> Pool:
    """Put the devices and jobs of a random workload into the arrays that a simulation reads.

    Devices, such as phones, come and leave. Jobs need them: a job runs in rounds, and in each
    round it asks some devices for a result. The simulation, which is made later from the pool,
    finds out how long jobs take.

    Devices are sorted by the time at which they come. Each gets the number of a class: devices of
    one class may serve the same jobs and are about equally fast.

    Parameters
    ----------
    workload
        These fields are read:

        - ``trace.devices``: when each device comes and leaves, in seconds, and its attributes;
        - ``trace.response_s[device]``: how many seconds it takes for a result;
        - ``trace.period_s``: after how many seconds the same devices come again; 0 for never;
        - ``jobs``: what each job asks for;
        - ``deadline_s[job]``: how many seconds a round of the job may last.

    Returns
    -------
    Pool
        Three groups of arrays: by device its times in seconds and its class; by class the jobs
        that it may serve and its speed; by job its rounds, the results that it wants in a round,
        and the deadline of a round in seconds.
    """
    trace = workload.trace
    return make_pool(
        trace.devices,
        workload.jobs,
        trace.response_s,
        workload.deadline_s,
        period_s=trace.period_s,
    )

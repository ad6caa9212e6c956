"""The study of a shared pool as tables: policies compared on the same devices and jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from optmatch.io.sharing import read_columns
from optmatch.model import Event, FormatError, InputError, OnEvent, Tick, ignore, integer
from optmatch.problems.sharing.resources import Resources
from optmatch.simulation.sharing.pool import MIXES, NAMES, Pool, Trace, draw_workload, pool_of
from optmatch.simulation.sharing.replay import Moment, Policy, PoolRun, simulate_pool
from optmatch.solvers.sharing import policies
from optmatch.solvers.sharing.policies import Priority
from optmatch.studies.outcome import Row, Study, mean_row
from optmatch.studies.sharing.bounds import Bound, bound_completions
from optmatch.sweeps.streams import Submits, in_order


def scarce(now: Moment, *, keen: float = 0.85) -> Priority:
    r"""Serve least work on scarce devices first, and no round more than it needs: our own policy.

    A job of r rounds to come with demand D, which devices at a rate S may serve, has priority
    :math:`- r D S^2`: little work first, and of like work what has few devices. Once a round has
    had the part `keen` of its demand, a little more than the results that it needs, it has further
    devices, up to its over-selection, only from what no other job wants.

    The power of S and `keen` were chosen on four seeds that the study does not use.
    """
    supply = now.rates @ now.eligible
    priority = -(now.demand * now.rounds_left * (supply / supply.max()) ** 2)
    served: Priority = np.where(now.had >= keen * now.demand, priority + priority.min(), priority)
    return served


def _irs(pool: Pool) -> Policy:
    """Return `irs`, which need not tell tiers, nor jobs that do not ask."""
    kinds, kind_of = np.unique(pool.eligible.astype(np.bool_), axis=0, return_inverse=True)
    supply = np.bincount(kind_of.reshape(-1), weights=pool.rates)

    def irs(now: Moment) -> Priority:
        asking = np.flatnonzero(now.asks)
        priority = np.full(kinds.shape, -np.inf)
        priority[:, asking] = policies.irs(kinds[:, asking], supply, now.residual[asking])
        return priority[kind_of.reshape(-1)]

    return irs


def _venn(pool: Pool) -> Policy:
    """Return `irs` with tiers of speed for the jobs in front."""
    irs = _irs(pool)
    tier_of = pool.tier[pool.class_of]
    slow_s = np.array(
        [
            np.quantile(pool.response_s[tier_of == tier], 0.95) if (tier_of == tier).any() else 0
            for tier in range(int(pool.tier.max(initial=0)) + 1)
        ]
    )
    typical_s = float(np.quantile(pool.response_s, 0.95))
    ratio = typical_s * (pool.rates @ pool.eligible) / pool.demand

    def venn(now: Moment) -> Priority:
        slowness = slow_s / typical_s
        return policies.match_tiers(irs(now), now.tier, slowness, ratio, now.draws)

    return venn


_POLICIES: dict[str, Callable[[Pool], Policy]] = {
    "random": lambda pool: lambda now: policies.random(now.draws),
    "fifo": lambda pool: lambda now: policies.fifo(now.asked_s),
    "las": lambda pool: lambda now: policies.las(now.given),
    "srsf": lambda pool: lambda now: policies.srsf(now.residual),
    "irs": _irs,
    "venn": _venn,
    "scarce": lambda pool: scarce,
}
POLICIES = tuple(_POLICIES)


def make_policy(name: str, pool: Pool) -> Policy:
    """Return the policy of a name; ``"venn"`` is ``"irs"`` with tiers, ``"scarce"`` our own."""
    if name not in _POLICIES:
        told = f"policy {name!r}: one of {', '.join(POLICIES)}"
        raise InputError(told, where="policies")
    return _POLICIES[name](pool)


PUBLISHED = {
    **{("even", "venn"): 1.87, ("small", "venn"): 1.78, ("large", "venn"): 1.72},
    **{("low", "fifo"): 1.55, ("low", "irs"): 1.79, ("low", "venn"): 1.88},
    **{("high", "fifo"): 1.42, ("high", "irs"): 1.63, ("high", "venn"): 1.63},
}
"""Random over another policy, of mean completion times, by mix and policy (arXiv 2312.08298)."""

BASE = "random"


class Figures(NamedTuple):
    """The result of one policy for the devices and jobs of a run."""

    completion_s: float
    """Mean; NaN if a job was not done."""
    completion_p99_s: float
    of_bound: float
    """Mean completion over its lower bound."""
    utilisation: float
    throughput_per_s: float
    fairness: float
    """Jain's index of the slow-downs, which are completion over the least service of a job."""
    gathering_s: float
    """Mean time in which a request gathered devices, failed ones included."""
    failed: float
    """The part of the requests that missed their deadlines."""
    decision_us: float
    """CPU time of one decision."""


class _Part(NamedTuple):
    """A run: the same devices and jobs under all policies."""

    mix: str
    policies: tuple[str, ...]
    jobs: int
    scale: float
    seed: np.random.SeedSequence
    trace: Trace | None


def study_sharing(
    *,
    mixes: Sequence[str] = tuple(MIXES),
    policies: Sequence[str] = POLICIES,
    jobs: int = 50,
    scale: float = 50.0,
    trace: Trace | None = None,
    runs: int = 20,
    seed: int = 0,
    executor: Submits | None = None,
    on_event: OnEvent = ignore,
) -> Study:
    """Let jobs of several mixes share devices under several policies.

    Parameters
    ----------
    mixes
        Of `optmatch.simulation.sharing.pool.MIXES`.
    policies
        Of `optmatch.studies.sharing.tables.POLICIES`; what they are compared with, ``"random"``,
        always runs.
    jobs
        How many.
    scale
        The divisor of the published size.
    trace
        The devices of the trace instead of drawn ones; jobs are drawn.
    runs
        How many times, with independent devices and jobs.
    seed
        Run k of each mix draws from the k-th child of this seed.
    executor
        The executor of the runs, as for `optmatch.sweep`; None for this process.
    on_event
        Hears a `Tick` now and then, with how many pools are done; an interrupt ends the study with
        what there is.

    Returns
    -------
    Study
        Tables ``completion``, with ``ratio``: random over policy, run by run, and ``devices``.
        The first run of all mixes comes first, so that an interrupt leaves as many of each.

    Examples
    --------
    >>> study = study_sharing(mixes=["low"], policies=["irs"], jobs=4, scale=2000, runs=1)
    >>> [(row["policy"], row["ratio"] >= 1) for row in study.tables["completion"]]
    [('random', True), ('irs', True)]
    """
    for mix in mixes:
        if mix not in MIXES:
            raise InputError(f"mix {mix!r}: one of {', '.join(MIXES)}", where="mixes")
    chosen = tuple(dict.fromkeys((BASE, *policies)))
    children = np.random.SeedSequence(seed).spawn(integer("runs", runs, at_least=1))
    found: dict[tuple[str, str], list[Figures]] = {}
    complete, done = True, 0

    def tell(_event: Event | None = None) -> None:
        on_event(Tick("pools", done, len(children) * len(mixes)))

    try:
        parts = (
            _Part(mix, chosen, jobs, scale, child, trace) for child in children for mix in mixes
        )
        for mix, figures in in_order(_do, parts, executor, on_event=tell):
            for name, one in figures.items():
                found.setdefault((mix, name), []).append(one)
            done += 1
            tell()
    except KeyboardInterrupt:
        complete = False
    tables = {"completion": list(_completion(found)), "devices": list(_devices(found))}
    return Study("sharing", tables, complete)


def _do(part: _Part, on_event: OnEvent = ignore) -> tuple[str, dict[str, Figures]]:
    """Do one run, wherever this is."""
    workload = draw_workload(
        part.mix, part.seed, jobs=part.jobs, scale=part.scale, trace=part.trace
    )
    pool = pool_of(workload)
    timers = {name: _Timer(make_policy(name, pool)) for name in part.policies}
    runs = {
        name: simulate_pool(
            pool, timer, seed=int(part.seed.generate_state(1)[0]), on_event=on_event
        )
        for name, timer in timers.items()
    }
    done_s = [run.end_s for run in runs.values() if not np.isnan(run.completion_s).any()]
    bound = bound_completions(pool, min(done_s, default=0.0))
    return part.mix, {
        name: _measure(run, bound, timers[name].mean_us) for name, run in runs.items()
    }


class _Timer:
    """A policy, and how long its decisions take."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.spent_s, self.calls = policy, 0.0, 0

    def __call__(self, now: Moment) -> Priority:
        begun_s = time.process_time()
        priority = self.policy(now)
        self.spent_s += time.process_time() - begun_s
        self.calls += 1
        return priority

    @property
    def mean_us(self) -> float:
        """Microseconds of a decision."""
        return 1e6 * self.spent_s / max(1, self.calls)


def _measure(run: PoolRun, bound: Bound, decision_us: float) -> Figures:
    slow = run.completion_s / bound.alone_s
    requests = max(1, run.n_requests)
    return Figures(
        completion_s=float(run.completion_s.mean()),
        completion_p99_s=float(np.quantile(run.completion_s, 0.99)),
        of_bound=float(run.completion_s.mean()) / bound.mean_s,
        utilisation=run.utilisation,
        throughput_per_s=run.throughput_per_s,
        fairness=float(slow.sum() ** 2 / (len(slow) * (slow**2).sum())),
        gathering_s=float(run.waited_s.sum()) / requests,
        failed=float(run.failed.sum()) / requests,
        decision_us=decision_us,
    )


def _completion(found: Mapping[tuple[str, str], list[Figures]]) -> Iterator[Row]:
    for (mix, name), figures in found.items():
        base = found[mix, BASE]  # the same devices and jobs
        ratios = [b.completion_s / f.completion_s for b, f in zip(base, figures, strict=True)]
        yield {
            **{"mix": mix, "policy": name, "runs": len(figures)},
            **mean_row("ratio", ratios),
            "published": PUBLISHED.get((mix, name)),
            **mean_row("completion_s", [f.completion_s for f in figures]),
            **mean_row("completion_p99_s", [f.completion_p99_s for f in figures]),
            **mean_row("of_bound", [f.of_bound for f in figures]),
        }


def _devices(found: Mapping[tuple[str, str], list[Figures]]) -> Iterator[Row]:
    names = ("utilisation", "throughput_per_s", "fairness", "gathering_s", "failed", "decision_us")
    for (mix, policy), figures in found.items():
        row: Row = {"mix": mix, "policy": policy}
        for name in names:
            row |= mean_row(name, [getattr(one, name) for one in figures])
        yield row


COLUMNS = ("arrival_s", "departure_s", "response_s", *NAMES)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read devices: a table with the columns `COLUMNS`, Parquet or CSV.

    After its last check-in the trace starts anew. A file that ends in ``.gz`` is unpacked.
    """
    name = os.fspath(path)
    columns = read_columns(name)
    for missing in set(COLUMNS) - set(columns):
        raise FormatError(f"column {missing!r} is missing", path=name)
    attributes = np.array([columns[column] for column in NAMES])
    response_s = columns["response_s"]
    try:
        times = {column: columns[column] for column in ("arrival_s", "departure_s")}
        devices = Resources(attributes, names=NAMES, **times)
        if not (response_s > 0).all():
            raise InputError("response_s: above 0 is expected")
    except InputError as exc:
        raise FormatError(exc.message, path=name, where=exc.where) from exc
    period_s = float(devices.arrivals_s.max(initial=0)) * (1 + 1e-9) + 1e-9
    return Trace(devices, response_s, period_s)

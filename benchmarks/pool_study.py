"""The study of a pool of devices: policies beside published ratios, on the same devices and jobs.

    PYTHONPATH=. python benchmarks/pool_study.py [--mix low] [--policy irs] [--runs 20] [-o FILE]

It prints two tables: mean completion times, as ratios of `random` over each policy and over a
lower bound, and what devices do. `--vary supply,response,scale,baseline` makes the map of what the
published ratios leave open. `docs/sharing-simulation.md` says what is simulated, and what came
out.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from benchmarks.pool_baselines import PATIENCE, draw_by_device
from benchmarks.pool_bounds import Bound, bound_completions
from optmatch.io.sharing import read_columns
from optmatch.model import Event, FormatError, InputError, OnEvent, Tick, ignore, integer
from optmatch.model.files import path_name
from optmatch.plotting.studies import Panel, draw_panels
from optmatch.problems.sharing.resources import Resources
from optmatch.simulation.sharing.pool import MIXES, NAMES, Pool, Trace, draw_workload, pool_of
from optmatch.simulation.sharing.replay import Moment, Policy, PoolRun, simulate_pool
from optmatch.solvers.sharing import policies
from optmatch.solvers.sharing.policies import Priority
from optmatch.studies.outcome import Row, TableStudy, mean_row


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
        message = f"policy {name!r}: one of {', '.join(POLICIES)}"
        raise InputError(message, where="policies")
    return _POLICIES[name](pool)


PUBLISHED = {
    **{("even", "venn"): 1.87, ("small", "venn"): 1.78, ("large", "venn"): 1.72},
    **{("low", "fifo"): 1.55, ("low", "irs"): 1.79, ("low", "venn"): 1.88},
    **{("high", "fifo"): 1.42, ("high", "irs"): 1.63, ("high", "venn"): 1.63},
}
"""Random over another policy, of mean completion times, by mix and policy (arXiv 2312.08298)."""

BASE = "random"
VARIED: Mapping[str, tuple[Any, ...]] = {
    "supply": (0.5, 0.7, 1.0, 2.0),
    "response": (0.5, 1.0),
    "scale": (25.0, 50.0),
    "baseline": ("requests", "devices", "tested"),
}
"""What the published ratios leave open, and the values that are tried."""


class Figures(NamedTuple):
    """The result of one policy for the devices and jobs of a run."""

    completion_s: float
    """Mean; of jobs that were not done, as if they were at the end."""
    unfinished: float
    """The part of the jobs that were not done."""
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
    baselines: tuple[str, ...]
    jobs: int
    scale: float
    supply: float
    response: float
    seed: np.random.SeedSequence
    trace: Trace | None


def study_sharing(
    *,
    mixes: Sequence[str] = tuple(MIXES),
    policies: Sequence[str] = POLICIES,
    jobs: int = 50,
    scale: float = 50.0,
    trace: Trace | None = None,
    vary: Sequence[str] = (),
    runs: int = 20,
    seed: int = 0,
    on_event: OnEvent = ignore,
) -> TableStudy:
    """Let jobs of several mixes share devices under several policies.

    Parameters
    ----------
    mixes
        Of `optmatch.simulation.sharing.pool.MIXES`.
    policies
        Of `POLICIES`; what they are compared with, ``"random"``,
        always runs.
    jobs
        How many.
    scale
        The divisor of the published size.
    trace
        The devices of the trace instead of drawn ones; jobs are drawn.
    vary
        Of ``VARIED``: each varied name is a column of the table ``completion``, which has rows for
        all combinations of their values. `supply` and `response` are factors of the rate of
        check-ins and of the times for a result; `baseline` says how random matching draws.
    runs
        How many times, with independent devices and jobs.
    seed
        Run k of each mix draws from the k-th child of this seed.
    on_event
        Hears a `Tick` now and then, with how many pools are done; an interrupt ends the study with
        what there is.

    Returns
    -------
    TableStudy
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
    for name in vary:
        if name not in VARIED or (name == "supply" and trace is not None):
            names = [option for option in VARIED if trace is None or option != "supply"]
            raise InputError(f"vary {name!r}: one of {', '.join(names)}", where="vary")
    chosen = tuple(dict.fromkeys((BASE, *policies)))
    values: dict[str, tuple[Any, ...]] = {
        "supply": (1.0,),
        "response": (1.0,),
        "scale": (scale,),
        "baseline": ("requests",),
    }
    values |= {name: VARIED[name] for name in vary}
    children = np.random.SeedSequence(seed).spawn(integer("runs", runs, at_least=1))
    figures_of: dict[Key, list[Figures]] = {}
    cells = list(product(values["supply"], values["response"], values["scale"]))
    complete = True
    done = 0

    def tell(_event: Event | None = None) -> None:
        on_event(Tick("pools", done, len(children) * len(mixes) * len(cells)))

    try:
        parts = (
            _Part(
                mix=mix,
                policies=chosen,
                baselines=values["baseline"],
                jobs=jobs,
                scale=size,
                supply=supply,
                response=response,
                seed=child,
                trace=trace,
            )
            for child in children
            for supply, response, size in cells
            for mix in mixes
        )
        for part in parts:
            for key, figures in _do(part, tell).items():
                figures_of.setdefault(key, []).append(figures)
            done += 1
            tell()
    except KeyboardInterrupt:
        complete = False
    tables = {
        "completion": list(_completion(figures_of, vary)),
        "devices": list(_devices(figures_of)),
    }
    return TableStudy("sharing", tables, complete)


Key = tuple[tuple[float, float, float, str], str, str]
"""Supply, response, scale and baseline; mix, and policy."""


def _do(part: _Part, on_event: OnEvent = ignore) -> dict[Key, Figures]:
    """Do one run, wherever this is."""
    workload = draw_workload(
        part.mix,
        part.seed,
        jobs=part.jobs,
        scale=part.scale,
        supply=part.supply,
        trace=part.trace,
    )
    pool = pool_of(workload)
    pool = replace(pool, response_s=pool.response_s * part.response)
    ways = {
        (BASE, baseline): draw_by_device(pool, baseline == "tested")
        if baseline != "requests"
        else (pool, make_policy(BASE, pool))
        for baseline in part.baselines
    }
    for name in set(part.policies) - {BASE}:
        ways[name, ""] = pool, make_policy(name, pool)
    timers = {key: _Timer(policy) for key, (_, policy) in ways.items()}
    seed = int(part.seed.generate_state(1)[0])
    runs: dict[tuple[str, str], PoolRun] = {}
    for key in sorted(ways, key=lambda key: key[1] in ("devices", "tested")):
        drawn = runs and key[1] in ("devices", "tested")
        most_s = PATIENCE * max(run.end_s for run in runs.values()) if drawn else math.inf
        runs[key] = simulate_pool(
            ways[key][0],
            timers[key],
            seed=seed,
            patient=key[1] != "tested",
            until_s=min(most_s, 1e8),
            on_event=on_event,
        )
    done_s = [run.end_s for run in runs.values() if not np.isnan(run.completion_s).any()]
    bound = bound_completions(pool, min(done_s, default=0.0))
    figures = {key: _measure(pool, run, bound, timers[key].mean_us) for key, run in runs.items()}
    return {
        ((part.supply, part.response, part.scale, baseline), part.mix, name): figures[
            name, baseline if name == BASE else ""
        ]
        for baseline in part.baselines
        for name in part.policies
    }


class _Timer:
    """A policy, and how long its decisions take."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.spent_s = 0.0
        self.calls = 0

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


def _measure(pool: Pool, run: PoolRun, bound: Bound, decision_us: float) -> Figures:
    open_ = np.isnan(run.completion_s)
    completion_s = np.where(open_, run.end_s - pool.asked_s, run.completion_s)
    slow = completion_s / bound.alone_s
    requests = max(1, run.n_requests)
    return Figures(
        completion_s=float(completion_s.mean()),
        unfinished=float(open_.mean()),
        completion_p99_s=float(np.quantile(completion_s, 0.99)),
        of_bound=float(completion_s.mean()) / bound.mean_s,
        utilisation=run.utilisation,
        throughput_per_s=run.throughput_per_s,
        fairness=float(slow.sum() ** 2 / (len(slow) * (slow**2).sum())),
        gathering_s=float(run.waited_s.sum()) / requests,
        failed=float(run.failed.sum()) / requests,
        decision_us=decision_us,
    )


def _completion(figures_of: Mapping[Key, list[Figures]], vary: Sequence[str]) -> Iterator[Row]:
    for (cell, mix, name), figures in figures_of.items():
        base = figures_of[cell, mix, BASE]  # the same devices and jobs
        ratios = [b.completion_s / f.completion_s for b, f in zip(base, figures, strict=True)]
        varied = dict(zip(VARIED, cell, strict=True))
        yield {
            **{"mix": mix, "policy": name, "runs": len(figures)},
            **{option: varied[option] for option in vary},
            **mean_row("ratio", ratios),
            "published": PUBLISHED.get((mix, name)),
            "unfinished": float(np.mean([f.unfinished for f in base])),
            **mean_row("completion_s", [f.completion_s for f in figures]),
            **mean_row("completion_p99_s", [f.completion_p99_s for f in figures]),
            **mean_row("of_bound", [f.of_bound for f in figures]),
        }


def _devices(figures_of: Mapping[Key, list[Figures]]) -> Iterator[Row]:
    names = ("utilisation", "throughput_per_s", "fairness", "gathering_s", "failed", "decision_us")
    first = next(iter(figures_of), None)
    for (cell, mix, policy), figures in figures_of.items():
        if first is not None and cell != first[0]:
            continue
        row: Row = {"mix": mix, "policy": policy}
        for name in names:
            row |= mean_row(name, [getattr(run, name) for run in figures])
        yield row


COLUMNS = ("arrival_s", "departure_s", "response_s", *NAMES)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read devices: a table with the columns `COLUMNS`, Parquet or CSV.

    After its last check-in the trace starts anew. A file that ends in ``.gz`` is unpacked.
    """
    name = path_name(path)
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


def list_panels(rows: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Lay out a study of shared devices: a group of bars for each case of all policies.

    Parameters
    ----------
    rows
        The table ``completion`` of the study, a row for each case and policy.

    Returns
    -------
    list of Panel
        Cases across; those that lack a policy are left out.
    """
    # A case is a mix of jobs and the values of all that the study varies.
    case_columns = []
    if rows:
        columns = ("mix", "supply", "response", "scale", "baseline")
        case_columns = [column for column in columns if column in rows[0]]
    row_of: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        case = ", ".join(str(row[column]) for column in case_columns)
        row_of[case, row["policy"]] = row

    # An interrupted study may lack some policies of its last case, which is left out.
    policies = list(dict.fromkeys(policy for _, policy in row_of))
    cases = []
    for case in dict.fromkeys(case for case, _ in row_of):
        if all((case, policy) in row_of for policy in policies):
            cases.append(case)

    def make_panel(title: str, ylabel: str, column: str) -> Panel:
        series = {}
        errors = {}
        for policy in policies:
            series[policy] = [row_of[case, policy][column] for case in cases]
            errors[policy] = [row_of[case, policy][f"{column}_half_width"] for case in cases]
        return Panel(title, ylabel, cases, series, errors, ", ".join(case_columns))

    ratio = make_panel("mean completion time", "random over policy", "ratio")
    if "venn" in policies or not cases:
        ratio.series["venn, published"] = [row_of[case, "venn"]["published"] for case in cases]
    bound = make_panel("distance to the lower bound", "completion over its bound", "of_bound")
    return [ratio, bound]


def main() -> None:
    """Run the study, print its tables, and draw them if a file is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mix", dest="mixes", action="append", help="repeatable; all five")
    parser.add_argument("--policy", dest="policies", action="append", help="repeatable; all")
    parser.add_argument("--vary", default="", help="supply,response,scale,baseline: a map")
    parser.add_argument("--trace", help="devices from a CSV or Parquet file")
    parser.add_argument("--jobs", type=int, default=50, help="jobs of a run")
    parser.add_argument("--scale", type=float, default=50.0, help="divisor of the published size")
    parser.add_argument("--runs", type=int, default=20, help="independent runs")
    parser.add_argument("--seed", type=int, default=0, help="seed of all runs")
    parser.add_argument("-o", "--output", help="a picture")
    options = parser.parse_args()
    study = study_sharing(
        mixes=options.mixes or tuple(MIXES),
        policies=options.policies or POLICIES,
        jobs=options.jobs,
        scale=options.scale,
        trace=None if options.trace is None else read_trace(options.trace),
        vary=tuple(filter(None, options.vary.split(","))),
        runs=options.runs,
        seed=options.seed,
    )
    for title, rows in study.tables.items():
        print(title)
        for row in rows:
            cells = [f"{name} {_write(value)}" for name, value in row.items()]
            print("  " + ", ".join(cells))
    if options.output:
        draw_panels(list_panels(study.tables["completion"])).savefig(options.output)


def _write(value: object) -> str:
    """Write a figure with four digits, and anything else as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()

"""Cells of rail jobs, drawn from the whole product of what a job may say, and races."""

import time
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import numpy as np

import optmatch as om
from tests.helpers.rails import change_job, make_job
from tests.rivals.races import Race, describe
from tests.rivals.rails import changing, layouts


def policy_s(job: om.RailJob, name: str) -> float:
    """Return the step time of a policy; infinite if it has no plan."""
    found = om.solve(job, name, seed=0).objective
    return inf if found is None else found


RIVALS: dict[str, Callable[[om.RailJob], float]] = {
    "forwarded ring": layouts.forwarded_ring_s,
    "chords": layouts.chords_s,
    "rails that differ": layouts.rails_that_differ_s,
    "changing": changing.changing_s,
    "on demand": lambda job: policy_s(job, "on-demand"),
    "provisioned": lambda job: policy_s(job, "provisioned"),
    "static": lambda job: policy_s(job, "static"),
}
"""Every rival by its name."""

MOST_OPERATIONS = 40_000
"""A job with more is not drawn: rivals in plain Python would take minutes."""
TRIALS = 6_000
"""Our solver tries so many plans with each delay."""


def draw_cells(rng: np.random.Generator, count: int, most_gpus: int = 128) -> Iterator[om.RailJob]:
    """Draw so many jobs of `most_gpus` at most; options that do not fit each other are redrawn.

    Every second one has a delay of 1e-4 to 0.3 of its step: there it pays to change circuits.
    """
    n_drawn = 0
    while n_drawn < count:
        try:
            job = make_job(**_draw_options(rng, most_gpus))
            bound_s = job.lower_bound()
            if n_drawn % 2 == 0:
                job = change_job(job, delay_s=bound_s * 10 ** float(rng.uniform(-4, -0.5)))
        except om.InputError:
            continue
        if job.step().n_operations <= MOST_OPERATIONS and any(g.rail >= 0 for g in job.groups()):
            n_drawn += 1
            yield job


def _draw_options(rng: np.random.Generator, most_gpus: int) -> dict[str, Any]:
    def pick(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    while True:
        dp, tp, pp, cp = (
            pick(1, 2, 4, 8, 16, 32),
            pick(1, 1, 2, 8),
            pick(1, 1, 2, 4),
            pick(1, 1, 2),
        )
        if 2 <= dp * tp * pp * cp <= most_gpus:
            break
    n_gpus = dp * tp * pp * cp
    schedule = pick("gpipe", "1f1b", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe")
    virtual = 2 if schedule == "interleaved" else 1
    parts = pp * (2 if schedule == "zb-v" else virtual)
    ep = pick(*(e for e in (1, 1, 2, 4, 8, 16) if dp * cp % e == 0))
    zero = pick(0, 0, 1, 3)
    size = pick(64, 512, 2048)
    gpus_per_server = pick(*(g for g in (1, 2, 4, 8) if n_gpus % g == 0))
    return {
        **{"dp": dp, "tp": tp, "pp": pp, "cp": cp, "ep": ep, "zero_stage": zero},
        **{"schedule": schedule, "virtual_stages": virtual},
        "shard": pick(None, None, 2, 4, 8) if zero else None,
        "fsdp": pick("fsdp1", "fsdp2"),
        "model": om.TransformerModel(
            layers=parts * pick(1, 2),
            hidden=size,
            heads=4,
            sequence=pick(64, 1024),
            vocabulary=1000,
            ffn=4 * size,
            experts=max(ep, 1),
            active_experts=min(2, max(ep, 1)),
        ),
        "gpus_per_server": gpus_per_server,
        "ports_per_gpu": pick(1, 1, 1, 2, 4),
        "change_rail_s": pick(None, 5e-7) if gpus_per_server > 1 else None,
        "latency_s": pick(0.0, 5e-7),
        "spanning": pick("hierarchical", "rings"),
        "switching": pick("per-circuit", "per-circuit", "all-stop"),
        "delay_s": pick(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
        "batch": dp * (2 * pp if schedule == "dualpipe" else pick(1, 2, 4)),
        "micro_batch": 1,
        "efficiency": pick(0.1, 0.5),
    }


def race(job: om.RailJob) -> Race:
    """Solve a job, and let all rivals try it."""
    began_s = time.process_time()
    ours = om.solve(job, seed=0, limits=om.Limits(iterations=TRIALS)).objective
    cpu_s = time.process_time() - began_s
    times_s = {name: rival(job) for name, rival in RIVALS.items()}
    best = min(times_s, key=lambda name: times_s[name])
    return Race(describe(job), inf if ours is None else ours, times_s[best], best, cpu_s)

"""Rail jobs of four known layouts: circuits of a rail, and step times against the delay.

    python benchmarks/layouts.py [--small | --delays [S ...]] [--gpus 1024] [--time-limit S]
        [--methods METHOD ...] [--presets PRESET ...]

`--small` shows jobs of the same layouts on few GPUs alone, `--delays` step times of presets, at
all delays of the page or at some.
Without a limit of time the answers depend on the seed alone, which is 0.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import defects  # noqa: F401 - they end the run

import optmatch as om
from optmatch.problems.rails.presets import PRESETS, make_job

DELAYS_S = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
METHODS = ("on-demand", "provisioned", "prefetch")
_SPLITS: dict[str, dict[str, Any]] = {
    "llama3-405b": {"cp": 2, "pp": 2, "dp": 2, "stage_layers": ()},
    "deepseek-v3": {"ep": 16, "dp": 16, "pp": 2, "stage_layers": (), "schedule": "1f1b"},
    "mixtral-8x22b": {"pp": 2},
    "gpt3-175b-fsdp": {"dp": 32, "shard": 16},
}
"""The degrees of small jobs that are otherwise like the presets."""


def make_small(name: str) -> om.RailJob:
    """Return a job of a preset with fewer GPUs, one layer in each stage, and two micro-batches."""
    preset = PRESETS[name]
    split = replace(preset.parallelism, **_SPLITS[name])
    batch = preset.micro_batch * 2 if preset.micro_batch > 0 else preset.batch
    return om.RailJob(
        parallelism=split,
        network=om.RailNetwork(gpus_per_server=8),
        workload=om.Workload(
            model=replace(preset.model, layers=max(split.pp, 2)),
            batch=batch * split.dp,
            micro_batch=preset.micro_batch,
        ),
    )


def show_delays(
    name: str,
    job: om.RailJob,
    methods: Sequence[str],
    limit_s: float | None,
    delays_s: Sequence[float] = DELAYS_S,
) -> None:
    """Print the step time of each method at each delay; a star where it is proved to be best."""
    bound = job.lower_bound()
    print(f"{name}, {job.n_gpus} GPUs: step in ms by delay; all links {1e3 * bound:.3f} ms")
    for delay_s in delays_s:
        row = []
        for method in methods:
            found = om.solve(job.with_delay(delay_s), method, seed=0, time_limit_s=limit_s)
            assert found.objective is not None and om.verify(found.problem, found).valid
            star = "*" if found.status is om.Status.OPTIMAL else ""
            row.append(f"{method} {1e3 * found.objective:.3f}{star}")
        assert found.objective is not None
        gap = 100 * (found.objective / found.lower_bound - 1)
        print(f"  {delay_s:7.0e} s: {', '.join(row)}; gap {gap:.2f} %", flush=True)


def show_circuits(name: str, gpus: int) -> None:
    """Print the needs of a preset on each rail, and the time of its plans at 10 ms."""
    job = make_job(name, gpus)
    for method in METHODS:
        started = time.process_time()
        found = om.solve(job, method, seed=0)
        taken = time.process_time() - started
        assert isinstance(found.answer, om.RailPlan) and found.objective is not None
        states = [len(t.matchings) for t in found.answer.rails]
        report = om.verify(job, found)
        circuits = report.figures["circuits_changed"] // job.network.gpus_per_server
        print(
            f"{name}, {gpus} GPUs, {job.step().n_operations} operations, {method}: step"
            f" {found.objective:.4f} s, all links {job.lower_bound():.4f} s; each rail:"
            f" {max(states)} states, {circuits} new circuits; {taken:.1f} s CPU,"
            f" {'verified' if report.valid else 'refused'}",
            flush=True,
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  peak memory of this process: {peak:.2f} GiB", flush=True)


def main() -> None:
    """Run the parts that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=1024)
    parser.add_argument("--time-limit", type=float)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--delays", nargs="*", type=float)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--presets", nargs="+", default=list(PRESETS))
    given = parser.parse_args()
    if given.delays is not None:
        for name in given.presets:
            job, delays_s = make_job(name, given.gpus), given.delays or DELAYS_S
            show_delays(name, job, given.methods, given.time_limit, delays_s)
        return
    for name in given.presets:
        show_delays(name, make_small(name), given.methods, given.time_limit)
    for name in given.presets if not given.small else ():
        show_circuits(name, given.gpus)


if __name__ == "__main__":
    main()

"""Photonic rails: a step of 2,048 GPUs replayed and planned, published step times predicted.

    python benchmarks/rails.py [--repeats 3] [--curves FILE] [--predictions | --gaps]

The published cases are those of `instances/rails/published-step-times.csv`.
"""

from __future__ import annotations

import argparse
import csv
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import defects  # noqa: F401 - they end the run
import numpy as np

import optmatch as om
from optmatch.problems.rails.calibration import calibrate
from optmatch.problems.rails.published import CASES, published_job
from optmatch.problems.rails.training.step import ALL_REDUCE, Group, Step
from optmatch.simulation.rails.replay import simulate_rails
from optmatch.solvers.rails.methods import choose_straight, draft_straight
from optmatch.solvers.rails.transfers import fold_transfers

CURVES = Path(__file__).parent.parent / "instances" / "rails" / "published-step-times.csv"
RATE = 50e9


Curves = dict[str, dict[tuple[str, float], float]]


def read_curves(path: Path) -> Curves:
    """Read step times in seconds: by case, and by policy and delay in seconds."""
    lines = path.read_text().splitlines()
    found: Curves = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        key = row["policy"], float(row["delay_ms"]) / 1e3
        found.setdefault(row["case"], {})[key] = float(row["step_ns"]) / 1e9
    return found


def large_job(*, zero_stage: int = 0, micro_batch: int = 2) -> om.RailJob:
    """Return a job of 2,048 GPUs: 32 x 8 x 8, 8 micro-batches, a model of 96 layers."""
    model = om.TransformerModel(
        layers=96, hidden=8192, heads=64, sequence=4096, vocabulary=32000, ffn=28672
    )
    return om.RailJob(
        parallelism=om.Parallelism(dp=32, tp=8, pp=8, zero_stage=zero_stage),
        network=om.RailNetwork(gpus_per_server=8),
        workload=om.Workload(model=model, batch=512, micro_batch=micro_batch),
    )


def with_network(job: om.RailJob, **changes: Any) -> om.RailJob:
    """Return a job on a network of which some fields are changed."""
    return replace(job, network=replace(job.network, **changes))


def best_of(repeats: int, run: Callable[[], Any]) -> float:
    """Return the shortest time, in seconds."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


def show_simulation(repeats: int) -> None:
    """Print the time to derive and to replay a step of 2,048 GPUs, from nothing each time."""
    job = large_job()
    print(f"a step of {job.n_gpus} GPUs, {job.step().n_operations} operations, best of {repeats}")
    print(f"  derive it: {best_of(repeats, lambda: large_job().step()):.2f} s")
    for policy in ("on-demand", "provisioned"):
        for switching in ("per-circuit", "all-stop"):
            whole = best_of(
                repeats,
                lambda: simulate_rails(with_network(large_job(), switching=switching), policy),  # noqa: B023
            )
            found = simulate_rails(with_network(job, switching=switching), policy)
            print(
                f"  {policy}, {switching}: {whole:.2f} s with deriving it;"
                f" step {found.step_s:.4f} s, with all links {job.lower_bound():.4f} s,"
                f" {found.circuits_changed} circuits changed"
            )


def show_fsdp(repeats: int) -> None:
    """Print the same for FSDP with 16 micro-batches, where weights are gathered for each."""
    found = []

    def run() -> None:
        job = large_job(zero_stage=3, micro_batch=1)
        found.append((job.step().n_operations, simulate_rails(job, "on-demand").step_s))

    whole = best_of(repeats, run)
    print(f"FSDP, 16 micro-batches, {found[0][0]} operations, on demand: {whole:.2f} s")


def show_predictions(curves: Curves) -> None:
    """Print the error of every published point, predicted from the job and one fitted factor."""
    print("| case | all links | delays, ms | on demand | provisioned |")
    print("|---|---|---|---|---|")
    for case in CASES:
        base = "h200-dp2" if case.startswith("h200") else "gb200-dp4"
        fitted = calibrate(published_job(base, electrical=True), curves[base]["all-links", 0.0])
        efficiency = fitted.workload.efficiency
        electrical = published_job(case, efficiency=efficiency, electrical=True)
        error = 100 * (electrical.lower_bound() / curves[case]["all-links", 0.0] - 1)
        job = published_job(case, efficiency=efficiency)
        delays = sorted({delay_s for name, delay_s in curves[case] if name == "provisioned"})
        row = [f"{error:+.2f}", " ".join(f"{1e3 * delay_s:g}" for delay_s in delays)]
        for policy in ("on-demand", "provisioned"):
            found = [simulate_rails(job, policy, delay_s=delay_s).step_s for delay_s in delays]
            errors = np.array(found) / [curves[case][policy, delay_s] for delay_s in delays] - 1
            row.append(" ".join(f"{each:+.2f}" for each in 100 * errors))
        print(f"| {case} | {' | '.join(row)} |", flush=True)


def plain_job(case: str) -> om.RailJob:
    """Return the job of the paper's table of the set-up, and our defaults where it is silent.

    Two bytes an element, 10^9 bytes a gigabyte, the peak as given, all of a sequence attended,
    450 GB/s inside a server, efficiency 0.5.
    """
    job = published_job(case)
    work, network = job.workload, job.network
    assert work.model is not None
    model = replace(work.model, attended=None)
    peak, rate = work.peak_flops_per_s / 2, CASES[case].port_gigabytes_per_s * 1e9
    return replace(
        job,
        workload=om.Workload(model=model, batch=work.batch, peak_flops_per_s=peak),
        network=replace(network, port_bytes_per_s=rate, scale_up_bytes_per_s=450e9),
    )


def show_plain(curves: Curves) -> None:
    """Print how far a plain job is from the published steps with all links."""
    for case in CASES:
        found, told = plain_job(case).lower_bound(), curves[case]["all-links", 0.0]
        print(f"{case}, plain: {found:.3f} s, published {told:.3f} s, {found / told - 1:+.0%}")


def show_plans() -> None:
    """Print the gain of better plans on one rail of the published cases."""
    print("step time of plans for the published cases, in seconds; a star where it is optimal")
    for case in ("h200-dp2", "h200-dp4"):
        job = om.load(CURVES.parent / f"{case}-windows.json")
        for delay_s in (0.01, 0.1, 1.0, 3.0):
            row, times = [], {}
            for method in ("on-demand", "provisioned", "prefetch"):
                found = om.solve(
                    with_network(job, delay_s=delay_s), method, seed=0, time_limit_s=30
                )
                times[method] = found.objective or np.inf
                star = "*" if found.status is om.Status.OPTIMAL else ""
                row.append(f"{method} {times[method]:.3f}{star}")
            gain = 1 - times["prefetch"] / min(times["on-demand"], times["provisioned"])
            print(
                f"  {case}, {1e3 * delay_s:.0f} ms: {', '.join(row)}; all links"
                f" {job.lower_bound():.3f}; {100 * gain:.2f} % below the best simple policy"
            )


def all_reduce(members: int, size_bytes: float, algorithm: str, delay_s: float) -> om.RailJob:
    """Return a job of one all-reduce over all GPUs of a rail."""
    ranks = np.arange(members)
    nothing = np.zeros(members, dtype=np.int64)
    step = Step(
        groups=(Group("dp.0", "dp", tuple(ranks.tolist()), rail=0),),
        rank=ranks.astype(np.int32),
        kind=(nothing + ALL_REDUCE).astype(np.int8),
        group=nothing.astype(np.int32),
        size_bytes=nothing + size_bytes,
        duration_s=nothing + 0.0,
        peer=(nothing - 1).astype(np.int32),
        match=nothing.astype(np.int32),
        dep_start=np.zeros(members + 1, dtype=np.int64),
        dep=nothing[:0],
    )
    return om.RailJob(
        network=om.RailNetwork(gpus_per_server=1, delay_s=delay_s),
        workload=om.Workload(recorded=step),
        collectives={"dp": algorithm},
    )


def show_collectives() -> None:
    """Print how long one all-reduce takes around a ring, halved, and over a tree."""
    print("one all-reduce of 64 GPUs, 50 GB/s, 500 ns a message, in microseconds")
    for size_bytes in (2**16, 2**20, 2**26):
        for delay_s in (0.0, 1e-6, 5e-6, 2e-5, 1e-3):
            times = [
                om.solve(all_reduce(64, size_bytes, algorithm, delay_s), "prefetch", seed=0)
                for algorithm in ("ring", "halving", "tree")
            ]
            row = ", ".join(f"{1e6 * (found.objective or np.inf):.1f}" for found in times)
            print(
                f"  {size_bytes / 2**20:g} MiB, delay {1e6 * delay_s:g}: ring, halving, tree {row}"
            )


def straight_s(job: om.RailJob) -> float:
    """Return the best step time found without forwarding."""
    known = choose_straight(draft_straight(fold_transfers(job)))
    return np.inf if known is None else known.step_s


def show_forwarding() -> None:
    """Print the gain of forwarding for jobs of 128 GPUs with micro-batches, of the same rate."""
    print("step time with data forwarded, in seconds; 128 GPUs, 4 stages of 4 replicas")
    model = om.TransformerModel(
        layers=96, hidden=8192, heads=64, sequence=4096, vocabulary=32000, ffn=28672
    )
    for (ports, micro_batches), delay_s in product(((1, 4), (1, 8), (2, 4)), (0.01, 0.1, 1.0)):
        job = om.RailJob(
            parallelism=om.Parallelism(dp=4, tp=8, pp=4),
            network=om.RailNetwork(
                gpus_per_server=8,
                ports_per_gpu=ports,
                port_bytes_per_s=RATE / ports,
                delay_s=delay_s,
            ),
            workload=om.Workload(model=model, batch=4 * micro_batches, micro_batch=1),
        )
        row = [f"straight {straight_s(job):.3f}"]
        for method in ("static", "on-demand", "provisioned", "prefetch"):
            found = om.solve(job, method, seed=0, time_limit_s=40)
            if found.objective is not None:
                row.append(f"{method} {found.objective:.3f}")
        print(
            f"  {ports} ports, {micro_batches} micro-batches, {1e3 * delay_s:.0f} ms:"
            f" {', '.join(row)}; all links {job.lower_bound():.3f}"
        )


def show_large_plans(repeats: int) -> None:
    """Print the time to plan a step of 2,048 GPUs, verified, and the memory of all that."""
    print(f"a plan for {large_job().n_gpus} GPUs, all rails, delay 10 ms, best of {repeats}")
    for method in ("on-demand", "provisioned", "prefetch"):
        found: list[om.Solution] = []
        seconds = best_of(
            repeats,
            lambda: found.append(om.solve(large_job(), method, seed=0)),  # noqa: B023
        )
        print(
            f"  {method}: {seconds:.2f} s with deriving the step and verifying the plan; step"
            f" {found[-1].objective:.4f} s, bound {found[-1].lower_bound:.4f} s"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  peak memory of this process: {peak:.2f} GiB")


def show_gaps(delay_s: float = 0.01) -> None:
    """Print the gap to the bound of each instance as it is, and at a delay, and the median."""
    for changed in (False, True):
        gaps = []
        for path in sorted(CURVES.parent.glob("*.json")):
            job = om.load(path)
            assert isinstance(job, om.RailJob)
            found = om.solve(job.with_delay(delay_s) if changed else job, "prefetch", seed=0)
            assert found.objective is not None and om.verify(found.problem, found).valid
            gaps.append((found.objective - found.lower_bound) / found.objective)
            at_s = found.problem.network.delay_s
            print(f"{path.stem}, {at_s:g} s: step {found.objective:.6f} s, gap {gaps[-1]:.4f}")
        print(f"median gap {np.median(gaps):.4f}", flush=True)


def main() -> None:
    """Run the parts that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--curves", type=Path, default=CURVES)
    parser.add_argument("--predictions", action="store_true", help="print only those")
    parser.add_argument("--gaps", action="store_true", help="print only gaps of the instances")
    given = parser.parse_args()
    if given.gaps:
        show_gaps()
        return
    if given.predictions:
        show_predictions(read_curves(given.curves))
        show_plain(read_curves(given.curves))
        return
    show_predictions(read_curves(given.curves))
    show_simulation(given.repeats)
    show_fsdp(given.repeats)
    show_plans()
    show_forwarding()
    show_collectives()
    show_large_plans(given.repeats)


if __name__ == "__main__":
    main()

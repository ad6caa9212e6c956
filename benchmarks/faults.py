"""Yield of a mesh under random faults: time, outcomes and intervals.

    python benchmarks/faults.py [--rows 9] [--ports 32] [--samples 10000] [--faults 1,2]

Each study starts from nothing: its time has the all-to-all, every single fault that is drawn, and
the check of some repaired schedules.
"""

from __future__ import annotations

import argparse
import time

import optmatch as om


def main() -> None:
    """Print a row for each number of faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=9)
    parser.add_argument("--ports", type=int, default=32)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--faults", default="1,2")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each study")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    mesh = om.HexMesh(options.rows, options.rows, ports=options.ports)
    om.study_yield(om.AllToAll(om.HexMesh(3, 3, ports=6)), samples=50, seed=0)  # compile
    print("faults  samples  survived  failed  open  yield (95 %)      seconds")
    for faults in map(int, options.faults.split(",")):
        started, cpu = time.perf_counter(), time.process_time()
        study = om.study_yield(
            om.AllToAll(mesh),
            faults,
            samples=options.samples,
            seed=options.seed,
            time_limit_s=options.limit,
        )
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu
        low, high = study.interval
        print(
            f"{faults:>6}  {study.samples:>7}  {study.survived:>8}  {study.failed:>6}"
            f"  {study.unrepaired:>4}  {low:.2%} to {high:.2%}  {wall:.1f}, cpu {cpu:.1f}"
        )
        print(f"        {dict(study.how)}; worst cells {study.ranking()[:6]}")


if __name__ == "__main__":
    main()

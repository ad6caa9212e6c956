"""`om.schedule` and its limits: how long calls take, and what they reach on Solstice traffic.

    python benchmarks/schedule_limits.py [--cpu] [--calls 200]

Kernels are loaded first, which the first call of a process does outside its limit. A limit holds
if 99 of 100 calls end within it and a millisecond, or a fifth of it. With ``--cpu`` the clock is
the processor time of the thread: for a machine that does other work.
"""

from __future__ import annotations

import argparse
import time
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

import optmatch as om
from optmatch.model import limits
from optmatch.problems.demands import traffic

CASES = (
    ("dense", 64, 0.002, 1.0),
    ("dense", 128, 0.005, 0.5),
    ("dense", 512, 0.1, 0.1),
    ("dense", 1024, 1.0, 0.03),
    ("sparse", 2048, 1.0, 0.03),
)
"""Demand, ports, limit in seconds, part of the calls."""

QUALITY = ((64, 0.002), (64, 0.005), (64, 0.05), (128, 0.005))


def draw(kind: str, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw whole demands between all ports, or of each port with sixteen."""
    if kind == "dense":
        return rng.integers(1, 1000, (n, n)).astype(np.float64)
    matrix = np.zeros((n, n))
    for _ in range(16):
        matrix[np.arange(n), rng.permutation(n)] += rng.integers(1, 1000, n)
    return matrix


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    clock = time.thread_time if options.cpu else time.perf_counter
    limits.time = SimpleNamespace(perf_counter=clock)  # type: ignore[assignment, attr-defined]
    rng = np.random.default_rng(0)
    for n in (32, 64, 300):
        om.schedule(draw("dense", n, rng), 100.0, time_limit_s=3.0)
    for kind, n, limit_s, part in CASES:
        took_ms = []
        for _ in range(max(3, int(options.calls * part))):
            matrix = draw(kind, n, rng)
            began = clock()
            om.schedule(matrix, 100.0, time_limit_s=limit_s)
            took_ms.append(1e3 * (clock() - began))
        late = float(np.quantile(took_ms, 0.99))
        allowed = 1e3 * max(limit_s + 0.001, limit_s * 1.2)
        print(
            f"{kind} {n:>4} ports, {1e3 * limit_s:>4.0f} ms: median {np.median(took_ms):.2f} ms,"
            f" p99 {late:.2f}, allowed {allowed:.1f}{'' if late <= allowed else ' ***'}",
            flush=True,
        )
    for n, limit_s in QUALITY:
        ratios = []
        for seed in range(20):
            demand = traffic.solstice(n, np.random.default_rng(seed), noise=0.003)
            found = om.schedule(demand, 20e-6, time_limit_s=limit_s)
            ratios.append(found.completion_s / found.lower_bound_s)
        print(f"Solstice {n} ports, {1e3 * limit_s:.0f} ms: {np.median(ratios):.3f} of the bound")


if __name__ == "__main__":
    main()

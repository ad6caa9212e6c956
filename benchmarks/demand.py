"""Schedules of demands: completion against bounds, fewest matchings, planes, and meshes.

    python benchmarks/demand.py [--seeds 3] [--time-limit 0.2] [--qoblib FOLDER] [--exact]

Every answer is verified before its row is printed. `--qoblib` is a folder with the files
``qbench_NN_sparse.json`` and ``qbench_NN_dense.json`` of QOBLIB's problem 3; without it those rows
are skipped. `--exact` adds what takes minutes.
"""

from __future__ import annotations

import argparse
import json
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from math import lgamma
from pathlib import Path
from typing import Any

import defects  # noqa: F401 - they end the run
import numpy as np

import optmatch as om
from optmatch.io.matrices import read_matrix
from optmatch.problems.demands import traffic

VOLUMES = {
    3: 1 / 8,
    4: 11 / 11340,
    5: 188723 / 836911595520,
    6: 9700106723 / 10258736801144832000000,
    7: 225762910421308831 / 4709491654300668677115504230400000000,
}
"""Of Birkhoff's polytopes, against a cell of the lattice (Chan and Robbins 1999, math/9806076)."""


def solve(problem: om.Demand, method: str, **options: Any) -> tuple[om.Solution, float]:
    """Solve with seed 0; `om.solve` verifies. Return the time, too."""
    started = time.perf_counter()
    solution = om.solve(problem, method, seed=0, **options)
    return solution, time.perf_counter() - started


def show_solstice(seeds: int, limit: float) -> None:
    """Print completion / line bound on noisy Solstice traffic, 64 ports, 3 ms of demand."""
    print(f"Solstice model, N = 64, noise 0.3 %, medians (largest) of {seeds} seeds")
    for large, small in ((4, 12), (8, 24), (16, 48)):
        for delay in (10e-6, 20e-6, 100e-6):
            row = []
            for method in ("best", "portfolio", "eclipse", "spectra", "solstice"):
                ratios, times = [], []
                for seed in range(seeds):
                    rng = np.random.default_rng(seed)
                    demand = traffic.solstice(64, rng, large=large, small=small, noise=0.003)
                    problem = om.Demand(om.IdealSwitch(64), demand, delay_s=delay)
                    options = {"time_limit_s": limit} if method == "best" else {}
                    solution, seconds = solve(problem, method, **options)
                    ratios.append(solution.objective / solution.lower_bound)
                    times.append(seconds)
                row.append(
                    f"{method} {np.median(ratios):.3f} ({max(ratios):.3f})"
                    f" {1e3 * np.median(times):.0f} ms"
                )
            print(f"  {large},{small} delay {1e6 * delay:3.0f} us: " + "; ".join(row), flush=True)


def qoblib(folder: Path, n: int, kind: str) -> Iterator[om.Demand]:
    """Read the ten instances of one size and kind."""
    file = folder / f"qbench_{n:02d}_{kind}.json"
    names = [name for name in json.loads(file.read_text()) if name.isdigit()]
    for name in sorted(names, key=int):
        matrix = read_matrix(file, name=name)
        yield om.Demand(om.IdealSwitch(n), matrix, objective="matchings")


def show_fewest(folder: Path, exact: bool) -> None:
    """Print the fewest matchings found within a second, and proved."""
    bars = {("sparse", 8): 9.6, ("sparse", 10): 14.4, ("sparse", 12): 27, ("sparse", 16): 37}
    bars |= {("dense", 8): 35, ("dense", 16): 79.8}
    print("QOBLIB, fewest matchings: mean of ten within 1 s each by best")
    for (kind, n), bar in bars.items():
        counts = [solve(p, "best", time_limit_s=1.0)[0].objective for p in qoblib(folder, n, kind)]
        print(f"  {kind} n = {n}: {np.mean(counts):.1f} (bar {bar})", flush=True)
    print("QOBLIB, fewest matchings: proved by ilp within 60 s each")
    sizes = [("sparse", n) for n in (3, 4, 5, 6, 7, 8, 10, 12)] + [("dense", 3), ("dense", 4)]
    for kind, n in sizes + ([("sparse", 16), ("dense", 5)] if exact else []):
        proved, searched, slowest = 0, 0, 0.0
        for problem in qoblib(folder, n, kind):
            solution, seconds = solve(problem, "ilp", time_limit_s=60.0)
            proved += solution.status is om.Status.OPTIMAL
            searched += solution.proof == "search"
            slowest = max(slowest, seconds)
        print(
            f"  {kind} n = {n}: {proved} of 10, {searched} by a search alone, slowest"
            f" {slowest:.2f} s",
            flush=True,
        )


def families() -> Iterator[tuple[str, int, float, Callable[[np.random.Generator], np.ndarray]]]:
    """Yield small demands to be solved exactly: kind, ports, delay, and how one is drawn."""
    for n in (5, 6, 7, 8):
        for weight, delay in ((200, 20.0), (1000, 20.0), (1000, 200.0)):
            for factor in (1, 2):
                kind = f"{factor * n} permutations of weight 1..{weight}"
                draw = partial(traffic.permutations, n, count=factor * n, bytes=weight)
                yield kind, n, delay, draw
        for density in (0.5, 0.8, 1.0):
            kind = f"{density:.0%} of the entries, 1..200"
            yield (
                kind,
                n,
                20.0,
                lambda rng, n=n, share=density: (
                    rng.integers(1, 201, (n, n)) * (rng.random((n, n)) < share)
                ),
            )


def estimate(demand: np.ndarray, delay: float) -> float:
    """Guess the least completion of a demand with equal line sums, by counting covers.

    k slots whose durations add up to T are drawn evenly, and a permutation for each. Each entry of
    the sum is about normally distributed around T / n. With a waste of w on each line the sum
    covers the demand if the excess is one of the matrices with line sums w, of which there are as
    many as the volume of Birkhoff's polytope says. The guess is the earliest completion for which
    some number of slots is expected to have one cover.
    """
    n, line = len(demand), int(demand[0].sum())
    degree = int((demand > 0).sum(axis=1).max())
    rng = np.random.default_rng(0)
    ends = []
    for slots in range(degree, 3 * n):
        shares = (rng.dirichlet(np.ones(slots), 20_000) ** 2).sum(axis=1)

        def expects_one(waste: int, k: int = slots, shares: np.ndarray = shares) -> bool:
            total, cells = line + waste, (n - 1) ** 2
            squares = shares * total**2
            distance = ((demand - line / n) ** 2).sum()
            logs = -cells / 2 * np.log(2 * np.pi * squares / (n - 1)) + (n - 1) * np.log(n)
            logs -= (n - 1) * distance / (2 * squares)
            density = logs.max() + np.log(np.exp(logs - logs.max()).mean())
            draws = lgamma(total) - lgamma(k) - lgamma(total - k + 1) - lgamma(k + 1)
            excess = np.log(VOLUMES[n]) + cells * np.log(max(waste, 0.5))
            return bool(draws + k * lgamma(n + 1) + density + excess >= 0)

        wastes = range(2 * line)
        ends.append(line + bisect_left(wastes, True, key=expects_one) + slots * delay)
    return min(ends)


def show_optima(seeds: int) -> None:
    """Print the proofs of ilp about completion within 60 s, and where the optimum may be."""
    print("earliest completion by ilp within 60 s")
    for kind, n, delay, draw in families():
        gaps, times, guesses = [], [], []
        for seed in range(seeds):
            demand = np.asarray(draw(np.random.default_rng(seed)), dtype=np.int64)
            problem = om.Demand(om.IdealSwitch(n), demand, delay_s=delay)
            solution, seconds = solve(problem, "ilp", time_limit_s=60.0)
            gaps.append(solution.gap)
            times.append(seconds)
            if n in VOLUMES and "permutations" in kind:
                guesses.append(solution.objective / estimate(demand, delay))
        proved = sum(gap < 1e-9 for gap in gaps)
        guess = f", {np.mean(guesses):.3f} of the estimate" if guesses else ""
        print(
            f"  n = {n}, {kind}, delay {delay:.0f}: {proved} of {seeds} proved, median"
            f" {np.median(times):.1f} s, slowest {max(times):.1f} s, largest gap"
            f" {max(gaps):.1%}{guess}",
            flush=True,
        )


def show_planes() -> None:
    """Print completion / bound on parallel planes, against one schedule dealt out in turn."""
    print("parallel planes, N = 100: best in 1 s / bound; spectra; one schedule dealt out in turn")
    rng = np.random.default_rng(0)
    matrices = {
        "solstice": traffic.solstice(100, rng, noise=0.003),
        "zipf-moe": traffic.zipf_moe(100, rng) / 50e9,
        "gravity": traffic.gravity(100, rng, bytes=1e6) / 50e9,
    }
    switch = om.IdealSwitch(100)
    for name, demand in matrices.items():
        single, _ = solve(om.Demand(switch, demand, delay_s=20e-6), "best", time_limit_s=1.0)
        slots = single.schedule.durations_s + 20e-6
        for planes in (2, 4, 8):
            problem = om.Demand(switch, demand, delay_s=20e-6, planes=planes)
            solution, _ = solve(problem, "best", time_limit_s=1.0)
            spectra, _ = solve(problem, "spectra")
            dealt = max(slots[k::planes].sum() for k in range(planes))
            bound = solution.lower_bound
            print(
                f"  {name}, {planes} planes: {solution.objective / bound:.3f};"
                f" {spectra.objective / bound:.3f}; {dealt / bound:.3f}",
                flush=True,
            )


def show_mesh() -> None:
    """Print demands on a 9 x 9 mesh with 32 ports, against an ideal switch."""
    print("9 x 9 mesh, 32 ports, delay 5: completion / bound; on an ideal switch")
    mesh, switch = om.HexMesh(9, 9, ports=32), om.IdealSwitch(32)
    solution, seconds = solve(om.Demand(mesh, 1.0 - np.eye(32), delay_s=0.1), "best")
    slots = solution.schedule.n_slots
    print(f"  uniform: {slots} slots of 31, {solution.status.value}, {seconds:.2f} s")
    for density in (0.1, 0.3, 0.6):
        rng = np.random.default_rng(0)
        half = np.triu(rng.integers(1, 100, (32, 32)) * (rng.random((32, 32)) < density), 1)
        ratios = []
        for fabric in (mesh, switch):
            problem = om.Demand(fabric, half + half.T, delay_s=5.0)
            found, _ = solve(problem, "best", time_limit_s=5.0)
            ratios.append(found.objective / found.lower_bound)
        print(f"  density {density}: {ratios[0]:.3f}; {ratios[1]:.3f}", flush=True)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=0.16)
    parser.add_argument("--qoblib", type=Path)
    parser.add_argument("--exact", action="store_true")
    given = parser.parse_args()
    warm = om.Demand(om.IdealSwitch(3), np.ones((3, 3)), delay_s=1.0)
    for method in ("portfolio", "best", "eclipse", "solstice", "spectra"):
        solve(warm, method)
    show_solstice(given.seeds, given.time_limit)
    show_mesh()
    show_planes()
    if given.qoblib is None:
        print("skipped: QOBLIB (give its folder by --qoblib)")
    else:
        show_fewest(given.qoblib, given.exact)
    if given.exact:
        show_optima(max(10, given.seeds))


if __name__ == "__main__":
    main()

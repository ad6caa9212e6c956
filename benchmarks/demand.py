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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import optmatch as om
from optmatch.io.matrices import read_matrix
from optmatch.problems import traffic


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
            for method in ("best", "portfolio", "eclipse", "koenig-cover", "solstice"):
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
        proved, slowest = 0, 0.0
        for problem in qoblib(folder, n, kind):
            solution, seconds = solve(problem, "ilp", time_limit_s=60.0)
            proved += solution.status is om.Status.OPTIMAL
            slowest = max(slowest, seconds)
        print(f"  {kind} n = {n}: {proved} of 10, slowest {slowest:.2f} s", flush=True)


def show_optima(seeds: int, exact: bool) -> None:
    """Print what ilp proves about completion within 60 s, and how near best comes in 0.2 s."""
    print("earliest completion by ilp within 60 s: sums of `count` permutations of weight 1..200")
    single = [(n, n) for n in (3, 4, 5, 6, 7, 8, 10)]
    double = [(n, 2 * n) for n in (3, 4, 5)] + ([(6, 12), (7, 14)] if exact else [])
    for n, count in [*single, *double]:
        proved, same, slowest = 0, 0, 0.0
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            demand = traffic.permutations(n, rng, count=count, bytes=200)
            problem = om.Demand(om.IdealSwitch(n), demand, delay_s=20.0)
            solution, seconds = solve(problem, "ilp", time_limit_s=60.0)
            quick, _ = solve(problem, "best", time_limit_s=0.2)
            optimal = solution.status is om.Status.OPTIMAL
            proved += optimal
            same += optimal and quick.objective <= solution.objective * (1 + 1e-9)
            slowest = max(slowest, seconds)
        print(
            f"  n = {n}, count {count}, delay 20: {proved} of {seeds} proved,"
            f" slowest {slowest:.1f} s; best finds {same} of these",
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
    for method in ("portfolio", "best", "eclipse", "koenig-cover", "solstice", "spectra"):
        solve(warm, method)
    show_solstice(given.seeds, given.time_limit)
    show_mesh()
    show_planes()
    if given.qoblib is None:
        print("skipped: QOBLIB (give its folder by --qoblib)")
    else:
        show_fewest(given.qoblib, given.exact)
    show_optima(max(4, given.seeds), given.exact)


if __name__ == "__main__":
    main()

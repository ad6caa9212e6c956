"""All-to-all schedules: whole processes on instance files, proofs slot by slot, and what fits.

    python benchmarks/all_to_all.py [PART ...]

Parts: process (instances solved by the command line, with time and memory), slots (each slot of the
32-port schedule proved optimal), counts (every number of ports), limits (the largest number of ports
with separate inputs and outputs on 9x9, and the smallest square mesh for 32 ports). All unless named.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import optmatch as om
from optmatch.solvers.columns import Master
from optmatch.solvers.pathfinder import UNIT
from optmatch.solvers.router import Router

INSTANCES = Path(__file__).resolve().parent.parent / "instances" / "all-to-all"


def process() -> None:
    """Solve instance files by the command line, each in a process of its own, and verify them."""
    for name in ("hex-9x9-32", "hex-9x9-tx-rx-16", "hex-17x17-64", "hex-36x36-128"):
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "schedule.json"
            command = [sys.executable, "-m", "optmatch", "solve", str(INSTANCES / f"{name}.json")]
            command += ["--seed", "0", "--json", "-q", "-o", str(target)]
            subprocess.run([*command, "--time-limit", "0.5"], capture_output=True, check=False)
            times = []
            for _ in range(3 if "36" not in name else 1):
                started = time.perf_counter()
                ran = subprocess.run(
                    [*command, "--force"], capture_output=True, check=True, text=True
                )
                times.append(time.perf_counter() - started)
            result = json.loads(ran.stdout)
            solution = om.load(target)
            report = om.verify(solution.problem, solution)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
        stats = solution.stats
        print(
            f"{name}: {min(times):.2f} s whole process (of {len(times)}), {peak:.0f} MiB at most so far,"
            f" {result['status']}, slots {stats['slots']} of {stats['slots_lower_bound']},"
            f" cells {solution.objective:g} / {solution.lower_bound:g} ="
            f" {solution.objective / solution.lower_bound:.4f}, worst {stats['worst_route_cells']},"
            f" toggles {stats['toggles_unordered']} -> {stats['toggles']},"
            f" {'verified' if report.ok else report.violations[0]}",
            flush=True,
        )


def slots() -> None:
    """Prove each slot of the 32-port schedule optimal in route length for its matching."""
    problem = om.load(INSTANCES / "hex-9x9-32.json")
    solution = om.solve(problem, seed=0)
    found = om.verify(problem, solution).figures["total_cells"]
    started = time.perf_counter()
    proved, total = 0, 0.0
    for matching in solution.schedule.matchings:
        slot = om.solve(om.Routing(problem.fabric, matching), "ilp", seed=0, time_limit_s=60)
        proved += slot.status is om.Status.OPTIMAL
        total += slot.objective
    print(
        f"hex-9x9-32: {proved} of {solution.schedule.n_slots} slots proved optimal by ilp in"
        f" {time.perf_counter() - started:.2f} s; their optima add up to {total:g}, the schedule has {found}"
    )


def counts() -> None:
    """Solve every number of ports from 4 to 40 on 9x9."""
    good = fewest = 0
    started = time.perf_counter()
    for ports in range(4, 41):
        problem = om.AllToAll(om.HexMesh(9, 9, ports=ports))
        solution = om.solve(problem, seed=0)
        report = om.verify(problem, solution)
        good += report.ok
        fewest += solution.stats["slots"] == problem.min_slots
        print(
            f"  {ports:2d} ports: {solution.status.value}, slots {solution.stats['slots']} of"
            f" {problem.min_slots}, cells over bound {solution.objective / solution.lower_bound:.4f}"
        )
    print(
        f"ports 4 .. 40 on 9x9: {good} of 37 verified, {fewest} in the fewest slots,"
        f" {time.perf_counter() - started:.1f} s"
    )


def relaxation(fabric: om.Fabric) -> tuple[float, bool]:
    """Bound an all-to-all in the fewest slots by prices on links that count once for each slot.

    Returns the bound on all cells, and whether the prices prove that the fewest slots do not do.
    """
    problem = om.AllToAll(fabric)
    master = Master(Router(fabric), problem.pairs.astype(np.int64), capacity=problem.min_slots)
    bound = master.bound({}, np.inf, om.Limits(time_s=120).start())
    return bound.value / UNIT, bound.infeasible


def attempt(fabric: om.Fabric, seeds: int = 3) -> om.Solution:
    """Search for a schedule in the fewest slots from several seeds."""
    problem = om.AllToAll(fabric)
    best = None
    for seed in range(seeds):
        solution = om.solve(problem, seed=seed)
        if best is None or solution.stats["slots"] < best.stats["slots"]:
            best = solution
        if best.stats["slots"] == problem.min_slots:
            break
    return best


def limits() -> None:
    """Find the largest tx-rx switch on 9x9 and the smallest square mesh for 32 ports."""
    print("ports with inputs and outputs on 9x9, in N - 1 slots:")
    for ports in range(14, 39):
        try:
            fabric = om.HexMesh(9, 9, tx=ports, rx=ports)
            fabric.n_ports
        except om.InputError as exc:
            print(f"  {ports}: {exc}")
            continue
        report_fit(fabric, str(ports))
    print("32 bidirectional ports on n x n, in 31 slots:")
    for side in range(4, 10):
        try:
            fabric = om.HexMesh(side, side, ports=32)
            fabric.n_ports
        except om.InputError as exc:
            print(f"  {side}x{side}: {exc}")
            continue
        report_fit(fabric, f"{side}x{side}")


def report_fit(fabric: om.Fabric, name: str) -> None:
    """Say whether an all-to-all in the fewest slots was found, or is refuted."""
    started = time.perf_counter()
    bound, refuted = relaxation(fabric)
    if refuted:
        verdict = "refuted: the links cannot carry it, by prices"
    else:
        solution = attempt(fabric)
        fits = solution.stats["slots"] == solution.stats["slots_lower_bound"]
        verdict = (
            f"found, {solution.objective:g} cells, bound {max(bound, solution.lower_bound):g}"
            if fits
            else f"not found by 3 searches (best {solution.stats['slots']} slots), not refuted"
        )
    print(f"  {name}: {verdict} ({time.perf_counter() - started:.1f} s)", flush=True)


PARTS = {"process": process, "slots": slots, "counts": counts, "limits": limits}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()

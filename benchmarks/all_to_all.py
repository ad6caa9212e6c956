"""All-to-all schedules: whole processes on instance files, proofs slot by slot, and what fits.

    python benchmarks/all_to_all.py [PART ...]

Parts: process (instances solved by the command line, with time and memory), slots (each slot of
the 32-port schedule proved optimal), counts (every number of ports), limits (the most ports with
separate inputs and outputs on 9x9, and the smallest square mesh for 32 ports). All unless named.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import defects  # noqa: F401 - they end the run
import numpy as np

import optmatch as om
from optmatch.solvers.routing.columns import bound_jointly
from optmatch.solvers.routing.router import CellRouter

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
            f"{name}: {min(times):.2f} s whole process (best of {len(times)}),"
            f" {peak:.0f} MiB at most so far, {result['status']},"
            f" slots {stats['slots']} of {stats['slots_lower_bound']},"
            f" cells {solution.objective:g} / {solution.lower_bound:g} ="
            f" {solution.objective / solution.lower_bound:.4f},"
            f" worst {stats['worst_route_cells']},"
            f" toggles {stats['toggles_unordered']} -> {stats['toggles']},"
            f" {report.complaint or f'verified, by {report.proof}'}",
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
        f" {time.perf_counter() - started:.2f} s;"
        f" their optima add up to {total:g}, the schedule has {found}"
    )


def counts() -> None:
    """Solve every number of ports from 4 to 40 on 9x9."""
    good = fewest = 0
    started = time.perf_counter()
    for ports in range(4, 41):
        problem = om.AllToAll(om.HexMesh(9, 9, ports=ports))
        solution = om.solve(problem, seed=0)
        report = om.verify(problem, solution)
        good += report.valid
        fewest += solution.stats["slots"] == problem.min_slots
        print(
            f"  {ports:2d} ports: {solution.status.value}, slots {solution.stats['slots']} of"
            f" {problem.min_slots},"
            f" cells over bound {solution.objective / solution.lower_bound:.4f}"
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
    bound, _ = bound_jointly(problem, CellRouter(fabric), np.inf, om.Limits(time_s=120).start())
    return bound, bound == np.inf


def attempt(fabric: om.Fabric, seeds: int = 3) -> om.Solution:
    """Search for a schedule in the fewest slots from several seeds."""
    problem = om.AllToAll(fabric)
    solutions = []
    for seed in range(seeds):
        solutions.append(om.solve(problem, seed=seed))
        if solutions[-1].stats["slots"] == problem.min_slots:
            break
    return min(solutions, key=lambda solution: solution.stats["slots"])


def fits(name: str, fabric: om.Fabric) -> bool:
    """Say whether an all-to-all in the fewest slots was found, or is refuted."""
    started = time.perf_counter()
    bound, refuted = relaxation(fabric)
    found = False
    verdict = "refuted: prices prove that the links cannot carry it"
    if not refuted:
        solution = attempt(fabric)
        slots, fewest = solution.stats["slots"], solution.stats["slots_lower_bound"]
        found = slots == fewest
        verdict = (
            f"found: {solution.objective:g} cells, bound {max(bound, solution.lower_bound):g}"
        )
        if not found:
            verdict = f"open: three searches end with {slots} slots, not {fewest}"
    print(f"  {name}: {verdict} ({time.perf_counter() - started:.1f} s)", flush=True)
    return found


def elsewhere(name: str, fabric: om.Mesh, ports: int, choices: int = 40) -> None:
    """Try other terminals for the same number of ports: random moves that lower the shortfall."""
    rng = np.random.default_rng(0)
    n = len(fabric.graph.perimeter)
    senders, receivers = fabric.perimeter_ports
    directed = not fabric.bidirectional
    chosen = list(senders) + (list(receivers) if directed else [])
    best, tried, refuted = np.inf, 0, 0
    while tried < choices:
        moved = list(chosen)
        if tried:
            unused = np.setdiff1d(np.arange(n), moved)
            for place in rng.choice(len(moved), 2, replace=False):
                if len(unused):
                    moved[place] = int(rng.choice(unused))
                    unused = np.setdiff1d(np.arange(n), moved)
                else:
                    other = int(rng.integers(len(moved)))
                    moved[place], moved[other] = moved[other], moved[place]
        given = {"tx": moved[:ports], "rx": moved[ports:]} if directed else {"ports": moved}
        other_fabric = type(fabric)(fabric.rows, fabric.cols, **given)
        tried += 1
        if other_fabric.dead_pairs():
            refuted += 1
            continue
        value, shut = relaxation(other_fabric)
        refuted += shut
        if not shut:
            print(f"  {name}, other terminals: not refuted", given, flush=True)
            fits(f"{name} there", other_fabric)
            return
        if value <= best:
            best, chosen = value, moved
    print(f"  {name}, other terminals: {refuted} of {tried} choices refuted", flush=True)


def limits() -> None:
    """Find the most tx-rx ports on 9x9 and the smallest square mesh for 32 ports."""
    print("ports with inputs and outputs on 9x9, in N - 1 slots:")
    for ports in range(16, 39):
        if not fits(str(ports), om.HexMesh(9, 9, tx=ports, rx=ports)):
            elsewhere(str(ports), om.HexMesh(9, 9, tx=ports, rx=ports), ports)
            break
    print("32 bidirectional ports on n x n, in 31 slots:")
    for side in range(9, 3, -1):
        try:
            fabric = om.HexMesh(side, side, ports=32)
            found = fits(f"{side}x{side}", fabric)
        except om.InputError as exc:
            print(f"  {side}x{side}: {exc}")
            break
        if not found:
            elsewhere(f"{side}x{side}", fabric, 32)
            break


PARTS = {"process": process, "slots": slots, "counts": counts, "limits": limits}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()

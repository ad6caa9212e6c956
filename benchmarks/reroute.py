"""Failures: how quickly `greedy` answers them, and how near it comes to `ilp`.

``python benchmarks/reroute.py`` prints times of single failures; ``--failures 1000`` also compares
the two methods on so many random ones, half in a rack and half on a mesh.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import defects  # noqa: F401 - they end the run
import numpy as np

import optmatch as om
from optmatch.solvers.reroutes.states import fill_rack, hold_matching

LIMIT_S = 60.0


def mesh_state(seed: int, busy: int = 28) -> om.Reroute:
    """Route a random matching of a 9x9 mesh with 32 ports; the idle ports are spares."""
    order = np.random.default_rng(seed).permutation(32)[:busy].reshape(2, -1)
    matching = np.full(32, -1)
    matching[order[0]], matching[order[1]] = order[1], order[0]
    return hold_matching(om.HexMesh(9, 9, ports=32), matching.tolist())


def stick(state: om.Reroute, cell: int) -> dict[str, Any]:
    """Let a cell stay in the state that it is not in."""
    return {"cell": cell, "stuck": "cross" if state.cell_states[cell] == 0 else "bar"}  # type: ignore[index]


def measure(title: str, controller: om.Rerouter, failures: list[dict[str, Any]]) -> None:
    """Print percentiles of the time for each failure, in wall-clock and in processor time."""
    walls, works, unanswered = [], [], Counter[str]()
    for _ in range(5):
        for failure in failures:
            wall, work = time.perf_counter(), time.thread_time()
            try:
                controller.what_if(**failure)
            except om.OptMatchError as exc:
                unanswered[type(exc).__name__] += 1
            works.append(time.thread_time() - work)
            walls.append(time.perf_counter() - wall)
    shown = "  ".join(
        f"{name} {1e3 * np.percentile(times, 50):.3f} / {1e3 * np.percentile(times, 99.9):.3f} ms"
        for name, times in (("wall", walls), ("processor", works))
    )
    print(f"{title}: {len(failures)} failures, median / 99.9th: {shown}", dict(unanswered))


def time_answers() -> None:
    """Print the times of single failures, by kind of fabric and of part."""
    rack = fill_rack(om.RackFabric())
    chips = [{"chip": chip} for chip in range(rack.n_units) if chip not in rack.spares]
    each_spare = [replace(rack, spares=(spare,)) for spare in rack.spares]
    measure("rack, any chip, 4 spares", om.Rerouter(rack), chips)
    for state in each_spare:
        title = f"rack, any chip, spare {state.spares[0]}"
        measure(title, om.Rerouter(state), chips)
    fibres = [{"fibre": fibre} for fibre in range(768)]
    measure("rack, any fibre", om.Rerouter(rack), fibres)
    time_cells(om.RackFabric(interposer=om.Benes(72)))
    for seed in range(3):
        mesh = mesh_state(seed)
        ports = [{"port": port} for port in np.unique(mesh.circuits).tolist()]
        cells = [stick(mesh, cell) for cell in range(278) if mesh.cell_states[cell] >= 0]  # type: ignore[index]
        controller = om.Rerouter(mesh)
        measure(f"mesh {seed}, any port", controller, ports)
        measure(f"mesh {seed}, any lit cell sticks", controller, cells)
        measure(f"mesh {seed}, ports and cells", controller, [*ports, *cells])


def time_cells(fabric: om.RackFabric) -> None:
    """Print the same for a full rack whose servers have cells, and for dead cells in use."""
    state = fill_rack(fabric)
    controller = om.Rerouter(state)
    chips = [{"chip": chip} for chip in range(state.n_units) if chip not in state.spares]
    measure("rack with cells, any chip", controller, chips)
    lit = np.flatnonzero(np.array(state.cell_states) >= 0)
    some = np.random.default_rng(0).permutation(lit)[:200].tolist()
    measure("rack with cells, 200 dead cells", controller, [{"cell": cell} for cell in some])


def random_failures(count: int) -> Iterator[om.Reroute]:
    """Draw failures: one to three chips, fibres or ports of a rack; a port or cells of a mesh."""
    rng = np.random.default_rng(0)
    rack = fill_rack(om.RackFabric())
    meshes = [mesh_state(seed) for seed in range(5)]
    for number in range(count):
        if number % 2:
            parts = rng.permutation(64)[: rng.integers(1, 4)].tolist()
            fibres = rng.permutation(768)[: rng.integers(0, 9)].tolist()
            yield replace(rack, failed_chips=tuple(parts), failed_fibres=tuple(fibres))
            continue
        mesh = meshes[number // 2 % len(meshes)]
        cells = rng.permutation(278)[: rng.integers(1, 3)].tolist()
        kind = ("failed_ports", "dead_cells", "stuck_bar", "stuck_cross")[rng.integers(4)]
        failed = (int(rng.integers(32)),) if kind == "failed_ports" else tuple(cells)
        yield replace(mesh, **{kind: failed})  # type: ignore[arg-type]


def compare(count: int) -> None:
    """Print how often the quick method repairs what the exact one does, and as gently."""
    found: Counter[str] = Counter()
    times: dict[str, list[float]] = {"greedy": [], "ilp": []}

    def run(problem: om.Reroute, method: str) -> om.Solution:
        started = time.perf_counter()
        solution = om.solve(problem, method, seed=0, time_limit_s=LIMIT_S)
        times[method].append(time.perf_counter() - started)
        return solution

    for number, problem in enumerate(random_failures(count)):
        quick, exact = run(problem, "greedy"), run(problem, "ilp")
        found[f"ilp {exact.status.value}, by {exact.proof}"] += 1
        if exact.status in (om.Status.OPTIMAL, om.Status.FEASIBLE):
            found["repairable"] += 1
            if quick.answer is not None:
                found["repaired by greedy"] += 1
                same = quick.stats["disturbed"] == exact.stats["disturbed"]
                found["as few of others disturbed"] += same
                found["as few changed"] += quick.stats["changed"] == exact.stats["changed"]
                found["the same objective"] += quick.objective == exact.objective
            gentle = exact.stats["disturbed"] == 0
            found["repairable without disturbance"] += gentle
            found["disturbed in vain"] += gentle and quick.stats.get("disturbed", 1) > 0
        elif quick.answer is not None:
            found["repaired by greedy alone"] += 1
        if number % 100 == 99:
            print(number + 1, dict(found), flush=True)
    for method, taken in times.items():
        print(f"{method}: median {np.median(taken):.4f} s, worst {max(taken):.3f} s")


def main() -> None:
    """Run the parts that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failures", type=int, default=0, help="random failures to compare on")
    count = parser.parse_args().failures
    time_answers()
    if count:
        compare(count)


if __name__ == "__main__":
    main()

"""Calls that schedulers make, beside the kernels alone, with ratios of one run.

    python benchmarks/control.py [--count 1000] [--seeds 5]

Times are of the processor, so that a busy machine changes them little: medians of single calls,
least of some runs of long ones. The batch is counted in matchings per second of one processor.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable

import numpy as np
from decomposition import permutation_sum

import optmatch as om
from optmatch.problems.demands import traffic
from optmatch.solvers.demands import peeling
from optmatch.solvers.demands.workspace import set_up
from optmatch.solvers.routing.row_router import MeshRouter


def draw(rng: np.random.Generator, ports: int = 32) -> np.ndarray:
    """Draw a perfect matching of bidirectional ports."""
    order = rng.permutation(ports)
    matching = np.empty(ports, dtype=np.int32)
    matching[order[::2]], matching[order[1::2]] = order[1::2], order[::2]
    return matching


def median_us(work: Callable[[int], object], count: int) -> float:
    """Return the median time of single calls."""
    times = []
    for k in range(count):
        started = time.perf_counter()
        work(k)
        times.append(time.perf_counter() - started)
    return 1e6 * float(np.median(times))


def least_ms(work: Callable[[], object], runs: int = 5) -> float:
    """Return the least processor time of some runs."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return 1e3 * min(times)


def show_routing(count: int) -> None:
    """Print `Router.route` and `route_batch` on 9 x 9 with 32 ports."""
    mesh, rng = om.HexMesh(9, 9, ports=32), np.random.default_rng(0)
    rows = np.array([draw(rng) for _ in range(count)])
    rows.flags.writeable = False
    plain, checked, alone = om.Router(mesh), om.Router(mesh, check=True), MeshRouter(mesh)
    out = plain.empty()
    arrays = out.states[None], out.routes, out.lengths[None], np.empty(1, dtype=np.int8)

    calls: dict[str, Callable[[int], object]] = {
        "kernel alone": lambda k: alone.route(rows[k : k + 1], *arrays),
        "Router.route": lambda k: plain.route(rows[k], out=out),
        "Router.route, checked": lambda k: checked.route(rows[k], out=out),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(4):  # the first one compiles
        for k in range(count):
            for place in range(3):  # who comes later finds caches warm: each in its turn
                name = list(calls)[(place + k) % 3]
                started = time.perf_counter()
                calls[name](k)
                if turn:
                    times[name].append(1e6 * (time.perf_counter() - started))
    least = {name: float(np.median(took)) for name, took in times.items()}
    for name, bar in zip(calls, ("", "bar 1.3", "bar 4"), strict=True):
        ratio = least[name] / least["kernel alone"]
        print(f"{name}: median {least[name]:.0f} us, {ratio:.2f} of the kernel   {bar}")
    many = np.array([draw(rng) for _ in range(10 * count)])
    for threads in (1, 2):
        batch = plain.route_batch(many, threads=threads)
        ms = least_ms(lambda n=threads: plain.route_batch(many, threads=n), 3)
        print(
            f"route_batch, {threads} threads: {1e3 * ms / len(many):.0f} us of a processor each:"
            f" {len(many) / ms:.1f} thousand a second on each   bar 6 (12 on two);"
            f" {batch.held.sum()} of {len(many)} held"
        )
    once = many > np.arange(32)
    row, source = np.nonzero(once)
    shortest = mesh.route_cells()[source, many[row, source]].sum()
    print(f"cells over shortest: {batch.lengths.sum() / shortest:.4f}   bar 1.05")


def show_reroutes(count: int) -> None:
    """Print `Router.reroute` after two circuits changed, and on Benes(64)."""
    mesh, rng = om.HexMesh(9, 9, ports=32), np.random.default_rng(1)
    router, cases = om.Router(mesh), []
    for _ in range(count):
        before = draw(rng)
        states = np.maximum(router.route(before).states, 0)
        a, b = rng.choice(32, 2, replace=False).tolist()
        if before[a] != b:
            after = before.copy()
            for i, j in ((a, before[b]), (b, before[a])):
                after[i], after[j] = j, i
            cases.append((states, after))
    out, toggles, times = router.empty(), [], []
    for states, after in cases:
        took = median_us(lambda _, s=states, m=after: router.reroute(s, m, out=out), 5)
        times.append(took)
        toggles.append(int((out.states != states).sum()))
    print(
        f"reroute, two circuits: median {np.median(times):.0f} us, 99th percentile"
        f" {np.percentile(times, 99):.0f} us, mean toggles {np.mean(toggles):.2f}   bar 40 us"
    )
    benes = om.Benes(64)
    router, states = om.Router(benes), np.full(benes.n_cells, -1, dtype=np.int8)
    toggles, times = [], []
    for _ in range(100):
        matching, started = rng.permutation(64).astype(np.int32), time.process_time()
        changed = router.reroute(states, matching).states
        times.append(1e3 * (time.process_time() - started))
        toggles.append(int(((states >= 0) & (states != changed)).sum()))
        states = changed
    print(
        f"reroute, Benes(64), random permutations: median {np.median(times):.2f} ms, mean toggles"
        f" {np.mean(toggles[1:]):.1f}   bar 2 ms, 125"
    )


def show_decompositions() -> None:
    """Print `decompose` beside its kernel."""
    for n in (64, 128):
        matrix = permutation_sum(n, n * n, 0).astype(np.int64)
        terms = len(om.decompose(matrix).weights)
        arrays = np.empty((terms + 9, n), dtype=np.int32), np.empty(terms + 9, dtype=np.int64)
        ours = least_ms(lambda m=matrix: om.decompose(m), 50)

        def kernel(m: np.ndarray = matrix, a=arrays) -> None:
            peeling.peel_permutations(set_up(m), peeling.BOTTLENECK, 0, *a)

        alone = least_ms(kernel, 50)
        print(
            f"decompose, N = {n} dense: {terms} terms, {ours:.2f} ms, {ours / alone:.2f} of the"
            " kernel (bar 1.2)"
        )


def show_schedules(seeds: Iterable[int]) -> None:
    """Print `schedule` on Solstice traffic, 64 ports, 20 us."""
    om.schedule(traffic.solstice(64, np.random.default_rng(99)), 20e-6, time_limit_s=0.5)
    for noise in (0.0, 0.003):
        for limit_s, bar in ((0.002, 1.30), (0.005, 1.15), (0.05, 1.065)):
            ratios, times, again = [], [], []
            for seed in seeds:
                rng = np.random.default_rng(seed)
                demand = traffic.solstice(64, rng, noise=noise)
                found = [om.schedule(demand, 20e-6, time_limit_s=limit_s)]
                times.append(
                    least_ms(lambda d=demand, s=limit_s: om.schedule(d, 20e-6, time_limit_s=s))
                )
                ratios.append(found[0].completion_s / found[0].lower_bound_s)
                before = om.schedule(demand, 20e-6, time_limit_s=0.05)
                changes = rng.random(demand.shape) < 0.05
                demand = np.rint(np.where(changes, demand * 1.3, demand) * 1e9) / 1e9
                slots = om.schedule(demand, 20e-6, time_limit_s=limit_s, previous=before)
                again.append(slots.completion_s / slots.lower_bound_s)
            print(
                f"schedule, noise {noise:.1%}, {1e3 * limit_s:.0f} ms: {np.median(ratios):.3f} of"
                f" the bound, {np.median(times):.1f} ms of a processor   bar {bar}; 5 % changed,"
                f" previous given: {np.median(again):.3f}"
            )


def main() -> None:
    """Print all rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    show_routing(given.count)
    show_reroutes(given.count // 5)
    show_decompositions()
    show_schedules(range(given.seeds))


if __name__ == "__main__":
    main()

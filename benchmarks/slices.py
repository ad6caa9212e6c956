"""Slices of racks: exact allocation, and a pod of 64 racks.

    python benchmarks/slices.py [--seeds 12] [--requests 10000] [--time-limit 20]

Every answer of a method is verified before its row is printed.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from itertools import product

import defects  # noqa: F401 - they end the run
import numpy as np
from papers.racks import draw_arrivals

import optmatch as om
from optmatch.problems.slices.problem import draw_occupancy
from optmatch.problems.slices.shape import Shape
from optmatch.solvers.slices.pod import Pod

CROWDS: tuple[tuple[list[Shape], Shape], ...] = (
    ([(2, 2, 2)] * 3, (2, 2, 4)),
    ([(2, 2, 4), (2, 2, 2)], (2, 4, 4)),
    ([(2, 2, 4)] * 2, (2, 4, 4)),
    ([(2, 2, 4)] * 3, (2, 2, 4)),
    ([(2, 2, 4), (2, 2, 2), (2, 2, 2)], (2, 2, 4)),
)
"""Slices on random servers and routes of a rack, and the one that is asked for."""


def show_exact(seeds: int, limit: float) -> None:
    """Print how long ilp takes in crowded racks of 16 servers, and what it proves."""
    print(
        "one rack of 16 servers, slices on random servers and routes; ilp, and optical beside it"
    )
    om.solve(om.SliceAllocation(om.RackFabric(), (2, 2, 4)), "ilp", seed=0)
    times_of_all = []
    for fibres in (8, 4):
        fabric = om.RackFabric(fibres=fibres)
        for shapes, wanted in CROWDS:
            times, found, same, by_cut = [], Counter[str](), 0, 0
            for seed in range(seeds):
                placed = draw_occupancy(fabric, shapes, np.random.default_rng(seed))
                problem = om.SliceAllocation(fabric, wanted, placed=placed)
                exact = om.solve(problem, "ilp", seed=0, time_limit_s=limit)
                quick = om.solve(problem, "optical", seed=0)
                times.append(exact.time_s)
                found[exact.status.value] += 1
                same += quick.objective == exact.objective
                by_cut += exact.proof != "search"
            times_of_all += times
            print(
                f"  {fibres} fibres, {len(shapes)} slices, then {'x'.join(map(str, wanted))}:"
                f" median {1e3 * np.median(times):.0f} ms, slowest {max(times):.2f} s;"
                f" {dict(found)}, {by_cut} without a search; optical as good in {same} of {seeds}",
                flush=True,
            )
    print(f"  all: median {1e3 * np.median(times_of_all):.0f} ms of {len(times_of_all)}")


def show_pod(requests: int) -> None:
    """Print how long so many requests take on 4,096 chips, within racks and in joined ones."""
    for joined, load in product((False, True), (0.8, 1.0)):
        fabric = om.RackFabric(racks=64, joined=joined)
        pod, live, times, placed = Pod(fabric), list[tuple[float, om.Allocation]](), [], 0
        spans, hops = [], []
        for arrival in draw_arrivals(fabric, requests, np.random.default_rng(0), load):
            for _, slice_ in [entry for entry in live if entry[0] <= arrival.time]:
                pod.remove(slice_)
            live = [entry for entry in live if entry[0] > arrival.time]
            started = time.perf_counter()
            found = pod.allocate(arrival.shape, "optical")
            times.append(time.perf_counter() - started)
            if found is not None:
                last, others = found, tuple(slice_ for _, slice_ in live)
                live.append((arrival.time + arrival.duration, found))
                placed += 1
                if len(racks := np.unique(found.servers // pod.servers)) > 1:
                    spans.append(len(racks))
                    hops.append(np.mean([len(route) - 1 for route in found.routes]))
        report = om.verify(om.SliceAllocation(fabric, last.shape, placed=others), last)
        assert report.valid, report
        print(
            f"pod of 64 {'joined ' if joined else ''}racks, load {load}: {requests} requests in"
            f" {sum(times):.1f} s, median {1e3 * np.median(times):.2f} ms, 99.9 %"
            f" {1e3 * np.quantile(times, 0.999):.1f} ms;"
            f" {placed} placed",
            flush=True,
        )
        if spans:
            print(
                f"  {len(spans)} on several racks: {np.mean(spans):.2f} on average, at most"
                f" {max(spans)}; {np.mean(hops):.2f} hops from slot to slot"
            )


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--time-limit", type=float, default=20.0)
    chosen = parser.parse_args()
    show_exact(chosen.seeds, chosen.time_limit)
    show_pod(chosen.requests)


if __name__ == "__main__":
    main()

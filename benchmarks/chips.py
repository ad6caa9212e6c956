"""The worst circuit on chips that differ from cell to cell: losses, crosstalk, times.

    python benchmarks/chips.py [MATCHINGS]

9x9 hexagons with 32 ports, losses of SmartLight with a deviation of 0.1 dB, extinctions between 20
and 30 dB, random matchings of all ports. Times are those of the process.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

import defects  # noqa: F401 - they end the run
import numpy as np

import optmatch as om
from optmatch.model import CellDevice


def draw_chip(n_cells: int, seed: int) -> CellDevice:
    """Draw the cells of one chip."""
    sigmas = {"bar_loss_db": 0.1, "cross_loss_db": 0.1}
    chip = CellDevice.of("smartlight", n_cells).draw(sigmas, seed)
    rng = np.random.default_rng(seed)
    bar, cross = rng.uniform(20, 30, (2, n_cells))
    return replace(chip, bar_extinction_db=bar, cross_extinction_db=cross)


def draw_matching(ports: int, rng: np.random.Generator) -> list[int]:
    """Pair all ports at random."""
    matching = np.empty(ports, dtype=int)
    pairs = rng.permutation(ports).reshape(-1, 2)
    matching[pairs] = pairs[:, ::-1]
    return [int(port) for port in matching]


def main(count: int) -> None:
    """Print medians over all matchings, and the all-to-all."""
    mesh = om.HexMesh(9, 9, ports=32)
    chip, rng = draw_chip(mesh.n_cells, 0), np.random.default_rng(1)
    matchings = [draw_matching(32, rng) for _ in range(count)]
    beyond, gained, gained_by_router = [], [], []
    routers: dict[Any, om.Router] = {None: om.Router(mesh)}
    objectives: tuple[Any, ...] = ("worst-loss-db", "worst-snr-db")
    routers |= {name: om.Router(mesh, prefer=name, cells=chip) for name in objectives}
    times = {}
    for name, router in routers.items():
        router.route(matchings[0])
        start = time.process_time()
        for matching in matchings:
            router.route(matching)
        times[name] = (time.process_time() - start) / count
    start = time.process_time()
    for matching in matchings:
        loss, snr = (om.Routing(mesh, matching, objective=name, cells=chip) for name in objectives)
        least = om.solve(loss, seed=0)
        beyond.append(least.objective - loss.lower_bound())  # type: ignore[operator]
        short = om.solve(om.Routing(mesh, matching), seed=0)
        ratios = [
            om.verify(snr, schedule).figures["worst_snr_db"]
            for schedule in (om.solve(snr, seed=0).schedule, short.schedule)
        ]
        gained.append(ratios[0] - ratios[1])
        states = [routers[name].route(matching).states for name in ("worst-snr-db", None)]
        by_router = [
            om.verify(
                snr,
                om.Schedule(
                    matchings=np.array([matching], dtype=np.int32),
                    durations_s=np.ones(1),
                    cell_states=row[None],
                ),
            ).figures["worst_snr_db"]
            for row in states
        ]
        gained_by_router.append(by_router[0] - by_router[1])
    print(f"{count} matchings, {time.process_time() - start:.0f} s")
    middle, most = np.median(beyond), max(beyond)
    print(f"worst loss beyond its bound: median {middle:.3f}, largest {most:.3f} dB")
    for what, gains in (("solve", gained), ("Router", gained_by_router)):
        better = int((np.array(gains) > 0).sum())
        print(f"worst SNR by {what}: median {np.median(gains):+.2f} dB, better in {better}")
    for name in objectives:
        print(f"Router, {name}: {times[name] / times[None]:.2f} times {1e3 * times[None]:.3f} ms")
    problem = om.AllToAll(mesh, objective="worst-loss-db", cells=chip)
    plan = om.solve(problem, seed=0)
    print(f"all pairs: {plan.objective:.3f} dB, bound {plan.lower_bound:.3f}, {plan.status.value}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)

"""Cells of collectives, drawn from the whole product of what a problem may say, and races."""

import time
from collections.abc import Callable, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import optmatch as om
from optmatch.problems.collectives.fields import OPERATIONS
from tests.rivals.collectives import exchanges, forwarding, graphs, rings
from tests.rivals.races import Race, describe

RIVALS: dict[str, Callable[[om.Collective], float]] = {
    "ring": rings.ring_s,
    "duplex ring": rings.duplex_ring_s,
    "duplex path": rings.duplex_path_s,
    "windowed ring": rings.windowed_ring_s,
    "torus": rings.torus_s,
    "de Bruijn": graphs.de_bruijn_s,
    "Kautz": graphs.kautz_s,
    "tree": graphs.tree_s,
    "doubling": exchanges.doubling_s,
    "folded doubling": exchanges.folded_doubling_s,
    "gossip in pairs": exchanges.gossip_pairs_s,
    "hypercube broadcast": exchanges.hypercube_broadcast_s,
    "Bruck": exchanges.bruck_s,
    "circulant": exchanges.circulant_s,
    "greedy matchings": exchanges.greedy_matchings_s,
    "forwarding": forwarding.forwarding_s,
    "held rings": forwarding.held_rings_s,
}
"""Every rival of collectives without islands, by its name."""

NOT_DRAWN = {"steps", "fabric"}
"""Fields of the kind that cells leave at their defaults: rivals have nothing to choose where the
steps are given, and know no switches of cells."""

RANKS = (2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 36, 48, 63, 64, 81, 96, 100, 127, 128)
MANY_RANKS = (192, 256, 257, 384, 512, 1000, 1024)
TIME_LIMIT_S = 8.0
"""Our solver has so long for a cell; rivals take seconds at most."""


def draw_cells(
    rng: np.random.Generator, count: int, most_ranks: int = 1024
) -> Iterator[om.Collective]:
    """Draw so many problems of `most_ranks` at most."""
    for _ in range(count):
        yield _draw_cell(rng, most_ranks)


def _draw_cell(rng: np.random.Generator, most_ranks: int) -> om.Collective:
    operation = OPERATIONS[int(rng.integers(len(OPERATIONS)))]
    sizes = [n for n in RANKS if n <= most_ranks]
    many = [n for n in MANY_RANKS if n <= most_ranks and (n <= 256 or operation != "all-to-all")]
    n = int(rng.choice(many if many and rng.random() < 0.15 else sizes))
    settings: dict[str, Any] = {
        "alpha_s": float(rng.choice([1e-7, 1.7e-6, 2.7e-6, 1e-5])),
        "delay_s": float(rng.choice([0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1.0])),
        "rate_bytes_per_s": float(rng.choice([1e9, 50e9])),
        "start": str(rng.choice(["free", "free", "dark"])),
    }
    if rng.random() < 0.1 and operation != "broadcast":
        islands = [g for g in (2, 4, 8) if n % g == 0]
        if islands:
            settings["island_alpha_s"] = float(rng.choice([0.0, 1e-6]))
            settings["island_rate_bytes_per_s"] = float(rng.choice([50e9, 450e9]))
            return om.Collective(
                operation, n, _draw_bytes(rng), island=int(rng.choice(islands)), **settings
            )
    settings["ports"] = int(rng.choice([1, 1, 1, 2, 2, 3, 4, 6, 8]))
    settings["planes"] = int(rng.choice([1, 1, 1, 1, 2]))
    settings["two_way"] = bool(rng.random() < 0.5)
    if rng.random() < 0.3:
        settings["hop_s"] = float(rng.choice([0.0, 1e-7, 1e-6]))
    if rng.random() < 0.1:
        settings["align_bytes"] = int(rng.choice([16, 4096]))
    if operation == "broadcast":
        settings["root"] = int(rng.integers(n))
    if rng.random() < 0.1 and not settings["two_way"]:
        lanes = settings["ports"] * settings["planes"]
        settings["start"] = np.tile((np.arange(n) + 1) % n, (lanes, 1))
    late = rng.choice(n, min(n - 1, int(rng.choice([0, 0, 0, 1, 3]))), replace=False)
    settings["late_s"] = {int(rank): float(rng.choice([1e-5, 1e-3])) for rank in late}
    if operation == "all-to-all" and n > 2 and rng.random() < 0.3:
        return om.Collective(operation, n, 0.0, demand_bytes=_draw_skew(rng, n), **settings)
    return om.Collective(operation, n, _draw_bytes(rng), **settings)


def _draw_bytes(rng: np.random.Generator) -> float:
    return float(rng.choice([64.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9]))


def _draw_skew(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Spread the bytes of each rank over the others by Zipf, in an order of its own."""
    weights = 1.0 / np.arange(1, n)
    demand = np.zeros((n, n))
    for rank in range(n):
        others = np.delete(np.arange(n), rank)
        demand[rank, others] = rng.permutation(weights) / weights.sum()
    return demand * _draw_bytes(rng)


def draw_forwarding_cells() -> Iterator[om.Collective]:
    """List cells whose data are forwarded inside rounds, over circuits that never change."""
    shapes = [(6, 64.0), (8, 1e5), (12, 1e3), (16, 1e4), (24, 700.0), (31, 64.0), (32, 1e5)]
    ports_of_cell: list[dict[str, Any]] = [{}, {"ports": 2}, {"ports": 4, "two_way": True}]
    hops = (0.0, 1e-7, 1e-6)
    for number, operation in enumerate(OPERATIONS):
        for turn, (hop_s, ports) in enumerate(product(hops, ports_of_cell)):
            for place in range(3):
                n, size = shapes[(number + turn + 2 * place) % len(shapes)]
                costs: dict[str, Any] = {"alpha_s": 2.7e-6, "delay_s": 1e-2}
                costs["rate_bytes_per_s"] = 1e9
                yield om.Collective(operation, n, size, hop_s=hop_s, **costs, **ports)


def race(problem: om.Collective) -> Race:
    """Solve a problem, and let all rivals try it."""
    began_s = time.process_time()
    # Limits count the time of this process, so that a busy machine changes nothing.
    clock = SimpleNamespace(perf_counter=time.process_time)
    with mock.patch("optmatch.model.limits.time", clock):
        ours = om.solve(problem, limits=om.Limits(time_s=TIME_LIMIT_S), seed=0).objective
    cpu_s = time.process_time() - began_s
    # A rival that knows neither late ranks nor circuits that are there waits for both.
    is_free = isinstance(problem.start, str) and problem.start == "free"
    wait_s = max(problem.late.max(), 0.0 if is_free else problem.delay_s)
    times_s = {
        name: rival(problem) + wait_s for name, rival in RIVALS.items() if problem.island == 1
    }
    best = min(times_s, key=lambda name: times_s[name], default="none")
    rival_s = float(times_s.get(best, np.inf))
    return Race(describe(problem), np.inf if ours is None else ours, rival_s, best, cpu_s)

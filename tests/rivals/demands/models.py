"""Twelve models of traffic, each as ``draw(n, rng)``: seconds of circuit time, float64 (n, n)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from optmatch.problems.demands.traffic import MODELS

Matrix = NDArray[np.float64]
Rng = np.random.Generator


def ring_stencil(n: int, rng: Rng) -> Matrix:
    """Each port sends one unit to those 1, 2 and 3 places away on a ring, both ways."""
    demand = np.zeros((n, n))
    for shift in (1, 2, 3, -1, -2, -3):
        demand[np.arange(n), (np.arange(n) + shift) % n] += 1e-3
    np.fill_diagonal(demand, 0.0)
    return demand


def grid_stencil(n: int, rng: Rng) -> Matrix:
    """Halo exchange with the neighbours of a grid, whole milliseconds that differ."""
    side = max(1, int(np.sqrt(n)))
    demand = np.zeros((n, n))
    for shift in (1, -1, side, -side):
        demand[np.arange(n), (np.arange(n) + shift) % n] += rng.integers(1, 10, size=n)
    np.fill_diagonal(demand, 0.0)
    return demand / 1e3


def pareto(n: int, rng: Rng) -> Matrix:
    """Heavy tails: Pareto with the exponent 1.1 between all ports."""
    demand = np.ceil((1.0 + rng.pareto(1.1, size=(n, n))) * 1e3) / 1e9
    np.fill_diagonal(demand, 0.0)
    return demand


def few_permutations(n: int, rng: Rng) -> Matrix:
    """Mix sixteen permutations with different weights."""
    demand = np.zeros((n, n))
    for weight in rng.integers(1, 10_000, size=16).tolist():
        demand[np.arange(n), rng.permutation(n)] += weight
    return demand / 1e6


def experts(n: int, rng: Rng) -> Matrix:
    """Tokens to popular experts, 4 KB each at 12.5 GB/s."""
    return MODELS["zipf-moe"](n, rng, top=min(2, n)) / 12.5e9


def incast(n: int, rng: Rng) -> Matrix:
    """Everybody sends to few ports."""
    demand = np.zeros((n, n))
    targets = rng.permutation(n)[: max(1, n // 16)]
    demand[:, targets] = rng.integers(1, 1000, size=(n, len(targets)))
    return demand / 1e6


def sparse_flows(n: int, rng: Rng) -> Matrix:
    """Eight flows of a port to random ports, floats."""
    demand = np.zeros((n, n))
    for _ in range(8):
        demand[np.arange(n), rng.permutation(n)] += rng.exponential(1e-3, size=n)
    return demand


def _scaled(name: str, per_s: float) -> Callable[[int, Rng], Matrix]:
    return lambda n, rng: MODELS[name](n, rng) / per_s


DRAWS: dict[str, Callable[[int, Rng], Matrix]] = {
    "ring stencil": ring_stencil,
    "grid stencil": grid_stencil,
    "pareto": pareto,
    "16 permutations": few_permutations,
    "experts": experts,
    "incast": incast,
    "sparse flows": sparse_flows,
    "uniform": _scaled("uniform", 1e6),
    "permutations": _scaled("permutations", 1e6),
    "gravity": _scaled("gravity", 1e5),
    "solstice": lambda n, rng: MODELS["solstice"](n, rng),
    "noisy solstice": lambda n, rng: MODELS["solstice"](n, rng, noise=0.003),
}

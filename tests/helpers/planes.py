"""The least completion time by trying everything: planes, circuits that go on, packets."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

import optmatch as om


def draw_small(rng: np.random.Generator) -> om.Demand:
    """Draw a demand of up to three ports with any planes, switching and packet network."""
    n = int(rng.choice([1, 2, 2, 3, 3]))
    planes = int(rng.choice([1, 1, 2]))
    per_circuit = bool(rng.random() < 0.35)
    most = {1: 12, 2: 9 if planes == 1 else 6}.get(n, 5 if planes == 1 and not per_circuit else 3)
    matrix = rng.integers(0, most + 1, (n, n)) * (rng.random((n, n)) < 0.85)
    return om.Demand.from_matrix(
        matrix,
        delay_s=float(rng.integers(0, 4)),
        planes=planes,
        switching="per-circuit" if per_circuit else "all-stop",
        packet_bytes_per_s=float(rng.choice([0.0, 0.25, 0.5, 0.5, 1.0, 1.5, 0.3])),
        min_slot_s=float(rng.choice([0, 0, 0, 2])),
        quantum_s=1.0,
    )


def earliest(problem: om.Demand, most: int) -> float:
    """Try all plans of all planes that end by a time; packets take what they leave.

    A plan holds permutations: circuits without demand do no harm.
    """
    wanted = problem.directed_ticks.reshape(-1)
    goes_on = problem.switching == "per-circuit" and problem.delay_ticks > 0
    held, ends = (_hold_in_order if goes_on else _hold)(problem, wanted, most)
    best = np.inf
    if problem.planes == 1:
        return _least(problem, wanted - held, ends)
    assert problem.planes == 2
    for one, end in zip(held, ends, strict=True):
        if end < best:
            best = min(best, _least(problem, wanted - one - held, np.maximum(ends, end)))
    return best


def _least(problem: om.Demand, left: NDArray[Any], ends: NDArray[Any]) -> float:
    """Return the first end of rows of what circuits leave of each pair."""
    n, share = problem.fabric.n_ports, problem.packet_share
    rest = np.maximum(left, 0).reshape(-1, n, n)
    lines = np.maximum(rest.sum(axis=1).max(axis=1), rest.sum(axis=2).max(axis=1))
    packets = lines / share if share else np.where(lines > 0, np.inf, 0.0)
    return float(np.maximum(packets, ends).min())


def _rows(n: int) -> NDArray[Any]:
    """List permutations as rows over all pairs."""
    return np.array(
        [np.eye(n, dtype=int)[list(row)].reshape(-1) for row in itertools.permutations(range(n))]
    )


def _hold(problem: om.Demand, wanted: NDArray[Any], most: int) -> tuple[Any, Any]:
    """Every permutation lasts as long as it may, or is left out; the order does not matter."""
    rows, shortest = _rows(problem.fabric.n_ports), problem.min_slot_ticks
    longest = max(int(wanted.max(initial=0)), shortest)
    held, ends = np.zeros((1, len(wanted)), dtype=int), np.zeros(1, dtype=int)
    for row in rows:
        more = [(held, ends)]
        for ticks in range(shortest, longest + 1):
            later = ends + problem.delay_ticks + ticks
            more.append((held[later <= most] + ticks * row, later[later <= most]))
        held, ends = (np.concatenate(parts) for parts in zip(*more, strict=True))
    return _best_only(np.minimum(held, wanted), ends)


def _hold_in_order(problem: om.Demand, wanted: NDArray[Any], most: int) -> tuple[Any, Any]:
    """Go on tick by tick: the same permutation for one more, or another one after a delay."""
    rows = [tuple(row) for row in _rows(problem.fabric.n_ports).tolist()]
    need, delay, shortest = wanted.tolist(), problem.delay_ticks, problem.min_slot_ticks
    nothing = tuple(0 for _ in need)
    at: list[set[Any]] = [set() for _ in range(most + 1)]
    at[0].add((nothing, nothing))  # the permutation that is held, and what each pair has had
    for end, states in enumerate(at):
        for before, held in states:
            for row in rows:
                steps = (1, 0) if row == before else (shortest, delay)
                later = end + sum(steps)
                if later <= most:
                    had = (
                        min(w, h + steps[0] * r + steps[1] * r * b)
                        for w, h, r, b in zip(need, held, row, before, strict=True)
                    )
                    at[later].add((row, tuple(had)))
    pairs = [(held, end) for end, states in enumerate(at) for _, held in states]
    return _best_only(np.array([held for held, _ in pairs]), np.array([end for _, end in pairs]))


def _best_only(held: NDArray[Any], ends: NDArray[Any]) -> tuple[Any, Any]:
    """Keep the earliest end of each row."""
    order = np.argsort(ends, kind="stable")
    kept, first = np.unique(held[order], axis=0, return_index=True)
    return kept, ends[order][first]

"""Rivals that a user would otherwise take: other packages, and published models in brief."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np
from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model
from scipy.optimize import linear_sum_assignment

import optmatch as om


def decompose_by_scipy(matrix: np.ndarray) -> int:
    """Count the terms of a max-weight decomposition in a few lines on SciPy."""
    rest, rows, terms = matrix.astype(np.float64), np.arange(len(matrix)), 0
    closed = -matrix.sum().astype(np.float64)
    while rest.any():
        _, columns = linear_sum_assignment(np.where(rest > 0, rest, closed), maximize=True)
        rest[rows, columns] -= rest[rows, columns].min()
        terms += 1
    return terms


def decompose_by_networkx(matrix: np.ndarray) -> int:
    """Count the terms of a decomposition by any perfect matching, found by Hopcroft and Karp."""
    rest, rows, terms = matrix.copy(), np.arange(len(matrix)), 0
    while rest.any():
        graph = nx.Graph((i, len(rest) + j) for i, j in np.argwhere(rest).tolist())
        matching = nx.bipartite.hopcroft_karp_matching(graph, rows.tolist())
        columns = np.array([matching[i] - len(rest) for i in rows.tolist()])
        rest[rows, columns] -= rest[rows, columns].min()
        terms += 1
    return terms


def decompose_by_birkhoff(matrix: np.ndarray) -> int:
    """Run the package `birkhoff` 0.0.5, repaired, and count its terms.

    Three repairs: networkx 3 has no `from_numpy_matrix`, NumPy 2 no `np.float`, and a list of
    tuples is no index of single entries any more.
    """
    nx.from_numpy_matrix = nx.from_numpy_array
    setattr(np, "float", float)  # noqa: B010 (ruff takes the assignment for a use of the alias)
    import birkhoff

    def to_permutation_matrix(matches: dict[int, int]) -> np.ndarray:
        found = np.zeros((len(matches), len(matches)))
        found[list(matches), list(matches.values())] = 1
        return found

    birkhoff.to_permutation_matrix = to_permutation_matrix
    return len(birkhoff.birkhoff_von_neumann_decomposition(matrix))


def route_by_labels(problem: om.Routing, limit_s: float = 120.0) -> bool:
    """Find a routing by CP-SAT, a label for each link and a state for each cell, on one thread.

    This rival is the model that one writes first.
    """
    graph = problem.fabric.graph
    link = graph.links.of_terminal
    model = cp_model.CpModel()
    circuits = problem.circuits
    labels = [model.new_int_var(0, len(circuits), "") for _ in range(graph.links.count)]
    ends = dict.fromkeys(graph.perimeter.tolist(), 0)
    for k, (i, j) in enumerate(circuits):
        ends[int(problem.fabric.source_terminals[i])] = k + 1
        ends[int(problem.fabric.destination_terminals[j])] = k + 1
    for terminal, label in ends.items():
        model.add(labels[link[terminal]] == label)
    for cell in range(graph.n_cells):
        a1, a2, b1, b2 = (labels[link[4 * cell + k]] for k in range(4))
        cross = model.new_bool_var("")
        for first, second, state in (
            (a1, b1, ~cross),
            (a2, b2, ~cross),
            (a1, b2, cross),
            (a2, b1, cross),
        ):
            model.add(first == second).only_enforce_if(state)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = limit_s
    return solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)


def overlap_by_swot(
    configurations: Sequence[int],
    megabytes: Sequence[float],
    *,
    planes: int,
    rate_bytes_per_s: float,
    delay_s: float,
    alpha_s: float,
) -> float:
    """Return the time by the released model of SWOT (arXiv:2510.19322), solved by SCIP.

    A plane needs new circuits where the configuration differs from that of the step before, not
    from its own: what is found may be too slow, or impossible. The first circuits cost time.
    """
    solver = pywraplp.Solver.CreateSolver("SCIP")
    works = [size * 1e6 / rate_bytes_per_s for size in megabytes]
    horizon = sum(works) + len(works) * (delay_s + alpha_s)
    ended = [0.0] * planes
    step_end, previous = 0.0, None
    for configuration, work in zip(configurations, works, strict=True):
        end, shares = solver.NumVar(0, horizon, ""), []
        for plane in range(planes):
            share, start = solver.NumVar(0, work, ""), solver.NumVar(0, horizon, "")
            used, rewired = solver.BoolVar(""), solver.BoolVar("")
            solver.Add(share <= work * used)
            solver.Add(rewired <= used)
            if configuration != previous:
                solver.Add(rewired >= used)
            solver.Add(start >= ended[plane] + delay_s * rewired)
            solver.Add(start >= step_end - horizon * (1 - used))
            done = solver.NumVar(0, horizon, "")
            solver.Add(done == start + share + alpha_s * used)
            solver.Add(end >= done)
            ended[plane] = done
            shares.append(share)
        solver.Add(sum(shares) == work)
        step_end, previous = end, configuration
    solver.Minimize(step_end)
    assert solver.Solve() == pywraplp.Solver.OPTIMAL
    return float(solver.Objective().Value())


def rounds_by_stragglar(n: int) -> int:
    """Count the rounds of StragglAR's schedule (arXiv:2505.23523) for even n, no power of two.

    In round r rank r exchanges chunk r with the late rank. All others are paired by a matching of
    networkx of the most copies that are of use; who is paired sends its lowest chunk that the
    other lacks, after the exchanges the highest.
    """
    late, doubling = n - 1, (n - 1).bit_length()
    held: list[set[int]] = [set() for _ in range(n)]
    rounds = 0
    while sum(map(len, held)) < n * (n - 1):
        exchanging = rounds < late
        free = set(range(n)) - ({rounds, late} if exchanging else set())
        gains: list[tuple[int, int]] = [(rounds, k) for k in (rounds, late) if exchanging]
        if 0 < rounds < doubling:  # a place of its own for the chunk that has just come
            free -= {rounds - 1, rounds - 1 + doubling}
            gains.append((rounds - 1, rounds - 1 + doubling))
        graph = nx.Graph()
        order = sorted(free)
        for k, a in enumerate(order):
            for b in order[k + 1 :]:
                useful = bool(held[a] - held[b]) + bool(held[b] - held[a])
                if useful:
                    graph.add_edge(a, b, weight=useful)
        choose = min if exchanging else max
        for a, b in nx.max_weight_matching(graph, maxcardinality=True):
            for source, target in ((a, b), (b, a)):
                if held[source] - held[target]:
                    gains.append((choose(held[source] - held[target]), target))
        for chunk, rank in gains:
            held[rank].add(chunk)
        rounds += 1
    return rounds

"""Routing of single random matchings: time, success, proofs, and a CP-SAT model to compare with.

    python benchmarks/one_matching.py [--count 1000] [--rows 9] [--cols 9] [--ports 32] [--seed 0]

`negotiated` is timed as users call it (`om.solve`, verified) and as a scheduler could (the router
alone, one negotiation). What it does not route goes to `ilp`, which routes it or proves that
nobody can. The baseline gives each link a label and each cell a state: the model one writes first.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from ortools.sat.python import cp_model

import optmatch as om
from optmatch.solvers.routing.negotiation import Negotiation


def random_matchings(ports: int, count: int, seed: int) -> list[np.ndarray]:
    """Draw perfect matchings of an even number of ports."""
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(count):
        order = rng.permutation(ports)
        matching = np.empty(ports, dtype=np.int64)
        matching[order[0::2]], matching[order[1::2]] = order[1::2], order[0::2]
        drawn.append(matching)
    return drawn


def route_by_labels(problem: om.Routing, limit_s: float) -> bool:
    """Find a routing by CP-SAT: a label for each link, a state for each cell."""
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
    solver.parameters.num_workers = 2
    solver.parameters.max_time_in_seconds = limit_s
    return solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=9)
    parser.add_argument("--cols", type=int, default=9)
    parser.add_argument("--ports", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--labels", type=int, default=5, help="matchings for the label model")
    parser.add_argument("--proofs", type=int, default=100, help="matchings to prove optimal")
    args = parser.parse_args()
    fabric = om.HexMesh(args.rows, args.cols, ports=args.ports)
    problems = [
        om.Routing(fabric, m) for m in random_matchings(fabric.n_ports, args.count, args.seed)
    ]
    om.solve(problems[0], "negotiated", seed=0)
    print(f"{args.count} random matchings of {fabric}, seed {args.seed}")

    rng = np.random.default_rng(args.seed)
    alone, first_try = [], 0
    for problem in problems:
        negotiation = Negotiation(problem)
        started = time.perf_counter()
        first_try += negotiation.attempt(0, rng) is not None
        alone.append(1e3 * (time.perf_counter() - started))
    print_times("negotiated, router alone, one negotiation", alone)
    print(f"  routed at the first try: {first_try} of {args.count}")

    whole, inside, unrouted, total, least = [], [], [], 0.0, 0.0
    for problem in problems:
        started = time.perf_counter()
        solution = om.solve(problem, "negotiated", seed=args.seed, limits=om.Limits(iterations=1))
        if solution.schedule is None:
            solution = om.solve(problem, "negotiated", seed=args.seed)
        whole.append(1e3 * (time.perf_counter() - started))
        inside.append(1e3 * solution.time_s)
        if solution.schedule is None:
            unrouted.append(problem)
        else:
            total, least = total + solution.objective, least + problem.lower_bound()
    print_times("negotiated, om.solve until routed, verified", whole)
    print_times("  of it the method, without verification", inside)
    routed = args.count - len(unrouted)
    print(f"  routed: {routed} of {args.count}, cells over shortest {total / least:.4f}")
    for problem in unrouted:
        proof = om.solve(problem, "ilp", seed=args.seed, time_limit_s=60)
        print(f"  not routed by negotiated; ilp: {proof.status.value}, by {proof.proof}")

    times, cases, optimal = [], [], 0
    for problem in problems[: args.proofs]:
        solution = om.solve(problem, "ilp", seed=args.seed, time_limit_s=60)
        times.append(1e3 * solution.time_s)
        cases.append(solution.stats.get("cases", 1))
        optimal += solution.status is om.Status.OPTIMAL and solution.proof != "search"
    print_times("ilp to a checked proof", times)
    print(f"  optimal: {optimal} of {len(times)}, at the root {sum(c == 1 for c in cases)}")

    labelled = []
    for problem in problems[: args.labels]:
        started = time.perf_counter()
        found = route_by_labels(problem, 120.0)
        labelled.append(1e3 * (time.perf_counter() - started))
        if not found:
            print("  label model: nothing within 120 s")
    print_times("CP-SAT with a label per link, to a first routing", labelled)
    print(f"  ratio of medians to the router alone: {np.median(labelled) / np.median(alone):,.0f}")
    print(
        f"  ratio of medians to the method:       {np.median(labelled) / np.median(inside):,.0f}"
    )
    print(f"  ratio of medians to om.solve:         {np.median(labelled) / np.median(whole):,.0f}")


def print_times(what: str, times_ms: list[float]) -> None:
    """Print median and 99th percentile."""
    low, high = np.median(times_ms), np.percentile(times_ms, 99)
    print(f"{what}: median {low:.3g} ms, 99th percentile {high:.3g} ms")


if __name__ == "__main__":
    main()

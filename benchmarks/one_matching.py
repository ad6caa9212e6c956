"""Routing of single random matchings: time, success, proofs.

    python benchmarks/one_matching.py [--count 1000] [--rows 9] [--cols 9] [--ports 32] [--seed 0]

`negotiated` is timed as users call it (`om.solve`, verified) and as a scheduler could (the router
alone, one negotiation). A matching that this way does not route goes to `ilp`, which routes it or
proves that no routing exists.
"""

from __future__ import annotations

import argparse
import time

import defects  # noqa: F401 - they end the run
import numpy as np

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


def print_times(what: str, times_ms: list[float]) -> None:
    """Print median and 99th percentile."""
    low, high = np.median(times_ms), np.percentile(times_ms, 99)
    print(f"{what}: median {low:.3g} ms, 99th percentile {high:.3g} ms")


if __name__ == "__main__":
    main()

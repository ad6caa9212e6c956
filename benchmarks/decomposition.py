"""Kernels of decompositions: terms, times, scaling and memory.

    python benchmarks/decomposition.py [--runs 5] [--seeds 3] [--large] [--listed]
        [--qoblib FOLDER]

All matrices are sums of random permutations with weights 1 .. 1000 (`sparse`: 2 N of them,
`dense`: N squared). Every decomposition is added up again before its row is printed. A time is the
least of `--runs` runs, a row the median over seeds.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
from scipy import sparse

import optmatch as om
from optmatch.control.demands.schedules import Permutations
from optmatch.solvers.demands.birkhoff import decompose, stuff


def permutation_sum(n: int, count: int, seed: int) -> np.ndarray:
    """Add up random permutations with random weights."""
    rng = np.random.default_rng(seed)
    matrix = np.zeros((n, n), dtype=np.int64)
    for _ in range(count):
        matrix[np.arange(n), rng.permutation(n)] += rng.integers(1, 1001)
    return matrix


def add_up(terms: Permutations) -> np.ndarray:
    """Return the matrix that permutations with weights are worth."""
    n = terms.permutations.shape[1]
    matrix = np.zeros((n, n), dtype=np.int64)
    np.add.at(matrix, (np.arange(n), terms.permutations), terms.weights[:, None])
    return matrix


def least_ms(runs: int, work: Callable[[], object]) -> float:
    """Return the time of the fastest of some runs."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return 1e3 * min(times)


def least_cpu_ms(runs: int, work: Callable[[], object]) -> float:
    """Return the time of the processor of the fastest of some runs."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return 1e3 * min(times)


def measure(matrix: np.ndarray, rule: str, runs: int) -> tuple[int, float]:
    """Return the terms of a decomposition, checked, and the time."""
    terms = decompose(matrix, rule)
    assert np.array_equal(terms.total(), matrix)
    assert not terms.residual.any()
    return len(terms.weights), least_ms(runs, lambda: decompose(matrix, rule))


def show_rules(runs: int, seeds: int) -> None:
    """Print terms and times by rule, kind and size, and the exponent of the time."""
    bars = {32: (156, 4, 1), 64: (291, 20, 8), 128: (550, 150, 60)}
    for rule in ("bottleneck", "first"):
        decompose(permutation_sum(4, 8, 0), rule)
        for kind, power in (("dense", 2), ("sparse", 1)):
            sizes, medians = (16, 32, 64, 128), []
            for n in sizes:
                count = n * n if power == 2 else 2 * n
                rows = [measure(permutation_sum(n, count, k), rule, runs) for k in range(seeds)]
                terms, ms = np.median(rows, axis=0)
                medians.append(ms)
                bar = ""
                if (rule, kind) == ("bottleneck", "dense") and n in bars:
                    most, good, better = bars[n]
                    bar = f"   bar {most} terms, {good} ms; beyond {better} ms"
                each = 1e3 * ms / terms
                print(
                    f"{rule:10} {kind:6} N={n:<4} {terms:6.0f} terms {ms:8.2f} ms"
                    f" {each:6.2f} us each{bar}"
                )
            slope = np.polyfit(np.log(sizes), np.log(medians), 1)[0]
            print(f"{rule:10} {kind:6} time ~ N^{slope:.1f}")


def show_small_weights(runs: int) -> None:
    """Print times for sums of permutations that count once each."""
    rng = np.random.default_rng(0)
    for n, k in ((64, 16), (128, 128), (256, 256), (512, 511), (512, 512)):
        matrix = np.zeros((n, n), dtype=np.int64)
        for _ in range(k):
            matrix[np.arange(n), rng.permutation(n)] += 1
        terms = decompose(matrix)
        assert np.array_equal(terms.total(), matrix)
        ms = least_ms(runs, lambda given=matrix: decompose(given))
        bar = "   bar 120 ms; beyond 40 ms" if k == 512 else ""
        print(f"sum of k={k}, N={n}: {len(terms.weights)} terms {ms:.2f} ms{bar}")


def show_stuffing(runs: int) -> None:
    """Print the time of stuffing."""
    rng = np.random.default_rng(0)
    matrix = rng.integers(1, 1000, (128, 128)) * (rng.random((128, 128)) < 0.3)
    new = np.count_nonzero(stuff(matrix)) - np.count_nonzero(matrix)
    ms = least_ms(runs, lambda: stuff(matrix))
    print(f"stuff, N=128, 30 % full: {new} new entries {ms:.2f} ms")


def show_large() -> None:
    """Print time and memory of large decompositions, each in a process of its own."""
    for n, count, rule in (
        (512, 512**2, "bottleneck"),
        (512, 512**2, "first"),
        (1024, 16, "bottleneck"),
        (1024, 16, "first"),
        (1024, 2048, "bottleneck"),
    ):
        command = [sys.executable, __file__, "--one", str(n), str(count), rule]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(done.stdout.strip() + "   bar 30 s, 2 GiB")


def run_one(n: int, count: int, rule: str) -> None:
    """Decompose one matrix and print what it took."""
    matrix = permutation_sum(n, count, 0)
    decompose(permutation_sum(4, 8, 0), rule)
    started = time.perf_counter()
    terms = decompose(matrix, rule)
    seconds = time.perf_counter() - started
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert not terms.residual.any()
    assert len(terms.weights) > 10**5 or np.array_equal(terms.total(), matrix)
    print(
        f"{rule} N={n}, {count} permutations: {len(terms.weights)} terms {seconds:.2f} s,"
        f" {gib:.2f} GiB at most"
    )


def draw_few_entries(kind: str, n: int, per_port: int, seed: int) -> sparse.csr_array:
    """Add up permutations with a random weight each; or draw entries, and fill up all lines."""
    rng = np.random.default_rng(seed)
    if kind == "permutations":
        weights = np.repeat(rng.integers(1, 1001, per_port), n)
        rows = np.tile(np.arange(n), per_port)
        columns = np.concatenate([rng.permutation(n) for _ in range(per_port)])
    else:
        weights = rng.integers(1, 1001, per_port * n)
        rows = np.repeat(np.arange(n), per_port)
        columns = rng.integers(0, n, per_port * n)
    return sparse.coo_array((weights, (rows, columns)), shape=(n, n)).tocsr()


def show_listed(runs: int) -> None:
    """Print time and terms of sparse matrices, whose entries are listed, and of full ones.

    A change that makes lists faster or slower than sets of bits moves `_SHARE` of
    `listed_peeling`; one that takes more terms, `_MUCH_LESS`.
    """
    sizes = (512, 1024, 2048, 4096, 8192)
    for kind in ("permutations", "filled"):
        is_filled = kind == "filled"
        om.decompose(draw_few_entries(kind, 128, 2, 0), fill=is_filled)
        times = []
        for n in sizes:
            matrix = draw_few_entries(kind, n, 8, 0)
            n_terms = len(om.decompose(matrix, fill=is_filled).weights)
            ms = least_cpu_ms(runs, lambda m=matrix, f=is_filled: om.decompose(m, fill=f))
            times.append(ms)
            print(f"{kind:12} N={n:<4} 8 entries a port: {n_terms:4} terms {ms:8.2f} ms")
        slope = np.log(times[-1] / times[0]) / np.log(sizes[-1] / sizes[0])
        print(f"{kind:12} time ~ N^{slope:.2f}   bar N^1.3")
        for n, per_port in ((128, 4), (256, 4), (256, 8), (512, 8)):
            matrix = draw_few_entries(kind, n, per_port, 1)
            full = matrix.toarray()
            listed_ms = least_cpu_ms(runs, lambda m=matrix, f=is_filled: om.decompose(m, fill=f))
            full_ms = least_cpu_ms(runs, lambda m=full, f=is_filled: om.decompose(m, fill=f))
            n_terms = [len(om.decompose(m, fill=is_filled).weights) for m in (matrix, full)]
            print(
                f"{kind:12} N={n:<4} {per_port} entries a port: listed {n_terms[0]} terms"
                f" {listed_ms:.2f} ms, full {n_terms[1]} terms {full_ms:.2f} ms"
            )


def show_qoblib(folder: Path) -> None:
    """Print mean terms on QOBLIB: of one run, and of the best within a second."""
    bars = {"sparse": {8: 9.6, 10: 14.4, 12: 27, 16: 37}, "dense": {8: 35, 16: 79.8}}
    rng = np.random.default_rng(0)
    for kind, n in product(bars, (8, 10, 12, 16)):
        path = folder / f"qbench_{n:02d}_{kind}.json"
        if not path.exists():
            print(f"QOBLIB {kind} n={n}: SKIPPED, no {path.name} in the folder")
            continue
        once, best = [], []
        for case in json.loads(path.read_text("utf-8")).values():
            if not isinstance(case, dict):
                continue
            stacked = np.array(case["scaled_doubly_stochastic_matrix"], dtype=np.int64)
            matrix = stacked.reshape(n, n).T
            started = time.perf_counter()
            fewest = len(decompose(matrix).weights)
            once.append(fewest)
            while time.perf_counter() - started < 1.0:
                rows, columns = rng.permutation(n), rng.permutation(n)
                fewest = min(fewest, len(decompose(matrix[rows][:, columns]).weights))
            best.append(fewest)
        bar = f"   bar {bars[kind][n]}" if n in bars[kind] else ""
        print(
            f"QOBLIB {kind} n={n}: mean terms {np.mean(once):.1f} at once,"
            f" {np.mean(best):.1f} within 1 s{bar}"
        )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="N = 512 and 1024 too")
    parser.add_argument("--listed", action="store_true", help="matrices of few entries too")
    parser.add_argument("--qoblib", type=Path, help="folder of qbench_*.json")
    parser.add_argument("--one", nargs=3, metavar=("N", "COUNT", "RULE"), help="a single run")
    args = parser.parse_args()
    if args.one:
        run_one(int(args.one[0]), int(args.one[1]), args.one[2])
        return
    show_rules(args.runs, args.seeds)
    show_small_weights(args.runs)
    show_stuffing(args.runs)
    if args.listed:
        show_listed(args.runs)
    if args.large:
        show_large()
    if args.qoblib:
        show_qoblib(args.qoblib)


if __name__ == "__main__":
    main()

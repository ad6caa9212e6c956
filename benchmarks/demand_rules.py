"""How long the rules of the portfolio take, over what they are estimated to take.

    python benchmarks/demand_rules.py [--seed 7] [--ports 16 64 192] [--all]

Demands are uniform, exponential, of heavy tails, and of eight partners for each port; delays are
0.02 to 16 mean entries. A rule has a second of processor time, and ends early where its plan gets
longer than useful. Printed are, for each rule, the least, the median, the ninth of ten and the
greatest ratio; with ``--all`` a line for each rule and demand, too, with its plan over the lower
bound. The estimates of `solvers/demands/rules.py` and how often of them a rule may take
(`solvers/demands/portfolio.py`) are tuned by it.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

import optmatch as om
from optmatch.model import TimeUp, counted_time
from optmatch.solvers.demands.first_fit import cover_first_fit
from optmatch.solvers.demands.plans import finish_plan
from optmatch.solvers.demands.portfolio import list_rules
from optmatch.solvers.demands.tasks import CoverTask, Size

KINDS = ("uniform", "exponential", "pareto", "sparse")
DELAYS = (0.02, 0.25, 1.0, 4.0, 16.0)
"""Delays, in mean entries."""
QUICK_S = 0.0008
"""Rules that are estimated to take less are taken for so long: the grace of the portfolio."""
LONGEST_S = 1.0


def draw(kind: str, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw ``demand[source, destination]`` in ticks."""
    if kind == "uniform":
        return rng.integers(1, 2000, (n, n))
    if kind == "exponential":
        return np.ceil(rng.exponential(1000.0, (n, n))).astype(np.int64)
    if kind == "pareto":
        return np.ceil(300.0 * (1.0 + rng.pareto(1.5, (n, n)))).astype(np.int64)
    demand = np.zeros((n, n), dtype=np.int64)
    for _ in range(8):
        demand[np.arange(n), rng.permutation(n)] += rng.integers(1, 2000, n)
    return demand


def main() -> None:
    """Run all rules on all demands, and print how long they take for their estimates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--ports", type=int, nargs="+", default=(16, 64, 192))
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    om.schedule(rng.integers(0, 9, (8, 8)), 0.5, time_limit_s=None)
    ratios = defaultdict[str, list[float]](list)
    for n in options.ports:
        for kind in KINDS:
            demand = draw(kind, n, rng)
            for delays_per_entry in DELAYS:
                delay = max(1, int(delays_per_entry * demand[demand > 0].mean()))
                task = CoverTask.of(demand, delay)
                bound = task.lines.bound(delay)
                least = cover_first_fit(task.entries, task.lines, 1).cost(delay)
                for estimate_s, rule in list_rules(Size.of(task)):
                    if estimate_s > 2 * LONGEST_S:
                        continue
                    cost = 0
                    began_s = time.process_time()
                    with suppress(TimeUp):
                        deadline = counted_time() + LONGEST_S
                        for plan in rule.build(
                            task._replace(deadline=deadline, useful_ticks=1.05 * least)
                        ):
                            cost = finish_plan(plan, demand).cost(delay)
                            least = min(least, cost)
                    took_s = time.process_time() - began_s
                    ratios[rule.name].append(took_s / max(estimate_s, QUICK_S))
                    if options.all:
                        print(
                            f"{n:4} {kind:11} {delays_per_entry:5g} {rule.name:24}"
                            f" {1e3 * took_s:8.2f} ms for {1e3 * estimate_s:8.2f}:"
                            f" {cost / bound:.4f}, the least {least / bound:.4f}"
                        )
    for name, values in ratios.items():
        quantiles = np.quantile(values, [0, 0.5, 0.9, 1])
        print(f"{name:24} {len(values):4}", *(f"{ratio:6.2f}" for ratio in quantiles))


if __name__ == "__main__":
    main()

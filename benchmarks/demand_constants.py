"""What a tuned constant of the solvers for demands is worth: plans and times with other values.

    python benchmarks/demand_constants.py portfolio._PATIENCE 25 400 [--kind mixed]
        [--ports 3 8 16 40] [--limit 0.05] [--count 40] [--seed 0]

A constant is named by its module in `solvers/demands`. For each value a copy of the sources is
made, whose line of the constant has it, and all problems are solved there by the default method;
processor time is counted, as machines do other work. Printed are, for each value, the objective
over that with the present value, as the geometric mean and the worst, and the time over it.

Kinds: ``mixed`` is uniform, of heavy tails, or of eight partners for each port; ``planted`` a sum
of 16 permutations; ``matchings`` the same of the square of the ports, for the fewest matchings;
``pairs`` a demand of bidirectional ports.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("mixed", "planted", "matchings", "pairs")
DELAYS = (0.1, 1.0, 8.0)
"""Delays, in mean entries."""


def solve_all(options: argparse.Namespace) -> list[tuple[float, float]]:
    """Return the objective of each problem, and the seconds of the processor that it took."""
    import optmatch as om
    from optmatch.model import limits

    limits.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[attr-defined]
    rng = np.random.default_rng(options.seed)
    results = []
    for number in range(-1, options.count):
        n = int(rng.choice(options.ports))
        demand = np.zeros((n, n), dtype=np.int64)
        if options.kind in ("planted", "matchings"):
            for weight in rng.integers(1, 1000, 16 if options.kind == "planted" else n * n):
                demand[np.arange(n), rng.permutation(n)] += weight
        elif number % 3 == 0:
            demand += rng.integers(1, 2000, (n, n))
        elif number % 3 == 1:
            demand += np.ceil(300 * (1 + rng.pareto(1.5, (n, n)))).astype(np.int64)
        else:
            for _ in range(8):
                demand[np.arange(n), rng.permutation(n)] += rng.integers(1, 2000, n)

        # Bidirectional ports need the larger of both directions, and nothing for themselves.
        fabric = om.IdealSwitch(n)
        if options.kind == "pairs":
            np.fill_diagonal(demand, 0)
            fabric = om.IdealSwitch(n, bidirectional=True)
        problem = om.Demand(
            fabric,
            demand.astype(float),
            delay_s=max(1.0, np.rint(rng.choice(DELAYS) * demand[demand > 0].mean())),
            objective="matchings" if options.kind == "matchings" else "completion-s",
        )
        limit_s = 5.0 if number < 0 else options.limit  # the first one compiles
        began_s = time.process_time()
        objective = om.solve(problem, seed=0, time_limit_s=limit_s).objective
        results.append((float(objective or np.inf), time.process_time() - began_s))
    return results[1:]


def copy_with(module: str, constant: str, value: str, folder: Path) -> None:
    """Copy the sources to a folder, with another value of a constant."""
    for name in ("optmatch", "solvers"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True)
    path = folder / "solvers" / "demands" / f"{module}.py"
    line = re.compile(rf"^{constant} = .*$", re.MULTILINE)
    text, n_lines = line.subn(f"{constant} = {value}", path.read_text())
    assert n_lines == 1, f"{module} has no constant {constant} on a line of its own"
    path.write_text(text)


def main() -> None:
    """Solve all problems with each value, and print a line for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("constant", help="MODULE.NAME")
    parser.add_argument("values", nargs="*")
    parser.add_argument("--kind", choices=KINDS, default="mixed")
    parser.add_argument("--ports", type=int, nargs="+", default=(3, 8, 16, 40))
    parser.add_argument("--limit", type=float, default=0.05)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--solve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.solve:
        print(json.dumps(solve_all(options)))
        return
    module, constant = options.constant.split(".")
    present = np.zeros((0, 2))
    for value in (None, *options.values):
        with tempfile.TemporaryDirectory() as name:
            folder = ROOT
            if value is not None:
                folder = Path(name)
                copy_with(module, constant, value, folder)
            command = [sys.executable, __file__, *sys.argv[1:], "--solve"]
            environment = {**os.environ, "PYTHONPATH": str(folder)}
            solved = subprocess.run(
                command, env=environment, cwd=name, check=True, capture_output=True, text=True
            )
        results = np.array(json.loads(solved.stdout.splitlines()[-1]))
        if value is None:
            present = results
            continue
        objective, took = (results / present).T
        print(
            f"{options.constant} = {value}: {np.exp(np.log(objective).mean()):.4f} of the present"
            f" objective, {objective.max():.4f} at worst; {took.mean():.2f} of the time",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Ask whether `best` is ever worse than another method in a quarter of its time.

    python -m tests.helpers.best_method [--seed 20261127] [--ports 2 64] [--cpu-s 35]
        [--modes] [--methods ilp schedule]

`om.schedule` is one of the others. Demands of all models of `tests.rivals.demands.models` are
drawn with ports between both numbers, even on a logarithmic scale, delays of 1 us to 10 ms and
limits of 0.1 to 1 s. With ``--modes`` they have several planes, per-circuit switching, a shortest
slot, coarse ticks or bidirectional ports, too, each with or without the others. Limits are in time
of the processor, so that a busy machine changes little. A line is printed for each demand that
another method served earlier by more than a thousandth, and counts now and then and at the end.
"""

import argparse
import time
from typing import Any, NamedTuple

import numpy as np

import optmatch as om
from optmatch.solvers.demands import METHODS
from tests.rivals.demands.models import DRAWS

TOLERANCE = 1e-3
DELAYS_S = (1e-6, 2e-5, 1e-4, 1e-3, 1e-2)
LIMITS_S = (0.1, 0.3, 1.0)
SHARE = 0.25
"""Others have this part of the time of `best`."""
GRACE_S = 0.002
"""What reading a problem and making a solution may take beside a method."""
PRINTED_EACH = 20
"""The counts are printed after so many demands."""


class Drawn(NamedTuple):
    """A demand, and the time that `best` has for it."""

    model: str
    problem: om.Demand
    limit_s: float


def draw(
    rng: np.random.Generator, fewest_ports: int, most_ports: int, *, has_modes: bool = False
) -> Drawn:
    """Draw a demand that is not empty, on one plain switch or with modes of operation."""
    while True:
        model = str(rng.choice(list(DRAWS)))
        exponent = rng.uniform(np.log2(fewest_ports), np.log2(most_ports))
        n_ports = round(2**exponent)
        demand_s = DRAWS[model](n_ports, rng)
        delay_s = float(rng.choice(DELAYS_S))
        limit_s = float(rng.choice(LIMITS_S))
        modes: dict[str, Any] = {}
        if has_modes:
            modes = draw_modes(rng, n_ports, delay_s)
            if modes["fabric"].bidirectional:
                np.fill_diagonal(demand_s, 0.0)  # no port meets itself
        if demand_s.any():
            problem = om.Demand.from_matrix(demand_s, delay_s=delay_s, **modes)
            return Drawn(model, problem, limit_s)


def draw_modes(rng: np.random.Generator, n_ports: int, delay_s: float) -> dict[str, Any]:
    """Draw how a switch works: options of `om.Demand`, each in force for a part of the demands."""
    return {
        "fabric": om.IdealSwitch(n_ports, bidirectional=bool(rng.random() < 0.25)),
        "planes": int(rng.choice([1, 1, 2, 4])),
        "switching": str(rng.choice(["all-stop", "per-circuit"])),
        "min_slot_s": float(rng.choice([0.0, delay_s])),
        "quantum_s": delay_s / 2 if rng.random() < 0.3 else None,
    }


def describe(problem: om.Demand) -> str:
    """Name the ports, the delay and the modes of a demand."""
    words = [f"{problem.fabric.n_ports} ports", f"delay {problem.delay_s:g} s"]
    words += [f"{problem.planes} planes"] * (problem.planes > 1)
    words += ["per circuit"] * (problem.switching == "per-circuit")
    words += [f"slots of {problem.min_slot_s:g} s at least"] * (problem.min_slot_s > 0)
    if problem.quantum_s is not None:
        words.append(f"ticks of {problem.quantum_s:g} s")
    words += ["bidirectional"] * problem.fabric.bidirectional
    return ", ".join(words)


def complete_s(problem: om.Demand, method: str, limit_s: float) -> float:
    """Return when a method has served a demand; infinite if it refuses it or finds nothing."""
    if method == "schedule":
        slots = om.schedule(problem.demand_bytes, problem.delay_s, time_limit_s=limit_s)
        return slots.completion_s
    try:
        solution = om.solve(problem, method=method, seed=0, time_limit_s=limit_s)
    except om.InputError:
        return float("inf")
    return float("inf") if solution.objective is None else float(solution.objective)


def complete_in_time_s(problem: om.Demand, method: str, limit_s: float) -> float:
    """Return what `complete_s` does; infinite if the method took much longer than its limit.

    Some methods make their only plan in any case, however long that takes.
    """
    began_s = time.process_time()
    objective_s = complete_s(problem, method, limit_s)
    took_s = time.process_time() - began_s
    return objective_s if took_s <= 1.2 * limit_s + GRACE_S else float("inf")


def main() -> None:
    """Draw demands for so long, and print those where another method is better."""
    parser = argparse.ArgumentParser(description=__doc__, prog="tests.helpers.best_method")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ports", type=int, nargs=2, default=(2, 64))
    parser.add_argument("--cpu-s", type=float, default=35.0)
    parser.add_argument("--modes", action="store_true")
    parser.add_argument("--methods", nargs="+")
    options = parser.parse_args()
    time.perf_counter = time.process_time
    rng = np.random.default_rng(options.seed)
    others = [method.name for method in METHODS if method.name != "best"]
    if not options.modes:
        others.append("schedule")
    if options.methods:
        others = options.methods

    # The first demand loads and compiles all that methods need.
    for name in ("best", *others):
        complete_s(draw(np.random.default_rng(0), 8, 8).problem, name, 0.2)
    began_s = time.process_time()
    n_drawn = 0
    n_worse = 0
    while time.process_time() - began_s < options.cpu_s:
        model, problem, limit_s = draw(rng, *options.ports, has_modes=options.modes)
        best_s = complete_s(problem, "best", limit_s)
        by_method = {name: complete_in_time_s(problem, name, SHARE * limit_s) for name in others}
        name = min(by_method, key=lambda name: by_method[name])
        n_drawn += 1
        if best_s > by_method[name] * (1 + TOLERANCE):
            n_worse += 1
            print(
                f"{best_s / by_method[name] - 1:.2%} worse than {name}: demand {n_drawn}, {model},"
                f" {describe(problem)}, {limit_s:g} s;"
                f" {best_s / problem.lower_bound():.4f} of the bound",
                flush=True,
            )
        if n_drawn % PRINTED_EACH == 0:
            print(f"{n_worse} of {n_drawn} so far", flush=True)
    print(f"seed {options.seed}: {n_worse} of {n_drawn} demands are served earlier by others")


if __name__ == "__main__":
    main()

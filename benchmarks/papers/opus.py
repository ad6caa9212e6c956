"""Opus (arXiv 2602.12521): cost, power and step times of photonic rails.

    python -m benchmarks.papers.opus [--case h200-dp2 ...]

Published step times are in `instances/rails/published-step-times.csv`. One efficiency for each
generation of GPUs is fitted to a step whose links are all up; nothing else is.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.papers.figures import Table, show
from optmatch.problems.costs import PRICES, compare_costs
from optmatch.problems.rails.calibration import calibrate
from optmatch.problems.rails.published import CASES, published_job
from optmatch.simulation.rails.replay import simulate_rails

CURVES = Path(__file__).parents[2] / "instances" / "rails" / "published-step-times.csv"
POLICIES = ("on-demand", "provisioned")


def read_curves() -> dict[str, dict[tuple[str, float], float]]:
    """Read step times in seconds: by case, and by policy and delay in seconds."""
    lines = CURVES.read_text().splitlines()
    curves: dict[str, dict[tuple[str, float], float]] = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        key = row["policy"], float(row["delay_ms"]) / 1e3
        curves.setdefault(row["case"], {})[key] = float(row["step_ns"]) / 1e9
    return curves


def cost_table() -> Table:
    """Tabulate cost and power of a fat tree, electrical rails and photonic rails."""
    rows = []
    for size in compare_costs((1024, 2048), PRICES["h200"]):
        designs = size.networks
        ports = ", ".join(f"{network.switch_ports + network.ocs_ports:,}" for network in designs)
        cost = ", ".join(f"{network.cost_usd / 1e6:.3f}" for network in designs)
        power = ", ".join(f"{network.power_w / 1e3:.1f}" for network in designs)
        _, electrical, photonic = designs
        cheaper = electrical.cost_usd / photonic.cost_usd
        less_power = electrical.power_w / photonic.power_w
        factors = f"{cheaper:.2f}x, {less_power:.2f}x"
        rows.append((f"{size.n_gpus:,}", ports, cost, power, "4x, over 23x", factors))
    titles = ("GPUs", "ports: tree, rail, photonic", "million dollars", "kW")
    return Table((*titles, "less cost, power: published", "ours"), rows)


def step_table(cases: Sequence[str] = tuple(CASES)) -> Table:
    """Tabulate published steps and ours, by case, policy and delay."""
    curves = read_curves()
    efficiencies = {}
    for base in ("h200-dp2", "gb200-dp4"):
        job = published_job(base, electrical=True)
        fitted = calibrate(job, curves[base]["all-links", 0.0])
        efficiencies[base.split("-")[0]] = fitted.workload.efficiency
    rows = []
    for case in cases:
        efficiency = efficiencies[case.split("-")[0]]
        electrical = published_job(case, efficiency=efficiency, electrical=True)
        steps_s = {("all-links", 0.0): electrical.lower_bound()}
        job = published_job(case, efficiency=efficiency)
        for policy, delay_s in curves[case]:
            if policy in POLICIES:
                step_s = simulate_rails(job, policy, delay_s=delay_s).step_s
                steps_s[policy, delay_s] = step_s
        for (policy, delay_s), step_s in steps_s.items():
            published_s = curves[case][policy, delay_s]
            error = f"{100 * (step_s / published_s - 1):+.2f} %"
            texts = (f"{1e3 * delay_s:g} ms", f"{published_s:.3f} s", f"{step_s:.3f} s", error)
            rows.append((case, policy, *texts))
    return Table(("case", "policy", "delay", "step, published", "ours", "difference"), rows)


def tables(cases: Sequence[str] = tuple(CASES)) -> Iterator[Table]:
    """Yield the tables of the page, and the steps of which the page has some."""
    yield cost_table()
    yield step_table(cases)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=tuple(CASES))
    show(tables(parser.parse_args().case or tuple(CASES)))

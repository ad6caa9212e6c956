"""Exact routers of feed-forward fabrics: permutations a second, on one core.

    PYTHONPATH=. python benchmarks/feedforward.py [--runs 9] [--batch 100000]

Permutations are drawn from seed 0. A time is the least of `--runs` runs, in seconds of the one
core that works, and includes the check of the input; the plain Python router
(`tests.helpers.looping`) is timed in the same run, between the runs of ours. The states of all
permutations are followed to their outputs before a row is printed. Then what the free choices of a
Benes network buy: the mean over random matchings of the time, the toggles from one to the next,
and the worst loss where bar loses 0.9 dB and cross 0.4 dB; of matchings of half of the ports the
cells that two circuits share. Last whole solves, once warm.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import defects  # noqa: F401 - they end the run
import numpy as np

import optmatch as om
from optmatch.fabrics import FABRICS, FeedForward
from optmatch.fabrics.light import trace
from optmatch.model import Schedule
from optmatch.solvers.feedforward.router import route_batch
from optmatch.verify.routing.replay import count_toggles
from tests.helpers.looping import loop_in_python

LOSSES_DB = {"bar_loss_db": 0.9, "cross_loss_db": 0.4}


def permutations(n: int, count: int) -> np.ndarray:
    """Draw random permutations."""
    keys = np.random.default_rng(0).random((count, n))
    return np.argsort(keys, axis=1).astype(np.int32)


def least_s(runs: int, work: Callable[[], object]) -> float:
    """Return the processor time of the fastest of some runs."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def check(fabric: FeedForward, rows: np.ndarray, states: np.ndarray) -> None:
    """Follow the light of every circuit."""
    for part in np.array_split(np.arange(len(rows)), -(-len(rows) // 1000)):
        starts = np.where(rows[part] < 0, -1, fabric.source_terminals)
        ends = np.where(rows[part] < 0, -1, fabric.destination_terminals[rows[part]])
        assert np.array_equal(trace(fabric.graph, states[part], starts).arrived, ends)


def show_looping(runs: int, batch: int) -> None:
    """Print the rates of Benes networks, and the ratio to plain Python."""
    for n in (8, 16, 32, 64, 128):
        fabric, rows = om.Benes(n), permutations(n, batch)
        check(fabric, rows, route_batch(fabric, rows))
        ours, theirs = np.inf, np.inf
        some = [row.tolist() for row in rows[:200]]
        assert route_batch(fabric, rows[:200]).tolist() == [loop_in_python(row) for row in some]
        for _ in range(runs):
            ours = min(ours, least_s(1, lambda given=(fabric, rows): route_batch(*given)))
            theirs = min(theirs, least_s(1, lambda given=some: list(map(loop_in_python, given))))
        rate = batch / ours
        bar = "   bar 300,000 and 200; beyond 1,000,000" if n == 32 else ""
        print(
            f"benes {n:4}: {rate:11,.0f} permutations/s, plain Python {200 / theirs:8,.0f}/s,"
            f" ratio {rate * theirs / 200:,.0f}{bar}"
        )


def show_others(runs: int, batch: int) -> None:
    """Print the rates of all fabrics with 32 ports."""
    rows = permutations(32, batch // 5)
    for cls in (cls for cls in FABRICS.values() if issubclass(cls, FeedForward)):
        fabric = cls(32)
        check(fabric, rows[:5000], route_batch(fabric, rows[:5000]))
        time_s = least_s(runs, lambda given=fabric: route_batch(given, rows))
        print(f"{fabric.type:18} 32: {len(rows) / time_s:11,.0f} permutations/s")


def worst_loss_db(fabric: FeedForward, rows: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Return the loss of the route that loses most, for each matching."""
    light = trace(fabric.graph, states, np.where(rows < 0, -1, fabric.source_terminals))
    crossed = states[light.slot, light.entered // 4] == 1
    loss = np.where(crossed, LOSSES_DB["cross_loss_db"], LOSSES_DB["bar_loss_db"])
    found = np.zeros(rows.shape)
    np.add.at(found, (light.slot, light.beam), loss)
    return found.max(axis=1)


def shared_cells(fabric: FeedForward, rows: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Count the cells that two circuits pass, for each matching."""
    light = trace(fabric.graph, states, np.where(rows < 0, -1, fabric.source_terminals))
    users = np.zeros(states.shape)
    np.add.at(users, (light.slot, light.entered // 4), 1)
    return (users > 1).sum(axis=1)


def show_choices() -> None:
    """Print the cost and the gain of free choices."""
    for n, count in ((8, 400), (16, 100), (32, 20), (64, 4)):
        fabric, rows = om.Benes(n), permutations(n, count)
        half = np.where(np.random.default_rng(1).random(rows.shape) < 0.5, rows, -1)
        line = f"benes {n:4}:"
        for prefer, given, unit in (
            ("toggles", rows, "toggles"),
            ("loss", rows, "dB"),
            ("crosstalk", half.astype(np.int32), "shared cells"),
        ):
            values = []
            route_batch(fabric, given[:1], prefer=prefer)
            for wish in (None, prefer):
                started = time.process_time()
                states = route_batch(fabric, given, prefer=wish, **LOSSES_DB)
                ms = 1e3 * (time.process_time() - started) / count
                check(fabric, given, states)
                if prefer == "toggles":
                    schedule = Schedule(
                        matchings=given, durations_s=np.ones(count), cell_states=states
                    )
                    values.append(count_toggles(schedule) / (count - 1))
                else:
                    measure = worst_loss_db if prefer == "loss" else shared_cells
                    values.append(measure(fabric, given, states).mean())
            line += f" {values[0]:.1f} -> {values[1]:.1f} {unit} ({ms:.2f} ms);"
        print(line)


def show_sizes() -> None:
    """Print whole solves, verified, of one permutation of any size."""
    for n in (3, 5, 7, 12, 33, 100, 1000):
        problem = om.Routing(om.Benes(n), permutations(n, 1)[0])
        om.solve(problem, seed=0)
        started = time.process_time()
        solution = om.solve(problem, seed=0)
        seconds = time.process_time() - started
        assert om.verify(problem, solution).valid
        print(
            f"benes {n:4}: {solution.objective:6.0f} cells, bound {solution.lower_bound:6.0f},"
            f" solved and verified in {1e3 * seconds:.1f} ms"
        )


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--batch", type=int, default=100_000)
    arguments = parser.parse_args()
    show_looping(arguments.runs, arguments.batch)
    show_others(arguments.runs, arguments.batch)
    show_choices()
    show_sizes()


if __name__ == "__main__":
    main()

"""How long `RollingSchedule.next_slot` takes at most, alone and beside a search in another thread.

    python benchmarks/rolling_slots.py [--ports 8 32] [--calls 50000] [--load 0.7]

Flows arrive at random times, so many that each port is busy for the given share of the time; the
clock moves to the end of each slot that is committed. Times are of the processor and of the
calling thread alone, so that a busy machine changes them little. Beside a search, the other thread
solves demands one after the other, and holds the interpreter's lock as any thread of Python does.
"""

from __future__ import annotations

import argparse
import gc
import threading
import time
from typing import NamedTuple

import defects  # noqa: F401 - they end the run
import numpy as np

import optmatch as om

DELAY_S = 1e-5
MEAN_FLOW_S = 4e-5
BARS_MS = {"alone": 2.0, "beside a search": 10.0}
"""The 99.9th percentile that is allowed."""


class Tail(NamedTuple):
    """The times of one run."""

    first_ms: float
    """The first call of the process in this setting."""
    times_ms: np.ndarray
    """All calls, the first one included."""
    waiting: np.ndarray
    """Demands that waited at each call."""
    collected: np.ndarray
    """Whether the garbage collector ran during the call."""


def run_slots(ports: int, calls: int, load: float, aim: str) -> Tail:
    """Commit slots while flows arrive, and time each call."""
    rng = np.random.default_rng(ports)
    rolling = om.RollingSchedule(om.IdealSwitch(ports), delay_s=DELAY_S, aim=aim)
    flows_per_s = load * ports / MEAN_FLOW_S
    times_ms = np.zeros(calls)
    waiting = np.zeros(calls, dtype=np.int64)
    collected = np.zeros(calls, dtype=bool)
    collections = [0]

    def count_collections(phase: str, _: object) -> None:
        collections[0] += phase == "start"

    gc.callbacks.append(count_collections)
    try:
        next_arrival_s = 0.0
        for call in range(calls):
            # All flows that have come by now. An empty queue waits for the next one: without any
            # there is no slot to commit.
            if not rolling.queued_bytes.any():
                rolling.advance(max(rolling.now_s, next_arrival_s))
            while next_arrival_s <= rolling.now_s:
                source, destination = rng.choice(ports, size=2, replace=False).tolist()
                rolling.add(source, destination, float(rng.exponential(MEAN_FLOW_S)) + 1e-9)
                next_arrival_s += float(rng.exponential(1.0 / flows_per_s))

            waiting[call] = rolling.figures()["waiting"]
            collections_before = collections[0]
            started_s = time.thread_time()
            slot = rolling.next_slot()
            times_ms[call] = 1e3 * (time.thread_time() - started_s)
            collected[call] = collections[0] > collections_before
            assert slot is not None
            rolling.advance(slot.end_s)
    finally:
        gc.callbacks.remove(count_collections)
    return Tail(float(times_ms[0]), times_ms, waiting, collected)


class BackgroundSearch:
    """Demands that are solved one after the other in another thread, while a block runs."""

    def __enter__(self) -> None:
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._solve_demands)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _solve_demands(self) -> None:
        rng = np.random.default_rng(1)
        while not self._ends.is_set():
            demand = om.Demand.from_matrix(rng.random((16, 16)), delay_s=0.01)
            om.solve(demand, seed=0, time_limit_s=1.0)


def show(setting: str, ports: int, aim: str, tail: Tail) -> None:
    """Print the percentiles of a run, and what its worst calls have in common."""
    median, p99, p999 = np.percentile(tail.times_ms, (50, 99, 99.9))
    worst = np.argsort(-tail.times_ms)[: max(5, len(tail.times_ms) // 1000)]
    print(
        f"{ports} ports, {aim}, {setting}: first {tail.first_ms:.2f}, median {median:.2f},"
        f" p99 {p99:.2f}, p99.9 {p999:.2f} (bar {BARS_MS[setting]:g}),"
        f" most {tail.times_ms.max():.2f} ms in {len(tail.times_ms)} calls"
    )
    print(
        f"    demands that wait: {tail.waiting.mean():.0f} in the mean,"
        f" {tail.waiting[worst].mean():.0f} at the worst calls;"
        f" garbage was collected in {tail.collected.mean():.1%} of all calls,"
        f" in {tail.collected[worst].mean():.0%} of the worst; the worst come at"
        f" {sorted(worst[:5].tolist())}",
        flush=True,
    )


def main() -> None:
    """Time slots of all settings."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ports", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--calls", type=int, default=50_000)
    parser.add_argument("--load", type=float, default=0.7)
    parser.add_argument("--aim", default="wait", choices=["wait", "completion"])
    parser.add_argument("--setting", default=list(BARS_MS), choices=list(BARS_MS), nargs="+")
    options = parser.parse_args()
    for ports in options.ports:
        for setting in options.setting:
            if setting == "alone":
                tail = run_slots(ports, options.calls, options.load, options.aim)
            else:
                with BackgroundSearch():
                    tail = run_slots(ports, options.calls, options.load, options.aim)
            show(setting, ports, options.aim, tail)


if __name__ == "__main__":
    main()

"""The JSON of `make bench` beside the times: versions, memory, ratios, exponents."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import defects  # noqa: F401 - they end a run
import pytest
import report
from pytest_benchmark.fixture import BenchmarkFixture

from optmatch.commands.info import collect

Measure = Callable[..., None]


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict) -> None:
    """Add what `optmatch info` tells, but folders."""
    info = collect()
    del info["numba_cache"]
    machine_info["versions"] = info
    machine_info["node"] = "not told"


def pytest_benchmark_update_json(
    config: pytest.Config, benchmarks: list[Any], output_json: dict[str, Any]
) -> None:
    """Add the tables that follow from the rows."""
    rows = output_json["benchmarks"]
    output_json["peers"] = report.against_peers(rows)
    output_json["bounds"] = report.against_bounds(rows)
    output_json["scaling"] = report.exponents(rows)


@pytest.fixture
def measure(benchmark: BenchmarkFixture) -> Measure:
    """Return a function that times some work and keeps a row; the first of several calls is free.

    `tell` takes what was found, checks it, and returns what goes into the row; so does `extra`.
    """

    def run(
        group: str,
        work: Callable[[], Any],
        tell: Callable[[Any], dict[str, Any]] = lambda found: {},
        *,
        rounds: int = 5,
        memory: bool = False,
        **extra: Any,
    ) -> None:
        benchmark.group = group
        if memory:
            extra["memory_mib"] = peak_mib(work)
        elif rounds > 1:
            work()
        benchmark.extra_info.update(extra, **tell(benchmark.pedantic(work, rounds=rounds)))

    return run


def peak_mib(work: Callable[[], Any]) -> float:
    """Return the most memory that some work holds of Python and NumPy; OR-tools has its own."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()

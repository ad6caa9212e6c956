"""What all tests share: repeatable hypothesis runs, and which tests coverage traces."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.modes import PLAIN

settings.register_profile(
    "optmatch",
    deadline=None,  # first calls compile kernels and fill caches
    derandomize=True,  # the same examples in every run
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("optmatch")

UNTRACED = frozenset(Path(__file__).with_name("untraced.txt").read_text("utf-8").splitlines())
"""Tests that reach no line or branch but those that others reach: tracing doubles their time."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run all tests, and trace those that are not listed as untraced.

    A process runs its traced tests first: what is imported or put into a cache is seen once. Of
    the others long ones are first, so that no process waits for another at the end.
    """
    if PLAIN or not config.pluginmanager.hasplugin("_cov"):  # plain Python sees into kernels
        return
    traced, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        names = {item.nodeid, item.nodeid.partition("[")[0]}
        (traced if UNTRACED.isdisjoint(names) else others).append(item)
    others.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in others:
        item.add_marker(pytest.mark.no_cover)
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))  # each starts with such a part
    items[:] = [
        item
        for k in range(count)
        for group in (traced, others)
        for item in group[len(group) * k // count : len(group) * (k + 1) // count]
    ]

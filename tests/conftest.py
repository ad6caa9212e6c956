"""Settings that all tests share: repeatable hypothesis runs, short searches for plans of rails."""

import gc
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers import modes
from tests.helpers.defects import DEFECTS, RAISE, raise_defects
from tests.helpers.modes import PLAIN, examples

settings.register_profile(
    "optmatch",
    max_examples=examples(20, plain=10),  # of tests that name no number
    deadline=None,  # first calls compile kernels and fill caches
    derandomize=True,  # the same examples in every run
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("optmatch")

# All that is loaded until tests are collected stays: without the collector it takes a third less.
gc.disable()

raise_defects()

# Kernels that are compiled in numba's plain way, as it has other parts than we know, fail a test:
# here by `filterwarnings`, and in processes that tests start by this.
os.environ.setdefault("PYTHONWARNINGS", "error:numba:RuntimeWarning")

METHODS = Path(__file__).parent / "solvers"


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make nightly` runs first in other modes: of the tests of each method, two."""
    for item in items:
        if item.get_closest_marker("kernels") and item.path.is_relative_to(METHODS):
            few = "verifier" in item.name or "brute_force" in item.name
            if few or item.path.name != "test_contract.py":
                item.add_marker("modes")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make test` ask for the line that ends it."""
    parser.addoption("--closing-line", action="store_true", help="say at the end what is left out")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in one line what was skipped, and what `make nightly` adds."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not config.getoption("--closing-line"):
        return
    reasons = Counter(report.longrepr[2] for report in reporter.stats.get("skipped", []))
    counted = "; ".join(f"{n} {reason.removeprefix('Skipped: ')}" for reason, n in reasons.items())
    added = os.environ.get("NIGHTLY", "")
    print(f"skipped: {counted or 'none'}. `make nightly` adds {added.replace(' ', ', ')}.")


def pytest_collection_finish() -> None:
    """Leave what is loaded to the end: the collector goes through it again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _try_few_rail_plans() -> None:
    """Most tests need a plan, not the best: 60,000 trials take a second, or a hundred."""
    from optmatch.solvers.rails import forwarding

    forwarding._MOST_TRIALS = 150 if PLAIN else 1_500


@pytest.fixture
def limits_in_cpu_time() -> Iterator[None]:
    """Let time limits count the time of this process, see `tests.helpers.modes`."""
    with modes.limits_in_cpu_time():
        yield


@pytest.fixture
def defects_are_passed_over() -> Iterator[None]:
    """Let `optmatch.solve` log defects as it does for users; elsewhere they are errors."""
    DEFECTS.removeHandler(RAISE)
    yield
    DEFECTS.addHandler(RAISE)

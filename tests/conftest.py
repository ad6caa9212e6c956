"""Settings that all tests share: repeatable hypothesis runs, short searches for plans of rails."""

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


@pytest.fixture(autouse=True, scope="session")
def _try_few_rail_plans() -> None:
    """Most tests need a plan, not the best: 60,000 trials take a second, or a hundred."""
    from optmatch.solvers.rails import forwarding

    forwarding._MOST_TRIALS = 150 if PLAIN else 4_000

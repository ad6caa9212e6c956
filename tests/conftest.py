"""What all tests share: repeatable hypothesis runs, and short searches where kernels are slow."""

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


@pytest.fixture(autouse=PLAIN, scope="session")
def _try_few_rail_plans() -> None:
    """Plain Python takes a hundred times as long for each."""
    from optmatch.solvers.rails import forwarding

    forwarding._MOST_TRIALS = 150

"""What all tests share: repeatable hypothesis runs, and the folder of the oracles on the path."""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile(
    "optmatch",
    deadline=None,  # first calls compile kernels and fill caches
    derandomize=True,  # the same examples in every run
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("optmatch")

"""What all tests share: repeatable hypothesis runs."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "optmatch",
    deadline=None,  # first calls compile kernels and fill caches
    derandomize=True,  # the same examples in every run
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("optmatch")

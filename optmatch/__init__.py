"""Optical circuit matchings: schedules and switch states for machine-learning clusters."""

import lazy_loader

# These two at once: they share their names with a package and would else be hidden by its import.
from optmatch.entrances import solve, verify  # noqa: F401 - listed in the stub

__version__ = "0.1.0"

# The names stand in `__init__.pyi`, where editors and type checkers read them too.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

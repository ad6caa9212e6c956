"""Optical circuit matchings: schedules and switch states for machine-learning clusters."""

from typing import Any

import lazy_loader

# These two at once: they share their names with a package and would else be hidden by its import.
from optmatch.entrances import solve, verify  # noqa: F401 - listed in the stub
from optmatch.model import Solution
from optmatch.plotting.notebook import show_objects

__version__ = "0.1.0"

# The names stand in `__init__.pyi`, where editors and type checkers read them too.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _to_dataframe(solution: Solution) -> Any:
    """Return the answer as a table of pandas."""
    from optmatch.io import to_dataframe

    return to_dataframe(solution)


show_objects()
setattr(Solution, "to_dataframe", _to_dataframe)  # noqa: B010 - it reads files' tables, unlike its class

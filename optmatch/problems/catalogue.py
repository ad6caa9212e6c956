"""All classes of problems, by the names that files use."""

from __future__ import annotations

from typing import Any

from optmatch import problems
from optmatch.model import Problem

# Classes of problems are those of the names that this package exports which have objectives.
_EXPORTED: list[Any] = [getattr(problems, name) for name in dir(problems) if name != "PROBLEMS"]
PROBLEMS: dict[str, type[Problem]] = {
    cls.kind: cls for cls in _EXPORTED if hasattr(cls, "objectives")
}
"""Problem classes by the ``"kind"`` of files."""

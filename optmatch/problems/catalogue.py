"""All classes of problems, by the names that files use."""

from __future__ import annotations

from typing import Any

from optmatch import problems
from optmatch.model import Problem


def _list_classes() -> dict[str, type[Problem]]:
    """Find the problem classes among the names that this package exports."""
    names = (name for name in dir(problems) if name != "PROBLEMS")
    exported: list[Any] = [getattr(problems, name) for name in names]
    return {cls.kind: cls for cls in exported if hasattr(cls, "objectives")}


PROBLEMS = _list_classes()
"""Problem classes by the ``"kind"`` of files."""

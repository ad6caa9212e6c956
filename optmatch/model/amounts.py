"""Amounts: objectives and bounds, each a number, or whole numbers level by level."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

Amount: TypeAlias = Any
"""``float | tuple[int, ...]``: a number in the unit of the problem; or levels, of which an earlier
one counts before all later ones. A bound may be infinite in both cases. Not a union, as each kind
of problem has one of both, and who asks it need not rule the other out."""


def is_known(amount: Amount | None) -> bool:
    """Tell whether an amount is there and finite.

    Examples
    --------
    >>> is_known((0, 3)), is_known(2.5), is_known(float("inf")), is_known(None)
    (True, True, False, False)
    """
    return isinstance(amount, tuple) or (amount is not None and math.isfinite(amount))


def is_levels(value: Any) -> bool:
    """Tell whether a value is a tuple of whole numbers."""
    return isinstance(value, tuple) and all(type(level) is int for level in value)


def gap_between(objective: Amount, bound: Amount) -> float:
    """Return (objective - bound) / objective, of levels that of the first one that differs.

    Examples
    --------
    >>> gap_between(4.0, 3.0), gap_between((0, 4, 9), (0, 3, 2)), gap_between((0, 2), (0, 2))
    (0.25, 0.25, 0.0)
    """
    if isinstance(objective, tuple) and isinstance(bound, tuple):
        pairs = zip(objective, bound, strict=True)
        objective, bound = next(((a, b) for a, b in pairs if a != b), (0, 0))
    if isinstance(objective, tuple) or isinstance(bound, tuple):
        return math.inf
    if objective <= bound:
        return 0.0
    return (objective - bound) / abs(objective) if objective else math.inf


def write_amount(amount: Amount, unit: str = "") -> str:
    """Write an amount with its unit.

    Examples
    --------
    >>> write_amount(2.5, "s"), write_amount((0, 3, 12))
    ('2.5 s', '0, 3, 12')
    """
    text = ", ".join(map(str, amount)) if isinstance(amount, tuple) else f"{amount:g}"
    return f"{text} {unit}".rstrip()

"""Numbers as texts of foreign files write them."""

from __future__ import annotations

import re

from optmatch.io.fields import shorten
from optmatch.model import FormatError

EXACT = 2**53
"""Whole numbers beyond this are refused: float64 would round them."""

_NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([ed][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE
)


def is_number(text: str) -> bool:
    """Tell whether a text is a number, as other programs write them."""
    return _NUMBER.fullmatch(text) is not None


def read_number(text: str, path: str) -> float:
    """Return the number; raise `FormatError` if it is none, or a whole one that is not exact."""
    if not is_number(text):
        raise FormatError(f"{shorten(text)}: a number is expected here", path=path)
    digits = text.lstrip("+-").lstrip("0")
    if digits.isdecimal() and (len(digits) > 16 or int(digits) > EXACT):
        shown = shorten(text).strip("'")
        raise FormatError(f"{shown}: whole numbers above 2**53 are not exact here", path=path)
    return float(text.lower().replace("d", "e"))

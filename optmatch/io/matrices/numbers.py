"""Numbers as other programs write them, read without losing digits."""

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


def is_whole(text: str) -> bool:
    """Tell whether a text is a whole number >= 0 without a sign, as labels and indices are."""
    return text.isascii() and text.isdecimal() and len(text) < 19


def read_number(text: str, path: str) -> float:
    """Return the number that a text is, as ``3``, ``-0.5e3``, or Fortran's ``1d6``.

    A whole number that float64 would round is refused.
    """
    if text == "":
        raise FormatError(
            "'': a number is expected here; an empty field could be 0 or a value that is missing",
            path=path,
        )
    if not is_number(text):
        raise FormatError(f"{shorten(text)}: a number is expected here", path=path)

    digits = text.lstrip("+-").lstrip("0")
    if digits.isdecimal() and (len(digits) > 16 or int(digits) > EXACT):
        shown_text = shorten(text).strip("'")
        raise FormatError(f"{shown_text}: whole numbers above 2**53 are not exact here", path=path)

    # Fortran writes the exponent of a double after a d.
    return float(text.lower().replace("d", "e"))
